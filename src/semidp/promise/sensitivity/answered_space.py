"""How far apart pairs (number who answered, sum of their values) by groups can be while the group
sizes stay fixed.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.promise.schema.margins import Counts, Floats
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves, find_moves
from semidp.promise.sensitivity.outcome_spaces import SpaceByGroups, recorded_groups, sum_space
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Margin
from semidp.promise.tradeoff.budget import Budget

# parts that half of the bounds is divided into, at least: the weight of an answer is a whole number
_FINEST = 500


@frozen(slots=False)
class AnsweredSpace(SpaceByGroups):
    """S_a of the pairs (number who answered, sum of their values) by published groups; see
    `answered_space`.

    A record adds ``v = r (w, f (2 y - B))`` to its group: r is 1 if it answered and y in 0..B is
    its value in steps, so values are centered at the middle of the bounds; f refines the
    steps, and w is the weight of an answer. The query holds the first entries of all groups of all
    blocks, then the second entries.

    *The triangle.* v lies in the triangle with corners 0, (w, -fB) and (w, fB). In the l2 norm its
    longest side is ``D = max(2 f B, sqrt(w² + f² B²))``, which is that of the sum alone for
    ``w <= √3 f B``; in the l1 norm ``D = max(2 f B, w + f B)``, for ``w <= f B``. Up to there the
    number who answered costs nothing.

    *Norms.* As for sums (`SumSpace`): of the records that differ, every cell holds k before and
    after, so its pair changes by at most ``k D``. A ball moves a records of the largest cells of
    each block. An exchange replaces one record in two cells of a block, and in the only cell of any
    other: ``Δ1 = (2p + p') D`` and ``Δ2² = (2p + p') D²``. All are attained for p' = 0 or p = 0;
    otherwise they are upper bounds.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = answered_space(public, Ball(2), Outcome("pay", 0, 1, steps=500), [Margin("ward")])
    >>> space.l2, space.exact  # in halves of a step: the same as for the sums alone
    (2000.0, True)
    >>> space.fineness, space.weight  # of 500 √3
    (1, 866)
    """

    fineness: int
    weight: int

    method = "closed form for numbers who answered and their sums by published groups"

    def query(self) -> dict[str, Any]:
        """Return the outcome, the groups, and the weight of an answer."""
        by = [list(block.names) for block in self.blocks]
        scale = {"fineness": self.fineness, "weight": self.weight}
        return {"kind": "answered", **self._outcome_json(), "by": by, **scale}

    @property
    def law_details(self) -> dict[str, str]:
        """The weight of an answer, and the number of parts of half a step."""
        return {"weight": str(self.weight), "fineness": str(self.fineness)}

    @property
    def unit(self) -> Fraction:
        """The value of one unit of the query in a sum of values, in units of the
        outcome.
        """
        return query_unit(self.outcome, self.fineness)

    @property
    def half(self) -> int:
        """The value at the upper bound, counted from the middle of the bounds: f B."""
        return self.fineness * self.outcome.steps

    @property
    def cells(self) -> int:
        """The number of groups of all blocks together."""
        return sum(counts.size for counts in self.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Two numbers per group."""
        return (2 * self.cells,)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slice of each block in one half of the query."""
        return self.sums.slices

    def pairs(self, answered: Counts, steps: Counts) -> Counts:
        """Return the query: from the number who answered in each group, and the sum of their
        steps.
        """
        # Doubled, so the middle of an odd number of steps is a whole number.
        middle = 2 * steps - self.outcome.steps * answered
        return np.concatenate([self.weight * answered, self.fineness * middle])

    @property
    def naive(self) -> Norms:
        """The norms for one record where no count is public: in each block it leaves one cell and
        enters another.
        """
        # Two cells a block, each by the corner of the triangle that is farthest from 0.
        cells = 2 * len(self.blocks)
        far = self.weight + self.half
        square = self.weight**2 + self.half**2
        most = max(self.weight, 2 * self.half)
        return Norms(cells * far, cells * square, most)

    @cached_property
    def exact_moves(self) -> OutcomeMoves | None:
        """The exchanges, if an exact total has the outcome as a feature. Its levels say nothing of
        who answered, so each allows one value more: none.
        """
        moves = find_moves(self.dataspace, self.outcome, self.sets)
        if moves is None or self.adjacency.protects_groups:
            return None
        # 0 is no value, and 1 the lowest
        with_none = []
        for values in moves.values:
            with_none.append([0, *(value + 1 for value in values)])
        return evolve(moves, values=with_none)

    @cached_property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞."""
        once = self.replaced_norms
        # The triangle has one upright side, and two that are equally long.
        side = 2 * self.half
        one = max(side, self.weight + self.half)
        two = max(side**2, self.weight**2 + self.half**2)
        most = max(side, self.weight)
        return Norms(one * once.l1, two * once.l2_squared, most * once.linf)

    @property
    def exact(self) -> bool:
        """Whether the norms are attained: those of the sums are, and every replaced value can be
        one of a swap.
        """
        return self.sums.exact and self.swaps_values

    @property
    def swaps_values(self) -> bool:
        """Whether sums move in as many cells as values are replaced."""
        moved = np.concatenate(self.adjacency.changed_sums(self.counts))
        replaced = self.adjacency.replaced_values(self.counts)
        return int((moved != 0).sum()) == len(replaced)

    @property
    def dimension(self) -> int:
        """Twice that of the sums."""
        return 2 * self.sums.dimension

    def project(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the nearest pairs that vanish where no record is and have the same total in every
        block.
        """
        both = self.check_shape(values).reshape(2, -1)
        return np.concatenate([self.sums.project(part) for part in both])

    def variances(self) -> Floats:
        """Return the diagonal of P."""
        return np.tile(self.sums.variances(), 2)


def answered_space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    blocks: Sequence[Margin],
    budget: Budget | None = None,
) -> AnsweredSpace:
    """Return the space of the pairs (number who answered, sum of their values) by published groups.

    Parameters
    ----------
    dataspace, adjacency, outcome, blocks
        As for `sum_space`.
    budget
        The budget: a pure epsilon is spent on Laplace noise, for which an answer weighs
        less.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> question = public, Ball(1), Outcome("ok", 0, 1, steps=1), [Margin("ward")]
    >>> answered_space(*question).weight, answered_space(*question, Budget.pure(1)).weight
    (866, 500)
    """
    fineness = grid_fineness(outcome)
    half = fineness * outcome.steps
    laplace = budget is not None and budget.kind == "pure"
    weight = half if laplace else math.isqrt(3 * half**2)
    return _space(dataspace, adjacency, outcome, blocks, fineness, weight)


def grid_fineness(outcome: Outcome) -> int:
    """Return how many parts each half of a step of an outcome's grid is divided into.

    >>> grid_fineness(Outcome("ok", 0, 1, steps=1)), grid_fineness(Outcome("pay", 0, 1, steps=1000))
    (500, 1)
    """
    return -(-_FINEST // outcome.steps)


def query_unit(outcome: Outcome, fineness: int) -> Fraction:
    """Return the value of one unit of the query in a sum of values: a part of half a
    step.

    >>> query_unit(Outcome("ok", 0, 1, steps=1), 500)
    Fraction(1, 1000)
    """
    return outcome.width / (2 * fineness)


def recorded_answered(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> AnsweredSpace:
    """Return the space that `AnsweredSpace.query` wrote."""
    outcome, blocks, _ = recorded_groups(query)
    fineness, weight = int(query["fineness"]), int(query["weight"])
    if fineness < 1 or weight < 1:
        raise ValueError("the fineness and the weight of an answer are whole numbers of at least 1")
    return _space(dataspace, adjacency, outcome, blocks, fineness, weight)


def _space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    blocks: Sequence[Margin],
    fineness: int,
    weight: int,
) -> AnsweredSpace:
    # Sums refuse groups whose sizes are not published.
    public = sum_space(dataspace, adjacency, outcome, blocks).dataspace
    return AnsweredSpace(public, adjacency, outcome, tuple(blocks), fineness, weight)
