"""Numbers who answered, and sums, means and proportions of those, from noisy pairs by group.

A mean is a ratio of two noisy numbers. Its interval is Fieller's (1954): of all means within the
declared bounds it keeps those that the noise in both numbers allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.answered_space import AnsweredSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.groups import ByBlocks
from semidp.publish.statistics.outcomes.noise_law import COARSE, Intervals, each_level, half_widths

Floats = NDArray[np.float64]

# from the middle of the bounds to one of them, over each of which the noise is taken at its largest
_PIECES = 64


@dataclass(frozen=True, eq=False)
class AnsweredEstimates:
    """The number who answered and one number of them for each group; NaN where there is none.

    Parameters
    ----------
    groups
        The levels of each group.
    counts
        The exact number of records of each group, whether they answered or not.
    answered, answered_errors
        The number who answered, with its standard error.
    values, standard_errors
        The sum or mean of those who answered. A mean is none where fewer than one are estimated to
        have answered.
    """

    groups: tuple[tuple[str, ...], ...]
    counts: NDArray[np.int64] = field(repr=False)
    answered: Floats = field(repr=False)
    answered_errors: Floats = field(repr=False)
    values: Floats = field(repr=False)
    standard_errors: Floats = field(repr=False)

    def rows(self) -> Iterator[tuple[tuple[str, ...], int, float, float, float, float]]:
        """Yield each group with its count, the number who answered, the estimate, and both standard
        errors.
        """
        columns = (self.answered, self.answered_errors, self.values, self.standard_errors)
        numbers = [column.tolist() for column in columns]
        yield from zip(self.groups, self.counts.tolist(), *numbers, strict=True)


@dataclass(frozen=True, eq=False)
class AnsweredSums(ByBlocks):
    """Noisy pairs (number who answered, sum of their values) by group, and what follows from them.

    Examples
    --------
    >>> import semidp
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {"ward": ["a"] * 400, "pay": [3.0, 5.0, None, 4.0] * 100}
    >>> pay = semidp.mean("pay", by="ward", bounds=(0, 10))
    >>> seeded = SeededRandomness(1)
    >>> release = semidp.release(records, pay, missing={"pay": "private"}, mu=1, randomness=seeded)
    >>> estimates = release.results[0].estimates[0]
    >>> # Of 300, and of 4
    >>> (estimates["answered"].round(1).tolist(), estimates.values.round(2).tolist())
    ([299.0], [3.97])
    """

    @property
    def space(self) -> AnsweredSpace:
        """The sensitivity space that the noise is calibrated to."""
        space = self.mechanism.space
        assert isinstance(space, AnsweredSpace)
        return space

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.space.outcome

    def sums(self, block: Margin | None = None) -> AnsweredEstimates:
        """Return the sums over those who answered: ``middle · answered + sum about the middle``."""
        number = self._number(block)
        answered, gaps = self._numbers(number)
        of_answered, of_gaps = self._deviations(number)
        # The noise in both numbers is independent.
        errors = np.hypot(self._middle * of_answered, of_gaps)
        return self._estimates(number, self._middle * answered + gaps, errors)

    def means(self, block: Margin | None = None) -> AnsweredEstimates:
        """Return the means of those who answered, cut to the bounds; NaN where fewer than one may
        have answered.

        The standard error is that of the ratio to first order,
        ``sqrt(s² + (m - middle)² r²)/answered`` with the standard errors s of the sum about the
        middle and r of the number who answered.
        """
        number = self._number(block)
        answered, gaps = self._numbers(number)
        of_answered, of_gaps = self._deviations(number)
        # A ratio to fewer than one would be noise over noise.
        divisor = np.where(answered >= 1, answered, np.nan)
        ratios = np.clip(gaps / divisor, -self._reach, self._reach)
        errors = np.hypot(of_gaps, ratios * of_answered) / divisor
        return self._estimates(number, self._middle + ratios, errors)

    def sum_intervals(self, block: Margin | None, level: Fraction, simultaneous: bool) -> Intervals:
        """Return an interval for the sum over those who answered in each group: noise alone."""
        number = self._number(block)
        estimates = self.sums(block)
        inhabited = estimates.counts > 0
        each = each_level(level, int(inhabited.sum()), self.mechanism, simultaneous)
        weights = self._weights(number, self._middle)
        (half,) = half_widths(self.mechanism, [weights], each)
        reach = np.where(inhabited, float(half), 0.0)
        return Intervals.around(estimates.groups, estimates.values, reach, level, simultaneous)

    def mean_intervals(
        self, block: Margin | None, level: Fraction, simultaneous: bool
    ) -> Intervals:
        """Return Fieller's interval for the mean of those who answered in each group, within the
        bounds.

        With the noise e in the sum about the middle and r in the number who answered, a mean
        ``middle + θ`` is kept if ``|sum - θ answered| <= h(θ)``, where
        ``P(|e - θ r| <= h(θ)) >= level``. The bounds make θ finite, so that the interval is, too. h
        grows with |θ|: over each of 128 pieces it is taken at its largest. The interval reaches
        from the first θ that is kept to the last, and is the nearest bound where none is.
        """
        number = self._number(block)
        estimates = self.means(block)
        inhabited = estimates.counts > 0
        each = each_level(level, int(inhabited.sum()), self.mechanism, simultaneous)
        answered, gaps = self._numbers(number)
        # The noise is symmetric, so that one half of the bounds says what it is on the other.
        edges = np.linspace(0.0, self._reach, _PIECES + 1)
        halves = self._halves(number, edges[1:], each)
        low, high = _find_accepted_range(answered, gaps, edges, halves)
        # A group without records has no mean, and no interval.
        middle = np.where(inhabited, self._middle, np.nan)
        low, high = middle + low, middle + high
        return Intervals(
            estimates.groups, estimates.values, low, high, level, simultaneous=simultaneous
        )

    def _halves(self, number: int, gaps: Floats, level: float) -> Floats:
        """Return h at several distances from the middle of the bounds."""
        if self.mechanism.scale > COARSE:
            weights = [self._weights(number, -gap) for gap in gaps.tolist()]
            return half_widths(self.mechanism, weights, level)
        # The law of coarse noise has atoms, and h need not grow: each error is bounded alone.
        alone = (1 + level) / 2
        of_gaps, of_answered = half_widths(self.mechanism, [*self._single(number)], alone)
        return np.asarray(of_gaps + gaps * of_answered)

    def _estimates(self, number: int, values: Floats, errors: Floats) -> AnsweredEstimates:
        counts = self.space.counts[number].ravel()
        answered, _ = self._numbers(number)
        of_answered, _ = self._deviations(number)
        groups = self.groups(self.space.blocks[number])
        return AnsweredEstimates(groups, counts, answered, of_answered, values, errors)

    @property
    def _middle(self) -> float:
        return outcome_midpoint(self.outcome)

    @property
    def _reach(self) -> float:
        return outcome_half_range(self.outcome)

    @property
    def _units(self) -> tuple[float, float]:
        return _count_and_sum_units(self.space)

    def _numbers(self, number: int) -> tuple[Floats, Floats]:
        """The noisy numbers who answered in the groups of a set, and their noisy sums about the
        middle.
        """
        part = self.space.slices[number]
        projected = np.asarray(self.measurement.projected)
        answered, gaps = projected.reshape(2, -1)[:, part]
        of_answered, of_gaps = self._units
        return answered * of_answered, gaps * of_gaps

    def _deviations(self, number: int) -> tuple[Floats, Floats]:
        return pair_deviations(self.mechanism, number)

    def _weights(self, number: int, factor: float) -> Floats:
        """The weights of the noise in ``sum about the middle + factor · answered`` of a group of
        one set.
        """
        of_gaps, of_answered = self._single(number)
        return np.concatenate([of_gaps, factor * of_answered])

    def _single(self, number: int) -> tuple[Floats, Floats]:
        """The weights of the noise in the sum about the middle of a group of one set, and in its
        number who answered.

        All groups with records have the same, but for their order.
        """
        sums = self.space.sums
        part = sums.slices[number]
        counts = self.space.counts[number]
        inhabited = np.flatnonzero(counts.ravel())
        # Several sets have one total, which takes part of the noise away.
        unit = np.zeros(sums.shape)
        unit[part.start + inhabited[:1]] = 1.0
        projected = sums.project(unit)
        weights = projected[projected != 0]
        of_answered, of_gaps = self._units
        return weights * of_gaps, weights * of_answered


def outcome_midpoint(outcome: Outcome) -> float:
    """Return the middle of the bounds of an outcome."""
    return float(outcome.lower + outcome.upper) / 2


def outcome_half_range(outcome: Outcome) -> float:
    """Return the distance of the bounds of an outcome from their middle."""
    return float(outcome.upper - outcome.lower) / 2


def pair_deviations(mechanism: Mechanism, number: int) -> tuple[Floats, Floats]:
    """Return the standard errors of the numbers who answered in the groups of a set, and of their
    sums about the middle.
    """
    space = mechanism.space
    assert isinstance(space, AnsweredSpace)
    variances = space.sums.variances()[space.slices[number]]
    deviations = np.sqrt(mechanism.variance * variances)
    of_answered, of_gaps = _count_and_sum_units(space)
    return deviations * of_answered, deviations * of_gaps


def _count_and_sum_units(space: AnsweredSpace) -> tuple[float, float]:
    """What one of the query's whole numbers is worth: in the number who answered, and in the
    sum.
    """
    return 1 / space.weight, float(space.unit)


def _find_accepted_range(
    answered: Floats, gaps: Floats, edges: Floats, halves: Floats
) -> tuple[Floats, Floats]:
    """Return the first and the last θ that is kept for each group.

    Parameters
    ----------
    answered, gaps
        For each group the noisy number who answered, and their noisy sum about the middle.
    edges
        Distances from the middle, from 0 to that of the bounds: the ends of pieces, on both sides
        of it.
    halves
        For each piece the largest h.
    """
    reach = float(edges[-1])
    nearest = np.where(gaps < 0, -reach, reach)
    low, high = np.full(len(gaps), np.inf), np.full(len(gaps), -np.inf)
    for start, end, half in zip(edges[:-1], edges[1:], halves, strict=True):
        for first, last in ((start, end), (-end, -start)):
            ends = _solve_accepted_piece(answered, gaps, float(half), float(first), float(last))
            # A piece that keeps nothing has its first end above its last.
            holds = ends[0] <= ends[1]
            low[holds] = np.minimum(low, ends[0])[holds]
            high[holds] = np.maximum(high, ends[1])[holds]
    none = low > high
    return np.where(none, nearest, low), np.where(none, nearest, high)


def _solve_accepted_piece(
    answered: Floats, gaps: Floats, half: float, first: float, last: float
) -> tuple[Floats, Floats]:
    """Return the ends of the θ in a piece with ``|gap - θ answered| <= half``."""
    divisor = np.where(answered == 0, np.nan, answered)
    one = (gaps - half) / divisor
    other = (gaps + half) / divisor
    # A negative number who answered turns the ends around.
    low = np.maximum(np.fmin(one, other), first)
    high = np.minimum(np.fmax(one, other), last)
    # Nobody answered by the noisy number: all of the piece or nothing of it is kept.
    flat = answered == 0
    inside = np.abs(gaps) <= half
    low = np.where(flat, np.where(inside, first, last), low)
    high = np.where(flat, np.where(inside, last, first), high)
    return low, high
