"""The fitting problem as arrays: noisy values, the cells that may be filled, and the sums that must be met.

Sums keep their summed axes with length one, so that they broadcast against the table. Solving it lives in the
modules beside this one; nothing here knows what a schema or a release is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Cells = NDArray[np.bool_]

GRID_BITS = 24  # noisy values are read on the grid of 2^-24, about 6e-8, finer where they are whole numbers
WORD_BITS = 58  # what integer costs may use of a word: five bits are left for sums of a few of them

INFEASIBLE = (
    "no table of nonnegative counts has the published totals: check the totals and the cells declared impossible"
)


@dataclass(frozen=True)
class Sums:
    """The sums over all axes but `axes` must equal `totals` (summed axes kept with length one).

    >>> rows = Sums((0,), np.array([[3], [7]]))
    >>> rows.of(np.array([[1, 2], [3, 4]])).tolist()
    [[3], [7]]
    """

    axes: tuple[int, ...]
    totals: Counts

    @classmethod
    def over(cls, table: Counts, axes: Sequence[int]) -> "Sums":
        """Return the constraint that a table meets itself."""
        kept = tuple(sorted(axes))
        return cls(kept, table.sum(axis=_others(kept, table.ndim), keepdims=True))

    def of(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the sums of a table of the same number of axes."""
        summed: NDArray[Any] = table.sum(axis=_others(self.axes, table.ndim), keepdims=True)
        return summed


@dataclass(frozen=True)
class Problem:
    """Find the table closest to `noisy` that is zero outside `allowed` and meets every one of `sums`."""

    noisy: Floats | Counts
    allowed: Cells
    sums: tuple[Sums, ...]

    @cached_property
    def values(self) -> Floats:
        """The noisy values, with minus infinity in the cells that must stay zero."""
        return np.where(self.allowed, self.noisy.astype(np.float64), -np.inf)

    @cached_property
    def bits(self) -> int:
        """The number of binary digits after the point that integer costs keep."""
        if self.noisy.dtype.kind == "i":
            return 0
        whole = bool((self.noisy == np.floor(self.noisy)).all())
        return 0 if whole else max(0, min(GRID_BITS, WORD_BITS - self._digits()))

    def _digits(self) -> int:
        """The number of binary digits of the largest noisy value or total."""
        return math.frexp(max(float(np.abs(self.noisy).max()), float(self.sums[0].totals.sum()), 1.0))[1]

    @cached_property
    def grid(self) -> Counts:
        """The noisy values as whole multiples of 2^-bits."""
        if self.noisy.dtype.kind == "i":
            return self.noisy.astype(np.int64)
        return np.rint(np.ldexp(self.noisy, self.bits)).astype(np.int64)

    @property
    def common(self) -> tuple[int, ...]:
        """The axes that all sums share: the problem falls apart by their levels."""
        shared = set(self.sums[0].axes).intersection(*(sums.axes for sums in self.sums))
        return tuple(sorted(shared))

    @property
    def in_doubt(self) -> bool:
        """Whether totals that agree with each other might still belong to no table."""
        positive = np.ones(self.allowed.shape, dtype=bool)
        for sums in self.sums:
            positive &= sums.totals > 0
        return running_order([sums.axes for sums in self.sums]) is None or bool((positive & ~self.allowed).any())

    def loss(self, table: NDArray[Any]) -> float:
        """Return the sum of squared differences from the noisy values."""
        difference = (table - self.noisy).astype(np.float64)
        return float(np.square(difference).sum())


def pose(noisy: Floats | Counts, possible: Cells | None, sums: Sequence[Sums]) -> Problem:
    """Return the problem, with the cells below a total of zero closed.

    Raises
    ------
    InputError
        Where a positive total has no cell left that could hold it.

    Examples
    --------
    >>> pose(np.zeros((2, 2)), None, [Sums((0,), np.array([[0], [3]]))]).allowed
    array([[False, False],
           [ True,  True]])
    """
    allowed = np.ones(noisy.shape, dtype=bool) if possible is None else possible.copy()
    for each in sums:
        allowed &= each.totals > 0
    for each in sums:
        if ((each.of(allowed) == 0) & (each.totals > 0)).any():
            raise InputError(INFEASIBLE)
    return Problem(noisy, allowed, tuple(sums))


def running_order(families: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Return an order in which each family meets all earlier ones together inside a single one of them, or None.

    It exists where the margins are decomposable: take away, again and again, a family whose axes that others also
    have lie within one other family.

    >>> running_order([(0, 1), (2, 3), (1, 2)])
    [2, 1, 0]
    >>> running_order([(0, 1), (1, 2), (0, 2)]) is None
    True
    """
    left, taken = list(range(len(families))), []
    while len(left) > 1:
        for one in left:
            others = [set(families[other]) for other in left if other != one]
            shared = set(families[one]) & set().union(*others)
            if any(shared <= other for other in others):
                left.remove(one)
                taken.append(one)
                break
        else:
            return None
    return [*left, *reversed(taken)]


def _others(axes: tuple[int, ...], dimensions: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(dimensions) if axis not in axes)
