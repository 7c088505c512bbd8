"""What residuals cost: how far adjacent datasets can move one residual, and all of them together.

``k_d = sup |H_d M_d m|²`` over the moves m of an adjacency. Small dataspaces are listed; otherwise a move is a pattern:
which of its records agree on which features. `Family` holds patterns whatever the adjacency they come from; `BallCosts`
is the adjacency A_a. Beyond patterns there are certified closed forms.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Floats, View, join, meet, named, variables
from semidp.core.spaces.exchange import servings
from semidp.errors import Refused
from semidp.queries.bounds import certified_norms
from semidp.queries.residuals import Residuals

MOST_PATTERNS = 6_000  # ways in which the records of a move may agree on one feature
_MOST_RECORDS = 8  # a = 4: 4,140 patterns a feature
_MOST_CARRIERS = 3  # blocks of a residual whose exchanges are enumerated
_MOST_WORK = 400_000_000  # entries of products of kernels: some seconds
_MOST_OPTIONS = 20_000
_EXACT_DENOMINATOR = 10**8  # kernels are multiples of one over this, if not more: then floats are rounded to them


Path = tuple[int, ...]
"""The nodes of a record along one feature, from the root down, numbered below each node as they are met."""


@dataclass(frozen=True)
class Tree:
    """One feature as far as moves are looked at: all its depths, or a *slot*, the nodes of one depth and their parents.

    Parameters
    ----------
    counts
        For each depth the distinct numbers of children of a node above, in order; of a slot, how many parents there
        are, and then the numbers of siblings.
    published
        Down to which of these depths moves keep the count of every node.
    above
        Whether only something coarser than these depths is published, in which x and y of an exchange may differ.
    """

    counts: tuple[tuple[int, ...], ...]
    published: int
    above: bool = False

    @property
    def is_public(self) -> bool:
        """Whether anything is published of the feature, however coarse."""
        return self.above or self.published > 0


@dataclass(frozen=True)
class Pattern:
    """Which records of a move are siblings and which are the same node along one feature, as kernels, one a depth.

    A kernel has ``1[same parent] (1[same node] - 1/c)`` for records x and y with c siblings; patterns that differ by an
    exchange of records with the same sign have the same `kind`.
    """

    kind: object
    kernels: Floats = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Family:
    """Moves of records that appear (+1) and vanish (-1), with the patterns that each feature may have.

    ``|H_d M_d m|² = s' (∘_i K_i) s``: the entrywise product of the kernels of the features that d names.
    """

    signs: NDArray[np.int64] = field(repr=False)
    patterns: tuple[tuple[Pattern, ...], ...] = field(repr=False)

    @property
    def work(self) -> int:
        """How many entries of products of kernels there are."""
        return math.prod(map(len, self.patterns)) * len(self.signs) ** 2

    @property
    def _outer(self) -> NDArray[np.int64]:
        return np.outer(self.signs, self.signs).ravel()

    def _kernels(self) -> list[Floats]:
        """For each feature an array: pattern, depth, and the entries of the kernel."""
        stacked = (np.stack([pattern.kernels for pattern in options]) for options in self.patterns)
        return [kernels.reshape(*kernels.shape[:2], -1) for kernels in stacked]

    def largest(self) -> float | None:
        """Return the largest value at the last depth over all combinations; None where these are too many."""
        if not self.work:
            return 0.0
        if self.work > _MOST_WORK:
            return None
        *others, last = sorted((kernels[:, -1] for kernels in self._kernels()), key=len)
        current = self._outer[None].astype(np.float64)
        for kernels in others:
            current = (current[:, None] * kernels[None]).reshape(-1, current.shape[1])
        step = max(1, 2**22 // len(last))
        return max(float((current[start : start + step] @ last.T).max()) for start in range(0, len(current), step))

    def largest_sum(self, axes: Sequence[int], sigma2: Mapping[View, Fraction]) -> float:
        """Return ``max Σ_d s' (∘ K) s / σ_d²``, the kernels those of the depths that d names."""
        if not self.work:
            return 0.0
        kernels, outer = self._kernels(), self._outer
        last = max(range(len(axes)), key=lambda place: len(kernels[place]))
        others = [place for place in range(len(axes)) if place != last]
        deepest = kernels[last].shape[1]
        best = 0.0
        for chosen in itertools.product(*(range(len(kernels[place])) for place in others)):
            by_depth = np.zeros((deepest + 1, outer.size))  # what stands beside each depth of the last feature
            for view, square in sigma2.items():
                product = outer / float(square)
                for place, pattern in zip(others, chosen, strict=True):
                    if view[axes[place]]:
                        product = product * kernels[place][pattern, view[axes[place]] - 1]
                by_depth[view[axes[last]]] += product
            found = kernels[last].reshape(len(kernels[last]), -1) @ by_depth[1:].ravel()
            best = max(best, float(found.max()) + float(by_depth[0].sum()))
        return best


