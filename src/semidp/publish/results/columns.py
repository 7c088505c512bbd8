"""Published files of columns (CSV, or Parquet if there are many rows), data frames, and their
description.

Every row has labels (of a nested feature the whole path), then numbers that read back the same.
Columns of labels are given by their repeating pattern, never row by row. DuckDB writes and reads
Parquet in this process. The description of the columns is machine-readable: CSV on the Web, a
vocabulary of the W3C.
"""

import atexit
import contextlib
import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from html import escape
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, SemidpError
from semidp.promise.documents import LARGEST, digest, read_plain
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.features import list_labels
from semidp.promise.schema.schema import Schema
from semidp.publish.results.texts import row_texts
from semidp.publish.sources.contract import quietly
from semidp.publish.sources.duck import confine, connect, literal, quoted_name, quoted_text

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


Answer = TypeVar("Answer")

_NUMBERS = ("BIGINT", "DOUBLE")
LAST_DIGITS = 1e-9  # relative: what the arithmetic of another processor leaves open
# From more labels on, DuckDB is given one a row: it copies a list of labels for every 2,048 rows.
_LISTED = 10_000
_READERS = {
    ".csv": "read_csv_auto",
    ".tsv": "read_csv_auto",
    ".txt": "read_csv_auto",
    ".parquet": "read_parquet",
}


@frozen(eq=False)
class Labels:
    """A column of labels, given by codes or cyclically: each holds for `stride` rows, and the first
    follows the last.

    >>> Labels(("f", "m"), 2).column(6).tolist()
    ['f', 'f', 'm', 'm', 'f', 'f']
    >>> Labels(("f", "m"), codes=np.array([0, 0, 0, 1])).column(2, start=2).tolist()
    ['f', 'm']
    """

    labels: Sequence[str]
    stride: int = 1
    codes: NDArray[np.integer] | None = field(default=None, repr=False)

    def column(self, rows: int, start: int = 0) -> NDArray[np.object_]:
        """Return the labels of so many rows."""
        numbers: NDArray[np.integer]
        if self.codes is None:
            numbers = np.arange(start, start + rows, dtype=_row_type(start + rows))
            numbers //= self.stride
            numbers %= len(self.labels)
        else:
            numbers = self.codes[start : start + rows]
        labels = np.array(self.labels, dtype=object)
        return np.asarray(labels[numbers])


