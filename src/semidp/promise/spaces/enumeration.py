"""The tables and datasets of a small dataspace, one by one: definitions that execute.

Only for spaces small enough to list; closed forms are in `adjacency` and `sensitivity` and are
tested against this.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.counts import Table
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace

MOST_TABLES = 20_000
MOST_CELLS = 4_096
# margin cells times partial tables held at once; beyond it a space is given up
_FRONTIER = 8_000_000


def cells(dataspace: Dataspace) -> NDArray[np.intp]:
    """Return the flat positions of the cells that can be positive: possible, and no published
    margin empty there.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 0, 1], [2, 0, 1]]
    ... )
    >>> cells(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    array([0, 2, 3, 5])
    """
    if not isinstance(dataspace, Dataspace):
        raise InputError("a dataspace that is only described cannot be enumerated")
    schema = dataspace.schema
    mask = schema.grid.find_inhabited_cells(schema.possible, dataspace.published_totals)
    return np.arange(schema.size) if mask is None else np.flatnonzero(mask)


def fiber(dataspace: Dataspace) -> NDArray[np.int64] | None:
    """Return every table of D_t, a row of counts of `cells` for each; None where there are more
    than `MOST_TABLES`.

    Cells are filled in order; a partial table is dropped once a margin cannot be met any more.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 1], [0, 1]])
    >>> fiber(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    array([[0, 2, 1, 0],
           [1, 1, 0, 1]])
    """
    if not dataspace.schema.grid.holds(MOST_CELLS):
        return None
    where = cells(dataspace)
    # Counting first is cheap, and spares a search that would be given up anyway.
    if _certainly_more(dataspace, where):
        return None
    # What is left of every margin shrinks as cells are filled; its last cell must take all of it.
    rows, left = _constraints(dataspace, where)
    # For each cell: from which partial table each longer one grew, and by how much.
    steps: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
    residual = left[None, :]
    last = {part: position for position, row in enumerate(rows) for part in row}
    for position, row in enumerate(rows):
        open_ends = residual[:, row]
        low, top = np.zeros(len(open_ends), dtype=np.int64), open_ends.min(axis=1)
        # the last cell of a margin takes what is left of it; otherwise every value up to the
        # tightest margin
        forced = np.array([last[part] == position for part in row])
        if forced.any():
            low = open_ends[:, forced].max(axis=1)
        good = low <= top
        low = low[good]
        top = low if forced.any() else top[good]
        repeat = top - low + 1
        total = int(repeat.sum())
        if total * max(residual.shape[1], 1) > _FRONTIER:
            return None
        source = np.repeat(np.flatnonzero(good), repeat)
        # low, low + 1, …, top of each partial table, one after the other
        begins = np.cumsum(repeat) - repeat
        value = np.repeat(low, repeat) + np.arange(total) - np.repeat(begins, repeat)
        steps.append((source, value))
        residual = residual[source]
        residual[:, row] -= value[:, None]
        if position + 1 == len(rows) and len(residual) > MOST_TABLES:
            return None
    complete = np.flatnonzero((residual == 0).all(axis=1))
    listed = np.zeros((len(complete), len(rows)), dtype=np.int64)
    # Back from the complete tables: the value of the last cell, then that of the table it grew
    # from.
    for position in range(len(rows) - 1, -1, -1):
        source, value = steps[position]
        listed[:, position] = value[complete]
        complete = source[complete]
    return listed


def _certainly_more(dataspace: Dataspace, where: NDArray[np.intp]) -> bool:
    """Whether there are more tables than `MOST_TABLES`, where they can be counted: one margin, or n
    alone.

    Then they are ``Π C(t + k - 1, k - 1)`` over the cells of the margin, with k cells of the table
    in each.
    """
    if len(dataspace.published_totals) > 1 or not len(where):
        return False
    totals, sizes = [dataspace.n or 0], [len(where)]
    for margin in dataspace.published_totals:
        labels = dataspace.schema.grid.labels(margin.view)[where]
        numbers = np.bincount(labels, minlength=margin.counts.size)
        totals, sizes = margin.counts.ravel().tolist(), numbers.tolist()
    count = 1
    for total, size in zip(totals, sizes, strict=True):
        if size:
            count *= math.comb(total + size - 1, size - 1)
        if count > MOST_TABLES:
            return True
    return False


def enumerate_tables(dataspace: Dataspace) -> Iterator[Table]:
    """Iterate over the tables of a small dataspace that has a schema.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns")])
    >>> space = Dataspace.from_table(
    ...     Table(schema, [[1, 1], [0, 1]]), [Margin("sex"), Margin("region")]
    ... )
    >>> [table.counts.tolist() for table in enumerate_tables(space)]
    [[[0, 2], [1, 0]], [[1, 1], [0, 1]]]
    """
    listed = fiber(dataspace)
    if listed is None:
        raise InputError(f"this dataspace has too many tables to list: at most {MOST_TABLES:,} are")
    where = cells(dataspace)
    for row in listed:
        full = np.zeros(dataspace.schema.size, dtype=np.int64)
        full[where] = row
        yield Table(dataspace.schema, full.reshape(dataspace.schema.shape))


def datasets(dataspace: Dataspace) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Iterate over the datasets of a small dataspace: labelled records, each the names of its
    levels.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> space = Dataspace.from_table(Table(Schema([Feature("sex", "fm")]), [1, 1]), [Margin("sex")])
    >>> list(datasets(space))
    [(('f',), ('m',)), (('m',), ('f',))]
    """
    for table in enumerate_tables(dataspace):
        records: list[tuple[str, ...]] = []
        for cell in np.argwhere(table.counts).tolist():
            count = int(table.counts[tuple(cell)])
            records += [label_record(dataspace.schema, cell)] * count
        yield from sorted(set(permutations(records)))


def label_record(schema: Schema, record: Iterable[int]) -> tuple[str, ...]:
    """Return the labels of a record at every depth of its features, from the codes of its
    leaves.
    """
    labels: list[str] = []
    for feature, leaf in zip(schema.features, record, strict=True):
        labels += feature.path(leaf)
    return tuple(labels)


def _constraints(
    dataspace: Dataspace, where: NDArray[np.intp]
) -> tuple[list[list[int]], NDArray[np.int64]]:
    """For each cell the rows of the published margins that it adds to (the total among them), and
    their values.
    """
    schema = dataspace.schema
    rows: list[list[int]] = [[0] for _ in where]
    values = [np.array([dataspace.n], dtype=np.int64)]
    start = 1
    for total in dataspace.published_totals:
        labels = schema.grid.labels(total.view)[where].tolist()
        for row, cell in zip(rows, labels, strict=True):
            row.append(start + cell)
        values.append(total.counts.ravel())
        start += total.counts.size
    return rows, np.concatenate(values)
