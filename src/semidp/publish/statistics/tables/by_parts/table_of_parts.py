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

from semidp.errors import InputError
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.promise.spaces.dataspace import RECORD
from semidp.publish.results.cells import StoredFiles
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.statistics.parts import (
    Part,
    Partition,
    StoredPartition,
    refuse_changed,
)
from semidp.publish.statistics.tables.request import TableRequest

BY_PARTS = "partitioned"
"""What release.json calls the list of tables that were carried out part by part."""


class TableOfParts(PublishedTable):
    """A table of a release by parts. Its cells are read from the folders of the parts when they are
    asked for.

    Parameters
    ----------
    name, schema
        Its name and its features.
    partition
        The parts, and where they are.
    counted
        The kind of record that it counts.
    fitted
        How it was fitted, where that is known of the whole; otherwise what the parts state.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        partition: Partition,
        counted: str = RECORD,
        fitted: Fitted | None = None,
    ) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "counted", counted)
        keep(self, "name", name)
        keep(self, "schema", schema)
        keep(self, "_partition", partition)
        if fitted is not None:
            keep(self, "fitted", fitted)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        partition: Partition = self.__dict__["_partition"]
        if not isinstance(partition, StoredPartition):
            raise InputError(
                f"the cells of {self.name!r} are in the folder of the release, which is not known"
            )
        cut = Cut.from_name(self.schema, partition.depth)
        grid = self.schema.grid
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            files = partition.files(part)
            rows = cut.branch(self.schema, node)
            table = PublishedTable.read(files, self.name, rows, part.find_fit(self.name))
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
                    cells[name] = np.zeros(self.schema.shape, column.dtype)
                kind = np.result_type(cells[name].dtype, column.dtype)
                array = cells[name].astype(kind, copy=False)
                row = cut.row(grid, grid.full, array, node)
                row[...] = column.reshape(row.shape)
                cells[name] = array
        return cells

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        partition: Partition = self.__dict__["_partition"]
        return _fit_of_parts([part.find_fit(self.name) for part in partition.parts])

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


def select_part_rows(table: PublishedTable, depth: str, node: int) -> PublishedTable:
    """Return the rows of a table that belong to one part, with the distance of these rows from what
    was fitted.

    Parameters
    ----------
    table
        The whole table, which reaches below the cut.
    depth, node
        The name of the depth of the cut, and which part.
    """
    cut = Cut.from_name(table.schema, depth)
    rows = cut.branch(table.schema, node)
    grid = table.schema.grid

    def cells_of_part(values: NDArray[Any]) -> NDArray[Any]:
        part = cut.row(grid, grid.full, values.reshape(table.schema.shape), node)
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


def read_rows(
    files: StoredFiles, tables: Iterable[PublishedTable], depth: str, node: int, part: Part
) -> list[PublishedTable]:
    """Read the rows that one part has of tables that reach below the cut at `depth`."""
    read = []
    for table in tables:
        rows = Cut.from_name(table.schema, depth).branch(table.schema, node)
        fitted = part.find_fit(table.name)
        read.append(PublishedTable.read(files, table.name, rows, fitted, table.counted))
    return read


def cut_up(
    tables: Iterable[PublishedTable], below: Iterable[TableRequest]
) -> tuple[PublishedTable, ...]:
    """Return the tables that reach below the cut. The parts hold their rows."""
    names = {table.name for table in below}
    return tuple(table for table in tables if table.name in names)


def uncut(
    tables: Iterable[PublishedTable], below: Iterable[TableRequest]
) -> tuple[PublishedTable, ...]:
    """Return the tables that do not reach below the cut. The files of the release itself hold
    them.
    """
    names = {table.name for table in below}
    return tuple(table for table in tables if table.name not in names)


def placed_tables(
    tables: Iterable[PublishedTable], below: Iterable[TableRequest], partition: Partition
) -> tuple[PublishedTable, ...]:
    """Return tables that were fitted in one piece, those that reach below the cut as tables that
    are read from the folders of the parts.
    """
    names = {table.name for table in below}
    placed: list[PublishedTable] = []
    for table in tables:
        if table.name in names:
            # How a table was fitted is known of the whole, and a part states its own distance.
            fitted = table.fitted
            table = TableOfParts(table.name, table.schema, partition, table.counted, fitted)
        placed.append(table)
    return tuple(placed)
