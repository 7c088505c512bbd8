"""What a release says of any private outcome: how it was clipped, what its intervals are about, and
the columns that its statistics share.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import number, plain
from semidp.promise.schema.outcome import Outcome
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.role_columns import Role, RoleColumn
from semidp.publish.statistics.outcomes.noise_law import About, Intervals
from semidp.publish.statistics.outcomes.request import GroupedRequest, StatisticRequest

STATISTIC_MEANINGS = {
    "mean": "the mean, from noisy sums",
    "sum": "the noisy sum",
    "proportion": "the share of ones, from noisy sums",
}
"""What the column of a statistic by groups means, for the description of its file."""
ZEROS_AND_ONES = "Each record counted as 0 or 1."
"""What is said of an outcome that is a yes or no."""
BOUNDS_CAPTION = (
    "Estimates with two standard errors of the noise to each side. A declared bound that lies in"
    " the picture is a dotted line."
)
_ENDS = {
    About.noise: ("", "the value of these records"),
    About.sampling: ("population_", "the population that the records were drawn from"),
}
"""What the ends of an interval are called in a file, and what it is for."""


# --- columns


def count_column(request: GroupedRequest, counts: NDArray[np.int64]) -> RoleColumn:
    """Return the exact numbers of records of groups: of those who answered, where a statistic is of
    them.
    """
    if request.answered is None:
        return RoleColumn("count", Role.count, counts, heading="count (exact)")
    return RoleColumn(
        "count",
        Role.count,
        counts,
        heading="answered (exact)",
        text=lambda count: f"{count:,} answered",
    )


def interval_columns(
    intervals: Sequence[Intervals], before: str = "", called: str = ""
) -> list[RoleColumn]:
    """Return the columns that hold the ends of intervals.

    Parameters
    ----------
    intervals
        The intervals of one estimate.
    before, called
        What the names of the columns begin with, and what the estimate is called, where a file has
        several.
    """
    columns = []
    for part in intervals:
        start, what = _ENDS[part.about]
        name, of_what = (before, f"the {called}") if called else (start, what)
        for end, role in ((part.lower, Role.lower), (part.upper, Role.upper)):
            meaning = f"the {role.value} end of an interval for {of_what}"
            heading = f"{called}, {role.value}" if called else ""
            columns.append(RoleColumn(f"{name}{role.value}", role, end, meaning, heading))
    return columns


def describe_intervals(intervals: Sequence[Intervals]) -> list[dict[str, Any]]:
    """Return what intervals are about, as plain values; their ends are in files."""
    return [
        {
            "level": number(part.level),
            "about": str(part.about),
            "simultaneous": part.simultaneous,
            "exact": part.exact,
            "columns": [column.name for column in interval_columns([part])],
        }
        for part in intervals
    ]


def pair_column_names(names: Sequence[str]) -> list[str]:
    """Return the names of the levels of two groups, each a different one.

    >>> pair_column_names(["ward"]), pair_column_names(["x", "other_x"])
    (['ward', 'other_ward'], ['x', 'other_x', 'other_other_x', 'other_other_other_x'])
    """
    counted = list(names)
    for name in names:
        other = f"other_{name}"
        while other in counted:
            other = f"other_{other}"
        counted.append(other)
    return counted


def faint_estimates(
    request: StatisticRequest, values: NDArray[np.float64], errors: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return where noise dominates an estimate.

    It is smaller than two standard errors; or, of a mean, two standard errors to each side are half
    of its bounds.
    """
    bounds = float(request.outcome.upper - request.outcome.lower)
    small = np.abs(values) < 2 * errors
    # A mean may be anywhere between the bounds: half of them says next to nothing.
    return small if request.statistic == "sum" else small | (4 * errors >= bounds / 2)


def drawn_bounds(request: StatisticRequest) -> tuple[float, float] | None:
    """Return the bounds that are drawn: those of a record and of a mean; a sum may lie far beyond
    them.
    """
    if request.statistic == "sum":
        return None
    return float(request.outcome.lower), float(request.outcome.upper)


