"""Nested features from the declaration to the files: declaring, reading, honesty, what every
release must keep.
"""

import csv
import io
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, Release, prepare, run
from semidp.cli import run as command
from semidp.errors import DataError, SchemaError, SemidpError
from semidp.present.report.report_page import html
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Nest
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish import TableRequest
from semidp.publish.results.grids import FOLDED_CELLS, Total, branches
from semidp.publish.statistics.sums import GroupRequest

TREE = {"AL": {"001": ["a", "b"], "003": ["c"]}, "WA": {"05": ["d", "e", "f"]}, "DC": {"9": ["g"]}}
PATHS = [(s, c, t) for s, below in TREE.items() for c, tracts in below.items() for t in tracts]
PLACES = Feature.from_paths(["state", "county", "tract"], PATHS)
NEST = Nest(("state", "county", "tract"))
SEX = Feature("sex", "fm")


def people(n: int = 300, seed: int = 1) -> dict[str, np.ndarray]:
    """Records in every tract."""
    rng = np.random.default_rng(seed)
    where = np.concatenate([np.arange(len(PATHS)), rng.integers(0, len(PATHS), n - len(PATHS))])
    columns = {
        name: np.array([PATHS[i][depth] for i in where]) for depth, name in enumerate(NEST.names)
    }
    return columns | {"sex": rng.choice(["f", "m"], n), "score": rng.integers(0, 11, n)}


def plan_of(table: list[str], invariants: list[Any], **options: Any) -> Plan:
    options = {"features": [PLACES, SEX]} | options
    return Plan([TableRequest(table, options.pop("budget", Budget.zcdp(1)))], invariants, **options)


# --- declaring ------------------------------------------------------------------------------------


def test_a_plan_and_a_schema_keep_nested_features() -> None:
    plan = plan_of(
        ["tract", "sex"], ["county"], nests=[Nest(("field", "job"), repeat=True, null_level="?")]
    )
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(plan.to_json()) == plan
    schema = Schema([PLACES, SEX])
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.to_json()["feature"][1] == {"name": "sex", "levels": ["f", "m"]}


def test_a_tree_in_a_file_keeps_codes_as_text() -> None:
    text = (
        '[[feature]]\nname = "county"\nnest = ["state", "county"]\ntree = {AL = ["01001", "01003"],'
        ' WA = ["53001"]}'
    )
    county = Schema.from_toml(text).features[0]
    assert county.levels == ("01001", "01003", "53001")
    assert county.path(2) == ("WA", "53001")


def test_a_lookup_becomes_part_of_the_plan(tmp_path: Path) -> None:
    lines = [
        "tract,county,state,area",
        *(f"{t},{c},{s},7" for s, c, t in PATHS),
        f"{PATHS[0][2]},001,AL,8",
    ]
    (tmp_path / "places.csv").write_text("\n".join(lines))
    text = (
        '[[feature]]\nname = "tract"\nnest = ["state", "county", "tract"]\nlookup = "places.csv"\n'
    )
    plan = Plan.from_toml(text, tmp_path)
    assert plan.features == (PLACES,)
    (tmp_path / "places.csv").unlink()
    assert Plan.from_toml(plan.to_toml()).features == (PLACES,)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"nest": ["state", "county"], "tree": {"a": ["x"], "b": ["x"]}},
            "more than one level of 'state'",
        ),
        ({"nest": ["state", "county"], "tree": {"a": []}}, "without any 'county'"),
        (
            {"nest": ["state", "county"], "tree": {"a": {"x": ["y"]}}},
            "at the finest depth are a list",
        ),
        ({"nest": ["state", "county"], "tree": ["a"]}, "a tree is a mapping"),
        ({"nest": ["county"], "tree": ["a"]}, "two or more depths"),
        ({"nest": ["county", "county"], "tree": {"a": ["b"]}}, "two or more depths"),
        ({"nest": ["state", "county"]}, "tree or a lookup"),
        ({"nest": ["state", "county"], "tree": {"a": ["x"]}, "levels": ["x"]}, "no levels"),
        ({"nest": ["state", "county"], "tree": {"a": ["x"]}, "names": "often"}, 'names = "repeat"'),
        ({"nest": ["state", "county"], "lookup": "none.csv"}, "cannot be read"),
        (
            {"name": "town", "nest": ["state", "county"], "tree": {"a": ["x"]}},
            "name of its finest depth",
        ),
        ({"nest": "county", "tree": {"a": ["x"]}}, "name of its finest depth"),
    ],
    ids=lambda part: str(part)[:50],
)
def test_a_declaration_that_is_refused(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Feature.from_json({"name": "county", **entry})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("state\na\n", "'county' it has none"),
        ("state,county\na,\n", "a row without a level"),
        ("", "it has none"),
    ],
)
def test_a_lookup_that_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "places.csv").write_text(content)
    with pytest.raises(SchemaError, match=words):
        Feature.from_json(
            {"name": "county", "nest": ["state", "county"], "lookup": "places.csv"}, tmp_path
        )


