"""Elements of S_a: all of them for a small dataspace, one at a time for a large one, and the simplest ones of any.

Closed forms are in `bounds` and `patterns`; what is listed here is what they are tested against.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement, permutations, product

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Counts, Grid, Mask, Shape, Totals, View, common_part, join, junction_order, meet, named
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.spaces.listing import cells, fiber
from semidp.errors import Refused
from semidp.queries.bounds import Norms

_MOST_WORK = 500_000_000  # pairs of tables times cells: a few seconds
_MOST_LEVELS = 20  # levels of a separator that are tried for a four-cell move, commonest first
_MOST_MULTISETS = 50_000  # of cells, held at once
_MOST_STEPS = 3_000_000  # of a search for moves of a larger table: some seconds

Levels = dict[int, int]
Labels = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ListedTables:
    """Every table of a small D_t, each with its sums over the features that are not released."""

    tables: Counts = field(repr=False)
    released: Counts = field(repr=False)
    shape: Shape

    @classmethod
    def of(cls, dataspace: Dataspace, released: View) -> "ListedTables | None":
        """List a small dataspace; None where it is too large."""
        listed = fiber(dataspace)
        if listed is None or len(listed) ** 2 * listed.shape[1] > _MOST_WORK:
            return None
        grid = dataspace.schema.grid
        flat = grid.labels(released)[cells(dataspace)]
        into = np.zeros((listed.shape[1], grid.size_of(released)), dtype=np.int64)
        into[np.arange(listed.shape[1]), flat] = 1
        return cls(listed, listed @ into, grid.shape_of(released))

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
            found = Norms.of(near - table)
            if found.l2_squared > best.l2_squared:
                worst = (near - table)[((near - table) ** 2).sum(axis=1).argmax()].reshape(self.shape)
            best = best.most(found)
        return best, worst

    def _near(self, a: int) -> Iterator[tuple[Counts, Counts]]:
        for table, released in zip(self.tables, self.released, strict=True):
            near = np.abs(self.tables - table).sum(axis=1) <= 2 * a
            yield self.released[near], released


def moves(grid: Grid, margins: Sequence[Totals], domain: Mask | None, a: int) -> Iterator[Counts]:
    """Iterate over the tables with zero margins and positive part at most a that t allows, smallest first.

    For decomposable margins t allows a move iff each margin of its negative part is at most t. Records vanish in every
    combination of at most a cells; others with the same margins appear.

    >>> both = [Totals((1, 0), np.array([[2], [2], [2]])), Totals((0, 1), np.array([[2, 2, 2]]))]
    >>> len(list(moves(Grid.flat((3, 3)), both, None, 2))), len(list(moves(Grid.flat((3, 3)), both, None, 3)))
    (18, 30)
    """
    where = np.arange(np.prod(grid.shape)) if domain is None else np.flatnonzero(domain)
    labels = [grid.labels(margin.view) for margin in margins]
    counts = [margin.counts.ravel() for margin in margins]
    for size in range(1, a + 1):
        if math.comb(len(where) + size - 1, size) <= _MOST_MULTISETS:
            yield from _grouped(grid.shape, labels, counts, where, size)
        else:
            yield from _one_by_one(grid, margins, labels, counts, where, size)


def _grouped(
    shape: Shape, labels: Sequence[Labels], counts: Sequence[Counts], where: Labels, size: int
) -> Iterator[Counts]:
    """All multisets of so many cells by their margins: two of a group without a common cell are a move."""
    chosen = np.array(list(combinations_with_replacement(range(len(where)), size)), dtype=np.intp).reshape(-1, size)
    keys = [np.sort(label[where][chosen], axis=1) for label in labels]
    allowed = np.ones(len(chosen), dtype=bool)
    for key, count in zip(keys, counts, strict=True):
        # the records that t holds at a level suffice if the (count + 1)-th of a sorted row lies at another level
        for first in range(size):
            last = np.minimum(first + count[key[:, first]], size)
            beyond = np.take_along_axis(key, np.minimum(last, size - 1)[:, None], axis=1)[:, 0]
            allowed &= (last == size) | (beyond != key[:, first])
    chosen = chosen[allowed]
    tables = np.zeros((len(chosen), len(where)), dtype=np.int64)
    np.add.at(tables, (np.arange(len(chosen))[:, None], chosen), 1)
    joint = np.hstack([key[allowed] for key in keys]) if keys else np.zeros((len(chosen), 1), dtype=np.intp)
    _, group = np.unique(joint, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(group.ravel()[order])) + 1):
        for gone in members:
            for came in members[~(tables[members] @ tables[gone]).astype(bool)]:
                move = np.zeros(shape, dtype=np.int64)
                move.flat[where] = tables[came] - tables[gone]
                yield move


def _one_by_one(
    grid: Grid, margins: Sequence[Totals], labels: Sequence[Labels], counts: Sequence[Counts], where: Labels, size: int
) -> Iterator[Counts]:
    """Where the multisets of cells are too many to hold; refused where finding the moves takes too long."""
    plain, sizes = [label.tolist() for label in labels], [count.tolist() for count in counts]
    appearing = _Appearing(grid, [margin.view for margin in margins], plain, where.tolist())
    for vanish in combinations_with_replacement(where.tolist(), size):
        appearing.count()
        if _within(vanish, plain, sizes):
            gone = Counter(vanish)
            for appear in appearing.beside(vanish):
                if not any(cell in gone for cell in appear):
                    move = np.zeros(grid.shape, dtype=np.int64)
                    for cell, count in gone.items():
                        move.flat[cell] -= count
                    for cell in appear:
                        move.flat[cell] += 1
                    yield move


def _within(vanish: Sequence[int], labels: Sequence[list[int]], counts: Sequence[list[int]]) -> bool:
    """Whether t holds enough records for these to vanish."""
    for label, count in zip(labels, counts, strict=True):
        used = Counter(label[cell] for cell in vanish)
        if any(many > count[level] for level, many in used.items()):
            return False
    return True


class _Appearing:
    """The multisets of cells that have the margins of a given one."""

    def __init__(self, grid: Grid, views: list[View], labels: list[list[int]], where: list[int]) -> None:
        self.shape, self.views, self.labels, self.where, self.steps = grid.shape, views, labels, where, 0
        self.allowed = set(where)
        common = common_part(views) if views else None
        self.shuffle = common is not None and join(grid.nothing, *views) == grid.full
        if self.shuffle:
            assert common is not None
            self.home = grid.labels(common).tolist()
            self.blocks = [
                [axis for axis, (depth, shared) in enumerate(zip(view, common, strict=True)) if depth > shared]
                for view in views[1:]
            ]

    def count(self) -> None:
        """Count a step, and refuse where they are too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise Refused(
                "the moves of this table are too many to list: release fewer features, or use another mechanism"
            )

    def beside(self, vanish: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Iterate over the multisets of allowed cells that have the margins of `vanish`: whichever way is shorter."""
        size = len(vanish)
        shuffled = self.shuffle and math.factorial(size) ** len(self.blocks) <= math.comb(len(self.where) + size, size)
        yield from self._shuffled(vanish) if shuffled else self._searched(vanish)

    def _shuffled(self, vanish: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Margins that are disjoint apart from a common part: permute the levels of each block but the first."""
        seen = set()
        fixed = [self.home[cell] for cell in vanish]
        codes = [np.unravel_index(cell, self.shape) for cell in vanish]
        orders = [
            order
            for order in permutations(range(len(vanish)))
            if all(fixed[i] == fixed[j] for i, j in enumerate(order))
        ]
        for choice in product(orders, repeat=len(self.blocks)):
            self.count()
            now = [list(code) for code in codes]
            for block, order in zip(self.blocks, choice, strict=True):
                for i, j in enumerate(order):
                    for axis in block:
                        now[i][axis] = codes[j][axis]
            appear = tuple(sorted(int(np.ravel_multi_index(cell, self.shape)) for cell in now))
            if appear not in seen:
                seen.add(appear)
                if all(cell in self.allowed for cell in appear):
                    yield appear

    def _searched(self, vanish: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Any margins: choose cells in order while the margins that are left allow it."""
        left = [Counter(label[cell] for cell in vanish) for label in self.labels]
        pairs = list(zip(self.labels, left, strict=True))
        near = [cell for cell in self.where if all(label[cell] in used for label, used in pairs)]

        def grow(start: int, missing: int) -> Iterator[tuple[int, ...]]:
            if missing == 0:
                yield ()
                return
            for i in range(start, len(near)):
                cell = near[i]
                self.count()
                if all(used[label[cell]] > 0 for label, used in pairs):
                    for label, used in pairs:
                        used[label[cell]] -= 1
                    for rest in grow(i, missing - 1):
                        yield (cell, *rest)
                    for label, used in pairs:
                        used[label[cell]] += 1

        yield from grow(0, len(vanish))


def four_cell_move(grid: Grid, margins: Sequence[Totals]) -> Counts | None:
    """Return two records that swap what lies beyond a separator of the margins, or None if none is found.

    Such a move changes no published margin. Whether t holds the records for it, `norms` decides.

    >>> chain = [Totals((1, 1, 0), np.full((2, 2, 1), 5)), Totals((0, 1, 1), np.full((1, 2, 2), 5))]
    >>> move = four_cell_move(Grid.flat((2, 2, 2)), chain)
    >>> int(abs(move).sum()), int(abs(move.sum(axis=2)).max()), int(abs(move.sum(axis=0)).max())
    (4, 0, 0)
    """
    if grid.nested:
        return None
    by_view = {margin.view: margin for margin in margins}
    for root in margins:
        tree = junction_order([root.view, *(other.view for other in margins if other is not root)])
        if tree is None or len(tree) < 2:
            return None
        beyond = _beyond(tree)
        for near, far in _starts(grid, by_view[tree[0]], by_view[tree[1]]):
            one, other = (_completed(grid.shape, [by_view[view] for view in tree[2:]], start) for start in (near, far))
            move = np.zeros(grid.shape, dtype=np.int64)
            for sign, left, right in ((-1, one, one), (-1, other, other), (1, one, other), (1, other, one)):
                move[tuple((right if axis in beyond else left)[axis] for axis in range(move.ndim))] += sign
            if np.abs(move).sum() == 4:
                return move
    return None


def cube_move(grid: Grid, margins: Sequence[Totals]) -> Counts | None:
    """Return ±1 by parity on two common levels of some features that no margin holds together, as few as possible.

    Every margin misses one of these features, and over it the signs cancel. AB, BC and AC: eight cells, four records.

    >>> views = ((1, 1, 0), (0, 1, 1), (1, 0, 1))
    >>> pairs = [Totals(view, np.full([2 if depth else 1 for depth in view], 8)) for view in views]
    >>> int(abs(cube_move(Grid.flat((2, 2, 2)), pairs)).sum())
    8
    """
    if grid.nested:
        return None
    levels = [np.arange(size) for size in grid.shape]
    for margin in margins:
        for axis in named(margin.view):
            counts = margin.down(grid, grid.alone(axis)).counts
            levels[axis] = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    varying = [axis for axis, choice in enumerate(levels) if len(choice) > 1]
    for size in range(1, len(varying) + 1):
        for chosen in combinations(varying, size):
            if not any({*chosen} <= {*named(margin.view)} for margin in margins):
                move = np.zeros(grid.shape, dtype=np.int64)
                for corner in product((0, 1), repeat=size):
                    side = dict(zip(chosen, corner, strict=True))
                    move[tuple(int(choice[side.get(axis, 0)]) for axis, choice in enumerate(levels))] = (-1) ** sum(
                        corner
                    )
                return move
    return None


def _starts(grid: Grid, parent: Totals, child: Totals) -> Iterator[tuple[Levels, Levels]]:
    """At each level of the separator, the two commonest cells of either margin: one pair for each record."""
    shared = meet(parent.view, child.view)
    sizes = parent.down(grid, shared).counts
    for flat in np.argsort(-sizes, axis=None, kind="stable")[:_MOST_LEVELS]:
        fixed = dict(zip(named(shared), map(int, np.unravel_index(flat, sizes.shape)), strict=True))
        left, right = _commonest(parent, fixed), _commonest(child, fixed)
        if len(left) == len(right) == 2:
            yield {**left[0], **right[0]}, {**left[1], **right[1]}


def _commonest(margin: Totals, fixed: Levels) -> list[Levels]:
    """The two cells of a margin with the largest counts among those with the fixed levels."""
    axes = named(margin.view)
    counts = np.asarray(margin.counts[tuple(fixed.get(axis, slice(None)) for axis in axes)])
    rest = [axis for axis in axes if axis not in fixed]
    order = np.argsort(-counts, axis=None, kind="stable")[:2]
    found = [np.unravel_index(flat, counts.shape) for flat in order if counts.ravel()[flat] > 0]
    return [{**fixed, **{axis: int(code) for axis, code in zip(rest, cell, strict=True)}} for cell in found]


def _completed(shape: Shape, margins: Sequence[Totals], start: Levels) -> Levels:
    """Complete a record along the junction tree, at the commonest cell of each margin (else at level 0)."""
    record = dict(start)
    for margin in margins:
        record.update(_commonest(margin, {axis: record[axis] for axis in named(margin.view) if axis in record})[0])
    return {axis: record.get(axis, 0) for axis in range(len(shape))}


def _beyond(tree: Sequence[View]) -> set[int]:
    """The features on the second margin's side of the edge between the first two margins of a junction tree."""
    side = {tree[0]: False, tree[1]: True}
    for view in tree[2:]:
        side[view] = side[max(side, key=lambda other: sum(meet(view, other)))]
    return {axis for view, far in side.items() if far for axis in named(view)} - {*named(tree[0])}
