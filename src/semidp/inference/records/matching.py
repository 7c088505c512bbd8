"""Records matched to whole-number tables that agree: one table after the other along what they
share.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.inference.records.record_cells import Codes, smallest_codes
from semidp.inference.records.record_moves import stratum_keys
from semidp.promise.schema.margins import Grid, Totals, View, join, list_axes, meet


def match_records(
    grid: Grid,
    records: int,
    tables: Mapping[View, Totals],
    order: Sequence[View],
    draw: np.random.Generator,
) -> Codes:
    """Return records that have every table to the person.

    Tables that share a separator S have the same counts of it, so that the records of one, in
    random order within each value of S, take the cells of the other one by one. By the running
    intersection property the next table meets all earlier ones inside one of them.

    Parameters
    ----------
    grid, records
        The features, and how many records there are.
    tables
        Tables of whole numbers by their views; those that share something have the same counts of
        it.
    order
        Their views in an order with the running intersection property.
    draw
        How records are matched within a separator.

    Returns
    -------
    Codes
        A row a record, a column a feature: the first leaf of the record's node at the depth that is
        known.

    Examples
    --------
    >>> ones = {
    ...     (1, 0): Totals((1, 0), np.array([2, 1])),
    ...     (0, 1): Totals((0, 1), np.array([1, 2])),
    ... }
    >>> match_records(Grid.flat((2, 2)), 3, ones, list(ones), np.random.default_rng(1)).sum(
    ...     axis=0
    ... ).tolist()
    [1, 2]
    """
    largest = max(chain.leaves for chain in grid.chains) - 1
    codes = np.zeros((records, len(grid.chains)), dtype=smallest_codes(largest))
    held = grid.nothing
    for view in order:
        counts = tables[view].counts.ravel()
        cells = np.repeat(np.arange(counts.size), counts)
        leaves = _first_leaves(grid, view, cells)
        shared = meet(view, held)
        ours = stratum_keys(grid, codes, shared)
        theirs = _keys_of_cells(grid, view, shared)[cells]
        # Records of one separator stand together in both orders, at random in ours.
        into = np.lexsort((draw.random(records), ours))
        out_of = np.argsort(theirs, kind="stable")
        for axis in list_axes(view):
            if view[axis] > held[axis]:
                codes[into, axis] = leaves[axis][out_of]
        held = join(held, view)
    return codes


def sorted_codes(codes: Codes) -> Codes:
    """Return records in the order of their codes: where a line stands says nothing."""
    return codes[np.lexsort(codes.T[::-1])]


def _first_leaves(grid: Grid, view: View, cells: NDArray[np.intp]) -> dict[int, NDArray[np.int64]]:
    """For each feature of a view the first leaf of the node of each cell."""
    axes = list_axes(view)
    nodes = np.unravel_index(cells, grid.compute_margin_shape(view)) if axes else ()
    leaves: dict[int, NDArray[np.int64]] = {}
    for axis, node in zip(axes, nodes, strict=True):
        starts = np.asarray(grid.chains[axis].starts[view[axis] - 1], dtype=np.int64)
        leaves[axis] = starts[node]
    return leaves


def _keys_of_cells(grid: Grid, view: View, shared: View) -> NDArray[np.int64]:
    """For each cell of a view its cell in a coarser one."""
    return np.asarray(grid.labels(shared, view), dtype=np.int64)
