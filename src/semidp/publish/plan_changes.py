"""Changes to a plan before it runs: the division of its budget, the budget that meets its target
errors, the kind of statistic that answers a request best, and missing outcomes.

Who answered is exact or private, next to exact group sizes. *Exact.* Who answered becomes a feature
of the exact statistic, and a(t) is that of the counts with it. The groups (group, yes) hold those
who answered, with exact sizes; they alone are measured and published. A record in a group (group,
no) is read as the lower bound, which is never published. *Private.* The number who answered and the
sum of their values are measured together (`statistics.answered`, which proves the norms); a(t) is
that of the group sizes. Brute force: `tests/grouped/test_answered.py` (private),
`tests/grouped/test_missing_outcomes.py` (exact, balls), `tests/grouped/test_exact_answers.py`
(exact, exchanges).
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from attrs import evolve

from semidp.errors import DataError, InputError, Refused, did_you_mean
from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import ANSWERS, answered_column
from semidp.promise.sensitivity.products import NotTogether
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.selection import AUTO
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
from semidp.publish.statistics.protocol.requests import Request, require_budget
from semidp.publish.statistics.protocol.statistic import OtherAnswer, alternatives, of_answers

_LARGEST_MU = 100  # beyond it nobody is protected
# beyond it counts plus noise may not fit in 63 bits, and no mechanism draws it
_LARGEST_ERROR = 2**48


def exact_margins(plan: Plan) -> tuple[Margin, ...]:
    """Return what a plan publishes exactly: its invariants, and groups and factors that they do not
    cover.

    >>> import semidp
    >>> mean = semidp.publish.GroupRequest("mean", semidp.Outcome("score", 0, 1, 10), [["school"]])
    >>> exact_margins(Plan([mean], invariants=["year"]))
    (Margin('year'), Margin('school'))
    """
    margins = list(plan.invariants)
    needed = dict.fromkeys(margin for request in plan.requests for margin in request.exact_margins)
    margins += [margin for margin in needed if not margin.is_within_any(plan.invariants)]
    return tuple(margins)


def divide_budget(
    plan: Plan,
    budget: Budget | None,
    shares: Mapping[str, Fraction] | None = None,
) -> Plan:
    """Return a plan whose requests without a budget divide one: tables share one part, others
    get one each.

    Groups have exact counts, so each set of groups (and the factors of a regression) that no
    invariant covers is published exactly too.

    Parameters
    ----------
    plan
        The plan, without budgets.
    budget
        The total budget; none if tables have target errors.
    shares
        The part of ``"tables"`` and of each other request by its name, in proportion
        (default: 1 each).

    Examples
    --------
    >>> import semidp
    >>> mean = semidp.publish.GroupRequest("mean", semidp.Outcome("score", 0, 1, 10), [["school"]])
    >>> plan = divide_budget(Plan([semidp.publish.TableRequest(["school"]), mean]), Budget.zcdp(1))
    >>> from semidp.promise.exact import plain
    >>> [plain(request.budget.rho) for request in plan.requests], plan.invariants
    (['0.5', '0.5'], (Margin('school'),))
    """
    plan = evolve(plan, invariants=exact_margins(plan))
    if budget is None:
        return plan
    parts = dict.fromkeys((request.share_name for request in plan.requests), Fraction(1))
    for name, share in (shares or {}).items():
        if len(parts) < 2:
            all_of_it = ", ".join(parts)
            raise InputError(
                f"⟨share⟩ divides a budget, and {all_of_it} has all of it here: leave it"
                " out, or ask for more"
            )
        if name not in parts:
            meant = did_you_mean(name, list(parts))
            raise InputError(
                f"⟨share⟩ names {name!r}, which takes no part{meant}: {', '.join(parts)} do"
            )
        parts[name] = share
    whole = sum(parts.values())
    requests: list[Request] = []
    for request in plan.requests:
        requests += request.dividing(budget.share(parts[request.share_name] / whole))
    return evolve(plan, requests=requests)


def solve_target_errors(plan: Plan, scope: Scope, by_parts: bool = False) -> Plan:
    """Return a plan whose tables without a budget share one μ: the least that meets their target
    errors.

    The largest standard error of a table falls like 1/μ except for the rounding of the noise, so μ
    is found in a few steps; it is rounded up to four digits. Returns the plan itself if no table
    has a target. By parts, tables may be measured differently than in one piece.

    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], target_error=5)], ["sex", "region"]
    ... )
    >>> semidp.prepare(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]}).plan.requests[
    ...     0
    ... ].budget.mu
    Fraction(2001, 10000)
    """
    open_requests = [request for request in plan.requests if request.budget is None]
    if not any(request.has_targets for request in open_requests):
        return plan
    if not all(request.has_targets for request in open_requests):
        raise InputError(
            "a target error finds the budget of tables: give the other statistics budgets of"
            " their own"
        )
    too_large = Refused(
        "noise for this target error would not fit in 63 bits: ask for a smaller error"
    )
    if max(request.largest_target for request in open_requests) > _LARGEST_ERROR:
        raise too_large
    # A space does not depend on μ: it is derived once for all μ that are tried.
    spaces = []
    for request in open_requests:
        ready = request.without_targets().with_budget(Budget.gdp(1))
        spaces.append(ready.parts_space(scope) if by_parts else ready.space(scope))

    def excess(mu: Fraction) -> float:
        """The factor by which the worst error exceeds its target."""
        ratios = []
        for request, space in zip(open_requests, spaces, strict=True):
            try:
                ready = request.without_targets().with_budget(Budget.gdp(mu))
                mechanism = ready.parts_calibrate(space) if by_parts else ready.calibrate(space)
            except Refused:
                # at 1, the first that is tried, it was not refused: what is new is the size of the
                # noise
                if mu < 1:
                    raise too_large from None
                raise
            ratios.append(request.excess(mechanism))
        return max(ratios)

    closed = evolve(plan, requests=[request.without_targets() for request in plan.requests])
    return closed.with_budget(Budget.gdp(_least(excess)))


def calibrate_separately(plan: Plan, scope: Scope) -> tuple[Plan, Scope]:
    """Return a plan whose tables can be measured: those that no proof covers together are measured
    separately, with a warning.

    This concerns structural zeros and joint margins with empty cells. Each table gets an equal part
    of the budget.
    """
    requests: list[Request] = []
    warnings = list(scope.warnings)
    for request in plan.requests:
        try:
            if len(request.tables) > 1:  # a table alone is measured in any case
                request.space(scope)
        except NotTogether as reason:
            requests += request.as_separate_requests()
            warnings.append(
                "The tables were measured one by one, each with an even part of the budget,"
                f" because {str(reason).partition(':')[0]}; they agree on exact totals only, and"
                " weights do not count."
            )
        else:
            requests.append(request)
    if len(warnings) == len(scope.warnings):
        return plan, scope
    return evolve(plan, requests=requests), evolve(scope, warnings=tuple(warnings))


def _least(excess: Callable[[Fraction], float]) -> Fraction:
    """Return the least number, to four digits, at which a decreasing excess is at most 1."""
    short, enough, mu = Fraction(0), None, Fraction(1)
    while enough is None or enough > short * Fraction(1001, 1000):
        over = excess(mu)
        if over > 1:
            short = mu
        else:
            enough = mu
        if over == 0 and not short:  # nothing needs noise
            return mu
        # Errors fall like 1/μ, so this step all but hits the target; halving is for what
        # rounding of the noise leaves.
        mu = _four_digits(mu * max(Fraction(over), Fraction(1, 1000)))
        if enough is None and short >= _LARGEST_MU:
            raise Refused(
                "no budget that protects anybody meets this target error: ask for a larger error"
            )
        if enough is None:
            mu = min(mu, Fraction(_LARGEST_MU))
        elif not short < mu < enough:
            mu = _four_digits((short + enough) / 2)
            if mu >= enough:
                break
    return enough


def _four_digits(number: Fraction) -> Fraction:
    """Round up to four significant digits.

    >>> _four_digits(Fraction(1, 3)), _four_digits(Fraction(123456))
    (Fraction(1667, 5000), Fraction(123500, 1))
    """
    step = Fraction(10) ** (math.floor(math.log10(number)) - 3)
    return math.ceil(number / step) * step


SpaceOf = Callable[[Request, Scope], QuerySpace]


def best_answered(
    plan: Plan, scope: Scope, space: SpaceOf = lambda request, scope: request.space(scope)
) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan in which each request goes to the kind of statistic that answers it best, and a
    sentence for each change.

    A request says which kinds may answer it (`Request.answering_kind`). The name and the budget
    stay the same.

    Parameters
    ----------
    plan, scope
        What is asked for, and what is public.
    space
        Where the query space of a request comes from.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.QuantileRequest(
    ...     semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([evolve(request, level="0.95")], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "b"] * 50, "days": [7, 4, 2, 1] * 25})
    >>> [(result.list_key, result.name) for result in release.results]
    [('distributions', 'median-days')]
    """
    requests: list[Request] = []
    reasons: list[str] = []
    for request in plan.requests:
        if request.answering_kind == request.key:
            requests.append(request)
            continue
        # Kinds are compared at the same budget: a request without one is refused.
        require_budget(request)
        mechanism = request.calibrate(space(request, scope))
        answer = request
        for alternative in alternatives(request, mechanism):
            if request.answering_kind == AUTO:
                reasons.append(f"{request.name}: {alternative.reason}")
            if _prefers_alternative(request, alternative):
                answer = alternative.request
                break
        requests.append(answer)
    if requests == list(plan.requests):
        return plan, tuple(reasons)
    return evolve(plan, requests=requests), tuple(reasons)


