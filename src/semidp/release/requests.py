"""What a plan asks for, and how each request goes through the pipeline: tables, statistics by group, regressions.

A `Request` is a frozen value with three methods: its query space, what it reads, what it publishes. `prepare` and `run`
know nothing else about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.errors import InputError
from semidp.exact import Number, exact, plain, positive
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
    NAMES,
    Measurement,
    Mechanism,
    NoNoise,
    ResidualMechanism,
    exponential_mechanism,
    mechanism_for,
    table_mechanism,
)
from semidp.mechanisms.selection import FOR_RELEASES
from semidp.progress import Progress
from semidp.queries import (
    Coding,
    Design,
    MomentSpace,
    ProductSpace,
    QuerySpace,
    RankSpace,
    SumSpace,
    moment_space,
    product_space,
    query_space,
    rank_space,
    route_values,
    sensitivity_space,
    sum_space,
)
from semidp.release.checks import only_keys, text, texts
from semidp.release.published import (
    FitKind,
    Published,
    PublishedGroups,
    PublishedQuantiles,
    PublishedRegression,
    PublishedTable,
    published_groups,
    published_quantiles,
    published_regression,
    published_table,
)
from semidp.release.scope import Reader, Scope
from semidp.spaces import Margin
from semidp.tradeoff import Budget

GRID = 1000
"""The steps between an outcome's bounds, unless declared."""

_BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")

Choice = TypeVar("Choice", bound=StrEnum)


class Request(Protocol):
    """One thing to release with noise."""

    key: ClassVar[str]
    """What a plan calls requests of this kind."""

    @property
    def name(self) -> str:
        """What it is called, and its files."""

    @property
    def budget(self) -> Budget | None:
        """What it may spend."""

    @property
    def mechanism(self) -> str:
        """The name of its mechanism, or ``auto``."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it uses."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that it writes."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return its query space, from public values alone."""

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it within its budget."""

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential values of its query."""

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> Published:
        """Return what is published: post-processing of the measurement and of public values."""

    def with_budget(self, budget: Budget) -> "Request":
        """Return the request with another budget."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""


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


def budget_of(request: Request) -> Budget:
    """Return what a request may spend; refuse one without a budget."""
    if request.budget is None:
        raise InputError(f"{request.name!r} has no privacy budget: give epsilon, rho or mu")
    return request.budget


def calibrated(request: Request, space: QuerySpace) -> Mechanism:
    """Return the mechanism of a request's name for its space and its budget."""
    return mechanism_for(space, budget_of(request), request.mechanism)


def mechanism_again(request: Request, result: Published, scope: Scope) -> Mechanism:
    """Return the mechanism of a result by the name that it states, calibrated as the request's budget asks.

    What ``auto`` chooses may change from version to version; what was chosen, and what a regression measured, is in the
    result.
    """
    name, budget = result.noise.mechanism, budget_of(request)
    if isinstance(request, TableRequest) and (name == ResidualMechanism.name or result.key == "partitioned"):
        product = product_space(scope.dataspace, scope.adjacency, [request.features])
        return ResidualMechanism.calibrate(product, budget)
    if isinstance(request, RegressionRequest) and isinstance(result, PublishedRegression):
        space = request.space_of(result.query, scope)
    else:
        space = request.space(scope)
    if isinstance(space, (ProductSpace, RankSpace)):
        return request.calibrate(space)
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    kind = next((kind for kind in FOR_RELEASES if kind.name == name), None)
    return mechanism_for(space, budget, name) if kind is None else kind.calibrate(space, budget)


def _budget(value: Budget | None) -> Budget | None:
    if value is not None and not isinstance(value, Budget):
        raise InputError(f"a budget is Budget.zcdp(rho), Budget.gdp(mu) or Budget.pure(epsilon), not {value!r}")
    return value


def _mechanism(value: str) -> str:
    name = text(value, "the mechanism")
    if name != AUTO and name not in NAMES:
        raise InputError(f"there is no mechanism {name!r}; there are {AUTO}, {', '.join(NAMES)}")
    return name


def _file_name(value: str) -> str:
    name = text(value, "a name")
    if set(name) & set("/\\\0") or name.startswith("."):
        raise InputError(f"{name!r} cannot name a table: its files are called after it")
    return name


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


def _weight(value: Number) -> Fraction:
    return positive(value, "the weight of a table")


def _target(value: Number | None) -> Fraction | None:
    return None if value is None else positive(value, "the target error of a table")


