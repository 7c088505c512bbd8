"""The spread of an outcome within groups, measured privately: what standard errors need beside the noise.

A sum of squares is a sum of a bounded outcome like any other; what is left of it after the groups, or a regression,
have explained their part is post-processing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.guarantees import Guarantee
from semidp.mechanisms import Measurement, Mechanism, outcome_mechanism
from semidp.queries import sum_space
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import Budget

_NOISES, _SAMPLES = 32, 8  # quantiles of what the true spread may be: over the noise, and over the sample
_WIDENED = 1.2  # the noise in a spread, so that averaging over it keeps the size of a test (see the tests)


class Spread(float):
    """A standard deviation within groups that was estimated with noise; it knows what else the true one may be.

    >>> spread = Spread(4.0, degrees=200, noise=1.0, largest=5.0)
    >>> float(spread), bool(spread.plausible().min() < 2 < spread.plausible().max())
    (2.0, True)
    """

    variance: float
    degrees: int
    noise: float
    largest: float
    heavy: bool

    def __new__(
        cls,
        variance: float,
        *,
        degrees: int,
        noise: float,
        largest: float,
        least: float = 0.0,
        heavy: bool = False,
    ) -> "Spread":
        """Return the estimate from an unbiased estimate of the variance.

        Parameters
        ----------
        variance
            The estimate of the variance, which noise may make negative.
        degrees
            The degrees of freedom of the sample.
        noise
            The standard deviation of the noise in `variance`.
        largest, least
            Bounds of what is returned; the true standard deviation does not exceed `largest`.
        heavy
            Whether the noise has Laplace tails.
        """
        self = super().__new__(cls, math.sqrt(min(max(variance, least**2), largest**2)))
        self.variance, self.degrees, self.noise = variance, degrees, noise
        self.largest, self.heavy = largest, heavy
        return self

    def plausible(self) -> NDArray[np.float64]:
        """Return standard deviations, all as likely, that may be the true one.

        The variance less quantiles of its noise (widened by a fifth), times ``degrees/χ²`` at quantiles of χ² with as
        many degrees. Without noise a chi-squared test averaged over these is the F test of an analysis of variance. A
        variance of 0 or less says that the noise hides the spread, and becomes the largest possible one.
        """
        from scipy.special import chdtri, ndtri

        places = (np.arange(_NOISES) + 0.5) / _NOISES
        tails = (
            np.sign(places - 0.5) * -np.log1p(-np.abs(2 * places - 1)) / math.sqrt(2) if self.heavy else ndtri(places)
        )
        samples = chdtri(max(self.degrees, 1), (np.arange(_SAMPLES) + 0.5) / _SAMPLES)
        found = np.multiply.outer(self.variance + _WIDENED * self.noise * tails, max(self.degrees, 1) / samples).ravel()
        return np.sqrt(np.where(found > 0, found, self.largest**2))


class NoisyPart(Protocol):
    """What a mechanism measured."""

    @property
    def mechanism(self) -> Mechanism:
        """What drew the noise."""

    @property
    def measurement(self) -> Measurement:
        """What was measured."""


class FromNoise:
    """What follows from one measurement or from several. Nothing in it is confidential."""

    def _measured(self) -> Iterable[NoisyPart | None]:
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that was measured."""
        first, *others = (part.mechanism.guarantee for part in self._measured() if part is not None)
        return first.compose(*others)

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return all(part.measurement.private for part in self._measured() if part is not None)


@dataclass(frozen=True, eq=False)
class SquareSum:
    """A noisy ``Σ (y_i - lower)²`` over all records.

    One record adds between 0 and B² squared steps, so this is the total of an outcome with B² steps: ``Δ2 = a B²``.
    """

    outcome: Outcome
    mechanism: Mechanism
    measurement: Measurement

    @property
    def value(self) -> float:
        """The noisy sum, in squared units of the outcome above its lower bound."""
        return float(self.measurement.projected[0]) * float(self.outcome.width) ** 2

    @property
    def standard_error(self) -> float:
        """The standard error of `value` by the noise."""
        return float(self.mechanism.standard_errors()[0]) * float(self.outcome.width) ** 2

    def left_over(self, explained: float, degrees: int) -> float:
        """Return the standard deviation of what remains when `explained` of the sum of squares is accounted for.

        Never above half the width of the bounds, which no distribution exceeds, and never below the grid's own.
        """
        width = float(self.outcome.upper - self.outcome.lower)
        variance = (self.value - explained) / max(degrees, 1)
        return math.sqrt(min(max(variance, float(self.outcome.width) ** 2 / 12), width**2 / 4))


def square_mechanism(dataspace: Dataspace, adjacency: Adjacency, outcome: Outcome, budget: Budget) -> Mechanism:
    """Return the mechanism that measures the sum of squares of an outcome.

    >>> from semidp.spaces import Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> public = Dataspace.of(Table(Schema([Feature("ward", ["a", "b"])]), [30, 20]), [Margin("ward")])
    >>> square_mechanism(public, Adjacency(2), Outcome("score", 0, 1, steps=10), Budget.gdp(1)).scale
    200.0
    """
    squares = Outcome(outcome.column, Fraction(0), Fraction(1), outcome.steps**2)
    return outcome_mechanism(sum_space(dataspace, adjacency, squares), budget)
