"""Changes of a few units and members, and how far they move the residuals of linked tables.

A `Change` is what two adjacent datasets differ in; everybody else is the same in both. `Lengths`
weighs it by the noise of the residuals that it moves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.margins import Chain, Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import KindSpace
from semidp.promise.spaces.linked import LinkedDataspace

Leaves = tuple[int, ...]
Signed = tuple[int, Leaves]
"""What a table gains (1) or loses (-1), and in which cell."""


@dataclass(frozen=True)
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
        """Whether it has another number of members afterwards."""
        return self.sizes[0] != self.sizes[1]


@dataclass(frozen=True)
class MemberChange:
    """One member before and after: the number of its unit within the change, and its own levels."""

    units: tuple[int, int]
    before: Leaves
    after: Leaves


@dataclass(frozen=True)
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


@dataclass(frozen=True, eq=False)
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
        """Whether tables of units count this unit: it is no group quarters."""
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


@dataclass(frozen=True, eq=False)
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
        for kept in self.space.kept_leaves:
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
