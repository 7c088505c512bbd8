"""The curve of several mechanisms together, ``f ⊗ g ⊗ …``, and of groups facing such a composition.

A composition keeps its parts exactly and computes numbers only when asked, so it is commutative and
associative by construction and small on disk. `Losses` are privacy-loss distributions on a grid,
with every rounding error counted against the claim: discretization is "connect the dots"
(Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022), as in dp-accounting; in addition, the
round-off of every step has a proven bound, which dp-accounting does not give.
"""

import functools
import heapq
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy
from attrs import frozen

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import RealBall, ball, least, round_ball_up, sharp
from semidp.promise.exact import Number, round_down, round_up
from semidp.promise.tradeoff.function import (
    ROUNDOFF,
    Floats,
    Tradeoff,
    exp_down,
    group_size,
    proportion,
    read_up,
)
from semidp.promise.tradeoff.polygons import Approximate, Cornered, Polygon, geometric
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

_TAIL = 1e-18  # mass moved to an infinite loss at the end of each distribution
_DIRECT = 1 << 21  # products up to which a plain convolution is as fast as a Fourier transform
_PEAKS = 32
_TINY = 1e-300


@frozen(eq=False)
class Losses:
    """Masses of the privacy loss at ``(lowest + i) · step``, and at infinity, under the second
    dataset.
    """

    step: float
    lowest: int
    masses: Floats
    infinite: float

    @classmethod
    def from_deltas(cls, deltas: Callable[[Floats], Floats], step: float, reach: float) -> "Losses":
        """Return masses on the grid whose delta(epsilon) is at least `deltas`, with equality on the
        grid.

        For a symmetric curve: the loss -l then has e^-l times the mass of l, and the mass at 0 is
        ``1 - delta(0) - 2 (delta(0) - delta(step))/(e^step - 1)``. Losses beyond `reach` become
        infinite. Rounding only ever adds mass, so the total may exceed 1 a little, and every
        delta with it.

        >>> half = Losses.from_deltas(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), 0.25, 1.0)
        >>> round(float(half.masses.sum() + half.infinite), 12)
        1.0
        """
        # A hair fewer cells, so a reach on the grid is not rounded up to one more.
        cells = reach / step * (1 - 4 * ROUNDOFF)
        top = max(math.ceil(cells), 1)
        grid: Floats = np.arange(top + 1, dtype=np.float64) * step
        # the differences below lose about u/step of relative precision: pay for it in advance
        margin = 1 + 4 * ROUNDOFF * (1 + 1 / step)
        values = np.minimum(deltas(grid) * margin, 1.0)
        # delta(epsilon) falls: what rounding raised further out is raised here too
        from_above = np.maximum.accumulate(values[::-1])
        values = from_above[::-1]
        falls = -np.diff(values)
        upper = np.empty(top)
        growth = math.expm1(step)
        upper[-1] = falls[-1] / -math.expm1(-step)
        # the second difference of delta, in steps of e^epsilon, is the mass at a loss
        bends = np.maximum(falls[:-1] * math.exp(step) - falls[1:], 0.0)
        upper[:-1] = bends / growth
        mirrored = upper * np.exp(-grid[1:])
        lower = mirrored[::-1] * (1 + 4 * ROUNDOFF)
        middle = max(1 - values[0] - 2 * falls[0] / growth, 0.0)
        middle += 8 * ROUNDOFF * (1 + values[0] / step)
        masses = np.concatenate([lower, [middle], upper])
        return cls(step, -top, masses, float(values[-1]))

    @classmethod
    def from_corners(cls, sizes: Floats, powers: Floats, step: float) -> "Losses":
        """Return masses on the grid for a power function with the given corners.

        Each edge is one loss, the logarithm of its slope. Off the grid it is split over both
        neighbors so that both datasets keep its probability. Rounding shifts a mass by a few units
        at most, paid at infinity.

        >>> coin = Losses.from_corners(
        ...     np.array([0.0, 0.25, 1.0]), np.array([0.0, 0.75, 1.0]), math.log(3)
        ... )
        >>> coin.masses.round(6).tolist(), coin.lowest, coin.infinite < 1e-14
        ([0.25, 0.0, 0.75, 0.0], -1, True)
        """
        q, p = np.diff(powers), np.diff(sizes)
        # an edge that rises straight up is an infinite loss
        vertical = (p <= 0) & (q > 0)
        straight_up = float(q[vertical].sum())
        infinite = float(powers[0]) + straight_up
        held = (q > 0) & (p > 0)
        q, p = q[held], p[held]
        log_q, log_p = np.log(q), np.log(p)
        losses = log_q - log_p
        unsure = ROUNDOFF * (2 - log_q - log_p)  # both logarithms are negative
        nearest = np.rint(losses / step)
        on_grid = np.abs(losses - nearest * step) < 2 * unsure
        below = np.where(on_grid, nearest, np.floor(losses / step)).astype(np.int64)
        # the share of the upper neighbor that keeps both probabilities
        excess = np.expm1(below * step - losses)
        upwards = excess / math.expm1(-step)
        share = np.where(on_grid, 0.0, np.clip(upwards, 0.0, 1.0))
        lowest = int(below.min(initial=0))
        size = int(below.max(initial=0)) - lowest + 2
        cells = below - lowest
        staying = q * (1 - share)
        masses: Floats = np.bincount(cells, staying, size).astype(np.float64)
        masses += np.bincount(cells + 1, q * share, size)
        rounding = 4 * float(np.sum(q * unsure))
        return cls(step, lowest, masses, infinite + rounding)

    def convolve(self, other: "Losses") -> "Losses":
        """Return the distribution of the sum of two independent losses, never more favorable than
        the true one.

        A plain convolution of nonnegative numbers errs by a relative bound, paid by a factor. A
        Fourier transform errs in the l2 norm by at most 7 u log2(N) per transform (Higham 2002,
        Theorem 24.2); the l1 error, at most sqrt(N) times as large, is added to the mass at
        infinity. The few largest masses are convolved directly: without them the norms, and the
        bound, are a hundred times smaller.
        """
        short, long = sorted((self.masses, other.masses), key=len)
        lost = 0.0
        if len(short) * len(long) <= _DIRECT:
            margin = 1 + (len(short) + 4) * ROUNDOFF
            masses = np.convolve(short, long) * margin
        else:
            x, x_peaks = _without_peaks(short)
            y, y_peaks = _without_peaks(long)
            masses, lost = _transform(x, y)
            for i in x_peaks:
                masses[i : i + len(long)] += short[i] * long
            for j in y_peaks:
                masses[j : j + len(short)] += long[j] * x
            masses *= 1 + 4 * _PEAKS * ROUNDOFF
        infinite = self.infinite + other.infinite + lost
        lowest = self.lowest + other.lowest
        return Losses(self.step, lowest, masses, infinite).trim_tails(_TAIL)

    def trim_tails(self, mass: float) -> "Losses":
        """Move an upper tail of at most `mass` to infinity, and a lower one up to the lowest kept
        loss.
        """
        size = len(self.masses)
        left = int(np.searchsorted(np.cumsum(self.masses), mass))
        from_above = np.cumsum(self.masses[::-1])
        right = size - int(np.searchsorted(from_above, mass))
        left = min(left, size - 1)
        right = max(right, left + 1)
        masses = self.masses[left:right].copy()
        masses[0] += self.masses[:left].sum()
        # the sum of the tail may be rounded down: pay for it
        margin = 1 + size * ROUNDOFF
        tail = float(self.masses[right:].sum()) * margin
        return Losses(self.step, self.lowest + left, masses, self.infinite + tail)

    def power_curve(self) -> tuple[Floats, Floats]:
        """Return corners (sizes, powers) of the best test between the two datasets: sizes too
        small, powers too big.

        Powers may pass 1, where the curve ends.

        >>> sizes, powers = Losses(1.0, -1, np.array([0.25, 0.75]), 0.0).power_curve()
        >>> powers.round(3).tolist(), sizes.round(3).tolist()
        ([0.0, 0.75, 1.0], [0.0, 0.75, 1.43])
        """
        held = self.masses > 0
        masses = self.masses[held][::-1]
        # the largest loss first: the best test rejects there
        positions = self.lowest + np.arange(len(self.masses))
        every_loss = positions * self.step
        losses = every_loss[held][::-1]
        largest = np.abs(losses).max(initial=0.0)
        slack = (len(masses) + 16 + largest) * ROUNDOFF
        with np.errstate(over="ignore"):  # sizes beyond 1 are never looked at
            sums = np.cumsum(masses * np.exp(-losses))
            sizes = np.minimum(sums * (1 - slack), 2.0)
        powers = (np.cumsum(masses) + self.infinite) * (1 + slack)
        sizes[sizes < _TINY] = 0.0  # too small to be precise
        first_power = self.infinite * (1 + slack)
        return np.append(0.0, sizes), np.append(first_power, powers)


