"""Tables of databases and clusters, grouped where they are through Ibis.

Any Ibis table will do; addresses open one. Everything is pushed down: only groups come back. Passwords come from the
environment and reach no message. What the groups mean is decided in the package, not here.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from semidp.engines.contract import (
    BAD_COUNT,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    Key,
    Measure,
    Outcome,
    quietly,
)
from semidp.errors import DataError, InputError, MissingExtra, SemidpError

_FAILED = "the data could not be tabulated: the database refused the query, or a WHERE does not fit its values"
_FILES = ("duckdb", "sqlite")  # their addresses are paths
_EXTRAS = {"postgres": "postgres", "postgresql": "postgres", "spark": "spark"}

Result = TypeVar("Result")


class IbisRecords:
    """The records of an Ibis table."""

    def __init__(self, table: Any, close: Callable[[], None]) -> None:
        self._table = table
        self._close = close
        self.columns: Mapping[str, bool] = {
            name: kind.is_numeric() or kind.is_boolean() for name, kind in table.schema().items()
        }

    @classmethod
    def of(cls, table: Any, where: str | None) -> "IbisRecords":
        """Read an Ibis table, whose connection stays the caller's."""
        if not hasattr(table, "schema") or not hasattr(table, "aggregate"):
            raise InputError("an Ibis value was given that is not a table: give a table or a selection from one")
        return cls(_kept(table, where), lambda: None)

    @classmethod
    def at(cls, address: str, name: str | None, where: str | None) -> "IbisRecords":
        """Open the table `name` at a database address, which must not hold a password."""
        parts = _parts(address)
        if not name:
            raise InputError("a database address needs the name of a table", needs="from")
        connection, close = _connect(parts)
        try:
            return cls(_kept(_table(connection, parts, name), where), close)
        except BaseException:
            close()
            raise

    def grouped(self, keys: Sequence[Key], measure: Measure, limit: int) -> list[Sequence[Any]]:
        """Group by `keys`; see the contract."""
        names = [f"k{position}" for position in range(len(keys))]
        named = {name: self._key(key) for key, name in zip(keys, names, strict=True)}
        total, fault = self._measure(measure)
        query = self._table.group_by(**named).aggregate(total=total, fault=fault).limit(limit)
        return self._answer(query, [*names, "total", "fault"])

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        values = self._table[column]
        query = self._table.aggregate(records=self._table.count(), present=values.count(), distinct=values.nunique())
        (records,), (present,), (distinct,) = self._answer(query, ["records", "present", "distinct"])
        return records, present, distinct

    def close(self) -> None:
        """Close the connection if it was opened here."""
        _hushed(self._close, DataError("the connection to the database could not be closed"))

    def _answer(self, query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
        answer = _hushed(query.to_pyarrow, DataError(_FAILED))
        return [answer.column(name).to_pylist() for name in names]

    def _key(self, key: Key) -> Any:
        import ibis

        if key.edges is None:
            return self._table[key.column]
        number, (first, *others) = self._number(key.column), key.edges
        below = [] if first == float("-inf") else [(number < first, BELOW)]
        return ibis.cases(
            (self._missing(key.column), ibis.null("int64")),
            *below,
            *((number < edge, position) for position, edge in enumerate(others)),
            else_=len(others),
        )

    def _measure(self, measure: Measure) -> tuple[Any, Any]:
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
            return self._table.count(), self._table.count() * FINE
        total = adds[0] if len(adds) == 1 else adds[0].cast("decimal(38, 0)") * adds[1]
        return total.sum(), ibis.cases(*faults, else_=FINE).max()

    def _steps(self, outcome: Outcome, missing: Any) -> Any:
        import ibis

        low, high = float(outcome.lower), float(outcome.upper)
        clipped = ibis.ifelse(missing, low, self._number(outcome.column)).cast("float64").clip(low, high)
        return ((clipped - low) / (high - low) * float(outcome.steps) + 0.5).floor().cast("int64")

    def _missing(self, column: str) -> Any:
        return self._table[column].isnull() | self._number(column).isnan()

    def _number(self, column: str) -> Any:
        import ibis

        values = self._table[column]
        if values.type().is_boolean():
            return ibis.ifelse(values, 1.0, 0.0).cast("float64")
        return values.cast("float64")


def _parts(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        hidden = parts.password is not None or "password" in parts.query.lower()
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None:
        raise InputError("the database address is malformed: write it as postgres://user@host:5432/database")
    if hidden:
        raise InputError("the database address holds a password: leave it out, and set SEMIDP_PASSWORD instead")
    return parts


def _connect(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open the database and say how to close it."""
    extra = _EXTRAS.get(parts.scheme, "ibis")
    missing = MissingExtra(f"a {parts.scheme}:// address needs more packages: pip install 'semidp[{extra}]'")
    try:
        import ibis
    except ImportError:
        raise missing from None
    place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    failure = InputError(
        f"cannot open {place}: check the address, that its server runs and admits you, and the password in "
        "SEMIDP_PASSWORD"
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
    builder = SparkSession.builder.master("local[*]" if local else f"spark://{parts.netloc}").appName("semidp")
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    with contextlib.ExitStack() as stack:
        if local:  # Spark makes a warehouse in the working folder otherwise, and listens on every interface
            warehouse = stack.enter_context(TemporaryDirectory(prefix=".semidp-", ignore_cleanup_errors=True))
            settings |= {"spark.sql.warehouse.dir": warehouse}
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        return ibis.pyspark.connect(session), stack.pop_all().close


def _table(connection: Any, parts: SplitResult, name: str) -> Any:
    if parts.scheme == "spark" and "/" in name:
        return _hushed(lambda: connection.read_parquet(name), InputError(f"Spark finds no Parquet files at {name}"))
    place, _, last = name.rpartition(".")
    for found in (lambda: connection.table(name), lambda: connection.table(last, database=place)):
        with contextlib.suppress(InputError):
            return _hushed(found, InputError("no such table"))
    none = InputError(f"there is no table {name!r} in this database")
    there: list[str] = sorted(_hushed(connection.list_tables, none))
    legal = f"the tables are {', '.join(there)}" if there else "it has no tables"
    raise InputError(f"{none}; {legal}")


def _kept(table: Any, where: str | None) -> Any:
    """Return the table with a WHERE in the database's own SQL."""
    if where is None:
        return table
    failure = InputError(
        "the WHERE must be one condition on the columns of a record, in the database's SQL, such as age >= 18 AND "
        "region <> 'north': check its names and quotes"
    )

    def kept() -> Any:
        connection = table.get_backend()
        _single_condition(where, connection.dialect)
        sql = f"SELECT * FROM ({connection.compile(table)}) AS records WHERE (\n{where}\n)"
        rows = connection.sql(sql, schema=table.schema())
        rows.limit(0).to_pyarrow()  # the database reads the condition now, so that a wrong one is told apart
        return rows

    return _hushed(kept, failure)


def _single_condition(where: str, dialect: Any) -> None:
    """Refuse a text that is not one expression on its own, or that holds a query: then it may depend on others."""
    import sqlglot

    if not where.strip():
        raise ValueError("an empty condition")
    (statement,) = sqlglot.parse(f"SELECT (\n{where}\n)", dialect=dialect)
    clauses = {name for name, part in statement.args.items() if part}
    inside = [*statement.find_all(sqlglot.exp.Query, sqlglot.exp.Window, sqlglot.exp.AggFunc)]
    if clauses != {"expressions"} or len(statement.expressions) != 1 or inside != [statement]:
        raise ValueError("not one condition")


def _hushed(action: Callable[[], Result], failure: SemidpError) -> Result:
    with _spark_log_off():
        return quietly(action, failure)


@contextlib.contextmanager
def _spark_log_off() -> Iterator[None]:
    """Keep PySpark from logging the text of an error, which may quote data, before it raises it."""
    if "pyspark" not in sys.modules:
        yield
        return
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
