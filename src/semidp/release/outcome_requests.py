"""What a plan asks of a private outcome by public groups: statistics, regressions and quantiles.

Each is a request like that of a table: its query space, what it reads, what it publishes.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.engines import GRID, Outcome
from semidp.errors import InputError
from semidp.exact import Number, exact, plain
from semidp.grouped import (
    MEDIAN,
    Confidence,
    GroupQuantiles,
    GroupSums,
    LinearFit,
    LogisticFit,
    Moments,
    joint_counts,
    regression_mechanism,
)
from semidp.mechanisms import (
    AUTO,
    Measurement,
    Mechanism,
    exponential_mechanism,
)
from semidp.progress import Progress
from semidp.queries import (
    Coding,
    Design,
    MomentSpace,
    QuerySpace,
    RankSpace,
    SumSpace,
    moment_space,
    query_space,
    rank_space,
    route_values,
    sum_space,
)
from semidp.release.checks import text, texts
from semidp.release.published_outcomes import (
    PublishedGroups,
    PublishedQuantiles,
    PublishedRegression,
    published_groups,
    published_quantiles,
    published_regression,
)
from semidp.release.requests import (
    OwnBudget,
    TableRequest,
    budget_of,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.release.scope import Reader, Scope
from semidp.spaces import Margin
from semidp.tradeoff import Budget


class Statistic(StrEnum):
    """What is published of an outcome in each group.

    >>> [str(statistic) for statistic in Statistic]
    ['mean', 'sum', 'proportion']
    """

    mean = "mean"
    sum = "sum"
    proportion = "proportion"


class Model(StrEnum):
    """Which regression is fitted.

    >>> [str(model) for model in Model]
    ['linear', 'logistic']
    """

    linear = "linear"
    logistic = "logistic"


def _statistic_name(request: "GroupRequest") -> str:
    return f"{request.statistic}-{request.outcome.column}"


def _regression_name(request: "RegressionRequest") -> str:
    return f"regression-{request.outcome.column}"


def _quantile_name(request: "QuantileRequest") -> str:
    kind = "median" if request.probabilities == (MEDIAN,) else "quantiles"
    return f"{kind}-{request.outcome.column}"


def _probabilities(value: Iterable[Number]) -> tuple[Fraction, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"quantiles are a list such as [0.25, 0.5, 0.75], not {value!r}")
    found = tuple(exact(q, "a quantile") for q in value)
    if not found or not all(0 < q < 1 for q in found) or list(found) != sorted(set(found)):
        raise InputError("quantiles are numbers between 0 and 1, each named once and in growing order")
    return found


def _optional_level(value: Number | None) -> Fraction | None:
    return None if value is None else Confidence(value).level


def _quantile_sampling(value: bool) -> bool:
    return Confidence(sampling=value).sampling


def _factors(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the factors of a regression")


def _statistic(value: Statistic | str) -> Statistic:
    return member(Statistic, value, "the statistic")


def _model(value: Model | str) -> Model:
    return member(Model, value, "the model")


def _coding(value: Coding | str) -> Coding:
    return member(Coding, value, "the coding")


def _outcome(value: Outcome) -> Outcome:
    if not isinstance(value, Outcome):
        raise InputError(f"an outcome is Outcome(column, lower, upper, steps), not {value!r}")
    return value


def _confidence(value: Confidence) -> Confidence:
    if not isinstance(value, Confidence):
        raise InputError(f"the intervals of a request are Confidence(level), not {value!r}")
    return value


def _groups(value: Iterable[Margin | str | Iterable[str]]) -> tuple[Margin, ...]:
    if isinstance(value, str):
        raise InputError(f'groups are a list of sets of features, such as [["{value}"]], not {value!r}')
    return tuple(Margin.of(group) for group in value)


class _OfOutcome(OwnBudget):
    """What requests about a private outcome share: zeros and ones need no bounds."""

    __slots__ = ()

    outcome: Outcome

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones by what is asked for."""
        return False

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Outcome):
            return super()._entry(name, value)
        bounds = {"bounds": [plain(value.lower), plain(value.upper)], "grid": value.steps}
        return {"column": value.column, **({} if self.binary else bounds)}

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        usual = {"statistic": Statistic.mean} if "statistic" in cls._written else {}
        found = {**usual, **super()._fields(value)}
        binary = _statistic(found.get("statistic", "mean")) is Statistic.proportion
        binary = binary or _model(found.get("model", "linear")) is Model.logistic
        column = text(value["column"], f"the column of a {cls.key}")
        if binary and "bounds" not in value:
            found["outcome"] = proportion_of(column)
        else:
            found["outcome"] = outcome_from(column, value.get("bounds"), value.get("grid", GRID))
        if "by" in found:
            found["by"] = [[part] if isinstance(part, str) else texts(part, "a set of groups") for part in found["by"]]
        if "interactions" in found:
            found["interactions"] = [texts(part, "an interaction") for part in found["interactions"]]
        return {**found, "confidence": Confidence.from_json(value)} if "confidence" in cls._written else found


