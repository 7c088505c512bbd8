"""What a regression measures: nothing that depends on the coding, and never more noise than it
needs.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from tests.grouped.measuring import fit_design

from semidp.errors import InputError
from semidp.promise.accounting.recorded_queries import query_space
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.moments import MomentSpace, moment_space
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.regression.designs import Coding, Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    best_combination,
    moment_map,
    noise_covariance,
    regression_mechanism,
    regression_routes,
    route_values,
)

OUTCOME = Outcome("y", 0, 1, steps=100)
BUDGETS = (Budget.gdp(1), Budget.zcdp("0.5"), Budget.pure(1))


def factors(*sizes: int) -> Schema:
    return Schema(
        tuple(
            Feature(name, [str(k) for k in range(size)])
            for name, size in zip("ABC", sizes, strict=False)
        )
    )


def world(*sizes: int, seed: int = 0) -> tuple[Dataspace, np.ndarray]:
    """Published joint counts, not balanced, and confidential sums by cell."""
    source = np.random.default_rng(seed)
    schema = factors(*sizes)
    counts = source.integers(5, 60, schema.shape)
    public = Dataspace.from_table(Table(schema, counts), [Margin(*schema.names)])
    return public, source.binomial(100 * counts, 0.4)


@pytest.mark.parametrize("levels", [2, 10, 20])
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
def test_a_contrast_of_one_factor_costs_what_the_difference_of_group_means_costs(
    levels: int, budget: Budget
) -> None:
    public, _ = world(levels)
    counts = public.value(Margin("A")).counts
    sums = outcome_mechanism(sum_space(public, Ball(2), OUTCOME, [Margin("A")]), budget)
    variance = sums.variance * float(OUTCOME.width) ** 2
    for coding in Coding:
        design = Design.from_schema(public.schema, ["A"], coding=coding)
        mechanism = regression_mechanism(public, Ball(2), OUTCOME, design, budget)
        measured = mechanism.measure(
            np.zeros(mechanism.space.shape, dtype=np.int64), SeededRandomness(1)
        )
        fit = LinearFit(Moments(mechanism, measured, design))
        rows = design.rows().astype(float)
        for one, other in itertools.combinations(range(levels), 2):
            contrast = rows[one] - rows[other]
            found = contrast @ fit.covariance() @ contrast
            assert found == pytest.approx(
                variance * (1 / counts[one] ** 2 + 1 / counts[other] ** 2), rel=1e-9
            )


def test_treatment_coding_used_to_cost_more() -> None:
    """X'y measured column by column: a contrast of 20 levels had several times the error of the
    group means.
    """
    public, _ = world(20)
    design = Design.from_schema(public.schema, ["A"])
    raw = outcome_mechanism(moment_space(public, Ball(2), OUTCOME, design), Budget.gdp(1))
    best = regression_mechanism(public, Ball(2), OUTCOME, design, Budget.gdp(1))
    inverse = np.linalg.inv(design.gram(public).astype(float))
    ratios = [
        np.sqrt(np.diag(inverse @ noise_covariance(mechanism, design) @ inverse))
        for mechanism in (raw, best)
    ]
    assert (ratios[0] / ratios[1]).min() > 1.2
    assert (ratios[0] / ratios[1]).max() > 3


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (2, 3, 2)])
def test_every_route_gives_the_same_moments(sizes: tuple[int, ...]) -> None:
    public, sums = world(*sizes)
    design = Design.from_schema(public.schema, public.schema.names, coding=Coding.effects)
    expected = design.rows().astype(float).T @ sums.ravel()
    routes = regression_routes(public, Ball(2), OUTCOME, design)
    assert len(routes) == 3
    for route in routes:
        found = moment_map(route, design) @ route_values(route, design, sums)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        again = query_space(route.query(), public, Ball(2))
        assert again.norms == route.norms


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
def test_the_fit_does_not_depend_on_the_coding(budget: Budget) -> None:
    public, sums = world(3, 4)
    fitted = []
    scores = Design.from_schema(public.schema, ["B"], scores={"A": ["0", "1/3", "1"]})
    both = Design.from_schema(public.schema, ["A", "B"])
    square = both.columns[0].__class__(
        "A squared", ("A",), (Fraction(0), Fraction(1, 9), Fraction(1))
    )
    # a score and its square span the factor A
    scored = Design(public.schema, (*scores.columns, square))
    for design in (
        both,
        Design.from_schema(public.schema, ["A", "B"], coding=Coding.effects),
        scored,
    ):
        mechanism = regression_mechanism(public, Ball(2), OUTCOME, design, budget)
        values = route_values(mechanism.space, design, sums)
        fit = LinearFit(Moments(mechanism, mechanism.measure(values, SeededRandomness(5)), design))
        fitted.append(design.rows().astype(float) / design.multiplier @ fit.coefficients)
    np.testing.assert_allclose(fitted[1], fitted[0], atol=1e-9)
    # sums by cell or by term; combinations of columns differ by a whole factor only
    if budget.kind == "pure":
        np.testing.assert_allclose(fitted[2], fitted[0], atol=1e-9)


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
@pytest.mark.parametrize("sizes", [(2, 2), (5, 5), (2, 3, 4)])
def test_the_cheapest_route_is_taken_and_it_is_never_dearer_than_the_columns(
    budget: Budget, sizes: tuple[int, ...]
) -> None:
    public, _ = world(*sizes)
    for coding in Coding:
        design = Design.from_schema(public.schema, public.schema.names, coding=coding)
        inverse = np.linalg.inv(design.gram(public).astype(float))

        def price(
            space: SumSpace | MomentSpace, design: Design = design, inverse: np.ndarray = inverse
        ) -> float:
            return float(
                np.sum(inverse * noise_covariance(outcome_mechanism(space, budget), design))
            )

        chosen = regression_mechanism(public, Ball(2), OUTCOME, design, budget).space
        assert isinstance(chosen, (SumSpace, MomentSpace))
        raw = moment_space(public, Ball(2), OUTCOME, design)
        for route in (*regression_routes(public, Ball(2), OUTCOME, design), raw):
            assert price(chosen) <= price(route) * 1.001


def test_combinations_beat_cells_where_the_model_is_smaller_than_the_table() -> None:
    public, _ = world(6, 6)
    design = Design.from_schema(public.schema, ["A", "B"])
    cells, terms, combined = regression_routes(public, Ball(2), OUTCOME, design)
    inverse = np.linalg.inv(design.gram(public).astype(float))
    prices = [
        float(np.sum(inverse * noise_covariance(outcome_mechanism(space, Budget.gdp(1)), design)))
        for space in (cells, terms, combined)
    ]
    assert prices[2] < 0.45 * prices[0]
    assert prices[2] < prices[1]


@pytest.mark.parametrize("a", [1, 2])
def test_combinations_move_as_far_as_claimed_and_no_farther(everything, table, a: int) -> None:
    """Every pair of datasets of four records: the longest row of the whole numbers is what counts;
    it is reached.
    """
    found = everything(table([[1, 1], [1, 1]]), [Margin("A", "B")], 1)
    design = Design.from_schema(found.schema, ["A", "B"])
    combination = best_combination(design, found.dataspace)
    space = moment_space(found.dataspace, Ball(a), Outcome("y", 0, 1, 1), design, combination)
    rows = space.rows_by_cell.astype(np.int64)
    worst = found.norms(found.moments(rows), a)[1]
    assert worst <= space.l2_squared
    shorter = space.l2_squared / 1.3**2
    # two records of one cell do not exist here, so that a = 2 is not attained
    assert worst > shorter or a > 1
    if a == 1:
        assert worst == space.l2_squared


def test_a_depth_beside_a_finer_published_one(everything, table) -> None:
    """Counties are published, the regression is on states: as far apart as brute force over
    counties says.
    """
    found = everything(table([[2, 1, 1]][0], "A"), [Margin("A")], 1)
    places = Feature.from_paths(["state", "county"], [("x", "0"), ("x", "1"), ("y", "2")])
    public = Dataspace.from_table(Table(Schema((places,)), np.array([2, 1, 1])), [Margin("county")])
    design = Design.from_schema(public.schema, ["state"])
    assert design.rows().tolist() == [[1, 0], [1, 1]]
    assert design.gram(public).tolist() == [[4, 1], [1, 1]]
    raw = moment_space(public, Ball(2), Outcome("score", 0, 1, 1), design)
    by_county = design.rows().astype(np.int64)[[0, 0, 1]]
    assert found.norms(found.moments(by_county), 2)[1] <= raw.l2_squared
    (cells,) = regression_routes(public, Ball(2), Outcome("score", 0, 1, 1), design)
    one_hot = np.eye(2, dtype=np.int64)[[0, 0, 1]]
    assert found.norms(found.moments(one_hot), 2) == (cells.l1, cells.l2_squared, cells.linf)


def test_columns_at_two_depths() -> None:
    places = Feature.from_paths(
        ["state", "county"], [("x", "a"), ("x", "b"), ("y", "c"), ("y", "d")]
    )
    schema = Schema((places, Feature("sex", "fm")))
    design = Design.from_schema(
        schema, ["state", "sex"], scores={"county": [0, 1, 0, 1]}, interactions=[("state", "sex")]
    )
    assert design.features == ("state", "county", "sex")
    assert design.rows()[:, 1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert design.rows()[:, 3].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert design.rows()[:, 4].tolist() == [0, 0, 0, 0, 0, 1, 0, 1]


def test_pairs_of_counts_are_enough_for_main_effects() -> None:
    schema = factors(2, 3, 2)
    counts = np.random.default_rng(4).integers(3, 30, schema.shape)
    public = Dataspace.from_table(
        Table(schema, counts), [Margin("A", "B"), Margin("A", "C"), Margin("B", "C")]
    )
    design = Design.from_schema(schema, ["A", "B", "C"])
    kinds = [type(route) for route in regression_routes(public, Ball(5), OUTCOME, design)]
    assert kinds == [SumSpace, MomentSpace]
    assert regression_mechanism(public, Ball(5), OUTCOME, design, Budget.gdp(1)).space.shape == (5,)


def test_combinations_are_checked() -> None:
    public, _ = world(2, 2)
    design = Design.from_schema(public.schema, ["A", "B"])
    with pytest.raises(InputError, match="a number for each column"):
        moment_space(public, Ball(2), OUTCOME, design, [[1, 0]])
    with pytest.raises(InputError, match="must be whole"):
        moment_space(public, Ball(2), OUTCOME, design, [["1/2", 0, 0]])


@pytest.mark.parametrize(
    ("combination", "gives_all"),
    [
        ([], True),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], True),
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], True),
        ([[1, 0, 0], [0, 1, 0]], False),  # fewer than columns
        ([[1, 0, 0], [0, 1, 0], [1, 1, 0]], False),  # two of them give the third
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], False),  # more than columns
        ([[1, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]], False),
    ],
)
def test_recorded_combinations_must_give_the_columns(
    combination: list[list[int]], gives_all: bool
) -> None:
    public, _ = world(2, 2)
    design = Design.from_schema(public.schema, ["A", "B"])
    assert moment_space(public, Ball(2), OUTCOME, design, combination).regular == gives_all


def test_logistic_fits_are_the_same_for_any_coding() -> None:
    public, _ = world(2, 3)
    ones = np.random.default_rng(2).binomial(public.value(Margin("A", "B")).counts, 0.3)
    fitted = []
    for coding in Coding:
        design = Design.from_schema(public.schema, ["A", "B"], coding=coding)
        mechanism = regression_mechanism(
            public, Ball(2), Outcome("y", 0, 1, 1), design, Budget.gdp("0.3")
        )
        values = route_values(mechanism.space, design, ones)
        fit = LogisticFit(
            Moments(mechanism, mechanism.measure(values, SeededRandomness(8)), design)
        )
        fitted.append(design.rows().astype(float) @ fit.coefficients)
    np.testing.assert_allclose(fitted[1], fitted[0], atol=1e-4)


def test_an_outcome_with_a_lower_bound_and_an_intercept_alone() -> None:
    days = Outcome("days", 2, 12, steps=100)
    records = {"arm": np.repeat(["c", "d"], 50), "days": np.repeat([7.0, 5.0], 50)}
    schema = Schema((Feature("arm", ("c", "d")),))
    design = Design(schema, Design.from_schema(schema, ["arm"]).columns[:1])
    fit = fit_design(records, days, Budget.gdp(10**7), design, [Margin("arm")])
    assert fit.coefficients == pytest.approx([6.0], abs=1e-3)
