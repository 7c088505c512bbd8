"""CSV files, Parquet files and data frames, grouped by DuckDB in this process.

Nothing is written: the database is in memory and may not spill to disk. Once its files are named it
can open no other, load no extension and change no setting. What the groups mean is decided in the
package, not here.
"""

import codecs
import contextlib
import copy
import csv
import glob
import gzip
import importlib.util
import itertools
import json
import math
import os
import re
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.core.tables.counts import no_column
from semidp.errors import DataError, InputError, SemidpError, did_you_mean
from semidp.sources.comparisons import JOINS, Node, Typing, Values, columns_in, nodes, survey
from semidp.sources.contract import (
    BAD_COUNT,
    BAD_OUTCOME,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NOT_A_NUMBER,
    QUERY_THREAD,
    Coded,
    CodedColumn,
    CodedGroups,
    Key,
    Measure,
    Outcome,
    Records,
    batches,
    grouping_sets,
    quietly,
    refuse_calls,
    short_enough,
    whole_totals,
)
from semidp.sources.readings import ColumnReading

Codes = NDArray[np.unsignedinteger[Any]]
Result = TypeVar("Result")
Step = tuple[str, str | None]
"""A statement; where a sentence goes with it, a query that must find nothing, or that is said."""

SETTINGS = {
    "temp_directory": "",  # spilling would leave confidential records on disk
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a WHERE must not reach the caller's variables
}
# Levels are text as it stands ("01" is not "1"). Nothing is guessed, skipped, padded or taken for a
# comment.
_CSV = (
    """header = true, quote = '"', escape = '"', nullstr = '', skip = 0, comment = '', """
    "strict_mode = true, "
    "null_padding = false, ignore_errors = false, max_line_size = 16777216"
)
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
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS = (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_TEXTS = ("VARCHAR", "ENUM")
_DAYS = ("DATE", "TIME", "TIMESTAMP")
_SEARCHED = 32  # texts that are found quickest one by one
_UNSIGNED = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}
# What a condition may be made of, in the words of DuckDB's parser: no query, window, lambda,
# parameter or star.
EXPRESSIONS = {
    *(
        "COLUMN_REF",
        "CONSTANT",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "FUNCTION",
        "CAST",
        "TYPE",
        "BETWEEN",
        "CASE",
    ),
    "COLLATE",
}
# Declared consistent by DuckDB 2.0, but the first three read the clock (age of one argument) and
# the last the catalog.
_MISDECLARED = {"age", "current_localtime", "current_localtimestamp", "json_serialize_plan"}
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_LINE = 16_777_216
MAX_COLUMNS = 10_000
PATIENCE = 60.0  # seconds that a WHERE may take, and a second more for each of the next:
_SLOWEST_BYTES, _SLOWEST_ROWS = 1e6, 1e4
_GRACE = 1.0
_SLOW_WHERE = (
    "the WHERE takes too long and was given up: write a condition that is quicker to decide"
)
_SLOW_AGGREGATE = (
    "an aggregate takes too long and was given up: write one that is quicker to compute"
)
_FAILED = (
    "the data could not be tabulated: a record could not be read, a WHERE does not fit it, or"
    " memory ran out"
)


