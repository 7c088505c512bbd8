"""One part of a release, computed again from what was measured in it and from the tables above it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import View
from semidp.core.progress import silent
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.mechanisms.branches import BranchNoise
from semidp.output.cells import Columns, Form, StoredFiles
from semidp.publishing.parts.cut_fits import CutFit
from semidp.publishing.parts.partitions import (
    PARTS,
    AtCut,
    Part,
    Partition,
    PartitionedTables,
    PartTable,
    measurements_stem,
    part_folder,
    part_path,
)
from semidp.publishing.parts.tasks import fitted_part, split_residuals
from semidp.publishing.rechecking.findings import Findings, close
from semidp.publishing.rechecking.refit import FittedTable, Refit, intervals_hold, note_fits, too_far
from semidp.publishing.rechecking.stored import file_differences
from semidp.statistics.tables.fitting import NOT_ALL
from semidp.statistics.tables.published import INTERVALS_BELOW, FitKind, Fitted, ProductTable, residual_columns

Floats = NDArray[np.float64]

_SECONDS = 0.3  # the time limit of a fit in one part


def refitted_whole(result: PartitionedTables, partition: Partition, seconds: float) -> CutFit:
    """Fit the tables of all parts in one piece again, from the measurements in the folders of the parts.

    Parameters
    ----------
    result, partition
        The tables, and the parts with the folder of the release.
    seconds
        How long all searches for whole numbers may take.
    """

    def measured(node: int, noise: BranchNoise) -> dict[View, NDArray[np.int64]]:
        noisy = _files(partition, node).numbers(measurements_stem(result.request), 1)["noisy"]
        return split_residuals(noise.space, noisy)

    estimates = result.estimates_below(measured)
    limit = max(seconds / len(result.mechanism.space.views), _SECONDS)
    return CutFit.in_one_piece(result.fitted_whole(estimates, silent, limit), result.cut)


def published_whole(
    findings: Findings, result: PartitionedTables, partition: Partition, fit: CutFit
) -> tuple[bool, list[str]]:
    """Return whether the parts, put together, hold the whole numbers that are found now, and which tables are too far.

    Where they do not, because of a tie or of a search that ended elsewhere, tables are compared by their distance from
    what was measured, the parts of each together. A sentence on one that is farther holds if the parts add up.

    Parameters
    ----------
    findings
        What is known of the software that made the release.
    result, partition
        The tables, and the parts with the folder of the release.
    fit
        The tables as they are fitted now, in one piece.
    """
    assert fit.together is not None
    schema, cut = result.mechanism.space.schema, result.cut
    different = []
    for asked in result.below:
        view = schema.view(asked.features)
        expected, how = fit.together[view]
        loss = 0.0
        whole = np.zeros(schema.grid.shape_of(view), dtype=expected.dtype)
        try:
            for node, part in enumerate(partition.parts):
                own = cut.branch(schema, node)
                table = ProductTable.read(
                    _files(partition, node), asked.name, own.restrict(asked.features), part.fitted(asked.name)
                )
                cells = cut.row(schema.grid, view, whole, node)
                cells[...] = table.counts.reshape(cells.shape)
                loss += float(np.square(table.counts - table.estimate).sum())
        except (ValueError, KeyError, OSError, IndexError, StopIteration):
            return False, []  # what is damaged is told when the part is compared
        if not np.allclose(whole, expected, rtol=0, atol=1e-4):
            different.append((asked, whole, loss, how))
    if any(asked.fit is FitKind.integer and how.note.startswith(NOT_ALL) for asked, _, _, how in different):
        return False, []  # whole numbers take longer to find than is spent here, and others depend on them
    farther = []
    for asked, whole, loss, how in different:
        strict = findings.same_software or len(different) == 1
        said = too_far(asked.name, whole, loss, how, how.optimal and strict)
        if said is not None and findings.current:
            farther.append(f"{result.name!r} states {said}")
    return not different, farther


def _files(partition: Partition, node: int) -> StoredFiles:
    """Return the files of one part of a release whose folder is known."""
    assert partition.place is not None
    part = partition.parts[node]
    return StoredFiles(partition.place / part.folder, tuple(part.files))


@dataclass(eq=False)
class PartCheck:
    """One part of a release, beside what was measured in it and the tables above."""

    findings: Findings
    result: PartitionedTables
    form: Form | None
    node: int
    part: Part
    files: StoredFiles
    fit: CutFit | None

    def wrong(self, said: str) -> None:
        """Note something that is stated of this part."""
        self.findings.wrong.append(f"{self.result.name!r} states {said} in {self.part.folder}")

    @property
    def schema(self) -> Schema:
        """The features of the part's records."""
        return self.result.cut.branch(self.result.mechanism.space.schema, self.node)

    def compared(self) -> list[PartTable]:
        """Compare the part; return how its tables came out."""
        result, whole = self.result, self.result.mechanism.space.schema
        place = part_path(whole, result.cut, self.node), part_folder(whole, result.cut, self.node)
        if (self.part.path, self.part.folder) != place:
            self.wrong(f"another place than {place[1]}")
        tables = result.part_tables(self.files, self.node, self.part)
        noise, rows = result.noise_of(self.node), result.rows(self.node)
        exact = result.cut.exact(result.mechanism.space.dataspace, self.node)
        measured: Columns | None = None
        found = [(np.zeros(table.counts.shape), np.zeros(table.counts.shape)) for table in tables]
        if noise is not None:
            noisy = self.files.numbers(measurements_stem(result.request), 1)["noisy"]
            found = noise.tables(split_residuals(noise.space, noisy), [(row.estimate, row.variance) for row in rows])
            measured = residual_columns(noise, noisy)
        sound = True
        half_widths = [None] * len(tables) if noise is None else noise.half_widths(INTERVALS_BELOW)
        for table, (estimate, variance), row, half in zip(tables, found, rows, half_widths, strict=True):
            sound = self._table(table, estimate, np.sqrt(variance), row) and sound
            if not intervals_hold(table, half, self.findings.current):
                self.wrong(f"intervals of {table.name} that its noise does not have")
        if sound:
            self._fits(tables, [estimate for estimate, _ in found], rows, exact, empty=noise is None)
            self._contents([self._again(*pair) for pair in zip(tables, half_widths, strict=True)], measured)
        return [self._told(table) for table in tables]

    def _again(self, table: ProductTable, half_widths: Floats | None) -> ProductTable:
        """Return a table with the intervals that its noise has: what is read from a file is rounded already."""
        if table.half_widths is None or half_widths is None or not self.findings.current:
            return table
        return replace(table, half_widths=half_widths.reshape(table.half_widths.shape))

    def _table(self, table: ProductTable, estimate: Floats, errors: Floats, row: AtCut) -> bool:
        """Compare one table with its estimate, and with the table above; whether it adds up."""
        shape, schema, cut = table.counts.shape, self.schema, self.result.cut
        if not close(table.estimate, estimate.reshape(shape)):
            self.wrong(f"estimates of {table.name} that do not follow from the measurements")
        if not close(table.standard_errors, errors.reshape(shape)):
            self.wrong(f"standard errors of {table.name} that its noise does not have")
        if table.fitted.kind != "integer":
            return True
        view = schema.view(table.schema.names)
        at_cut = schema.grid.sum(table.counts.reshape(schema.grid.shape_of(view)), cut.above(view), view)
        adds_up = row.counts is None or np.array_equal(at_cut.ravel(), row.counts.ravel())
        exact = cut.exact(self.result.mechanism.space.dataspace, self.node)
        if table.counts.dtype.kind != "i" or table.counts.min(initial=0) < 0 or not adds_up:
            self.wrong(f"counts of {table.name} that do not add up to those above")
            return False
        if exact.margins and not exact.over(table.schema.names).contains(Table(table.schema, table.counts)):
            self.wrong(f"counts of {table.name} that do not add up to the exact totals")
            return False
        return True

    def _fits(
        self, tables: Sequence[ProductTable], estimates: list[Floats], rows: Sequence[AtCut], exact: Any, empty: bool
    ) -> None:
        fits: Sequence[Refit] | None = None
        if empty:
            how = Fitted("integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say.")
            fits = [(np.zeros(table.counts.shape, dtype=np.int64), how) for table in tables]
        elif self.fit is not None:
            whole = self.result.mechanism.space.schema
            views = [whole.view(row.asked.features) for row in rows]
            fit = self.fit.part(whole.grid, self.result.cut, self.node, views)
            fits = fitted_part(self.schema, exact, rows, fit, estimates, _SECONDS)
        beside = []
        for table, estimate in zip(tables, estimates, strict=True):
            called = f"{self.part.folder}/{table.name}"
            beside.append(FittedTable(called, f"{called}.{self.form}", table, estimate))
        note_fits(self.findings, self.result.name, f"{PARTS} tables.fitted", beside, fits)

    def _contents(self, tables: Sequence[ProductTable], measured: Columns | None) -> None:
        """Compare the files of the part with its tables."""
        files = {f"{table.name}.{self.form}": table.columns() for table in tables}
        if measured is not None:
            files[f"{measurements_stem(self.result.request)}.{self.form}"] = measured
        for name, columns in files.items():
            digest, current = self.part.files[name], self.findings.current
            for said in file_differences(self.files.folder, name, columns, digest, current):
                self.wrong(said)

    def _told(self, table: ProductTable) -> PartTable:
        """Compare what the list of parts says of a table; return how it came out."""
        found = PartTable.of(table)
        stated = next(told for told in self.part.tables if told.name == table.name)
        if not close([stated.largest_standard_error, stated.variance], [found.largest_standard_error, found.variance]):
            self.wrong(f"other errors of {table.name} than it has")
        return found
