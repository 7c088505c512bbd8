"""Quantiles by groups: requests, results, and their entry in the registry."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, count_noun, exact, plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.exponential import (
    ExponentialMechanism,
    RankSpace,
    exponential_mechanism,
    farthest_rank,
    parse_quantiles,
    rank_scores,
    rank_space,
)
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.role_columns import Role, RoleColumn, Sheet, label_columns
from semidp.publish.results.texts import number_text, scale_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS,
    GRID,
    GROUP,
    SAMPLING,
    STEP,
    ByBlocks,
    EvenGroup,
    answered_text,
    clipped_text,
    count_column,
    group_values,
    groups_text,
    interval_columns,
    interval_paragraphs,
    outcome_values,
    quantile_heading,
    quantiles_text,
    read_groups,
    read_outcome,
    whose,
)
from semidp.publish.statistics.outcomes.noise_law import About, Confidence, Intervals
from semidp.publish.statistics.outcomes.request import (
    ValuesRequest,
    checked_outcome,
    group_margins,
    optional_text,
)
from semidp.publish.statistics.protocol.requests import (
    NO_RECORD,
    Forecast,
    checked_budget,
    file_name,
    member,
    require_budget,
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

HALF = Fraction(1, 2)
"""The default quantile."""
Floats = NDArray[np.float64]


@frozen(eq=False)
class GroupQuantiles(ByBlocks):
    """Quantiles of an outcome by group. Nothing in it is confidential.

    Examples
    --------
    >>> import semidp as sd
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "ward": np.repeat(["a", "b"], 500),
    ...     "days": np.r_[np.arange(500) / 100, 5 + np.arange(500) / 100],
    ... }
    >>> days = sd.Outcome("days", 0, 10, 100)
    >>> request = sd.publish.QuantileRequest(
    ...     days, [["ward"]], ["1/2"], sd.Budget.gdp(1), mechanism="selection"
    ... )
    >>> prepared = sd.prepare(sd.Plan([request], ["ward"]), records)
    >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
    >>> found = GroupQuantiles(mechanism, mechanism.measure(values, SeededRandomness(1)))
    >>> for (ward,), count, median in found.rows():
    ...     print(ward, count, round(median))
    a 500 2
    b 500 8
    >>> found.guarantee.adjacency.a, found.private
    (2, False)
    """

    @property
    def space(self) -> RankSpace:
        """The groups, and what was chosen in each."""
        assert isinstance(self.mechanism.space, RankSpace)
        return self.mechanism.space

    def values(self, block: Margin | None = None) -> Floats:
        """Return the quantiles of a set, one row per group, in the order of their probabilities;
        NaN without records.

        Choices of one group are sorted, which costs nothing and only helps.
        """
        return np.sort(self._chosen_values(block)[:, :, 0], axis=1)

    def intervals(self, block: Margin | None = None) -> tuple[Intervals, ...]:
        """Return an interval for each quantile, group after group; refuse where none were asked
        for.

        Ends lie half a step of the grid beyond the chosen values, since records were rounded to
        them. An end at a bound of the outcome means that the group is too small for a rank so far
        away.
        """
        space = self.space
        if space.level is None:
            raise InputError(
                "no intervals were chosen with the quantiles: ask for them with a level"
            )
        values, chosen = self.values(block), self._chosen_values(block)
        about = About.sampling if space.sampling else About.noise
        # Ends are chosen independently of the quantile and may fall on its wrong side: they are
        # moved outwards only, which loses no coverage.
        groups = self.groups(block)
        half = float(space.outcome.width / 2)
        bounds = float(space.outcome.lower), float(space.outcome.upper)
        intervals = []
        for k in range(len(space.probabilities)):
            quantile = values[:, k]
            lower = np.maximum(np.minimum(chosen[:, k, 1], quantile) - half, bounds[0])
            upper = np.minimum(np.maximum(chosen[:, k, 2], quantile) + half, bounds[1])
            intervals.append(Intervals(groups, quantile, lower, upper, space.level, about))
        return tuple(intervals)

    def rows(self, block: Margin | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield each group with its exact count and its quantiles."""
        counts = self.space.counts[self._number(block)].ravel().tolist()
        rows = self.values(block).tolist()
        for group, count, values in zip(self.groups(block), counts, rows, strict=True):
            yield group, count, *values

    def _chosen_values(self, block: Margin | None) -> Floats:
        """The chosen values in units of the outcome: groups, quantiles, and the quantile with its
        ends.
        """
        space, number = self.space, self._number(block)
        ends = np.cumsum([0, *(counts.size for counts in space.counts)])
        shape = (len(space.sizes), len(space.probabilities), -1)
        steps = self.measurement.projected.reshape(shape)
        outcome = space.outcome
        exact_values = [outcome.lower + outcome.width * step for step in range(outcome.steps + 1)]
        grid = np.array([float(value) for value in exact_values])
        of_block = steps[ends[number] : ends[number + 1]]
        values = grid[of_block.astype(np.int64)]
        # A group without records has no quantile.
        occupied = space.counts[number].ravel() > 0
        return np.where(occupied[:, None, None], values, np.nan)


