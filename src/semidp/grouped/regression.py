"""Linear regression on public groups: X'X is exact, and only X'y needs noise.

Designs are in `queries.designs`, what may be measured for them in `queries.routes`; logistic regression is in
`logistic`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome
from semidp.errors import InputError
from semidp.exact import Number
from semidp.grouped.inputs import open_groups, read_moments
from semidp.grouped.intervals import LEVEL, Intervals, each_level, half_widths, level_of
from semidp.grouped.outcome_spread import FromNoise, NoisyPart, SquareSum
from semidp.mechanisms import AUTO, Measurement, Mechanism, outcome_mechanism
from semidp.noise import Randomness
from semidp.queries import Design, MomentSpace, RouteSpace, SumSpace, moment_map, regression_routes
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature, Schema
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """A noisy X'y of a design with public moments: what both regressions are computed from.

    Parameters
    ----------
    mechanism, measurement
        What was measured: any query that X'y follows from, see `regression_mechanism`.
    design
        The design; that of the query, where X'y itself was measured.
    """

    mechanism: Mechanism
    measurement: Measurement
    model: Design | None = None

    @property
    def space(self) -> RouteSpace:
        """The sensitivity space that the noise is calibrated to."""
        space = self.mechanism.space
        assert isinstance(space, (SumSpace, MomentSpace))
        return space

    @property
    def design(self) -> Design:
        """The design."""
        if self.model is not None:
            return self.model
        assert isinstance(self.space, MomentSpace), "sums by group need a design"
        return self.space.design

    @property
    def values(self) -> Floats:
        """The noisy ``Σ z_i (y_i - lower)``, in units of the outcome."""
        steps = moment_map(self.space, self.design) @ self.measurement.projected
        return np.asarray(steps) * float(self.space.outcome.width)

    @cached_property
    def noise_weights(self) -> Floats:
        """How much of the noise in each entry of the query is in each of `values`."""
        return noise_weights(self.space, self.design)

    @cached_property
    def noise_covariance(self) -> Floats:
        """The covariance of the noise in `values`."""
        return noise_covariance(self.mechanism, self.design)

    @cached_property
    def gram(self) -> Floats:
        """X'X, exact but for its conversion to floats."""
        return gram_of(self.design, self.space.dataspace)

    @cached_property
    def totals(self) -> Floats:
        """Σz, from the published counts."""
        dataspace = self.space.dataspace
        found = []
        for column in self.design.columns:
            names = column.features
            counts = dataspace.value(Margin(*names)).counts.ravel().tolist() if names else [dataspace.n or 0]
            total = sum((value * count for value, count in zip(column.values, counts, strict=True)), Fraction(0))
            found.append(float(total))
        return np.array(found)


def gram_of(design: Design, dataspace: Dataspace) -> Floats:
    """Return X'X of a design from the published counts, exact but for its conversion to floats."""
    scale = design.multiplier**2
    return np.array([[value / scale for value in row] for row in design.gram(dataspace).tolist()])


def noise_weights(space: RouteSpace, design: Design) -> Floats:
    """Return ``T P`` for ``X'y = T q`` with the query q and the projection P of its space, in units of the outcome."""
    rows = moment_map(space, design)
    if isinstance(space, SumSpace):
        rows = np.stack([space.project(row) for row in rows])
    return rows * float(space.outcome.width)


def noise_covariance(mechanism: Mechanism, design: Design) -> Floats:
    """Return the covariance of the noise in X'y that follows from what a mechanism measures, ``τ² T P T'``."""
    assert isinstance(mechanism.space, (SumSpace, MomentSpace))
    weights = noise_weights(mechanism.space, design)
    return np.asarray(weights @ weights.T) * mechanism.variance


def regression_mechanism(
    dataspace: Dataspace, adjacency: Adjacency, outcome: Outcome, design: Design, budget: Budget, name: str = AUTO
) -> Mechanism:
    """Return the mechanism for a regression: of the queries that X'y follows from, the one with the least noise.

    What is compared is the mean variance of the noise in the fitted values over the records, ``tr((X'X)^-1 N)`` with N
    the announced covariance of X'y: a function of the published counts and of the budget, and the same for any coding.

    >>> from semidp.tables import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = Dataspace.of(table, [Margin("arm", "sex")]), Outcome("score", 0, 1, steps=100)
    >>> design = Design.of(table.schema, ["arm", "sex"])
    >>> for budget in (Budget.gdp(1), Budget.pure(1)):
    ...     found = regression_mechanism(public, Adjacency(2), outcome, design, budget)
    ...     print(found.name, found.space.query()["kind"], found.space.shape)
    rounded gaussian moments (3,)
    laplace sums (4,)
    """
    inverse = np.linalg.inv(gram_of(design, dataspace))
    routes = regression_routes(dataspace, adjacency, outcome, design)
    found = [outcome_mechanism(space, budget, name) for space in routes]
    return min(found, key=lambda mechanism: float(np.sum(inverse * noise_covariance(mechanism, design))))


