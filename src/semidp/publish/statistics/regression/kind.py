"""Regressions: results, requests, and their entry in the registry."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import MomentSpace, recorded_moments
from semidp.promise.sensitivity.outcome_spaces import SumSpace, recorded_sums
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plotting import estimates_plot
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
    noisy_column,
)
from semidp.publish.results.texts import scale_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS,
    GRID,
    LEVEL,
    SAMPLING,
    SIMULTANEOUS,
    STEP,
    ZEROS_AND_ONES,
    clipped_text,
    confidence_values,
    describe_intervals,
    interval_columns,
    interval_paragraphs,
    outcome_values,
    read_confidence,
    read_outcome,
)
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.statistics.outcomes.request import (
    OutcomeRequest,
    binary_outcome,
    checked_confidence,
    checked_outcome,
    describe_errors,
    interaction_margins,
    sums_line,
)
from semidp.publish.statistics.protocol.requests import (
    Forecast,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.publish.statistics.protocol.statistic import (
    Chosen,
    Kind,
    Panel,
    PublishedStatistic,
    Sentences,
    Setting,
    Shape,
    publish_statistic,
)
from semidp.publish.statistics.regression.designs import INTERCEPT, Coding, Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    gram_matrix,
    joint_counts,
    noise_covariance,
    regression_mechanism,
    route_values,
)
from semidp.publish.written_values import is_number, texts

_MANY_NUMBERS = 20  # levels that are numbers, from which on a factor is taken for a measured one


def publish_regression(
    request: "RegressionRequest", fit: LinearFit | LogisticFit
) -> PublishedStatistic:
    """Return coefficients with the standard errors of the noise alone, and intervals."""
    confidence = request.confidence
    kinds = (False, True) if confidence.sampling else (False,)
    intervals = [
        fit.intervals(confidence.level, sampling=sampling, simultaneous=confidence.simultaneous)
        for sampling in kinds
    ]
    # A logistic fit counts sampling in unless told not to.
    errors = fit.standard_errors(**({} if isinstance(fit, LinearFit) else {"sampling": False}))
    query, mechanism = fit.moments.space.query(), fit.mechanism
    column, factors = request.outcome.column, " and ".join(request.factors)
    title = f"{request.model} regression of {column} on {factors}"
    counted = f"{clipped_text(request.outcome)} before anything was added up."
    # The noise is in steps of the grid; a reader knows the units of the outcome.
    scale = scale_text(mechanism.scale * float(request.outcome.width))
    sentences = Sentences(
        title=title,
        noise=f"scale {scale} in the sums behind X'y",
        paragraphs=(
            f"{ZEROS_AND_ONES if request.binary else counted} The counts of the factors are exact."
            f" Only {_measured_text(query)} needed noise: the {mechanism.name} mechanism, scale"
            f" {scale}. The standard errors are those of the noise alone. The first level of each"
            f" factor is the reference ({request.coding} coding).",
            *interval_paragraphs(intervals),
        ),
        warnings=tuple(continuous_factors(fit.names, request.factors)),
    )
    coefficients, measurements = (file.removesuffix(".csv") for file in request.files)
    terms = [(term,) for term in fit.names]
    noisy = np.asarray(fit.measurement.noisy, dtype=np.int64)
    sheets = [
        Sheet(
            name=coefficients,
            role_columns=(
                *label_columns(["term"], terms, "the column of the design"),
                *estimate_columns(
                    "coefficient",
                    fit.coefficients,
                    errors,
                    "the estimated coefficient",
                ),
                *interval_columns(intervals),
            ),
            words=f"the {title}",
            heading=f"Published {title}",
            row="coefficient",
            draw=partial(_draw_slopes, fit.names, fit.coefficients, errors),
            caption="Coefficients with two standard errors of the noise to each side. The"
            " intercept is in the table alone: it has another scale.",
        ),
        Sheet(
            name=measurements,
            role_columns=(
                RoleColumn("entry", Role.place, np.arange(len(noisy))),
                noisy_column("noisy_steps", noisy),
            ),
            words=f"what was measured for the {title}",
        ),
    ]
    facts = {"query": query, "intervals": describe_intervals(intervals)}
    return publish_statistic(request, fit, sentences, sheets, facts)


def _draw_slopes(
    names: Sequence[str], values: NDArray[Any], errors: NDArray[Any], axes: Any
) -> Any:
    """Draw all coefficients but the intercept, whose scale would leave the others a point each."""
    kept = [place for place, name in enumerate(names) if name != INTERCEPT]
    labels = [names[place] for place in kept]
    return estimates_plot(
        labels, values[kept].tolist(), errors[kept].tolist(), "coefficient", (0.0,), axes
    )


def _measured_text(query: Mapping[str, Any]) -> str:
    """Say what was measured for a regression."""
    if query["kind"] == "sums":
        sets = [" and ".join(names) or "all" for names in query["by"]]
        return f"the sums of the outcome by {' and by '.join(sets)}"
    if "combination" in query:
        return (
            f"{len(query['combination'])} weighted sums of the outcome, chosen from the exact"
            " counts for accuracy,"
        )
    return "the sums of the outcome over the columns of the design"


def continuous_factors(terms: Sequence[str], factors: Sequence[str]) -> list[str]:
    """Advise on a factor that looks like a measured number: one coefficient per value is not a
    slope.

    >>> continuous_factors([f"age={age}.5" for age in range(30)], ["age"])
    ['age has 30 coefficients, one for each number that occurs: give it bins. For a slope ...']
    >>> continuous_factors(["age=[0, 18)", "age=[18, 120)"], ["age"])
    []
    """
    warnings = []
    for factor in factors:
        start = f"{factor}="
        levels = [term.removeprefix(start) for term in terms if term.startswith(start)]
        if len(levels) < _MANY_NUMBERS or not all(map(is_number, levels)):
            continue
        warnings.append(
            f"{factor} has {len(levels)} coefficients, one for each number that occurs: give it"
            " bins. For a slope on a measured number take a library for"
            " regression under ordinary differential privacy, and ask semidp guarantee what that"
            " promises beside the exact totals."
        )
    return warnings


class Model(StrEnum):
    """The kind of regression.

    >>> [str(model) for model in Model]
    ['linear', 'logistic']
    """

    linear = "linear"
    logistic = "logistic"


def _regression_name(request: "RegressionRequest") -> str:
    return f"regression-{request.outcome.column}"


def _factors(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the factors of a regression")


def _model(value: Model | str) -> Model:
    return member(Model, value, "the model")


def _coding(value: Coding | str) -> Coding:
    return member(Coding, value, "the coding")


@frozen
class RegressionRequest(OutcomeRequest):
    """A regression of a private outcome on features whose counts are published exactly.

    Parameters
    ----------
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a
        logistic regression.
    factors
        The features that enter by a column for each level but the first.
    budget, mechanism, name
        As for a table. The name is that of the column unless given.
    model
        Linear, or logistic for a column of zeros and ones.
    interactions
        Sets of factors whose columns are multiplied.
    coding
        How factors are coded. This affects only the names of coefficients, not the measurement.
    confidence
        The intervals next to the coefficients.

    Examples
    --------
    >>> RegressionRequest(Outcome("days", 0, 10, steps=10), ["arm"], Budget.gdp(1)).name
    'regression-days'
    """

    key: ClassVar[str] = "regression"
    list_key: ClassVar[str] = "regressions"
    _needs: ClassVar[Mapping[str, str]] = {"column": '"…"', "factors": '["…", …]'}

    outcome: Outcome = field(converter=checked_outcome)
    factors: tuple[str, ...] = field(converter=_factors)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    model: Model = field(default=Model.linear, converter=_model)
    interactions: tuple[Margin, ...] = field(default=(), converter=interaction_margins)
    coding: Coding = field(default=Coding.treatment, converter=_coding)
    name: str = field(default=Factory(_regression_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=checked_confidence)

    def __attrs_post_init__(self) -> None:
        if not self.factors:
            raise InputError("a regression needs the features that it is on", needs="factors")
        if len(set(self.factors)) < len(self.factors):
            raise InputError(f"the regression names a feature twice: {', '.join(self.factors)}")
        if self.outcome.column in self.factors:
            raise InputError(
                f"{self.outcome.column!r} is both the outcome and a factor: name another"
            )
        if self.binary and self.outcome != binary_outcome(self.outcome.column):
            raise InputError(
                "a logistic regression is of zeros and ones: leave bounds and grid out"
            )
        if self.confidence.differences:
            raise InputError(
                "differences are of groups: the coefficients of a regression are differences"
                " already"
            )

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones: of a logistic regression."""
        return self.model is Model.logistic

    @classmethod
    def _asks_binary(cls, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of a plan asks for a logistic regression."""
        return _model(entry.get("model", Model.linear)) is Model.logistic

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys of an entry; differences are of groups."""
        return super()._keys() - {"differences"}

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """The joint counts of the factors."""
        return (Margin(*self.factors),)

    @property
    def features(self) -> tuple[str, ...]:
        """The factors."""
        return self.factors

    @property
    def files(self) -> tuple[str, ...]:
        """One row per coefficient, and the measurement."""
        return f"{self.name}.csv", f"{self.name}-measurements.csv"

    def design(self, scope: Scope) -> Design:
        """Return the design on the schema of the data."""
        schema = scope.dataspace.for_kind(self.counted).schema
        pairs = [group.names for group in self.interactions]
        return Design.from_schema(schema, self.factors, interactions=pairs, coding=self.coding)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the query space that gives X'y with the least noise, judged by the published
        counts alone.

        Refuse a design whose moments are not public, or one that is collinear.
        """
        design, public = self.design(scope), scope.dataspace.for_kind(self.counted)
        if self.binary:
            joint_counts(design, public)
        budget = Budget.gdp(1) if self.budget is None else self.budget
        return regression_mechanism(
            public, scope.adjacency, self.outcome, design, budget, self.mechanism
        ).space

    def measured_space(self, entry: Mapping[str, Any], scope: Scope) -> QuerySpace:
        """Return the space of the measured query. It is stored: the best one depends on rounding,
        and another machine may find a different one.
        """
        design = self.design(scope)
        readers = {"sums": recorded_sums, "moments": recorded_moments}
        try:
            query = entry["query"]
            read = readers.get(query["kind"])
            space = None if read is None else read(query, scope.dataspace, scope.adjacency)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise InputError(
                "the record of what was measured for the regression is damaged"
            ) from None
        terms = [column.features for column in design.columns]
        if isinstance(space, SumSpace):
            blocks = [{*block.names} for block in space.blocks]
            sufficient = True
            for term in terms:
                sufficient &= any({*term} <= block for block in blocks)
        elif isinstance(space, MomentSpace):
            sufficient = space.design.columns == design.columns and space.regular
        else:
            sufficient = False
        # The query comes from a file: unless X'y follows from it, the coefficients would be of
        # something else.
        if space is None or not sufficient or space.outcome != self.outcome:
            raise InputError("what was measured does not give the sums that the regression needs")
        return space

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Forecast the errors of its coefficients.

        X'X is exact, so the errors of a linear regression are known beforehand. Those of a
        logistic one depend on its private fit, and are forecast for even odds: its covariance
        ``(X'WX)^-1 N (X'WX)^-1`` with W = 1/4 is 16 times that of a linear one.
        """
        design = self.design(scope)
        inverse = np.linalg.inv(gram_matrix(design, scope.dataspace.for_kind(self.counted)))
        covariance = inverse @ noise_covariance(mechanism, design) @ inverse
        errors = np.sqrt(np.diag(covariance)) * (4 if self.binary else 1)
        said, _ = describe_errors(errors, "coefficient")
        numbers: dict[str, Any] = {
            "standard_errors": dict(zip(design.names, errors.tolist(), strict=True))
        }
        if self.binary:
            said, numbers["at_even_odds"] = f"{said}, at even odds", True
        return (Forecast(self.name, self.features, said, numbers),)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise the sums behind it would be measured, and how far off that leaves
        it.
        """
        return [sums_line(self.name, mechanism, foreseen)]

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential values of the query, in steps of the grid."""
        assert isinstance(space, (SumSpace, MomentSpace))
        design = self.design(scope)
        if self.binary:
            reader.check_binary(self.outcome.column)
        return conceal(
            self.name, route_values(space, design, reader.sums(design.features, self.outcome))
        )

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the coefficients with their standard errors and intervals."""
        moments = Moments(mechanism, measured, self.design(scope))
        fit = LogisticFit(moments) if self.binary else LinearFit(moments)
        return publish_regression(self, fit)


ON = Setting(
    "on",
    "The factors of a regression; their joint counts become exact.",
    Shape.features,
    "A[,B]",
    Panel.groups,
    key="[[regression]] factors",
    label="on factors, whose counts become exact",
    needs=("regress", "logistic"),
)
_INTERVALS = (LEVEL, SAMPLING, SIMULTANEOUS)
_ASKING = {
    Model.linear: Setting(
        "regress",
        "The linear regression of a private column on the factors of ⟨on⟩.",
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[regression]]",
        label="Linear regression",
        beside=(ON, BOUNDS, GRID, STEP, *_INTERVALS),
        private=True,
    ),
    Model.logistic: Setting(
        "logistic",
        "The logistic regression of a private column of zeros and ones.",
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[regression]]",
        label="Logistic regression",
        beside=(ON, *_INTERVALS),
        private=True,
    ),
}


def _build_requests(chosen: Chosen) -> list[RegressionRequest]:
    """Return the regressions of every column that is named, on the same factors."""
    requests = []
    for model, setting in _ASKING.items():
        for column in chosen[setting]:
            sets = chosen[ON]
            if not sets:
                raise InputError(f"say on which features to regress {column}", needs="factors")
            binary = model is Model.logistic
            outcome = read_outcome(chosen, column, RegressionRequest, binary=binary)
            confidence = read_confidence(chosen, differences=False)
            requests.append(RegressionRequest(outcome, sets[0], model=model, confidence=confidence))
    return requests


def _list_choices(request: RegressionRequest) -> list[tuple[dict[str, Any], RegressionRequest]]:
    """Return what would have been chosen to ask for a request; interactions, codings and mechanisms
    cannot be.
    """
    if request.mechanism != AUTO or request.interactions or request.coding is not Coding.treatment:
        return []
    column = {_ASKING[request.model].name: (request.outcome.column,)}
    bounds = {} if request.binary else outcome_values(request)
    chosen = {
        **column,
        ON.name: (request.factors,),
        **bounds,
        **confidence_values(request.confidence),
    }
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=20,
    key="regression",
    asked=(RegressionRequest,),
    always_listed=("regressions",),
    settings=tuple(_ASKING.values()),
    ask=_build_requests,
    shown=_list_choices,
)
