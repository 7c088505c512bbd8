"""The spread of an outcome within each group, measured privately: what narrower intervals for a
population need.

A sum of squares by group is a sum of a bounded outcome like any other; what is left of it after the
mean of its group is post-processing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_moves import SQUARED
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.noise_law import half_widths, normal_quantile, t_quantile

Floats = NDArray[np.float64]

_BOUND = 0.98  # the two-sided level at which the noise in a variance is bounded: 99% on one side

SQUARE_STEPS = 100
"""The grid on which outcomes are squared has at most this many steps."""


@dataclass(frozen=True, eq=False)
class Spread:
    """The variance of an outcome within each of several groups.

    Parameters
    ----------
    variances
        The variances: known, or estimates with the noise allowed for.
    degrees
        The degrees of freedom of each estimate; infinite for what is known or a bound.
    """

    variances: Floats
    degrees: Floats

    def in_clusters(self, counts: Floats, cluster: int, bounds: tuple[float, float]) -> "Spread":
        """Return what a record adds to the variance of a sum where up to `cluster` records of one
        person vary together.

        That is at most m times its variance v. Records of a person that are all alike lower the
        estimate of v by ``(n - m)/(n - 1)`` and leave ``n/m - 1`` degrees of freedom; with at most
        two persons' records the bounds say more.

        >>> spread = Spread(np.array([1.0, 1.0]), np.array([19.0, np.inf]))
        >>> both = spread.in_clusters(np.array([20.0, 20.0]), 5, (0.0, 9.0))
        >>> both.variances.round(3).tolist(), both.degrees.tolist()
        ([6.333, 5.0], [3.0, inf])
        """
        if cluster == 1:
            return self
        measured = np.isfinite(self.degrees)
        few = measured & (counts <= 2 * cluster)
        growth = np.where(measured, (counts - 1) / np.maximum(counts - cluster, 1.0), 1.0)
        each = np.where(few, (bounds[1] - bounds[0]) ** 2 / 4, growth * self.variances)
        degrees = np.where(measured & ~few, counts / cluster - 1, math.inf)
        return Spread(cluster * each, degrees)

    def at_most(self, bounds: tuple[float, float], level: float, cluster: int = 1) -> "Spread":
        """Return the spread with the largest that the bounds allow, where an interval of a level
        needs less with it.

        Values between l and u have a variance of at most (u - l)²/4, times the size of a cluster.
        That is a bound, not an
        estimate, so that it goes with the normal quantile where an estimate from few records goes
        with Student's.

        >>> small = Spread(np.array([0.2, 0.01]), np.array([1.0, 50.0])).at_most((0.0, 1.0), 0.95)
        >>> small.variances.tolist(), small.degrees.tolist()
        ([0.25, 0.01], [inf, 50.0])
        """
        lower, upper = bounds
        largest = cluster * (upper - lower) ** 2 / 4
        needed = t_quantile(level, self.degrees) ** 2 * self.variances
        capped = needed >= normal_quantile(level) ** 2 * largest
        variances = np.where(capped, largest, self.variances)
        return Spread(variances, np.where(capped, math.inf, self.degrees))


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

    def _noisy_parts(self) -> Iterable[NoisyPart | None]:
        raise NotImplementedError

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that was measured."""
        parts = [part for part in self._noisy_parts() if part is not None]
        first, *later = (part.mechanism.guarantee for part in parts)
        return first.compose(*later)

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return all(part.measurement.private for part in self._noisy_parts() if part is not None)


