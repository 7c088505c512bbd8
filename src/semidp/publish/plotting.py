"""Figures of releases, and their common style."""

import contextlib
import io
import itertools
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.schema import Schema
from semidp.promise.tradeoff.function import Tradeoff

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any  # matplotlib is imported by what draws

BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY = (
    *("#0072B2", "#D55E00", "#009E73", "#8B5A9F"),
    *("#56B4E9", "#222222", "#8A8A8A"),
)
"""The palette of Okabe and Ito, which people with any color vision can tell apart (purple darkened
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
    """Label the ticks of an axis with thousands separators, few enough not to
    touch.
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


def encode_picture(figure: Figure, path: Path) -> bytes:
    """Return a figure in the format of its file name: PNG or SVG."""
    return png(figure) if path.suffix == ".png" else svg(figure).encode()


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    from matplotlib import rc_context

    data = io.BytesIO()
    with rc_context(_SETTINGS), _unsaid_warnings():
        figure.savefig(data, format="png", dpi=160, metadata={"Software": None})
    return data.getvalue()


_STYLES = ("-", "--", "-.", ":")
_NAME_UP_TO = 30  # rows or columns whose names are written
_LONGEST_NAME = 24  # characters of a name that is written; a longer one is cut
_LEGEND_WIDTH = 46  # characters of a line
_DRAW_UP_TO = 1000  # rows or columns that are drawn
_MOST_PANELS = 24
_MOST_GROUPS = 40


def tradeoff_plot(curves: Mapping[str, Tradeoff], axes: Any = None) -> Figure:
    """Draw tradeoff functions as error curves: false alarms against misses of the best attacker.

    The diagonal is an attacker who guesses; the closer a curve lies to it, the more private. In the
    convention of the package ``f(alpha)`` is the smallest type II error at type I error
    ``1 - alpha``.

    Examples
    --------
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> figure = tradeoff_plot({"one record": gaussian(1), "three records": gaussian(3)})
    >>> len(figure.axes)
    1
    """
    alpha = 1 - np.concatenate([np.linspace(0, 0.02, 60), np.linspace(0.02, 1, 200)])
    with drawing(4.2, 4.6, axes=axes) as (figure, axes):
        axes.plot([0, 1], [1, 0], color=GREY, linewidth=1, label="guessing (perfect privacy)")
        for (label, curve), color, style in zip(curves.items(), CYCLE, _STYLES, strict=False):
            axes.plot(
                1 - alpha,
                np.asarray(curve(alpha)),
                color=color,
                linestyle=style,
                linewidth=2,
                label=textwrap.fill(label, _LEGEND_WIDTH),
            )
        if len(curves) == 1:
            values = np.asarray(next(iter(curves.values()))(alpha))
            axes.fill_between(
                1 - alpha, values, 1 - (1 - alpha), color=BLUE, alpha=0.08, linewidth=0
            )
        axes.set(aspect="equal", xlabel="false alarms", ylabel="misses")
        _percent_ticks(axes, (0, 0.25, 0.5, 0.75, 1))
        # Below the axes: a long name of what is protected would cover the curves.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), fontsize=9.5)
    return figure


def loss_plot(losses: Mapping[str, float]) -> Figure:
    """Draw expected losses as bars, the first one highlighted, each with its number.

    >>> figure = loss_plot({"semidp": 17.1, "ordinary DP by group privacy": 34.0})
    >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
    [17.1, 34.0]
    """
    names, values = list(losses), list(map(float, losses.values()))
    with drawing(4.2, 0.9 + 0.45 * len(names)) as (figure, axes):
        bars = axes.barh(names, values, color=[BLUE] + [GREY] * (len(names) - 1), height=0.6)
        axes.bar_label(bars, [f"{value:,.1f}" for value in values], padding=4, fontsize=10)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_xlim(0, max(values, default=1) * 1.18 or 1)
        axes.set_xlabel("expected distance from the truth")
        grouped_ticks(axes.xaxis)
    return figure


