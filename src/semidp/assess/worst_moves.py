"""Worst moves: differences of a query between adjacent datasets that an audit attacks.

`worst_move` finds one for each kind of query, from public values alone. It attains Δ2 if the
space says that its norms are attained, and comes close otherwise.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import Counts, View, join, list_axes
from semidp.promise.sensitivity.answered_space import AnsweredSpace
from semidp.promise.sensitivity.described_moves import (
    ALTERNATIVE,
    ExchangeMove,
    Handover,
    block_from_view,
    list_exchanges,
)
from semidp.promise.sensitivity.distribution_space import (
    ONE_PAIR,
    DistributionSpace,
    Placement,
)
from semidp.promise.sensitivity.moments import MOST_ROWS, MomentSpace
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.sensitivity.outcome_spaces import OutcomeSpace, SumSpace
from semidp.promise.sensitivity.probes import residual_squares
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.structure import Structure
from semidp.publish.claim_guard import draw_placements

_TRIES = 200  # moves of a product that are drawn, or kinds of exchanges
_DRAWS = 64  # of each kind
_STARTS = 30  # exchanges of one kind that are drawn
_MOST_TRIED = 12  # values of one published level

Change = tuple[Counts, Counts]
"""The change of the histograms of some values, one row per group of each set, and these values."""

Measure = Callable[[Counts, Counts], NDArray[Any]]
"""A statistic of such histograms."""

Nodes = dict[str, dict[int, int]]
"""The published nodes of each letter by feature."""


@singledispatch
def worst_move(space: QuerySpace) -> NDArray[Any] | None:
    """Return the difference of two adjacent datasets; None if none is known.

    A query of one number moves by Δ∞.
    """
    if space.is_zero or math.prod(space.shape) > 1:
        return None
    return np.full(space.shape, space.norms.linf)


@worst_move.register
def _(space: ExplicitSpace) -> NDArray[np.int64] | None:
    flat = space.vectors.reshape(len(space.vectors), -1).astype(object)
    return None if space.is_zero else space.vectors[int((flat**2).sum(axis=1).argmax())]


@worst_move.register
def _(space: TableSpace) -> Counts | None:
    return space.table_norms.move


@worst_move.register
def _(space: SumSpace) -> Counts | None:
    """Outcomes go from 0 to B, or change their groups."""
    if space.exact_moves is not None:
        change, values = find_change(space, space.exact_moves, np.matmul)
        return np.asarray(change @ values)
    if not space.has_separate_blocks:
        return None
    sizes = np.concatenate([counts.ravel() for counts in space.counts])
    return np.clip(space.largest_sum_change, -sizes, sizes) * space.outcome.steps


@worst_move.register
def _(space: AnsweredSpace) -> Counts | None:
    """Those who answered go from one bound to the other."""
    if space.exact_moves is not None:

        def measure(change: Counts, values: Counts) -> Counts:
            return space.pairs(change @ (values > 0), change @ np.maximum(values - 1, 0))

        return measure(*find_change(space, space.exact_moves, measure))
    sums = worst_move(space.sums)
    if sums is None or not space.swaps_values:
        return None
    return np.concatenate([np.zeros_like(sums), 2 * space.fineness * sums])


@worst_move.register
def _(space: DistributionSpace) -> Counts | None:
    """Values that are as far apart in the tree as may be, as often as groups have records."""

    def measure(change: Counts, values: Counts) -> Counts:
        histograms = np.zeros((len(change), space.tree.values), dtype=np.int64)
        histograms[:, values] = change
        return space.apply_query(histograms)

    if space.exact_moves is not None and not space.is_zero:
        return measure(*find_change(space, space.exact_moves, measure))
    # Where sets of groups are tied, which of them change together is not known.
    tied = worst_move(space.sums) is None
    return None if space.is_zero or tied else space.apply_query(_move_values(space))


def _move_values(space: DistributionSpace) -> Counts:
    """What is added to the histograms of all groups by the costliest move."""
    change = np.zeros((len(space.sizes), space.tree.values), dtype=np.int64)
    move = space.adjacency.by_kind(ball=_move_records, exchange=_exchange_person)
    move(space, change)
    return change


def _move_records(space: DistributionSpace, change: Counts) -> None:
    """Add the costliest move of any a records to the histograms of all groups."""
    moved = np.concatenate(space.adjacency.changed_sums(space.counts))
    before, after = Placement(space.tree, ONE_PAIR).places
    change[:, before] = -moved
    change[:, after] = moved


def _exchange_person(space: DistributionSpace, change: Counts) -> None:
    """Add the costliest exchange of one person to the histograms of all groups."""
    person, carrier, after = space.place_exchange(4).places
    for part in space.sums.slices:
        by_size = np.argsort(-space.sizes[part], kind="stable")
        largest = part.start + by_size[:2]
        inhabited = [group for group in largest.tolist() if space.sizes[group]]
        # The person leaves one group and enters another; if there is one, the value changes
        # in place.
        replaced = [(person, carrier), (carrier, after)]
        if len(inhabited) == 1:
            replaced = [(person, after)]
        for group, (old, new) in zip(inhabited, replaced, strict=False):
            times = min(space.adjacency.times, int(space.sizes[group]))
            change[group, old] -= times
            change[group, new] += times


@worst_move.register
def _(space: MomentSpace) -> Counts | None:
    """As many of the longest rows as a cell can hold; under exchange the longest difference of
    two.
    """
    if not len(space.inhabited_rows):
        return None
    if space.exact_moves is not None:

        def measure(change: Counts, values: Counts) -> NDArray[np.object_]:
            return np.asarray(change @ values @ space.rows_by_cell)

        return measure(*find_change(space, space.exact_moves, measure)).astype(np.int64)
    find = space.adjacency.by_kind(ball=_repeat_rows, exchange=_subtract_rows)
    moves = find(space)
    if moves is None:
        return None
    steps = space.outcome.steps
    longest = moves[int((moves * moves).sum(axis=1).argmax())]
    return np.array([int(value) * steps for value in longest], dtype=np.int64)


def _repeat_rows(space: MomentSpace) -> NDArray[np.object_] | None:
    """Each row as many times as records can share it; None if that is not known."""
    records = _count_sharing_records(space)
    return None if records is None else space.inhabited_rows * records[:, None]


def _subtract_rows(space: MomentSpace) -> NDArray[np.object_] | None:
    """Rows and differences of two, as often as a person has records; None for many rows."""
    rows = space.inhabited_rows
    if len(rows) > MOST_ROWS:
        return None
    differences = [rows - row for row in rows]
    return np.concatenate([rows, *differences]) * space.adjacency.times


def _count_sharing_records(space: MomentSpace) -> NDArray[np.object_] | None:
    """How many of the records that may move can share each row; None if margins tie the
    factors otherwise.

    A dataset with k records in a cell exists where every margin of the factors counts k there,
    if these margins are decomposable and no published margin ties them to other features.
    """
    features = space.design.features
    if not features:
        return np.array([space.movable], dtype=object)
    public = space.dataspace.restrict_features(features)
    structure = Structure.from_dataspace(public)
    if structure.zeros_matter or not structure.decomposable:
        return None
    inside = {*public.schema.names}
    ties = []
    for margin in space.dataspace.margins:
        if {*margin.names} & inside and {*margin.names} - inside:
            ties.append(margin)
    if ties and len(public.margins) > 1:
        return None
    grid = public.schema.grid
    most = np.full(grid.compute_margin_shape(grid.full), space.movable, dtype=np.int64)
    for total in public.published_totals:
        most = np.minimum(most, grid.spread(total.counts, total.view))
    return most.ravel()[space.design.inhabited_mask(space.dataspace)].astype(object)


@worst_move.register
def _(space: ProductSpace) -> Counts | None:
    return worst_product_move(space, space.cost)


def worst_product_move(space: ProductSpace, squares: Mapping[View, Fraction]) -> Counts | None:
    """Return the difference of two adjacent datasets, as a vector of residuals, with the largest
    cost under noise with these variances.

    It is the worst of all if moves are listed, else the worst of many random ones that keep
    the published totals.
    """
    if space.is_zero:
        return None
    listed = space.costs.moves
    moves = _draw_moves(space, squares) if listed is None else listed.tables
    best, longest = None, 0.0
    for move in moves:
        vector = _vectorize_move(space, move)
        lengths = []
        for view, part in space.parts.items():
            unscaled = vector[part] / space.scales[part]
            lengths.append(float((unscaled**2).sum()) / float(squares[view]))
        length = sum(lengths)
        if length > longest:
            best, longest = vector, length
    return best


def _vectorize_move(space: ProductSpace, move: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scaled residuals of a difference of tables; the difference is at the finest view in
    use.
    """
    released = join(*space.views)
    parts = []
    for view in space.measured_residuals:
        table = space.residuals.table(move, released, view)
        parts.append(space.residuals.compute_integer_residual(view, table).ravel())
    return np.concatenate(parts)


