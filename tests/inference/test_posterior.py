"""The posterior of the true counts: chains against enumeration for every noise, and chains that
have not mixed.
"""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.lattice_chains import Chains, EntryLikelihood, ParallelMoves, Siblings
from semidp.inference.likelihoods import noisy_counts
from semidp.inference.markov import (
    Mixing,
    mixing,
    posterior,
    run_chains,
    shortest_intervals,
    swap_moves,
)
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

# Spaces that can be enumerated: a small table, and the axes of its exact totals.
SPACES: dict[str, tuple[np.ndarray, list[list[int]]]] = {
    "rows and columns": (np.array([[3, 1, 2], [1, 4, 1]]), [[0], [1]]),
    "rows alone": (np.array([[2, 1, 1], [0, 3, 1]]), [[0]]),
    "n alone": (np.array([[2, 1], [1, 2]]), []),
    "A×B and B×C": (np.array([[[1, 2], [2, 1]], [[2, 0], [1, 1]]]), [[0, 1], [1, 2]]),
    "three one-way": (np.array([[[1, 1], [1, 0]], [[0, 2], [1, 1]]]), [[0], [1], [2]]),
    "A×B, C free": (np.array([[[1, 2], [2, 1]], [[2, 0], [1, 1]]]), [[0, 1]]),
}


def tables_like(table: np.ndarray, margins: Iterable[Iterable[int]]) -> np.ndarray:
    """Every table of whole numbers with the same total and margins, flat."""
    axes = range(table.ndim)
    sums = [tuple(axis for axis in axes if axis not in margin) for margin in margins]
    n = int(table.sum())
    every = []
    for bars in itertools.combinations(range(n + table.size - 1), table.size - 1):
        edges = (-1, *bars, n + table.size - 1)
        flat = np.diff(edges) - 1
        other = flat.reshape(table.shape)
        if all((other.sum(axis=axis) == table.sum(axis=axis)).all() for axis in sums):
            every.append(flat)
    return np.array(every)


def chains_of(
    table: np.ndarray, margins: list[list[int]], noisy: np.ndarray, sigma: float
) -> Chains:
    law, which = DiscreteGaussian(Fraction(sigma) ** 2), np.zeros(table.size, dtype=np.intp)
    unit = np.eye(table.size, dtype=np.int64)
    likelihood = EntryLikelihood(unit, noisy.ravel(), (law,), which)
    return Chains(table.shape, swap_moves(table.shape, margins), likelihood, sigma)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SPACES)
def test_chains_have_the_posterior_of_enumeration_and_not_that_of_another_scale(name: str) -> None:
    table, margins = SPACES[name]
    noisy = table + np.random.default_rng(1).integers(-2, 3, table.shape)
    every = tables_like(table, margins)
    assert len(every) > 5

    def means(sigma: float) -> np.ndarray:
        weights = np.exp(-((noisy.ravel() - every) ** 2).sum(axis=1) / (2 * sigma**2))
        return (weights[:, None] * every).sum(axis=0) / weights.sum()

    draws, state = run_chains(
        chains_of(table, margins, noisy, 1.5), table.ravel(), np.random.default_rng(2)
    )
    assert state.is_mixed
    found = draws.reshape(-1, table.size)
    assert {tuple(row) for row in found.tolist()} <= {tuple(row) for row in every.tolist()}
    error = 5 * found.std(axis=0) / math.sqrt(state.size) + 1e-9
    assert (np.abs(found.mean(axis=0) - means(1.5)) <= error).all()
    # The twin: another scale of noise has other means.
    assert (np.abs(found.mean(axis=0) - means(4.0)) > error).any()
    # Every table that has a chance to be seen is reached: the moves connect the space.
    weights = np.exp(-((noisy.ravel() - every) ** 2).sum(axis=1) / (2 * 1.5**2))
    likely = every[weights / weights.sum() > 0.02]
    assert {tuple(row) for row in likely.tolist()} <= {tuple(row) for row in found.tolist()}


@pytest.mark.long
def test_moves_that_do_not_connect_the_tables_are_caught() -> None:
    """Without the exchange of the third feature the chains stay where they started: refused, not
    reported.
    """
    table, margins = SPACES["three one-way"]
    good = chains_of(table, margins, table, 1.5)
    first, third = (Siblings(np.array([0, place]), np.zeros(2, dtype=int)) for place in (4, 1))
    swap = ParallelMoves((first, third), np.array([0, 2]))
    bad = Chains(table.shape, (swap,), good.likelihood, 1.5)
    source = np.random.default_rng(3)
    _, right = run_chains(good, table.ravel(), source, 12_000)
    starts = np.stack([table.ravel(), tables_like(table, margins)[0]] * 32)
    _, draws = bad.run(starts, 2000, source, keep=100)
    assert right.is_mixed
    assert not mixing(draws, 2000).is_mixed


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_too_few_steps_are_refused(steps: int) -> None:
    """Also where half a chain has one draw or none, and so no variance to compare."""
    release = release_of("gaussian", Budget.gdp("0.2"))
    with pytest.raises(Refused, match=f"do not agree after {steps} steps"):
        posterior(release, steps=steps, randomness=SeededRandomness(1))


def test_chains_that_differ_do_not_count_as_mixed() -> None:
    stuck = np.zeros((100, 64, 2))
    stuck[:, :32] = 1
    assert mixing(stuck, 100).reduction == math.inf
    assert mixing(np.zeros((100, 64, 2)), 100) == Mixing(1.0, math.inf, 100)
    # Half a chain of fewer than two draws has no variance: nothing is said, so nothing agrees.
    for times in range(4):
        assert not mixing(np.zeros((times, 64, 2)), times).is_mixed
    slow = np.cumsum(np.random.default_rng(1).normal(size=(100, 64, 1)), axis=0)
    assert not mixing(slow, 100).is_mixed


