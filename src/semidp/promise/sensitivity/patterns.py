"""Norms of S_a from patterns: of the records that move, exact, and of the published margins alone,
certified.

Exact norms, for tables of any size, where the published margins are disjoint or share one common
part. A table with zero margins is a multiset λ of records that appear and a multiset μ of records
that vanish; each published block pairs their levels off. So the search runs over pairs of integer
partitions of at most a, and over the ways in which a block can pair them, never over cells. The
result depends on the a largest counts of each block only.

Certified norms bound any table with zero published margins. They need only the pattern of the
margins and a, never the counts; proofs in docs/errata.md.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import Grid, Mask, Totals, View, common_part, join
from semidp.promise.spaces.structure import Slices

LARGEST_A = 6  # the pairings of 2a records are enumerated: 22482 of them at a = 6, 426833 at a = 7

Partition = tuple[int, ...]
Group = tuple[tuple[int, ...], tuple[int, ...]]  # positions in one partition, and in the other
Pairing = tuple[Group, ...]
Block = tuple[int, ...]  # the counts of a block's levels, largest first, capped at a
LARGEST_SEARCH = 2000  # beyond this a the plain bound a² is used for Δ2²


@frozen
class Norms:
    """The norms of a sensitivity space: Δ1, Δ2² and Δ∞, all whole numbers.

    >>> Norms(4, 4, 1).multiply(3)
    Norms(l1=12, l2_squared=36, linf=3)
    """

    l1: int
    l2_squared: int
    linf: int

    @classmethod
    def from_vectors(cls, vectors: NDArray[Any]) -> "Norms":
        """Return the largest norms of some vectors of whole numbers, one after the other along the
        first axis.

        >>> Norms.from_vectors(np.array([[1, -1, 0], [0, 0, 0]]))
        Norms(l1=2, l2_squared=2, linf=1)
        """
        sizes = np.abs(vectors).reshape(len(vectors), -1)
        l1 = sizes.sum(axis=1).max(initial=0)
        l2_squared = (sizes * sizes).sum(axis=1).max(initial=0)
        return cls(int(l1), int(l2_squared), int(sizes.max(initial=0)))

    @classmethod
    def from_changes(cls, changes: Sequence[int]) -> "Norms":
        """Return the norms of one vector, in whole numbers without a limit.

        >>> Norms.from_changes([2, -1])
        Norms(l1=3, l2_squared=5, linf=2)
        """
        sizes = [abs(change) for change in changes]
        return cls(sum(sizes), sum(size * size for size in sizes), max(sizes, default=0))

    def multiply(self, factor: int) -> "Norms":
        """Return the norms of the space with every element multiplied by `factor`."""
        return Norms(factor * self.l1, factor**2 * self.l2_squared, factor * self.linf)

    def least(self, other: "Norms") -> "Norms":
        """Return the smaller of each pair: two upper bounds make a better one."""
        l2_squared = min(self.l2_squared, other.l2_squared)
        return Norms(min(self.l1, other.l1), l2_squared, min(self.linf, other.linf))

    def most(self, other: "Norms") -> "Norms":
        """Return the larger of each pair: what two elements attain together."""
        l2_squared = max(self.l2_squared, other.l2_squared)
        return Norms(max(self.l1, other.l1), l2_squared, max(self.linf, other.linf))


@frozen
class RecordPattern:
    """One way to move records inside one slice: how many records each cell has, and its level in
    each block.
    """

    appear: Partition
    vanish: Partition
    # per block: level ranks of `appear` and of `vanish`
    levels: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @property
    def squares(self) -> int:
        """The sum of squares of the cells."""
        return _squares(self.appear, self.vanish)


@frozen
class SliceCounts:
    """Counts of one level of the common part: the blocks there, and whether an unpublished feature
    may change.
    """

    blocks: tuple[Block, ...]
    size: int
    free: bool


@cache
def _widest(part: SliceCounts, s: int) -> RecordPattern | None:
    """Return the pattern of s records with the largest sum of squares; None if s records cannot
    move.
    """
    for appear, vanish in _candidates(part, s):
        pattern = _realise(part, appear, vanish)
        if pattern:
            return pattern
    return None


@cache
def _tallest(part: SliceCounts, s: int) -> int:
    """Return the largest cell of any pattern of s records; 0 if there is none."""
    for appear, vanish in sorted(_candidates(part, s), key=lambda pair: -pair[0][0]):
        if _realise(part, appear, vanish):
            return appear[0]
    return 0


def _candidates(part: SliceCounts, s: int) -> list[tuple[Partition, Partition]]:
    """Yield pairs of partitions of s, the widest first. A move and its negative are one pair, the
    larger part first.
    """
    if s > part.size:
        return []
    pairs = []
    for appear, vanish in product(partitions(s), repeat=2):
        # With more than s records in the two largest parts, both have some level in common in every
        # block: without a free feature they would be the same cell.
        apart = part.free or appear[0] + vanish[0] <= s
        if appear >= vanish and apart:
            pairs.append((appear, vanish))
    return sorted(pairs, key=lambda pair: -_squares(*pair))


def _squares(appear: Partition, vanish: Partition) -> int:
    """The sum of squares of the cells of a pattern."""
    return sum(count * count for count in (*appear, *vanish))


def partitions(total: int, largest: int | None = None) -> Iterator[Partition]:
    """Yield the partitions of a whole number into parts in decreasing order.

    >>> list(partitions(3))
    [(3,), (2, 1), (1, 1, 1)]
    """
    if total == 0:
        yield ()
        return
    for first in range(min(total, largest or total), 0, -1):
        for smaller in partitions(total - first, first):
            yield (first, *smaller)


@cache
def pairings(appear: Partition, vanish: Partition) -> tuple[Pairing, ...]:
    """Return every way to split the parts of two partitions into groups whose two sums agree.

    >>> len(pairings((1, 1), (1, 1))), len(pairings((2,), (1, 1)))
    (3, 1)
    """

    def groups(left: tuple[int, ...], right: tuple[int, ...]) -> Iterator[Group]:
        """Groups with the first of the parts left: some parts of either side with the same sum."""
        first, later = left[0], left[1:]
        for chosen in _subsets(later):
            group = (first, *chosen)
            total = sum(appear[i] for i in group)
            for partners in _subsets(right):
                if sum(vanish[j] for j in partners) == total:
                    yield group, partners

    def split(left: tuple[int, ...], right: tuple[int, ...]) -> Iterator[Pairing]:
        if not left:
            yield ()
            return
        for group, partners in groups(left, right):
            left_over = tuple(i for i in left if i not in group)
            right_over = tuple(j for j in right if j not in partners)
            for tail in split(left_over, right_over):
                yield ((group, partners), *tail)

    return tuple(split(tuple(range(len(appear))), tuple(range(len(vanish)))))


def _subsets(positions: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All subsets of some positions, the smallest first."""
    for size in range(len(positions) + 1):
        yield from combinations(positions, size)


