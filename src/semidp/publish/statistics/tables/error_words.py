"""How wrong the cells of tables are: foreseen from public values, on a terminal, at the top of a
report, in a warning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.margins import Totals, junction_order
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.half_widths import MOST_CELLS, cell_errors, standard_spread
from semidp.publish.results.grids import faint_cells, table_title
from semidp.publish.results.texts import (
    TOO_MANY,
    align_columns,
    error_text,
    errors_text,
    share_text,
    short_text,
    within_text,
)
from semidp.publish.statistics.protocol.requests import Forecast
from semidp.publish.statistics.tables.asked import TableRequest

if TYPE_CHECKING:
    from semidp.publish.results.published_table import PublishedTable


FEW_TABLES = 6
"""Up to so many tables have a line each; more are one line and a list of errors."""

_NAMED_TABLES = 3  # in a warning
_LISTED_TABLES = 60  # on a terminal
HEADINGS = ("table", "cells", "standard error", "largest", "noise dominates")
"""The columns of a list of tables with their errors."""

ERRORS_TEXT = (
    "The standard error is that of the estimates, from the noise alone: first the root of the mean"
    " square over the cells with noise, then the largest of a cell. Noise dominates a cell if its"
    " count is smaller than the half-width of its 95% interval."
)
"""What is said above a list of tables with their errors."""

NONE_FOUND = "No whole numbers with all totals were found for the table"
"""How a warning begins that a table misses some of its totals."""


@dataclass(frozen=True)
class CellErrors:
    """How far off the cells of one published table are, and in how many of them noise dominates.

    Parameters
    ----------
    name
        What the table is called.
    cells
        How many cells it has.
    errors
        Root mean square (`standard_error`), `smallest` and `largest` standard error of a cell;
        `narrowest` and `widest` half-width of 95% intervals, where the table has them.
    dominated
        The number of cells whose count is smaller than the half-width of its interval.
    noisy
        The number of cells that the exact totals do not fix: `errors` are theirs.
    title, parts
        The table, named by its features, and in how many parts its cells lie.
    """

    name: str
    cells: int
    errors: dict[str, float]
    dominated: int
    noisy: int
    title: str = ""
    parts: int = 1

    @classmethod
    def from_table(cls, table: "PublishedTable", parts: int = 1) -> "CellErrors":
        """Measure a published table, whose cells lie in so many parts.

        >>> import semidp
        >>> people = {"sex": [*"fm"] * 9, "vote": [*"yn"] * 9}
        >>> table = semidp.release(
        ...     people, semidp.table("sex", "vote"), exact=["sex", "vote"], mu=1
        ... )["sex-vote"]
        >>> CellErrors.from_table(table).cells
        4
        """
        # Cells that the exact totals fix would make the typical error look smaller than it is.
        noisy = table.standard_errors > 0
        half_widths = None if table.half_widths is None else table.half_widths[noisy]
        errors = standard_spread(table.standard_errors[noisy], half_widths)
        hidden, count = int(faint_cells(table).sum()), int(noisy.sum())
        return cls(table.name, table.schema.size, errors, hidden, count, table_title(table), parts)

    @property
    def share(self) -> float:
        """The share of cells in which noise dominates."""
        return self.dominated / self.cells

    def line(self) -> str:
        """Say how far off a cell is, and how often noise dominates.

        >>> CellErrors(
        ...     "table", 8, {"standard_error": 4.2, "smallest": 4.2, "largest": 4.2}, 2, 8
        ... ).line()
        'standard error 4.2 per cell; noise dominates 25% of the cells'
        """
        if not self.errors["largest"]:
            return "no error: the exact totals fix every cell"
        low, high = error_text(self.errors["smallest"]), error_text(self.errors["largest"])
        span = "" if low == high else f" ({low} to {high})"
        within = f", 95% {within_text(self.errors, error_text)}" if "widest" in self.errors else ""
        error = error_text(self.errors["standard_error"]) if span else high
        hidden = dominated_text(self.dominated, self.cells)
        return f"standard error {error} per cell{span}{within}; {hidden}"

    def row(self) -> tuple[str, ...]:
        """Return a row of a list of tables, as `HEADINGS` names its columns."""
        typical, largest = (
            error_text(self.errors["standard_error"]),
            error_text(self.errors["largest"]),
        )
        return self.name, f"{self.cells:,}", typical, largest, share_text(self.share)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain values: errors, cells, and the share that noise dominates."""
        counted = {"cells": self.cells, "noisy_cells": self.noisy}
        hidden = {"dominated_cells": self.dominated, "dominated_share": self.share}
        return {"name": self.name, **counted, **hidden, **self.errors}


def dominated_text(dominated: int, cells: int) -> str:
    """Say in how many cells noise dominates.

    >>> dominated_text(31, 100), dominated_text(0, 24)
    ('noise dominates 31% of the cells', 'noise dominates no cell')
    """
    if not dominated:
        return "noise dominates no cell"
    return f"noise dominates {share_text(dominated / cells)} of the cells"