def _row_type(rows: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if rows < 2**31 else np.int64


def write_parquet(
    path: Path, labels: Mapping[str, Labels], columns: Mapping[str, NDArray[Any]]
) -> None:
    """Write columns of labels and of as many numbers to a new Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(
    ...         Path(folder) / "x.parquet",
    ...         {"sex": Labels(("f", "m"), 1)},
    ...         {"count": np.array([3, 4])},
    ...     )
    ...     read_parquet(Path(folder) / "x.parquet", ["count"])["count"]
    array([3, 4])
    """
    failed = InputError(f"cannot write {path.name}: the disk is full, or memory ran out")
    try:
        # A cursor holds its tables, types and variables alone, and they end with it.
        with contextlib.closing(_writer(os.getpid()).cursor()) as connection:
            quietly(lambda: _copy(connection, path, labels, columns), failed)
    except BaseException:
        # A failure may leave a DuckDB that answers nothing more: the next one is new.
        _writer.cache_clear()
        raise


@lru_cache(maxsize=1)
def _writer(process: int) -> Any:
    """Return the DuckDB that writes the files of a process: starting one takes longer than writing
    a small file. A forked process starts its own.
    """
    connection = connect()
    # One that is open when Python ends makes DuckDB complain of leaks.
    atexit.register(_writer.cache_clear)
    return connection


@frozen(slots=False, eq=False)
class ParquetFiles:
    """Reader of Parquet files through one DuckDB. It can open no other file.

    The files may come from strangers. Starting a DuckDB takes longer than reading a small file,
    so one serves all files of a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "x.parquet"
    ...     write_parquet(path, {"sex": Labels(("m", "f"), 1)}, {"count": np.array([3, 4])})
    ...     ParquetFiles((path,)).names(path)
    ['sex', 'count']
    """

    paths: tuple[Path, ...]

    @cached_property
    def _connection(self) -> Any:
        connection = connect()
        confine(connection, [os.path.realpath(path) for path in self.paths])
        return connection

    def names(self, path: Path) -> list[str]:
        """Return the names of the columns of a file, in order; a `ValueError` if it is not a
        Parquet file.
        """
        return self._answer(lambda connection: list(_kinds(connection, _source(path))))

    def numbers(self, path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Return columns of numbers of a file, all unless named, in the order of its rows.

        A `ValueError` if it is not a Parquet file, or a number is missing.
        """
        return self._answer(lambda connection: _numbers_from(connection, _source(path), names))

    def _answer(self, question: Callable[[Any], Answer]) -> Answer:
        try:
            return quietly(lambda: question(self._connection), DamagedColumns())
        except BaseException:
            # A damaged file may leave a DuckDB that answers nothing more: the next one is new.
            self.__dict__.pop("_connection", None)
            raise


def read_parquet(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return columns of numbers of one Parquet file; see `ParquetFiles.numbers`."""
    return ParquetFiles((path,)).numbers(path, names)


def different_column(
    path: Path,
    labels: Mapping[str, Labels],
    columns: Mapping[str, NDArray[Any]],
) -> str | None:
    """Return the first column of a Parquet file that is not as `write_parquet` would write it, or
    None.

    Labels are compared inside DuckDB, so no row becomes a Python object.

    Parameters
    ----------
    path
        The file.
    labels, columns
        The expected content.

    >>> import tempfile
    >>> sexes, counts = {"sex": Labels(("f", "m"), 1)}, {"count": np.array([3, 4])}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parquet(Path(folder) / "x.parquet", {"sex": Labels(("m", "f"), 1)}, counts)
    ...     different_column(Path(folder) / "x.parquet", sexes, counts)
    'sex'
    """
    with contextlib.closing(connect()) as connection:
        return quietly(lambda: _different(connection, path, labels, columns), DamagedColumns())


def read_numbers(path: Path) -> NDArray[Any]:
    """Return the rows of a file of numbers: whole numbers where all are, else floats.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "samples.csv").write_text("a,b\\n1,2\\n3,4\\n")
    ...     read_numbers(Path(folder) / "samples.csv").tolist()
    [[1, 2], [3, 4]]
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None or not path.is_file():
        raise InputError(f"{path} is not a CSV or Parquet file of numbers")
    failed = InputError(f"{path} could not be read as a file of numbers")
    sql = f"SELECT * FROM {reader}({quoted_text(literal(str(path)))})"
    with contextlib.closing(connect()) as connection:
        number_columns = quietly(lambda: connection.execute(sql).fetchnumpy(), failed)
    columns = []
    complete = True
    for column in number_columns.values():
        complete &= not np.ma.getmaskarray(column).any()
        columns.append(np.ma.getdata(column))
    numeric = all(column.dtype.kind in "iufb" for column in columns)
    if not columns or not complete or not numeric:
        raise InputError(f"every column of {path} must hold numbers, and none may be missing")
    return np.column_stack(columns)


class DamagedColumns(SemidpError, ValueError):
    """A file is not a Parquet file of numbers."""


def _copy(
    connection: Any, path: Path, labels: Mapping[str, Labels], columns: Mapping[str, NDArray[Any]]
) -> None:
    rows = len(next(iter(columns.values())))
    selected: list[str] = []
    held: dict[str, NDArray[Any]] = {}
    for place, (name, column) in enumerate(labels.items()):
        if len(column.labels) > _LISTED:
            held[f"label_{place}"] = column.column(rows)
            selected.append(f"label_{place} AS {quoted_name(name)}")
            continue
        listed = f"getvariable('labels_{place}')"
        # Of an enumerated type, labels are written as they are numbered, and nothing looks at their
        # letters again.
        connection.execute(f"SET VARIABLE labels_{place} = ?", [list(column.labels)])
        connection.execute(
            f"CREATE TEMP TYPE kind_{place} AS ENUM (SELECT DISTINCT unnest({listed}))"
        )
        connection.execute(f"SET VARIABLE labels_{place} = CAST({listed} AS kind_{place}[])")
        code = f"number // {column.stride} % {len(column.labels)}"
        if column.codes is not None:
            code = f"code_{place}"
            held[code] = column.codes.astype(np.int32)
        selected.append(f"{_label_coded(place, code)} AS {quoted_name(name)}")
    for place, (name, numbers) in enumerate(columns.items()):
        held[f"column_{place}"] = np.ascontiguousarray(numbers)
        selected.append(f"column_{place} AS {quoted_name(name)}")
    held["number"] = np.arange(rows, dtype=_row_type(rows))
    connection.register("cells", held)
    query = f"SELECT {', '.join(selected)} FROM cells"
    connection.execute(f"COPY ({query}) TO {quoted_text(str(path))} (FORMAT parquet)")


def _label_coded(place: int, code: str) -> str:
    """Return the expression for the label of a code in the column at a place; lists count from 1 in
    DuckDB.
    """
    return f"list_extract(getvariable('labels_{place}'), CAST({code} AS INTEGER) + 1)"


def _different(
    connection: Any,
    path: Path,
    labels: Mapping[str, Labels],
    columns: Mapping[str, NDArray[Any]],
) -> str | None:
    codes: dict[str, NDArray[Any]] = {}
    rows_expected = len(next(iter(columns.values())))
    for place, column in enumerate(labels.values()):
        if len(column.labels) > _LISTED:
            codes[f"label_{place}"] = column.column(rows_expected)
        elif column.codes is not None:
            codes[f"code_{place}"] = column.codes.astype(np.int32)
    if codes:
        connection.register("codes", codes)
    file = os.path.realpath(path)
    # The file may come from strangers: whatever it makes DuckDB do, nothing else can be opened.
    confine(connection, [file])
    options = "hive_partitioning = false, file_row_number = true"
    source = f"read_parquet({quoted_text(literal(file))}, {options})"
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    names = [name for name, *_ in described]
    expected = [*labels, *columns, "file_row_number"]
    if names != expected:
        return next((name for name in expected if name not in names), "file_row_number")
    for place, (name, column) in enumerate(labels.items()):
        joined = " POSITIONAL JOIN codes"
        if len(column.labels) > _LISTED:
            label = f"label_{place}"
        else:
            connection.execute(f"SET VARIABLE labels_{place} = ?", [list(column.labels)])
            code = f"code_{place}"
            if column.codes is None:
                joined = ""
                code = f"(row // {column.stride}) % {len(column.labels)}"
            label = _label_coded(place, code)
        selected = f"CAST({quoted_name(name)} AS VARCHAR) AS label, file_row_number AS row"
        rows = f"(SELECT {selected} FROM {source})"
        differs = f"label IS DISTINCT FROM {label}"
        query = f"SELECT count(*) FROM {rows}{joined} WHERE {differs}"
        (differences,) = connection.execute(query).fetchone()
        if differences:
            return name
    written = _numbers_from(connection, source, list(columns))
    for name, numbers in columns.items():
        if name not in written:
            return name
        if not equal_numbers(written[name], numbers):
            return name
    return None


def equal_numbers(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two columns of numbers are the same, missing ones included; real numbers to a
    billionth of the largest, because the arithmetic of another processor ends in other digits.

    >>> equal_numbers(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    True
    >>> equal_numbers(np.array([1.0, 2 + 1e-12]), np.array([1.0, 2.0]))
    True
    >>> equal_numbers(np.array([3, 4]), np.array([3, 5]))
    False
    """
    if other.dtype.kind != "f" or one.shape != other.shape:
        return bool(np.array_equal(one, other))
    finite = np.abs(other[np.isfinite(other)])
    # Small numbers carry the rounding of the large ones that they were computed with.
    largest = float(finite.max(initial=0.0))
    return bool(
        np.allclose(one, other, rtol=LAST_DIGITS, atol=LAST_DIGITS * largest, equal_nan=True)
    )


def _source(path: Path) -> str:
    """The file as a table of SQL. A part lies in a folder such as state=A, which is no column of
    its files.
    """
    file = quoted_text(literal(os.path.realpath(path)))
    return f"read_parquet({file}, hive_partitioning = false)"


def _kinds(connection: Any, source: str) -> dict[str, str]:
    """Types of the columns by their names."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return {str(name): kind for name, kind, *_ in described}


def _numbers_from(
    connection: Any, source: str, names: Sequence[str] | None
) -> dict[str, NDArray[Any]]:
    number_columns = []
    for name, kind in _kinds(connection, source).items():
        asked_for = names is None or name in names
        if asked_for and kind in _NUMBERS:
            number_columns.append(name)
    selected = ", ".join(map(quoted_name, number_columns))
    columns = connection.execute(f"SELECT {selected} FROM {source}").fetchnumpy()
    masks = [np.ma.getmaskarray(columns[name]) for name in number_columns]
    if any(mask.any() for mask in masks):
        raise ValueError
    return {name: np.asarray(columns[name]) for name in number_columns}


PARQUET_FROM = 10**6
"""Tables with at least this many cells are written as Parquet by default."""

_ROWS = 1 << 16  # rows of a CSV file that are put together at once
_SHOWN_ROWS = 20  # of a table in a notebook

METADATA = "csv-metadata.json"
"""The file name, next to the tables, expected by readers of CSV on the Web."""

TABLE_NUMBERS = ("estimate", "standard_error", "estimate_low", "estimate_high", "count")
"""The columns of a table's file besides its features; large tables leave the ends of the interval
out. Estimates come first: sums of them are unbiased, and those of counts are not."""
TABLE_MEANINGS = {
    "estimate": "the unbiased estimate of the count: add these up, and compute with these",
    "count": (
        "the estimate fitted to the exact totals, as a whole number that is not negative unless"
        " asked otherwise: for a table that adds up. Small counts are too large on average; for"
        " other sums take the estimates"
    ),
}
"""What the estimates and the counts of a table are for."""
_MEANINGS = {
    "count": "the number of records",
    "standard_error": "of the estimate, from the noise alone",
    "estimate_low": "the lower end of a 95% interval of the estimate, from the noise alone",
    "estimate_high": "the upper end of a 95% interval of the estimate, from the noise alone",
    "noisy_count": "the count with the noise that was drawn",
    "noisy_steps": "the noisy sum as drawn, in steps of the grid above the lower bound",
    "entry": "the position in what was measured",
    "noisy": "the entry with the noise that was drawn",
}
"""The meaning of columns shared by several statistics; a statistic describes its own."""


class Form(StrEnum):
    """How the cells of a table are written.

    >>> Form("parquet")
    <Form.parquet: 'parquet'>
    """

    csv = "csv"
    parquet = "parquet"


def form_named(value: str) -> Form:
    """Return a form by its name.

    >>> form_named("xlsx")
    Traceback (most recent call last):
    semidp.errors.InputError: tables are written as csv or parquet, not 'xlsx'
    """
    if value not in list(Form):
        raise InputError(f"tables are written as {' or '.join(Form)}, not {value!r}")
    return Form(value)


@frozen(eq=False)
class Columns:
    """The content of a file: columns of labels, then columns of numbers.

    Parameters
    ----------
    labels, numbers
        The columns by their names.
    meanings
        The meaning of columns of a single statistic, for the description of the file.
    key
        The columns that identify rows (default: the labels).

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> columns = Columns.of_cells(
    ...     Schema([Feature("sex", ["f", 'm"'])]), {"count": np.array([3, 4])}
    ... )
    >>> print(b"".join(columns.csv()).decode(), end="")
    sex,count
    f,3
    "m\"\"",4
    """

    labels: Mapping[str, Labels] = field(repr=False)
    numbers: Mapping[str, NDArray[Any]] = field(repr=False)
    meanings: Mapping[str, str] = field(factory=dict, repr=False)
    key: tuple[str, ...] | None = None

    @classmethod
    def of_cells(
        cls,
        schema: Schema,
        numbers: Mapping[str, NDArray[Any]],
        meanings: Mapping[str, str] | None = None,
    ) -> "Columns":
        """Return numbers for every cell of a schema, one row per cell, with the labels of every
        depth of its features.
        """
        labels: list[Labels] = []
        stride = schema.size
        for feature in schema.features:
            stride //= len(feature.levels)
            labels += [Labels(column, stride) for column in list_labels(feature)]
        named = dict(zip(schema.names, labels, strict=True))
        flat = {name: column.reshape(-1) for name, column in numbers.items()}
        return cls(named, flat, meanings or {})

    @classmethod
    def of_rows(
        cls,
        names: Sequence[str],
        rows: Sequence[Sequence[str]],
        numbers: Mapping[str, NDArray[Any]],
        meanings: Mapping[str, str] | None = None,
        key: tuple[str, ...] | None = None,
    ) -> "Columns":
        """Return numbers next to rows of labels."""
        columns = zip(*rows, strict=True) if rows else repeat((), len(names))
        labels = map(Labels, columns)
        return cls(dict(zip(names, labels, strict=True)), numbers, meanings or {}, key)

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return [*self.labels, *self.numbers]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.numbers.values())))

    def lists(self, rows: int | None = None) -> list[list[Any]]:
        """Return the columns as lists, all rows or the first ones; an open end is missing,
        NaN.
        """
        many = self.rows if rows is None else min(rows, self.rows)
        lists = [column.column(many).tolist() for column in self.labels.values()]
        for column in self.numbers.values():
            numbers = column[:many]
            if numbers.dtype.kind == "f":
                numbers = np.where(np.isinf(numbers), np.nan, numbers)
            lists.append(numbers.tolist())
        return lists

    def form(self, asked: Form | None = None) -> Form:
        """Return the format: as requested, else Parquet from a million rows on."""
        return choose_form(self.header, self.rows, asked)

    def write(self, path: Path, progress: Progress = silent) -> None:
        """Write them to a new file, Parquet or CSV by its name."""
        if path.suffix == f".{Form.parquet}":
            progress(f"writing {path.name}", 0, None)
            write_parquet(path, self.labels, self.numbers)
            return
        with path.open("wb") as file:
            for number, part in enumerate(self.csv()):
                done = min(number * _ROWS, self.rows)
                progress(f"writing {path.name}", done, self.rows)
                file.write(part)

    def csv(self) -> Iterator[bytes]:
        """Yield a CSV file in parts, as `csv_bytes` writes it; every label is quoted once."""
        yield csv_bytes(self.header, ())
        columns = list(self.labels.values())
        labels = chain.from_iterable(column.labels for column in columns)
        plain = all("\r" not in label for label in labels)
        if plain:
            columns = [evolve(column, labels=_quote_labels(column.labels)) for column in columns]
        for start in range(0, self.rows, _ROWS):
            end = min(start + _ROWS, self.rows)
            numbers = [_format_numbers(column[start:end]) for column in self.numbers.values()]
            heads = [column.column(end - start, start).tolist() for column in columns]
            rows = zip(*heads, *numbers, strict=True)
            if plain:
                lines = map(",".join, rows)
                yield ("\n".join(lines) + "\n").encode()
            else:  # a row with a carriage return is quoted whole
                yield _rows(rows)


def choose_form(names: Sequence[str], rows: int, asked: Form | None = None) -> Form:
    """Return the form of a file of `rows` rows: the one asked for, else Parquet from a million
    rows.

    Names of columns that differ only in case are refused in Parquet files, because some readers
    do not distinguish them.

    >>> choose_form(["sex", "count"], 2)
    <Form.csv: 'csv'>
    >>> choose_form(["Count", "count"], 2, Form.parquet)
    Traceback (most recent call last):
    semidp.errors.InputError: two columns of a Parquet file would be called 'count': rename the
    feature, or write CSV
    """
    seen: set[str] = set()
    twice = None
    for name in names:
        lower_name = name.casefold()
        if twice is None and lower_name in seen:
            twice = lower_name
        seen.add(lower_name)
    if asked is Form.parquet and twice is not None:
        raise InputError(
            f"two columns of a Parquet file would be called {twice!r}: rename the feature, or"
            " write CSV"
        )
    if asked is not None:
        return asked
    return Form.parquet if rows >= PARQUET_FROM and twice is None else Form.csv


def named_files(files: Mapping[str, Columns], form: Form | None) -> dict[str, Columns]:
    """Return files by their names, which end in how they are written."""
    return {f"{stem}.{columns.form(form)}": columns for stem, columns in files.items()}


def csv_bytes(header: Sequence[str], rows: Any) -> bytes:
    """Return a CSV file that every reader splits into the same rows."""
    return _rows((header, *rows))


def _rows(rows: Any) -> bytes:
    text = io.StringIO()
    few_quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    all_quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        # a carriage return is not quoted by itself, and ends the line for a reader
        ends_line = any(isinstance(cell, str) and "\r" in cell for cell in row)
        writer = all_quoted if ends_line else few_quoted
        writer.writerow(row)
    return text.getvalue().encode()


def _format_numbers(numbers: NDArray[Any]) -> list[str]:
    """Numbers as texts of a CSV file. A missing number and an open end are empty."""
    texts = list(map(repr, numbers.tolist()))
    if numbers.dtype.kind == "f":
        for place in np.flatnonzero(~np.isfinite(numbers)):
            texts[place] = ""
    return texts


def _quote_labels(labels: Sequence[str]) -> list[str]:
    """Return labels as a CSV file holds them next to others."""
    rows: list[str] = []
    sink: Any = SimpleNamespace(write=rows.append)  # a writer writes row by row
    csv.writer(sink, lineterminator="\n").writerows((label, "") for label in labels)
    return [row.removesuffix(",\n") for row in rows]


class DataFrames:
    """Base of results with columns: three ways to a data frame."""

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists."""
        raise NotImplementedError

    def to_arrow(self) -> "pyarrow.Table":
        """Return an Arrow table (needs pyarrow)."""
        return import_optional("pyarrow").table(self.to_dict())

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas data frame (needs pandas)."""
        return import_optional("pandas").DataFrame(self.to_dict())

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars data frame (needs polars)."""
        return import_optional("polars").DataFrame(self.to_dict())


class PublishedColumns(DataFrames):
    """Base of results that are published as one file: label columns first, then numeric columns."""

    name: str

    def columns(self) -> Columns:
        """Return the columns of the file."""
        raise NotImplementedError

    def csv(self) -> bytes:
        """Return the file."""
        return b"".join(self.columns().csv())

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists: levels as text, counts as whole numbers, what is missing as
        NaN.
        """
        columns = self.columns()
        return dict(zip(columns.header, columns.lists(), strict=True))

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = zip(*columns.lists(_SHOWN_ROWS), strict=True)
        texts = [row_texts(columns.header, row) for row in rows]
        return _build_html_table(self.name, columns.header, texts, columns.rows)


def import_optional(name: str) -> Any:
    """Import a data frame package, or report that it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed: install it, or use to_dict()") from None


def csvw(title: str, files: Mapping[str, Columns]) -> bytes | None:
    """Return the description of the CSV files of a release as JSON; None if it has none.

    Parameters
    ----------
    title
        The title of the release.
    files
        The content of every file, by its name.
    """
    tables = []
    for name, content in files.items():
        if name.endswith(".csv"):
            tables.append({"url": quote(name), "tableSchema": _schema(content)})
    if not tables:
        return None
    context = ["http://www.w3.org/ns/csvw", {"@language": "en"}]
    document = {"@context": context, "dc:title": title, "tables": tables}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return f"{text}\n".encode()


def _schema(content: Columns) -> dict[str, Any]:
    columns = []
    meanings = {**_MEANINGS, **content.meanings}
    for name in content.labels:
        meaning = content.meanings.get(name, "a level of this feature")
        columns.append(_describe_column(name, "string", meaning))
    for name, numbers in content.numbers.items():
        kind = "integer" if numbers.dtype.kind == "i" else "number"
        columns.append(_describe_column(name, kind, meanings.get(name)))
    schema: dict[str, Any] = {"columns": columns}
    key = tuple(content.labels) if content.key is None else content.key
    if key:
        schema["primaryKey"] = [quote(name, safe="") for name in key]
    return schema


def _describe_column(name: str, kind: str, meaning: str | None) -> dict[str, str]:
    """Return the description of one column."""
    column = {"name": quote(name, safe=""), "titles": name, "datatype": kind}
    if meaning is not None:
        column["dc:description"] = meaning
    return column


@frozen(slots=False, eq=False)
class StoredFiles(Mapping[str, bytes]):
    """The files of a release folder that its release.json lists: their contents, and the cells in
    them.

    Parameters
    ----------
    folder
        Where they are.
    names
        What they are called.
    """

    folder: Path
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> bytes:
        if name not in self.names:
            raise KeyError(name)
        return read_plain(self.folder / name, self.folder)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _parquet(self) -> ParquetFiles:
        """Those of the files that are Parquet."""
        ending = f".{Form.parquet}"
        names = [name for name in self.names if name.endswith(ending)]
        return ParquetFiles(tuple(self.folder / name for name in names))

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file; only those of columns may be larger than what is read
        whole.
        """
        if name.endswith(f".{Form.parquet}"):
            return digest(self.folder / name, self.folder)
        return digest(self.folder / name, self.folder, LARGEST)

    def counts(self, name: str, labels: int) -> NDArray[Any]:
        """Counts in the file of the table `name`; its first `labels` columns are labels."""
        file = f"{name}.{Form.parquet}"
        if file in self.names:
            counts = self._parquet.numbers(self.folder / file, ["count"])
            return counts["count"]
        return self.numbers(name, labels)["count"]

    def label_names(self, name: str, labels: int) -> list[str]:
        """Names of the first `labels` columns of the file `name`: those of the labels."""
        file = f"{name}.{Form.parquet}"
        if file in self.names:
            names = self._parquet.names(self.folder / file)
            return names[:labels]
        header = next(self._csv_rows(name))
        return header[:labels]

    def numbers(self, name: str, labels: int) -> dict[str, NDArray[Any]]:
        """Numeric columns of the CSV or Parquet file `name`; its first `labels` columns are labels.

        A column of a CSV file holds integers if every number in it is written as one.
        """
        file = f"{name}.{Form.parquet}"
        if file in self.names:
            return self._parquet.numbers(self.folder / file)
        header, *rows = self._csv_rows(name)
        # A point, an exponent, nan and inf are what tells a float from a whole number in its text.
        of_floats = set(".eni")
        numbers: dict[str, NDArray[Any]] = {}
        for place, key in enumerate(header[labels:], start=labels):
            texts = [row[place] for row in rows]
            whole = all(of_floats.isdisjoint(text) for text in texts)
            column = np.array(texts, dtype=str)
            numbers[key] = column.astype(np.int64 if whole else np.float64)
        return numbers

    def _csv_rows(self, name: str) -> Iterator[list[str]]:
        """Rows of the CSV file `name`, the header first."""
        text = self[f"{name}.{Form.csv}"].decode()
        return csv.reader(io.StringIO(text))


def _build_html_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[object]], size: int
) -> str:
    """The first rows of a table of `size` rows, for notebooks."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for row in rows:
        cells = "".join(f"<td>{escape(str(text))}</td>" for text in row)
        lines.append(f"<tr>{cells}</tr>")
    left = size - len(rows)
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<div><strong>{escape(title)}</strong>{table}{more}</div>"
