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
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.geometry import View, join, meet, named, variables
from semidp.queries.bounds import certified_norms
from semidp.queries.residuals import Floats, Residuals

MOST_PATTERNS = 6_000  # ways in which the records of a move may agree on one feature
_MOST_RECORDS = 8  # a = 4: 4,140 patterns a feature
_MOST_CARRIERS = 3  # blocks of a residual whose exchanges are enumerated
_MOST_WORK = 400_000_000  # entries of products of kernels: some seconds
_MOST_OPTIONS = 20_000
_EXACT_DENOMINATOR = 10**8  # kernels are multiples of one over this, if not more: then floats are rounded to them


Places = list[tuple[int, int]]
"""For each record its parent and its node below it, numbered as they are met."""


Path = tuple[int, ...]
"""The nodes of a record along one feature, from the root down, numbered below each node as they are met."""


@dataclass(frozen=True)
class Slot:
    """One feature at the depth at which a residual names it.

    Parameters
    ----------
    counts
        The distinct numbers of siblings at that depth, in order.
    parents
        How many nodes there are one depth above.
    held
        2 where moves keep the count of every node, 1 where that of every parent, 0 where neither.
    published
        Whether anything is published of the feature, however coarse.
    """

    counts: tuple[int, ...]
    parents: int
    held: int
    published: bool = False


@dataclass(frozen=True)
class Pattern:
    """Which records of a move are siblings and which are the same node along one feature, as a kernel.

    The kernel has ``1[same parent] (1[same node] - 1/c)`` for records x and y with c siblings; patterns that differ by
    an exchange of records with the same sign have the same `kind`.
    """

    kind: tuple[object, ...]
    kernel: Floats = field(repr=False, compare=False)


@dataclass(frozen=True)
class JointPattern:
    """Kernels of one feature at each of its depths; `kind` as for a pattern."""

    kind: tuple[object, ...]
    kernels: Floats = field(repr=False, compare=False)


AnyPattern = TypeVar("AnyPattern", Pattern, JointPattern)
JointFamily = tuple[NDArray[np.int64], tuple[tuple[JointPattern, ...], ...]]
"""The signs of the records of a move, and for each feature the patterns that it may have."""


@dataclass(frozen=True, eq=False)
class Family:
    """Moves of records that appear (+1) and vanish (-1), with the patterns that each feature may have.

    ``|H_d M_d m|² = s' (∘_i K_i) s``: the entrywise product of the kernels of the features that d names.
    """

    signs: NDArray[np.int64] = field(repr=False)
    patterns: tuple[tuple[Pattern, ...], ...] = field(repr=False)

    def largest(self) -> float | None:
        """Return the largest value over all combinations of patterns, or None where they are too many."""
        if any(not options for options in self.patterns):
            return 0.0
        ordered = sorted(self.patterns, key=lambda options: len(_kinds(options)) / len(options))
        first, *others = [_kinds(ordered[0]), *ordered[1:]]
        if math.prod(map(len, (first, *others))) * len(self.signs) ** 2 > _MOST_WORK:
            return None
        current = np.stack([pattern.kernel for pattern in first]).reshape(len(first), -1)
        current = current * np.outer(self.signs, self.signs).ravel()
        for options in others:
            kernels = np.stack([pattern.kernel for pattern in options]).reshape(len(options), -1)
            if options is others[-1]:
                return float(max((chunk @ kernels.T).max() for chunk in _chunks(current, len(options))))
            current = (current[:, None] * kernels[None]).reshape(-1, current.shape[1])
        return float(current.sum(axis=1).max())


def _kinds(options: Sequence[AnyPattern]) -> tuple[AnyPattern, ...]:
    return tuple({pattern.kind: pattern for pattern in options}.values())


