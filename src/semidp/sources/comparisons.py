"""How a WHERE compares columns that have no type: those of CSV files, and those that the names of
folders give.

A column holds numbers where every value is one, and truth values where every value is true or
false; leading zeros keep a column text, because such values are codes. A comparison of values of
which some are numbers and others are not is refused: else one record would decide how all others
compare. Works on the account that DuckDB's parser gives of a text.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semidp.core.tables.features import TRUTH
from semidp.errors import DataError

Node = dict[str, Any]

# A number has no leading zero, no separator and no unit; what is too large for a floating-point
# number is text.
_NUMBER = r" *[+-]?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)? *"
_WHOLE = r" *[+-]?(0|[1-9][0-9]*) *"
# the one way to write a whole number, so that equal numbers are equal texts
_CANONICAL = r"0|-?[1-9][0-9]*"
_COMPARISONS = ("COMPARISON", "BETWEEN")
_LISTED = ("COMPARE_IN", "COMPARE_NOT_IN")
_ORDERING = ("greatest", "least")
_EQUALITIES = (
    *("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"),
    *(*_LISTED, "OPERATOR_COALESCE"),
)
_AS_WRITTEN = ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "ARRAY_EXTRACT", "ARRAY_SLICE")
JOINS = ("||", "concat", "concat_ws")
"""Functions that take values of any type, and make text of them."""
_TEXT_TYPES = ("VARCHAR", "TEXT", "STRING", "CHAR", "BPCHAR")


@dataclass(frozen=True)
class Values:
    """What all values of a column have in common; the fields are in the order of `survey`."""

    numbers: bool
    """Whether every value is a number."""
    some_number: bool
    small: bool
    """Whether every value is a whole number of at most 64 bits."""
    whole: bool
    """Whether every value is a whole number of at most 128 bits."""
    truth: bool
    """Whether every value is true or false."""
    canonical: bool
    """Whether every number is a whole one in its shortest form: equal texts are equal numbers."""
    shortest: int
    longest: int
    """How long the shortest and the longest value are."""

    @property
    def type(self) -> str | None:
        """The SQL type of the column; None where it is text."""
        if self.numbers:
            return "BIGINT" if self.small else "HUGEINT" if self.whole else "DOUBLE"
        return "BOOLEAN" if self.truth else None


def survey(column: str) -> str:
    """Return SQL for the fields of `Values` of a quoted column of text; missing values do not
    count.
    """
    number = (
        f"(regexp_full_match({column}, '{_NUMBER}') AND coalesce(isfinite(TRY_CAST({column} AS"
        " DOUBLE)), false))"
    )
    whole = f"regexp_full_match({column}, '{_WHOLE}')"
    canonical = f"regexp_full_match({column}, '{_CANONICAL}')"
    if_present = f"FILTER (WHERE {column} IS NOT NULL)"
    return ", ".join(
        (
            f"coalesce(bool_and({number}) {if_present}, true)",
            f"coalesce(bool_or({number}) {if_present}, false)",
            (
                f"coalesce(bool_and({whole} AND TRY_CAST({column} AS BIGINT) IS NOT NULL)"
                f" {if_present}, true)"
            ),
            (
                f"coalesce(bool_and({whole} AND TRY_CAST({column} AS HUGEINT) IS NOT NULL)"
                f" {if_present}, true)"
            ),
            f"coalesce(bool_and(lower({column}) IN {TRUTH}) {if_present}, false)",
            f"coalesce(bool_and({canonical} OR NOT {number}) {if_present}, true)",
            f"coalesce(min(length({column})), 0)",
            f"coalesce(max(length({column})), 0)",
        )
    )


def nodes(tree: Any) -> Iterator[Node]:
    """Yield every expression in the parser's account of a text."""
    if isinstance(tree, dict) and isinstance(tree.get("class"), str):
        yield tree
    for part in _parts(tree):
        yield from nodes(part)


def columns_in(tree: Any) -> list[str]:
    """Return the columns that an expression names, in small letters, each once."""
    return list(dict.fromkeys(_name(node) for node in nodes(tree) if node["class"] == "COLUMN_REF"))


