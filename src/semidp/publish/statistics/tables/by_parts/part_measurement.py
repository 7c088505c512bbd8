"""Measurement of one part: its records are counted, and the noisy counts are stored once.

The first attempt at a part takes the name of the stored file. Another attempt at the same part
reads it and draws nothing, so that all attempts write the same numbers. Shared by all statistics
that are released part by part.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, Refused
from semidp.promise.files import durable, link
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import View, trimmed_view
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import BranchSpace, Cut
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.results.cells import Columns
from semidp.publish.results.columns import read_parquet
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import STATE, PartTask
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.request import TableRequest
from semidp.publish.unfinished import Unfinished

_LARGEST = 2**62
_DAMAGED = "what was measured of a part is damaged: discard the unfinished release"
_CHANGED = (
    "the records of a part do not add up to what was read first: nothing may write to the data"
    " meanwhile"
)


def refuse_overflow(space: ProductSpace, n: int | None) -> None:
    """Refuse residuals of n records that 62 bits may not hold.

    A part that found an overflow would find it after the budget was charged.
    """
    for view in space.measured_residuals:
        # No entry of a residual exceeds n times its scale, because its weights lie in [-1, 1].
        if (n or 0) * space.residuals.largest_scale(view) >= _LARGEST:
            raise Refused(
                "the counts times the numbers of levels do not fit in 62 bits: release smaller"
                " tables"
            )


def counts_at_cut(
    below: Sequence[TableRequest],
    schema: Schema,
    cut: Cut,
    at_cut: Mapping[View, Table],
    node: int,
) -> tuple[NDArray[np.int64], ...]:
    """Return the confidential counts at the cut that the records of one part must add up to.

    Parameters
    ----------
    below
        The tables that reach below the cut.
    schema, cut
        The features of a record, and where tables are taken apart.
    at_cut
        The tables at the cut, as they were read first.
    node
        The part.
    """
    expected = []
    for table in below:
        view = cut.coarsen_view(schema.view(table.features))
        counts = at_cut[view].counts.reshape(schema.grid.compute_margin_shape(view))
        expected.append(cut.row(schema.grid, view, counts, node))
    return tuple(expected)


def counted_tables(
    task: PartTask,
    features: Sequence[Sequence[str]],
    expected: Sequence[NDArray[np.int64]],
    source: Source | None,
) -> list[Table]:
    """Return the confidential tables of a part; refuse records that changed since the tables at the
    cut were read.

    Parameters
    ----------
    task
        The part.
    features, expected
        Of each table its features, and its counts at the cut.
    source
        The records of the part; None where there are none.
    """
    if source is None:
        schemas = map(task.schema.restrict, features)
        counted = []
        for schema in schemas:
            zeros = np.zeros(schema.shape, dtype=np.int64)
            counted.append(Table(schema, zeros))
    else:
        counted = Reader(task.schema, source, task.declared).tables(features)
    grid = task.schema.grid
    for table, names, at_first in zip(counted, features, expected, strict=True):
        view = task.schema.view(names)
        above = trimmed_view(task.cut.coarsen_view(view), view)
        at_cut = grid.coarsen(view).sum(table.counts, above)
        # The message names no count, because these are the confidential ones.
        if not np.array_equal(at_cut.ravel(), at_first.ravel()):
            raise DataError(_CHANGED)
        if task.exact.margins and not task.exact.restrict_features(names).contains(table):
            raise DataError(_CHANGED)
    return counted


def store_once(task: PartTask, columns: Columns, stored: Path, attempt: Path) -> None:
    """Store the measurement of an attempt, unless another attempt was first: then this one's draw
    is dropped.
    """
    fresh = attempt / stored.name
    columns.write(fresh)
    # On disk before it has its name: an empty file would stand for a measurement.
    durable(attempt)
    Unfinished(task.work, task.run_name).check()
    # A link to a taken name fails: one attempt wins, and all of them read its numbers.
    with contextlib.suppress(FileExistsError):
        link(fresh, stored)
    fresh.unlink()


def stored_measurement(work: Path, request: Request, path: Sequence[str]) -> Path:
    """Return the path, in the folder of an unfinished release, of the measurement of a request in
    one part.
    """
    # Labels may hold any character, and a digest is a name that every file system takes.
    place = json.dumps([request.name, *path])
    key = hashlib.sha256(place.encode()).hexdigest()
    return work / STATE / f"{key}.parquet"


def read_measurement(stored: Path, space: BranchSpace) -> NDArray[np.int64]:
    """Read the measurement of a request in one part of an unfinished release; refuse one that does
    not fit its space.
    """
    noisy = read_noisy(stored)
    if not _fits(space, noisy):
        raise DataError(_DAMAGED)
    return noisy


def read_noisy(stored: Path) -> NDArray[np.int64]:
    """Read the noisy values that one part of an unfinished release has stored."""
    try:
        noisy: NDArray[np.int64] = read_parquet(stored, ["noisy"])["noisy"]
    except (ValueError, OSError):
        raise DataError(_DAMAGED) from None
    return noisy


def split_residuals(space: BranchSpace, vector: NDArray[np.int64]) -> dict[View, NDArray[np.int64]]:
    """Split the measurement of a part into its residuals; refuse one that does not fit this
    space.
    """
    if not _fits(space, vector):
        raise DataError("the measurements of a part are not those of the plan")
    residuals = {}
    for view, part in space.parts.items():
        residuals[view] = vector[part].reshape(space.residuals.shape(view))
    return residuals


def _fits(space: BranchSpace, vector: NDArray[np.int64]) -> bool:
    """Whether a vector has an entry for each residual of a part."""
    return vector.shape == space.shape and vector.dtype == np.int64
