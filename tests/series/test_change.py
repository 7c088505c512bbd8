"""Changes between releases, and weighted estimates: laws, coverage, and what is refused."""

import math

import numpy as np
import pytest
from benchmarks.series_coverage import coverage_of_changes, coverage_of_weights, period, release

import semidp as sd
from semidp.cli import run
from semidp.inference.design_weights import (
    PopulationStrata,
    read_strata,
    weighted_estimates,
)
from semidp.inference.linear_estimates import SumErrors
from semidp.inference.period_changes import Reading, _compare, compare_releases
from semidp.present.series_words import plan_next
from semidp.promise import Attendance, Series
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from tests.redrawn import redrawn


@pytest.fixture(scope="module")
def quarters():
    source = np.random.default_rng(1)
    return [release(period(source, 400 + 50 * q, 5 + q), 2, q) for q in range(3)]


def test_differences_are_of_the_unbiased_estimates_and_exact_ones_are_exact(quarters):
    found = sd.change(*quarters, names=["q1", "q2", "q3"])
    rows = {(row.statistic, row.labels, row.end): row for row in found.rows}
    assert len(rows) == len(found.rows) > 40
    for row in found.rows:
        assert row.difference == pytest.approx(row.after - row.before)
        assert row.lower <= row.difference <= row.upper
        assert row.exact == (row.statistic == "exact ward")
        assert not row.exact or row.lower == row.upper
    table = quarters[1]["table"]
    row = rows["table", (("ward", "a"), ("ill", "y")), "q2"]
    assert row.after == pytest.approx(float(table.estimate[0, 0]))


def test_the_interval_of_a_difference_is_narrower_than_two_intervals(quarters):
    found = compare_releases(quarters[:2], ["1", "2"])
    row = next(row for row in found.rows if row.statistic == "table")
    single = found.readings[0]["table"].intervals([0], 0.95)
    width = float(single[1][0] - single[0][0])
    # both have the same noise: a difference is about √2 as wide, and coarse noise makes it less so
    assert 1.2 * width < row.upper - row.lower < 1.7 * width


@pytest.mark.long
def test_intervals_hold_as_often_as_they_say():
    """False alarm below 1e-6: 40 pairs, 120 intervals of each kind at 0.95 or more."""
    for kind, (share, count) in coverage_of_changes(1.0, 40).items():
        assert count == 120
        assert share >= 0.95 - 4.9 * math.sqrt(0.95 * 0.05 / count), kind
    for kind, (share, count) in coverage_of_weights(1.0, 60).items():
        assert share >= 0.95 - 4.9 * math.sqrt(0.95 * 0.05 / count), kind


@pytest.fixture(scope="module")
def table():
    """A table of one feature, prepared once."""
    plan = sd.Plan(
        [TableRequest(["ill"], sd.Budget.gdp(1))], features=[sd.Feature("ill", ["y", "n"])]
    )
    return sd.prepare(plan, {"ill": ["y"] * 30 + ["n"] * 50})


def test_intervals_hold_and_those_of_one_release_would_not(table):
    """Nothing changed between 200 pairs. The twin takes the noise of one release alone."""
    missed, missed_alone = 0, 0
    for seed in range(200):
        pair = [redrawn(table, 2 * seed), redrawn(table, 2 * seed + 1)]
        found = compare_releases(pair, ["1", "2"], randomness=SeededRandomness(seed))
        low, high = found.readings[1]["table"].intervals([0], 0.95)
        row = found.rows[0]
        missed += not row.lower <= 0 <= row.upper
        missed_alone += abs(row.difference) > float(high[0] - low[0]) / 2
    assert missed <= 26  # 10 are expected: more than 26 in one of a million
    assert missed_alone > 26


def test_the_test_rejects_changes_and_not_noise(table):
    values = []
    for seed in range(60):
        pair = [redrawn(table, 2 * seed), redrawn(table, 2 * seed + 1)]
        (test,) = compare_releases(pair, ["1", "2"], randomness=SeededRandomness(seed)).tests
        values.append(test.p_value)
    assert sum(value <= 0.05 for value in values) <= 14  # 3 are expected
    other = sd.prepare(table.plan, {"ill": ["y"] * 60 + ["n"] * 50})
    (test,) = compare_releases([redrawn(table, 1), redrawn(other, 2)], ["1", "2"]).tests
    assert test.p_value < 0.001


