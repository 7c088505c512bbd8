"""The picture of distributions by group: a curve with its band for each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.publish.plots.style import BLUE, GREY, Figure, drawing, grouped_ticks

Floats = NDArray[np.float64]

MOST_DRAWN = 12
"""The groups that are drawn."""

_BESIDE = 3  # pictures in a row
_LONGEST_NAME = 26
_TICKS = (0, 0.25, 0.5, 0.75, 1)
_DRAWN = ("share", "band_lower", "band_upper")


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
        _draw(axes, labels[occupied[0]], cuts, curves, bounds, occupied[0])
        axes.set(xlabel=column, ylabel="share below the value")
        figure: Figure = axes.figure
        return figure
    beside = min(len(occupied), _BESIDE)
    rows = math.ceil(len(occupied) / beside)
    with drawing(0.8 + 2.5 * beside, 0.7 + 1.9 * rows, beside, rows) as (figure, panels):
        every = np.atleast_1d(panels).ravel()
        for panel, group in zip(every, occupied, strict=False):
            _draw(panel, labels[group], cuts, curves, bounds, group)
        for panel in every[len(occupied) :]:
            panel.set_axis_off()
        for panel in every[: len(occupied)]:
            grouped_ticks(panel.xaxis, 3)
        figure.supxlabel(column, fontsize=11)
        figure.supylabel("share below the value", fontsize=11)
    return figure


def _draw(
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
    panel.fill_between(places, low, high, step="mid", color=BLUE, alpha=0.22, linewidth=0)
    panel.step(places, share, where="mid", color=BLUE, linewidth=1.8)
    panel.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    panel.set_xlim(*bounds)
    panel.set_ylim(0, 1.02)
    panel.set_yticks(_TICKS, [f"{tick:.0%}" for tick in _TICKS], fontsize=9)
    panel.tick_params(axis="x", labelsize=9)
    shown = label
    if len(label) > _LONGEST_NAME:
        shown = f"{label[: _LONGEST_NAME - 1]}…"
    panel.set_title(shown, fontsize=10.5)
