"""The semi-adjacent parameter a(t): how many records must change together, computed or
bounded.

Margins that are disjoint apart from a common part have a closed form, small dataspaces are listed
(`listed_tables`). Otherwise a(t) is bounded by the largest degree of a Graver element: a table
of integers with zero margins that is not a sum of two others without cancellation.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import AdjacencyUnknown
from semidp.promise.documents import Encodable
from semidp.promise.schema.margins import LARGEST_MASK, Totals, maximal
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.adjacency import Exchange
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin, require_counts
from semidp.promise.spaces.listed_tables import (
    WorstCase,
    WorstSlice,
    can_change_alone,
    listed_moves,
)
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.structure import Slices, Structure, even_space, worst_cover

MOST_CELLS = 40
_MOST_WORK = 200_000_000  # comparisons: a second or two
_EACH = 2_000  # what an element costs besides its comparisons

Matrix = NDArray[np.int64]


def graver_basis(matrix: Matrix) -> Matrix | None:
    """Return the Graver basis of ``{z integer : matrix z = 0}``, one row per element, or None
    if it takes too long.

    Project and lift. Some cells determine the others in whole numbers; on them alone the basis is
    ±e_i. Cell by cell is added: every z is a sum of lifted elements that is free of cancellation on
    the cells so far. Two of its terms that cancel on the new cell are replaced by a sum of known
    elements for theirs, free of cancellation everywhere, until no two terms cancel. So exactly the
    sums of pairs that agree in sign on the old cells and cancel on the new one are needed; taken in
    the order of their size on the old cells, each is either a sum of known elements or a new one.

    None also if no such cells are found.

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

    By elimination; None if a table would need fractions, so these cells do not determine
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
    """Add one cell to a Graver basis on the `known` first ones; the work that is left, None if
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
        # Smallest sums first: one that is not a sum of known elements is then a new element.
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
    """Return the largest degree g of a Graver element of the margins, if known: ``a(t) <=
    max(2, 1 + g)``.

    If somebody already is y, two records swap. Otherwise T' - T for a table T' of D_t with a y is a
    sign-compatible sum of Graver elements; one of them, e, brings a y, and T + e is in D_t: x
    becomes y, one record that e takes away becomes x, the others follow. Structural zeros only
    leave Graver elements out, and features that nobody publishes add some of degree 1.

    At most one block: degree 1. Two disjoint blocks of r and c levels: cycles of a bipartite graph,
    min(r, c). Three features by pairs, one of two levels: the Lawrence lifting of the J x K table,
    2 min(J, K). Small structures: the Graver basis itself, on the cells that can occur
    (`semidp.promise.spaces.semi_adjacency`).

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
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
    """Cells that can occur at the join of all published views, flat; None if that table is too
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


@frozen(slots=False)
class SemiAdjacency(Encodable):
    """a(t), in both readings.

    Attributes
    ----------
    worst_case
        The most records, over all datasets, records and values, that must move; None if only a
        bound is known.
    definition
        The paper's Definition read literally, which takes the most favorable dataset; None if
        it is not known.
    bound
        What is used: `worst_case` if known, else a proven upper bound of it.
    method
        How the value was found.
    worst
        Where a worst case is that attains `worst_case`; `publish.witness` writes it out.

    Examples
    --------
    >>> SemiAdjacency(
    ...     worst_case=3, definition=2, bound=3, method="closed form for disjoint margins"
    ... ).bound
    3
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"worst": None}

    worst_case: int | None
    definition: int | None
    bound: int
    method: str
    worst: WorstCase | None = field(default=None, repr=False, eq=False)


def semi_adjacency(dataspace: Datasets, protection: Protection | None = None) -> SemiAdjacency:
    """Return the semi-adjacent parameter a(t) of a dataspace.

    Worst case: the maximum over X in D_t, records x of X and values y possible for it, of
    ``min {d(X, Y) : Y in D_t, that record is y in Y}``. Definition (Cho and Awan, Section 3.2,
    literally): the maximum over x and y of the minimum over both X and Y; docs/errata.md says why
    the two differ.

    Margins that are disjoint, or disjoint apart from one common part, are exact in closed form: one
    record plus the worst smallest cover of y's published values. A small space is listed. Other
    decomposable margins have the bound m + 1 for m margins; `graver_degree` bounds some with
    structural zeros or without a junction tree. Otherwise the caller must give a.

    A person with up to m records needs at most m times the bound that holds for any totals: change
    one record of the person, take it out of the data and out of the totals, and go on with the
    next. The totals are others at every step, so each step needs the bound for any totals.
    Whether m times a(t) of these totals suffices is not proved where a(t) is below that bound.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 3], [4, 9]])
    >>> a = semi_adjacency(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    >>> a.worst_case, a.definition, a.bound, a.method
    (3, 2, 3, 'closed form for disjoint margins')
    >>> semi_adjacency(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")]), Protection("patient", 2)
    ... ).bound
    6
    """
    public = require_counts(dataspace)
    structure = Structure.from_dataspace(public)
    if structure.n == 0:
        return SemiAdjacency(0, 0, 0, "no records")
    if protection is not None and protection.times > 1:
        return _several(structure, protection)
    if not structure.zeros_matter and structure.common is not None:
        return _closed_form(structure)
    listed = list_semi_adjacency(public)
    if listed is not None:
        return listed
    bound, method = _bound(structure)
    if bound is not None:
        return SemiAdjacency(None, None, bound, method)
    reason = (
        "structural zeros tie its features"
        if structure.zeros_matter
        else "they are not decomposable"
    )
    raise AdjacencyUnknown(
        f"a(t) for {dataspace.summary()} has no closed form ({reason}) and its tables are too many"
        " to list: give the number a of records that must be able to move together",
        needs="adjacency",
    )


