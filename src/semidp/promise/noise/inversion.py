"""Exact sampling of an integer by inverting its certified distribution function, a table look-up
for each draw.

A uniform real number U falls between two values F(k-1) <= U < F(k). Its first 16 bits decide almost
always; if not, 64 bits do; if not, ball arithmetic with as many bits as it takes: each law gives
balls of F(k) at any precision, and a comparison that a ball answers is true. This module has the
basic laws; `distributions` builds the others from them.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.ball_arithmetic import RealBall, ball, precision
from semidp.promise.exact import whole_bisection
from semidp.promise.noise.randomness import Stream


class LazyUniform:
    """A uniform real number in [0, 1) of which only the leading bits are known so far.

    It lies in [top, top + 1) / 2^bits; `extend` reveals 64 more bits.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> u = LazyUniform(5, 3, Stream(SeededRandomness(0)))
    >>> u.extend()
    >>> u.bits, u.top >> 64
    (67, 5)
    """

    def __init__(self, top: int, bits: int, stream: Stream) -> None:
        self.top, self.bits, self._stream = top, bits, stream

    def extend(self) -> None:
        """Reveal 64 more bits."""
        self.top = self.top << 64 | self._stream.word()
        self.bits += 64

    @property
    def low(self) -> RealBall:
        """The smallest value it can still have (exact inside ``precision(bits + 64)``)."""
        return ball(Fraction(self.top, 1 << self.bits))

    @property
    def high(self) -> RealBall:
        """The bound it lies strictly below."""
        return ball(Fraction(self.top + 1, 1 << self.bits))

    def to_precision(self) -> RealBall:
        """Return the ball of all its possible values, with as many bits revealed as the current
        precision.
        """
        from flint import ctx

        while self.bits < ctx.prec:
            self.extend()
        return self.low.union(self.high)

    def is_below(self, probability: Callable[[], RealBall]) -> bool:
        """Decide ``U < p`` exactly: more bits and more precision until the ball of `p` leaves no
        doubt.

        `probability` computes `p` at the precision in force.
        """
        while True:
            with precision(self.bits + 64):
                p = probability()
                if self.high <= p:
                    return True
                if self.low >= p:
                    return False
            self.extend()


_BITS_TO_NATS = math.log(2)


@frozen
class OfVariance:
    """The common part of the two Gaussian laws: σ², and where their tails begin."""

    sigma2: Fraction

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return the range outside which a tail is below 2^-bits."""
        reach = _gaussian_reach(self.sigma2, bits)
        return -reach, reach - 1


@frozen
class GaussianLaw(OfVariance):
    """P(k) = exp(-k²/2σ²) / Σ_j exp(-j²/2σ²) on the integers.

    >>> law = GaussianLaw(Fraction(1))
    >>> with precision(64):
    ...     print(float(next(law.cdf(-1, -1)) + next(law.cdf(0, 0))))
    1.0
    """

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last): sums over a tail, divided by the sum over all integers."""
        from flint import arb, ctx

        # read once: flint keeps one precision for all threads, and the bound below must fit the
        # list
        bits = ctx.prec
        tails = gaussian_tails(self.sigma2, bits)
        total = tails[0] + tails[1]
        for k in range(first, last + 1):
            beyond = -k if k < 0 else k + 1
            # Beyond the list all that is known, and all that is needed, is that the tail is below
            # 2^-precision.
            if beyond < len(tails):
                tail = tails[beyond] / total
            else:
                tail = arb(0, 2.0**-60)
                tail *= arb(2) ** (60 - bits)
            yield tail if k < 0 else 1 - tail


@lru_cache(maxsize=4)
def gaussian_tails(sigma2: Fraction, bits: int) -> list[RealBall]:
    """Return balls of Σ_{j>=i} exp(-j²/2σ²) for i = 0, 1, …, up to where the sum is below 2^-bits.

    The omitted terms are below the last one times a geometric series.
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
    """Return a k with P(X >= k) < 2^-bits: P <= exp(-k²/2σ²), also for the rounded Gaussian beyond
    k - 1/2.
    """
    nats = math.ceil((bits + 2) * _BITS_TO_NATS)
    return math.isqrt(math.ceil(2 * sigma2 * nats)) + 2


