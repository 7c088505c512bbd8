"""The best linear unbiased estimate of everything, from all measurements.

`estimate` runs the passes of `inference.estimation.passes` once; an `Estimate` then answers for any
place, any cells and any weighted sum, each with its variance.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.inference.estimation.beliefs import TreeDepth, influences
from semidp.inference.estimation.measurements import (
    SUMMED,
    CellSums,
    Classes,
    Floats,
    Index,
    Measurements,
    Observed,
    Places,
    TableClass,
)
from semidp.inference.estimation.passes import (
    Weights,
    covariances,
    downward,
    gathered_at_roots,
    upward,
)
from semidp.publish.written_values import check_level


def estimate(measurements: Measurements) -> "Estimate":
    """Return the best linear unbiased estimate from independent measurements on a tree of places.

    It minimizes ``Σ (y - Qx)² / σ²`` over all tables that add up along the tree, have zeros where
    nothing is possible and meet what is exact. One pass up and one down, linear in nodes × cells
    (ghazi2026denoising).

    Examples
    --------
    Two parts were measured with variance 4, their sum with variance 1. The sum of the
    parts, 30, has variance 8, so the estimate of the whole lies at 1/9 of the way from 33 to 30:

    >>> from semidp.inference import CellSums, Measurements, Observed, Places, estimate
    >>> total = CellSums(())
    >>> whole, parts = Observed(total, 0, [33], 1.0), Observed(total, 1, [10, 20], 4.0)
    >>> answer = estimate(Measurements(Places([[0, 0]]), (), [whole, parts]))
    >>> answer.cells(0).round(3).tolist(), answer.cells(1).round(3).tolist()
    ([32.667], [11.333, 21.333])
    """
    classes = Classes.from_measurements(measurements)
    depths = upward(measurements, classes)
    downward(depths, measurements.places, classes)
    return Estimate(measurements.places, classes, depths, measurements.observed)


def _one_each(value: ArrayLike) -> Floats:
    return np.asarray(value, dtype=float)


def _numbers(value: ArrayLike) -> Index:
    return np.asarray(value, dtype=np.int64)


@frozen(eq=False)
class Share:
    """Nodes that belong to areas, with weights: node `nodes[i]` counts `weights[i]` times in area
    `areas[i]`.

    >>> Share([0, 1], [0, 0]).weights.tolist()
    [1.0, 1.0]
    """

    nodes: Index = field(converter=_numbers)
    areas: Index = field(converter=_numbers)
    weights: Floats = field(converter=_one_each, default=1.0)

    def __attrs_post_init__(self) -> None:
        if self.nodes.shape != self.areas.shape or self.nodes.ndim != 1:
            raise InputError(
                "a share has a list of nodes and a list of areas that are equally long"
            )
        object.__setattr__(self, "weights", np.broadcast_to(self.weights, self.nodes.shape))


@frozen(eq=False)
class AreaSums:
    """Estimates of weighted sums: a row for each area, a column for each weighting of the cells.

    Numbers that no measurement determines have the value nan and an infinite variance.

    >>> AreaSums(np.array([[10.0]]), np.array([[4.0]])).intervals(0.95).round(2).tolist()
    [[[6.08, 13.92]]]
    """

    values: Floats
    variances: Floats

    @property
    def standard_errors(self) -> Floats:
        """Square roots of the variances."""
        return np.sqrt(self.variances)

    def intervals(self, level: float) -> Floats:
        """Normal intervals at a level: the lower and the upper end along the last axis."""
        check_level(level, "the level of an interval")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_errors
        ends = [self.values - reach, self.values + reach]
        return np.stack(ends, axis=-1)


@frozen(eq=False)
class RootedSums:
    """Sums over areas of one tree, with more information about its root than the tree has.

    Parameters
    ----------
    values
        Values (areas, weightings) from everything.
    variances
        The variances of the same shape that are left if the root is known.
    on_root
        By class the numbers of areas, and for each the matrix (block, block) from the weights of
        cells to the weights that the sum has on the root.
    """

    values: Floats
    variances: Floats
    on_root: Mapping[TableClass, tuple[Index, Floats]]


@frozen(eq=False)
class Estimate:
    """The estimate of every cell of every place, and the variance of every weighted sum; made by
    `estimate`.

    >>> from semidp.inference import CellSums, Measurements, Observed, Places, estimate
    >>> counts = Observed(CellSums(("each",)), 1, [[3, 5], [4, 0]], 2.0)
    >>> total = Observed(CellSums(("summed",)), 0, [13], 0.0)
    >>> answer = estimate(Measurements(Places([[0, 0]]), (2,), [counts, total]))
    >>> answer.cells(1).round(9).tolist()
    [[3.25, 5.25], [4.25, 0.25]]
    >>> first = answer.sums({1: Share([0, 1], [0, 0])}, [[1, 0]])
    >>> first.values.round(9).tolist(), first.variances.round(12).tolist()
    ([[7.5]], [[2.0]])
    """

    places: Places
    classes: Classes
    depths: list[TreeDepth] = field(repr=False)
    observed: tuple[Observed, ...] = field(repr=False)

    def cells(self, depth: int, nodes: ArrayLike | None = None) -> Floats:
        """Estimates of all cells, of shape (nodes, *sizes); nan if nothing determines them."""
        chosen = self._nodes(depth, nodes)
        parts: dict[TableClass, Floats] = {}
        for table_class in self.classes.every():
            parts[table_class] = self._coordinates(depth, table_class, chosen)
        cells = self.classes.join(parts)
        # A number that nothing determines would look like an estimate.
        if self._anything_unknown(depth):
            cells = np.where(self._estimable(depth, chosen), cells, np.nan)
        return cells

    def table(self, depth: int, query: CellSums) -> AreaSums:
        """Estimates and variances of the values of a query at every node, of shape (nodes, *values
        of the query).

        A table may be determined even if its cells are not.
        """
        nodes = self._nodes(depth, None)
        summed = [axis for axis, treatment in enumerate(query.treatments) if treatment == SUMMED]
        parts: dict[TableClass, Floats] = {}
        for table_class in self.classes.every():
            part = self._coordinates(depth, table_class, nodes)
            # Residuals of an attribute add up to nothing over its levels.
            of_axes = zip(self.classes.plain, table_class, strict=True)
            vanishes = any(residual and axis in summed for axis, residual in of_axes)
            parts[table_class] = np.zeros_like(part) if vanishes else part
        values = query.sums(self.classes.join(parts))
        variances = self._table_variances(depth, nodes, query)
        return AreaSums(np.where(np.isinf(variances), np.nan, values), variances)

    def _table_variances(self, depth: int, nodes: Index, query: CellSums) -> Floats:
        """Variances of the values of a query: along plain attributes all values of a node have the
        same.
        """
        matrices = []
        for axis, size in enumerate(self.classes.sizes):
            matrix = query.matrix(axis, size)
            matrices.append(matrix[:1] if axis in self.classes.plain else matrix)
        lengths = [len(matrix) for matrix in matrices]
        weightings = []
        for index in np.ndindex(*lengths):
            cells = np.ones(())
            for matrix, row in zip(matrices, index, strict=True):
                cells = np.multiply.outer(cells, matrix[row])
            weightings.append(cells)
        sums = self.sums({depth: Share(nodes, nodes)}, np.stack(weightings))
        shape = (len(nodes), *query.shape(self.classes.sizes))
        return np.broadcast_to(sums.variances.reshape(len(nodes), *lengths), shape)

    def sums(self, areas: Mapping[int, Share], cells: ArrayLike) -> AreaSums:
        """Estimates and variances of sums over areas, for several weightings of the cells.

        Parameters
        ----------
        areas
            For some depths, the nodes of each area, with areas numbered from 0.
        cells
            Weights of cells, of shape (weightings, *sizes).
        """
        weightings = np.asarray(cells, dtype=float)
        if weightings.shape[1:] != self.classes.sizes:
            raise InputError(
                f"weights of cells have shape (any, *{self.classes.sizes}), not {weightings.shape}"
            )
        count = self._areas(areas)
        coordinates = split_weights(self.classes, weightings)
        values = self._values(areas, coordinates, count)
        variances, estimable = self._variances(areas, coordinates, count)
        blank = np.where(estimable, 0.0, np.nan)
        return AreaSums(values + blank, np.where(estimable, variances, np.inf))

    def _areas(self, areas: Mapping[int, Share]) -> int:
        """Number of areas; nodes that the tree does not have are refused."""
        if not areas:
            raise InputError("name at least one node of one area")
        for depth, share in areas.items():
            self._nodes(depth, share.nodes)
        largest = [int(share.areas.max(initial=-1)) for share in areas.values()]
        return 1 + max(largest)

    def rooted_sums(self, areas: Mapping[int, Share], cells: ArrayLike, count: int) -> RootedSums:
        """Sums over areas as `sums` gives them, with their variances split: the part that remains
        given the root, and the weights on the root.

        Parameters
        ----------
        areas, cells
            As for `sums`; no areas if none has a place in this tree.
        count
            How many areas there are, in all trees.
        """
        weightings = split_weights(self.classes, np.asarray(cells, dtype=float))
        values = np.zeros((count, len(next(iter(weightings.values())))))
        variances = np.zeros_like(values)
        on_root: dict[TableClass, tuple[Index, Floats]] = {}
        if not areas:
            return RootedSums(values, variances, on_root)
        self._areas(areas)
        values = self._values(areas, weightings, count)
        for table_class, weights in weightings.items():
            basis, coefficients = weight_basis(weights)
            if not basis.shape[1]:
                continue
            entries = _on_basis(areas, basis)
            state = gathered_at_roots(self.depths, self.places, table_class, entries, count)
            assert state.carried is not None, "weights reach the roots where a class has some"
            on_root[table_class] = state.carried.owners, state.carried.weights @ basis.T
            variances += weighted_variances(state.total, coefficients)
        return RootedSums(values, variances, on_root)

    def weighted_sum(self, weights: Mapping[int, ArrayLike]) -> AreaSums:
        """Estimate and variance of one sum whose weights differ by place and cell, in arrays of one
        entry.

        Parameters
        ----------
        weights
            For some depths, weights of shape (nodes, *sizes) for all nodes of the depth.
        """
        split = {}
        for depth, array in weights.items():
            expected = (self.places.counts[depth], *self.classes.sizes)
            one = np.asarray(array, dtype=float)
            if one.shape != expected:
                raise InputError(f"weights at depth {depth} have shape {expected}, not {one.shape}")
            split[depth] = split_weights(self.classes, one)
        value = variance = 0.0
        estimable = True
        for table_class in self.classes.every():
            entries_at = {}
            for depth, parts in split.items():
                nodes = np.arange(self.places.counts[depth])
                entries_at[depth] = Weights(nodes, np.zeros_like(nodes), parts[table_class])
                value += float(
                    (parts[table_class] * self._coordinates(depth, table_class, nodes)).sum()
                )
            matrix, determined = covariances(self.depths, self.places, table_class, entries_at, 1)
            variance += float(np.trace(matrix[0]))
            estimable &= bool(determined[0])
        if not estimable:
            value, variance = np.nan, np.inf
        # A variance of zero can come out slightly negative.
        variance = max(variance, 0.0)
        return AreaSums(np.array([[value]]), np.array([[variance]]))

    def influences(self, weights: Mapping[int, ArrayLike]) -> list[Floats]:
        """Weights of every measured value in several weighted sums: an array (sums, nodes, *values)
        for each query.

        A sum is ``Σ c y`` over all measured values `y` plus a part that exact values fix, so
        its error has the law of ``Σ c · noise``, and the variance ``Σ c² σ²``. Exact values have
        weight 0 here.

        Parameters
        ----------
        weights
            For some depths, weights of shape (sums, nodes, *sizes).

        Examples
        --------
        >>> from semidp.inference import CellSums, Measurements, Observed, Places, estimate
        >>> once, again = Observed(CellSums(()), 0, [10], 1.0), Observed(CellSums(()), 0, [13], 2.0)
        >>> answer = estimate(Measurements(Places(), (), [once, again]))
        >>> [part.round(3).tolist() for part in answer.influences({0: [[1.0]]})]
        [[[0.667]], [[0.333]]]
        """
        arrays = {}
        for depth, array in weights.items():
            arrays[depth] = np.asarray(array, dtype=float)
            expected = (self.places.counts[depth], *self.classes.sizes)
            if arrays[depth].shape[1:] != expected:
                raise InputError(
                    f"weights at depth {depth} have shape (any, *{expected}), not"
                    f" {arrays[depth].shape}"
                )
        return influences(self.depths, self.places, self.classes, self.observed, arrays)

    def _nodes(self, depth: int, nodes: ArrayLike | None) -> Index:
        if depth not in self.places.depths:
            raise InputError(f"the tree has depths 0 to {self.places.depths[-1]}, and not {depth}")
        count = self.places.counts[depth]
        if nodes is None:
            return np.arange(count)
        chosen = np.asarray(nodes, dtype=np.int64)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= count):
            raise InputError(f"depth {depth} has nodes 0 to {count - 1}")
        return chosen

    def _coordinates(self, depth: int, table_class: TableClass, nodes: Index) -> Floats:
        level = self.depths[depth]
        columns = self.classes.coordinates(table_class)
        means = np.zeros((len(nodes), self.classes.block, columns))
        for number, entries in level.locate_groups(nodes):
            belief = level.beliefs[table_class][number]
            at = np.ix_(entries, level.groups[number].cells)
            means[at] = belief.mean[level.place_of[nodes[entries]]]
        return means

    def _values(
        self, areas: Mapping[int, Share], weightings: dict[TableClass, Floats], count: int
    ) -> Floats:
        values = np.zeros((count, len(next(iter(weightings.values())))))
        for depth, share in areas.items():
            level = self.depths[depth]
            of_node = np.zeros((len(share.nodes), values.shape[1]))
            for number, entries in level.locate_groups(share.nodes):
                cells = level.groups[number].cells
                places = level.place_of[share.nodes[entries]]
                # Classes are orthonormal: products of coordinates add up to those of cells.
                for table_class, weights in weightings.items():
                    means = level.beliefs[table_class][number].mean[places]
                    on_cells = weights[:, cells]
                    of_node[entries] += np.tensordot(means, on_cells, axes=([1, 2], [1, 2]))
            weighted = share.weights[:, None] * of_node
            np.add.at(values, share.areas, weighted)
        return values

    def _variances(
        self, areas: Mapping[int, Share], weightings: dict[TableClass, Floats], count: int
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Variances (areas, weightings): for each class the covariance of what the weightings see
        of the block.
        """
        several = len(next(iter(weightings.values())))
        variances = np.zeros((count, several))
        estimable = np.ones((count, several), dtype=bool)
        for table_class, weights in weightings.items():
            basis, coefficients = weight_basis(weights)
            if not basis.shape[1]:
                continue
            entries_at = _on_basis(areas, basis)
            matrices, determined = covariances(
                self.depths, self.places, table_class, entries_at, count
            )
            variances += weighted_variances(matrices, coefficients)
            used = np.abs(coefficients).max(axis=(1, 2)) > 0
            # The basis may span more than each weighting sees.
            if not determined.all() and basis.shape[1] > 1:
                estimable &= self._each_estimable(entries_at, table_class, coefficients, count)
            else:
                estimable &= determined[:, None] | ~used
        return np.maximum(variances, 0.0), estimable

    def _each_estimable(
        self,
        entries_at: dict[int, Weights],
        table_class: TableClass,
        coefficients: Floats,
        count: int,
    ) -> NDArray[np.bool_]:
        """Whether each weighting is estimable where not all that the basis spans is."""
        answers = []
        for one in coefficients:
            alone = {}
            for depth, weights in entries_at.items():
                alone[depth] = Weights(weights.nodes, weights.owners, weights.weights @ one)
            _, determined = covariances(self.depths, self.places, table_class, alone, count)
            answers.append(determined)
        return np.stack(answers, axis=1)

    def _anything_unknown(self, depth: int) -> bool:
        for beliefs in self.depths[depth].beliefs.values():
            if any(belief.unknown is not None for belief in beliefs):
                return True
        # Contrasts alone leave open what a family has in common.
        contrasts = self.depths[depth].contrasts.values()
        return any(contrast.common.unknown is not None for contrast in contrasts)

    def _estimable(self, depth: int, nodes: Index) -> NDArray[np.bool_]:
        """Whether each cell of each node is determined by what was measured."""
        block = self.classes.block
        answers = np.ones((len(nodes), block), dtype=bool)
        owners = np.arange(len(nodes))
        for table_class in self.classes.every():
            for cell in range(block):
                unit = np.zeros((len(nodes), block, 1))
                unit[:, cell] = 1
                entries_at = {depth: Weights(nodes, owners, unit)}
                areas = len(nodes)
                _, determined = covariances(
                    self.depths, self.places, table_class, entries_at, areas
                )
                answers[:, cell] &= determined
        shape = [self.classes.sizes[axis] for axis in self.classes.dense]
        plain = [1] * len(self.classes.plain)
        apart = answers.reshape(len(nodes), *shape, *plain)
        order = [*self.classes.dense, *self.classes.plain]
        axes = [1 + axis for axis in order]
        return np.moveaxis(apart, range(1, 1 + len(order)), axes)


