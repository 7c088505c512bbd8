"""Statistics by groups in one call: sums, means, proportions, quantiles, distributions, regressions of an outcome.

Each opens the records, charges the ledger and measures; a plan asks for the same with a request.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.core.exact import Number
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace, Margin, normalised
from semidp.core.spaces.outcome_adjacency import outcome_adjacency
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError, Refused
from semidp.mechanisms.mechanism import Measurement, Mechanism
from semidp.mechanisms.selection import outcome_mechanism
from semidp.noise.randomness import Randomness
from semidp.queries.query_space import QuerySpace
from semidp.sources.contract import Outcome
from semidp.sources.opening import Source, open_source
from semidp.sources.outcome_readers import check_binary, read_histogram
from semidp.statistics.distribution.distribution_estimates import GroupDistributions
from semidp.statistics.distribution.distribution_space import distribution_space
from semidp.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.statistics.outcomes.groups import By, blocks_of
from semidp.statistics.outcomes.intervals import LEVEL, level_of
from semidp.statistics.outcomes.spaces import SumSpace, sum_space
from semidp.statistics.outcomes.spread import SquareSums, square_mechanism, squared_steps
from semidp.statistics.quantiles.mechanism import exponential_mechanism
from semidp.statistics.quantiles.quantile_estimates import MEDIAN, GroupQuantiles
from semidp.statistics.quantiles.ranks import rank_space
from semidp.statistics.regression.designs import Design
from semidp.statistics.regression.linear import LinearFit, Moments, regression_mechanism
from semidp.statistics.regression.logistic import LogisticFit, joint_counts
from semidp.statistics.regression.moments import MomentSpace
from semidp.statistics.regression.routes import route_values

SQUARE_STEPS = 100
"""The grid on which outcomes are squared has at most this many steps."""

__all__ = ["distributions", "linear_regression", "logistic_regression", "means", "proportions", "quantiles", "sums"]


@dataclass(frozen=True)
class Groups:
    """An open source of records, what is published about them, how many move together; who is charged and draws."""

    source: Source
    dataspace: Dataspace
    adjacency: Adjacency
    ledger: Ledger | None
    randomness: Randomness | None

    @property
    def schema(self) -> Schema:
        """The published features."""
        return self.dataspace.schema

    def measure(
        self, label: str, mechanism: Mechanism, values: NDArray[np.int64], squares: "Squares | None" = None
    ) -> tuple[Measurement, SquareSums | None]:
        """Measure values, and the squares of an outcome by group where they have a budget; the ledger comes first."""
        if squares is None:
            self._charge(label, mechanism)
            return mechanism.measure(values, self.randomness), None
        grid, blocks = squares.grid, squares.blocks
        spread = square_mechanism(self.dataspace, self.adjacency, grid, squares.budget, blocks)
        counts = [read_histogram(self.source, self.schema, block.names, grid) for block in blocks]
        totals = np.concatenate([part @ squared_steps(grid.steps) for part in counts])
        self._charge(label, mechanism, spread)
        measured = mechanism.measure(values, self.randomness)
        return measured, SquareSums(grid, spread, spread.measure(totals, self.randomness))

    def _charge(self, label: str, *mechanisms: Mechanism) -> None:
        if self.ledger is not None:
            first, *others = (mechanism.guarantee for mechanism in mechanisms)
            self.ledger.charge(first.compose(*others), label, [mechanism.record() for mechanism in mechanisms])


@dataclass(frozen=True)
class Squares:
    """The squares of an outcome that are to be measured: on which grid, by which groups, at what budget."""

    grid: Outcome
    blocks: tuple[Margin, ...]
    budget: Budget


def squares_of(outcome: Outcome, blocks: Sequence[Margin], budget: Budget | None) -> Squares | None:
    """Return the squares to be measured, on a grid of at most 100 steps; None without a budget.

    >>> squares_of(Outcome("score", 0, 1, steps=1000), [Margin("ward")], Budget.gdp(1)).grid.steps
    100
    """
    if budget is None:
        return None
    grid = Outcome(outcome.column, outcome.lower, outcome.upper, min(outcome.steps, SQUARE_STEPS))
    return Squares(grid, tuple(blocks), budget)


@contextmanager
def open_groups(
    data: Any,
    invariants: Sequence[Margin],
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    ledger: Ledger | None = None,
    randomness: Randomness | None = None,
) -> Iterator[Groups]:
    """Open records and read the published counts.

    Parameters
    ----------
    data
        A `Source`, or what `open_source` takes. What is opened here is closed here.
    invariants
        The margins that are published exactly; they publish the levels of their features too.
    features
        Declared features; the others get the levels that occur.
    adjacency
        How many records may differ; a(t) unless given.
    ledger
        Charged before any noise is drawn.
    randomness
        Where random words come from; the operating system unless given.

    Examples
    --------
    >>> records = {"ward": np.array(["a", "a", "b"]), "score": np.array([1.0, 2.0, 3.0])}
    >>> with open_groups(records, [Margin("ward")]) as groups:
    ...     groups.dataspace.value(Margin("ward")).counts.tolist(), groups.adjacency.a
    ([2, 1], 2)
    """
    if not any(margin.names for margin in invariants):
        raise InputError("grouped statistics need exact group counts: name at least one published margin")
    declared = {name: feature for feature in features for name in feature.names}
    names = dict.fromkeys(name for margin in invariants for name in margin.names)
    with nullcontext(data) if isinstance(data, Source) else open_source(data) as source:
        source.hold()
        parts = dict.fromkeys(
            declared[name] if name in declared else Feature(name, source.levels(name)) for name in names
        )
        schema = Schema(tuple(parts)).restrict(names)
        margins = normalised(schema, invariants)
        public = Dataspace.known(schema, {margin: source.counts(schema.restrict(margin.names)) for margin in margins})
        near = outcome_adjacency(public) if adjacency is None else adjacency
        yield Groups(source, public, near, ledger, randomness)


def read_sums(source: Source, space: SumSpace) -> NDArray[np.int64]:
    """Return the confidential sums by group, in steps of the grid, block after block."""
    schema = space.dataspace.schema
    parts = [source.sums(schema.restrict(block.names or schema.names[:1]), space.outcome) for block in space.blocks]
    whole = [part if block.names else part.sum() for part, block in zip(parts, space.blocks, strict=True)]
    return np.concatenate([np.ravel(part) for part in whole]).astype(np.int64)


def read_moments(source: Source, space: QuerySpace, design: Design) -> NDArray[np.int64]:
    """Return the confidential values of a query that X'y of a design follows from, in steps of the grid."""
    assert isinstance(space, (SumSpace, MomentSpace))
    names = design.features or design.schema.names[:1]
    sums = source.sums(design.schema.restrict(names), space.outcome)
    return route_values(space, design, sums if design.features else np.array([sums.sum()]))


