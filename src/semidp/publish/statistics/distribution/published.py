"""Distributions by group from noisy differences of halves: shares, quantiles, their intervals, and
a band; the published files, and their plot.

The error of a cumulative count is a weighted sum of independent noise, one number per depth, with
a known distribution: intervals come from it, not from its standard deviation.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, exact, number, plain
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    ValueTree,
    value_tree,
)
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.half_widths import Weighted, half_widths
from semidp.publish.plotting import BLUE, GREY, SKY, Figure, drawing, grouped_ticks, shorten_name
from semidp.publish.results.role_columns import Role, RoleColumn, Sheet, label_columns, noisy_column
from semidp.publish.results.texts import number_text, scale_text
from semidp.publish.statistics.outcomes.groups import (
    ByBlocks,
    answered_text,
    clipped_text,
    count_column,
    groups_text,
    interval_columns,
    quantile_heading,
    quantiles_text,
    whose,
)
from semidp.publish.statistics.outcomes.noise_law import LEVEL, Intervals, entry_noise_law
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.distribution.kind import DistributionRequest


Floats = NDArray[np.float64]


def count_up_to(
    tree: ValueTree, differences: NDArray[np.number], sizes: NDArray[np.number]
) -> Floats:
    """Return F of every gap from D of every node, one row per group of known size; noise in D may
    disorder F.

    >>> tree = ValueTree(5)
    >>> differences = tree.differences(np.array([[4, 1, 0, 2, 3]]))
    >>> count_up_to(tree, differences, np.array([10])).tolist()
    [[4.0, 5.0, 5.0, 7.0]]
    """
    counts = np.zeros((len(differences), tree.values + 1))
    counts[:, -1] = sizes
    # From the root down: the two ends of a node are known before its gap.
    for gaps in tree.levels:
        low, high = tree.low[gaps], tree.high[gaps]
        ends = counts[:, low] + counts[:, high]
        whole = ends + differences[:, gaps]
        counts[:, gaps + 1] = whole / 2
    return counts[:, 1:-1]


@lru_cache(maxsize=16)
def gap_weights(tree: ValueTree) -> Floats:
    """Return the weight of D of the node above a gap at each depth in F of the gap: rows are gaps,
    columns depths.

    A gap has the weight 1/2 on its own node. On nodes above it has the mean of the weights of the
    two gaps that end its node, which lie on the same path.
    """
    weights = np.zeros((tree.values + 1, tree.depth))
    for column, gaps in enumerate(tree.levels):
        low, high = tree.low[gaps], tree.high[gaps]
        ends = weights[low] + weights[high]
        weights[gaps + 1] = ends / 2
        weights[gaps + 1, column] = 0.5
    return weights[1:-1]


def count_groups_up_to(space: DistributionSpace, differences: ArrayLike) -> Floats:
    """Return the records up to each value but the last, one row per group, from the differences."""
    rows = space.project(differences).reshape(len(space.sizes), -1)
    return count_up_to(space.tree, rows, space.sizes)


QUANTILES = tuple(Fraction(number, 100) for number in (10, 25, 50, 75, 90))
"""The default quantiles to list; all others cost nothing more."""

# simulated distributions, and numbers in all of them
_DRAWS, _FEWEST, _NUMBERS = 10_000, 400, 1 << 22
_SAFE = 2.0  # standard errors of a simulated level that are added to it
_MOST_LAWS = 4000  # of counts up to a value, in all kinds of groups
_HAIR = 1e-9  # of a record: floating-point sums of whole numbers and halves


Terms = tuple[Weighted, ...]
"""What the error of a difference is made of: laws, sizes of weights, and how many numbers have
each."""

ErrorBound = Callable[[ValueTree, Terms, Fraction], Floats]
"""Half-widths of cumulative counts at a level, from the error of every difference."""


@frozen(slots=False, eq=False)
class GroupDistributions(ByBlocks):
    """Distributions of an outcome by group. Nothing in it is confidential.

    Parameters
    ----------
    mechanism, measurement
        The mechanism of the differences of halves, and its measurement.
    level
        The level of intervals and of the band.

    Examples
    --------
    >>> from semidp.publish.selection import select_mechanism
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp import Ball, Dataspace, Feature, Outcome, Schema, Table
    >>> from semidp.promise.sensitivity.distribution_space import distribution_space
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = distribution_space(public, Ball(2), Outcome("score", 0, 7, 7), [Margin("ward")])
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
        """Unbiased counts up to each value but the last, one row per group; noise may disorder
        them.
        """
        return count_groups_up_to(self.space, self.measurement.noisy)

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

    def list_terms(self, block: Margin | None) -> tuple[list[Terms], NDArray[np.intp]]:
        """What the error of a difference is made of: the different ones, and which each group of a
        set has, or -1 for none. Here all have the same.
        """
        _, terms = _tree_and_noise(self.mechanism)
        return [terms], np.zeros(len(self.sizes(block)), dtype=np.intp)

    def block_half_widths(self, block: Margin | None) -> Floats:
        """Half-widths of the counts up to each value but the last, with probability `level`
        each: one row per group.

        From the law of the noise; see `count_spread_widths` for very many laws.
        """
        laws = len(self.list_terms(block)[0])
        sorts = len(np.unique(np.sort(gap_weights(self.space.tree), axis=1), axis=0))
        if laws > 1 and laws * sorts > _MOST_LAWS:
            return self._compute_widths(count_spread_widths, block)
        return self._compute_widths(count_half_widths, block)

    def block_band_widths(self, block: Margin | None) -> Floats:
        """Half-widths of the counts up to all values of a group, with joint probability `level`:
        one row per group.
        """
        return self._compute_widths(count_band_widths, block)

    def _compute_widths(self, compute: ErrorBound, block: Margin | None) -> Floats:
        key = compute, self._number(block)
        if key not in self._widths:
            different, which = self.list_terms(block)
            widths = [compute(self.space.tree, terms, self.level) for terms in different]
            # Groups without records have no error: their distribution is known.
            self._widths[key] = np.stack([*widths, np.zeros(self.space.tree.gaps)])[which]
        return self._widths[key]

    @cached_property
    def _widths(self) -> dict[tuple[ErrorBound, int], Floats]:
        """Half-widths of sets of groups that were asked for: their laws may take a while."""
        return {}

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
        n, so there always is one. It misses the quantile w only if the upper end of F(w), or
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
        # Counts are whole numbers, so a lower end is rounded up.
        widths = self.block_half_widths(block)
        lower = np.ceil(counts - widths - _HAIR)
        upper = counts + widths
        before = np.hstack([np.zeros_like(sizes), lower])
        at = np.hstack([upper, sizes])
        return before, at

    def shares_below(self, line: Number, block: Margin | None = None) -> Intervals:
        """Return the share of the records of each group whose value lies below a line, with
        intervals.

        The records were cut at the lines that were named before, and halfway between steps. The
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

    Halfway between the largest count before and the least one after: the same for counts that are
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
    tree, terms = _tree_and_noise(mechanism)
    return count_half_widths(tree, terms, level)


def difference_error(mechanism: Mechanism) -> float:
    """Return the standard deviation of the noise in one difference of halves; 0 without noise."""
    return _deviation(_tree_and_noise(mechanism)[1])


def count_errors(mechanism: Mechanism) -> Floats:
    """Return the standard deviation of the error of F at each value but the last; zeros without
    noise.
    """
    tree, terms = _tree_and_noise(mechanism)
    return count_deviations(tree, terms)


def band_half_widths(mechanism: Mechanism, level: Fraction) -> Floats:
    """Return h with ``P(|error of F(v)| <= h(v) for all v of a group) >= level``; zeros without
    noise; see `count_band_widths`.
    """
    tree, terms = _tree_and_noise(mechanism)
    return count_band_widths(tree, terms, level)


def _tree_and_noise(mechanism: Mechanism) -> tuple[ValueTree, Terms]:
    """The tree of a mechanism's space, and the noise in one difference."""
    space, law = mechanism.space, entry_noise_law(mechanism)
    assert isinstance(space, DistributionSpace)
    return space.tree, () if law is None else (Weighted(law, Fraction(1), 1),)


