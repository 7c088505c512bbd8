"""What a Python user meets first: dry runs, overall statistics, groups, results, mistakes."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import semidp as sd
from semidp.errors import InputError, SemidpError
from semidp.promise.exact import exact
from semidp.publish.results.published_table import PublishedTable

PEOPLE: dict[str, list[Any]] = {
    "ward": [*"aab"] * 40,
    "sex": [*"fm"] * 60,
    "age": list(range(120)),
    "died": [0, 1, 1] * 40,
}
AGE = (0, 120)


def publish(*requests: Any, **settings: Any) -> sd.Release:
    return sd.release(PEOPLE, *requests, **{"mu": 1, "seed": 1, **settings})


# --- dry runs -------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_published_and_draws_nothing(tmp_path: Any) -> None:
    ledger = sd.Ledger.create(tmp_path / "ledger.json", sd.Budget.gdp(5))
    before = (tmp_path / "ledger.json").read_bytes()
    out = tmp_path / "out"
    asked = (sd.table("ward", "sex"), sd.mean("age", by="ward", bounds=AGE))
    settings = {"exact": ["ward", "sex"], "mu": 1, "out": out, "ledger": ledger.path}
    found = sd.release(PEOPLE, *asked, dry_run=True, **settings)
    assert not out.exists()
    assert (tmp_path / "ledger.json").read_bytes() == before
    done = sd.release(PEOPLE, *asked, exact=["ward", "sex"], mu=1)
    assert found.guarantee.tradeoff == done.guarantee.tradeoff
    assert found.to_json()["groups"][0]["name"] == "mean-age"
    assert "would use" in str(found)
    assert "--" not in str(found)


def test_a_seed_marks_the_release_as_not_private() -> None:
    one, again = (publish(sd.mean("age", bounds=AGE)) for _ in range(2))
    assert one["mean-age"].to_dict() == again["mean-age"].to_dict()
    assert not one.private


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        sd.mean("age", bounds=AGE),
        sd.total("age", bounds=AGE),
        sd.proportion("died"),
        sd.median("age", bounds=AGE),
        sd.distribution("age", bounds=AGE),
    ],
    ids=lambda request: request.name,
)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_without_groups_a_statistic_is_of_everyone(
    request_: Any, adjacency: str, tmp_path: Any
) -> None:
    done = publish(request_, adjacency=adjacency, out=tmp_path / "out")
    columns = done[request_.name].to_dict()
    assert set(columns["all records"]) == {"all"}
    assert done.guarantee.adjacency.a == 1
    assert sd.Release.load(tmp_path / "out")[request_.name].to_dict() == columns


def test_a_plan_without_groups_is_of_everyone() -> None:
    entry = {"column": "age", "bounds": [0, 120], "mu": "1"}
    plan = sd.Plan.from_json({"invariants": ["ward"], "group": [entry]})
    done = sd.run(plan, PEOPLE)
    assert done["mean-age"].to_dict()["all records"] == ["all"]


def test_an_overall_mean_has_the_noise_of_one_group() -> None:
    overall = publish(sd.mean("age", bounds=AGE))
    one_ward = sd.release(
        {**PEOPLE, "ward": ["a"] * 120}, sd.mean("age", by="ward", bounds=AGE), mu=1, seed=1
    )
    numbers = [list(one["mean-age"].to_dict().values())[1:] for one in (overall, one_ward)]
    assert numbers[0] == numbers[1]


def test_names_are_crossed_and_each_names_several_sets() -> None:
    crossed = publish(sd.mean("age", by=["ward", "sex"], bounds=AGE))
    assert list(crossed["mean-age"].to_dict())[:2] == ["ward", "sex"]
    apart = publish(sd.mean("age", by=sd.each("ward", "sex"), bounds=AGE))
    assert list(apart) == ["mean-age-by-ward", "mean-age-by-sex"]
    entry: dict[str, Any] = {"column": "age", "bounds": [0, 120]}
    for by, sets in [
        ("ward", [["ward"]]),
        (["ward", "sex"], [["ward", "sex"]]),
        ([["ward"], ["sex"]], [["ward"], ["sex"]]),
        ([], [["all records"]]),
    ]:
        read = sd.Plan.from_json({"group": [{**entry, "by": by}]})
        assert [list(margin.names) for margin in read.requests[0].by] == sets
    with pytest.raises(InputError, match="not a mixture of both"):
        sd.mean("age", by=["ward", ("ward", "sex")], bounds=AGE)


def test_two_means_of_one_column_have_names_of_their_own() -> None:
    by = (None, "ward", ["ward", "sex"])
    asked = [sd.mean("age", by=groups, bounds=AGE) for groups in by]
    assert list(publish(*asked)) == ["mean-age", "mean-age-by-ward", "mean-age-by-ward-sex"]
    named = [
        sd.table("ward", name="t"),
        sd.mean("age", bounds=AGE, name="a"),
        sd.total("age", bounds=AGE, name="b"),
        sd.proportion("died", name="c"),
        sd.median("age", bounds=AGE, name="d"),
        sd.quantile("age", 0.9, bounds=AGE, name="e"),
        sd.regression("age", on="sex", bounds=AGE, name="f"),
        sd.logistic("died", on="sex", name="g"),
    ]
    assert {*"tabcdefg"} <= {*publish(*named, exact=["ward"])}


# --- results --------------------------------------------------------------------------------------


def test_a_release_is_a_mapping_of_tables() -> None:
    done = publish(sd.table("ward", "sex"), sd.mean("age", by="ward", bounds=AGE), exact=["sex"])
    assert isinstance(done["ward-sex"], PublishedTable)
    assert isinstance(done.table("ward-sex"), PublishedTable)
    assert list(dict(done)) == list(done) == ["table", "mean-age"]
    assert "mean-age" in done
    assert "mean-pay" not in done
    with pytest.raises(InputError, match="use release"):
        done.table("mean-age")


def test_long_names_of_groups_leave_room_for_the_picture() -> None:
    ends = [
        f"{way} hospital of the capital region and its rural surroundings, {way}" for way in "ab"
    ]
    data = {**PEOPLE, "ward": [ends[ward == "b"] for ward in PEOPLE["ward"]]}
    asked = [sd.mean("age", by="ward", bounds=AGE), sd.median("age", by="ward", bounds=AGE)]
    for _, result in sd.release(data, *asked, exact=["ward"], mu=1, seed=1).items():
        figure = result.plot()
        figure.draw_without_rendering()
        (axes,) = figure.axes
        assert axes.get_position().width > 0.4
        assert len({text.get_text() for text in axes.get_yticklabels()}) == 2


def test_one_group_is_said_to_have_no_test() -> None:
    alone = publish(sd.mean("age", bounds=AGE)).report_html()
    several = publish(sd.mean("age", by="ward", bounds=AGE)).report_html()
    assert "p is too large" in several
    assert "p is too large" not in alone


def test_both_files_of_a_distribution_have_its_picture() -> None:
    done = publish(sd.distribution("age", by="ward", bounds=AGE))
    for name in ("distribution-age", "distribution-age-quantiles"):
        assert len(done[name].plot().axes) == 2


def test_every_result_becomes_a_data_frame_in_three_ways() -> None:
    asked = (
        sd.table("ward", "sex"),
        sd.mean("age", by="ward", bounds=AGE),
        sd.distribution("age", by="ward", bounds=AGE),
        sd.logistic("died", on="sex"),
    )
    done, other = (publish(*asked, exact=["ward"], seed=seed) for seed in (1, 2))
    change = sd.change(done, other, names=["one", "two"])
    every = [*dict(done).values(), *done.results, done.intervals(), done.records(), change]
    for result in every:
        columns = list(result.to_dict())
        assert list(result.to_pandas().columns) == columns
        assert result.to_polars().columns == columns
        assert result.to_arrow().column_names == columns
    assert len(every) >= 11


# --- levels of categorical columns ----------------------------------------------------------------


def test_categories_are_declared_levels() -> None:
    wards = [*"ab"] * 30
    frames = [
        pd.DataFrame({"ward": pd.Categorical(wards, categories=["a", "b", "c"])}),
        pl.DataFrame({"ward": pl.Series(wards, dtype=pl.Enum(["a", "b", "c"]))}),
    ]
    for frame in frames:
        done = sd.release(frame, sd.table("ward"), mu=1)
        assert done["ward"].to_dict()["ward"] == ["a", "b", "c"]
    lazy = sd.release(frames[1].lazy(), sd.table("ward"), mu=1)
    assert lazy["ward"].to_dict()["ward"] == ["a", "b", "c"]
    occurring = pl.DataFrame({"ward": pl.Series(wards, dtype=pl.Categorical)})
    with pytest.raises(SemidpError, match="not public"):
        sd.release(occurring, sd.table("ward"), mu=1)


def test_numbers_of_numpy_are_read_exactly() -> None:
    bounds = (np.int64(0), np.float64(120))
    plain = publish(sd.mean("age", by="ward", bounds=AGE))
    found = publish(sd.mean("age", by="ward", bounds=bounds))  # type: ignore[arg-type]
    assert found["mean-age"].to_dict() == plain["mean-age"].to_dict()
    wide = exact(np.int64(2**62)) * 4  # type: ignore[arg-type]
    assert wide == 2**64
    assert found.report_html()


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda: publish(sd.table("ward"), exact=["ward"], seed=None, randomness=1), "give seed="),
        (lambda: publish(sd.table("ward"), exact=["ward"]).estimate([1]), "given by table"),
        (lambda: sd.Budget.epsilon(1), r"write Budget.pure\(epsilon\)"),
        (lambda: sd.publish.power((1, 2), sd.Budget.gdp(1), 2.0), r"TwoByTwo\(row, column, n\)"),
        (
            lambda: publish(sd.table("ward"), levels={"ward": ["a", "b"], "sex": ["f", "m"]}),
            "'sex' is declared, and nothing uses it",
        ),
        (lambda: publish(sd.table("ward")), r"levels=\{'ward': \[...\]\}, exact=\['ward'\]"),
    ],
)
def test_a_mistake_gets_a_sentence_with_keywords(mistake: Any, sentence: str) -> None:
    with pytest.raises(SemidpError, match=sentence):
        mistake()


def test_a_name_that_is_elsewhere_says_where() -> None:
    for name, place in [("audit", "semidp audit"), ("power", "publish.power"), ("meen", "mean")]:
        with pytest.raises(AttributeError, match=place):
            getattr(sd, name)


MISSING = {
    "pay": lambda by: sd.mean("pay", by=by, bounds=(0, 9)),
    "median": lambda by: sd.median("pay", by=by, bounds=(0, 9)),
    "curve": lambda by: sd.distribution("pay", by=by, bounds=(0, 9)),
    "share": lambda by: sd.proportion("ok=Y", by=by),
    "line": lambda _: sd.regression("pay", on="ward", bounds=(0, 9)),
    "odds": lambda _: sd.logistic("ok=Y", on="ward"),
}


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "names", [names for size in (1, 2) for names in itertools.combinations(MISSING, size)]
)
def test_advice_about_missing_outcomes_can_be_followed(names: tuple[str, ...]) -> None:
    draw = np.random.default_rng(1)
    data = {
        "ward": draw.choice([*"ab"], 60).tolist(),
        "pay": [None if part > 9 else int(part) for part in draw.integers(0, 12, 60)],
        "ok": [None if part == "-" else part for part in draw.choice([*"YN-"], 60)],
    }
    asked = [MISSING[name]("ward") for name in names]
    todo: list[dict[str, Any]] = [{}]
    finished = 0
    while todo:
        settings = todo.pop()
        said = ""
        try:
            sd.release(data, *asked, mu=1, dry_run=True, **settings)
            finished += 1
        except SemidpError as error:
            said = str(error)
        if said:
            told = said.partition(": give ")[2].partition(", or fill")[0]
            assert told, said
            for advice in told.split(" or "):
                more = eval(f"dict({advice})")
                joined = {**(settings.get("missing") or {}), **more.get("missing", {})}
                both = [each["where"] for each in (settings, more) if each.get("where")]
                todo.append({"missing": joined or None, "where": " AND ".join(both) or None})
    assert finished >= 1


PATIENTS = {"ward": ["a", "b"] * 20, "died": ["Y", "N", None, "N"] * 10}
LEVELS_OF_DEATH = {"died": ["Y", "N"]}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: sd.release(PATIENTS, sd.table("ward"), exacts=["ward"], mu=1),
            "release() got an unexpected keyword argument 'exacts' (did you mean 'exact'?)",
        ),
        (lambda: sd.Plan.from_toml("plan.toml"), "Path('plan.toml').read_text()"),
        (
            lambda: sd.Plan.from_json(
                {"group": [{"column": "died", "by": "ward", "missing": "private"}]}
            ),
            "private missing values are an entry [[answered]]",
        ),
        (
            lambda: sd.release(
                PATIENTS,
                sd.publish.OddsRatioRequest("ward", "died"),
                exact=["ward"],
                levels=LEVELS_OF_DEATH,
                null_level={"died": "unknown"},
                mu=1,
            ),
            "missing values are a third: leave them out (where='died IS NOT NULL', without",
        ),
        (lambda: publish(sd.table("ward"), missing="private"), "missing= is a dictionary"),
        (lambda: publish(sd.table("ward"), levels=["a"]), "levels= is a dictionary"),
        (lambda: publish(sd.table("ward"), target_error=5), "target_error= is a dictionary"),
        (lambda: publish(sd.table("sex"), levels={"sex": "f,m"}), "levels= of 'sex' is a list"),
        (lambda: publish(sd.table("sex"), levels={"sex": "fm"}), "levels= of 'sex' is a list"),
        (lambda: publish(sd.table("age"), bins={"age": 10}), "bins= of 'age' is a list of edges"),
        (lambda: publish(sd.table("ward"), nest="ward"), "nest= is a list from coarse to fine"),
        (lambda: publish(sd.table("ward"), exact=3), "a margin is one feature or several"),
        (lambda: publish([sd.table("ward")]), "put * before the list"),
        (lambda: publish(*[sd.table("ward", name="a")] * 2), "two requests would write a.csv"),
        (lambda: sd.each(), "name the groups"),
        (lambda: sd.proportion(("died", "Y")), "named by its column"),  # type: ignore[arg-type]
        (
            lambda: sd.quantile("age", [0.25, 0.5], bounds=AGE),  # type: ignore[arg-type]
            "quantiles are given one by one",
        ),
        (
            lambda: publish(sd.table("ward"), exact=["ward"]).interval("ward"),  # type: ignore[arg-type]
            'cells are given by their levels, such as {"sex": "f"}',
        ),
        (
            lambda: sd.release(pd.DataFrame(PEOPLE)[["ward", "ward"]], sd.table("ward"), mu=1),
            "names two columns alike",
        ),
        (lambda: sd.release(pd.DataFrame(), sd.table("ward"), mu=1), "has no columns"),
    ],
)
def test_refusals_name_what_to_write_instead(ask: Callable[[], object], said: str) -> None:
    with pytest.raises((TypeError, SemidpError)) as refused:
        ask()
    assert said in str(refused.value)
