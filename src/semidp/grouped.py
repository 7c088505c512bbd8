"""Statistics by groups in one call: sums, means, proportions, quantiles, distributions, regressions
of an outcome.

Each is a front of a request: the pipeline opens the records, charges the ledger and measures.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.core.exact import Number
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Margin
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError, Refused
from semidp.mechanisms.mechanism import Measurement, Mechanism
from semidp.noise.randomness import Randomness
from semidp.publishing.pipeline import RunOptions, measured, prepare
from semidp.publishing.plan import AdjacencyChoice, Plan
from semidp.queries.query_space import QuerySpace
from semidp.sources.contract import Outcome
from semidp.sources.opening import Source
from semidp.sources.reader import Reader
from semidp.statistics.distribution.distribution_estimates import GroupDistributions
from semidp.statistics.distribution.request import DistributionRequest
from semidp.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.statistics.outcomes.groups import By, blocks_of
from semidp.statistics.outcomes.intervals import LEVEL
from semidp.statistics.outcomes.request import Statistic, proportion_of
from semidp.statistics.outcomes.spaces import SumSpace, sum_space
from semidp.statistics.outcomes.spread import SquareSums, squared_steps
from semidp.statistics.protocol.requests import Request
from semidp.statistics.quantiles.quantile_estimates import MEDIAN, GroupQuantiles
from semidp.statistics.quantiles.request import QuantileRequest
from semidp.statistics.regression.designs import Design
from semidp.statistics.regression.linear import LinearFit, Moments
from semidp.statistics.regression.logistic import LogisticFit
from semidp.statistics.regression.moments import MomentSpace
from semidp.statistics.regression.request import Model, RegressionRequest
from semidp.statistics.sums.request import GroupRequest

SQUARE_STEPS = 100
"""The grid on which outcomes are squared has at most this many steps."""

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
    return _sums(Statistic.sum, data, outcome, blocks_of(by), budget, spread_budget, **options)


def means(data: Any, outcome: Outcome, by: By, budget: Budget, **options: Any) -> Estimates:
    """Release means of an outcome by groups; the parameters are those of `sums`.

    >>> from semidp.noise.randomness import SeededRandomness
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

    >>> from semidp.noise.randomness import SeededRandomness
    >>> records = {"ward": np.repeat(["a", "b"], 500), "cured": np.repeat([0, 1], 500)}
    >>> proportions(
    ...     records, "cured", ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)
    ... ).values.round(1).tolist()
    [0.0, 1.0]
    """
    block = _one(by)
    shares = _sums(
        Statistic.proportion, data, proportion_of(column), (block,), budget, **options
    ).means(block)
    return replace(shares, rounding=np.zeros(len(shares.groups)))  # ones and zeros lie on the grid


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
    blocks = blocks_of(by)
    request = _Quantiles(outcome, blocks, probabilities, budget, level=level, sampling=sampling)
    (chosen,) = _measured(f"quantiles of {outcome.column}", data, [request], blocks, **options)
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
    >>> from semidp.noise.randomness import SeededRandomness
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
    blocks = blocks_of(by)
    request = _Distributions(outcome, blocks, budget=budget, level=level)
    ((mechanism, differences),) = _measured(
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
    public = _published(factors, design, invariants)
    asked: dict[str, Any] = {"factors": factors, "given": design, "public": public}
    # Squares are measured by cell, and need the sums by cell to be measured, too.
    if spread_budget is None:
        requests: list[_Designed] = [_Designed(outcome, budget=budget, **asked)]
    else:
        grid = _square_grid(outcome)
        squares = _SquaresByCell(
            grid, budget=spread_budget, name=f"squares-{outcome.column}", **asked
        )
        requests = [_ByCell(outcome, budget=budget, **asked), squares]
    label = f"regression of {outcome.column}"
    (mechanism, measurement), *spread = _measured(label, data, requests, public, **options)
    # On the schema that was measured: its levels may have been read from the data.
    model = requests[0].design_in(mechanism)
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
    public = _published(factors, design, invariants)
    request = _Designed(
        proportion_of(column), factors, budget, model=Model.logistic, given=design, public=public
    )
    label = f"logistic regression of {column}"
    ((mechanism, measurement),) = _measured(label, data, [request], public, **options)
    return LogisticFit(Moments(mechanism, measurement, request.design_in(mechanism)))


# --- what the pipeline is given -------------------------------------------------------------------


def _measured(
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
    """Let the pipeline prepare, charge and measure requests; return each mechanism with what it
    measured.
    """
    margins = (*public, *invariants)
    if not any(margin.names for margin in margins):
        raise InputError(
            "grouped statistics need exact group counts: name at least one published margin"
        )
    plan = Plan(requests, margins, features, adjacency=_reading(adjacency))
    # A source that is open already was opened in its own way, and a plan must say the same.
    if isinstance(data, Source):
        plan = evolve(plan, count=data.count, where=data.where, id=data.id, most=data.most)
    options = RunOptions(randomness=randomness, ledger=ledger, label=label)
    prepared = prepare(plan, data)
    # No folder is written here; the ledger is still charged before any noise is drawn.
    _, measurements = measured(prepared, options, ledger)
    return list(zip(prepared.mechanisms, measurements, strict=True))


def _reading(adjacency: Adjacency | None) -> AdjacencyChoice | int:
    """Return how a plan says which datasets are compared."""
    if adjacency is None:
        return AdjacencyChoice.worst_case
    # A plan names exchanges by their kind: how many records they change follows from the totals.
    return adjacency.a if adjacency.protects_groups else AdjacencyChoice.exchange


def _one(by: By) -> Margin:
    blocks = blocks_of(by)
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
    requests: list[Request] = [_Sums(statistic, outcome, blocks, budget)]
    grid = _square_grid(outcome)
    # Of a yes or no the squares follow from the sums: measuring them would be wasted.
    if spread_budget is not None and outcome.steps > 1:
        requests.append(
            _Squares(statistic, grid, blocks, spread_budget, name=f"squares-{outcome.column}")
        )
    measured = _measured(f"sums of {outcome.column}", data, requests, blocks, **options)
    (mechanism, measurement), *spread = measured
    return GroupSums(mechanism, measurement, SquareSums(grid, *spread[0]) if spread else None)


def _square_grid(outcome: Outcome) -> Outcome:
    """Return an outcome on the grid on which it is squared.

    >>> _square_grid(Outcome("score", 0, 1, steps=1000)).steps
    100
    """
    # Squares are read from a histogram with a column a step: a coarse grid keeps it small.
    return Outcome(outcome.column, outcome.lower, outcome.upper, min(outcome.steps, SQUARE_STEPS))


def _published(
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


@frozen
class _Sums(GroupRequest):
    """Sums by groups; one set may be all records."""

    def _check_groups(self, they_need: str, they_are: str) -> None:
        """Take any sets: what is not public is refused by the query space."""


@frozen
class _Quantiles(QuantileRequest):
    """Quantiles by groups; one set may be all records. They are chosen: `distributions` measures
    the other way.
    """

    @property
    def answered_by(self) -> str:
        """Quantiles themselves."""
        return self.key

    def _check_groups(self, they_need: str, they_are: str) -> None:
        """Take any sets: what is not public is refused by the query space."""


@frozen
class _Distributions(DistributionRequest):
    """Distributions by groups; one set may be all records."""

    def _check_groups(self, they_need: str, they_are: str) -> None:
        """Take any sets: what is not public is refused by the query space."""


@frozen
class _Squares(_Sums):
    """Sums of ``(2y - B)²`` by groups, an outcome of B² steps."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the squares."""
        return _square_space(scope, self.outcome, self.by)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums of squares."""
        return _squares_of(reader, self.outcome, self.by)


def _square_space(scope: Scope, grid: Outcome, by: Sequence[Margin]) -> QuerySpace:
    # (2y - B)² lies between 0 and B², so that one record moves it like any outcome of B² steps.
    squares = Outcome(grid.column, Fraction(0), Fraction(1), grid.steps**2)
    return sum_space(scope.dataspace, scope.adjacency, squares, by)


def _squares_of(reader: Reader, grid: Outcome, by: Sequence[Margin]) -> NDArray[np.int64]:
    counts = [reader.histogram(block.names, grid) for block in by]
    return np.concatenate([part @ squared_steps(grid.steps) for part in counts])


@frozen
class _Designed(RegressionRequest):
    """A regression on any design, of which only what `public` names is published."""

    given: Design | None = None
    public: tuple[Margin, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Take any design: the query space refuses what does not follow from what is public."""

    @property
    def features(self) -> tuple[str, ...]:
        """The published features, in their order."""
        return tuple(dict.fromkeys(name for margin in self.public for name in margin.names))

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """What is published."""
        return self.public

    def design(self, scope: Scope) -> Design:
        """Return the design on the schema of the data."""
        return self._design_on(scope.dataspace.schema)

    def design_in(self, mechanism: Mechanism) -> Design:
        """Return the design on the schema of what was measured."""
        space = mechanism.space
        assert isinstance(space, (SumSpace, MomentSpace))
        return self._design_on(space.dataspace.schema)

    def _design_on(self, schema: Schema) -> Design:
        """Return the design that was given, or that of the main effects of the factors."""
        if self.given is None:
            return Design.of(schema, self.factors)
        if self.factors:
            raise InputError("give factors or a design, not both")
        for name in self.given.features:
            # Other levels would be other columns of X, and the fit would be wrong without a word.
            if self.given.schema.feature(name) != schema.feature(name):
                raise InputError(
                    f"the design has other levels of {name!r} than the data: declare the feature"
                    " alike for both"
                )
        return self.given


@frozen
class _ByCell(_Designed):
    """The sums by the cells of a design, which X'y follows from."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by cell; refuse cells whose counts are not published."""
        model = self.design(scope)
        # refuses moments that are not public, and columns that depend on each other
        model.gram(scope.dataspace)
        cells = Margin(*model.features)
        if not scope.dataspace.publishes(cells):
            raise Refused(
                f"the spread is measured by {cells}, whose counts are not published: publish them,"
                " or give no spread_budget",
                needs="margin",
                names=cells.names,
            )
        return sum_space(scope.dataspace, scope.adjacency, self.outcome, (cells,))


@frozen
class _SquaresByCell(_Designed):
    """Sums of squares by the cells of a design."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the squares."""
        return _square_space(scope, self.outcome, (Margin(*self.design(scope).features),))

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums of squares."""
        return _squares_of(reader, self.outcome, (Margin(*self.design(scope).features),))
