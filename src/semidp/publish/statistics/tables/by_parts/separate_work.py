"""Separate parts, the work of one: count its records, add noise to its residuals, fit its tables,
write its files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.files import link
from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.selection import INTERVALS_BELOW
from semidp.promise.progress import silent
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.results.cells import Form
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.sources.opening import Source
from semidp.publish.statistics.parts import PartTable, PartTask
from semidp.publish.statistics.tables.by_parts.part_measurement import (
    counted_tables,
    read_measurement,
    split_residuals,
    store_once,
    stored_measurement,
)
from semidp.publish.statistics.tables.by_parts.separate_fits import PartFit, own_part
from semidp.publish.statistics.tables.by_parts.separate_published import TotalsAtCut
from semidp.publish.statistics.tables.fitting import fit_product, nearest_whole
from semidp.publish.statistics.tables.published import measurements_stem
from semidp.publish.statistics.tables.request import TablesRequest
from semidp.publish.statistics.tables.residual_files import residual_columns


@dataclass(frozen=True, eq=False)
class SeparateWork:
    """Work of one part for a request: its tables at the cut, the noise of its residuals below, and
    how it is fitted.

    The confidential counts at the cut, as they were read first, are what its records must add up
    to. There is no noise where nobody can be, and no fit while the part is only measured.
    """

    request: TablesRequest
    tables: tuple[TotalsAtCut, ...] = field(repr=False)
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    noise: BranchNoise | None = field(repr=False)
    fit: PartFit | None = field(repr=False)

    def measurement_path(self, task: PartTask) -> Path:
        """Return the path of the stored measurement of a part."""
        return stored_measurement(task.work, self.request, task.path)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored the measurement. A part that can hold no record
        needs none.
        """
        return self.noise is None or self.measurement_path(task).exists()

    def reads(self, task: PartTask) -> bool:
        """Whether no attempt has stored what is measured."""
        # Records are counted even where nobody can be, so that some which appear there are refused.
        return self.noise is None or not self.measurement_path(task).exists()

    def measure(self, task: PartTask, source: Source | None, attempt: Path) -> None:
        """Count the records of a part and store the counts with noise, unless an earlier attempt
        did.
        """
        if not self.reads(task):
            return
        features = [table.asked.features for table in self.tables]
        counted = counted_tables(task, features, self.expected, source)
        if self.noise is None:
            return
        # The path is part of the key: with one source, two parts would have the same noise.
        randomness = task.randomness.part(self.request.name, *task.path)
        drawn = self.noise.measure(counted, randomness)
        pieces = [part.ravel() for part in drawn.values()]
        vector = np.concatenate([np.zeros(0, np.int64), *pieces])
        columns = residual_columns(self.noise, vector)
        store_once(task, columns, self.measurement_path(task), attempt)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write the tables of a part and its measurement; return how the tables came out."""
        results = _tables(task, self, attempt)
        for table in results:
            file = f"{table.name}.{task.form}"
            table.columns().write(attempt / file)
        return [PartTable.from_table(table) for table in results]


def _tables(task: PartTask, request: SeparateWork, attempt: Path) -> list[PublishedTable]:
    """Return the tables of a part, fitted to what was measured."""
    schemas = [task.schema.restrict(row.asked.features) for row in request.tables]
    if request.noise is None:
        how = Fitted(
            "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
        )
        empty = []
        for row, schema in zip(request.tables, schemas, strict=True):
            zero = np.zeros(schema.shape)
            counts = zero.astype(np.int64)
            empty.append(PublishedTable(row.asked.name, schema, counts, zero, zero, how, zero))
        return empty
    assert request.fit is not None, "a part that is measured is fitted"
    noisy = _copy_measurement(task, request, request.noise, attempt)
    above = [(table.estimate, table.variance) for table in request.tables]
    estimated = request.noise.tables(noisy, above)
    estimates = [estimate for estimate, _ in estimated]
    fitted = fitted_part(task.schema, task.exact, request.tables, request.fit, estimates)
    tables = []
    half_widths = request.noise.half_widths(INTERVALS_BELOW)
    for row, schema, (estimate, variance), (counts, made), half in zip(
        request.tables, schemas, estimated, fitted, half_widths, strict=True
    ):
        whole, errors = counts.reshape(schema.shape), np.sqrt(variance)
        tables.append(PublishedTable(row.asked.name, schema, whole, estimate, errors, made, half))
    return tables


def fitted_part(
    schema: Schema,
    exact: Dataspace,
    rows: Sequence[TotalsAtCut],
    fit: PartFit,
    estimates: list[NDArray[np.float64]],
    time_limit: float | None = None,
) -> list[tuple[NDArray[Any], Fitted]]:
    """Fit the tables of one part to what is settled at the cut, and to its exact totals.

    Parameters
    ----------
    schema, exact
        The features of the part's records, and what is published below the cut.
    rows
        What is asked for of each table.
    fit
        The order of the fits, and the totals at the cut.
    estimates
        For each table its estimate in this part.
    time_limit
        Seconds after which no further improvement of one table is started; those of the fit unless
        given.
    """
    if fit.made is not None:
        parts = zip(fit.made, estimates, strict=True)
        tables = []
        for (counts, how), estimate in parts:
            tables.append(own_part(counts.reshape(estimate.shape), how, estimate))
        return tables
    views = [schema.view(row.asked.features) for row in rows]
    totals = [*fit.totals, *exact.published_totals]
    fit_kinds = [row.asked.fit for row in rows]
    # A table that was given up binds no other one: they would inherit what it misses.
    for number in fit.unfitted:
        fit_kinds[number] = FitKind.none
    seconds = fit.seconds if time_limit is None else time_limit
    fitted = fit_product(
        schema.grid,
        views,
        totals,
        estimates,
        fit_kinds,
        silent,
        order=fit.order,
        first=fit.first,
        time_limit=seconds,
    )
    for number in fit.unfitted:
        fitted[number] = nearest_whole(estimates[number])
    return fitted


def _copy_measurement(
    task: PartTask, request: SeparateWork, noise: BranchNoise, attempt: Path
) -> dict[View, NDArray[np.int64]]:
    """Return the noisy residuals of a part that the first attempt stored, and put them among the
    files of the part.
    """
    stored = request.measurement_path(task)
    noisy = read_measurement(stored, noise.space)
    name, form = measurements_stem(request.request), task.form
    if form is Form.parquet:
        link(stored, attempt / f"{name}.{form}")
    else:
        residual_columns(noise, noisy).write(attempt / f"{name}.{form}")
    return split_residuals(noise.space, noisy)
