"""The request for a level total."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.role_columns import Sheet, estimate_columns, noisy_column
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.protocol.requests import (
    OwnBudget,
    RequestMeasurement,
    checked_budget,
    file_name,
    mechanism_name,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)
from tests.toy.level_totals.space import LevelTotalSpace


def _name(request: "LevelTotalRequest") -> str:
    return f"total-{request.feature}"


@frozen
class LevelTotalRequest(OwnBudget):
    """The sum over all records of the place of their level of a feature: 0 for the first level."""

    key: ClassVar[str] = "level_total"
    list_key: ClassVar[str] = "level_totals"
    _needs: ClassVar[Mapping[str, str]] = {"feature": '"…"'}

    feature: str
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_name, takes_self=True), converter=file_name)

    @property
    def features(self) -> tuple[str, ...]:
        """The feature whose levels are summed."""
        return (self.feature,)

    def space(self, scope: Scope) -> QuerySpace:
        """Return how far the total can move."""
        return LevelTotalSpace(scope.dataspace, scope.adjacency, self.feature)

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential total."""
        counts = reader.table([self.feature]).counts
        return conceal(self.name, np.array([int((counts * np.arange(counts.size)).sum())]))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the total with its standard error, and the measurement as drawn."""
        title = f"level total of {self.feature}"
        meaning = "the sum of the places of all records' levels"
        columns = (
            *estimate_columns("total", measured.projected, mechanism.standard_errors(), meaning),
            noisy_column("noisy", measured.noisy),
        )
        sheet = Sheet(
            name=self.name, role_columns=columns, heading=f"Published {title}", row="number"
        )
        return publish_statistic(
            self, RequestMeasurement(mechanism, measured), Sentences(title), [sheet]
        )
