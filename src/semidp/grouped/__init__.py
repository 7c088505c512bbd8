"""Exact group counts, private group statistics: sums, means, proportions, comparison, linear and logistic regression.

`group_sums` and `regression` are the pages to read first; the proofs and the regression designs are in `queries`.
"""

from semidp.grouped.comparison import Comparison
from semidp.grouped.group_quantiles import MEDIAN, GroupQuantiles, most_rank_error, quantiles
from semidp.grouped.group_sums import Estimates, GroupSums, means, proportions, sums
from semidp.grouped.inputs import check_binary, read_histogram, read_moments, read_sums
from semidp.grouped.intervals import LEVEL, About, Confidence, Intervals
from semidp.grouped.logistic import LogisticFit, joint_counts, logistic_regression
from semidp.grouped.outcome_spread import Spread, SquareSums
from semidp.grouped.regression import LinearFit, Moments, linear_regression, regression_mechanism
from semidp.queries import (
    Coding,
    Column,
    Design,
    MomentSpace,
    SumSpace,
    moment_space,
    outcome_adjacency,
    route_values,
    sum_space,
)

__all__ = [
    "LEVEL",
    "MEDIAN",
    "About",
    "Coding",
    "Column",
    "Comparison",
    "Confidence",
    "Design",
    "Estimates",
    "GroupQuantiles",
    "GroupSums",
    "Intervals",
    "LinearFit",
    "LogisticFit",
    "MomentSpace",
    "Moments",
    "Spread",
    "SquareSums",
    "SumSpace",
    "check_binary",
    "joint_counts",
    "linear_regression",
    "logistic_regression",
    "means",
    "moment_space",
    "most_rank_error",
    "outcome_adjacency",
    "proportions",
    "quantiles",
    "read_histogram",
    "read_moments",
    "read_sums",
    "regression_mechanism",
    "route_values",
    "sum_space",
    "sums",
]
