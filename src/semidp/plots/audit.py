"""Pictures of audits: what attacks achieved, beside what the claim allows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from semidp.plots.style import BLUE, GREY, ORANGE, drawing
from semidp.tradeoff import Tradeoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Attack(Protocol):
    """What the picture needs of an attack: observed shares, and the bounds that hold with high confidence."""

    @property
    def size(self) -> float:
        """Share of false alarms."""

    @property
    def power(self) -> float:
        """Share of detections."""

    @property
    def size_high(self) -> float:
        """Upper bound of the false alarms."""

    @property
    def power_low(self) -> float:
        """Lower bound of the power."""

    @property
    def convicts(self) -> bool:
        """Whether the bounds refute the claim."""


def audit_plot(claim: Tradeoff, attacks: Sequence[Attack], title: str = "") -> "Figure":
    """Draw attacks as points with exact confidence bounds, and the claimed curve below which none may lie.

    A bar runs from what was observed to the corner that the truth does not exceed; an attack convicts where even that
    corner lies below the curve. Both axes are square-root scaled, since rare false alarms matter most.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from semidp.tradeoff import gaussian
    >>> attack = SimpleNamespace(size=0.1, power=0.4, size_high=0.11, power_low=0.39, convicts=False)
    >>> [text.get_text() for text in audit_plot(gaussian(1), [attack]).axes[0].get_legend().get_texts()][-1]
    'attack, with its confidence bound'
    """
    size = np.concatenate([np.geomspace(1e-6, 0.02, 200), np.linspace(0.02, 1, 300)])
    misses = np.asarray(claim(1 - size))
    with drawing(5.6, 4.6) as (figure, axes):
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        axes.set_yscale("function", functions=(np.sqrt, np.square))
        axes.plot(size, 1 - size, color=GREY, linewidth=1, label="guessing (perfect privacy)")
        axes.plot(size, misses, color=BLUE, linewidth=2, label="the claim: no attack below this curve")
        axes.fill_between(size, 0, misses, color=BLUE, alpha=0.08, linewidth=0)
        for convicts, color, marker, label in (
            (False, "#222222", "o", "attack, with its confidence bound"),
            (True, ORANGE, "X", "attack that refutes the claim"),
        ):
            chosen = [attack for attack in attacks if attack.convicts is convicts]
            if chosen:
                _draw(axes, chosen, color, marker, label)
        ticks = (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1)
        axes.set(xlim=(0, 1), ylim=(0, 1), title=title)
        axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
        axes.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])
        axes.set_xlabel("false alarms: P(says the other table | it was this one)")
        axes.set_ylabel("misses: P(says this table | it was the other one)")
        axes.legend(loc="lower left", fontsize=9.5)
    return figure


def _draw(axes: "object", attacks: Sequence[Attack], color: str, marker: str, label: str) -> None:
    x = np.array([attack.size for attack in attacks])
    y = 1 - np.array([attack.power for attack in attacks])
    right = np.array([attack.size_high for attack in attacks]) - x
    above = 1 - np.array([attack.power_low for attack in attacks]) - y
    axes.errorbar(  # type: ignore[attr-defined]
        *(x, y),
        xerr=[np.zeros_like(x), np.maximum(right, 0)],
        yerr=[np.zeros_like(y), np.maximum(above, 0)],
        fmt=marker,
        color=color,
        markersize=5 if marker == "o" else 7,
        elinewidth=1.2,
        capsize=2,
        label=label,
        zorder=3,
    )
