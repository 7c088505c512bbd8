"""Budgets that are chosen from earlier results: what a ledger in (epsilon, delta) lets through."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.special import ndtr

from semidp.errors import Refused
from semidp.promise.accounting.account import fits
from semidp.promise.tradeoff.budget import Budget, approximate, gaussian, zcdp
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import Gaussian

Outcome = tuple[float, float]
MOST = 3  # releases


def list_outcomes(curve: Tradeoff) -> list[Outcome]:
    """Outcomes of a mechanism with this curve, each with its chance under two datasets."""
    if isinstance(curve, Gaussian):
        # a grid of outputs shows no more than the outputs themselves
        edges = np.concatenate([[-math.inf], np.linspace(-2, 3, 13), [math.inf]])
        under = np.diff(ndtr(edges)), np.diff(ndtr(edges - math.sqrt(curve.mu_squared)))
        return list(zip(*map(np.ndarray.tolist, under), strict=True))
    assert isinstance(curve, Approximate)
    epsilon, delta = float(curve.epsilon0), float(curve.delta0)
    likely = (1 - delta) / (1 + math.exp(-epsilon))
    rare = 1 - delta - likely
    return [(delta, 0.0), (likely, rare), (rare, likely), (0.0, delta)]


def find_worst_delta(
    spent: tuple[Tradeoff, ...],
    menu: Sequence[Tradeoff],
    allows: Callable[[Sequence[Tradeoff]], bool],
    epsilon: float,
    weight: Outcome = (1.0, 1.0),
) -> float:
    """The delta of whoever chooses each mechanism from all results before it, as far as a rule
    allows.
    """
    worst = max(weight[0] - math.exp(epsilon) * weight[1], 0.0)
    for curve in menu:
        if len(spent) < MOST and allows((*spent, curve)):
            after = 0.0
            for one, other in list_outcomes(curve):
                if one or other:
                    path = weight[0] * one, weight[1] * other
                    after += find_worst_delta((*spent, curve), menu, allows, epsilon, path)
            worst = max(worst, after)
    return worst


def fits_kindly(curves: Sequence[Tradeoff], budget: Budget) -> bool:
    try:
        return fits(curves, budget)
    except Refused:
        return False


@pytest.mark.parametrize(
    ("menu", "delta"),
    [
        ([approximate(1), approximate(0, "0.2")], "0.35"),
        ([approximate("0.5"), approximate("0.5", "0.1"), approximate(0, "0.2")], "0.2"),
        ([approximate("0.7"), gaussian("0.6"), gaussian("0.2")], "0.12"),
        ([gaussian("0.5"), approximate(0, "0.08")], "0.1"),
    ],
)
def test_budgets_chosen_from_results_never_exceed_epsilon_and_delta(menu, delta) -> None:
    """The twin composes curves: the first menu has 0.34 and 0.20 for fixed curves, 0.39 for
    chosen ones.
    """
    budget = Budget.approximate(1, delta)
    allowed: dict[tuple[Tradeoff, ...], bool] = {}
    composed: dict[tuple[Tradeoff, ...], bool] = {}

    def rule(curves: tuple[Tradeoff, ...]) -> bool:
        if curves not in allowed:
            allowed[curves] = fits_kindly(curves, budget)
        return allowed[curves]

    def twin(curves: tuple[Tradeoff, ...]) -> bool:
        if curves not in composed:
            composed[curves] = fits_kindly([compose(*curves)], budget)
        return composed[curves]

    assert find_worst_delta((), menu, rule, 1.0) <= float(budget.delta) * (1 + 1e-9)
    assert sum(allowed.values()) > 2
    exceeds = find_worst_delta((), menu, twin, 1.0) > float(budget.delta)
    # the twin is caught wherever a curve has a delta of its own
    assert exceeds == any(isinstance(curve, Approximate) and curve.delta0 for curve in menu)


def test_what_has_no_number_in_common_is_refused() -> None:
    budget = Budget.approximate(9, "1e-6")
    for curves, number in (
        ([approximate(1, "1e-7"), gaussian(1)], "epsilon and delta"),
        ([gaussian(1), approximate(1, "1e-7")], "mu"),
        ([zcdp("0.1"), approximate(1, "1e-7")], "rho"),
    ):
        with pytest.raises(Refused, match=f"adds up {number} of its releases"):
            fits(curves, budget)
    assert fits([zcdp("0.1"), gaussian("0.1"), approximate("0.1")], budget)
    assert fits([gaussian("0.1"), approximate("0.1")], budget)
    assert fits([compose(gaussian("0.1"), approximate("0.5")), gaussian("0.1")], budget)
