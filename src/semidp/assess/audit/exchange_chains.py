"""Whether two datasets are exchanges of each other: one person with one record, or with several.

A person with up to m records is set by m exchanges, one after the other, so that two datasets are
adjacent if a chain of so many joins them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.exchange_moves import (
    ALTERNATIVE,
    PERSON,
    Block,
    ExchangeMove,
    list_handovers,
)
from semidp.promise.spaces.exchange_blocks import Blocks

_MOST_PEOPLE = 2_000_000  # pairs of records that are tried as who moves from where to where
_MOST_STEPS = 2_000  # datasets on the way that are tried

Record = tuple[Any, ...]
"""A leaf of every feature, then the values of the outcomes."""


def is_reachable(
    blocks: Blocks, before: Counter[Record], after: Counter[Record], exchanges: int
) -> bool:
    """Whether at most `exchanges` exchanges turn one multiset of records into the other.

    One exchange is decided by its definition. Of several, those on the way are sought among
    exchanges that bring the two closer; where very many could be, the search ends and says no.

    Parameters
    ----------
    blocks
        The published blocks.
    before, after
        How often each record occurs.
    exchanges
        How many exchanges there may be.
    """
    return _ExchangeSearch(blocks, after).reaches(before, exchanges)


class _ExchangeSearch:
    """The search for exchanges that lead to a dataset."""

    def __init__(self, blocks: Blocks, after: Counter[Record]) -> None:
        self.blocks, self.after, self.steps = blocks, after, 0
        self.seen: set[tuple[int, frozenset[tuple[Record, int]]]] = set()

    def reaches(self, current: Counter[Record], exchanges: int) -> bool:
        """Whether the target dataset is at most `exchanges` exchanges away."""
        apart = sum((current - self.after).values())
        if not apart:
            return True
        # an exchange changes one record, and one for each block
        if apart > exchanges * (self.blocks.count + 1):
            return False
        if _arises(self.blocks, current, self.after) or _arises(self.blocks, self.after, current):
            return True
        if exchanges == 1:
            return False
        key = exchanges, frozenset(current.items())
        if key in self.seen or self.steps >= _MOST_STEPS:
            return False
        self.seen.add(key)
        self.steps += 1
        return any(self.reaches(closer, exchanges - 1) for closer in self._closer(current))

    def _closer(self, current: Counter[Record]) -> Iterator[Counter[Record]]:
        """The datasets one exchange away, the nearest first."""
        gone, new = current - self.after, self.after - current
        # most of all somebody who left a place goes to one that was taken
        yield from self._rank_exchanges(current, product(gone, new), list(gone))
        yield from self._rank_exchanges(current, product(current, self.after), list(current))

    def _rank_exchanges(
        self, current: Counter[Record], people: Any, carriers: list[Record]
    ) -> list[Counter[Record]]:
        reached: dict[frozenset[tuple[Record, int]], Counter[Record]] = {}
        for x, y in people:
            if len(reached) > _MOST_STEPS:
                break
            if x != y:
                for change in _Journey(self.blocks, current, x, y).list_changes(carriers):
                    change.update(current)
                    dataset = +change
                    reached[frozenset(dataset.items())] = dataset
        return sorted(reached.values(), key=lambda each: sum((each - self.after).values()))


class _Journey:
    """The exchanges of a dataset in which one person goes from x to y."""

    def __init__(self, blocks: Blocks, before: Counter[Record], x: Record, y: Record) -> None:
        self.blocks, self.x, self.y = blocks, x, y
        self.axes = tuple(range(len(blocks.structure.schema.features)))
        self.others = before - Counter([x])
        self.published: list[Block] = []
        self.differing = []
        for margin in blocks.margins:
            source, target = (self._nodes(record, margin.view) for record in (x, y))
            self.published.append({axis: margin.view[axis] for axis in list_axes(margin.view)})
            self.differing.append([axis for axis in self.axes if source[axis] != target[axis]])

    def _nodes(self, record: Record, view: View) -> tuple[int, ...]:
        return self.blocks.nodes(record[: len(self.axes)], view)

    def list_changes(
        self, carriers: Iterable[Record], wanted: Counter[Record] | None = None
    ) -> Iterator[Counter[Record]]:
        """Yield how often each record occurs more after an exchange whose carriers are among some
        records; with `wanted`, only that change.
        """
        person = Counter({self.x: -1})
        person[self.y] += 1
        if wanted is not None:
            wanted = _subtract(wanted, person)
            # Each block that changes needs a carrier, and a carrier may serve several.
            if _size(wanted) > 2 * sum(map(bool, self.differing)):
                return
        for move in list_handovers(self.published, self.differing, self.axes):
            for change in self._serve(move, 1, self.others, carriers, wanted):
                change.update(person)
                yield change

    def _serve(
        self,
        move: ExchangeMove,
        number: int,
        others: Counter[Record],
        carriers: Iterable[Record],
        wanted: Counter[Record] | None,
    ) -> Iterator[Counter[Record]]:
        """Yield what the carriers from a number on change, each of them one other record."""
        left = len(move.records) - number
        # A carrier leaves one place and takes another, so it accounts for two entries of a change.
        if wanted is not None and _size(wanted) > 2 * left:
            return
        if not left:
            yield Counter()
            return
        if wanted is not None and left == 1:
            carriers = [record for record, count in wanted.items() if count < 0]
        described = move.records[number]
        depths = dict.fromkeys(self.axes, 0)
        for rule in move.rules:
            if rule.letters == (described.before[0], ALTERNATIVE):
                depths[rule.axis] = rule.depth
        view = tuple(depths.values())
        target = self._nodes(self.y, view)
        for record in carriers:
            if others[record] < 1 or self._nodes(record, view) != target:
                continue
            moved = list(record)
            for axis, letter in enumerate(described.after):
                if letter == PERSON:
                    moved[axis] = self.x[axis]
            step = Counter({record: -1})
            step[tuple(moved)] += 1
            missing = None if wanted is None else _subtract(wanted, step)
            for change in self._serve(
                move, number + 1, others - Counter([record]), carriers, missing
            ):
                change.update(step)
                yield change


def _arises(blocks: Blocks, before: Counter[Record], after: Counter[Record]) -> bool:
    """Whether one person and its carriers turn one multiset of records into the other, by the
    definition in `Blocks`.

    Who moves is first sought among the records that differ. Where somebody else takes the very
    place that the person leaves, or leaves the one that it takes, all records are tried, unless
    they are too many.
    """
    gone, new = before - after, after - before
    if not gone:
        return True
    change = Counter(after)
    change.subtract(before)
    movers = product(gone, new)
    if any(_can_explain_change(blocks, before, x, y, change) for x, y in movers):
        return True
    if len(before) * len(after) > _MOST_PEOPLE:
        return False
    movers = product(before, after)
    return any(_can_explain_change(blocks, before, x, y, change) for x, y in movers)


def _can_explain_change(
    blocks: Blocks, before: Counter[Record], x: Record, y: Record, change: Counter[Record]
) -> bool:
    """Whether carriers make up the change when one person goes from x to y."""
    exchanges = _Journey(blocks, before, x, y)
    return any(True for _ in exchanges.list_changes(list(exchanges.others), change))


def _subtract(change: Counter[Record], part: Counter[Record]) -> Counter[Record]:
    """What is left of a change; counts may be negative."""
    left = Counter(change)
    left.subtract(part)
    return left


def _size(change: Counter[Record]) -> int:
    return sum(map(abs, change.values()))
