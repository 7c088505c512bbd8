"""Sums, means, proportions and their comparison: values, errors, guarantees, and what bad data
do.
"""

import math

import numpy as np
import pytest
from scipy import stats
from tests.grouped.measuring import logistic_regression, means, proportions, sums

from semidp import run
from semidp.errors import DataError, InputError, SchemaError
from semidp.present.report.report_page import html
from semidp.present.report.sentences import summary
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
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.sums import GroupRequest

FALSE_ALARM = 1e-6
SCORE = Outcome("score", 0, 10, steps=100)
BUDGETS = [Budget.gdp("0.7"), Budget.zcdp("0.3"), Budget.pure(1), Budget.approximate(1, "1e-6")]
CLEAR = Budget.gdp(10**6)  # next to no noise


def pupils(seed: int = 1, sizes: tuple[int, ...] = (30, 50, 20)) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    school = np.repeat([f"s{k}" for k in range(len(sizes))], sizes)
    sex = source.choice(["f", "m"], size=len(school))
    return {"school": school, "sex": sex, "score": source.uniform(0, 10, len(school)).round(1)}


def test_without_noise_the_true_means_come_back():
    data = pupils()
    found = means(data, SCORE, ["school"], CLEAR)
    true = [data["score"][data["school"] == school].mean() for (school,) in found.groups]
    np.testing.assert_allclose(found.values, true, atol=1e-3)
    assert found.counts.tolist() == [30, 50, 20]


def test_values_are_clipped_and_rounded_record_by_record():
    data = {"ward": np.array(["a", "a", "b", "b"]), "y": np.array([-50.0, 0.26, 1e300, np.inf])}
    found = sums(data, Outcome("y", 0, 1, steps=2), ["ward"], CLEAR)
    np.testing.assert_allclose(found.sums().values, [0.5, 2.0], atol=1e-3)


def test_a_lower_bound_other_than_zero_is_put_back_exactly():
    data = {"ward": np.array(["a"] * 3 + ["b"] * 2), "y": np.array([-5.0, -4.0, -3.0, 5.0, 5.0])}
    found = sums(data, Outcome("y", -5, 5, steps=10), ["ward"], CLEAR)
    np.testing.assert_allclose(found.sums().values, [-12.0, 10.0], atol=1e-3)
    np.testing.assert_allclose(found.means().values, [-4.0, 5.0], atol=1e-3)


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
def test_the_guarantee_is_the_budget_under_the_counts(budget):
    found = sums(pupils(), SCORE, ["school"], budget, randomness=SeededRandomness(3))
    assert found.guarantee.adjacency == Ball(2)
    assert found.guarantee.dataspace.margins == (Margin("school"),)
    if budget.kind == "approximate":
        assert found.guarantee.tradeoff.delta(budget.epsilon) <= budget.delta
    else:
        assert found.guarantee.tradeoff == budget.tradeoff()
    assert found.mechanism.claim == "exact"
    assert not found.private
    assert sums(pupils(), SCORE, ["school"], budget).private


def test_one_group_needs_one_record_only():
    data = {"ward": np.array(["a"] * 10), "y": np.ones(10)}
    found = sums(data, Outcome("y", 0, 1, steps=10), ["ward"], Budget.gdp(1))
    assert found.guarantee.adjacency.a == 1
    assert found.mechanism.scale == 10.0


def test_two_blocks_share_one_measurement_and_one_total():
    found = sums(
        pupils(), SCORE, ["school", "sex"], Budget.gdp("0.5"), randomness=SeededRandomness(4)
    )
    school, sex = Margin("school"), Margin("sex")
    assert found.guarantee.adjacency.a == 3
    assert found.space.l2_squared == (3 * 100) ** 2 * 2
    assert found.sums(school).values.sum() == pytest.approx(found.sums(sex).values.sum())
    assert found.means(sex).groups == (("f",), ("m",))
    with pytest.raises(InputError, match="say by which groups: school, sex"):
        found.sums()


def test_joint_groups_and_further_invariants_raise_a():
    found = sums(pupils(), SCORE, [Margin("school", "sex")], Budget.gdp(1))
    assert len(found.means().groups) == 6
    assert found.guarantee.adjacency.a == 2
    more = sums(pupils(), SCORE, ["school"], Budget.gdp(1), invariants=[Margin("sex")])
    assert more.guarantee.adjacency.a == 3
    assert more.mechanism.scale == pytest.approx(1.5 * found.mechanism.scale)


def test_an_empty_group_has_a_count_of_zero_and_no_mean():
    declared = [Feature("school", ("s0", "s1", "s2", "closed"))]
    found = sums(pupils(), SCORE, ["school"], Budget.gdp(1), features=declared)
    assert found.sums().values[-1] == 0.0
    assert found.sums().standard_errors[-1] == 0.0
    assert math.isnan(found.means().values[-1])
    assert found.compare().degrees == 2


