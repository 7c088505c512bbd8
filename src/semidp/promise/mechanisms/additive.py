"""Noise that is added to every cell, then projected: Gaussian for zCDP and GDP (discrete, rounded,
on the lattice of whole tables, and the paper's own); Laplace and l2 for pure budgets.

Discrete, rounded and lattice Gaussians and Laplace are integers, sampled exactly. The others are
real-valued, so their claims are ideal.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.exact import round_up, sqrt_up
from semidp.promise.mechanisms.mechanism import (
    CellByCell,
    ClaimKind,
    Mechanism,
    check_scale,
    largest,
    require_epsilon,
    root_up,
)
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.promise.noise.lattice import SMALLEST_SIGMA2, LatticeGaussian, OneSidedLatticeGaussian
from semidp.promise.noise.randomness import Randomness, generator, uniforms
from semidp.promise.sensitivity.query_space import MatrixForm, QuerySpace
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@frozen(slots=False, eq=False)
class NormalNoise(Mechanism):
    """Normal or nearly normal noise with an exact σ²."""

    scale_powers: ClassVar[Mapping[str, int]] = {"sigma2": 2}

    sigma2: Fraction

    @property
    def scale(self) -> float:
        """σ (before any rounding of the noise), rounded up."""
        return root_up(self.sigma2)

    @property
    def variance(self) -> float:
        """σ², without rounding."""
        return float(self.sigma2)


@frozen(slots=False, eq=False)
class ConcentratedNoise(NormalNoise):
    """Noise of scale σ that satisfies zCDP with ``ρ = Δ2²/(2σ²)``."""

    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/(2ρ)``."""
        cls.check_request(space, budget)
        sigma2 = Fraction(space.l2_squared) / (2 * rho_within(budget))
        return cls(space, check_scale(sigma2))

    @property
    def tradeoff(self) -> Tradeoff:
        """zCDP with ``ρ = Δ2²/(2σ²)``, exact."""
        return ZCDP(Fraction(self.space.l2_squared) / (2 * self.sigma2))


