"""What a plan would publish, from public values alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semidp import Budget, Dataspace, Feature, Margin, Plan, Schema, StructuralZero, Table, TableRequest, prepare, run
from semidp.publishing.pipeline import calibrate
from semidp.report.outlook import expected_counts, forecast
from semidp.statistics.outcomes.request import outcome_from
from semidp.statistics.sums.request import GroupRequest
from semidp.statistics.tables.request import TablesRequest

PLACES = Feature.nested(("county", "district"), [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("b", "5")])
SEX, AGE, REGION = Feature("sex", "fm"), Feature("age", "yom"), Feature("region", "nsw")
MARGINS = {
    "nothing": [],
    "disjoint": [Margin("sex"), Margin("age")],
    "chain": [Margin("sex", "age"), Margin("age", "region")],
    "pairs": [Margin("sex", "age"), Margin("age", "region"), Margin("sex", "region")],
}


@pytest.mark.parametrize("margins", MARGINS.values(), ids=list(MARGINS))
@given(cells=st.lists(st.integers(0, 40), min_size=18, max_size=18).filter(any))
def test_expected_counts_have_the_published_totals(margins: list[Margin], cells: list[int]) -> None:
    table = Table(Schema([SEX, AGE, REGION]), np.array(cells).reshape(2, 3, 3))
    space = Dataspace.of(table, margins)
    found = expected_counts(space)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(table.n)
    for total in space.published:
        slack = 1e-6 if len(margins) < 3 else 0.3 + 1e-2 * table.n  # pairs need many sweeps where cells are empty
        np.testing.assert_allclose(space.schema.grid.sum(found, total.view), total.counts, rtol=1e-6, atol=slack)


def test_they_are_the_product_of_the_margins() -> None:
    table = Table(Schema([SEX, AGE, REGION]), np.arange(18).reshape(2, 3, 3))
    sexes, ages = (table.margin([name]).counts for name in ("sex", "age"))
    alone = expected_counts(Dataspace.of(table, [Margin("sex"), Margin("age")]))
    np.testing.assert_allclose(alone, np.multiply.outer(sexes, ages)[:, :, None] / table.n / 3 * np.ones(3))
    left, right, shared = (table.margin(names).counts for names in (["sex", "age"], ["age", "region"], ["age"]))
    chained = expected_counts(Dataspace.of(table, [Margin("sex", "age"), Margin("age", "region")]))
    np.testing.assert_allclose(chained, left[:, :, None] * right[None] / shared[None, :, None])


def test_impossible_cells_are_expected_to_be_empty_and_nodes_share_evenly() -> None:
    schema = Schema([SEX, AGE], [StructuralZero.of({"sex": "m", "age": "y"})])
    table = Table(schema, [[3, 4, 5], [0, 2, 1]])
    found = expected_counts(Dataspace.of(table, [Margin("sex")]))
    np.testing.assert_allclose(found, [[4, 4, 4], [0, 1.5, 1.5]])
    nested = Table(Schema([PLACES]), [9, 1, 2, 3, 7])
    np.testing.assert_allclose(expected_counts(Dataspace.of(nested, [Margin("county")])), [5, 5, 4, 4, 4])


def test_a_forecast_never_looks_at_the_confidential_table() -> None:
    """Two datasets with the same totals have the same forecast, and it needs no confidential value."""
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    one = {"sex": [*"ffmm"], "region": [*"nsns"]}
    other = {"sex": [*"ffmm"], "region": [*"nnss"]}
    seen = [forecast(prepare(plan, people)) for people in (one, other)]
    assert seen[0] == seen[1] == forecast(calibrate(plan, prepare(plan, one).scope))


def test_its_errors_are_those_of_the_release() -> None:
    people = {"sex": [*"ffmmf"] * 9, "age": [*"yoyoo"] * 9, "region": [*"nnsns"] * 9}
    product = TablesRequest([TableRequest(["sex", "age"]), TableRequest(["sex", "region"])], Budget.gdp(1))
    score = GroupRequest("mean", outcome_from("score", [0, 10], 10), [["sex"]], Budget.gdp(1))
    plan = Plan([product, score], invariants=["sex"], levels_from_data=True)
    data = {**people, "score": [1, 2, 3, 4, 5] * 9}
    seen, release = forecast(prepare(plan, data)), run(plan, data)
    for table, published in zip(seen["tables"], release.product.tables, strict=True):
        assert table["errors"]["largest"] == pytest.approx(published.standard_errors.max())
        assert table["cells"] == published.counts.size
    assert seen["statistics"][0]["name"] == "mean-score"
    assert seen["guarantee"]["tradeoff"] == release.guarantee.tradeoff.to_json()


def test_what_is_fixed_has_no_error_and_noise_dominates_small_counts() -> None:
    people = {"sex": ["f"] * 90 + ["m"] * 3, "region": [*"nsw"] * 31}
    table = TableRequest(["sex", "region"], Budget.gdp(1))
    fixed = forecast(prepare(Plan([table], [["sex", "region"]]), people))["tables"][0]
    assert (fixed["errors"]["largest"], fixed["dominated"]) == (0.0, 0.0)
    some = forecast(prepare(Plan([table], ["sex"], [REGION]), people))["tables"][0]
    assert some["expected"] == {"smallest": 1.0, "median": 15.5, "largest": 30.0}
    assert some["dominated"] == 0.5
