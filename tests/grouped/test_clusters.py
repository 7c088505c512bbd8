"""Several records of one person in means, rates, comparisons, regressions and quantiles by groups:
what is about a population counts persons, what is about these records counts records.
"""

import numpy as np
import pytest

from semidp import Budget, Feature, Schema
from semidp.promise.mechanisms.exponential import rank_space
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import Protection
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.outcomes.group_sums import (
    GroupSums,
    rate_ends,
)
from semidp.publish.statistics.outcomes.noise_law import simulate_noise
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
)

CLEAR = Budget.gdp(10**6)
MOST = 4


def public(counts: list[int]) -> Dataspace:
    table = Table(Schema([Feature("g", "ab")]), counts)
    return Dataspace.from_table(table, [Margin("g")])


def mechanism_of(counts: list[int], steps: int, most: int, budget: Budget = CLEAR) -> Mechanism:
    adjacency = Ball(2 * most, Protection("patient", most))
    space = sum_space(public(counts), adjacency, Outcome("y", 0, 1, steps), [Margin("g")])
    return outcome_mechanism(space, budget)


def group_sums(counts: list[int], totals: list[int], steps: int, most: int) -> GroupSums:
    mechanism = mechanism_of(counts, steps, most)
    return GroupSums(mechanism, mechanism.measure(np.array(totals), SeededRandomness(1)))


@pytest.mark.parametrize("steps", [1, 10])
def test_alike_records_of_a_person_count_once(steps: int) -> None:
    """With `MOST` alike records each, all answers are those of the persons, counted once."""
    persons, ones = [20, 50], [6 * steps, 10 * steps]
    several = group_sums([MOST * n for n in persons], [MOST * x for x in ones], steps, MOST)
    single = group_sums(persons, ones, steps, 1)
    for one, other in (
        (several.mean_intervals(sampling=True), single.mean_intervals(sampling=True)),
        (several.difference_intervals(sampling=True), single.difference_intervals(sampling=True)),
    ):
        assert one.lower == pytest.approx(other.lower, abs=1e-6)
        assert one.upper == pytest.approx(other.upper, abs=1e-6)
    p_values = [found.compare(sampling=True).p_value for found in (several, single)]
    assert p_values[0] == pytest.approx(p_values[1], abs=1e-6)
    # These records are another question: there is hardly any noise, and half a step of rounding.
    alone = several.mean_intervals()
    assert alone.upper - alone.lower == pytest.approx(0.0 if steps == 1 else 0.1, abs=1e-3)
    assert single.mean_intervals(sampling=True).exact == (steps == 1)
    assert not several.mean_intervals(sampling=True).exact


def test_rates_hold_with_alike_records_and_coarse_noise() -> None:
    """Coverage by the law of the noisy count, at every rate; taken for independent it fails."""
    from scipy.stats import binom

    mechanism = mechanism_of([40, 40], 1, MOST, Budget.gdp(4))
    reach = int(12 * mechanism.scale) + 2
    noisy = np.arange(-reach, 41 + reach).astype(float)
    pmf = simulated_law(mechanism, reach)
    for cluster, least_held in ((MOST, 0.95 - 1e-6), (1, 0.0)):
        low, high = rate_ends(mechanism, np.full(len(noisy), 40.0), noisy, 0.95, cluster)
        least = 1.0
        for rate in np.linspace(0.02, 0.98, 49):
            counts = np.zeros(41)
            counts[::MOST] = binom.pmf(np.arange(11), 10, rate)
            chances = np.convolve(counts, pmf)
            least = min(least, float(chances @ ((low <= rate) & (rate <= high))))
        assert least >= least_held
    assert least < 0.8


def simulated_law(mechanism: Mechanism, reach: int) -> np.ndarray:
    from semidp.publish.statistics.outcomes.noise_law import upper_tail

    steps = np.arange(-reach, reach + 1)
    return upper_tail(mechanism, steps) - upper_tail(mechanism, steps + 1)


@pytest.mark.parametrize("kind", [LinearFit, LogisticFit])
def test_coefficients_have_the_errors_of_persons(kind: type) -> None:
    """The same fit from alike records: the covariance of the sample is m times that of records."""
    cells, ones = np.array([[20, 30], [25, 40]]), np.array([[5, 15], [12, 24]])
    answers = []
    for most in (1, MOST):
        table = Table(Schema([Feature("a", "pq"), Feature("b", "rs")]), most * cells)
        dataspace = Dataspace.from_table(table, [Margin("a", "b")])
        design = Design.from_schema(table.schema, ["a", "b"])
        adjacency = Ball(2 * most, Protection("patient", most))
        law = regression_mechanism(dataspace, adjacency, Outcome("y", 0, 1, 1), design, CLEAR)
        values = route_values(law.space, design, most * ones)
        fit = kind(Moments(law, law.measure(values, SeededRandomness(1)), design))
        found = fit.intervals(sampling=True)
        answers.append((found.lower, found.upper))
    # Jeffreys' prior counts half a record, so that logistic fits differ a little.
    tolerance = 1e-6 if kind is LinearFit else 0.06
    for one, other in zip(*answers, strict=True):
        assert one == pytest.approx(other, abs=tolerance)


def test_order_statistics_count_persons() -> None:
    several, single = (
        rank_space(
            public([MOST * 30 if most > 1 else 30, 8]),
            Ball(2 * most, Protection("patient", most)),
            Outcome("y", 0, 1, 100),
            [Margin("g")],
            level="0.9",
            sampling=True,
        ).ranks(10**6)
        for most in (MOST, 1)
    )
    _, low, high = single[0]
    assert several[0, 1:].tolist() == [MOST * low, MOST * (high - 1) + 1]
    # Eight records of two persons say nothing.
    assert several[1, 1:].tolist() == [0, 9]


def test_the_noise_of_this_study_is_that_of_the_mechanism() -> None:
    mechanism = mechanism_of([40, 40], 1, MOST, Budget.gdp(4))
    drawn = simulate_noise(mechanism, (4000,), np.random.default_rng(1))
    law = simulated_law(mechanism, int(12 * mechanism.scale) + 2)
    assert law.sum() == pytest.approx(1, abs=1e-9)
    assert abs(drawn.var() / mechanism.variance - 1) < 0.2
