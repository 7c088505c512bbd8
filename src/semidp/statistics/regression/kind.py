"""Regressions, as the registry finds them."""

from semidp.statistics.protocol import Kind
from semidp.statistics.regression.moments import recorded_moments
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.regression.request import RegressionRequest

KIND = Kind(
    place=20,
    key="regression",
    asked=(RegressionRequest,),
    queries={"moments": recorded_moments},
    results={PublishedRegression.key: PublishedRegression.from_json},
    always_listed=(PublishedRegression.key,),
)
