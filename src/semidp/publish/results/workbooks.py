"""Sheets of a workbook (.xlsx): labels stay text, numbers have formats, the header stays in view.
Needs openpyxl.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused

WORKBOOK = "tables.xlsx"
"""What the workbook of a release is called."""

MOST_ROWS = 2**20 - 1
"""The rows that a sheet holds below its header."""

_LONGEST_NAME = 31
_LONGEST_CELL = 32_767
_NOT_IN_NAMES = re.compile(r"[\[\]:*?/\\]")
# What a workbook cannot hold is written out, as JSON would write it.
_NOT_IN_CELLS = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f]")
_WIDEST = 60
_FRONT_WIDTH = 100
_LINE = 15  # points
_FONT = {"name": "Calibri", "size": 11}
_MEASURED_ROWS = 1000


@dataclass(frozen=True, eq=False)
class WorkbookSheet:
    """One sheet: columns of text, then columns of numbers, each with a format and perhaps a style a
    row.

    Parameters
    ----------
    name
        What the tab is called; it is shortened, and told apart from others.
    texts
        The columns of labels.
    numbers
        The columns of numbers; what is not finite is an empty cell.
    formats
        How the numbers of a column are shown, in the words of a spreadsheet.
    styles
        For columns of numbers the style of every row: a key of `STYLES`, or "".
    """

    name: str
    texts: Mapping[str, Sequence[str]]
    numbers: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    styles: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of rows below the header."""
        lengths = [len(column) for column in self.texts.values()]
        lengths += [len(values) for values in self.numbers.values()]
        return max(lengths, default=0)


STYLES: dict[str, dict[str, Any]] = {
    "exact": {"bold": True, "color": "005A8C"},
    "faint": {"italic": True, "color": "A84A00"},
}
"""The fonts of numbers: those published exactly, and those in which noise dominates."""


def refuse_rows(name: str, rows: int) -> None:
    """Refuse a table that a sheet does not hold.

    >>> refuse_rows("sex-age", 2_000_000)
    Traceback (most recent call last):
    semidp.errors.Refused: 'sex-age' has 2,000,000 rows, and a sheet of a workbook holds 1,048,575:
    write csv or parquet
    """
    if rows > MOST_ROWS:
        raise Refused(
            f"{name!r} has {rows:,} rows, and a sheet of a workbook holds {MOST_ROWS:,}: write csv"
            " or parquet"
        )


def check_installed() -> None:
    """Refuse to go on where workbooks cannot be read or written."""
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise InputError("a workbook needs openpyxl: install semidp[excel]") from None


def decimals_format(decimals: int) -> str:
    """Return the format of numbers with `decimals` decimals.

    >>> decimals_format(0), decimals_format(2)
    ('#,##0', '#,##0.00')
    """
    return "#,##0" + ("." + "0" * decimals if decimals else "")


def write_workbook(
    path: Path, front: Sequence[tuple[str, str]], sheets: Iterable[WorkbookSheet]
) -> None:
    """Write a workbook: a first sheet of sentences, then sheets of tables.

    Parameters
    ----------
    path
        Where to write.
    front
        The lines of the first sheet: a heading each, or "", and a sentence.
    sheets
        The others.
    """
    check_installed()
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    _write_front(book, front)
    # The first sheet has that name already.
    names = {"about"}
    for sheet in sheets:
        refuse_rows(sheet.name, sheet.rows)
        _write_sheet(book, sheet, _tab_name(sheet.name, names))
    book.save(path)


