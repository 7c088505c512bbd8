"""How often tests reject what is true, and intervals hold what is true: by simulation, on fifty
random margins each.

Beside each stands its twin, the same procedure with the noise ignored (for simultaneous intervals:
cell by cell). Every experiment is made twice: with usual margins, and with few records in unequal
groups next to coarse noise.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp import Ball, Budget, Dataspace, Margin, semi_adjacency, sensitivity_space
from semidp.applications.study import PAPER, Settings, Tidy, build_table
from semidp.inference import (
    linear_interval,
    mover_difference,
    random_tables,
    ratio_interval,
    simulated_bound,
)
from semidp.promise import Mechanism, Recursive, SeededRandomness, canonical_noise
from semidp.publish import Alternative, Strata, TwoByTwo, UmpuTest, calibrate_mechanism, style

Floats = NDArray[np.float64]
Shares = dict[float, tuple[float, float, float]]
"""By nominal level: the share of runs, the share of the twin, and the number 1/m for which the
share would be binomial.

A simulated reference adds its own: a share of N runs against B simulated tables has 1/m = 1/N +
1/B. """

ALPHAS = (0.05, 0.01)
LEVEL = 0.95
MOST_MARGINS = 50


@frozen
class RandomMargins:
    """Ranges from which the random margins of an experiment are drawn.

    Parameters
    ----------
    records
        The least and the largest number of records in a table, or in a stratum.
    evenness
        The parameter of the Dirichlet law of its cells: below 1 some are empty and others large.
    fourfold
        The least and the largest number of records in a 2 × 2 table.
    groups
        For each of two groups of exact size the least and the largest number of records.
    rates
        The least and the largest rate in them.
    ratio
        Two counts whose ratio is estimated.
    """

    records: tuple[int, int]
    evenness: float
    fourfold: tuple[int, int]
    groups: tuple[tuple[int, int], tuple[int, int]]
    rates: tuple[float, float]
    ratio: tuple[float, float]


USUAL = RandomMargins((60, 1000), 3.0, (20, 800), ((60, 600), (60, 600)), (0.1, 0.6), (40, 100))
HARD = RandomMargins((8, 60), 0.7, (8, 50), ((8, 40), (100, 2000)), (0.02, 0.5), (3, 9))


@frozen
class Conditions:
    """What an experiment is made with: the seed of its margins and the ranges that they are drawn
    from, the runs, the draws of a simulated reference, and the budget.
    """

    seed: int
    runs: int
    draws: int
    budget: Budget
    ranges: RandomMargins


class World:
    """A random table with exact margins (within strata) and a mechanism for it."""

    def __init__(
        self,
        conditions: Conditions,
        mechanism: str,
        strata: int = 1,
        fixed: tuple[int, int] | None = None,
    ) -> None:
        self.source = np.random.default_rng([conditions.seed, strata, len(mechanism)])
        self.seed = conditions.seed
        while True:
            sides = fixed or self._random_sides()
            shape = (*sides, strata)
            cells = math.prod(shape)
            least, most = map(math.log, conditions.ranges.records)
            records = int(np.exp(self.source.uniform(least, most)))
            shares = self.source.dirichlet(np.ones(cells) * conditions.ranges.evenness)
            drawn = self.source.multinomial(records * strata, shares)
            self.counts = drawn.reshape(shape)
            within = ["stratum"] if strata > 1 else []
            table = build_table(self.counts if within else self.counts[..., 0])
            margins = [Margin("row", *within), Margin("column", *within)]
            public = Dataspace.from_table(table, margins)
            space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
            # Margins that fix the whole table have no noise, and nothing to test.
            if not space.is_zero:
                break
        self.mechanism: Mechanism = calibrate_mechanism(mechanism, space, conditions.budget)
        # Projection is linear: one matrix projects many draws at once.
        projected = []
        for unit in np.eye(cells):
            cell = unit.reshape(space.shape)
            projected.append(space.project(cell).ravel())
        self.projection = np.stack(projected, axis=1)
        self._draws = 0

    def _random_sides(self) -> tuple[int, int]:
        rows = int(self.source.integers(2, 5))
        return rows, int(self.source.integers(3, 6))

    def errors(self, count: int) -> Floats:
        """Draw the errors of `count` releases of the table, one row each."""
        # Each call has a stream of its own: a run and its reference must not share their noise.
        self._draws += 1
        # Noise does not depend on the table, so a table of zeros shows the errors themselves.
        zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
        randomness = SeededRandomness(1000 * self.seed + self._draws)
        noise = self.mechanism.measure_many(zeros, count, randomness)
        flat = noise.reshape(count, -1).astype(np.float64)
        return np.asarray(flat @ self.projection)


def _sizes(p: Floats, twin: Floats, reference: float = math.inf) -> Shares:
    share = 1 / len(p) + 1 / reference
    shares = {}
    for alpha in ALPHAS:
        rejected = float(np.mean(p <= alpha))
        twin_rejected = float(np.mean(twin <= alpha))
        shares[alpha] = (rejected, twin_rejected, share)
    return shares


def _measure_coverage(held: Sequence[Any], reference: float = math.inf) -> Shares:
    """Coverage of the intervals and of the twin's; `held` has one list of flags for each."""
    right, twin = held
    share = 1 / len(right) + 1 / reference
    return {LEVEL: (float(np.mean(right)), float(np.mean(twin)), share)}


