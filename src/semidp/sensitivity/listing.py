"""S_a by listing: all differences of a small dataspace, and the moves of a large one, one at a time.

Closed forms live in `bounds` and `patterns`; what is listed here is what they are tested against.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, permutations, product

import numpy as np
from numpy.typing import NDArray

from semidp.invariants import Dataspace
from semidp.invariants.fiber import cells, fiber
from semidp.invariants.structure import Axes, common_part
from semidp.sensitivity.bounds import Norms

Counts = NDArray[np.int64]

_MOST_WORK = 500_000_000  # pairs of tables times cells: a few seconds


@dataclass(frozen=True, eq=False)
class Listing:
    """Every table of D_t, and the table over the released features that each one gives."""

    tables: Counts = field(repr=False)
    released: Counts = field(repr=False)
    shape: Axes

    @classmethod
    def of(cls, dataspace: Dataspace, released: Axes) -> "Listing | None":
        """List a small dataspace; None where it is too large."""
        listed = fiber(dataspace)
        if listed is None or len(listed) ** 2 * listed.shape[1] > _MOST_WORK:
            return None
        assert dataspace.schema is not None
        shape = tuple(dataspace.schema.shape[axis] for axis in released)
        levels = np.unravel_index(cells(dataspace), dataspace.schema.shape)
        flat = np.ravel_multi_index([levels[axis] for axis in released], shape)
        into = np.zeros((listed.shape[1], int(np.prod(shape))), dtype=np.int64)
        into[np.arange(listed.shape[1]), flat] = 1
        return cls(listed, listed @ into, shape)

    @property
    def only(self) -> Counts | None:
        """The released table, if the published statistics allow a single one."""
        same = (self.released == self.released[0]).all()
        return self.released[0].reshape(self.shape) if same else None

    def moves(self, a: int) -> Iterator[Counts]:
        """Iterate over the distinct differences, without zero, of tables at most a records apart."""
        seen = set()
        for near, table in self._near(a):
            for move in np.unique(near - table, axis=0):
                if move.any() and move.tobytes() not in seen:
                    seen.add(move.tobytes())
                    yield move.reshape(self.shape)

    def norms(self, a: int) -> tuple[Norms, Counts | None]:
        """Return the exact norms of S_a and a move that attains Δ2."""
        best, worst = Norms(0, 0, 0), None
        for near, table in self._near(a):
            size = np.abs(near - table)
            squares = (size**2).sum(axis=1)
            found = Norms(int(size.sum(axis=1).max()), int(squares.max()), int(size.max()))
            if found.l2_squared > best.l2_squared:
                worst = (near - table)[squares.argmax()].reshape(self.shape)
            best = best.most(found)
        return best, worst

    def _near(self, a: int) -> Iterator[tuple[Counts, Counts]]:
        for table, released in zip(self.tables, self.released, strict=True):
            near = np.abs(self.tables - table).sum(axis=1) <= 2 * a
            yield self.released[near], released


def moves(
    shape: Axes, margins: Sequence[Axes], values: Sequence[Counts], domain: NDArray[np.bool_] | None, a: int
) -> Iterator[Counts]:
    """Iterate over the tables with zero margins and positive part at most a that t allows, smallest first.

    For decomposable margins t allows a move iff each margin of its negative part is at most t. Records vanish in every
    combination of at most a cells; others with the same margins appear.

    >>> rows = columns = np.array([2, 2, 2])
    >>> len(list(moves((3, 3), [(0,), (1,)], [rows, columns], None, 2)))
    18
    >>> len(list(moves((3, 3), [(0,), (1,)], [rows, columns], None, 3)))
    30
    """
    where = [
        tuple(int(k) for k in cell) for cell in np.argwhere(np.ones(shape, dtype=bool) if domain is None else domain)
    ]
    allowed = set(where)
    for size in range(1, a + 1):
        for vanish in combinations_with_replacement(where, size):
            if _within(vanish, margins, values):
                gone = Counter(vanish)
                for appear in _same_margins(vanish, shape, margins, allowed):
                    if not any(cell in gone for cell in appear):
                        move = np.zeros(shape, dtype=np.int64)
                        for cell, count in gone.items():
                            move[cell] -= count
                        for cell in appear:
                            move[cell] += 1
                        yield move


def _within(vanish: Sequence[Axes], margins: Sequence[Axes], values: Sequence[Counts]) -> bool:
    """Whether t holds enough records for these to vanish."""
    for margin, counts in zip(margins, values, strict=True):
        used = Counter(tuple(cell[axis] for axis in margin) for cell in vanish)
        if any(count > counts[level] for level, count in used.items()):
            return False
    return True


def _same_margins(
    vanish: tuple[Axes, ...], shape: Axes, margins: Sequence[Axes], allowed: set[Axes]
) -> Iterator[tuple[Axes, ...]]:
    """Iterate over the multisets of allowed cells that have the margins of the given one."""
    common = common_part(margins)
    free = [axis for axis in range(len(shape)) if not any(axis in margin for margin in margins)]
    if common is not None and not free and margins:
        yield from _shuffled(vanish, margins, common, allowed)
    else:
        yield from _searched(vanish, margins, sorted(allowed))


def _shuffled(
    vanish: tuple[Axes, ...], margins: Sequence[Axes], common: Axes, allowed: set[Axes]
) -> Iterator[tuple[Axes, ...]]:
    """Margins that are disjoint apart from a common part: permute the levels of each block but the first."""
    seen = set()
    blocks = [[axis for axis in margin if axis not in common] for margin in margins[1:]]
    fixed = [tuple(cell[axis] for axis in common) for cell in vanish]
    orders = [
        order for order in permutations(range(len(vanish))) if all(fixed[i] == fixed[j] for i, j in enumerate(order))
    ]
    for choice in product(orders, repeat=len(blocks)):
        cells_now = [list(cell) for cell in vanish]
        for block, order in zip(blocks, choice, strict=True):
            for i, j in enumerate(order):
                for axis in block:
                    cells_now[i][axis] = vanish[j][axis]
        appear = tuple(sorted(tuple(cell) for cell in cells_now))
        if appear not in seen:
            seen.add(appear)
            if all(cell in allowed for cell in appear):
                yield appear


def _searched(vanish: tuple[Axes, ...], margins: Sequence[Axes], where: list[Axes]) -> Iterator[tuple[Axes, ...]]:
    """Any margins: choose cells in order while the margins that are left allow it."""
    left = [Counter(tuple(cell[axis] for axis in margin) for cell in vanish) for margin in margins]

    def keys(cell: Axes) -> list[Axes]:
        return [tuple(cell[axis] for axis in margin) for margin in margins]

    near = [cell for cell in where if all(key in used for key, used in zip(keys(cell), left, strict=True))]

    def grow(start: int, missing: int) -> Iterator[tuple[Axes, ...]]:
        if missing == 0:
            yield ()
            return
        for i in range(start, len(near)):
            found = keys(near[i])
            if all(used[key] > 0 for key, used in zip(found, left, strict=True)):
                for key, used in zip(found, left, strict=True):
                    used[key] -= 1
                for rest in grow(i, missing - 1):
                    yield (near[i], *rest)
                for key, used in zip(found, left, strict=True):
                    used[key] += 1

    yield from grow(0, len(vanish))
