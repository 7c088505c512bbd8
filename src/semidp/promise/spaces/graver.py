"""The Graver basis of a small margin map: its largest degree bounds a(t) where no closed form does.

A Graver element is a table of whole numbers with zero margins that is no sum of two others without
cancellation. What follows for a(t) is in `graver_degrees`.
"""

import numpy as np
from numpy.typing import NDArray

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
