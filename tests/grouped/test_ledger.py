"""Group statistics and regressions are charged before noise is drawn, and refused past the
budget.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp as sd
from semidp.promise.noise.randomness import SeededRandomness

RECORDS = {
    "ward": np.repeat(["a", "b"], 50),
    "days": np.arange(100) % 11,
    "cured": np.arange(100) % 2,
}
ASKED = {
    "sums": sd.total("days", by="ward", bounds=(0, 10), step=1),
    "means": sd.mean("days", by="ward", bounds=(0, 10), step=1),
    "proportions": sd.proportion("cured", by="ward"),
    "medians": sd.median("days", by="ward", bounds=(0, 10), step=1),
    "distributions": sd.distribution("days", by="ward", bounds=(0, 10), step=1),
    "linear": sd.regression("days", on="ward", bounds=(0, 10), step=1),
    "logistic": sd.logistic("cured", on="ward"),
}


class NeverAsked(SeededRandomness):
    """Fails if anything is drawn."""

    def words(self, n: int) -> Any:
        raise AssertionError("noise was drawn")


@pytest.mark.parametrize("name", ASKED)
def test_charged_then_refused_before_any_noise(name: str, tmp_path: Path) -> None:
    book = sd.Ledger.create(tmp_path / "ledger.json", sd.Budget.gdp(1))
    result = sd.release(RECORDS, ASKED[name], mu=1, ledger=book, randomness=SeededRandomness(1))
    total = book.total()
    assert total is not None
    assert total == result.guarantee
    with pytest.raises(sd.BudgetExceeded):
        sd.release(RECORDS, ASKED[name], mu=1, ledger=book, randomness=NeverAsked(1))
    assert len(book.account().charges) == 1
