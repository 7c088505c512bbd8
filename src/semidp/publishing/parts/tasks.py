"""The work of one part: count its records, add the noise of its residuals, fit its tables, write its files.

A task shares nothing with another but public values, so that tasks run anywhere and in any order. What it measured is
stored once, under a name that the first attempt takes: another attempt at the same part reads that and draws nothing,
so that all attempts write the same numbers. A folder takes its place when it is whole. Both happen in the folder of the
task's own run only: an attempt that outlives a run that was discarded stores nothing in the next one.
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.documents import from_json
from semidp.core.margins import View, trimmed_view
from semidp.core.progress import silent
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, InputError
from semidp.mechanisms.accuracy import INTERVALS_BELOW
from semidp.mechanisms.branch_noise import BranchNoise
from semidp.noise.randomness import Randomness
from semidp.output.cells import Form
from semidp.output.columns import read_parquet
from semidp.output.files import Unfinished, digest, durable
from semidp.publishing.parts.cut_fits import PartFit, own_part
from semidp.publishing.parts.partitions import AtCut, Part, PartTable, measurements_stem
from semidp.queries.branches import BranchSpace, Cut
from semidp.sources.opening import Source
from semidp.sources.reader import Reader
from semidp.statistics.tables.fitting import fit_product, nearest_whole
from semidp.statistics.tables.published import FitKind, Fitted, ProductTable, residual_columns
from semidp.statistics.tables.request import TablesRequest

STATE = ".state"
"""The folder, in an unfinished release, of what is needed to finish it."""
PART_DONE = "part.json"
"""The file, in the folder of a part, that says how it came out."""
_CHANGED = "the records of a part do not add up to what was read first: nothing may write to the data meanwhile"


@dataclass(frozen=True, eq=False)
class RequestTask:
    """What one request has in this part: its tables at the cut, the noise of its residuals below, how it is fitted.

    The confidential counts at the cut, as they were read first, are what its records must add up to. There is no noise
    where nobody can be, and no fit while the part is only measured.
    """

    request: TablesRequest
    tables: tuple[AtCut, ...] = field(repr=False)
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    noise: BranchNoise | None = field(repr=False)
    fit: PartFit | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class PartTask:
    """Everything that one part needs.

    Parameters
    ----------
    path
        The labels of the part.
    run
        Which measurement it belongs to: the name of the run that was charged for it.
    work, folder
        The folder of the unfinished release, and that of the part in it.
    schema, declared
        The features of the part's records, and as they were declared.
    cut, exact
        Where the tables are cut, and what is published below.
    requests, form
        What is asked for, and how tables are written.
    values
        The values of columns that tell the part's records from others; None where there are no such records.
    randomness
        Where its random words come from.
    only_measured
        Whether the task ends when its measurement is stored; another one fits and writes the part.
    """

    path: tuple[str, ...]
    run: str
    work: Path
    folder: str
    schema: Schema
    declared: tuple[Feature, ...] = field(repr=False)
    cut: Cut
    exact: Dataspace = field(repr=False)
    requests: tuple[RequestTask, ...] = field(repr=False)
    values: Mapping[str, Sequence[Any]] | None = field(repr=False)
    form: Form
    randomness: Randomness
    only_measured: bool = False

    def stored(self, request: RequestTask) -> Path:
        """Return the file of what is measured of a request in this part."""
        return stored_measurement(self.work, request.request, self.path)


def stored_measurement(work: Path, request: TablesRequest, path: Sequence[str]) -> Path:
    """Return the file, in the folder of an unfinished release, of what was measured of a request in one part."""
    key = hashlib.sha256(json.dumps([request.name, *path]).encode()).hexdigest()
    return work / STATE / f"{key}.parquet"


def measured_before(task: PartTask) -> bool:
    """Whether all that a part measures is stored."""
    return all(request.noise is None or task.stored(request).exists() for request in task.requests)


def done_before(task: PartTask) -> Part | None:
    """Return a part that an earlier attempt finished."""
    try:
        part = Part.from_json(from_json((task.work / task.folder / PART_DONE).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return part if (part.path, part.folder) == (task.path, task.folder) else None


def carry_out(task: PartTask, source: Source | None) -> Part:
    """Carry out one part from its own records, if there are any, and return what became of it."""
    done = done_before(task)
    if done is not None:
        return done
    unfinished = Unfinished(task.work, task.run)
    unfinished.check()
    attempt = task.work / STATE / f"attempt-{secrets.token_hex(8)}"
    try:
        attempt.mkdir()  # and no folder above it: where those are gone, the run is over
        if task.only_measured:
            for request in task.requests:
                _measure(task, request, source, attempt)
            return Part(task.path, task.folder, {}, ())
        part = _written(task, source, attempt)
        (attempt / PART_DONE).write_text(json.dumps(part.to_json()), encoding="utf-8")
        durable(attempt)
        unfinished.check()
        try:
            os.rename(attempt, task.work / task.folder)
        except OSError:
            done = done_before(task)  # another attempt was first, with the same numbers
            if done is None:
                raise
            return done
        return part
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"the part {' · '.join(task.path)!r} could not be written: {reason}") from None
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _written(task: PartTask, source: Source | None, attempt: Path) -> Part:
    tables: list[PartTable] = []
    for request in task.requests:
        _measure(task, request, source, attempt)
        results = _tables(task, request, attempt)
        for table in results:
            table.columns().write(attempt / f"{table.name}.{task.form}")
        tables += map(PartTable.of, results)
    names = sorted(path.name for path in attempt.iterdir())
    return Part(task.path, task.folder, {name: digest(attempt / name) for name in names}, tuple(tables))


def _counted(task: PartTask, request: RequestTask, source: Source | None) -> list[Table]:
    """Return the confidential tables of a part; refuse records that are not those that were read first."""
    features = [table.asked.features for table in request.tables]
    if source is None:
        schemas = map(task.schema.restrict, features)
        found = [Table(schema, np.zeros(schema.shape, dtype=np.int64)) for schema in schemas]
    else:
        found = Reader(task.schema, source, task.declared).tables(features)
    grid = task.schema.grid
    for table, names, expected in zip(found, features, request.expected, strict=True):
        view = task.schema.view(names)
        at_cut = grid.coarsened(view).sum(table.counts, trimmed_view(task.cut.above(view), view))
        if not np.array_equal(at_cut.ravel(), expected.ravel()):
            raise DataError(_CHANGED)
        if task.exact.margins and not task.exact.over(names).contains(table):
            raise DataError(_CHANGED)
    return found


def _measure(task: PartTask, request: RequestTask, source: Source | None, attempt: Path) -> None:
    """Count the records of a part and store them with noise, unless an attempt did so before."""
    stored = task.stored(request)
    if request.noise is not None and stored.exists():
        return
    counted = _counted(task, request, source)
    if request.noise is None:
        return
    randomness = task.randomness.part(request.request.name, *task.path)
    drawn = [part.ravel() for part in request.noise.measure(counted, randomness).values()]
    fresh = attempt / stored.name
    residual_columns(request.noise, np.concatenate([np.zeros(0, np.int64), *drawn])).write(fresh)
    durable(attempt)
    Unfinished(task.work, task.run).check()
    with contextlib.suppress(FileExistsError):  # another attempt was first: what this one drew is dropped
        os.link(fresh, stored)
    fresh.unlink()


def _tables(task: PartTask, request: RequestTask, attempt: Path) -> list[ProductTable]:
    """Return the tables of a part, fitted to what was measured."""
    schemas = [task.schema.restrict(row.asked.features) for row in request.tables]
    if request.noise is None:
        how = Fitted("integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say.")
        zeros = [np.zeros(schema.shape) for schema in schemas]
        return [
            ProductTable(row.asked.name, schema, zero.astype(np.int64), zero, zero, how, zero)
            for row, schema, zero in zip(request.tables, schemas, zeros, strict=True)
        ]
    assert request.fit is not None
    noisy = _measured(task, request, request.noise, attempt)
    estimated = request.noise.tables(noisy, [(table.estimate, table.variance) for table in request.tables])
    estimates = [estimate for estimate, _ in estimated]
    fitted = fitted_part(task.schema, task.exact, request.tables, request.fit, estimates)
    tables = []
    half_widths = request.noise.half_widths(INTERVALS_BELOW)
    for row, schema, (estimate, variance), (counts, made), half in zip(
        request.tables, schemas, estimated, fitted, half_widths, strict=True
    ):
        whole, errors = counts.reshape(schema.shape), np.sqrt(variance)
        tables.append(ProductTable(row.asked.name, schema, whole, estimate, errors, made, half))
    return tables


def fitted_part(
    schema: Schema,
    exact: Dataspace,
    rows: Sequence[AtCut],
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
        Seconds after which no further improvement of one table is started; those of the fit unless given.
    """
    if fit.made is not None:
        parts = zip(fit.made, estimates, strict=True)
        return [own_part(counts.reshape(estimate.shape), how, estimate) for (counts, how), estimate in parts]
    kinds = [FitKind.none if number in fit.unfitted else row.asked.fit for number, row in enumerate(rows)]
    fitted = fit_product(
        schema.grid,
        [schema.view(row.asked.features) for row in rows],
        [*fit.totals, *exact.published],
        estimates,
        kinds,
        silent,
        order=fit.order,
        first=fit.first,
        time_limit=fit.seconds if time_limit is None else time_limit,
    )
    for number in fit.unfitted:
        fitted[number] = nearest_whole(estimates[number])
    return fitted