# --- sentences


def faint_reason(request: StatisticRequest) -> str:
    """Say why noise dominates a group."""
    vague = (
        "" if request.statistic == "sum" else ", or its range of 95% is half of the declared bounds"
    )
    return f"the estimate is smaller than two standard errors{vague}"


def clipped_text(outcome: Outcome) -> str:
    """Say how an outcome was brought to its grid.

    >>> clipped_text(Outcome("score", 0, 10, 20))
    "Each record's score was clipped to the declared bounds 0 and 10 and rounded to steps of 0.5"
    """
    return (
        f"Each record's {outcome.column} was clipped to the declared bounds {plain(outcome.lower)}"
        f" and {plain(outcome.upper)} and rounded to steps of {plain(outcome.width)}"
    )


def added_up_text(request: StatisticRequest) -> str:
    """Say what each record added to a sum: zeros and ones are neither clipped nor rounded."""
    if request.binary:
        return ZEROS_AND_ONES
    return f"{clipped_text(request.outcome)} before it was added up."


def grid_fact(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Say on which grid a statistic was measured, for specialists."""
    plural = "s" if outcome.steps > 1 else ""
    return (("Grid", f"{outcome.steps:,} step{plural} of {plain(outcome.width)}"),)


def interval_paragraphs(intervals: Sequence[Intervals]) -> list[str]:
    """Say what the intervals beside estimates are about."""
    return [_interval_text(part) for part in intervals]


def _interval_text(part: Intervals) -> str:
    share = f"{'' if part.exact else 'about '}{float(100 * part.level):g}%"
    together = f"with {share} probability each"
    if part.simultaneous:
        together = f"all at once, with {share} probability"
    if part.about is About.noise:
        return (
            f"The intervals from lower to upper hold the values of these records, {together}. They"
            " allow for the noise, and for rounding to the grid."
        )
    law = ": the law of a noisy count of ones was inverted" if part.exact else ""
    return (
        "The intervals for the population allow for sampling too. They hold the values of the"
        f" population that the records were drawn from, {together}{law}."
    )


def statistic_text(request: StatisticRequest) -> str:
    """Name a statistic and its column: mean of score."""
    return f"{request.statistic} of {request.outcome.column}"


def whose(request: GroupedRequest) -> str:
    """Say of whom a statistic is, after its groups; nothing where it is of everybody."""
    return "" if request.answered is None else ", of those who answered"


def answered_text(request: GroupedRequest) -> list[str]:
    """Say who answered, and that their number is exact; nothing where a statistic is of
    everybody.
    """
    if request.answered is None:
        return []
    source = request.outcome.column.partition("=")[0]
    return [
        f"Records without a value of {source} did not answer. How many answered in each group is"
        " published exactly, and what is published here is of those."
    ]


def set_text(by: Margin) -> str:
    """Name a set of groups: school and year.

    >>> set_text(Margin("school", "year"))
    'school and year'
    """
    return " and ".join(by.names)


def quantile_heading(name: str) -> str:
    """Return what the column of a quantile is called above a list.

    >>> quantile_heading("q0.5"), quantile_heading("q0.1")
    ('median', 'quantile 0.1')
    """
    return "median" if name == "q0.5" else f"quantile {name[1:]}"


def quantiles_text(column: str, probabilities: Sequence[Fraction]) -> str:
    """Name the quantiles of an outcome.

    >>> (
    ...     quantiles_text("score", [Fraction(1, 2)]),
    ...     quantiles_text("score", [Fraction(1, 4), Fraction(3, 4)]),
    ... )
    ('median of score', 'quantiles at 0.25, 0.75 of score')
    """
    if list(probabilities) == [Fraction(1, 2)]:
        return f"median of {column}"
    name = "quantile" if len(probabilities) == 1 else "quantiles"
    listed = ", ".join(map(plain, probabilities))
    return f"{name} at {listed} of {column}"
