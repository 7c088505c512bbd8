"""Costs of residuals: how far adjacent datasets can move one residual, and all of them together.

``k_d = sup |H_d M_d m|²`` over the moves m of an adjacency, where M_d sums a move to the table at
the depths d and H_d subtracts the means of siblings (`orthogonal_parts`). Small dataspaces are
listed; otherwise a move is a pattern of agreement (`described_moves`, `families`); and if there are
too many patterns, by certified closed forms. `BallCosts` is the adjacency A_a, `ExchangeCosts` the
exchanges of one person.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.exact import round_up
from semidp.promise.schema.margins import (
    Chain,
    Floats,
    View,
    join,
    list_axes,
    maximal,
    meet,
    variables,
)
from semidp.promise.sensitivity.described_moves import (
    BallMove,
    Block,
    ExchangeMove,
    FeatureMove,
    Shape,
    Tree,
    block_from_view,
    list_exchanges,
)
from semidp.promise.sensitivity.families import MOST_WORK, Family, fits
from semidp.promise.sensitivity.joint_costs import (
    GroupCost,
    JointBound,
    ListedMoves,
    PatternMoves,
    ResidualGroup,
    SumOfCosts,
    precisions,
)
from semidp.promise.sensitivity.orthogonal_parts import Residuals
from semidp.promise.sensitivity.patterns import certified_norms

_MOST_CARRIERS = 3  # blocks of a residual whose exchanges are enumerated
_MOST_SINGLE = 2**22  # values of single moves
_MOST_OPTIONS = 20_000
_MOST_NODES = 4_096  # of a feature whose very tree is looked at
_MOST_KINDS = 6  # of its nodes at one depth
_MOST_FEATURES = 24  # of residuals whose moves are looked at together
# kernels are multiples of one over this, if not more: then floats are rounded to them
_EXACT_DENOMINATOR = 10**8


@cache
def single_move(slots: tuple[Tree, ...]) -> Fraction:
    """Largest |H_d M_d (e_y - e_x)|² of one record that changes from x to y and keeps what is
    published of each slot.

    >>> seven, nine = Tree(((1,), (7,)), 0), Tree(((1,), (9,)), 0)
    >>> single_move((seven,)), single_move((seven, nine))
    (Fraction(2, 1), Fraction(16, 9))
    """
    options = [_single_options(slot) for slot in slots]
    if math.prod(map(len, options)) > _MOST_OPTIONS:
        return Fraction(2)  # H_d is a projection
    best = Fraction(0)
    for chosen in itertools.product(*options):
        # The kernel of a residual is a product over its features: |H M (e_y - e_x)|² = K(x,x) +
        # K(y,y) - 2 K(x,y).
        kernels_x, kernels_y, kernels_between = zip(*chosen, strict=True)
        at_x, at_y = math.prod(kernels_x), math.prod(kernels_y)
        best = max(best, Fraction(at_x + at_y - 2 * math.prod(kernels_between)))
    return best


def _single_options(slot: Tree) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Kernels at x, at y and between them along one feature, for each way in which x and y may
    relate: the same node, siblings, or neither.
    """
    (parents,), counts = slot.counts
    ends = sorted({counts[0], counts[-1]})
    # A node that has siblings: the fewest children above one, and the most, bound all between.
    with_siblings = [count for count in counts if count > 1]
    one = Fraction(1)
    kernels = {count: one - one / count for count in counts}
    options = [(kernels[count],) * 3 for count in ends]
    if slot.published < 2 and with_siblings:
        for count in sorted({with_siblings[0], with_siblings[-1]}):
            options.append((kernels[count], kernels[count], -one / count))
    if slot.published == 0 and parents > 1:
        for count, other in itertools.product(ends, repeat=2):
            options.append((kernels[count], kernels[other], Fraction(0)))
    return options


@frozen(eq=False)
class MoveList:
    """All moves of a small dataspace.

    Parameters
    ----------
    tables
        The moves, one axis for them and one for each feature.
    released
        The view of the tables.
    """

    tables: NDArray[np.int64]
    released: View


