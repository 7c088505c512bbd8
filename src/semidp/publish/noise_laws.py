"""Transforms of noise distributions and their distance from normal ones, from which the
distribution of a weighted sum is computed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatch
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.noise.distributions import (
    CountNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    RoundedGaussian,
)
from semidp.promise.schema.margins import Floats

Law = TypeVar("Law")


@singledispatch
def transform_law(law: CountNoise, frequency: Floats) -> Floats:
    """Return the characteristic function, ``E cos(tX)``: the laws here are symmetric.

    >>> from fractions import Fraction
    >>> transform_law(DiscreteGaussian(Fraction(4)), np.array([0.0, 0.5])).round(4).tolist()
    [1.0, 0.6065]
    """
    raise TypeError("the transform of this law is not known")


@transform_law.register
def _(law: DiscreteGaussian, frequency: Floats) -> Floats:
    """``Σ_m exp(-σ²(t - 2πm)²/2)`` over its value at 0: Poisson summation."""
    if law.sigma2 < 1:
        return _cosine_sum(law.pmf, 10, frequency)
    variance, turned = float(law.sigma2), _reduce_frequencies(frequency)
    turns = _turns(variance)
    total = np.zeros(turned.shape)
    for turn in turns:
        distance = turned + turn
        total += np.exp(-variance / 2 * distance**2)
    at_zero = sum(math.exp(-variance / 2 * turn**2) for turn in turns)
    return total / at_zero


@transform_law.register
def _(law: RoundedGaussian, frequency: Floats) -> Floats:
    """``Σ_m exp(-σ²s²/2) sin(s/2)/(s/2)`` with ``s = t - 2πm``: Poisson summation of the density's
    means.
    """
    if law.sigma2 < 1:
        return _cosine_sum(law.pmf, 12, frequency)
    variance, turned = float(law.sigma2), _reduce_frequencies(frequency)
    half = np.where(turned == 0, 1e-200, turned / 2)
    total = np.zeros(turned.shape)
    for turn in _turns(variance):  # the sine of the half has the other sign after one turn
        sign = 1 if turn == 0 else -1
        distance = turned + turn
        smooth = sign * np.exp(-variance / 2 * distance**2)
        total += smooth / (half + turn / 2)
    return np.asarray(total * np.sin(half))


@transform_law.register
def _(law: DiscreteLaplace, frequency: Floats) -> Floats:
    """``(1-q)² / ((1-q)² + 4q sin²(t/2))``, q = exp(-1/s)."""
    rate = float(1 / law.scale)
    square = math.expm1(-rate) ** 2
    q = math.exp(-rate)
    sine_squared = np.sin(frequency / 2) ** 2
    result: Floats = square / (square + 4 * q * sine_squared)
    return result


@singledispatch
def bound_log_moment(law: CountNoise, rate: float) -> float:
    """Return an upper bound of ``log E exp(uX)``; infinity if there is none.

    >>> from fractions import Fraction
    >>> bound_log_moment(DiscreteGaussian(Fraction(4)), 0.5)
    0.5
    """
    raise TypeError("the moments of this law are not known")


@bound_log_moment.register
def _(law: DiscreteGaussian, rate: float) -> float:
    """``σ²u²/2``: no larger than that of the normal law (canonne2020discrete)."""
    return float(law.sigma2) * rate**2 / 2


@bound_log_moment.register
def _(law: RoundedGaussian, rate: float) -> float:
    """``2σ²u²``: rounding at most doubles the size of a number, and ``E exp(uX) = E cosh(uX)``."""
    return 2 * float(law.sigma2) * rate**2


@bound_log_moment.register
def _(law: DiscreteLaplace, rate: float) -> float:
    """``-log(1 - v (cosh u - 1))`` with the variance v; there is none from ``u = 1/s`` on."""
    if rate >= float(1 / law.scale):
        return math.inf
    # v (cosh u - 1) = 2v sinh²(u/2), which keeps its digits where u is small
    excess = 2 * law.variance * math.sinh(rate / 2) ** 2
    return -math.log1p(-excess) if excess < 1 else math.inf


@singledispatch
def find_near_normal(law: CountNoise) -> tuple[float, float] | None:
    """Return the variance of a normal number that can be coupled with this one, and their largest
    distance; None if there is none.

    >>> from fractions import Fraction
    >>> [find_near_normal(law(Fraction(4))) for law in (DiscreteGaussian, RoundedGaussian)]
    [(4.0, 1.0), (4.0, 0.5)]
    """
    return None


@find_near_normal.register
def _(law: DiscreteGaussian) -> tuple[float, float] | None:
    """σ² and 1: ``P(N >= m) <= P(X >= m) <= P(N >= m - 1)`` for m >= 1, up to 1e-17 from σ² = 2 on.

    ``exp(-k²/2σ²)`` is at least its integral over the unit interval above k > 0 and at most that
    below; the sum over all k is ``σ√(2π)`` up to the factor ``1 + 2 exp(-2π²σ²)``.
    """
    return (float(law.sigma2), 1.0) if law.sigma2 >= 2 else None


@find_near_normal.register
def _(law: RoundedGaussian) -> tuple[float, float]:
    """σ² and 1/2: rounding moves a number by no more."""
    return float(law.sigma2), 0.5


def joined_laws(
    parts: Iterable[tuple[Sequence[Law], NDArray[np.intp]]],
) -> tuple[list[Law], NDArray[np.intp]]:
    """Return the laws of several vectors in one list, and for each entry of the vectors, one after
    the other, the number of its law.

    >>> joined_laws([(["a", "b"], np.array([0, 1, 1])), (["c"], np.array([0, 0]))])
    (['a', 'b', 'c'], array([0, 1, 1, 2, 2]))
    """
    laws: list[Law] = []
    numbers = []
    for of_part, entries in parts:
        numbers.append(entries + len(laws))
        laws += of_part
    return laws, np.concatenate(numbers)


def _turns(variance: float) -> tuple[float, ...]:
    """Return the turns that count in a sum by Poisson: all but one are below exp(-49) from σ² = 10
    on, some from 1.
    """
    turn = 2 * math.pi
    return (0.0,) if variance >= 10 else (0.0, -turn, turn)


def _reduce_frequencies(frequency: Floats) -> Floats:
    """Return frequencies less whole turns, between -π and π: whole numbers do not see the
    difference.
    """
    turn = 2 * math.pi
    whole_turns = np.rint(frequency / turn)
    return np.asarray(frequency - turn * whole_turns)


def _cosine_sum(pmf: Callable[[ArrayLike], Floats], last: int, frequency: Floats) -> Floats:
    """Return ``p(0) + 2 Σ p(k) cos(kt)`` up to k = last, beyond which narrow laws have less than
    1e-20.
    """
    masses = pmf(np.arange(last + 1))
    result = np.full(frequency.shape, float(masses[0]))
    for k in range(1, last + 1):
        if masses[k] > 1e-20:
            result += 2 * masses[k] * np.cos(k * frequency)
    return result
