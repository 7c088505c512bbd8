"""Values that people write in plans and questions: texts, flags, keys and levels, accepted or
refused in one sentence.

A plan file is typed: ``levels_from_data = "no"`` is not true, a name is text, a list is a list.
Rules that hold in every record, such as ``retired implies age >= 50``, become structural zeros.
Exact numbers are in `promise.exact`.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from semidp.errors import InputError, did_you_mean
from semidp.promise.exact import format_value
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import StructuralZero


def text(value: Any, what: str) -> str:
    """Return text, which must not be empty.

    >>> text(3, "the name")
    Traceback (most recent call last):
    semidp.errors.InputError: the name must be text, not 3
    """
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be text, not {format_value(value)}")
    return str(value)


def is_number(word: str) -> bool:
    """Whether a text is a number to Python.

    >>> is_number("-1e3"), is_number("1,000")
    (True, False)
    """
    try:
        float(word)
    except ValueError:
        return False
    return True


def is_unicode(word: str) -> bool:
    """Whether text can be written as UTF-8; Python reads other bytes of file names as lone
    surrogates.

    >>> is_unicode("São"), is_unicode(chr(0xDCE3))
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def flag(value: Any, what: str) -> bool:
    """Return true or false; refuse values that merely look like them.

    >>> flag("no", "levels_from_data")
    Traceback (most recent call last):
    semidp.errors.InputError: levels_from_data must be true or false, not 'no'
    """
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {format_value(value)}")
    return value


def texts(value: Any, what: str, example: str = '["sex", "region"]') -> tuple[str, ...]:
    """Return a list of names, such as a plan file holds.

    >>> texts(["sex", "region"], "the features")
    ('sex', 'region')
    """
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise InputError(f"{what} are a list such as {example}, not {format_value(value)}")
    return tuple(text(item, f"each of {what}") for item in value)


