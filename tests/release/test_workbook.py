"""A release as a workbook, and records from one: what is in it stays what it was."""

import json
import math
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

import semidp
from semidp.cli import run as command
from semidp.errors import DataError, InputError, Refused
from semidp.present.release import Release
from semidp.present.report.release_workbook import (
    WorkbookSheet,
    cells_differ,
    opened_pages,
    parts_differ,
    write_workbook,
)
from semidp.promise.documents import digest
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import presentation
from semidp.publish.presentation import WORKBOOK, Presentation
from semidp.publish.recheck import recheck
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.protocol.requests import Request

PEOPLE: dict[str, list[Any]] = {
    "sex": [*"fm"] * 30,
    "code": ["=1+1", "007", "1e5", "-x"] * 15,
    "pay": [float(number % 50) for number in range(60)],
}


def released(*wanted: Request | semidp.publish.TableRequest, **more: Any) -> Release:
    return semidp.release(
        PEOPLE,
        *wanted,
        exact=["sex"],
        mu=1,
        levels_from_data=True,
        randomness=SeededRandomness(1),
        **more,
    )


def read_values(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with opened_pages(path) as pages:
        return {name: list(rows) for name, rows in pages.items()}


def test_labels_stay_text_and_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    release = released(semidp.table("sex", "code"), semidp.mean("pay", by="sex", bounds=(0, 100)))
    release.save(tmp_path / "out", form="xlsx")
    book = openpyxl.load_workbook(tmp_path / "out" / WORKBOOK)
    assert book.sheetnames == ["About", "table", "mean-pay", "exact sex"]
    page = book["table"]
    assert page.freeze_panes == "A2"
    # On paper, too, every page has the header and says which table it is.
    assert page.print_title_rows == "$1:$1"
    assert page.oddFooter.center.text == "&A, page &P of &N"
    columns = release.tables[0].columns()
    assert [cell.value for cell in page[1]] == columns.header
    checked = 0
    for row, stored in zip(
        zip(*columns.lists(), strict=True),
        page.iter_rows(min_row=2, max_row=columns.rows + 1),
        strict=True,
    ):
        for value, cell in zip(row, stored, strict=True):
            if isinstance(value, str):
                assert (cell.value, cell.data_type, cell.number_format) == (value, "s", "@")
            else:
                assert cell.value == pytest.approx(value, rel=1e-12)
                assert cell.number_format.startswith("#,##0")
            checked += 1
    assert checked == 8 * 7
    # The sizes of groups are exact, and so are the totals.
    exact = [book["exact sex"]["B2"], book["mean-pay"]["B2"]]
    assert [(cell.font.bold, cell.font.color.rgb) for cell in exact] == [(True, "00005A8C")] * 2
    assert not page["C2"].font.bold
    # Below the cells are the totals of each level and of all cells; those of sex are exact.
    totals = list(page.iter_rows(min_row=columns.rows + 2))
    counts = {tuple(cell.value for cell in row[:2]): row[-1] for row in totals}
    assert list(counts) == [
        *(("f", "total"), ("m", "total")),
        *(("total", code) for code in dict.fromkeys(columns.lists()[1])),
        ("total", "total"),
    ]
    table = release.tables[0].counts
    assert [cell.value for cell in counts.values()] == [
        *(*table.sum(axis=1).tolist(), *table.sum(axis=0).tolist()),
        table.sum(),
    ]
    blue = [
        key for key, cell in counts.items() if cell.font.color and cell.font.color.rgb == "00005A8C"
    ]
    assert blue == [("f", "total"), ("m", "total"), ("total", "total")]
    assert all(cell.font.bold for cell in counts.values())
    assert page.auto_filter.ref.endswith(str(columns.rows + 1))
    about = {row[0]: row[1] for row in book["About"].iter_rows(values_only=True) if row[0]}
    assert about["Published exactly"] == "counts of sex"
    said = [row[1] for row in book["About"].iter_rows(values_only=True)]
    assert any(text.startswith("Each record is taken to be one person") for text in said)
    assert "NOT PRIVATE" in about


def test_the_csv_files_stay_what_commands_read_and_the_workbook_is_rechecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    released(semidp.table("sex", "code")).save(folder, form="xlsx")
    again = Release.load(folder)
    assert (folder / "table.csv").exists()
    assert again.presentation.workbook
    document = json.loads((folder / "release.json").read_text())
    assert recheck(again, document, folder).disagreements == ()
    # Another number in a cell is found, even where the list of files is changed to match.
    book = openpyxl.load_workbook(folder / WORKBOOK)
    book["table"]["C2"].value += 1
    book.save(folder / WORKBOOK)
    assert command(["show", str(folder)]) == 2
    assert "was changed after the release was written" in capsys.readouterr().err
    assert recheck(again, document, folder).disagreements == (
        f"{WORKBOOK} says something else than follows: do not read it",
    )


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("xl/styles.xml", lambda xml: xml.replace(b"#,##0", b"0.0##")),
        ("xl/styles.xml", lambda xml: xml.replace(b"005A8C", b"FFFFFF")),
        ("xl/worksheets/sheet2.xml", lambda xml: xml.replace(b"<cols>", b"<cols> ")),
        ("docProps/core.xml", lambda xml: xml.replace(b"openpyxl", b"somebody")),
    ],
)
def test_forged_formats_of_a_workbook_are_found_out(
    tmp_path: Path, part: str, change: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "out"
    released(semidp.table("sex", "code")).save(folder, form="xlsx")
    rezipped(folder / WORKBOOK, change, part)
    document = json.loads((folder / "release.json").read_text())
    document["files"][WORKBOOK] = digest(folder / WORKBOOK)
    (folder / "release.json").write_text(json.dumps(document))
    checked = recheck(Release.load(folder), document, folder)
    assert checked.disagreements == (
        f"{WORKBOOK} says something else than follows: do not read it",
    )
    # Other software writes the same cells otherwise, and how they are formatted is believed.
    document["versions"]["openpyxl"] = "0"
    (folder / "release.json").write_text(json.dumps(document))
    release = Release.load(folder)
    (folder / "report.html").write_text(release.report_html())
    checked = recheck(release, document, folder)
    assert checked.disagreements == ()
    assert any(WORKBOOK in trust.fields for trust in checked.trusted)


def test_how_a_release_is_presented_is_in_the_report_and_read_back(tmp_path: Path) -> None:
    release = released(
        semidp.table("sex", "code"),
        title="Pay & codes",
        contact="a@b.example",
        note=("First.", "Second."),
        round_to=5,
        mark_below=8,
    )
    release.save(tmp_path / "out", form="xlsx")
    again = Release.load(tmp_path / "out")
    assert again.presentation.title == "Pay & codes"
    page = (tmp_path / "out" / "report.html").read_text()
    for text in (
        "<h1>Pay &amp; codes</h1>",
        "Contact: a@b.example",
        "First.",
        "rounded to multiples of 5",
        "A star marks counts below 8 as published, before they are rounded.",
    ):
        assert text in page
    assert page == again.report_html()
    counts = release.tables[0].counts
    assert page.count('<abbr title="below 8">*</abbr>') == int((counts < 8).sum()) > 0
    rows = read_values(tmp_path / "out" / WORKBOOK)["table"]
    assert rows[0][-2:] == ("count", "count, in multiples of 5")
    cells = rows[1 : counts.size + 1]
    for row in cells:
        assert row[-1] % 5 == 0
        assert abs(row[-2] - row[-1]) <= 2.5
    assert [
        int(line.rpartition(",")[2])
        for line in (tmp_path / "out" / "table.csv").read_text().splitlines()[1:]
    ] == [row[-2] for row in cells]


def test_exact_counts_are_rounded_nowhere(tmp_path: Path) -> None:
    """Exact cells and exact sums, in the report, the workbook and the files."""
    records = {
        "sex": ["f"] * 173 + ["m"] * 84,
        "code": (["a", "b", "a"] * 86)[:257],
    }
    asked = [semidp.table("sex"), semidp.table("sex", "code")]
    release = semidp.release(
        records,
        *asked,
        exact=["sex"],
        levels={"code": ["a", "b"]},
        mu=1,
        round_to=5,
    )
    release.save(tmp_path / "out", form="xlsx")
    page = (tmp_path / "out" / "report.html").read_text()
    for exact in ("173", "84", "257"):
        assert page.count(f">{exact}<") >= 2
    assert not any(f">{rounded}<" in page for rounded in ("175", "255"))  # no noisy count is near
    sheets = read_values(tmp_path / "out" / WORKBOOK)
    assert [row[-2:] for row in sheets["sex"][1:]] == [(173, 173), (84, 84), (257, 257)]
    noisy = [row[-2:] for row in sheets["sex-code"][1:] if row[0] != "total" != row[1]]
    assert [row[-1] for row in sheets["sex-code"] if row[1] == "total"] == [173, 84, 257]
    assert all(shown % 5 == 0 and abs(shown - count) <= 2.5 for count, shown in noisy)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"title": " "}, "a title is a text"),
        ({"titel": "x"}, "a presentation has no 'titel'"),
        ({"round_to": 0}, "multiples of a whole number from 1 on"),
        ({"mark_below": True}, "marked below a whole number"),
        ({"notes": ("x" * 20_000,)}, "note 1 is a text"),
    ],
)
def test_presentations_that_are_none_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Presentation.from_value(wrong)


