"""How far apart sums of a private outcome can be while the published counts stay fixed.

A record is (x, y): features x whose margins may be public, and an outcome y that nothing publishes,
in whole steps from 0 to B. `SumSpace` is for sums by group; `outcome_adjacency` is the adjacency of
such records.
"""

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import exact, plain
from semidp.promise.schema.margins import Counts, Floats
from semidp.promise.schema.outcome import ANSWERS, Outcome, answered_column
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_moves import (
    OutcomeMoves,
    find_moves,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin, require_counts
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency

LARGEST_FACTOR = 10**300  # still a floating-point number


@frozen(slots=False)
class OutcomeSpace(QuerySpace):
    """What the spaces of an outcome share: the published counts fix no part, and nothing ties
    values unless said.
    """

    dataspace: Dataspace
    adjacency: Adjacency
    outcome: Outcome
    # The feature that says who has a value, where only those who have are measured.
    answered: str | None = field(default=None, kw_only=True)

    exact_claims_only: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        _refuse_published_answers(self.dataspace, self.adjacency, self.outcome, self.answered)

    @property
    def sets(self) -> tuple[Margin, ...]:
        """The sets of groups; none of a query without groups."""
        return ()

    @cached_property
    def exact_moves(self) -> OutcomeMoves | None:
        """The exchanges, if an exact total has the outcome as a feature: closed forms rest on
        carriers that keep their outcomes. None elsewhere, and for balls.
        """
        if self.adjacency.protects_groups:
            return None
        return find_moves(self.dataspace, self.outcome, self.sets)

    @property
    def unit(self) -> Fraction:
        """The width of one step of the outcome's grid."""
        return self.outcome.width

    @property
    def movable(self) -> int:
        """How many records can differ: a, or all of them."""
        return min(self.adjacency.a, self.dataspace.n or 0)

    def fixed_part(self) -> Floats:
        """Return zeros: the published counts say nothing about an outcome."""
        return np.zeros(self.shape)

    def project(self, values: ArrayLike) -> Floats:
        """Return the values as they are: nothing published ties them."""
        return self.check_shape(values).astype(np.float64)

    def variances(self) -> Floats:
        """Return ones."""
        return np.ones(self.shape)

    def _outcome_json(self) -> dict[str, Any]:
        bounds = [plain(self.outcome.lower), plain(self.outcome.upper)]
        document = {"column": self.outcome.column, "bounds": bounds, "grid": self.outcome.steps}
        lines = [plain(cut) for cut in self.outcome.cuts]
        return {**document, "lines": lines} if lines else document


@frozen(slots=False)
class GroupedSpace(OutcomeSpace):
    """A query space of an outcome by the groups of several sets; their counts are published."""

    blocks: tuple[Margin, ...]

    @property
    def sets(self) -> tuple[Margin, ...]:
        """The sets of groups."""
        return self.blocks


@frozen(slots=False)
class SumSpace(GroupedSpace):
    """S_a of the sums of an outcome by the cells of published margins; build it with `sum_space`.

    The query is the vector of ``Σ y_i`` over the records of each cell of each block, block after
    block.

    *One block with counts n_c.* Let two datasets of D_t differ in the records I, |I| <= a. Outside
    I nothing changes, and the block's counts are equal, so I holds the same number k_c of records
    in cell c before and after. The sum of cell c changes from a sum of k_c numbers in [0, B] to
    another one, so by at most ``B k_c``, whoever changed the cell. Hence ``Δ1 = B a``,
    ``Δ2² = B² max Σ k_c²`` over ``0 <= k_c <= n_c, Σ k_c <= a`` and ``Δ∞ = B min(a, max n_c)``; the
    maximum fills the largest cells first (a² where one cell has a records). All three are attained
    by outcomes that go from 0 to B while no record changes its cell.

    *p blocks.* Each obeys the above, so the norms add: ``Δ1 = a p B`` and ``Δ2 = a B √p`` where
    every block has a cell of a records. Attained where the blocks are disjoint, since records can
    then be paired at will.

    *Exchanges.* The person leaves cell x with outcome v and enters cell y with v', the carrier
    takes its w from y to x: cell y changes by ``v' - w`` and cell x by ``w - v``, the only cell of
    a block with one by ``v' - v``. So with p blocks of several cells and p' of one,
    ``Δ1 = B max(2p, p + p')``, ``Δ2² = B² max(2p, p + p')`` and ``Δ∞ = B``. A person with up to m
    records makes m exchanges: m times these, attained where the two largest cells hold m records.

    *Those who answered.* With `answered` the query has only the cells of records that have a value,
    and the n_c are theirs. The bounds of balls are about each cell by itself, so they hold for any
    of the cells. An exchange may now lead out of these cells: the person leaves cell x with v, and
    the carrier, who had no value, enters it with any value w. Or it leads into them: the carrier
    leaves cell y, loses its w, and the person enters with any v'. Either changes one cell of each
    block by ``w - v`` or ``v' - w``, p + p' cells in all, which is no more than above. No second
    carrier gains or loses a value, because answers lie in one published margin.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = sum_space(public, Ball(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> space.l1, space.l2, space.linf, space.exact
    (200, 200.0, 200, True)
    """

    method = "closed form for sums by published groups"

    def query(self) -> dict[str, Any]:
        """Return the outcome and the groups."""
        return {"kind": "sums", **self._outcome_json(), **groups_json(self)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of all blocks together."""
        return (sum(counts.size for counts in self.counts),)

    @cached_property
    def counts(self) -> tuple[Counts, ...]:
        """The published counts of each block; of those who answered where it is about them."""
        every = []
        for block in self.blocks:
            if not block.names:
                every.append(np.array([self.dataspace.n], dtype=np.int64))
                continue
            counts = self.dataspace.value(block).counts
            if self.answered is not None:
                held = answered_cells(self.dataspace.schema, block, self.answered)
                counts = counts.ravel()[held]
            every.append(counts)
        return tuple(every)

    @cached_property
    def inhabited_cell_counts(self) -> list[int]:
        """For each block the number of its cells with records."""
        return [int((counts > 0).sum()) for counts in self.counts]

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Slice of each block in the vector of sums."""
        ends = np.cumsum([0, *(counts.size for counts in self.counts)]).tolist()
        return tuple(slice(low, high) for low, high in itertools.pairwise(ends))

    @property
    def naive(self) -> Norms:
        """The norms for one record where no count is public: in each block it leaves one cell and
        enters another.
        """
        steps, blocks = self.outcome.steps, len(self.blocks)
        return Norms(2 * blocks * steps, 2 * blocks * steps**2, steps)

    @cached_property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ in steps of the grid."""
        if self.exact_moves is not None:
            return self.exact_moves.sum_norms.multiply(self.adjacency.times)
        # One move is the worst in all three norms (see the class), so none of them needs its own
        # search.
        return Norms.from_changes(self.largest_sum_change.tolist()).multiply(self.outcome.steps)

    @property
    def exact(self) -> bool:
        """Whether the norms are attained: the blocks are apart, and their cells hold the records
        that move.
        """
        sizes = np.concatenate([counts.ravel() for counts in self.counts])
        closed = self.has_separate_blocks and self.exact_moves is None
        return closed and bool((np.abs(self.largest_sum_change) <= sizes).all())

    @cached_property
    def largest_sum_change(self) -> Counts:
        """The largest change of the sums of an outcome between 0 and 1."""
        return np.concatenate(self.adjacency.changed_sums(self.counts))

    @property
    def has_separate_blocks(self) -> bool:
        """Whether there is one block, or published blocks that share no feature and no margin."""
        names = [name for block in self.blocks for name in block.names]
        apart = len(names) == len(set(names)) and all(
            block in self.dataspace.margins for block in self.blocks
        )
        # a margin across blocks, such as BC next to AB and CD, or a declared zero says which of
        # their cells go together
        tied = any(self._ties_blocks(margin) for margin in self.dataspace.margins)
        zeros = bool(self.dataspace.schema.structural_zeros)
        return len(self.blocks) == 1 or (apart and not tied and not zeros)

    def _ties_blocks(self, margin: Margin) -> bool:
        """Whether a margin has features of two blocks."""
        return sum(not set(block.names).isdisjoint(margin.names) for block in self.blocks) > 1

    @property
    def dimension(self) -> int:
        """The number of cells with records, less one for each block after the first: all blocks add
        up to one total.
        """
        return (
            sum(self.inhabited_cell_counts) - len(self.blocks) + 1
            if self._inhabited_mask.any()
            else 0
        )

    def project(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the nearest sums that vanish where no record is and have the same total in every
        block.
        """
        # A group that is publicly empty has the sum 0: what was measured there is noise alone.
        result = np.where(self._inhabited_mask, self.check_shape(values).astype(np.float64), 0.0)
        if len(self.blocks) > 1 and self._inhabited_mask.any():
            # All blocks add up the same records. The noise of a total grows with its g inhabited
            # cells, so totals are averaged with weights 1/g.
            totals = [float(result[part].sum()) for part in self.slices]
            weights = [1 / size for size in self.inhabited_cell_counts]
            common = sum(w * total for w, total in zip(weights, totals, strict=True)) / sum(weights)
            for part, size, total in zip(
                self.slices, self.inhabited_cell_counts, totals, strict=True
            ):
                result[part] += np.where(self._inhabited_mask[part], (common - total) / size, 0.0)
        return result

    def variances(self) -> NDArray[np.float64]:
        """Return the diagonal of P: 1 less `common_part` of the block, and 0 if no record is."""
        parts = [
            np.where(self._inhabited_mask[part], 1 - self.common_part(k), 0.0)
            for k, part in enumerate(self.slices)
        ]
        return np.concatenate(parts)

    def common_part(self, number: int) -> float:
        """Return the number κ with which P is ``1 - κ 11'`` on the inhabited cells of a block.

        ``κ = (1/g_b)(1 - (1/g_b)/Σ_b 1/g_b)`` for g_b inhabited cells: what all cells of a block
        share is known better from several blocks than from one.
        """
        if not self._inhabited_mask.any():
            return 0.0
        weights = [1 / size for size in self.inhabited_cell_counts]
        return weights[number] * (1 - weights[number] / sum(weights))

    @cached_property
    def _inhabited_mask(self) -> NDArray[np.bool_]:
        return np.concatenate([counts.ravel() > 0 for counts in self.counts])


def sum_space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    blocks: Sequence[Margin] = (Margin(),),
    answered: str | None = None,
) -> SumSpace:
    """Return the sensitivity space of the sums of an outcome by published groups.

    Parameters
    ----------
    dataspace
        What is published exactly; it must publish the counts of every block.
    adjacency
        How many records may differ: `outcome_adjacency` of the dataspace, or more.
    outcome
        The outcome with its declared bounds and grid.
    blocks
        The groups: one margin, or several whose sums are released together. The total if left out.
    answered
        The feature of every block that says who has a value of the outcome; only groups of those
        who have are measured. All groups if left out.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("ward", ["a", "b"]), Feature("sex", ["f", "m"])]), [[5, 5], [5, 5]]
    ... )
    >>> public = Dataspace.from_table(table, [Margin("ward"), Margin("sex")])
    >>> sum_space(
    ...     public, Ball(3), Outcome("score", 0, 1, steps=1), [Margin("ward"), Margin("sex")]
    ... ).l2_squared
    18
    >>> sum_space(public, Ball(3), Outcome("score", 0, 1, steps=1), [Margin("ward", "sex")])
    Traceback (most recent call last):
    semidp.errors.Refused: sums by group need exact group counts, and those of ward × sex are not
    published: publish
    them
    """
    public = outcome_datasets(dataspace, adjacency)
    if not blocks:
        raise InputError("sums need at least one group: name a published margin")
    # The bound B k_c rests on equal numbers of records in a cell before and after. A count that may
    # change would let records leave a group with nobody in their place.
    for block in blocks:
        if not public.publishes(block):
            raise Refused(
                f"sums by group need exact group counts, and those of {block} are not published:"
                " publish them"
            )
    if answered is not None:
        for block in blocks:
            answered_cells(public.schema, block, answered)
    return SumSpace(public, adjacency, outcome, tuple(blocks), answered=answered)


def answered_cells(schema: Schema, block: Margin, answered: str) -> NDArray[np.bool_]:
    """Whether the records of each cell of a block have a value of the outcome, in the order of
    cells.

    Parameters
    ----------
    schema
        The features.
    block
        The features of the cells, `answered` among them.
    answered
        The feature that says who has a value.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("ward", ["a", "b"]), Feature("pay answered", ["no", "yes"])])
    >>> answered_cells(schema, Margin("ward", "pay answered"), "pay answered").tolist()
    [False, True, False, True]
    """
    yes = ANSWERS[-1]
    if answered not in block.names or yes not in schema.feature(answered).levels:
        raise InputError(
            f"{answered!r} says who answered: it is among the features of every set of groups, and"
            f" one of its levels is {yes!r}"
        )
    cells = schema.restrict(block.names)
    place = cells.feature(answered).levels.index(yes)
    return np.asarray(np.indices(cells.shape)[cells.axis(answered)].ravel() == place)


def measured_rows(space: GroupedSpace, block: Margin, rows: Counts) -> Counts:
    """Return the rows of the groups that are measured, from a row for each cell of a set."""
    if space.answered is None:
        return rows
    return np.asarray(rows[answered_cells(space.dataspace.schema, block, space.answered)])


def groups_json(space: GroupedSpace) -> dict[str, Any]:
    """Return the groups of a query as plain values, and which of them are measured."""
    by = [list(block.names) for block in space.blocks]
    return {"by": by} if space.answered is None else {"by": by, "answered": space.answered}


@frozen(slots=False)
class SpaceByGroups(GroupedSpace):
    """What the spaces of an outcome by several sets of groups share: the published sizes of the
    groups.
    """

    @cached_property
    def sums(self) -> SumSpace:
        """The sums of the outcome by the same groups: they know the sizes."""
        return sum_space(self.dataspace, self.adjacency, self.outcome, self.blocks, self.answered)

    @property
    def counts(self) -> tuple[Counts, ...]:
        """The published sizes of the groups of each set."""
        return self.sums.counts

    @cached_property
    def sizes(self) -> Counts:
        """The published sizes of all groups, set after set."""
        return np.concatenate([counts.ravel() for counts in self.counts])

    @cached_property
    def replaced_norms(self) -> Norms:
        """Σ k_g, Σ k_g² and the largest k_g: how many values are replaced in each group."""
        if self.exact_moves is not None:
            return self.exact_moves.replaced_norms.multiply(self.adjacency.times)
        return Norms.from_changes(self.adjacency.replaced_values(self.counts))


def outcome_datasets(dataspace: Datasets, adjacency: Adjacency) -> Dataspace:
    """Return the datasets of a query of outcomes; refuse those without published counts, or without
    freedom.
    """
    public = require_counts(dataspace)
    adjacency.check(public)
    if public.n and adjacency.a == 0:
        raise Refused(
            "an outcome that nothing publishes can change in one record alone: give an adjacency a"
            " of at least 1"
        )
    return public


def _refuse_published_answers(
    dataspace: Dataspace, adjacency: Adjacency, outcome: Outcome, answered: str | None
) -> None:
    """Refuse, under exchange, to measure all records where an exact total says who has a value.

    Whoever takes over that a person answered has a value from then on, in whatever group: a third
    value is replaced. Groups of those who answered have none (`SumSpace`).
    """
    if adjacency.protects_groups:
        return
    answers = answered_column(outcome.column)
    if answered == answers:
        return
    if any(answers in margin.names for margin in dataspace.margins):
        raise Refused(
            f"an exchange would give or take values of {outcome.column!r} of others, too, since"
            " the number who have one is exact: publish groups of those who answered, or protect a"
            " number of records instead"
        )


def recorded_outcome(query: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a recorded query."""
    lower, upper = map(exact, query["bounds"])
    return Outcome(query["column"], lower, upper, query["grid"], query.get("lines", ()))


def recorded_groups(query: Mapping[str, Any]) -> tuple[Outcome, list[Margin], str | None]:
    """Return the outcome of a recorded query, its sets of groups, and the feature that says who has
    a value.
    """
    blocks = [Margin(*names) for names in query["by"]]
    return recorded_outcome(query), blocks, query.get("answered")


def recorded_sums(query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency) -> SumSpace:
    """Return the space of sums that `SumSpace.query` wrote."""
    return sum_space(dataspace, adjacency, *recorded_groups(query))


def outcome_adjacency(dataspace: Dataspace, protection: Protection | None = None) -> Ball:
    """Return A_a(t) for records that carry an unpublished outcome.

    Changing only y needs one record, and a record that changes its features needs as many others as
    it would without y, which keep theirs. So a(t) is that of the published margins, and at least 1
    where there is a record; for a person with several records, at least as many as these.

    >>> from semidp import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> one_group = Table(Schema([Feature("ward", ["a"])]), [5])
    >>> outcome_adjacency(Dataspace.from_table(one_group, [Margin("ward")]))
    Ball(a=1)
    """
    alone = min(1 if protection is None else protection.times, dataspace.n)
    return Ball(max(semi_adjacency(dataspace, protection).bound, alone), protection)


def outcome_exchange(dataspace: Dataspace, protection: Protection | None = None) -> Exchange:
    """Return exchange adjacency for records that carry an unpublished outcome: y can change alone.

    >>> from semidp import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [5, 4])
    >>> outcome_exchange(Dataspace.from_table(wards, [Margin("ward")]))
    Exchange(a=2)
    """
    exchange = Exchange.from_dataspace(dataspace, protection)
    return Exchange(max(exchange.a, exchange.times if dataspace.n else 0), protection)
