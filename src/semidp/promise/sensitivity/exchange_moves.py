"""The exchanges of one person, described once as data.

An exchange is a few records, each with a value before and after. Along one feature a value is a
*letter*: ``x`` and ``y`` are the protected person's before and after, ``r0``, ``r1``, … are what
other records have of their own. A value after the exchange is always one of the letters before it.
Rules say which letters have the same published node, or different ones. Every cost of an exchange
follows from this description (`agreement`, `families`, `outcome_moves`, `exchange_tables`), for
flat, nested and linked records alike. `Blocks` executes the definition on small datasets, which
checks it.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

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

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters before the exchange and the person's after it: x, y, then one for each other
        record that is not linked.
        """
        person, *others = self.records
        return (person.before[0], person.after[0], *(other.before[0] for other in others))

    def restrict(self, axes: tuple[int, ...]) -> "ExchangeMove":
        """Return the exchange as some of its features show it; all its records stay."""
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
            if room and placed is not None and doer[None] == doer[placed]:
                continue
            yield Handover(blocks, differing, doer, axes, units, placed).describe()


@dataclass(frozen=True, eq=False)
class Handover:
    """One way to share out the work of an exchange.

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
                if before.get(axis, ALTERNATIVE) != ALTERNATIVE:
                    rules.add(Rule(axis, (before[axis], ALTERNATIVE), depth, True))
            taken = {*self.differing[k]} - self.units
            if k == self.placed:
                taken |= self.units
            after |= {axis: PERSON for axis in self.axes if axis in taken}
        return before, after, rules


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
