"""Vectors of the curves against 200-bit balls: never above the truth, and close to it.

Mutants of rounding slack survived all other tests: a slack with the wrong sign claims a few units
in the last place too much, which only an exact value shows.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from semidp.errors import InputError
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import LARGEST, SMALLEST
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian, Laplace

pytestmark = [pytest.mark.long, pytest.mark.mutants]
MUS = [Fraction(1, 1000), Fraction(1, 30), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(12)]
RHOS = [
    Fraction(1, 10**9),
    Fraction(1, 10**6),
    Fraction(1, 100),
    Fraction(1, 2),
    Fraction(2),
    Fraction(30),
]
EPSILONS = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(4), Fraction(20)]


@pytest.fixture(autouse=True)
def _digits():  # type: ignore[no-untyped-def]
    before, ctx.prec = ctx.prec, 200
    yield
    ctx.prec = before


def exact(number: float | Fraction) -> arb:
    value = Fraction(number)
    return arb(value.numerator) / value.denominator


def normal_tail(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def check_deltas(claimed: np.ndarray, true: list[arb], relative: float, absolute: float) -> None:
    """No delta is below the truth, and none is far above it."""
    for value, truth in zip(claimed.tolist(), true, strict=True):
        assert exact(value) >= truth or exact(value).overlaps(truth) or truth < 1e-300
        assert value <= float(truth.mid()) * (1 + relative) + absolute


def check_values(
    claimed: np.ndarray, alphas: np.ndarray, find: Callable[[arb], arb], relative: float
) -> None:
    """No value is above the truth, and none is far below it."""
    for value, alpha in zip(claimed.tolist(), alphas.tolist(), strict=True):
        truth = find(exact(alpha))
        assert exact(value) <= truth or exact(value).overlaps(truth)
        assert value >= float(truth.mid()) * (1 - relative) - 1e-12


@pytest.mark.parametrize("mu", MUS)
def test_deltas_of_gaussian_curves(mu: Fraction) -> None:
    ends = float(mu) * (30 + float(mu) / 2)
    epsilons = np.concatenate([np.linspace(0, ends, 400), np.geomspace(1e-6, ends, 100)])
    size, true = exact(mu), []
    for epsilon in map(exact, epsilons.tolist()):
        first, second = epsilon / size - size / 2, epsilon / size + size / 2
        true.append(normal_tail(first) - epsilon.exp() * normal_tail(second))
    check_deltas(Gaussian(mu**2)._deltas(epsilons), true, 1e-9, 1e-13)


@pytest.mark.parametrize("epsilon0", EPSILONS)
def test_deltas_and_values_of_laplace_curves(epsilon0: Fraction) -> None:
    curve, size = Laplace(epsilon0), exact(epsilon0)
    epsilons = np.linspace(0, float(epsilon0) * 1.1, 300)
    true = []
    for epsilon in map(exact, epsilons.tolist()):
        true.append(arb(0) if epsilon >= size else -(((epsilon - size) / 2).expm1()))
    check_deltas(curve._deltas(epsilons), true, 1e-13, 1e-15)
    shrink = (-size).exp()

    def find(alpha: arb) -> arb:
        if alpha <= arb(1) / 2:
            return shrink * alpha
        gap = 1 - alpha
        return shrink / (4 * gap) if gap >= shrink / 2 else 1 - gap / shrink

    near_one = 1 - float(epsilon0) * np.geomspace(1e-9, 1e-2, 50) * math.exp(-float(epsilon0))
    alphas = np.concatenate([np.linspace(0, 1, 401), near_one, [0.5, 1.0]])
    check_values(curve._values(alphas), alphas, find, 1e-14)


@pytest.mark.parametrize("rho", RHOS)
def test_values_of_zcdp_curves(rho: Fraction) -> None:
    root = exact(rho).sqrt()

    def find(alpha: arb) -> arb:
        if alpha == 0 or alpha == 1:
            return alpha
        rare = (-(((-alpha.log()).sqrt() + root) ** 2)).exp()
        gap = (-(-alpha).log1p()).sqrt() - root
        common = -((-(gap * gap)).expm1()) if gap > 0 else arb(0)
        return rare if rare > common else common

    alphas = np.concatenate([np.geomspace(1e-12, 0.5, 150), 1 - np.geomspace(1e-12, 0.5, 150)])
    check_values(ZCDP(rho)._values(alphas), alphas, find, 1e-8)


@pytest.mark.parametrize("rho", RHOS)
def test_deltas_of_zcdp_curves_are_those_of_the_best_order(rho: Fraction) -> None:
    """Any order gives a valid bound: none may be below the least, and the vectors are close to it."""
    curve, size = ZCDP(rho), exact(rho)
    epsilons = np.linspace(float(rho), float(rho) + 2 * math.sqrt(float(rho) * 60), 60)
    claimed = curve._deltas(epsilons)
    for epsilon, value in zip(epsilons.tolist(), claimed.tolist(), strict=True):
        least = find_least_bound(size, exact(epsilon))
        kink = curve._kink.delta(Fraction(epsilon))
        wanted = min(float(least.mid()), kink)
        assert value >= wanted * (1 - 1e-15)  # a difference of logarithms once lost 4e-13
        assert value <= wanted * (1 + 1e-6)


def find_least_bound(rho: arb, epsilon: arb) -> arb:
    """The least of exp((x - 1)(rho x - epsilon)) (1 - 1/x)^(x - 1) / x over x > 1."""

    def logarithm(x: arb) -> arb:
        return (x - 1) * (rho * x - epsilon) + (x - 1) * (1 - 1 / x).log() - x.log()

    low, high = arb("1e-9"), arb("1e9")  # of x - 1, on a logarithmic scale
    for _ in range(120):
        ratio = (high / low).log() / 3
        first, second = low * ratio.exp(), high * (-ratio).exp()
        if logarithm(1 + first).mid() < logarithm(1 + second).mid():
            high = second.mid()
        else:
            low = first.mid()
    return logarithm(1 + low).exp()


@pytest.mark.parametrize("size", [Fraction(1, 3), Fraction(2), Fraction(20)])
def test_tables_of_curves_end_where_deltas_leave_the_range_of_floats(size: Fraction) -> None:
    for curve in (Gaussian(size**2), ZCDP(size)):
        last = float(curve._deltas(curve._landmarks()[-1:])[0])
        assert 0 < last < 1e-250, curve
    marks = Laplace(size)._landmarks()
    assert marks.min() >= 0
    assert (marks[-2], marks[-1]) == (
        pytest.approx(float(size)),
        pytest.approx(2 * float(size) + 1),
    )


def test_the_smallest_and_the_largest_mu_are_taken_and_none_beyond() -> None:
    for square in (SMALLEST**2, LARGEST**2):
        assert Gaussian(square).mu_squared == square
    for square in (SMALLEST**2 / 4, SMALLEST / 10**101, LARGEST**2 * 4):
        with pytest.raises(InputError, match="mu must be"):
            Gaussian(square)


def test_a_laplace_curve_beyond_floats_claims_nothing_but_its_end() -> None:
    alphas = np.array([0.0, 0.5, 1.0])
    assert Laplace(Fraction(800))._values(alphas).tolist() == [0.0, 0.0, 1.0]
    assert Laplace(Fraction(2)).delta(2) == 0


def test_keys_of_budgets_name_their_kind() -> None:
    assert Budget.from_plan_keys({"rho": "1/2"}) == Budget.zcdp("1/2")
    assert Budget.from_plan_keys({"mu": 2}) == Budget.gdp(2)