@frozen(slots=False, eq=False)
class BallCosts:
    """Costs under A_a: at most a records differ, and every published margin stays.

    Parameters
    ----------
    residuals
        The grid of the nodes that can hold a record.
    margins
        The views of the published margins.
    a
        How many records may differ.
    moves
        All moves, if the dataspace is small enough to list.
    times
        How many moves of a records a person makes one after the other; listed moves contain that
        many at once.

    Examples
    --------
    >>> from semidp.promise.schema.margins import Grid
    >>> costs = BallCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> # 2a², 2a²(1 - 1/2), 2a²(1 - 1/7)
    >>> (costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1)))
    (Fraction(8, 1), Fraction(4, 1), Fraction(48, 7))
    """

    residuals: Residuals
    margins: tuple[View, ...]
    a: int
    moves: MoveList | None = field(default=None, repr=False)
    times: int = 1
    _costs: dict[object, Fraction] = field(factory=dict, init=False, repr=False)
    _listed_squares: dict[View, Floats] = field(factory=dict, init=False, repr=False)
    _bounds: dict[tuple[View, ...], tuple[JointBound, ...]] = field(
        factory=dict, init=False, repr=False
    )

    def cost(self, view: View) -> Fraction:
        """Return k_d, or a certified upper bound of it; refuse a residual in which adjacent
        datasets never differ.
        """
        if self.moves is not None:
            listed = float(self._squares(self.moves, view).max(initial=0.0))
            if listed > 0:
                return self._round_up(listed, view)
        alike = self._class(view)
        if alike not in self._costs:
            # a norm of so many moves is at most so many times that of one, and costs are squares
            self._costs[alike] = self.times**2 * self._cost_of_one(view)
        return self._costs[alike]

    def _class(self, view: View) -> object:
        """Key of all that the cost of a residual depends on: the trees of its features, and which
        of them margins hold together.

        All pairs of a hundred features with as many levels are one class, or three where some are
        published.
        """
        kinds = []
        for axis in list_axes(view):
            kinds.append((self._kinds[axis], view[axis], self._depths[axis], axis))
        kinds.sort()
        axes = [kind[-1] for kind in kinds]
        held = []
        for margin in self.margins:
            depths = tuple(margin[axis] for axis in axes)
            if any(depths):
                held.append(depths)
        trees = tuple(kind[:2] for kind in kinds)
        return trees, tuple(sorted(held))

    @cached_property
    def _kinds(self) -> list[int]:
        """For each feature a number that those with the same tree share."""
        numbers: dict[object, int] = {}
        return [numbers.setdefault(chain, len(numbers)) for chain in self.residuals.grid.chains]

    @cached_property
    def _depths(self) -> list[list[int]]:
        """For each feature the depths at which margins hold it."""
        depths = []
        for axis in range(len(self.residuals.grid.chains)):
            at_axis = (margin[axis] for margin in self.margins)
            depths.append(sorted(depth for depth in at_axis if depth))
        return depths

    def _cost_of_one(self, view: View) -> Fraction:
        """Cost of one move of a records: the least of the closed forms, and of the patterns where
        these are few enough.
        """
        axes = list_axes(view)
        slots = tuple(self.slot(view, axis) for axis in axes)
        # Each of these is an upper bound by an argument of its own, so their least holds as
        # well.
        least = min(
            self._compute_closed_form(slots, self._list_margin_slots(view)),
            self._certify_cost(view),
        )
        families = self._build_view_families(view)
        if families is not None:
            only = tuple(1 for _ in axes)
            largest = 0.0
            for family in families:
                largest = family.bound(only, largest)
            least = min(least, self._round_up(largest, view))
        if least == 0:
            raise Refused(
                f"with a = {self.a} the adjacent datasets agree on something that the published"
                " statistics do not fix, so it would be released exactly: give a larger a"
            )
        return least

    def slot(self, view: View, axis: int, margin: View | None = None) -> Tree:
        """Return the slot of one feature of a residual: its nodes at that depth, their parents, and
        how deep margins hold them. All published margins count, or `margin` alone.
        """
        depth = view[axis]
        margins = self.margins if margin is None else (margin,)
        published = max((other[axis] for other in margins), default=0)
        held = _depth_in_slot(published, depth)
        parents = self.residuals.grid.chains[axis].size(depth - 1)
        return Tree(((parents,), self._children(axis, depth)), held)

    def _children(self, axis: int, depth: int) -> tuple[int, ...]:
        """The distinct numbers of nodes of a depth below one node above, in order."""
        chain = self.residuals.grid.chains[axis]
        return tuple(np.unique(chain.children(depth - 1, depth)).tolist())

    def joint(self, sigma2: Mapping[View, Fraction]) -> float:
        """Return an upper bound of ``sup_m Σ_d |H_d M_d m|² / σ_d²``: the least one found."""
        views = tuple(sigma2)
        tau = precisions(views, sigma2)
        return min(bound.upper(tau) for bound in self.bounds(views))

    def bounds(self, views: tuple[View, ...]) -> tuple[JointBound, ...]:
        """Return bounds on the joint cost of residuals: each holds, and none is always the
        least.
        """
        if views not in self._bounds:
            self._bounds[views] = tuple(self._joint_bounds(views))
        return self._bounds[views]

    def _joint_bounds(self, views: tuple[View, ...]) -> list[JointBound]:
        """Bounds by all residuals together, and by each division of them into groups."""
        everything = tuple(range(len(views)))
        if self.moves is not None:
            squares = np.stack([self._squares(self.moves, view) for view in views], axis=1)
            listed = ListedMoves(squares, 2 * self.a * self.times)
            return [JointBound((ResidualGroup(everything, (listed,)),))]
        together = self._group(views, everything, MOST_WORK)
        bounds = [JointBound((together,))]
        if any(isinstance(part, PatternMoves) and part.exact for part in together.parts):
            return bounds  # no division does better than all moves themselves
        for division in self._divisions(views):
            if len(division) > 1:
                groups = [self._group(views, numbers, _MOST_SINGLE) for numbers in division]
                bounds.append(JointBound(tuple(groups)))
        return bounds

    def _divisions(self, views: tuple[View, ...]) -> list[tuple[tuple[int, ...], ...]]:
        """Ways to put residuals, by their numbers, into groups: by margin, and by the margins that
        they touch.
        """
        by_margin = [self._best_margin(view) for view in views]
        by_blocks = [self._flag_touched_margins(view) for view in views]
        divisions: dict[tuple[tuple[int, ...], ...], None] = {}
        for labels in (by_margin, by_blocks):
            groups: dict[object, list[int]] = {}
            for number, label in enumerate(labels):
                groups.setdefault(label, []).append(number)
            divisions[tuple(map(tuple, groups.values()))] = None
        return list(divisions)

    def _flag_touched_margins(self, view: View) -> tuple[bool, ...]:
        """For each margin, whether it shares a feature with a residual."""
        return tuple(any(meet(margin, view)) for margin in self.margins)

    def _best_margin(self, view: View) -> View | None:
        """The margin by which the records of a move are best paired off for one residual; None for
        no margin.
        """
        free = tuple(self.slot(view, axis).free for axis in list_axes(view))
        best, least = None, single_move(free)
        for margin in self._touching([view]):
            slots = tuple(self.slot(view, axis, margin) for axis in list_axes(view))
            cost = single_move(slots)
            if cost < least:
                best, least = margin, cost
        return best

    def _touching(self, views: Iterable[View]) -> list[View]:
        """The published margins, without those inside another, that share a feature with some
        residuals.
        """
        finest = join(*views)
        return [margin for margin in maximal(self.margins) if any(meet(margin, finest))]

    def _group(self, views: tuple[View, ...], numbers: tuple[int, ...], work: int) -> ResidualGroup:
        """Some residuals with every bound on what they cost together that takes at most `work`."""
        grouped = [views[number] for number in numbers]
        singles = np.array([round_up(self.cost(view)) for view in grouped])
        parts: list[GroupCost] = []
        axes = sorted({axis for view in grouped for axis in list_axes(view)})
        local = tuple(_select_depths(view, axes) for view in grouped)
        if len(grouped) > 1 and len(axes) <= _MOST_FEATURES:
            deepest = join(*grouped)
            parts += self._bound_by_patterns(axes, deepest, local, work)
            parts += self._bound_by_pairs(grouped, axes, deepest, local)
        # the sharpest kind comes first
        return ResidualGroup(numbers, (*parts, SumOfCosts(singles)))

    def families(self, axes: Sequence[int], deepest: View) -> list[Family] | None:
        """Return all moves as patterns of the features `axes` down to the depths `deepest`; None
        if a feature has too many patterns.
        """
        trees = [self._tree(deepest, axis) for axis in axes]
        margins = []
        for margin in self.margins:
            in_use = meet(margin, deepest)
            margins.append(tuple(in_use[axis] for axis in axes))
        family = Family.from_ball_move(trees, BallMove(self.a), margins)
        return None if family is None else [family]

    def _build_view_families(self, view: View) -> list[Family] | None:
        """All moves as patterns of the slots of one residual; None if there are too many."""
        axes = list_axes(view)
        slots = [self.slot(view, axis) for axis in axes]
        margins = []
        for margin in self.margins:
            margins.append(tuple(_depth_in_slot(margin[axis], view[axis]) for axis in axes))
        family = Family.from_ball_move(slots, BallMove(self.a), margins, 1)
        return None if family is None else [family]

    def _bound_by_patterns(
        self, axes: Sequence[int], deepest: View, local: tuple[View, ...], work: int
    ) -> list[GroupCost]:
        """All moves as patterns of the features `axes`, if these are few enough."""
        families = self.families(axes, deepest)
        if not families or not all(fits(family, local, work) for family in families):
            return []
        # Patterns are exact if every node has as many children as its peers, and no margin was
        # relaxed.
        exact = self._even_trees(axes, deepest) and all(family.kept_margins for family in families)
        repeated = tuple(family.times(self.times**2) for family in families)
        part = PatternMoves(repeated, local, exact)
        return [part] if part.work <= work else []

    def _even_trees(self, axes: Sequence[int], deepest: View) -> bool:
        """Whether all nodes of a depth have equally many children, for each feature and depth in
        use.
        """
        for axis in axes:
            for depth in range(1, deepest[axis] + 1):
                if len(self._children(axis, depth)) > 1:
                    return False
        return True

    def _bound_by_pairs(
        self, views: Sequence[View], axes: Sequence[int], deepest: View, local: tuple[View, ...]
    ) -> list[GroupCost]:
        """Bounds by single records: a move of a records is paired off by one margin, or by none.

        The a records that appear and the a that vanish are paired off by a margin B: a move is a
        sum of a moves of single records that keep B. So ``N(m) <= a max N(e_y - e_x)`` by the
        triangle inequality, for the norm N² = Σ τ_d |H_d M_d m|².
        """
        scale = (self.times * self._visible(views)) ** 2
        parts: list[GroupCost] = []
        for margin in (self.residuals.grid.nothing, *self._touching(views)):
            kept = meet(margin, deepest)
            trees = [Tree(self._tree(deepest, axis).counts, kept[axis]) for axis in axes]
            family = Family.from_ball_move(trees, BallMove(1), [], scale=scale)
            if family is not None and fits(family, local, _MOST_SINGLE):
                parts.append(PatternMoves((family,), local))
        return parts

    def _visible(self, views: Sequence[View]) -> int:
        """How many records of a move these residuals can see change: all of them."""
        return self.a

    def _squares(self, moves: MoveList, view: View) -> Floats:
        """|H_d M_d m|² of every listed move."""
        if view not in self._listed_squares:
            cells = math.prod(self.residuals.shape(moves.released))
            if cells <= len(moves.tables):
                # Fewer cells than moves: take the residual of each cell alone, and moves as sums of
                # them.
                self._listed_squares[view] = self._squares_by_cells(moves, view, cells)
            else:
                residuals = self._compute_residuals(moves.tables, moves.released, view)
                self._listed_squares[view] = (residuals**2).sum(axis=1)
        return self._listed_squares[view]

    def _squares_by_cells(self, moves: MoveList, view: View, cells: int) -> Floats:
        """|H_d M_d m|² of every listed move from the residuals of single cells, some moves at a
        time.
        """
        units = self._compute_residuals(np.eye(cells, dtype=np.int64), moves.released, view)
        ones = np.ones(units.shape[1])
        flat = moves.tables.reshape(len(moves.tables), -1)
        squares = []
        for start in range(0, len(flat), 1024):
            rows = flat[start : start + 1024]
            squares.append((rows @ units) ** 2 @ ones)
        return np.concatenate(squares)

    def _compute_residuals(self, tables: NDArray[np.int64], released: View, view: View) -> Floats:
        """The residual of each table at the released view, one row each."""
        shape = self.residuals.shape(released)
        rows = []
        for table in tables:
            summed = self.residuals.table(table.reshape(shape), released, view)
            rows.append(self.residuals.center(view, summed).ravel())
        return np.stack(rows)

    def _list_margin_slots(self, view: View) -> tuple[tuple[Tree, ...], ...]:
        """Slots of a residual under each margin that shares a feature with it, taken alone."""
        held = []
        for margin in self.margins:
            if any(meet(margin, view)):
                held.append(tuple(self.slot(view, axis, margin) for axis in list_axes(view)))
        return tuple(held)

    def _compute_closed_form(
        self, slots: tuple[Tree, ...], held: tuple[tuple[Tree, ...], ...]
    ) -> Fraction:
        """Closed form of a cost: a² times what one record can do.

        The records that appear have the published levels of those that vanish, margin by margin:
        paired off by one margin, a move is a sum of a moves of single records that keep that
        margin.
        """
        free = tuple(slot.free for slot in slots)
        return self.a**2 * min(single_move(kept) for kept in (free, *held))

    def _certify_cost(self, view: View) -> Fraction:
        """Certified Δ2² of the table at the depths of the residual. It bounds the residual, because
        H_d is a projection and only shortens.
        """
        vary = set()
        for axis, depth in variables(view):
            if self._children(axis, depth)[-1] > 1:
                vary.add((axis, depth))
        margins = [frozenset(variables(meet(margin, view)) & vary) for margin in self.margins]
        return Fraction(certified_norms(self.a, vary, margins).l2_squared)

    def _round_up(self, value: float, view: View) -> Fraction:
        """Exact fraction of a cost that was computed in floating point, or one that is certainly no
        smaller.
        """
        multiples = [math.lcm(*self._children(axis, view[axis])) for axis in list_axes(view)]
        denominator = math.prod(multiples)
        if denominator <= _EXACT_DENOMINATOR:
            # Kernels are multiples of 1 / denominator: the float is one of them, up to its
            # rounding.
            return Fraction(round(value * denominator), denominator)
        # Rounding errors of the sum are far below one part in a billion.
        scaled = value * 2**30 * (1 + 1e-9)
        return Fraction(math.ceil(scaled) + 1, 2**30)

    def _tree(self, deepest: View, axis: int) -> Tree:
        """One feature at all its depths down to `deepest`, with the depth to which it is
        published.
        """
        counts = (self._children(axis, depth) for depth in range(1, deepest[axis] + 1))
        return Tree(tuple(counts), max(self._depths[axis], default=0))


