"""Posteriors with circles, zeros, nested features and residual noise: against enumeration, with
twins that fail.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, StructuralZero, Table, run
from semidp.errors import Refused
from semidp.inference.lattice_chains import (
    Chains,
    EntryLikelihood,
    difference_moves,
    open_differences,
)
from semidp.inference.likelihoods import join_likelihoods, noisy_counts
from semidp.inference.markov import mixing, posterior, run_chains
from semidp.inference.measured import Measured, measured_table
from semidp.present.release import Release
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.margins import Grid
from semidp.publish import TableRequest, TablesRequest


def tables_with(release: Release, measured: Measured) -> np.ndarray:
    """Every table of whole numbers with the exact totals of a release and nobody in impossible
    cells, flat.
    """
    schema = measured.schema
    public = release.scope.dataspace.restrict_features(schema.names)
    n = release.scope.dataspace.n
    possible = np.ones(schema.size, bool) if schema.possible is None else schema.possible.ravel()
    cells = np.flatnonzero(possible)
    every = []
    for bars in itertools.combinations(range(n + len(cells) - 1), len(cells) - 1):
        counts = np.diff((-1, *bars, n + len(cells) - 1)) - 1
        flat = np.zeros(schema.size, dtype=np.int64)
        flat[cells] = counts
        if public.contains(Table(schema, flat.reshape(schema.shape))):
            every.append(flat)
    return np.array(every)


def circle() -> Release:
    data = {"a": [*"xxxxxyyyyy"], "b": [*"ppqqpppqqp"], "c": [*"uvuvvvuuvu"]}
    features = [Feature("a", ["x", "y"]), Feature("b", ["p", "q"]), Feature("c", ["u", "v"])]
    plan = Plan(
        [TableRequest(["a", "b", "c"], Budget.gdp(2))],
        [["a", "b"], ["b", "c"], ["a", "c"]],
        features,
    )
    return run(plan, data, SeededRandomness(4))


def zeros() -> Release:
    """Nobody on the diagonal: the tables are connected by cycles of six cells, not by swaps of two
    records.
    """
    data = {"a": [*"xxxyyyzzz"], "b": [*"qrqprpqpp"]}
    features = [Feature("a", ["x", "y", "z"]), Feature("b", ["p", "q", "r"])]
    diagonal = [
        StructuralZero.from_pattern({"a": one, "b": other})
        for one, other in zip("xyz", "pqr", strict=True)
    ]
    plan = Plan(
        [TableRequest(["a", "b"], Budget.gdp(1))], ["a", "b"], features, structural_zeros=diagonal
    )
    return run(plan, data, SeededRandomness(4))


def product() -> Release:
    data = {"a": [*"xxyyxyxy"], "b": [*"pqrpqrpp"], "c": [*"uvuvvuuv"]}
    features = [Feature("a", ["x", "y"]), Feature("b", ["p", "q", "r"]), Feature("c", ["u", "v"])]
    tables = [TableRequest(["a", "b"]), TableRequest(["b", "c"])]
    return run(
        Plan([TablesRequest(tables, Budget.gdp(2))], ["a"], features), data, SeededRandomness(4)
    )


def nested() -> Release:
    counties = ["n1", "n1", "n2", "s1", "s2", "s2", "n2", "s1"]
    data = {"state": [county[0] for county in counties], "county": counties, "sex": [*"fmfmffmm"]}
    pairs = [("n", "n1"), ("n", "n2"), ("s", "s1"), ("s", "s2")]
    features = [Feature.from_paths(["state", "county"], pairs), Feature("sex", ["f", "m"])]
    plan = Plan(
        [TableRequest(["county", "sex"], Budget.gdp(1))], [["state", "sex"], ["county"]], features
    )
    return run(plan, data, SeededRandomness(4))


MADE: dict[str, Callable[[], Release]] = {
    "circle": circle,
    "zeros": zeros,
    "product": product,
    "nested": nested,
}


SLOW = pytest.param("zeros", marks=pytest.mark.long)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["circle", "product", "nested", SLOW])
def test_the_posterior_is_that_of_enumeration_and_not_that_of_other_noise(name: str) -> None:
    release = MADE[name]()
    table = "a-b" if name == "product" else None
    measured = measured_table(release, ("a", "b") if name == "product" else ())
    every = tables_with(release, measured)
    assert len(every) >= 3
    likelihood = join_likelihoods(
        reading.entries(measured.schema) for reading in noisy_counts(release)
    )
    logs = likelihood.evaluate(likelihood.errors(every))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    answer = posterior(release, measured.name, level=0.9, randomness=SeededRandomness(2))
    assert answer.notes
    error = 5 * answer.error.ravel() / math.sqrt(answer.mixing.size) + 1e-9
    np.testing.assert_array_less(np.abs(answer.mean.ravel() - weights @ every), error)
    held = (every >= answer.low.ravel() - 1e-9) & (every <= answer.high.ravel() + 1e-9)
    assert (weights @ held >= 0.9 - 0.02).all()
    # The twin: measurements taken to be twice as exact have other means.
    sharper = weights**4
    off = np.abs(answer.mean.ravel() - sharper @ every / sharper.sum())
    assert (off > error).any()
    assert table is None or answer.table == table


def test_the_likelihood_of_a_product_is_what_it_measured() -> None:
    """The residuals inside a table, as the product itself measures them, and the laws that it
    draws.
    """
    release = product()
    measured = measured_table(release, ("a", "b"))
    likelihood = noisy_counts(release)[0].entries(measured.schema)
    (mechanism,) = release.mechanisms
    space = mechanism.space
    a, b, c = (
        np.array([0, 0, 1, 1, 0, 1, 0, 1]),
        np.array([0, 1, 2, 0, 1, 2, 0, 0]),
        np.array([0, 1, 0, 1, 1, 0, 0, 1]),
    )
    one, other = np.zeros((2, 3), dtype=np.int64), np.zeros((3, 2), dtype=np.int64)
    np.add.at(one, (a, b), 1)
    np.add.at(other, (b, c), 1)
    schemas = [table.schema for table in release.tables]
    vector = space.measure([Table(schemas[0], one), Table(schemas[1], other)])
    inside = np.concatenate([np.arange(len(vector))[space.parts[view]] for view in space.inside[0]])
    assert len(inside) >= 6
    np.testing.assert_array_equal(likelihood.matrix @ one.ravel(), vector[inside])
    variances = np.array([law.variance for law in likelihood.laws])[likelihood.which]
    np.testing.assert_allclose(variances, mechanism.variances[inside])


@pytest.mark.long
def test_differences_that_miss_a_direction_are_caught_and_negative_counts_connect() -> None:
    """Without a diagonal and with one record a row, swaps alone never leave a table; chains at a
    price do.
    """
    grid = Grid.flat((3, 3))
    possible = ~np.eye(3, dtype=bool).ravel()
    table = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]]).ravel()
    other = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]).ravel()
    law = DiscreteGaussian(4)
    likelihood = EntryLikelihood(
        np.eye(9, dtype=np.int64), table, (law,), np.zeros(9, dtype=np.intp)
    )
    differences = tuple(open_differences((1, 1), [(1, 0), (0, 1)]))
    assert differences == ((1, 1),)
    moves = difference_moves(grid.chains, differences)
    chains = Chains(grid.shape, moves, likelihood, 1.0, possible)
    draws, state = run_chains(chains, table, np.random.default_rng(1))
    assert state.is_mixed
    seen = {tuple(row) for row in draws.reshape(-1, 9).tolist()}
    assert seen == {tuple(table), tuple(other)}
    share = float((draws.reshape(-1, 9) == table).all(axis=1).mean())
    truth = 1 / (1 + math.exp(-6 / 8))
    assert abs(share - truth) <= 5 * math.sqrt(truth * (1 - truth) / state.size)
    # The twin: with a price that nobody pays, chains stay where they are, and are refused.
    stuck = Chains(grid.shape, moves, likelihood, 1.0, possible)
    stuck.__dict__["price"] = 1e9
    starts = np.stack([table, other] * 32)
    _, kept = stuck.run(starts, 2000, np.random.default_rng(1), keep=100)
    assert kept is not None
    assert not mixing(kept, 2000).is_mixed


def test_chains_that_hold_no_possible_table_give_nothing() -> None:
    likelihood = EntryLikelihood(
        np.eye(4, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        (DiscreteGaussian(1),),
        np.zeros(4, int),
    )
    moves = difference_moves(Grid.flat((2, 2)).chains, ((1, 1),))
    chains = Chains((2, 2), moves, likelihood, 1.0, np.zeros(4, dtype=bool))
    start = np.array([1, 0, 0, 1])
    _, kept = chains.run(np.stack([start] * 4), 50, np.random.default_rng(1), keep=10)
    assert kept is None
    _, state = run_chains(chains, start, np.random.default_rng(1), 50)
    assert not state.is_mixed


def test_what_is_too_large_or_unlike_is_refused() -> None:
    names = [f"l{k:02}" for k in range(30)]
    data = {"a": names * 2, "b": names[::-1] * 2}
    tables = [TableRequest(["a", "b"]), TableRequest(["a"])]
    features = [Feature("a", names), Feature("b", names)]
    release = run(
        Plan([TablesRequest(tables, Budget.gdp(1))], [], features), data, SeededRandomness(1)
    )
    with pytest.raises(Refused, match="at most 512 cells"):
        posterior(release, "a-b")


def around_the_diagonal(records: int, mu: str) -> Release:
    """Nobody on the diagonal of a 3 × 3 table, so many records in each row: tables differ by cycles
    of six cells.
    """
    data = {"a": [*"xxyyzz"] * (records // 2), "b": [*"qrprpq"] * (records // 2)}
    features = [Feature("a", ["x", "y", "z"]), Feature("b", ["p", "q", "r"])]
    diagonal = [
        StructuralZero.from_pattern({"a": one, "b": other})
        for one, other in zip("xyz", "pqr", strict=True)
    ]
    plan = Plan(
        [TableRequest(["a", "b"], Budget.gdp(mu))], ["a", "b"], features, structural_zeros=diagonal
    )
    return run(plan, data, SeededRandomness(4))


@pytest.mark.long
def test_a_release_whose_chains_go_around_too_slowly_is_refused() -> None:
    """Every step around the diagonal has its price: hundreds of them take longer than the chains
    have.
    """
    with pytest.raises(Refused, match="do not agree after 3,000 steps"):
        posterior(around_the_diagonal(2000, "0.005"), steps=3000, randomness=SeededRandomness(1))
    # The twin: as many steps are enough for few records.
    answer = posterior(around_the_diagonal(2, "0.5"), steps=3000, randomness=SeededRandomness(1))
    assert answer.mixing.is_mixed
