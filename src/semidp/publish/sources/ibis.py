"""Tables of databases and clusters, grouped where they are through Ibis.

Any Ibis table will do; addresses open one. Everything is pushed down: only groups come back.
Passwords come from the environment and reach no message. What the groups mean is decided in the
package, not here.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from semidp.errors import DataError, InputError, MissingExtra
from semidp.promise.schema.outcome import Outcome
from semidp.publish.sources.addresses import address_parts
from semidp.publish.sources.contract import (
    BAD_COUNT,
    BELOW,
    FINE,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NO_FOLDERS,
    CodedGroups,
    Key,
    Measure,
    Records,
    grouping_sets,
)
from semidp.publish.sources.ibis_conditions import kept_rows
from semidp.publish.sources.ibis_databases import (
    connect_to,
    fetched_columns,
    names_files,
    run_quietly,
    run_with_timeout,
    table_called,
)
from semidp.publish.sources.memory import without_mixtures

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
    """The records of an Ibis table; `steady` where every query sees the same ones, as in one
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
        """Open two tables at one database address, so that it can join them; the first closes the
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
        """Return one reading of all groups; Ibis has no words for GROUPING SETS, but the keys are
        its own.
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
        """Return these records where one transaction reads them, else a copy in a temporary table;
        see the contract.
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
            column = self._table[name]
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
        """Return the records as a Spark data frame; None where Spark does not hold them."""
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
            return self._table[key.column]
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
