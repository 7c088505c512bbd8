"""Tables of a product from noise on residuals: noise placed for the tables that it serves, with
their estimates and errors.

The noise and its guarantee are those of `promise.mechanisms.residual_noise`.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import (
    LAWS,
    ResidualNoise,
    different_scales,
    draws_of_laws,
)
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats, list_axes, trimmed_view
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import RECORD
from semidp.publish.placement import Objective, Workload, closed_form, place_noise
from semidp.publish.product_estimates import (
    combine_cells,
    compute_cell_variances,
    estimate_tables,
    list_possible_cells,
)

NEAR = 5e-3  # a normal law this close, in standard deviations, takes the place of the law itself
_WORTH = 1e-5  # the share of the variance from which on the joint cost is used


@frozen(slots=False, eq=False)
class SharedNoise(Mechanism):
    """A mechanism that measures several tables at once. Tables are identified by their numbers.

    With weights w of a sum on the entries of the vector (`combination`) and independent noise of
    variances v, the variance of the sum is ``Σ w² v``.
    """

    @property
    @abstractmethod
    def entry_variances(self) -> Floats:
        """The variance of the noise in each entry of the vector."""

    @property
    @abstractmethod
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each entry of the vector."""

    @property
    @abstractmethod
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""

    @abstractmethod
    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return every table assembled from a vector of measurements."""

    @abstractmethod
    def table_schema(self, table: int) -> Schema:
        """Return the features of a table as it is published."""

    @abstractmethod
    def cell_variances(self, table: int) -> Floats:
        """Return the variance of each cell of a table's estimate, as it is published."""

    def table_errors(self, table: int) -> Floats:
        """Return the standard error of each cell of one table's estimate."""
        return np.sqrt(self.cell_variances(table))

    def find_kind(self, table: int) -> str:
        """Return the kind of record that a table counts."""
        return RECORD

    def published_cells(self, cells: NDArray[Any], table: int) -> NDArray[Any]:
        """Return the cells of a table as published: levels of the size may be
        merged.
        """
        return cells

    @abstractmethod
    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on the noise in the entries of the vector, from weights on cells of the
        tables (by number).
        """

    @abstractmethod
    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the vector that can have a weight in sums of cells of some
        tables.
        """

    @abstractmethod
    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, for many measurements at once."""


_FIXED = 1e-9  # of the largest: directions in which totals fix the impossible cells already
_NOTHING = 1e-11  # a weight that floating point has left if there is none


@frozen(slots=False, eq=False)
class Conditioning:
    """Correction of the residuals of a product by its impossible cells.

    Let L be the weights of the impossible cells on the entries of the vector, V the variances of
    the noise, G = L V L'. A vector z becomes ``z - V L' G⁺ e``, where e are the estimates at the
    impossible cells; weights w of any sum of cells become ``w - L' G⁺ L V w``. The pseudo-inverse
    leaves alone whatever totals already fix.

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
                rows.append(combine_cells(self.space, {table: unit.reshape(shape)}))
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
        excess = self._at_impossible(estimate_tables(self.space, vector))
        pulled = self.rows.T @ (self._inverse @ excess)
        return np.asarray(vector - self.variances * pulled)

    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return every table put together from a vector, with zeros in the impossible cells."""
        tables = estimate_tables(self.space, self.vector(values))
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
        # cells that cannot be positive keep weight 0: they are 0 without any noise
        rows = np.zeros((math.prod(shape), *self.space.shape))
        for cell in list_possible_cells(self.space, table):
            unit = np.zeros(math.prod(shape))
            unit[cell] = 1.0
            combination = combine_cells(self.space, {table: unit.reshape(shape)})
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
    pulled = combine_cells(space, weights)
    return pulled if given is None else given.weights(pulled[None])[0]


@frozen(slots=False, eq=False)
class ResidualMechanism(ResidualNoise, SharedNoise):
    """Noise on the residuals of a product, placed to serve the tables best.

    Parameters
    ----------
    workload
        The objective of its placement; None for recorded noise.

    Examples
    --------
    >>> from semidp.promise.sensitivity.products import product_space
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> both, table = two_way()
    >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
    >>> mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    >>> (
    ...     {view: round(float(square), 4) for view, square in mechanism.sigma2.items()},
    ...     mechanism.tradeoff,
    ... )
    ({(1, 1): 4.0}, Gaussian(mu_squared=Fraction(1, 1)))
    """

    workload: Workload | None = field(default=None, repr=False)

    @classmethod
    def from_precision(
        cls,
        space: ProductSpace,
        precision: Fraction,
        law: str,
        weights: Sequence[float] | None = None,
        objective: Objective = Objective.total,
        joint: bool = True,
    ) -> Self:
        """Return the mechanism whose tables have the least total variance, or the least largest
        standard error.

        Parameters
        ----------
        space
            The residuals of the product.
        precision, law
            The largest cost of a move, and the noise distribution.
        weights
            The weight of the variance of each table (default: equal).
        objective
            What is minimized.
        joint
            Whether to use the exact joint sensitivity if it can be found.
        """
        workload = Workload.from_weights(space, weights, objective)
        best, saved = cls.from_noise(space, closed_form(workload), precision, law), 0.0
        # Seldom is one move the worst for every residual, so together they may cost less than
        # the sum of their worst costs.
        if joint and best.sigma2:
            tighter = cls.from_noise(space, place_noise(workload), precision, law, joint=True)
            share = workload.total(tighter.sigma2) / workload.total(best.sigma2)
            if share < 1 - _WORTH:
                best, saved = tighter, 1 - share
        return evolve(best, saved=saved, workload=workload)

    @property
    def variance(self) -> float:
        """Mean variance of a direction. Each residual has its own."""
        return self.expected_l2**2 / max(1, self.space.dimension)

    def serves_like(self, other: "ResidualMechanism") -> bool:
        """Whether this noise is placed about as well as that of `other`.

        The convex program ends near its optimum; another computer may end at a slightly different
        point.
        """
        workload = other.workload or self.workload
        if workload is None or set(self.sigma2) != set(other.sigma2):
            return False
        return workload.total(self.sigma2) <= (1 + NEAR) * workload.total(other.sigma2)

    @property
    def expected_l2(self) -> float:
        """Root of the expected sum of squared errors over the cells of all tables."""
        tables = range(len(self.space.views))
        totals = [float(self.cell_variances(table).sum()) for table in tables]
        return math.sqrt(sum(totals))

    @property
    def entry_variances(self) -> NDArray[np.float64]:
        """The variance of the noise in each entry of the vector."""
        return self.variances

    @property
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each entry of the vector."""
        laws, which = self.samplers
        return list(laws), which

    @property
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""
        return self.space.scales

    @cached_property
    def conditioning(self) -> Conditioning | None:
        """Correction of the residuals by impossible cells; None if there are none."""
        if not self.space.impossible or not self.sigma2:
            return None
        return Conditioning(self.space, self.variances)

    def estimates(self, values: ArrayLike) -> list[NDArray[np.float64]]:
        """Return every table put together from a vector of measurements, with zeros in impossible
        cells.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.tradeoff.budget import Budget
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
        >>> bool(np.allclose(mechanism.estimates(space.measure([table]))[0], table.counts))
        True
        """
        if self.conditioning is None:
            return estimate_tables(self.space, values)
        return self.conditioning.estimates(values)

    def combination(self, weights: Mapping[int, ArrayLike]) -> NDArray[np.float64]:
        """Return weights on the noise in the entries of the vector, from weights on cells of the
        tables (by number).
        """
        return combine_weights(self.space, weights, self.conditioning)

    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the residuals that make up some tables: all of them if impossible
        cells tie them together.
        """
        entries = np.arange(self.space.scales.size)
        if self.conditioning is not None:
            return entries
        views = {view for table in tables for view in self.space.inside[table]}
        parts = self.space.parts.items()
        kept = [entries[part] for view, part in parts if view in views]
        return np.concatenate([entries[:0], *kept])

    def cell_variances(self, table: int) -> NDArray[np.float64]:
        """Return the variance of each cell of one table's estimate. Tables with the same variances
        share one array.
        """
        if self.conditioning is not None:
            if table not in self._cell_variances:
                self._cell_variances[table] = self.conditioning.cell_variances(table)
            return self._cell_variances[table]
        view = self.space.views[table]
        noise = []
        for small in self.space.inside[table]:
            noise.append((trimmed_view(small, view), self.sigma2[small]))
        # among thousands of pairs few have variances of their own
        alike = (self._key_of_alike(table), tuple(noise))
        if alike not in self._cell_variances:
            self._cell_variances[alike] = compute_cell_variances(self.space, self.variances, table)
        return self._cell_variances[alike]

    def _key_of_alike(self, table: int) -> tuple[object, ...]:
        """Return a key of a table. Tables with the same key have the same variances of cells, if
        the noise in their residuals is the same.
        """
        view = self.space.views[table]
        axes = list_axes(view)
        return tuple((self._kinds[axis], view[axis]) for axis in axes)

    @cached_property
    def _kinds(self) -> list[int]:
        """Number of each feature's kind: features of one kind have the same tree and the same nodes
        in use.
        """
        numbers: dict[object, int] = {}
        kinds = []
        space = self.space
        for chain, kept in zip(space.schema.grid.chains, space.inhabited_leaves, strict=True):
            kinds.append(numbers.setdefault((chain, kept.tobytes()), len(numbers)))
        return kinds

    @cached_property
    def _cell_variances(self) -> dict[object, NDArray[np.float64]]:
        return {}

    def rms_error(self, table: int) -> float:
        """Return the root of the mean variance of one table's cells, without rounding and without
        an array of cells.

        >>> from semidp.promise.sensitivity.products import product_space
        >>> from semidp.promise.tradeoff.budget import Budget
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> round(ResidualMechanism.calibrate(space, Budget.gdp(1)).rms_error(0), 4)
        1.1547
        """
        view = self.space.views[table]
        cells = math.prod(self.space.residuals.shape(view))
        if self.conditioning is not None:
            total = float(self.cell_variances(table).sum())
            return math.sqrt(total / cells)
        parts = []
        for small in self.space.inside[table]:
            gain = self.space.residuals.gain(small, view)
            parts.append(float(self.sigma2[small]) * gain)
        return math.sqrt(sum(parts) / cells)

    def table_schema(self, table: int) -> Schema:
        """Return the features of a table."""
        schema = self.space.schema
        return schema.restrict(schema.list_view_names(self.space.views[table]))

    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, for many measurements at once."""
        laws, which = self.samplers
        return draws_of_laws(laws, which[entries], count, randomness)


def residual_variance(law: str, sigma2: Fraction, scales: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the variance of each entry of a measured residual, divided by its scale, with
    rounding.

    >>> float(residual_variance("rounded", Fraction(4), np.array([1])).round(4)[0])  # σ² + 1/12
    4.0833
    """
    distinct, which = different_scales(scales)
    variances = []
    for scale in distinct:
        sampler = LAWS[law](sigma2 * scale**2)
        variances.append(sampler.variance / float(scale) ** 2)
    return np.asarray(np.array(variances)[which].reshape(scales.shape))