def _realise(part: SliceCounts, appear: Partition, vanish: Partition) -> RecordPattern | None:
    """Choose a pairing for each block so that no record that appears equals one that vanishes."""
    everything = (1 << (len(appear) * len(vanish))) - 1
    options = [_options(block, appear, vanish) for block in part.blocks]
    if not all(options):
        return None
    # reach[i]: the pairs that the blocks from i on can still put on different levels
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
            later = choose(i + 1, missing & ~mask)
            if later is not None:
                return [mask, *later]
        dead.add((i, missing))
        return None

    # A free feature tells all pairs apart by itself; else some block must, pair by pair.
    chosen = choose(0, 0 if part.free else everything)
    if chosen is None:
        return None
    levels = []
    for option, mask in zip(options, chosen, strict=True):
        levels.append(_levels(option[mask], appear, vanish))
    return RecordPattern(appear, vanish, tuple(levels))


@cache
def _options(block: Block, appear: Partition, vanish: Partition) -> dict[int, Pairing]:
    """Pairings that fit the counts of a block, by the set of pairs (as bits) that they put on
    different levels.
    """
    everything = (1 << (len(appear) * len(vanish))) - 1
    by_mask: dict[int, Pairing] = {}
    for pairing in pairings(appear, vanish):
        if not _fits(block, pairing, appear):
            continue
        together = 0
        for group, partners in pairing:
            for i, j in product(group, partners):
                together |= 1 << (i * len(vanish) + j)
        by_mask.setdefault(~together & everything, pairing)
    # A mask inside another one tells fewer pairs apart at the same price: only the largest are
    # kept.
    largest: dict[int, Pairing] = {}
    for mask in sorted(by_mask, key=lambda mask: -mask.bit_count()):
        if not any(mask & ~other == 0 for other in largest):
            largest[mask] = by_mask[mask]
    return largest


