"""The request for sums, means or proportions of a private outcome by groups."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

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
from semidp.statistics.outcomes.forecast import SumsForecast, sums_line
from semidp.statistics.outcomes.group_sums import GroupSums
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
from semidp.statistics.outcomes.spaces import sum_space
from semidp.statistics.protocol import Forecast, checked_budget, file_name, mechanism_name
from semidp.statistics.sums.published import PublishedGroups, published_groups


def _statistic_name(request: "GroupRequest") -> str:
    return f"{request.statistic}-{request.outcome.column}"


@frozen
class GroupRequest(GroupedRequest):
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

    Examples
    --------
    >>> GroupRequest(
    ...     Statistic.mean, Outcome("score", 0, 100, steps=100), [["school"]], Budget.gdp(1)
    ... ).name
    'mean-score'
    """

    key: ClassVar[str] = "group"
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
    name: str = field(default=Factory(_statistic_name, takes_self=True), converter=file_name)
    confidence: Confidence = field(default=Confidence(), converter=checked_confidence)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a statistic of groups needs", f"{self.statistic} in them is")
        # Other bounds would make a mean of clipped numbers pass for a share of ones.
        if self.binary and self.outcome != proportion_of(self.outcome.column):
            raise InputError(
                "a proportion is that of ones among zeros and ones: leave bounds and grid out"
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
        # A plan file may leave the statistic out, which then is the mean.
        return {"statistic": Statistic.mean, **super()._fields(value)}

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: one for each set of groups, and one each for differences if
        asked for.
        """
        more = (
            [f"{stem}-differences.csv" for stem in self._stems]
            if self.confidence.differences
            else []
        )
        return (*(f"{stem}.csv" for stem in self._stems), *more)

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by group; refuse groups whose counts are not published."""
        return sum_space(
            scope.dataspace.about(self.counted), scope.adjacency, self.outcome, self.by
        )

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the noise in the sums behind it."""
        return (SumsForecast.of(self.name, self.features, mechanism),)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise the sums behind it would be measured."""
        return [sums_line(self.name, mechanism)]

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums, set after set, in steps of the grid."""
        # Clipping would turn any other number into 0 or 1 without a word.
        if self.binary:
            reader.check_binary(self.outcome.column)
        return np.concatenate([reader.sums(group.names, self.outcome).ravel() for group in self.by])

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedGroups:
        """Return sums, or means and proportions over exact counts, with their intervals."""
        return published_groups(self, GroupSums(mechanism, measured))