def split_weights(classes: Classes, cells: Floats) -> dict[TableClass, Floats]:
    """Coordinates of tables in every class: (tables, block, columns)."""
    order = [*classes.dense, *classes.plain]
    axes = [1 + axis for axis in order]
    moved = np.moveaxis(cells, axes, range(1, 1 + len(order)))
    arranged = moved.reshape(len(cells), classes.block, *classes.plain_sizes)
    parts = classes.split(arranged)
    # Rounding errors of a class that the weights do not see must not look like weights.
    least = 1e-13 * np.abs(cells).max(initial=0)
    cleaned = {}
    for table_class, part in parts.items():
        cleaned[table_class] = np.where(np.abs(part) > least, part, 0.0)
    return cleaned


def weight_basis(weights: Floats) -> tuple[Floats, Floats]:
    """Orthonormal vectors that span what weightings see of the block, and coefficients (weightings,
    q, columns).
    """
    block = weights.shape[1]
    columns = np.moveaxis(weights, 1, 0).reshape(block, -1)
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    basis = vectors[:, sizes > 1e-12 * sizes.max(initial=0)]
    coefficients: Any = np.einsum("bq,tbc->tqc", basis, weights)
    return basis, coefficients


def _on_basis(areas: Mapping[int, Share], basis: Floats) -> dict[int, Weights]:
    """Weights of areas on the directions of a basis (block, q), by depth."""
    entries_at = {}
    for depth, share in areas.items():
        entries = share.weights[:, None, None] * basis
        entries_at[depth] = Weights(share.nodes, share.areas, entries)
    return entries_at


def weighted_variances(matrices: Floats, coefficients: Floats) -> Floats:
    """Variances (areas, weightings) from covariance matrices (areas, q, q) and coefficients
    (weightings, q, columns).
    """
    variances: Floats = np.einsum(
        "tqc,aqr,trc->at", coefficients, matrices, coefficients, optimize=True
    )
    return variances
