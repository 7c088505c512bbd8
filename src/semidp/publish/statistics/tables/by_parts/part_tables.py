"""Tables of parts that are published one by one: those of one part, and a table that reads the rows
of all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut
from semidp.promise.mechanisms.residual_laws import residual_variance
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.publish.half_widths import INTERVALS_BELOW, branch_half_widths
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit
from semidp.publish.statistics.parts import Partition, StoredPartition, refuse_changed
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.by_parts.cut_tables import split_residuals

Floats = NDArray[np.float64]


class TableOfParts(PublishedTable):
    """A table whose cells are read from the folders of the parts when they are asked for.

    Parameters
    ----------
    name, schema
        Its name and its features.
    partition
        The parts, and where they are.
    """

    def __init__(self, name: str, schema: Schema, partition: Partition) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "name", name)
        keep(self, "schema", schema)
        keep(self, "_partition", partition)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        partition: Partition = self.__dict__["_partition"]
        if not isinstance(partition, StoredPartition):
            raise InputError(
                f"the cells of {self.name!r} are in the folder of the release, which is not known"
            )
        cut, grid = Cut.from_name(self.schema, partition.depth), self.schema.grid
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            rows = cut.branch(self.schema, node)
            fitted = part.find_fit(self.name)
            table = PublishedTable.read(partition.files(part), self.name, rows, fitted)
            for name in ("counts", "estimate", "standard_errors", "half_widths"):
                column = getattr(table, name)
                if column is None:
                    continue
                # Counts of a part without whole numbers are real ones, and so are those of the
                # whole table then.
                before = cells.get(name, np.zeros(self.schema.shape, column.dtype))
                kind = np.result_type(before.dtype, column.dtype)
                cells[name] = before.astype(kind, copy=False)
                row = cut.row(grid, grid.full, cells[name], node)
                row[...] = column.reshape(row.shape)
        return cells

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        partition: Partition = self.__dict__["_partition"]
        fits = [part.find_fit(self.name) for part in partition.parts]
        not_whole = [fit.kind for fit in fits if fit.kind != FitKind.integer]
        methods = dict.fromkeys(fit.method for fit in fits)
        notes = dict.fromkeys(fit.note for fit in fits if fit.note)
        return Fitted(
            # One part without whole numbers is enough for the table to have none with all totals.
            kind=not_whole[0] if not_whole else str(FitKind.integer),
            method=", ".join(methods),
            # Parts hold different cells, so squared distances and their lower bounds add up.
            loss=sum(fit.loss for fit in fits),
            bound=sum(fit.bound for fit in fits),
            optimal=all(fit.optimal for fit in fits),
            note=" ".join(notes),
        )

    @cached_property
    def counts(self) -> NDArray[Any]:
        """Published counts, of all parts."""
        return self._cells["counts"]

    @cached_property
    def estimate(self) -> Floats:
        """The unbiased estimate, in all parts."""
        return self._cells["estimate"]

    @cached_property
    def standard_errors(self) -> Floats:
        """The standard errors of the estimate, in all parts."""
        return self._cells["standard_errors"]

    @cached_property
    def half_widths(self) -> Floats | None:
        """Half-widths of the 95% intervals; None where a part is too large to have them."""
        return self._cells.get("half_widths")


@dataclass(frozen=True, eq=False)
class RowAtCut:
    """The cells at the cut, for one part, of a table that reaches below it: the estimate, its
    variance, and the published whole numbers (None where there are none).
    """

    asked: TableRequest
    estimate: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


_EMPTY = Fitted(
    "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
)


def estimate_branch_tables(
    branch: BranchNoise,
    noisy: Mapping[View, NDArray[np.int64]],
    above: Sequence[tuple[Floats, Floats]],
) -> list[tuple[Floats, Floats]]:
    """Return the estimate of each table and the variance of each of its cells, from the
    residuals below the cut.

    `above` has for each table its estimate at the cut for this node, and the variance of that.
    """
    space, residuals = branch.space, branch.space.residuals
    estimates, variances = [], []
    for number, (row, square) in enumerate(above):
        estimates.append(np.array(space.divide_below_cut(row, number)))
        variances.append(np.array(space.divide_below_cut(square, number, 2)))
    for number, view in enumerate(space.views):
        for small, exact_part in space.exact_residuals.items():
            depths = zip(small, view, strict=True)
            if all(one <= other for one, other in depths):
                estimates[number] += residuals.spread(exact_part, small, view)
    for small, holders in space.holders.items():
        scale = residuals.scale(small)
        centred = residuals.center(small, noisy[small] / scale)
        variance_before = residual_variance(branch.law, branch.sigma2[small], scale)
        centred_variance = residuals.centred_variance(small, variance_before)
        for number in holders:
            view = space.views[number]
            estimates[number] += residuals.spread(centred, small, view)
            variances[number] += residuals.spread(centred_variance, small, view, power=2)
    tables = []
    for number, view in enumerate(space.views):
        estimate = space.restore_full_table(estimates[number], view)
        tables.append((estimate, space.restore_full_table(variances[number], view)))
    return tables


def estimate_part(
    noise: BranchNoise, noisy: NDArray[np.int64], rows: Sequence[RowAtCut]
) -> list[tuple[Floats, Floats]]:
    """Return the estimates and variances of the tables of one part, from what was measured in it
    and at the cut.
    """
    above = [(row.estimate, row.variance) for row in rows]
    return estimate_branch_tables(noise, split_residuals(noise.space, noisy), above)


def build_part(
    schema: Schema,
    asked: Sequence[TableRequest],
    noise: BranchNoise | None,
    estimated: Sequence[tuple[Floats, Floats]] | None,
    fits: Sequence[StoredFit],
) -> list[PublishedTable]:
    """Return the tables of one part with their whole numbers. Where nobody can be, there is no
    noise, and nothing is estimated.
    """
    half_widths = None if noise is None else branch_half_widths(noise, INTERVALS_BELOW)
    tables = []
    for number, (table, (counts, how)) in enumerate(zip(asked, fits, strict=True)):
        rows = schema.restrict(table.features)
        zero = np.zeros(rows.shape)
        estimate, variance = (zero, zero) if estimated is None else estimated[number]
        half = zero if half_widths is None else half_widths[number]
        cells, errors = counts.reshape(rows.shape), np.sqrt(variance)
        tables.append(PublishedTable(table.name, rows, cells, estimate, errors, how, half))
    return tables


def fit_nobody(schema: Schema, asked: Sequence[TableRequest]) -> list[StoredFit]:
    """Return the whole numbers of a part where nobody can be."""
    shapes = [schema.restrict(table.features).shape for table in asked]
    return [(np.zeros(shape, dtype=np.int64), _EMPTY) for shape in shapes]