@dataclass(frozen=True, eq=False)
class RegressionFit(FromNoise):
    """What both regressions share."""

    moments: Moments

    def _measured(self) -> Iterable[NoisyPart | None]:
        return (self.moments,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients."""
        return self.moments.design.names

    @cached_property
    def coefficients(self) -> Floats:
        """The estimated coefficients."""
        raise NotImplementedError

    def _intervals(
        self, inverse: NDArray[Any], level: Fraction, sampling: NDArray[Any] | None, simultaneous: bool
    ) -> tuple[Intervals, Floats]:
        """Return ``β_j ± h``, and h: `inverse` takes the noise in X'y to β, `sampling` holds further variances of β."""
        mechanism = self.moments.mechanism
        half = half_widths(
            mechanism,
            list(inverse @ self.moments.noise_weights),
            each_level(level, len(self.names), mechanism, simultaneous),
            None if sampling is None else list(sampling[:, None]),
        )
        names = ((name,) for name in self.names)
        return Intervals.around(names, self.coefficients, half, level, sampling is not None, simultaneous), half


@dataclass(frozen=True, eq=False)
class LinearFit(RegressionFit):
    """Least squares from an exact X'X and a noisy X'y: ``β = (X'X)^-1 X'y``. Unbiased, whatever the noise.

    Examples
    --------
    >>> from semidp.noise import SeededRandomness
    >>> records = {"arm": np.repeat(["control", "drug"], 300), "days": np.repeat([7, 4], 300)}
    >>> fit = linear_regression(records, Outcome("days", 0, 10, steps=10), Budget.gdp(1), factors=["arm"],
    ...                         randomness=SeededRandomness(1))
    >>> fit.names, fit.coefficients.round().tolist()
    (('intercept', 'arm=drug'), [7.0, -3.0])
    >>> fit.standard_errors().round(2).tolist()
    [0.07, 0.09]
    >>> found = fit.intervals()
    >>> bool((found.lower < [7, -3]).all() and (found.upper > [7, -3]).all()), str(found.about)
    (True, 'noise')
    """

    squares: SquareSum | None = None

    def _measured(self) -> Iterable[NoisyPart | None]:
        return self.moments, self.squares

    @cached_property
    def coefficients(self) -> Floats:
        """The estimated coefficients."""
        lower = float(self.moments.space.outcome.lower)
        return np.asarray(
            np.linalg.solve(self.moments.gram, self.moments.values + lower * self.moments.totals), dtype=np.float64
        )

    def residual_sd(self) -> float:
        """Return the residual standard deviation from the measured sum of squares.

        ``(Σ y² - m'(X'X)^-1 m)/(n - d)`` with m = X'y, corrected for the noise's ``tr (X'X)^-1 N`` with N its
        covariance; y above its lower bound.
        """
        if self.squares is None:
            raise InputError(
                "the residual spread was not measured: give a spread_budget, or the standard deviation if it is known"
            )
        inverse = np.linalg.inv(self.moments.gram)
        explained = float(self.moments.values @ inverse @ self.moments.values)
        explained -= float(np.sum(inverse * self.moments.noise_covariance))
        n = self.moments.space.dataspace.n or 0
        return self.squares.left_over(explained, n - len(self.names))

    def widest_sd(self) -> float:
        """Return the largest residual standard deviation that the fit and the bounds allow.

        Values y between 0 and B have ``Σ y² <= B Σ y``; the rest is as in `residual_sd`.
        """
        outcome, inverse = self.moments.space.outcome, np.linalg.inv(self.moments.gram)
        range_, n = float(outcome.upper - outcome.lower), self.moments.space.dataspace.n or 0
        fitted = inverse @ self.moments.values
        explained = float(self.moments.values @ fitted) - float(np.sum(inverse * self.moments.noise_covariance))
        variance = (range_ * float(self.moments.totals @ fitted) - explained) / max(n - len(self.names), 1)
        return math.sqrt(min(max(variance, 0.0), range_**2 / 4))

    def covariance(self, residual_sd: float | None = None) -> Floats:
        """Return the covariance of the coefficients: ``(X'X)^-1 N (X'X)^-1``, plus ``σ² (X'X)^-1`` where σ is given.

        N is the covariance of the noise in X'y.

        Parameters
        ----------
        residual_sd
            σ, the residual standard deviation: known, or from `residual_sd`. Without it the errors are those of the
            noise alone, about the regression on the records themselves.
        """
        inverse = np.linalg.inv(self.moments.gram)
        sampling = 0.0 if residual_sd is None else residual_sd**2 * inverse
        return np.asarray(inverse @ self.moments.noise_covariance @ inverse + sampling)

    def standard_errors(self, residual_sd: float | None = None) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(residual_sd)))

    def intervals(
        self, level: Number = LEVEL, *, residual_sd: float | None = None, simultaneous: bool = False
    ) -> Intervals:
        """Return an interval for each coefficient: of the regression on the records, or on their population.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        residual_sd
            σ, for the population; without it the intervals hold for the regression on the records themselves.
        simultaneous
            Whether all intervals hold at once with that probability.
        """
        inverse = np.linalg.inv(self.moments.gram)
        sampling = None if residual_sd is None else residual_sd**2 * np.diag(inverse)
        return self._intervals(inverse, level_of(level), sampling, simultaneous)[0]


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
        What may be spent on a sum of squares, from which `LinearFit.residual_sd` follows.
    """
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency, ledger, randomness) as groups:
        model = chosen(groups.schema, factors, design)
        mechanism = regression_mechanism(groups.dataspace, groups.adjacency, outcome, model, budget)
        values = read_moments(groups.source, mechanism.space, model)
        label = f"regression of {outcome.column}"
        measurement, squares = groups.measure(label, mechanism, values, outcome, spread_budget)
    return LinearFit(Moments(mechanism, measurement, model), squares)


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
