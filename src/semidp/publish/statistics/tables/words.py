"""The words of a release for tables of counts: one with its own budget, several that share one and
agree, or linked ones; in one piece or by parts. And the errors of their cells: in forecasts, on a
terminal, at the top of a report, in warnings.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.exact import count_noun, list_some
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.margins import Totals, View, junction_order, maximal, meet
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import UNIT
from semidp.publish.half_widths import MOST_CELLS, cell_errors, standard_spread
from semidp.publish.plotting import loss_plot
from semidp.publish.presentation import report_words
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import Columns, Form, PublishedColumns, StoredFiles, named_files
from semidp.publish.results.grids import (
    LISTED_ROWS,
    Details,
    Section,
    counts_sections,
    faint_cells,
    page_cells,
    table_title,
)
from semidp.publish.results.published_table import FitKind, PublishedTable, tables_by_features
from semidp.publish.results.texts import (
    TOO_MANY,
    align_columns,
    error_text,
    errors_text,
    more,
    name_tradeoff,
    scale_text,
    share_text,
    short_text,
    within_text,
)
from semidp.publish.selection import find_excess_variance
from semidp.publish.statistics.parts import BY_PARTS, Part
from semidp.publish.statistics.protocol.requests import Forecast, Published
from semidp.publish.statistics.tables.asked import (
    COMMAND_PREFIX,
    UNITS_PREFIX,
    TableRequest,
    measurements_stem,
)

if TYPE_CHECKING:
    from semidp.publish.results.published_table import PublishedTable
    from semidp.publish.statistics.tables.cut_tables import TableBlocks
    from semidp.publish.statistics.tables.published import PublishedTables


FEW_TABLES = 6
"""The most tables with a line each; more get one line and a list of errors."""

_WARNED_TABLES = 3  # in a warning
_PRINTED_TABLES = 60  # on a terminal
HEADINGS = ("table", "cells", "standard error", "largest", "noise dominates")
"""The columns of a list of tables with their errors."""

ERRORS_TEXT = (
    "The standard error is that of the estimates, from the noise alone: first the root of the mean"
    " square over the cells with noise, then the largest of a cell. Noise dominates a cell if its"
    " count is smaller than the half-width of its 95% interval."
)
"""The sentence above a list of tables with their errors."""

NONE_FOUND = "No whole numbers with all totals were found for the table"
"""The beginning of the warning that a table misses some of its totals."""


@frozen
class CellErrors:
    """The errors of the cells of one published table, and in how many of them noise dominates.

    Parameters
    ----------
    name
        The name of the table.
    cells
        Its number of cells.
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
        """Describe the error of a cell, and how often noise dominates.

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
    """Return the errors of the tables for a terminal: one line each, or one line and a list if
    they are many.
    """
    if len(tables) == 1:
        return [("error", tables[0].line())]
    if len(tables) <= FEW_TABLES:
        return [("error", f"{table.name}: {table.line()}") for table in tables]
    listed = [HEADINGS, *(table.row() for table in tables[:_PRINTED_TABLES])]
    lines = [("error", combine_cell_errors(tables).line())]
    lines += [("", line) for line in align_columns(listed)]
    left = len(tables) - _PRINTED_TABLES
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
    names = list_some(affected, _WARNED_TABLES, write=lambda table: table.title)
    return [
        f"Noise dominates more than a quarter of the cells in {len(affected):,} of {len(tables):,}"
        f" tables ({names}): {advice}."
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
    """The forecast of one table.

    Its numbers are the cells; the standard errors of a cell and the half-widths of its 95%
    interval; the expected counts; and the share of cells that noise would dominate.

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
        """Its label in comparisons of plans: its features."""
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
    """Forecast each of the tables that a mechanism measures."""
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
    """Say how large the errors are relative to the counts."""
    if not errors["largest"]:
        return "exact: the published totals fix every cell"
    expected = f"expected counts about {short_text(count)}"
    if dominated:
        expected += f"; noise dominates {share_text(dominated)} of the cells"
    return f"{errors_text(errors)} ({expected})"


