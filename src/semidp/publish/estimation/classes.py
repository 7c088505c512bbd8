"""Attributes cut into classes that nothing couples.

An attribute that every query sums up or keeps, and that no zero depends on, is *plain*: its mean
and its residual are measured apart. The classes are the ways to choose mean or residual for each
plain attribute; the cells of all other attributes together make a dense block. Within a class one
matrix of the size of the block serves all coordinates.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.publish.estimation.measurements import (
    CONTRASTS,
    SUMMED,
    Among,
    CellSums,
    Floats,
    Measurements,
    Observed,
)

TableClass = tuple[bool, ...]
"""For each plain attribute whether the class is about its residual (else its mean)."""


@frozen
class Classes:
    """Which attributes are plain, and how tables are cut into classes and put together.

    >>> from semidp.publish.estimation.places import Places
    >>> detailed = Observed(CellSums(("each", (0, 1, 1))), 0, np.zeros((1, 2, 2)), 1.0)
    >>> classes = Classes.from_measurements(Measurements(Places(), (2, 3), [detailed]))
    >>> classes.plain, classes.block, list(classes.every())
    ((0,), 3, [(False,), (True,)])
    """

    sizes: tuple[int, ...]
    plain: tuple[int, ...]

    @classmethod
    def from_measurements(cls, measurements: Measurements) -> "Classes":
        """Return the finest classes for these measurements."""
        plain = []
        for attribute in range(len(measurements.sizes)):
            if _is_plain(attribute, measurements):
                plain.append(attribute)
        return cls(measurements.sizes, tuple(plain))

    @property
    def dense(self) -> tuple[int, ...]:
        """Attributes that make the block."""
        return tuple(axis for axis in range(len(self.sizes)) if axis not in self.plain)

    @property
    def block(self) -> int:
        """Number of cells of the block."""
        return math.prod(self.sizes[axis] for axis in self.dense)

    @property
    def plain_sizes(self) -> tuple[int, ...]:
        """Number of levels of each plain attribute."""
        return tuple(self.sizes[axis] for axis in self.plain)

    def every(self) -> Iterator[TableClass]:
        """Every class; a plain attribute with one level has no residual."""
        choices = [(False, True) if size > 1 else (False,) for size in self.plain_sizes]
        return itertools.product(*choices)

    def coordinates(self, table_class: TableClass) -> int:
        """Number of coordinates of a class beside the block; residuals are kept as centred
        cells.
        """
        lengths = [
            size for residual, size in zip(table_class, self.plain_sizes, strict=True) if residual
        ]
        return math.prod(lengths)

    def design(self, query: CellSums) -> Floats:
        """Matrix of a query on the block, of shape (values of the query, block)."""
        design: Floats = np.ones((1, 1))
        for axis in self.dense:
            design = np.asarray(np.kron(design, query.matrix(axis, self.sizes[axis])), dtype=float)
        return design

    def factor(self, query: CellSums, table_class: TableClass) -> float:
        """How much a query says of a class: 0 if nothing, n for a mean of n levels that it adds
        up.
        """
        product = 1.0
        for axis, residual in zip(self.plain, table_class, strict=True):
            treatment = query.treatments[axis]
            if residual:
                product *= treatment != SUMMED
            elif treatment == CONTRASTS:
                product = 0.0
            elif isinstance(treatment, Among):
                product *= 1 - len(treatment.kept) / treatment.levels
            elif treatment == SUMMED:
                product *= self.sizes[axis]
        return product

    def arrange_values(self, values: NDArray[np.generic], query: CellSums) -> NDArray[np.generic]:
        """View of values of a query as (nodes, values along the block, values along each plain
        attribute).
        """
        shape = query.shape(self.sizes)
        apart = values.reshape(len(values), *shape)
        moved = np.moveaxis(apart, [axis + 1 for axis in self.plain], range(-len(self.plain), 0))
        block = math.prod(shape[axis] for axis in self.dense)
        lengths = [shape[axis] for axis in self.plain]
        return moved.reshape(len(values), block, *lengths)

    def split(self, cells: Floats) -> dict[TableClass, Floats]:
        """Coordinates of arranged arrays in every class.

        A mean is kept as ``Σ / √n``, so that the coordinates of all classes are an orthonormal
        change of the cells. An attribute of length 1 that has more levels is a sum: it has a mean
        and no residual.
        """
        parts: dict[TableClass, Floats] = {(): cells}
        for place, size in enumerate(self.plain_sizes):
            axis = 2 + place
            finer: dict[TableClass, Floats] = {}
            for table_class, part in parts.items():
                # Mean and residual are orthogonal, so that neither says anything of the other.
                total = part.sum(axis=axis, keepdims=True)
                finer[(*table_class, False)] = total / math.sqrt(size)
                if part.shape[axis] == size > 1:
                    finer[(*table_class, True)] = part - total / size
            parts = finer
        for table_class, part in parts.items():
            parts[table_class] = part.reshape(*part.shape[:2], math.prod(part.shape[2:]))
        return parts

    def join(self, parts: dict[TableClass, Floats]) -> Floats:
        """Cells, of shape (nodes, *sizes), from the coordinates of every class."""
        nodes, block = next(iter(parts.values())).shape[:2]
        cells = np.zeros((nodes, block, *self.plain_sizes))
        for table_class, part in parts.items():
            scale = 1.0
            lengths = []
            for residual, size in zip(table_class, self.plain_sizes, strict=True):
                scale *= 1.0 if residual else 1 / math.sqrt(size)
                lengths.append(size if residual else 1)
            cells += scale * part.reshape(nodes, block, *lengths)
        apart = cells.reshape(nodes, *(self.sizes[axis] for axis in self.dense), *self.plain_sizes)
        order = [*self.dense, *self.plain]
        return np.moveaxis(apart, range(1, 1 + len(order)), [1 + axis for axis in order])


def right_side(observed: Observed, classes: Classes, values: Floats) -> dict[TableClass, Floats]:
    """Values in each class as the normal equations take them: ``Q'y`` along the plain attributes.

    `values` are arranged; a sum of n levels counts √n times, as ``Q'`` spreads it over them.
    """
    for place, axis in enumerate(classes.plain):
        treatment = observed.query.treatments[axis]
        if isinstance(treatment, Among):
            # Levels that are not kept say something of the others through the mean alone.
            matrix = treatment.matrix()
            values = np.moveaxis(np.tensordot(matrix.T, values, axes=(1, 2 + place)), 0, 2 + place)
    parts = classes.split(values)
    chosen = {}
    for table_class, part in parts.items():
        factor = 1.0
        for axis, size, residual in zip(
            classes.plain, classes.plain_sizes, table_class, strict=True
        ):
            if not residual and observed.query.treatments[axis] == SUMMED:
                factor *= size
        if classes.factor(observed.query, table_class):
            chosen[table_class] = factor * part
    return chosen


def _is_plain(attribute: int, measurements: Measurements) -> bool:
    # Unequal groups of levels mix means and residuals, and so do zeros.
    for one in measurements.observed:
        if not isinstance(one.query.treatments[attribute], str | Among):
            return False
    masks = measurements.possible.values()
    return all(
        mask.shape[attribute + 1] == 1 or measurements.sizes[attribute] == 1 for mask in masks
    )
