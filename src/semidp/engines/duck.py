"""CSV files, Parquet files and data frames, grouped by DuckDB in this process.

Nothing is written: the database is in memory and may not spill to disk. Once its files are named it can open no
other, load no extension and change no setting. What the groups mean is decided in the package, not here.
"""

import contextlib
import glob
import gzip
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from semidp.engines.contract import (
    BAD_COUNT,
    BAD_OUTCOME,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NOT_A_NUMBER,
    Key,
    Measure,
    Outcome,
    quietly,
)
from semidp.errors import DataError, InputError

_SETTINGS = {
    "temp_directory": "",  # spilling would leave confidential records on disk
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # a WHERE must not reach the caller's variables
}
# Levels are text as it stands ("01" is not "1"). Nothing is guessed, skipped, padded or taken for a comment.
_CSV = (
    """header = true, quote = '"', escape = '"', nullstr = '', skip = 0, comment = '', strict_mode = true, """
    "null_padding = false, ignore_errors = false, max_line_size = 16777216"
)
_DELIMITERS = ",;\t|"
_SUFFIXES = {".csv": "CSV", ".tsv": "CSV", ".txt": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS = (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_TEXTS = ("VARCHAR", "ENUM")
_FAILED = "the data could not be tabulated: a record could not be read, a WHERE does not fit it, or memory ran out"


class DuckRecords:
    """The records of files or of a data frame, seen through DuckDB."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._types = dict(self._rows("SELECT column_name, column_type FROM (DESCRIBE records)"))
        self.columns: Mapping[str, bool] = {name: _numeric(kind) or _text(kind) for name, kind in self._types.items()}

    @classmethod
    def of_files(cls, pattern: str, where: str | None) -> "DuckRecords":
        """Open a CSV or Parquet file, or every file that a glob matches."""
        files, kind = _files(pattern)
        connection = _connect()
        names = f"[{', '.join(map(_quoted_text, files))}]"
        _confine(connection, files)
        unreadable = DataError(
            f"{pattern} could not be read as {kind}: check that the file is whole, that its records have the same "
            "columns, and that its text is UTF-8"
        )
        typed = None
        reader = f"read_parquet({names})"
        if kind == "CSV":
            delimiter = quietly(lambda: _delimiter(files[0]), unreadable)
            typed = f"read_csv({names}, delim = {_quoted_text(delimiter)}, {_CSV}"
            reader = f"{typed}, all_varchar = true)"
        quietly(lambda: connection.execute(f"CREATE VIEW source AS SELECT * FROM {reader}"), unreadable)
        return cls._of_source(connection, where, f"{typed})" if typed else None)

    @classmethod
    def of_frame(cls, frame: Any, where: str | None) -> "DuckRecords":
        """Open a pandas, polars or Arrow table, or a mapping of names to numpy arrays."""
        connection = _connect()
        quietly(
            lambda: connection.register("source", frame),
            InputError(
                f"a {type(frame).__name__} cannot be read: give a path, a database address, a data frame (pandas, "
                "polars, Arrow) or an Ibis table"
            ),
        )
        _confine(connection, ())
        return cls._of_source(connection, where, None)

    @classmethod
    def _of_source(cls, connection: Any, where: str | None, sniffed: str | None) -> "DuckRecords":
        if where is None:
            connection.execute("CREATE TEMP VIEW records AS SELECT * FROM source")
        else:
            _filter(connection, where, sniffed)
        return cls(connection)

    def grouped(self, keys: Sequence[Key], measure: Measure, limit: int) -> list[Sequence[Any]]:
        """Group by `keys`; see the contract."""
        selected = ", ".join([*map(self._key, keys), *self._measure(measure)])
        positions = ", ".join(str(position) for position in range(1, len(keys) + 1))
        rows = self._rows(f"SELECT {selected} FROM records GROUP BY {positions} LIMIT {limit}")
        return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(len(keys) + 2)]

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        name = _quoted_name(column)
        ((records, present, distinct),) = self._rows(
            f"SELECT count(*), count({name}), count(DISTINCT {name}) FROM records"
        )
        return records, present, distinct

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        def rows() -> list[tuple[Any, ...]]:
            try:
                return list(self._connection.execute(sql).fetchall())
            except RuntimeError as error:
                if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
                    raise KeyboardInterrupt from None
                raise

        return quietly(rows, DataError(_FAILED))

    def _key(self, key: Key) -> str:
        if key.edges is None:
            return _quoted_name(key.column)
        raw, number, edges = _quoted_name(key.column), self._number(key.column), [_double(edge) for edge in key.edges]
        if self._types[key.column].removeprefix("U") in _WHOLE and all(abs(edge) < 2**53 for edge in key.edges):
            # No casts, for speed: a whole number is below an edge if and only if it is below the edge's ceiling.
            number, edges = raw, [str(math.ceil(edge)) for edge in key.edges]
        # The likely cases come first, for speed too. NaN is above every edge.
        cases = [
            *(f"WHEN {number} < {edge} THEN {position}" for position, edge in enumerate(edges, start=BELOW)),
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
            raw, number = _quoted_name(measure.outcome.column), self._number(measure.outcome.column)
            steps = self._steps(measure.outcome)
            adds = f"CAST({adds} AS HUGEINT) * {steps}" if adds else steps
            faults.append(f"WHEN {raw} IS NULL OR isnan({number}) THEN {MISSING_OUTCOME}")
            faults.append(f"WHEN {number} IS NULL THEN {BAD_OUTCOME}")
        total = f"CAST(sum({adds}) AS HUGEINT)" if adds else "count(*)"
        return total, f"max(CASE {' '.join(faults)} ELSE {FINE} END)" if faults else str(FINE)

    def _steps(self, outcome: Outcome) -> str:
        number, low, high = self._number(outcome.column), float(outcome.lower), float(outcome.upper)
        clipped = f"least(greatest({number}, {_double(low)}), {_double(high)})"  # a null counts as low, and is a fault
        scaled = f"({clipped} - {_double(low)}) / {_double(high - low)} * {_double(outcome.steps)}"
        return f"CAST(floor({scaled} + {_double(0.5)}) AS BIGINT)"

    def _number(self, column: str) -> str:
        cast = "TRY_CAST" if _text(self._types[column]) else "CAST"
        return f"{cast}({_quoted_name(column)} AS DOUBLE)"


def _connect() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config=_SETTINGS)


def _confine(connection: Any, files: Sequence[str]) -> None:
    """Leave the connection these files and nothing else."""
    allowed = ", ".join(_quoted_text(file) for file in files)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _files(pattern: str) -> tuple[list[str], str]:
    """Return the files that `pattern` names, and whether they are CSV or Parquet."""
    found = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise InputError(f"there is no file {pattern}")
    if any(Path(file).is_dir() for file in found):
        raise InputError(f"{pattern} is a folder: name its files, as in '{os.path.join(pattern, '*.parquet')}'")
    kinds = {_kind(file) for file in found}
    if len(kinds) > 1:
        raise InputError(f"{pattern} matches both CSV and Parquet files: name one kind")
    unreadable = [file for file in found if not os.access(file, os.R_OK)]
    if unreadable:
        raise InputError(f"the file {unreadable[0]} may not be read: check its permissions")
    return [os.path.abspath(file) for file in found], kinds.pop()


def _kind(file: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes if suffix.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in _SUFFIXES:
        raise InputError(f"the name {file} does not say what it holds: end it in .csv, .tsv, .csv.gz or .parquet")
    return _SUFFIXES[suffixes[-1]]


def _delimiter(file: str) -> str:
    """Return the delimiter that the header of a CSV file uses most, outside quotes."""
    with (
        gzip.open(file, "rt", encoding="utf-8")
        if file.lower().endswith(".gz")
        else open(file, encoding="utf-8") as text
    ):
        header = text.readline(1_000_000)
    if not header.strip():
        raise ValueError("a CSV file needs a header")
    bare = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=bare.count)


def _filter(connection: Any, where: str, sniffed: str | None) -> None:
    """Make the view `records` of what `where` keeps.

    The values of a CSV file are text. A condition that does not fit text, such as age >= 18, is read with the
    columns that look like numbers as numbers.
    """
    hint = "" if sniffed is None else ", and convert text with CAST(column AS DOUBLE)"
    failure = InputError(
        "the WHERE must be one condition on the columns of a record, such as age >= 18 AND region <> 'north': check "
        f"its names and quotes{hint}"
    )
    quietly(lambda: _single_condition(connection, where), failure)
    if _is_condition(connection, "source", where):
        view = f"CREATE TEMP VIEW records AS SELECT * FROM source WHERE (\n{where}\n)"
        quietly(lambda: connection.execute(view), failure)  # refuses an aggregate, which depends on other records
        return
    if sniffed is not None:
        columns = quietly(lambda: connection.execute(f"DESCRIBE SELECT * FROM {sniffed}").fetchall(), failure)
        typed, back = _typed(columns)
        if _is_condition(connection, typed, where):
            view = f"CREATE TEMP VIEW records AS SELECT {back} FROM {typed} WHERE (\n{where}\n)"
            quietly(lambda: connection.execute(view), failure)
            return
    raise failure


def _is_condition(connection: Any, place: str, where: str) -> bool:
    with contextlib.suppress(Exception):
        ((_, kind, *_),) = connection.execute(f"DESCRIBE SELECT (\n{where}\n) FROM {place}").fetchall()
        return bool(kind == "BOOLEAN")
    return False


def _typed(columns: Sequence[tuple[Any, ...]]) -> tuple[str, str]:
    """Return a query that adds numbers and truth values to the text of a CSV file, and what to select for the text."""
    names = [_quoted_name(name) for name, *_ in columns]
    aside = "_" * max(map(len, names))  # longer than any name, so that it hides none
    texts = [f"{name} AS {aside}{position}" for position, name in enumerate(names)]
    kinds = ["BOOLEAN" if kind == "BOOLEAN" else "DOUBLE" if _numeric(kind) else "VARCHAR" for _, kind, *_ in columns]
    values = [f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True)]
    back = [f"{aside}{position} AS {name}" for position, name in enumerate(names)]
    return f"(SELECT {', '.join([*texts, *values])} FROM source)", ", ".join(back)


def _single_condition(connection: Any, where: str) -> None:
    """Refuse a text that is not one expression on its own, or that holds a query: then it may depend on others.

    The parser's own account of the text is compared with that of a bare expression, so that closing the bracket
    early, a second statement or any further clause shows.
    """

    def parsed(text: str) -> tuple[list[Any], str]:
        answer = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]).fetchall()[0][0]
        (statement,) = json.loads(answer)["statements"]
        return statement["node"].pop("select_list"), json.dumps(statement)

    expressions, around = parsed(where)
    if len(expressions) != 1 or around != parsed("true")[1] or {"SUBQUERY", "WINDOW"} & set(_classes(expressions)):
        raise ValueError("not one condition")


def _classes(tree: Any) -> Iterator[str]:
    """Yield the class of every expression in the parser's account of a text."""
    if isinstance(tree, dict):
        yield from [tree["class"]] if isinstance(tree.get("class"), str) else []
        yield from itertools.chain.from_iterable(_classes(part) for part in tree.values())
    elif isinstance(tree, list):
        yield from itertools.chain.from_iterable(_classes(part) for part in tree)


def _numeric(kind: str) -> bool:
    return kind.removeprefix("U").startswith(_NUMBERS) and not kind.endswith("]")


def _text(kind: str) -> bool:
    return kind.startswith(_TEXTS) and not kind.endswith("]")


def _double(number: float) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