def most_rank_error(mechanism: Mechanism) -> int | None:
    """Return the largest rank error of a chosen value with probability 0.95; None without
    noise.
    """
    return farthest_rank(mechanism, 0.05) if isinstance(mechanism, ExponentialMechanism) else None


def publish_quantiles(request: "QuantileRequest", found: GroupQuantiles) -> PublishedStatistic:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    rank_error = most_rank_error(mechanism)
    # Without the measure of its budget: GDP means another thing to most.
    law = mechanism.name.partition(" (")[0]
    how = f"selection by the {law} mechanism"
    if rank_error is not None:
        how += f", {ranks_text(rank_error)}"
    named = quantiles_text(request.outcome.column, request.probabilities)
    groups = groups_text(request.shown_sets, " and by ")
    sentences = Sentences(
        title=f"{named} {groups}{whose(request)}",
        noise="exact choices",
        mechanism=mechanism.name if mechanism.space.is_zero else how,
        paragraphs=_paragraphs(request, found, law, rank_error),
        faint="a choice there may be off by a quarter of the records to each side",
    )
    facts = {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "rank_error": rank_error,
        "about": None if request.level is None else str(found.intervals(request.by[0])[0].about),
    }
    sheets = [_sheet(request, found, number, rank_error) for number in range(len(request.by))]
    return publish_statistic(request, found, sentences, sheets, facts)


def _sheet(
    request: "QuantileRequest", found: GroupQuantiles, number: int, rank_error: int | None
) -> Sheet:
    """The file of one set of groups: exact counts, quantiles with their intervals, chosen steps."""
    block = request.by[number]
    counts = found.space.counts[number].ravel()
    values = found.values(block)
    intervals = () if request.level is None else found.intervals(block)
    numbers: list[RoleColumn] = []
    for place, probability in enumerate(request.probabilities):
        name = f"q{plain(probability)}"
        called = quantile_heading(name)
        numbers.append(
            RoleColumn(
                name,
                Role.estimate,
                values[:, place],
                f"the chosen {called}",
                called,
                number_text,
            )
        )
        numbers += interval_columns(intervals[place : place + 1], f"{name}_", called)
    steps = np.asarray(found.measurement.noisy).reshape(-1, len(numbers))
    start = sum(part.size for part in found.space.counts[:number])
    chosen = [
        RoleColumn(
            f"steps_{column.name}",
            Role.noisy,
            steps[start : start + len(counts), place],
            f"the chosen {column.title}, in steps of the grid",
        )
        for place, column in enumerate(numbers)
    ]
    shown = request.shown_sets[number]
    named = quantiles_text(request.outcome.column, request.probabilities)
    what = f"{named} {groups_text([shown])}{whose(request)}"
    faint = np.zeros(len(counts), dtype=bool)
    if rank_error is not None:
        # 95% of choices lie within no less than half of the records of such a group.
        faint = (counts > 0) & (counts <= 4 * rank_error)
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(block), found.groups(block)),
            count_column(request, counts),
            *numbers,
            *chosen,
        ),
        words=f"the {what}, one row a group",
        heading=f"Published {what}",
        faint=faint,
        axis=request.outcome.column,
        caption=_caption(request),
    )


