"""Tables of a product assembled from their residuals: estimates, variances, and weights of sums.

Everything here is computed from measurements and published numbers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.orthogonal_parts import (
    Residuals,
    list_coarser_views,
    reshape_along_axis,
    share_of_ancestor,
)
from semidp.promise.sensitivity.products import ProductSpace


def estimate_tables(space: ProductSpace, vector: ArrayLike) -> list[Floats]:
    """Return every table assembled from a vector of measurements and the exact totals.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.sensitivity.products import product_space
    >>> both, table = two_way()
    >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
    >>> bool(np.allclose(estimate_tables(space, space.measure([table]))[0], table.counts))
    True
    """
    return assemble_tables(space, {**space.exact_residuals, **space.split_residuals(vector)})


def assemble_tables(space: ProductSpace, residuals: Mapping[View, Floats]) -> list[Floats]:
    """Return every table assembled from its residuals."""
    tables = []
    for view in space.views:
        trimmed_table = sum_residuals(space.residuals, residuals, view)
        tables.append(space.restore_full_table(trimmed_table, view))
    return tables


def compute_cell_variances(space: ProductSpace, variances: Floats, table: int) -> Floats:
    """Return the variance of each cell of one table, for independent noise in the entries of
    the vector.
    """
    view = space.views[table]
    result = np.zeros(space.residuals.shape(view))
    for small in space.inside[table]:
        part = space.parts[small]
        # The noise was drawn on scaled residuals: variances divide by the square of the scale.
        unscaled = variances[part] / space.scales[part].astype(float) ** 2
        shaped = unscaled.reshape(space.residuals.shape(small))
        centred = space.residuals.centred_variance(small, shaped)
        result = result + spread_residual(space.residuals, centred, small, view, power=2)
    return space.restore_full_table(result, view)


def list_possible_cells(space: ProductSpace, table: int) -> NDArray[np.intp]:
    """Return the positions of the cells of one table that a record can lie in."""
    view = space.views[table]
    mask = np.zeros(space.schema.grid.compute_margin_shape(view), dtype=bool)
    mask[space.index_nodes(view)] = True
    if table in space.impossible:
        mask.ravel()[space.impossible[table]] = False
    return np.flatnonzero(mask)


def mask_possible_cells(space: ProductSpace, table: int) -> NDArray[np.bool_] | None:
    """Return a mask of the cells of one table that can be filled; None if every combination
    of its levels can.
    """
    if table not in space.impossible:
        return None
    shape = space.schema.grid.compute_margin_shape(space.views[table])
    mask = np.ones(shape, dtype=bool)
    mask.ravel()[space.impossible[table]] = False
    return mask


def combine_cells(space: ProductSpace, weights: Mapping[int, ArrayLike]) -> Floats:
    """Return weights on the entries of the vector, from weights on cells of the tables (by
    number).
    """
    return pull_back_weights(space, gather_on_residuals(space, weights))


def gather_on_residuals(
    space: ProductSpace, weights: Mapping[int, ArrayLike]
) -> dict[View, Floats]:
    """Return weights on the measured residuals, from weights on cells of the tables (by
    number).
    """
    gathered: dict[View, Floats] = {}
    for table, cell_weights in weights.items():
        view = space.views[table]
        shape = space.schema.grid.compute_margin_shape(view)
        array = np.asarray(cell_weights, dtype=np.float64)
        if array.shape != shape:
            raise InputError(
                f"the weights have shape {array.shape}, but the table has shape {shape}"
            )
        cut = space.trim(array, view)
        for small in space.inside[table]:
            # The transpose of putting the table together: weights of cells are summed onto its
            # residuals.
            share = gather_weights(space.residuals, cut, view, small)
            gathered[small] = gathered.get(small, 0.0) + share
    return gathered


def pull_back_weights(space: ProductSpace, gathered: Mapping[View, Floats]) -> Floats:
    """Return weights on the entries of the vector, from weights on residuals: the transpose of
    centering and of dividing by the scales.
    """
    result = np.zeros(space.shape)
    for view, values in gathered.items():
        centred = space.residuals.center(view, values)
        result[space.parts[view]] = centred.ravel()
    return result / space.scales


def sum_residuals(residuals: Residuals, parts: Mapping[View, Floats], view: View) -> Floats:
    """Return the table at a view: the sum of the residuals below it."""
    result = np.zeros(residuals.shape(view))
    for small in list_coarser_views(view):
        if small in parts:
            result = result + spread_residual(residuals, parts[small], small, view)
    return result


def spread_residual(
    residuals: Residuals, values: NDArray[Any], view: View, target: View, power: int = 1
) -> Floats:
    """Divide each entry at a view evenly among its descendants at a finer view. Variances are
    divided with ``power=2``.
    """
    axes = list_axes(target)
    result = residuals.grid.spread(np.asarray(values, dtype=np.float64), view, target)
    for place, axis in enumerate(axes):
        if view[axis] < target[axis]:
            share = share_of_ancestor(residuals.grid.chains[axis], view[axis], target[axis])
            result = result * reshape_along_axis(share**power, place, len(axes))
    return np.broadcast_to(result, residuals.shape(target))


def gather_weights(residuals: Residuals, weights: NDArray[Any], source: View, view: View) -> Floats:
    """Return weights on the entries of a residual, from weights on the cells at `source`: the
    transpose of `spread_residual`.
    """
    values = np.asarray(weights, dtype=np.float64).reshape(residuals.shape(source))
    for place, axis in enumerate(list_axes(source)):
        if view[axis] < source[axis]:
            share = share_of_ancestor(residuals.grid.chains[axis], view[axis], source[axis])
            values = values * reshape_along_axis(share, place, values.ndim)
    return residuals.table(values, source, view)