def _chunks(rows: Floats, width: int) -> Iterator[Floats]:
    step = max(1, 2**22 // width)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


@cache
def ball_patterns(slot: Slot, a: int) -> tuple[Pattern, ...] | None:
    """Return the patterns of a records that become a others along one feature; None where they are too many.

    The value is affine in each 1/c, so that of all numbers of siblings only the smallest that fits and the largest
    matter.

    >>> len(ball_patterns(Slot((5,), 1, 0), 1)), len(ball_patterns(Slot((5,), 1, 2), 2))
    (2, 3)
    """
    records = 2 * a
    if records > _MOST_RECORDS:
        return None
    signs, largest = [1] * a + [-1] * a, slot.counts[-1]
    found: dict[bytes, Pattern] = {}

    def grow(places: list[tuple[int, int]], nodes: list[int]) -> bool:
        if len(places) == records:
            return finish(places, nodes)
        for parent in range(min(len(nodes) + 1, slot.parents)):
            there = nodes[parent] if parent < len(nodes) else 0
            for node in range(min(there + 1, largest)):
                grown = [*nodes, 0] if parent == len(nodes) else list(nodes)
                grown[parent] = max(there, node + 1)
                if not grow([*places, (parent, node)], grown):
                    return False
        return True

    def finish(places: list[tuple[int, int]], nodes: list[int]) -> bool:
        balance: dict[object, int] = {}
        for place, sign in zip(places, signs, strict=True):
            group: object = place if slot.held == 2 else place[0]
            balance[group] = balance.get(group, 0) + sign
        if slot.held and any(balance.values()):
            return True
        for counts, kernel in _kernels(slot, places, nodes):
            found.setdefault(kernel.tobytes(), Pattern(_kind(places, signs, counts), kernel))
        return len(found) <= MOST_PATTERNS

    return tuple(found.values()) if grow([], []) else None


def _kernels(slot: Slot, places: Places, nodes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Iterate over the kernels of records at (parent, node): parents have as few or as many children as there are."""
    choices = []
    for used in nodes:
        fitting = [count for count in slot.counts if count >= used]
        choices.append(sorted({fitting[0], fitting[-1]}))
    parents = np.array([parent for parent, _ in places])
    same_parent = parents[:, None] == parents[None, :]
    labels = np.array([parent * len(places) + node for parent, node in places])
    same = labels[:, None] == labels[None, :]
    for counts in itertools.product(*choices):
        share = np.array([1 / counts[parent] for parent in parents])
        yield counts, np.where(same_parent, same - share[:, None], 0.0)


@cache
def exchange_patterns(slot: Slot, carriers: int, server: int | None) -> tuple[Pattern, ...]:
    """Return the patterns of one exchange along one feature: y, x, then each carrier after and before.

    The carrier that serves the feature (None where x and y have the same published node) has y's published node and
    takes x's node; every other one keeps its own.

    >>> len(exchange_patterns(Slot((5,), 1, 0), 0, None)), len(exchange_patterns(Slot((5,), 1, 2, True), 1, 0))
    (2, 1)
    """
    found: dict[bytes, Pattern] = {}
    largest = slot.counts[-1]

    def grow(places: Places, nodes: list[int]) -> None:
        """Place x, y and then each carrier before: all that can be chosen."""
        if len(places) == carriers + 2:
            finish(places, nodes)
            return
        who = len(places) - 2  # -2 is x, -1 is y, then the carriers
        for parent in range(min(len(nodes) + 1, slot.parents)):
            there = nodes[parent] if parent < len(nodes) else 0
            for node in range(min(there + 1, largest)):
                if not allowed(who, (parent, node), places):
                    continue
                grown = [*nodes, 0] if parent == len(nodes) else list(nodes)
                grown[parent] = max(there, node + 1)
                grow([*places, (parent, node)], grown)

    def allowed(who: int, place: tuple[int, int], places: Places) -> bool:
        if who == -1 and slot.published:
            if server is None:  # x and y have the same published node
                return slot.held != 2 or place == places[0]
            return place != places[0] if slot.held == 2 else place[0] != places[0][0]
        if who >= 0 and who == server:  # it has y's published node
            if slot.held == 2:
                return place == places[1]
            return place[0] == places[1][0] if slot.held == 1 else place[0] != places[0][0]
        return True

    def finish(places: Places, nodes: list[int]) -> None:
        x, y, *before = places
        every = [y, x]
        for number, place in enumerate(before):
            every += [x if number == server else place, place]
        for _, kernel in _kernels(slot, every, nodes):
            found.setdefault(kernel.tobytes(), Pattern((kernel.tobytes(),), kernel))

    grow([], [])
    return tuple(found.values())


def _partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Iterate over the ways to split items into groups: which blocks share a carrier."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for groups in _partitions(rest):
        for number, group in enumerate(groups):
            yield [*groups[:number], (first, *group), *groups[number + 1 :]]
        yield [(first,), *groups]


def _servings(public: tuple[int, ...]) -> Iterator[tuple[list[tuple[int, ...]], dict[int, int]]]:
    """Iterate over which published features differ, which of them share a carrier, and who serves each."""
    for size in range(len(public) + 1):
        for differ in itertools.combinations(public, size):
            for parts in _partitions(differ):
                yield parts, {place: number for number, part in enumerate(parts) for place in part}


@dataclass(frozen=True)
class Tree:
    """One feature: for each depth the distinct numbers of children of a node above, and how deep it is published."""

    counts: tuple[tuple[int, ...], ...]
    published: int


@dataclass(frozen=True)
class BallMove:
    """Moves of a records that become a others, where every published node keeps its count."""

    a: int

    @property
    def records(self) -> int:
        """How many places are chosen."""
        return 2 * self.a

    def leads_on(self, paths: list[Path], published: int) -> bool:
        """Whether the places chosen so far may be those of a move: none loses more of a published node than it has."""
        own = [place < self.a for place, path in enumerate(paths) if path[:published] == paths[-1][:published]]
        return not published or 2 * sum(own) >= len(own)

    def every(self, paths: list[Path], published: int) -> list[Path] | None:
        """Return the places of all records of a move, those that appear first; None where it is none."""
        balance: dict[Path, int] = {}
        for place, path in enumerate(paths):
            balance[path[:published]] = balance.get(path[:published], 0) + (1 if place < self.a else -1)
        return None if published and any(balance.values()) else paths


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

    def leads_on(self, paths: list[Path], published: int) -> bool:
        """Whether the places chosen so far may be those of a move: `every` sees the rest."""
        return True

    def every(self, paths: list[Path], published: int) -> list[Path] | None:
        """Return y, x, then each carrier after and before; None where the feature cannot be served so."""
        x, y, *before = paths
        if published and (x[:published] == y[:published]) != (self.server is None):
            return None
        if published and self.server is not None and before[self.server][:published] != y[:published]:
            return None
        found = [y, x]
        for number, path in enumerate(before):
            found += [x if number == self.server else path, path]
        return found


@cache
def _tree_patterns(tree: Tree, move: BallMove | ExchangeMove) -> tuple[JointPattern, ...] | None:
    """Return the kernels of a feature at all its depths for every way in which the records of a move may agree.

    Of all numbers of children only the smallest that fits and the largest matter: a sum of products of kernels is
    affine in each 1/c. None where there are too many.
    """
    if move.records > _MOST_RECORDS:
        return None
    found: dict[bytes, JointPattern] = {}
    for paths in _paths(tree, move):
        every = move.every(paths, tree.published)
        if every is None:
            continue
        depths = [
            list(_kernels(Slot(counts, 1, 0), *_numbered(every, depth))) for depth, counts in enumerate(tree.counts)
        ]
        for chosen in itertools.product(*depths):
            kernels = np.stack([kernel for _, kernel in chosen])
            kind = _occupied(every, tuple(counts for counts, _ in chosen)) if isinstance(move, BallMove) else None
            found.setdefault(kernels.tobytes(), JointPattern((kind or kernels.tobytes(),), kernels))
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
            if move.leads_on(longer, tree.published):
                yield from grow(longer)

    return grow([])


def _numbered(paths: Sequence[Path], depth: int) -> tuple[Places, list[int]]:
    """Return the parent and the node of each record at a depth, and how many nodes each parent has in use."""
    parents = list(dict.fromkeys(path[:depth] for path in paths))
    nodes = [list(dict.fromkeys(path[depth] for path in paths if path[:depth] == parent)) for parent in parents]
    places = [(number := parents.index(path[:depth]), nodes[number].index(path[depth])) for path in paths]
    return places, [len(each) for each in nodes]


def _occupied(paths: Sequence[Path], counts: tuple[tuple[int, ...], ...]) -> object:
    """What does not change when records of the same sign change places: occupied nodes, from the root down."""
    half = len(paths) // 2
    parents = [list(dict.fromkeys(path[:depth] for path in paths)) for depth in range(len(counts))]

    def node(prefix: Path) -> object:
        signs = [place < half for place, path in enumerate(paths) if path[: len(prefix)] == prefix]
        if len(prefix) == len(counts):
            return sum(signs), len(signs)
        own = counts[len(prefix)][parents[len(prefix)].index(prefix)]
        children = {path[: len(prefix) + 1] for path in paths if path[: len(prefix)] == prefix}
        return own, tuple(sorted(map(repr, map(node, children))))

    return node(())


def _largest_sum(
    signs: NDArray[np.int64],
    patterns: Sequence[Sequence[JointPattern]],
    axes: Sequence[int],
    sigma2: Mapping[View, Fraction],
) -> float:
    """Return ``max Σ_d s' (∘ K) s / σ_d²`` over one pattern a feature, the kernels those of the depths that d names."""
    outer = np.outer(signs, signs).ravel()
    if any(not options for options in patterns):
        return 0.0
    kernels = [np.stack([pattern.kernels.reshape(len(pattern.kernels), -1) for pattern in part]) for part in patterns]
    last = max(range(len(axes)), key=lambda place: len(patterns[place]))
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


def _kind(places: Places, signs: list[int], counts: Sequence[int]) -> tuple[object, ...]:
    """What does not change when records of the same sign change places: the occupation of nodes, parent by parent."""
    nodes: dict[tuple[int, int], list[int]] = {}
    for place, sign in zip(places, signs, strict=True):
        nodes.setdefault(place, [0, 0])[sign < 0] += 1
    families: dict[int, list[tuple[int, int]]] = {}
    for (parent, _), (plus, minus) in nodes.items():
        families.setdefault(parent, []).append((plus, minus))
    return tuple(sorted((counts[parent], *sorted(members)) for parent, members in families.items()))


@cache
def single_move(slots: tuple[Slot, ...]) -> Fraction:
    """Return the largest |H_d M_d (e_y - e_x)|² of one record that goes anywhere; `held` says what it must keep.

    >>> single_move((Slot((7,), 1, 0),)), single_move((Slot((7,), 1, 0), Slot((9,), 1, 0)))
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


def _single_options(slot: Slot) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Along one feature: the kernel at x, at y and between them; the same node, siblings, or neither."""
    ends = sorted({slot.counts[0], slot.counts[-1]})
    apart = sorted({count for count in (next((c for c in slot.counts if c > 1), 0), slot.counts[-1]) if count > 1})
    one = Fraction(1)
    found = [(one - one / c,) * 3 for c in ends]
    if slot.held < 2:
        found += [(one - one / c, one - one / c, -one / c) for c in apart]
    if slot.held == 0 and slot.parents > 1:
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
    >>> from semidp.geometry import Grid
    >>> costs = BallCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1))  # 2a², 2a²(1 - 1/2), 2a²(1 - 1/7)
    (Fraction(8, 1), Fraction(4, 1), Fraction(48, 7))
    """

    residuals: Residuals
    margins: tuple[View, ...]
    a: int
    moves: NDArray[np.int64] | None = field(default=None, repr=False)
    released: View | None = None

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

    @cached_property
    def _costs(self) -> dict[object, Fraction]:
        return {}

    def _found(self, view: View) -> Fraction:
        slots = tuple(self.slot(view, axis) for axis in named(view))
        found = min(self._cost(slots, self._held(view), view), self._certified(view))
        if found == 0:
            raise Refused(
                f"with a = {self.a} the adjacent datasets agree on something that the published statistics do not fix, "
                "so that it would be released exactly: give a larger a"
            )
        return found

    def slot(self, view: View, axis: int, margin: View | None = None) -> Slot:
        """Return one feature of a residual under all published margins, or under one of them."""
        depth = view[axis]
        known = max((other[axis] for other in (self.margins if margin is None else (margin,))), default=0)
        held = 2 if known >= depth else 1 if known == depth - 1 > 0 else 0
        chain = self.residuals.grid.chains[axis]
        return Slot(tuple(np.unique(chain.children(depth - 1, depth)).tolist()), chain.size(depth - 1), held, known > 0)

    def joint(self, sigma2: Mapping[View, Fraction]) -> float | None:
        """Return ``sup_m Σ_d |H_d M_d m|² / σ_d²``, or an upper bound of it, where the moves can be enumerated."""
        if self.moves is not None:
            total = np.zeros(len(self.moves))
            for view, square in sigma2.items():
                total += self._squares(view) / float(square)
            return float(total.max(initial=0.0)) * (1 + 1e-9)
        return self._joint_patterns(sigma2)

    def _squares(self, view: View) -> Floats:
        """|H_d M_d m|² of every listed move."""
        if view not in self._seen:
            assert self.moves is not None
            assert self.released is not None
            cells = math.prod(self.residuals.shape(self.released))
            if cells <= len(self.moves):  # the residual of each cell alone, and moves as sums of them
                units = self._residuals_of(np.eye(cells, dtype=np.int64), view)
                found = np.concatenate([(rows @ units) ** 2 @ np.ones(units.shape[1]) for rows in self._flat()])
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

    def _flat(self) -> Iterator[NDArray[np.int64]]:
        """The listed moves as rows, some at a time."""
        assert self.moves is not None
        for start in range(0, len(self.moves), 1024):
            yield self.moves[start : start + 1024].reshape(-1, math.prod(self.moves.shape[1:]))

    @cached_property
    def _seen(self) -> dict[View, Floats]:
        return {}

    def _held(self, view: View) -> tuple[tuple[Slot, ...], ...]:
        """For each margin that constrains the residual, its slots where that margin alone is kept."""
        shared = [margin for margin in self.margins if any(meet(margin, view))]
        return tuple(tuple(self.slot(view, axis, margin) for axis in named(view)) for margin in shared)

    def _cost(self, slots: tuple[Slot, ...], held: tuple[tuple[Slot, ...], ...], view: View) -> Fraction:
        bounds = [self._closed(slots, held)]
        families = self._families(slots)
        values = None if families is None else [family.largest() for family in families]
        if values is not None and None not in values:
            bounds.append(self._upwards(max(value for value in values if value is not None), view))
        return min(bounds)

    def _families(self, slots: tuple[Slot, ...]) -> list[Family] | None:
        """All moves as patterns, or None where they are too many."""
        patterns = [ball_patterns(slot, self.a) for slot in slots]
        if any(pattern is None for pattern in patterns):
            return None
        return [Family(_signs(self.a), tuple(pattern for pattern in patterns if pattern is not None))]

    def _closed(self, slots: tuple[Slot, ...], held: tuple[tuple[Slot, ...], ...]) -> Fraction:
        """Return a² times what one record can do.

        The records that appear have the published levels of those that vanish, margin by margin: paired off by one
        margin, a move is a sum of a moves of single records that keep that margin.
        """
        free = tuple(Slot(slot.counts, slot.parents, 0) for slot in slots)
        return self.a**2 * min(single_move(kept) for kept in (free, *held))

    def _certified(self, view: View) -> Fraction:
        """Return Δ2² of the table itself: H_d only shortens."""
        vary = {
            (axis, depth)
            for axis in named(view)
            for depth in range(1, view[axis] + 1)
            if int(self.residuals.siblings(axis, depth).max()) > 1
        }
        margins = [frozenset(variables(meet(margin, view)) & vary) for margin in self.margins]
        return Fraction(certified_norms(self.a, vary, margins).l2_squared)

    def _upwards(self, value: float, view: View) -> Fraction:
        """Return the exact number that a float stands for, or one that is certainly no smaller."""
        chains = self.residuals.grid.chains
        denominator = math.prod(
            math.lcm(*np.unique(chains[axis].children(view[axis] - 1, view[axis])).tolist()) for axis in named(view)
        )
        if denominator <= _EXACT_DENOMINATOR:
            return Fraction(round(value * denominator), denominator)
        return Fraction(math.ceil(value * 2**30 * (1 + 1e-9)) + 1, 2**30)

    def _joint_patterns(self, sigma2: Mapping[View, Fraction]) -> float | None:
        """The largest sum over the patterns of all features at once; None where they are too many."""
        axes = sorted({axis for view in sigma2 for axis in named(view)})
        families = self._joint_families(axes, join(*sigma2)) if axes else None
        if families is None:
            return None
        work = sum(math.prod(map(len, patterns)) * len(signs) ** 2 * (len(sigma2) + 1) for signs, patterns in families)
        if work > _MOST_WORK:
            return None
        return max(_largest_sum(signs, patterns, axes, sigma2) for signs, patterns in families) * (1 + 1e-9)

    def _joint_families(self, axes: Sequence[int], deepest: View) -> "list[JointFamily] | None":
        """All moves as patterns of every feature down to its deepest depth."""
        patterns = [_tree_patterns(self._tree(deepest, axis), BallMove(self.a)) for axis in axes]
        if any(option is None for option in patterns):
            return None
        options = [option for option in patterns if option is not None]
        fewer = [_kinds(option) for option in options]
        widest = max(range(len(axes)), key=lambda place: len(options[place]) / max(1, len(fewer[place])))
        options[widest] = fewer[widest]  # records of the same sign change places: one feature may be taken in order
        return [(_signs(self.a), tuple(options))]

    def _tree(self, deepest: View, axis: int) -> "Tree":
        """One feature at all its depths down to the deepest in use, and how deep it is published."""
        views = [
            tuple(depth * (other == axis) for other in range(len(deepest))) for depth in range(1, deepest[axis] + 1)
        ]
        return Tree(tuple(self.slot(view, axis).counts for view in views), max(self._depths[axis], default=0))


class ExchangeCosts(BallCosts):
    """Costs under exchanges of one person: carriers hand over published values, and nobody else changes.

    A joint margin is taken as margins of its features alone, which only adds exchanges. Every exchange lies in A_a with
    a one more than the number of blocks, so that what bounds the ball bounds exchanges too.

    >>> from semidp.geometry import Grid
    >>> costs = ExchangeCosts(Residuals(Grid.flat((2, 5, 7))), ((1, 0, 0),), 2)
    >>> costs.cost((0, 1, 0)), costs.cost((1, 1, 0)), costs.cost((0, 1, 1))
    (Fraction(2, 1), Fraction(4, 1), Fraction(12, 7))
    """

    def _families(self, slots: tuple[Slot, ...]) -> list[Family] | None:
        public = tuple(place for place, slot in enumerate(slots) if slot.published)
        if len(public) > _MOST_CARRIERS:
            return None
        found = []
        for parts, servers in _servings(public):
            patterns = [exchange_patterns(slot, len(parts), servers.get(place)) for place, slot in enumerate(slots)]
            found.append(Family(np.array([1, -1] * (len(parts) + 1)), tuple(patterns)))
        return found

    def _certified(self, view: View) -> Fraction:
        """Return q² + q + 2 for a table that touches q blocks."""
        q = sum(any(meet(margin, view)) for margin in self.margins)
        return Fraction(q * q + q + 2)

    def _joint_families(self, axes: Sequence[int], deepest: View) -> "list[JointFamily] | None":
        trees = [self._tree(deepest, axis) for axis in axes]
        public = tuple(place for place, tree in enumerate(trees) if tree.published)
        if len(public) > _MOST_CARRIERS:
            return None
        found: list[JointFamily] = []
        for parts, servers in _servings(public):
            patterns = [
                _tree_patterns(tree, ExchangeMove(len(parts), servers.get(place))) for place, tree in enumerate(trees)
            ]
            if any(option is None for option in patterns):
                return None
            signs = np.array([1, -1] * (len(parts) + 1))
            found.append((signs, tuple(option for option in patterns if option is not None)))
        return found


def _signs(a: int) -> NDArray[np.int64]:
    return np.array([1] * a + [-1] * a)
