"""Tables are shown and written with their features in the order in which they were asked for."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.cli import run as command
from semidp.present.release import Release
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.recheck import recheck
from semidp.publish.results.published_table import PublishedTable

PEOPLE = {
    "sex": np.array([*"fmfmfm"] * 50),
    "region": np.array(["north", "south", "west"] * 100),
    "health": np.array(["good", "good", "poor", "good"] * 75),
}


@pytest.fixture(scope="module", params=["csv", "parquet"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = semidp.release(
        PEOPLE,
        semidp.table("sex", "health"),
        semidp.table("region", "health", "sex"),
        exact=["region", "sex"],
        levels={"health": ["good", "poor"]},
        mu=10**4,
        randomness=SeededRandomness(1),
    )
    path = tmp_path_factory.mktemp("order") / "release"
    release.save(path, form=request.param)
    return path


@pytest.mark.few(1)
def test_columns_are_in_the_order_asked_for(folder: Path) -> None:
    release = Release.load(folder)
    table = release.table("region-health-sex")
    assert table.schema.names == ("sex", "health", "region")
    rows = list(zip(*table.to_dict().values(), strict=True))
    assert list(table.to_dict())[:4] == ["region", "health", "sex", "estimate"]
    # The rows are sorted by the first column asked for, and every number stands beside its labels.
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    checked = 0
    for region, health, sex, count, *_ in rows:
        chosen = (
            (PEOPLE["region"] == region) & (PEOPLE["health"] == health) & (PEOPLE["sex"] == sex)
        )
        assert count == chosen.sum()
        checked += 1
    assert checked == 12
    assert "region by health by sex" in release.report_html()
    assert list(release.table("sex-health").to_dict())[:2] == ["sex", "health"]


@pytest.mark.few(1)
def test_a_release_in_this_order_follows_from_its_noise(folder: Path) -> None:
    release = Release.load(folder)
    document = json.loads((folder / "release.json").read_text())
    assert recheck(release, document, folder).disagreements == ()
    # Weights are an array like the counts, whose axes are those of the schema.
    weights = np.zeros((2, 2, 3))
    weights[0, 1, :] = 1
    value, error = release.estimate({"region-health-sex": weights})
    chosen = (PEOPLE["sex"] == "f") & (PEOPLE["health"] == "poor")
    assert value == pytest.approx(chosen.sum(), abs=0.1)
    assert 0 <= error < 0.1


def test_a_file_in_the_order_of_the_schema_is_still_read(folder: Path) -> None:
    """Earlier versions wrote every table in the order in which a plan first mentions its
    features.
    """
    if not (folder / "region-health-sex.csv").exists():
        return
    table = Release.load(folder).table("region-health-sex")
    from semidp.publish.results.columns import StoredFiles

    earlier = folder.parent / "earlier"
    earlier.mkdir()
    (earlier / "region-health-sex.csv").write_bytes(PublishedTable.csv(_unordered(table)))
    with (earlier / "region-health-sex.csv").open() as file:
        assert next(csv.reader(file))[:3] == ["sex", "health", "region"]
    stored = StoredFiles(earlier, ("region-health-sex.csv",))
    again = PublishedTable.read(stored, "region-health-sex", table.schema, table.fitted)
    assert again.order == ()
    assert (again.counts == table.counts).all()


def _unordered(table: PublishedTable) -> PublishedTable:
    return table.asked_as(table.schema.names)


@pytest.mark.long
def test_the_workbook_and_the_page_have_it_too(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lines = ["sex,region,health"]
    for sex, region, health in zip(*PEOPLE.values(), strict=True):
        lines.append(f"{sex},{region},{health}")
    (tmp_path / "p.csv").write_text("\n".join(lines) + "\n")
    words = [
        "release",
        str(tmp_path / "p.csv"),
        "--table",
        "sex,health",
        "--table",
        "region,sex",
        "--exact",
        "sex",
    ]
    words += [
        "--levels",
        "health=good,poor",
        "--levels",
        "region=north,south,west",
        "--mu",
        "1",
        "--quiet",
    ]
    assert command([*words, "--write", "xlsx", "--out", str(tmp_path / "out")]) == 0
    book = openpyxl.load_workbook(tmp_path / "out" / "tables.xlsx")
    assert [cell.value for cell in book["region-sex"][1]][:3] == ["region", "sex", "estimate"]
