"""Measurement of all parts as one vector: residuals and cells are put together from the parts, and
taken apart again.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.promise.sensitivity.residuals import kept_nodes
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.tables.by_parts.part_measurement import split_residuals
from semidp.publish.statistics.tables.by_parts.table_of_parts import files_of_parts
from semidp.publish.statistics.tables.published import measurements_stem
from semidp.publish.statistics.tables.request import TableRequest, TablesRequest


def branch_vector(
    mechanism: ResidualMechanism, cut: Cut, node: int, noise: BranchNoise, vector: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the entries of a vector of all residuals that one part measured, in the order of the
    part.
    """
    space = mechanism.space
    pieces = [np.zeros(0, np.int64)]
    for view in noise.space.parts:
        entries = vector[space.parts[view]]
        whole = entries.reshape(space.residuals.shape(view))
        pieces.append(whole[_place(mechanism, cut, node, view)].ravel())
    return np.concatenate(pieces)


def whole_vector(
    mechanism: ResidualMechanism,
    cut: Cut,
    above: NDArray[np.int64],
    measured: Mapping[int, Mapping[View, NDArray[np.int64]]],
) -> NDArray[np.int64]:
    """Return the vector of all residuals, as one piece measures it.

    A residual of an only child is zero, and no part measures it: its entries stay 0.

    Parameters
    ----------
    mechanism, cut
        The noise of the whole, and where tables were taken apart.
    above
        What was measured at the cut and above.
    measured
        For each part, by its node, the residuals that it has measured.
    """
    space = mechanism.space
    vector = np.zeros(space.shape, dtype=np.int64)
    for view, part in mechanism_above(mechanism, cut).space.parts.items():
        vector[space.parts[view]] = above[part]
    for node, residuals in measured.items():
        for view, values in residuals.items():
            # A slice reshaped is a view of the vector: what is set in it is set there.
            entries = vector[space.parts[view]]
            whole = entries.reshape(space.residuals.shape(view))
            whole[_place(mechanism, cut, node, view)] = values
    return vector


def _place(mechanism: ResidualMechanism, cut: Cut, node: int, view: View) -> tuple[slice, ...]:
    """Indices of one part's entries in a residual of the whole. Nodes that can hold no record are
    left out.
    """
    space = mechanism.space
    chain = cut.chain(space.schema)
    depth = view[cut.axis]
    held = kept_nodes(chain, space._inhabited_leaves[cut.axis], depth)
    below = chain.slice_descendants(cut.depth, node, depth)
    start = int(held[: below.start].sum())
    stop = start + int(held[below].sum())
    axes_before = list_axes(view).index(cut.axis)
    return (*[slice(None)] * axes_before, slice(start, stop))


def whole_cells(
    asked: TableRequest, schema: Schema, cut: Cut, cells: Mapping[int, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the noisy cells of a table, put together from those of every part."""
    view = schema.view(asked.features)
    whole = np.zeros(schema.grid.compute_margin_shape(view), dtype=np.int64)
    for node, values in cells.items():
        row = cut.row(schema.grid, view, whole, node)
        if values.size != row.size or values.dtype != np.int64:
            raise DataError("the measurements of a part are not those of the plan")
        row[...] = values.reshape(row.shape)
    return whole.reshape(schema.restrict(asked.features).shape)


def vector_of_parts(
    request: TablesRequest,
    residuals: ResidualMechanism,
    cut: Cut,
    above: NDArray[np.int64],
    partition: Partition,
    folder: Path,
) -> NDArray[np.int64]:
    """Read the residuals that every part measured; return the vector of all residuals, as one piece
    measures it.

    Parameters
    ----------
    request, residuals
        What was asked for, and the noise of the whole.
    cut, above
        Where tables were taken apart, and what was measured there and above.
    partition, folder
        The parts, and the folder of the release.
    """
    measured = {}
    for node, part in enumerate(files_of_parts(partition, folder)):
        noise = BranchNoise.from_mechanism(residuals, cut, node)
        # Nothing was measured where nobody can be.
        if noise is not None:
            noisy = part.numbers(measurements_stem(request), 1)["noisy"]
            measured[node] = split_residuals(noise.space, noisy)
    return whole_vector(residuals, cut, above, measured)
