"""Two rates compared: the score against Pearson's statistic and enumeration, coverage, and what
releases answer.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency

from semidp import Budget, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.answers import Covers
from semidp.inference.linear_estimates import simulated_bound
from semidp.inference.ratios import NoisyRates, RateMeasure, fixed_risk_ratio, sampled_comparison
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

NONE = np.zeros((4, 4))
BOUND = 3.841458820694124


@pytest.mark.parametrize(
    ("cases", "records"), [((10, 6), (40, 60)), ((1, 19), (30, 300)), ((12, 3), (15, 9))]
)
def test_without_noise_the_score_of_equal_rates_is_pearsons(
    cases: tuple[int, int], records: tuple[int, int]
) -> None:
    table = np.array([cases, np.subtract(records, cases)])
    pearson = chi2_contingency(table, correction=False).statistic
    rates = NoisyRates(np.array(cases, float), np.array(records, float), NONE)
    for measure in RateMeasure:
        assert float(rates.score(measure, np.array(measure.null))) == pytest.approx(
            pearson, rel=1e-6
        )


def test_without_noise_the_intervals_are_those_of_miettinen_and_nurminen() -> None:
    """The restricted rates maximise the binomial likelihood; here by a fine search instead of the
    score equation.
    """
    cases, records = np.array([5.0, 2.0]), np.array([56.0, 84.0])
    rates = NoisyRates(cases, records, NONE)
    checked = 0
    for measure, values in (
        (RateMeasure.DIFFERENCE, (-0.03, 0.1)),
        (RateMeasure.RISK_RATIO, (0.7, 12.0)),
    ):
        for value in values:
            low, high = (float(end) for end in measure.second_rates(np.array(value)))
            second = np.linspace(low + 1e-6, high - 1e-6, 400_001)
            first = measure.first_rate(value, second)[0]
            likelihood = binom.logpmf(5, 56, first) + binom.logpmf(2, 84, second)
            best = np.argmax(likelihood)
            p = np.array([first[best], second[best]])
            pearson = (((cases - records * p) ** 2) / (records * p * (1 - p))).sum()
            assert float(rates.score(measure, np.array(value))) == pytest.approx(pearson, rel=1e-3)
            checked += 1
    assert checked == 4


NOISE = {-2: 0.1, -1: 0.2, 0: 0.4, 1: 0.2, 2: 0.1}


def enumerated(
    records: tuple[int, int], p: tuple[float, float], measure: RateMeasure, known: bool
) -> float:
    """The exact coverage of the true value: every pair of counts and every noise, with the noise
    known or forgotten.
    """
    cases, weights = [], []
    for x, y in itertools.product(range(records[0] + 1), range(records[1] + 1)):
        share = binom.pmf(x, records[0], p[0]) * binom.pmf(y, records[1], p[1])
        for (a, one), (b, other) in itertools.product(NOISE.items(), NOISE.items()):
            cases.append((x + a, y + b))
            weights.append(share * one * other)
    assert sum(weights) == pytest.approx(1)
    variance = sum(step**2 * share for step, share in NOISE.items())
    covariance = np.diag([variance, 0.0, variance, 0.0]) * known
    seen = np.array(cases, dtype=float)
    rates = NoisyRates(seen, np.broadcast_to(np.array(records, float), seen.shape), covariance)
    value = np.full(len(seen), float(measure.compare(*p)))
    return float(np.array(weights) @ (rates.score(measure, value) <= BOUND))


@pytest.mark.few(1)
@pytest.mark.parametrize("measure", RateMeasure)
@pytest.mark.parametrize(
    ("records", "p"),
    [
        ((12, 40), (0.1, 0.1)),
        ((20, 40), (0.05, 0.05)),
        ((20, 20), (0.1, 0.3)),
        ((15, 30), (0.5, 0.1)),
    ],
)
def test_coverage_by_enumeration_and_the_twin_that_forgets_the_noise(
    measure: RateMeasure, records: tuple[int, int], p: tuple[float, float]
) -> None:
    assert enumerated(records, p, measure, True) > 0.925
    if min(records) * max(p) < 4:
        assert enumerated(records, p, measure, False) < 0.9


def test_a_small_group_against_a_large_one_is_covered_where_the_normal_interval_was_not() -> None:
    """30 against 300 at 0.05: the interval of 1.96 standard errors holds 0.79 without noise."""
    source, runs = np.random.default_rng(1), 2000
    records = np.broadcast_to(np.array([30.0, 300.0]), (runs, 2))
    cases = source.binomial([30, 300], 0.05, (runs, 2)).astype(float)
    rates = NoisyRates(cases, records, NONE)
    held = rates.score(RateMeasure.DIFFERENCE, np.zeros(runs)) <= BOUND
    raw = cases / records
    normal = np.abs(raw[:, 0] - raw[:, 1]) <= 1.96 * np.sqrt(
        (raw * (1 - raw) / records).sum(axis=1)
    )
    assert held.mean() > 0.94
    assert normal.mean() < 0.83


def test_the_values_that_are_kept_are_an_interval() -> None:
    source, checked = np.random.default_rng(2), 0
    for _ in range(12):
        records = source.integers(5, 200, 2).astype(float)
        cases = records * source.random(2) + source.normal(0, 3, 2)
        root = source.normal(0, 2, (4, 4)) * [[1], [0], [1], [0]]
        rates = NoisyRates(cases, records, root @ root.T)
        for measure in RateMeasure:
            low, high = rates.interval(measure, 0.95)
            places = np.linspace(0.002, 0.998, 120)
            values = 2 * places - 1 if measure is RateMeasure.DIFFERENCE else places / (1 - places)
            kept = rates.score(measure, values) <= BOUND
            within = (values >= low) & (values <= high)
            assert (kept == within).mean() > 0.98
            checked += 1
    assert checked == 36


def test_a_ratio_of_these_records_holds_as_often_as_it_says() -> None:
    source, held, twin = np.random.default_rng(3), [], []
    drawn = source.normal(0, 3, (2, 999))
    for _ in range(200):
        errors = source.normal(0, 3, 2)
        seen = (20 + errors[0]) / 100, (30 + errors[1]) / 100
        held.append(2 / 3 in fixed_risk_ratio(seen, (drawn[0] / 100, drawn[1] / 100), 0.0, 0.9))
        twin.append(2 / 3 in fixed_risk_ratio(seen, (drawn[0] / 200, drawn[1] / 200), 0.0, 0.9))
    assert abs(np.mean(held) - 0.9) < 5 * math.sqrt(0.9 * 0.1 / 200) + 0.03  # the draws are shared
    assert np.mean(twin) < 0.75


def people(n: int = 600, seed: int = 1) -> dict[str, list[str]]:
    source = np.random.default_rng(seed)
    sex = source.integers(0, 2, n)
    ill = source.random(n) < np.where(sex == 1, 0.4, 0.2)
    town = source.integers(0, 3, n)
    return {
        "sex": [("f", "m")[value] for value in sex],
        "ill": [("n", "y")[int(value)] for value in ill],
        "town": [f"t{value}" for value in town],
    }


GROUPS = {"among": {"sex": "m"}, "minus": {"sex": "f"}}


def test_what_is_kept_far_from_the_estimate_is_in_the_interval_too() -> None:
    """With much noise the kept values may be two pieces: the search saw the nearest alone."""
    source, pieces = np.random.default_rng(5), 0
    places = np.linspace(0.004, 0.996, 125)
    for _ in range(60):
        cases = source.binomial(20, [0.1, 0.3]) + source.normal(0, 30, 2)
        rates = NoisyRates(cases, np.array([20.0, 20.0]), np.diag([900.0, 0.0, 900.0, 0.0]))
        for measure in (RateMeasure.RISK_RATIO, RateMeasure.ODDS_RATIO):
            values = places / (1 - places)
            kept = np.flatnonzero(rates.score(measure, values) <= BOUND)
            low, high = rates.interval(measure, 0.95)
            assert (values[kept] >= low - 1e-6).all()
            assert (values[kept] <= high + 1e-6).all()
            # The twin: kept values do not always follow each other.
            pieces += bool(len(kept)) and kept[-1] - kept[0] + 1 > len(kept)
    assert pieces > 0


def test_every_ratio_that_is_kept_is_in_the_interval_whatever_the_noise() -> None:
    """Rates below 0 happen where noise is large: the search used to start beside what is kept."""
    source = np.random.default_rng(8)
    first, second = source.normal(0, 1, (2, 399))
    ratios = np.concatenate([np.linspace(0, 3, 25), np.geomspace(3, 1e6, 25)])
    bounds = [simulated_bound(np.abs(first - ratio * second), 0.95) for ratio in ratios.tolist()]
    checked = elsewhere = 0
    for top, bottom in itertools.product(np.linspace(-4, 4, 9).tolist(), repeat=2):
        answer = fixed_risk_ratio((top, bottom), (first, second), 1.0, 0.95)
        kept = ratios[np.abs(top - ratios * bottom) <= np.array(bounds)]
        assert all(ratio in answer for ratio in kept.tolist())
        checked += len(kept)
        # The twin starts where negative rates are 0.
        start = max(top, 0.0) / max(bottom, 1e-9)
        elsewhere += bool(len(kept)) and not kept.min() <= start <= kept.max()
        assert math.isinf(answer.standard_error) == (not bottom or top / bottom < 0)
    assert checked > 500
    assert elsewhere > 3


def test_a_release_compares_rates_by_every_measure() -> None:
    data = people()
    plan = Plan([TableRequest(["sex", "ill"], Budget.gdp(1))], ["sex", "ill"])
    release = run(plan, data, SeededRandomness(1))
    for measure, most in (
        (RateMeasure.DIFFERENCE, 0.5),
        (RateMeasure.RISK_RATIO, 5.0),
        (RateMeasure.ODDS_RATIO, 8.0),
    ):
        both = release.interval({"ill": "y"}, **GROUPS, measure=measure, sampling=True)
        alone = release.interval(
            {"ill": "y"}, **GROUPS, measure=measure, randomness=SeededRandomness(2)
        )
        assert measure.null < both.low < both.value < both.high < most
        assert both.p_value < 0.001
        assert both.covers is Covers.both
        assert alone.covers is Covers.noise
        assert alone.exact
        assert both.low < alone.low <= alone.high < both.high
    pairs = list(zip(data["sex"], data["ill"], strict=True))
    x = {(s, i): pairs.count((s, i)) for s in "fm" for i in "ny"}
    truth = x["m", "y"] * x["f", "n"] / (x["m", "n"] * x["f", "y"])
    wide = release.interval({"ill": "y"}, **GROUPS, measure="odds-ratio", level=0.999)
    assert wide.low <= truth <= wide.high


def test_noisy_denominators_and_groups_without_cases() -> None:
    plan = Plan(
        [TableRequest(["sex", "ill", "town"], Budget.gdp(1))], ["town"], levels_from_data=True
    )
    release = run(plan, people(), SeededRandomness(1))
    for measure in (RateMeasure.RISK_RATIO, RateMeasure.ODDS_RATIO):
        alone = release.interval({"ill": "y"}, **GROUPS, measure=measure)
        assert alone.low < alone.value < alone.high
        assert alone.exact
    nested = {"among": {"sex": "m", "town": "t0"}, "minus": {"sex": "m"}}
    with pytest.raises(Refused, match="without a common record"):
        release.interval({"ill": "y"}, **nested, measure="risk-ratio", sampling=True)
    empty = sampled_comparison(
        NoisyRates(np.array([0.0, 0.0]), np.array([20.0, 30.0]), NONE), RateMeasure.RISK_RATIO, 0.95
    )
    assert (empty.low, empty.high) == (0.0, math.inf)
    assert empty.to_json()["high"] is None
    none = sampled_comparison(
        NoisyRates(np.array([1.0, 2.0]), np.array([-3.0, 9.0]), NONE), RateMeasure.DIFFERENCE, 0.95
    )
    assert (none.low, none.high) == (-1.0, 1.0)


def test_what_no_measure_compares_is_refused() -> None:
    plan = Plan([TableRequest(["sex", "ill"], Budget.gdp(1))], ["sex", "ill"])
    release = run(plan, people(60))
    with pytest.raises(InputError, match="rates are compared by"):
        release.interval({"ill": "y"}, **GROUPS, measure="hazard")
    with pytest.raises(InputError, match="two groups"):
        release.interval({"ill": "y"}, among={"sex": "m"}, measure="risk-ratio")
