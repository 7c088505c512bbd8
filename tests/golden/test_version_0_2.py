"""What version 0.2 wrote before its statistics were cut into folders stays readable.

The folders were made by the tree of 648417a6 from 600 drawn records, and are never made again.
"""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.accounting.ledger import Ledger
from semidp.output.columns import equal_numbers
from semidp.output.plain_reading import document_at
from semidp.output.texts import name_of
from semidp.publishing.rechecking.release_check import recheck

GOLDEN = Path(__file__).parent / "version_0_2"

RELEASES = {
    "release_knorm": ("pure 1-DP", semidp.Ball(3), ["table"]),
    "release_laplace": ("pure 1-DP", semidp.Ball(3), ["table"]),
    "release_nested": ("0.5-zCDP", semidp.Ball(2), ["product"]),
    "release_parts": ("μ = 1 (Gaussian DP)", semidp.Ball(2), ["product"]),
    "release_tables_exchange": ("μ = 1 (Gaussian DP)", semidp.Exchange(3), ["product"]),
    "release_groups_exchange": ("μ = 0.5 (Gaussian DP)", semidp.Exchange(2), ["mean-income"]),
    "release_groups": (
        "μ = 1 (Gaussian DP)",
        semidp.Ball(2),
        ["mean-income", "proportion-smoker", "regression-income", "quantiles-income"],
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_version_0_2_loads_and_says_the_same(name: str) -> None:
    claim, adjacency, results = RELEASES[name]
    release = semidp.Release.load(GOLDEN / name)
    assert release.versions["semidp"] == "0.2.0.dev0"
    assert name_of(release.guarantee.tradeoff) == claim
    assert release.guarantee.adjacency == adjacency
    assert [result.name for result in release.results] == results
    assert release.private


def test_tables_of_version_0_2_are_found_by_name_with_the_numbers_of_their_files() -> None:
    compared = 0
    for folder in GOLDEN.glob("release_*"):
        release = semidp.Release.load(folder)
        for table in release.tables:
            assert release[table.name].counts.sum() == 600
            file = folder / f"{table.name}.csv"
            if file.exists():
                rows = list(csv.DictReader(file.read_text().splitlines()))
                assert [int(row["count"]) for row in rows] == table.counts.ravel().tolist()
                estimates = [float(row["estimate"]) for row in rows]
                assert np.array_equal(estimates, table.estimate.ravel())
                compared += len(rows)
    assert compared == 49


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_version_0_2_agrees(name: str) -> None:
    release = semidp.Release.load(GOLDEN / name)
    document = document_at(GOLDEN / name / "release.json")
    assert recheck(release, document, GOLDEN / name).disagreements == ()


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["estimate_low", "estimate"])
def test_a_changed_number_of_version_0_2_disagrees(form: str, column: str, tmp_path: Path) -> None:
    """The twin: ends may differ from rounded ones by a rounding, and by no more."""
    if form == "parquet":
        changed = _with_changed_parquet(tmp_path / "release", column)
    else:
        changed = _with_changed_csv(tmp_path / "release", column)
    try:
        release = semidp.Release.load(changed)
    except semidp.SemidpError:
        return  # ends that do not lie around their estimates are not even read
    document = document_at(changed / "release.json")
    assert recheck(release, document, changed).disagreements


def test_ends_may_differ_by_a_rounding_alone() -> None:
    ends = np.array([1.0, np.nan])
    assert equal_numbers(ends, ends + 2e-6, 3e-6)
    assert not equal_numbers(ends, ends + 1e-3, 3e-6)
    assert not equal_numbers(ends, ends + 2e-6)


def _with_changed_csv(folder: Path, column: str) -> Path:
    """Add 0.001 to the first number of a column."""
    shutil.copytree(GOLDEN / "release_laplace", folder)
    rows = list(csv.reader((folder / "table.csv").read_text().splitlines()))
    place = rows[0].index(column)
    rows[1][place] = str(float(rows[1][place]) + 0.001)
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return folder


def _with_changed_parquet(folder: Path, column: str) -> Path:
    """The same of a table by parts."""
    duckdb = pytest.importorskip("duckdb")
    shutil.copytree(GOLDEN / "release_parts", folder)
    file = folder / "state-region.parquet"
    again = folder / "again.parquet"
    duckdb.sql(
        f"COPY (SELECT * REPLACE ({column} + 0.001 AS {column}) FROM read_parquet('{file}'))"
        f" TO '{again}' (FORMAT parquet)"
    )
    again.replace(file)
    return folder


LEDGERS = {
    "ledger_ball.json": (["release_knorm", "release_laplace"], "pure 2-DP"),
    "ledger_exchange.json": (
        ["release_tables_exchange", "release_groups_exchange"],
        "μ = 1.11804 (Gaussian DP)",
    ),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_of_version_0_2_loads_and_goes_on(name: str, tmp_path: Path) -> None:
    releases, spent = LEDGERS[name]
    shutil.copy(GOLDEN / name, tmp_path / name)
    ledger = Ledger(tmp_path / name)
    total = ledger.total()
    assert total is not None
    assert name_of(total.tradeoff) == spent
    charged = [charge.label for charge in ledger.account().charges]
    assert len(charged) == len(releases)
    again = semidp.Release.load(GOLDEN / releases[0])
    measured = [mechanism.record() for mechanism in again.mechanisms]
    ledger.charge(again.guarantee, label="again", measured=measured)
    assert len(ledger.account().charges) == len(releases) + 1
