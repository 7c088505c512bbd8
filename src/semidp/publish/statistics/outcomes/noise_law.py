"""The noise distribution of a weighted sum of measured numbers, and intervals from it: for the
noise alone, or with sampling error.

Noise consists of integers with a known distribution. If it is coarse, the distribution of a
weighted sum is computed atom by atom; if it is fine, the continuous one is used, with half a step
added. An interval for the noise alone is about the records themselves and needs no assumption. With
sampling error it is about the population that the records were sampled from. An interval says which
of the two it answers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import bisection, parse_level, plain
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.noise.distributions import (
    CountNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
)

Floats = NDArray[np.float64]

COARSE = 30.0
"""The scale up to which noise is coarse: half a step is more than a hundredth of a 90% interval."""

TIED = 1e-9
"""Relative to 1 and to a number: equal ones may differ in their last digits."""

_LOST = 1e-16  # the probability of an atom that is left out
_MOST_ATOMS = 1 << 18  # of a weighted sum, beyond which atoms are rounded to a grid
# cells of the grid in a standard deviation, and standard deviations to each side
_CELLS, _REACH = 256, 48
# the heaviest entries of coarse noise, which keep their own law; the others together are normal
_WHOLE = 8
_GRID = 8192  # points at which the characteristic function of Laplace noise is taken
_FARTHEST = 160.0  # in units of its standard deviation
_HALVINGS = 40


def half_widths(
    mechanism: Mechanism,
    weights: Sequence[Floats],
    level: float,
    sampling: Sequence[float] | None = None,
) -> Floats:
    """Return h with ``P(|Σ w_i N_i + E| <= h) >= level`` for the noise N_i of single entries of a
    mechanism's query.

    Coarse noise (a scale of at most 30 steps): the law of the sum is that of its atoms
    ``Σ w_i k_i``, for the eight heaviest entries; the contribution of the others is treated as
    normal. Noise that is 0 with a probability of at least `level` has h = 0. Fine noise: a rounded
    Gaussian number is at most half a step from a normal one, and the distance of a discrete Laplace
    number from 0 exceeds that of a continuous one by at most half a step in distribution; so half a
    step of the heaviest entry is added to the quantile of the continuous law. Sums of Laplace noise
    are inverted from their characteristic function, ``Π 1/(1 + b² w_i² t²)``.

    Parameters
    ----------
    mechanism
        The mechanism of the query.
    weights
        For each interval the weights of the entries, those that are not zero, after projection.
    level
        The level of each interval.
    sampling
        For each interval the variance of a normal error E; none for the noise alone.

    Examples
    --------
    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> # Scale 2: P(|N| <= 4) = 0.9756, P(|N| <= 3) = 0.92
    >>> mechanism = choose(two_way()[0], Budget.gdp(1))
    >>> half_widths(mechanism, [np.ones(1)], 0.95).round(3).tolist()
    [4.0]
    """
    variances = [0.0] * len(weights) if sampling is None else sampling
    halves = []
    for entries, variance in zip(weights, variances, strict=True):
        halves.append(_half_width(mechanism, entries, level, variance))
    return np.array(halves)


def noise_deviation(mechanism: Mechanism, level: float) -> float:
    """Return the effective standard deviation of the noise of one entry in a normal interval of a
    level.

    This is its own, or its half-width divided by that of a standard normal number if that is larger
    (Laplace tails, coarse steps). The interval of the entry alone then has its stated coverage, and
    so does that of its sum with a normal error.

    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> # 4/1.96, the own one is 2.02
    >>> round(noise_deviation(choose(two_way()[0], Budget.gdp(1)), 0.95), 3)
    2.041
    """
    if not mechanism.variance:
        return 0.0
    (half,) = half_widths(mechanism, [np.ones(1)], level)
    as_normal = float(half) / normal_quantile(level)
    return max(math.sqrt(mechanism.variance), as_normal)


def normal_quantile(level: float) -> float:
    """Return z with ``P(|Z| <= z) = level`` for a standard normal Z.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def upper_tail(mechanism: Mechanism, steps: NDArray[np.int64]) -> Floats:
    """Return P(N >= k) for the noise N of one entry at whole numbers k."""
    from scipy.special import ndtr

    noise = entry_noise_law(mechanism)
    if noise is None:
        return (steps <= 0).astype(np.float64)
    places = steps.astype(np.float64)
    if isinstance(noise, DiscreteLaplace):
        # Up to 0 by symmetry: P(N >= k) = 1 - P(N >= 1 - k).
        rate = float(1 / noise.scale)
        norm = 1 + math.exp(-rate)
        above = np.exp(-rate * np.abs(places)) / norm
        mirrored = 1 - np.minimum(places, 0.0)
        below = np.exp(-rate * mirrored) / norm
        return np.where(places > 0, above, 1 - below)
    if isinstance(noise, DiscreteGaussian) and noise.sigma2 <= COARSE**2:
        atoms, chances = _atoms(noise)
        from_above = np.cumsum(chances[::-1])[::-1]
        sums = np.append(from_above, 0.0)
        atom_places = np.clip(steps - int(atoms[0]), 0, len(atoms))
        return np.asarray(sums[atom_places])
    # beyond that scale a discrete Gaussian's tail is the rounded one's to 10^-5 of it
    assert isinstance(noise, (DiscreteGaussian, RoundedGaussian))
    return np.asarray(ndtr((0.5 - places) / math.sqrt(noise.sigma2)))


