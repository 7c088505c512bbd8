"""Integer fits by thresholds and flows: one margin and two exactly, more by flows inside flows.

A flow carries records from rows to columns, and a cell's next record costs more than its last, so a
table is optimal when no cycle of single records improves it. Cells are a list with a row and a
column each: groups may have any size.
"""

import operator
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import (
    Counts,
    Totals,
    View,
    join,
    junction_order,
    meet,
    trimmed_view,
)
from semidp.publish.fitting.problem import WORD_BITS, Floats, Infeasible, Problem, pose
from semidp.publish.fitting.real import RealFit, approach, water_level

Index = NDArray[np.intp]
# the cells they add records to, their sizes, their costs a record
Arcs = tuple[Index, Counts, Counts]

CELLS_AT_ONCE = 400_000  # flows of separate groups are solved together up to about this many cells
FARTHEST = 40  # no step is longer than 2^40 records, which keeps capacities within a word
COST_BITS = 61  # what a flow's costs times its nodes may use of a word


def thresholds(problem: Problem) -> Counts:
    """Return the optimal table under one margin. Each margin cell has its own total; otherwise
    table cells are free.

    The k-th record of a cell costs 2(k - y) - 1, so the cheapest records win: all those with k - y
    below a threshold, which bisection finds exactly in units of the noisy values, and as many of
    those at the threshold as are left.

    >>> from semidp.promise.schema.margins import Grid
    >>> thresholds(pose(Grid.flat((3,)), np.array([2.4, 0.3, -1.0]), [Totals((0,), np.array([4]))]))
    array([3, 1, 0])
    """
    (total,) = problem.totals
    grid, view, bits = problem.grid, total.view, problem.bits

    def records_below_threshold(threshold: Counts) -> Counts:
        # Rounded up, in one array: large tables have no room for several.
        records = np.negative(problem.units)
        records -= grid.spread(threshold, view)
        records >>= bits
        np.negative(records, out=records)
        np.maximum(records, 0, out=records)
        if not problem.all_allowed:
            records[~problem.allowed] = 0
        return records

    def too_few(threshold: Counts) -> NDArray[np.bool_]:
        return np.asarray(grid.sum(records_below_threshold(threshold), view) < total.counts)

    # The real-valued level is near the threshold, so that the search around it is short.
    level = np.ldexp(water_level(grid, problem.values, total), bits)
    guess = np.rint(level).astype(np.int64)
    low, high, width = guess - 1, guess + 1, 1
    while (short := too_few(high)).any():
        high = high + width * short
        width *= 2
    width = 1
    while (over := grid.sum(records_below_threshold(low), view) > total.counts).any():
        low = low - width * over
        width *= 2
    while (high - low > 1).any():
        middle = (low + high) // 2
        rising = too_few(middle)
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    # The two thresholds are one unit apart, so that all records between them cost the same: any of
    # them may fill what is left.
    sure = records_below_threshold(low)
    tied = np.flatnonzero(records_below_threshold(high) > sure)
    group = grid.labels(view)[tied]
    left = (total.counts - grid.sum(sure, view)).ravel()
    taken = tied[_rank(group) < left[group]]
    sure.ravel()[taken] += 1
    return sure


def _rank(group: Index) -> Index:
    """Return for each entry the number of earlier entries in the same group.

    >>> _rank(np.array([4, 2, 4, 4]))
    array([0, 0, 1, 2])
    """
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    rank = np.empty_like(order)
    group_start = np.searchsorted(ordered, ordered)
    rank[order] = np.arange(len(group)) - group_start
    return rank