class DuckRecords(Records):
    """The records of files or of a data frame, seen through DuckDB.

    Files are read once for every question; that they stayed the same is checked after each, so that
    all answers are about the same records.
    """

    def __init__(
        self,
        connection: Any,
        files: Sequence[str] = (),
        patience: float | None = None,
        read_as_numbers: Sequence[str] = (),
    ) -> None:
        self._connection, self._patience, self._view = connection, patience, "records"
        self._database = connection
        self.read_as_numbers = tuple(read_as_numbers)
        # a view of its own: else DuckDB 2.0 reads CSV columns as what a TRY_CAST tries, and fails
        if patience is None:
            connection.execute("CREATE TEMP VIEW records AS SELECT * FROM source")
        self._files = {file: _stamp(file) for file in files}
        self._types = dict(self._rows("SELECT column_name, column_type FROM (DESCRIBE records)"))
        self.columns: Mapping[str, bool] = {
            name: _numeric(kind) or _text(kind) for name, kind in self._types.items()
        }

    @classmethod
    def of_files(
        cls,
        pattern: str,
        where: str | None,
        *,
        hive_partitions: bool = False,
        allow_empty: bool = False,
        readings: Sequence[ColumnReading] = (),
        encoding: str | None = None,
    ) -> "DuckRecords":
        """Open a CSV or Parquet file, every file that a glob matches, or a folder of Parquet
        files.
        """
        files, kind = _files(pattern)
        if encoding is not None and kind != "CSV":
            raise InputError("an encoding is for CSV files: leave it out")
        connection = connect()
        with _closed_on_error(connection):
            confine(connection, files)
            read = partial(
                _reading,
                files,
                f"{pattern} could not be read as {kind}: check that the file is whole",
            )
            if kind == "CSV":
                python, duck = _encoding(encoding)
                delimiter = read(lambda: _delimiter(files[0], python))
                names = _common_header(
                    [read(partial(_header, file, delimiter, python)) for file in files], pattern
                )
                options: tuple[str, ...] = (
                    f"delim = {quoted_text(delimiter)}",
                    f"encoding = '{duck}'",
                    _CSV,
                )
            else:
                names, options = read(lambda: _parquet_header(connection, files)), ()
            _bounded(names, pattern)
            folders = _partitions(files, names) if hive_partitions else []
            text = (*options, "all_varchar = true") if kind == "CSV" else options
            every = [*names, *folders]
            selected = _read_columns(readings, every)
            view = (
                f"CREATE VIEW source AS SELECT {selected} FROM"
                f" {_reader(kind, files, folders, text)}"
            )
            read(lambda: connection.execute(view))
            _same_names(
                connection, [*every, *(part.column for part in readings if part.adds)], pattern
            )
            raw = _reader(kind, files, folders, text)
            for reading in readings:
                _refuse_misfits(connection, reading, raw, read)
            for part in (
                [] if allow_empty else [[file] for file in files] if kind == "CSV" else [files]
            ):
                first = f"SELECT 1 FROM {_reader(kind, part, [], text)} LIMIT 1"
                if not read(partial(_run, connection, first)):
                    holder = part[0] if len(part) == 1 else pattern
                    raise DataError(
                        f"{holder} holds no record: check that it is whole, or allow empty files",
                        needs="empty",
                    )
            if where is None:
                return cls(connection, files)
            patience = PATIENCE + sum(os.path.getsize(file) for file in files) / _SLOWEST_BYTES
            numbers = _filter(
                connection, where, patience, _names(connection) if kind == "CSV" else folders, files
            )
            return cls(connection, files, patience, numbers)

    @classmethod
    def of_frame(
        cls,
        frame: Any,
        where: str | None,
        untyped: Sequence[str] = (),
        readings: Sequence[ColumnReading] = (),
    ) -> "DuckRecords":
        """Open a pandas, polars or Arrow table, or a mapping of names to numpy arrays.

        A WHERE compares `untyped` columns as numbers where every value is one, as those of a CSV
        file.
        """
        connection = connect()
        with _closed_on_error(connection):
            unreadable = partial(
                InputError,
                f"a {type(frame).__name__} cannot be read: give a path, a database address, a data"
                " frame (pandas, polars, Arrow) or an Ibis table",
            )
            held = "source" if not readings else "unread"
            quietly(lambda: connection.register(held, frame), unreadable)
            names = quietly(lambda: _frame_header(frame), unreadable)
            _bounded(names, "the data frame")
            if readings:
                view = (
                    f"CREATE TEMP VIEW source AS SELECT {_read_columns(readings, names)} FROM"
                    " unread"
                )
                quietly(lambda: connection.execute(view), unreadable)
                names = [*names, *(part.column for part in readings if part.adds)]
                for part in readings:
                    _refuse_misfits(
                        connection, part, "unread", lambda action: quietly(action, unreadable)
                    )
            _same_names(connection, names, "the data frame")
            confine(connection, ())
            if where is None:
                return cls(connection)
            ((rows,),) = quietly(
                lambda: _run(connection, "SELECT count(*) FROM source"), unreadable
            )
            patience = PATIENCE + rows / _SLOWEST_ROWS
            numbers = _filter(connection, where, patience, untyped)
            return cls(connection, patience=patience, read_as_numbers=numbers)

    @classmethod
    def of_queries(
        cls,
        frames: Mapping[str, Any],
        steps: Callable[[Any], Iterator[Step]],
        queries: Sequence[str],
    ) -> "list[DuckRecords]":
        """Open the answers to queries over frames, by their names, as records that share one
        database.

        Parameters
        ----------
        frames
            What `frame` returned.
        steps
            Yields for the connection what is computed from them first, and queries that must find
            nothing, in turn.
        queries
            What is selected then from what was computed; records a query.
        """
        connection = connect()
        opened: list[DuckRecords] = []
        with _closed_on_error(connection):
            for name, frame in frames.items():
                connection.register(name, frame)
            confine(connection, ())
            failed = DataError(_FAILED)
            rows = sum(_run(connection, f"SELECT count(*) FROM {name}")[0][0] for name in frames)
            patience = PATIENCE + rows / _SLOWEST_ROWS
            yielded = steps(connection)
            while (step := quietly(lambda: next(yielded, None), failed)) is not None:
                sql, sentence = step
                carry_out = partial(_run, connection, sql, patience, too_slow=_SLOW_AGGREGATE)
                rows = quietly(carry_out, failed)
                if sentence is not None and rows:
                    raise DataError(sentence)
            for name in frames:
                # what was computed from them is all that is asked from here on
                connection.unregister(name)
            for query in queries:
                # a connection of its own: names of views are its own, too
                cursor = connection.cursor()
                cursor.execute(f"CREATE TEMP VIEW source AS {query}")
                records = cls(cursor)
                # the database stays as long as one of them is used: it would close them with itself
                records._database = connection
                opened.append(records)
        return opened

    def frame(self, columns: Sequence[str]) -> Any:
        """Return some columns in memory, as a frame that DuckDB reads; see the contract."""
        named = ", ".join(map(quoted_name, dict.fromkeys(columns)))
        in_arrow = importlib.util.find_spec("pyarrow") is not None
        query = f"SELECT {named} FROM {self._view}"
        if in_arrow:
            return self._asked(query, _arrow)
        return self._asked(query, lambda answer: _plain_arrays(answer.fetchnumpy()))

    def grouped(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Group by `keys`; see the contract.

        The records are read once. What they give is kept in memory until every key's distinct
        values are numbered.
        """
        total, fault = self._measure(measure)
        names = [f"k{position}" for position in range(len(keys))]
        selected = [f"{self._key(key)} AS {name}" for key, name in zip(keys, names, strict=True)]
        selected += [f"TRY_CAST({total} AS BIGINT) AS total", f"{fault} AS fault"]
        by = ", ".join(str(position) for position in range(1, len(keys) + 1))
        self._rows(
            f"CREATE TEMP TABLE found AS SELECT {', '.join(selected)} FROM {self._view} GROUP BY"
            f" {by} LIMIT {limit}"
        )
        try:
            return quietly(lambda: _coded(self._connection, names), partial(DataError, _FAILED))
        finally:
            for name in ("found", *(f"values_{name}" for name in names)):
                self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def together(
        self, keys: Sequence[Key], sets: Sequence[Sequence[int]], measure: Measure, limit: int
    ) -> list[tuple[Any, ...]]:
        """Group by several sets of keys; see the contract."""
        return self._grouping([self._key(key) for key in keys], sets, self._measure(measure), limit)

    def coded(self, keys: Sequence[Key], limits: Sequence[int], most: int) -> Coded | None:
        """Code the values of columns in memory, one after the other; see the contract.

        A value is known by its text, so that values are coded alike that are written alike. What
        does not fit in `most` bytes is not coded.
        """
        if not all(key.edges is not None or is_plain(self._types[key.column]) for key in keys):
            return None
        values: list[list[Any]] = []
        texts: list[list[str]] = []
        n = 0
        for batch in batches([[key] for key in keys]):
            raw = [self._key(keys[number]) for number in batch]
            selected = [part for key in raw for part in (key, f"CAST({key} AS VARCHAR)")]
            limit = sum(limits[number] for number in batch) + 1
            rows = self._grouping(
                selected,
                [[2 * place, 2 * place + 1] for place in range(len(batch))],
                ("count(*)", "0"),
                limit,
            )
            if len(rows) == limit:
                return None
            everything = (1 << len(selected)) - 1
            place_of_mask = {everything - (3 << 2 * place): place for place in range(len(batch))}
            by_place: list[dict[str | None, Any]] = [{} for _ in batch]
            for absent, *row in rows:
                place = place_of_mask[int(absent)]
                by_place[place][row[2 * place + 1]] = row[2 * place]
                n += row[-2] if place == batch[0] == 0 else 0
            for by_text in by_place:
                key_texts = [text for text in by_text if text is not None]
                texts.append(key_texts)
                values.append([by_text[text] for text in (*key_texts, *({None} & by_text.keys()))])
        widths = [
            1 if len(key_texts) < 2**8 else 2 if len(key_texts) < 2**16 else 4
            for key_texts in texts
        ]
        if n * sum(widths) > most:
            return None
        codes = [
            _code(self._key(key), key_texts, width)
            for key, key_texts, width in zip(keys, texts, widths, strict=True)
        ]
        return Coded(values, partial(self._chunks, codes, n))

    def _chunks(self, codes: Sequence[str], n: int, rows: int) -> Iterator[list[Codes]]:
        """Yield the codes of all `n` records, so many at a time, from a table in memory."""
        coded = ", ".join(f"{code} AS c{place}" for place, code in enumerate(codes))
        self._rows(f"CREATE TEMP TABLE coded AS SELECT {coded} FROM {self._view}")
        try:
            for start in range(0, n, rows):
                part = f"SELECT * FROM coded WHERE rowid >= {start} AND rowid < {start + rows}"
                columns = self._asked(part, lambda answer: answer.fetchnumpy())
                yield [columns[f"c{place}"] for place in range(len(codes))]
        finally:
            self._rows("DROP TABLE coded")

    def _grouping(
        self,
        selected: Sequence[str],
        sets: Sequence[Sequence[int]],
        measure: tuple[str, str],
        limit: int,
    ) -> list[tuple[Any, ...]]:
        """Return the groups of several sets of columns, before each which columns it lacks, as a
        number in binary.
        """
        # longer than any name, so that it hides none
        aside = "_" * (1 + max(map(len, self._types)))
        names = [f"{aside}{place}" for place in range(len(selected))]
        absent, parts = grouping_sets(names, sets)
        columns = ", ".join(
            f"{column} AS {name}" for column, name in zip(selected, names, strict=True)
        )
        return self._rows(
            f"SELECT {absent}, {', '.join(names)}, {', '.join(measure)} FROM (SELECT {columns}, *"
            f" FROM {self._view}) GROUP BY {parts} LIMIT {limit}"
        )

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        name = quoted_name(column)
        ((records, present, distinct),) = self._rows(
            f"SELECT count(*), count({name}), count(DISTINCT {name}) FROM {self._view}"
        )
        return records, present, distinct

    def most_alike(self, column: str) -> int:
        """Count the records of each value; see the contract."""
        name = quoted_name(column)
        ((most,),) = self._rows(
            f"SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM {self._view} GROUP BY"
            f" {name})"
        )
        return int(most)

    def only(self, values: Mapping[str, Sequence[Any]]) -> "DuckRecords":
        """Return the records with some values alone; see the contract."""
        part = copy.copy(self)
        part._view = f"{self._view}_"  # one at a time
        conditions = [self._among(name, kept) for name, kept in values.items()]
        self._rows(
            f"CREATE OR REPLACE TEMP VIEW {part._view} AS SELECT * FROM {self._view} WHERE"
            f" {' AND '.join(conditions)}"
        )
        return part

    def _among(self, name: str, known: Sequence[Any]) -> str:
        """Return the condition that a column holds one of some values."""
        column, present = (
            quoted_name(name),
            [value for value in known if value is not None and value == value],
        )
        parts = (
            [f"{column} IN ({', '.join(self._literal(name, value) for value in present)})"]
            if present
            else []
        )
        if None in known:
            parts.append(f"{column} IS NULL")
        if any(value != value for value in known):
            parts.append(f"isnan({column})")
        return f"({' OR '.join(parts)})"

    def _literal(self, name: str, value: Any) -> str:
        if isinstance(value, bytes):
            return f"from_hex('{value.hex()}')"
        text = quoted_text(str(value))
        return text if isinstance(value, str) else f"CAST({text} AS {self._types[name]})"

    def close(self) -> None:
        """Close the database."""
        if self._view == "records":  # a part of the records has no database of its own
            _close(self._connection)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._asked(sql, _fetched))

    def _asked(self, sql: str, fetch: Callable[[Any], Any]) -> Any:
        answer = _reading(
            [*self._files], _FAILED, lambda: _run(self._connection, sql, self._patience, fetch)
        )
        if any(_stamp(file) != stamp for file, stamp in self._files.items()):
            raise DataError(
                "a file changed while it was read: read it again when nothing writes to it"
            )
        return answer

    def _key(self, key: Key) -> str:
        if key.edges is None:
            return quoted_name(key.column)
        raw, number, edges = (
            quoted_name(key.column),
            self._number(key.column),
            [_double(edge) for edge in key.edges],
        )
        if self._types[key.column].removeprefix("U") in _WHOLE and all(
            abs(edge) < 2**53 for edge in key.edges
        ):
            # No casts, for speed: a whole number is below an edge if and only if it is below the
            # edge's ceiling.
            number, edges = raw, [str(math.ceil(edge)) for edge in key.edges]
        # The likely cases come first, for speed too. NaN is above every edge.
        cases = [
            *(
                f"WHEN {number} < {edge} THEN {position}"
                for position, edge in enumerate(edges, start=BELOW)
            ),
            f"WHEN isnan({number}) THEN NULL",
            f"WHEN {number} IS NOT NULL THEN {len(edges) - 1}",
            f"WHEN {raw} IS NULL THEN NULL",
        ]
        return f"CASE {' '.join(cases)} ELSE {NOT_A_NUMBER} END"

    def _measure(self, measure: Measure) -> tuple[str, str]:
        adds, faults = "", []
        if measure.count is not None:
            number = self._number(measure.count)
            good = f"({number} >= 0 AND {number} < {LARGEST_COUNT} AND {number} = floor({number}))"
            adds = f"CASE WHEN {good} THEN CAST({number} AS BIGINT) ELSE 0 END"
            faults.append(f"WHEN {good} IS NOT TRUE THEN {BAD_COUNT}")
        if measure.outcome is not None:
            raw, number = quoted_name(measure.outcome.column), self._outcome(measure.outcome)
            steps = self._steps(measure.outcome)
            adds = f"CAST({adds} AS HUGEINT) * {steps}" if adds else steps
            faults.append(f"WHEN {raw} IS NULL OR isnan({number}) THEN {MISSING_OUTCOME}")
            faults.append(f"WHEN {number} IS NULL THEN {BAD_OUTCOME}")
        total = f"CAST(sum({adds}) AS HUGEINT)" if adds else "count(*)"
        return total, f"max(CASE {' '.join(faults)} ELSE {FINE} END)" if faults else str(FINE)

    def _steps(self, outcome: Outcome) -> str:
        number, low, high = self._outcome(outcome), float(outcome.lower), float(outcome.upper)
        # a null counts as low, and is a fault
        clipped = f"least(greatest({number}, {_double(low)}), {_double(high)})"
        scaled = f"({clipped} - {_double(low)}) / {_double(high - low)} * {_double(outcome.steps)}"
        return f"CAST(floor({scaled} + {_double(0.5)}) AS BIGINT)"

    def _outcome(self, outcome: Outcome) -> str:
        number, words = self._number(outcome.column), f"lower({quoted_name(outcome.column)})"
        if outcome.proportion and _text(self._types[outcome.column]):
            return (
                f"CASE {words} WHEN 'true' THEN {_double(1)} WHEN 'false' THEN {_double(0)} ELSE"
                f" {number} END"
            )
        return number

    def _number(self, column: str) -> str:
        cast = "TRY_CAST" if _text(self._types[column]) else "CAST"
        return f"{cast}({quoted_name(column)} AS DOUBLE)"


def _arrow(answer: Any) -> Any:
    """Return an answer as an Arrow table, by the name that this version of DuckDB has for it."""
    if not hasattr(answer, "to_arrow_table"):
        return answer.fetch_arrow_table()
    with warnings.catch_warnings():  # of a copy, which costs less than asking twice
        warnings.simplefilter("ignore")
        return answer.to_arrow_table()


def _plain_arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns without masks: a missing value is None."""
    arrays = {}
    for name, column in columns.items():
        hidden = np.ma.getmaskarray(column)
        plain = (
            np.asarray(np.ma.getdata(column), dtype=object)
            if hidden.any()
            else np.ma.getdata(column)
        )
        if hidden.any():
            plain[hidden] = None
        arrays[name] = plain
    return arrays


def _coded(connection: Any, names: Sequence[str]) -> CodedGroups:
    """Return the groups of the table `found`, with the values of every key numbered."""
    values = []
    for name in names:
        connection.execute(
            f"CREATE TEMP TABLE values_{name} AS SELECT value, CAST(row_number() OVER () - 1 AS"
            f" BIGINT) AS code FROM (SELECT DISTINCT {name} AS value FROM found)"
        )
        values.append(
            [
                value
                for (value,) in _run(connection, f"SELECT value FROM values_{name} ORDER BY code")
            ]
        )
    codes = ", ".join(f"values_{name}.code AS {name}" for name in names)
    joined = " ".join(
        f"JOIN values_{name} ON found.{name} IS NOT DISTINCT FROM values_{name}.value"
        for name in names
    )
    columns = connection.execute(f"SELECT {codes}, total FROM found {joined}").fetchnumpy()
    ((fault,),) = _run(connection, "SELECT max(fault) FROM found")
    keys = tuple(
        CodedColumn(values_of_key, columns[name])
        for values_of_key, name in zip(values, names, strict=True)
    )
    return CodedGroups(keys, whole_totals(columns["total"]), FINE if fault is None else fault)


def _code(key: str, texts: Sequence[str], width: int) -> str:
    """Return the expression for the position of a key's text; a missing one comes last."""
    text, listed = f"CAST({key} AS VARCHAR)", ", ".join(map(quoted_text, texts))
    if not texts:
        position = "NULL"
    elif len(texts) <= _SEARCHED:
        position = f"list_position([{listed}], {text}) - 1"
    else:
        position = f"CAST(enum_code(CAST({text} AS ENUM ({listed}))) AS BIGINT)"
    return f"CAST(coalesce({position}, {len(texts)}) AS {_UNSIGNED[width]})"


def connect() -> Any:
    """Open a database in memory that may not spill to disk, load an extension or reach the caller's
    variables.
    """
    import duckdb

    return duckdb.connect(":memory:", config=SETTINGS)


@contextlib.contextmanager
def _closed_on_error(connection: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _close(connection)
        raise


def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # a query that was given up may still hold it
        connection.close()


def confine(connection: Any, files: Sequence[str]) -> None:
    """Leave the connection these files and nothing else."""
    allowed = ", ".join(
        quoted_text(name) for file in files for name in dict.fromkeys((file, literal(file)))
    )
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _fetched(answer: Any) -> list[tuple[Any, ...]]:
    return list(answer.fetchall())


def _run(
    connection: Any,
    sql: str,
    patience: float | None = None,
    fetch: Callable[[Any], Any] = _fetched,
    too_slow: str = _SLOW_WHERE,
) -> Any:
    """Return the rows of a query; where a user's expression is in it, wait `patience` seconds at
    most.

    DuckDB looks for an interruption only between batches of records, and one expression can keep a
    batch for hours. So the query runs in a thread, which is left alone if it does not end.
    """
    if patience is None:
        try:
            return fetch(connection.execute(sql))
        except RuntimeError as error:
            if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(fetch(connection.execute(sql)))
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=work, name=QUERY_THREAD, daemon=True).start()
    try:
        done, _ = wait([answer], patience)
    except KeyboardInterrupt:
        connection.interrupt()
        raise
    if not done:
        connection.interrupt()
        wait([answer], _GRACE)
        raise InputError(too_slow)
    return answer.result()


def _files(pattern: str) -> tuple[list[str], str]:
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
                f"{file} is no regular file, and data are read more than once: copy them to a file"
            )
        if not os.access(file, os.R_OK):
            raise InputError(f"the file {file} may not be read: check its permissions")
    return [os.path.abspath(file) for file in files], kinds.pop()


