"""The posterior from several measurements: products of likelihoods against enumeration, with twins
that forget one.
"""

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, combine, run
from semidp.cli._program import run as command
from semidp.errors import Refused
from semidp.inference.lattice_chains import EntryLikelihood, FollowedSums
from semidp.inference.likelihoods import NoisyCounts, SummedNoise, noisy_counts
from semidp.inference.markov import posterior
from semidp.present.release import Release
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

DATA = {"r": [*"aaabbb"], "c": [*"xyzxyy"], "d": [*"uvuvuu"]}
R, C, D = Feature("r", ["a", "b"]), Feature("c", ["x", "y", "z"]), Feature("d", ["u", "v"])
EVERY = np.array(
    [
        counts
        for counts in itertools.product(range(4), repeat=6)
        if sum(counts[:3]) == 3 == sum(counts[3:])
    ]
)
"""Every table of r and c with three records in each row."""


@cache
def rounded() -> Release:
    """The table of r and c with rounded Gaussian noise, rows exact."""
    plan = Plan([TableRequest(["r", "c"], Budget.gdp("1.5"))], ["r"], [R, C])
    return run(plan, DATA, SeededRandomness(1))


@cache
def turned() -> Release:
    """The same table with its features the other way round and discrete Gaussian noise."""
    plan = Plan([TableRequest(["c", "r"], Budget.zcdp("0.5"), "gaussian")], ["r"], [C, R])
    return run(plan, DATA, SeededRandomness(2))


@cache
def finer() -> Release:
    """A table that has only c in common, with Laplace noise."""
    plan = Plan([TableRequest(["c", "d"], Budget.pure(3), "laplace")], [], [C, D])
    return run(plan, DATA, SeededRandomness(3))


@cache
def product() -> Release:
    """Tables that share a budget: noise on residuals."""
    tables = [TableRequest(["r", "c"]), TableRequest(["d"])]
    plan = Plan([TablesRequest(tables, Budget.gdp(2))], [], [R, C, D])
    return run(plan, DATA, SeededRandomness(4))


def residual_chances(reading: NoisyCounts, tables: np.ndarray) -> np.ndarray:
    """Of residuals only those of r and c follow from the table."""
    space = reading.mechanism.space
    laws, which = reading.mechanism.samplers
    chance = np.ones(len(tables))
    for view, part in space.parts.items():
        if view[2] == 0:
            dropped = tuple(axis + 1 for axis in range(2) if not view[axis])
            summed = tables.sum(axis=dropped)
            exact = np.stack(
                [space.residuals.compute_integer_residual(view, each).ravel() for each in summed]
            )
            off = reading.noisy[part] - exact
            for place, number in enumerate(which[part]):
                chance *= laws[number].pmf(off[:, place])
    return chance


def chances(reading: NoisyCounts, *, count: int = 2) -> np.ndarray:
    """The likelihood of every table from one reading, written down by its definition."""
    tables = EVERY.reshape(-1, 2, 3)
    if not hasattr(reading.mechanism, "sampler"):
        return residual_chances(reading, tables)
    pmf = reading.mechanism.sampler.pmf
    if reading.schema.names == ("c", "d"):
        noisy = reading.noisy.reshape(3, 2).sum(axis=1)
        one = pmf(np.arange(-300, 301))
        law = np.convolve(one, one) if count == 2 else np.pad(one, 300)
        return law[noisy - tables.sum(axis=1) + 600].prod(axis=1)
    noisy = reading.noisy.reshape(reading.schema.shape)
    turned_noisy = noisy if reading.schema.names == ("r", "c") else noisy.T
    return pmf(turned_noisy - tables).prod(axis=(1, 2))


def mean_of(weights: np.ndarray) -> np.ndarray:
    return weights @ EVERY / weights.sum()


MADE = {
    "the same table twice": (rounded, turned),
    "a table with one feature in common": (rounded, finer),
    "residuals": (rounded, product),
    "all": (rounded, turned, finer, product),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MADE)
def test_the_posterior_of_a_combination_is_that_of_all_its_noise(name: str) -> None:
    release = combine(*(make() for make in MADE[name]))
    parts = [chances(reading) for reading in noisy_counts(release)]
    assert len(parts) == len(MADE[name])
    answer = posterior(release, release.tables[0].name, level=0.9, randomness=SeededRandomness(5))
    assert answer.schema.names == ("r", "c")
    assert any(f"{len(parts)} measurements" in note for note in answer.notes)
    error = 5 * answer.error.ravel() / math.sqrt(answer.mixing.size) + 1e-9
    weights = np.prod(parts, axis=0)
    np.testing.assert_array_less(np.abs(answer.mean.ravel() - mean_of(weights)), error)
    held = (answer.low.ravel() - 1e-9 <= EVERY) & (answer.high.ravel() + 1e-9 >= EVERY)
    assert (weights @ held / weights.sum() >= 0.9 - 0.02).all()
    # The twins: a posterior that forgets one of the measurements is another.
    for forgotten in range(len(parts)):
        left = np.prod(parts[:forgotten] + parts[forgotten + 1 :], axis=0)
        assert (np.abs(answer.mean.ravel() - mean_of(left)) > error).any()


