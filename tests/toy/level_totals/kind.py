"""Level totals, as the registry finds them."""

from typing import Any

from semidp.promise.accounting.recorded_queries import QUERIES, RecordedQuery
from semidp.publish.statistics.protocol.statistic import Chosen, Kind, Panel, Setting, Shape
from tests.toy.level_totals.request import LevelTotalRequest
from tests.toy.level_totals.space import recorded_total

ASKING = Setting(
    "level_total",
    "A feature: the sum of the places of its levels.",
    Shape.columns,
    "FEATURE",
    Panel.publish,
    label="Level total",
)


def _asked(chosen: Chosen) -> list[LevelTotalRequest]:
    return [LevelTotalRequest(feature) for feature in chosen[ASKING]]


def _shown(request: LevelTotalRequest) -> list[tuple[dict[str, Any], LevelTotalRequest]]:
    return [({ASKING.name: (request.feature,)}, request.with_budget(None))]


QUERIES.setdefault("level total", RecordedQuery(recorded_total))
KIND = Kind(
    place=90,
    key="level_total",
    asked=(LevelTotalRequest,),
    settings=(ASKING,),
    ask=_asked,
    shown=_shown,
)
