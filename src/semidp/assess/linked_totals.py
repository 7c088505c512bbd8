"""Changes of a few units and members: how far they move the residuals of linked tables, and whether
two datasets with the published totals can differ by one.

A `Change` is what two adjacent datasets differ in; everybody else is the same in both. `Lengths`
weighs it by the noise of the residuals that it moves. `HeldTotals` decides whether the totals leave
enough units and members for everybody else, who are never built.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import SemidpError
from semidp.promise.schema.margins import Chain, Floats, Grid, Totals, View, list_axes
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.linked_products import KindSpace
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.fitting.tables import fit_table

Leaves = tuple[int, ...]
Signed = tuple[int, Leaves]
"""What a table gains (1) or loses (-1), and in which cell."""


@frozen
class UnitChange:
    """One unit before and after.

    Parameters
    ----------
    before, after
        The leaves of its own features.
    sizes
        How many members it has, before and after.
    derived
        The levels of its other derived features, before and after.
    stays
        How many of its members stay in it as they are.
    residents
        The levels of those, where own features of the unit change and members inherit them.
    """

    before: Leaves
    after: Leaves
    sizes: tuple[int, int]
    derived: tuple[Leaves, Leaves]
    stays: int
    residents: Leaves

    @property
    def moves(self) -> bool:
        """Whether its own features change."""
        return self.before != self.after

    @property
    def resizes(self) -> bool:
        """Whether its number of members changes."""
        return self.sizes[0] != self.sizes[1]


@frozen
class MemberChange:
    """One member before and after: the number of its unit within the change, and its own levels."""

    units: tuple[int, int]
    before: Leaves
    after: Leaves


@frozen
class Change:
    """Units and members in which two datasets differ."""

    units: tuple[UnitChange, ...]
    members: tuple[MemberChange, ...]

    @property
    def changed_members(self) -> int:
        """How many members differ: those who move or change, and those whose unit changes."""
        followers = [unit.stays for unit in self.units if unit.moves]
        return len(self.members) + sum(followers)


@cache
def find_leaf_ancestors(chain: Chain, depth: int) -> NDArray[np.intp]:
    """Ancestor of every leaf at a depth; the leaf itself at the last depth."""
    return chain.find_leaf_ancestors(depth)


def find_nodes(grid: Grid, view: View, cell: Leaves) -> Leaves:
    """Nodes of a cell at the depths of a view."""
    nodes = []
    for axis in list_axes(view):
        of_leaves = find_leaf_ancestors(grid.chains[axis], view[axis])
        nodes.append(int(of_leaves[cell[axis]]))
    return tuple(nodes)


@frozen(slots=False, eq=False)
class LinkedLayout:
    """Order of the features of units and members, in changes and in the tables of both kinds.

    Parameters
    ----------
    public
        What is public about both kinds.
    """

    public: LinkedDataspace

    @cached_property
    def own_names(self) -> tuple[str, ...]:
        """Names of the own features of units; that of group quarters comes last."""
        names = []
        for axis, feature in enumerate(self.public.units.schema.features):
            if axis not in self.public.derived_axes:
                names.append(feature.name)
        quarters = self.public.link.quarters
        return tuple(names) if quarters is None else (*names, quarters.feature)

    @cached_property
    def other_derived_axes(self) -> tuple[int, ...]:
        """Axes of the derived features of units, other than the size."""
        size = self.public.size_axis
        return tuple(axis for axis in sorted(self.public.derived_axes) if axis != size)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Axes of the own features of members."""
        axes = range(len(self.public.schema.features))
        return tuple(axis for axis in axes if axis not in self.public.inherited_axes)

    def is_counted(self, own: Leaves) -> bool:
        """Whether tables of units count this unit, that is, it is not group quarters."""
        home = self.public.home
        return home is None or own[-1] == home[1]

    def member(self, own: Leaves, levels: Leaves) -> Leaves:
        """Return the cell of a member."""
        by_axis = dict(zip(self.levels, levels, strict=True))
        cell = []
        for axis, feature in enumerate(self.public.schema.features):
            inherited = axis in self.public.inherited_axes
            cell.append(own[self.own_names.index(feature.name)] if inherited else by_axis[axis])
        return tuple(cell)

    def unit(self, own: Leaves, size: int, derived: Leaves) -> Leaves:
        """Return the cell of a counted unit."""
        by_axis = dict(zip(self.other_derived_axes, derived, strict=True))
        cell = []
        for axis, feature in enumerate(self.public.units.schema.features):
            if axis == self.public.size_axis:
                cell.append(size - self.public.link.least)
            elif axis in by_axis:
                cell.append(by_axis[axis])
            else:
                cell.append(own[self.own_names.index(feature.name)])
        return tuple(cell)

    def list_member_cells(self, change: Change) -> Iterator[Signed]:
        """Yield the cells of member tables that a change takes a record from (-1) or adds one to
        (+1).
        """
        for member in change.members:
            first, second = (change.units[unit] for unit in member.units)
            yield -1, self.member(first.before, member.before)
            yield 1, self.member(second.after, member.after)
        for unit in change.units:
            # members who stay in a unit have its own features, and change with them
            if unit.moves:
                gone = self.member(unit.before, unit.residents)
                new = self.member(unit.after, unit.residents)
                for _ in range(unit.stays):
                    yield -1, gone
                    yield 1, new

    def list_unit_cells(self, change: Change) -> Iterator[Signed]:
        """Yield the cells of unit tables that a change takes a unit from (-1) or adds one to
        (+1).
        """
        for unit in change.units:
            if self.is_counted(unit.before):
                (size, later), (derived, derived_later) = unit.sizes, unit.derived
                yield -1, self.unit(unit.before, size, derived)
                yield 1, self.unit(unit.after, later, derived_later)


