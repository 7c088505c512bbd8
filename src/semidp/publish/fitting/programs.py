"""Integer fits as integer programs: for margins that do not nest into flows, and as a proof for
small tables.

Each record that a cell may gain or lose near the real-valued fit is a variable of its own, with its
own cost. SciPy's HiGHS solves the program within limits; what it cannot settle is left to the
caller.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Counts
from semidp.publish.fitting.problem import Floats, Problem
from semidp.publish.fitting.real import RealFit, lagrangian

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