def _fits(block: Block, pairing: Pairing, appear: Partition) -> bool:
    """Whether the block has a level with enough records for each group. The largest group takes the
    largest level.
    """
    sums = []
    for group, _ in pairing:
        sums.append(sum(appear[i] for i in group))
    if len(sums) > len(block):
        return False
    sums.sort(reverse=True)
    return all(used <= count for used, count in zip(sums, block, strict=False))


def _levels(
    pairing: Pairing, appear: Partition, vanish: Partition
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks of levels for the groups of a pairing. The largest group gets the level with the
    largest count.
    """
    ranked = sorted(pairing, key=lambda group: -sum(appear[i] for i in group[0]))
    up, down = [0] * len(appear), [0] * len(vanish)
    for rank, (group, partners) in enumerate(ranked):
        for i in group:
            up[i] = rank
        for j in partners:
            down[j] = rank
    return tuple(up), tuple(down)


@frozen(slots=False, eq=False)
class BlockTable:
    """A table whose published margins are disjoint once their common part is fixed.

    Parameters
    ----------
    slices
        Its margins, level by level of their common part.
    n
        The number of records.
    possible
        The cells that can occur, or None if all can; looked at only to place records on
        unpublished features.
    """

    slices: Slices
    n: int
    possible: Mask | None = field(default=None, repr=False)

    @classmethod
    def from_margins(
        cls, grid: Grid, margins: Sequence[Totals], n: int, possible: Mask | None = None
    ) -> "BlockTable | None":
        """Return the table if its margins are disjoint apart from a common part; else None."""
        common = common_part([margin.view for margin in margins]) if margins else grid.nothing
        return None if common is None else cls(Slices(grid, common, tuple(margins)), n, possible)

    @property
    def grid(self) -> Grid:
        """The cells of the table."""
        return self.slices.grid

    @cached_property
    def published_view(self) -> View:
        """All that the margins say of any feature."""
        return join(self.grid.nothing, *(margin.view for margin in self.slices.margins))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Features that can change below what is published of them, in some slice."""
        return tuple(axis for axis, children in enumerate(self._children) if (children > 1).any())

    @cached_property
    def free_everywhere(self) -> bool:
        """Whether some feature can change in every slice. Otherwise norms may be upper bounds."""
        return any((children > 1).all() for children in self._children)

    @cached_property
    def _children(self) -> list[NDArray[np.intp]]:
        """For each feature the numbers of levels below each inhabited node of what is published of
        it.
        """
        counts = []
        for axis, (chain, depth) in enumerate(
            zip(self.grid.chains, self.published_view, strict=True)
        ):
            inhabited = np.ones(chain.size(depth), dtype=bool)
            for margin in self.slices.margins:
                if depth and margin.view[axis] == depth:
                    alone = margin.sum_to_view(self.grid, self.grid.build_feature_view(axis, depth))
                    inhabited &= alone.counts > 0
            children = chain.children(depth, chain.depth)
            counts.append(children[inhabited])
        return counts

    def distinct_slices(self, a: int) -> list[tuple[SliceCounts, list[int]]]:
        """Return the distinct slices, each with up to a levels of the common part where it
        occurs.
        """
        free = bool(self.free)
        if not self.slices.margins:
            return [(SliceCounts((), min(self.n, a), free), [0])]
        parts = [self.slices.largest(number, a) for number in range(len(self.slices.margins))]
        # No pattern of a records looks beyond a records of a slice, nor beyond its a largest
        # counts.
        sizes = np.minimum(self.slices.sizes[:, None], a)
        rows, inverse = np.unique(np.hstack([*parts, sizes]), axis=0, return_inverse=True)
        slices = []
        widths = np.cumsum([part.shape[1] for part in parts])[:-1]
        for number, row in enumerate(rows):
            size = int(row[-1])
            if size:
                blocks = sorted(map(_positive, np.split(row[:-1], widths)))
                levels = np.flatnonzero(inverse.ravel() == number)[:a]
                slices.append((SliceCounts(tuple(blocks), size, free), levels.tolist()))
        return slices

    def norms(self, a: int) -> tuple[Norms, NDArray[np.int64] | None]:
        """Return the exact norms for positive parts of at most a records, and a table that attains
        Δ2.

        >>> rows, columns = (
        ...     Totals((1, 0), np.array([[5], [5], [5]])),
        ...     Totals((0, 1), np.array([[4, 6, 5]])),
        ... )
        >>> BlockTable.from_margins(Grid.flat((3, 3)), [rows, columns], 15).norms(3)[0]
        Norms(l1=6, l2_squared=6, linf=1)
        """
        # best[s]: the widest choice of s records over the slices seen so far, as (squares,
        # [(pattern, level)])
        best: dict[int, tuple[int, list[tuple[RecordPattern, int]]]] = {0: (0, [])}
        tallest = 0
        for part, places in self.distinct_slices(a):
            heights = [_tallest(part, s) for s in range(1, a + 1)]
            tallest = max([tallest, *heights])
            for place in places:
                # Most records first, so a slice is used once.
                for done in sorted(best, reverse=True):
                    so_far, patterns = best[done]
                    for s in range(1, a - done + 1):
                        pattern = _widest(part, s)
                        if pattern is None:
                            continue
                        squares = so_far + pattern.squares
                        if squares > best.get(done + s, (0, []))[0]:
                            best[done + s] = (squares, [*patterns, (pattern, place)])
        squares, chosen = max(best.values(), key=lambda entry: entry[0])
        norms = Norms(2 * max(best), squares, tallest)
        return norms, self.table(chosen, a) if chosen else None

    def table(self, chosen: Sequence[tuple[RecordPattern, int]], a: int) -> NDArray[np.int64]:
        """Write patterns of `distinct_slices`, each at one level of the common part, as a table."""
        result = np.zeros(self.grid.shape, dtype=np.int64)
        for pattern, place in chosen:
            # the blocks in the order in which `distinct_slices` sorted them
            rows = zip(self.slices.margins, self.slices.rows(place), strict=True)
            blocks = sorted(rows, key=lambda block: _cap_counts(block[1][1], a))
            start = [(self.slices.common, place)] if any(self.slices.common) else []
            for sign, counts, side in ((1, pattern.appear, 0), (-1, pattern.vanish, 1)):
                for part, count in enumerate(counts):
                    cells = list(start)
                    for rank, (margin, (positions, row)) in enumerate(blocks):
                        levels = np.argsort(-row, kind="stable")
                        level = levels[pattern.levels[rank][side][part]]
                        cells.append((margin.view, int(positions[level])))
                    box = self.grid.box(cells)
                    result[self._complete(box, side)] += sign * count
        return result

    def _complete(self, box: list[slice], side: int) -> tuple[int, ...]:
        """Choose a cell for records at some published levels. Records that appear get other
        unpublished levels than those that vanish.
        """
        starts = [leaves.start for leaves in box]
        if self.possible is None:
            for axis in self.free:
                if box[axis].stop - box[axis].start > 1:
                    starts[axis] += side
                    break
            return tuple(starts)
        # The first possible cell for records that appear, the last for those that vanish.
        choices = np.argwhere(self.possible[tuple(box)])
        offsets = choices[-side].tolist() if len(choices) else [0] * len(box)
        return tuple(map(sum, zip(starts, offsets, strict=True)))


def _positive(counts: NDArray[np.int64]) -> Block:
    """The counts above zero, in their order."""
    return tuple(int(count) for count in counts if count)


def _cap_counts(row: NDArray[np.int64], a: int) -> Block:
    """The a largest counts of a row, each at most a, the largest first."""
    largest = -np.sort(-row)[:a]
    return _positive(np.minimum(largest, a))


# --- certified bounds -----------------------------------------------------------------------------


def certified_norms(
    a: int, features: Iterable[Hashable], margins: Sequence[frozenset[Any]], parity: bool = False
) -> Norms:
    """Bound the norms of tables with zero `margins` and positive part at most a.

    With ρ* the fractional edge cover number of the features by the margins, Δ1 <= 2a and Δ∞ <= k =
    ⌊a (1 - 1/ρ*)⌋. If every feature is published, the largest positive and negative entries sum to
    at most a, hence with g(x) = ⌊a/x⌋ x² + (a mod x)²: Δ2² <= max {g(α) + g(β) : 1 <= β <= α <= k,
    α + β <= a}; else Δ2² <= 2a².

    Parameters
    ----------
    a
        How many records may move.
    features
        The features with at least two levels that can occur.
    margins
        What is published, as sets of features.
    parity
        Whether the positive part is always even, as for two disjoint blocks of which one has two
        levels.

    Examples
    --------
    >>> certified_norms(3, "AB", [frozenset("A"), frozenset("B")])
    Norms(l1=6, l2_squared=6, linf=1)
    >>> certified_norms(3, "AB", [frozenset("A"), frozenset("B")], parity=True)
    Norms(l1=4, l2_squared=4, linf=1)
    >>> certified_norms(2, "ABC", [frozenset("AB"), frozenset("BC"), frozenset("AC")])
    Norms(l1=0, l2_squared=0, linf=0)
    """
    if parity:
        a -= a % 2
    features = frozenset(features)  # each depth of a nested feature counts as one of its own
    if not features or a == 0:
        return Norms(0, 0, 0)
    if not features <= frozenset().union(*margins):
        return Norms(2 * a, 2 * a * a, a)
    # rounding k up where the linear program is not exact only enlarges the bound
    cover = edge_cover(features, margins)
    k = math.floor(a * (1 - 1 / cover) + 1e-9)
    if k == 0:
        return Norms(0, 0, 0)
    if a > LARGEST_SEARCH:
        return Norms(2 * a, a * a, k)
    best = 0
    for alpha in range(1, k + 1):
        # The largest positive entry α and the largest negative entry β share the a records of the
        # positive part.
        packed = [_maximize_square_sum(a, beta) for beta in range(1, min(alpha, a - alpha) + 1)]
        if packed:
            best = max(best, _maximize_square_sum(a, alpha) + max(packed))
    return Norms(2 * a, best, k)


def edge_cover(features: frozenset[Any], margins: Sequence[frozenset[Any]]) -> float:
    """Return ρ*: the least total weight on margins such that every feature has weight at least one.

    >>> edge_cover(frozenset("ABC"), [frozenset("AB"), frozenset("BC"), frozenset("AC")])
    1.5
    """
    restricted = [margin & features for margin in margins]
    distinct = []
    for margin in dict.fromkeys(restricted):
        # A margin inside another covers nothing that the larger one does not.
        if margin and not any(margin < other for other in restricted):
            distinct.append(margin)
    if sum(map(len, distinct)) == len(features):
        return float(len(distinct))  # disjoint: each one is needed in full
    from scipy.optimize import linprog

    rows = []
    for feature in sorted(features):
        rows.append([feature in margin for margin in distinct])
    coverage = np.array(rows, dtype=float)
    weights = np.ones(len(distinct))
    solved = linprog(weights, A_ub=-coverage, b_ub=-np.ones(len(features)), method="highs")
    return float(len(distinct) if solved.fun is None else solved.fun)


def _maximize_square_sum(a: int, x: int) -> int:
    """g(x): the largest sum of squares of whole numbers in 0..x that sum to a."""
    return (a // x) * x * x + (a % x) ** 2
