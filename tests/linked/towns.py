"""Small towns, and every pair of them that the promise about a whole unit names, from its words.

A unit is its own leaves and a sorted tuple of members; a member is its own leaves. Nothing here
uses the package: what it claims is compared with this in `test_unit_promise.py`.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from attrs import frozen

Leaf = tuple[str, ...]  # the path from the top of a feature
Member = tuple[Leaf, ...]
Unit = tuple[tuple[Leaf, ...], tuple[Member, ...]]
Town = tuple[Unit, ...]
Block = tuple[tuple[int, int], ...]  # features by number, each with the depth that is published

FLAT = (("0",), ("1",))
THREE = (("0",), ("1",), ("2",))
NESTED = (("A", "a1"), ("A", "a2"), ("B", "b1"))


@frozen(slots=False)
class Kind:
    """Features of units and members, bounds on sizes, and what is exact of each kind.

    Parameters
    ----------
    own, features
        The leaves of every own feature of units, and of members.
    inherited
        Which own features of units members have, by number.
    least, most
        The bounds on the members of a unit.
    unit_blocks, member_blocks
        Exact totals of units by own features, and of members by own features.
    """

    own: tuple[tuple[Leaf, ...], ...]
    features: tuple[tuple[Leaf, ...], ...]
    inherited: tuple[int, ...]
    least: int
    most: int
    unit_blocks: tuple[Block, ...] = ()
    member_blocks: tuple[Block, ...] = ()

    @cached_property
    def members(self) -> list[Member]:
        return list(itertools.product(*self.features))

    @cached_property
    def units(self) -> list[Unit]:
        fills = []
        for size in range(self.least, self.most + 1):
            fills += itertools.combinations_with_replacement(sorted(self.members), size)
        return list(itertools.product(itertools.product(*self.own), fills))

    def totals(self, town: Town) -> tuple[object, ...]:
        """What is exact: units and members by their blocks, and their numbers."""
        found: list[object] = [len(town), sum(len(fill) for _, fill in town)]
        for block in self.unit_blocks:
            found.append(_counts(published(own, block) for own, _ in town))
        for block in self.member_blocks:
            everybody = [member for _, fill in town for member in fill]
            found.append(_counts(published(member, block) for member in everybody))
        return tuple(found)

    def possible(self, town: Town) -> list[Unit]:
        """Every unit that one of them may be: no more of a value than is published, and room for
        the other members elsewhere.
        """
        others, everybody = len(town) - 1, [member for _, fill in town for member in fill]
        found = []
        for own, fill in self.units:
            left = len(everybody) - len(fill)
            fits = self.least * others <= left <= self.most * others
            for block in self.unit_blocks:
                fits &= published(own, block) in {published(one, block) for one, _ in town}
            for block in self.member_blocks:
                there = Counter(published(member, block) for member in everybody)
                fits &= Counter(published(member, block) for member in fill) <= there
            if fits:
                found.append((own, fill))
        return found

    def member_cells(self, town: Town) -> list[tuple[Leaf, ...]]:
        """Every member by the features of units that members have, then its own."""
        cells = []
        for own, fill in town:
            place = tuple(own[number] for number in self.inherited)
            cells += [(*place, *member) for member in fill]
        return cells

    # --- exchanges --------------------------------------------------------------------------------

    def exchanges(self, town: Town, number: int, other: Unit) -> Iterator[Town]:
        """Every exchange in which one unit becomes another one.

        Its own features are exchanged first, then its members one after the other. Whom it takes
        in comes from other units, and whom it gives away goes to them unchanged.
        """
        seen = set()
        for owns in carried([own for own, _ in town], number, other[0], self.unit_blocks, ()):
            records = [(home, member) for home, (_, fill) in enumerate(town) for member in fill]
            for after in self._refilled(records, number, other[1], len(town)):
                sizes = Counter(home for home, _ in after)
                if not all(self.least <= sizes[home] <= self.most for home in range(len(town))):
                    continue
                result = []
                for home, own in enumerate(owns):
                    fill = sorted(member for where, member in after if where == home)
                    result.append((own, tuple(fill)))
                if tuple(result) not in seen:
                    seen.add(tuple(result))
                    yield tuple(result)

    def _refilled(
        self,
        records: list[tuple[int, Member]],
        number: int,
        fill: tuple[Member, ...],
        units: int,
    ) -> Iterator[list[tuple[int, Member]]]:
        """Set the members of one unit one by one, in every way."""
        mine = [place for place, (home, _) in enumerate(records) if home == number]
        others = [place for place in range(len(records)) if place not in mine]
        homes = [home for home in range(units) if home != number]
        if len(fill) >= len(mine):
            for taken in itertools.combinations(others, len(fill) - len(mine)):
                for slots in itertools.permutations((*mine, *taken)):
                    goals = [(number, member) for member in fill]
                    yield from self._set(records, list(zip(slots, goals, strict=True)), ())
            return
        gone_count = len(mine) - len(fill)
        for gone in itertools.combinations(mine, gone_count):
            kept = [place for place in mine if place not in gone]
            for where in itertools.product(homes, repeat=gone_count):
                moved = list(records)
                for place, home in zip(gone, where, strict=True):
                    moved[place] = (home, records[place][1])
                for slots in itertools.permutations(kept):
                    goals = [(number, member) for member in fill]
                    yield from self._set(moved, list(zip(slots, goals, strict=True)), ())

    def _set(
        self,
        records: list[tuple[int, Member]],
        steps: list[tuple[int, tuple[int, Member]]],
        done: tuple[int, ...],
    ) -> Iterator[list[tuple[int, Member]]]:
        if not steps:
            yield records
            return
        (place, (home, member)), *later = steps
        levels = [levels for _, levels in records]
        for after in carried(levels, place, member, self.member_blocks, done):
            changed = [(where, one) for (where, _), one in zip(records, after, strict=True)]
            changed[place] = (home, member)
            yield from self._set(changed, later, (*done, place))


def published(leaves: tuple[Leaf, ...], block: Block) -> tuple[Leaf, ...]:
    """The published value of a unit or a member in a block."""
    return tuple(leaves[axis][:depth] for axis, depth in block)


def _counts(values: Iterator[object]) -> tuple[tuple[object, int], ...]:
    return tuple(sorted(Counter(values).items()))


def carried(
    records: list[tuple[Leaf, ...]],
    place: int,
    new: tuple[Leaf, ...],
    blocks: tuple[Block, ...],
    done: tuple[int, ...],
) -> Iterator[list[tuple[Leaf, ...]]]:
    """One record becomes another one; for every block that changes a record with the new value,
    not set before, takes the old leaves where the published nodes differ.
    """
    old = records[place]
    changed = [block for block in blocks if published(old, block) != published(new, block)]
    choices = []
    for block in changed:
        wanted = published(new, block)
        choices.append(
            [
                other
                for other, leaves in enumerate(records)
                if other != place and other not in done and published(leaves, block) == wanted
            ]
        )
    for carriers in itertools.product(*choices):
        after = [list(leaves) for leaves in records]
        after[place] = list(new)
        for block, carrier in zip(changed, carriers, strict=True):
            for axis, depth in block:
                if old[axis][:depth] != new[axis][:depth]:
                    after[carrier][axis] = old[axis]
        yield [tuple(leaves) for leaves in after]


def fibers(kind: Kind, units: int, members: int) -> dict[tuple[object, ...], list[Town]]:
    """Every town of so many units and members, units in any order, by what is exact."""
    found: dict[tuple[object, ...], list[Town]] = {}
    for town in itertools.combinations_with_replacement(sorted(kind.units), units):
        if sum(len(fill) for _, fill in town) == members:
            found.setdefault(kind.totals(town), []).append(town)
    return found


def differences(one: Town, other: Town) -> tuple[int, int, int, int]:
    """In how many members (who moves differs), and in how many units by own features, up to their
    size, and in anything two towns with named units differ.
    """
    own = size = anything = stayed = 0
    for (owns, fill), (later, refill) in zip(one, other, strict=True):
        own += owns != later
        size += (owns, len(fill)) != (later, len(refill))
        anything += (owns, fill) != (later, refill)
        if owns == later:
            stayed += sum((Counter(fill) & Counter(refill)).values())
    everybody = sum(len(fill) for _, fill in one)
    return everybody - stayed, own, size, anything


def near(
    kind: Kind, towns: list[Town], most: tuple[int, int, int, int], starts: list[int]
) -> list[np.ndarray]:
    """For some towns all that differ in no more than these numbers, whichever unit is which."""
    seen = [
        [kind.member_cells(town) for town in towns],
        [[own for own, _ in town] for town in towns],
        [[(own, len(fill)) for own, fill in town] for town in towns],
        [list(town) for town in towns],
    ]
    within = np.ones((len(starts), len(towns)), dtype=bool)
    for records, limit in zip(seen, most, strict=True):
        cells = sorted({record for one in records for record in one})
        place = {cell: column for column, cell in enumerate(cells)}
        counts = np.zeros((len(towns), max(1, len(cells))), dtype=np.int64)
        for row, one in enumerate(records):
            for record in one:
                counts[row, place[record]] += 1
        for row, start in enumerate(starts):
            apart = counts[start].sum() - np.minimum(counts, counts[start]).sum(axis=1)
            within[row] &= apart <= limit
    return [np.flatnonzero(row) for row in within]
