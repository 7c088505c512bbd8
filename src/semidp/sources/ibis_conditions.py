"""A WHERE in the SQL of a database: one condition on the record alone.

What it calls is asked of the database; what is not known to depend on the record alone is refused.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from semidp.errors import InputError
from semidp.sources.contract import (
    refuse_calls,
    short_enough,
)
from semidp.sources.duck_conditions import of_the_record_alone
from semidp.sources.ibis_databases import fetched_columns, hushed

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

_RENAMED = {"trim": "btrim"}  # what PostgreSQL calls it

# dates to PostgreSQL, Spark and SQLite
_CLOCK = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)


def kept_rows(table: Any, where: str | None) -> Any:
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
        fetched_columns(rows.limit(0), [])
        return rows

    return hushed(kept, failure)


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