def test_names_that_repeat_are_told_apart_by_their_paths() -> None:
    twins = [("OR", "Washington"), ("UT", "Washington"), ("UT", "Utah")]
    with pytest.raises(SchemaError, match='names = "repeat"'):
        Feature.from_paths(["state", "county"], twins)
    county = Feature.from_paths(["state", "county"], twins, repeat=True)
    assert Feature.from_json(county.to_json()) == county
    records = {"state": ["UT", "OR", "UT"], "county": ["Washington", "Washington", "Utah"]}
    assert Table.from_frame(records, Schema([county])).counts.tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="must hold its parents too: state"):
        Table.from_frame({"county": ["Utah"]}, Schema([county]))


def test_a_missing_value_is_one_child_of_each_parent_and_a_missing_parent_a_path() -> None:
    county = Feature.from_paths(["state", "county"], [("a", "x"), ("b", "y")], null_level="?")
    assert county.paths() == [("a", "x"), ("a", "?"), ("b", "y"), ("b", "?"), ("?", "?")]
    assert Feature.from_json(county.to_json()) == county
    assert county.cut_to_depth(1) == Feature("state", ["a", "b"], null_level="?")
    both = {"state": ["a", "b", None], "county": [None, None, None]}
    assert Table.from_frame(both, Schema([county])).counts.tolist() == [0, 1, 0, 1, 1]
    alone = {"county": ["x", None]}  # nobody knows the parent either
    assert Table.from_frame(alone, Schema([county])).counts.tolist() == [1, 0, 0, 0, 1]
    with pytest.raises(DataError, match="missing values"):
        Table.from_frame(both, Schema([Feature.from_paths(["state", "county"], [("a", "x")])]))


def test_the_order_of_leaves_is_part_of_the_digest() -> None:
    one = Feature.from_paths(["state", "county"], [("a", "x"), ("b", "y")])
    other = Feature.from_paths(["state", "county"], [("b", "y"), ("a", "x")])
    spaces = [
        Dataspace.from_table(Table(Schema([part]), [1, 2]), [Margin("state")])
        for part in (one, other)
    ]
    assert spaces[0] != spaces[1]


# --- reading --------------------------------------------------------------------------------------


def test_parents_come_from_the_declaration_where_the_data_lack_them() -> None:
    data = people()
    expected = Counter(data["state"].tolist())
    for columns in (
        ["tract"],
        ["county", "tract"],
        ["state", "tract"],
        ["state", "county", "tract"],
    ):
        part = {name: data[name] for name in (*columns, "sex")}
        space = prepare(plan_of(["county", "sex"], ["state"]), part).scope.dataspace
        assert space.value(Margin("state")).counts.tolist() == [expected[state] for state in TREE]
        assert space.schema.names == ("state", "county", "sex")  # tracts are only what was read


def test_a_finer_column_also_gives_sums_by_group() -> None:
    from semidp.promise.schema.outcome import Outcome

    data = people()
    group = GroupRequest("sum", Outcome("score", 0, 10, steps=10), [["county"]], Budget.gdp(1))
    found = run(
        Plan([group], invariants=["county"], features=[PLACES]),
        {k: data[k] for k in ("tract", "score")},
    )
    assert found.groups[0].files()["sum-score.csv"].header[:4] == [
        "state",
        "county",
        "count",
        "sum",
    ]
    sums = {}
    for state, county, score in zip(data["state"], data["county"], data["score"], strict=True):
        sums[state, county] = sums.get((state, county), 0) + int(score)
    plan = Plan([group], invariants=["county"], features=[PLACES])
    values = reveal(prepare(plan, {k: data[k] for k in ("tract", "score")}).values[0])
    assert values.tolist() == [
        sums[path[:2]] for path in dict.fromkeys(path[:2] for path in PATHS) for path in [path]
    ]


