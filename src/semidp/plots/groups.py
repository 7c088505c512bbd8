"""Pictures of statistics by group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semidp.plots.style import BLUE, GREY, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 40


def estimates_plot(
    labels: Sequence[str],
    values: Sequence[float],
    errors: Sequence[float],
    axis: str,
    bounds: tuple[float, float] | None = None,
) -> "Figure | None":
    """Draw one estimate a group with two standard errors to each side, and the declared bounds; None for too many.

    >>> estimates_plot(["a", "b"], [0.4, 0.6], [0.1, 0.1], "mean of score", (0.0, 1.0)).axes[0].get_xlabel()
    'mean of score'
    """
    if not labels or len(labels) > _MOST:
        return None
    with drawing(5.4, 0.9 + 0.32 * len(labels)) as (figure, axes):
        places = range(len(labels))
        reach = [2 * error for error in errors]
        axes.errorbar(values, places, xerr=reach, fmt="o", color=BLUE, markersize=5, linewidth=1.6, capsize=3)
        for bound in bounds or ():
            axes.axvline(bound, color=GREY, linestyle=":", linewidth=1.2)
        axes.set(xlabel=axis, yticks=list(places), yticklabels=list(labels), ylim=(len(labels) - 0.5, -0.5))
    return figure
