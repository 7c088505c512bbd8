"""Records of one file, and the pairs that a promise compares: from the words of the promise.

Nothing here imports the package. A record has a leaf of every feature, and a leaf is its path from
the coarsest column to the finest one. An outcome is a feature like any other.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from attrs import field, frozen

Leaf = tuple[str | None, ...]
Record = tuple[Leaf, ...]
Block = tuple[tuple[int, int], ...]  # features by number, each with the depth that is published
Score = Callable[[Sequence[Record], Sequence[Record]], float]


@frozen(slots=False)
class World:
    """Columns, their values, and what is exact.

    Parameters
    ----------
    names
        The columns of every feature, from the coarsest to the finest.
    leaves
        The possible leaves of every feature.
    blocks
        The exact totals.
    zeros
        Combinations that cannot occur: some features, each with a leaf.
    most
        The most records of one person.
    loose
        Features whose leaf below a published node is not handed over with the node: who answered.
    """

    names: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[Leaf, ...], ...]
    blocks: tuple[Block, ...] = ()
    zeros: tuple[tuple[tuple[int, Leaf], ...], ...] = ()
    most: int = 1
    loose: frozenset[int] = field(factory=frozenset)

    def value(self, record: Record, block: Block) -> tuple[Leaf, ...]:
        """What is published of a record in a block."""
        return tuple(record[number][:depth] for number, depth in block)

    def totals(self, records: Iterable[Record]) -> list[Counter[tuple[Leaf, ...]]]:
        """The exact totals."""
        found = list(records)
        return [Counter(self.value(record, block) for record in found) for block in self.blocks]

    def is_possible(self, record: Record) -> bool:
        """Whether no zero forbids a record."""
        return not any(all(record[f] == leaf for f, leaf in zero) for zero in self.zeros)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The deepest depth of each feature that is published."""
        found = [0] * len(self.names)
        for number, depth in itertools.chain(*self.blocks):
            found[number] = max(found[number], depth)
        return tuple(found)

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """The feature and the depth of every column."""
        return {
            name: (number, depth)
            for number, columns in enumerate(self.names)
            for depth, name in enumerate(columns, 1)
        }

    @cached_property
    def overlaps(self) -> bool:
        """Whether a feature lies in two blocks."""
        axes = [number for number, _ in itertools.chain(*self.blocks)]
        return len(set(axes)) < len(axes)

    def rows(self, records: Sequence[Record]) -> dict[str, list[str | None]]:
        """The columns of a file of these records."""
        return {
            name: [record[number][depth - 1] for record in records]
            for name, (number, depth) in self.places.items()
        }


@frozen
class Pair:
    """Two datasets: the records that differ, before and after, and all others."""

    before: tuple[Record, ...]
    after: tuple[Record, ...]
    rest: tuple[Record, ...]

    @property
    def first(self) -> list[Record]:
        return [*self.before, *self.rest]

    @property
    def second(self) -> list[Record]:
        return [*self.after, *self.rest]


