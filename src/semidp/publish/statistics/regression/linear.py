"""Linear regression on public groups: X'X is exact, and only X'y needs noise; and what to measure
for it.

X'y follows from the sums of the outcome by cell, from the sums by the groups of each term, and from
well-chosen combinations of the columns; none of them depends on how factors are coded. Which is
best depends on the published counts and on the noise. Designs are in `moments`; logistic regression
is in `logistic`.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import Number, parse_level
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import Design, MomentSpace, moment_space
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins
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

RouteSpace = SumSpace | MomentSpace
"""A query that X'y follows from."""

_PRIME = 2**31 - 1
# of the whole numbers that combine columns: noise is near its best shape
_FINENESS, _FINEST = 2**10, 2**20
_STEPS = 60  # towards the best shape of the noise
_MOST_WORK = 2**25  # cells times squared columns, beyond which combinations are not sought


def regression_routes(
    dataspace: Dataspace, adjacency: Adjacency, outcome: Outcome, design: Design
) -> tuple[RouteSpace, ...]:
    """Return the queries from which X'y of a design follows; refuse a design whose moments are not
    public.

    *Cells*, where the joint counts are published: the sums of y by cell, ``Δ2 = a B`` whatever the
    design. *Terms*: the sums by the levels of each term, ``Δ2 = a B √p`` for p terms.
    *Combinations*: C X'y with the C that minimises the mean variance of the fitted values, where
    the rows C z have at most unit length (`best_combination`). Where all cells are free (one
    factor, or all interactions) this is *cells*.

    The space that the columns span decides all three, and the coding of factors does not change it.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = (
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> routes = regression_routes(
    ...     public, Ball(2), outcome, Design.from_schema(table.schema, ["arm", "sex"])
    ... )
    >>> [route.shape for route in routes]
    [(4,), (4,), (3,)]
    """
    # refuses moments that are not public, and columns that depend on each other
    design.gram(dataspace)
    joint = Margin(*design.features)
    routes: list[RouteSpace] = []
    if dataspace.publishes(joint):
        routes.append(sum_space(dataspace, adjacency, outcome, [joint]))
    margins = [Margin(*column.features) for column in design.columns]
    terms = normalize_margins(design.schema, margins) or (Margin(),)
    # A single term spans all features of the design, so its groups are the cells, listed already.
    if not routes or len(terms) > 1:
        routes.append(sum_space(dataspace, adjacency, outcome, terms))
    cells = int(design.inhabited_mask(dataspace).sum())
    # With as many columns as cells the best combination is to measure the cells themselves.
    columns = len(design.columns)
    work = cells * columns**2
    if columns < cells and work <= _MOST_WORK:
        combination = best_combination(design, dataspace)
        if combination:
            routes.append(moment_space(dataspace, adjacency, outcome, design, combination))
    return tuple(routes)


