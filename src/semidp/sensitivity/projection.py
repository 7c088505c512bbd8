"""The orthogonal projection onto tables with zero published margins, and the part of a table that they fix.

No matrix of cells by cells is ever formed: averages over margins where these commute, least squares on the margin
operator elsewhere. What is published, and how far two tables may be apart, lives in `space` and `norms`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.invariants.structure import Axes, running_intersection

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DENSE_MARGIN_CELLS = 3000  # the Gram matrix of that many margin cells takes 72 MB and some seconds


class Projection(Protocol):
    """P: orthogonal projection onto the tables that live on the domain and have zero margins."""

    @property
    def dimension(self) -> int:
        """The rank of P."""

    def project(self, values: NDArray[Any]) -> Floats:
        """Return P v."""

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ for every table φ on the domain that has these margins."""

    def variances(self) -> Floats:
        """Return the diagonal of P."""


def projection(shape: Axes, margins: Sequence[Axes], domain: Mask | None = None) -> Projection:
    """Return the projection onto tables of `shape` that vanish outside `domain` and have zero `margins`.

    On a product domain the averages E_M over margins commute, E_M E_M' = E_{M∩M'}, hence
    ``I - P = I - Π_M (I - E_M)``: inclusion and exclusion over intersections, which for decomposable margins is
    ``Σ_C E_C - Σ_S E_S`` over cliques and separators. The same holds for averages over the cells of any domain under
    whose uniform law the margins are conditionally independent given their separators; every other domain is solved
    by least squares.

    Examples
    --------
    >>> P = projection((2, 2), [(0,), (1,)])
    >>> P.project(np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[ 1., -1.],
           [-1.,  1.]])
    >>> P.dimension, P.fixed_part([np.array([3, 1]), np.array([2, 2])])
    (1, array([[1.5, 1.5],
           [0.5, 0.5]]))
    """
    margins = tuple(margins) or ((),)
    if domain is None or domain.all():
        return AveragingProjection(shape, margins, None)
    if averages_commute(domain, margins):
        return AveragingProjection(shape, margins, domain)
    return LeastSquaresProjection(shape, margins, domain)


def inclusion_exclusion(margins: Sequence[Axes]) -> dict[Axes, int]:
    """Return the coefficients of ``I - Π_M (I - E_M)`` where E_M E_M' = E_{M∩M'}.

    >>> inclusion_exclusion([(0, 1), (1, 2), (2, 3)])
    {(0, 1): 1, (1, 2): 1, (1,): -1, (2, 3): 1, (2,): -1}
    """
    product: dict[Axes, int] = {}
    for margin in margins:
        change = {margin: 1}
        for axes, coefficient in product.items():
            shared = tuple(axis for axis in axes if axis in margin)
            change[shared] = change.get(shared, 0) - coefficient
        for axes, coefficient in change.items():
            product[axes] = product.get(axes, 0) + coefficient
    return {axes: coefficient for axes, coefficient in product.items() if coefficient}


def averages_commute(domain: Mask, margins: Sequence[Axes]) -> bool:
    """Whether inclusion and exclusion is exact for averages over the cells of `domain`.

    True if the margins can be ordered so that each meets the union U of the earlier ones inside one of them (a
    junction tree) and, under the uniform law on the domain, M and U are independent given M∩U; or if the domain is
    a product.

    >>> averages_commute(np.array([[True, True], [True, False]]), [(0,), (1,)])
    False
    >>> averages_commute(np.array([[True, True], [False, False]]), [(0,), (1,)])
    True
    """
    ordered = running_intersection(margins)
    if ordered is None:
        return _is_product(domain)
    union: Axes = ()
    for margin in ordered:
        if not _independent(domain, union, margin):
            return False
        union = tuple(sorted({*union, *margin}))
    return True


def sum_over(values: NDArray[Any], kept: Axes) -> NDArray[Any]:
    """Sum an array over every axis not in `kept`, which stay in place with length one elsewhere.

    >>> sum_over(np.ones((2, 3)), (1,)).shape
    (1, 3)
    """
    dropped = tuple(axis for axis in range(values.ndim) if axis not in kept)
    total: NDArray[Any] = values.sum(axis=dropped, keepdims=True)
    return total


