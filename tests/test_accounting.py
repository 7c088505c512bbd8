"""Conversions against 50-digit references: never more private than the truth, and within 1e-6 of
it.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.assess.events import renyi_delta
from semidp.errors import InputError
from semidp.promise import zcdp_epsilon_paper
from semidp.promise.ball_arithmetic import least
from semidp.promise.mechanisms.additive import mu_within, rho_within
from semidp.promise.tradeoff.budget import (
    Budget,
    approximate,
    approximate_group,
    gaussian,
    pure_to_gdp,
    zcdp,
)
from semidp.promise.tradeoff.function import Order, read_up

mpmath.mp.dps = 50
CLOSE = mpmath.mpf("1e-6")

strengths = st.fractions(Fraction(1, 1000), 20, max_denominator=1000).filter(lambda x: x > 0)
epsilons = st.fractions(0, 30, max_denominator=100)
deltas = st.integers(1, 40).map(lambda power: Fraction(1, 10**power))
few = settings(max_examples=40, deadline=None)


def big(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


def safe(claim: float, truth: mpmath.mpf) -> None:
    """A claim is at least the truth and at most 1e-6 more; the smallest float stands for anything
    smaller.
    """
    assert claim >= truth
    assert claim <= truth * (1 + CLOSE) or claim <= math.ulp(0.0)


def reference_gdp_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(120):
        return +(
            mpmath.ncdf(mu / 2 - epsilon / mu)
            - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        )


def reference_zcdp(rho: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    """Minimise the conversion over x by golden section on ln(x - 1), where it has one minimum."""

    def at(t: mpmath.mpf) -> mpmath.mpf:
        x = 1 + mpmath.exp(t)
        return rho * x + mpmath.log(1 / (x * delta)) / (x - 1) + mpmath.log(1 - 1 / x)

    low, high = mpmath.mpf(-20), mpmath.mpf(25)
    ratio = (mpmath.sqrt(5) - 1) / 2
    for _ in range(150):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return at((low + high) / 2)


def root(f: Callable[[mpmath.mpf], mpmath.mpf], low: mpmath.mpf, high: mpmath.mpf) -> mpmath.mpf:
    """Where a falling function crosses 0."""
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) > 0 else (low, middle)
    return high


def tight_epsilon(rho: Fraction, delta: Fraction) -> float:
    """The epsilon of the tight conversion alone; the curve of zCDP is sometimes better."""
    return read_up(least(lambda epsilon: zcdp(rho).conversion(Fraction(epsilon)) <= delta))


def test_the_census_numbers() -> None:
    assert round(tight_epsilon(Fraction("2.56"), Fraction("1e-10")), 4) == 17.1583
    assert round(tight_epsilon(Fraction("10.24"), Fraction("1e-10")), 4) == 39.8226
    assert round(zcdp_epsilon_paper("2.56", "1e-10"), 5) == 17.91528
    assert round(zcdp_epsilon_paper("10.24", "1e-10"), 5) == 40.95057
    assert zcdp("2.56").group(2).rho == Fraction("10.24")


@given(strengths, deltas)
@few
def test_zcdp_to_approximate(rho: Fraction, delta: Fraction) -> None:
    truth = reference_zcdp(big(rho), big(delta))
    claim = tight_epsilon(rho, delta)
    safe(claim, max(truth, mpmath.mpf(0)))
    assert zcdp(rho).epsilon(delta) <= claim <= zcdp_epsilon_paper(rho, delta)
    assert zcdp(rho).conversion(claim) <= delta


@given(strengths, deltas)
@few
def test_the_formula_of_the_paper(rho: Fraction, delta: Fraction) -> None:
    safe(
        zcdp_epsilon_paper(rho, delta),
        big(rho) + 2 * mpmath.sqrt(big(rho) * mpmath.log(1 / big(delta))),
    )


@given(strengths, epsilons)
@few
def test_gdp_profile(mu: Fraction, epsilon: Fraction) -> None:
    safe(gaussian(mu).delta(epsilon), reference_gdp_delta(big(mu), big(epsilon)))


@pytest.mark.long
@given(strengths, deltas)
@few
def test_gdp_to_approximate(mu: Fraction, delta: Fraction) -> None:
    claim = gaussian(mu).epsilon(delta)
    high = big(mu) * (big(mu) + 2 * mpmath.sqrt(mpmath.log(1 / big(delta))) + 2)
    with mpmath.workdps(80):
        truth = root(lambda e: reference_gdp_delta(big(mu), e) - big(delta), mpmath.mpf(0), high)
    if claim > 0:
        assert claim >= truth * (1 - mpmath.mpf("1e-40"))
        assert claim <= truth * (1 + CLOSE)


@given(st.fractions(Fraction(1, 10), 10, max_denominator=20), deltas)
@settings(max_examples=15, deadline=None)
def test_the_largest_parameters_for_a_target(epsilon: Fraction, delta: Fraction) -> None:
    budget = Budget.approximate(epsilon, delta)
    for found, curve in ((mu_within(budget), gaussian), (rho_within(budget), zcdp)):
        assert curve(found).delta(epsilon) <= delta
        assert curve(found * (1 + Fraction(1, 10**6))).delta(epsilon) > delta


@given(st.fractions(Fraction(1, 100), 40, max_denominator=100).filter(lambda x: x > 0))
@few
def test_pure_to_gdp(epsilon: Fraction) -> None:
    mu = pure_to_gdp(epsilon)
    truth = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(big(epsilon) / 2))
    safe(float(mu), truth)


def test_what_pure_implies_is_implied() -> None:
    for epsilon in ("0.1", "1", "4"):
        assert approximate(epsilon).compare(gaussian(pure_to_gdp(epsilon))) is Order.STRONGER
        # Bun and Steinke's exact constant
        tight = Fraction(epsilon) * Fraction(math.tanh(float(epsilon) / 2))
        assert approximate(epsilon).implied_rho() >= tight
    assert gaussian("1/3").implied_rho() == Fraction(1, 18)


@given(strengths, epsilons)
@few
def test_renyi_of_zcdp_is_never_tighter_than_zcdp(rho: Fraction, epsilon: Fraction) -> None:
    bounds = [(order, rho * order) for order in map(Fraction, ("1.5", 2, 4, 16))]
    assert renyi_delta(bounds, epsilon) >= zcdp(rho).conversion(epsilon)
    for order, value in bounds:
        bound = mpmath.exp(
            (big(order) - 1) * (big(value - epsilon) + mpmath.log(1 - 1 / big(order)))
        ) / big(order)
        safe(renyi_delta([(order, value)], epsilon), min(bound, mpmath.mpf(1)))


def test_groups() -> None:
    assert gaussian("1/2").group(3) == gaussian("3/2")
    epsilon, delta = approximate_group("1/2", "1e-6", 3)
    truth = (
        mpmath.mpf(10) ** -6
        * (mpmath.exp(mpmath.mpf("1.5")) - 1)
        / (mpmath.exp(mpmath.mpf("0.5")) - 1)
    )
    assert epsilon == Fraction(3, 2)
    safe(delta, truth)
    assert approximate_group(0, "1/4", 3) == (0, 0.75)
    assert approximate_group(5, "1/2", 9)[1] == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: zcdp(-1),
        lambda: zcdp(1).epsilon(2),
        lambda: gaussian("nan").delta(1),
        lambda: pure_to_gdp(-1),
    ],
)
def test_bad_input_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        wrong()