def expected_counts(dataspace: Dataspace) -> NDArray[np.float64]:
    """Return the table of largest entropy with the published totals: independence given
    these.

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
    """Return the published totals in the order of a junction tree if there is one; the number of
    records alone.
    """
    totals = {total.view: total for total in dataspace.published_totals}
    if totals:
        order = junction_order(list(totals)) or list(totals)
        return [totals[view] for view in order]
    grid = dataspace.schema.grid
    records = np.array(dataspace.n).reshape(grid.compute_margin_shape(grid.nothing))
    return [Totals(grid.nothing, records)]


_LOSS_CAPTION = (
    "The picture shows how far the measurement is expected to be from the true table: the square"
    " root of the expected sum of squared errors. This is known before any noise is drawn. The"
    " other bar is ordinary differential privacy, with enough noise to give the same guarantee for"
    " the same number of records (group privacy)."
)
_NAMED_TABLES = 4  # in the heading of a report
_LISTED_TABLES = 40
_NAMED_OTHERS = 3


@frozen(slots=False, eq=False, kw_only=True, repr=False)
class PublishedCells(Published):
    """The base of all tables of counts: their files and their words.

    Parameters
    ----------
    request
        What was asked for.
    blocks
        How tables and measurement lie in the folders of parts; None if the release has none.
    """

    request: Any
    blocks: "TableBlocks | None" = field(default=None, repr=False)

    @property
    def list_key(self) -> str:
        """The list of release.json that it is in."""
        return self.key if self.depth is None else BY_PARTS

    @property
    def depth(self) -> str | None:
        """The name of the depth at which it was cut; None in one piece."""
        return None if self.blocks is None else self.blocks.depth

    @property
    def asked_tables(self) -> tuple[TableRequest, ...]:
        """The tables as they were asked for."""
        every: tuple[TableRequest, ...] = self.request.tables
        return every

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables whose cells are in the files of the release itself."""
        every = self.every_table()
        return every if self.blocks is None else self.blocks.hold(every)

    @cached_property
    def cell_errors(self) -> list[CellErrors]:
        """The errors of the cells of each table."""
        cut = () if self.blocks is None else self.blocks.below
        parts = 1 if self.blocks is None else self.blocks.parts
        return [
            CellErrors.from_table(table, parts if table.name in cut else 1)
            for table in self.every_table()
        ]

    @property
    def _overview(self) -> tuple[PublishedTable, ...]:
        """Tables at the cut of a release by parts that nobody asked for."""
        return () if self.blocks is None else self.blocks.overview

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return each table under its name; those of units also as they were asked for."""
        every = (*self._overview, *self.every_table())
        tables: dict[str, PublishedColumns] = {table.name: table for table in every}
        for table in every:
            if table.counted == UNIT:
                tables[f"{COMMAND_PREFIX}{table.name.removeprefix(UNITS_PREFIX)}"] = table
        return tables

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
        """Return each table by its features."""
        # Tables of units may have the same features: those are found by name alone.
        every = (*self._overview, *self.every_table())
        return tables_by_features(table for table in every if table.counted != UNIT)

    def errors_json(self) -> list[dict[str, Any]]:
        """Return the errors of the cells of each table as plain values."""
        return [errors.to_json() for errors in self.cell_errors]

    @property
    def is_fixed(self) -> bool:
        """Whether exact totals fix every cell."""
        return self.noise.absent

    # --- files

    def measurements(self) -> Columns | None:
        """Return what was measured, as the file of the release has it; None if it is all in the
        parts.
        """
        raise NotImplementedError

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table, and the measurements: in a release by parts what is not in
        the parts.
        """
        columns = {table.name: table.columns() for table in self.held_tables()}
        measured = self.measurements()
        if measured is not None:
            columns[measurements_stem(self.request)] = measured
        return named_files(columns, form)

    def part_stems(self) -> tuple[list[str], str | None]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return ([], None) if self.blocks is None else ([*self.blocks.below], self.blocks.stem)

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Return the rows of one part."""
        return [] if self.blocks is None else self.blocks.rows(self.every_table(), node)

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Return the rows and the measurement of one part, which follow from those of the whole."""
        if self.blocks is None:
            return [], None
        measured = self.blocks.columns_below(self.noisy, node)
        return self.blocks.rows(self.every_table(), node), measured

    # --- what is said about it

    def title(self) -> str:
        """Name the tables by their features, or their number where they are many."""
        titles = [errors.title for errors in self.cell_errors]
        few = len(titles) <= _NAMED_TABLES
        return ", ".join(titles) if few else count_noun(len(titles), "table")

    def noisy_lines(self) -> list[str]:
        """Say how many cells with noise each table has; where tables are many, all together."""
        tables = self.cell_errors
        if self.noise.absent and len(tables) == 1:
            return [f"nothing of {self.title()}: the exact totals fix the whole table"]
        if len(tables) > FEW_TABLES:
            cells = sum(table.cells for table in tables)
            return [f"{len(tables):,} tables, which add up: {cells:,} cells"]
        shared = len(tables) > 1 and self.depth is None
        together = ", together with the other tables" if shared else ""
        lines = []
        for table in tables:
            parts = f" in {count_noun(table.parts, 'part')}" if table.parts > 1 else ""
            lines.append(f"{table.title}: {count_noun(table.cells, 'cell')}{parts}{together}")
        return lines

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        raise NotImplementedError

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of the cells of each table, and the mechanism, for a terminal."""
        fixed = self.noise.absent and len(self.cell_errors) > 1
        lines = [] if fixed else error_lines(self.cell_errors)
        return [*lines, *(("mechanism", line) for line in self.mechanism_lines())]

    def parts_text(self) -> str:
        """Say how tables were measured part by part."""
        return (
            f"Every {self.depth} was measured by itself, from its own records. The measurements of"
            " all of them were put together, and the tables were estimated and fitted in one piece,"
            f" as without parts. Each {self.depth} holds its rows. All noise was calibrated to the"
            " whole, so that there is one guarantee."
        )

    def fit_notes(self) -> Iterator[str]:
        """Say which tables may not be the closest ones."""
        for table in self.every_table():
            if not table.fitted.optimal and table.fitted.note:
                yield table.fitted.note

    def parts_section(self) -> Section:
        """Return the section of tables by parts: how they were measured, and their errors."""
        first, cells, *errors = HEADINGS
        rows = []
        for table in self.cell_errors:
            name, number, *texts = table.row()
            rows.append((name, number, f"{table.parts:,}", *texts))
        return Section(
            heading=f"Published tables, by {self.depth}",
            paragraphs=[self.parts_text(), *dict.fromkeys(self.fit_notes()), ERRORS_TEXT],
            columns=(first, cells, "parts", *errors),
            rows=rows,
        )

    def details(self) -> Details:
        """Say how the tables were measured and fitted."""
        noise = self.residual_noise()
        how = f"scale {scale_text(self.noise.scale)}"
        if noise is not None:
            how = "exact noise on each residual"
        if self.depth is not None:
            return Details(self.title(), f"{how}, part by part")
        tables = self.every_table()
        fits = [("Fit", f"{table.fitted.kind}: {table.fitted.method}") for table in tables[:1]]
        return Details(self.title(), how, tuple(fits) if len(tables) == 1 else ())

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files hold: those of the first tables, and the measurements."""
        titles = {table.name: table_title(table) for table in self.held_tables()}
        words, left = [], []
        for file in self.files(form):
            title = titles.get(file.rpartition(".")[0])
            if title is None:
                above = "" if self.depth is None else f" at the depth of {self.depth} and above"
                measured = f"the measurements of {self.title()}{above}, for statisticians"
                words.append((file, measured))
            elif len(words) < _LISTED_TABLES:
                told = f"the counts of {title}, with estimates and their standard errors"
                words.append((file, told))
            else:
                left.append(file)
        if left:
            told = f"the same of the next table, and so on: {count_noun(len(left), 'file')}"
            words.insert(_LISTED_TABLES, (left[0], told))
        return words

    def missed_totals(self) -> Iterator[str]:
        """Name the tables that were asked for in whole numbers and have none with all totals."""
        asked = {table.name for table in self.asked_tables if table.fit is FitKind.integer}
        for table in self.every_table():
            if table.name in asked and table.fitted.kind != FitKind.integer:
                yield misses_totals(table.name)
            elif table.name in asked and table.counts.dtype.kind != "i":
                yield f"{NONE_FOUND} {table.name!r}: its counts are real numbers."

    def warnings(self) -> list[str]:
        """Say which tables miss some of their totals."""
        return list(self.missed_totals())

    def cautions(self) -> list[str]:
        """Name tables in many of whose cells noise dominates."""
        return cautions(self.cell_errors)


