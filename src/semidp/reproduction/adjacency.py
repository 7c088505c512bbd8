"""The paper's examples of the semi-adjacent parameter a(t), and small cases where its two readings part.

`worst_case` is what semidp publishes, `definition` the paper's Definition read literally. Proofs and tests are in
`docs/errata.md`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from semidp import Dataspace, Feature, Margin, Schema, SemiAdjacency, Table, semi_adjacency
from semidp.plots.style import BLACK, BLUE, ORANGE, Figure, drawing
from semidp.reproduction.base import PAPER, Settings, Tidy


@dataclass(frozen=True)
class Example:
    """One invariant: what it is, a table that has it, the margins that are published, and what the paper says."""

    text: str
    published: str
    counts: object
    margins: tuple[tuple[str, ...], ...]
    paper: str

    def found(self) -> SemiAdjacency:
        """Return a(t) in both readings.

        >>> example = EXAMPLES[0]
        >>> example.text, example.found().worst_case
        ('three bits, two of them 1', 2)
        """
        counts = np.array(self.counts)
        features = [
            Feature("ABCD"[axis], tuple(str(level) for level in range(size))) for axis, size in enumerate(counts.shape)
        ]
        table = Table(Schema(tuple(features)), counts)
        return semi_adjacency(Dataspace.of(table, [Margin(*names) for names in self.margins]))


def _table(shape: tuple[int, ...], *cells: tuple[int, ...]) -> object:
    """Return the counts of a table with one record at each of the cells."""
    counts = np.zeros(shape, dtype=np.int64)
    for cell in cells:
        counts[cell] += 1
    return counts.tolist()


_ALIKE = [(0, 0, 0)] * 3 + [(1, 1, 1)] * 7

EXAMPLES: tuple[Example, ...] = (
    Example("three bits, two of them 1", "A", [1, 2], (("A",),), "2"),
    Example("three bits, none of them 1", "A", [3, 0], (("A",),), "0"),
    Example("2 x 2, margins (2,1) and (2,1)", "A, B", [[1, 1], [1, 0]], (("A",), ("B",)), "3"),
    Example("2 x 2, margins (2,2) and (2,2)", "A, B", [[1, 1], [1, 1]], (("A",), ("B",)), "at most 3"),
    Example("three features, one by one", "A, B, C", _table((2, 2, 2), *_ALIKE), (("A",), ("B",), ("C",)), "at most 4"),
    Example("the same, A and B jointly", "AB, C", _table((2, 2, 2), *_ALIKE), (("A", "B"), ("C",)), "at most 3"),
    Example("the same, all three jointly", "ABC", _table((2, 2, 2), *_ALIKE), (("A", "B", "C"),), "2"),
    Example(
        "three features, margins (1,2) each",
        "A, B, C",
        _table((2, 2, 2), (0, 1, 1), (1, 0, 1), (1, 1, 0)),
        (("A",), ("B",), ("C",)),
        "at most 4",
    ),
    Example(
        "three features in pairs",
        "AB, BC, AC",
        _table((2, 2, 2), (0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1)),
        (("A", "B"), ("B", "C"), ("A", "C")),
        "",
    ),
    Example(
        "four features, records 0010, 1001, 1100",
        "AB, BC, CD",
        _table((2, 2, 2, 2), (0, 0, 1, 0), (1, 0, 0, 1), (1, 1, 0, 0)),
        (("A", "B"), ("B", "C"), ("C", "D")),
        "",
    ),
    Example("population of 52 states", "A", [1000 + state for state in range(52)], (("A",),), "2"),
)


def compute(settings: Settings = PAPER) -> Tidy:
    """Return a(t) of every example: as the paper has it, in the worst case, and by its Definition.

    >>> compute().where(published="A, B")["worst_case"]
    [3, 2]
    """
    rows = []
    for example in EXAMPLES:
        found = example.found()
        row: dict[str, Any] = {"example": example.text, "published": example.published, "paper": example.paper}
        rows.append(row | {"worst_case": found.worst_case, "definition": found.definition, "method": found.method})
    return Tidy.of(rows)


def plot(table: Tidy) -> Figure:
    """Draw the two readings and the paper's number, an example a line."""
    lines = np.arange(len(table))
    exact = [int(text) if text.isdigit() else np.nan for text in table["paper"]]
    bounds = [int(text.split()[-1]) if " " in text else np.nan for text in table["paper"]]
    with drawing(8.6, 1.6 + 0.42 * len(table)) as (figure, axes):
        style: dict[str, Any] = {"color": ORANGE, "markeredgewidth": 2, "linestyle": "none"}
        axes.plot(exact, lines, marker="s", markersize=14, markerfacecolor="none", label="the paper", **style)
        axes.plot(bounds, lines, marker="|", markersize=20, label="the paper: at most", **style)
        axes.plot(table["worst_case"], lines, "o", color=BLUE, markersize=9, label="worst case, what semidp uses")
        style |= {"color": BLACK, "markeredgewidth": 1.6}
        axes.plot(table["definition"], lines, marker="x", markersize=6, label="Definition read literally", **style)
        axes.set_yticks(lines, [f"{row['example']} · {row['published']}" for row in table.records()])
        axes.invert_yaxis()
        axes.set(xlim=(-0.3, 5.6), xticks=range(6), xlabel="a(t): how many records move together")
        figure.suptitle("The semi-adjacent parameter: examples, and what is published exactly")
        figure.legend(loc="outside lower center", ncols=2, labelspacing=1.0)
    return figure
