"""Whole numbers of several tables: they agree, keep exact totals, and say where they cannot."""

import itertools

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, Plan, run
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.promise.schema.margins import Totals, meet
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.fitting.real import Infeasible
from semidp.publish.product_estimates import estimate_tables
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.published_table import FitKind
from semidp.publish.statistics.tables.fitting import exact_totals, fit_product
from tests.products.test_release import FEATURES, people, plan


def nested_space():
    leaves = [("s", "a"), ("s", "b"), ("s", "c"), ("t", "d"), ("u", "e"), ("u", "g")]
    schema = Schema(
        [
            Feature.from_paths(["state", "county"], leaves),
            Feature("sex", "fm"),
            Feature("age", "yio"),
        ]
    )
    table = Table(schema, np.random.default_rng(1).integers(0, 6, size=schema.shape))
    public = Dataspace.from_table(table, [Margin("state"), Margin("sex")])
    wanted = [["state", "sex"], ["county", "sex"], ["state", "sex", "age"]]
    return table, product_space(public, Ball(semi_adjacency(public).bound), wanted)


def test_whole_numbers_down_a_geography_agree():
    table, space = nested_space()
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    truth = space.measure(
        [table.margin(space.schema.list_view_names(view)) for view in space.views]
    )
    for seed in range(5):
        measured = mechanism.measure(truth, SeededRandomness(seed))
        found = fit_product(
            space.schema.grid,
            space.views,
            exact_totals(space),
            estimate_tables(space, measured.projected),
            [FitKind.integer] * 3,
            silent,
        )
        (states, _), (counties, _), (ages, _) = found
        assert (np.add.reduceat(counties, [0, 3, 4], axis=0) == states).all()
        assert (ages.sum(axis=2) == states).all()
        assert (states.sum(axis=1) == table.margin(["state"]).counts).all()
        assert (counties.sum(axis=0) == table.margin(["sex"]).counts).all()
        assert all(counts.dtype.kind == "i" and counts.min() >= 0 for counts, _ in found)


def consistent(space, found) -> None:
    """Every pair of whole-number tables agrees on what they share; all keep n and the exact
    totals.
    """
    grid = space.schema.grid
    whole = [
        Totals(view, counts.reshape(grid.compute_margin_shape(view)))
        for view, (counts, _) in zip(space.views, found, strict=True)
        if counts.dtype.kind == "i"
    ]
    for one, other in itertools.combinations([*whole, *space.dataspace.published_totals], 2):
        shared = meet(one.view, other.view)
        assert (
            one.sum_to_view(grid, shared).counts == other.sum_to_view(grid, shared).counts
        ).all()
    assert {int(total.counts.sum()) for total in whole} == {space.dataspace.n}
    assert min(int(total.counts.min()) for total in whole) >= 0


def test_tables_that_no_whole_numbers_agree_with_are_fitted_jointly_and_said():
    """n = 2: AB = BC = diag(1, 1) leave no table ABC with AC antidiagonal, not even in reals."""
    schema = Schema([Feature(name, "01") for name in "abc"])
    table = Table(schema, [[[1, 0], [0, 0]], [[0, 0], [0, 1]]])
    public = Dataspace.from_table(table, [])
    space = product_space(public, Ball(1), [["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"]])
    diagonal, other = np.eye(2), 1 - np.eye(2)
    estimates = [diagonal, diagonal, other, np.full((2, 2, 2), 0.25)]
    found = fit_product(
        space.schema.grid,
        space.views,
        exact_totals(space),
        estimates,
        [FitKind.integer] * 4,
        silent,
    )
    assert [counts.dtype.kind for counts, _ in found] == ["i"] * 4
    consistent(space, found)
    assert "Fitted before the others" in found[3][1].note
    assert not found[3][1].optimal
    three = fit_product(
        space.schema.grid,
        space.views,
        exact_totals(space),
        estimates,
        [*[FitKind.integer] * 3, FitKind.none],
        silent,
    )
    assert [counts.tolist() for counts, _ in three[:3]] == [
        diagonal.tolist(),
        diagonal.tolist(),
        other.tolist(),
    ]


def test_the_same_down_a_geography():
    """State × sex × age, county × sex and county × age fix a table of counties that does not
    exist.
    """
    leaves = [("s", "a"), ("s", "b")]
    schema = Schema(
        [
            Feature.from_paths(["state", "county"], leaves),
            Feature("sex", "fm"),
            Feature("age", "yo"),
        ]
    )
    table = Table(schema, [[[1, 0], [0, 0]], [[0, 0], [0, 1]]])
    wanted = [
        ["state", "sex", "age"],
        ["county", "sex"],
        ["county", "age"],
        ["county", "sex", "age"],
    ]
    for margins in ([], [Margin("county")]):
        public = Dataspace.from_table(table, margins)
        space = product_space(public, Ball(2), wanted)
        diagonal, other = np.eye(2), 1 - np.eye(2)
        estimates = [other.reshape(1, 2, 2), diagonal, diagonal, np.full((2, 2, 2), 0.25)]
        found = fit_product(
            space.schema.grid,
            space.views,
            exact_totals(space),
            estimates,
            [FitKind.integer] * 4,
            silent,
        )
        assert [counts.dtype.kind for counts, _ in found] == ["i"] * 4
        consistent(space, found)
        assert "Fitted before the others" in found[3][1].note


