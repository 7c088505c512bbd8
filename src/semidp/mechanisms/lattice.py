"""The lattice mechanism: Gaussian noise on whole tables, whole numbers that change no published total.

For tables under two disjoint margins (a joint margin counts as one side) or under one. Other invariants are served by
the mechanisms that project.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.mechanisms.gaussian import ConcentratedNoise
from semidp.noise import LatticeGaussian, OneSidedLatticeGaussian, Randomness
from semidp.queries import MatrixForm, QuerySpace
from semidp.tradeoff import Budget


@dataclass(frozen=True, eq=False)
class LatticeGaussianMechanism(ConcentratedNoise):
    """Noise ``P(v) ∝ exp(-‖v‖²/2σ²)`` over whole-number tables with zero margins: zCDP with ``ρ = Δ2²/(2σ²)``.

    A shift by an element of the lattice costs what it costs the discrete Gaussian. The measurement consists of whole
    numbers with every published total exact, and it is unbiased. Its errors are stated by their upper bound ``σ²P``,
    which is met to about one part in 10^5 from σ = 2 on.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    sigma2
        The parameter σ² of the noise, exact, at least 1/4.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.noise import SeededRandomness
    >>> space, table = two_way()
    >>> mechanism = LatticeGaussianMechanism.calibrate(space, Budget.zcdp("0.5"))
    >>> mechanism.sigma2
    Fraction(4, 1)
    >>> noisy = mechanism.apply(table, SeededRandomness(1)).noisy
    >>> (noisy.sum(axis=0) == table.counts.sum(axis=0)).all() and (noisy.sum(axis=1) == table.counts.sum(axis=1)).all()
    np.True_
    """

    name: ClassVar[str] = "lattice gaussian"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/(2ρ)``; refuse other invariants, and a σ too small for the sampler."""
        mechanism = super().calibrate(space, budget)
        mechanism.sampler  # noqa: B018  (built now, so that it refuses now)
        return mechanism

    @cached_property
    def sampler(self) -> LatticeGaussian | OneSidedLatticeGaussian:
        """The distribution of the noise on the matrix of cells that can occur."""
        rows, columns = self._form.cells.shape
        law = LatticeGaussian if self._form.columns_published else OneSidedLatticeGaussian
        return law(rows, columns, self.sigma2)

    @property
    def variance(self) -> float:
        """σ², an upper bound: the covariance is σ²P less a positive semidefinite matrix."""
        return float(self.sigma2)

    def noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Draw a table of whole numbers with zero margins."""
        noise = np.zeros(math.prod(self.space.shape), dtype=np.int64)
        noise[self._form.cells] = self.sampler.sample(randomness)
        return noise.reshape(self.space.shape)

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw many tables at once, with the same sampler."""
        if not isinstance(self.sampler, LatticeGaussian):
            return super().noises(count, randomness)
        noise = np.zeros((count, math.prod(self.space.shape)), dtype=np.int64)
        noise[:, self._form.cells] = self.sampler.sample_many(count, randomness)
        return noise.reshape(count, *self.space.shape)

    def publish(self, noisy: NDArray[Any]) -> NDArray[np.float64]:
        """Return the noisy table as it is: its totals are exact already."""
        return noisy.astype(np.float64)

    @cached_property
    def _form(self) -> MatrixForm:
        form = self.space.matrix()
        if form is None:
            raise Refused(
                "lattice gaussian serves tables under one margin, or under two disjoint ones that cover every feature, "
                "without structural zeros or nested features: use gaussian"
            )
        return form
