"""The real-valued fit: projection onto the nonnegative tables with given sums.

Its distance is the lower bound that integer fits are held against, and its multipliers are where they start. Whole
numbers live in `flows`, `search` and `programs`.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from semidp.errors import InputError
from semidp.fit.problem import INFEASIBLE, Floats, Problem, Sums
from semidp.progress import Progress, silent

TOLERANCE = 1e-12  # the residual of a sum, relative to the largest total (and a little to the largest value)
GOOD = 1e-9  # a residual that counts as met; beyond it the totals may contradict each other
FIRST_STEPS = 15  # Newton steps before the detour over smaller noise
STAGE_STEPS = 60  # Newton steps at each stage of the detour
STAGE = 4.0  # how much larger the noise is from one stage to the next
GRADIENT_STEPS = 60  # conjugate gradient steps before a factorisation
EXACT_ENOUGH, USEFUL = 1e-20, 1e-8  # squared relative residuals at which they end early, or end well
DENSE = 0.1  # the share of entries that are not zero from which on the factorisation is dense


@dataclass(frozen=True)
class Projection:
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


def project(problem: Problem, deadline: float = math.inf, progress: Progress = silent) -> Projection:
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
    >>> rows, columns = Sums((0,), np.array([[2], [2]])), Sums((1,), np.array([[2, 2]]))
    >>> project(pose(np.array([[3.0, 0.0], [0.0, 3.0]]), None, [rows, columns])).table.round(6)
    array([[2., 0.],
           [0., 2.]])
    """
    solver = _Newton(problem, deadline, progress)
    first = solver.run(solver.values, None, FIRST_STEPS)
    if first.met or len(problem.sums) == 1:
        return first
    share = min(1.0, solver.largest_total / solver.largest_value)
    stage = solver.run(solver.values * share, None, STAGE_STEPS)
    while share < 1.0:
        grown = min(1.0, share * STAGE)
        start = [level * (grown / share) for level in stage.levels]
        stage, share = solver.run(solver.values * grown, start, STAGE_STEPS), grown
    if not stage.met and problem.in_doubt and not feasible(problem):
        raise InputError(INFEASIBLE)
    return stage


def approach(problem: Problem, progress: Progress = silent) -> Projection:
    """Return the projection after a few Newton steps: its bound holds, its sums may be missed.

    >>> from semidp.fit.problem import pose
    >>> approach(pose(np.array([2.0, 0.0]), None, [Sums((), np.array([4]))])).table
    array([3., 1.])
    """
    solver = _Newton(problem, math.inf, progress)
    return solver.run(solver.values, None, FIRST_STEPS)


def lagrangian(problem: Problem, table: Floats, levels: Sequence[Floats]) -> float:
    """Return the lower bound ‖x - y‖² + 2 θ·(t - A x) of a table x = max(0, y + Aᵀθ).

    >>> from semidp.fit.problem import pose
    >>> problem = pose(np.array([2.0, 0.0]), None, [Sums((), np.array([4]))])
    >>> lagrangian(problem, np.array([2.5, 0.5]), [np.array([0.5])])  # not converged, so below the loss of 2
    1.5
    """
    missing = [sums.totals - sums.of(table) for sums in problem.sums]
    return max(0.0, problem.loss(table) + 2 * _dot(levels, missing))


def water_level(values: Floats, totals: Floats) -> Floats:
    """Return for each row the level θ with Σ max(0, v + θ) = total; a row of minus infinities gets 0.

    The sorted prefix rule of Held, Wolfe and Crowder (1974) for the projection onto a simplex.

    >>> water_level(np.array([[3.0, 1.0, -5.0]]), np.array([2.0]))
    array([-1.])
    """
    top = values.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    ordered = -np.sort(top - values, axis=1)
    below = np.where(np.isfinite(ordered), ordered, 0.0)
    levels = (totals[:, None] - below.cumsum(axis=1)) / np.arange(1, values.shape[1] + 1)
    wet = (ordered + levels > 0).sum(axis=1)
    level = np.take_along_axis(levels, np.maximum(wet - 1, 0)[:, None], axis=1)[:, 0]
    return np.where(wet > 0, level - top[:, 0], 0.0)


def feasible(problem: Problem) -> bool:
    """Whether some nonnegative real table meets the sums (a linear program).

    >>> from semidp.fit.problem import pose
    >>> feasible(pose(np.zeros(2), None, [Sums((), np.array([4]))]))
    True
    """
    from scipy.optimize import linprog

    matrix = equations(problem)
    answer = linprog(np.zeros(matrix.shape[1]), A_eq=matrix, b_eq=totals(problem), bounds=(0, None), method="highs")
    return bool(answer.status != 2)


def equations(problem: Problem) -> Any:
    """Return the sums as a sparse matrix with a column for each allowed cell, in the array's order.

    >>> from semidp.fit.problem import pose
    >>> rows, columns = Sums((0,), np.array([[1], [1]])), Sums((1,), np.array([[1, 1]]))
    >>> equations(pose(np.zeros((2, 2)), None, [rows, columns])).toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 0, 1, 1],
           [1, 0, 1, 0],
           [0, 1, 0, 1]])
    """
    from scipy.sparse import csc_array

    cells = np.flatnonzero(problem.allowed)
    rows, offset = [], 0
    for sums in problem.sums:
        labels = np.arange(sums.totals.size).reshape(sums.totals.shape)
        rows.append(offset + np.broadcast_to(labels, problem.allowed.shape).ravel()[cells])
        offset += sums.totals.size
    where = (np.concatenate(rows), np.tile(np.arange(cells.size), len(rows)))
    return csc_array((np.ones(where[0].size), where), shape=(offset, cells.size))


