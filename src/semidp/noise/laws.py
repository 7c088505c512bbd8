"""Certified cumulative distribution functions: what `inversion` looks up.

Each law gives balls of F(k) at any precision. Samplers, variances and the sign of large Laplace noise are elsewhere.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from semidp.ball_arithmetic import RealBall, ball, precision

_BITS_TO_NATS = math.log(2)


@dataclass(frozen=True)
class GaussianLaw:
    """P(k) = exp(-k²/2σ²) / Σ_j exp(-j²/2σ²) on the integers.

    >>> law = GaussianLaw(Fraction(1))
    >>> with precision(64):
    ...     print(float(next(law.cdf(-1, -1)) + next(law.cdf(0, 0))))
    1.0
    """

    sigma2: Fraction

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the range outside which a tail is below 2^-bits."""
        reach = _gaussian_reach(self.sigma2, bits)
        return -reach, reach - 1

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last): sums over a tail, divided by the sum over all integers."""
        from flint import arb, ctx

        bits = ctx.prec  # read once: flint keeps one precision for all threads, and the bound below must fit the list
        tails = gaussian_tails(self.sigma2, bits)
        total = tails[0] + tails[1]
        for k in range(first, last + 1):
            beyond = -k if k < 0 else k + 1
            # Beyond the list all that is known, and all that is needed, is that the tail is below 2^-precision.
            tail = tails[beyond] / total if beyond < len(tails) else arb(0, 2.0**-60) * arb(2) ** (60 - bits)
            yield tail if k < 0 else 1 - tail


@lru_cache(maxsize=4)
def gaussian_tails(sigma2: Fraction, bits: int) -> list[RealBall]:
    """Return balls of Σ_{j>=i} exp(-j²/2σ²) for i = 0, 1, …, up to where the sum is below 2^-bits.

    What is left out after the last term is below that term times a geometric series.
    """
    from flint import arb

    last = _gaussian_reach(sigma2, bits)
    with precision(bits + 64):
        ratio = (-1 / (2 * ball(sigma2))).exp()
        square = ratio * ratio
        weights = [arb(1)]
        for _ in range(last + 1):
            weights.append(weights[-1] * ratio)
            ratio *= square
        beyond = (weights[-1] / (1 - ratio)).upper()
        total = arb(0).union(beyond)
        tails = []
        for weight in reversed(weights[:-1]):
            total += weight
            tails.append(total)
    return tails[::-1]


def _gaussian_reach(sigma2: Fraction, bits: int) -> int:
    """Return a k with P(X >= k) < 2^-bits: P <= exp(-k²/2σ²), also for the rounded Gaussian beyond k - 1/2."""
    return math.isqrt(math.ceil(2 * sigma2 * math.ceil((bits + 2) * _BITS_TO_NATS))) + 2


@dataclass(frozen=True)
class RoundedGaussianLaw:
    """The law of round(σZ) for a standard normal Z: F(k) = Φ((k + 1/2)/σ).

    >>> with precision(64):
    ...     print(round(float(next(RoundedGaussianLaw(Fraction(1)).cdf(0, 0))), 6))
    0.691462
    """

    sigma2: Fraction

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the range outside which a tail is below 2^-bits."""
        reach = _gaussian_reach(self.sigma2, bits)
        return -reach, reach - 1

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last) = erfc(-(2k + 1)/√(8σ²))/2."""
        unit = 1 / ball(8 * self.sigma2).sqrt()
        for k in range(first, last + 1):
            yield (-(2 * k + 1) * unit).erfc() / 2


@dataclass(frozen=True)
class LaplaceLaw:
    """P(k) ∝ exp(-|k|/s) on the integers: F(k) = q^-k/(1 + q) for k < 0, 1 - q^(k+1)/(1 + q) else, q = exp(-1/s).

    >>> with precision(64):
    ...     print(round(float(next(LaplaceLaw(Fraction(1)).cdf(-1, -1))), 6))
    0.268941
    """

    scale: Fraction

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the range outside which a tail is below 2^-bits."""
        reach = _exponential_reach(self.scale, bits)
        return -reach, reach - 1

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last)."""
        rate = 1 / ball(self.scale)
        norm = 1 + (-rate).exp()
        for k in range(first, last + 1):
            yield (k * rate).exp() / norm if k < 0 else 1 - (-(k + 1) * rate).exp() / norm


@dataclass(frozen=True)
class GeometricLaw:
    """P(k) ∝ exp(-k/s) on 0, 1, 2, …: F(k) = 1 - exp(-(k+1)/s).

    >>> with precision(64):
    ...     print(round(float(next(GeometricLaw(Fraction(1)).cdf(0, 0))), 6))
    0.632121
    """

    scale: Fraction

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return 0 and the end beyond which the tail is below 2^-bits."""
        return 0, _exponential_reach(self.scale, bits)

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last); 0 below 0."""
        rate = 1 / ball(self.scale)
        for k in range(first, last + 1):
            yield -(-max(k + 1, 0) * rate).expm1()


@dataclass(frozen=True)
class DigitLaw:
    """P(k) ∝ exp(-k/s) on 0, 1, …, size - 1: one digit, in base `size`, of a geometric variable.

    >>> with precision(64):
    ...     [round(float(x), 6) for x in DigitLaw(Fraction(1), 2).cdf(-1, 1)]
    [0.0, 0.731059, 1.0]
    """

    scale: Fraction
    size: int

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the boundaries between digits, whatever the bits."""
        return 0, self.size - 2

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last); 0 below 0 and 1 from the last digit on."""
        from flint import arb

        rate = 1 / ball(self.scale)
        norm = (-self.size * rate).expm1()
        for k in range(first, last + 1):
            yield arb(1) if k >= self.size - 1 else (-max(k + 1, 0) * rate).expm1() / norm


def _exponential_reach(scale: Fraction, bits: int) -> int:
    """Return a k with exp(-k/s) < 2^-bits."""
    return math.ceil(scale * math.ceil((bits + 1) * _BITS_TO_NATS)) + 1
