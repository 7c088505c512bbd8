"""Values as people write them: dates by month, decimal commas, other encodings, levels that look
alike.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp
from semidp.cli import run as command
from semidp.errors import DataError, InputError, SchemaError
from semidp.present.release import Release
from semidp.promise.schema.outcome import Outcome
from semidp.publish.sources.opening import open_source
from semidp.publish.sources.readings import months
from semidp.publish.survey import lookalikes

ROWS = [
    ("north", "2025-11-30", "1.234,50"),
    ("south", "2025-12-01 08:15:00", "12"),
    ("north", "31.12.2025", "-3,5"),
    ("south", "2026-01-31", "1.000.000"),
]


def csv_file(path: Path, rows: Any = ROWS, encoding: str = "utf-8") -> Path:
    lines = ["region;admitted;pay", *(";".join(row) for row in rows)]
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return path


@pytest.mark.parametrize(
    ("how", "levels"),
    [
        ("month", ("2025-11", "2025-12", "2026-01")),
        ("quarter", ("2025-Q4", "2026-Q1")),
        ("year", ("2025", "2026")),
        ("day", ("2025-11-30", "2025-12-01", "2025-12-31", "2026-01-31")),
    ],
)
def test_dates_are_counted_by_their_depth(
    tmp_path: Path, how: str, levels: tuple[str, ...]
) -> None:
    frame = {"admitted": np.array([row[1] for row in ROWS], dtype=object)}
    for data in (csv_file(tmp_path / "a.csv"), frame):
        with open_source(data, read_as={"admitted": how}) as source:
            assert source.levels("admitted") == levels


def test_numbers_with_a_decimal_comma(tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv")
    schema = semidp.Schema([semidp.Feature("region", ["north", "south"])])
    with open_source(file, read_as={"pay": "1.234,5"}, where="pay > -1") as source:
        assert source.counts(schema).counts.tolist() == [1, 2]
        assert source.sums(schema, Outcome("pay", 0, 2_000_000, steps=4_000_000)).tolist() == [
            2469,
            2_000_024,
        ]
    for how in ("1,234.5", "1 234,5", "1'234.5"):
        with pytest.raises(DataError, match="not numbers written as"):
            open_source(file, read_as={"pay": how})
    for text, how, value in (
        ("1,234.5", "1,234.5", 1234.5),
        ("1 234,5", "1 234,5", 1234.5),
        ("0,25", "1234,5", 0.25),
    ):
        data = {"g": np.array(["a"]), "pay": np.array([text], dtype=object)}
        with open_source(data, read_as={"pay": how}) as source:
            sums = source.sums(
                semidp.Schema([semidp.Feature("g", ["a"])]), Outcome("pay", 0, 2000, steps=8000)
            )
            assert sums.tolist() == [value * 4]


@pytest.mark.parametrize("secret", ["1/2/2026", "yesterday", "2026-13-01", "12,34,5"])
def test_what_does_not_fit_is_refused_and_not_quoted(tmp_path: Path, secret: str) -> None:
    file = csv_file(tmp_path / "a.csv", [*ROWS, ("north", secret, secret)])
    for column, how in (("admitted", "month"), ("pay", "1.234,5")):
        with pytest.raises(DataError) as caught:
            open_source(file, read_as={column: how})
        assert secret not in str(caught.value)
        assert column in str(caught.value)


def test_readings_that_are_none_are_refused(tmp_path: Path) -> None:
    file = csv_file(tmp_path / "a.csv")
    with pytest.raises(InputError, match="can be read as day, month, year, quarter"):
        open_source(file, read_as={"admitted": "decade"})
    with pytest.raises(SchemaError, match="there is no column 'born'"):
        open_source(file, read_as={"born": "month"})


def test_other_encodings(tmp_path: Path) -> None:
    rows = [("Süd", "2026-01-01", "1"), ("Nord", "2026-01-01", "2")]
    for encoding in ("latin-1", "utf-16"):
        file = csv_file(tmp_path / f"{encoding}.csv", rows, encoding)
        with open_source(file, encoding=encoding) as source:
            assert source.levels("region") == ("Nord", "Süd")
        with pytest.raises(DataError):
            open_source(file)
    with pytest.raises(InputError, match="CSV files are read in utf-8, latin-1, utf-16"):
        open_source(file, encoding="ebcdic")
    with pytest.raises(InputError, match="an encoding is for CSV files"):
        open_source({"a": np.array(["b"])}, encoding="latin-1")


@pytest.mark.parametrize("wrong", ["2026-02..2025-11", "a..b", "2025-13..2026-14", "1..99999999"])
def test_ranges_that_are_none_are_refused(wrong: str) -> None:
    first, _, last = wrong.partition("..")
    with pytest.raises(InputError, match="is not a range of months"):
        months(first, last)


def test_months_are_a_feature_of_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = csv_file(tmp_path / "a.csv", ROWS * 20)
    words = [
        "release",
        str(file),
        "--table",
        "region,admitted",
        "--exact",
        "region",
        "--read-as",
        "admitted=month",
    ]
    words += ["--levels", "admitted=2025-11..2026-02", "--mu", "1", "--out", str(tmp_path / "out")]
    assert command([*words, "--quiet"]) == 0
    release = Release.load(tmp_path / "out")
    assert release.tables[0].schema.features[1].levels == (
        "2025-11",
        "2025-12",
        "2026-01",
        "2026-02",
    )
    assert release.plan.read_as == (("admitted", "month"),)
    assert semidp.Plan.from_toml(release.plan.to_toml()) == release.plan
    assert command(["show", str(tmp_path / "out"), "--quiet"]) == 0


def test_a_proportion_of_a_text_value() -> None:
    people = {"ward": ["a", "b"] * 50, "ok": ["Y", "Y", "N", "?"] * 25}
    release = semidp.release(people, semidp.proportion("ok=Y", by="ward"), mu=1000)
    values = release.groups[0].estimates[0].values
    assert values == pytest.approx([0.5, 0.5], abs=0.05)
    assert release.plan.read_as == (("ok=Y", "equal"),)
    with pytest.raises(DataError, match="missing values"):
        semidp.release(
            {"ward": ["a", "b"], "ok": ["Y", None]}, semidp.proportion("ok=Y", by="ward"), mu=1
        )


@pytest.mark.long
def test_levels_that_look_alike_are_pointed_out_before_anything_is_charged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("region\n" + "north\n north\nsouth\n" * 9)
    assert command(["ledger", str(tmp_path / "l.json"), "--mu", "0.1"]) == 0
    capsys.readouterr()
    words = [
        "release",
        str(file),
        "--table",
        "region",
        "--levels-from-data",
        "--mu",
        "1",
        "--out",
        str(tmp_path / "o"),
    ]
    # The ledger refuses: what was pointed out came before.
    assert command([*words, "--ledger", str(tmp_path / "l.json")]) == 2
    said = capsys.readouterr().err
    assert "Levels of region look alike: ' north' and 'north'" in said
    assert command(words) == 0
    assert capsys.readouterr().err.count("look alike") == 1
    assert command(["show", str(tmp_path / "o")]) == 0
    assert "look alike" in capsys.readouterr().err


def test_levels_that_are_told_apart_are_not_pointed_out() -> None:
    fine = [["01", "1"], ["a", "b"], ["all", "none"], ["1", "10"], ["x y", "xy"]]
    for levels in fine:
        assert lookalikes(semidp.Schema([semidp.Feature("f", levels)])) == ()
    alike = [["a b", "a  b"], ["1.50", "1.5"], ["A", "a"], ["x", "x "]]
    for levels in alike:
        assert len(lookalikes(semidp.Schema([semidp.Feature("f", levels)]))) == 1


def test_a_table_is_read_as_it_is() -> None:
    table = semidp.Table(semidp.Schema([semidp.Feature("sex", "fm")]), [1, 2])
    with pytest.raises(InputError, match="columns of a database or a table"):
        open_source(table, read_as={"sex": "month"})


@pytest.mark.long
def test_dates_are_put_into_bins(tmp_path: Path) -> None:
    born = ["1991-05-03", "1995-06-30 23:59:00", "01.07.1995", "2004-12-31", "2005-01-01"] * 20
    edges = ["1990-01-01", "1995-07", "2005-01-01", "inf"]
    release = semidp.release(
        {"birth": born}, semidp.table("birth"), bins={"birth": edges}, mu=10**4
    )
    labels = ["1990-01-01 to <1995-07", "1995-07 to <2005-01-01", "2005-01-01 and over"]
    columns = release.tables[0].to_dict()
    assert columns["birth"] == labels
    assert columns["count"] == [40, 40, 20]
    release.save(tmp_path / "out")
    assert Release.load(tmp_path / "out").plan.read_as == (
        ("birth", "dates from 1990-01-01,1995-07,2005-01-01"),
    )
    with pytest.raises(DataError, match="not among its declared levels"):
        semidp.release({"birth": born}, semidp.table("birth"), bins={"birth": edges[1:]}, mu=1)
    opened = semidp.release(
        {"birth": born}, semidp.table("birth"), bins={"birth": ["-inf", *edges[1:]]}, mu=10**4
    )
    assert opened.tables[0].to_dict()["birth"][0] == "below 1995-07"
    for end, labels, expected in (
        ("2005-01-01", ["1990-01-01 to <1995-07", "1995-07 to 2005-01-01"], [40, 60]),
        ("2005-01", ["1990-01-01 to <1995-07", "1995-07 to 2005-01"], [40, 60]),
    ):
        bins = {"birth": [*edges[:2], end]}
        closed = semidp.release({"birth": born}, semidp.table("birth"), bins=bins, mu=10**4)
        columns = closed.tables[0].to_dict()
        assert (columns["birth"], columns["count"]) == (labels, expected)
        (reading,) = closed.plan.read_as
        assert reading == ("birth", f"dates from 1990-01-01,1995-07 to {end}")
        with pytest.raises(DataError, match="not among its declared levels"):
            semidp.release({"birth": [*born, "2005-02-01"]}, semidp.table("birth"), bins=bins, mu=1)


@pytest.mark.parametrize(
    "edges",
    [
        ["1990-13-01"],
        ["1990-01-01"],
        ["1990-01-01", "18"],
        ["2000-01", "1990-01"],
        ["1990-01-01", "x"],
    ],
)
def test_edges_that_are_no_growing_dates_are_refused(edges: list[str]) -> None:
    with pytest.raises(InputError, match="bins of 'birth'"):
        semidp.release(
            {"birth": ["1991-05-03"]}, semidp.table("birth"), bins={"birth": edges}, mu=1
        )


def test_a_line_without_text_is_one_record_of_one_column_in_any_encoding(tmp_path: Path) -> None:
    file = tmp_path / "words.csv"
    for content, records in ((b"sex\nf\n\nm\n", 3), (b"sex,age\nf,1\n\nm,2\n", 2)):
        file.write_bytes(content)
        for encoding in ("utf-8", "latin-1", "windows-1252"):
            with open_source(file, encoding=encoding) as source:
                assert source._records.occurrences("sex") == (records, 2, 2)


def test_windows_1252_is_read(tmp_path: Path) -> None:
    file = tmp_path / "places.csv"
    file.write_bytes('straße €;ok\r\nKöln’s;1\r\n"Süd; West";\r\n'.encode("cp1252"))
    with open_source(file, encoding="Windows-1252") as source:
        assert set(source.columns()) == {"straße €", "ok"}
        assert set(source.levels("straße €")) == {"Köln’s", "Süd; West"}
    wrong = (
        (b"a,b\n1\n", "more or fewer values"),
        (b"a,a\n1,2\n", "one name"),
        (b"a\n\x81\n", "whole"),
    )
    for content, reason in wrong:
        file.write_bytes(content)
        with pytest.raises(DataError, match=reason), open_source(file, encoding="cp1252"):
            pass
