"""How often tests reject what is true, and intervals hold what is true: by simulation, on fifty random margins each.

Beside each stands its twin, the same procedure with the noise ignored (for simultaneous intervals: cell by cell).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from semidp import (
    Alternative,
    Ball,
    Budget,
    Dataspace,
    Margin,
    TwoByTwo,
    UmpuTest,
    canonical_noise,
    semi_adjacency,
    sensitivity_space,
)
from semidp.mechanisms.base import Mechanism
from semidp.mechanisms.selection import calibrated
from semidp.noise.canonical import Recursive
from semidp.noise.randomness import SeededRandomness
from semidp.output.plots.style import BLUE, ORANGE, Figure, drawing
from semidp.questions.answers import Covers, linear_interval, normal_interval, ratio_interval, sampled_rate
from semidp.questions.independence import random_tables, simulated_bound
from semidp.statistics.odds_ratio.hypergeometric import Strata
from semidp.studies.base import PAPER, Settings, Tidy, table_of

Floats = NDArray[np.float64]
Shares = dict[float, tuple[float, float, float]]
"""For each nominal level the share of runs, that of the twin, and the number 1/m for which the share would be binomial.

A simulated reference adds its own: a share of N runs against B simulated tables has 1/m = 1/N + 1/B.
"""

ALPHAS = (0.05, 0.01)
LEVEL = 0.95
MOST_MARGINS = 50


class World:
    """A random table with exact margins (within strata) and a mechanism for it."""

    def __init__(
        self, mechanism: str, budget: Budget, seed: int, strata: int = 1, fixed: tuple[int, int] | None = None
    ) -> None:
        self.source = np.random.default_rng([seed, strata, len(mechanism)])
        self.seed = seed
        while True:
            sides = fixed or (int(self.source.integers(2, 5)), int(self.source.integers(3, 6)))
            shape = (*sides, strata)
            n = int(np.exp(self.source.uniform(math.log(60), math.log(1000)))) * strata
            shares = self.source.dirichlet(np.ones(math.prod(shape)) * 3)
            self.counts = self.source.multinomial(n, shares).reshape(shape)
            within = ["stratum"] if strata > 1 else []
            table = table_of(self.counts if within else self.counts[..., 0])
            public = Dataspace.of(table, [Margin("row", *within), Margin("column", *within)])
            space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
            if not space.is_zero:
                break
        self.mechanism: Mechanism = calibrated(mechanism, space, budget)
        self.projection = np.stack(
            [space.project(cell.reshape(space.shape)).ravel() for cell in np.eye(math.prod(shape))], axis=1
        )
        self._draws = 0

    def errors(self, count: int) -> Floats:
        """Draw the errors of `count` releases of the table, one row each."""
        self._draws += 1
        zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
        noise = self.mechanism.measure_many(zeros, count, SeededRandomness(1000 * self.seed + self._draws))
        return np.asarray(noise.reshape(count, -1).astype(np.float64) @ self.projection)


def _sizes(p: Floats, twin: Floats, reference: float = math.inf) -> Shares:
    share = 1 / len(p) + 1 / reference
    return {alpha: (float(np.mean(p <= alpha)), float(np.mean(twin <= alpha)), share) for alpha in ALPHAS}


def _covered(held: Sequence[Any], reference: float = math.inf) -> Shares:
    """What the intervals held, and what those of the twin did."""
    return {LEVEL: (float(np.mean(held[0])), float(np.mean(held[1])), 1 / len(held[0]) + 1 / reference)}


def _ranked(seen: Floats, reference: Floats) -> Floats:
    """Monte Carlo p-values of statistics against one set of simulated ones."""
    larger = len(reference) - np.searchsorted(np.sort(reference), seen * (1 - 1e-9))
    return np.asarray((1 + larger) / (1 + len(reference)))


def independence(
    mechanism: str, budget: Budget, strata: int = 1, fixed: tuple[int, int] | None = None
) -> Callable[..., Shares]:
    """Return the experiment of independence on a release; the twin simulates tables without noise."""

    def run(seed: int, runs: int, draws: int) -> Shares:
        world = World(mechanism, budget, seed, strata, fixed)
        rows, columns = world.counts.sum(axis=1), world.counts.sum(axis=0)
        n = np.maximum(rows.sum(axis=0), 1)
        mean = rows[:, None] * columns[None] / n
        variance = mean * (n - rows)[:, None] / n * (n - columns)[None] / np.maximum(n - 1, 1)
        noise = world.mechanism.standard_errors().reshape(mean.shape) ** 2

        def statistics(count: int, noisy: bool, spread: Floats) -> Floats:
            off = random_tables(rows, columns, count, world.source) - mean
            if noisy:
                off = off + world.errors(count).reshape(off.shape)
            return np.asarray((off**2 / np.where(variance > 0, spread, np.inf)).sum(axis=(1, 2, 3)))

        right = _ranked(statistics(runs, True, variance + noise), statistics(draws, True, variance + noise))
        twin = _ranked(statistics(runs, True, variance), statistics(draws, False, variance))
        return _sizes(right, twin, draws)

    return run


def odds_ratio(budget: Budget, alternative: Alternative, strata: int = 0, odds: float = 1.0) -> Callable[..., Shares]:
    """Return the experiment of the private test; the twin takes U for the count itself.

    At another odds ratio than 1, the share of intervals that hold it is one less the share of rejections.
    """

    def run(seed: int, runs: int, draws: int) -> Shares:
        source = np.random.default_rng([seed, strata, 7])
        margins: TwoByTwo | Strata
        while True:
            tables = []
            for _ in range(max(strata, 1)):
                n = int(np.exp(source.uniform(math.log(20), math.log(800))))
                tables.append(TwoByTwo(int(source.integers(1, n)), int(source.integers(1, n)), n))
            margins = Strata(tuple(tables)) if strata else tables[0]
            if margins.high - margins.low > 3:
                break
        law, noise = margins.law(odds), canonical_noise(budget)
        count = runs if alternative is not Alternative.TWO_SIDED else max(runs // 4, 100)
        u = source.choice(law.values, count, p=law.pmf) + noise.sample(count, SeededRandomness(seed))
        right, twin = (UmpuTest(margins, law).p_value(u, alternative, odds) for law in (noise, Recursive.none()))
        return _sizes(right, twin) if odds == 1 else _covered([right > 1 - LEVEL, twin > 1 - LEVEL])

    return run


def difference(seed: int, runs: int, draws: int) -> Shares:
    """Two cells with equal counts, from the noise alone; without noise every difference would be real."""
    world = World("gaussian", Budget.gdp("0.5"), seed)
    seen, reference = (np.abs(errors[:, 0] - errors[:, 1]) for errors in (world.errors(runs), world.errors(draws)))
    return _sizes(_ranked(seen, reference), np.where(seen > 0, 0.0, 1.0), draws)


def _groups(seed: int) -> tuple[World, NDArray[np.int64], float]:
    """Noise of two cells of a table, two groups of exact size, and a rate."""
    world = World("gaussian", Budget.gdp("0.15"), seed)
    return world, world.source.integers(60, 600, 2), float(world.source.uniform(0.1, 0.6))


def rates(seed: int, runs: int, draws: int) -> Shares:
    """Equal population rates in two groups of exact size, with noise and sampling; the twin knows sampling alone."""
    world, sizes, rate = _groups(seed)
    error = world.errors(runs)[:, [0, -1]]
    cases = world.source.binomial(sizes, rate, (runs, 2)) + error
    value = cases[:, 0] / sizes[0] - cases[:, 1] / sizes[1]
    pooled = np.clip(cases.sum(axis=1) / sizes.sum(), 0.0, 1.0)
    sampling = pooled * (1 - pooled) * (1 / sizes).sum()
    noise = np.var(world.errors(draws)[:, [0, -1]] / sizes @ [1, -1])
    answers = [
        normal_interval(float(v), 0.0, math.sqrt(s + noise), (-1.0, 1.0), LEVEL, Covers.both).p_value or 0.0
        for v, s in zip(value, sampling, strict=True)
    ]
    twin = 2 * scipy.special.ndtr(-np.abs(value) / np.sqrt(np.maximum(sampling, 1e-12)))
    return _sizes(np.array(answers), np.asarray(twin))


def one_cell(seed: int, runs: int, draws: int) -> Shares:
    """Intervals for the count of a cell from the noise alone; the twin knows half of the noise."""
    world = World("laplace", Budget.pure(1), seed)
    seen, drawn = world.errors(runs // 10)[:, 0], world.errors(draws)[:, 0]
    truth, most = 100.0, (0.0, 200.0)
    held = [[truth in linear_interval(truth + e, 1.0, drawn * k, most, LEVEL) for e in seen] for k in (1.0, 0.5)]
    return _covered(held, draws)


def all_cells(seed: int, runs: int, draws: int) -> Shares:
    """Intervals for all cells at once, from the noise alone; the twin takes each cell by itself."""
    world = World("gaussian", Budget.gdp(1), seed)
    errors = world.mechanism.standard_errors().ravel()
    noisy = errors > 1e-9
    seen, drawn = (np.abs(world.errors(count)[:, noisy]) / errors[noisy] for count in (runs, draws))
    held = [seen.max(axis=1) <= simulated_bound(sizes, LEVEL) for sizes in (drawn.max(axis=1), drawn[:, 0])]
    return _covered(held, draws)


def noisy_ratio(seed: int, runs: int, draws: int) -> Shares:
    """Intervals for a ratio of two noisy counts, from the noise alone; the twin knows half of the noise."""
    world = World("gaussian", Budget.gdp(1), seed)
    parts = np.array([[1.0, 1.0], [0.0, 1.0]])  # cases are part of the records
    seen, drawn = (world.errors(count)[:, [0, -1]] @ parts for count in (max(runs // 100, 2), draws))
    top, bottom = 40.0, 100.0

    def held(noise: Floats) -> list[bool]:
        known = (noise[:, 0], noise[:, 1])
        return [top / bottom in ratio_interval((top + e1, bottom + e2), known, 0.0, LEVEL) for e1, e2 in seen]

    return _covered([held(drawn), held(drawn / 2)], draws)


def population_rate(seed: int, runs: int, draws: int) -> Shares:
    """Intervals for a population rate in a group of exact size, with noise and sampling; the twin ignores the noise."""
    world, sizes, rate = _groups(seed)
    noise = float(np.var(world.errors(draws)[:, 0]))
    size = float(sizes[0])
    cases = world.source.binomial(sizes[0], rate, runs) + world.errors(runs)[:, 0]
    held = [[rate in sampled_rate((float(y), size), (v, 0.0, 0.0), LEVEL) for y in cases] for v in (noise, 0.0)]
    return _covered(held)


TWO_SIDED = Alternative.TWO_SIDED
EXPERIMENTS: dict[str, tuple[str, str, Callable[..., Shares]]] = {
    "independence, rounded Gaussian": ("size", "release", independence("gaussian", Budget.gdp("0.5"))),
    "independence, discrete Gaussian": ("size", "release", independence("gaussian", Budget.zcdp("0.1"))),
    "independence, lattice Gaussian": ("size", "release", independence("lattice", Budget.zcdp("0.1"))),
    "independence, Laplace": ("size", "release", independence("laplace", Budget.pure(1))),
    "independence, l2": ("size", "release", independence("l2", Budget.pure(1))),
    "independence, K-norm, 2 × 4": ("size", "release", independence("knorm", Budget.pure(1), fixed=(2, 4))),
    "independence, lattice Gaussian, 2 × 2": (
        "size",
        "release, few values",
        independence("lattice", Budget.zcdp("0.1"), fixed=(2, 2)),
    ),
    "conditional independence, 3 strata": ("size", "release", independence("gaussian", Budget.gdp("0.5"), 3)),
    "difference of two cells, noise": ("size", "release", difference),
    "difference of two rates, noise and sampling": ("size", "release, normal approximation", rates),
    "odds ratio, one-sided": ("size", "data", odds_ratio(Budget.pure("0.5"), Alternative.GREATER)),
    "odds ratio, two-sided": ("size", "data", odds_ratio(Budget.pure("0.5"), TWO_SIDED)),
    "common odds ratio of 3 strata, one-sided": ("size", "data", odds_ratio(Budget.gdp("0.3"), Alternative.LESS, 3)),
    "common odds ratio of 3 strata, two-sided": ("size", "data", odds_ratio(Budget.gdp("0.3"), TWO_SIDED, 3)),
    "count of a cell, noise": ("coverage", "release", one_cell),
    "all cells at once, noise": ("coverage", "release", all_cells),
    "ratio of two noisy counts, noise": ("coverage", "release", noisy_ratio),
    "population rate, noise and sampling": ("coverage", "release, normal approximation", population_rate),
    "odds ratio of 3": ("coverage", "data", odds_ratio(Budget.pure("0.5"), TWO_SIDED, odds=3.0)),
    "common odds ratio of 3, 3 strata": ("coverage", "data", odds_ratio(Budget.gdp("0.3"), TWO_SIDED, 3, odds=3.0)),
}
"""Each experiment: whether it shows a size or a coverage, what is asked, and how it runs."""


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the mean, the least and the largest share over random margins, and the mean of the twin.

    The worst is the largest distance from the nominal share in binomial standard errors; the largest of 50 is 2.2 on
    average and above 3.7 once in a hundred. There are 50 margins from 25 replicates on; a margin has 100 runs and 100
    simulated tables for each replicate (the two-sided tests of data a quarter, ratios a hundredth of the runs).

    >>> table = compute(Settings(replicates=2))
    >>> table.columns
    ('experiment', 'kind', 'asked', 'nominal', 'margins', 'runs', 'mean', 'least', 'largest', 'worst', 'twin')
    """
    margins, runs = min(MOST_MARGINS, 2 * settings.replicates), 100 * settings.replicates
    rows = []
    for name, (kind, asked, experiment) in settings.each("sizes and coverages", EXPERIMENTS.items()):
        found = [experiment(settings.seed + 1 + number, runs, runs - 1) for number in range(margins)]
        for nominal in found[0]:
            shares, twins, ones = (np.array(part) for part in zip(*(each[nominal] for each in found), strict=True))
            worst = np.abs(shares - nominal) / np.sqrt(nominal * (1 - nominal) * ones)
            row = {"experiment": name, "kind": kind, "asked": asked, "nominal": nominal, "margins": margins}
            spread = {"mean": shares.mean(), "least": shares.min(), "largest": shares.max(), "worst": worst.max()}
            rows.append(row | {"runs": runs} | spread | {"twin": twins.mean()})
    return Tidy.of(rows)


def plot(table: Tidy) -> Figure:
    """Draw the shares at 0.05 (and coverages at 0.95) with their range over the margins, and the twins."""
    with drawing(9.5, 5.8, columns=2) as (figure, panels):
        for axes, kind, nominal in zip(panels, ("size", "coverage"), (0.05, LEVEL), strict=True):
            part = table.where(kind=kind, nominal=nominal)
            places = np.arange(len(part))[::-1]
            mean = np.array(part["mean"])
            reach = [mean - np.array(part["least"]), np.array(part["largest"]) - mean]
            axes.errorbar(mean, places, xerr=reach, fmt="o", color=BLUE, label="noise known")
            axes.plot(part["twin"], places, "s", color=ORANGE, label="its twin: noise ignored")
            axes.axvline(nominal, color="black", linewidth=0.8, linestyle=":")
            axes.set_yticks(places, part["experiment"], fontsize=7)
            axes.set(title=f"{kind}, nominal {nominal:g}", xlabel="share of runs")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle("Tests and intervals under the known law of the noise, and with the noise ignored")
    return figure
