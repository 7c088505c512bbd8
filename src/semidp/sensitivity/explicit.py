"""The sensitivity space of any query, given as a list of its vectors.

For queries that are not tables, and for rank-deficient ones; spaces of count tables, which need no list, live in
`space`.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError


class ExplicitSpace:
    """S = a finite list of differences φ(X) - φ(X'), closed under sign (Cho and Awan, Section 4).

    Parameters
    ----------
    vectors
        The differences, arrays of one shape. Their negatives are included without being listed.

    Examples
    --------
    >>> space = ExplicitSpace([[1, -1, 0], [0, 1, -1]])
    >>> space.l1, space.l2_squared, space.linf, space.dimension
    (2, 2, 1, 2)
    >>> space.project([3, 0, 0]).round(9).tolist()
    [2.0, -1.0, -1.0]
    """

    exact = True

    def __init__(self, vectors: Sequence[ArrayLike]) -> None:
        arrays = [np.asarray(vector) for vector in vectors]
        if not arrays or any(array.shape != arrays[0].shape or array.ndim == 0 for array in arrays):
            raise InputError("a sensitivity space needs at least one vector, all of the same shape")
        stacked = np.stack(arrays)
        if stacked.dtype.kind not in "iuf" or not np.isfinite(stacked).all():
            raise InputError("the vectors of a sensitivity space must be finite numbers")
        if stacked.dtype.kind == "u" and stacked.max(initial=0) >= 2**63:
            raise InputError("the whole numbers of a sensitivity space must fit in 64 bits")
        self.vectors: NDArray[Any] = stacked if stacked.dtype.kind == "f" else stacked.astype(np.int64)
        self.vectors.setflags(write=False)
        self.shape: tuple[int, ...] = arrays[0].shape

    @property
    def is_zero(self) -> bool:
        """Whether nothing moves: S = {0}."""
        return not self.vectors.any()

    @cached_property
    def l1(self) -> float:
        """Δ1, the largest sum of absolute values."""
        return self._number(np.abs(self._exact).sum(axis=1).max())

    @cached_property
    def l2_squared(self) -> float:
        """Δ2², the largest sum of squares."""
        return self._number((self._exact**2).sum(axis=1).max())

    @property
    def l2(self) -> float:
        """Δ2."""
        return math.sqrt(self.l2_squared)

    @cached_property
    def linf(self) -> float:
        """Δ∞, the largest absolute value."""
        return self._number(np.abs(self._exact).max())

    @property
    def dimension(self) -> int:
        """The dimension of the span of S."""
        return len(self.basis)

    @cached_property
    def basis(self) -> NDArray[np.float64]:
        """An orthonormal basis of the span, a row for each vector, from the singular value decomposition."""
        _, values, rows = np.linalg.svd(self._flat.astype(np.float64), full_matrices=False)
        return rows[values > values[0] * max(self._flat.shape) * np.finfo(float).eps] if values[0] else rows[:0]

    def project(self, values: ArrayLike) -> NDArray[np.float64]:
        """Project onto the span."""
        array = np.asarray(values, dtype=np.float64)
        if array.shape != self.shape:
            raise InputError(f"the values have shape {array.shape}, but the query has shape {self.shape}")
        return np.asarray(self.basis.T @ (self.basis @ array.ravel())).reshape(self.shape)

    def variances(self) -> NDArray[np.float64]:
        """Return the diagonal of the projection."""
        return np.asarray((self.basis**2).sum(axis=0)).reshape(self.shape)

    def variance_of(self, weights: ArrayLike) -> float:
        """Return w'Pw, the variance of the weighted sum of unit noise after projection."""
        return float((self.project(weights) ** 2).sum())

    def moves(self) -> Iterator[NDArray[Any]]:
        """Iterate over the vectors and their negatives."""
        for vector in self.vectors:
            yield vector
            if vector.any():
                yield -vector

    def worst_move(self) -> NDArray[Any] | None:
        """Return a vector that attains Δ2, or None where S = {0}."""
        return None if self.is_zero else self.vectors[int((self._exact**2).sum(axis=1).argmax())]

    @property
    def _flat(self) -> NDArray[Any]:
        return self.vectors.reshape(len(self.vectors), -1)

    @cached_property
    def _exact(self) -> NDArray[Any]:
        """The vectors, whole numbers without a limit: squares of 64-bit integers would wrap and look small."""
        return self._flat if self.vectors.dtype.kind == "f" else self._flat.astype(object)

    def _number(self, value: Any) -> float:
        return int(value) if self.vectors.dtype.kind in "iu" else float(value)
