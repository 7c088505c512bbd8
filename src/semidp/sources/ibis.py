"""Tables of databases and clusters, grouped where they are through Ibis.

Any Ibis table will do; addresses open one. Everything is pushed down: only groups come back.
Passwords come from the environment and reach no message. What the groups mean is decided in the
package, not here.
"""

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import numpy as np

from semidp.errors import DataError, InputError, MissingExtra, SemidpError
from semidp.sources.contract import (
    BAD_COUNT,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NO_FOLDERS,
    CodedGroups,
    Key,
    Measure,
    Outcome,
    Records,
    grouping_sets,
    quietly,
    refuse_calls,
    short_enough,
)
from semidp.sources.duck_conditions import of_the_record_alone

_FAILED = (
    "the data could not be tabulated: the database refused the query, or a WHERE does not fit its"
    " values"
)
_NO_COPY = (
    "the counts and sums must be about the same records, and the database refused to keep them in a"
    " temporary table: ask for the right to, or export them to a file"
)
# What PostgreSQL reads for one release, it reads as of one moment; and a WHERE takes an hour at
# most.
_PATIENCE = 3600.0
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '1h'"
_FILES = ("duckdb", "sqlite")  # their addresses are paths
_EXTRAS = {"postgres": "postgres", "postgresql": "postgres", "spark": "spark"}
# Words that read the session or the clock without a bracket, and words before a bracket that call
# nothing.
_SESSION = {
    *(
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
    ),
    *("current_user", "localtime", "localtimestamp", "session_user", "system_user", "user"),
}
_SYNTAX = {
    *(
        "and",
        "or",
        "not",
        "in",
        "is",
        "like",
        "ilike",
        "between",
        "case",
        "when",
        "then",
        "else",
        "cast",
        "coalesce",
    ),
    *(
        "nullif",
        "greatest",
        "least",
        "numeric",
        "decimal",
        "varchar",
        "char",
        "character",
        "float",
        "bit",
        "from",
    ),
    "for",
}
_GROUPING_SETS = ("duckdb", "postgres", "pyspark")  # others read the records once for each set
_RENAMED = {"trim": "btrim"}  # what PostgreSQL calls it
# dates to PostgreSQL, Spark and SQLite
_CLOCK = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)

Result = TypeVar("Result")


