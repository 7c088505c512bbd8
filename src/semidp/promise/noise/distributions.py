"""Noise for single counts, sampled exactly.

A distribution (discrete Gaussian, rounded Gaussian, discrete Laplace) is a frozen value with an
exact parameter; it draws from the randomness it is given. Noise for whole tables with fixed sums is
in `lattice`, the choice of one value among many in `choice`; mechanisms decide how much noise a
guarantee needs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import RealBall, ball, precision
from semidp.promise.exact import positive
from semidp.promise.noise.inversion import (
    LARGEST,
    CertifiedLaw,
    GaussianLaw,
    GeometricLaw,
    Inversion,
    LazyUniform,
    OfVariance,
    exponential_reach,
    gaussian_tails,
)
from semidp.promise.noise.randomness import Randomness, Stream, is_whole
from semidp.promise.noise.rejection import (
    LARGEST_VARIANCE,
    Floats,
    Integers,
    Target,
    attempt,
    widths,
)

Size = int | tuple[int, ...]

# draws at a time: they stay in a processor's cache, and 10^8 cells need no more memory than 10^6
_CHUNK = 1 << 15
_SMALL_VARIANCE = 1024**2  # up to here a table is small and faster than rejection
_SMALL_SCALE = 256
_LEAST_ATTEMPTED = 1 / 16  # the error bound of an attempt needs as much variance
_DIGIT = 1024
_LARGEST_SCALE = 2**50
# σ² from which a discrete Gaussian's sum and variance are the integral's to 30 digits
_FROM_HERE_SMOOTH = 4


@lru_cache(maxsize=64)
def _table(law: CertifiedLaw) -> Inversion:
    return Inversion(law)


class CountNoise(ABC):
    """A distribution of whole numbers: its variance, and draws of any shape, made in chunks."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of one number."""

    def sample(self, size: Size, randomness: Randomness) -> Integers:
        """Return independent draws as 64-bit integers of the given size or shape."""
        shape = size if isinstance(size, tuple) else (size,)
        if any(not is_whole(n) or n < 0 for n in shape):
            raise InputError(
                f"the size of a sample must be a whole number or a tuple of them, not {size!r}"
            )
        values = np.empty(math.prod(shape), dtype=np.int64)
        stream = Stream(randomness)
        for start in range(0, values.size, _CHUNK):
            part = values[start : start + _CHUNK]
            part[:] = self._draw(part.size, stream)
        return values.reshape(shape)

    @abstractmethod
    def _draw(self, count: int, stream: Stream) -> Integers:
        """Return `count` draws."""


