"""Geometry of margins: which ones contain others, how they overlap, and tables summed down to
them.

A margin is a `View`: for each feature the depth at which it is named, 0 if it is not. Views form
a lattice (meet: what two margins share, join: what they name together); `Grid` sums tables down to
a view and spreads margins back over the cells. Everything that needs margins of a table uses this
module: a(t), norms, projection, fit, grouped statistics. It proves no bounds: those on a(t) are in
`promise.spaces.semi_adjacency`, those on how far a table moves in `promise.sensitivity`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, lru_cache
from operator import gt
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

View = tuple[int, ...]
"""For each feature (axis of the table) the depth at which a margin names it; 0 if it does
not."""

Shape = tuple[int, ...]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

LARGEST_MASK = 2**25
"""The most cells for which possible cells are listed one by one."""

MAX_AXES = 63
"""The most features that one table or margin may name: numpy indexes no more axes (and we sometimes
add one)."""


def meet(*views: View) -> View:
    """Return what all views share: the coarsest depth of each feature.

    >>> meet((2, 0, 1), (1, 1, 1))
    (1, 0, 1)
    """
    if len(views) == 1:
        return views[0]
    return tuple(map(min, *views))


def join(*views: View) -> View:
    """Return what the views name together: the finest depth of each feature.

    >>> join((2, 0, 1), (1, 1, 1))
    (2, 1, 1)
    """
    if len(views) == 1:
        return views[0]
    return tuple(map(max, *views))


def is_within_view(view: View, other: View) -> bool:
    """Whether `other` is at least as fine as `view` everywhere, so it publishes it too.

    >>> is_within_view((1, 0), (2, 0)), is_within_view((1, 1), (2, 0))
    (True, False)
    """
    return not any(map(gt, view, other))


def maximal(views: Iterable[View]) -> list[View]:
    """Return the views that no other one contains, in order and each once; the view of nothing is
    dropped.

    >>> maximal([(1, 0), (1, 1), (0, 0), (1, 1)])
    [(1, 1)]
    """
    every = sorted({view for view in views if any(view)}, reverse=True)
    naming: dict[int, list[View]] = {}
    for view in every:
        for axis in list_axes(view):
            naming.setdefault(axis, []).append(view)
    largest = []
    for view in every:
        # A view that contains this one names all its features: search the feature with the fewest
        # views.
        candidates = min((naming[axis] for axis in list_axes(view)), key=len)
        larger = [other for other in candidates if other != view]
        if not any(is_within_view(view, other) for other in larger):
            largest.append(view)
    return largest


def minimal(views: Collection[View]) -> list[View]:
    """Return the views that contain no other one, in their order; the view of nothing lies in all.

    >>> minimal([(1, 0), (1, 1), (0, 2)])
    [(1, 0), (0, 2)]
    """
    smallest = []
    for view in views:
        smaller = [other for other in views if other != view and is_within_view(other, view)]
        if not smaller:
            smallest.append(view)
    return smallest


def common_part(views: Sequence[View]) -> View | None:
    """Return the common part of all views if no two share more; else None.

    >>> common_part([(1, 1, 0), (0, 1, 1)]), common_part([(1, 0, 0), (0, 0, 1)])
    ((0, 1, 0), (0, 0, 0))
    >>> common_part([(1, 1, 0, 0), (0, 1, 1, 0), (0, 0, 1, 1)]) is None
    True
    """
    if len(views) < 2:
        return tuple(0 for _ in views[0])
    shared = meet(*views)
    for i, one in enumerate(views):
        if any(meet(one, other) != shared for other in views[:i]):
            return None
    return shared


def junction_order(views: Sequence[View]) -> list[View] | None:
    """Order views so that each meets the earlier ones together inside one of them; None if they are
    not decomposable.

    A junction tree is a spanning tree of largest intersections: Prim's algorithm builds one if
    there is any, and its order has the running intersection property. Depths of one feature count
    as variables of their own: depth k names the first k of them.

    >>> junction_order([(1, 1, 0, 0), (0, 0, 1, 1), (0, 1, 1, 0)])
    [(1, 1, 0, 0), (0, 1, 1, 0), (0, 0, 1, 1)]
    >>> junction_order([(1, 1, 0), (0, 1, 1), (1, 0, 1)]) is None
    True
    """
    # for each view how much it shares with an ordered one
    left = dict.fromkeys(range(1, len(views)), -1)
    ordered = list(views[:1])
    while left:
        for number in left:
            shared = sum(map(min, views[number], ordered[-1]))
            left[number] = max(left[number], shared)
        # Prim's algorithm: next comes the view that shares most with one that is already ordered.
        best = max(left, key=lambda number: left[number])
        del left[best]
        # Running intersection: what the next view shares with all earlier ones must lie in one of
        # them.
        met = meet(views[best], join(*ordered))
        if not any(is_within_view(met, other) for other in ordered):
            return None
        ordered.append(views[best])
    return ordered


def inclusion_exclusion(views: Sequence[View]) -> dict[View, int]:
    """Return the coefficients of ``I - Π_M (I - E_M)`` where averages commute, E_M E_M' = E_{M∧M'}.

    >>> inclusion_exclusion([(1, 1, 0), (0, 1, 1)])
    {(1, 1, 0): 1, (0, 1, 1): 1, (0, 1, 0): -1}
    """
    # I - Π (I - E_M), one factor at a time: each new view meets every term so far, with the
    # opposite sign.
    product: dict[View, int] = {}
    for view in views:
        change = {view: 1}
        for earlier, coefficient in product.items():
            shared = meet(earlier, view)
            change[shared] = change.get(shared, 0) - coefficient
        for term, coefficient in change.items():
            product[term] = product.get(term, 0) + coefficient
    return {view: coefficient for view, coefficient in product.items() if coefficient}


@lru_cache(maxsize=2**16)
def list_axes(view: View) -> tuple[int, ...]:
    """Return the features that a view names.

    >>> list_axes((2, 0, 1))
    (0, 2)
    """
    return tuple(axis for axis, depth in enumerate(view) if depth)


def trimmed_view(view: View, table: View) -> View:
    """Return a view in the features of a table alone.

    >>> trimmed_view((1, 0, 0), (1, 0, 2))
    (1, 0)
    """
    return tuple(view[axis] for axis in list_axes(table))


def variables(view: View) -> frozenset[tuple[int, int]]:
    """Return a view as a set: each (feature, depth) that it names.

    >>> sorted(variables((2, 0, 1)))
    [(0, 1), (0, 2), (2, 1)]
    """
    pairs = []
    for axis, depth in enumerate(view):
        pairs += [(axis, above) for above in range(1, depth + 1)]
    return frozenset(pairs)


@frozen(slots=False)
class Chain:
    """The depths of one feature: for each, where in the leaves its nodes begin. Every node is a
    range of leaves.

    >>> states = Chain(5, ((0, 3), (0, 1, 2, 3, 4)))
    >>> states.size(1), states.children(1, 2).tolist(), states.children(0, 1).tolist()
    (2, [3, 2], [2])
    """

    leaves: int
    starts: tuple[tuple[int, ...], ...] = field(repr=False)

    @classmethod
    def flat(cls, levels: int) -> "Chain":
        """Return the chain of an ordinary feature: one depth.

        >>> Chain.flat(3).size(1)
        3
        """
        return cls(levels, (tuple(range(levels)),))

    @property
    def depth(self) -> int:
        """The depth of the leaves."""
        return len(self.starts)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.leaves, self.starts))

    def size(self, depth: int) -> int:
        """Return the number of nodes at a depth; the whole is the only node at depth 0."""
        return len(self.starts[depth - 1]) if depth else 1

    def first(self, coarse: int, fine: int) -> NDArray[np.intp]:
        """Return the position at depth `fine` of the first node below each node at depth `coarse`.

        Every count of descendants comes from here, so reversed depths are an error here: they
        would give an empty range that looks like "no such node".
        """
        if (coarse, fine) not in self._firsts:
            if not 0 <= coarse <= fine <= self.depth:
                raise ValueError(
                    f"no node at depth {fine} lies below depth {coarse}: ask for its ancestor"
                )
            firsts = np.searchsorted(self._starts(fine), self._starts(coarse))
            # The array is shared by every caller: nobody may write to it.
            firsts.setflags(write=False)
            self._firsts[coarse, fine] = firsts
        return self._firsts[coarse, fine]

    def _starts(self, depth: int) -> NDArray[np.intp]:
        """The first leaf of each node at a depth; the whole begins at the first leaf."""
        starts = self.starts[depth - 1] if depth else (0,)
        return np.asarray(starts, dtype=np.intp)

    @cached_property
    def _firsts(self) -> dict[tuple[int, int], NDArray[np.intp]]:
        return {}

    def children(self, coarse: int, fine: int) -> NDArray[np.intp]:
        """Return the number of nodes at depth `fine` below each node at depth `coarse`."""
        if (coarse, fine) not in self._children:
            numbers = np.diff(self.first(coarse, fine), append=self.size(fine))
            numbers.setflags(write=False)
            self._children[coarse, fine] = numbers
        return self._children[coarse, fine]

    @cached_property
    def _children(self) -> dict[tuple[int, int], NDArray[np.intp]]:
        return {}

    def slice_descendants(self, depth: int, node: int, fine: int) -> slice:
        """Slice of the nodes at depth `fine` that descend from `node` of `depth`; the node itself
        if these are equal.

        `fine` must not be coarser than `depth`: `ancestor` looks upwards.

        >>> Chain(5, ((0, 3), (0, 1, 2, 3, 4))).slice_descendants(1, 1, 2)
        slice(3, 5, None)
        """
        start = int(self.first(depth, fine)[node])
        size = int(self.children(depth, fine)[node])
        return slice(start, start + size)

    def ancestor(self, depth: int, node: int, coarse: int) -> int:
        """Node at depth `coarse` from which `node` of `depth` descends; the node itself if these
        are equal.

        >>> Chain(5, ((0, 3), (0, 1, 2, 3, 4))).ancestor(2, 4, 1)
        1
        """
        firsts = self.first(coarse, depth)
        return int(np.searchsorted(firsts, node, side="right")) - 1

    def find_leaf_ancestors(self, depth: int) -> NDArray[np.intp]:
        """Return the ancestor of each leaf at a depth; the leaf itself at the deepest.

        >>> Chain(5, ((0, 3), (0, 1, 2, 3, 4))).find_leaf_ancestors(1).tolist()
        [0, 0, 0, 1, 1]
        """
        nodes = np.arange(self.size(depth))
        return np.repeat(nodes, self.children(depth, self.depth))

    def branch(self, depth: int, node: int) -> "Chain":
        """Return the chain of the leaves below one node; the depths down to it stay, with one node
        each.

        >>> Chain(5, ((0, 3), (0, 1, 2, 3, 4))).branch(1, 1)
        Chain(leaves=2)
        """
        leaves = self.slice_descendants(depth, node, self.depth)
        starts = [(0,)] * depth
        for fine in range(depth + 1, self.depth + 1):
            nodes = self.slice_descendants(depth, node, fine)
            inside = self.starts[fine - 1][nodes]
            starts.append(tuple(start - leaves.start for start in inside))
        return Chain(leaves.stop - leaves.start, tuple(starts))


@frozen(slots=False)
class Grid:
    """The cells of a table, one axis per feature, and its margins: arrays with an axis for
    each feature that they name.

    A margin's array has as many entries along a feature as there are nodes at its depth. Features
    that it does not name have no axis, so margins of any number of features can be held.

    >>> grid = Grid((Chain(3, ((0, 2), (0, 1, 2))), Chain.flat(2)))
    >>> table = np.array([[1, 2], [3, 4], [5, 6]])
    >>> grid.sum(table, (1, 1)).tolist(), grid.sum(table, (0, 1)).tolist()
    ([[4, 6], [5, 6]], [9, 12])
    >>> grid.spread(np.array([10, 20]), (1, 0)).tolist()
    [[10], [10], [20]]
    """

    chains: tuple[Chain, ...]

    @classmethod
    def flat(cls, shape: Sequence[int]) -> "Grid":
        """Return the grid of ordinary features.

        >>> Grid.flat((2, 3)).shape
        (2, 3)
        """
        return cls(tuple(Chain.flat(size) for size in shape))

    @cached_property
    def full(self) -> View:
        """The view of the table itself: every feature at its leaves."""
        return tuple(chain.depth for chain in self.chains)

    @property
    def nothing(self) -> View:
        """The view of the total."""
        return tuple(0 for _ in self.chains)

    @property
    def has_nested_feature(self) -> bool:
        """Whether some feature has more than one depth."""
        return any(chain.depth > 1 for chain in self.chains)

    def build_feature_view(self, axis: int, depth: int = 1) -> View:
        """Return the view of one feature."""
        view = [0] * len(self.chains)
        view[axis] = depth
        return tuple(view)

    @cached_property
    def shape(self) -> Shape:
        """The shape of the table."""
        return self.compute_margin_shape(self.full)

    def compute_margin_shape(self, view: View) -> Shape:
        """Return the shape of a margin's array."""
        pairs = zip(self.chains, view, strict=True)
        return tuple(chain.size(depth) for chain, depth in pairs if depth)

    def count_margin_cells(self, view: View) -> int:
        """Return the number of cells of a margin."""
        return math.prod(self.compute_margin_shape(view))

    def holds(self, most: int) -> bool:
        """Whether an array of all cells may be made: it has at most `most` cells, and no more axes
        than numpy allows.

        >>> Grid.flat((2,) * 20).holds(2**20), Grid.flat((1,) * 100).holds(2**20)
        (True, False)
        """
        if len(self.chains) > MAX_AXES:
            return False
        return self.count_margin_cells(self.full) <= most

    def sum(self, values: NDArray[Any], view: View, source: View | None = None) -> NDArray[Any]:
        """Sum a table, or the margin at `source`, down to a coarser view; truth values are
        counted.
        """
        source = self.full if source is None else source
        values = values.astype(np.int64) if values.dtype == bool else values
        axes = list_axes(source)
        # Features that the view does not name are summed away first, which leaves less to reduce.
        dropped = tuple(place for place, axis in enumerate(axes) if view[axis] == 0)
        result = values.sum(axis=dropped) if dropped else values
        for place, axis in enumerate(list_axes(view)):
            if view[axis] < source[axis]:
                firsts = self.chains[axis].first(view[axis], source[axis])
                result = np.add.reduceat(result, firsts, axis=place)
        return np.asarray(result)

    def spread(self, values: NDArray[Any], view: View, target: View | None = None) -> NDArray[Any]:
        """Give each cell of a finer view (default: the table's own) the value of its margin
        cell.

        Features of the finer view that the margin does not name have length one: the result
        broadcasts.
        """
        target = self.full if target is None else target
        axes = list_axes(target)
        sizes = [self.chains[axis].size(view[axis]) for axis in axes]
        values = np.reshape(values, sizes)
        for place, axis in enumerate(axes):
            if 0 < view[axis] < target[axis]:
                children = self.chains[axis].children(view[axis], target[axis])
                values = np.repeat(values, children, axis=place)
        return values

    def count_finer_cells(self, view: View, source: View | None = None) -> Any:
        """Return the number of cells of the table (or of the margin at `source`) in each cell of a
        margin.

        A plain number if it is the same for all, else an array of the margin's shape or one that
        broadcasts.
        """
        source = self.full if source is None else source
        product: Any = 1
        for axis in list_axes(source):
            if view[axis] < source[axis]:
                children = self.chains[axis].children(view[axis], source[axis])
                if (children == children[0]).all():
                    product = product * int(children[0])
                else:  # a single node would be the same for all: the margin names this feature
                    sides = [-1 if other == axis else 1 for other in list_axes(view)]
                    product = product * children.reshape(sides)
        return product

    def labels(self, view: View, source: View | None = None) -> NDArray[np.intp]:
        """Return the flat number of the margin cell that holds each cell of the table (or of the
        margin at `source`).
        """
        source = self.full if source is None else source
        # Number the cells of the margin, and spread the numbers like any values.
        numbers = np.arange(self.count_margin_cells(view), dtype=np.intp)
        spread = self.spread(numbers, view, source)
        return np.broadcast_to(spread, self.compute_margin_shape(source)).ravel()

    def box(self, chosen: Iterable[tuple[View, int]]) -> list[slice]:
        """Return the leaves of each feature that lie in all of the chosen margin cells (their flat
        positions).

        >>> Grid((Chain(3, ((0, 2), (0, 1, 2))), Chain.flat(2))).box([((1, 0), 1)])
        [slice(2, 3, None), slice(0, 2, None)]
        """
        # for each feature the finest depth that is chosen, and the node there
        nodes = [(0, 0)] * len(self.chains)
        for view, flat in chosen:
            codes = np.unravel_index(flat, self.compute_margin_shape(view))
            for axis, code in zip(list_axes(view), codes, strict=True):
                if view[axis] > nodes[axis][0]:
                    nodes[axis] = (view[axis], int(code))
        pairs = zip(self.chains, nodes, strict=True)
        return [chain.slice_descendants(depth, node, chain.depth) for chain, (depth, node) in pairs]

    def coarsen(self, view: View) -> "Grid":
        """Return the grid of a margin as a table of its own, of the features that it names."""
        chains = [_cut(self.chains[axis], view[axis]) for axis in list_axes(view)]
        return Grid(tuple(chains))

    def find_inhabited_cells(
        self, possible: Mask | None, totals: "Iterable[Totals]", view: View | None = None
    ) -> Mask | None:
        """Return the cells of a view that are possible and where no margin is empty; None if
        that is all of them.
        """
        view = self.full if view is None else view
        mask: Any = possible
        for total in totals:
            if not total.counts.all():
                occurs = self.spread(total.counts > 0, total.view, view)
                mask = occurs if mask is None else mask & occurs
        if mask is None:
            return None
        return np.ascontiguousarray(np.broadcast_to(mask, self.compute_margin_shape(view)))

    def operator(self, views: Sequence[View], domain: Mask) -> Any:
        """Return margins as a sparse matrix of ones: one column per cell of the domain, one row
        per margin cell that occurs.
        """
        from scipy import sparse

        cells = np.flatnonzero(domain)
        rows, start = [], 0
        for view in views:
            _, where = np.unique(self.labels(view)[cells], return_inverse=True)
            rows.append(start + where)
            start += int(where.max(initial=-1)) + 1
        columns = np.tile(np.arange(len(cells)), len(rows))
        places = (np.concatenate(rows), columns)
        entries = (np.ones(len(columns)), places)
        return sparse.csr_array(entries, shape=(start, len(cells)))


