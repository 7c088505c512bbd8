"""Moves of one member as patterns of agreement: how far an exchange of linked members moves one
residual.

An exchange is a few members, each with a value before and after. Along one feature only matters
which of these values are equal. So values are variables, and a pattern is a partition of them. The
patterns include every exchange that exists, and more: what is found is an upper bound.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_PATTERNS = 200_000  # patterns of all features together whose squares are computed
_MOST_VARIABLES = 7  # along one feature: 877 partitions

OLD, NEW = "x", "y"
"""The values of the protected member before and after, along a feature of its own."""
FROM, TO = "u", "v"
"""The units that the protected member leaves and enters."""
CARRIER = "w"
"""The unit that a carrier of a joint or inherited block leaves."""


def partitions(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the partitions of `count` things into at most `most` classes: the class of each thing.

    >>> list(partitions(3, 2))
    [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    """

    def extended(classes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(classes) == count:
            yield classes
            return
        used = max(classes, default=-1) + 1
        for label in range(min(used + 1, most)):
            yield from extended((*classes, label))

    yield from extended(())


def groupings(tasks: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield the ways to divide tasks among members, who may have several.

    >>> [len(members) for members in groupings(["a", "b"])]
    [1, 2]
    """
    for classes in partitions(len(tasks), len(tasks)):
        members: list[list[str]] = [[] for _ in range(max(classes, default=-1) + 1)]
        for task, label in zip(tasks, classes, strict=True):
            members[label].append(task)
        yield members


@dataclass(frozen=True)
class Axis:
    """One feature of a residual.

    Parameters
    ----------
    levels
        How many nodes there are at its depth.
    centred
        Whether all of them are siblings, whose mean the residual subtracts. Elsewhere nothing is
        subtracted here, which only makes squares larger: H_d is a projection.
    inherited
        Whether members have it from their units.
    block
        The exact total that has it, or None.
    held
        Whether that total has it at this depth or a finer one.
    """

    levels: int
    centred: bool
    inherited: bool
    block: str | None = None
    held: bool = False

    def kernel(self, equal: NDArray[np.bool_]) -> Floats:
        """Return the inner products <h_a, h_b> of centred indicators, from which values are
        equal.
        """
        if not self.centred:
            return equal.astype(np.float64)
        return np.asarray(equal - 1 / self.levels, dtype=np.float64)


@dataclass(frozen=True)
class MemberMove:
    """One member of an exchange: the variable of its value before and after, along each feature."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ExchangePatterns:
    """Exchanges of one member as patterns, for one residual.

    Parameters
    ----------
    axes
        The features of the residual.
    place_block
        The exact total with inherited features; None where there is none.
    joint
        Whether it has own features of members too.
    own_blocks
        The exact totals of own features alone that the residual touches.
    """

    axes: tuple[Axis, ...]
    place_block: str | None = None
    joint: bool = False
    own_blocks: tuple[str, ...] = field(default=())

    def largest(self) -> float | None:
        """Return the largest square of the residual over all patterns; None where these are too
        many.
        """
        best = 0.0
        for tasks in self._scenarios():
            for members in groupings(tasks):
                if any(len({*mine} & _PLACING) > 1 for mine in members):
                    continue  # nobody moves twice
                square = self._square(
                    [self._protected, *map(self._moved, members, itertools.count())]
                )
                if square is None:
                    return None
                best = max(best, square)
        return best

    @property
    def _protected(self) -> MemberMove:
        before = tuple(FROM if axis.inherited else OLD for axis in self.axes)
        after = tuple(TO if axis.inherited else NEW for axis in self.axes)
        return MemberMove(before, after)

    def _scenarios(self) -> Iterator[list[str]]:
        """Yield lists of tasks of the other members: to hand over own values of blocks, and to take
        the places that are short.
        """
        carried = [f"block {block}" for block in self.own_blocks]
        # there is room: nobody else moves
        yield carried
        if self.place_block is None:
            # somebody in the new unit takes the old place, where there is no room otherwise
            yield [*carried, _ROOM]
        elif not self.joint:
            yield [*carried, _PLACE]
        else:
            values = f"block {self.place_block}"
            # the places have the same published value: a carrier hands over own values alone
            yield [*carried, values]
            yield [*carried, values, _ROOM]
            # the carrier moves too, and somebody fills the place that it leaves
            yield [*carried, _JOINT]
            yield [*carried, _JOINT, _SHORT]

    def _moved(self, tasks: list[str], number: int) -> MemberMove:
        """Variables before and after of a member who does some tasks."""
        before, after = [], []
        for axis in self.axes:
            # what a member does not hand over stays, and may be equal to anything
            first = last = f"other {number}"
            if axis.inherited:
                for task in tasks:
                    if task in _PLACING:
                        first, last = _PLACES[task]
                # a carrier's unit has the published value of the new one
                if first == CARRIER and axis.held:
                    first = TO
                if last == CARRIER and axis.held:
                    last = TO
            elif axis.block is not None and self._hands_over(axis, tasks):
                first = NEW if axis.held else f"finer {number}"
                last = OLD
            before.append(first)
            after.append(last)
        return MemberMove(tuple(before), tuple(after))

    def _hands_over(self, axis: Axis, tasks: Sequence[str]) -> bool:
        if f"block {axis.block}" in tasks:
            return True
        return axis.block == self.place_block and _JOINT in tasks

    def _square(self, moves: Sequence[MemberMove]) -> float | None:
        """Largest square of a sum of moves over all patterns; None where these are too many."""
        signs = np.tile([-1.0, 1.0], len(moves))
        kernels = []
        for place, axis in enumerate(self.axes):
            names = [name for move in moves for name in (move.before[place], move.after[place])]
            options = _kernels(names, axis)
            if options is None:
                return None
            kernels.append(options)
        if math.prod(map(len, kernels)) > _MOST_PATTERNS:
            return None
        total = np.outer(signs, signs)[None]
        for options in kernels:
            total = (total[:, None] * options[None]).reshape(-1, *total.shape[1:])
        return float(total.sum(axis=(1, 2)).max(initial=0.0))


_ROOM, _PLACE, _JOINT, _SHORT = "make room", "take the place", "carry both", "fill the gap"
_PLACES: Mapping[str, tuple[str, str]] = {
    _ROOM: (TO, FROM),
    _PLACE: (CARRIER, FROM),
    _JOINT: (CARRIER, FROM),
    _SHORT: (TO, CARRIER),
}
_PLACING = {*_PLACES}


def _kernels(names: Sequence[str], axis: Axis) -> Floats | None:
    """Distinct kernels of the values along one feature; None where there are too many variables."""
    variables = list(dict.fromkeys(names))
    if len(variables) > _MOST_VARIABLES:
        return None
    which = np.array([variables.index(name) for name in names])
    kernels = []
    for classes in partitions(len(variables), axis.levels):
        labels = np.array(classes)[which]
        kernels.append(axis.kernel(labels[:, None] == labels[None, :]))
    return np.unique(np.stack(kernels), axis=0)