def route_values(space: RouteSpace, design: Design, sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the confidential values of a route's query from the sums of the outcome by the cells
    of a design.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 3], [2, 4]])
    >>> design, outcome = (
    ...     Design.from_schema(table.schema, ["arm", "sex"]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> routes = regression_routes(
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]), Ball(2), outcome, design
    ... )
    >>> route_values(routes[1], design, np.array([[1, 2], [0, 3]])).tolist()
    [3, 3, 1, 5]
    """
    if isinstance(space, MomentSpace):
        # Python's whole numbers cannot overflow, so the size is checked before the values become 64
        # bits.
        whole = space.rows_by_cell.T @ sums.ravel().astype(object)
        if any(abs(value) >= 2**62 for value in whole):
            raise InputError(
                "X'y does not fit in 62 bits: use a coarser grid, or scores with smaller"
                " denominators"
            )
        return np.array(whole, dtype=np.int64)
    schema = design.schema
    source = schema.view(design.features)
    table = sums.reshape(schema.grid.compute_margin_shape(source))
    parts = []
    for block in space.blocks:
        summed = schema.grid.sum(table, schema.view(block.names), source)
        parts.append(summed.ravel())
    return np.concatenate(parts).astype(np.int64)


def moment_map(space: RouteSpace, design: Design) -> Floats:
    """Return the matrix T with ``X'y = T q`` for the values q of a route's query, a row a column of
    the design.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cde")]), [5, 3, 4])
    >>> design, outcome = Design.from_schema(table.schema, ["arm"]), Outcome("score", 0, 1, steps=1)
    >>> (cells,) = regression_routes(
    ...     Dataspace.from_table(table, [Margin("arm")]), Ball(2), outcome, design
    ... )
    >>> moment_map(cells, design).tolist()
    [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if isinstance(space, MomentSpace):
        if not space.combination:
            return np.eye(len(design.columns)) / design.multiplier
        exact_rows = np.array(space.combination, dtype=object)
        return np.linalg.inv(exact_rows.astype(np.float64))
    to_moments = np.zeros((len(design.columns), *space.shape))
    grid, view = design.schema.grid, design.schema.view
    for row, column in zip(to_moments, design.columns, strict=True):
        values = np.array([float(value) for value in column.values])
        for block, part in zip(space.blocks, space.slices, strict=True):
            # One block gives the whole column: adding it from a second one would count it twice.
            inside = set(column.features) <= set(design.schema.complete_names(block.names))
            if inside:
                labels = grid.labels(view(column.features), view(block.names))
                row[part] = values[labels]
                break
    return to_moments


def best_combination(design: Design, dataspace: Dataspace) -> tuple[tuple[Fraction, ...], ...]:
    """Return the C for which C X'y, measured with independent noise, gives the fitted values most
    exactly.

    With rows z_c of the possible cells, noise that suits rows of at most unit length gives X'y the
    covariance V with ``z_c' V^-1 z_c <= 1`` in each cell. The mean variance of the fitted values
    over the records is ``tr((X'X)^-1 V)``; with ``u = (X'X)^{-1/2} z`` it is least for
    ``V = (Σ w_c u_c u_c')^{1/2}`` and weights with ``u_c' V^-1 u_c = 1`` where w_c > 0. Weights are
    found by multiplying each with its ``u_c' V^-1 u_c``, and C is rounded to whole numbers. Only
    accuracy depends on how well this is solved: how far records move the rows is computed from the
    whole numbers.

    The columns are first replaced by those that are 1 in one cell of a fixed set and 0 in its
    others, which depend on their span alone, so that any coding gives the same rows. Nothing is
    returned for a design that is nearly collinear.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.sensitivity.moments import Coding
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = (
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> rows = []
    >>> for coding in Coding:
    ...     design = Design.from_schema(table.schema, ["arm", "sex"], coding=coding)
    ...     combination = best_combination(design, public)
    ...     rows.append(
    ...         moment_space(public, Ball(2), outcome, design, combination).rows_by_cell.tolist()
    ...     )
    >>> rows[0] == rows[1]
    True
    """
    rows = design.rows()
    occupied = design.inhabited_mask(dataspace)
    spanning = rows[occupied][_pivots(rows[occupied])]
    change, shared = _inverse(spanning)
    cells = rows @ change  # times `shared`, which leaves whole numbers
    z = cells[occupied].astype(np.float64) / shared
    exact_gram = change.T @ design.gram(dataspace) @ change
    gram = exact_gram.astype(np.float64) / shared**2
    root = _power(gram, -0.5)
    shape = _power(_covariance(z @ root), -0.5) @ root
    lengths = np.linalg.norm(z @ shape.T, axis=1)
    shape /= float(lengths.max())
    # Rounding must not make two rows coincide: the finer the grid, the smaller the least singular
    # value may be.
    least = float(np.linalg.svd(shape, compute_uv=False)[-1])
    bits = math.ceil(8 - math.log2(least))
    fineness = max(_FINENESS, 2**bits)
    if fineness > _FINEST:
        return ()
    common = math.gcd(shared, *cells.ravel().tolist())
    rounded = np.vectorize(round, otypes=[object])
    whole = rounded((fineness * shape).astype(object))
    combination = whole @ change.T * design.multiplier
    over_common = np.vectorize(lambda value: Fraction(value, common), otypes=[object])(combination)
    return tuple(map(tuple, over_common.tolist()))


def _covariance(u: Floats) -> Floats:
    """Return ``V = (Σ w_c u_c u_c')^{1/2}`` for weights near those with ``u_c' V^-1 u_c <= 1``."""
    weights = np.ones(len(u))
    covariance = _power(u.T @ u, 0.5)
    for _ in range(_STEPS):
        lengths = np.einsum("ci,ci->c", u @ np.linalg.inv(covariance), u)
        weights *= lengths
        weighted = u * weights[:, None]
        covariance = _power(u.T @ weighted, 0.5)
    return covariance


def _power(matrix: Floats, exponent: float) -> Floats:
    """Return a power of a positive definite matrix."""
    # Rounding can leave an eigenvalue at or below 0, whose root or inverse would not exist.
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    powers = np.maximum(values, values[-1] * 1e-14) ** exponent
    return np.asarray((vectors * powers) @ vectors.T)


def _pivots(rows: NDArray[np.object_]) -> list[int]:
    """Return the first rows that span all rows, by elimination modulo a prime. It never finds too
    high a rank.

    >>> _pivots(np.array([[1, 0], [2, 0], [1, 1]], dtype=object))
    [0, 2]
    """
    left = (rows % _PRIME).astype(np.int64).T
    spanning: list[int] = []
    for k in range(len(left)):
        pivot = int(left[k:].any(axis=0).argmax())
        row = k + int(left[k:, pivot].argmax())
        left[[k, row]] = left[[row, k]]
        inverse = pow(int(left[k, pivot]), -1, _PRIME)
        left[k] = left[k] * inverse % _PRIME
        below = left[k + 1 :]
        multiples = below[:, pivot : pivot + 1] * left[k]
        below[:] = (below - multiples) % _PRIME
        spanning.append(pivot)
    return spanning


def _inverse(matrix: NDArray[np.object_]) -> tuple[NDArray[np.object_], int]:
    """Return the inverse of a regular matrix of whole numbers, as whole numbers over a shared
    denominator.

    >>> _inverse(np.array([[2, 0], [1, 1]], dtype=object))
    (array([[1, 0],
           [-1, 2]], dtype=object), 2)
    """
    from flint import fmpz_mat

    inverse, shared = fmpz_mat(matrix.tolist()).inv().numer_denom()
    entries = np.array(inverse.tolist(), dtype=object)
    whole = np.vectorize(int, otypes=[object])(entries)
    return whole, int(shared)


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
        (`SampledMeans`), with the variances v_g that the bounds allow in each cell:
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
