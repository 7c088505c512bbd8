"""How far exchanges move statistics of an outcome whose published levels are exact.

Where the band of an age is exact, whoever hands over a band has another age afterwards. So the
outcome is one feature of the exchange like any other (`described_moves`): its letters are placed in
published levels, and each has one of the values that the level allows. Given these values, sets of
groups do not depend on each other: each contributes its largest change. `find_moves` finds the
values that each level allows.
"""

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import exact
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Floats, Mask
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.described_moves import (
    Block,
    ExchangeMove,
    FeatureMove,
    Tree,
    block_from_view,
    list_exchanges,
    patterns,
)
from semidp.promise.sensitivity.orthogonal_parts import trim_grid
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.structure import Structure

_MOST_PLACEMENTS = 40_000  # of the values of one exchange
_MOST_VECTORS = 5_000_000
_CHUNK = 4_096


@frozen(slots=False, eq=False)
class OutcomeMoves:
    """The exchanges of records that carry an outcome.

    Parameters
    ----------
    chains
        The features; the outcome is one of them.
    blocks
        The exact totals, with the published depth of each feature.
    axis
        The outcome, a feature of a block; or of none, if nothing of it is published.
    values
        For each published node of the outcome the values that it allows, in increasing order; all
        values as one node, if nothing is published.
    sets
        The sets of groups; each lies inside a block.

    Examples
    --------
    Ages 0 to 9 in two exact bands, and exact sexes: the sums of ages by sex move by 250, not by the
    162 of an outcome of which nothing is published.

    >>> band = Chain(10, ((0, 5), tuple(range(10))))
    >>> sex = Chain(2, ((0, 1),))
    >>> moves = OutcomeMoves((sex, band), [{0: 1}, {1: 1}], 1, [range(5), range(5, 10)], [{0: 1}])
    >>> moves.sum_norms.l2_squared, moves.replaced_norms.l2_squared
    (250, 5)
    """

    chains: tuple[Chain, ...]
    blocks: Sequence[Block]
    axis: int
    values: Sequence[Sequence[int]]
    sets: Sequence[Block]
    _options: dict[object, list[Mask]] = field(factory=dict, init=False, repr=False)

    @cached_property
    def _moves(self) -> list[ExchangeMove]:
        seen = {self.axis, *(axis for group in self.sets for axis in group)}
        constant = []
        for block in self.blocks:
            constant += [axis for axis, depth in block.items() if self.chains[axis].size(depth) < 2]
        return list_exchanges(self.blocks, seen, constant=constant)

    @property
    def _depth(self) -> int:
        """The published depth of the outcome; that of its only node, if nothing is published."""
        return next((block[self.axis] for block in self.blocks if self.axis in block), 1)

    @property
    def _by_outcome(self) -> bool:
        """Whether some groups are by the outcome's own published levels."""
        return any(self.axis in group for group in self.sets)

    @cached_property
    def sum_norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ of the sums by all groups."""
        ends = [(node, (values[0], values[-1])) for node, values in enumerate(self.values)]
        best = np.zeros(3)
        for move in self._moves:
            along = self._restrict_move(move)
            # too many ways: each replaced value changes a sum by the largest value at most
            if self._by_outcome and (2 * len(ends)) ** along.letters > _MOST_PLACEMENTS:
                widest = max(values[-1] for values in self.values)
                return self.replaced_norms.multiply(widest)
            signs = np.array(along.signs, dtype=np.float64)
            # a sum is linear in every value, so its norms are largest at the ends of levels
            for nodes, values in _chunks(self._place(along, ends, not self._by_outcome)):
                signed = signs * values[:, along.places]
                norms = self._largest(move, nodes, partial(_class_norms, signed))
                best = np.maximum(best, norms)
        return _whole_norms(best)

    @cached_property
    def replaced_norms(self) -> Norms:
        """Σ k_g, Σ k_g² and the largest k_g: how many values are replaced in each group."""
        best = np.zeros(3)
        for move in self._moves:
            along = self._restrict_move(move)
            signs = np.array(along.signs, dtype=np.float64)
            few = self._distinct_values(along.letters)
            if sum(len(values) for _, values in few) ** along.letters > _MOST_PLACEMENTS:
                # too many ways: the person and a carrier of each block replace one value each
                records = len(self.blocks) + 1
                sets = len(self.sets)
                return Norms(sets * records, sets * records**2, records)
            for nodes, values in _chunks(self._place(along, few, False)):
                at = values[:, along.places]
                equal = at[:, :, None] == at[:, None, :]
                norms = self._largest(move, nodes, partial(_compute_replaced_norms, signs, equal))
                best = np.maximum(best, norms)
        return _whole_norms(best)

    def largest_square(self, gram: Floats, farthest: int) -> int:
        """Return the largest square of a query that adds a vector φ(v) for each value to its group.

        Parameters
        ----------
        gram
            The inner products ``<φ(v), φ(w)>``.
        farthest
            The largest ``|φ(v) - φ(w)|²``: used for replaced values where there are too many ways
            to place them.
        """
        every = [*enumerate(self.values)]
        best = 0.0
        for move in self._moves:
            along = self._restrict_move(move)
            signs = np.array(along.signs, dtype=np.float64)
            products = signs[:, None] * signs[None, :]
            if sum(map(len, self.values)) ** along.letters > _MOST_PLACEMENTS:
                return farthest * self.replaced_norms.l2_squared
            for nodes, values in _chunks(self._place(along, every, False)):
                at = values[:, along.places].astype(np.intp)
                kernels = products * gram[at[:, :, None], at[:, None, :]]
                norms = self._largest(move, nodes, partial(_squares, kernels))
                best = max(best, float(norms[1]))
        # the query is whole, and so is the square that rounding moved
        return math.ceil(best - 1e-6)

    def moment_norms(self, rows: NDArray[np.object_]) -> Norms:
        """Return the norms of ``Σ z y`` for a design with these rows, one for each cell of a block
        without the outcome.
        """
        ends = [(node, (values[0], values[-1])) for node, values in enumerate(self.values)]
        cells = rows.astype(np.float64)
        design, outcome = 0, 1
        constant = [design] if len(rows) < 2 else []
        if len(self.values) < 2:
            constant.append(outcome)
        blocks = [{design: 1}]
        if any(self.axis in block for block in self.blocks):
            blocks.append({outcome: 1})
        best = np.zeros(3)
        for move in list_exchanges(blocks, (design, outcome), (), constant):
            where = FeatureMove.from_move(move, design, [1])
            along = FeatureMove.from_move(move, outcome, [1])
            placed = list(self._place(along, ends, True))
            chosen = [*_place_cells(where, len(rows))]
            if not placed or not chosen:
                continue
            values = np.array([values for _, values in placed], dtype=np.float64)
            signed = np.array(along.signs) * values[:, along.places]
            factors = np.zeros((len(placed), where.letters))
            for record, letter in enumerate(where.places):
                factors[:, letter] += signed[:, record]
            if len(placed) * len(chosen) * cells.shape[1] > _MOST_VECTORS:
                # triangle inequality: as if every factor met the longest row
                longest = Norms.from_vectors(rows)
                lengths = float(np.abs(factors).sum(axis=1).max())
                norms = [lengths * longest.l1, lengths**2 * longest.l2_squared]
                best = np.maximum(best, [*norms, lengths * longest.linf])
                continue
            vectors = np.einsum("pl,qld->pqd", factors, cells[np.array(chosen)])
            sizes = np.abs(vectors)
            square = (vectors**2).sum(axis=2).max()
            best = np.maximum(best, [sizes.sum(axis=2).max(), square, sizes.max()])
        return _whole_norms(best)

    def _distinct_values(self, letters: int) -> list[tuple[int, Sequence[int]]]:
        """Nodes with values of their own: as many of each as there are letters, since only matters
        which letters have the same, and of nodes that are alike no more than that.
        """
        kept: list[tuple[int, Sequence[int]]] = []
        kinds: Counter[int] = Counter()
        for node, values in enumerate(self.values):
            size = min(len(values), letters)
            kinds[size] += 1
            if self._by_outcome or kinds[size] <= letters:
                kept.append((node, range(node * letters, node * letters + size)))
        return kept

    def _restrict_move(self, move: ExchangeMove) -> FeatureMove:
        return FeatureMove.from_move(move, self.axis, [self._depth])

    def _place(
        self,
        along: FeatureMove,
        candidates: Sequence[tuple[int, Sequence[int]]],
        extremes: bool,
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Yield the published nodes and the values of the letters that keep the rules.

        With `extremes`, only the least and the largest value count, and nodes do not: a letter that
        is not tied to a node then has one of two values.
        """
        pairs = [(node, value) for node, values in candidates for value in values]
        rules = {(one, other): equal for one, other, _, equal in along.rules}

        def choose(chosen: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
            last = len(chosen)
            fitting = pairs
            tied = last == 0
            for (one, other), equal in rules.items():
                if other == last:
                    node = chosen[one][0]
                    fitting = [pair for pair in fitting if (pair[0] == node) == equal]
                    tied = tied or equal
            # y comes first: rules about later letters compare them with y
            if extremes and not tied and fitting and not any(one == last for one, _ in rules):
                by_value = sorted(fitting, key=lambda pair: pair[1])
                return [by_value[0], by_value[-1]]
            return fitting

        def grow(
            chosen: tuple[tuple[int, int], ...],
        ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
            if len(chosen) == along.letters:
                nodes, values = zip(*chosen, strict=True)
                yield nodes, values
                return
            for pair in choose(chosen):
                yield from grow((*chosen, pair))

        return grow(())

    def _largest(
        self, move: ExchangeMove, nodes: NDArray[np.intp], norms: Callable[[Mask], Floats]
    ) -> Floats:
        """For placed values, the largest norms over all groups that the records may be in, summed
        over the sets of groups.
        """
        total = np.zeros((3, len(nodes)))
        for group in self.sets:
            best = np.zeros((3, len(nodes)))
            by_outcome = self._same_outcome(move, nodes, group)
            for same in self._same_group(move, group):
                together = by_outcome & same[None]
                best = np.maximum(best, norms(together))
            total[:2] += best[:2]
            total[2] = np.maximum(total[2], best[2])
        return np.asarray(total.max(axis=1))

    def _same_outcome(self, move: ExchangeMove, nodes: NDArray[np.intp], group: Block) -> Mask:
        """Whether two records are in one group as far as the outcome's levels decide."""
        along = self._restrict_move(move)
        records = len(along.places)
        if self.axis not in group:
            return np.ones((1, records, records), dtype=bool)
        chain = self.chains[self.axis]
        published = self._depth
        above = np.array(
            [chain.ancestor(published, node, group[self.axis]) for node in range(len(self.values))]
        )
        at = above[nodes][:, along.places]
        return np.asarray(at[:, :, None] == at[:, None, :])

    def _same_group(self, move: ExchangeMove, group: Block) -> list[Mask]:
        """Every way in which records may share groups by the other features of a set."""
        key = (move, tuple(sorted(group.items())))
        if key in self._options:
            return self._options[key]
        records = 2 * len(move.records)
        shared = {b"": np.ones((records, records), dtype=bool)}
        for axis, depth in group.items():
            if axis == self.axis:
                continue
            published = next((block[axis] for block in self.blocks if axis in block), depth)
            depths = sorted({depth, published})
            tree = Tree.unpublished(self.chains[axis], depths)
            along = FeatureMove.from_move(move, axis, depths)
            options = patterns(tree, along, len(depths) - 1, True)
            if options is None:
                raise ValueError("an exchange of so many records is not listed")
            level = depths.index(depth)
            masks = [pattern.same[level] for pattern in options]
            longer = {}
            for one, other in itertools.product(shared.values(), masks):
                both = one & other
                # different patterns may share groups alike: each way counts once
                longer[both.tobytes()] = both
            shared = longer
        self._options[key] = list(shared.values())
        return self._options[key]


def _place_cells(along: FeatureMove, cells: int) -> Iterator[tuple[int, ...]]:
    """Yield cells for the letters that keep the rules about equal and different cells."""
    for chosen in itertools.product(range(cells), repeat=along.letters):
        if all((chosen[one] == chosen[other]) == equal for one, other, _, equal in along.rules):
            yield chosen


def _chunks(
    placed: Iterator[tuple[tuple[int, ...], tuple[int, ...]]],
) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Placements as arrays of nodes and values, some at a time."""
    while some := list(itertools.islice(placed, _CHUNK)):
        nodes = np.array([nodes for nodes, _ in some], dtype=np.intp)
        yield nodes, np.array([values for _, values in some], dtype=np.float64)


def _class_norms(signed: Floats, same: Mask) -> Floats:
    """Norms of the sums over classes of records: a row a norm, a column a placement."""
    sums = np.abs((same * signed[:, None, :]).sum(axis=2))
    share = sums / same.sum(axis=2)
    return np.stack([share.sum(axis=1), (share * sums).sum(axis=1), sums.max(axis=1)])


def _squares(kernels: Floats, same: Mask) -> Floats:
    """Squares of sums of vectors over classes of records, in all three rows."""
    squares = (same * kernels).sum(axis=(1, 2))
    return np.stack([squares] * 3)


def _compute_replaced_norms(signs: Floats, equal: Mask, same_group: Mask) -> Floats:
    """Norms of the numbers of replaced values by group: a row a norm, a column a placement."""
    same_value = same_group & equal
    net = np.abs((same_value * signs).sum(axis=2)) / same_value.sum(axis=2)
    in_group = (same_group * net[:, None, :]).sum(axis=2) / 2
    size = np.broadcast_to(same_group, same_value.shape).sum(axis=2)
    share = in_group / size
    return np.stack([share.sum(axis=1), (share * in_group).sum(axis=1), in_group.max(axis=1)])


def _whole_norms(values: Floats) -> Norms:
    """Norms of whole numbers that were computed in floating point, never smaller."""
    l1, l2_squared, linf = (
        round(value) if value < 2**50 else math.ceil(value * (1 + 1e-12)) for value in values
    )
    return Norms(l1, l2_squared, linf)


_ROUNDING = Fraction(1, 2**40)  # of floating point, relative to the bounds

SQUARED = " squared"
"""The suffix of the outcome that adds the squares of a column."""


def find_moves(
    dataspace: Dataspace, outcome: Outcome, sets: Iterable[Margin]
) -> OutcomeMoves | None:
    """Return the exchanges of records that carry an outcome; None if no exact total has it.

    Parameters
    ----------
    dataspace
        What is published.
    outcome
        The outcome, with its bounds and grid.
    sets
        The sets of groups.

    Examples
    --------
    >>> from semidp.promise.schema.schema import Table
    >>> ages = Feature.from_paths(
    ...     ["band", "age"], [("young", "1"), ("young", "2"), ("old", "8"), ("old", "9")]
    ... )
    >>> schema = Schema([Feature("sex", "fm"), ages])
    >>> public = Dataspace.from_table(
    ...     Table(schema, np.ones((2, 4), int)), [Margin("sex"), Margin("band")]
    ... )
    >>> find_moves(public, Outcome("age", 0, 10, 10), [Margin("sex")]).values
    [[1, 2], [8, 9]]
    >>> find_moves(public, Outcome("income", 0, 10, 10), [Margin("sex")]) is None
    True
    """
    schema = dataspace.schema
    name, level = _split_column(schema, outcome.column)
    owner = next((f for f in schema.features if name in {*f.names, *dict(f.finer)}), None)
    if owner is None:
        return None
    axis = schema.axis(owner.name)
    views = [margin.view for margin in dataspace.published_totals]
    published = max((view[axis] for view in views), default=0)
    if not published:
        return None
    structure = Structure.from_dataspace(dataspace)
    full = schema.grid.full
    kept = [structure.inhabited_nodes(place, depth) for place, depth in enumerate(full)]
    node_of = schema.grid.chains[axis].find_leaf_ancestors(published)
    nodes: dict[int, set[int] | range] = {}
    for leaf in np.flatnonzero(kept[axis]).tolist():
        values_at_leaf = _allowed_values(owner, name, leaf, outcome, level)
        node = int(node_of[leaf])
        nodes[node] = _merge(nodes.get(node, range(0)), values_at_leaf)
    blocks = [block_from_view(view) for view in views]
    groups = [block_from_view(schema.view(block.names)) for block in sets]
    values = [_in_order(allowed) for allowed in nodes.values()]
    return OutcomeMoves(trim_grid(schema.grid, kept).chains, blocks, axis, values, groups)


def _split_column(schema: Schema, column: str) -> tuple[str, str | None]:
    """The column that an outcome is about, and the level whose share it is."""
    name = column.removesuffix(SQUARED)
    if name in schema.names or "=" not in name:
        return name, None
    name, _, level = name.partition("=")
    return name, level


def _allowed_values(
    feature: Feature, name: str, leaf: int, outcome: Outcome, level: str | None
) -> set[int] | range:
    """The values, in steps, of records at a leaf: any, if labels do not say."""
    # a histogram that is cut at lines has more cells than steps
    anything = range((len(outcome.edges) if outcome.cuts else outcome.steps) + 1)
    if outcome.column.endswith(SQUARED) or (feature.bins is not None and level is not None):
        return anything
    # what comes after the bins is the level of missing values
    if feature.bins is not None and leaf + 1 < len(feature.bins):
        low, high = feature.bins[leaf : leaf + 2]
        return range(_nearest_steps(low, outcome)[0], _nearest_steps(high, outcome)[-1] + 1)
    values: set[int] = set()
    for label in _allowed_labels(feature, name, leaf):
        if level is not None:
            values |= {*_nearest_steps(int(label == level), outcome)}
            continue
        try:
            values |= {*_nearest_steps(exact(label), outcome)}
        except InputError:  # a missing value, or a word
            return anything
    return values or anything


def _allowed_labels(feature: Feature, name: str, leaf: int) -> tuple[str, ...]:
    """The labels of an outcome that a leaf allows; none where they are not public."""
    if name in feature.names:
        return (feature.path(leaf)[feature.names.index(name)],)
    below = dict(feature.finer)[name]
    return below[leaf] if below else ()


def _nearest_steps(value: Fraction | float, outcome: Outcome) -> list[int]:
    """The step that a value is rounded to, or its cell in a histogram with lines: two next to a
    boundary, where engines that compute in floating point may take either.
    """
    clipped = Fraction(min(max(value, outcome.lower), outcome.upper))
    error = (outcome.upper - outcome.lower) * _ROUNDING
    steps = set()
    for near in (clipped - error, clipped + error):
        if outcome.cuts:
            steps.add(bisect.bisect_right(outcome.edges, near))
        else:
            step = math.floor((near - outcome.lower) / outcome.width + Fraction(1, 2))
            steps.add(min(max(step, 0), outcome.steps))
    return sorted(steps)


def _merge(one: set[int] | range, other: set[int] | range) -> set[int] | range:
    whole = max(one, other, key=len)
    return whole if isinstance(whole, range) and len(whole) > 1 else {*one, *other}


def _in_order(values: set[int] | range) -> Sequence[int]:
    return values if isinstance(values, range) else sorted(values)