@frozen
class GeometricLaw:
    """P(k) ∝ exp(-k/s) on 0, 1, 2, …, or below `size`: a geometric variable, or a digit of one in
    base `size`.

    F(k) = expm1(-(k+1)/s)/expm1(-size/s), whose denominator is -1 without a size.

    >>> with precision(64):
    ...     print(round(float(next(GeometricLaw(Fraction(1)).cdf(0, 0))), 6))
    ...     [round(float(x), 6) for x in GeometricLaw(Fraction(1), 2).cdf(-1, 1)]
    0.632121
    [0.0, 0.731059, 1.0]
    """

    scale: Fraction
    size: int | None = None

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return 0 and the end beyond which the tail is below 2^-bits; of digits the last but
        one.
        """
        if self.size is None:
            return 0, exponential_reach(self.scale, bits)
        return 0, self.size - 2

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return F(first), …, F(last); 0 below 0 and 1 from the last digit on."""
        from flint import arb

        rate = 1 / ball(self.scale)
        norm = arb(-1)
        if self.size is not None:
            norm = (-self.size * rate).expm1()
        for k in range(first, last + 1):
            beyond = self.size is not None and k >= self.size - 1
            if beyond:
                yield arb(1)
            else:
                yield (-max(k + 1, 0) * rate).expm1() / norm


def exponential_reach(scale: Fraction, bits: int) -> int:
    """Return a k with exp(-k/s) < 2^-bits."""
    nats = math.ceil((bits + 1) * _BITS_TO_NATS)
    return math.ceil(scale * nats) + 1


UNDECIDED = -1
LARGEST = 1 << 62
"""Values beyond this would not leave room to add a count in 64 bits."""
_LARGEST_TABLE = 30_000  # the guide holds 16-bit indices


class CertifiedLaw(Protocol):
    """A distribution on the integers, by certified values of its cumulative distribution
    function.
    """

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return first and last k such that F lies within 2^-bits of 0 before and of 1 from the
        last k on.
        """

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return balls of F(first), …, F(last) at the precision in force."""


