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
)
from semidp.sources.ibis_conditions import kept_rows
from semidp.sources.ibis_databases import (
    address_parts,
    bounded,
    connect_to,
    fetched_columns,
    hushed,
    names_files,
    table_called,
)

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
        return cls(kept_rows(table, where))

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

        table = hushed(viewed, InputError("the Spark data frame could not be read"))
        return cls(kept_rows(table, where), lambda: frame.sparkSession.catalog.dropTempView(name))

    @classmethod
    def at(
        cls, address: str, name: str | None, where: str | None, *, hive_partitions: bool = False
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
                hushed(
                    begin, InputError("PostgreSQL refused to begin a transaction that only reads")
                )
            table = table_called(connection, parts, name, hive_partitions)
            return cls(kept_rows(table, where), close, steady=steady)
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
            table = table_called(
                first._table.get_backend(), address_parts(address), names[1], False
            )
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

        copy = hushed(lambda: bounded(self._table.get_backend(), copied), DataError(_NO_COPY))
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
        hushed(self._close, DataError("the connection to the database could not be closed"))

    def _answer(self, query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
        return hushed(lambda: fetched_columns(query, names), DataError(_FAILED))

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