class _ByGroups(_OfOutcome):
    """What statistics and quantiles of an outcome by groups share."""

    __slots__ = ()

    _needs: ClassVar[Mapping[str, str]] = {"column": '"…"', "by": '[["…"], …]'}

    by: tuple[Margin, ...]
    name: str

    def _check_groups(self, they_need: str, they_are: str) -> None:
        if not self.by or not all(group.names for group in self.by):
            raise InputError(f"{they_need} the features that form them", needs="group")
        if len(set(self.by)) < len(self.by):
            raise InputError("the same groups are named twice: name them once")
        column = self.outcome.column
        if any(column in group.names for group in self.by):
            raise InputError(f"{column!r} forms the groups, so its {they_are} no secret: name another")

    @property
    def features(self) -> tuple[str, ...]:
        """The features that form the groups."""
        return tuple(name for group in self.by for name in group.names)

    @property
    def _stems(self) -> tuple[str, ...]:
        """What the file of each set of groups is called, but for its ending."""
        if len(self.by) == 1:
            return (self.name,)
        return tuple(f"{self.name}-by-{'-'.join(group.names)}" for group in self.by)


@frozen
class GroupRequest(_ByGroups):
    """Sums, means or proportions of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    statistic
        What is published.
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a proportion.
    by
        The groups, each a set of features; several sets are measured together. An invariant must publish the counts of
        each.
    budget, mechanism, name
        As for a table. The name is that of the statistic and the column unless given.
    confidence
        The intervals beside the estimates.

    Examples
    --------
    >>> GroupRequest(Statistic.mean, Outcome("score", 0, 100, steps=100), [["school"]], Budget.gdp(1)).name
    'mean-score'
    """

    key: ClassVar[str] = "group"
    _written: ClassVar[tuple[str, ...]] = ("name", "statistic", "outcome", "by", "budget", "mechanism", "confidence")

    statistic: Statistic = field(converter=_statistic)
    outcome: Outcome = field(converter=_outcome)
    by: tuple[Margin, ...] = field(converter=_groups)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_statistic_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=_confidence)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a statistic of groups needs", f"{self.statistic} in them is")
        if self.binary and self.outcome != proportion_of(self.outcome.column):
            raise InputError("a proportion is that of ones among zeros and ones: leave bounds and grid out")

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones: of a proportion."""
        return self.statistic is Statistic.proportion

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups, and one each for differences if asked for."""
        more = [f"{stem}-differences.csv" for stem in self._stems] if self.confidence.differences else []
        return (*(f"{stem}.csv" for stem in self._stems), *more)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by group; refuse groups whose counts are not published."""
        return sum_space(scope.dataspace, scope.adjacency, self.outcome, self.by)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums, set after set, in steps of the grid."""
        if self.binary:
            reader.check_binary(self.outcome.column)
        return np.concatenate([reader.sums(group.names, self.outcome).ravel() for group in self.by])

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> PublishedGroups:
        """Return sums, or means and proportions over exact counts, with their intervals."""
        return published_groups(self, GroupSums(mechanism, measured))


