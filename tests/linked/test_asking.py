"""Errors, weights and shares that linked tables are asked with; the prefix ``units:`` names tables
of units.
"""

import json
from fractions import Fraction

import numpy as np
import pytest

import semidp
from semidp.errors import InputError
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.plan import LinkedUnits, Plan
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.survey import with_units
from tests.linked.test_command import ASKED, command, files  # noqa: F401 - a fixture
from tests.linked.test_release import SEX, homes_and_persons


def plan_of(tables, shares=None, budget=None):
    asked = Plan(tables, ["units:zone"], [SEX], adjacency="exchange")
    plan = with_units(asked, LinkedUnits("home", "member", 6), shares)
    return plan if budget is None else plan.with_budget(budget)


def prepared(plan):
    return semidp.prepare(plan, LinkedData(*homes_and_persons()))


def largest_errors(mechanism):
    agreement = mechanism.agreement
    return [float(np.sqrt(agreement.variances(kind, 0).max())) for kind in (0, 1)]


@pytest.mark.few(2)
@pytest.mark.parametrize(("members", "units"), [(None, 4), (3, None), (3, 4), (20, 1)])
def test_the_least_budget_meets_the_errors_of_both_kinds(members, units):
    tables = [
        semidp.table("zone", "sex", target_error=members),
        semidp.table("units:zone", "size", target_error=units),
    ]
    ready = prepared(plan_of(tables))
    (request,), (mechanism,) = ready.plan.requests, ready.mechanisms
    errors = largest_errors(mechanism)
    targets = [
        target for target in zip(errors, (members, units), strict=True) if target[1] is not None
    ]
    assert all(error <= target for error, target in targets)
    # a budget that is a hundredth smaller does not
    less = prepared(
        plan_of(
            [semidp.table("zone", "sex"), semidp.table("units:zone", "size")], None, _less(request)
        )
    )
    fewer = largest_errors(less.mechanisms[0])
    assert any(
        error > target
        for error, target in zip(fewer, (members, units), strict=True)
        if target is not None
    )


def _less(request):
    return semidp.Budget.gdp(request.budget.mu * Fraction(99, 100))


@pytest.mark.parametrize(
    ("shares", "share"),
    [
        ({"units:tables": Fraction(3)}, Fraction(3, 4)),
        ({"tables": Fraction(3), "units:tables": Fraction(2)}, Fraction(2, 5)),
    ],
)
def test_shares_divide_the_budget_between_the_kinds(shares, share):
    tables = [semidp.table("zone", "sex"), semidp.table("units:zone", "size")]
    plan = plan_of(tables, shares, semidp.Budget.zcdp(1))
    assert plan.requests[0].unit_share == share
    assert Plan.from_toml(plan.to_toml()) == plan
    (mechanism,) = prepared(plan).mechanisms
    assert abs(float(mechanism.units.spent / mechanism.spent) - float(share)) < 1e-3
    assert mechanism.spent <= 2
    by_need = prepared(plan_of(tables, None, semidp.Budget.zcdp(1))).mechanisms[0]
    assert abs(float(by_need.units.spent / by_need.spent) - float(share)) > 0.05


def test_a_release_in_one_call_takes_shares_and_errors():
    persons, homes = homes_and_persons()
    chosen = {
        "units": homes,
        "link": "home",
        "protect": "member",
        "most_members": 6,
        "exact": ["units:zone"],
        "levels": {"sex": ["f", "m"]},
        "randomness": SeededRandomness(1),
    }
    tables = semidp.table("zone", "sex"), semidp.table("units:zone", "size")
    release = semidp.release(persons, *tables, **chosen, rho=1, share={"units:tables": 9})
    assert release.plan.requests[0].unit_share == Fraction(9, 10)
    found = semidp.release(
        persons, semidp.table("zone", "sex", target_error=2), tables[1], **chosen
    )
    assert found["zone-sex"].standard_errors.max() <= 2
    with pytest.raises(InputError, match="units:tables do"):
        semidp.release(persons, *tables, **chosen, rho=1, share={"units": 9})
    with pytest.raises(InputError, match="target error"):
        semidp.release(
            persons, semidp.table("zone", "sex", target_error=2), tables[1], **chosen, rho=1
        )


def test_plan_files_name_a_share_and_errors():
    document = plan_of(
        [semidp.table("zone", "sex"), semidp.table("units:zone", "size", target_error=3)]
    ).to_json()
    assert document["unit_table"][0]["target_error"] == "3"
    assert Plan.from_json(json.loads(json.dumps(document))).requests[0].has_targets
    for share in ("0", "1", "3/2"):
        with pytest.raises(InputError, match="between 0 and 1"):
            Plan.from_json({**document, "unit_share": share})
    with pytest.raises(InputError, match=r"give \[units\]"):
        Plan.from_json({"unit_share": "1/2"})


def test_the_command_takes_the_prefix(files, capsys):  # noqa: F811
    plain = f"--units homes.csv {ASKED}"
    code, out, err = command(f"{plain} --target-error units:zone,size,type=3 --out first", capsys)
    assert code == 0, err
    assert "the least for a standard error of 3 in units" in out
    plan = json.loads((files / "first" / "release.json").read_text())["plan"]
    assert "mu" in plan
    code, out, err = command(f"{plain} --set share=units:tables=3 --rho 1 --out second", capsys)
    assert code == 0, err
    assert "25% of the budget goes to members" in out
    (files / "plan.json").write_text(
        json.dumps({key: value for key, value in plan.items() if key != "mu"})
    )
    words = "--plan plan.json --units homes.csv"
    code, out, err = command(
        f"{words} --target-error units:zone,size,type=3 --target-error zone,sex,age=9 --dry-run",
        capsys,
    )
    assert code == 0, err
    assert "3 in units by zone" in out
    assert "9 in zone" in out
    for said, more in {
        "units:tables do": "--set share=unit=3 --rho 1",
        "no table that shares the budget": "--target-error units:zone=3",
        "keep one of them": "--target-error zone,sex,age=3 --set share=tables=2",
    }.items():
        code, _, err = command(f"{plain} {more} --out third", capsys)
        assert code == 2
        assert said in err


def test_a_notebook_shows_how_units_are_linked():
    tables = [semidp.table("zone", "sex"), semidp.table("units:zone", "size")]
    shown = plan_of(tables, None, semidp.Budget.zcdp(1))._repr_html_()
    assert "linked by home, 1 to 6 members each; one member is protected" in shown
    assert "exact units" in shown
