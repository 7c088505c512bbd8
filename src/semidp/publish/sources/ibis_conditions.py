"""Conditions in the SQL of a database, as `condition_sql` writes them."""

from collections.abc import Mapping
from typing import Any

from semidp.errors import DataError, InputError
from semidp.publish.sources.condition_sql import (
    DAY,
    DIALECTS,
    DOUBLE,
    OTHER,
    SINGLE,
    ExpressionWriter,
)
from semidp.publish.sources.conditions import DATE, DECIMAL, INTEGER, TEXT, TRUTH, read_condition
from semidp.publish.sources.ibis_databases import fetched_columns, run_quietly


def kept_rows(table: Any, where: str | None, declared: Mapping[str, str]) -> Any:
    """Return the rows of a table that a condition keeps.

    Parameters
    ----------
    table, where
        An Ibis table, and one condition on the record.
    declared
        What columns were declared to hold.
    """
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
            found = fetched_columns(query, list(named))
            for (wrong,), sentence in zip(found, writer.misfits.values(), strict=True):
                if wrong:
                    raise DataError(sentence)
        rows = connection.sql(f"SELECT * {records} WHERE {condition}", schema=table.schema())
        # the database reads the condition now, so that a wrong one is told apart
        fetched_columns(rows.limit(0), [])
        return rows

    return run_quietly(select_rows, failure)


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
