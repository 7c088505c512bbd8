"""Laws of the noise on residuals: draws, variances, and how far they leave the cells of a table;
impossible cells of a product's tables are set to zero in its residuals.

How much noise each residual gets is decided in `residual_noise`.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.additive import mu_within, rho_within
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import (
    CountNoise,
    DiscreteGaussian,
    RoundedGaussian,
    sample_each,
)
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.tradeoff.budget import Budget

_DRAWS_A_TABLE = 64  # times σ: fewer draws than that are not worth a table of their own

NEAR = 5e-3  # a normal law this close, in standard deviations, takes the place of the law itself

ResidualLaw = DiscreteGaussian | RoundedGaussian

LAWS: dict[str, type[ResidualLaw]] = {"discrete": DiscreteGaussian, "rounded": RoundedGaussian}


def law_within(budget: Budget) -> tuple[str, Fraction]:
    """Return the law of noise on residuals for a budget, and what a move may cost: 2ρ or μ².

    >>> law_within(Budget.zcdp("1/2")), law_within(Budget.gdp(2))
    (('discrete', Fraction(1, 1)), ('rounded', Fraction(4, 1)))
    """
    if budget.kind == "zcdp":
        return "discrete", 2 * rho_within(budget)
    return "rounded", mu_within(budget) ** 2


def residual_noise(
    law: str, sigma2: Fraction, scales: NDArray[np.int64], randomness: Randomness
) -> NDArray[np.int64]:
    """Draw the noise of one residual: a whole number for each entry, of variance ``scale²·σ²``
    before rounding.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> residual_noise(
    ...     "discrete", Fraction(4), np.array([[1, 2], [1, 2]]), SeededRandomness(1)
    ... ).shape
    (2, 2)
    """
    distinct, which = different_scales(scales)
    laws = [LAWS[law](sigma2 * scale**2) for scale in distinct]
    return draws_of_laws(laws, which.ravel(), 1, randomness).reshape(scales.shape)


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


def different_scales(scales: NDArray[np.int64]) -> tuple[list[int], NDArray[np.intp]]:
    """Return the distinct scales, and for each entry the number of its scale. Mostly there is one,
    and nothing is sorted.
    """
    if scales.size and (scales == scales.flat[0]).all():
        only = int(scales.flat[0])
        return [only], np.zeros(scales.shape, dtype=np.intp)
    distinct, which = np.unique(scales, return_inverse=True)
    return distinct.tolist(), which


def draws_of_laws(
    laws: Sequence[ResidualLaw], which: NDArray[np.intp], count: int, randomness: Randomness
) -> NDArray[np.int64]:
    """Draw each entry from the law with the number in `which`, for many measurements at once. Laws
    with few draws are drawn together.
    """
    result = np.zeros((count, len(which)), dtype=np.int64)
    order = np.arange(len(which))
    if len(laws) > 1:
        order = np.argsort(which, kind="stable")
    numbers, firsts = np.unique(which[order], return_index=True)
    entries = np.split(order, firsts[1:])
    rare, rare_entries = [], []
    for number, of_law in zip(numbers.tolist(), entries, strict=False):  # no entries: one part
        sampler = laws[number]
        draws = count * of_law.size
        # A table of the law pays for itself from some draws on; with fewer all such laws are drawn
        # together.
        is_rare = draws**2 < _DRAWS_A_TABLE**2 * sampler.sigma2
        if sampler.sigma2 >= 1 and is_rare:
            rare.append(sampler)
            rare_entries.append(of_law)
        else:
            result[:, of_law] = sampler.sample((count, of_law.size), randomness)
    if rare:
        sizes = [of_law.size for of_law in rare_entries]
        places = np.repeat(np.arange(len(rare)), sizes)
        drawn = sample_each(rare, np.tile(places, count), randomness)
        places_of_rare = np.concatenate(rare_entries)
        result[:, places_of_rare] = drawn.reshape(count, -1)
    return result


@dataclass(frozen=True, eq=False)
class SharedNoise(Mechanism):
    """A mechanism that measures several tables at once. Tables go by their numbers.

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
        """Return every table put together from a vector of measurements."""

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
