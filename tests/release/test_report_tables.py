"""Tables of the report: sums that add up, marks where noise dominates, scales of the estimates,
what machines read.
"""

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, Outcome, Plan, Release, run
from semidp.present.report.report_page import html
from semidp.present.report.sentences import strength
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.plotting import estimates_plot
from semidp.publish.results.grids import CellGrid, Total, faint_cells, grid
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest

RANDOM = np.random.default_rng(5)
PEOPLE = {
    "sex": RANDOM.choice([*"fm"], 300),
    "age": RANDOM.choice([*"yo"], 300),
    "region": RANDOM.choice(["north", "south", "west"], 300, p=[0.7, 0.28, 0.02]),
    "score": RANDOM.integers(40, 60, 300),
}
SCORE = Outcome("score", 0, 110, 110)


def released(plan: Plan) -> Release:
    return run(plan, PEOPLE, SeededRandomness(3))


@pytest.fixture(scope="module")
def three() -> Release:
    exact = [["sex", "age"], ["region"]]
    return released(Plan([TableRequest(["sex", "age", "region"], Budget.gdp("1/3"))], exact))


@pytest.fixture(scope="module")
def everything() -> Release:
    product = TablesRequest(
        [TableRequest(["sex", "age"]), TableRequest(["region, old"])], Budget.gdp(1)
    )
    means = GroupRequest("mean", SCORE, [["sex"], ["region, old"]], Budget.gdp(1))
    slopes = RegressionRequest(SCORE, ["sex"], Budget.gdp(1))
    data = {**PEOPLE, "region, old": PEOPLE["region"]}
    alone = [
        TableRequest(["sex"], Budget.gdp(1), name="alone"),
        TableRequest(["age"], Budget.gdp(1), fit="none", name="r"),
    ]
    closed = Feature("region, old", ["north", "south", "west", "gone"])
    plan = Plan(
        [*alone, product, means, slopes], ["sex", "region, old"], [closed, Feature("age", "yo")]
    )
    return run(plan, data, SeededRandomness(3))


def laid_out(release: Release) -> CellGrid:
    found = grid(release.tables[0], release.scope.dataspace)
    assert found is not None
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_lines_blocks_and_columns_add_up(three: Release) -> None:
    cells = laid_out(three)
    assert (cells.side, cells.across) == (("sex", "age"), "region")
    counts = three.tables[0].counts
    for row, line in zip(cells.rows, counts.reshape(-1, 3), strict=True):
        assert (
            number(row.total.count) == sum(number(cell.count) for cell in row.cells) == line.sum()
        )
    blocks = [row.subtotals for row in cells.rows if row.subtotals]
    assert [[number(total.count) for total in block] for block in blocks] == [
        [*part.sum(axis=0).tolist(), part.sum()] for part in counts
    ]
    assert [number(total.count) for total in cells.totals] == [
        *counts.sum(axis=(0, 1)).tolist(),
        counts.sum(),
    ]


@pytest.mark.parametrize(
    "exact", [[], ["sex"], ["region", "age"], [("sex", "region")], [("sex", "age"), "region"]]
)
def test_a_sum_is_exact_where_no_draw_of_the_noise_changes_it(
    exact: list[str | tuple[str, ...]],
) -> None:
    """Eight draws, little noise: what is said to be exact is the sum of the records in all, and
    every other sum is not in some.
    """
    features = [
        Feature("age", "yo"),
        Feature("sex", "fm"),
        Feature("region", ["north", "south", "west"]),
    ]
    plan = Plan([TableRequest(["sex", "age", "region"], Budget.gdp("0.2"))], exact, features)
    seen: list[list[Total]] = []
    for seed in range(8):
        cells = laid_out(run(plan, PEOPLE, SeededRandomness(seed)))
        totals = [row.total for row in cells.rows]
        totals += [total for row in cells.rows for total in row.subtotals]
        seen.append([*totals, *cells.totals])
    for several in zip(*seen, strict=True):
        assert len({total.exact for total in several}) == 1
        assert several[0].exact == (len({total.count for total in several}) == 1)
    # four lines, two blocks of four sums, four sums of columns
    assert len(seen[0]) == 4 + 8 + 4


def test_a_table_of_one_feature_has_one_sum_and_no_subtotal() -> None:
    cells = laid_out(
        released(
            Plan(
                [TableRequest(["region"], Budget.gdp(1))],
                [],
                [Feature("region", ["north", "south", "west"])],
            )
        )
    )
    assert [number(total.count) for total in cells.totals] == [300]
    assert not any(row.subtotals for row in cells.rows)


def test_counts_are_marked_where_noise_dominates(three: Release) -> None:
    table = three.tables[0]
    low = table.counts < table.half_widths
    assert 0 < low.sum() < low.size
    marked = [cell.faint for row in laid_out(three).rows for cell in row.cells]
    assert marked == low.ravel().tolist()
    page = html(three)
    assert page.count('title="mostly noise"') == low.sum()
    assert f"Noise dominates {low.sum()} of 12 counts (marked ≈)" in page


def test_nothing_is_marked_in_an_exact_table() -> None:
    page = html(released(Plan([TableRequest(["sex", "age"], Budget.gdp(1))], [["sex", "age"]])))
    assert "mostly noise" not in page
    assert "Noise dominates" not in page


