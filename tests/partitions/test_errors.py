"""How wrong the cells of tables by parts are: from what each part tells, without reading a cell."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from semidp import Budget, InputError, Plan, Release
from semidp.present.report.sentences import summary
from semidp.promise.documents import digest, read_document
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.recheck import disagreements
from semidp.publish.recheck_results import matches_errors
from semidp.publish.statistics.tables.words import CellErrors
from tests.partitions.conftest import FEATURES, plan, records, run_partitioned


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of few people, so that noise dominates some of the cells."""
    folder = tmp_path_factory.mktemp("parts") / "release"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "report_html", lambda self, title=None: "")
        how = {"randomness": SeededRandomness(1)}
        run_partitioned(plan(), records(120), folder, "state", **how)
    return folder


def write_parts(place: Path, parts: list) -> None:
    (place / "parts.json").write_text(json.dumps(parts))
    document = json.loads((place / "release.json").read_text())
    document["files"]["parts.json"] = digest(place / "parts.json")
    (place / "release.json").write_text(json.dumps(document))


def test_parts_tell_how_wrong_their_cells_are(place: Path) -> None:
    made = Release.load(place)
    (result,) = made.results
    told = result.cell_errors
    measured = [
        CellErrors.from_table(table) for table in made.tables
    ]  # from every cell of every part
    assert len(told) == len(measured) == 3
    for errors, cells in zip(told, measured, strict=True):
        for key in ("standard_error", "smallest", "largest"):
            assert errors.errors[key] == pytest.approx(cells.errors[key])
        assert (errors.dominated, errors.noisy) == (cells.dominated, cells.noisy)
        assert errors.cells == cells.cells
    assert 0 < told[0].dominated < told[0].cells  # the comparison has something to tell apart
    assert told[0].noisy < told[0].cells
    assert "noise dominates" in summary(made, "report.html")
    assert "Noise dominates" in "".join(result.cautions())
    assert result.errors_json()[0]["dominated_share"] == told[0].dominated / told[0].cells


def test_a_part_that_counts_fewer_noisy_cells_is_found_out(place: Path) -> None:
    made = Release.load(place)
    part = made.partition.parts[0]
    table = made.part("01")["tract-sex"]
    stated = next(told for told in part.tables if told.name == "tract-sex")
    assert matches_errors(stated, table)
    for forged in ({"dominated": 0}, {"noisy": 1}, {"smallest_standard_error": 0.1}):
        cells = evolve(stated.cells, **forged)
        assert cells != stated.cells
        assert not matches_errors(evolve(stated, cells=cells), table)
    parts = json.loads((place / "parts.json").read_text())
    parts[0]["tables"][0]["cells"]["dominated"] = 0
    write_parts(place, parts)
    (said,) = disagreements(Release.load(place), read_document(place / "release.json"))
    assert "other errors of tract-sex than it has" in said


@pytest.mark.few(1)
@pytest.mark.parametrize("mechanism", ["auto", "gaussian"], ids=["separate", "assembled"])
def test_a_list_without_one_of_its_parts_is_found_out(mechanism: str, tmp_path: Path) -> None:
    tables = [TableRequest(["tract", "sex"], Budget.gdp(2), mechanism)]
    asked = Plan(tables, ["state"], FEATURES[:2])
    folder = tmp_path / "release"
    run_partitioned(asked, records(120), folder, "state", randomness=SeededRandomness(1))
    document = read_document(folder / "release.json")
    assert disagreements(Release.load(folder), document) == ()
    parts = json.loads((folder / "parts.json").read_text())
    count = len(parts)
    assert count > 2
    write_parts(folder, parts[:-1])
    if mechanism == "gaussian":  # all parts are read, and one is missing
        with pytest.raises(InputError, match="damaged"):
            Release.load(folder)
        return
    said = disagreements(Release.load(folder), read_document(folder / "release.json"))
    assert f"it states {count - 1} parts, and there are {count}" in said