def test_levels_are_read_from_the_data_where_an_invariant_publishes_them() -> None:
    data = people()
    plan = plan_of(["tract", "sex"], ["tract"], features=[SEX], nests=[NEST])
    prepared = prepare(plan, data)
    assert not prepared.scope.disclosures
    assert set(prepared.scope.dataspace.schema.feature("tract").paths()) == set(PATHS)
    for invariants in (["county"], ["state", "sex"], []):
        hidden = plan_of(["tract", "sex"], invariants, features=[SEX], nests=[NEST])
        with pytest.raises(SchemaError, match="the levels of tract are not public"):
            prepare(hidden, data)
        open_plan = plan_of(
            ["tract", "sex"], invariants, features=[SEX], nests=[NEST], levels_from_data=True
        )
        assert "levels of tract and where they lie" in prepare(open_plan, data).scope.disclosures[0]


def test_the_schema_reaches_down_to_the_finest_depth_in_use() -> None:
    data = people()
    for table, names in ((["state"], ("state",)), (["county"], ("state", "county"))):
        for declared in (
            {"features": [PLACES]},
            {"features": [], "nests": [NEST], "levels_from_data": True},
        ):
            prepared = prepare(plan_of(table, [], **declared), data)
            assert prepared.scope.dataspace.schema.names == names


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "WA"}, "another parent"),
        ({"tract": "secret"}, "not among its declared levels"),
        ({"tract": None}, "missing values"),
    ],
)
def test_data_that_contradict_the_declaration_are_refused_without_a_quote(
    change: dict[str, Any], words: str
) -> None:
    data = people()
    for name, value in change.items():
        data[name] = np.array([value, *data[name][1:]], dtype=object)
    with pytest.raises(DataError, match=words) as caught:
        prepare(plan_of(["tract", "sex"], ["state"]), data)
    assert "secret" not in str(caught.value)
    assert "WA" not in str(caught.value)


def test_a_child_in_two_parents_is_refused_unless_names_repeat() -> None:
    data = {"state": ["a", "b"], "county": ["x", "x"], "sex": ["f", "m"]}
    options = {"features": [SEX], "levels_from_data": True}
    with pytest.raises(SemidpError, match="more than one level of 'state'"):
        prepare(plan_of(["county"], ["state"], nests=[Nest(("state", "county"))], **options), data)
    found = prepare(
        plan_of(["county"], ["state"], nests=[Nest(("state", "county"), repeat=True)], **options),
        data,
    )
    assert found.scope.dataspace.schema.feature("county").paths() == [("a", "x"), ("b", "x")]


def test_more_levels_than_an_ordinary_feature_may_have() -> None:
    codes = [f"{i:05d}" for i in range(12_000)]
    data = {"state": [code[:2] for code in codes], "tract": codes}
    plan = plan_of(["tract"], ["tract"], features=[], nests=[Nest(("state", "tract"))])
    assert prepare(plan, data).scope.dataspace.schema.shape == (12_000,)


# --- every release --------------------------------------------------------------------------------

INVARIANTS = [
    [],
    ["state"],
    ["county", "sex"],
    ["state", "county"],
    [["state", "sex"], "county"],
    [["state", "sex"]],
    ["tract", "sex"],
    [["county", "sex"], "tract"],
]
BUDGETS = {"zcdp": Budget.zcdp("1/50"), "gdp": Budget.gdp("1/5"), "pure": Budget.pure("1/5")}


@pytest.mark.few(2)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("invariants", INVARIANTS, ids=str)
@pytest.mark.parametrize("table", [["tract", "sex"], ["sex", "county"], ["state", "sex"]], ids=str)
def test_every_published_depth_is_exact_and_children_sum_to_parents(
    table: list[str], invariants: list[Any], budget: str, tmp_path: Path
) -> None:
    data = people()
    release = run(plan_of(table, invariants, budget=BUDGETS[budget]), data, SeededRandomness(7))
    release.save(tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text())))
    depth = max(NEST.names.index(name) for name in table if name in NEST.names) + 1
    shown = [name for name in rows[0] if name in (*NEST.names, "sex")]
    assert [name for name in shown if name != "sex"] == list(NEST.names[:depth])
    assert len(rows) == 2 * len({path[:depth] for path in PATHS})
    assert {tuple(row[name] for name in NEST.names[:depth]) for row in rows} == {
        path[:depth] for path in PATHS
    }
    assert all(int(row["count"]) >= 0 for row in rows)
    assert sum(int(row["count"]) for row in rows) == len(data["sex"])
    for margin in map(Margin.from_names, invariants):
        names = [name for name in (*NEST.names[:depth], "sex") if name in margin.names]
        if not names:
            continue
        published: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            published[tuple(row[name] for name in names)] += int(row["count"])
        truth = Counter(zip(*(data[name].tolist() for name in names), strict=True))
        assert {key: n for key, n in published.items() if n} == truth
    again = Release.load(tmp_path)
    assert np.array_equal(again.tables[0].counts, release.tables[0].counts)
    assert again.plan == release.plan
    assert again.scope.dataspace == release.scope.dataspace


