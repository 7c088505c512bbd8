"""Groups whose counts are public: the levels of each, what was measured by sets of them, and a
group whose records lie evenly on a grid.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_spaces import GroupedSpace, answered_cells
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.population import FromNoise, NoisyPart

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ByBlocks(FromNoise):
    """What was measured by sets of groups whose counts are public; a set may be left out where
    there is one.
    """

    mechanism: Mechanism
    measurement: Measurement

    def _noisy_parts(self) -> Iterable[NoisyPart | None]:
        return (self,)

    @property
    def space(self) -> GroupedSpace:
        """The groups, and what the noise is calibrated to."""
        raise NotImplementedError

    def groups(self, block: Margin | None = None) -> tuple[tuple[str, ...], ...]:
        """Return the levels of each group of a set, in the order of its cells; of those who
        answered, where no others are measured.
        """
        schema, block = self._public(block)
        if not block.names:
            return (("all",),)
        part = schema.restrict(block.names)
        paths = [feature.paths() for feature in part.features]
        # Cells come in the schema's order, but a row's levels in the block's, which is what its
        # columns are headed by.
        places = [
            (part.axis(name), part.feature(name).names.index(name)) for name in self.columns(block)
        ]
        cells = list(np.ndindex(*part.shape))
        if self.space.answered is not None:
            held = answered_cells(schema, block, self.space.answered)
            cells = list(itertools.compress(cells, held.tolist()))
        return tuple(
            tuple(paths[axis][index[axis]][depth] for axis, depth in places) for index in cells
        )

    def columns(self, block: Margin | None = None) -> tuple[str, ...]:
        """Return the names of what a group's levels are: the set's features, a nested one with its
        whole path. That everybody answered is no level.
        """
        schema, block = self._public(block)
        names = [name for name in block.names if name != self.space.answered]
        own_names = {name: schema.feature(name).names for name in names}
        return tuple(
            dict.fromkeys(
                part for name, path in own_names.items() for part in path[: path.index(name) + 1]
            )
        )

    def _public(self, block: Margin | None) -> tuple[Schema, Margin]:
        schema = self.space.dataspace.schema
        return schema, self.space.blocks[self._number(block)]

    def _number(self, block: Margin | None) -> int:
        blocks = self.space.blocks
        if block is None and len(blocks) == 1:
            return 0
        if block not in blocks:
            raise InputError(f"say by which groups: {', '.join(map(str, blocks))}")
        return blocks.index(block)


@dataclass(frozen=True)
class EvenGroup:
    """A group whose records lie evenly on the steps of a grid.

    Parameters
    ----------
    size
        How many records it has.
    steps
        How many steps lie between the bounds of the outcome.

    Examples
    --------
    >>> group = EvenGroup(10, 3)
    >>> group.histogram.tolist(), group.rank(Fraction(1, 2)), group.place(5)
    ([2, 3, 2, 3], 5, 1)
    """

    size: int
    steps: int

    @classmethod
    def typical(cls, sizes: Integers, steps: int) -> "EvenGroup":
        """Return the group of median size among those with records; one record where no group has
        any.

        >>> EvenGroup.typical(np.array([400, 0, 10, 30]), 100).size
        30
        """
        occupied = np.sort(sizes[sizes > 0])
        if not len(occupied):
            return cls(1, steps)
        return cls(int(occupied[len(occupied) // 2]), steps)

    @cached_property
    def up_to(self) -> Integers:
        """The records up to each value of the grid."""
        values = np.arange(1, self.steps + 2, dtype=np.int64)
        return np.asarray(self.size * values // (self.steps + 1))

    @cached_property
    def histogram(self) -> Integers:
        """The records at each value of the grid."""
        return np.diff(self.up_to, prepend=0)

    def rank(self, probability: Fraction) -> int:
        """Return the rank ``⌈q n⌉`` of a quantile, at least 1."""
        return max(math.ceil(probability * self.size), 1)

    def place(self, rank: int) -> int:
        """Return the step at which the record of a rank lies."""
        return int(np.searchsorted(self.up_to, rank))
