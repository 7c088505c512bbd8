"""Questions to a release, at no cost in privacy: tests, intervals, models, synthetic records.

`Release.test`, `Release.interval`, `Release.intervals` and `Release.records` ask them; the values
that they return are named here. The chains of a posterior, and when they have mixed, are in
`markov`.
"""

from semidp.inference.answers import Covers, IntervalEstimate, TableIntervals, sampled_rate
from semidp.inference.area_sums import AreaRow, area_intervals, read_area_rows, sum_intervals
from semidp.inference.association import Association, ScoreTest, score_test
from semidp.inference.census.area_estimates import (
    CensusEstimates,
    CensusTask,
    estimate_areas,
    estimate_state,
    write_estimates,
)
from semidp.inference.census.noisy_files import Areas, StateFiles, groups, read_areas, read_state
from semidp.inference.common_odds import CommonOddsRatio, common_odds_ratio
from semidp.inference.independence import (
    Independence,
    independence_test,
    random_tables,
    simulated_bound,
)
from semidp.inference.markov import Mixing, Posterior, posterior
from semidp.inference.models import (
    Formula,
    TableModel,
    TermTest,
    logistic_fit,
    loglinear_fit,
    model,
)
from semidp.inference.paired_tests import PairTests, adjusted_p_values, every_pair
from semidp.inference.ratios import NoisyRates, RateMeasure, sampled_comparison
from semidp.inference.records.record_cells import TableDistance
from semidp.inference.records.synthetic import CombinedEstimate, SyntheticRecords
from semidp.inference.written_sums import sum_rows
from semidp.publish.estimation.estimates import AreaSums, Estimate, Share, estimate
from semidp.publish.estimation.measurements import (
    Among,
    CellSums,
    Measurements,
    Observed,
    Places,
    Within,
)

__all__ = [
    "Among",
    "AreaRow",
    "AreaSums",
    "Areas",
    "Association",
    "CellSums",
    "CensusEstimates",
    "CensusTask",
    "CombinedEstimate",
    "CommonOddsRatio",
    "Covers",
    "Estimate",
    "Formula",
    "Independence",
    "IntervalEstimate",
    "Measurements",
    "Mixing",
    "NoisyRates",
    "Observed",
    "PairTests",
    "Places",
    "Posterior",
    "RateMeasure",
    "ScoreTest",
    "Share",
    "StateFiles",
    "SyntheticRecords",
    "TableDistance",
    "TableIntervals",
    "TableModel",
    "TermTest",
    "Within",
    "adjusted_p_values",
    "area_intervals",
    "common_odds_ratio",
    "estimate",
    "estimate_areas",
    "estimate_state",
    "every_pair",
    "groups",
    "independence_test",
    "logistic_fit",
    "loglinear_fit",
    "model",
    "posterior",
    "random_tables",
    "read_area_rows",
    "read_areas",
    "read_state",
    "sampled_comparison",
    "sampled_rate",
    "score_test",
    "simulated_bound",
    "sum_intervals",
    "sum_rows",
    "write_estimates",
]
