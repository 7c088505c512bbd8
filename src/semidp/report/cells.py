"""Published counts laid out as a table for people: which feature goes across, what each cell says, how dark it is.

A table with a nested feature is cut into one table for each of its coarsest nodes, with subtotals.
"""

import math
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.tables.features import Feature
from semidp.statistics.tables.published import ProductTable, PublishedTable

SHOWN_CELLS = 600  # beyond this many cells numbers help nobody, and a picture must do
FOLDED_CELLS = 20_000  # so many cells of a nested table are on the page, folded by parent; beyond it only subtotals
MOST_CELLS = 2**24  # beyond so many a mean stands for all of them: it needs no array
_UNFOLDED_CELLS = 120
_ACROSS = 12  # columns that a page holds side by side


@dataclass(frozen=True)
class Cell:
    """One published count with the standard error of its estimate, as text; `shade` runs from 0 to 1.

    It is `faint` where the count is smaller than the half-width of its 95% interval: mostly noise.
    """

    count: str
    error: str
    shade: float
    faint: bool


@dataclass(frozen=True)
class Row:
    """One line of the table: the levels that start here, each with the number of lines it spans, the cells, their sum.

    A block of lines ends with the sums of its columns as `subtotals`, none where a block is a line.
    """

    heads: tuple[tuple[str, int], ...]
    cells: tuple[Cell, ...]
    total: str
    subtotals: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellGrid:
    """A table of published counts: the features down the side, one feature across (or none), the lines, their sums.

    The last of `totals` is that of the whole table where a feature runs across.
    """

    side: tuple[str, ...]
    across: str | None
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: tuple[str, ...]


@dataclass(frozen=True)
class Branch:
    """What lies below one of the coarsest nodes: its name, its subtotal, and its table unless that is left out."""

    name: str
    total: str
    grid: CellGrid | None
    unfolded: bool


def grid(table: PublishedTable | ProductTable) -> CellGrid | None:
    """Lay out a published table with one feature across and the others down the side; None where it is too large.

    The feature across is the one with the most levels that still fit side by side, the last of equals.
    """
    if table.schema.size > SHOWN_CELLS:
        return None
    return _laid_out(tuple(map(_flat, table.schema.features)), table.counts, table.standard_errors, faint_cells(table))


def branches(table: PublishedTable | ProductTable) -> tuple[Branch, ...]:
    """Cut a published table at the coarsest depth of its first nested feature; empty where it has none."""
    axis = next((axis for axis, feature in enumerate(table.schema.features) if feature.above), None)
    if axis is None:
        return ()
    feature, found = table.schema.features[axis], []
    top, paths = feature.depths[0], feature.paths()
    for name, (start, end) in zip(top.labels, pairwise((*top.starts, len(paths))), strict=True):
        here = (slice(None),) * axis + (slice(start, end),)
        counts, errors, faint = table.counts[here], table.standard_errors[here], faint_cells(table)[here]
        grid = None
        if table.schema.size <= FOLDED_CELLS:
            below = Feature(" · ".join(feature.names[1:]), tuple(" · ".join(path[1:]) for path in paths[start:end]))
            others = [below if i == axis else _flat(part) for i, part in enumerate(table.schema.features)]
            grid = _laid_out(tuple(others), counts, errors, faint, down=axis)
        found.append(Branch(name, _text(counts.sum().item()), grid, table.schema.size <= _UNFOLDED_CELLS))
    return tuple(found)


def faint_cells(table: PublishedTable | ProductTable) -> NDArray[np.bool_]:
    """Return the cells whose count is smaller than the half-width of its interval: mostly noise.

    Large tables have no intervals: two standard errors stand for them.
    """
    half = 2 * table.standard_errors if table.half_widths is None else table.half_widths
    # Files hold the ends of intervals to six digits: a count on the very edge is told apart alike before and after.
    return np.asarray(table.counts < half - 3e-6)


def _flat(feature: Feature) -> Feature:
    """Return a feature whose levels are whole paths, for a reader."""
    if not feature.above:
        return feature
    return Feature(" · ".join(feature.names), tuple(" · ".join(path) for path in feature.paths()))


