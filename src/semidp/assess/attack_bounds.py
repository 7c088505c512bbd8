"""Proofs from counts: exact confidence bounds for one attack on a tradeoff curve, and whether
a mechanism draws as much noise as it states (the energy of its draws in fixed directions).

Nothing here draws or chooses; `scores` and `attack` decide which events are counted. The attack
compares two tables, so it says nothing about a cell in which they agree. The energy test covers
every published cell, and one direction chosen on separate draws.
"""

import math
from typing import Any

import numpy as np
import scipy
from attrs import asdict, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.exact import round_down, round_up
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

Floats = NDArray[np.float64]


def at_least(hits: ArrayLike, trials: int, error: float) -> Floats:
    """Return the lower bound of Clopper and Pearson (1934): a probability is below it in at most
    `error` of cases.

    >>> float(at_least(0, 100, 0.001)), round(float(at_least(100, 100, 0.001)), 4)
    (0.0, 0.9333)
    """
    k = np.asarray(hits, dtype=np.float64)
    # without hits the bound is 0, and the quantile below is not used
    positive_hits = np.maximum(k, 1.0)
    quantiles = scipy.special.betaincinv(positive_hits, trials - k + 1, error)
    return np.asarray(np.where(k > 0, quantiles, 0.0))


def at_most(hits: ArrayLike, trials: int, error: float) -> Floats:
    """Return the upper bound of Clopper and Pearson (1934).

    >>> round(float(at_most(0, 100, 0.001)), 4), float(at_most(100, 100, 0.001))
    (0.0667, 1.0)
    """
    k = np.asarray(hits, dtype=np.float64)
    # the lower bound for the misses, which keeps its digits where the probability itself is close
    # to 1
    return np.asarray(1.0 - at_least(trials - k, trials, error))


def allowed_power(claim: Tradeoff, size: ArrayLike) -> Floats:
    """Return the largest power of a test of this size that a claim allows, ``1 - f(1 - size)``.

    >>> from semidp.promise.tradeoff.budget import approximate
    >>> round(float(allowed_power(approximate(1), 0.1)), 6)
    0.271828
    """
    size = np.asarray(size, dtype=np.float64)
    return np.asarray(1.0 - np.asarray(claim(1.0 - size)))


