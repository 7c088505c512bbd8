"""The workbook of a release (.xlsx): a first sheet that says what is exact and what is protected,
then a sheet for each table. Labels stay text, numbers have formats. Needs openpyxl.
"""

import itertools
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.present.report import sentences
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.presentation import Presentation, check_installed, refuse_rows, round_to_base
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.columns import LAST_DIGITS, Columns, PublishedColumns
from semidp.publish.results.published_table import ExactTotals, PublishedTable, exact_totals

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


@frozen(eq=False)
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
    totals
        How many of the last rows are totals, which filters leave where they are.
    """

    name: str
    texts: Mapping[str, Sequence[str]]
    numbers: Mapping[str, NDArray[Any]] = field(factory=dict)
    formats: Mapping[str, str] = field(factory=dict)
    styles: Mapping[str, Sequence[str]] = field(factory=dict)
    totals: int = 0

    @property
    def rows(self) -> int:
        """The number of rows below the header."""
        lengths = [len(column) for column in self.texts.values()]
        lengths += [len(values) for values in self.numbers.values()]
        return max(lengths, default=0)


STYLES: dict[str, dict[str, Any]] = {
    "exact": {"bold": True, "color": "005A8C"},
    "faint": {"italic": True, "color": "A84A00"},
    "total": {"bold": True},
}
"""The fonts of numbers: those published exactly, those that noise dominates, and other totals."""


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
    page.auto_filter.ref = f"A1:{get_column_letter(len(header))}{sheet.rows - sheet.totals + 1}"


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


_LEGEND = (
    ("bold and blue", "a number that is published exactly, or follows from such numbers"),
    ("bold", "a total of counts that have noise"),
    (
        "italic and brown",
        "a count that noise dominates: smaller than the half-width of its 95% interval",
    ),
)
_SMALLEST = 1e-6  # of standard errors that decide how many decimals are shown
_MOST_DECIMALS = 3  # of numbers without an error
_SHEET, _CELL = 100_000, 200  # bytes of XML for each sheet and each cell, beside texts


def save_workbook(release: ReleaseFiles, path: Path) -> None:
    """Write the workbook of a release.

    Parameters
    ----------
    release
        What is published.
    path
        The file to write.

    Examples
    --------
    >>> import semidp, tempfile
    >>> from semidp.present.report.release_workbook import opened_pages
    >>> people = {"sex": [*"ffm"], "region": [*"nsn"]}
    >>> release = semidp.release(
    ...     people, semidp.table("sex", "region"), exact=["sex", "region"], mu=1
    ... )
    >>> with tempfile.TemporaryDirectory() as root:
    ...     save_workbook(release, Path(root) / "tables.xlsx")
    ...     with opened_pages(Path(root) / "tables.xlsx") as pages:
    ...         list(pages)
    ['About', 'table', 'exact sex', 'exact region']
    """
    write_workbook(path, front_lines(release), sheets(release))


def front_lines(release: ReleaseFiles) -> list[tuple[str, str]]:
    """Return the lines of the first sheet: a heading, or "", and a sentence."""
    shown = release.presentation
    lines = [("Title", shown.title or sentences.name_results(release))]
    if not release.private:
        lines.append(
            (
                "NOT PRIVATE",
                "Drawn with a seed or by a mechanism meant for studies: do not publish this.",
            )
        )
    lines += _under("Contact", [shown.contact] if shown.contact else [])
    lines += _under("Notes", shown.notes)
    exact = sentences.exact_part(release.scope.dataspace, release.scope)
    lines += _under("Published exactly", exact)
    lines += _under("With noise", sentences.noisy_part(release))
    protected = [*sentences.explain_protection(release), sentences.describe_unit(release)]
    lines += _under("Protected", protected)
    lines += _under("How strongly", sentences.release_strength(release))
    lines += _under("Warnings", [*release.scope.warnings, *sentences.cautions(release)])
    lines += _under("Disclosed besides", sentences.together_disclosed(release.scope.disclosures))
    lines += [(f"Numbers {style}", meaning) for style, meaning in _LEGEND]
    if shown.mark_below is not None:
        lines.append(("A star", f"a count below {shown.mark_below:,}"))
    lines.append(("Made", f"{release.created} by semidp {release.versions['semidp']}"))
    lines.append(
        (
            "Other files",
            "report.html says all of this at length; the CSV files hold the same numbers",
        )
    )
    return lines


def _under(heading: str, texts: Any) -> list[tuple[str, str]]:
    """Return texts of which the first stands beside the heading."""
    lines = [("", text) for text in texts]
    if lines:
        lines[0] = (heading, lines[0][1])
    return lines


def sheets(release: ReleaseFiles) -> Iterator[WorkbookSheet]:
    """Yield a sheet for everything that is published, then one for each exact total."""
    shown = release.presentation
    for result in release.results:
        # A table of units has a second name, for commands.
        names: dict[PublishedColumns, str] = {}
        for name, published in result.columns_by_name().items():
            names.setdefault(published, name)
        for published, name in names.items():
            sheet = _of_columns(name, published.columns(), shown)
            if isinstance(published, PublishedTable):
                sheet = _with_totals(sheet, published, release.scope.dataspace, shown)
            yield sheet
    for total in exact_totals(release.scope.dataspace):
        yield _of_total(total)


def _of_columns(name: str, columns: Columns, shown: Presentation) -> WorkbookSheet:
    """Return the sheet of a file: its labels, its numbers with the digits that their errors
    leave.
    """
    texts = {}
    for heading, labels in columns.labels.items():
        texts[heading] = labels.column(columns.rows).tolist()
    numbers = dict(columns.numbers)
    errors = numbers.get("standard_error")
    decimals = 0 if errors is None else _decimals(errors)
    formats = {}
    for heading, values in numbers.items():
        # Without an error, as of quantiles, a column has the decimals that its values have.
        digits = _count_decimals(values) if errors is None else decimals
        formats[heading] = decimals_format(0 if values.dtype.kind == "i" else digits)
    if errors is not None:
        # An error of 0.04 is not to be shown as 0.
        formats["standard_error"] = decimals_format(max(decimals, 1))
    for heading in columns.numbers:
        # A number with an error of its own, such as answered beside answered_error, has the digits
        # of that.
        beside = numbers.get(f"{heading}_error")
        if beside is not None:
            digits = _decimals(beside)
            formats[heading] = decimals_format(digits)
            formats[f"{heading}_error"] = decimals_format(max(digits, 1))
    styles = {"count": _count_styles(numbers)} if "count" in numbers else {}
    if "count" in numbers:
        numbers, formats = _apply_presentation(numbers, formats, shown)
    return WorkbookSheet(name, texts, numbers, formats, styles)


def _of_total(total: ExactTotals) -> WorkbookSheet:
    """Return the sheet of an exact total."""
    sheet = _of_columns(f"exact {total.title}", total.columns(), Presentation())
    styles = {heading: ["exact"] * sheet.rows for heading in sheet.numbers}
    return evolve(sheet, styles=styles)


def _with_totals(
    sheet: WorkbookSheet, table: PublishedTable, public: Dataspace, shown: Presentation
) -> WorkbookSheet:
    """Return the sheet of a table with the totals of its counts below: of each level, and of all
    cells. They have no error of their own unless they are exact.
    """
    asked = table.as_asked()
    totals = list(_count_totals(asked, public.for_kind(table.counted)))
    texts = {}
    for place, (heading, labels) in enumerate(sheet.texts.items()):
        texts[heading] = [*labels, *(total.labels[place] for total in totals)]
    below = {"count": [total.count for total in totals]}
    rounded = _rounded_heading(shown)
    if rounded in sheet.numbers:
        below[rounded] = [
            total.count if total.exact else round_to_base(total.count, shown.round_to or 1)
            for total in totals
        ]
    numbers = {}
    for heading, values in sheet.numbers.items():
        numbers[heading] = np.append(values, below.get(heading, [math.nan] * len(totals)))
    marks = ["exact" if total.exact else "total" for total in totals]
    styles = {"count": [*sheet.styles["count"], *marks]}
    return evolve(sheet, texts=texts, numbers=numbers, styles=styles, totals=len(totals))


@frozen
class _CountTotal:
    """A sum of counts: a label for each column, "total" where all levels are added up."""

    labels: tuple[str, ...]
    count: float
    exact: bool


def _count_totals(table: PublishedTable, public: Dataspace) -> Iterator[_CountTotal]:
    """Yield the sums of a table's counts for every level of every depth, then of all cells."""
    features = table.schema.features
    width = len(table.schema.names)
    before = 0
    for axis, feature in enumerate(features):
        other_axes = tuple(place for place in range(len(features)) if place != axis)
        by_leaf = table.counts.sum(axis=other_axes).tolist()
        paths = feature.paths()
        for depth in range(1, len(feature.names) + 1):
            # The cells of a table of one feature are its finest totals already.
            if len(features) == 1 and depth == len(feature.names):
                continue
            sums: dict[tuple[str, ...], float] = {}
            for path, count in zip(paths, by_leaf, strict=True):
                sums[path[:depth]] = sums.get(path[:depth], 0) + count
            exact = _is_exact(public, feature.names[:depth])
            for path, count in sums.items():
                after = ("total",) * (width - before - depth)
                yield _CountTotal((*("total",) * before, *path, *after), count, exact)
        before += len(feature.names)
    yield _CountTotal(("total",) * width, table.counts.sum().item(), _is_exact(public, ()))


