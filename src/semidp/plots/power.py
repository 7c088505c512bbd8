"""Pictures of tests: how often they find an effect."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from semidp.plots.style import CYCLE, GREY, MARKERS, drawing, plain_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def power_plot(
    odds_ratios: Sequence[float] | ArrayLike, curves: Mapping[str, ArrayLike], alpha: float, title: str = ""
) -> "Figure":
    """Draw power against the odds ratio (on a logarithmic axis), one line for each test, the level as a rule.

    Examples
    --------
    >>> figure = power_plot([1, 2, 4], {"semi-private": [0.05, 0.4, 0.9], "naive": [0.05, 0.1, 0.3]}, alpha=0.05)
    >>> [line.get_label() for line in figure.axes[0].get_lines()][1:]
    ['semi-private', 'naive']
    """
    x = np.asarray(odds_ratios, dtype=float)
    with drawing(5.8, 4.0) as (figure, axes):
        axes.axhline(alpha, color=GREY, linewidth=1, linestyle=":", label=f"level {alpha:g}")
        for (label, values), color, marker in zip(curves.items(), CYCLE, MARKERS, strict=False):
            every = max(1, len(x) // 8)
            axes.plot(
                x,
                np.asarray(values),
                color=color,
                marker=marker,
                markevery=every,
                markersize=5,
                linewidth=2,
                label=label,
            )
        axes.set_xscale("log", base=2)
        plain_numbers(axes.xaxis)
        axes.set(ylim=(0, 1.02), title=title, xlabel="odds ratio", ylabel="power: P(the test rejects)")
        axes.legend(loc="best", fontsize=9)
    return figure