def entry_noise_law(mechanism: Mechanism) -> CountNoise | None:
    """Return the law of the noise in one entry; None if there is none."""
    return mechanism.sampler if isinstance(mechanism, CellByCell) else None


def count_as_large(sizes: Floats, size: float, slack: float = TIED) -> int:
    """Return how many simulated sizes are at least as large as an observed one; sizes that only
    rounding tells apart are ties, also next to 0.

    >>> count_as_large(np.array([0.0, 1.0, 2.0]), 1e-15), count_as_large(np.arange(3.0), 2.0)
    (3, 1)
    """
    return int(np.count_nonzero(sizes >= size - TIED * abs(size) - slack))


def simulate_noise(
    mechanism: Mechanism, shape: tuple[int, ...], source: np.random.Generator
) -> Floats:
    """Return draws of the noise of single entries, in floats: for studies, never for a
    release.
    """
    noise = entry_noise_law(mechanism)
    if noise is None:
        return np.zeros(shape)
    if isinstance(noise, DiscreteLaplace):
        # The difference of two geometric numbers is a discrete Laplace number.
        stop = -math.expm1(-float(1 / noise.scale))
        upward = source.geometric(stop, shape)
        downward = source.geometric(stop, shape)
        return (upward - downward).astype(np.float64)
    assert isinstance(noise, (DiscreteGaussian, RoundedGaussian))
    if isinstance(noise, DiscreteGaussian) and noise.sigma2 <= COARSE**2:
        atoms, chances = _atoms(noise)
        return source.choice(atoms, shape, p=chances / chances.sum())
    return np.rint(source.normal(0.0, math.sqrt(noise.sigma2), shape))


def _half_width(mechanism: Mechanism, weights: Floats, level: float, variance: float) -> float:
    noise = entry_noise_law(mechanism)
    sizes = np.abs(weights[weights != 0])
    entries = np.sort(sizes)[::-1]
    if noise is None or not len(entries):
        return normal_quantile(level) * math.sqrt(variance)
    if mechanism.scale <= COARSE:
        light = entries[_WHOLE:]
        remaining = variance + mechanism.variance * float(light @ light)
        # in units of the heaviest entry, so equal shapes are computed once
        size = float(entries[0])
        shape = (entries[:_WHOLE] / size).round(12)
        in_units = _coarse(noise, tuple(shape.tolist()), remaining / size**2, level)
        return size * in_units
    step = float(entries[0]) / 2
    if not isinstance(mechanism, LaplaceMechanism):
        total = variance + mechanism.variance * float(entries @ entries)
        return step + normal_quantile(level) * math.sqrt(total)
    if len(entries) == 1 and not variance:
        return step - mechanism.scale * float(entries[0]) * math.log1p(-level)
    scales = mechanism.scale * entries
    total = math.sqrt(2 * float(scales @ scales) + variance)
    shape = (scales / total).round(12)
    in_units = _laplace(tuple(shape.tolist()), variance / total**2, level)
    return step + total * in_units