def _draw_moves(
    space: ProductSpace, squares: Mapping[View, Fraction]
) -> Iterable[NDArray[np.int64]]:
    """Yield moves that keep every published margin: a records in the ball, or an exchange."""
    released, chains = join(*space.views), space.residuals.grid.chains
    shape = space.residuals.shape(released)
    if math.prod(shape) > 2**22:
        return
    generator = np.random.default_rng(0)  # public values only: an audit looks for a bad pair
    draw = space.adjacency.by_kind(ball=_draw_ball_moves, exchange=_draw_exchanges)
    for before, after in draw(space, squares, generator):
        move = np.zeros(shape, dtype=np.int64)
        for sign, records in ((1, after), (-1, before)):
            nodes = []
            for axis in list_axes(released):
                node_of_leaf = chains[axis].find_leaf_ancestors(released[axis])
                nodes.append(node_of_leaf[records[:, axis]])
            np.add.at(move, tuple(nodes), sign)
        if move.any():
            yield move * space.costs.times


def _draw_ball_moves(
    space: ProductSpace, squares: Mapping[View, Fraction], generator: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Draw a records with one of two values each. Published levels are handed around, so
    their counts stay.
    """
    blocks = [list_axes(margin.view) for margin in space.dataspace.published_totals]
    published = {axis for block in blocks for axis in block}
    if len(published) < sum(map(len, blocks)):
        # Overlapping margins: one block of all published features, whose swaps keep every
        # margin.
        blocks = [tuple(published)]
    sizes = [chain.leaves for chain in space.residuals.grid.chains]
    for _ in range(_TRIES):
        two = generator.integers(sizes, size=(2, len(sizes)))
        which = generator.integers(2, size=space.costs.a) * generator.integers(2)
        before, after = two[which], two[1 - which]
        for block in blocks:
            order = generator.permutation(space.costs.a)
            for axis in block:
                after[:, axis] = before[order, axis]
        yield before, after


def _draw_exchanges(
    space: ProductSpace, squares: Mapping[View, Fraction], generator: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Draw many exchanges of several kinds, and yield that of each kind that costs most."""
    grid = space.residuals.grid
    everybody = [np.ones(chain.leaves, dtype=bool) for chain in grid.chains]
    blocks = [block_from_view(margin.view) for margin in space.dataspace.published_totals]
    axes = tuple(range(len(grid.chains)))
    for _ in range(_TRIES):
        differing = [[axis for axis in block if generator.integers(3)] for block in blocks]
        carriers = generator.integers(max(len(blocks), 1), size=len(blocks)).tolist()
        doer: dict[int | None, int] = {}
        for number, features in enumerate(differing):
            if features:
                doer[number] = carriers[number]
        move = Handover(blocks, differing, doer, axes).describe()
        drawn = draw_placements(move, grid.chains, everybody, _DRAWS, generator)
        costs = np.zeros(len(drawn.signs))
        for view, square in squares.items():
            lengths = residual_squares(grid.chains, drawn, grid.full, view, everybody)
            costs += lengths / float(square)
        for nodes in drawn.nodes[np.argsort(-costs)[:1]]:
            yield nodes[::2], nodes[1::2]


def find_change(space: OutcomeSpace, moves: OutcomeMoves, measure: Measure) -> Change:
    """Return how the histograms of all groups change in one of the exchanges that moves a statistic
    far.
    """
    return DrawnExchanges(moves, space.dataspace, space.adjacency.times).find_change(measure)


@frozen(slots=False, eq=False)
class DrawnExchanges:
    """Exchanges allowed by the published counts, drawn and improved.

    Parameters
    ----------
    moves
        The exchanges, with the values that each published level of the outcome allows.
    dataspace
        What is published.
    times
        How often an exchange is made.
    """

    moves: OutcomeMoves
    dataspace: Dataspace
    times: int = 1

    def find_change(self, measure: Measure) -> Change:
        """Return the change that moves a statistic farthest, as found by search."""
        generator = np.random.default_rng(0)
        blocks = self.moves.blocks
        best, farthest = np.zeros((self._starts[-1], len(self._values)), dtype=np.int64), 0.0
        for move in list_exchanges(blocks, [axis for block in blocks for axis in block]):
            for _ in range(_STARTS):
                nodes = self._draw_nodes(move, generator)
                if nodes is None:
                    continue
                change = self._choose_values(move, nodes, measure, generator)
                square = _square(measure(change, self._values))
                if square > farthest:
                    best, farthest = change, square
        return self.times * best, self._values

    @cached_property
    def _cells(self) -> list[list[tuple[dict[int, int], int]]]:
        """For each block its cells with records: the node of each feature, and the most exchanges
        that they hold.
        """
        blocks = []
        for total in self.dataspace.published_totals:
            places = np.argwhere(total.counts).tolist()
            counts = total.counts[total.counts > 0] // self.times
            nodes = [dict(zip(list_axes(total.view), place, strict=True)) for place in places]
            blocks.append(list(zip(nodes, counts.tolist(), strict=True)))
        return blocks

    @cached_property
    def _allowed(self) -> Mapping[int, Counts]:
        """Some of the values that each published node of the outcome allows, its ends among
        them.
        """
        axis = self.moves.axis
        depth = next(block[axis] for block in self.moves.blocks if axis in block)
        nodes = np.flatnonzero(
            Structure.from_dataspace(self.dataspace).inhabited_nodes(axis, depth)
        )
        some = {}
        for node, values in zip(nodes.tolist(), self.moves.values, strict=True):
            places = np.linspace(0, len(values) - 1, min(len(values), _MOST_TRIED)).astype(int)
            some[node] = np.array([values[place] for place in places.tolist()])
        return some

    @cached_property
    def _values(self) -> Counts:
        return np.unique(np.concatenate([*self._allowed.values()]))

    @cached_property
    def _starts(self) -> list[int]:
        """The first row of each set of groups, and the number of all rows."""
        chains = self.dataspace.schema.grid.chains
        starts = [0]
        for group in self.moves.sets:
            sizes = [chains[axis].size(depth) for axis, depth in group.items()]
            starts.append(starts[-1] + int(np.prod(sizes, dtype=np.int64)))
        return starts

    def _draw_nodes(self, move: ExchangeMove, generator: np.random.Generator) -> Nodes | None:
        """Nodes of all letters that keep the rules; None if the draw led nowhere."""
        placed: Nodes = {letter: {} for letter in move.letters}
        for cells in self._cells:
            held = Counter[int]()
            for letter, nodes in placed.items():
                fitting = []
                for number, (cell, count) in enumerate(cells):
                    free = letter == ALTERNATIVE or held[number] < count
                    if free and _keeps_rules(move, placed, letter, cell):
                        fitting.append(number)
                if not fitting:
                    return None
                chosen = int(generator.choice(fitting))
                held[chosen] += letter != ALTERNATIVE
                nodes.update(cells[chosen][0])
        return placed

    def _rows(self, nodes: Mapping[int, int]) -> list[int]:
        """The rows of the groups of one record, one of each set."""
        chains = self.dataspace.schema.grid.chains
        published = {axis: depth for block in self.moves.blocks for axis, depth in block.items()}
        rows = []
        for start, group in zip(self._starts, self.moves.sets, strict=False):
            row = 0
            for axis, depth in group.items():
                node = chains[axis].ancestor(published[axis], nodes[axis], depth)
                row = row * chains[axis].size(depth) + node
            rows.append(start + row)
        return rows

    def _choose_values(
        self,
        move: ExchangeMove,
        nodes: Nodes,
        measure: Measure,
        generator: np.random.Generator,
    ) -> Counts:
        """Improve the values of the letters one by one; return the change of the histograms."""
        axis = self.moves.axis
        entries = []
        for record in move.records:
            for sign, letters in ((-1, record.before), (1, record.after)):
                by_axis = dict(zip(move.axes, letters, strict=True))
                rows = self._rows({k: nodes[letter][k] for k, letter in by_axis.items()})
                entries.append((sign, by_axis[axis], rows))

        def change_of(columns: Mapping[str, int]) -> Counts:
            change = np.zeros((self._starts[-1], len(self._values)), dtype=np.int64)
            for sign, letter, rows in entries:
                change[rows, columns[letter]] += sign
            return change

        allowed = {
            letter: np.searchsorted(self._values, self._allowed[place[axis]]).tolist()
            for letter, place in nodes.items()
        }
        chosen = {letter: int(generator.choice(each)) for letter, each in allowed.items()}
        farthest, improved = _square(measure(change_of(chosen), self._values)), True
        while improved:
            improved = False
            for letter, each in allowed.items():
                for column in each:
                    other = {**chosen, letter: column}
                    square = _square(measure(change_of(other), self._values))
                    if square > farthest:
                        chosen, farthest, improved = other, square, True
        return change_of(chosen)


def _keeps_rules(move: ExchangeMove, placed: Nodes, letter: str, cell: Mapping[int, int]) -> bool:
    """Whether a letter may have the nodes of a cell next to the letters that were placed."""
    for rule in move.rules:
        if rule.axis in cell and letter in rule.letters:
            other = rule.letters[rule.letters[0] == letter]
            at = placed[other].get(rule.axis)
            if at is not None and (at == cell[rule.axis]) != rule.equal:
                return False
    return True


def _square(vector: NDArray[Any]) -> float:
    return float(np.square(vector.astype(np.float64)).sum())