def _laid_out(
    features: tuple[Feature, ...], all_counts: Any, all_errors: Any, all_faint: Any, down: int | None = None
) -> CellGrid:
    """Lay out counts with one feature across, never the one that is to run down."""
    chosen = _across(features, down)
    side = [feature for position, feature in enumerate(features) if position != chosen]
    across, columns = (None, ("count",)) if chosen is None else (features[chosen].name, features[chosen].levels)
    counts, errors, faint = (
        (array if chosen is None else np.moveaxis(array, chosen, -1)).reshape(-1, len(columns))
        for array in (all_counts, all_errors, all_faint)
    )
    largest = max(float(np.max(counts, initial=0)), 1.0)
    block = math.prod(len(feature.levels) for feature in side[1:])
    several = 1 < block < len(counts)
    rows = tuple(
        Row(
            heads,
            tuple(_cell(*numbers, largest) for numbers in zip(ns.tolist(), es.tolist(), fs.tolist(), strict=True)),
            _text(ns.sum().item()),
            _sums(counts[line - block : line], chosen) if several and line % block == 0 else (),
        )
        for line, (heads, ns, es, fs) in enumerate(zip(_heads(side), counts, errors, faint, strict=True), start=1)
    )
    return CellGrid(tuple(feature.name for feature in side), across, columns, rows, _sums(counts, chosen))


def _sums(counts: Any, chosen: int | None) -> tuple[str, ...]:
    """Write the sums of columns, and their sum where a feature runs across."""
    columns = counts.sum(axis=0)
    whole = () if chosen is None else (_text(columns.sum().item()),)
    return (*map(_text, columns.tolist()), *whole)


def _across(features: tuple[Feature, ...], down: int | None) -> int | None:
    """Return the position of the feature across, or None for a table of one feature, which runs down the page."""
    if len(features) == 1:
        return None
    sizes = {position: len(feature.levels) for position, feature in enumerate(features) if position != down}
    fitting = [position for position, size in sizes.items() if size <= _ACROSS]
    if not fitting:
        return min(sizes, key=lambda position: sizes[position])
    return max(fitting, key=lambda position: (sizes[position], position))


def _heads(side: list[Feature]) -> list[tuple[tuple[str, int], ...]]:
    """Return the heads of each line: a level is written where it starts, and spans the lines it holds for."""
    spans = [math.prod(len(feature.levels) for feature in side[depth + 1 :]) for depth in range(len(side))]
    return [
        tuple((level, span) for level, span in zip(levels, spans, strict=True) if line % span == 0)
        for line, levels in enumerate(product(*(feature.levels for feature in side)))
    ]


def _cell(count: float, error: float, faint: bool, largest: float) -> Cell:
    # The root keeps small counts apart beside a few large ones.
    return Cell(_text(count), error_text(error), round(math.sqrt(max(count, 0) / largest), 3), faint)


def _text(count: float) -> str:
    return f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"


def error_text(error: float) -> str:
    """Write a standard error: never 0 for one that is not, since that would promise an exact count.

    >>> [error_text(x) for x in (0, 0.0031, 2.16, 12345.6)]
    ['0', '0.0031', '2.2', '12,346']
    """
    if error == 0:
        return "0"
    return f"{error:,.0f}" if error >= 100 else f"{error:.1f}" if error >= 1 else f"{error:.2g}"


def more(said: str, shown: int, every: int, where: str = "the file") -> list[str]:
    """Say that only the first of a list are shown, and where the others are; nothing where all are.

    >>> more("groups are shown", 2, 5)
    ['The first 2 groups are shown; 3 more are in the file.']
    """
    return [f"The first {shown:,} {said}; {every - shown:,} more are in {where}."] if every > shown else []


def scale_text(scale: float) -> str:
    """Write the scale of noise: four digits, and all of a large one before the point.

    >>> [scale_text(x) for x in (6.38877, 200, 95831.5)]
    ['6.389', '200', '95,832']
    """
    return f"{scale:,.0f}" if scale >= 10_000 else f"{scale:.4g}"


def number_text(value: float) -> str:
    """Write an estimate with five digits.

    >>> number_text(55.123456), number_text(float("nan"))
    ('55.123', 'none')
    """
    return f"{value:.5g}" if math.isfinite(value) else "none"
