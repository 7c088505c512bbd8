"""A release at home in a notebook: short texts, small pages, data frames out and in, plots on given
axes.
"""

import io
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import semidp
from semidp.assess import audit_mechanism, worst_pair
from semidp.errors import SchemaError
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Nest
from semidp.publish.sources.opening import open_source

PEOPLE = {"sex": [*"ffmmfmm"], "region": [*"nswnsnn"], "score": [1, 2, 3, 4, 5, 6, 7]}
REGION = semidp.Feature("region", ["n", "s", "w", "<script>alert(1)</script>"])


def schools() -> semidp.Release:
    plan = semidp.Plan(
        [semidp.publish.TableRequest(["district", "meals"], semidp.Budget.gdp(1))],
        ["district"],
        [semidp.Feature("meals", ["no", "yes"])],
        nests=[Nest(["county", "district"])],
        count="count",
    )
    return semidp.run(plan, files("semidp") / "data" / "california_schools.csv")


@pytest.fixture(scope="module")
def school_release() -> semidp.Release:
    return schools()


@pytest.fixture(scope="module")
def release() -> semidp.Release:
    score = semidp.publish.GroupRequest(
        "mean", semidp.Outcome("score", 0, 10, 10), [["sex"]], semidp.Budget.gdp(1)
    )
    days = semidp.publish.RegressionRequest(
        semidp.Outcome("score", 0, 10, 10), ["sex"], semidp.Budget.gdp(1)
    )
    tables = [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))]
    return semidp.run(semidp.Plan([*tables, score, days], ["sex"], [REGION]), PEOPLE)


@pytest.fixture(scope="module")
def product() -> semidp.Release:
    wanted = [
        semidp.publish.TableRequest(["sex", "region"]),
        semidp.publish.TableRequest(["region"]),
    ]
    request = semidp.publish.TablesRequest(wanted, semidp.Budget.gdp(1))
    return semidp.run(semidp.Plan([request], invariants=["sex"], features=[REGION]), PEOPLE)


def audit(release: semidp.Release) -> Any:
    mechanism = semidp.prepare(release.plan, PEOPLE).mechanisms[0]
    pair = worst_pair(mechanism.space)
    claim = mechanism.guarantee.tradeoff
    return audit_mechanism(
        mechanism.measure_many, pair, claim, samples=1000, randomness=SeededRandomness(1)
    )


def shown(release: semidp.Release) -> Iterator[Any]:
    yield from (
        release,
        release.plan,
        release.guarantee,
        release.scope.dataspace,
        release.scope,
        *release.results,
    )
    yield release.scope.semi_adjacency
    yield release.scope.dataspace.schema
    yield from release.scope.dataspace.schema.features
    yield from release.tables


def test_what_they_print_is_short(
    release: semidp.Release, product: semidp.Release, school_release: semidp.Release
) -> None:
    for one in (release, product, school_release):
        for value in shown(one):
            assert len(repr(value)) <= 600, type(value)
            assert "array(" not in repr(value)
    assert len(repr(school_release)) < 200
    assert repr(release.table("sex-region")).startswith(
        "PublishedTable('table': sex × region, 8 cells"
    )


