"""Intervals hold as often as they say: by the exact noise, in simulation, with twins that forget
the noise.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.grouped.measuring import sums

from semidp.errors import InputError
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
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.outcomes.noise_law import About, Confidence, each_level, half_widths
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
)

BUDGETS = (Budget.gdp(1), Budget.zcdp(1), Budget.pure(1), Budget.gdp(4))
COUNTS = np.array([40, 60, 25, 0])
DRAWS = 20_000


def mechanism(budget: Budget, steps: int = 1, blocks: int = 1) -> Mechanism:
    schema = Schema((Feature("ward", "abcd"), Feature("sex", "fm")))
    table = Table(schema, np.stack([COUNTS // 2, COUNTS - COUNTS // 2], axis=1))
    margins = [Margin("ward"), Margin("sex")]
    public = Dataspace.from_table(table, margins)
    return outcome_mechanism(
        sum_space(public, Ball(2), Outcome("y", 0, 1, steps), margins[:blocks]), budget
    )


def within(share: float, level: float, draws: int = DRAWS) -> bool:
    """Whether a share of hits is not below its level, at one false alarm in a million."""
    return share >= level - 4.8 * math.sqrt(level * (1 - level) / draws)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.3, -1.0, 0.5]], ids=str)
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_half_widths_hold_the_noise(budget: Budget, weights: list[float], level: float) -> None:
    found = mechanism(budget)
    noise = found.sampler.sample((DRAWS, len(weights)), SeededRandomness(3)) @ np.array(weights)  # type: ignore[attr-defined]
    (half,) = half_widths(found, [np.array(weights)], level)
    assert within(float((np.abs(noise) <= half).mean()), level)
    step = max(map(abs, weights))
    assert not within(float((np.abs(noise) <= (half - step / 2) / 1.5 - step).mean()), level)


def test_sums_of_laplace_noise_are_inverted() -> None:
    """Two Laplace numbers of one scale: P(|L1 - L2| > h) = (1 + h/2b) e^{-h/b}."""
    found = mechanism(Budget.pure("0.001"))
    (half,) = half_widths(found, [np.array([1.0, -1.0])], 0.95)
    size = (half - 0.5) / found.scale
    assert (1 + size / 2) * math.exp(-size) == pytest.approx(0.05, rel=1e-4)
    (alone,) = half_widths(found, [np.ones(1)], 0.95)
    assert math.exp(-(alone - 0.5) / found.scale) == pytest.approx(0.05, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("budget", BUDGETS[:3], ids=str)
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("simultaneous", [False, True])
def test_means_and_differences_of_the_records_are_held(
    budget: Budget, blocks: int, simultaneous: bool
) -> None:
    """300 releases of the same data: how often each interval, or all of them, hold the records' own
    means.
    """
    found = mechanism(budget, 10, blocks)
    rates = np.array([0.2, 0.5, 0.7, 0.0])
    totals = np.rint(10 * COUNTS * rates).astype(np.int64)
    values = np.concatenate(
        [totals, [totals.sum() // 2, totals.sum() - totals.sum() // 2]][:blocks]
    )
    truth = totals[:3] / 10 / COUNTS[:3]
    pairs = np.array([truth[0] - truth[1], truth[0] - truth[2], truth[1] - truth[2]])
    noisy = found.measure_many(values, 300, SeededRandomness(5))
    hits = {"means": 0.0, "differences": 0.0, "narrow": 0.0}
    for draw in noisy:
        measured = GroupSums(
            found, Measurement(draw, found.publish(draw), found.name, "exact", False)
        )
        means = measured.mean_intervals(Margin("ward"), level="0.9", simultaneous=simultaneous)
        gaps = measured.difference_intervals(Margin("ward"), level="0.9", simultaneous=simultaneous)
        inside = (means.lower[:3] <= truth) & (truth <= means.upper[:3])
        apart = (gaps.lower <= pairs) & (pairs <= gaps.upper)
        gather = np.all if simultaneous else np.mean
        hits["means"] += float(gather(inside))
        hits["differences"] += float(gather(apart))
        # half of what the noise alone reaches
        half = (means.upper[:3] - means.lower[:3] - 2 * float(measured.outcome.rounding)) / 4
        hits["narrow"] += float(gather(np.abs(means.values[:3] - truth) <= half))
    assert math.isnan(means.lower[3])
    assert within(hits["means"] / 300, 0.9, 300)
    assert within(hits["differences"] / 300, 0.9, 300)
    assert not within(hits["narrow"] / 300, 0.9, 300)


def test_the_population_is_held_and_forgetting_the_noise_or_the_sample_is_seen() -> None:
    """Means of fresh records each time: intervals with sampling hold the population's, the others
    do not.
    """
    found = mechanism(Budget.gdp(1), 10)
    source = np.random.default_rng(6)
    hits = np.zeros(3)
    for seed in range(300):
        people = [10 * source.binomial(1, 0.4, count) for count in COUNTS]
        totals = np.array([part.sum() for part in people])
        measured = GroupSums(found, found.measure(totals, SeededRandomness(seed)))
        spread = math.sqrt(0.4 * 0.6)
        both = measured.mean_intervals(level="0.9", sampling=True)
        alone = measured.mean_intervals(level="0.9")
        assert (both.about, alone.about) == (About.sampling, About.noise)
        classical = 1.645 * spread / np.sqrt(COUNTS[:3])
        for place, half in enumerate(
            ((both.upper - both.lower) / 2, (alone.upper - alone.lower) / 2)
        ):
            hits[place] += float(np.mean(np.abs(both.values[:3] - 0.4) <= half[:3]))
        hits[2] += float(np.mean(np.abs(both.values[:3] - 0.4) <= classical))
    assert within(hits[0] / 300, 0.9, 900)
    assert not within(hits[1] / 300, 0.9, 900)
    assert not within(hits[2] / 300, 0.9, 900)


def test_linear_coefficients_are_held_for_the_records_and_the_population() -> None:
    schema = Schema((Feature("arm", "cd"), Feature("sex", "fm")))
    table = Table(schema, np.array([[30, 20], [25, 45]]))
    public, outcome = Dataspace.from_table(table, [Margin("arm", "sex")]), Outcome("y", 0, 1, 20)
    design = Design.from_schema(schema, ["arm", "sex"])
    rows, counts = design.rows().astype(float), table.counts.ravel()
    inverse = np.linalg.inv(rows.T @ (rows * counts[:, None]))
    beta = np.array([0.4, 0.2, -0.1])
    source = np.random.default_rng(7)
    for budget in (Budget.gdp("1/2"), Budget.pure(1)):
        found = regression_mechanism(public, Ball(2), outcome, design, budget)
        hits = np.zeros(3)
        for seed in range(200):
            totals = np.array(
                [source.binomial(20, p, n).sum() for p, n in zip(rows @ beta, counts, strict=True)]
            )
            own = inverse @ rows.T @ (totals / 20)
            values = route_values(found.space, design, totals)  # type: ignore[arg-type]
            fit = LinearFit(Moments(found, found.measure(values, SeededRandomness(seed)), design))
            alone, both = fit.intervals("0.9"), fit.intervals("0.9", sampling=True)
            hits[0] += float(np.mean((alone.lower <= own) & (own <= alone.upper)))
            hits[1] += float(np.mean((both.lower <= beta) & (beta <= both.upper)))
            hits[2] += float(
                np.mean(np.abs(own - fit.coefficients) <= (alone.upper - alone.lower) / 4)
            )
        assert within(hits[0] / 200, 0.9, 200)
        assert within(hits[1] / 200, 0.9, 200)
        assert not within(hits[2] / 200, 0.9, 200)


def test_logistic_intervals_hold_and_may_be_open() -> None:
    schema = Schema((Feature("arm", "cd"),))
    public = Dataspace.from_table(Table(schema, np.array([100, 100])), [Margin("arm")])
    design, outcome = Design.from_schema(schema, ["arm"]), Outcome("y", 0, 1, 1)
    source, beta = np.random.default_rng(3), np.array([-0.6, 1.0])
    found = regression_mechanism(public, Ball(2), outcome, design, Budget.gdp(1))
    hits = 0.0
    for seed in range(25):
        ones = source.binomial(100, 1 / (1 + np.exp(-design.rows().astype(float) @ beta)))
        values = route_values(found.space, design, ones)  # type: ignore[arg-type]
        fit = LogisticFit(Moments(found, found.measure(values, SeededRandomness(seed)), design))
        both = fit.intervals("0.9", sampling=True)
        hits += float(np.mean((both.lower <= beta) & (beta <= both.upper)))
        assert (both.lower < fit.coefficients).all()
        assert (fit.coefficients < both.upper).all()
    assert within(hits / 25, 0.9, 25)
    noisy = regression_mechanism(public, Ball(2), outcome, design, Budget.gdp("1/50"))
    values = route_values(noisy.space, design, np.array([35, 60]))  # type: ignore[arg-type]
    fit = LogisticFit(Moments(noisy, noisy.measure(values, SeededRandomness(1)), design))
    ends = fit.intervals()
    assert np.isinf(np.concatenate([ends.lower, ends.upper])).any()
    assert np.isinf([*ends.lower, *ends.upper]).any()


@pytest.mark.long
@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.pure(1)], ids=str)
def test_logistic_intervals_of_more_than_twelve_columns_hold(budget: Budget) -> None:
    """Thirteen columns, normal and Laplace noise: at least the level but for chance, and halves of
    them do not.
    """
    source = np.random.default_rng(13)
    schema = Schema(tuple(Feature(name, [str(level) for level in range(7)]) for name in ("a", "b")))
    counts = source.multinomial(2000, np.full(49, 1 / 49)).reshape(7, 7)
    public = Dataspace.from_table(Table(schema, counts), [Margin("a", "b")])
    design, outcome = Design.from_schema(schema, ["a", "b"]), Outcome("y", 0, 1, 1)
    assert len(design.columns) == 13
    beta = np.append(-0.5, source.normal(0, 0.5, 12))
    rates = 1 / (1 + np.exp(-design.rows().astype(float) @ beta))
    clear, noisy = (
        regression_mechanism(public, Ball(2), outcome, design, b)
        for b in (Budget.gdp(10**7), budget)
    )
    held = np.zeros((2, 2))
    for seed in range(40):
        ones = source.binomial(counts.ravel(), rates)
        fits = []
        for one in (clear, noisy):
            values = route_values(one.space, design, ones)  # type: ignore[arg-type]
            fits.append(
                LogisticFit(Moments(one, one.measure(values, SeededRandomness(seed)), design))
            )
        for row, (truth, sampling) in enumerate(((fits[0].coefficients, False), (beta, True))):
            found = fits[1].intervals(sampling=sampling)
            half = np.where(
                truth > found.values, found.upper - found.values, found.values - found.lower
            )
            away = np.abs(found.values - truth) / half
            held[row] += [np.mean(away <= 1), np.mean(away <= 0.5)]
    assert (held[:, 0] / 40 > 0.93).all()
    assert (held[:, 1] / 40 < 0.85).all()


def test_levels_and_choices_are_checked() -> None:
    assert Confidence() == Confidence("0.95")
    assert each_level(Fraction(9, 10), 2, mechanism(Budget.gdp(1)), True) == pytest.approx(
        math.sqrt(0.9)
    )
    assert each_level(Fraction(9, 10), 2, mechanism(Budget.pure(1)), True) == pytest.approx(0.95)
    for bad in (0, 1, 95, "much"):
        with pytest.raises(InputError):
            Confidence(bad)
    with pytest.raises(InputError, match="true or false"):
        Confidence(sampling="yes")  # type: ignore[arg-type]
    records = {"ward": np.repeat(["a", "b", "c"], 10), "y": np.ones(30)}
    found = sums(
        records, Outcome("y", 0, 1, 1), ["ward"], Budget.gdp(1), randomness=SeededRandomness(1)
    )
    assert found.difference_intervals(against=["b"]).names == (("a", "b"), ("c", "b"))
    with pytest.raises(InputError, match="no group d with records"):
        found.difference_intervals(against=["d"])
