"""Distributions by group from noisy differences of halves: shares, quantiles, their intervals, and
a band.

All of it is post-processing. The error of a count up to a value is a weighted sum of independent
noise, one number a depth, whose law is known: intervals come from the law, not from its standard
deviation.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, exact
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    ValueTree,
    distribution_space,
    value_tree,
)
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.noise_sums import Weighted, half_widths
from semidp.publish.statistics.outcomes.groups import ByBlocks
from semidp.publish.statistics.outcomes.noise_law import LEVEL, Intervals, entry_noise_law

Floats = NDArray[np.float64]

QUANTILES = tuple(Fraction(number, 100) for number in (10, 25, 50, 75, 90))
"""The quantiles that are listed unless others are named; all others cost nothing more."""

# simulated distributions, and numbers in all of them
_DRAWS, _FEWEST, _NUMBERS = 10_000, 400, 1 << 22
_SAFE = 2.0  # standard errors of a simulated level that are added to it
_HAIR = 1e-9  # of a record: floating-point sums of whole numbers and halves


@dataclass(frozen=True, eq=False)
class GroupDistributions(ByBlocks):
    """Distributions of an outcome by group. Nothing in it is confidential.

    Parameters
    ----------
    mechanism, measurement
        What measured the differences of halves, and what it measured.
    level
        The level of intervals and of the band.

    Examples
    --------
    >>> from semidp.publish.selection import select_mechanism
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> space = two_wards(steps=7)
    >>> mechanism = select_mechanism(space, Budget.gdp(2))
    >>> histograms = np.array([[2, 2, 2, 4, 10, 6, 2, 2], [5, 5, 5, 5, 0, 0, 0, 0]])
    >>> measured = mechanism.measure(space.apply_query(histograms), SeededRandomness(1))
    >>> distributions = GroupDistributions(mechanism, measured)
    >>> (median,) = distributions.quantiles(["1/2"])
    >>> list(median.rows())
    [(('a',), 4.0, 3.5, 4.5), (('b',), 2.0, 0.5, 3.5)]
    """

    level: Fraction = LEVEL

    @property
    def space(self) -> DistributionSpace:
        """The groups, and the tree of values."""
        assert isinstance(self.mechanism.space, DistributionSpace)
        return self.mechanism.space

    @cached_property
    def _every(self) -> Floats:
        """Unbiased counts up to each value but the last, a row a group; noise may disorder them."""
        return self.space.up_to(self.measurement.noisy)

    @cached_property
    def _monotone_counts(self) -> Floats:
        """The same in growing order, between 0 and the size of the group."""
        return in_order(self._every, self.space.sizes)

    def sizes(self, block: Margin | None = None) -> Floats:
        """Return the exact number of records of each group of a set."""
        return np.asarray(self.space.counts[self._number(block)].ravel(), dtype=np.float64)

    def unbiased_counts(self, block: Margin | None = None) -> Floats:
        """Return the estimated records up to each value but the last, as measured: noise may
        disorder them.
        """
        return self._every[self._rows(block)]

    def up_to(self, block: Margin | None = None) -> Floats:
        """Return the estimated records up to each value but the last, in growing order."""
        return self._monotone_counts[self._rows(block)]

    def _rows(self, block: Margin | None) -> slice:
        ends = np.cumsum([0, *(counts.size for counts in self.space.counts)])
        number = self._number(block)
        return slice(int(ends[number]), int(ends[number + 1]))

    @property
    def half_widths(self) -> Floats:
        """How far the count up to each value but the last is off at most, with the probability
        `level` each.
        """
        return pointwise_half_widths(self.mechanism, self.level)

    @property
    def band_widths(self) -> Floats:
        """How far the counts up to all values of a group are off at most, with the probability
        `level` together.
        """
        return band_half_widths(self.mechanism, self.level)

    def block_half_widths(self, block: Margin | None) -> Floats:
        """The half-widths of a set of groups: those of any set."""
        return self.half_widths

    def block_band_widths(self, block: Margin | None) -> Floats:
        """The half-widths of the band of a set of groups: those of any set."""
        return self.band_widths

    def bounds(self, block: Margin | None = None) -> tuple[Floats, Floats]:
        """Return the ends of the intervals for the count up to each value but the last, each by
        itself.
        """
        ordered = self.up_to(block)
        lower, upper = self._around(block, self.block_half_widths(block))
        # The estimate in growing order may leave its interval; a wider interval holds no less
        # often.
        return np.minimum(lower, ordered), np.maximum(upper, ordered)

    def band(self, block: Margin | None = None) -> tuple[Floats, Floats]:
        """Return the lower and the upper curve between which the counts up to all values of a group
        lie together.

        Where a band holds, the true counts grow within it: the lower curve is raised to its largest
        earlier value, and the upper one lowered to its least later one.
        """
        ordered = self.up_to(block)
        lower, upper = self._around(block, self.block_band_widths(block))
        lower = _largest_before(lower)
        upper = _least_after(upper)
        return np.minimum(lower, ordered), np.maximum(upper, ordered)

    def _around(self, block: Margin | None, widths: Floats) -> tuple[Floats, Floats]:
        """The unbiased counts less and plus half-widths, between 0 and the sizes of the groups."""
        counts = self.unbiased_counts(block)
        sizes = self.sizes(block)[:, None]
        # An end that is a whole number stays beyond it where it is divided by the size.
        widths = np.where(widths > 0, widths + _HAIR, 0.0)
        return np.clip(counts - widths, 0, sizes), np.clip(counts + widths, 0, sizes)

    def quantiles(
        self, probabilities: Sequence[Number] = QUANTILES, block: Margin | None = None
    ) -> list[Intervals]:
        """Return an interval for each quantile of the records, group after group; NaN for a group
        without records.

        The estimate is a value of the grid. The interval reaches to the ends of the cells that it
        holds, half a step to each side, since records lie anywhere in a cell.

        The q-quantile of n values is the ``⌈q n⌉``-th smallest. With r its rank the interval is the
        hull of values v for which the upper end of F(v) is at least r and the lower end of F(v - 1)
        below r, each end at half of the error. F before the first value is 0 and F of the last is
        n, so that there always is one. It misses the quantile w only if the upper end of F(w), or
        the lower end of F(w - 1), does, whatever the other values do.
        """
        sizes = self.sizes(block)
        ordered = self.up_to(block)
        before, at = self._ends(block)
        groups = self.groups(block)
        parts = []
        for probability in probabilities:
            ranks = _ranks(exact(probability, "a quantile"), sizes)[:, None]
            below = ordered < ranks - _HAIR
            steps = below.sum(axis=1)
            possible = (at >= ranks - _HAIR) & (before < ranks)
            first, last = _hull(possible)
            # The estimate may lie outside; a wider interval holds no less often.
            first = np.minimum(first, steps)
            last = np.maximum(last, steps)
            values, starts, ends = histogram_cells(self.space.outcome)
            columns = (values[steps], starts[first], ends[last])
            value, lower, upper = (np.where(sizes > 0, column, np.nan) for column in columns)
            parts.append(Intervals(groups, value, lower, upper, self.level))
        return parts

    def _ends(self, block: Margin | None) -> tuple[Floats, Floats]:
        """For each value the lower end of the count before it, and the upper end of the count up to
        it.
        """
        counts = self.unbiased_counts(block)
        sizes = self.sizes(block)[:, None]
        # Counts are whole numbers, so that a lower end is rounded up.
        widths = self.block_half_widths(block)
        lower = np.ceil(counts - widths - _HAIR)
        upper = counts + widths
        before = np.hstack([np.zeros_like(sizes), lower])
        at = np.hstack([upper, sizes])
        return before, at

    def shares_below(self, line: Number, block: Margin | None = None) -> Intervals:
        """Return the share of the records of each group whose value lies below a line, with
        intervals.

        The records were cut at the lines that were named before, and half way between steps. The
        interval of another line reaches from that of the cut before it to that of the cut after.
        """
        before, after = cuts_around(self.space.outcome, line)
        sizes = self.sizes(block)
        nobody = np.zeros((len(sizes), 1))
        everybody = sizes[:, None]
        columns = []
        for counts in (self.up_to(block), *self.bounds(block)):
            # Below the first cell lies nobody, up to the last everybody.
            padded = np.hstack([nobody, counts, everybody])
            columns.append((shares(padded[:, before], sizes), shares(padded[:, after], sizes)))
        values, lowers, uppers = columns
        value = np.mean(values, axis=0)
        return Intervals(self.groups(block), value, lowers[0], uppers[1], self.level)


def histogram_cells(outcome: Outcome) -> tuple[Floats, Floats, Floats]:
    """Return for each cell of an outcome's histogram the step of the grid in it (or next to it),
    its start and its end.

    >>> [column.tolist() for column in histogram_cells(Outcome("score", 0, 2, 2, cuts=(1,)))]
    [[0.0, 1.0, 1.0, 2.0], [0.0, 0.5, 1.0, 1.5], [0.5, 1.0, 1.5, 2.0]]
    """
    starts = (outcome.lower, *outcome.edges)
    ends = (*outcome.edges, outcome.upper)
    half = outcome.width / 2
    values = []
    for start, end in zip(starts, ends, strict=True):
        step = (start + half - outcome.lower) // outcome.width
        value = outcome.lower + step * outcome.width
        values.append(min(max(value, start), end))
    return np.array(values, float), np.array(starts, float), np.array(ends, float)


def cuts_around(outcome: Outcome, line: Number) -> tuple[int, int]:
    """Return how many cells of an outcome's histogram lie below a line for certain, and how many at
    most: the same number where the histogram is cut at the line.

    >>> days = Outcome("days", 0, 10, 10)
    >>> cuts_around(days, "4.5"), cuts_around(days, 5), cuts_around(evolve(days, cuts=(5,)), 5)
    ((5, 5), (5, 6), (6, 6))
    >>> cuts_around(days, 11)
    Traceback (most recent call last):
    semidp.errors.InputError: a line lies above 0 and at most at 10, the bounds of 'days', not at 11
    """
    (place,) = evolve(outcome, cuts=(line,)).cuts
    edges = [float(edge) for edge in outcome.edges]
    return bisect_right(edges, float(place)), bisect_left(edges, float(place)) + 1


def shares(counts: Floats, sizes: Floats) -> Floats:
    """Return counts as shares of the sizes of groups; NaN for a group without records.

    >>> shares(np.array([3.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.75, nan]
    """
    rows = sizes if counts.ndim == 1 else sizes[:, None]
    parts = counts / np.maximum(rows, 1)
    return np.asarray(np.where(rows > 0, parts, np.nan))


def in_order(counts: Floats, sizes: NDArray[np.number]) -> Floats:
    """Return counts in growing order along each row, between 0 and the size of the group.

    Half way between the largest count before and the least one after: the same for counts that are
    in order.

    >>> in_order(np.array([[2.0, 1.0, 5.0, 12.0]]), np.array([10])).tolist()
    [[1.5, 1.5, 5.0, 10.0]]
    """
    middle = (_largest_before(counts) + _least_after(counts)) / 2
    return np.asarray(np.clip(middle, 0, sizes[:, None]))


def _largest_before(counts: Floats) -> Floats:
    """The largest count up to each place of a row."""
    return np.asarray(np.maximum.accumulate(counts, axis=1))


def _least_after(counts: Floats) -> Floats:
    """The least count from each place of a row on."""
    backwards = np.minimum.accumulate(counts[:, ::-1], axis=1)
    return np.asarray(backwards[:, ::-1])


def _hull(possible: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first and the last place of each row that is possible."""
    from_the_end = possible[:, ::-1].argmax(axis=1)
    last = possible.shape[1] - 1 - from_the_end
    return possible.argmax(axis=1), last


def _ranks(probability: Fraction, sizes: Floats) -> Floats:
    """The rank ``⌈q n⌉`` of a quantile in groups of n records, at least 1."""
    if not 0 < probability < 1:
        raise InputError(
            "quantiles are numbers between 0 and 1, each named once and in growing order"
        )
    ranks = [max(math.ceil(probability * int(size)), 1) for size in sizes]
    return np.array(ranks, dtype=np.float64)


def pointwise_half_widths(mechanism: Mechanism, level: Fraction) -> Floats:
    """Return h with ``P(|error of F(v)| <= h) >= level`` for each value but the last; zeros without
    noise.
    """
    tree, law = _tree_and_noise(mechanism)
    if law is None:
        return np.zeros(tree.gaps)
    return np.array(_pointwise(tree.values, law, level))


def difference_error(mechanism: Mechanism) -> float:
    """Return the standard deviation of the noise in one difference of halves; 0 without noise."""
    law = _tree_and_noise(mechanism)[1]
    return 0.0 if law is None else math.sqrt(law.variance)


def count_errors(mechanism: Mechanism) -> Floats:
    """Return the standard deviation of the error of F at each value but the last; zeros without
    noise.
    """
    tree = _tree_and_noise(mechanism)[0]
    return _deviations(tree) * difference_error(mechanism)


def band_half_widths(mechanism: Mechanism, level: Fraction) -> Floats:
    """Return h with ``P(|error of F(v)| <= h(v) for all v of a group) >= level``; zeros without
    noise.

    h is a multiple of the standard deviation of each error. The multiple is found by simulation
    with public randomness, the same for everybody, at a level that is raised by two standard errors
    of the simulation.
    """
    tree, law = _tree_and_noise(mechanism)
    if law is None or not law.variance:
        return np.zeros(tree.gaps)
    spread = math.sqrt(law.variance)
    multiple = _multiple(tree.values, law, level)
    return _deviations(tree) * spread * multiple


def _tree_and_noise(mechanism: Mechanism) -> tuple[ValueTree, CountNoise | None]:
    """The tree of a mechanism's space, and the law of the noise in one difference."""
    space = mechanism.space
    assert isinstance(space, DistributionSpace)
    return space.tree, entry_noise_law(mechanism)


def _deviations(tree: ValueTree) -> Floats:
    """The standard deviation of the error of F at each value but the last, for noise of variance
    1.
    """
    return np.asarray(np.sqrt((tree.weights**2).sum(axis=1)))


@lru_cache(maxsize=64)
def _pointwise(values: int, law: CountNoise, level: Fraction) -> tuple[float, ...]:
    """The half-widths of `pointwise_half_widths`; values with the same weights, in any order, share
    a law.
    """
    weights = np.sort(value_tree(values).weights, axis=1)
    different, which = np.unique(weights, axis=0, return_inverse=True)
    sums = []
    for row in different.tolist():
        # The weights are halves of halves, so that a float holds them exactly.
        heavy = [weight for weight in row if weight]
        sums.append([Weighted(law, Fraction(weight), 1) for weight in heavy])
    widths = np.array(half_widths(sums, float(level)))
    return tuple(widths[which.ravel()].tolist())


@lru_cache(maxsize=64)
def _multiple(values: int, law: CountNoise, level: Fraction) -> float:
    """The multiple of the standard deviations that no error of a group exceeds, with the
    probability `level`.
    """
    tree = value_tree(values)
    count = simulations(tree.gaps)
    noise = law.sample((count, tree.gaps), SeededRandomness(0))
    errors = tree.up_to(noise, np.zeros(count))
    spread = _deviations(tree) * math.sqrt(law.variance)
    largest = np.sort(np.abs(errors / spread).max(axis=1))
    return float(largest[band_rank(count, level) - 1])


def simulations(numbers: int) -> int:
    """Number of distributions that are simulated, where each takes `numbers` numbers."""
    return int(np.clip(_NUMBERS // numbers, _FEWEST, _DRAWS))


def band_rank(count: int, level: Fraction) -> int:
    """Rank of a level among `count` draws, plus two standard errors."""
    chance = float(level)
    variance = count * chance * (1 - chance)
    raised = _SAFE * math.sqrt(variance)
    rank = math.ceil((count + 1) * chance + raised)
    return min(rank, count)


def two_wards(steps: int, adjacency: Adjacency | None = None) -> DistributionSpace:
    """Return the distribution of a score from 0 to `steps` in two wards of 30 and 20 people, any
    two records moving.

    >>> two_wards(steps=7).shape
    (14,)
    """
    schema = Schema([Feature("ward", ["a", "b"])])
    wards = Table(schema, [30, 20])
    public = Dataspace.from_table(wards, [Margin("ward")])
    outcome = Outcome("score", 0, steps, steps)
    return distribution_space(public, adjacency or Ball(2), outcome, [Margin("ward")])
