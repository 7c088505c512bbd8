"""Intervals for the population that the records of groups were drawn from, noise and sampling
together; and whether means differ by more than these explain.

The spread of an outcome may differ from group to group, so no group lends its spread to another.
Rates invert the law of a binomial count with the noise; other means are bounded by what their
bounds allow; differences and regression coefficients are combinations of means. A *cluster* is the
most records of one person, which may vary together: a sum of records then has at most `cluster`
times the variance of independent ones (docs/inference_checks.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.outcome_spaces import SumSpace
from semidp.publish.statistics.outcomes.noise_law import (
    About,
    normal_quantile,
    simulate_noise,
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

    def weighted_sum_ends(self, places: NDArray[np.intp], weights: Floats) -> tuple[Floats, Floats]:
        """Return the ends for weighted sums ``Σ_j w_ij μ_{g(i, j)}``, a row of `places` and
        `weights` each.

        By MOVER (Zou and Donner 2008): the distances of the means from their own ends, each in the
        direction that moves the sum, are added in squares.
        """
        values = (weights * self.means[places]).sum(axis=1)
        low, high = self.ends()
        below = (self.means - low)[places]
        above = (high - self.means)[places]
        # A negative weight makes the upper end of a mean pull the sum down.
        down = np.where(weights > 0, below, above) * weights
        up = np.where(weights > 0, above, below) * weights
        downward = np.sqrt((down**2).sum(axis=1))
        upward = np.sqrt((up**2).sum(axis=1))
        return values - downward, values + upward

    def ends(self) -> tuple[Floats, Floats]:
        """Return the ends for each mean, not cut to the bounds.

        They are those of ``|m - μ| <= z sqrt((u - μ)(μ - l)/n + σ²/n²)``, the first part times the
        size of a cluster.
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


DRAWS, SEED = 9_999, 26
"""The simulated comparisons that a published one is held against, the same for whoever computes it
anew."""

_FEWEST = 199  # simulated comparisons where groups are many
_AT_ONCE = 1 << 22  # numbers that a simulation holds at a time
# the variance of a sum, in squares of its pieces, from which it counts as normal
_NORMAL_FROM = 10.0
_HEAVY = 0.05  # the share of a variance up to which Laplace noise does not show
_LOGITS = 14.0  # common means are sought between odds of e^-14 and e^14


@dataclass(frozen=True)
class Comparison:
    """Whether group means differ: ``Q = (m - m̄)' V^-1 (m - m̄)`` and the probability of one as
    large.

    Parameters
    ----------
    statistic, degrees
        Q, and one less than the groups with records.
    pooled
        The common mean that fits best.
    p_value
        The probability of a statistic at least as large where all means are equal; 1 where nothing
        is compared.
    about
        Whether the means of the records are compared (noise alone) or those of their population.
    reference
        What the statistic was held against: ``χ²`` or ``simulation``.

    Examples
    --------
    >>> Comparison(statistic=3.0, degrees=2, pooled=0.5, p_value=0.22).about
    <About.noise: 'noise'>
    """

    statistic: float
    degrees: int
    pooled: float
    p_value: float = 1.0
    about: About = About.noise
    reference: str = "χ²"