def test_where_no_whole_numbers_are_found_at_all_estimates_are_rounded_and_that_is_said(
    monkeypatch,
):
    from semidp.publish.statistics.tables import fitting as products

    def never(*_, **__):
        raise Infeasible

    schema = Schema([Feature(name, "01") for name in "ab"])
    public = Dataspace.from_table(Table(schema, [[1, 0], [0, 1]]), [])
    space = product_space(public, Ball(1), [["a"], ["a", "b"]])
    estimates = [np.array([1.2, -0.8]), np.full((2, 2), 0.6)]
    monkeypatch.setattr(products, "fit_totals", never)
    monkeypatch.setattr(products, "fit_alike", never)
    found = fit_product(
        space.schema.grid,
        space.views,
        exact_totals(space),
        estimates,
        [FitKind.integer] * 2,
        silent,
    )
    assert [counts.tolist() for counts, _ in found] == [[1, 0], [[1, 1], [1, 1]]]
    for counts, fitted in found:
        assert counts.dtype == np.int64
        assert fitted.kind == "none"
        assert not fitted.optimal
        assert "No whole numbers with all its totals were found" in fitted.note


def test_exact_totals_in_a_circle_leave_whole_numbers_with_as_many_of_them_as_can_be_promised(
    monkeypatch,
):
    """AB, BC and AC exact: where the search for ABC finds nothing, it has two of the three, and
    that is said.
    """
    from semidp.publish.statistics.tables import fitting as products

    fit = products.fit_totals

    def in_vain(noisy, grid, totals, *args, **more):
        if len(totals) == 3:
            raise Infeasible
        return fit(noisy, grid, totals, *args, **more)

    schema = Schema([Feature(name, "01") for name in "abc"])
    table = Table(schema, np.arange(1, 9).reshape(2, 2, 2))
    public = Dataspace.from_table(table, [Margin("a", "b"), Margin("b", "c"), Margin("a", "c")])
    views, totals = [(1, 1, 1)], list(public.published_totals)
    monkeypatch.setattr(products, "fit_totals", in_vain)
    noisy = table.counts - 4.3
    ((counts, fitted),) = fit_product(
        schema.grid, views, totals, [noisy], [FitKind.integer], silent
    )
    assert counts.dtype == np.int64
    assert counts.min() >= 0
    met = [np.array_equal(schema.grid.sum(counts, total.view), total.counts) for total in totals]
    assert sorted(met)[1:] == [True, True]
    assert fitted.kind == "none"
    assert "2 of 3" in fitted.note


def test_a_search_that_ends_without_whole_numbers_fits_the_table_first(monkeypatch):
    """Real numbers from a search that ran out of time are never published: the table is fitted
    before the others.
    """
    from semidp.publish.statistics.tables import fitting as products

    fit = products.fit_totals

    def too_slow(noisy, grid, totals, *args, **more):
        made = fit(noisy, grid, totals, *args, **more)
        return evolve(made, counts=None, values=np.asarray(noisy)) if len(totals) == 3 else made

    schema = Schema([Feature(name, "01") for name in "abc"])
    public = Dataspace.from_table(Table(schema, np.arange(1, 9).reshape(2, 2, 2)), [])
    space = product_space(public, Ball(1), [["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"]])
    monkeypatch.setattr(products, "fit_totals", too_slow)
    estimates = [
        np.full(space.schema.grid.compute_margin_shape(view), 36.0 / 2 ** sum(view)) - 0.4
        for view in space.views
    ]
    found = fit_product(
        space.schema.grid,
        space.views,
        exact_totals(space),
        estimates,
        [FitKind.integer] * 4,
        silent,
    )
    assert [counts.dtype.kind for counts, _ in found] == ["i"] * 4
    consistent(space, found)
    assert "Fitted before the others" in found[3][1].note


def test_the_loss_is_reported_against_the_real_valued_optimum():
    done = run(plan(), people())
    stated = done.results[0].to_json()["whole_numbers"]
    real = done.tables[0].fitted.bound + done.tables[1].fitted.bound
    assert stated["real_valued_bound"] == pytest.approx(real)
    assert stated["loss"] >= stated["real_valued_bound"] >= 0
    away = sum(float(((table.counts - table.estimate) ** 2).sum()) for table in done.tables)
    assert stated["loss"] == pytest.approx(away, abs=1e-3)


def test_a_table_may_be_left_as_its_estimate():
    tables = [TableRequest(["sex", "age"], fit="none"), TableRequest(["age", "region"])]
    asked = Plan([TablesRequest(tables, Budget.gdp(1))], invariants=["sex"], features=FEATURES)
    done = run(asked, people())
    assert (done["sex-age"].counts == done["sex-age"].estimate).all()
    assert done["age-region"].counts.dtype.kind == "i"
