"""Quantiles by groups: what is asked for, and how the registry finds them."""

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, exact, plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.exponential import (
    ExponentialMechanism,
    RankSpace,
    exponential_mechanism,
    parse_quantiles,
    rank_scores,
    rank_space,
)
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import measured_rows
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS,
    GRID,
    GROUP,
    SAMPLING,
    STEP,
    EvenGroup,
    group_values,
    outcome_values,
    read_groups,
    read_outcome,
)
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.statistics.outcomes.request import (
    ValuesRequest,
    checked_outcome,
    group_margins,
    optional_text,
)
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.protocol.requests import (
    NO_RECORD,
    Forecast,
    StatisticForecast,
    checked_budget,
    file_name,
    member,
    require_budget,
)
from semidp.publish.statistics.protocol.statistic import PublishedStatistic
from semidp.publish.statistics.quantiles.published import MEDIAN as HALF
from semidp.publish.statistics.quantiles.published import (
    GroupQuantiles,
    most_rank_error,
    publish_quantiles,
    ranks_text,
)
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape


def _quantile_name(request: "QuantileRequest") -> str:
    kind = "median" if request.probabilities == (HALF,) else "quantiles"
    return f"{kind}-{request.outcome.column}"


class QuantileMechanism(StrEnum):
    """How quantiles are found: chosen value by value, read off a distribution, or whichever is
    better.
    """

    auto = AUTO
    selection = "selection"
    distribution = "distribution"


def _quantile_mechanism(value: str) -> QuantileMechanism:
    return member(QuantileMechanism, value, "the mechanism of quantiles")


def _optional_level(value: Number | None) -> Fraction | None:
    return None if value is None else Confidence(value).level


def _quantile_sampling(value: bool) -> bool:
    return Confidence(sampling=value).sampling


@frozen
class QuantileRequest(ValuesRequest):
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
        The level of an interval for each quantile, which takes two thirds of what is chosen; none
        if left out.
    sampling
        Whether intervals are about the population that the records were drawn from, and not the
        records themselves.
    mechanism
        ``selection``: each value is chosen by the exponential mechanism. ``distribution``: the
        values are read off the distribution of each group, and `run` publishes that. ``auto``:
        whichever is better by public numbers, with sampling always selection.
    answered
        As for a `GroupRequest`.

    Examples
    --------
    >>> QuantileRequest(
    ...     Outcome("score", 0, 100, steps=100), [["school"]], budget=Budget.gdp(1)
    ... ).name
    'median-score'
    """

    key: ClassVar[str] = "quantile"
    list_key: ClassVar[str] = "quantiles"
    trusted_fields: ClassVar[Mapping[str, str]] = {
        **ValuesRequest.trusted_fields,
        "which ranks the choices of quantiles aimed at": "level",
    }
    _written: ClassVar[tuple[str, ...]] = (
        "name",
        "outcome",
        "probabilities",
        "by",
        "budget",
        "level",
        "sampling",
        "mechanism",
        "answered",
    )

    outcome: Outcome = field(converter=checked_outcome)
    by: tuple[Margin, ...] = field(default=None, converter=group_margins)
    probabilities: tuple[Fraction, ...] = field(default=(HALF,), converter=parse_quantiles)
    budget: Budget | None = field(default=None, converter=checked_budget)
    name: str = field(default=Factory(_quantile_name, takes_self=True), converter=file_name)
    level: Fraction | None = field(default=None, converter=_optional_level)
    sampling: bool = field(default=False, converter=_quantile_sampling)
    mechanism: QuantileMechanism = field(
        default=QuantileMechanism.auto, converter=_quantile_mechanism
    )
    answered: str | None = field(default=None, converter=optional_text)

    def __attrs_post_init__(self) -> None:
        self._check_groups("quantiles of groups need", "quantiles are")
        if self.sampling and self.level is None:
            raise InputError(
                "only intervals are about a population: give their level", needs="quantile level"
            )
        if self.sampling and self.mechanism is QuantileMechanism.distribution:
            raise InputError(
                "intervals about a population are chosen: a distribution is about the records"
                " themselves"
            )

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if value is QuantileMechanism.auto:
            return {}
        return super()._entry(name, value)

    @property
    def answering_kind(self) -> str:
        """Quantiles themselves, a distribution, or the better of the two."""
        if self.sampling or self.mechanism is QuantileMechanism.selection:
            return self.key
        return str(self.mechanism)

    def with_mechanism(self, name: str) -> Self:
        """Return the request: quantiles are chosen, and no noise is drawn for them."""
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        return tuple(f"{stem}.csv" for stem in self.file_stems)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the ranks; refuse groups whose counts are not published."""
        return rank_space(
            scope.dataspace.for_kind(self.counted),
            scope.adjacency,
            self.outcome,
            self.by,
            self.probabilities,
            level=self.level,
            sampling=self.sampling,
            answered=self.answered,
        )

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the choices that the budget allows."""
        assert isinstance(space, RankSpace)
        return exponential_mechanism(space, require_budget(self))

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return by how many ranks the choices would be off."""
        ranks = most_rank_error(mechanism)
        said = NO_RECORD if ranks is None else ranks_text(ranks)
        return (StatisticForecast(self.name, self.features, said, {"rank_error": ranks}),)

    @property
    def asked_quantiles(self) -> tuple[Fraction, ...]:
        """All quantiles; none where intervals are to be about a population, which nothing else
        has.
        """
        return () if self.sampling else self.probabilities

    @property
    def quantile_level(self) -> Fraction | None:
        """The level of an interval for each quantile."""
        return self.level

    def rank_reach(self, mechanism: Mechanism) -> float | None:
        """Return how far the ranks lie below and above that the ends of an interval are chosen
        for.
        """
        if self.level is None or not isinstance(mechanism, ExponentialMechanism):
            return None
        return float(mechanism.rank_space.interval_rank_offset(mechanism.rate, self.level))

    def steps_off(self, mechanism: Mechanism) -> float | None:
        """Return ``Σ P(v) |v - q|``, the mean over all quantiles q, with P the exponential
        mechanism's.

        Permute and flip chooses closer values at the same rate.
        """
        if not isinstance(mechanism, ExponentialMechanism):
            return None
        group = EvenGroup.typical(mechanism.rank_space.sizes, self.outcome.steps)
        distances = []
        for probability in self.probabilities:
            rank = group.rank(probability)
            scores = rank_scores(group.histogram, rank)
            weights = np.exp(-float(mechanism.rate) * (scores - scores.min()))
            off = np.abs(np.arange(len(scores)) - group.place(rank))
            distances.append(float(weights @ off / weights.sum()))
        return float(np.mean(distances))

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential histograms of all groups, set after set, a row a group."""
        assert isinstance(space, RankSpace)
        parts = []
        for group in self.by:
            histograms = reader.histogram(group.names, self.outcome)
            parts.append(measured_rows(space, group, histograms))
        return conceal(self.name, np.concatenate(parts))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the quantiles in units of the outcome."""
        return publish_quantiles(self, GroupQuantiles(mechanism, measured))