def test_no_record_at_all():
    declared = [Feature("ward", ("a", "b"))]
    data = {"ward": np.array([], dtype=str), "y": np.array([], dtype=float)}
    found = sums(data, Outcome("y", 0, 1, steps=4), ["ward"], Budget.gdp(1), features=declared)
    assert found.sums().values.tolist() == [0.0, 0.0]
    assert found.mechanism.name == "no noise"
    assert found.compare().p_value == 1.0


@pytest.mark.parametrize("value", [np.nan, None])
def test_missing_outcomes_are_refused_without_quoting_them(value):
    data = {"ward": np.array(["a", "b"]), "y": np.array([0.5, value], dtype=float)}
    with pytest.raises(DataError, match="outcome 'y' has missing values"):
        sums(data, Outcome("y", 0, 1, steps=4), ["ward"], Budget.gdp(1))


def test_outcomes_that_are_not_numbers_are_refused():
    data = {"ward": np.array(["a", "b"]), "y": np.array(["12", "secret"])}
    with pytest.raises(DataError, match="values that are not numbers") as refusal:
        sums(data, Outcome("y", 0, 1, steps=4), ["ward"], Budget.gdp(1))
    assert "secret" not in str(refusal.value)


def test_unknown_columns_are_refused():
    with pytest.raises(SchemaError, match="no column 'town'"):
        sums(pupils(), SCORE, ["town"], Budget.gdp(1))
    with pytest.raises(SchemaError, match="no column 'grade'"):
        sums(pupils(), Outcome("grade", 0, 1, steps=1), ["school"], Budget.gdp(1))


def test_an_open_source_is_left_open():
    with open_source(pupils()) as source:
        sums(source, SCORE, ["school"], Budget.gdp(1))
        assert source.columns() == ("school", "sex", "score")


def errors(budget: Budget, claimed: float, repeats: int = 400) -> float:
    """The mean of (error / standard error)² over many releases: 1 if the errors are as claimed."""
    schema = Schema((Feature("g", ("a", "b", "c")), Feature("h", ("a", "b"))))
    table = Table(schema, np.array([[10, 20], [30, 5], [0, 8]]))
    public = Dataspace.from_table(table, [Margin("g"), Margin("h")])
    space = sum_space(public, Ball(3), Outcome("y", 0, 1, steps=20), [Margin("g"), Margin("h")])
    mechanism = outcome_mechanism(space, budget)
    truth = np.array([200, 300, 60, 240, 320])
    total = 0.0
    for seed in range(repeats):
        found = GroupSums(mechanism, mechanism.measure(truth, SeededRandomness(seed)))
        for block, part in zip(found.blocks, space.slices, strict=True):
            estimates = found.sums(block)
            total += float(
                (
                    ((estimates.values - truth[part] / 20) / estimates.standard_errors / claimed)
                    ** 2
                ).sum()
            )
    return total / (repeats * 5)


@pytest.mark.parametrize("budget", BUDGETS[:3], ids=lambda budget: budget.kind)
def test_standard_errors_are_those_of_the_noise_and_the_test_sees_a_wrong_scale(budget):
    """400 releases of 5 sums, kurtosis at most 6: the mean square of z has a standard deviation
    below sqrt(5/2000)·(correlation of at most 5 sums) < 0.112; five of those are a false alarm
    below 1e-6.
    """
    assert abs(errors(budget, 1.0) - 1) < 5 * 0.112
    assert abs(errors(budget, 0.6) - 1) > 5 * 0.112


def test_a_proportion_is_the_share_of_ones():
    data = {"g": np.repeat(["a", "b"], 2000), "y": np.tile([0, 1, 1, 1], 1000)}
    assert proportions(data, "y", ["g"], CLEAR).values == pytest.approx([0.75, 0.75], abs=1e-3)


def test_equal_means_are_rejected_as_often_as_stated_and_unequal_ones_nearly_always():
    """Noise only: how many of 400 tests at 5% reject is binomial, tested at 1e-6; the twin must
    reject.
    """
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 400, 0.05)

    def rejections(second: float) -> int:
        schema = Schema((Feature("g", ("a", "b", "c")),))
        public = Dataspace.from_table(Table(schema, np.array([40, 100, 60])), [Margin("g")])
        space = sum_space(public, Ball(2), Outcome("y", 0, 1, steps=100), [Margin("g")])
        mechanism = outcome_mechanism(space, Budget.gdp(1))
        truth = np.array([40 * 50, round(100 * second), 60 * 50])
        found = [
            GroupSums(mechanism, mechanism.measure(truth, SeededRandomness(seed)))
            for seed in range(400)
        ]
        return sum(one.compare().p_value < 0.05 for one in found)

    assert low <= rejections(50) <= high
    assert rejections(70) > 390


