"""The fitting problem as arrays: noisy values on a grid, the cells that may be filled, and the
totals to be met.

Margins are `Totals` of a `Grid`: one array a margin, with an axis for each feature that it names.
How a problem is solved is in the modules beside this one; nothing here knows what a schema or a
release is.
"""

import bisect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.margins import (
    Chain,
    Counts,
    Grid,
    Mask,
    Totals,
    View,
    junction_order,
    meet,
)

Floats = NDArray[np.float64]
Result = TypeVar("Result")

# noisy values are read on multiples of 2^-24, about 6e-8; finer where they are whole numbers
FRACTION_BITS = 24
CELLS_IN_CACHE = 1 << 16  # what is handled at once where all cells are passed through
SLABS_FOR_ALL = 32  # from so many slabs on, two million cells, all cores work on them
CELLS_A_TOTAL = 200  # with so many cells for each total, totals are few
WORD_BITS = 58  # what integer costs may use of a word: five bits are left for sums of a few of them


class Infeasible(InputError):
    """No nonnegative table has the totals that were given.

    >>> pose(Grid.flat((2,)), np.zeros(2), [Totals((0,), np.array([-1]))])
    Traceback (most recent call last):
    semidp.publish.fitting.problem.Infeasible: no table of nonnegative counts has ...
    """

    def __init__(self) -> None:
        super().__init__(
            "no table of nonnegative counts has the published totals: check the totals and the"
            " cells declared impossible"
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Find the table closest to `noisy` that is zero outside `allowed` and has all `totals`.

    A margin cell holds an allowed cell if and only if its total is positive: `pose` sees to that.
    """

    grid: Grid
    noisy: Floats | Counts
    allowed: Mask
    totals: tuple[Totals, ...]

    @property
    def views(self) -> list[View]:
        """The margins whose totals are given."""
        return [total.view for total in self.totals]

    @property
    def common(self) -> View:
        """View that all margins share: the problem splits into one part for each of its cells."""
        return meet(*self.views)

    @cached_property
    def values(self) -> Floats:
        """The noisy values, with minus infinity in the cells that must stay zero."""
        values = self.noisy.astype(np.float64)
        if not self.all_allowed:
            values[~self.allowed] = -np.inf
        return values

    @cached_property
    def bits(self) -> int:
        """The number of binary digits after the point that integer costs keep."""
        if self.noisy.dtype.kind == "i":
            return 0
        if bool((self.noisy == np.floor(self.noisy)).all()):
            return 0
        largest_value = float(np.abs(self.noisy).max())
        records = float(self.totals[0].counts.sum())
        _, exponent = math.frexp(max(largest_value, records, 1.0))
        return max(0, min(FRACTION_BITS, WORD_BITS - exponent))

    @cached_property
    def units(self) -> Counts:
        """The noisy values as whole multiples of 2^-bits."""
        if self.noisy.dtype.kind == "i":
            return self.noisy.astype(np.int64, copy=False)
        scaled = np.ldexp(self.noisy, self.bits)
        return np.rint(scaled).astype(np.int64)

    @cached_property
    def matrix(self) -> Any:
        """Sums as a sparse matrix: a column for each allowed cell and a row for each positive
        total, in the order of the arrays.
        """
        return self.grid.operator(self.views, self.allowed).tocsc()

    @property
    def positive_totals(self) -> Floats:
        """Positive totals, one for each row of `matrix`."""
        positive = [total.counts[total.counts > 0] for total in self.totals]
        return np.concatenate(positive).astype(np.float64)

    @property
    def coarse(self) -> bool:
        """Whether the totals are few."""
        return has_few_totals(self.grid, self.views)

    @property
    def in_doubt(self) -> bool:
        """Whether totals that agree with each other may still have no table."""
        inhabited = self.grid.find_inhabited_cells(None, self.totals)
        closed = ~self.allowed if inhabited is None else inhabited & ~self.allowed
        return junction_order(self.views) is None or bool(closed.any())

    @cached_property
    def slabs(self) -> "list[Block]":
        """Blocks of the table that follow each other in memory and fit a processor's cache."""
        shape = self.grid.shape
        inner = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        # the first feature whose leaves hold few enough cells each
        axis = next(axis for axis, cells in enumerate(inner) if cells <= CELLS_IN_CACHE)
        leaves = max(1, CELLS_IN_CACHE // inner[axis])
        after = tuple((0, size) for size in shape[axis + 1 :])
        blocks = []
        for before in np.ndindex(*shape[:axis]):
            # One leaf of each feature before the axis, a few along it, and all of those after it.
            single = [(leaf, leaf + 1) for leaf in before]
            for begin in range(0, shape[axis], leaves):
                end = min(begin + leaves, shape[axis])
                ranges = (*single, (begin, end), *after)
                blocks.append(Block(self.grid, ranges))
        return blocks

    def each_slab(self, work: "Callable[[Block], Result]") -> "Iterator[tuple[Block, Result]]":
        """Yield every slab in order, with the result of `work` on it. Many slabs are worked on by
        all cores.
        """
        if len(self.slabs) < SLABS_FOR_ALL:
            yield from ((block, work(block)) for block in self.slabs)
            return
        workers = min(os.cpu_count() or 1, 8)
        assert self.all_allowed in (True, False)  # worked out once, before the threads ask
        with ThreadPoolExecutor(workers) as pool:
            # A few slabs at a time: the pool would else start them all and hold every result.
            for start in range(0, len(self.slabs), 4 * workers):
                some = self.slabs[start : start + 4 * workers]
                yield from zip(some, pool.map(work, some), strict=True)

    def subtract(
        self,
        sums: Sequence[NDArray[Any]],
        views: Sequence[View],
        table: "Callable[[Block], NDArray[Any]]",
    ) -> None:
        """Subtract the margins of a table, given slab by slab, from sums. The order does not depend
        on the number of cores.
        """

        def margins(block: Block) -> list[NDArray[Any]]:
            return block.margins(table(block), views)

        for block, parts in self.each_slab(margins):
            for view, total, part in zip(views, sums, parts, strict=True):
                total[block.margin_slices(view)] -= part

    def lift_cells(
        self, levels: Sequence[Floats], block: "Block | None" = None, share: float = 1.0
    ) -> Floats:
        """Return y + Aᵀθ in all cells or in a block: a noisy value, or a share of it, plus the
        levels of its margins.

        Minus infinity in the cells that must stay zero.
        """
        block = self.full_block if block is None else block
        cells = block.margin_slices(self.grid.full)
        lifted: Floats = self.noisy[cells] * np.float64(share)
        if not self.all_allowed:
            lifted[~self.allowed[cells]] = -np.inf
        for view, level in zip(self.views, levels, strict=True):
            lifted += block.grid.spread(level[block.margin_slices(view)], view)
        return lifted

    def nearest(
        self,
        levels: Sequence[Floats],
        block: "Block | None" = None,
        share: float = 1.0,
        whole: bool = False,
    ) -> Floats:
        """Return max(0, y + Aᵀθ) in all cells or in a block, to the nearest integers if `whole`."""
        lifted = self.lift_cells(levels, block, share)
        if whole:
            np.rint(lifted, out=lifted)
        return np.maximum(lifted, 0.0, out=lifted)

    @cached_property
    def all_allowed(self) -> bool:
        """Whether every cell may be filled."""
        return bool(self.allowed.all())

    @cached_property
    def full_block(self) -> "Block":
        """All cells as one block."""
        ranges = tuple((0, size) for size in self.grid.shape)
        return Block(self.grid, ranges)

    def missing(self, table: NDArray[Any]) -> list[NDArray[Any]]:
        """Return each total less the sums of a table."""
        return [total.counts - self.grid.sum(table, total.view) for total in self.totals]

    def loss(self, table: NDArray[Any]) -> float:
        """Return the sum of squared differences from the noisy values."""

        def squares(block: Block) -> float:
            cells = block.margin_slices(self.grid.full)
            difference = (table[cells] - self.noisy[cells]).astype(np.float64)
            return float(np.square(difference).sum())

        return sum(part for _, part in self.each_slab(squares))

    def fill_allowed(self, counts: NDArray[Any]) -> Counts:
        """Return the table with these counts in the allowed cells, in the order of the array."""
        table = np.zeros(self.grid.shape, dtype=np.int64)
        table[self.allowed] = counts
        return table

    def parts(self, levels: Sequence[Floats]) -> "Iterator[tuple[Block, Problem, list[Floats]]]":
        """Yield the block, the problem and the levels of each cell of the view that all margins
        share.
        """
        for position in np.ndindex(*self.grid.compute_margin_shape(self.common)):
            block = Block.from_margin_cell(self.grid, self.common, position)
            totals = []
            for total in self.totals:
                counts = total.counts[block.margin_slices(total.view)]
                totals.append(Totals(total.view, counts))
            cells = block.margin_slices(self.grid.full)
            part = Problem(block.grid, self.noisy[cells], self.allowed[cells], tuple(totals))
            part_levels = []
            for view, level in zip(self.views, levels, strict=True):
                part_levels.append(level[block.margin_slices(view)])
            yield block, part, part_levels


@dataclass(frozen=True, eq=False)
class Block:
    """The cells of a grid below one cell of a margin: a range of leaves along each feature.

    >>> counties = Grid((Chain(3, ((0, 2), (0, 1, 2))), Chain.flat(2)))
    >>> block = Block.from_margin_cell(counties, (1, 0), (0,))
    >>> block.grid.shape, block.margin_slices((2, 1)), block.margin_slices((1, 0))
    ((2, 2), (slice(0, 2, None), slice(0, 2, None)), (slice(0, 1, None),))
    """

    whole: Grid
    ranges: tuple[tuple[int, int], ...]
    _known: dict[View, tuple[slice, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_margin_cell(cls, grid: Grid, view: View, position: tuple[int, ...]) -> "Block":
        """Return the cells below the margin cell at `position`."""
        ranges = []
        nodes = iter(position)
        for chain, depth in zip(grid.chains, view, strict=True):
            # Depth 0 does not name the feature: one node holds all its leaves.
            starts, node = (chain.starts[depth - 1], next(nodes)) if depth else ((0,), 0)
            is_last = node + 1 == len(starts)
            end = chain.leaves if is_last else starts[node + 1]
            ranges.append((starts[node], end))
        return cls(grid, tuple(ranges))

    @cached_property
    def grid(self) -> Grid:
        """The block as a grid with every depth of the whole one."""
        chains = []
        for chain, (begin, end) in zip(self.whole.chains, self.ranges, strict=True):
            if end - begin == chain.leaves:
                chains.append(chain)
                continue
            inside = [row[_inside(row, begin, end)] for row in chain.starts]
            starts = []
            for row in inside:
                starts.append(tuple(max(start - begin, 0) for start in row))
            chains.append(Chain(end - begin, tuple(starts)))
        return Grid(tuple(chains))

    def margin_slices(self, view: View) -> tuple[slice, ...]:
        """Slices of the block in the array of a margin."""
        if view not in self._known:
            slices = []
            for chain, depth, ends in zip(self.whole.chains, view, self.ranges, strict=True):
                if depth:
                    slices.append(_inside(chain.starts[depth - 1], *ends))
            self._known[view] = tuple(slices)
        return self._known[view]

    def margins(self, table: NDArray[Any], views: Sequence[View]) -> list[NDArray[Any]]:
        """Return margins of a table of this block."""
        return [self.grid.sum(table, view) for view in views]


def _inside(starts: tuple[int, ...], begin: int, end: int) -> slice:
    """Slice of the nodes that hold the leaves from `begin` to `end`."""
    first = bisect.bisect_right(starts, begin) - 1
    return slice(first, bisect.bisect_left(starts, end))


def has_few_totals(grid: Grid, views: Sequence[View]) -> bool:
    """Whether totals are few. Then a pass through the cells costs more than anything done for each
    total.
    """
    totals = sum(grid.count_margin_cells(view) for view in views)
    return grid.count_margin_cells(grid.full) >= CELLS_A_TOTAL * totals


def pose(
    grid: Grid, noisy: Floats | Counts, totals: Sequence[Totals], possible: Mask | None = None
) -> Problem:
    """Return the problem, with the cells below a total of zero closed.

    Raises
    ------
    Infeasible
        Where a total is negative, two margins contradict each other in what they share, or a
        positive total has no cell left that could hold it.

    Examples
    --------
    >>> pose(Grid.flat((2, 2)), np.zeros((2, 2)), [Totals((1, 0), np.array([[0], [3]]))]).allowed
    array([[False, False],
           [ True,  True]])
    """
    for number, one in enumerate(totals):
        if (one.counts < 0).any():
            raise Infeasible
        for other in totals[:number]:
            shared = meet(one.view, other.view)
            ones = one.sum_to_view(grid, shared).counts
            if not np.array_equal(ones, other.sum_to_view(grid, shared).counts):
                raise Infeasible
    inhabited = grid.find_inhabited_cells(possible, totals)
    if inhabited is None:
        return Problem(grid, noisy, np.ones(grid.shape, dtype=bool), tuple(totals))
    for total in totals:
        held = grid.sum(inhabited.astype(np.int64), total.view) > 0
        if ((total.counts > 0) & ~held).any():
            raise Infeasible
    return Problem(grid, noisy, inhabited, tuple(totals))
