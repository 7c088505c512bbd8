"""The law of the noise in a weighted sum of measured numbers: its quantiles, its tails, draws of
it.

Noise is whole numbers from a known law. Where it is coarse, the law of a weighted sum is put
together atom by atom; where it is fine, that of real numbers serves, with half a step added.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from semidp.core.exact import bisection
from semidp.mechanisms.mechanism import CellByCell, Mechanism
from semidp.mechanisms.pure import LaplaceMechanism
from semidp.noise.distributions import (
    CountNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
)

Floats = NDArray[np.float64]

COARSE = 30.0
"""The scale up to which noise is coarse: half a step is more than a hundredth of a 90% interval."""

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
    ``Σ w_i k_i``, for the eight heaviest entries; what the others add is taken as normal. Noise
    that is 0 with a probability of at least `level` has h = 0. Fine noise: a rounded Gaussian
    number is at most half a step from a normal one, and the distance of a discrete Laplace number
    from 0 exceeds that of a continuous one by at most half a step in distribution; so half a step
    of the heaviest entry is added to the quantile of the continuous law. Sums of Laplace noise are
    inverted from their characteristic function, ``Π 1/(1 + b² w_i² t²)``.

    Parameters
    ----------
    mechanism
        What measured the query.
    weights
        For each interval the weights of the entries, those that are not zero, after projection.
    level
        The level of each interval.
    sampling
        For each interval the variance of a normal error E; none for the noise alone.

    Examples
    --------
    >>> from semidp.mechanisms.selection import choose
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> # Scale 2: P(|N| <= 4) = 0.9756, P(|N| <= 3) = 0.92
    >>> mechanism = choose(two_way()[0], Budget.gdp(1))
    >>> half_widths(mechanism, [np.ones(1)], 0.95).round(3).tolist()
    [4.0]
    """
    variances = [0.0] * len(weights) if sampling is None else sampling
    return np.array(
        [
            _half_width(mechanism, part, level, square)
            for part, square in zip(weights, variances, strict=True)
        ]
    )


def noise_deviation(mechanism: Mechanism, level: float) -> float:
    """Return the standard deviation that the noise of one entry counts for in a normal interval of
    a level.

    Its own, or its half-width over that of a standard normal number where that is more: Laplace
    tails, coarse steps. The interval of the entry alone then holds as often as stated, and so does
    that of its sum with a normal error.

    >>> from semidp.mechanisms.selection import choose
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> # 4/1.96, the own one is 2.02
    >>> round(noise_deviation(choose(two_way()[0], Budget.gdp(1)), 0.95), 3)
    2.041
    """
    if not mechanism.variance:
        return 0.0
    (half,) = half_widths(mechanism, [np.ones(1)], level)
    return max(math.sqrt(mechanism.variance), float(half) / normal_quantile(level))


