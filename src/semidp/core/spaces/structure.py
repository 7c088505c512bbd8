"""How the published margins of a dataspace hang together: what really constrains the data, and the slices it leaves.

Everything here is a function of the schema and the published values. What follows for a(t) is in `adjacency`, what
follows for norms and projections in `queries`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import (
    LARGEST_MASK,
    Counts,
    Grid,
    Totals,
    View,
    common_part,
    finest,
    join,
    junction_order,
    within,
)
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Structure:
    """The margins of a dataspace, and the questions that decide which method applies.

    >>> from semidp.core.spaces.dataspace import Margin
    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.counts import Table
    >>> places = Feature.nested(["state", "county"], [("s", "a"), ("s", "b"), ("t", "c")])
    >>> table = Table(Schema([places, Feature("sex", "fm")]), [[5, 5], [5, 5], [7, 7]])
    >>> structure = Structure.of(Dataspace.of(table, [Margin("state"), Margin("county"), Margin("sex")]))
    >>> [total.view for total in structure.margins], structure.common
    ([(2, 0), (0, 1)], (0, 0))
    """

    schema: Schema
    n: int
    margins: tuple[Totals, ...]

    @classmethod
    def of(cls, dataspace: Dataspace) -> "Structure":
        """Analyse a dataspace."""
        return cls(dataspace.schema, dataspace.n, dataspace.published)

    @property
    def grid(self) -> Grid:
        """The cells of the whole table."""
        return self.schema.grid

    @cached_property
    def choices(self) -> tuple[tuple[bool, ...], ...]:
        """For each feature and each of its depths, whether some inhabited node above has two nodes that can occur."""
        choices = []
        for axis, full in enumerate(self.grid.full):
            depths = range(1, full + 1)
            choices.append(tuple(self._has_choice(axis, depth) for depth in depths))
        return tuple(choices)

    def _has_choice(self, axis: int, depth: int) -> bool:
        """Whether some inhabited node one depth up has two nodes that can occur."""
        return bool((self.branches(axis, depth) > 1).any())

    @cached_property
    def varying(self) -> frozenset[tuple[int, int]]:
        """Each (feature, depth) that has a choice."""
        varying = set()
        for axis, depths in enumerate(self.choices):
            for depth, choice in enumerate(depths, start=1):
                if choice:
                    varying.add((axis, depth))
        return frozenset(varying)

    def branches(self, axis: int, depth: int, above: int | None = None) -> NDArray[np.int64]:
        """Return how many nodes of a depth can occur below each inhabited node above (one depth up unless said)."""
        above = depth - 1 if above is None else above
        firsts = self.grid.chains[axis].first(above, depth)
        inhabited = self.inhabited_nodes(axis, depth).astype(np.int64)
        counts = np.add.reduceat(inhabited, firsts)
        return np.asarray(counts[counts > 0])

    def inhabited_nodes(self, axis: int, depth: int) -> NDArray[np.bool_]:
        """Return which nodes of a feature can hold a record, by the published counts alone."""
        chain = self.grid.chains[axis]
        inhabited = np.ones(chain.size(depth), dtype=bool)
        for margin in self.margins:
            published = margin.view[axis]
            if not published:
                continue
            counts = margin.down(self.grid, self.grid.alone(axis, published)).counts
            if published >= depth:
                inhabited &= np.add.reduceat(counts, chain.first(depth, published)) > 0
            else:
                inhabited &= np.repeat(counts > 0, chain.children(published, depth))
        return inhabited

    def canonical(self, view: View) -> View:
        """Return the coarsest view that says as much: depths without a choice are left out at the end of a chain.

        Views of one class are mapped to one of them, in a way that keeps their order.
        """
        coarsest = []
        for choices, named_depth in zip(self.choices, view, strict=True):
            with_choice = [depth for depth in range(1, named_depth + 1) if choices[depth - 1]]
            coarsest.append(max(with_choice, default=0))
        return tuple(coarsest)

    @cached_property
    def published(self) -> View:
        """All that is published about any feature, together."""
        return join(self.grid.nothing, *(margin.view for margin in self.margins))

    @cached_property
    def essential(self) -> tuple[Totals, ...]:
        """The margins as far as they leave a choice, nested ones dropped: what really constrains the data."""
        return finest(self.grid, self.margins, self.canonical)

    @cached_property
    def zeros_matter(self) -> bool:
        """Whether structural zeros forbid more than the published margins do.

        They do not if every combination of published levels that the margins allow can be completed by unpublished
        ones: a zero inside a margin is an empty cell there.
        """
        zeros = [self.schema.view(name for name, _ in zero.levels) for zero in self.schema.structural_zeros]
        if all(self._inside_margin(view) for view in zeros):
            return False
        if not self.grid.holds(LARGEST_MASK):
            return True
        possible = self.schema.possible
        assert possible is not None
        # Published cells that some possible record completes, or that a margin leaves empty anyway.
        completable = self.grid.sum(possible.astype(np.int64), self.published) > 0
        for margin in self.margins:
            empty = self.grid.spread(margin.counts == 0, margin.view, self.published)
            completable = completable | empty
        return not bool(completable.all())

    def _inside_margin(self, view: View) -> bool:
        """Whether a published margin is at least as fine as a view."""
        return any(within(view, margin.view) for margin in self.margins)

    @cached_property
    def common(self) -> View | None:
        """What all essential margins share, if these are disjoint apart from it; else None."""
        if not self.essential:
            return self.grid.nothing
        return common_part([margin.view for margin in self.essential])

    @cached_property
    def decomposable(self) -> bool:
        """Whether the essential margins have a junction tree."""
        return junction_order([margin.view for margin in self.essential]) is not None


@dataclass(frozen=True, eq=False)
class Slices:
    """Margins that are disjoint apart from a common part Z: for each level z of Z, blocks of published counts.

    Parameters
    ----------
    grid
        The cells of the table.
    common
        The view Z.
    margins
        The published margins, each at least as fine as Z.

    Examples
    --------
    >>> rows, columns = Totals((1, 0), np.array([[2], [1]])), Totals((0, 1), np.array([[2, 1]]))
    >>> list(Slices(Grid.flat((2, 2)), (0, 0), (rows, columns)).candidates())
    [(0, (1, 1), 2, False)]
    """

    grid: Grid
    common: View
    margins: tuple[Totals, ...] = field(repr=False)

    @cached_property
    def homes(self) -> list[NDArray[np.intp]]:
        """For each margin the level of Z that each of its cells lies in, flattened."""
        return [self.grid.labels(self.common, margin.view) for margin in self.margins]

    @cached_property
    def sizes(self) -> Counts:
        """The number of records at each level of Z."""
        first = self.margins[0]
        sizes = self.grid.sum(first.counts, self.common, first.view)
        return np.asarray(sizes.ravel())

    def largest(self, number: int, a: int) -> Counts:
        """Return the largest counts of a block at each level of Z: a matrix of at most a columns, capped at a."""
        counts, home = self.margins[number].counts.ravel(), self.homes[number]
        order = np.lexsort((-counts, home))
        counts, home = counts[order], home[order]
        # The place of each cell among those of its level of Z, the largest count first.
        rank = np.arange(len(home)) - np.searchsorted(home, home)
        kept = (rank < a) & (counts > 0)
        largest = np.zeros((self.grid.size_of(self.common), a), dtype=np.int64)
        largest[home[kept], rank[kept]] = np.minimum(counts[kept], a)
        used = int((largest > 0).any(axis=0).sum())
        return largest[:, : max(used, 1)]

    def rows(self, z: int) -> list[tuple[NDArray[np.intp], Counts]]:
        """Return the cells of each margin at one level of Z: their positions and counts."""
        rows = []
        for margin, home in zip(self.margins, self.homes, strict=True):
            cells = np.flatnonzero(home == z)
            rows.append((cells, margin.counts.ravel()[cells]))
        return rows

    def candidates(self) -> Iterator[tuple[int, tuple[int, ...], int, bool]]:
        """Yield levels of Z where y may lie, with what decides how many records must move; most choices first.

        That is the smallest positive count of each block that leaves a choice there, sorted, how many other records are
        there, and whether x lies elsewhere. Levels that are alike in all this are tried once.
        """
        inhabited = np.flatnonzero(self.sizes)
        several = len(inhabited) > 1
        rarest = [self._rarest_of_all(number) for number in range(len(self.margins))]
        keys = np.sort(np.stack(rarest, axis=1), axis=1)[inhabited]  # no choice counts as 0: sorted to the front
        with_sizes = np.hstack([keys, self.sizes[inhabited, None]])
        _, first = np.unique(with_sizes, axis=0, return_index=True)
        choices = (keys > 0).sum(axis=1).tolist()
        for place in sorted(first.tolist(), key=lambda place: (-choices[place], place)):
            z, key = int(inhabited[place]), keys[place]
            # x itself is one of the records at z unless it lies elsewhere.
            others_at_z = int(self.sizes[z]) - int(not several)
            yield z, tuple(key[key > 0].tolist()), others_at_z, several

    def _rarest_of_all(self, number: int) -> Counts:
        """The smallest positive count of a block at each level of Z; 0 where the block leaves no choice there."""
        counts, home = self.margins[number].counts.ravel(), self.homes[number]
        size = self.grid.size_of(self.common)
        positive = counts > 0
        rarest = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(rarest, home[positive], counts[positive])
        levels = np.bincount(home[positive], minlength=size)
        return np.where(levels > 1, rarest, 0)
