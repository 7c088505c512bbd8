"""Integer fits: by thresholds for one margin and flows for two, both exactly; by flows inside flows
for more; of large tables in linear time, by rounding; and as integer programs.

A flow carries records from rows to columns, and a cell's next record costs more than its last, so a
table is optimal when no cycle of single records improves it. Cells are a list with a row and a
column each: groups may have any size.

For two or more margins that overlap only in a common part, the real-valued fit is rounded, its
levels are adjusted until the rounded table nearly has the totals, and single records move between
cells until it has them exactly. Programs are for margins that do not nest into flows, and for
proofs of small tables: each record that a cell may gain or lose near the real-valued fit is a
variable of its own, with its own cost. SciPy's HiGHS solves the program within limits; the caller
handles what it cannot settle.
"""

import math
import operator
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import count
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.exact import bisection
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import (
    Counts,
    Grid,
    Totals,
    View,
    common_part,
    join,
    junction_order,
    meet,
    trimmed_view,
)
from semidp.publish.fitting.real import (
    WORD_BITS,
    Block,
    Floats,
    Infeasible,
    Newton,
    Problem,
    RealFit,
    approach,
    has_few_totals,
    lagrangian,
    pose,
    water_level,
)

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

    # The real-valued level is near the threshold, so the search around it is short.
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
    # The two thresholds are one unit apart, so all records between them cost the same: any of
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


