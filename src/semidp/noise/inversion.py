"""Exact sampling of an integer by inverting its cumulative distribution function, a table look-up for each draw.

A uniform real number U falls between two values F(k-1) <= U < F(k). Its first 16 bits decide almost always; if not,
64 bits do; if not, ball arithmetic with as many bits as it takes. Which distributions exist is said elsewhere.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.ball_arithmetic import RealBall, precision
from semidp.errors import Refused
from semidp.noise.lazy_uniform import LazyUniform
from semidp.noise.randomness import Stream

UNDECIDED = -1
LARGEST = 1 << 62
"""Values beyond this would not leave room to add a count in 64 bits."""
_LARGEST_TABLE = 30_000  # the guide holds 16-bit indices


class CertifiedLaw(Protocol):
    """A distribution on the integers, by certified values of its cumulative distribution function."""

    def boundaries(self, bits: int) -> tuple[int, int]:
        """Return first and last k such that F lies within 2^-bits of 0 before and of 1 from the last k on."""

    def cdf(self, first: int, last: int) -> Iterator[RealBall]:
        """Return balls of F(first), …, F(last) at the precision in force."""


class Inversion:
    """Draws from a `CertifiedLaw`, exactly.

    For each boundary k the table holds ``floor(2^word_bits F(k))``, certified. A word below it means U < F(k), a word
    above it means U > F(k); a word equal to it, probability 2^-word_bits, leaves the matter open, and only then more
    bits are drawn and F is computed more precisely. The tails beyond the table lie inside the first and the last
    open word, so that they too have their true probability. Hence P(k) = F(k) - F(k-1) exactly, not to 2^-64.

    Parameters
    ----------
    law
        The distribution.
    guide_bits, word_bits
        Bits of the first and the second look-up. Tests make them short so that the last step is often taken.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from semidp.noise.laws import GaussianLaw
    >>> from semidp.noise.randomness import SeededRandomness
    >>> Inversion(GaussianLaw(Fraction(4))).draw(8, Stream(SeededRandomness(3))).shape
    (8,)
    """

    def __init__(self, law: CertifiedLaw, guide_bits: int = 16, word_bits: int = 64) -> None:
        self.law = law
        self.guide_bits, self.word_bits = guide_bits, word_bits
        first, last = law.boundaries(word_bits)
        if last - first >= _LARGEST_TABLE:
            raise Refused(f"a table of {last - first + 1} entries is too large to sample from by look-up")
        self.first = first
        self.floors = _certified_floors(law, first, last, word_bits)
        self.guide = self._guide()

    def _guide(self) -> NDArray[np.int16]:
        """Return, for the leading bits of a word, the index of its value, or `UNDECIDED`."""
        low = np.arange(1 << self.guide_bits, dtype=np.uint64) << np.uint64(self.word_bits - self.guide_bits)
        high = low + np.uint64((1 << (self.word_bits - self.guide_bits)) - 1)
        index = np.searchsorted(self.floors, low, side="left")
        decided = index == np.searchsorted(self.floors, high, side="right")
        return np.where(decided, index, UNDECIDED).astype(np.int16)

    def draw(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """Return `count` independent draws."""
        leading = stream.words(-(-count // 4)).view(np.uint16)[:count]
        if self.guide_bits < 16:
            leading = leading >> np.uint16(16 - self.guide_bits)
        index = self.guide.take(leading)
        values: NDArray[np.int64] = np.add(index, self.first, dtype=np.int64)
        rest = np.flatnonzero(index == UNDECIDED)
        if rest.size:
            values[rest] = self.resolve(leading[rest], stream)
        return values

    def resolve(self, leading: NDArray[np.uint16], stream: Stream) -> NDArray[np.int64]:
        """Return the draws whose leading bits the guide left undecided: append more bits and look up again."""
        more = self.word_bits - self.guide_bits
        word = leading.astype(np.uint64) << np.uint64(more) | stream.words(leading.size) >> np.uint64(64 - more)
        index = np.searchsorted(self.floors, word, side="left")
        values = index.astype(np.int64) + self.first
        open_ = self.floors[np.minimum(index, self.floors.size - 1)] == word
        for i in np.flatnonzero(open_):
            values[i] = self._refine(LazyUniform(int(word[i]), self.word_bits, stream), int(values[i]))
        return values

    def _refine(self, u: LazyUniform, guess: int) -> int:
        """Return the k with F(k-1) <= U < F(k), drawing bits until it is certain."""
        value = None
        while value is None:
            u.extend()
            # A word of zeros or of ones only bounds U by 0 or 1, which no boundary in a tail ever reaches.
            if 0 < u.top < (1 << u.bits) - 1:
                with precision(u.bits + 64):
                    value = self._locate(u, guess)
        if abs(value) > LARGEST:
            raise Refused("the noise drawn does not fit in 64 bits, draw again or lower the scale")
        return value

    def _locate(self, u: LazyUniform, guess: int) -> int | None:
        low, high, step = guess - 1, guess, 1
        while not self._at(low) <= u.low:
            low, step = low - step, 2 * step
        step = 1
        while not self._at(high) >= u.high:
            high, step = high + step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            boundary = self._at(middle)
            if boundary <= u.low:
                low = middle
            elif boundary >= u.high:
                high = middle
            else:
                return None
        return high

    def _at(self, k: int) -> RealBall:
        return next(self.law.cdf(k, k))


def _certified_floors(law: CertifiedLaw, first: int, last: int, bits: int) -> NDArray[np.uint64]:
    """Return ``floor(2^bits F(k))`` for k = first, …, last, at whatever precision makes every one certain.

    0 < F(k) < 1 at every boundary, so that a ball that touches 0 or 1 still has one floor.
    """
    scale = 1 << bits
    working = bits + 128
    while True:
        with precision(working):
            ends = [_floors(scale * boundary, scale - 1) for boundary in law.cdf(first, last)]
        if all(low == high for low, high in ends):
            return np.array([low for low, _ in ends], dtype=np.uint64)
        working *= 2


def _floors(boundary: RealBall, largest: int) -> tuple[int, int]:
    """Return the floors of both ends of a ball, kept within 0, …, largest."""
    low, high = (int(end.floor().unique_fmpz()) for end in (boundary.lower(), boundary.upper()))
    return max(low, 0), min(high, largest)