@dataclass(frozen=True, eq=False)
class Flow:
    """Flow of records from rows to columns through cells, for two margins: every cell lies in one
    row and one column.

    The k-th record of a cell (from 0) costs ``first + k * unit``, where the multipliers of a
    projection are already taken off, so that costs are small near the optimum. Cells between one
    row and one column are parallel arcs. A table is the list of its counts in the cells.
    """

    first: Counts
    unit: int
    row: Index
    column: Index
    rows: Counts
    columns: Counts
    longest: int  # no cycle passes through more nodes

    @classmethod
    def from_problem(
        cls, problem: Problem, levels: Sequence[Floats], rows: Totals, columns: Totals
    ) -> "Flow":
        """Return the flow through the allowed cells, with the `levels` of margins that these two
        determine taken off.

        The multipliers of each margin are rounded by themselves, so that what is taken off a cell
        is still a sum of a row's and a column's part and changes no cycle. Any multipliers do, so
        huge ones are cut to fit a word.
        """
        grid, half = problem.grid, 1 << problem.bits
        largest = 2.0**WORD_BITS
        first = half - 2 * problem.units
        for view, level in zip(problem.views, levels, strict=True):
            doubled = np.ldexp(level, problem.bits + 1)
            taken = np.clip(doubled, -largest, largest)
            first -= grid.spread(np.rint(taken).astype(np.int64), view)
        open_cells = problem.allowed.ravel()
        shared = meet(rows.view, columns.view)
        # A cycle stays in one cell of the shared margin and alternates between rows and columns.
        rows_below = grid.count_finer_cells(shared, rows.view)
        shorter = np.minimum(rows_below, grid.count_finer_cells(shared, columns.view))
        return cls(
            first=first.ravel()[open_cells],
            unit=2 * half,
            row=grid.labels(rows.view)[open_cells],
            column=grid.labels(columns.view)[open_cells],
            rows=rows.counts.ravel(),
            columns=columns.counts.ravel(),
            longest=2 * int(shorter.max()),
        )

    def part(self, cells: Index) -> "Flow":
        """Return the flow through some of the cells; no cycle may leave them."""
        rows, row = np.unique(self.row[cells], return_inverse=True)
        columns, column = np.unique(self.column[cells], return_inverse=True)
        first = self.first[cells]
        supply, demand = self.rows[rows], self.columns[columns]
        return Flow(first, self.unit, row, column, supply, demand, self.longest)

    @property
    def dearest(self) -> int:
        """The largest cost that the solver's words hold."""
        return (1 << COST_BITS) // (self.rows.size + self.columns.size + 1)

    def improve_table(self, table: Counts, reach: int) -> tuple[Counts, int, bool]:
        """Return the best table within 2^reach - 1 records of `table` in each cell, its gain in
        units, and a proof.

        Steps of more than one record enter at their mean cost, an upper bound that is exact where
        they are used fully or not at all. So the loss never rises, and no gain at any reach means
        that no cycle of single records improves the table: it is optimal if the proof, that no cost
        was too large for the solver, holds.
        """
        up = self.first + self.unit * table
        down = self.unit - up
        cheapest_up = int(up.min(initial=0))
        cheapest_down = int(down[table > 0].min(initial=0))
        gain_per_arc = -min(0, cheapest_up, cheapest_down)
        # A cycle that gains has an arc of negative cost. Without one the table is optimal.
        if gain_per_arc == 0:
            return table, 0, True
        # An arc dearer than all that a cycle can gain is in no useful cycle: costs may be cut
        # there.
        safe, limit = self.longest * gain_per_arc, self.dearest
        arcs, low = self._steps(table, reach)
        answer = self._solve(low, arcs, min(safe, limit))
        assert answer is not None, "the table that was given is feasible"
        change = answer - table
        moved = np.flatnonzero(change)
        # the mean cost of the records between the two counts
        ends = answer[moved] + table[moved] - 1
        cost = self.first[moved] + (self.unit // 2) * ends
        # Python's integers, since these products may not fit a word.
        products = map(operator.mul, change[moved].tolist(), cost.tolist())
        gain = -sum(products)
        return (answer, gain, True) if gain > 0 else (table, 0, safe <= limit)

    def anywhere(self, lifted: Floats) -> Counts:
        """Return some table that meets the sums: cheap, if not the cheapest."""
        nearest = np.clip(np.rint(lifted), 0, self._most())
        centre = nearest.astype(np.int64)
        arcs, low = self._steps(centre, FARTHEST)
        answer = self._solve(low, arcs, self.dearest)
        if answer is None:
            raise Infeasible
        return answer

    def round_nearby(self, lifted: Floats) -> Counts | None:
        """Return the best table within one or two records of max(0, lifted), or None where there is
        none.
        """
        lowest = np.maximum(np.ceil(lifted - 1.5), 0.0)
        low = lowest.astype(np.int64)
        highest = np.maximum(np.floor(lifted + 0.5) + 1.0, lowest)
        size = highest.astype(np.int64) - low
        # an arc for each record: its cell, and its number in the cell
        cell = np.repeat(np.arange(size.size), size)
        first_arc = np.repeat(size.cumsum() - size, size)
        step = np.arange(cell.size) - first_arc
        cost = self.first[cell] + self.unit * (low[cell] + step)
        return self._solve(low, (cell, np.ones_like(cell), cost), self.dearest)

    def optimum(self, lifted: Floats) -> tuple[Counts, bool]:
        """Return the best table, starting near max(0, lifted), and whether that is proved."""
        counts, reach = self.round_nearby(lifted), 1
        if counts is None:
            counts, reach = self.anywhere(lifted), FARTHEST
        while True:
            counts, gain, proved = self.improve_table(counts, reach)
            if gain == 0:
                return counts, proved
            # A table that still improves may be far from the best one, and longer steps get there
            # sooner.
            reach = min(2 * reach, FARTHEST)

    def _steps(self, table: Counts, reach: int) -> tuple[Arcs, Counts]:
        """Return arcs of 1, 2, 4, … records up and down from `table`, and the table that is left
        when every arc down is used.
        """
        most, parts = self._most(), []
        low = high = table
        for power in range(reach):
            if power and (low == 0).all() and (high == most).all():
                break
            longer = np.minimum(high + (1 << power), most)
            lower = np.maximum(low - (1 << power), 0)
            for start, end in ((high, longer), (lower, low)):
                cell = np.flatnonzero(end > start)
                size = (end - start)[cell]
                ends = 2 * start[cell] + size - 1
                cost = self.first[cell] + (self.unit // 2) * ends
                parts.append((cell, size, cost))
            low, high = lower, longer
        cells = np.concatenate([cell for cell, _, _ in parts])
        sizes = np.concatenate([size for _, size, _ in parts])
        costs = np.concatenate([cost for _, _, cost in parts])
        return (cells, sizes, costs), low

    def _most(self) -> Counts:
        return np.minimum(self.rows[self.row], self.columns[self.column])

    def _solve(self, low: Counts, arcs: Arcs, cap: int) -> Counts | None:
        """Return the cheapest table that adds records along `arcs` to `low` and meets the sums."""
        cells, sizes, costs = arcs
        # Nodes: the rows first, then the columns.
        tails = self.row[cells].astype(np.int32)
        heads = (self.rows.size + self.column[cells]).astype(np.int32)
        capped = np.clip(costs, -cap, cap)
        solver = _solver()()
        index = solver.add_arcs_with_capacity_and_unit_cost(tails, heads, sizes, capped)
        rows, columns = self.rows.copy(), self.columns.copy()
        np.subtract.at(rows, self.row, low)
        np.subtract.at(columns, self.column, low)
        supply = np.concatenate([rows, -columns])
        solver.set_nodes_supplies(np.arange(supply.size, dtype=np.int32), supply)
        if solver.solve() != solver.OPTIMAL:
            return None
        filled = low.copy()
        np.add.at(filled, cells, solver.flows(index))
        return filled


def transport(
    problem: Problem, start: RealFit | None = None, progress: Progress = silent
) -> tuple[Counts, bool]:
    """Return the optimal table under two margins, and whether that is proved.

    The first flow looks next to the real-valued projection; further ones look around its answer
    until nothing improves, which proves that it is optimal (Ahuja, Magnanti and Orlin, Network
    Flows, 1993, chapter 14). What the margins share splits the cells into groups with flows of
    their own.

    >>> from semidp.promise.schema.margins import Grid
    >>> totals = [Totals((1, 0), np.array([[2], [3]])), Totals((0, 1), np.array([[2, 3]]))]
    >>> transport(pose(Grid.flat((2, 2)), np.array([[1.7, 0.0], [0.2, 3.9]]), totals))
    (array([[2, 0],
           [0, 3]]), True)
    """
    start = approach(problem, progress) if start is None else start
    flow = Flow.from_problem(problem, start.levels, *problem.totals)
    lifted = problem.lift_cells(start.levels)[problem.allowed]
    counts = np.zeros(lifted.shape, dtype=np.int64)
    proved, done = True, 0
    for cells in _groups(problem):
        progress("fitting whole numbers", done, len(lifted))
        done += len(cells)
        part = flow.part(cells)
        counts[cells], sure = part.optimum(lifted[cells])
        proved &= sure
    return problem.fill_allowed(counts), proved


def _groups(problem: Problem) -> Iterator[Index]:
    """Yield the allowed cells, some whole groups at a time. A group is a cell of what all margins
    share.
    """
    labels = problem.grid.labels(problem.common)[problem.allowed.ravel()]
    if len(labels) <= CELLS_AT_ONCE or not any(problem.common):
        if len(labels):
            yield np.arange(len(labels))
        return
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    # A batch ends with the group that crosses a multiple of CELLS_AT_ONCE.
    batches = np.diff(starts // CELLS_AT_ONCE, prepend=-1)
    firsts = starts[np.flatnonzero(batches)]
    yield from np.split(order, firsts[1:])


def fit_nested(problem: Problem, target: Floats, progress: Progress = silent) -> Counts | None:
    """Return a table that has all totals, close to the real table `target`; None where the nesting
    does not work.

    The joint counts of the first two margins are a flow; with them fixed, so are those of the first
    three, and so on. Each step is feasible where the margins are decomposable and no cell is
    declared impossible.

    >>> from semidp.promise.schema.margins import Grid
    >>> table, grid = np.arange(8).reshape(2, 2, 2), Grid.flat((2, 2, 2))
    >>> totals = [Totals(view, grid.sum(table, view)) for view in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    >>> bool((fit_nested(pose(grid, table + 0.1, totals), table + 0.0) == table).all())
    True
    """
    order, grid = junction_order(problem.views), problem.grid
    if order is None:
        return None
    by_view = {total.view: total for total in problem.totals}
    fitted = by_view[order[0]]
    for step, view in enumerate(order[1:], start=2):
        progress("nesting flows", step - 1, len(order))
        both = join(fitted.view, view)
        pair = (fitted, by_view[view])
        try:
            # The last flow fills the cells themselves, and is fitted to the noisy values. Those
            # before it only fix joint counts, which follow the real-valued fit.
            if step == len(order):
                last = pose(grid, problem.noisy, pair, problem.allowed)
                counts, _ = transport(last, progress=progress)
                return counts
            possible = grid.sum(problem.allowed.astype(np.int64), both) > 0
            seen = [Totals(trimmed_view(total.view, both), total.counts) for total in pair]
            joint = pose(grid.coarsen(both), grid.sum(target, both), seen, possible)
            joint_counts, _ = transport(joint, progress=progress)
            fitted = Totals(both, joint_counts)
        except Infeasible:
            return None
    return None


def improve(
    problem: Problem, start: RealFit, counts: Counts, deadline: float, progress: Progress = silent
) -> Counts:
    """Return a table that no move improves. A move refits one margin while the joint counts of all
    others stay.

    >>> from semidp.publish.fitting.real import project
    >>> from semidp.promise.schema.margins import Grid
    >>> table, grid = np.array([[[2, 0], [0, 2]], [[0, 2], [2, 0]]]), Grid.flat((2, 2, 2))
    >>> totals = [Totals(view, grid.sum(table, view)) for view in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    >>> problem = pose(grid, table + 0.1, totals)
    >>> improve(
    ...     problem, project(problem), table[::-1], time.monotonic() + 10
    ... ).tolist() == table.tolist()
    True
    """
    grid = problem.grid
    moves: list[tuple[Totals, View]] = []
    for total in problem.totals:
        other_margins = [other.view for other in problem.totals if other is not total]
        other_views = join(*other_margins)
        # Where the other margins together name every cell, nothing is left to move.
        if other_views != grid.full:
            moves.append((total, other_views))
    idle, turn = 0, 0
    while idle < len(moves) and time.monotonic() < deadline:
        total, other_views = moves[turn % len(moves)]
        turn += 1
        progress("improving the table", turn, None)
        fixed = Totals(other_views, grid.sum(counts, other_views))
        flow = Flow.from_problem(problem, start.levels, fixed, total)
        better, gain, _ = flow.improve_table(counts[problem.allowed], 1)
        counts = problem.fill_allowed(better)
        idle = 0 if gain else idle + 1
    return counts


@cache
def _solver() -> Any:
    """Return the solver class of ortools. Its bindings raise deprecation warnings of their own when
    first imported.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from ortools.graph.python import min_cost_flow

    return min_cost_flow.SimpleMinCostFlow
