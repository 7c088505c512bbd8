"""The acceptance probability of a whole table: the product of θ(c; q)/θ(0; q) over its cells, and
exact coins of it.

θ(c; q) = 1 + 2 Σ_k q^(k²) cos 2πkc with q = exp(-2π²s²); by Poisson summation θ(c; q)/θ(0; q) is
the ratio of Σ_x exp(-(x - c)²/2s²) to its value at c = 0. How tables are proposed is in `lattice`.
"""

import math
from fractions import Fraction

import numpy as np

from semidp.promise.ball_arithmetic import RealBall, ball
from semidp.promise.noise.rejection import Floats, Integers, exp_minus

LIGHT = 60.0
"""A cell with 2π²s² above this has q < 2^-86: it is not computed, only bounded."""
LIGHT_LOSS = 2.0**-84
_TERMS = 5
_TAYLOR = 14


def nome(variance: Floats) -> Floats:
    """Return q = exp(-2π²s²) within a relative 2^-31, for 2π²s² up to `LIGHT`.

    >>> import numpy as np
    >>> round(float(nome(np.array([0.25]))[0]), 6)
    0.007192
    """
    root = exp_minus(math.pi**2 / 2 * variance)
    square = root * root
    result: Floats = square * square
    return result


def losses(numerator: Integers, denominator: Integers, q: Floats) -> Floats:
    """Return 1 - θ(c; q)/θ(0; q) = 2 Σ_k q^(k²) (1 - cos 2πkc)/θ(0; q) for c =
    numerator/denominator.

    Error below 2^-30 · 4q for q <= 0.3: five terms leave 4q^36; the cosine is a Taylor polynomial
    of degree 28 in 2πc, |c| <= 1/2, with remainder π^30/30! < 2^-57 and rounding below 2^-44;
    multiples of the angle by the recurrence of Chebyshev polynomials lose a factor 25; and q is
    within a relative 2^-31.

    >>> import numpy as np
    >>> one, two = np.array([1]), np.array([2])
    >>> (
    ...     float(losses(0 * one, two, np.array([0.1]))[0]),
    ...     round(float(losses(one, two, np.array([0.1]))[0]), 6),
    ... )
    (0.0, 0.333278)
    """
    turn = numerator % denominator
    # |c| <= 1/2: whole turns do not change the cosine.
    nearest_turn = np.where(2 * turn > denominator, turn - denominator, turn)
    c = nearest_turn / denominator
    squared = (2 * math.pi * c) ** 2
    cosine = np.ones_like(squared)
    for k in range(_TAYLOR, 0, -1):
        factorial_step = 2 * k * (2 * k - 1)
        cosine = 1 - squared * cosine * (1 / factorial_step)
    before, now = np.ones_like(cosine), cosine
    total, norm = np.zeros_like(cosine), np.ones_like(cosine)
    for k in range(1, _TERMS + 1):
        power = 2 * q ** (k * k)
        total += power * (1 - now)
        norm += power
        before, now = now, 2 * cosine * now - before
    result: Floats = total / norm
    return result


def ratio(centre: Fraction, variance: Fraction) -> RealBall:
    """Return a ball of θ(c; q)/θ(0; q) at the precision in force.

    >>> from semidp.promise.ball_arithmetic import precision
    >>> with precision(64):
    ...     float(ratio(Fraction(3), Fraction(1, 4)))
    1.0
    """
    from flint import arb, ctx, fmpq

    exponent = -2 * arb.pi() ** 2 * ball(variance)
    q = exponent.exp()
    above, below = arb(1), arb(1)
    k = 1
    while True:
        power = 2 * q ** (k * k)
        if power < arb(2) ** (-ctx.prec):
            # What is left out is below 2 Σ q^(k²) <= power / (1 - q) <= 2 power, with either sign
            # above.
            tail = (2 * power).upper()
            above += arb(0).union(tail).union(-tail)
            below += arb(0).union(tail)
            return above / below
        angle = 2 * k * centre
        above += power * arb.cos_pi_fmpq(fmpq(angle.numerator, angle.denominator))
        below += power
        k += 1
