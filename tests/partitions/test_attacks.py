"""Attacks on releases part by part: what failed once, and what held."""

from pathlib import Path

from semidp import Budget, Margin, Plan, Release, TableRequest, run_partitioned
from semidp.files import document_at
from semidp.release.recheck import disagreements
from tests.partitions.conftest import FEATURES


def sound(place: Path) -> bool:
    return disagreements(Release.load(place), document_at(place / "release.json")) == ()


def test_two_tables_that_are_alike_at_the_cut_have_files_of_their_own(people, tmp_path: Path) -> None:
    tables = [
        TableRequest(["tract", "sex"], Budget.gdp(1), name="a"),
        TableRequest(["county", "sex"], Budget.gdp(1), name="state-sex-overview"),
    ]
    release = run_partitioned(Plan(tables, ["state"], FEATURES), people, tmp_path / "release", "state")
    names = [table.name for result in release.partitioned for table in result.overview]
    assert names == ["state-sex", "state-sex-overview-overview"]
    assert sound(tmp_path / "release")


def test_a_table_that_exact_totals_fix_is_shown(people, tmp_path: Path) -> None:
    tables = [TableRequest(["tract", "sex"], Budget.gdp(1))]
    run_partitioned(Plan(tables, [Margin("tract", "sex")], FEATURES[:2]), people, tmp_path / "release", "state")
    assert sound(tmp_path / "release")