def mechanism_lines(tables: Sequence[str], mechanism: ResidualMechanism, what: str) -> list[str]:
    """Say how residuals are measured, what joint sensitivity saved, and how large the errors of
    each table are.
    """
    if not mechanism.sigma2:
        return ["no noise: the exact totals fix every table"]
    first = (
        f"noise on {mechanism.name} (what each table has beyond its totals) for {what},"
        f" {mechanism.claim} claim"
    )
    if mechanism.saved:
        first += f"; joint measurement saved {mechanism.saved:.0%} of the variance"
    return [first, *near_least(mechanism), *tables]


def near_least(mechanism: ResidualMechanism) -> list[str]:
    """Say how close the noise is to the lower bound for all Gaussian noise, if one is
    proved.
    """
    above = find_excess_variance(mechanism)
    if above is None:
        return []
    # Rounded up, so the noise never looks nearer to the least than is proved.
    share = math.ceil(max(above, 0.0) * 1000) / 1000
    return [
        f"total variance at most {share:.1%} above the least possible for additive Gaussian noise"
        " with unbiased estimates under this promise"
    ]


def together_words(tables: int) -> str:
    """Say how many tables share a budget."""
    return f"{count_noun(tables, 'table')} from one budget"


def tables_sections(product: "PublishedTables", form: Form | None) -> list[Section]:
    """Return the sections of tables that share a budget: their errors, how they fit together, their
    counts.

    The errors of many tables stand at the top of the page.
    """
    if product.request.is_single_table:
        return [_single_section(product, form)]
    public, absent = product.guarantee.dataspace, product.noise.absent
    counts = counts_sections("The published tables", product.tables, public, absent, form)
    errors = [_errors_section(product)]
    many = len(product.tables) > FEW_TABLES
    first = [*errors, *counts] if many else [*counts, *errors]
    return [*first, _measured_section(product), _together_section(product)]