class Inversion:
    """Draws from a `CertifiedLaw`, exactly.

    For each boundary k the table holds ``floor(2^word_bits F(k))``, certified. A word below it
    means U < F(k), a word above it means U > F(k); a word equal to it, probability 2^-word_bits,
    leaves the matter open, and only then more bits are drawn and F is computed more precisely. The
    tails beyond the table lie inside the first and the last open word, so they too have their
    true probability. Hence P(k) = F(k) - F(k-1) exactly, not to 2^-64.

    Tests use few bits in the first and second look-up, to reach the last step
    often.

    >>> from fractions import Fraction
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> Inversion(GaussianLaw(Fraction(4))).draw(8, Stream(SeededRandomness(3))).shape
    (8,)
    """

    def __init__(self, law: CertifiedLaw, guide_bits: int = 16, word_bits: int = 64) -> None:
        self.law = law
        self.guide_bits, self.word_bits = guide_bits, word_bits
        first, last = law.boundaries(word_bits)
        if last - first >= _LARGEST_TABLE:
            raise Refused(
                f"a table of {last - first + 1} entries is too large to sample from by look-up"
            )
        self.first = first
        self.floors = _certified_floors(law, first, last, word_bits)
        self.guide = self._guide()

    def _guide(self) -> NDArray[np.int16]:
        """Return, for the leading bits of a word, the index of its value, or `UNDECIDED`."""
        more = self.word_bits - self.guide_bits
        # the first and the last word that begin with these bits
        leading = np.arange(1 << self.guide_bits, dtype=np.uint64)
        low = leading << np.uint64(more)
        high = low + np.uint64((1 << more) - 1)
        index = np.searchsorted(self.floors, low, side="left")
        decided = index == np.searchsorted(self.floors, high, side="right")
        return np.where(decided, index, UNDECIDED).astype(np.int16)

    def draw(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """Return `count` independent draws."""
        # four draws of 16 bits from each word
        words = stream.words(-(-count // 4))
        leading = words.view(np.uint16)[:count]
        if self.guide_bits < 16:
            leading = leading >> np.uint16(16 - self.guide_bits)
        index = self.guide.take(leading)
        values: NDArray[np.int64] = np.add(index, self.first, dtype=np.int64)
        undecided = np.flatnonzero(index == UNDECIDED)
        if undecided.size:
            values[undecided] = self.resolve(leading[undecided], stream)
        return values

    def resolve(self, leading: NDArray[np.uint16], stream: Stream) -> NDArray[np.int64]:
        """Return the draws whose leading bits the guide left undecided: append more bits and look
        up again.
        """
        more = self.word_bits - self.guide_bits
        high_bits = leading.astype(np.uint64) << np.uint64(more)
        low_bits = stream.words(leading.size) >> np.uint64(64 - more)
        word = high_bits | low_bits
        index = np.searchsorted(self.floors, word, side="left")
        values = index.astype(np.int64) + self.first
        within = np.minimum(index, self.floors.size - 1)
        open_ = self.floors[within] == word
        for i in np.flatnonzero(open_):
            u = LazyUniform(int(word[i]), self.word_bits, stream)
            values[i] = self._refine(u, int(values[i]))
        return values

    def _refine(self, u: LazyUniform, guess: int) -> int:
        """Return the k with F(k-1) <= U < F(k), drawing bits until it is certain."""
        value = None
        while value is None:
            u.extend()
            # A word of zeros or of ones only bounds U by 0 or 1, which no boundary in a tail ever
            # reaches.
            if 0 < u.top < (1 << u.bits) - 1:
                with precision(u.bits + 64):
                    value = self._locate(u, guess)
        if abs(value) > LARGEST:
            raise Refused("the noise drawn does not fit in 64 bits, draw again or lower the scale")
        return value

    def _locate(self, u: LazyUniform, guess: int) -> int | None:
        low, high, step = guess - 1, guess, 1
        while not self._evaluate_cdf(low) <= u.low:
            low, step = low - step, 2 * step
        step = 1
        while not self._evaluate_cdf(high) >= u.high:
            high, step = high + step, 2 * step
        _, high = whole_bisection(lambda k: self._evaluate_cdf(k) <= u.low, low, high)
        # Where F(k) lies within what U may still be, the search goes on below k and ends in doubt.
        return high if self._evaluate_cdf(high) >= u.high else None

    def _evaluate_cdf(self, k: int) -> RealBall:
        return next(self.law.cdf(k, k))


def _certified_floors(law: CertifiedLaw, first: int, last: int, bits: int) -> NDArray[np.uint64]:
    """Return ``floor(2^bits F(k))`` for k = first, …, last, at whatever precision makes every one
    certain.

    0 < F(k) < 1 at every boundary, so a ball that touches 0 or 1 still has one floor.
    """
    scale = 1 << bits
    working = bits + 128
    while True:
        with precision(working):
            boundaries = law.cdf(first, last)
            ends = [_floors(scale * boundary, scale - 1) for boundary in boundaries]
        if all(low == high for low, high in ends):
            return np.array([low for low, _ in ends], dtype=np.uint64)
        working *= 2


def _floors(boundary: RealBall, largest: int) -> tuple[int, int]:
    """Return the floors of both ends of a ball, kept within 0, …, largest."""
    low = int(boundary.lower().floor().unique_fmpz())
    high = int(boundary.upper().floor().unique_fmpz())
    return max(low, 0), min(high, largest)