def test_a_table_that_a_sheet_does_not_hold_is_refused_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presentation, "MOST_ROWS", 7)
    ledger = semidp.Ledger.create(tmp_path / "ledger.json", semidp.Budget.gdp(2))
    with pytest.raises(Refused, match="'table' has 8 rows, and a sheet of a workbook holds 7"):
        released(semidp.table("sex", "code"), ledger=ledger, out=tmp_path / "out", write="xlsx")
    assert not ledger.account().charges
    assert not (tmp_path / "out").exists()


def test_tabs_are_short_and_told_apart(tmp_path: Path) -> None:
    names = ["a" * 40, "A" * 40, "sex/age", "sex:age", "About"]
    pages = [
        WorkbookSheet(name, {"x\x07": ["y\x01"]}, {"n": np.array([math.nan])}) for name in names
    ]
    write_workbook(tmp_path / "w.xlsx", [("", "=2")], pages)
    stored = read_values(tmp_path / "w.xlsx")
    tabs = list(stored)
    assert len({tab.casefold() for tab in tabs}) == len(tabs) == 6
    assert all(len(tab) <= 31 for tab in tabs)
    assert stored[tabs[1]] == [("x\\u0007", "n"), ("y\\u0001",)]
    assert stored["About"] == [(None, "=2")] or stored["About"] == [("", "=2")]