def _table_features(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the features of a table")


def _factors(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the factors of a regression")


def _fit(value: FitKind | str) -> FitKind:
    return _member(FitKind, value, "fit")


def _statistic(value: Statistic | str) -> Statistic:
    return _member(Statistic, value, "the statistic")


def _model(value: Model | str) -> Model:
    return _member(Model, value, "the model")


def _coding(value: Coding | str) -> Coding:
    return _member(Coding, value, "the coding")


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


@frozen
class TableRequest:
    """One table to release: its features, its share of the privacy budget, how to measure and how to fit.

    Instead of a budget a table may have a target: the largest standard error of its estimates. `prepare` finds the
    least budget that meets it, together with the other tables that have none.

    >>> TableRequest(("sex", "region"), Budget.pure(1)).name
    'table'
    >>> TableRequest("sex,region")
    Traceback (most recent call last):
    semidp.errors.InputError: the features of a table are a list such as ["sex", "region"], not 'sex,region'
    """

    key: ClassVar[str] = "table"

    features: tuple[str, ...] = field(converter=_table_features)
    budget: Budget | None = field(default=None, converter=_budget)
    mechanism: str = field(default=AUTO, converter=_mechanism)
    fit: FitKind = field(default=FitKind.integer, converter=_fit)
    name: str = field(default="table", converter=_file_name)
    weight: Fraction = field(default=Fraction(1), converter=_weight)
    target_error: Fraction | None = field(default=None, converter=_target)

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise InputError("a table to release needs at least one feature", needs="table")
        if len(set(self.features)) < len(self.features):
            raise InputError(f"the table names a feature twice: {', '.join(self.features)}")
        if self.budget is not None and self.weight != 1:
            raise InputError(f"the table {self.name!r} has a budget of its own: a weight is for tables that share one")
        if self.budget is not None and self.target_error is not None:
            raise InputError(f"the table {self.name!r} has a budget and a target error: give one of them")

    @property
    def files(self) -> tuple[str, ...]:
        """Its published counts, and its measurements."""
        return f"{self.name}.csv", "measurements.csv" if self.name == "table" else f"{self.name}-measurements.csv"

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the table."""
        return sensitivity_space(scope.dataspace, scope.adjacency, self.features)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one that announces the least variance."""
        return table_mechanism(space, budget_of(self), self.mechanism)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the counts of the table, or its residuals where those are measured."""
        table = reader.table(self.features)
        return space.measure([table]) if isinstance(space, ProductSpace) else space.values(table)

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> PublishedTable:
        """Fit the measurement to the exact totals."""
        return published_table(self.name, self.features, self.fit, mechanism, measured, scope, progress)

    def with_budget(self, budget: Budget) -> "TableRequest":
        """Return the request with another budget."""
        return evolve(self, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {
            "name": self.name,
            "features": list(self.features),
            **(self.budget.keys() if self.budget else {}),
            "mechanism": self.mechanism,
            "fit": str(self.fit),
            **({} if self.weight == 1 else {"weight": plain(self.weight)}),
            **({} if self.target_error is None else {"target_error": plain(self.target_error)}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TableRequest":
        """Read what `to_json` wrote, or one ``[[table]]`` of a plan file."""
        own = {"name", "features", "mechanism", "fit", "weight", "target_error"}
        only_keys(value, {*own, *_BUDGET_KEYS}, "a table of a plan")
        if "features" not in value:
            raise InputError('a table of a plan needs features = ["…", …]')
        return cls(
            texts(value["features"], "the features of a table"),
            Budget.stated(value),
            value.get("mechanism", AUTO),
            value.get("fit", FitKind.integer),
            value.get("name", "table"),
            value.get("weight", 1),
            value.get("target_error"),
        )


@frozen
class GroupRequest:
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

    statistic: Statistic = field(converter=_statistic)
    outcome: Outcome = field(converter=_outcome)
    by: tuple[Margin, ...] = field(converter=_groups)
    budget: Budget | None = field(default=None, converter=_budget)
    mechanism: str = field(default=AUTO, converter=_mechanism)
    name: str = field(default=Factory(_statistic_name, takes_self=True), converter=_file_name)
    confidence: Confidence = field(default=Confidence(), converter=_confidence)

    def __attrs_post_init__(self) -> None:
        if not self.by or not all(group.names for group in self.by):
            raise InputError("a statistic of groups needs the features that form them", needs="group")
        if len(set(self.by)) < len(self.by):
            raise InputError("the same groups are named twice: name them once")
        column = self.outcome.column
        if any(column in group.names for group in self.by):
            raise InputError(f"{column!r} forms the groups, so its {self.statistic} in them is no secret: name another")
        if self.statistic is Statistic.proportion and self.outcome != proportion_of(column):
            raise InputError("a proportion is that of ones among zeros and ones: leave bounds and grid out")

    @property
    def features(self) -> tuple[str, ...]:
        """The features that form the groups."""
        return tuple(name for group in self.by for name in group.names)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups, and one each for differences if asked for."""
        names = [self.name]
        if len(self.by) > 1:
            names = [f"{self.name}-by-{'-'.join(group.names)}" for group in self.by]
        more = [f"{name}-differences.csv" for name in names] if self.confidence.differences else []
        return (*(f"{name}.csv" for name in names), *more)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by group; refuse groups whose counts are not published."""
        return sum_space(scope.dataspace, scope.adjacency, self.outcome, self.by)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return calibrated(self, space)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums, set after set, in steps of the grid."""
        if self.statistic is Statistic.proportion:
            reader.check_binary(self.outcome.column)
        return np.concatenate([reader.sums(group.names, self.outcome).ravel() for group in self.by])

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> PublishedGroups:
        """Return sums, or means and proportions over exact counts, with their intervals."""
        return published_groups(self, GroupSums(mechanism, measured))

    def with_budget(self, budget: Budget) -> "GroupRequest":
        """Return the request with another budget."""
        return evolve(self, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {
            "name": self.name,
            "statistic": str(self.statistic),
            "column": self.outcome.column,
            **({} if self.statistic is Statistic.proportion else _bounds_json(self.outcome)),
            "by": [list(group.names) for group in self.by],
            **(self.budget.keys() if self.budget else {}),
            "mechanism": self.mechanism,
            **self.confidence.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "GroupRequest":
        """Read what `to_json` wrote, or one ``[[group]]`` of a plan file."""
        known = {"name", "statistic", "column", "bounds", "grid", "by", "mechanism", *_BUDGET_KEYS}
        only_keys(value, {*known, *Confidence.keys}, "a group of a plan")
        statistic = _statistic(value.get("statistic", Statistic.mean))
        if "column" not in value or not isinstance(value.get("by"), (list, tuple)):
            raise InputError('a group of a plan needs column = "…" and by = [["…"], …]')
        column = text(value["column"], "the column of a group")
        if "bounds" not in value and statistic is Statistic.proportion:
            outcome = proportion_of(column)
        else:
            outcome = outcome_from(column, value.get("bounds"), value.get("grid", GRID))
        groups = [[group] if isinstance(group, str) else texts(group, "a set of groups") for group in value["by"]]
        named = {"name": value["name"]} if "name" in value else {}
        named["confidence"] = Confidence.from_json(value)
        return cls(statistic, outcome, groups, Budget.stated(value), value.get("mechanism", AUTO), **named)


@frozen
class RegressionRequest:
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

    outcome: Outcome = field(converter=_outcome)
    factors: tuple[str, ...] = field(converter=_factors)
    budget: Budget | None = field(default=None, converter=_budget)
    mechanism: str = field(default=AUTO, converter=_mechanism)
    model: Model = field(default=Model.linear, converter=_model)
    interactions: tuple[Margin, ...] = field(default=(), converter=_groups)
    coding: Coding = field(default=Coding.treatment, converter=_coding)
    name: str = field(default=Factory(_regression_name, takes_self=True), converter=_file_name)
    confidence: Confidence = field(default=Confidence(), converter=_confidence)

    def __attrs_post_init__(self) -> None:
        if not self.factors:
            raise InputError("a regression needs the features that it is on", needs="factors")
        if len(set(self.factors)) < len(self.factors):
            raise InputError(f"the regression names a feature twice: {', '.join(self.factors)}")
        if self.outcome.column in self.factors:
            raise InputError(f"{self.outcome.column!r} is both the outcome and a factor: name another")
        if self.model is Model.logistic and self.outcome != proportion_of(self.outcome.column):
            raise InputError("a logistic regression is of zeros and ones: leave bounds and grid out")
        if self.confidence.differences:
            raise InputError("differences are of groups: the coefficients of a regression are differences already")

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
        if self.model is Model.logistic:
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

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return calibrated(self, space)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential values of the query, in steps of the grid."""
        assert isinstance(space, (SumSpace, MomentSpace))
        design = self.design(scope)
        if self.model is Model.logistic:
            reader.check_binary(self.outcome.column)
        return route_values(space, design, reader.sums(design.features, self.outcome))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedRegression:
        """Return the coefficients with their standard errors and intervals."""
        moments = Moments(mechanism, measured, self.design(scope))
        fit = LinearFit(moments) if self.model is Model.linear else LogisticFit(moments)
        return published_regression(self, fit)

    def with_budget(self, budget: Budget) -> "RegressionRequest":
        """Return the request with another budget."""
        return evolve(self, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        document = {
            "name": self.name,
            "model": str(self.model),
            "column": self.outcome.column,
            **({} if self.model is Model.logistic else _bounds_json(self.outcome)),
            "factors": list(self.factors),
            "interactions": [list(group.names) for group in self.interactions],
            "coding": str(self.coding),
            **(self.budget.keys() if self.budget else {}),
            "mechanism": self.mechanism,
            **self.confidence.to_json(),
        }
        return {key: value for key, value in document.items() if value != []}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RegressionRequest":
        """Read what `to_json` wrote, or one ``[[regression]]`` of a plan file."""
        known = {"name", "model", "column", "bounds", "grid", "factors", "interactions", "coding", "mechanism"}
        only_keys(value, {*known, *_BUDGET_KEYS, *Confidence.keys} - {"differences"}, "a regression of a plan")
        if "column" not in value or "factors" not in value:
            raise InputError('a regression of a plan needs column = "…" and factors = ["…", …]')
        column, model = text(value["column"], "the column of a regression"), _model(value.get("model", Model.linear))
        if "bounds" not in value and model is Model.logistic:
            outcome = proportion_of(column)
        else:
            outcome = outcome_from(column, value.get("bounds"), value.get("grid", GRID))
        return cls(
            outcome,
            texts(value["factors"], "the factors of a regression"),
            Budget.stated(value),
            value.get("mechanism", AUTO),
            model,
            [texts(group, "an interaction") for group in value.get("interactions", ())],
            value.get("coding", Coding.treatment),
            **({"name": value["name"]} if "name" in value else {}),
            confidence=Confidence.from_json(value),
        )


@frozen
class QuantileRequest:
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
    mechanism: ClassVar[str] = AUTO

    outcome: Outcome = field(converter=_outcome)
    by: tuple[Margin, ...] = field(converter=_groups)
    probabilities: tuple[Fraction, ...] = field(default=(MEDIAN,), converter=_probabilities)
    budget: Budget | None = field(default=None, converter=_budget)
    name: str = field(default=Factory(_quantile_name, takes_self=True), converter=_file_name)
    level: Fraction | None = field(default=None, converter=_optional_level)
    sampling: bool = field(default=False, converter=_quantile_sampling)

    def __attrs_post_init__(self) -> None:
        if not self.by or not all(group.names for group in self.by):
            raise InputError("quantiles of groups need the features that form them", needs="group")
        if len(set(self.by)) < len(self.by):
            raise InputError("the same groups are named twice: name them once")
        if any(self.outcome.column in group.names for group in self.by):
            raise InputError(f"{self.outcome.column!r} forms the groups, so its quantiles are no secret: name another")
        if self.sampling and self.level is None:
            raise InputError("only intervals are about a population: give their level", needs="quantile level")

    @property
    def features(self) -> tuple[str, ...]:
        """The features that form the groups."""
        return tuple(name for group in self.by for name in group.names)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        if len(self.by) == 1:
            return (f"{self.name}.csv",)
        return tuple(f"{self.name}-by-{'-'.join(group.names)}.csv" for group in self.by)

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
        if self.budget is None:
            raise InputError(f"{self.name!r} has no privacy budget: give epsilon, rho or mu")
        return exponential_mechanism(space, self.budget)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential histograms of all groups, set after set, a row a group."""
        return np.concatenate([reader.histogram(group.names, self.outcome) for group in self.by])

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedQuantiles:
        """Return the quantiles in units of the outcome."""
        return published_quantiles(self, GroupQuantiles(mechanism, measured), scope)

    def with_budget(self, budget: Budget) -> "QuantileRequest":
        """Return the request with another budget."""
        return evolve(self, budget=budget)

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""
        return {
            "name": self.name,
            "column": self.outcome.column,
            **_bounds_json(self.outcome),
            "probabilities": [plain(q) for q in self.probabilities],
            "by": [list(group.names) for group in self.by],
            **(self.budget.keys() if self.budget else {}),
            **({} if self.level is None else {"level": plain(self.level)}),
            **({"sampling": True} if self.sampling else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "QuantileRequest":
        """Read what `to_json` wrote, or one ``[[quantile]]`` of a plan file."""
        known = {"name", "column", "bounds", "grid", "probabilities", "by", "level", "sampling", *_BUDGET_KEYS}
        only_keys(value, known, "a quantile of a plan")
        if "column" not in value or not isinstance(value.get("by"), (list, tuple)):
            raise InputError('a quantile of a plan needs column = "…" and by = [["…"], …]')
        column = text(value["column"], "the column of a quantile")
        groups = [[group] if isinstance(group, str) else texts(group, "a set of groups") for group in value["by"]]
        return cls(
            outcome_from(column, value.get("bounds"), value.get("grid", GRID)),
            groups,
            budget=Budget.stated(value),
            **{key: value[key] for key in ("probabilities", "name", "level", "sampling") if key in value},
        )


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


def _bounds_json(outcome: Outcome) -> dict[str, Any]:
    return {"bounds": [plain(outcome.lower), plain(outcome.upper)], "grid": outcome.steps}


def _member(kind: type[Choice], value: str, name: str) -> Choice:
    if not isinstance(value, str) or str(value) not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(str(value))
