"""Balls whose norm and whose uniform point have a closed form: root polytopes and sums of them.

Here: one published side of a table (rows, or only the total) and tables with two levels on one side. Tables with
three levels or more on both sides are in `table`, arbitrary lists of vectors in `explicit`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.knorm.base import Floats, pilot
from semidp.progress import Progress, silent

Integers = NDArray[np.int64]
_CHUNK = 1 << 17  # numbers drawn at a time


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


def root_second_moment(columns: int | Integers) -> float | Floats:
    """Return ``E ||u||²`` of a root direction, ``4 (2c-1) / (c (c+1))``.

    >>> root_second_moment(2)
    2.0
    """
    return 4 * (2 * columns - 1) / (columns * (columns + 1))


class _RadiiAndDirections(ABC):
    """What balls over rows share: a uniform point is a radius for each row, within its limit, times a direction."""

    limits: tuple[int, ...]
    a: int

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Free cells: all but one in each row."""

    @property
    @abstractmethod
    def _free(self) -> int | Integers:
        """The free cells of each row; one number where all rows are alike."""

    @cached_property
    def _reach(self) -> int:
        return min(self.a, sum(self.limits))

    def _norm(self, lengths: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``, given the ``N(V_i)`` along the last axis."""
        result: Floats = np.maximum(lengths.sum(axis=-1) / self._reach, (lengths / np.array(self.limits)).max(axis=-1))
        return result

    @cached_property
    def _row_moments(self) -> Floats:
        """``E ||U_i||²``: exact without a binding limit, else from a pilot of the radii."""
        rows, s, free = len(self.limits), self.dimension, self._free
        squares: float | Floats = self._reach**2 * free * (free + 1) / ((s + 1) * (s + 2))
        if min(self.limits) < self._reach:
            size = max(1000, min(100_000, 10_000_000 // rows))
            squares = (self._radii(size, pilot()) ** 2).mean(axis=0)
        return np.full(rows, squares * root_second_moment(free + 1))

    def _radii(self, size: int, generator: Generator) -> Floats:
        """Draw the N(V_i) of a uniform point: ``a`` times Dirichlet(c_i - 1, …; 1), kept where within the limits."""
        kept: list[Floats] = []
        missing = size
        for shares in _dirichlet(len(self.limits), self._free, size, generator):
            radii = self._reach * shares
            radii = radii[(radii <= np.array(self.limits)).all(axis=1)][:missing]
            kept.append(radii)
            missing -= len(radii)
            if missing == 0:
                break
        return np.concatenate(kept)


@dataclass(frozen=True)
class RowsBall(_RadiiAndDirections):
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

    @property
    def _free(self) -> int:
        return self.columns - 1

    def norm(self, points: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``."""
        return self._norm(half_l1(points))

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


@dataclass(frozen=True)
class RaggedRowsBall(_RadiiAndDirections):
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

    @property
    def _free(self) -> Integers:
        return np.array(self.lengths) - 1

    def norm(self, points: Floats) -> Floats:
        """Return ``max(Σ N(V_i) / a, max_i N(V_i) / limit_i)``."""
        return self._norm(np.add.reduceat(np.abs(points), self.starts, axis=-1) / 2)

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


def _dirichlet(parts: int, shape: int | Integers, size: int, generator: Generator) -> Iterator[Floats]:
    """Yield batches of Dirichlet(shape, …; 1) without its last part: first as many as asked, then in chunks."""
    count = size
    while True:
        gammas = generator.standard_gamma(shape, (count, parts))
        rest = generator.standard_exponential((count, 1))
        yield gammas / (gammas.sum(axis=1, keepdims=True) + rest)
        count = max(1, _CHUNK // parts)