def _deviation(terms: Terms) -> float:
    """The standard deviation of the error of one difference."""
    return math.sqrt(sum(term.variance for term in terms))


def count_deviations(tree: ValueTree, terms: Terms) -> Floats:
    """Return the standard deviation of the error of F at each value but the last.

    Parameters
    ----------
    tree, terms
        The tree of values, and the error of every difference in it.
    """
    return np.asarray(np.sqrt((gap_weights(tree) ** 2).sum(axis=1)) * _deviation(terms))


def count_half_widths(tree: ValueTree, terms: Terms, level: Fraction) -> Floats:
    """Return the half-widths of F at each value but the last, with probability `level` each,
    from the noise distribution; see `count_deviations`.
    """
    return np.array(_pointwise(tree.values, terms, level))


@lru_cache(maxsize=64)
def _pointwise(values: int, terms: Terms, level: Fraction) -> tuple[float, ...]:
    """The half-widths; values with the same weights, in any order, share a law."""
    weights = np.sort(gap_weights(value_tree(values)), axis=1)
    different, which = np.unique(weights, axis=0, return_inverse=True)
    sums = []
    for row in different.tolist():
        # The weights are halves of halves, so a float holds them exactly.
        shares = [Fraction(weight) for weight in row if weight]
        sums.append([evolve(term, weight=w * term.weight) for w in shares for term in terms])
    widths = np.array(half_widths(sums, float(level)))
    return tuple(widths[which.ravel()].tolist())


