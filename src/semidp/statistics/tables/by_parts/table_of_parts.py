"""Tables whose cells are in the folders of parts: rows of one part, and a table that reads all of
them.

Shared by all results that are released part by part.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import View
from semidp.core.spaces.dataspace import RECORD
from semidp.core.tables.schema import Schema
from semidp.errors import InputError
from semidp.output.cells import StoredFiles
from semidp.output.published_table import FitKind, Fitted, PublishedTable
from semidp.queries.branches import Cut
from semidp.statistics.parts import (
    Partition,
    StoredPartition,
    refuse_changed,
)
from semidp.statistics.tables.request import TableRequest

BY_PARTS = "partitioned"
"""What release.json calls the list of tables that were carried out part by part."""


class TableOfParts(PublishedTable):
    """A table of a release by parts. Its cells are read from the folders of the parts when they are
    asked for.

    Parameters
    ----------
    asked
        What was asked for.
    schema, cut
        The features of a record, and where tables were taken apart.
    partition
        The parts, and where they are.
    counted
        The kind of record that it counts.
    fitted
        How it was fitted, where that is known of the whole; otherwise what the parts state.
    """

    def __init__(
        self,
        asked: TableRequest,
        schema: Schema,
        cut: Cut,
        partition: Partition,
        counted: str = RECORD,
        fitted: Fitted | None = None,
    ) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "counted", counted)
        keep(self, "name", asked.name)
        keep(self, "schema", schema.restrict(asked.features))
        keep(self, "_whole", schema)
        keep(self, "_cut", cut)
        keep(self, "_asked", asked)
        keep(self, "_partition", partition)
        if fitted is not None:
            keep(self, "fitted", fitted)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        whole: Schema = self.__dict__["_whole"]
        cut: Cut = self.__dict__["_cut"]
        asked: TableRequest = self.__dict__["_asked"]
        partition: Partition = self.__dict__["_partition"]
        if not isinstance(partition, StoredPartition):
            raise InputError(
                f"the cells of {asked.name!r} are in the folder of the release, which is not known"
            )
        view = whole.view(asked.features)
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            files = partition.files(part)
            schema = cut.branch(whole, node).restrict(asked.features)
            table = PublishedTable.read(files, asked.name, schema, part.fitted(asked.name))
            columns = {
                "counts": table.counts,
                "estimate": table.estimate,
                "standard_errors": table.standard_errors,
                "half_widths": table.half_widths,
            }
            for name, column in columns.items():
                if column is None:
                    continue
                # Counts of a part without whole numbers are real ones, and so are those of the
                # whole table then.
                if name not in cells:
                    cells[name] = np.zeros(whole.grid.shape_of(view), column.dtype)
                kind = np.result_type(cells[name].dtype, column.dtype)
                array = cells[name].astype(kind, copy=False)
                row = cut.row(whole.grid, view, array, node)
                row[...] = column.reshape(row.shape)
                cells[name] = array
        shape = self.schema.shape
        return {name: array.reshape(shape) for name, array in cells.items()}

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        asked: TableRequest = self.__dict__["_asked"]
        partition: Partition = self.__dict__["_partition"]
        return _fit_of_parts([part.fitted(asked.name) for part in partition.parts])

    @cached_property
    def counts(self) -> NDArray[Any]:
        """Published counts, of all parts."""
        return self._cells["counts"]

    @cached_property
    def estimate(self) -> NDArray[np.float64]:
        """The unbiased estimate, in all parts."""
        return self._cells["estimate"]

    @cached_property
    def standard_errors(self) -> NDArray[np.float64]:
        """The standard errors of the estimate, in all parts."""
        return self._cells["standard_errors"]

    @cached_property
    def half_widths(self) -> NDArray[np.float64] | None:
        """Half-widths of the 95% intervals; None where a part is too large to have them."""
        return self._cells.get("half_widths")


def _fit_of_parts(fits: Sequence[Fitted]) -> Fitted:
    """Return how a table was fitted as a whole, from how it was fitted in each part."""
    not_whole = [fit for fit in fits if fit.kind != FitKind.integer]
    methods = dict.fromkeys(fit.method for fit in fits)
    notes = dict.fromkeys(fit.note for fit in fits if fit.note)
    # One part without whole numbers is enough for the table to have none with all totals.
    kind = not_whole[0].kind if not_whole else str(FitKind.integer)
    # Parts hold different cells, so squared distances and their lower bounds add up.
    loss = sum(fit.loss for fit in fits)
    bound = sum(fit.bound for fit in fits)
    optimal = all(fit.optimal for fit in fits)
    return Fitted(kind, ", ".join(methods), loss, bound, optimal, " ".join(notes))


def rows_of(
    table: PublishedTable, schema: Schema, cut: Cut, view: View, node: int, rows: Schema
) -> PublishedTable:
    """Return the rows of a table that belong to one part, with the distance of these rows from what
    was fitted.
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


def tables_below(
    tables: Iterable[TableRequest], schema: Schema, cut: Cut
) -> tuple[TableRequest, ...]:
    """Return the tables that reach below a cut. Their cells are in the parts."""
    below = []
    for table in tables:
        if cut.reaches(schema.view(table.features)):
            below.append(table)
    return tuple(below)


def files_of_parts(partition: Partition, folder: Path) -> Iterator[StoredFiles]:
    for part in partition.parts:
        yield StoredFiles(folder / part.folder, tuple(part.files))


def in_memory(table: PublishedTable) -> PublishedTable:
    """Return a table with all of its cells read.

    A recheck rebuilds tables field by field, and one that reads from parts cannot be rebuilt so.
    """
    cells = (table.counts, table.estimate, table.standard_errors, table.fitted, table.half_widths)
    return PublishedTable(table.name, table.schema, *cells, counted=table.counted)


def uncut(
    tables: Iterable[PublishedTable], below: Iterable[TableRequest]
) -> tuple[PublishedTable, ...]:
    """Return the tables that do not reach below the cut. The files of the release itself hold
    them.
    """
    cut_up = {table.name for table in below}
    return tuple(table for table in tables if table.name not in cut_up)
