"""What a release publishes of those who answered, by groups."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.sensitivity.answered_space import grid_fineness, query_unit
from semidp.publish.results.cells import Columns, Form
from semidp.publish.statistics.answered import words
from semidp.publish.statistics.answered.answered_estimates import AnsweredEstimates, AnsweredSums
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.outcomes.published import (
    PublishedStatistic,
    StatisticWords,
    describe_intervals,
    interval_columns,
)
from semidp.publish.statistics.protocol.results import mechanism_fields

if TYPE_CHECKING:
    from semidp.publish.statistics.answered.request import AnsweredRequest


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedAnswers(PublishedStatistic):
    """One published statistic of those who answered, by groups.

    Parameters
    ----------
    request
        What was asked for: statistic, outcome, groups.
    estimates
        For each set of groups the numbers who answered and the statistic of those, with standard
        errors of the noise.
    columns
        The features of each set of groups; a nested one with its whole path.
    noisy
        The noisy pairs as drawn: weighted numbers who answered, set after set, then sums about the
        middle.
    intervals
        For each set the intervals of its statistic, of the noise alone.

    Examples
    --------
    >>> import semidp
    >>> records = {"ward": ["a", "a", "b"], "ok": [1, None, 0]}
    >>> asked = semidp.proportion("ok", by="ward")
    >>> release = semidp.release(records, asked, missing={"ok": "private"}, mu=1)
    >>> release.answers[0].estimates[0].counts.tolist()  # exact; who answered is not
    [2, 1]
    """

    wording: ClassVar[StatisticWords] = words
    key: ClassVar[str] = "answers"
    request: "AnsweredRequest"
    estimates: tuple[AnsweredEstimates, ...]
    columns: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    intervals: tuple[Intervals, ...]

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a CSV file for each set: levels, exact count, who answered, the statistic, its
        interval, the noise.
        """
        # One half holds the numbers who answered, the other the sums; sets follow each other in
        # both.
        answered, steps = self.noisy.reshape(2, -1)
        start = 0
        sets = []
        for names, part, intervals in zip(
            self.columns, self.estimates, self.intervals, strict=True
        ):
            end = start + len(part.groups)
            numbers = {
                "count": part.counts,
                "answered": part.answered,
                "answered_error": part.answered_errors,
                str(self.request.statistic): part.values,
                "standard_error": part.standard_errors,
                **interval_columns([intervals]),
                "noisy_answered": answered[start:end],
                "noisy_about_middle": steps[start:end],
            }
            sets.append(Columns.of_rows(names, part.groups, numbers, words.COLUMN_MEANINGS))
            start = end
        return dict(zip(self.request.files, sets, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the estimates, which are in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(query_unit(self.outcome, grid_fineness(self.outcome))),
            "intervals": describe_intervals(self.intervals[:1]),
        }


def published_answers(request: "AnsweredRequest", measured: AnsweredSums) -> PublishedAnswers:
    """Return the numbers who answered, and sums, means or proportions of those, with intervals."""
    statistic, intervals = measured.means, measured.mean_intervals
    if request.statistic == "sum":
        statistic, intervals = measured.sums, measured.sum_intervals
    level, simultaneous = request.confidence.level, request.confidence.simultaneous
    return PublishedAnswers(
        request=request,
        estimates=tuple(statistic(block) for block in request.by),
        columns=tuple(measured.columns(block) for block in request.by),
        noisy=np.asarray(measured.measurement.noisy, dtype=np.int64),
        intervals=tuple(intervals(block, level, simultaneous) for block in request.by),
        **mechanism_fields(request.name, measured.mechanism, measured.private),
    )
