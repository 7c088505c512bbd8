"""Noise that several tables share: one vector is measured, and every cell is a weighted sum of its
entries.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats

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
