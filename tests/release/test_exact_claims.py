"""`--set claim=exact`: only mechanisms whose claim holds for the numbers that are drawn, and what that
costs.
"""

import json

import pytest

from semidp import Budget, InputError, Plan, Release, prepare, run
from semidp.cli import run as semidp
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.examples import two_way
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.recheck import disagreements
from semidp.publish.selection import available, choose, with_exact_claim

PEOPLE = {"sex": [*"ffmmfmfmfm"], "region": [*"nsnsnsnwwn"]}
BUDGETS = [Budget.pure(1), Budget.approximate(1, "1e-6"), Budget.zcdp("1/2"), Budget.gdp(1)]


def plan(budget, mechanism="auto", claim="exact"):
    return Plan(
        [TableRequest(["sex", "region"], budget, mechanism)], ["sex", "region"], claim=claim
    )


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_auto_takes_the_best_mechanism_with_an_exact_claim(budget):
    space, _ = two_way()
    best = with_exact_claim(choose(space, budget), budget)
    assert best.claim == "exact"
    exact = [
        mechanism.expected_l2
        for mechanism in available(space, budget)
        if mechanism.claim == "exact"
    ]
    assert best.expected_l2 <= min(exact) * (1 + 1e-9)
    (mechanism,) = prepare(plan(budget), PEOPLE).mechanisms
    assert mechanism.claim == "exact"


def test_there_are_ideal_claims_to_avoid():
    assert {kind.claim for kind in FOR_RELEASES} == {"exact", "ideal"}
    assert choose(two_way()[0], Budget.pure(1)).claim == "ideal"
    (mechanism,) = prepare(plan(Budget.pure(1), claim=None), PEOPLE).mechanisms
    assert mechanism.claim == "ideal"


def test_a_named_mechanism_with_an_ideal_claim_is_refused():
    with pytest.raises(
        InputError, match="asks for exact claims, and knorm noise makes an ideal one"
    ):
        prepare(plan(Budget.pure(1), "knorm"), PEOPLE)
    (mechanism,) = prepare(plan(Budget.pure(1), "laplace"), PEOPLE).mechanisms
    assert mechanism.name == "laplace"
    with pytest.raises(InputError, match='the claim "exact", or leave it out'):
        plan(Budget.pure(1), claim="ideal")


def test_a_plan_keeps_what_it_asks_for_and_a_release_is_held_to_it(tmp_path):
    asked = plan(Budget.pure(1))
    assert Plan.from_toml(asked.to_toml()) == asked
    assert 'claim = "exact"' in asked.to_toml()
    assert "claim" not in plan(Budget.pure(1), claim=None).to_json()
    done = run(asked, PEOPLE, SeededRandomness(1))
    done.save(tmp_path / "exact")
    document = json.loads((tmp_path / "exact" / "release.json").read_text())
    loaded = Release.load(tmp_path / "exact")
    assert disagreements(loaded, document) == ()
    other = run(plan(Budget.pure(1), claim=None), PEOPLE, SeededRandomness(1))
    from attrs import evolve

    said = disagreements(evolve(other, plan=asked), other.to_json())
    assert any("its plan asks for exact ones" in sentence for sentence in said)


def test_the_dry_run_says_it_first(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    file = tmp_path / "people.csv"
    rows = zip(PEOPLE["sex"], PEOPLE["region"], strict=True)
    file.write_text("sex,region\n" + "\n".join(map(",".join, rows)) + "\n")
    words = [
        "release",
        str(file),
        "--table",
        "sex,region",
        "--exact",
        "sex",
        "--exact",
        "region",
        "--epsilon",
        "1",
    ]
    assert semidp([*words, "--dry-run"]) == 0
    said = capfd.readouterr().out
    assert "with --set claim=exact: laplace" in said
    assert "ideal claim" in said
    assert semidp([*words, "--dry-run", "--format", "json"]) == 0
    (entry,) = json.loads(capfd.readouterr().out)["tables"]
    assert (entry["noise"]["claim"], entry["with_exact_claim"]["name"]) == ("ideal", "laplace")
    assert entry["with_exact_claim"]["expected_l2"] > entry["noise"]["expected_l2"]
    assert semidp([*words, "--dry-run", "--set", "claim=exact"]) == 0
    said = capfd.readouterr().out
    assert "with --set claim=exact" not in said
    assert "laplace for sex by region" in said
    assert (
        semidp(
            [
                *words,
                "--set",
                "claim=exact",
                "--set",
                "mechanism=knorm",
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 2
    )
    assert "makes an ideal one" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
