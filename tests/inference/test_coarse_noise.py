"""Tests and intervals from a release where noise is coarse and records are few: sizes and coverages
by simulation.

`python -m tests.inference.test_coarse_noise` prints the table of docs/inference_checks.md.
"""

import functools
import math

import numpy as np
import pytest

from semidp import Ball, Budget, Dataspace, Feature, Margin, Schema, Table, sensitivity_space
from semidp.inference.answers import (
    Covers,
    linear_interval,
    normal_interval,
    ratio_interval,
    sampled_rate,
)
from semidp.inference.cell_bounds import CellBounds
from semidp.inference.independence import independence_test, random_tables
from semidp.inference.linear_estimates import simulated_bound
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.half_widths import cell_half_widths
from semidp.publish.selection import calibrate_mechanism

NOISE = {
    "discrete Gaussian, ρ = 8": ("gaussian", Budget.zcdp(8)),
    "rounded Gaussian, μ = 4": ("gaussian", Budget.gdp(4)),
    "lattice Gaussian, ρ = 8": ("lattice", Budget.zcdp(8)),
    "Laplace, ε = 5": ("laplace", Budget.pure(5)),
    "K-norm, ε = 5": ("knorm", Budget.pure(5)),
    "l2, ε = 5": ("l2", Budget.pure(5)),
}
RECORDS, SHAPES, POOL, DRAWS = (8, 20, 50), ((2, 2), (2, 3), (3, 3)), 4000, 199


class Setting:
    """A random table of few records with both margins exact, and a pool of draws of its projected
    noise.
    """

    def __init__(self, noise, shape, n, seed, margins="ab") -> None:
        self.source = np.random.default_rng([seed, n, *shape])
        self.counts = np.zeros(shape, dtype=int)
        while (self.counts.sum(axis=0) == 0).any() or (self.counts.sum(axis=1) == 0).any():
            self.counts = self.source.multinomial(
                n, self.source.dirichlet(np.ones(math.prod(shape)))
            ).reshape(shape)
        schema = Schema(
            [
                Feature(name, [str(i) for i in range(size)])
                for name, size in zip("ab", shape, strict=True)
            ]
        )
        self.public = Dataspace.from_table(
            Table(schema, self.counts), [Margin(name) for name in margins]
        )
        self.space = sensitivity_space(self.public, Ball(3 if margins else 1))
        self.mechanism = calibrate_mechanism(noise[0], self.space, noise[1])
        zeros = np.zeros(shape, dtype=np.int64)
        noisy = self.mechanism.measure_many(zeros, POOL, SeededRandomness(seed))
        fixed = self.mechanism.publish(zeros)
        units = np.eye(self.counts.size, dtype=np.int64).reshape(-1, *shape)
        matrix = np.stack([(self.mechanism.publish(unit) - fixed).ravel() for unit in units])
        self.pool = (noisy.reshape(POOL, -1) @ matrix).reshape(noisy.shape)
        self.bounds = CellBounds.from_dataspace(self.public, "ab")

    def errors(self, count):
        return self.pool[self.source.integers(POOL, size=count)]


@functools.cache
def settings(noise, seeds=2, margins="ab"):
    return [
        Setting(NOISE[noise], shape, n, seed, margins)
        for shape in SHAPES
        for n in RECORDS
        for seed in range(seeds)
    ]


def independence(noise, runs=40):
    """The share of p-values of at most 0.05 under independence."""
    rejected = []
    for world in settings(noise):
        rows, columns = world.counts.sum(axis=1)[:, None], world.counts.sum(axis=0)[:, None]
        variances = world.mechanism.standard_errors()[..., None] ** 2
        tables = random_tables(rows, columns, runs, world.source)
        if not tables.std(axis=0).any():
            continue
        for table, error in zip(tables, world.errors(runs), strict=True):
            answer = independence_test(
                table + error[..., None],
                rows,
                columns,
                variances,
                lambda count, _, world=world: world.errors(count)[..., None],
                DRAWS,
                SeededRandomness(int(world.source.integers(2**31))),
            )
            rejected.append(answer[2] <= 0.05)
    return rejected


def one_cell(noise, runs=200):
    held = []
    for world in settings(noise):
        drawn, unit = world.errors(999)[:, 0, 0], np.zeros(world.counts.shape)
        unit[0, 0] = 1
        span, truth = world.bounds.span(unit), float(world.counts[0, 0])
        held += [
            truth in linear_interval(truth + e, 1.0, drawn, span, 0.95)
            for e in world.errors(runs)[:, 0, 0].tolist()
        ]
    return held