def _is_hidden(path: Path) -> bool:
    """Whether a file or a folder above it is hidden, as those that Spark leaves beside its data."""
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


def _reading(files: Sequence[str], otherwise: str, action: Callable[[], Result]) -> Result:
    """Return what `action` reads; where it fails, say which file has what trouble, without a word
    of what it holds.
    """
    # Raised outside of the handler, so that the engine's own error, which quotes data, is no
    # context of it.
    try:
        return action()
    except (SemidpError, MemoryError):
        raise
    except Exception:
        pass
    troubles = (trouble for file in files if (trouble := trouble_of(file)) is not None)
    raise DataError(next(troubles, otherwise))


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


def _stamp(file: str) -> tuple[int, ...]:
    """Return what changes when a file is written to or replaced."""
    with contextlib.suppress(OSError):
        stat = os.stat(file)
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
    return ()


def trouble_of(file: str) -> str | None:
    """Say what keeps a CSV file from being read, if that can be seen: its encoding, or its records.

    At most so many characters are looked at. A data file holds what may be in no message, so that
    neither a value nor the number of a line is said.
    """
    if _SUFFIXES.get(_suffix(file)) != "CSV" or not os.path.exists(file):
        return None
    name = os.path.basename(file)
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
        if (
            start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            or start.count(0) > len(start) // 4
        ):
            return f"{name} is text in UTF-16: save it as UTF-8"
        return _ragged(file, name)
    except UnicodeDecodeError:
        return (
            f"{name} holds text that is not UTF-8, but Latin-1 or Windows-1252 perhaps: save it as"
            " UTF-8"
        )
    except (OSError, EOFError, zlib.error):
        return f"{name} could not be read to its end: check that it is whole"
    except (ValueError, csv.Error, StopIteration):
        return None


