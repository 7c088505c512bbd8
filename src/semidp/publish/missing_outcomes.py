"""Outcomes that some records lack, beside exact group sizes: who answered is exact or private.

*Exact.* Who answered becomes a feature of the exact statistic, and a(t) is that of the counts with
it. The groups (group, yes) hold those who answered, with exact sizes; they alone are measured and
published. A record of a group (group, no) is read as the lower bound, which nobody sees.

*Private.* The number who answered and the sum of their values are measured together
(`statistics.answered`, which proves the norms); a(t) is that of the group sizes.

Brute force: `tests/grouped/test_answered.py` (private), `tests/grouped/test_missing_outcomes.py`
(exact, balls), `tests/grouped/test_exact_answers.py` (exact, exchanges).
"""

import contextlib
from collections.abc import Iterator, Mapping

from attrs import evolve

from semidp.errors import DataError, InputError, did_you_mean
from semidp.promise.exact import plain
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import ANSWERS, answered_column
from semidp.publish.plan import Plan
from semidp.publish.sources.conditions import quote_column
from semidp.publish.sources.opening import MISSING
from semidp.publish.sources.readings import (
    ANSWERED,
    EQUAL,
    EQUAL_OR_MISSING,
    KINDS,
    MISSING_AS,
    NUMBERS,
    both_readings,
)
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.statistic import of_answers

CHOICES = ("refuse", "private", "exact")
"""What is done about an outcome with missing values: it is refused, or who answered is private or
exact."""


def with_missing(plan: Plan, choices: Mapping[str, str]) -> Plan:
    """Return a plan whose statistics of some outcomes are of those who answered.

    Parameters
    ----------
    plan
        What to publish; the outcomes are those of statistics by groups.
    choices
        For columns of outcomes one of `CHOICES`.

    Examples
    --------
    >>> import semidp
    >>> plan = with_missing(
    ...     semidp.Plan([semidp.mean("pay", by="ward", bounds=(0, 9))]), {"pay": "exact"}
    ... )
    >>> plan.requests[0].by, plan.read_as
    ((Margin('ward', 'pay answered'),), (('pay', 'missing as 0'), ('pay answered', 'answered')))
    >>> plan = with_missing(
    ...     semidp.Plan([semidp.mean("pay", by="ward", bounds=(0, 9))]), {"pay": "private"}
    ... )
    >>> plan.requests[0].key, plan.read_as
    ('answered', (('pay', 'missing as 0'), ('pay answered', 'answered as 1')))
    """
    try:
        return _apply_choices(plan, choices)
    except _Unsuited as error:
        advice = _write_choices(plan, error.source)
        raise InputError(
            f"missing values of {error.source!r} cannot be {choices[error.source]} in"
            f" {error.request.name}: give {advice}"
        ) from None


class _Unsuited(Exception):
    """A choice about missing values that a request does not know."""

    def __init__(self, request: Request, source: str) -> None:
        super().__init__()
        self.request, self.source = request, source


def _apply_choices(plan: Plan, choices: Mapping[str, str]) -> Plan:
    readings = dict(plan.read_as)
    requests: list[Request] = []
    used = set()
    for request in plan.requests:
        column = request.private_columns[0] if request.private_columns else ""
        source = _find_source_column(column, readings)
        choice = choices.get(source)
        used.add(source)
        if choice is None or choice == "refuse":
            requests.append(request)
            continue
        declared_reading = dict(plan.read_as).get(source)
        if declared_reading is not None and declared_reading not in (*NUMBERS, *KINDS):
            raise InputError(
                f"{source!r} is read in a way of its own, and its missing values in another:"
                " keep one"
            )
        if choice == "private":
            # Whether ok is Y is read otherwise where ok may be missing.
            if readings.get(column) == EQUAL:
                del readings[column]
            requests.append(_private(request, source))
        else:
            requests.append(_exact(request, column, source, readings))
    _refuse_unknown(choices, used)
    answers = [name for name, how in readings.items() if how == ANSWERED]
    declared = {feature.name for feature in plan.features}
    features = [Feature(name, ANSWERS) for name in answers if name not in declared]
    changed = evolve(
        plan, requests=requests, features=[*plan.features, *features], read_as=readings
    )
    return changed.with_values_read()


@contextlib.contextmanager
def advise_on_missing(plan: Plan) -> Iterator[None]:
    """Refuse missing values of an outcome with the choices that suit every request about it."""
    try:
        yield
    except DataError as error:
        # Quantiles read an outcome as a feature of its values, which may have a null level.
        is_outcome = bool(error.names) and error.names[0] in plan.outcomes
        if error.needs not in (MISSING, "null level") or not is_outcome:
            raise
        column = _find_source_column(error.names[0], dict(plan.read_as))
        raise DataError(
            f"the outcome {column!r} has missing values: give {_write_choices(plan, column)}, or"
            " fill them in"
        ) from None


def _write_choices(plan: Plan, column: str) -> str:
    """Return what may be chosen about missing values of a column in a plan."""
    choices = []
    for way in CHOICES[1:]:
        with contextlib.suppress(InputError, _Unsuited):
            _apply_choices(plan, {column: way})
            choices.append(f"⟨missing {column}={way}⟩")
    return " or ".join([*choices, f"⟨where {quote_column(column)} IS NOT NULL⟩"])


def _find_source_column(column: str, readings: Mapping[str, str]) -> str:
    """Return the column of the data behind an outcome: the proportion of ok=Y is about ok."""
    is_level = readings.get(column) == EQUAL or "=" in column
    return column.partition("=")[0] if is_level else column


def _private(request: Request, source: str) -> Request:
    """Return the statistic of those who answered, where who answered is private."""
    answers = of_answers(request)
    if answers is None:
        raise _Unsuited(request, source)
    return answers


def _exact(request: Request, column: str, source: str, readings: dict[str, str]) -> Request:
    """Return the statistic by groups of those who answered, and note how columns are read for
    it.
    """
    answered = answered_column(source)
    among = request.of_answered(answered)
    if among is None:
        raise _Unsuited(request, source)
    if column != source:
        readings[column] = EQUAL_OR_MISSING
    else:
        assert request.missing_as is not None, "what can be split by answers has bounds"
        stands_in = f"{MISSING_AS}{plain(request.missing_as)}"
        reading = readings.get(column, "")
        if MISSING_AS in reading and not reading.endswith(stands_in):
            raise InputError(
                f"{column!r} has two lower bounds, and one must stand for its missing values:"
                " keep one"
            )
        readings[column] = both_readings(column, reading or None, stands_in)
    readings[answered] = ANSWERED
    return among


def _refuse_unknown(choices: Mapping[str, str], used: set[str]) -> None:
    for column, choice in choices.items():
        if choice not in CHOICES:
            raise InputError(
                f"missing values of {column!r} are refuse, private or exact, not {choice!r}"
            )
        if column not in used:
            columns = sorted(used - {""})
            raise InputError(
                f"nothing of {column!r} is published by groups{did_you_mean(column, columns)}:"
                " missing values are those of a private outcome"
            )
