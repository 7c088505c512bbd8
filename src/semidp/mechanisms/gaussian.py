"""Gaussian mechanisms: discrete for zCDP, rounded for GDP, and the paper's continuous one for studies.

Each adds independent noise to every cell and projects. The two that add whole numbers make exact claims; the
continuous one is the reference of the paper's figures and its output is marked as not private.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from semidp.mechanisms.base import (
    CellByCell,
    ClaimKind,
    Mechanism,
    check_request,
    check_scale,
    epsilon_of,
    largest,
    root_up,
)
from semidp.noise import DiscreteGaussian, Randomness, RoundedGaussian, generator
from semidp.queries import QuerySpace
from semidp.tradeoff import ZCDP, Budget, Gaussian, Tradeoff


@dataclass(frozen=True, eq=False)
class ConcentratedNoise(Mechanism):
    """Noise of scale σ that satisfies zCDP with ``ρ = Δ2²/(2σ²)``."""

    sigma2: Fraction

    kinds: ClassVar[tuple[str, ...]] = ("zcdp", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/(2ρ)``."""
        check_request(cls, space, budget)
        return cls(space, check_scale(Fraction(space.l2_squared) / (2 * rho_within(budget))))

    @property
    def scale(self) -> float:
        """σ, rounded up."""
        return root_up(self.sigma2)

    @property
    def tradeoff(self) -> Tradeoff:
        """zCDP with ``ρ = Δ2²/(2σ²)``, exact."""
        return ZCDP(Fraction(self.space.l2_squared) / (2 * self.sigma2))


@dataclass(frozen=True, eq=False)
class GaussianNoise(Mechanism):
    """Noise of scale σ that satisfies μ-GDP with ``μ = Δ2/σ``."""

    sigma2: Fraction

    kinds: ClassVar[tuple[str, ...]] = ("gdp", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/μ²``."""
        check_request(cls, space, budget)
        return cls(space, check_scale(Fraction(space.l2_squared) / mu_within(budget) ** 2))

    @property
    def scale(self) -> float:
        """σ (before rounding, where the noise is rounded), rounded up."""
        return root_up(self.sigma2)

    @property
    def tradeoff(self) -> Tradeoff:
        """μ-GDP with ``μ = Δ2/σ``, kept by its exact square."""
        return Gaussian(Fraction(self.space.l2_squared) / self.sigma2)


@dataclass(frozen=True, eq=False)
class DiscreteGaussianMechanism(CellByCell, ConcentratedNoise):
    """Exact discrete Gaussian noise in every cell, then projection: zCDP with ``ρ = Δ2²/(2σ²)``.

    Shifted by whole numbers, discrete Gaussians are no further apart than continuous ones (Canonne, Kamath and
    Steinke, 2020), so that both parameters are exact fractions.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    sigma2
        The parameter σ² of the noise, exact.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
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


@dataclass(frozen=True, eq=False)
class ContinuousGaussianMechanism(GaussianNoise):
    """The paper's mechanism, ``N(0, (Δ2/μ)² P)`` in floating point. For studies: its output is marked not private.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    sigma2
        The variance σ², exact.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
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
    def variance(self) -> float:
        """σ²."""
        return float(self.sigma2)

    @property
    def mean_l2(self) -> float:
        """The expected loss itself, ``E‖P·noise‖ = σ√2 Γ((s+1)/2)/Γ(s/2)`` with s the dimension."""
        half = self.space.dimension / 2
        return math.sqrt(2 * self.variance) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))

    def noise(self, randomness: Randomness) -> NDArray[np.float64]:
        """Draw independent normals."""
        return self.scale * generator(randomness).standard_normal(self.space.shape)


@dataclass(frozen=True, eq=False)
class RoundedGaussianMechanism(CellByCell, GaussianNoise):
    """Gaussian noise rounded to whole numbers in every cell, then projection: μ-GDP with ``μ = Δ2/σ``.

    Counts are whole numbers, so that rounding the noise is rounding the output of the continuous Gaussian mechanism:
    post-processing, and exactly μ-GDP.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    sigma2
        The variance σ² before rounding, exact.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp("0.5"))
    >>> mechanism.sigma2, mechanism.guarantee.tradeoff.mu
    (Fraction(16, 1), Fraction(1, 2))
    >>> mechanism.standard_errors().round(2).tolist()
    [[2.32, 2.32, 2.32], [2.32, 2.32, 2.32]]
    >>> round(mechanism.standard_error([[1, 1, 0], [0, 0, 0]]), 2), mechanism.standard_error([[1, 1, 1], [0, 0, 0]])
    (2.32, 0.0)
    """

    name: ClassVar[str] = "rounded gaussian"

    @cached_property
    def sampler(self) -> RoundedGaussian:
        """The distribution of the noise in one cell."""
        return RoundedGaussian(self.sigma2)


def rho_within(budget: Budget) -> Fraction:
    """Return the largest ρ whose zCDP lies within a budget: its own, or by the tight conversion to (ε, δ).

    >>> rho_within(Budget.zcdp("0.5"))
    Fraction(1, 2)
    >>> float(rho_within(Budget.approximate(1, "1e-6")))
    0.02...
    """
    if budget.rho is not None:
        return budget.rho
    epsilon, delta = epsilon_of(budget), budget.delta or Fraction(0)
    return largest(lambda rho: ZCDP(rho).delta(epsilon) <= delta)


def mu_within(budget: Budget) -> Fraction:
    """Return the largest μ whose GDP lies within a budget: its own, or by the exact conversion to (ε, δ).

    >>> mu_within(Budget.gdp("0.1"))
    Fraction(1, 10)
    >>> float(mu_within(Budget.approximate(1, "1e-6")))
    0.2...
    """
    if budget.mu is not None:
        return budget.mu
    epsilon, delta = epsilon_of(budget), budget.delta or Fraction(0)
    return largest(lambda mu: Gaussian(mu**2).delta(epsilon) <= delta)
