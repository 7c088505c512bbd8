"""Separate parts, computed again: the tables at the cut, then each part under them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.mechanisms.selection import INTERVALS_BELOW
from semidp.promise.progress import silent
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.publish.rechecking.file_differences import file_differences
from semidp.publish.results.cells import Columns, Form, StoredFiles
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.statistics.parts import (
    PARTS,
    Part,
    Partition,
    PartTable,
    StoredPartition,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.results import mechanism_fields
from semidp.publish.statistics.recheck_findings import Findings, close
from semidp.publish.statistics.tables.by_parts.part_measurement import split_residuals
from semidp.publish.statistics.tables.by_parts.separate_fits import CutFit, Fits
from semidp.publish.statistics.tables.by_parts.separate_published import SeparateTables, TotalsAtCut
from semidp.publish.statistics.tables.by_parts.separate_work import fitted_part
from semidp.publish.statistics.tables.fitting import NOT_ALL
from semidp.publish.statistics.tables.published import measurements_stem
from semidp.publish.statistics.tables.refit import (
    SECONDS,
    FittedTable,
    Refit,
    intervals_hold,
    note_fits,
    too_far,
)
from semidp.publish.statistics.tables.residual_files import residual_columns

Floats = NDArray[np.float64]

_SECONDS = 0.3  # the time limit of a fit in one part


def recheck_separate(
    result: SeparateTables, check: ResultCheck, mechanism: ResidualMechanism
) -> SeparateTables:
    """Compare the tables at the cut, then every part with its measurement and with the tables
    above.

    Parameters
    ----------
    result
        The tables.
    check
        What they are computed again from, and where it is noted what does not follow.
    mechanism
        The noise of every residual, as stated.
    """
    before = len(check.findings.wrong)
    _compare_cut(result, check)
    fit = None
    # Fits to wrong estimates would differ as well, and one fault would be told many times.
    if check.findings.refits and len(check.findings.wrong) == before:
        fit = _cut_fit(result, check.partition)
    part_tables = _compare_parts(result, check, fit)
    # Some whole numbers at the cut are sums of parts, so the parts must be sound first.
    if part_tables is not None:
        _compare_cut_fits(result, check, fit)
    expected = result.noise.expected_l2
    # What the parts were expected to lose is known only where all of them are sound.
    if part_tables is not None and len(check.findings.wrong) == before:
        expected = result.expected_l2(part_tables)
        stated = result.noise.expected_l2
        if not close(stated, expected):
            check.wrong(f"an expected loss of {stated:.6g}, and its noise has {expected:.6g}")
    measured = mechanism_fields(result.name, mechanism, result.private, expected)
    return replace(result, residuals=mechanism, **measured)


def _cut_fit(result: SeparateTables, partition: Partition | None) -> CutFit | None:
    """Fit again the tables at the cut, or all parts together; None where the files of parts cannot
    be read.
    """
    if not result.is_fitted_jointly:
        return result.settle_cut(silent)
    if not isinstance(partition, StoredPartition):
        return None
    try:
        return refitted_whole(result, partition, SECONDS)
    except (ValueError, KeyError, OSError, IndexError):
        return None  # what is damaged is told when the parts are compared


def _compare_cut(result: SeparateTables, check: ResultCheck) -> None:
    """Compare the estimates and errors at the cut with the measurement there and above."""
    above = result.mechanism_above_cut
    estimates = above.space.estimates(above.publish(result.noisy))
    for number, (table, estimate) in enumerate(zip(result.overview, estimates, strict=True)):
        if not close(table.estimate, estimate):
            check.wrong(f"estimates of {table.name} that do not follow from its measurements")
        half_widths = None if table.half_widths is None else above.table_half_widths(number)
        if not close(table.standard_errors, above.table_errors(number)):
            check.wrong(f"standard errors of {table.name} that its noise does not have")
        elif not intervals_hold(table, half_widths):
            check.wrong(f"intervals of {table.name} that its noise does not have")


def _compare_cut_fits(result: SeparateTables, check: ResultCheck, fit: CutFit | None) -> None:
    """Compare the whole numbers at the cut with those that follow from the fits."""
    partition = check.partition
    fits = None
    if fit is not None and isinstance(partition, StoredPartition):
        fits = result.overview_fits(fit, partition.parts, partition.place, silent)
    tables = []
    for table in result.overview:
        form = table.columns().form(check.form)
        file = f"{table.name}.{form}"
        tables.append(FittedTable(table.name, file, table, table.estimate))
    note_fits(check.findings, result.name, f"{result.list_key}.overview.fit", tables, fits)


def _compare_parts(
    result: SeparateTables, check: ResultCheck, fit: CutFit | None
) -> list[PartTable] | None:
    """Compare every part; return how its tables came out, or None where a part is not sound."""
    schema = result.noise_of_residuals.space.schema
    nodes = result.cut.chain(schema).size(result.cut.depth)
    partition = check.sound_partition(nodes)
    if partition is None:
        return None
    tables: list[PartTable] = []
    sound = True
    farther: list[str] = []
    if fit is not None and fit.together is not None:
        same, farther = published_whole(check.findings, result, partition, fit.together)
        # Where the whole came out otherwise, single parts need not have the rows found now.
        fit = fit if same else None
    for node, part in enumerate(partition.parts):
        files = partition.files(part)
        before = len(check.findings.wrong)
        try:
            again = PartCheck(check.findings, result, check.form, node, part, files, fit)
            tables += again.compare_part()
        except (ValueError, KeyError, OSError, IndexError, StopIteration):
            check.wrong(f"files that are damaged in {part.folder}")
        sound = sound and len(check.findings.wrong) == before
    # Distances mean nothing for tables that do not add up, and that is said already.
    if sound:
        check.findings.wrong += farther
    return tables if sound and not farther else None


def refitted_whole(result: SeparateTables, partition: StoredPartition, seconds: float) -> CutFit:
    """Fit the tables of all parts in one piece again, from the measurements in the folders of the
    parts.

    Parameters
    ----------
    result, partition
        The tables, and the parts with the folder of the release.
    seconds
        How long all searches for whole numbers may take.
    """

    def read_residuals(node: int, noise: BranchNoise) -> dict[View, NDArray[np.int64]]:
        numbers = partition.files(partition.parts[node]).numbers(
            measurements_stem(result.request), 1
        )
        return split_residuals(noise.space, numbers["noisy"])

    estimates = result.estimates_below(read_residuals)
    limit = max(seconds / len(result.noise_of_residuals.space.views), _SECONDS)
    return CutFit.in_one_piece(result.fitted_whole(estimates, silent, limit), result.cut)


def published_whole(
    findings: Findings,
    result: SeparateTables,
    partition: StoredPartition,
    together: Fits,
) -> tuple[bool, list[str]]:
    """Whether the parts, put together, hold the whole numbers of a new fit; and a sentence on each
    table that is farther from its estimate than it may be.

    Where they do not, because of a tie or of a search that ended elsewhere, tables are compared by
    their distance from what was measured, the parts of each together. A sentence on one that is
    farther holds if the parts add up.

    Parameters
    ----------
    findings
        What is known of the software that made the release.
    result, partition
        The tables, and the parts with the folder of the release.
    together
        The tables as they are fitted now, in one piece.
    """
    schema, cut = result.noise_of_residuals.space.schema, result.cut
    different = []
    for asked in result.tables_below_cut:
        view = schema.view(asked.features)
        expected, how = together[view]
        loss = 0.0
        whole = np.zeros(schema.grid.compute_margin_shape(view), dtype=expected.dtype)
        try:
            for node, part in enumerate(partition.parts):
                branch = cut.branch(schema, node)
                files = partition.files(part)
                rows = branch.restrict(asked.features)
                fitted = part.find_fit(asked.name)
                table = PublishedTable.read(files, asked.name, rows, fitted)
                cells = cut.row(schema.grid, view, whole, node)
                cells[...] = table.counts.reshape(cells.shape)
                loss += float(np.square(table.counts - table.estimate).sum())
        except (ValueError, KeyError, OSError, IndexError, StopIteration):
            return False, []  # what is damaged is told when the part is compared
        if not np.allclose(whole, expected, rtol=0, atol=1e-4):
            different.append((asked, whole, loss, how))
    if any(
        asked.fit is FitKind.integer and how.note.startswith(NOT_ALL)
        for asked, _, _, how in different
    ):
        # whole numbers take longer to find than is spent here, and others depend on them
        return False, []
    farther = []
    for asked, whole, loss, how in different:
        # A single table that differs was fitted to the same totals as now.
        strict = findings.same_software or len(different) == 1
        said = too_far(asked.name, whole, loss, how, how.optimal and strict)
        if said is not None:
            farther.append(f"{result.name!r} states {said}")
    return not different, farther


@dataclass(eq=False)
class PartCheck:
    """One part of a release, compared with its measurement and the tables above."""

    findings: Findings
    result: SeparateTables
    form: Form | None
    node: int
    part: Part
    files: StoredFiles
    fit: CutFit | None

    def wrong(self, said: str) -> None:
        """Note a finding about this part."""
        self.findings.wrong.append(f"{self.result.name!r} states {said} in {self.part.folder}")

    @property
    def schema(self) -> Schema:
        """The features of the part's records."""
        return self.result.cut.branch(self.result.noise_of_residuals.space.schema, self.node)

    def compare_part(self) -> list[PartTable]:
        """Compare the part; return how its tables came out."""
        result = self.result
        whole = result.noise_of_residuals.space.schema
        path = part_path(whole, result.cut, self.node)
        place = part_folder(whole, result.cut, self.node)
        if (self.part.path, self.part.folder) != (path, place):
            self.wrong(f"another place than {place}")
        tables = result.tables_of_part(self.files, self.node, self.part)
        noise = result.part_noise(self.node)
        rows = result.rows(self.node)
        measured: Columns | None = None
        half_widths: Sequence[Floats | None] = [None] * len(tables)
        estimated: list[tuple[Floats, Floats]] = []
        if noise is None:
            # Nobody can be in this part, as the exact totals say: all its counts are 0.
            for table in tables:
                shape = table.counts.shape
                estimated.append((np.zeros(shape), np.zeros(shape)))
        else:
            noisy = self.files.numbers(measurements_stem(result.request), 1)["noisy"]
            above = [(row.estimate, row.variance) for row in rows]
            estimated = noise.tables(split_residuals(noise.space, noisy), above)
            measured = residual_columns(noise, noisy)
            half_widths = noise.half_widths(INTERVALS_BELOW)
        sound = True
        for table, (estimate, variance), row, half in zip(
            tables, estimated, rows, half_widths, strict=True
        ):
            sound = self._table(table, estimate, np.sqrt(variance), row) and sound
            if not intervals_hold(table, half):
                self.wrong(f"intervals of {table.name} that its noise does not have")
        # Fits are compared only where the tables add up to those above.
        if sound:
            exact = result.cut.exact(result.noise_of_residuals.space.dataspace, self.node)
            estimates = [estimate for estimate, _ in estimated]
            self._fits(tables, estimates, rows, exact, empty=noise is None)
            again = [
                self._with_recomputed_intervals(table, half)
                for table, half in zip(tables, half_widths, strict=True)
            ]
            self._contents(again, measured)
        return [self._compare_stated_errors(table) for table in tables]

    def _with_recomputed_intervals(
        self, table: PublishedTable, half_widths: Floats | None
    ) -> PublishedTable:
        """Return a table with recomputed intervals, because those in its file are rounded."""
        if table.half_widths is None or half_widths is None:
            return table
        return replace(table, half_widths=half_widths.reshape(table.half_widths.shape))

    def _table(
        self, table: PublishedTable, estimate: Floats, errors: Floats, row: TotalsAtCut
    ) -> bool:
        """Compare one table with its estimate and with the table above; return whether it
        adds up.
        """
        shape, schema, cut = table.counts.shape, self.schema, self.result.cut
        if not close(table.estimate, estimate.reshape(shape)):
            self.wrong(f"estimates of {table.name} that do not follow from the measurements")
        if not close(table.standard_errors, errors.reshape(shape)):
            self.wrong(f"standard errors of {table.name} that its noise does not have")
        if table.fitted.kind != "integer":
            return True
        view = schema.view(table.schema.names)
        counts = table.counts
        cells = counts.reshape(schema.grid.compute_margin_shape(view))
        at_cut = schema.grid.sum(cells, cut.coarsen_view(view), view)
        adds_up = row.counts is None or np.array_equal(at_cut.ravel(), row.counts.ravel())
        exact = cut.exact(self.result.noise_of_residuals.space.dataspace, self.node)
        if counts.dtype.kind != "i" or counts.min(initial=0) < 0 or not adds_up:
            self.wrong(f"counts of {table.name} that do not add up to those above")
            return False
        if exact.margins:
            totals = exact.restrict_features(table.schema.names)
            if not totals.contains(Table(table.schema, counts)):
                self.wrong(f"counts of {table.name} that do not add up to the exact totals")
                return False
        return True

    def _fits(
        self,
        tables: Sequence[PublishedTable],
        estimates: list[Floats],
        rows: Sequence[TotalsAtCut],
        exact: Any,
        empty: bool,
    ) -> None:
        fits: Sequence[Refit] | None = None
        if empty:
            how = Fitted(
                "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
            )
            zeros = [np.zeros(table.counts.shape, dtype=np.int64) for table in tables]
            fits = [(counts, how) for counts in zeros]
        elif self.fit is not None:
            whole = self.result.noise_of_residuals.space.schema
            views = [whole.view(row.asked.features) for row in rows]
            fit = self.fit.part(whole.grid, self.result.cut, self.node, views)
            fits = fitted_part(self.schema, exact, rows, fit, estimates, _SECONDS)
        beside = []
        for table, estimate in zip(tables, estimates, strict=True):
            called = f"{self.part.folder}/{table.name}"
            beside.append(FittedTable(called, f"{called}.{self.form}", table, estimate))
        note_fits(self.findings, self.result.name, f"{PARTS} tables.fitted", beside, fits)

    def _contents(self, tables: Sequence[PublishedTable], measured: Columns | None) -> None:
        """Compare the files of the part with its tables."""
        columns_of = {table.name: table.columns() for table in tables}
        if measured is not None:
            columns_of[measurements_stem(self.result.request)] = measured
        files = {f"{stem}.{self.form}": columns for stem, columns in columns_of.items()}
        for name, columns in files.items():
            digest = self.part.files[name]
            for said in file_differences(self.files.folder, name, columns, digest):
                self.wrong(said)

    def _compare_stated_errors(self, table: PublishedTable) -> PartTable:
        """Compare what the list of parts says of a table; return how it came out."""
        stated = next(told for told in self.part.tables if told.name == table.name)
        if not stated.matches_errors(table):
            self.wrong(f"other errors of {table.name} than it has")
        return PartTable.from_table(table)