def test_nothing_of_the_size_of_parents_times_children_is_ever_made() -> None:
    """4,000 parents x 8,000 children take 32 MB as truth values; the 16,000 cells that exist 0.1 MB
    as counts.
    """
    parents, children = 4_000, 8_000
    paths = [(f"s{i % parents:04d}", f"c{i:04d}") for i in range(children)]
    county = Feature.from_paths(["state", "county"], paths)
    where = np.random.default_rng(3).integers(0, children, 20_000)
    data = {
        "state": np.array([paths[i][0] for i in where]),
        "county": np.array([paths[i][1] for i in where]),
    }
    data["sex"] = np.array(["f", "m"])[where % 2]
    plan = plan_of(["county", "sex"], [["state", "sex"]], features=[county, SEX])
    run(plan_of(["state"], []), people())  # what is imported on first use
    tracemalloc.start()
    release = run(plan, data)
    release.results[0].files()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert release.tables[0].counts.size == 2 * children
    assert peak < parents * children  # bytes


# --- the report -----------------------------------------------------------------------------------


def test_the_report_shows_each_parent_with_its_subtotal_and_the_totals_of_its_table() -> None:
    release = run(plan_of(["tract", "sex"], ["county"]), people(), SeededRandomness(1))
    page, table = html(release), release.tables[0]
    parts = branches(table, release.scope.dataspace)
    assert [part.name for part in parts] == ["AL", "WA", "DC"]
    states = table.schema.grid.sum(table.counts, (1, 0)).ravel()
    assert [part.total.count for part in parts] == [f"{n:,}" for n in states.tolist()]
    sexes = table.schema.grid.sum(table.counts, (1, 1))
    assert [[total.count for total in part.grid.totals] for part in parts] == [
        [f"{n:,}" for n in (*row, sum(row))] for row in sexes.tolist()
    ]
    # the counts of counties are exact, and so are those of states: not those by sex, nor of tracts
    for part in parts:
        assert part.total.exact
        assert [total.exact for total in part.grid.totals] == [False, False, True]
        assert not any(row.total.exact for row in part.grid.rows)
    assert [row.heads[0][0] for row in parts[0].grid.rows] == ["001 · a", "001 · b", "003 · c"]
    assert page.count('<details class="branch" open>') == 3
    assert all(f"<summary>{part.name} <span" in page for part in parts)
    heads = (
        '<th scope="col" class="name">state</th><th scope="col" class="name">county</th><th'
        ' scope="col">count</th>'
    )
    assert heads in page  # the exact totals, with whole paths


def test_a_nested_table_too_long_to_fold_shows_its_subtotals() -> None:
    paths = [(f"s{i % 7}", f"c{i}") for i in range(FOLDED_CELLS + 1)]
    county = Feature.from_paths(["state", "county"], paths)
    data = {"county": [path[1] for path in paths]}
    release = run(plan_of(["county"], ["county"], features=[county]), data)
    parts = branches(release.tables[0], release.scope.dataspace)
    assert [part.grid for part in parts] == [None] * 7
    assert sum(int(part.total.count.replace(",", "")) for part in parts) == len(paths)
    counties = [sum(path[0] == part.name for path in paths) for part in parts]
    assert [len(part.nodes) + part.unlisted for part in parts] == counties
    assert parts[0].unlisted == 1, "of 20,000 names over seven states"
    assert parts[0].nodes[:2] == (("c0", Total("1", True)), ("c7", Total("1", True)))


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    data = people()
    path = tmp_path / "people.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(data)
        writer.writerows(zip(*(column.tolist() for column in data.values()), strict=True))
    return str(path)


