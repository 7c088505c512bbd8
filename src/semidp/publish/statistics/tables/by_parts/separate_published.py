"""Separate parts, the published result: tables at the cut, and tables below it whose cells are in
the folders of parts.

Everything here is public: what was measured at the cut and above, what the files of the parts are,
and how the tables in them were fitted. The steps that make it are in `separate_steps`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.publish.results.cells import Columns, Form, PublishedColumns, StoredFiles, named_files
from semidp.publish.results.published_table import (
    FitKind,
    Fitted,
    PublishedTable,
    tables_by_features,
)
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.parts import (
    Part,
    Partition,
    PartTable,
    StoredPartition,
    refuse_changed,
)
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published, read_back
from semidp.publish.statistics.tables.by_parts import parts_words
from semidp.publish.statistics.tables.by_parts.separate_fits import (
    CutFit,
    Fits,
    fit_at_cut,
    fit_views,
    needs_joint_fit,
    whole_totals,
)
from semidp.publish.statistics.tables.by_parts.table_of_parts import (
    BY_PARTS,
    TableOfParts,
    tables_below,
)
from semidp.publish.statistics.tables.error_words import CellErrors, cautions
from semidp.publish.statistics.tables.fitting import FIT_SECONDS, exact_totals, fit_product
from semidp.publish.statistics.tables.published import PublishedTables, measurements_stem
from semidp.publish.statistics.tables.request import TableRequest, TablesRequest, file_stem
from semidp.publish.statistics.tables.residual_files import (
    read_residuals,
    residual_columns,
    residuals_from_json,
    residuals_json,
)


@dataclass(frozen=True, eq=False)
class TotalsAtCut:
    """Public totals of a table that crosses the partition: those at the cut, and those of one part.

    The estimate, its variance, and the fitted whole numbers (None where none were fitted).
    """

    asked: TableRequest
    estimate: NDArray[np.float64] = field(repr=False)
    variance: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SeparateTables(PublishedTables):
    """Tables that were measured and fitted at a cut and above it first, and below it part by part.

    Parameters
    ----------
    request
        What was asked for: a table, or tables that share a budget.
    residuals
        The noise of every residual, above the cut and below.
    cut
        The depth at which the tables were taken apart.
    noisy
        The measured residuals at the cut and above, as drawn, times their scales.
    tables
        The tables that were asked for. Their cells are read from the folders of the parts when they
        are asked for.
    overview
        Every table as it is at the cut: those that reach below it are summed to it.
    parts
        The parts of the release, when all of them are done.
    """

    key: ClassVar[str] = BY_PARTS

    tables: tuple[PublishedTable, ...] = ()
    cut: Cut
    noisy: NDArray[np.int64] = field(repr=False)
    overview: tuple[PublishedTable, ...]
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @property
    def list_key(self) -> str:
        """Key of the list in release.json that holds this result."""
        return BY_PARTS

    @property
    def depth(self) -> str:
        """Name of the depth of the cut."""
        return self.cut.name(self.noise_of_residuals.space.schema)

    def title(self) -> str:
        """Name the first tables that reach below the cut."""
        return parts_words.title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has, in how many parts."""
        return parts_words.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table over all parts, for a terminal."""
        return parts_words.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of their errors."""
        return [parts_words.section(self)]

    def details(self) -> Details:
        """Say how they were measured."""
        return Details(self.name, "exact noise on each residual, part by part")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files at the cut hold."""
        return parts_words.file_words(self, form)

    def warnings(self) -> list[str]:
        """Name the tables, and the parts, without whole numbers that have all totals."""
        return parts_words.warnings(self)

    def cautions(self) -> list[str]:
        """Name tables in many of whose cells noise dominates."""
        titles = [table.title for table in parts_words.part_errors(self)]
        return cautions(self.cell_errors(), titles)

    def cell_errors(self) -> list[CellErrors]:
        """Return how wrong the cells of each table are, from what the parts tell."""
        return [table.errors for table in parts_words.part_errors(self)]

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return Published.claim_text(self)

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables at the cut. Their cells are in the files of the release itself."""
        return self.overview

    def with_partition(self, partition: Partition) -> "SeparateTables":
        """Return this result with its parts, and with tables that are read from their folders."""
        made = replace(self, parts=partition.parts)
        return replace(made, tables=tuple(made.whole_tables(partition)))

    def whole_tables(self, partition: Partition) -> Iterator[PublishedTable]:
        """Yield every requested table: those at the cut or above as they are, the others from the
        parts.
        """
        below = {table.name for table in self.tables_below_cut}
        overview = {table.name: table for table in self.overview}
        schema = self.noise_of_residuals.space.schema
        for asked in self.request.tables:
            if asked.name in below:
                yield TableOfParts(asked.name, schema.restrict(asked.features), partition)
            else:
                yield overview[asked.name]

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return every table by its name, with those at the cut that nobody asked for."""
        every: dict[str, PublishedColumns] = {table.name: table for table in self.overview}
        return every | {table.name: table for table in self.tables}

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
        """Return every table by its features."""
        # A table that was asked for comes last, and takes the place of its overview.
        return tables_by_features((*self.overview, *self.tables))

    def part_stems(self) -> tuple[list[str], str]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return [table.name for table in self.tables_below_cut], measurements_stem(self.request)

    def recalibrate(self, request: Request, scope: Scope) -> ResidualMechanism:
        """Return the noise of its residuals, placed anew."""
        return self.request.residual_mechanism(self.request.residual_space(scope))

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "SeparateTables":
        """Compare the tables at the cut, then every part; return the recomputed tables."""
        from semidp.publish.statistics.tables.by_parts.separate_recheck import recheck_separate

        assert isinstance(mechanism, ResidualMechanism)
        return recheck_separate(self, check, mechanism)

    def fitted_cells(self, request: Request, scope: Scope) -> int:
        """Return how many cells the tables have in all parts together."""
        schema = self.noise_of_residuals.space.schema
        return sum(schema.restrict(table.features).size for table in self.request.tables)

    @cached_property
    def mechanism_above_cut(self) -> ResidualMechanism:
        """The noise at the cut and above it."""
        return mechanism_above(self.noise_of_residuals, self.cut)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table at the cut, and the residuals that were measured there and
        above.
        """
        columns = {table.name: table.columns() for table in self.overview}
        stem = measurements_stem(self.request)
        columns[stem] = residual_columns(self.mechanism_above_cut, self.noisy)
        return named_files(columns, form)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        tables = []
        for table in self.request.tables:
            tables.append({"name": table.name, "features": list(table.features)})
        values = {**Published.to_json(self), **residuals_json(self.noise_of_residuals)}
        values["tables"] = tables
        values["overview"] = [table.to_json() for table in self.overview]
        return values

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the tables of one part: counts, estimates and errors."""
        schema = self.cut.branch(self.noise_of_residuals.space.schema, node)
        fits = {table.name: table.fitted for table in part.tables}
        tables = []
        for asked in self.tables_below_cut:
            rows = schema.restrict(asked.features)
            tables.append(PublishedTable.read(files, asked.name, rows, fits[asked.name]))
        return tables

    def whole_noisy(self, partition: Partition | None) -> NDArray[np.int64]:
        """Read the measurement of every part, and put it together with the measurement above."""
        from semidp.publish.statistics.tables.by_parts.assembled_measurement import vector_of_parts

        if not isinstance(partition, StoredPartition):
            raise InputError(
                f"what was measured of {self.name!r} is in the folders of its parts, which are not"
                " known"
            )
        for part in partition.parts:
            refuse_changed(partition.place, part.digests, "the release was written")
        noise = self.noise_of_residuals
        return vector_of_parts(
            self.request, noise, self.cut, self.noisy, partition, partition.place
        )

    def expected_l2(self, below: Iterable[PartTable]) -> float:
        """Return the expected loss of the requested tables, from the errors that the parts
        state.
        """
        asked = {table.name for table in self.request.tables}
        every = (*map(PartTable.from_table, self.overview), *below)
        variances = [table.variance for table in every if table.name in asked]
        return math.sqrt(sum(variances))

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut."""
        schema = self.noise_of_residuals.space.schema
        return tables_below(self.request.tables, schema, self.cut)

    @property
    def estimates(self) -> dict[View, NDArray[np.float64]]:
        """The estimates of all tables at the cut."""
        estimates = [table.estimate for table in self.overview]
        return dict(zip(self.mechanism_above_cut.space.views, estimates, strict=True))

    @property
    def is_fitted_jointly(self) -> bool:
        """Whether all parts are fitted in one piece, after all were measured."""
        space = self.noise_of_residuals.space
        exact = [total.view for total in exact_totals(space)]
        views = fitted_views(self.request, space.schema)
        return needs_joint_fit(space.schema.grid, views, exact, self.cut)

    def settle_cut(self, progress: Progress) -> CutFit:
        """Settle the whole numbers at the cut that the parts need, where each part is fitted by
        itself.
        """
        space = self.noise_of_residuals.space
        grid = space.schema.grid
        views = fitted_views(self.request, space.schema)
        totals = exact_totals(space)
        return fit_at_cut(grid, views, totals, self.cut, self.estimates, progress)

    def fitted_whole(
        self,
        below: Mapping[View, NDArray[np.float64]],
        progress: Progress,
        time_limit: float = FIT_SECONDS,
    ) -> Fits:
        """Fit all tables in one piece, as in a release without parts.

        Parameters
        ----------
        below
            The estimates of the tables that reach below the cut, those of all parts.
        progress
            Told what is going on.
        time_limit
            Seconds that the search for one table may take.
        """
        space = self.noise_of_residuals.space
        every = {**self.estimates, **below}
        estimates = [every[view] for view in space.views]
        fit_kinds = [table.fit for table in self.request.tables]
        fits = fit_product(
            space.schema.grid,
            space.views,
            exact_totals(space),
            estimates,
            fit_kinds,
            progress,
            time_limit=time_limit,
        )
        return dict(zip(space.views, fits, strict=True))

    def estimates_below(
        self, measured: Callable[[int, BranchNoise], Mapping[View, NDArray[np.int64]]]
    ) -> dict[View, NDArray[np.float64]]:
        """Return the estimates of the tables below the cut, put together from all parts.

        Parameters
        ----------
        measured
            Returns what was measured below a node, given its noise.
        """
        schema = self.noise_of_residuals.space.schema
        views = [schema.view(table.features) for table in self.tables_below_cut]
        estimates = {view: np.zeros(schema.grid.compute_margin_shape(view)) for view in views}
        for node in range(self.cut.chain(schema).size(self.cut.depth)):
            noise = self.part_noise(node)
            if noise is None:  # nobody is there: zeros
                continue
            above = [(row.estimate, row.variance) for row in self.rows(node)]
            tables = noise.tables(measured(node, noise), above)
            for view, (estimate, _) in zip(views, tables, strict=True):
                part = self.row(view, estimates[view], node)
                part[...] = estimate.reshape(part.shape)
        return estimates

    def overview_fits(
        self, fit: CutFit, parts: Sequence[Part], folder: Path, progress: Progress
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Return the published tables at the cut. Each was fitted before the parts, is a sum of
        parts, or is fitted to such sums.

        A table that nobody asked for in whole numbers stays as it is.
        """
        schema = self.noise_of_residuals.space.schema
        sums: Fits = {}
        # Of tables that are the same at the cut, one with whole numbers everywhere is preferred.
        for asked in fitted_requests(self.request):
            finest = schema.view(asked.features)
            if not self.cut.reaches(finest):
                continue
            view = self.cut.coarsen_view(finest)
            if view not in sums or sums[view][1].kind != FitKind.integer:
                sums[view] = self.sum_of_parts(asked, parts, folder)
        # An early table stays as it was fitted, because the parts were fitted to it.
        fits = {**sums, **fit.fits}
        # Late tables are fitted when the parts are done, so sums of parts are totals of theirs.
        totals = [*exact_totals(self.noise_of_residuals.space), *whole_totals(fits)]
        fits |= fit_views(schema.grid, fit.order.late, totals, self.estimates, progress)
        published = []
        for view, table in zip(self.mechanism_above_cut.space.views, self.overview, strict=True):
            as_it_is = (table.counts, table.fitted)
            published.append(fits.get(view, as_it_is))
        return published

    def sum_of_parts(
        self, asked: TableRequest, parts: Sequence[Part], folder: Path
    ) -> tuple[NDArray[np.int64], Fitted]:
        """Return the counts of a table below the cut, summed to the cut. They are read from the
        files of all parts.
        """
        schema, cut = self.noise_of_residuals.space.schema, self.cut
        view = schema.view(asked.features)
        above = cut.coarsen_view(view)
        counts = np.zeros(schema.grid.compute_margin_shape(above), dtype=np.int64)
        labels = len(schema.restrict(asked.features).names)
        missed = []
        for node, part in enumerate(parts):
            grid = cut.branch(schema, node).grid
            files = StoredFiles(folder / part.folder, tuple(part.files))
            cells = files.counts(asked.name, labels).reshape(grid.compute_margin_shape(view))
            self.row(above, counts, node)[...] = grid.sum(cells, above, view)
            if part.find_fit(asked.name).kind != FitKind.integer:
                missed.append(part)
        distances = counts - self.estimates[above]
        loss = float(np.square(distances).sum())
        kind, note = FitKind.integer, ""
        if missed:
            kind = FitKind.none
            note = (
                f"The sums of the parts, of which {len(missed)} have no whole numbers with all"
                " totals."
            )
        return counts, Fitted(str(kind), "sums of the parts", loss, 0.0, False, note)

    def row(self, view: View, values: NDArray[Any], node: int) -> NDArray[Any]:
        """Return the cells of a table at the cut that belong to one node."""
        grid = self.noise_of_residuals.space.schema.grid
        cells = np.reshape(values, grid.compute_margin_shape(view))
        return self.cut.row(grid, view, cells, node)

    def rows(self, node: int) -> list[TotalsAtCut]:
        """Return the cells at the cut, for one node, of the tables that reach below it."""
        schema = self.noise_of_residuals.space.schema
        places = {view: place for place, view in enumerate(self.mechanism_above_cut.space.views)}
        rows = []
        for table in self.tables_below_cut:
            view = self.cut.coarsen_view(schema.view(table.features))
            place = places[view]
            at_cut = self.overview[place]
            estimate = self.row(view, at_cut.estimate, node)
            variance = self.row(view, self.mechanism_above_cut.cell_variances(place), node)
            counts = None
            if at_cut.fitted.kind == "integer":
                counts = self.row(view, at_cut.counts, node)
            rows.append(TotalsAtCut(table, estimate, variance, counts))
        return rows

    def part_noise(self, node: int) -> BranchNoise | None:
        """Return the noise below one node; None where the node can hold no record."""
        return BranchNoise.from_mechanism(self.noise_of_residuals, self.cut, node)


def read_by_parts(
    entry: Mapping[str, Any],
    request: Any,
    requests: Sequence[Request],
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> PublishedTables:
    """Read the tables of one request among all requests of a plan."""
    if not isinstance(request, TablesRequest):
        raise ValueError("only tables are released part by part")
    if entry.get("in_one_piece") is True:
        from semidp.publish.statistics.tables.by_parts.assembled_published import read_assembled

        return read_assembled(entry, request, partition, scope, files)
    mechanism = residuals_from_json(entry, request.residual_space(scope))
    cut = Cut.from_name(mechanism.space.schema, partition.depth)
    above, schema = mechanism_above(mechanism, cut), mechanism.space.schema
    noisy = read_residuals(files, measurements_stem(request), above.space)
    names = overview_names(requests, schema, cut)[request.name]
    overview = []
    for part, (name, view) in zip(entry["overview"], names, strict=True):
        at_cut = schema.restrict(schema.list_view_names(view))
        # The plan says what files at the cut are called, so that no entry can point elsewhere.
        features = list(at_cut.names)
        if part["name"] != name or part["features"] != features:
            raise ValueError("the tables at the cut are not those of the plan")
        fitted = Fitted(**part["fit"])
        overview.append(PublishedTable.read(files, name, at_cut, fitted))
    stated = read_back(entry, scope)
    result = SeparateTables(
        request=request,
        residuals=mechanism,
        cut=cut,
        noisy=noisy,
        overview=tuple(overview),
        **stated,
    )
    return result.with_partition(partition)


def fitted_requests(request: TablesRequest) -> list[TableRequest]:
    """Return the tables of a request that are published as whole numbers."""
    return [table for table in request.tables if table.fit is FitKind.integer]


def fitted_views(request: TablesRequest, schema: Schema) -> list[View]:
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