def _errors_section(product: "PublishedTables") -> Section:
    """Return the list of tables with their errors."""
    rows = [errors.row() for errors in product.cell_errors[:LISTED_ROWS]]
    unlisted = more("tables are listed", len(rows), len(product.tables), "the files")
    return Section(
        heading="How wrong the tables are",
        paragraphs=[ERRORS_TEXT, *unlisted],
        columns=HEADINGS,
        rows=rows,
    )


def _measured_section(product: "PublishedTables") -> Section:
    """Return how the tables were measured, and what other ways would have cost."""
    losses = product_losses(product)
    # One bar has nothing to be compared with.
    drawn = len(losses) > 1 and product.noise_of_residuals.sigma2
    return Section(
        heading="Published tables from one budget",
        paragraphs=product_paragraphs(product),
        figure=loss_plot(losses) if drawn else None,
        caption=losses_caption(product),
    )


def _together_section(product: "PublishedTables") -> Section:
    every = len(product.tables)
    shown = min(every, _LISTED_TABLES)
    rows = [_overlaps(product, number) for number in range(shown)]
    paragraphs = [_decomposable_text(product)]
    paragraphs += more("tables are listed", shown, every, "the files")
    return Section(
        heading="How the tables fit together",
        paragraphs=paragraphs,
        columns=("table", "has the same numbers as other tables in", "exact in it"),
        rows=rows,
        names=3,
    )


