"""Impossible cells of a product's tables set to zero in its residuals, so that all tables move
together.

An impossible cell is a linear function of the residuals that is known to be 0. The best linear
unbiased estimate given such knowledge is the measurement minus what it has in common with the error
at those cells: constrained least squares (docs/products.md). It is post-processing of public
values: which cells are impossible follows from the schema and from the published totals.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from semidp.promise.schema.margins import Floats
from semidp.promise.sensitivity.products import ProductSpace

_FIXED = 1e-9  # of the largest: directions in which totals fix the impossible cells already
_NOTHING = 1e-11  # a weight that floating point has left where there is none


@dataclass(frozen=True, eq=False)
class Conditioning:
    """Correction of the residuals of a product by its impossible cells.

    Let L be the weights of the impossible cells on the entries of the vector, V the variances of
    the noise, G = L V L'. A vector z becomes ``z - V L' G⁺ e``, where e are the estimates at the
    impossible cells; weights w of any sum of cells become ``w - L' G⁺ L V w``. The pseudo-inverse
    leaves alone what totals fix already.

    Parameters
    ----------
    space
        The residuals.
    variances
        The variance of the noise in each entry of the vector.
    """

    space: ProductSpace
    variances: Floats = field(repr=False)

    @cached_property
    def rows(self) -> Floats:
        """L: a row for each impossible cell, table after table."""
        rows = []
        for table, cells in self.space.impossible.items():
            shape = self.space.schema.grid.compute_margin_shape(self.space.views[table])
            for cell in cells:
                unit = np.zeros(math.prod(shape))
                unit[cell] = 1.0
                rows.append(self.space.combination({table: unit.reshape(shape)}))
        return np.array(rows).reshape(len(rows), *self.space.shape)

    @cached_property
    def _inverse(self) -> Floats:
        """G⁺, the pseudo-inverse of the covariances of the errors at impossible cells."""
        # whole families of cells may be fixed by totals, or one by the others: there is no inverse
        # then
        covariance = (self.rows * self.variances) @ self.rows.T
        return np.asarray(np.linalg.pinv(covariance, rcond=_FIXED, hermitian=True))

    def _at_impossible(self, tables: list[Floats]) -> Floats:
        """Values of tables at the impossible cells, in the order of the rows."""
        parts = []
        for table, cells in self.space.impossible.items():
            parts.append(tables[table].ravel()[cells])
        return np.concatenate(parts)

    def vector(self, values: ArrayLike) -> Floats:
        """Return the nearest vector, in terms of the noise, whose tables are zero at the impossible
        cells.
        """
        vector = np.asarray(values, dtype=np.float64)
        excess = self._at_impossible(self.space.estimates(vector))
        pulled = self.rows.T @ (self._inverse @ excess)
        return np.asarray(vector - self.variances * pulled)

    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return every table put together from a vector, with zeros in the impossible cells."""
        tables = self.space.estimates(self.vector(values))
        for table, cells in self.space.impossible.items():
            tables[table].ravel()[cells] = 0.0  # up to floating point they are
        return tables

    def weights(self, weights: Floats) -> Floats:
        """Return weights on the noise after conditioning, from those before; one row for each
        sum.
        """
        common = (weights * self.variances) @ self.rows.T
        conditioned = np.asarray(weights - (common @ self._inverse) @ self.rows)
        # What rounding left over would be a term of its own in the law of the sum.
        conditioned[np.abs(conditioned) * self.space.scales < _NOTHING] = 0.0
        return conditioned

    def table_weights(self, table: int) -> Floats:
        """Return the weights of the cells of one table on the noise: one row for each cell that can
        be positive.
        """
        view = self.space.views[table]
        shape = self.space.schema.grid.compute_margin_shape(view)
        rows = np.zeros((math.prod(shape), *self.space.shape))
        for cell in self.space.possible_cells(table):
            unit = np.zeros(math.prod(shape))
            unit[cell] = 1.0
            combination = self.space.combination({table: unit.reshape(shape)})
            rows[cell] = self.weights(combination[None])[0]
        return rows

    def cell_variances(self, table: int) -> Floats:
        """Return the variance of each cell of one table."""
        shape = self.space.schema.grid.compute_margin_shape(self.space.views[table])
        variances = self.table_weights(table) ** 2 @ self.variances
        return np.asarray(variances.reshape(shape))


def combine_weights(
    space: ProductSpace, weights: Mapping[int, ArrayLike], given: Conditioning | None
) -> Floats:
    """Return weights on the noise in the entries of the vector, from weights on cells of the
    tables.
    """
    pulled = space.combination(weights)
    return pulled if given is None else given.weights(pulled[None])[0]
