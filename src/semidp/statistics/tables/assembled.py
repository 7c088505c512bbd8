"""Tables that are measured part by part, put together, and published as in one piece; parts hold
their rows.

So it is where estimates follow from all parts together: with noise on single cells (pure ε, or a
mechanism that is named), with cells that structural zeros or empty joint cells make impossible, and
with real-valued fits. Every number is the one that a release without parts publishes of the same
measurement.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.core.margins import View, named
from semidp.core.progress import Progress, silent
from semidp.core.scope import Scope
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, Refused
from semidp.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.mechanisms.mechanism import CellByCell, Mechanism
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.noise.randomness import Randomness
from semidp.output.cells import Columns, Form, StoredFiles, named_files
from semidp.output.published_table import FitKind, Fitted, PublishedTable
from semidp.output.sections import Details, Section
from semidp.queries.branches import Cut
from semidp.queries.residuals import kept_nodes
from semidp.sources.opening import Source
from semidp.sources.reader import Reader
from semidp.statistics.parts import STATE, Part, Partition, PartTable, PartTask, part_path
from semidp.statistics.protocol.rechecks import ResultCheck
from semidp.statistics.protocol.requests import Request
from semidp.statistics.protocol.results import measured_by, read_back
from semidp.statistics.tables import part_words
from semidp.statistics.tables.by_parts import BY_PARTS, TableOfParts
from semidp.statistics.tables.cut_fits import MOST_TOGETHER
from semidp.statistics.tables.part_work import (
    counted_tables,
    read_measurement,
    split_residuals,
    store_once,
    stored_measurement,
)
from semidp.statistics.tables.published import PublishedTables, measurements_stem
from semidp.statistics.tables.request import TableRequest, TablesRequest
from semidp.statistics.tables.residual_files import (
    read_residuals,
    residual_columns,
    residuals_from_json,
)
from semidp.statistics.tables.stored_fits import read_fits, store_fits

IN_ONE_PIECE = "in_one_piece"
"""The field of release.json that tells these tables from those whose parts are fitted by
themselves."""


# --- what is published ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AssembledTables(PublishedTables):
    """Tables that were measured in parts and fitted in one piece; each part holds its rows of them.

    Parameters
    ----------
    request, noisy, tables, residuals
        As for tables in one piece: the measurement of all parts, put together.
    schema, cut
        The features of a record, and where tables were taken apart.
    parts
        The parts of the release, when all of them are done.
    """

    key: ClassVar[str] = BY_PARTS

    schema: Schema = field(repr=False)
    cut: Cut
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @property
    def listed_in(self) -> str:
        """The list of release.json that it is in."""
        return BY_PARTS

    @property
    def below(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut, whose rows are in the parts."""
        return tables_below(self.request, self.schema, self.cut)

    @property
    def depth(self) -> str:
        """The name of the depth of the cut."""
        feature = self.schema.features[self.cut.axis]
        return feature.names[self.cut.depth - 1]

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables that are not cut, whose cells are in the files of the release
        itself.
        """
        below = {table.name for table in self.below}
        return tuple(table for table in self.tables if table.name not in below)

    def placed(self, partition: Partition) -> "AssembledTables":
        """Return the result with tables that are read from the folders of the parts."""
        below = {table.name: table for table in self.below}
        tables: list[PublishedTable] = []
        for table in self.tables:
            cut_up = below.get(table.name)
            if cut_up is None:
                tables.append(table)
            else:
                tables.append(TableOfParts(cut_up, self.schema, self.cut, partition))
        # How a table was fitted is known of the whole, and a part states its own distance.
        for asked, table in zip(self.tables, tables, strict=True):
            if table is not asked:
                table.__dict__["fitted"] = asked.fitted
        return replace(self, tables=tuple(tables), parts=partition.parts)

    def part_stems(self) -> tuple[list[str], str]:
        """Return what the tables in a part are called, and the file of what was measured there."""
        return [table.name for table in self.below], measurements_stem(self.request)

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the rows of one part."""
        schema = self.cut.branch(self.schema, node)
        tables = []
        for asked in self.below:
            rows = schema.restrict(asked.features)
            fitted = part.fitted(asked.name)
            tables.append(PublishedTable.read(files, asked.name, rows, fitted))
        return tables

    def rows(self, node: int) -> list[PublishedTable]:
        """Return the rows of one part of every table that is cut."""
        schema = self.cut.branch(self.schema, node)
        tables = []
        for asked in self.below:
            view = self.schema.view(asked.features)
            rows = schema.restrict(asked.features)
            whole = self.table(asked.name)
            tables.append(rows_of(whole, self.schema, self.cut, view, node, rows))
        return tables

    def measured_in(self, node: int) -> Columns | None:
        """Return what was measured in one part, as its file has it; None where nobody can be."""
        if self.residuals is None:
            features = self.request.only.features
            grid = self.schema.grid
            rows = self.cut.branch(self.schema, node).restrict(features)
            view = self.schema.view(features)
            cells = self.noisy.reshape(grid.shape_of(view))
            branch_cells = self.cut.row(grid, view, cells, node)
            return Columns.of_cells(rows, {"noisy_count": branch_cells.reshape(rows.shape)})
        noise = BranchNoise.of(self.residuals, self.cut, node)
        if noise is None:
            return None
        measured = branch_vector(self.residuals, self.cut, node, noise, self.noisy)
        return residual_columns(noise, measured)

    # --- what is said of it

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of their errors."""
        return [part_words.assembled_section(self)]

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has, in how many parts."""
        return part_words.assembled_lines(self)

    def details(self) -> Details:
        """Say how they were measured."""
        return Details(self.name, "exact noise, part by part; put together and fitted in one piece")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files of the release itself hold."""
        words = f"{self.name}, as far as it is not cut by {self.depth}"
        return [(file, words) for file in self.files(form)]

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the tables that are not cut, and the residuals that were measured at the cut and
        above.
        """
        columns = {table.name: table.columns() for table in self.held_tables()}
        if self.residuals is not None:
            above = mechanism_above(self.residuals, self.cut)
            columns[measurements_stem(self.request)] = residual_columns(above, self._above())
        return named_files(columns, form)

    def _above(self) -> NDArray[np.int64]:
        """What was measured at the cut and above."""
        whole = self.noise_of_residuals.space
        above = mechanism_above(self.noise_of_residuals, self.cut).space
        pieces = [self.noisy[whole.parts[view]] for view in above.parts]
        return np.concatenate([np.zeros(0, np.int64), *pieces])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        return {**super().to_json(), IN_ONE_PIECE: True}

    # --- computed again

    def recalibrated(self, request: Request, scope: Scope) -> Mechanism:
        """Return its mechanism in a release by parts, calibrated anew."""
        return request.parts_calibrate(request.parts_space(scope))

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "AssembledTables":
        """Compare the tables with what follows from the measurement of all parts, then every part
        with its rows.
        """
        from semidp.statistics.tables.assembled_again import recheck_assembled

        return recheck_assembled(self, check, mechanism)


