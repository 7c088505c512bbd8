"""The norm of tables with both margins published, by linear program, with proofs.

The polar of hull(S_2) is small enough to write down; the three-cycles of S_3 join it when they are
violated. Every answer comes as two proved bounds, and rational arithmetic decides what they leave
open.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.mechanisms.knorm.closed import half_l1
from semidp.mechanisms.knorm.linear_programs import LinearProgram, Optimum, Rationals, inside
from semidp.mechanisms.knorm.norm_ball import Floats

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
        self._first, self._second = np.array(list(itertools.combinations(range(rows), 2))).T
        self._free = (rows - 1) * (columns - 1)
        self._cycles = np.zeros((0, rows, columns))
        self._program = self._start()

    def norm(self, point: Floats) -> tuple[float, float]:
        """Return a proved lower and a proved upper bound of the K-norm, equal to about nine
        digits.
        """
        low, high = 0.0, float(np.abs(point[:-1, :-1]).sum())
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
        free = [Fraction(x) for x in point[:-1, :-1].ravel().tolist()]
        # a free cell against the last row and column is a move
        start = np.eye(self._free, dtype=int).tolist()
        return inside(free, start, self._steepest_exactly)

    def _bounds(self, point: Floats) -> Iterator[tuple[float, float]]:
        """Yield proved bounds, better and better; from a cold start at the end if they stay
        apart.
        """
        # Every answer is checked by itself, so that dropping rows can only cost time.
        if len(self._cycles) > _CYCLES_KEPT:
            self._cycles = self._cycles[:0]
            self._program = self._start()
        objective = np.zeros(self._free + len(self._first))
        objective[: self._free] = point[:-1, :-1].ravel()
        for _ in range(_ROUNDS):
            answer = self._program.solve(objective)
            if answer is None:
                break
            polar = self._table(answer)
            cycles, values = self._steepest_cycles(polar)
            low, high = self._low(point, polar, values), self._high(point, answer)
            yield low, high
            if high - low <= _SLACK:
                return
            if values.max(initial=0.0) <= 1 + _SLACK:
                break
            self._add(cycles[np.argsort(-values)[:_CYCLES_AT_ONCE]])
        answer = self._program.solve_cold(objective)
        if answer is not None:
            polar = self._table(answer)
            yield (
                self._low(point, polar, self._steepest_cycles(polar)[1]),
                self._high(point, answer),
            )

    def _start(self) -> LinearProgram:
        """Columns: the free cells of W, then m_ik for each pair of rows; rows:
        ``0 <= W_ij - W_kj - m_ik <= 1``.
        """
        rows, columns = self.shape
        pairs = np.arange(len(self._first))
        differences = np.zeros((len(pairs), rows))
        differences[pairs, self._first] = 1
        differences[pairs, self._second] = -1
        cells = np.kron(differences[:, :-1], np.eye(columns)[:, :-1])
        matrix = np.concatenate([cells, np.repeat(-np.eye(len(pairs)), columns, axis=0)], axis=1)
        return LinearProgram(matrix, np.zeros(len(matrix)), np.ones(len(matrix)))

    def _add(self, cycles: Floats) -> None:
        self._cycles = np.concatenate([self._cycles, cycles])
        rows = np.zeros((len(cycles), self._free + len(self._first)))
        rows[:, : self._free] = cycles[:, :-1, :-1].reshape(len(cycles), -1)
        self._program.add(rows)

    def _table(self, answer: Optimum) -> Floats:
        polar = np.zeros(self.shape)
        polar[:-1, :-1] = answer.point[: self._free].reshape(self.shape[0] - 1, -1)
        return polar

    def _low(self, point: Floats, polar: Floats, cycle_values: Floats) -> float:
        """``<V, W> / max_m <m, W>``: whatever W is, no way to write V as moves costs less."""
        widest = np.ptp(polar[self._first] - polar[self._second], axis=1).max()
        steepest = max(float(widest), cycle_values.max(initial=0.0))
        return float((point * polar)[:-1, :-1].sum()) / steepest if steepest > 0 else 0.0

    def _high(self, point: Floats, answer: Optimum) -> float:
        """The cost of the flows and cycles of the answer, and of what they leave over, one free
        cell at a time.
        """
        flows = answer.multipliers[: len(self._first) * self.shape[1]].reshape(-1, self.shape[1])
        # Only flows with sum zero are made of four-cell moves. The remainder is paid for below.
        flows = flows - flows.mean(axis=1, keepdims=True)
        weights = np.maximum(answer.multipliers[flows.size :], 0.0)
        built = np.zeros(self.shape)
        np.add.at(built, self._first, flows)
        np.subtract.at(built, self._second, flows)
        used = np.flatnonzero(weights)
        built += np.tensordot(weights[used], self._cycles[used], 1)
        return float(half_l1(flows).sum() + weights.sum() + np.abs((point - built)[:-1, :-1]).sum())

    @cached_property
    def _triples(self) -> NDArray[np.intp]:
        """Cyclic orders of three rows, each once; none for a = 2."""
        orders = itertools.permutations(range(self.shape[0]), 3) if self._a == 3 else iter(())
        return np.array([t for t in orders if t[0] == min(t)], dtype=np.intp).reshape(-1, 3)

    def _steepest_cycles(self, polar: Floats) -> tuple[Floats, Floats]:
        """Return for each cyclic order of three rows its steepest three-cycle and ``<cycle, W>``.

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
        cycles = np.zeros((count, *self.shape))
        cycles[everyone[:, None], self._triples, chosen[everyone, best]] += 1
        cycles[everyone[:, None], following, chosen[everyone, best]] -= 1
        return cycles, values[everyone, best]

    def _steepest_exactly(self, free: Rationals) -> tuple[Rationals, Fraction]:
        """Return the steepest move at a rational W, by trying all of them."""
        polar = np.full(self.shape, Fraction(0), dtype=object)
        polar[:-1, :-1] = free.reshape(self.shape[0] - 1, -1)
        rows: tuple[int, ...] = (0, 1)
        columns: tuple[int, ...] = (0, 1)
        value = Fraction(-1)
        for i, k in zip(self._first.tolist(), self._second.tolist(), strict=True):
            difference = polar[i] - polar[k]
            high, low = int(difference.argmax()), int(difference.argmin())
            if difference[high] - difference[low] > value:
                rows, columns, value = (i, k), (high, low), difference[high] - difference[low]
        for triple in self._triples.tolist():
            one, two, three = (polar[triple[n]] - polar[triple[(n + 1) % 3]] for n in range(3))
            for x, y, z in itertools.permutations(range(self.shape[1]), 3):
                if (total := one[x] + two[y] + three[z]) > value:
                    rows, columns, value = tuple(triple), (x, y, z), total
        return self._move(rows, columns)[:-1, :-1].ravel(), value

    def _move(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Rationals:
        """Return the move with +1 at (row_n, column_n) and -1 at (row_{n+1}, column_n)."""
        move = np.zeros(self.shape, dtype=object)
        for n, column in enumerate(columns):
            move[rows[n], column] += 1
            move[rows[(n + 1) % len(rows)], column] -= 1
        return move
