"""Published counts laid out as a table for people: which feature goes across, what each cell says, how dark it is."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from semidp.release import PublishedTable
from semidp.tables import Feature

SHOWN_CELLS = 600  # beyond this many cells numbers help nobody, and a picture must do
_ACROSS = 12  # columns that a page holds side by side


@dataclass(frozen=True)
class Cell:
    """One published count with the standard error of its measurement, as text; `shade` runs from 0 to 1."""

    count: str
    error: str
    shade: float


@dataclass(frozen=True)
class Row:
    """One line of the table: the levels that start here, each with the number of lines it spans, and the cells."""

    heads: tuple[tuple[str, int], ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class CellGrid:
    """A table of published counts: the features down the side, one feature across (or none), and the lines."""

    side: tuple[str, ...]
    across: str | None
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def grid(table: PublishedTable) -> CellGrid | None:
    """Lay out a published table with one feature across and the others down the side; None where it is too large.

    The feature across is the one with the most levels that still fit side by side, the last of equals.
    """
    features = table.schema.features
    if table.schema.size > SHOWN_CELLS:
        return None
    chosen = _across(features)
    side = [feature for position, feature in enumerate(features) if position != chosen]
    counts, errors = (_last(array, chosen, len(side)) for array in (table.counts, table.standard_errors))
    largest = max(float(np.max(counts, initial=0)), 1.0)
    lines = zip(
        _heads(side),
        counts.reshape(-1, counts.shape[-1]),
        errors.reshape(-1, counts.shape[-1]),
        strict=True,
    )
    rows = tuple(
        Row(heads, tuple(_cell(n, e, largest) for n, e in zip(ns.tolist(), es.tolist(), strict=True)))
        for heads, ns, es in lines
    )
    if chosen is None:
        return CellGrid(tuple(feature.name for feature in side), None, ("count",), rows)
    return CellGrid(tuple(feature.name for feature in side), features[chosen].name, features[chosen].levels, rows)


def _across(features: tuple[Feature, ...]) -> int | None:
    """Return the position of the feature across, or None for a table of one feature, which runs down the page."""
    if len(features) == 1:
        return None
    sizes = [len(feature.levels) for feature in features]
    fitting = [position for position, size in enumerate(sizes) if size <= _ACROSS]
    if not fitting:
        return min(range(len(sizes)), key=lambda position: sizes[position])
    return max(fitting, key=lambda position: (sizes[position], position))


def _last(array: Any, chosen: int | None, side: int) -> Any:
    return array[..., np.newaxis] if chosen is None else np.moveaxis(array, chosen, side)


def _heads(side: list[Feature]) -> list[tuple[tuple[str, int], ...]]:
    """Return the heads of each line: a level is written where it starts, and spans the lines it holds for."""
    spans = [math.prod(len(feature.levels) for feature in side[depth + 1 :]) for depth in range(len(side))]
    return [
        tuple((level, span) for level, span in zip(levels, spans, strict=True) if line % span == 0)
        for line, levels in enumerate(product(*(feature.levels for feature in side)))
    ]


def _cell(count: float, error: float, largest: float) -> Cell:
    text = f"{count:,}" if isinstance(count, int) else f"{count:,.1f}"
    # The root keeps small counts apart beside a few large ones.
    return Cell(text, error_text(error), round(math.sqrt(max(count, 0) / largest), 3))


def error_text(error: float) -> str:
    """Write a standard error: never 0 for one that is not, since that would promise an exact count.

    >>> [error_text(x) for x in (0, 0.0031, 2.16, 12345.6)]
    ['0', '0.0031', '2.2', '12,346']
    """
    if error == 0:
        return "0"
    return f"{error:,.0f}" if error >= 100 else f"{error:.1f}" if error >= 1 else f"{error:.2g}"