class IbisRecords(Records):
    """The records of an Ibis table; `steady` where every query sees the same ones, as in one
    transaction.
    """

    def __init__(
        self, table: Any, close: Callable[[], None] = lambda: None, *, steady: bool = False
    ) -> None:
        self._table = table
        self._close = close
        self._steady = steady
        self.columns: Mapping[str, bool] = {
            name: kind.is_numeric() or kind.is_boolean() for name, kind in table.schema().items()
        }

    @classmethod
    def of(cls, table: Any, where: str | None) -> "IbisRecords":
        """Read an Ibis table, whose connection stays the caller's."""
        if not hasattr(table, "schema") or not hasattr(table, "aggregate"):
            raise InputError(
                "an Ibis value was given that is not a table: give a table or a selection from one"
            )
        return cls(_kept(table, where))

    @classmethod
    def of_spark(cls, frame: Any, where: str | None) -> "IbisRecords":
        """Read a Spark data frame, whose session stays the caller's."""
        missing = MissingExtra(
            "a Spark data frame needs more packages: pip install 'semidp[spark]'"
        )
        try:
            import ibis
        except ImportError:
            raise missing from None
        name = f"semidp_{secrets.token_hex(8)}"

        def viewed() -> Any:
            frame.createOrReplaceTempView(name)
            return ibis.pyspark.connect(frame.sparkSession).table(name)

        table = _hushed(viewed, InputError("the Spark data frame could not be read"))
        return cls(_kept(table, where), lambda: frame.sparkSession.catalog.dropTempView(name))

    @classmethod
    def at(
        cls, address: str, name: str | None, where: str | None, *, hive_partitions: bool = False
    ) -> "IbisRecords":
        """Open the table `name` at a database address, which must not hold a password."""
        parts = _parts(address)
        if not name:
            raise InputError("a database address needs the name of a table", needs="from")
        if hive_partitions and not _names_files(parts, name):
            raise InputError(NO_FOLDERS)
        connection, close = _connect(parts)
        try:
            steady = connection.name == "postgres"
            if steady:
                begin = partial(connection.con.execute, _SNAPSHOT)
                _hushed(
                    begin, InputError("PostgreSQL refused to begin a transaction that only reads")
                )
            return cls(
                _kept(_table(connection, parts, name, hive_partitions), where), close, steady=steady
            )
        except BaseException:
            close()
            raise

    @classmethod
    def both_at(
        cls, address: str, names: tuple[str | None, str | None]
    ) -> "tuple[IbisRecords, IbisRecords]":
        """Open two tables at one database address, so that it can join them; the first closes the
        connection.
        """
        first = cls.at(address, names[0], None)
        with contextlib.ExitStack() as on_error:
            on_error.callback(first.close)
            if not names[1]:
                raise InputError(
                    "a database address needs the name of a table of units too", needs="from"
                )
            table = _table(first._table.get_backend(), _parts(address), names[1], False)
            on_error.pop_all()
        return first, cls(table, steady=first._steady)

    @property
    def table(self) -> Any:
        """The Ibis table."""
        return self._table

    def shares_connection(self, other: "IbisRecords") -> bool:
        """Whether one query can read both."""
        return self._table.get_backend() is other._table.get_backend()

    def finds(self, query: Any) -> bool:
        """Whether a query over the same connection returns a row."""
        import ibis

        return bool(self._answer(query.select(found=ibis.literal(1)).limit(1), ["found"])[0])

    def distinct(self, column: str, limit: int) -> list[Any]:
        """Return distinct values of a column, at most so many."""
        (values,) = self._answer(self._table.select(column).distinct().limit(limit), [column])
        return list(values)

    def grouped(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Group by `keys`; see the contract."""
        rows, names = self._selected(keys, measure)
        query = (
            rows.group_by(names)
            .aggregate(total=rows.adds.sum(), fault=rows.fault.max())
            .limit(limit)
        )
        return CodedGroups.of(self._answer(query, [*names, "total", "fault"]))

    def frame(self, columns: Sequence[str]) -> Any:
        """Return some columns in memory, as a frame that DuckDB reads; see the contract."""
        names = list(dict.fromkeys(columns))
        values = self._answer(self._table.select(*names), names)
        return {
            name: np.array(column, dtype=object) for name, column in zip(names, values, strict=True)
        }

    def together(
        self, keys: Sequence[Key], sets: Sequence[Sequence[int]], measure: Measure, limit: int
    ) -> list[tuple[Any, ...]] | None:
        """Return one reading of all groups; Ibis has no words for GROUPING SETS, but the keys are
        its own.
        """
        import ibis

        connection = self._table.get_backend()
        if connection.name not in _GROUPING_SETS:
            return None
        rows, names = self._selected(keys, measure)
        absent, parts = grouping_sets(names, sets)
        sql = (
            f"SELECT {absent} AS absent, {', '.join(names)}, SUM(adds) AS total, MAX(fault) AS"
            f" fault FROM ({connection.compile(rows)}) AS records GROUP BY {parts}"
        )
        total = rows.aggregate(total=rows.adds.sum(), fault=rows.fault.max()).schema()
        schema = {
            "absent": "int64",
            **{name: rows.schema()[name] for name in names},
            **dict(total.items()),
        }
        query = connection.sql(sql, schema=ibis.schema(schema)).limit(limit)
        return list(zip(*self._answer(query, list(schema)), strict=True))

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        values = self._table[column]
        query = self._table.aggregate(
            records=self._table.count(), present=values.count(), distinct=values.nunique()
        )
        (records,), (present,), (distinct,) = self._answer(
            query, ["records", "present", "distinct"]
        )
        return records, present, distinct

    def most_alike(self, column: str) -> int:
        """Count the records of each value; see the contract."""
        counted = self._table.group_by(column).aggregate(semidp_records=self._table.count())
        ((most,),) = self._answer(counted.aggregate(most=counted.semidp_records.max()), ["most"])
        return int(most or 0)

    def held(self, columns: Sequence[str] | None) -> "IbisRecords":
        """Return these records where one transaction reads them, else a copy in a temporary table;
        see the contract.
        """
        if self._steady:
            return self

        def copied() -> Any:
            copy = (self._table if columns is None else self._table.select(*columns)).cache()
            copy.count().to_pyarrow()  # Spark fills the copy when it is first read
            return copy

        copy = _hushed(lambda: _bounded(self._table.get_backend(), copied), DataError(_NO_COPY))
        closing = contextlib.ExitStack()
        closing.callback(self._close)
        closing.callback(copy.release)  # first
        return IbisRecords(copy, closing.close, steady=True)

    def only(self, values: Mapping[str, Sequence[Any]]) -> "IbisRecords":
        """Return the records with some values alone; see the contract."""
        conditions = []
        for name, kept in values.items():
            column = self._table[name]
            condition = column.isin(
                [value for value in kept if value is not None and value == value]
            )
            condition = condition | column.isnull() if None in kept else condition
            conditions.append(
                condition | column.isnan() if any(value != value for value in kept) else condition
            )
        return IbisRecords(self._table.filter(*conditions), steady=self._steady)

    def spark_frame(self) -> Any | None:
        """Return the records as a Spark data frame; None where Spark does not hold them."""
        connection = self._table.get_backend()
        return (
            connection._session.sql(connection.compile(self._table))
            if connection.name == "pyspark"
            else None
        )

    def close(self) -> None:
        """Close the connection if it was opened here."""
        _hushed(self._close, DataError("the connection to the database could not be closed"))

    def _answer(self, query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
        return _hushed(lambda: _fetched(query, names), DataError(_FAILED))

    def _key(self, key: Key) -> Any:
        import ibis

        if key.edges is None:
            return self._table[key.column]
        number, (first, *later_edges) = self._number(key.column), key.edges
        below = [] if first == float("-inf") else [(number < first, BELOW)]
        return ibis.cases(
            (self._missing(key.column), ibis.null("int64")),
            *below,
            *((number < edge, position) for position, edge in enumerate(later_edges)),
            else_=len(later_edges),
        )

    def _selected(self, keys: Sequence[Key], measure: Measure) -> tuple[Any, list[str]]:
        """Return of each record its keys, what it adds and what is wrong with it; and the names of
        the keys.
        """
        adds, fault = self._row(measure)
        named = {f"k{place}": self._key(key) for place, key in enumerate(keys)}
        return self._table.select(**named, adds=adds, fault=fault), list(named)

    def _row(self, measure: Measure) -> tuple[Any, Any]:
        """Return what one record adds, and what is wrong with it."""
        import ibis

        adds: list[Any] = []
        faults = []
        if measure.count is not None:
            number = self._number(measure.count)
            fits = ((number >= 0) & (number < LARGEST_COUNT)).fill_null(False)
            small = ibis.ifelse(fits, number, 0.0)  # no engine casts NaN or 1e300 to an integer
            good = fits & (small == small.floor())
            adds.append(small.cast("int64"))
            faults.append((~good, BAD_COUNT))
        if measure.outcome is not None:
            missing = self._missing(measure.outcome.column)
            adds.append(self._steps(measure.outcome, missing))
            faults.append((missing, MISSING_OUTCOME))
        if not adds:
            return ibis.literal(1).cast("int64"), ibis.literal(FINE).cast("int64")
        total = adds[0] if len(adds) == 1 else adds[0].cast("decimal(38, 0)") * adds[1]
        return total, ibis.cases(*faults, else_=FINE)

    def _steps(self, outcome: Outcome, missing: Any) -> Any:
        import ibis

        low, high = float(outcome.lower), float(outcome.upper)
        clipped = (
            ibis.ifelse(missing, low, self._number(outcome.column)).cast("float64").clip(low, high)
        )
        return ((clipped - low) / (high - low) * float(outcome.steps) + 0.5).floor().cast("int64")

    def _missing(self, column: str) -> Any:
        return self._table[column].isnull() | self._number(column).isnan()

    def _number(self, column: str) -> Any:
        import ibis

        values = self._table[column]
        if values.type().is_boolean():
            return ibis.ifelse(values, 1.0, 0.0).cast("float64")
        return values.cast("float64")


def _fetched(query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
    connection = query.get_backend()
    if connection.name != "postgres":
        table = _bounded(connection, query.to_pyarrow)
        return [table.column(name).to_pylist() for name in names]
    # Not through Ibis, which declares a cursor that a failed query leaves open, and the transaction
    # with it.
    with connection.begin() as cursor:
        rows = cursor.execute(connection.compile(query)).fetchall()
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def _parts(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        hidden = parts.password is not None or "password" in parts.query.lower()
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None:
        raise InputError(
            "the database address is malformed: write it as postgres://user@host:5432/database"
        )
    if hidden:
        raise InputError(
            "the database address holds a password: leave it out, and set SEMIDP_PASSWORD instead"
        )
    return parts


def _connect(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open the database and say how to close it."""
    extra = _EXTRAS.get(parts.scheme, "ibis")
    missing = MissingExtra(
        f"a {parts.scheme}:// address needs more packages: pip install 'semidp[{extra}]'"
    )
    try:
        import ibis
    except ImportError:
        raise missing from None
    place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    failure = InputError(
        f"cannot open {place}: check the address, that its server runs and admits you, and the"
        " password in SEMIDP_PASSWORD"
    )

    def opened() -> tuple[Any, Callable[[], None]]:
        try:
            if parts.scheme == "spark":
                return _spark(parts)
            connection = ibis.connect(_with_password(parts))
            return connection, connection.disconnect
        except ImportError:
            pass
        raise missing

    return _hushed(opened, failure)


def _with_password(parts: SplitResult) -> str:
    password = os.environ.get("SEMIDP_PASSWORD")
    if not password or parts.scheme in _FILES:
        return parts.geturl()
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def _spark(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open a Spark session, or join the one that this process already has."""
    import ibis
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return ibis.pyspark.connect(active), lambda: None
    local = parts.netloc == "local"
    builder = SparkSession.builder.master(
        "local[*]" if local else f"spark://{parts.netloc}"
    ).appName("semidp")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    with contextlib.ExitStack() as stack:
        # Spark makes a warehouse in the working folder otherwise, and listens on every interface
        if local:
            warehouse = stack.enter_context(
                TemporaryDirectory(prefix=".semidp-", ignore_cleanup_errors=True)
            )
            settings |= {"spark.sql.warehouse.dir": warehouse}
            # what its workers run is read now: they need semidp
            if "PYSPARK_PYTHON" not in os.environ:
                os.environ["PYSPARK_PYTHON"] = sys.executable
                stack.callback(os.environ.pop, "PYSPARK_PYTHON", None)
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        return ibis.pyspark.connect(session), stack.pop_all().close


def _names_files(parts: SplitResult, name: str) -> bool:
    return parts.scheme == "spark" and "/" in name


def _table(connection: Any, parts: SplitResult, name: str, hive_partitions: bool) -> Any:
    if _names_files(parts, name):
        none = InputError(f"Spark finds no Parquet files at {name}")
        files = _hushed(lambda: connection.read_parquet(name, recursiveFileLookup="true"), none)
        return (
            _hushed(lambda: _with_partitions(connection, name, files), none)
            if hive_partitions
            else files
        )
    place, _, last = name.rpartition(".")
    for attempt in (lambda: connection.table(name), lambda: connection.table(last, database=place)):
        with contextlib.suppress(InputError):
            return _hushed(attempt, InputError("no such table"))
    none = InputError(f"there is no table {name!r} in this database")
    table_names: list[str] = sorted(_hushed(connection.list_tables, none))
    legal = f"the tables are {', '.join(table_names)}" if table_names else "it has no tables"
    raise InputError(f"{none}; {legal}")


def _with_partitions(connection: Any, name: str, files: Any) -> Any:
    """Return Parquet files with the columns that the names of folders hold, as text; Spark prefers
    them to the files'.

    So a name that both have is refused.
    """
    settings, key = (
        connection._session.conf,
        "spark.sql.sources.partitionColumnTypeInference.enabled",
    )
    before = settings.get(key)
    settings.set(key, "false")
    try:
        frame = connection._session.read.parquet(name)
        table = connection.read_parquet(name)
    finally:
        settings.set(key, before)
    column_names = {column.lower() for column in files.columns}
    folders = {
        part.partition("=")[0].lower()
        for file in frame.inputFiles()
        for part in file.split("/")
        if "=" in part
    }
    if column_names & folders:
        raise InputError(
            "the files hold a column that their folders name too: read them without the partitions"
        )
    return table


def _kept(table: Any, where: str | None) -> Any:
    """Return the table with a WHERE in the database's own SQL."""
    if where is None:
        return table
    failure = InputError(
        "the WHERE must be one condition on the columns of a record, in the database's SQL, such as"
        " age >= 18 AND region <> 'north': check its names and quotes"
    )

    def kept() -> Any:
        connection = table.get_backend()
        sql = f"SELECT * FROM ({connection.compile(table)}) AS records WHERE (\n{where}\n)"
        _of_the_record_alone(table, where, sql)
        rows = connection.sql(sql, schema=table.schema())
        # the database reads the condition now, so that a wrong one is told apart
        _fetched(rows.limit(0), [])
        return rows

    return _hushed(kept, failure)


def _of_the_record_alone(table: Any, where: str, sql: str) -> None:
    """Refuse a text that is not one condition, or that may depend on more than the record.

    What it calls is asked of the database: functions that it declares to depend on their arguments
    alone pass, and those of which nothing is known do not.
    """
    connection = table.get_backend()
    calls = _calls(where, connection.dialect, table.schema())
    if connection.name == "duckdb":
        of_the_record_alone(connection.con.cursor(), where, table.columns)
    elif connection.name == "postgres":
        refuse_calls({name for name, _ in calls - _immutable(connection, calls)})
    elif connection.name == "pyspark" and calls:
        refuse_calls(
            _not_deterministic(connection._session.sql(sql)._jdf.queryExecution().analyzed())
        )
    else:
        refuse_calls({name for name, _ in calls})


def _calls(where: str, dialect: Any, columns: Mapping[str, Any]) -> set[tuple[str, int]]:
    """Return the functions that a condition calls, and with how many arguments; refuse what is not
    one condition.

    Names come from the words before a bracket, since a parser that knows many dialects renames
    functions.
    """
    import sqlglot
    from sqlglot import exp

    short_enough(where)
    if not where.strip():
        raise ValueError("an empty condition")
    (statement,) = sqlglot.parse(f"SELECT (\n{where}\n)", dialect=dialect)
    clauses = {name for name, part in statement.args.items() if part}
    nodes = list(statement.walk())
    plain = (
        *(
            exp.Column,
            exp.Identifier,
            exp.Literal,
            exp.Boolean,
            exp.Null,
            exp.Binary,
            exp.Unary,
            exp.Between,
            exp.In,
        ),
        *(exp.Func, exp.Tuple, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, exp.Escape),
    )
    wrong = (exp.Query, exp.AggFunc, exp.Dot, exp.Operator)
    if clauses != {"expressions"} or len(statement.expressions) != 1 or nodes[0] is not statement:
        raise ValueError("not one condition")
    if any(not isinstance(node, plain) or isinstance(node, wrong) for node in nodes[1:]):
        raise ValueError("not a condition on a record")
    type_by_name = {name.lower(): kind for name, kind in columns.items()}
    if any(node.name.lower() not in type_by_name for node in statement.find_all(exp.Column)):
        raise ValueError("not columns of the record")
    tokens = sqlglot.tokenize(where, dialect=dialect)
    bare = [
        (token.text.lower(), token)
        for token in tokens
        if token.token_type.name not in ("STRING", "IDENTIFIER")
    ]
    if any(text in _SESSION for text, _ in bare):
        raise ValueError("the date, or who asks")
    texts = [node.this for node in statement.find_all(exp.Literal) if node.is_string]
    dates = [
        node for node in statement.find_all(exp.Cast) if node.to.this in exp.DataType.TEMPORAL_TYPES
    ]
    if any(_CLOCK.search(text) for text in texts) or not all(
        _timeless(node.this, type_by_name) for node in dates
    ):
        raise InputError(
            "the WHERE must depend on the record alone, and text such as 'now' can mean the time of"
            " reading"
        )
    places = [
        place for place in range(1, len(tokens)) if tokens[place].token_type.name == "L_PAREN"
    ]
    return {
        (name, _arguments([token.token_type.name for token in tokens[place:]]))
        for place in places
        if (name := _name_before(tokens[place - 1])) is not None
    }


def _name_before(token: Any) -> str | None:
    """Return the function that a token before a bracket names, as the database writes it; None
    where it is syntax.
    """
    if token.token_type.name == "IDENTIFIER":
        return str(token.text)
    word = token.text.lower()
    return (
        word
        if re.match(r"[^\W\d]", word) and token.token_type.name != "STRING" and word not in _SYNTAX
        else None
    )


def _arguments(kinds: Sequence[str]) -> int:
    """Count the arguments in the brackets with which a list of kinds of tokens begins.

    >>> _arguments(
    ...     [
    ...         "L_PAREN",
    ...         "VAR",
    ...         "COMMA",
    ...         "L_PAREN",
    ...         "VAR",
    ...         "COMMA",
    ...         "VAR",
    ...         "R_PAREN",
    ...         "R_PAREN",
    ...         "COMMA",
    ...     ]
    ... )
    2
    """
    depth = commas = 0
    for kind in kinds:
        depth += kind.startswith("L_") - kind.startswith("R_")
        commas += kind == "COMMA" and depth == 1
        if depth == 0:
            break
    return commas + 1 if kinds[1] != "R_PAREN" else 0


def _timeless(value: Any, columns: Mapping[str, Any]) -> bool:
    """Whether a value can be cast to a date without asking the clock: a constant, or a column of
    dates or times.
    """
    from sqlglot import exp

    return isinstance(value, exp.Literal) or (
        isinstance(value, exp.Column) and bool(columns[value.name.lower()].is_temporal())
    )


def _immutable(connection: Any, calls: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the calls of which PostgreSQL declares every form immutable; refuse operators that are
    volatile.

    The forms of a call take as many arguments as it has; where none does, the call has a syntax of
    its own, such as substring(a FROM 2), and every form counts.
    """
    forms = (
        "SELECT proname, pronargs - pronargdefaults, CASE WHEN provariadic = 0 THEN pronargs ELSE"
        " 100 END, provolatile = 'i' AND prokind = 'f' AND NOT proretset FROM pg_catalog.pg_proc"
        " WHERE proname = ANY(%s) AND pg_catalog.pg_function_is_visible(oid)"
    )
    volatile = (
        "SELECT 1 FROM pg_catalog.pg_proc WHERE provolatile = 'v' AND (oid IN (SELECT oprcode FROM "
        "pg_catalog.pg_operator) OR oid IN (SELECT castfunc FROM pg_catalog.pg_cast)) LIMIT 1"
    )
    with connection.begin() as cursor:
        if cursor.execute(volatile).fetchall():
            raise InputError(
                "the database has operators or casts that it declares volatile: filter in a view"
                " instead"
            )
        functions = cursor.execute(
            forms, [[_RENAMED.get(name, name) for name, _ in calls]]
        ).fetchall()
    changing = set()
    for name, count in calls:
        named = [form for form in functions if form[0] == _RENAMED.get(name, name)]
        meant = [form for form in named if form[1] <= count <= form[2]] or named
        if meant and all(immutable for *_, immutable in meant):
            changing.add((name, count))
    return changing


def _not_deterministic(plan: Any) -> set[str]:
    """Return what Spark does not declare deterministic in the condition of a plan, and what reads
    no column.

    The time of day is deterministic to Spark, being the same for all records of a query: it is a
    leaf of the condition that is neither a column nor a constant.
    """
    while plan.nodeName() != "Filter":
        plan = plan.children().head()
    random_parts, left = set(), [plan.condition()]
    while left:
        part = left.pop()
        below = [part.children().apply(position) for position in range(part.children().size())]
        leaf = not below and part.getClass().getSimpleName() not in (
            "AttributeReference",
            "Literal",
        )
        if leaf or (not part.deterministic() and all(child.deterministic() for child in below)):
            random_parts.add(str(part.prettyName()))
        left += below
    return random_parts


def _bounded(connection: Any, action: Callable[[], Result]) -> Result:
    """Return what `action` returns; interrupt a database that has not answered within an hour.

    PostgreSQL keeps time itself.
    """
    given_up = Event()

    def give_up() -> None:
        given_up.set()
        if connection.name == "pyspark":
            connection._session.sparkContext.cancelAllJobs()
        elif hasattr(connection.con, "interrupt"):
            connection.con.interrupt()

    timer = Timer(_PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        return action()
    except Exception:
        if not given_up.is_set():
            raise
    finally:
        timer.cancel()
    raise InputError(
        "the WHERE takes too long and was given up: write a condition that is quicker to decide"
    )


def _hushed(action: Callable[[], Result], failure: SemidpError) -> Result:
    """Do so quietly, and keep PySpark from logging the text of an error, which may quote data,
    before it raises it.
    """
    if "pyspark" not in sys.modules:
        return quietly(action, failure)
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        return quietly(action, failure)
    finally:
        logger.disabled = before
