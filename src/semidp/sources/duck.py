"""CSV files, Parquet files and data frames, grouped by DuckDB in this process.

Nothing is written: the database is in memory and may not spill to disk. Once its files are named it
can open no other, load no extension and change no setting. Files are opened in `duck_files`, a
WHERE is checked in `duck_conditions`; what the groups mean is decided in `opening`.
"""

import contextlib
import copy
import importlib.util
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.core.tables.counts import no_column
from semidp.errors import DataError, InputError, SemidpError
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
    whole_totals,
)
from semidp.sources.data_files import (
    stamp_of,
    trouble_of,
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

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")

_NUMBERS = (*_WHOLE, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")

_TEXTS = ("VARCHAR", "ENUM")

_DAYS = ("DATE", "TIME", "TIMESTAMP")

_SEARCHED = 32  # texts that are found quickest one by one

_UNSIGNED = {1: "UTINYINT", 2: "USMALLINT", 4: "UINTEGER"}

MAX_COLUMNS = 10_000

PATIENCE = 60.0  # seconds that a WHERE may take, and a second more for each of the next:

SLOWEST_BYTES, SLOWEST_ROWS = 1e6, 1e4

_GRACE = 1.0

_SLOW_WHERE = (
    "the WHERE takes too long and was given up: write a condition that is quicker to decide"
)

_SLOW_AGGREGATE = (
    "an aggregate takes too long and was given up: write one that is quicker to compute"
)

FAILED = (
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
        self._files = {file: stamp_of(file) for file in files}
        self._types = dict(self._rows("SELECT column_name, column_type FROM (DESCRIBE records)"))
        self.columns: Mapping[str, bool] = {
            name: _numeric(kind) or _text(kind) for name, kind in self._types.items()
        }

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
        with closed_on_error(connection):
            for name, frame in frames.items():
                connection.register(name, frame)
            confine(connection, ())
            failed = DataError(FAILED)
            counts = [run_query(connection, f"SELECT count(*) FROM {name}") for name in frames]
            rows = sum(count for ((count,),) in counts)
            patience = PATIENCE + rows / SLOWEST_ROWS
            yielded = steps(connection)
            while (step := quietly(lambda: next(yielded, None), failed)) is not None:
                sql, sentence = step
                carry_out = partial(run_query, connection, sql, patience, too_slow=_SLOW_AGGREGATE)
                answer = quietly(carry_out, failed)
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
            return quietly(lambda: _coded(self._connection, names), partial(DataError, FAILED))
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
        answer = read_or_explain(
            [*self._files], FAILED, lambda: run_query(self._connection, sql, self._patience, fetch)
        )
        if any(stamp_of(file) != stamp for file, stamp in self._files.items()):
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
                for (value,) in run_query(
                    connection, f"SELECT value FROM values_{name} ORDER BY code"
                )
            ]
        )
    codes = ", ".join(f"values_{name}.code AS {name}" for name in names)
    joined = " ".join(
        f"JOIN values_{name} ON found.{name} IS NOT DISTINCT FROM values_{name}.value"
        for name in names
    )
    columns = connection.execute(f"SELECT {codes}, total FROM found {joined}").fetchnumpy()
    ((fault,),) = run_query(connection, "SELECT max(fault) FROM found")
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


def frame_connection(frame: Any, readings: Sequence[ColumnReading] = ()) -> Any:
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
        registered = "source" if not readings else "unread"
        quietly(lambda: connection.register(registered, frame), unreadable)
        names = quietly(lambda: _frame_header(frame), unreadable)
        refuse_many_columns(names, "the data frame")
        if readings:
            selected = selected_columns(readings, names)
            view = f"CREATE TEMP VIEW source AS SELECT {selected} FROM unread"
            quietly(lambda: connection.execute(view), unreadable)
            names = [*names, *(part.column for part in readings if part.adds)]
            for part in readings:
                refuse_misfits(
                    connection, part, "unread", lambda action: quietly(action, unreadable)
                )
        refuse_like_names(connection, names, "the data frame")
        confine(connection, ())
    return connection


def frame_patience(connection: Any) -> float:
    """Return the seconds that a WHERE on a data frame may take: more for more records."""
    count = partial(run_query, connection, "SELECT count(*) FROM source")
    with closed_on_error(connection):
        ((rows,),) = quietly(count, DataError(FAILED))
    return PATIENCE + float(rows) / SLOWEST_ROWS


def connect() -> Any:
    """Open a database in memory that may not spill to disk, load an extension or reach the caller's
    variables.
    """
    import duckdb

    return duckdb.connect(":memory:", config=SETTINGS)


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
    """Leave the connection these files and nothing else."""
    allowed = ", ".join(
        quoted_text(name) for file in files for name in dict.fromkeys((file, literal(file)))
    )
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _fetched(answer: Any) -> list[tuple[Any, ...]]:
    return list(answer.fetchall())


def run_query(
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


def read_or_explain(files: Sequence[str], otherwise: str, action: Callable[[], Result]) -> Result:
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


def selected_columns(readings: Sequence[ColumnReading], names: Sequence[str]) -> str:
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


def refuse_misfits(
    connection: Any, part: ColumnReading, raw: str, read: Callable[[Callable[[], Any]], Any]
) -> None:
    """Refuse values that are not written as was declared: none is quoted."""
    name = quoted_name(part.needed)
    misfits = (
        f"SELECT 1 FROM {raw} WHERE {name} IS NOT NULL AND ({part.expression(name)}) IS NULL"
        " LIMIT 1"
    )
    if read(lambda: run_query(connection, misfits)):
        raise DataError(part.misfit())


def _frame_header(frame: Any) -> list[str]:
    if isinstance(frame, Mapping):
        return [str(name) for name in frame]
    arrow = getattr(getattr(frame, "schema", None), "names", None)
    return [str(name) for name in (arrow if isinstance(arrow, list) else frame.columns)]


def refuse_many_columns(names: Sequence[str], what: str) -> None:
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{what} has more than {MAX_COLUMNS:,} columns: keep those that are needed")


def source_columns(connection: Any) -> list[str]:
    return [name for (name,) in run_query(connection, "SELECT column_name FROM (DESCRIBE source)")]


def refuse_like_names(connection: Any, names: Sequence[str], what: str) -> None:
    """Refuse names that DuckDB changed to tell them apart; it names a column that has none."""
    read_names = source_columns(connection)
    if len(read_names) != len(names) or any(
        name not in ("", other) for name, other in zip(names, read_names, strict=True)
    ):
        raise DataError(
            f"{what} names two columns alike, capitals aside: give every column a name of its own"
        )


def literal(file: str) -> str:
    """Return a pattern that matches this file and no other.

    >>> literal("a[1]*.csv")
    'a[[]1][*].csv'
    """
    return re.sub(r"([*?\[])", r"[\1]", file)


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
