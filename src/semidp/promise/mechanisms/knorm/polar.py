"""The norm of tables with both margins published, by linear program, with proofs.

The polar of hull(S_2) is small enough to write down; the three-cycles of S_3 join it when they are
violated. Every answer comes as two proved bounds, and rational arithmetic decides what they leave
open.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.knorm.closed import half_l1
from semidp.promise.mechanisms.knorm.linear_programs import (
    LinearProgram,
    Optimum,
    Rationals,
    is_inside,
)
from semidp.promise.mechanisms.knorm.norm_ball import Floats

# far above the rounding error of any sum below, far below what a sample of any size can see
MARGIN = 1e-11
_SLACK = 1e-9  # a three-cycle violated by less is not worth a row
_CYCLES_AT_ONCE = 8  # the worst few: the others are often satisfied then
# five are usual; a solver that keeps violating the rows it was given is not asked for ever
_ROUNDS = 60
_CYCLES_KEPT = 3000  # more rows cost more than finding the needed ones again


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
        # Every answer is checked by itself, so that dropping rows can only cost time.
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
