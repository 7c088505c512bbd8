"""What tables would look like before anything is drawn: their errors beside the counts that are to
be expected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.margins import Totals, junction_order
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.half_widths import MOST_CELLS, cell_errors
from semidp.publish.results.texts import (
    error_text,
    errors_text,
    scale_text,
    share_text,
    short_text,
    within_text,
)
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.words import mechanism_lines

_SWEEPS = 60
_CLOSE = 1e-6


@dataclass(frozen=True)
class TableForecast:
    """What one table would look like.

    Parameters
    ----------
    name, features, cells
        What it is called, its features, and how many cells it has.
    errors
        The standard errors of a cell and the half-widths of its 95% interval: typical, least and
        largest.
    expected
        The smallest, median and largest count to be expected.
    dominated
        The share of cells whose expected count is smaller than what the noise hides.

    Examples
    --------
    >>> errors = {
    ...     "standard_error": 1.2,
    ...     "smallest": 1.2,
    ...     "largest": 1.2,
    ...     "narrowest": 2.352,
    ...     "widest": 2.352,
    ... }
    >>> TableForecast(
    ...     "table",
    ...     ("sex",),
    ...     2,
    ...     errors,
    ...     {"smallest": 0.0, "median": 40.0, "largest": 90.0},
    ...     0.25,
    ... ).line()
    'standard error 1.2 per cell, 95% within ±2.352 (expected counts about 40; noise dominates 25%
    of the cells)'
    """

    listed: ClassVar[str] = "tables"
    by_cells: ClassVar[bool] = True

    name: str
    features: tuple[str, ...]
    cells: int
    errors: dict[str, float]
    expected: dict[str, float]
    dominated: float

    @property
    def label(self) -> str:
        """What it is about, by which plans are compared: its features."""
        return " by ".join(self.features)

    def line(self) -> str:
        """Say how large the errors are beside the counts."""
        if not self.errors["largest"]:
            return "exact: the published totals fix every cell"
        expected = f"expected counts about {short_text(self.expected['median'])}"
        if self.dominated:
            expected += f"; noise dominates {share_text(self.dominated)} of the cells"
        return f"{errors_text(self.errors)} ({expected})"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "features": list(self.features),
            "cells": self.cells,
            "errors": self.errors,
            "expected": self.expected,
            "dominated": self.dominated,
        }

    def shared_json(self) -> dict[str, Any]:
        """Return it as plain values, of a table that shares a budget."""
        # Large tables have no intervals.
        widths: dict[str, Any] = {
            name: self.errors[name] for name in ("narrowest", "widest") if name in self.errors
        }
        return {
            **self.to_json(),
            "smallest_standard_error": self.errors["smallest"],
            "largest_standard_error": self.errors["largest"],
            "rms_standard_error": self.errors["standard_error"],
            **widths,
        }

    def shared_line(self) -> str:
        """Say how large the errors of a table are that shares a budget."""
        low = error_text(self.errors["smallest"])
        high = error_text(self.errors["largest"])
        span = high if low == high else f"{low} to {high}"
        errors = f"standard error {span} per cell"
        if "widest" in self.errors:
            errors += f", 95% {within_text(self.errors, error_text)}"
        return f"{self.name}: {errors}, {count_noun(self.cells, 'cell')}"


def forecasts(
    tables: Sequence[TableRequest], mechanism: Mechanism, scope: Scope
) -> tuple[TableForecast, ...]:
    """Return what each of the tables that a mechanism measures would look like."""
    foreseen = []
    for number, table in enumerate(tables):
        foreseen.append(_forecast(table, cell_errors(mechanism, number), scope))
    return tuple(foreseen)


def _forecast(table: TableRequest, errors: dict[str, float], scope: Scope) -> TableForecast:
    public = scope.dataspace.restrict_features(table.features)
    size = public.schema.size
    # Of a huge table a mean stands for all cells: it needs no array.
    mean = np.array([(public.n or 0) / size])
    counts = expected_counts(public) if size <= MOST_CELLS else mean
    # Large tables have no intervals: two standard errors stand for them.
    hidden = errors.get("half_width", 2 * errors["standard_error"])
    dominated = float((counts < hidden).mean()) if errors["largest"] else 0.0
    expected = {"smallest": float(counts.min())}
    expected["median"] = float(np.median(counts))
    expected["largest"] = float(counts.max())
    return TableForecast(table.name, table.features, size, errors, expected, dominated)


def noise_lines(foreseen: Sequence[TableForecast], mechanism: Mechanism, what: str) -> list[str]:
    """Say with what noise the tables would be measured."""
    if isinstance(mechanism, ResidualMechanism):
        return mechanism_lines([table.shared_line() for table in foreseen], mechanism, what)
    scale = mechanism.scale * float(mechanism.space.unit)
    distance = f"expected distance of the whole table {mechanism.expected_l2:,.1f}"
    noise = f"scale {scale_text(scale)}, {distance}, {mechanism.claim} claim"
    return [f"{mechanism.name} for {what}: {table.line()}, {noise}" for table in foreseen]


def expected_counts(dataspace: Dataspace) -> NDArray[np.float64]:
    """Return the table of most entropy with the published totals: what independence given those
    makes of them.

    Proportional fitting from equal counts in all possible cells; for decomposable margins one sweep
    in the order of a junction tree gives the closed form, the product of the margins over the
    product of what they share.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 1], [1, 3]])
    >>> expected_counts(Dataspace.from_table(table, [Margin("sex"), Margin("region")])).round(
    ...     6
    ... ).tolist()
    [[3.6, 2.4], [2.4, 1.6]]
    """
    schema = dataspace.schema
    grid = schema.grid
    margins = _in_order(dataspace)
    possible = np.ones(schema.shape)
    if schema.possible is not None:
        possible = schema.possible.astype(np.float64)
    # Equal counts in all possible cells have the most entropy.
    cells = possible * (dataspace.n / max(float(possible.sum()), 1.0))
    # Margins in a circle are met only in the limit, and a forecast needs no more digits than this.
    for _ in range(_SWEEPS):
        off = 0.0
        for margin in margins:
            sums = grid.sum(cells, margin.view)
            off = max(off, float(np.abs(sums - margin.counts).max(initial=0.0)))
            factors = np.divide(margin.counts, sums, out=np.zeros_like(sums), where=sums > 0)
            cells = cells * grid.spread(factors, margin.view)
        if off <= _CLOSE * max(dataspace.n, 1):
            break
    return np.asarray(cells, dtype=np.float64)


def _in_order(dataspace: Dataspace) -> list[Totals]:
    """Return the published totals in the order of a junction tree where there is one; the number of
    records alone.
    """
    totals = {total.view: total for total in dataspace.published_totals}
    if totals:
        order = junction_order(list(totals)) or list(totals)
        return [totals[view] for view in order]
    grid = dataspace.schema.grid
    records = np.array(dataspace.n).reshape(grid.compute_margin_shape(grid.nothing))
    return [Totals(grid.nothing, records)]
