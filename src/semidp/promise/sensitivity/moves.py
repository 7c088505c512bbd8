"""Elements of S_a: all of them for a small dataspace, one at a time for a large one, and the
simplest ones of any.

Closed forms are in `patterns`, and are tested against these lists.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import combinations, combinations_with_replacement, product

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import (
    Counts,
    Grid,
    Mask,
    Shape,
    Totals,
    View,
    junction_order,
    list_axes,
    meet,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.listed_tables import cells, fiber

_MOST_WORK = 500_000_000  # pairs of tables times cells: a few seconds
_AT_ONCE = 200_000  # pairs held at once
_MOST_LEVELS = 20  # levels of a separator that are tried for a four-cell move, commonest first
_MOST_MULTISETS = 50_000  # of cells, held at once
_MOST_STEPS = 3_000_000  # of a search for moves of a larger table: some seconds

Levels = dict[int, int]
Labels = NDArray[np.intp]


@frozen(eq=False)
class ListedTables:
    """Every table of a small D_t, each with its sums over the features that are not released."""

    tables: Counts = field(repr=False)
    released: Counts = field(repr=False)
    shape: Shape

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace, released: View) -> "ListedTables | None":
        """List a small dataspace; None if it is too large."""
        listed = fiber(dataspace)
        if listed is None:
            return None
        tables, cells_each = listed.shape
        if tables**2 * cells_each > _MOST_WORK:
            return None
        grid = dataspace.schema.grid
        flat = grid.labels(released)[cells(dataspace)]
        # A matrix of ones that sums the listed cells into the released ones.
        into = np.zeros((cells_each, grid.count_margin_cells(released)), dtype=np.int64)
        into[np.arange(cells_each), flat] = 1
        return cls(listed, listed @ into, grid.compute_margin_shape(released))

    @property
    def only(self) -> Counts | None:
        """The released table, if the published statistics allow a single one."""
        same = (self.released == self.released[0]).all()
        return self.released[0].reshape(self.shape) if same else None

    def moves(self, a: int) -> Iterator[Counts]:
        """Yield each distinct difference of two tables at most a records apart; zero is left
        out.
        """
        numbers = _encode_tables(self.released)
        seen = {bytes(numbers[0].nbytes)}  # the number of no difference
        for tables, near in self._pairs(a):
            differences = numbers[near] - numbers[tables]
            # Of equal differences the first; those of one table in the order of their numbers.
            order = np.lexsort((tables, *differences.T[::-1]))
            changes = np.diff(differences[order], axis=0, prepend=0)
            changed = np.asarray(changes.any(axis=1))
            changed[:1] = True
            firsts = order[changed]
            digits = differences[firsts].T[::-1]
            for pair in firsts[np.lexsort((*digits, tables[firsts]))]:
                number = differences[pair].tobytes()
                if number not in seen:
                    seen.add(number)
                    move = self.released[near[pair]] - self.released[tables[pair]]
                    yield move.reshape(self.shape)

    def norms(self, a: int) -> tuple[Norms, Counts | None]:
        """Return the exact norms of S_a and a move that attains Δ2."""
        best, worst = Norms(0, 0, 0), None
        for tables, near in self._pairs(a):
            differences = self.released[near] - self.released[tables]
            norms = Norms.from_vectors(differences)
            if norms.l2_squared > best.l2_squared:
                squares = (differences**2).sum(axis=1)
                worst = differences[squares.argmax()].reshape(self.shape)
            best = best.most(norms)
        return best, worst

    def _pairs(self, a: int) -> Iterator[tuple[Labels, Labels]]:
        """Yield pairs of tables at most a records apart as two arrays of numbers, for some tables
        at a time.
        """
        count = len(self.tables)
        # Two tables of n records are at most 2n apart: short numbers are compared fastest.
        largest = 2 * int(self.tables.sum(axis=1).max(initial=0))
        columns = self.tables.T.astype(np.int16 if largest < 2**15 else np.int64, order="C")
        rows = max(1, _AT_ONCE // max(count, 1))
        for start in range(0, count, rows):
            some = columns[:, start : start + rows, None]
            distances = np.zeros((some.shape[1], count), dtype=columns.dtype)
            for column, counts in zip(columns, some, strict=True):
                distances += np.abs(column - counts)
            tables, near = np.nonzero(distances <= 2 * a)
            yield tables + start, near


def _encode_tables(tables: Counts) -> Counts:
    """Encode each table as a few whole numbers, linearly. Differences of codes stand for
    differences of tables, and sort alike.

    Differences of counts up to c are the digits of a number of base 2c + 1, as many in each number
    as 64 bits hold.

    >>> _encode_tables(np.array([[0, 2], [1, 0]])).ravel().tolist()
    [2, 5]
    """
    base = 2 * int(tables.max(initial=0)) + 1
    bits_each = math.log2(max(base, 2))
    digits = max(1, int(62 / bits_each))
    numbers = []
    for start in range(0, tables.shape[1], digits):
        some = tables[:, start : start + digits]
        powers = [base**place for place in range(some.shape[1])]
        weights = np.array(powers[::-1], dtype=np.int64)
        numbers.append(some @ weights)
    return np.stack(numbers, axis=1)


def moves(grid: Grid, margins: Sequence[Totals], domain: Mask | None, a: int) -> Iterator[Counts]:
    """Yield the tables with zero margins and positive part at most a that t allows, smallest first.

    For decomposable margins t allows a move iff each margin of its negative part is at most t.
    Records vanish in every combination of at most a cells; others with the same margins appear.

    >>> both = [
    ...     Totals((1, 0), np.array([[2], [2], [2]])),
    ...     Totals((0, 1), np.array([[2, 2, 2]])),
    ... ]
    >>> (
    ...     len(list(moves(Grid.flat((3, 3)), both, None, 2))),
    ...     len(list(moves(Grid.flat((3, 3)), both, None, 3))),
    ... )
    (18, 30)
    """
    if domain is None:
        where = np.arange(np.prod(grid.shape))
    else:
        where = np.flatnonzero(domain)
    labels = [grid.labels(margin.view) for margin in margins]
    counts = [margin.counts.ravel() for margin in margins]
    for size in range(1, a + 1):
        if math.comb(len(where) + size - 1, size) <= _MOST_MULTISETS:
            yield from _match_multisets(grid.shape, labels, counts, where, size)
        else:
            yield from _one_by_one(grid.shape, labels, counts, where, size)


def _match_multisets(
    shape: Shape, labels: Sequence[Labels], counts: Sequence[Counts], where: Labels, size: int
) -> Iterator[Counts]:
    """Yield the moves of `size` records from a list of all multisets of so many cells. Two
    multisets with the same margins and no common cell are a move.
    """
    multisets = list(combinations_with_replacement(range(len(where)), size))
    chosen = np.array(multisets, dtype=np.intp).reshape(-1, size)
    keys = [np.sort(label[where][chosen], axis=1) for label in labels]
    allowed = np.ones(len(chosen), dtype=bool)
    for key, count in zip(keys, counts, strict=True):
        # the records that t holds at a level suffice if the (count + 1)-th of a sorted row lies at
        # another level
        for first in range(size):
            level = key[:, first]
            last = np.minimum(first + count[level], size)
            column = np.minimum(last, size - 1)[:, None]
            beyond = np.take_along_axis(key, column, axis=1)[:, 0]
            allowed &= (last == size) | (beyond != level)
    chosen = chosen[allowed]
    rows = np.arange(len(chosen))[:, None]
    tables = np.zeros((len(chosen), len(where)), dtype=np.int64)
    np.add.at(tables, (rows, chosen), 1)
    joint = np.zeros((len(chosen), 1), dtype=np.intp)
    if keys:
        joint = np.hstack([key[allowed] for key in keys])
    for members in _equal_rows(joint):
        for gone in members:
            # Members with a common cell would be the same move of fewer records.
            overlap = tables[members] @ tables[gone]
            for came in members[~overlap.astype(bool)]:
                move = np.zeros(shape, dtype=np.int64)
                move.flat[where] = tables[came] - tables[gone]
                yield move


def _equal_rows(rows: Labels) -> list[Labels]:
    """Numbers of the rows of a matrix, grouped by equal rows."""
    _, group = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    ends = np.flatnonzero(np.diff(group.ravel()[order])) + 1
    return np.split(order, ends)


def _one_by_one(
    shape: Shape, labels: Sequence[Labels], counts: Sequence[Counts], where: Labels, size: int
) -> Iterator[Counts]:
    """Yield the moves of `size` records where the multisets of cells are too many to hold; refuse
    if finding them takes too long.
    """
    level_of = [label.tolist() for label in labels]
    held = [count.tolist() for count in counts]
    steps_left = iter(range(_MOST_STEPS))

    def count_step() -> None:
        if next(steps_left, None) is None:
            raise Refused(
                "the moves of this table are too many to list: release fewer features, or use"
                " another mechanism"
            )

    def list_multisets(missing: Sequence[Counter[int]]) -> Iterator[tuple[int, ...]]:
        """Yield the multisets of cells that have what is missing of every margin: cells in order,
        as long as the margins allow it.
        """
        pairs = list(zip(level_of, missing, strict=True))

        def fits(cell: int) -> bool:
            return all(left[levels[cell]] > 0 for levels, left in pairs)

        reached = np.ones(len(where), dtype=bool)
        for label, left in zip(labels, missing, strict=True):
            reached &= np.isin(label[where], list(left))
        near = where[reached].tolist()

        def grow(start: int, records: int) -> Iterator[tuple[int, ...]]:
            if not records:
                yield ()
                return
            for place in range(start, len(near)):
                cell = near[place]
                count_step()
                if fits(cell):
                    for levels, left in pairs:
                        left[levels[cell]] -= 1
                    for later in grow(place, records - 1):
                        yield (cell, *later)
                    for levels, left in pairs:
                        left[levels[cell]] += 1

        return grow(0, size)

    for vanish in combinations_with_replacement(where.tolist(), size):
        count_step()
        used = [Counter(map(levels.__getitem__, vanish)) for levels in level_of]
        if not all(map(_holds_records, held, used)):
            continue
        for appear in list_multisets(used):
            if not set(appear).isdisjoint(vanish):
                continue
            move = np.zeros(shape, dtype=np.int64)
            np.subtract.at(move.reshape(-1), list(vanish), 1)
            np.add.at(move.reshape(-1), list(appear), 1)
            yield move


def _holds_records(held: Sequence[int], used: Counter[int]) -> bool:
    """Whether a margin of t holds the records that vanish."""
    return all(records <= held[level] for level, records in used.items())


def four_cell_move(grid: Grid, margins: Sequence[Totals]) -> Counts | None:
    """Return a move of two records that swap what lies beyond a separator of the margins; None if
    none is found.

    Such a move changes no published margin. Whether t holds the records for it, `norms` decides.

    >>> chain = [
    ...     Totals((1, 1, 0), np.full((2, 2, 1), 5)),
    ...     Totals((0, 1, 1), np.full((1, 2, 2), 5)),
    ... ]
    >>> move = four_cell_move(Grid.flat((2, 2, 2)), chain)
    >>> int(abs(move).sum()), int(abs(move.sum(axis=2)).max()), int(abs(move.sum(axis=0)).max())
    (4, 0, 0)
    """
    if grid.has_nested_feature:
        return None
    by_view = {margin.view: margin for margin in margins}
    for root in margins:
        other_views = [other.view for other in margins if other is not root]
        tree = junction_order([root.view, *other_views])
        if tree is None or len(tree) < 2:
            return None
        beyond = _find_far_features(tree)
        later = [by_view[view] for view in tree[2:]]
        for near, far in _starts(grid, by_view[tree[0]], by_view[tree[1]]):
            one = _complete_record(grid.shape, later, near)
            other = _complete_record(grid.shape, later, far)
            move = _swap(grid.shape, one, other, beyond)
            if np.abs(move).sum() == 4:
                return move
    return None


def _swap(shape: Shape, one: Levels, other: Levels, beyond: Set[int]) -> Counts:
    """Difference of tables where two records swap their levels of the features `beyond`."""
    move = np.zeros(shape, dtype=np.int64)
    vanish = [(one, one), (other, other)]
    appear = [(one, other), (other, one)]
    for sign, records in ((-1, vanish), (1, appear)):
        for left, right in records:
            cell = [(right if axis in beyond else left)[axis] for axis in range(len(shape))]
            move[tuple(cell)] += sign
    return move


def cube_move(grid: Grid, margins: Sequence[Totals]) -> Counts | None:
    """Return a move of ±1 by parity: on two common levels each of a few features that no margin
    names together.

    Every margin misses one of these features, and over it the signs cancel. AB, BC and AC: eight
    cells, four records.

    >>> views = ((1, 1, 0), (0, 1, 1), (1, 0, 1))
    >>> pairs = [Totals(view, np.full([2 if depth else 1 for depth in view], 8)) for view in views]
    >>> int(abs(cube_move(Grid.flat((2, 2, 2)), pairs)).sum())
    8
    """
    if grid.has_nested_feature:
        return None
    levels = [np.arange(size) for size in grid.shape]
    for margin in margins:
        for axis in list_axes(margin.view):
            counts = margin.sum_to_view(grid, grid.build_feature_view(axis)).counts
            commonest_first = np.argsort(-counts, kind="stable")
            levels[axis] = commonest_first[: int((counts > 0).sum())]
    varying = [axis for axis, choice in enumerate(levels) if len(choice) > 1]
    published = [{*list_axes(margin.view)} for margin in margins]
    for size in range(1, len(varying) + 1):
        for chosen in combinations(varying, size):
            if any({*chosen} <= axes for axes in published):
                continue
            move = np.zeros(grid.shape, dtype=np.int64)
            for corner in product((0, 1), repeat=size):
                side = dict(zip(chosen, corner, strict=True))
                cell = [int(choice[side.get(axis, 0)]) for axis, choice in enumerate(levels)]
                move[tuple(cell)] = (-1) ** sum(corner)
            return move
    return None


def _starts(grid: Grid, parent: Totals, child: Totals) -> Iterator[tuple[Levels, Levels]]:
    """Pairs of records to start a swap from: at each level of the separator, the two commonest
    cells of either margin.
    """
    shared = meet(parent.view, child.view)
    sizes = parent.sum_to_view(grid, shared).counts
    for flat in np.argsort(-sizes, axis=None, kind="stable")[:_MOST_LEVELS]:
        level = [int(code) for code in np.unravel_index(flat, sizes.shape)]
        fixed = dict(zip(list_axes(shared), level, strict=True))
        left, right = _commonest(parent, fixed), _commonest(child, fixed)
        if len(left) == len(right) == 2:
            yield {**left[0], **right[0]}, {**left[1], **right[1]}


def _commonest(margin: Totals, fixed: Levels) -> list[Levels]:
    """Two cells of a margin with the largest counts, among those with the fixed levels."""
    axes = list_axes(margin.view)
    window = tuple(fixed.get(axis, slice(None)) for axis in axes)
    counts = np.asarray(margin.counts[window])
    open_axes = [axis for axis in axes if axis not in fixed]
    cells = []
    for flat in np.argsort(-counts, axis=None, kind="stable")[:2]:
        if counts.ravel()[flat] > 0:
            codes = [int(code) for code in np.unravel_index(flat, counts.shape)]
            cells.append({**fixed, **dict(zip(open_axes, codes, strict=True))})
    return cells


def _complete_record(shape: Shape, margins: Sequence[Totals], start: Levels) -> Levels:
    """Complete a record along the junction tree: at the commonest cell of each margin, or else at
    level 0.
    """
    record = dict(start)
    for margin in margins:
        fixed = {axis: record[axis] for axis in list_axes(margin.view) if axis in record}
        record.update(_commonest(margin, fixed)[0])
    return {axis: record.get(axis, 0) for axis in range(len(shape))}


def _find_far_features(tree: Sequence[View]) -> set[int]:
    """Features on the second margin's side of the edge between the first two margins of a junction
    tree.
    """
    side = {tree[0]: False, tree[1]: True}
    for view in tree[2:]:
        # A later margin hangs on the earlier one with which it shares most.
        nearest = max(side, key=lambda other: sum(meet(view, other)))
        side[view] = side[nearest]
    far = {axis for view, is_far in side.items() if is_far for axis in list_axes(view)}
    return far - {*list_axes(tree[0])}
