"""Estimates of products of tables: unbiased, variances as announced, all tables agree, exact totals
exact.
"""

import numpy as np
import pytest
from scipy import stats

from semidp.errors import InputError, Refused
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.product_estimates import estimate_tables
from semidp.publish.residual_mechanism import ResidualMechanism
from tests.sum_errors import error_of_sum

RUNS = 4000
ALARM = 1e-6


def ragged():
    """Counties of very unequal states, one empty state, sexes and ages; totals of states and sexes
    exact.
    """
    leaves = [("s", "a"), ("s", "b"), ("s", "c"), ("t", "d"), ("u", "e"), ("u", "g"), ("v", "h")]
    schema = Schema(
        [
            Feature.from_paths(["state", "county"], leaves),
            Feature("sex", "fm"),
            Feature("age", "yio"),
        ]
    )
    counts = np.random.default_rng(5).integers(0, 30, size=schema.shape)
    counts[6] = 0  # nobody lives in v, which the exact totals say
    table = Table(schema, counts)
    public = Dataspace.from_table(table, [Margin("state"), Margin("sex")])
    wanted = [["state", "sex", "age"], ["county", "sex"], ["county", "age"]]
    return table, product_space(public, Ball(semi_adjacency(public).bound), wanted)


@pytest.fixture(scope="module", params=[Budget.gdp(1), Budget.zcdp(8), Budget.gdp(12)], ids=str)
def drawn(request):
    """Many measurements of one product; the larger budgets draw noise where rounding is a good part
    of the variance.
    """
    table, space = ragged()
    mechanism = ResidualMechanism.calibrate(space, request.param)
    truth = space.measure(
        [table.margin(space.schema.list_view_names(view)) for view in space.views]
    )
    vectors = mechanism.measure_many(truth, RUNS, SeededRandomness(12))
    estimates = [estimate_tables(space, mechanism.publish(vector)) for vector in vectors]
    return table, mechanism, [np.stack(tables) for tables in zip(*estimates, strict=True)]


def pooled(mechanism, table, estimates, factor=1.0):
    """z of each cell's mean, and the p-value of each cell's variance under the announced one times
    a factor.
    """
    found = []
    for number, (view, values) in enumerate(zip(mechanism.space.views, estimates, strict=True)):
        truth = table.margin(mechanism.space.schema.list_view_names(view)).counts
        variance = mechanism.cell_variances(number) * factor
        there = variance > 1e-9
        bias = (values.mean(axis=0) - truth)[there] / np.sqrt(variance[there] / RUNS)
        squares = RUNS * values.var(axis=0)[there] / variance[there]
        found.append(
            (
                bias,
                2 * np.minimum(stats.chi2.cdf(squares, RUNS - 1), stats.chi2.sf(squares, RUNS - 1)),
            )
        )
    return np.concatenate([bias for bias, _ in found]), np.concatenate([p for _, p in found])


@pytest.mark.few(1)
def test_estimates_are_unbiased_and_vary_as_announced(drawn):
    table, mechanism, estimates = drawn
    bias, p = pooled(mechanism, table, estimates)
    assert 2 * stats.norm.sf(np.abs(bias).max()) * len(bias) > ALARM
    assert p.min() * len(p) > ALARM


@pytest.mark.few(1)
def test_the_test_of_variances_catches_a_tenth(drawn):
    table, mechanism, estimates = drawn
    for factor in (1 / 1.1, 1.1):
        _, p = pooled(mechanism, table, estimates, factor)
        assert np.median(p) < 0.01
        assert p.min() * len(p) < 1e-4


@pytest.mark.few(1)
def test_every_number_that_occurs_in_two_tables_is_the_same_and_totals_are_exact(drawn):
    table, mechanism, (detailed, sexes, ages) = drawn
    space = mechanism.space
    states = [np.add.reduceat(values, [0, 3, 4, 6], axis=1) for values in (sexes, ages)]
    np.testing.assert_allclose(states[0], detailed.sum(axis=3), atol=1e-7)
    np.testing.assert_allclose(states[1], detailed.sum(axis=2), atol=1e-7)
    np.testing.assert_allclose(sexes.sum(axis=2), ages.sum(axis=2), atol=1e-7)
    exact = space.dataspace.value(Margin("state")).counts
    np.testing.assert_allclose(detailed.sum(axis=(2, 3)), np.tile(exact, (RUNS, 1)), atol=1e-6)
    np.testing.assert_allclose(
        sexes.sum(axis=1), np.tile(table.margin(["sex"]).counts, (RUNS, 1)), atol=1e-6
    )
    assert not ages[:, 6].any()


