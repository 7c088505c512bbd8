"""Counts of many sets of columns at once, from chunks of coded records: no database, only
arithmetic.

Columns with few levels are counted in bundles, whose joint counts are summed down to the sets at
the end.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BUNDLE = 2**7  # cells of a bundle of columns
_JOINT = 2**15  # cells that are counted together: what a processor's cache holds
_ROWS = 2**16  # records whose codes are at hand at once

Codes = NDArray[np.intp]


class Tabulation:
    """The counts of sets of columns, a number of records after another.

    >>> counts = Tabulation((2, 3), [(0, 1), (1,)])
    >>> counts.add([np.array([0, 1, 1]), np.array([2, 2, 0])])
    >>> [table.tolist() for table in counts.tables()]
    [[[0, 0, 1], [1, 0, 1]], [1, 0, 2]]
    """

    def __init__(self, sizes: Sequence[int], sets: Sequence[tuple[int, ...]]) -> None:
        self.sizes, self.sets = tuple(sizes), list(sets)
        self._bundles = _bundle_columns(self.sizes, self.sets)
        home = {column: number for number, bundle in enumerate(self._bundles) for column in bundle}
        # for each set the columns that are counted together for it
        self._joint: list[tuple[int, ...]] = []
        # those that are made of whole bundles
        self._whole: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for columns in self.sets:
            bundles = sorted({home[column] for column in columns})
            together = tuple(column for number in bundles for column in self._bundles[number])
            if self._cells(together) <= _JOINT:
                self._joint.append(together)
                self._whole[together] = [self._bundles[number] for number in bundles]
            else:
                self._joint.append(columns)
        self._counts = {
            joint: np.zeros(self._cells(joint), dtype=np.int64) for joint in self._joint
        }

    def add(self, columns: Sequence[Codes]) -> None:
        """Count some records, of which each column gives the code of the level."""
        for start in range(0, len(columns[0]) if columns else 0, _ROWS):
            part = [column[start : start + _ROWS] for column in columns]
            codes = {}
            for bundle in self._bundles:
                codes[bundle] = self._code([part[column] for column in bundle], bundle)
            # new arrays of this size cost more than the sums
            scratch = np.empty(len(part[0]), dtype=np.intp)
            for joint, counts in self._counts.items():
                if joint in self._whole:
                    bundles = self._whole[joint]
                    sizes = [self._cells(bundle) for bundle in bundles]
                    index = ravel_codes([codes[bundle] for bundle in bundles], sizes, scratch)
                    counts += np.bincount(index, minlength=counts.size)
                else:
                    cells, occurrences = np.unique(
                        self._code([part[c] for c in joint], joint), return_counts=True
                    )
                    counts[cells] += occurrences

    def tables(self) -> list[NDArray[np.int64]]:
        """Return the counts of each set, an axis a column in its order."""
        tables = []
        for columns, joint in zip(self.sets, self._joint, strict=True):
            counts = self._counts[joint].reshape([self.sizes[column] for column in joint])
            left = [column for column in joint if column in columns]
            summed = counts.sum(
                axis=tuple(place for place, column in enumerate(joint) if column not in columns)
            )
            tables.append(
                np.ascontiguousarray(summed.transpose([left.index(column) for column in columns]))
            )
        return tables

    def _cells(self, columns: Sequence[int]) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def _code(self, codes: Sequence[Codes], columns: Sequence[int]) -> Codes:
        return ravel_codes(codes, [self.sizes[column] for column in columns])


def _bundle_columns(sizes: Sequence[int], sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Put columns together as they occur, as long as their joint counts stay few."""
    bundles: list[tuple[int, ...]] = []
    room = 0
    for column in dict.fromkeys(column for columns in sets for column in columns):
        if bundles and sizes[column] <= room:
            bundles[-1] = (*bundles[-1], column)
            room //= sizes[column]
        else:
            bundles.append((column,))
            room = _BUNDLE // sizes[column]
    return bundles


def ravel_codes(codes: Sequence[Codes], sizes: Sequence[int], out: Codes | None = None) -> Codes:
    """Return the flat positions of rows of codes, in an array that is at hand where there is one.

    >>> ravel_codes([np.array([1, 0]), np.array([2, 1])], [2, 3])
    array([5, 1])
    """
    flat = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        flat = np.multiply(flat, size, out=out)
        flat += code
    return flat