MECHANISMS = [
    ("gaussian", Budget.gdp(1)),
    ("gaussian", Budget.zcdp("0.5")),
    ("laplace", Budget.pure(2)),
    ("lattice", Budget.zcdp("0.5")),
]


def release_of(mechanism: str, budget: Budget, seed: int = 1):
    data = {"r": [*"aaabbbbb"] * 2, "c": [*"xyzxyyzz"] * 2}
    features = [Feature("r", ["a", "b"]), Feature("c", ["x", "y", "z"])]
    plan = Plan([TableRequest(["r", "c"], budget, mechanism)], ["r", "c"], features)
    return run(plan, data, SeededRandomness(seed))


@pytest.mark.few(1)
@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS)
def test_a_release_has_the_posterior_of_its_own_noise(mechanism: str, budget: Budget) -> None:
    release = release_of(mechanism, budget)
    truth = np.array([[2, 2, 2], [2, 4, 4]])  # only its margins are used
    every = tables_like(truth, [[0], [1]])
    noisy = np.asarray(release.results[0].noisy).ravel()
    (noise,) = release.mechanisms
    answer = posterior(release, level=0.9, randomness=SeededRandomness(2))
    if mechanism == "lattice":
        chance = np.exp(-((noisy - every) ** 2).sum(axis=1) / (2 * float(noise.sigma2)))
    else:
        chance = noise.sampler.pmf(noisy - every).prod(axis=1)
    weights = chance / chance.sum()
    mean = weights @ every
    error = 5 * answer.error.ravel() / math.sqrt(answer.mixing.size) + 1e-9
    assert (np.abs(answer.mean.ravel() - mean) <= error).all()
    held = (every >= answer.low.ravel() - 1e-9) & (every <= answer.high.ravel() + 1e-9)
    assert (weights @ held >= 0.9 - 0.02).all()
    likelihood = noisy_counts(release)[0].entries(release.tables[0].schema)
    logs = likelihood.evaluate(likelihood.errors(every))
    np.testing.assert_allclose(
        np.exp(logs - logs.max()), chance / chance.max(), rtol=1e-6, atol=1e-12
    )


def test_intervals_are_the_shortest_that_hold_their_share() -> None:
    """Against every interval of a few laws; where a law falls all the way, equal tails are
    longer.
    """
    source = np.random.default_rng(1)
    compared = 0
    for _ in range(40):
        draws = source.geometric(source.uniform(0.2, 0.9), (60, 2)) * source.integers(1, 3)
        low, high = shortest_intervals(draws, 0.8)
        for column in range(2):
            values = draws[:, column]
            shortest = min(
                end - start
                for start, end in itertools.product(np.unique(values), repeat=2)
                if ((values >= start) & (values <= end)).mean() >= 0.8 - 1e-12
            )
            assert high[column] - low[column] == shortest
            held = (values >= low[column]) & (values <= high[column])
            assert held.mean() >= 0.8 - 1e-12
            compared += 1
    assert compared == 80
    falling = source.geometric(0.05, (4000, 1)) - 1
    tails = np.quantile(falling, [0.025, 0.975], method="inverted_cdf")
    low, high = shortest_intervals(falling, 0.95)
    assert low[0] == 0
    assert high[0] - low[0] < tails[1] - tails[0]


@pytest.mark.long
def test_small_cells_have_shorter_intervals_than_the_noise_alone() -> None:
    data = {"r": ["a"] * 60 + ["b"] * 4, "c": [*"xxxxxyyyyz"] * 6 + ["z"] * 4}
    plan = Plan([TableRequest(["r", "c"], Budget.gdp("0.3"))], ["r"], levels_from_data=True)
    release = run(plan, data, SeededRandomness(1))
    answer = posterior(release, randomness=SeededRandomness(1))
    # Cell by cell, at the same level, and cut to what the exact totals allow: as the posterior is.
    widths = []
    for row in "ab":
        for column in "xyz":
            alone = release.interval(
                {"r": row, "c": column}, draws=999, randomness=SeededRandomness(1)
            )
            widths.append(alone.high - alone.low)
    assert len(widths) == answer.low.size
    assert (answer.high - answer.low).sum() < sum(widths)
    np.testing.assert_allclose(answer.mean.sum(axis=1), [60, 4])
    assert answer.rows[0][:2] == ("a", "x")
    assert answer.to_json()["cells"][0]["r"] == "a"


def test_what_has_no_posterior_is_refused() -> None:
    data = {"a": [*"xyxyxy"], "b": [*"xxyyxy"], "c": [*"xyyxxx"]}
    pure = Plan([TableRequest(["a", "b"], Budget.pure(1), "l2")], ["a", "b"])
    with pytest.raises(Refused, match="l2 noise"):
        posterior(run(pure, data))
    raw = Plan([TableRequest(["a", "b"], Budget.gdp(1), "gaussian", "none")], ["a", "b"])
    # Noise that happens to be whole would leave a table that has a posterior: the seed has none.
    with pytest.raises(Refused, match="not whole numbers"):
        posterior(run(raw, data, SeededRandomness(1)))
    with pytest.raises(InputError, match="between 0 and 1"):
        posterior(run(raw, data), level=2)
