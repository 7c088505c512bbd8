"""Tables whose parts are estimated and fitted one by one, under tables at the cut: the published
result.

This is used if no number depends on two parts at once, and for tables too large for one machine.
The release holds the tables at the cut. The cells below it are in the folders of the parts, and are
read on demand.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import list_some
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, BranchSpace, Cut, mechanism_above
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import RECORD
from semidp.publish.half_widths import INTERVALS_BELOW, branch_half_widths
from semidp.publish.product_estimates import spread_residual
from semidp.publish.residual_mechanism import ResidualMechanism, residual_variance
from semidp.publish.results.columns import Columns, StoredFiles
from semidp.publish.results.published_table import (
    FitKind,
    Fitted,
    FittedTable,
    PublishedTable,
    StoredFit,
    file_stem,
    read_cells,
    refuse_contradiction,
)
from semidp.publish.statistics.parts import Part, Partition, PartTable, refuse_changed
from semidp.publish.statistics.protocol.requests import (
    Published,
    Request,
    RequestMeasurement,
    mechanism_fields,
)
from semidp.publish.statistics.tables.asked import TableRequest, TablesAsked, measurements_stem
from semidp.publish.statistics.tables.cut_tables import (
    CutKind,
    TableBlocks,
    cut_plain,
    read_residuals,
    residual_columns,
    residuals_json,
    split_residuals,
)
from semidp.publish.statistics.tables.fitting import (
    CutFit,
    Fits,
    exact_totals,
    fit_at_cut,
    fit_views,
    fitted_tables,
    whole_totals,
)
from semidp.publish.statistics.tables.published import PublishedTables
from semidp.publish.statistics.tables.words import CellErrors, misses_totals

Floats = NDArray[np.float64]
_NAMED_PARTS = 5  # in a warning
_NOTES = 3  # of fits of one table, in a report


class TableOfParts(PublishedTable):
    """A table whose cells are read from the folders of the parts on demand.

    Parameters
    ----------
    name, schema
        Its name and its features.
    partition
        The parts, and where they are.
    """

    def __init__(self, name: str, schema: Schema, partition: Partition) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "name", name)
        keep(self, "schema", schema)
        keep(self, "order", ())
        keep(self, "counted", RECORD)
        keep(self, "_partition", partition)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        partition: Partition = self.__dict__["_partition"]
        if partition.place is None:
            raise InputError(
                f"the cells of {self.name!r} are in the folder of the release, which is not known"
            )
        cut, grid = Cut.from_name(self.schema, partition.depth), self.schema.grid
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            rows = cut.branch(self.schema, node)
            fitted = part.find_fit(self.name)
            table = PublishedTable.read(partition.files(part), self.name, rows, fitted)
            for name in ("counts", "estimate", "standard_errors", "half_widths"):
                column = getattr(table, name)
                if column is None:
                    continue
                # Counts of a part without whole numbers are real ones, and so are those of the
                # whole table then.
                before = cells.get(name, np.zeros(self.schema.shape, column.dtype))
                kind = np.result_type(before.dtype, column.dtype)
                cells[name] = before.astype(kind, copy=False)
                row = cut.row(grid, grid.full, cells[name], node)
                row[...] = column.reshape(row.shape)
        return cells

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        partition: Partition = self.__dict__["_partition"]
        fits = [part.find_fit(self.name) for part in partition.parts]
        not_whole = [fit.kind for fit in fits if fit.kind != FitKind.integer]
        methods = dict.fromkeys(fit.method for fit in fits)
        notes = dict.fromkeys(fit.note for fit in fits if fit.note)
        return Fitted(
            # One part without whole numbers is enough for the table to have none with all totals.
            kind=not_whole[0] if not_whole else str(FitKind.integer),
            method=", ".join(methods),
            # Parts hold different cells, so squared distances and their lower bounds add up.
            loss=sum(fit.loss for fit in fits),
            bound=sum(fit.bound for fit in fits),
            optimal=all(fit.optimal for fit in fits),
            note=" ".join(notes),
        )

    @cached_property
    def counts(self) -> NDArray[Any]:
        """Published counts, of all parts."""
        return self._cells["counts"]

    @cached_property
    def estimate(self) -> Floats:
        """The unbiased estimate, in all parts."""
        return self._cells["estimate"]

    @cached_property
    def standard_errors(self) -> Floats:
        """The standard errors of the estimate, in all parts."""
        return self._cells["standard_errors"]

    @cached_property
    def half_widths(self) -> Floats | None:
        """Half-widths of the 95% intervals; None if a part is too large to have them."""
        return self._cells.get("half_widths")


@frozen(eq=False)
class RowAtCut:
    """The cells at the cut, for one part, of a table that reaches below it: the estimate, its
    variance, and the published whole numbers (None if there are none).
    """

    asked: TableRequest
    estimate: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


_EMPTY = Fitted(
    "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
)


def divide_below_cut(space: BranchSpace, row: Floats, number: int, power: int = 1) -> Floats:
    """Divide the cells of a table at the cut evenly among the cells below (variances with power
    2).
    """
    view = space.views[number]
    above = space.cut.coarsen_view(view)
    return spread_residual(space.residuals, space.trim(row, above), above, view, power)


def estimate_branch_tables(
    branch: BranchNoise,
    noisy: Mapping[View, NDArray[np.int64]],
    above: Sequence[tuple[Floats, Floats]],
) -> list[tuple[Floats, Floats]]:
    """Return the estimate of each table and the variance of each of its cells, from the
    residuals below the cut.

    `above` has for each table its estimate at the cut for this node, and the variance of that.
    """
    space, residuals = branch.space, branch.space.residuals
    estimates, variances = [], []
    for number, (row, square) in enumerate(above):
        estimates.append(np.array(divide_below_cut(space, row, number)))
        variances.append(np.array(divide_below_cut(space, square, number, 2)))
    for number, view in enumerate(space.views):
        for small, exact_part in space.exact_residuals.items():
            depths = zip(small, view, strict=True)
            if all(one <= other for one, other in depths):
                estimates[number] += spread_residual(residuals, exact_part, small, view)
    for small, holders in space.holders.items():
        scale = residuals.scale(small)
        centred = residuals.center(small, noisy[small] / scale)
        variance_before = residual_variance(branch.law, branch.sigma2[small], scale)
        centred_variance = residuals.centred_variance(small, variance_before)
        for number in holders:
            view = space.views[number]
            estimates[number] += spread_residual(residuals, centred, small, view)
            variances[number] += spread_residual(residuals, centred_variance, small, view, power=2)
    tables = []
    for number, view in enumerate(space.views):
        estimate = space.restore_full_table(estimates[number], view)
        tables.append((estimate, space.restore_full_table(variances[number], view)))
    return tables


def estimate_part(
    noise: BranchNoise, noisy: NDArray[np.int64], rows: Sequence[RowAtCut]
) -> list[tuple[Floats, Floats]]:
    """Return the estimates and variances of the tables of one part, from what was measured in it
    and at the cut.
    """
    above = [(row.estimate, row.variance) for row in rows]
    return estimate_branch_tables(noise, split_residuals(noise.space, noisy), above)


def build_part(
    schema: Schema,
    asked: Sequence[TableRequest],
    noise: BranchNoise | None,
    estimated: Sequence[tuple[Floats, Floats]] | None,
    fits: Sequence[StoredFit],
) -> list[PublishedTable]:
    """Return the tables of one part with their whole numbers. If no record is possible, there
    is no noise, and nothing is estimated.
    """
    half_widths = None if noise is None else branch_half_widths(noise, INTERVALS_BELOW)
    tables = []
    for number, (table, (counts, how)) in enumerate(zip(asked, fits, strict=True)):
        rows = schema.restrict(table.features)
        zero = np.zeros(rows.shape)
        estimate, variance = (zero, zero) if estimated is None else estimated[number]
        half = zero if half_widths is None else half_widths[number]
        cells, errors = counts.reshape(rows.shape), np.sqrt(variance)
        tables.append(PublishedTable(table.name, rows, cells, estimate, errors, how, half))
    return tables


def fit_nobody(schema: Schema, asked: Sequence[TableRequest]) -> list[StoredFit]:
    """Return the whole numbers of a part in which no record is possible."""
    shapes = [schema.restrict(table.features).shape for table in asked]
    return [(np.zeros(shape, dtype=np.int64), _EMPTY) for shape in shapes]


@frozen(slots=False, eq=False, kw_only=True, repr=False)
class SeparateTables(PublishedTables):
    """Tables that were measured and fitted at a cut and above it first, and below it part by part.

    Parameters
    ----------
    request, residuals
        What was asked for, and the noise of every residual, above the cut and below.
    cut
        The depth at which the tables were divided.
    noisy
        The measured residuals at the cut and above, as drawn, times their scales.
    tables
        The requested tables. Their cells are read from the folders of the parts on
        demand.
    overview
        Every table at the cut: those that reach below are summed to it.
    parts
        The parts of the release, when all of them are done.
    """

    tables: tuple[PublishedTable, ...] = ()
    cut: Cut
    overview: tuple[PublishedTable, ...]
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.noise_of_residuals.space.schema

    @property
    def depth(self) -> str:
        """Name of the depth of the cut."""
        return self.cut.name(self.schema)

    @cached_property
    def kind(self) -> CutKind:
        """The tables, cut."""
        (kind,) = cut_plain(self.request.tables, self.noise_of_residuals, self.schema, self.cut)
        return kind

    @cached_property
    def mechanism_above_cut(self) -> ResidualMechanism:
        """The noise at the cut and above it."""
        return mechanism_above(self.noise_of_residuals, self.cut)

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut."""
        return self.kind.below

    # --- what is said about it

    @cached_property
    def cell_errors(self) -> list[CellErrors]:
        """The errors of the cells of each table, from the statements of the parts."""
        overview = {table.name: table for table in self.overview}
        every = []
        for asked in self.request.tables:
            pieces = self._pieces(asked)
            if asked not in self.tables_below_cut:
                every.append(CellErrors.from_table(overview[asked.name]))
                continue
            cells = self.schema.restrict(asked.features)
            title = " by ".join(cells.names)
            every.append(errors_from_parts(asked.name, title, cells.size, pieces))
        return every

    def _pieces(self, asked: TableRequest) -> list[PartTable]:
        """What the parts tell of one table."""
        return [piece for part in self.parts for piece in part.tables if piece.name == asked.name]

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        return ["noise on residuals (what each table has beyond its totals), part by part"]

    def parts_text(self) -> str:
        """Say how tables were measured part by part."""
        depth = self.depth
        return (
            f"Every table was first measured at the depth of {depth} and above. Totals of several"
            f" parts together were divided between the parts there. Below that depth, each {depth}"
            " was measured and fitted by itself, from its own records and from these public"
            " numbers. All noise was calibrated to the whole, so that there is one guarantee. What"
            f" a finer table counts by {depth} is the sum of its parts."
        )

    def fit_notes(self) -> Iterator[str]:
        """Say which tables may not be the closest ones; many parts have the same note."""
        for asked in self.request.tables:
            fits = [piece.fitted for piece in self._pieces(asked)]
            fits += [table.fitted for table in self.overview if table.name == asked.name]
            notes = dict.fromkeys(fit.note for fit in fits if not fit.optimal and fit.note)
            yield from list(notes)[:_NOTES]

    def missed_totals(self) -> Iterator[str]:
        """Name the tables that were asked for in whole numbers and have none with all totals, and
        in which parts.
        """
        above = {table.name: table.fitted for table in self.overview}
        for asked in fitted_requests(self.request):
            if asked not in self.tables_below_cut:
                if above[asked.name].kind != FitKind.integer:
                    yield misses_totals(asked.name)
                continue
            missed = [part for part in self.parts if part.find_fit(asked.name).kind != "integer"]
            if missed:
                yield misses_totals(asked.name, f" in {_some_parts(missed)}")

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return Published.claim_text(self)

    # --- tables and files

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables at the cut. Their cells are in the files of the release itself."""
        return self.overview

    def with_partition(self, partition: Partition) -> "SeparateTables":
        """Return this result with its parts, and with tables that are read from their folders."""
        overview = {table.name: table for table in self.overview}
        tables = []
        for asked in self.request.tables:
            cells = self.schema.restrict(asked.features)
            below = TableOfParts(asked.name, cells, partition)
            tables.append(below if asked in self.tables_below_cut else overview[asked.name])
        return evolve(self, parts=partition.parts, tables=tuple(tables))

    @property
    def _overview(self) -> tuple[PublishedTable, ...]:
        return self.overview

    def part_stems(self) -> tuple[list[str], str]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return [table.name for table in self.tables_below_cut], measurements_stem(self.request)

    def measurements(self) -> Columns:
        """Return the residuals that were measured at the cut and above."""
        return residual_columns([self.mechanism_above_cut.space], self.noisy)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        tables = []
        for table in self.request.tables:
            tables.append({"name": table.name, "features": list(table.features)})
        values = {**Published.to_json(self), **residuals_json(self.noise_of_residuals)}
        values["tables"] = tables
        values["overview"] = [table.to_json() for table in self.overview]
        return values

    # --- one part

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the tables of one part: counts, estimates and errors."""
        schema = self.cut.branch(self.schema, node)
        tables = []
        for asked in self.tables_below_cut:
            rows, fitted = schema.restrict(asked.features), part.find_fit(asked.name)
            tables.append(PublishedTable.read(files, asked.name, rows, fitted))
        return tables

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Publish one part again from what was measured in it, with its stored whole numbers."""
        schema = self.cut.branch(self.schema, node)
        noise = self.part_noise(node)
        fits: list[StoredFit] = []
        for asked in self.tables_below_cut:
            cells = read_cells(files, asked.name, schema.restrict(asked.features))
            fitted = part.find_fit(asked.name)
            # A search may find no whole numbers for a part; its warning says so. A part that can
            # hold no record has zeros, which are whole.
            is_empty = noise is None and fitted.kind == FitKind.integer
            if fitted.kind not in (asked.fit, FitKind.none) and not is_empty:
                raise ValueError("a table has the numbers that its plan asks for")
            fits.append((cells["count"], fitted))
        if noise is None:
            return build_part(schema, self.tables_below_cut, None, None, fits), None
        noisy = files.numbers(measurements_stem(self.request), 1)["noisy"]
        estimated = estimate_part(noise, noisy, self.rows(node))
        tables = build_part(schema, self.tables_below_cut, noise, estimated, fits)
        return tables, residual_columns([noise.space], noisy)

    def part_faults(self, node: int, tables: Sequence[PublishedTable]) -> Iterator[str]:
        """Say where whole numbers of a part do not add up to exact totals, or to tables above."""
        schema = self.cut.branch(self.schema, node)
        exact = self.cut.exact(self._space.dataspace, node)
        for table, row in zip(tables, self.rows(node), strict=True):
            if table.fitted.kind != "integer":
                continue
            counts, view = table.counts, schema.view(table.schema.names)
            cells = counts.reshape(schema.grid.compute_margin_shape(view))
            at_cut = schema.grid.sum(cells, self.cut.coarsen_view(view), view)
            adds_up = row.counts is None or np.array_equal(at_cut.ravel(), row.counts.ravel())
            if counts.dtype.kind != "i" or counts.min(initial=0) < 0 or not adds_up:
                yield f"counts of {table.name} that do not add up to those above"
            elif exact.margins and not exact.restrict_features(table.schema.names).contains(
                Table(table.schema, counts)
            ):
                yield f"counts of {table.name} that do not add up to the exact totals"

    def fitted_tables(self) -> list[FittedTable]:
        """Return none: its tables are in the parts, which are compared one by one."""
        return []

    def row(self, view: View, values: NDArray[Any], node: int) -> NDArray[Any]:
        """Return the cells of a table at the cut that belong to one node."""
        grid = self.schema.grid
        cells = np.reshape(values, grid.compute_margin_shape(view))
        return self.cut.row(grid, view, cells, node)

    def rows(self, node: int) -> list[RowAtCut]:
        """Return the cells at the cut, for one node, of the tables that reach below it."""
        places = {view: place for place, view in enumerate(self.mechanism_above_cut.space.views)}
        rows = []
        for table in self.tables_below_cut:
            view = self.cut.coarsen_view(self.schema.view(table.features))
            place = places[view]
            at_cut = self.overview[place]
            estimate = self.row(view, at_cut.estimate, node)
            variance = self.row(view, self.mechanism_above_cut.cell_variances(place), node)
            counts = None
            if at_cut.fitted.kind == "integer":
                counts = self.row(view, at_cut.counts, node)
            rows.append(RowAtCut(table, estimate, variance, counts))
        return rows

    def part_noise(self, node: int) -> BranchNoise | None:
        """Return the noise below one node; None if the node can hold no record."""
        return BranchNoise.from_mechanism(self.noise_of_residuals, self.cut, node)

    def whole_noisy(self, partition: Partition | None) -> NDArray[np.int64]:
        """Read the measurement of every part, and put it together with the measurement above."""
        if partition is None or partition.place is None:
            raise InputError(
                f"what was measured of {self.name!r} is in the folders of its parts, which are not"
                " known"
            )
        below = {}
        for node, part in enumerate(partition.parts):
            refuse_changed(partition.place, part.digests, "the release was written")
            if self.kind.count_entries(node):
                numbers = partition.files(part).numbers(measurements_stem(self.request), 1)
                below[node] = numbers["noisy"]
        return TableBlocks((self.kind,), measurements_stem(self.request)).join(self.noisy, below)

    # --- whole numbers at the cut

    @property
    def estimates(self) -> dict[View, Floats]:
        """The estimates of all tables at the cut."""
        estimates = [table.estimate for table in self.overview]
        return dict(zip(self.mechanism_above_cut.space.views, estimates, strict=True))

    def settle_cut(self, progress: Progress) -> CutFit:
        """Settle the whole numbers at the cut that the parts need."""
        views, totals = fitted_views(self.request, self.schema), exact_totals(self._space)
        return fit_at_cut(self.schema.grid, views, totals, self.cut, self.estimates, progress)

    @property
    def _space(self) -> Any:
        return self.noise_of_residuals.space

    def fit_overview(
        self, fit: CutFit, parts: Sequence[Part], folder: Path, progress: Progress
    ) -> list[StoredFit]:
        """Return the published tables at the cut. Each was fitted before the parts, is a sum of
        parts, or is fitted to such sums.

        A table that nobody asked for in whole numbers stays as it is.
        """
        sums: Fits = {}
        # Of tables that are the same at the cut, one with whole numbers everywhere is preferred.
        for asked in fitted_requests(self.request):
            finest = self.schema.view(asked.features)
            if not self.cut.reaches(finest):
                continue
            view = self.cut.coarsen_view(finest)
            if view not in sums or sums[view][1].kind != FitKind.integer:
                sums[view] = self._sum_parts(asked, parts, folder)
        # An early table stays as it was fitted, because the parts were fitted to it.
        fits = {**sums, **fit.fits}
        # Late tables are fitted when the parts are done, so sums of parts are totals of theirs.
        totals = [*exact_totals(self._space), *whole_totals(fits)]
        grid = self.schema.grid
        fits |= fit_views(grid, fit.order.late, totals, self.estimates, progress)
        published = []
        for view, table in zip(self.mechanism_above_cut.space.views, self.overview, strict=True):
            published.append(fits.get(view, (table.counts, table.fitted)))
        return published

    def _sum_parts(self, asked: TableRequest, parts: Sequence[Part], folder: Path) -> StoredFit:
        """Return the counts of a table below the cut, summed to the cut. They are read from the
        files of all parts.
        """
        view = self.schema.view(asked.features)
        above = self.cut.coarsen_view(view)
        counts = np.zeros(self.schema.grid.compute_margin_shape(above), dtype=np.int64)
        labels = len(self.schema.restrict(asked.features).names)
        missed = []
        for node, part in enumerate(parts):
            grid = self.cut.branch(self.schema, node).grid
            files = StoredFiles(folder / part.folder, tuple(part.files))
            cells = files.counts(asked.name, labels).reshape(grid.compute_margin_shape(view))
            self.row(above, counts, node)[...] = grid.sum(cells, above, view)
            if part.find_fit(asked.name).kind != FitKind.integer:
                missed.append(part)
        loss = float(np.square(counts - self.estimates[above]).sum())
        kind, note = FitKind.integer, ""
        if missed:
            kind = FitKind.none
            note = (
                f"The sums of the parts, of which {len(missed)} have no whole numbers with all"
                " totals."
            )
        return counts, Fitted(str(kind), "sums of the parts", loss, 0.0, False, note)

    def compute_expected_l2(self, below: Iterable[PartTable]) -> float:
        """Return the expected loss of the requested tables, from the errors that the parts
        state.
        """
        asked = {table.name for table in self.request.tables}
        every = (*map(PartTable.from_table, self.overview), *below)
        return math.sqrt(sum(table.variance for table in every if table.name in asked))


def errors_from_parts(name: str, title: str, size: int, pieces: Sequence[PartTable]) -> CellErrors:
    """Return the errors of a table, from the statements of its parts."""
    noisy = sum(piece.cells.noisy for piece in pieces)
    smallest = [piece.cells.smallest_standard_error for piece in pieces if piece.cells.noisy]
    variance = sum(piece.variance for piece in pieces)
    errors = {
        "standard_error": math.sqrt(variance / max(noisy, 1)),
        "smallest": min(smallest, default=0.0),
        "largest": max(piece.largest_standard_error for piece in pieces),
    }
    dominated = sum(piece.cells.dominated for piece in pieces)
    return CellErrors(name, size, errors, dominated, noisy, title, len(pieces))


def _some_parts(parts: Sequence[Part]) -> str:
    return list_some(parts, _NAMED_PARTS, write=lambda part: " · ".join(part.path))


def begin_separate(
    request: TablesAsked,
    mechanism: ResidualMechanism,
    cut: Cut,
    noisy: NDArray[np.int64],
    private: bool,
    names: Sequence[str],
    fits: Sequence[StoredFit] = (),
) -> SeparateTables:
    """Return the tables at the cut as they are estimated from what was measured there and above,
    with stored whole numbers where there are some.
    """
    above = mechanism_above(mechanism, cut)
    if noisy.shape != above.space.shape or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    unfitted = [FitKind.none] * len(names)
    overview = fitted_tables(above, above.publish(noisy), names, unfitted, silent, fits)
    return SeparateTables(
        request=request,
        residuals=mechanism,
        cut=cut,
        noisy=noisy,
        overview=overview,
        # what it costs is known when all is done
        **mechanism_fields(request.name, mechanism, private, 0.0),
    )


@frozen(eq=False)
class SeparateMeasurement(RequestMeasurement):
    """Stored tables whose parts were fitted one by one: what was measured at the cut and above.

    Parameters
    ----------
    mechanism, measurement
        The noise of the whole, and what was measured at the cut and above it.
    partition, stems
        The parts, and what the tables at the cut are called.
    """

    mechanism: ResidualMechanism
    partition: Partition
    stems: tuple[str, ...]

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> SeparateTables:
        """Return the tables at the cut with their stored whole numbers, and those of the parts."""
        cut = Cut.from_name(self.mechanism.space.schema, self.partition.depth)
        noisy, private = self.measurement.noisy, self.measurement.private
        result = begin_separate(request, self.mechanism, cut, noisy, private, self.stems, counts)
        below = [table for part in self.partition.parts for table in part.tables]
        expected = result.compute_expected_l2(below)
        done = evolve(result, noise=evolve(result.noise, expected_l2=expected))
        return done.with_partition(self.partition)


def read_separate(
    entry: Mapping[str, Any],
    request: TablesAsked,
    requests: Sequence[Request],
    mechanism: ResidualMechanism,
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> tuple[SeparateMeasurement, list[StoredFit]]:
    """Read what was measured at the cut and above, and the whole numbers of the tables there.

    Parameters
    ----------
    entry
        What release.json says of the request.
    request, requests
        What was asked for, among all requests of the plan.
    mechanism, partition, scope, files
        How it was measured, the parts, what is public, and the files of the release itself.
    """
    schema = mechanism.space.schema
    cut = Cut.from_name(schema, partition.depth)
    above = mechanism_above(mechanism, cut)
    noisy = read_residuals(files, measurements_stem(request), above.space)
    names = overview_names(requests, schema, cut)[request.name]
    fits: list[StoredFit] = []
    for part, (name, view) in zip(entry["overview"], names, strict=True):
        at_cut = schema.restrict(schema.list_view_names(view))
        # The plan says what files at the cut are called, so no entry can point elsewhere.
        if part["name"] != name or part["features"] != list(at_cut.names):
            raise ValueError("the tables at the cut are not those of the plan")
        counts, how = read_cells(files, name, at_cut)["count"], Fitted(**part["fit"])
        refuse_contradiction(files.folder, name, at_cut, counts, how, RECORD, scope)
        fits.append((counts, how))
    measured = above.restore_measurement(noisy, entry["private"])
    stems = tuple(name for name, _ in names)
    return SeparateMeasurement(measured, mechanism, partition, stems), fits


def fitted_requests(request: TablesAsked) -> list[TableRequest]:
    """Return the tables of a request that are published as whole numbers."""
    return [table for table in request.tables if table.fit is FitKind.integer]


def fitted_views(request: TablesAsked, schema: Schema) -> list[View]:
    """Return the views of the tables that are published as whole numbers, each once."""
    views = [schema.view(table.features) for table in fitted_requests(request)]
    return list(dict.fromkeys(views))


def overview_names(
    requests: Sequence[Request], schema: Schema, cut: Cut
) -> dict[str, list[tuple[str, View]]]:
    """Return each request's tables at a cut by the names of their files. Tables of the plan keep
    their own names.
    """
    # Some file systems take names that differ only in capitals for one file.
    taken = {name.casefold().removesuffix(".csv") for request in requests for name in request.files}
    every = {}
    for request in requests:
        views = [schema.view(table.features) for table in request.tables]
        asked = dict(zip(views, (table.name for table in request.tables), strict=True))
        at_cut = []
        for view in dict.fromkeys(map(cut.coarsen_view, views)):
            name = asked.get(view)
            if name is None:
                name = file_stem(schema.list_view_names(view))
                while name.casefold() in taken:
                    name = f"{name}-overview"
                taken.add(name.casefold())
            at_cut.append((name, view))
        every[request.name] = at_cut
    return every


def name_unasked(
    request: TablesAsked, requests: Sequence[Request], schema: Schema, cut: Cut
) -> dict[str, tuple[str, ...]]:
    """Return the tables of a request at a cut that nobody asked for: their names and features."""
    asked = {table.name for table in request.tables}
    at_cut = overview_names(requests, schema, cut)[request.name]
    return {name: schema.list_view_names(view) for name, view in at_cut if name not in asked}


def foresee_cycles(request: TablesAsked, views: Iterable[View], schema: Schema) -> Iterator[str]:
    """Name the tables for which whole numbers are not guaranteed, because their totals are
    not decomposable (docs/products.md).
    """
    cycles = set(views)
    for table in fitted_requests(request):
        if schema.view(table.features) in cycles:
            yield (
                f"The totals of the table {table.name!r}, exact ones and those that other"
                " tables fix, hang together in a circle, so that no whole numbers may have all"
                " of them: then other tables follow from it, or it misses some."
            )