@dataclass(frozen=True)
class BallMove:
    """Moves of a records that become a others, where every published node keeps its count."""

    a: int

    @property
    def records(self) -> int:
        """How many places are chosen."""
        return 2 * self.a

    def leads_on(self, paths: list[Path], tree: Tree) -> bool:
        """Whether the places chosen so far may be those of a move: none loses more of a published node than it has."""
        known = tree.published
        own = [place < self.a for place, path in enumerate(paths) if path[:known] == paths[-1][:known]]
        return not known or 2 * sum(own) >= len(own)

    def every(self, paths: list[Path], tree: Tree) -> list[Path] | None:
        """Return the places of all records of a move, those that appear first; None where it is none."""
        balance: dict[Path, int] = {}
        for place, path in enumerate(paths):
            node = path[: tree.published]
            balance[node] = balance.get(node, 0) + (1 if place < self.a else -1)
        return None if any(balance.values()) else paths


@dataclass(frozen=True)
class ExchangeMove:
    """One exchange: x, y and the carriers before it are chosen; `server` is who serves the feature, if x and y differ.

    The server has y's published node and takes x's leaf; other carriers keep their own.
    """

    carriers: int
    server: int | None

    @property
    def records(self) -> int:
        """How many places are chosen."""
        return self.carriers + 2

    def leads_on(self, paths: list[Path], tree: Tree) -> bool:
        """Whether the places chosen so far may be those of a move: `every` sees the rest."""
        return True

    def every(self, paths: list[Path], tree: Tree) -> list[Path] | None:
        """Return y, x, then each carrier after and before; None where the feature cannot be served so."""
        x, y, *before = paths
        known = tree.published
        if known and (x[:known] == y[:known]) != (self.server is None):
            return None
        if self.server is not None:
            carrier = before[self.server]
            if carrier[:known] != y[:known] or (tree.above and x[0] in (y[0], carrier[0])):
                return None
        found = [y, x]
        for number, path in enumerate(before):
            found += [x if number == self.server else path, path]
        return found


@cache
def patterns(tree: Tree, move: BallMove | ExchangeMove, first: int = 0) -> tuple[Pattern, ...] | None:
    """Return the kernels of a feature from a depth on, for every way in which the records of a move may agree.

    Of all numbers of children only the smallest that fits and the largest matter: a sum of products of kernels is
    affine in each 1/c. None where there are too many.

    >>> free, held = Tree(((1,), (5,)), 0), Tree(((1,), (5,)), 2)
    >>> len(patterns(free, BallMove(1), 1)), len(patterns(held, BallMove(2), 1))
    (2, 3)
    >>> len(patterns(free, ExchangeMove(0, None), 1)), len(patterns(held, ExchangeMove(1, 0), 1))
    (2, 1)
    """
    if move.records > _MOST_RECORDS:
        return None
    found: dict[bytes, Pattern] = {}
    for paths in _paths(tree, move):
        every = move.every(paths, tree)
        if every is None:
            continue
        depths = [list(_kernels(tree.counts[depth], every, depth)) for depth in range(first, len(tree.counts))]
        for chosen in itertools.product(*depths):
            kernels = np.stack([kernel for _, kernel in chosen])
            key = kernels.tobytes()
            if key not in found:
                counts = {node: count for part, _ in chosen for node, count in part.items()}
                found[key] = Pattern(_occupied(every, counts) if isinstance(move, BallMove) else key, kernels)
        if len(found) > MOST_PATTERNS:
            return None
    return tuple(found.values())