@frozen
class Point:
    """One attack, counted on fresh outputs: its false alarms, its power, and the allowed power.

    Parameters
    ----------
    attack
        What the attacker looked at.
    size, power
        The observed shares of outputs in the event, under the one table and under the other.
    size_high, power_low
        Bounds that hold together with a probability of at least one minus the error given to this
        point.
    allowed
        The largest power that the claim allows at `size_high`.

    Examples
    --------
    >>> Point(
    ...     "projection", size=0.05, power=0.3, size_high=0.06, power_low=0.28, allowed=0.29
    ... ).convicts
    False
    """

    attack: str
    size: float
    power: float
    size_high: float
    power_low: float
    allowed: float

    @classmethod
    def from_hits(
        cls, attack: str, hits: tuple[int, int], trials: int, error: float, claim: Tradeoff
    ) -> "Point":
        """Return the point for the hits under the null and under the alternative, half of the error
        for each.

        >>> from semidp.promise.tradeoff.budget import gaussian
        >>> Point.from_hits("projection", (30, 900), 1000, 1e-3, gaussian(1)).convicts
        True
        """
        false_alarms, detections = hits
        size_high = float(at_most(false_alarms, trials, error / 2))
        power_low = float(at_least(detections, trials, error / 2))
        allowed = float(allowed_power(claim, size_high))
        size, power = false_alarms / trials, detections / trials
        return cls(attack, size, power, size_high, power_low, allowed)

    @property
    def convicts(self) -> bool:
        """Whether the attack succeeds more often than the claim allows."""
        return self.power_low > self.allowed

    @property
    def mu(self) -> float:
        """A lower bound of mu: a mu-GDP mechanism has ``power <= Phi(Phi^-1(size) + mu)``."""
        if self.power_low <= 0 or self.size_high >= 1:
            return 0.0
        ndtri = scipy.special.ndtri
        return max(0.0, float(ndtri(self.power_low) - ndtri(self.size_high)))

    def epsilon(self, delta: float = 0.0) -> float:
        """Return a lower bound of epsilon at a delta: ``power <= e^epsilon size + delta``, and for
        the complement.

        >>> round(Point("l1", 0.1, 0.3, 0.1, 0.3, 0.27).epsilon(), 6)  # ln 3
        1.098612
        >>> # Nothing is detected beyond such a delta
        >>> Point("l1", 0.1, 0.3, 0.1, 0.3, 0.27).epsilon(0.95)
        0.0
        """
        event = (self.power_low, self.size_high)
        complement = (1 - self.size_high, 1 - self.power_low)
        bounds = [0.0]
        for more, less in (event, complement):
            if more > delta and less > 0:
                bounds.append(float(np.log((more - delta) / less)))
        return max(bounds)

    @property
    def rho(self) -> float:
        """A lower bound of rho, from the curve of rho-zCDP:
        ``sqrt(ln 1/size) - sqrt(ln 1/power) <= sqrt(rho)``.
        """
        if self.power_low <= 0 or self.size_high >= 1:
            return 0.0
        rare = _root_log(self.size_high) - _root_log(self.power_low)
        # the same for the complement, whose probabilities keep their digits near 1
        common = np.sqrt(-np.log1p(-self.power_low)) - np.sqrt(-np.log1p(-self.size_high))
        return float(max(0.0, rare, common) ** 2)

    def to_json(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return {
            "attack": self.attack,
            "size": self.size,
            "power": self.power,
            "size_at_most": self.size_high,
            "power_at_least": self.power_low,
            "power_allowed": self.allowed,
        }


def _root_log(probability: float) -> Any:
    return np.sqrt(-np.log(probability))


@frozen
class Bound:
    """A lower bound in the unit of the claim: the loss is at least `measured`, and `claimed` is
    the claim.

    >>> Bound("mu", measured=0.84, claimed=1.0)
    Bound(unit='mu', measured=0.84, claimed=1.0)
    """

    unit: str
    measured: float
    claimed: float


def best_bound(claim: Tradeoff, points: tuple[Point, ...]) -> Bound:
    """Return the best lower bound that the points prove, in the unit of the claim.

    mu for a Gaussian curve, rho for zCDP, epsilon for (epsilon, delta); for any other curve the
    power of the attack that comes closest to what the claim allows, or beats it by most.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> best_bound(gaussian(1), (Point("projection", 0.5, 0.8, 0.5, 0.8, 0.84),))
    Bound(unit='mu', measured=0.8416212335729143, claimed=1.0)
    """
    if not points:
        raise InputError("a bound needs at least one point")
    if isinstance(claim, Gaussian):
        return Bound("mu", max(point.mu for point in points), round_up(claim.mu))
    if isinstance(claim, ZCDP):
        return Bound("rho", max(point.rho for point in points), round_up(claim.rho))
    if isinstance(claim, Approximate) and claim.size == 1:
        delta = round_down(claim.delta0)
        unit = f"epsilon at delta {delta:g}" if delta else "epsilon"
        measured = max(point.epsilon(delta) for point in points)
        return Bound(unit, measured, round_up(claim.epsilon0))
    best = worst_point(points)
    return Bound(f"power at size {best.size_high:.4g}", best.power_low, best.allowed)


def worst_point(points: tuple[Point, ...]) -> Point:
    """Return the point that beats what the claim allows by most, or comes closest to it.

    >>> near, far = (
    ...     Point(name, 0.1, 0.2, 0.1, power, 0.3) for name, power in (("a", 0.2), ("b", 0.1))
    ... )
    >>> worst_point((far, near)).attack
    'a'
    """

    def excess(point: Point) -> float:
        # in units of the spread that an attack with the allowed power would have
        variance = point.allowed * (1 - point.allowed)
        spread = math.sqrt(max(variance, 1e-12))
        return (point.power_low - point.allowed) / spread

    return max(points, key=excess)


MOST_DRAWS = 50_000
"""More draws are not needed."""

LEAST_VARIANCE = 0.5
"""Cells with less variance are skipped: rounding may change the variance of such
noise."""

FOURTH_MOMENT = 8.0
"""A bound on ``E v⁴ / (E v²)²`` of noise v with variance at least `LEAST_VARIANCE`."""

_MOST_CELLS = 1_024
_CHUNK = 1 << 20  # numbers held at a time


@frozen
class Energy:
    """The direction in which the draws of a mechanism fall short of their stated variance by most.

    Parameters
    ----------
    direction
        Its name.
    share
        The mean square of the draws in this direction, as a share of the variance that the
        mechanism states.
    least
        The share below which a mechanism that states its variance correctly falls with a
        probability of at most the error of the test, in any direction.
    directions
        The number of directions tested.

    Examples
    --------
    >>> Energy("cell 1, 2", share=0.7, least=0.9, directions=9).convicts
    True
    """

    direction: str
    share: float
    least: float
    directions: int

    @property
    def convicts(self) -> bool:
        """Whether the mechanism draws less noise than it states."""
        return self.share < self.least

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self)