def test_levels_that_come_and_go_are_matched_by_name_and_listed():
    tables = []
    for number, wards in enumerate(("aab", "aac")):
        data = {"ward": [*wards] * 20}
        tables.append(sd.release(data, sd.table("ward"), levels={"ward": sorted({*wards})}, mu=5))
        assert number < 2
    found = sd.change(*tables)
    assert {dict(row.labels)["ward"] for row in found.rows} == {"a"}
    assert {(dict(labels)["ward"], only) for _, labels, only in found.unmatched} == {
        ("b", ("1",)),
        ("c", ("2",)),
    }


def test_what_is_no_change_is_refused(quarters):
    with pytest.raises(sd.InputError, match="two releases or more"):
        sd.change(quarters[0])
    with pytest.raises(sd.InputError, match="named twice"):
        sd.change(quarters[0], quarters[0])
    other = sd.release({"sex": [*"fm"] * 9}, sd.table("sex"), levels={"sex": ["f", "m"]}, mu=1)
    with pytest.raises(sd.Refused, match="no row in common"):
        sd.change(quarters[0], other)


def test_weighted_totals_of_exact_strata(tmp_path, quarters):
    strata = tmp_path / "strata.csv"
    strata.write_text("ward,population\na,4000\nb,3000\nc,500\n")
    found = weighted_estimates(quarters[0], read_strata(strata))
    shares = [one.value for one in found if one.kind == "share"]
    assert sum(shares) == pytest.approx(1)
    assert {one.kind for one in found} == {"total", "share", "mean"}
    sizes = quarters[0].scope.dataspace.totals[0].counts
    table = quarters[0]["table"].estimate
    by_hand = sum(
        people / count * row[0]
        for people, count, row in zip((4000, 3000, 500), sizes, table, strict=True)
    )
    assert found[0].value == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ward,population\na,4000\na,5000\n", "vary within a stratum"),
        ("ward,population\na,4000\n", "do not say how many people"),
        ("ward,population\na,4000\nb,1\nc,500\n", "more records than people"),
        ("ward,people\na,4000\n", "one called population"),
        ("ill,population\ny,4000\nn,3\n", "must be exact"),
        ("ward,population\na,x\nb,1\nc,2\n", "population of a"),
    ],
)
def test_strata_that_do_not_fit_are_refused(tmp_path, quarters, text, sentence):
    path = tmp_path / "strata.csv"
    path.write_text(text)
    with pytest.raises(sd.SemidpError, match=sentence):
        weighted_estimates(quarters[0], read_strata(path))


def test_one_record_shows_no_spread():
    data = {"ward": [*"aab"], "ill": [*"yny"]}
    made = sd.release(
        data, sd.table("ward", "ill"), exact=["ward"], levels={"ill": ["y", "n"]}, mu=1
    )
    strata = PopulationStrata(("ward",), {("a",): 20.0, ("b",): 10.0})
    with pytest.raises(sd.Refused, match="one record"):
        weighted_estimates(made, strata, design=True)
    assert weighted_estimates(made, strata)
    whole = PopulationStrata(("ward",), {("a",): 20.0, ("b",): 1.0})  # everybody of ward b
    census = PopulationStrata(("ward",), {("a",): 2.0, ("b",): 1.0})
    assert all(one.design_error for one in weighted_estimates(made, whole, design=True))
    assert not any(one.design_error for one in weighted_estimates(made, census, design=True))


def test_commands_of_a_series(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = np.random.default_rng(2)
    opening = "ledger h.json --rho 0.5 --series quarter --each-person 4 --consecutive --exact ward"
    assert run(opening.split()) == 0
    for quarter in (1, 2):
        columns = period(source, 90, 5)
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"q{quarter}.csv").write_text("\n".join(lines) + "\n")
        asked = f"release q{quarter}.csv --table ward,ill --levels ill=y,n --exact ward --rho 0.125"
        asked += f" --period 2026Q{quarter} --ledger h.json --out r{quarter} --quiet"
        assert run(asked.split()) == 0
    assert run(["series", "h.json", "r2", "--write", "next.toml"]) == 0
    assert (
        run(["change", "r1", "r2", "--out", "c.csv", "--picture", "c.svg", "--format", "json"]) == 0
    )
    said = capsys.readouterr().out
    assert "one person in up to 4 consecutive quarters" in said
    assert "2026Q3 may spend rho = 0.25" in said
    assert sd.Plan.from_toml((tmp_path / "next.toml").read_text()).period == "2026Q3"
    assert (tmp_path / "c.csv").read_text().startswith("statistic,row,from,to,before")
    assert run(["ledger", "h.json", "--check", "r1", "r2"]) == 0
    document = tmp_path / "r2" / "release.json"
    document.write_text(document.read_text().replace("2026Q2", "2026Q4"))
    assert run(["ledger", "h.json", "--check", "r1", "r2"]) == 1
    assert "is for 2026Q2, and it names another period" in capsys.readouterr().out
    assert (
        run(
            [
                "release",
                "q2.csv",
                "--table",
                "ward",
                "--exact",
                "ward",
                "--rho",
                "0.1",
                "--ledger",
                "h.json",
                "--out",
                "x",
            ]
        )
        == 2
    )
    assert "name the period of the data (--period 2026Q3)" in capsys.readouterr().err