def _ragged(file: str, name: str) -> str | None:
    """Say so where a record has another number of values than the header has names."""
    delimiter = _delimiter(file)
    with _opened(file) as text:
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
    return None


_ENCODINGS = {
    "utf-8": ("utf-8-sig", "utf-8"),
    "latin-1": ("latin-1", "latin-1"),
    "utf-16": ("utf-16", "utf-16"),
}


def _encoding(name: str | None) -> tuple[str, str]:
    """Return what Python and DuckDB call an encoding."""
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


def _read_columns(readings: Sequence[ColumnReading], names: Sequence[str]) -> str:
    """Return what is selected so that columns are read as declared; refuse a column that is not
    there.
    """
    replaced: list[str] = []
    added: list[str] = []
    for part in readings:
        if part.needed not in names:
            raise no_column(part.needed, tuple(names))
        if part.adds and part.column in names:
            raise InputError(f"the data have a column {part.column!r} already: rename it")
        target = added if part.adds else replaced
        target.append(f"{part.expression(quoted_name(part.needed))} AS {quoted_name(part.column)}")
    star = f"* REPLACE ({', '.join(replaced)})" if replaced else "*"
    return ", ".join([star, *added])


def _refuse_misfits(
    connection: Any, part: ColumnReading, raw: str, read: Callable[[Callable[[], Any]], Any]
) -> None:
    """Refuse values that are not written as was declared: none is quoted."""
    name = quoted_name(part.needed)
    misfits = (
        f"SELECT 1 FROM {raw} WHERE {name} IS NOT NULL AND ({part.expression(name)}) IS NULL"
        " LIMIT 1"
    )
    if read(lambda: _run(connection, misfits)):
        raise DataError(part.misfit())


