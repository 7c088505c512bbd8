"""What a release says of those who answered, by groups."""

import math
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun
from semidp.promise.sensitivity.answered_space import grid_fineness, query_unit
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.sections import Details, Section
from semidp.publish.results.texts import FAINT_MARK, end_texts, estimate_text, scale_text
from semidp.publish.statistics.outcomes.published import interval_columns
from semidp.publish.statistics.outcomes.words import (
    NOTHING_MEASURED,
    STATISTIC_MEANINGS,
    added_up_text,
    estimates_section,
    faint_text,
    grid_details,
    interval_paragraphs,
    is_faint,
    set_text,
    statistic_summary,
    statistic_text,
    statistic_title,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.answered.published import PublishedAnswers


COLUMN_MEANINGS = {
    **STATISTIC_MEANINGS,
    "answered": "the estimated number of records with a value",
    "answered_error": "the standard error of that number, from the noise alone",
    "noisy_answered": "the weighted number of records with a value, as drawn",
    "noisy_about_middle": (
        "the noisy sum as drawn, in parts of a step above the middle of the bounds"
    ),
}
"""What its columns mean, for the description of its files."""


def title(result: "PublishedAnswers") -> str:
    """Name a statistic of those who answered."""
    return f"{statistic_title(result.request, result.request.by)}, of those who answered"


def noisy_lines(result: "PublishedAnswers") -> list[str]:
    """Say how many groups have an estimate, and that who answered is protected."""
    groups = sum(len(part.groups) for part in result.estimates)
    return [f"{title(result)}, and how many did: {count_noun(groups, 'group')}"]


def summary_lines(result: "PublishedAnswers") -> list[tuple[str, str]]:
    """Return the noise in the sums and the first estimates, for a terminal."""
    noise = f"{result.noise.mechanism}, scale {_scale(result)}"
    return statistic_summary(result.request, noise, _lines(result), *faint_groups(result))


def _scale(result: "PublishedAnswers") -> str:
    """Write the scale of the noise in a sum, in units of the outcome."""
    unit = query_unit(result.outcome, grid_fineness(result.outcome))
    return scale_text(result.noise.scale * float(unit))


def _lines(result: "PublishedAnswers") -> list[str]:
    """Return the estimates, a line each."""
    lines = []
    for part in result.estimates:
        for levels, count, answered, answered_error, value, error in part.rows():
            name = " · ".join(levels)
            if not count:
                lines.append(f"{name}: none (no records)")
                continue
            number = estimate_text(answered, answered_error)
            of_records = f"about {number} of {count:,} answered"
            if not math.isfinite(value):
                lines.append(f"{name}: none ({of_records})")
                continue
            mark = FAINT_MARK if _is_faint(result, value, error) else ""
            lines.append(f"{name}: {mark}{estimate_text(value, error)} ({of_records})")
    return lines


def _is_faint(result: "PublishedAnswers", value: float, error: float) -> bool:
    """Whether noise dominates an estimate: also where there is no mean at all."""
    return not math.isfinite(value) or is_faint(result.request, value, error)


def faint_groups(result: "PublishedAnswers") -> tuple[int, int]:
    """Return in how many groups noise dominates, and how many groups have records."""
    faint, groups = 0, 0
    for part in result.estimates:
        for _, count, _, _, value, error in part.rows():
            if count:
                groups += 1
                faint += _is_faint(result, value, error)
    return faint, groups


def sections(result: "PublishedAnswers") -> list[Section]:
    """Return a section for each set of groups, the first with what is said of the measurement."""
    return [_section(result, number, by) for number, by in enumerate(result.request.by)]


def _section(result: "PublishedAnswers", number: int, by: Margin) -> Section:
    estimates, ends = result.estimates[number], interval_columns([result.intervals[number]])
    rows, empty = [], []
    for estimate, *limits in zip(estimates.rows(), *ends.values(), strict=True):
        levels, count, answered, answered_error, value, error = estimate
        label = " · ".join(levels)
        if not count:
            empty.append(label)
            continue
        mark = FAINT_MARK if _is_faint(result, value, error) else ""
        shown, standard_error = "none", ""
        if math.isfinite(value):
            shown, _, standard_error = estimate_text(value, error).partition(" ± ")
        who = estimate_text(answered, answered_error)
        # The ends of an interval deserve the digits of the estimate.
        ends_shown = end_texts(dict(zip(ends, limits, strict=True)), error)
        rows.append((label, f"{count:,}", who, f"{mark}{shown}", standard_error, *ends_shown))
    # What is said of the first set holds for all.
    paragraphs = _paragraphs(result) if number == 0 else []
    what = f"{statistic_text(result.request)} by {set_text(by)}"
    return estimates_section(
        f"Published {what}, of those who answered",
        by,
        count="count (exact)",
        columns=["answered", str(result.request.statistic)],
        ends=ends,
        rows=rows,
        empty=empty,
        paragraphs=paragraphs,
        figure=result.plot(by=number),
    )


def _paragraphs(result: "PublishedAnswers") -> list[str]:
    """Say how the statistic was made, what its intervals are about, and where noise dominates."""
    if result.noise.absent:
        return [NOTHING_MEASURED]
    divided = " The sum was divided by the number who answered."
    if result.request.statistic == "sum":
        divided = ""
    paragraphs = [
        (
            f"Records without {_source(result)} did not answer. How many answered in a group is"
            " protected like their values: both were measured together, and both are estimates."
        ),
        (
            f"{added_up_text(result.request)} The sums were measured with the"
            f" {result.noise.mechanism} mechanism (scale {_scale(result)}).{divided} The standard"
            " errors are those of the noise alone; two of them to each side are drawn."
        ),
    ]
    paragraphs += interval_paragraphs(result.intervals[:1])
    if result.request.statistic != "sum":
        paragraphs.append(
            "The intervals allow for the noise in the sum and in the number who answered (Fieller);"
            " they need not lie evenly about the estimate. Where fewer than one are estimated to"
            " have answered, there is no estimate."
        )
    paragraphs += [f"{text}." for text in faint_text(result.request, *faint_groups(result))]
    return paragraphs


def _source(result: "PublishedAnswers") -> str:
    """The column that may be missing: that of ok=Y is ok."""
    return f"a value of {result.outcome.column.partition('=')[0]}"


def details(result: "PublishedAnswers") -> Details:
    """Say how a statistic of those who answered was measured, and on which grid."""
    scale = f"scale {_scale(result)} in each sum"
    return grid_details(title(result), scale, result.outcome)


def file_words(result: "PublishedAnswers") -> list[tuple[str, str]]:
    """Say what the files hold."""
    words = []
    for file, by in zip(result.request.files, result.request.by, strict=True):
        what = (
            f"the {statistic_text(result.request)} by {set_text(by)} of those who answered, and how"
            " many did"
        )
        words.append((file, f"{what}, one row a group"))
    return words
