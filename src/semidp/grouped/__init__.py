"""Exact group counts, private group statistics: sums, means, proportions, comparison, linear and logistic regression.

`sums` and `regression` are the pages to read first; `sensitivity` holds the proofs, `designs` the regression designs,
`baselines` what is compared with in studies.
"""

from semidp.grouped.baselines import baseline_means, baseline_regression
from semidp.grouped.designs import Coding, Column, Design
from semidp.grouped.logistic import LogisticFit, logistic_regression
from semidp.grouped.reading import check_binary, moments_of, read_moments, read_sums
from semidp.grouped.regression import LinearFit, Moments, linear_regression
from semidp.grouped.sensitivity import (
    MomentSpace,
    SumSpace,
    moment_space,
    outcome_adjacency,
    outcome_mechanism,
    sum_space,
)
from semidp.grouped.spread import Spread, SquareSum
from semidp.grouped.sums import Comparison, Estimates, GroupSums, means, proportions, sums

__all__ = [
    "Coding",
    "Column",
    "Comparison",
    "Design",
    "Estimates",
    "GroupSums",
    "LinearFit",
    "LogisticFit",
    "MomentSpace",
    "Moments",
    "Spread",
    "SquareSum",
    "SumSpace",
    "baseline_means",
    "baseline_regression",
    "check_binary",
    "linear_regression",
    "logistic_regression",
    "means",
    "moment_space",
    "moments_of",
    "outcome_adjacency",
    "outcome_mechanism",
    "proportions",
    "read_moments",
    "read_sums",
    "sum_space",
    "sums",
]