@pytest.mark.pictures
def test_estimates_are_drawn_on_their_own_scale() -> None:
    axes = estimates_plot(["a", "b"], [48.0, 52.0], [1.0, 1.0], "mean of score", (0.0, 110.0)).axes[
        0
    ]
    low, high = axes.get_xlim()
    assert 44 < low < 46 < 54 < high < 56
    assert len(axes.get_lines()) == 1 + 2  # the points and the ends of their bars, no bound
    near = estimates_plot(["a"], [1.0], [1.0], "mean", (0.0, 110.0)).axes[0]
    assert len(near.get_lines()) == 1 + 2 + 1  # a bound that lies in the picture is drawn


@pytest.mark.pictures
def test_groups_without_a_record_are_folded(everything: Release) -> None:
    page = html(everything)
    assert re.search(r"<summary>1 group without a record</summary><p[^>]*>gone</p>", page)
    assert "none</td>" not in page


def test_the_guarantee_of_the_only_result_stands_once(three: Release, everything: Release) -> None:
    stated = strength(three.guarantee, three.plan.report_delta)[-1]
    page = html(three)
    at_the_top, _, details = page.partition("Details for specialists")
    assert stated in at_the_top
    assert stated not in details
    assert "<dt>Guarantee</dt>" not in page
    assert html(everything).count("<dt>Guarantee</dt>") == len(everything.results)


def test_only_a_long_table_is_searched(three: Release) -> None:
    assert "<script" not in html(three)
    schools = {"school": [f"school {number % 40}" for number in range(400)]}
    page = html(run(Plan([TableRequest(["school"], Budget.gdp(1))], ["school"]), schools))
    assert page.count('class="find"') == 1
    assert page.count("<script>") == 1
    assert "http" not in page[page.index("<script>") :]


def test_machines_are_told_what_every_column_is(everything: Release, tmp_path: Path) -> None:
    check_description(everything, tmp_path / "release")


def test_every_kind_of_statistic_tells_machines_what_its_columns_are(tmp_path: Path) -> None:
    pay = Outcome("pay", 0, 8, 8)
    requests = [
        QuantileRequest(
            pay, [["sex"]], ["1/4", "1/2"], Budget.gdp(1), level="0.9", mechanism="selection"
        ),
        DistributionRequest(pay, [["sex"]], budget=Budget.gdp(1), lines=[3]),
        OddsRatioRequest("sex", "vote", Budget.gdp(1)),
    ]
    people = {"sex": [*"ffmm"] * 9, "vote": [*"ynyn"] * 9, "pay": [1, 3, 5, 7] * 9}
    release = run(Plan(requests, ["sex", "vote"]), people)
    files = check_description(release, tmp_path / "release")
    assert len(files) == 4 + 2  # the last are exact totals


def check_description(release: Release, folder: Path) -> list[str]:
    """Check that csv-metadata.json is right about every file and column; return the files."""
    release.save(folder)
    document = json.loads((folder / "csv-metadata.json").read_text())
    assert document["@context"][0] == "http://www.w3.org/ns/csvw"
    described = {unquote(table["url"]): table["tableSchema"] for table in document["tables"]}
    assert set(described) == {path.name for path in folder.glob("*.csv")}
    for name, schema in described.items():
        header, *rows = csv.reader(io.StringIO((folder / name).read_text()))
        assert [column["titles"] for column in schema["columns"]] == header
        assert all(
            re.fullmatch(r"(?:[\w.~-]|%[0-9A-F]{2})+", column["name"])
            for column in schema["columns"]
        )
        assert all("dc:description" in column for column in schema["columns"]), name
        for place, column in enumerate(schema["columns"]):
            values = [row[place] for row in rows if row[place]]
            if column["datatype"] == "integer":
                assert all(re.fullmatch(r"-?\d+", value) for value in values), (name, column)
            elif column["datatype"] == "number":
                assert all(np.isfinite(float(value)) for value in values), (name, column)
        keys = [
            [column["name"] for column in schema["columns"]].index(key)
            for key in schema.get("primaryKey", ())
        ]
        if keys:
            assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows)
    return list(described)
    assert {column["titles"]: column["datatype"] for column in described["alone.csv"]["columns"]}[
        "count"
    ] == "integer"
    assert {column["titles"]: column["datatype"] for column in described["r.csv"]["columns"]}[
        "count"
    ] == "number"
    assert Release.load(folder).plan == everything.plan


def test_a_changed_description_is_noticed(everything: Release, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    everything.save(folder)
    (folder / "csv-metadata.json").write_text("{}")
    with pytest.raises(Exception, match="was changed after the release was written"):
        Release.load(folder)


def test_a_count_on_the_edge_of_noise_is_marked_alike_before_and_after_it_is_written(
    tmp_path: Path,
) -> None:
    """Files round half-widths outward in the seventh digit, which must not turn a mark."""
    plan = Plan([TableRequest(["sex", "age"], Budget.gdp(1))], ["sex", "age"])
    release = run(plan, {name: PEOPLE[name] for name in ("sex", "age")}, SeededRandomness(1))
    table = release.tables[0]
    edge = evolve(
        table, counts=np.full(table.counts.shape, 5), half_widths=np.full(table.counts.shape, 5.0)
    )
    written = evolve(edge, half_widths=np.full(table.counts.shape, 5.000001))
    clearly = evolve(edge, half_widths=np.full(table.counts.shape, 5.00001))
    assert not faint_cells(edge).any()
    assert not faint_cells(written).any()
    assert faint_cells(clearly).all()
