"""Group statistics and regressions are charged before noise is drawn, and refused past the
budget.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, BudgetExceeded, Ledger, Outcome, grouped
from semidp.promise.noise.randomness import SeededRandomness

RECORDS = {
    "ward": np.repeat(["a", "b"], 50),
    "days": np.arange(100) % 11,
    "cured": np.arange(100) % 2,
}
DAYS = Outcome("days", 0, 10, steps=10)  # type: ignore[arg-type]
MU = Budget.gdp(1)
CALLS: dict[str, Callable[..., Any]] = {
    "sums": lambda **kw: grouped.sums(RECORDS, DAYS, ["ward"], MU, **kw),
    "means": lambda **kw: grouped.means(RECORDS, DAYS, ["ward"], MU, **kw),
    "proportions": lambda **kw: grouped.proportions(RECORDS, "cured", ["ward"], MU, **kw),
    "linear": lambda **kw: grouped.linear_regression(RECORDS, DAYS, MU, factors=["ward"], **kw),
    "logistic": lambda **kw: grouped.logistic_regression(
        RECORDS, "cured", MU, factors=["ward"], **kw
    ),
}


class NeverAsked(SeededRandomness):
    """Fails if anything is drawn."""

    def words(self, n: int) -> Any:
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize("name", CALLS)
def test_charged_then_refused_before_any_noise(name: str, tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "ledger.json", MU)
    result = CALLS[name](ledger=book, randomness=SeededRandomness(1))
    total = book.total()
    assert total is not None
    assert total == result.guarantee
    with pytest.raises(BudgetExceeded):
        CALLS[name](ledger=book, randomness=NeverAsked(1))
    assert len(book.account().charges) == 1


def test_the_spread_is_charged_too(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "ledger.json", Budget.gdp(2))
    sums = grouped.sums(
        RECORDS, DAYS, ["ward"], MU, spread_budget=MU, ledger=book, randomness=SeededRandomness(1)
    )
    total = book.total()
    assert total is not None
    assert total.tradeoff == sums.guarantee.tradeoff
    assert sums.guarantee.tradeoff.implied_mu_squared() == 2
