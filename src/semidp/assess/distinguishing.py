"""How well two distributions on finitely many outcomes can be told apart: exact curves, and attacks
as lower bounds.

A curve here is exact for its two distributions, so it may be claimed. An attack is a feasible
test: its advantage is a lower bound. The distributions are in `swapping` and `cell_keys`.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import round_down
from semidp.promise.tradeoff.function import Floats, Tradeoff
from semidp.promise.tradeoff.polygons import PiecewiseLinear, lower_hull

Law = Mapping[Any, Fraction]
"""The probability of each outcome."""

Corner = tuple[Fraction, Fraction]
"""The size and the power of a test: its rejection probability under the first and the second
distribution."""

_CELLS = 1 << 13  # of the grid on which an attacker adds up logarithms of likelihood ratios
_STEPS = 1 << 20  # cells of the sum over all outcomes, at most
_ROUNDOFF = 1e-9  # of sums by Fourier transforms, all cells together


def corners_between(first: Law, second: Law) -> list[Corner]:
    """Return the corners of the most powerful tests of `first` against `second`, exactly.

    The lemma of Neyman and Pearson: reject for the outcomes with the largest likelihood ratio
    (lehmann2005testing).

    >>> heads, tails = Fraction(3, 4), Fraction(1, 4)
    >>> corners = corners_between({"h": heads, "t": tails}, {"h": tails, "t": heads})
    >>> [(str(size), str(power)) for size, power in corners]
    [('0', '0'), ('1/4', '3/4'), ('1', '1')]
    """
    outcomes = {*first, *second}
    nothing = Fraction(0)
    masses = [(first.get(outcome, nothing), second.get(outcome, nothing)) for outcome in outcomes]
    certain = sum((power for size, power in masses if not size), nothing)
    shared = [mass for mass in masses if mass[0]]
    shared.sort(key=lambda mass: mass[1] / mass[0], reverse=True)
    corners = [(nothing, certain)]
    for size, power in shared:
        last = corners[-1]
        corners.append((last[0] + size, last[1] + power))
    return corners


def curve_through(corners: Iterable[Corner]) -> PiecewiseLinear:
    """Return the greatest tradeoff function that is nowhere above the corners of any test.

    The corners of several pairs may be given together: the curve then holds for each of the
    pairs. It is the convex minorant of the least of their curves.

    >>> curve_through(
    ...     [
    ...         (Fraction(0), Fraction(0)),
    ...         (Fraction(1, 4), Fraction(3, 4)),
    ...         (Fraction(1), Fraction(1)),
    ...     ]
    ... )
    PiecewiseLinear(alphas=(Fraction(0, 1), Fraction(3, 4), Fraction(1, 1)), values=(Fraction(0, 1),
    ...
    """
    one = Fraction(1)
    # guessing is always possible, and so is never to reject
    points = {Fraction(0): Fraction(0), one: one}
    for size, power in corners:
        alpha = one - size
        value = max(one - power, Fraction(0))
        points[alpha] = min(points.get(alpha, alpha), value)
    hull = lower_hull(sorted(points.items()))
    return PiecewiseLinear(tuple(alpha for alpha, _ in hull), tuple(value for _, value in hull))


def curve_between(first: Law, second: Law) -> PiecewiseLinear:
    """Return the exact tradeoff function of two laws, in both directions: how well anybody can tell
    them apart.

    >>> honest = {"heads": Fraction(1, 2), "tails": Fraction(1, 2)}
    >>> loaded = {"heads": Fraction(3, 4), "tails": Fraction(1, 4)}
    >>> curve_between(honest, loaded).delta(0)
    0.25
    """
    forwards = corners_between(first, second)
    backwards = corners_between(second, first)
    return curve_through([*forwards, *backwards])


def advantage(curve: Tradeoff) -> float:
    """Return the advantage of the best attacker over chance:
    ``max over α of α - f(α)``, rounded up.

    With both datasets equally likely the attacker is right in (1 + advantage)/2 of all cases. It is
    the total variation distance, and delta at epsilon 0.

    >>> from semidp.promise import gaussian
    >>> round(advantage(gaussian(1)), 4)
    0.3829
    """
    return curve.delta(0)


def gaussian_mu(advantage: float) -> float:
    """Return the mu of the Gaussian mechanism with this advantage, ``2 Φ^-1((1 + advantage)/2)``.

    >>> round(gaussian_mu(0.3829), 3)
    1.0
    """
    from scipy.special import ndtri

    return 2 * float(ndtri((1 + advantage) / 2))


@define(eq=False)
class Frontier:
    """The most powerful of many tests, kept as floats: corners (size, power) on their upper
    hull.
    """

    sizes: Floats = field(factory=lambda: np.array([0.0, 1.0]))
    powers: Floats = field(factory=lambda: np.array([0.0, 1.0]))

    def add(self, first: Floats, second: Floats) -> float:
        """Add the tests between two laws on the same outcomes, in both directions; return their
        advantage.

        >>> frontier = Frontier()
        >>> frontier.add(np.array([0.5, 0.5]), np.array([0.75, 0.25]))
        0.25
        >>> frontier.sizes.tolist(), frontier.powers.tolist()
        ([0.0, 0.25, 0.5, 1.0], [0.0, 0.5, 0.75, 1.0])
        """
        for null, other in ((first, second), (second, first)):
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = np.where(null > 0, other / null, np.inf)
            order = np.argsort(-ratios, kind="stable")
            sizes = np.cumsum(null[order])
            powers = np.cumsum(other[order])
            self._keep(sizes, powers)
        return float(np.abs(first - second).sum() / 2)

    def _keep(self, sizes: Floats, powers: Floats) -> None:
        """Keep those of the new corners that rise above the hull so far."""
        above = powers > np.interp(sizes, self.sizes, self.powers) + 1e-15
        if not above.any():
            return
        sizes = np.concatenate([self.sizes, np.minimum(sizes[above], 1.0)])
        powers = np.concatenate([self.powers, np.minimum(powers[above], 1.0)])
        # of several corners of one size the most powerful
        order = np.lexsort((-powers, sizes))
        lifted = zip(sizes[order].tolist(), (-powers[order]).tolist(), strict=True)
        unique = dict(reversed(list(lifted)))
        hull = np.array(lower_hull(sorted(unique.items())))
        self.sizes = hull[:, 0]
        self.powers = -hull[:, 1]

    def curve(self, relative: float, lost: float) -> PiecewiseLinear:
        """Return the curve below all tests, allowing for a relative error of every probability
        and for missing mass.

        Parameters
        ----------
        relative
            The largest relative error of a probability.
        lost
            The mass of outcomes that were left out: the attacker is granted certainty there.

        Examples
        --------
        >>> frontier = Frontier()
        >>> frontier.add(np.array([0.5, 0.5]), np.array([0.75, 0.25]))
        0.25
        >>> 0.25 < frontier.curve(1e-12, 1e-12).delta(0) < 0.25 + 1e-11
        True
        """
        # hull corners dropped for being within 1e-15 are paid for here
        slack = lost + 1e-14
        sizes = np.maximum(self.sizes * (1 - relative) - slack, 0.0)
        powers = np.minimum(self.powers * (1 + relative) + slack, 1.0)
        corners = zip(map(Fraction, sizes.tolist()), map(Fraction, powers.tolist()), strict=True)
        return curve_through(corners)


def repeated_advantage(first: Law, second: Law, times: int) -> float:
    """Return the least advantage of an attacker who sees `times` independent outcomes of the same
    law.

    The attacker adds up logarithms of likelihood ratios, rounded to a grid. Whatever the rounding,
    this is a feasible test, so its advantage is never above the truth. An outcome that only one
    distribution can produce decides.

    Parameters
    ----------
    first, second
        The two laws of one outcome.
    times
        How many outcomes there are.

    Examples
    --------
    >>> heads, tails = Fraction(3, 4), Fraction(1, 4)
    >>> laws = {"h": heads, "t": tails}, {"h": tails, "t": heads}
    >>> repeated_advantage(*laws, 1), round(repeated_advantage(*laws, 40), 3)
    (0.5, 0.999)
    """
    if times < 1:
        raise InputError(f"an attacker sees at least 1 outcome, not {times}")
    if times == 1:
        return round_down(_distance(first, second))
    shared = [outcome for outcome in first if first[outcome] and second.get(outcome)]
    if not shared:
        return 1.0
    null = np.array([float(first[outcome]) for outcome in shared])
    other = np.array([float(second[outcome]) for outcome in shared])
    losses = np.log(other) - np.log(null)
    # the grid is as fine as the sum of all outcomes allows
    steps = min(_CELLS, _STEPS // times)
    reach = float(np.abs(losses).max()) or 1.0
    places = np.rint(losses / reach * steps).astype(np.int64)
    places -= places.min()
    sums = [_convolve_power(sum_masses(places, masses), times) for masses in (null, other)]
    # mass outside `shared` is in neither sum: it settles the matter
    overlap = float(np.minimum(*sums).sum())
    return max(1.0 - overlap - _ROUNDOFF, 0.0)


def sum_masses(places: NDArray[np.int64], masses: Floats) -> Floats:
    """Return the total mass at each place, from place 0 on.

    >>> sum_masses(np.array([0, 2, 2]), np.array([0.5, 0.25, 0.25]))
    array([0.5, 0. , 0.5])
    """
    return np.bincount(places, weights=masses).astype(np.float64)


def _distance(first: Law, second: Law) -> Fraction:
    """Total variation distance of two laws."""
    nothing = Fraction(0)
    outcomes = {*first, *second}
    gaps = [abs(first.get(outcome, nothing) - second.get(outcome, nothing)) for outcome in outcomes]
    return sum(gaps, nothing) / 2


def _convolve_power(once: Floats, times: int) -> Floats:
    """Law of the sum of independent draws, by repeated squaring; round-off below zero is cut
    off.
    """
    import scipy.signal

    total = np.array([1.0])
    square = once
    while True:
        if times % 2:
            total = np.maximum(scipy.signal.fftconvolve(total, square), 0.0)
        times //= 2
        if not times:
            return total
        square = np.maximum(scipy.signal.fftconvolve(square, square), 0.0)
