"""Quantiles, as the registry finds them."""

from semidp.statistics.protocol import Kind
from semidp.statistics.quantiles.mechanism import EXPONENTIAL
from semidp.statistics.quantiles.published import PublishedQuantiles
from semidp.statistics.quantiles.ranks import recorded_ranks
from semidp.statistics.quantiles.request import QuantileRequest

KIND = Kind(
    place=30,
    key="quantile",
    asked=(QuantileRequest,),
    queries={"quantiles": recorded_ranks},
    laws=tuple(EXPONENTIAL),
    results={PublishedQuantiles.key: PublishedQuantiles.from_json},
)
