"""CSV files, Parquet files and data frames, grouped by DuckDB in this process.

Nothing is written: the database is in memory and may not spill to disk. Once its files are named it
can open no others, load no extension and change no setting. `duck_files` opens files and checks a
WHERE; `opening` interprets the groups.
"""

import contextlib
import copy
import importlib.util
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import no_column
from semidp.publish.sources.contract import (
    BAD_COUNT,
    BAD_OUTCOME,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NOT_A_NUMBER,
    Coded,
    CodedColumn,
    CodedGroups,
    Key,
    Measure,
    Records,
    grouping_sets,
    quietly,
    whole_totals,
)
from semidp.publish.sources.data_files import (
    diagnose_csv,
    read_stamp,
)
from semidp.publish.sources.readings import ColumnReading

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

WHOLE_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")

_NUMBERS = (*WHOLE_TYPES, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")

_TEXTS = ("VARCHAR", "ENUM")

_DAYS = ("DATE", "TIME", "TIMESTAMP")

_SEARCHED = 32  # texts that are found quickest one by one

_UNSIGNED = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}

MAX_COLUMNS = 10_000

FAILED = (
    "the data could not be tabulated: a record could not be read, a WHERE does not fit it, or"
    " memory ran out"
)


class DuckRecords(Records):
    """The records of files or of a data frame, seen through DuckDB.

    Files are read once for every question, and checked for changes after each, so all answers
    are about the same records.
    """

    def __init__(
        self,
        connection: Any,
        files: Sequence[str] = (),
        untyped: Collection[str] = (),
        condition: str = "true",
        encoding: str | None = None,
    ) -> None:
        self._connection = connection
        self._encoding = encoding
        self._view = "records"
        self._database = connection
        self.untyped_columns = frozenset(untyped)
        # a view of its own: else DuckDB 2.0 reads CSV columns as what a TRY_CAST tries, and fails
        view = f"CREATE TEMP VIEW records AS SELECT * FROM source WHERE {condition}"
        connection.execute(view if condition != "true" else view.removesuffix(" WHERE true"))
        self._files = {file: read_stamp(file) for file in files}
        self._types = dict(self._rows("SELECT column_name, column_type FROM (DESCRIBE records)"))
        columns: dict[str, bool] = {}
        for name, kind in self._types.items():
            columns[name] = is_number(kind) or _text(kind)
        self.columns: Mapping[str, bool] = columns

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
            Yields, for the connection, statements to run first and queries that must find nothing,
            in turn.
        queries
            The final queries; one set of records per query.
        """
        connection = connect()
        opened: list[DuckRecords] = []
        with closed_on_error(connection):
            for name, frame in frames.items():
                connection.register(name, frame)
            confine(connection, ())
            failed = DataError(FAILED)
            yielded = steps(connection)
            while (step := quietly(lambda: next(yielded, None), failed)) is not None:
                sql, sentence = step
                answer = quietly(partial(run_query, connection, sql), failed)
                if sentence is not None and answer:
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
            return self._query_files(query, _arrow)
        return self._query_files(query, lambda answer: _plain_arrays(answer.fetchnumpy()))

    def group_records(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Group by `keys`; see the contract.

        The records are read once. The result stays in memory until every key's distinct values
        are numbered.
        """
        total, fault = self._measure(measure)
        names = [f"k{position}" for position in range(len(keys))]
        selected = _alias_columns([self._key(key) for key in keys], names)
        selected += [f"TRY_CAST({total} AS BIGINT) AS total", f"{fault} AS fault"]
        listed = ", ".join(selected)
        positions = range(1, len(keys) + 1)
        by = ", ".join(map(str, positions))
        groups = f"SELECT {listed} FROM {self._view} GROUP BY {by} LIMIT {limit}"
        self._rows(f"CREATE TEMP TABLE found AS {groups}")
        numbered = partial(_number_groups, self._connection, names)
        try:
            return quietly(numbered, partial(DataError, FAILED))
        finally:
            for table in ("found", *map(_values_table, names)):
                self._connection.execute(f"DROP TABLE IF EXISTS {table}")

    def read_grouping_sets(
        self, keys: Sequence[Key], sets: Sequence[Sequence[int]], measure: Measure, limit: int
    ) -> list[tuple[Any, ...]]:
        """Group by several sets of keys; see the contract."""
        # longer than any name, so it hides none
        aside = "_" * (1 + max(map(len, self._types)))
        names = [f"{aside}{place}" for place in range(len(keys))]
        absent, parts = grouping_sets(names, sets)
        columns = ", ".join(_alias_columns([self._key(key) for key in keys], names))
        records = f"SELECT {columns}, * FROM {self._view}"
        listed = ", ".join([absent, *names, *self._measure(measure)])
        return self._rows(f"SELECT {listed} FROM ({records}) GROUP BY {parts} LIMIT {limit}")

    def encode_records(self, keys: Sequence[Key], limits: Sequence[int], most: int) -> Coded | None:
        """Code the values of columns in memory, one after the other; see the contract.

        Values are identified by their text, so equal texts get equal codes. Columns that have
        more values than their limits, or do not fit in `most` bytes, are not coded.
        """
        unbinned = [key.column for key in keys if key.edges is None]
        if not all(is_plain(self._types[column]) for column in unbinned):
            return None
        # all keys from one reading: a CSV file is parsed anew for every query
        lists, names, selected = ["count(*)"], ["n"], ["n"]
        for place, (key, most_values) in enumerate(zip(keys, limits, strict=True)):
            column = self._key(key)
            pair = f"{{'value': {column}, 'text': CAST({column} AS VARCHAR)}}"
            lists.append(f"list(DISTINCT {pair})")
            names.append(f"v{place}")
            selected.append(f"CASE WHEN len(v{place}) <= {most_values} THEN v{place} END")
        found = f"(SELECT {', '.join(lists)} FROM {self._view}) AS found({', '.join(names)})"
        ((n, *pairs_by_key),) = self._rows(f"SELECT {', '.join(selected)} FROM {found}")
        if n and None in pairs_by_key:
            return None
        values: list[list[Any]] = []
        texts: list[list[str]] = []
        for pairs in pairs_by_key:
            by_text = {pair["text"]: pair["value"] for pair in pairs or ()}
            missing = [by_text.pop(None)] if None in by_text else []
            texts.append([*by_text])
            values.append([*by_text.values(), *missing])
        widths = [_code_bytes(len(key_texts)) for key_texts in texts]
        if n * sum(widths) > most:
            return None
        codes = []
        for key, key_texts, width in zip(keys, texts, widths, strict=True):
            codes.append(_code(self._key(key), key_texts, width))
        return Coded(values, partial(self._chunks, codes, n))

    def _chunks(self, codes: Sequence[str], n: int, rows: int) -> Iterator[list[Codes]]:
        """Yield the codes of all `n` records, `rows` at a time, from a table in memory."""
        names = [f"c{place}" for place in range(len(codes))]
        coded = ", ".join(_alias_columns(codes, names))
        self._rows(f"CREATE TEMP TABLE coded AS SELECT {coded} FROM {self._view}")
        try:
            for start in range(0, n, rows):
                part = f"SELECT * FROM coded WHERE rowid >= {start} AND rowid < {start + rows}"
                columns = self._query_files(part, lambda answer: answer.fetchnumpy())
                yield [columns[name] for name in names]
        finally:
            self._rows("DROP TABLE coded")

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        name = quoted_name(column)
        counted = f"count(*), count({name}), count(DISTINCT {name})"
        (row,) = self._rows(f"SELECT {counted} FROM {self._view}")
        records, present, distinct = row
        return records, present, distinct

    def most_alike(self, column: str) -> int:
        """Count the records of each value; see the contract."""
        name = quoted_name(column)
        counts = f"SELECT count(*) AS n FROM {self._view} GROUP BY {name}"
        ((most,),) = self._rows(f"SELECT coalesce(max(n), 0) FROM ({counts})")
        return int(most)

    def only(self, values: Mapping[str, Sequence[Any]]) -> "DuckRecords":
        """Return the records with some values alone; see the contract."""
        part = copy.copy(self)
        part._view = f"{self._view}_"  # one at a time
        conditions = [self._among(name, kept) for name, kept in values.items()]
        condition = " AND ".join(conditions)
        selection = f"SELECT * FROM {self._view} WHERE {condition}"
        self._rows(f"CREATE OR REPLACE TEMP VIEW {part._view} AS {selection}")
        return part

    def _among(self, name: str, kept: Sequence[Any]) -> str:
        """Return the condition that a column holds one of some values."""
        column = quoted_name(name)
        # NaN alone differs from itself
        present = [value for value in kept if value is not None and value == value]
        parts: list[str] = []
        if present:
            literals = ", ".join(self._literal(name, value) for value in present)
            parts.append(f"{column} IN ({literals})")
        if None in kept:
            parts.append(f"{column} IS NULL")
        if any(value != value for value in kept):
            parts.append(f"isnan({column})")
        return f"({' OR '.join(parts)})"

    def _literal(self, name: str, value: Any) -> str:
        if isinstance(value, bytes):
            return f"from_hex('{value.hex()}')"
        text = quoted_text(str(value))
        if isinstance(value, str):
            return text
        return f"CAST({text} AS {self._types[name]})"

    def close(self) -> None:
        """Close the database."""
        if self._view == "records":  # a part of the records has no database of its own
            _close(self._connection)

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._query_files(sql, _fetch_rows))

    def _query_files(self, sql: str, fetch: Callable[[Any], Any]) -> Any:
        action = partial(run_query, self._connection, sql, fetch)
        answer = read_or_explain([*self._files], FAILED, action, self._encoding)
        changed = any(read_stamp(file) != stamp for file, stamp in self._files.items())
        if changed:
            raise DataError(
                "a file changed while it was read: read it again when nothing writes to it"
            )
        return answer

    def _key(self, key: Key) -> str:
        if key.edges is None:
            return quoted_name(key.column)
        raw = quoted_name(key.column)
        number = self._number(key.column)
        edges = [_double(edge) for edge in key.edges]
        is_whole = self._types[key.column].removeprefix("U") in WHOLE_TYPES
        if is_whole and all(abs(edge) < 2**53 for edge in key.edges):
            # No casts, for speed: a whole number is below an edge if and only if it is below the
            # edge's ceiling.
            number = raw
            edges = [str(math.ceil(edge)) for edge in key.edges]
        # The likely cases come first, for speed too. NaN is above every edge.
        cases = []
        for position, edge in enumerate(edges, start=BELOW):
            cases.append(f"WHEN {number} < {edge} THEN {position}")
        cases.append(f"WHEN isnan({number}) THEN NULL")
        cases.append(f"WHEN {number} IS NOT NULL THEN {len(edges) - 1}")
        cases.append(f"WHEN {raw} IS NULL THEN NULL")
        return f"CASE {' '.join(cases)} ELSE {NOT_A_NUMBER} END"

    def _measure(self, measure: Measure) -> tuple[str, str]:
        adds = ""
        faults: list[str] = []
        if measure.count is not None:
            number = self._number(measure.count)
            in_range = f"{number} >= 0 AND {number} < {LARGEST_COUNT}"
            good = f"({in_range} AND {number} = floor({number}))"
            adds = f"CASE WHEN {good} THEN CAST({number} AS BIGINT) ELSE 0 END"
            faults.append(f"WHEN {good} IS NOT TRUE THEN {BAD_COUNT}")
        if measure.outcome is not None:
            raw = quoted_name(measure.outcome.column)
            number = self._outcome(measure.outcome)
            steps = self._steps(measure.outcome)
            adds = f"CAST({adds} AS HUGEINT) * {steps}" if adds else steps
            faults.append(f"WHEN {raw} IS NULL OR isnan({number}) THEN {MISSING_OUTCOME}")
            faults.append(f"WHEN {number} IS NULL THEN {BAD_OUTCOME}")
        total = f"CAST(sum({adds}) AS HUGEINT)" if adds else "count(*)"
        if not faults:
            return total, str(FINE)
        return total, f"max(CASE {' '.join(faults)} ELSE {FINE} END)"

    def _steps(self, outcome: Outcome) -> str:
        number = self._outcome(outcome)
        lower = float(outcome.lower)
        upper = float(outcome.upper)
        low = _double(lower)
        high = _double(upper)
        width = _double(upper - lower)
        # a null counts as low, and is a fault
        clipped = f"least(greatest({number}, {low}), {high})"
        scaled = f"({clipped} - {low}) / {width} * {_double(outcome.steps)}"
        return f"CAST(floor({scaled} + {_double(0.5)}) AS BIGINT)"

    def _outcome(self, outcome: Outcome) -> str:
        number = self._number(outcome.column)
        if outcome.proportion and _text(self._types[outcome.column]):
            word = f"lower({quoted_name(outcome.column)})"
            truths = f"WHEN 'true' THEN {_double(1)} WHEN 'false' THEN {_double(0)}"
            return f"CASE {word} {truths} ELSE {number} END"
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
        plain = np.ma.getdata(column)
        if hidden.any():
            plain = np.asarray(plain, dtype=object)
            plain[hidden] = None
        arrays[name] = plain
    return arrays


