"""Published columns in Parquet files, and files of numbers, written and read by DuckDB in this
process.

Columns of labels are given by what repeats, never row by row. What the columns mean is decided in
`release`.
"""

import atexit
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, SemidpError
from semidp.publish.sources.contract import quietly
from semidp.publish.sources.duck import confine, connect, literal, quoted_name, quoted_text

Answer = TypeVar("Answer")

_NUMBERS = ("BIGINT", "DOUBLE")
_READERS = {
    ".csv": "read_csv_auto",
    ".tsv": "read_csv_auto",
    ".txt": "read_csv_auto",
    ".parquet": "read_parquet",
}


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of labels: each holds for `stride` rows, and after the last the first comes again;
    or by their codes.

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
        if self.codes is None:
            places = np.arange(start, start + rows)
            numbers: NDArray[np.integer] = places // self.stride % len(self.labels)
        else:
            numbers = self.codes[start : start + rows]
        labels = np.array(self.labels, dtype=object)
        return np.asarray(labels[numbers])


def write_parquet(
    path: Path, labels: Mapping[str, Labels], columns: Mapping[str, NDArray[Any]]
) -> None:
    """Write columns of labels, and of as many numbers each, to a Parquet file that is not there.

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


@dataclass(frozen=True, eq=False)
class ParquetFiles:
    """Reader of Parquet files through one DuckDB. It can open no other file.

    The files may come from strangers. Starting a DuckDB takes longer than reading a small file, so
    that one serves all files of a folder.

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
        """Return what the columns of a file are called, in their order; a `ValueError` if it is no
        Parquet file.
        """
        return self._answer(lambda connection: list(_kinds(connection, _source(path))))

    def numbers(self, path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Return columns of numbers of a file, all unless named, in the order of its rows.

        A `ValueError` if it is no Parquet file, or a number is missing.
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

    Labels are compared inside DuckDB, so that no row becomes a Python object.

    Parameters
    ----------
    path
        The file.
    labels, columns
        What it should hold.

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
    """A file is no Parquet file of numbers."""


def _copy(
    connection: Any, path: Path, labels: Mapping[str, Labels], columns: Mapping[str, NDArray[Any]]
) -> None:
    rows = len(next(iter(columns.values())))
    selected: list[str] = []
    held: dict[str, NDArray[Any]] = {}
    for place, (name, column) in enumerate(labels.items()):
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
    number_type = np.int32 if rows < 2**31 else np.int64
    held["number"] = np.arange(rows, dtype=number_type)
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
    for place, column in enumerate(labels.values()):
        if column.codes is not None:
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
        connection.execute(f"SET VARIABLE labels_{place} = ?", [list(column.labels)])
        joined = ""
        code = f"(row // {column.stride}) % {len(column.labels)}"
        if column.codes is not None:
            joined = " POSITIONAL JOIN codes"
            code = f"code_{place}"
        selected = f"CAST({quoted_name(name)} AS VARCHAR) AS label, file_row_number AS row"
        rows = f"(SELECT {selected} FROM {source})"
        differs = f"label IS DISTINCT FROM {_label_coded(place, code)}"
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
    """Whether two columns of numbers are the same, missing ones included.

    >>> equal_numbers(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    True
    """
    return bool(np.array_equal(one, other, equal_nan=other.dtype.kind == "f"))


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
