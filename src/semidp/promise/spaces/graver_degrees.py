"""Largest degrees of Graver elements, which bound a(t) where no closed form does.

The Graver basis itself is computed in `graver`; `adjacency` takes the bound.
"""

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.margins import LARGEST_MASK
from semidp.promise.spaces.graver import MOST_CELLS, graver_basis
from semidp.promise.spaces.structure import Structure

# where a closed form is known, a Graver basis is computed to improve it on so many cells
_FEW_CELLS = 20


def graver_degree(structure: Structure) -> int | None:
    """Return the largest degree of a Graver element of the margins, where it is known: then
    ``a(t) <= max(2, 1 + g)``.

    If somebody already is y, two records swap. Otherwise T' - T for a table T' of D_t with a y is a
    sign-compatible sum of Graver elements; one of them, e, brings a y, and T + e is in D_t: x
    becomes y, one record that e takes away becomes x, the others follow. Structural zeros only
    leave Graver elements out, and features that nobody publishes add some of degree 1.

    At most one block: degree 1. Two disjoint blocks of r and c levels: cycles of a bipartite graph,
    min(r, c). Three features by pairs, one of two levels: the Lawrence lifting of the J x K table,
    2 min(J, K). Small structures: the Graver basis itself, on the cells that can occur
    (`semidp.promise.spaces.graver`).

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.counts import Table
    >>> from semidp.promise.schema.schema import Schema
    >>> table = Table(
    ...     Schema([Feature("a", "01"), Feature("b", "012"), Feature("c", "0123")]),
    ...     np.ones((2, 3, 4)),
    ... )
    >>> pairs = Dataspace.from_table(table, [Margin("a", "b"), Margin("b", "c"), Margin("a", "c")])
    >>> graver_degree(Structure.from_dataspace(pairs))
    6
    """
    degree = _known_degree(structure)
    if degree == 1:
        return degree
    cells = _published_cells(structure)
    most_cells = MOST_CELLS if degree is None else _FEW_CELLS
    if cells is None or len(cells) > most_cells:
        return degree
    grid, published = structure.grid, structure.published_view
    rows = []
    for margin in structure.essential:
        labels = grid.labels(margin.view, published)[cells]
        rows.append(labels == np.arange(margin.counts.size)[:, None])
    basis = graver_basis(np.concatenate(rows).astype(np.int64))
    if basis is None:
        return degree
    # the degree of an element is the number of records that it brings
    degrees = np.maximum(basis, 0).sum(axis=1)
    return max(1, int(degrees.max(initial=1)))


def _known_degree(structure: Structure) -> int | None:
    views = [margin.view for margin in structure.essential]
    if len(views) <= 1:
        return 1
    are_disjoint = len(views) == 2 and not any(map(min, *views))
    if are_disjoint:
        return min(margin.levels for margin in structure.essential)
    axes, depths = [], []
    for axis, of_views in enumerate(zip(*views, strict=True)):
        if any(of_views):
            axes.append(axis)
            depths.append({*of_views} - {0})
    # Each of three margins names two of three features.
    named_features = [sum(map(bool, view)) for view in views]
    by_pairs = len(axes) == 3 and named_features == [2, 2, 2]
    if not by_pairs or any(len(named) != 1 for named in depths):
        return None
    sizes = []
    for axis, named in zip(axes, depths, strict=True):
        nodes = structure.inhabited_nodes(axis, named.pop())
        sizes.append(int(nodes.sum()))
    sizes.sort()
    return 2 * sizes[1] if sizes[0] <= 2 else None


def _published_cells(structure: Structure) -> NDArray[np.intp] | None:
    """Cells that can occur at the join of all published views, flat; None where that table is too
    large.
    """
    grid, view = structure.grid, structure.published_view
    size = grid.count_margin_cells(view)
    if structure.zeros_matter:
        size = max(size, structure.schema.size)
    if size > LARGEST_MASK:
        return None
    possible = None
    declared = structure.schema.possible
    if declared is not None and structure.zeros_matter:
        possible = grid.sum(declared, view) > 0
    inhabited = grid.find_inhabited_cells(possible, structure.margins, view)
    if inhabited is None:
        return np.arange(grid.count_margin_cells(view))
    return np.flatnonzero(inhabited)
