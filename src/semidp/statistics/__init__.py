"""Statistics: what can be asked for, measured and published, one folder each.

`protocol` says what the rest of semidp knows of a statistic, and `registry` finds one by its
recorded kind: a folder with a ``kind.py`` is a statistic, and nothing else lists it. A small one to
copy is in ``tests/toy``. The results that a user holds are named here.
"""

from semidp.core.spaces.outcome_adjacency import outcome_adjacency
from semidp.statistics.answered.answered_estimates import AnsweredEstimates, AnsweredSums
from semidp.statistics.answered.published import PublishedAnswers
from semidp.statistics.answered.request import AnsweredRequest
from semidp.statistics.distribution.distribution_estimates import GroupDistributions
from semidp.statistics.distribution.published import PublishedDistribution
from semidp.statistics.distribution.request import DistributionRequest
from semidp.statistics.odds_ratio.hypergeometric import Strata
from semidp.statistics.odds_ratio.measured_ratio import planned_test
from semidp.statistics.odds_ratio.power_analysis import PowerCurves
from semidp.statistics.odds_ratio.published import PublishedOddsRatio
from semidp.statistics.odds_ratio.request import OddsRatioRequest
from semidp.statistics.odds_ratio.umpu import Alternative, Interval, TwoSidedTest
from semidp.statistics.outcomes.comparison import Comparison
from semidp.statistics.outcomes.confidence import LEVEL, About, Confidence, Intervals
from semidp.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.statistics.outcomes.spaces import SumSpace, sum_space
from semidp.statistics.outcomes.spread import Spread, SquareSums
from semidp.statistics.quantiles.quantile_estimates import MEDIAN, GroupQuantiles
from semidp.statistics.regression.designs import Coding, Column, Design
from semidp.statistics.regression.linear import LinearFit, Moments, regression_mechanism
from semidp.statistics.regression.logistic import LogisticFit
from semidp.statistics.regression.moments import MomentSpace, moment_space
from semidp.statistics.regression.routes import route_values

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
