"""Tables of databases and clusters, grouped in place through Ibis: connections, conditions in the
SQL of a database (as `condition_sql` writes them), and queries whose errors quote no data.

Any Ibis table works; addresses open one. Everything is pushed down: only groups come back.
Passwords come from the environment and appear in no message. `opening` interprets the groups.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote

import numpy as np

from semidp.errors import DataError, InputError, MissingExtra, SemidpError
from semidp.promise.schema.outcome import Outcome
from semidp.publish.sources.condition_sql import (
    DAY,
    DIALECTS,
    DOUBLE,
    OTHER,
    SINGLE,
    ExpressionWriter,
)
from semidp.publish.sources.conditions import DATE, DECIMAL, INTEGER, TEXT, TRUTH, read_condition
from semidp.publish.sources.contract import (
    BAD_COUNT,
    BELOW,
    FILE_SCHEMES,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NO_FOLDERS,
    CodedGroups,
    Key,
    Measure,
    Records,
    address_parts,
    grouping_sets,
    quietly,
    without_mixtures,
)

# What PostgreSQL reads for one release, it reads as of one moment; and a WHERE takes an hour at
# most.
_PATIENCE = 3600.0

_EXTRAS = {"postgres": "postgres", "postgresql": "postgres", "spark": "spark"}

_IN_MEMORY = {"duckdb": "SET temp_directory = ''", "sqlite": "PRAGMA temp_store = MEMORY"}
"""What keeps a database from writing records to temporary files, as the largest would be."""

Result = TypeVar("Result")


def fetched_columns(query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
    connection = query.get_backend()
    if connection.name != "postgres":
        table = run_with_timeout(connection, query.to_pyarrow)
        return [table.column(name).to_pylist() for name in names]
    # Not through Ibis, which declares a cursor that a failed query leaves open, and the transaction
    # with it.
    with connection.begin() as cursor:
        rows = cursor.execute(connection.compile(query)).fetchall()
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def connect_to(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open the database, and return how to close it."""
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

    def open_connection() -> tuple[Any, Callable[[], None]]:
        try:
            if parts.scheme == "spark":
                return _spark(parts)
            # Workers open the file next to this process, which DuckDB allows for reading alone.
            in_file = parts.scheme == "duckdb" and bool(parts.netloc or parts.path)
            how = {"read_only": True} if in_file else {}
            connection = ibis.connect(_with_password(parts), **how)
            if parts.scheme in _IN_MEMORY:
                connection.con.execute(_IN_MEMORY[parts.scheme])
            return connection, connection.disconnect
        except ImportError:
            pass
        raise missing

    return run_quietly(open_connection, failure)


def _with_password(parts: SplitResult) -> str:
    password = os.environ.get("SEMIDP_PASSWORD")
    if not password or parts.scheme in FILE_SCHEMES:
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


def names_files(parts: SplitResult, name: str) -> bool:
    return parts.scheme == "spark" and "/" in name


def table_called(connection: Any, parts: SplitResult, name: str, hive_partitions: bool) -> Any:
    if names_files(parts, name):
        none = InputError(f"Spark finds no Parquet files at {name}")
        files = run_quietly(lambda: connection.read_parquet(name, recursiveFileLookup="true"), none)
        return (
            run_quietly(lambda: _with_partitions(connection, name, files), none)
            if hive_partitions
            else files
        )
    place, _, last = name.rpartition(".")
    for attempt in (lambda: connection.table(name), lambda: connection.table(last, database=place)):
        with contextlib.suppress(InputError):
            return run_quietly(attempt, InputError("no such table"))
    none = InputError(f"there is no table {name!r} in this database")
    table_names: list[str] = sorted(run_quietly(connection.list_tables, none))
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


def run_with_timeout(connection: Any, action: Callable[[], Result]) -> Result:
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


