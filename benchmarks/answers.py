"""Sizes, powers and coverages of the questions to a release, beside what they replace and beside
other packages.

``run`` is the short version that ``make bench`` runs. ``python benchmarks/answers.py 2000 pooled``
prints a table of docs/inference_checks.md again; without a name it prints them all.
statsmodels stands beside it where it is installed.
"""

import csv
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, chi2_contingency, false_discovery_control, nchypergeom_fisher

import semidp
from semidp import (
    Ball,
    Budget,
    Dataspace,
    Feature,
    Margin,
    Plan,
    Schema,
    Table,
    semi_adjacency,
    sensitivity_space,
)
from semidp.errors import Refused
from semidp.inference.association import ScoreTest
from semidp.inference.independence import TotalsTest, least_favourable, random_tables
from semidp.inference.linear_estimates import DrawnNumbers, SumErrors
from semidp.inference.models import DesignMatrix, Formula, logistic_fit
from semidp.inference.paired_tests import every_pair
from semidp.inference.ratios import NoisyRates, RateMeasure
from semidp.inference.unknown_totals import NoiseTerms, ScoreQuestion, UnknownTotals
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.selection import calibrate_mechanism
from semidp.publish.statistics.odds_ratio.umpu import Alternative

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

ALPHA = 0.05
DRAWS = 3999


def share_of(held: Any) -> str:
    """A share of runs with its Monte Carlo standard error."""
    flags = np.asarray(held, dtype=float)
    share = float(flags.mean())
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / flags.size):.3f}"


# --- pooled and ordered tests ---------------------------------------------------------------------


class Tests:
    """A table with exact margins in every stratum, its mechanism, and the statistics to compare."""

    def __init__(
        self, rows: Counts, columns: Counts, budget: Budget, scores: tuple[Floats, Floats]
    ) -> None:
        self.rows, self.columns = rows, columns
        self.source = np.random.default_rng(7)
        self.shape = (len(rows), len(columns), rows.shape[1])
        names = ("row", "column", "stratum")
        features = [
            Feature(name, [f"{level:03}" for level in range(size)])
            for name, size in zip(names, self.shape, strict=True)
        ]
        example = random_tables(rows, columns, 1, self.source)[0]
        public = Dataspace.from_table(
            Table(Schema(features), example),
            [Margin("row", "stratum"), Margin("column", "stratum")],
        )
        space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
        self.mechanism: Mechanism = calibrate_mechanism("gaussian", space, budget)
        self.scores = scores
        n = rows.sum(axis=0)
        self.mean = rows[:, None] * columns[None] / n
        self.spread = self.mean * (n - rows)[:, None] / n * (n - columns)[None] / (n - 1)
        self.noise = self.mechanism.standard_errors().reshape(self.shape) ** 2
        self.draws = 0

    def noisy(self, tables: Counts) -> Floats:
        """Tables with the noise of a release."""
        self.draws += 1
        zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
        noise = self.mechanism.measure_many(zeros, len(tables), SeededRandomness(self.draws))
        project = self.mechanism.space.project
        projected = np.stack([project(each) for each in noise.astype(np.float64)])
        return np.asarray(tables + projected.reshape(tables.shape))

    def omnibus(self, tables: Floats) -> Floats:
        """The statistic that was there before."""
        off = (tables - self.mean) ** 2 / (self.spread + self.noise)
        return np.asarray(off.sum(axis=(1, 2, 3)))

    def directed(self, tables: Floats, noisy: bool = True) -> Floats:
        """The statistic with one degree of freedom."""
        test = ScoreTest(*self.scores, pooled=True)
        weights = np.einsum("dij,kl->kdijl", test.weights, np.eye(self.shape[2]))[:, 0]
        noise = [
            self.mechanism.standard_error(each.reshape(self.mechanism.space.shape)) ** 2
            for each in weights
        ]
        covariance = np.array(noise)[:, None, None] * (1.0 if noisy else 0.0)
        transforms, _ = test.transforms(test.covariances(self.rows, self.columns), covariance)
        cells = np.einsum("pkd,dij->pijk", transforms, test.weights)
        return np.asarray(np.einsum("pijk,nijk->n", cells, tables - self.mean) ** 2)

    def rejections(self, tables: Counts) -> dict[str, Any]:
        """For each test whether it rejects: ours, what it replaces, the noise forgotten, and
        without privacy.
        """
        reference = self.noisy(random_tables(self.rows, self.columns, DRAWS, self.source))
        published = self.noisy(tables)
        rejected = {}
        for name, statistic in (("one degree", self.directed), ("omnibus", self.omnibus)):
            ordered = np.sort(statistic(reference))
            larger = len(ordered) - np.searchsorted(ordered, statistic(published) * (1 - 1e-9))
            rejected[name] = (1 + larger) / (1 + len(ordered)) <= ALPHA
        rejected["noise forgotten"] = self.directed(published, noisy=False) > chi2.isf(ALPHA, 1)
        rejected["true table"] = np.array(
            [outside_p(table, self.scores) <= ALPHA for table in tables]
        )
        return rejected


