"""Integer fits that are no flows: of large tables in linear time, and as integer programs.

For two or more margins that share nothing but a common part, the real-valued fit is rounded, its
levels are moved until the rounded table nearly has the totals, and single records move between
cells until it has them exactly. Programs are for margins that do not nest into flows, and a proof
for small tables: each record that a cell may gain or lose near the real-valued fit is a variable of
its own, with its own cost. SciPy's HiGHS solves the program within limits; what it cannot settle is
left to the caller.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import Any

import numpy as np

from semidp.promise.exact import bisection
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Counts, Grid, Totals, View, common_part
from semidp.publish.fitting.problem import Block, Floats, Problem, has_few_totals
from semidp.publish.fitting.real import Newton, RealFit, lagrangian

SHIFT_STEPS = 8  # halvings of the common shift of all levels
THRESHOLD_STEPS = 12  # steps of the levels towards a rounded table that has the totals
APART = 0.1  # how far whole noisy values are moved apart before they are rounded
REPAIRABLE = 4  # records missing or too many a margin cell that are left to the repair
ROUNDS = 30  # passes of moves before the repair is given up: one or two are usual
# places looked at for moves between two margin cells, four times as many in each later pass
CANDIDATES = 4_096
PLACES_A_RECORD = 16  # places looked at for each of these moves


def roundable(problem: Problem) -> bool:
    """Whether a rounded table can be repaired: margins are disjoint but for a common part, totals
    are few, and no cell is closed.

    >>> from semidp.publish.fitting.problem import pose
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
    where the repair gave up.

    Each cell is rounded to the nearest whole number, the optimum for these levels without the
    totals. A move of the levels by one would add about one record to every cell above zero, as in
    the real-valued fit, so that Newton's method brings the sums close. Then each margin is repaired
    by itself: a record goes from a margin cell that has too many to one that lacks some, at the
    same place in all other margins, where that costs least.

    >>> from semidp.publish.fitting.problem import pose
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

    Whole noisy values under nearly equal levels are rounded up or down all together, so that the
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


@dataclass(frozen=True, eq=False)
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
        # Moves keep the number of records, so that it must be right before the first of them.
        self.meet_n()
        for total in self.problem.totals:
            for turn in range(ROUNDS):
                held = self.problem.grid.sum(self.counts, total.view)
                lacking = (total.counts - held).ravel()
                if not lacking.any():
                    break
                # A move stays at its place in all other margins, so that those met before stay met.
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
        """Move records, at most one from each table cell, between two cells of a margin where that
        costs least.

        A place says where a cell lies along all features but those of this margin. About so many
        are looked at, and some for each record. Where a place has several cells, the cheapest give
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
        # Each pair begins at another place, so that not all moves fall on the same cells.
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
    """Return the best table that integer programs find, and whether it is optimal; `known` where
    they find no better one.

    One program is solved for each cell of what all margins share. None means that there is one for
    which no table was found.

    >>> from semidp.publish.fitting.problem import pose
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


@dataclass(frozen=True, eq=False)
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
        # Each further record of a cell costs more, so that an optimum takes them in their order.
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
        """Return whole numbers up to `most` that cost least and meet the sums, telling `progress`
        how long it takes.
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