def _opened(file: str, encoding: str = "utf-8-sig") -> TextIO:
    if file.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return open(file, encoding=encoding, newline="")


def _delimiter(file: str, encoding: str = "utf-8-sig") -> str:
    """Return the delimiter that the header of a CSV file uses most, outside quotes."""
    with _opened(file, encoding) as text:
        header = text.readline(_LONGEST_LINE)
    if not header.strip():
        raise ValueError("a CSV file needs a header")
    bare = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=bare.count)


def _header(file: str, delimiter: str, encoding: str = "utf-8-sig") -> list[str]:
    with _opened(file, encoding) as text:
        names = next(
            csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter=delimiter)
        )
    if any("\x00" in name for name in names):
        raise ValueError("no text in UTF-8, though its bytes could be")
    return [name.strip() for name in names]  # as DuckDB does


def _common_header(headers: Sequence[list[str]], pattern: str) -> list[str]:
    """Return the names in the headers of CSV files, which must be the same in each."""
    if any(header != headers[0] for header in headers):
        raise DataError(
            f"the files of {pattern} have different headers: name files with the same columns in"
            " one order"
        )
    return headers[0]


def _parquet_header(connection: Any, files: Sequence[str]) -> list[str]:
    """Return the names of the columns in the first of some Parquet files, as they are in the
    file.
    """
    sql = (
        "SELECT name, coalesce(num_children, 0) FROM"
        f" parquet_schema({quoted_text(literal(files[0]))})"
    )
    _, *nodes = _run(connection, sql)
    names: list[str] = []
    inside = 0  # how many nodes are still to come below the last column
    for name, children in nodes:
        if inside == 0:
            names.append(name)
        inside += children - (inside > 0)
    return names


