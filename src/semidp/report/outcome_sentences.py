"""What a release says of a private outcome: statistics by groups, regressions, quantiles and their intervals."""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from semidp.core.exact import plain
from semidp.report.cells import number_text, scale_text
from semidp.sources.contract import Outcome
from semidp.statistics.outcomes.comparison import Comparison
from semidp.statistics.outcomes.intervals import About, Intervals
from semidp.statistics.quantiles.published import PublishedQuantiles
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.sums.published import PublishedGroups

_SHOWN_GROUPS = 12


def titled(group: PublishedGroups) -> str:
    """Name a statistic of groups: the mean of score by school."""
    sets = ", ".join(" and ".join(by.names) for by in group.request.by)
    return f"{group.request.statistic} of {group.outcome.column} by {sets}"


def regressed(regression: PublishedRegression) -> str:
    """Name a regression: the linear regression of days on arm."""
    request = regression.request
    return f"{request.model} regression of {request.outcome.column} on {' and '.join(request.factors)}"


def quantile_words(quantile: PublishedQuantiles) -> str:
    """Name the quantiles: the median, or those of several probabilities."""
    several = quantile.request.probabilities
    if len(several) == 1 and several[0] == Fraction(1, 2):
        return "median"
    return f"quantile{'s' if len(several) > 1 else ''} at {', '.join(plain(q) for q in several)}"


def quantiled(quantile: PublishedQuantiles) -> str:
    """Name quantiles of groups: the median of score by school."""
    by = " and by ".join(" and ".join(block.names) for block in quantile.request.by)
    return f"{quantile_words(quantile)} of {quantile.request.outcome.column} by {by}"


def quantile_paragraphs(quantile: PublishedQuantiles) -> list[str]:
    """Say how quantiles were chosen, how far they may be off, and what their intervals are about."""
    request = quantile.request
    if quantile.noise.absent:
        return ["There is no record, so there is nothing to choose and no noise."]
    said = [
        f"{_clipped(request.outcome)}. In each group a value was chosen at random, the likelier the fewer records "
        "would have to be replaced to make it the quantile, and the quantile itself the likelier the more would have "
        f"to be replaced to make it another ({quantile.noise.mechanism} mechanism: a factor e for "
        f"every {scale_text(quantile.noise.scale)} records). With 95% probability at most {quantile.rank_error:,} "
        "records lie between a chosen value and the true quantile of its group, whatever the data."
    ]
    if request.level is not None:
        said += interval_paragraphs(quantile.intervals[0][:1])
        said.append(
            "The ends of an interval were chosen in the same way, of ranks so far below and above that they rarely "
            "pass the quantile; an end at a declared bound says that the group is too small for that."
        )
    return said


def _clipped(outcome: Outcome) -> str:
    return (
        f"Each record's {outcome.column} was clipped to the declared bounds {plain(outcome.lower)} and "
        f"{plain(outcome.upper)} and rounded to steps of {plain(outcome.width)}"
    )


def quantile_lines(quantile: PublishedQuantiles) -> list[str]:
    """Return the quantiles, a line a group, the first few."""
    rows = [row for block in range(len(quantile.groups)) for row in quantile.rows(block)]
    return _first_few(
        f"{' · '.join(levels)}: {', '.join(map(number_text, numbers))} ({count:,} records)"
        for levels, count, numbers in rows
    )


def regression_paragraphs(regression: PublishedRegression) -> list[str]:
    """Say how a regression was made and how far it may be off."""
    request, noise = regression.request, regression.noise
    if noise.absent:
        return ["There is no record, so there is nothing to measure and no noise."]
    outcome = request.outcome
    counted = (
        "Each record counted as 0 or 1."
        if request.model == "logistic"
        else f"{_clipped(outcome)} before anything was added up."
    )
    return [
        f"{counted} The counts of the factors are exact, so that only {_measured(regression)} needed noise: the "
        f"{noise.mechanism} mechanism, scale {scale_text(noise.scale * float(outcome.width))}. The standard errors are "
        f"those of the noise alone. The first level of each factor is the reference ({request.coding} coding).",
        *interval_paragraphs(regression.intervals),
    ]


def _measured(regression: PublishedRegression) -> str:
    """Say what was measured for a regression."""
    query = regression.query or {"kind": "moments"}
    if query["kind"] == "sums":
        by = " and by ".join(" and ".join(names) or "all" for names in query["by"])
        return f"the sums of the outcome by {by}"
    if "combination" in query:
        return f"{len(query['combination'])} weighted sums of the outcome, chosen from the exact counts for accuracy,"
    return "the sums of the outcome over the columns of the design"


