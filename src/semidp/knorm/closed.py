"""Balls whose norm and whose uniform point have a closed form: root polytopes and sums of them.

Here: one published side of a table (rows, or only the total) and tables with two levels on one side. Tables with
three levels or more on both sides are in `table`, arbitrary lists of vectors in `explicit`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.progress import Progress, silent

Floats = NDArray[np.float64]
_PILOT_SEED = 20  # pilots draw from their own stream: they see neither the data nor the randomness of a release
_CHUNK = 1 << 17  # numbers drawn at a time


class Ball(Protocol):
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
    """Return the generator of every pilot study: always the same, so that what is announced never varies.

    >>> int(pilot().integers(10**9)) == int(pilot().integers(10**9))
    True
    """
    return np.random.default_rng(_PILOT_SEED)


def second_moment(ball: Ball) -> float:
    """Return ``E ||U||²`` for a uniform point U of the ball.

    >>> second_moment(PairBall(2))
    1.3333333333333333
    """
    return float(ball.variances().sum())


def half_l1(rows: Floats) -> Floats:
    """Return ``N(u) = ||u||_1 / 2`` along the last axis: for sums of zero, the norm of the root polytope.

    >>> half_l1(np.array([[1.0, -0.5, -0.5]]))
    array([1.])
    """
    result: Floats = np.abs(rows).sum(axis=-1) / 2
    return result


def root_directions(size: int, columns: int, generator: Generator) -> Floats:
    """Draw boundary points of the root polytope ``hull{e_j - e_l}`` by the cone measure of its facets.

    A facet holds the positive coordinates P against the others and is a product of two simplices of normalised volume
    ``C(c-2, |P|-1)``; so P is the part below c of a uniform (c-1)-subset of 2c-2 things, and |P| is hypergeometric.

    >>> point = root_directions(1, 4, np.random.default_rng(0))
    >>> bool(abs(point.sum()) < 1e-15), bool(abs(half_l1(point)[0] - 1) < 1e-15)
    (True, True)
    """
    positive = np.zeros((size, columns), dtype=bool)
    chosen = generator.random((size, 2 * columns - 2)).argpartition(columns - 2, axis=1)[:, : columns - 1]
    row, place = np.nonzero(chosen < columns)
    positive[row, chosen[row, place]] = True
    masses = generator.standard_exponential((size, columns))
    up = np.where(positive, masses, 0.0)
    down = masses - up
    result: Floats = up / up.sum(axis=1, keepdims=True) - down / down.sum(axis=1, keepdims=True)
    return result


def root_second_moment(columns: int) -> float:
    """Return ``E ||u||²`` of a root direction, ``4 (2c-1) / (c (c+1))``.

    >>> root_second_moment(2)
    2.0
    """
    return 4 * (2 * columns - 1) / (columns * (columns + 1))


@dataclass(frozen=True)
class RowsBall:
    """K = {V : rows sum to 0, N(V_i) <= limit_i, Σ N(V_i) <= a}: the hull of S_a when only row totals are published.

    A table of one row is the case where only the total is published. The corners of ``{0 <= n_i <= limit_i,
    Σ n_i <= a}`` are integers, so K is exactly the hull of the integer moves. Without a binding limit the radii of a
    uniform point are Dirichlet and the directions come from the root polytope: no rejection.

    Parameters
    ----------
    limits
        The positive row totals: a row of t records cannot move by more than t.
    columns
        Levels across, at least 2.
    a
        How many records differ.

    Examples
    --------
    >>> ball = RowsBall(limits=(5, 9), columns=3, a=2)
    >>> ball.norm(np.array([[[2.0, -1, -1], [0, 0, 0]]]))
    array([1.])
    >>> ball.uniform(4, np.random.default_rng(1)).shape
    (4, 2, 3)
    """

    limits: tuple[int, ...]
    columns: int
    a: int

    def __post_init__(self) -> None:
        if not self.limits or min(self.limits) < 1 or self.columns < 2 or self.a < 1:
            raise InputError("a ball over rows needs positive row totals, at least two columns and a >= 1")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.limits), self.columns

    @property
    def dimension(self) -> int:
        """Free cells: all but one in each row."""
        return len(self.limits) * (self.columns - 1)

    @cached_property
    def _reach(self) -> int:
        return min(self.a, sum(self.limits))

    def norm(self, points: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``."""
        lengths = half_l1(points)
        result: Floats = np.maximum(lengths.sum(axis=-1) / self._reach, (lengths / np.array(self.limits)).max(axis=-1))
        return result

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: radii within their limits times root directions."""
        radii = self._radii(size, generator)
        rows, columns = self.shape
        points = np.empty((size, rows, columns))
        step = max(1, _CHUNK // (rows * columns))
        for start in range(0, size, step):
            part = radii[start : start + step]
            directions = root_directions(part.size, columns, generator).reshape(-1, rows, columns)
            points[start : start + step] = part[:, :, None] * directions
            progress("drawing uniform points", min(size, start + step), size)
        return points

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        per_row = self._row_moments / self.columns
        return np.repeat(per_row[:, None], self.columns, axis=1)

    def spread(self, weights: Floats) -> float:
        """Return ``Σ_i E||U_i||² ||w_i - mean(w_i)||² / (c-1)``: each row is exchangeable and centred."""
        centred = weights - weights.mean(axis=-1, keepdims=True)
        return float((self._row_moments * (centred**2).sum(axis=-1)).sum() / (self.columns - 1))

    @cached_property
    def _row_moments(self) -> Floats:
        """``E ||U_i||²``: exact without a binding limit, else from a pilot of the radii."""
        rows, s = len(self.limits), self.dimension
        if min(self.limits) >= self._reach:
            squared_radius = self._reach**2 * (self.columns - 1) * self.columns / ((s + 1) * (s + 2))
            squares = np.full(rows, squared_radius)
        else:
            size = max(1000, min(100_000, 10_000_000 // rows))
            squares = (self._radii(size, pilot()) ** 2).mean(axis=0)
        return squares * root_second_moment(self.columns)

    def _radii(self, size: int, generator: Generator) -> Floats:
        """Draw the N(V_i) of a uniform point: ``a`` times Dirichlet(c-1, …, c-1; 1), kept where within the limits."""
        return _within(np.array(self.limits), self._reach, self.columns - 1, size, generator)


@dataclass(frozen=True)
class RaggedRowsBall:
    """The ball of `RowsBall` where rows have different lengths c_i, as the counties of each state: points are flat.

    The radii of a uniform point are Dirichlet(c_1 - 1, …, c_k - 1; 1), since the part of row i at distance r has volume
    ``r^(c_i - 2) dr``; the direction of each row comes from the root polytope of its own length.

    Parameters
    ----------
    limits
        The positive row totals.
    lengths
        The cells of each row, at least 2: a row of one cell has nothing to move.
    a
        How many records differ.

    Examples
    --------
    >>> ball = RaggedRowsBall(limits=(5, 9), lengths=(3, 2), a=2)
    >>> ball.norm(np.array([[2.0, -1, -1, 0, 0]])), ball.dimension
    (array([1.]), 3)
    """

    limits: tuple[int, ...]
    lengths: tuple[int, ...]
    a: int

    def __post_init__(self) -> None:
        good = self.limits and min(self.limits) >= 1 and min(self.lengths) >= 2 and self.a >= 1
        if not good or len(self.limits) != len(self.lengths):
            raise InputError("a ball over rows needs positive row totals, at least two cells in each and a >= 1")

    @property
    def shape(self) -> tuple[int]:
        """All cells, row after row."""
        return (sum(self.lengths),)

    @property
    def dimension(self) -> int:
        """Free cells: all but one in each row."""
        return sum(self.lengths) - len(self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each row begins."""
        return np.cumsum((0, *self.lengths[:-1]), dtype=np.intp)

    @cached_property
    def _reach(self) -> int:
        return min(self.a, sum(self.limits))

    def norm(self, points: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``."""
        lengths = np.add.reduceat(np.abs(points), self.starts, axis=-1) / 2
        result: Floats = np.maximum(lengths.sum(axis=-1) / self._reach, (lengths / np.array(self.limits)).max(axis=-1))
        return result

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: radii within their limits times root directions, rows of one length at a time."""
        points = np.repeat(self._radii(size, generator), self.lengths, axis=1)
        lengths = np.array(self.lengths)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            cells = (self.starts[rows][:, None] + np.arange(length)).ravel()
            points[:, cells] *= root_directions(size * len(rows), length, generator).reshape(size, -1)
        progress("drawing uniform points", size, size)
        return points

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return np.repeat(self._row_moments / np.array(self.lengths), self.lengths)

    def spread(self, weights: Floats) -> float:
        """Return ``Σ_i E||U_i||² ||w_i - mean(w_i)||² / (c_i - 1)``: each row is exchangeable and centred."""
        lengths = np.array(self.lengths)
        means = np.add.reduceat(weights, self.starts) / lengths
        centred = np.add.reduceat((weights - np.repeat(means, lengths)) ** 2, self.starts)
        return float((self._row_moments * centred / (lengths - 1)).sum())

    @cached_property
    def _row_moments(self) -> Floats:
        """``E ||U_i||²``: exact without a binding limit, else from a pilot of the radii."""
        s, free = self.dimension, np.array(self.lengths) - 1
        if min(self.limits) >= self._reach:
            squares = self._reach**2 * free * (free + 1) / ((s + 1) * (s + 2))
        else:
            size = max(1000, min(100_000, 10_000_000 // len(free)))
            squares = (self._radii(size, pilot()) ** 2).mean(axis=0)
        return np.asarray(squares * np.array([root_second_moment(length) for length in self.lengths]))

    def _radii(self, size: int, generator: Generator) -> Floats:
        return _within(np.array(self.limits), self._reach, np.array(self.lengths) - 1, size, generator)


@dataclass(frozen=True)
class PairBall:
    """K = {(u, -u) : Σu = 0, N(u) <= reach}: the hull of S_a for tables with two rows and both margins published.

    The positive part of a move of such a table is even, so ``reach = floor(a / 2)``: 1 for a = 2 and a = 3.

    >>> PairBall(3).norm(np.array([[[1.0, -1, 0], [-1, 1, 0]]]))
    array([1.])
    """

    columns: int
    reach: int = 1

    @cached_property
    def _row(self) -> RowsBall:
        return RowsBall(limits=(self.reach,), columns=self.columns, a=self.reach)

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
        return self._row.norm(points[..., :1, :])

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: a uniform point of the root polytope and its negative."""
        first = self._row.uniform(size, generator, progress)
        return np.concatenate([first, -first], axis=1)

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return np.repeat(self._row.variances(), 2, axis=0)

    def spread(self, weights: Floats) -> float:
        """Return the spread of the difference of the two rows of weights."""
        return self._row.spread(weights[:1] - weights[1:])


def _within(
    limits: NDArray[np.int64], reach: int, shape: int | NDArray[np.int64], size: int, generator: Generator
) -> Floats:
    """Draw `reach` times the Dirichlet law of these shapes, and keep what lies within the limits."""
    kept: list[Floats] = []
    missing = size
    for shares in _dirichlet(len(limits), shape, size, generator):
        radii = reach * shares
        radii = radii[(radii <= limits).all(axis=1)][:missing]
        kept.append(radii)
        missing -= len(radii)
        if missing == 0:
            break
    return np.concatenate(kept)


def _dirichlet(parts: int, shape: int | NDArray[np.int64], size: int, generator: Generator) -> Iterator[Floats]:
    """Yield batches of Dirichlet(shape, …; 1) without its last part: first as many as asked, then in chunks."""
    count = size
    while True:
        gammas = generator.standard_gamma(shape, (count, parts))
        rest = generator.standard_exponential((count, 1))
        yield gammas / (gammas.sum(axis=1, keepdims=True) + rest)
        count = max(1, _CHUNK // parts)
