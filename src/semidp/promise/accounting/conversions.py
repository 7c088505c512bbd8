"""From one way of stating a guarantee to another: zCDP, GDP, pure and approximate DP, and what
groups cost in each.

Every number is rounded so that it claims less privacy than is true: epsilons, deltas and implied
parameters up, parameters that must be good enough for a target down. Rényi curves are in renyi,
ledgers in ledger.
"""

import math
from fractions import Fraction

from semidp.promise.ball_arithmetic import RealBall, ball, least, round_ball_up, sharp
from semidp.promise.exact import Number, nonnegative
from semidp.promise.tradeoff.curves import approximate, zcdp
from semidp.promise.tradeoff.function import proportion, read_up
from semidp.promise.tradeoff.polygons import Approximate


def zcdp_epsilon(rho: Number, delta: Number) -> float:
    """Return the epsilon at which rho-zCDP implies (epsilon, delta)-DP, by the tight conversion,
    rounded up.

    ``inf over x > 1 of rho x + ln(1/(x delta))/(x-1) + ln(1 - 1/x)`` (Canonne, Kamath and Steinke
    2020). For deltas near 1 the curve ``zcdp(rho)`` gives a little more.

    >>> round(zcdp_epsilon("2.56", "1e-10"), 4), round(zcdp_epsilon("10.24", "1e-10"), 4)
    (17.1583, 39.8226)
    """
    curve, target = zcdp(rho), proportion(delta, "delta")
    if curve.is_trivial or target == 1:
        return 0.0
    if target == 0:
        return math.inf
    return read_up(least(lambda epsilon: curve.conversion(Fraction(epsilon)) <= target))


def zcdp_epsilon_paper(rho: Number, delta: Number) -> float:
    """Return ``rho + 2 sqrt(rho ln(1/delta))``, the conversion that the paper uses (Bun and Steinke
    2016), rounded up.

    >>> (
    ...     round(zcdp_epsilon_paper("2.56", "1e-10"), 5),
    ...     round(zcdp_epsilon_paper("10.24", "1e-10"), 5),
    ... )
    (17.91528, 40.95057)
    """
    r, d = nonnegative(rho, "rho"), proportion(delta, "delta")
    if r == 0:
        return 0.0
    if d == 0:
        return math.inf

    def paper_epsilon() -> RealBall:
        log_inverse = ball(1 / d).log()
        return ball(r) + 2 * (ball(r) * log_inverse).sqrt()

    return round_ball_up(sharp(paper_epsilon))


def zcdp_delta(rho: Number, epsilon: Number) -> float:
    """Return the delta at which rho-zCDP implies (epsilon, delta)-DP, rounded up.

    >>> zcdp_delta("2.56", zcdp_epsilon("2.56", "1e-10")) <= 1e-10
    True
    """
    curve, e = zcdp(rho), nonnegative(epsilon, "epsilon")
    return 0.0 if curve.is_trivial else curve.conversion(e)


def pure_to_gdp(epsilon: Number) -> Fraction:
    """Return the mu that pure epsilon-DP implies, ``2 Phi^-1(e^eps/(1 + e^eps))``, rounded up.

    The curve of pure DP has one inner corner; a Gaussian curve through it lies below the two
    chords.

    >>> from semidp.promise.tradeoff.curves import gaussian
    >>> mu = pure_to_gdp(1)
    >>> round(float(mu), 5), approximate(1).compare(gaussian(mu)).name
    (1.23204, 'STRONGER')
    """
    e = nonnegative(epsilon, "epsilon")
    if not e:
        return Fraction(0)

    def mu() -> RealBall:
        # 2 Phi^-1(p) is 2 sqrt(2) erfinv(2p - 1), and 2p - 1 is tanh(eps/2): no digits cancel.
        advantage = (ball(e) / 2).tanh()
        return 2 * ball(2).sqrt() * advantage.erfinv()

    return Fraction(round_ball_up(sharp(mu)))


def approximate_group(epsilon: Number, delta: Number, k: int) -> tuple[Fraction, float]:
    """Return ``(k eps, delta (e^{k eps} - 1)/(e^eps - 1))`` for groups of k records, the delta
    rounded up.

    One point of the curve ``approximate(epsilon, delta).group(k)``, which says more.

    >>> approximate_group(1, 0, 3)
    (Fraction(3, 1), 0.0)
    """
    curve: Approximate = approximate(epsilon, delta).group(k)
    total = curve.epsilon0 * curve.size
    step, d = curve.epsilon0, curve.delta0
    # The quotient tends to k as epsilon goes to 0, where it would divide zero by zero.
    if step == 0 or d == 0:
        return total, min(round_ball_up(ball(d * curve.size)), 1.0)

    def group_delta() -> RealBall:
        return ball(d) * ball(total).expm1() / ball(step).expm1()

    return total, min(round_ball_up(sharp(group_delta)), 1.0)