def normal_quantile(level: float) -> float:
    """Return z with ``P(|Z| <= z) = level`` for a standard normal Z.

    >>> round(normal_quantile(0.95), 3)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def t_quantile(level: float, degrees: Floats) -> Floats:
    """Return q with ``P(|T| <= q) = level`` for Student's T; the normal one for infinite degrees.

    >>> t_quantile(0.95, np.array([7.0, np.inf])).round(3).tolist()
    [2.365, 1.96]
    """
    from scipy.special import stdtrit

    finite = np.where(np.isfinite(degrees), degrees, 1e9)
    return np.where(degrees < 1e9, stdtrit(finite, (1 + level) / 2), normal_quantile(level))


def upper_tail(mechanism: Mechanism, steps: NDArray[np.int64]) -> Floats:
    """Return P(N >= k) for the noise N of one entry at whole numbers k."""
    from scipy.special import ndtr

    noise = sampler_of(mechanism)
    if noise is None:
        return (steps <= 0).astype(np.float64)
    places = steps.astype(np.float64)
    if isinstance(noise, DiscreteLaplace):
        # Up to 0 by symmetry: P(N >= k) = 1 - P(N >= 1 - k).
        rate = float(1 / noise.scale)
        norm = 1 + math.exp(-rate)
        above = np.exp(-rate * np.abs(places)) / norm
        return np.where(places > 0, above, 1 - np.exp(-rate * (1 - np.minimum(places, 0.0))) / norm)
    if isinstance(noise, DiscreteGaussian) and noise.sigma2 <= COARSE**2:
        atoms, chances = _atoms(noise)
        sums = np.append(np.cumsum(chances[::-1])[::-1], 0.0)
        return np.asarray(sums[np.clip(steps - int(atoms[0]), 0, len(atoms))])
    # beyond that scale a discrete Gaussian's tail is the rounded one's to 10^-5 of it
    assert isinstance(noise, (DiscreteGaussian, RoundedGaussian))
    return np.asarray(ndtr((0.5 - places) / math.sqrt(noise.sigma2)))


def sampler_of(mechanism: Mechanism) -> CountNoise | None:
    """Return the law of the noise in one entry; None where there is none."""
    return mechanism.sampler if isinstance(mechanism, CellByCell) else None


def simulated(mechanism: Mechanism, shape: tuple[int, ...], source: np.random.Generator) -> Floats:
    """Return draws of the noise of single entries, in floats: for studies of its law, never for a
    release.
    """
    noise = sampler_of(mechanism)
    if noise is None:
        return np.zeros(shape)
    if isinstance(noise, DiscreteLaplace):
        # The difference of two geometric numbers is a discrete Laplace number.
        stop = -math.expm1(-float(1 / noise.scale))
        return (source.geometric(stop, shape) - source.geometric(stop, shape)).astype(np.float64)
    assert isinstance(noise, (DiscreteGaussian, RoundedGaussian))
    if isinstance(noise, DiscreteGaussian) and noise.sigma2 <= COARSE**2:
        atoms, chances = _atoms(noise)
        return source.choice(atoms, shape, p=chances / chances.sum())
    return np.rint(source.normal(0.0, math.sqrt(noise.sigma2), shape))


def _half_width(mechanism: Mechanism, weights: Floats, level: float, variance: float) -> float:
    noise = sampler_of(mechanism)
    entries = np.sort(np.abs(weights[weights != 0]))[::-1]
    if noise is None or not len(entries):
        return normal_quantile(level) * math.sqrt(variance)
    if mechanism.scale <= COARSE:
        remaining = variance + mechanism.variance * float(entries[_WHOLE:] @ entries[_WHOLE:])
        # in units of the heaviest entry, so that equal shapes are computed once
        size = float(entries[0])
        shape = tuple((entries[:_WHOLE] / size).round(12).tolist())
        return size * _coarse(noise, shape, remaining / size**2, level)
    step = float(entries[0]) / 2
    if not isinstance(mechanism, LaplaceMechanism):
        total = variance + mechanism.variance * float(entries @ entries)
        return step + normal_quantile(level) * math.sqrt(total)
    if len(entries) == 1 and not variance:
        return step - mechanism.scale * float(entries[0]) * math.log1p(-level)
    scales = mechanism.scale * entries
    total = math.sqrt(2 * float(scales @ scales) + variance)
    return step + total * _laplace(
        tuple((scales / total).round(12).tolist()), variance / total**2, level
    )


@lru_cache(maxsize=4096)
def _coarse(noise: CountNoise, weights: tuple[float, ...], variance: float, level: float) -> float:
    """Return h for the sum of coarse noise with a few weights, and a normal error of a variance."""
    from scipy.special import ndtr

    places, chances, moved = _weighted(noise, weights)
    if not variance:
        order = np.argsort(np.abs(places), kind="stable")
        # Rounding may leave a sum just short of the level, which would cost a whole further atom.
        reached = int(np.searchsorted(np.cumsum(chances[order]), level * (1 - 1e-12)))
        # an end may be compared with a number that was rounded in another order: let it keep the
        # atom it stands at
        return float(np.abs(places)[order[min(reached, len(order) - 1)]]) * (1 + 1e-12) + moved
    deviation = math.sqrt(variance)

    def coverage(half: float) -> float:
        return float(
            chances @ (ndtr((half - places) / deviation) - ndtr((-half - places) / deviation))
        )

    return _solve(coverage, level, deviation) + moved


@lru_cache(maxsize=256)
def _weighted(noise: CountNoise, weights: tuple[float, ...]) -> tuple[Floats, Floats, float]:
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
        places, chances = places[chances > _LOST], chances[chances > _LOST]
    return places, chances / chances.sum(), 0.0


def _on_grid(noise: CountNoise, weights: tuple[float, ...]) -> tuple[Floats, Floats, float]:
    """Return the law of a weighted sum with the atoms of each entry rounded to a fine grid, by
    Fourier transforms.
    """
    steps, each = _atoms(noise)
    cell = math.sqrt(noise.variance * sum(weight**2 for weight in weights)) / _CELLS
    size = 1 << math.ceil(math.log2(2 * _REACH * _CELLS))
    whole = np.ones(size // 2 + 1, dtype=np.complex128)
    for weight in weights:
        cells = np.rint(weight * steps / cell).astype(np.int64)
        # The transform is circular: an atom farther out would come back on the other side.
        near = np.abs(cells) < size // 2
        whole = whole * np.fft.rfft(np.bincount(cells[near] % size, each[near], size))
    chances = np.roll(np.fft.irfft(whole, size), size // 2)
    places = np.asarray((np.arange(size) - size // 2) * cell, dtype=np.float64)
    # The transform leaves errors of rounding where there is no atom, some of them negative.
    kept = chances > 1e-13
    return places[kept], chances[kept] / float(chances[kept].sum()), len(weights) * cell / 2


@lru_cache(maxsize=64)
def _atoms(noise: CountNoise) -> tuple[Floats, Floats]:
    """Return the whole numbers that coarse noise takes, and their probabilities."""
    assert isinstance(noise, (DiscreteGaussian, DiscreteLaplace, RoundedGaussian))
    reach = 8
    while float(noise.pmf(np.array([reach]))[0]) > _LOST:
        reach *= 2
    steps = np.arange(-reach, reach + 1)
    chances = noise.pmf(steps)
    return steps[chances > _LOST].astype(np.float64), chances[chances > _LOST]


@lru_cache(maxsize=4096)
def _laplace(scales: tuple[float, ...], variance: float, level: float) -> float:
    """Return h with ``P(|Σ b_i L_i + E| <= h) = level`` for standard Laplace L_i and a normal E, of
    variance 1.
    """
    # Midpoints, since the integrand sin(th)/t cannot be computed at t = 0.
    t = (np.arange(_GRID) + 0.5) * (_FARTHEST / _GRID)
    curve = np.exp(
        -np.log1p(np.multiply.outer(np.array(scales) ** 2, t**2)).sum(axis=0) - variance * t**2 / 2
    )
    weights = curve / t * (t[1] - t[0]) * (2 / math.pi)
    return _solve(lambda h: float(np.sin(t * h) @ weights), level, 1.0)


def _solve(coverage: Callable[[float], float], level: float, start: float) -> float:
    """Return where a growing function reaches a level, from above."""
    low, high = 0.0, start
    while coverage(high) < level:
        low, high = high, 2 * high
    _, high = bisection(lambda h: coverage(h) < level, low, high, _HALVINGS)
    return high