def _p_values(answers: Sequence[Any]) -> Floats:
    return np.array([answer.p_value for answer in answers], dtype=np.float64)


def _monte_carlo_p_values(seen: Floats, reference: Floats) -> Floats:
    """Monte Carlo p-values of statistics against one set of simulated ones."""
    # Ties count as larger: round-off must not turn one into a smaller p-value.
    just_below = seen * (1 - 1e-9)
    smaller = np.searchsorted(np.sort(reference), just_below)
    larger = len(reference) - smaller
    # What was seen counts among the simulated: no p-value is 0, and the test keeps its level.
    return np.asarray((1 + larger) / (1 + len(reference)))


def independence(
    conditions: Conditions, mechanism: str, strata: int = 1, fixed: tuple[int, int] | None = None
) -> Shares:
    """Test independence on a release; the twin simulates tables without noise."""
    world = World(conditions, mechanism, strata, fixed)
    rows = world.counts.sum(axis=1)
    columns = world.counts.sum(axis=0)
    n = np.maximum(rows.sum(axis=0), 1)
    mean = rows[:, None] * columns[None] / n
    # the variance of a hypergeometric count
    row_part = mean * (n - rows)[:, None] / n
    variance = row_part * (n - columns)[None] / np.maximum(n - 1, 1)
    noise = world.mechanism.standard_errors().reshape(mean.shape) ** 2

    def statistics(count: int, noisy: bool, spread: Floats) -> Floats:
        off = random_tables(rows, columns, count, world.source) - mean
        if noisy:
            off = off + world.errors(count).reshape(off.shape)
        # A cell that the margins fix says nothing, whatever its noise.
        scale = np.where(variance > 0, spread, np.inf)
        return np.asarray((off**2 / scale).sum(axis=(1, 2, 3)))

    with_noise = variance + noise
    seen = statistics(conditions.runs, True, with_noise)
    right = _monte_carlo_p_values(seen, statistics(conditions.draws, True, with_noise))
    twin = _monte_carlo_p_values(
        statistics(conditions.runs, True, variance), statistics(conditions.draws, False, variance)
    )
    return _sizes(right, twin, conditions.draws)