def flatten_table(
    schema: Schema, counts: NDArray[Any]
) -> tuple[NDArray[Any], list[str], list[str]]:
    """Lay a table of any number of features out as a matrix, with the labels of its rows and
    columns.

    The features are split so that the matrix is as square as can be; a one-way table becomes one
    column.

    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns"), Feature("age", "yo")])
    >>> matrix, rows, columns = flatten_table(schema, np.arange(8).reshape(2, 2, 2))
    >>> matrix.shape, rows, columns[:2]
    ((2, 4), ['f', 'm'], ['n · y', 'n · o'])
    """
    sizes = schema.shape
    if len(sizes) == 1:
        return counts.reshape(-1, 1), list(schema.features[0].levels), [""]
    cut = _cut(sizes)
    sides = schema.features[:cut], schema.features[cut:]
    labels = []
    for side in sides:
        cells = itertools.product(*(feature.levels for feature in side))
        labels.append([" · ".join(cell) for cell in cells])
    rows, columns = labels
    return counts.reshape(len(rows), -1), rows, columns


def heatmap(schema: Schema, counts: NDArray[Any], axes: Any = None) -> Figure | None:
    """Draw a large table of counts as shades; None if it is too large even for that.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema(
    ...     [Feature("row", map(str, range(90))), Feature("column", map(str, range(80)))]
    ... )
    >>> figure = heatmap(schema, np.arange(7200).reshape(90, 80))
    >>> figure.axes[1].get_ylabel()
    'published count'
    """
    if not is_drawn(schema):
        return None
    matrix, rows, columns = flatten_table(schema, counts)
    height = float(np.clip(4.0 * matrix.shape[0] / matrix.shape[1], 2.0, 7.0))
    with drawing(4.6, height + 0.6, axes=axes) as (figure, axes):
        image = axes.imshow(matrix, cmap="Blues", aspect="auto", vmin=0, interpolation="nearest")
        _ticks(axes.set_xticks, columns, rotation=90)
        _ticks(axes.set_yticks, rows)
        # Names of features stand where there is no room for those of their levels, too.
        below, beside = _sides(schema)
        axes.set(xlabel=below, ylabel=beside)
        axes.grid(visible=False)
        bar = figure.colorbar(image, ax=axes, label="published count")
        grouped_ticks(bar.ax.yaxis)
    return figure


def is_drawn(schema: Schema) -> bool:
    """Whether a table can be drawn as shades: a matrix of few rows and columns."""
    sizes = schema.shape
    cut = _cut(sizes) if len(sizes) > 1 else 1
    return max(math.prod(sizes[:cut]), math.prod(sizes[cut:])) <= _DRAW_UP_TO


def _sides(schema: Schema) -> tuple[str, str]:
    """Return what the columns and the rows of a flattened table are by."""
    names = [feature.name for feature in schema.features]
    if len(names) == 1:
        return "", names[0]
    cut = _cut(schema.shape)
    return " · ".join(names[cut:]), " · ".join(names[:cut])


def _cut(sizes: Sequence[int]) -> int:
    """Return how many features are rows, so a matrix is as square as can be."""
    return min(
        range(1, len(sizes)),
        key=lambda at: abs(np.log(np.prod(sizes[:at]) or 1) - np.log(np.prod(sizes[at:]) or 1)),
    )


def _ticks(put: Any, labels: list[str], **style: Any) -> None:
    """Name the rows or columns where there is room for all their names."""
    named = [shorten_name(label, _LONGEST_NAME) for label in labels]
    if len(labels) > _NAME_UP_TO:
        named = []
    put(range(len(named)), named, fontsize=8, **style)


def _row_names(labels: Sequence[str]) -> list[str]:
    # Cut in the middle: long names often differ at their ends.
    long = 32  # characters; longer names leave no room for what is drawn
    return [x if len(x) <= long else f"{x[: long // 2]}…{x[1 - long // 2 :]}" for x in labels]


