"""Linear and logistic regression on public groups: X'X is exact, and only X'y needs noise; and the
choice of what to measure.

X'y follows from the sums of the outcome by cell, from the sums by the groups of each term, and from
well-chosen combinations of the columns; none of them depends on how factors are coded. The best
choice depends on the published counts and on the noise. Designs are in `moments`.
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import Number, parse_level
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import MomentSpace, moment_space
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
from semidp.publish.statistics.regression.designs import Design

RouteSpace = SumSpace | MomentSpace
"""A query from which X'y follows."""

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
    *Combinations*: C X'y with the C that minimizes the mean variance of the fitted values, where
    the rows C z have at most unit length (`best_combination`). If all cells are free (one
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
    """Return the matrix T with ``X'y = T q`` for the values q of a route's query, one row per
    column of the design.

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
    others, which depend on their span alone, so any coding gives the same rows. Nothing is
    returned for a design that is nearly collinear.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.publish.statistics.regression.designs import Coding
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


@frozen(slots=False, eq=False)
class Moments:
    """A noisy X'y of a design with public moments, from which both regressions are computed.

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
        design = self.space.design
        # what a ledger recorded knows its columns alone
        return design if isinstance(design, Design) else Design(design.schema, design.columns)

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
        """X'X, exact except for its conversion to floats."""
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
    """Return X'X of a design from the published counts, exact up to conversion to floats."""
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


@frozen(slots=False, eq=False)
class RegressionFit:
    """The base of both regressions."""

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
            intervals = evolve(intervals, about=About.sampling, exact=False)
        return intervals, half


@frozen(slots=False, eq=False)
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
        If sums by cell were measured, its interval for the population is that of such a sum
        (`SampledMeans`), with the variances v_g that the bounds allow in each cell:
        ``Σ_g n_g z_g z_g' v_g`` in the middle of ``(X'X)^-1 … (X'X)^-1``, and never one spread for
        all. Other designs take ``v = (u - l)²/4``, the largest.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        sampling
            Whether it is about the population that the records were sampled from.
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
        return evolve(intervals, lower=intervals.lower - rounding, upper=intervals.upper + rounding)

    def _rounding(self, inverse: NDArray[Any]) -> Floats:
        """Return by how much rounding to the grid can have moved each coefficient.

        A record moves β_j by ``|((X'X)^-1 z_i)_j|`` times the rounding of its outcome at most. The
        squares of these weights sum to ``(X'X)^-1_jj``, so they themselves sum to at most
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


_NEWTON_STEPS = 200  # of Newton's method, each with step halving; ten are usual
# cells times cubed columns, up to which intervals are profiled (some 60 columns); beyond, normal
# ones
_MOST_CORRECTED = 2e8
_OPEN = 20.0  # a coefficient beyond which an interval is open: odds of one in 500 million
_TRIES = 30  # between a value inside an interval and one outside, until an end is found
_STUCK = 1e8  # the damping of steps from which on nothing improves
_CLOSE = 1e-4  # an end is found where the distance is this share of the quantile away from it


@frozen(slots=False, eq=False)
class LogisticFit(RegressionFit):
    """Penalized maximum likelihood from exact cell counts and a noisy X'y.

    With n_c records in cell c and rows z_c, the log-likelihood is
    ``β'X'y - Σ_c n_c log(1 + exp z_c'β)``: concave, and a function of the data through X'y alone.
    The noise can push X'y out of what any data could give, the polytope of ``Z's`` with 0 <= s_c <=
    n_c, where no maximum exists. So X'y is first moved to the nearest point of the polytope, in the
    metric of the noise; then Jeffreys' prior is added, ``½ log det Z'WZ`` (Firth 1993), with which
    the maximum is finite even on the boundary (Kosmidis and Firth 2021). Neither depends on how
    factors are coded.

    Examples
    --------
    >>> import semidp as sd
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "arm": np.repeat(["control", "drug"], 800),
    ...     "cured": np.repeat([0, 1, 0, 1], [400, 400, 200, 600]),
    ... }
    >>> asked = sd.logistic("cured", on="arm")
    >>> release = sd.release(records, asked, mu=1, randomness=SeededRandomness(1))
    >>> fitted = release.regressions[0].analysis
    >>> fitted.names, fitted.coefficients.round(1).tolist()
    (('intercept', 'arm=drug'), [0.0, 1.1])
    """

    @cached_property
    def feasible(self) -> Floats:
        """The ones by cell, in real numbers from 0 to n_c, whose X'y is nearest to the noisy
        one.
        """
        from scipy.optimize import lsq_linear

        white = _whitening(self.moments.noise_covariance)
        design = white @ self._rows.T
        target = white @ self.moments.values
        nearest = lsq_linear(design, target, (0.0, self._counts), tol=1e-12)
        return np.asarray(np.clip(nearest.x, 0.0, self._counts))

    @cached_property
    def coefficients(self) -> Floats:
        """The maximizer: Newton's method for the penalized score, halving steps that do not
        improve.
        """
        moments = self._rows.T @ self.feasible
        beta = np.zeros(len(self.names))
        value = self._objective(beta, moments)
        for _ in range(_NEWTON_STEPS):
            score = moments - self._expected_moments(beta)
            step = np.linalg.solve(self._information(beta), score)
            # The step takes Z'WZ for the curvature and leaves out that of the penalty, so it may
            # overshoot.
            size = 1.0
            while self._objective(beta + size * step, moments) < value and size > 1e-12:
                size /= 2
            beta = beta + size * step
            value = self._objective(beta, moments)
            if float(np.abs(size * step).max()) < 1e-10:
                break
        return beta

    def covariance(self, *, sampling: bool = True) -> Floats:
        """Return the covariance of the coefficients, ``H^-1 (Z'WZ + N) H^-1``, by the delta method.

        ``H = Z'WZ`` at the fit is also the sampling variance of X'y, with ``W = n p (1-p)``; where
        a person has up to m records, at most m times that. N is the covariance of the noise;
        without `sampling` there is the noise alone.
        """
        information = self._information(self.coefficients)
        inverse = np.linalg.inv(information)
        of_moments = self._cluster * information * sampling + self.moments.noise_covariance
        return np.asarray(inverse @ of_moments @ inverse)

    def standard_errors(self, *, sampling: bool = True) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(sampling=sampling)))

    def intervals(
        self, level: Number = LEVEL, *, sampling: bool = False, simultaneous: bool = False
    ) -> Intervals:
        """Return an interval for each coefficient, from how far X'y lies from what other
        coefficients would give.

        With ``Q(β) = (X'y - m(β))' S(β)^-1 (X'y - m(β))`` the interval of β_j holds the values at
        which the least Q over the other coefficients exceeds the least of all by at most (h/s)², h
        the half-width and s the standard error of the first-order error ``H^-1 (noise + sampling)``
        in X'y: the quantile of χ² with one degree for normal noise, more for Laplace noise. The
        noise alone has ``S = N``, and m(β) is the X'y whose penalized fit is β; with sampling
        ``S = N + Z'WZ``, and m(β) is the mean of X'y. Each end is sought from the penalized fit
        outwards; one beyond ±20 is open, and only that one: the data may as well have no limit
        there. Designs with more than some 60 columns get ``β_j ± h``. How often they hold is
        simulated in docs/groups.md.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        sampling
            Whether it is about the population that the records were sampled from; else about the
            fit to the records.
        simultaneous
            Whether all intervals hold at once with that probability.
        """
        inverse = np.linalg.inv(self._information(self.coefficients))
        spread = self._cluster * np.diag(inverse) if sampling else None
        intervals, half = self._intervals(inverse, parse_level(level), spread, simultaneous)
        errors = self.standard_errors(sampling=sampling)
        work = len(self._counts) * len(self.names) ** 3
        if work > _MOST_CORRECTED or not half.any():
            return intervals
        least, nearest = self.nearest(None, 0.0, self.coefficients, sampling)
        profile = _Profile(self, sampling, least, nearest)
        lower, upper = [], []
        for position in range(len(self.names)):
            error = float(errors[position])
            # The squared distance at which the profile ends: that of the interval around the
            # estimate.
            reach = float(half[position] / errors[position]) ** 2
            low, high = profile.ends(position, reach, error)
            lower.append(low)
            upper.append(high)
        return evolve(intervals, lower=np.array(lower), upper=np.array(upper))

    def nearest(
        self, position: int | None, value: float, start: Floats, sampling: bool
    ) -> tuple[float, Floats]:
        """Return the least Q over all coefficients, or over those other than one that is held, and
        where it is.

        By the method of Levenberg and Marquardt: steps of Gauss and Newton, damped where they do
        not improve.
        """
        not_held = [k for k in range(len(start)) if k != position]
        free = np.array(not_held, dtype=np.intp)
        beta = np.array(start)
        if position is not None:
            beta[position] = value
        distances, slopes = self._distances(beta, sampling)
        cost = float(distances @ distances)
        damping = 1e-4
        for _ in range(_NEWTON_STEPS):
            part = slopes[:, free]
            curvature = part.T @ part
            descent = part.T @ distances
            scale = np.diag(curvature) + 1e-12 * float(np.trace(curvature)) + 1e-300
            damped = curvature + np.diag(damping * scale)
            step = np.linalg.solve(damped, descent)
            tried = np.array(beta)
            # Where groups are separated the least Q may lie at infinity: stop well beyond what
            # counts as open.
            tried[free] = np.clip(beta[free] - step, -2 * _OPEN, 2 * _OPEN)
            new, new_slopes = self._distances(tried, sampling)
            gained = cost - float(new @ new)
            improved = gained >= 0
            if improved:
                beta = tried
                distances, slopes = new, new_slopes
                cost = cost - gained
            settled = improved and gained <= 1e-9 * (1 + cost)
            if damping > _STUCK or settled:
                break
            damping = max(damping / 10, 1e-12) if improved else damping * 10
        return cost, beta

    def _distances(self, beta: Floats, sampling: bool) -> tuple[Floats, Floats]:
        """Return ``r = A (X'y - m(β))`` with ``A S A' = 1``, of which Q is the squared length, and
        its derivatives.

        The noise alone has a constant A. With sampling A is the inverse of the Cholesky factor of
        S(β), whose change adds ``-Φ(A dS A') r``, Φ the lower triangle with half of the diagonal.
        """
        p = self._probabilities(beta)
        rows = self._rows
        weights = self._counts * p * (1 - p)
        if not sampling:
            return self._noise_distances(p, weights)
        information = rows.T @ (weights[:, None] * rows)
        white = _whitening(self.moments.noise_covariance + self._cluster * information)
        mean = rows.T @ (self._counts * p)
        distances = white @ (self.moments.values - mean)
        turned = rows @ white.T
        along = turned * distances
        below = np.cumsum(along, axis=1) - along / 2
        weight_slopes = self._cluster * weights * (1 - 2 * p)
        bent = weight_slopes[:, None] * rows
        of_metric = (turned * below).T @ bent
        return distances, -white @ information - of_metric

    def _noise_distances(self, p: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """The distances and their derivatives for the noise alone, where m(β) has the leverages of
        Jeffreys' prior in it.
        """
        rows = self._rows
        basis = self._basis(weights)
        leverages = (basis**2).sum(axis=1)
        bent = (1 - 2 * p)[:, None] * rows
        leverage_slopes = leverages[:, None] * bent - (basis @ basis.T) ** 2 @ bent
        ones_weights = weights + leverages * p * (1 - p)
        ones_slopes = ones_weights[:, None] * rows - (0.5 - p)[:, None] * leverage_slopes
        slope = rows.T @ ones_slopes
        ones = self._counts * p - leverages * (0.5 - p)
        white = self._noise_whitening
        distances = white @ (self.moments.values - rows.T @ ones)
        return distances, -white @ slope

    def _basis(self, weights: Floats) -> Floats:
        """An orthonormal basis of the columns of ``W^½ Z``; its squared rows are the leverages."""
        return np.linalg.qr(np.sqrt(weights)[:, None] * self._rows)[0]

    @cached_property
    def _noise_whitening(self) -> Floats:
        return _whitening(self.moments.noise_covariance)

    @cached_property
    def _occupied_mask(self) -> NDArray[np.bool_]:
        return joint_counts(self.moments.design, self.moments.space.dataspace) > 0

    @cached_property
    def _counts(self) -> Floats:
        return joint_counts(self.moments.design, self.moments.space.dataspace)[self._occupied_mask]

    @cached_property
    def _rows(self) -> Floats:
        design = self.moments.design
        return design.rows()[self._occupied_mask].astype(np.float64) / design.multiplier

    def _probabilities(self, beta: Floats) -> Floats:
        from scipy.special import expit

        return np.asarray(expit(self._rows @ beta))

    def _expected_moments(self, beta: Floats) -> Floats:
        """The X'y whose penalized fit is β: ``Z'(n p - h (½ - p))`` with the leverages h."""
        p = self._probabilities(beta)
        ones = self._counts * p
        leverages = (self._basis(ones * (1 - p)) ** 2).sum(axis=1)
        return np.asarray(self._rows.T @ (ones - leverages * (0.5 - p)))

    def _objective(self, beta: Floats, moments: Floats) -> float:
        losses = np.logaddexp(0.0, self._rows @ beta)
        loss = float(self._counts @ losses)
        sign, log_det = np.linalg.slogdet(self._information(beta))
        penalty = log_det / 2 if sign > 0 else -math.inf
        return float(moments @ beta) - loss + penalty

    def _information(self, beta: Floats) -> Floats:
        p = self._probabilities(beta)
        weights = self._counts * p * (1 - p)
        return np.asarray(self._rows.T @ (self._rows * weights[:, None]))


@frozen(eq=False)
class _Profile:
    """How far X'y lies from what a fit gives where one coefficient is held.

    Parameters
    ----------
    fit, sampling
        The fit, and whether sampling counts besides the noise.
    least, nearest
        The least Q of all, and the coefficients that have it; they may be far out where groups are
        separated.
    """

    fit: LogisticFit
    sampling: bool
    least: float
    nearest: Floats

    def ends(self, position: int, quantile: float, error: float) -> tuple[float, float]:
        """Return the first value on each side of the penalized fit at which Q exceeds the least by
        a quantile.
        """
        start = self.fit.coefficients
        distance, beta = self.fit.nearest(position, float(start[position]), start, self.sampling)
        if distance - self.least > quantile:  # the penalty moved the fit out of the interval
            beta = np.clip(self.nearest, -_OPEN, _OPEN)
        step = min(error, 1.0)
        lower = self._end(position, beta, quantile, -step)
        return lower, self._end(position, beta, quantile, step)

    def _end(self, position: int, beta: Floats, quantile: float, step: float) -> float:
        reach = math.sqrt(quantile)
        inside, low = float(beta[position]), 0.0
        while True:
            outside = inside + step
            if abs(outside) > _OPEN:
                return math.copysign(math.inf, step)
            distance, beta = self.fit.nearest(position, outside, beta, self.sampling)
            high = math.sqrt(max(distance - self.least, 0.0))
            if high > reach:
                break
            inside, low = outside, high
            step = 1.6 * step
        return self._between(position, beta, reach, (inside, low), (outside, high))

    def _between(
        self,
        position: int,
        beta: Floats,
        reach: float,
        inside: tuple[float, float],
        outside: tuple[float, float],
    ) -> float:
        """Point where the root of the distance is `reach`. It is nearly linear, so a line
        through both sides aims well.
        """
        (near, low), (far, high) = inside, outside
        for turn in range(_TRIES):
            # now and then by halves, lest one side stay
            share = (reach - low) / (high - low) if turn % 3 < 2 else 0.5
            kept_apart = min(max(share, 0.02), 0.98)
            value = near + kept_apart * (far - near)
            distance, beta = self.fit.nearest(position, value, beta, self.sampling)
            reached = math.sqrt(max(distance - self.least, 0.0))
            if abs(reached - reach) <= _CLOSE * reach:
                return value
            if reached > reach:
                far, high = value, reached
            else:
                near, low = value, reached
        return far


def _whitening(covariance: Floats) -> Floats:
    """Return A with ``A C A' = 1`` for a covariance C, one that is nearly singular made a little
    larger.
    """
    size = float(np.trace(covariance)) / len(covariance)
    # Without noise X'y is what some data gave, so any metric leaves it where it is.
    identity = np.eye(len(covariance))
    if size == 0:
        return identity
    factor = np.linalg.cholesky(covariance + 1e-10 * size * identity)
    return np.linalg.inv(factor)


def joint_counts(design: Design, dataspace: Dataspace) -> Floats:
    """Return the published count of each combination of the design's features; refuse where it is
    not published.

    >>> from semidp import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 5], [5, 5]])
    >>> public = Dataspace.from_table(table, [Margin("arm"), Margin("sex")])
    >>> joint_counts(Design.from_schema(table.schema, ["arm", "sex"]), public)
    Traceback (most recent call last):
    semidp.errors.Refused: logistic regression needs exact counts of arm × sex, which are not
    published: publish them (exact=[('arm', 'sex')])
    """
    joint = Margin(*design.features)
    if not dataspace.publishes(joint):
        raise Refused(
            f"logistic regression needs exact counts of {joint}, which are not published: publish"
            " them",
            needs="margin",
            names=joint.names,
        )
    counts = dataspace.value(joint).counts if joint.names else np.array([dataspace.n])
    return counts.ravel().astype(np.float64)
