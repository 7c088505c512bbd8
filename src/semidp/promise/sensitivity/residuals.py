"""Residuals of tables: what a table at some depths says beyond all coarser ones. Tables built from
one set of residuals agree.

Pure geometry on a `Grid`. What a residual costs under an adjacency is in `costs`, which ones a
product of tables needs in `products`. Arrays here have an axis for each feature that the view
names, and none for the others.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import Chain, Floats, Grid, View, list_axes

_LARGEST = 2**62


def list_coarser_views(view: View) -> Iterator[View]:
    """Yield the views that are at most as fine: the residuals of which a table consists.

    >>> list(list_coarser_views((2, 1)))
    [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    """
    return itertools.product(*(range(depth + 1) for depth in view))


@dataclass(frozen=True)
class Residuals:
    """Residuals ``r_d = H_d M_d x`` of the tables of a grid, and tables put together from them.

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
    >>> parts = {
    ...     d: residuals.center(d, residuals.table(table, grid.full, d))
    ...     for d in list_coarser_views(grid.full)
    ... }
    >>> bool(np.allclose(residuals.sum_residuals(parts, grid.full), table))
    True
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
        self.largest_scale(view)
        result = np.ones(self.shape(view), dtype=np.int64)
        for place, axis in enumerate(list_axes(view)):
            counts = self.siblings(axis, view[axis]).astype(np.int64)
            result *= _reshape_along_axis(counts, place, result.ndim)
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
            values = _reshape_along_axis(counts, place, values.ndim) * values - family_sums
        return values

    def center(self, view: View, values: NDArray[Any]) -> Floats:
        """Return ``H_d v``: along each feature, children minus the mean of their siblings."""
        result = np.asarray(values, dtype=np.float64).reshape(self.shape(view))
        for place, axis in enumerate(list_axes(view)):
            count = _reshape_along_axis(self.siblings(axis, view[axis]), place, result.ndim)
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
            count = _reshape_along_axis(self.siblings(axis, view[axis]), place, result.ndim)
            family_sums = self._family(result, place, axis, view[axis])
            result = (1 - 2 / count) * result + family_sums / count.astype(float) ** 2
        return result

    def spread(self, values: NDArray[Any], view: View, target: View, power: int = 1) -> Floats:
        """Divide each entry at a view evenly among its descendants at a finer view. Variances are
        divided with ``power=2``.
        """
        axes = list_axes(target)
        result = self.grid.spread(np.asarray(values, dtype=np.float64), view, target)
        for place, axis in enumerate(axes):
            if view[axis] < target[axis]:
                share = _share(self.grid.chains[axis], view[axis], target[axis])
                result = result * _reshape_along_axis(share**power, place, len(axes))
        return np.broadcast_to(result, self.shape(target))

    def gather_weights(self, weights: NDArray[Any], source: View, view: View) -> Floats:
        """Return weights on the entries of a residual, from weights on the cells at `source`: the
        transpose of `spread`.
        """
        values = np.asarray(weights, dtype=np.float64).reshape(self.shape(source))
        for place, axis in enumerate(list_axes(source)):
            if view[axis] < source[axis]:
                share = _share(self.grid.chains[axis], view[axis], source[axis])
                values = values * _reshape_along_axis(share, place, values.ndim)
        return self.table(values, source, view)

    def sum_residuals(self, residuals: "dict[View, Floats]", view: View) -> Floats:
        """Return the table at a view: the sum of the residuals below it."""
        result = np.zeros(self.shape(view))
        for small in list_coarser_views(view):
            if small in residuals:
                result = result + self.spread(residuals[small], small, view)
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


def _reshape_along_axis(vector: NDArray[Any], place: int, axes: int) -> NDArray[Any]:
    sides = [1] * axes
    sides[place] = -1
    return vector.reshape(sides)


@cache
def _siblings(chain: Chain, depth: int) -> NDArray[np.intp]:
    children = chain.children(depth - 1, depth)
    return np.repeat(children, children)


@cache
def _share(chain: Chain, coarse: int, fine: int) -> Floats:
    """Share of each node at the depth `fine` in its ancestor at `coarse`."""
    share = np.ones(chain.size(coarse))
    for depth in range(coarse, fine):
        children = chain.children(depth, depth + 1)
        share = np.repeat(share / children, children)
    return share


@cache
def _gain(chain: Chain, view: int, target: int) -> float:
    """Sum over the nodes at `target` of the variance of unit noise at `view`, centred and spread,
    along one feature.
    """
    centred = np.ones(1)
    if view:
        centred = 1 - 1 / _siblings(chain, view)
    if view < target:
        centred = np.repeat(centred, chain.children(view, target))
    return float((centred * _share(chain, view, target) ** 2).sum())
