"""The law of a weighted sum of independent whole-number noise, and how far to each side 95% of it
lie.

A cell of a projected table is such a sum: few different weights, each for many cells. Normal
quantiles are not those of coarse noise, so that the law itself is used here, with every numerical
error counted against the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy

from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.rejection import Floats

LEVEL = 0.95
"""The level of the intervals in the files and in the words of a release."""

# of the standard deviation: added as normal noise, so that the Fourier series converges
_SMOOTHING = 5e-4
# where many laws are asked for: an interval is then up to a hundredth wider than it need be
_COARSE_SMOOTHING = 2e-3
_MANY = 50
_CLOSE = 5e-3  # a normal law this close, in standard deviations, takes the place of the series
_STEPS_OUT = 4.5  # standard deviations of that normal noise that an interval is widened by
_OUTSIDE = math.erfc(_STEPS_OUT / math.sqrt(2))  # how often it lies further out: 7e-6
# where the factor exp(-x²/2) of the smoothing is 7e-10, and what is left of the series below 1e-10
_CUT = 6.5
_NUMERICAL = 1e-9  # the end of the series, what lies outside of a period, and rounding
_HIGHEST = 1 - 1e-6  # beyond, the smoothing leaves nothing of the level: Chernoff's bound is used
_LEAST_SPREAD = 0.05  # of the largest weight: a sum that is nearly always 0 is smoothed by this


@dataclass(frozen=True)
class Weighted:
    """Several independent numbers of one law, all with the same weight.

    >>> from semidp.promise.noise.distributions import DiscreteGaussian
    >>> Weighted(DiscreteGaussian(Fraction(4)), Fraction(-1, 3), 2).variance
    0.888...
    """

    law: CountNoise
    weight: Fraction
    count: int

    @property
    def variance(self) -> float:
        """The variance that the term adds to the sum."""
        return self.count * float(self.weight) ** 2 * self.law.variance


def half_widths(sums: Sequence[Sequence[Weighted]], level: float = LEVEL) -> list[float]:
    """Half-widths of several sums: an h each with ``P(|S| <= h) >= level``; see `half_width`.

    Noise that is a normal number moved by at most d, as rounding does, is not asked for its own law
    where that hardly matters: a sum is then a normal number moved by at most ``Σ |weight| d``, and
    h is the normal one plus that.

    >>> from semidp.promise.noise.distributions import RoundedGaussian
    >>> [
    ...     round(h, 3)
    ...     for h in half_widths([[Weighted(RoundedGaussian(Fraction(10**4)), Fraction(1, 3), 1)]])
    ... ]
    [65.333]
    """
    smoothing = _SMOOTHING if len(sums) <= _MANY else _COARSE_SMOOTHING
    widths = []
    for terms in sums:
        width = normal_half_width(terms, level)
        if width is None:
            width = half_width(terms, level, smoothing)
        widths.append(width)
    return widths


def normal_half_width(terms: Sequence[Weighted], level: float = LEVEL) -> float | None:
    """Return the half-width of the normal law next to a sum, widened by its distance; None where
    that is not close.
    """
    variance = distance = 0.0
    for term in terms:
        near = term.law.near_normal
        if near is None:
            return None
        size = abs(float(term.weight))
        variance += term.count * size**2 * near[0]
        distance += term.count * size * near[1]
    if not variance or not distance <= _CLOSE * math.sqrt(variance):
        return None
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    weights = [term.weight for term in terms]
    return on_lattice(quantile * math.sqrt(variance) + distance, weights)


def half_width(
    terms: Sequence[Weighted], level: float = LEVEL, smoothing: float = _SMOOTHING
) -> float:
    """Return an h with ``P(|S| <= h) >= level`` for ``S = Σ weight · number``: the least one, but
    for a thousandth.

    The characteristic function of S is the product of those of its terms. With Z normal and ε
    small, the Fourier series of S + εZ on a circle converges like ``exp(-ε²t²/2)``, and S itself is
    within reach: ``P(|S| <= h + 4.5 ε) >= P(|S + εZ| <= h) - P(|Z| > 4.5)``.

    S lies on the multiples of the greatest common divisor of its weights, so that h is rounded down
    to one of them: for coarse noise the result is the quantile itself.

    >>> from semidp.promise.noise.distributions import DiscreteGaussian
    >>> # P(|X| <= 0) is 0.787
    >>> half_width([Weighted(DiscreteGaussian(Fraction(1, 4)), Fraction(1), 1)])
    1.0
    >>> round(half_width([Weighted(DiscreteGaussian(Fraction(10**6)), Fraction(1), 1)]) / 1000, 2)
    1.96
    """
    kept = tuple(term for term in terms if term.weight and term.count)
    return _half_width(kept, level, smoothing) if kept else 0.0


# The same sums are asked for by every part of a release, and again where one is rechecked.
@lru_cache(maxsize=4096)
def _half_width(kept: tuple[Weighted, ...], level: float, smoothing: float) -> float:
    """The half-width of a sum in which every term counts."""
    variance = sum(term.variance for term in kept)
    # S is a multiple of the step, so that it is not 0 with probability at most Var(S)/step²
    # (Chebyshev).
    weights = [term.weight for term in kept]
    if variance <= (1 - level) * float(_step(weights)) ** 2:
        return 0.0
    largest = max(abs(float(term.weight)) for term in kept)
    spread = math.sqrt(variance)
    epsilon = smoothing * max(spread, _LEAST_SPREAD * largest)
    # so that next to nothing lies outside, and the quantile inside
    period = 2 * (_tail_bound(kept) + 8 * epsilon)
    asked = level + _OUTSIDE + 4 * _NUMERICAL
    if asked > _HIGHEST:
        return on_lattice(_tail_bound(kept, 1 - level), weights)
    quantile = _quantile(kept, asked, epsilon, period)
    return on_lattice(quantile + _STEPS_OUT * epsilon, weights)


def on_lattice(bound: float, weights: Sequence[Fraction]) -> float:
    """Return the largest multiple of the weights' greatest common divisor that is at most a bound.

    >>> on_lattice(0.8, [Fraction(1, 4), Fraction(-1, 2)])
    0.75
    """
    step = _step(weights)
    # A bound that is a multiple but for rounding counts as that multiple.
    just_above_one = 1 + Fraction(1, 2**40)
    raised = Fraction(bound) / step * just_above_one
    return float(math.floor(raised) * step)


def _step(weights: Sequence[Fraction]) -> Fraction:
    """The greatest common divisor of the weights, of which every sum of whole numbers times weights
    is a multiple.
    """
    common = math.lcm(*(weight.denominator for weight in weights))
    multiples = [int(weight * common) for weight in weights]
    return Fraction(math.gcd(*multiples), common)


def _quantile(terms: Sequence[Weighted], level: float, epsilon: float, period: float) -> float:
    """The least h on a fine grid with ``P(|S + εZ| <= h) >= level``, from its Fourier series on a
    circle.

    On a circle of length L the share of [-h, h] is ``2h/L + Σ_m (2/πm) φ(2πm/L) sin(2πmh/L)``.
    """
    highest = _CUT / epsilon * period
    terms_kept = math.ceil(highest / (2 * math.pi))
    number = np.arange(1.0, terms_kept + 1)
    frequency = 2 * math.pi / period * number
    transform = np.exp(-((epsilon * frequency) ** 2) / 2)
    for term in terms:
        factor = term.law.characteristic(float(term.weight) * frequency)
        if term.count == 1:
            transform *= factor
        else:
            sign = np.sign(factor) ** (term.count % 2)
            transform *= sign * np.abs(factor) ** term.count
    size = 1 << (2 * terms_kept + 2).bit_length()
    series = np.zeros(size // 2 + 1, dtype=np.complex128)
    coefficients = -1j * transform / (math.pi * number)
    series[1 : terms_kept + 1] = coefficients
    ends = np.arange(size // 2) * (period / size)
    waves = np.fft.irfft(series, size)[: size // 2]
    inside: Floats = 2 * ends / period + waves * size
    return float(ends[np.argmax(inside >= level)])


def _tail_bound(terms: Sequence[Weighted], outside: float = 1e-12) -> float:
    """A number that |S| exceeds with at most this probability: Chernoff's bound at the best of some
    rates.
    """
    spread = math.sqrt(sum(term.variance for term in terms))
    best = math.inf
    sizes = [abs(float(term.weight)) for term in terms]
    for rate in np.geomspace(0.01 / spread, 100 / spread, 97).tolist():
        moments = []
        for term, size in zip(terms, sizes, strict=True):
            moments.append(term.count * term.law.log_moment(rate * size))
        exponent = sum(moments)
        best = min(best, (exponent + math.log(2 / outside)) / rate)
    return best
