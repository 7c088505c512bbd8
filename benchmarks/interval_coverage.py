"""How often intervals and tests beside exact groups hold what they state: the tables in
docs/groups.md.

``python benchmarks/interval_coverage.py [REPLICATES] [TABLE…]`` prints them. Groups are unequal, in
size and in spread, and no interval is told a spread. Nothing here is timed; a row is a simulation
of fresh records and fresh noise (rates are computed), and its shares have a standard error of
``sqrt(p (1 - p) / replicates)``.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_space
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.outcomes.group_sums import (
    DRAWS,
    SEED,
    GroupSums,
    NoisyMeans,
    SampledMeans,
    rate_ends,
)
from semidp.publish.statistics.outcomes.noise_law import (
    LEVEL,
    Intervals,
    noise_deviation,
    simulate_noise,
    upper_tail,
)
from semidp.publish.statistics.quantiles import GroupQuantiles
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
LEVELS = (0.05, 0.01)
RATES = np.unique(np.concatenate([np.geomspace(1e-3, 0.5, 40), 1 - np.geomspace(1e-3, 0.5, 40)]))
RATE_CASES = tuple(
    itertools.product(
        (5, 20, 100, 1000), (Budget.gdp(1), Budget.gdp(4), Budget.gdp("1/4"), Budget.pure(1))
    )
)


@frozen
class Population:
    """What the records of a group are drawn from: values between 0 and 1 on a grid."""

    shape: tuple[float, float] | None = None  # of a beta law; None for zeros and ones
    rate: float = 0.5

    def draw(self, count: int, steps: int, source: np.random.Generator) -> Counts:
        """Return values in steps of the grid."""
        if self.shape is None:
            return steps * source.binomial(1, self.rate, count)
        return np.rint(steps * source.beta(*self.shape, count)).astype(np.int64)

    def mean(self, steps: int) -> float:
        """Return the mean of what `draw` returns, from 0 to 1."""
        if self.shape is None:
            return self.rate
        from scipy.stats import beta

        return float(beta.sf((np.arange(1, steps + 1) - 0.5) / steps, *self.shape).sum() / steps)

    def __str__(self) -> str:
        return f"{self.rate:g}" if self.shape is None else "beta({:g}, {:g})".format(*self.shape)


def ones(*rates: float) -> tuple[Population, ...]:
    """Return populations of zeros and ones."""
    return tuple(Population(rate=rate) for rate in rates)


@frozen
class Setting:
    """Groups of some sizes, what they are drawn from, and what is measured."""

    counts: tuple[int, ...]
    populations: tuple[Population, ...]
    steps: int
    budget: Budget

    def __str__(self) -> str:
        sizes = ", ".join(f"{n:,}" for n in self.counts)
        drawn = ", ".join(map(str, self.populations))
        return f"{sizes} | {drawn} | {short(self.budget)}"


BELL, FLAT, LOW = Population((20.0, 20.0)), Population((2.0, 2.0)), Population((1.0, 9.0))
MEANS = (
    Setting((100, 5_000), ones(0.5, 0.01), 1, Budget.gdp(4)),
    Setting((8, 40, 400), ones(0.05, 0.05, 0.3), 1, Budget.gdp(1)),
    Setting((8, 40, 400), ones(0.05, 0.05, 0.3), 1, Budget.pure(1)),
    Setting((5, 200), ones(0.1, 0.5), 1, Budget.gdp(20)),
    Setting((16, 200), (FLAT, BELL), 100, Budget.gdp(4)),
)
COMPARED = (
    Setting((100, 5_000), ones(0.02, 0.02), 1, Budget.gdp(4)),
    Setting((8, 40, 400), ones(0.05, 0.05, 0.05), 1, Budget.gdp(1)),
    Setting((8, 40, 400), ones(0.3, 0.3, 0.3), 1, Budget.pure(1)),
    Setting((20, 400, 80), (FLAT, BELL, BELL), 100, Budget.gdp(4)),
)
RECORDS = (
    (Budget.gdp(1), 1),
    (Budget.gdp(4), 1),
    (Budget.gdp(20), 1),
    (Budget.pure(1), 1),
    (Budget.pure(5), 1),
    (Budget.pure(1), 100),
)
TWO_BY_TWO = (((60, 40), (5, 300)), ((600, 400), (50, 3_000)))
BETA = np.array([-0.7, 1.0, -0.4])
FACTORS = (
    (TWO_BY_TWO[0], Budget.gdp(1)),
    (TWO_BY_TWO[0], Budget.gdp(4)),
    (TWO_BY_TWO[1], Budget.gdp("1/2")),
    (TWO_BY_TWO[1], Budget.pure(1)),
)
WIDE = {13: 13, 20: 20}
WIDE_CASES = ((2_000, Budget.gdp(1)), (4_000, Budget.gdp(4)))
SPREAD, SKEWED, TIED = "normal", "skewed", "six in ten at zero"
MEDIANS = (
    ((400,), SPREAD, 100, Budget.gdp(1)),
    ((2_000,), SPREAD, 100, Budget.gdp(1)),
    ((400,), SPREAD, 100, Budget.gdp(4)),
    ((2_000,), SPREAD, 100, Budget.gdp(4)),
    ((5, 40, 2_000), SPREAD, 100, Budget.gdp(1)),
    ((5, 40, 2_000), SPREAD, 100, Budget.pure(1)),
    ((5, 40, 2_000), SKEWED, 100, Budget.gdp(4)),
    ((5, 40, 2_000), SKEWED, 10, Budget.gdp(20)),
    ((5, 40, 2_000), SKEWED, 100, Budget.gdp(100)),
    ((5, 40, 2_000), TIED, 10, Budget.pure(8)),
)


def main(replicates: int, tables: list[str]) -> None:
    """Print the tables that are named, or all."""
    for name, table in TABLES.items():
        if not tables or name in tables:
            print(f"\n{name}")
            for row in table(replicates):
                print("|", " | ".join(map(str, row)), "|", flush=True)


def run() -> list[dict[str, Any]]:
    """Return shares of small cases over their level: at least 0.97 but for chance."""
    rows = []
    least, _, _, _ = rate_coverage(20, Budget.gdp(1))
    found = [("rates of 20 records, the least over all rates", least)]
    for setting in (MEANS[1], MEANS[4]):
        means, differences, *_ = sampled(setting, 100)
        found += [
            (f"means, {setting}", float(means.mean())),
            (f"differences, {setting}", float(differences.mean())),
        ]
    found.append(("logistic, 13 columns", float(logistic(wide(13, 2_000), Budget.gdp(1), 20)[1])))
    for name, share in found:
        said = {
            "name": f"{name}: 95% intervals of the population, share over level",
            "ratio": share / 0.95,
        }
        rows.append({**said, "target": "≥ 0.97", "ok": bool(share / 0.95 >= 0.97)})
    return rows


# --- rates: computed, not simulated ---------------------------------------------------------------


def rate_coverage(n: int, budget: Budget) -> tuple[float, float, float, float]:
    """Return the least and mean coverage of inverted intervals over rates, their mean width, and
    Wilson's least.
    """
    from scipy.stats import binom

    mechanism = _mechanism((n, n), 1, budget)
    reach = int(12 * mechanism.scale) + 3
    noisy = np.arange(-reach, n + reach + 1)
    low, high = rate_ends(mechanism, np.full(len(noisy), float(n)), noisy.astype(np.float64), 0.95)
    noise = noise_deviation(mechanism, 0.95)
    wilson = SampledMeans(np.full(len(noisy), float(n)), noisy / n, (0.0, 1.0), noise, 0.95).ends()
    steps = np.arange(-reach - n, n + reach + 1)
    law = upper_tail(mechanism, steps) - upper_tail(mechanism, steps + 1)
    held, by_wilson, widths = [], [], []
    for rate in RATES:
        chances = np.convolve(law, binom.pmf(np.arange(n + 1), n, rate))[n : n + len(noisy)]
        held.append(chances @ ((low <= rate) & (rate <= high)))
        by_wilson.append(chances @ ((wilson[0] <= rate) & (rate <= wilson[1])))
        widths.append(chances @ (high - low))
    return min(held), float(np.mean(held)), float(np.mean(widths)), min(by_wilson)


def rate_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield records, budget, least and mean coverage, mean width; the least coverage of the score
    interval.
    """
    for n, budget in RATE_CASES:
        least, mean, width, wilson = rate_coverage(n, budget)
        yield (
            f"{n:,}",
            short(budget),
            f"{least:.3f}",
            f"{mean:.3f}",
            f"{width:.3f}",
            f"{wilson:.3f}",
        )


