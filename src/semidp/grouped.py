"""Statistics by groups in one call: sums, means, proportions, quantiles, distributions, regressions
of an outcome.

Each is a front of a request of its statistic: the pipeline opens the records, charges the ledger
and measures.
"""

from collections.abc import Sequence
from typing import Any

from semidp.errors import InputError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.exact import Number
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import Design
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.pipeline import RunOptions, measure
from semidp.publish.plan import AdjacencyChoice, Plan, chosen_adjacency
from semidp.publish.statistics.distribution.distribution_estimates import GroupDistributions
from semidp.publish.statistics.distribution.request import DistributionsOfSets
from semidp.publish.statistics.outcomes.confidence import LEVEL
from semidp.publish.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.publish.statistics.outcomes.groups import By, normalize_blocks
from semidp.publish.statistics.outcomes.request import Statistic, binary_outcome
from semidp.publish.statistics.outcomes.spread import SquareSums, square_grid
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.quantiles.quantile_estimates import MEDIAN, GroupQuantiles
from semidp.publish.statistics.quantiles.request import QuantileMechanism, QuantilesOfSets
from semidp.publish.statistics.regression.designed_request import (
    DesignedRegression,
    SquaresByCell,
    SumsByCell,
)
from semidp.publish.statistics.regression.linear import LinearFit, Moments
from semidp.publish.statistics.regression.logistic import LogisticFit
from semidp.publish.statistics.regression.request import Model
from semidp.publish.statistics.sums.request import SquaresOfSets, SumsOfSets

__all__ = [
    "distributions",
    "linear_regression",
    "logistic_regression",
    "means",
    "proportions",
    "quantiles",
    "sums",
]


def sums(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    *,
    spread_budget: Budget | None = None,
    **options: Any,
) -> GroupSums:
    """Release sums of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data
        A file, a data frame, an Ibis table or a `Source`.
    outcome
        The private column, its declared bounds and its grid: values are clipped and rounded record
        by record.
    by
        The groups: a feature or margin, or several whose sums are released together. Their counts
        become public.
    budget
        What may be spent on the sums.
    spread_budget
        What may be spent on sums of squares by group, for narrower intervals and
        `GroupSums.within_sd`. A yes or no needs none.
    options
        ``invariants``: what else is published exactly. ``features``: declared features; the levels
        of others are read, since their counts are public. ``adjacency``: how many records may
        differ, a(t) of all that is published unless given. ``randomness``: where random words come
        from, the operating system unless given. ``ledger``: charged before any noise is drawn.
    """
    return _sums(
        Statistic.sum, data, outcome, normalize_blocks(by), budget, spread_budget, **options
    )