@dataclass(frozen=True, eq=False)
class NoisyMeans:
    """The noisy means of the groups of one set that have records, to be compared.

    Parameters
    ----------
    mechanism, number
        What measured the sums, and which of its sets of groups is meant.
    counts, means
        The exact number of records of each group and its noisy mean.
    cluster
        The most records of one person: sampling is allowed for as in `population`.
    """

    mechanism: Mechanism
    number: int
    counts: Floats
    means: Floats
    cluster: int = 1

    @property
    def _space(self) -> SumSpace:
        assert isinstance(self.mechanism.space, SumSpace)
        return self.mechanism.space

    @property
    def _width(self) -> float:
        return float(self._space.outcome.width)

    @property
    def _noise(self) -> float:
        """The variance of the noise in one sum before projection, in squared units of the
        outcome.
        """
        return self._width**2 * self.mechanism.variance

    def compare_records(self) -> Comparison:
        """Compare the means of the records: V is the covariance of the noise, whose law is
        known.
        """
        if not self._noise:
            return self._nothing(About.noise)

        def no_sampling(source: np.random.Generator, draws: int) -> Floats:
            return np.zeros((draws, len(self.counts)))

        no_spread = np.zeros(len(self.counts))
        return self._test_equality(no_spread, About.noise, no_sampling, self._width)

    def compare_bounded(self) -> Comparison:
        """Compare the means of the population, with the largest variances that the bounds allow.

        Equal means μ leave variances of at most (u - μ)(μ - l), so Q is least over μ. Sums of few
        records are not normal: their law is simulated, with records at the two bounds, which have
        that variance.
        """
        outcome = self._space.outcome
        lower = float(outcome.lower)
        range_ = float(outcome.upper - outcome.lower)
        pooled = self._best_mean(lower, range_)
        share = min(max((pooled - lower) / range_, 0.0), 1.0)
        variances = self._at_bounds(range_, share)
        if not (self._noise or variances.any()):
            return self._nothing(About.sampling)
        sizes = self._persons.astype(np.int64)

        def records(source: np.random.Generator, draws: int) -> Floats:
            ones = source.binomial(sizes, share, (draws, len(sizes)))
            return np.asarray(range_ * (ones / self._persons - share))

        return self._test_equality(
            variances, About.sampling, records, self.cluster * range_, pooled
        )

    def _smooth(self, variances: Floats, unit: float) -> bool:
        """Whether all sums are as good as normal: wide in units of what they are made of, and
        little Laplace noise.
        """
        totals = self.counts * variances + self._noise
        if float(totals.min()) < _NORMAL_FROM * unit**2:
            return False
        shows_noise = self._noise > _HEAVY * totals
        return not (isinstance(self.mechanism, LaplaceMechanism) and shows_noise.any())

    def _at_bounds(self, range_: float, share: float) -> Floats:
        """The variances of values at the two bounds, a share of them at the upper one."""
        return range_**2 * share * (1 - share) * self.counts / self._persons

    @property
    def _persons(self) -> Floats:
        """The fewest persons that the records of each group may be of."""
        return np.maximum(self.counts // self.cluster, 1.0)

    def _nothing(self, about: About) -> Comparison:
        """Means without any error need no test."""
        pooled = float(self.counts @ self.means / self.counts.sum())
        return Comparison(0.0, 0, pooled, 1.0, about)

    def _test_equality(
        self,
        variances: Floats,
        about: About,
        sampling: Callable[[np.random.Generator, int], Floats],
        unit: float,
        common: float | None = None,
    ) -> Comparison:
        """Return Q with its p-value: from χ² for normal errors, else by simulation of sampling and
        noise.

        The sums are made of pieces of size `unit`: steps of the grid, or the whole width of the
        outcome.
        """
        from scipy.special import chdtrc

        degrees = len(self.counts) - 1
        statistic, pooled = self.statistic(self.means[None], variances)
        observed = float(statistic[0])
        centre = float(pooled[0]) if common is None else common
        if self._smooth(variances, unit):
            p = float(chdtrc(degrees, observed))
            return Comparison(observed, degrees, centre, p, about)
        p = self._simulated_p(observed, variances, sampling)
        return Comparison(observed, degrees, centre, p, about, "simulation")

    def _simulated_p(
        self,
        statistic: float,
        variances: Floats,
        sampling: Callable[[np.random.Generator, int], Floats],
    ) -> float:
        """Return the share of simulated statistics that are at least as large, the published one
        counted too.

        Thousands of groups leave room for few simulations: a multiple of χ² with their mean and
        variance serves then.
        """
        from scipy.special import chdtrc

        # A fixed seed, so that whoever rechecks a release finds the same p-value.
        source = np.random.default_rng(SEED)
        size = len(self.counts) if len(self._space.blocks) == 1 else self._space.shape[0]
        at_once = max(_AT_ONCE // max(size, 1), 1)
        draws = DRAWS if at_once * 10 >= DRAWS else _FEWEST
        parts = []
        for start in range(0, draws, at_once):
            count = min(at_once, draws - start)
            errors = sampling(source, count) + self.noise_draws(source, count)
            parts.append(self.statistic(errors, variances)[0])
        drawn = np.concatenate(parts)
        if draws == DRAWS:
            # The published statistic counts as one of the draws: the p-value is then valid for any
            # number of them. The slack lets ties count that differ by rounding alone.
            as_large = np.count_nonzero(drawn >= statistic * (1 - 1e-9))
            return (1 + int(as_large)) / (1 + draws)
        scale = float(drawn.var(ddof=1) / (2 * drawn.mean()))
        degrees = float(drawn.mean()) / scale
        return float(chdtrc(degrees, statistic / scale))

    def noise_draws(self, source: np.random.Generator, draws: int) -> Floats:
        """Return draws of the noise in the means, after projection where there are several sets of
        groups.
        """
        space = self._space
        if len(space.blocks) == 1:
            noise = simulate_noise(self.mechanism, (draws, len(self.counts)), source)
            return self._width * noise / self.counts
        occupied = space.counts[self.number].ravel() > 0
        kept = []
        for noise in simulate_noise(self.mechanism, (draws, *space.shape), source):
            of_set = space.project(noise)[space.slices[self.number]]
            kept.append(of_set[occupied])
        return np.asarray(self._width * np.stack(kept) / self.counts)

    def statistic(
        self, means: Floats, variances: Floats, common: float | None = None
    ) -> tuple[Floats, Floats]:
        """Return Q and m̄ for several sets of means, a row each; m̄ as given, or the one with the
        least Q.
        """
        # V is a diagonal less κ τ² vv' with v = 1/n, so its inverse is a diagonal plus a multiple
        # of one product
        mean_noise = self._noise / self.counts**2
        precision = 1 / (mean_noise + variances / self.counts)
        taken = self._noise * self._space.common_part(self.number)
        v = 1 / self.counts
        share = taken / (1 - taken * float(precision @ v**2))
        direction = precision * v

        def inverse(x: Floats) -> Floats:
            along = share * (x @ direction)
            return np.asarray(precision * x + np.multiply.outer(along, direction))

        weights = inverse(np.ones(len(v)))
        if common is None:
            pooled = means @ weights / weights.sum()
        else:
            pooled = np.full(len(means), common)
        gaps = means - pooled[:, None]
        return (gaps * inverse(gaps)).sum(axis=1), pooled

    def _best_mean(self, lower: float, range_: float) -> float:
        """Return the common mean with the least Q. The variance at a mean is the one that the
        bounds allow there.
        """
        from scipy.optimize import minimize_scalar
        from scipy.special import expit

        def statistic(logit: float) -> float:
            share = float(expit(logit))
            mean = lower + range_ * share
            q, _ = self.statistic(self.means[None], self._at_bounds(range_, share), mean)
            return float(q[0])

        # The bounded search finds a local minimum: a coarse grid first says where the least Q lies.
        places = np.linspace(-_LOGITS, _LOGITS, 57)
        on_grid = [statistic(float(place)) for place in places]
        best = float(places[int(np.argmin(on_grid))])
        step = float(places[1] - places[0])
        around_best = (best - step, best + step)
        minimum = minimize_scalar(statistic, bounds=around_best, method="bounded")
        return lower + range_ * float(expit(minimum.x))
