"""Units and their members in two files, and the pairs that a promise compares: from its words.

Nothing here imports the package. A town is the own leaves of every unit, and the unit and the own
leaves of every member. Members have the features of their unit as well.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from attrs import frozen

from tests.twins.people import Block, Leaf, Record, World, replaced, swap

Member = tuple[int, Record]


@frozen
class Town:
    """The own leaves of every unit, and every member: its unit and its own leaves."""

    units: tuple[Record, ...]
    members: tuple[Member, ...]


@frozen(slots=False)
class Homes:
    """What the files have, and what is exact.

    Parameters
    ----------
    own, names
        The columns of the features of units, and of members.
    own_leaves, leaves
        Their leaves.
    unit_blocks, member_blocks
        Exact totals of units by their own features, and of members by those of their unit and
        their own, numbered in this order.
    least, most
        The bounds on the members of a unit.
    protect
        ``member`` or ``unit``.
    quarters
        The own feature whose level 1 means group quarters; None if there are none.
    typed
        Whether units have a type that depends on their members: 1 if the first feature of members
        has two levels there.
    """

    own: tuple[tuple[str, ...], ...]
    own_leaves: tuple[tuple[Leaf, ...], ...]
    names: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[Leaf, ...], ...]
    unit_blocks: tuple[Block, ...]
    member_blocks: tuple[Block, ...]
    least: int
    most: int
    protect: str
    quarters: int | None = None
    typed: bool = False

    @cached_property
    def member_world(self) -> World:
        """Members as records, with the features of their unit first."""
        return World((*self.own, *self.names), (*self.own_leaves, *self.leaves), self.member_blocks)

    @cached_property
    def unit_world(self) -> World:
        """Units as records: own features, size and type."""
        sizes = tuple((str(size),) for size in range(self.least, self.most + 1))
        own = [number for number in range(len(self.own)) if number != self.quarters]
        return World(
            (*(self.own[number] for number in own), ("size",), ("type",)),
            (*(self.own_leaves[number] for number in own), sizes, (("0",), ("1",))),
        )

    def is_counted(self, unit: Record) -> bool:
        """Whether a unit is a household and no quarters."""
        return self.quarters is None or unit[self.quarters] == ("0",)

    def member_records(self, town: Town) -> list[Record]:
        return [(*town.units[unit], *own) for unit, own in town.members]

    def unit_records(self, town: Town) -> list[Record]:
        inside: list[list[Record]] = [[] for _ in town.units]
        for unit, own in town.members:
            inside[unit].append(own)
        found = []
        for own, members in zip(town.units, inside, strict=True):
            if self.is_counted(own):
                mixed = self.typed and len({member[0] for member in members}) > 1
                kept = (leaf for number, leaf in enumerate(own) if number != self.quarters)
                found.append((*kept, (str(len(members)),), (str(int(mixed)),)))
        return found

    def totals(self, town: Town) -> list[Counter[tuple[Leaf, ...]]]:
        """Everything that is exact."""
        counted = [
            Counter(
                tuple(unit[number][:depth] for number, depth in block)
                for unit in town.units
                if self.is_counted(unit)
            )
            for block in self.unit_blocks
        ]
        return counted + self.member_world.totals(self.member_records(town))

    def fits(self, town: Town) -> bool:
        """Whether every household has a possible size."""
        sizes = Counter(unit for unit, _ in town.members)
        return all(
            self.least <= sizes[number] <= self.most
            for number, unit in enumerate(town.units)
            if self.is_counted(unit)
        )


def distance(one: Sequence[object], two: Sequence[object]) -> int:
    """In how many records two files differ, whoever is whose."""
    return sum((Counter(one) - Counter(two)).values())


Score = Callable[[Town, Town], float]


class TownPairs:
    """Pairs of towns with the totals of a town that a promise compares.

    `limits` are the numbers of members that may differ, and where whole units are protected those
    of units: in own features, in these or their size, in anything.
    """

    def __init__(
        self, homes: Homes, town: Town, relation: str, limits: Sequence[int], rng: random.Random
    ) -> None:
        self.homes, self.town, self.limits, self.rng = homes, town, tuple(limits), rng
        self.exchange = relation == "exchange"
        self.totals = homes.totals(town)

    def is_in_space(self, town: Town) -> bool:
        return self.homes.fits(town) and self.homes.totals(town) == self.totals

    # --- one town ---------------------------------------------------------------------------------

    def edit(self, town: Town, rng: random.Random, units_too: bool) -> Town | None:
        """A town that differs a little and has the same totals; None if the draw does not."""
        homes, units, members = self.homes, list(town.units), list(town.members)
        one, two = rng.randrange(len(members)), rng.randrange(len(members))
        (home, own), (home_two, own_two) = members[one], members[two]
        kind = rng.randrange(7 if units_too else 5)
        if kind == 0:
            members[one] = (rng.randrange(len(units)), own)
        elif kind == 1:
            members[one], members[two] = (home_two, own), (home, own_two)
        elif kind == 2:
            number = rng.randrange(len(own))
            members[one] = (home, replaced(own, number, rng.choice(homes.leaves[number])))
        elif kind == 3:
            number = rng.randrange(len(own))
            new, new_two = swap(own, own_two, ((number, 1),))
            members[one], members[two] = (home, new), (home_two, new_two)
        elif kind == 4:
            members[one] = (rng.randrange(len(units)), own_two)
            members[two] = (home, own)
        else:
            first, second = rng.randrange(len(units)), rng.randrange(len(units))
            number = rng.randrange(len(homes.own))
            if number == homes.quarters:
                return None
            if kind == 5:
                leaf = rng.choice(homes.own_leaves[number])
                units[first] = replaced(units[first], number, leaf)
            else:
                units[first], units[second] = swap(units[first], units[second], ((number, 1),))
        after = Town(tuple(units), tuple(members))
        return after if self.is_in_space(after) else None

    def walk(self, steps: int = 30) -> Town:
        town = self.town
        for _ in range(steps):
            town = self.edit(town, self.rng, True) or town
        return town

    # --- two towns --------------------------------------------------------------------------------

    def is_within(self, one: Town, two: Town) -> bool:
        """Whether two towns differ in no more than the promise says."""
        homes = self.homes
        changed = distance(
            [(unit, own, one.units[unit]) for unit, own in one.members],
            [(unit, own, two.units[unit]) for unit, own in two.members],
        )
        if homes.protect == "member":
            return one.units == two.units and changed <= self.limits[0]
        members = distance(homes.member_records(one), homes.member_records(two))
        first, second = homes.unit_records(one), homes.unit_records(two)
        sizes = [[record[:-1] for record in records] for records in (first, second)]
        inside = [
            [
                (town.units[n], tuple(sorted(o for u, o in town.members if u == n)))
                for n in range(len(town.units))
            ]
            for town in (one, two)
        ]
        found = (members, distance(one.units, two.units), distance(*sizes), distance(*inside))
        return all(number <= limit for number, limit in zip(found, self.limits, strict=True))

    def draw_neighbor(self, town: Town) -> Town | None:
        """Any town that the promise compares with a town; None if the draw is none."""
        if self.exchange:
            return self.carried(town, self.rng)
        after = town
        for _ in range(self.rng.randint(1, 8)):
            found = self.edit(after, self.rng, self.homes.protect == "unit")
            if found is not None and self.is_within(town, found):
                after = found
        return after

    def find_worst(self, score: Score, rounds: int, steps: int) -> list[tuple[Town, Town]]:
        """The pairs with the largest scores that some searches end at, the worst first."""
        found = []
        for _ in range(rounds):
            one = self.walk()
            two, height, seed = one, 0.0, 0
            for _ in range(steps):
                first, second, new_seed = one, two, self.rng.random()
                if self.exchange:
                    if self.rng.random() < 0.5:
                        first, new_seed = self.edit(one, self.rng, True) or one, seed
                    second = self.carried(first, random.Random(new_seed))
                elif self.rng.random() < 0.3:
                    first = self.edit(one, self.rng, self.homes.protect == "unit")
                else:
                    second = self.edit(two, self.rng, self.homes.protect == "unit")
                if first is None or second is None:
                    continue
                if not self.exchange and not self.is_within(first, second):
                    continue
                reached = score(first, second)
                if reached >= height:
                    one, two, height, seed = first, second, reached, new_seed
            found.append((height, one, two))
        found.sort(key=lambda each: -each[0])
        return [(one, two) for _, one, two in found]

    # --- exchanges --------------------------------------------------------------------------------

    def carried(self, town: Town, rng: random.Random) -> Town | None:
        """What an exchange makes of a town; None where the draw is none."""
        make = self._moved_member if self.homes.protect == "member" else self._changed_unit
        after = make(town, rng)
        return after if after is not None and self.is_in_space(after) else None

    def _moved_member(self, town: Town, rng: random.Random) -> Town | None:
        """One member becomes anybody in any unit; carriers hand over, and somebody makes room."""
        homes, inherited = self.homes, len(self.homes.own)
        members, records = list(town.members), homes.member_records(town)
        person, home = rng.randrange(len(members)), rng.randrange(len(town.units))
        own = tuple(rng.choice(leaves) for leaves in homes.leaves)
        old, new = records[person], (*town.units[home], *own)
        old_home = members[person][0]
        members[person] = (home, own)
        short, alone = old_home, False
        for block in homes.member_blocks:
            differ = [
                number for number, depth in block if old[number][:depth] != new[number][:depth]
            ]
            if not differ:
                continue
            wanted = homes.member_world.value(new, block)
            able = [
                place
                for place, record in enumerate(records)
                if place != person and homes.member_world.value(record, block) == wanted
            ]
            if not able:
                return None
            carrier = rng.choice(able)
            where, leaves = members[carrier]
            for number in differ:
                if number >= inherited:
                    leaves = replaced(leaves, number - inherited, old[number])
            if any(number < inherited for number in differ):
                short, where = town.members[carrier][0], old_home
                alone = all(number < inherited for number, _ in block)
            members[carrier] = (where, leaves)
        after = Town(town.units, tuple(members))
        if homes.fits(after):
            return after
        if alone:
            return None  # the carrier has to be a member of the new unit
        able = [
            place
            for place, (unit, _) in enumerate(town.members)
            if unit == home and place != person and members[place][0] == unit
        ]
        if not able or short == home:
            return None
        place = rng.choice(able)
        members[place] = (short, members[place][1])
        return Town(town.units, tuple(members))

    def _changed_unit(self, town: Town, rng: random.Random) -> Town | None:
        """One unit gets other own features and other members; carriers hand over, others take in
        whom it loses, and give whom it gains.
        """
        homes = self.homes
        number = rng.randrange(len(town.units))
        units = list(town.units)
        own = tuple(rng.choice(leaves) for leaves in homes.own_leaves)
        if not hand_over(units, number, own, homes.unit_blocks, (), rng):
            return None
        where = [unit for unit, _ in town.members]
        records = [record for _, record in town.members]
        mine = [place for place, unit in enumerate(where) if unit == number]
        others = [place for place, unit in enumerate(where) if unit != number]
        size = rng.randint(homes.least, homes.most)
        if size > len(mine):
            if size - len(mine) > len(others):
                return None
            mine += rng.sample(others, size - len(mine))
        else:
            rng.shuffle(mine)
            for place in mine[size:]:
                where[place] = rng.choice([n for n in range(len(units)) if n != number])
            mine = mine[:size]
        done: list[int] = []
        for place in mine:
            where[place] = number
            new = tuple(rng.choice(leaves) for leaves in homes.leaves)
            blocks = tuple(
                tuple((n - len(homes.own), d) for n, d in b) for b in homes.member_blocks
            )
            if not hand_over(records, place, new, blocks, done, rng):
                return None
            done.append(place)
        return Town(tuple(units), tuple(zip(where, records, strict=True)))


def hand_over(
    records: list[Record],
    place: int,
    new: Record,
    blocks: Sequence[Block],
    done: Sequence[int],
    rng: random.Random,
) -> bool:
    """Let one record become another one, and carriers take its old leaves; False if nobody can."""
    before, old = records[:], records[place]
    records[place] = new
    for block in blocks:
        differ = [n for n, depth in block if old[n][:depth] != new[n][:depth]]
        if not differ:
            continue
        able = [
            other
            for other, record in enumerate(before)
            if other != place
            and other not in done
            and all(record[n][:depth] == new[n][:depth] for n, depth in block)
        ]
        if not able:
            return False
        carrier = rng.choice(able)
        for n in differ:
            records[carrier] = replaced(records[carrier], n, old[n])
    return True
