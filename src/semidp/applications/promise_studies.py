"""What is promised: how many records move together, where two datasets can lie, and in which order
promises add up.

Three studies of the paper: the semi-adjacent parameter (section 3.4), sensitivity spaces (figure 1)
and composition (section 3.6); and exchange adjacency next to the ball.
"""

import math
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp import (
    Ball,
    Budget,
    Dataspace,
    Exchange,
    Feature,
    Margin,
    Schema,
    Table,
    semi_adjacency,
    sensitivity_space,
)
from semidp.applications.study import PAPER, Settings, Tidy, both_margins, build_table
from semidp.promise import KNormMechanism, QuerySpace, Tradeoff, approximate, compose, gaussian
from semidp.publish import style


@frozen
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
    """Return the counts of records of one bit per feature."""
    features = len(records[0])
    counts = np.zeros((2,) * features, dtype=np.int64)
    bits = [list(map(int, record)) for record in records]
    # counts[index] += 1 would count equal records once.
    np.add.at(counts, tuple(np.array(bits).T), 1)
    return counts


_ALIKE = _bits(*["000"] * 3, *["111"] * 7)

# A number is what the paper says, "at most" what its Theorem gives; empty if it says nothing.
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


def compute_adjacency(settings: Settings = PAPER) -> Tidy:
    """Return a(t) of every example: as the paper has it, in the worst case, and by its Definition.

    The paper's examples of the semi-adjacent parameter a(t), and small cases where its two
    readings part.

    `worst_case` is what semidp publishes, `definition` the paper's Definition read literally.
    Proofs and tests are in `docs/errata.md`.

    >>> compute_adjacency().where(published="A, B")["worst_case"]
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


def plot_adjacency(table: Tidy) -> style.Figure:
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


SHAPE = (7, 6)
FOUR_CELLS, THREE_CYCLE = "four-cell move", "three-cycle"
_CELLS = {
    FOUR_CELLS: {(2, 2): 1, (5, 5): 1, (2, 5): -1, (5, 2): -1},  # the paper's indices
    THREE_CYCLE: {(2, 2): 1, (4, 4): 1, (6, 5): 1, (2, 4): -1, (4, 5): -1, (6, 2): -1},
}


def space(a: int, shape: tuple[int, int] = SHAPE) -> QuerySpace:
    """Return S_a of a two-way table with both margins public and three records in every cell.

    >>> [(space(a, (3, 3)).l1, space(a, (3, 3)).l2_squared, space(a, (3, 3)).linf) for a in (2, 3)]
    [(4, 4, 1), (6, 6, 1)]
    """
    table = build_table(np.full(shape, 3))
    return sensitivity_space(both_margins(table), Ball(a))


def compute_sensitivity_space(settings: Settings = PAPER) -> Tidy:
    """Return each move cell by cell, with its norms: the last is the K-norm in the hull of the
    four-cell moves.

    The moves that noise must hide when both margins of a 7 x 6 table are public: the paper's
    figure, and what it lacks.

    Two records that exchange a value change four cells. Three records can also go round in a
    circle and change six: such three-cycles belong to A_3 and are missing in the paper. The
    moves come from the library's own list.

    >>> table = compute_sensitivity_space()
    >>> table.columns
    ('move', 'records', 'l1', 'l2_squared', 'linf', 'four_cell_norm', 'row', 'column', 'change')
    >>> [table.where(move=move)["four_cell_norm"][0] for move in table.distinct("move")]
    [1.0, 2.0]
    """
    listed = {}
    for a in (2, 3):
        listed[a] = {move.tobytes() for move in space(a).moves()}
    ball = KNormMechanism.calibrate(space(2), Budget.pure(1)).placed_ball.ball
    rows = []
    for name in _CELLS:
        move = _move(name)
        # The library's own list says how many records a move needs; nothing is assumed here.
        key = move.tobytes()
        records = next(a for a in (2, 3) if key in listed[a])
        flat = move.T if ball.shape == SHAPE[::-1] else move
        four_cell_norm = ball.norm(flat[None].astype(float))[0]
        size = np.abs(move)
        norms = {"l1": int(size.sum())}
        norms["l2_squared"] = int((move**2).sum())
        norms["linf"] = int(size.max())
        # A norm of 2 means that the paper's noise at ε keeps only 2ε against this move.
        labels = {"move": name, "records": records, **norms}
        labels["four_cell_norm"] = float(four_cell_norm.round(9))
        for (row, column), change in np.ndenumerate(move):
            place = {"row": row + 1, "column": column + 1}
            rows.append(labels | place | {"change": int(change)})
    return Tidy.from_rows(rows)


def plot_sensitivity_space(table: Tidy) -> style.Figure:
    """Draw the moves as tables of +1 and -1."""
    names = table.distinct("move")
    with style.drawing(4.6 * len(names), 5.0, columns=len(names)) as (figure, grid):
        for axes, name in zip(grid, names, strict=True):
            _panel_sensitivity_space(axes, table.where(move=name))
        figure.suptitle("Records move, every row and column total stays")
    return figure


def _move(name: str) -> NDArray[np.int64]:
    move = np.zeros(SHAPE, dtype=np.int64)
    for (row, column), change in _CELLS[name].items():
        move[row - 1, column - 1] = change
    return move


def _panel_sensitivity_space(axes: Any, part: Tidy) -> None:
    from matplotlib.patches import Rectangle

    first = part.records()[0]
    for cell in part.records():
        row, column, change = cell["row"], cell["column"], cell["change"]
        if change:
            colour, text = (style.BLUE, "+1") if change > 0 else (style.ORANGE, "−1")
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, color=colour, alpha=0.85, linewidth=0))
            look = {"color": "white", "fontweight": "bold"}
            axes.text(column, row, text, ha="center", va="center", **look)
        else:
            axes.text(column, row, "0", ha="center", va="center", color=style.GREY)
    rows = max(part["row"])
    columns = max(part["column"])
    axes.set(xlim=(0.5, columns + 0.5), ylim=(rows + 0.5, 0.5))
    axes.set(aspect="equal", xlabel="column", ylabel="row")
    axes.set(xticks=range(1, columns + 1), yticks=range(1, rows + 1))
    axes.set_xticks(np.arange(0.5, columns + 1), minor=True)
    axes.set_yticks(np.arange(0.5, rows + 1), minor=True)
    axes.grid(visible=False, which="major")
    axes.grid(visible=True, which="minor")
    axes.tick_params(which="both", length=0)
    squares = first["l2_squared"]
    length = "2" if squares == 4 else f"√{squares}"
    missing = "in the paper's list" if first["records"] == 2 else "missing in the paper's list"
    heading = f"{first['move']} of {first['records']} records ({missing})"
    norms = f"l1 = {first['l1']}, l2 = {length}, l∞ = {first['linf']}"
    in_paper = f"in the paper's K-norm {first['four_cell_norm']:g}"
    axes.set_title(f"{heading}\n{norms}; {in_paper}", fontsize=10.5)


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


def compute_composition(settings: Settings = PAPER) -> Tidy:
    """Return for each family and order, under A_3: the curve at 101 points, δ at ε = 0, and ε at
    three δ.

    Several mechanisms under one invariant: the group argument first, or composition first.

    "Semi-DP first" is ``f1^∘a ⊗ … ⊗ fk^∘a`` and never worse than "composition first", ``(f1 ⊗ …
    ⊗ fk)^∘a``; how much better depends on the mechanisms, and for Gaussian ones not at all.

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