def _paths(tree: Tree, move: BallMove | ExchangeMove) -> Iterator[list[Path]]:
    """Iterate over the places of the records of a move in a tree, nodes numbered as they are met."""

    def below(known: list[Path], prefix: Path) -> Iterator[Path]:
        if len(prefix) == len(tree.counts):
            yield prefix
            return
        used = len({path[len(prefix)] for path in known if path[: len(prefix)] == prefix})
        for node in range(min(used + 1, tree.counts[len(prefix)][-1])):
            yield from below(known, (*prefix, node))

    def grow(known: list[Path]) -> Iterator[list[Path]]:
        if len(known) == move.records:
            yield known
            return
        for path in below(known, ()):
            longer = [*known, path]
            if move.leads_on(longer, tree):
                yield from grow(longer)

    return grow([])


def _kernels(counts: tuple[int, ...], paths: Sequence[Path], depth: int) -> Iterator[tuple[dict[Path, int], Floats]]:
    """Iterate over the kernels of records at a depth: parents have as few or as many children as there are."""
    parents: dict[Path, set[int]] = {}
    for path in paths:
        parents.setdefault(path[:depth], set()).add(path[depth])
    choices = []
    for used in parents.values():
        fitting = [count for count in counts if count >= len(used)]
        choices.append(sorted({fitting[0], fitting[-1]}))
    numbers = dict(zip(parents, range(len(parents)), strict=True))
    places = np.array([(numbers[path[:depth]], path[depth]) for path in paths])
    siblings = places[:, None, 0] == places[None, :, 0]
    same = siblings & (places[:, None, 1] == places[None, :, 1])
    for chosen in itertools.product(*choices):
        share = 1 / np.array(chosen)[places[:, 0]]
        yield dict(zip(parents, chosen, strict=True)), np.where(siblings, same - share[:, None], 0.0)


def _occupied(paths: Sequence[Path], counts: Mapping[Path, int]) -> object:
    """What does not change when records of the same sign change places: occupied nodes, from the root down."""
    half = len(paths) // 2

    def node(prefix: Path) -> object:
        signs = [place < half for place, path in enumerate(paths) if path[: len(prefix)] == prefix]
        if len(prefix) == len(paths[0]):
            return sum(signs), len(signs)
        children = {path[: len(prefix) + 1] for path in paths if path[: len(prefix)] == prefix}
        return counts.get(prefix), tuple(sorted(map(repr, map(node, children))))

    return node(())


@cache
def single_move(slots: tuple[Tree, ...]) -> Fraction:
    """Return the largest |H_d M_d (e_y - e_x)|² of one record that keeps what is published of each slot.

    >>> seven, nine = Tree(((1,), (7,)), 0), Tree(((1,), (9,)), 0)
    >>> single_move((seven,)), single_move((seven, nine))
    (Fraction(2, 1), Fraction(16, 9))
    """
    options = [_single_options(slot) for slot in slots]
    if math.prod(map(len, options)) > _MOST_OPTIONS:
        return Fraction(2)  # H_d is a projection
    best = Fraction(0)
    for chosen in itertools.product(*options):
        at_x, at_y, between = (math.prod(parts) for parts in zip(*chosen, strict=True))
        best = max(best, Fraction(at_x + at_y - 2 * between))
    return best


