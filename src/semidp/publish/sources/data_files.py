"""Files on disk: the CSV and Parquet files that a name matches, their headers, and why one cannot
be read; sheets of a workbook; text in the encoding of Windows.

No message quotes the content of a file. CSV and Parquet files are read in `duck_files`. A sheet
(.xlsx, needs openpyxl) is read as text, like the columns of a CSV file. Text in the encoding of
Windows, which DuckDB does not know, is read whole into memory.
"""

import codecs
import contextlib
import csv
import glob
import gzip
import itertools
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, did_you_mean
from semidp.promise.schema.features import value_text
from semidp.publish.written_values import is_unicode

_DELIMITERS = ",;\t|"

_SUFFIXES = {".csv": "CSV", ".tsv": "CSV", ".txt": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}

_FOREIGN = {
    **dict.fromkeys((".xls", ".xlsb", ".ods", ".numbers"), "a workbook of another kind than .xlsx"),
    **dict.fromkeys(
        (".dta", ".sav", ".por", ".sas7bdat", ".xpt", ".rds", ".rdata"),
        "a file of a statistics program",
    ),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".xml"), "a file of nested records"),
    **dict.fromkeys((".zip", ".7z", ".bz2", ".xz", ".zst", ".tar"), "an archive"),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".avro"), "a columnar file other than Parquet"),
}

# xlsx and zip, xls, 7z, Parquet
_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"7z\xbc\xaf\x27\x1c", b"PAR1")

_MOST_LINES = 5_000_000  # that are looked at for a record that is longer or shorter than the header

_LONGEST_LINE = 16_777_216


def list_files(pattern: str) -> tuple[list[str], str]:
    """Return the files that `pattern` names, and whether they are CSV or Parquet."""
    if Path(pattern).is_dir():
        files = _folder(Path(pattern))
    else:
        files = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
    if not files:
        raise InputError(f"there is no file {pattern}")
    folders = [file for file in files if Path(file).is_dir()]
    if folders:
        raise InputError(
            f"{pattern} matches the folder {folders[0]}: name files, or one folder of Parquet files"
        )
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise InputError(f"{pattern} matches both CSV and Parquet files: name one kind")
    for file in files:
        if not Path(file).is_file():
            raise InputError(
                f"{file} is not a regular file, and data are read more than once: copy them to a"
                " file"
            )
        if not os.access(file, os.R_OK):
            raise InputError(f"the file {file} may not be read: check its permissions")
    paths = [os.path.abspath(file) for file in files]
    for path in paths:
        if not is_unicode(path):
            raise InputError(f"the file name {path!a} is not UTF-8: rename it")
    return paths, kinds.pop()


