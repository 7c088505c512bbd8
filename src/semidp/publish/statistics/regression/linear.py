"""Linear regression on public groups: X'X is exact, and only X'y needs noise.

Designs are in `moments`, what may be measured for them in `routes`; logistic
regression is in `logistic`.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import Number, parse_level
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import Design, MomentSpace
from semidp.promise.sensitivity.outcome_spaces import SumSpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import AUTO, outcome_mechanism
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.outcomes.noise_law import (
    LEVEL,
    About,
    Intervals,
    each_level,
    half_widths,
)
from semidp.publish.statistics.regression.routes import RouteSpace, moment_map, regression_routes

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

    @cached_property
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
        return gram_matrix(self.design, self.space.dataspace)

    @cached_property
    def totals(self) -> Floats:
        """Σz, from the published counts."""
        dataspace = self.space.dataspace
        sums = []
        for column in self.design.columns:
            names = column.features
            counts = (
                dataspace.value(Margin(*names)).counts.ravel().tolist()
                if names
                else [dataspace.n or 0]
            )
            total = sum(
                (value * count for value, count in zip(column.values, counts, strict=True)),
                Fraction(0),
            )
            sums.append(float(total))
        return np.array(sums)


def gram_matrix(design: Design, dataspace: Dataspace) -> Floats:
    """Return X'X of a design from the published counts, exact but for its conversion to floats."""
    # Python's division of whole numbers rounds once, however large they are.
    whole = design.gram(dataspace).astype(object)
    return np.asarray(whole / design.multiplier**2, dtype=np.float64)


def noise_weights(space: RouteSpace, design: Design) -> Floats:
    """Return ``T P`` for ``X'y = T q`` with the query q and the projection P of its space, in units
    of the outcome.
    """
    rows = moment_map(space, design)
    # P is symmetric, so its action on the rows of T gives T P. X'y itself is not projected.
    if isinstance(space, SumSpace):
        rows = np.stack([space.project(row) for row in rows])
    return rows * float(space.outcome.width)


def noise_covariance(mechanism: Mechanism, design: Design) -> Floats:
    """Return the covariance of the noise in X'y that follows from what a mechanism measures,
    ``τ² T P T'``.
    """
    assert isinstance(mechanism.space, (SumSpace, MomentSpace))
    weights = noise_weights(mechanism.space, design)
    return np.asarray(weights @ weights.T) * mechanism.variance


def regression_mechanism(
    dataspace: Dataspace,
    adjacency: Adjacency,
    outcome: Outcome,
    design: Design,
    budget: Budget,
    name: str = AUTO,
) -> Mechanism:
    """Return the mechanism for a regression: of the queries that X'y follows from, the one with the
    least noise.

    What is compared is the mean variance of the noise in the fitted values over the records,
    ``tr((X'X)^-1 N)`` with N the announced covariance of X'y: a function of the published counts
    and of the budget, and the same for any coding.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp import Feature, Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = (
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]),
    ...     Outcome("score", 0, 1, steps=100),
    ... )
    >>> design = Design.from_schema(table.schema, ["arm", "sex"])
    >>> for budget in (Budget.gdp(1), Budget.pure(1)):
    ...     found = regression_mechanism(public, Ball(2), outcome, design, budget)
    ...     print(found.name, found.space.query()["kind"], found.space.shape)
    rounded gaussian moments (3,)
    laplace sums (4,)
    """
    inverse = np.linalg.inv(gram_matrix(design, dataspace))
    routes = regression_routes(dataspace, adjacency, outcome, design)
    mechanisms = [outcome_mechanism(space, budget, name) for space in routes]

    def noise_in_coefficients(mechanism: Mechanism) -> float:
        """The sum of the variances that the noise adds to all coefficients: trace of (X'X)^-1 times
        its covariance.
        """
        return float(np.sum(inverse * noise_covariance(mechanism, design)))

    return min(mechanisms, key=noise_in_coefficients)


