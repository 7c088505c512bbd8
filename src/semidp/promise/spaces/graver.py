"""The Graver basis of a small margin map: its largest degree bounds a(t) where no closed form does.

A Graver element is a table of whole numbers with zero margins that is no sum of two others without
cancellation. `adjacency` takes the bound.
"""

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.margins import LARGEST_MASK
from semidp.promise.spaces.structure import Structure

MOST_CELLS = 40
_MOST_WORK = 200_000_000  # comparisons: a second or two
_EACH = 2_000  # what an element costs beside its comparisons

Matrix = NDArray[np.int64]


def graver_basis(matrix: Matrix) -> Matrix | None:
    """Return the Graver basis of ``{z whole : matrix z = 0}``, a row for each element, or None
    where it takes long.

    Project and lift. Some cells determine the others in whole numbers; on them alone the basis is
    ±e_i. Cell by cell is added: every z is a sum of lifted elements that is free of cancellation on
    the cells so far. Two of its terms that cancel on the new cell are replaced by a sum of known
    elements for theirs, free of cancellation everywhere, until no two terms cancel. So exactly the
    sums of pairs that agree in sign on the old cells and cancel on the new one are needed; taken in
    the order of their size on the old cells, each is either a sum of known elements or a new one.

    None also where no such cells are found.

    Examples
    --------
    Two-way tables have cycles only, 2 x 2 the swap and its negative:

    >>> rows_and_columns = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
    >>> graver_basis(rows_and_columns).tolist()
    [[-1, 1, 1, -1], [1, -1, -1, 1]]
    """
    kernel = _whole_kernel(matrix)
    if kernel is None or matrix.shape[1] > MOST_CELLS:
        return None
    free, lattice = kernel
    bound = [cell for cell in range(matrix.shape[1]) if cell not in free]
    order = [*free, *bound]
    lifted = lattice[:, order]
    basis = np.concatenate([lifted, -lifted])
    budget = _MOST_WORK
    for cell in range(len(free), matrix.shape[1]):
        completed, budget = _complete(basis, cell, budget)
        if completed is None:
            return None
        basis = completed
    back = np.empty_like(basis)
    back[:, order] = basis
    sorted_rows = np.lexsort(back.T[::-1])
    return np.asarray(back[sorted_rows])


def _whole_kernel(matrix: Matrix) -> tuple[list[int], Matrix] | None:
    """Free cells, and for each of them the table that is one there and zero on the other free
    cells.

    By elimination; None where a table would need fractions, so that these cells do not determine
    whole tables.
    """
    from flint import fmpq_mat, fmpz_mat

    reduced, rank = fmpq_mat(fmpz_mat(matrix.tolist())).rref()
    left = reduced.tolist()[:rank]
    pivots = []
    for row in left:
        pivots.append(next(cell for cell, entry in enumerate(row) if entry))
    free = [cell for cell in range(matrix.shape[1]) if cell not in pivots]
    if any(row[cell].q != 1 for row in left for cell in free):
        return None
    lattice = np.zeros((len(free), matrix.shape[1]), dtype=np.int64)
    for number, cell in enumerate(free):
        lattice[number, cell] = 1
        values = [-int(row[cell].p) for row in left]
        lattice[number, pivots] = values
    return free, lattice


class _Elements:
    """Elements of the lattice on the first cells, the last of which is new, with their signs as
    bits.
    """

    def __init__(self, rows: Matrix, known: int) -> None:
        self.rows, self.known = rows, known
        first = rows[:, : known + 1]
        self.above = _bits(first > 0)
        self.below = _bits(first < 0)

    def __len__(self) -> int:
        return len(self.rows)

    def cancelling(self, other: "_Elements") -> Matrix:
        """The sums with elements of `other` that cancel on the new cell and on no old one."""
        # The bit of the new cell: two elements must clash there, and nowhere else.
        last = np.uint64(1) << np.uint64(self.known)
        sums = []
        for row, above, below in zip(self.rows, self.above, self.below, strict=True):
            if (above | below) & last:
                clash = (other.below & above) | (other.above & below)
                sums.append(other.rows[clash == last] + row)
        return np.concatenate(sums) if sums else self.rows[:0]

    def irreducible(self, by: "_Elements") -> NDArray[np.bool_]:
        """Whether no element of `by` lies within an element, sign by sign."""
        kept = np.ones(len(self), dtype=bool)
        width = self.known + 1
        sizes = np.abs(by.rows[:, :width])
        for place, row in enumerate(np.abs(self.rows[:, :width])):
            # Within, sign by sign: the signs first, as bits, then the sizes of the few that are
            # left.
            above, below = self.above[place], self.below[place]
            outside = (by.above & ~above) | (by.below & ~below)
            inside = np.flatnonzero(outside == 0)
            is_within = (sizes[inside] <= row).all(axis=1)
            kept[place] = not is_within.any()
        return kept


def _bits(truths: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Each row of truth values as the bits of one whole number."""
    weights = np.uint64(1) << np.arange(truths.shape[1], dtype=np.uint64)
    bits = np.where(truths, weights, np.uint64(0))
    return np.asarray(bits.sum(axis=1, dtype=np.uint64))


def _complete(basis: Matrix, known: int, work: int) -> tuple[Matrix | None, int]:
    """Add one cell to a Graver basis on the `known` first ones; the work that is left, None where
    it does not suffice.

    Elements are closed under negation, and whole rows are kept: the first cells determine them.
    """
    elements = _Elements(basis, known)
    work -= len(elements) * (len(elements) + _EACH)
    waiting: dict[int, list[Matrix]] = {}
    # Only sums with an element that is new can be new themselves.
    new = elements
    while True:
        if work < 0:
            return None, work
        sums = new.cancelling(elements)
        work -= sums.size
        sizes = np.abs(sums[:, :known]).sum(axis=1)
        for size in np.unique(sizes).tolist():
            waiting.setdefault(size, []).append(sums[sizes == size])
        # The smallest sums first: a sum that is no sum of known elements then is a new one.
        while True:
            if not waiting:
                return elements.rows, work
            smallest = np.concatenate(waiting.pop(min(waiting)))
            candidates = _Elements(np.unique(smallest, axis=0), known)
            work -= len(candidates) * (len(elements) + _EACH)
            if work < 0:
                return None, work
            fresh = candidates.rows[candidates.irreducible(elements)]
            if len(fresh):
                break
        new = _Elements(fresh, known)
        elements = _Elements(np.concatenate([elements.rows, fresh]), known)
        work -= len(new) * (len(elements) + _EACH)


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
