"""What a plan would publish, from public values alone."""

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from semidp import (
    Budget,
    Dataspace,
    Feature,
    Margin,
    Plan,
    Schema,
    StructuralZero,
    Table,
    prepare,
    run,
)
from semidp.present.forecasts import comparison, forecast
from semidp.promise.mechanisms.mechanism import NoNoise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.outcome import Outcome
from semidp.publish import TableRequest
from semidp.publish.pipeline import RunOptions, calibrate
from semidp.publish.statistics.answered import AnsweredRequest
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.outcomes.request import binary_outcome
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest
from semidp.publish.statistics.tables.request import TablesRequest
from semidp.publish.statistics.tables.words import expected_counts

PLACES = Feature.from_paths(
    ("county", "district"), [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("b", "5")]
)
SEX, AGE, REGION = Feature("sex", "fm"), Feature("age", "yom"), Feature("region", "nsw")
MARGINS = {
    "nothing": [],
    "disjoint": [Margin("sex"), Margin("age")],
    "chain": [Margin("sex", "age"), Margin("age", "region")],
    "pairs": [Margin("sex", "age"), Margin("age", "region"), Margin("sex", "region")],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("margins", MARGINS.values(), ids=list(MARGINS))
@given(cells=st.lists(st.integers(0, 40), min_size=18, max_size=18).filter(any))
def test_expected_counts_have_the_published_totals(margins: list[Margin], cells: list[int]) -> None:
    table = Table(Schema([SEX, AGE, REGION]), np.array(cells).reshape(2, 3, 3))
    space = Dataspace.from_table(table, margins)
    found = expected_counts(space)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(table.n)
    for total in space.published_totals:
        # pairs need many sweeps where cells are empty
        slack = 1e-6 if len(margins) < 3 else 0.3 + 1e-2 * table.n
        np.testing.assert_allclose(
            space.schema.grid.sum(found, total.view), total.counts, rtol=1e-6, atol=slack
        )


def test_they_are_the_product_of_the_margins() -> None:
    table = Table(Schema([SEX, AGE, REGION]), np.arange(18).reshape(2, 3, 3))
    sexes, ages = (table.margin([name]).counts for name in ("sex", "age"))
    alone = expected_counts(Dataspace.from_table(table, [Margin("sex"), Margin("age")]))
    np.testing.assert_allclose(
        alone, np.multiply.outer(sexes, ages)[:, :, None] / table.n / 3 * np.ones(3)
    )
    left, right, shared = (
        table.margin(names).counts for names in (["sex", "age"], ["age", "region"], ["age"])
    )
    chained = expected_counts(
        Dataspace.from_table(table, [Margin("sex", "age"), Margin("age", "region")])
    )
    np.testing.assert_allclose(chained, left[:, :, None] * right[None] / shared[None, :, None])


def test_impossible_cells_are_expected_to_be_empty_and_nodes_share_evenly() -> None:
    schema = Schema([SEX, AGE], [StructuralZero.from_pattern({"sex": "m", "age": "y"})])
    table = Table(schema, [[3, 4, 5], [0, 2, 1]])
    found = expected_counts(Dataspace.from_table(table, [Margin("sex")]))
    np.testing.assert_allclose(found, [[4, 4, 4], [0, 1.5, 1.5]])
    nested = Table(Schema([PLACES]), [9, 1, 2, 3, 7])
    np.testing.assert_allclose(
        expected_counts(Dataspace.from_table(nested, [Margin("county")])), [5, 5, 4, 4, 4]
    )


def test_a_forecast_never_looks_at_the_confidential_table() -> None:
    """Two datasets with the same totals have the same forecast, and it needs no confidential
    value.
    """
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    one = {"sex": [*"ffmm"], "region": [*"nsns"]}
    other = {"sex": [*"ffmm"], "region": [*"nnss"]}
    seen = [forecast(prepare(plan, people)).document for people in (one, other)]
    assert seen[0] == seen[1] == forecast(calibrate(plan, prepare(plan, one).scope)).document


def test_its_errors_are_those_of_the_release() -> None:
    people = {"sex": [*"ffmmf"] * 9, "age": [*"yoyoo"] * 9, "region": [*"nnsns"] * 9}
    product = TablesRequest(
        [TableRequest(["sex", "age"]), TableRequest(["sex", "region"])], Budget.gdp(1)
    )
    score = GroupRequest("mean", Outcome("score", 0, 10, 10), [["sex"]], Budget.gdp(1))
    plan = Plan([product, score], invariants=["sex"], levels_from_data=True)
    data = {**people, "score": [1, 2, 3, 4, 5] * 9}
    seen, release = forecast(prepare(plan, data)).document, run(plan, data)
    for table, published in zip(seen["tables"], release.tables, strict=True):
        assert table["errors"]["largest"] == pytest.approx(published.standard_errors.max())
        assert table["cells"] == published.counts.size
    assert seen["statistics"][0]["name"] == "mean-score"
    assert seen["guarantee"]["tradeoff"] == release.guarantee.tradeoff.to_json()


def test_what_is_fixed_has_no_error_and_noise_dominates_small_counts() -> None:
    people = {"sex": ["f"] * 90 + ["m"] * 3, "region": [*"nsw"] * 31}
    table = TableRequest(["sex", "region"], Budget.gdp(1))
    fixed = forecast(prepare(Plan([table], [["sex", "region"]]), people)).document["tables"][0]
    assert (fixed["errors"]["largest"], fixed["dominated"]) == (0.0, 0.0)
    some = forecast(prepare(Plan([table], ["sex"], [REGION]), people)).document["tables"][0]
    assert some["expected"] == {"smallest": 1.0, "median": 15.5, "largest": 30.0}
    assert some["dominated"] == 0.5


OUTCOME = Outcome("score", 0, 10, 10)
TOGETHER = TablesRequest(
    [TableRequest(["sex", "age"]), TableRequest(["age", "region"])], Budget.gdp(1)
)
MEAN = GroupRequest("mean", OUTCOME, [["sex"]], Budget.gdp(1))
OTHERS = [
    TableRequest(["sex", "region"], Budget.gdp(1)),
    RegressionRequest(OUTCOME, ["sex"], Budget.gdp(1)),
    QuantileRequest(OUTCOME, [["sex"]], budget=Budget.gdp(1)),
    DistributionRequest(OUTCOME, [["sex"]], budget=Budget.gdp(1)),
]
EVERY_KIND = Plan([TOGETHER, MEAN, *OTHERS], invariants=["sex"], levels_from_data=True)
PEOPLE = {
    "sex": [*"ffmmf"] * 9,
    "age": [*"yoyoo"] * 9,
    "region": [*"nnsns"] * 9,
    "score": [1, 2, 3, 4, 5] * 9,
}


def test_nothing_that_is_asked_for_is_forgotten() -> None:
    prepared = prepare(EVERY_KIND, PEOPLE)
    seen = forecast(prepared)
    assert [len(foreseen) for foreseen in seen.by_request] == [1, 2, 1, 1, 1, 1]
    names = [
        "table",
        "sex-age",
        "age-region",
        "mean-score",
        "regression-score",
        "median-score",
        "distribution-score",
    ]
    assert [each.name for each in seen.forecasts] == names
    listed = seen.document["tables"] + seen.document["statistics"]
    assert listed == [each.to_json() for each in seen.forecasts]
    rows = dict(comparison([seen, forecast(prepare(evolve(EVERY_KIND, requests=OTHERS), PEOPLE))]))
    assert rows["mean-score"][0].startswith("standard error of each mean ")
    assert rows["mean-score"][1] == rows["sex by age"][1] == "not published"
    assert rows["regression-score"][0] == rows["regression-score"][1]
    assert "records from the true one" in rows["median-score"][0]
    assert "a whole curve ±" in rows["distribution-score"][0]
    for (request, mechanism), foreseen in zip(
        prepared.calibrated_requests, seen.by_request, strict=True
    ):
        said = " ".join(request.noise_lines(mechanism, foreseen))
        assert mechanism.name in said
        assert request.noise_json(mechanism, foreseen)["noise"] == mechanism.to_json()


def ends_and_median(errors: Any) -> list[float]:
    return [float(np.min(errors)), float(np.median(errors)), float(np.max(errors))]


def foretold_errors(entry: Any) -> list[float]:
    return [entry[f"{which}_standard_error"] for which in ("smallest", "median", "largest")]


def test_what_is_foreseen_of_an_outcome_is_what_comes_out() -> None:
    seen, release = forecast(prepare(EVERY_KIND, PEOPLE)), run(EVERY_KIND, PEOPLE)
    mean, regression, median, distribution = seen.document["statistics"]
    errors = release.groups[0].estimates[0].standard_errors
    np.testing.assert_allclose(foretold_errors(mean), ends_and_median(errors))
    assert (
        mean["median_standard_error"]
        < mean["largest_standard_error"]
        < mean["standard_error_of_sums"]
    )
    fitted = release.regressions[0].estimates[0]
    np.testing.assert_allclose([*regression["standard_errors"].values()], fitted.standard_errors)
    assert release.quantiles[0].facts["rank_error"] == median["rank_error"] > 0
    analysis = release.distributions[0].analysis
    assert analysis.block_band_widths(None).max() == distribution["band"] > 0


SETS = [["sex"], ["region"]]
BINARY = {**PEOPLE, "ok": [0, 1, 1, 0, 1] * 9}


@pytest.mark.few(6)
@pytest.mark.parametrize("by", [[["sex"]], [["sex", "age"]], SETS], ids=["one", "joint", "two"])
@pytest.mark.parametrize("statistic", ["mean", "sum", "proportion"])
@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.pure(1)], ids=["gdp", "pure"])
def test_errors_of_groups_are_foreseen(statistic: str, by: list[list[str]], budget: Budget) -> None:
    outcome = binary_outcome("ok") if statistic == "proportion" else OUTCOME
    request = GroupRequest(statistic, outcome, by, budget)
    plan = Plan([request], invariants=by, levels_from_data=True)
    (entry,) = forecast(prepare(plan, BINARY)).document["statistics"]
    (groups,) = run(plan, BINARY).groups
    errors = np.concatenate([part.standard_errors for part in groups.estimates])
    np.testing.assert_allclose(foretold_errors(entry), ends_and_median(errors))
    # The twin: the error of a sum, which was said of means too, is another number.
    if statistic != "sum":
        assert entry["largest_standard_error"] < entry["standard_error_of_sums"] / 2