def test_releases_of_other_periods_are_not_combined():
    data = {"ward": [*"aab"] * 20}
    made = [
        sd.release(data, sd.table("ward"), levels={"ward": ["a", "b"]}, mu=1, period=period)
        for period in ("2026Q1", "2026Q2")
    ]
    with pytest.raises(sd.Refused, match="different periods"):
        sd.combine(*made)


def test_ratios_of_numbers_of_either_sign_are_open_where_the_first_may_be_zero():
    """A mean of -0.5 and noise of about 1: it may seem to be above 0."""
    wards = {"ward": [*"ab"] * 20}
    open_ratios = 0
    for seed in range(12):
        pair = [
            sd.release(
                {**wards, "y": [value] * 40},
                sd.mean("y", by="ward", bounds=(-10, 10)),
                exact=["ward"],
                mu=1,
                randomness=SeededRandomness(2 * seed + number),
            )
            for number, value in enumerate((-0.5, 8.0))
        ]
        for row in sd.change(*pair).rows:
            if row.statistic == "mean-y":
                # two ends of level 0.975 in 24 rows: all of them hold with these seeds
                assert row.ratio_lower <= -16 <= row.ratio_upper
                open_ratios += row.ratio_upper == math.inf
    assert open_ratios > 12


@pytest.mark.parametrize("statistic", [sd.mean, sd.distribution])
def test_other_bounds_of_an_outcome_are_no_change(statistic):
    """The records are the same; bounds of 5 would show a mean that fell."""
    data = {"ward": [*"ab"] * 20, "y": [9.0] * 40}
    made = [
        sd.release(data, statistic("y", by="ward", bounds=(0, most)), exact=["ward"], mu=50)
        for most in (10, 5)
    ]
    found = sd.change(*made)
    assert {row.statistic for row in found.rows} == {"exact ward"}
    assert found.left_out
    assert all("other bounds" in reason for _, reason in found.left_out)


def test_intervals_of_two_levels_hold_together_with_what_is_left():
    labels = ((("ward", "a"),),)
    ends = np.array([1.0]), np.array([3.0])
    published = Reading("mean-y", labels, np.array([2.0]), ends=ends, level=0.95)
    computed = Reading("mean-y", labels, np.array([2.0]), SumErrors(1))
    for level in (0.5, 0.99):
        (row,), _ = _compare(published, computed, ("1", "2"), level, SeededRandomness(1))
        assert row.level == pytest.approx(level - 0.05)


def test_nested_features_are_compared_and_weighted():
    def make(seed: int) -> sd.Release:
        return sd.release(
            {"state": [*"AAB"] * 30, "county": ["a1", "a2", "b1"] * 30, "ill": [*"yn"] * 45},
            sd.table("county", "ill"),
            exact=["county"],
            nest=["state", "county"],
            levels={"ill": ["y", "n"]},
            levels_from_data=True,
            mu=50,
            randomness=SeededRandomness(seed),
        )

    rows = sd.change(make(1), make(2)).rows
    assert (("state", "A"), ("county", "a2"), ("ill", "n")) in {row.labels for row in rows}
    by_state = PopulationStrata(("state",), {("A",): 600.0, ("B",): 900.0})
    totals = [one for one in weighted_estimates(make(1), by_state) if one.kind == "total"]
    truth = [10 * 15, 10 * 15, 10 * 15, 10 * 15, 30 * 15, 30 * 15]
    assert [one.value for one in totals] == pytest.approx(truth, abs=5)
    both = PopulationStrata(("state", "county"), {("A", "a1"): 60.0})
    with pytest.raises(sd.Refused, match="finest column alone"):
        weighted_estimates(make(1), both)


def test_weighted_means_allow_for_the_grid_of_the_outcome():
    """All values lie between two steps, and there is next to no noise."""
    data = {"ward": [*"ab"] * 50, "y": [2.4] * 100}
    asked = sd.mean("y", by="ward", bounds=(0, 10), steps=10)
    made = sd.release(data, asked, exact=["ward"], mu=10_000)
    strata = PopulationStrata(("ward",), {("a",): 500.0, ("b",): 700.0})
    total, mean = weighted_estimates(made, strata)
    assert total.lower <= 1200 * 2.4 <= total.upper
    assert mean.lower <= 2.4 <= mean.upper
    assert mean.value == pytest.approx(2, abs=0.1)


