"""Every dataset of a small space of records (x, y), by brute force: what the closed forms are held
against.
"""

import itertools

import numpy as np
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin


class Everything:
    """All datasets of n labelled records (x, y) with the published margins, y in 0..B."""

    def __init__(self, table: Table, margins: list[Margin], steps: int) -> None:
        self.dataspace = Dataspace.from_table(table, margins)
        self.schema = table.schema
        shape = table.schema.shape
        cells = np.array(list(np.ndindex(*shape)))
        n = table.n
        placements = np.array(list(itertools.product(range(len(cells)), repeat=n)))
        kept = np.ones(len(placements), dtype=bool)
        for margin in self.dataspace.margins:
            axes = table.schema.axes(margin.names)
            sides = [shape[axis] for axis in axes]
            codes = np.ravel_multi_index(tuple(cells[:, axis] for axis in axes), sides)[placements]
            wanted = self.dataspace.value(margin).counts.ravel()
            for level, count in enumerate(wanted):
                kept &= (codes == level).sum(axis=1) == count
        places = placements[kept]
        outcomes = np.array(list(itertools.product(range(steps + 1), repeat=n)))
        self.cells = cells
        self.x = np.repeat(places, len(outcomes), axis=0)
        self.y = np.tile(outcomes, (len(places), 1))
        self.steps = steps

    def norms(self, query: np.ndarray, a: int) -> tuple[int, int, int]:
        """The largest l1, squared l2 and l∞ difference of a query, one row a dataset, over pairs at
        most a apart.
        """
        records = self.x * (self.steps + 1) + self.y
        worst = np.zeros(3, dtype=np.int64)
        for i in range(len(records)):
            near = (records != records[i]).sum(axis=1) <= a
            apart = np.abs(query[near] - query[i])
            found = [apart.sum(axis=1).max(), (apart**2).sum(axis=1).max(), apart.max()]
            worst = np.maximum(worst, found)
        return tuple(worst.tolist())

    def sums(self, blocks: list[Margin]) -> np.ndarray:
        """The sums of y by the cells of each block, one row a dataset."""
        parts = []
        for block in blocks:
            axes = self.schema.axes(block.names)
            sides = [self.schema.shape[axis] for axis in axes]
            codes = np.ravel_multi_index(tuple(self.cells[:, axis] for axis in axes), sides)[self.x]
            parts += [
                ((codes == level) * self.y).sum(axis=1) for level in range(int(np.prod(sides)))
            ]
        return np.stack(parts, axis=1)

    def moments(self, rows: np.ndarray) -> np.ndarray:
        """Σ z(x_i) y_i, one row a dataset, for rows z of every cell of the schema."""
        return (rows[self.x] * self.y[:, :, None]).sum(axis=1)


@pytest.fixture
def everything():
    return Everything


def table(counts: object, names: str = "AB") -> Table:
    """A table with features A, B, … and the given counts."""
    array = np.asarray(counts)
    features = [
        Feature(name, [str(k) for k in range(size)])
        for name, size in zip(names, array.shape, strict=False)
    ]
    return Table(Schema(tuple(features)), array)


@pytest.fixture(name="table")
def table_fixture():
    return table


@pytest.fixture
def wards():
    """Records of three wards, the last of them empty, and a public dataspace."""
    schema = Schema((Feature("ward", ("a", "b", "c")),))
    return Dataspace.from_table(Table(schema, np.array([30, 20, 0])), [Margin("ward")]), Ball(2)
