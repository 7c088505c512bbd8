"""Private sums, means and proportions by group next to exact group counts: standard errors,
intervals for the records and for the population that they were sampled from, and tests of whether
means differ.

Means are noisy sums over exact counts. The spread of an outcome may differ from group to group, so
spread is never shared between groups. Rates invert the distribution of a binomial count with the
noise; other means use the largest variance that the bounds allow; differences and regression
coefficients are combinations of means. A *cluster* is the most records of one person, which may
vary together: a sum of records then has at most `cluster` times the variance of independent ones
(docs/inference_checks.md).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, parse_level
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import SumSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.groups import ByBlocks
from semidp.publish.statistics.outcomes.noise_law import (
    LEVEL,
    About,
    Intervals,
    count_as_large,
    each_level,
    half_widths,
    noise_deviation,
    normal_quantile,
    simulate_noise,
    upper_tail,
)

Floats = NDArray[np.float64]

MOST_INVERTED = 10_000
"""The largest group whose noisy count is inverted exactly; larger ones get the score
interval."""


@frozen(eq=False)
class SampledMeans:
    """Noisy means of independent groups, and intervals for their population means.

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
        direction that moves the sum, are added in quadrature.
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
    ``P(Y >= y) > α/2`` and ``P(Y <= y) > α/2``. Both are monotone in p. If no rate is kept,
    because the noise took y far out of what is possible, both ends are the nearest rate. Coverage
    is at least `level` whatever n and p. With clusters the count is that of ``n/m`` persons
    (rounded down) with identical records, which vary most.

    Parameters
    ----------
    mechanism
        The mechanism of the noise, one integer per group.
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
        """The rate at which a tail is α/2; a bound of the rates if there is none."""

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
"""The number and the seed of simulated comparisons, the same whenever they are
recomputed."""

_FEWEST = 199  # simulated comparisons where groups are many
_AT_ONCE = 1 << 22  # numbers that a simulation holds at a time
# the variance of a sum, in squares of its pieces, from which it counts as normal
_NORMAL_FROM = 10.0
_HEAVY = 0.05  # the share of a variance up to which Laplace noise does not show
_LOGITS = 14.0  # common means are sought between odds of e^-14 and e^14