def test_a_group_without_records_has_no_error() -> None:
    empty = Feature("sex", ["f", "m", "x"])
    request = GroupRequest("mean", OUTCOME, [["sex"]], Budget.gdp(1))
    plan = Plan([request], invariants=["sex"], features=[empty])
    (entry,) = forecast(prepare(plan, PEOPLE)).document["statistics"]
    (plain,) = forecast(
        prepare(evolve(plan, features=[Feature("sex", ["f", "m"])]), PEOPLE)
    ).document["statistics"]
    assert foretold_errors(entry) == foretold_errors(plain)


@pytest.mark.parametrize("coding", ["treatment", "effects"])
def test_errors_of_coefficients_are_foreseen(coding: str) -> None:
    request = RegressionRequest(OUTCOME, ["sex", "age"], Budget.gdp(1), coding=coding)
    plan = Plan([request], invariants=[["sex", "age"]], levels_from_data=True)
    (entry,) = forecast(prepare(plan, PEOPLE)).document["statistics"]
    (fitted,) = run(plan, PEOPLE).regressions[0].estimates
    assert [(name,) for name in entry["standard_errors"]] == list(fitted.groups)
    np.testing.assert_allclose([*entry["standard_errors"].values()], fitted.standard_errors)


def test_errors_of_a_logistic_regression_are_foreseen_at_even_odds() -> None:
    even = {"sex": [*"fm"] * 400, "ok": [0, 0, 1, 1] * 200}
    request = RegressionRequest(binary_outcome("ok"), ["sex"], Budget.gdp(4), model="logistic")
    plan = Plan([request], invariants=["sex"], levels_from_data=True)
    (entry,) = forecast(prepare(plan, even)).document["statistics"]
    seeded = RunOptions(randomness=SeededRandomness(1))
    errors = run(plan, even, seeded).regressions[0].estimates[0].standard_errors
    np.testing.assert_allclose([*entry["standard_errors"].values()], errors, rtol=0.01)
    assert entry["at_even_odds"]