# --- means, differences, comparisons --------------------------------------------------------------


def measured(setting: Setting, replicates: int) -> Iterator[GroupSums]:
    """Yield what is measured of fresh records with fresh noise."""
    source = np.random.default_rng(26)
    mechanism = _mechanism(setting.counts, setting.steps, setting.budget)
    for _ in range(replicates):
        values = [
            population.draw(n, setting.steps, source)
            for population, n in zip(setting.populations, setting.counts, strict=True)
        ]
        yield GroupSums(
            mechanism, _noisy(mechanism, np.array([part.sum() for part in values]), source)
        )


def sampled(setting: Setting, replicates: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return how often intervals for the population hold means and differences, and their mean
    widths.
    """
    truth = np.array([population.mean(setting.steps) for population in setting.populations])
    pairs = np.array([one - other for one, other in itertools.combinations(truth, 2)])
    shares, widths = (
        [np.zeros(len(truth)), np.zeros(len(pairs))],
        [
            np.zeros(len(truth)),
            np.zeros(len(pairs)),
        ],
    )
    for found in measured(setting, replicates):
        for place, (intervals, values) in enumerate(
            (
                (found.mean_intervals(sampling=True), truth),
                (found.difference_intervals(sampling=True), pairs),
            )
        ):
            shares[place] += _held(intervals, values)
            widths[place] += intervals.upper - intervals.lower
    return (
        shares[0] / replicates,
        shares[1] / replicates,
        widths[0] / replicates,
        widths[1] / replicates,
    )


def mean_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the setting, the shares of means and differences that are held, and mean widths."""
    for setting in MEANS:
        means, differences, width, wide_ = sampled(setting, replicates)
        yield (setting, _list(means), _list(width), _list(differences), _list(wide_))


def size_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the setting and how often equal means are rejected, at 5% and at 1%."""
    for setting in COMPARED:
        p = np.array(
            [found.compare(sampling=True).p_value for found in measured(setting, replicates)]
        )
        yield (setting, *(f"{np.mean(p <= level):.3f}" for level in LEVELS))


def record_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield how often intervals of the noise alone hold means and differences of records; the size
    of `compare`.
    """
    counts = (8, 40, 400)
    for budget, steps in RECORDS:
        source, mechanism = np.random.default_rng(27), _mechanism(counts, steps, budget)
        totals = steps * np.array(counts) // 2
        held = np.zeros(2)
        for _ in range(replicates):
            found = GroupSums(mechanism, _noisy(mechanism, totals, source))
            held += [
                _held(found.mean_intervals(), np.full(3, 0.5)).mean(),
                _held(found.difference_intervals(), np.zeros(3)).mean(),
            ]
        shares = (f"{share:.3f}" for share in held / replicates)
        sizes = (f"{share:.4f} ({by_chi:.4f})" for share, by_chi in record_sizes(counts, mechanism))
        yield short(budget), f"{mechanism.scale:.3g}", *shares, *sizes


def record_sizes(counts: tuple[int, ...], mechanism: Mechanism) -> Iterator[tuple[float, float]]:
    """Yield how often simulated comparisons of records reject equal means, and how often χ² does:
    10⁶ draws.
    """
    from scipy.special import chdtri

    n, zero = np.array(counts, dtype=np.float64), np.zeros(len(counts))
    means = NoisyMeans(mechanism, 0, n, zero)
    seen = np.sort(means.statistic(means.noise_draws(np.random.default_rng(SEED), DRAWS), zero)[0])[
        ::-1
    ]
    drawn = means.statistic(means.noise_draws(np.random.default_rng(999), 10**6), zero)[0]
    for level in (0.05, 0.01, 0.001):
        # p <= level needs fewer simulated ones that are as large
        last = seen[round(level * (DRAWS + 1)) - 1]
        yield (
            float(np.mean(drawn * (1 - 1e-9) > last)),
            float(np.mean(drawn > chdtri(len(counts) - 1, level))),
        )


# --- regressions ----------------------------------------------------------------------------------


def linear(counts: Counts, budget: Budget, replicates: int) -> Floats:
    """Zeros and ones with linear rates: two main effects."""
    beta = np.array([0.05, 0.25, 0.3])

    def fit(moments: Moments) -> tuple[Intervals, Intervals]:
        found = LinearFit(moments)
        return found.intervals(), found.intervals(sampling=True)

    def own(rows: Floats, ones_: Floats, n: Floats) -> Floats:
        return np.asarray(np.linalg.solve(rows.T @ (n[:, None] * rows), rows.T @ ones_))

    return _regression(counts, budget, replicates, beta, lambda rows: rows @ beta, fit, own)


def logistic(counts: Counts, budget: Budget, replicates: int, *, normal: bool = False) -> Floats:
    """Zeros and ones with logistic rates: two main effects, or one factor of many levels with a
    rare baseline.

    With `normal` the ends are β ± 1.96 s, for comparison.
    """
    source = np.random.default_rng(3)
    size = counts.shape[0]
    beta = BETA if counts.ndim == 2 else np.append(-4.5, source.normal(4.0, 0.4, size - 1))
    design, outcome = _design(counts), Outcome("y", 0, 1, 1)
    clear = regression_mechanism(_public(counts), Ball(2), outcome, design, Budget.gdp(9**9))

    def fit(moments: Moments) -> tuple[Intervals, Intervals]:
        found = LogisticFit(moments)
        if not normal:
            return found.intervals(), found.intervals(sampling=True)
        names = tuple((name,) for name in found.names)
        both = (
            Intervals.around(
                names,
                found.coefficients,
                1.96 * found.standard_errors(sampling=sampling),
                LEVEL,
                False,
            )
            for sampling in (False, True)
        )
        return next(both), next(both)

    def own(rows: Floats, ones_: Floats, n: Floats) -> Floats:
        values = route_values(clear.space, design, ones_.astype(np.int64))  # type: ignore[arg-type]
        return LogisticFit(
            Moments(clear, clear.measure(values, SeededRandomness(1)), design)
        ).coefficients

    return _regression(
        counts, budget, replicates, beta, lambda rows: 1 / (1 + np.exp(-rows @ beta)), fit, own
    )


def _regression(
    counts: Counts,
    budget: Budget,
    replicates: int,
    beta: Floats,
    rates: Callable[[Floats], Floats],
    fit: Callable[[Moments], tuple[Intervals, Intervals]],
    own: Callable[[Floats, Floats, Floats], Floats],
) -> Floats:
    """Return the shares of coefficients that are held, of the records and of the population; open
    ends; the least.

    Last come the standard errors of the first two: coefficients of one fit are held together, so
    that these are those of the shares by fit.
    """
    public, design, outcome = _public(counts), _design(counts), Outcome("y", 0, 1, 1)
    mechanism = regression_mechanism(public, Ball(2), outcome, design, budget)
    rows, n = design.rows().astype(np.float64), counts.ravel().astype(np.float64)
    source = np.random.default_rng(4)
    shares, each = np.zeros((replicates, 3)), np.zeros(len(beta))
    for replicate in range(replicates):
        drawn = source.binomial(counts.ravel(), rates(rows))
        values = route_values(mechanism.space, design, drawn)  # type: ignore[arg-type]
        alone, both = fit(Moments(mechanism, _noisy(mechanism, values, source), design))
        ends = np.concatenate([both.lower, both.upper])
        held = _held(both, beta)
        each += held
        of_records = _held(alone, own(rows, drawn.astype(float), n))
        shares[replicate] = of_records.mean(), held.mean(), np.isinf(ends).mean()
    errors = shares.std(axis=0)[:2] / np.sqrt(replicates)
    return np.concatenate([shares.mean(axis=0), [each.min() / replicates], errors])


def regression_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the model, the cells, the budget, and the shares that are held."""
    for cells, budget in FACTORS:
        for name, simulate in (("linear", linear), ("logistic", logistic)):
            held, population, open_, least, *_ = simulate(np.array(cells), budget, replicates)
            sizes = ", ".join(f"{n:,}" for n in np.ravel(cells))
            shares = f"{held:.3f}", f"{population:.3f}", f"{least:.3f}", f"{open_:.1%}"
            yield name, sizes, short(budget), *shares


def wide_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the columns of a logistic regression with a rare baseline, the shares that are held,
    and by β ± 1.96 s.
    """
    for columns, (records, budget) in itertools.product(WIDE, WIDE_CASES):
        cells = wide(columns, records)
        held, population, open_, least, *errors = logistic(cells, budget, replicates)
        by_normal = logistic(cells, budget, replicates, normal=True)[1]
        shares = (
            f"{held:.3f} ± {errors[0]:.3f}",
            f"{population:.3f} ± {errors[1]:.3f}",
            f"{least:.3f}",
        )
        yield columns, f"{records:,}", short(budget), *shares, f"{open_:.1%}", f"{by_normal:.3f}"


def wide(columns: int, records: int) -> Counts:
    """Return records by one factor of many levels, unequal ones."""
    source = np.random.default_rng(columns)
    return source.multinomial(records, source.dirichlet(np.full(WIDE[columns], 8.0)))


# --- medians --------------------------------------------------------------------------------------


def drawn(kind: str, count: int, steps: int, source: np.random.Generator) -> Counts:
    """Return values between 0 and 100 in steps of the grid."""
    if kind == SPREAD:
        values = source.normal(50, 15, count)
    elif kind == SKEWED:
        values = source.gamma(1.0, 12.0, count)
    else:
        values = np.where(source.random(count) < 0.6, 0.0, source.normal(50, 15, count))
    return np.clip(np.rint(values * steps / 100), 0, steps).astype(np.int64)


def population_median(kind: str, steps: int) -> float:
    """Return the median of what `drawn` returns, in steps: 0.6 of all are at zero, or it is
    rounded.
    """
    median = {SPREAD: 50.0, SKEWED: 12.0 * np.log(2), TIED: 0.0}[kind]
    return float(np.rint(median * steps / 100))


def medians(
    sizes: tuple[int, ...], kind: str, steps: int, budget: Budget, sampling: bool, replicates: int
) -> tuple[Floats, Floats]:
    """Return how often intervals of medians hold those of the records or the population, and their
    mean widths.
    """
    feature = Feature("ward", [f"{level:02}" for level in range(len(sizes))])
    public = Dataspace.from_table(Table(Schema((feature,)), np.array(sizes)), [Margin("ward")])
    outcome = Outcome("y", 0, 100, steps)
    space = rank_space(public, Ball(2), outcome, [Margin("ward")], level="0.95", sampling=sampling)
    mechanism, source = exponential_mechanism(space, budget), np.random.default_rng(4)
    held, width = np.zeros(len(sizes)), np.zeros(len(sizes))
    unit = 100 / steps
    for seed in range(replicates):
        values = [np.sort(drawn(kind, size, steps, source)) for size in sizes]
        histograms = np.stack([np.bincount(part, minlength=steps + 1) for part in values])
        (found,) = GroupQuantiles(
            mechanism, mechanism.measure(histograms, SeededRandomness(seed))
        ).intervals()
        truth = np.array([part[(len(part) + 1) // 2 - 1] for part in values], dtype=np.float64)
        if sampling:
            truth[:] = population_median(kind, steps)
        held += _held(found, truth * unit)
        width += found.upper - found.lower
    return held / replicates, width / replicates


def median_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield records, what they are drawn from, budget, and the shares and mean widths: the records,
    the population.
    """
    for sizes, kind, steps, budget in MEDIANS:
        found = [
            medians(sizes, kind, steps, budget, sampling, replicates) for sampling in (False, True)
        ]
        records = ", ".join(f"{size:,}" for size in sizes)
        shares = (
            f"{_list(held)} | {', '.join(f'{each:.1f}' for each in width)}" for held, width in found
        )
        yield records, f"{kind}, {steps} steps", short(budget), *shares


TABLES: dict[str, Callable[[int], Iterator[tuple[object, ...]]]] = {
    "rates": rate_rows,
    "means": mean_rows,
    "sizes": size_rows,
    "records": record_rows,
    "regressions": regression_rows,
    "wide": wide_rows,
    "medians": median_rows,
}


def short(budget: Budget) -> str:
    """Return a budget as the tables name it."""
    value = budget.epsilon if budget.kind == "pure" else budget.mu
    assert value is not None
    return f"{'ε' if budget.kind == 'pure' else 'μ'} = {float(value):g}"


def _list(values: Floats) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def _held(intervals: Intervals, truth: Floats) -> Floats:
    return ((intervals.lower <= truth + 1e-12) & (truth - 1e-12 <= intervals.upper)).astype(
        np.float64
    )


def _noisy(mechanism: Mechanism, values: Counts, source: np.random.Generator) -> Measurement:
    """Return a measurement with noise from a fast generator."""
    noisy = values + simulate_noise(mechanism, values.shape, source).astype(np.int64)
    return Measurement(noisy, mechanism.publish(noisy), mechanism.name, "exact", False)


def _mechanism(counts: tuple[int, ...], steps: int, budget: Budget) -> Mechanism:
    space = sum_space(_one_factor(counts), Ball(2), Outcome("y", 0, 1, steps), [Margin("g")])
    return outcome_mechanism(space, budget)


def _one_factor(counts: tuple[int, ...]) -> Dataspace:
    feature = Feature("g", [f"{level:02}" for level in range(len(counts))])
    return Dataspace.from_table(Table(Schema((feature,)), np.array(counts)), [Margin("g")])


def _schema(counts: Counts) -> Schema:
    names = ("arm", "sex")[: counts.ndim]
    return Schema(
        tuple(
            Feature(name, [f"{level:02}" for level in range(size)])
            for name, size in zip(names, counts.shape, strict=True)
        )
    )


def _public(counts: Counts) -> Dataspace:
    return Dataspace.from_table(Table(_schema(counts), counts), [Margin(*_schema(counts).names)])


def _design(counts: Counts) -> Design:
    return Design.from_schema(_schema(counts), _schema(counts).names)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:])
