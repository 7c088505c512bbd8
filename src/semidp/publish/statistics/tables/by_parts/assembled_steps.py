"""Assembled tables, steps of a release: the work of one part, and what is done before and after the
parts.

Parts are only measured at first. When all are, their measurements are put together, the tables are
fitted as in one piece, and each part is written with its rows of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.mechanism import CellByCell, Measurement, Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.publish.results.cells import Columns
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import PartTask, part_path
from semidp.publish.statistics.protocol.results import mechanism_fields
from semidp.publish.statistics.tables.by_parts.assembled_measurement import (
    whole_cells,
    whole_vector,
)
from semidp.publish.statistics.tables.by_parts.assembled_published import AssembledTables
from semidp.publish.statistics.tables.by_parts.measured_first import (
    MeasuredFirstSteps,
    MeasuredFirstWork,
)
from semidp.publish.statistics.tables.by_parts.part_measurement import (
    counted_tables,
    counts_at_cut,
    read_measurement,
    read_noisy,
    split_residuals,
    stored_measurement,
)
from semidp.publish.statistics.tables.by_parts.separate_fits import MOST_TOGETHER
from semidp.publish.statistics.tables.by_parts.stored_fits import read_fits, store_fits
from semidp.publish.statistics.tables.by_parts.table_of_parts import tables_below
from semidp.publish.statistics.tables.published import measurements_stem
from semidp.publish.statistics.tables.request import TableRequest, TablesRequest
from semidp.publish.statistics.tables.residual_files import (
    residual_columns,
)


def is_assembled(mechanism: Mechanism) -> bool:
    """Whether estimates depend on all parts together, so that the tables are fitted in one
    piece.
    """
    if not isinstance(mechanism, ResidualMechanism):
        # Noise on cells is projected on the exact totals, which takes the cells of all parts.
        return True
    # Conditioning sets impossible cells to zero, and moves the residuals of all parts by that.
    return bool(mechanism.space.impossible)


@dataclass(frozen=True, eq=False, kw_only=True)
class AssembledWork(MeasuredFirstWork):
    """Work of one part for a request: count and add noise first, then write the rows of tables that
    were fitted in one piece.

    Parameters
    ----------
    tables
        The tables that are asked for and reach below the cut.
    expected
        The confidential counts at the cut, as they were read first: the records of the part must
        add up to them.
    cells
        The mechanism, where noise is added to single cells.
    residuals
        The noise on the residuals of the part; None where there is none, or nobody can be.
    """

    request: TablesRequest
    tables: tuple[TableRequest, ...] = field(repr=False)
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    cells: Mechanism | None = field(repr=False)
    residuals: BranchNoise | None = field(repr=False)

    @property
    def has_noise(self) -> bool:
        """Whether noise is added to cells or to residuals of the part."""
        return self.cells is not None or self.residuals is not None

    @property
    def measurements(self) -> str:
        """Name of the file with the noisy cells or residuals."""
        return measurements_stem(self.request)

    def measure_noisy_counts(self, task: PartTask, source: Source | None) -> Columns | None:
        """Count the records of a part, and add noise to their cells or to the residuals."""
        features = [table.features for table in self.tables]
        counted = counted_tables(task, features, self.expected, source)
        # The path is part of the key: with one source, two parts would have the same noise.
        randomness = task.randomness.part(self.request.name, *task.path)
        if self.residuals is not None:
            drawn = self.residuals.measure(counted, randomness)
            pieces = [part.ravel() for part in drawn.values()]
            # The empty piece gives the dtype where a part has no residual.
            vector = np.concatenate([np.zeros(0, np.int64), *pieces])
            return residual_columns(self.residuals, vector)
        if self.cells is not None:
            cells = _noisy_cells(self.cells, counted[0], randomness)
            return Columns({}, {"noisy": cells.ravel()})
        return None


def _noisy_cells(mechanism: Mechanism, table: Table, randomness: Randomness) -> NDArray[np.int64]:
    """Return the cells of a part with noise; zeros where the exact totals fix them, because those
    need none.
    """
    if not isinstance(mechanism, CellByCell):
        return np.zeros(table.counts.shape, dtype=np.int64)
    noise = mechanism.sampler.sample(table.counts.shape, randomness)
    return table.counts.astype(np.int64) + noise


class AssembledSteps(MeasuredFirstSteps[AssembledTables]):
    """Steps of a release by parts for a request whose tables are measured in parts and fitted in
    one piece.

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

    def __init__(
        self,
        request: TablesRequest,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        expected: Mapping[View, Table],
        values: NDArray[np.int64],
    ) -> None:
        super().__init__(mechanism, values)
        self.request = request
        self.cut = cut
        self.scope = scope
        self.expected = expected

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.scope.dataspace.schema

    @property
    def residuals(self) -> ResidualMechanism | None:
        """Noise on residuals; None where cells are measured."""
        return self.mechanism if isinstance(self.mechanism, ResidualMechanism) else None

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        if self.residuals is None:
            return self.values
        noise = mechanism_above(self.residuals, self.cut)
        return self.values + noise.noise_by_residual(randomness.part(self.request.name))

    def measuring(self, node: int) -> AssembledWork:
        """Return the work of measuring one part."""
        below = tables_below(self.request.tables, self.schema, self.cut)
        # Noise is added to cells or to residuals, never to both.
        cells: Mechanism | None = self.mechanism
        residuals: BranchNoise | None = None
        if self.residuals is not None:
            cells = None
            residuals = BranchNoise.from_mechanism(self.residuals, self.cut, node)
        return AssembledWork(
            request=self.request,
            tables=below,
            expected=counts_at_cut(below, self.schema, self.cut, self.expected, node),
            cells=cells,
            residuals=residuals,
        )

    def fit_tables(
        self, measured: Measurement, stored: Path, progress: Progress
    ) -> AssembledTables:
        """Return the tables with the stored counts; fit them and store the counts where there are
        none.
        """
        try:
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
        stated = mechanism_fields(self.request.name, self.mechanism, self._private)
        return AssembledTables(
            request=self.request,
            noisy=published.noisy,
            tables=tuple(tables),
            residuals=published.residuals,
            one_by_one_l2=published.one_by_one_l2,
            schema=self.schema,
            cut=self.cut,
            **stated,
        )

    def assemble_measurement(self, work: Path) -> NDArray[np.int64]:
        """Return the noisy cells or residuals of the whole, from what all parts have stored."""
        chain = self.cut.chain(self.schema)
        files = []
        for node in range(chain.size(self.cut.depth)):
            path = part_path(self.schema, self.cut, node)
            files.append(stored_measurement(work, self.request, path))
        if self.residuals is None:
            cells = dict(enumerate(map(read_noisy, files)))
            return whole_cells(self.request.only, self.schema, self.cut, cells)
        measured = {}
        for node, file in enumerate(files):
            noise = BranchNoise.from_mechanism(self.residuals, self.cut, node)
            if noise is not None:
                vector = read_measurement(file, noise.space)
                measured[node] = split_residuals(noise.space, vector)
        return whole_vector(self.residuals, self.cut, self._noisy, measured)


def prepare_assembled_steps(
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
    views = list(dict.fromkeys(map(cut.coarsen_view, finest)))
    tables = reader.tables(schema.list_view_names(view) for view in views)
    values = np.zeros(0, dtype=np.int64)
    if isinstance(mechanism, ResidualMechanism):
        values = mechanism_above(mechanism, cut).space.measure(tables)
    expected = dict(zip(views, tables, strict=True))
    return AssembledSteps(request, mechanism, cut, scope, expected, values)