@frozen(slots=False, eq=False)
class GaussianNoise(NormalNoise):
    """Noise of scale σ that satisfies μ-GDP with ``μ = Δ2/σ``."""

    budget_kinds: ClassVar[tuple[str, ...]] = ("gdp", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/μ²``."""
        cls.check_request(space, budget)
        sigma2 = Fraction(space.l2_squared) / mu_within(budget) ** 2
        return cls(space, check_scale(sigma2))

    @property
    def tradeoff(self) -> Tradeoff:
        """μ-GDP with ``μ = Δ2/σ``, kept by its exact square."""
        return Gaussian(Fraction(self.space.l2_squared) / self.sigma2)


@frozen(slots=False, eq=False)
class DiscreteGaussianMechanism(CellByCell, ConcentratedNoise):
    """Exact discrete Gaussian noise in every cell, then projection: zCDP with ``ρ = Δ2²/(2σ²)``.

    Shifted by whole numbers, discrete Gaussians are no farther apart than continuous ones (Canonne,
    Kamath and Steinke, 2020), so both parameters are exact fractions.

    Parameters
    ----------
    sigma2
        The parameter σ² of the noise, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = DiscreteGaussianMechanism.calibrate(space, Budget.zcdp("0.1"))
    >>> mechanism.sigma2, mechanism.guarantee.tradeoff
    (Fraction(20, 1), ZCDP(rho=Fraction(1, 10)))
    >>> mechanism.apply(table)
    Measurement(mechanism='discrete gaussian', claim='exact', private=True)
    """

    name: ClassVar[str] = "discrete gaussian"

    @cached_property
    def sampler(self) -> DiscreteGaussian:
        """The distribution of the noise in one cell."""
        return DiscreteGaussian(self.sigma2)


@frozen(eq=False)
class ContinuousGaussianMechanism(GaussianNoise):
    """The paper's mechanism, ``N(0, (Δ2/μ)² P)`` in floating point. For studies only: its output
    is marked not private.

    Parameters
    ----------
    sigma2
        The variance σ², exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = ContinuousGaussianMechanism.calibrate(space, Budget.gdp(1))
    >>> mechanism.scale, round(mechanism.mean_l2, 4)
    (2.0, 2.5066)
    >>> mechanism.apply(table).private
    False
    """

    name: ClassVar[str] = "continuous gaussian"
    claim: ClassVar[ClaimKind] = "ideal"
    for_studies: ClassVar[bool] = True

    @property
    def mean_l2(self) -> float:
        """The expected loss itself, ``E‖P·noise‖ = σ√2 Γ((s+1)/2)/Γ(s/2)`` with s the dimension."""
        half = self.space.dimension / 2
        # the Γ of a few hundred overflows, and its logarithm does not
        log_ratio = math.lgamma(half + 0.5) - math.lgamma(half)
        return math.sqrt(2 * self.variance) * math.exp(log_ratio)

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.float64]:
        """Draw independent normals."""
        drawn = []
        for _ in range(count):
            drawn.append(generator(randomness).standard_normal(self.space.shape))
        return self.scale * np.stack(drawn)


@frozen(slots=False, eq=False)
class RoundedGaussianMechanism(CellByCell, GaussianNoise):
    """Gaussian noise rounded to whole numbers in every cell, then projection: μ-GDP with
    ``μ = Δ2/σ``.

    Counts are whole numbers, so rounding the noise is rounding the output of the continuous
    Gaussian mechanism: post-processing, and exactly μ-GDP.

    Parameters
    ----------
    sigma2
        The variance σ² before rounding, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp("0.5"))
    >>> mechanism.sigma2, mechanism.guarantee.tradeoff.mu
    (Fraction(16, 1), Fraction(1, 2))
    >>> mechanism.standard_errors().round(2).tolist()
    [[2.32, 2.32, 2.32], [2.32, 2.32, 2.32]]
    >>> (
    ...     round(mechanism.standard_error([[1, 1, 0], [0, 0, 0]]), 2),
    ...     mechanism.standard_error([[1, 1, 1], [0, 0, 0]]),
    ... )
    (2.32, 0.0)
    """

    name: ClassVar[str] = "rounded gaussian"

    @cached_property
    def sampler(self) -> RoundedGaussian:
        """The distribution of the noise in one cell."""
        return RoundedGaussian(self.sigma2)


@frozen(slots=False, eq=False)
class LatticeGaussianMechanism(ConcentratedNoise):
    """Noise ``P(v) ∝ exp(-‖v‖²/2σ²)`` over whole-number tables with zero margins: zCDP with
    ``ρ = Δ2²/(2σ²)``.

    A shift by an element of the lattice costs what it costs the discrete Gaussian. The measurement
    consists of whole numbers with every published total exact, and it is unbiased. Coarse noise is
    smaller than in single cells: the shortest move of the lattice has four cells, and at σ² = 1/2 a
    2 × 2 table has 28% of the projected variance. The errors come from its distribution; on tables
    with more than five rows and columns they are the upper bound ``σ²P``, which is tight to about
    one part in 10^5 from σ = 2 on.

    Parameters
    ----------
    sigma2
        The parameter σ² of the noise, exact, at least 1/4.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> space, table = two_way()
    >>> mechanism = LatticeGaussianMechanism.calibrate(space, Budget.zcdp("0.5"))
    >>> mechanism.sigma2
    Fraction(4, 1)
    >>> noisy = mechanism.apply(table, SeededRandomness(1)).noisy
    >>> (noisy.sum(axis=0) == table.counts.sum(axis=0)).all() and (
    ...     noisy.sum(axis=1) == table.counts.sum(axis=1)
    ... ).all()
    np.True_
    """

    keeps_totals: ClassVar[bool] = True
    name: ClassVar[str] = "lattice gaussian"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/(2ρ)``, at least 1/4, below which nothing is drawn.

        Refuse other invariants.
        """
        mechanism = super().calibrate(space, budget)
        # More noise than asked for only strengthens the guarantee, which follows from σ².
        if mechanism.sigma2 < SMALLEST_SIGMA2:
            mechanism = evolve(mechanism, sigma2=SMALLEST_SIGMA2)
        mechanism.sampler  # noqa: B018  (built now, so it refuses now)
        return mechanism

    @property
    def variance(self) -> float:
        """The number τ² with ``Cov(noise) = τ² P``, from the law of a cell; see
        `LatticeGaussian.variance`.
        """
        share = float(self.sampler.free_share)
        return self.sampler.variance / share if share else 0.0

    @cached_property
    def sampler(self) -> LatticeGaussian | OneSidedLatticeGaussian:
        """The distribution of the noise on the matrix of cells that can occur."""
        rows, columns = self.matrix_form.cells.shape
        law = LatticeGaussian if self.matrix_form.columns_published else OneSidedLatticeGaussian
        return law(rows, columns, self.sigma2)

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw tables of whole numbers with zero margins."""
        cells = math.prod(self.space.shape)
        noise = np.zeros((count, cells), dtype=np.int64)
        noise[:, self.matrix_form.cells] = self.sampler.sample_many(count, randomness)
        return noise.reshape(count, *self.space.shape)

    @cached_property
    def matrix_form(self) -> MatrixForm:
        form = self.space.matrix()
        if form is None:
            raise Refused(
                "lattice gaussian serves tables under one margin, or under two disjoint ones that"
                " cover every feature, without structural zeros or nested features: use gaussian"
            )
        return form


def rho_within(budget: Budget) -> Fraction:
    """Return the largest ρ whose zCDP lies within a budget: its own, or by the tight conversion to
    (ε, δ).

    >>> rho_within(Budget.zcdp("0.5"))
    Fraction(1, 2)
    >>> float(rho_within(Budget.approximate(1, "1e-6")))
    0.02...
    """
    if budget.rho is not None:
        return budget.rho
    epsilon, delta = require_epsilon(budget), budget.delta or Fraction(0)
    # `largest` comes from below, so the conversion holds for the ρ that is returned.
    return largest(lambda rho: ZCDP(rho).delta(epsilon) <= delta)


def mu_within(budget: Budget) -> Fraction:
    """Return the largest μ whose GDP lies within a budget: its own, or by the exact conversion to
    (ε, δ).

    >>> mu_within(Budget.gdp("0.1"))
    Fraction(1, 10)
    >>> float(mu_within(Budget.approximate(1, "1e-6")))
    0.2...
    """
    if budget.mu is not None:
        return budget.mu
    epsilon, delta = require_epsilon(budget), budget.delta or Fraction(0)
    return largest(lambda mu: Gaussian(mu**2).delta(epsilon) <= delta)


class PureMechanism(Mechanism):
    """A mechanism that satisfies pure ε."""

    budget_kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")


@frozen(slots=False, eq=False)
class LaplaceMechanism(CellByCell, PureMechanism):
    """Discrete Laplace noise ``P(k) ∝ exp(-|k|/b)`` in every cell, then projection: pure ε with
    ``ε = Δ1/b``.

    Parameters
    ----------
    b
        The scale of the noise, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = LaplaceMechanism.calibrate(space, Budget.pure("0.5"))
    >>> mechanism.b, mechanism.guarantee.tradeoff.epsilon(0)
    (Fraction(8, 1), 0.5)
    >>> LaplaceMechanism.calibrate(space, Budget.zcdp("0.5"))
    Traceback (most recent call last):
    semidp.errors.Refused: laplace cannot satisfy a zcdp budget (it can: pure, approximate): use
    gaussian or lattice
    """

    scale_powers: ClassVar[Mapping[str, int]] = {"b": 1}

    b: Fraction

    name: ClassVar[str] = "laplace"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ1/ε``; a δ in the budget is not used."""
        cls.check_request(space, budget)
        b = Fraction(space.l1) / require_epsilon(budget)
        check_scale(b * b)
        return cls(space, b)

    @cached_property
    def sampler(self) -> DiscreteLaplace:
        """The distribution of the noise in one cell."""
        return DiscreteLaplace(self.b)

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return round_up(self.b)

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ1/b``, exact."""
        return approximate(Fraction(self.space.l1) / self.b)


@frozen(eq=False)
class L2Mechanism(PureMechanism):
    """Noise of density ``∝ exp(-‖v‖/b)`` on the subspace: pure ε with ``ε = Δ2/b``.

    The length is Gamma(s) times b and the direction uniform in the subspace of dimension s, so
    ``E‖v‖² = b² s(s+1)``. Rounding each cell to a whole number adds about 1/12 to the variance,
    which the errors include.

    Parameters
    ----------
    b2
        The square of the scale b, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = L2Mechanism.calibrate(space, Budget.pure(1))
    >>> mechanism.scale, round(mechanism.expected_l2, 4)  # √(2 (4·3 + 1/12))
    (2.0, 4.916)
    >>> mechanism.apply(table).noisy.dtype
    dtype('int64')
    """

    scale_powers: ClassVar[Mapping[str, int]] = {"b2": 2}

    b2: Fraction

    name: ClassVar[str] = "l2"
    claim: ClassVar[ClaimKind] = "ideal"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ2/ε``; a δ in the budget is not used."""
        cls.check_request(space, budget)
        b2 = Fraction(space.l2_squared) / require_epsilon(budget) ** 2
        return cls(space, check_scale(b2))

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return root_up(self.b2)

    @property
    def variance(self) -> float:
        """``b² (s+1)``, the squared length shared among s dimensions, and 1/12 for the rounding."""
        ideal = self.b2 * (self.space.dimension + 1)
        return float(ideal + Fraction(1, 12))

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ2/b``, rounded up where it is not rational; in ideal arithmetic."""
        return approximate(sqrt_up(Fraction(self.space.l2_squared) / self.b2))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.float64]:
        """Draw a uniform direction in the subspace, and a Gamma(s) length as a sum of
        exponentials.
        """
        # Normals are alike in all directions, and so is their projection within the subspace.
        shape = (count, *self.space.shape)
        normals = scipy.special.ndtri(uniforms(math.prod(shape), randomness))
        directions = self._project(normals.reshape(shape)).reshape(count, -1)
        logarithms = np.log(uniforms(count * self.space.dimension, randomness))
        exponentials = logarithms.reshape(count, -1)
        # a sum of s exponentials is Gamma(s)
        gammas = -self.scale * exponentials.sum(axis=1)
        lengths = gammas / np.linalg.norm(directions, axis=1)
        return np.asarray((directions * lengths[:, None]).reshape(shape))

    def _project(self, tables: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project each table: many small ones by the matrix of the projection, whose columns are
        projected cells.
        """
        cells = math.prod(self.space.shape)
        if cells >= len(tables):
            return np.stack([self.space.project(table) for table in tables])
        units = np.eye(cells).reshape(cells, *self.space.shape)
        columns = np.stack([self.space.project(unit) for unit in units])
        projected = tables.reshape(-1, cells) @ columns.reshape(cells, -1)
        return np.asarray(projected.reshape(tables.shape))