@pytest.mark.long
def test_the_commands_take_depths_everywhere(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nest = ["--nest", "state,county,tract"]
    words = [
        "--table",
        "county,sex",
        "--invariant",
        "state",
        "--invariant",
        "sex",
        *nest,
        "--levels-from-data",
    ]
    assert command(["analyze", file, *words]) == 0
    assert "state × county × sex: 8 cells" in capsys.readouterr().out
    assert command(["analyze", file, *words[:-1]]) == 2
    assert (
        "(--schema FILE with a tree or a lookup, --exact county, or --levels-from-data)"
        in capsys.readouterr().err
    )
    assert command(["release", file, *words, "--rho", "1", "--out", str(tmp_path / "one")]) == 0
    assert (tmp_path / "one" / "table.csv").read_text().startswith("state,county,sex,estimate")
    group = ["--group", "county", "--mean", "score", "--bounds", "score=0,10", *nest, "--mu", "1"]
    assert command(["release", file, *group, "--out", str(tmp_path / "two")]) == 0
    assert (tmp_path / "two" / "mean-score.csv").read_text().startswith("state,county,count,mean")
    capsys.readouterr()
    assert command(["show", str(tmp_path / "two")]) == 0
    assert "AL · 001" in capsys.readouterr().out


def test_the_schema_file_names_a_lookup_beside_it(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "places.csv").write_text("\n".join(["state,county,tract", *map(",".join, PATHS)]))
    text = (
        '[[feature]]\nname = "tract"\nnest = ["state", "county", "tract"]\nlookup = "places.csv"\n'
    )
    (folder / "schema.toml").write_text(text + '[[feature]]\nname = "sex"\nlevels = ["f", "m"]\n')
    words = [
        "--table",
        "tract,sex",
        "--invariant",
        "county",
        "--schema",
        str(folder / "schema.toml"),
        "--rho",
        "1",
    ]
    assert command(["release", file, *words, "--out", str(tmp_path / "out")]) == 0
    assert Release.load(tmp_path / "out").plan.features[0] == PLACES


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nest", "county,state"], '--schema FILE with nest and names = "repeat"'),
        (["--nest", "state"], "two or more depths"),
        (["--nest", "state,county", "--nest", "state,tract"], "same name"),
        (["--nest", "town,village"], "nothing uses"),
        (["--nest", "state,town,county"], "there is no column 'town'"),
    ],
    ids=str,
)
def test_a_nest_that_is_refused(
    file: str, words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ["--table", "state,county", "--invariant", "state", "--levels-from-data", "--rho", "1"]
    assert command(["release", file, *table, *words, "--out", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_odds_ratio_and_a_regression_beside_a_nested_feature(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nest = ["--nest", "state,county,tract", "--epsilon", "1"]
    kept = ["--where", "state <> 'DC'", "--odds-ratio", "sex,state", "--exact", "county"]
    assert command(["release", file, *kept, *nest, "--out", str(tmp_path / "tested")]) == 0
    assert "x11: sex = f and state = AL" in capsys.readouterr().out
    regress = ["--regress", "score", "--bounds", "score=0,10", *nest, "--out"]
    assert command(["release", file, *regress, str(tmp_path / "state"), "--on", "state,sex"]) == 0
    rows = (tmp_path / "state" / "regression-score.csv").read_text()
    assert [row.split(",")[0] for row in rows.splitlines()[1:]] == [
        "intercept",
        "state=DC",
        "state=WA",
        "sex=m",
    ]
    beside = ["--invariant", "county", *regress[:-2], "1000000", "--out"]
    assert command(["release", file, *beside, str(tmp_path / "beside"), "--on", "sex"]) == 0
    assert command(["release", file, *beside, str(tmp_path / "coarse"), "--on", "state"]) == 0
    fitted = (tmp_path / "coarse" / "regression-score.csv").read_text().splitlines()
    by_state = [
        "--group",
        "state",
        "--mean",
        "score",
        "--bounds",
        "score=0,10",
        *nest[:2],
        "--epsilon",
        "1000000",
    ]
    assert (
        command(
            ["release", file, "--invariant", "county", *by_state, "--out", str(tmp_path / "means")]
        )
        == 0
    )
    means = [
        float(row.split(",")[2])
        for row in (tmp_path / "means" / "mean-score.csv").read_text().splitlines()[1:]
    ]
    found = {row.split(",")[0]: float(row.split(",")[1]) for row in fitted[1:]}
    assert found["intercept"] == pytest.approx(means[0], abs=1e-3)
    assert found["state=DC"] == pytest.approx(means[1] - means[0], abs=1e-3)


def test_group_statistics_of_the_library_take_depths() -> None:
    from semidp.promise.schema.outcome import Outcome
    from tests.grouped.measuring import sums

    found = sums(
        people(), Outcome("score", 0, 10, 10), ["county"], Budget.gdp(1), features=[PLACES]
    )
    assert found.means().groups == (("AL", "001"), ("AL", "003"), ("WA", "05"), ("DC", "9"))