def product_paragraphs(product: "PublishedTables") -> list[str]:
    """Describe how the tables agree, and their errors."""
    mechanism = product.noise_of_residuals
    if product.noise.absent:
        return ["The exact totals fix every table: no noise was needed."]
    paragraphs = [
        (
            "The tables share one budget. They are put together from residuals: a residual is what"
            " a table says beyond its own totals. Noise was added to"
            f" {count_noun(len(mechanism.sigma2), 'residual')}, once to each; the exact totals fix"
            " the others. So"
            " a number that occurs in two tables is the same number in both. Estimates are"
            " unbiased, that is, right on average, and their standard errors are those of the noise"
            " alone. The counts are whole numbers, fitted to the estimates from the coarsest table"
            " to the finest. A count may lie outside its interval, which belongs to the estimate."
        ),
    ]
    if mechanism.saved:
        paragraphs.append(
            "No change of the records moves every residual as far as it can go. All residuals"
            f" together therefore needed {mechanism.saved:.0%} less variance than if the worst"
            " change of each had been added up."
        )
    paragraphs += [f"The noise has a {sentence}." for sentence in near_least(mechanism)]
    whole = [table for table in product.tables if table.fitted.kind == "integer"]
    if whole:
        away = math.sqrt(sum(table.fitted.loss for table in whole))
        least = math.sqrt(sum(table.fitted.bound for table in whole))
        paragraphs.append(
            f"The whole numbers lie {error_text(away)} from the estimates (the root of the sum of"
            " squares over all cells). Numbers that are not negative and have the same totals, but"
            f" need not be whole, would lie at least {error_text(least)} away."
        )
    for table in product.tables:
        if not table.fitted.optimal:
            paragraphs.append(f"{table.name}: {table.fitted.note}")
    return paragraphs


def product_losses(product: "PublishedTables") -> dict[str, float]:
    """Return the expected distance from the truth, also for tables one by one and for
    ordinary differential privacy.
    """
    losses = {"this release": product.noise.expected_l2}
    if product.one_by_one_l2:
        losses["one by one,\nsame promise"] = product.one_by_one_l2
    if product.noise.naive_l2:
        losses["ordinary DP,\ngroup privacy"] = product.noise.naive_l2
    return losses


def losses_caption(product: "PublishedTables") -> str:
    """Name the promise of each number in the picture of losses."""
    adjacency, curve = product.guarantee.adjacency, name_tradeoff(product.guarantee.tradeoff)
    records = count_noun(adjacency.a, adjacency.words.one, adjacency.words.noun)
    keep = "it keeps" if adjacency.a == 1 else "they keep"
    promise = report_words(adjacency).promise
    alone = " The tables measured one by one, with the best split of the budget, promise the same."
    if product.one_by_one_l2 is None:
        alone = ""
    return (
        "The picture shows how far all estimates together are expected to be from the true tables:"
        " the square root of the expected sum of squared errors. This is known before any noise"
        f" is drawn. This release promises {curve} for {promise}.{alone} Ordinary differential"
        f" privacy promises it for any {records}, whether {keep} the totals or not. For that it"
        " needs more noise than for one record (group privacy)."
    )