def rows_of(
    table: PublishedTable, schema: Schema, cut: Cut, view: View, node: int, rows: Schema
) -> PublishedTable:
    """Return the rows of a table that belong to one part, with their own distance from what was
    fitted.
    """

    def cells_of_part(values: NDArray[Any]) -> NDArray[Any]:
        whole = values.reshape(schema.grid.shape_of(view))
        part = cut.row(schema.grid, view, whole, node)
        return np.ascontiguousarray(part).reshape(rows.shape)

    counts = cells_of_part(table.counts)
    estimate = cells_of_part(table.estimate)
    loss = 0.0
    if table.fitted.method != "none":
        loss = float(np.square(counts - estimate).sum())
    # A lower bound on the distance of the whole table bounds no single part, so a part states none.
    fitted = replace(table.fitted, loss=loss, bound=0.0)
    half_widths = None if table.half_widths is None else cells_of_part(table.half_widths)
    errors = cells_of_part(table.standard_errors)
    return PublishedTable(
        table.name, rows, counts, estimate, errors, fitted, half_widths, counted=table.counted
    )


def tables_below(request: TablesRequest, schema: Schema, cut: Cut) -> tuple[TableRequest, ...]:
    """Return the tables of a request that reach below a cut."""
    below = []
    for table in request.tables:
        if cut.reaches(schema.view(table.features)):
            below.append(table)
    return tuple(below)


