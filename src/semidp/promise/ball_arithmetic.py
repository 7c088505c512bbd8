"""Numbers with proven error bounds: ball arithmetic (python-flint) and the rounding of its results.

A ball holds a real number and a bound on its error, so its upper end is never below the truth. The
callers are the tradeoff functions; nothing here knows about privacy.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from semidp.promise.exact import bisection, round_down, round_up
from semidp.promise.system import run_after_fork

RealBall = Any
"""A `flint.arb`; python-flint has no type information."""

_SMALLEST = math.ulp(0.0)
_ENOUGH_BITS = 60
_MOST_BITS = 1 << 14


_turn = threading.RLock()


def _new_lock() -> None:
    global _turn
    _turn = threading.RLock()


# A thread that holds the lock does not exist in a forked child, which would wait for it forever.
run_after_fork(_new_lock)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work with `bits` bits inside the block; flint has one precision for all threads, hence the
    lock.

    Every change of precision in the package goes through here: a sampler's error bounds read the
    current precision.

    >>> with precision(64):
    ...     bool(ball(Fraction(1, 3)) * 3 == 1)
    False
    """
    from flint import ctx

    with _turn:
        before = ctx.prec
        ctx.prec = bits
        try:
            yield
        finally:
            ctx.prec = before


def ball(x: Fraction | int | float) -> RealBall:
    """Return `x` as a ball at the current precision.

    >>> ball(Fraction(1, 2))
    0.500000000000000
    """
    import flint

    x = Fraction(x)
    return flint.arb(flint.fmpq(x.numerator, x.denominator))


def sharp(compute: Callable[[], RealBall]) -> RealBall:
    """Evaluate `compute` at increasing precision until its result is known to 60 bits.

    >>> sharp(lambda: ball(10**40) + 1 - ball(10**40))
    1.00000000000000
    """

    bits = 128
    while True:
        with precision(bits):
            result = compute()
        if bits >= _MOST_BITS or (
            result.is_finite() and result.rel_accuracy_bits() >= _ENOUGH_BITS
        ):
            return result
        bits *= 2


def round_ball_up(x: RealBall) -> float:
    """Return a float that is at least the number in the ball `x`: its upper end, rounded up.

    >>> round_ball_up(ball(Fraction(1, 3))) > 1 / 3
    True
    """

    if not x.is_finite():
        return math.inf
    with precision(64):
        end = x.upper()
    if end <= 0:
        return 0.0 - round_ball_down(-x)
    if end < _SMALLEST:
        return _SMALLEST
    return math.inf if end > 1e308 else round_up(_fraction(end))


def round_ball_down(x: RealBall) -> float:
    """Return a float that is at most the number in the ball `x`: its lower end, rounded down.

    >>> round_ball_down(ball(Fraction(1, 3))) < 1 / 3
    True
    """

    if not x.is_finite():
        return -math.inf
    with precision(64):
        end = x.lower()
    if end < 0:
        return 0.0 - round_ball_up(-x)
    if end < _SMALLEST:
        return 0.0
    return 1e308 if end > 1e308 else round_down(_fraction(end))


def least(holds: Callable[[float], bool]) -> float:
    """Return nearly the least float at which `holds` is true: one part in 2^48 below it is
    false.

    `holds` is false up to some point and true after it; only values that satisfied it are
    returned, so a cautious `holds` gives a cautious answer. Infinity if it holds for no float.

    >>> least(lambda x: x * x >= 2)
    1.41421356237309...
    """
    if holds(0.0):
        return 0.0
    high = 1.0
    while not holds(high):
        high *= 2
        if math.isinf(high):
            return math.inf
    low = high / 2
    if high == 1.0:
        while low > 0 and holds(low):
            low, high = low / 2, low
    _, high = bisection(lambda x: not holds(x), low, high, halvings=48)
    return high


def _fraction(point: RealBall) -> Fraction:
    mantissa, exponent = point.man_exp()
    mantissa, exponent = int(mantissa), int(exponent)
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)
