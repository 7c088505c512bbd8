"""The common parts of requests about a private outcome: the outcome, its groups, their entries
in a plan file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, cast

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import exact, format_value, plain
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.outcome import ALL_RECORDS, GRID, Outcome, fine_steps
from semidp.promise.sensitivity.outcome_spaces import GroupedSpace, measured_rows
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.texts import error_text, scale_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.readings import EVERYONE
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.statistics.protocol.requests import (
    BUDGET_KEYS,
    NO_RECORD,
    Forecast,
    OwnBudget,
    Request,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.publish.written_values import text, texts


class Statistic(StrEnum):
    """A statistic of an outcome in each group.

    >>> [str(statistic) for statistic in Statistic]
    ['mean', 'sum', 'proportion']
    """

    mean = "mean"
    sum = "sum"
    proportion = "proportion"


def statistic_from(value: Statistic | str) -> Statistic:
    return member(Statistic, value, "the statistic")


def checked_outcome(value: Outcome) -> Outcome:
    if not isinstance(value, Outcome):
        raise InputError(f"an outcome is Outcome(column, lower, upper, steps), not {value!r}")
    return value


def checked_confidence(value: Confidence) -> Confidence:
    if not isinstance(value, Confidence):
        raise InputError(f"the intervals of a request are Confidence(level), not {value!r}")
    return value


def optional_text(value: str | None) -> str | None:
    return None if value is None else text(value, "the column that says who answered")


Groups = str | Margin | Sequence[str] | Sequence[Margin | Sequence[str]] | None
"""The groups of a statistic: names are crossed, a list of lists holds several sets of groups, and
None is everyone together."""


def group_margins(value: Groups) -> tuple[Margin, ...]:
    """Return the sets of groups: names are crossed, a list of lists holds several sets, and no
    names mean everyone together.

    >>> group_margins(["ward", "sex"]), group_margins([["ward"], ["sex"]]), group_margins(None)
    ((Margin('ward', 'sex'),), (Margin('ward'), Margin('sex')), (Margin('all records'),))
    >>> group_margins(["ward", ["ward", "sex"]])
    Traceback (most recent call last):
    semidp.errors.InputError: groups are names that are crossed, such as ["ward", "sex"], or several
    sets of them, such as [["ward"], ["ward", "sex"]], not a mixture of both
    """
    if value is None or isinstance(value, (str, Margin)):
        return (Margin(ALL_RECORDS) if not value else Margin.from_names(value),)
    if not isinstance(value, (list, tuple)):
        raise InputError(f'groups are names such as ["ward", "sex"], not {format_value(value)}')
    names = [isinstance(part, str) for part in value]
    if not value or all(names):
        return (Margin(*value) if value else Margin(ALL_RECORDS),)
    if any(names):
        raise InputError(
            'groups are names that are crossed, such as ["ward", "sex"], or several sets of them,'
            ' such as [["ward"], ["ward", "sex"]], not a mixture of both'
        )
    return tuple(Margin.from_names(group) for group in value)


def interaction_margins(value: Iterable[Margin | Iterable[str]]) -> tuple[Margin, ...]:
    if isinstance(value, str):
        raise InputError(
            f'interactions are a list such as [["arm", "sex"]], not {format_value(value)}'
        )
    return tuple(Margin.from_names(names) for names in value)


SUM_STEPS = 1_000_000
"""The most steps of a sum's grid by default: they cost nothing, and rounding to them moves a
mean far less than noise does."""


class OutcomeRequest(OwnBudget):
    """The base of requests about a private outcome: zeros and ones need no bounds."""

    __slots__ = ()

    _several_keys: ClassVar[Mapping[str, Sequence[str]]] = {
        "budget": BUDGET_KEYS,
        "outcome": ("column", "bounds", "grid", "step"),
        "confidence": Confidence.keys,
    }
    trusted_fields: ClassVar[Mapping[str, str]] = {
        "which column an outcome was read from": "column"
    }

    outcome: Outcome

    @property
    def binary(self) -> bool:
        """Whether the request implies an outcome of zeros and ones."""
        return False

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The column of the outcome."""
        return (self.outcome.column,)

    @property
    def missing_as(self) -> Fraction | None:
        """The lower bound, which adds nothing to a sum of steps."""
        return self.outcome.lower

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Confidence):
            return value.to_json()
        if not isinstance(value, Outcome):
            return super()._entry(name, value)
        bounds = {"bounds": [plain(value.lower), plain(value.upper)], "grid": value.steps}
        return {"column": value.column, **({} if self.binary else bounds)}

    @classmethod
    def usual_steps(cls, lower: Fraction, upper: Fraction) -> int:
        """Return the default number of steps between two bounds: a fine grid for sums."""
        return fine_steps(lower, upper, SUM_STEPS)

    @classmethod
    def _unit_steps(cls, units: int) -> int:
        """Return the steps between bounds that are so many units of the data apart."""
        return max(units, fine_steps(Fraction(0), Fraction(units), SUM_STEPS))

    @classmethod
    def declare_outcome(
        cls, column: str, bounds: Sequence[Any] | None, grid: Any = None, step: Any = None
    ) -> Outcome:
        """Return an outcome from its declared bounds, and the steps of its grid or the unit of the
        data.

        If values are distinguished, a unit is the step of the grid. Sums have a finer grid that
        contains its multiples.
        """
        lower, upper = _declared_bounds(column, bounds)
        if grid is not None and step is not None:
            raise InputError(
                f"the grid of {column!r} is given twice, by its number of steps and by its step:"
                " give one of them"
            )
        if step is not None:
            units = _units(column, lower, upper, step)
            return Outcome(column, lower, upper, cls._unit_steps(units))
        if grid is None:
            return Outcome(column, lower, upper, cls.usual_steps(lower, upper))
        steps = exact(grid, f"the grid of {column!r}")
        if steps.denominator != 1:
            raise InputError(
                f"the grid of {column!r} must be a whole number of steps",
                needs="grid",
                names=(column,),
            )
        return Outcome(column, lower, upper, int(steps))

    @classmethod
    def _asks_binary(cls, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of a plan is about zeros and ones, which need no bounds."""
        return False

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        fields = super()._fields(value)
        column = text(value["column"], f"the column of a {cls.key}")
        if cls._asks_binary(value) and "bounds" not in value:
            fields["outcome"] = binary_outcome(column)
        else:
            fields["outcome"] = cls.declare_outcome(
                column, value.get("bounds"), value.get("grid"), value.get("step")
            )
        if "interactions" in fields:
            fields["interactions"] = [
                texts(part, "an interaction")
                for part in _require_list(fields["interactions"], "interactions")
            ]
        return (
            {**fields, "confidence": Confidence.from_json(value)}
            if "confidence" in cls._written()
            else fields
        )


def _require_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InputError(f'{what} is a list such as [["sex", "region"]], not {format_value(value)}')
    return list(value)


class GroupedRequest(OutcomeRequest):
    """The base of statistics and quantiles of an outcome by groups."""

    __slots__ = ()

    _needs: ClassVar[Mapping[str, str]] = {"column": '"…"'}

    by: tuple[Margin, ...]
    name: str
    answered: str | None = None
    """The feature of every set of groups that says who has a value: groups of others are not
    measured."""

    @property
    def needed_readings(self) -> dict[str, str]:
        """How the group of all records is read, which is not a column of the data."""
        return {ALL_RECORDS: EVERYONE} if ALL_RECORDS in self.features else {}

    @property
    def asked_quantiles(self) -> tuple[Fraction, ...]:
        """The quantiles, if it asks for nothing else; none for other statistics."""
        return ()

    @property
    def quantile_level(self) -> Fraction | None:
        """The level of the intervals of its quantiles; None without them."""
        return None

    def rank_reach(self, mechanism: Mechanism) -> float | None:
        """Return how many ranks the interval of a quantile would reach to each side; None without
        intervals.
        """
        return None

    def steps_off(self, mechanism: Mechanism) -> float | None:
        """Return the mean error of its quantiles, in steps, in an `EvenGroup`; None without
        quantiles.
        """
        return None

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """The groups: their counts are published exactly."""
        return self.by

    def read_rows(
        self, space: QuerySpace, read: Callable[[Sequence[str]], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Return what is read of the measured groups, set after set, one row per group."""
        assert isinstance(space, GroupedSpace)
        return np.concatenate([measured_rows(space, group, read(group.names)) for group in self.by])

    def of_answered(self, column: str) -> Request:
        """Return the request restricted to those who answered; the column that says who did becomes
        a feature of each set.
        """
        groups = [Margin(*group.names, column) for group in self.by]
        changed: Request = evolve(cast(Any, self), by=groups, answered=column)
        return changed

    @property
    def shown_sets(self) -> tuple[Margin, ...]:
        """The sets of groups as readers see them: without the feature that says who answered."""
        sets = []
        for group in self.by:
            sets.append(Margin(*(name for name in group.names if name != self.answered)))
        return tuple(sets)

    def _check_groups(self, they_need: str, they_are: str) -> None:
        if not self.by or not all(group.names for group in self.by):
            raise InputError(f"{they_need} the features that form them", needs="group")
        if len(set(self.by)) < len(self.by):
            raise InputError("the same groups are named twice: name them once")
        if self.answered is not None:
            self._check_answered(self.answered)
        column = self.outcome.column
        if any(column in group.names for group in self.by):
            raise InputError(
                f"{column!r} forms the groups, so its {they_are} no secret: name another"
            )

    def _check_answered(self, answered: str) -> None:
        for group in self.by:
            if answered not in group.names or len(group.names) < 2:
                raise InputError(
                    f"{answered!r} says who answered: every set of groups has it beside other"
                    " features"
                )

    @property
    def features(self) -> tuple[str, ...]:
        """The features that form the groups."""
        return tuple(name for group in self.by for name in group.names)

    @property
    def file_stems(self) -> tuple[str, ...]:
        """The name of the file of each set of groups, without its ending."""
        if len(self.by) == 1:
            return (self.name,)
        return tuple(f"{self.name}-by-{'-'.join(group.names)}" for group in self.shown_sets)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        return tuple(f"{stem}.csv" for stem in self.file_stems)


class ValuesRequest(GroupedRequest):
    """The base of quantiles and distributions: every step of the grid costs some precision."""

    __slots__ = ()

    most_steps: ClassVar[int] = GRID
    """The default number of steps between bounds that are not whole numbers 10 to 1000
    apart."""

    @classmethod
    def usual_steps(cls, lower: Fraction, upper: Fraction) -> int:
        """Return the default number of steps between two bounds: steps of 1 if these are few."""
        return unit_steps(lower, upper, cls.most_steps)

    @classmethod
    def _unit_steps(cls, units: int) -> int:
        return units


def _statistic_name(request: "StatisticRequest") -> str:
    return f"{request.statistic}-{request.outcome.column}"


@frozen
class StatisticRequest(GroupedRequest):
    """The base of requests for sums, means and proportions by groups: their fields and
    forecasts.
    """

    statistic: Statistic = field(converter=statistic_from)
    outcome: Outcome = field(converter=checked_outcome)
    by: tuple[Margin, ...] = field(default=None, converter=group_margins)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_statistic_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=checked_confidence)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a statistic of groups needs", f"{self.statistic} in them is")
        # Other bounds would make a mean of clipped numbers pass for a share of ones.
        if self.binary and self.outcome != binary_outcome(self.outcome.column):
            raise InputError(
                "a proportion is that of ones among zeros and ones: leave bounds and grid out"
            )

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones: of a proportion."""
        return self.statistic is Statistic.proportion

    @classmethod
    def _asks_binary(cls, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of a plan asks for a proportion."""
        return statistic_from(entry.get("statistic", Statistic.mean)) is Statistic.proportion

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        # A plan file may leave the statistic out, which then is the mean.
        return {"statistic": Statistic.mean, **super()._fields(value)}

    def _forecast_errors(
        self, errors: NDArray[np.float64], measured: Mapping[str, float], further: str = ""
    ) -> tuple[Forecast, ...]:
        """Return how far off its groups would be, and what is measured for them.

        Parameters
        ----------
        errors
            The standard errors of the groups with records.
        measured
            The largest standard error of what is measured, by its name.
        further
            What is said after the errors of the groups.
        """
        ends = () if self.statistic is Statistic.sum else ("largest group", "smallest")
        said, numbers = describe_errors(errors, str(self.statistic), *ends)
        values = {"statistic": str(self.statistic), **measured, **numbers}
        line = f"{said}{further}" if errors.size else NO_RECORD
        return (Forecast(self.name, self.features, line, values),)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Describe the noise of the sums behind it, and the resulting
        error.
        """
        return [sums_line(self.name, mechanism, foreseen)]


def describe_errors(
    errors: NDArray[np.float64], what: str, at_best: str = "", at_worst: str = ""
) -> tuple[str, dict[str, float]]:
    """Describe several standard errors and their range; return the same as plain
    values.

    >>> describe_errors(np.array([0.12, 1.5, 0.41]), "mean", "largest group", "smallest")[0]
    'standard error of each mean 0.12 (largest group) to 1.5 (smallest), median 0.41'
    """
    if not errors.size:
        return "", {}
    numbers = {
        "smallest_standard_error": float(errors.min()),
        "median_standard_error": float(np.median(errors)),
        "largest_standard_error": float(errors.max()),
    }
    low, middle, high = map(error_text, numbers.values())
    if low == high:
        return f"standard error of each {what} {high}", numbers
    first = f"{low} ({at_best})" if at_best else low
    last = f"{high} ({at_worst})" if at_worst else high
    return f"standard error of each {what} {first} to {last}, median {middle}", numbers


def sums_line(name: str, mechanism: Mechanism, foreseen: Sequence[Forecast]) -> str:
    """Describe the noise of the sums behind a statistic, and the resulting
    error.
    """
    # The mechanism counts in steps of the grid; a reader knows the units of the outcome.
    scale = mechanism.scale * float(mechanism.space.unit)
    errors = "; ".join(forecast.line() for forecast in foreseen)
    what = f"{mechanism.name} for the sums behind {name}"
    return f"{what}: scale {scale_text(scale)} in each, {mechanism.claim} claim; {errors}"


def _declared_bounds(column: str, bounds: Sequence[Any] | None) -> tuple[Fraction, Fraction]:
    if (
        bounds is None
        or isinstance(bounds, str)
        or not isinstance(bounds, Sequence)
        or len(bounds) != 2
    ):
        raise InputError(
            f"the outcome {column!r} needs declared bounds, two numbers",
            needs="bounds",
            names=(column,),
        )
    lower, upper = (exact(bound, "a bound of an outcome") for bound in bounds)
    # which refuses bounds that fall, before anything is counted between them
    Outcome(column, lower, upper, 1)
    return lower, upper


def _units(column: str, lower: Fraction, upper: Fraction, step: Any) -> int:
    """Return how many units of the data lie between two bounds."""
    unit = exact(step, f"the step of {column!r}")
    units = (upper - lower) / unit if unit > 0 else Fraction(1, 2)
    if units.denominator != 1:
        raise InputError(
            f"the bounds of {column!r} must be a whole number of steps apart, and"
            f" {plain(upper - lower)} is none of {plain(unit)}: change the step or a bound",
            needs="step",
            names=(column,),
        )
    return int(units)


def binary_outcome(column: str) -> Outcome:
    """Return the outcome whose mean is a proportion: zeros and ones.

    >>> binary_outcome("cured").steps
    1
    """
    return Outcome(column, Fraction(0), Fraction(1), 1)


MOST_UNITS = 1000
"""The largest distance of whole bounds for which steps of 1 are the default."""

_FEWEST_UNITS = 10  # whole bounds closer than this may hold fractions: a rate, a grade


def unit_steps(lower: Fraction, upper: Fraction, most: int = GRID) -> int:
    """Return the steps of a grid whose cost grows with them: steps of 1 between whole bounds from
    10 to 1000 apart, and `fine_steps` otherwise.

    >>> [unit_steps(Fraction(0), Fraction(upper), 100) for upper in (1, 60, 120, 5000)]
    [100, 60, 120, 100]
    """
    apart = upper - lower
    whole = lower.denominator == 1 and apart.denominator == 1
    if whole and _FEWEST_UNITS <= apart <= MOST_UNITS:
        return int(apart)
    return fine_steps(lower, upper, most)
