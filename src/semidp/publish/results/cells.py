"""What is published as files of columns: CSV, or Parquet where there are many rows; as data frames;
and described.

Every row has labels (of a nested feature the whole path), then numbers that read back the same. The
description of what the columns mean is for machines: CSV on the Web, a vocabulary of the W3C.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from html import escape
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.documents import LARGEST, digest, read_plain
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.schema import Schema
from semidp.publish.results.columns import Labels, ParquetFiles, write_parquet
from semidp.publish.results.texts import row_texts

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

PARQUET_FROM = 10**6
"""Tables of so many cells and more are written as Parquet unless said."""

_ROWS = 1 << 16  # rows of a CSV file that are put together at once
_SHOWN_ROWS = 20  # of a table in a notebook

METADATA = "csv-metadata.json"
"""The name at which readers of CSV on the Web look beside the tables."""

TABLE_NUMBERS = ("estimate", "standard_error", "estimate_low", "estimate_high", "count")
"""The columns of a table's file beside its features; large tables leave the ends of the interval
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
"""What columns mean that several statistics have; a statistic says itself what its own mean."""


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


@dataclass(frozen=True, eq=False)
class Columns:
    """What a file holds: columns of labels, then columns of numbers.

    Parameters
    ----------
    labels, numbers
        The columns by their names.
    meanings
        What columns mean that only one statistic has, for the description of the file.
    key
        The columns that tell rows apart; the labels unless given.

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
    meanings: Mapping[str, str] = field(default_factory=dict, repr=False)
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
            depths = zip(*feature.paths(), strict=True)
            labels += [Labels(depth, stride) for depth in depths]
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
        """Return numbers beside rows of labels."""
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
        """Return the columns as lists, all rows or the first; an end that is open is missing,
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
        """Return how they are written: as asked for, else Parquet from a million rows."""
        return choose_form(self.header, self.rows, asked)

    def write(self, path: Path, progress: Progress = silent) -> None:
        """Write them to a file that is not there: Parquet or CSV by its name."""
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
            columns = [replace(column, labels=_quote_labels(column.labels)) for column in columns]
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

    Names of columns that differ in nothing but capitals are refused in Parquet files, where not
    every reader tells them apart.

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
    """Return labels as a CSV file holds them beside others."""
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
    """Import a package of data frames, or say that it is not installed."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed: install it, or use to_dict()") from None


def csvw(title: str, files: Mapping[str, Columns]) -> bytes | None:
    """Return the description of the CSV files of a release as JSON; None where it has none.

    Parameters
    ----------
    title
        What the release is about.
    files
        What every file holds, by its name.
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


@dataclass(frozen=True, eq=False)
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

        A column of a CSV file is of whole numbers where every number in it is written as one.
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
