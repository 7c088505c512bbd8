"""What a release says of sums, means and proportions by groups."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun, plain
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.sections import LISTED_ROWS, Details, Section
from semidp.publish.results.texts import (
    FAINT_MARK,
    end_texts,
    estimate_text,
    more,
    rounded_text,
    scale_text,
)
from semidp.publish.statistics.outcomes.comparison import Comparison
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.published import interval_columns
from semidp.publish.statistics.outcomes.words import (
    NOTHING_MEASURED,
    added_up_text,
    answered_text,
    column_heading,
    count_heading,
    counted_text,
    estimates_section,
    faint_text,
    grid_details,
    interval_paragraphs,
    is_faint,
    set_text,
    statistic_summary,
    statistic_text,
    statistic_title,
    whose,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.sums.published import PublishedGroups


DIFFERENCE_MEANINGS = {"difference": "the estimate of the first group less that of the second"}
"""What the column of differences means, for the description of its file."""


def title(group: "PublishedGroups") -> str:
    """Name a statistic of groups: the mean of score by school."""
    return f"{statistic_title(group.request, group.request.shown_sets)}{whose(group.request)}"


def noisy_lines(group: "PublishedGroups") -> list[str]:
    """Say how many groups have an estimate."""
    groups = sum(len(part.groups) for part in group.estimates)
    return [f"{title(group)}: {count_noun(groups, 'group')}"]


def summary_lines(group: "PublishedGroups") -> list[tuple[str, str]]:
    """Return the noise in the sums and the first estimates, for a terminal."""
    noise = f"{group.noise.mechanism}, scale {_scale(group)}"
    lines = statistic_summary(group.request, noise, _group_lines(group), *faint_groups(group))
    return lines + [("warning", text) for text in grid_warning(group)]


def _scale(group: "PublishedGroups") -> str:
    """Write the scale of the noise in units of the outcome."""
    return scale_text(group.noise.scale * float(group.outcome.width))


def _group_lines(group: "PublishedGroups") -> list[str]:
    """Return the estimates of a statistic, a line each."""
    lines = []
    for part in group.estimates:
        for levels, count, value, error in part.rows():
            name = " · ".join(levels)
            if not math.isfinite(value):
                nobody = "no records" if group.request.answered is None else "nobody answered"
                lines.append(f"{name}: none ({nobody})")
                continue
            estimate = f"{_mark(group, value, error)}{estimate_text(value, error)}"
            lines.append(f"{name}: {estimate} ({counted_text(group.request, count)})")
    return lines


def _mark(group: "PublishedGroups", value: float, error: float) -> str:
    return FAINT_MARK if is_faint(group.request, value, error) else ""


def faint_groups(group: "PublishedGroups") -> tuple[int, int]:
    """Return in how many groups noise dominates, and how many groups have records."""
    faint, groups = 0, 0
    for part in group.estimates:
        for _, _, value, error in part.rows():
            if math.isfinite(value):
                groups += 1
                faint += is_faint(group.request, value, error)
    return faint, groups


def sections(group: "PublishedGroups") -> list[Section]:
    """Return a section for each set of groups, the first with what is said of the measurement."""
    parts = []
    for number, by in enumerate(group.request.shown_sets):
        parts.append(_estimates_section(group, number, by))
        if group.differences:
            what = f"{statistic_text(group.request)} by {set_text(by)}{whose(group.request)}"
            parts.append(_differences_section(what, group.differences[number]))
    return parts


def _estimates_section(group: "PublishedGroups", number: int, by: Margin) -> Section:
    estimates = group.estimates[number]
    ends = interval_columns(group.intervals[number])
    rows, empty = [], []
    for estimate, *limits in zip(estimates.rows(), *ends.values(), strict=True):
        levels, count, value, error = estimate
        label = " · ".join(levels)
        if not count:
            empty.append(label)
            continue
        mark = _mark(group, value, error)
        estimate, _, standard_error = estimate_text(value, error).partition(" ± ")
        numbers = [f"{mark}{estimate}", standard_error]
        numbers += end_texts(dict(zip(ends, limits, strict=True)), error)
        rows.append((label, f"{count:,}", *numbers))
    # What is said of the first set holds for all.
    paragraphs = group_paragraphs(group) if number == 0 else []
    what = f"{statistic_text(group.request)} by {set_text(by)}{whose(group.request)}"
    return estimates_section(
        f"Published {what}",
        by,
        count=count_heading(group.request),
        columns=[str(group.request.statistic)],
        ends=ends,
        rows=rows,
        empty=empty,
        paragraphs=paragraphs,
        figure=group.plot(by=number),
    )


def _differences_section(what: str, intervals: Sequence[Intervals]) -> Section:
    """Return a section with the differences of groups, the first few."""
    first, ends = intervals[0], interval_columns(intervals)
    # The levels of the first group come before those of the second.
    half = len(first.names[0]) // 2 if first.names else 0
    pairs = zip(first.names, first.values, *ends.values(), strict=True)
    rows = []
    for levels, value, *limits in islice(pairs, LISTED_ROWS):
        one, other = " · ".join(levels[:half]), " · ".join(levels[half:])
        # A difference has no standard error of its own: its first interval is about four wide.
        error = (limits[1] - limits[0]) / 4
        texts = end_texts(dict(zip(ends, limits, strict=True)), error)
        rows.append((one, other, rounded_text(value, error), *texts))
    paragraphs = ["The first group less the second."]
    paragraphs += interval_paragraphs(intervals)
    paragraphs += more("pairs are shown", len(rows), len(first.names))
    return Section(
        heading=f"Differences of the {what}",
        paragraphs=paragraphs,
        columns=("group", "other group", "difference", *map(column_heading, ends)),
        rows=rows,
    )


def group_paragraphs(group: "PublishedGroups") -> list[str]:
    """Say how a statistic of groups was made, how far it may be off, whether the groups differ,
    and where noise dominates.
    """
    faint = [f"{text}." for text in faint_text(group.request, *faint_groups(group))]
    if group.noise.absent:
        return [NOTHING_MEASURED, *faint]
    paragraphs = [*answered_text(group.request), _measured_text(group)]
    naive, expected = group.noise.naive_l2, group.noise.expected_l2
    if naive and expected:
        saved = naive / expected
        paragraphs.append(
            f"Ordinary differential privacy at the same guarantee would need about {saved:.2g}"
            " times as much noise in the sums, and noise in the counts besides."
        )
    paragraphs += grid_warning(group)
    for by, comparison in zip(group.request.shown_sets, group.comparisons, strict=True):
        # One group with records has nothing to be compared with.
        if comparison.degrees:
            paragraphs.append(_difference_text(set_text(by), comparison))
    paragraphs += _spread_paragraphs(group)
    if group.intervals:
        paragraphs += interval_paragraphs(group.intervals[0])
    return paragraphs + faint


def _measured_text(group: "PublishedGroups") -> str:
    counted = added_up_text(group.request)
    divided = " Noisy sums were divided by the exact counts."
    if group.request.statistic == "sum":
        divided = ""
    mechanism, scale = group.noise.mechanism, _scale(group)
    return (
        f"{counted} The sums were measured with the {mechanism} mechanism (scale {scale}).{divided}"
        " The standard errors are those of the noise alone; the picture shows two of them to each"
        " side. An estimate outside the bounds is due to noise."
    )


def _spread_paragraphs(group: "PublishedGroups") -> list[str]:
    """Say that the spread within groups was not measured, where something depends on it."""
    compared = any(part.about is About.sampling for part in group.comparisons)
    if group.request.binary or not compared:
        return []
    intervals = group.intervals[0] if group.intervals else ()
    sampled = any(part.about is About.sampling for part in intervals)
    wide = ", and intervals for the population too wide rather than too narrow" if sampled else ""
    return [
        f"The spread of {group.outcome.column} within groups was not measured: the largest that the"
        f" bounds allow at each mean was taken, so that p is too large rather than too small{wide}."
    ]


def grid_warning(group: "PublishedGroups") -> list[str]:
    """Say that rounding may have moved an estimate by more than the noise did, where it may."""
    if not any(part.coarse for part in group.estimates):
        return []
    width, statistic = plain(group.outcome.width), group.request.statistic
    return [
        f"The grid is coarse: rounding to steps of {width} can have moved a {statistic} by up to"
        " half a step a record, which is more than its standard error. Values that lie on the grid"
        " are not moved; for others choose a finer grid."
    ]


def _difference_text(by: str, comparison: Comparison) -> str:
    """Say whether the means of one set differ, by more than what, and by which reference."""
    degrees = "1 degree of freedom"
    if comparison.degrees > 1:
        degrees = f"{comparison.degrees} degrees of freedom"
    against = "" if comparison.reference == "χ²" else f" by {comparison.reference}"
    # The meaning of p first: Q and its degrees of freedom are for those who ask for them.
    meaning = (
        f"p = {comparison.p_value:.3g}: with equal true means they would differ this much in a"
        " share p of all cases"
    )
    numbers = f"For specialists: Q = {comparison.statistic:.4g} with {degrees}{against}."
    if comparison.about is About.noise:
        return (
            f"Do the means by {by} differ by more than the noise? {meaning}. Sampling is not"
            f" allowed for. {numbers}"
        )
    return (
        f"Do the means by {by} differ by more than sampling and the noise explain? {meaning}."
        f" {numbers}"
    )


def details(group: "PublishedGroups") -> Details:
    """Say how a statistic of groups was measured, and on which grid."""
    scale = f"scale {scale_text(group.noise.scale)} in steps"
    return grid_details(title(group), scale, group.outcome)


def file_words(group: "PublishedGroups") -> list[tuple[str, str]]:
    """Say what the files hold: the estimates of each set, and after them its differences."""
    sets = group.request.shown_sets
    differences = group.request.files[len(sets) :]
    words = []
    for number, by in enumerate(sets):
        what = f"the {statistic_text(group.request)} by {set_text(by)}{whose(group.request)}"
        words.append((group.request.files[number], f"{what}, one row a group"))
        if differences:
            words.append((differences[number], f"differences of {what}, one row a pair"))
    return words