class Balanced(HTMLParser):
    """Counts what is open; script is never opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {"div", "table", "thead", "tbody", "tr", "th", "td", "strong", "p"}, tag
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("which", ["release", "product", "school_release"])
def test_their_pages_are_small_whole_and_escaped(
    which: str, request: pytest.FixtureRequest
) -> None:
    one: semidp.Release = request.getfixturevalue(which)
    pages = [value._repr_html_() for value in shown(one) if hasattr(value, "_repr_html_")]
    assert len(pages) >= 5
    for page in pages:
        checker = Balanced()
        checker.feed(page)
        assert checker.open == []
        assert len(page) < 12_000


def test_an_audit_says_what_it_found(release: semidp.Release) -> None:
    found = audit(release)
    assert len(repr(found)) < 200
    assert found.verdict in found._repr_html_()
    figure = Figure()
    assert found.plot(figure.subplots()) is figure


def test_frames_hold_what_the_files_hold(release: semidp.Release, product: semidp.Release) -> None:
    for one, names in (
        (release, ["table", "mean-score", "regression-score"]),
        (product, ["sex-region", "region"]),
    ):
        files = {
            name: content for result in one.results for name, content in result.files().items()
        }
        written = {
            name: found if isinstance(found, bytes) else b"".join(found.csv())
            for name, found in files.items()
        }
        for name in names:
            table = one[name]
            again = pd.read_csv(
                io.BytesIO(written[f"{name}.csv"]), keep_default_na=False, na_values={"mean": [""]}
            )
            pd.testing.assert_frame_equal(table.to_pandas(), again, check_dtype=False, rtol=1e-12)
            assert (
                table.to_polars().to_dict(as_series=False)
                == table.to_arrow().to_pydict()
                == table.to_dict()
            )
    counts = release.table("table").to_polars()
    assert counts.schema["count"] == pl.Int64
    assert counts.schema["sex"] == pl.String


def test_an_unknown_name_lists_the_others(release: semidp.Release) -> None:
    with pytest.raises(
        semidp.InputError, match="there are sex-region, table, mean-score, regression-score"
    ):
        release.table("towns")


def relation(data: dict[str, Any]) -> Any:
    connection = duckdb.connect()
    connection.register("people", pa.table(data))
    connection.execute("CREATE TABLE kept AS SELECT * FROM people")
    return connection.table("kept")


class Exporter:
    """Nothing but the Arrow C stream interface."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._table = pa.table(data)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mapping": lambda data: data,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "arrow": pa.table,
    "reader": lambda data: pa.table(data).to_reader(),
    "exporter": Exporter,
    "duckdb": relation,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=list(FRAMES))
def test_data_come_from_any_of_them(frame: Callable[[dict[str, Any]], Any]) -> None:
    plan = semidp.Plan(
        [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))], ["sex"], [REGION]
    )
    seen = semidp.prepare(plan, frame({**PEOPLE, "note": [None, *"abcdef"]}))
    assert seen.scope.dataspace.value(semidp.Margin("sex")).counts.tolist() == [3, 4]
    assert reveal(seen.values[0]).tolist() == [[1, 2, 0, 0], [3, 0, 1, 0]]


def test_a_table_is_data_too() -> None:
    schema = semidp.Schema([semidp.Feature("sex", "fm"), REGION])
    table = semidp.Table(schema, [[1, 2, 0, 0], [3, 0, 1, 0]])
    plan = semidp.Plan(
        [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))], ["sex"], [REGION]
    )
    assert np.array_equal(reveal(semidp.prepare(plan, table).values[0]), table.counts)
    with pytest.raises(semidp.InputError, match="a WHERE could keep"):
        open_source(table, where="sex = 'f'")
    with pytest.raises(SchemaError, match="there is no column 'people'"):
        open_source(table, count="people")
    places = semidp.Feature.from_paths(["county", "district"], [("a", "1"), ("a", "2"), ("b", "3")])
    nested = semidp.Table(semidp.Schema([places]), [4, 0, 5])
    with open_source(nested) as source:
        assert source.paths(["county", "district"]) == [("a", "1"), ("b", "3")]
        assert source.counts(semidp.Schema([semidp.Feature("county", "ab")])).counts.tolist() == [
            4,
            5,
        ]


class Broken:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ValueError("row 7 holds a secret")


def test_what_cannot_be_read_says_so_without_its_message() -> None:
    with pytest.raises(semidp.InputError, match="a Broken could not be read") as caught:
        open_source(Broken())
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_plots_are_drawn_on_given_axes(release: semidp.Release) -> None:
    figure = Figure()
    axes = figure.subplots(1, 4)
    drawn = [release, release.table("table"), release.groups[0], release.regressions[0]]
    for value, own in zip(drawn, axes, strict=True):
        assert value.plot(own) is figure
        assert own.has_data()
    assert release.plot() is not figure
