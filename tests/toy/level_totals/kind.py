"""Level totals, as the registry finds them."""

from semidp.statistics.protocol import Kind
from tests.toy.level_totals.published import LevelTotal
from tests.toy.level_totals.request import LevelTotalRequest
from tests.toy.level_totals.space import recorded_total

KIND = Kind(
    place=90,
    key="level_total",
    asked=(LevelTotalRequest,),
    queries={"level total": recorded_total},
    results={LevelTotal.key: LevelTotal.from_json},
)
