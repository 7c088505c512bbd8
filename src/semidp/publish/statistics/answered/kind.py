"""Statistics of those who answered, where who did is private: what is published, what is asked for,
and how the registry finds them.
"""

from typing import ClassVar

import numpy as np
from attrs import frozen
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
from semidp.publish.statistics.answered.answered_estimates import (
    AnsweredEstimates,
    AnsweredSums,
    outcome_half_range,
    outcome_midpoint,
    pair_deviations,
)
from semidp.publish.statistics.outcomes.noise_law import Intervals
from semidp.publish.statistics.outcomes.request import StatisticRequest, binary_outcome
from semidp.publish.statistics.outcomes.words import (
    BOUNDS_CAPTION,
    STATISTIC_MEANINGS,
    added_up_text,
    count_column,
    describe_intervals,
    drawn_bounds,
    faint_estimates,
    faint_reason,
    grid_fact,
    interval_columns,
    interval_paragraphs,
    set_text,
    statistic_text,
)
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.protocol.requests import Forecast, Request
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)


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
    sets = ", ".join(map(set_text, request.by))
    sentences = Sentences(
        title=f"{statistic_text(request)} by {sets}, of those who answered, and how many did",
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
    what = f"{statistic_text(request)} by {set_text(request.by[number])}"
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
        The level of the intervals beside the estimates. Populations and differences of groups are
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

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        return tuple(f"{stem}.csv" for stem in self.file_stems)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the pairs by group; refuse groups whose counts are not published."""
        public = scope.dataspace.for_kind(self.counted)
        return answered_space(public, scope.adjacency, self.outcome, self.by, self.budget)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return how far off the numbers who answered, and what is published of them, would be.

        The number who answered is private, so that errors of means are foretold for groups that all
        answer; where one in k do, they are k times that.
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
    """Return a statistic of groups as one of those who answered; None for other requests."""
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
