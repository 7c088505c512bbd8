"""The norm of tables with both margins published, by linear program, with proofs.

The polar of hull(S_2) is small enough to write down; the three-cycles of S_3 join it when they are
violated. Every answer comes as two proved bounds, and rational arithmetic decides what they leave
open.

`NormBall` is the interface of every ball. Real-valued K-norm noise is a radius times a uniform
point of the ball; the mechanisms decide the radius and the grid on which it is published. The polar
is given as rows ``lower <= A w <= upper`` and maximized with scipy's HiGHS, with a warm start if
scipy allows it. Points that floating point cannot decide are left to an exact simplex method, which
sees the polytope through a pricing function.
"""

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.promise.exact import round_down
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats

# pilots draw from their own stream: they see neither the data nor the randomness of a release
_PILOT_SEED = 20


class NormBall(Protocol):
    """The unit ball K of a norm on the space of `shape` arrays that it spans."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a point."""

    @property
    def dimension(self) -> int:
        """Dimension s of the span."""

    def norm(self, points: Floats) -> Floats:
        """Return the K-norm of each point of a batch."""

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return `size` independent uniform points of K."""

    def variances(self) -> Floats:
        """Return the variance of each coordinate of a uniform point."""

    def spread(self, weights: Floats) -> float:
        """Return ``E <weights, U>²`` for a uniform point U."""


def pilot() -> Generator:
    """Return the generator of every pilot study: always the same, so announced errors never
    vary.

    >>> int(pilot().integers(10**9)) == int(pilot().integers(10**9))
    True
    """
    return np.random.default_rng(_PILOT_SEED)


def second_moment(ball: NormBall) -> float:
    """Return ``E ||U||²`` for a uniform point U of the ball.

    >>> from semidp.promise.mechanisms.knorm_balls import PairBall
    >>> second_moment(PairBall(2))
    1.3333333333333333
    """
    return float(ball.variances().sum())


def knorm_noise(
    ball: NormBall, epsilon: Fraction, size: int, generator: Generator, progress: Progress = silent
) -> Floats:
    """Draw noise with density ``∝ exp(-ε ||v||_K)`` on the span of K.

    ``v = r U`` with U uniform in K and r ~ Gamma(s+1, rate ε), s the dimension of the span (Cho and
    Awan, Algorithm 3; Hardt and Talwar 2010, Remark 4.2). A neighbor's value is at most one away
    in the K-norm, so the noise satisfies pure ε, in ideal arithmetic.

    Examples
    --------
    >>> from semidp.promise.mechanisms.knorm_balls import PairBall
    >>> knorm_noise(PairBall(3), Fraction(1, 2), 4, np.random.default_rng(0)).shape
    (4, 2, 3)
    """
    points = ball.uniform(size, generator, progress)
    # The rate is rounded down, so the noise is never narrower than the claim needs.
    radii = generator.standard_gamma(ball.dimension + 1, size) / round_down(epsilon)
    # one radius for each point, whatever the shape of the points
    other_axes = [1] * (points.ndim - 1)
    return points * radii.reshape(-1, *other_axes)


def noise_moment(ball: NormBall, epsilon: Fraction) -> float:
    """Return ``E||v||² = (s+1)(s+2) E||U||² / ε²`` of K-norm noise.

    >>> from semidp.promise.mechanisms.knorm_balls import PairBall
    >>> round(noise_moment(PairBall(2), Fraction(1)), 9)
    8.0
    """
    s = ball.dimension
    radius_moment = (s + 1) * (s + 2)
    return radius_moment * second_moment(ball) / round_down(epsilon) ** 2


@frozen(eq=False)
class Optimum:
    """A point of the polar and the multipliers of its rows: both are checked before they are
    trusted.
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
        """Return an optimal answer, None if the solver does not claim one."""
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
        """Return the answer of a solver without a warm start."""
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
    """Return a HiGHS object that keeps its basis between objectives, None if this scipy does not
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
    # Negatives of vertices are vertices too, so signs can make all weights nonnegative.
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


# far above the rounding error of any sum below, far below what a sample of any size can see
MARGIN = 1e-11
_SLACK = 1e-9  # a three-cycle violated by less is not worth a row
_CYCLES_AT_ONCE = 8  # the worst few: the others are often satisfied then
# five are usual; a solver that keeps violating the rows it was given is not asked forever
_ROUNDS = 60
_CYCLES_KEPT = 3000  # more rows cost more than finding the needed ones again


def half_l1(rows: Floats) -> Floats:
    """Return ``N(u) = ||u||_1 / 2`` along the last axis: for sums of zero, the norm of the root
    polytope.

    >>> half_l1(np.array([[1.0, -0.5, -0.5]]))
    array([1.])
    """
    result: Floats = np.abs(rows).sum(axis=-1) / 2
    return result


class TablePolar:
    """W with ``<m, W> <= 1`` for every move m of an r x c table: four-cell moves, and three-cycles
    for a = 3.

    Examples
    --------
    >>> cycle = np.array([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]])
    >>> low, high = TablePolar(3, 3, a=2).norm(cycle)
    >>> round(low, 9), round(high, 9)
    (2.0, 2.0)
    >>> TablePolar(3, 3, a=2).contains(cycle / 2), TablePolar(3, 3, a=2).contains(cycle * 0.6)
    (True, False)
    """

    def __init__(self, rows: int, columns: int, a: int) -> None:
        self.shape, self._a = (rows, columns), a
        pairs = list(itertools.combinations(range(rows), 2))
        self._first, self._second = np.array(pairs).T
        self._free = (rows - 1) * (columns - 1)
        self._cycles = np.zeros((0, rows, columns))
        self._program = self._start()

    def norm(self, point: Floats) -> tuple[float, float]:
        """Return a proved lower and a proved upper bound of the K-norm, equal to about nine
        digits.
        """
        # A free cell against the last row and column is a move: V can be written with these.
        low, high = 0.0, float(np.abs(_free_cells(point)).sum())
        for better_low, better_high in self._bounds(point):
            low, high = max(low, better_low), min(high, better_high)
        return low, high

    def contains(self, point: Floats) -> bool:
        """Decide whether the norm is at most one, proved for the floats as given."""
        for low, high in self._bounds(point):
            if high <= 1 - MARGIN:
                return True
            if low >= 1 + MARGIN:
                return False
        return self.contains_exactly(point)

    def contains_exactly(self, point: Floats) -> bool:
        """Decide the same by rational arithmetic alone; slow."""
        free = [Fraction(x) for x in _free_cells(point).ravel().tolist()]
        # a free cell against the last row and column is a move
        start = np.eye(self._free, dtype=int).tolist()
        return is_inside(free, start, self._steepest_exactly)

    def _bounds(self, point: Floats) -> Iterator[tuple[float, float]]:
        """Yield proved bounds, better and better; from a cold start at the end if they stay
        apart.
        """
        # Every answer is checked by itself, so dropping rows can only cost time.
        if len(self._cycles) > _CYCLES_KEPT:
            self._cycles = self._cycles[:0]
            self._program = self._start()
        objective = np.zeros(self._free + len(self._first))
        objective[: self._free] = _free_cells(point).ravel()
        for _ in range(_ROUNDS):
            answer = self._program.solve(objective)
            if answer is None:
                break
            polar = self._table(answer)
            cycles, values = self._steepest_cycles(polar)
            low = self._low(point, polar, values)
            high = self._high(point, answer)
            yield low, high
            if high - low <= _SLACK:
                return
            if values.max(initial=0.0) <= 1 + _SLACK:
                break
            self._add(cycles[np.argsort(-values)[:_CYCLES_AT_ONCE]])
        answer = self._program.solve_cold(objective)
        if answer is not None:
            polar = self._table(answer)
            _, values = self._steepest_cycles(polar)
            yield self._low(point, polar, values), self._high(point, answer)

    def _start(self) -> LinearProgram:
        """Columns: the free cells of W, then m_ik for each pair of rows; rows:
        ``0 <= W_ij - W_kj - m_ik <= 1``.
        """
        rows, columns = self.shape
        pairs = np.arange(len(self._first))
        differences = np.zeros((len(pairs), rows))
        differences[pairs, self._first] = 1
        differences[pairs, self._second] = -1
        # The last row and column of W are zero.
        free_columns = np.eye(columns)[:, :-1]
        cells = np.kron(differences[:, :-1], free_columns)
        minima = np.repeat(-np.eye(len(pairs)), columns, axis=0)
        matrix = np.concatenate([cells, minima], axis=1)
        size = len(matrix)
        return LinearProgram(matrix, np.zeros(size), np.ones(size))

    def _add(self, cycles: Floats) -> None:
        self._cycles = np.concatenate([self._cycles, cycles])
        variables = self._free + len(self._first)
        rows = np.zeros((len(cycles), variables))
        rows[:, : self._free] = _free_cells(cycles).reshape(len(cycles), -1)
        self._program.add(rows)

    def _table(self, answer: Optimum) -> Floats:
        polar = np.zeros(self.shape)
        free = _free_cells(polar)
        free[:] = answer.point[: self._free].reshape(free.shape)
        return polar

    def _low(self, point: Floats, polar: Floats, cycle_values: Floats) -> float:
        """``<V, W> / max_m <m, W>``: whatever W is, no way to write V as moves costs less."""
        differences = polar[self._first] - polar[self._second]
        widest = np.ptp(differences, axis=1).max()
        steepest = max(float(widest), float(cycle_values.max(initial=0.0)))
        if not steepest > 0:
            return 0.0
        return float(_free_cells(point * polar).sum()) / steepest

    def _high(self, point: Floats, answer: Optimum) -> float:
        """The cost of the flows and cycles of the answer, and of what they leave over, one free
        cell at a time.
        """
        columns = self.shape[1]
        flow_multipliers = answer.multipliers[: len(self._first) * columns]
        flows = flow_multipliers.reshape(-1, columns)
        # Only flows with sum zero are made of four-cell moves. The remainder is paid for below.
        flows = flows - flows.mean(axis=1, keepdims=True)
        weights = np.maximum(answer.multipliers[flows.size :], 0.0)
        built = np.zeros(self.shape)
        np.add.at(built, self._first, flows)
        np.subtract.at(built, self._second, flows)
        used = np.flatnonzero(weights)
        built += np.tensordot(weights[used], self._cycles[used], 1)
        left_over = np.abs(_free_cells(point - built))
        return float(half_l1(flows).sum() + weights.sum() + left_over.sum())

    @cached_property
    def _triples(self) -> NDArray[np.intp]:
        """Cyclic orders of three rows, each once; none for a = 2."""
        if self._a != 3:
            return np.zeros((0, 3), dtype=np.intp)
        orders = itertools.permutations(range(self.shape[0]), 3)
        triples = [order for order in orders if order[0] == min(order)]
        return np.array(triples, dtype=np.intp).reshape(-1, 3)

    def _steepest_cycles(self, polar: Floats) -> tuple[Floats, Floats]:
        """Return the steepest three-cycle of each cyclic order of three rows, and ``<cycle, W>``.

        A cycle goes from each row to the next in a column of its own; the best three different
        columns are among the three largest differences of each step.
        """
        count = len(self._triples)
        if count == 0:
            return self._cycles[:0], np.zeros(0)
        following = np.roll(self._triples, -1, axis=1)
        differences = polar[self._triples] - polar[following]
        columns = np.argsort(-differences, axis=2)[:, :, :3]
        largest = np.take_along_axis(differences, columns, axis=2)
        choices = np.array(list(itertools.product(range(3), repeat=3)))
        steps = np.arange(3)
        values = largest[:, steps, choices].sum(axis=2)
        chosen = columns[:, steps, choices]
        clash = (chosen == np.roll(chosen, 1, axis=2)).any(axis=2)
        values[clash] = -np.inf
        best = values.argmax(axis=1)
        everyone = np.arange(count)
        best_columns = chosen[everyone, best]
        cycles = np.zeros((count, *self.shape))
        cycles[everyone[:, None], self._triples, best_columns] += 1
        cycles[everyone[:, None], following, best_columns] -= 1
        return cycles, values[everyone, best]

    def _steepest_exactly(self, free: Rationals) -> tuple[Rationals, Fraction]:
        """Return the steepest move at a rational W, by trying all of them."""
        polar = np.full(self.shape, Fraction(0), dtype=object)
        _free_cells(polar)[:] = free.reshape(_free_cells(polar).shape)
        rows: tuple[int, ...] = (0, 1)
        columns: tuple[int, ...] = (0, 1)
        value = Fraction(-1)
        for i, k in itertools.combinations(range(self.shape[0]), 2):
            difference = polar[i] - polar[k]
            high, low = int(difference.argmax()), int(difference.argmin())
            width = difference[high] - difference[low]
            if width > value:
                rows, columns, value = (i, k), (high, low), width
        for i, j, k in self._triples.tolist():
            one, two = polar[i] - polar[j], polar[j] - polar[k]
            three = polar[k] - polar[i]
            for x, y, z in itertools.permutations(range(self.shape[1]), 3):
                total = one[x] + two[y] + three[z]
                if total > value:
                    rows, columns, value = (i, j, k), (x, y, z), total
        return _free_cells(self._move(rows, columns)).ravel(), value

    def _move(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Rationals:
        """Return the move with +1 at (row_n, column_n) and -1 at (row_{n+1}, column_n)."""
        move = np.zeros(self.shape, dtype=object)
        for n, column in enumerate(columns):
            following = rows[(n + 1) % len(rows)]
            move[rows[n], column] += 1
            move[following, column] -= 1
        return move


def _free_cells(tables: NDArray[Any]) -> NDArray[Any]:
    """View of the free cells: all but those of the last row and column."""
    return tables[..., :-1, :-1]