@pytest.mark.parametrize("statistic", ["mean", "sum", "proportion"])
def test_errors_of_those_who_answered_are_foreseen(statistic: str) -> None:
    outcome = binary_outcome("ok") if statistic == "proportion" else OUTCOME
    request = AnsweredRequest(statistic, outcome, [["sex"]], Budget.gdp(4))
    plan = Plan([request], invariants=["sex"], levels_from_data=True).with_values_read()
    # All answer, and all values are at a bound: the error that is foretold is reached.
    people = {"sex": [*"ffm"] * 400, "ok": [1] * 1200, "score": [10.0] * 1200}
    (entry,) = forecast(prepare(plan, people)).document["statistics"]
    seeded = RunOptions(randomness=SeededRandomness(2))
    estimates = run(plan, people, seeded).answers[0].estimates[0]
    expected = ends_and_median(estimates.standard_errors)
    np.testing.assert_allclose(foretold_errors(entry), expected, rtol=0.05)
    np.testing.assert_allclose(entry["standard_error_of_answered"], estimates["answered_error"])


def test_quantiles_of_nobody_have_a_forecast() -> None:
    request = QuantileRequest(OUTCOME, [["sex"]], budget=Budget.gdp(1))
    scope = prepare(EVERY_KIND, PEOPLE).scope
    mechanism = NoNoise(request.space(scope))
    foreseen = request.forecast(mechanism, scope)
    assert foreseen[0].line() == "no noise: there is no record"
    assert foreseen[0].to_json()["rank_error"] is None
    assert request.noise_lines(mechanism, foreseen) == [
        "no noise for median-score: no noise: there is no record"
    ]


@pytest.mark.parametrize("sets", [[["sex"]], [["sex"], ["region"]]])
def test_the_error_of_a_mean_that_is_foreseen_is_that_of_the_means(sets: list) -> None:
    """Not that of the sums behind them, which nobody publishes."""
    score = Outcome("score", 0, 10, 100)
    request = GroupRequest("mean", score, sets, Budget.gdp(1))
    prepared = prepare(Plan([request], sets), PEOPLE)
    ((foreseen,),) = forecast(prepared).by_request
    result = run(prepared.plan, PEOPLE).results[0]
    errors = np.concatenate([part.standard_errors for part in result.estimates])
    numbers = foreseen.numbers
    assert numbers["smallest_standard_error"] == pytest.approx(errors.min())
    assert numbers["largest_standard_error"] == pytest.approx(errors.max())
    assert numbers["standard_error_of_sums"] > 5 * numbers["largest_standard_error"]
