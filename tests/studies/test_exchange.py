"""Exchange adjacency in the studies: the Census rows, and the loss against the number of exact
totals.
"""

import functools
from fractions import Fraction

import numpy as np
import pytest

from semidp import Dataspace, Exchange, Feature, Margin, Schema, Table, sensitivity_space
from semidp.applications import census_studies as census
from semidp.applications import promise_studies as exchange
from semidp.promise import zcdp_epsilon_paper

census_rows = functools.cache(census.compute_census)


@pytest.mark.parametrize(
    ("setting", "kind", "shown", "conditional"),
    [
        ("exchange", "exchange", "5.12", False),
        ("exchange by level", "exchange", "5.05", True),
        ("exchange by query", "exchange", "3.52", True),
        ("exchange, states fixed", "exchange", "2.70", True),
        ("ball, states fixed", "ball", "6.92", True),
    ],
)
def test_the_rows_of_the_census(setting: str, kind: str, shown: str, conditional: bool) -> None:
    (row,) = census_rows().where(setting=setting).records()
    assert Fraction(shown) - Fraction(1, 100) < row["rho"] <= Fraction(shown), "rounded up"
    assert (row["adjacency"], bool(row["condition"])) == (kind, conditional)
    assert row["epsilon_paper"] == zcdp_epsilon_paper(row["rho"], census.DELTA)
    assert row["epsilon_tight"] < row["epsilon_paper"]


def test_the_shares_add_up_and_each_cost_has_its_reason() -> None:
    levels = {level: share for level, share, _, _ in census.budget()}
    assert sum(levels.values()) == 1
    assert levels["Block_Group"] == Fraction(census.LEVELS["block group"], 4099)
    for level in levels:
        assert sum(part for name, _, _, part in census.budget() if name == level) == 1
    table = census.costs()
    assert all(table["reason"])
    assert sum(table["announced"]) == census.PERSONS
    assert {row["factor"] for row in table.where(level="US").records()} == {1}
    assert {row["factor"] for row in table.where(query="total").records()} == {1}
    for case in ({}, {"fixed": True}, {"fixed": True, "kind": "ball"}):
        by_level = census.costs_by_level(**case)
        assert sum(by_level["rho"]) == sum(census.costs(**case)["rho"])
        assert all(row["rho"] == row["factor"] * row["announced"] for row in by_level.records())


def test_the_factors_are_those_of_a_small_nation() -> None:
    """One record costs 2 in each query; an exchange 4 below the nation, 2 at it and in totals, 0 in
    what is exact.
    """
    places = Feature.from_paths(
        ["state", "block"], [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")]
    )
    schema = Schema([places, Feature("race", "xyz"), Feature("adult", "yn")])
    public = Dataspace.from_table(Table(schema, np.full(schema.shape, 9)), [Margin("state")])
    adjacency = Exchange.from_dataspace(public)
    squares = {
        names: sensitivity_space(public, adjacency, names).l2_squared
        for names in (
            ("state",),
            ("block",),
            ("race",),
            ("race", "adult"),
            ("state", "race"),
            ("block", "race", "adult"),
        )
    }
    assert list(squares.values()) == [0, 2, 2, 2, 4, 4]


def test_exchange_needs_at_least_half_the_variance_less_beside_unpublished_features() -> None:
    table = exchange.compute_exchange()
    for name in ("blocks and an unpublished feature", "the unpublished feature"):
        for q in range(1, 5):
            ball, other = table.where(table=name, q=q)["squares"]
            assert 2 <= ball / other <= 25
    assert table.where(table="the unpublished feature", q=3)["squares"] == [32, 2]
    assert table.where(table="blocks alone", q=2)["squares"] == [6, 6]
    assert all(row["exact"] for row in table.where(adjacency="exchange").records())
