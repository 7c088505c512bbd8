"""Intervals and tests for the population, group by group: unequal groups, coarse noise, few
records; with twins.

A twin is the formula of before: one spread pooled over all groups, χ² for Laplace noise, half a
step added to all.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from semidp import run
from semidp.present.release import Release
from semidp.present.report.report_page import html
from semidp.promise.mechanisms.additive import LaplaceMechanism, RoundedGaussianMechanism
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.outcomes.group_sums import (
    GroupSums,
    SampledMeans,
    rate_ends,
)
from semidp.publish.statistics.outcomes.noise_law import (
    half_widths,
    noise_deviation,
    simulate_noise,
    upper_tail,
)
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
)
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest

FALSE_ALARM = 1e-6
WARD = Margin("ward")


def public(*counts: int) -> Dataspace:
    schema = Schema((Feature("ward", [f"{k:02}" for k in range(len(counts))]),))
    return Dataspace.from_table(Table(schema, np.array(counts)), [WARD])


def mechanism(budget: Budget, *counts: int, steps: int = 1) -> Mechanism:
    return outcome_mechanism(
        sum_space(public(*counts), Ball(2), Outcome("y", 0, 1, steps), [WARD]), budget
    )


def noisy(found: Mechanism, values: np.ndarray, source: np.random.Generator) -> Measurement:
    drawn = values + simulate_noise(found, values.shape, source).astype(np.int64)
    return Measurement(drawn, found.publish(drawn), found.name, "exact", False)


def enough(hits: float, draws: int, level: float) -> bool:
    """Whether a number of hits is not below its level, at one false alarm in a million."""
    return hits >= stats.binom.ppf(FALSE_ALARM, draws, level)


def pooled_half(found: GroupSums, level: float = 0.95) -> np.ndarray:
    """The twin: the half-widths of means with one spread for all groups, ``Σ y² <= B Σ y`` over
    n.
    """
    estimates = found.means()
    n, means = estimates.counts, np.clip(estimates.values, 0, 1)
    inside = max(float((n * means * (1 - means)).sum() / n.sum()), 0.0)
    noise = found.mechanism.variance * float(found.outcome.width) ** 2
    return stats.norm.ppf((1 + level) / 2) * np.sqrt(inside / n + noise / n**2)


# --- the law of the noise -------------------------------------------------------------------------

COARSE = [Budget.gdp(4), Budget.gdp(1), Budget.zcdp(4), Budget.pure(5), Budget.pure(1)]


@pytest.mark.parametrize("budget", COARSE, ids=str)
@pytest.mark.parametrize("weights", [(1.0,), (1.0, -0.37), (0.3, -1.0, 0.5)], ids=str)
def test_half_widths_of_coarse_noise_are_the_least_that_hold(budget, weights):
    """All combinations of atoms, by brute force: P(|Σ w N| <= h) >= level, and below it at the next
    smaller atom.
    """
    found = mechanism(budget, 30, 20)
    reach = 60 if len(weights) < 3 else 25
    steps = np.arange(-reach, reach + 1)
    each = found.sampler.pmf(steps)
    places, chances = np.zeros(1), np.ones(1)
    for weight in weights:
        places = np.add.outer(places, weight * steps).ravel()
        chances = np.multiply.outer(chances, each).ravel()
    missing = 1 - chances.sum()
    for level in (0.5, 0.9, 0.95):
        (half,) = half_widths(found, [np.array(weights)], level)
        assert chances[np.abs(places) <= half + 1e-9].sum() >= level - missing - 1e-9
        if len(weights) < 3:  # a sum of three may have been merged with its neighbours
            assert chances[np.abs(places) < half - 1e-9].sum() < level


def test_noise_that_is_nearly_always_zero_widens_nothing():
    """Half a step was added to everything: ±0.5/n around a sum that is exact with probability
    0.9999994.
    """
    found = mechanism(Budget.gdp(20), 30, 20)
    assert float(found.sampler.pmf(np.array([0]))[0]) > 0.999999
    measured = GroupSums(found, found.measure(np.array([7, 9]), SeededRandomness(1)))
    for intervals in (measured.mean_intervals(), measured.difference_intervals()):
        np.testing.assert_array_equal(intervals.lower, intervals.upper)


@pytest.mark.parametrize(
    "budget", [Budget.gdp(1), Budget.zcdp(1), Budget.pure(1), Budget.gdp("1/50")], ids=str
)
def test_tails_and_simulated_noise_have_the_law_of_the_sampler(budget):
    found = mechanism(budget, 30, 20)
    steps = np.arange(-8, 9)
    tails = upper_tail(found, steps)
    np.testing.assert_allclose(
        tails - upper_tail(found, steps + 1), found.sampler.pmf(steps), rtol=1e-4, atol=1e-12
    )
    np.testing.assert_allclose(tails + upper_tail(found, 1 - steps), 1.0, atol=1e-9)  # symmetric
    drawn = simulate_noise(found, (20_000,), np.random.default_rng(1))
    assert abs(drawn.mean()) < 5 * math.sqrt(found.variance / 20_000)
    assert drawn.var() == pytest.approx(found.variance, rel=5 * math.sqrt(5 / 20_000))


# --- rates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [Budget.gdp(4), Budget.gdp(1), Budget.pure(1)], ids=str)
def test_inverted_rates_hold_whatever_the_rate_and_the_score_interval_does_not(budget):
    """Coverage is computed, not simulated: n = 3 and 25, rates from 0.002 to 0.998."""
    least, by_score = 1.0, 1.0
    checked = 0
    for n in (3, 25):
        found = mechanism(budget, n, n)
        reach = int(12 * found.scale) + 2
        published = np.arange(-reach, n + reach + 1)
        low, high = rate_ends(
            found, np.full(len(published), float(n)), published.astype(float), 0.95
        )
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()
        score = SampledMeans(
            np.full(len(published), float(n)),
            published / n,
            (0, 1),
            noise_deviation(found, 0.95),
            0.95,
        )
        ends = score.ends()
        steps = np.arange(-reach - n, n + reach + 1)
        law = upper_tail(found, steps) - upper_tail(found, steps + 1)
        for rate in np.concatenate(
            [np.geomspace(0.002, 0.5, 20), 1 - np.geomspace(0.002, 0.5, 20)]
        ):
            chances = np.convolve(law, stats.binom.pmf(np.arange(n + 1), n, rate))[
                n : n + len(published)
            ]
            least = min(least, float(chances @ ((low <= rate) & (rate <= high))))
            by_score = min(by_score, float(chances @ ((ends[0] <= rate) & (rate <= ends[1]))))
            checked += 1
    assert checked == 80
    assert least >= 0.95 - 1e-9
    assert by_score < 0.949


def test_a_ward_has_the_interval_of_its_own_records():
    """The example of the issue: 50 of 100 and 50 of 5,000; the pooled spread covered ward A half of
    the time.
    """
    found, source = mechanism(Budget.gdp(4), 100, 5000), np.random.default_rng(1)
    rates, hits, pooled = np.array([0.5, 0.01]), np.zeros(2), np.zeros(2)
    for _ in range(300):
        measured = GroupSums(found, noisy(found, source.binomial([100, 5000], rates), source))
        both = measured.mean_intervals(sampling=True)
        hits += (both.lower <= rates) & (rates <= both.upper)
        pooled += np.abs(both.values - rates) <= pooled_half(measured)
    assert both.exact
    assert all(enough(hit, 300, 0.95) for hit in hits)
    assert not enough(pooled[0], 300, 0.95)
    assert pooled[0] < 0.65 * 300


def test_rates_and_sums_of_rates_go_together_and_say_that_they_are_exact():
    found = mechanism(Budget.gdp(1), 30, 20_000, 0)
    measured = GroupSums(found, found.measure(np.array([10, 6_000, 0]), SeededRandomness(1)))
    means, totals = measured.mean_intervals(sampling=True), measured.sum_intervals(sampling=True)
    assert not means.exact  # beyond 10,000 records by the score
    np.testing.assert_allclose(totals.lower, [*(means.lower[:2] * [30, 20_000]), 0.0])
    np.testing.assert_allclose(totals.upper, [*(means.upper[:2] * [30, 20_000]), 0.0])
    assert math.isnan(means.lower[2])
    rate, z = measured.means().values[1], 1.96
    spread = rate * (1 - rate) / 20_000 + found.variance / 20_000**2
    assert means.upper[1] == pytest.approx(rate + z * math.sqrt(spread), abs=2e-4)
    together = measured.mean_intervals(sampling=True, simultaneous=True)
    assert (together.upper > means.upper)[:2].all()


def test_differences_of_rates_hold_and_pooling_does_not():
    """Unequal sizes and rates; MOVER has at least 0.928 in 240 settings, tested against 0.92."""
    settings = [((100, 5000), (0.5, 0.01)), ((8, 400), (0.05, 0.3)), ((40, 60), (0.02, 0.02))]
    source, worst, pooled_worst, checked = np.random.default_rng(2), 150.0, 150.0, 0
    for (counts, rates), budget in itertools.product(settings, (Budget.gdp(4), Budget.pure(1))):
        found, gap = mechanism(budget, *counts), rates[0] - rates[1]
        hits = pooled = 0.0
        for _ in range(150):
            measured = GroupSums(found, noisy(found, source.binomial(counts, rates), source))
            both = measured.difference_intervals(sampling=True)
            hits += float(both.lower[0] <= gap <= both.upper[0])
            pooled += float(abs(both.values[0] - gap) <= math.hypot(*pooled_half(measured)))
            checked += 1
        worst, pooled_worst = min(worst, hits), min(pooled_worst, pooled)
    assert checked == 900
    assert enough(worst, 150, 0.92)
    assert not enough(pooled_worst, 150, 0.92)
    assert (both.lower[0], both.upper[0]) >= (-1.0, -1.0)
    assert both.upper[0] <= 1.0


# --- means ----------------------------------------------------------------------------------------


def test_means_have_the_widest_spread_that_the_bounds_allow():
    found, source = mechanism(Budget.gdp(4), 16, 200, steps=100), np.random.default_rng(3)
    values = [source.integers(0, 101, 16), source.integers(45, 56, 200)]
    totals = np.array([part.sum() for part in values])
    bounded = GroupSums(found, noisy(found, totals, source)).mean_intervals(sampling=True)
    half = 1.96 * math.sqrt(0.25 / 200 + (25 / 100) ** 2 * 4 / 200**2)
    half += 0.5 / 100  # of a step
    assert not bounded.exact
    assert (bounded.upper[1] - bounded.lower[1]) / 2 == pytest.approx(half, rel=0.02)


# --- regressions ----------------------------------------------------------------------------------


def test_a_regression_on_one_factor_is_held_cell_by_cell():
    """A large group of rare cases and a small one at a half; one residual spread for both covers
    half of the time.
    """
    counts, rates = (5000, 100), np.array([0.01, 0.5])
    space_public, outcome = public(*counts), Outcome("y", 0, 1, 1)
    design = Design.from_schema(space_public.schema, ["ward"])
    found = regression_mechanism(space_public, Ball(2), outcome, design, Budget.gdp(4))
    beta, source = np.array([0.01, 0.49]), np.random.default_rng(6)
    hits, pooled = np.zeros(2), np.zeros(2)
    for _ in range(300):
        values = route_values(found.space, design, source.binomial(counts, rates))
        fit = LinearFit(Moments(found, noisy(found, values, source), design))
        both = fit.intervals(sampling=True)
        cells = np.clip([fit.coefficients[0], fit.coefficients.sum()], 0, 1)
        residual = math.sqrt(float(np.array(counts) @ (cells * (1 - cells))) / 5100)
        sampled = residual**2 * inverse_diagonal(fit)
        half = 1.96 * np.sqrt(np.diag(fit.covariance()) + sampled)
        hits += (both.lower <= beta) & (beta <= both.upper)
        pooled += np.abs(fit.coefficients - beta) <= half
    assert all(enough(hit, 300, 0.93) for hit in hits)
    assert not enough(pooled[1], 300, 0.93)
    assert pooled[1] < 0.7 * 300


def inverse_diagonal(fit):
    return np.diag(np.linalg.inv(fit.moments.gram))


def test_other_designs_take_the_largest_spread():
    table = Table(
        Schema((Feature("arm", "cd"), Feature("sex", "fm"))), np.array([[50, 30], [20, 40]])
    )
    space_public, outcome = (
        Dataspace.from_table(table, [Margin("arm"), Margin("sex")]),
        Outcome("y", 2, 6, 10),
    )
    margins = Dataspace.from_table(table, [Margin("arm", "sex")])
    design = Design.from_schema(table.schema, ["arm", "sex"])
    found = regression_mechanism(margins, Ball(2), outcome, design, Budget.gdp(1))
    values = route_values(found.space, design, np.array([250, 150, 100, 200]))
    fit = LinearFit(Moments(found, found.measure(values, SeededRandomness(1)), design))
    widest, alone = fit.intervals(sampling=True), fit.intervals()
    errors = [
        np.sqrt(np.diag(fit.covariance()) + part) for part in (0.0, 4 * inverse_diagonal(fit))
    ]
    more = (alone.lower - widest.lower) / 1.96
    np.testing.assert_allclose(more, errors[1] - errors[0], rtol=0.02)
    assert not widest.exact
    assert space_public.n == 140


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.gdp(20)], ids=str)
def test_separated_groups_leave_one_side_open(budget):
    """Nobody of 100 in the control arm, 60 of 100 with the drug: both sides were open."""
    space_public, outcome = public(100, 100), Outcome("y", 0, 1, 1)
    design = Design.from_schema(space_public.schema, ["ward"])
    found = regression_mechanism(space_public, Ball(2), outcome, design, budget)
    values = route_values(found.space, design, np.array([0, 60]))
    fit = LogisticFit(Moments(found, found.measure(values, SeededRandomness(1)), design))
    both = fit.intervals(sampling=True)
    assert both.lower[0] == -math.inf  # the control arm's log-odds have no lower end
    assert -4 < both.upper[0] < -1.5
    assert both.upper[1] == math.inf
    assert 1.5 < both.lower[1] < 4
    assert ((both.lower < fit.coefficients) & (fit.coefficients < both.upper)).all()
    # noise that is 0 says all about the records: half a step made it -17.4 to -4.6
    if budget == Budget.gdp(20):
        alone = fit.intervals()
        np.testing.assert_array_equal(alone.lower, alone.upper)


def test_slopes_of_the_distances_are_those_of_differences():
    source = np.random.default_rng(3)
    schema = Schema((Feature("a", "abc"), Feature("b", "wxyz")))
    counts = source.multinomial(400, np.full(12, 1 / 12)).reshape(3, 4)
    space_public, outcome = (
        Dataspace.from_table(Table(schema, counts), [Margin("a", "b")]),
        Outcome("y", 0, 1, 1),
    )
    design = Design.from_schema(schema, ["a", "b"])
    found = regression_mechanism(space_public, Ball(2), outcome, design, Budget.gdp(1))
    values = route_values(found.space, design, source.binomial(counts.ravel(), 0.3))
    fit = LogisticFit(Moments(found, found.measure(values, SeededRandomness(1)), design))
    for _ in range(10):
        beta = source.normal(0, 1.5, len(fit.names))
        for sampling in (False, True):
            slopes = fit._distances(beta, sampling)[1]
            steps = 1e-5 * np.eye(len(beta))
            numeric = [
                (
                    fit._distances(beta + step, sampling)[0]
                    - fit._distances(beta - step, sampling)[0]
                )
                / 2e-5
                for step in steps
            ]
            np.testing.assert_allclose(
                slopes, np.array(numeric).T, atol=1e-6 * np.abs(slopes).max()
            )


def rare_baseline(columns: int, repeats: int) -> tuple[float, float]:
    """How often coefficients against a rare first level are held: by the intervals, and by the twin
    β ± 1.96 s.
    """
    counts = np.full(columns, 150)
    space_public, outcome = public(*counts), Outcome("y", 0, 1, 1)
    design = Design.from_schema(space_public.schema, ["ward"])
    found = regression_mechanism(space_public, Ball(2), outcome, design, Budget.gdp(1))
    beta, source = np.append(-4.5, np.full(columns - 1, 4.0)), np.random.default_rng(8)
    hits, wald = 0.0, 0.0
    for _ in range(repeats):
        drawn = source.binomial(counts, 1 / (1 + np.exp(-design.rows().astype(float) @ beta)))
        fit = LogisticFit(
            Moments(found, noisy(found, route_values(found.space, design, drawn), source), design)
        )
        both = fit.intervals(sampling=True)
        hits += float(np.mean((both.lower <= beta) & (beta <= both.upper)))
        wald += float(np.mean(np.abs(fit.coefficients - beta) <= 1.96 * fit.standard_errors()))
    return hits / repeats, wald / repeats


@pytest.mark.long
def test_thirteen_columns_with_a_rare_baseline_are_held_and_normal_ends_do_not():
    """Coefficients share the baseline, so a run counts once: 100 runs have a standard error of at
    most 0.022.
    """
    hits, wald = rare_baseline(13, 100)
    assert hits > 0.95 - 2 * 0.022
    assert wald < 0.95 - 4 * 0.022


# --- comparisons ----------------------------------------------------------------------------------


def test_laplace_noise_is_compared_by_its_own_law():
    """At 0.001 χ² rejected 0.0065; 4,000 comparisons, at most binomial at 1e-6, and the twin is
    not.
    """
    found, source = mechanism(Budget.pure(1), 40, 100, 60, steps=100), np.random.default_rng(9)
    assert isinstance(found, LaplaceMechanism)
    totals = np.array([2000, 5000, 3000])
    one = GroupSums(found, noisy(found, totals, source)).compare()
    assert one.reference == "simulation"
    drawn = simulate_noise(found, (4000, 3), source) / 100
    precision = np.array([40, 100, 60]) ** 2 / (found.variance / 100**2)
    means = drawn / [40, 100, 60]
    statistic = (precision * (means - (means @ precision / precision.sum())[:, None]) ** 2).sum(
        axis=1
    )
    most = stats.binom.ppf(1 - FALSE_ALARM, 4000, 0.001)
    assert (stats.chi2.sf(statistic, 2) <= 0.001).sum() > most
    reference = np.sort(statistic)
    for level in (0.05, 0.01):
        # the statistic that has this p-value by simulation is exceeded as often as it says
        ordered = [
            GroupSums(
                found, Measurement(row, row.astype(float), found.name, "exact", False)
            ).compare()
            for row in (
                totals
                + np.rint(100 * drawn[np.argsort(statistic)[-int(level * 4000)]]).astype(np.int64),
            )
        ]
        share = float((reference >= ordered[0].statistic * (1 - 1e-9)).mean())
        assert ordered[0].p_value == pytest.approx(share, abs=5 * math.sqrt(2 * level / 4000))


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.gdp(4), Budget.pure(2)], ids=str)
def test_comparisons_of_records_keep_their_size_with_coarse_noise(budget):
    found, source = mechanism(budget, 8, 40, 400), np.random.default_rng(10)
    totals = np.array([4, 20, 200])
    rejected = 0
    for _ in range(150):
        rejected += GroupSums(found, noisy(found, totals, source)).compare().p_value <= 0.05
    assert rejected <= stats.binom.ppf(1 - FALSE_ALARM, 150, 0.05)


def test_comparisons_of_rates_keep_their_size_in_unequal_groups():
    """Few records and rare cases: by simulation of the counts. The power is there."""
    found, source = mechanism(Budget.gdp(1), 8, 40, 400), np.random.default_rng(11)
    rejected = differ = 0
    for _ in range(60):
        equal = GroupSums(found, noisy(found, source.binomial([8, 40, 400], 0.05), source))
        rejected += equal.compare(sampling=True).p_value <= 0.05
        other = GroupSums(
            found, noisy(found, source.binomial([8, 40, 400], [0.5, 0.8, 0.05]), source)
        )
        differ += other.compare(sampling=True).p_value <= 0.05
    assert rejected <= stats.binom.ppf(1 - FALSE_ALARM, 60, 0.05)
    assert differ > 54


# --- what a release says --------------------------------------------------------------------------


def test_a_release_says_about_where_no_law_was_inverted(tmp_path):
    from semidp.publish.statistics.outcomes.noise_law import Confidence

    source = np.random.default_rng(12)
    ward = np.repeat(["a", "b"], [100, 5000])
    data = {
        "ward": ward,
        "died": (source.random(5100) < np.where(ward == "a", 0.5, 0.01)).astype(int),
        "days": source.integers(0, 11, 5100),
    }
    asked = Confidence(sampling=True, differences=True)
    plan = Plan(
        [
            GroupRequest(
                "proportion", Outcome("died", 0, 1, 1), [["ward"]], Budget.gdp(4), confidence=asked
            ),
            GroupRequest(
                "mean", Outcome("days", 0, 10, 10), [["ward"]], Budget.gdp(4), confidence=asked
            ),
            RegressionRequest(
                Outcome("days", 0, 10, 10),
                ["ward"],
                Budget.gdp(4),
                confidence=Confidence(sampling=True),
            ),
        ],
        invariants=[WARD],
    )
    release = run(plan, data, SeededRandomness(1))
    rates, means = release.groups
    (_, sampled), (_, of_means) = rates.facts["intervals"], means.facts["intervals"]
    assert sampled["exact"]
    assert not of_means["exact"]
    (sheet,) = rates.estimates
    # The binomial alone has ±0.098; it was 0.479 to 0.541.
    assert sheet["population_lower"][0] < 0.43
    assert sheet["population_upper"][0] > 0.57
    text = html(release)
    assert "with 95% probability each: the law of a noisy count of ones was inverted." in text
    assert "drawn from, with about 95% probability each." in text
    assert "intervals for the population are too wide rather than too narrow" in text
    release.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    for before, after in zip(release.groups, again.groups, strict=True):
        assert after.facts == before.facts


def test_the_noise_of_a_mechanism_counts_for_no_less_than_its_own():
    for budget in (Budget.gdp(1), Budget.gdp(4), Budget.pure(1), Budget.pure("1/100")):
        found = mechanism(budget, 30, 20)
        for level in (0.8, 0.95, 0.999):
            (half,) = half_widths(found, [np.ones(1)], level)
            counted = noise_deviation(found, level)
            assert counted >= math.sqrt(found.variance)
            assert counted * stats.norm.ppf((1 + level) / 2) >= half * (1 - 1e-9)
    assert isinstance(mechanism(Budget.gdp(1), 30, 20), RoundedGaussianMechanism)
