"""A WHERE for DuckDB: one condition on the record alone; columns are numbers where all values are.

What is not known to depend on the record alone is refused. Also the parser of aggregates of units.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from semidp.errors import InputError, did_you_mean
from semidp.sources.comparisons import JOINS, Node, Typing, Values, columns_in, nodes, survey
from semidp.sources.contract import (
    quietly,
    refuse_calls,
    short_enough,
)
from semidp.sources.duck import (
    FAILED,
    DuckRecords,
    closed_on_error,
    quoted_name,
    read_or_explain,
    run_query,
    source_columns,
)

# What a condition may be made of, in the words of DuckDB's parser: no query, window, lambda,
# parameter or star.
EXPRESSIONS = {
    *(
        "COLUMN_REF",
        "CONSTANT",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "FUNCTION",
        "CAST",
        "TYPE",
        "BETWEEN",
        "CASE",
    ),
    "COLLATE",
}

# Declared consistent by DuckDB 2.0, but the first three read the clock (age of one argument) and
# the last the catalog.
_MISDECLARED = {"age", "current_localtime", "current_localtimestamp", "json_serialize_plan"}


def kept_records(
    connection: Any, where: str, patience: float, untyped: Sequence[str], files: Sequence[str] = ()
) -> DuckRecords:
    """Return the records of the view `source` that `where` keeps.

    Parameters
    ----------
    connection
        A database with the view; closed where the condition is refused.
    where, patience
        One condition on the record, and the seconds that it may take.
    untyped
        Columns without a type, which are compared as numbers where every value is one.
    files
        What the view reads.
    """
    hint = ", and convert text with CAST(column AS DOUBLE)" if untyped else ""
    failure = InputError(
        "the WHERE must be one condition on the columns of a record, such as age >= 18 AND region"
        f" <> 'north': check its names and quotes{hint}"
    )
    with closed_on_error(connection):
        columns = source_columns(connection)
        quietly(lambda: of_the_record_alone(connection, where, columns), failure)
        condition, numbers = read_or_explain(
            files, FAILED, lambda: typed(connection, where, untyped)
        )
        if not _is_condition(connection, condition, patience):
            raise failure
        view = f"CREATE TEMP VIEW records AS SELECT * FROM source WHERE (\n{condition}\n)"
        quietly(lambda: run_query(connection, view, patience), failure)
        return DuckRecords(connection, files, patience, numbers)


def _is_condition(connection: Any, where: str, patience: float) -> bool:
    try:
        ((_, kind, *_),) = run_query(
            connection, f"DESCRIBE SELECT (\n{where}\n) FROM source", patience
        )
    except InputError:
        raise
    except Exception:
        return False
    return bool(kind == "BOOLEAN")


def typed(
    connection: Any,
    text: str,
    untyped: Sequence[str],
    relation: str = "source",
    as_numbers: Collection[str] = (),
    called: str = "the WHERE",
) -> tuple[str, list[str]]:
    """Return an expression that reads columns without a type as numbers where they are, and the
    names of these columns.

    Every value of the columns that it names is looked at once; no other column is read.

    Parameters
    ----------
    connection, text
        Where the expression is evaluated, and the expression.
    untyped
        The columns without a type.
    relation
        What has these columns.
    as_numbers
        Functions that take text too, but numbers where a column holds them.
    called
        What the expression is called in a message.
    """
    (expression,), _ = parsed(connection, text)
    in_use = columns_in(expression)
    named = {name.lower(): name for name in untyped if name.lower() in in_use}
    if not named:
        return text, []
    surveys = ", ".join(survey(quoted_name(name)) for name in named.values())
    (facts,) = run_query(connection, f"SELECT {surveys} FROM {relation}")
    width = len(facts) // len(named)
    values = {}
    for place, name in enumerate(named):
        first = place * width
        values[name] = Values(*facts[first : first + width])

    def cast(column: Node, kind: str) -> Node:
        (example,), _ = parsed(connection, f"CAST(x AS {kind})")
        return {**example, "child": column}

    takes = "bool_or(list_contains(parameter_types, 'VARCHAR'))"
    take_text = {*_functions(connection, takes), *JOINS} - {*as_numbers}
    give_text = {*_functions(connection, "bool_or(return_type = 'VARCHAR')"), *JOINS}
    typing = Typing(values, take_text, give_text, cast, called)
    cast_columns, numbers = typing.typed(expression)
    as_written = text if cast_columns == expression else written(connection, cast_columns)
    return as_written, [named[name] for name in numbers]


def parsed(connection: Any, text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the parser's account of a bare expression, and of the statement around it."""
    ((answer,),) = connection.execute(
        "SELECT json_serialize_sql(?)", [f"SELECT (\n{text}\n)"]
    ).fetchall()
    document = json.loads(answer)
    (statement,) = document["statements"]
    return statement["node"].pop("select_list"), document


def written(connection: Any, expression: Node) -> str:
    """Return the SQL of an expression, from the parser's account of it."""
    _, document = parsed(connection, "true")
    document["statements"][0]["node"]["select_list"] = [expression]
    ((text,),) = connection.execute(
        "SELECT json_deserialize_sql(?)", [json.dumps(document)]
    ).fetchall()
    return str(text).removeprefix("SELECT ")


def of_the_record_alone(connection: Any, where: str, columns: Collection[str]) -> None:
    """Refuse a text that is more than one expression, or that may depend on more than the record.

    The parser's own account of the text is compared with that of a bare expression, so that closing
    the bracket early, a second statement or any further clause shows. Inside, only columns of the
    record, constants, operators and scalar functions that DuckDB declares consistent may occur:
    what is not known to be one of these is refused.
    """
    short_enough(where)
    expressions, around = parsed(connection, where)
    parts = list(nodes(expressions))
    _, bare = parsed(connection, "true")
    classes = {node["class"] for node in parts}
    if len(expressions) != 1 or around != bare or not classes <= EXPRESSIONS:
        raise ValueError("not one condition")
    of_the_record = {name.lower() for name in columns}
    strange = sorted(set(columns_in(expressions)) - of_the_record)
    if strange:  # of the record it is none; perhaps it is the date, or a text that lacks its quotes
        raise InputError(
            "the WHERE must be one condition on the columns of a record, such as age >= 18 AND"
            f" region <> 'north': {strange[0]!r} is no column{did_you_mean(strange[0], columns)},"
            " and text stands in single quotes"
        )
    calls = [node for node in parts if node["class"] == "FUNCTION"]
    if any(node["schema"] or node["catalog"] for node in calls):
        raise ValueError("a function of a schema of its own")
    called = {node["function_name"].lower() for node in calls}
    refuse_calls(called - consistent_functions(connection))


def consistent_functions(connection: Any) -> set[str]:
    """Return the functions whose every form DuckDB declares to depend on its arguments alone."""
    scalar = "bool_and(function_type = 'scalar' AND stability IS NOT DISTINCT FROM 'CONSISTENT')"
    return _functions(connection, scalar) - _MISDECLARED


def _functions(connection: Any, having: str) -> set[str]:
    """Return the functions that may stand in a condition and whose forms together satisfy
    `having`.
    """
    # these stand elsewhere
    in_a_condition = "function_type NOT IN ('table', 'table_macro', 'pragma')"
    sql = (
        f"SELECT lower(function_name) FROM duckdb_functions() WHERE {in_a_condition} GROUP BY 1"
        f" HAVING {having}"
    )
    return {name for (name,) in run_query(connection, sql)}