# --- the measurement of all parts -----------------------------------------------------------------


def branch_vector(
    mechanism: ResidualMechanism, cut: Cut, node: int, noise: BranchNoise, vector: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the entries of a vector of residuals that one part has measured, in the order of the
    part.
    """
    space = mechanism.space
    pieces = [np.zeros(0, np.int64)]
    for view in noise.space.parts:
        entries = vector[space.parts[view]]
        whole = entries.reshape(space.residuals.shape(view))
        pieces.append(whole[_place(mechanism, cut, node, view)].ravel())
    return np.concatenate(pieces)


def whole_vector(
    mechanism: ResidualMechanism,
    cut: Cut,
    above: NDArray[np.int64],
    measured: Mapping[int, Mapping[View, NDArray[np.int64]]],
) -> NDArray[np.int64]:
    """Return the vector of all residuals, as one piece measures it.

    A residual of an only child is zero, and no part measures it: its entries stay 0.

    Parameters
    ----------
    mechanism, cut
        The noise of the whole, and where tables were taken apart.
    above
        What was measured at the cut and above.
    measured
        For each part, by its node, the residuals that it has measured.
    """
    space = mechanism.space
    vector = np.zeros(space.shape, dtype=np.int64)
    for view, part in mechanism_above(mechanism, cut).space.parts.items():
        vector[space.parts[view]] = above[part]
    for node, residuals in measured.items():
        for view, values in residuals.items():
            # A slice reshaped is a view of the vector: what is set in it is set there.
            entries = vector[space.parts[view]]
            whole = entries.reshape(space.residuals.shape(view))
            whole[_place(mechanism, cut, node, view)] = values
    return vector


def _place(mechanism: ResidualMechanism, cut: Cut, node: int, view: View) -> tuple[slice, ...]:
    """Return where the entries of one part stand in a residual of the whole: nodes without records
    are left out.
    """
    space = mechanism.space
    chain = cut.chain(space.schema)
    depth = view[cut.axis]
    held = kept_nodes(chain, space._kept[cut.axis], depth)
    below = chain.below(cut.depth, node, depth)
    start = int(held[: below.start].sum())
    stop = start + int(held[below].sum())
    axes_before = named(view).index(cut.axis)
    return (*[slice(None)] * axes_before, slice(start, stop))


# --- the work of one part -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AssembledWork:
    """What a request has in one part: its counts with noise, then the rows of tables that were
    fitted in one piece.

    Parameters
    ----------
    request, tables
        What is asked for, and the tables of it that reach below the cut.
    expected
        The confidential counts at the cut, as they were read first: the records of the part must
        add up to them.
    cells
        The mechanism, where noise is added to single cells.
    residuals
        The noise on the residuals of the part; None where there is none, or nobody can be.
    rows, measured
        What is written; None while the part is only measured.
    """

    request: TablesRequest
    tables: tuple[TableRequest, ...] = field(repr=False)
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    cells: Mechanism | None = field(repr=False)
    residuals: BranchNoise | None = field(repr=False)
    rows: tuple[PublishedTable, ...] | None = field(default=None, repr=False)
    measured: Columns | None = field(default=None, repr=False)

    def stored(self, task: PartTask) -> Path:
        """Return the file of what is measured in a part."""
        return stored_measurement(task.work, self.request, task.path)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored what is measured; nothing is where nobody can
        be.
        """
        return not self._has_noise or self.stored(task).exists()

    @property
    def _has_noise(self) -> bool:
        return self.cells is not None or self.residuals is not None

    def reads(self, task: PartTask) -> bool:
        """Whether the part is still to be measured."""
        if self.rows is not None:
            return False
        return not (self._has_noise and self.stored(task).exists())

    def measure(self, task: PartTask, source: Source | None, attempt: Path) -> None:
        """Count the records of a part and store them with noise, unless an attempt did so
        before.
        """
        # A second draw would be another measurement, which nobody was charged for.
        if not self.reads(task):
            return
        features = [table.features for table in self.tables]
        counted = counted_tables(task, features, self.expected, source)
        randomness = task.randomness.part(self.request.name, *task.path)
        if self.residuals is not None:
            drawn = self.residuals.measure(counted, randomness)
            pieces = [part.ravel() for part in drawn.values()]
            # The empty piece gives the dtype where a part has no residual.
            vector = np.concatenate([np.zeros(0, np.int64), *pieces])
            columns = residual_columns(self.residuals, vector)
        elif self.cells is not None:
            cells = _noisy_cells(self.cells, counted[0], randomness)
            columns = Columns({}, {"noisy": cells.ravel()})
        else:
            return
        store_once(task, columns, self.stored(task), attempt)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write the rows of the part and its measurement; return how its tables came out."""
        assert self.rows is not None
        for table in self.rows:
            file = f"{table.name}.{task.form}"
            table.columns().write(attempt / file)
        if self.measured is not None:
            stem = measurements_stem(self.request)
            self.measured.write(attempt / f"{stem}.{task.form}")
        return [PartTable.of(table) for table in self.rows]


def _noisy_cells(mechanism: Mechanism, table: Table, randomness: Randomness) -> NDArray[np.int64]:
    """Return the cells of a part with noise; zeros where the exact totals fix them, so that none is
    needed.
    """
    if not isinstance(mechanism, CellByCell):
        return np.zeros(table.counts.shape, dtype=np.int64)
    noise = mechanism.sampler.sample(table.counts.shape, randomness)
    return table.counts.astype(np.int64) + noise


# --- before and after the parts -------------------------------------------------------------------


class AssembledInParts:
    """A request for tables that are measured in parts and fitted in one piece, on its way through a
    release.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise: that of the whole.
    cut, scope
        Where tables are taken apart, and what is public.
    expected
        The confidential tables at the cut.
    values
        The residuals at the cut and above, which are measured first; none where noise is added to
        cells.
    """

    stems: Sequence[str] = ()
    together = True

    def __init__(
        self,
        request: TablesRequest,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        expected: Mapping[View, Table],
        values: NDArray[np.int64],
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.cut = cut
        self.scope = scope
        self.expected = expected
        self.values = values
        self._noisy = values[:0]
        self._private = False
        self._done: AssembledTables | None = None

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.scope.dataspace.schema

    @property
    def residuals(self) -> ResidualMechanism | None:
        """The noise on residuals, where those are measured."""
        return self.mechanism if isinstance(self.mechanism, ResidualMechanism) else None

    def foreseen(self) -> list[str]:
        """Everything is published as in a release without parts."""
        return []

    def drawn(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        if self.residuals is None:
            return self.values
        noise = mechanism_above(self.residuals, self.cut)
        return self.values + noise.noise_by_residual(randomness.part(self.request.name))

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Take what was measured before the parts."""
        if noisy.shape != self.values.shape or noisy.dtype != np.int64:
            raise ValueError("the measurements are not those of the plan")
        self._noisy, self._private = noisy, private

    def part_work(self, node: int) -> AssembledWork:
        """Return what is to be done in one part: to measure it, or to write its rows."""
        below = tables_below(self.request, self.schema, self.cut)
        grid = self.schema.grid
        expected = []
        for table in below:
            view = self.cut.above(self.schema.view(table.features))
            counts = self.expected[view].counts.reshape(grid.shape_of(view))
            expected.append(self.cut.row(grid, view, counts, node))
        # Noise is added to cells or to residuals, never to both.
        cells: Mechanism | None = self.mechanism
        residuals: BranchNoise | None = None
        if self.residuals is not None:
            cells = None
            residuals = BranchNoise.of(self.residuals, self.cut, node)
        work = AssembledWork(self.request, below, tuple(expected), cells, residuals)
        if self._done is None:
            return work
        rows = tuple(self._done.rows(node))
        return replace(work, rows=rows, measured=self._done.measured_in(node))

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """Put the measurements of all parts together and fit the tables as in one piece, or read
        the fits made before.

        Parameters
        ----------
        number
            Which request of the plan it is.
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """
        vector = self._assembled(work)
        measured = self.mechanism.measured_again(vector, self._private)
        stored = work / STATE / f"fit-{number}.npz"
        try:
            # A search may end elsewhere now, and parts that are written hold the first result.
            fits = read_fits(stored)
            as_estimated = [evolve(table, fit="none") for table in self.request.tables]
            unfitted = evolve(self.request, tables=as_estimated)
            published = unfitted.publish(self.mechanism, measured, self.scope, silent)
        except FileNotFoundError:
            published = self.request.publish(self.mechanism, measured, self.scope, progress)
            fits = {}
            for asked, table in zip(self.request.tables, published.tables, strict=True):
                fits[self.schema.view(asked.features)] = (table.counts, table.fitted)
            store_fits(stored, fits)
        tables = []
        for asked, table in zip(self.request.tables, published.tables, strict=True):
            counts, how = fits[self.schema.view(asked.features)]
            cells = counts.reshape(table.schema.shape)
            tables.append(replace(table, counts=cells, fitted=how))
        stated = measured_by(self.request.name, self.mechanism, self._private)
        self._done = AssembledTables(
            request=self.request,
            noisy=published.noisy,
            tables=tuple(tables),
            residuals=published.residuals,
            one_by_one_l2=published.one_by_one_l2,
            schema=self.schema,
            cut=self.cut,
            **stated,
        )

    def _assembled(self, work: Path) -> NDArray[np.int64]:
        """Return the measurement of the whole, read from what every part has stored."""
        chain = self.cut.chain(self.schema)
        files = []
        for node in range(chain.size(self.cut.depth)):
            path = part_path(self.schema, self.cut, node)
            files.append(stored_measurement(work, self.request, path))
        if self.residuals is None:
            cells = dict(enumerate(map(_read_cells, files)))
            return _whole_cells(self.request.only, self.schema, self.cut, cells)
        measured = {}
        for node, file in enumerate(files):
            noise = BranchNoise.of(self.residuals, self.cut, node)
            if noise is not None:
                vector = read_measurement(file, noise.space)
                measured[node] = split_residuals(noise.space, vector)
        return whole_vector(self.residuals, self.cut, self._noisy, measured)

    def published(self, parts: Sequence[Part], work: Path, progress: Progress) -> AssembledTables:
        """Return what is published, when all parts are written."""
        assert self._done is not None
        return replace(self._done, parts=tuple(parts))


def _read_cells(stored: Path) -> NDArray[np.int64]:
    from semidp.output.columns import read_parquet

    try:
        noisy: NDArray[np.int64] = read_parquet(stored, ["noisy"])["noisy"]
    except (ValueError, OSError):
        raise DataError(
            "what was measured of a part is damaged: discard the unfinished release"
        ) from None
    return noisy


def _whole_cells(
    asked: TableRequest, schema: Schema, cut: Cut, cells: Mapping[int, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the noisy cells of a table, put together from those of every part."""
    view = schema.view(asked.features)
    whole = np.zeros(schema.grid.shape_of(view), dtype=np.int64)
    for node, values in cells.items():
        row = cut.row(schema.grid, view, whole, node)
        if values.size != row.size or values.dtype != np.int64:
            raise DataError("the measurements of a part are not those of the plan")
        row[...] = values.reshape(row.shape)
    return whole.reshape(schema.restrict(asked.features).shape)


def assembled_in_parts(
    request: TablesRequest, mechanism: Mechanism, cut: Cut, scope: Scope, reader: Reader
) -> AssembledInParts:
    """Read the tables of a request at the cut; refuse tables that are too large to be fitted in one
    piece.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise.
    cut, scope
        Where tables are taken apart, and what is public.
    reader
        Reads the records.
    """
    schema = scope.dataspace.schema
    cells = sum(schema.restrict(table.features).size for table in request.tables)
    if cells > MOST_TOGETHER:
        raise Refused(
            f"{request.name!r} is fitted in one piece, because its estimates follow from all parts"
            f" together, and {cells:,} cells are too many for that (at most {MOST_TOGETHER:,}):"
            " release a coarser table"
        )
    # The counts at the cut are kept, so that records of a part that changed meanwhile are noticed.
    finest = [schema.view(table.features) for table in request.tables]
    views = list(dict.fromkeys(map(cut.above, finest)))
    tables = reader.tables(schema.named(view) for view in views)
    values = np.zeros(0, dtype=np.int64)
    if isinstance(mechanism, ResidualMechanism):
        values = mechanism_above(mechanism, cut).space.measure(tables)
    expected = dict(zip(views, tables, strict=True))
    return AssembledInParts(request, mechanism, cut, scope, expected, values)


# --- reading --------------------------------------------------------------------------------------


def read_assembled(
    entry: Mapping[str, Any],
    request: TablesRequest,
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> AssembledTables:
    """Read what was written of tables that were measured in parts and fitted in one piece."""
    schema = scope.dataspace.schema
    cut = Cut.at(schema, partition.depth)
    entries = [entry] if request.alone else entry["tables"]
    fits = [part["fit"] for part in entries]
    residuals = None
    if entry["noise"]["mechanism"] == ResidualMechanism.name:
        space = request.residual_space(scope)
        residuals = residuals_from_json(entry, space, request.workload(scope))
    noisy = _read_noisy(request, residuals, schema, cut, partition, files)
    tables: list[PublishedTable] = []
    for asked, fit in zip(request.tables, fits, strict=True):
        fitted = Fitted(**fit)
        if cut.reaches(schema.view(asked.features)):
            table: PublishedTable = TableOfParts(asked, schema, cut, partition)
            table.__dict__["fitted"] = fitted
        else:
            rows = schema.restrict(asked.features)
            table = PublishedTable.read(files, asked.name, rows, fitted)
        tables.append(table)
    stated = read_back(entry, scope)
    return AssembledTables(
        request=request,
        noisy=noisy,
        tables=tuple(tables),
        residuals=residuals,
        one_by_one_l2=entry.get("one_by_one_l2"),
        schema=schema,
        cut=cut,
        parts=partition.parts,
        **stated,
    )


def _read_noisy(
    request: TablesRequest,
    residuals: ResidualMechanism | None,
    schema: Schema,
    cut: Cut,
    partition: Partition,
    files: StoredFiles,
) -> NDArray[np.int64]:
    """Read the measurement of the whole from the files of the release and of every part."""
    stem = measurements_stem(request)
    if residuals is None:
        labels = len(schema.restrict(request.only.features).names)
        cells = {}
        for node, part in enumerate(files_of_parts(partition, files.folder)):
            cells[node] = part.numbers(stem, labels)["noisy_count"]
        return _whole_cells(request.only, schema, cut, cells)
    above = read_residuals(files, stem, mechanism_above(residuals, cut).space)
    return vector_of_parts(request, residuals, cut, above, partition, files.folder)


def vector_of_parts(
    request: TablesRequest,
    residuals: ResidualMechanism,
    cut: Cut,
    above: NDArray[np.int64],
    partition: Partition,
    folder: Path,
) -> NDArray[np.int64]:
    """Read the residuals that every part has measured; return the vector of all, as one piece
    measures it.

    Parameters
    ----------
    request, residuals
        What was asked for, and the noise of the whole.
    cut, above
        Where tables were taken apart, and what was measured there and above.
    partition, folder
        The parts, and the folder of the release.
    """
    measured = {}
    for node, part in enumerate(files_of_parts(partition, folder)):
        noise = BranchNoise.of(residuals, cut, node)
        # Nothing was measured where nobody can be.
        if noise is not None:
            noisy = part.numbers(measurements_stem(request), 1)["noisy"]
            measured[node] = split_residuals(noise.space, noisy)
    return whole_vector(residuals, cut, above, measured)


def files_of_parts(partition: Partition, folder: Path) -> Iterator[StoredFiles]:
    for part in partition.parts:
        yield StoredFiles(folder / part.folder, tuple(part.files))


def is_assembled(request: TablesRequest, mechanism: Mechanism) -> bool:
    """Whether estimates follow from all parts together, so that tables are fitted in one piece."""
    if not isinstance(mechanism, ResidualMechanism):
        # Noise on cells is projected on the exact totals, which takes the cells of all parts.
        return True
    real = any(table.fit is FitKind.real for table in request.tables)
    # Conditioning sets impossible cells to zero, and moves the residuals of all parts by that.
    return real or bool(mechanism.space.impossible)