def _prefers_alternative(request: Request, alternative: OtherAnswer) -> bool:
    """Whether another kind answers a request: it was named, or it is better and that decides."""
    if request.answering_kind == AUTO:
        return alternative.better
    return alternative.request.key == request.answering_kind


CHOICES = ("refuse", "private", "exact")
"""The choices for an outcome with missing values: refuse it, or treat who answered as private or
exact."""


def with_missing(plan: Plan, choices: Mapping[str, str]) -> Plan:
    """Return a plan with some outcomes restricted to those who answered.

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
        source, choice = error.source, choices[error.source]
        raise InputError(
            f"missing values of {source!r} cannot be {choice} in {error.request.name}: give"
            f" {_write_choices(plan, source)} in place of ⟨missing {source}={choice}⟩"
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
    _refuse_unknown(choices, used, plan)
    answers = [name for name, how in readings.items() if how == ANSWERED]
    declared = {feature.name for feature in plan.features}
    features = [Feature(name, ANSWERS) for name in answers if name not in declared]
    changed = evolve(
        plan, requests=requests, features=[*plan.features, *features], read_as=readings
    )
    return changed.with_values_read()


@contextlib.contextmanager
def advise_on_missing(plan: Plan) -> Iterator[None]:
    """Refuse missing values of an outcome; name the choices that suit every request."""
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


def _refuse_unknown(choices: Mapping[str, str], used: set[str], plan: Plan) -> None:
    for column, choice in choices.items():
        if choice not in CHOICES:
            raise InputError(
                f"missing values of {column!r} are refuse, private or exact, not {choice!r}; to"
                f" drop their records, give ⟨where {quote_column(column)} IS NOT NULL⟩ instead"
            )
        if column not in used:
            columns = sorted(used - {""})
            advice = ""
            if column in plan.names:
                advice = f" (for a feature, ⟨null_level {column}=unknown⟩ counts missing values)"
            raise InputError(
                f"{column!r} is not the private column of a statistic"
                f"{did_you_mean(column, columns)}: leave ⟨missing {column}={choice}⟩ out{advice}"
            )
