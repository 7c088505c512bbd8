"""The pair of linked datasets that an audit compares: the change that costs most of the noise.

Changes are built as docs/linked.md describes exchanges and balls, from a few units and members
whose features are varied one by one while the cost grows. The result is a pair of the promise, not
necessarily the worst.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import define, field, frozen

from semidp.assess.linked_totals import (
    Change,
    HeldTotals,
    Leaves,
    Lengths,
    LinkedLayout,
    MemberChange,
    Signed,
    UnitChange,
    find_leaf_ancestors,
    find_nodes,
)
from semidp.assess.pairs import Pair
from semidp.errors import Refused
from semidp.promise.exact import count_noun
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.protection import Protect

_STARTS, _SWEEPS = 12, 5
_KICKS = 60
_TRIES = 300  # drafts at random until one is a change
_CELLS, _LEVELS = 6, 3  # of which a start chooses


@define
class Draft:
    """Numbers from which a change is built. The search varies one of them at a time.

    Parameters
    ----------
    cells
        For each unit its own features, by the number of a cell.
    sizes
        For each unit how many members it has before.
    derived, later
        For each unit the levels of derived features, before and after.
    levels
        For each member, and for what the first one becomes, the own levels.
    homes
        For each member the number of its unit before.
    choices
        Further choices of a kind of change.
    """

    cells: list[int]
    sizes: list[int]
    derived: list[list[int]]
    later: list[list[int]]
    levels: list[list[int]]
    homes: list[int]
    choices: list[int] = field(factory=list)


@frozen(slots=False, eq=False)
class Moves(ABC):
    """Builds the changes of one promise from drafts.

    Parameters
    ----------
    layout
        Where features stand, and what is public.
    """

    layout: LinkedLayout

    @property
    @abstractmethod
    def units(self) -> int:
        """The most units that a draft has."""

    @property
    @abstractmethod
    def members(self) -> int:
        """How many sets of own levels a draft has, one for a member before or after."""

    @property
    def choices(self) -> tuple[int, ...]:
        """Number of values of each further choice."""
        return ()

    def hand_over_levels(
        self, block: View, levels: Sequence[int], old: Leaves, new: Leaves
    ) -> tuple[list[int], list[int]]:
        """Levels of a carrier before and after, from those of a draft.

        It has the published values of new, whatever lies below them. It takes the member's old
        levels where the published values of old and new differ.
        """
        chains = self.layout.public.schema.grid.chains
        before, after = list(levels), list(levels)
        for place in self.own_places(block):
            axis = self.layout.levels[place]
            nodes = find_leaf_ancestors(chains[axis], block[axis])
            if nodes[before[place]] != nodes[new[place]]:
                before[place] = new[place]
            differ = nodes[old[place]] != nodes[new[place]]
            after[place] = old[place] if differ else before[place]
        return before, after

    @abstractmethod
    def change(self, draft: Draft, cells: Sequence[Leaves]) -> Change | None:
        """Return the change that a draft describes; None if the promise does not compare it."""

    @cached_property
    def blocks(self) -> tuple[View, ...]:
        """Views of the exact totals of members."""
        return tuple(total.view for total in self.layout.public.published_totals)

    def own_places(self, block: View) -> list[int]:
        """Positions of the features of a block among the own levels of members."""
        places = [
            axis for axis in list_axes(block) if axis not in self.layout.public.inherited_axes
        ]
        return [self.layout.levels.index(axis) for axis in places]

    def value(self, own: Leaves, levels: Sequence[int], block: View) -> Leaves:
        """Published value of a member in a block."""
        cell = self.layout.member(own, tuple(levels))
        return find_nodes(self.layout.public.schema.grid, block, cell)

    def differ_in_place(self, block: View, old: Leaves, new: Leaves) -> bool:
        """Whether two units differ in their published place."""
        nothing = tuple(0 for _ in self.layout.levels)
        inherited = self.layout.public.inherited_axes
        view = tuple(depth if axis in inherited else 0 for axis, depth in enumerate(block))
        # a block of own features alone says nothing of places
        if not any(view):
            return False
        return self.value(old, nothing, view) != self.value(new, nothing, view)

    def build_change(
        self,
        draft: Draft,
        before: Sequence[Leaves],
        after: Sequence[Leaves],
        members: Sequence[MemberChange],
    ) -> Change | None:
        """Return the change of some members, with the sizes of units that follow; None if more
        members leave a unit than it has.
        """
        leaving = Counter(member.units[0] for member in members)
        entering = Counter(member.units[1] for member in members)
        numbers: dict[int, int] = {}
        units: list[UnitChange] = []
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            touched = leaving[number] or entering[number]
            # a unit that nobody leaves or enters is none of the change, unless it moves itself
            if not touched and old == new:
                continue
            first = draft.sizes[number]
            # quarters hold whoever lives in them: only those who move are told of
            if not self.layout.is_counted(old):
                first = leaving[number]
            stays = first - leaving[number]
            if stays < 0:
                return None
            derived = tuple(draft.derived[number])
            later = tuple(draft.later[number]) if touched else derived
            sizes = first, stays + entering[number]
            numbers[number] = len(units)
            both = derived, later
            last_levels = tuple(draft.levels[-1])
            units.append(UnitChange(old, new, sizes, both, stays, last_levels))
        renumbered = []
        for member in members:
            home, target = (numbers[unit] for unit in member.units)
            renumbered.append(MemberChange((home, target), member.before, member.after))
        return Change(tuple(units), tuple(renumbered))


class MemberExchange(Moves):
    """One member becomes anybody and goes to any unit (promise B). Carriers hand over published
    values, and somebody makes room.

    Units 0 and 1 are left and entered. The first two sets of levels are those of the member, one
    follows for each block, and the last is of the member who makes room.
    """

    @property
    def units(self) -> int:
        """Units that are left and entered, and one for each carrier."""
        at_hand = max(2, self.layout.public.units.n)
        return min(2 + len(self.blocks), at_hand)

    @property
    def members(self) -> int:
        """The member before and after, a carrier for each block, and the member who makes room."""
        return 3 + len(self.blocks)

    def change(self, draft: Draft, cells: Sequence[Leaves]) -> Change | None:
        """Follow the promise (docs/linked.md): who moves, who hands over what, who makes room."""
        of_units = [cells[number] for number in draft.cells]
        old, new = tuple(draft.levels[0]), tuple(draft.levels[1])
        left, entered = draft.homes[0], draft.homes[1]
        members = [MemberChange((left, entered), old, new)]
        short, alone = left, False
        for number, block in enumerate(self.blocks):
            target = self.value(of_units[entered], new, block)
            if self.value(of_units[left], old, block) == target:
                continue
            home = draft.homes[2 + number]
            levels, handed = self.hand_over_levels(block, draft.levels[2 + number], old, new)
            if self.value(of_units[home], levels, block) != target:
                return None
            moves = self.differ_in_place(block, of_units[left], of_units[entered])
            homes = (home, left if moves else home)
            members.append(MemberChange(homes, tuple(levels), tuple(handed)))
            if moves:
                short = home
                alone = not self.own_places(block)
        return self._with_room(draft, of_units, members, short, alone)

    def _with_room(
        self,
        draft: Draft,
        of_units: Sequence[Leaves],
        members: list[MemberChange],
        short: int,
        alone: bool,
    ) -> Change | None:
        change = self.build_change(draft, of_units, of_units, members)
        entered = members[0].units[1]
        if change is None or self._fits(change) or alone or short == entered:
            return change
        # a member of the new unit goes to the place that is short
        levels = tuple(draft.levels[-1])
        mover = MemberChange((entered, short), levels, levels)
        return self.build_change(draft, of_units, of_units, [*members, mover])

    def _fits(self, change: Change) -> bool:
        link = self.layout.public.link
        for unit in change.units:
            holds = link.least <= unit.sizes[1] <= link.most
            if self.layout.is_counted(unit.before) and not holds:
                return False
        return True


class MemberBall(Moves):
    """Any members within the number of the promise change, and every exact total stays (promise B).

    Member j has the levels 2j before and 2j + 1 after. In every block the values after are those
    before, handed round.
    """

    @property
    def count(self) -> int:
        """How many members change."""
        return self.layout.public.reach.members

    @property
    def units(self) -> int:
        """Two for each member."""
        at_hand = max(1, self.layout.public.units.n)
        return min(2 * self.count, at_hand)

    @property
    def members(self) -> int:
        """Before and after, for each."""
        return 2 * self.count

    @property
    def choices(self) -> tuple[int, ...]:
        """Whether values of a block are handed round, and by how many."""
        return tuple(self.count for _ in self.blocks)

    def change(self, draft: Draft, cells: Sequence[Leaves]) -> Change | None:
        """Return the change in which each member takes the values of another one."""
        of_units = [cells[number] for number in draft.cells]
        members = []
        for number in range(self.count):
            after = list(draft.levels[2 * number + 1])
            home = draft.homes[2 * number]
            target = draft.homes[2 * number + 1]
            for block, turn in zip(self.blocks, draft.choices, strict=True):
                giver = 2 * ((number + turn) % self.count)
                for place in self.own_places(block):
                    after[place] = draft.levels[giver][place]
                # the place of the giver, or one that is published as the same
                if self.differ_in_place(block, of_units[draft.homes[giver]], of_units[target]):
                    target = draft.homes[giver]
            old = tuple(draft.levels[2 * number])
            members.append(MemberChange((home, target), old, tuple(after)))
        return self.build_change(draft, of_units, of_units, members)


class UnitExchange(Moves):
    """A whole unit becomes another one (promise A): its members one by one, with carriers of units
    and of members.

    Unit 0 is replaced; then come a carrier for each exact total of units, a home for the carriers
    of each exact total of members, and a unit that gains what the first one loses. Levels are those
    of its members before and after, of a carrier for each total of members, and of residents.
    """

    @cached_property
    def unit_blocks(self) -> tuple[View, ...]:
        """The exact totals of units."""
        return tuple(total.view for total in self.layout.public.units.published_totals)

    @property
    def units(self) -> int:
        """The unit itself, its carriers, the homes of carriers, and a unit that gains members."""
        return 2 + len(self.unit_blocks) + len(self.blocks)

    @property
    def members(self) -> int:
        """Members before and after, carriers, residents."""
        return 3 + len(self.blocks)

    @property
    def choices(self) -> tuple[int, ...]:
        """Cell that the unit goes to, and its size afterwards."""
        return _CELLS, self.layout.public.link.most + 1

    def change(self, draft: Draft, cells: Sequence[Leaves]) -> Change | None:
        """Return the change of a unit with all its members."""
        before = [cells[number] for number in draft.cells]
        target = cells[draft.choices[0] % len(cells)]
        after = [target, *before[1:]]
        schema = self.layout.public.units.schema
        for number, block in enumerate(self.unit_blocks, start=1):
            names = [schema.features[axis].name for axis in list_axes(block)]
            places = [self.layout.own_names.index(name) for name in names]
            if all(before[0][place] == target[place] for place in places):
                continue
            carrier = list(before[number])
            if any(carrier[place] != target[place] for place in places):
                return None
            for place in places:
                carrier[place] = before[0][place]
            after[number] = tuple(carrier)
        members = self._members(draft)
        return self.build_change(draft, before, after, members)

    def _members(self, draft: Draft) -> list[MemberChange]:
        link = self.layout.public.link
        size = draft.sizes[0]
        later = min(max(draft.choices[1], link.least), link.most)
        old, new = tuple(draft.levels[0]), tuple(draft.levels[1])
        gaining = 1 + len(self.unit_blocks) + len(self.blocks)
        members = []
        for number in range(max(size, later)):
            if number >= later:
                # a member that the unit loses is another one's, as it is
                members.append(MemberChange((0, gaining), old, old))
                continue
            home = 0 if number < size else gaining
            members.append(MemberChange((home, 0), old, new))
            members += self._carriers(draft, old, new)
        return members

    def _carriers(self, draft: Draft, old: Leaves, new: Leaves) -> Iterator[MemberChange]:
        """Members who hand over the published values that one member takes."""
        for number, block in enumerate(self.blocks):
            levels, handed = self.hand_over_levels(block, draft.levels[2 + number], old, new)
            if levels == handed:
                continue
            home = 1 + len(self.unit_blocks) + number
            yield MemberChange((home, home), tuple(levels), tuple(handed))


class WithinUnits(Moves):
    """Members change features that no total has, each within its unit: as many as the promise about
    a whole unit allows.
    """

    @property
    def units(self) -> int:
        """As many units as hold them."""
        public = self.layout.public
        return -(-self._count // public.link.most)

    @property
    def _count(self) -> int:
        public = self.layout.public
        reach = public.reach
        units = min(reach.derived_units, public.units.n)
        return min(reach.members, public.link.most * units)

    @property
    def members(self) -> int:
        """Before and after."""
        return 2

    def change(self, draft: Draft, cells: Sequence[Leaves]) -> Change | None:
        """Return the change of all these members at once."""
        of_units = [cells[number] for number in draft.cells]
        old, new = draft.levels[0], list(draft.levels[1])
        for block in self.blocks:
            for place in self.own_places(block):
                new[place] = old[place]
        members = []
        for number in range(self._count):
            home = number // self.layout.public.link.most
            members.append(MemberChange((home, home), tuple(old), tuple(new)))
        return self.build_change(draft, of_units, of_units, members)


def list_move_kinds(layout: LinkedLayout, adjacency: Adjacency) -> list[Moves]:
    """Return the kinds of change that a promise compares."""
    if layout.public.link.protect is Protect.member:
        exchanges: list[Moves] = [MemberExchange(layout)]
        further: list[Moves] = [MemberBall(layout)]
    else:
        exchanges = [UnitExchange(layout)]
        further = [WithinUnits(layout)]
    # An exchange is also one of the changes within the numbers of the promise.
    return adjacency.by_kind(ball=[*exchanges, *further], exchange=exchanges)


@frozen(eq=False)
class WorstChange:
    """The search for the change with the largest cost under the noise.

    Parameters
    ----------
    layout
        Where features stand, and what is public.
    members, units
        The noise of each kind.
    """

    layout: LinkedLayout
    members: Lengths
    units: Lengths

    def list_changed_cells(self, change: Change) -> tuple[list[Signed], list[Signed]]:
        """Return the cells that tables of members and of units lose and gain."""
        of_members = [*self.layout.list_member_cells(change)]
        of_units = [*self.layout.list_unit_cells(change)]
        return of_members, of_units

    def cost(self, change: Change) -> float:
        """Return ``Σ_d |R_d m|²/σ_d²`` over the residuals of both kinds; -1 where a cell can hold
        nobody.
        """
        members, units = self.list_changed_cells(change)
        if not self.members.possible(members) or not self.units.possible(units):
            return -1.0
        return self.members.length(members) + self.units.length(units)

    def find_worst_change(self, moves: Sequence[Moves]) -> Change | None:
        """Return the worst change that was found; None if there is none."""
        # the same pair every time: everything that it follows from is public
        random = np.random.default_rng(1)
        best, longest = None, 0.0
        for one in moves:
            for _ in range(_STARTS):
                climb = _Climb(self, one, random)
                change, cost = climb.climb()
                if change is not None and cost > longest * (1 + 1e-9):
                    best, longest = change, cost
        return best


class _Climb:
    """One start of the search: features are chosen at random, then varied one by one while the cost
    grows.
    """

    def __init__(self, search: WorstChange, moves: Moves, random: np.random.Generator) -> None:
        self.search, self.moves, self.random = search, moves, random
        self.totals = HeldTotals(search.layout)
        self.cells = self._cells()
        public = search.layout.public
        self.levels = [self._leaves(public.schema.shape[axis]) for axis in search.layout.levels]
        shape = public.units.schema.shape
        self.derived = [self._leaves(shape[axis]) for axis in search.layout.other_derived_axes]
        least, most = public.link.least, public.link.most
        ends = {least, least + 1, least + 2, (least + most) // 2, most - 2, most - 1, most}
        self.sizes = sorted(size for size in ends if least <= size <= most)

    def _cells(self) -> list[Leaves]:
        every = sorted(self.totals.cells)
        chosen = self.random.permutation(len(every))[:_CELLS]
        # cells near each other share a parent, and differ where it matters
        near = {every[number] for number in chosen}
        if len(chosen):
            near |= set(every[chosen[0] : chosen[0] + 2])
        cells = sorted(near)
        home = self.search.layout.public.home
        if home is not None:
            axis, level = home
            kinds = range(self.search.layout.public.schema.shape[axis])
            quarters = [kind for kind in kinds if kind != level]
            cells += [(*cell[:-1], kind) for cell in cells for kind in quarters]
        return cells

    def _leaves(self, count: int) -> list[int]:
        chosen = self.random.permutation(count)[:_LEVELS]
        return sorted(int(leaf) for leaf in chosen)

    def _draw_draft(self) -> Draft:
        pick = self.random.integers
        units, members = self.moves.units, self.moves.members

        cells = [int(pick(len(self.cells))) for _ in range(units)]
        # carriers live where the member goes: half of the starts let all units be of one cell
        if pick(2):
            entered = cells[min(1, units - 1)]
            cells[1:] = [entered] * (units - 1)
        # The order of these draws is part of what a seed fixes.
        sizes = [self._draw_value(self.sizes) for _ in range(units)]
        derived = [self._draw_values(self.derived) for _ in range(units)]
        later = [self._draw_values(self.derived) for _ in range(units)]
        levels = [self._draw_values(self.levels) for _ in range(members)]
        homes = [int(pick(units)) for _ in range(members)]
        choices = [int(pick(values)) for values in self.moves.choices]
        return Draft(cells, sizes, derived, later, levels, homes, choices)

    def _draw_value(self, values: Sequence[int]) -> int:
        """One value, drawn at random."""
        return int(values[int(self.random.integers(len(values)))])

    def _draw_values(self, several: Sequence[Sequence[int]]) -> list[int]:
        """One value of each list, drawn at random."""
        return [self._draw_value(values) for values in several]

    def _judge_draft(self, draft: Draft) -> tuple[Change | None, float]:
        change = self.moves.change(draft, self.cells)
        if change is None:
            return None, -1.0
        if not self._is_within_reach(change) or not self.totals.sizes_fit(change):
            return None, -1.0
        cost = self.search.cost(change)
        if cost <= 0 or not self.totals.holds(change):
            return None, -1.0
        return change, cost

    def _is_within_reach(self, change: Change) -> bool:
        """Whether no more members and units change than the promise names."""
        reach = self.search.layout.public.reach
        if change.changed_members > reach.members or len(change.units) > reach.derived_units:
            return False
        moved = [unit for unit in change.units if unit.moves]
        resized = [unit for unit in change.units if unit.moves or unit.resizes]
        return len(moved) <= reach.own_units and len(resized) <= reach.size_units

    def climb(self) -> tuple[Change | None, float]:
        """Return a change that no single variation makes more costly."""
        for _ in range(_TRIES):
            draft = self._draw_draft()
            change, cost = self._judge_draft(draft)
            if change is not None:
                break
        if change is None:
            return None, -1.0
        for _ in range(_SWEEPS):
            before = cost
            change, cost = self._sweep_draft(draft, change, cost)
            change, cost = self._kick_draft(draft, change, cost)
            if cost <= before * (1 + 1e-9):
                break
        return change, cost

    def _sweep_draft(self, draft: Draft, change: Change, cost: float) -> tuple[Change, float]:
        """Vary every number by itself, and keep variations that cost more."""
        for row, place, values in self._variations(draft):
            for value in values:
                kept = row[place]
                row[place] = value
                other, longer = self._judge_draft(draft)
                if other is not None and longer > cost * (1 + 1e-12):
                    change, cost = other, longer
                else:
                    row[place] = kept
        return change, cost

    def _kick_draft(self, draft: Draft, change: Change, cost: float) -> tuple[Change, float]:
        """Vary two or three numbers at once, at random, because totals tie some of them
        together.
        """
        variations = [*self._variations(draft)]
        for _ in range(_KICKS):
            count = 2 + int(self.random.integers(2))
            chosen = self.random.integers(len(variations), size=count)
            kept = []
            for number in chosen:
                row, place, values = variations[number]
                kept.append((row, place, row[place]))
                row[place] = self._draw_value(values)
            other, longer = self._judge_draft(draft)
            # as good is good enough: some totals let a cost grow only by way of equal ones
            if other is not None and longer >= cost:
                change, cost = other, longer
                continue
            # undone in reverse: the same number may have been chosen twice
            for row, place, value in reversed(kept):
                row[place] = value
        return change, cost

    def _variations(self, draft: Draft) -> Iterator[tuple[list[int], int, Sequence[int]]]:
        """Yield every number of a draft with the values that it may have."""
        units = range(self.moves.units)
        for unit in units:
            yield draft.cells, unit, range(len(self.cells))
            yield draft.sizes, unit, self.sizes
            for place, values in enumerate(self.derived):
                yield draft.derived[unit], place, values
                yield draft.later[unit], place, values
        for number, levels in enumerate(draft.levels):
            for place, values in enumerate(self.levels):
                yield levels, place, values
            yield draft.homes, number, units
        for place, count in enumerate(self.moves.choices):
            yield draft.choices, place, range(count)


def worst_linked_pair(
    space: LinkedSpace,
    members: Mapping[View, Fraction],
    units: Mapping[View, Fraction],
    claimed: float,
) -> Pair:
    """Return the pair whose change costs most of the noise on residuals of members and of units.

    The vectors are those of the units and members that change: everybody else adds the same to
    both. `claimed` is the largest cost of a change that the noise claims; it adds bounds of
    residuals, which the pair may not attain.
    """
    layout = LinkedLayout(space.dataspace)
    lengths = Lengths(space.members, members), Lengths(space.units, units)
    search = WorstChange(layout, *lengths)
    change = search.find_worst_change(list_move_kinds(layout, space.adjacency))
    if change is None:
        raise Refused(
            "no two linked datasets with the published totals were found that differ in what is"
            " measured, so there is nothing to attack"
        )
    vectors = []
    for side in (-1, 1):
        parts = []
        for of_kind, cells in zip(lengths, search.list_changed_cells(change), strict=True):
            on_side = [(1, cell) for sign, cell in cells if sign == side]
            parts.append(of_kind.vector(on_side))
        vectors.append(np.concatenate(parts))
    changed_members = count_noun(change.changed_members, "member")
    changed_units = count_noun(len(change.units), "unit")
    first, second = vectors
    return Pair(
        first,
        second,
        share=search.cost(change) / claimed,
        differing_records=f"{changed_members} and {changed_units}",
    )
