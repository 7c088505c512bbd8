"""How many records move together in a dataspace that is small enough to list: both readings of
a(t), and a witness.

Closed forms and bounds are in `adjacency`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.enumeration import cells, fiber
from semidp.promise.spaces.witness import Witness

_MOST_WORK = 300_000_000  # pairs of tables times cells: a few seconds

_NEVER = 2**40  # more than any number of records


@dataclass(frozen=True)
class MovedTogether:
    """How many records must move together, counted over all tables of a dataspace.

    Attributes
    ----------
    worst_case, definition
        Both readings of a(t); see `SemiAdjacency` in `adjacency`.
    find_witness
        Writes out a worst case; None where no record can move.
    """

    worst_case: int
    definition: int
    find_witness: Callable[[], Witness] | None


def listed_moves(dataspace: Dataspace) -> MovedTogether | None:
    """Return both readings of a(t) by listing D_t, or None where it is too large."""
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
    find_witness = partial(_listed_witness, dataspace, listed, *where) if worst else None
    return MovedTogether(worst, definition, find_witness)


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
        twice = np.where((listed[near] > 0)[:, None, :], both, _NEVER).min(axis=0)
        cost = np.minimum(cost, 1 + far + twice // 2)
    return cost


def _listed_witness(
    dataspace: Dataspace, listed: NDArray[np.int64], i: int, x: int, y: int
) -> Witness:
    """Write out the cheapest way from table i, where a record x becomes y."""
    change = listed[i] - listed
    change[:, x] -= 1
    change[:, y] += 1
    price = np.abs(change).sum(axis=1) + np.where(listed[:, y] > 0, 0, _NEVER)
    moved = change[price.argmin()]
    schema = dataspace.schema
    levels = np.transpose(np.unravel_index(cells(dataspace), schema.shape))
    records = [tuple(map(int, cell)) for cell in levels]
    before = [records[cell] for cell in np.flatnonzero(moved > 0) for _ in range(int(moved[cell]))]
    after = [records[cell] for cell in np.flatnonzero(moved < 0) for _ in range(int(-moved[cell]))]
    return Witness.from_codes(schema, records[x], records[y], list(zip(before, after, strict=True)))
