"""Patterns of agreement: which records of a move are siblings, and which are the same node, along
one feature.

A residual of a move depends on nothing else (`families` puts the features together). The moves are
those of the ball, `BallMove`, and of one exchange, `ExchangeMove`; what they cost is in `costs`.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from semidp.core.margins import Floats, Mask

MOST_PATTERNS = 6_000  # ways in which the records of a move may agree on one feature
_MOST_RECORDS = 8  # a = 4: 4,140 patterns a feature

Path = tuple[int, ...]
"""The nodes of a record along one feature, from the root down, numbered below each node as they are
met."""


@dataclass(frozen=True)
class Tree:
    """One feature as far as moves are looked at: all its depths, or a *slot* of two depths.

    A slot holds the nodes of one depth and their parents.

    Parameters
    ----------
    counts
        For each depth the distinct numbers of children of a node above, in order; of a slot, how
        many parents there are, and then the numbers of siblings.
    published
        Down to which of these depths moves keep the count of every node.
    above
        Whether only something coarser than these depths is published, in which x and y of an
        exchange may differ.
    """

    counts: tuple[tuple[int, ...], ...]
    published: int
    above: bool = False

    @property
    def free(self) -> "Tree":
        """The same feature where nothing of it is published."""
        return Tree(self.counts, 0)


@dataclass(frozen=True)
class Pattern:
    """Which records of a move are siblings and which are the same node along one feature.

    Parameters
    ----------
    kind
        What patterns share that differ by an exchange of records with the same sign.
    kernels
        A matrix a depth: ``1[same parent] (1[same node] - 1/c)`` for two records with c siblings.
    same
        A matrix a depth of the tree: whether two records have the same node there.
    """

    kind: object
    kernels: Floats = field(repr=False, compare=False)
    same: Mask = field(repr=False, compare=False)


@dataclass(frozen=True)
class BallMove:
    """Moves of the ball: a records vanish and a others appear, and every published node keeps its
    count.
    """

    a: int

    records_alike: ClassVar[bool] = True
    """Records with the same sign may change places."""

    @property
    def records(self) -> int:
        """How many records are placed: those that appear and those that vanish."""
        return 2 * self.a

    @property
    def signs(self) -> list[int]:
        """+1 for the records that appear, then -1 for those that vanish."""
        return [1] * self.a + [-1] * self.a

    def leads_on(self, paths: list[Path], tree: Tree) -> bool:
        """Whether the paths chosen so far can be completed to a move.

        Records that appear are placed first. No published node may then lose more records than
        appear there.
        """
        depth = tree.published
        if not depth:
            return True
        node = paths[-1][:depth]
        appearing = [place < self.a for place, path in enumerate(paths) if path[:depth] == node]
        return 2 * sum(appearing) >= len(appearing)

    def outcomes(self, paths: list[Path], tree: Tree) -> Iterator[list[Path]]:
        """Yield the paths of all records, those that appear first, if every published node keeps
        its count.
        """
        balance: dict[Path, int] = {}
        for sign, path in zip(self.signs, paths, strict=True):
            node = path[: tree.published]
            balance[node] = balance.get(node, 0) + sign
        if not any(balance.values()):
            yield paths


@dataclass(frozen=True)
class ExchangeMove:
    """One exchange: the paths of x, of y and of each carrier before it are chosen; those afterwards
    follow.

    Parameters
    ----------
    carriers
        How many records hand something over.
    server
        Which of them serves the block of the feature; None where x and y agree on the block.
    joint
        Whether the block has further features, so that x and y may agree on this one though the
        block is served. The carrier then has that node too, and keeps its leaf.
    """

    carriers: int
    server: int | None
    joint: bool = False

    records_alike: ClassVar[bool] = False
    """The person and the carriers have different parts: none change places."""

    @property
    def records(self) -> int:
        """How many records are placed: x, y and the carriers."""
        return self.carriers + 2

    @property
    def signs(self) -> list[int]:
        """The signs of y, of x, and of each carrier after and before."""
        return [1, -1] * (self.carriers + 1)

    def leads_on(self, paths: list[Path], tree: Tree) -> bool:
        """Always true: `outcomes` drops what is no exchange."""
        return True

    def outcomes(self, paths: list[Path], tree: Tree) -> Iterator[list[Path]]:
        """Yield the paths of y, of x, then of each carrier after and before: one list for each way
        to serve the feature.
        """
        x, y, *before = paths
        depth = tree.published
        agree = x[:depth] == y[:depth]
        if self.server is None:
            if agree:
                yield self._served(x, y, before, None)
            return
        carrier = before[self.server]
        if carrier[:depth] != y[:depth]:
            return
        if self.joint and agree:
            yield self._served(x, y, before, None)
        # where only something coarser is published, x may differ there from y and the carrier
        apart = x[0] not in (y[0], carrier[0]) if tree.above else not (depth and agree)
        if apart:
            yield self._served(x, y, before, self.server)

    def _served(self, x: Path, y: Path, before: list[Path], server: int | None) -> list[Path]:
        """Paths of all records where the carrier `server` takes x's path, and the others keep
        theirs.
        """
        places = [y, x]
        for number, path in enumerate(before):
            after = x if number == server else path
            places += [after, path]
        return places


@cache
def patterns(
    tree: Tree, move: BallMove | ExchangeMove, first: int = 0, apart: bool = False
) -> tuple[Pattern, ...] | None:
    """Return the patterns of a feature for every way in which the records of a move may agree.

    Of all numbers of children only the smallest that fits and the largest matter: a sum of
    products of kernels is affine in each 1/c. None where there are too many patterns.

    Parameters
    ----------
    tree, move
        The feature, and the moves.
    first
        The depth from which on there are kernels.
    apart
        Whether patterns with the same kernels are told apart by who has the same node, as a joint
        margin needs it.

    Examples
    --------
    >>> free, held = Tree(((1,), (5,)), 0), Tree(((1,), (5,)), 2)
    >>> len(patterns(free, BallMove(1), 1)), len(patterns(held, BallMove(2), 1))
    (2, 3)
    >>> (
    ...     len(patterns(free, ExchangeMove(0, None), 1)),
    ...     len(patterns(held, ExchangeMove(1, 0), 1)),
    ... )
    (2, 1)
    """
    if move.records > _MOST_RECORDS:
        return None
    by_key: dict[bytes, Pattern] = {}
    for paths in _paths(tree, move):
        for places in move.outcomes(paths, tree):
            _note_patterns(by_key, tree, move, first, apart, places)
        if len(by_key) > MOST_PATTERNS:
            return None
    return tuple(by_key.values())


def _note_patterns(
    by_key: dict[bytes, Pattern],
    tree: Tree,
    move: BallMove | ExchangeMove,
    first: int,
    apart: bool,
    places: list[Path],
) -> None:
    """Add the patterns of records at given paths: one for each choice of the numbers of
    children.
    """
    depths = range(first, len(tree.counts))
    by_depth = [list(_kernels(tree.counts[depth], places, depth)) for depth in depths]
    same = np.stack([_same(places, depth) for depth in range(1, len(tree.counts) + 1)])
    for chosen in itertools.product(*by_depth):
        kernels = np.stack([kernel for _, kernel in chosen])
        key = kernels.tobytes()
        if apart:
            key += same.tobytes()
        if key in by_key:
            continue
        children: dict[Path, int] = {}
        for numbers, _ in chosen:
            children.update(numbers)
        kind = _occupied(places, children) if move.records_alike else key
        by_key[key] = Pattern(kind, kernels, same)


def _same(places: Sequence[Path], depth: int) -> Mask:
    """Whether two records have the same node at a depth."""
    numbers: dict[Path, int] = {}
    nodes = [numbers.setdefault(path[:depth], len(numbers)) for path in places]
    labels = np.array(nodes)
    return np.asarray(labels[:, None] == labels[None, :])


def _paths(tree: Tree, move: BallMove | ExchangeMove) -> Iterator[list[Path]]:
    """Yield the paths of all records of a move, nodes numbered as they are met."""

    def below(earlier: list[Path], prefix: Path) -> Iterator[Path]:
        depth = len(prefix)
        if depth == len(tree.counts):
            yield prefix
            return
        used = len({path[depth] for path in earlier if path[:depth] == prefix})
        for node in range(min(used + 1, tree.counts[depth][-1])):
            yield from below(earlier, (*prefix, node))

    def grow(earlier: list[Path]) -> Iterator[list[Path]]:
        if len(earlier) == move.records:
            yield earlier
            return
        for path in below(earlier, ()):
            longer = [*earlier, path]
            if move.leads_on(longer, tree):
                yield from grow(longer)

    return grow([])


def _kernels(
    counts: tuple[int, ...], paths: Sequence[Path], depth: int
) -> Iterator[tuple[dict[Path, int], Floats]]:
    """Yield the kernels at a depth, with the numbers of children that each assumes: every parent
    has as few or as many as occur.
    """
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
        kernel = np.where(siblings, same - share[:, None], 0.0)
        yield dict(zip(parents, chosen, strict=True)), kernel


def _occupied(paths: Sequence[Path], counts: Mapping[Path, int]) -> object:
    """Key that stays the same when records of the same sign change places: the occupied nodes, from
    the root down.
    """
    half = len(paths) // 2

    def node(prefix: Path) -> object:
        depth = len(prefix)
        inside = [place for place, path in enumerate(paths) if path[:depth] == prefix]
        if depth == len(paths[0]):
            appearing = sum(place < half for place in inside)
            return appearing, len(inside)
        children = {paths[place][: depth + 1] for place in inside}
        shapes = sorted(repr(node(child)) for child in children)
        return counts.get(prefix), tuple(shapes)

    return node(())