def _is_exact(public: Dataspace, names: Sequence[str]) -> bool:
    """Whether the counts by these features are published exactly."""
    return {*names} <= {*public.schema.names} and public.publishes(Margin(*sorted(names)))


def _decimals(errors: NDArray[np.float64]) -> int:
    """Return how many decimals a column deserves: those that leave two digits of its median
    standard error.
    """
    noisy = errors[np.isfinite(errors) & (errors > _SMALLEST)]
    if not noisy.size:
        return 0
    return min(max(1 - math.floor(math.log10(float(np.median(noisy)))), 0), 6)


def _count_decimals(values: NDArray[np.float64]) -> int:
    """Return how many decimals the values of a column have, at most three.

    >>> [_count_decimals(np.array(values)) for values in ([1344.0, 8.0], [0.5, math.nan], [1 / 3])]
    [0, 1, 3]
    """
    finite = values[np.isfinite(values)]
    for digits in range(_MOST_DECIMALS):
        if np.allclose(np.round(finite, digits), finite, rtol=0, atol=1e-9):
            return digits
    return _MOST_DECIMALS


def _count_styles(numbers: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the style of every count: exact where there is no error, faint where noise
    dominates.
    """
    counts = numbers["count"]
    if "estimate" not in numbers:
        # The sizes of groups are exact, whatever is published of the groups.
        return ["exact"] * len(counts)
    errors = numbers["standard_error"]
    half = (
        numbers["estimate_high"] - numbers["estimate"] if "estimate_high" in numbers else 2 * errors
    )
    styles = np.where(counts < half - 3e-6, "faint", "")
    styles[errors == 0] = "exact"
    return [str(style) for style in styles]


def _apply_presentation(
    numbers: dict[str, NDArray[Any]], formats: dict[str, str], shown: Presentation
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return numbers with a column of rounded counts, and formats that mark small counts, where
    asked for.
    """
    if shown.mark_below is not None:
        # A format with a condition: small counts have a star, and stay numbers.
        plain = formats["count"]
        formats = {**formats, "count": f'[<{shown.mark_below}]{plain}"*";{plain}'}
    if shown.round_to is None or "estimate" not in numbers:
        return numbers, formats
    counts = numbers["count"]
    in_steps = [round_to_base(count, shown.round_to) for count in counts.tolist()]
    heading = _rounded_heading(shown)
    # exact counts are never rounded
    shown_counts = np.where(numbers["standard_error"] == 0, counts, in_steps)
    return {**numbers, heading: shown_counts}, {**formats, heading: decimals_format(0)}


def _rounded_heading(shown: Presentation) -> str:
    return f"count, in multiples of {shown.round_to}"


def parts_differ(release: ReleaseFiles, path: Path) -> bool:
    """Whether a workbook is another than the one that a release writes, but for the time of
    writing.
    """
    check_installed()
    with TemporaryDirectory() as root:
        save_workbook(release, Path(root) / path.name)
        with zipfile.ZipFile(Path(root) / path.name) as ours, zipfile.ZipFile(path) as theirs:
            # Sizes first: a workbook of somebody else's may unfold to any.
            if ours.namelist() != theirs.namelist() or any(
                part.file_size > _MOST_LONGER * ours.getinfo(part.filename).file_size
                for part in theirs.infolist()
            ):
                return True
            return not all(
                _agree(_undated(ours.read(name)), _undated(theirs.read(name)))
                for name in ours.namelist()
            )


def _agree(one: bytes, other: bytes) -> bool:
    """Whether two parts of a workbook are the same, real numbers but for their last digits."""
    if one == other:
        return True
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=False)
    different = [pair for pair in pairs if pair[0] != pair[1]]
    if _NUMBER.sub(b"<v>", one) != _NUMBER.sub(b"<v>", other):
        return False
    left, right = (np.array(texts, dtype=float) for texts in zip(*different, strict=True))
    return bool(np.allclose(left, right, rtol=LAST_DIGITS, atol=0))


