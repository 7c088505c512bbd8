"""What budgets are: their curves, their sums and their limits. Each case kills a mutant that other
tests left alive.
"""

from fractions import Fraction

import pytest

from semidp import Budget, InputError
from semidp.promise.tradeoff.budget import MOST
from semidp.promise.tradeoff.smooth import Gaussian


@pytest.mark.parametrize("mu", ["1/2", "3", "1/10"])
def test_the_curve_of_a_gaussian_budget_has_its_mu(mu: str) -> None:
    curve = Budget.gdp(mu).tradeoff()
    assert isinstance(curve, Gaussian)
    assert curve.mu_squared == Fraction(mu) ** 2


def test_deltas_that_add_up_to_one_are_no_budget() -> None:
    half = Budget.approximate(1, "1/2")
    assert Budget.sum_budgets([half, half]) is None
    less = Budget.sum_budgets([half, Budget.approximate(1, "1/4")])
    assert less is not None
    assert (less.epsilon, less.delta) == (2, Fraction(3, 4))


def test_the_largest_budget_is_one() -> None:
    assert Budget.pure(MOST).epsilon == MOST
    with pytest.raises(InputError, match="at most 1e15"):
        Budget.pure(MOST + 1)