@dataclass(frozen=True)
class Typing:
    """Decides where a condition reads a column without a type as numbers or truth values.

    Parameters
    ----------
    values
        What is known of these columns, by their names in small letters.
    takes_text, makes_text
        The functions that take text and that make it, by their names in small letters: a column in
        one of the first stays as it is written.
    cast
        Returns the parser's account of a column that is cast to a type.
    place
        What the expression is called in a message.
    """

    values: Mapping[str, Values]
    takes_text: Collection[str]
    makes_text: Collection[str]
    cast: Callable[[Node, str], Node]
    place: str = "the WHERE"

    def typed(self, condition: Any) -> tuple[Any, list[str]]:
        """Return the condition with these casts, and the names of the columns that it reads as
        numbers.
        """
        written: set[int] = set()
        for node in nodes(condition):
            operands = list(_operands(node))
            columns = [
                part
                for part in operands
                if part["class"] == "COLUMN_REF" and _name(part) in self.values
            ]
            if columns and self._as_written(node, operands, columns):
                written |= {id(column) for column in columns}
        numbers = [
            _name(node)
            for node in nodes(condition)
            if node["class"] == "COLUMN_REF"
            and id(node) not in written
            and self._type(node) not in (None, "BOOLEAN")
        ]
        return self._with_casts(condition, written), list(dict.fromkeys(numbers))

    def _with_casts(self, tree: Any, written: Collection[int]) -> Any:
        if isinstance(tree, list):
            return [self._with_casts(part, written) for part in tree]
        if not isinstance(tree, dict):
            return tree
        if tree.get("class") == "COLUMN_REF":
            kind = None if id(tree) in written else self._type(tree)
            return tree if kind is None else self.cast(tree, kind)
        return {key: self._with_casts(part, written) for key, part in tree.items()}

    def _type(self, column: Node) -> str | None:
        values = self.values.get(_name(column))
        return None if values is None else values.type

    def _as_written(self, node: Node, operands: Sequence[Node], columns: Sequence[Node]) -> bool:
        """Whether the columns directly below an expression are text there, whatever their values
        are.
        """
        if node["class"] in ("CAST", "COLLATE") or node["type"] in _AS_WRITTEN:
            return True
        name = node["function_name"].lower() if node["class"] == "FUNCTION" else ""
        if node["class"] in _COMPARISONS or node["type"] in _EQUALITIES or name in _ORDERING:
            return self._compares_text(node, operands, columns)
        return name in self.takes_text

    def _compares_text(self, node: Node, operands: Sequence[Node], columns: Sequence[Node]) -> bool:
        """Whether a comparison is one of texts; refuse one that is of numbers for some records
        only.
        """
        constants = [text for text in map(_quoted, operands) if text is not None]
        kinds = {self._type(column) for column in columns}
        if kinds == {"BOOLEAN"}:
            return not {text.lower() for text in constants} <= set(TRUTH)
        # What the condition itself says is text is so for every record, and in whatever file.
        if any(self._is_text(part) for part in operands) or not all(
            _is_number(text) for text in constants
        ):
            return True
        if not kinds & {None, "BOOLEAN"}:
            return False
        values = [self.values[_name(column)] for column in columns]
        bare = any(part["class"] == "CONSTANT" and _quoted(part) is None for part in operands)
        if not bare and not any(each.some_number for each in values):
            return True
        # Whole numbers in their shortest form are equal where their texts are, and of one length
        # they are in one order.
        lengths = {length for each in values for length in (each.shortest, each.longest)} | {
            *map(len, constants)
        }
        alike = node["type"] in _EQUALITIES or len(lengths) == 1
        if not bare and alike and all(each.canonical for each in values):
            return True
        name = next(_name(column) for column in columns if self._type(column) in (None, "BOOLEAN"))
        raise DataError(
            f"{self.place} compares {name!r}, whose values are not all numbers (one with a leading"
            f" zero is text): write CAST({name} AS DOUBLE) to compare numbers, or CAST({name} AS"
            " VARCHAR) to compare text"
        )

    def _is_text(self, part: Node) -> bool:
        """Whether an operand is a text by what the condition says: made by a function of text, or a
        cast.
        """
        if part["class"] == "CAST":
            # before 2.0
            kind = (
                part["type_expr"]["type_name"] if "type_expr" in part else part["cast_type"]["id"]
            )
            return str(kind).upper() in _TEXT_TYPES
        return part["class"] == "FUNCTION" and part["function_name"].lower() in self.makes_text


def _parts(tree: Any) -> list[Any]:
    return list(tree.values()) if isinstance(tree, dict) else tree if isinstance(tree, list) else []


def _operands(node: Node) -> Iterator[Node]:
    """Yield the expressions directly below one."""
    for part in _parts(node):
        yield from _first(part)


def _first(tree: Any) -> Iterator[Node]:
    if isinstance(tree, dict) and isinstance(tree.get("class"), str):
        yield tree
        return
    for part in _parts(tree):
        yield from _first(part)


def _name(column: Node) -> str:
    return str(column["column_names"][0]).lower()


def _quoted(part: Node) -> str | None:
    """Return the text of a quoted constant; None for whatever else."""
    if part["class"] != "CONSTANT":
        return None
    if "literal" in part:
        return str(part["literal"]["text"]) if part["literal"]["kind"] == "STRING" else None
    value = part["value"]  # before DuckDB 2.0
    return str(value["value"]) if value["type"]["id"] == "VARCHAR" else None


def _is_number(text: str) -> bool:
    """Whether a constant is a number as it would be in a file.

    >>> [_is_number(text) for text in ("10", "-1.5e3", "010", "n/a", "1,200")]
    [True, True, False, False, False]
    """
    return re.fullmatch(_NUMBER, text) is not None