@frozen(slots=False, eq=False)
class ExchangeCosts(BallCosts):
    """Costs under exchanges of one person, or of one linked member (`described_moves`).

    If margins overlap, each feature is treated as a margin of its own, which only adds exchanges.
    Every exchange lies in A_a, so what bounds the ball bounds exchanges too.

    Parameters
    ----------
    inherited
        The features that linked members have from their units.

    Examples
    --------
    >>> from semidp.promise.schema.margins import Grid
    >>> costs = ExchangeCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1))
    (Fraction(2, 1), Fraction(4, 1), Fraction(12, 7))
    >>> ExchangeCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2, times=5).cost((1, 1, 0))
    Fraction(100, 1)
    """

    inherited: frozenset[int] = frozenset()

    @cached_property
    def _blocks(self) -> list[Block]:
        """The published depths of each block: a margin, or one feature where margins overlap."""
        blocks = [block_from_view(margin) for margin in maximal(self.margins)]
        features = [axis for block in blocks for axis in block]
        if len(features) == len(set(features)):
            return blocks
        deepest = join(*self.margins)
        return [{axis: deepest[axis]} for axis in list_axes(deepest)]

    @cached_property
    def _constant(self) -> frozenset[int]:
        """The features of which one published node is left: x and y agree there."""
        chains = self.residuals.grid.chains
        depths = {axis: depth for block in self._blocks for axis, depth in block.items()}
        return frozenset(axis for axis, depth in depths.items() if chains[axis].size(depth) == 1)

    def _class(self, view: View) -> object:
        """Key of all that the cost of a residual depends on."""
        if not self.inherited:
            return super()._class(view)
        return view  # a block with a place counts wherever a table sees any place

    @cached_property
    def _moves(self) -> dict[frozenset[int], list[ExchangeMove] | None]:
        return {}

    def _moves_in_sight(self, axes: Iterable[int]) -> list[ExchangeMove] | None:
        """The kinds of exchanges that some features can tell apart; None for many blocks."""
        seen = frozenset(axes)
        if seen not in self._moves:
            few = self._count_blocks(seen) <= _MOST_CARRIERS
            self._moves[seen] = (
                list_exchanges(self._blocks, seen, self.inherited, self._constant) if few else None
            )
        return self._moves[seen]

    def _count_blocks(self, seen: frozenset[int]) -> int:
        """How many blocks have one of these features."""
        return sum(not seen.isdisjoint(block) for block in self._blocks)

    def _visible(self, views: Sequence[View]) -> int:
        """How many records of an exchange these residuals can see change: the person, a carrier for
        each block that they touch, and for linked members whoever makes room.
        """
        seen = frozenset(list_axes(join(*views)))
        if seen.isdisjoint(self.inherited):
            return min(self.a, self._count_blocks(seen) + 1)
        return self.a

    def families(self, axes: Sequence[int], deepest: View) -> list[Family] | None:
        """Return one family for each kind of exchange; None if there are too many."""
        return self._describe_families(
            axes, {axis: [*range(1, deepest[axis] + 1)] for axis in axes}, 0
        )

    def _build_view_families(self, view: View) -> list[Family] | None:
        depths = {}
        for axis in list_axes(view):
            # a residual sees nodes and their parents; rules are about published nodes
            in_use = {view[axis] - 1, view[axis]}
            for block in self._blocks:
                in_use.add(block.get(axis, 0))
            depths[axis] = sorted(depth for depth in in_use if 0 < depth <= view[axis])
        return self._describe_families(list_axes(view), depths, -1)

    def _describe_families(
        self, axes: Sequence[int], depths: Mapping[int, list[int]], first: int
    ) -> list[Family] | None:
        """One family for each kind of exchange, with trees of the given depths: kernels at all of
        them, or at the last alone (`first` is -1).
        """
        moves = self._moves_in_sight(axes)
        if moves is None:
            return None
        trees = [self._free_tree(axis, depths[axis]) for axis in axes]
        firsts = [first % len(depths[axis]) for axis in axes]
        families: dict[tuple[FeatureMove, ...], Family] = {}
        for move in moves:
            along = tuple(FeatureMove.from_move(move, axis, depths[axis]) for axis in axes)
            if along in families:
                continue
            family = Family.exchanges(trees, along, firsts)
            if family is None:
                return None
            families[along] = family
        return list(families.values())

    def _free_tree(self, axis: int, depths: Sequence[int]) -> Tree:
        """Some depths of a feature; with its shape, if few kinds of nodes occur."""
        chain = self.residuals.grid.chains[axis]
        return Tree.unpublished(chain, depths, _find_shape(chain, tuple(depths)))

    def _certify_cost(self, view: View) -> Fraction:
        """Certified Δ2² of a table that touches q blocks under exchange: q² + q + 2
        (docs/exchange.md; the argument is at `ExchangeTable._plain`). Linked members exceed it.
        """
        if self.inherited:
            return Fraction(2 * self._visible([view]) ** 2)
        q = sum(self._flag_touched_margins(view))
        return Fraction(q * q + q + 2)


@cache
def _find_shape(chain: Chain, depths: tuple[int, ...]) -> Shape | None:
    """The tree of some depths of a feature; None if its nodes are many or of many kinds."""
    if chain.size(depths[-1]) > _MOST_NODES:
        return None
    shapes: list[Shape] = [()] * chain.size(depths[-1])
    for above, depth in reversed([*itertools.pairwise([0, *depths])]):
        first = chain.first(above, depth).tolist()
        parents = []
        for start, end in itertools.pairwise([*first, len(shapes)]):
            parents.append(tuple(sorted(Counter(shapes[start:end]).items())))
        shapes = parents
        if len(set(shapes)) > _MOST_KINDS:
            return None
    return shapes[0]


def _select_depths(view: View, axes: Sequence[int]) -> View:
    """Depths of a view in the features `axes` alone."""
    return tuple(view[axis] for axis in axes)


def _depth_in_slot(published: int, depth: int) -> int:
    """How much of a slot at `depth` a margin at `published` holds: its nodes (2), their parents
    (1), or nothing (0).
    """
    if published >= depth:
        return 2
    return 1 if published == depth - 1 > 0 else 0
