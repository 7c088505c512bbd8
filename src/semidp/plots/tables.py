"""Pictures of tables: a heatmap of counts that are too many to read as numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.plots.style import drawing
from semidp.tables import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAME_UP_TO = 30  # rows or columns whose names are written
_LONGEST_NAME = 14  # characters of a name that is written
_DRAW_UP_TO = 1000  # rows or columns that are drawn


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


def heatmap(schema: Schema, counts: NDArray[Any]) -> "Figure | None":
    """Draw a large table of counts as shades; None where it is too large even for that.

    Examples
    --------
    >>> from semidp.tables import Feature
    >>> schema = Schema([Feature("row", map(str, range(90))), Feature("column", map(str, range(80)))])
    >>> figure = heatmap(schema, np.arange(7200).reshape(90, 80))
    >>> figure.axes[1].get_ylabel()
    'published count'
    """
    matrix, rows, columns = flattened(schema, counts)
    if max(matrix.shape) > _DRAW_UP_TO:
        return None
    height = float(np.clip(4.0 * matrix.shape[0] / matrix.shape[1], 2.0, 7.0))
    with drawing(4.6, height + 0.6) as (figure, axes):
        image = axes.imshow(matrix, cmap="Blues", aspect="auto", vmin=0, interpolation="nearest")
        _ticks(axes.set_xticks, columns, rotation=90)
        _ticks(axes.set_yticks, rows)
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="published count")
    return figure


def _ticks(put: Any, labels: list[str], **style: Any) -> None:
    """Name the rows or columns where there is room for all their names."""
    named = len(labels) <= _NAME_UP_TO and max(map(len, labels)) <= _LONGEST_NAME
    put(range(len(labels)) if named else [], labels if named else [], fontsize=8, **style)


def _labels(levels: Sequence[Sequence[str]]) -> list[str]:
    grids = np.meshgrid(*[np.arange(len(part)) for part in levels], indexing="ij")
    return [
        " · ".join(part[position] for part, position in zip(levels, index, strict=True))
        for index in zip(*(grid.ravel() for grid in grids), strict=True)
    ]
