"""The real-valued fit: projection onto the nonnegative tables with given totals.

Its distance is the lower bound that integer fits are held against, and its multipliers are where they start. Whole
numbers are in `flows`, `rounding` and `programs`.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semidp.fit.problem import Floats, Infeasible, Problem
from semidp.geometry import Grid, Totals, join
from semidp.progress import Progress, silent

TOLERANCE = 1e-12  # the residual of a sum, relative to the largest total (and a little to the largest value)
GOOD = 1e-9  # a residual that counts as met; beyond it the totals may contradict each other
FIRST_STEPS = 15  # Newton steps before the detour over smaller noise
STAGE_STEPS = 60  # Newton steps at each stage of the detour
STAGE = 4.0  # how much larger the noise is from one stage to the next
GRADIENT_STEPS = 60  # conjugate gradient steps before a factorisation
EXACT_ENOUGH, USEFUL = 1e-20, 1e-8  # squared relative residuals at which they end early, or end well
DENSE = 0.1  # the share of entries that are not zero from which on the factorisation is dense
LEVEL_STEPS = 200  # steps to a water level; about ten are usual


@dataclass(frozen=True, eq=False)
class RealFit:
    """The closest real table max(0, y + Σ levels), and a squared distance below which no table comes.

    `residual` says how far the sums are from their totals, relative to the largest value.
    """

    table: Floats
    levels: tuple[Floats, ...]
    bound: float
    residual: float

    @property
    def met(self) -> bool:
        """Whether the sums are met up to rounding."""
        return self.residual <= GOOD


def project(problem: Problem, deadline: float = math.inf, progress: Progress = silent) -> RealFit:
    """Return the closest nonnegative real table, by a semismooth Newton method on the multipliers of the sums.

    With multipliers θ the closest table is x = max(0, y + Aᵀθ), where A takes the sums, and θ solves A x(θ) = t. The
    bound is the Lagrangian ‖x - y‖² + 2 θ·(t - A x), which is below every feasible loss for every θ, converged or
    not. Where the noise dwarfs the totals, Newton's method starts from smaller noise and lets it grow.

    Parameters
    ----------
    problem
        What to fit.
    deadline
        The `time.monotonic()` at which to stop and return what there is.
    progress
        Told of each step.

    Examples
    --------
    >>> from semidp.fit.problem import pose
    >>> twos = [Totals((1, 0), np.array([[2], [2]])), Totals((0, 1), np.array([[2, 2]]))]
    >>> project(pose(Grid.flat((2, 2)), np.array([[3.0, 0.0], [0.0, 3.0]]), twos)).table.round(6)
    array([[2., 0.],
           [0., 2.]])
    """
    solver = _Newton(problem, deadline, progress)
    first = solver.run(problem.values, None, FIRST_STEPS)
    if first.met or len(problem.totals) == 1:
        return first
    share = min(1.0, solver.largest_total / solver.largest_value)
    stage = solver.run(problem.values * share, None, STAGE_STEPS)
    while share < 1.0:
        grown = min(1.0, share * STAGE)
        start = [level * (grown / share) for level in stage.levels]
        stage, share = solver.run(problem.values * grown, start, STAGE_STEPS), grown
    if not stage.met and problem.in_doubt and not feasible(problem, deadline):
        raise Infeasible
    return stage


def approach(problem: Problem, progress: Progress = silent) -> RealFit:
    """Return the projection after a few Newton steps: its bound holds, its sums may be missed.

    >>> from semidp.fit.problem import pose
    >>> approach(pose(Grid.flat((2,)), np.array([2.0, 0.0]), [Totals((0,), np.array([4]))])).table
    array([3., 1.])
    """
    return _Newton(problem, math.inf, progress).run(problem.values, None, FIRST_STEPS)


def lagrangian(problem: Problem, table: Floats, levels: Sequence[Floats]) -> float:
    """Return the lower bound ‖x - y‖² + 2 θ·(t - A x) of a table x = max(0, y + Aᵀθ).

    >>> from semidp.fit.problem import pose
    >>> problem = pose(Grid.flat((2,)), np.array([2.0, 0.0]), [Totals((0,), np.array([4]))])
    >>> lagrangian(problem, np.array([2.5, 0.5]), [np.array([0.5])])  # not converged, so below the loss of 2
    1.5
    """
    return max(0.0, problem.loss(table) + 2 * _dot(levels, problem.missing(table)))


def water_level(grid: Grid, values: Floats, total: Totals) -> Floats:
    """Return for each cell of a margin the level θ with Σ max(0, v + θ) = total; 0 where the total is 0.

    Newton's method on a convex, piecewise linear function: from the level at which every cell is wet it falls, and
    dries cells, until it stands (Michelot, 1986). No sorting, so that groups of cells may have any size. Values of
    minus infinity stay dry.

    >>> water_level(Grid.flat((3,)), np.array([3.0, 1.0, -5.0]), Totals((0,), np.array([2])))
    array([-1.])
    """
    wet = values > -np.inf
    wanted = total.counts.astype(np.float64)
    cells = np.maximum(grid.sum(wet.astype(np.float64), total.view), 1.0)
    level: Floats = (wanted - grid.sum(np.where(wet, values, 0.0), total.view)) / cells
    level[total.counts == 0] = 0.0
    for _ in range(LEVEL_STEPS):
        filled = np.maximum(values + grid.spread(level, total.view), 0.0)
        over = grid.sum(filled, total.view) - wanted
        wet_cells = grid.sum((filled > 0).astype(np.float64), total.view)
        lower = level - over / np.maximum(wet_cells, 1.0)
        falling = (lower < level) & (total.counts > 0)
        if not falling.any():
            break
        level = np.where(falling, lower, level)
    return level


def feasible(problem: Problem, deadline: float = math.inf) -> bool:
    """Whether some nonnegative real table has the totals (a linear program); true where time runs out.

    >>> from semidp.fit.problem import pose
    >>> feasible(pose(Grid.flat((2,)), np.zeros(2), [Totals((0,), np.array([4]))]))
    True
    """
    from scipy.optimize import linprog

    left = deadline - time.monotonic()
    if left <= 0:
        return True
    answer = linprog(
        np.zeros(problem.matrix.shape[1]),
        A_eq=problem.matrix,
        b_eq=problem.wanted,
        bounds=(0, None),
        method="highs",
        options={"time_limit": left} if left < math.inf else {},
    )
    return bool(answer.status != 2)


class _Newton:
    """Newton's method for A max(0, y + Aᵀθ) = t, with θ a list of arrays, one for each margin."""

    def __init__(self, problem: Problem, deadline: float, progress: Progress) -> None:
        self.problem, self.grid, self.totals = problem, problem.grid, problem.totals
        self.deadline, self.progress = deadline, progress
        self.largest_total = max(1.0, *(float(total.counts.max()) for total in self.totals))
        self.largest_value = max(1.0, float(np.abs(problem.noisy).max()))
        self.steps = 0

    def run(self, values: Floats, levels: Sequence[Floats] | None, steps: int) -> RealFit:
        """Return the best projection of `values` met on at most so many steps from `levels`."""
        self.progress("projecting the table", self.steps, None)
        if levels is None:
            levels = [np.zeros(total.counts.shape) for total in self.totals]
            for _ in range(1 if len(self.totals) == 1 else 3):
                levels = self.sweep(values, levels)
        scale = self.largest_total + 1e-4 * float(np.abs(values[self.problem.allowed]).max(initial=0.0))
        best, least = levels, math.inf
        for _ in range(steps + 1):
            lifted = self.problem.lifted(levels, values)
            missing = self.problem.missing(np.maximum(lifted, 0.0))
            residual = max(float(np.abs(gap).max()) for gap in missing) / scale
            stuck = residual > 0.5 * least and least <= GOOD
            if residual < least:
                best, least = levels, residual
            if least <= TOLERANCE or stuck or time.monotonic() > self.deadline:
                break
            levels = self.step(lifted, levels, missing, residual > GOOD)
        table = np.maximum(self.problem.lifted(best, values), 0.0)
        return RealFit(table, tuple(best), lagrangian(self.problem, table, best), least)

    def sweep(self, values: Floats, levels: Sequence[Floats]) -> list[Floats]:
        """Meet one margin after the other exactly: coordinate ascent, slow but sure."""
        lifted, raised = self.problem.lifted(levels, values), []
        for total, level in zip(self.totals, levels, strict=True):
            step = water_level(self.grid, lifted, total)
            raised.append(level + step)
            lifted = lifted + self.grid.spread(step, total.view)
        return raised

    def step(self, lifted: Floats, levels: Sequence[Floats], missing: list[Floats], far: bool) -> list[Floats]:
        """Go along Newton's direction up to its end, or to where the concave dual is highest before it.

        The direction comes from conjugate gradients, or while `far` from a factorisation where those are slow.
        """
        self.progress("projecting the table", self.steps, None)
        self.steps += 1
        active = lifted > 0
        direction, met = self.gradients(active.astype(np.float64), missing)
        if far and not met:
            direction = self.factorised(active, missing)
        rise = self.problem.lifted(direction, np.zeros(lifted.shape))
        want = sum(float((way * total.counts).sum()) for way, total in zip(direction, self.totals, strict=True))

        def slope(size: float) -> float:
            return want - float((rise * np.maximum(lifted + size * rise, 0.0)).sum())

        size = 1.0
        if slope(1.0) < -1e-9 * abs(slope(0.0)):
            low, high = 0.0, 1.0
            for _ in range(30):
                size = (low + high) / 2
                low, high = (size, high) if slope(size) > 0 else (low, size)
        return [level + size * way for level, way in zip(levels, direction, strict=True)]

    def gradients(self, active: Floats, missing: list[Floats]) -> tuple[list[Floats], bool]:
        """Solve A diag(active) Aᵀ d = missing by conjugate gradients, and say whether that succeeded.

        The matrix is the counts of active cells in each pair of margins: small for one-way sums of a large table.
        """
        views = self.problem.views
        joint = [[self.grid.sum(active, join(one, other)) for other in views] for one in views]
        weight = [np.maximum(row[i], 0.5) for i, row in enumerate(joint)]
        way = [np.zeros(gap.shape) for gap in missing]
        residual, search, size = missing, way, math.inf
        first = _dot(missing, [gap / count for gap, count in zip(missing, weight, strict=True)])
        for _ in range(GRADIENT_STEPS):
            scaled = [gap / count for gap, count in zip(residual, weight, strict=True)]
            size, before = _dot(residual, scaled), size
            if size <= EXACT_ENOUGH * first:
                return way, True
            search = [a + (size / before) * b for a, b in zip(scaled, search, strict=True)]
            image = [np.zeros(gap.shape) for gap in missing]
            for one, row, total in zip(views, joint, image, strict=True):
                for other, counts, part in zip(views, row, search, strict=True):
                    both = join(one, other)
                    total += self.grid.sum(counts * self.grid.spread(part, other, both), one, both)
            curvature = _dot(search, image)
            if curvature <= 1e-14 * _dot(search, search):
                break
            way = [a + (size / curvature) * b for a, b in zip(way, search, strict=True)]
            residual = [a - (size / curvature) * b for a, b in zip(residual, image, strict=True)]
        return way, size <= USEFUL * first

    def factorised(self, active: np.ndarray, missing: list[Floats]) -> list[Floats]:
        """Solve the same by factoring the matrix plus a little: sums of sums agree, so it is singular."""
        part = self.problem.matrix[:, np.flatnonzero(active[self.problem.allowed])]
        square = (part @ part.T).tocsc()
        there = [total.counts > 0 for total in self.totals]
        right = np.concatenate([gap[rows] for gap, rows in zip(missing, there, strict=True)])
        solve = _factor(square)
        answer = solve(right)
        for _ in range(2):
            answer += solve(right - square @ answer)
        way = [np.zeros(gap.shape) for gap in missing]
        parts = np.split(answer, np.cumsum([int(rows.sum()) for rows in there])[:-1])
        for whole, rows, piece in zip(way, there, parts, strict=True):
            whole[rows] = piece
        return way


def _factor(square: Any) -> Callable[[Floats], Floats]:
    size = square.shape[0]
    if square.nnz > DENSE * size * size:
        from scipy.linalg import cho_factor, cho_solve

        factor = cho_factor(square.toarray() + 1e-9 * np.eye(size), overwrite_a=True, check_finite=False)
        return lambda right: cho_solve(factor, right, check_finite=False)
    from scipy.sparse import diags_array
    from scipy.sparse.linalg import splu

    damped = (square + diags_array(np.full(size, 1e-9))).tocsc()
    options = {"SymmetricMode": True}
    return splu(damped, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options).solve


def _dot(one: Sequence[Floats], other: Sequence[Floats]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))
