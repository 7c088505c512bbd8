"""The request for sums, means or proportions of those who answered, where who answered is
private.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.core.exact import plain
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Margin
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError
from semidp.mechanisms.mechanism import Measurement, Mechanism
from semidp.mechanisms.selection import AUTO
from semidp.queries.query_space import QuerySpace
from semidp.sources.contract import Outcome
from semidp.sources.reader import Reader
from semidp.sources.readings import ANSWERED_AS_ONE, EQUAL_OR_MISSING, MISSING_AS, answered_column
from semidp.statistics.answered.answered_estimates import AnsweredSums
from semidp.statistics.answered.answered_space import AnsweredSpace, answered_space
from semidp.statistics.answered.published import PublishedAnswers, published_answers
from semidp.statistics.outcomes.forecast import SumsForecast, sums_line
from semidp.statistics.outcomes.intervals import Confidence
from semidp.statistics.outcomes.request import (
    GroupedRequest,
    Statistic,
    checked_confidence,
    checked_outcome,
    group_margins,
    proportion_of,
    statistic_from,
)
from semidp.statistics.protocol import Forecast, checked_budget, file_name, mechanism_name


def _answered_name(request: "AnsweredRequest") -> str:
    return f"{request.statistic}-{request.outcome.column}"


@frozen
class AnsweredRequest(GroupedRequest):
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
    >>> request = AnsweredRequest(
    ...     "mean", Outcome("pay", 5, 105, steps=100), [["ward"]], Budget.gdp(1)
    ... )
    >>> request.name, request.needed_readings
    ('mean-pay', {'pay': 'missing as 5', 'pay answered': 'answered as 1'})
    """

    key: ClassVar[str] = "answered"
    _written: ClassVar[tuple[str, ...]] = (
        "name",
        "statistic",
        "outcome",
        "by",
        "budget",
        "mechanism",
        "confidence",
    )

    statistic: Statistic = field(converter=statistic_from)
    outcome: Outcome = field(converter=checked_outcome)
    by: tuple[Margin, ...] = field(converter=group_margins)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_answered_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=checked_confidence)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a statistic of groups needs", f"{self.statistic} in them is")
        if self.binary and self.outcome != proportion_of(self.outcome.column):
            raise InputError(
                "a proportion is that of ones among zeros and ones: leave bounds and grid out"
            )
        if self.confidence.sampling or self.confidence.differences:
            raise InputError(
                f"where it is private who answered, intervals are for the {self.statistic} of"
                f" {self.outcome.column} of these records: leave sampling and differences out, or"
                " publish exactly how many answered"
            )

    @property
    def binary(self) -> bool:
        """Whether the outcome is zeros and ones: of a proportion."""
        return self.statistic is Statistic.proportion

    @classmethod
    def _asks_binary(cls, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of a plan asks for a proportion."""
        return statistic_from(entry.get("statistic", Statistic.mean)) is Statistic.proportion

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        return {"statistic": Statistic.mean, **super()._fields(value)}

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The column of the outcome, and that of who answered."""
        return (self.outcome.column, self._answered.column)

    @property
    def needed_readings(self) -> dict[str, str]:
        """How both columns are read: the lower bound stands for a missing value, and adds
        nothing.
        """
        column = self.outcome.column
        how = EQUAL_OR_MISSING if "=" in column else f"{MISSING_AS}{plain(self.outcome.lower)}"
        return {column: how, self._answered.column: ANSWERED_AS_ONE}

    @property
    def _answered(self) -> Outcome:
        """Who answered, as zeros and ones."""
        return proportion_of(answered_column(self.outcome.column))

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups."""
        return tuple(f"{stem}.csv" for stem in self._stems)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the pairs by group; refuse groups whose counts are not published."""
        public = scope.dataspace.about(self.counted)
        return answered_space(public, scope.adjacency, self.outcome, self.by, self.budget)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the noise in the sums behind it."""
        return (SumsForecast.of(self.name, self.features, mechanism),)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise the sums behind it would be measured."""
        return [sums_line(self.name, mechanism)]

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential pairs, set after set."""
        assert isinstance(space, AnsweredSpace)
        if self.binary:
            reader.check_binary(self.outcome.column)
        answered = [reader.sums(group.names, self._answered).ravel() for group in self.by]
        steps = [reader.sums(group.names, self.outcome).ravel() for group in self.by]
        return space.pairs(np.concatenate(answered), np.concatenate(steps))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedAnswers:
        """Return the numbers who answered, and the statistic of those with its intervals."""
        return published_answers(self, AnsweredSums(mechanism, measured))
