"""Regressions, as the registry finds them."""

from semidp.statistics.protocol import Kind
from semidp.statistics.regression.request import RegressionRequest
from semidp.statistics.regression.space import recorded_moments

KIND = Kind(place=20, key="regression", asked=(RegressionRequest,), queries={"moments": recorded_moments})
