"""A group whose records lie evenly on the grid: ways to its quantiles are compared on it, from
public numbers alone.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


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