def _frame_header(frame: Any) -> list[str]:
    if isinstance(frame, Mapping):
        return [str(name) for name in frame]
    arrow = getattr(getattr(frame, "schema", None), "names", None)
    return [str(name) for name in (arrow if isinstance(arrow, list) else frame.columns)]


def _bounded(names: Sequence[str], what: str) -> None:
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{what} has more than {MAX_COLUMNS:,} columns: keep those that are needed")


def _names(connection: Any) -> list[str]:
    return [name for (name,) in _run(connection, "SELECT column_name FROM (DESCRIBE source)")]


def _same_names(connection: Any, names: Sequence[str], what: str) -> None:
    """Refuse names that DuckDB changed to tell them apart; it names a column that has none."""
    read_names = _names(connection)
    if len(read_names) != len(names) or any(
        name not in ("", other) for name, other in zip(names, read_names, strict=True)
    ):
        raise DataError(
            f"{what} names two columns alike, capitals aside: give every column a name of its own"
        )


def _partition_keys(file: Path) -> list[str]:
    """Return the columns that the folders above a file name, such as sex of sex=f."""
    keys = []
    for folder in file.parent.parts:
        key, equals, _ = folder.partition("=")
        if equals:
            keys.append(key)
    return keys


def _partitions(files: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that folders such as sex=f name for every file and that the files lack."""
    keys = [_partition_keys(Path(file)) for file in files]
    if any(set(those) != set(keys[0]) for those in keys):
        raise InputError(
            "the files lie in folders of different partitions: each needs the same, such as"
            " sex=f/region=n"
        )
    lower_names = {name.lower() for name in names}
    return [key for key in dict.fromkeys(keys[0]) if key and key.lower() not in lower_names]


def _reader(kind: str, files: Sequence[str], folders: Sequence[str], options: Sequence[str]) -> str:
    """Return the SQL that reads these files, with what the names of folders say where that is asked
    for.
    """
    names = f"[{', '.join(quoted_text(literal(file)) for file in files)}]"
    place = "_" * (1 + max(map(len, folders), default=0)) + "file"
    path = [f"filename = {quoted_text(place)}"] if folders else []
    call = (
        f"read_{kind.lower()}({', '.join([names, *options, *path, 'hive_partitioning = false'])})"
    )
    if not folders:
        return call
    values = [
        f"nullif(url_decode(regexp_extract({place}, {quoted_text(_folder_value(key))}, 1)),"
        f" '{_HIVE_NULL}') AS {quoted_name(key)}"
        for key in folders
    ]
    return f"(SELECT * EXCLUDE ({place}), {', '.join(values)} FROM {call})"


def _folder_value(key: str) -> str:
    r"""Return the expression for what a path says of a key.

    >>> re.search(_folder_value("sex"), "/data/sex=f/people.csv").group(1)
    'f'
    """
    return rf"[/\\]{re.escape(key)}=([^/\\]*)[/\\]"


def literal(file: str) -> str:
    """Return a pattern that matches this file and no other.

    >>> literal("a[1]*.csv")
    'a[[]1][*].csv'
    """
    return re.sub(r"([*?\[])", r"[\1]", file)


def _filter(
    connection: Any, where: str, patience: float, untyped: Sequence[str], files: Sequence[str] = ()
) -> list[str]:
    """Make the view `records` of what `where` keeps; return which of the columns without a type it
    reads as numbers.
    """
    hint = ", and convert text with CAST(column AS DOUBLE)" if untyped else ""
    failure = InputError(
        "the WHERE must be one condition on the columns of a record, such as age >= 18 AND region"
        f" <> 'north': check its names and quotes{hint}"
    )
    quietly(lambda: of_the_record_alone(connection, where, _names(connection)), failure)
    condition, numbers = _reading(files, _FAILED, lambda: typed(connection, where, untyped))
    if not _is_condition(connection, condition, patience):
        raise failure
    view = f"CREATE TEMP VIEW records AS SELECT * FROM source WHERE (\n{condition}\n)"
    quietly(lambda: _run(connection, view, patience), failure)
    return numbers


def _is_condition(connection: Any, where: str, patience: float) -> bool:
    try:
        ((_, kind, *_),) = _run(connection, f"DESCRIBE SELECT (\n{where}\n) FROM source", patience)
    except InputError:
        raise
    except Exception:
        return False
    return bool(kind == "BOOLEAN")


def typed(
    connection: Any,
    text: str,
    untyped: Sequence[str],
    relation: str = "source",
    as_numbers: Collection[str] = (),
    place: str = "the WHERE",
) -> tuple[str, list[str]]:
    """Return an expression that reads columns without a type as numbers where they are, and the
    names of these columns.

    Every value of the columns that it names is looked at once; no other column is read.

    Parameters
    ----------
    connection, text
        Where the expression is evaluated, and the expression.
    untyped
        The columns without a type.
    relation
        What has these columns.
    as_numbers
        Functions that take text too, but numbers where a column holds them.
    place
        What the expression is called in a message.
    """
    (expression,), _ = parsed(connection, text)
    named = {name.lower(): name for name in untyped if name.lower() in columns_in(expression)}
    if not named:
        return text, []
    surveys = ", ".join(survey(quoted_name(name)) for name in named.values())
    (facts,) = _run(connection, f"SELECT {surveys} FROM {relation}")
    width = len(facts) // len(named)
    values = {
        name: Values(*facts[place * width : (place + 1) * width])
        for place, name in enumerate(named)
    }

    def cast(column: Node, kind: str) -> Node:
        (example,), _ = parsed(connection, f"CAST(x AS {kind})")
        return {**example, "child": column}

    takes = "bool_or(list_contains(parameter_types, 'VARCHAR'))"
    typing = Typing(
        values,
        {*_functions(connection, takes), *JOINS} - {*as_numbers},
        {*_functions(connection, "bool_or(return_type = 'VARCHAR')"), *JOINS},
        cast,
        place,
    )
    cast_columns, numbers = typing.typed(expression)
    unchanged = cast_columns == expression
    return (text if unchanged else written(connection, cast_columns)), [
        named[name] for name in numbers
    ]


def parsed(connection: Any, text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the parser's account of a bare expression, and of the statement around it."""
    ((answer,),) = connection.execute(
        "SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]
    ).fetchall()
    document = json.loads(answer)
    (statement,) = document["statements"]
    return statement["node"].pop("select_list"), document


def written(connection: Any, expression: Node) -> str:
    """Return the SQL of an expression, from the parser's account of it."""
    _, document = parsed(connection, "true")
    document["statements"][0]["node"]["select_list"] = [expression]
    ((text,),) = connection.execute(
        "SELECT json_deserialize_sql(?)", [json.dumps(document)]
    ).fetchall()
    return str(text).removeprefix("SELECT ")


def of_the_record_alone(connection: Any, where: str, columns: Collection[str]) -> None:
    """Refuse a text that is not one expression on its own, or that may depend on more than the
    record.

    The parser's own account of the text is compared with that of a bare expression, so that closing
    the bracket early, a second statement or any further clause shows. Inside, only columns of the
    record, constants, operators and scalar functions that DuckDB declares consistent may occur:
    what is not known to be one of these is refused.
    """
    short_enough(where)
    expressions, around = parsed(connection, where)
    parts = list(nodes(expressions))
    _, bare = parsed(connection, "true")
    if (
        len(expressions) != 1
        or around != bare
        or not {node["class"] for node in parts} <= EXPRESSIONS
    ):
        raise ValueError("not one condition")
    strange = sorted(set(columns_in(expressions)) - {name.lower() for name in columns})
    if strange:  # of the record it is none; perhaps it is the date, or a text that lacks its quotes
        raise InputError(
            "the WHERE must be one condition on the columns of a record, such as age >= 18 AND"
            f" region <> 'north': {strange[0]!r} is no column{did_you_mean(strange[0], columns)},"
            " and text stands in single quotes"
        )
    calls = [node for node in parts if node["class"] == "FUNCTION"]
    if any(node["schema"] or node["catalog"] for node in calls):
        raise ValueError("a function of a schema of its own")
    refuse_calls(
        {node["function_name"].lower() for node in calls} - consistent_functions(connection)
    )


def consistent_functions(connection: Any) -> set[str]:
    """Return the functions whose every form DuckDB declares to depend on its arguments alone."""
    scalar = "bool_and(function_type = 'scalar' AND stability IS NOT DISTINCT FROM 'CONSISTENT')"
    return _functions(connection, scalar) - _MISDECLARED


def _functions(connection: Any, having: str) -> set[str]:
    """Return the functions that can stand in a condition and whose forms together have a
    property.
    """
    # these stand elsewhere
    in_a_condition = "function_type NOT IN ('table', 'table_macro', 'pragma')"
    sql = (
        f"SELECT lower(function_name) FROM duckdb_functions() WHERE {in_a_condition} GROUP BY 1"
        f" HAVING {having}"
    )
    return {name for (name,) in _run(connection, sql)}


def _numeric(kind: str) -> bool:
    return kind.removeprefix("U").startswith(_NUMBERS) and not kind.endswith("]")


def _text(kind: str) -> bool:
    return kind.startswith(_TEXTS) and not kind.endswith("]")


def is_plain(kind: str) -> bool:
    """Whether the text of a value says which it is."""
    return _numeric(kind) or _text(kind) or (kind.startswith(_DAYS) and not kind.endswith("]"))


def _double(number: float) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def quoted_name(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