def _alias_columns(expressions: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return each expression with the name that its column gets."""
    pairs = zip(expressions, names, strict=True)
    return [f"{expression} AS {name}" for expression, name in pairs]


def _values_table(name: str) -> str:
    """Return the name of the table that numbers the values of one key."""
    return f"values_{name}"


def _number_groups(connection: Any, names: Sequence[str]) -> CodedGroups:
    """Return the groups of the table `found`, with the values of every key numbered."""
    values = []
    codes = []
    joins = []
    for name in names:
        table = _values_table(name)
        numbers = "CAST(row_number() OVER () - 1 AS BIGINT) AS code"
        distinct = f"SELECT DISTINCT {name} AS value FROM found"
        connection.execute(
            f"CREATE TEMP TABLE {table} AS SELECT value, {numbers} FROM ({distinct})"
        )
        rows = run_query(connection, f"SELECT value FROM {table} ORDER BY code")
        values.append([value for (value,) in rows])
        codes.append(f"{table}.code AS {name}")
        # a missing value is a value here, and NULL = NULL would not hold
        joins.append(f"JOIN {table} ON found.{name} IS NOT DISTINCT FROM {table}.value")
    selected = ", ".join([*codes, "total"])
    joined = " ".join(joins)
    columns = connection.execute(f"SELECT {selected} FROM found {joined}").fetchnumpy()
    ((fault,),) = run_query(connection, "SELECT max(fault) FROM found")
    keys = []
    for name, key_values in zip(names, values, strict=True):
        keys.append(CodedColumn(key_values, columns[name]))
    totals = whole_totals(columns["total"])
    return CodedGroups(tuple(keys), totals, FINE if fault is None else fault)


def _code_bytes(values: int) -> int:
    """Number of bytes that hold the codes of `values` values, and one more code for a missing
    value.
    """
    if values < 2**8:
        return 1
    return 2 if values < 2**16 else 4


def _code(key: str, texts: Sequence[str], width: int) -> str:
    """Return the expression for the position of a key's text; a missing one comes last."""
    text = f"CAST({key} AS VARCHAR)"
    listed = ", ".join(map(quoted_text, texts))
    if not texts:
        position = "NULL"
    elif len(texts) <= _SEARCHED:
        position = f"list_position([{listed}], {text}) - 1"
    else:
        position = f"CAST(enum_code(CAST({text} AS ENUM ({listed}))) AS BIGINT)"
    return f"CAST(coalesce({position}, {len(texts)}) AS {_UNSIGNED[width]})"


def frame_connection(
    frame: Any, readings: Sequence[ColumnReading] = (), na: Sequence[str] = ()
) -> Any:
    """Return a database with the view `source` of a pandas, polars or Arrow table, or of a mapping
    of names to numpy arrays.
    """
    connection = connect()
    unreadable = partial(
        InputError,
        f"a {type(frame).__name__} cannot be read: give a path, a database address, a data"
        " frame (pandas, polars, Arrow) or an Ibis table",
    )
    with closed_on_error(connection):
        registered = "unread" if readings or na else "source"
        names = quietly(lambda: _frame_header(frame), unreadable)
        if not names:
            raise DataError("the data frame has no columns")
        quietly(lambda: connection.register(registered, frame), unreadable)
        refuse_many_columns(names, "the data frame")
        if readings or na:
            raw = without_codes("unread", names, na)
            selected = selected_columns(readings, names)
            view = f"CREATE TEMP VIEW source AS SELECT {selected} FROM {raw}"
            quietly(lambda: connection.execute(view), unreadable)
            names += [part.column for part in readings if part.adds]
            for part in readings:
                refuse_misfits(connection, part, raw, lambda action: quietly(action, unreadable))
        refuse_like_names(connection, names, "the data frame")
        confine(connection, ())
    return connection


def connect() -> Any:
    """Open a database in memory that may not spill to disk, load an extension, reach the caller's
    variables or print.

    >>> connect().execute("SELECT current_setting('enable_progress_bar')").fetchall()
    [(False,)]
    """
    import duckdb

    connection = duckdb.connect(":memory:", config=SETTINGS)
    # Where Python looks interactive, bars would be printed among the results. A notebook without
    # widgets has none, and refuses to be told so.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    return connection


@contextlib.contextmanager
def closed_on_error(connection: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _close(connection)
        raise


def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # a query that was given up may still hold it
        connection.close()


def confine(connection: Any, files: Sequence[str]) -> None:
    """Restrict the connection to these files."""
    allowed: list[str] = []
    for file in files:
        allowed += dict.fromkeys((file, literal(file)))
    listed = ", ".join(map(quoted_text, allowed))
    connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _fetch_rows(answer: Any) -> list[tuple[Any, ...]]:
    return list(answer.fetchall())


def run_query(connection: Any, sql: str, fetch: Callable[[Any], Any] = _fetch_rows) -> Any:
    """Return the rows of a query."""
    try:
        return fetch(connection.execute(sql))
    except RuntimeError as error:
        if str(error) == "Query interrupted":  # what DuckDB makes of Ctrl-C
            raise KeyboardInterrupt from None
        raise


def read_or_explain(
    files: Sequence[str],
    otherwise: str,
    action: Callable[[], Result],
    encoding: str | None = None,
) -> Result:
    """Return what `action` reads; if it fails, say which file has what problem, without quoting
    its content.
    """

    def explain_failure() -> DataError:
        for file in files:
            trouble = diagnose_csv(file, encoding)
            if trouble is not None:
                return DataError(trouble)
        return DataError(otherwise)

    return quietly(action, explain_failure)


def selected_columns(readings: Sequence[ColumnReading], names: Sequence[str]) -> str:
    """Return the selection that reads columns as declared; refuse a missing
    column.
    """
    replaced: list[str] = []
    added: list[str] = []
    for part in readings:
        if part.source_column and part.source_column not in names:
            raise no_column(part.source_column, tuple(names))
        if part.adds and part.column in names:
            raise InputError(f"the data have a column {part.column!r} already: rename it")
        target = added if part.adds else replaced
        expression = part.expression(quoted_name(part.source_column))
        target.append(f"{expression} AS {quoted_name(part.column)}")
    star = f"* REPLACE ({', '.join(replaced)})" if replaced else "*"
    return ", ".join([star, *added])


def without_codes(relation: str, names: Sequence[str], na: Sequence[str]) -> str:
    """Return a relation in which some codes are missing values, whatever the type of a column.

    >>> without_codes("raw", ["sex"], [])
    'raw'
    """
    if not na:
        return relation
    codes = ", ".join(map(quoted_text, na))
    columns = []
    for column in map(quoted_name, names):
        # A number of a data frame with missing values is written -9.0.
        text = f"regexp_replace(trim(CAST({column} AS VARCHAR)), '[.]0$', '')"
        columns.append(f"CASE WHEN {text} IN ({codes}) THEN NULL ELSE {column} END AS {column}")
    return f"(SELECT {', '.join(columns)} FROM {relation})"


def refuse_misfits(
    connection: Any, part: ColumnReading, raw: str, read: Callable[[Callable[[], Any]], Any]
) -> None:
    """Refuse values that are not written as declared; none is quoted."""
    if not part.source_column:
        return
    name = quoted_name(part.source_column)
    unreadable = f"{name} IS NOT NULL AND ({part.expression(name)}) IS NULL"
    misfits = f"SELECT 1 FROM {raw} WHERE {unreadable} LIMIT 1"
    if read(lambda: run_query(connection, misfits)):
        raise DataError(part.misfit())


def _frame_header(frame: Any) -> list[str]:
    if isinstance(frame, Mapping):
        return [str(name) for name in frame]
    if hasattr(frame, "collect_schema"):  # polars, also lazy
        return list(frame.collect_schema())
    arrow_names = getattr(getattr(frame, "schema", None), "names", None)
    names = arrow_names if isinstance(arrow_names, list) else frame.columns
    return [str(name) for name in names]


def refuse_many_columns(names: Sequence[str], what: str) -> None:
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{what} has more than {MAX_COLUMNS:,} columns: keep those that are needed")


def source_columns(connection: Any) -> list[str]:
    rows = run_query(connection, "SELECT column_name FROM (DESCRIBE source)")
    return [name for (name,) in rows]


def refuse_like_names(connection: Any, names: Sequence[str], what: str) -> None:
    """Refuse names that DuckDB changed to distinguish them; it also names unnamed columns."""
    read_names = source_columns(connection)
    unchanged = len(read_names) == len(names)
    if unchanged:
        pairs = zip(names, read_names, strict=True)
        unchanged = all(name in ("", read_name) for name, read_name in pairs)
    if not unchanged:
        raise DataError(
            f"{what} names two columns alike, capitals aside: give every column a name of its own"
        )


def literal(file: str) -> str:
    """Return a pattern that matches this file and no other.

    >>> literal("a[1]*.csv")
    'a[[]1][*].csv'
    """
    return re.sub(r"([*?\[])", r"[\1]", file)


def is_number(kind: str) -> bool:
    """Whether a type is numeric or boolean."""
    return kind.removeprefix("U").startswith(_NUMBERS) and not _is_list(kind)


def _text(kind: str) -> bool:
    return kind.startswith(_TEXTS) and not _is_list(kind)


def is_plain(kind: str) -> bool:
    """Whether the text of a value identifies it."""
    is_day = kind.startswith(_DAYS) and not _is_list(kind)
    return is_number(kind) or _text(kind) or is_day


def _is_list(kind: str) -> bool:
    """Whether a value of this type holds several, as INTEGER[] and INTEGER[3] do."""
    return kind.endswith("]")


def _double(number: float) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def quoted_name(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
