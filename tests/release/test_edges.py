"""Nobody, one person, one level, nothing left open, impossible cells, warnings, several tables, and
many cells.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from semidp import (
    Budget,
    DataError,
    Feature,
    InputError,
    Margin,
    Plan,
    Refused,
    Release,
    StructuralZero,
    open_source,
    run,
)
from semidp.errors import SchemaError
from semidp.present.report.report_page import html
from semidp.present.report.sentences import summary
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from tests.release.conftest import Example, assert_same_margins, strict_json, totals, whole_counts

Save = Callable[[Release], Path]
SEX, REGION = Feature("sex", "fm"), Feature("region", "ns")
BOTH = (Margin("sex"), Margin("region"))
BUDGETS = (Budget.pure(1), Budget.zcdp(1), Budget.gdp(1), Budget.approximate(1, "1e-6"))


def people(n: int) -> dict[str, np.ndarray]:
    return {
        "sex": np.array(list("fmfmm")[:n], dtype=str),
        "region": np.array(list("nsnns")[:n], dtype=str),
    }


def plan_of(
    invariants: tuple[Margin, ...] = BOTH, budget: Budget = BUDGETS[0], **rest: object
) -> Plan:
    return Plan([TableRequest(["sex", "region"], budget)], invariants, [SEX, REGION], **rest)  # type: ignore[arg-type]


def checked(release: Release, saved: Save) -> str:
    """Save, load and draw a release; return its report."""
    folder = saved(release)
    strict_json((folder / "release.json").read_text(encoding="utf-8"))
    again = Release.load(folder)
    assert again.to_json() == release.to_json()
    page = html(release)
    assert html(again) == page
    return page


@pytest.mark.pictures
@pytest.mark.few(10)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("invariants", [BOTH, BOTH[:1], ()], ids=["both", "one", "none"])
def test_hardly_anybody(
    saved: Save, n: int, invariants: tuple[Margin, ...], budget: Budget
) -> None:
    release = run(plan_of(invariants, budget), people(n))
    assert release.tables[0].counts.sum() == n
    assert release.scope.dataspace.n == n
    if n < 2 and invariants == BOTH:
        assert release.results[0].noise.mechanism == "no noise"
    if budget.kind == "zcdp":
        checked(release, saved)


def test_nobody_has_no_levels() -> None:
    with pytest.raises(DataError, match="declare them"):
        run(Plan([TableRequest(["sex"], Budget.pure(1))], [Margin("sex")]), people(0))


@pytest.mark.pictures
@pytest.mark.few(1)
@pytest.mark.parametrize("features", [("sex", "one"), ("one",), ("sex", "region", "one")])
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
def test_a_feature_with_one_level(saved: Save, features: tuple[str, ...], budget: Budget) -> None:
    data = {**people(5), "one": np.array(["x"] * 5)}
    plan = Plan([TableRequest(features, budget)], [Margin(name) for name in features])
    release = run(plan, data)
    assert release.tables[0].counts.sum() == 5
    if budget.kind == "pure":
        checked(release, saved)


@pytest.mark.few(2)
@pytest.mark.pictures
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: budget.kind)
def test_a_table_that_the_totals_fix_is_published_exactly_and_that_is_said(
    saved: Save, budget: Budget
) -> None:
    release = run(plan_of((Margin("sex", "region"),), budget), people(5))
    table = release.tables[0]
    assert table.counts.tolist() == [[2, 0], [1, 2]]
    assert release.results[0].noise.mechanism == "no noise"
    assert not table.standard_errors.any()
    page = checked(release, saved)
    assert "published exactly and needs no noise" in page
    assert "nothing of sex by region: the exact totals fix the whole table" in summary(release)
    assert "says nothing beyond the exact totals" in summary(release)


IMPOSSIBLE = Feature("age", ["child", "adult"]), Feature("status", ["single", "married"])
MARRIED_CHILD = StructuralZero.from_pattern({"age": "child", "status": "married"})


@pytest.mark.parametrize("invariants", [[], ["age"], ["status"], ["age", "status"]])
def test_impossible_cells_stay_empty(invariants: list[str]) -> None:
    data = {"age": ["child"] * 5 + ["adult"] * 9, "status": ["single"] * 9 + ["married"] * 5}
    request = TableRequest(["age", "status"], Budget.zcdp("1/50"))
    plan = Plan([request], [Margin(name) for name in invariants], IMPOSSIBLE, [MARRIED_CHILD])
    counts = run(plan, data).tables[0].counts
    assert counts[0, 1] == 0
    assert counts.sum() == pytest.approx(14)


def test_data_in_an_impossible_cell_are_refused() -> None:
    plan = Plan([TableRequest(["age", "status"], Budget.zcdp(1))], [], IMPOSSIBLE, [MARRIED_CHILD])
    with pytest.raises(DataError, match="structural zero"):
        run(plan, {"age": ["child"], "status": ["married"]})


def test_an_adjacency_below_the_worst_case_warns_everywhere(saved: Save) -> None:
    release = run(plan_of(adjacency=2), people(5))
    (warning,) = release.scope.warnings
    assert "a = 2 lies below the worst case, which is 3" in warning
    page = checked(release, saved)
    assert warning in page
    document = strict_json((saved(release) / "release.json").read_text(encoding="utf-8"))
    assert document["warnings"] == [warning]
    assert (document["a"]["used"], document["a"]["worst_case"], document["a"]["definition"]) == (
        2,
        3,
        2,
    )
    assert run(plan_of(adjacency="definition"), people(5)).scope.warnings == (warning,)
    assert run(plan_of(adjacency=3), people(5)).scope.warnings == ()


def test_an_adjacency_that_moves_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="larger a"):
        run(plan_of(adjacency=1), people(5))


def test_pairs_of_three_features_have_a_bound_and_say_that_less_was_given(saved: Save) -> None:
    example = Example.named("hair_eye_color")
    pairs = [["hair", "eye"], ["eye", "sex"], ["hair", "sex"]]
    margins = [Margin(*names) for names in pairs]
    request = TableRequest(example.features, Budget.zcdp("1/2"))
    # 1 + 2 min(4, 4)
    assert run(Plan([request], margins, count="count"), example.path).scope.adjacency.a == 9
    release = run(Plan([request], margins, count="count", adjacency=4), example.path)
    assert "may be as large as 9" in release.scope.warnings[0]
    assert "at most 9 records" in checked(release, saved)
    assert_same_margins(example, saved(release), example.features, pairs)


@pytest.mark.pictures
def test_several_tables_share_one_guarantee(saved: Save) -> None:
    example = Example.named("hair_eye_color")
    tables = [
        TableRequest(["hair", "eye"], Budget.zcdp("1/2"), name="hair and eyes"),
        TableRequest(["eye", "sex"], Budget.zcdp("1/4"), name="eyes", mechanism="lattice"),
        TableRequest(["hair"], Budget.zcdp("1/8"), name="fixed"),
    ]
    plan = Plan(tables, [Margin(name) for name in example.features], count="count")
    release = run(plan, example.path)
    assert (
        release.guarantee.tradeoff.implied_rho()
        == sum(  # the fixed table spends nothing
            result.guarantee.tradeoff.implied_rho() for result in release.results[:2]
        )
    )
    assert release.guarantee.tradeoff.implied_rho() <= tables[0].budget.rho + tables[1].budget.rho  # type: ignore[union-attr,operator]
    folder = saved(release)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *(
            "hair and eyes.csv",
            "hair and eyes-measurements.csv",
            "eyes.csv",
            "eyes-measurements.csv",
        ),
        *(
            "csv-metadata.json",
            "fixed.csv",
            "fixed-measurements.csv",
            *(f"exact-{feature}.csv" for feature in example.features),
            "release.json",
            "report.html",
        ),
    }
    for table in tables:
        published = whole_counts(folder, f"{table.name}.csv")
        for name in table.features:
            assert totals(table.features, published, [name]) == example.total([name])
    page = checked(release, saved)
    assert page.count("Published counts: ") == 3
    assert 'href="hair%20and%20eyes.csv"' in page


@pytest.mark.few(1)
@pytest.mark.parametrize("first", BUDGETS, ids=lambda budget: budget.kind)
@pytest.mark.parametrize("second", BUDGETS, ids=lambda budget: budget.kind)
def test_budgets_of_every_kind_compose(saved: Save, first: Budget, second: Budget) -> None:
    tables = [
        TableRequest(["sex", "region"], first, name="one"),
        TableRequest(["sex", "region"], second, name="two"),
    ]
    release = run(Plan(tables, BOTH, [SEX, REGION]), people(5))
    alone = [result.guarantee.tradeoff for result in release.results]
    together = release.guarantee.tradeoff
    assert together(0.5) <= min(curve(0.5) for curve in alone) + 1e-12
    assert together.epsilon("1e-9") >= max(curve.epsilon("1e-9") for curve in alone)
    if first == second:
        checked(release, saved)


def test_names_of_files_may_not_meet() -> None:
    for names in (("table", "measurements"), ("Eyes", "eyes"), ("eyes", "eyes-measurements")):
        tables = [TableRequest(["sex"], Budget.pure(1), name=name) for name in names]
        with pytest.raises(InputError, match="two requests would write"):
            Plan(tables)


def test_a_seed_is_said_everywhere(saved: Save) -> None:
    release = run(plan_of(), people(5), SeededRandomness(1))
    assert release.private is False
    page = checked(release, saved)
    assert "Not private." in page
    assert summary(release).startswith("NOT PRIVATE")
    assert strict_json((saved(release) / "release.json").read_text())["private"] is False
    assert "Not private." not in html(run(plan_of(), people(5)))


def test_levels_that_are_not_public(saved: Save) -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.pure(1))], [Margin("sex")])
    with pytest.raises(SchemaError, match="levels of region are not public"):
        run(plan, people(5))
    told = Plan(plan.requests, plan.invariants, levels_from_data=True)
    release = run(told, people(5))
    (disclosure,) = release.scope.disclosures
    assert disclosure in checked(release, saved)


@pytest.mark.pictures
def test_bins_null_level_where_and_id(saved: Save) -> None:
    data = {
        "person": np.arange(8),
        "age": np.array([3, 17, 18, 40, 64, 65, 90, np.nan]),
        "sex": np.array(list("fmfmfmfm")),
        "kept": np.array([1, 1, 1, 1, 1, 1, 1, 1]),
    }
    age = Feature("age", bins=[0, 18, 65, "inf"], null_level="unknown")
    plan = Plan(
        [TableRequest(["age", "sex"], Budget.zcdp(1))],
        [Margin("age"), Margin("sex")],
        [age],
        where="person <> 1",
        id="person",
    )
    release = run(plan, data)
    assert release.scope.dataspace.n == 7
    assert release.scope.dataspace.value(Margin("age")).counts.tolist() == [1, 3, 2, 1]
    page = checked(release, saved)
    assert "checked with the column &#39;person&#39;" in page
    with pytest.raises(DataError, match="twice"):
        run(plan, {**data, "person": np.array([0, 1, 2, 2, 3, 4, 5, 6])})


def test_a_source_must_be_opened_as_the_plan_says() -> None:
    data = {**people(5), "person": np.arange(5)}
    plan = plan_of(where="sex = 'f'", id="person")
    for options in ({}, {"where": "sex = 'f'"}, {"id": "person"}):
        with (
            open_source(data, **options) as source,
            pytest.raises(InputError, match="open it as the plan says"),
        ):
            run(plan, source)
    with open_source(data, where="sex = 'f'", id="person") as source:
        assert run(plan, source).scope.dataspace.n == 2


def test_a_plan_without_a_table_or_a_budget_is_refused() -> None:
    with pytest.raises(InputError, match="releases nothing"):
        run(Plan([], BOTH), people(5))
    with pytest.raises(InputError, match="no privacy budget"):
        run(Plan([TableRequest(["sex", "region"])], BOTH), people(5))


@pytest.mark.long
def test_many_cells_take_seconds(saved: Save, tmp_path: Path) -> None:
    """It takes about 2 s of an idle core."""
    import pyarrow as pa
    import pyarrow.parquet

    random = np.random.default_rng(1)
    file = tmp_path / "people.parquet"
    columns = {"row": random.integers(0, 300, 200_000), "column": random.integers(0, 300, 200_000)}
    pyarrow.parquet.write_table(pa.table(columns), file)
    started = time.process_time()
    release = run(
        Plan(
            [TableRequest(["row", "column"], Budget.zcdp("1/10"))],
            [Margin("row"), Margin("column")],
        ),
        file,
    )
    checked(release, saved)
    assert time.process_time() - started < 15
    published = release.tables[0].counts
    assert published.shape == (300, 300)
    assert published.min() >= 0
    assert np.array_equal(published.sum(axis=1), np.bincount(columns["row"], minlength=300))
    assert np.array_equal(published.sum(axis=0), np.bincount(columns["column"], minlength=300))