@pytest.mark.few(2)
@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, 1e300, np.inf])
def test_proportions_refuse_what_is_neither_zero_nor_one(value):
    data = {"ward": np.repeat(["a", "b"], 3), "cured": np.array([0.0, 1.0, 1.0, 0.0, 1.0, value])}
    for ask in (proportions, logistic):
        with pytest.raises(
            DataError, match="needs zeros and ones, and 'cured' holds other values"
        ) as refusal:
            ask(data, "cured", ["ward"], Budget.gdp(1))
        assert str(value) not in str(refusal.value)
    request = GroupRequest("proportion", Outcome("cured", 0, 1, steps=1), [["ward"]], Budget.gdp(1))
    with pytest.raises(DataError, match="needs zeros and ones"):
        run(Plan([request], invariants=[Margin("ward")]), data)
    data["cured"][-1] = 0.0
    assert proportions(data, "cured", ["ward"], CLEAR).values == pytest.approx(
        [2 / 3, 1 / 3], abs=1e-3
    )


def logistic(data: dict[str, np.ndarray], column: str, by: list[str], budget: Budget) -> object:
    return logistic_regression(data, column, budget, factors=by)


def test_a_grid_that_may_bias_a_mean_says_so():
    """Values of 7.4 on steps of 10 become 10: the mean is off by 2.6 whatever the noise; on steps
    of 0.1 it is not.
    """
    data = {"ward": np.repeat(["a", "b"], 5000), "y": np.full(10_000, 7.4)}
    coarse = means(data, Outcome("y", 0, 100, steps=10), ["ward"], Budget.gdp(1))
    assert coarse.coarse
    assert coarse.rounding == pytest.approx([5.0, 5.0])
    assert (np.abs(coarse.values - 7.4) <= coarse.rounding + 6 * coarse.standard_errors).all()
    assert (np.abs(coarse.values - 7.4) > 10 * coarse.standard_errors).all()
    fine = means(data, Outcome("y", 0, 100, steps=10_000), ["ward"], Budget.gdp(1))
    assert not fine.coarse
    assert (np.abs(fine.values - 7.4) <= fine.rounding + 6 * fine.standard_errors).all()
    ones = {"ward": data["ward"], "y": np.ones(10_000)}
    assert not proportions(ones, "y", ["ward"], Budget.gdp(1)).coarse
    for steps, said in ((10, True), (10_000, False)):
        request = GroupRequest("mean", Outcome("y", 0, 100, steps=steps), [["ward"]], Budget.gdp(1))
        release = run(Plan([request], invariants=[Margin("ward")]), data)
        assert ("The grid is coarse" in summary(release)) is said
        assert ("The grid is coarse" in html(release)) is said


def test_two_blocks_are_compared_with_their_own_covariance():
    """Against the dense quadratic form."""
    found = sums(
        pupils(), SCORE, ["school", "sex"], Budget.gdp("0.5"), randomness=SeededRandomness(4)
    )
    space, noise = found.space, float(SCORE.width) ** 2 * found.mechanism.variance
    whole = np.stack([space.project(row) for row in np.eye(space.shape[0])])
    for block, part in zip(found.blocks, space.slices, strict=True):
        estimates = found.means(block)
        n = estimates.counts
        covariance = noise * whole[part, part] / np.outer(n, n)
        inverse = np.linalg.inv(covariance)
        pooled = inverse.sum(axis=0) @ estimates.values / inverse.sum()
        gap = estimates.values - pooled
        compared = found.compare(block)
        assert compared.pooled == pytest.approx(pooled)
        assert compared.statistic == pytest.approx(gap @ inverse @ gap)


@pytest.mark.long
def test_many_groups_take_no_matrix():
    labels = np.arange(50_000)
    data = {"g": np.char.add("g", np.repeat(labels, 2).astype(str)), "y": np.tile([0, 1], 50_000)}
    declared = [Feature("g", tuple(f"g{k}" for k in labels))]
    found = sums(data, Outcome("y", 0, 1, steps=1), ["g"], Budget.gdp(1), features=declared)
    assert found.compare().degrees == 49_999


def test_mechanisms_by_name():
    space = sum_space(
        Dataspace.from_table(
            Table(Schema((Feature("g", ("a", "b")),)), np.array([5, 5])), [Margin("g")]
        ),
        Ball(2),
        SCORE,
        [Margin("g")],
    )
    assert outcome_mechanism(space, Budget.pure(1), "laplace").scale == 200.0
    assert outcome_mechanism(space, Budget.zcdp(1), "gaussian").name == "discrete gaussian"
    with pytest.raises(InputError, match="there is no mechanism 'l2' for sums"):
        outcome_mechanism(space, Budget.pure(1), "l2")