def test_likelihoods_of_all_readings_are_those_of_their_definition() -> None:
    """In every table with the exact totals, up to one factor; a sum taken for one cell is
    caught.
    """
    release = combine(rounded(), turned(), finer(), product())
    schema = release.tables[0].schema
    compared = 0
    for reading in noisy_counts(release):
        likelihood = reading.entries(schema)
        logs = likelihood.evaluate(likelihood.errors(EVERY))
        exact = np.log(chances(reading))
        np.testing.assert_allclose(logs - logs[0], exact - exact[0], rtol=1e-9, atol=1e-9)
        compared += len(logs)
    assert compared == 400
    part = noisy_counts(release)[2]
    likelihood = part.entries(schema)
    logs, wrong = likelihood.evaluate(likelihood.errors(EVERY)), np.log(chances(part, count=1))
    assert np.abs((logs - logs[0]) - (wrong - wrong[0])).max() > 0.1


def test_the_noise_of_a_sum_is_the_convolution_of_its_cells() -> None:
    for law in (DiscreteLaplace(3), DiscreteGaussian(5)):
        one = law.pmf(np.arange(-200, 201))
        three = np.convolve(np.convolve(one, one), one)
        summed = SummedNoise(law, 3)
        np.testing.assert_allclose(summed.pmf(np.arange(40)), three[600:640], rtol=1e-9)
        assert math.isclose(summed.variance, 3 * law.variance)
        assert abs(summed.pmf(np.arange(2))[1] - law.pmf(np.arange(2))[1]) > 0.01
    # Long lists go through a Fourier transform: what it leaves of the tail is not believed.
    wide = SummedNoise(DiscreteGaussian(2000**2), 2)
    chance = wide.pmf(np.array([0, 2000, 8000]))
    normal = (
        np.exp(-(np.array([0, 2000, 8000]) ** 2) / (4 * 2000**2)) / math.sqrt(4 * math.pi) / 2000
    )
    np.testing.assert_allclose(chance, normal, rtol=1e-6)
    assert wide.pmf(np.array([30_000]))[0] == 0


PAIRS = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]])
MATRICES = {
    "few numbers": PAIRS,
    "numbers of few cells": np.concatenate([np.kron(np.eye(5, dtype=int), PAIRS[:, :4])] * 2)[
        :, :6
    ],
    "weights": np.random.default_rng(2).integers(-2, 3, (9, 6)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_gains_of_moves_are_differences_of_likelihoods(name: str) -> None:
    """Sums of cells are followed move by move: also where two cells of a move are in one sum, or
    in none.
    """
    matrix = MATRICES[name]
    law, which = DiscreteGaussian(9), np.zeros(len(matrix), dtype=np.intp)
    source = np.random.default_rng(1)
    likelihood = EntryLikelihood(matrix, source.integers(-3, 9, len(matrix)), (law,), which)
    tables = source.integers(0, 9, (50, 6))
    sums = FollowedSums(likelihood, tables)
    seen, _ = likelihood.find_changes(np.zeros((1, 4), dtype=int), np.ones(4))
    assert (seen.shape[1] < len(matrix)) is (name == "numbers of few cells")
    every = np.arange(50)
    compared = 0
    for _ in range(40):
        cells = np.stack([source.permutation(6)[:4] for _ in range(50)])
        signs = source.integers(-2, 3, 4)
        amounts = source.integers(-3, 4, (2, 50))
        gains = sums.gain(cells, signs)
        gain = gains(amounts, every)
        # Some of the lines, at other places than their own numbers.
        np.testing.assert_array_equal(gains(amounts[:, 20:30], every[20:30]), gain[:, 20:30])
        before = likelihood.evaluate(likelihood.errors(tables))
        for tried, more in zip(amounts, gain, strict=True):
            after = tables.copy()
            held = np.take_along_axis(tables, cells, 1)
            np.put_along_axis(after, cells, held + tried[:, None] * signs, 1)
            exact = likelihood.evaluate(likelihood.errors(after)) - before
            np.testing.assert_allclose(more, exact, atol=1e-9)
            compared += len(more)
        sums.move(amounts[1])
        tables = after
    assert compared == 4000


@pytest.mark.long
def test_a_measurement_without_a_known_law_is_named_and_left_out() -> None:
    plan = Plan([TableRequest(["r", "c"], Budget.pure(2), "l2")], ["r"], [R, C])
    other = run(plan, DATA, SeededRandomness(5))
    both = combine(rounded(), other)
    answer = posterior(both, randomness=SeededRandomness(1))
    assert any("l2 noise is not used" in note for note in answer.notes)
    with pytest.raises(Refused, match="not for l2 noise"):
        posterior(combine(other, run(plan, DATA, SeededRandomness(6))))


def test_chains_of_a_combination_that_have_not_mixed_are_refused() -> None:
    with pytest.raises(Refused, match="do not agree after 5 steps"):
        posterior(combine(rounded(), turned()), steps=5, randomness=SeededRandomness(1))


@pytest.mark.long
def test_the_command_answers_from_the_folder_of_a_combination(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounded().save(tmp_path / "one")
    turned().save(tmp_path / "two")
    both = str(tmp_path / "both")
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert command(["combine", *folders, "--out", both, "--quiet"]) == 0
    assert command(["intervals", both, "--posterior", "--seed", "1"]) == 0
    printed = capsys.readouterr().out
    assert "chains agree" in printed
    assert "2 measurements with independent noise" in printed