def means(data: Any, outcome: Outcome, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release means of an outcome by groups; the parameters are those of `sums`.

    >>> import numpy as np
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
    >>> stay = means(
    ...     records,
    ...     Outcome("days", 0, 10, steps=10),
    ...     ["ward"],
    ...     Budget.gdp(1),
    ...     randomness=SeededRandomness(1),
    ... )
    >>> stay.groups, stay.values.round(1).tolist(), stay.standard_errors.round(2).tolist()
    ((('a',), ('b',)), [2.0, 8.0], [0.04, 0.04])
    >>> stay.guarantee.adjacency.a
    2
    """
    block = _one(by)
    return sums(data, outcome, block, budget, **options).means(block)


def proportions(data: Any, column: str, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release the proportion of records with a 1 in a column of zeros and ones, by groups; other
    values are refused.

    >>> import numpy as np
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "cured": np.repeat([0, 1], 500)}
    >>> proportions(
    ...     records, "cured", ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)
    ... ).values.round(1).tolist()
    [0.0, 1.0]
    """
    block = _one(by)
    found = _sums(Statistic.proportion, data, binary_outcome(column), (block,), budget, **options)
    return found.means(block)


def quantiles(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    probabilities: Sequence[Number] = (MEDIAN,),
    *,
    level: Number | None = None,
    sampling: bool = False,
    **options: Any,
) -> GroupQuantiles:
    """Release quantiles of an outcome by groups whose counts are published exactly, each chosen by
    itself.

    Those of a distribution are closer where they are many, and have narrower intervals: see
    `distributions`.

    Parameters
    ----------
    data, outcome, by, options
        As for `sums`.
    budget
        What may be spent on all quantiles of all groups together.
    probabilities
        Which quantiles, in growing order; the median if left out.
    level
        The level of an interval for each quantile, which takes two choices more of the same budget;
        none if left out.
    sampling
        Whether intervals are about the population that the records were drawn from.
    """
    blocks = normalize_blocks(by)
    request = QuantilesOfSets(
        outcome,
        blocks,
        probabilities,
        budget,
        level=level,
        sampling=sampling,
        mechanism=QuantileMechanism.selection,
    )
    (chosen,) = _measure_requests(
        f"quantiles of {outcome.column}", data, [request], blocks, **options
    )
    return GroupQuantiles(*chosen)


def distributions(
    data: Any, outcome: Outcome, by: By, budget: Budget, *, level: Number = LEVEL, **options: Any
) -> GroupDistributions:
    """Release the distribution of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data, outcome, by, options
        As for `sums`.
    budget
        What may be spent on the distributions of all groups; every quantile and every share follows
        from them.
    level
        The level of intervals, and of the band around each curve.

    Examples
    --------
    >>> import numpy as np
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "ward": np.repeat(["a", "b"], 500),
    ...     "days": np.r_[np.arange(500) / 100, 5 + np.arange(500) / 100],
    ... }
    >>> days = Outcome("days", 0, 10, 20)
    >>> stays = distributions(
    ...     records, days, ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)
    ... )
    >>> [(ward, round(share, 1)) for (ward,), share, _, _ in stays.shares_below("4.25").rows()]
    [('a', 0.8), ('b', 0.0)]
    """
    blocks = normalize_blocks(by)
    request = DistributionsOfSets(outcome, blocks, budget=budget, level=level)
    ((mechanism, differences),) = _measure_requests(
        f"distribution of {outcome.column}", data, [request], blocks, **options
    )
    return GroupDistributions(mechanism, differences, request.level)


def linear_regression(
    data: Any,
    outcome: Outcome,
    budget: Budget,
    *,
    factors: Sequence[str] = (),
    design: Design | None = None,
    invariants: Sequence[Margin] | None = None,
    spread_budget: Budget | None = None,
    **options: Any,
) -> LinearFit:
    """Fit a linear regression of a private outcome on features whose counts are published exactly.

    Parameters
    ----------
    data, outcome, options
        As for `sums`.
    budget
        What may be spent on X'y.
    factors
        The features, for a design of their main effects; or give `design`.
    design
        Any design on the published features.
    invariants
        What is published exactly: it must fix Σz and X'X. The joint counts of the design's features
        if left out.
    spread_budget
        What may be spent on sums of squares by the cells of the design, for narrower intervals for
        the population. Sums by cell are then measured too, so the joint counts must be published.
    """
    public = _choose_margins(factors, design, invariants)
    asked: dict[str, Any] = {"factors": factors, "given": design, "public": public}
    # Squares are measured by cell, and need the sums by cell to be measured, too.
    if spread_budget is None:
        requests: list[DesignedRegression] = [DesignedRegression(outcome, budget=budget, **asked)]
    else:
        grid = square_grid(outcome)
        squares = SquaresByCell(
            grid, budget=spread_budget, name=f"squares-{outcome.column}", **asked
        )
        requests = [SumsByCell(outcome, budget=budget, **asked), squares]
    label = f"regression of {outcome.column}"
    (mechanism, measurement), *spread = _measure_requests(label, data, requests, public, **options)
    # On the schema that was measured: its levels may have been read from the data.
    model = requests[0].measured_design(mechanism)
    squared = SquareSums(requests[1].outcome, *spread[0]) if spread else None
    return LinearFit(Moments(mechanism, measurement, model), squared)


def logistic_regression(
    data: Any,
    column: str,
    budget: Budget,
    *,
    factors: Sequence[str] = (),
    design: Design | None = None,
    invariants: Sequence[Margin] | None = None,
    **options: Any,
) -> LogisticFit:
    """Fit a logistic regression of a private column of zeros and ones on features whose joint
    counts are published.

    The parameters are those of `linear_regression`.
    """
    public = _choose_margins(factors, design, invariants)
    request = DesignedRegression(
        binary_outcome(column), factors, budget, model=Model.logistic, given=design, public=public
    )
    label = f"logistic regression of {column}"
    ((mechanism, measurement),) = _measure_requests(label, data, [request], public, **options)
    return LogisticFit(Moments(mechanism, measurement, request.measured_design(mechanism)))


def _measure_requests(
    label: str,
    data: Any,
    requests: Sequence[Request],
    public: Sequence[Margin],
    *,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> list[tuple[Mechanism, Measurement]]:
    """Let the pipeline measure requests; return each mechanism with what it measured."""
    margins = (*public, *invariants)
    if not any(margin.names for margin in margins):
        raise InputError(
            "grouped statistics need exact group counts: name at least one published margin"
        )
    plan = Plan(requests, margins, features, adjacency=_reading(adjacency))
    return measure(plan, data, RunOptions(randomness=randomness, ledger=ledger, label=label))


def _reading(adjacency: Adjacency | None) -> AdjacencyChoice | int:
    """Return how a plan says which datasets are compared."""
    if adjacency is None:
        return AdjacencyChoice.worst_case
    return chosen_adjacency(adjacency)


def _one(by: By) -> Margin:
    blocks = normalize_blocks(by)
    if len(blocks) != 1:
        raise InputError(
            "means of several blocks are read from sums(): call its means() with the block"
        )
    return blocks[0]


def _sums(
    statistic: Statistic,
    data: Any,
    outcome: Outcome,
    blocks: tuple[Margin, ...],
    budget: Budget,
    spread_budget: Budget | None = None,
    **options: Any,
) -> GroupSums:
    """Return sums by groups, with sums of squares where those have a budget."""
    requests: list[Request] = [SumsOfSets(statistic, outcome, blocks, budget)]
    grid = square_grid(outcome)
    # Of a yes or no the squares follow from the sums: measuring them would be wasted.
    if spread_budget is not None and outcome.steps > 1:
        name = f"squares-{outcome.column}"
        requests.append(SquaresOfSets(statistic, grid, blocks, spread_budget, name=name))
    parts = _measure_requests(f"sums of {outcome.column}", data, requests, blocks, **options)
    (mechanism, measurement), *spread = parts
    return GroupSums(mechanism, measurement, SquareSums(grid, *spread[0]) if spread else None)


def _choose_margins(
    factors: Sequence[str], design: Design | None, invariants: Sequence[Margin] | None
) -> tuple[Margin, ...]:
    """Return what is published: as said, or the joint counts of the design's features."""
    if invariants is not None:
        return tuple(invariants)
    names = factors if design is None else design.features
    if not names:
        raise InputError(
            "a regression needs features: name factors, or give a design and what is published"
        )
    return (Margin(*names),)
