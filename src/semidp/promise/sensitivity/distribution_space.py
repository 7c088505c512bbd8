"""How far the differences of halves can move while group sizes stay exact, which calibrates a
distribution.

A record is (x, y) with y in one of the cells between the edges of the outcome: whole steps from 0
to B as in `outcome_spaces`, also cut at lines. A `ValueTree` halves these cells, which it calls
values, again and again: it has an inner node for each gap between neighboring values, in the order
of the gaps. The query is the difference of the two halves of every node, group after group.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.schema.margins import Counts, Floats
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import (
    SpaceByGroups,
    groups_json,
    recorded_groups,
    sum_space,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Margin

Integers = NDArray[np.int64]
Labels = tuple[int, ...]


@frozen(slots=False)
class ValueTree:
    """The tree of `values` values 0, 1, …: every node is cut in two halves, the left one larger by
    at most one.

    The node that is cut between v and v + 1 is called the gap v. It covers the values from `low` to
    before `high`. Its query is ``D = L - R``, the records of its left half less those of its right
    half. With F(v) the records up to v, ``D = 2F(v) - F(low - 1) - F(high - 1)``, so F follows
    from D, gap by gap from the root: ``F(v) = (F(low - 1) + F(high - 1) + D)/2``, beginning with
    F(-1) = 0 and F(last) = n, which are public.

    Examples
    --------
    >>> tree = ValueTree(5)
    >>> tree.depths.tolist(), tree.low.tolist(), tree.high.tolist()
    ([3, 2, 1, 2], [0, 0, 0, 3], [2, 3, 5, 5])
    >>> tree.differences(np.array([[4, 1, 0, 2, 3]])).tolist()
    [[3, 5, 0, -1]]
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
        """Return D of every node, one row per histogram."""
        # Column v holds the records below the value v.
        counts = np.zeros((len(histograms), self.values + 1), dtype=np.int64)
        np.cumsum(histograms, axis=1, out=counts[:, 1:])
        ends = counts[:, self.low] + counts[:, self.high]
        return np.asarray(2 * counts[:, 1:-1] - ends)

    @property
    def gram(self) -> Floats:
        """The inner products of what single values add to the differences."""
        single = self.differences(np.eye(self.values, dtype=np.int64)).astype(np.float64)
        return np.asarray(single @ single.T)

    @cached_property
    def farthest(self) -> int:
        """The largest squared distance of two values; see `Placement`."""
        return Placement(self, {(0, 1): 1}).cost


