"""Exact integer fits: one total by thresholds, two families of sums by convex flows.

A flow carries records from rows to columns, and a cell's next record costs more than its last, so a table is optimal
when no cycle of single records improves it. Three and more families of sums live in `search`.
"""

import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.fit.problem import INFEASIBLE, WORD_BITS, Cells, Counts, Floats, Problem
from semidp.fit.real import Projection, approach, water_level
from semidp.progress import Progress, silent

Arcs = tuple[NDArray[np.intp], Counts, Counts]  # the cells they add records to, their sizes, their costs a record

CELLS_AT_ONCE = 400_000  # flows of separate groups are solved together up to about this many cells
FARTHEST = 40  # no step is longer than 2^40 records, which keeps capacities within a word
COST_BITS = 61  # what a flow's costs times its nodes may use of a word


def thresholds(problem: Problem) -> Counts:
    """Return the optimal table under one family of sums: each group has its own total, cells are otherwise free.

    The k-th record of a cell costs 2(k - y) - 1, so the cheapest records win: all those with k - y below a threshold,
    which bisection finds exactly on the grid, and as many of those at the threshold as are left.

    >>> from semidp.fit.problem import Sums, pose
    >>> thresholds(pose(np.array([2.4, 0.3, -1.0]), None, [Sums((), np.array([4]))]))
    array([3, 1, 0])
    """
    (sums,) = problem.sums
    order = [*sums.axes, *(axis for axis in range(problem.grid.ndim) if axis not in sums.axes)]
    shape = [problem.grid.shape[axis] for axis in order]
    flat = (sums.totals.size, -1)
    open_cells = problem.allowed.transpose(order).reshape(flat)
    values = problem.values.transpose(order).reshape(flat)
    grid = problem.grid.transpose(order).reshape(flat)
    totals = sums.totals.ravel()
    filled = _cheapest(grid, open_cells, totals, water_level(values, totals.astype(np.float64)), problem.bits)
    return np.ascontiguousarray(filled.reshape(shape).transpose(np.argsort(order)))


def _cheapest(grid: Counts, allowed: Cells, totals: Counts, level: Floats, bits: int) -> Counts:
    def below(threshold: Counts) -> Counts:
        return np.where(allowed, np.maximum(0, -((-grid - threshold[:, None]) >> bits)), 0)

    guess = np.rint(np.ldexp(level, bits)).astype(np.int64)
    low, high, width = guess - 1, guess + 1, 1
    while (short := below(high).sum(axis=1) < totals).any():
        high = high + width * short
        width *= 2
    width = 1
    while (over := below(low).sum(axis=1) > totals).any():
        low = low - width * over
        width *= 2
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = below(middle).sum(axis=1) >= totals
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    sure, most = below(low), below(high)
    left = totals - sure.sum(axis=1)
    tied = most > sure
    chosen = tied & (tied.cumsum(axis=1) <= left[:, None])
    filled: Counts = sure + chosen
    return filled