def _single_options(slot: Tree) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Along one feature: the kernel at x, at y and between them; the same node, siblings, or neither."""
    (parents,), counts = slot.counts
    ends = sorted({counts[0], counts[-1]})
    apart = sorted({count for count in (next((c for c in counts if c > 1), 0), counts[-1]) if count > 1})
    one = Fraction(1)
    found = [(one - one / c,) * 3 for c in ends]
    if slot.published < 2:
        found += [(one - one / c, one - one / c, -one / c) for c in apart]
    if slot.published == 0 and parents > 1:
        found += [(one - one / c, one - one / other, Fraction(0)) for c in ends for other in ends]
    return found


@dataclass(frozen=True, eq=False)
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
        All moves, as tables at `released` with one axis for the moves, where the dataspace is small enough to list.
    released
        The view of the listed moves.

    Examples
    --------
    >>> from semidp.core.margins import Grid
    >>> costs = BallCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1))  # 2a², 2a²(1 - 1/2), 2a²(1 - 1/7)
    (Fraction(8, 1), Fraction(4, 1), Fraction(48, 7))
    """

    residuals: Residuals
    margins: tuple[View, ...]
    a: int
    moves: NDArray[np.int64] | None = field(default=None, repr=False)
    released: View | None = None
    _costs: dict[object, Fraction] = field(default_factory=dict, init=False, repr=False)
    _seen: dict[View, Floats] = field(default_factory=dict, init=False, repr=False)

    def cost(self, view: View) -> Fraction:
        """Return k_d, or a certified upper bound; refuse a residual that no adjacent datasets differ in."""
        if self.moves is not None and (listed := float(self._squares(view).max(initial=0.0))) > 0:
            return self._upwards(listed, view)
        alike = self._class(view)
        if alike not in self._costs:
            self._costs[alike] = self._found(view)
        return self._costs[alike]

    def _class(self, view: View) -> object:
        """Return what the cost of a residual depends on: its features' trees, and what of them margins hold together.

        All pairs of a hundred features with as many levels are one class, or three where some are published.
        """
        kinds = [(self._kinds[axis], view[axis], self._depths[axis], axis) for axis in named(view)]
        kinds.sort()
        held = [tuple(margin[axis] for *_, axis in kinds) for margin in self.margins]
        return tuple(kind[:2] for kind in kinds), tuple(sorted(margin for margin in held if any(margin)))

    @cached_property
    def _kinds(self) -> list[int]:
        """For each feature a number that those with the same tree share."""
        known: dict[object, int] = {}
        return [known.setdefault(chain, len(known)) for chain in self.residuals.grid.chains]

    @cached_property
    def _depths(self) -> list[list[int]]:
        """For each feature the depths at which margins hold it."""
        axes = range(len(self.residuals.grid.chains))
        return [sorted(margin[axis] for margin in self.margins if margin[axis]) for axis in axes]

    def _found(self, view: View) -> Fraction:
        slots = tuple(self.slot(view, axis) for axis in named(view))
        found = min(self._closed(slots, self._held(view)), self._certified(view))
        values = [family.largest() for family in self._families(slots, 1) or ()]
        if values and None not in values:
            found = min(found, self._upwards(max(value for value in values if value is not None), view))
        if found == 0:
            raise Refused(
                f"with a = {self.a} the adjacent datasets agree on something that the published statistics do not fix, "
                "so that it would be released exactly: give a larger a"
            )
        return found

    def slot(self, view: View, axis: int, margin: View | None = None) -> Tree:
        """Return the slot of one feature of a residual under all published margins, or under one of them."""
        depth = view[axis]
        known = max((other[axis] for other in (self.margins if margin is None else (margin,))), default=0)
        held = 2 if known >= depth else 1 if known == depth - 1 > 0 else 0
        parents = self.residuals.grid.chains[axis].size(depth - 1)
        return Tree(((parents,), self._children(axis, depth)), held, known > 0 and not held)

    def _children(self, axis: int, depth: int) -> tuple[int, ...]:
        """The distinct numbers of nodes of a depth below one node above, in order."""
        return tuple(np.unique(self.residuals.grid.chains[axis].children(depth - 1, depth)).tolist())

    def joint(self, sigma2: Mapping[View, Fraction]) -> float | None:
        """Return ``sup_m Σ_d |H_d M_d m|² / σ_d²``, or an upper bound of it, where the moves can be enumerated."""
        if self.moves is not None:
            total = np.zeros(len(self.moves))
            for view, square in sigma2.items():
                total += self._squares(view) / float(square)
            return float(total.max(initial=0.0)) * (1 + 1e-9)
        axes, deepest = sorted({axis for view in sigma2 for axis in named(view)}), join(*sigma2)
        families = self._families([self._tree(deepest, axis) for axis in axes], 0) if axes else None
        if families is None or sum(family.work for family in families) * (len(sigma2) + 1) > _MOST_WORK:
            return None
        return max(family.largest_sum(axes, sigma2) for family in families) * (1 + 1e-9)

    def _squares(self, view: View) -> Floats:
        """|H_d M_d m|² of every listed move."""
        if view not in self._seen:
            assert self.moves is not None
            assert self.released is not None
            cells = math.prod(self.residuals.shape(self.released))
            if cells <= len(self.moves):  # the residual of each cell alone, and moves as sums of them
                units = self._residuals_of(np.eye(cells, dtype=np.int64), view)
                flat = self.moves.reshape(len(self.moves), -1)
                some = (flat[start : start + 1024] for start in range(0, len(flat), 1024))
                found = np.concatenate([(rows @ units) ** 2 @ np.ones(units.shape[1]) for rows in some])
            else:
                found = (self._residuals_of(self.moves, view) ** 2).sum(axis=1)
            self._seen[view] = found
        return self._seen[view]

    def _residuals_of(self, tables: NDArray[np.int64], view: View) -> Floats:
        """The residual of each table at the released view, one row each."""
        assert self.released is not None
        shape = self.residuals.shape(self.released)
        summed = (self.residuals.table(table.reshape(shape), self.released, view) for table in tables)
        return np.stack([self.residuals.centred(view, table).ravel() for table in summed])

    def _held(self, view: View) -> tuple[tuple[Tree, ...], ...]:
        """For each margin that constrains the residual, its slots where that margin alone is kept."""
        shared = [margin for margin in self.margins if any(meet(margin, view))]
        return tuple(tuple(self.slot(view, axis, margin) for axis in named(view)) for margin in shared)

    def _families(self, trees: Sequence[Tree], first: int) -> list[Family] | None:
        """All moves as patterns of trees at all their depths, or of slots from the first on; None where too many."""
        found = [patterns(tree, BallMove(self.a), first) for tree in trees]
        options = [option for option in found if option is not None]
        if len(options) < len(found):
            return None
        fewer = [tuple({pattern.kind: pattern for pattern in option}.values()) for option in options]
        widest = max(range(len(options)), key=lambda place: len(options[place]) / max(1, len(fewer[place])))
        options[widest] = fewer[widest]  # records of the same sign change places: one feature may be taken in order
        return [Family(np.array([1] * self.a + [-1] * self.a), tuple(options))]

    def _closed(self, slots: tuple[Tree, ...], held: tuple[tuple[Tree, ...], ...]) -> Fraction:
        """Return a² times what one record can do.

        The records that appear have the published levels of those that vanish, margin by margin: paired off by one
        margin, a move is a sum of a moves of single records that keep that margin.
        """
        free = tuple(Tree(slot.counts, 0) for slot in slots)
        return self.a**2 * min(single_move(kept) for kept in (free, *held))

    def _certified(self, view: View) -> Fraction:
        """Return Δ2² of the table itself: H_d only shortens."""
        vary = {(axis, depth) for axis, depth in variables(view) if self._children(axis, depth)[-1] > 1}
        margins = [frozenset(variables(meet(margin, view)) & vary) for margin in self.margins]
        return Fraction(certified_norms(self.a, vary, margins).l2_squared)

    def _upwards(self, value: float, view: View) -> Fraction:
        """Return the exact number that a float stands for, or one that is certainly no smaller."""
        denominator = math.prod(math.lcm(*self._children(axis, view[axis])) for axis in named(view))
        if denominator <= _EXACT_DENOMINATOR:
            return Fraction(round(value * denominator), denominator)
        return Fraction(math.ceil(value * 2**30 * (1 + 1e-9)) + 1, 2**30)

    def _tree(self, deepest: View, axis: int) -> Tree:
        """One feature at all its depths down to the deepest in use, and how deep it is published."""
        counts = (self._children(axis, depth) for depth in range(1, deepest[axis] + 1))
        return Tree(tuple(counts), max(self._depths[axis], default=0))