def _write_front(book: Any, lines: Sequence[tuple[str, str]]) -> None:
    """Write the sheet that says what the others hold."""
    from openpyxl.styles import Alignment, Font

    page = book.create_sheet("About")
    _fit_to_paper(page)
    page.column_dimensions["A"].width = 24
    page.column_dimensions["B"].width = _FRONT_WIDTH
    for number, (heading, sentence) in enumerate(lines, start=1):
        # Spreadsheets make no room for wrapped lines that they did not write themselves.
        page.row_dimensions[number].height = _LINE * (1 + len(sentence) // _FRONT_WIDTH)
        first, second = _text_cell(page, heading), _text_cell(page, sentence)
        first.font = Font(bold=True, **_FONT)
        first.alignment = Alignment(vertical="top")
        second.alignment = Alignment(wrap_text=True, vertical="top")
        page.append([first, second])


def _write_sheet(book: Any, sheet: WorkbookSheet, name: str) -> None:
    from openpyxl.styles import Alignment, Font, PatternFill
    from openpyxl.utils import get_column_letter

    page = book.create_sheet(name)
    # A sheet that is written row by row takes its widths and its frozen header first.
    page.freeze_panes = "A2"
    _fit_to_paper(page)
    # A long table is printed on several pages: each has the header, and says what it is.
    page.print_title_rows = "1:1"
    page.HeaderFooter.oddFooter.center.text = "&A, page &P of &N"
    for place, column in enumerate((*sheet.texts, *sheet.numbers), start=1):
        shown = sheet.texts[column][:_MEASURED_ROWS] if column in sheet.texts else ["1,234,567"]
        width = max(map(len, (column, *shown)), default=8)
        page.column_dimensions[get_column_letter(place)].width = min(width + 3, _WIDEST)
    header = []
    for column in (*sheet.texts, *sheet.numbers):
        cell = _text_cell(page, column)
        cell.font = Font(bold=True, **_FONT)
        cell.fill = PatternFill("solid", fgColor="E8EDF1")
        cell.alignment = Alignment(horizontal="left" if column in sheet.texts else "right")
        header.append(cell)
    page.append(header)
    # Fonts are shared by all cells: a workbook holds each once.
    fonts = {key: Font(**style, **_FONT) for key, style in STYLES.items()}
    numbers = {column: values.tolist() for column, values in sheet.numbers.items()}
    for row in range(sheet.rows):
        cells = [_text_cell(page, values[row]) for values in sheet.texts.values()]
        for column, values in numbers.items():
            style = sheet.styles[column][row] if column in sheet.styles else ""
            cells.append(
                _number_cell(page, values[row], sheet.formats.get(column), fonts.get(style))
            )
        page.append(cells)
    page.auto_filter.ref = f"A1:{get_column_letter(len(header))}{sheet.rows + 1}"


def _fit_to_paper(page: Any) -> None:
    """Let a sheet be printed as wide as the paper."""
    page.page_setup.orientation = "landscape"
    page.page_setup.fitToWidth = 1
    page.page_setup.fitToHeight = 0
    page.sheet_properties.pageSetUpPr.fitToPage = True


def _text_cell(page: Any, text: str) -> Any:
    """Return a cell that stays text: no formula, no date, no number."""
    from openpyxl.cell import WriteOnlyCell

    held = _NOT_IN_CELLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)[:_LONGEST_CELL]
    cell = WriteOnlyCell(page, value="")
    # The value is set behind the back of the class, which would take "=1+1" for a formula.
    cell._value = held
    cell.data_type = "s"
    cell.number_format = "@"
    cell.quotePrefix = held.startswith(("=", "+", "-", "@"))
    return cell


def _number_cell(page: Any, value: float, number_format: str | None, font: Any) -> Any:
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(page, value=value if np.isfinite(value) else None)
    if number_format is not None:
        cell.number_format = number_format
    if font is not None:
        cell.font = font
    return cell


def _tab_name(name: str, taken: set[str]) -> str:
    """Return what a tab is called: short, without what spreadsheets refuse, and told apart in
    capitals or not.
    """
    plain = _NOT_IN_NAMES.sub("_", name).strip("'") or "table"
    tab, number = plain[:_LONGEST_NAME], 1
    while tab.casefold() in taken:
        number += 1
        ending = f" ({number})"
        tab = plain[: _LONGEST_NAME - len(ending)] + ending
    taken.add(tab.casefold())
    return tab


@contextmanager
def opened_pages(
    path: Path, most: int | None = None
) -> Iterator[dict[str, Iterator[tuple[Any, ...]]]]:
    """Yield the rows of every sheet of a workbook, read as they are asked for.

    A `ValueError` where it would unfold to more than `most` bytes.
    """
    check_installed()
    from openpyxl import load_workbook

    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    if most is not None and size > most:
        raise ValueError("a workbook that is larger than it should be")
    book = load_workbook(path, read_only=True)
    try:
        for page in book.worksheets:
            page.reset_dimensions()  # a sheet may state any number of columns
        yield {page.title: page.iter_rows(values_only=True) for page in book.worksheets}
    finally:
        book.close()
