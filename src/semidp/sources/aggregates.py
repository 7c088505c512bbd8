"""Aggregates of a plan over the members of a unit: SQL that is checked before DuckDB evaluates it.

A derived feature is a function of the multiset of a unit's members. So an aggregate may use columns
of members, constants, functions of the record alone, and aggregates that depend on no order; the
link is no column of it.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from semidp.errors import InputError, did_you_mean
from semidp.sources.comparisons import Node, columns_in, nodes
from semidp.sources.contract import MAX_WHERE, quietly
from semidp.sources.duck import connect, is_plain, quoted_name
from semidp.sources.duck_conditions import EXPRESSIONS, consistent_functions, parsed, typed

AGGREGATES = (
    *("count", "count_star", "count_if", "countif", "sum", "min", "max", "avg", "mean", "median"),
    *("bool_and", "bool_or"),
)
"""Aggregates of a multiset: their value depends on no order, and on no choice among equals."""


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
    if not aggregates:
        return []
    written = {name.lower(): name for name in columns}
    used: dict[str, None] = {}
    connection = connect()
    try:
        for name, text in aggregates.items():
            expression = _checked(connection, name, text, written)
            used |= dict.fromkeys(written[column] for column in columns_in(expression))
    finally:
        connection.close()
    return list(used)


def typed_aggregates(
    connection: Any, aggregates: Mapping[str, str], relation: str, link: str
) -> list[str]:
    """Return the SQL of checked aggregates over a relation, one row a link, with text read as
    numbers where it is.

    Parameters
    ----------
    connection
        The database that holds the relation.
    aggregates
        The SQL of each derived feature, by name.
    relation
        The members.
    link
        The column that names a unit.
    """
    described = _rows(connection, f"SELECT column_name, column_type FROM (DESCRIBE {relation})")
    texts = [column for column, kind in described if kind == "VARCHAR"]
    expressions = []
    for name, text in aggregates.items():
        place = f"the aggregate of {name!r}"
        expression, _ = typed(connection, text, texts, relation, AGGREGATES, place)
        # DuckDB itself says whether every column stands within an aggregate
        grouped = f"DESCRIBE SELECT (\n{expression}\n) FROM {relation} GROUP BY {quoted_name(link)}"
        ((_, kind, *_),) = quietly(partial(_rows, connection, grouped), _no_aggregate(name))
        if not is_plain(kind):
            raise _no_aggregate(name)
        expressions.append(f"(\n{expression}\n)")
    return expressions


def _rows(connection: Any, sql: str) -> list[Any]:
    return list(connection.execute(sql).fetchall())


def _no_aggregate(name: str) -> InputError:
    return InputError(
        f"the aggregate of {name!r} must be one expression with a value a unit, such as count(*)"
        " FILTER (WHERE age < 18): check its names and quotes"
    )


def _checked(connection: Any, name: str, text: str, columns: Mapping[str, str]) -> Node:
    """Return the parser's account of an aggregate; refuse what is none of the members of one
    unit.
    """
    if len(text) > MAX_WHERE:
        raise InputError(f"the aggregate of {name!r} has more than {MAX_WHERE:,} characters")
    expression: Node = quietly(lambda: _one_expression(connection, text), _no_aggregate(name))
    parts = list(nodes(expression))
    # the link is none of these columns: a unit's name says nothing of its members
    strange = sorted({*columns_in(expression)} - {*columns})
    if strange:
        raise InputError(
            f"the aggregate of {name!r} names {strange[0]!r}, which is no column of members beside"
            f" the link{did_you_mean(strange[0], columns.values())}"
        )
    calls = [node for node in parts if node["class"] == "FUNCTION"]
    names = [node["function_name"].lower() for node in calls]
    strangers = sorted({*names} - {*AGGREGATES} - consistent_functions(connection))
    if strangers:
        raise InputError(
            f"the aggregate of {name!r} must depend on the members of a unit alone and on no order"
            f" of them, and {strangers[0]}() is not declared to: use"
            f" {', '.join(AGGREGATES[:1] + AGGREGATES[4:])}"
        )
    if not {*names} & {*AGGREGATES}:
        raise InputError(
            f"the aggregate of {name!r} aggregates nothing: write one such as max(age)"
        )
    return expression


def _one_expression(connection: Any, text: str) -> Node:
    expressions, around = parsed(connection, text)
    # a bracket that is closed early, or a further clause, shows in what stands around
    _, bare = parsed(connection, "true")
    parts: Sequence[Node] = list(nodes(expressions))
    if (
        len(expressions) != 1
        or around != bare
        or not {node["class"] for node in parts} <= EXPRESSIONS
    ):
        raise ValueError("not one expression")
    for node in parts:
        # a function of a schema of its own, or a name with more than a column in it
        if node["class"] == "FUNCTION" and (node["schema"] or node["catalog"]):
            raise ValueError("a function of a schema of its own")
        if node["class"] == "COLUMN_REF" and len(node["column_names"]) > 1:
            raise ValueError("a column of another relation")
    expression: Node = expressions[0]
    return expression