def noise_energy(
    mechanism: Mechanism,
    values: NDArray[np.int64],
    draws: int,
    error: float,
    randomness: Randomness,
) -> Energy | None:
    """Compare the mean square of draws with the stated variance, in each published cell and in one
    chosen direction.

    Nonnegative X with mean m satisfy ``P(mean of n <= (1 - t) m) <= exp(-n t² m² / (2 E X²))``
    (Maurer 2003). Here X = v² for the noise v in a direction, and log-concave symmetric noise has
    ``E v⁴ <= 6 (E v²)²`` (Karlin, Proschan and Barlow 1961). For whole numbers of a variance of at
    least 1/2 it is taken as 8, which the discrete Laplace law attains (``6 + 1/variance``); the
    tests enumerate that and the other laws of single cells. A fifth of the draws chooses the
    direction of least energy, the others are counted; the error is split evenly over all
    directions.

    Parameters
    ----------
    mechanism
        The mechanism, which states a standard error for every weighted sum of published cells.
    values
        A table to measure.
    draws
        The number of outputs.
    error
        The largest probability of convicting a mechanism that draws what it states.
    randomness
        Where random words come from.

    Returns
    -------
    The direction that falls short by most, or None if no cell has a variance of at least
    1/2: such noise is comparable to the rounding of whole numbers. Of more than 1,024 cells, 1,024
    that are spread evenly are tested.

    Examples
    --------
    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> space, table = two_way()
    >>> honest = RoundedGaussianMechanism.calibrate(space, Budget.gdp(1))
    >>> energy = noise_energy(honest, table.counts, 10_000, 1e-3, SeededRandomness(1))
    >>> energy.convicts, energy.directions
    (False, 7)
    """
    stated = mechanism.standard_errors().ravel() ** 2
    noisy = np.flatnonzero(stated >= LEAST_VARIANCE)
    if not noisy.size:
        return None
    number = min(len(noisy), _MOST_CELLS)
    spaced = np.linspace(0, len(noisy) - 1, number).astype(int)
    cells = noisy[np.unique(spaced)]
    projected = []
    for cell in cells:
        unit = np.eye(1, values.size, cell).reshape(values.shape)
        projected.append(mechanism.space.project(unit).ravel())
    published = np.stack(projected)
    # A fifth of the draws chooses a direction; the others are counted, so the bound holds for
    # it too.
    second_moments = _moments(mechanism, values, published, draws // 5, randomness)
    weights = _weakest(second_moments, published, cells)
    chosen = np.zeros(values.size)
    chosen[cells] = weights
    directions = np.vstack([published, weights @ published])
    chosen_error = mechanism.standard_error(chosen.reshape(values.shape))
    variances = np.append(stated[cells], chosen_error**2)
    counted = draws - draws // 5
    shares = np.diag(_moments(mechanism, values, directions, counted, randomness)) / variances
    worst = int(shares.argmin())
    # Maurer's bound with error/directions for each direction, solved for t
    log_error = math.log(len(shares) / error)
    short = math.sqrt(2 * FOURTH_MOMENT * log_error / counted)
    name = "the chosen direction"
    if worst < len(cells):
        name = _name(int(cells[worst]), values.shape)
    least = max(0.0, 1 - short)
    return Energy(name, float(shares[worst]), least, len(shares))


def _moments(
    mechanism: Mechanism,
    values: NDArray[np.int64],
    directions: Floats,
    draws: int,
    randomness: Randomness,
) -> Floats:
    """The mean products of the noise in these directions."""
    step = max(1, _CHUNK // values.size)
    total = np.zeros((len(directions), len(directions)))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        outputs = mechanism.measure_many(values, size, randomness)
        noise = (outputs - values).reshape(size, -1)
        components = noise @ directions.T
        total += components.T @ components
    return total / draws


def _weakest(moments: Floats, published: Floats, cells: NDArray[np.intp]) -> Floats:
    """The weights w, of a sum of cells, with the least ``w'Mw / w'Pw``: energy relative to that of
    equal noise.
    """
    # A generalised eigenvalue problem, on the range of P: outside it both forms vanish.
    sizes, basis = np.linalg.eigh(published[:, cells])
    positive = sizes > 1e-6
    inside = basis[:, positive] / np.sqrt(sizes[positive])
    _, vectors = np.linalg.eigh(inside.T @ moments @ inside)
    return np.asarray(inside @ vectors[:, 0])


def _name(cell: int, shape: tuple[int, ...]) -> str:
    places = [str(int(place) + 1) for place in np.unravel_index(cell, shape)]
    return "cell " + ", ".join(places)
