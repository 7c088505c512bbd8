"""Quantiles by exact group: how far ranks of a private outcome can move while group sizes stay
exact, and the mechanisms that choose a value in each group.

The fewer records would have to change to make a value the quantile, the likelier it is chosen.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.exact import Number, exact, parse_level, plain, round_up, sqrt_down
from semidp.promise.mechanisms.additive import mu_within, rho_within
from semidp.promise.mechanisms.mechanism import (
    Measurement,
    Mechanism,
    NoNoise,
    require_epsilon,
)
from semidp.promise.noise.choice import Choice, ExponentialChoice, FlippedChoice
from semidp.promise.noise.randomness import Randomness, Stream, SystemRandomness
from semidp.promise.schema.margins import Counts
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import (
    SpaceByGroups,
    SumSpace,
    groups_json,
    recorded_groups,
    sum_space,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Margin
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@frozen(slots=False)
class RankSpace(SpaceByGroups):
    """How many records of each group can be replaced: Σ k_g and Σ k_g², for m choices in each
    group.

    The r-th smallest value of a group with n_g records is v where fewer than r values lie below v
    and at least r up to v. Every v has the score ``s(v) = max(r - F(v), F(v-1) - r + 1)``, F(v) the
    number of values up to v (`rank_scores`). Above 0 it is the fewest records of the group that
    must be replaced to make v the r-th smallest. Only the r-th smallest value has a score of at
    most 0, which falls with the number of its ties: the weight of the wanted value grows with its
    ties, and everything else is chosen less often.

    *Groups.* Let two datasets of D_t differ in the records I, |I| <= a. Outside I nothing changes
    and the sizes are equal, so I holds the same number k_g of records of group g in both, whoever
    changed the group: the values of the group differ by k_g replacements, ``Σ k_g <= a`` and
    ``k_g <= n_g``. Each changes F(v) by at most 1 for every v, so s(v) changes by at most k_g.

    *Choices.* For zCDP and GDP a group's choice has ``P(v) ∝ exp(-rate · s(v))``. The logarithm of
    the ratio of its probabilities before and after is ``rate (s'(v) - s(v))`` plus a constant,
    so it varies by at most ``η_g = 2 rate k_g`` (bounded range). For pure ε it is the v with the
    largest ``E_v - rate · s(v)``, E_v independent and exponential (`FlippedChoice`): given all
    other E, v is chosen where E_v is at least some number, which moves by at most η_g, and
    ``P(E >= x + η) >= e^-η P(E >= x)``. The groups choose independently. Hence, jointly over all
    groups and choices,

    - pure: each log ratio is at most η_g, so ``ε = Σ η_g = 2 rate Σ k_g``;
    - zCDP: range η_g gives ``η_g²/8`` (Cesar and Rogers 2021), and Rényi divergences add:
      ``ρ = rate² Σ k_g² / 2``;
    - GDP: the worst curve of range η_g has two outcomes with ``logit p - logit q = η_g`` (Dong,
      Durfee and Rogers 2020), and ``Φ^-1(p) - Φ^-1(q) <= η_g √(2π)/4`` since
      ``Φ(z)(1 - Φ(z)) <= e^{-z²/2}/4`` (a disk lies in its square), so
      ``μ_g <= rate k_g √(π/2)`` and ``μ² = (π/2) rate² Σ k_g²``.

    `norms` are Σ k_g, Σ k_g² and the largest k_g, times the m choices of each group, each at its
    worst. Several sets of groups add up. The point is that choices in several groups are charged
    together and not one by one: only a records change in all, wherever they are.

    *Balls.* Each set obeys ``Σ k_g <= a``, whatever the others do, and Σ k_g² is largest where the
    largest groups are filled first. With p + p' sets ``Σ k_g = a (p + p')``.

    *Exchanges.* The person leaves group x with the value v and enters group y with v', and the
    carrier takes its w from y to x. So v is replaced by w in x and w by v' in y: two groups of a
    set with several inhabited ones, one replacement each. In a set with one inhabited group v is
    replaced by v'. With p sets of the first kind and p' of the second ``Σ k_g = Σ k_g² = 2p + p'``
    (docs/groups.md). Sums of an outcome move by less (`SumSpace`): where v = v' the change of
    the only group is 0, and where v and v' are at the two bounds, w is at one of them. Ranks count
    replaced values and not how far they moved, so any v < w < v' changes all 2p + p' groups.
    With two values there is no such w: the rank of the lower value is then the group's size less
    the sum, and the norms are those of sums, ``max(2p, p + p')``.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = rank_space(public, Ball(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> space.l1, space.l2_squared, space.shape
    (2, 4, (2,))
    """

    probabilities: tuple[Fraction, ...]
    level: Fraction | None = None
    sampling: bool = False

    method = "closed form for replaced values by published groups"

    def query(self) -> dict[str, Any]:
        """Return the outcome, the groups, and what is chosen in each."""
        chosen: dict[str, Any] = {}
        chosen["probabilities"] = [plain(q) for q in self.probabilities]
        if self.level is not None:
            chosen |= {"level": plain(self.level), "sampling": self.sampling}
        return {"kind": "quantiles", **self._outcome_json(), **groups_json(self), **chosen}

    @property
    def choices(self) -> int:
        """How many values are chosen in each group: one per quantile, or three with the ends
        of its interval.
        """
        return len(self.probabilities) * (1 if self.level is None else 3)

    @cached_property
    def sums(self) -> SumSpace:
        """The sums of an outcome of one step: under A_a, and with two values, they move by the k_g
        at their worst.
        """
        one_step = evolve(self.outcome, steps=1)
        return sum_space(self.dataspace, self.adjacency, one_step, self.blocks, self.answered)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of choices, group after group."""
        return (len(self.sizes) * self.choices,)

    @cached_property
    def norms(self) -> Norms:
        """Σ k_g, Σ k_g² and the largest k_g over all choices."""
        return self._of_choices(self._single_choice_norms)

    def _of_choices(self, once: Norms) -> Norms:
        """Norms of all choices in a group, from those of one."""
        l1 = self.choices * once.l1
        l2_squared = self.choices * once.l2_squared
        return Norms(l1, l2_squared, once.linf)

    @property
    def _single_choice_norms(self) -> Norms:
        """The norms for one choice in each group."""
        # a value that stays in its group and one that is swapped are the same change
        if self.outcome.steps == 1 and self.exact_moves is None:
            return self.sums.norms
        return self.replaced_norms

    @property
    def naive(self) -> Norms:
        """The same for one record where no size is public: in each set it leaves one group and
        enters another.
        """
        return self._of_choices(self.sums.naive)

    @property
    def exact(self) -> bool:
        """Whether the stated numbers of replaced records are attained."""
        return self.sums.exact

    @property
    def dimension(self) -> int:
        """The number of choices in groups with records."""
        return int((self.sizes > 0).sum()) * self.choices

    def ranks(self, rate: Fraction) -> NDArray[np.int64]:
        """Return the rank that each choice looks for, one row per group: 0 below, and n_g + 1 above
        all values.

        The q-quantile of n values is the ``⌈q n⌉``-th smallest. An interval of level 1 - α looks
        for ranks so far below and above that a choice rarely passes the quantile: a value beyond it
        is at least t + 1 replacements away from the rank t below, there are at most B such values,
        and the best score is at most 0, so ``B exp(-rate (t + 1)) <= α/2`` is enough. With
        sampling, half of α goes to the order statistics that hold the population's quantile by the
        binomial law.
        """
        columns = []
        for q in self.probabilities:
            exact_ranks = [math.ceil(q * int(n)) for n in self.sizes]
            middle = np.array([max(rank, 1) for rank in exact_ranks], dtype=np.int64)
            # A group without records has no first value: rank 0 makes its choice a constant.
            columns.append(np.minimum(middle, self.sizes))
            if self.level is not None:
                low, high = self._between(q, middle, self.level)
                apart = self.interval_rank_offset(rate, self.level)
                # Beyond all values there is nothing to choose: rank 0 or n + 1 makes the end a
                # declared bound.
                columns.append(np.maximum(low - apart, 0))
                columns.append(np.minimum(high + apart, self.sizes + 1))
        return np.stack(columns, axis=1)

    def interval_rank_offset(self, rate: Fraction, level: Fraction) -> int:
        """Return how many ranks below and above a quantile the ends of its interval are chosen
        for.
        """
        # Both ends share α. With sampling, half of it is left for the order statistics.
        missed = float(1 - level) / (4 if self.sampling else 2)
        reach = math.log(self.outcome.steps / missed) / float(rate)
        return max(math.ceil(reach) - 1, 0)

    def _between(self, q: Fraction, middle: Counts, level: Fraction) -> tuple[Counts, Counts]:
        """Return the ranks between which the quantile of the records lies, or that of their
        population.
        """
        if not self.sampling:
            return middle, middle
        from scipy.stats import binom

        missed = float(1 - level) / 4
        # Records of one person may vary together: at worst all of them are alike.
        persons = np.maximum(self.sizes // self.adjacency.most_records, 1)
        each = np.maximum(self.sizes, 1) / persons
        # P(Bin >= low) >= 1 - missed
        low = np.floor(np.asarray(binom.ppf(missed, persons, float(q))) * each)
        # P(Bin <= high - 1) >= 1 - missed
        high = np.ceil(np.asarray(binom.ppf(1 - missed, persons, float(q))) * each) + 1
        return low.astype(np.int64), high.astype(np.int64)


def parse_quantiles(value: Iterable[Number]) -> tuple[Fraction, ...]:
    """Return the quantiles asked for: at least one, between 0 and 1, distinct and increasing.

    >>> parse_quantiles(["0.25", "1/2"])
    (Fraction(1, 4), Fraction(1, 2))
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"quantiles are a list such as [0.25, 0.5, 0.75], not {value!r}")
    value = tuple(value)
    if any(isinstance(q, (list, tuple)) for q in value):
        raise InputError("quantiles are given one by one, as in 0.25, 0.5, 0.75, not as a list")
    quantiles = tuple(exact(q, "a quantile") for q in value)
    inside = all(0 < q < 1 for q in quantiles)
    ascending = list(quantiles) == sorted(set(quantiles))
    if not quantiles or not inside or not ascending:
        raise InputError(
            "quantiles are numbers between 0 and 1, each named once and in growing order"
        )
    return quantiles


def rank_space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    blocks: Sequence[Margin],
    probabilities: Sequence[Number] = (Fraction(1, 2),),
    *,
    level: Number | None = None,
    sampling: bool = False,
    answered: str | None = None,
) -> RankSpace:
    """Return the space of quantiles of an outcome by published groups; refuse groups whose counts
    are not published.

    Parameters
    ----------
    dataspace, adjacency, outcome, blocks, answered
        As for `sum_space`.
    probabilities
        Which quantiles, each between 0 and 1; the median if left out.
    level
        The level of an interval for each; without it no interval is chosen.
    sampling
        Whether intervals are about the population that the records were sampled from.
    """
    quantiles = parse_quantiles(probabilities)
    confidence = None if level is None else parse_level(level)
    public = sum_space(dataspace, adjacency, outcome, blocks, answered).dataspace
    return RankSpace(
        public,
        adjacency,
        outcome,
        tuple(blocks),
        quantiles,
        confidence,
        sampling,
        answered=answered,
    )


def rank_scores(histogram: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
    """Return ``max(r - F(v), F(v-1) - r + 1)`` for each step v: at most 0 for the rank-th smallest
    value alone.

    >>> rank_scores(np.array([1, 0, 3, 0]), 3).tolist()  # values 0, 2, 2, 2
    [2, 2, -1, 2]
    """
    up_to = np.cumsum(histogram)
    too_low = rank - up_to
    too_high = up_to - histogram - rank + 1
    return np.asarray(np.maximum(too_low, too_high), dtype=np.int64)


def recorded_ranks(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> RankSpace:
    """Return the space of ranks that `RankSpace.query` wrote."""
    outcome, blocks, answered = recorded_groups(query)
    return rank_space(
        dataspace,
        adjacency,
        outcome,
        blocks,
        query["probabilities"],
        level=query.get("level"),
        sampling=bool(query.get("sampling", False)),
        answered=answered,
    )


_PI = Fraction(355, 113)  # a little more than π


@frozen(eq=False)
class ExponentialMechanism(Mechanism):
    """Choices with ``P(v) ∝ exp(-rate · s(v))``, s(v) the score of `rank_scores`.

    What is measured is a histogram of the outcome in each group, one row per group; what comes out
    is a value for each choice, in steps of the grid: 0 and the last step where the rank lies below
    or above all values.

    Parameters
    ----------
    space
        The groups, and the choices in each.
    rate
        How fast probabilities fall, exact: 1/rate is the scale of the error in ranks.

    Examples
    --------
    >>> from semidp.promise.schema.outcome import Outcome
    >>> from semidp.promise.mechanisms.exponential import rank_space
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
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
        """Return choices at a larger rate: chosen values cannot be moved towards the quantiles."""
        return evolve(self, rate=self.rate / share)

    def noises(self, count: int, randomness: Randomness) -> NDArray[Any]:
        """Refuse: nothing is added to anything."""
        raise InputError("values are chosen here, and no noise is added: measure histograms")

    def measure(
        self,
        values: Confidential[NDArray[np.int64]] | NDArray[np.int64],
        randomness: Randomness | None = None,
    ) -> Measurement:
        """Choose values from the histograms of all groups, one row per group in grid steps."""
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


@frozen(eq=False)
class PermuteAndFlip(ExponentialMechanism):
    """Pure ε with ``ε = 2 rate Σ k_g``, chosen by flips: more accurate than the exponential
    mechanism at the same ε.
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


@frozen(eq=False)
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


@frozen(eq=False)
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
"""The mechanism of choices for each kind of budget."""


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
