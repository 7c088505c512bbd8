"""Questions to a release, at no cost in privacy: tests, intervals, models, synthetic records.

`Release.test`, `Release.interval`, `Release.intervals` and `Release.records` ask them; this module
exports the values that they return. The chains of a posterior, and the test that they have mixed,
are in `markov`.
"""

from semidp.inference.answers import linear_interval, mover_difference, ratio_interval
from semidp.inference.area_estimates import CensusTask, estimate_areas, write_estimates
from semidp.inference.area_sums import area_intervals, read_area_rows, sum_intervals, sum_rows
from semidp.inference.common_odds import common_odds_ratio
from semidp.inference.design_weights import read_strata, weighted_estimates
from semidp.inference.estimation.estimates import Share, estimate
from semidp.inference.estimation.measurements import CellSums, Measurements, Observed, Places
from semidp.inference.independence import random_tables
from semidp.inference.linear_estimates import simulated_bound
from semidp.inference.markov import posterior
from semidp.inference.models import model
from semidp.inference.noisy_files import read_areas
from semidp.inference.paired_tests import every_pair
from semidp.inference.period_changes import Changes
from semidp.inference.records.synthetic import combine_estimates

__all__ = [
    "CellSums",
    "CensusTask",
    "Changes",
    "Measurements",
    "Observed",
    "Places",
    "Share",
    "area_intervals",
    "combine_estimates",
    "common_odds_ratio",
    "estimate",
    "estimate_areas",
    "every_pair",
    "linear_interval",
    "model",
    "mover_difference",
    "posterior",
    "random_tables",
    "ratio_interval",
    "read_area_rows",
    "read_areas",
    "read_strata",
    "simulated_bound",
    "sum_intervals",
    "sum_rows",
    "weighted_estimates",
    "write_estimates",
]
