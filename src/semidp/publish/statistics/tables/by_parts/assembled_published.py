"""Assembled tables, the published result: measured part by part, put together, and published as in
one piece; parts hold their rows.

So it is where estimates follow from all parts together: with noise on single cells (pure ε, or a
mechanism that is named), and with cells that structural zeros or empty joint cells make impossible.
Every number is the one that a release without parts publishes of the same measurement. The steps
that make it are in `assembled_steps`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.publish.results.cells import Columns, Form, StoredFiles, named_files
from semidp.publish.results.published_table import Fitted, PublishedTable
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.parts import Part, Partition
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published, read_back
from semidp.publish.statistics.tables.by_parts import parts_words
from semidp.publish.statistics.tables.by_parts.assembled_measurement import (
    branch_vector,
    vector_of_parts,
    whole_cells,
)
from semidp.publish.statistics.tables.by_parts.table_of_parts import (
    BY_PARTS,
    TableOfParts,
    cut_up,
    files_of_parts,
    in_memory,
    placed_tables,
    read_rows,
    select_part_rows,
    tables_below,
    uncut,
)
from semidp.publish.statistics.tables.published import PublishedTables, measurements_stem
from semidp.publish.statistics.tables.request import TableRequest, TablesRequest
from semidp.publish.statistics.tables.residual_files import (
    read_residuals,
    residual_columns,
    residuals_from_json,
)

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
    def list_key(self) -> str:
        """Key of the list in release.json that holds this result."""
        return BY_PARTS

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """Tables that reach below the cut. Their rows are in the parts."""
        return tables_below(self.request.tables, self.schema, self.cut)

    @property
    def depth(self) -> str:
        """Name of the depth of the cut."""
        return self.cut.name(self.schema)

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables that do not reach below the cut. Their cells are in the files of the
        release itself.
        """
        return uncut(self.tables, self.tables_below_cut)

    def with_partition(self, partition: Partition) -> "AssembledTables":
        """Return the result with tables that are read from the folders of the parts."""
        tables = placed_tables(self.tables, self.tables_below_cut, partition)
        return replace(self, tables=tables, parts=partition.parts)

    def part_stems(self) -> tuple[list[str], str]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return [table.name for table in self.tables_below_cut], measurements_stem(self.request)

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the rows of one part."""
        tables = cut_up(self.tables, self.tables_below_cut)
        return read_rows(files, tables, self.depth, node, part)

    def rows(self, node: int) -> list[PublishedTable]:
        """Return the rows that one part has of every table that reaches below the cut."""
        tables = cut_up(self.tables, self.tables_below_cut)
        return [select_part_rows(table, self.depth, node) for table in tables]

    def measured_columns(self, node: int) -> Columns | None:
        """Return the measurement of one part, as its file has it; None where the part can hold no
        record.
        """
        if self.residuals is None:
            features = self.request.only.features
            grid = self.schema.grid
            rows = self.cut.branch(self.schema, node).restrict(features)
            view = self.schema.view(features)
            cells = self.noisy.reshape(grid.compute_margin_shape(view))
            branch_cells = self.cut.row(grid, view, cells, node)
            return Columns.of_cells(rows, {"noisy_count": branch_cells.reshape(rows.shape)})
        noise = BranchNoise.from_mechanism(self.residuals, self.cut, node)
        if noise is None:
            return None
        measured = branch_vector(self.residuals, self.cut, node, noise, self.noisy)
        return residual_columns(noise, measured)

    # --- what is said of it

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of their errors."""
        return [parts_words.assembled_section(self)]

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has, in how many parts."""
        return parts_words.assembled_lines(self)

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
            columns[measurements_stem(self.request)] = residual_columns(
                above, self._measurement_above_cut()
            )
        return named_files(columns, form)

    def _measurement_above_cut(self) -> NDArray[np.int64]:
        """Measurement at the cut and above."""
        whole = self.noise_of_residuals.space
        above = mechanism_above(self.noise_of_residuals, self.cut).space
        pieces = [self.noisy[whole.parts[view]] for view in above.parts]
        return np.concatenate([np.zeros(0, np.int64), *pieces])

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        return {**super().to_json(), IN_ONE_PIECE: True}

    # --- computed again

    def recalibrate(self, request: Request, scope: Scope) -> Mechanism:
        """Return the mechanism of this result in a release by parts, calibrated anew."""
        return request.parts_calibrate(request.parts_space(scope))

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "AssembledTables":
        """Compare the tables with those that follow from the measurement of all parts, then every
        part with its rows.
        """
        from semidp.publish.statistics.tables.by_parts.assembled_recheck import recheck_assembled

        return recheck_assembled(self, check, mechanism)

    def in_one_piece(self) -> PublishedTables:
        """Return the same result as a release without parts holds it, with every cell in memory."""
        return PublishedTables(
            request=self.request,
            noisy=self.noisy,
            tables=tuple(map(in_memory, self.tables)),
            residuals=self.residuals,
            one_by_one_l2=self.one_by_one_l2,
            name=self.name,
            noise=self.noise,
            guarantee=self.guarantee,
            advertised=self.advertised,
            private=self.private,
        )

    def with_recomputed_numbers(self, again: Published) -> "AssembledTables":
        """Return this result with the recomputed numbers of `again`, a result in one piece."""
        assert isinstance(again, PublishedTables)
        return replace(
            self,
            tables=again.tables,
            residuals=again.residuals,
            noise=again.noise,
            one_by_one_l2=again.one_by_one_l2,
            guarantee=again.guarantee,
            advertised=again.advertised,
        )


# --- reading --------------------------------------------------------------------------------------


def read_assembled(
    entry: Mapping[str, Any],
    request: TablesRequest,
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> AssembledTables:
    """Read tables that were measured in parts and fitted in one piece."""
    schema = scope.dataspace.schema
    cut = Cut.from_name(schema, partition.depth)
    entries = [entry] if request.is_single_table else entry["tables"]
    fits = [part["fit"] for part in entries]
    residuals = None
    if entry["noise"]["mechanism"] == ResidualMechanism.name:
        space = request.residual_space(scope)
        residuals = residuals_from_json(entry, space, request.workload(scope))
    noisy = _read_noisy(request, residuals, schema, cut, partition, files)
    tables: list[PublishedTable] = []
    for asked, fit in zip(request.tables, fits, strict=True):
        fitted = Fitted(**fit)
        rows = schema.restrict(asked.features)
        if cut.reaches(schema.view(asked.features)):
            table: PublishedTable = TableOfParts(asked.name, rows, partition, fitted=fitted)
        else:
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
    """Read the measurement of the whole from the files of the release and of all parts."""
    stem = measurements_stem(request)
    if residuals is None:
        labels = len(schema.restrict(request.only.features).names)
        cells = {}
        for node, part in enumerate(files_of_parts(partition, files.folder)):
            cells[node] = part.numbers(stem, labels)["noisy_count"]
        return whole_cells(request.only, schema, cut, cells)
    above = read_residuals(files, stem, mechanism_above(residuals, cut).space)
    return vector_of_parts(request, residuals, cut, above, partition, files.folder)
