"""Small worlds of units and members, and everything that one member can do in them: by the words of
the promise in docs/linked.md.

Nothing here uses the costs that it is compared with. A world is a tuple of members, each a unit and
its own levels.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from attrs import frozen

from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.orthogonal_parts import Residuals, list_coarser_views
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace, Quarters

PLACES = Feature.from_paths(["state", "block"], [("A", "a1"), ("A", "a2"), ("B", "b1")])
TENURE = Feature("tenure", ["own", "rent"])
SEX = Feature("sex", ["f", "m"])
QUARTERS = Feature("quarters", ["home", "dormitory"])
AGE = Feature("age", ["0", "1", "2"])

Member = tuple[int, tuple[int, ...]]
World = tuple[Member, ...]
Type = Callable[[Sequence[tuple[int, ...]]], int]


def mixed(members: Sequence[tuple[int, ...]]) -> int:
    """A type of household: 1 where its members are of both sexes."""
    return int(len({levels[0] for levels in members}) > 1)


def women(members: Sequence[tuple[int, ...]]) -> int:
    """A type of household: 2 for two women or more, else their number."""
    return min(2, sum(levels[0] == 0 for levels in members))


@frozen(slots=False)
class Setting:
    """Units with own features, members with own features, bounds on sizes, and exact totals of
    members.
    """

    own: tuple[Feature, ...]
    units: tuple[tuple[int, ...], ...]
    members: int
    features: tuple[Feature, ...]
    least: int
    most: int
    exact: tuple[tuple[str, ...], ...]
    kind: Type = mixed

    @cached_property
    def quarters(self) -> int | None:
        """Which own feature says that a unit is in no table, and has no bound on its members."""
        return self.own.index(QUARTERS) if QUARTERS in self.own else None

    def counted(self, unit: int) -> bool:
        """Whether a unit is in tables of units."""
        return self.quarters is None or self.units[unit][self.quarters] == 0

    @cached_property
    def member_schema(self) -> Schema:
        return Schema((*self.own, *self.features))

    @cached_property
    def unit_schema(self) -> Schema:
        sizes = Feature("size", [str(size) for size in range(self.least, self.most + 1)])
        own = [feature for feature in self.own if feature != QUARTERS]
        return Schema((*own, sizes, Feature("type", ["0", "1", "2"])))

    @cached_property
    def blocks(self) -> list[View]:
        return [self.member_schema.view(names) for names in self.exact]

    def leaves(self, member: Member) -> tuple[int, ...]:
        unit, levels = member
        return (*self.units[unit], *levels)

    def value(self, member: Member, block: View) -> tuple[int, ...]:
        """The published value of a member in a block."""
        chains = self.member_schema.grid.chains
        leaves = self.leaves(member)
        return tuple(
            int(chains[axis].find_leaf_ancestors(block[axis])[leaves[axis]])
            for axis in list_axes(block)
        )

    def totals(self, world: Iterable[Member]) -> tuple[tuple[object, ...], ...]:
        """Every exact total of members."""
        found = []
        for block in self.blocks:
            counts = Counter(self.value(member, block) for member in world)
            found.append(tuple(sorted(counts.items())))
        return tuple(found)

    def fits(self, world: Iterable[Member]) -> bool:
        sizes = Counter(unit for unit, _ in world)
        bounded = [unit for unit in range(len(self.units)) if self.counted(unit)]
        return all(self.least <= sizes[unit] <= self.most for unit in bounded)

    def worlds(self) -> Iterator[World]:
        """Every world, members in order: whose label is whose changes no table."""
        levels = [range(len(feature.levels)) for feature in self.features]
        kinds = list(itertools.product(range(len(self.units)), itertools.product(*levels)))
        for world in itertools.combinations_with_replacement(kinds, self.members):
            if self.fits(world):
                yield world

    def member_table(self, world: World) -> np.ndarray:
        table = np.zeros(self.member_schema.shape, dtype=np.int64)
        for member in world:
            table[self.leaves(member)] += 1
        return table

    def unit_table(self, world: World) -> np.ndarray:
        table = np.zeros(self.unit_schema.shape, dtype=np.int64)
        for unit, own in enumerate(self.units):
            if not self.counted(unit):
                continue
            inside = [levels for home, levels in world if home == unit]
            own = tuple(level for axis, level in enumerate(own) if axis != self.quarters)
            table[(*own, len(inside) - self.least, self.kind(inside))] += 1
        return table

    def public(
        self, world: World, protect: str = "member", exact_units: Iterable[Margin] = ()
    ) -> LinkedDataspace:
        """What is public about a world."""
        members = Table(self.member_schema, self.member_table(world))
        units = Table(self.unit_schema, self.unit_table(world))
        quarters = None if self.quarters is None else Quarters("quarters", ["dormitory"])
        link = Link(protect, self.least, self.most, ("size", "type"), quarters=quarters)
        margins = [Margin(*names) for names in self.exact]
        return LinkedDataspace.joining(
            Dataspace.from_table(members, margins), Dataspace.from_table(units, exact_units), link
        )

    # --- what one member can do -------------------------------------------------------------------

    def alternatives(self, world: World) -> Iterator[tuple[int, Member]]:
        """Every member, by its number, and everything else that it may be: its published values
        have positive count.
        """
        present = [{self.value(member, block) for member in world} for block in self.blocks]
        levels = [range(len(feature.levels)) for feature in self.features]
        others = list(itertools.product(range(len(self.units)), itertools.product(*levels)))
        for number in range(len(world)):
            for other in others:
                if all(
                    self.value(other, block) in there
                    for block, there in zip(self.blocks, present, strict=True)
                ):
                    yield number, other

    def exchanges(self, world: World, number: int, other: Member) -> Iterator[World]:
        """Every exchange in which one member becomes another one."""
        changed = []
        for block in self.blocks:
            if self.value(world[number], block) != self.value(other, block):
                changed.append(block)
        rest = [place for place in range(len(world)) if place != number]
        choices = []
        for block in changed:
            choices.append(
                [
                    place
                    for place in rest
                    if self.value(world[place], block) == self.value(other, block)
                ]
            )
        for carriers in itertools.product(*choices):
            yield from self._carried(
                world, number, other, list(zip(changed, carriers, strict=True))
            )

    def _carried(
        self, world: World, number: int, other: Member, carriers: list[tuple[View, int]]
    ) -> Iterator[World]:
        mine, inherited = world[number], len(self.own)
        result = list(world)
        result[number] = other
        short = mine[0]  # the unit that lacks a member
        chains = self.member_schema.grid.chains
        alone = None
        for block, place in carriers:
            unit, levels = result[place]
            changed = list(levels)
            placed = False
            for axis in list_axes(block):
                nodes = chains[axis].find_leaf_ancestors(block[axis])
                differ = nodes[self.leaves(mine)[axis]] != nodes[self.leaves(other)[axis]]
                if axis < inherited:
                    placed = placed or bool(differ)
                elif differ:
                    changed[axis - inherited] = mine[1][axis - inherited]
            if placed:
                short = world[place][0]
                unit = mine[0]
                if all(axis < inherited for axis in list_axes(block)):
                    alone = place
            result[place] = (unit, tuple(changed))
        if self.fits(result):
            yield tuple(result)
            return
        if alone is not None:
            return  # a carrier who lives in the new unit makes room: another choice
        # somebody who lives in the new unit goes to the place that is short
        for place, (unit, _) in enumerate(world):
            if unit != other[0] or place == number or result[place][0] != unit or short == unit:
                continue
            moved = list(result)
            moved[place] = (short, result[place][1])
            if self.fits(moved):
                yield tuple(moved)


def changed_members(one: World, other: World) -> int:
    return sum(before != after for before, after in zip(one, other, strict=True))


def changed_units(one: World, other: World) -> int:
    """How many units are composed of others, by their levels."""
    units = {unit for unit, _ in (*one, *other)}
    count = 0
    for unit in units:
        before = Counter(levels for home, levels in one if home == unit)
        after = Counter(levels for home, levels in other if home == unit)
        count += before != after
    return count


def squares(schema: Schema, tables: Iterable[tuple[int, ...]]) -> dict[View, float]:
    """The largest |H_d M_d m|² of some moves, for every residual."""
    residuals = Residuals(schema.grid)
    best: dict[View, float] = {}
    moves = [np.array(move).reshape(schema.shape) for move in tables]
    for view in list_coarser_views(schema.grid.full):
        if not any(view) or not residuals.varies(view):
            continue
        best[view] = 0.0
        for move in moves:
            part = residuals.center(view, residuals.table(move, schema.grid.full, view))
            best[view] = max(best[view], float((part**2).sum()))
    return best
