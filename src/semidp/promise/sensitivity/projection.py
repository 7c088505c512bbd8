"""The orthogonal projection onto tables with zero published margins, and the part of a table that
they fix.

No matrix of cells by cells is ever formed: averages over margins where these commute, least squares
on the margin operator elsewhere. What is published, and how far two tables may be apart, is in
`table_spaces` and `norms`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import (
    Floats,
    Grid,
    Mask,
    View,
    inclusion_exclusion,
    is_within_view,
    join,
    junction_order,
    meet,
)

DENSE_MARGIN_CELLS = 3000  # the Gram matrix of that many margin cells takes 72 MB and some seconds


def build_projector(grid: Grid, margins: Sequence[View], domain: Mask | None = None) -> "Projector":
    """Return P, the orthogonal projection onto tables on `grid` that vanish outside `domain` and
    have zero `margins`.

    On a product domain the averages E_M over margins commute, E_M E_M' = E_{M∧M'}, hence
    ``I - P = I - Π_M (I - E_M)``: inclusion and exclusion over what margins share, which for
    decomposable margins is ``Σ_C E_C - Σ_S E_S`` over cliques and separators. The same holds for
    averages over the cells of any domain under whose uniform law the margins are conditionally
    independent given their separators; every other domain is solved by least squares.

    Examples
    --------
    >>> P = build_projector(Grid.flat((2, 2)), [(1, 0), (0, 1)])
    >>> P.project(np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[ 1., -1.],
           [-1.,  1.]])
    >>> P.dimension, P.fixed_part([np.array([3, 1]), np.array([2, 2])])
    (1, array([[1.5, 1.5],
           [0.5, 0.5]]))
    """
    margins = tuple(margins) or (grid.nothing,)
    if domain is None or domain.all():
        return AveragingProjection(grid, margins, None)
    if averages_commute(grid, domain, margins):
        return AveragingProjection(grid, margins, domain)
    return LeastSquaresProjection(grid, margins, domain)


def averages_commute(grid: Grid, domain: Mask, margins: Sequence[View]) -> bool:
    """Whether inclusion and exclusion is exact for averages over the cells of `domain`.

    True if the margins can be ordered so that each meets the join U of the earlier ones inside one
    of them (a junction tree) and, under the uniform law on the domain, M and U are independent
    given M∧U; or if the domain is a product.

    >>> averages_commute(
    ...     Grid.flat((2, 2)), np.array([[True, True], [True, False]]), [(1, 0), (0, 1)]
    ... )
    False
    >>> averages_commute(
    ...     Grid.flat((2, 2)), np.array([[True, True], [False, False]]), [(1, 0), (0, 1)]
    ... )
    True
    """
    ordered = junction_order(margins)
    if ordered is None:
        return _is_product(domain)
    union = grid.nothing
    for margin in ordered:
        if not _independent(grid, domain, union, margin):
            return False
        union = join(union, margin)
    return True


def _independent(grid: Grid, domain: Mask, one: View, other: View) -> bool:
    """Whether two views are independent given what they share, under the uniform law on the
    domain.
    """
    both, shared = join(one, other), meet(one, other)
    cells = grid.sum(domain.astype(np.int64), both)

    def down(view: View) -> NDArray[Any]:
        return grid.spread(grid.sum(cells, view, both), view, both)

    # Independence given what they share: |cells| |shared| = |one| |other|, in whole numbers.
    return bool(np.all(cells * down(shared) == down(one) * down(other)))


def _is_product(domain: Mask) -> bool:
    levels = []
    for axis in range(domain.ndim):
        other_axes = tuple(other for other in range(domain.ndim) if other != axis)
        levels.append(int(domain.any(axis=other_axes).sum()))
    return math.prod(levels) == int(domain.sum())


@dataclass(frozen=True, eq=False)
class AveragingProjection:
    """P by averages over margins: O(cells × margins) time, no memory beyond the result."""

    grid: Grid
    margins: tuple[View, ...]
    domain: Mask | None = field(repr=False)

    @cached_property
    def terms(self) -> list[tuple[View, int, Any]]:
        """Averages that make up I - P: the view of each, its coefficient, and how many cells of the
        domain it averages.
        """
        terms = []
        domain = None if self.domain is None else self.domain.astype(np.int64)
        for view, coefficient in inclusion_exclusion(self.margins).items():
            cells = (
                self.grid.count_finer_cells(view) if domain is None else self.grid.sum(domain, view)
            )
            terms.append((view, coefficient, cells))
        return sorted(terms, key=lambda term: -sum(term[0]))

    @property
    def dimension(self) -> int:
        """The rank of P: cells of the domain less the trace of I - P."""
        # The trace of an average is the number of its cells.
        trace = 0
        for view, coefficient, cells in self.terms:
            margin_cells = (
                self.grid.count_margin_cells(view)
                if self.domain is None
                else int((cells > 0).sum())
            )
            trace += coefficient * margin_cells
        if self.domain is None:
            return math.prod(self.grid.shape) - trace
        return int(self.domain.sum()) - trace

    def project(self, values: NDArray[Any]) -> Floats:
        """Return P v."""
        result = np.array(values, dtype=np.float64)
        if self.domain is not None:
            result *= self.domain
        sums = self._sums(result)
        shares = []
        for view, coefficient, cells in self.terms:
            share = _share(sums[view], coefficient, cells)
            shares.append(self.grid.spread(share, view))
        for part in _merge_small_parts(shares, result.size // 8):
            result -= part
        if self.domain is not None:
            result *= self.domain
        return result

    def _sums(self, values: Floats) -> dict[View, Floats]:
        """Sums of a table at the view of every term."""
        sums: dict[View, Floats] = {}
        # Finest first: a coarser margin is summed from the smallest one that holds it.
        for view, _, _ in self.terms:
            holding = [finer for finer in sums if is_within_view(view, finer)]
            if holding:
                smallest = min(holding, key=lambda finer: sums[finer].size)
                sums[view] = self.grid.sum(sums[smallest], view, smallest)
            else:
                sums[view] = self.grid.sum(values, view)
        return sums

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ from the margins of φ."""
        result = np.zeros(self.grid.shape)
        for view, coefficient, cells in self.terms:
            holding = (i for i, margin in enumerate(self.margins) if is_within_view(view, margin))
            number = next(holding)
            total = self.grid.sum(np.asarray(margins[number]), view, self.margins[number])
            result += self.grid.spread(_share(total, coefficient, cells), view)
        if self.domain is not None:
            result *= self.domain
        return result

    def variances(self) -> Floats:
        """Return the diagonal of P: 1 - Σ coefficient / (cells averaged)."""
        result = np.ones(self.grid.shape)
        for view, coefficient, cells in self.terms:
            ones = np.ones(self.grid.compute_margin_shape(view))
            result -= self.grid.spread(_share(ones, coefficient, cells), view)
        if self.domain is not None:
            result *= self.domain
        return np.maximum(result, 0.0)