def workbook(path: Path, **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        page = book.create_sheet(name)
        for row in rows:
            page.append(row)
    book.save(path)
    return path


def test_records_of_a_sheet_are_those_of_the_csv_file(tmp_path: Path) -> None:
    import datetime

    rows = [
        ["sex", "code", "born"],
        ["f", 7, datetime.date(2001, 2, 3)],
        ["m", "007", None],
        [None, None, None],
    ]
    path = workbook(tmp_path / "people.xlsx", people=rows, other=[["x"], [1]])
    with open_source(path, table="people") as source:
        assert source.columns() == ("sex", "code", "born")
        assert source.levels("code") == ("007", "7")
        assert source.levels("born") == ("2001-02-03",)
        assert source.counts(semidp.Schema([semidp.Feature("sex", "fm")])).counts.tolist() == [1, 1]
    with open_source(path, table="people", where="code <> '007'") as source:
        assert source.counts(semidp.Schema([semidp.Feature("sex", "fm")])).n == 1
    release = released(semidp.table("sex", "code"))
    release.save(tmp_path / "out", form="xlsx")
    # A sheet ends with its totals, which are no records.
    cells = {"table": "table", "count": "count", "where": "sex <> 'total' and code <> 'total'"}
    with open_source(tmp_path / "out" / WORKBOOK, **cells) as source:
        counts = source.counts(release.tables[0].schema).counts
    assert (counts == release.tables[0].counts).all()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([["sex", "Sex"], ["f", "m"]], "two columns of .* have the same name"),
        ([["sex", None, "age"], ["f", "m", 3]], "without a name"),
        ([["sex"], ["f", "m"]], "longer than its header"),
        ([["sex"]], "holds no record"),
        ([], "first row .* is empty"),
        ([["sex"], ["#N/A"]], "holds the error #N/A"),
        ([["sex", "age"], ["f", "=1+1"]], "a formula in .* has no stored value"),
    ],
)
def test_sheets_that_are_no_records_are_refused(
    tmp_path: Path, rows: list[list[Any]], reason: str
) -> None:
    path = workbook(tmp_path / "people.xlsx", people=rows)
    with pytest.raises(DataError, match=reason):
        open_source(path)


def test_a_sheet_is_named_and_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    path = workbook(tmp_path / "people.xlsx", people=[["sex"], ["f"]], more=[["sex"], ["m"]])
    with pytest.raises(InputError, match="several sheets: say which of people, more"):
        open_source(path)
    with pytest.raises(InputError, match="no sheet 'peple'"):
        open_source(path, table="peple")
    broken = tmp_path / "broken.xlsx"
    broken.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match="could not be read as a workbook"):
        open_source(broken)
    with zipfile.ZipFile(tmp_path / "empty.xlsx", "w") as archive:
        archive.writestr("secret", "f,m")
    with pytest.raises(InputError, match="could not be read as a workbook"):
        open_source(tmp_path / "empty.xlsx")
    with pytest.raises(InputError, match="there is no file"):
        open_source(tmp_path / "nowhere.xlsx")