@frozen
class _VarianceNoise(CountNoise, OfVariance):
    """What the two Gaussians share: an exact σ², and draws by look-up or, for a large σ², by
    attempts.
    """

    def __attrs_post_init__(self) -> None:
        """Check σ²."""
        object.__setattr__(self, "sigma2", variance_parameter(self.sigma2))

    @staticmethod
    @abstractmethod
    def attempts(
        sigma2: Sequence[Fraction], variance: Floats, stream: Stream
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Return a proposal for each σ², and which are accepted: those have this law."""

    def _draw(self, count: int, stream: Stream) -> Integers:
        if self.sigma2 <= _SMALL_VARIANCE:
            return _table(self).draw(count, stream)
        return _collect(count, lambda tries: self._draw_accepted(tries, stream))

    def _draw_accepted(self, tries: int, stream: Stream) -> Integers:
        variances = np.full(tries, float(self.sigma2))
        x, accepted = self.attempts([self.sigma2] * tries, variances, stream)
        return x[accepted]


@frozen
class DiscreteGaussian(_VarianceNoise, GaussianLaw):
    """P(k) = exp(-k²/2σ²) / Σ_j exp(-j²/2σ²) on the integers (canonne2020discrete), given by σ².

    Adding it to integers that differ by at most Δ2 in Euclidean norm satisfies Δ2²/(2σ²)-zCDP. The
    draws have exactly this law: table look-up with certified bounds up to σ = 1024 (`inversion`),
    beyond that a block of neighboring integers by look-up, a place in it, and an exact acceptance
    step (`rejection`).

    Parameters
    ----------
    sigma2
        σ², above 0 and at most 4^48.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> noise = DiscreteGaussian(Fraction(4))
    >>> noise.sample((2, 3), SeededRandomness(1)).shape
    (2, 3)
    >>> round(noise.variance, 6), round(float(noise.pmf(0)), 6)
    (4.0, 0.199471)
    >>> DiscreteGaussian(Fraction(-1))
    Traceback (most recent call last):
    semidp.errors.InputError: sigma2 must be above 0, not -1
    """

    @property
    def variance(self) -> float:
        """The variance, just below σ²."""
        if self.sigma2 >= _FROM_HERE_SMOOTH:
            return float(self.sigma2)
        with precision(128):
            tails = gaussian_tails(self.sigma2, 128)
            # Σ k² P(k) by parts: k² - (k - 1)² = 2k - 1 times the tail from k on, on both sides.
            terms = []
            for k in range(1, len(tails)):
                terms.append((2 * k - 1) * tails[k])
            total = tails[0] + tails[1]
            return float(2 * sum(terms) / total)

    def pmf(self, k: ArrayLike) -> Floats:
        """Return P(X = k) for whole numbers k."""
        if self.sigma2 >= _FROM_HERE_SMOOTH:
            total = math.sqrt(2 * math.pi * self.sigma2)
        else:
            tails = gaussian_tails(self.sigma2, 128)
            total = float(tails[0] + tails[1])
        squares = _check_integers(k) ** 2
        return np.exp(-squares / float(2 * self.sigma2)) / total

    @staticmethod
    def attempts(
        sigma2: Sequence[Fraction], variance: Floats, stream: Stream
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Return a proposal for each σ², and which are accepted: those have this law."""
        zero = Fraction(0)
        centres = np.zeros(variance.size)

        def exact(lane: int) -> Target:
            return lambda: ball(zero), sigma2[lane], zero

        return attempt(centres, widths(variance), stream, exact)


@frozen
class RoundedGaussian(_VarianceNoise):
    """The distribution of round(σZ) for a standard normal Z, given by σ²: P(k) = Φ((k + 1/2)/σ) -
    Φ((k - 1/2)/σ).

    For counts x the sum x + round(σZ) is round(x + σZ): the continuous Gaussian mechanism, then
    post-processing. Hence it is exactly Δ2/σ-GDP, and the draws are exact integers: no
    floating-point number touches a count.

    Parameters
    ----------
    sigma2
        σ², above 0 and at most 4^48. The square is given so that a σ such as √6/mu stays exact.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> noise = RoundedGaussian(Fraction(6))
    >>> noise.sample(4, SeededRandomness(1)).dtype
    dtype('int64')
    >>> round(noise.variance, 6)
    6.083333
    """

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last) = Φ((k + 1/2)/σ) = erfc(-(2k + 1)/√(8σ²))/2.

        >>> with precision(64):
        ...     print(round(float(next(RoundedGaussian(Fraction(1)).cdf(0, 0))), 6))
        0.691462
        """
        unit = 1 / ball(8 * self.sigma2).sqrt()
        for k in range(first, last + 1):
            yield (-(2 * k + 1) * unit).erfc() / 2

    @property
    def variance(self) -> float:
        """The variance: σ² + 1/12 except for tiny σ."""
        if self.sigma2 >= _FROM_HERE_SMOOTH:
            return float(self.sigma2 + Fraction(1, 12))
        _, last = self.boundaries(64)
        # Σ k² P(k) by parts: (2k - 1) P(|X| >= k), and P(|X| >= k) = erfc((2k - 1)/√(8σ²)).
        odd = np.arange(1, 2 * last, 2)
        tails = scipy.special.erfc(odd / math.sqrt(8 * self.sigma2))
        return float(np.sum(odd * tails))

    def pmf(self, k: ArrayLike) -> Floats:
        """Return P(X = k) for whole numbers k."""
        distance = np.abs(_check_integers(k))
        sigma = math.sqrt(self.sigma2)
        if self.sigma2 < _FROM_HERE_SMOOTH:
            ndtr = scipy.special.ndtr
            upper = ndtr((0.5 - distance) / sigma)
            result: Floats = upper - ndtr((-0.5 - distance) / sigma)
            return result
        # The difference of two nearly equal numbers would lose digits: integrate the density over
        # the unit interval.
        nodes, weights = np.polynomial.legendre.leggauss(24)
        z = (distance[..., None] + nodes / 2) / sigma
        integrals = np.exp(-z * z / 2) @ weights
        root = math.sqrt(2 * math.pi)
        return np.asarray(integrals / (2 * sigma * root))

    @staticmethod
    def attempts(
        sigma2: Sequence[Fraction], variance: Floats, stream: Stream
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Attempt round(σZ) = x, where rounding moved σZ by f, |f| <= 1/2: their joint density is ∝
        exp(-(x - f)²/2σ²).

        So f is uniform, drawn afresh at each attempt, to as many bits as the decision
        needs.
        """
        half = Fraction(1, 2)
        words = stream.words(variance.size)

        def exact(lane: int) -> Target:
            taken = LazyUniform(int(words[lane]), 64, stream)
            return lambda: taken.to_precision() - ball(half), sigma2[lane], half

        centre = words.astype(np.float64) * 2.0**-64 - 0.5
        return attempt(centre, widths(variance), stream, exact, reach=0.5)