def only_keys(value: Any, known: Iterable[str], what: str) -> None:
    """Refuse unknown keys: a misspelled one would otherwise be silently ignored."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what} has keys and values, not {format_value(value)}")
    unknown = sorted({str(key) for key in value} - set(known))
    if unknown:
        meant = did_you_mean(unknown[0], known)
        keys = ", ".join(sorted(known))
        raise InputError(
            f"{what} has no key {format_value(unknown[0])}{meant}: its keys are {keys}"
        )


def check_level(value: float, name: str) -> None:
    """Refuse a probability that is not strictly between 0 and 1.

    >>> check_level(95, "the confidence level")
    Traceback (most recent call last):
    semidp.errors.InputError: the confidence level must lie between 0 and 1, such as 0.05 or 0.95,
    not 95
    """
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1, such as 0.05 or 0.95, not {value}")


_COMPARISON = re.compile(r"^(.*?[^<>=!\s])\s*(<=|>=|!=|==|=|<|>)\s*([^<>=!].*)$")
_TRUE = {"yes", "y", "true", "t", "1"}
_MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<", "=": "=", "!=": "!="}
_OPPOSITE = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "=": "!=", "!=": "="}


class Span(NamedTuple):
    """The values of a level, from `low` up to `high`; without `high` unless it is closed."""

    low: Fraction | float
    high: Fraction | float
    is_closed: bool


def read_rules(rules: Sequence[str], features: Sequence[Feature]) -> tuple[StructuralZero, ...]:
    """Return the combinations that rules forbid.

    Parameters
    ----------
    rules
        Each is a comparison of two columns (``start <= end``), or of the form ``A implies B`` with
        conditions on one column each: ``age >= 50``, ``job = farmer``, or a column of yes and no.
    features
        The declared features.

    Examples
    --------
    >>> retired, age = Feature("retired", ["no", "yes"]), Feature("age", bins=[0, 40, 50, 120])
    >>> read_rules(["retired implies age >= 50"], [retired, age])[0].to_json()
    {'age': ['0 to <40', '40 to <50'], 'retired': ['yes']}
    """
    by_name = {feature.name: feature for feature in features}
    zeros: list[StructuralZero] = []
    for rule in texts(rules, "rules", '["retired implies age >= 50"]'):
        first, separator, second = rule.partition(" implies ")
        found_zeros = (
            _forbid_implication(rule, first.strip(), second.strip(), by_name)
            if separator
            else _forbid_comparison(rule, by_name)
        )
        if not found_zeros:
            raise InputError(f"the rule {rule!r} forbids nothing: correct it, or leave it out")
        zeros += found_zeros
    return tuple(zeros)


def _forbid_implication(
    rule: str, first: str, second: str, features: Mapping[str, Feature]
) -> list[StructuralZero]:
    """Whoever meets the first condition for certain, and the second for certain not."""
    if_column, if_levels = _find_levels(rule, first, features, opposite=False)
    then_column, then_levels = _find_levels(rule, second, features, opposite=True)
    if if_column == then_column:
        raise InputError(f"the rule {rule!r} names one column twice: leave such levels out")
    if not if_levels or not then_levels:
        return []
    pattern = {if_column: if_levels, then_column: then_levels}
    return [StructuralZero.from_pattern(pattern)]


def _forbid_comparison(rule: str, features: Mapping[str, Feature]) -> list[StructuralZero]:
    """For each level of the first column the levels of the second that break a comparison."""
    parts = _COMPARISON.match(rule.strip())
    if parts is None:
        raise InputError(
            f"the rule {rule!r} is not understood: write A implies B, or compare two columns such"
            " as start <= end"
        )
    if parts[1] == parts[3]:
        raise InputError(f"the rule {rule!r} compares a column with itself: leave it out")
    left, right = (_find_feature(rule, parts[place], features) for place in (1, 3))
    sign = _OPPOSITE["=" if parts[2] == "==" else parts[2]]
    lefts, rights = _find_spans(rule, left), _find_spans(rule, right)
    zeros = []
    for level, span in zip(left.levels, lefts, strict=True):
        broken = [
            other
            for other, beyond in zip(right.levels, rights, strict=True)
            if span is not None and beyond is not None and _is_certain(span, sign, beyond)
        ]
        if broken:
            zeros.append(StructuralZero.from_pattern({left.name: level, right.name: broken}))
    return zeros


def _find_levels(
    rule: str, condition: str, features: Mapping[str, Feature], opposite: bool
) -> tuple[str, list[str]]:
    """The column of a condition, and the levels that meet it for certain (or its opposite)."""
    if condition in features:
        feature = features[condition]
        true = [level for level in feature.levels if level.lower() in _TRUE]
        if len(feature.levels) != 2 or len(true) != 1:
            raise InputError(
                f"the rule {rule!r} takes {condition!r} for a column of yes and no, which it is"
                f" not: compare it with a level, such as {condition} = {feature.levels[0]}"
            )
        return condition, [level for level in feature.levels if (level in true) != opposite]
    parts = _COMPARISON.match(condition)
    if parts is None:
        raise InputError(f"the rule {rule!r} names no declared column in {condition!r}")
    column, value = parts[1], parts[3].strip("'\"")
    feature = _find_feature(rule, column, features)
    sign = "=" if parts[2] == "==" else parts[2]
    sign = _OPPOSITE[sign] if opposite else sign
    if sign in ("=", "!=") and value in feature.levels:
        return column, [level for level in feature.levels if (level == value) == (sign == "=")]
    try:
        number = Fraction(value)
    except ValueError:
        raise InputError(f"the rule {rule!r} compares {column!r} with no level of it") from None
    point = Span(number, number, True)
    spans = zip(feature.levels, _find_spans(rule, feature), strict=True)
    return column, [
        level for level, span in spans if span is not None and _is_certain(span, sign, point)
    ]


def _find_feature(rule: str, column: str, features: Mapping[str, Feature]) -> Feature:
    if column not in features:
        raise InputError(
            f"the rule {rule!r} names {column!r}, which is no column with declared levels or bins:"
            " declare them, or write A implies B for a condition on one column"
        )
    return features[column]


def _find_spans(rule: str, feature: Feature) -> list[Span | None]:
    """The values of each level; None for a level that is no number, such as that of missing
    values.
    """
    if feature.bins is not None:
        edges = feature.bins
        spans: list[Span | None] = []
        for low, high in itertools.pairwise(edges):
            # Only the last bin holds its upper edge.
            spans.append(Span(low, high, high == edges[-1]))
        return spans + [None] * (len(feature.levels) - len(spans))
    numbers: list[Span | None] = []
    for level in feature.levels:
        try:
            numbers.append(Span(Fraction(level), Fraction(level), True))
        except ValueError:
            numbers.append(None)
    if not any(numbers):
        raise InputError(
            f"the rule {rule!r} compares {feature.name!r}, whose levels are not numbers"
        )
    return numbers


def _is_certain(one: Span, sign: str, other: Span) -> bool:
    """Whether a comparison holds for all values of two levels."""
    if sign in (">", ">="):
        return _is_certain(other, _MIRRORED[sign], one)
    if sign == "<":
        return one.high < other.low or (one.high == other.low and not one.is_closed)
    if sign == "<=":
        return one.high <= other.low
    if sign == "=":
        return one.low == one.high == other.low == other.high
    return _is_certain(one, "<", other) or _is_certain(other, "<", one)
