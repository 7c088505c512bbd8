"""Sums, means and proportions, as the registry finds them."""

from semidp.statistics.outcomes.spaces import recorded_sums
from semidp.statistics.protocol import Kind
from semidp.statistics.sums.published import PublishedGroups
from semidp.statistics.sums.request import GroupRequest

KIND = Kind(
    place=10,
    key="group",
    asked=(GroupRequest,),
    queries={"sums": recorded_sums},
    results={PublishedGroups.key: PublishedGroups.from_json},
    always_listed=(PublishedGroups.key,),
)