@dataclass(frozen=True, eq=False)
class LeastSquaresProjection:
    """P by least squares on the margin operator A: ``P v = v - A⁺ A v`` on the cells of the
    domain.
    """

    grid: Grid
    margins: tuple[View, ...]
    domain: Mask = field(repr=False)

    @cached_property
    def operator(self) -> Any:
        """The margins of the domain's cells as a sparse matrix of ones, a row for each margin cell
        that occurs.
        """
        return self.grid.operator(self.margins, self.domain)

    @cached_property
    def gram(self) -> tuple[Floats, int]:
        """The pseudo-inverse of A A' and its rank; refused beyond a few thousand margin cells."""
        rows = self.operator.shape[0]
        if rows > DENSE_MARGIN_CELLS:
            raise Refused(
                f"the published margins have {rows:,} cells on an irregular domain, but dimension"
                f" and variances need at most {DENSE_MARGIN_CELLS:,}: declare fewer structural"
                " zeros, or publish coarser margins"
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
        inside = np.asarray(values, dtype=np.float64)[self.domain]
        for _ in range(2):  # the second pass removes the rounding of the first
            inside = inside - self._least_norm(self.operator @ inside)
        return self._table(inside)

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ: the table of least norm that has these margins."""
        seen = []
        for values, margin in zip(margins, self.margins, strict=True):
            occurs = self.grid.sum(self.domain, margin).ravel() > 0
            seen.append(np.asarray(values, dtype=np.float64).ravel()[occurs])
        totals = np.concatenate(seen)
        inside = self._least_norm(totals)
        # A second step on what rounding left over.
        inside += self._least_norm(totals - self.operator @ inside)
        return self._table(inside)

    def variances(self) -> Floats:
        """Return the diagonal of P, from the pseudo-inverse of A A'."""
        inverse, _ = self.gram
        rows = self.operator.tocsc().indices.reshape(-1, len(self.margins))
        # Each column of A has a one for each margin: a'(AA')⁺a sums the entries of its rows.
        blocks = inverse[rows[:, :, None], rows[:, None, :]]
        fixed = blocks.sum(axis=(1, 2))
        return self._table(np.maximum(1 - fixed, 0.0))

    def _table(self, inside: Floats) -> Floats:
        result = np.zeros(self.grid.shape)
        result[self.domain] = inside
        return result

    def _least_norm(self, margins: Floats) -> Floats:
        if self.operator.shape[0] <= DENSE_MARGIN_CELLS:
            return np.asarray(self.operator.T @ (self.gram[0] @ margins))
        from scipy.sparse.linalg import lsmr

        solution = lsmr(self.operator, margins, atol=1e-14, btol=1e-14, conlim=0, maxiter=5000)
        return np.asarray(solution[0])


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


Projector = AveragingProjection | LeastSquaresProjection | FixedTable


def _merge_small_parts(parts: Sequence[Floats], limit: int) -> list[Floats]:
    """Add up arrays that broadcast to the whole table, as long as their sum stays below `limit`.
    Each pass over the whole table is what costs.
    """
    gathered: list[Floats] = []
    for part in sorted(parts, key=np.size):
        if gathered:
            last = gathered[-1]
            size = math.prod(np.broadcast_shapes(last.shape, part.shape))
            if size <= limit:
                gathered[-1] = last + part
                continue
        gathered.append(part)
    return gathered


def _share(total: NDArray[Any], coefficient: int, cells: Any) -> Floats:
    """Return coefficient × total / cells, zero where there are no cells."""
    if np.ndim(cells) == 0:
        return np.asarray(total * (coefficient / cells if cells else 0.0))
    zeros = np.zeros(np.shape(total))
    means = np.divide(total, cells, out=zeros, where=cells > 0)
    return np.asarray(coefficient * means)
