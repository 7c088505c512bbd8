"""Pairs of values of a query that an audit compares, for each mechanism and
query.

The pair of datasets that an audit of quantiles compares: records in groups, with values that leave
choices open.

Which records move is as in `exponential`. Under A_a any a of one cell go from the lowest value to
the highest; under exchanges a person and one carrier swap cells while the values v, w, v' take each
other's places. All other values are placed to leave every choice open, and then moved while that
helps. Beside exact levels of the outcome they are placed so, too, whatever
the levels allow: the claim rests on how many values are replaced.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cached_property, singledispatch

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.assess.worst_moves import find_change
from semidp.errors import InputError, Refused, SemidpError
from semidp.promise.exact import count_noun
from semidp.promise.mechanisms.canonical_cell import CellSpace
from semidp.promise.mechanisms.exponential import ExponentialMechanism, RankSpace, rank_scores
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.choice import ExponentialChoice
from semidp.promise.schema.margins import Counts
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.sensitivity.outcome_spaces import OutcomeSpace, answered_cells
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.fitting.tables import fit_table
from semidp.publish.residual_mechanism import SharedNoise

_NO_PAIR = "a pair is two arrays of whole numbers of one shape, with at least one axis"


def _read_values(values: ArrayLike) -> Counts:
    array = np.array(values)
    if array.dtype.kind not in "iu" or array.ndim == 0:
        raise InputError(_NO_PAIR)
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


@frozen(slots=False, eq=False)
class Pair:
    """Two values of a query that a mechanism promises to make hard to tell apart.

    Parameters
    ----------
    first, second
        The values that outputs lie around.
    precision
        One over the variance of the noise in each entry, where entries differ in it.
    unit
        The size of a step of outputs in the original units: a power of two.
    inputs
        The inputs of the mechanism, if they differ from the values around which outputs lie:
        histograms for choices.
    share
        The share of the claimed bound that the pair is known to cost: 1 unless the bound is not
        attained.
    differing_records
        How many records differ, in words; empty if only the space of the query can say it.

    Examples
    --------
    >>> pair = Pair([[1, 0], [0, 1]], [[0, 1], [1, 0]])
    >>> pair.move.tolist(), pair.records
    ([[-1, 1], [1, -1]], 2)
    """

    first: Counts = field(converter=_read_values, repr=False)
    second: Counts = field(converter=_read_values, repr=False)
    precision: NDArray[np.float64] | None = field(default=None, repr=False)
    unit: float = 1.0
    inputs: tuple[Counts, Counts] = field(repr=False)
    share: float = 1.0
    differing_records: str = ""

    @inputs.default
    def _run_on_values(self) -> tuple[Counts, Counts]:
        return self.first, self.second

    def __attrs_post_init__(self) -> None:
        if self.first.shape != self.second.shape:
            raise InputError(_NO_PAIR)
        if np.array_equal(self.first, self.second):
            raise InputError(
                "the two tables of a pair are the same: there is nothing to tell apart"
            )

    @property
    def move(self) -> Counts:
        """The difference of the two."""
        return self.second - self.first

    @property
    def entries(self) -> int:
        """How many entries of the two values differ."""
        return int((self.move != 0).sum())

    @property
    def direction(self) -> NDArray[np.float64]:
        """Direction in which Gaussian noise tells the two values apart best: the move, each entry
        times its precision.
        """
        pulled = self.move.ravel() * (1.0 if self.precision is None else self.precision.ravel())
        return np.asarray(pulled / np.linalg.norm(pulled))

    @property
    def records(self) -> int:
        """How many records of a table, or values of groups, differ: the sum of what appears."""
        return int(np.maximum(self.inputs[1] - self.inputs[0], 0).sum())


@singledispatch
def make_pair(mechanism: Mechanism, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Return the pair of two values that a mechanism measures."""
    return Pair(first, second)


