"""Intervals for the population that the records of groups were drawn from: noise and sampling
together.

The spread of an outcome may differ from group to group, so no group lends its spread to another.
Rates invert the law of a binomial count with the noise; other means are bounded by what their
bounds allow, or use a spread that was measured by group; differences and regression coefficients
are combinations of means. A *cluster* is the most records of one person, which may vary together: a
sum of records then has at most `cluster` times the variance of independent ones
(docs/inference_checks.md).
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
from semidp.publish.statistics.outcomes.noise_law import (
    half_widths,
    normal_quantile,
    t_quantile,
    upper_tail,
)

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


MOST_INVERTED = 10_000
"""The records of a group up to which the law of its noisy count is inverted; beyond, the score
interval serves."""

SKEWED = (
    "with a measured spread the level is that of normal means: intervals hold less often where a"
    " few large values make up most of a sum (docs/groups.md)"
)
"""What must stand next to an interval that uses a measured spread."""


@dataclass(frozen=True, eq=False)
class SampledMeans:
    """Noisy means of independent groups, and what their population means may be.

    Parameters
    ----------
    counts, means
        The exact number of records of each group, at least 1, and its noisy mean.
    bounds
        The declared bounds of the outcome.
    noise
        The standard deviation of the noise in a sum, see `noise_deviation`.
    level
        The level of each interval.
    spread
        The variances within groups, where they are known or were measured.
    cluster
        The most records of one person.

    Examples
    --------
    >>> ward = SampledMeans(np.array([100.0]), np.array([0.5]), (0.0, 1.0), 0.0, 0.95)
    >>> [end.round(3).tolist() for end in ward.ends()]  # Wilson's interval
    [[0.404], [0.596]]
    """

    counts: Floats
    means: Floats
    bounds: tuple[float, float]
    noise: float
    level: float
    spread: Spread | None = None
    cluster: int = 1

    def ends(self) -> tuple[Floats, Floats]:
        """Return the ends for each mean, not cut to the bounds."""
        each = np.arange(len(self.counts))[:, None]
        return self.weighted_sum_ends(each, np.ones(each.shape))

    def weighted_sum_ends(self, places: NDArray[np.intp], weights: Floats) -> tuple[Floats, Floats]:
        """Return the ends for weighted sums ``Σ_j w_ij μ_{g(i, j)}``, a row of `places` and
        `weights` each.

        Without a spread by MOVER (Zou and Donner 2008): the distances of the means from their own
        ends, each in the direction that moves the sum, are added in squares. With a spread by
        ``t² Σ w² v/n + z² Σ w² σ²/n²``: the part that was estimated has Welch's degrees of freedom,
        and the noise is known.
        """
        values = (weights * self.means[places]).sum(axis=1)
        if self.spread is None:
            low, high = self._bounded_variance_ends()
            below = (self.means - low)[places]
            above = (high - self.means)[places]
            # A negative weight makes the upper end of a mean pull the sum down.
            down = np.where(weights > 0, below, above) * weights
            up = np.where(weights > 0, above, below) * weights
            downward = np.sqrt((down**2).sum(axis=1))
            upward = np.sqrt((up**2).sum(axis=1))
            return values - downward, values + upward
        spread = self.spread.in_clusters(self.counts, self.cluster, self.bounds)
        spread = spread.at_most(self.bounds, self.level, self.cluster)
        squares = weights**2
        mean_variances = spread.variances / self.counts
        parts = squares * mean_variances[places]
        mean_noise = (self.noise / self.counts)[places]
        noise = (squares * mean_noise**2).sum(axis=1)
        degrees = welch_degrees(parts, spread.degrees[places])
        t = t_quantile(self.level, degrees)
        z = normal_quantile(self.level)
        half = np.sqrt(t**2 * parts.sum(axis=1) + z**2 * noise)
        return values - half, values + half

    def _bounded_variance_ends(self) -> tuple[Floats, Floats]:
        """Return the ends of ``|m - μ| <= z sqrt((u - μ)(μ - l)/n + σ²/n²)``, the first part times
        the size of a cluster.

        Values between l and u with mean μ have a variance of at most (u - μ)(μ - l), which zeros
        and ones have. Outside of the bounds there is no spread: there the noise alone counts, and
        the ends are never empty.
        """
        lower, upper = self.bounds
        z = normal_quantile(self.level)
        half = z * self.noise / self.counts
        share = z**2 * self.cluster / self.counts
        # The ends are the roots of a quadratic in μ.
        square = 1 + share
        linear = 2 * self.means + share * (lower + upper)
        constant = self.means**2 + share * lower * upper - half**2
        discriminant = linear**2 - 4 * square * constant
        root = np.sqrt(np.maximum(discriminant, 0.0))
        first = np.clip((linear - root) / (2 * square), lower, upper)
        last = np.clip((linear + root) / (2 * square), lower, upper)
        low = np.minimum(self.means - half, first)
        high = np.maximum(self.means + half, last)
        return low, high


def welch_degrees(parts: Floats, degrees: Floats) -> Floats:
    """Return the degrees of freedom of a sum of estimated variances, ``(Σ p)²/Σ (p²/f)``; infinite
    where all are known.

    >>> welch_degrees(np.array([[1.0, 1.0]]), np.array([[4.0, 4.0]])).tolist()
    [8.0]
    """
    estimated = (parts**2 / degrees).sum(axis=-1)
    total = parts.sum(axis=-1) ** 2
    degrees_of_sum = np.full(total.shape, math.inf)
    np.divide(total, estimated, out=degrees_of_sum, where=estimated > 0)
    return degrees_of_sum


def rate_ends(
    mechanism: Mechanism, counts: Floats, noisy: Floats, level: float, cluster: int = 1
) -> tuple[Floats, Floats]:
    """Return the ends for population rates from noisy counts of ones: the law of the noisy count is
    inverted.

    A rate p is kept where both tails of ``Bin(n, p) + noise`` at the published number y exceed α/2:
    ``P(Y >= y) > α/2`` and ``P(Y <= y) > α/2``. Both are monotone in p. Where no rate is kept,
    because the noise took y far out of what is possible, both ends are the nearest rate. Coverage
    is at least `level` whatever n and p. With clusters the count is that of ``n/m`` persons
    (rounded down) whose records are all alike, which spread most.

    Parameters
    ----------
    mechanism
        What drew the noise, one whole number a group.
    counts, noisy
        The exact number of records of each group, and its noisy count of ones.
    cluster
        The most records of one person.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> clear = choose(two_way()[0], Budget.gdp(10**6))
    >>> # Clopper-Pearson
    >>> [end.round(3).tolist() for end in rate_ends(clear, np.array([20.0]), np.array([3.0]), 0.95)]
    [[0.032], [0.379]]
    """
    # Groups with the same size and noisy count have the same ends: each pair is solved once.
    both = np.stack([counts, noisy], axis=1).astype(np.int64)
    pairs, member = np.unique(both, axis=0, return_inverse=True)
    tail = (1 - level) / 2
    solved = [_rate(mechanism, n, y, tail, cluster) for n, y in pairs.tolist()]
    ends = np.array(solved).reshape(-1, 2)
    low, high = ends[member.ravel()].T
    return low, high


def _rate(
    mechanism: Mechanism, records: int, noisy: int, tail: float, cluster: int
) -> tuple[float, float]:
    from scipy.optimize import brentq
    from scipy.special import gammaln, xlog1py, xlogy

    n = max(records // cluster, 1)
    ones = np.arange(n + 1)
    log_ways = gammaln(n + 1) - gammaln(ones + 1) - gammaln(n - ones + 1)
    # The records of n persons, all alike; without clusters a person is a record.
    counts = ones * records / n
    at_least = upper_tail(mechanism, np.ceil(noisy - counts - 1e-9).astype(np.int64))
    # The noise is symmetric.
    at_most = upper_tail(mechanism, np.ceil(counts - noisy - 1e-9).astype(np.int64))

    def chance(rate: float, noise: Floats) -> float:
        # Farther from its mean the binomial law is too small to matter, and n may be large.
        reach = 10 * math.sqrt(n * rate * (1 - rate)) + 30
        first = max(int(n * rate - reach), 0)
        end = min(int(n * rate + reach) + 2, n + 1)
        near = slice(first, end)
        successes = xlogy(ones[near], rate)
        failures = xlog1py(n - ones[near], -rate)
        binomial = np.exp(log_ways[near] + successes + failures)
        return float(binomial @ noise[near])

    def crossing(noise: Floats) -> float:
        """The rate at which a tail is α/2; a bound of the rates where there is none."""

        def excess(rate: float) -> float:
            return chance(rate, noise) - tail

        first = excess(0.0)
        last = excess(1.0)
        if first <= 0 < last or last <= 0 < first:
            return float(brentq(excess, 0.0, 1.0, xtol=1e-12))
        # Without a crossing either every rate passes this tail, and the end is that of all rates,
        # or none does, and the end is the nearest rate.
        return 0.0 if (noise is at_least) == (first > 0) else 1.0

    return crossing(at_least), crossing(at_most)
