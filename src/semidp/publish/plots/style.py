"""One look for every picture: a colour-blind safe palette, readable type, no display needed."""

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any  # matplotlib is imported by what draws

BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#8B5A9F"),
    *("#56B4E9", "#222222", "#8A8A8A"),
)
"""The palette of Okabe and Ito, which people with any colour vision can tell apart (purple darkened
for text)."""

CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P")

_SETTINGS: Any = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "semidp",  # the same picture gives the same file
    "svg.fonttype": "none",  # real text: it can be read aloud, searched, and drawn in any script
    "text.parse_math": False,  # a level may be called "$5 to $10"
}


@contextlib.contextmanager
def drawing(
    width: float = 5.4, height: float = 3.6, columns: int = 1, rows: int = 1, axes: Any = None
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and its axes in the common style, off screen; or the axes that were given, and
    their figure.
    """
    if axes is not None:
        yield axes.figure, axes
        return
    import matplotlib.figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context(_SETTINGS):
        figure = matplotlib.figure.Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns)


def error_bars(
    axes: Any, x: Any, means: Any, errors: Any, style: int, label: str, **more: Any
) -> None:
    """Draw means with two standard errors to each side, joined by a line in one of the styles of
    the package.
    """
    axes.errorbar(
        x,
        means,
        yerr=2 * np.asarray(errors),
        color=CYCLE[style],
        marker=MARKERS[style],
        capsize=2,
        label=label,
        **{"linewidth": 1.6, **more},
    )


def plain_numbers(*axes: Any) -> None:
    """Label the ticks of logarithmic axes with plain numbers, the powers only."""
    from matplotlib.ticker import NullFormatter

    for axis in axes:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


def grouped_ticks(axis: Any, most: int = 5) -> None:
    """Label the ticks of an axis as texts write numbers, thousands apart, and so few that they do
    not touch.
    """
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "\N{MINUS SIGN}"))


def logarithmic_errors(axes: Any) -> None:
    """Put errors on a logarithmic scale, with plain numbers on both axes and ticks at 1, 2 and
    5.
    """
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2) if low < tick < high])
    plain_numbers(axes.xaxis, axes.yaxis)


@contextlib.contextmanager
def _unsaid_warnings() -> Iterator[None]:
    """Leave out warnings of matplotlib that tell a user nothing and name files of this machine."""
    with warnings.catch_warnings():
        # the browser's fonts draw the text, whatever its script
        warnings.filterwarnings("ignore", "Glyph")
        # a figure of very few cells is drawn without the layout, which is good enough for it
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        yield


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element to put into a page."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context(_SETTINGS), _unsaid_warnings():
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", body[body.index("<svg") :], flags=re.DOTALL)


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    from matplotlib import rc_context

    data = io.BytesIO()
    with rc_context(_SETTINGS), _unsaid_warnings():
        figure.savefig(data, format="png", dpi=160, metadata={"Software": None})
    return data.getvalue()
