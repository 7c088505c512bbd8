"""The spread of an outcome within groups, measured privately: what standard errors need beside the noise.

A sum of squares is a sum of a bounded outcome like any other; what is left of it after the groups, or a regression,
have explained their part is post-processing.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.accounting import Ledger
from semidp.engines import Outcome
from semidp.grouped.sensitivity import outcome_mechanism, sum_space
from semidp.invariants import Adjacency, Dataspace
from semidp.mechanisms import Measurement, Mechanism
from semidp.noise import Randomness
from semidp.tradeoff import Budget


class Spread(float):
    """A standard deviation within groups that was not seen but estimated; it knows how large the true one may be.

    The number itself is the estimate. The variance behind it errs by normal (or Laplace) noise, by ``Σ w_g (1 - z_g²)``
    with standard normal z from the squared noise of the group sums, and as variances of normal samples do.

    >>> spread = Spread(4.0, degrees=200, noise=1.0, weights=np.array([0.1, 0.1]), largest=5.0)
    >>> float(spread), round(spread.upper(0.05), 2), spread.upper(1e-9)
    (2.0, 3.07, 5.0)
    """

    variance: float
    degrees: int
    noise: float
    weights: NDArray[np.float64]
    largest: float
    heavy: bool

    def __new__(
        cls,
        variance: float,
        *,
        degrees: int,
        noise: float,
        weights: NDArray[np.float64],
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
        noise, weights
            The standard deviation of the noise in `variance`, and the weights of the squared noise.
        largest, least
            Bounds of the standard deviation that hold for certain, and of what is returned.
        heavy
            Whether the noise has Laplace tails.
        """
        self = super().__new__(cls, math.sqrt(min(max(variance, least**2), largest**2)))
        self.variance, self.degrees, self.noise, self.weights = variance, degrees, noise, weights
        self.largest, self.heavy = largest, heavy
        return self

    def upper(self, chance: float) -> float:
        """Return a number that the true standard deviation exceeds with probability at most `chance`.

        A third of it for each error. The squared noise is bounded by Laurent and Massart (2000, Lemma 1).
        """
        from scipy.special import chdtri, ndtri

        third, t = chance / 3, math.log(3 / chance)
        quantile = float(-ndtri(third))
        if self.heavy:
            quantile = max(quantile, math.log(1 / (2 * third)) / math.sqrt(2))
        squared = 2 * math.sqrt(float(self.weights @ self.weights) * t) + 2 * float(self.weights.max(initial=0.0)) * t
        sample = max(self.variance + quantile * self.noise + squared, 0.0)
        low = float(chdtri(self.degrees, 1 - third)) if self.degrees > 0 else 0.0
        return min(math.sqrt(sample * self.degrees / low), self.largest) if low > 0 else self.largest


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

    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> public = Dataspace.of(Table(Schema([Feature("ward", ["a", "b"])]), [30, 20]), [Margin("ward")])
    >>> square_mechanism(public, Adjacency(2), Outcome("score", 0, 1, steps=10), Budget.gdp(1)).scale
    200.0
    """
    squares = Outcome(outcome.column, Fraction(0), Fraction(1), outcome.steps**2)
    return outcome_mechanism(sum_space(dataspace, adjacency, squares), budget)


def charge(ledger: Ledger | None, label: str, *mechanisms: Mechanism) -> None:
    """Record what is about to be measured, before any noise is drawn; without a ledger nothing is recorded.

    >>> charge(None, "mean of score")
    """
    if ledger is not None:
        first, *others = (mechanism.guarantee for mechanism in mechanisms)
        ledger.charge(first.compose(*others), label)


def measure_squares(
    outcome: Outcome, mechanism: Mechanism, values: NDArray[np.int64], randomness: Randomness | None
) -> SquareSum:
    """Measure a sum of squares, given in squared steps of `outcome`."""
    return SquareSum(outcome, mechanism, mechanism.measure(values, randomness))