@dataclass(frozen=True)
class Flow:
    """Two families of sums, arranged as groups × rows × columns × free axes.

    Groups are the levels of the axes that both families share; cells along the free axes are parallel arcs between
    one row and one column. The k-th record of a cell (from 0) costs ``first + k * unit`` on the grid, where the
    multipliers of a projection are already taken off, so that costs are small near the optimum.
    """

    first: Counts
    unit: int
    allowed: Cells
    rows: Counts
    columns: Counts

    def improved(self, table: Counts, reach: int) -> tuple[Counts, int, bool]:
        """Return the best table within 2^reach - 1 records of `table` in each cell, its gain on the grid, and a proof.

        Steps of more than one record enter at their mean cost, an upper bound that is exact where they are used
        fully or not at all. So the loss never rises, and no gain at any reach means that no cycle of single records
        improves the table: it is optimal if the proof, that no cost was too large for the solver, holds.
        """
        up = self.first + self.unit * table
        down = self.unit - up
        gain_per_arc = -min(0, int(up[self.allowed].min(initial=0)), int(down[table > 0].min(initial=0)))
        if gain_per_arc == 0:
            return table, 0, True
        nodes = self.rows.size + self.columns.size
        longest = 2 * min(self.rows.shape[1], self.columns.shape[1])
        safe, limit = longest * gain_per_arc, (1 << COST_BITS) // (nodes + 1)
        arcs, low = self._steps(table, reach)
        answer = self._solve(low, arcs, min(safe, limit))
        assert answer is not None, "the table that was given is feasible"
        moved = np.nonzero(answer - table)
        cost = self.first[moved] + (self.unit // 2) * (answer[moved] + table[moved] - 1)
        gain = -sum(map(operator.mul, (answer - table)[moved].tolist(), cost.tolist()))
        return (answer, gain, True) if gain > 0 else (table, 0, safe <= limit)

    def anywhere(self, lifted: Floats) -> Counts:
        """Return a table that meets the sums, cheap if not cheapest."""
        centre = np.where(self.allowed, np.clip(np.rint(lifted), 0, self._most()), 0).astype(np.int64)
        arcs, low = self._steps(centre, FARTHEST)
        answer = self._solve(low, arcs, (1 << COST_BITS) // (self.rows.size + self.columns.size + 1))
        if answer is None:
            raise InputError(INFEASIBLE)
        return answer

    def rounded(self, lifted: Floats) -> Counts | None:
        """Return the best table within one or two records of max(0, lifted), or None where there is none."""
        low = np.maximum(np.ceil(lifted - 1.5), 0.0)
        high = np.maximum(np.floor(lifted + 0.5) + 1.0, low)
        low, high = (np.where(self.allowed, side, 0.0).astype(np.int64) for side in (low, high))
        size = (high - low).ravel()
        cell = np.repeat(np.arange(size.size), size)
        step = np.arange(cell.size) - np.repeat(size.cumsum() - size, size)
        cost = self.first.ravel()[cell] + self.unit * (low.ravel()[cell] + step)
        limit = (1 << COST_BITS) // (self.rows.size + self.columns.size + 1)
        return self._solve(low, (cell, np.ones_like(cell), cost), limit)

    def _steps(self, table: Counts, reach: int) -> tuple[Arcs, Counts]:
        """Return arcs of 1, 2, 4, … records up and down from `table`, and the table with all of the latter taken."""
        most, low, high, parts = np.where(self.allowed, self._most(), 0), table, table, []
        for power in range(reach):
            if power and (low == 0).all() and (high == most).all():
                break
            longer = np.minimum(high + (1 << power), most)
            lower = np.maximum(low - (1 << power), 0)
            for start, end in ((high, longer), (lower, low)):
                cell = np.flatnonzero(end > start)
                size = (end - start).ravel()[cell]
                mean = self.first.ravel()[cell] + (self.unit // 2) * (2 * start.ravel()[cell] + size - 1)
                parts.append((cell, size, mean))
            low, high = lower, longer
        cells, sizes, costs = (np.concatenate(part) for part in zip(*parts, strict=True))
        return (cells, sizes, costs), low

    def _most(self) -> Counts:
        return np.minimum(self.rows[:, :, None, None], self.columns[:, None, :, None])

    def part(self, groups: slice) -> "Flow":
        """Return the flow of some of the groups."""
        return Flow(self.first[groups], self.unit, self.allowed[groups], self.rows[groups], self.columns[groups])

    def _solve(self, low: Counts, arcs: Arcs, cap: int) -> Counts | None:
        """Return the cheapest table that adds records along `arcs` to `low` and meets the sums."""
        cells, sizes, costs = arcs
        groups, rows, columns, free = self.first.shape
        line = cells // free
        tails = line // columns
        heads = groups * rows + (line // (rows * columns)) * columns + line % columns
        solver = _solver()()
        index = solver.add_arcs_with_capacity_and_unit_cost(
            tails.astype(np.int32), heads.astype(np.int32), sizes, np.clip(costs, -cap, cap)
        )
        supply = np.concatenate(
            [(self.rows - low.sum(axis=(2, 3))).ravel(), -(self.columns - low.sum(axis=(1, 3))).ravel()]
        )
        solver.set_nodes_supplies(np.arange(supply.size, dtype=np.int32), supply)
        if solver.solve() != solver.OPTIMAL:
            return None
        added = np.zeros(low.size, dtype=np.int64)
        np.add.at(added, cells, solver.flows(index))
        return low + added.reshape(low.shape)


def transport(problem: Problem, start: Projection | None = None, progress: Progress = silent) -> tuple[Counts, bool]:
    """Return the optimal table under two families of sums, and whether that is proved.

    The first flow looks next to the real-valued projection; further ones look around its answer until nothing
    improves, which proves that it is optimal (Ahuja, Magnanti and Orlin, Network Flows, 1993, chapter 14).

    >>> from semidp.fit.problem import Sums, pose
    >>> rows, columns = Sums((0,), np.array([[2], [3]])), Sums((1,), np.array([[2, 3]]))
    >>> transport(pose(np.array([[1.7, 0.0], [0.2, 3.9]]), None, [rows, columns]))
    (array([[2, 0],
           [0, 3]]), True)
    """
    start = approach(problem, progress) if start is None else start
    layout = Layout.of(problem.grid.shape, problem.sums[0].axes, problem.sums[1].axes)
    flow = layout.flow(problem, start.levels, problem.sums[0].totals, problem.sums[1].totals)
    lifted = layout.fold(problem.values + sum(start.levels))
    counts, proved = np.zeros(lifted.shape, dtype=np.int64), True
    at_once = max(1, CELLS_AT_ONCE * len(lifted) // lifted.size)
    for done in range(0, len(lifted), at_once):
        progress("fitting whole numbers", done, len(lifted))
        part = slice(done, done + at_once)
        counts[part], sure = _optimum(flow.part(part), lifted[part])
        proved &= sure
    return layout.unfold(counts), proved


@dataclass(frozen=True)
class Layout:
    """How the axes of a table fold into groups × rows × columns × free axes for a flow."""

    order: tuple[int, ...]
    shape: tuple[int, ...]
    folded: tuple[int, int, int, int]

    @classmethod
    def of(cls, shape: Sequence[int], row_axes: Sequence[int], column_axes: Sequence[int]) -> "Layout":
        """Return the layout of two families of sums; the axes they share become the groups."""
        rows, columns = set(row_axes), set(column_axes)
        parts = [rows & columns, rows - columns, columns - rows, set(range(len(shape))) - rows - columns]
        order = tuple(axis for part in parts for axis in sorted(part))
        folded = tuple(math.prod(shape[axis] for axis in part) for part in parts)
        return cls(order, tuple(shape), (folded[0], folded[1], folded[2], folded[3]))

    def fold(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return a table, or sums that kept their axes, with four axes."""
        return table.transpose(self.order).reshape(self.folded)

    def unfold(self, table: Counts) -> Counts:
        """Undo `fold`."""
        long = table.reshape([self.shape[axis] for axis in self.order])
        return np.ascontiguousarray(long.transpose(np.argsort(self.order)))

    def flow(self, problem: Problem, levels: Sequence[Floats], rows: Counts, columns: Counts) -> Flow:
        """Return the flow of a problem, with `levels` (of any sums that rows and columns determine) taken off.

        Each family of multipliers is rounded to the grid by itself, so that what is taken off a cell is still a sum
        of a row's and a column's part and changes no cycle. Any multipliers do, so huge ones are cut to fit a word.
        """
        half, largest = 1 << problem.bits, 2.0**WORD_BITS
        exact = [np.ldexp(level, problem.bits + 1) for level in levels]
        taken = sum(np.rint(np.clip(level, -largest, largest)).astype(np.int64) for level in exact)
        groups, height, width, _ = self.folded
        return Flow(
            self.fold(half - 2 * problem.grid - taken),
            2 * half,
            self.fold(problem.allowed),
            rows.transpose(self.order).reshape(groups, height),
            columns.transpose(self.order).reshape(groups, width),
        )


def _optimum(flow: Flow, lifted: Floats) -> tuple[Counts, bool]:
    counts, reach = flow.rounded(lifted), 1
    if counts is None:
        counts, reach = flow.anywhere(lifted), FARTHEST
    while True:
        counts, gain, proved = flow.improved(counts, reach)
        if gain == 0:
            return counts, proved
        reach = min(2 * reach, FARTHEST)


@cache
def _solver() -> Any:
    """Return ortools' class of solvers; its bindings raise deprecation warnings of their own when first imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from ortools.graph.python import min_cost_flow

    return min_cost_flow.SimpleMinCostFlow