def plot_composition(table: Tidy) -> style.Figure:
    """Draw both orders as error curves, a panel for each family, with the attacker's advantage."""
    families = table.distinct("family")
    with style.drawing(9.0, 8.6, columns=2, rows=math.ceil(len(families) / 2)) as (figure, grid):
        for axes, family in zip(np.ravel(grid), families, strict=False):
            _panel_composition(axes, table.where(family=family))
            axes.set_title(family, fontsize=11)
        figure.suptitle(
            f"Several mechanisms, {table['a'][0]} records that move together: which argument comes"
            " first"
        )
    return figure


def _panel_composition(axes: Any, part: Tidy) -> None:
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


EACH, MOST = 20, 4
TITLES = {
    "blocks and an unpublished feature": "table of q exact features\nand one that nobody publishes",
    "the unpublished feature": "table of the unpublished\nfeature alone",
    "blocks alone": "table of the q exact\nfeatures alone",
}


def blocks(q: int, unpublished: bool) -> Dataspace:
    """Return q features with exact totals, three levels each, and if asked one that nobody
    publishes.

    >>> blocks(2, unpublished=True).schema.names
    ('b1', 'b2', 'u')
    """
    names = [f"b{number + 1}" for number in range(q)]
    every = [*names, "u"] if unpublished else names
    schema = Schema([Feature(name, "012") for name in every])
    table = Table(schema, np.full(schema.shape, EACH))
    return Dataspace.from_table(table, [Margin(name) for name in names])


def compute_exchange(settings: Settings = PAPER) -> Tidy:
    """Return Δ2² and the expected loss at mu = 1, ``Δ2 sqrt(dim)``, under A_{q+1} and under
    exchange.

    Exchange adjacency next to the ball: the loss of Gaussian noise against the number of exact
    one-way totals.

    A histogram over q features with exact totals and one that nobody publishes, that feature
    alone, and the exact ones alone. Both are promises of their own; the study shows what each
    costs.

    >>> table = compute_exchange().where(table="blocks and an unpublished feature", q=2)
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


def plot_exchange(table: Tidy) -> style.Figure:
    """Draw the loss against q, one panel per table, with Δ2² at each point."""
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
    """Draw the losses under one adjacency, with Δ2² next to each point."""
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
