"""Values that are halved again and again, and the differences of the two halves: what a
distribution is measured by.

Nothing here is random or confidential. The tree of m values has m - 1 inner nodes, one for each gap
between neighbouring values; everything is kept in the order of these gaps.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Labels = tuple[int, ...]


@dataclass(frozen=True)
class ValueTree:
    """The tree of `values` values 0, 1, …: every node is cut in two halves, the left one larger by
    at most one.

    The node that is cut between v and v + 1 is called the gap v. It covers the values from `low` to
    before `high`. Its query is ``D = L - R``, the records of its left half less those of its right
    half. With F(v) the records up to v, ``D = 2F(v) - F(low - 1) - F(high - 1)``, so that F follows
    from D, gap by gap from the root: ``F(v) = (F(low - 1) + F(high - 1) + D)/2``, beginning with
    F(-1) = 0 and F(last) = n, which are public.

    Examples
    --------
    >>> tree = ValueTree(5)
    >>> tree.depths.tolist(), tree.low.tolist(), tree.high.tolist()
    ([3, 2, 1, 2], [0, 0, 0, 3], [2, 3, 5, 5])
    >>> differences = tree.differences(np.array([[4, 1, 0, 2, 3]]))
    >>> differences.tolist(), tree.up_to(differences, np.array([10])).tolist()
    ([[3, 5, 0, -1]], [[4.0, 5.0, 5.0, 7.0]])
    """

    values: int

    @property
    def gaps(self) -> int:
        """How many differences there are."""
        return self.values - 1

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """The first value of each node, the first one after it, and its depth, by gaps."""
        low = np.zeros(self.gaps, dtype=np.intp)
        high, depths = low.copy(), low.copy()
        # All nodes of one depth at a time, by their first value and the first one after them.
        first = np.array([0])
        after = np.array([self.values])
        depth = 1
        while len(first):
            size = after - first
            middle = first + (size + 1) // 2
            gaps = middle - 1
            low[gaps] = first
            high[gaps] = after
            depths[gaps] = depth
            first = np.concatenate([first, middle])
            after = np.concatenate([middle, after])
            # A single value is cut no further.
            several = after - first > 1
            first = first[several]
            after = after[several]
            depth += 1
        return low, high, depths

    @property
    def low(self) -> NDArray[np.intp]:
        """The first value of each node."""
        return self._nodes[0]

    @property
    def high(self) -> NDArray[np.intp]:
        """The first value after each node."""
        return self._nodes[1]

    @property
    def depths(self) -> NDArray[np.intp]:
        """The depth of each node, 1 at the root."""
        return self._nodes[2]

    @property
    def depth(self) -> int:
        """The largest depth, ``⌈log2 m⌉``."""
        return int(self.depths.max())

    @cached_property
    def levels(self) -> tuple[NDArray[np.intp], ...]:
        """The gaps of each depth, the root first."""
        every = range(1, self.depth + 1)
        return tuple(np.flatnonzero(self.depths == depth) for depth in every)

    def differences(self, histograms: Integers) -> Integers:
        """Return D of every node, a row a histogram."""
        # Column v holds the records below the value v.
        counts = np.zeros((len(histograms), self.values + 1), dtype=np.int64)
        np.cumsum(histograms, axis=1, out=counts[:, 1:])
        ends = counts[:, self.low] + counts[:, self.high]
        return np.asarray(2 * counts[:, 1:-1] - ends)

    def up_to(self, differences: NDArray[np.number], sizes: NDArray[np.number]) -> Floats:
        """Return F of every gap from D of every node, a row a group of known size; noise in D may
        disorder F.
        """
        counts = np.zeros((len(differences), self.values + 1))
        counts[:, -1] = sizes
        # From the root down: the two ends of a node are known before its gap.
        for gaps in self.levels:
            low, high = self.low[gaps], self.high[gaps]
            ends = counts[:, low] + counts[:, high]
            whole = ends + differences[:, gaps]
            counts[:, gaps + 1] = whole / 2
        return counts[:, 1:-1]

    @cached_property
    def weights(self) -> Floats:
        """The weight of D of the node above a gap at each depth in F of the gap: rows are gaps,
        columns depths.

        A gap has the weight 1/2 on its own node. On nodes above it has the mean of the weights of
        the two gaps that end its node, which lie on the same path.
        """
        weights = np.zeros((self.values + 1, self.depth))
        for column, gaps in enumerate(self.levels):
            low, high = self.low[gaps], self.high[gaps]
            ends = weights[low] + weights[high]
            weights[gaps + 1] = ends / 2
            weights[gaps + 1, column] = 0.5
        return weights[1:-1]

    @property
    def gram(self) -> Floats:
        """The inner products of what single values add to the differences."""
        single = self.differences(np.eye(self.values, dtype=np.int64)).astype(np.float64)
        return np.asarray(single @ single.T)

    @cached_property
    def farthest(self) -> int:
        """The largest squared distance of two values; see `Placement`."""
        return Placement(self, {(0, 1): 1}).cost


@dataclass(frozen=True)
class Placement:
    """The places of some values in a tree that are farthest apart, by what each pair of them
    counts.

    Where v is replaced by w in one group, D changes by 2 in the node that parts them, and by 1 in
    each node below it on the two paths. With a and b nodes on these the squared distance is
    ``C(v, w) = 4 + a + b`` and the sum of absolute changes ``2 + a + b``. `cost` is the largest
    ``Σ pairs[i, j] C(v_i, v_j)`` over all places v_i. The maximum is taken node by node from the
    leaves up: for every set of values that may lie below a node, with what each counts towards
    those elsewhere.

    Parameters
    ----------
    tree
        The tree of values.
    pairs
        What each pair of labels counts.
    parted
        What the node counts that parts two values: 4 for squares, 2 for absolute changes.

    Examples
    --------
    >>> tree = ValueTree(4)
    >>> (
    ...     Placement(tree, {(0, 1): 1}).cost,
    ...     Placement(tree, {(0, 1): 1}).places,
    ...     Placement(tree, {(0, 1): 1}, 2).cost,
    ... )
    (6, (1, 3), 4)
    """

    tree: ValueTree
    pairs: Mapping[tuple[int, int], int]
    parted: int = 4

    @cached_property
    def _labels(self) -> Labels:
        return tuple(sorted({label for pair in self.pairs for label in pair}))

    @cached_property
    def _sets(self) -> list[Labels]:
        """All sets of labels, smaller ones first."""
        sets: list[Labels] = []
        for size in range(len(self._labels) + 1):
            sets += itertools.combinations(self._labels, size)
        return sets

    def _between(self, some: Labels, others: Sequence[int]) -> int:
        """What the pairs of one of some labels and one of others count together."""
        total = 0
        for (one, other), weight in self.pairs.items():
            forth = one in some and other in others
            back = other in some and one in others
            if forth or back:
                total += weight
        return total

    def _splits(self, labels: Labels) -> list[tuple[Labels, Labels]]:
        """All ways of dividing labels between a left half and a right half."""
        splits = []
        for left in self._sets:
            if set(left) <= set(labels):
                right = tuple(label for label in labels if label not in left)
                splits.append((left, right))
        return splits

    @cached_property
    def _best(self) -> dict[Labels, Integers]:
        """For each set of labels the largest cost within every node, by values and gaps: first
        values, then gaps.

        Position v holds the value v itself, where nothing more is parted, and m + v the node of the
        gap v.
        """
        tree = self.tree
        positions = tree.values + tree.gaps
        every = {labels: np.zeros(positions, dtype=np.int64) for labels in self._sets}
        for gaps in reversed(tree.levels):
            left, right = self._halves(gaps)
            for labels in self._sets:
                # A value that was parted from another one above changes D of every node on its path
                # by 1.
                outside = [label for label in self._labels if label not in labels]
                passing = self._between(labels, outside)
                best = np.zeros(len(gaps), dtype=np.int64)
                for one, other in self._splits(labels):
                    parted = self.parted * self._between(one, other)
                    below = every[one][left] + every[other][right]
                    best = np.maximum(best, parted + below)
                every[labels][tree.values + gaps] = passing + best
        return every

    def _halves(self, gaps: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The positions of the left and right halves of nodes: a value, or m + the gap of a
        node.
        """
        tree = self.tree
        low, high = tree.low[gaps], tree.high[gaps]
        middle = gaps + 1
        left_gap = low + (middle - low + 1) // 2 - 1
        right_gap = middle + (high - middle + 1) // 2 - 1
        # A half of one value is the value itself.
        left = np.where(middle - low == 1, low, tree.values + left_gap)
        right = np.where(high - middle == 1, middle, tree.values + right_gap)
        return left, right

    @property
    def _root(self) -> int:
        return self.tree.values + int(self.tree.levels[0][0])

    @cached_property
    def cost(self) -> int:
        """The largest cost."""
        return int(self._best[self._labels][self._root])

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Values that attain it, by label."""
        values = dict.fromkeys(self._labels, 0)
        waiting = [(self._root, self._labels)]
        while waiting:
            position, labels = waiting.pop()
            if position < self.tree.values:
                values.update(dict.fromkeys(labels, position))
            elif labels:
                waiting += self._split_labels(position - self.tree.values, labels)
        return tuple(values[label] for label in self._labels)

    def _split_labels(self, gap: int, labels: Labels) -> list[tuple[int, Labels]]:
        """The halves of a node with the labels that are best placed in each."""
        halves = self._halves(np.array([gap]))
        left, right = (int(half.item()) for half in halves)

        def cost(split: tuple[Labels, Labels]) -> int:
            one, other = split
            parted = self.parted * self._between(one, other)
            below = self._best[one][left] + self._best[other][right]
            return parted + int(below)

        one, other = max(self._splits(labels), key=cost)
        return [(left, one), (right, other)]


@lru_cache(maxsize=16)
def value_tree(values: int) -> ValueTree:
    """Return the tree of `values` values. It is the same object each time, so that it is laid out
    once.

    >>> value_tree(101) is value_tree(101), value_tree(101).depth
    (True, 7)
    """
    return ValueTree(values)
