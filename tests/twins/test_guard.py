"""A release that would state too much is refused before anything is charged, with a pair."""

import re

import pytest

import semidp
from semidp.promise.sensitivity import costs, joint_costs
from semidp.promise.sensitivity import described_moves as exchange_moves
from tests.twins.test_teeth import CLAIMS, WRONG

RECORD = r"\([^()]+\) → \([^()]+\)"


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
