"""Pictures by place: a map of estimates beside one of their errors, hatched where noise dominates;
or sorted bars.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semidp.output.place_maps import PlaceMap
from semidp.output.plots.style import BLUE, GREY, Figure, drawing

_MOST_BARS = 60
_NO_VALUE = "#EDEDED"


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

    >>> from semidp.output.place_maps import Outline
    >>> square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    >>> places = PlaceMap(
    ...     (Outline({"name": "north"}, (square,)), Outline({"name": "south"}, (square,)))
    ... )
    >>> panel = PlaceValues("ill", {"north": 7.0}, {"north": 2.0}, frozenset({"north"}))
    >>> len(place_map(places, [panel], "count").axes)
    4
    """
    with drawing(7.2, 3.1 * len(panels) + 0.2, columns=2, rows=len(panels)) as (figure, axes):
        for row, panel in zip(np.atleast_2d(axes), panels, strict=True):
            _draw(figure, row[0], places, panel, panel.values, what, "Blues")
            _draw(figure, row[1], places, panel, panel.errors, "standard error", "Oranges")
            row[0].set_title(panel.title, fontsize=10)
    return figure


def _draw(
    figure: Any,
    axes: Any,
    places: PlaceMap,
    panel: PlaceValues,
    numbers: Mapping[str, float],
    what: str,
    shades: str,
) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outlined

    numbered, _ = places.named(list(numbers))
    finite = [number for number in numbers.values() if np.isfinite(number)]
    scale = Normalize(min([0.0, *finite]), max(finite, default=1.0) or 1.0)
    colors = colormaps[shades]
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
    axes.set_axis_off()
    figure.colorbar(ScalarMappable(scale, colors), ax=axes, label=what, shrink=0.8)


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
    return figure