def _is_hidden(path: Path) -> bool:
    """Whether a file or a folder above it is hidden, such as those next to data of Spark."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def _folder(folder: Path) -> list[str]:
    """Return the data files of a folder of Parquet files; those with _ or . before their names are
    no data.
    """
    if (folder / "release.json").exists():
        raise InputError(f"{folder} is a release, not data: name the records that it was made from")
    below = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in (*_SUFFIXES, ".gz") and path.is_file()
    ]
    seen = [path for path in below if not _is_hidden(path.relative_to(folder))]
    if not any(_SUFFIXES.get(path.suffix.lower()) == "Parquet" for path in seen):
        raise InputError(
            f"the folder {folder} holds no Parquet file: name its files, as in '{folder / '*.csv'}'"
        )
    return sorted(str(path) for path in seen)


def _kind(file: str) -> str:
    suffix = _suffix(file)
    if suffix in _FOREIGN:
        raise InputError(
            f"{file} is {_FOREIGN[suffix]}, which semidp does not read: save it as CSV (UTF-8) or"
            " Parquet"
        )
    if suffix not in _SUFFIXES:
        raise InputError(
            f"the name {file} does not say what it holds: end it in .csv, .tsv, .csv.gz or .parquet"
        )
    return _SUFFIXES[suffix]


def _suffix(file: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes if suffix.lower() != ".gz"]
    return suffixes[-1] if suffixes else ""


def read_stamp(file: str) -> tuple[int, ...]:
    """Return a stamp that changes when a file is written to or replaced."""
    with contextlib.suppress(OSError):
        stat = os.stat(file)
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
    return ()


def diagnose_csv(file: str, encoding: str | None = None) -> str | None:
    """Say why a CSV file cannot be read, if that can be seen: its encoding, or its records.

    At most so many characters are examined. The content of a data file may not appear in
    messages, so neither a value nor a line number is given.
    """
    if _SUFFIXES.get(_suffix(file)) != "CSV" or not os.path.exists(file):
        return None
    name = os.path.basename(file)
    python, duck = encoding_names(encoding)
    encoding = None if duck == "utf-8" else encoding
    try:
        with gzip.open(file) if file.lower().endswith(".gz") else open(file, "rb") as binary:
            start = binary.read(4096)
        if not start.strip():
            return f"{name} is empty: it needs a header that names its columns, and records"
        if start.startswith(_ARCHIVES):
            return (
                f"{name} is a workbook or an archive and no text, whatever its name says: save it"
                " as CSV (UTF-8)"
            )
        if encoding is None and (
            start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            or start.count(0) > len(start) // 4
        ):
            return f"{name} is text in UTF-16: save it as UTF-8, or say so (⟨encoding utf-16⟩)"
        found = _diagnose_ragged(file, name, python)
        if found is not None or encoding is None:
            return found
        return f"{name} could not be read in {encoding}: save it as UTF-8"
    except UnicodeDecodeError:
        if encoding is not None:
            return f"{name} holds text that is not {encoding}: save it as UTF-8"
        return (
            f"{name} holds text that is not UTF-8, but Latin-1 or Windows-1252 perhaps: save it as"
            " UTF-8, or say so (⟨encoding latin-1⟩ or windows-1252)"
        )
    except (OSError, EOFError, zlib.error):
        return f"{name} could not be read to its end: check that it is whole"
    except (ValueError, csv.Error, StopIteration):
        return None


def _diagnose_ragged(file: str, name: str, encoding: str) -> str | None:
    """Say so where a record has another number of values than the header has names, or ends
    differently than others.
    """
    delimiter = detect_delimiter(file, encoding)
    with _open_text(file, encoding) as text:
        lines = itertools.takewhile(bool, iter(lambda: text.readline(_LONGEST_LINE), ""))
        rows = csv.reader(itertools.islice(lines, _MOST_LINES), delimiter=delimiter, strict=True)
        names = next(rows)
        try:
            if any(row and len(row) != len(names) for row in rows):
                return (
                    f"{name} has records with more or fewer values than its header has names: put"
                    " text that holds the delimiter in quotes, and keep one record a line"
                )
        except csv.Error:
            return (
                f"{name} has a quote that is not closed, or text after one: write a quote inside a"
                " value twice"
            )
        if isinstance(text.newlines, tuple):  # a single one is a text
            return f"{name} ends its lines in several ways: save it again, so that all end alike"
    return None


_ENCODINGS = {
    "utf-8": ("utf-8-sig", "utf-8"),
    "latin-1": ("latin-1", "latin-1"),
    "utf-16": ("utf-16", "utf-16"),
}


def encoding_names(name: str | None) -> tuple[str, str]:
    """Return the names of an encoding in Python and DuckDB."""
    if name is None:
        return _ENCODINGS["utf-8"]
    usual = (
        name.lower().replace("_", "-").replace("iso-8859-1", "latin-1").replace("latin1", "latin-1")
    )
    if usual not in _ENCODINGS:
        every = ", ".join(_ENCODINGS)
        raise InputError(
            f"CSV files are read in {every}, windows-1252, not {name[:40]!r}: save the file as"
            " UTF-8"
        )
    return _ENCODINGS[usual]


def _open_text(file: str, encoding: str = "utf-8-sig") -> TextIO:
    if file.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return open(file, encoding=encoding, newline="")


def detect_delimiter(file: str, encoding: str = "utf-8-sig") -> str:
    """Return the delimiter that the header of a CSV file uses most, outside quotes."""
    with _open_text(file, encoding) as text:
        header = text.readline(_LONGEST_LINE)
    if not header.strip():
        raise ValueError("a CSV file needs a header")
    bare = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=bare.count)


def read_header(file: str, delimiter: str, encoding: str = "utf-8-sig") -> list[str]:
    with _open_text(file, encoding) as text:
        names = next(
            csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter=delimiter)
        )
    if any("\x00" in name for name in names):
        raise ValueError("no text in UTF-8, though its bytes could be")
    return [name.strip() for name in names]  # as DuckDB does


def common_header(headers: Sequence[list[str]], pattern: str) -> list[str]:
    """Return the names in the headers of CSV files, which must be the same in each."""
    if any(header != headers[0] for header in headers):
        raise DataError(
            f"the files of {pattern} have different headers: name files with the same columns in"
            " one order"
        )
    return headers[0]


def _partition_keys(file: Path) -> list[str]:
    """Return the columns that the folders above a file name, such as sex of sex=f."""
    keys = []
    for folder in file.parent.parts:
        key, equals, _ = folder.partition("=")
        if equals:
            keys.append(key)
    return keys


def partition_columns(files: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that folders such as sex=f give to every file, and that the files
    themselves lack.
    """
    keys = [_partition_keys(Path(file)) for file in files]
    if any(set(those) != set(keys[0]) for those in keys):
        raise InputError(
            "the files lie in folders of different partitions: each needs the same, such as"
            " sex=f/region=n"
        )
    lower_names = {name.lower() for name in names}
    return [key for key in dict.fromkeys(keys[0]) if key and key.lower() not in lower_names]


