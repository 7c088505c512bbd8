"""Small dataspaces listed table by table, and the worst case of a(t) in them.

Dataspaces that are small enough are listed, with both readings of
a(t).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import View
from semidp.promise.spaces.dataspace import Dataspace, require_counts
from semidp.promise.spaces.structure import Cover, Slices, Structure

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
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 0, 1], [2, 0, 1]]
    ... )
    >>> cells(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    array([0, 2, 3, 5])
    """
    schema = require_counts(dataspace).schema
    mask = schema.grid.find_inhabited_cells(schema.possible, dataspace.published_totals)
    return np.arange(schema.size) if mask is None else np.flatnonzero(mask)


def fiber(dataspace: Dataspace) -> NDArray[np.int64] | None:
    """Return every table of D_t, one row of counts of `cells` per table; None if there are more
    than `MOST_TABLES`.

    Cells are filled in order; a partial table is dropped once a margin cannot be met any more.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 1], [0, 1]])
    >>> fiber(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    array([[0, 2, 1, 0],
           [1, 1, 0, 1]])
    """
    if not dataspace.schema.grid.holds(MOST_CELLS):
        return None
    where = cells(dataspace)
    # Counting first is cheap, and avoids a search that would be given up anyway.
    if _certainly_more(dataspace, where):
        return None
    rows, left = _constraints(dataspace, where)
    return _list_tables(tuple(map(tuple, rows)), tuple(left.tolist()))


@lru_cache(maxsize=2)  # one release asks for the same tables repeatedly
def _list_tables(
    margins: tuple[tuple[int, ...], ...], totals: tuple[int, ...]
) -> NDArray[np.int64] | None:
    """Return every table whose cells, each in some of the margins, add up to their totals."""
    # What is left of every margin shrinks as cells are filled; its last cell must take all of it.
    rows, residual = [[*each] for each in margins], np.array([totals], dtype=np.int64)
    # For each cell: from which partial table each longer one grew, and by how much.
    steps: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
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
    listed.setflags(write=False)
    return listed


def _certainly_more(dataspace: Dataspace, where: NDArray[np.intp]) -> bool:
    """Whether there are more tables than `MOST_TABLES`, if they can be counted: one margin, or n
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


Record = tuple[int, ...]
"""The code of a record's level for each feature of the schema."""


def a_record(structure: Structure, chosen: Iterable[tuple[View, int]] = ()) -> Record:
    """Return a record that can occur, with the chosen cells (flat positions) of some margins.

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[0, 0, 1], [0, 2, 1]]
    ... )
    >>> structure = Structure.from_dataspace(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    ... )
    >>> a_record(structure), a_record(structure, [((1, 0), 1)])
    ((0, 1), (1, 1))
    """
    record = []
    for axis, leaves in enumerate(structure.grid.box(chosen)):
        inhabited = structure.inhabited_nodes(axis, structure.grid.full[axis])
        record.append(leaves.start + int(inhabited[leaves].argmax()))
    return next(completions(structure, record))


def completions(structure: Structure, record: Sequence[int]) -> Iterator[Record]:
    """Iterate over the records that have the published levels of a given one, itself among them.

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[0, 0, 1], [0, 2, 1]]
    ... )
    >>> list(
    ...     completions(
    ...         Structure.from_dataspace(Dataspace.from_table(table, [Margin("sex")])), (1, 0)
    ...     )
    ... )
    [(1, 0), (1, 1), (1, 2)]
    """
    ranges = []
    for chain, depth, leaf in zip(
        structure.grid.chains, structure.published_view, record, strict=True
    ):
        node = int(chain.find_leaf_ancestors(depth)[leaf])
        ranges.append(chain.slice_descendants(depth, node, chain.depth))
    possible = structure.schema.possible
    if possible is None:
        sizes = [range(part.stop - part.start) for part in ranges]
        offsets: Iterable[Sequence[int]] = product(*sizes)
    else:
        offsets = np.argwhere(possible[tuple(ranges)])
    for offset in offsets:
        pairs = zip(ranges, offset, strict=True)
        yield tuple(part.start + int(k) for part, k in pairs)


def can_change_alone(structure: Structure) -> bool:
    """Whether a record can change on its own if every published feature has one level."""
    start = a_record(structure)
    return any(record != start for record in completions(structure, start))


_MOST_WORK = 300_000_000  # pairs of tables times cells: a few seconds

NEVER = 2**40  # more than any number of records


@frozen
class MovedTogether:
    """How many records must change together, found by listing all tables of a dataspace.

    Attributes
    ----------
    worst_case, definition
        Both readings of a(t); see `SemiAdjacency`.
    worst
        Where the worst case is; None if no record can move.
    """

    worst_case: int
    definition: int
    worst: "WorstListed | None"


@frozen(eq=False)
class WorstSlice:
    """Where most records must move with one: a level z of what margins have in common, a smallest
    cover of the blocks there, and whether the record comes from elsewhere.
    """

    structure: Structure
    slices: Slices
    z: int
    cover: Cover
    away: bool


@frozen(eq=False)
class WorstListed:
    """Where most records must move with one: a table of a listed dataspace, and the cells of the
    record before and after.
    """

    dataspace: Dataspace
    listed: NDArray[np.int64]
    table: int
    x: int
    y: int


WorstCase = Structure | WorstSlice | WorstListed
"""Where a worst case is found; a structure by itself, if one record changes alone."""


def listed_moves(dataspace: Dataspace) -> MovedTogether | None:
    """Return both readings of a(t) by listing D_t, or None if it is too large."""
    listed = fiber(dataspace)
    if listed is None or len(listed) ** 2 * listed.shape[1] > _MOST_WORK:
        return None
    occurs = np.asarray((listed > 0).any(axis=0))
    kindest = np.full((listed.shape[1],) * 2, np.iinfo(np.int64).max)
    worst, where = 0, (0, 0, 0)
    for i, table in enumerate(listed):
        cost = _cheapest(table, listed, occurs)
        present = table > 0
        kindest[present] = np.minimum(kindest[present], cost[present])
        here = np.where(present[:, None], cost, 0)
        if here.max(initial=0) > worst:
            worst = int(here.max())
            x, y = np.unravel_index(here.argmax(), here.shape)
            where = (i, int(x), int(y))
    definition = int(kindest[occurs].max(initial=0))
    place = WorstListed(dataspace, listed, *where) if worst else None
    return MovedTogether(worst, definition, place)


def _cheapest(
    table: NDArray[np.int64], listed: NDArray[np.int64], occurs: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """For each x and y, the fewest records to change so that a record x of this table becomes y.

    The cheapest datasets of tables T and T' with x in the one and y in the other differ in
    ``1 + |(T - e_x) - (T' - e_y)|_1 / 2`` records: the distance of the tables, and one more or
    less. Tables are taken nearest first, until the next ones cannot be cheaper.
    """
    change = table - listed
    distance = np.abs(change).sum(axis=1) // 2
    cost = np.full((len(occurs),) * 2, np.iinfo(np.int64).max)
    np.fill_diagonal(cost, 0)
    cost[:, ~occurs] = 0
    for far in np.unique(distance):
        if cost.max() <= far:
            break
        near = distance == far
        leave = np.where(change[near] >= 1, -1, 1)
        enter = np.where(change[near] >= 0, 1, -1)
        both = leave[:, :, None] + enter[:, None, :]
        twice = np.where((listed[near] > 0)[:, None, :], both, NEVER).min(axis=0)
        cost = np.minimum(cost, 1 + far + twice // 2)
    return cost
