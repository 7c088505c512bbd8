"""Records in a sheet of a workbook (.xlsx), read as text as the columns of a CSV file are. Needs
openpyxl.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, did_you_mean
from semidp.promise.schema.features import value_text

SUFFIXES = (".xlsx", ".xlsm")
"""The names of workbooks that are read."""


_MOST_ROWS = 2**20  # that a sheet has


def is_workbook(path: str) -> bool:
    """Whether a file is a workbook, by its name.

    >>> is_workbook("people.XLSX"), is_workbook("people.csv")
    (True, False)
    """
    return path.lower().endswith(SUFFIXES)


def sheet_columns(path: str, sheet: str | None = None) -> dict[str, NDArray[Any]]:
    """Return the columns of a sheet as text; an empty cell is missing.

    The first row names the columns. Dates are written as 2026-01-31. Formulas count with the values
    that the spreadsheet stored beside them.

    Parameters
    ----------
    path
        The workbook.
    sheet
        The name of the sheet; a workbook of one sheet needs none.
    """
    with _open_workbook(path, values=True) as book:
        name = _choose_sheet(book, path, sheet)
        rows = _rows(book[name], path)
        header = _header(next(rows, ()), path)
        # Every column is text: whether it holds numbers is asked later, as of a CSV file.
        columns: list[list[str | None]] = [[] for _ in header]
        gaps = False
        for row in rows:
            texts = [_text(value) for value in row[: len(header)]]
            if any(value is not None for value in row[len(header) :]):
                raise DataError(
                    f"a row of {path} is longer than its first row: name every column there"
                )
            if not any(text is not None for text in texts):
                # Rows without any value lie between records, or below them.
                continue
            texts += [None] * (len(header) - len(texts))
            gaps = gaps or None in texts
            for column, text in zip(columns, texts, strict=True):
                column.append(text)
    if gaps:
        _refuse_unvalued(path, name)
    return {
        name: np.array(column, dtype=object) for name, column in zip(header, columns, strict=True)
    }


@contextmanager
def _open_workbook(path: str, *, values: bool) -> Iterator[Any]:
    """Open a workbook for reading, with the values of formulas or with the formulas themselves."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise InputError("a workbook is read with openpyxl: install semidp[excel]") from None
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    try:
        book = load_workbook(path, read_only=True, data_only=values)
    except Exception:  # whatever a damaged file raises: it may quote what the file holds
        raise _workbook_error(path) from None
    try:
        yield book
    finally:
        book.close()


def _workbook_error(path: str) -> InputError:
    return InputError(
        f"{path} could not be read as a workbook: open it in a spreadsheet and save it anew"
    )


def _rows(page: Any, path: str) -> Iterator[tuple[Any, ...]]:
    """Yield the values of a sheet, row by row."""
    page.reset_dimensions()  # as stated, they would fill every row with empty cells
    rows = page.iter_rows(values_only=True)
    for _ in range(_MOST_ROWS + 1):
        try:
            row = next(rows, None)
        except Exception:  # a damaged sheet, as above
            raise _workbook_error(path) from None
        if row is None:
            return
        yield row
    raise _workbook_error(path)


def _choose_sheet(book: Any, path: str, sheet: str | None) -> str:
    """Return the name of the sheet to read."""
    names = [page.title for page in book.worksheets]
    if sheet is None:
        if len(names) == 1:
            return str(names[0])
        raise InputError(
            f"{path} has several sheets: say which of {', '.join(names)}", needs="sheet"
        )
    if sheet not in names:
        raise InputError(
            f"{path} has no sheet {sheet!r}{did_you_mean(sheet, names)}; there are"
            f" {', '.join(names)}"
        )
    return sheet


def _header(row: tuple[Any, ...], path: str) -> list[str]:
    """Return the names of the columns: the first row, up to the last cell that holds something."""
    names = [_text(value) for value in row]
    while names and names[-1] is None:
        names.pop()
    if not names:
        raise DataError(f"the first row of {path} is empty: it names the columns")
    if None in names:
        raise DataError(
            f"the first row of {path} leaves a column without a name: name it, or remove the column"
        )
    columns = [str(name) for name in names]
    if len({name.casefold() for name in columns}) < len(columns):
        raise DataError(f"two columns of {path} have the same name: rename one")
    return columns


def _text(value: Any) -> str | None:
    """Write a cell as the text of a level: whole numbers without a point, dates as 2026-01-31."""
    if isinstance(value, datetime):
        whole_day = value.time() == time(0)
        return value.date().isoformat() if whole_day else value.isoformat(sep=" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, str):
        if value.startswith("#") and value in _ERRORS:
            raise DataError(
                f"a cell of the sheet holds the error {value}: mend it, or leave it empty"
            )
        return value or None
    return value_text(value)


_ERRORS = {"#N/A", "#VALUE!", "#REF!", "#NAME?", "#DIV/0!", "#NULL!", "#NUM!"}


def _refuse_unvalued(path: str, sheet: str) -> None:
    """Refuse formulas whose values were never stored: they would count as missing."""
    with _open_workbook(path, values=True) as valued, _open_workbook(path, values=False) as written:
        pages = zip(
            _rows(valued[sheet], path),
            _rows(written[sheet], path),
            strict=False,
        )
        for values, formulas in pages:
            for value, formula in zip(values, formulas, strict=False):
                if value is None and formula is not None:
                    raise DataError(
                        f"a formula in {path} has no stored value: open it in a spreadsheet and"
                        " save it anew"
                    )
