"""The ledger is charged before any noise is drawn: of a table in one piece, and part by part."""

from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, Feature, Ledger, Plan, RunOptions, run
from semidp.errors import BudgetExceeded
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

PLACES = Feature.from_paths(
    ["state", "county"], [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")]
)
PLAN = Plan(
    [TableRequest(["county", "sex"], Budget.gdp(1))],
    invariants=["county"],
    features=[PLACES, Feature("sex", "fm")],
)
PEOPLE = {
    "state": [*"aabb"] * 10,
    "county": ["a1", "a2", "b1", "b2"] * 10,
    "sex": [*"fmmfm"] * 8,
}


class NeverAsked(SeededRandomness):
    """Fails if anything is drawn."""

    def words(self, count: int) -> Any:
        raise AssertionError("noise was drawn")

    def part(self, *names: str) -> "NeverAsked":
        return self


@pytest.mark.parametrize("partition", [None, "state"])
def test_the_charge_comes_before_the_noise(tmp_path: Path, partition: str | None) -> None:
    book = Ledger.create(tmp_path / "ledger.json", Budget.gdp(1))
    how = RunOptions(out=tmp_path / "release", ledger=book, randomness=NeverAsked(1))
    with pytest.raises(AssertionError, match="noise was drawn"):
        run(PLAN, PEOPLE, how, partition=partition)
    assert len(book.account().charges) == 1, "what was about to be drawn is paid for"
    how = RunOptions(out=tmp_path / "other", ledger=book, randomness=NeverAsked(1))
    with pytest.raises(BudgetExceeded):
        run(PLAN, PEOPLE, how, partition=partition)
    assert len(book.account().charges) == 1, "nothing is drawn that is not paid for"