@frozen(eq=False)
class Flow:
    """Flow of records from rows to columns through cells, for two margins: every cell lies in one
    row and one column.

    The k-th record of a cell (from 0) costs ``first + k * unit``, where the multipliers of a
    projection are already taken off, so costs are small near the optimum. Cells between one
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

        The multipliers of each margin are rounded by themselves, so what is taken off a cell
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

        Steps of more than one record enter at their mean cost, an upper bound that is exact if
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
        """Return some table that meets the sums: cheap, though perhaps not the cheapest."""
        nearest = np.clip(np.rint(lifted), 0, self._most())
        centre = nearest.astype(np.int64)
        arcs, low = self._steps(centre, FARTHEST)
        answer = self._solve(low, arcs, self.dearest)
        if answer is None:
            raise Infeasible
        return answer

    def round_nearby(self, lifted: Floats) -> Counts | None:
        """Return the best table within one or two records of max(0, lifted), or None if there is
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
    """Return a table that has all totals, close to the real table `target`; None if the nesting
    does not work.

    The joint counts of the first two margins are a flow; with them fixed, so are those of the first
    three, and so on. Each step is feasible if the margins are decomposable and no cell is
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


SHIFT_STEPS = 8  # halvings of the common shift of all levels
THRESHOLD_STEPS = 12  # steps of the levels towards a rounded table that has the totals
APART = 0.1  # how far whole noisy values are moved apart before they are rounded
REPAIRABLE = 4  # records missing or too many a margin cell that are left to the repair
ROUNDS = 30  # passes of moves before the repair is given up: one or two are usual
# places looked at for moves between two margin cells, four times as many in each later pass
CANDIDATES = 4_096
PLACES_A_RECORD = 16  # places looked at for each of these moves


def roundable(problem: Problem) -> bool:
    """Whether a rounded table can be repaired: margins are disjoint except for a common part,
    totals are few, and no cell is closed.

    >>> from semidp.publish.fitting.real import pose
    >>> from semidp.promise.schema.margins import Grid
    >>> ones = [
    ...     Totals(view, np.full(shape, 50))
    ...     for view, shape in [((1, 0), (500, 1)), ((0, 1), (1, 500))]
    ... ]
    >>> roundable(pose(Grid.flat((500, 500)), np.zeros((500, 500)), ones))
    True
    """
    return can_round(problem.grid, problem.views) and not problem.in_doubt


def can_round(grid: Grid, views: Sequence[View]) -> bool:
    """Whether a table with these margins is rounded if no cell is closed."""
    if len(views) < 2 or common_part(views) is None:
        return False
    return has_few_totals(grid, views)


def round_table(
    problem: Problem, start: RealFit, progress: Progress = silent
) -> tuple[Counts, list[Floats]] | None:
    """Return a table of whole numbers with all totals, and the levels at which it was rounded; None
    if the repair gave up.

    Each cell is rounded to the nearest whole number, the optimum for these levels without the
    totals. A move of the levels by one would add about one record to every cell above zero, as in
    the real-valued fit, so Newton's method brings the sums close. Then each margin is repaired
    by itself: a record goes from a margin cell that has too many to one that lacks some, at the
    same place in all other margins, where that costs least.

    >>> from semidp.publish.fitting.real import pose
    >>> from semidp.publish.fitting.real import project
    >>> from semidp.promise.schema.margins import Grid
    >>> table, grid = np.arange(27).reshape(3, 3, 3), Grid.flat((3, 3, 3))
    >>> totals = [Totals(view, grid.sum(table, view)) for view in [(1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    >>> problem = pose(grid, table[::-1] + 0.4, totals)
    >>> counts, _ = round_table(problem, project(problem))
    >>> any(gap.any() for gap in problem.missing(counts))
    False
    """
    spread = _spread(problem)
    levels = _thresholds(spread, start, progress)
    counts = np.zeros(problem.grid.shape, dtype=np.int64)
    for block in problem.slabs:
        cells = block.margin_slices(problem.grid.full)
        counts[cells] = spread.nearest(levels, block, whole=True)
    del spread  # as large as the table, which a part of the repair may be, too
    parts = problem.grid.count_margin_cells(problem.common)
    # The repair prices moves by the noisy values themselves, not by those moved apart.
    for number, (block, part, near) in enumerate(problem.parts(levels)):
        progress("repairing the rounding", number, parts)
        cells = block.margin_slices(problem.grid.full)
        repair = _Repair(part, part.lift_cells(near), counts[cells], problem.common)
        if not repair.run():
            return None
    return counts, levels


def _spread(problem: Problem) -> Problem:
    """Move whole noisy values apart a little, evenly along every feature. Otherwise ties would all
    be rounded the same way.

    The fractions of the multiples of the golden ratio are spread evenly over every run and every
    step of cells.
    """
    if problem.bits > 0:
        return problem
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    apart = np.arange(problem.noisy.size) * golden
    apart -= np.floor(apart)
    apart -= 0.5
    apart *= APART
    noisy = problem.noisy + apart.reshape(problem.noisy.shape)
    return Problem(problem.grid, noisy, problem.allowed, problem.totals)


def _thresholds(problem: Problem, start: RealFit, progress: Progress) -> list[Floats]:
    """Return levels at which the rounded table nearly has the totals.

    A step of the levels adds about as many records for each cell above zero as it is long, but more
    where whole noisy values wait for the same threshold: see `_shift`.
    """
    newton = Newton(problem, math.inf, progress)
    active = newton.active(start.levels)
    levels, added = list(start.levels), 1.0
    if start.problem.bits == 0:
        levels[0], added = _shift(newton, levels, progress)
        active_cells = float(active[problem.views[0]].sum())
        added = max(1.0, added / max(1.0, active_cells))
    best, least, idle = levels, math.inf, 0
    for step in range(THRESHOLD_STEPS):
        progress("rounding the table", step, THRESHOLD_STEPS)
        missing = newton.missing(levels, whole=True)
        lacking = sum(float(np.abs(gap).sum()) for gap in missing)
        idle = 0 if lacking < least else idle + 1
        if lacking < least:
            best, least = levels, lacking
        margin_cells = sum(gap.size for gap in missing)
        if lacking <= REPAIRABLE * margin_cells or idle == 2:
            break
        way, _ = newton.gradients(active, missing)
        steps = [part / added for part in way]
        levels = [level + step for level, step in zip(levels, steps, strict=True)]
    return best


def _shift(newton: Newton, levels: Sequence[Floats], progress: Progress) -> tuple[Floats, float]:
    """Return the first levels, with all cells shifted so that n is nearly met, and how many records
    a unit of shift adds.

    Whole noisy values under nearly equal levels are rounded up or down all together, so the
    levels of the real-valued fit may be far from any that give the right number of records.
    """

    @cache  # a pass over the table: the ends are asked again for their values
    def lacking(shift: float) -> float:
        shifted = [levels[0] + shift, *levels[1:]]
        missing = newton.missing(shifted, whole=True)
        return float(missing[0].sum())

    steps = count()

    def too_low(shift: float) -> bool:
        progress("shifting the table", next(steps), SHIFT_STEPS)
        return lacking(shift) > 0

    low, high = bisection(too_low, -0.5, 0.5, SHIFT_STEPS)
    records_a_unit = (lacking(low) - lacking(high)) / (high - low)
    return levels[0] + (low + high) / 2, records_a_unit


@frozen(eq=False)
class _Repair:
    """Repair of one part of a problem by moves of single records. A cell with x records at level z
    costs (x - z)².
    """

    problem: Problem
    lifted: Floats
    counts: Counts
    common: View

    def run(self) -> bool:
        """Give the table its totals; return whether that succeeded."""
        # Moves keep the number of records, so it must be right before the first of them.
        self.meet_n()
        for total in self.problem.totals:
            for turn in range(ROUNDS):
                held = self.problem.grid.sum(self.counts, total.view)
                lacking = (total.counts - held).ravel()
                if not lacking.any():
                    break
                # A move stays at its place in all other margins, so those met before stay met.
                for donor, receiver, records in _pairs(lacking):
                    self.move(total, donor, receiver, records, CANDIDATES << 2 * turn)
            else:
                return False
        return True

    def meet_n(self) -> None:
        """Add or take the cheapest records until their number is right."""
        n = self.problem.totals[0].counts.sum()
        while lacking := int(n - self.counts.sum()):
            sign = 1 if lacking > 0 else -1
            cost = sign * (self.counts - self.lifted)
            if sign < 0:
                cost[self.counts == 0] = np.inf
            chosen = _cheapest(cost.ravel(), abs(lacking))
            self.counts[np.unravel_index(chosen, self.counts.shape)] += sign

    def move(self, total: Totals, donor: int, receiver: int, records: int, places: int) -> None:
        """Move records, at most one from each table cell, between two cells of a margin at the
        least cost.

        A place says where a cell lies along all features but those of this margin. About so many
        are looked at, and some for each record. If a place has several cells, the cheapest give
        to the cheapest.
        """
        grid = self.problem.grid
        below_common = [depth > self.common[axis] for axis, depth in enumerate(total.view)]
        deeper = np.flatnonzero(below_common).tolist()
        other_axes = [axis for axis in range(len(grid.shape)) if axis not in deeper]
        front = range(len(deeper))
        longest = max(other_axes, key=lambda axis: grid.shape[axis])
        # A large table has far more places than records to move: some of them are enough.
        all_places = math.prod(grid.shape[axis] for axis in other_axes)
        every = max(1, all_places // max(places, PLACES_A_RECORD * records))
        # Each pair begins at another place, so not all moves fall on the same cells.
        first = (donor + receiver) % min(every, grid.shape[longest])
        some = slice(first, None, every)
        costs, tables = [], []
        for node, sign in ((donor, -1), (receiver, 1)):
            position = np.unravel_index(node, total.counts.shape)
            block = Block.from_margin_cell(grid, total.view, tuple(map(int, position)))
            ranges = list(block.margin_slices(grid.full))
            ranges[longest] = some
            table = np.moveaxis(self.counts[tuple(ranges)], deeper, front)
            lifted = np.moveaxis(self.lifted[tuple(ranges)], deeper, front)
            cost = sign * (table - lifted)
            if sign < 0:
                cost[table == 0] = np.inf
            cells_a_place = math.prod(table.shape[: len(deeper)])
            costs.append(cost.reshape(cells_a_place, -1))
            tables.append(table)
        ranks = min(map(len, costs))
        # One cell a place needs no sorting.
        if ranks == 1:
            leaves = [cost.argmin(axis=0)[None] for cost in costs]
        else:
            leaves = [cost.argsort(axis=0)[:ranks] for cost in costs]
        each = []
        for cost, leaf in zip(costs, leaves, strict=True):
            each.append(np.take_along_axis(cost, leaf, axis=0))
        chosen = _cheapest((each[0] + each[1]).ravel(), records)
        places_looked_at = each[0].shape[1]
        place_shape = tables[0].shape[len(deeper) :]
        place = np.unravel_index(chosen % places_looked_at, place_shape)
        for table, leaf, sign in zip(tables, leaves, (-1, 1), strict=True):
            leaf_shape = table.shape[: len(deeper)]
            leaf_place = np.unravel_index(leaf.ravel()[chosen], leaf_shape)
            table[(*leaf_place, *place)] += sign


def _cheapest(cost: Floats, number: int) -> Counts:
    """Return the positions of the `number` smallest finite costs, or of all of them."""
    if number < len(cost):
        chosen = np.argpartition(cost, number - 1)[:number]
    else:
        chosen = np.arange(len(cost))
    return chosen[np.isfinite(cost[chosen])]


def _pairs(lacking: Counts) -> Iterator[tuple[int, int, int]]:
    """Return triples (donor, receiver, number of records). A donor has too many records: it lacks a
    negative number.

    >>> list(_pairs(np.array([2, -3, 1])))
    [(1, 0, 2), (1, 2, 1)]
    """
    left = lacking.tolist()
    donors: Sequence[int] = np.flatnonzero(lacking < 0).tolist()
    receivers: Sequence[int] = np.flatnonzero(lacking > 0).tolist()
    giving, taking = iter(donors), iter(receivers)
    donor, receiver = next(giving, None), next(taking, None)
    while donor is not None and receiver is not None:
        records = min(-left[donor], left[receiver])
        yield donor, receiver, records
        left[donor] += records
        left[receiver] -= records
        donor = donor if left[donor] else next(giving, None)
        receiver = receiver if left[receiver] else next(taking, None)


VARIABLES = 20_000  # a program with more is not tried
NODES = 20_000  # branching nodes, a limit that does not depend on the machine
FIRST_GAP = 1e-3  # how close to its optimum a first program must come
WIDTHS = (1.5, 4.5)  # how far from the real-valued fit to look for a first table


def prove(
    problem: Problem,
    start: RealFit,
    known: Counts | None,
    deadline: float,
    progress: Progress = silent,
) -> tuple[Counts | None, bool]:
    """Return the best table that integer programs find, and whether it is optimal; `known` if they
    find no better one.

    One program is solved for each cell of what all margins share. None means that there is one for
    which no table was found.

    >>> from semidp.publish.fitting.real import pose
    >>> from semidp.publish.fitting.real import project
    >>> from semidp.promise.schema.margins import Grid, Totals
    >>> table, grid = np.array([[[1, 0], [0, 1]], [[0, 2], [1, 1]]]), Grid.flat((2, 2, 2))
    >>> totals = [Totals(view, grid.sum(table, view)) for view in [(1, 1, 0), (1, 0, 1), (0, 1, 1)]]
    >>> problem = pose(grid, table + 0.25, totals)
    >>> counts, proved = prove(problem, project(problem), None, time.monotonic() + 10)
    >>> bool((counts == table).all()), proved
    (True, True)
    """
    counts = np.zeros(problem.grid.shape, dtype=np.int64)
    proved = True
    for block, part, levels in problem.parts(start.levels):
        cells = block.margin_slices(problem.grid.full)
        program = _IntegerProgram(part, levels, deadline, progress)
        known_part = None if known is None else known[cells]
        solution, sure = program.solve(known_part)
        if solution is None:
            return None, False
        counts[cells] = solution
        proved &= sure
    return counts, proved


@frozen(slots=False, eq=False)
class _IntegerProgram:
    problem: Problem
    levels: list[Floats]
    deadline: float
    progress: Progress

    def solve(self, known: Counts | None) -> tuple[Counts | None, bool]:
        """Return the best table (`known` if none is better) and whether it is proved to be
        optimal.

        A better table than one of loss F has (x - z)² - min (x - z)² ≤ F less the Lagrangian bound
        in every cell, so a program that looks that far proves its answer.
        """
        table = self.first() if known is None else known
        if table is None:
            return None, False
        loss = self.problem.loss(table)
        bound = lagrangian(self.problem, self.levels, whole=True)
        slack = max(0.0, loss - bound)
        # For z > 0 the nearest whole number is at most a half away: min (x - z)² is at most 1/4.
        width = math.sqrt(slack + 0.25) + 1e-6
        low, high = self.lifted_cells - width, _farthest(self.lifted_cells, width)
        solution, proved = self.between(low, high, 0.0)
        if solution is None:
            # The program that would prove is too large or took too long. A smaller one may still
            # improve.
            near = table[self.problem.allowed].astype(np.float64)
            solution, _ = self.between(near - 2, near + 2, 0.0)
            proved = False
        if solution is None or self.problem.loss(solution) > loss:
            return table, False
        return solution, proved

    def first(self) -> Counts | None:
        """Return a table near the real-valued fit, or any."""
        for width in WIDTHS:
            highest = np.maximum(self.lifted_cells, 0.0) + width
            solution, _ = self.between(self.lifted_cells - width, highest, FIRST_GAP)
            if solution is not None:
                return solution
        # No table was found near the fit: take any, with few records where the fit is negative.
        matrix, margins = self.problem.matrix, self.problem.positive_totals
        costs = np.maximum(-self.lifted_cells, 0.0)
        filled, _ = self.cheapest(costs, np.inf, matrix, margins, FIRST_GAP)
        return None if filled is None else self.verify_table(filled)

    @cached_property
    def lifted_cells(self) -> Floats:
        """The cells z = y + Aᵀθ that may be filled, in the array's order."""
        return self.problem.lift_cells(self.levels)[self.problem.allowed]

    def between(self, lowest: Floats, highest: Floats, gap: float) -> tuple[Counts | None, bool]:
        """Return the closest table within these limits for each cell that may be filled."""
        low = np.maximum(np.ceil(lowest), 0.0)
        size = np.maximum(np.floor(highest) - low, 0.0)
        if size.sum() > VARIABLES:
            return None, False
        # a variable for each record: its cell, and its number in the cell
        cell = np.repeat(np.arange(size.size), size.astype(np.int64))
        first_variable = size.cumsum() - size
        record = low[cell] + np.arange(cell.size) - first_variable[cell]
        matrix = self.problem.matrix
        # Each further record of a cell costs more, so an optimum takes them in their order.
        costs = 2.0 * (record - self.lifted_cells[cell]) + 1.0
        missing = self.problem.positive_totals - matrix @ low
        added, proved = self.cheapest(costs, 1.0, matrix[:, cell], missing, gap)
        if added is None:
            return None, False
        counts = self.verify_table(low + np.bincount(cell, added, low.size))
        return counts, proved and counts is not None

    def verify_table(self, filled: Floats) -> Counts | None:
        """Return the cells as a table if they meet the sums as integers: the solver works in
        floating point.
        """
        counts = self.problem.fill_allowed(filled)
        has_gap = any(gap.any() for gap in self.problem.missing(counts))
        return None if has_gap else counts

    def cheapest(
        self, costs: Floats, most: float, matrix: Any, wanted: Floats, gap: float
    ) -> tuple[Floats | None, bool]:
        """Return whole numbers up to `most` that cost least and meet the sums, reporting to
        `progress`.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        left = self.deadline - time.monotonic()
        if costs.size == 0:
            return (costs, True) if not wanted.any() else (None, False)
        if left <= 0:
            return None, False
        integrality = np.ones(costs.size, dtype=np.int64)
        constraint = LinearConstraint(matrix, wanted, wanted)

        def solve() -> Any:
            return milp(
                costs,
                integrality=integrality,
                bounds=Bounds(0.0, most),
                constraints=constraint,
                options={"time_limit": left, "node_limit": NODES, "mip_rel_gap": gap},
            )

        def tell(seconds: float) -> None:
            self.progress("solving an integer program", seconds, None)

        answer = _while_telling(solve, tell)
        if answer.x is None:
            return None, False
        return np.rint(answer.x), answer.status == 0


def _while_telling(work: Callable[[], Any], tell: Callable[[float], None]) -> Any:
    """Do the work in a thread of its own (HiGHS lets others run) and report every second until it
    is done.
    """
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while True:
            try:
                return future.result(timeout=1.0)
            except TimeoutError:
                tell(time.monotonic() - begun)


def _farthest(lifted: Floats, width: float) -> Floats:
    """Return z + width, or for negative z the largest x with x² - 2xz ≤ width²."""
    below = np.minimum(lifted, 0.0)
    farthest_below = below + np.sqrt(below * below + width * width)
    return np.where(lifted > 0, lifted + width, farthest_below)
