"""Sums, means and proportions by groups: results, requests, and their entry in the
registry.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import asdict, evolve, field, frozen
from numpy.typing import NDArray

from semidp.promise.confidential import Confidential
from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
    noisy_column,
)
from semidp.publish.results.texts import p_value_text, scale_text
from semidp.publish.selection import AUTO, naive_loss
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.outcomes.group_sums import Comparison, Estimates, GroupSums
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS,
    BOUNDS_CAPTION,
    DIFFERENCES,
    GRID,
    GROUP,
    LEVEL,
    SAMPLING,
    SIMULTANEOUS,
    STATISTIC_MEANINGS,
    STEP,
    added_up_text,
    answered_text,
    confidence_values,
    count_column,
    describe_intervals,
    drawn_bounds,
    faint_estimates,
    faint_reason,
    grid_fact,
    group_values,
    groups_text,
    interval_columns,
    interval_paragraphs,
    outcome_values,
    pair_column_names,
    read_confidence,
    read_groups,
    read_outcome,
    statistic_text,
    whose,
)
from semidp.publish.statistics.outcomes.noise_law import About, Intervals
from semidp.publish.statistics.outcomes.request import Statistic, StatisticRequest, optional_text
from semidp.publish.statistics.protocol.requests import Forecast
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


def publish_groups(request: "GroupRequest", found: GroupSums) -> PublishedStatistic:
    """Return sums, or means and proportions over exact counts, with intervals."""
    total = request.statistic == "sum"
    estimates = [(found.sums if total else found.means)(block) for block in request.by]
    every = found.sum_intervals if total else found.mean_intervals
    intervals = _state_alike([_requested_intervals(every, block, request) for block in request.by])
    comparisons = [_compare_means(found, block) for block in request.by]
    noisy = np.asarray(found.measurement.noisy, dtype=np.int64)
    sheets = []
    for number, part in enumerate(estimates):
        numbers = noisy[found.space.slices[number]]
        sheets.append(_estimates_sheet(request, found, number, part, intervals[number], numbers))
    if request.confidence.differences:
        sheets += [_differences_sheet(request, found, number) for number in range(len(request.by))]
    coarse = _grid_warning(request, estimates)
    sentences = Sentences(
        title=f"{statistic_text(request)} {groups_text(request.shown_sets)}{whose(request)}",
        noise=f"scale {_scale(found)} in each sum",
        paragraphs=(
            *_measured_paragraphs(request, found),
            *coarse,
            *_comparison_paragraphs(request, comparisons, intervals[0]),
        ),
        further=grid_fact(request.outcome),
        notes=tuple(("warning", text) for text in coarse),
        faint=faint_reason(request),
    )
    facts = {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "intervals": describe_intervals(intervals[0]),
    }
    return publish_statistic(request, found, sentences, sheets, facts)


def _scale(found: GroupSums) -> str:
    """Write the scale of the noise in units of the outcome."""
    return scale_text(found.mechanism.scale * float(found.outcome.width))


def _estimates_sheet(
    request: "GroupRequest",
    found: GroupSums,
    number: int,
    estimates: Estimates,
    intervals: Sequence[Intervals],
    noisy: NDArray[np.int64],
) -> Sheet:
    name = str(request.statistic)
    groups = groups_text(request.shown_sets[number : number + 1])
    what = f"{statistic_text(request)} {groups}{whose(request)}"
    values, errors = estimates.values, estimates.standard_errors
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(request.by[number]), estimates.groups),
            count_column(request, estimates.counts),
            *estimate_columns(name, values, errors, STATISTIC_MEANINGS[name]),
            *interval_columns(intervals),
            noisy_column("noisy_steps", noisy),
        ),
        words=f"the {what}, one row a group",
        heading=f"Published {what}",
        faint=faint_estimates(request, values, errors) & (estimates.counts > 0),
        axis=statistic_text(request),
        bounds=drawn_bounds(request),
        caption=BOUNDS_CAPTION,
    )


def _differences_sheet(request: "GroupRequest", found: GroupSums, number: int) -> Sheet:
    """The differences of each two groups of a set, the first less the second."""
    block = request.by[number]
    intervals = _requested_intervals(found.difference_intervals, block, request)
    groups = groups_text(request.shown_sets[number : number + 1])
    what = f"{statistic_text(request)} {groups}{whose(request)}"
    meaning = "the estimate of the first group less that of the second"
    return Sheet(
        name=f"{request.file_stems[number]}-differences",
        role_columns=(
            *label_columns(pair_column_names(found.columns(block)), intervals[0].names),
            RoleColumn("difference", Role.estimate, intervals[0].values, meaning),
            *interval_columns(intervals),
        ),
        words=f"differences of the {what}, one row a pair",
        heading=f"Differences of the {what}",
        paragraphs=["The first group less the second.", *interval_paragraphs(intervals)],
        row="pair",
        is_main=False,
    )


def _requested_intervals(
    intervals: Callable[..., Intervals], block: Margin, request: "GroupRequest"
) -> tuple[Intervals, ...]:
    """Return the intervals of the noise alone, and those for the population if asked for."""
    level, together = request.confidence.level, request.confidence.simultaneous
    kinds = (False, True) if request.confidence.sampling else (False,)
    return tuple(
        intervals(block, level=level, sampling=sampling, simultaneous=together)
        for sampling in kinds
    )


def _state_alike(sets: list[tuple[Intervals, ...]]) -> list[list[Intervals]]:
    """Let a request say one thing of all its sets: a level is exact if it is exact in each."""
    exact = [all(part.exact for part in parts) for parts in zip(*sets, strict=True)]
    alike = []
    for parts in sets:
        alike.append([evolve(part, exact=held) for part, held in zip(parts, exact, strict=True)])
    return alike


def _compare_means(found: GroupSums, block: Margin) -> Comparison:
    """Compare the means of one set, with the largest spread that the bounds allow; nothing if
    there is no record.

    Readers ask about the population that the records come from: without sampling any two groups
    differ.
    """
    compared = found.compare(block, sampling=True)
    # Without records there is no common mean, and JSON has no number for that.
    return compared if math.isfinite(compared.pooled) else Comparison(0.0, 0, 0.0)


# --- words


def _measured_paragraphs(request: "GroupRequest", found: GroupSums) -> list[str]:
    """Say how a statistic of groups was made, and how far it may be off."""
    mechanism = found.mechanism
    if mechanism.space.is_zero:
        return []
    divided = "" if request.statistic == "sum" else " Noisy sums were divided by the exact counts."
    paragraphs = [
        *answered_text(request),
        f"{added_up_text(request)} The sums were measured with the {mechanism.name} mechanism"
        f" (scale {_scale(found)}).{divided} The standard errors are those of the noise alone; the"
        " picture shows two of them to each side. An estimate outside the bounds is due to noise.",
    ]
    naive, expected = naive_loss(mechanism), mechanism.expected_l2
    if naive and expected:
        paragraphs.append(
            "Ordinary differential privacy at the same guarantee would need about"
            f" {naive / expected:.2g} times as much noise in the sums, and noise in the counts"
            " besides."
        )
    return paragraphs


def _comparison_paragraphs(
    request: "GroupRequest", comparisons: Sequence[Comparison], intervals: Sequence[Intervals]
) -> list[str]:
    """Say whether the groups differ, and what the intervals are about."""
    # One group with records has nothing to be compared with.
    paragraphs = [
        _difference_text(groups_text([by]), comparison)
        for by, comparison in zip(request.shown_sets, comparisons, strict=True)
        if comparison.degrees
    ]
    tested = any(part.about is About.sampling and part.degrees for part in comparisons)
    sampled = any(part.about is About.sampling for part in intervals)
    if not request.binary and (tested or sampled):
        effects = ["p is too large rather than too small"] * tested
        effects += ["intervals for the population are too wide rather than too narrow"] * sampled
        paragraphs.append(
            f"The spread of {request.outcome.column} within groups was not measured: the largest"
            f" that the bounds allow at each mean was taken, so that {', and '.join(effects)}."
        )
    return [*paragraphs, *interval_paragraphs(intervals)]


def _grid_warning(request: "GroupRequest", estimates: Sequence[Estimates]) -> list[str]:
    """Say that rounding may have moved an estimate by more than the noise did, where it may."""
    if not any(part.coarse for part in estimates):
        return []
    return [
        f"The grid is coarse: rounding to steps of {plain(request.outcome.width)} can have moved a"
        f" {request.statistic} by up to half a step a record, which is more than its standard"
        " error. Values that lie on the grid are not moved; for others choose a finer grid."
    ]


def _difference_text(by: str, comparison: Comparison) -> str:
    """Say whether the means of one set differ, by more than what, and by which reference."""
    plural = "degree" if comparison.degrees == 1 else "degrees"
    against = "" if comparison.reference == "χ²" else f" by {comparison.reference}"
    explain = "the noise" if comparison.about is About.noise else "sampling and the noise explain"
    unsampled = " Sampling is not allowed for." if comparison.about is About.noise else ""
    p_text = p_value_text(comparison.p_value, 3, "= ")
    # The meaning of p first: Q and its degrees of freedom are for those who ask for them.
    return (
        f"Do the means {by} differ by more than {explain}? p {p_text}: with"
        f" equal true means they would differ this much in a share p of all cases.{unsampled} For"
        f" specialists: Q = {comparison.statistic:.4g} with {comparison.degrees} {plural} of"
        f" freedom{against}."
    )


@frozen
class GroupRequest(StatisticRequest):
    """Sums, means or proportions of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    statistic
        The statistic.
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a
        proportion.
    by
        The groups, each a set of features; several sets are measured together. An invariant must
        publish the counts of each.
    budget, mechanism, name
        As for a table. The name is that of the statistic and the column unless given.
    confidence
        The intervals next to the estimates.
    answered
        The feature of every set of groups that says who has a value of the outcome; the
        statistic covers only those. If left out, everybody has one.

    Examples
    --------
    >>> import semidp
    >>> score = semidp.Outcome("score", 0, 100, steps=100)
    >>> GroupRequest("mean", score, [["school"]], semidp.Budget.gdp(1)).name
    'mean-score'
    """

    key: ClassVar[str] = "group"
    list_key: ClassVar[str] = "groups"

    answered: str | None = field(default=None, converter=optional_text)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups, and one each for differences if
        asked for.
        """
        stems = self.file_stems if self.confidence.differences else ()
        return (*super().files, *(f"{stem}-differences.csv" for stem in stems))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by group; refuse groups whose counts are not published."""
        public = scope.dataspace.for_kind(self.counted)
        return sum_space(public, scope.adjacency, self.outcome, self.by, self.answered)

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential sums, set after set, in steps of the grid."""
        # Clipping would turn any other number into 0 or 1 without a word.
        if self.binary:
            reader.check_binary(self.outcome.column)
        sums = self.read_rows(space, lambda names: reader.sums(names, self.outcome).ravel())
        return conceal(self.name, sums)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Forecast the errors of its groups. Their sizes are exact, so the error of a mean
        is known beforehand: that of its sum over the size.
        """
        space = mechanism.space
        assert isinstance(space, SumSpace)
        sizes = np.concatenate([counts.ravel() for counts in space.counts])
        # Sets of groups have one total, so each has less noise than was drawn.
        steps = np.sqrt(mechanism.variance * space.variances())
        of_sums = steps[sizes > 0] * float(space.unit)
        divisors = 1 if self.statistic == "sum" else sizes[sizes > 0]
        largest = float(of_sums.max(initial=0.0))
        return self._forecast_errors(of_sums / divisors, {"standard_error_of_sums": largest})

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return sums, or means and proportions over exact counts, with their intervals."""
        return publish_groups(self, GroupSums(mechanism, measured))


