"""Whether two datasets with the published totals can differ by a change of linked records.

The rest of both datasets is never built: it exists where totals leave enough units and members.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import SemidpError
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import Totals, View, list_axes
from semidp.promise.sensitivity.linked_moves import (
    Change,
    Leaves,
    LinkedLayout,
    find_leaf_ancestors,
)
from semidp.promise.spaces.dataspace import Dataspace

_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class HeldTotals:
    """Decides whether the published totals of both kinds can hold a change.

    Members are exact by disjoint blocks, at most one of them with features of units. Given the
    units of every place, other members exist if no block value is used more often than its total,
    and if the members of each place fit into its units, least to most in each.

    Parameters
    ----------
    layout
        Where features stand, and what is public.
    """

    layout: LinkedLayout

    def holds(self, change: Change) -> bool:
        """Whether some dataset of D_t contains the first side of a change, and the second side has
        the same totals.
        """
        return self.sizes_fit(change) and self._keeps_units(change) and self._fits(change)

    def sizes_fit(self, change: Change) -> bool:
        """Whether every counted unit has least to most members, before and after."""
        link = self.layout.public.link
        sizes: list[int] = []
        for unit in change.units:
            if self.layout.is_counted(unit.before):
                sizes += unit.sizes
        return all(link.least <= size <= link.most for size in sizes)

    def _keeps_units(self, change: Change) -> bool:
        """Whether the change keeps every exact total of units, and each total has as many units as
        the change uses.
        """
        counted = [unit for unit in change.units if self.layout.is_counted(unit.before)]
        taken = Counter(unit.before for unit in counted)
        if any(self.cells.get(cell, 0) < units for cell, units in taken.items()):
            return False
        schema = self.layout.public.units.schema
        for total in self.layout.public.units.published_totals:
            axes = [self._own_place(schema.features[axis].name) for axis in list_axes(total.view)]
            before = Counter(self._node(total, axes, unit.before) for unit in counted)
            after = Counter(self._node(total, axes, unit.after) for unit in counted)
            if before != after or not _enough(total, before):
                return False
        return True

    def _own_place(self, name: str) -> int:
        return self.layout.own_names.index(name)

    def _node(self, total: Totals, places: list[int], own: Leaves) -> Leaves:
        """Cell of an exact total of units for some own features."""
        chains = self.layout.public.units.schema.grid.chains
        nodes = []
        for axis, place in zip(list_axes(total.view), places, strict=True):
            of_leaves = find_leaf_ancestors(chains[axis], total.view[axis])
            nodes.append(int(of_leaves[own[place]]))
        return tuple(nodes)

    def _fits(self, change: Change) -> bool:
        """Whether the change keeps the exact totals of members, and these leave members for all
        other units.
        """
        public = self.layout.public
        losses = [cell for sign, cell in self.layout.list_member_cells(change) if sign < 0]
        gains = [cell for sign, cell in self.layout.list_member_cells(change) if sign > 0]
        placed = None
        for total in public.published_totals:
            before, after = self._values(total.view, losses), self._values(total.view, gains)
            if before != after or not _enough(total, before):
                return False
            if public.inherited_axes & {*list_axes(total.view)}:
                placed = total
        if placed is None:
            return self._members_fit(change)
        return all(self._place_fits(change, placed, node) for node in self._places(change, placed))

    def _values(self, view: View, cells: Iterable[Leaves]) -> Counter[Leaves]:
        chains = self.layout.public.schema.grid.chains
        counts: Counter[Leaves] = Counter()
        nodes = {axis: find_leaf_ancestors(chains[axis], view[axis]) for axis in list_axes(view)}
        for cell in cells:
            value = tuple(int(nodes[axis][cell[axis]]) for axis in list_axes(view))
            counts[value] += 1
        return counts

    def _members_fit(self, change: Change) -> bool:
        """Whether all other units can hold the members that are left: at least `least` and at most
        `most` each.
        """
        public = self.layout.public
        counted = [unit for unit in change.units if self.layout.is_counted(unit.before)]
        inside = sum(unit.sizes[0] for unit in change.units)
        other_units = public.units.n - len(counted)
        if other_units < 0:
            return False
        return self._between(public.n - inside, other_units)

    def _between(self, members: int, units: int) -> bool:
        link = self.layout.public.link
        if members < link.least * units:
            return False
        # quarters hold as many as there are
        return link.quarters is not None or members <= link.most * units

    # --- places

    def _list_inherited_axes(self, total: Totals) -> list[int]:
        return [axis for axis in list_axes(total.view) if axis in self.layout.public.inherited_axes]

    def _place(self, total: Totals, own: Leaves) -> Leaves:
        """The published place of a unit."""
        schema = self.layout.public.schema
        nodes = []
        for axis in self._list_inherited_axes(total):
            leaf = own[self._own_place(schema.features[axis].name)]
            of_leaves = find_leaf_ancestors(schema.grid.chains[axis], total.view[axis])
            nodes.append(int(of_leaves[leaf]))
        return tuple(nodes)

    def _places(self, change: Change, total: Totals) -> set[Leaves]:
        return {self._place(total, unit.before) for unit in change.units}

    def _place_fits(self, change: Change, total: Totals, node: Leaves) -> bool:
        """Whether the units of a place can hold its exact members, with the units of the change as
        they are.
        """
        public, inherited = self.layout.public, self._list_inherited_axes(total)
        summed = [
            place for place, axis in enumerate(list_axes(total.view)) if axis not in inherited
        ]
        members = int(total.counts.sum(axis=tuple(summed))[node])
        here = [unit for unit in change.units if self._place(total, unit.before) == node]
        counted = [unit for unit in here if self.layout.is_counted(unit.before)]
        if public.home is not None and public.home[0] in inherited:
            level = node[inherited.index(public.home[0])]
            if level != public.home[1]:
                return True  # quarters of any number
            return self._fits_size_bounds(total, node, members, counted)
        if public.home is not None:
            return members >= sum(unit.sizes[0] for unit in here)
        return self._fits_size_bounds(total, node, members, counted)

    def _fits_size_bounds(
        self, total: Totals, node: Leaves, members: int, counted: list[Any]
    ) -> bool:
        units = self._count_units(total)[node] - len(counted)
        left = members - sum(unit.sizes[0] for unit in counted)
        link = self.layout.public.link
        return bool(units >= 0 and link.least * units <= left <= link.most * units)

    def _count_units(self, total: Totals) -> Counter[Leaves]:
        """Number of units of every published place."""
        if total.view not in self._by_place:
            counts: Counter[Leaves] = Counter()
            for cell, units in self.cells.items():
                counts[self._place(total, cell)] += units
            self._by_place[total.view] = counts
        return self._by_place[total.view]

    @cached_property
    def _by_place(self) -> dict[View, Counter[Leaves]]:
        return {}

    @cached_property
    def cells(self) -> dict[Leaves, int]:
        """Numbers of units by all their own features, from one table with the exact totals of
        units.
        """
        return dict(self._cells())

    def _cells(self) -> Iterator[tuple[Leaves, int]]:
        public = self.layout.public
        unit_schema = public.units.schema
        names = [name for name in unit_schema.names if name not in public.link.derived]
        home = () if public.home is None else (public.home[1],)
        if not names:
            yield home, public.units.n
            return
        counts = _some_table(public.units.restrict_features(names))
        for cell in np.argwhere(counts > 0):
            leaves = tuple(int(leaf) for leaf in cell)
            yield (*leaves, *home), int(counts[leaves])


def _enough(total: Totals, used: Counter[Leaves]) -> bool:
    """Whether an exact total has at least as many records of each value as are used."""
    return all(total.counts[node] >= count for node, count in used.items())


def _some_table(dataspace: Dataspace) -> NDArray[np.int64]:
    """Some table with the exact totals; the only one where one total names every feature."""
    for total in dataspace.published_totals:
        if total.view == dataspace.schema.grid.full:
            return np.asarray(total.counts)
    # A solver stands behind it, which only an audit needs.
    from semidp.publish.fitting.tables import fit_table

    even = np.full(dataspace.schema.shape, dataspace.n / dataspace.schema.size)
    try:
        counts = fit_table(even, dataspace, time_limit=_SECONDS).counts
    except SemidpError:
        counts = None
    if counts is None:
        return np.zeros(dataspace.schema.shape, dtype=np.int64)
    return Table(dataspace.schema, counts).counts
