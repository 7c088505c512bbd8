"""Noise that several tables have in common: one measured vector, of whose entries every cell is a
weighted sum.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.core.margins import Floats
from semidp.mechanisms.mechanism import Mechanism
from semidp.noise.distributions import CountNoise
from semidp.noise.randomness import Randomness

_NOTHING = 1e-12  # a weight that floating point has left where there is none


@dataclass(frozen=True, eq=False)
class SharedNoise(Mechanism):
    """A mechanism that measures several tables at once; tables go by their numbers.

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
        """The distributions of the noise, and for each entry of the vector the number of its
        own.
        """

    @property
    @abstractmethod
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""

    @abstractmethod
    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return every table put together from a vector of measurements."""

    @abstractmethod
    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return the weights on the noise in the vector's entries that weights on cells (by table)
        have.
        """

    @abstractmethod
    def reached(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the vector that sums of cells of some tables can have weights
        on.
        """

    @abstractmethod
    def drawn(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, for many measurements at once."""

    def combination_error(self, weights: Mapping[int, ArrayLike]) -> float:
        """Return the standard error of a weighted sum of cells of the estimates, by the number of
        the table.

        >>> from semidp.core.tradeoff.budget import Budget
        >>> from semidp.mechanisms.examples import two_way
        >>> from semidp.mechanisms.residual_noise import ResidualMechanism
        >>> from semidp.queries.products import product_space
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
