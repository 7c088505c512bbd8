"""What a release publishes of those who answered, by groups."""

from typing import TYPE_CHECKING

import numpy as np

from semidp.promise.sensitivity.answered_space import grid_fineness, query_unit
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
)
from semidp.publish.results.texts import scale_text
from semidp.publish.statistics.answered.answered_estimates import AnsweredEstimates, AnsweredSums
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.outcomes.words import (
    BOUNDS_CAPTION,
    STATISTIC_MEANINGS,
    added_up_text,
    count_column,
    describe_intervals,
    drawn_bounds,
    faint_estimates,
    faint_reason,
    grid_fact,
    interval_columns,
    interval_paragraphs,
    set_text,
    statistic_text,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.answered.request import AnsweredRequest


def publish_answers(request: "AnsweredRequest", found: AnsweredSums) -> PublishedStatistic:
    """Return the numbers who answered, and sums, means or proportions of those, with intervals."""
    statistic, every = found.means, found.mean_intervals
    if request.statistic == "sum":
        statistic, every = found.sums, found.sum_intervals
    level, simultaneous = request.confidence.level, request.confidence.simultaneous
    unit = float(query_unit(request.outcome, grid_fineness(request.outcome)))
    scale = f"scale {scale_text(found.mechanism.scale * unit)}"
    sheets, intervals = [], []
    for number, block in enumerate(request.by):
        intervals.append(every(block, level, simultaneous))
        sheets.append(_sheet(request, found, number, statistic(block), intervals[-1]))
    sets = ", ".join(map(set_text, request.by))
    sentences = Sentences(
        title=f"{statistic_text(request)} by {sets}, of those who answered, and how many did",
        noise=f"{scale} in each sum",
        paragraphs=_paragraphs(request, found, scale, intervals[0]),
        further=grid_fact(request.outcome),
        faint=faint_reason(request),
    )
    facts = {
        "files": list(request.files),
        "unit": unit,
        "intervals": describe_intervals(intervals[:1]),
    }
    return publish_statistic(request, found, sentences, sheets, facts)


def _sheet(
    request: "AnsweredRequest",
    found: AnsweredSums,
    number: int,
    estimates: AnsweredEstimates,
    intervals: Intervals,
) -> Sheet:
    """The file of one set of groups."""
    name = str(request.statistic)
    part = found.space.slices[number]
    noisy = np.asarray(found.measurement.noisy, dtype=np.int64).reshape(2, -1)[:, part]
    values, errors = estimates.values, estimates.standard_errors
    # Where there is no mean at all, noise dominates, too.
    faint = faint_estimates(request, values, errors) | ~np.isfinite(values)
    what = f"{statistic_text(request)} by {set_text(request.by[number])}"
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(request.by[number]), estimates.groups),
            count_column(request, estimates.counts),
            RoleColumn(
                "answered",
                Role.base,
                estimates.answered,
                "the estimated number of records with a value",
            ),
            RoleColumn(
                "answered_error",
                Role.error,
                estimates.answered_errors,
                "the standard error of that number, from the noise alone",
            ),
            *estimate_columns(name, values, errors, STATISTIC_MEANINGS[name]),
            *interval_columns([intervals]),
            RoleColumn(
                "noisy_answered",
                Role.noisy,
                noisy[0],
                "the weighted number of records with a value, as drawn",
            ),
            RoleColumn(
                "noisy_about_middle",
                Role.noisy,
                noisy[1],
                "the noisy sum as drawn, in parts of a step above the middle of the bounds",
            ),
        ),
        words=f"the {what} of those who answered, and how many did, one row a group",
        heading=f"Published {what}, of those who answered",
        faint=faint & (estimates.counts > 0),
        axis=statistic_text(request),
        bounds=drawn_bounds(request),
        caption=BOUNDS_CAPTION,
    )


def _paragraphs(
    request: "AnsweredRequest", found: AnsweredSums, scale: str, intervals: Intervals
) -> tuple[str, ...]:
    """Say how the statistic was made, and what its intervals are about."""
    is_sum = request.statistic == "sum"
    divided = "" if is_sum else " The sum was divided by the number who answered."
    # The column of ok=Y is ok.
    source = request.outcome.column.partition("=")[0]
    paragraphs = [
        f"Records without a value of {source} did not answer. How many answered in a group is"
        " protected like their values: both were measured together, and both are estimates.",
        f"{added_up_text(request)} The sums were measured with the {found.mechanism.name} mechanism"
        f" ({scale}).{divided} The standard errors are those of the noise alone; two of them to"
        " each side are drawn.",
        *interval_paragraphs([intervals]),
    ]
    if not is_sum:
        paragraphs.append(
            "The intervals allow for the noise in the sum and in the number who answered (Fieller);"
            " they need not lie evenly about the estimate. Where fewer than one are estimated to"
            " have answered, there is no estimate."
        )
    return tuple(paragraphs)
