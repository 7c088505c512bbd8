"""Several mechanisms under one invariant: the group argument first, or composition first.

"Semi-DP first" is ``f1^∘a ⊗ … ⊗ fk^∘a`` and never worse than "composition first",
``(f1 ⊗ … ⊗ fk)^∘a``; how much better depends on the mechanisms, and for Gaussian ones not at all.
"""

import math
from typing import Any

import numpy as np

from semidp.applications.study import PAPER, Settings, Tidy
from semidp.promise import Tradeoff, approximate, compose, gaussian
from semidp.publish import style

RECORDS_TOGETHER = 3
DELTAS = ("1e-2", "1e-4", "1e-6")
ALPHAS = np.linspace(0, 1, 101)
SEMI_FIRST, COMPOSITION_FIRST = "semi-DP first", "composition first"


def families() -> dict[str, list[Tradeoff]]:
    """Return the mechanisms that are composed, by what they guarantee for one record.

    >>> [len(parts) for parts in families().values()]
    [2, 20, 3, 4]
    """
    half = approximate("0.5")
    mixed = [gaussian("0.5"), half, approximate("0.5", "1e-9")]
    return {
        "pure: 2 × ε = 0.5": [half] * 2,
        "approximate: 20 × (ε, δ) = (0.1, 1e-9)": [approximate("0.1", "1e-9")] * 20,
        "mixed: μ = 0.5, ε = 0.5, (0.5, 1e-9)": mixed,
        "Gaussian: 4 × μ = 0.25 (no difference)": [gaussian("0.25")] * 4,
    }


def strategies(parts: list[Tradeoff], a: int = RECORDS_TOGETHER) -> dict[str, Tradeoff]:
    """Return the curve of a composition under A_a in both orders.

    >>> both = strategies([approximate(1), approximate(1)], a=2)
    >>> both["semi-DP first"].compare(both["composition first"])
    <Order.STRONGER: 'stronger'>
    """
    groups = [part.group(a) for part in parts]
    composed = compose(*parts)
    return {SEMI_FIRST: compose(*groups), COMPOSITION_FIRST: composed.group(a)}


def compute(settings: Settings = PAPER) -> Tidy:
    """Return for each family and order, under A_3: the curve at 101 points, δ at ε = 0, and ε at
    three δ.

    δ at ε = 0 is the attacker's advantage: the most by which hits can exceed false alarms.
    """
    rows = []
    for family, parts in settings.each("compositions", families().items()):
        both = strategies(parts)
        order = both[SEMI_FIRST].compare(both[COMPOSITION_FIRST])
        for strategy, curve in both.items():
            # The order is that of semi-DP first; in the row of the other it is reversed.
            seen = order if strategy == SEMI_FIRST else order.reverse()
            row = {
                "family": family,
                "a": RECORDS_TOGETHER,
                "strategy": strategy,
                "order": seen.value,
            }
            rows.append(row | _quantity("delta", 0.0, curve.delta(0)))
            for delta in DELTAS:
                rows.append(row | _quantity("epsilon", float(delta), curve.epsilon(delta)))
            values = np.asarray(curve(ALPHAS)).tolist()
            for alpha, value in zip(ALPHAS.tolist(), values, strict=True):
                rows.append(row | _quantity("f(alpha)", alpha, value))
    return Tidy.from_rows(rows)


def _quantity(name: str, at: float, value: float) -> dict[str, Any]:
    return {"quantity": name, "at": at, "value": value}


def plot(table: Tidy) -> style.Figure:
    """Draw both orders as error curves, a panel for each family, with the attacker's advantage."""
    families = table.distinct("family")
    with style.drawing(9.0, 8.6, columns=2, rows=math.ceil(len(families) / 2)) as (figure, grid):
        for axes, family in zip(np.ravel(grid), families, strict=False):
            _panel(axes, table.where(family=family))
            axes.set_title(family, fontsize=11)
        figure.suptitle(
            f"Several mechanisms, {table['a'][0]} records that move together: which argument comes"
            " first"
        )
    return figure


def _panel(axes: Any, part: Tidy) -> None:
    axes.plot([0, 1], [1, 0], color=style.GREY, linewidth=1, label="guessing (perfect privacy)")
    for strategy, color, dashes in (
        (SEMI_FIRST, style.BLUE, "-"),
        (COMPOSITION_FIRST, style.ORANGE, "--"),
    ):
        curve = part.where(strategy=strategy, quantity="f(alpha)")
        advantage = part.where(strategy=strategy, quantity="delta")["value"][0]
        label = f"{strategy}: advantage {advantage:.3f}"
        # The paper's f takes one less the type I error, and the axis shows that error itself.
        false_alarms = 1 - np.array(curve["at"])
        look = {"color": color, "linestyle": dashes, "linewidth": 2}
        axes.plot(false_alarms, curve["value"], label=label, **look)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="false alarms (type I error)")
    axes.set_ylabel("misses (type II error)")
    axes.legend(loc="upper right", fontsize=8.5)
