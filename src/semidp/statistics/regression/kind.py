"""Regressions, as the registry finds them."""

from semidp.statistics.protocol import Kind
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.regression.request import RegressionRequest
from semidp.statistics.regression.space import recorded_moments

KIND = Kind(
    place=20,
    key="regression",
    asked=(RegressionRequest,),
    queries={"moments": recorded_moments},
    results={PublishedRegression.key: PublishedRegression.from_json},
    always_listed=(PublishedRegression.key,),
)
