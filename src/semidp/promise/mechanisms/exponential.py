"""Quantiles by exact group: a value is chosen in each group, the likelier the fewer records make it
the quantile.

The exponential mechanism, for pure ε permute and flip, drawn exactly; `rank_space` proves what they
guarantee.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.exact import round_up, sqrt_down
from semidp.promise.mechanisms.gaussian import mu_within, rho_within
from semidp.promise.mechanisms.mechanism import (
    Measurement,
    Mechanism,
    NoNoise,
    require_epsilon,
)
from semidp.promise.noise.choice import Choice, ExponentialChoice, FlippedChoice
from semidp.promise.noise.randomness import Randomness, Stream, SystemRandomness
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.rank_space import RankSpace, rank_scores
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.curves import approximate
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

_PI = Fraction(355, 113)  # a little more than π


@dataclass(frozen=True, eq=False)
class ExponentialMechanism(Mechanism):
    """Choices with ``P(v) ∝ exp(-rate · s(v))``, s(v) the score of `rank_scores`.

    What is measured is a histogram of the outcome in each group, a row a group; what comes out is a
    value for each choice, in steps of the grid: 0 and the last step where the rank lies below or
    above all values.

    Parameters
    ----------
    space
        The groups, and what is chosen in each.
    rate
        How fast probabilities fall, exact: 1/rate is the scale of the error in ranks.

    Examples
    --------
    >>> from semidp.promise.schema.outcome import Outcome
    >>> from semidp.promise.sensitivity.rank_space import rank_space
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> public = Dataspace.from_table(
    ...     Table(Schema([Feature("ward", ["a", "b"])]), [30, 20]), [Margin("ward")]
    ... )
    >>> space = rank_space(public, Ball(2), Outcome("score", 0, 10, steps=10), [Margin("ward")])
    >>> for budget in (Budget.pure(1), Budget.zcdp("1/2"), Budget.gdp(1)):
    ...     mechanism = exponential_mechanism(space, budget)
    ...     print(
    ...         mechanism.name,
    ...         round(float(mechanism.rate), 4),
    ...         mechanism.tradeoff.epsilon("1e-6") < 6,
    ...     )
    permute and flip 0.25 True
    exponential (zCDP) 0.5 True
    exponential (GDP) 0.3989 True
    """

    rate: Fraction

    adds_noise: ClassVar[bool] = False
    scale_powers: ClassVar[Mapping[str, int]] = {"rate": -1}
    budget_kinds: ClassVar[tuple[str, ...]]
    law: ClassVar[type[Choice]] = ExponentialChoice

    @property
    def rank_space(self) -> RankSpace:
        """The space, which is one of ranks."""
        assert isinstance(self.space, RankSpace)
        return self.space

    @property
    def scale(self) -> float:
        """1/rate, in records: the scale of the error in ranks."""
        return round_up(1 / self.rate)

    @property
    def variance(self) -> float:
        """2/rate²: the squared error in ranks where each record has a value of its own and none lie
        between.
        """
        return 2 / float(self.rate) ** 2

    def with_less_noise(self, share: Fraction) -> "ExponentialMechanism":
        """Return choices at a larger rate: chosen values cannot be drawn towards the quantiles."""
        return replace(self, rate=self.rate / share)

    def noises(self, count: int, randomness: Randomness) -> NDArray[Any]:
        """Refuse: nothing is added to anything."""
        raise InputError("values are chosen here, and no noise is added: measure histograms")

    def measure(
        self,
        values: Confidential[NDArray[np.int64]] | NDArray[np.int64],
        randomness: Randomness | None = None,
    ) -> Measurement:
        """Choose values from the histograms of all groups, a row a group in steps of the grid."""
        histograms = reveal(values)
        self._check(histograms)
        source = SystemRandomness() if randomness is None else randomness
        chosen = self._choose(histograms, 1, source)[0]
        projected = chosen.astype(np.float64)
        return Measurement(chosen, projected, self.name, self.claim, source.secure)

    def restore_measurement(self, noisy: NDArray[Any], private: bool) -> Measurement:
        """Return the choices as they are: no totals fix them."""
        if noisy.min(initial=0) < 0 or noisy.max(initial=0) > self.rank_space.outcome.steps:
            raise ValueError("quantiles are steps of the grid")
        return Measurement(noisy, noisy.astype(np.float64), self.name, self.claim, private)

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Return the choices of `count` independent measurements: for audits and studies."""
        self._check(values)
        return self._choose(values, count, randomness)

    def _check(self, values: NDArray[np.int64]) -> None:
        space = self.rank_space
        shape = (len(space.sizes), space.outcome.steps + 1)
        if values.shape != shape or values.dtype.kind not in "iu":
            raise InputError(
                "quantiles need a histogram for each group: whole numbers, a column a step of the"
                " grid"
            )
        # The proof counts replaced values in groups of the published sizes: it does not cover
        # others.
        other_sizes = values.sum(axis=1) != space.sizes
        if other_sizes.any() or (values < 0).any():
            raise InputError(
                "a histogram does not add up to the published size of its group: read both alike"
            )

    def _choose(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Return `count` rows of choices, group after group."""
        space = self.rank_space
        stream = Stream(randomness)
        law = self.law(self.rate)
        sizes = space.sizes.tolist()
        all_ranks = space.ranks(self.rate).tolist()
        columns = []
        for histogram, size, ranks in zip(values, sizes, all_ranks, strict=True):
            for rank in ranks:
                # Such a rank follows from the public size alone: its answer is a constant, and
                # reads no record.
                if rank < 1 or not size:
                    columns.append(np.zeros(count, dtype=np.int64))
                elif rank > size:
                    columns.append(np.full(count, space.outcome.steps, dtype=np.int64))
                else:
                    columns.append(law.draw_many(rank_scores(histogram, rank), count, stream))
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class PermuteAndFlip(ExponentialMechanism):
    """Pure ε with ``ε = 2 rate Σ k_g``, chosen by flips: closer than the exponential mechanism at
    the same ε.
    """

    name: ClassVar[str] = "permute and flip"
    law: ClassVar[type[Choice]] = FlippedChoice
    budget_kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``rate = ε / 2Σk``; a δ in the budget is not used."""
        cls.check_request(space, budget)
        return cls(space, require_epsilon(budget) / (2 * space.l1))

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε, exact."""
        return approximate(2 * self.rate * self.space.l1)


@dataclass(frozen=True, eq=False)
class ConcentratedExponential(ExponentialMechanism):
    """zCDP with ``ρ = rate² Σ k_g² / 2``."""

    name: ClassVar[str] = "exponential (zCDP)"
    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``rate² = 2ρ / Σk²``, rounded down."""
        cls.check_request(space, budget)
        # Rounded down: a rate that is a little too large would exceed the budget.
        return cls(space, sqrt_down(2 * rho_within(budget) / space.l2_squared))

    @property
    def tradeoff(self) -> Tradeoff:
        """zCDP, by the exact rate."""
        return ZCDP(self.rate**2 * self.space.l2_squared / 2)


@dataclass(frozen=True, eq=False)
class GaussianExponential(ExponentialMechanism):
    """GDP with ``μ² = (π/2) rate² Σ k_g²``, π rounded up."""

    name: ClassVar[str] = "exponential (GDP)"
    budget_kinds: ClassVar[tuple[str, ...]] = ("gdp",)

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``rate² = 2μ² / (π Σk²)``, rounded down."""
        cls.check_request(space, budget)
        square = 2 * mu_within(budget) ** 2 / (_PI * space.l2_squared)
        return cls(space, sqrt_down(square))

    @property
    def tradeoff(self) -> Tradeoff:
        """μ-GDP, by the exact rate."""
        mu_squared = _PI / 2 * self.rate**2 * self.space.l2_squared
        return Gaussian(mu_squared)


EXPONENTIAL: tuple[type[ExponentialMechanism], ...] = (
    PermuteAndFlip,
    ConcentratedExponential,
    GaussianExponential,
)
"""How a budget is spent on choices."""


def exponential_mechanism(space: RankSpace, budget: Budget) -> Mechanism:
    """Return the mechanism with the largest rate that a budget allows; for (ε, δ) pure ε or zCDP
    serves it.
    """
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    fitting = [law for law in EXPONENTIAL if budget.kind in law.budget_kinds]
    mechanisms = [law.calibrate(space, budget) for law in fitting]
    # Each of them meets the budget, by public numbers alone: the least error in ranks, 1/rate,
    # decides.
    return max(mechanisms, key=lambda mechanism: mechanism.rate)


def farthest_rank(mechanism: ExponentialMechanism, missed: float) -> int:
    """Return the rank error that a choice exceeds with at most this probability, whatever the data.

    ``P(d >= t) <= (B + 1) exp(-rate t)``, since the value of the wanted rank has a score of at most
    0.
    """
    steps = mechanism.rank_space.outcome.steps
    reach = math.log((steps + 1) / missed) / float(mechanism.rate)
    return math.ceil(reach) - 1
