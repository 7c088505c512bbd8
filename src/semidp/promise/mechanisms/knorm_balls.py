"""Balls of an explicit list of vectors, and balls with a closed form: root polytopes and sums of
them.

The ball of a list, rank-deficient or not, is the hull of the vectors and their negatives: the norm
by one generic linear program, the uniform point by the paper's rejection from a cube (Cho and Awan,
Algorithm 3). Closed forms serve one published side of a table (rows, or only the total) and tables
with two levels on one side. Tables with three levels or more on both sides are in `knorm_tables`.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from attrs import frozen
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.knorm_polar import MARGIN, LinearProgram, Rationals, is_inside, pilot
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats

_BLOCK = 64  # proposals between two looks at the polar points found so far
_POLAR_POINTS = 4096  # how many of them are kept
_PILOT = 4000  # divided by the dimension, and 200 more: so many uniform points make a pilot
_ZERO = 1e-9  # singular values below this part of the largest are rounding errors


@frozen(slots=False, eq=False)
class ExplicitBall:
    """K = hull(S) for a finite S, in the coordinates of an orthonormal basis of its span.

    `vectors` has a vector (or table) of S along the first axis; one and its negative count as one,
    zeros as none. The paper's 2 x 2 table: a segment in four dimensions.

    >>> ball = ExplicitBall(np.array([[1, -1, -1, 1], [-1, 1, 1, -1], [0, 0, 0, 0]]))
    >>> ball.dimension, ball.norm(np.array([[0.5, -0.5, -0.5, 0.5]]))
    (1, array([0.5]))
    >>> ball.projection
    array([[ 0.25, -0.25, -0.25,  0.25],
           [-0.25,  0.25,  0.25, -0.25],
           [-0.25,  0.25,  0.25, -0.25],
           [ 0.25, -0.25, -0.25,  0.25]])
    """

    vectors: NDArray[np.generic]

    def __attrs_post_init__(self) -> None:
        vectors = np.asarray(self.vectors, dtype=float)
        is_list = vectors.ndim >= 2 and np.isfinite(vectors).all()
        if not is_list or not vectors.any():
            raise InputError("a ball needs a list of vectors of one shape, finite and not all zero")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a point."""
        return self.vectors.shape[1:]

    @property
    def dimension(self) -> int:
        """Rank of the list."""
        return len(self.basis)

    @cached_property
    def basis(self) -> Floats:
        """Orthonormal rows that span the vectors: their principal axes, along which a cube fits
        best.
        """
        _, lengths, axes = np.linalg.svd(self._distinct, full_matrices=False)
        return np.asarray(axes[lengths > _ZERO * lengths[0]])

    @property
    def projection(self) -> Floats:
        """The matrix that projects on the span."""
        return self.basis.T @ self.basis

    def norm(self, points: Floats) -> Floats:
        """Return the K-norm of the projection of each point on the span, to nine digits and never
        too small.
        """
        return np.array([self._norm(self._coordinates(point)) for point in points])

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Decide for each point of the span whether it lies in K."""
        flat = points.reshape(len(points), -1)
        return self._contains(flat @ self.basis.T)

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return independent uniform points of K: uniform points of a cube around K, kept where
        they lie in K.
        """
        sides = np.abs(self._vertices).max(axis=0)
        kept = np.empty((size, self.dimension))
        done = 0
        while done < size:
            # The more polar points screen proposals, the fewer of them need a program of their own.
            count = _BLOCK * (1 + len(self._polar_points))
            block = generator.uniform(-1.0, 1.0, (count, self.dimension)) * sides
            block = block[self._contains(block)][: size - done]
            kept[done : done + len(block)] = block
            done += len(block)
            progress("drawing uniform points", done, size)
        return (kept @ self.basis).reshape(size, *self.shape)

    def variances(self) -> Floats:
        """Return the variance of each coordinate, from a pilot."""
        # the diagonal of B'CB, without the matrix
        products = (self.basis.T @ self._covariance) * self.basis.T
        return np.asarray(products.sum(axis=1).reshape(self.shape))

    def spread(self, weights: Floats) -> float:
        """Return ``E <weights, U>²``, from a pilot."""
        coordinates = self._coordinates(weights)
        return float(coordinates @ self._covariance @ coordinates)

    def _coordinates(self, point: Floats) -> Floats:
        return np.asarray(self.basis @ np.ravel(point))

    @cached_property
    def _distinct(self) -> Floats:
        """The vectors, one of each pair of opposite ones: the first non-zero entry is positive."""
        vectors = np.asarray(self.vectors, dtype=float)
        flat = vectors.reshape(len(vectors), -1)
        flat = flat[flat.any(axis=1)]
        first = (flat != 0).argmax(axis=1)
        leading = flat[np.arange(len(flat)), first]
        signed = flat * np.sign(leading)[:, None]
        return np.unique(signed, axis=0)

    @cached_property
    def _vertices(self) -> Floats:
        """The vectors in coordinates of the basis: these floats define K."""
        return self._distinct @ self.basis.T

    @cached_property
    def _covariance(self) -> Floats:
        return _pilot_covariance(self._distinct.tobytes(), self._distinct.shape)

    @cached_property
    def _program(self) -> LinearProgram:
        ones = np.ones(len(self._vertices))
        return LinearProgram(self._vertices, -ones, ones)

    @cached_property
    def _polar_points(self) -> list[Floats]:
        """Points of the polar that proved something to lie outside: most other proposals fail on
        one of them.
        """
        return []

    def _contains(self, coordinates: Floats) -> NDArray[np.bool_]:
        result = np.ones(len(coordinates), dtype=bool)
        if self._polar_points:
            products = coordinates @ np.array(self._polar_points).T
            result &= np.abs(products).max(axis=1) <= 1 + MARGIN
        for i in np.flatnonzero(result):
            result[i] = self._decide(coordinates[i])
        return result

    def _decide(self, point: Floats) -> bool:
        for low, high, polar in self._bounds(point):
            if high <= 1 - MARGIN:
                return True
            if low >= 1 + MARGIN:
                if len(self._polar_points) < _POLAR_POINTS:
                    self._polar_points.append(polar)
                return False
        # Floating point leaves open what lies within the margin of the boundary.
        return self.contains_exactly(point)

    def _norm(self, point: Floats) -> float:
        first = float(np.abs(self._start_inverse @ point).sum())
        highs = [high for _, high, _ in self._bounds(point)]
        return min([first, *highs])

    def _bounds(self, point: Floats) -> Iterator[tuple[float, float, Floats]]:
        """Yield proved bounds of the norm, with the point of the polar behind the lower: warm, cold
        if they stay apart.

        Low is ``<x, w>`` with w scaled into the polar, whatever the solver says; high is the cost
        of the weights of the answer, and of what they leave over in the starting vertices.
        """
        for solve in (self._program.solve, self._program.solve_cold):
            answer = solve(point)
            if answer is not None:
                products = np.abs(self._vertices @ answer.point)
                polar = answer.point / max(float(products.max()), 1e-300)
                remainder = self._start_inverse @ (point - answer.multipliers @ self._vertices)
                low = float(point @ polar)
                weight_cost = np.abs(answer.multipliers).sum()
                high = float(weight_cost + np.abs(remainder).sum())
                yield low, high, polar
                if high - low <= MARGIN:
                    return

    @cached_property
    def _start(self) -> NDArray[np.intp]:
        """Indices of independent vertices, far from dependent."""
        from scipy.linalg import qr

        order = qr(self._vertices.T, mode="r", pivoting=True)[1]
        return np.asarray(order[: self.dimension])

    @cached_property
    def _start_inverse(self) -> Floats:
        start = self._vertices[self._start]
        return np.asarray(np.linalg.inv(start.T), dtype=np.float64)

    def contains_exactly(self, coordinates: Floats) -> bool:
        """Decide by rational arithmetic whether a point, in coordinates of the basis, lies in K;
        slow.
        """
        # Floats are fractions, so K and the point enter exactly as they are.
        rows = [list(map(Fraction, row)) for row in self._vertices.tolist()]
        vertices = np.array(rows, dtype=object)

        def steepest(polar: Rationals) -> tuple[Rationals, Fraction]:
            products = vertices @ polar
            sizes = [abs(product) for product in products]
            best = sizes.index(max(sizes))
            sign = 1 if products[best] > 0 else -1
            return sign * vertices[best], sign * products[best]

        point = [Fraction(x) for x in coordinates.tolist()]
        return is_inside(point, vertices[self._start].tolist(), steepest)


@lru_cache(maxsize=64)
def _pilot_covariance(vectors: bytes, shape: tuple[int, ...]) -> Floats:
    """Return the covariance of a uniform point in coordinates of the basis; kept, since a choice
    asks for it often.
    """
    ball = ExplicitBall(np.frombuffer(vectors).reshape(shape))
    size = 200 + _PILOT // ball.dimension
    points = ball.uniform(size, pilot()) @ ball.basis.T
    return np.asarray(points.T @ points / size)


Integers = NDArray[np.int64]
_CHUNK = 1 << 17  # numbers drawn at a time


def root_directions(size: int, columns: int, generator: Generator) -> Floats:
    """Draw boundary points of the root polytope ``hull{e_j - e_l}`` by the cone measure of its
    facets.

    A facet holds the positive coordinates P against the others and is a product of two simplices of
    normalized volume ``C(c-2, |P|-1)``; so P is the part below c of a uniform (c-1)-subset of 2c-2
    things, and |P| is hypergeometric.

    >>> from semidp.promise.mechanisms.knorm_polar import half_l1
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


@frozen(slots=False)
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

    def __attrs_post_init__(self) -> None:
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
        centered.
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


@frozen(slots=False)
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
