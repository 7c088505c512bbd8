"""The pair of datasets on which quantiles are audited: adjacent, with the published sizes, and hard
on wrong noise.
"""

from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from scipy.special import logsumexp

from semidp.assess import audit_mechanism, choose_pair
from semidp.assess.attack import Audit, with_less_noise
from semidp.assess.pairs import worst_histograms
from semidp.promise.mechanisms.exponential import (
    ExponentialMechanism,
    RankSpace,
    exponential_mechanism,
    rank_scores,
    rank_space,
)
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff

OUTCOME = Outcome("score", 0, 20, 20)
ORDERS = (1.0001, 1.5, 2.0, 4.0, 8.0, 32.0)  # of Rényi divergences


def by_state(
    sizes: list[int], exchange: bool, steps: int = 20, level: str | None = None
) -> RankSpace:
    """Medians by state and by nation."""
    schema = Schema(
        [Feature.from_paths(["nation", "state"], [("z", str(k)) for k in range(len(sizes))])]
    )
    public = Dataspace.from_table(Table(schema, sizes), [Margin("state")])
    adjacency = outcome_exchange(public) if exchange else Ball(2)
    blocks = [Margin("state"), Margin("nation")]
    return rank_space(public, adjacency, Outcome("score", 0, 20, steps), blocks, level=level)


def two_features() -> RankSpace:
    """Medians by two published features and in all, one exchange."""
    schema = Schema([Feature("a", "xy"), Feature("b", "uvw"), Feature("all", "z")])
    table = Table(schema, np.array([[20, 9, 30], [15, 25, 21]])[:, :, None])
    blocks = [Margin("a"), Margin("b"), Margin("all")]
    public = Dataspace.from_table(table, blocks)
    return rank_space(public, outcome_exchange(public), OUTCOME, blocks)


def mechanism_of(space: RankSpace, budget: Budget) -> ExponentialMechanism:
    found = exponential_mechanism(space, budget)
    assert isinstance(found, ExponentialMechanism)
    return found


def losses_of(
    mechanism: ExponentialMechanism, one: np.ndarray, other: np.ndarray
) -> tuple[float, float]:
    """The least ε and ρ of the choices, which are independent: sums of what each group has, from
    the exact laws.
    """
    epsilons, divergences = np.zeros(2), np.zeros(len(ORDERS))
    for first, second, ranks in zip(
        one, other, mechanism.rank_space.ranks(mechanism.rate).tolist(), strict=True
    ):
        for rank in ranks:
            law = mechanism.law(mechanism.rate)
            p, q = (
                np.log(law.probabilities(rank_scores(histogram, rank)))
                for histogram in (first, second)
            )
            epsilons += (p - q).max(), (q - p).max()
            divergences += [logsumexp(a * p + (1 - a) * q) / (a - 1) / a for a in ORDERS]
    return float(epsilons.max()), float(divergences.max())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("space", "most"),
    [
        (by_state([40, 40], exchange=True), 3),
        (by_state([9, 3, 7], exchange=True), 3),
        (by_state([2, 1], exchange=True), 3),
        (by_state([40, 30], exchange=True, steps=1), 2),
        (by_state([40, 30], exchange=True, level="0.9"), 3),
        (by_state([1], exchange=True), 2),
        (by_state([40, 40], exchange=False), 4),
        (by_state([2, 1], exchange=False), 4),
        (two_features(), 5),
    ],
    ids=[
        "states",
        "small",
        "smallest",
        "two values",
        "intervals",
        "one person",
        "ball",
        "small ball",
        "two features",
    ],
)
def test_the_pair_is_adjacent_and_moves_as_much_as_may_be(space: RankSpace, most: int) -> None:
    """Both have the published sizes, all sets of groups hold the same values, and Σ k_g is that of
    the norms.
    """
    one, other = worst_histograms(mechanism_of(space, Budget.pure(1)))
    for histograms in (one, other):
        np.testing.assert_array_equal(histograms.sum(axis=1), space.sizes)
        assert histograms.min() >= 0
        ends = np.cumsum([counts.size for counts in space.counts])[:-1]
        values = [part.sum(axis=0) for part in np.split(histograms, ends)]
        assert all(np.array_equal(values[0], part) for part in values)
    replaced = np.abs(one - other).sum(axis=1) // 2
    assert replaced.sum() == most == space.l1 // space.choices


@pytest.mark.few(2)
@pytest.mark.parametrize("sizes", [[40, 40], [100, 80, 500]], ids=str)
@pytest.mark.parametrize(
    ("budget", "which", "factor"),
    [
        (Budget.pure(1), 0, Fraction(3, 2)),
        (Budget.pure(2), 0, Fraction(3, 2)),
        (Budget.zcdp("1/2"), 1, Fraction(1224, 1000)),
    ],
    ids=str,
)
def test_on_the_pair_the_old_noise_breaks_its_claim_and_the_new_one_keeps_it(
    sizes: list[int], budget: Budget, which: int, factor: Fraction
) -> None:
    """By the exact law of the choices: ε, or ρ. The old rate is that of the norm of sums, 2 instead
    of 3.
    """
    mechanism = mechanism_of(by_state(sizes, exchange=True), budget)
    one, other = worst_histograms(mechanism)
    claimed = float((budget.epsilon, budget.rho)[which] or 0)
    earlier = evolve(mechanism, rate=mechanism.rate * factor)
    losses = [losses_of(noise, one, other)[which] for noise in (mechanism, earlier)]
    assert 0.7 * claimed < losses[0] <= claimed < losses[1]


def attacked(mechanism: ExponentialMechanism, claim: Tradeoff, samples: int) -> Audit:
    return audit_mechanism(
        mechanism.measure_many,
        choose_pair(mechanism),
        claim,
        samples=samples,
        randomness=SeededRandomness(1),
        weaker=with_less_noise(mechanism),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "ball"])
def test_an_audit_convicts_the_old_noise_and_not_the_new(exchange: bool) -> None:
    """Medians by state and nation, epsilon 2: half as much again is convicted on 60,000 outputs."""
    mechanism = mechanism_of(by_state([40, 40], exchange), Budget.pure(2))
    wrong = evolve(mechanism, rate=mechanism.rate * Fraction(3, 2))
    assert attacked(wrong, mechanism.tradeoff, 60_000).verdict == "convicted"
    assert attacked(mechanism, mechanism.tradeoff, 60_000).verdict != "convicted"


@pytest.mark.long
def test_an_audit_of_issue_26_at_epsilon_1() -> None:
    mechanism = mechanism_of(by_state([40, 40], exchange=True), Budget.pure(1))
    wrong = evolve(mechanism, rate=mechanism.rate * Fraction(3, 2))
    found = attacked(wrong, mechanism.tradeoff, 1_000_000)
    assert found.verdict == "convicted"
    assert attacked(mechanism, mechanism.tradeoff, 1_000_000).verdict != "convicted"