@lru_cache(maxsize=4096)
def _coarse(noise: CountNoise, weights: tuple[float, ...], variance: float, level: float) -> float:
    """Return h for the sum of coarse noise with a few weights, and a normal error of a variance."""
    from scipy.special import ndtr

    places, chances, moved = _weighted_sum_atoms(noise, weights)
    if not variance:
        distances = np.abs(places)
        order = np.argsort(distances, kind="stable")
        coverages = np.cumsum(chances[order])
        # Rounding may leave a sum just short of the level, which would cost a whole further atom.
        reached = int(np.searchsorted(coverages, level * (1 - 1e-12)))
        last_atom = order[min(reached, len(order) - 1)]
        # an end may be compared with a number that was rounded in another order: let it keep the
        # atom it stands at
        return float(distances[last_atom]) * (1 + 1e-12) + moved
    deviation = math.sqrt(variance)

    def coverage(half: float) -> float:
        up_to_half = ndtr((half - places) / deviation)
        below = ndtr((-half - places) / deviation)
        return float(chances @ (up_to_half - below))

    return _solve(coverage, level, deviation) + moved


@lru_cache(maxsize=256)
def _weighted_sum_atoms(
    noise: CountNoise, weights: tuple[float, ...]
) -> tuple[Floats, Floats, float]:
    """Return the atoms of a weighted sum, their probabilities, and how far rounding may have moved
    an atom.
    """
    steps, each = _atoms(noise)
    places: Floats = np.zeros(1)
    chances: Floats = np.ones(1)
    for weight in weights:
        if len(places) * len(steps) > _MOST_ATOMS:
            return _on_grid(noise, weights)
        places = np.add.outer(places, weight * steps).ravel()
        chances = np.multiply.outer(chances, each).ravel()
        # Atoms too rare to matter are dropped at once: their number multiplies with every weight.
        kept = chances > _LOST
        places = places[kept]
        chances = chances[kept]
    return places, chances / chances.sum(), 0.0