def count_spread_widths(tree: ValueTree, terms: Terms, level: Fraction) -> Floats:
    """Return the same by Chebyshev's inequality, which needs no law: ``sd / √(1 - level)``."""
    return count_deviations(tree, terms) / math.sqrt(1 - float(level))


def count_band_widths(tree: ValueTree, terms: Terms, level: Fraction) -> Floats:
    """Return the half-widths of F at all values together, with probability `level`.

    A multiple of the standard deviation of each error. The multiple is found by simulation with
    public randomness, the same for everybody, at a level that is raised by two standard errors of
    the simulation.
    """
    if not _deviation(terms):
        return np.zeros(tree.gaps)
    return count_deviations(tree, terms) * _multiple(tree.values, terms, level)


@lru_cache(maxsize=64)
def _multiple(values: int, terms: Terms, level: Fraction) -> float:
    """The multiple of the standard deviations that no error of a group exceeds, with the
    probability `level`.
    """
    tree, source = value_tree(values), SeededRandomness(0)
    count = simulations(tree.gaps * sum(term.count for term in terms))
    noise = np.zeros((count, tree.gaps))
    for term in terms:
        for _ in range(term.count):
            noise += float(term.weight) * term.law.sample(noise.shape, source)
    errors = count_up_to(tree, noise, np.zeros(count)) / count_deviations(tree, terms)
    largest = np.sort(np.abs(errors).max(axis=1))
    return float(largest[band_rank(count, level) - 1])


