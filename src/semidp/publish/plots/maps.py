"""Pictures by place: a map of estimates beside one of their errors, hatched where noise dominates;
or sorted bars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semidp.publish.plots.style import BLUE, GREY, Figure, drawing, grouped_ticks
from semidp.publish.results.place_maps import PlaceMap

_MOST_BARS = 60
_NO_VALUE = "#EDEDED"
_MAP_POINTS = np.array([185.0, 190.0])  # how wide and high a map is drawn, about
# of names: their size, how wide a letter is beside it, and how far one may reach beyond its place
_NAME_SIZE, _LETTER, _OVERHANG = 7.0, 0.55, 1.15


@dataclass(frozen=True)
class PlaceValues:
    """What is numbered of places: estimates, standard errors, and where noise dominates, by their
    labels.
    """

    title: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    faint: frozenset[str]


def place_map(places: PlaceMap, panels: Sequence[PlaceValues], what: str) -> Figure:
    """Draw a row for each panel: the estimates, and their standard errors; hatched where noise
    dominates.

    >>> from semidp.publish.results.place_maps import Outline
    >>> square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    >>> places = PlaceMap(
    ...     (Outline({"name": "north"}, (square,)), Outline({"name": "south"}, (square,)))
    ... )
    >>> panel = PlaceValues("ill", {"north": 7.0}, {"north": 2.0}, frozenset({"north"}))
    >>> len(place_map(places, [panel], "count").axes)
    4
    """
    with drawing(7.2, 3.1 * len(panels) + 0.2, columns=2, rows=len(panels)) as (figure, axes):
        values = _span(places, panels, [panel.values for panel in panels])
        errors = _span(places, panels, [panel.errors for panel in panels])
        for row, panel in zip(np.atleast_2d(axes), panels, strict=True):
            _draw(figure, row[0], places, panel, panel.values, Shades(what, "Blues", *values))
            shades = Shades("standard error", "Oranges", *errors)
            _draw(figure, row[1], places, panel, panel.errors, shades)
            row[0].set_title(panel.title, fontsize=10)
    return figure


@dataclass(frozen=True)
class Shades:
    """Meaning of the shades of one map: what they show, their colours, and the range of numbers."""

    what: str
    colors: str
    low: float
    high: float


def _span(
    places: PlaceMap, panels: Sequence[PlaceValues], numbers: Sequence[Mapping[str, float]]
) -> tuple[float, float]:
    """Return the least and the largest number that the shades of every panel tell apart.

    Only places that are drawn count, and those without a hatch where there are such: one place of
    mere noise would leave all others the same shade.
    """
    clear, drawn = [0.0], [0.0]
    for panel, by_label in zip(panels, numbers, strict=True):
        for label in places.match_labels(list(by_label))[0]:
            if np.isfinite(by_label[label]):
                drawn.append(by_label[label])
                clear += [] if label in panel.faint else [by_label[label]]
    spanned = clear if len(clear) > 1 else drawn
    return min(spanned), max(spanned) or 1.0


def _draw(
    figure: Any,
    axes: Any,
    places: PlaceMap,
    panel: PlaceValues,
    numbers: Mapping[str, float],
    shades: Shades,
) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outlined

    numbered, _ = places.match_labels(list(numbers))
    # What lies beyond has the last shade, and the bar an arrow.
    scale = Normalize(shades.low, shades.high, clip=True)
    colors = colormaps[shades.colors]
    label_of = {number: label for label, number in numbered.items()}
    for number, outline in enumerate(places.outlines):
        label = label_of.get(number)
        value = np.nan if label is None else numbers[label]
        path = Outlined.make_compound_path(
            *(Outlined(np.array(ring)) for ring in outline.rings if len(ring) > 2)
        )
        style: dict[str, Any] = {
            "facecolor": colors(scale(value)) if np.isfinite(value) else _NO_VALUE
        }
        # Noise dominates: the shade alone would be believed.
        style["hatch"] = "////" if label in panel.faint else None
        axes.add_patch(PathPatch(path, edgecolor="#666666", linewidth=0.5, **style))
    axes.autoscale_view()
    axes.set_aspect("equal")
    _write_names(axes, places, label_of)
    axes.set_axis_off()
    shown = [numbers[label] for label in numbered if np.isfinite(numbers[label])]
    bar = figure.colorbar(
        ScalarMappable(scale, colors),
        ax=axes,
        label=shades.what,
        shrink=0.8,
        extend=_extend_sides(shown, shades),
    )
    grouped_ticks(bar.ax.yaxis)


def _write_names(axes: Any, places: PlaceMap, label_of: Mapping[int, str]) -> None:
    """Write the names of places where they are wide enough; others are left to the table."""
    from matplotlib.patheffects import withStroke

    rings = {number: _largest_ring(places.outlines[number].rings) for number in label_of}
    corners = np.concatenate([np.array(ring) for ring in rings.values()] or [np.zeros((1, 2))])
    extent = np.maximum(np.ptp(corners, axis=0), 1e-9)
    points = float(np.min(_MAP_POINTS / extent))
    for number, ring in rings.items():
        outline = np.array(ring)
        width = float(np.ptp(outline[:, 0])) * points
        name = label_of[number]
        if _LETTER * _NAME_SIZE * len(name) > _OVERHANG * width:
            continue
        middle = (outline.min(axis=0) + outline.max(axis=0)) / 2
        halo = [withStroke(linewidth=2.2, foreground="white")]
        where = {"ha": "center", "va": "center"}
        axes.text(*middle, name, fontsize=_NAME_SIZE, path_effects=halo, **where)


def _largest_ring(rings: Sequence[Sequence[tuple[float, float]]]) -> Sequence[tuple[float, float]]:
    """The ring with the largest frame: the mainland, and not an island."""
    return max(rings, key=lambda ring: float(np.prod(np.ptp(np.array(ring), axis=0))))


def _extend_sides(numbers: Sequence[float], shades: Shades) -> str:
    """Say to which sides numbers lie beyond the shades, as matplotlib calls it."""
    below, above = min(numbers, default=0.0) < shades.low, max(numbers, default=0.0) > shades.high
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def sorted_bars(panel: PlaceValues, what: str) -> Figure | None:
    """Draw one estimate a place as a bar, the largest first, with two standard errors; None for too
    many.

    >>> panel = PlaceValues("", {"a": 3.0, "b": 9.0}, {"a": 1.0, "b": 1.0}, frozenset({"a"}))
    >>> [text.get_text() for text in sorted_bars(panel, "count").axes[0].get_yticklabels()]
    ['b', 'a']
    """
    labels = [label for label, value in panel.values.items() if np.isfinite(value)]
    if not 2 < len(labels) + 1 <= _MOST_BARS + 1:
        return None
    labels.sort(key=lambda label: -panel.values[label])
    values = [panel.values[label] for label in labels]
    reach = [2 * panel.errors[label] for label in labels]
    with drawing(5.4, 0.9 + 0.26 * len(labels)) as (figure, axes):
        colors = [GREY if label in panel.faint else BLUE for label in labels]
        bars = axes.barh(
            range(len(labels)),
            values,
            xerr=reach,
            color=colors,
            height=0.7,
            ecolor="#222222",
            capsize=2,
        )
        for bar, label in zip(bars, labels, strict=True):
            bar.set_hatch("////" if label in panel.faint else None)
        axes.set(
            xlabel=what,
            yticks=range(len(labels)),
            yticklabels=labels,
            ylim=(len(labels) - 0.5, -0.5),
        )
        grouped_ticks(axes.xaxis)
    return figure