SUFFIXES = (".xlsx", ".xlsm")
"""The names of workbooks that are read."""


_MOST_ROWS = 2**20  # that a sheet has


def is_workbook(path: str) -> bool:
    """Whether a file is a workbook, by its name.

    >>> is_workbook("people.XLSX"), is_workbook("people.csv")
    (True, False)
    """
    return path.lower().endswith(SUFFIXES)


def sheet_columns(
    path: str, sheet: str | None = None, header_rows: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return the columns of a sheet as text; an empty cell is missing.

    The first rows name the columns. Dates are written as 2026-01-31. Formulas count with the values
    that the spreadsheet stored next to them.

    Parameters
    ----------
    path
        The workbook.
    sheet
        The name of the sheet; a workbook of one sheet needs none.
    header_rows
        How many rows name the columns (default: 1).
    """
    with _open_workbook(path, values=True) as book:
        name = _choose_sheet(book, path, sheet)
        rows = _rows(book[name], path)
        header = _header(list(itertools.islice(rows, header_rows or 1)), path)
        # Every column is text: whether it holds numbers is asked later, as of a CSV file.
        columns: list[list[str | None]] = [[] for _ in header]
        gaps = False
        for row in rows:
            texts = [_text(value) for value in row[: len(header)]]
            if any(value is not None for value in row[len(header) :]):
                raise DataError(
                    f"a row of {path} is longer than its header: name every column there, or say"
                    " how many rows the header has, with its title (⟨header_rows 2⟩)"
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
    with contextlib.ExitStack() as opened:
        # such as one that quotes a date which is none
        opened.enter_context(warnings.catch_warnings(action="ignore"))
        try:
            # Opened here, since the package leaves a damaged file open.
            file = opened.enter_context(open(path, "rb"))
            book = load_workbook(file, read_only=True, data_only=values)
        except Exception:  # whatever a damaged file raises: it may quote what the file holds
            raise _workbook_error(path) from None
        opened.callback(book.close)
        yield book


def _workbook_error(path: str) -> InputError:
    return InputError(
        f"{path} could not be read as a workbook: open it in a spreadsheet and save it again"
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


def _header(rows: Sequence[tuple[Any, ...]], path: str) -> list[str]:
    """Return the names of the columns, up to the last that has one.

    Of several rows, the last names single columns. A cell above it is merged with the empty cells
    to its right, and comes before their names. A row with a single cell is a title if all columns
    have names without it.

    >>> _header([("Place", None, "n"), ("region", "sex", None)], "x.xlsx")
    ['Place region', 'Place sex', 'n']
    >>> title = ("Sexes in 2025", None, None)
    >>> _header([title, ("Place", None, "n"), ("region", "sex", None)], "x.xlsx")
    ['Place region', 'Place sex', 'n']
    """
    *above, last = [list(map(_text, row)) for row in rows] or [[]]
    named_places = [place for row in (*above, last) for place, text in enumerate(row) if text]
    width = max(named_places, default=-1) + 1
    if width == 0:
        raise DataError(f"the first row of {path} is empty: it names the columns")
    headings = [row for row in above if len(row) - row.count(None) > 1]
    words = _join_headings(headings, last, width)
    if not all(words):
        words = _join_headings(above, last, width)
    if not all(words):
        raise DataError(
            f"the header of {path} leaves a column without a name: name it, or say how many rows"
            " the header has, with its title (⟨header_rows 2⟩)"
        )
    columns = [" ".join(names) for names in words]
    if len({name.casefold() for name in columns}) < len(columns):
        raise DataError(f"two columns of {path} have the same name: rename one")
    return columns


def _join_headings(
    above: Sequence[list[str | None]], last: list[str | None], width: int
) -> list[list[str]]:
    """Return for each column the words of its name, from the top row down."""
    words: list[list[str]] = [[] for _ in range(width)]
    for row in above:
        heading = None
        # rows of a sheet may end before the last column
        for place, text in enumerate([*row, *[None] * width][:width]):
            heading = heading if text is None else text
            words[place] += [] if heading is None else [heading]
    for place, text in enumerate(last[:width]):
        # A heading that was merged downwards has nothing below it.
        words[place] += [] if text is None or text in words[place][-1:] else [text]
    return words


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
                        " save it again"
                    )


_CALLED = {"windows-1252", "windows1252", "cp1252", "cp-1252", "ansi"}


def is_windows(encoding: str | None) -> bool:
    """Whether an encoding is that of Windows in Western Europe and America.

    >>> is_windows("Windows-1252"), is_windows("latin-1"), is_windows(None)
    (True, False, False)
    """
    return encoding is not None and encoding.lower().replace("_", "-") in _CALLED


def windows_columns(path: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a CSV file in Windows-1252 as text; nothing between two delimiters is
    missing.

    Parameters
    ----------
    path
        One file with a header.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.csv")
    ...     with open(path, "wb") as file:
    ...         _ = file.write("Straße,€\\nKöln,5\\n".encode("cp1252"))
    ...     windows_columns(path)
    {'Straße': array(['Köln'], dtype=object), '€': array(['5'], dtype=object)}
    """
    if not os.path.isfile(path) or not path.lower().endswith((".csv", ".txt", ".tsv")):
        raise DataError(f"{path} is not one CSV file: files in Windows-1252 are read one by one")
    try:
        with open(path, encoding="cp1252", newline="") as file:
            first = file.readline()
            # Text between quotes may hold any delimiter.
            bare = "".join(first.split('"')[::2])
            file.seek(0)
            header, *rows = csv.reader(
                file, delimiter=max(_DELIMITERS, key=bare.count), strict=True
            )
    except (UnicodeDecodeError, csv.Error, ValueError):
        raise DataError(
            f"{path} could not be read as CSV in Windows-1252: check that the file is whole"
        ) from None
    names = [name.strip() for name in header]
    if len(set(names)) < len(names) or not all(names):
        raise DataError(f"two columns of {path} have one name, or one has none: name every column")
    # nothing on a line is a record of one column, and a gap between records of more
    records = [row or [""] for row in rows if row or len(names) == 1]
    if any(len(row) != len(names) for row in records):
        raise DataError(
            f"a row of {path} has more or fewer values than the header: check that the file is"
            " whole"
        )
    columns = {}
    for place, name in enumerate(names):
        columns[name] = np.array([row[place] or None for row in records], dtype=object)
    return columns