def convolve_all(parts: Sequence[Losses]) -> Losses:
    """Return the distribution of the sum of all losses, shortest first to keep arrays
    short.

    >>> pair = Losses(1.0, 0, np.array([0.5, 0.5]), 0.0)
    >>> convolve_all([pair] * 3).masses.round(3).tolist()
    [0.125, 0.375, 0.375, 0.125]
    """
    order = itertools.count()
    # The counter breaks ties, so losses themselves are never compared.
    heap = [(len(part.masses), next(order), part) for part in parts]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, _, one = heapq.heappop(heap)
        _, _, two = heapq.heappop(heap)
        total = one.convolve(two)
        heapq.heappush(heap, (len(total.masses), next(order), total))
    return heap[0][2]


def _without_peaks(x: Floats) -> tuple[Floats, list[int]]:
    """Return `x` without its largest masses, and where they were."""
    top = np.arange(len(x))
    if len(x) > _PEAKS:
        top = np.argpartition(x, -_PEAKS)[-_PEAKS:]
    peaks = top[x[top] > 16 / len(x)]
    remainder = x.copy()
    remainder[peaks] = 0.0
    return remainder, peaks.tolist()


def _transform(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Return the convolution of `x` and `y` by Fourier transform, and a bound on its error in the
    l1 norm.
    """
    length = len(x) + len(y) - 1
    size = scipy.fft.next_fast_len(length, real=True)
    product = scipy.fft.rfft(x, size) * scipy.fft.rfft(y, size)
    masses: Floats = scipy.fft.irfft(product, size)[:length]
    x_term = float(np.linalg.norm(x)) * float(y.sum())
    y_term = float(np.linalg.norm(y)) * float(x.sum())
    norms = x_term + y_term + float(np.linalg.norm(masses))
    # Higham's bound in the l2 norm, times sqrt(size) for the l1 norm
    l2_bound = math.sqrt(size) * 4 * ROUNDOFF
    error = l2_bound * math.log2(size) * norms
    return np.maximum(masses, 0.0), error


_CELLS = 1 << 16  # of the grid that carries the sum of all losses, each side of zero
_NEGLIGIBLE = 1e-18
_LARGEST_EXPONENT = 700  # of e, in floats


def compose(*parts: Tradeoff) -> Tradeoff:
    """Return ``f1 ⊗ … ⊗ fk``: Gaussian, zCDP, or a `Composed` that keeps the parts.

    Gaussians add their mu²; if a part is known by its rho alone and all others imply zCDP, the rhos
    add; otherwise privacy-loss distributions decide, pessimistically. Parts are symmetrized first.

    >>> compose(Gaussian(Fraction(1)), ZCDP(Fraction(2)))
    ZCDP(rho=Fraction(5, 2))
    """
    flat: list[Tradeoff] = []
    for part in parts:
        pieces = part.parts if isinstance(part, Composed) else (part,)
        flat.extend(piece.symmetric() for piece in pieces)
    kept = [part for part in flat if not part.is_trivial]
    square = _total(part.implied_mu_squared() for part in kept)
    if square is not None:
        return Gaussian(square)
    rho = _total(part.implied_rho() for part in kept)
    if rho is not None and any(isinstance(part, ZCDP) for part in kept):
        return ZCDP(rho)
    kept = _merge_parts(kept)
    if len(kept) == 1:
        return kept[0]
    return Composed(tuple(kept))


def tradeoff_from_json(value: Mapping[str, Any]) -> Tradeoff:
    """Read what `to_json` of any tradeoff function wrote.

    >>> curve = compose(Approximate(Fraction(1)), Gaussian(Fraction(1)))
    >>> tradeoff_from_json(curve.to_json()) == curve
    True
    """
    try:
        return Tradeoff.from_json(value)
    except (KeyError, TypeError):
        raise InputError("not a tradeoff function in JSON") from None


def _merge_parts(parts: list[Tradeoff]) -> list[Tradeoff]:
    """Add up the Gaussians and the zCDP parts, and sort the rest, so equal compositions are
    equal values.
    """
    square, rho = Fraction(0), Fraction(0)
    unmerged = []
    for part in parts:
        if isinstance(part, Gaussian):
            square += part.mu_squared
        elif isinstance(part, ZCDP):
            rho += part.rho
        else:
            unmerged.append(part)
    sums = [part for part in (Gaussian(square), ZCDP(rho)) if not part.is_trivial]
    unmerged.sort(key=lambda part: json.dumps(part.to_json(), sort_keys=True))
    return [*sums, *unmerged]


class Numeric(Cornered):
    """A symmetric curve known only by its float corners and some other proofs."""

    def group(self, k: int) -> Tradeoff:
        return self if group_size(k) == 1 else Grouped(self, k)

    def _delta(self, epsilon: Fraction) -> float:
        pure = self.implied_epsilon()
        if pure is not None and epsilon >= pure:
            return 0.0
        of_curve = float(self._deltas(np.array([round_down(epsilon)]))[0])
        return min(of_curve, *self._other_deltas(epsilon), 1.0)

    def epsilon(self, delta: Number) -> float:
        exactly = proportion(delta, "delta")
        target = round_down(exactly)
        pure = self.implied_epsilon()
        sizes, powers = self._outer
        best = math.inf
        held = powers > target
        # else delta does not fall to the target, or only beyond the range of floats
        if np.all(sizes[held] > 0):
            slopes = np.log(powers[held] - target) - np.log(sizes[held])
            steepest = max(float(np.max(slopes, initial=0.0)), 0.0)
            best = steepest * (1 + 4 * ROUNDOFF)
            best += 8 * ROUNDOFF * (1 + best) if best else 0.0
        best = min(best, *self._other_epsilons(exactly), math.inf)
        return best if pure is None else min(best, round_up(pure))

    def _other_deltas(self, epsilon: Fraction) -> list[float]:
        """Return bounds of delta(epsilon) from other proofs: arithmetic leaves the curve itself no
        delta below 1e-15.
        """
        rho = self.implied_rho()
        return [] if rho is None else [ZCDP(rho).delta(epsilon)]

    def _other_epsilons(self, delta: Fraction) -> list[float]:
        """Return bounds of epsilon(delta) from other proofs."""
        rho = self.implied_rho()
        return [] if rho is None else [ZCDP(rho).epsilon(delta)]

    def _landmarks(self) -> Floats:
        sizes, powers = self._outer
        held = (sizes > 0) & (powers > powers[0])
        rises = np.log(powers[held] - powers[0])
        slopes = rises - np.log(sizes[held])
        last = max(float(np.max(slopes, initial=0.0)), 0.0)
        marks = np.linspace(0.0, last, 129)
        return np.append(marks, 2 * last + 1)

    def _deltas(self, epsilons: Floats) -> Floats:
        sizes, powers = self._outer
        powers = powers * (1 + 2 * ROUNDOFF)
        factors = exp_down(epsilons)
        best = [np.max(powers - factor * sizes) for factor in factors]
        deltas: Floats = np.clip(np.array(best), 0.0, 1.0)
        pure = self.implied_epsilon()
        if pure is None:
            return deltas
        return np.where(epsilons >= round_up(pure), 0.0, deltas)


@frozen(slots=False, order=False)
class Composed(Numeric):
    """``f1 ⊗ … ⊗ fk`` of parts that have no common closed form. Built by `compose`."""

    kind = "composed"
    parts: tuple[Tradeoff, ...]

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(part.symmetric() for part in self.parts))

    def __str__(self) -> str:
        return " ⊗ ".join(str(part) for part in self.parts)

    def implied_epsilon(self) -> Fraction | None:
        return _total(part.implied_epsilon() for part in self.parts)

    def implied_rho(self) -> Fraction | None:
        return _total(part.implied_rho() for part in self.parts)

    @cached_property
    def step(self) -> float:
        """The spacing of the grid of privacy losses, fixed by the parts alone.

        A claim exceeds the truth by about half a step per part. Losses of (epsilon, delta) parts
        are multiples of epsilon: a grid that holds them all is exact for these parts, and the only
        grid needed without others.
        """
        reaches = [compute_loss_reach(part) for part in self.parts]
        spreads = []
        for part, reach in zip(self.parts, reaches, strict=True):
            # about the standard deviation of the losses, if they were Gaussian
            spread = max(2.6 * part.delta(0), reach / 9)
            spreads.append(min(spread, reach))
        variance = sum(spread**2 for spread in spreads)
        likely = 9 * math.sqrt(variance) + variance
        width = min(sum(reaches), likely)
        fine = 2.0 ** math.floor(math.log2(width / _CELLS))
        epsilons = [part.epsilon0 for part in self.parts if isinstance(part, Approximate)]
        unit = float(_common(epsilons))
        if unit * 4 < fine:  # too fine to hold: rounding losses up costs less
            return fine
        if all(isinstance(part, Approximate) for part in self.parts):
            return unit
        halvings = math.ceil(math.log2(unit / fine))
        return unit / 2.0 ** max(halvings, 0)

    @cached_property
    def _outer(self) -> tuple[Floats, Floats]:
        return convolve_all(
            [discretize_losses(part, self.step) for part in self.parts]
        ).power_curve()

    @cached_property
    def _basic(self) -> tuple[Fraction, Fraction, Tradeoff] | None:
        """Return epsilon, delta and a closed form that compose to at most this curve, or None.

        Basic composition (Dwork and others 2006, dwork2006our): parts whose losses are bounded but
        for a small delta add their epsilons and deltas, and Gaussian and zCDP parts keep their
        closed form.
        """
        smooth = [part for part in self.parts if isinstance(part, (Gaussian, ZCDP))]
        points = [_bound_losses(part) for part in self.parts if part not in smooth]
        spent = _total(epsilon for epsilon, _ in points)
        lost = _total(delta for _, delta in points)
        if spent is None or lost is None:
            return None
        return spent, lost, compose(*smooth)

    def _other_deltas(self, epsilon: Fraction) -> list[float]:
        deltas = super()._other_deltas(epsilon)
        if self._basic is not None and epsilon >= self._basic[0]:
            spent, lost, remainder = self._basic
            more = Fraction(remainder.delta(epsilon - spent))
            deltas.append(round_up(more + lost))
        return deltas

    def _other_epsilons(self, delta: Fraction) -> list[float]:
        epsilons = super()._other_epsilons(delta)
        if self._basic is not None and delta >= self._basic[1]:
            spent, lost, remainder = self._basic
            more = remainder.epsilon(delta - lost)
            is_finite = math.isfinite(more)
            epsilons.append(round_up(spent + Fraction(more)) if is_finite else math.inf)
        return epsilons


@frozen(slots=False, order=False)
class Grouped(Numeric):
    """``f∘…∘f`` (k times) of a numeric curve: composition first, then the group."""

    kind = "grouped"
    json_keys: ClassVar[Mapping[str, str | None]] = {"curve": "of", "size": "group"}
    curve: Numeric
    size: int

    def __attrs_post_init__(self) -> None:
        group_size(self.size)

    def group(self, k: int) -> Tradeoff:
        return Grouped(self.curve, self.size * group_size(k))

    def __str__(self) -> str:
        return f"({self.curve}) for groups of {self.size}"

    def implied_epsilon(self) -> Fraction | None:
        pure = self.curve.implied_epsilon()
        return None if pure is None else pure * self.size

    def implied_rho(self) -> Fraction | None:
        rho = self.curve.implied_rho()
        return None if rho is None else rho * self.size**2

    def _other_deltas(self, epsilon: Fraction) -> list[float]:
        return [*super()._other_deltas(epsilon), self._by_rule(epsilon)]

    def _other_epsilons(self, delta: Fraction) -> list[float]:
        epsilons = super()._other_epsilons(delta)
        # otherwise the rule, which loses more delta, proves nothing either
        if self.curve.epsilon(delta) < math.inf:
            by_rule = least(lambda epsilon: self._by_rule(Fraction(epsilon)) <= delta)
            epsilons.append(read_up(by_rule))
        return epsilons

    def _by_rule(self, epsilon: Fraction) -> float:
        """Return the delta of ``(k eps, delta (e^{k eps} - 1)/(e^eps - 1))`` at a group's epsilon,
        rounded up.
        """
        step = epsilon / self.size
        once = self.curve.delta(step)
        if not once or epsilon > _LARGEST_EXPONENT:
            return 1.0 if once else 0.0

        def group_delta() -> RealBall:
            return ball(Fraction(once)) * geometric(self.size, ball(step))

        return min(round_ball_up(sharp(group_delta)), 1.0)

    @cached_property
    def _outer(self) -> tuple[Floats, Floats]:
        once = self.curve._outer
        grouped = once
        for _ in range(self.size - 1):
            grouped = _compose_corners(once, grouped)
        return grouped


def _compose_corners(
    outer: tuple[Floats, Floats], inner: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return the corners of the power function ``outer(inner(size))``, powers rounded up."""
    inner_sizes, inner_powers = inner
    rising, first = np.unique(inner_powers, return_index=True)
    reached = np.append(outer[0], 1.0)
    reached = reached[(reached > rising[0]) & (reached <= 1.0)]
    # The composition bends where the inner one does, and where that reaches a bend of the outer.
    bends = np.interp(reached, rising, inner_sizes[first])
    sizes = np.union1d(inner_sizes, bends)
    between = np.minimum(np.interp(sizes, *inner), 1.0)
    powers = np.interp(between, *outer) * (1 + 32 * ROUNDOFF)
    return sizes, np.maximum.accumulate(powers)


def discretize_losses(part: Tradeoff, step: float) -> Losses:
    """Return the privacy losses of a symmetric curve on a grid, rounded towards more loss.

    >>> round(float(discretize_losses(Gaussian(Fraction(1)), 0.25).masses.sum()), 9)
    1.0
    """
    if isinstance(part, Cornered):
        return Losses.from_corners(*part._outer, step)
    return Losses.from_deltas(part._deltas, step, compute_loss_reach(part))


def _bound_losses(part: Tradeoff) -> tuple[Fraction | None, Fraction]:
    """Return an (epsilon, delta) of a part at which its losses end, with no epsilon if they do
    not.
    """
    pure = part.implied_epsilon()
    if pure is None and isinstance(part, Polygon):
        lost = Fraction(float(part._outer[1][0]))
        epsilon = part.epsilon(lost)
        return (Fraction(epsilon) if math.isfinite(epsilon) else None), lost
    return pure, Fraction(0)


def _common(numbers: list[Fraction]) -> Fraction:
    """Return the largest fraction of which all the given ones are multiples; 0 for none."""
    bottom = math.lcm(*(number.denominator for number in numbers))
    multiples = [int(number * bottom) for number in numbers]
    return Fraction(math.gcd(*multiples), bottom)


def _total(values: Iterable[Fraction | None]) -> Fraction | None:
    total = Fraction(0)
    for value in values:
        if value is None:
            return None
        total += value
    return total


@functools.lru_cache(maxsize=4096)
def compute_loss_reach(part: Tradeoff) -> float:
    """Return the loss beyond which a part has next to no mass.

    >>> compute_loss_reach(Approximate(Fraction(2)))
    2.0
    """
    pure = part.implied_epsilon()
    if pure is not None:
        return round_up(pure)
    marks = part._landmarks()
    deltas = part._deltas(marks)
    enough = deltas <= deltas[-1] + _NEGLIGIBLE
    first = int(np.argmax(enough))
    return float(marks[first]) or float(marks[-1])
