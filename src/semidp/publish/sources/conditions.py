"""The language of conditions and aggregates: parsed once into a tree, which is written in the SQL
of each engine.

It is a small part of SQL, in which the meaning of an expression for a record does not depend on
other records. `condition_sql` defines the meaning.
"""

import re
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal

from attrs import frozen

from semidp.errors import InputError, did_you_mean

INTEGER, DECIMAL, TEXT = "integer", "decimal", "text"
"""The types that a column can be declared to have."""
NUMBER, TRUTH, DATE = "number", "truth", "date"
"""What else the other side of a comparison can say of a column."""

COMPARISONS = {
    "<": "<",
    "<=": "<=",
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    ">=": ">=",
    ">": ">",
}
FUNCTIONS = {
    **dict.fromkeys(("abs", "ceil", "floor", "length", "lower", "trim", "upper"), (1, 1)),
    **dict.fromkeys(("coalesce", "greatest", "least"), (1, 100)),
    "substr": (2, 3),
}
"""Functions that mean the same in every engine, and how many arguments they take."""
AGGREGATES = ("count", "count_if", "sum", "min", "max", "avg", "median", "bool_and", "bool_or")
"""Aggregates of a multiset: their value depends on no order, and on no choice among equals."""

_SAME = {"ceiling": "ceil", "substring": "substr", "countif": "count_if", "mean": "avg"}
_TYPES = {
    **dict.fromkeys(("integer", "int", "bigint", "smallint"), INTEGER),
    **dict.fromkeys(("decimal", "numeric", "double", "real", "float"), DECIMAL),
    **dict.fromkeys(("text", "varchar", "string", "char"), TEXT),
}
_RESERVED = {
    *("and", "or", "not", "in", "is", "between", "like", "case", "when", "then", "else", "end"),
    *("null", "true", "false", "cast", "select", "exists", "any", "all", "over", "filter"),
}
_TOKEN = re.compile(
    r"""(?:\s|--[^\n]*)*(?:
    (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")+")
    | (?P<number>(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
    | (?P<word>[^\W\d]\w*) | (?P<sign><=|>=|<>|!=|==|=>|=<|//|\|\||::|[-+*/%(),<>=])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_TURNED = {"=>": ">=", "=<": "<="}
_MOST_CHARACTERS, _MOST_DEPTH, _MOST_DIGITS = 10_000, 60, 200
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
MOMENT = rf"{_DAY}( [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{6}})?)?"
"""How a date is written, or a date with a time of day."""


@frozen
class NamedColumn:
    """A column of the record, by its name in the data."""

    name: str


@frozen
class Constant:
    """A number, a text, a date, or true or false."""

    kind: str
    value: Decimal | str | bool


@frozen
class Call:
    """An operator, a function or an aggregate, with its arguments."""

    name: str
    arguments: "tuple[Node, ...]" = ()


Node = NamedColumn | Constant | Call


def read_condition(text: str, columns: Collection[str]) -> Node:
    """Return the tree of a condition on the columns of a record; refuse other text.

    >>> read_condition("age >= 18 AND region <> 'north'", ["age", "region"]).name
    'and'
    >>> read_condition("random() < 1", [])
    Traceback (most recent call last):
    semidp.errors.InputError: the WHERE must depend on the record alone, and semidp does not know
    that of random(): use abs, ...
    """
    return _Parser(text, columns, "the WHERE", _NO_CONDITION).read_all()


def read_aggregate(name: str, text: str, columns: Collection[str]) -> Node:
    """Return the tree of an aggregate over the members of a unit; refuse other text.

    Parameters
    ----------
    name, text
        The derived feature and its SQL.
    columns
        The columns of members, without the link.
    """
    place = f"the aggregate of {name!r}"
    failure = (
        f"{place} must be one expression with a value a unit, such as count(*) FILTER (WHERE age <"
        " 18): check its names and quotes"
    )
    tree = _Parser(text, columns, place, failure, AGGREGATES).read_all()
    _check_aggregates(tree, place, failure)
    return tree


def walk_nodes(tree: Node) -> Iterator[Node]:
    """Yield every part of a tree."""
    yield tree
    if isinstance(tree, Call):
        for part in tree.arguments:
            yield from walk_nodes(part)


def quote_column(name: str) -> str:
    """Return the name of a column as written in a condition.

    >>> quote_column("ward"), quote_column("the ward")
    ('ward', '"the ward"')
    """
    plain = name.isidentifier() and name.lower() not in _RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


def list_columns(tree: Node) -> list[str]:
    """Return the columns that a tree names, each once."""
    return list(
        dict.fromkeys(part.name for part in walk_nodes(tree) if isinstance(part, NamedColumn))
    )


def _check_aggregates(tree: Node, place: str, failure: str) -> None:
    """Refuse a column outside every aggregate, an aggregate inside another, and a text without
    any.
    """
    parts = list(walk_nodes(tree))
    calls = [part for part in parts if isinstance(part, Call) and part.name in AGGREGATES]
    if not calls:
        raise InputError(f"{place} aggregates nothing: write one such as max(age)")
    inside = [
        part for call in calls for argument in call.arguments for part in walk_nodes(argument)
    ]
    nested = any(isinstance(part, Call) and part.name in AGGREGATES for part in inside)
    columns = sum(isinstance(part, NamedColumn) for part in parts)
    within = sum(isinstance(part, NamedColumn) for part in inside)
    if nested or within < columns:
        raise InputError(failure)


_NO_CONDITION = (
    "the WHERE must be one condition on the columns of a record, such as age >= 18 AND region <>"
    " 'north': check its names and quotes"
)


class _Parser:
    """Reads one text from left to right."""

    def __init__(
        self,
        text: str,
        columns: Collection[str],
        place: str,
        failure: str,
        aggregates: Collection[str] = (),
    ) -> None:
        self.place, self.failure, self.aggregates = place, failure, aggregates
        if len(text) > _MOST_CHARACTERS:
            raise InputError(
                f"{place} has more than {_MOST_CHARACTERS:,} characters: keep the records in a"
                " view or a file"
            )
        self.columns = columns
        self.tokens = self._tokens(text)
        self.position = self.depth = 0

    def _tokens(self, text: str) -> list[tuple[str, str]]:
        tokens = [("start", "")]
        place = 0
        while tokens[-1][0] != "end":
            match = _TOKEN.match(text, place)
            if match is None:
                raise InputError(self.failure)
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind]))
            place = match.end()
        turned = [text for _, text in tokens if text in _TURNED]
        if turned:
            raise InputError(
                f"{self.place} holds {turned[0]}, which is not a comparison: write"
                f" {_TURNED[turned[0]]}"
            )
        return tokens[1:]

    def read_all(self) -> Node:
        tree = self._either()
        if self.tokens[self.position][0] != "end":
            raise InputError(self.failure)
        return tree

    # What comes next

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.position]

    def _take(self, *words: str) -> str | None:
        """Return the next word or sign where it is one of these, and go past it."""
        kind, text = self._next()
        if kind in ("word", "sign") and text.lower() in words:
            self.position += 1
            return text.lower()
        return None

    def _expect(self, *words: str) -> None:
        for word in words:
            if self._take(word) is None:
                raise InputError(self.failure)

    def _expect_text(self) -> str:
        kind, text = self._next()
        if kind != "text":
            raise InputError(self.failure)
        self.position += 1
        return text[1:-1].replace("''", "'")

    # From what binds least to what binds most

    def _either(self) -> Node:
        self.depth += 1
        # brackets inside brackets would end the stack of Python
        if self.depth > _MOST_DEPTH:
            raise InputError(self.failure)
        parts = [self._conjunction()]
        while self._take("or"):
            parts.append(self._conjunction())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else Call("or", tuple(parts))

    def _conjunction(self) -> Node:
        parts = [self._negation()]
        while self._take("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else Call("and", tuple(parts))

    def _negation(self) -> Node:
        negated = False
        # in a loop: a thousand times NOT must not end the stack
        while self._take("not"):
            negated = not negated
        tree = self._comparison()
        return Call("not", (tree,)) if negated else tree

    def _comparison(self) -> Node:
        left = self._concatenation()
        sign = self._take(*COMPARISONS)
        if sign is not None:
            return Call(COMPARISONS[sign], (left, self._concatenation()))
        if self._take("is"):
            negated = self._take("not") is not None
            tree = self._state(left)
        else:
            negated = self._take("not") is not None
            compared = self._membership(left)
            if compared is None:
                if negated:
                    raise InputError(self.failure)
                return left
            tree = compared
        return Call("not", (tree,)) if negated else tree

    def _state(self, left: Node) -> Node:
        """What comes after IS."""
        word = self._take("null", "true", "false", "distinct")
        missing = Call("is null", (left,))
        if word == "null":
            return missing
        if word == "distinct":
            self._expect("from")
            right = self._concatenation()
            both = Call("and", (missing, Call("is null", (right,))))
            return Call("not", (Call("surely", (Call("=", (left, right)), both)),))
        if word is None:
            raise InputError(self.failure)
        # IS TRUE is false, and never unknown, where the value is missing
        return Call("surely", (Call("=", (left, Constant(TRUTH, word == "true"))),))

    def _membership(self, left: Node) -> Node | None:
        if self._take("between"):
            low = self._concatenation()
            self._expect("and")
            return Call("between", (left, low, self._concatenation()))
        if self._take("in"):
            self._expect("(")
            return Call("in", (left, *self._arguments()))
        if self._take("like"):
            return Call("like", (left, Constant(TEXT, self._expect_text())))
        return None

    def _concatenation(self) -> Node:
        return self._chain(("||",), self._sum)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._chain(("*", "/", "//", "%"), self._signed_term)

    def _chain(self, signs: tuple[str, ...], part: Callable[[], Node]) -> Node:
        tree = part()
        while (sign := self._take(*signs)) is not None:
            tree = Call(sign, (tree, part()))
        return tree

    def _signed_term(self) -> Node:
        negative = False
        while (sign := self._take("-", "+")) is not None:
            negative = negative != (sign == "-")
        tree = self._single()
        while self._take("::"):
            tree = Call(f"as {self._type()}", (tree,))
        if not negative:
            return tree
        if isinstance(tree, Constant) and isinstance(tree.value, Decimal):
            # a negative number is one constant: comparisons look at its value
            return Constant(NUMBER, tree.value.copy_negate())
        return Call("-", (Constant(NUMBER, Decimal(0)), tree))

    def _single(self) -> Node:
        kind, text = self._next()
        if kind == "text":
            return Constant(TEXT, self._expect_text())
        self.position += 1
        if kind == "number":
            return self._number(text)
        if kind == "quoted":
            return self._column(text[1:-1].replace('""', '"'))
        if text == "(":
            tree = self._either()
            self._expect(")")
            return tree
        word = text.lower()
        if kind != "word":
            raise InputError(self.failure)
        if word in ("true", "false"):
            return Constant(TRUTH, word == "true")
        if word == "case":
            return self._case()
        if word == "cast":
            self._expect("(")
            tree = self._either()
            self._expect("as")
            cast = Call(f"as {self._type()}", (tree,))
            self._expect(")")
            return cast
        if word in _RESERVED:
            raise InputError(self.failure)
        if word in ("date", "timestamp") and self._next()[0] == "text":
            return self._moment(word)
        if self._take("("):
            return self._call(_SAME.get(word, word))
        return self._column(text)

    def _number(self, text: str) -> Node:
        value = Decimal(text)
        if value and not (
            -_MOST_DIGITS < value.adjusted() < _MOST_DIGITS and len(text) < _MOST_DIGITS
        ):
            raise InputError(
                f"{self.place} holds a number of more than {_MOST_DIGITS} digits: write a"
                " shorter one"
            )
        return Constant(NUMBER, value)

    def _moment(self, word: str) -> Node:
        text = self._expect_text()
        if re.fullmatch(_DAY if word == "date" else MOMENT, text) is None:
            raise InputError(
                f"{self.place} holds a date that is not written as DATE '2026-01-31' or TIMESTAMP"
                " '2026-01-31 12:30:00'"
            )
        return Constant(DATE, text.removesuffix(" 00:00:00"))

    def _case(self) -> Node:
        parts: list[Node] = []
        while self._take("when"):
            parts.append(self._either())
            self._expect("then")
            parts.append(self._either())
        if not parts:
            raise InputError(self.failure)
        # ELSE NULL is what CASE gives without ELSE
        if self._take("else") and self._take("null") is None:
            parts.append(self._either())
        self._expect("end")
        return Call("case", tuple(parts))

    def _type(self) -> str:
        kind, text = self._next()
        if kind != "word" or text.lower() not in _TYPES:
            raise InputError(
                f"{self.place} casts to a type that is not integer, decimal or text: name one of"
                " these"
            )
        self.position += 1
        self._take("precision")
        return _TYPES[text.lower()]

    def _call(self, name: str) -> Node:
        legal = (*FUNCTIONS, *self.aggregates)
        if name not in legal:
            alone = "no order of members" if self.aggregates else "the record alone"
            raise InputError(
                f"{self.place} must depend on {alone}, and semidp does not know that of {name}():"
                f" use {', '.join(legal)}, or compute the column beforehand"
            )
        whole = name == "count" and self._take("*")
        arguments = () if whole else tuple(self._arguments())
        if whole:
            self._expect(")")
        least, most = FUNCTIONS.get(name, (1, 1))
        if not whole and not least <= len(arguments) <= most:
            raise InputError(self.failure)
        if name in FUNCTIONS or not self._take("filter"):
            return Call(name, arguments)
        self._expect("(", "where")
        condition = self._either()
        self._expect(")")
        return Call(name, (*arguments, Call("filter", (condition,))))

    def _arguments(self) -> list[Node]:
        """Return what is between brackets and commas, after the first bracket."""
        parts = [self._either()]
        while self._take(","):
            parts.append(self._either())
        self._expect(")")
        return parts

    def _column(self, name: str) -> Node:
        if name in self.columns:
            return NamedColumn(name)
        # SQL takes names in any case, unless columns differ in nothing else
        alike = [column for column in self.columns if column.lower() == name.lower()]
        if len(alike) == 1:
            return NamedColumn(alike[0])
        if self.aggregates:
            raise InputError(
                f"{self.place} names {name!r}, which is not a column of members besides"
                f" the link{did_you_mean(name, self.columns)}"
            )
        before, _, _ = self.failure.rpartition(":")
        raise InputError(
            f"{before}: {name!r} is no column{did_you_mean(name, self.columns)}, and text stands"
            " in single quotes"
        )
