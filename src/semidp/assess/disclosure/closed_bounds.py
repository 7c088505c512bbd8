"""Bounds of cells that a formula or a maximum flow proves sharp, from exact decomposable margins.

For a cell of all published features ``U = min_C n_C`` and ``L = max(0, Σ_C n_C - Σ_S n_S)`` over
the cliques C and separators S of a junction tree (dobra2000bounds). A coarser cell first loses what
it does not name. Then the tree is cut at separators that it names, and each piece is summed over
what is missing, or is a maximum flow.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from semidp.assess.disclosure.published_counts import UNBOUNDED, PublishedCounts
from semidp.promise.schema.margins import (
    Counts,
    Grid,
    View,
    is_within_view,
    join,
    junction_order,
    list_axes,
    maximal,
    meet,
)

LARGEST_ARRAY = 2**24
"""The most cells of one array."""
MOST_FLOWS = 2_000
"""The most cells whose bounds are maximum flows."""
_LONGEST_PATH = 6

Find = Callable[[View], Counts]
Edge = tuple[int, int, View]


@frozen(eq=False)
class Bounds:
    """The range of each cell of a view over all conforming tables.

    Parameters
    ----------
    view
        The table.
    lower, upper
        Valid for all conforming tables.
    least, most
        Attained by conforming tables; where these equal `lower` and `upper`, the bounds are sharp.
    method
        Where the bounds come from.
    """

    view: View
    lower: Counts
    upper: Counts
    least: Counts
    most: Counts
    method: str

    @property
    def sharp(self) -> Any:
        """The cells whose bounds are both attained."""
        return (self.lower == self.least) & (self.upper == self.most)

    @property
    def is_fixed(self) -> Any:
        """The cells that have one value in all conforming tables."""
        return self.lower == self.upper

    @property
    def is_open(self) -> Any:
        """The cells that have two values in two conforming tables."""
        return self.least < self.most


def is_closed(counts: PublishedCounts) -> bool:
    """Whether formulas and flows are sharp: exact decomposable margins, and every structural zero
    within one of them.
    """
    if not counts.is_exact or junction_order(counts.cliques) is None:
        return False
    for zero in counts.schema.structural_zeros:
        view = counts.schema.view(dict(zero.levels))
        if not any(is_within_view(view, clique) for clique in counts.cliques):
            return False
    return True


def close_bounds(
    counts: PublishedCounts, view: View, most_flows: int = MOST_FLOWS
) -> Bounds | None:
    """Return the sharp bounds of every cell of a view; None if no formula or flow gives them.

    >>> from semidp.assess.disclosure.published_counts import KnownTable
    >>> from semidp import Dataspace, Feature, Margin, Schema, Table
    >>> table = Table(Schema([Feature("ward", "AB"), Feature("ill", "yn")]), [[5, 2], [2, 3]])
    >>> space = Dataspace.from_table(table, [Margin("ward"), Margin("ill")])
    >>> bounds = close_bounds(PublishedCounts.from_dataspace(space), (1, 1))
    >>> bounds.lower.tolist(), bounds.upper.tolist()
    ([[2, 0], [0, 0]], [[7, 5], [5, 5]])
    """
    grid = counts.grid
    if not is_closed(counts) or grid.count_margin_cells(view) > LARGEST_ARRAY:
        return None
    asked = meet(view, counts.crossing)
    proved = _bound_asked(grid, counts.cliques, asked, _finder(counts), most_flows)
    if proved is None:
        return None
    lower, upper = proved
    if asked != view:
        # What no margin has: all records may be in this cell, or in another one.
        children = np.asarray(grid.sum(counts.possible(view), asked, view))
        alone = grid.spread(children, asked, view) == 1
        lower = np.where(alone, grid.spread(lower, asked, view), 0)
        upper = np.where(counts.possible(view), grid.spread(upper, asked, view), 0)
        lower = np.where(counts.possible(view), lower, 0)
    shape = grid.compute_margin_shape(view)
    lower = np.broadcast_to(lower, shape)
    upper = np.broadcast_to(upper, shape)
    return Bounds(view, lower, upper, lower, upper, "formula")


def list_terms(counts: PublishedCounts) -> tuple[list[View], list[View]]:
    """Return the cliques and the separators of the formula, with multiplicity.

    Every clique but the first has a separator; the empty one stands for n.
    """
    ordered = junction_order(counts.cliques) or []
    separators = [separator for _, _, separator in _edges(ordered)]
    return ordered, separators


def _finder(counts: PublishedCounts) -> Find:
    """Return a function from a view within a clique to its counts, which keeps what it summed."""
    kept: dict[View, Counts] = {}

    def find(view: View) -> Counts:
        if view not in kept:
            kept[view] = counts.require_exact(view)
        return kept[view]

    return find


def _bound_asked(
    grid: Grid, cliques: list[View], asked: View, find: Find, most_flows: int
) -> tuple[Counts, Counts] | None:
    """Return the bounds of a view that cliques name."""
    reduced = _reduce(cliques, asked)
    if not reduced:
        n = find(grid.nothing)
        return n, n
    ordered = junction_order(reduced)
    if ordered is None:
        return None
    edges = _edges(ordered)
    cut = [edge for edge in edges if is_within_view(edge[2], asked)]
    inner = [edge for edge in edges if not is_within_view(edge[2], asked)]
    shape = grid.compute_margin_shape(asked)
    lower = np.zeros(shape, dtype=np.int64)
    upper = np.full(shape, UNBOUNDED, dtype=np.int64)
    for piece in _components(len(ordered), inner):
        members = [ordered[place] for place in piece]
        separators = [edge[2] for edge in inner if edge[0] in piece]
        bounds = _bound_piece(grid, members, separators, asked, find, most_flows)
        if bounds is None:
            return None
        named = meet(join(*members), asked)
        lower = lower + grid.spread(bounds[0], named, asked)
        upper = np.minimum(upper, grid.spread(bounds[1], named, asked))
    for _, _, separator in cut:
        lower = lower - grid.spread(find(separator), separator, asked)
    return np.maximum(lower, 0), upper


def _reduce(cliques: Sequence[View], asked: View) -> list[View]:
    """Drop from every clique what is neither asked for nor in another one, and nested cliques,
    until nothing changes.
    """
    current = maximal(cliques)
    while True:
        smaller = []
        for place, clique in enumerate(current):
            remaining = current[:place] + current[place + 1 :]
            needed = join(asked, *remaining)
            smaller.append(meet(clique, needed))
        smaller = maximal(smaller)
        if smaller == current:
            return current
        current = smaller


def _edges(ordered: Sequence[View]) -> list[Edge]:
    """Return a junction tree of cliques in junction order: each with an earlier one, and what they
    share.
    """
    edges = []
    for place, clique in enumerate(ordered[1:], start=1):
        separator = meet(clique, join(*ordered[:place]))
        parent = next(
            earlier for earlier in range(place) if is_within_view(separator, ordered[earlier])
        )
        edges.append((place, parent, separator))
    return edges


def _components(size: int, edges: Sequence[Edge]) -> list[list[int]]:
    group = list(range(size))
    for one, other, _ in edges:
        old, new = group[one], group[other]
        group = [new if label == old else label for label in group]
    places_by_label: dict[int, list[int]] = {}
    for place, label in enumerate(group):
        places_by_label.setdefault(label, []).append(place)
    return list(places_by_label.values())


def _bound_piece(
    grid: Grid,
    members: list[View],
    separators: list[View],
    asked: View,
    find: Find,
    most_flows: int,
) -> tuple[Counts, Counts] | None:
    """Return the bounds of the part of a cell that one piece names."""
    whole = join(*members)
    named = meet(whole, asked)
    missing = [axis for axis, depth in enumerate(whole) if depth > asked[axis]]
    shared = all(clique[axis] == whole[axis] for clique in members for axis in missing)
    if shared:
        if grid.count_margin_cells(whole) > LARGEST_ARRAY:
            return None
        lower = np.zeros(grid.compute_margin_shape(whole), dtype=np.int64)
        upper = np.full(lower.shape, UNBOUNDED, dtype=np.int64)
        for clique in members:
            spread = grid.spread(find(clique), clique, whole)
            lower, upper = lower + spread, np.minimum(upper, spread)
        for separator in separators:
            lower = lower - grid.spread(find(separator), separator, whole)
        lower = np.maximum(lower, 0)
        return grid.sum(lower, named, whole), grid.sum(upper, named, whole)
    path = _find_path(members, separators)
    if path is None or grid.count_margin_cells(named) > most_flows:
        return None
    shape = grid.compute_margin_shape(named)
    ends = [_PathFlow(grid, path, named, flat, find).bounds() for flat in range(_size(shape))]
    lows, highs = np.array(ends, dtype=np.int64).T
    return lows.reshape(shape), highs.reshape(shape)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _find_path(members: list[View], separators: list[View]) -> list[View] | None:
    """Return the cliques in an order that makes a path their junction tree; None if there is none.

    A spanning tree is a junction tree if it shares as much as the largest one does.
    """
    if len(members) > _LONGEST_PATH:
        return None
    weight = sum(sum(separator) for separator in separators)
    for order in itertools.permutations(members):
        shared = [meet(one, other) for one, other in itertools.pairwise(order)]
        if sum(sum(view) for view in shared) == weight:
            return list(order)
    return None


class _PathFlow:
    """The bounds of one cell as maximum flows along a path of cliques.

    Units of flow are records. A layer has a node for every value of a separator; a record flows
    through the values that it has. U sends as many as fit through cells that agree with the asked
    one. L is what is left of the first clique's count when as many as possible leave: a record
    leaves where it may have another value of what is asked for.
    """

    def __init__(self, grid: Grid, path: list[View], named: View, flat: int, find: Find) -> None:
        self.grid, self.path, self.find = grid, path, find
        shape = grid.compute_margin_shape(named)
        nodes = iter(np.unravel_index(flat, shape))
        self.asked = {axis: (named[axis], int(next(nodes))) for axis in list_axes(named)}
        self.separators = [meet(one, other) for one, other in itertools.pairwise(path)]

    def restrict(self, values: Any, view: View) -> Counts:
        """Return the entries of an array over a view that agree with the asked cell, flat."""
        index: list[int | slice] = []
        for axis in list_axes(view):
            depth, node = self.asked.get(axis, (0, 0))
            chain = self.grid.chains[axis]
            if view[axis] <= depth:
                index.append(chain.ancestor(depth, node, view[axis]))
            else:
                index.append(chain.slice_descendants(depth, node, view[axis]))
        shaped = np.reshape(values, self.grid.compute_margin_shape(view))
        return np.asarray(shaped[tuple(index)]).ravel()

    def labels(self, separator: View, view: View) -> Counts:
        """Return the flat position in a separator of each entry that `restrict` keeps."""
        return self.restrict(self.grid.labels(separator, view), view)

    def bounds(self) -> tuple[int, int]:
        """Return the least and the largest count of the cell."""
        first = self.path[0]
        total = int(self.restrict(self.find(first), first).sum())
        return total - self._flow(leaving=True), self._flow(leaving=False)

    def _flow(self, *, leaving: bool) -> int:
        from ortools.graph.python import max_flow

        network = max_flow.SimpleMaxFlow()
        starts, ends, room = [], [], []
        source, sink = 0, 1
        offsets = [2]
        for separator in self.separators:
            offsets.append(offsets[-1] + self.grid.count_margin_cells(separator))
        fresh = offsets[-1]

        def add(tails: Any, heads: Any, capacities: Any) -> None:
            tails, heads, capacities = np.broadcast_arrays(tails, heads, capacities)
            starts.append(tails.ravel())
            ends.append(heads.ravel())
            room.append(capacities.ravel())

        first, last = self.path[0], self.path[-1]
        into = offsets[0] + self.labels(self.separators[0], first)
        add(source, into, self.restrict(self.find(first), first))
        for place, clique in enumerate(self.path[1:-1]):
            before, after = self.separators[place], self.separators[place + 1]
            agreeing = self.restrict(self.find(clique), clique)
            tails = offsets[place] + self.labels(before, clique)
            heads = offsets[place + 1] + self.labels(after, clique)
            if not leaving:
                add(tails, heads, agreeing)
                continue
            both = join(before, after)
            carried = self.restrict(self.find(both), both)
            middle = fresh + np.arange(len(carried))
            fresh += len(carried)
            add(tails, middle, carried)
            add(middle, heads, carried)
            add(middle, sink, carried - agreeing)
            # Records with this value of the separator whose next one differs in what is asked for.
            capacity = self.restrict(self.find(before), before)
            nodes = self.labels(before, before)
            followed = np.zeros(self.grid.count_margin_cells(before), dtype=np.int64)
            np.add.at(followed, self.labels(before, clique), carried)
            add(offsets[place] + nodes, sink, capacity - followed[nodes])
        final = self.separators[-1]
        agreeing = self.restrict(self.find(last), last)
        nodes = self.labels(final, last)
        if leaving:
            kept = np.zeros(self.grid.count_margin_cells(final), dtype=np.int64)
            np.add.at(kept, nodes, agreeing)
            nodes = self.labels(final, final)
            agreeing = self.restrict(self.find(final), final) - kept[nodes]
        add(offsets[len(self.separators) - 1] + nodes, sink, agreeing)
        network.add_arcs_with_capacity(
            np.concatenate(starts).astype(np.int32),
            np.concatenate(ends).astype(np.int32),
            np.concatenate(room).astype(np.int64),
        )
        network.solve(source, sink)
        return int(network.optimal_flow())
