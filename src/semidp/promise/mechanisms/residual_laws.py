"""Laws of the noise on residuals: draws, variances, and how far they leave the cells of a table.

How much noise each residual gets is decided in `residual_noise`. Where several tables share noise,
one vector is measured, and every cell is a weighted sum of its entries.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
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
from semidp.promise.noise.sums import LEVEL, Weighted, half_widths
from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.projection import MOST_PATTERNS
from semidp.promise.tradeoff.budget import Budget

_DRAWS_A_TABLE = 64  # times σ: fewer draws than that are not worth a table of their own

_NEAR = 5e-3  # a normal law this close, in standard deviations, takes the place of the law itself

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


def residual_half_widths(
    law: str, sigma2: Mapping[View, Fraction], families: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the half-width of the 95% interval of each cell of a table, from the noise of its
    residuals.

    Along a feature a cell has the weight ``1 - 1/c`` on its own node of a residual and ``-1/c`` on
    the c - 1 siblings of that node, shared out evenly further down. So cells whose families are as
    large at every depth share a law. Most are normal numbers moved by next to nothing
    (`near_normal`); the others get the series of `half_width`.

    Parameters
    ----------
    law, sigma2
        The law, and σ² of each residual, by its depths in the features of the table.
    families
        For each of those features the sizes of the families of every node, as `Residuals.families`
        has them.

    Examples
    --------
    >>> # Multiples of a quarter
    >>> residual_half_widths("discrete", {(1,): Fraction(1, 4)}, [np.array([[2, 2]])])
    array([0.75, 0.75])
    """
    alike = [np.unique(counts, axis=1, return_inverse=True) for counts in families]
    distinct = [columns for columns, _ in alike]
    shape = tuple(columns.shape[1] for columns in distinct)
    variance, distance = np.zeros(shape), np.zeros(shape)
    for view, square in sigma2.items():
        sizes = _outer(distinct, view, _size)
        squares = _outer(distinct, view, _square)
        scales = _outer(distinct, view, _scale)
        variance += float(square) * squares
        # The narrowest law is the farthest from a normal one: its distance bounds those of the
        # others.
        narrowest = square * Fraction(scales.min()) ** 2
        near = LAWS[law](narrowest).near_normal
        if near is None:
            # An only child has weight 0 in the residual, and its error is 0 whatever the law.
            distance[sizes > 0] = math.inf
        else:
            distance += near[1] * sizes / scales
    deviations = np.sqrt(variance)
    quantile = float(scipy.special.ndtri((1 + LEVEL) / 2))
    errors = quantile * deviations + distance
    far = ~(distance <= _NEAR * deviations)
    open_ones = np.argwhere(far & (variance > 0))
    if len(open_ones) <= MOST_PATTERNS:
        sums = []
        for place in open_ones:
            at = zip(distinct, place, strict=True)
            cell_families = [counts[:, n] for counts, n in at]
            sums.append(_terms(law, sigma2, cell_families))
        for place, half in zip(open_ones, half_widths(sums), strict=True):
            errors[tuple(place)] = half
    else:
        # E exp(uX) <= exp(2σ²u²) for both laws, so that P(|S| > h) <= 2 exp(-h²/8V)
        factor = math.sqrt(8 * math.log(2 / (1 - LEVEL)))
        errors = np.minimum(errors, factor * deviations)
    places = [which.ravel() for _, which in alike]
    return errors[np.ix_(*places)]


def _terms(
    law: str, sigma2: Mapping[View, Fraction], families: Sequence[NDArray[np.int64]]
) -> list[Weighted]:
    """Weights of one cell's error on the noise in the entries of its residuals. The noise is that
    of scaled entries.
    """
    terms = []
    for view, square in sigma2.items():
        pairs = list(zip(families, view, strict=True))
        named_counts = [int(counts[depth - 1]) for counts, depth in pairs if depth]
        scale = math.prod(named_counts)
        weights = {Fraction(1, scale): 1}
        for counts, depth in pairs:
            share = Fraction(1, math.prod(counts[depth:].tolist()))
            # Centred at this depth, a node has the weight 1 - 1/c and each of its c - 1 siblings
            # -1/c.
            steps = [(share, 1)]
            if depth:
                siblings = int(counts[depth - 1])
                same = share * (1 - Fraction(1, siblings))
                steps = [(same, 1), (-share / siblings, siblings - 1)]
            spread: dict[Fraction, int] = {}
            for weight, count in weights.items():
                for step, often in steps:
                    product = weight * step
                    spread[product] = spread.get(product, 0) + count * often
            weights = spread
        sampler = LAWS[law](square * scale**2)
        terms += [Weighted(sampler, weight, count) for weight, count in weights.items()]
    return terms


def _outer(families: Sequence[NDArray[np.int64]], view: View, part: Any) -> NDArray[np.float64]:
    """Array with one axis for each feature: the product over the features of `part`, a number for
    each node.
    """
    result = np.ones(())
    for counts, depth in zip(families, view, strict=True):
        siblings = np.ones(counts.shape[1])
        if depth:
            siblings = counts[depth - 1].astype(float)
        share = 1 / counts[depth:].astype(float).prod(axis=0)
        result = np.multiply.outer(result, part(siblings, share, depth))
    return np.asarray(result)


def _size(
    siblings: NDArray[np.float64], share: NDArray[np.float64], depth: int
) -> NDArray[np.float64]:
    """``Σ |weight|`` along one feature."""
    return share * 2 * (1 - 1 / siblings) if depth else share


def _square(
    siblings: NDArray[np.float64], share: NDArray[np.float64], depth: int
) -> NDArray[np.float64]:
    """``Σ weight²`` along one feature."""
    square = share**2
    return square * (1 - 1 / siblings) if depth else square


def _scale(
    siblings: NDArray[np.float64], share: NDArray[np.float64], depth: int
) -> NDArray[np.float64]:
    """Factor by which the residual was multiplied, along one feature: the number of siblings."""
    return siblings


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


_NOTHING = 1e-12  # a weight that floating point has left where there is none


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

    def combination_error(self, weights: Mapping[int, ArrayLike]) -> float:
        """Return the standard error of a weighted sum of cells; weights go by the number of the
        table.

        >>> from semidp.promise.tradeoff.budget import Budget
        >>> from semidp.promise.mechanisms.examples import two_way
        >>> from semidp.promise.mechanisms.residual_noise import ResidualMechanism
        >>> from semidp.promise.sensitivity.products import product_space
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> ResidualMechanism.calibrate(space, Budget.gdp(1)).combination_error(
        ...     {0: [[1, 1, 1], [0, 0, 0]]}
        ... )
        0.0
        """
        pulled = self.combination(weights)
        pulled[np.abs(pulled) * self.entry_scales < _NOTHING] = 0.0
        return math.sqrt(float((pulled**2 * self.entry_variances).sum()))