def _measured(task: PartTask, request: RequestTask, noise: BranchNoise, attempt: Path) -> dict[View, NDArray[np.int64]]:
    """Return the noisy residuals of a part that the first attempt stored, and put them among the files of the part."""
    stored = task.stored(request)
    noisy = read_measurement(stored, noise.space)
    name, form = measurements_stem(request.request), task.form
    if form is Form.parquet:
        os.link(stored, attempt / f"{name}.{form}")
    else:
        residual_columns(noise, noisy).write(attempt / f"{name}.{form}")
    return split_residuals(noise.space, noisy)


def read_measurement(stored: Path, space: BranchSpace) -> NDArray[np.int64]:
    """Read what was measured of a request in one part of an unfinished release; refuse what is not of its space."""
    try:
        noisy = read_parquet(stored, ["noisy"])["noisy"]
        split_residuals(space, noisy)
        return noisy
    except ValueError:
        raise DataError("what was measured of a part is damaged: discard the unfinished release") from None


def split_residuals(space: BranchSpace, vector: NDArray[np.int64]) -> dict[View, NDArray[np.int64]]:
    """Take the measured residuals of a part apart; refuse those that are not of this space."""
    if vector.shape != space.shape or vector.dtype != np.int64:
        raise DataError("the measurements of a part are not those of the plan")
    return {view: vector[part].reshape(space.residuals.shape(view)) for view, part in space.parts.items()}
