"""Tables as CSV and as Parquet: the same numbers, whoever reads them; levels and totals beside
release.json.
"""

import csv
import io
import json
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, InputError, Plan, Release, run
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import Schema
from semidp.publish import TableRequest, release_files
from semidp.publish.recheck import disagreements
from semidp.publish.results import columns
from semidp.publish.results.columns import METADATA, Columns, Form, Labels

ODD = ("plain", "a,b", 'say "x"', "two\nlines", "", " space ", "=1+1", "ü", "'")
NESTED = Feature.from_paths(["state", "county"], [("a", "x, y"), ("a", "y"), ('b"', "z")])
NUMBERS = (0.1, -0.0, 1e16, 1e-5, 123456789.125, -3.0)


def by_the_row(schema: Schema, numbers: dict[str, np.ndarray]) -> bytes:
    """Write every row by the standard library: what a file of cells must be, byte for byte."""
    text = io.StringIO()
    few, quoted = (
        csv.writer(text, lineterminator="\n", quoting=q) for q in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    columns = zip(*(column.ravel().tolist() for column in numbers.values()), strict=True)
    paths = product(*(feature.paths() for feature in schema.features))
    body = (
        [*(label for path in cell for label in path), *row]
        for cell, row in zip(paths, columns, strict=True)
    )
    for row in ([*schema.names, *numbers], *body):
        (quoted if any(isinstance(cell, str) and "\r" in cell for cell in row) else few).writerow(
            row
        )
    return text.getvalue().encode()


@pytest.mark.parametrize("more", [(), ("carriage\rreturn",)], ids=["plain", "returns"])
@pytest.mark.parametrize("rows", [5, 1 << 16])
def test_a_csv_file_is_that_of_the_standard_library(
    more: tuple[str, ...], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_ROWS", rows)
    schema = Schema([Feature("odd, name", [*ODD, *more]), NESTED])
    count = np.arange(schema.size).reshape(schema.shape)
    numbers = {"count": count, "estimate": np.resize(np.array(NUMBERS), schema.shape)}
    assert b"".join(Columns.of_cells(schema, numbers).csv()) == by_the_row(schema, numbers)


def test_parquet_holds_what_csv_holds(tmp_path: Path) -> None:
    schema = Schema([Feature("odd, name", [*ODD, "carriage\rreturn"]), NESTED])
    count = np.arange(schema.size).reshape(schema.shape)
    columns = Columns.of_cells(
        schema, {"count": count, "real": np.resize(np.array(NUMBERS), schema.shape)}
    )
    columns.write(tmp_path / "x.parquet")
    found = duckdb.connect().execute(f"SELECT * FROM read_parquet('{tmp_path}/x.parquet')")
    assert [column[0] for column in found.description] == [
        "odd, name",
        "state",
        "county",
        "count",
        "real",
    ]
    rows = csv.reader(io.StringIO(b"".join(columns.csv()).decode(), newline=""))
    assert [list(map(str, row)) for row in found.fetchall()] == list(rows)[1:]


def test_labels_by_their_codes(tmp_path: Path) -> None:
    columns = Columns(
        {"part": Labels(("one", "two"), codes=np.array([0, 0, 1]))}, {"noisy": np.array([5, -6, 7])}
    )
    assert b"".join(columns.csv()) == b"part,noisy\none,5\none,-6\ntwo,7\n"
    columns.write(tmp_path / "x.parquet")
    rows = (
        duckdb.connect().execute(f"SELECT * FROM read_parquet('{tmp_path}/x.parquet')").fetchall()
    )
    assert rows == [("one", 5), ("one", -6), ("two", 7)]


PEOPLE = {"sex": [*"fmmfm"] * 8, "region": [*"nnswsnws"] * 5, "town": [*"abcabcab"] * 5}


def released() -> Release:
    tables = [
        TableRequest(["sex", "region"], Budget.zcdp("1/10")),
        TableRequest(["sex", "town"], Budget.zcdp("1/10"), name="towns"),
    ]
    return run(Plan(tables, ["sex", "region", "town"]), PEOPLE, SeededRandomness(3))


def test_a_release_reads_back_from_either_form(tmp_path: Path) -> None:
    release = released()
    found = {}
    for form in Form:
        release.save(tmp_path / form, form=form)
        found[form] = again = Release.load(tmp_path / form)
        assert again.form is form
        document = json.loads((tmp_path / form / "release.json").read_text())
        assert disagreements(again, document) == ()
        assert all(name.endswith(f".{form}") for name in document["files"] if name != METADATA)
        assert (METADATA in document["files"]) == (form is Form.csv)
        for table, before in zip(again.tables, release.tables, strict=True):
            for column in ("counts", "estimate", "standard_errors"):
                assert (getattr(table, column) == getattr(before, column)).all()
                assert getattr(table, column).dtype == getattr(before, column).dtype
        measured = [result for result in again.results if result.counts_cells]
        drawn = [result for result in release.results if result.counts_cells]
        assert measured
        for read, written in zip(measured, drawn, strict=True):
            assert (read.noisy == written.noisy).all()
            assert read.noisy.dtype == written.noisy.dtype
        page = (tmp_path / form / "report.html").read_text()
        assert f"towns-measurements.{form}" in page
    other = {"csv": "parquet", "parquet": "csv"}
    for form in Form:
        assert f"table.{other[form]}" not in (tmp_path / form / "report.html").read_text()


def test_parquet_is_the_default_for_many_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PARQUET_FROM", 6)
    released().save(tmp_path / "release")
    assert sorted(file.name for file in (tmp_path / "release").glob("*.parquet")) == [
        *("measurements.parquet", "table.parquet", "towns-measurements.parquet", "towns.parquet")
    ]
    assert Release.load(tmp_path / "release").form is None


def test_a_changed_parquet_file_is_refused(tmp_path: Path) -> None:
    released().save(tmp_path / "release", form="parquet")
    file = tmp_path / "release" / "table.parquet"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="was changed after the release was written"):
        Release.load(tmp_path / "release")


def test_a_file_that_is_no_parquet_is_refused_without_its_message(tmp_path: Path) -> None:
    released().save(tmp_path / "release", form="parquet")
    (tmp_path / "release" / "table.parquet").write_bytes(b"PAR1 rubbish")
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    document["files"]["table.parquet"] = columns.digest(tmp_path / "release" / "table.parquet")
    (tmp_path / "release" / "release.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"release.json is damaged") as caught:
        Release.load(tmp_path / "release")
    assert "rubbish" not in str(caught.value)


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tables are written as csv or parquet, not 'ods'"):
        released().save(tmp_path / "release", form="ods")


def test_many_levels_and_totals_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = released()
    release.save(tmp_path / "listed")
    monkeypatch.setattr(release_files, "LISTED", 3)
    release.save(tmp_path / "apart")
    document = json.loads((tmp_path / "apart" / "release.json").read_text())
    assert (document["plan"], document["dataspace"]) == (
        {"file": "plan.json"},
        {"file": "dataspace.json"},
    )
    assert {"plan.json", "dataspace.json"} <= document["files"].keys()
    assert (
        json.loads((tmp_path / "apart" / "dataspace.json").read_text())
        == release.scope.dataspace.to_json()
    )
    again = Release.load(tmp_path / "apart")
    assert again.to_json() == Release.load(tmp_path / "listed").to_json() == release.to_json()
    assert disagreements(again, again.to_json()) == ()
    (tmp_path / "apart" / "dataspace.json").write_text("{}")
    with pytest.raises(InputError, match=r"dataspace.json was changed"):
        Release.load(tmp_path / "apart")


def test_release_json_and_report_do_not_grow_with_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_files, "LISTED", 2000)
    sizes = {}
    for levels in (3000, 6000):  # beyond what is drawn
        town = Feature("town", [f"town {number}" for number in range(levels)])
        plan = Plan(
            [TableRequest(["town", "sex"], Budget.gdp("1/10"))],
            [["town"]],
            features=[town, Feature("sex", "fm")],
        )
        folder = tmp_path / str(levels)
        run(plan, {"town": ["town 0", "town 7"], "sex": ["f", "m"]}, SeededRandomness(1)).save(
            folder
        )
        sizes[levels] = [(folder / name).stat().st_size for name in ("release.json", "report.html")]
    assert sizes[6000] == pytest.approx(sizes[3000], rel=0.02)


def test_disagreements_are_those_of_the_document_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semidp.cli import run as command

    monkeypatch.setattr(release_files, "LISTED", 3)
    released().save(tmp_path / "apart")
    assert command(["show", str(tmp_path / "apart"), "--quiet"]) == 0


@pytest.mark.parametrize("listed", [1, 100])
def test_labels_are_the_same_however_duckdb_is_given_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    monkeypatch.setattr(columns, "_LISTED", listed)
    path, numbers = tmp_path / "x.parquet", {"count": np.arange(12)}
    labels = {
        "a": columns.Labels(("f", "m"), 6),
        "b": columns.Labels(("x", "\u00e4", "z")),
        "c": columns.Labels(("1", "2"), codes=np.arange(12) % 5 // 3),
    }
    columns.write_parquet(path, labels, numbers)
    written = duckdb.sql(f"SELECT a, b, c FROM '{path}'").fetchall()
    assert written == list(zip(*(column.column(12) for column in labels.values()), strict=True))
    assert columns.different_column(path, labels, numbers) is None
    for name, column in labels.items():
        other = evolve(column, labels=(*column.labels[:-1], "other"))
        assert columns.different_column(path, {**labels, name: other}, numbers) == name
