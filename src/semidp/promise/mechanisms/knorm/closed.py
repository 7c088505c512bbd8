"""Balls whose norm and whose uniform point have a closed form: root polytopes and sums of them.

Here: one published side of a table (rows, or only the total) and tables with two levels on one
side. Tables with three levels or more on both sides are in `table`, arbitrary lists of vectors in
`explicit`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.knorm.norm_ball import Floats, pilot
from semidp.promise.progress import Progress, silent

Integers = NDArray[np.int64]
_CHUNK = 1 << 17  # numbers drawn at a time


def half_l1(rows: Floats) -> Floats:
    """Return ``N(u) = ||u||_1 / 2`` along the last axis: for sums of zero, the norm of the root
    polytope.

    >>> half_l1(np.array([[1.0, -0.5, -0.5]]))
    array([1.])
    """
    result: Floats = np.abs(rows).sum(axis=-1) / 2
    return result


def root_directions(size: int, columns: int, generator: Generator) -> Floats:
    """Draw boundary points of the root polytope ``hull{e_j - e_l}`` by the cone measure of its
    facets.

    A facet holds the positive coordinates P against the others and is a product of two simplices of
    normalised volume ``C(c-2, |P|-1)``; so P is the part below c of a uniform (c-1)-subset of 2c-2
    things, and |P| is hypergeometric.

    >>> point = root_directions(1, 4, np.random.default_rng(0))
    >>> bool(abs(point.sum()) < 1e-15), bool(abs(half_l1(point)[0] - 1) < 1e-15)
    (True, True)
    """
    positive = np.zeros((size, columns), dtype=bool)
    # The places of the smallest of independent uniform numbers are a uniform subset.
    numbers = generator.random((size, 2 * columns - 2))
    smallest_first = numbers.argpartition(columns - 2, axis=1)
    chosen = smallest_first[:, : columns - 1]
    row, place = np.nonzero(chosen < columns)
    positive[row, chosen[row, place]] = True
    # Exponentials divided by their sum are uniform on a simplex, one for each sign.
    masses = generator.standard_exponential((size, columns))
    up = np.where(positive, masses, 0.0)
    down = masses - up
    result: Floats = up / up.sum(axis=1, keepdims=True)
    result -= down / down.sum(axis=1, keepdims=True)
    return result


def root_second_moment(columns: Integers) -> Floats:
    """Return ``E ||u||²`` of a root direction, ``4 (2c-1) / (c (c+1))``.

    >>> root_second_moment(np.array([2]))
    array([2.])
    """
    return 4 * (2 * columns - 1) / (columns * (columns + 1))


@dataclass(frozen=True)
class RowsBall:
    """K = {V : rows sum to 0, N(V_i) <= limit_i, Σ N(V_i) <= a}: the hull of S_a when only row
    totals are published.

    One row is the case where only the total is published; rows have different lengths c_i where a
    feature is nested, as the counties of each state. Points are flat, row after row. The corners of
    ``{0 <= n_i <= limit_i, Σ n_i <= a}`` are integers, so K is exactly the hull of the integer
    moves. The radii of a uniform point are Dirichlet(c_1 - 1, …, c_k - 1; 1), since the part of row
    i at distance r has volume ``r^(c_i - 2) dr``, and kept where they are within the limits; the
    direction of each row comes from the root polytope of its length.

    The limits are the positive row totals: a row of t records cannot move by more than t. A row has
    at least 2 cells: one cell has nothing to move.

    >>> ball = RowsBall(limits=(5, 9), lengths=(3, 2), a=2)
    >>> ball.norm(np.array([[2.0, -1, -1, 0, 0]])), ball.dimension
    (array([1.]), 3)
    >>> ball.uniform(4, np.random.default_rng(1)).shape
    (4, 5)
    """

    limits: tuple[int, ...]
    lengths: tuple[int, ...]
    a: int

    def __post_init__(self) -> None:
        has_rows = self.limits and min(self.limits) >= 1
        good = has_rows and min(self.lengths) >= 2 and self.a >= 1
        if not good or len(self.limits) != len(self.lengths):
            raise InputError(
                "a ball over rows needs positive row totals, at least two cells in each and a >= 1"
            )

    @property
    def shape(self) -> tuple[int]:
        """All cells, row after row."""
        return (sum(self.lengths),)

    @property
    def dimension(self) -> int:
        """Free cells: all but one in each row."""
        return sum(self.lengths) - len(self.lengths)

    def norm(self, points: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``."""
        lengths = self._row_sums(np.abs(points)) / 2
        longest = (lengths / np.array(self.limits)).max(axis=-1)
        total = lengths.sum(axis=-1) / self._reach
        return np.asarray(np.maximum(total, longest))

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: radii within their limits times root directions, rows of one
        length at a time.
        """
        points = np.repeat(self._radii(size, generator), self._sizes, axis=1)
        step = max(1, _CHUNK // sum(self.lengths))
        for start in range(0, size, step):
            part = points[start : start + step]
            for length, cells in self._by_length:
                directions = root_directions(part[:, cells].size // length, length, generator)
                part[:, cells] *= directions.reshape(len(part), -1)
            progress("drawing uniform points", min(size, start + step), size)
        return points

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return np.repeat(self._row_moments / self._sizes, self._sizes)

    def spread(self, weights: Floats) -> float:
        """Return ``Σ_i E||U_i||² ||w_i - mean(w_i)||² / (c_i - 1)``: each row is exchangeable and
        centred.
        """
        means = self._row_sums(weights) / self._sizes
        centred_weights = weights - np.repeat(means, self._sizes)
        centred = self._row_sums(centred_weights**2)
        return float((self._row_moments * centred / (self._sizes - 1)).sum())

    @cached_property
    def _sizes(self) -> Integers:
        return np.array(self.lengths)

    @cached_property
    def _starts(self) -> Integers:
        """Position of the first cell of each row."""
        return np.cumsum((0, *self.lengths[:-1]))

    @cached_property
    def _by_length(self) -> list[tuple[int, NDArray[np.intp] | slice]]:
        """The cells of all rows of each length."""
        if len(set(self.lengths)) == 1:
            return [(self.lengths[0], slice(None))]
        by_length: list[tuple[int, NDArray[np.intp] | slice]] = []
        for length in sorted(set(self.lengths)):
            first = self._starts[self._sizes == length]
            cells = first[:, None] + np.arange(length)
            by_length.append((length, cells.ravel()))
        return by_length

    def _row_sums(self, values: Floats) -> Floats:
        return np.asarray(np.add.reduceat(values, self._starts, axis=-1))

    @cached_property
    def _reach(self) -> int:
        return min(self.a, sum(self.limits))

    @cached_property
    def _row_moments(self) -> Floats:
        """``E ||U_i||²``: exact without a binding limit, else from a pilot of the radii."""
        s, free = self.dimension, self._sizes - 1
        # second moments of a Dirichlet law
        moments = self._reach**2 * free * (free + 1)
        squares = moments / ((s + 1) * (s + 2))
        if min(self.limits) < self._reach:
            size = max(1000, min(100_000, 10_000_000 // len(self.limits)))
            squares = (self._radii(size, pilot()) ** 2).mean(axis=0)
        return np.asarray(squares * root_second_moment(self._sizes))

    def _radii(self, size: int, generator: Generator) -> Floats:
        """Draw the N(V_i) of a uniform point: ``a`` times Dirichlet(c_i - 1, …; 1), kept where
        within the limits.
        """
        kept: list[Floats] = []
        missing, count = size, size
        while True:
            shape = (count, len(self.limits))
            gammas = generator.standard_gamma(self._sizes - 1, shape)
            # The coordinate of parameter 1: a point inside K leaves some of the radius unused.
            slack = generator.standard_exponential((count, 1))
            radii = self._reach * (gammas / (gammas.sum(axis=1, keepdims=True) + slack))
            within_limits = (radii <= np.array(self.limits)).all(axis=1)
            radii = radii[within_limits][:missing]
            kept.append(radii)
            missing -= len(radii)
            if missing == 0:
                return np.concatenate(kept)
            count = max(1, _CHUNK // len(self.limits))


@dataclass(frozen=True)
class PairBall:
    """K = {(u, -u) : Σu = 0, N(u) <= reach}: the hull of S_a for tables with two rows and both
    margins published.

    The positive part of a move of such a table is even, so ``reach = floor(a / 2)``: 1 for a = 2
    and a = 3.

    >>> PairBall(3).norm(np.array([[[1.0, -1, 0], [-1, 1, 0]]]))
    array([1.])
    """

    columns: int
    reach: int = 1

    @cached_property
    def _row(self) -> RowsBall:
        return RowsBall(limits=(self.reach,), lengths=(self.columns,), a=self.reach)

    @property
    def shape(self) -> tuple[int, int]:
        """Two rows."""
        return 2, self.columns

    @property
    def dimension(self) -> int:
        """Free cells: all but one in the first row."""
        return self.columns - 1

    def norm(self, points: Floats) -> Floats:
        """Return ``N(u) / reach``."""
        return self._row.norm(points[..., 0, :])

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: a uniform point of the root polytope and its negative."""
        first = self._row.uniform(size, generator, progress)
        return np.stack([first, -first], axis=1)

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return np.tile(self._row.variances(), (2, 1))

    def spread(self, weights: Floats) -> float:
        """Return the spread of the difference of the two rows of weights."""
        return self._row.spread(weights[0] - weights[1])
