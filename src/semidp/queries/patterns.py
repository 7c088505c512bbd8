"""Exact norms of S_a where the published margins are disjoint, or share one common part: any size of table.

A table with zero margins is a multiset λ of records that appear and a multiset μ of records that vanish; each
published block pairs their levels off. So the search runs over pairs of integer partitions of at most a, and over the
ways in which a block can pair them, never over cells. The result depends on the a largest counts of each block only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Grid, Mask, Totals, View, common_part, join
from semidp.core.spaces.structure import Slices
from semidp.queries.bounds import Norms

LARGEST_A = 6  # the pairings of 2a records are enumerated: 22482 of them at a = 6, 426833 at a = 7

Partition = tuple[int, ...]
Pairing = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # groups: positions in one partition, in the other
Block = tuple[int, ...]  # the counts of a block's levels, largest first, capped at a


@dataclass(frozen=True)
class RecordPattern:
    """One way to move records inside one slice: their multiplicities, and the level of each in each block."""

    appear: Partition
    vanish: Partition
    levels: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # per block: level ranks of `appear` and of `vanish`

    @property
    def squares(self) -> int:
        """The sum of squares of the cells."""
        return sum(x * x for x in (*self.appear, *self.vanish))


@dataclass(frozen=True)
class SliceCounts:
    """The tables of one level of the common part: blocks of counts, and whether a feature is free to change."""

    blocks: tuple[Block, ...]
    size: int
    free: bool


@cache
def _widest(part: SliceCounts, s: int) -> RecordPattern | None:
    """Return the pattern of s records with the largest sum of squares, or None if s records cannot move."""
    for appear, vanish in _candidates(part, s):
        if found := _realise(part, appear, vanish):
            return found
    return None


@cache
def _tallest(part: SliceCounts, s: int) -> int:
    """Return the largest cell of a pattern of s records, 0 if there is none."""
    for appear, vanish in sorted(_candidates(part, s), key=lambda pair: -pair[0][0]):
        if _realise(part, appear, vanish):
            return appear[0]
    return 0


def _candidates(part: SliceCounts, s: int) -> list[tuple[Partition, Partition]]:
    """Pairs of partitions of s, widest first, larger part first (a move and its negative count once)."""
    if s > part.size:
        return []
    every = list(partitions(s))
    pairs = [(x, y) for x in every for y in every if x >= y and (part.free or x[0] + y[0] <= s)]
    return sorted(pairs, key=lambda pair: -sum(v * v for side in pair for v in side))


def partitions(total: int, largest: int | None = None) -> Iterator[Partition]:
    """Iterate over the partitions of a whole number into parts in decreasing order.

    >>> list(partitions(3))
    [(3,), (2, 1), (1, 1, 1)]
    """
    if total == 0:
        yield ()
        return
    for first in range(min(total, largest or total), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


@cache
def pairings(appear: Partition, vanish: Partition) -> tuple[Pairing, ...]:
    """Return every way to split the parts of two partitions into groups whose two sums agree.

    >>> len(pairings((1, 1), (1, 1))), len(pairings((2,), (1, 1)))
    (3, 1)
    """

    def split(left: tuple[int, ...], right: tuple[int, ...]) -> Iterator[Pairing]:
        if not left:
            yield ()
            return
        first, others = left[0], left[1:]
        for more in range(len(others) + 1):
            for chosen in combinations(others, more):
                group = (first, *chosen)
                wanted = sum(appear[i] for i in group)
                for size in range(1, len(right) + 1):
                    for partners in combinations(right, size):
                        if sum(vanish[j] for j in partners) == wanted:
                            rest = tuple(i for i in others if i not in chosen)
                            for tail in split(rest, tuple(j for j in right if j not in partners)):
                                yield ((group, partners), *tail)

    return tuple(split(tuple(range(len(appear))), tuple(range(len(vanish)))))


def _realise(part: SliceCounts, appear: Partition, vanish: Partition) -> RecordPattern | None:
    """Choose a pairing for each block so that no record that appears equals one that vanishes."""
    everything = (1 << (len(appear) * len(vanish))) - 1
    options = [_options(block, appear, vanish) for block in part.blocks]
    if not all(options):
        return None
    reach = [0] * (len(options) + 1)
    for i in range(len(options) - 1, -1, -1):
        reach[i] = reach[i + 1]
        for mask in options[i]:
            reach[i] |= mask
    dead: set[tuple[int, int]] = set()

    def choose(i: int, missing: int) -> list[int] | None:
        if i == len(options):
            return None if missing else []
        if missing & ~reach[i] or (i, missing) in dead:
            return None
        for mask in options[i]:
            rest = choose(i + 1, missing & ~mask)
            if rest is not None:
                return [mask, *rest]
        dead.add((i, missing))
        return None

    chosen = choose(0, 0 if part.free else everything)
    if chosen is None:
        return None
    levels = [_levels(option[mask], appear, vanish) for option, mask in zip(options, chosen, strict=True)]
    return RecordPattern(appear, vanish, tuple(levels))


@cache
def _options(block: Block, appear: Partition, vanish: Partition) -> dict[int, Pairing]:
    """The pairings that fit a block's counts, by the set of pairs (as bits) that they put on different levels."""
    found: dict[int, Pairing] = {}
    for pairing in pairings(appear, vanish):
        sums = sorted((sum(appear[i] for i in group) for group, _ in pairing), reverse=True)
        if len(sums) > len(block) or any(used > there for used, there in zip(sums, block, strict=False)):
            continue
        together = 0
        for group, partners in pairing:
            for i in group:
                for j in partners:
                    together |= 1 << (i * len(vanish) + j)
        found.setdefault(~together & ((1 << (len(appear) * len(vanish))) - 1), pairing)
    kept: dict[int, Pairing] = {}
    for mask in sorted(found, key=lambda mask: -mask.bit_count()):
        if not any(mask & ~other == 0 for other in kept):
            kept[mask] = found[mask]
    return kept


