"""Real numbers revealed bit by bit, so that rounding changes no decision about them.

A ball is an interval that is proven to hold the true value; whatever precision is in force, a comparison that a ball
answers is true. Nothing here knows which distribution is sampled.
"""

from collections.abc import Callable
from fractions import Fraction

from semidp.ball_arithmetic import RealBall, ball, precision
from semidp.noise.randomness import Stream


class LazyUniform:
    """A uniform real number in [0, 1) of which only the leading bits are known so far.

    It lies in [top, top + 1) / 2^bits; `extend` reveals 64 more bits.

    >>> from semidp.noise.randomness import SeededRandomness
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

    def between(self) -> RealBall:
        """Return the ball of all values it can still have."""
        return self.low.union(self.high)

    def is_below(self, probability: Callable[[], RealBall]) -> bool:
        """Decide ``U < p`` exactly: more bits and more precision until the ball of `p` leaves no doubt.

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
