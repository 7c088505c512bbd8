"""A release that would state too much is refused before anything is charged, with a pair."""

import random
import re
from fractions import Fraction

import pytest

import semidp
from semidp.promise.sensitivity import costs, joint_costs
from semidp.promise.sensitivity import described_moves as exchange_moves
from semidp.promise.sensitivity.linked_products import MemberCosts, UnitCosts
from semidp.publish import claim_guard
from tests.twins.homes import Homes
from tests.twins.plans import FLAT
from tests.twins.test_teeth import CLAIMS, TENURE, WRONG
from tests.twins.town_plans import build_town_case, draw_town

RECORD = r"\([^()]+\) → \([^()]+\)"


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    """What is found does not depend on how busy the machine is."""
    monkeypatch.setattr(claim_guard, "_SECONDS", 60)


def test_residuals_are_searched_together(monkeypatch):
    """Each cost is right, and only what they save together is wrong."""
    data = {"sex": list("fm") * 10, "ward": list("aabbc") * 4, "ill": list("yyynn") * 4}
    asked = [semidp.table("sex", "ill"), semidp.table("ward", "ill"), semidp.table("sex", "ward")]
    options = {
        "exact": ["sex", "ward"],
        "levels": {"ill": ["y", "n"]},
        "adjacency": "exchange",
        "mu": 1,
    }
    assert semidp.release(data, *asked, **options).guarantee.tradeoff.mu == 1
    upper, worst = joint_costs.JointBound.upper, joint_costs.JointBound.worst

    def worst_halved(bound, tau):
        cost, slope = worst(bound, tau)
        return cost / 2, slope / 2

    monkeypatch.setattr(joint_costs.JointBound, "upper", lambda *given: upper(*given) / 2)
    monkeypatch.setattr(joint_costs.JointBound, "worst", worst_halved)
    with pytest.raises(semidp.Refused, match=f"hide less than is stated.*{RECORD}"):
        semidp.release(data, *asked, **options)


@pytest.mark.parametrize("item", CLAIMS)
def test_linked_members_are_searched_before_the_charge(item, monkeypatch):
    """Costs of issue 43, items 1a to 1c, as they were claimed: refused with a pair."""
    case = CLAIMS[item]()
    assert case.run(case.town, 1).document is not None
    monkeypatch.setattr(costs, "list_exchanges", WRONG[item](exchange_moves.list_exchanges))
    refused = case.run(case.town, 1)
    assert refused.document is None
    assert re.search(f"hide less than is stated.*{RECORD}", refused.refusal)


UNITS = {
    # protected, relation, tables of units, and the part of the true cost that is claimed
    "a member changes sizes": ("member", "exchange", ("units:size",), "9/10"),
    "members change sizes": ("member", "ball", ("units:size",), "3/5"),
    "a unit changes its tenure": ("unit", "ball", ("units:tenure",), "9/10"),
    "a unit changes its size": ("unit", "ball", ("units:size",), "1/4"),
    "a unit is exchanged": ("unit", "exchange", ("units:tenure", "units:size"), "1/8"),
}


@pytest.mark.parametrize("name", UNITS)
def test_units_are_searched_before_the_charge(name, monkeypatch):
    protect, relation, tables, part = UNITS[name]
    homes = Homes(
        *((TENURE[0],), (TENURE[1],), (("sex",),), (FLAT["sex"],), (), ()),
        *(1, 3, protect),
    )
    town = draw_town(random.Random(1), homes, 9)
    options = {"mu": 1, "share": {"tables": 1, "units:tables": 1000}}
    asked = [("sex", "tenure"), *((table,) for table in tables)]
    case = build_town_case(homes, town, relation, asked, options, f"linked {protect}")
    assert case.run(town, 1).document is not None
    right = UnitCosts.cost
    monkeypatch.setattr(UnitCosts, "cost", lambda *given: right(*given) * Fraction(part))
    refused = case.run(town, 1)
    assert refused.document is None
    assert re.search(f"hide less than is stated.*{RECORD}", refused.refusal)


def test_members_of_whole_units_are_searched_before_the_charge(monkeypatch):
    homes = Homes(
        *((TENURE[0],), (TENURE[1],), (("sex",),), (FLAT["sex"],), (), (), 1, 2, "unit"),
    )
    town = draw_town(random.Random(1), homes, 9)
    options = {"mu": 1, "share": {"tables": 1000, "units:tables": 1}}
    asked = [("sex", "tenure"), ("units:size",)]
    case = build_town_case(homes, town, "exchange", asked, options, "linked unit")
    assert case.run(town, 1).document is not None
    right = MemberCosts.cost
    monkeypatch.setattr(MemberCosts, "cost", lambda *given: right(*given) / 9)
    refused = case.run(town, 1)
    assert re.search(f"hide less than is stated.*{RECORD}", refused.refusal)


def test_places_with_units_and_no_members_are_not_drawn():
    """A true claim was refused: a drawn member lived where exact totals say that nobody does."""
    release = semidp.release(
        {"home": [1, 2], "job": ["y", "z"]},
        semidp.table("state", "tenure"),
        semidp.table("job", "state", "tenure"),
        semidp.table("units:state", "tenure"),
        units={
            "home": [0, 1, 2],
            "state": ["A", "B", "B"],
            "county": ["A1", "B1", "B1"],
            "tenure": ["own", "rent", "rent"],
        },
        link="home",
        protect="member",
        most_members=1,
        least=0,
        nest=["state", "county"],
        levels={"job": ["x", "y", "z"]},
        levels_from_data=True,
        exact=["county", "job", ("units:county", "units:tenure")],
        adjacency="exchange",
        mu=1,
    )
    assert release.guarantee.tradeoff.mu == 1