def shorten_name(name: str, longest: int) -> str:
    """Cut a name that has more than so many characters.

    >>> shorten_name("Capital region and suburbs", 14), shorten_name("North", 14)
    ('Capital regio…', 'North')
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def estimates_plot(
    labels: Sequence[str],
    values: Sequence[float],
    errors: Sequence[float],
    axis: str,
    bounds: Sequence[float] | None = None,
    axes: Any = None,
) -> Figure | None:
    """Draw one estimate per group with two standard errors to each side, and declared bounds near
    them.

    The scale fits the estimates, not the bounds, nor a bar that is ten times as wide as others: an
    arrow shows that it continues. None for too many groups.

    >>> estimates_plot(["a", "b"], [0.4, 0.6], [0.1, 0.1], "mean of score", (0.0, 1.0)).axes[
    ...     0
    ... ].get_xlabel()
    'mean of score'
    """
    if not labels or len(labels) > _MOST_GROUPS:
        return None
    with drawing(5.4, 0.9 + 0.32 * len(labels), axes=axes) as (figure, axes):
        places = range(len(labels))
        reach = 2 * np.asarray(errors)
        axes.errorbar(
            values, places, xerr=reach, fmt="o", color=BLUE, markersize=5, linewidth=1.6, capsize=3
        )
        usual = reach <= 10 * np.median(reach)
        low, high = (values - reach)[usual].min(), (values + reach)[usual].max()
        low, high = min(float(low), *values), max(float(high), *values)
        margin = 0.06 * (high - low) or 0.5
        for marker, edge in (("<", low - margin), (">", high + margin)):
            beyond = np.flatnonzero(~usual & (abs(edge - np.asarray(values)) < reach))
            if beyond.size:
                axes.plot([edge] * len(beyond), beyond, marker, color=BLUE, clip_on=False)
        if not usual.all():
            axis = f"{axis} (an arrow: the bar goes on)"
        for bound in bounds or ():
            if low - margin <= bound <= high + margin:
                axes.axvline(bound, color=GREY, linestyle=":", linewidth=1.2)
        axes.set_xlim(low - margin, high + margin)
        grouped_ticks(axes.xaxis)
        axes.set(
            xlabel=axis,
            yticks=list(places),
            yticklabels=_row_names(labels),
            ylim=(len(labels) - 0.5, -0.5),
        )
    return figure


def quantiles_plot(
    labels: Sequence[str],
    quantiles: Sequence[Sequence[float]],
    ends: Sequence[tuple[Sequence[float], Sequence[float]]],
    axis: str,
    axes: Any = None,
) -> Figure | None:
    """Draw a dot per group for each quantile, with a bar from end to end of each interval. None for
    too many groups.

    >>> figure = quantiles_plot(["a", "b"], [[4, 6]], [([3, 6], [5, 8])], "median of score")
    >>> len(figure.axes[0].lines), len(figure.axes[0].collections)
    (1, 1)
    """
    if not labels or len(labels) > _MOST_GROUPS:
        return None
    with drawing(5.4, 0.9 + 0.32 * len(labels), axes=axes) as (figure, axes):
        places = range(len(labels))
        for low, high in ends:
            axes.hlines(places, low, high, color=BLUE, linewidth=1.6)
        for values in quantiles:
            axes.plot(values, places, "o", color=BLUE, markersize=5)
        grouped_ticks(axes.xaxis)
        axes.set(
            xlabel=axis,
            yticks=list(places),
            yticklabels=_row_names(labels),
            ylim=(len(labels) - 0.5, -0.5),
        )
    return figure


def audit_plot(
    claim: Tradeoff, attacks: Sequence[Any], title: str = "", axes: Any = None
) -> Figure:
    """Draw attacks (`audit.Point`) with exact confidence bounds, and the claimed curve below which
    none may lie.

    A bar runs from what was observed to the corner that the truth does not exceed; an attack
    convicts where even that corner lies below the curve. Both axes are square-root scaled, since
    rare false alarms matter most.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> attack = SimpleNamespace(
    ...     size=0.1, power=0.4, size_high=0.11, power_low=0.39, convicts=False
    ... )
    >>> [
    ...     text.get_text()
    ...     for text in audit_plot(gaussian(1), [attack]).axes[0].get_legend().get_texts()
    ... ][-1]
    'attack, with its confidence bound'
    """
    size = np.concatenate([np.geomspace(1e-6, 0.02, 200), np.linspace(0.02, 1, 300)])
    misses = np.asarray(claim(1 - size))
    with drawing(5.6, 4.6, axes=axes) as (figure, axes):
        axes.set_xscale("function", functions=(np.sqrt, np.square))
        axes.set_yscale("function", functions=(np.sqrt, np.square))
        axes.plot(size, 1 - size, color=GREY, linewidth=1, label="guessing (perfect privacy)")
        axes.plot(
            size, misses, color=BLUE, linewidth=2, label="the claim: no attack below this curve"
        )
        axes.fill_between(size, 0, misses, color=BLUE, alpha=0.08, linewidth=0)
        for convicts, color, marker, label in (
            (False, "#222222", "o", "attack, with its confidence bound"),
            (True, ORANGE, "X", "attack that refutes the claim"),
        ):
            chosen = [attack for attack in attacks if attack.convicts is convicts]
            if chosen:
                _draw_attacks(axes, chosen, color, marker, label)
        axes.set(title=title, xlabel="false alarms: P(says the other table | it was this one)")
        axes.set_ylabel("misses: P(says this table | it was the other one)")
        _percent_ticks(axes, (0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1))
        axes.legend(loc="lower left", fontsize=9.5)
    return figure


def _percent_ticks(axes: Any, ticks: Sequence[float]) -> None:
    """Let both axes run from 0 to 1, with ticks in percent."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    axes.set_yticks(ticks, [f"{tick:.0%}" for tick in ticks])