class Pairs:
    """Pairs of datasets with the totals of some records that a promise compares.

    Under the ball any `a` records differ. Under exchange one person differs, and for every block in
    which the published values differ another record, which had the new value, takes over the
    person's leaves on the features that differ; a person with several records makes several
    exchanges.
    """

    def __init__(
        self, world: World, records: Sequence[Record], relation: str, a: int, rng: random.Random
    ) -> None:
        self.world, self.records, self.a, self.rng = world, list(records), a, rng
        self.exchange = relation == "exchange"
        self.totals = world.totals(records)
        self.of_feature: list[dict[Leaf, list[Leaf]]] = []
        for leaves in world.leaves:
            below: dict[Leaf, list[Leaf]] = {}
            for leaf in leaves:
                for depth in range(len(leaf) + 1):
                    below.setdefault(leaf[:depth], []).append(leaf)
            self.of_feature.append(below)

    # --- one dataset ------------------------------------------------------------------------------

    def walk(self, steps: int = 30) -> list[Record]:
        """Another dataset with the same totals: records swap values of a block, or change what is
        not published.
        """
        records = self.records[:]
        for _ in range(steps):
            one, two = (self.rng.randrange(len(records)) for _ in range(2))
            if self.world.blocks and self.rng.random() < 0.5:
                block = self.rng.choice(self.world.blocks)
                changed = swap(records[one], records[two], block)
            else:
                changed = (self.with_free_leaf(records[one]), records[two])
            if one == two or not all(map(self.world.is_possible, changed)):
                continue
            after = records[:]
            after[one], after[two] = changed
            if not self.world.overlaps or self.world.totals(after) == self.totals:
                records = after
        self.rng.shuffle(records)
        return records

    def with_free_leaf(self, record: Record) -> Record:
        """The record with another leaf of one feature below what is published."""
        number = self.rng.randrange(len(record))
        below = self.of_feature[number][record[number][: self.world.depths[number]]]
        return (*record[:number], self.rng.choice(below), *record[number + 1 :])

    def fill(self, before: Sequence[Record]) -> tuple[Record, ...] | None:
        """Other records, so that the totals are the exact ones; None if none were found."""
        count = len(self.records) - len(before)
        left = []
        for total, used in zip(self.totals, self.world.totals(before), strict=True):
            if not used <= total:
                return None
            left.append([*(total - used).elements()])
        for _ in range(40 if self.world.zeros else 1):
            rows = [[self.rng.choice(leaves) for leaves in self.world.leaves] for _ in range(count)]
            for block, values in zip(self.world.blocks, left, strict=True):
                self.rng.shuffle(values)
                for row, value in zip(rows, values, strict=True):
                    for (number, _), node in zip(block, value, strict=True):
                        row[number] = self.rng.choice(self.of_feature[number][node])
            found = tuple(map(tuple, rows))
            if all(map(self.world.is_possible, found)):
                return found
        return None

    # --- two datasets -----------------------------------------------------------------------------

    def draw(self) -> Pair | None:
        """Any pair; None if none was found."""
        for _ in range(40):
            pair = self._exchanged(self._genome()) if self.exchange else self._balled()
            if pair is not None:
                return pair
        return None

    def draw_neighbor(self, records: Sequence[Record]) -> list[Record] | None:
        """Any dataset that the promise compares with a dataset; None if the draw is none."""
        self.rng.shuffle(order := list(range(len(records))))
        if self.exchange:
            after = list(records)
            for _ in range(self.rng.randint(1, self.world.most)):
                if not self._exchange_rows(after):
                    return None
        else:
            places = order[: self.rng.randint(1, max(1, min(self.a, len(records))))]
            after = list(records)
            for block in self.world.blocks:
                for place, other in zip(places, self.rng.sample(places, len(places)), strict=True):
                    for number, _ in block:
                        leaf = records[other][number]
                        after[place] = replaced(after[place], number, leaf)
            for place in places:
                after[place] = self.with_free_leaf(after[place])
        if not all(map(self.world.is_possible, after)) or self.world.totals(after) != self.totals:
            return None
        return after

    def _exchange_rows(self, records: list[Record]) -> bool:
        """Let one person become anybody possible, and carriers take over what changed."""
        world, before = self.world, records[:]
        person = self.rng.randrange(len(records))
        old, new = records[person], tuple(self._anybody())
        records[person] = new
        for block in world.blocks:
            axes = [number for number, depth in block if old[number][:depth] != new[number][:depth]]
            wanted = world.value(new, block)
            able = [
                place
                for place, record in enumerate(before)
                if place != person and world.value(record, block) == wanted
            ]
            if axes and not able:
                return False
            carrier = self.rng.choice(able) if axes else person
            for number in axes:
                leaf = old[number]
                if number in world.loose:
                    leaf = self.rng.choice(self.of_feature[number][leaf[: dict(block)[number]]])
                records[carrier] = replaced(records[carrier], number, leaf)
        return True

    def find_worst(self, score: Score, rounds: int, steps: int) -> list[Pair]:
        """The pairs with the largest scores that some searches end at, the worst first."""
        found = []
        for _ in range(rounds):
            best, height = self.draw(), 0.0
            if best is None:
                return []
            height = score(best.before, best.after)
            genome = self.genome if self.exchange else None
            for _ in range(steps):
                if genome is not None:
                    changed = self._mutated(genome)
                    pair = self._exchanged(changed)
                else:
                    changed, pair = None, self._nearby(best)
                if pair is None:
                    continue
                reached = score(pair.before, pair.after)
                if reached >= height:
                    best, height, genome = pair, reached, changed
            found.append((height, best))
        found.sort(key=lambda each: -each[0])
        return [pair for _, pair in found]

    def _balled(self) -> Pair | None:
        """Some of a dataset's records, with their published values handed around."""
        records = self.walk()
        count = min(self.a, len(records))
        before = records[:count]
        for _ in range(20):
            after = [list(record) for record in before]
            for block in self.world.blocks:
                order = self.rng.sample(range(count), count)
                for place, other in enumerate(order):
                    for number, _ in block:
                        after[place][number] = before[other][number]
            done = [self.with_free_leaf(tuple(record)) for record in after]
            if self._is_compared(before, done):
                return Pair(tuple(before), tuple(done), tuple(records[count:]))
        return None

    def _is_compared(self, before: Sequence[Record], after: Sequence[Record]) -> bool:
        return all(map(self.world.is_possible, after)) and self.world.totals(
            before
        ) == self.world.totals(after)

    def _nearby(self, pair: Pair) -> Pair | None:
        """A pair of the ball that differs a little from a pair."""
        rng, world = self.rng, self.world
        sides = [list(pair.before), list(pair.after)]
        free = not world.overlaps
        side = sides[rng.randrange(2)] if free else sides[1]
        one = rng.randrange(len(side))
        kind = rng.random()
        if not world.blocks or kind < 0.4:
            side[one] = self.with_free_leaf(side[one])
        elif kind < 0.75 or not free:
            two = rng.randrange(len(side))
            if one == two:
                return None
            side[one], side[two] = swap(side[one], side[two], rng.choice(world.blocks))
        else:
            number = rng.randrange(len(world.blocks))
            block = world.blocks[number]
            old = world.value(sides[0][one], block)
            new = rng.choice([*self.totals[number]])
            two = rng.choice([p for p, r in enumerate(sides[1]) if world.value(r, block) == old])
            for records, place in ((sides[0], one), (sides[1], two)):
                record = list(records[place])
                for (axis, _), node in zip(block, new, strict=True):
                    record[axis] = rng.choice(self.of_feature[axis][node])
                records[place] = tuple(record)
        before, after = map(tuple, sides)
        if not all(map(world.is_possible, before)) or not self._is_compared(before, after):
            return None
        if before == pair.before:
            return Pair(before, after, pair.rest)
        rest = self.fill(before)
        return None if rest is None else Pair(before, after, rest)

    # --- exchanges --------------------------------------------------------------------------------

    def _anybody(self) -> list[Leaf]:
        """A record whose published values occur."""
        record = [self.rng.choice(leaves) for leaves in self.world.leaves]
        for block, total in zip(self.world.blocks, self.totals, strict=True):
            value = self.rng.choice([*total.elements()])
            for (number, _), node in zip(block, value, strict=True):
                record[number] = self.rng.choice(self.of_feature[number][node])
        return record

    def _genome(self) -> list[list[list[Leaf]]]:
        """Who takes part in each exchange: the person before and after, and a carrier a block,
        possibly the same for several.
        """
        genome = []
        for _ in range(self.rng.randint(1, self.world.most)):
            carriers: list[list[Leaf]] = []
            for _ in self.world.blocks:
                shared = carriers and self.rng.random() < 0.3
                carriers.append(self.rng.choice(carriers) if shared else self._anybody())
            genome.append([self._anybody(), self._anybody(), *carriers])
        return genome

    def _mutated(self, genome: list[list[list[Leaf]]]) -> list[list[list[Leaf]]]:
        """The same with one thing changed."""
        rng = self.rng
        same: dict[int, list[Leaf]] = {}
        copied = [[same.setdefault(id(r), r[:]) for r in each] for each in genome]
        each = rng.choice(copied)
        kind = rng.random()
        if kind < 0.1 and len(copied) < self.world.most:
            return [*copied, [record[:] for record in each]]
        record = rng.choice(each)
        if kind < 0.4:
            other = rng.choice(each)
            for number in rng.sample(range(len(record)), rng.randint(1, len(record))):
                record[number] = other[number]
        elif kind < 0.5:
            each[each.index(record)] = self._anybody()
        elif kind < 0.6 and len(each) > 3:
            each[rng.randrange(2, len(each))] = each[rng.randrange(2, len(each))]
        else:
            fresh = self._anybody()
            number = rng.randrange(len(record))
            record[number] = fresh[number]
        return copied

    def _exchanged(self, genome: list[list[list[Leaf]]]) -> Pair | None:
        """What comes of a genome by the definition; None where the totals do not allow it."""
        world, rng = self.world, self.rng
        before: list[Record] = []
        after: list[Record] = []
        for person, becomes, *carriers in genome:
            changes: dict[int, tuple[list[Leaf], list[Leaf]]] = {}
            for block, carrier in zip(world.blocks, carriers, strict=True):
                axes = [
                    number
                    for number, depth in block
                    if person[number][:depth] != becomes[number][:depth]
                ]
                if not axes:
                    continue
                if id(carrier) not in changes:
                    changes[id(carrier)] = carrier, carrier[:]
                old, new = changes[id(carrier)]
                for number, depth in block:
                    if old[number][:depth] != becomes[number][:depth]:
                        below = self.of_feature[number][becomes[number][:depth]]
                        old[number] = new[number] = rng.choice(below)
                for number in axes:
                    new[number] = person[number]
                    if number in world.loose:
                        depth = dict(block)[number]
                        new[number] = rng.choice(self.of_feature[number][person[number][:depth]])
            before += [tuple(person), *(tuple(old) for old, _ in changes.values())]
            after += [tuple(becomes), *(tuple(new) for _, new in changes.values())]
        if len(before) > len(self.records):
            return None
        self.genome = genome
        if not all(map(world.is_possible, before)) or not self._is_compared(before, after):
            return None
        rest = self.fill(before)
        return None if rest is None else Pair(tuple(before), tuple(after), rest)


def swap(one: Record, two: Record, block: Block) -> tuple[Record, Record]:
    """Two records after they swapped their leaves of a block."""
    axes = {number for number, _ in block}
    first = tuple(
        b if number in axes else a for number, (a, b) in enumerate(zip(one, two, strict=True))
    )
    second = tuple(
        a if number in axes else b for number, (a, b) in enumerate(zip(one, two, strict=True))
    )
    return first, second


def replaced(record: Record, number: int, leaf: Leaf) -> Record:
    """A record with another leaf of one feature."""
    return (*record[:number], leaf, *record[number + 1 :])
