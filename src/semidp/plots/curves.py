"""Pictures of guarantees: what an attacker can and cannot do, as a curve."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from semidp.plots.style import BLUE, CYCLE, GREY, drawing
from semidp.tradeoff import Tradeoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", "-.", ":")


def tradeoff_plot(curves: Mapping[str, Tradeoff], title: str = "") -> "Figure":
    """Draw tradeoff functions as error curves: false alarms against misses of the best attacker.

    The diagonal is an attacker who guesses; the closer a curve lies to it, the more private. In the convention of
    the package ``f(alpha)`` is the smallest type II error at type I error ``1 - alpha``.

    Examples
    --------
    >>> from semidp.tradeoff import gaussian
    >>> figure = tradeoff_plot({"one record": gaussian(1), "three records": gaussian(3)})
    >>> len(figure.axes)
    1
    """
    alpha = 1 - np.concatenate([np.linspace(0, 0.02, 60), np.linspace(0.02, 1, 200)])
    with drawing(4.2, 3.9) as (figure, axes):
        axes.plot([0, 1], [1, 0], color=GREY, linewidth=1, label="guessing (perfect privacy)")
        for (label, curve), color, style in zip(curves.items(), CYCLE, _STYLES, strict=False):
            axes.plot(1 - alpha, np.asarray(curve(alpha)), color=color, linestyle=style, linewidth=2, label=label)
        if len(curves) == 1:
            values = np.asarray(next(iter(curves.values()))(alpha))
            axes.fill_between(1 - alpha, values, 1 - (1 - alpha), color=BLUE, alpha=0.08, linewidth=0)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=title)
        ticks = (0, 0.25, 0.5, 0.75, 1)
        axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
        axes.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])
        axes.set_xlabel("false alarms")
        axes.set_ylabel("misses")
        axes.legend(loc="upper right", fontsize=9.5)
    return figure


def loss_plot(losses: Mapping[str, float], title: str = "") -> "Figure":
    """Draw expected losses as bars, the first one highlighted, each with its number.

    >>> figure = loss_plot({"semidp": 17.1, "ordinary DP by group privacy": 34.0})
    >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
    [17.1, 34.0]
    """
    names, values = list(losses), list(losses.values())
    with drawing(4.2, 0.9 + 0.45 * len(names)) as (figure, axes):
        bars = axes.barh(names, values, color=[BLUE] + [GREY] * (len(names) - 1), height=0.6)
        axes.bar_label(bars, [f"{value:,.1f}" for value in values], padding=4, fontsize=10)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlim(0, max(values, default=1) * 1.18 or 1)
        axes.set_xlabel("expected distance from the truth")
        axes.set_title(title)
    return figure
