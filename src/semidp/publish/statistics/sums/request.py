"""The request for sums, means or proportions of a private outcome by groups."""

from typing import ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.outcome_spaces import SumSpace, measured_rows, sum_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.outcomes.request import StatisticRequest, optional_text
from semidp.publish.statistics.protocol.requests import Forecast
from semidp.publish.statistics.protocol.statistic import PublishedStatistic
from semidp.publish.statistics.sums.published import publish_groups


@frozen
class GroupRequest(StatisticRequest):
    """Sums, means or proportions of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    statistic
        What is published.
    outcome
        The private column, its declared bounds and its grid; zeros and ones in one step for a
        proportion.
    by
        The groups, each a set of features; several sets are measured together. An invariant must
        publish the counts of each.
    budget, mechanism, name
        As for a table. The name is that of the statistic and the column unless given.
    confidence
        The intervals beside the estimates.
    answered
        The feature of every set of groups that says who has a value of the outcome; what is
        published is of those alone. Everybody has one if left out.

    Examples
    --------
    >>> import semidp
    >>> score = semidp.Outcome("score", 0, 100, steps=100)
    >>> GroupRequest("mean", score, [["school"]], semidp.Budget.gdp(1)).name
    'mean-score'
    """

    key: ClassVar[str] = "group"
    list_key: ClassVar[str] = "groups"
    _written: ClassVar[tuple[str, ...]] = (*StatisticRequest._written, "answered")

    answered: str | None = field(default=None, converter=optional_text)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups, and one each for differences if
        asked for.
        """
        more = (
            [f"{stem}-differences.csv" for stem in self.file_stems]
            if self.confidence.differences
            else []
        )
        return (*(f"{stem}.csv" for stem in self.file_stems), *more)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by group; refuse groups whose counts are not published."""
        public = scope.dataspace.for_kind(self.counted)
        return sum_space(public, scope.adjacency, self.outcome, self.by, self.answered)

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential sums, set after set, in steps of the grid."""
        # Clipping would turn any other number into 0 or 1 without a word.
        if self.binary:
            reader.check_binary(self.outcome.column)
        assert isinstance(space, SumSpace)
        parts = []
        for group in self.by:
            sums = reader.sums(group.names, self.outcome).ravel()
            parts.append(measured_rows(space, group, sums))
        return conceal(self.name, np.concatenate(parts))

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return how far off its groups would be. Their sizes are exact, so that the error of a
        mean is known beforehand: that of its sum over the size.
        """
        space = mechanism.space
        assert isinstance(space, SumSpace)
        sizes = np.concatenate([counts.ravel() for counts in space.counts])
        # Sets of groups have one total, so that each has less noise than was drawn.
        steps = np.sqrt(mechanism.variance * space.variances())
        of_sums = steps[sizes > 0] * float(space.unit)
        divisors = 1 if self.statistic == "sum" else sizes[sizes > 0]
        largest = float(of_sums.max(initial=0.0))
        return self._forecast_errors(of_sums / divisors, {"standard_error_of_sums": largest})

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return sums, or means and proportions over exact counts, with their intervals."""
        return publish_groups(self, GroupSums(mechanism, measured))
