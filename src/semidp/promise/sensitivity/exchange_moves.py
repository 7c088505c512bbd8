"""The exchanges of one person, described once as data.

An exchange is a few records, each with a value before and after. Along one feature a value is a
*letter*: ``x`` and ``y`` are the protected person's before and after, ``r0``, ``r1``, … are what
other records have of their own. A value after the exchange is always one of the letters before it.
Rules say which letters have the same published node, or different ones. Every cost of an exchange
follows from this description (`agreement`, `families`, `outcome_moves`), for flat, nested and
linked records alike; nothing else knows who hands over what.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

Block = Mapping[int, int]
"""An exact total: the published depth of each of its features."""

PERSON, ALTERNATIVE = "x", "y"


@dataclass(frozen=True)
class Rule:
    """Two letters have the same node of a feature at a depth, or different ones."""

    axis: int
    letters: tuple[str, str]
    depth: int
    equal: bool


@dataclass(frozen=True)
class MovedRecord:
    """One record of an exchange: its letter before and after, along each feature."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class ExchangeMove:
    """One kind of exchange: who moves, which values they take from whom, and what must agree.

    Parameters
    ----------
    axes
        The features that are looked at.
    records
        The records that change along one of them; the person comes first.
    rules
        What the published values of the letters must fulfill.
    """

    axes: tuple[int, ...]
    records: tuple[MovedRecord, ...]
    rules: frozenset[Rule]


def list_exchanges(
    blocks: Sequence[Block],
    seen: Collection[int],
    inherited: Collection[int] = (),
    constant: Collection[int] = (),
) -> list[ExchangeMove]:
    """Return every kind of exchange, as a query that sees some features can tell them apart.

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
    options = [
        _list_subsets([axis for axis in block if axis not in constant]) for block in in_sight
    ]
    moves: dict[ExchangeMove, None] = {}
    for differing in itertools.product(*options):
        changed = [number for number, features in enumerate(differing) if features]
        placed = next((k for k in changed if not units.isdisjoint(differing[k])), None)
        # a carrier of the place alone is chosen among the new unit's members where room is short
        alone = placed is not None and in_sight[placed].keys() <= units
        for room in (False, True) if units and not alone else (False,):
            tasks: list[int | None] = [*changed]
            if room:
                tasks.append(None)
            for doers in list_partitions(len(tasks)):
                case = _Case(in_sight, differing, dict(zip(tasks, doers, strict=True)), placed)
                if room and placed is not None and case.doer[None] == case.doer[placed]:
                    continue
                moves[_describe(case, axes, units)] = None
    return list(moves)


@dataclass(frozen=True, eq=False)
class _Case:
    """One way to share out the work: `doer` says which other record carries each block that
    changed, and for None who makes room.
    """

    blocks: Sequence[Block]
    differing: Sequence[tuple[int, ...]]
    doer: Mapping[int | None, int]
    placed: int | None

    @property
    def short(self) -> str:
        """Letter of the unit that lacks a member: the person's old one, or the carrier's."""
        return PERSON if self.placed is None else f"r{self.doer[self.placed]}"


def _describe(case: _Case, axes: tuple[int, ...], units: frozenset[int]) -> ExchangeMove:
    rules = set()
    for block, features in zip(case.blocks, case.differing, strict=True):
        for axis, depth in block.items():
            rules.add(Rule(axis, (PERSON, ALTERNATIVE), depth, axis not in features))
    records = [MovedRecord((PERSON,) * len(axes), (ALTERNATIVE,) * len(axes))]
    for number in range(max(case.doer.values(), default=-1) + 1):
        before, after, required = _describe_other(case, number, axes, units)
        rules |= required
        if before != after:
            records.append(MovedRecord(tuple(before.values()), tuple(after.values())))
    kept = frozenset(rule for rule in rules if rule.axis in axes)
    return ExchangeMove(axes, tuple(records), kept)


def _describe_other(
    case: _Case, number: int, axes: tuple[int, ...], units: frozenset[int]
) -> tuple[dict[int, str], dict[int, str], set[Rule]]:
    """Letters of one other record before and after, by feature, and the rules about it."""
    makes_room = case.doer.get(None) == number
    before = {}
    for axis in axes:
        # whoever makes room lives in the unit that the person enters
        before[axis] = ALTERNATIVE if makes_room and axis in units else f"r{number}"
    after = dict(before)
    if makes_room:
        after |= {axis: case.short for axis in axes if axis in units}
    rules = set()
    for k, doer in case.doer.items():
        if k is None or doer != number:
            continue
        for axis, depth in case.blocks[k].items():
            if before.get(axis, ALTERNATIVE) != ALTERNATIVE:
                rules.add(Rule(axis, (before[axis], ALTERNATIVE), depth, True))
        taken = {*case.differing[k]} - units
        if k == case.placed:
            taken |= units
        after |= {axis: PERSON for axis in axes if axis in taken}
    return before, after, rules


def _list_subsets(features: Collection[int]) -> list[tuple[int, ...]]:
    """Every set of features of a block in which x and y may differ."""
    sizes = range(len(features) + 1)
    return [chosen for size in sizes for chosen in itertools.combinations(features, size)]


@cache
def list_partitions(count: int) -> tuple[tuple[int, ...], ...]:
    """Return the partitions of `count` things: the class of each, numbered as they occur.

    >>> list_partitions(3)
    ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2))
    """

    def extend(classes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(classes) == count:
            yield classes
            return
        for label in range(max(classes, default=-1) + 2):
            yield from extend((*classes, label))

    return tuple(extend(()))
