"""Whether two datasets are exchanges of each other: one person with one record, or with several.

A person with up to m records is set by m exchanges, one after the other, so that two datasets are
adjacent if a chain of so many joins them.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from semidp.promise.spaces.exchange_blocks import Blocks, servings

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
                for dataset in _list_exchanges(self.blocks, current, x, y, carriers):
                    reached[frozenset(dataset.items())] = dataset
        return sorted(reached.values(), key=lambda each: sum((each - self.after).values()))


def _list_exchanges(
    blocks: Blocks, current: Counter[Record], x: Record, y: Record, carriers: list[Record]
) -> Iterator[Counter[Record]]:
    """Every dataset in which one person goes from x to y, with carriers among some records."""
    start = Counter(current)
    start[x] -= 1
    changed = _find_changed_blocks(blocks, x, y)
    axes = len(blocks.structure.schema.features)
    for servers, count in servings(len(changed)):
        chosen = [server for server in servers if server is not None]
        if len(chosen) < len(servers):
            continue
        served: list[list[Any]] = [[] for _ in range(count)]
        for part, server in zip(changed, chosen, strict=True):
            served[server].append(part)
        for dataset in _carried_on(blocks, served, +start, x, axes, carriers):
            dataset[y] += 1
            yield dataset


def _carried_on(
    blocks: Blocks,
    served: list[list[Any]],
    bystanders: Counter[Record],
    x: Record,
    axes: int,
    carriers: list[Record],
) -> Iterator[Counter[Record]]:
    """Multisets of the other records once carriers have served, each taken once."""
    if not served:
        yield Counter(bystanders)
        return
    for record in carriers:
        if bystanders[record] < 1:
            continue
        leaf = record[:axes]
        if any(blocks.nodes(leaf, view) != target for view, target, _ in served[0]):
            continue
        fewer = Counter(bystanders)
        fewer[record] -= 1
        moved = _move_carrier(record, x, served[0])
        for records in _carried_on(blocks, served[1:], +fewer, x, axes, carriers):
            records[moved] += 1
            yield records


def _move_carrier(record: Record, x: Record, served: list[Any]) -> Record:
    """A carrier once it has taken the leaves of x."""
    moved = list(record)
    for _, _, changed in served:
        for axis in changed:
            moved[axis] = x[axis]
    return tuple(moved)


def _find_changed_blocks(blocks: Blocks, x: Record, y: Record) -> list[Any]:
    """The blocks whose published value differs: the view, what y has there, and which features."""
    axes = len(blocks.structure.schema.features)
    differ = []
    for margin in blocks.margins:
        source = blocks.nodes(x[:axes], margin.view)
        target = blocks.nodes(y[:axes], margin.view)
        changed = []
        for axis, (source_node, target_node) in enumerate(zip(source, target, strict=True)):
            if source_node != target_node:
                changed.append(axis)
        if changed:
            differ.append((margin.view, target, changed))
    return differ


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
    unexplained = Counter(change)
    unexplained[x] += 1
    unexplained[y] -= 1
    # The published totals that the person changes: each needs one carrier, and a carrier may serve
    # several.
    differ = _find_changed_blocks(blocks, x, y)
    axes = len(blocks.structure.schema.features)
    # A carrier leaves one place and takes another, so it accounts for two entries of the change.
    if _size(unexplained) > 2 * len(differ):
        return False
    bystanders = Counter(before)
    bystanders[x] -= 1
    for servers, carriers in servings(len(differ)):
        chosen = [server for server in servers if server is not None]
        if len(chosen) < len(servers):
            continue
        served: list[list[Any]] = [[] for _ in range(carriers)]
        for part, server in zip(differ, chosen, strict=True):
            served[server].append(part)
        if _can_match_carriers(blocks, served, bystanders, x, unexplained, axes):
            return True
    return False


def _can_match_carriers(
    blocks: Blocks,
    served: list[list[Any]],
    bystanders: Counter[Record],
    x: Record,
    unexplained: Counter[Record],
    axes: int,
) -> bool:
    """Whether one record for each carrier, each taken once, makes up the unexplained change."""
    if not served:
        return not _size(unexplained)
    if _size(unexplained) > 2 * len(served):
        return False
    if len(served) == 1:
        # The last carrier must leave a place that the change says was left.
        candidates = [record for record, count in unexplained.items() if count < 0]
    else:
        candidates = list(bystanders)
    for record in candidates:
        if bystanders[record] < 1:
            continue
        leaf = record[:axes]
        if any(blocks.nodes(leaf, view) != target for view, target, _ in served[0]):
            continue
        moved = _move_carrier(record, x, served[0])
        remaining = Counter(unexplained)
        remaining[record] += 1
        remaining[moved] -= 1
        fewer = Counter(bystanders)
        fewer[record] -= 1
        if _can_match_carriers(blocks, served[1:], fewer, x, remaining, axes):
            return True
    return False


def _size(change: Counter[Record]) -> int:
    return sum(map(abs, change.values()))
