"""The spread of an outcome within groups, measured privately: what standard errors need beside the noise.

A sum of squares is a sum of a bounded outcome like any other; what is left of it after the groups, or a regression,
have explained their part is post-processing.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome
from semidp.mechanisms import Measurement, Mechanism, outcome_mechanism
from semidp.noise import Randomness
from semidp.queries import sum_space
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import Budget


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