def _levels(pairing: Pairing, appear: Partition, vanish: Partition) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the groups of a pairing the ranks of levels: the largest group the level with the largest count."""
    ranked = sorted(pairing, key=lambda group: -sum(appear[i] for i in group[0]))
    up, down = [0] * len(appear), [0] * len(vanish)
    for rank, (group, partners) in enumerate(ranked):
        for i in group:
            up[i] = rank
        for j in partners:
            down[j] = rank
    return tuple(up), tuple(down)


@dataclass(frozen=True, eq=False)
class BlockTable:
    """A table whose published margins are disjoint once their common part is fixed.

    Parameters
    ----------
    slices
        Its margins, level by level of their common part.
    n
        The number of records.
    possible
        The cells that can occur, or None where all can; looked at only to place records on unpublished features.
    """

    slices: Slices
    n: int
    possible: Mask | None = field(default=None, repr=False)

    @classmethod
    def of(cls, grid: Grid, margins: Sequence[Totals], n: int, possible: Mask | None = None) -> "BlockTable | None":
        """Return the table if its margins have this form, else None."""
        common = common_part([margin.view for margin in margins]) if margins else grid.nothing
        return None if common is None else cls(Slices(grid, common, tuple(margins)), n, possible)

    @property
    def grid(self) -> Grid:
        """The cells of the table."""
        return self.slices.grid

    @cached_property
    def published(self) -> View:
        """All that the margins say of any feature."""
        return join(self.grid.nothing, *(margin.view for margin in self.slices.margins))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The features that can change below what is published of them, somewhere."""
        return tuple(axis for axis, children in enumerate(self._children) if (children > 1).any())

    @cached_property
    def free_everywhere(self) -> bool:
        """Whether some feature can change whatever the published levels are; otherwise norms may be upper bounds."""
        return any((children > 1).all() for children in self._children)

    @cached_property
    def _children(self) -> list[NDArray[np.intp]]:
        """For each feature, how many levels lie below each inhabited node of what is published of it."""
        found = []
        for axis, (chain, depth) in enumerate(zip(self.grid.chains, self.published, strict=True)):
            there = np.ones(chain.size(depth), dtype=bool)
            for margin in self.slices.margins:
                if depth and margin.view[axis] == depth:
                    there &= margin.down(self.grid, self.grid.alone(axis, depth)).counts > 0
            found.append(chain.children(depth, chain.depth)[there])
        return found

    def kinds(self, a: int) -> list[tuple[SliceCounts, list[int]]]:
        """Return the distinct slices with, for each, up to a levels of the common part where it occurs."""
        if not self.slices.margins:
            return [(SliceCounts((), min(self.n, a), bool(self.free)), [0])]
        parts = [self.slices.largest(number, a) for number in range(len(self.slices.margins))]
        sizes = np.minimum(self.slices.sizes[:, None], a)
        rows, inverse = np.unique(np.hstack([*parts, sizes]), axis=0, return_inverse=True)
        found = []
        widths = np.cumsum([part.shape[1] for part in parts])[:-1]
        for kind, row in enumerate(rows):
            if row[-1]:
                blocks = sorted(tuple(int(x) for x in piece if x) for piece in np.split(row[:-1], widths))
                where = np.flatnonzero(inverse.ravel() == kind)[:a]
                found.append((SliceCounts(tuple(blocks), int(row[-1]), bool(self.free)), [int(z) for z in where]))
        return found

    def norms(self, a: int) -> tuple[Norms, NDArray[np.int64] | None]:
        """Return the exact norms for positive parts of at most a records, and a table that attains Δ2.

        >>> rows, columns = Totals((1, 0), np.array([[5], [5], [5]])), Totals((0, 1), np.array([[4, 6, 5]]))
        >>> BlockTable.of(Grid.flat((3, 3)), [rows, columns], 15).norms(3)[0]
        Norms(l1=6, l2_squared=6, linf=1)
        """
        # best[s]: the widest choice of s records over the slices seen so far, as (squares, [(pattern, level)])
        best: dict[int, tuple[int, list[tuple[RecordPattern, int]]]] = {0: (0, [])}
        tallest = 0
        for part, places in self.kinds(a):
            tallest = max([tallest, *(_tallest(part, s) for s in range(1, a + 1))])
            for place in places:
                for done in sorted(best, reverse=True):
                    for s in range(1, a - done + 1):
                        pattern = _widest(part, s)
                        if pattern is not None:
                            squares = best[done][0] + pattern.squares
                            if squares > best.get(done + s, (0, []))[0]:
                                best[done + s] = (squares, [*best[done][1], (pattern, place)])
        squares, chosen = max(best.values(), key=lambda entry: entry[0])
        norms = Norms(2 * max(best), squares, tallest)
        return norms, self.table(chosen, a) if chosen else None

    def table(self, chosen: Sequence[tuple[RecordPattern, int]], a: int) -> NDArray[np.int64]:
        """Write patterns of `kinds(a)`, each at one level of the common part, as a table."""
        result = np.zeros(self.grid.shape, dtype=np.int64)
        for pattern, place in chosen:
            # the blocks in the order in which `kinds` sorted them
            blocks = sorted(
                zip(self.slices.margins, self.slices.rows(place), strict=True),
                key=lambda block: tuple(int(x) for x in np.minimum(-np.sort(-block[1][1])[:a], a) if x),
            )
            for sign, counts, side in ((1, pattern.appear, 0), (-1, pattern.vanish, 1)):
                for part, count in enumerate(counts):
                    cells = [(self.slices.common, place)] if any(self.slices.common) else []
                    for rank, (margin, (positions, row)) in enumerate(blocks):
                        levels = np.argsort(-row, kind="stable")
                        cells.append((margin.view, int(positions[levels[pattern.levels[rank][side][part]]])))
                    result[self._complete(self.grid.box(cells), side)] += sign * count
        return result

    def _complete(self, box: list[slice], side: int) -> tuple[int, ...]:
        """Choose a cell: records that appear and those that vanish on different levels of the unpublished features."""
        if self.possible is None:
            cell = [leaves.start for leaves in box]
            wide = next((axis for axis in self.free if box[axis].stop - box[axis].start > 1), None)
            if wide is not None:
                cell[wide] += side
            return tuple(cell)
        choices = np.argwhere(self.possible[tuple(box)])
        offset = choices[-side] if len(choices) else [0] * len(box)
        return tuple(leaves.start + int(k) for leaves, k in zip(box, offset, strict=True))
