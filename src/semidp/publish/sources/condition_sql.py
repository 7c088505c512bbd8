"""The meaning of conditions and aggregates, and their SQL for each engine.

A column is a number, text, a date or a truth value by what it is compared with, or by declaration,
never by the notation of other records. If a value does not fit, the run stops.

Numbers are compared exactly. Their nearest floating-point numbers are compared first. If these are
equal, the digits are compared as text of one length. A floating-point number counts as the shortest
decimal that names it, and so does text with an exponent.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import floor

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.schema.features import TRUTH as TRUTH_WORDS
from semidp.promise.schema.schema import no_column
from semidp.publish.sources.conditions import (
    AGGREGATES,
    COMPARISONS,
    DATE,
    DECIMAL,
    FUNCTIONS,
    INTEGER,
    MOMENT,
    NUMBER,
    TEXT,
    TRUTH,
    Call,
    Constant,
    NamedColumn,
    Node,
)

UNTYPED, SINGLE, DOUBLE, DAY, OTHER = "untyped", "single", "double", "day", "other"
"""Storage types of a column besides integer, decimal, text, truth values and dates with times."""

_DIGITS = 200
_WHOLE = rf" *[+-]?0*[0-9]{{1,18}}([.]0{{0,{_DIGITS}}})? *"
_TRUE_OR_FALSE = "[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]"
_LARGEST_INTEGER = 10**18
_LARGEST_EXACT = 2**53
_LARGEST_RESULT, _LARGEST_DIVIDEND = 10**37, 10**32
_MOST_OPERATIONS = 8
_MOST_WILD = 3
_LONGEST = 3_000_000
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CHOICES = ("coalesce", "greatest", "least")
_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_SIGNS = {"<": {-1}, "<=": {-1, 0}, "=": {0}, "<>": {-1, 1}, ">=": {0, 1}, ">": {1}}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_NAMES = {NUMBER: "a number", TEXT: "text", DATE: "a date", TRUTH: "true or false"}


class Dialect:
    """The SQL of DuckDB, with methods to override for other engines."""

    double, whole, string = "DOUBLE", "HUGEINT", "VARCHAR"
    largest = 2**127 - 1
    """The largest whole number."""
    stamps = "strftime", "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f"
    """What writes a time as text, and how: the day, whole seconds, fractions of them."""
    compares_alone = False
    """Whether only its comparisons are known."""

    def name(self, name: str) -> str:
        """Write the name of a column."""
        return '"' + name.replace('"', '""') + '"'

    def quote_text(self, text: str) -> str:
        """Write a text."""
        return "'" + text.replace("'", "''") + "'"

    def matches(self, text: str, pattern: str) -> str:
        """Whether all of a text matches a regular expression."""
        return f"regexp_full_match({text}, {self.quote_text(pattern)})"

    def order_bytewise(self, text: str) -> str:
        """Return a text that is compared byte by byte."""
        return text

    def quotient(self, dividend: str, divisor: str) -> str:
        """Divide a whole number by one that divides it."""
        return f"({dividend} // {divisor})"

    def round_number(self, way: str, number: str) -> str:
        """Round a floating-point number to a whole one, by floor or ceil."""
        return f"{way}({number})"


class PostgresDialect(Dialect):
    """The SQL of PostgreSQL."""

    double, whole, string = "double precision", "numeric", "text"
    stamps = "to_char", "YYYY-MM-DD", "YYYY-MM-DD HH24:MI:SS", "YYYY-MM-DD HH24:MI:SS.US"

    def matches(self, text: str, pattern: str) -> str:
        """Whether all of a text matches a regular expression."""
        return f"({text} ~ {self.quote_text(f'^({pattern})$')})"

    def order_bytewise(self, text: str) -> str:
        """Return a text that is compared byte by byte."""
        return f'({text}) COLLATE "C"'

    def quotient(self, dividend: str, divisor: str) -> str:
        """Divide a whole number by one that divides it."""
        return f"div({dividend}, {divisor})"


class SparkDialect(Dialect):
    """The SQL of Spark."""

    whole, string = "DECIMAL(38, 0)", "STRING"
    largest = 10**38 - 1
    stamps = "date_format", "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSSSSS"

    def name(self, name: str) -> str:
        """Write the name of a column."""
        return "`" + name.replace("`", "``") + "`"

    def quote_text(self, text: str) -> str:
        """Write a text."""
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def matches(self, text: str, pattern: str) -> str:
        """Whether all of a text matches a regular expression."""
        # $ would accept a line break at the end
        whole_text = rf"^({pattern})\z"
        return f"({text} RLIKE {self.quote_text(whole_text)})"

    def quotient(self, dividend: str, divisor: str) -> str:
        """Divide a whole number by one that divides it."""
        return f"CAST({dividend} / {divisor} AS {self.whole})"

    def round_number(self, way: str, number: str) -> str:
        """Round a floating-point number; Spark makes whole numbers of 64 bits, which may be too
        few.
        """
        return f"(CASE WHEN abs({number}) < {2**52} THEN {way}({number}) ELSE {number} END)"


class SqliteDialect(Dialect):
    """The SQL of SQLite."""

    double, whole, string = "REAL", "INTEGER", "TEXT"
    largest = 2**63 - 1
    compares_alone = True

    def order_bytewise(self, text: str) -> str:
        """Return a text that is compared byte by byte."""
        return f"{text} COLLATE BINARY"


DIALECTS = {
    "duckdb": Dialect(),
    "postgres": PostgresDialect(),
    "pyspark": SparkDialect(),
    "sqlite": SqliteDialect(),
}
"""The SQL of the engines in which a condition is known to mean the same."""


@frozen
class Value:
    """An SQL expression, and the facts known about its value."""

    kind: str
    sql: str
    """The value itself; of numbers that are not declared integers, the nearest floating-point
    number."""
    whole: str | None = None
    """The value as a whole number, if it is one."""
    digits: str | None = None
    """What tells apart numbers of which the nearest floating-point numbers are equal; NULL where
    nothing does."""
    constant: Decimal | None = None
    bound: int = 0
    """What no whole number exceeds in size."""
    operations: int = 0
    """How many operations it takes."""


class ExpressionWriter:
    """Writes trees in the SQL of an engine, and collects the conditions that values must meet.

    Parameters
    ----------
    dialect
        The engine's SQL.
    stored
        How the data hold each column.
    declared
        The declared types of columns: integer, decimal or text.
    place
        The name of the expression in messages.
    """

    def __init__(
        self,
        dialect: Dialect,
        stored: Mapping[str, str],
        declared: Mapping[str, str],
        place: str = "the WHERE",
    ) -> None:
        for name in declared:
            if name not in stored:
                raise no_column(name, stored)
        self.dialect, self.stored, self.declared, self.place = dialect, stored, declared, place
        self.misfits: dict[str, str] = {}
        """Conditions that no record may fulfill, each with the message if one does."""

    def write_condition(self, tree: Node) -> str:
        """Return the SQL of a condition."""
        value = self._value(tree, TRUTH)
        if value.kind != TRUTH:
            raise InputError(
                f"{self.place} needs a condition where {_name_kind(value.kind)} stands: compare it"
                " with something"
            )
        return value.sql

    def write_aggregate(self, tree: Node) -> str:
        """Return the SQL of an aggregate."""
        return self._value(tree).sql

    # Comparisons

    def _comparison(self, sign: str, nodes: Sequence[Node]) -> str:
        """Compare the first with each of the others, all read as the same kind."""
        kind = self._common_kind(sign, nodes)
        first, *operands = [self._value(node, kind) for node in nodes]
        if sign == "between":
            low, high = operands
            parts = (self._compare(kind, ">=", first, low), self._compare(kind, "<=", first, high))
            return f"({' AND '.join(parts)})"
        signs = "=" if sign == "in" else sign
        return f"({' OR '.join(self._compare(kind, signs, first, other) for other in operands)})"

    def _common_kind(self, sign: str, nodes: Sequence[Node]) -> str:
        """Return as what all sides of a comparison are read; refuse where nothing says so."""
        said = [self._kind(node) for node in nodes]
        open_columns = [node.name for node in nodes if isinstance(node, NamedColumn)]
        open_columns = [name for name in open_columns if name not in self.declared]
        if not any(said):
            said = [_group(self._schema_kind(name)) for name in open_columns]
        kinds = {kind for kind in said if kind is not None}
        if len(kinds) > 1:
            raise InputError(
                f"{self.place} compares {' with '.join(sorted(map(_name_kind, kinds)))}: write text"
                " in quotes and numbers without, or declare another type (⟨read_as⟩)"
            )
        # of what is no column, nothing says what it is: to write it will refuse
        kind = kinds.pop() if kinds else NUMBER
        constants = [str(node.value) for node in nodes if isinstance(node, Constant)]
        if kind == TRUTH and sign not in ("=", "<>", "in"):
            raise InputError(f"{self.place} puts truth values in an order: compare them with =")
        if kind != TEXT or not open_columns or not constants:
            return kind
        name = open_columns[0]
        if sign not in ("=", "<>", "in") and all(map(_is_numeral, constants)):
            raise InputError(
                f"{self.place} orders {name!r} by a number in quotes: leave the quotes out to"
                f" compare numbers, or say that it is text (⟨read_as {name}=text⟩)"
            )
        if {text.lower() for text in constants} <= {*TRUTH_WORDS}:
            raise InputError(
                f"{self.place} compares {name!r} with true or false in quotes: leave the quotes"
                f" out, or say that it is text (⟨read_as {name}=text⟩)"
            )
        return kind

    def _compare(self, kind: str, sign: str, first: Value, second: Value) -> str:
        if kind != NUMBER:
            if kind == TRUTH:
                return f"({first.sql} {sign} {second.sql})"
            order = self.dialect.order_bytewise
            return f"({order(first.sql)} {sign} {order(second.sql)})"
        # from here on a constant stands on the right
        if first.constant is not None:
            first, second, sign = second, first, _MIRRORED[sign]
        if first.whole is not None and second.whole is not None:
            return f"({first.whole} {sign} {second.whole})"
        if first.whole is not None and second.constant is not None:
            # what lies between two whole numbers is above the lower one
            largest = self.dialect.largest
            below = max(-largest, min(floor(second.constant), largest))
            tie = _sign(Decimal(below) - second.constant) in _SIGNS[sign]
            return _by_parts(first.whole, sign, self._write_integer(below), str(tie))
        low, high = self._double(first), self._double(second)
        return _by_parts(low, sign, high, self._tie(sign, first, second))

    def _tie(self, sign: str, first: Value, second: Value) -> str:
        """Compare numbers whose nearest floating-point numbers are equal."""
        ordered = self.dialect.order_bytewise
        if second.constant is None:
            equal = str(0 in _SIGNS[sign])
            if first.digits is None or second.digits is None:
                return equal
            # digits are those of absolute values: below 0 their order is turned
            one, other = ordered(first.digits), ordered(second.digits)
            return (
                f"CASE WHEN {first.digits} IS NULL OR {second.digits} IS NULL THEN {equal} WHEN"
                f" {first.sql} < 0 THEN {other} {sign} {one} ELSE {one} {sign} {other} END"
            )
        number = second.constant
        nearest = str(_sign(Decimal(repr(float(number))) - number) in _SIGNS[sign])
        if first.digits is None or number == 0:
            return nearest
        # digits are those of the absolute value
        towards = _MIRRORED[sign] if number < 0 else sign
        whole, _, fraction = format(number.copy_abs(), "f").partition(".")
        digits = self.dialect.quote_text(
            f"{whole.lstrip('0').zfill(_DIGITS)}.{fraction.rstrip('0')}"
        )
        exactly = f"{ordered(first.digits)} {towards} {ordered(digits)}"
        return f"CASE WHEN {first.digits} IS NULL THEN {nearest} ELSE {exactly} END"

    # Values

    def _value(self, node: Node, wanted: str | None = None) -> Value:
        """Return the SQL of a tree; a column without another type is read as `wanted`."""
        if isinstance(node, NamedColumn):
            return self._column(node.name, wanted)
        if isinstance(node, Constant):
            return self._constant(node)
        value = self._call(node, wanted)
        if len(value.sql) > _LONGEST:  # parts of it are written more than once
            raise InputError(f"{self.place} is too long: compute the column beforehand")
        return value

    def _call(self, node: Call, wanted: str | None) -> Value:
        name, parts = node.name, node.arguments
        if name in ("and", "or"):
            return Value(TRUTH, f"({f' {name.upper()} '.join(map(self.write_condition, parts))})")
        if name == "not":
            return Value(TRUTH, f"(NOT {self.write_condition(parts[0])})")
        if name in COMPARISONS or name in ("between", "in"):
            return Value(TRUTH, self._comparison(name, parts))
        if name == "surely":  # a condition that counts as another where it is missing
            otherwise = self.write_condition(parts[1]) if len(parts) > 1 else "FALSE"
            return Value(TRUTH, f"COALESCE({self.write_condition(parts[0])}, {otherwise})")
        if name == "is null":
            return Value(TRUTH, f"({self._present(parts[0])} IS NULL)")
        if self.dialect.compares_alone:
            raise InputError(
                f"{self.place} does more than compare columns, which is not known to mean the same"
                " in this database: compute the column in a view"
            )
        if name == "like":
            return self._like(*parts)
        if name in AGGREGATES:
            return self._aggregate(node, wanted)
        if name in ("case", *_CHOICES):
            return self._choice(name, parts)
        if name in _ARITHMETIC:
            return self._arithmetic(name, *map(self._number, parts))
        if name.startswith("as "):
            return self._cast(name.removeprefix("as "), self._value(parts[0]))
        return self._function(name, parts)

    def _constant(self, node: Constant) -> Value:
        if isinstance(node.value, bool):
            return Value(TRUTH, str(node.value).upper())
        if isinstance(node.value, str):
            return Value(node.kind, self.dialect.quote_text(node.value))
        number = node.value
        largest = min(self.dialect.largest, _LARGEST_RESULT)
        if number != number.to_integral_value() or number.copy_abs() > largest:
            return Value(DECIMAL, self._near(repr(float(number))), constant=number)
        whole = self._write_integer(int(number))
        return Value(INTEGER, whole, whole, constant=number, bound=abs(int(number)))

    def _arithmetic(self, sign: str, first: Value, second: Value) -> Value:
        # quotients and remainders are written with several operations
        operations = first.operations + second.operations + (2 if sign in ("//", "%") else 1)
        if operations > _MOST_OPERATIONS:
            raise InputError(
                f"{self.place} takes more than {_MOST_OPERATIONS} operations for one number:"
                " compute the column beforehand"
            )
        if INTEGER == first.kind == second.kind and sign != "/":
            return self._whole_arithmetic(sign, first, second, operations)
        one, other = self._double(first), self._double(second)
        quotient = f"({one} / NULLIF({other}, 0))"
        whole = self.dialect.round_number("floor", quotient)
        sql = {"/": quotient, "//": whole, "%": f"({one} - {other} * {whole})"}.get(
            sign, f"({one} {sign} {other})"
        )
        return Value(DECIMAL, sql, operations=operations)

    def _whole_arithmetic(self, sign: str, first: Value, second: Value, operations: int) -> Value:
        one, other = first.sql, second.sql
        bound = first.bound * second.bound if sign == "*" else first.bound + second.bound
        if bound > (_LARGEST_DIVIDEND if sign in ("//", "%") else _LARGEST_RESULT):
            raise InputError(
                f"{self.place} computes whole numbers of more than 37 digits: declare a column as"
                " decimal (⟨read_as⟩)"
            )
        sql = f"({one} {sign} {other})"
        if sign in ("//", "%"):
            # the remainder has the sign of the divisor, so the quotient is rounded down
            divisor = f"NULLIF({other}, 0)"
            sql = f"(({one} % {divisor} + {other}) % {divisor})"
            if sign == "//":
                sql = self.dialect.quotient(f"({one} - {sql})", divisor)
        return Value(INTEGER, sql, sql, bound=bound, operations=operations)

    def _function(self, name: str, parts: Sequence[Node]) -> Value:
        if name in ("abs", "ceil", "floor"):
            value = self._number(parts[0])
            if value.kind == DECIMAL or name == "abs":
                sql = (
                    f"abs({value.sql})"
                    if name == "abs"
                    else self.dialect.round_number(name, value.sql)
                )
                whole = sql if value.kind == INTEGER else None
                return Value(value.kind, sql, whole, bound=value.bound, operations=value.operations)
            return value
        texts = [self._text(part) for part in (parts if name == "||" else parts[:1])]
        if name == "length":
            whole = self._cast_to(self.dialect.whole, f"length({texts[0]})")
            return Value(INTEGER, whole, whole, bound=10**9)
        small = _CAPITALS.lower()
        changes = {"lower": (_CAPITALS, small), "upper": (small, _CAPITALS)}
        if name in changes:
            before, after = map(self.dialect.quote_text, changes[name])
            return Value(TEXT, f"translate({texts[0]}, {before}, {after})")
        if name == "trim":
            return Value(TEXT, f"trim(BOTH ' ' FROM {texts[0]})")
        if name == "substr":
            numbers = [part.value if isinstance(part, Constant) else None for part in parts[1:]]
            if not all(
                isinstance(number, Decimal) and number == int(number) and least <= number < 10**6
                for number, least in zip(numbers, (1, 0), strict=False)
            ):
                raise InputError(
                    f"{self.place} takes a part of a text from no fixed place on: write"
                    " substr(code, 1, 2)"
                )
            counts = ", ".join(str(int(number)) for number in numbers if number is not None)
            return Value(TEXT, f"substr({texts[0]}, {counts})")
        return Value(TEXT, f"({' || '.join(texts)})")

    def _like(self, node: Node, pattern: Node) -> Value:
        text = self._text(node, TEXT)
        wild = str(pattern.value) if isinstance(pattern, Constant) else ""
        if wild.count("%") > _MOST_WILD:
            raise InputError(
                f"{self.place} has a LIKE with more than {_MOST_WILD} signs %: use fewer"
            )
        escaped = self.dialect.quote_text(wild.replace("!", "!!"))
        return Value(TRUTH, f"({text} LIKE {escaped} ESCAPE '!')")

    def _choice(self, name: str, parts: Sequence[Node]) -> Value:
        """CASE or COALESCE: every possible value is of the same kind."""
        conditions = parts[0 : len(parts) // 2 * 2 : 2] if name == "case" else ()
        choices = [*parts[1::2], *parts[len(parts) // 2 * 2 :]] if name == "case" else [*parts]
        values = [self._value(choice) for choice in choices]
        kinds = {value.kind for value in values}
        kind = kinds.pop() if len(kinds) == 1 else DECIMAL
        if name in _CHOICES[1:] and _group(kind) != NUMBER:
            raise InputError(f"{self.place} asks for the {name} of values that are not numbers")
        if kinds and {value.kind for value in values} != {INTEGER, DECIMAL}:
            raise InputError(
                f"{self.place} chooses between values of different types: make them alike"
            )
        sqls = [value.sql if kind != DECIMAL else self._double(value) for value in values]
        if name in _CHOICES:
            sql = f"{name}({', '.join(sqls)})"
        else:
            pairs = zip(map(self.write_condition, conditions), sqls, strict=False)
            cases = [f"WHEN {condition} THEN {chosen}" for condition, chosen in pairs]
            cases += [f"ELSE {chosen}" for chosen in sqls[len(cases) :]]
            sql = f"CASE {' '.join(cases)} END"
        return Value(
            kind,
            sql,
            sql if kind == INTEGER else None,
            bound=max(value.bound for value in values),
            operations=max(value.operations for value in values),
        )

    def _cast(self, kind: str, value: Value) -> Value:
        if kind == value.kind:
            return value
        if value.kind == TEXT:
            misfit = (
                f"{self.place} casts text to {kind}, and some of it is none: check how it is"
                " written"
            )
            return self._parse_text(kind, value.sql, misfit, zeros=True)
        if (value.kind, kind) == (INTEGER, DECIMAL):
            return Value(DECIMAL, self._double(value), operations=value.operations)
        if (value.kind, kind) == (INTEGER, TEXT):
            return Value(TEXT, self._cast_to(self.dialect.string, value.sql))
        raise InputError(
            f"{self.place} casts {_name_kind(value.kind)} to {kind}, which engines do in"
            " different ways: use floor, or declare another type (⟨read_as⟩)"
        )

    def _aggregate(self, node: Call, wanted: str | None) -> Value:
        name, parts, condition = node.name, node.arguments, ""
        if parts and isinstance(parts[-1], Call) and parts[-1].name == "filter":
            condition = f" FILTER (WHERE {self.write_condition(parts[-1].arguments[0])})"
            parts = parts[:-1]
        if name in ("count", "count_if"):
            counted = (
                f"CASE WHEN {self.write_condition(parts[0])} THEN 1 END"
                if name == "count_if"
                else "*"
            )
            if name == "count" and parts:
                counted = self._present(parts[0])
            sql = self._cast_to(self.dialect.whole, f"count({counted}){condition}")
            return Value(INTEGER, sql, sql, bound=10**9)
        if name in ("bool_and", "bool_or"):
            return Value(TRUTH, f"{name}({self.write_condition(parts[0])}){condition}")
        if name in ("min", "max"):
            read = self._value(parts[0], DECIMAL if wanted == NUMBER else wanted)
            sql = f"{name}({read.sql}){condition}"
            return Value(read.kind, sql, sql if read.kind == INTEGER else None, bound=read.bound)
        read = self._number(parts[0], DECIMAL)
        if name == "median":
            return Value(DECIMAL, f"median({self._double(read)}){condition}", operations=1)
        # Floating-point numbers would add up to something else in another order.
        exact = read.sql if read.kind == INTEGER else f"CAST({read.sql} AS DECIMAL(38, 9))"
        total = f"sum({exact}){condition}"
        if name == "avg":
            number = f"NULLIF(count({read.sql}){condition}, 0)"
            return Value(DECIMAL, f"(CAST({total} AS DOUBLE) / {number})", operations=1)
        if read.kind == INTEGER:
            return Value(INTEGER, total, total, bound=read.bound * 10**9)
        return Value(DECIMAL, f"CAST({total} AS DOUBLE)", operations=1)

    # Columns

    def _column(self, name: str, wanted: str | None) -> Value:
        declared = self.declared.get(name)
        if declared is not None:
            if wanted is not None and _group(wanted) != _group(declared):
                raise InputError(
                    f"{self.place} reads {name!r} as {_name_kind(wanted)}, and it was declared as"
                    f" {declared}: write it so, or change ⟨read_as⟩"
                )
            exactly = wanted == NUMBER and declared == DECIMAL
            return self._read(name, NUMBER if exactly else declared)
        return self._read(name, wanted or self._schema_kind(name))

    def _schema_kind(self, name: str) -> str:
        """Return what the file or the database itself says that a column holds; refuse where it
        says nothing.
        """
        stored = self.stored[name]
        if stored == UNTYPED:
            raise InputError(
                f"{self.place} does not say whether {name!r} holds numbers or text: declare it"
                f" (⟨read_as {name}=integer⟩, decimal or text)"
            )
        if stored in (INTEGER, SINGLE, DOUBLE):
            return DECIMAL
        return DATE if stored == DAY else stored

    def _kind(self, node: Node) -> str | None:
        """Return what a tree itself says that it is; None of a column without a declared type."""
        if isinstance(node, NamedColumn):
            declared = self.declared.get(node.name)
            return None if declared is None else _group(declared)
        if isinstance(node, Constant):
            return node.kind
        name = node.name
        if name in ("min", "max") and name in AGGREGATES:
            return self._kind(node.arguments[0])
        if name in ("case", *_CHOICES):
            choices = node.arguments[1::2] if name == "case" else node.arguments
            return next(filter(None, map(self._kind, choices)), None)
        if name.startswith("as "):
            return _group(name.removeprefix("as "))
        if name in (*_ARITHMETIC, "abs", "ceil", "floor", "length"):
            return NUMBER
        if name in FUNCTIONS or name == "||":
            return TEXT
        return NUMBER if name in AGGREGATES and not name.startswith("bool") else TRUTH

    def _read(self, name: str, kind: str) -> Value:
        """Read a column as numbers, text, dates or truth values; say which values do not fit."""
        raw, stored = self._raw(name), self.stored[name]
        misfit = self._misfit(name, kind)
        if stored in (TEXT, UNTYPED):
            text = raw if stored == UNTYPED else self._cast_to(self.dialect.string, raw)
            return self._parse_text(kind, text, misfit, zeros=name in self.declared)
        if stored == kind == TRUTH:
            return Value(TRUTH, raw)
        if stored in (DAY, DATE) and kind in (TEXT, DATE):
            return Value(kind, self._moment(raw, stored))
        if stored == TRUTH and kind == TEXT:
            return Value(TEXT, f"CASE WHEN {raw} THEN 'true' WHEN NOT {raw} THEN 'false' END")
        numbers = stored in (INTEGER, DECIMAL, SINGLE, DOUBLE)
        if not numbers or kind in (TRUTH, DATE):
            held = "numbers" if numbers else "other values"
            raise InputError(
                f"{self.place} reads {name!r} as {_name_kind(kind)}, and the data hold {held}:"
                " compare it with such a value, or convert it beforehand"
            )
        if stored != DECIMAL:
            return self._stored_number(raw, kind, misfit, whole=stored == INTEGER)
        text = self._cast_to(self.dialect.string, raw)
        if kind != TEXT:
            return self._parse_text(kind, text, misfit, zeros=True)
        short = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {text}))"
        return Value(TEXT, f"CASE WHEN {text} LIKE '%.%' THEN {short} ELSE {text} END")

    def _stored_number(self, raw: str, kind: str, misfit: str, *, whole: bool) -> Value:
        """Read a column of whole or of floating-point numbers as numbers or text."""
        near = self._cast_to(self.dialect.double, raw) if whole else raw
        if self.dialect.compares_alone:  # any column of SQLite can hold anything
            types = "'null', 'integer'" if whole else "'null', 'integer', 'real'"
            self.misfits[f"typeof({raw}) NOT IN ({types})"] = misfit
        if kind == NUMBER:
            self.misfits[f"abs({near}) > {self._near('1.7e308')}"] = misfit
            return Value(NUMBER, near, self._cast_to(self.dialect.whole, raw) if whole else None)
        if kind == DECIMAL:
            self.misfits[self._out_of_range(near)] = misfit
            return Value(DECIMAL, near)
        far = f"abs({near}) >= {self._near(str(_LARGEST_EXACT))} OR {near} <> floor({near})"
        if whole:
            limit = self._write_integer(_LARGEST_INTEGER)
            far = f"abs({self._cast_to(self.dialect.whole, raw)}) >= {limit}"
        self.misfits[far] = misfit
        number = self._cast_to("BIGINT", raw)
        if kind == TEXT:
            return Value(TEXT, self._cast_to(self.dialect.string, number))
        exact = self._cast_to(self.dialect.whole, number)
        return Value(INTEGER, exact, exact, bound=_LARGEST_INTEGER)

    def _parse_text(self, kind: str, text: str, misfit: str, *, zeros: bool) -> Value:
        """Read text as numbers, dates or truth values; `zeros` says whether numbers may begin with
        zeros.
        """
        if kind == TEXT:
            return Value(TEXT, text)
        if self.dialect.compares_alone:
            raise InputError(
                f"{self.place} reads text as numbers, which this database cannot: convert it in a"
                " view"
            )
        matches = self.dialect.matches
        if kind in (TRUTH, DATE):
            pattern = MOMENT if kind == DATE else _TRUE_OR_FALSE
            self.misfits[f"NOT {matches(text, pattern)}"] = misfit
            midnight = (
                f"CASE WHEN {text} LIKE '% 00:00:00' THEN substr({text}, 1, 10) ELSE {text} END"
            )
            return Value(kind, midnight if kind == DATE else f"(lower({text}) = 'true')")
        if kind == INTEGER:
            self.misfits[f"NOT {matches(text, _WHOLE)}"] = misfit
            digits = f"split_part(trim(BOTH ' ' FROM {text}), '.', 1)"
            whole = self._cast_to(self.dialect.whole, self._cast_to("BIGINT", digits))
            return Value(INTEGER, whole, whole, bound=_LARGEST_INTEGER)
        fits = matches(text, _number_pattern(zeros=zeros))
        nearest = self._cast_to(self.dialect.double, text)
        if kind == DECIMAL:
            far = self._out_of_range(nearest)
            self.misfits[f"CASE WHEN {fits} THEN {far} ELSE {text} IS NOT NULL END"] = misfit
            return Value(DECIMAL, nearest)
        self.misfits[f"NOT {fits}"] = misfit
        plain = f"trim(LEADING '+-0' FROM trim(BOTH ' ' FROM {text}))"
        before, after = (f"split_part({plain}, '.', {place})" for place in (1, 2))
        digits = f"lpad({before}, {_DIGITS}, '0') || '.' || trim(TRAILING '0' FROM {after})"
        power = f"lower({text}) LIKE '%e%'"
        return Value(NUMBER, nearest, digits=f"(CASE WHEN NOT {power} THEN {digits} END)")

    def _misfit(self, name: str, kind: str) -> str:
        if name in self.declared:
            declared = self.declared[name]
            return (
                f"the column {name!r} was declared as {declared}, and not all its values are"
                f" {_HOLDS[declared]}"
            )
        return (
            f"{self.place} reads {name!r} as {_name_kind(kind)}, and not all its values are"
            f" {_HOLDS.get(kind)}: compare it with text in quotes, or say what it holds"
            f" (⟨read_as {name}=integer⟩, decimal or text)"
        )

    def _raw(self, name: str) -> str:
        """The column as the data hold it; what is not a number is missing."""
        raw, stored = self.dialect.name(name), self.stored[name]
        if stored not in (SINGLE, DOUBLE) or self.dialect.compares_alone:
            return raw
        if stored == SINGLE:  # its shortest decimal, not the digits of its binary fraction
            raw = self._cast_to(self.dialect.double, self._cast_to(self.dialect.string, raw))
        return f"NULLIF({raw}, {self._near('NaN')})"

    def _present(self, node: Node) -> str:
        """Something that is NULL where a tree has no value."""
        return self._raw(node.name) if isinstance(node, NamedColumn) else self._value(node).sql

    def _moment(self, raw: str, stored: str) -> str:
        """Write a date as text, and a time that is not midnight."""
        write, *formats = self.dialect.stamps
        day, second, fraction = (
            f"{write}({raw}, {self.dialect.quote_text(form)})" for form in formats
        )
        if stored == DAY:
            return day
        return (
            f"CASE WHEN {raw} = date_trunc('day', {raw}) THEN {day} WHEN {raw} ="
            f" date_trunc('second', {raw}) THEN {second} ELSE {fraction} END"
        )

    def _out_of_range(self, number: str) -> str:
        """Whether arithmetic with a number could be inexact for its size, overflow or underflow."""
        least, most = self._near("1e-18"), self._near(str(_LARGEST_EXACT))
        return f"(abs({number}) >= {most} OR ({number} <> 0 AND abs({number}) < {least}))"

    def _text(self, node: Node, wanted: str | None = None) -> str:
        value = self._value(node, wanted)
        if value.kind not in (TEXT, DATE):
            raise InputError(
                f"{self.place} needs text where {_name_kind(value.kind)} stands: declare the"
                " column as text (⟨read_as⟩)"
            )
        return value.sql

    def _number(self, node: Node, wanted: str | None = None) -> Value:
        value = self._value(node, wanted)
        if value.kind not in (INTEGER, DECIMAL):
            raise InputError(
                f"{self.place} calculates with {_name_kind(value.kind)}: declare the column as"
                " integer or decimal (⟨read_as⟩)"
            )
        return value

    # Pieces of SQL

    def _double(self, value: Value) -> str:
        if value.constant is not None:
            return self._near(repr(float(value.constant)))
        return self._cast_to(self.dialect.double, value.sql) if value.kind == INTEGER else value.sql

    def _near(self, number: str) -> str:
        return self._cast_to(self.dialect.double, self.dialect.quote_text(number))

    def _write_integer(self, number: int) -> str:
        return self._cast_to(self.dialect.whole, self.dialect.quote_text(str(number)))

    def _cast_to(self, kind: str, sql: str) -> str:
        return f"CAST({sql} AS {kind})"


_HOLDS = {
    NUMBER: "numbers without leading zeros",
    INTEGER: "whole numbers of at most 18 digits",
    DECIMAL: "numbers of a size between 1e-18 and 2^53",
    TEXT: "text or whole numbers",
    DATE: "dates such as 2026-01-31",
    TRUTH: "true or false",
}


def _group(kind: str) -> str:
    return NUMBER if kind in (INTEGER, DECIMAL) else kind


def _name_kind(kind: str) -> str:
    return _NAMES.get(_group(kind), "a value of another type")


def _number_pattern(*, zeros: bool) -> str:
    """Return how numbers are written; PostgreSQL repeats nothing more than 255 times."""
    whole, short = (
        f"0*[0-9]{{1,{most}}}" if zeros else f"(0|[1-9][0-9]{{0,{most - 1}}})"
        for most in (_DIGITS, 8)
    )
    plain = f"{whole}([.][0-9]{{0,{_DIGITS}}})?|[.][0-9]{{1,{_DIGITS}}}"
    mantissa = f"({short}([.][0-9]{{0,17}})?|[.][0-9]{{1,17}})"
    power = f"{mantissa}[eE][+-]?0*([0-9]{{1,2}}|[12][0-9]{{2}})"
    return f" *[+-]?({plain}|{power}) *"


def _is_numeral(text: str) -> bool:
    """Whether a text reads as a number.

    >>> [_is_numeral(text) for text in ("10", "-1.5e3", "010", "n/a", "1,200")]
    [True, True, False, False, False]
    """
    return re.fullmatch(_number_pattern(zeros=False), text) is not None


def _sign(number: Decimal) -> int:
    return (number > 0) - (number < 0)


def _by_parts(low: str, sign: str, high: str, tie: str) -> str:
    """Compare by what is below, what is above, and `tie` where both are equal."""
    signs = _SIGNS[sign]
    parts = [f"{low} {each} {high}" for each, way in (("<", -1), (">", 1)) if way in signs]
    if tie != "False":
        parts.append(f"{low} = {high}" if tie == "True" else f"({low} = {high} AND {tie})")
    # nothing holds, and of a missing value nothing is known
    return f"({' OR '.join(parts)})" if parts else f"({low} < {high} AND {low} > {high})"