def outside_p(table: Counts, scores: tuple[Floats, Floats]) -> float:
    """The p-value of statsmodels on the true table, which nobody may see."""
    from statsmodels.stats.contingency_tables import StratifiedTable
    from statsmodels.stats.contingency_tables import Table as OneTable

    if table.shape[2] > 1:
        strata = [table[:, :, number].astype(float) for number in range(table.shape[2])]
        return float(StratifiedTable(strata).test_null_odds(correction=False).pvalue)
    one = OneTable(table[:, :, 0].astype(float), shift_zeros=False)
    return float(one.test_ordinal_association(scores[0][:, 0], scores[1][:, 0]).pvalue)


def two_levels(
    strata: int, each: int, odds: float, count: int, source: np.random.Generator
) -> tuple[Any, ...]:
    """Margins of 2 × 2 strata with half of each level, and tables with a common odds ratio given
    these.
    """
    half = each // 2
    rows = columns = np.full((2, strata), half)
    law = nchypergeom_fisher(each, half, half, odds)
    corner = law.rvs((count, strata), random_state=source)
    tables = np.empty((count, 2, 2, strata), dtype=np.int64)
    tables[:, 0, 0] = tables[:, 1, 1] = corner
    tables[:, 0, 1] = tables[:, 1, 0] = half - corner
    return rows, columns, tables


