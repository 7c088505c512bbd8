"""How many other records it can take to carry the values that one record wants.

A record that becomes y needs other records that together agree with y on every published block. In the worst dataset
the carriers of y's values share as little as they can; an integer program over agreement patterns finds how little.
What it means for a(t) is in `adjacency`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

MOST_BLOCKS = 6  # 63 patterns; the program has a row for each of the 203 partitions of six blocks
_LARGEST_COUNT = 100_000  # beyond this the program runs on scaled counts, so that solver tolerances cannot matter
_INFEASIBLE = 2  # scipy's code for a program proven to have no solution

BlockSet = frozenset[int]
BlockSets = tuple[BlockSet, ...]


@dataclass(frozen=True)
class Cover:
    """The largest size of a smallest cover: proven bounds, and the records of one smallest cover of size `least`."""

    least: int
    most: int
    agree: tuple[BlockSet, ...]  # the blocks on which each record of the cover agrees with y
    parts: tuple[BlockSet, ...]  # the blocks that it is needed for: disjoint, together all


@cache
def worst_cover(rarest: tuple[int, ...], others: int) -> Cover:
    """Return the size of the smallest cover of all blocks in the worst dataset.

    Block b has ``rarest[b]`` records that agree with y, all among `others`. If Σ rarest <= others they can all be
    different, and each block needs a record of its own. If not, a cover of size k or more exists iff the records can be
    given patterns (sets of blocks on which they agree with y) such that no k - 1 of them together are all blocks.

    >>> worst_cover((1, 1), 2).least, worst_cover((2, 2), 3).least, worst_cover((1, 1, 1), 2).least
    (2, 1, 2)
    """
    blocks = len(rarest)
    if blocks <= 1 or sum(rarest) <= others:
        single = tuple(frozenset({b}) for b in range(blocks))
        return Cover(blocks, blocks, single, single)
    everything = (frozenset(range(blocks)),)
    if blocks > MOST_BLOCKS:
        return Cover(1, blocks - 1, everything, everything)
    scale = -(-max(rarest) // _LARGEST_COUNT)
    most = blocks - 1
    for size in range(blocks - 1, 1, -1):
        rounded_up = [-(-count // scale) for count in rarest]
        solved = _program(rounded_up, others // scale, size, whole=True)
        if solved:
            used = {}
            for pattern, value in solved.items():
                if round(value) > 0:
                    used[pattern] = scale * round(value)
            cover = _smallest_cover(list(used), blocks)
            if len(cover[0]) >= size and _fits(used, rarest, others):
                return Cover(size, most, *cover)
        # unscaled, the program was the question itself; scaled, real numbers of records are a relaxation of it
        if scale > 1:
            shares = [count / scale for count in rarest]
            solved = _program(shares, others / scale, size, whole=False)
        if solved is None:
            most = size - 1
    return Cover(1, most, everything, everything)


def _fits(used: dict[BlockSet, int], rarest: tuple[int, ...], others: int) -> bool:
    """Whether the records exist, in whole numbers: enough carriers for every block, and not too many in all."""
    if sum(used.values()) > others:
        return False
    for block, needed in enumerate(rarest):
        carried = sum(count for pattern, count in used.items() if block in pattern)
        if carried < needed:
            return False
    return True


def _program(rarest: Sequence[float], others: float, size: int, whole: bool) -> dict[BlockSet, float] | None:
    """Numbers of records by pattern such that no size - 1 patterns in use cover all blocks.

    None where that is impossible, empty where the solver could not decide.

    A pattern is open (z = 1) if records with it, or with a larger one, exist; open patterns are closed under subsets,
    so a cover by fewer than `size` of them exists iff a partition of the blocks into fewer than `size` open ones does.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    blocks = len(rarest)
    patterns = [_block_set(code, blocks) for code in range(1, 1 << blocks)]
    place = {pattern: i for i, pattern in enumerate(patterns)}
    count = len(patterns)
    rows: list[np.ndarray] = []
    tops: list[float] = []

    def at_most(top: float, *entries: tuple[int, float]) -> None:
        row = np.zeros(2 * count)
        for column, value in entries:
            row[column] += value
        rows.append(row)
        tops.append(top)

    # The first half of the columns counts records by pattern, the second half says which patterns are open.
    at_most(others, *((i, 1.0) for i in range(count)))
    for b, needed in enumerate(rarest):
        carriers = [place[pattern] for pattern in patterns if b in pattern]
        at_most(needed, *((column, 1.0) for column in carriers))
        at_most(-needed, *((column, -1.0) for column in carriers))
    for pattern in patterns:
        records, opened = place[pattern], count + place[pattern]
        largest = max(rarest[b] for b in pattern)
        at_most(0, (records, 1.0), (opened, -largest))
        if len(pattern) > 1:
            for b in pattern:
                smaller = count + place[pattern - {b}]
                at_most(0, (opened, 1.0), (smaller, -1.0))
    for parts in _partitions(list(range(blocks))):
        if len(parts) < size:
            at_most(len(parts) - 1, *((count + place[part], 1.0) for part in parts))
    ones = np.ones(count)
    integral = np.concatenate([np.full(count, int(whole)), ones])
    upper = np.concatenate([np.full(count, others), ones])
    solved = milp(
        np.zeros(2 * count),
        constraints=LinearConstraint(np.array(rows), -np.inf, np.array(tops)),
        integrality=integral,
        bounds=Bounds(0, upper),
    )
    if solved.x is None:
        return None if solved.status == _INFEASIBLE else {}
    return {pattern: float(solved.x[i]) for pattern, i in place.items()}


def _block_set(code: int, blocks: int) -> BlockSet:
    """The blocks whose bits are set in a whole number."""
    return frozenset(b for b in range(blocks) if code >> b & 1)


def _smallest_cover(patterns: list[BlockSet], blocks: int) -> tuple[tuple[BlockSet, ...], tuple[BlockSet, ...]]:
    """Return a smallest cover of the blocks by the patterns, and what each of them adds to the earlier ones."""
    # Blocks covered so far, by which patterns, and what each of these added; one more pattern a round.
    reached: dict[BlockSet, tuple[BlockSets, BlockSets]] = {frozenset(): ((), ())}
    everything = frozenset(range(blocks))
    while everything not in reached:
        longer: dict[BlockSet, tuple[BlockSets, BlockSets]] = {}
        for covered, (used, added) in reached.items():
            for pattern in patterns:
                step = ((*used, pattern), (*added, pattern - covered))
                longer.setdefault(covered | pattern, step)
        reached = longer
    return reached[everything]


def _partitions(items: list[int]) -> Iterator[list[BlockSet]]:
    """Iterate over the set partitions of a list."""
    if not items:
        yield []
        return
    first = items[0]
    for parts in _partitions(items[1:]):
        yield [frozenset({first}), *parts]
        for i, part in enumerate(parts):
            yield [*parts[:i], part | {first}, *parts[i + 1 :]]