def _overlaps(product: "PublishedTables", number: int) -> tuple[str, str, str]:
    """Say of one table what it shares with which others, and what of it is exact."""
    space, named = (
        product.noise_of_residuals.space,
        product.noise_of_residuals.space.schema.list_view_names,
    )
    view = space.views[number]
    shared: dict[View, list[str]] = {}
    for other, table in enumerate(product.tables):
        overlap = meet(view, space.views[other])
        # Two tables without a common feature share the number of records alone.
        if other != number and any(overlap):
            shared.setdefault(overlap, []).append(table.name)
    agrees = []
    for overlap, names in shared.items():
        agrees.append(f"{' by '.join(named(overlap))} ({_some(names)})")
    totals = maximal(meet(view, total.view) for total in space.dataspace.published_totals)
    exact = [" by ".join(named(total)) for total in totals if any(total)]
    # Every table has the number of records in common with every other.
    agrees_text = "; ".join(agrees) or "only the number of records"
    exact_text = "; ".join(exact) or "only the number of records"
    return product.tables[number].name, agrees_text, exact_text


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED_OTHERS:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def _decomposable_text(product: "PublishedTables") -> str:
    if product.decomposable:
        return (
            "The tables and the exact totals are decomposable: there is a set of records that has"
            " all of them."
        )
    return (
        "The tables agree wherever they overlap. But they hang together in a circle (they are not"
        " decomposable), so perhaps no set of records has all of them."
    )


def describe_noise(result: "PublishedTables") -> str:
    """Name the mechanism of one table, and the error of ordinary differential privacy."""
    noise = result.noise
    how = f"{noise.mechanism}, scale {scale_text(noise.scale)}"
    if result.residuals is not None:
        # Residuals have a scale each: what they are says more than the largest of those.
        how = "noise on residuals (what the table has beyond its totals)"
    more_error = noise.naive_l2 / noise.expected_l2 if noise.naive_l2 and noise.expected_l2 else 1.0
    if more_error >= 1.05:
        how += (
            f"; ordinary differential privacy has {more_error:.2g} times the error at the same"
            " guarantee"
        )
    return how


def _single_section(result: "PublishedTables", form: Form | None) -> Section:
    """Return the section of a table: its counts, and its expected loss next to ordinary
    differential privacy.
    """
    naive = result.noise.naive_l2
    figure = None
    if naive is not None:
        figure = loss_plot(
            {"this release": result.noise.expected_l2, "ordinary DP,\nsame guarantee": naive}
        )
    cells = page_cells(result.only, result.guarantee.dataspace, result.noise.absent, form)
    return Section(
        heading=cells.heading,
        paragraphs=[table_summary(result)],
        cells=cells,
        figure=figure,
        figure_label="Expected loss of this release compared with ordinary differential privacy",
        caption=_LOSS_CAPTION,
    )


def table_summary(result: "PublishedTables") -> str:
    """Describe how one table was made."""
    table, noise = result.only, result.noise
    if noise.absent:
        return (
            "The exact totals fix every cell of this table, so it is published exactly and needs no"
            " noise."
        )
    how = (
        "The measurement is the true table with noise added to it"
        f" ({noise.mechanism} mechanism, scale {scale_text(noise.scale)})"
    )
    if result.residuals is not None:
        how = (
            "The measurement has noise in its residuals, which are what the table says beyond its"
            f" own totals ({len(result.residuals.sigma2)} of them, each with a scale of its own)"
        )
    if table.fitted.kind == "none":
        return (
            f"{how}. The measurement itself is published: counts may be negative, and exact totals"
            " are met up to rounding."
        )
    if table.counts.dtype.kind == "i":
        made = "Each count is a whole number, none is negative, and every exact total is met."
    else:
        made = "No count is negative, but counts need not be whole."
        # A fit that was ended early may miss totals: its note says so.
        made += " Every exact total is met up to rounding." if table.fitted.optimal else ""
    fitted = "The counts are fitted to the measurement."
    return f"{how}. {fitted} {made} {table.fitted.note}".strip()
