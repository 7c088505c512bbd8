"""TODO."""

from semidp.statistics.quantiles.request import QuantileRequest
from semidp.statistics.regression.request import RegressionRequest
from semidp.statistics.sums.request import GroupRequest
from semidp.statistics.tables.request import TableRequest

KINDS: dict[str, type[TableRequest] | type[GroupRequest] | type[RegressionRequest] | type[QuantileRequest]] = {
    kind.key: kind for kind in (TableRequest, GroupRequest, RegressionRequest, QuantileRequest)
}
"""What a plan may ask for, by the key of its list in a plan file."""