@dataclass(frozen=True, eq=False)
class RegressionFit:
    """What both regressions share."""

    moments: Moments

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of what was measured."""
        return self.mechanism.guarantee

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return self.measurement.private

    @property
    def mechanism(self) -> Mechanism:
        """How X'y was measured."""
        return self.moments.mechanism

    @property
    def measurement(self) -> Measurement:
        """What was measured."""
        return self.moments.measurement

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients."""
        return self.moments.design.names

    @property
    def _cluster(self) -> int:
        """The most records of one person, which may vary together."""
        return self.moments.space.adjacency.most_records

    @cached_property
    def coefficients(self) -> Floats:
        """The estimated coefficients."""
        raise NotImplementedError

    def _intervals(
        self,
        inverse: NDArray[Any],
        level: Fraction,
        sampling: NDArray[Any] | None,
        simultaneous: bool,
    ) -> tuple[Intervals, Floats]:
        """Return ``β_j ± h``, and h: `inverse` takes the noise in X'y to β, `sampling` holds
        further variances of β.
        """
        mechanism = self.moments.mechanism
        both = sampling is not None
        weights = list(inverse @ self.moments.noise_weights)
        each = each_level(level, len(self.names), mechanism, simultaneous, sampling=both)
        variances = None if sampling is None else sampling.tolist()
        half = half_widths(mechanism, weights, each, variances)
        names = ((name,) for name in self.names)
        intervals = Intervals.around(names, self.coefficients, half, level, simultaneous)
        if both:
            intervals = replace(intervals, about=About.sampling, exact=False)
        return intervals, half


@dataclass(frozen=True, eq=False)
class LinearFit(RegressionFit):
    """Least squares from an exact X'X and a noisy X'y: ``β = (X'X)^-1 X'y``. Unbiased, whatever the
    noise.

    Examples
    --------
    >>> from semidp import promise, publish
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> arms = Table(Schema([Feature("arm", ["control", "drug"])]), [300, 300])
    >>> public = Dataspace.from_table(arms, [Margin("arm")])
    >>> design = Design.from_schema(arms.schema, ["arm"])
    >>> about = public, promise.outcome_adjacency(public), Outcome("days", 0, 10, steps=10), design
    >>> mechanism = regression_mechanism(*about, Budget.gdp(1))
    >>> true = publish.route_values(mechanism.space, design, np.array([300 * 7, 300 * 4]))
    >>> measured = mechanism.measure(true, promise.SeededRandomness(1))
    >>> fit = LinearFit(Moments(mechanism, measured, design))
    >>> fit.names, fit.coefficients.round().tolist()
    (('intercept', 'arm=drug'), [7.0, -3.0])
    >>> fit.standard_errors().round(2).tolist()
    [0.07, 0.09]
    >>> found = fit.intervals()
    >>> bool((found.lower < [7, -3]).all() and (found.upper > [7, -3]).all()), str(found.about)
    (True, 'noise')
    """

    @cached_property
    def coefficients(self) -> Floats:
        """The estimated coefficients."""
        # What was measured counts from the lower bound. Σz is public, so adding lower · Σz costs no
        # noise.
        lower = float(self.moments.space.outcome.lower)
        return np.asarray(
            np.linalg.solve(self.moments.gram, self.moments.values + lower * self.moments.totals),
            dtype=np.float64,
        )

    def covariance(self) -> Floats:
        """Return the covariance of the coefficients by the noise: ``(X'X)^-1 N (X'X)^-1``, N that
        of X'y.
        """
        inverse = np.linalg.inv(self.moments.gram)
        return np.asarray(inverse @ self.moments.noise_covariance @ inverse)

    def standard_errors(self) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance()))

    def intervals(
        self,
        level: Number = LEVEL,
        *,
        sampling: bool = False,
        simultaneous: bool = False,
    ) -> Intervals:
        """Return an interval for each coefficient: of the regression on the records, or on their
        population.

        A coefficient is a weighted sum of the means of the cells, ``β = (X'X)^-1 Σ_g n_g z_g m_g``.
        Where sums by cell were measured, its interval for the population is that of such a sum
        (`population.SampledMeans`), with the variances v_g that the bounds allow in each cell:
        ``Σ_g n_g z_g z_g' v_g`` in the middle of ``(X'X)^-1 … (X'X)^-1``, and never one spread for
        all. Other designs take ``v = (u - l)²/4``, the largest.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        sampling
            Whether it is about the population that the records were drawn from.
        simultaneous
            Whether all intervals hold at once with that probability.
        """
        inverse = np.linalg.inv(self.moments.gram)
        confidence = parse_level(level)
        space = self.moments.space
        outcome = space.outcome
        variances: NDArray[Any] | None = None
        if sampling:
            # Values between two bounds never spread more than half of the distance between them.
            widest = float(outcome.upper - outcome.lower) / 2
            variances = self._cluster * widest**2 * np.diag(inverse)
        if sampling and isinstance(space, SumSpace) and len(space.blocks) == 1:
            intervals = self._by_cell(space, inverse, confidence, simultaneous)
        else:
            intervals = self._intervals(inverse, confidence, variances, simultaneous)[0]
        rounding = self._rounding(inverse)
        return replace(
            intervals, lower=intervals.lower - rounding, upper=intervals.upper + rounding
        )

    def _rounding(self, inverse: NDArray[Any]) -> Floats:
        """Return by how much rounding to the grid can have moved each coefficient.

        A record moves β_j by ``|((X'X)^-1 z_i)_j|`` times the rounding of its outcome at most. The
        squares of these weights sum to ``(X'X)^-1_jj``, so that they themselves sum to at most
        ``sqrt(n (X'X)^-1_jj)``, where the records of a cell are not known.
        """
        space, design = self.moments.space, self.moments.design
        weights = np.sqrt(float(space.dataspace.n) * np.diag(inverse))
        if isinstance(space, SumSpace) and len(space.blocks) == 1:
            of_cells = np.abs(inverse @ moment_map(space, design))
            weights = of_cells @ space.counts[0].ravel()
        return np.asarray(float(space.outcome.rounding) * weights)

    def _by_cell(
        self, space: SumSpace, inverse: NDArray[Any], level: Fraction, simultaneous: bool
    ) -> Intervals:
        """Return intervals for the population from the means of the cells, each with a spread of
        its own.
        """
        moments = self.moments
        cells = GroupSums(moments.mechanism, moments.measurement)
        each = each_level(level, len(self.names), moments.mechanism, simultaneous, sampling=True)
        occupied = space.counts[0].ravel() > 0
        # A coefficient is a weighted sum of the sums of the cells, and a sum is a mean times an
        # exact count.
        weights_of_sums = (inverse @ moment_map(space, moments.design))[:, occupied]
        weights = weights_of_sums * space.counts[0].ravel()[occupied]
        places = np.tile(np.arange(int(occupied.sum())), (len(weights), 1))
        low, high = cells.sampled_means(0, each).weighted_sum_ends(places, weights)
        names = tuple((name,) for name in self.names)
        about = level, About.sampling, simultaneous, False
        return Intervals(names, self.coefficients, low, high, *about)
