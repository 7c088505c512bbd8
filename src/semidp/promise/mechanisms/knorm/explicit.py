"""The ball of an explicit list of vectors, rank-deficient or not: K = hull of the vectors and their
negatives.

The norm by one generic linear program, the uniform point by the paper's rejection from a cube (Cho
and Awan, Algorithm 3). For few dimensions; tables with published margins have faster balls in
`closed` and `table`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.knorm.linear_programs import LinearProgram, Rationals, is_inside
from semidp.promise.mechanisms.knorm.norm_ball import Floats, pilot
from semidp.promise.mechanisms.knorm.polar import MARGIN
from semidp.promise.progress import Progress, silent

_BLOCK = 64  # proposals between two looks at the polar points found so far
_POLAR_POINTS = 4096  # how many of them are kept
_PILOT = 4000  # divided by the dimension, and 200 more: so many uniform points make a pilot
_ZERO = 1e-9  # singular values below this part of the largest are rounding errors


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
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
        # Floats are fractions, so that K and the point enter exactly as they are.
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
