"""An outcome that is also an exact feature: an exchange hands it over, so that more values change
than the norms count.
"""

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.accounting.ledger import Ledger
from semidp.core.guarantee import Guarantee
from semidp.core.spaces.adjacency import Ball, Exchange
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.core.spaces.outcome_adjacency import outcome_exchange
from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.core.tradeoff.budget import Budget
from semidp.errors import Refused
from semidp.publishing.pipeline import run
from semidp.publishing.plan import Plan
from semidp.sources.contract import Outcome
from semidp.statistics.answered.answered_space import answered_space
from semidp.statistics.distribution.distribution_space import distribution_space
from semidp.statistics.outcomes.spaces import sum_space
from semidp.statistics.quantiles.exponential import PermuteAndFlip
from semidp.statistics.quantiles.ranks import rank_space

WARD = [Margin("ward")]
AGES = Outcome("age", 0, 2, steps=2)
# One record a ward and an age: whoever takes both needs two carriers.
PEOPLE = [("a", "0"), ("b", "1"), ("c", "2")]


def public(*margins: str) -> Dataspace:
    schema = Schema([Feature("ward", "abc"), Feature("age", "012")])
    counts = np.zeros(schema.shape, dtype=np.int64)
    for k in range(3):
        counts[k, k] = 1
    return Dataspace.of(Table(schema, counts), map(Margin, margins))


def most_replaced(dataspace: Dataspace) -> int:
    """The most ages that one exchange replaces in wards, by the definition."""
    exchange = Exchange.of(dataspace)
    before = Counter(PEOPLE)
    most = 0
    for after in exchange.neighbours(PEOPLE, dataspace):
        # wards keep their sizes, so that each age that leaves is replaced by one that comes
        most = max(most, (before - Counter(after)).total())
    return most


def test_handing_over_an_exact_age_replaces_a_third_value() -> None:
    alone = public("ward")
    claimed = rank_space(alone, outcome_exchange(alone), AGES, WARD).l1
    assert most_replaced(alone) == claimed == 2
    # The norm of two would be charged here, and three ages change.
    assert most_replaced(public("ward", "age")) == 3 > claimed


@pytest.mark.parametrize("space", [sum_space, rank_space, distribution_space, answered_space])
@pytest.mark.parametrize("column", ["age", "age=2"])
def test_it_is_refused_under_exchange_alone(space, column) -> None:
    both, outcome = public("ward", "age"), Outcome(column, 0, 2, steps=2)
    with pytest.raises(Refused, match="'age' of others"):
        space(both, outcome_exchange(both), outcome, WARD)
    under_ball = space(both, Ball(3), outcome, WARD)
    with pytest.raises(Refused):
        under_ball.under(outcome_exchange(both))
    space(public("ward"), outcome_exchange(public("ward")), outcome, WARD)


def test_a_ball_release_states_no_number_for_exchanges() -> None:
    records = {"ward": [w for w, _ in PEOPLE] * 9, "age": [int(y) for _, y in PEOPLE] * 9}
    median = semidp.median("age", by="ward", bounds=(0, 2))
    plan = Plan([median], ["ward"]).with_budget(semidp.Budget.gdp(1))
    release = run(plan, records)
    assert release.otherwise is not None  # ages are private
    beside = Plan(plan.requests, ["ward", "age"], [Feature("age", "012")])
    assert run(beside, records).otherwise is None


def test_a_ledger_counts_such_a_charge_for_all_records_that_change(tmp_path: Path) -> None:
    alone, both = public("ward"), public("ward", "age")
    budget = Budget.pure(1)
    drawn = PermuteAndFlip.calibrate(rank_space(alone, outcome_exchange(alone), AGES, WARD), budget)
    claimed = Guarantee(both, outcome_exchange(both), budget.tradeoff())
    book = Ledger.create(tmp_path / "ledger.json", Budget.pure(3))
    book.charge(claimed, "an earlier version", [drawn.record()])
    total = book.total()
    assert total is not None
    # three values of one choice each, where two were paid for
    assert total.tradeoff.implied_epsilon() == Fraction(3, 2)
    right = Ledger.create(tmp_path / "right.json", Budget.pure(3))
    right.charge(drawn.guarantee, "ages are private", [drawn.record()])
    held = right.total()
    assert held is not None
    assert held.tradeoff.implied_epsilon() == 1
