"""Pictures of tables: a heatmap of published counts, and the records that must move together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.plots.style import BLACK, BLUE, ORANGE, drawing
from semidp.tables import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WRITE_UP_TO = 150  # beyond this many cells numbers would overlap, and colour alone must do
_DRAW_UP_TO = 60  # rows or columns


def flattened(schema: Schema, counts: NDArray[Any]) -> tuple[NDArray[Any], list[str], list[str]]:
    """Lay a table of any number of features out as a matrix, with the labels of its rows and columns.

    The features are split so that the matrix is as square as can be; a one-way table becomes one column.

    >>> from semidp.tables import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns"), Feature("age", "yo")])
    >>> matrix, rows, columns = flattened(schema, np.arange(8).reshape(2, 2, 2))
    >>> matrix.shape, rows, columns[:2]
    ((2, 4), ['f', 'm'], ['n · y', 'n · o'])
    """
    sizes = schema.shape
    if len(sizes) == 1:
        return counts.reshape(-1, 1), list(schema.features[0].levels), [""]
    cut = min(
        range(1, len(sizes)), key=lambda at: abs(np.log(np.prod(sizes[:at]) or 1) - np.log(np.prod(sizes[at:]) or 1))
    )
    levels = [feature.levels for feature in schema.features]
    return counts.reshape(int(np.prod(sizes[:cut])), -1), _labels(levels[:cut]), _labels(levels[cut:])


def heatmap(schema: Schema, counts: NDArray[Any], errors: NDArray[np.float64] | None = None) -> "Figure | None":
    """Draw a table of counts as a heatmap, with standard errors below the numbers; None where it is too large to read.

    Examples
    --------
    >>> from semidp.tables import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> figure = heatmap(schema, np.array([[1, 2, 3], [4, 5, 6]]), np.ones((2, 3)))
    >>> [text.get_text() for text in figure.axes[0].texts][:1]
    ['1\\n±1.0']
    """
    matrix, rows, columns = flattened(schema, counts)
    if max(matrix.shape) > _DRAW_UP_TO:
        return None
    width = min(11.0, 2.2 + 0.62 * matrix.shape[1])
    with drawing(max(width, 3.6), 1.6 + 0.44 * matrix.shape[0]) as (figure, axes):
        image = axes.imshow(matrix, cmap="Blues", aspect="auto", vmin=0)
        axes.set_xticks(range(len(columns)), columns, rotation=0 if max(map(len, columns)) <= 5 else 45, ha="center")
        if max(map(len, columns)) > 5:
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
        axes.set_yticks(range(len(rows)), rows)
        axes.grid(visible=False)
        names = schema.names
        axes.set_title(" by ".join(names), loc="left")
        if matrix.size <= _WRITE_UP_TO:
            spread = flattened(schema, errors)[0] if errors is not None else None
            _write(axes, matrix, spread)
        else:
            figure.colorbar(image, ax=axes, label="published count")
    return figure


def moves_plot(before: Sequence[str], after: Sequence[str], names: Sequence[str], title: str = "") -> "Figure":
    """Draw the records that must change together: each as a row, what it is on the left, what it becomes on the right.

    The first record is the person in question; the others move so that every published total stays the same.

    Examples
    --------
    >>> figure = moves_plot(["f · north", "m · south"], ["m · south", "f · north"], ["you", "somebody"])
    >>> len(figure.axes[0].patches) >= 2
    True
    """
    with drawing(5.4, 0.8 + 0.5 * len(before)) as (figure, axes):
        for position, (old, new, name) in enumerate(zip(before, after, names, strict=True)):
            color = ORANGE if position == 0 else BLUE
            height = -position
            axes.text(0.02, height, name, ha="left", va="center", color=color, fontweight="bold")
            axes.text(0.40, height, old, ha="center", va="center", color=BLACK)
            axes.text(0.84, height, new, ha="center", va="center", color=BLACK)
            axes.annotate(
                "",
                xy=(0.70, height),
                xytext=(0.56, height),
                arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 2},
            )
            axes.axhspan(height - 0.42, height + 0.42, color=color, alpha=0.08, linewidth=0)
        axes.text(0.40, 0.62, "in one dataset", ha="center", fontsize=9.5)
        axes.text(0.84, 0.62, "in the other", ha="center", fontsize=9.5)
        axes.set(xlim=(0, 1.05), ylim=(-len(before) + 0.4, 1.0), title=title)
        axes.axis("off")
    return figure


def _labels(levels: Sequence[Sequence[str]]) -> list[str]:
    grids = np.meshgrid(*[np.arange(len(part)) for part in levels], indexing="ij")
    return [
        " · ".join(part[position] for part, position in zip(levels, index, strict=True))
        for index in zip(*(grid.ravel() for grid in grids), strict=True)
    ]


def _write(axes: Any, matrix: NDArray[Any], errors: NDArray[np.float64] | None) -> None:
    dark = matrix > (matrix.max() or 1) * 0.55
    for (row, column), value in np.ndenumerate(matrix):
        number = f"{value:,}" if matrix.dtype.kind == "i" else f"{value:,.1f}"
        text = number if errors is None else f"{number}\n±{errors[row, column]:.1f}"
        color = "white" if dark[row, column] else BLACK
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=9, linespacing=0.95)
