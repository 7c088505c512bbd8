"""Assembled tables, steps of a release: the work of one part, and what is done before and after the
parts.

Parts are only measured at first. When all are, their measurements are put together, the tables are
fitted as in one piece, and each part is written with its rows of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.core.margins import View
from semidp.core.progress import Progress, silent
from semidp.core.scope import Scope
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, Refused
from semidp.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.mechanisms.mechanism import CellByCell, Mechanism
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.noise.randomness import Randomness
from semidp.output.cells import Columns
from semidp.output.published_table import FitKind, PublishedTable
from semidp.queries.branches import Cut
from semidp.sources.opening import Source
from semidp.sources.reader import Reader
from semidp.statistics.parts import STATE, Part, PartTable, PartTask, part_path
from semidp.statistics.protocol.results import measured_by
from semidp.statistics.tables.by_parts.assembled_measurement import whole_cells, whole_vector
from semidp.statistics.tables.by_parts.assembled_published import AssembledTables
from semidp.statistics.tables.by_parts.part_measurement import (
    counted_tables,
    read_measurement,
    split_residuals,
    store_once,
    stored_measurement,
)
from semidp.statistics.tables.by_parts.separate_fits import MOST_TOGETHER
from semidp.statistics.tables.by_parts.stored_fits import read_fits, store_fits
from semidp.statistics.tables.by_parts.table_of_parts import tables_below
from semidp.statistics.tables.published import measurements_stem
from semidp.statistics.tables.request import TableRequest, TablesRequest
from semidp.statistics.tables.residual_files import (
    residual_columns,
)


def is_assembled(request: TablesRequest, mechanism: Mechanism) -> bool:
    """Whether estimates follow from all parts together, so that tables are fitted in one piece."""
    if not isinstance(mechanism, ResidualMechanism):
        # Noise on cells is projected on the exact totals, which takes the cells of all parts.
        return True
    real = any(table.fit is FitKind.real for table in request.tables)
    # Conditioning sets impossible cells to zero, and moves the residuals of all parts by that.
    return real or bool(mechanism.space.impossible)


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


class AssembledSteps:
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
            return whole_cells(self.request.only, self.schema, self.cut, cells)
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


def assembled_steps_of(
    request: TablesRequest, mechanism: Mechanism, cut: Cut, scope: Scope, reader: Reader
) -> AssembledSteps:
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
    return AssembledSteps(request, mechanism, cut, scope, expected, values)


def _read_cells(stored: Path) -> NDArray[np.int64]:
    from semidp.output.columns import read_parquet

    try:
        noisy: NDArray[np.int64] = read_parquet(stored, ["noisy"])["noisy"]
    except (ValueError, OSError):
        raise DataError(
            "what was measured of a part is damaged: discard the unfinished release"
        ) from None
    return noisy
