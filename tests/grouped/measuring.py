"""Statistics of an outcome by groups, measured piece by piece as a study does.

Nothing is charged here: what a release charges and publishes is tested through `semidp.release`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp import Ball, Budget, Dataspace, Feature, Margin, Outcome, Plan, Schema, Table, prepare
from semidp.promise import Mechanism, Randomness, outcome_adjacency
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.noise.randomness import SystemRandomness
from semidp.promise.sensitivity.distribution_space import DistributionSpace, distribution_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.publish import (
    GroupRequest,
    GroupSums,
    LinearFit,
    Moments,
    QuantileRequest,
    RegressionRequest,
    regression_mechanism,
    route_values,
)
from semidp.publish.statistics.outcomes.group_sums import Estimates
from semidp.publish.statistics.outcomes.request import binary_outcome
from semidp.publish.statistics.quantiles import GroupQuantiles
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import LogisticFit

Integers = NDArray[np.int64]

By = Sequence[Margin | str] | Margin | str
"""The groups: a feature or a margin, or several."""


def two_wards(steps: int, adjacency: Adjacency | None = None) -> DistributionSpace:
    """Return the distribution of a score from 0 to `steps` in two wards of 30 and 20 people, any
    two records moving.
    """
    wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    public = Dataspace.from_table(wards, [Margin("ward")])
    outcome = Outcome("score", 0, steps, steps)
    return distribution_space(public, adjacency or Ball(2), outcome, [Margin("ward")])


def normalize_blocks(by: By) -> tuple[Margin, ...]:
    """Return the sets of groups that `by` names.

    >>> normalize_blocks("ward"), normalize_blocks(["ward", Margin("sex", "age")])
    ((Margin('ward'),), (Margin('ward'), Margin('sex', 'age')))
    """
    several = (by,) if isinstance(by, (Margin, str)) else by
    return tuple(block if isinstance(block, Margin) else Margin(block) for block in several)


def _measure(
    request: Any,
    data: Any,
    *,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    randomness: Randomness | None = None,
) -> tuple[Any, Mechanism, Measurement]:
    """What is public, the calibrated mechanism, and what it measured."""
    exact = dict.fromkeys([*request.exact_margins, *invariants])
    prepared = prepare(Plan([request], list(exact), features), data)
    (mechanism,), (values,) = prepared.mechanisms, prepared.values
    return prepared.scope, mechanism, mechanism.measure(values, randomness or SystemRandomness())


def _steps(data: Any, outcome: Outcome) -> Integers:
    """The outcome of each record in steps of its grid."""
    low, high = float(outcome.lower), float(outcome.upper)
    values = np.clip(np.asarray(data[outcome.column], dtype=np.float64), low, high)
    return np.rint((values - low) / float(outcome.width)).astype(np.int64)


def _sum_by(data: Any, names: Sequence[str], groups: Any, values: Integers) -> Integers:
    """Sums of a number of each record, by groups that are named by their levels."""
    place = {tuple(group): number for number, group in enumerate(groups)}
    totals = np.zeros(len(place), dtype=np.int64)
    for *levels, value in zip(*(np.asarray(data[name]) for name in names), values, strict=True):
        totals[place[tuple(map(str, levels))]] += value
    return totals


def sums(
    data: Any,
    outcome: Outcome,
    by: Any,
    budget: Budget,
    *,
    statistic: str = "sum",
    **options: Any,
) -> GroupSums:
    """Sums by group."""
    request = GroupRequest(statistic, outcome, normalize_blocks(by), budget)
    _, mechanism, measured = _measure(request, data, **options)
    return GroupSums(mechanism, measured)


def means(data: Any, outcome: Outcome, by: Any, budget: Budget, **options: Any) -> Estimates:
    """Means by the groups of one set."""
    return sums(data, outcome, by, budget, **options).means()


def proportions(data: Any, column: str, by: Any, budget: Budget, **options: Any) -> Estimates:
    """Proportions by the groups of one set."""
    outcome = binary_outcome(column)
    return sums(data, outcome, by, budget, statistic="proportion", **options).means()


def quantiles(
    data: Any,
    outcome: Outcome,
    by: Any,
    budget: Budget,
    probabilities: Sequence[Any],
    **options: Any,
) -> GroupQuantiles:
    """Quantiles by group, each chosen by itself."""
    request = QuantileRequest(
        outcome, normalize_blocks(by), probabilities, budget, mechanism="selection"
    )
    _, mechanism, measured = _measure(request, data, **options)
    return GroupQuantiles(mechanism, measured)


def linear_regression(
    data: Any,
    outcome: Outcome,
    budget: Budget,
    factors: Sequence[str],
    **options: Any,
) -> LinearFit:
    """A linear regression on the main effects of factors."""
    request = RegressionRequest(outcome, factors, budget)
    scope, mechanism, measured = _measure(request, data, **options)
    return LinearFit(Moments(mechanism, measured, request.design(scope)))


def logistic_regression(
    data: Any, column: str, budget: Budget, factors: Sequence[str], **options: Any
) -> LogisticFit:
    """A logistic regression on the main effects of factors."""
    request = RegressionRequest(binary_outcome(column), factors, budget, model="logistic")
    scope, mechanism, measured = _measure(request, data, **options)
    return LogisticFit(Moments(mechanism, measured, request.design(scope)))


def fit_design(
    data: Any,
    outcome: Outcome,
    budget: Budget,
    design: Design,
    published: Sequence[Margin],
) -> LinearFit:
    """A linear regression on any design of declared features."""
    schema: Schema = design.schema
    cells = [tuple(cell) for cell in np.ndindex(*schema.shape)]
    named = [
        tuple(feature.levels[level] for feature, level in zip(schema.features, cell, strict=True))
        for cell in cells
    ]
    ones = np.ones(len(data[outcome.column]), dtype=np.int64)
    counts = _sum_by(data, schema.names, named, ones).reshape(schema.shape)
    public = Dataspace.from_table(Table(schema, counts), published)
    mechanism = regression_mechanism(public, outcome_adjacency(public), outcome, design, budget)
    totals = _sum_by(data, schema.names, named, _steps(data, outcome)).reshape(schema.shape)
    axes = tuple(n for n, name in enumerate(schema.names) if name not in design.features)
    space: Any = mechanism.space
    values = route_values(space, design, totals.sum(axis=axes))
    noisy = mechanism.measure(values, SystemRandomness())
    return LinearFit(Moments(mechanism, noisy, design))
