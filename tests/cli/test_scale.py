"""Large releases on the command line: how tables are written, and what is refused before it is paid
for.
"""

from pathlib import Path

import pytest

from semidp.publish import pipeline
from semidp.publish.statistics.tables import request as requests
from tests.cli.conftest import Semidp, one_sentence

WORDS = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region", "--rho", "1/10")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.csv"
    file.write_text("sex,region\n" + "f,n\nf,s\nm,n\nm,s\nm,s\n" * 20)
    return file


def test_a_release_is_written_as_parquet_and_shown(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    done = here("release", people, *WORDS, "--write", "parquet", "--out", "release")
    assert done.code == 0, done.err
    names = {file.name for file in (tmp_path / "release").iterdir()}
    exact = {"exact-sex.parquet", "exact-region.parquet"}
    assert names == exact | {
        "table.parquet",
        "measurements.parquet",
        "release.json",
        "report.html",
    }
    shown = here("show", "release", "--format", "json")
    assert (shown.code, shown.json["disagreements"], shown.json["form"]) == (0, [], "parquet")
    assert (
        here("release", people, *WORDS, "--write", "csv", "--out", "release", "--force").code == 0
    )
    assert "table.csv" in {file.name for file in (tmp_path / "release").iterdir()}
    assert "csv, parquet, xlsx or sdmx, not 'xls'" in one_sentence(
        here("release", people, *WORDS, "--write", "xls", "--out", "x")
    )


def test_too_little_memory_is_refused_before_the_source_is_opened(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    levels = [f"--levels=f{n}={','.join(map(str, range(465)))}" for n in range(3)]
    words = ("--table", "f0,f1,f2", "--invariant", "f0", "--rho", "1", *levels)
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    done = here(
        "release",
        "absent.csv",
        *words,
        "--ledger",
        "ledger.json",
        "--set",
        "memory=4GB",
        "--out",
        "release",
    )
    sentence = one_sentence(done)
    assert "needs about 6.4 GB of memory for 100,544,625 cells, and 4.0 GB may be used" in sentence
    assert "a coarser" in sentence
    assert not here("ledger", "ledger.json", "--format", "json").json["charges"]
    assert "there is no file absent.csv" in one_sentence(
        here("release", "absent.csv", *words, "--set", "memory=12GB", "--out", "release")
    )
    assert "such as 8GB" in one_sentence(
        here("release", people, *WORDS, "--set", "memory=much", "--out", "release")
    )


def test_a_rehearsal_says_what_it_would_take(here: Semidp, people: Path) -> None:
    done = here("release", people, *WORDS, "--dry-run")
    assert (
        "would take about 300 MB of memory, 1 MB of disk and 2 s, not counting the time to read"
        in done.out
    )
    needs = here("release", people, *WORDS, "--dry-run", "--format", "json").json["needs"]
    assert needs["cells"] == 4
    assert needs["memory"] > needs["disk"] > 0


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ValueError])
def test_whatever_fails_after_the_charge_says_so(
    here: Semidp,
    people: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(requests.TablesRequest, "publish", fails)
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    done = here("release", people, *WORDS, "--ledger", "ledger.json", "--out", "release")
    assert done.code != 0
    assert "the ledger was charged all the same" in done.err
    assert not (tmp_path / "release").exists()
    monkeypatch.setattr(pipeline, "calibrate", fails)
    done = here("release", people, *WORDS, "--ledger", "ledger.json", "--out", "release")
    assert "charged all the same" not in done.err