@make_pair.register
def _(mechanism: SharedNoise, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Two vectors of residuals, with the precision of the noise in each entry."""
    return Pair(first, second, 1 / mechanism.entry_variances)


@make_pair.register
def _(mechanism: ExponentialMechanism, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Two sets of histograms by group: choices lie around the quantiles.

    Where both have the same quantiles, the second is moved by a step: scores are sought between
    different values.
    """
    one, other = _find_quantiles(mechanism, first), _find_quantiles(mechanism, second)
    if np.array_equal(one, other):
        at_end = other[0] >= mechanism.rank_space.outcome.steps
        other[0] += -1 if at_end else 1
    return Pair(one, other, inputs=(first, second))


def _find_quantiles(
    mechanism: ExponentialMechanism, histograms: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the value of the rank that each choice looks for, 0 or the last step if there is
    none.
    """
    ranks = mechanism.rank_space.ranks(mechanism.rate)
    up_to = np.cumsum(histograms, axis=1)
    below = (up_to[:, None, :] < ranks[:, :, None]).sum(axis=2)
    last = histograms.shape[1] - 1
    return np.asarray(np.minimum(below, last).ravel(), dtype=np.int64)


@singledispatch
def describe_difference(space: QuerySpace, pair: Pair) -> str:
    """Say how much two datasets differ that have the values of a pair."""
    return f"{count_noun(pair.records, 'unit')} ({count_noun(pair.entries, 'value')})"


@describe_difference.register
def _(space: TableSpace, pair: Pair) -> str:
    return f"{count_noun(pair.records, 'record')} ({count_noun(pair.entries, 'cell')})"


@describe_difference.register
def _(space: OutcomeSpace, pair: Pair) -> str:
    return f"{count_noun(pair.records, 'step')} of the grid ({count_noun(pair.entries, 'sum')})"


@describe_difference.register
def _(space: RankSpace, pair: Pair) -> str:
    one, other = pair.inputs
    groups = int((one != other).any(axis=1).sum())
    return f"{count_noun(pair.records, 'value')} of {count_noun(groups, 'group')}"


@describe_difference.register
def _(space: DistributionSpace, pair: Pair) -> str:
    return f"{count_noun(pair.entries, 'difference')} of halves"


@describe_difference.register
def _(space: ProductSpace | LinkedSpace, pair: Pair) -> str:
    return f"{pair.entries} measured entries of all tables together"


@describe_difference.register
def _(space: CellSpace, pair: Pair) -> str:
    return f"{abs(int(pair.move.sum()))} in x11"


Floats = NDArray[np.float64]

_MOST_CELLS = 1 << 20  # of the table that the records are placed in
_MOST_SECTIONS = 8  # of the values: between them lie the ranks that choices look for
_LARGEST_CELLS = 60  # among which two are sought whose records may swap all groups
_TRIALS = 500_000  # outputs that a conviction may count
_ROUNDS = 30
_FINE = 1e-3  # losses are merged on this grid while a pair is sought
_SECONDS = 10.0
_LEAST = 1e-300  # a probability that underflowed


@frozen(eq=False)
class _Move:
    """One record: its cell and its value, a position among the values in use, before and after."""

    cells: tuple[int, int]
    values: tuple[int, int]


@frozen(slots=False, eq=False)
class _Placed:
    """Records in the cells of a table with the published totals, and the groups of each cell.

    `groups` holds a row a set of groups: for each cell the row of its group among all histograms.
    """

    mechanism: ExponentialMechanism
    table: Counts
    groups: NDArray[np.intp]

    @classmethod
    def from_mechanism(cls, mechanism: ExponentialMechanism) -> "_Placed":
        space = mechanism.rank_space
        if space.exact_moves is not None:
            return cls(mechanism, space.sizes, np.arange(len(space.sizes))[None])
        public = space.dataspace
        schema = public.schema
        if not schema.grid.holds(_MOST_CELLS):
            raise _unknown()
        # An audit must not need the confidential table: any table with the published totals will
        # do.
        try:
            table = fit_table(np.zeros(schema.shape), public, time_limit=_SECONDS).counts
        except SemidpError:
            raise _unknown() from None
        if table is None:
            raise _unknown()
        grid = schema.grid
        answered = np.ones(table.size, dtype=bool)
        if space.answered is not None:
            # Records without a value are in no group, and stay as they are.
            answered = answered_cells(schema, Margin(*schema.names), space.answered)
        groups, start = [], 0
        for block, counts in zip(space.blocks, space.counts, strict=True):
            # A set of groups without features is one group: all records.
            within = np.zeros(table.size, dtype=int)
            if block.names:
                labels = grid.labels(schema.view(block.names), grid.full)
                within = np.asarray(labels).ravel()
            if space.answered is not None:
                measured = answered_cells(schema, block, space.answered)
                within = (np.cumsum(measured) - 1)[within]
            groups.append((start + within)[answered])
            start += counts.size
        return cls(mechanism, table.ravel()[answered], np.stack(groups))

    @property
    def space(self) -> RankSpace:
        return self.mechanism.rank_space

    @cached_property
    def by_size(self) -> NDArray[np.intp]:
        """The cells with records, the largest first."""
        order = np.argsort(-self.table, kind="stable")
        return order[: int((self.table > 0).sum())]

    def moves(self, sections: int) -> Iterator[list[_Move]]:
        """Iterate over the records that move, with values between 0 and `sections`."""
        relation = self.space.adjacency
        moves = relation.by_kind(ball=self._ball_moves, exchange=self._exchanges)
        return moves(sections)

    def _exchanges(self, sections: int) -> Iterator[list[_Move]]:
        """A person changes places with a carrier, with values of both as far apart as may be."""
        described = self.space.exact_moves
        if described is not None:
            yield from self._described_exchange(described, sections)
            return
        one, other = self._most_different_cells()
        # a person with several records makes as many exchanges, where the cells hold them
        held = min(int(self.table[one]), int(self.table[other]))
        times = min(self.space.adjacency.times, held)
        if one == other:  # nobody can change a group: a value changes alone
            yield [_Move((one, one), (0, sections))] * times
            return
        middle = (sections + 1) // 2
        values: Iterable[tuple[int, ...]] = ((0, 1, 1), (0, 1, 0))
        if sections > 1:
            values = itertools.permutations((0, middle, sections))
        for v, w, after in values:
            outwards = _Move((one, other), (v, after))
            back = _Move((other, one), (w, w))
            yield [outwards, back] * times

    def _described_exchange(self, moves: OutcomeMoves, sections: int) -> Iterator[list[_Move]]:
        """The values that an exchange replaces in each group, spread over the sections."""
        change, _ = find_change(self.space, moves, lambda change, _: np.abs(change).sum(axis=1))
        used = change[:, change.any(axis=0)]
        places = np.rint(np.linspace(0, sections, used.shape[1])).astype(int)
        for order in (places, sections - places):
            replaced = []
            for group, row in enumerate(used):
                old, new = (np.repeat(order, np.maximum(way * row, 0)).tolist() for way in (-1, 1))
                replaced += [_Move((group, group), pair) for pair in zip(old, new, strict=True)]
            yield replaced

    def _ball_moves(self, sections: int) -> Iterator[list[_Move]]:
        """As many records of the largest cells as may differ go from the lowest value to the
        highest.
        """
        moves, left = [], self.space.movable
        for cell in self.by_size.tolist():
            taken = min(left, int(self.table[cell]))
            moves += [_Move((cell, cell), (0, sections))] * taken
            left -= taken
        yield moves

    def _most_different_cells(self) -> tuple[int, int]:
        """Two cells that differ in as many sets of groups as may be, the largest of those; one cell
        where none do.
        """
        cells = self.by_size[:_LARGEST_CELLS]
        groups = self.groups[:, cells]
        differ = (groups[:, :, None] != groups[:, None, :]).sum(axis=0)
        records = self.table[cells]
        smaller = np.minimum(records[:, None], records[None, :])
        # The last key sorts first: most groups that differ, then most records.
        ranking = np.lexsort((-smaller.ravel(), -differ.ravel()))
        best = int(ranking[0])
        one, other = divmod(best, len(cells))
        if not differ[one, other]:
            return int(cells[0]), int(cells[0])
        return int(cells[one]), int(cells[other])


def worst_histograms(mechanism: ExponentialMechanism) -> tuple[Counts, Counts]:
    """Return two adjacent datasets as histograms by group, on which choices are easiest to tell
    apart, as found by search.

    >>> from semidp.promise.schema.outcome import Outcome
    >>> from semidp.promise.mechanisms.exponential import exponential_mechanism
    >>> from semidp.promise.mechanisms.exponential import rank_space
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> public = Dataspace.from_table(
    ...     Table(Schema([Feature("ward", ["a", "b"])]), [30, 20]), [Margin("ward")]
    ... )
    >>> space = rank_space(public, Ball(2), Outcome("score", 0, 10, steps=10), [Margin("ward")])
    >>> one, other = worst_histograms(exponential_mechanism(space, Budget.pure(1)))
    >>> one.sum(axis=1).tolist(), int(np.abs(one - other).sum()) // 2 == space.l1
    ([30, 20], True)
    """
    world = _Placed.from_mechanism(mechanism)
    best: _Search | None = None
    largest = -math.inf
    for places in _places(world):
        for moves in world.moves(len(places) - 1):
            search = _Search(world, places, moves)
            # The cells may hold fewer records than are to move.
            if not search.possible:
                continue
            loss = search.climb()
            if loss > largest:
                best, largest = search, loss
    if best is None:
        raise _unknown()
    return best.datasets()


def _places(world: _Placed) -> Iterator[NDArray[np.intp]]:
    """Iterate over the steps of the grid that records are placed on: one more than there are ranks
    to look for.
    """
    space, steps = world.space, world.space.outcome.steps
    largest = int(space.sizes.argmax())
    ranks = space.ranks(world.mechanism.rate)[largest]
    is_inside = (ranks >= 1) & (ranks <= space.sizes[largest])
    inside = len(np.unique(ranks[is_inside]))
    sections = max(1, min(steps, inside, _MOST_SECTIONS))
    # The values of an exchange are three: of the person before and after, and of the carrier.
    fewest = space.adjacency.by_kind(ball=1, exchange=2)
    if space.exact_moves is not None:
        fewest = 4  # another carrier may change its value
    sections = max(sections, min(steps, fewest))
    low = np.arange(sections + 1)
    low[-1] = steps
    yield low
    if steps > sections:
        yield steps - low[::-1]


class _Search:
    """Values of the records that do not move: counts on the places, for all cells of the same
    groups together.
    """

    def __init__(self, world: _Placed, places: NDArray[np.intp], moves: list[_Move]) -> None:
        self.world, self.places, self.moves = world, places, moves
        self.rate = world.mechanism.rate
        # The histograms that change, by the rows of their groups.
        cells = [cell for move in moves for cell in move.cells]
        self.seen = np.unique(world.groups[:, cells])
        taken = np.zeros(len(world.table), dtype=np.int64)
        for move in moves:
            taken[move.cells[0]] += 1
        self.left = world.table - taken
        enough_records = bool((self.left >= 0).all())
        self.possible = enough_records and bool(moves)
        # Cells that are part of the same changing histograms make a pool: their records are placed
        # together.
        in_groups = [(world.groups == group).any(axis=0) for group in self.seen]
        inside = np.stack(in_groups)
        patterns, pool = np.unique(inside, axis=1, return_inverse=True)
        self.inside = patterns.T
        self.pool = pool.ravel()
        records = np.maximum(self.left, 0)
        in_pools = np.bincount(self.pool, weights=records, minlength=len(self.inside))
        self.sizes = in_pools.astype(int)
        self.counts = np.stack([self._balance_pool(size) for size in self.sizes.tolist()])

    def _balance_pool(self, size: int) -> Counts:
        """Return the counts of one pool: so many records up to each place that its ranks lie
        there.
        """
        space = self.world.space
        place = int(space.sizes[self.seen].argmax())
        largest = int(self.seen[place])
        n = int(space.sizes[largest])
        ranks = np.unique(space.ranks(self.rate)[largest])
        shares = ranks[(ranks >= 1) & (ranks <= n)] / n
        # As many cuts as there are places but one, spread evenly over the shares of the ranks.
        even = np.linspace(0, 1, len(self.places) - 1)
        at_ranks = np.linspace(0, 1, max(len(shares), 1))
        cuts = np.interp(even, at_ranks, shares)
        whole_cuts = np.rint(cuts * size)
        up_to = np.append(whole_cuts, size).astype(np.int64)
        return np.diff(np.maximum.accumulate(up_to), prepend=0)

    def _histograms(self, counts: Counts) -> tuple[Counts, Counts]:
        """The histograms that change, on the places, before and after."""
        still = self.inside.T.astype(np.int64) @ counts
        before, after = still.copy(), still.copy()
        for when, histograms in enumerate((before, after)):
            for move in self.moves:
                for group in self.world.groups[:, move.cells[when]]:
                    row = int(np.searchsorted(self.seen, group))
                    histograms[row, move.values[when]] += 1
        return before, after

    def score(self, counts: Counts | None = None) -> float:
        """Return approximately the loss that an audit would prove if it knew the distribution of
        the choices.
        """
        one, other = self._histograms(self.counts if counts is None else counts)
        space, choice = self.world.space, ExponentialChoice(self.rate)
        losses = np.zeros(1)
        first = np.ones(1)
        second = np.ones(1)
        wide = np.zeros((2, space.outcome.steps + 1), dtype=np.int64)
        ranks = space.ranks(self.rate)
        for row, group in enumerate(self.seen):
            wide[:] = 0
            wide[0, self.places] = one[row]
            wide[1, self.places] = other[row]
            for rank in ranks[group].tolist():
                # Below and above all values nothing is chosen.
                if not 1 <= rank <= space.sizes[group]:
                    continue
                p = choice.probabilities(rank_scores(wide[0], rank))
                q = choice.probabilities(rank_scores(wide[1], rank))
                odds = np.maximum(q, _LEAST) / np.maximum(p, _LEAST)
                kinds, p, q = _merge_losses(np.log(odds), p, q)
                # Choices are independent: losses add, and probabilities multiply.
                sums = np.add.outer(losses, kinds).ravel()
                of_first = np.multiply.outer(first, p).ravel()
                of_second = np.multiply.outer(second, q).ravel()
                losses, first, second = _merge_losses(sums, of_first, of_second)
        # Either dataset may be the null hypothesis. Swapping them turns the sign of every loss, so
        # the order is reversed to let losses grow again.
        forwards = self._loss(first, second)
        backwards = self._loss(second[::-1], first[::-1])
        return max(forwards, backwards)

    def _loss(self, null: Floats, alternative: Floats) -> float:
        """Return the loss that the best event of large losses would prove: epsilon for pure claims,
        else mu.
        """
        from scipy.special import ndtri

        size = _rejecting(null)
        power = _rejecting(alternative)
        if not size.size:
            return 0.0
        # What an audit could prove: the size at most, and the power at least.
        high = size + _sure(size)
        low = power - _sure(power)
        if self.world.mechanism.tradeoff.implied_epsilon() is not None:
            odds = np.maximum(low, 1e-9) / high
            return float(np.log(odds).max())
        low_quantiles = ndtri(np.clip(low, 1e-9, 1))
        high_quantiles = ndtri(np.clip(high, 0, 1 - 1e-9))
        shift = low_quantiles - high_quantiles
        return float(shift.max())

    def climb(self) -> float:
        """Move records from one place to the next while that helps, many at a time and then few;
        return the score.
        """
        best = self.score()
        # Probabilities change over some 1/rate ranks: moving fewer records at first would hardly
        # show.
        step = max(1, int(4 / float(self.rate)))
        pools = range(len(self.sizes))
        places = range(len(self.places) - 1)
        for _ in range(_ROUNDS):
            improved = False
            for pool, place, way in itertools.product(pools, places, (1, -1)):
                changed = self.counts.copy()
                changed[pool, place] += way * step
                changed[pool, place + 1] -= way * step
                if changed[pool].min() < 0:
                    continue
                loss = self.score(changed)
                if loss > best + 1e-9:
                    best, improved = loss, True
                    self.counts = changed
            if not improved and step == 1:
                break
            if not improved:
                step = max(1, step // 2)
        return best

    def datasets(self) -> tuple[Counts, Counts]:
        """Return all histograms, before and after: each pool's records are handed out to its
        cells.
        """
        world, steps = self.world, self.world.space.outcome.steps
        shape = (len(world.space.sizes), steps + 1)
        still = np.zeros(shape, dtype=np.int64)
        for pool, counts in enumerate(self.counts):
            values = np.repeat(self.places, counts)
            start = 0
            occupied = (self.pool == pool) & (self.left > 0)
            for cell in np.flatnonzero(occupied).tolist():
                taken = values[start : start + int(self.left[cell])]
                start += len(taken)
                for group in world.groups[:, cell]:
                    still[group] += np.bincount(taken, minlength=steps + 1)
        before, after = still.copy(), still.copy()
        for when, histograms in enumerate((before, after)):
            for move in self.moves:
                step = self.places[move.values[when]]
                groups = world.groups[:, move.cells[when]]
                histograms[groups, step] += 1
        return before, after


def _rejecting(probabilities: Floats) -> Floats:
    """Probabilities of the largest losses, summed: those of the tests that reject at each loss."""
    from_largest = np.cumsum(probabilities[::-1])
    return np.clip(from_largest[:-1], 0, 1)


def _sure(share: Floats) -> Floats:
    """By how much a share that is counted in so many outputs may be off: four standard
    deviations.
    """
    deviation = np.sqrt(share * (1 - share) / _TRIALS)
    return np.asarray(4 * deviation + 8 / _TRIALS)


def _merge_losses(losses: Floats, first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """Merge outcomes of about the same loss, in increasing order."""
    keys, which = np.unique(np.rint(losses / _FINE), return_inverse=True)
    which = which.ravel()
    one = np.bincount(which, weights=first).astype(np.float64)
    other = np.bincount(which, weights=second).astype(np.float64)
    return keys * _FINE, one, other


def _unknown() -> Refused:
    return Refused(
        "no worst pair of these quantiles is known: audit them with a pair of your own"
        " (⟨pair FILE⟩)"
    )