def file_cell(noise, runs=200):
    """What stands in the files: the estimate and the law of its noise, or with the quantile of a
    normal law.
    """
    held, normal = [], []
    for world in settings(noise):
        errors = np.abs(world.errors(runs)[:, 0, 0])
        held += (errors <= cell_half_widths(world.mechanism)[0, 0] + 1e-6).tolist()
        normal += (errors <= 1.96 * world.mechanism.standard_errors()[0, 0]).tolist()
    return held, normal


def all_cells(noise, runs=200):
    held = []
    for world in settings(noise):
        scale = world.mechanism.standard_errors()
        reach = simulated_bound((np.abs(world.errors(999)) / scale).max(axis=(1, 2)), 0.95)
        held += (
            (np.abs(world.errors(runs)) / scale).max(axis=(1, 2)) <= reach * (1 + 1e-9)
        ).tolist()
    return held


def difference(noise, runs=200):
    """The share of p-values of at most 0.05 where two cells are equal."""
    rejected = []
    for world in settings(noise):
        drawn = world.errors(999)
        gaps = drawn[:, 0, 0] - drawn[:, 0, 1]
        for error in world.errors(runs):
            value = float(error[0, 0] - error[0, 1])
            answer = linear_interval(value, 1.0, gaps, (-50, 50), 0.95, difference=True)
            rejected.append(answer.p_value <= 0.05)
    return rejected


def ratio(noise, runs=40):
    held = []
    for world in settings(noise, 1, margins=""):
        drawn, (top, bottom) = (
            world.errors(999),
            (
                float(world.counts[0, 0]),
                float(world.counts[0].sum()),
            ),
        )
        known = drawn[:, 0, 0], drawn[:, 0].sum(axis=1)
        for error in world.errors(runs):
            seen = (top + float(error[0, 0]), bottom + float(error[0].sum()))
            held.append(top / bottom in ratio_interval(seen, known, 0.0, 0.95))
    return held


def population(noise, runs=300):
    """Population rates in one group, and differences of two groups with one rate: normal
    approximations.
    """
    held, rejected = [], []
    for world in settings(noise, 1):
        variance = float(world.pool[:, 0, 0].var())
        for rate in (0.1, 0.4):
            sizes = np.array([max(4, world.counts.sum() // 2)] * 2)
            cases = world.source.binomial(sizes, rate, (runs, 2)) + world.errors(2 * runs)[
                :, 0, 0
            ].reshape(runs, 2)
            held += [
                rate in sampled_rate((float(y), float(sizes[0])), (variance, 0.0, 0.0), 0.95)
                for y in cases[:, 0]
            ]
            pooled = np.clip(cases.sum(axis=1) / sizes.sum(), 0, 1)
            null = np.sqrt(2 * variance / sizes[0] ** 2 + pooled * (1 - pooled) * (1 / sizes).sum())
            gaps = (cases[:, 0] - cases[:, 1]) / sizes[0]
            for gap, spread in zip(gaps.tolist(), null.tolist(), strict=True):
                answer = normal_interval(gap, spread, spread, (-1.0, 1.0), 0.95, Covers.both)
                rejected.append(answer.p_value <= 0.05)
    return held, rejected


@pytest.mark.long
@pytest.mark.parametrize("noise", NOISE)
def test_exact_answers_keep_their_level_beside_coarse_noise(noise) -> None:
    """Five standard errors of the share: a false alarm below 1e-6. The normal quantile is the
    twin.
    """
    for shares in (one_cell(noise), file_cell(noise)[0], all_cells(noise)):
        assert np.mean(shares) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / len(shares))
    for shares in (independence(noise), difference(noise)):
        assert np.mean(shares) < 0.05 + 5 * math.sqrt(0.95 * 0.05 / len(shares))
    assert len(one_cell(noise)) == 18 * 200


if __name__ == "__main__":
    for each in NOISE:
        inside, twin = file_cell(each)
        rates, gaps = population(each)
        fieller = (
            f"{np.mean(ratio(each)):.3f}"
            if each != "lattice Gaussian, ρ = 8" and "K-norm" not in each
            else "–"
        )
        shares = [
            np.mean(independence(each)),
            np.mean(difference(each)),
            np.mean(one_cell(each)),
            np.mean(inside),
        ]
        shares += [np.mean(twin), np.mean(all_cells(each))]
        said = " | ".join(f"{share:.3f}" for share in shares)
        print(
            f"| {each} | {said} | {fieller} | {np.mean(rates):.3f} | {np.mean(gaps):.3f} |",
            flush=True,
        )
