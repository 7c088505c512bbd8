"""What a release says of any private outcome: how it was clipped, what its intervals are about."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from semidp.promise.exact import count_noun, plain
from semidp.promise.schema.outcome import Outcome
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.sections import LISTED_ROWS, Details, Section
from semidp.publish.results.texts import FAINT_MARK, TOO_MANY, more, share_text
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.request import GroupedRequest, StatisticRequest

_SHOWN_GROUPS = 12  # on a terminal

STATISTIC_MEANINGS = {
    "mean": "the mean, from noisy sums",
    "sum": "the noisy sum",
    "proportion": "the share of ones, from noisy sums",
}
"""What the column of a statistic by groups means, for the description of its file."""
NOTHING_MEASURED = "There is no record, so there is nothing to measure and no noise."
"""What is said of an outcome without records."""
ZEROS_AND_ONES = "Each record counted as 0 or 1."
"""What is said of an outcome that is a yes or no."""
_ESTIMATES_CAPTION = (
    "Estimates with two standard errors of the noise to each side. A declared bound that lies in"
    " the picture is a dotted line."
)


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


def grid_details(title: str, scale: str, outcome: Outcome) -> Details:
    """Say how a statistic was measured, and on which grid."""
    plural = "s" if outcome.steps > 1 else ""
    grid = ("Grid", f"{outcome.steps:,} step{plural} of {plain(outcome.width)}")
    return Details(title, scale, (grid,))


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


def first_few(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and how many are left.

    >>> first_few(map(str, range(14)))[-2:]
    ['11', 'and 2 more']
    """
    every = list(lines)
    left = len(every) - _SHOWN_GROUPS
    if left <= 0:
        return every
    return [*every[:_SHOWN_GROUPS], f"and {left:,} more"]


def estimate_lines(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return lines of estimates for a terminal; only the first says what they are.

    >>> estimate_lines(["a: 1", "b: 2"])
    [('estimate', 'a: 1'), ('', 'b: 2')]
    """
    rows = [("", line) for line in lines]
    if rows:
        rows[0] = ("estimate", rows[0][1])
    return rows


def column_heading(column: str) -> str:
    """Return what the column of a file is called above a list of the report.

    >>> column_heading("population_lower")
    'population, lower'
    """
    return column.replace("_", ", ")


def quantile_heading(column: str) -> str:
    """Return what a column of quantiles is called above a list.

    >>> quantile_heading("q0.5"), quantile_heading("q0.1_lower")
    ('median', 'quantile 0.1, lower')
    """
    quantile, _, end = column.partition("_")
    called = "median" if quantile == "q0.5" else f"quantile {quantile[1:]}"
    return f"{called}, {end}" if end else called


def statistic_title(request: StatisticRequest, sets: Iterable[Margin]) -> str:
    """Name a statistic and its sets of groups: mean of score by school."""
    return f"{statistic_text(request)} by {', '.join(map(set_text, sets))}"


def statistic_summary(
    request: StatisticRequest, noise: str, estimates: Iterable[str], faint: int, groups: int
) -> list[tuple[str, str]]:
    """Return the noise in the sums, the first estimates, and where noise dominates, for a
    terminal.
    """
    lines = [("mechanism", f"{noise} in each sum"), *estimate_lines(first_few(estimates))]
    return lines + [("", text) for text in faint_text(request, faint, groups)]


def estimates_section(
    heading: str,
    by: Margin,
    *,
    count: str,
    columns: Sequence[str],
    ends: Iterable[str],
    rows: Sequence[Sequence[str]],
    empty: Sequence[str],
    paragraphs: Sequence[str],
    figure: Any,
) -> Section:
    """The section of one set of groups: a picture of its estimates, and a list of the first.

    Parameters
    ----------
    heading, paragraphs, figure
        What is said, and the picture.
    by, count
        The features of the groups, and what their sizes are called.
    columns, ends
        What is listed between the exact count and the standard error, and the columns of
        intervals.
    rows, empty
        The groups with records, and the names of those without.
    """
    listed = rows[:LISTED_ROWS]
    headings = [" · ".join(by.names), count, *columns, "standard error"]
    headings += map(column_heading, ends)
    return Section(
        heading=heading,
        paragraphs=[*paragraphs, *more("groups are shown", len(listed), len(rows))],
        figure=figure,
        caption=_ESTIMATES_CAPTION,
        columns=headings,
        rows=listed,
        empty=empty,
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


def counted_text(request: GroupedRequest, count: int) -> str:
    """Say how many records a group has: those who answered, where a statistic is of them.

    >>> from semidp.publish.statistics.sums.request import GroupRequest
    >>> everybody = GroupRequest("mean", Outcome("pay", 0, 9, 9), [["ward"]])
    >>> counted_text(everybody, 1), counted_text(everybody.of_answered("pay answered"), 1234)
    ('1 record', '1,234 answered')
    """
    if request.answered is not None:
        return f"{count:,} answered"
    return count_noun(count, "record")


def count_heading(request: GroupedRequest) -> str:
    """Return what the exact number of records of a group is called above a list."""
    return "count (exact)" if request.answered is None else "answered (exact)"


def is_faint(request: StatisticRequest, value: float, error: float) -> bool:
    """Whether noise dominates an estimate.

    It is smaller than two standard errors; or, of a mean, two standard errors to each side are half
    of its bounds.
    """
    bounds = float(request.outcome.upper - request.outcome.lower)
    # A mean may be anywhere between the bounds: half of them says next to nothing.
    vague = request.statistic != "sum" and 4 * error >= bounds / 2
    return abs(value) < 2 * error or vague


def faint_text(request: StatisticRequest, faint: int, groups: int) -> list[str]:
    """Say in how many groups noise dominates, and what the mark means; nothing where there is
    none.
    """
    if not faint:
        return []
    vague = (
        "" if request.statistic == "sum" else ", or its range of 95% is half of the declared bounds"
    )
    return [
        f"{FAINT_MARK} noise dominates {faint:,} of {count_noun(groups, 'group')}: the estimate is"
        f" smaller than two standard errors{vague}"
    ]


def faint_cautions(title: str, faint: int, groups: int) -> list[str]:
    """Warn of a statistic that noise dominates in more than a quarter of the groups."""
    if not faint or faint <= TOO_MANY * groups:
        return []
    return [
        f"Noise dominates {share_text(faint / groups)} of the groups of the {title}: ask for fewer"
        " or larger groups, tighter bounds or a larger budget."
    ]


def set_text(by: Margin) -> str:
    """Name a set of groups: school and year.

    >>> set_text(Margin("school", "year"))
    'school and year'
    """
    return " and ".join(by.names)


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
