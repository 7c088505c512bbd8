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
        return tuple(
            tuple(bool((self.branches(axis, depth) > 1).any()) for depth in range(1, full + 1))
            for axis, full in enumerate(self.grid.full)
        )

    @cached_property
    def varying(self) -> frozenset[tuple[int, int]]:
        """Each (feature, depth) that has a choice."""
        return frozenset(
            (axis, depth + 1)
            for axis, depths in enumerate(self.choices)
            for depth, choice in enumerate(depths)
            if choice
        )

    def branches(self, axis: int, depth: int, above: int | None = None) -> NDArray[np.int64]:
        """Return how many nodes of a depth can occur below each inhabited node above (one depth up unless said)."""
        above = depth - 1 if above is None else above
        chain = self.grid.chains[axis]
        there = self.inhabited_nodes(axis, depth)
        counts = np.add.reduceat(there.astype(np.int64), chain.first(above, depth))
        return np.asarray(counts[counts > 0])

    def inhabited_nodes(self, axis: int, depth: int) -> NDArray[np.bool_]:
        """Return which nodes of a feature can hold a record, by the published counts alone."""
        chain = self.grid.chains[axis]
        there = np.ones(chain.size(depth), dtype=bool)
        for margin in self.margins:
            known = margin.view[axis]
            if known:
                counts = margin.down(self.grid, self.grid.alone(axis, known)).counts
                if known >= depth:
                    there &= np.add.reduceat(counts, chain.first(depth, known)) > 0
                else:
                    there &= np.repeat(counts > 0, chain.children(known, depth))
        return there

    def canonical(self, view: View) -> View:
        """Return the coarsest view that says as much: depths without a choice are left out at the end of a chain.

        Views of one class are mapped to one of them, in a way that keeps their order.
        """
        return tuple(
            max((depth for depth in range(1, named + 1) if self.choices[axis][depth - 1]), default=0)
            for axis, named in enumerate(view)
        )

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
        if all(any(join(view, margin.view) == margin.view for margin in self.margins) for view in zeros):
            return False
        if not self.grid.holds(LARGEST_MASK):
            return True
        possible = self.schema.possible
        assert possible is not None
        completable = self.grid.sum(possible.astype(np.int64), self.published) > 0
        for margin in self.margins:
            completable = completable | self.grid.spread(margin.counts == 0, margin.view, self.published)
        return not bool(completable.all())

    @cached_property
    def common(self) -> View | None:
        """What all essential margins share, if these are disjoint apart from it; else None."""
        return common_part([margin.view for margin in self.essential]) if self.essential else self.grid.nothing

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
        return np.asarray(self.grid.sum(first.counts, self.common, first.view).ravel())

    def largest(self, number: int, a: int) -> Counts:
        """Return the largest counts of a block at each level of Z: a matrix of at most a columns, capped at a."""
        counts, home = self.margins[number].counts.ravel(), self.homes[number]
        order = np.lexsort((-counts, home))
        counts, home = counts[order], home[order]
        rank = np.arange(len(home)) - np.searchsorted(home, home)
        kept = (rank < a) & (counts > 0)
        found = np.zeros((self.grid.size_of(self.common), a), dtype=np.int64)
        found[home[kept], rank[kept]] = np.minimum(counts[kept], a)
        return found[:, : max(int((found > 0).any(axis=0).sum()), 1)]

    def rows(self, z: int) -> list[tuple[NDArray[np.intp], Counts]]:
        """Return the cells of each margin at one level of Z: their positions and counts."""
        found = []
        for margin, home in zip(self.margins, self.homes, strict=True):
            cells = np.flatnonzero(home == z)
            found.append((cells, margin.counts.ravel()[cells]))
        return found

    def candidates(self) -> Iterator[tuple[int, tuple[int, ...], int, bool]]:
        """Yield levels of Z where y may lie, with what decides how many records must move; most choices first.

        That is the smallest positive count of each block that leaves a choice there, sorted, how many other records are
        there, and whether x lies elsewhere. Levels that are alike in all this are tried once.
        """
        inhabited = np.flatnonzero(self.sizes)
        several = len(inhabited) > 1
        rarest = [self._rarest_of_all(number) for number in range(len(self.margins))]
        keys = np.sort(np.stack(rarest, axis=1), axis=1)[inhabited]  # no choice counts as 0: sorted to the front
        _, first = np.unique(np.hstack([keys, self.sizes[inhabited, None]]), axis=0, return_index=True)
        for place in sorted(first.tolist(), key=lambda place: (-int((keys[place] > 0).sum()), place)):
            z = int(inhabited[place])
            yield z, tuple(keys[place][keys[place] > 0].tolist()), int(self.sizes[z]) - int(not several), several

    def _rarest_of_all(self, number: int) -> Counts:
        """The smallest positive count of a block at each level of Z; 0 where the block leaves no choice there."""
        counts, home = self.margins[number].counts.ravel(), self.homes[number]
        size = self.grid.size_of(self.common)
        there = counts > 0
        found = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(found, home[there], counts[there])
        return np.where(np.bincount(home[there], minlength=size) > 1, found, 0)
