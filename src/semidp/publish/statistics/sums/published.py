"""What a release publishes of sums, means and proportions by groups, with their intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import plain
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.comparisons import naive_loss
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
    noisy_column,
)
from semidp.publish.results.texts import scale_text
from semidp.publish.statistics.outcomes.comparison import Comparison
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.publish.statistics.outcomes.words import (
    BOUNDS_CAPTION,
    STATISTIC_MEANINGS,
    added_up_text,
    answered_text,
    count_column,
    describe_intervals,
    drawn_bounds,
    faint_estimates,
    faint_reason,
    grid_fact,
    interval_columns,
    interval_paragraphs,
    pair_column_names,
    set_text,
    statistic_text,
    whose,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.sums.request import GroupRequest


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
    sets = ", ".join(map(set_text, request.shown_sets))
    coarse = _grid_warning(request, estimates)
    sentences = Sentences(
        title=f"{statistic_text(request)} by {sets}{whose(request)}",
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
    what = f"{statistic_text(request)} by {set_text(request.shown_sets[number])}{whose(request)}"
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
    what = f"{statistic_text(request)} by {set_text(request.shown_sets[number])}{whose(request)}"
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
    """Return the intervals of the noise alone, and those for the population where asked for."""
    level, together = request.confidence.level, request.confidence.simultaneous
    kinds = (False, True) if request.confidence.sampling else (False,)
    return tuple(
        intervals(block, level=level, sampling=sampling, simultaneous=together)
        for sampling in kinds
    )


def _state_alike(sets: list[tuple[Intervals, ...]]) -> list[list[Intervals]]:
    """Let a request say one thing of all its sets: a level is exact where it is exact in each."""
    exact = [all(part.exact for part in parts) for parts in zip(*sets, strict=True)]
    return [
        [replace(part, exact=held) for part, held in zip(parts, exact, strict=True)]
        for parts in sets
    ]


def _compare_means(found: GroupSums, block: Margin) -> Comparison:
    """Compare the means of one set, with the largest spread that the bounds allow; nothing where
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
        _difference_text(set_text(by), comparison)
        for by, comparison in zip(request.shown_sets, comparisons, strict=True)
        if comparison.degrees
    ]
    if not request.binary and any(part.about is About.sampling for part in comparisons):
        sampled = any(part.about is About.sampling for part in intervals)
        wide = ", and intervals for the population too wide rather than too narrow"
        paragraphs.append(
            f"The spread of {request.outcome.column} within groups was not measured: the largest"
            " that the bounds allow at each mean was taken, so that p is too large rather than too"
            f" small{wide if sampled else ''}."
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
    # The meaning of p first: Q and its degrees of freedom are for those who ask for them.
    return (
        f"Do the means by {by} differ by more than {explain}? p = {comparison.p_value:.3g}: with"
        f" equal true means they would differ this much in a share p of all cases.{unsampled} For"
        f" specialists: Q = {comparison.statistic:.4g} with {comparison.degrees} {plural} of"
        f" freedom{against}."
    )