@frozen(eq=False)
class Totals:
    """The published counts of one margin: its view, and its array with an axis for each feature
    that it names.

    Axes of length one for the other features are dropped.

    >>> Totals((1, 0), np.array([[3], [7]])).sum_to_view(Grid.flat((2, 2)), (0, 0)).counts
    array(10)
    """

    view: View
    counts: Counts = field(repr=False)

    def __attrs_post_init__(self) -> None:
        unnamed = tuple(axis for axis, depth in enumerate(self.view) if not depth)
        if unnamed and self.counts.ndim == len(self.view):
            object.__setattr__(self, "counts", self.counts.squeeze(unnamed))

    def sum_to_view(self, grid: Grid, view: View) -> "Totals":
        """Return a coarser margin, summed from this one."""
        return Totals(view, grid.sum(self.counts, view, self.view))

    @property
    def levels(self) -> int:
        """The number of cells with a record."""
        return int((self.counts > 0).sum())


def finest(
    grid: Grid, totals: Iterable[Totals], down_to: Callable[[View], View]
) -> tuple[Totals, ...]:
    """Return margins coarsened by a rule, without those that others contain."""
    coarsened = {}
    for total in totals:
        view = down_to(total.view)
        if any(view):
            coarsened[view] = total.sum_to_view(grid, view)
    return tuple(coarsened[view] for view in maximal(coarsened))


def _cut(chain: Chain, depth: int) -> Chain:
    """Return a chain whose leaves are the nodes at `depth`."""
    firsts = []
    for coarse in range(1, depth + 1):
        firsts.append(tuple(chain.first(coarse, depth).tolist()))
    return Chain(chain.size(depth), tuple(firsts))