def simulations(numbers: int) -> int:
    """The number of distributions to simulate if each takes `numbers` numbers."""
    return int(np.clip(_NUMBERS // numbers, _FEWEST, _DRAWS))


def band_rank(count: int, level: Fraction) -> int:
    """Rank of a level among `count` draws, plus two standard errors."""
    chance = float(level)
    variance = count * chance * (1 - chance)
    raised = _SAFE * math.sqrt(variance)
    rank = math.ceil((count + 1) * chance + raised)
    return min(rank, count)


_REASONS = {
    "intervals": (
        "a distribution, whose intervals reach fewer ranks than those of chosen quantiles at the"
        " same cost"
    ),
    "values": (
        "a distribution, whose quantiles are closer than as many chosen ones at the same cost"
    ),
    "asked": "a distribution, as was asked",
}
"""Why quantiles were read off a distribution."""


def publish_distribution(
    request: "DistributionRequest", found: GroupDistributions
) -> PublishedStatistic:
    """Return distributions with their band, and the requested quantiles and shares."""
    mechanism = found.mechanism
    scale = f"scale {scale_text(mechanism.scale)}"
    asked, notes = [], []
    if request.answers is not None:
        reason = _REASONS[request.answers]
        notes = [("choice", reason)]
        asked = [
            f"Quantiles were asked for, and measured by {reason}. It answers further questions."
        ]
    sentences = Sentences(
        title=distribution_title(request),
        noise=f"{scale} in each of the {len(cut_places(request)):,} differences per group",
        paragraphs=(
            *asked,
            *answered_text(request),
            f"{clipped_text(request.outcome)}. The range of values was cut into two halves, each"
            " half again into two, and so on down to single values. For every cut and in each group"
            " one number was measured with noise: the number of records in the left half less that"
            f" in the right half ({mechanism.name}, {scale} in each difference). The number of"
            " records up to any value follows from a few of these differences and the exact size"
            " of the group. So all shares and all quantiles come at one cost.",
            about_intervals(request),
        ),
        notes=tuple(notes),
    )
    noisy = np.asarray(found.measurement.noisy, dtype=np.int64)
    return publish_statistic(
        request,
        found,
        sentences,
        distribution_sheets(request, found, noisy),
        distribution_facts(request),
    )


def distribution_title(request: "DistributionRequest") -> str:
    """Name distributions of groups: the distribution of score by school."""
    groups = groups_text(request.shown_sets, " and by ") + whose(request)
    column = request.outcome.column
    if request.answers is None:
        return f"distribution of {column} {groups}"
    return f"{quantiles_text(column, request.probabilities)} {groups}, read off its distribution"


def cut_places(request: "DistributionRequest") -> Floats:
    """Return where curves are measured: halfway between steps of the grid, and at lines."""
    return np.array(request.cut_outcome.edges, float)


def distribution_facts(request: "DistributionRequest") -> dict[str, Any]:
    return {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "level": number(request.level),
    }


def about_intervals(request: "DistributionRequest") -> str:
    level = f"{float(100 * request.level):g}%"
    return (
        f"Each interval holds the share or the quantile of these records with {level} probability."
        " It comes from the law of the noise. That of a quantile also holds half a step of the grid"
        " to each side, by which values were rounded. A line cuts where it lies: a record with"
        " exactly that value is not below it. A band holds the whole curve of its group"
        f" with {level} probability. Neither is about a population that the records were drawn"
        " from."
    )


# --- files


def distribution_sheets(
    request: "DistributionRequest", found: GroupDistributions, noisy: Any
) -> list[Sheet]:
    """Two files for each set of groups: one row per group and cut, and one row per group."""
    cuts = cut_places(request)
    differences = noisy.reshape(-1, len(cuts))
    sheets, start = [], 0
    for place, block in enumerate(request.by):
        sizes, groups = found.sizes(block), found.groups(block)
        curves = _curves(found, place, sizes)
        end = start + len(groups)
        labels = [group for group in groups for _ in cuts]
        groups_named = groups_text(request.shown_sets[place : place + 1])
        what = f"distribution of {request.outcome.column} {groups_named}{whose(request)}"
        curves_file, listed_file = request.file_pair(place)
        listing = "quantiles and shares below lines" if request.lines else "quantiles"
        sheets.append(
            Sheet(
                name=curves_file.removesuffix(".csv"),
                role_columns=(
                    *label_columns(found.columns(block), labels),
                    RoleColumn(
                        "below",
                        Role.place,
                        np.tile(cuts, len(groups)),
                        "where the values of the outcome are cut: half way between steps, or at a"
                        " line",
                    ),
                    *curves,
                    noisy_column("noisy", differences[start:end].ravel()),
                ),
                words=f"the {what}, one row a group and cut",
                is_main=False,
                draw=partial(_draw, request, groups, curves),
            )
        )
        occupied = int((sizes > 0).sum())
        which = "all groups"
        if occupied > MOST_DRAWN:
            which = f"the first {MOST_DRAWN} groups of {occupied:,}"
        sheets.append(
            Sheet(
                name=listed_file.removesuffix(".csv"),
                role_columns=(
                    *label_columns(found.columns(block), groups),
                    count_column(request, sizes.astype(np.int64)),
                    *_listed_columns(request, found, place),
                ),
                words=f"{listing} of the {what}, one row a group",
                heading=f"Published {what}",
                draw=partial(_draw, request, groups, curves),
                caption=f"The share of records below each value, of {which}. The shade is the band"
                " that holds the whole curve. Values with hardly any record are left out at both"
                " ends.",
                label=f"Distribution of {request.outcome.column} {groups_named}, with bands",
            )
        )
        start = end
    return sheets


def _curves(found: GroupDistributions, place: int, sizes: Floats) -> list[RoleColumn]:
    """The share of records below each cut, its interval, and the band of all cuts."""
    block = found.space.blocks[place]
    lower, upper = found.bounds(block)
    band_lower, band_upper = found.band(block)
    band = "of the band that holds all shares of the group at once"
    columns = (
        ("share", Role.estimate, found.up_to(block), "the estimated share of the group below it"),
        ("lower", Role.lower, lower, "the lower end of an interval for this share"),
        ("upper", Role.upper, upper, "the upper end of an interval for this share"),
        ("band_lower", Role.lower, band_lower, f"the lower end {band}"),
        ("band_upper", Role.upper, band_upper, f"the upper end {band}"),
    )
    return [
        RoleColumn(name, role, shares(counts, sizes).ravel(), meaning)
        for name, role, counts, meaning in columns
    ]


def _listed_columns(
    request: "DistributionRequest", found: GroupDistributions, place: int
) -> list[RoleColumn]:
    """The quantiles and the shares below lines that are listed, with their intervals."""
    block = request.by[place]
    numbers: list[tuple[str, Callable[[float], str], Intervals]] = [
        (f"q{plain(probability)}", number_text, intervals)
        for probability, intervals in zip(
            request.probabilities, found.quantiles(request.probabilities, block), strict=True
        )
    ]
    numbers += [
        (f"below_{plain(line)}", percent_text, found.shares_below(line, block))
        for line in request.lines
    ]
    columns = []
    for name, text, intervals in numbers:
        below = name.replace("below_", "share below ")
        called = quantile_heading(name) if name.startswith("q") else below
        meaning = f"the estimated {called}"
        columns.append(RoleColumn(name, Role.estimate, intervals.values, meaning, called, text))
        columns += interval_columns([intervals], f"{name}_", called)
    return columns


def percent_text(share: float) -> str:
    """Write a share in percent.

    >>> percent_text(0.61668)
    '61.7%'
    """
    return f"{share:.1%}" if np.isfinite(share) else "none"


def _draw(
    request: "DistributionRequest",
    groups: Sequence[tuple[str, ...]],
    curves: Sequence[RoleColumn],
    axes: Any,
) -> Any:
    """Draw the distributions of one set of groups with their bands."""
    cuts = cut_places(request)
    rows = {one.name: one.values.reshape(len(groups), len(cuts)) for one in curves}
    labels = [" · ".join(levels) for levels in groups]
    outcome = request.outcome
    bounds = (float(outcome.lower), float(outcome.upper))
    return distribution_plot(labels, cuts, rows, outcome.column, bounds, axes)


MOST_DRAWN = 12
"""The most groups to draw."""

_BESIDE = 2  # pictures in a row, whose labels can be read on a phone
_LONGEST_NAME = 26
_TICKS = (0, 0.25, 0.5, 0.75, 1)
_DRAWN = ("share", "band_lower", "band_upper")
_TAIL = 0.005  # of the records, which is left out at both ends of the axis
_FEW = 0.02  # the same by the curve, which noise moves


def distribution_plot(
    labels: Sequence[str],
    cuts: Floats,
    curves: Mapping[str, Floats],
    column: str,
    bounds: tuple[float, float],
    axes: Any = None,
) -> Figure | None:
    """Draw the share of records below each cut, with the band that covers the whole curve,
    one panel per group.

    The first twelve groups with records are drawn, with `axes` the first alone; None if there is
    none.

    Parameters
    ----------
    labels
        The names of the groups.
    cuts
        Where shares are measured.
    curves
        The columns of a published distribution, one row per group.
    column, bounds
        The column, and its bounds.

    Examples
    --------
    >>> rows = {name: np.array([[0.5]]) for name in ("share", "band_lower", "band_upper")}
    >>> distribution_plot(["a"], np.array([0.5]), rows, "score", (0, 1)).axes[0].get_title()
    'a'
    """
    has_records = np.isfinite(curves["share"]).all(axis=1)
    occupied = np.flatnonzero(has_records)[:MOST_DRAWN].tolist()
    if not occupied:
        return None
    if axes is not None:
        _draw_group(axes, labels[occupied[0]], cuts, curves, bounds, occupied[0])
        axes.set_xlim(*_drawn_span(cuts, curves, occupied[:1], bounds))
        axes.set(xlabel=column, ylabel="share below the value")
        figure: Figure = axes.figure
        return figure
    beside = min(len(occupied), _BESIDE)
    rows = math.ceil(len(occupied) / beside)
    with drawing(0.8 + 2.5 * beside, 0.7 + 1.9 * rows, beside, rows) as (figure, panels):
        every = np.atleast_1d(panels).ravel()
        span = _drawn_span(cuts, curves, occupied, bounds)
        for panel, group in zip(every, occupied, strict=False):
            _draw_group(panel, labels[group], cuts, curves, bounds, group)
        for panel in every[len(occupied) :]:
            panel.set_axis_off()
        for panel in every[: len(occupied)]:
            panel.set_xlim(*span)
            grouped_ticks(panel.xaxis, 3)
        figure.supxlabel(column, fontsize=11)
        figure.supylabel("share below the value", fontsize=11)
    return figure


def _draw_group(
    panel: Any,
    label: str,
    cuts: Floats,
    curves: Mapping[str, Floats],
    bounds: tuple[float, float],
    group: int,
) -> None:
    """Draw one group, with the records between two cuts halfway: where those of a step lie."""
    # Above the upper bound lies nobody.
    places = np.append(cuts, 2 * bounds[1] - cuts[-1])
    share, low, high = (np.append(curves[name][group], 1.0) for name in _DRAWN)
    panel.fill_between(places, low, high, step="mid", color=SKY, alpha=0.55, linewidth=0)
    panel.step(places, share, where="mid", color=BLUE, linewidth=1.1)
    panel.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    panel.set_ylim(0, 1.02)
    panel.set_yticks(_TICKS, [f"{tick:.0%}" for tick in _TICKS], fontsize=9)
    panel.tick_params(axis="x", labelsize=9)
    panel.set_title(shorten_name(label, _LONGEST_NAME), fontsize=10.5)


def _drawn_span(
    cuts: Floats, curves: Mapping[str, Floats], groups: list[int], bounds: tuple[float, float]
) -> tuple[float, float]:
    """Return the part of the axis where curves rise: declared bounds are often far wider.

    A curve has risen where its band reaches all records or nearly so, and the curve itself all but
    a few.

    >>> rising = np.array([[0.0, 0.1, 0.7, 1.0, 1.0, 1.0]])
    >>> narrow = {"share": rising, "band_lower": rising, "band_upper": rising}
    >>> _drawn_span(np.arange(1.0, 7.0), narrow, [0], (0.0, 100.0))
    (1.0, 4.0)
    >>> wide = {"share": rising, "band_lower": 0 * rising, "band_upper": 0 * rising + 1}
    >>> _drawn_span(np.arange(1.0, 7.0), wide, [0], (0.0, 100.0))
    (1.0, 4.0)
    """
    share, low, high = (curves[name][groups] for name in _DRAWN)
    started = np.flatnonzero(((low > _TAIL) | (share > _FEW)).any(axis=0))
    ended = np.flatnonzero(((high >= 1 - _TAIL) & (share >= 1 - _FEW)).all(axis=0))
    first, last = bounds
    if started.size and started[0] > 0:
        first = float(cuts[started[0] - 1])
    if ended.size:
        last = float(cuts[ended[0]])
    return (first, last) if first < last else bounds