@frozen
class RegressionRequest(_OfOutcome):
    """A regression of a private outcome on features whose counts are published exactly.

    Parameters
    ----------
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a logistic regression.
    factors
        The features that enter by a column for each level but the first.
    budget, mechanism, name
        As for a table. The name is that of the column unless given.
    model
        Linear, or logistic for a column of zeros and ones.
    interactions
        Sets of factors whose columns are multiplied.
    coding
        How factors are coded. It names the coefficients; what is measured does not depend on it.
    confidence
        The intervals beside the coefficients.

    Examples
    --------
    >>> RegressionRequest(Outcome("days", 0, 10, steps=10), ["arm"], Budget.gdp(1)).name
    'regression-days'
    """

    key: ClassVar[str] = "regression"
    _written: ClassVar[tuple[str, ...]] = (
        *("name", "model", "outcome", "factors", "interactions", "coding", "budget", "mechanism", "confidence"),
    )
    _needs: ClassVar[Mapping[str, str]] = {"column": '"…"', "factors": '["…", …]'}

    outcome: Outcome = field(converter=_outcome)
    factors: tuple[str, ...] = field(converter=_factors)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    model: Model = field(default=Model.linear, converter=_model)
    interactions: tuple[Margin, ...] = field(default=(), converter=_groups)
    coding: Coding = field(default=Coding.treatment, converter=_coding)
    name: str = field(default=Factory(_regression_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=_confidence)

    def __attrs_post_init__(self) -> None:
        if not self.factors:
            raise InputError("a regression needs the features that it is on", needs="factors")
        if len(set(self.factors)) < len(self.factors):
            raise InputError(f"the regression names a feature twice: {', '.join(self.factors)}")
        if self.outcome.column in self.factors:
            raise InputError(f"{self.outcome.column!r} is both the outcome and a factor: name another")
        if self.binary and self.outcome != proportion_of(self.outcome.column):
            raise InputError("a logistic regression is of zeros and ones: leave bounds and grid out")
        if self.confidence.differences:
            raise InputError("differences are of groups: the coefficients of a regression are differences already")

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones: of a logistic regression."""
        return self.model is Model.logistic

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys of an entry; differences are of groups."""
        return super()._keys() - {"differences"}

    @property
    def features(self) -> tuple[str, ...]:
        """The factors."""
        return self.factors

    @property
    def files(self) -> tuple[str, ...]:
        """A row a coefficient, and what was measured."""
        return f"{self.name}.csv", f"{self.name}-measurements.csv"

    def design(self, scope: Scope) -> Design:
        """Return the design on the schema of the data."""
        schema = scope.dataspace.schema
        assert schema is not None
        pairs = [group.names for group in self.interactions]
        return Design.of(schema, self.factors, interactions=pairs, coding=self.coding)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of what gives X'y with the least noise, by the published counts alone.

        Refuse a design whose moments are not public, or one that is collinear.
        """
        design = self.design(scope)
        if self.binary:
            joint_counts(design, scope.dataspace)
        budget = Budget.gdp(1) if self.budget is None else self.budget
        return regression_mechanism(
            scope.dataspace, scope.adjacency, self.outcome, design, budget, self.mechanism
        ).space

    def space_of(self, query: Mapping[str, Any] | None, scope: Scope) -> QuerySpace:
        """Return the space of a query that was measured for this regression; X'y itself, where none is told."""
        design = self.design(scope)
        if query is None:
            return moment_space(scope.dataspace, scope.adjacency, self.outcome, design)
        space = query_space(query, scope.dataspace, scope.adjacency)
        terms = [column.features for column in design.columns]
        mine = (
            isinstance(space, SumSpace)
            and all(any(set(term) <= set(block.names) for block in space.blocks) for term in terms)
        ) or (isinstance(space, MomentSpace) and space.design.columns == design.columns and space.regular)
        if not mine or getattr(space, "outcome", None) != self.outcome:
            raise InputError("what was measured does not give the sums that the regression needs")
        return space

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential values of the query, in steps of the grid."""
        assert isinstance(space, (SumSpace, MomentSpace))
        design = self.design(scope)
        if self.binary:
            reader.check_binary(self.outcome.column)
        return route_values(space, design, reader.sums(design.features, self.outcome))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedRegression:
        """Return the coefficients with their standard errors and intervals."""
        moments = Moments(mechanism, measured, self.design(scope))
        fit = LogisticFit(moments) if self.binary else LinearFit(moments)
        return published_regression(self, fit)


@frozen
class QuantileRequest(_ByGroups):
    """Quantiles of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    outcome
        The private column, its declared bounds and its grid.
    by
        The groups, as for a `GroupRequest`.
    probabilities
        Which quantiles, each between 0 and 1, in growing order; the median if left out.
    budget, name
        As for a table. The name is that of the column unless given.
    level
        The level of an interval for each quantile, which takes two thirds of what is chosen; none if left out.
    sampling
        Whether intervals are about the population that the records were drawn from, and not the records themselves.

    Examples
    --------
    >>> QuantileRequest(Outcome("score", 0, 100, steps=100), [["school"]], budget=Budget.gdp(1)).name
    'median-score'
    """

    key: ClassVar[str] = "quantile"
    _written: ClassVar[tuple[str, ...]] = ("name", "outcome", "probabilities", "by", "budget", "level", "sampling")
    mechanism: ClassVar[str] = AUTO

    outcome: Outcome = field(converter=_outcome)
    by: tuple[Margin, ...] = field(converter=_groups)
    probabilities: tuple[Fraction, ...] = field(default=(MEDIAN,), converter=_probabilities)
    budget: Budget | None = field(default=None, converter=checked_budget)
    name: str = field(default=Factory(_quantile_name, takes_self=True), converter=file_name)
    level: Fraction | None = field(default=None, converter=_optional_level)
    sampling: bool = field(default=False, converter=_quantile_sampling)

    def __attrs_post_init__(self) -> None:
        self._check_groups("quantiles of groups need", "quantiles are")
        if self.sampling and self.level is None:
            raise InputError("only intervals are about a population: give their level", needs="quantile level")

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        return tuple(f"{stem}.csv" for stem in self._stems)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the ranks; refuse groups whose counts are not published."""
        return rank_space(
            scope.dataspace,
            scope.adjacency,
            self.outcome,
            self.by,
            self.probabilities,
            level=self.level,
            sampling=self.sampling,
        )

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the choices that the budget allows."""
        assert isinstance(space, RankSpace)
        return exponential_mechanism(space, budget_of(self))

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential histograms of all groups, set after set, a row a group."""
        return np.concatenate([reader.histogram(group.names, self.outcome) for group in self.by])

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedQuantiles:
        """Return the quantiles in units of the outcome."""
        return published_quantiles(self, GroupQuantiles(mechanism, measured), scope)


KINDS: dict[str, type[TableRequest] | type[GroupRequest] | type[RegressionRequest] | type[QuantileRequest]] = {
    kind.key: kind for kind in (TableRequest, GroupRequest, RegressionRequest, QuantileRequest)
}
"""What a plan may ask for, by the key of its list in a plan file."""


def outcome_from(column: str, bounds: Sequence[Any] | None, grid: Any) -> Outcome:
    """Return an outcome from its declared bounds and the number of steps of its grid.

    >>> outcome_from("score", ["0", "100"], "200").width
    Fraction(1, 2)
    >>> outcome_from("score", None, 100)
    Traceback (most recent call last):
    semidp.errors.InputError: the outcome 'score' needs declared bounds, two numbers
    """
    if bounds is None or isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise InputError(f"the outcome {column!r} needs declared bounds, two numbers", needs="bounds", names=(column,))
    steps = exact(grid, f"the grid of {column!r}")
    if steps.denominator != 1:
        raise InputError(f"the grid of {column!r} must be a whole number of steps", needs="grid", names=(column,))
    return Outcome(column, bounds[0], bounds[1], int(steps))


def proportion_of(column: str) -> Outcome:
    """Return the outcome of which a mean is a proportion: zeros and ones.

    >>> proportion_of("cured").steps
    1
    """
    return Outcome(column, Fraction(0), Fraction(1), 1)
