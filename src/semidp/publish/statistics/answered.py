"""Statistics of those who answered, if who answered is private: results, requests, and their entry
in the registry.

The number who answered in a group and the sum of their values are measured together.
"""

from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome, answered_column
from semidp.promise.sensitivity.answered_space import (
    AnsweredSpace,
    answered_space,
    grid_fineness,
    query_unit,
)
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
)
from semidp.publish.results.texts import error_text, scale_text
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.sources.readings import ANSWERED_AS_ONE, EQUAL_OR_MISSING, MISSING_AS
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS_CAPTION,
    STATISTIC_MEANINGS,
    ByBlocks,
    added_up_text,
    count_column,
    describe_intervals,
    drawn_bounds,
    faint_estimates,
    faint_reason,
    grid_fact,
    groups_text,
    interval_columns,
    interval_paragraphs,
    statistic_text,
)
from semidp.publish.statistics.outcomes.noise_law import COARSE, Intervals, each_level, half_widths
from semidp.publish.statistics.outcomes.request import StatisticRequest, binary_outcome
from semidp.publish.statistics.protocol.requests import Forecast, Request
from semidp.publish.statistics.protocol.statistic import (
    Kind,
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

Floats = NDArray[np.float64]

# from the middle of the bounds to one of them, over each of which the noise is taken at its largest
_PIECES = 64


@frozen(eq=False)
class AnsweredEstimates:
    """The number who answered and one number of them for each group; NaN if there is none.

    Parameters
    ----------
    groups
        The levels of each group.
    counts
        The exact number of records of each group, whether they answered or not.
    answered, answered_errors
        The number who answered, with its standard error.
    values, standard_errors
        The sum or mean of those who answered. There is no mean if fewer than one are estimated to
        have answered.
    """

    groups: tuple[tuple[str, ...], ...]
    counts: NDArray[np.int64] = field(repr=False)
    answered: Floats = field(repr=False)
    answered_errors: Floats = field(repr=False)
    values: Floats = field(repr=False)
    standard_errors: Floats = field(repr=False)


@frozen(eq=False)
class AnsweredSums(ByBlocks):
    """Noisy pairs (number who answered, sum of their values) by group, and estimates from them.

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
        """Return an interval for the sum over those who answered in each group: noise alone, and
        rounding to the grid in each of the records.
        """
        number = self._number(block)
        estimates = self.sums(block)
        inhabited = estimates.counts > 0
        each = each_level(level, int(inhabited.sum()), self.mechanism, simultaneous)
        weights = self._weights(number, self._middle)
        (half,) = half_widths(self.mechanism, [weights], each)
        rounding = estimates.counts * float(self.outcome.rounding)
        reach = np.where(inhabited, float(half) + rounding, 0.0)
        return Intervals.around(estimates.groups, estimates.values, reach, level, simultaneous)

    def mean_intervals(
        self, block: Margin | None, level: Fraction, simultaneous: bool
    ) -> Intervals:
        """Return Fieller's interval for the mean of those who answered in each group, within the
        bounds.

        With the noise e in the sum about the middle and r in the number who answered, a mean
        ``middle + θ`` is kept if ``|sum - θ answered| <= h(θ)``, where
        ``P(|e - θ r| <= h(θ)) >= level``. The bounds make θ finite, so the interval is, too. h
        grows with |θ|: over each of 128 pieces it is taken at its largest. The interval reaches
        from the first θ that is kept to the last, and is the nearest bound where none is. It is
        widened by rounding to the grid.
        """
        number = self._number(block)
        estimates = self.means(block)
        inhabited = estimates.counts > 0
        each = each_level(level, int(inhabited.sum()), self.mechanism, simultaneous)
        answered, gaps = self._numbers(number)
        # The noise is symmetric, so one half of the bounds says what it is on the other.
        edges = np.linspace(0.0, self._reach, _PIECES + 1)
        halves = self._halves(number, edges[1:], each)
        low, high = _find_accepted_range(answered, gaps, edges, halves)
        # A group without records has no mean, and no interval.
        middle = np.where(inhabited, self._middle, np.nan)
        rounding = float(self.outcome.rounding)
        low = middle + np.maximum(low - rounding, -self._reach)
        high = middle + np.minimum(high + rounding, self._reach)
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


def publish_answers(request: "AnsweredRequest", found: AnsweredSums) -> PublishedStatistic:
    """Return the numbers who answered, and sums, means or proportions of those, with intervals."""
    statistic, every = found.means, found.mean_intervals
    if request.statistic == "sum":
        statistic, every = found.sums, found.sum_intervals
    level, simultaneous = request.confidence.level, request.confidence.simultaneous
    unit = float(query_unit(request.outcome, grid_fineness(request.outcome)))
    scale = f"scale {scale_text(found.mechanism.scale * unit)}"
    sheets, intervals = [], []
    for number, block in enumerate(request.by):
        intervals.append(every(block, level, simultaneous))
        sheets.append(_sheet(request, found, number, statistic(block), intervals[-1]))
    groups = groups_text(request.by)
    sentences = Sentences(
        title=f"{statistic_text(request)} {groups}, of those who answered, and how many did",
        noise=f"{scale} in each sum",
        paragraphs=_paragraphs(request, found, scale, intervals[0]),
        further=grid_fact(request.outcome),
        faint=faint_reason(request),
    )
    facts = {
        "files": list(request.files),
        "unit": unit,
        "intervals": describe_intervals(intervals[:1]),
    }
    return publish_statistic(request, found, sentences, sheets, facts)


def _sheet(
    request: "AnsweredRequest",
    found: AnsweredSums,
    number: int,
    estimates: AnsweredEstimates,
    intervals: Intervals,
) -> Sheet:
    """The file of one set of groups."""
    name = str(request.statistic)
    part = found.space.slices[number]
    noisy = np.asarray(found.measurement.noisy, dtype=np.int64).reshape(2, -1)[:, part]
    values, errors = estimates.values, estimates.standard_errors
    # Where there is no mean at all, noise dominates, too.
    faint = faint_estimates(request, values, errors) | ~np.isfinite(values)
    what = f"{statistic_text(request)} {groups_text(request.by[number : number + 1])}"
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(request.by[number]), estimates.groups),
            count_column(request, estimates.counts),
            RoleColumn(
                "answered",
                Role.base,
                estimates.answered,
                "the estimated number of records with a value",
            ),
            RoleColumn(
                "answered_error",
                Role.error,
                estimates.answered_errors,
                "the standard error of that number, from the noise alone",
            ),
            *estimate_columns(name, values, errors, STATISTIC_MEANINGS[name]),
            *interval_columns([intervals]),
            RoleColumn(
                "noisy_answered",
                Role.noisy,
                noisy[0],
                "the weighted number of records with a value, as drawn",
            ),
            RoleColumn(
                "noisy_about_middle",
                Role.noisy,
                noisy[1],
                "the noisy sum as drawn, in parts of a step above the middle of the bounds",
            ),
        ),
        words=f"the {what} of those who answered, and how many did, one row a group",
        heading=f"Published {what}, of those who answered",
        faint=faint & (estimates.counts > 0),
        axis=statistic_text(request),
        bounds=drawn_bounds(request),
        caption=BOUNDS_CAPTION,
    )


def _paragraphs(
    request: "AnsweredRequest", found: AnsweredSums, scale: str, intervals: Intervals
) -> tuple[str, ...]:
    """Say how the statistic was made, and what its intervals are about."""
    is_sum = request.statistic == "sum"
    divided = "" if is_sum else " The sum was divided by the number who answered."
    # The column of ok=Y is ok.
    source = request.outcome.column.partition("=")[0]
    paragraphs = [
        f"Records without a value of {source} did not answer. How many answered in a group is"
        " protected like their values: both were measured together, and both are estimates.",
        f"{added_up_text(request)} The sums were measured with the {found.mechanism.name} mechanism"
        f" ({scale}).{divided} The standard errors are those of the noise alone; two of them to"
        " each side are drawn.",
        *interval_paragraphs([intervals]),
    ]
    if not is_sum:
        paragraphs.append(
            "The intervals allow for the noise in the sum and in the number who answered (Fieller);"
            " they need not lie evenly about the estimate. Where fewer than one are estimated to"
            " have answered, there is no estimate."
        )
    return tuple(paragraphs)


@frozen
class AnsweredRequest(StatisticRequest):
    """Sums, means or proportions of those who answered, by groups of exact size; who answered stays
    private.

    Parameters
    ----------
    statistic, outcome, by, budget, mechanism, name
        As for a `GroupRequest`; records without a value of the outcome did not answer.
    confidence
        The level of the intervals next to the estimates. Populations and differences of groups are
        refused.

    Examples
    --------
    >>> import semidp
    >>> pay = semidp.Outcome("pay", 5, 105, steps=100)
    >>> request = AnsweredRequest("mean", pay, [["ward"]], semidp.Budget.gdp(1))
    >>> request.name, request.needed_readings
    ('mean-pay', {'pay': 'missing as 5', 'pay answered': 'answered as 1'})
    """

    key: ClassVar[str] = "answered"
    list_key: ClassVar[str] = "answers"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.confidence.sampling or self.confidence.differences:
            raise InputError(
                f"where it is private who answered, intervals are for the {self.statistic} of"
                f" {self.outcome.column} of these records: leave sampling and differences out, or"
                " publish exactly how many answered"
            )

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The column of the outcome, and that of who answered."""
        return (self.outcome.column, self._answered_indicator.column)

    @property
    def needed_readings(self) -> dict[str, str]:
        """How both columns are read: the lower bound stands for a missing value, and adds
        nothing.
        """
        column = self.outcome.column
        how = EQUAL_OR_MISSING if "=" in column else f"{MISSING_AS}{plain(self.outcome.lower)}"
        return {
            **super().needed_readings,
            column: how,
            self._answered_indicator.column: ANSWERED_AS_ONE,
        }

    @property
    def _answered_indicator(self) -> Outcome:
        """Who answered, as zeros and ones."""
        return binary_outcome(answered_column(self.outcome.column))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the pairs by group; refuse groups whose counts are not published."""
        public = scope.dataspace.for_kind(self.counted)
        return answered_space(public, scope.adjacency, self.outcome, self.by, self.budget)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Forecast the errors of the numbers who answered, and of their statistics.

        The number who answered is private, so errors of means are forecast for groups in which
        all answer; if one in k does, they are k times that.
        """
        space = mechanism.space
        assert isinstance(space, AnsweredSpace)
        of_groups, of_answered = [], []
        for number, counts in enumerate(space.counts):
            sizes = counts.ravel()
            answers, gaps = pair_deviations(mechanism, number)
            if self.statistic == "sum":
                errors = np.hypot(outcome_midpoint(space.outcome) * answers, gaps)
            else:
                # The mean is at a bound where the noise in the number who answered matters most.
                worst = np.hypot(gaps, outcome_half_range(space.outcome) * answers)
                errors = worst / np.maximum(sizes, 1)
            of_groups.append(errors[sizes > 0])
            of_answered.append(answers[sizes > 0])
        largest = float(np.concatenate(of_answered).max(initial=0.0))
        all_answer = ", where all answer (twice that where half do)"
        return self._forecast_errors(
            np.concatenate(of_groups),
            {"standard_error_of_answered": largest},
            f"{'' if self.statistic == 'sum' else all_answer}; of the number who answered"
            f" {error_text(largest)}",
        )

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential pairs, set after set."""
        assert isinstance(space, AnsweredSpace)
        if self.binary:
            reader.check_binary(self.outcome.column)
        answered = [reader.sums(group.names, self._answered_indicator).ravel() for group in self.by]
        steps = [reader.sums(group.names, self.outcome).ravel() for group in self.by]
        return conceal(self.name, space.pairs(np.concatenate(answered), np.concatenate(steps)))

    def order_noisy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers who answered of all sets, then the sums."""
        return rows.T.ravel()

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the numbers who answered, and the statistic of those with its intervals."""
        return publish_answers(self, AnsweredSums(mechanism, measured))


def of_answers(request: Request) -> AnsweredRequest | None:
    """Return a statistic of groups restricted to those who answered; None for other requests."""
    if not isinstance(request, StatisticRequest) or isinstance(request, AnsweredRequest):
        return None
    return AnsweredRequest(
        request.statistic,
        request.outcome,
        request.by,
        request.budget,
        request.mechanism,
        request.name,
        request.confidence,
    )


KIND = Kind(
    place=15,
    key="answered",
    asked=(AnsweredRequest,),
    of_answers=of_answers,
)