def test_means_of_those_who_answered_are_not_weighted_by_strata_of_all():
    data = {"ward": [*"aabb"] * 10, "y": [3.0, None, 4.0, None] * 10}
    asked = sd.mean("y", by="ward", bounds=(0, 10))
    made = sd.release(data, asked, missing={"y": "exact"}, levels={"ward": ["a", "b"]}, mu=1)
    sizes = {(ward, answer): 50.0 for ward in "ab" for answer in ("no", "yes")}
    with pytest.raises(sd.Refused, match="nothing by ward"):
        weighted_estimates(made, PopulationStrata(("ward", "y answered"), sizes))


def test_the_next_plan_asks_for_no_more_than_is_left(tmp_path):
    ledger = sd.Ledger.create(
        tmp_path / "ledger.json",
        sd.Budget.zcdp(1),
        series=Series("quarter", Attendance(4, consecutive=True)),
    )
    data = {"ward": [*"aab"] * 20}
    for when, rho in (("2026Q1", "0.5"), ("2026Q2", "0.4")):
        made = sd.release(
            data, sd.table("ward"), levels={"ward": ["a", "b"]}, rho=rho, ledger=ledger, period=when
        )
    plan = plan_next(ledger.series_account(), made)
    assert plan.period == "2026Q3"
    assert plan.budget == sd.Budget.zcdp("0.1")


def test_what_is_not_compared_is_said():
    data = {"ward": [*"ab"] * 20, "y": [float(number % 7) for number in range(40)]}
    made = [
        sd.release(
            data,
            sd.table("ward"),
            sd.mean("y", by="ward", bounds=(0, most)),
            *further,
            exact=["ward"],
            mu=1,
        )
        for most, further in ((10, ()), (9, [sd.total("y", by="ward", bounds=(0, 9))]))
    ]
    found = sd.change(*made)
    assert dict(found.left_out) == {
        "mean-y": "it has other bounds in some periods, and values were moved to them",
        "sum-y": "it is only in 2",
    }
    assert found.to_json()["left_out"][0]["statistic"] == "mean-y"


@pytest.mark.parametrize("level", [None, 0.5, 0.99])
def test_medians_change_at_the_level_of_their_own_intervals(level):
    data = {"ward": [*"ab"] * 40, "y": [float(number % 7) for number in range(80)]}
    asked = [
        sd.median("y", by="ward", bounds=(0, 10), level=level),
        sd.distribution("y", by="ward", bounds=(0, 10), level=level or 0.9),
        sd.median("y", bounds=(0, 10), level=0.9, sampling=True, name="population"),
    ]
    made = [sd.release(data, *asked, exact=["ward"], mu=9, seed=seed) for seed in (1, 2)]
    found = sd.change(*made)
    levels = {row.statistic: row.level for row in found.rows if not row.exact}
    kept = pytest.approx(max(2 * (level or 0.9) - 1, 0))
    assert levels.pop("distribution-y-quantiles") == kept
    assert levels == ({} if level is None else {"median-y": kept})
    reasons = dict(found.left_out)
    assert "ask for them with a level" in reasons.pop("population")
    assert [*reasons] == ([] if level else ["median-y"])


def test_levels_that_come_and_go_are_drawn_with_gaps():
    made = [
        sd.release({"ward": [*wards] * 10}, sd.table("ward"), levels={"ward": [*wards]}, mu=1)
        for wards in ("ab", "bc")
    ]
    panels = sd.change(*made).plot().axes
    assert [axes.get_title("left") for axes in panels] == ["a", "b", "c"]
    drawn = [np.isfinite(axes.lines[0].get_ydata()).tolist() for axes in panels]
    assert drawn == [[True, False], [True, True], [False, True]]


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("2025Q4", "2026Q2", "2026Q3"), [0, 2, 3]),  # a quarter without a release
        (("2025Q4", "2025Q4r1", "2026Q1"), [0, 1, 2]),  # a correction has no place of its own
        (("b", "a", "c"), [0, 1, 2]),
    ],
)
def test_periods_are_drawn_where_they_lie(names, places, table):
    found = compare_releases([redrawn(table, seed) for seed in range(3)], names)
    assert found.plot().axes[0].lines[0].get_xdata().tolist() == places