@frozen
class Comparison:
    """A test of equal group means: ``Q = (m - m̄)' V^-1 (m - m̄)`` and the probability of one as
    large.

    Parameters
    ----------
    statistic, degrees
        Q, and one less than the groups with records.
    pooled
        The common mean that fits best.
    p_value
        The probability of a statistic at least as large if all means are equal; 1 if nothing is
        compared.
    about
        Whether the means of the records are compared (noise alone) or those of their population.
    reference
        The reference distribution of the statistic: ``χ²`` or ``simulation``.

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


@frozen(eq=False)
class NoisyMeans:
    """The noisy means of the groups of one set that have records, to be compared.

    Parameters
    ----------
    mechanism, number
        The mechanism that measured the sums, and the number of the set of groups.
    counts, means
        The exact number of records of each group and its noisy mean.
    cluster
        The most records of one person: sampling is allowed for as in `SampledMeans`.
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

        # A fixed seed, so whoever rechecks a release finds the same p-value.
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
            # number of them.
            return (1 + count_as_large(drawn, statistic)) / (1 + draws)
        scale = float(drawn.var(ddof=1) / (2 * drawn.mean()))
        degrees = float(drawn.mean()) / scale
        return float(chdtrc(degrees, statistic / scale))

    def noise_draws(self, source: np.random.Generator, draws: int) -> Floats:
        """Return draws of the noise in the means, after projection if there are several sets of
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


_MOST_PAIRS = 10_000  # differences of groups


@frozen(eq=False)
class Estimates:
    """One number a group with its standard error; a group without records has no mean, which is
    NaN.

    Parameters
    ----------
    groups
        The levels of each group.
    counts
        The exact number of records of each group.
    values, standard_errors
        The estimates and their errors.
    rounding
        The most by which rounding each record to the grid can have moved a value, half a step a
        record: intervals hold it, standard errors do not.
    """

    groups: tuple[tuple[str, ...], ...]
    counts: NDArray[np.int64] = field(repr=False)
    values: Floats = field(repr=False)
    standard_errors: Floats = field(repr=False)
    rounding: Floats = field(repr=False)

    @property
    def coarse(self) -> bool:
        """Whether the grid can have moved a value by more than its standard error: use a finer one.

        >>> one = (("a",),), np.array([100]), np.array([0.5]), np.array([0.02])
        >>> (
        ...     Estimates(*one, rounding=np.array([0.05])).coarse,
        ...     Estimates(*one, rounding=np.array([0.0005])).coarse,
        ... )
        (True, False)
        """
        moved_more = self.rounding > self.standard_errors
        return bool(moved_more[self.counts > 0].any())

    def rows(self) -> Iterator[tuple[tuple[str, ...], int, float, float]]:
        """Yield each group with its count, estimate and standard error."""
        columns = (self.counts.tolist(), self.values.tolist(), self.standard_errors.tolist())
        yield from zip(self.groups, *columns, strict=True)


@frozen(eq=False)
class GroupSums(ByBlocks):
    """Noisy sums of an outcome by group, and estimates from them. Nothing in it is confidential.

    Examples
    --------
    >>> import semidp as sd
    >>> records = {
    ...     "school": np.repeat(["a", "b"], [40, 60]),
    ...     "score": np.repeat([55, 70], [40, 60]),
    ... }
    >>> score = sd.Outcome("score", 0, 100, steps=100)
    >>> request = sd.publish.GroupRequest("sum", score, [["school"]], sd.Budget.gdp(1))
    >>> prepared = sd.prepare(sd.Plan([request], ["school"]), records)
    >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
    >>> found = GroupSums(mechanism, mechanism.measure(values, sd.promise.SeededRandomness(1)))
    >>> found.means().standard_errors.round(2).tolist()
    [5.0, 3.33]
    >>> found.guarantee.adjacency.a, found.private
    (2, False)
    """

    @property
    def space(self) -> SumSpace:
        """The sensitivity space that the noise is calibrated to."""
        space = self.mechanism.space
        assert isinstance(space, SumSpace)
        return space

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.space.outcome

    @property
    def cluster(self) -> int:
        """The most records of one person."""
        return self.space.adjacency.most_records

    @property
    def blocks(self) -> tuple[Margin, ...]:
        """The sets of groups of the sums."""
        return self.space.blocks

    def sums(self, block: Margin | None = None) -> Estimates:
        """Return the sums of one block, ``lower n_g + width · steps``.

        Parameters
        ----------
        block
            Which block; may be left out if there is one.
        """
        number = self._number(block)
        counts = self.space.counts[number].ravel()
        width = float(self.outcome.width)
        # Steps count from the lower bound. Adding it back for each record costs no noise, since the
        # counts are exact.
        values = float(self.outcome.lower) * counts + width * self._steps(number)
        errors = np.sqrt(self._variances(number))
        rounding = np.asarray(counts * float(self.outcome.rounding), dtype=np.float64)
        groups = self.groups(self.blocks[number])
        return Estimates(groups, counts, values, errors, rounding)

    def means(self, block: Margin | None = None) -> Estimates:
        """Return the means of one block: noisy sums over exact counts, NaN for a group without
        records.
        """
        total = self.sums(block)
        n = np.where(total.counts > 0, total.counts, np.nan)
        values = total.values / n
        errors = total.standard_errors / n
        rounding = np.full(len(values), float(self.outcome.rounding))
        return Estimates(total.groups, total.counts, values, errors, rounding)

    def sum_intervals(
        self,
        block: Margin | None = None,
        *,
        level: Number = LEVEL,
        sampling: bool = False,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for each sum; the parameters are those of `mean_intervals`.

        With sampling it is for the number of records times the mean of the population.
        """
        number = self._number(block)
        sums = self.sums(self.blocks[number])
        if sampling:
            of_means = self._population_intervals(number, parse_level(level), simultaneous)
            n = sums.counts
            lower = np.where(n > 0, n * of_means.lower, 0.0)
            upper = np.where(n > 0, n * of_means.upper, 0.0)
            return evolve(of_means, values=sums.values, lower=lower, upper=upper)
        as_it_is = np.ones(len(sums.counts))
        return self._noise_alone(sums, number, as_it_is, parse_level(level), simultaneous)

    def mean_intervals(
        self,
        block: Margin | None = None,
        *,
        level: Number = LEVEL,
        sampling: bool = False,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for each mean: of the records, or of the population that they were
        sampled from.

        The population's, by group and without any spread of another group: *a yes or no* by
        inverting the law of a binomial count with the noise (`rate_ends`; the published
        number is the group's own noisy sum), which holds whatever the rate and the number of
        records, up to 10,000; beyond, and *other means*, by
        ``|m - μ| <= z sqrt((u - μ)(μ - l)/n + σ²/n²)``, which is wider than necessary unless values
        lie at the bounds.

        Parameters
        ----------
        block
            Which groups; may be left out if there is one set.
        level
            The probability that an interval holds the mean.
        sampling
            Whether it is about the population.
        simultaneous
            Whether all intervals of the set hold at once with that probability.

        Examples
        --------
        >>> import semidp as sd
        >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
        >>> days = sd.Outcome("days", 0, 10, 1000)
        >>> request = sd.publish.GroupRequest("mean", days, [["ward"]], sd.Budget.gdp(1))
        >>> prepared = sd.prepare(sd.Plan([request], ["ward"]), records)
        >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
        >>> stay = GroupSums(mechanism, mechanism.measure(values, sd.promise.SeededRandomness(1)))
        >>> for found in (stay.mean_intervals(), stay.mean_intervals(sampling=True)):
        ...     print(found.about, ((found.upper - found.lower) / 2).round(3).tolist())
        noise [0.083, 0.083]
        noise and sampling [0.361, 0.365]
        """
        number = self._number(block)
        if sampling:
            return self._population_intervals(number, parse_level(level), simultaneous)
        means = self.means(self.blocks[number])
        n = np.where(means.counts > 0, means.counts, np.nan)
        return self._noise_alone(means, number, 1 / n, parse_level(level), simultaneous)

    def _noise_alone(
        self, found: Estimates, number: int, scale: Floats, level: Fraction, simultaneous: bool
    ) -> Intervals:
        """Return intervals of the noise, and of rounding to the grid, for sums times a scale; a sum
        over no records has none.
        """
        occupied = found.counts > 0
        each = each_level(level, int(occupied.sum()), self.mechanism, simultaneous)
        # All groups of a set have noise of the same law after projection: one half-width serves
        # them all.
        half = 0.0
        if occupied.any():
            first_group = np.flatnonzero(occupied)[:1].tolist()
            weights = self._weights(number, first_group, np.array([float(self.outcome.width)]))
            half = float(half_widths(self.mechanism, [weights], each)[0])
        rounding = found.counts * float(self.outcome.rounding)
        halves = (np.where(occupied, half, 0.0) + rounding) * scale
        return Intervals.around(found.groups, found.values, halves, level, simultaneous)

    def _population_intervals(self, number: int, level: Fraction, simultaneous: bool) -> Intervals:
        """Return intervals for the population means, cut to the bounds."""
        means = self.means(self.blocks[number])
        lower, upper = self._bounds
        occupied = means.counts > 0
        each = each_level(level, int(occupied.sum()), self.mechanism, simultaneous, sampling=True)
        low, high = self.sampled_means(number, each).ends()
        rounding = float(self.outcome.rounding)
        low, high = low - rounding, high + rounding
        exact = np.zeros(len(low), dtype=bool)
        # A count of ones is binomial whatever its rate, so an exact inversion replaces the
        # approximate ends.
        if self.outcome.steps == 1:
            n = means.counts[occupied]
            exact = n <= MOST_INVERTED
            # The sum as drawn, not as projected: only its noise is one whole number of a known law.
            drawn = np.asarray(self.measurement.noisy)[self.space.slices[number]]
            noisy = drawn[occupied][exact].astype(np.float64)
            sizes = n[exact].astype(np.float64)
            low_rates, high_rates = rate_ends(self.mechanism, sizes, noisy, each, self.cluster)
            low[exact] = lower + (upper - lower) * low_rates
            high[exact] = lower + (upper - lower) * high_rates
        # A group without records has no mean, and no interval for one.
        low_ends = np.full(len(occupied), math.nan)
        low_ends[occupied] = np.clip(low, lower, upper)
        high_ends = np.full(len(occupied), math.nan)
        high_ends[occupied] = np.clip(high, lower, upper)
        return Intervals(
            means.groups,
            means.values,
            low_ends,
            high_ends,
            level,
            About.sampling,
            simultaneous,
            bool(exact.all()) and self.cluster == 1,
        )

    def sampled_means(self, number: int, level: float) -> SampledMeans:
        """Return the means of the groups with records, as a sample from their population."""
        means = self.means(self.blocks[number])
        occupied = means.counts > 0
        noise = float(self.outcome.width) * noise_deviation(self.mechanism, level)
        n = means.counts[occupied].astype(np.float64)
        values = means.values[occupied]
        return SampledMeans(n, values, self._bounds, noise, level, self.cluster)

    @property
    def _bounds(self) -> tuple[float, float]:
        return float(self.outcome.lower), float(self.outcome.upper)

    def difference_intervals(
        self,
        block: Margin | None = None,
        *,
        against: Sequence[str] | None = None,
        level: Number = LEVEL,
        sampling: bool = False,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for the difference of the means of two groups with records, the first
        less the second.

        For the population the distances of both means from the ends of their own intervals are
        added in squares (MOVER, `SampledMeans`).

        Parameters
        ----------
        block, level, sampling, simultaneous
            As for `mean_intervals`.
        against
            The levels of the group that every other is compared with; each pair is compared if left
            out.

        Examples
        --------
        >>> import semidp as sd
        >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
        >>> days = sd.Outcome("days", 0, 10, 10)
        >>> request = sd.publish.GroupRequest("mean", days, [["ward"]], sd.Budget.gdp(1))
        >>> prepared = sd.prepare(sd.Plan([request], ["ward"]), records)
        >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
        >>> stay = GroupSums(mechanism, mechanism.measure(values, sd.promise.SeededRandomness(1)))
        >>> found = stay.difference_intervals()
        >>> found.names, bool(found.lower[0] < -6 < found.upper[0])
        ((('a', 'b'),), True)
        """
        number = self._number(block)
        means = self.means(self.blocks[number])
        confidence = parse_level(level)
        pairs = _pairs(means, against)
        differences = [means.values[one] - means.values[other] for one, other in pairs]
        values = np.array(differences)
        rounding = 2 * float(self.outcome.rounding)  # of both means, in opposite directions
        names = tuple((*means.groups[one], *means.groups[other]) for one, other in pairs)
        if not sampling:
            n = means.counts.astype(np.float64)
            width = float(self.outcome.width)
            weights = []
            for one, other in pairs:
                signed = np.array([width / n[one], -width / n[other]])
                weights.append(self._weights(number, (one, other), signed))
            each = each_level(confidence, len(pairs), self.mechanism, simultaneous)
            half = half_widths(self.mechanism, weights, each) + rounding
            return Intervals.around(names, values, half, confidence, simultaneous)
        each = each_level(confidence, len(pairs), self.mechanism, simultaneous, sampling=True)
        # `sampled_means` leaves out groups without records, so positions among all groups do
        # not fit.
        place = np.cumsum(means.counts > 0) - 1
        places = place[np.array(pairs, dtype=np.intp).reshape(-1, 2)]
        weights_of = np.tile([1.0, -1.0], (len(pairs), 1))
        sampled = self.sampled_means(number, each)
        low, high = sampled.weighted_sum_ends(places, weights_of)
        lower, upper = self._bounds
        range_ = upper - lower
        low = np.clip(low - rounding, -range_, range_)
        high = np.clip(high + rounding, -range_, range_)
        about = confidence, About.sampling, simultaneous, False
        return Intervals(names, values, low, high, *about)

    def _weights(self, number: int, groups: Sequence[int], weights: Floats) -> Floats:
        """The weights of the query's noise, those that are not zero, in a weighted sum of some
        groups of one set.
        """
        if len(self.blocks) == 1:
            return weights
        # P is symmetric, so w'(Pq) = (Pw)'q: the projected weights are those of the independent
        # noises.
        whole = np.zeros(self.space.shape)
        whole[self.space.slices[number].start + np.array(groups)] = weights
        whole = self.space.project(whole)
        return np.asarray(whole[whole != 0])

    def compare(self, block: Margin | None = None, *, sampling: bool = False) -> Comparison:
        """Test whether the means of all groups with records are equal, of values as rounded to the
        grid.

        With V the covariance of the means, ``Q = (m - m̄)' V^-1 (m - m̄)``. *The records* (the
        default): V holds the noise alone; Q is χ² for fine Gaussian noise, and its law is simulated
        for Laplace and coarse noise. *The population*: variances within groups are the largest that
        the bounds allow at the common mean; sums of few records are simulated. Means without any
        error, as under a huge budget, need no test, and are not compared.

        Parameters
        ----------
        block
            Which groups; may be left out if there is one set.
        sampling
            Whether the question is about the population that the records were sampled from.
        """
        number = self._number(block)
        group_means = self.means(self.blocks[number])
        occupied = group_means.counts > 0
        n = group_means.counts[occupied].astype(np.float64)
        means = group_means.values[occupied]
        about = About.sampling if sampling else About.noise
        if len(n) < 2:
            only_mean = float(means.mean()) if len(n) else math.nan
            return Comparison(0.0, 0, only_mean, 1.0, about)
        measured = NoisyMeans(self.mechanism, number, n, means, self.cluster)
        return measured.compare_bounded() if sampling else measured.compare_records()

    def _steps(self, number: int) -> Floats:
        return self.measurement.projected[self.space.slices[number]]

    @property
    def _noise(self) -> float:
        """The variance of the noise in one sum before projection, in squared units of the
        outcome.
        """
        return float(self.outcome.width) ** 2 * self.mechanism.variance

    def _variances(self, number: int) -> Floats:
        """The variances of one block's sums by the noise, in squared units of the outcome."""
        return self._noise * self.space.variances()[self.space.slices[number]]


def _pairs(found: Estimates, against: Sequence[str] | None) -> list[tuple[int, int]]:
    """Return the pairs of groups with records: each, or every other one with the group of some
    levels.
    """
    occupied = np.flatnonzero(found.counts > 0).tolist()
    if against is None:
        pairs = list(itertools.combinations(occupied, 2))
    else:
        one = tuple([against] if isinstance(against, str) else against)
        compared_with = found.groups.index(one) if one in found.groups else None
        if compared_with not in occupied:
            raise InputError(
                f"there is no group {', '.join(one)} with records to compare with: name one"
                " there is"
            )
        pairs = [(other, compared_with) for other in occupied if other != compared_with]
    if len(pairs) > _MOST_PAIRS:
        raise InputError(
            f"there are {len(pairs):,} pairs of groups: say against which group to compare"
        )
    return pairs