_MOST_LONGER = 2  # times as long as ours: numbers may have other last digits
# A real number: whole ones have no point and no exponent, and are compared to the last digit.
_NUMBER = re.compile(rb"<v>(-?\d+(?:\.\d+(?:e[-+]\d+)?|e[-+]\d+))(?=</v>)")


def _undated(part: bytes) -> bytes:
    return re.sub(rb"<dcterms:\w+ [^<]*T[\d:]+Z?<", b"", part)


def cells_differ(release: ReleaseFiles, path: Path) -> bool:
    """Whether the cells of a workbook hold something else than a release publishes."""
    expected: list[list[tuple[Any, ...]]] = [
        [(heading or "", text) for heading, text in front_lines(release)]
    ]
    for sheet in sheets(release):
        header = (*sheet.texts, *sheet.numbers)
        columns = [*sheet.texts.values(), *(values.tolist() for values in sheet.numbers.values())]
        expected.append([header, *zip(*columns, strict=True)])
    # Names of tabs may have been shortened: sheets are compared in their order.
    pages = [list(map(_texts, page)) for page in expected]
    size = sum(_SHEET + sum(map(_most_bytes, page)) for page in pages)
    try:
        with opened_pages(path, most=size) as stored:
            if len(stored) != len(pages):
                return True
            # row by row, up to the first difference: a sheet may claim any number of them
            for page, rows in zip(pages, stored.values(), strict=True):
                for ours, theirs in itertools.zip_longest(page, rows):
                    if ours is None or theirs is None or ours != _texts(theirs):
                        return True
    except Exception:  # whatever openpyxl makes of a damaged file
        return True
    return False


def _most_bytes(texts: tuple[str, ...]) -> int:
    """The bytes of a row in a workbook, at most: a letter may be written as &quot; is."""
    return sum(_CELL + 6 * len(text) for text in ("", *texts))


def _texts(row: tuple[Any, ...]) -> tuple[str, ...]:
    """Write every cell as text: an empty one and a number that is none are the same, and empty ends
    are left out.
    """
    texts = [_cell_text(value) for value in row]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts)


def _cell_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, (int, float)):
        # A workbook holds numbers to sixteen digits.
        return f"{value:.12g}"
    return str(value)