_QUANTILES = ("median", "quantile")
LEVEL = Setting(
    "quantile_level",
    "Also publish an interval for each quantile at this level, from the same budget.",
    Shape.text,
    "NUMBER",
    key="[[quantile]] level",
    label="intervals at level",
    example="none",
    needs=_QUANTILES,
)
MECHANISM = Setting(
    "quantile_mechanism",
    "How quantiles are found: selection, distribution, or auto (default) for the better one.",
    Shape.text,
    "NAME",
    key="[[quantile]] mechanism",
    label="found by",
    example="auto",
    needs=_QUANTILES,
)
_BESIDE = (GROUP, BOUNDS, GRID, STEP, LEVEL, MECHANISM, SAMPLING)
MEDIAN = Setting(
    "median",
    "The median of a private column in each group.",
    Shape.columns,
    "COLUMN",
    Panel.publish,
    key="[[quantile]]",
    label="Median",
    beside=_BESIDE,
    private=True,
)
QUANTILE = Setting(
    "quantile",
    "These quantiles of a private column in each group.",
    Shape.lists,
    "COLUMN=0.1,0.9",
    Panel.publish,
    key="[[quantile]]",
    label="Quantiles",
    example="income=0.1,0.9",
    beside=_BESIDE,
    private=True,
)


def _build_requests(chosen: Chosen) -> list[QuantileRequest]:
    """Return the quantiles of every column that is named; a column has one request for all of its
    quantiles.
    """
    probabilities: dict[str, set[str]] = {
        column: {plain(HALF)} for column in chosen.columns(MEDIAN)
    }
    for column, several in chosen.lists(QUANTILE).items():
        probabilities.setdefault(column, set()).update(several)
    requests = []
    for column, together in probabilities.items():
        by = read_groups(chosen)
        level = chosen.text(LEVEL)
        # Only an interval can be about a population.
        sampling = level is not None and chosen.is_ticked(SAMPLING)
        ordered = sorted({exact(text, f"a quantile of {column!r}") for text in together})
        mechanism = chosen.text(MECHANISM) or QuantileMechanism.auto
        request = QuantileRequest(
            read_outcome(chosen, column, QuantileRequest),
            by,
            ordered,
            level=level,
            sampling=sampling,
        )
        requests.append(evolve(request, mechanism=mechanism))
    return requests


def _list_choices(request: QuantileRequest) -> list[tuple[dict[str, Any], QuantileRequest]]:
    """Return what would have been chosen to ask for a request; those who answered cannot be."""
    if request.answered is not None:
        return []
    column = request.outcome.column
    chosen: dict[str, Any] = {**group_values(request.by), **outcome_values(request)}
    if request.probabilities == (HALF,):
        chosen[MEDIAN.name] = (column,)
    else:
        chosen[QUANTILE.name] = {column: tuple(plain(part) for part in request.probabilities)}
    if request.level is not None:
        chosen[LEVEL.name] = plain(request.level)
    if request.sampling:
        chosen[SAMPLING.name] = True
    if request.mechanism is not QuantileMechanism.auto:
        chosen[MECHANISM.name] = str(request.mechanism)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=30,
    key="quantile",
    asked=(QuantileRequest,),
    settings=(MEDIAN, QUANTILE),
    ask=_build_requests,
    shown=_list_choices,
)
