"""Costs of residuals of unit tables, worked out by hand from the bounds of docs/linked.md."""

from fractions import Fraction

import numpy as np
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.linked_products import UnitCosts
from semidp.promise.sensitivity.orthogonal_parts import Residuals
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace

PLACE = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")])
KIND = Feature("kind", "pqr")
GROUPED = Feature.from_paths(["group", "kind"], [("1", "p"), ("1", "q"), ("2", "r")])


def unit_costs(
    protect: str, members: str = "", units: tuple[str, ...] = (), kind: Feature = KIND
) -> UnitCosts:
    """Under exchange, with exact totals of members and units: units have a place, a tenure, a size
    of 1 to 3 and a kind, and members a place and a sex.
    """
    tenure = Feature("tenure", ["own", "rent"])
    persons = Table(Schema([PLACE, Feature("sex", "fm")]), np.full((4, 2), 54))
    homes = Table(Schema([PLACE, tenure, Feature("size", "123"), kind]), np.full((4, 2, 3, 3), 3))
    column = {"column": "home"} if protect == "unit" else {}
    public = LinkedDataspace.joining(
        Dataspace.from_table(persons, [Margin(members)] if members else []),
        Dataspace.from_table(homes, list(map(Margin, units))),
        Link(protect, 1, 3, ("size", "kind"), **column),
    )
    return UnitCosts(public, Residuals(homes.schema.grid), True)


def test_each_unit_that_changes_adds_its_length():
    """With sex exact 3 units change, each by a table of squared length 2 at most."""
    costs = unit_costs("member", "sex")
    assert costs.public.reach.exchanged_units == 3
    assert costs.cost((0, 0, 1, 0)) == costs.cost((0, 0, 0, 1)) == 3**2 * 2
    assert costs.cost((0, 1, 1, 0)) == 3**2 * 2 * Fraction(1, 2)  # half lies in the mean of tenures


def test_changes_of_two_derived_features_are_centered():
    """Two units change: with 3 sizes and 3 kinds a unit that changes its size alone keeps
    2 (2/3 · 2/3 + 1/3 · 2/3) of its squared length of 2.
    """
    assert unit_costs("member").cost((0, 0, 1, 1)) == 2**2 * Fraction(4, 3)


def test_a_derived_feature_below_its_first_depth_is_not_centered():
    costs = unit_costs("member", kind=GROUPED)
    assert costs.cost((0, 1, 0, 2)) == 2**2 * 2 * Fraction(1, 2)


@pytest.mark.parametrize(
    ("block", "depth", "bound"), [("state", 1, 10), ("county", 2, 10), ("county", 1, 18)]
)
def test_a_cell_tells_a_published_place_at_its_depth_or_below(block, depth, bound):
    costs = unit_costs("member", block)
    assert costs._sharper((depth, 0, 0, 1), frozenset({3})) == bound


def test_a_whole_unit_is_one_exchange_and_units_that_gain_or_lose_members():
    """Its own exchange moves two units, then up to 3 - 1 others change in size; or 3 for each exact
    total of members and one for its own members change in kind.
    """
    totals = ("county", "tenure")
    size = unit_costs("unit", "", totals).cost((0, 0, 1, 0))
    kind = unit_costs("unit", "sex", totals).cost((0, 0, 0, 1))
    assert (float(size), float(kind)) == pytest.approx(((1 + 2) ** 2 * 2, (1 + 6) ** 2 * 2))