def _draw_attacks(axes: Any, attacks: Sequence[Any], color: str, marker: str, label: str) -> None:
    x = np.array([attack.size for attack in attacks])
    y = 1 - np.array([attack.power for attack in attacks])
    right = np.array([attack.size_high for attack in attacks]) - x
    above = 1 - np.array([attack.power_low for attack in attacks]) - y
    axes.errorbar(
        *(x, y),
        xerr=[np.zeros_like(x), np.maximum(right, 0)],
        yerr=[np.zeros_like(y), np.maximum(above, 0)],
        fmt=marker,
        color=color,
        markersize=5 if marker == "o" else 7,
        elinewidth=1.2,
        capsize=2,
        label=label,
        zorder=3,
    )


def periods_plot(
    name: str,
    periods: Sequence[str],
    bands: Mapping[str, Sequence[tuple[float, float, float]]],
    places: Sequence[int] | None = None,
) -> Figure:
    """Draw estimates over periods with a band for their intervals, a panel for each group; the
    periods lie at their places, or side by side.

    >>> bands = {"a": [(4.0, 3.0, 5.0), (6.0, 5.0, 7.0)], "b": [(1.0, 1.0, 1.0), (2.0, 2.0, 2.0)]}
    >>> [axes.get_title("left") for axes in periods_plot("mean", ["2026Q1", "2026Q2"], bands).axes]
    ['a', 'b']
    """
    from matplotlib.figure import Figure

    shown = dict(list(bands.items())[:_MOST_PANELS])
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    figure = Figure(figsize=(3.2 * across, 0.6 + 2.1 * down), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
    places = range(len(periods)) if places is None else places
    for axes, (title, band) in zip(panels, shown.items(), strict=False):
        values, lower, upper = zip(*band, strict=True)
        axes.fill_between(places, lower, upper, color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(places, values, color=BLUE, marker="o", markersize=4, linewidth=1.6)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xticks(list(places), periods, rotation=45, ha="right", fontsize=8)
        axes.tick_params(axis="y", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    left_out = len(bands) - len(shown)
    more = f" (the first {len(shown)} of {len(bands)} groups)" if left_out else ""
    figure.suptitle(
        f"{name}, with 95% intervals of the noise{more}", fontsize=11, x=0.02, ha="left"
    )
    return figure