def sums(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    *,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    spread_budget: Budget | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> GroupSums:
    """Release sums of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data
        A file, a data frame, an Ibis table or a `Source`.
    outcome
        The private column, its declared bounds and its grid: values are clipped and rounded record by record.
    by
        The groups: a feature or margin, or several whose sums are released together. Their counts become public.
    budget
        What may be spent on the sums.
    invariants
        What else is published exactly.
    features
        Declared features; the levels of others are read, since their counts are public.
    adjacency
        How many records may differ; a(t) of all that is published unless given.
    spread_budget
        What may be spent on sums of squares by group, for narrower intervals and `GroupSums.within_sd`. A yes or no
        needs none.
    randomness
        Where random words come from; the operating system unless given.
    ledger
        Charged before any noise is drawn.
    """
    blocks = blocks_of(by)
    with open_groups(data, (*blocks, *invariants), features, adjacency, ledger, randomness) as groups:
        space = sum_space(groups.dataspace, groups.adjacency, outcome, blocks)
        mechanism, values = outcome_mechanism(space, budget), read_sums(groups.source, space)
        squares = None if outcome.steps == 1 else squares_of(outcome, blocks, spread_budget)
        found = groups.measure(f"sums of {outcome.column}", mechanism, values, squares)
    return GroupSums(mechanism, *found)


def means(data: Any, outcome: Outcome, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release means of an outcome by groups; the parameters are those of `sums`.

    >>> from semidp.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.repeat([2, 8], 500)}
    >>> stay = means(records, Outcome("days", 0, 10, steps=10), ["ward"], Budget.gdp(1), randomness=SeededRandomness(1))
    >>> stay.groups, stay.values.round(1).tolist(), stay.standard_errors.round(2).tolist()
    ((('a',), ('b',)), [2.0, 8.0], [0.04, 0.04])
    >>> stay.guarantee.adjacency.a
    2
    """
    block = _one(by)
    return sums(data, outcome, block, budget, **options).means(block)


def proportions(data: Any, column: str, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release the proportion of records with a 1 in a column of zeros and ones, by groups; other values are refused.

    >>> from semidp.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "cured": np.repeat([0, 1], 500)}
    >>> proportions(records, "cured", ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)).values.round(1).tolist()
    [0.0, 1.0]
    """
    outcome = Outcome(column, 0, 1, steps=1)
    if isinstance(data, Source):
        check_binary(data, column)
        found = means(data, outcome, by, budget, **options)
    else:
        with open_source(data) as source:
            return proportions(source, column, by, budget, **options)
    return replace(found, rounding=np.zeros(len(found.groups)))  # ones and zeros lie on the grid


def _one(by: By) -> Margin:
    if len(blocks_of(by)) != 1:
        raise InputError("means of several blocks are read from sums(): call its means() with the block")
    return blocks_of(by)[0]


def quantiles(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    probabilities: Sequence[Number] = (MEDIAN,),
    *,
    level: Number | None = None,
    sampling: bool = False,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> GroupQuantiles:
    """Release quantiles of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data, outcome, by, invariants, features, adjacency, randomness, ledger
        As for `sums`.
    budget
        What may be spent on all quantiles of all groups together.
    probabilities
        Which quantiles, in growing order; the median if left out.
    level
        The level of an interval for each quantile, which takes two choices more of the same budget; none if left out.
    sampling
        Whether intervals are about the population that the records were drawn from.
    """
    blocks = blocks_of(by)
    with open_groups(data, (*blocks, *invariants), features, adjacency, ledger, randomness) as groups:
        space = rank_space(
            groups.dataspace, groups.adjacency, outcome, blocks, probabilities, level=level, sampling=sampling
        )
        mechanism = exponential_mechanism(space, budget)
        parts = [read_histogram(groups.source, groups.schema, block.names, outcome) for block in blocks]
        chosen, _ = groups.measure(f"quantiles of {outcome.column}", mechanism, np.concatenate(parts))
    return GroupQuantiles(mechanism, chosen)


def distributions(
    data: Any,
    outcome: Outcome,
    by: By,
    budget: Budget,
    *,
    level: Number = LEVEL,
    invariants: Sequence[Margin] = (),
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> GroupDistributions:
    """Release the distribution of an outcome by groups whose counts are published exactly.

    Parameters
    ----------
    data, outcome, by, invariants, features, adjacency, randomness, ledger
        As for `sums`.
    budget
        What may be spent on the distributions of all groups; every quantile and every share follows from them.
    level
        The level of intervals, and of the band around each curve.

    Examples
    --------
    >>> from semidp.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "days": np.r_[np.arange(500) / 100, 5 + np.arange(500) / 100]}
    >>> days = Outcome("days", 0, 10, 20)
    >>> stays = distributions(records, days, ["ward"], Budget.gdp(1), randomness=SeededRandomness(1))
    >>> [(ward, round(share, 1)) for (ward,), share, _, _ in stays.shares_below("4.25").rows()]
    [('a', 0.8), ('b', 0.0)]
    """
    blocks = blocks_of(by)
    with open_groups(data, (*blocks, *invariants), features, adjacency, ledger, randomness) as groups:
        space = distribution_space(groups.dataspace, groups.adjacency, outcome, blocks)
        mechanism = outcome_mechanism(space, budget)
        parts = [read_histogram(groups.source, groups.schema, block.names, outcome) for block in blocks]
        differences = space.measured(np.concatenate(parts))
        measured, _ = groups.measure(f"distribution of {outcome.column}", mechanism, differences)
    return GroupDistributions(mechanism, measured, level_of(level))


def linear_regression(
    data: Any,
    outcome: Outcome,
    budget: Budget,
    *,
    factors: Sequence[str] = (),
    design: Design | None = None,
    invariants: Sequence[Margin] | None = None,
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    spread_budget: Budget | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> LinearFit:
    """Fit a linear regression of a private outcome on features whose counts are published exactly.

    Parameters
    ----------
    data, outcome, features, adjacency, randomness, ledger
        As for `sums`.
    budget
        What may be spent on X'y.
    factors
        The features, for a design of their main effects; or give `design`.
    design
        Any design on the published features.
    invariants
        What is published exactly: it must fix Σz and X'X. The joint counts of the design's features if left out.
    spread_budget
        What may be spent on sums of squares by the cells of the design, for narrower intervals for the population. Sums
        by cell are then measured too, so the joint counts must be published.
    """
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency, ledger, randomness) as groups:
        model = chosen(groups.schema, factors, design)
        cells = (Margin(*model.features),)
        if spread_budget is None:
            mechanism = regression_mechanism(groups.dataspace, groups.adjacency, outcome, model, budget)
        else:
            model.gram(groups.dataspace)  # refuses moments that are not public, and columns that depend on each other
            mechanism = outcome_mechanism(_by_cells(groups, outcome, cells), budget)
        values = read_moments(groups.source, mechanism.space, model)
        asked = squares_of(outcome, cells, spread_budget)
        measurement, squares = groups.measure(f"regression of {outcome.column}", mechanism, values, asked)
    return LinearFit(Moments(mechanism, measurement, model), squares)


def _by_cells(groups: Groups, outcome: Outcome, cells: Sequence[Margin]) -> SumSpace:
    """Return the space of the sums by the cells of a design; refuse cells whose counts are not published."""
    if not groups.dataspace.publishes(cells[0]):
        raise Refused(
            f"the spread is measured by {cells[0]}, whose counts are not published: publish them, or give no "
            "spread_budget",
            needs="margin",
            names=cells[0].names,
        )
    return sum_space(groups.dataspace, groups.adjacency, outcome, cells)


def published(factors: Sequence[str], design: Design | None, invariants: Sequence[Margin] | None) -> Sequence[Margin]:
    """Return what is published: as said, or the joint counts of the design's features."""
    if invariants is not None:
        return invariants
    names = factors if design is None else design.features
    if not names:
        raise InputError("a regression needs features: name factors, or give a design and what is published")
    return (Margin(*names),)


def chosen(schema: Schema, factors: Sequence[str], design: Design | None) -> Design:
    """Return the design that was given, on the schema of the data, or that of the main effects of the factors."""
    if design is None:
        return Design.of(schema, factors)
    if factors:
        raise InputError("give factors or a design, not both")
    for name in design.features:
        if design.schema.feature(name) != schema.feature(name):
            raise InputError(
                f"the design has other levels of {name!r} than the data: declare the feature alike for both"
            )
    return design


def logistic_regression(
    data: Any,
    column: str,
    budget: Budget,
    *,
    factors: Sequence[str] = (),
    design: Design | None = None,
    invariants: Sequence[Margin] | None = None,
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> LogisticFit:
    """Fit a logistic regression of a private column of zeros and ones on features whose joint counts are published.

    The parameters are those of `linear_regression`.
    """
    outcome = Outcome(column, 0, 1, steps=1)
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency, ledger, randomness) as groups:
        model = chosen(groups.schema, factors, design)
        joint_counts(model, groups.dataspace)
        mechanism = regression_mechanism(groups.dataspace, groups.adjacency, outcome, model, budget)
        check_binary(groups.source, column)
        values = read_moments(groups.source, mechanism.space, model)
        measurement, _ = groups.measure(f"logistic regression of {column}", mechanism, values)
    return LogisticFit(Moments(mechanism, measurement, model))