@frozen(slots=False)
class Placement:
    """The placement of some values in a tree that maximizes their weighted
    distances.

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
        The weight of each pair of labels.
    parted
        The weight of the node that separates two values: 4 for squares, 2 for absolute changes.

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
    """Return the tree of `values` values. It is cached, so it is laid out
    once.

    >>> value_tree(101) is value_tree(101), value_tree(101).depth
    (True, 7)
    """
    return ValueTree(values)


MOST_STEPS = 4096
"""The finest grid of a distribution: intervals of so many values take about ten seconds."""

ONE_PAIR = {(0, 1): 1}
# the value of the person, of the carrier, and the person's next one
_PERSON, _CARRIER, _AFTER = 0, 1, 2


@frozen(slots=False)
class DistributionSpace(SpaceByGroups):
    """S of the differences D of all groups, from which a distribution is computed.

    This is the product of the tables group × values at every depth, with the values as a nested
    feature of halves and the groups exact (docs/distributions.md): the residual of two halves
    is (L - R)/2, one number for both. Every difference gets the same noise; placing it by depth
    saved 7% of the mean variance in the one case measured, at the expense of the middle of the
    distribution.

    *One value replaced by another* moves D by the squared distance C(v, w) (`Placement`), at most
    ``C = 2K + 2`` for 2^K values.

    *Balls.* Two datasets that differ in a records differ by k_g replaced values in group g,
    ``Σ k_g <= a``, as for ranks. The move of a group is a sum of k_g single ones, so it is at
    most ``k_g² C``, attained where all k_g records go from v to w. In all ``Δ2² = C Σ k_g²``, which
    fills the largest groups first; sets of groups add up.

    *Exchanges.* The person leaves group x with v and enters group y with v', the carrier takes its
    w from y to x. Each of the p sets with several inhabited groups adds ``C(v, w) + C(w, v')``,
    each of the p' sets with one C(v, v'). The three values are placed so that the sum is largest;
    for p' = 0 it is ``2p C``. Δ1 is found in the same way. A person with up to m records makes m
    exchanges: m times these norms.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> public = Dataspace.from_table(
    ...     Table(Schema([Feature("ward", ["a", "b"])]), [30, 20]), [Margin("ward")]
    ... )
    >>> space = distribution_space(
    ...     public, Ball(2), Outcome("score", 0, 3, steps=3), [Margin("ward")]
    ... )
    >>> space.tree.farthest, space.l2_squared, space.l1, space.shape
    (6, 24, 8, (6,))
    """

    method = "closed form for replaced values in a tree of halves"

    def query(self) -> dict[str, Any]:
        """Return the outcome and the groups."""
        return {"kind": "distribution", **self._outcome_json(), **groups_json(self)}

    @property
    def tree(self) -> ValueTree:
        """The tree of the values."""
        return value_tree(len(self.outcome.edges) + 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of differences, group after group."""
        return (len(self.sizes) * self.tree.gaps,)

    @cached_property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ of the differences."""
        if not any(self.adjacency.replaced_values(self.counts)):
            return Norms(0, 0, 0)
        find = self.adjacency.by_kind(ball=self._ball_norms, exchange=self._exchange_norms)
        return find()

    def _ball_norms(self) -> Norms:
        """Each group sees so many values go as far as two values can be apart."""
        longest, counts = Placement(self.tree, ONE_PAIR, 2).cost, self.replaced_norms
        return Norms(longest * counts.l1, self.tree.farthest * counts.l2_squared, 2 * counts.linf)

    def _exchange_norms(self) -> Norms:
        """Three values tie the groups: of the person before and after, and of the carrier."""
        times = self.adjacency.times
        if self.exact_moves is not None:
            replaced = self._ball_norms()
            square = self.exact_moves.largest_square(self.tree.gram, self.tree.farthest)
            return Norms(replaced.l1, times**2 * square, replaced.linf)
        once = Norms(self.place_exchange(2).cost, self.place_exchange(4).cost, 2)
        return once.multiply(times)

    def place_exchange(self, parted: int) -> Placement:
        """Where the three values of an exchange are farthest apart."""
        several = sum(groups > 1 for groups in self.sums.inhabited_cell_counts)
        single = sum(groups == 1 for groups in self.sums.inhabited_cell_counts)
        pairs = {
            (_PERSON, _CARRIER): several,
            (_CARRIER, _AFTER): several,
            (_PERSON, _AFTER): single,
        }
        return Placement(self.tree, pairs, parted)

    @property
    def naive(self) -> Norms:
        """The same for one record where no size is public: it takes another value, or leaves a
        group for another.
        """
        sets = len(self.blocks)
        longest = Placement(self.tree, ONE_PAIR, 2).cost
        # Two paths from the root to a value, where a record leaves a group for another.
        paths = 2 * self.tree.depth
        once = Norms(max(longest, paths), max(self.tree.farthest, paths), 2)
        return Norms(once.l1 * sets, once.l2_squared * sets, once.linf)

    @property
    def exact(self) -> bool:
        """Whether the cost is attained."""
        return self.sums.exact

    @property
    def dimension(self) -> int:
        """The number of differences in groups with records."""
        return int((self.sizes > 0).sum()) * self.tree.gaps

    @cached_property
    def _occupied_mask(self) -> Floats:
        return np.repeat((self.sizes > 0).astype(np.float64), self.tree.gaps)

    def project(self, values: ArrayLike) -> Floats:
        """Return the differences, 0 in groups without records."""
        return np.asarray(self.check_shape(values) * self._occupied_mask)

    def variances(self) -> Floats:
        """Return ones, and zeros in groups without records."""
        return self._occupied_mask.copy()

    def apply_query(self, histograms: Counts) -> Counts:
        """Return the query of the histograms of all groups, one row per group."""
        return self.tree.differences(histograms).ravel()


def distribution_space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    blocks: Sequence[Margin],
    answered: str | None = None,
) -> DistributionSpace:
    """Return the space of the distribution of an outcome by published groups; refuse groups without
    exact counts.

    Parameters
    ----------
    dataspace, adjacency, outcome, blocks, answered
        As for `sum_space`.
    """
    check_steps(outcome)
    public = sum_space(dataspace, adjacency, outcome, blocks, answered).dataspace
    return DistributionSpace(public, adjacency, outcome, tuple(blocks), answered=answered)


def check_steps(outcome: Outcome) -> None:
    """Refuse a grid that is too fine: the law of every count up to a value is computed.

    >>> check_steps(Outcome("score", 0, 1, 5000))
    Traceback (most recent call last):
    semidp.errors.InputError: a distribution of 'score' has at most 4,096 steps, not 5,000: give a
    coarser grid
    """
    if outcome.steps > MOST_STEPS:
        most = f"a distribution of {outcome.column!r} has at most {MOST_STEPS:,} steps"
        raise InputError(
            f"{most}, not {outcome.steps:,}: give a coarser grid",
            needs="grid",
            names=(outcome.column,),
        )


def recorded_distribution(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> DistributionSpace:
    """Return the space that `DistributionSpace.query` wrote."""
    return distribution_space(dataspace, adjacency, *recorded_groups(query))