def ordinal(
    r: int, c: int, n: int, slope: float, count: int, source: np.random.Generator
) -> tuple[Any, ...]:
    """Margins of an r × c table and tables with log-linear association ``slope · i · j`` given
    these.

    By Metropolis from tables of independent features: two records swap columns.
    """
    rows = np.full((r, 1), n // r)
    columns = np.full((c, 1), n // c)
    u = np.arange(r) - (r - 1) / 2
    v = np.arange(c) - (c - 1) / 2
    tables = random_tables(rows, columns, count, source)[..., 0]
    every = np.arange(count)
    for _ in range(20 * n):
        # Each table has moves of its own: with shared ones the tables would not be independent.
        i, k = source.integers(0, r, count), source.integers(0, r, count)
        j, m = source.integers(0, c, count), source.integers(0, c, count)
        gain = slope * (u[i] - u[k]) * (v[j] - v[m])
        # Two records of cells (i, m) and (k, j) swap columns: the ratio of the laws of the two
        # tables.
        below = (tables[every, i, j] + 1) * (tables[every, k, m] + 1)
        ratio = tables[every, i, m] * tables[every, k, j] / below
        moved = np.flatnonzero((source.random(count) < ratio * np.exp(gain)) & (i != k) & (j != m))
        for a, b, by in ((i, j, 1), (k, m, 1), (i, m, -1), (k, j, -1)):
            tables[moved, a[moved], b[moved]] += by
    tables = tables[..., None]
    return rows, columns, tables


def levels(count: int) -> Floats:
    """Scores 1, 2, 3 and so on."""
    return np.arange(1.0, count + 1)[:, None]


POOLED = [(20, 50, "1"), (20, 50, "0.3"), (50, 30, "1"), (50, 30, "0.3")]
ORDINAL = [(6, 4, 120, "1"), (6, 4, 120, "0.3"), (5, 2, 100, "0.3")]


def pooled_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield strata, budget and odds ratio, and the share of rejections of each test."""
    source = np.random.default_rng(1)
    for strata, each, mu in POOLED:
        for odds in (1.0, 1.6):
            rows, columns, tables = two_levels(strata, each, odds, runs, source)
            world = Tests(rows, columns, Budget.gdp(mu), (levels(2), levels(2)))
            shares = [share_of(flags) for flags in world.rejections(tables).values()]
            yield f"{strata} strata of {each}", f"μ = {mu}", f"{odds:g}", *shares


def ordered_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield shape, budget and slope, and the share of rejections of each test."""
    source = np.random.default_rng(2)
    for r, c, n, mu in ORDINAL:
        for slope in (0.0, 0.25 if c == 2 else 0.12):
            rows, columns, tables = ordinal(r, c, n, slope, runs, source)
            world = Tests(rows, columns, Budget.gdp(mu), (levels(r), levels(c)))
            shares = [share_of(flags) for flags in world.rejections(tables).values()]
            yield f"{r} × {c}, {n} records", f"μ = {mu}", f"{slope:g}", *shares


# --- two rates ------------------------------------------------------------------------------------

RATES = [((30, 300), (0.05, 0.05)), ((20, 20), (0.1, 0.3)), ((50, 50), (0.02, 0.02))]


def compared_rates(
    records: Any, p: Any, mu: str | None, runs: int, seed: int
) -> dict[str, dict[str, Any]]:
    """For each measure whether the true value is kept by ours, the normal interval, and
    statsmodels' score interval.
    """
    from statsmodels.stats.proportion import test_proportions_2indep

    source = np.random.default_rng(seed)
    counts = source.binomial(records, p, (runs, 2)).astype(float)
    # Group sizes exact, cases noisy: Δ2 = √8 for two records that change.
    deviation = math.sqrt(8) / float(mu) if mu else 0.0
    noisy = counts + np.rint(deviation * source.normal(size=counts.shape))
    variance = deviation**2 + (1 / 12 if mu else 0.0)
    sizes = np.broadcast_to(np.array(records, dtype=float), counts.shape)
    rates = NoisyRates(noisy, sizes, np.diag([variance, 0.0, variance, 0.0]))
    raw = noisy / sizes
    within = np.clip(raw, 0, 1)
    error = np.sqrt((within * (1 - within) / sizes + variance / sizes**2).sum(axis=1))
    clipped = np.clip(noisy, 0, sizes)
    kept: dict[str, dict[str, Any]] = {}
    for measure, name in (
        (RateMeasure.DIFFERENCE, "diff"),
        (RateMeasure.RISK_RATIO, "ratio"),
        (RateMeasure.ODDS_RATIO, "odds-ratio"),
    ):
        value = float(measure.compare(*p))
        kept[measure] = {"score": rates.score(measure, np.full(runs, value)) <= chi2.isf(ALPHA, 1)}
        if measure is RateMeasure.DIFFERENCE:
            kept[measure]["normal"] = np.abs(raw[:, 0] - raw[:, 1] - value) <= 1.959964 * error
        for label, seen in (("noise forgotten", clipped), ("true counts", counts)):
            values = [
                test_proportions_2indep(
                    a, m, b, n, value, method="score", compare=name, correction=False
                ).pvalue
                for (a, b), (m, n) in zip(seen, sizes, strict=True)
            ]
            # it has no answer where a group has no case
            answered = np.array(values)[~np.isnan(values)]
            kept[measure][label] = answered > ALPHA
    return kept


def ratio_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield groups, budget, measure, and the coverage of each interval."""
    import warnings

    warnings.simplefilter("ignore")  # statsmodels divides by 0 where no group has a case
    for number, (records, p) in enumerate(RATES):
        for mu in (None, "1"):
            for measure, kept in compared_rates(records, p, mu, runs, number).items():
                shares = [share_of(kept[name]) if name in kept else "" for name in SHOWN]
                groups = f"{records[0]} at {p[0]:g}, {records[1]} at {p[1]:g}"
                yield groups, "none" if mu is None else f"μ = {mu}", measure, *shares


SHOWN = ("score", "normal", "noise forgotten", "true counts")


# --- every pair -----------------------------------------------------------------------------------


def five_features(n: int, source: np.random.Generator) -> dict[str, list[str]]:
    """Five features of three levels: b depends on a and d on c, all else is independent."""
    a, c, e = (source.integers(0, 3, n) for _ in range(3))
    b = np.where(source.random(n) < 0.3, a, source.integers(0, 3, n))
    d = np.where(source.random(n) < 0.3, c, source.integers(0, 3, n))
    values = zip("abcde", (a, b, c, d, e), strict=True)
    return {name: [f"{name}{level}" for level in levels] for name, levels in values}


Shares = dict[str, list[float]]


def pair_shares(mu: str, runs: int, source: np.random.Generator) -> tuple[Shares, Shares]:
    """For each rule the share of false discoveries, and of true pairs that are found, in every
    run.
    """
    tables = [TableRequest(list(pair)) for pair in itertools.combinations("abcde", 2)]
    plan = Plan([TablesRequest(tables, Budget.gdp(mu))], [*"abcde"])
    false: Shares = {}
    power: Shares = {}
    for seed in range(runs):
        release = semidp.run(plan, five_features(500, source), SeededRandomness(seed))
        answer = every_pair(release, draws=1999, randomness=SeededRandomness(seed))
        true = np.array([{test.rows, test.columns} in ({*"ab"}, {*"cd"}) for test in answer.tests])
        p = np.array([test.p_value for test in answer.tests])
        for name, values in (
            ("ours", np.array(answer.adjusted)),
            ("each at 0.05", p),
            ("forgotten", naive_p(release)),
        ):
            rejected = values <= ALPHA
            false.setdefault(name, []).append(
                float((rejected & ~true).sum() / max(rejected.sum(), 1))
            )
            power.setdefault(name, []).append(float((rejected & true).sum() / true.sum()))
    return false, power


def pair_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield budget, and for each rule the share of false discoveries and of true pairs that are
    found.
    """
    source = np.random.default_rng(3)
    for mu in ("1", "0.5"):
        false, power = pair_shares(mu, runs, source)
        yield f"μ = {mu}", *(mean_of(part[name]) for name in false for part in (false, power))


def naive_p(release: Any) -> Floats:
    """p-values of scipy's χ² on the fitted whole numbers, adjusted by scipy, as if they were the
    truth.
    """
    p = []
    for table in release.tables:
        counts = np.maximum(np.rint(table.estimate), 0)
        p.append(chi2_contingency(counts + 1e-9, correction=False).pvalue)
    return np.asarray(false_discovery_control(p, method="by"))


def mean_of(values: list[float]) -> str:
    """A mean with its Monte Carlo standard error."""
    return f"{np.mean(values):.3f} ± {np.std(values) / math.sqrt(len(values)):.3f}"


# --- models ---------------------------------------------------------------------------------------

FORMULA = "survived ~ class + sex"


class Population:
    """Titanic's class and sex with log-odds of the model as truth, released again and again."""

    def __init__(self, mu: str, exact_groups: bool, share: float) -> None:
        path = files("semidp") / "data" / "titanic.csv"
        rows = list(csv.DictReader(path.read_text().splitlines()))
        levels = {
            "class": ["1st", "2nd", "3rd", "Crew"],
            "sex": ["Female", "Male"],
            "survived": ["No", "Yes"],
        }
        counts = np.zeros((4, 2, 2))
        for line in rows:
            place = tuple(levels[name].index(line[name]) for name in levels)
            counts[place] += int(line["count"])
        self.records = np.rint(counts.sum(axis=2) * share).ravel()
        self.design = DesignMatrix.from_formula(Formula.parse(FORMULA), levels).matrix
        self.truth = logistic_fit(
            self.design, counts[..., 1].ravel(), counts.sum(axis=2).ravel(), np.zeros((16, 16))
        )
        features = [Feature(name, values) for name, values in levels.items()]
        example = np.stack([self.records, np.zeros(8)], axis=1).reshape(4, 2, 2).astype(np.int64)
        margins = [Margin("class", "sex")] if exact_groups else [Margin("class"), Margin("sex")]
        public = Dataspace.from_table(Table(Schema(features), example), margins)
        space = sensitivity_space(public, Ball(semi_adjacency(public).bound))
        self.mechanism: Mechanism = calibrate_mechanism("gaussian", space, Budget.gdp(mu))
        projections = [space.project(cell.reshape(4, 2, 2)).ravel() for cell in np.eye(16)]
        self.projection = np.stack(projections)
        self.noise = self.mechanism.variance * self.projection @ self.projection.T
        self.take = np.zeros((16, 16))
        for group in range(8):
            self.take[group, 2 * group + 1] = 1.0
            self.take[8 + group, 2 * group : 2 * group + 2] = 1.0

    def coverage(self, runs: int, seed: int) -> dict[str, Any]:
        """For each fit whether its intervals hold the true coefficients, and their mean width."""
        import statsmodels.api as sm

        source = np.random.default_rng(seed)
        rates = 1 / (1 + np.exp(-self.design @ self.truth.coefficients))
        cases = source.binomial(self.records.astype(int), rates, (runs, 8))
        zeros = np.zeros((4, 2, 2), dtype=np.int64)
        drawn = self.mechanism.measure_many(zeros, runs, SeededRandomness(seed)).reshape(runs, 16)
        errors = drawn.astype(float) @ self.projection.T
        covariance = self.take @ self.noise @ self.take.T
        held: dict[str, list[Any]] = {"ours": [], "noise forgotten": [], "true table": []}
        for x, error in zip(cases, errors, strict=True):
            sums = self.take @ (np.stack([self.records - x, x], axis=1).ravel() + error)
            try:
                fit = logistic_fit(self.design, sums[:8], sums[8:], covariance)
            except Refused:  # counted, and left out of the coverages
                continue
            half = 1.959964 * np.sqrt(np.diag(fit.covariance))
            held["ours"].append(np.abs(fit.coefficients - self.truth.coefficients) <= half)
            noisy = np.maximum(np.stack([sums[:8], sums[8:] - sums[:8]], axis=1), 0.0)
            for name, table in (
                ("noise forgotten", noisy),
                ("true table", np.stack([x, self.records - x], axis=1)),
            ):
                filled = table.sum(axis=1) > 0  # it takes no group that noise has emptied
                result = sm.GLM(
                    table[filled], self.design[filled], family=sm.families.Binomial()
                ).fit()
                half = 1.959964 * result.bse
                held[name].append(np.abs(result.params - self.truth.coefficients) <= half)
        return held

    def rejections(self, effect: float, runs: int, seed: int) -> dict[str, list[bool]]:
        """For each fit whether the Wald test of all classes rejects at 0.05, where their
        coefficients are so many times those of the model.
        """
        import statsmodels.api as sm

        source = np.random.default_rng(seed)
        coefficients = self.truth.coefficients.copy()
        coefficients[1:4] *= effect
        rates = 1 / (1 + np.exp(-self.design @ coefficients))
        cases = source.binomial(self.records.astype(int), rates, (runs, 8))
        zeros = np.zeros((4, 2, 2), dtype=np.int64)
        drawn = self.mechanism.measure_many(zeros, runs, SeededRandomness(seed)).reshape(runs, 16)
        errors = drawn.astype(float) @ self.projection.T
        covariance = self.take @ self.noise @ self.take.T
        bound = chi2.isf(ALPHA, 3)
        rejected: dict[str, list[bool]] = {"ours": [], "noise forgotten": [], "true table": []}
        for x, error in zip(cases, errors, strict=True):
            sums = self.take @ (np.stack([self.records - x, x], axis=1).ravel() + error)
            try:
                fit = logistic_fit(self.design, sums[:8], sums[8:], covariance)
            except Refused:  # counted, and left out
                continue
            rejected["ours"].append(wald(fit.coefficients, fit.covariance) > bound)
            noisy = np.maximum(np.stack([sums[:8], sums[8:] - sums[:8]], axis=1), 0.0)
            true = np.stack([x, self.records - x], axis=1)
            for name, table in (("noise forgotten", noisy), ("true table", true)):
                filled = table.sum(axis=1) > 0
                model = sm.GLM(table[filled], self.design[filled], family=sm.families.Binomial())
                result = model.fit()
                rejected[name].append(wald(result.params, result.cov_params()) > bound)
        return rejected


def wald(coefficients: Floats, covariance: Floats) -> float:
    """The Wald statistic of the three classes."""
    chosen = coefficients[1:4]
    return float(chosen @ np.linalg.pinv(covariance[1:4, 1:4]) @ chosen)


def comparison_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield budget and effect, and the share of rejections of the model without classes."""
    import warnings

    warnings.simplefilter("ignore")  # statsmodels warns where a noisy group has no case
    for mu in ("1", "0.3", "0.1"):
        world = Population(mu, True, 1.0)
        for effect in (0.0, 0.25):
            rejected = world.rejections(effect, runs, 1)
            yield f"μ = {mu}", f"{effect:g}", *(share_of(rejected[name]) for name in rejected)


def model_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield what is exact, records and budget, and the coverage of the coefficients (not the
    intercept) by each fit.
    """
    import warnings

    warnings.simplefilter("ignore")  # statsmodels warns where a noisy group has no case
    for exact_groups, share in ((True, 1.0), (True, 0.2), (False, 1.0)):
        for mu in ("1", "0.3", "0.1"):
            held = Population(mu, exact_groups, share).coverage(runs, 1)
            shares = [clustered_share(np.array(held[name])[:, 1:]) for name in held]
            yield (
                "class × sex" if exact_groups else "class, sex",
                f"{2201 * share:.0f}",
                f"μ = {mu}",
                *shares,
                f"{len(held['ours']) / runs:.3f}",
            )


def clustered_share(held: Any) -> str:
    """A share over runs and coefficients, with the Monte Carlo error of the runs' means, and the
    least coefficient.
    """
    flags = np.asarray(held, dtype=float)
    error = flags.mean(axis=1).std() / math.sqrt(len(flags))
    return f"{flags.mean():.3f} ± {error:.3f} ({flags.mean(axis=0).min():.3f})"


# --- noisy totals ---------------------------------------------------------------------------------


def totals_rejections(sigma: float, odds: float, runs: int) -> dict[str, list[bool]]:
    """Whether each run rejects: with noisy totals, with exact totals, and with the noise
    forgotten.
    """
    rows, n, draws = np.array([120, 80]), 200, 499
    source = np.random.default_rng(5)
    rejected: dict[str, list[bool]] = {"noisy": [], "exact": [], "forgotten": []}
    draw = source.normal(0, sigma, (draws, 2))
    test = TotalsTest(np.full((2, 2), sigma**2), np.stack([draw, -draw], axis=2), 1)
    bound = float(chi2.isf(ALPHA, 1))
    for _ in range(runs):
        cases = source.binomial(rows, [0.3 * odds / (0.7 + 0.3 * odds), 0.3])
        error = source.normal(0, sigma, 2)
        table = np.stack([cases + error, rows - cases - error], axis=1)
        centre, reach = round(float(table[:, 0].sum())), math.ceil(3.5 * sigma * math.sqrt(2))
        plausible = range(max(1, centre - reach), min(n - 1, centre + reach) + 1)
        totals = [(rows, np.array([value, n - value])) for value in plausible]
        p, _ = least_favourable(totals, partial(test.p_value, table))
        rejected["noisy"].append(p <= ALPHA)
        true = np.array([cases.sum(), n - cases.sum()])
        rejected["exact"].append(test.p_value(table, rows, true) <= ALPHA)
        naive = chi2_contingency(np.maximum(table, 0.01), correction=False).statistic
        rejected["forgotten"].append(naive > bound)
    return rejected


def totals_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield noise and odds ratio, and the share of rejections: noisy totals, exact totals, and the
    noise forgotten.
    """
    for sigma, odds in ((2.0, 1.0), (2.0, 2.5), (6.0, 1.0), (6.0, 2.5)):
        rejected = totals_rejections(sigma, odds, runs)
        yield f"{sigma:g}", f"{odds:g}", *(share_of(flags) for flags in rejected.values())


class BoundedTotals:
    """Groups of exact size by ordered levels with noisy totals, in strata: all plausible totals are
    bounded at once.
    """

    def __init__(self, groups: int, levels: int, strata: int, each: int, sigma: int) -> None:
        self.sizes = np.full((groups, strata), each // groups)
        self.law = DiscreteGaussian(Fraction(sigma**2))
        self.scores = (np.arange(groups, dtype=float), np.arange(levels, dtype=float))
        self.question = ScoreQuestion(*self.scores, tuple(range(strata)))
        self.source = np.random.default_rng(11)
        self.draws = 0

    def noise_of(self, weights: Floats) -> NoiseTerms:
        """Cells have independent noise; exact sizes take its mean out of every group."""
        free = (weights - weights.mean(axis=1, keepdims=True)).ravel()
        drawn = DrawnNumbers([self.law], np.zeros(free.size, dtype=np.intp), np.ones(free.size))
        return NoiseTerms(SumErrors(1, ((drawn, free[None]),)).terms(0))

    def noise(self, count: int) -> Floats:
        self.draws += 1
        shape = (count, len(self.sizes), len(self.scores[1]), self.sizes.shape[1])
        drawn = self.law.sample(shape, SeededRandomness(self.draws)).astype(float)
        return np.asarray(drawn - drawn.mean(axis=2, keepdims=True))

    def drawn(self, slope: float) -> Counts:
        """A table whose levels go with the groups: log-odds rise by ``slope`` a group and a
        level.
        """
        u, v = self.scores
        rates = np.exp(slope * np.outer(u - u.mean(), v - v.mean()))
        rates /= rates.sum(axis=1, keepdims=True)
        strata = range(self.sizes.shape[1])
        return np.stack([self.source.multinomial(self.sizes[:, k], rates) for k in strata], axis=2)

    def rejections(self, slope: float, runs: int) -> dict[str, list[bool]]:
        """Whether each run rejects: totals bounded, totals exact, and statsmodels with the noise
        forgotten.
        """
        rejected: dict[str, list[bool]] = {"bounded": [], "exact": [], "forgotten": []}
        for _ in range(runs):
            true = self.drawn(slope)
            seen = true + self.noise(1)[0]
            test = UnknownTotals(seen, self.sizes, self.noise_of, (self.question,))
            p, _ = test.p_value(Alternative.TWO_SIDED)
            rejected["bounded"].append(p <= ALPHA)
            weights = test.weights(self.question)
            reference = random_tables(self.sizes, true.sum(axis=0), 499, self.source) + self.noise(
                499
            )
            sizes = np.abs(np.einsum("nijk,ijk->n", reference, weights))
            larger = int(np.count_nonzero(sizes >= abs(float((weights * seen).sum()))))
            rejected["exact"].append((1 + larger) / 500 <= ALPHA)
            clipped = np.maximum(np.rint(seen), 0).astype(np.int64)
            columns = (self.scores[0][:, None], self.scores[1][:, None])
            rejected["forgotten"].append(outside_p(clipped, columns) <= ALPHA)
        return rejected


# Records of two groups, their common rate, the noise of cases and that of records.
SMALL = [
    (30, 300, 0.05, 3, 0),
    (3, 500, 0.5, 3, 0),
    (20, 20, 0.02, 100, 0),
    (3, 500, 0.01, 3, 0),
    (30, 300, 0.05, 3, 4),
    (20, 20, 0.1, 30, 40),
    (400, 10, 0.02, 1, 6),
]


def small_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield groups, noise, and how often equal population rates are rejected; groups that noise
    left without records are not.
    """
    source = np.random.default_rng(3)
    for one, other, rate, cases, records in SMALL:
        sizes = np.array([one, other])
        counts = source.binomial(sizes, rate, (runs, 2))
        noisy = counts + np.rint(source.normal(0, cases, (runs, 2)))
        totals = sizes + np.rint(source.normal(0, records, (runs, 2)))
        # Rounding adds a twelfth to the variance.
        variances = [cases**2 + 1 / 12, records**2 + 1 / 12 if records else 0.0]
        asked = (totals > 0).all(axis=1)
        rates = NoisyRates(noisy[asked], totals[asked], np.diag(variances * 2))
        rejected = np.zeros(runs, dtype=bool)
        rejected[asked] = rates.p_value(RateMeasure.RISK_RATIO) <= ALPHA
        groups = f"{one} and {other} at {rate:g}"
        yield groups, f"{cases}", f"{records or 'exact'}", share_of(rejected)


BOUNDED = [(2, 2, 20, 50, 0.5), (2, 2, 50, 30, 0.5), (6, 4, 1, 240, 0.15), (3, 2, 1, 120, 0.5)]


def bounded_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield shape, noise and slope, and the share of rejections: bounded totals, exact ones, the
    noise forgotten.
    """
    for groups, count, strata, each, slope in BOUNDED:
        for effect in (0.0, slope):
            world = BoundedTotals(groups, count, strata, each, 3)
            shares = [share_of(flags) for flags in world.rejections(effect, runs).values()]
            counted = f"{strata} strata of {each}" if strata > 1 else f"{each} records"
            yield f"{groups} × {count}, {counted}", "3", f"{effect:g}", *shares


def run() -> list[dict[str, Any]]:
    """Short versions: size, power and coverage of every kind of question, beside what it
    replaces.
    """
    source = np.random.default_rng(1)
    rows, columns, tables = two_levels(20, 50, 1.6, 300, source)
    world = Tests(rows, columns, Budget.gdp(1), (levels(2), levels(2)))
    flags = world.rejections(tables)
    gain = float(flags["one degree"].mean() / flags["omnibus"].mean())
    same = two_levels(20, 50, 1.0, 1000, source)[2]
    size = float(world.rejections(same)["one degree"].mean())
    kept = compared_rates((30, 300), (0.05, 0.05), None, 400, 1)[RateMeasure.DIFFERENCE]
    better = float(np.mean(kept["score"]) / np.mean(kept["normal"]))
    return [
        *_short_pairs(20),
        *_short_models(200),
        *_short_totals(60),
        row(
            "coverage of a difference, 30 against 300 at 0.05, over normal",
            better,
            "≥ 1.1",
            better >= 1.1,
        ),
        row(
            "power of the pooled test over that of the omnibus test, 20 strata",
            gain,
            "≥ 1.5",
            gain >= 1.5,
        ),
        row("size of the pooled test at 0.05, times 20", 20 * size, "≤ 1.5", size <= 0.075),
    ]


def _most(share: float, runs: int) -> float:
    """A share that runs of the stated probability exceed once in a thousand: 3.1 standard
    deviations above it.
    """
    return share + 3.1 * math.sqrt(share * (1 - share) / runs)


def _short_pairs(runs: int) -> list[dict[str, Any]]:
    false, power = pair_shares("1", runs, np.random.default_rng(3))
    wrong = float(np.mean(false["ours"]))
    found = float(np.mean(power["ours"]))
    # A share of false discoveries lies between 0 and 1, so that its deviation is at most that of a
    # coin.
    most = _most(ALPHA, runs)
    return [
        row(
            "false discoveries of every pair at 0.05, times 20",
            20 * wrong,
            f"≤ {20 * most:.1f}",
            wrong <= most,
        ),
        row("true pairs that are found, of all", found, "> 0", found > 0),
    ]


def _short_models(runs: int) -> list[dict[str, Any]]:
    """Coverage of Titanic's coefficients; statsmodels stands beside it, and is left out where it is
    missing.
    """
    try:
        held = Population("0.3", exact_groups=True, share=1.0).coverage(runs, 1)
    except ModuleNotFoundError:
        return []
    ours = float(np.array(held["ours"])[:, 1:].mean())
    forgotten = float(np.array(held["noise forgotten"])[:, 1:].mean())
    least = 1 - _most(ALPHA, runs)
    return [
        row("coverage of a model's coefficients at 0.95", ours, f"≥ {least:.2f}", ours >= least),
        row(
            "the same over that of a fit that forgets the noise",
            ours / forgotten,
            "> 1",
            ours > forgotten,
        ),
    ]


def _short_totals(runs: int) -> list[dict[str, Any]]:
    rejected = totals_rejections(6.0, 1.0, runs)
    size, most = float(np.mean(rejected["noisy"])), _most(ALPHA, runs)
    rows = [
        row(
            "size of the test with noisy totals at 0.05, times 20",
            20 * size,
            f"≤ {20 * most:.1f}",
            size <= most,
        )
    ]
    try:
        strata = BoundedTotals(2, 2, 20, 50, 3).rejections(0.0, runs // 3)["bounded"]
    except ModuleNotFoundError:
        return rows
    share, most = float(np.mean(strata)), _most(ALPHA, runs // 3)
    name = "size with noisy totals in 20 strata at 0.05, times 20"
    return [*rows, row(name, 20 * share, f"≤ {20 * most:.1f}", share <= most)]


def row(name: str, ratio: float, target: str, ok: bool) -> dict[str, Any]:
    """A line of the report of ``make bench``."""
    return {"name": name, "ratio": ratio, "target": target, "ok": ok}


TABLES: dict[str, Callable[[int], Iterator[tuple[object, ...]]]] = {
    "pooled": pooled_rows,
    "ordered": ordered_rows,
    "ratios": ratio_rows,
    "pairs": pair_rows,
    "models": model_rows,
    "comparison": comparison_rows,
    "totals": totals_rows,
    "bounded": bounded_rows,
    "small": small_rows,
}


def main(runs: int, names: list[str]) -> None:
    """Print tables of docs/inference_checks.md."""
    for name in names or list(TABLES):
        print(f"\n{name}, {runs} runs")
        for row in TABLES[name](runs):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:])
