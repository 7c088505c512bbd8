"""The moves of both adjacencies described once as data, and the patterns in which their records
agree.

An exchange is a few records, each with a value before and after. Along one feature a value is a
*letter*: x of the person before, y after, r0, r1, … of others. A rule says that two letters have
the same node of a feature at a depth, or different ones. No tree, kernel or query is known here.

A pattern says which records of a move are siblings, and which are the same node, along one feature.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from semidp.promise.schema.margins import Chain, Floats, Mask, View, list_axes

Block = Mapping[int, int]
"""An exact total, or a set of groups: the depth of each of its features."""

PERSON, ALTERNATIVE = "x", "y"


@frozen
class Rule:
    """Two letters have the same node of a feature at a depth, or different ones."""

    axis: int
    letters: tuple[str, str]
    depth: int
    equal: bool


@frozen
class MovedRecord:
    """One record of an exchange: its letter before and after, along each feature."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@frozen
class ExchangeMove:
    """One kind of exchange: who moves, which values they take from whom, and what must agree.

    Parameters
    ----------
    axes
        The features under consideration.
    records
        The records that change along one of them; the person comes first.
    rules
        The conditions on the published values of the letters.
    """

    axes: tuple[int, ...]
    records: tuple[MovedRecord, ...]
    rules: frozenset[Rule]

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters before the exchange and the person's after it: x, y, then one for each other
        record that is not linked.
        """
        person, *carriers = self.records
        return (person.before[0], person.after[0], *(each.before[0] for each in carriers))

    def restrict(self, axes: tuple[int, ...]) -> "ExchangeMove":
        """Return the exchange restricted to some features; all its records stay."""
        places = [self.axes.index(axis) for axis in axes]

        def keep(letters: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(letters[place] for place in places)

        records = tuple(MovedRecord(keep(each.before), keep(each.after)) for each in self.records)
        return ExchangeMove(axes, records, frozenset(r for r in self.rules if r.axis in axes))


def list_exchanges(
    blocks: Sequence[Block],
    seen: Collection[int],
    inherited: Collection[int] = (),
    constant: Collection[int] = (),
) -> list[ExchangeMove]:
    """Return every kind of exchange, as far as a query that sees some features can distinguish
    them.

    The person goes from x to any possible y. For every block in which their published values
    differ, a carrier with y's whole published value takes x's leaves of exactly the features whose
    published nodes differ; one record may carry several blocks.

    Linked members have inherited features, those of their unit, and move between units. If the
    published place changes, the carrier of that block takes the person's unit. If its block has
    own features too, or no block holds a place, a member of the person's new unit may have to make
    room: it goes to the unit that is short of a member. Nobody moves twice.

    Parameters
    ----------
    blocks
        The exact totals; no feature lies in two of them.
    seen
        The features that the query sees.
    inherited
        The features that linked members have from their units; none for other records.
    constant
        Features of blocks with one published node, in which x and y never differ.

    Examples
    --------
    One exact total of one feature, and a table of it with another feature: the person moves alone,
    or a carrier hands over.

    >>> for move in list_exchanges([{0: 1}], [0, 1]):
    ...     print([(record.before, record.after) for record in move.records])
    [(('x', 'x'), ('y', 'y'))]
    [(('x', 'x'), ('y', 'y')), (('r0', 'r0'), ('x', 'r0'))]
    """
    units = frozenset(inherited)
    axes = tuple(sorted(seen))
    sees_place = not units.isdisjoint(axes)
    in_sight = [
        block
        for block in blocks
        if not block.keys().isdisjoint(axes) or (sees_place and not units.isdisjoint(block))
    ]
    options = []
    for block in in_sight:
        options.append(_list_subsets([axis for axis in block if axis not in constant]))
    moves: dict[ExchangeMove, None] = {}
    for differing in itertools.product(*options):
        moves |= dict.fromkeys(list_handovers(in_sight, differing, axes, units))
    return list(moves)


def list_handovers(
    blocks: Sequence[Block],
    differing: Sequence[Collection[int]],
    axes: tuple[int, ...],
    units: frozenset[int] = frozenset(),
) -> Iterator[ExchangeMove]:
    """Yield the exchanges in which x and y differ in known features of each block.

    Parameters
    ----------
    blocks, axes, units
        The exact totals, the features that are seen, and those that are inherited.
    differing
        For each block the features whose published nodes differ.
    """
    changed = [number for number, features in enumerate(differing) if features]
    placed = next((k for k in changed if not units.isdisjoint(differing[k])), None)
    # a carrier of the place alone is chosen among the new unit's members where room is short
    alone = placed is not None and blocks[placed].keys() <= units
    for room in (False, True) if units and not alone else (False,):
        tasks: list[int | None] = [*changed]
        if room:
            tasks.append(None)
        for doers in list_partitions(len(tasks)):
            doer = dict(zip(tasks, doers, strict=True))
            # nobody moves twice: who takes the place of the person cannot make room as well
            if room and placed is not None and doer[None] == doer[placed]:
                continue
            yield Handover(blocks, differing, doer, axes, units, placed).describe()


@frozen(eq=False)
class Handover:
    """One assignment of carriers in an exchange.

    Parameters
    ----------
    blocks, differing, axes, units
        As for `list_handovers`.
    doer
        Which other record carries each block that changed, and for None who makes room.
    placed
        The block whose published place changes, if units have places.
    """

    blocks: Sequence[Block]
    differing: Sequence[Collection[int]]
    doer: Mapping[int | None, int]
    axes: tuple[int, ...]
    units: frozenset[int] = frozenset()
    placed: int | None = None

    def describe(self) -> ExchangeMove:
        """Return the exchange with its records and rules."""
        rules = set()
        for block, features in zip(self.blocks, self.differing, strict=True):
            for axis, depth in block.items():
                rules.add(Rule(axis, (PERSON, ALTERNATIVE), depth, axis not in features))
        letters = len(self.axes)
        records = [MovedRecord((PERSON,) * letters, (ALTERNATIVE,) * letters)]
        for number in range(max(self.doer.values(), default=-1) + 1):
            before, after, required = self._describe_other(number)
            rules |= required
            # whoever changes in no feature in sight changes nothing that the query counts
            if before != after:
                records.append(MovedRecord(tuple(before.values()), tuple(after.values())))
        kept = frozenset(rule for rule in rules if rule.axis in self.axes)
        return ExchangeMove(self.axes, tuple(records), kept)

    @property
    def _short(self) -> str:
        """Letter of the unit that lacks a member: the person's old one, or the carrier's."""
        return PERSON if self.placed is None else f"r{self.doer[self.placed]}"

    def _describe_other(self, number: int) -> tuple[dict[int, str], dict[int, str], set[Rule]]:
        """Letters of one other record before and after, by feature, and the rules about it."""
        makes_room = self.doer.get(None) == number
        before = {}
        for axis in self.axes:
            # whoever makes room lives in the unit that the person enters
            before[axis] = ALTERNATIVE if makes_room and axis in self.units else f"r{number}"
        after = dict(before)
        if makes_room:
            after |= {axis: self._short for axis in self.axes if axis in self.units}
        rules = set()
        for k, doer in self.doer.items():
            if k is None or doer != number:
                continue
            for axis, depth in self.blocks[k].items():
                # a carrier has y's whole published value before the exchange
                if before.get(axis, ALTERNATIVE) != ALTERNATIVE:
                    rules.add(Rule(axis, (before[axis], ALTERNATIVE), depth, True))
            # features of units come with a place, and only its carrier takes that
            taken = {*self.differing[k]} - self.units
            if k == self.placed:
                taken |= self.units
            after |= {axis: PERSON for axis in self.axes if axis in taken}
        return before, after, rules


def block_from_view(view: View) -> Block:
    """Return the depths at which a view names features, by feature.

    >>> block_from_view((0, 2, 1))
    {1: 2, 2: 1}
    """
    return {axis: view[axis] for axis in list_axes(view)}


def _list_subsets(features: Collection[int]) -> list[tuple[int, ...]]:
    """Every set of features of a block in which x and y may differ."""
    sizes = range(len(features) + 1)
    return [chosen for size in sizes for chosen in itertools.combinations(features, size)]


def list_partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of `count` things: the class of each, numbered as they occur.

    >>> list(list_partitions(3))
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)]
    """

    def extend(classes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(classes) == count:
            yield classes
            return
        for label in range(max(classes, default=-1) + 2):
            yield from extend((*classes, label))

    return extend(())


MOST_PATTERNS = 6_000  # ways in which the records of a move may agree on one feature
_MOST_PLACEMENTS = 20_000  # of the records of a move in a tree with a shape
_MOST_RECORDS = 8  # a = 4: 4,140 patterns a feature

Path = tuple[int, ...]
"""The nodes of a record along one feature, from the root down, numbered below each node as they are
met."""

Shape = tuple[tuple["Shape", int], ...]
"""A node by its children: each kind of them, and how many there are; a leaf has none."""


@frozen
class Tree:
    """One feature as moves see it: all its depths, or a *slot* of two depths.

    A slot holds the nodes of one depth and their parents.

    Parameters
    ----------
    counts
        For each depth the distinct numbers of children of a node above, in order; of a slot, how
        many parents there are, and then the numbers of siblings.
    published
        Down to which of these depths moves keep the count of every node.
    shape
        The tree itself, if it has few kinds of nodes. Without it any node may have as many children
        as some node of its depth has.
    """

    counts: tuple[tuple[int, ...], ...]
    published: int
    shape: Shape | None = None

    @classmethod
    def unpublished(cls, chain: Chain, depths: Sequence[int], shape: Shape | None = None) -> "Tree":
        """Return some depths of a feature without published counts."""
        counts = []
        for above, depth in itertools.pairwise([0, *depths]):
            counts.append(tuple(np.unique(chain.children(above, depth)).tolist()))
        return cls(tuple(counts), 0, shape)

    @property
    def free(self) -> "Tree":
        """The same feature if nothing of it is published."""
        return Tree(self.counts, 0)

    def choose_nodes(self, prefix: Path, used: set[int]) -> Iterable[int]:
        """Return the children of a node for one more record: those in use, and of all that are
        alike one that is not.
        """
        if self.shape is None:
            return range(min(len(used) + 1, self.counts[len(prefix)][-1]))
        kinds = self._children(prefix)
        nodes = set(used)
        for kind, (_, copies) in enumerate(kinds):
            # nodes of one kind are numbered in steps, so a number tells the kind
            mine = sum(node % len(kinds) == kind for node in used)
            if mine < copies:
                nodes.add(kind + mine * len(kinds))
        return sorted(nodes)

    def count_children(self, prefix: Path, used: int) -> list[int]:
        """Return how many children a node may have of which so many are in use: the fewest and the
        most that occur, if its place in the tree is not known.
        """
        if self.shape is not None:
            return [sum(copies for _, copies in self._children(prefix))]
        fitting = [count for count in self.counts[len(prefix)] if count >= used]
        return sorted({fitting[0], fitting[-1]})

    def _children(self, prefix: Path) -> Shape:
        node = self.shape
        assert node is not None, "asked of trees with a shape"
        for child in prefix:
            node = node[child % len(node)][0]
        return node


@frozen
class Pattern:
    """Which records of a move are siblings and which are the same node along one feature.

    Parameters
    ----------
    kind
        What patterns share that differ by an exchange of records with the same sign.
    kernels
        One matrix per depth: ``1[same parent] (1[same node] - 1/c)`` for two records with c
        siblings.
    same
        One matrix per depth of the tree: whether two records have the same node there.
    """

    kind: object
    kernels: Floats = field(repr=False, eq=False)
    same: Mask = field(repr=False, eq=False)


@frozen
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


@frozen
class FeatureMove:
    """One feature of an exchange: letters are placed in its tree, and records stand at letters.

    Parameters
    ----------
    letters
        How many letters there are.
    places
        The letter of each record: of the person after and before, then of every other one.
    rules
        For two letters and a depth of the tree, whether they have the same node there.
    """

    letters: int
    places: tuple[int, ...]
    rules: tuple[tuple[int, int, int, bool], ...]

    records_alike: ClassVar[bool] = False
    """The person and the carriers have different parts: none change places."""

    @classmethod
    def from_move(cls, move: ExchangeMove, axis: int, depths: Sequence[int]) -> "FeatureMove":
        """Return one feature of an exchange, in a tree that has only some depths of the feature.

        Whoever shares a node below these depths shares the last of them. Whoever does not share it
        may or may not: that rule is left out, which only adds exchanges.
        """
        column = move.axes.index(axis)
        names = [
            letters[column] for record in move.records for letters in (record.after, record.before)
        ]
        letters = list(dict.fromkeys(names))
        rules = set()
        for rule in move.rules:
            if rule.axis != axis or not {*rule.letters} <= {*letters}:
                continue
            one, other = sorted(map(letters.index, rule.letters))
            if rule.depth <= depths[-1]:
                rules.add((one, other, depths.index(rule.depth) + 1, rule.equal))
            elif rule.equal:
                rules.add((one, other, len(depths), True))
        return cls(len(letters), tuple(map(letters.index, names)), tuple(sorted(rules)))

    @property
    def records(self) -> int:
        """How many letters are placed."""
        return self.letters

    @property
    def signs(self) -> list[int]:
        """+1 after the exchange, -1 before it, record by record."""
        return [1, -1] * (len(self.places) // 2)

    def leads_on(self, paths: list[Path], tree: Tree) -> bool:
        """Whether the letter placed last keeps the rules about it and those before."""
        last = len(paths) - 1
        for one, other, depth, equal in self.rules:
            if other == last and (paths[one][:depth] == paths[last][:depth]) != equal:
                return False
        return True

    def outcomes(self, paths: list[Path], tree: Tree) -> Iterator[list[Path]]:
        """Yield the paths of all records, given those of the letters."""
        yield [paths[letter] for letter in self.places]


@cache
def patterns(
    tree: Tree, move: BallMove | FeatureMove, first: int = 0, apart: bool = False
) -> tuple[Pattern, ...] | None:
    """Return the patterns of a feature for every way in which the records of a move may agree.

    Of all numbers of children only the smallest that fits and the largest matter: a sum of
    products of kernels is affine in each 1/c. None if there are too many patterns.

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
    >>> alone, handed = (
    ...     FeatureMove(2, (0, 1), ()),
    ...     FeatureMove(2, (0, 1, 1, 0), ((0, 1, 2, False),)),
    ... )
    >>> len(patterns(free, alone, 1)), len(patterns(held, handed, 1))
    (2, 1)
    """
    if move.records > _MOST_RECORDS:
        return None
    by_key: dict[bytes, Pattern] = {}
    for number, paths in enumerate(_paths(tree, move)):
        if tree.shape is not None and number > _MOST_PLACEMENTS:
            return None
        for places in move.outcomes(paths, tree):
            _note_patterns(by_key, tree, move, first, apart, places)
        if len(by_key) > MOST_PATTERNS:
            return None
    return tuple(by_key.values())


def _note_patterns(
    by_key: dict[bytes, Pattern],
    tree: Tree,
    move: BallMove | FeatureMove,
    first: int,
    apart: bool,
    places: list[Path],
) -> None:
    """Add the patterns of records at given paths: one for each choice of the numbers of
    children.
    """
    depths = range(first, len(tree.counts))
    by_depth = [list(_kernels(tree, places, depth)) for depth in depths]
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
        kind = _make_occupancy_key(places, children) if move.records_alike else key
        by_key[key] = Pattern(kind, kernels, same)


def _same(places: Sequence[Path], depth: int) -> Mask:
    """Whether two records have the same node at a depth."""
    numbers: dict[Path, int] = {}
    nodes = [numbers.setdefault(path[:depth], len(numbers)) for path in places]
    labels = np.array(nodes)
    return np.asarray(labels[:, None] == labels[None, :])


def _paths(tree: Tree, move: BallMove | FeatureMove) -> Iterator[list[Path]]:
    """Yield the paths of all records of a move, nodes numbered as they are met."""

    def extend_prefix(earlier: list[Path], prefix: Path) -> Iterator[Path]:
        depth = len(prefix)
        if depth == len(tree.counts):
            yield prefix
            return
        used = {path[depth] for path in earlier if path[:depth] == prefix}
        for node in tree.choose_nodes(prefix, used):
            yield from extend_prefix(earlier, (*prefix, node))

    def grow(earlier: list[Path]) -> Iterator[list[Path]]:
        if len(earlier) == move.records:
            yield earlier
            return
        for path in extend_prefix(earlier, ()):
            longer = [*earlier, path]
            if move.leads_on(longer, tree):
                yield from grow(longer)

    return grow([])


def _kernels(
    tree: Tree, paths: Sequence[Path], depth: int
) -> Iterator[tuple[dict[Path, int], Floats]]:
    """Yield the kernels at a depth, with the numbers of children that each assumes: every parent
    has as few or as many as occur.
    """
    parents: dict[Path, set[int]] = {}
    for path in paths:
        parents.setdefault(path[:depth], set()).add(path[depth])
    choices = []
    for parent, used in parents.items():
        choices.append(tree.count_children(parent, len(used)))
    numbers = dict(zip(parents, range(len(parents)), strict=True))
    places = np.array([(numbers[path[:depth]], path[depth]) for path in paths])
    siblings = places[:, None, 0] == places[None, :, 0]
    same = siblings & (places[:, None, 1] == places[None, :, 1])
    for chosen in itertools.product(*choices):
        share = 1 / np.array(chosen)[places[:, 0]]
        kernel = np.where(siblings, same - share[:, None], 0.0)
        yield dict(zip(parents, chosen, strict=True)), kernel


def _make_occupancy_key(paths: Sequence[Path], counts: Mapping[Path, int]) -> object:
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
