"""Questions to a release, at no cost in privacy: tests, intervals, models, synthetic records.

`Release.test`, `Release.interval`, `Release.intervals` and `Release.records` ask them; the values
that they return are named here. The chains of a posterior, and when they have mixed, are in
`markov`.
"""

from semidp.questions.answers import Covers, IntervalEstimate, TableIntervals, sampled_rate
from semidp.questions.area_sums import AreaRow, area_intervals, read_area_rows, sum_intervals
from semidp.questions.association import Association, ScoreTest, score_test
from semidp.questions.common_odds import CommonOddsRatio, common_odds_ratio
from semidp.questions.independence import (
    Independence,
    independence_test,
    random_tables,
    simulated_bound,
)
from semidp.questions.markov import Mixing, Posterior, posterior
from semidp.questions.models import (
    Formula,
    TableModel,
    TermTest,
    logistic_fit,
    loglinear_fit,
    model,
)
from semidp.questions.paired_tests import PairTests, adjusted_p_values, every_pair
from semidp.questions.ratios import NoisyRates, RateMeasure, sampled_comparison
from semidp.questions.records.record_cells import TableDistance
from semidp.questions.records.several_files import CombinedEstimate
from semidp.questions.records.synthetic import SyntheticRecords
from semidp.questions.written_sums import sum_rows

__all__ = [
    "AreaRow",
    "Association",
    "CombinedEstimate",
    "CommonOddsRatio",
    "Covers",
    "Formula",
    "Independence",
    "IntervalEstimate",
    "Mixing",
    "NoisyRates",
    "PairTests",
    "Posterior",
    "RateMeasure",
    "ScoreTest",
    "SyntheticRecords",
    "TableDistance",
    "TableIntervals",
    "TableModel",
    "TermTest",
    "adjusted_p_values",
    "area_intervals",
    "common_odds_ratio",
    "every_pair",
    "independence_test",
    "logistic_fit",
    "loglinear_fit",
    "model",
    "posterior",
    "random_tables",
    "read_area_rows",
    "sampled_comparison",
    "sampled_rate",
    "score_test",
    "simulated_bound",
    "sum_intervals",
    "sum_rows",
]