def interval_paragraphs(intervals: Sequence[Intervals]) -> list[str]:
    """Say what the intervals beside estimates are about."""
    said = []
    for part in intervals:
        share = f"{'' if part.exact else 'about '}{float(100 * part.level):g}%"
        together = f"all at once, with {share} probability" if part.simultaneous else f"with {share} probability each"
        if part.about is About.noise:
            said.append(f"The intervals from lower to upper hold the values of these records, {together}: noise alone.")
        else:
            law = ": the law of a noisy count of ones was inverted" if part.exact else ""
            said.append(
                "The intervals for the population allow for sampling besides: they hold the values of the population "
                f"that the records were drawn from, {together}{law}."
            )
    return said


def group_lines(group: PublishedGroups) -> list[str]:
    """Return the estimates of a statistic, a line each, the first few."""
    return _first_few(
        f"{' · '.join(levels)}: {number_text(value)} ± {number_text(error)} ({count:,} records)"
        if math.isfinite(value)
        else f"{' · '.join(levels)}: none (no records)"
        for part in group.estimates
        for levels, count, value, error in part.rows()
    )


def _first_few(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    more = len(found) - _SHOWN_GROUPS
    return [*found[:_SHOWN_GROUPS], *([f"and {more:,} more"] if more > 0 else [])]


def group_paragraphs(group: PublishedGroups) -> list[str]:
    """Say how a statistic of groups was made, how far it may be off, and whether the groups differ."""
    if group.noise.absent:
        return ["There is no record, so there is nothing to measure and no noise."]
    outcome = group.outcome
    clipped = (
        "Each record counted as 0 or 1."
        if group.request.statistic == "proportion"
        else f"{_clipped(outcome)} before it was added up."
    )
    divided = "" if group.request.statistic == "sum" else " Noisy sums were divided by the exact counts."
    first = (
        f"{clipped} The sums were measured with the {group.noise.mechanism} mechanism (scale "
        f"{scale_text(group.noise.scale * float(outcome.width))}).{divided} The standard errors are those of the noise "
        "alone; two of them to each side are drawn. Values outside the bounds are noise."
    )
    paragraphs = [first]
    if group.noise.naive_l2 and group.noise.expected_l2:
        saved = group.noise.naive_l2 / group.noise.expected_l2
        paragraphs.append(
            f"Ordinary differential privacy at the same guarantee would need about {saved:.2g} times as much noise in "
            "the sums, and noise in the counts besides."
        )
    paragraphs += grid_warning(group)
    for by, comparison in zip(group.request.by, group.comparisons, strict=True):
        if comparison.degrees:
            paragraphs.append(_difference(" and ".join(by.names), comparison))
    if group.request.statistic != "proportion" and any(part.about is About.sampling for part in group.comparisons):
        wide = ", and intervals for the population too wide rather than too narrow" if _sampled(group) else ""
        paragraphs.append(
            f"The spread of {outcome.column} within groups was not measured: the largest that the bounds allow at each "
            f"mean was taken, so that p is too large rather than too small{wide}."
        )
    return [*paragraphs, *(interval_paragraphs(group.intervals[0]) if group.intervals else ())]


def grid_warning(group: PublishedGroups) -> list[str]:
    """Say that rounding may have moved an estimate by more than the noise did, where it may."""
    if not any(part.coarse for part in group.estimates):
        return []
    return [
        f"The grid is coarse: rounding to steps of {plain(group.outcome.width)} can have moved a "
        f"{group.request.statistic} by up to half a step a record, which is more than its standard error. Values that "
        "lie on the grid are not moved; for others choose a finer grid."
    ]


def _sampled(group: PublishedGroups) -> bool:
    """Whether there are intervals for the population."""
    return any(part.about is About.sampling for part in (group.intervals[0] if group.intervals else ()))


def _difference(by: str, comparison: Comparison) -> str:
    """Say whether the means of one set differ, by more than what, and by which reference."""
    degrees = f"{comparison.degrees} degree{'s' if comparison.degrees > 1 else ''} of freedom"
    against = "" if comparison.reference == "χ²" else f" by {comparison.reference}"
    numbers = f"Q = {comparison.statistic:.4g} with {degrees}, p = {comparison.p_value:.3g}{against}"
    if comparison.about is About.noise:
        return f"Do the means by {by} differ by more than the noise? {numbers}. Sampling is not allowed for."
    return f"Do the means by {by} differ by more than sampling and the noise explain? {numbers}."
