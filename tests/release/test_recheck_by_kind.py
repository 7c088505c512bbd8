"""What every result is rechecked for, whatever its kind: forged noise, missing lists, requests of
another kind.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from semidp import Budget, Feature, Outcome, Plan, Release, RunOptions, run
from semidp.assess import claims_of_release
from semidp.cli import run as run_command
from semidp.errors import InputError
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import QuantileRequest, TableRequest
from semidp.publish.recheck import recheck

PEOPLE = {"sex": [*"fmmf"] * 10, "region": [*"nsns"] * 10, "county": ["a1", "a2", "b1", "b1"] * 10}
COUNTIES = Feature.from_paths(
    ["state", "county"], [("A", "a1"), ("A", "a2"), ("B", "b1"), ("B", "b2")]
)


def document_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "release.json").read_text())
    return document


def forged(folder: Path, document: dict[str, Any]) -> tuple[str, ...]:
    """Write a changed release.json, and return what disagrees."""
    (folder / "release.json").write_text(json.dumps(document))
    (folder / "report.html").unlink(missing_ok=True)
    return recheck(Release.load(folder), document, folder).disagreements


def test_a_table_that_is_exact_has_no_scale(tmp_path: Path) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], [["sex", "region"]])
    run(plan, PEOPLE).save(tmp_path / "release")
    document = document_of(tmp_path / "release")
    document["tables"][0]["noise"]["scale"] = 2.0
    said = forged(tmp_path / "release", document)
    assert said == ("'table' states noise.scale 2.0, and 0.0 follows",)


@pytest.mark.parametrize("key", ["tables", "groups", "regressions"])
def test_a_list_that_every_release_has_is_missed(tmp_path: Path, key: str) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    run(plan, PEOPLE, SeededRandomness(1)).save(tmp_path / "release")
    document = document_of(tmp_path / "release")
    assert forged(tmp_path / "release", document) == ()
    del document[key]
    if key == "tables":  # which the plan asks for
        (tmp_path / "release" / "release.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match="is damaged"):
            Release.load(tmp_path / "release")
    else:
        assert forged(tmp_path / "release", document) == (f"it has no list of {key}",)


@pytest.mark.long
def test_a_table_is_read_of_a_request_for_one_alone(tmp_path: Path) -> None:
    """Tables that share a budget cannot be passed off as a table that has the noise of their
    residuals.
    """
    tables = [TableRequest(["sex", "region"]), TableRequest(["sex", "county"])]
    plan = Plan(tables, ["sex"], [COUNTIES, Feature("region", "ns")]).with_budget(Budget.gdp(1))
    run(plan, PEOPLE, SeededRandomness(1)).save(tmp_path / "release")
    document = document_of(tmp_path / "release")
    (entry,) = document.pop("products")
    document["tables"] = [{**entry, "features": ["sex", "region"]}]
    (tmp_path / "release" / "release.json").write_text(json.dumps(document))
    assert run_command(["show", str(tmp_path / "release")]) == 1


def test_an_audit_sees_less_noise_on_a_residual_of_tables_by_parts(tmp_path: Path) -> None:
    """The scale of the whole stays as it was: one residual below the largest is said to have less
    noise.
    """
    plan = Plan([TableRequest(["sex", "county"], Budget.gdp(1))], ["sex"], [COUNTIES])
    run(
        plan,
        PEOPLE,
        RunOptions(out=tmp_path / "release", randomness=SeededRandomness(1)),
        partition="state",
    )
    (claim,) = claims_of_release(Release.load(tmp_path / "release"))
    assert claim.faults == ()
    document = document_of(tmp_path / "release")
    residuals = document["partitioned"][0]["residuals"]
    least = min(
        residuals, key=lambda part: float(part["sigma2"]) if "/" not in part["sigma2"] else 0.0
    )
    least["sigma2"] = "1/100"
    (tmp_path / "release" / "release.json").write_text(json.dumps(document))
    (claim,) = claims_of_release(Release.load(tmp_path / "release"))
    assert claim.faults == ("it states less noise on a residual than its budget needs",)


@pytest.mark.parametrize("mechanism", ["auto", "selection", "distribution"])
def test_quantiles_that_name_how_they_are_found_agree_with_their_plan(
    tmp_path: Path, mechanism: str
) -> None:
    scores = {**PEOPLE, "score": [1, 4, 2, 9] * 10}
    request = QuantileRequest(Outcome("score", 0, 10, 10), [["sex"]], budget=Budget.gdp(1))
    plan = Plan([evolve(request, mechanism=mechanism)], invariants=["sex"])
    run(plan, scores).save(tmp_path / "release")
    assert forged(tmp_path / "release", document_of(tmp_path / "release")) == ()


def test_a_table_that_names_other_noise_than_it_has_disagrees(tmp_path: Path) -> None:
    request = TableRequest(["sex", "region"], Budget.gdp(1), mechanism="gaussian")
    run(Plan([request], ["sex", "region"]), PEOPLE).save(tmp_path / "release")
    document = document_of(tmp_path / "release")
    document["plan"]["table"][0]["mechanism"] = "laplace"
    assert any("its plan asks for" in said for said in forged(tmp_path / "release", document))