def test_counts_have_no_ratio_to_nothing(table):
    """An estimate of 0 or below for a count: the ratio is not known, and never below 0."""
    labels = tuple((("ward", name),) for name in "abc")
    first = Reading("table", labels, np.array([0.0, -1.0, 2.0]), SumErrors(3), least=0)
    second = Reading("table", labels, np.array([-2.0, 3.0, -1.0]), SumErrors(3), least=0)
    rows, _ = _compare(first, second, ("1", "2"), 0.95, SeededRandomness(1))
    assert [row.to_json()["ratio"] for row in rows] == [None, None, 0.0]


def test_levels_near_one_make_wide_intervals(table):
    pair = [redrawn(table, 1), redrawn(table, 2)]
    widths = []
    for level in (0.95, 0.999, 0.99999, 0.999999, 1 - 1e-9):
        row = compare_releases(pair, ["1", "2"], level).rows[0]
        widths.append(row.upper - row.lower)
    assert widths == sorted(widths)
    assert widths[-1] > 2 * widths[0]


def test_weighted_means_have_the_sampling_error_that_bounds_allow():
    """Zeros and tens spread as far as a mean allows; by hand, next to no noise."""
    data = {"ward": [*"ab"] * 50, "y": [0.0, 10.0, 10.0, 10.0] * 25}
    asked = sd.mean("y", by="ward", bounds=(0, 10)), sd.total("y", by="ward", bounds=(0, 10))
    made = sd.release(data, *asked, exact=["ward"], mu=10_000)
    strata = PopulationStrata(("ward",), {("a",): 500.0, ("b",): 50.0})  # all of ward b
    found = [one for one in weighted_estimates(made, strata, design=True) if one.kind == "mean"]
    spread = 50 / 49 * 10**2 * 0.5 * 0.5  # ward a has as many zeros as tens
    error = (500**2 * (1 - 50 / 500) * spread / 50) ** 0.5 / 550
    assert [one.design_error for one in found] == [pytest.approx(error, rel=1e-3)] * 2
    assert [one.value for one in found] == [pytest.approx((500 * 5 + 50 * 10) / 550, rel=1e-3)] * 2


def test_several_records_of_a_person_widen_sampling_intervals():
    """Three records each that are all alike: three times the variance, or 0.74 of intervals hold."""
    data = {"id": [*range(20)] * 3, "ward": [*"ab"] * 30, "ill": [*"yyn"] * 20, "y": [4.0] * 60}
    asked = sd.table("ward", "ill"), sd.mean("y", by="ward", bounds=(0, 10))
    strata = PopulationStrata(("ward",), {("a",): 500.0, ("b",): 700.0})
    errors = []
    for most in ({}, {"id": "id", "most": 3}):
        made = sd.release(
            data, *asked, exact=["ward"], levels={"ill": [*"yn"], "ward": [*"ab"]}, mu=10**5, **most
        )
        found = weighted_estimates(made, strata, design=True)
        errors.append([one.design_error for one in found])
    assert len(errors[0]) == 6
    assert errors[1] == pytest.approx([error * math.sqrt(3) for error in errors[0]], rel=1e-3)


def test_huge_strata_are_refused(tmp_path):
    data = {"ward": [*"ab"] * 9, "ill": [*"yyn"] * 6}
    made = sd.release(
        data, sd.table("ward", "ill"), exact=["ward"], levels={"ill": ["y", "n"]}, mu=1
    )
    path = tmp_path / "strata.csv"
    for text in ("1e400", "1e-400", "-1", "1e16"):
        path.write_text(f"ward,weight\na,{text}\nb,2\n")
        with pytest.raises(sd.InputError, match=r"weight of a must be|more records|more than"):
            weighted_estimates(made, read_strata(path))
    for is_weight in (False, True):
        huge = PopulationStrata(("ward",), {("a",): 1e200, ("b",): 1e308}, is_weight)
        with pytest.raises(sd.InputError, match="people"):
            weighted_estimates(made, huge, design=True)


def test_an_odds_ratio_is_not_compared_by_its_p_value():
    """Its interval belongs to neither of the numbers next to it, and is about a population."""
    data = {"sex": [*"fm"] * 40, "ill": [*"yynynyyn"] * 10}
    asked = sd.publish.OddsRatioRequest("sex", "ill", sd.Budget.gdp(1))
    made = [sd.run(sd.Plan([asked], ["sex", "ill"]), data) for _ in range(2)]
    found = sd.change(*made)
    assert {row.statistic for row in found.rows} == {"exact sex", "exact ill"}
    assert [name for name, _ in found.left_out] == ["odds-ratio-sex-ill"]
