"""Private sums, means and proportions by group beside exact group counts, with standard errors and
a comparison.

Means are noisy sums over exact counts.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, parse_level
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import SumSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.groups import ByBlocks
from semidp.publish.statistics.outcomes.noise_law import (
    LEVEL,
    About,
    Intervals,
    each_level,
    half_widths,
    noise_deviation,
)
from semidp.publish.statistics.outcomes.population import (
    MOST_INVERTED,
    Comparison,
    NoisyMeans,
    SampledMeans,
    rate_ends,
)

Floats = NDArray[np.float64]

_MOST_PAIRS = 10_000  # differences of groups


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class GroupSums(ByBlocks):
    """Noisy sums of an outcome by group, and what follows from them. Nothing in it is confidential.

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
        """What the sums are by."""
        return self.space.blocks

    def sums(self, block: Margin | None = None) -> Estimates:
        """Return the sums of one block, ``lower n_g + width · steps``.

        Parameters
        ----------
        block
            Which block; may be left out where there is one.
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
            return replace(of_means, values=sums.values, lower=lower, upper=upper)
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
        drawn from.

        The population's, by group and without any spread of another group: *a yes or no* by
        inverting the law of a binomial count with the noise (`population.rate_ends`; the published
        number is the group's own noisy sum), which holds whatever the rate and the number of
        records, up to 10,000; beyond, and *other means*, by
        ``|m - μ| <= z sqrt((u - μ)(μ - l)/n + σ²/n²)``, which is wider than it need be where values
        are not at the bounds.

        Parameters
        ----------
        block
            Which groups; may be left out where there is one set.
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
        # A count of ones is binomial whatever its rate, so that an exact inversion replaces the
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
        added in squares (MOVER, `population.SampledMeans`).

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
        # `sampled_means` leaves out groups without records, so that positions among all groups do
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
        """Test whether the means of all groups with records are equal.

        With V the covariance of the means, ``Q = (m - m̄)' V^-1 (m - m̄)``. *The records* (the
        default): V holds the noise alone; Q is χ² for fine Gaussian noise, and its law is simulated
        for Laplace and coarse noise. *The population*: variances within groups are the largest that
        the bounds allow at the common mean; sums of few records are simulated. Means without any
        error, as under a huge budget, need no test: nothing is compared.

        Parameters
        ----------
        block
            Which groups; may be left out where there is one set.
        sampling
            Whether the question is about the population that the records were drawn from.
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
