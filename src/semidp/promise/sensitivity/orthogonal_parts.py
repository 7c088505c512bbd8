"""Orthogonal parts of tables: residuals, what a table says beyond all coarser ones, and the
projection onto tables with zero published margins.

Tables built from the same residuals agree. The projection splits a table into what the published
margins fix and what they leave free.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import (
    Chain,
    Floats,
    Grid,
    Mask,
    View,
    inclusion_exclusion,
    is_within_view,
    join,
    junction_order,
    list_axes,
    meet,
)

_LARGEST = 2**62


def list_coarser_views(view: View) -> Iterator[View]:
    """Yield the views that are at most as fine: the residuals of which a table consists.

    >>> list(list_coarser_views((2, 1)))
    [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    """
    return itertools.product(*(range(depth + 1) for depth in view))


@frozen
class Residuals:
    """Residuals ``r_d = H_d M_d x`` of the tables of a grid.

    M_d sums the records to the table at the view d; H_d subtracts, along every feature that d
    names, the mean of the siblings. Then ``M_w x = Σ_{d <= w} spread(r_d)``, where a node's share
    is divided evenly among its children, depth after depth.

    Examples
    --------
    >>> grid = Grid((Chain(3, ((0, 2), (0, 1, 2))), Chain.flat(2)))
    >>> residuals, table = Residuals(grid), np.array([[1, 2], [3, 4], [5, 9]])
    >>> # Four times [[0.5, -0.5], [-0.5, 0.5]]
    >>> residuals.compute_integer_residual((1, 1), grid.sum(table, (1, 1))).tolist()
    [[2, -2], [-2, 2]]
    """

    grid: Grid

    def shape(self, view: View) -> tuple[int, ...]:
        """Return the shape of a table at a view: one axis for each feature that it names."""
        return self.grid.compute_margin_shape(view)

    def table(self, values: NDArray[Any], source: View, view: View) -> NDArray[Any]:
        """Sum a table at `source` down to a coarser view."""
        return self.grid.sum(values, view, source)

    def siblings(self, axis: int, depth: int) -> NDArray[np.intp]:
        """Return for each node of a depth how many children its parent has, itself included."""
        return _siblings(self.grid.chains[axis], depth)

    def families(self, axis: int, depth: int) -> NDArray[np.int64]:
        """Numbers of siblings of each node of a depth and of its ancestors: a row for each depth,
        the node itself counted.

        >>> Residuals(Grid((Chain(3, ((0, 2), (0, 1, 2))),))).families(0, 2).tolist()
        [[2, 2, 2], [2, 2, 1]]
        """
        chain, rows = self.grid.chains[axis], []
        for above in range(1, depth + 1):
            counts = self.siblings(axis, above)
            if above < depth:
                counts = np.repeat(counts, chain.children(above, depth))
            rows.append(counts)
        return np.stack(rows).astype(np.int64)

    def scale(self, view: View) -> NDArray[np.int64]:
        """Return, for each entry of a residual, the whole number that makes it whole: the product
        of its numbers of siblings.
        """
        # refuses products of siblings that would wrap around
        self.largest_scale(view)
        result = np.ones(self.shape(view), dtype=np.int64)
        for place, axis in enumerate(list_axes(view)):
            counts = self.siblings(axis, view[axis]).astype(np.int64)
            result *= reshape_along_axis(counts, place, result.ndim)
        return result

    def largest_scale(self, view: View) -> int:
        """Return the largest of `scale`, without making an array of it; refuse one of more than 62
        bits.

        >>> Residuals(Grid.flat((3, 4))).largest_scale((1, 1))
        12
        """
        largest_families = [int(self.siblings(axis, view[axis]).max()) for axis in list_axes(view)]
        largest = math.prod(largest_families)
        if largest >= _LARGEST:
            raise Refused(
                "the numbers of levels multiply to more than 62 bits hold: release smaller tables"
            )
        return largest

    def compute_integer_residual(self, view: View, table: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the residual of a table at a view times `scale`, in whole numbers.

        Along each feature ``c x - Σ x`` over the c siblings; every number on the way is at most n
        times the scale.
        """
        values = np.asarray(table, dtype=np.int64).reshape(self.shape(view))
        total = int(np.abs(values).sum())
        if total * self.largest_scale(view) >= _LARGEST:
            raise Refused(
                "the counts times the numbers of levels do not fit in 62 bits: release smaller"
                " tables"
            )
        for place, axis in enumerate(list_axes(view)):
            counts = self.siblings(axis, view[axis]).astype(np.int64)
            family_sums = self._family(values, place, axis, view[axis])
            values = reshape_along_axis(counts, place, values.ndim) * values - family_sums
        return values

    def center(self, view: View, values: NDArray[Any]) -> Floats:
        """Return ``H_d v``: along each feature, children minus the mean of their siblings."""
        result = np.asarray(values, dtype=np.float64).reshape(self.shape(view))
        for place, axis in enumerate(list_axes(view)):
            count = reshape_along_axis(self.siblings(axis, view[axis]), place, result.ndim)
            family_sums = self._family(result, place, axis, view[axis])
            result = result - family_sums / count
        return result

    def centred_variance(self, view: View, variance: NDArray[Any]) -> Floats:
        """Return the variance of each entry of ``H_d z`` for independent z: ``(1 - 2/c) v + Σ v /
        c²`` along each feature.
        """
        values = np.asarray(variance, dtype=np.float64)
        result = np.broadcast_to(values, self.shape(view))
        for place, axis in enumerate(list_axes(view)):
            count = reshape_along_axis(self.siblings(axis, view[axis]), place, result.ndim)
            family_sums = self._family(result, place, axis, view[axis])
            result = (1 - 2 / count) * result + family_sums / count.astype(float) ** 2
        return result

    def gain(self, view: View, target: View) -> float:
        """Return the sum of the variances of all cells of a table, for unit noise in one residual
        below it.
        """
        product = 1.0
        for axis in list_axes(target):
            product *= _gain(self.grid.chains[axis], view[axis], target[axis])
        return product

    def varies(self, view: View) -> bool:
        """Whether the residual can be non-zero: each named feature has a parent with several
        children at that depth.
        """
        largest_families = [int(self.siblings(axis, view[axis]).max()) for axis in list_axes(view)]
        return all(size > 1 for size in largest_families)

    def dimension(self, view: View) -> int:
        """Return the number of free entries of a residual.

        >>> Residuals(Grid.flat((3, 4))).dimension((1, 1))
        6
        """
        free = []
        for axis in list_axes(view):
            chain, depth = self.grid.chains[axis], view[axis]
            # The children of each parent sum to zero: one condition a parent.
            free.append(chain.size(depth) - chain.size(depth - 1))
        return math.prod(free)

    def _family(self, values: NDArray[Any], place: int, axis: int, depth: int) -> NDArray[Any]:
        """Sum over the siblings of each entry along one axis."""
        chain = self.grid.chains[axis]
        firsts = chain.first(depth - 1, depth)
        sums = np.add.reduceat(values, firsts, axis=place)
        return np.asarray(np.repeat(sums, chain.children(depth - 1, depth), axis=place))


def trim_grid(grid: Grid, inhabited: Sequence[NDArray[np.bool_]]) -> Grid:
    """Return the grid without the leaves that can hold no record, and without the nodes above them
    that become empty.

    >>> grid = trim_grid(Grid((Chain(3, ((0, 2), (0, 1, 2))),)), [np.array([True, True, False])])
    >>> grid.chains[0].leaves, grid.chains[0].starts
    (2, ((0,), (0, 1)))
    """
    chains = []
    for chain, kept in zip(grid.chains, inhabited, strict=True):
        before = np.concatenate([[0], np.cumsum(kept)])
        starts = []
        for depth in range(1, chain.depth + 1):
            occupied = kept_nodes(chain, kept, depth)
            firsts = chain.first(depth, chain.depth)[occupied]
            starts.append(tuple(before[firsts].tolist()))
        chains.append(Chain(int(kept.sum()), tuple(starts)))
    return Grid(tuple(chains))


def kept_nodes(chain: Chain, kept: NDArray[np.bool_], depth: int) -> NDArray[np.bool_]:
    """Whether each node of a depth has a leaf that is kept."""
    firsts = chain.first(depth, chain.depth)
    return np.asarray(np.logical_or.reduceat(kept, firsts))


def reshape_along_axis(vector: NDArray[Any], place: int, axes: int) -> NDArray[Any]:
    sides = [1] * axes
    sides[place] = -1
    return vector.reshape(sides)


@cache
def _siblings(chain: Chain, depth: int) -> NDArray[np.intp]:
    children = chain.children(depth - 1, depth)
    return np.repeat(children, children)


@cache
def share_of_ancestor(chain: Chain, coarse: int, fine: int) -> Floats:
    """Share of each node at the depth `fine` in its ancestor at `coarse`."""
    share = np.ones(chain.size(coarse))
    for depth in range(coarse, fine):
        children = chain.children(depth, depth + 1)
        share = np.repeat(share / children, children)
    return share


@cache
def _gain(chain: Chain, view: int, target: int) -> float:
    """Sum over the nodes at `target` of the variance of unit noise at `view`, centered and spread,
    along one feature.
    """
    centred = np.ones(1)
    if view:
        # unit noise minus the mean of its c siblings has the variance 1 - 1/c
        centred = 1 - 1 / _siblings(chain, view)
    if view < target:
        centred = np.repeat(centred, chain.children(view, target))
    return float((centred * share_of_ancestor(chain, view, target) ** 2).sum())


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
    # a domain lies inside the product of its sides: it is that product if it is as large
    return math.prod(levels) == int(domain.sum())


@frozen(slots=False, eq=False)
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
        # cells that totals fix may end slightly below 0
        return np.maximum(result, 0.0)


@frozen(slots=False, eq=False)
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
        # margins share their sums, so A A' is singular: what rounding left of 0 is 0
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


@frozen(eq=False)
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
    """Return coefficient × total / cells, zero if there are no cells."""
    if np.ndim(cells) == 0:
        return np.asarray(total * (coefficient / cells if cells else 0.0))
    zeros = np.zeros(np.shape(total))
    means = np.divide(total, cells, out=zeros, where=cells > 0)
    return np.asarray(coefficient * means)
