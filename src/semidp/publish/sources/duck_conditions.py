"""Conditions and aggregates for DuckDB: what `condition_sql` writes, checked against the values."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from semidp.errors import DataError
from semidp.publish.sources.condition_sql import (
    DAY,
    DIALECTS,
    DOUBLE,
    OTHER,
    SINGLE,
    UNTYPED,
    ExpressionWriter,
)
from semidp.publish.sources.conditions import (
    DATE,
    DECIMAL,
    INTEGER,
    TEXT,
    TRUTH,
    list_columns,
    read_aggregate,
    read_condition,
)
from semidp.publish.sources.duck import (
    FAILED,
    WHOLE_TYPES,
    DuckRecords,
    closed_on_error,
    read_or_explain,
    run_query,
)

_TYPES = {
    **dict.fromkeys((*WHOLE_TYPES, *(f"U{kind}" for kind in WHOLE_TYPES[:-1])), INTEGER),
    "FLOAT": SINGLE,
    "DOUBLE": DOUBLE,
    "UHUGEINT": DECIMAL,
    "BOOLEAN": TRUTH,
    "VARCHAR": TEXT,
    "UUID": TEXT,
    "DATE": DAY,
    "TIMESTAMP": DATE,
    "TIMESTAMP_NS": DATE,
}


def kept_records(
    connection: Any,
    where: str,
    untyped: Collection[str],
    declared: Mapping[str, str],
    files: Sequence[str] = (),
) -> DuckRecords:
    """Return the records of the view `source` that `where` keeps.

    Parameters
    ----------
    connection
        A database with the view; closed where the condition is refused.
    where
        One condition on the record.
    untyped
        Columns without a type, as those of CSV files.
    declared
        What columns were declared to hold.
    files
        What the view reads.
    """
    with closed_on_error(connection):
        stored = stored_kinds(connection, "source", untyped)
        tree = read_condition(where, stored)
        writer = ExpressionWriter(DIALECTS["duckdb"], stored, declared)
        condition = writer.write_condition(tree)
        refuse_values(connection, "source", writer, files)
        return DuckRecords(connection, files, untyped, condition)


def aggregated_columns(aggregates: Mapping[str, str], columns: Collection[str]) -> list[str]:
    """Return the columns of members that some aggregates use; refuse a text that is no aggregate of
    members.

    Parameters
    ----------
    aggregates
        The SQL of each derived feature, by name.
    columns
        The columns of members, without the link.

    Examples
    --------
    >>> aggregated_columns({"children": "count(*) FILTER (WHERE age < 18)"}, ["age", "sex"])
    ['age']
    >>> aggregated_columns({"age": "age"}, ["age"])
    Traceback (most recent call last):
    semidp.errors.InputError: the aggregate of 'age' aggregates nothing: write one such as max(age)
    """
    used: dict[str, None] = {}
    for name, text in aggregates.items():
        used |= dict.fromkeys(list_columns(read_aggregate(name, text, columns)))
    return list(used)


def written_aggregates(
    connection: Any,
    aggregates: Mapping[str, str],
    relation: str,
    untyped: Collection[str],
    declared: Mapping[str, str],
) -> list[str]:
    """Return the SQL of aggregates over a relation; refuse values that do not fit.

    Parameters
    ----------
    connection, relation
        The database, and the members in it.
    aggregates
        The SQL of each derived feature, by name.
    untyped, declared
        The columns without a type, and what columns were declared to hold.
    """
    stored = stored_kinds(connection, relation, untyped)
    expressions = []
    for name, text in aggregates.items():
        place = f"the aggregate of {name!r}"
        used = {column: kind for column, kind in declared.items() if column in stored}
        writer = ExpressionWriter(DIALECTS["duckdb"], stored, used, place)
        expressions.append(writer.write_aggregate(read_aggregate(name, text, stored)))
        refuse_values(connection, relation, writer, ())
    return expressions


def stored_kinds(connection: Any, relation: str, untyped: Collection[str]) -> dict[str, str]:
    """Return how a relation holds each of its columns."""
    rows = run_query(connection, f"SELECT column_name, column_type FROM (DESCRIBE {relation})")
    kinds = {}
    for name, kind in rows:
        if name in untyped and kind == "VARCHAR":
            kinds[name] = UNTYPED
        elif kind.startswith(("DECIMAL", "ENUM")) and not kind.endswith("]"):
            kinds[name] = TEXT if kind.startswith("ENUM") else DECIMAL
        else:
            kinds[name] = _TYPES.get(kind, OTHER)
    return kinds


def refuse_values(
    connection: Any, relation: str, writer: ExpressionWriter, files: Sequence[str]
) -> None:
    """Refuse values that an expression cannot read; none is quoted."""
    if not writer.misfits:
        return
    tests = ", ".join(f"bool_or({misfit})" for misfit in writer.misfits)
    query = partial(run_query, connection, f"SELECT {tests} FROM {relation}")
    (found,) = read_or_explain(files, FAILED, query)
    for wrong, sentence in zip(found, writer.misfits.values(), strict=True):
        if wrong:
            raise DataError(sentence)