class ExchangeCosts(BallCosts):
    """Costs under exchanges of one person: carriers hand over published values, and nobody else changes.

    A joint margin is taken as margins of its features alone, which only adds exchanges. Every exchange lies in A_a with
    a one more than the number of blocks, so that what bounds the ball bounds exchanges too.

    >>> from semidp.core.margins import Grid
    >>> costs = ExchangeCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1))
    (Fraction(2, 1), Fraction(4, 1), Fraction(12, 7))
    """

    def _families(self, trees: Sequence[Tree], first: int) -> list[Family] | None:
        public = [place for place, tree in enumerate(trees) if tree.is_public]
        if len(public) > _MOST_CARRIERS:
            return None
        families = []
        for servers, carriers in servings(len(public)):
            served = dict(zip(public, servers, strict=True))
            found = []
            for place, tree in enumerate(trees):
                server = served.get(place)
                if first and server is None and tree.published == 1:
                    tree = Tree(tree.counts, 0)  # parents are not compared where x and y agree: that adds exchanges
                found.append(patterns(tree, ExchangeMove(carriers, server), first))
            options = [option for option in found if option is not None]
            if len(options) < len(found):
                return None
            families.append(Family(np.array([1, -1] * (carriers + 1)), tuple(options)))
        return families

    def _certified(self, view: View) -> Fraction:
        """Return q² + q + 2 for a table that touches q blocks."""
        q = sum(any(meet(margin, view)) for margin in self.margins)
        return Fraction(q * q + q + 2)