def run_quietly(action: Callable[[], Result], failure: SemidpError) -> Result:
    """Run quietly, and keep PySpark from logging the text of an error, which may quote data,
    before raising it.
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


def kept_rows(table: Any, where: str | None, declared: Mapping[str, str]) -> Any:
    """Return the rows of a table that a condition keeps.

    Parameters
    ----------
    table, where
        An Ibis table, and one condition on the record.
    declared
        What columns were declared to hold.
    """
    table = run_quietly(partial(_compared_bytewise, table), DataError(_FAILED))
    if where is None:
        return table
    connection = table.get_backend()
    if connection.name not in DIALECTS:
        raise InputError(
            f"a WHERE is not known to mean the same in {connection.name}: keep the records in a"
            " view"
        )
    stored = {name: _stored_kind(kind, connection.name) for name, kind in table.schema().items()}
    tree = read_condition(where, stored)
    writer = ExpressionWriter(DIALECTS[connection.name], stored, declared)
    condition = writer.write_condition(tree)
    failure = DataError(
        "the database refused the WHERE: compute the column that it needs in a view"
    )

    def select_rows() -> Any:
        records = f"FROM ({connection.compile(table)}) AS records"
        if writer.misfits:
            named = {f"m{place}": misfit for place, misfit in enumerate(writer.misfits)}
            tests = ", ".join(
                f"MAX(CASE WHEN {misfit} THEN 1 ELSE 0 END) AS {name}"
                for name, misfit in named.items()
            )
            query = connection.sql(
                f"SELECT {tests} {records}", schema=dict.fromkeys(named, "int32")
            )
            columns = fetched_columns(query, list(named))
            for (wrong,), sentence in zip(columns, writer.misfits.values(), strict=True):
                if wrong:
                    raise DataError(sentence)
        rows = connection.sql(f"SELECT * {records} WHERE {condition}", schema=table.schema())
        # the database reads the condition now, so a wrong one is told apart
        fetched_columns(rows.limit(0), [])
        return rows

    return run_quietly(select_rows, failure)


_THERE_AND_BACK = {
    "duckdb": (("encode",), ("decode",)),
    "postgres": (("convert_to", "UTF8"), ("convert_from", "UTF8")),
}
"""What turns text into bytes and back, with a further argument: no collation outlasts that."""
_CARELESS = ("mssql", "mysql", "singlestoredb")
"""Engines that take no notice of capitals unless a column says so."""


def _compared_bytewise(table: Any) -> Any:
    """Return a table in which texts are equal only if their bytes are, whatever the collations of
    its columns: else the level of "f" would be that of a record with "F".
    """
    import ibis

    def call(kinds: tuple[str, str], value: Any, name: str, *further: str) -> Any:
        taken = (kinds[0], *["string"] * len(further))
        function = (lambda text, charset: None) if further else (lambda text: None)
        signature = (taken, kinds[1])
        return ibis.udf.scalar.builtin(function, name=name, signature=signature)(value, *further)

    engine = table.get_backend().name
    columns = {}
    for name, kind in table.schema().items():
        if kind.is_string() and engine in (*_THERE_AND_BACK, "sqlite"):
            columns[name] = table[name] + ""
        if name in columns and engine in _THERE_AND_BACK:
            there, back = _THERE_AND_BACK[engine]
            as_bytes = call(("string", "binary"), columns[name], *there)
            columns[name] = call(("binary", "string"), as_bytes, *back)
    return table.mutate(**columns)


def _stored_kind(kind: Any, engine: str) -> str:
    if kind.is_integer():
        return DECIMAL if kind.nbytes > 8 else INTEGER
    if kind.is_floating():
        return SINGLE if kind.nbytes < 8 else DOUBLE
    # to Spark, the time zone of a time is that of the session
    timeless = kind.is_timestamp() and (kind.timezone is None or engine == "pyspark")
    tests = {
        DECIMAL: kind.is_decimal(),
        TEXT: kind.is_string() or kind.is_uuid(),
        TRUTH: kind.is_boolean(),
        DAY: kind.is_date(),
        DATE: timeless,
    }
    return next((stored for stored, holds in tests.items() if holds), OTHER)


_FAILED = (
    "the data could not be tabulated: the database refused the query, or a WHERE does not fit its"
    " values"
)

_NO_COPY = (
    "the counts and sums must be about the same records, and the database refused to keep them in a"
    " temporary table: ask for the right to, or export them to a file"
)

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '1h'"

_GROUPING_SETS = ("duckdb", "postgres", "pyspark")  # others read the records once for each set


class IbisRecords(Records):
    """The records of an Ibis table; `steady` if every query sees the same ones, as in one
    transaction.
    """

    def __init__(
        self, table: Any, close: Callable[[], None] = lambda: None, *, steady: bool = False
    ) -> None:
        self._table = table
        self._close = close
        self._steady = steady
        columns: dict[str, bool] = {}
        for name, kind in table.schema().items():
            columns[name] = kind.is_numeric() or kind.is_boolean()
        self.columns: Mapping[str, bool] = columns
        # in a frame they are text
        decimals = [name for name, kind in table.schema().items() if kind.is_decimal()]
        self.untyped_columns = frozenset(decimals)

    @classmethod
    def from_table(
        cls, table: Any, where: str | None, declared: Mapping[str, str]
    ) -> "IbisRecords":
        """Read an Ibis table, whose connection stays the caller's."""
        if not hasattr(table, "schema") or not hasattr(table, "aggregate"):
            raise InputError(
                "an Ibis value was given that is not a table: give a table or a selection from one"
            )
        return cls(kept_rows(table, where, declared))

    @classmethod
    def of_spark(cls, frame: Any, where: str | None, declared: Mapping[str, str]) -> "IbisRecords":
        """Read a Spark data frame, whose session stays the caller's."""
        missing = MissingExtra(
            "a Spark data frame needs more packages: pip install 'semidp[spark]'"
        )
        try:
            import ibis
        except ImportError:
            raise missing from None
        name = f"semidp_{secrets.token_hex(8)}"

        def create_view() -> Any:
            frame.createOrReplaceTempView(name)
            return ibis.pyspark.connect(frame.sparkSession).table(name)

        def forget() -> None:
            frame.sparkSession.catalog.dropTempView(name)

        table = run_quietly(create_view, InputError("the Spark data frame could not be read"))
        return cls(kept_rows(table, where, declared), forget)

    @classmethod
    def from_address(
        cls,
        address: str,
        name: str | None,
        where: str | None,
        declared: Mapping[str, str],
        *,
        hive_partitions: bool = False,
    ) -> "IbisRecords":
        """Open the table `name` at a database address, which must not hold a password."""
        parts = address_parts(address)
        if not name:
            raise InputError("a database address needs the name of a table", needs="from")
        if hive_partitions and not names_files(parts, name):
            raise InputError(NO_FOLDERS)
        connection, close = connect_to(parts)
        try:
            steady = connection.name == "postgres"
            if steady:
                begin = partial(connection.con.execute, _SNAPSHOT)
                run_quietly(
                    begin, InputError("PostgreSQL refused to begin a transaction that only reads")
                )
            table = table_called(connection, parts, name, hive_partitions)
            return cls(kept_rows(table, where, declared), close, steady=steady)
        except BaseException:
            close()
            raise

    @classmethod
    def both_from_address(
        cls, address: str, names: tuple[str | None, str | None]
    ) -> "tuple[IbisRecords, IbisRecords]":
        """Open two tables at one database address, so it can join them; the first closes the
        connection.
        """
        first = cls.from_address(address, names[0], None, {})
        with contextlib.ExitStack() as on_error:
            on_error.callback(first.close)
            if not names[1]:
                raise InputError(
                    "a database address needs the name of a table of units too", needs="from"
                )
            connection = first._table.get_backend()
            table = table_called(connection, address_parts(address), names[1], False)
            table = _compared_bytewise(table)
            on_error.pop_all()
        return first, cls(table, steady=first._steady)

    def with_constant(self, column: str, value: str) -> "IbisRecords":
        """Return the records with one more column, which has the same value in each."""
        if column in self.columns:
            raise InputError(f"the data have a column {column!r} already: rename it")
        import ibis

        table = self._table.mutate(**{column: ibis.literal(value)})
        return IbisRecords(table, self._close, steady=self._steady)

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

        first_row = query.select(found=ibis.literal(1)).limit(1)
        (ones,) = self._answer(first_row, ["found"])
        return bool(ones)

    def distinct(self, column: str, limit: int) -> list[Any]:
        """Return at most `limit` distinct values of a column."""
        query = self._table.select(column).distinct().limit(limit)
        (values,) = self._answer(query, [column])
        return list(values)

    def group_records(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Group by `keys`; see the contract."""
        rows, names = self._select_rows(keys, measure)
        total = rows.adds.sum()
        fault = rows.fault.max()
        groups = rows.group_by(names).aggregate(total=total, fault=fault)
        answer = self._answer(groups.limit(limit), [*names, "total", "fault"])
        return CodedGroups.from_columns(answer)

    def frame(self, columns: Sequence[str]) -> Any:
        """Return some columns in memory, as a frame that DuckDB reads; see the contract."""
        names = list(dict.fromkeys(columns))
        values = self._answer(self._table.select(*names), names)
        pairs = zip(names, values, strict=True)
        frame, _ = without_mixtures(
            {name: np.array(column, dtype=object) for name, column in pairs}
        )
        return frame

    def read_grouping_sets(
        self, keys: Sequence[Key], sets: Sequence[Sequence[int]], measure: Measure, limit: int
    ) -> list[tuple[Any, ...]] | None:
        """Return one reading of all groups, with its own SQL, because Ibis does not support
        GROUPING SETS.
        """
        import ibis

        connection = self._table.get_backend()
        if connection.name not in _GROUPING_SETS:
            return None
        rows, names = self._select_rows(keys, measure)
        absent, parts = grouping_sets(names, sets)
        listed = ", ".join([f"{absent} AS absent", *names])
        measured = "SUM(adds) AS total, MAX(fault) AS fault"
        records = f"({connection.compile(rows)}) AS records"
        sql = f"SELECT {listed}, {measured} FROM {records} GROUP BY {parts}"
        # the types of the answer: those of the keys, and what the same sums over all records have
        total = rows.adds.sum()
        fault = rows.fault.max()
        measured_types = rows.aggregate(total=total, fault=fault).schema()
        row_types = rows.schema()
        schema: dict[str, Any] = {"absent": "int64"}
        schema |= {name: row_types[name] for name in names}
        schema |= dict(measured_types.items())
        query = connection.sql(sql, schema=ibis.schema(schema)).limit(limit)
        columns = self._answer(query, list(schema))
        return list(zip(*columns, strict=True))

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        values = self._table[column]
        counted = {
            "records": self._table.count(),
            "present": values.count(),
            "distinct": values.nunique(),
        }
        query = self._table.aggregate(**counted)
        # one row: a column of the answer holds one number
        (records,), (present,), (distinct,) = self._answer(query, list(counted))
        return records, present, distinct

    def most_alike(self, column: str) -> int:
        """Count the records of each value; see the contract."""
        counted = self._table.group_by(column).aggregate(semidp_records=self._table.count())
        largest = counted.aggregate(most=counted.semidp_records.max())
        ((most,),) = self._answer(largest, ["most"])
        return int(most or 0)

    def take_snapshot(self, columns: Sequence[str] | None) -> "IbisRecords":
        """Return these records if one transaction reads them, else a copy in a temporary table; see
        the contract.
        """
        if self._steady:
            return self

        def copy_table() -> Any:
            selected = self._table if columns is None else self._table.select(*columns)
            copy = selected.cache()
            copy.count().to_pyarrow()  # Spark fills the copy when it is first read
            return copy

        def copied_in_time() -> Any:
            return run_with_timeout(self._table.get_backend(), copy_table)

        copy = run_quietly(copied_in_time, DataError(_NO_COPY))
        closing = contextlib.ExitStack()
        closing.callback(self._close)
        closing.callback(copy.release)  # first
        return IbisRecords(copy, closing.close, steady=True)

    def only(self, values: Mapping[str, Sequence[Any]]) -> "IbisRecords":
        """Return the records with some values alone; see the contract."""
        conditions = []
        for name, kept in values.items():
            column = self._key(Key(name))
            # NaN alone differs from itself
            present = [value for value in kept if value is not None and value == value]
            condition = column.isin(present)
            if None in kept:
                condition = condition | column.isnull()
            if any(value != value for value in kept):
                condition = condition | column.isnan()
            conditions.append(condition)
        return IbisRecords(self._table.filter(*conditions), steady=self._steady)

    def spark_frame(self) -> Any | None:
        """Return the records as a Spark data frame; None if Spark does not hold them."""
        connection = self._table.get_backend()
        if connection.name != "pyspark":
            return None
        return connection._session.sql(connection.compile(self._table))

    def close(self) -> None:
        """Close the connection if it was opened here."""
        run_quietly(self._close, DataError("the connection to the database could not be closed"))

    def _answer(self, query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
        return run_quietly(lambda: fetched_columns(query, names), DataError(_FAILED))

    def _key(self, key: Key) -> Any:
        import ibis

        if key.edges is None:
            values = self._table[key.column]
            engine = self._table.get_backend().name
            if engine in _CARELESS and values.type().is_string():
                raise InputError(
                    f"{engine} may take two texts for one, such as f and F: export the records to"
                    " a file"
                )
            # SQLite keeps 4.5 in a column of whole numbers, and Ibis would cut it to 4
            cut = engine == "sqlite" and values.type().is_integer()
            return values.cast("string") if cut else values
        number = self._number(key.column)
        first, *later_edges = key.edges
        cases = [(self._missing(key.column), ibis.null("int64"))]
        if first != float("-inf"):
            cases.append((number < first, BELOW))
        for position, edge in enumerate(later_edges):
            cases.append((number < edge, position))
        return ibis.cases(*cases, else_=len(later_edges))

    def _select_rows(self, keys: Sequence[Key], measure: Measure) -> tuple[Any, list[str]]:
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
            in_range = (number >= 0) & (number < LARGEST_COUNT)
            fits = in_range.fill_null(False)
            small = ibis.ifelse(fits, number, 0.0)  # no engine casts NaN or 1e300 to an integer
            good = fits & (small == small.floor())
            adds.append(small.cast("int64"))
            faults.append((~good, BAD_COUNT))
        if measure.outcome is not None:
            missing = self._missing(measure.outcome.column)
            adds.append(self._steps(measure.outcome, missing))
            faults.append((missing, MISSING_OUTCOME))
        if not adds:
            one = ibis.literal(1).cast("int64")
            return one, ibis.literal(FINE).cast("int64")
        total = adds[0]
        if len(adds) > 1:
            # a count times an outcome may be beyond 64 bits
            total = total.cast("decimal(38, 0)") * adds[1]
        return total, ibis.cases(*faults, else_=FINE)

    def _steps(self, outcome: Outcome, missing: Any) -> Any:
        import ibis

        low = float(outcome.lower)
        high = float(outcome.upper)
        present = ibis.ifelse(missing, low, self._number(outcome.column))
        clipped = present.cast("float64").clip(low, high)
        scaled = (clipped - low) / (high - low) * float(outcome.steps)
        return (scaled + 0.5).floor().cast("int64")

    def _missing(self, column: str) -> Any:
        return self._table[column].isnull() | self._number(column).isnan()

    def _number(self, column: str) -> Any:
        import ibis

        values = self._table[column]
        if values.type().is_boolean():
            return ibis.ifelse(values, 1.0, 0.0).cast("float64")
        return values.cast("float64")