def test_the_command_reads_and_writes_workbooks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [list(PEOPLE), *map(list, zip(*PEOPLE.values(), strict=True))]
    book = workbook(
        tmp_path / "people.xlsx",
        records=[["sex", "pay"], *([row[0], row[2]] for row in rows[1:])],
        x=[[1]],
    )
    words = [
        "release",
        str(book),
        "--from",
        "records",
        "--table",
        "sex",
        "--levels",
        "sex=f,m",
        "--mu",
        "1",
    ]
    words += [
        "--write",
        "xlsx",
        "--set",
        "title=Sexes",
        "--set",
        "note=One.",
        "--set",
        "round_to=5",
        "--set",
        "mark_below=9",
    ]
    assert command([*words, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert (tmp_path / "out" / WORKBOOK).exists()
    assert Release.load(tmp_path / "out").presentation.notes == ("One.",)
    assert command(["show", str(tmp_path / "out"), "--quiet"]) == 0
    capsys.readouterr()
    assert command([*words, "--write", "ods", "--out", str(tmp_path / "other")]) == 2
    assert "tables are written as csv, parquet, xlsx or sdmx, not 'ods'" in capsys.readouterr().err


SENTENCES = "could not be read as a workbook|the first row of .* is empty"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</row>", b"<"),
        (b't="inlineStr"', b't="s"'),
        (b'r="1"', b'r="999999999"'),
        (b'r="A1"', b'r="ZZZZZ1"'),
        (b"<sheetData>", b"<sheetData>\x00"),
    ],
)
def test_a_damaged_sheet_is_a_sentence(tmp_path: Path, old: bytes, new: bytes) -> None:
    rows = [["sex", "age"], ["f", 3], ["m", 4]]
    path = rezipped(workbook(tmp_path / "w.xlsx", people=rows), lambda xml: xml.replace(old, new))
    with pytest.raises(InputError, match=SENTENCES), open_source(path):
        pass


def test_a_stated_dimension_costs_nothing(tmp_path: Path) -> None:
    rows = [["sex", "age"], ["f", 3], ["m", 4]]
    path = rezipped(
        workbook(tmp_path / "w.xlsx", people=rows),
        lambda xml: re.sub(rb'ref="[^"]*"', b'ref="A1:XFD1048576"', xml),
    )
    with open_source(path) as source:
        assert source.levels("sex") == ("f", "m")


@pytest.mark.parametrize("part", ["xl/sharedStrings.xml", "xl/worksheets/sheet2.xml"])
def test_a_workbook_bomb_is_seen_before_it_is_unfolded(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = released(semidp.table("sex", "code"))
    release.save(tmp_path / "out", form="xlsx")
    path = tmp_path / "out" / WORKBOOK
    assert not cells_differ(release, path)
    assert not parts_differ(release, path)
    # 200 MB of spaces, which are 200 kB here
    rezipped(path, lambda xml: xml + b" " * 200_000_000, part)
    monkeypatch.setattr(openpyxl, "load_workbook", lambda *words, **named: pytest.fail("unfolded"))
    assert cells_differ(release, path)
    assert parts_differ(release, path)


def test_the_last_digits_of_another_processor_agree_and_no_others(tmp_path: Path) -> None:
    release = released(semidp.table("sex", "code"))
    release.save(tmp_path / "out", form="xlsx")
    path = tmp_path / "out" / WORKBOOK
    sheet = "xl/worksheets/sheet2.xml"
    whole = path.read_bytes()

    def changed(texts: re.Pattern[bytes], factor: float) -> bool:
        def replace(found: re.Match[bytes]) -> bytes:
            return b"<v>" + repr(float(found[1]) * factor).removesuffix(".0").encode()

        path.write_bytes(whole)
        before = zipfile.ZipFile(path).read(sheet)
        rezipped(path, lambda xml: texts.sub(replace, xml, count=1), sheet)
        assert zipfile.ZipFile(path).read(sheet) != before
        return parts_differ(release, path)

    real, count = re.compile(rb"<v>(-?\d+\.\d{9,})"), re.compile(rb"<v>([1-9]\d*)(?=</v>)")
    assert not changed(real, 1 + 1e-13)
    assert changed(real, 1 + 1e-7)
    assert changed(count, 2)


def test_a_workbook_with_rows_without_end_is_left_at_the_first(tmp_path: Path) -> None:
    release = released(semidp.table("sex", "code"))
    release.save(tmp_path / "out", form="xlsx")
    path = tmp_path / "out" / WORKBOOK
    last = b'<row r="2000000000"><c r="A2000000000"/></row></sheetData>'
    rezipped(path, lambda xml: xml.replace(b"</sheetData>", last), "xl/worksheets/sheet2.xml")
    assert cells_differ(release, path)
    assert parts_differ(release, path)


def rezipped(
    path: Path, change: Callable[[bytes], bytes], part: str = "xl/worksheets/sheet1.xml"
) -> Path:
    """Change one part of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[part] = change(parts.get(part, b""))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path
