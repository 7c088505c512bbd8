"""What a release says of distributions by groups."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from semidp.promise.exact import count_noun
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.sections import LISTED_ROWS, Details, Section
from semidp.publish.results.texts import more, number_text, scale_text
from semidp.publish.statistics.distribution.distribution_picture import MOST_DRAWN
from semidp.publish.statistics.outcomes.words import (
    NOTHING_MEASURED,
    answered_text,
    clipped_text,
    count_heading,
    counted_text,
    estimate_lines,
    first_few,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.distribution.published import (
        DistributionSet,
        PublishedDistribution,
    )


CURVE_MEANINGS = {
    "below": "where the values of the outcome are cut: half way between steps, or at a line",
    "share": "the estimated share of the group with a value below it",
    "lower": "the lower end of an interval for this share",
    "upper": "the upper end of an interval for this share",
    "band_lower": "the lower end of the band that holds all shares of the group at once",
    "band_upper": "the upper end of the band that holds all shares of the group at once",
}
"""What the columns of curves mean, for the description of their files."""
_REASONS = {
    "intervals": (
        "a distribution, whose intervals reach fewer ranks than those of chosen quantiles at the"
        " same cost"
    ),
    "values": (
        "a distribution, whose quantiles are closer than as many chosen ones at the same cost"
    ),
    "asked": "a distribution, as was asked",
}
"""Why quantiles were read off a distribution."""


def title(result: "PublishedDistribution") -> str:
    """Name distributions of groups: the distribution of score by school."""
    request = result.request
    sets = " and by ".join(set_text(by) for by in request.shown_sets) + whose(request)
    column = request.outcome.column
    if request.answers is not None:
        return (
            f"{quantiles_text(column, request.probabilities)} by {sets}, read off its distribution"
        )
    return f"distribution of {column} by {sets}"


def noisy_lines(result: "PublishedDistribution") -> list[str]:
    """Say how many groups have a distribution."""
    groups = sum(len(part.groups) for part in result.sets)
    return [f"{title(result)}: {count_noun(groups, 'group')}"]


def summary_lines(result: "PublishedDistribution") -> list[tuple[str, str]]:
    """Return the mechanism, what is listed, and the first groups, for a terminal."""
    if result.releases > 1:
        together = f"{title(result)}: from {result.releases} releases"
        return [("estimate", together), *estimate_lines(group_lines(result))]
    how = (
        f"{result.noise.mechanism}, scale {scale_text(result.noise.scale)} in each difference of"
        " halves"
    )
    lines = [("mechanism", how)]
    if result.request.answers is not None:
        lines.append(("choice", _REASONS[result.request.answers]))
    if result.headings:
        lines.append(("columns", ", ".join(map(_heading, result.headings))))
    return lines + estimate_lines(group_lines(result))


def group_lines(result: "PublishedDistribution") -> list[str]:
    """Return what is listed of each group with its intervals, a line a group, the first few."""
    lines = []
    for part in result.sets:
        for place, group in enumerate(part.groups):
            name, count = " · ".join(group), int(part.counts[place])
            listed = ", ".join(_interval_texts(result, part, place)) if count else "none"
            lines.append(f"{name}: {listed} ({counted_text(result.request, count)})")
    return first_few(lines)


def _interval_texts(
    result: "PublishedDistribution", part: "DistributionSet", place: int
) -> list[str]:
    """What is listed of one group, each with its interval: 55 (52 to 57)."""
    texts = []
    for number, interval in enumerate(part.listed):
        text = number_text if number < len(result.request.probabilities) else percent_text
        value = text(float(interval.values[place]))
        lower = text(float(interval.lower[place]))
        upper = text(float(interval.upper[place]))
        texts.append(f"{value} ({lower} to {upper})")
    return texts


def percent_text(share: float) -> str:
    """Write a share in percent.

    >>> percent_text(0.61668)
    '61.7%'
    """
    return f"{share:.1%}"


def sections(result: "PublishedDistribution") -> list[Section]:
    """Return a section for each set of groups, the first with what is said of the measurement."""
    sets = enumerate(result.request.shown_sets)
    return [_set_section(result, number, by) for number, by in sets]


def _set_section(result: "PublishedDistribution", number: int, by: Margin) -> Section:
    part = result.sets[number]
    occupied = np.flatnonzero(part.counts).tolist()
    rows = []
    for place in islice(occupied, LISTED_ROWS):
        label = " · ".join(part.groups[place])
        count = f"{part.counts[place]:,}"
        rows.append((label, count, *_interval_texts(result, part, place)))
    heading, paragraphs = f"Published {title(result)}", describe_measurement(result)
    if number > 0:
        # What is said of the first set holds for all.
        heading, paragraphs = f"The same by {set_text(by)}", []
    paragraphs += more("groups are shown", len(rows), len(occupied))
    column, counts = result.request.outcome.column, count_heading(result.request)
    return Section(
        heading=heading,
        paragraphs=paragraphs,
        figure=result.plot(by=number),
        figure_label=f"Distribution of {column} by {set_text(by)}, with bands",
        caption=_caption(len(occupied)),
        columns=[" · ".join(by.names), counts, *map(_heading, result.headings)],
        rows=rows,
        empty=_empty_groups(part),
    )


def _caption(groups: int) -> str:
    """Say what a picture shows of the groups with records."""
    which = "all groups"
    if groups > MOST_DRAWN:
        which = f"the first {MOST_DRAWN} groups of {groups:,}"
    return (
        f"The share of records below each value, of {which}. The shade is the band that holds the"
        " whole curve."
    )


def _empty_groups(part: "DistributionSet") -> list[str]:
    """Name the groups without records."""
    places = np.flatnonzero(part.counts == 0).tolist()
    return [" · ".join(part.groups[place]) for place in places]


def _heading(name: str) -> str:
    """What a listed number is called above the list: share below 50.

    >>> _heading("q0.5"), _heading("below_50")
    ('median', 'share below 50')
    """
    if name.startswith("below_"):
        return name.replace("below_", "share below ")
    return quantile_heading(name)


def column_meanings(headings: Sequence[str]) -> dict[str, str]:
    """Say what the listed columns mean, for the description of their files.

    >>> column_meanings(["q0.5"])["q0.5_lower"]
    'the lower end of an interval for the median'
    """
    meanings = {}
    for name in headings:
        called = _heading(name)
        meanings[name] = f"the estimated {called}"
        meanings[f"{name}_lower"] = f"the lower end of an interval for the {called}"
        meanings[f"{name}_upper"] = f"the upper end of an interval for the {called}"
    return meanings


def describe_measurement(result: "PublishedDistribution") -> list[str]:
    """Say how distributions were measured, and what their intervals and bands are about."""
    noise, request = result.noise, result.request
    level = f"{float(100 * request.level):g}%"
    if result.releases > 1:
        return [_describe_combination(result), _about_intervals(level)]
    if noise.absent:
        return [NOTHING_MEASURED]
    asked = []
    if request.answers is not None:
        asked = [
            f"Quantiles were asked for, and measured by {_REASONS[request.answers]}. It answers"
            " further questions."
        ]
    return [
        *asked,
        *answered_text(request),
        (
            f"{clipped_text(request.outcome)}. The range of values was cut into two halves, each"
            " half again into two, and so on down to single values. For every cut and in each group"
            " one number was measured with noise: the number of records in the left half less that"
            f" in the right half ({noise.mechanism}, scale {scale_text(noise.scale)} in each"
            " difference). The number of records up to any value follows from a few of these"
            " differences and the exact size of the group. So all shares and all quantiles come at"
            " one cost."
        ),
        _about_intervals(level),
    ]


def _about_intervals(level: str) -> str:
    return (
        f"Each interval holds the share or the quantile of these records with {level} probability."
        " It comes from the law of the noise. That of a quantile also holds half a step of the grid"
        " to each side, by which values were rounded. A line cuts where it lies: a record with"
        " exactly that value is not below it. A band holds the whole curve of its group"
        f" with {level} probability. Neither is about a population that the records were drawn"
        " from."
    )


def _describe_combination(result: "PublishedDistribution") -> str:
    """Say how distributions of several releases were brought together."""
    return (
        f"{clipped_text(result.request.outcome)}. {result.releases} releases cut the range of"
        " values into halves, again and again, and measured the number of records in each left half"
        " less that in the right half, in each of their groups. Here every difference is the best"
        " linear unbiased estimate from all of them: an average weighted by precision, which also"
        " uses what sets of groups have in common."
    )


def details(result: "PublishedDistribution") -> Details:
    """Say how distributions were measured."""
    cuts = len(result.cuts)
    if result.releases > 1:
        best = f"the best linear unbiased estimate from {result.releases} releases"
        return Details(f"the {title(result)}", best)
    scale = scale_text(result.noise.scale)
    how = f"scale {scale} in each of {cuts:,} differences of halves a group"
    return Details(f"the {title(result)}", how)


def file_words(result: "PublishedDistribution") -> list[tuple[str, str]]:
    """Say what the two files of each set of groups hold."""
    request = result.request
    words = []
    for place, by in enumerate(request.shown_sets):
        curves, listed = request.file_pair(place)
        what = f"distribution of {request.outcome.column} by {set_text(by)}{whose(request)}"
        words.append((curves, f"the {what}, one row a group and cut"))
        listing = "quantiles" if not request.lines else "quantiles and shares below lines"
        words.append((listed, f"{listing} of the {what}, one row a group"))
    return words