def odds_ratio(
    conditions: Conditions, alternative: Alternative, strata: int = 0, odds: float = 1.0
) -> Shares:
    """Make the private test; the twin takes U for the count itself.

    At another odds ratio than 1, the share of intervals that hold it is one less the share of
    rejections.
    """
    source = np.random.default_rng([conditions.seed, strata, 7])
    margins: TwoByTwo | Strata
    while True:
        tables = []
        for _ in range(max(strata, 1)):
            least, most = map(math.log, conditions.ranges.fourfold)
            n = int(np.exp(source.uniform(least, most)))
            row = int(source.integers(1, n))
            column = int(source.integers(1, n))
            tables.append(TwoByTwo(row, column, n))
        margins = Strata(tuple(tables)) if strata else tables[0]
        if margins.high - margins.low > 3:
            break
    law, noise = margins.law(odds), canonical_noise(conditions.budget)
    # Two-sided p-values are slow.
    is_two_sided = alternative is Alternative.TWO_SIDED
    count = max(conditions.runs // 4, 100) if is_two_sided else conditions.runs
    counts = source.choice(law.values, count, p=law.pmf)
    u = counts + noise.sample(count, SeededRandomness(conditions.seed))
    right = UmpuTest(margins, noise).p_value(u, alternative, odds)
    twin = UmpuTest(margins, Recursive.none()).p_value(u, alternative, odds)
    if odds == 1:
        return _sizes(right, twin)
    # An interval holds the odds ratio where its test does not reject.
    return _measure_coverage([right > 1 - LEVEL, twin > 1 - LEVEL])


def difference(conditions: Conditions) -> Shares:
    """Compare two cells with equal counts, from the noise alone; the twin takes any difference."""
    world = World(conditions, "gaussian")
    first, second = world.errors(conditions.runs)[:, :2].T
    seen = np.abs(first - second)
    first, second = world.errors(conditions.draws)[:, :2].T
    reference = np.abs(first - second)
    twin = np.where(seen > 0, 0.0, 1.0)
    return _sizes(_monte_carlo_p_values(seen, reference), twin, conditions.draws)


def _groups(conditions: Conditions) -> tuple[World, NDArray[np.int64], float]:
    """Noise of two cells of a table, two groups of exact size, and a rate."""
    world = World(conditions, "gaussian")
    least, most = np.transpose(conditions.ranges.groups)
    sizes = world.source.integers(least, most)
    return world, sizes, float(world.source.uniform(*conditions.ranges.rates))


def rates(conditions: Conditions, gap: float = 0.0) -> Shares:
    """Compare two population rates in groups of exact size; the twin counts sampling alone.

    Without a gap it is the size of the test that they are equal, else the coverage of the interval
    of the difference.
    """
    world, sizes, rate = _groups(conditions)
    error = world.errors(conditions.runs)[:, [0, -1]]
    group_rates = [rate, rate + gap]
    cases = world.source.binomial(sizes, group_rates, (conditions.runs, 2)) + error
    reference = world.errors(conditions.draws)[:, [0, -1]]
    noise = np.cov(reference.T / sizes[:, None])
    # Noise can push a share outside [0, 1], where its variance would be negative.
    pooled_share = cases.sum(axis=1) / sizes.sum()
    pooled = np.clip(pooled_share, 0.0, 1.0)
    each = np.clip(cases / sizes, 0.0, 1.0)
    # The test assumes equal rates and pools them; the interval does not.
    null = pooled * (1 - pooled) * (1 / sizes).sum()
    sampling = (each * (1 - each) / sizes).sum(axis=1)

    def answers(noise: Floats) -> list[Any]:
        covariance = noise[0, 1]
        first, second = np.diag(noise)
        variance = first + second - 2 * covariance
        total = np.transpose([sampling, null]) + variance
        errors = np.sqrt(np.maximum(total, 1e-12))
        quiet = []
        for v, n in zip(np.diag(noise), sizes, strict=True):
            quiet.append((float(v * n * n), 0.0, 0.0))
        intervals = []
        for seen, (error, null_error) in zip(cases, errors.tolist(), strict=True):
            parts = [(float(seen[k]), float(size)) for k, size in enumerate(sizes)]
            both = (error, null_error)
            interval = mover_difference(parts, quiet, float(covariance), both, LEVEL)
            intervals.append(interval)
        return intervals

    # The twin forgets the noise and must fail.
    right = answers(noise)
    twin = answers(np.zeros((2, 2)))
    if gap:
        held = [-gap in answer for answer in right]
        return _measure_coverage([held, [-gap in answer for answer in twin]])
    return _sizes(_p_values(right), _p_values(twin))


def one_cell(conditions: Conditions) -> Shares:
    """Give intervals for a count from the noise alone; the twin counts half of the noise."""
    world = World(conditions, "laplace")
    seen = world.errors(conditions.runs // 10)[:, 0]
    drawn = world.errors(conditions.draws)[:, 0]
    truth, most = 100.0, (0.0, 200.0)

    def check_coverage(noise_share: float) -> list[bool]:
        noise = drawn * noise_share
        flags = []
        for error in seen:
            interval = linear_interval(truth + error, 1.0, noise, most, LEVEL)
            flags.append(truth in interval)
        return flags

    return _measure_coverage([check_coverage(1.0), check_coverage(0.5)], conditions.draws)


def all_cells(conditions: Conditions) -> Shares:
    """Give intervals for all cells at once; the twin takes each cell by itself."""
    world = World(conditions, "gaussian")
    errors = world.mechanism.standard_errors().ravel()
    # Cells that the exact totals fix have no error to cover.
    noisy = errors > 1e-9
    stated = errors[noisy]
    seen = np.abs(world.errors(conditions.runs)[:, noisy]) / stated
    drawn = np.abs(world.errors(conditions.draws)[:, noisy]) / stated
    largest = seen.max(axis=1)
    all_bound = simulated_bound(drawn.max(axis=1), LEVEL)
    first_bound = simulated_bound(drawn[:, 0], LEVEL)
    # The twin's bound is that of one cell.
    right = largest <= all_bound * (1 + 1e-9)
    twin = largest <= first_bound * (1 + 1e-9)
    return _measure_coverage([right, twin], conditions.draws)


def noisy_ratio(conditions: Conditions) -> Shares:
    """Give the ratio of two noisy counts, from the noise alone; the twin counts half of the
    noise.
    """
    world = World(conditions, "gaussian")
    parts = np.array([[1.0, 1.0], [0.0, 1.0]])  # cases are part of the records
    few = max(conditions.runs // 100, 2)
    ends = [0, -1]
    seen = world.errors(few)[:, ends] @ parts
    drawn = world.errors(conditions.draws)[:, ends] @ parts
    top, bottom = conditions.ranges.ratio

    def check_coverage(noise: Floats) -> list[bool]:
        both_draws = (noise[:, 0], noise[:, 1])
        answers = []
        for error_top, error_bottom in seen:
            measured = (top + error_top, bottom + error_bottom)
            interval = ratio_interval(measured, both_draws, 0.0, LEVEL)
            answers.append(top / bottom in interval)
        return answers

    return _measure_coverage([check_coverage(drawn), check_coverage(drawn / 2)], conditions.draws)


def population_rate(conditions: Conditions, group: int = 0) -> Shares:
    """Give a population rate in a group of exact size; the twin ignores the noise."""
    world, sizes, rate = _groups(conditions)
    reference = world.errors(conditions.draws)[:, 0]
    size = float(sizes[group])
    sampled = world.source.binomial(sizes[group], rate, conditions.runs)
    cases = sampled + world.errors(conditions.runs)[:, 0]

    def check_coverage(noise: Floats) -> NDArray[np.bool_]:
        # `inverted_rate` holds a rate where both of its tails are large enough.
        true_cases = cases[:, None] - noise
        above = _mean_tails(true_cases, size, rate)
        below = _mean_tails(size - true_cases, size, 1 - rate)
        return np.minimum(above, below) > (1 - LEVEL) / 2

    return _measure_coverage([check_coverage(reference), check_coverage(np.zeros(1))])


def _mean_tails(counts: Floats, records: float, rate: float) -> Floats:
    """``P(Bin(records, rate) >= counts)``, averaged over the last axis."""
    from scipy.stats import binom

    whole = np.ceil(counts - 1e-6).astype(np.int64)
    every = np.arange(whole.min(), whole.max() + 1.0)
    tails = binom.sf(every - 1, records, rate)
    return np.asarray(tails[whole - whole.min()].mean(axis=-1))


@frozen
class Experiment:
    """What is asked of a release or of data, and the budgets of its trials.

    Parameters
    ----------
    kind
        Whether a size or a coverage is shown.
    asked
        What the procedure reads.
    run
        The procedure and its twin, made once.
    usual, hard
        The budgets: with usual margins, and for noise of about a record with few records in
        unequal groups. None where such trials are left out.
    """

    kind: str
    asked: str
    run: Callable[[Conditions], Shares]
    usual: Budget | None
    hard: Budget | None


_MU_HALF, _MU_1, _MU_015, _MU_03, _MU_4 = map(Budget.gdp, ("0.5", "1", "0.15", "0.3", "4"))
_EPSILON_HALF, _EPSILON_1, _EPSILON_4, _EPSILON_5 = map(Budget.pure, ("0.5", "1", "4", "5"))
_RHO_01, _RHO_8 = map(Budget.zcdp, ("0.1", "8"))
_DATA, _RELEASE, _NORMAL = "data", "release", "release, normal approximation"


def _independence(
    mechanism: str, usual: Budget, hard: Budget | None, asked: str = _RELEASE, **shape: Any
) -> Experiment:
    run = partial(independence, mechanism=mechanism, **shape)
    return Experiment("size", asked, run, usual, hard)


def _odds(alternative: Alternative, strata: int = 0, odds: float = 1.0) -> Experiment:
    run = partial(odds_ratio, alternative=alternative, strata=strata, odds=odds)
    kind = "size" if odds == 1 else "coverage"
    # A stratified test spends mu, that of one table epsilon.
    usual, hard = (_MU_03, _MU_4) if strata else (_EPSILON_HALF, _EPSILON_4)
    return Experiment(kind, _DATA, run, usual, hard)


def _coverage(
    run: Callable[[Conditions], Shares],
    usual: Budget | None,
    hard: Budget | None = _MU_4,
    asked: str = _RELEASE,
) -> Experiment:
    return Experiment("coverage", asked, run, usual, hard)


EXPERIMENTS: dict[str, Experiment] = {
    "independence, rounded Gaussian": _independence("gaussian", _MU_HALF, _MU_4),
    "independence, discrete Gaussian": _independence("gaussian", _RHO_01, _RHO_8),
    "independence, lattice Gaussian": _independence("lattice", _RHO_01, _RHO_8),
    "independence, Laplace": _independence("laplace", _EPSILON_1, _EPSILON_5),
    "independence, l2": _independence("l2", _EPSILON_1, _EPSILON_5),
    "independence, K-norm, 2 × 4": _independence("knorm", _EPSILON_1, None, fixed=(2, 4)),
    "independence, lattice Gaussian, 2 × 2": _independence(
        "lattice", _RHO_01, None, "release, few values", fixed=(2, 2)
    ),
    "conditional independence, 3 strata": _independence("gaussian", _MU_HALF, _MU_4, strata=3),
    "difference of two cells, noise": Experiment("size", _RELEASE, difference, _MU_HALF, _MU_4),
    "difference of two rates, noise and sampling": Experiment(
        "size", _NORMAL, rates, _MU_015, _MU_4
    ),
    "odds ratio, one-sided": _odds(Alternative.GREATER),
    "odds ratio, two-sided": _odds(Alternative.TWO_SIDED),
    "common odds ratio of 3 strata, one-sided": _odds(Alternative.LESS, 3),
    "common odds ratio of 3 strata, two-sided": _odds(Alternative.TWO_SIDED, 3),
    "count of a cell, noise": _coverage(one_cell, _EPSILON_1, _EPSILON_5),
    "all cells at once, noise": _coverage(all_cells, _MU_1),
    "ratio of two noisy counts, noise": _coverage(noisy_ratio, _MU_1),
    "population rate, noise and sampling": _coverage(population_rate, _MU_015, None),
    "population rate, the small group": _coverage(population_rate, None),
    "population rate, the large group": _coverage(partial(population_rate, group=1), None),
    "difference of population rates, noise and sampling": _coverage(
        partial(rates, gap=0.2), None, asked=_NORMAL
    ),
    "odds ratio of 3": _odds(Alternative.TWO_SIDED, odds=3.0),
    "common odds ratio of 3, 3 strata": _odds(Alternative.TWO_SIDED, 3, 3.0),
}
"""Sizes, then coverages: each is run with usual and with hard margins."""


def compute_inference(settings: Settings = PAPER) -> Tidy:
    """Return the mean, the least and the largest share over random margins, and the mean of the
    twin.

    The worst is the largest distance from the nominal share in binomial standard errors; the
    largest of 50 is 2.2 on average and above 3.7 once in a hundred. There are 50 margins from 25
    replicates on; a margin has 100 runs and 100 simulated tables for each replicate (the two-sided
    tests of data a quarter, ratios a hundredth of the runs).

    >>> table = compute_inference(Settings(replicates=2))
    >>> table.columns[:5]
    ('experiment', 'drawn', 'kind', 'asked', 'nominal')
    >>> table.columns[5:]
    ('margins', 'runs', 'mean', 'least', 'largest', 'worst', 'twin')
    """
    margins = min(MOST_MARGINS, 2 * settings.replicates)
    runs = 100 * settings.replicates
    every = []
    for drawn, ranges in (("usual", USUAL), ("hard", HARD)):
        for name, each in EXPERIMENTS.items():
            budget = each.usual if ranges is USUAL else each.hard
            if budget is not None:
                every.append((drawn, ranges, name, each, budget))
    rows = []
    for drawn, ranges, name, each, budget in settings.each("sizes and coverages", every):
        results = []
        for number in range(margins):
            # With one simulated table fewer, 1 + B is round and p-values can equal 0.05 and 0.01.
            seed = settings.seed + 1 + number
            results.append(each.run(Conditions(seed, runs, runs - 1, budget, ranges)))
        for nominal in results[0]:
            by_margin = [result[nominal] for result in results]
            shares, twins, ones = map(np.array, zip(*by_margin, strict=True))
            standard_error = np.sqrt(nominal * (1 - nominal) * ones)
            worst = np.abs(shares - nominal) / standard_error
            row: dict[str, Any] = {"experiment": name, "drawn": drawn}
            row |= {"kind": each.kind, "asked": each.asked}
            row |= {"nominal": nominal, "margins": margins, "runs": runs}
            row |= {"mean": shares.mean(), "least": shares.min()}
            row |= {"largest": shares.max(), "worst": worst.max()}
            row["twin"] = twins.mean()
            rows.append(row)
    return Tidy.from_rows(rows)


def plot_inference(table: Tidy) -> style.Figure:
    """Draw the shares at 0.05 (and coverages at 0.95) with their range over the margins, and the
    twins.
    """
    with style.drawing(9.5, 5.8, columns=2) as (figure, panels):
        kinds = (("size", 0.05), ("coverage", LEVEL))
        for axes, (kind, nominal) in zip(panels, kinds, strict=True):
            part = table.where(drawn="usual", kind=kind, nominal=nominal)
            places = np.arange(len(part))[::-1]
            mean = np.array(part["mean"])
            below = mean - np.array(part["least"])
            above = np.array(part["largest"]) - mean
            reach = [below, above]
            axes.errorbar(mean, places, xerr=reach, fmt="o", color=style.BLUE, label="noise known")
            axes.plot(
                part["twin"], places, "s", color=style.ORANGE, label="its twin: noise ignored"
            )
            axes.axvline(nominal, color="black", linewidth=0.8, linestyle=":")
            axes.set_yticks(places, part["experiment"], fontsize=7)
            axes.set(title=f"{kind}, nominal {nominal:g}", xlabel="share of runs")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            "Tests and intervals under the known law of the noise, and with the noise ignored"
        )
    return figure
