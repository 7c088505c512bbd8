"""The files that hold the cells of tables: CSV, or Parquet where there are many; written in parts and read back.

Every row has the labels of its cell (of a nested feature the whole path), then numbers that read back the same.
"""

import csv
import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines.columns import Labels, read_parquet, write_parquet
from semidp.errors import InputError
from semidp.files import read_plain, regular_file
from semidp.progress import Progress, silent
from semidp.tables import Schema

PARQUET_FROM = 10**6
"""Tables of so many cells and more are written as Parquet unless said."""

_ROWS = 1 << 16  # rows of a CSV file that are put together at once
_BLOCK = 1 << 22  # bytes of a file that are hashed at once


class Form(StrEnum):
    """How the cells of a table are written.

    >>> Form("parquet")
    <Form.parquet: 'parquet'>
    """

    csv = "csv"
    parquet = "parquet"


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers for every cell of a schema, in columns: one row a cell, in the order of the cells.

    >>> from semidp.tables import Feature
    >>> cells = Cells(Schema([Feature("sex", ["f", 'm"'])]), {"count": np.array([3, 4])})
    >>> print(b"".join(cells.csv()).decode(), end="")
    sex,count
    f,3
    "m\"\"\",4
    """

    schema: Schema
    columns: Mapping[str, NDArray[Any]] = field(repr=False)

    def form(self, asked: Form | None = None) -> Form:
        """Return how they are written: as asked for, else by their number."""
        return form_of(self.schema, tuple(self.columns), asked)

    def write(self, path: Path, progress: Progress = silent) -> None:
        """Write them to a file that is not there: CSV, or Parquet by its name."""
        if path.suffix == f".{Form.parquet}":
            progress(f"writing {path.name}", 0, None)
            numbers = {name: column.reshape(-1) for name, column in self.columns.items()}
            write_parquet(path, dict(zip(self.schema.names, self._labels(), strict=True)), numbers)
            return
        with path.open("wb") as file:
            for done, part in enumerate(self.csv()):
                progress(f"writing {path.name}", min(done * _ROWS, self.schema.size), self.schema.size)
                file.write(part)

    def csv(self) -> Iterator[bytes]:
        """Yield a CSV file in parts, as `csv_bytes` writes it row by row: labels are quoted once each."""
        yield csv_bytes([*self.schema.names, *self.columns], ())
        labels, numbers = self._labels(), [column.reshape(-1) for column in self.columns.values()]
        plain = all("\r" not in label for column in labels for label in column.labels)
        ready = [Labels([_quoted(label) for label in column.labels], column.stride) for column in labels]
        for start in range(0, self.schema.size, _ROWS):
            parts = [column[start : start + _ROWS].tolist() for column in numbers]
            rows = len(parts[0])
            heads = [column.column(rows, start).tolist() for column in (ready if plain else labels)]
            if plain:
                lines = map(",".join, zip(*heads, *(map(repr, part) for part in parts), strict=True))
                yield ("\n".join(lines) + "\n").encode()
            else:  # a row with a carriage return is quoted whole
                yield _rows(zip(*heads, *parts, strict=True))

    def _labels(self) -> list[Labels]:
        """Return a column of labels for every depth of every feature."""
        found, stride = [], self.schema.size
        for feature in self.schema.features:
            stride //= len(feature.levels)
            found += [Labels(column, stride) for column in zip(*feature.paths(), strict=True)]
        return found


def form_of(schema: Schema, columns: Sequence[str], asked: Form | None = None) -> Form:
    """Return how a table is written: as asked for, else Parquet from a million cells; refuse names that cannot be.

    >>> from semidp.tables import Feature
    >>> form_of(Schema([Feature("sex", "fm")]), ["count"])
    <Form.csv: 'csv'>
    >>> form_of(Schema([Feature("Count", "fm")]), ["count"], Form.parquet)
    Traceback (most recent call last):
    semidp.errors.InputError: two columns of a Parquet file would have the name 'count': rename the feature, or write CSV
    """
    names = [name.casefold() for name in (*schema.names, *columns)]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if asked is Form.parquet and twice is not None:
        raise InputError(
            f"two columns of a Parquet file would have the name {twice!r}: rename the feature, or write CSV"
        )
    if asked is not None:
        return asked
    return Form.parquet if schema.size >= PARQUET_FROM and twice is None else Form.csv


def csv_bytes(header: Sequence[str], rows: Any) -> bytes:
    """Return a CSV file that every reader splits into the same rows."""
    return _rows((header, *rows))


def _rows(rows: Any) -> bytes:
    text = io.StringIO()
    few, all_quoted = (csv.writer(text, lineterminator="\n", quoting=q) for q in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    for row in rows:  # a carriage return is not quoted by itself, and ends the line for a reader
        (all_quoted if any(isinstance(cell, str) and "\r" in cell for cell in row) else few).writerow(row)
    return text.getvalue().encode()


def _quoted(label: str) -> str:
    """Return a label as a CSV file holds it beside others."""
    return csv_bytes([label, ""], ()).decode().removesuffix(",\n")


@dataclass(frozen=True, eq=False)
class StoredFiles(Mapping[str, bytes]):
    """The files of a release folder that its release.json lists: their contents, and the cells in them.

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

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file, of any size."""
        return digest(self.folder / name, self.folder)

    def cells(self, name: str, schema: Schema) -> dict[str, NDArray[Any]]:
        """Return the columns of numbers of the file of that name, CSV or Parquet, in the shape of the schema.

        A column of a CSV file is of whole numbers where every number in it is written as one.
        """
        if f"{name}.{Form.parquet}" in self.names:
            columns = read_parquet(self.folder / f"{name}.{Form.parquet}")
            return {key: column.reshape(schema.shape) for key, column in columns.items()}
        header, *rows = csv.reader(io.StringIO(self[f"{name}.{Form.csv}"].decode()))
        skipped = len(schema.names)
        found: dict[str, NDArray[Any]] = {}
        for place, key in enumerate(header[skipped:], start=skipped):
            whole = all(not set(row[place]) & set(".eni") for row in rows)
            texts = np.array([row[place] for row in rows], dtype=str)
            found[key] = texts.astype(np.int64 if whole else np.float64).reshape(schema.shape)
        return found


def digest(path: Path, within: Path | None = None) -> str:
    """Return the SHA-256 of a regular file, of any size, read in parts."""
    found = hashlib.sha256()
    with os.fdopen(regular_file(path, within), "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