def totals(problem: Problem) -> Floats:
    """Return the totals in the order of the rows of `equations`.

    >>> from semidp.fit.problem import pose
    >>> totals(pose(np.zeros(2), None, [Sums((0,), np.array([1, 2]))]))
    array([1., 2.])
    """
    return np.concatenate([sums.totals.ravel() for sums in problem.sums]).astype(np.float64)


class _Newton:
    """Newton's method for A max(0, y + Aᵀθ) = t, with θ a list of arrays, one for each family of sums."""

    def __init__(self, problem: Problem, deadline: float, progress: Progress) -> None:
        self.problem, self.sums = problem, problem.sums
        self.deadline, self.progress = deadline, progress
        self.values = problem.values
        self.largest_total = max(1.0, *(float(sums.totals.max()) for sums in self.sums))
        self.largest_value = max(1.0, float(np.abs(problem.noisy).max()))
        self.steps = 0

    @cached_property
    def matrix(self) -> Any:
        return equations(self.problem)

    def run(self, values: Floats, levels: Sequence[Floats] | None, steps: int) -> Projection:
        """Return the best projection of `values` met on at most so many steps from `levels`."""
        self.progress("projecting the table", self.steps, None)
        if levels is None:
            levels = [np.zeros(sums.totals.shape) for sums in self.sums]
            for _ in range(1 if len(self.sums) == 1 else 3):
                levels = self.sweep(values, levels)
        scale = self.largest_total + 1e-4 * float(np.abs(values[self.problem.allowed]).max(initial=0.0))
        best, least = levels, math.inf
        for _ in range(steps + 1):
            lifted = values + sum(levels)
            missing = self.missing(np.maximum(lifted, 0.0))
            residual = max(float(np.abs(gap).max()) for gap in missing) / scale
            stuck = residual > 0.5 * least and least <= GOOD
            if residual < least:
                best, least = levels, residual
            if least <= TOLERANCE or stuck or time.monotonic() > self.deadline:
                break
            levels = self.step(lifted, levels, missing, residual > GOOD)
        table = np.maximum(values + sum(best), 0.0)
        return Projection(table, tuple(best), lagrangian(self.problem, table, best), least)

    def missing(self, table: Floats) -> list[Floats]:
        return [sums.totals - sums.of(table) for sums in self.sums]

    def sweep(self, values: Floats, levels: Sequence[Floats]) -> list[Floats]:
        """Meet one family of sums after the other exactly: coordinate ascent, slow but sure."""
        lifted, raised = values + sum(levels), []
        for sums, level in zip(self.sums, levels, strict=True):
            others = [axis for axis in range(values.ndim) if axis not in sums.axes]
            flat = lifted.transpose(*sums.axes, *others).reshape(sums.totals.size, -1)
            step = water_level(flat, sums.totals.ravel().astype(np.float64)).reshape(sums.totals.shape)
            raised.append(level + step)
            lifted = lifted + step
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
        rise = sum(direction, np.zeros(lifted.shape))
        want = sum(float((way * sums.totals).sum()) for way, sums in zip(direction, self.sums, strict=True))

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

        The matrix is the counts of active cells in each pair of sums: small for one-way sums of a large table.
        """
        joint = [[_joint(active, one, other) for other in self.sums] for one in self.sums]
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
            image = [
                np.sum([sums.of(counts * part) for counts, part in zip(row, search, strict=True)], axis=0)
                for sums, row in zip(self.sums, joint, strict=True)
            ]
            curvature = _dot(search, image)
            if curvature <= 1e-14 * _dot(search, search):
                break
            way = [a + (size / curvature) * b for a, b in zip(way, search, strict=True)]
            residual = [a - (size / curvature) * b for a, b in zip(residual, image, strict=True)]
        return way, size <= USEFUL * first

    def factorised(self, active: np.ndarray, missing: list[Floats]) -> list[Floats]:
        """Solve the same by factoring the matrix plus a little: sums of sums agree, so it is singular."""
        part = self.matrix[:, np.flatnonzero(active[self.problem.allowed])]
        square = (part @ part.T).tocsc()
        right = np.concatenate([gap.ravel() for gap in missing])
        solve = _factor(square)
        answer = solve(right)
        for _ in range(2):
            answer += solve(right - square @ answer)
        parts = np.split(answer, np.cumsum([gap.size for gap in missing])[:-1])
        return [piece.reshape(gap.shape) for piece, gap in zip(parts, missing, strict=True)]


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


def _joint(active: Floats, one: Sums, other: Sums) -> Floats:
    return Sums(tuple(sorted({*one.axes, *other.axes})), one.totals).of(active)


def _dot(one: Sequence[Floats], other: Sequence[Floats]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(one, other, strict=True))
