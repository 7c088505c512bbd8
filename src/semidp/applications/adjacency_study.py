"""The paper's examples of the semi-adjacent parameter a(t), and small cases where its two readings
part.

`worst_case` is what semidp publishes, `definition` the paper's Definition read literally. Proofs
and tests are in `docs/errata.md`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from semidp import Dataspace, Feature, Margin, Schema, Table, semi_adjacency
from semidp.applications.study import PAPER, Settings, Tidy
from semidp.publish import style


@dataclass(frozen=True)
class Example:
    """One invariant: what it is, the margins that are published, a table that has it, and what the
    paper says.
    """

    text: str
    published: str
    counts: ArrayLike
    paper: str

    def dataspace(self) -> Dataspace:
        """Return the datasets that agree with what is published.

        >>> example = EXAMPLES[0]
        >>> example.text, semi_adjacency(example.dataspace()).worst_case
        ('three bits, two of them 1', 2)
        """
        shape = np.shape(self.counts)
        features = []
        for name, size in zip("ABCD", shape, strict=False):
            features.append(Feature(name, map(str, range(size))))
        table = Table(Schema(features), self.counts)
        margins = [Margin(*names) for names in self.published.split(", ")]
        return Dataspace.from_table(table, margins)


def _bits(*records: str) -> ArrayLike:
    """Return the counts of records of one bit a feature."""
    features = len(records[0])
    counts = np.zeros((2,) * features, dtype=np.int64)
    bits = [list(map(int, record)) for record in records]
    # counts[index] += 1 would count equal records once.
    np.add.at(counts, tuple(np.array(bits).T), 1)
    return counts


_ALIKE = _bits(*["000"] * 3, *["111"] * 7)

# A number is what the paper says, "at most" what its Theorem gives; empty where it says nothing.
EXAMPLES: tuple[Example, ...] = (
    Example("three bits, two of them 1", "A", [1, 2], "2"),
    Example("three bits, none of them 1", "A", [3, 0], "0"),
    Example("2 x 2, margins (2,1) and (2,1)", "A, B", [[1, 1], [1, 0]], "3"),
    # The rarest levels have four records together, more than n - 1, so the Theorem is not sharp.
    Example("2 x 2, margins (2,2) and (2,2)", "A, B", [[1, 1], [1, 1]], "at most 3"),
    Example("three features, one by one", "A, B, C", _ALIKE, "at most 4"),
    Example("the same, A and B jointly", "AB, C", _ALIKE, "at most 3"),
    Example("the same, all three jointly", "ABC", _ALIKE, "2"),
    Example(
        "three features, margins (1,2) each", "A, B, C", _bits("011", "101", "110"), "at most 4"
    ),
    # Against the paper's Remark: these finer margins need more records than A, B and C do.
    Example("three features in pairs", "AB, BC, AC", _bits("000", "011", "101", "110", "111"), ""),
    # Overlapping margins: here even the literal reading needs three records.
    Example(
        "four features, records 0010, 1001, 1100", "AB, BC, CD", _bits("0010", "1001", "1100"), ""
    ),
    Example("population of 52 states", "A", np.arange(1000, 1052), "2"),
)


def compute(settings: Settings = PAPER) -> Tidy:
    """Return a(t) of every example: as the paper has it, in the worst case, and by its Definition.

    >>> compute().where(published="A, B")["worst_case"]
    [3, 2]
    """
    rows = []
    for example in EXAMPLES:
        computed = semi_adjacency(example.dataspace())
        row: dict[str, Any] = {"example": example.text, "published": example.published}
        row["paper"] = example.paper
        row["worst_case"] = computed.worst_case
        row["definition"] = computed.definition
        row["method"] = computed.method
        rows.append(row)
    return Tidy.from_rows(rows)


def plot(table: Tidy) -> style.Figure:
    """Draw the two readings and the paper's number, an example a line."""
    lines = np.arange(len(table))
    exact = [int(text) if text.isdigit() else np.nan for text in table["paper"]]
    # "at most 3" ends with its number
    bounds = []
    for text in table["paper"]:
        bounds.append(int(text.split()[-1]) if " " in text else np.nan)
    with style.drawing(8.6, 1.6 + 0.42 * len(table)) as (figure, axes):
        marks: dict[str, Any] = {"color": style.ORANGE, "markeredgewidth": 2, "linestyle": "none"}
        axes.plot(
            exact,
            lines,
            marker="s",
            markersize=14,
            markerfacecolor="none",
            label="the paper",
            **marks,
        )
        axes.plot(bounds, lines, marker="|", markersize=20, label="the paper: at most", **marks)
        axes.plot(
            table["worst_case"],
            lines,
            "o",
            color=style.BLUE,
            markersize=9,
            label="worst case, what semidp uses",
        )
        marks |= {"color": style.BLACK, "markeredgewidth": 1.6}
        axes.plot(
            table["definition"],
            lines,
            marker="x",
            markersize=6,
            label="Definition read literally",
            **marks,
        )
        names = [f"{row['example']} · {row['published']}" for row in table.records()]
        axes.set_yticks(lines, names)
        axes.invert_yaxis()
        axes.set(xlim=(-0.3, 5.6), xticks=range(6), xlabel="a(t): how many records move together")
        figure.suptitle("The semi-adjacent parameter: examples, and what is published exactly")
        figure.legend(loc="outside lower center", ncols=2, labelspacing=1.0)
    return figure
