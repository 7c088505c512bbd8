"""Linear programs over the polar of a ball: many objectives in a row in floating point, and
membership decided exactly.

The polar is given as rows ``lower <= A w <= upper`` and maximised with scipy's HiGHS: warm from the
last answer where scipy lets us, cold otherwise. What the answers prove about a point is up to the
balls that own the rows. Points that floating point cannot place are left to an exact simplex
method, which knows the polytope through a pricing function.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Optimum:
    """A point of the polar and the multipliers of its rows: neither is trusted before it was
    checked.
    """

    point: Floats
    multipliers: Floats


class LinearProgram:
    """``max <x, w>`` subject to ``lower <= A w <= upper``, for one x after another.

    >>> square = LinearProgram(np.eye(2), np.full(2, -1.0), np.ones(2))
    >>> square.solve(np.array([1.0, -2.0])).point
    array([ 1., -1.])
    >>> square.add(np.array([[1.0, -1.0]]))
    >>> square.solve(np.array([1.0, -1.0])).multipliers
    array([0., 0., 1.])
    """

    def __init__(self, matrix: Floats, lower: Floats, upper: Floats) -> None:
        self._matrix = matrix[:0]
        self._lower, self._upper = lower[:0], upper[:0]
        self._warm = _warm_solver(matrix.shape[1])
        self._append(matrix, lower, upper)

    def add(self, rows: Floats) -> None:
        """Add rows ``<row, w> <= 1``."""
        no_bound = np.full(len(rows), -np.inf)
        self._append(rows, no_bound, np.ones(len(rows)))

    def _append(self, rows: Floats, lower: Floats, upper: Floats) -> None:
        self._matrix = np.concatenate([self._matrix, rows])
        self._lower = np.concatenate([self._lower, lower])
        self._upper = np.concatenate([self._upper, upper])
        if self._warm is not None:
            at, column = np.nonzero(rows)
            row_numbers = np.arange(len(rows))
            starts = np.searchsorted(at, row_numbers).astype(np.int32)
            columns, entries = column.astype(np.int32), rows[at, column]
            self._warm.addRows(len(rows), lower, upper, len(at), starts, columns, entries)

    def solve(self, objective: Floats) -> Optimum | None:
        """Return an optimal answer, None where the solver does not claim one."""
        if self._warm is None:
            return self.solve_cold(objective)
        indices = np.arange(len(objective), dtype=np.int32)
        self._warm.changeColsCost(len(objective), indices, -objective)
        self._warm.run()
        if self._warm.getModelStatus() != _core().HighsModelStatus.kOptimal:
            self._warm.clearSolver()
            return self.solve_cold(objective)
        solution = self._warm.getSolution()
        return Optimum(np.array(solution.col_value), -np.array(solution.row_dual))

    def solve_cold(self, objective: Floats) -> Optimum | None:
        """Return the answer of a solver that has no memory of earlier objectives."""
        from scipy.optimize import linprog

        low = np.isfinite(self._lower)
        high = np.isfinite(self._upper)
        matrix = np.concatenate([self._matrix[high], -self._matrix[low]])
        bound = np.concatenate([self._upper[high], -self._lower[low]])
        solved = linprog(
            -objective, A_ub=matrix, b_ub=bound, bounds=(None, None), method="highs-ds"
        )
        if solved.status != 0:
            return None
        multipliers = np.zeros(len(self._matrix))
        marginals = -solved.ineqlin.marginals
        multipliers[high] += marginals[: high.sum()]
        multipliers[low] -= marginals[high.sum() :]
        return Optimum(np.asarray(solved.x), multipliers)


def _core() -> Any:
    return importlib.import_module("scipy.optimize._highspy._core")


def _warm_solver(columns: int) -> Any:
    """Return a HiGHS object that keeps its basis between objectives, None where this scipy does not
    offer one.

    scipy.optimize has no public warm start, and the `highspy` package cannot share a process with
    ortools.
    """
    try:
        core = _core()
        solver = core._Highs()
    except (ImportError, AttributeError):
        return None
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")
    solver.setOptionValue("solver", "simplex")
    # strategy 4, primal: a new objective leaves the old basis feasible
    solver.setOptionValue("simplex_strategy", 4)
    program = core.HighsLp()
    program.num_row_, program.num_col_ = 0, columns
    program.col_cost_ = np.zeros(columns)
    program.col_lower_ = np.full(columns, -np.inf)
    program.col_upper_ = np.full(columns, np.inf)
    program.a_matrix_.format_ = core.MatrixFormat.kRowwise
    solver.passModel(program)
    return solver


Rationals = NDArray[np.object_]
Pricing = Callable[[Rationals], tuple[Rationals, Fraction]]
"""Given w, the vertex m of the polytope with the largest ``<m, w>``, and that value."""


def is_inside(point: Sequence[Fraction], start: Sequence[Sequence[Any]], steepest: Pricing) -> bool:
    """Decide exactly whether a point lies in a centrally symmetric polytope K.

    The simplex method on ``min Σλ`` with ``Σ λ_m m = x``, ``λ >= 0``, whose optimum is the K-norm
    of x. Each basis gives an upper bound ``Σλ`` and, with ``w`` its multipliers, the lower bound
    ``Σλ / max_m <m, w>``; the search stops as soon as one of them settles the question. The
    lexicographic ratio test excludes cycling [Dantzig, Orden and Wolfe 1955].

    `start` are as many linearly independent vertices of K as x has coordinates; their negatives are
    vertices too. The square with corners (±1, 0) and (0, ±1):

    >>> def steepest(w):
    ...     k = max(range(2), key=lambda i: abs(w[i]))
    ...     sign = 1 if w[k] > 0 else -1
    ...     return np.array([sign * (i == k) for i in range(2)], dtype=object), abs(w[k])
    >>> half, start = Fraction(1, 2), [[1, 0], [0, 1]]
    >>> (
    ...     is_inside([half, half], start, steepest),
    ...     is_inside([half, half + Fraction(1, 10**30)], start, steepest),
    ... )
    (True, False)
    """
    inverse = _inverse(start)
    weights = inverse @ np.array(point, dtype=object)
    # Negatives of vertices are vertices too, so that signs can make all weights nonnegative.
    signs = []
    for weight, row in zip(weights, inverse, strict=True):
        signs.append(_lexicographically_negative(weight, row))
    flip = np.array(signs)
    inverse[flip] *= -1
    weights[flip] *= -1
    while True:
        total = weights.sum()
        if total <= 1:
            return True
        vertex, value = steepest(inverse.sum(axis=0))
        # Either the lower bound total/value exceeds 1, or the basis is optimal with total above 1.
        if total > value or value <= 1:
            return False
        direction = inverse @ vertex
        leaving = _leaving(inverse, weights, direction)
        _pivot(inverse, weights, direction, leaving)


def _leaving(inverse: Rationals, weights: Rationals, direction: Rationals) -> int:
    """The vertex that leaves the basis: the lexicographic ratio test."""

    def ratios(i: int) -> list[Fraction]:
        along = direction[i]
        return [weights[i] / along, *(inverse[i] / along)]

    falling = [i for i in range(len(direction)) if direction[i] > 0]
    return min(falling, key=ratios)


def _pivot(inverse: Rationals, weights: Rationals, direction: Rationals, leaving: int) -> None:
    inverse[leaving] /= direction[leaving]
    weights[leaving] /= direction[leaving]
    for i in np.flatnonzero(direction):
        if i != leaving:
            inverse[i] -= direction[i] * inverse[leaving]
            weights[i] -= direction[i] * weights[leaving]


def _lexicographically_negative(weight: Fraction, row: Rationals) -> bool:
    first = next(x for x in (weight, *row) if x != 0)
    return bool(first < 0)


def _inverse(rows: Sequence[Sequence[Any]]) -> Rationals:
    """Return the inverse of the matrix whose columns are `rows`."""
    from flint import fmpq, fmpq_mat

    size = len(rows)
    fractions = [Fraction(x) for row in rows for x in row]
    numbers = [fmpq(x.numerator, x.denominator) for x in fractions]
    matrix = fmpq_mat(size, size, numbers).transpose().inv()
    entries = []
    for x in matrix.entries():
        entries.append(Fraction(int(x.p), int(x.q)))
    return np.array(entries, dtype=object).reshape(size, size)
