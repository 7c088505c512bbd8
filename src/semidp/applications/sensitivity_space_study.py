"""The moves that noise must hide when both margins of a 7 x 6 table are public: the paper's figure,
and what it lacks.

Two records that exchange a value change four cells. Three records can also go round in a circle and
change six: such three-cycles belong to A_3 and are missing in the paper. The moves come from the
library's own list.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp import Ball, Budget, sensitivity_space
from semidp.applications.study import PAPER, Settings, Tidy, both_margins, build_table
from semidp.promise import KNormMechanism, QuerySpace
from semidp.publish import style

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


def compute(settings: Settings = PAPER) -> Tidy:
    """Return each move cell by cell, with its norms: the last is the K-norm in the hull of the
    four-cell moves.

    >>> table = compute()
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


def plot(table: Tidy) -> style.Figure:
    """Draw the moves as tables of +1 and -1."""
    names = table.distinct("move")
    with style.drawing(4.6 * len(names), 5.0, columns=len(names)) as (figure, grid):
        for axes, name in zip(grid, names, strict=True):
            _panel(axes, table.where(move=name))
        figure.suptitle("Records move, every row and column total stays")
    return figure


def _move(name: str) -> NDArray[np.int64]:
    move = np.zeros(SHAPE, dtype=np.int64)
    for (row, column), change in _CELLS[name].items():
        move[row - 1, column - 1] = change
    return move


def _panel(axes: Any, part: Tidy) -> None:
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