def _independent(domain: Mask, one: Axes, other: Axes) -> bool:
    """Whether two sets of axes are independent given what they share, under the uniform law on the domain."""
    both = tuple(sorted({*one, *other}))
    shared = tuple(axis for axis in one if axis in other)
    cells = sum_over(domain, both).astype(np.int64)
    return bool(np.all(cells * sum_over(cells, shared) == sum_over(cells, one) * sum_over(cells, other)))


def _is_product(domain: Mask) -> bool:
    levels = [int((sum_over(domain, (axis,)) > 0).sum()) for axis in range(domain.ndim)]
    return math.prod(levels) == int(domain.sum())


@dataclass(frozen=True, eq=False)
class AveragingProjection:
    """P by averages over margins: O(cells × margins) time, no memory beyond the result."""

    shape: Axes
    margins: tuple[Axes, ...]
    domain: Mask | None = field(repr=False)

    @cached_property
    def terms(self) -> list[tuple[Axes, int, Any]]:
        """The averages that make up I - P: axes, coefficient, and the number of domain cells that each one averages."""
        found = []
        for axes, coefficient in inclusion_exclusion(self.margins).items():
            if self.domain is None:
                cells: Any = math.prod(size for axis, size in enumerate(self.shape) if axis not in axes)
            else:
                cells = sum_over(self.domain, axes)
            found.append((axes, coefficient, cells))
        return sorted(found, key=lambda term: -len(term[0]))

    @property
    def dimension(self) -> int:
        """The rank of P: cells of the domain less the trace of I - P."""
        if self.domain is None:
            cells = math.prod(self.shape)
            return cells - sum(c * math.prod(self.shape[axis] for axis in axes) for axes, c, _ in self.terms)
        return int(self.domain.sum()) - sum(c * int((cells > 0).sum()) for _, c, cells in self.terms)

    def project(self, values: NDArray[Any]) -> Floats:
        """Return P v."""
        result = np.array(values, dtype=np.float64)
        if self.domain is not None:
            result *= self.domain
        sums: dict[Axes, Floats] = {}
        for axes, _, _ in self.terms:  # largest first: a smaller margin is summed from one that holds it
            source = min((total for known, total in sums.items() if {*axes} <= {*known}), key=np.size, default=result)
            sums[axes] = sum_over(source, axes)
        shares = [_share(sums[axes], coefficient, cells) for axes, coefficient, cells in self.terms]
        for part in _gathered(shares, result.size // 8):
            result -= part
        if self.domain is not None:
            result *= self.domain
        return result

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ from the margins of φ."""
        result = np.zeros(self.shape)
        for axes, coefficient, cells in self.terms:
            known = next(i for i, margin in enumerate(self.margins) if {*axes} <= {*margin})
            total = sum_over(_spread(margins[known], self.margins[known], self.shape), axes)
            result += _share(total, coefficient, cells)
        if self.domain is not None:
            result *= self.domain
        return result

    def variances(self) -> Floats:
        """Return the diagonal of P: 1 - Σ coefficient / (cells averaged)."""
        result = np.ones(self.shape)
        for _, coefficient, cells in self.terms:
            result -= _share(np.ones(np.shape(cells)), coefficient, cells)
        if self.domain is not None:
            result *= self.domain
        return np.maximum(result, 0.0)


@dataclass(frozen=True, eq=False)
class LeastSquaresProjection:
    """P by least squares on the margin operator A: ``P v = v - A⁺ A v`` on the cells of the domain."""

    shape: Axes
    margins: tuple[Axes, ...]
    domain: Mask = field(repr=False)

    @cached_property
    def operator(self) -> Any:
        """The margins of the domain's cells as a sparse matrix of ones, a row for each margin cell that occurs."""
        from scipy import sparse

        cells = np.nonzero(self.domain)
        rows, columns, start = [], [], 0
        for margin in self.margins:
            sizes = tuple(self.shape[axis] for axis in margin)
            flat = np.ravel_multi_index([cells[axis] for axis in margin], sizes) if margin else np.zeros_like(cells[0])
            _, where = np.unique(flat, return_inverse=True)
            rows.append(start + where)
            columns.append(np.arange(len(where)))
            start += int(where.max()) + 1
        size = (start, len(cells[0]))
        where_all = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array((np.ones(len(where_all[0])), where_all), shape=size)

    @cached_property
    def gram(self) -> tuple[Floats, int]:
        """The pseudo-inverse of A A' and its rank; refused beyond a few thousand margin cells."""
        rows = self.operator.shape[0]
        if rows > DENSE_MARGIN_CELLS:
            raise Refused(
                f"the published margins have {rows:,} cells on an irregular domain, but dimension and variances need "
                f"at most {DENSE_MARGIN_CELLS:,}: declare fewer structural zeros, or publish coarser margins"
            )
        values, vectors = np.linalg.eigh((self.operator @ self.operator.T).toarray())
        kept = values > values[-1] * 1e-11
        vectors = vectors[:, kept]
        return (vectors / values[kept]) @ vectors.T, int(kept.sum())

    @property
    def dimension(self) -> int:
        """The rank of P: cells of the domain less the rank of the margins."""
        return int(self.operator.shape[1]) - self.gram[1]

    def project(self, values: NDArray[Any]) -> Floats:
        """Return P v."""
        result = np.zeros(self.shape)
        inside = np.asarray(values, dtype=np.float64)[self.domain]
        for _ in range(2):  # the second pass removes the rounding of the first
            inside = inside - self._least_norm(self.operator @ inside)
        result[self.domain] = inside
        return result

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ: the table of least norm that has these margins."""
        seen = [
            np.asarray(values, dtype=np.float64).ravel()[sum_over(self.domain, margin).ravel() > 0]
            for values, margin in zip(margins, self.margins, strict=True)
        ]
        wanted = np.concatenate(seen)
        inside = self._least_norm(wanted)
        inside += self._least_norm(wanted - self.operator @ inside)
        result = np.zeros(self.shape)
        result[self.domain] = inside
        return result

    def variances(self) -> Floats:
        """Return the diagonal of P, from the pseudo-inverse of A A'."""
        inverse, _ = self.gram
        rows = self.operator.tocsc().indices.reshape(-1, len(self.margins))
        result = np.zeros(self.shape)
        result[self.domain] = np.maximum(1 - inverse[rows[:, :, None], rows[:, None, :]].sum(axis=(1, 2)), 0.0)
        return result

    def _least_norm(self, margins: Floats) -> Floats:
        if self.operator.shape[0] <= DENSE_MARGIN_CELLS:
            return np.asarray(self.operator.T @ (self.gram[0] @ margins))
        from scipy.sparse.linalg import lsmr

        return np.asarray(lsmr(self.operator, margins, atol=1e-14, btol=1e-14, conlim=0, maxiter=5000)[0])


@dataclass(frozen=True, eq=False)
class FixedTable:
    """P = 0: the published statistics allow one table only."""

    table: NDArray[np.int64] = field(repr=False)
    dimension: int = 0

    def project(self, values: NDArray[Any]) -> Floats:
        """Return zeros."""
        return np.zeros(self.table.shape)

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return the table."""
        return self.table.astype(np.float64)

    def variances(self) -> Floats:
        """Return zeros."""
        return np.zeros(self.table.shape)


def _gathered(parts: Sequence[Floats], limit: int) -> list[Floats]:
    """Add arrays of few axes together while their sum stays small: each pass over the whole table is what costs."""
    found: list[Floats] = []
    for part in sorted(parts, key=np.size):
        if found and math.prod(np.broadcast_shapes(found[-1].shape, part.shape)) <= limit:
            found[-1] = found[-1] + part
        else:
            found.append(part)
    return found


def _share(total: NDArray[Any], coefficient: int, cells: Any) -> Floats:
    """Return coefficient × total / cells, zero where there are no cells."""
    if np.ndim(cells) == 0:
        return np.asarray(total * (coefficient / cells))
    return np.asarray(coefficient * np.divide(total, cells, out=np.zeros(np.shape(cells)), where=cells > 0))


def _spread(values: NDArray[Any], axes: Axes, shape: Axes) -> NDArray[Any]:
    """Give a margin the axes of the whole table, of length one where it has none."""
    return np.asarray(values).reshape([size if axis in axes else 1 for axis, size in enumerate(shape)])
