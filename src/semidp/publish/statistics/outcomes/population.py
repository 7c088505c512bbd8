"""Intervals for the population that the records of groups were drawn from: noise and sampling
together.

The spread of an outcome may differ from group to group, so no group lends its spread to another.
Rates invert the law of a binomial count with the noise; other means are bounded by what their
bounds allow; differences and regression coefficients are combinations of means. A *cluster* is the
most records of one person, which may vary together: a sum of records then has at most `cluster`
times the variance of independent ones (docs/inference_checks.md).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.statistics.outcomes.noise_law import (
    normal_quantile,
    upper_tail,
)

Floats = NDArray[np.float64]

MOST_INVERTED = 10_000
"""The records of a group up to which the law of its noisy count is inverted; beyond, the score
interval serves."""


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
    cluster: int = 1

    def ends(self) -> tuple[Floats, Floats]:
        """Return the ends for each mean, not cut to the bounds."""
        each = np.arange(len(self.counts))[:, None]
        return self.weighted_sum_ends(each, np.ones(each.shape))

    def weighted_sum_ends(self, places: NDArray[np.intp], weights: Floats) -> tuple[Floats, Floats]:
        """Return the ends for weighted sums ``Σ_j w_ij μ_{g(i, j)}``, a row of `places` and
        `weights` each.

        By MOVER (Zou and Donner 2008): the distances of the means from their own ends, each in the
        direction that moves the sum, are added in squares.
        """
        values = (weights * self.means[places]).sum(axis=1)
        low, high = self._bounded_variance_ends()
        below = (self.means - low)[places]
        above = (high - self.means)[places]
        # A negative weight makes the upper end of a mean pull the sum down.
        down = np.where(weights > 0, below, above) * weights
        up = np.where(weights > 0, above, below) * weights
        downward = np.sqrt((down**2).sum(axis=1))
        upward = np.sqrt((up**2).sum(axis=1))
        return values - downward, values + upward

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
