"""The fitting problem as arrays, and its real-valued fit: the projection onto the nonnegative
tables with given totals.

Margins are `Totals` of a `Grid`: one array per margin, with an axis for each feature that it names.
Nothing here knows what a schema or a release is. The distance of the projection is the lower bound
for integer fits, which start from its multipliers.
"""

import bisect
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import (
    Chain,
    Counts,
    Grid,
    Mask,
    Totals,
    View,
    join,
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
    """No nonnegative table has the given totals.

    >>> pose(Grid.flat((2,)), np.zeros(2), [Totals((0,), np.array([-1]))])
    Traceback (most recent call last):
    semidp.publish.fitting.real.Infeasible: no table of nonnegative counts has ...
    """

    def __init__(self) -> None:
        super().__init__(
            "no table of nonnegative counts has the published totals: check the totals and the"
            " cells declared impossible"
        )


@frozen(slots=False, eq=False)
class Problem:
    """Find the table closest to `noisy` that is zero outside `allowed` and has all `totals`.

    A margin cell holds an allowed cell if and only if its total is positive: `pose` ensures this.
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
        """Contiguous blocks of the table that fit a processor's cache."""
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


@frozen(slots=False, eq=False)
class Block:
    """The cells of a grid below one cell of a margin: a range of leaves along each feature.

    >>> counties = Grid((Chain(3, ((0, 2), (0, 1, 2))), Chain.flat(2)))
    >>> block = Block.from_margin_cell(counties, (1, 0), (0,))
    >>> block.grid.shape, block.margin_slices((2, 1)), block.margin_slices((1, 0))
    ((2, 2), (slice(0, 2, None), slice(0, 2, None)), (slice(0, 1, None),))
    """

    whole: Grid
    ranges: tuple[tuple[int, int], ...]
    _known: dict[View, tuple[slice, ...]] = field(factory=dict, repr=False)

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
        If a total is negative, two margins contradict each other where they overlap, or a
        positive total has no cell left.

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


# the residual of a sum, relative to the largest total (and a little to the largest value)
TOLERANCE = 1e-12
GOOD = 1e-9  # a residual that counts as met; beyond it the totals may contradict each other
FIRST_STEPS = 15  # Newton steps before the detour over smaller noise
STAGE_STEPS = 60  # Newton steps at each stage of the detour
STAGE = 4.0  # how much larger the noise is from one stage to the next
# steps of a line search, and the share of its first slope at which it may end
LINE_STEPS, FLAT = 30, 0.1
GRADIENT_STEPS = 60  # conjugate gradient steps before a factorisation
# squared relative residuals at which they end early, or end well
EXACT_ENOUGH, USEFUL = 1e-20, 1e-8
DENSE = 0.1  # the share of entries that are not zero from which on the factorisation is dense
LEVEL_STEPS = 200  # steps to a water level; about ten are usual


@frozen(slots=False, eq=False)
class RealFit:
    """Multipliers of the closest real table, and a lower bound on the squared distance of every
    table.

    `residual` says how far the sums are from their totals, relative to the largest value.
    """

    problem: Problem
    levels: tuple[Floats, ...]
    bound: float
    residual: float

    @cached_property
    def table(self) -> Floats:
        """The closest real table, max(0, y + Aᵀθ)."""
        return self.problem.nearest(self.levels)

    @property
    def has_met_totals(self) -> bool:
        """Whether the sums are met up to rounding."""
        return self.residual <= GOOD


def project(problem: Problem, deadline: float = math.inf, progress: Progress = silent) -> RealFit:
    """Return the closest nonnegative real table, by a semismooth Newton method on the multipliers
    of the sums.

    With multipliers θ the closest table is x = max(0, y + Aᵀθ), where A takes the sums, and θ
    solves A x(θ) = t. The bound is the Lagrangian ‖x - y‖² + 2 θ·(t - A x), which is below every
    feasible loss for every θ, converged or not. If the noise dwarfs the totals, Newton's method
    starts from smaller noise and lets it grow.

    Parameters
    ----------
    problem
        The problem.
    deadline
        The `time.monotonic()` at which to stop and return the current fit.
    progress
        Called at each step.

    Examples
    --------
    >>> from semidp.publish.fitting.real import pose
    >>> twos = [Totals((1, 0), np.array([[2], [2]])), Totals((0, 1), np.array([[2, 2]]))]
    >>> project(pose(Grid.flat((2, 2)), np.array([[3.0, 0.0], [0.0, 3.0]]), twos)).table.round(6)
    array([[2., 0.],
           [0., 2.]])
    """
    solver = Newton(problem, deadline, progress)
    first = solver.run(1.0, None, FIRST_STEPS)
    if first.has_met_totals or len(problem.totals) == 1:
        return first
    share = min(1.0, solver.largest_total / solver.largest_value)
    stage = solver.run(share, None, STAGE_STEPS)
    while share < 1.0:
        grown = min(1.0, share * STAGE)
        # Levels grow about in proportion to the noise, which gives a start near the next solution.
        start = [level * (grown / share) for level in stage.levels]
        stage, share = solver.run(grown, start, STAGE_STEPS), grown
    # Only a linear program tells slow convergence from totals that no table has.
    if not stage.has_met_totals and problem.in_doubt and not feasible(problem, deadline):
        raise Infeasible
    return stage


def approach(problem: Problem, progress: Progress = silent) -> RealFit:
    """Return the projection after a few Newton steps. Its bound holds; its sums may be missed.

    >>> from semidp.publish.fitting.real import pose
    >>> approach(pose(Grid.flat((2,)), np.array([2.0, 0.0]), [Totals((0,), np.array([4]))])).table
    array([3., 1.])
    """
    return Newton(problem, math.inf, progress).run(1.0, None, FIRST_STEPS)


def lagrangian(problem: Problem, levels: Sequence[Floats], whole: bool = False) -> float:
    """Return the lower bound ‖x - y‖² + 2 θ·(t - A x) of the loss, where x minimizes it: x = max(0,
    y + Aᵀθ).

    For every θ it is below the loss of every table with these totals. Over whole numbers the best x
    is rounded to the nearest, and the bound is a little higher.

    >>> from semidp.publish.fitting.real import pose
    >>> problem = pose(Grid.flat((2,)), np.array([2.0, 0.0]), [Totals((0,), np.array([4]))])
    >>> lagrangian(problem, [np.array([0.5])])  # not converged, so below the loss of 2
    1.5
    >>> lagrangian(
    ...     pose(Grid.flat((2,)), np.zeros(2), [Totals((0,), np.array([1]))]),
    ...     [np.array([0.5])],
    ...     whole=True,
    ... )
    1.0
    """
    bound = 0.0
    missing = [total.counts.astype(np.float64) for total in problem.totals]

    def part(block: Block) -> tuple[float, list[Floats]]:
        table = problem.nearest(levels, block, whole=whole)
        cells = block.margin_slices(problem.grid.full)
        squares = float(np.square(table - problem.noisy[cells]).sum())
        return squares, block.margins(table, problem.views)

    for block, (squares, margins) in problem.each_slab(part):
        bound += squares
        for view, total, margin in zip(problem.views, missing, margins, strict=True):
            total[block.margin_slices(view)] -= margin
    return max(0.0, bound + 2 * _dot(levels, missing))


def lagrangians(problem: Problem, levels: Sequence[Floats]) -> Floats:
    """Return the bound of `lagrangian` for each of several tables. The first feature of the problem
    numbers the tables.

    >>> from semidp.publish.fitting.real import pose
    >>> two = pose(
    ...     Grid.flat((2, 2)),
    ...     np.array([[2.0, 0.0], [2.0, 2.0]]),
    ...     [Totals((1, 0), np.array([4, 4]))],
    ... )
    >>> lagrangians(two, [np.array([1.0, 0.0])])
    array([2., 0.])
    """
    table = problem.nearest(levels)
    squares = np.square(table - problem.noisy)
    bounds = squares.reshape(len(table), -1).sum(axis=1)
    for level, missing in zip(levels, problem.missing(table), strict=True):
        products = (level * missing).reshape(len(table), -1)
        bounds += 2 * products.sum(axis=1)
    return np.asarray(np.maximum(bounds, 0.0))


def water_level(grid: Grid, values: Floats, total: Totals) -> Floats:
    """Return the level θ with Σ max(0, v + θ) = total for each cell of a margin; 0 for totals 0.

    Newton's method on a convex, piecewise linear function: from the level at which every cell is
    wet it falls, and dries cells, until it stands (Michelot, 1986). No sorting, so groups of
    cells may have any size. Values of minus infinity stay dry.

    >>> water_level(Grid.flat((3,)), np.array([3.0, 1.0, -5.0]), Totals((0,), np.array([2])))
    array(-1.)
    """
    wet = values > -np.inf
    targets = total.counts.astype(np.float64)
    open_cells = grid.sum(wet, total.view)
    held = grid.sum(values if wet.all() else np.where(wet, values, 0.0), total.view)
    level: Floats = np.asarray((targets - held) / np.maximum(open_cells, 1.0))
    level[total.counts == 0] = 0.0
    for _ in range(LEVEL_STEPS):
        filled = values + grid.spread(level, total.view)
        np.maximum(filled, 0.0, out=filled)
        over = grid.sum(filled, total.view) - targets
        wet_cells = grid.sum(filled > 0, total.view)
        lower = level - over / np.maximum(wet_cells, 1.0)
        falling = (lower < level) & (total.counts > 0)
        if not falling.any():
            break
        level = np.where(falling, lower, level)
    return level


def feasible(problem: Problem, deadline: float = math.inf) -> bool:
    """Whether some nonnegative real table has the totals (a linear program); true where time runs
    out.

    >>> from semidp.publish.fitting.real import pose
    >>> feasible(pose(Grid.flat((2,)), np.zeros(2), [Totals((0,), np.array([4]))]))
    True
    """
    from scipy.optimize import linprog

    left = deadline - time.monotonic()
    if left <= 0:
        return True
    costs = np.zeros(problem.matrix.shape[1])
    answer = linprog(
        costs,
        A_eq=problem.matrix,
        b_eq=problem.positive_totals,
        bounds=(0, None),
        method="highs",
        options={"time_limit": left} if left < math.inf else {},
    )
    # status 2 of HiGHS: proved infeasible
    return bool(answer.status != 2)


class Newton:
    """Newton's method for A max(0, y + Aᵀθ) = t, with θ a list of arrays, one for each margin."""

    def __init__(self, problem: Problem, deadline: float, progress: Progress) -> None:
        self.problem, self.grid, self.totals = problem, problem.grid, problem.totals
        self.deadline, self.progress = deadline, progress
        largest_totals = [float(total.counts.max()) for total in self.totals]
        self.largest_total = max(1.0, *largest_totals)
        largest_size = float(np.abs(problem.noisy).max())
        self.largest_value = max(1.0, largest_size)
        self.steps = 0

    def run(self, share: float, levels: Sequence[Floats] | None, steps: int) -> RealFit:
        """Return the best projection that at most `steps` steps from `levels` reach, for a share of
        the values.
        """
        self.progress("projecting the table", self.steps, None)
        levels = self.start(share) if levels is None else levels
        missing = self.missing(levels, share)
        scale = self.largest_total + 1e-4 * share * self.largest_value
        best, least = levels, math.inf
        for step in range(steps + 1):
            residual = _largest(missing) / scale
            # Below GOOD the rest is rounding: steps that no longer halve it are not worth a pass.
            stuck = residual > 0.5 * least and least <= GOOD
            if residual < least:
                best, least = levels, residual
            is_late = time.monotonic() > self.deadline
            if least <= TOLERANCE or stuck or step == steps or is_late:
                break
            levels, missing = self.step(levels, missing, share, GOOD * scale)
        return RealFit(self.problem, tuple(best), lagrangian(self.problem, best), least)

    def start(self, share: float) -> list[Floats]:
        """Meet one margin after the other exactly, three times: coordinate ascent, slow but sure.

        A large table with few totals starts from the levels that meet the first margin with every
        cell wet.
        """
        levels = [np.zeros(total.counts.shape) for total in self.totals]
        is_large = self.problem.coarse and len(self.problem.slabs) > 1
        if is_large and len(self.totals) > 1:
            levels[0] = self.all_wet(share)
            return levels
        lifted = self.problem.lift_cells(levels, share=share)
        for _ in range(1 if len(self.totals) == 1 else 3):
            for total, level in zip(self.totals, levels, strict=True):
                step = water_level(self.grid, lifted, total)
                level += step
                lifted += self.grid.spread(step, total.view)
        return levels

    def all_wet(self, share: float) -> Floats:
        """Return the levels of the first margin at which its cells meet their totals if none is cut
        off at zero.
        """
        first = self.totals[0]
        view = first.view
        lacking = first.counts.astype(np.float64)
        cells = np.zeros(self.grid.compute_margin_shape(view))
        nothing = [np.zeros(total.counts.shape) for total in self.totals]

        def wet(block: Block) -> tuple[Floats, Floats]:
            values = self.problem.lift_cells(nothing, block, share)
            finite = values > -np.inf
            (held,) = block.margins(np.where(finite, values, 0.0), [view])
            (open_cells,) = block.margins(finite, [view])
            return held, open_cells

        for block, (held, open_cells) in self.problem.each_slab(wet):
            lacking[block.margin_slices(view)] -= held
            cells[block.margin_slices(view)] += open_cells
        level = lacking / np.maximum(cells, 1.0)
        return np.where(cells > 0, level, 0.0)

    def missing(
        self, levels: Sequence[Floats], share: float = 1.0, whole: bool = False
    ) -> list[Floats]:
        """Return each total less the sums of the table max(0, y + Aᵀθ), rounded if `whole`."""
        missing = [total.counts.astype(np.float64) for total in self.totals]

        def table(block: Block) -> Floats:
            return self.problem.nearest(levels, block, share, whole)

        self.problem.subtract(missing, self.problem.views, table)
        return missing

    def step(
        self, levels: Sequence[Floats], missing: list[Floats], share: float, good: float
    ) -> tuple[list[Floats], list[Floats]]:
        """Go along Newton's direction to its end, or to the highest point of the concave dual
        before it.

        The direction comes from conjugate gradients, or from a factorisation where those are slow
        and more than a `good` amount is missing. The slope of the dual along it is d·(t - A x).
        """
        self.progress("projecting the table", self.steps, None)
        self.steps += 1
        direction, met = self.gradients(self.active(levels, share), missing)
        if not met and _largest(missing) > good:
            active = self.problem.lift_cells(levels, share=share) > 0
            direction = self.solve_factored(active, missing)

        def take_step(size: float) -> tuple[list[Floats], list[Floats]]:
            ahead = _plus(levels, size, direction)
            return ahead, self.missing(ahead, share)

        first = _dot(direction, missing)
        ahead, lacking = take_step(1.0)
        slope = _dot(direction, lacking)
        # Near the solution full steps converge by themselves, and a search would chase rounding.
        is_far = min(_largest(missing), _largest(lacking)) > good
        if is_far and slope < -1e-9 * abs(first):
            low, high = 0.0, 1.0
            rising, falling = first, slope
            kept = 0
            for _ in range(LINE_STEPS):  # false position, where an end that stays counts for half
                size = low + (high - low) * rising / (rising - falling)
                ahead, lacking = take_step(size)
                slope = _dot(direction, lacking)
                if 0 <= slope <= FLAT * first:
                    break
                if slope > 0:
                    low, rising = size, slope
                    falling = falling / 2 if kept > 0 else falling
                    kept = 1
                else:
                    high, falling = size, slope
                    rising = rising / 2 if kept < 0 else rising
                    kept = -1
        return ahead, lacking

    def active(self, levels: Sequence[Floats], share: float = 1.0) -> dict[View, Floats]:
        """Return the number of cells above zero in each margin and in the joint margin of each
        two.
        """
        margins = self.problem.views
        # Each pair of margins once; a margin joined with itself is the margin.
        joined: dict[View, None] = {}
        for one in margins:
            for other in margins:
                joined[join(one, other)] = None
        views = list(joined)
        counts = [np.zeros(self.grid.compute_margin_shape(view)) for view in views]

        def minus_active(block: Block) -> Floats:
            above_zero = self.problem.lift_cells(levels, block, share) > 0
            return np.negative(above_zero, dtype=np.float64)

        # Taking minus one for each active cell counts them.
        self.problem.subtract(counts, views, minus_active)
        return dict(zip(views, counts, strict=True))

    def gradients(
        self, active: dict[View, Floats], missing: list[Floats]
    ) -> tuple[list[Floats], bool]:
        """Solve A diag(active) Aᵀ d = missing by conjugate gradients; return whether that
        succeeded, too.

        The matrix is the counts of active cells in each pair of margins: small for one-way sums of
        a large table.
        """
        views = self.problem.views
        # The diagonal of the matrix preconditions it. Margin cells without an active cell have a
        # zero there, by which nothing can be divided.
        weight = [np.maximum(active[view], 0.5) for view in views]
        way = [np.zeros(gap.shape) for gap in missing]
        residual, search, size = missing, way, math.inf
        last = way
        first = _dot(missing, _over(missing, weight))
        for _ in range(GRADIENT_STEPS):
            scaled = _over(residual, weight)
            size, before = _dot(residual, scaled), size
            if size <= EXACT_ENOUGH * first:
                return way, True
            # What rounding has put into the kernel of the matrix grows once the rest is solved.
            if size > before and before <= USEFUL * first:
                return last, True
            search = _plus(scaled, size / before, search)
            image = self._image(active, search)
            curvature = _dot(search, image)
            # Sums of sums agree, so the matrix is singular: along its kernel nothing is
            # solved.
            if curvature <= 1e-14 * _dot(search, search):
                break
            length = size / curvature
            last, way = way, _plus(way, length, search)
            residual = [a - length * b for a, b in zip(residual, image, strict=True)]
        return way, size <= USEFUL * first

    def _image(self, active: dict[View, Floats], search: list[Floats]) -> list[Floats]:
        """A diag(active) Aᵀ times a direction, from the joint counts of each two margins."""
        views = self.problem.views
        image = [np.zeros(part.shape) for part in search]
        for one, total in zip(views, image, strict=True):
            for other, part in zip(views, search, strict=True):
                both = join(one, other)
                weighted = active[both] * self.grid.spread(part, other, both)
                total += self.grid.sum(weighted, one, both)
        return image

    def solve_factored(self, active: Mask, missing: list[Floats]) -> list[Floats]:
        """Solve the same system by factoring the matrix plus a small diagonal. It is singular,
        because sums of margins agree.
        """
        open_active = np.flatnonzero(active[self.problem.allowed])
        part = self.problem.matrix[:, open_active]
        square = (part @ part.T).tocsc()
        positive = [total.counts > 0 for total in self.totals]
        gaps = [gap[rows] for gap, rows in zip(missing, positive, strict=True)]
        right = np.concatenate(gaps)
        solve = _factor(square)
        answer = solve(right)
        for _ in range(2):
            # Each refinement takes back part of what the little on the diagonal has changed.
            answer += solve(right - square @ answer)
        way = [np.zeros(gap.shape) for gap in missing]
        lengths = [int(rows.sum()) for rows in positive]
        parts = np.split(answer, np.cumsum(lengths)[:-1])
        for whole, rows, piece in zip(way, positive, parts, strict=True):
            whole[rows] = piece
        return way


def _factor(square: Any) -> Callable[[Floats], Floats]:
    size = square.shape[0]
    if square.nnz > DENSE * size * size:
        from scipy.linalg import cho_factor, cho_solve

        damped = square.toarray() + 1e-9 * np.eye(size)
        factor = cho_factor(damped, overwrite_a=True, check_finite=False)
        return lambda right: cho_solve(factor, right, check_finite=False)
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    little = diags_array(np.full(size, 1e-9))
    damped = (square + little).tocsc()
    options = {"SymmetricMode": True}
    return splu(damped, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve


def _dot(one: Sequence[Floats], other: Sequence[Floats]) -> float:
    products = []
    for a, b in zip(one, other, strict=True):
        products.append(float((a * b).sum()))
    return sum(products)


def _over(one: Sequence[Floats], other: Sequence[Floats]) -> list[Floats]:
    return [a / b for a, b in zip(one, other, strict=True)]


def _plus(one: Sequence[Floats], size: float, way: Sequence[Floats]) -> list[Floats]:
    """Points a step of `size` along `way` from `one`, margin by margin."""
    return [a + size * b for a, b in zip(one, way, strict=True)]


def _largest(missing: Sequence[Floats]) -> float:
    return max(float(np.abs(gap).max()) for gap in missing)