@dataclass(frozen=True, eq=False)
class SquareSums:
    """Noisy ``Σ (y_i - mid)²`` by group, mid the middle of the bounds.

    On a grid of B steps ``(2y - B)²`` lies between 0 and B²: these are the sums of an outcome with
    B² steps by the same groups. Squares about the middle need a quarter of the noise that squares
    above the lower bound do.
    """

    outcome: Outcome
    mechanism: Mechanism
    measurement: Measurement

    @property
    def unit(self) -> float:
        """What one step of the squares is worth, in squared units of the outcome."""
        return float(self.outcome.width) ** 2 / 4

    def values(self, number: int) -> Floats:
        """Return the noisy sums of squares by the groups of one set."""
        space = self.mechanism.space
        assert isinstance(space, SumSpace)
        steps = self.measurement.projected[space.slices[number]]
        return np.asarray(steps * self.unit)

    def estimates(self, number: int, counts: Floats, gaps: Floats, noise: float) -> Floats:
        """Return the variances within groups, ``(Σ (y - mid)² - n (m - mid)² + σ²/n)/(n - 1)``;
        noise may lower them.

        Parameters
        ----------
        number
            Which set of groups.
        counts, gaps
            The exact number of records of each group, and how far its noisy mean is from the middle
            of the bounds.
        noise
            The variance σ² of the noise in a sum; it makes ``n (m - mid)²`` too large by ``σ²/n``
            on average.
        """
        explained = counts * gaps**2 - noise / counts
        within = self.values(number) - explained
        return np.asarray(within / np.maximum(counts - 1, 1))

    def spread(
        self, number: int, counts: Floats, gaps: Floats, sums: Mechanism, width: float
    ) -> Spread:
        """Return the variances within groups with a one-sided 99% bound of their noise, of at most
        (u - l)²/4.

        The noise in an estimate has three parts: that of the sum of squares, ``2 (m - mid)`` times
        that of the sum, and its square over n. A group of one record has the largest variance that
        the bounds allow.

        Parameters
        ----------
        number, counts, gaps
            As for `estimates`.
        sums, width
            The mechanism that measured the sums, and the width of one of its steps.
        """
        (of_square,) = half_widths(self.mechanism, [np.ones(1)], _BOUND) * self.unit
        (of_sum,) = half_widths(sums, [np.ones(1)], _BOUND) * width
        noise = sums.variance * width**2
        of_squared_mean = np.maximum(of_sum**2 - noise, 0.0) / counts
        parts = (of_square, 2 * gaps * of_sum, of_squared_mean)
        squared = sum(part**2 for part in parts)
        bound = np.sqrt(squared) / np.maximum(counts - 1, 1)
        least = float(self.outcome.width) ** 2 / 12  # that of rounding to the grid
        largest = float(self.outcome.upper - self.outcome.lower) ** 2 / 4
        estimates = self.estimates(number, counts, gaps, noise)
        bounded = np.maximum(estimates + bound, least)
        # Neither one record nor an estimate above the largest possible variance says more than that
        # bound. A bound is certain, so its degrees of freedom are infinite.
        capped = (bounded >= largest) | (counts <= 1)
        variances = np.where(capped, largest, bounded)
        return Spread(variances, np.where(capped, math.inf, counts - 1))


def squared_steps(steps: int) -> NDArray[np.int64]:
    """Return ``(2y - B)²`` for each step y of a grid.

    >>> squared_steps(4).tolist()
    [16, 4, 0, 4, 16]
    """
    return (2 * np.arange(steps + 1, dtype=np.int64) - steps) ** 2


def square_grid(outcome: Outcome) -> Outcome:
    """Return an outcome on the grid on which it is squared.

    >>> square_grid(Outcome("score", 0, 1, steps=1000)).steps
    100
    """
    # Squares are read from a histogram with a column a step: a coarse grid keeps it small.
    return Outcome(outcome.column, outcome.lower, outcome.upper, min(outcome.steps, SQUARE_STEPS))


def square_space(scope: Scope, grid: Outcome, by: Sequence[Margin]) -> QuerySpace:
    """Return the space of sums of squares by groups."""
    # (2y - B)² lies between 0 and B², so that one record moves it like any outcome of B² steps.
    squares = Outcome(f"{grid.column}{SQUARED}", Fraction(0), Fraction(1), grid.steps**2)
    return sum_space(scope.dataspace, scope.adjacency, squares, by)