def _several(structure: Structure, protection: Protection) -> SemiAdjacency:
    """a for a person with several records: the bound for one record that holds for all totals,
    times the number of records.
    """
    times = protection.times
    if not structure.essential and not can_change_alone(structure):
        return SemiAdjacency(0, 0, 0, "no published margin leaves a choice")
    bound, method = _bound(structure)
    if bound is None:
        raise AdjacencyUnknown(
            f"how many records change with {protection.who} is not known for these totals: give the"
            " number a of records that must be able to move together",
            needs="adjacency",
        )
    together = min(times * bound, structure.n)
    return SemiAdjacency(None, None, together, f"{times} times the {method}")


def semi_adjacency_bound(
    schema: Schema, margins: Iterable[Margin], protection: Protection | None = None
) -> SemiAdjacency:
    """Return the bound ``a(t) <= m + 1`` for m decomposable margins, over all published values t.

    m counts the margins with a choice of two cells or more, nested ones dropped. Levels that do not
    occur under some t only make margins smaller, which leaves them decomposable and no more of
    them, so the bound by the junction tree holds for every t. Margins that are not decomposable,
    and structural zeros that forbid more than the margins do, have the bound of their Graver
    elements where these are known: a t leaves some out and adds none.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fmx"), Feature("region", "nswe"), Feature("age", "0123")])
    >>> semi_adjacency_bound(schema, [Margin("sex"), Margin("region")]).bound
    3
    >>> semi_adjacency_bound(
    ...     schema, [Margin("sex", "region"), Margin("region", "age"), Margin("age", "sex")]
    ... )
    Traceback (most recent call last):
    semidp.errors.AdjacencyUnknown: no number of records is known that suffices for all totals of
    ...
    """
    listed, grid, possible = tuple(margins), schema.grid, schema.possible
    views = maximal(schema.view(margin.names) for margin in listed)
    occurs = []
    for view in views:
        if possible is None:
            counts = np.ones(grid.compute_margin_shape(view), dtype=np.int64)
        else:
            counts = grid.sum(possible, view)
        occurs.append(Totals(view, counts))
    everything = Structure(schema, 1, tuple(occurs))
    bound, _ = _bound(everything)
    if bound is None:
        names = ", ".join(map(str, listed))
        raise AdjacencyUnknown(
            "no number of records is known that suffices for all totals of"
            f" {names}: give the totals themselves, or the number a of"
            " records that must be able to move together",
            needs="adjacency",
        )
    times = 1 if protection is None else protection.times
    return SemiAdjacency(None, None, times * bound, "an upper bound")


def _bound(structure: Structure) -> tuple[int | None, str]:
    """Return a proven upper bound of a(t), None if there is none, and how it was found."""
    if not structure.zeros_matter and structure.decomposable:
        return len(structure.essential) + 1, "bound by the junction tree"
    degree = graver_degree(structure)
    return None if degree is None else max(2, 1 + degree), "bound by Graver elements"


def exchange_bound(
    schema: Schema, margins: Iterable[Margin], protection: Protection | None = None
) -> Exchange:
    """Return exchange adjacency with the most records that one exchange changes, over all published
    values t.

    q + 1 for q margins with a choice of two cells or more, nested ones dropped: levels that do not
    occur under some t leave fewer such margins. `Exchange.from_dataspace` refuses margins that
    share a feature, and structural zeros that tie one to anything else: cells that are a product
    are one under every t.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fmx"), Feature("region", "nsw"), Feature("ill", "yn")])
    >>> exchange_bound(schema, [Margin("sex"), Margin("region")])
    Exchange(a=3)
    """
    return Exchange.from_dataspace(even_space(schema, margins, 1), protection)


def _closed_form(structure: Structure) -> SemiAdjacency:
    """Margins that are disjoint apart from a common part Z: the worst slice of Z decides."""
    if not structure.essential:
        a = int(can_change_alone(structure))
        method = "no published margin leaves a choice"
        return SemiAdjacency(a, a, a, method, structure if a else None)
    assert structure.common is not None, "margins that are disjoint apart from it"
    slices = Slices(structure.grid, structure.common, structure.essential)
    least, most, best = 1, 1, None
    for z, rarest, other_records, away in slices.candidates():
        if 1 + max(len(rarest), int(away)) <= least:
            break  # the slices that follow leave no more choices
        cover = worst_cover(rarest, other_records)
        size = max(cover.least, int(away))
        most = max(most, 1 + max(cover.most, int(away)))
        if 1 + size > least:
            least, best = 1 + size, (z, cover, away)
    kind = (
        "disjoint margins"
        if not any(structure.common)
        else "margins disjoint apart from a common part"
    )
    exact = least == most
    method = f"closed form for {kind}" if exact else f"bound for {kind}"
    worst = None
    if best is not None and exact:
        worst = WorstSlice(structure, slices, *best)
    return SemiAdjacency(least if exact else None, 2, most, method, worst)


def list_semi_adjacency(dataspace: Dataspace) -> SemiAdjacency | None:
    """Return both readings by listing D_t, or None if it is too large.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 1], [0, 1]])
    >>> listed = list_semi_adjacency(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    >>> listed.worst_case, listed.definition
    (3, 2)
    """
    moves = listed_moves(dataspace)
    if moves is None:
        return None
    worst = moves.worst_case
    method = "listing of all tables"
    return SemiAdjacency(worst, moves.definition, worst, method, moves.worst)
