"""From a plan to a release.

Read `pipeline` first. `plan` says what to publish, `survey` reads the public facts, `plan_changes`
and `resources` prepare, `release_value` holds the outcome. `recheck`, `side_information` and
`signing` work on a finished release; `block_run` runs a release part by part, and `runners` holds
the work of one part and where it runs.
"""

from semidp.publish import plotting as style
from semidp.publish.fitting.tables import fit_table
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.selection import available, calibrate_mechanism, choose, outcome_mechanism
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.measured_ratio import (
    planned_test,
    power,
    power_curves,
    sample_size,
)
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Strata, TwoByTwo, UmpuTest
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.regression.designs import Coding, Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    Moments,
    regression_mechanism,
    route_values,
)
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.request import TablesRequest

__all__ = [
    "Alternative",
    "Coding",
    "Design",
    "DistributionRequest",
    "GroupRequest",
    "GroupSums",
    "LinearFit",
    "Moments",
    "OddsRatioRequest",
    "QuantileRequest",
    "RegressionRequest",
    "ResidualMechanism",
    "Strata",
    "TableRequest",
    "TablesRequest",
    "TwoByTwo",
    "UmpuTest",
    "available",
    "calibrate_mechanism",
    "choose",
    "fit_table",
    "outcome_mechanism",
    "planned_test",
    "power",
    "power_curves",
    "regression_mechanism",
    "route_values",
    "sample_size",
    "style",
]