@pytest.mark.few(1)
def test_a_linear_combination_across_tables_has_the_announced_standard_error(drawn):
    table, mechanism, estimates = drawn
    rng = np.random.default_rng(2)
    weights = {number: rng.normal(size=values.shape[1:]) for number, values in enumerate(estimates)}
    sums = sum(
        (estimates[number] * weights[number]).sum(axis=(1, 2, 3)[: estimates[number].ndim - 1])
        for number in weights
    )
    error = error_of_sum(mechanism, weights)
    assert ALARM < stats.chi2.cdf(RUNS * sums.var() / error**2, RUNS - 1) < 1 - ALARM
    # The sum is linear in the noise: seen on the estimates, and then drawn ten times as often
    # without them.
    pulled = mechanism.combination(weights)
    noise = mechanism.noises(10 * RUNS, SeededRandomness(13))
    truth = mechanism.space.measure(
        [
            table.margin(mechanism.space.schema.list_view_names(view))
            for view in mechanism.space.views
        ]
    )
    whole = [
        estimate_tables(mechanism.space, mechanism.publish(truth + row))
        for row in (0 * noise[0], *noise[:20])
    ]
    each = [
        sum((values * weights[number]).sum() for number, values in enumerate(tables))
        for tables in whole
    ]
    np.testing.assert_allclose(
        np.array(each[1:]) - each[0], noise[:20] @ pulled, rtol=1e-6, atol=1e-6
    )
    square = ((noise @ pulled) ** 2).sum() / error**2
    assert ALARM < stats.chi2.cdf(square, 10 * RUNS) < 1 - ALARM
    for wrong in (1.1, 1 / 1.1):
        assert not ALARM < stats.chi2.cdf(square * wrong, 10 * RUNS) < 1 - ALARM
    one = np.zeros(estimates[1].shape[1:])
    one[2, 1] = 1
    assert error_of_sum(mechanism, {1: one}) == pytest.approx(mechanism.table_errors(1)[2, 1])
    state = np.zeros(estimates[1].shape[1:])
    state[:3] = 1
    assert error_of_sum(mechanism, {1: state}) == 0.0  # an exact total
    minus = np.zeros(estimates[2].shape[1:])
    minus[1] = -1
    county = np.zeros(estimates[1].shape[1:])
    county[1] = 1
    # the same number in two tables
    assert error_of_sum(mechanism, {1: county, 2: minus}) == 0.0


def test_measurements_are_whole_and_their_scales_divide_them():
    table, space = ragged()
    vector = space.measure(
        [table.margin(space.schema.list_view_names(view)) for view in space.views]
    )
    assert vector.dtype == np.int64
    for estimate, view in zip(estimate_tables(space, vector), space.views, strict=True):
        np.testing.assert_allclose(
            estimate, table.margin(space.schema.list_view_names(view)).counts, atol=1e-9
        )


def test_whole_numbers_that_do_not_fit_are_refused():
    schema = Schema(
        [Feature("x", [str(i) for i in range(1000)]), Feature("y", [str(i) for i in range(1000)])]
    )
    table = Table(schema, np.full(schema.shape, 10**8))
    space = product_space(Dataspace.from_table(table, []), Ball(1), [["x", "y"]])
    with pytest.raises(Refused, match="62 bits"):
        space.residuals.compute_integer_residual((1, 1), table.counts * 10**3)


@pytest.mark.parametrize(("margins", "zeros"), [([["sex", "age"]], ()), ([], (("f", "y"),))])
def test_impossible_cells_are_found_where_a_table_has_them(margins, zeros):
    declared = [StructuralZero.from_pattern({"sex": sex, "age": age}) for sex, age in zeros]
    schema = Schema([Feature("sex", "fm"), Feature("age", "yo"), Feature("job", "12")], declared)
    counts = np.ones(schema.shape, dtype=np.int64)
    counts[0, 0] = 0
    public = Dataspace.from_table(Table(schema, counts), [Margin(*names) for names in margins])
    space = product_space(public, Ball(2), [["sex", "job"], ["age", "job"]])
    assert not space.impossible  # neither table has both features
    whole = product_space(public, Ball(2), [["sex", "job"], ["sex", "age", "job"]])
    assert {table: cells.tolist() for table, cells in whole.impossible.items()} == {1: [0, 1]}


def test_pure_epsilon_and_the_same_table_twice_are_refused():
    _, space = ragged()
    with pytest.raises(Refused, match="pure epsilon"):
        ResidualMechanism.calibrate(space, Budget.pure(1))
    with pytest.raises(InputError, match="same features"):
        product_space(space.dataspace, space.adjacency, [["sex"], ["sex"]])
