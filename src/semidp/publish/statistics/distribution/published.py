"""What a release publishes of distributions by groups."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semidp.promise.exact import number, plain
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    label_columns,
    noisy_column,
)
from semidp.publish.results.texts import number_text, scale_text
from semidp.publish.statistics.distribution.distribution_estimates import (
    Floats,
    GroupDistributions,
    shares,
)
from semidp.publish.statistics.distribution.distribution_picture import (
    MOST_DRAWN,
    distribution_plot,
)
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.outcomes.words import (
    answered_text,
    clipped_text,
    count_column,
    interval_columns,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.distribution.request import DistributionRequest

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


def publish_distribution(
    request: "DistributionRequest", found: GroupDistributions
) -> PublishedStatistic:
    """Return distributions with their band, and the quantiles and shares that are to be listed."""
    mechanism = found.mechanism
    scale = f"scale {scale_text(mechanism.scale)}"
    asked, notes = [], []
    if request.answers is not None:
        reason = _REASONS[request.answers]
        notes = [("choice", reason)]
        asked = [
            f"Quantiles were asked for, and measured by {reason}. It answers further questions."
        ]
    sentences = Sentences(
        title=distribution_title(request),
        noise=f"{scale} in each of {len(cut_places(request)):,} differences of halves a group",
        paragraphs=(
            *asked,
            *answered_text(request),
            f"{clipped_text(request.outcome)}. The range of values was cut into two halves, each"
            " half again into two, and so on down to single values. For every cut and in each group"
            " one number was measured with noise: the number of records in the left half less that"
            f" in the right half ({mechanism.name}, {scale} in each difference). The number of"
            " records up to any value follows from a few of these differences and the exact size"
            " of the group. So all shares and all quantiles come at one cost.",
            about_intervals(request),
        ),
        notes=tuple(notes),
    )
    noisy = np.asarray(found.measurement.noisy, dtype=np.int64)
    return publish_statistic(
        request,
        found,
        sentences,
        distribution_sheets(request, found, noisy),
        distribution_facts(request),
    )


def distribution_title(request: "DistributionRequest") -> str:
    """Name distributions of groups: the distribution of score by school."""
    sets = " and by ".join(map(set_text, request.shown_sets)) + whose(request)
    column = request.outcome.column
    if request.answers is None:
        return f"distribution of {column} by {sets}"
    return f"{quantiles_text(column, request.probabilities)} by {sets}, read off its distribution"


def cut_places(request: "DistributionRequest") -> Floats:
    """Return where curves are measured: half way between steps of the grid, and at lines."""
    return np.array(request.cut_outcome.edges, float)


def distribution_facts(request: "DistributionRequest") -> dict[str, Any]:
    return {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "level": number(request.level),
    }


def about_intervals(request: "DistributionRequest") -> str:
    level = f"{float(100 * request.level):g}%"
    return (
        f"Each interval holds the share or the quantile of these records with {level} probability."
        " It comes from the law of the noise. That of a quantile also holds half a step of the grid"
        " to each side, by which values were rounded. A line cuts where it lies: a record with"
        " exactly that value is not below it. A band holds the whole curve of its group"
        f" with {level} probability. Neither is about a population that the records were drawn"
        " from."
    )


# --- files


def distribution_sheets(
    request: "DistributionRequest", found: GroupDistributions, noisy: Any
) -> list[Sheet]:
    """Two files for each set of groups: a row a group and cut, and a row a group."""
    cuts = cut_places(request)
    differences = noisy.reshape(-1, len(cuts))
    sheets, start = [], 0
    for place, block in enumerate(request.by):
        sizes, groups = found.sizes(block), found.groups(block)
        curves = _curves(found, place, sizes)
        end = start + len(groups)
        labels = [group for group in groups for _ in cuts]
        by = set_text(request.shown_sets[place])
        what = f"distribution of {request.outcome.column} by {by}{whose(request)}"
        curves_file, listed_file = request.file_pair(place)
        listing = "quantiles and shares below lines" if request.lines else "quantiles"
        sheets.append(
            Sheet(
                name=curves_file.removesuffix(".csv"),
                role_columns=(
                    *label_columns(found.columns(block), labels),
                    RoleColumn(
                        "below",
                        Role.place,
                        np.tile(cuts, len(groups)),
                        "where the values of the outcome are cut: half way between steps, or at a"
                        " line",
                    ),
                    *curves,
                    noisy_column("noisy", differences[start:end].ravel()),
                ),
                words=f"the {what}, one row a group and cut",
                is_main=False,
            )
        )
        occupied = int((sizes > 0).sum())
        which = "all groups"
        if occupied > MOST_DRAWN:
            which = f"the first {MOST_DRAWN} groups of {occupied:,}"
        sheets.append(
            Sheet(
                name=listed_file.removesuffix(".csv"),
                role_columns=(
                    *label_columns(found.columns(block), groups),
                    count_column(request, sizes.astype(np.int64)),
                    *_listed_columns(request, found, place),
                ),
                words=f"{listing} of the {what}, one row a group",
                heading=f"Published {what}",
                draw=partial(_draw, request, groups, curves),
                caption=f"The share of records below each value, of {which}. The shade is the band"
                " that holds the whole curve.",
                label=f"Distribution of {request.outcome.column} by {by}, with bands",
            )
        )
        start = end
    return sheets


def _curves(found: GroupDistributions, place: int, sizes: Floats) -> list[RoleColumn]:
    """The share of records below each cut, its interval, and the band of all cuts."""
    block = found.space.blocks[place]
    lower, upper = found.bounds(block)
    band_lower, band_upper = found.band(block)
    band = "of the band that holds all shares of the group at once"
    columns = (
        ("share", Role.estimate, found.up_to(block), "the estimated share of the group below it"),
        ("lower", Role.lower, lower, "the lower end of an interval for this share"),
        ("upper", Role.upper, upper, "the upper end of an interval for this share"),
        ("band_lower", Role.lower, band_lower, f"the lower end {band}"),
        ("band_upper", Role.upper, band_upper, f"the upper end {band}"),
    )
    return [
        RoleColumn(name, role, shares(counts, sizes).ravel(), meaning)
        for name, role, counts, meaning in columns
    ]


def _listed_columns(
    request: "DistributionRequest", found: GroupDistributions, place: int
) -> list[RoleColumn]:
    """The quantiles and the shares below lines that are listed, with their intervals."""
    block = request.by[place]
    numbers: list[tuple[str, Callable[[float], str], Intervals]] = [
        (f"q{plain(probability)}", number_text, intervals)
        for probability, intervals in zip(
            request.probabilities, found.quantiles(request.probabilities, block), strict=True
        )
    ]
    numbers += [
        (f"below_{plain(line)}", percent_text, found.shares_below(line, block))
        for line in request.lines
    ]
    columns = []
    for name, text, intervals in numbers:
        below = name.replace("below_", "share below ")
        called = quantile_heading(name) if name.startswith("q") else below
        meaning = f"the estimated {called}"
        columns.append(RoleColumn(name, Role.estimate, intervals.values, meaning, called, text))
        columns += interval_columns([intervals], f"{name}_", called)
    return columns


def percent_text(share: float) -> str:
    """Write a share in percent.

    >>> percent_text(0.61668)
    '61.7%'
    """
    return f"{share:.1%}" if np.isfinite(share) else "none"


def _draw(
    request: "DistributionRequest",
    groups: Sequence[tuple[str, ...]],
    curves: Sequence[RoleColumn],
    axes: Any,
) -> Any:
    """Draw the distributions of one set of groups with their bands."""
    cuts = cut_places(request)
    rows = {one.name: one.values.reshape(len(groups), len(cuts)) for one in curves}
    labels = [" · ".join(levels) for levels in groups]
    outcome = request.outcome
    bounds = (float(outcome.lower), float(outcome.upper))
    return distribution_plot(labels, cuts, rows, outcome.column, bounds, axes)