@frozen(slots=False, eq=False)
class Lengths:
    """How far changes move the residuals of one kind, in units of the noise.

    With ``h`` the indicator of a node less the mean of its c siblings,
    ``|R_d m|² = Σ_ab s_a s_b Π_i <h_a, h_b>_i`` over the cells of a move, and along a feature
    ``<h_a, h_b>`` is ``1 - 1/c`` for the same node, ``-1/c`` for siblings, 0 for others.

    Parameters
    ----------
    space
        The residuals of one kind.
    sigma2
        The noise of each.
    """

    space: KindSpace
    sigma2: Mapping[View, Fraction]

    @cached_property
    def _leaf_positions(self) -> list[NDArray[np.intp]]:
        """For each feature the number of every leaf among those that can hold a record; -1 for the
        other leaves.
        """
        places = []
        for kept in self.space.inhabited_leaves:
            places.append(np.where(kept, np.cumsum(kept) - 1, -1))
        return places

    def possible(self, cells: Sequence[Signed]) -> bool:
        """Whether all cells have levels that can hold a record."""
        for _, cell in cells:
            for axis, leaf in enumerate(cell):
                if self._leaf_positions[axis][leaf] < 0:
                    return False
        return True

    @cached_property
    def _depths(self) -> list[tuple[int, int]]:
        """Every pair (feature, depth) that some residual names."""
        seen = {(axis, view[axis]) for view in self.sigma2 for axis in list_axes(view)}
        return sorted(seen)

    def squares(self, cells: Sequence[Signed]) -> dict[View, float]:
        """Return the squared length of each residual of a move."""
        signs = np.array([float(sign) for sign, _ in cells])
        both = np.outer(signs, signs)
        kernels = {}
        for axis, depth in self._depths:
            leaves = self._leaf_positions[axis][[cell[axis] for _, cell in cells]]
            kernels[axis, depth] = self._kernel(axis, depth, leaves)
        lengths = {}
        for view in self.sigma2:
            product = both
            for axis in list_axes(view):
                product = product * kernels[axis, view[axis]]
            lengths[view] = float(product.sum())
        return lengths

    def _kernel(self, axis: int, depth: int, leaves: NDArray[np.intp]) -> Floats:
        nodes = self._find_leaf_ancestors(axis, depth)[leaves]
        parents = self._find_leaf_ancestors(axis, depth - 1)[leaves]
        siblings = self.space.residuals.siblings(axis, depth)[nodes]
        same = nodes[:, None] == nodes[None, :]
        family = parents[:, None] == parents[None, :]
        return np.asarray(family * (same - 1 / siblings[:, None]))

    def _find_leaf_ancestors(self, axis: int, depth: int) -> NDArray[np.intp]:
        """Node at a depth above every leaf of a feature."""
        return find_leaf_ancestors(self.space.residuals.grid.chains[axis], depth)

    def length(self, cells: Sequence[Signed]) -> float:
        """Return ``Σ_d |R_d m|²/σ_d²``."""
        if not cells or not self.sigma2:
            return 0.0
        squares = self.squares(cells)
        return sum(squares[view] / float(sigma2) for view, sigma2 in self.sigma2.items())

    def vector(self, cells: Sequence[Signed]) -> NDArray[np.int64]:
        """Return the change of the measured vector."""
        residuals = self.space.residuals
        parts = [np.zeros(0, np.int64)]
        for view in self.space.parts:
            table = np.zeros(residuals.shape(view), dtype=np.int64)
            for sign, cell in cells:
                nodes = []
                for axis in list_axes(view):
                    leaf = self._leaf_positions[axis][cell[axis]]
                    nodes.append(self._find_leaf_ancestors(axis, view[axis])[leaf])
                table[tuple(nodes)] += sign
            parts.append(residuals.compute_integer_residual(view, table).ravel())
        return np.concatenate(parts)


_SECONDS = 10.0


@frozen(slots=False, eq=False)
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
        grid = self.layout.public.schema.grid
        return Counter(find_nodes(grid, view, cell) for cell in cells)

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
    even = np.full(dataspace.schema.shape, dataspace.n / dataspace.schema.size)
    try:
        counts = fit_table(even, dataspace, time_limit=_SECONDS).counts
    except SemidpError:
        counts = None
    if counts is None:
        return np.zeros(dataspace.schema.shape, dtype=np.int64)
    return Table(dataspace.schema, counts).counts
