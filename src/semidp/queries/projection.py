"""The orthogonal projection onto tables with zero published margins, and the part of a table that they fix.

No matrix of cells by cells is ever formed: averages over margins where these commute, least squares on the margin
operator elsewhere. What is published, and how far two tables may be apart, is in `table_spaces` and `norms`.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Floats, Grid, Mask, View, inclusion_exclusion, join, junction_order, meet, within
from semidp.errors import Refused

DENSE_MARGIN_CELLS = 3000  # the Gram matrix of that many margin cells takes 72 MB and some seconds
MOST_PATTERNS = 1000  # laws of cells that are told apart
MOST_ROWS = 512  # cells of a table of which every row of P is looked at
_DIGITS = 2**40  # to which weights that are no simple fractions are rounded


def projector(grid: Grid, margins: Sequence[View], domain: Mask | None = None) -> "Projector":
    """Return P, the orthogonal projection onto tables on `grid` that vanish outside `domain` and have zero `margins`.

    On a product domain the averages E_M over margins commute, E_M E_M' = E_{M∧M'}, hence
    ``I - P = I - Π_M (I - E_M)``: inclusion and exclusion over what margins share, which for decomposable margins is
    ``Σ_C E_C - Σ_S E_S`` over cliques and separators. The same holds for averages over the cells of any domain under
    whose uniform law the margins are conditionally independent given their separators; every other domain is solved
    by least squares.

    Examples
    --------
    >>> P = projector(Grid.flat((2, 2)), [(1, 0), (0, 1)])
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

    True if the margins can be ordered so that each meets the join U of the earlier ones inside one of them (a
    junction tree) and, under the uniform law on the domain, M and U are independent given M∧U; or if the domain is
    a product.

    >>> averages_commute(Grid.flat((2, 2)), np.array([[True, True], [True, False]]), [(1, 0), (0, 1)])
    False
    >>> averages_commute(Grid.flat((2, 2)), np.array([[True, True], [False, False]]), [(1, 0), (0, 1)])
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
    """Whether two views are independent given what they share, under the uniform law on the domain."""
    both, shared = join(one, other), meet(one, other)
    cells = grid.sum(domain.astype(np.int64), both)

    def down(view: View) -> NDArray[Any]:
        return grid.spread(grid.sum(cells, view, both), view, both)

    return bool(np.all(cells * down(shared) == down(one) * down(other)))


def _is_product(domain: Mask) -> bool:
    axes = range(domain.ndim)
    levels = [int(domain.any(axis=tuple(other for other in axes if other != axis)).sum()) for axis in axes]
    return math.prod(levels) == int(domain.sum())


@dataclass(frozen=True, eq=False)
class Patterns:
    """Which cells of a projected table have errors of the same law, and the weights that make up each law.

    Parameters
    ----------
    which
        For each cell the number of its pattern.
    weights
        For each pattern the weights of the noise in single cells, each with how often it occurs.
    """

    which: NDArray[np.intp] = field(repr=False)
    weights: tuple[Mapping[Fraction, int], ...]


