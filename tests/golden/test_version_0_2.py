"""What version 0.2 wrote before its statistics were cut into folders stays readable.

The folders were made by the tree of 648417a6 from 600 drawn records, and are never made again.
"""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.plain_reading import read_document
from semidp.publish.rechecking.file_differences import file_differences
from semidp.publish.rechecking.release_check import recheck
from semidp.publish.results.columns import equal_numbers
from semidp.publish.results.texts import name_tradeoff

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
    assert name_tradeoff(release.guarantee.tradeoff) == claim
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
    document = read_document(GOLDEN / name / "release.json")
    assert recheck(release, document, GOLDEN / name).disagreements == ()


@pytest.mark.parametrize(
    ("name", "file"),
    [("release_laplace", "table.csv"), ("release_parts", "state-region.parquet")],
)
def test_a_file_of_version_0_2_may_differ_from_its_columns_by_a_rounding_alone(
    name: str, file: str
) -> None:
    release = semidp.Release.load(GOLDEN / name)
    columns = release[Path(file).stem].columns()
    ends, estimates = columns.numbers["estimate_low"], columns.numbers["estimate"]

    def different(**changed: np.ndarray) -> list[str]:
        expected = replace(columns, numbers={**columns.numbers, **changed})
        return list(file_differences(GOLDEN / name, file, expected, "", current=False))

    assert different(estimate_low=ends + 1e-6) == []
    assert "estimate_low" in "".join(different(estimate_low=ends + 1e-3))
    assert "'estimate'" in "".join(different(estimate=estimates + 1e-6))


def test_ends_may_differ_by_a_rounding_alone() -> None:
    ends = np.array([1.0, np.nan])
    assert equal_numbers(ends, ends + 2e-6, 3e-6)
    assert not equal_numbers(ends, ends + 1e-3, 3e-6)
    assert not equal_numbers(ends, ends + 2e-6)


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
    assert name_tradeoff(total.tradeoff) == spent
    charged = [charge.label for charge in ledger.account().charges]
    assert len(charged) == len(releases)
    again = semidp.Release.load(GOLDEN / releases[0])
    measured = [mechanism.record() for mechanism in again.mechanisms]
    ledger.charge(again.guarantee, label="again", measured=measured)
    assert len(ledger.account().charges) == len(releases) + 1