_INTERVALS = (LEVEL, SAMPLING, SIMULTANEOUS, DIFFERENCES)


def _ask_for(statistic: Statistic, help: str, *bounds: Setting) -> Setting:
    """Return the setting that asks for a statistic of a column by groups."""
    return Setting(
        str(statistic),
        help,
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[group]]",
        label=str(statistic).capitalize(),
        beside=(GROUP, *bounds, *_INTERVALS),
        private=True,
    )


_ASKING = {
    Statistic.mean: _ask_for(
        Statistic.mean, "The mean of a private column in each group.", BOUNDS, GRID, STEP
    ),
    Statistic.sum: _ask_for(
        Statistic.sum, "The sum of a private column in each group.", BOUNDS, GRID, STEP
    ),
    Statistic.proportion: _ask_for(
        Statistic.proportion,
        "The share of ones in a private column of zeros and ones; ok=Y for the share of the value"
        " Y.",
    ),
}


def _build_requests(chosen: Chosen) -> list[GroupRequest]:
    """Return the statistics of every column that is named."""
    requests = []
    for statistic, setting in _ASKING.items():
        for column in chosen[setting]:
            by = read_groups(chosen)
            binary = statistic is Statistic.proportion
            outcome = read_outcome(chosen, column, GroupRequest, binary=binary)
            confidence = read_confidence(chosen, differences=True)
            requests.append(GroupRequest(statistic, outcome, by, confidence=confidence))
    return requests


def _list_choices(request: GroupRequest) -> list[tuple[dict[str, Any], GroupRequest]]:
    """Return what would have been chosen to ask for a request; neither a mechanism nor those who
    answered can be chosen.
    """
    if request.mechanism != AUTO or request.answered is not None:
        return []
    column = {str(request.statistic): (request.outcome.column,)}
    bounds = {} if request.binary else outcome_values(request)
    chosen = {
        **column,
        **group_values(request.by),
        **bounds,
        **confidence_values(request.confidence),
    }
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=10,
    key="group",
    asked=(GroupRequest,),
    always_listed=("groups",),
    settings=tuple(_ASKING.values()),
    ask=_build_requests,
    shown=_list_choices,
)
