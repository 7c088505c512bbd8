"""The picture of distributions by group: a curve with its band for each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.output.plots.style import BLUE, GREY, Figure, drawing

Floats = NDArray[np.float64]

MOST_DRAWN = 12
"""The groups that are drawn."""

_BESIDE = 3  # pictures in a row
_LONGEST_NAME = 26


def distribution_plot(
    labels: Sequence[str], values: Floats, curves: Mapping[str, Floats], column: str, axes: Any = None
) -> Figure | None:
    """Draw the share of records up to each value, with the band that holds the whole curve, a picture a group.

    The first twelve groups with records are drawn, with `axes` the first alone; None where there is none.

    Parameters
    ----------
    labels
        What the groups are called.
    values
        The values of the grid.
    curves
        The columns of a published distribution, a row a group.
    column
        What the values are values of.

    Examples
    --------
    >>> rows = {name: np.array([[0.5]]) for name in ("share", "band_lower", "band_upper")}
    >>> distribution_plot(["a"], np.array([0.0, 1.0]), rows, "score").axes[0].get_title()
    'a'
    """
    occupied = np.flatnonzero(np.isfinite(curves["share"]).all(axis=1))[:MOST_DRAWN].tolist()
    if not occupied:
        return None
    if axes is not None:
        _draw(axes, labels[occupied[0]], values, curves, occupied[0])
        axes.set(xlabel=column, ylabel="share up to the value")
        figure: Figure = axes.figure
        return figure
    beside = min(len(occupied), _BESIDE)
    rows = math.ceil(len(occupied) / beside)
    with drawing(0.8 + 2.5 * beside, 0.7 + 1.9 * rows, beside, rows) as (figure, panels):
        every = np.atleast_1d(panels).ravel()
        for panel, group in zip(every, occupied, strict=False):
            _draw(panel, labels[group], values, curves, group)
        for panel in every[len(occupied) :]:
            panel.set_axis_off()
        figure.supxlabel(column, fontsize=11)
        figure.supylabel("share up to the value", fontsize=11)
    return figure


def _draw(panel: Any, label: str, values: Floats, curves: Mapping[str, Floats], group: int) -> None:
    """Draw one group: records lie on the grid, so that a share holds from its value up to the next."""
    band = []
    for name in ("band_lower", "band_upper"):
        band.append(np.append(curves[name][group], 1.0))
    panel.fill_between(values, band[0], band[1], step="post", color=BLUE, alpha=0.22, linewidth=0)
    panel.step(values, np.append(curves["share"][group], 1.0), where="post", color=BLUE, linewidth=1.8)
    panel.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    panel.set(xlim=(float(values[0]), float(values[-1])), ylim=(0, 1.02))
    panel.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"], fontsize=9)
    panel.tick_params(axis="x", labelsize=9)
    shown = label if len(label) <= _LONGEST_NAME else f"{label[: _LONGEST_NAME - 1]}…"
    panel.set_title(shown, fontsize=10.5)
