"""Whether the files of a release hold the columns that it states: names, labels and numbers, and
nothing else.

A CSV file that semidp wrote is a function of its columns, so that its digest is enough. Parquet
files are compared column by column.
"""

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.documents import read_plain
from semidp.publish.results.cells import Columns, Form
from semidp.publish.results.columns import different_column, equal_numbers


def file_differences(folder: Path, name: str, columns: Columns, digest: str) -> Iterator[str]:
    """Yield the columns of a file that are not those of the release.

    Parameters
    ----------
    folder, name
        Where the file is.
    columns
        What it should hold: labels by the schema, numbers as they were read.
    digest
        Its SHA-256.
    """
    if name.endswith(f".{Form.parquet}"):
        different = different_column(folder / name, columns.labels, columns.numbers)
        if different is not None:
            yield f"another column {different!r} in {name} than follows"
        return
    hashed = hashlib.sha256()
    for part in columns.csv():
        hashed.update(part)
    if hashed.hexdigest() == digest:
        return
    different = _different(read_plain(folder / name, folder), columns)
    if different is not None:
        yield f"another column {different!r} in {name} than follows"
    else:
        yield f"numbers in {name} that are not written as a release writes them"


def _different(content: bytes, columns: Columns) -> str | None:
    """Return the first column of a CSV file that is not as expected; None where only the way of
    writing differs.
    """
    header, *rows = csv.reader(io.StringIO(content.decode()))
    labels = list(columns.labels)
    if header[: len(labels)] != labels or len(rows) != columns.rows:
        return next(
            (name for name, in_file in zip(labels, header, strict=False) if name != in_file),
            header[0],
        )
    if any(len(row) != len(header) for row in rows):
        return header[-1]
    for place, (name, column) in enumerate(columns.labels.items()):
        if [row[place] for row in rows] != column.column(columns.rows).tolist():
            return name
    numbers: Mapping[str, NDArray[Any]] = columns.numbers
    for place, name in enumerate(header[len(labels) :], start=len(labels)):
        held = numbers.get(name)
        if held is None or not _equal([row[place] for row in rows], held):
            return name
    return next((name for name in numbers if name not in header), None)


def _equal(texts: list[str], held: NDArray[Any]) -> bool:
    try:
        numbers = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return False
    closed = np.where(np.isfinite(held), held, np.nan) if held.dtype.kind == "f" else held
    return equal_numbers(numbers, closed.astype(float))
