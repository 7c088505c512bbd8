"""From a plan to a release.

`pipeline` is the page to read first. `plan` says what to publish, `survey` reads what is public,
`budgets` and `resources` prepare, `release_value` holds what comes out. `rechecking`,
`side_information` and `signing` are asked of it later; `parts` carries out a release part by part.
"""

from semidp.promise.sensitivity.designs import Coding, Column, Design
from semidp.promise.sensitivity.moments import MomentSpace, moment_space
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.spaces.outcome_adjacency import outcome_adjacency
from semidp.publish.statistics.answered.answered_estimates import AnsweredEstimates, AnsweredSums
from semidp.publish.statistics.answered.published import PublishedAnswers
from semidp.publish.statistics.answered.request import AnsweredRequest
from semidp.publish.statistics.distribution.distribution_estimates import GroupDistributions
from semidp.publish.statistics.distribution.published import PublishedDistribution
from semidp.publish.statistics.distribution.request import DistributionRequest
from semidp.publish.statistics.odds_ratio.hypergeometric import Strata
from semidp.publish.statistics.odds_ratio.measured_ratio import planned_test
from semidp.publish.statistics.odds_ratio.power_analysis import PowerCurves
from semidp.publish.statistics.odds_ratio.published import PublishedOddsRatio
from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Interval, TwoSidedTest
from semidp.publish.statistics.outcomes.comparison import Comparison
from semidp.publish.statistics.outcomes.confidence import LEVEL, About, Confidence, Intervals
from semidp.publish.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.publish.statistics.outcomes.spread import Spread, SquareSums
from semidp.publish.statistics.quantiles.quantile_estimates import MEDIAN, GroupQuantiles
from semidp.publish.statistics.regression.linear import LinearFit, Moments, regression_mechanism
from semidp.publish.statistics.regression.logistic import LogisticFit
from semidp.publish.statistics.regression.routes import route_values

__all__ = [
    "LEVEL",
    "MEDIAN",
    "About",
    "Alternative",
    "AnsweredEstimates",
    "AnsweredRequest",
    "AnsweredSums",
    "Coding",
    "Column",
    "Comparison",
    "Confidence",
    "Design",
    "DistributionRequest",
    "Estimates",
    "GroupDistributions",
    "GroupQuantiles",
    "GroupSums",
    "Interval",
    "Intervals",
    "LinearFit",
    "LogisticFit",
    "MomentSpace",
    "Moments",
    "OddsRatioRequest",
    "PowerCurves",
    "PublishedAnswers",
    "PublishedDistribution",
    "PublishedOddsRatio",
    "Spread",
    "SquareSums",
    "Strata",
    "SumSpace",
    "TwoSidedTest",
    "moment_space",
    "outcome_adjacency",
    "planned_test",
    "regression_mechanism",
    "route_values",
    "sum_space",
]
