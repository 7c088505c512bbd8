"""How far the differences of halves can move while group sizes stay exact: what a distribution is
calibrated by.

A record is (x, y) with y in one of the cells between the edges of the outcome: whole steps from 0
to B as in `outcomes`, also cut at lines. The query is D of every node of the tree of these cells
(`value_tree`, which calls them values), group after group.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from semidp.errors import InputError
from semidp.promise.exact import count_noun
from semidp.promise.schema.margins import Counts, Floats
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.worst_pairs import Pair
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Margin
from semidp.publish.sources.contract import Outcome
from semidp.publish.statistics.distribution.value_tree import Placement, ValueTree, value_tree
from semidp.publish.statistics.outcomes.spaces import (
    SpaceByGroups,
    groups_json,
    recorded_outcome,
    sum_space,
)

MOST_STEPS = 4096
"""The finest grid of a distribution: intervals of so many values take about ten seconds."""

_ONE_PAIR = {(0, 1): 1}
# the value of the person, of the carrier, and the person's next one
_PERSON, _CARRIER, _AFTER = 0, 1, 2


@frozen(slots=False)
class DistributionSpace(SpaceByGroups):
    """S of the differences D of all groups: their noise is that of a distribution.

    This is the product of the tables group × values at every depth, with the values as a nested
    feature of halves and the groups exact (docs/distributions.md): the residual of two halves
    is (L - R)/2, one number for both. Every difference gets the same noise; placing it by depth
    saved 7% of the mean variance in the one case measured, at the expense of the middle of the
    distribution.

    *One value replaced by another* moves D by the squared distance C(v, w) (`Placement`), at most
    ``C = 2K + 2`` for 2^K values.

    *Balls.* Two datasets that differ in a records differ by k_g replaced values in group g,
    ``Σ k_g <= a``, as for ranks. The move of a group is a sum of k_g single ones, so that it is at
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
    >>> from semidp.promise.schema.counts import Table
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
        replaced = self.adjacency.replaced_values(self.counts)
        if not any(replaced):
            return Norms(0, 0, 0)
        find = self.adjacency.by_kind(ball=self._ball_norms, exchange=self._exchange_norms)
        return find(replaced)

    def _ball_norms(self, replaced: list[int]) -> Norms:
        """Each group sees so many values go as far as two values can be apart."""
        longest = Placement(self.tree, _ONE_PAIR, 2).cost
        squares = sum(k * k for k in replaced)
        return Norms(longest * sum(replaced), self.tree.farthest * squares, 2 * max(replaced))

    def _exchange_norms(self, replaced: list[int]) -> Norms:
        """Three values tie the groups: of the person before and after, and of the carrier."""
        moves = self.exact_moves
        if moves is not None:
            longest = Placement(self.tree, _ONE_PAIR, 2).cost
            counts = moves.replaced_norms
            square = moves.largest_square(self.tree.gram, self.tree.farthest)
            once = Norms(longest * counts.l1, square, 2 * counts.linf)
            return once.multiply(self.adjacency.times)
        once = Norms(self._place_exchange(2).cost, self._place_exchange(4).cost, 2)
        return once.multiply(self.adjacency.times)

    def _place_exchange(self, parted: int) -> Placement:
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
        longest = Placement(self.tree, _ONE_PAIR, 2).cost
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

    def worst_move(self) -> Counts | None:
        """Return the differences of two datasets that are as far apart as the norms say, or as
        groups have records.
        """
        if self.exact_moves is not None and not self.is_zero:
            return self._measured_at(*self.find_change(self.exact_moves, self._measured_at))
        # Where sets of groups are tied, which of them change together is not known.
        tied = self.sums.worst_move() is None
        return None if self.is_zero or tied else self.apply_query(self._worst_histograms())

    def _worst_histograms(self) -> Counts:
        """What is added to the histograms of all groups by the costliest move."""
        change = np.zeros((len(self.sizes), self.tree.values), dtype=np.int64)
        move = self.adjacency.by_kind(ball=self._move_records, exchange=self._exchange_person)
        move(change)
        return change

    def _move_records(self, change: Counts) -> None:
        """Add the costliest move of any a records to the histograms of all groups."""
        moved = np.concatenate(self.adjacency.changed_sums(self.counts))
        before, after = Placement(self.tree, _ONE_PAIR).places
        change[:, before] = -moved
        change[:, after] = moved

    def _exchange_person(self, change: Counts) -> None:
        """Add the costliest exchange of one person to the histograms of all groups."""
        person, carrier, after = self._place_exchange(4).places
        for part in self.sums.slices:
            by_size = np.argsort(-self.sizes[part], kind="stable")
            largest = part.start + by_size[:2]
            inhabited = [group for group in largest.tolist() if self.sizes[group]]
            # The person leaves one group and enters another; where there is one, the value changes
            # in place.
            replaced = [(person, carrier), (carrier, after)]
            if len(inhabited) == 1:
                replaced = [(person, after)]
            for group, (old, new) in zip(inhabited, replaced, strict=False):
                times = min(self.adjacency.times, int(self.sizes[group]))
                change[group, old] -= times
                change[group, new] += times

    def difference(self, pair: Pair) -> str:
        """Say in how many differences of halves two datasets differ."""
        return f"{count_noun(pair.entries, 'difference')} of halves"

    def apply_query(self, histograms: Counts) -> Counts:
        """Return the query of the histograms of all groups, a row a group."""
        return self.tree.differences(histograms).ravel()

    def _measured_at(self, change: Counts, values: Counts) -> Counts:
        """The query of a change of histograms that have some of the values."""
        histograms = np.zeros((len(change), self.tree.values), dtype=np.int64)
        histograms[:, values] = change
        return self.apply_query(histograms)

    def up_to(self, differences: ArrayLike) -> Floats:
        """Return the records up to each value but the last, a row a group, from the differences."""
        free = self.project(differences)
        rows = free.reshape(len(self.sizes), -1)
        return self.tree.up_to(rows, self.sizes)


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
    blocks = [Margin(*names) for names in query["by"]]
    outcome = recorded_outcome(query)
    return distribution_space(dataspace, adjacency, outcome, blocks, query.get("answered"))