@frozen
class DiscreteLaplace(CountNoise):
    """P(k) ∝ exp(-|k|/s) on the integers, given by the scale s (ghosh2012universally).

    Adding it to integers that differ by at most Δ1 in l1 norm satisfies pure Δ1/s-DP. Up to s = 256
    by one table; beyond that the digits of |k| in base 1024, which are independent, each by its own
    table, and the sign by a coin.

    Parameters
    ----------
    scale
        s, above 0 and at most 2^50.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> noise = DiscreteLaplace(Fraction(3, 2))
    >>> noise.sample(5, SeededRandomness(1)).shape, round(noise.variance, 6)
    ((5,), 4.336973)
    """

    scale: Fraction

    def __attrs_post_init__(self) -> None:
        """Check the scale."""
        scale = positive(self.scale, "scale")
        if scale > _LARGEST_SCALE:
            raise Refused(
                "a Laplace scale above 2^50 leaves no room for counts in 64 bits, count in larger"
                " units"
            )
        object.__setattr__(self, "scale", scale)

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the range outside which a tail is below 2^-bits."""
        reach = exponential_reach(self.scale, bits)
        return -reach, reach - 1

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last): q^-k/(1 + q) for k < 0, 1 - q^(k+1)/(1 + q) else, q =
        exp(-1/s).

        >>> with precision(64):
        ...     print(round(float(next(DiscreteLaplace(Fraction(1)).cdf(-1, -1))), 6))
        0.268941
        """
        rate = 1 / ball(self.scale)
        norm = 1 + (-rate).exp()
        for k in range(first, last + 1):
            if k < 0:
                yield (k * rate).exp() / norm
            else:
                yield 1 - (-(k + 1) * rate).exp() / norm

    @property
    def variance(self) -> float:
        """The variance 2q/(1 - q)², q = exp(-1/s)."""
        with precision(128):
            rate = 1 / ball(self.scale)
            q = (-rate).exp()
            return float(2 * q / (-rate).expm1() ** 2)

    def pmf(self, k: ArrayLike) -> Floats:
        """Return P(X = k) for whole numbers k."""
        rate = float(1 / self.scale)
        # (1 - q)/(1 + q) = tanh(1/2s)
        decay = np.exp(-np.abs(_check_integers(k)) * rate)
        return np.asarray(decay * math.tanh(rate / 2))

    def _draw(self, count: int, stream: Stream) -> Integers:
        if self.scale <= _SMALL_SCALE:
            return _table(self).draw(count, stream)
        return _collect(
            count, lambda tries: _draw_signs(_digits(self.scale, tries, stream), stream)
        )