def _caption(request: "QuantileRequest") -> str:
    """Say what the picture shows."""
    dots = "The median of each group, as chosen"
    if list(request.probabilities) != [HALF]:
        listed = ", ".join(plain(each) for each in request.probabilities)
        dots = f"The quantiles of each group from left to right ({listed}), as chosen"
    bars = "" if request.level is None else ", with their intervals as bars"
    return f"{dots}{bars}."


def ranks_text(ranks: int) -> str:
    """Describe the error of a choice.

    >>> ranks_text(1234)
    'at most 1,234 records from the true one, in 95% of choices'
    """
    return f"at most {count_noun(ranks, 'record')} from the true one, in 95% of choices"


def _paragraphs(
    request: "QuantileRequest", found: GroupQuantiles, law: str, rank_error: int | None
) -> tuple[str, ...]:
    """Say how quantiles were chosen, how far they may be off, and what their intervals are
    about.
    """
    if rank_error is None:
        return ()
    paragraphs = [
        *answered_text(request),
        f"{clipped_text(request.outcome)}. In each group a value was chosen at random ({law}"
        " mechanism). The more records would have to be replaced to make a value the quantile, the"
        " less likely it was to be chosen: by a factor e = 2.7 for every"
        f" {scale_text(found.mechanism.scale)} of them. And the more records would have to be"
        " replaced before the true quantile were another value, the more likely it was chosen."
        " With 95% probability the number of records between a chosen value and the true quantile"
        f" of its group is at most {rank_error:,}, whatever the data.",
    ]
    if request.level is not None:
        # All intervals are of one kind: the first says what all are about.
        paragraphs += interval_paragraphs(found.intervals(request.by[0])[:1])
        paragraphs.append(
            "The ends of an interval were chosen in the same way, at ranks so far below and above"
            " that they rarely pass the quantile. They were then moved outward by half a step of"
            " the grid to which values were rounded. Where an end is a declared bound, the group is"
            " too small for such a rank."
        )
    return tuple(paragraphs)


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
        The level of an interval for each quantile, which takes two thirds of the choices; none if
        left out.
    sampling
        Whether intervals are about the population that the records were sampled from, not the
        records.
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
        """Forecast the errors of the choices in ranks."""
        ranks = most_rank_error(mechanism)
        said = NO_RECORD if ranks is None else ranks_text(ranks)
        return (Forecast(self.name, self.features, said, {"rank_error": ranks}),)

    @property
    def asked_quantiles(self) -> tuple[Fraction, ...]:
        """All quantiles; none if intervals are about a population, which no other kind
        offers.
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
        """Return the confidential histograms of all groups, set after set, one row per group."""
        histograms = self.read_rows(space, lambda names: reader.histogram(names, self.outcome))
        return conceal(self.name, histograms)

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
    probabilities: dict[str, set[str]] = {column: {plain(HALF)} for column in chosen[MEDIAN]}
    for column, several in chosen[QUANTILE].items():
        probabilities.setdefault(column, set()).update(several)
    requests = []
    for column, together in probabilities.items():
        by = read_groups(chosen)
        level = chosen[LEVEL]
        # Only an interval can be about a population.
        sampling = level is not None and chosen[SAMPLING]
        ordered = sorted({exact(text, f"a quantile of {column!r}") for text in together})
        mechanism = chosen[MECHANISM] or QuantileMechanism.auto
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
