"""Exchange adjacency beside the ball: the loss of Gaussian noise against the number of exact
one-way totals.

A histogram over q features with exact totals and one that nobody publishes, that feature alone, and
the exact ones alone. Both are promises of their own; the study shows what each costs.
"""

import math
from typing import Any

import numpy as np

from semidp import Ball, Dataspace, Exchange, Feature, Margin, Schema, Table, sensitivity_space
from semidp.applications.study import PAPER, Settings, Tidy
from semidp.publish import style

EACH, MOST = 20, 4
TITLES = {
    "blocks and an unpublished feature": "table of q exact features\nand one that nobody publishes",
    "the unpublished feature": "table of the unpublished\nfeature alone",
    "blocks alone": "table of the q exact\nfeatures alone",
}


def blocks(q: int, unpublished: bool) -> Dataspace:
    """Return q features with exact totals, three levels each, and where asked one that nobody
    publishes.

    >>> blocks(2, unpublished=True).schema.names
    ('b1', 'b2', 'u')
    """
    names = [f"b{number + 1}" for number in range(q)]
    every = [*names, "u"] if unpublished else names
    schema = Schema([Feature(name, "012") for name in every])
    table = Table(schema, np.full(schema.shape, EACH))
    return Dataspace.from_table(table, [Margin(name) for name in names])


def compute(settings: Settings = PAPER) -> Tidy:
    """Return Δ2² and the expected loss at mu = 1, ``Δ2 sqrt(dim)``, under A_{q+1} and under
    exchange.

    >>> table = compute().where(table="blocks and an unpublished feature", q=2)
    >>> table["adjacency"], table["squares"]
    (['ball', 'exchange'], [18, 8])
    """
    rows = []
    for q in range(1, MOST + 1):
        beside, alone = blocks(q, unpublished=True), blocks(q, unpublished=False)
        tables = ((beside, None), (beside, ("u",)), (alone, None))
        for name, (public, released) in zip(TITLES, tables, strict=True):
            # q + 1 is the paper's bound on a(t); from q = 3 on equal totals need one record fewer.
            for adjacency in (Ball(q + 1), Exchange.from_dataspace(public)):
                space = sensitivity_space(public, adjacency, released)
                kind = str(adjacency.kind)
                row: dict[str, Any] = {"table": name, "q": q, "adjacency": kind}
                row |= {"squares": space.l2_squared, "exact": space.exact}
                row["loss"] = math.sqrt(space.l2_squared * space.dimension)
                rows.append(row)
    return Tidy.from_rows(rows)


def plot(table: Tidy) -> style.Figure:
    """Draw the loss against q, a panel a table, with Δ2² at each point."""
    with style.drawing(11, 4.9, columns=len(TITLES)) as (figure, panels):
        for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
            part = table.where(table=name)
            _curve(axes, part.where(adjacency="ball"), "ball")
            _curve(axes, part.where(adjacency="exchange"), "exchange")
            axes.set_title(title, fontsize=11)
            axes.set(xlabel="q, features with exact totals")
            axes.set(xticks=range(1, MOST + 1), xlim=(0.6, MOST + 0.5))
            highest = max(part["loss"])
            axes.set_ylim(-0.09 * highest, 1.12 * highest)
        panels[0].set_ylabel("expected loss at mu = 1")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            "Gaussian noise under the two adjacencies (numbers: Δ2², the squared sensitivity)"
        )
    return figure


def _curve(axes: Any, rows: Tidy, kind: str) -> None:
    """Draw the losses under one adjacency, with Δ2² beside each point."""
    if kind == "ball":
        colour, marker, size, shift, side = style.ORANGE, "s", 10, (-6, 8), "right"
        label = "ball: any q + 1 records change at once"
    else:
        colour, marker, size, shift, side = style.BLUE, "o", 5, (6, -15), "left"
        label = "exchange: one person changes, others hand over"
    look = {"color": colour, "marker": marker, "markersize": size}
    axes.plot(rows["q"], rows["loss"], label=label, **look)
    text_look = {"color": colour, "fontsize": 9, "ha": side}
    for row in rows.records():
        place = (row["q"], row["loss"])
        squares = f"{row['squares']}"
        axes.annotate(squares, place, shift, textcoords="offset points", **text_look)
