"""Discrete Gaussians with any center and any variance, one attempt at a time: what table look-up
alone cannot do.

A proposal comes from a fixed family of tables and is accepted with an exact probability; a
floating-point number decides wherever a proven error bound lets it, ball arithmetic elsewhere.
The callers say which centres they need.

The target law is P(x) ∝ exp(-(x - f)²/2s²) on the integers, |f| <= 1/2. The proposal is x = hq + ρ
with q a discrete Gaussian of variance parameter τ²/h² and ρ uniform on -⌊h/2⌋, …, ⌈h/2⌉ - 1. For y
= hq and g = f - ρ,

    (y - g)²/2s² - y²/2τ² + g²/2δ = (1/s² - 1/τ²)/2 · (y - gτ²/δ)² >= 0,      δ = τ² - s² > 0,

so with M = (|f| + ⌊h/2⌋)²/2δ >= g²/2δ the number exp(-E), E = (x - f)²/2s² - y²/2τ² + M, is a
probability, and a proposal accepted with it has exactly the target law (von Neumann). M does not
depend on the proposal.

A whole table is accepted with the product of θ(c; q)/θ(0; q) over its cells, where
θ(c; q) = 1 + 2 Σ_k q^(k²) cos 2πkc with q = exp(-2π²s²); by Poisson summation the ratio is that of
Σ_x exp(-(x - c)²/2s²) to its value at c = 0. How tables are proposed is in `lattice`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.ball_arithmetic import RealBall, ball, precision
from semidp.promise.noise.inversion import UNDECIDED, GaussianLaw, Inversion, LazyUniform
from semidp.promise.noise.randomness import Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Proposal widths: τ² = m · 4^i / 4 for these m, so neighboring τ differ by less than a fifth.
# From τ = 64 on the four widest tables serve all widths by way of h = 2, 4, 8, …
_STEPS = (Fraction(1), Fraction(17, 12), Fraction(2), Fraction(17, 6))
_OCTAVES = 52
_NARROW_OCTAVES = 7  # τ² < 4^7/4 = 64²
_CLASSES = len(_STEPS) * _OCTAVES
_COIN_BITS = 48  # a word is 16 bits of proposal and 48 bits of coin
_COIN_MASK = (1 << _COIN_BITS) - 1

# |float decision variable - true one| is below TOLERANCE, see `attempt`.
TOLERANCE = 2.0**-30
_LARGEST_EXPONENT = 2.0**12
LARGEST_VARIANCE = Fraction(4) ** 48
"""Wider noise would not leave room for a count in 64 bits."""


def proposal_variance(index: int) -> Fraction:
    """Return τ² of a proposal class.

    >>> proposal_variance(0), proposal_variance(9)
    (Fraction(1, 4), Fraction(17, 3))
    """
    octave, step = divmod(index, len(_STEPS))
    return _STEPS[step] * Fraction(4) ** octave / 4


def proposal_spread(index: int) -> int:
    """Return h of a proposal class: 1 while the table is small enough, then powers of two.

    >>> proposal_spread(0), proposal_spread(28), proposal_spread(32)
    (1, 2, 4)
    """
    octaves_beyond = index // len(_STEPS) - _NARROW_OCTAVES
    return 1 << max(0, octaves_beyond + 1)


@frozen(eq=False)
class _ProposalTables:
    """The tables of all proposal classes, one row of `guide` for each table."""

    variances: Floats
    spreads: Integers
    table: Integers
    inverse: Floats
    tables: tuple[Inversion, ...]
    guide: NDArray[np.int16]
    first: Integers


@lru_cache(maxsize=1)
def _family() -> _ProposalTables:
    narrow = len(_STEPS) * _NARROW_OCTAVES
    classes = np.arange(_CLASSES)
    variances = [proposal_variance(index) for index in range(_CLASSES)]
    spreads = [proposal_spread(index) for index in range(_CLASSES)]
    tables = tuple(Inversion(GaussianLaw(variance)) for variance in variances[:narrow])
    # Wide classes share the four widest tables.
    widest = narrow - len(_STEPS) + classes % len(_STEPS)
    inverse = [1 / float(2 * variance) for variance in variances[:narrow]]
    guides = [table.guide for table in tables]
    first = [table.first for table in tables]
    float_variances = [float(variance) for variance in variances]
    return _ProposalTables(
        variances=np.array(float_variances),
        spreads=np.array(spreads),
        table=np.where(classes < narrow, classes, widest),
        inverse=np.array(inverse),
        tables=tables,
        guide=np.concatenate(guides),
        first=np.array(first),
    )


@frozen(eq=False)
class Widths:
    """What an attempt needs to know of s²: the proposal class, 1/(2s²) within a relative 2^-48, and
    1/(2δ).
    """

    index: Integers
    curvature: Floats
    slack: Floats

    def select(self, keep: NDArray[np.intp]) -> "Widths":
        """The widths at the positions `keep`."""
        index = self.index[keep]
        return Widths(index, self.curvature[keep], self.slack[keep])


def widths(variance: Floats) -> Widths:
    """Choose the proposal classes for variance parameters given within a relative 2^-49.

    >>> import numpy as np
    >>> widths(np.array([1.0, 4.0])).index
    array([5, 9])
    """
    family = _family()
    # δ trades two ways of losing a proposal, exp(-M) and s/τ: 0.3 s + 0.1 is about best for h = 1,
    # s²/64 for large h.
    narrow_slack = 0.3 * np.sqrt(variance) + 0.1
    slack = np.maximum(narrow_slack, variance / 64)
    index = np.searchsorted(family.variances, variance + slack)
    delta = family.variances[index] - variance
    return Widths(index, 0.5 / variance, 0.5 / delta)


Target = tuple[Callable[[], RealBall], Fraction, Fraction]
"""The exact target of an attempt: f at the current precision, s², and the |f| that enters
M."""


def attempt(
    centre: Floats,
    these: Widths,
    stream: Stream,
    exact: Callable[[int], Target],
    reach: float | None = None,
) -> tuple[Integers, NDArray[np.bool_]]:
    """Propose one value for each center f and decide on it, exactly; return the proposals and which
    are accepted.

    A center is at most 1/2 in size and within 2^-50; `exact` is asked for a lane where a float does
    not decide; `reach` is the |f| that enters M: the center's own, or 1/2 where the center is drawn
    afresh at every attempt.

    Error bound. Let the first term of E be at most 2^12; the second is then below 2^13. Each is a
    product of factors within a relative 2^-48 and loses at most 2^-34; f within 2^-50 moves the
    first by at most 2^-41 (s² >= 1/16); δ >= s²/64 costs 6 bits of M < 2, leaving 2^-41.
    `exp_minus` adds a relative 2^-34, the 48-bit coin 2^-48. The sum is below `TOLERANCE` = 2^-30.
    Closer decisions, and larger exponents, go to `exact`.
    """
    family = _family()
    words = stream.words(centre.size)
    table = family.table[these.index]
    leading = words >> np.uint64(_COIN_BITS)
    row_start = table << 16
    code = family.guide.take(row_start + leading.astype(np.int64))
    q = code + family.first[table]
    undecided = np.flatnonzero(code == UNDECIDED)
    for number in set(table[undecided].tolist()):
        these_lanes = undecided[table[undecided] == number]
        q[these_lanes] = _resolve_draws(family.tables[number], leading[these_lanes], stream)
    spread = family.spreads[these.index]
    y = q * spread
    x = y + _offsets(spread, stream)
    distance = x - centre
    first_term = distance * distance * these.curvature
    size = np.abs(centre) if reach is None else reach
    lift = (size + (spread >> 1)) ** 2 * these.slack
    squares = np.square(q.astype(np.float64))
    exponent = first_term - squares * family.inverse[table] + lift
    coin_words = words & np.uint64(_COIN_MASK)
    coin = coin_words.astype(np.float64) * 2.0**-_COIN_BITS
    margin = exp_minus(exponent) - coin
    accepted = margin > TOLERANCE
    unsure = (np.abs(margin) <= TOLERANCE) | (first_term > _LARGEST_EXPONENT)
    for lane in np.flatnonzero(unsure):
        u = LazyUniform(int(words[lane]) & _COIN_MASK, _COIN_BITS, stream)
        number = int(these.index[lane])
        proposal = (int(x[lane]), int(y[lane]), number)
        probability = partial(_probability, *proposal, *exact(int(lane)))
        accepted[lane] = u.is_below(probability)
    return x, accepted


def _probability(
    x: int, y: int, index: int, centre: Callable[[], RealBall], variance: Fraction, reach: Fraction
) -> RealBall:
    """Return exp(-E) of the module docstring, for a proposal x = y + ρ of a class, at the precision
    in force.
    """
    tau2 = proposal_variance(index)
    delta = tau2 - variance
    largest = reach + proposal_spread(index) // 2
    lift = ball(largest**2 / (2 * delta))
    first_term = (x - centre()) ** 2 / ball(2 * variance)
    second_term = ball(Fraction(y * y) / (2 * tau2))
    exponent = first_term - second_term + lift
    return (-exponent).exp()


def _resolve_draws(table: Inversion, leading: NDArray[np.uint64], stream: Stream) -> Integers:
    q = table.resolve(leading.astype(np.uint16), stream)
    if np.abs(q).max() > 1 << 14:  # tables end near 600: the probability is below exp(-2^15)
        raise Refused("the noise drawn does not fit in 64 bits, draw again or lower the scale")
    return q


def _offsets(spread: Integers, stream: Stream) -> Integers | int:
    """Return ρ, uniform on -⌊h/2⌋, …, ⌈h/2⌉ - 1 (h is a power of two)."""
    if spread.size == 0 or spread.max() == 1:
        return 0
    # h is a power of two, so the last bits of a word are uniform below h
    mask = (spread - 1).view(np.uint64)
    below_spread = (stream.words(spread.size) & mask).view(np.int64)
    return below_spread - (spread >> 1)


_PER_UNIT = 256
_LAST = 48


@lru_cache(maxsize=1)
def _exponentials() -> Floats:
    with precision(128):
        powers = []
        for i in range(_LAST * _PER_UNIT + 1):
            power = ball(Fraction(-i, _PER_UNIT)).exp()
            powers.append(float(power))
        return np.array(powers)


def exp_minus(x: Floats) -> Floats:
    """Return exp(-max(x, 0)) within a relative 2^-34 (absolute 2^-69 beyond 48), with a proof that
    needs no libm.

    exp(-x) = exp(-i/256) · exp(-r), 0 <= r < 1/256: the first factor from a table that is right to
    2^-52, the second by its Taylor polynomial of degree 3, whose relative error is below r⁴/24 ·
    e^r < 2^-36; the subtraction x - i/256 is exact and the seven other operations lose 2^-53 each.

    >>> import numpy as np
    >>> float(abs(exp_minus(np.array([1.0]))[0] - np.exp(-1)) * 2**34) < 1
    True
    """
    x = np.clip(x, 0.0, _LAST)
    whole = (x * _PER_UNIT).astype(np.int64)
    r = x - whole * (1 / _PER_UNIT)
    second_order = 0.5 - r * (1 / 6)
    taylor = 1 - r * (1 - r * second_order)
    result: Floats = _exponentials().take(whole) * taylor
    return result


LIGHT = 60.0
"""A cell with 2π²s² above this has q < 2^-86: it is not computed, only bounded."""
LIGHT_LOSS = 2.0**-84
_TERMS = 5
_TAYLOR = 14


def theta_nome(variance: Floats) -> Floats:
    """Return q = exp(-2π²s²) within a relative 2^-31, for 2π²s² up to `LIGHT`.

    >>> import numpy as np
    >>> round(float(theta_nome(np.array([0.25]))[0]), 6)
    0.007192
    """
    root = exp_minus(math.pi**2 / 2 * variance)
    square = root * root
    result: Floats = square * square
    return result


def theta_losses(numerator: Integers, denominator: Integers, q: Floats) -> Floats:
    """Return 1 - θ(c; q)/θ(0; q) = 2 Σ_k q^(k²) (1 - cos 2πkc)/θ(0; q) for c =
    numerator/denominator.

    Error below 2^-30 · 4q for q <= 0.3: five terms leave 4q^36; the cosine is a Taylor polynomial
    of degree 28 in 2πc, |c| <= 1/2, with remainder π^30/30! < 2^-57 and rounding below 2^-44;
    multiples of the angle by the recurrence of Chebyshev polynomials lose a factor 25; and q is
    within a relative 2^-31.

    >>> import numpy as np
    >>> one, two = np.array([1]), np.array([2])
    >>> (
    ...     float(theta_losses(0 * one, two, np.array([0.1]))[0]),
    ...     round(float(theta_losses(one, two, np.array([0.1]))[0]), 6),
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


def theta_ratio(centre: Fraction, variance: Fraction) -> RealBall:
    """Return a ball of θ(c; q)/θ(0; q) at the precision in force.

    >>> from semidp.promise.ball_arithmetic import precision
    >>> with precision(64):
    ...     float(theta_ratio(Fraction(3), Fraction(1, 4)))
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