def _on_grid(noise: CountNoise, weights: tuple[float, ...]) -> tuple[Floats, Floats, float]:
    """Return the law of a weighted sum with the atoms of each entry rounded to a fine grid, by
    Fourier transforms.
    """
    steps, each = _atoms(noise)
    squares = sum(weight**2 for weight in weights)
    cell = math.sqrt(noise.variance * squares) / _CELLS
    size = 1 << math.ceil(math.log2(2 * _REACH * _CELLS))
    whole = np.ones(size // 2 + 1, dtype=np.complex128)
    for weight in weights:
        cells = np.rint(weight * steps / cell).astype(np.int64)
        # The transform is circular: an atom farther out would come back on the other side.
        near = np.abs(cells) < size // 2
        on_circle = np.bincount(cells[near] % size, each[near], size)
        whole = whole * np.fft.rfft(on_circle)
    chances = np.roll(np.fft.irfft(whole, size), size // 2)
    steps_from_centre = np.arange(size) - size // 2
    places = np.asarray(steps_from_centre * cell, dtype=np.float64)
    # The transform leaves errors of rounding where there is no atom, some of them negative.
    kept = chances > 1e-13
    kept_chances = chances[kept]
    moved = len(weights) * cell / 2
    return places[kept], kept_chances / float(kept_chances.sum()), moved


@lru_cache(maxsize=64)
def _atoms(noise: CountNoise) -> tuple[Floats, Floats]:
    """Return the whole numbers that coarse noise takes, and their probabilities."""
    assert isinstance(noise, (DiscreteGaussian, DiscreteLaplace, RoundedGaussian))
    reach = 8
    while float(noise.pmf(np.array([reach]))[0]) > _LOST:
        reach *= 2
    steps = np.arange(-reach, reach + 1)
    chances = noise.pmf(steps)
    kept = chances > _LOST
    return steps[kept].astype(np.float64), chances[kept]


@lru_cache(maxsize=4096)
def _laplace(scales: tuple[float, ...], variance: float, level: float) -> float:
    """Return h with ``P(|Σ b_i L_i + E| <= h) = level`` for standard Laplace L_i and a normal E, of
    variance 1.
    """
    # Midpoints, since the integrand sin(th)/t cannot be computed at t = 0.
    t = (np.arange(_GRID) + 0.5) * (_FARTHEST / _GRID)
    scaled = np.multiply.outer(np.array(scales) ** 2, t**2)
    log_laplace = -np.log1p(scaled).sum(axis=0)
    log_normal = variance * t**2 / 2
    curve = np.exp(log_laplace - log_normal)
    weights = curve / t * (t[1] - t[0]) * (2 / math.pi)
    return _solve(lambda h: float(np.sin(t * h) @ weights), level, 1.0)


def _solve(coverage: Callable[[float], float], level: float, start: float) -> float:
    """Point where a growing function reaches a level, approached from above."""
    low, high = 0.0, start
    while coverage(high) < level:
        low, high = high, 2 * high
    _, high = bisection(lambda h: coverage(h) < level, low, high, _HALVINGS)
    return high


LEVEL = Fraction(95, 100)
"""The default level of an interval."""


class About(StrEnum):
    """The target of an interval: the records, or the population that they were sampled from.

    >>> [str(about) for about in About]
    ['noise', 'noise and sampling']
    """

    noise = "noise"
    sampling = "noise and sampling"


@frozen(eq=False)
class Intervals:
    """An interval for each of several numbers.

    Parameters
    ----------
    names
        The name of each number: the levels of a group or of two, or the name of a coefficient.
    values, lower, upper
        The estimates and the ends of the intervals; infinite where the noise leaves an end open.
    level
        The probability that an interval covers its target, or that all do if they are
        simultaneous.
    about
        Whether the target is a number of the records (noise alone) or of their population (noise
        and sampling).
    simultaneous
        Whether the level is that of all intervals together.
    exact
        Whether the level is exact for the noise distribution; otherwise it is approximate, as far
        as a sum of records is close to normal.
    """

    names: tuple[tuple[str, ...], ...]
    values: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    upper: Floats = field(repr=False)
    level: Fraction = LEVEL
    about: About = About.noise
    simultaneous: bool = False
    exact: bool = True

    @classmethod
    def around(
        cls,
        names: Iterable[tuple[str, ...]],
        values: Floats,
        half: Floats,
        level: Fraction,
        simultaneous: bool,
    ) -> "Intervals":
        """Return intervals of the noise alone, which reach as far to each side of their values."""
        return cls(
            tuple(names), values, values - half, values + half, level, About.noise, simultaneous
        )

    def rows(self) -> Iterator[tuple[tuple[str, ...], float, float, float]]:
        """Yield each name with its estimate and the ends of its interval."""
        yield from zip(
            self.names, self.values.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True
        )


def _truth(value: bool) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"whether an interval is wanted is true or false, not {value!r}")
    return value


@attrs.frozen
class Confidence:
    """The intervals of a request: always those for the noise alone, and others on request.

    Parameters
    ----------
    level
        The probability that an interval covers its target.
    sampling
        Whether to add intervals for the population that the records were sampled from.
    simultaneous
        Whether the level is that of all intervals of a set together.
    differences
        Whether to add intervals for the differences of groups.

    Examples
    --------
    >>> Confidence("0.9", sampling=True).to_json()
    {'level': '0.9', 'sampling': True}
    """

    level: Fraction = attrs.field(default=LEVEL, converter=parse_level)
    sampling: bool = attrs.field(default=False, converter=_truth)
    simultaneous: bool = attrs.field(default=False, converter=_truth)
    differences: bool = attrs.field(default=False, converter=_truth)

    keys: ClassVar[tuple[str, ...]] = ("level", "sampling", "simultaneous", "differences")

    def to_json(self) -> dict[str, Any]:
        """Return the nondefault choices as plain values."""
        flags = {key: True for key in self.keys[1:] if getattr(self, key)}
        return {**({} if self.level == LEVEL else {"level": plain(self.level)}), **flags}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Confidence":
        """Read the keys that `to_json` writes; others are left alone."""
        return cls(**{key: value[key] for key in cls.keys if key in value})


def each_level(
    level: Fraction, count: int, mechanism: Mechanism, simultaneous: bool, *, sampling: bool = False
) -> float:
    """Return the level that each of several intervals needs.

    Symmetric intervals of normal errors hold together at least as often as independent ones would,
    whatever their correlation (Šidák 1967), so each needs ``level^{1/k}`` for Gaussian noise
    alone; other noise, and intervals with sampling, use Bonferroni's ``1 - (1 - level)/k``.
    """
    if not simultaneous or count <= 1:
        return float(level)
    if sampling or isinstance(mechanism, LaplaceMechanism):
        return 1 - float(1 - level) / count
    return math.exp(math.log(level) / count)
