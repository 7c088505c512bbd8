"""Intervals for the population that the records of groups were drawn from: noise and sampling
together.

The spread of an outcome may differ from group to group, so no group lends its spread to another.
Rates invert the law of a binomial count with the noise; other means are bounded by what their
bounds allow, or use a spread that was measured by group; differences and regression coefficients
are combinations of means.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semidp.mechanisms.mechanism import Mechanism
from semidp.statistics.outcomes.noise_law import normal_quantile, t_quantile, upper_tail
from semidp.statistics.outcomes.spread import Spread

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
    spread
        The variances within groups, where they are known or were measured.

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

    def ends(self) -> tuple[Floats, Floats]:
        """Return the ends for each mean, not cut to the bounds."""
        each = np.arange(len(self.counts))[:, None]
        return self.combined(each, np.ones(each.shape))

    def combined(self, places: NDArray[np.intp], weights: Floats) -> tuple[Floats, Floats]:
        """Return the ends for weighted sums ``Σ_j w_ij μ_{g(i, j)}``, a row of `places` and
        `weights` each.

        Without a spread by MOVER (Zou and Donner 2008): the distances of the means from their own
        ends, each in the direction that moves the sum, are added in squares. With a spread by
        ``t² Σ w² v/n + z² Σ w² σ²/n²``: the part that was estimated has Welch's degrees of freedom,
        and the noise is known.
        """
        values = (weights * self.means[places]).sum(axis=1)
        if self.spread is None:
            low, high = self._bounded()
            below, above = (self.means - low)[places], (high - self.means)[places]
            # A negative weight makes the upper end of a mean pull the sum down.
            down = np.where(weights > 0, below, above) * weights
            up = np.where(weights > 0, above, below) * weights
            return values - np.sqrt((down**2).sum(axis=1)), values + np.sqrt((up**2).sum(axis=1))
        spread = self.spread.at_most(self.bounds, self.level)
        parts = weights**2 * (spread.variances / self.counts)[places]
        noise = (weights**2 * (self.noise / self.counts)[places] ** 2).sum(axis=1)
        degrees = welch_degrees(parts, spread.degrees[places])
        z = normal_quantile(self.level)
        half = np.sqrt(t_quantile(self.level, degrees) ** 2 * parts.sum(axis=1) + z**2 * noise)
        return values - half, values + half

    def _bounded(self) -> tuple[Floats, Floats]:
        """Return the ends of ``|m - μ| <= z sqrt((u - μ)(μ - l)/n + σ²/n²)``.

        Values between l and u with mean μ have a variance of at most (u - μ)(μ - l), which zeros
        and ones have. Outside of the bounds there is no spread: there the noise alone counts, and
        the ends are never empty.
        """
        lower, upper = self.bounds
        half = normal_quantile(self.level) * self.noise / self.counts
        share = normal_quantile(self.level) ** 2 / self.counts
        square = 1 + share
        linear = 2 * self.means + share * (lower + upper)
        constant = self.means**2 + share * lower * upper - half**2
        root = np.sqrt(np.maximum(linear**2 - 4 * square * constant, 0.0))
        first, last = ((linear + sign * root) / (2 * square) for sign in (-1, 1))
        low = np.minimum(self.means - half, np.clip(first, lower, upper))
        return low, np.maximum(self.means + half, np.clip(last, lower, upper))


def welch_degrees(parts: Floats, degrees: Floats) -> Floats:
    """Return the degrees of freedom of a sum of estimated variances, ``(Σ p)²/Σ (p²/f)``; infinite
    where all are known.

    >>> welch_degrees(np.array([[1.0, 1.0]]), np.array([[4.0, 4.0]])).tolist()
    [8.0]
    """
    estimated = (parts**2 / degrees).sum(axis=-1)
    total = parts.sum(axis=-1) ** 2
    return np.asarray(
        np.divide(total, estimated, out=np.full(total.shape, math.inf), where=estimated > 0)
    )


def rate_ends(
    mechanism: Mechanism, counts: Floats, noisy: Floats, level: float
) -> tuple[Floats, Floats]:
    """Return the ends for population rates from noisy counts of ones: the law of the noisy count is
    inverted.

    A rate p is kept where both tails of ``Bin(n, p) + noise`` at the published number y exceed α/2:
    ``P(Y >= y) > α/2`` and ``P(Y <= y) > α/2``. Both are monotone in p. Where no rate is kept,
    because the noise took y far out of what is possible, both ends are the nearest rate. Coverage
    is at least `level` whatever n and p.

    Parameters
    ----------
    mechanism
        What drew the noise, one whole number a group.
    counts, noisy
        The exact number of records of each group, and its noisy count of ones.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.mechanisms.selection import choose
    >>> from semidp.core.tradeoff.budget import Budget
    >>> clear = choose(two_way()[0], Budget.gdp(10**6))
    >>> # Clopper-Pearson
    >>> [end.round(3).tolist() for end in rate_ends(clear, np.array([20.0]), np.array([3.0]), 0.95)]
    [[0.032], [0.379]]
    """
    # Groups with the same size and noisy count have the same ends: each pair is solved once.
    pairs, member = np.unique(
        np.stack([counts, noisy], axis=1).astype(np.int64), axis=0, return_inverse=True
    )
    ends = np.array([_rate(mechanism, n, y, (1 - level) / 2) for n, y in pairs.tolist()]).reshape(
        -1, 2
    )
    low, high = ends[member.ravel()].T
    return low, high


def _rate(mechanism: Mechanism, n: int, noisy: int, tail: float) -> tuple[float, float]:
    from scipy.optimize import brentq
    from scipy.special import gammaln, xlog1py, xlogy

    ones = np.arange(n + 1)
    ways = gammaln(n + 1) - gammaln(ones + 1) - gammaln(n - ones + 1)
    at_least = upper_tail(mechanism, noisy - ones)
    at_most = upper_tail(mechanism, ones - noisy)  # the noise is symmetric

    def chance(rate: float, noise: Floats) -> float:
        # Farther from its mean the binomial law is too small to matter, and n may be large.
        reach = 10 * math.sqrt(n * rate * (1 - rate)) + 30
        near = slice(max(int(n * rate - reach), 0), min(int(n * rate + reach) + 2, n + 1))
        binomial = np.exp(ways[near] + xlogy(ones[near], rate) + xlog1py(n - ones[near], -rate))
        return float(binomial @ noise[near])

    def crossing(noise: Floats) -> float:
        """The rate at which a tail is α/2; a bound of the rates where there is none."""
        first, last = chance(0.0, noise) - tail, chance(1.0, noise) - tail
        if first <= 0 < last or last <= 0 < first:
            return float(brentq(lambda rate: chance(rate, noise) - tail, 0.0, 1.0, xtol=1e-12))
        # Without a crossing either every rate passes this tail, and the end is that of all rates,
        # or none does, and the end is the nearest rate.
        return 0.0 if (noise is at_least) == (first > 0) else 1.0

    return crossing(at_least), crossing(at_most)
