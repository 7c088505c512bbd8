"""Laws of the noise on residuals: draws, variances, and how far they leave the cells of a table.

How much noise each residual gets is decided in `residual_noise`. Where several tables share noise,
one vector is measured, and every cell is a weighted sum of its entries.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.gaussian import mu_within, rho_within
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import (
    CountNoise,
    DiscreteGaussian,
    RoundedGaussian,
    sample_each,
)
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats
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
