"""Pictures of tests: how often they find an effect."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from semidp.plots.style import CYCLE, GREY, MARKERS, drawing, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def power_plot(
    odds_ratios: Sequence[float] | ArrayLike, curves: Mapping[str, ArrayLike], alpha: float, title: str = ""
) -> "Figure":
    """Draw power against the odds ratio, one line for each test: what `power_curves` returns.

    Examples
    --------
    >>> figure = power_plot([1, 2, 4], {"semi-private": [0.05, 0.4, 0.9], "naive": [0.05, 0.1, 0.3]}, alpha=0.05)
    >>> [line.get_label() for line in figure.axes[0].get_lines()][1:]
    ['semi-private', 'naive']
    """
    with drawing(5.8, 4.0) as (figure, axes):
        power_lines(axes, odds_ratios, curves, alpha)
        axes.set(title=title, ylabel="power: P(the test rejects)")
        axes.legend(loc="best", fontsize=9)
    return figure


def power_lines(
    axes: Any, odds_ratios: Sequence[float] | ArrayLike, curves: Mapping[str, ArrayLike], alpha: float
) -> None:
    """Draw the lines of one panel, odds ratios on a logarithmic axis, and the level of the tests as a rule."""
    x = np.asarray(odds_ratios, dtype=float)
    axes.axhline(alpha, color=GREY, linewidth=1, linestyle=":", label=f"level {alpha:g}")
    for (label, values), color, marker in zip(curves.items(), CYCLE, MARKERS, strict=False):
        every = max(1, len(x) // 8)
        axes.plot(x, np.asarray(values), color=color, marker=marker, markersize=4, markevery=every, label=label)
    axes.set_xscale("log", base=2)
    plain_numbers(axes.xaxis)
    axes.set(ylim=(0, 1.02), xlabel="odds ratio")
