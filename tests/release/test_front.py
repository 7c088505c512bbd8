"""The front door: one call does what a plan does, and says what an existing release guarantees."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp as sd
from semidp.errors import SchemaError
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.statistics.outcomes.noise_law import Confidence

PEOPLE = {
    "sex": [*"fmfmf"] * 8,
    "region": [*"nnsss"] * 8,
    "age": [3, 20, 40, 70, 90] * 8,
    "income": [0, 10, 20, 30, 40] * 8,
    "cured": [0, 1, 0, 1, 1] * 8,
}


def released(*requests: Any, **options: Any) -> sd.Release:
    return sd.release(PEOPLE, *requests, randomness=SeededRandomness(1), **options)


def test_it_is_the_release_of_the_plan_that_the_options_describe() -> None:
    front = released(
        sd.table("sex", "region"),
        sd.table("sex", "age"),
        sd.mean("income", by="region", bounds=(0, 100)),
        exact=["sex", "region"],
        bins={"age": [0, 18, 65, 120]},
        mu=1,
    )
    half = sd.Budget.gdp(1).share(sd.Budget.gdp(1).mu / 2)
    tables = [sd.publish.TableRequest(["sex", "region"]), sd.publish.TableRequest(["sex", "age"])]
    plan = sd.Plan(
        [
            sd.publish.TablesRequest(tables, half),
            sd.publish.GroupRequest(
                "mean", sd.Outcome("income", 0, 100, 1_000_000), [["region"]], half
            ),
        ],
        invariants=["sex", "region"],
        features=[sd.Feature("age", bins=(0, 18, 65, 120))],
    )
    by_hand = sd.run(plan, PEOPLE, SeededRandomness(1))
    assert front.plan == plan
    for name in ("sex-region", "sex-age", "mean-income"):
        assert front[name].to_dict() == by_hand[name].to_dict()
    assert front["sex-region"].counts.sum(axis=1).tolist() == [24, 16]
    assert "What is protected" in str(front.guarantee.explain())


@pytest.mark.parametrize(
    ("request_", "name", "kind"),
    [
        (sd.table("sex", "region"), "table", sd.publish.TableRequest),
        (
            sd.mean("income", by=("sex", "region"), bounds=(0, 100)),
            "mean-income",
            sd.publish.GroupRequest,
        ),
        (
            sd.total("income", by=sd.each("sex", "region"), bounds=(0, 100)),
            "sum-income",
            sd.publish.GroupRequest,
        ),
        (sd.proportion("cured", by="sex"), "proportion-cured", sd.publish.GroupRequest),
        (
            sd.median("income", by="sex", bounds=(0, 100)),
            "median-income",
            sd.publish.QuantileRequest,
        ),
        (
            sd.quantile("income", 0.25, 0.75, by="sex", bounds=(0, 100)),
            "quantiles-income",
            sd.publish.QuantileRequest,
        ),
        (
            sd.regression("income", on=("sex", "region"), bounds=(0, 100)),
            "regression-income",
            sd.publish.RegressionRequest,
        ),
        (sd.logistic("cured", on="sex"), "regression-cured", sd.publish.RegressionRequest),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_every_request_can_be_asked_for(request_: Any, name: str, kind: type) -> None:
    assert isinstance(request_, kind)
    assert request_.name == name
    assert request_.budget is None
    done = released(request_, exact=["sex", "region"], rho=1)
    assert [result.name for result in done.results] == [name]
    assert done.results[0].guarantee.tradeoff.rho <= 1


def test_one_list_is_several_margins_and_one_tuple_is_a_joint_one() -> None:
    done = released(
        sd.table("sex", "region", "age"),
        exact=["sex", ("sex", "region")],
        bins={"age": [0, 65, math.inf]},
        mu=1,
    )
    assert done.scope.dataspace.margins == (sd.Margin("sex", "region"),)
    done = released(sd.total("income", by=sd.each("sex", ("sex", "region")), bounds=(0, 100)), mu=1)
    assert done.plan.invariants == (sd.Margin("sex"), sd.Margin("sex", "region"))


def test_shares_divide_the_budget() -> None:
    mean = sd.mean("income", by="region", bounds=(0, 100), confidence=Confidence("0.9"))
    done = released(sd.table("sex"), mean, levels={"sex": ["f", "m"]}, rho=1, share={"tables": 3})
    assert [float(request.budget.rho) for request in done.plan.requests if request.budget] == [
        0.75,
        0.25,
    ]
    with pytest.raises(sd.InputError, match="tables, mean-income do"):
        released(sd.table("sex"), mean, levels={"sex": ["f", "m"]}, rho=1, share={"means": 3})


def test_a_missing_level_is_refused_in_the_sentence_of_the_command() -> None:
    with pytest.raises(SchemaError, match="the levels of sex are not public: declare them"):
        released(sd.table("sex"), mu=1)
    assert released(sd.table("sex"), mu=1, levels_from_data=True).scope.disclosures


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "has no privacy budget"),
        ({"mu": 1, "rho": 1}, "rho= and mu= cannot be given together"),
        ({"mu": 1, "partition": "state"}, "name its folder with out="),
        ({"mu": 1, "levels": {"age": ["1"]}, "bins": {"age": [0, 1]}}, "levels and bins"),
        ({"mu": 1, "null_level": {"sex": "?"}}, "null_level= needs the levels of 'sex'"),
    ],
)
def test_slips_are_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(sd.InputError, match=sentence):
        released(sd.table("sex", "region"), exact=["sex", "region"], **options)


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(sd.InputError, match="not for 'sex'"):
        released("sex", exact=["sex"], mu=1)


def test_it_writes_and_charges(tmp_path: Path) -> None:
    ledger = tmp_path / "privacy.json"
    sd.Ledger.create(ledger, sd.Budget.gdp(2))
    done = released(
        sd.table("sex", "region"),
        exact=["sex", "region"],
        mu=1,
        ledger=ledger,
        out=tmp_path / "out",
    )
    again = sd.Release.load(tmp_path / "out")
    assert np.array_equal(again["sex-region"].counts, done["sex-region"].counts)
    assert len(sd.Ledger(ledger).account().charges) == 1


def test_parts_of_a_nested_feature(tmp_path: Path) -> None:
    people = {"state": [*"aabb"] * 9, "county": ["a1", "a2", "b1", "b1"] * 9, "sex": [*"fmfm"] * 9}
    done = sd.release(
        people,
        sd.table("county", "sex"),
        exact=["county"],
        nest=("state", "county"),
        levels={"sex": ["f", "m"]},
        mu=1,
        out=tmp_path / "out",
        partition="state",
    )
    assert done.part("a")["table"].counts.sum(axis=1).tolist() == [9, 9]


def test_what_holds_groups_the_claim_by_a_of_t() -> None:
    totals = {"sex": {"f": 3, "m": 2}, "region": {"n": 3, "s": 2}}
    found = sd.what_holds(epsilon=1, delta=1e-6, exact=totals)
    assert found.adjacency.a == 3
    assert found.tradeoff == sd.promise.approximate(1, "1e-6").group(3)
    joint = sd.what_holds(
        rho="2.56", exact={("state", "sex"): {("a", "f"): 5, ("a", "m"): 5, ("b", "f"): 5}}
    )
    assert (joint.adjacency.a, float(joint.tradeoff.rho)) == (2, 10.24)
    exchange = sd.what_holds(mu=1, exact=totals, adjacency="exchange")
    assert isinstance(exchange.adjacency, sd.Exchange)
    with pytest.raises(sd.InputError, match="what the release states"):
        sd.what_holds(exact=totals)
    with pytest.raises(sd.InputError, match="a whole count"):
        sd.what_holds(mu=1, exact={"sex": {"f": 1.5}})


def test_statistics_have_names_that_differ() -> None:
    two = [sd.mean("age", by=by, bounds=(0, 99)) for by in ("sex", "region")]
    third = sd.median("age", by="sex", bounds=(0, 99), name="middle")
    done = released(*two, third, mu=1)
    assert [result.name for result in done.results] == ["mean-age", "mean-age-by-region", "middle"]
