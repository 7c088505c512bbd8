"""What version 0.1 wrote stays readable: golden folders, made before the redesign and never made
again.
"""

from pathlib import Path

import pytest

import semidp
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.plain_reading import read_document
from semidp.promise.schema.schema import Schema
from semidp.publish.rechecking.release_check import recheck

GOLDEN = Path(__file__).parent / "version_0_1"

RELEASES = {
    "release_gdp": ("μ = 0.5 (Gaussian DP)", 3, ["table"], []),
    "release_zcdp": ("0.5-zCDP", 3, ["table"], []),
    "release_schema": ("pure 1-DP", 2, ["table"], []),
    "release_groups": ("pure 1-DP", 2, [], ["mean-age"]),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_version_0_1_loads_and_says_the_same(name: str) -> None:
    from semidp.publish.results.texts import name_tradeoff

    claim, a, tables, groups = RELEASES[name]
    release = semidp.Release.load(GOLDEN / name)
    assert name_tradeoff(release.guarantee.tradeoff) == claim
    assert release.guarantee.adjacency == semidp.Ball(a)
    assert [table.name for table in release.tables] == tables
    assert [group.name for group in release.groups] == groups
    assert release.private


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_version_0_1_agrees_and_what_is_believed_of_it_is_listed(name: str) -> None:
    found = recheck(
        semidp.Release.load(GOLDEN / name),
        read_document(GOLDEN / name / "release.json"),
        GOLDEN / name,
    )
    assert found.disagreements == ()
    believed = {field for trust in found.trusted for field in trust.fields}
    assert "report.html" in believed, "another version words it otherwise"
    assert ("groups.comparisons.p_value" in believed) == (name == "release_groups"), (
        "it compared means otherwise"
    )


def test_the_digest_of_a_dataspace_has_not_changed() -> None:
    assert (
        semidp.Release.load(GOLDEN / "release_gdp").scope.dataspace.digest
        == "563286c2dd82523635c547bbdc9fd2d014f6aa599282572c265ad2d37a64c8cc"
    )
    assert (
        semidp.Guarantee.load(GOLDEN / "guarantee.json").dataspace.digest
        == "f7674dfe12a71ca36b8e0b5004d1c5c6e6f1c3b621fb1b0d35e066622bfe9b87"
    )


def test_a_guarantee_with_its_side_file_loads() -> None:
    guarantee = semidp.Guarantee.load(GOLDEN / "guarantee.json")
    assert guarantee.adjacency.a == 3
    assert guarantee.tradeoff == semidp.gaussian("1/2")
    assert guarantee.dataspace.value(semidp.Margin("place", "sex")).counts.shape == (2100, 2)
    assert semidp.Guarantee.load(GOLDEN / "guarantee_described.json").tradeoff == semidp.zcdp(
        "10.24"
    )


def test_a_plan_and_a_schema_of_version_0_1_load() -> None:
    plan = semidp.Plan.from_toml((GOLDEN / "plan.toml").read_text())
    assert plan.tables[0].features == ("gender", "admit", "dept")
    assert plan.requests[0].budget == semidp.Budget.gdp("1/2")
    schema = Schema.from_toml((GOLDEN / "schema.toml").read_text())
    # the last edge of a schema file ends the last bin since 0.3: two bins and the null level
    assert schema.shape == (2, 3)
    assert len(schema.structural_zeros) == 1


def test_a_ledger_of_version_0_1_loads() -> None:
    ledger = Ledger(GOLDEN / "ledger.json")
    total = ledger.total()
    assert total is not None
    assert total.tradeoff == semidp.zcdp("1/2")
    assert [charge.label for charge in ledger.account().charges] == ["table"]