@dataclass(frozen=True, eq=False)
class AveragingProjection:
    """P by averages over margins: O(cells × margins) time, no memory beyond the result."""

    grid: Grid
    margins: tuple[View, ...]
    domain: Mask | None = field(repr=False)

    @cached_property
    def terms(self) -> list[tuple[View, int, Any]]:
        """The averages that make up I - P: view, coefficient, and the number of domain cells that each one averages."""
        found = []
        for view, coefficient in inclusion_exclusion(self.margins).items():
            cells = self.grid.below(view) if self.domain is None else self.grid.sum(self.domain.astype(np.int64), view)
            found.append((view, coefficient, cells))
        return sorted(found, key=lambda term: -sum(term[0]))

    @property
    def dimension(self) -> int:
        """The rank of P: cells of the domain less the trace of I - P."""
        if self.domain is None:
            return math.prod(self.grid.shape) - sum(c * self.grid.size_of(view) for view, c, _ in self.terms)
        return int(self.domain.sum()) - sum(c * int((cells > 0).sum()) for _, c, cells in self.terms)

    def project(self, values: NDArray[Any]) -> Floats:
        """Return P v."""
        result = np.array(values, dtype=np.float64)
        if self.domain is not None:
            result *= self.domain
        sums: dict[View, Floats] = {}
        for view, _, _ in self.terms:  # finest first: a coarser margin is summed from one that holds it
            known = min((v for v in sums if within(view, v)), key=lambda v: sums[v].size, default=None)
            sums[view] = self.grid.sum(result, view) if known is None else self.grid.sum(sums[known], view, known)
        shares = [
            self.grid.spread(_share(sums[view], coefficient, cells), view) for view, coefficient, cells in self.terms
        ]
        for part in _gathered(shares, result.size // 8):
            result -= part
        if self.domain is not None:
            result *= self.domain
        return result

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ from the margins of φ."""
        result = np.zeros(self.grid.shape)
        for view, coefficient, cells in self.terms:
            known = next(i for i, margin in enumerate(self.margins) if within(view, margin))
            total = self.grid.sum(np.asarray(margins[known]), view, self.margins[known])
            result += self.grid.spread(_share(total, coefficient, cells), view)
        if self.domain is not None:
            result *= self.domain
        return result

    def variances(self) -> Floats:
        """Return the diagonal of P: 1 - Σ coefficient / (cells averaged)."""
        result = np.ones(self.grid.shape)
        for view, coefficient, cells in self.terms:
            ones = np.ones(self.grid.shape_of(view))
            result -= self.grid.spread(_share(ones, coefficient, cells), view)
        if self.domain is not None:
            result *= self.domain
        return np.maximum(result, 0.0)

    def patterns(self) -> Patterns | None:
        """Return the different rows of P by their weights; None where they are too many.

        A row has the weight ``[same cell] - Σ coefficient / (cells averaged)`` at a cell, over the views in which the
        two cells agree.

        >>> projector(Grid.flat((2, 2)), [(1, 0), (0, 1)]).patterns().weights
        ({Fraction(1, 4): 2, Fraction(-1, 4): 2},)
        """
        return self._by_axes() if self.domain is None else self._by_cells(self.domain)

    def _by_axes(self) -> Patterns | None:
        """Patterns on all cells: two cells agree along a feature down to some depth, feature by feature."""
        used, sizes, kinds = [], [], []
        for axis, chain in enumerate(self.grid.chains):
            depths = sorted({0, chain.depth, *(view[axis] for view, _, _ in self.terms)})
            below = [chain.children(depth, chain.depth)[chain.above(depth)] for depth in depths]
            different, which = np.unique(np.stack(below), axis=1, return_inverse=True)
            used.append(depths)
            sizes.append(different.T.tolist())
            kinds.append(which.ravel())
        if math.prod(map(len, sizes)) > MOST_PATTERNS:
            return None
        weights = [self._weights(used, chosen) for chosen in itertools.product(*sizes)]
        which = np.ravel_multi_index(np.ix_(*kinds), tuple(map(len, sizes)))
        return Patterns(np.broadcast_to(which, self.grid.shape), tuple(weights))

    def _weights(self, used: list[list[int]], sizes: Sequence[list[int]]) -> dict[Fraction, int]:
        """The weights of one pattern: `sizes` has the leaves below a cell's node at each of the depths in use."""
        weights: dict[Fraction, int] = {}
        at = [dict(zip(depths, below, strict=True)) for depths, below in zip(used, sizes, strict=True)]
        for agree in itertools.product(*(range(len(depths)) for depths in used)):
            deepest = [depths[place] for depths, place in zip(used, agree, strict=True)]
            cells = math.prod(
                below[place] - (below[place + 1] if place + 1 < len(below) else 0)
                for below, place in zip(sizes, agree, strict=True)
            )
            weight = Fraction(int(tuple(deepest) == self.grid.full))
            for view, coefficient, _ in self.terms:
                if within(view, tuple(deepest)):
                    averaged = math.prod(below[depth] for below, depth in zip(at, view, strict=True))
                    weight -= Fraction(coefficient, averaged)
            if weight and cells:
                weights[weight] = weights.get(weight, 0) + cells
        return weights

    def _by_cells(self, domain: Mask) -> Patterns | None:
        """Patterns on some cells: equal where as many cells agree with one in each set of views."""
        views = [view for view, _, _ in self.terms]
        joins = set(views)
        while more := {join(one, other) for one in joins for other in views} - joins:
            joins |= more
        which = np.zeros(self.grid.shape, dtype=np.intp)
        for view in joins:
            counts = np.broadcast_to(self.grid.spread(self.grid.sum(domain, view), view), self.grid.shape)
            different, number = np.unique(np.where(domain, counts, 0), return_inverse=True)
            _, which = np.unique(which * len(different) + number.reshape(which.shape), return_inverse=True)
            which = which.reshape(self.grid.shape)
        firsts = np.unique(which, return_index=True)[1]
        if len(firsts) > MOST_PATTERNS:
            return None
        inside = np.flatnonzero(domain)
        labels = [self.grid.labels(view)[inside] for view in views]
        weights = [self._row(int(first), inside, labels, domain) for first in firsts]
        return Patterns(which, tuple(weights))

    def _row(
        self, cell: int, inside: NDArray[np.intp], labels: Sequence[NDArray[np.intp]], domain: Mask
    ) -> dict[Fraction, int]:
        """The weights of the row of one cell, exactly."""
        weights: dict[Fraction, int] = {}
        if not domain.ravel()[cell]:
            return weights
        place = int(np.searchsorted(inside, cell))
        agree = np.where(np.arange(len(inside)) == place, 1, 0)
        for number, label in enumerate(labels):
            agree = agree + (label == label[place]) * (2 << number)
        for code, cells in zip(*np.unique(agree, return_counts=True), strict=True):
            weight = Fraction(int(code) & 1)
            for number, (_, coefficient, _) in enumerate(self.terms):
                if int(code) & (2 << number):
                    weight -= Fraction(coefficient, int((labels[number] == labels[number][place]).sum()))
            if weight:
                weights[weight] = weights.get(weight, 0) + int(cells)
        return weights


@dataclass(frozen=True, eq=False)
class LeastSquaresProjection:
    """P by least squares on the margin operator A: ``P v = v - A⁺ A v`` on the cells of the domain."""

    grid: Grid
    margins: tuple[View, ...]
    domain: Mask = field(repr=False)

    @cached_property
    def operator(self) -> Any:
        """The margins of the domain's cells as a sparse matrix of ones, a row for each margin cell that occurs."""
        return self.grid.operator(self.margins, self.domain)

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
        inside = np.asarray(values, dtype=np.float64)[self.domain]
        for _ in range(2):  # the second pass removes the rounding of the first
            inside = inside - self._least_norm(self.operator @ inside)
        return self._table(inside)

    def fixed_part(self, margins: Sequence[NDArray[Any]]) -> Floats:
        """Return (I - P) φ: the table of least norm that has these margins."""
        seen = [
            np.asarray(values, dtype=np.float64).ravel()[self.grid.sum(self.domain, margin).ravel() > 0]
            for values, margin in zip(margins, self.margins, strict=True)
        ]
        wanted = np.concatenate(seen)
        inside = self._least_norm(wanted)
        inside += self._least_norm(wanted - self.operator @ inside)
        return self._table(inside)

    def variances(self) -> Floats:
        """Return the diagonal of P, from the pseudo-inverse of A A'."""
        inverse, _ = self.gram
        rows = self.operator.tocsc().indices.reshape(-1, len(self.margins))
        return self._table(np.maximum(1 - inverse[rows[:, :, None], rows[:, None, :]].sum(axis=(1, 2)), 0.0))

    def patterns(self) -> Patterns | None:
        """Return every row of P, for tables of few cells; else None."""
        return row_patterns(self.domain.shape, self.project)

    def _table(self, inside: Floats) -> Floats:
        result = np.zeros(self.grid.shape)
        result[self.domain] = inside
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

    def patterns(self) -> Patterns:
        """Return one pattern without noise."""
        return Patterns(np.zeros(self.table.shape, dtype=np.intp), ({},))


Projector = AveragingProjection | LeastSquaresProjection | FixedTable


def row_patterns(shape: tuple[int, ...], project: Callable[[Floats], Floats]) -> Patterns | None:
    """Return every row of a projection by its weights, to twelve digits; None for tables of many cells.

    >>> row_patterns((2,), lambda values: values - values.mean()).weights
    ({Fraction(1, 2): 1, Fraction(-1, 2): 1},)
    """
    cells = math.prod(shape)
    if cells > MOST_ROWS:
        return None
    numbers: dict[tuple[tuple[Fraction, int], ...], int] = {}
    which = []
    for unit in np.eye(cells):
        row = np.rint(project(unit.reshape(shape)).ravel() * _DIGITS).astype(np.int64)
        values, counts = np.unique(row[row != 0], return_counts=True)
        weights = tuple((Fraction(int(v), _DIGITS), int(c)) for v, c in zip(values, counts, strict=True))
        which.append(numbers.setdefault(weights[::-1], len(numbers)))
    return Patterns(np.array(which, dtype=np.intp).reshape(shape), tuple(map(dict, numbers)))


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
        return np.asarray(total * (coefficient / cells if cells else 0.0))
    return np.asarray(coefficient * np.divide(total, cells, out=np.zeros(np.shape(total)), where=cells > 0))