def variance_parameter(sigma2: Fraction) -> Fraction:
    """Return σ² as a fraction, checked.

    >>> variance_parameter("1e99")
    Traceback (most recent call last):
    semidp.errors.Refused: a sigma above 2^48 leaves no room for counts in 64 bits, count in larger
    units
    """
    sigma2 = positive(sigma2, "sigma2")
    if sigma2 > LARGEST_VARIANCE:
        raise Refused(
            "a sigma above 2^48 leaves no room for counts in 64 bits, count in larger units"
        )
    return sigma2


def _collect(count: int, tries: Callable[[int], Integers]) -> Integers:
    """Return the first `count` accepted values of independent attempts."""
    parts: list[Integers] = []
    missing = count
    while missing > 0:
        part = tries(missing + missing // 4 + 16)[:missing]
        parts.append(part)
        missing -= part.size
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def sample_each(
    laws: Sequence[DiscreteGaussian | RoundedGaussian],
    which: NDArray[np.intp],
    randomness: Randomness,
) -> Integers:
    """Return a draw for each entry of `which`, an index into `laws`: many distributions, few
    draws of each.

    No law has a table of its own: each entry is attempted until it is accepted (`rejection`),
    exactly.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> laws = [DiscreteGaussian(Fraction(variance)) for variance in (1, 10_000)]
    >>> sample_each(laws, np.array([0, 1, 0, 1]), SeededRandomness(1)).shape
    (4,)
    """
    stream = Stream(randomness)
    variance = np.array([float(law.sigma2) for law in laws])
    if variance.min(initial=1.0) < _LEAST_ATTEMPTED:
        raise InputError("laws with few draws each need a variance of at least 1/16")
    values = np.empty(which.size, dtype=np.int64)
    for start in range(0, which.size, _CHUNK):
        left = np.arange(start, min(start + _CHUNK, which.size))
        while left.size:
            mine = which[left]
            sigma2 = [laws[number].sigma2 for number in mine.tolist()]
            x, accepted = laws[0].attempts(sigma2, variance[mine], stream)
            values[left[accepted]] = x[accepted]
            left = left[~accepted]
    return values


def _digits(scale: Fraction, count: int, stream: Stream) -> Integers:
    """Return geometric variables, P(k) ∝ exp(-k/s) on 0, 1, 2, …, digit by digit."""
    value = np.zeros(count, dtype=np.int64)
    unit = 1
    while scale / unit > _SMALL_SCALE:
        digit = _table(GeometricLaw(scale / unit, _DIGIT))
        value += digit.draw(count, stream) * unit
        unit *= _DIGIT
    leading = _table(GeometricLaw(scale / unit)).draw(count, stream)
    if leading.size and leading.max() >= LARGEST // unit:
        raise Refused("the noise drawn does not fit in 64 bits, draw again or lower the scale")
    return value + leading * unit


def _draw_signs(magnitude: Integers, stream: Stream) -> Integers:
    """Return the magnitudes with random signs, without those that came out as -0 (0 would count
    twice).
    """
    count = magnitude.size
    words = stream.words(-(-count // 64))
    coins = np.unpackbits(words.view(np.uint8))[:count]
    keep = (magnitude > 0) | (coins == 0)
    signed: Integers = np.where(coins == 1, -magnitude, magnitude)[keep]
    return signed


def _check_integers(k: ArrayLike) -> NDArray[np.float64]:
    whole = np.asarray(k)
    if whole.dtype.kind not in "iu":
        raise InputError("probabilities are defined at whole numbers, give integers")
    return whole.astype(np.float64)
