"""Distributions, as the registry finds them."""

from semidp.statistics.distribution.distribution_space import recorded_distribution
from semidp.statistics.distribution.published import PublishedDistribution
from semidp.statistics.distribution.request import DistributionRequest
from semidp.statistics.protocol import Kind

KIND = Kind(
    place=35,
    key="distribution",
    asked=(DistributionRequest,),
    queries={"distribution": recorded_distribution},
    results={PublishedDistribution.key: PublishedDistribution.from_json},
)
