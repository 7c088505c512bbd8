"""Problems for the fits: a dataspace with the margins of a hidden table, and every table of a small
one.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Grid, Totals, View
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin

NAMES = "ABCDE"


def schema_of(shape: Sequence[int], zeros: Sequence[StructuralZero] = ()) -> Schema:
    """Features A, B, … with levels 0, 1, …"""
    features = [
        Feature(NAMES[axis], tuple(map(str, range(size)))) for axis, size in enumerate(shape)
    ]
    return Schema(tuple(features), tuple(zeros))


def space_of(
    hidden: NDArray[np.int64], margins: str, zeros: Sequence[StructuralZero] = ()
) -> Dataspace:
    """The dataspace of a hidden table with margins written ``"AB BC"``."""
    table = Table(schema_of(hidden.shape, zeros), hidden)
    return Dataspace.from_table(table, [Margin(*names) for names in margins.split()])


def totals_of(
    hidden: NDArray[np.int64], views: Sequence[View], grid: Grid | None = None
) -> list[Totals]:
    """The margins of a hidden table; of ordinary features unless a grid is given."""
    grid = Grid.flat(hidden.shape) if grid is None else grid
    return [Totals(view, grid.sum(hidden, view)) for view in views]


def margins_exact(counts: NDArray[np.int64], space: Dataspace) -> bool:
    """Whether an integer array is a table of the space; building the table checks signs and
    structural zeros.
    """
    assert counts.dtype == np.int64
    return space.contains(Table(space.schema, counts))


def all_tables(space: Dataspace) -> Iterator[NDArray[np.int64]]:
    """Every table of a small dataspace."""
    assert space.n is not None
    grid, views = space.schema.grid, [space.schema.view(margin.names) for margin in space.margins]
    totals = [
        Totals(view, total.counts.reshape(grid.compute_margin_shape(view)))
        for view, total in zip(views, space.totals, strict=True)
    ]
    if not totals:
        totals = [Totals(grid.nothing, np.full(grid.compute_margin_shape(grid.nothing), space.n))]
    return tables_with(grid, totals, space.schema.possible)


def tables_with(
    grid: Grid, totals: Sequence[Totals], possible: NDArray[np.bool_] | None = None
) -> Iterator[NDArray[np.int64]]:
    """Every table with these totals, by filling cell after cell within what each total has left."""
    size = grid.count_margin_cells(grid.full)
    open_cells = [True] * size if possible is None else possible.ravel().tolist()
    labels = [grid.labels(total.view).tolist() for total in totals]
    keys = [[(which, label[cell]) for which, label in enumerate(labels)] for cell in range(size)]
    left = {
        (which, cell): count
        for which, total in enumerate(totals)
        for cell, count in enumerate(total.counts.flat)
    }
    last = {key: index for index, those in enumerate(keys) for key in those}
    filled = [0] * size

    def fill(index: int) -> Iterator[NDArray[np.int64]]:
        if index == size:
            yield np.array(filled, dtype=np.int64).reshape(grid.shape)
            return
        top = min(left[key] for key in keys[index]) if open_cells[index] else 0
        for count in range(top + 1):
            if all(left[key] == count for key in keys[index] if last[key] == index):
                for key in keys[index]:
                    left[key] -= count
                filled[index] = count
                yield from fill(index + 1)
                for key in keys[index]:
                    left[key] += count

    yield from fill(0)


def least_loss(noisy: NDArray[np.float64], space: Dataspace) -> float:
    """The loss of the closest table of a small dataspace, by trying all."""
    return min(float(((table - noisy) ** 2).sum()) for table in all_tables(space))
