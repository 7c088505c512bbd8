"""Linear regression on public groups: X'X is exact, and only X'y needs noise.

Designs are in `designs`, the sensitivity of X'y in `sensitivity`; logistic regression is in `logistic`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome
from semidp.errors import InputError
from semidp.grouped.inputs import open_groups, read_moments, read_squares, squares_outcome
from semidp.grouped.outcome_spread import SquareSum, charge, measure_squares, square_mechanism
from semidp.guarantees import Guarantee
from semidp.mechanisms import Measurement, Mechanism, outcome_mechanism
from semidp.noise import Randomness
from semidp.queries import Design, MomentSpace, moment_space
from semidp.spaces import Adjacency, Margin
from semidp.tables import Feature, Schema
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """A noisy X'y of a design with public moments: what both regressions are computed from."""

    mechanism: Mechanism
    measurement: Measurement

    @property
    def space(self) -> MomentSpace:
        """The sensitivity space that the noise is calibrated to."""
        space = self.mechanism.space
        assert isinstance(space, MomentSpace)
        return space

    @property
    def design(self) -> Design:
        """The design."""
        return self.space.design

    @property
    def values(self) -> Floats:
        """The noisy ``Σ z_i (y_i - lower)``, in units of the outcome."""
        return self.measurement.projected * (float(self.space.outcome.width) / self.design.multiplier)

    @property
    def noise_variance(self) -> float:
        """The variance of the noise in each of `values`."""
        return self.mechanism.variance * (float(self.space.outcome.width) / self.design.multiplier) ** 2

    @cached_property
    def gram(self) -> Floats:
        """X'X, exact but for its conversion to floats."""
        scale = self.design.multiplier**2
        return np.array([[value / scale for value in row] for row in self.design.gram(self.space.dataspace).tolist()])

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


@dataclass(frozen=True, eq=False)
class LinearFit:
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
    [0.13, 0.21]
    """

    moments: Moments
    squares: SquareSum | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients."""
        return self.moments.design.names

    @cached_property
    def coefficients(self) -> Floats:
        """The estimated coefficients."""
        lower = float(self.moments.space.outcome.lower)
        return np.asarray(
            np.linalg.solve(self.moments.gram, self.moments.values + lower * self.moments.totals), dtype=np.float64
        )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of everything that was measured."""
        squares = [self.squares.mechanism.guarantee] if self.squares else []
        return self.moments.mechanism.guarantee.compose(*squares)

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return self.moments.measurement.private and (self.squares is None or self.squares.measurement.private)

    def residual_sd(self) -> float:
        """Return the residual standard deviation from the measured sum of squares.

        ``(Σ y² - m'(X'X)^-1 m)/(n - d)`` with m = X'y, corrected for the noise's ``τ² tr (X'X)^-1``; y above its lower
        bound.
        """
        if self.squares is None:
            raise InputError(
                "the residual spread was not measured: give a spread_budget, or the standard deviation if it is known"
            )
        inverse = np.linalg.inv(self.moments.gram)
        explained = float(self.moments.values @ inverse @ self.moments.values)
        explained -= self.moments.noise_variance * float(np.trace(inverse))
        n = self.moments.space.dataspace.n or 0
        return self.squares.left_over(explained, n - len(self.names))

    def covariance(self, residual_sd: float | None = None) -> Floats:
        """Return the covariance of the coefficients: ``τ² (X'X)^-2``, plus ``σ² (X'X)^-1`` where σ is given.

        Parameters
        ----------
        residual_sd
            σ, the residual standard deviation: known, or from `residual_sd`. Without it the errors are those of the
            noise alone, about the regression on the records themselves.
        """
        inverse = np.linalg.inv(self.moments.gram)
        sampling = 0.0 if residual_sd is None else residual_sd**2 * inverse
        return np.asarray(self.moments.noise_variance * (inverse @ inverse) + sampling)

    def standard_errors(self, residual_sd: float | None = None) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(residual_sd)))


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
    data
        A file, a data frame, an Ibis table or a `Source`.
    outcome
        The private column, its declared bounds and its grid.
    budget
        What may be spent on X'y.
    factors
        The features, for a design of their main effects; or give `design`.
    design
        Any design on the published features.
    invariants
        What is published exactly: it must fix Σz and X'X. The joint counts of the design's features if left out.
    features
        Declared features; the levels of others are read, since their counts are public.
    adjacency
        How many records may differ; a(t) of all that is published unless given.
    spread_budget
        What may be spent on a sum of squares, from which `LinearFit.residual_sd` follows.
    randomness
        Where random words come from; the operating system unless given.
    ledger
        Charged before any noise is drawn.
    """
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency) as groups:
        schema = groups.dataspace.schema
        assert schema is not None
        space = moment_space(groups.dataspace, groups.adjacency, outcome, chosen(schema, factors, design))
        space.design.gram(groups.dataspace)  # a collinear design is refused before anything is measured
        mechanism = outcome_mechanism(space, budget)
        values = read_moments(groups.source, space)
        spread = grid = squares = None
        if spread_budget is not None:
            grid = squares_outcome(outcome)
            spread = square_mechanism(groups.dataspace, groups.adjacency, grid, spread_budget)
            squares = read_squares(groups.source, grid)
    charge(ledger, f"regression of {outcome.column}", mechanism, *([spread] if spread else []))
    moments = Moments(mechanism, mechanism.measure(values, randomness))
    if spread is None or grid is None or squares is None:
        return LinearFit(moments)
    return LinearFit(moments, measure_squares(grid, spread, squares, randomness))


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
