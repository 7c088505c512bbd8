"""What a release publishes of distributions by groups, and their picture: a curve with its band for
each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from semidp.promise.exact import number, plain
from semidp.publish.plotting import BLUE, GREY, SKY, Figure, drawing, grouped_ticks, shorten_name
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
from semidp.publish.statistics.outcomes.groups import (
    answered_text,
    clipped_text,
    count_column,
    interval_columns,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)
from semidp.publish.statistics.outcomes.noise_law import Intervals
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.distribution.kind import DistributionRequest

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
                " that holds the whole curve. Values with hardly any record are left out at both"
                " ends.",
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


MOST_DRAWN = 12
"""The groups that are drawn."""

_BESIDE = 3  # pictures in a row
_LONGEST_NAME = 26
_TICKS = (0, 0.25, 0.5, 0.75, 1)
_DRAWN = ("share", "band_lower", "band_upper")
_TAIL = 0.005  # of the records, which is left out at both ends of the axis


def distribution_plot(
    labels: Sequence[str],
    cuts: Floats,
    curves: Mapping[str, Floats],
    column: str,
    bounds: tuple[float, float],
    axes: Any = None,
) -> Figure | None:
    """Draw the share of records below each cut, with the band that holds the whole curve, a
    picture a group.

    The first twelve groups with records are drawn, with `axes` the first alone; None where there is
    none.

    Parameters
    ----------
    labels
        What the groups are called.
    cuts
        Where shares are measured.
    curves
        The columns of a published distribution, a row a group.
    column, bounds
        What is cut, and between which bounds it lies.

    Examples
    --------
    >>> rows = {name: np.array([[0.5]]) for name in ("share", "band_lower", "band_upper")}
    >>> distribution_plot(["a"], np.array([0.5]), rows, "score", (0, 1)).axes[0].get_title()
    'a'
    """
    has_records = np.isfinite(curves["share"]).all(axis=1)
    occupied = np.flatnonzero(has_records)[:MOST_DRAWN].tolist()
    if not occupied:
        return None
    if axes is not None:
        _draw_group(axes, labels[occupied[0]], cuts, curves, bounds, occupied[0])
        low, high = (curves[name][occupied[:1]] for name in _DRAWN[1:])
        axes.set_xlim(*_drawn_span(cuts, low, high, bounds))
        axes.set(xlabel=column, ylabel="share below the value")
        figure: Figure = axes.figure
        return figure
    beside = min(len(occupied), _BESIDE)
    rows = math.ceil(len(occupied) / beside)
    with drawing(0.8 + 2.5 * beside, 0.7 + 1.9 * rows, beside, rows) as (figure, panels):
        every = np.atleast_1d(panels).ravel()
        low, high = (curves[name][occupied] for name in _DRAWN[1:])
        span = _drawn_span(cuts, low, high, bounds)
        for panel, group in zip(every, occupied, strict=False):
            _draw_group(panel, labels[group], cuts, curves, bounds, group)
        for panel in every[len(occupied) :]:
            panel.set_axis_off()
        for panel in every[: len(occupied)]:
            panel.set_xlim(*span)
            grouped_ticks(panel.xaxis, 3)
        figure.supxlabel(column, fontsize=11)
        figure.supylabel("share below the value", fontsize=11)
    return figure


def _draw_group(
    panel: Any,
    label: str,
    cuts: Floats,
    curves: Mapping[str, Floats],
    bounds: tuple[float, float],
    group: int,
) -> None:
    """Draw one group, with the records between two cuts half way: where those of a step lie."""
    # Above the upper bound lies nobody.
    places = np.append(cuts, 2 * bounds[1] - cuts[-1])
    share, low, high = (np.append(curves[name][group], 1.0) for name in _DRAWN)
    panel.fill_between(places, low, high, step="mid", color=SKY, alpha=0.55, linewidth=0)
    panel.step(places, share, where="mid", color=BLUE, linewidth=1.1)
    panel.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    panel.set_ylim(0, 1.02)
    panel.set_yticks(_TICKS, [f"{tick:.0%}" for tick in _TICKS], fontsize=9)
    panel.tick_params(axis="x", labelsize=9)
    panel.set_title(shorten_name(label, _LONGEST_NAME), fontsize=10.5)


def _drawn_span(
    cuts: Floats, low: Floats, high: Floats, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return the part of the axis where curves rise: declared bounds are often far wider.

    A curve has risen where its band, from `low` to `high`, reaches all records or nearly so.

    >>> rising = np.array([[0.0, 0.1, 0.7, 1.0, 1.0, 1.0]])
    >>> _drawn_span(np.arange(1.0, 7.0), rising, rising, (0.0, 100.0))
    (1.0, 4.0)
    """
    started = np.flatnonzero((low > _TAIL).any(axis=0))
    ended = np.flatnonzero((high >= 1 - _TAIL).all(axis=0))
    first, last = bounds
    if started.size and started[0] > 0:
        first = float(cuts[started[0] - 1])
    if ended.size:
        last = float(cuts[ended[0]])
    return (first, last) if first < last else bounds