def combine_cell_errors(tables: Sequence[CellErrors]) -> CellErrors:
    """Return the errors of all cells of several tables.

    >>> one = CellErrors("a", 1, {"standard_error": 3.0, "smallest": 3.0, "largest": 3.0}, 1, 1)
    >>> other = CellErrors("b", 3, {"standard_error": 1.0, "smallest": 1.0, "largest": 1.0}, 0, 3)
    >>> combine_cell_errors([one, other]).line()
    'standard error 1.7 per cell (1.0 to 3.0); noise dominates 25% of the cells'
    """
    cells = sum(table.cells for table in tables)
    noisy = sum(table.noisy for table in tables)
    square = sum(table.errors["standard_error"] ** 2 * table.noisy for table in tables)
    # Tables that the exact totals fix would hide the least error of the others.
    smallest = [table.errors["smallest"] for table in tables if table.errors["largest"]]
    errors = {
        "standard_error": sqrt(square / max(noisy, 1)),
        "smallest": min(smallest, default=0.0),
        "largest": max(table.errors["largest"] for table in tables),
    }
    dominated = sum(table.dominated for table in tables)
    return CellErrors("", cells, errors, dominated, noisy)


def error_lines(tables: Sequence[CellErrors]) -> list[tuple[str, str]]:
    """Return how wrong the tables are, for a terminal: a line each, or one line and a list where
    they are many.
    """
    if len(tables) == 1:
        return [("error", tables[0].line())]
    if len(tables) <= FEW_TABLES:
        return [("error", f"{table.name}: {table.line()}") for table in tables]
    listed = [HEADINGS, *(table.row() for table in tables[:_LISTED_TABLES])]
    lines = [("error", combine_cell_errors(tables).line())]
    lines += [("", line) for line in align_columns(listed)]
    left = len(tables) - _LISTED_TABLES
    if left > 0:
        lines.append(("", f"and {left:,} more: the report lists them"))
    return lines


def cautions(tables: Sequence[CellErrors]) -> list[str]:
    """Warn of tables in which noise dominates more than a quarter of the cells.

    >>> errors = {"standard_error": 4.2, "smallest": 4.2, "largest": 4.2}
    >>> few = CellErrors("table", 8, errors, 3, 8, "sex by region")
    >>> cautions([few])[0].partition(":")[0]
    'Noise dominates 38% of the cells of sex by region'
    """
    affected = [table for table in tables if table.share > TOO_MANY]
    if not affected:
        return []
    advice = (
        "ask for fewer or coarser features or a larger budget, or add cells up before you read them"
    )
    if len(affected) == 1:
        share = share_text(affected[0].share)
        return [f"Noise dominates {share} of the cells of {affected[0].title}: {advice}."]
    names = [table.title for table in affected[:_NAMED_TABLES]]
    left = len(affected) - len(names)
    beyond = f" and {left:,} more" if left else ""
    return [
        f"Noise dominates more than a quarter of the cells in {len(affected):,} of {len(tables):,}"
        f" tables ({', '.join(names)}{beyond}): {advice}."
    ]


def misses_totals(name: str, where: str = "") -> str:
    """Say that a table, everywhere or in some parts, has no whole numbers with all its totals."""
    return (
        f"{NONE_FOUND} {name!r}{where}: its counts there are whole and not negative, but miss some"
        " totals."
    )


_SWEEPS = 60
_CLOSE = 1e-6


class TableForecast(Forecast):
    """What one table would look like.

    Its numbers are the cells; the standard errors of a cell and the half-widths of its 95%
    interval; the counts to be expected; and the share of cells whose expected count is smaller than
    what the noise hides.

    Examples
    --------
    >>> errors = {
    ...     "standard_error": 1.2,
    ...     "smallest": 1.2,
    ...     "largest": 1.2,
    ...     "narrowest": 2.352,
    ...     "widest": 2.352,
    ... }
    >>> _describe_cells(errors, 40.0, 0.25)
    'standard error 1.2 per cell, 95% within ±2.352 (expected counts about 40; noise dominates 25%
    of the cells)'
    """

    listed: ClassVar[str] = "tables"

    @property
    def label(self) -> str:
        """What it is about, by which plans are compared: its features."""
        return " by ".join(self.features)

    def shared_json(self) -> dict[str, Any]:
        """Return it as plain values, of a table that shares a budget."""
        errors = self.numbers["errors"]
        # Large tables have no intervals.
        widths = {name: errors[name] for name in ("narrowest", "widest") if name in errors}
        return {
            **self.to_json(),
            "smallest_standard_error": errors["smallest"],
            "largest_standard_error": errors["largest"],
            "rms_standard_error": errors["standard_error"],
            **widths,
        }

    def shared_line(self) -> str:
        """Say how large the errors of a table are that shares a budget."""
        errors = self.numbers["errors"]
        low, high = error_text(errors["smallest"]), error_text(errors["largest"])
        span = high if low == high else f"{low} to {high}"
        within = f", 95% {within_text(errors, error_text)}" if "widest" in errors else ""
        cells = count_noun(self.numbers["cells"], "cell")
        return f"{self.name}: standard error {span} per cell{within}, {cells}"


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
    said = _describe_cells(errors, expected["median"], dominated)
    numbers = {"cells": size, "errors": errors, "expected": expected, "dominated": dominated}
    return TableForecast(table.name, table.features, said, numbers)


def _describe_cells(errors: Mapping[str, float], count: float, dominated: float) -> str:
    """Say how large the errors are beside the counts."""
    if not errors["largest"]:
        return "exact: the published totals fix every cell"
    expected = f"expected counts about {short_text(count)}"
    if dominated:
        expected += f"; noise dominates {share_text(dominated)} of the cells"
    return f"{errors_text(errors)} ({expected})"


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
