"""A statistic that lives in one folder goes through everything: plan, release, recheck, ledger,
audit.

The folder `level_totals` is the whole statistic. Where this file needs anything else to be told of
it, the cut by statistics has a leak.
"""

import ast
import csv
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp import Budget, Feature, Plan, Release, Schema, Table
from semidp.assess import audit_mechanism, choose_pair, claims_of_release
from semidp.cli import run as command
from semidp.errors import InputError, Refused
from semidp.present.explore.controls import LADDER, Controls
from semidp.present.explore.explorer_page import Page
from semidp.present.forecasts import PlanForecasts
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import gaussian
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish import TableRequest
from semidp.publish.recheck import recheck
from semidp.publish.statistics.protocol import statistic as registry
from tests.toy.level_totals.kind import KIND
from tests.toy.level_totals.request import LevelTotalRequest
from tests.toy.level_totals.space import LevelTotalSpace

pytestmark = pytest.mark.no_schema  # a statistic that no schema knows

SIZES = Feature("size", ["small", "middle", "large"])
PEOPLE = {"sex": [*"fmmf"] * 10, "size": ["small", "middle", "large", "small"] * 10}
TOTAL = 30  # ten of the middle, ten of the large
PLAN_FILE = """
invariants = ["sex"]

[[level_total]]
feature = "size"
mu = "1"

[[feature]]
name = "size"
levels = ["small", "middle", "large"]
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the statistic for one test."""
    monkeypatch.setattr(registry, "_registered", [])
    registry.register(KIND)


@pytest.fixture
def plan() -> Plan:
    return Plan.from_toml(PLAN_FILE)


@pytest.fixture
def folder(plan: Plan, tmp_path: Path) -> Path:
    """A saved release."""
    semidp.run(plan, PEOPLE, SeededRandomness(4)).save(tmp_path / "release")
    return tmp_path / "release"


# --- what it claims


def datasets(n: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every multiset of n records with two sexes and three sizes."""
    return itertools.combinations_with_replacement(itertools.product(range(2), range(3)), n)


@pytest.mark.parametrize(("exact", "attained"), [((), True), (("sex",), False), (("size",), True)])
@pytest.mark.parametrize("a", [1, 2, 3])
def test_the_norms_bound_every_pair_of_datasets(
    exact: tuple[str, ...], attained: bool, a: int
) -> None:
    """By brute force over all datasets of four records that have the totals of one of them."""
    schema = Schema([Feature("sex", "fm"), SIZES])
    n, pairs = 4, 0
    largest: dict[bytes, int] = {}
    tables: dict[bytes, list[tuple[Counter[tuple[int, int]], int]]] = {}
    spaces: dict[bytes, LevelTotalSpace] = {}
    for records in datasets(n):
        counts = np.zeros(schema.shape, dtype=np.int64)
        for record in records:
            counts[record] += 1
        public = Dataspace.from_table(Table(schema, counts), [Margin(name) for name in exact])
        key = b"".join(total.counts.tobytes() for total in public.totals)
        total = sum(size for _, size in records)
        tables.setdefault(key, []).append((Counter(records), total))
        spaces[key] = LevelTotalSpace(public, Ball(a), "size")
    for key, members in tables.items():
        largest[key] = 0
        for (one, low), (other, high) in itertools.combinations(members, 2):
            if sum((one - other).values()) <= a:
                largest[key] = max(largest[key], abs(high - low))
                pairs += 1
        space = spaces[key]
        assert space.norms.linf >= largest[key]
        assert space.exact == attained
        if space.exact:
            assert space.norms.linf == largest[key]
    assert exact == ("size",) or pairs > 100, "a loop that compared little proves little"


# --- plan, release, files


def test_a_plan_file_asks_for_it_and_is_written_back(plan: Plan) -> None:
    (request,) = plan.requests
    assert request == LevelTotalRequest("size", Budget.gdp(1))
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(InputError, match='a level_total of a plan needs feature = "…"'):
        Plan.from_toml("[[level_total]]\nmu = '1'")


def test_without_the_registry_nobody_knows_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(registry, "_registered", [])
    with pytest.raises(InputError, match="level_total"):
        Plan.from_toml(PLAN_FILE)
    with pytest.raises(InputError):
        Release.load(folder)


def test_it_is_prepared_and_measured(plan: Plan) -> None:
    prepared = semidp.prepare(plan, PEOPLE)
    assert prepared.guarantee.tradeoff == gaussian(1)
    # two records, two places each
    assert [mechanism.scale for mechanism in prepared.mechanisms] == [4.0]
    assert reveal(prepared.values[0]).tolist() == [TOTAL]
    (result,) = semidp.run(plan, PEOPLE, SeededRandomness(4)).results
    (sheet,) = result.estimates
    assert abs(sheet.values[0] - TOTAL) < 8 * sheet.standard_errors[0]
    assert sheet.values.tolist() == result.noisy.tolist()


def test_exact_counts_fix_it_so_that_nothing_is_drawn(tmp_path: Path) -> None:
    plan = Plan([LevelTotalRequest("size", Budget.gdp(1))], ["size"])
    release = semidp.run(plan, PEOPLE, SeededRandomness(4))
    (result,) = release.results
    # Levels that are read from the data are in the order of the alphabet: large, middle, small.
    (sheet,) = result.estimates
    assert result.noise.mechanism == "no noise"
    assert (sheet["total"].tolist(), sheet["standard_error"].tolist()) == ([50.0], [0.0])
    release.save(tmp_path / "exact")
    assert Release.load(tmp_path / "exact").results[0].noise.absent


def test_a_folder_is_read_back(plan: Plan, folder: Path) -> None:
    loaded = Release.load(folder)
    (result,) = loaded.results
    (again,) = semidp.run(plan, PEOPLE, SeededRandomness(4)).results
    assert result.estimates[0].to_dict() == again.estimates[0].to_dict()
    assert loaded["total-size"].to_dict() == again.estimates[0].to_dict()
    assert loaded.plan == plan
    assert (folder / "report.html").is_file()


@pytest.mark.pictures
def test_it_stands_beside_other_requests(tmp_path: Path) -> None:
    requests = [
        LevelTotalRequest("size", Budget.gdp(1)),
        TableRequest(["sex", "size"], Budget.gdp(1)),
    ]
    plan = Plan(requests, ["sex"], [SIZES])
    semidp.run(plan, PEOPLE, SeededRandomness(4)).save(tmp_path / "both")
    loaded = Release.load(tmp_path / "both")
    assert [result.list_key for result in loaded.results] == ["tables", "level_totals"]
    assert loaded.guarantee.tradeoff == Gaussian(Fraction(2))  # μ² = 1 + 1


def test_the_report_the_workbook_and_the_descriptions_show_it(plan: Plan, tmp_path: Path) -> None:
    """It writes none of them: they follow from the roles of its columns."""
    openpyxl = pytest.importorskip("openpyxl")
    release = semidp.run(plan, PEOPLE, SeededRandomness(4))
    release.save(tmp_path / "release", form="xlsx")
    (sheet,) = release.results[0].estimates
    page = (tmp_path / "release" / "report.html").read_text()
    assert "Published level total of size" in page
    assert f"{sheet.values[0]:.0f}" in page
    book = openpyxl.load_workbook(tmp_path / "release" / "tables.xlsx")
    assert "total-size" in book.sheetnames
    described = json.loads((tmp_path / "release" / "csv-metadata.json").read_text())
    (columns,) = [
        table["tableSchema"]["columns"]
        for table in described["tables"]
        if not table["url"].startswith("exact-")
    ]
    assert columns[0]["dc:description"] == "the sum of the places of all records' levels"
    assert disagreements(tmp_path / "release") == ()


def test_it_stands_beside_a_table_by_parts(tmp_path: Path) -> None:
    people = {**PEOPLE, "state": ["n", "n", "s", "s"] * 10, "ward": [*"abcd"] * 10}
    plan = Plan(
        [
            TableRequest(["ward", "sex"], Budget.gdp(1)),
            LevelTotalRequest("size", Budget.gdp(1)),
        ],
        ["state"],
        [SIZES],
        nests=[semidp.Nest(["state", "ward"])],
        levels_from_data=True,
    )
    out = tmp_path / "parts"
    options = semidp.RunOptions(out=out, randomness=SeededRandomness(4))
    semidp.run(plan, people, options, partition="state")
    loaded = Release.load(out)
    assert "total-size" in {result.name for result in loaded.results}
    assert disagreements(out) == ()


# --- recheck


def forged(folder: Path, file: str, column: str, by: float) -> None:
    """Change a number of a file, and make its digest right again."""
    header, row = csv.reader((folder / file).read_text().splitlines())
    place = header.index(column)
    number = float(row[place]) + by
    row[place] = str(int(number)) if column == "noisy" else repr(number)
    (folder / file).write_text(f"{','.join(header)}\n{','.join(row)}\n")
    document = json.loads((folder / "release.json").read_text())
    document["files"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / "release.json").write_text(json.dumps(document))
    (folder / "report.html").unlink(missing_ok=True)


def disagreements(folder: Path) -> tuple[str, ...]:
    return recheck(
        Release.load(folder), json.loads((folder / "release.json").read_text()), folder
    ).disagreements


def test_an_honest_release_agrees_and_says_what_is_believed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert disagreements(folder) == ()
    assert command(["show", str(folder)]) == 0
    words = capsys.readouterr().out
    assert "total-size.csv noisy" in words
    assert "plan.level_total.mechanism" in words


@pytest.mark.parametrize("column", ["total", "standard_error", "noisy"])
def test_a_forged_column_is_found_out(
    folder: Path, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    forged(folder, "total-size.csv", column, by=1)
    said = disagreements(folder)
    assert said[0].startswith("it states another column")
    assert command(["show", str(folder)]) == 1
    assert "another column" in capsys.readouterr().out


def test_forged_noise_and_guarantees_are_found_out(folder: Path) -> None:
    document = json.loads((folder / "release.json").read_text())
    (entry,) = document["level_totals"]
    forgeries = 0
    for key, value in (
        ("noise", {**entry["noise"], "scale": 1.0}),
        ("guarantee", gaussian("1/2").to_json()),
    ):
        changed = {**document, "level_totals": [{**entry, key: value}]}
        (folder / "release.json").write_text(json.dumps(changed))
        assert any("'total-size' states" in sentence for sentence in disagreements(folder))
        forgeries += 1
    assert forgeries == 2


# --- rehearsals, the ledger, the auditor


def test_the_command_line_rehearses_and_releases_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{sex},{size}" for sex, size in zip(PEOPLE["sex"], PEOPLE["size"], strict=True)]
    Path("people.csv").write_text("\n".join(["sex,size", *rows]) + "\n")
    Path("plan.toml").write_text(PLAN_FILE)
    assert command(["release", "people.csv", "--plan", "plan.toml", "--dry-run"]) == 0
    assert "scale 4" in capsys.readouterr().out
    assert command(["compare", "plan.toml", "plan.toml", "--data", "people.csv"]) == 0
    assert "μ = 1 (Gaussian DP)" in capsys.readouterr().out
    assert (
        command(["release", "people.csv", "--plan", "plan.toml", "--out", "made", "--seed", "1"])
        == 0
    )
    assert disagreements(Path("made")) == ()


def test_it_has_an_option_because_it_declares_a_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{sex},{size}" for sex, size in zip(PEOPLE["sex"], PEOPLE["size"], strict=True)]
    Path("people.csv").write_text("\n".join(["sex,size", *rows]) + "\n")
    assert command(["release", "--help"]) == 0
    assert "the sum of the places of its levels" in " ".join(capsys.readouterr().out.split())
    words = [
        "release",
        "people.csv",
        "--level-total",
        "size",
        "--exact",
        "sex",
        "--levels",
        "size=small,middle,large",
    ]
    assert command([*words, "--mu", "1", "--out", "made", "--seed", "4"]) == 0
    assert Release.load("made").plan == Plan.from_toml(PLAN_FILE)
    both = [*words, "--table", "sex,size", "--set", "share=total-size=3", "--rho", "1", "--dry-run"]
    assert command(both) == 0
    assert "0.75-zCDP for total-size" in capsys.readouterr().out
    # Without the statistic the command does not know the option.
    monkeypatch.setattr(registry, "_registered", [])
    assert command([*words, "--mu", "1", "--out", "again"]) == 2
    assert "--level-total" in capsys.readouterr().err


def test_it_has_a_card_in_the_explorer_because_it_declares_a_field() -> None:
    columns = ("sex", "size")
    start = Plan(features=[SIZES])
    page = Page(
        PlanForecasts(
            columns, lambda plan: semidp.prepare(plan, PEOPLE).scope, start, source="people.csv"
        )
    )
    base = [("base", json.dumps(start.to_json())), ("kind", "mu"), ("step", str(LADDER.index(1)))]
    added = page.form([*base, ("add", "which"), ("which", "level_total")])
    assert '<option value="level_total">level total</option>' in added
    assert '<select name="level_total-0"' in added
    chosen = [*base, ("level_total-0", "size"), ("total-0", "sex")]
    plan = Controls.of_form(chosen, columns).plan(start, columns)
    assert plan == Plan.from_toml(PLAN_FILE)
    assert "μ = 1 (Gaussian DP)" in page.results(chosen)
    # Beside a table it has half of the budget.
    both = Controls.of_form([*chosen, ("table-0", "sex"), ("table-0", "size")], columns).plan(
        start, columns
    )
    assert {request.budget for request in both.requests} == {Budget.gdp(1).split_evenly(2)}
    assert [card.asking for card in Controls.of_plan(both, columns).cards] == [
        "table",
        "level_total",
    ]


def test_the_ledger_computes_its_charge_anew_under_further_exact_statistics(
    plan: Plan, tmp_path: Path
) -> None:
    """Under {sex} two records may differ: μ = 2·2/4 = 1. Once the sizes are exact, the total is no
    secret: μ = 0.
    """
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.gdp(5))
    semidp.run(plan, PEOPLE, semidp.RunOptions(randomness=SeededRandomness(4), ledger=ledger))
    total = ledger.total()
    assert total is not None
    assert total.tradeoff == gaussian(1)
    more = Plan([TableRequest(["sex", "size"], Budget.gdp(1))], ["sex", "size"], [SIZES])
    semidp.run(more, PEOPLE, semidp.RunOptions(randomness=SeededRandomness(4), ledger=ledger))
    first, second = Ledger(tmp_path / "ledger.json").account().charges
    assert (first.tradeoff, first.spent) == (gaussian(1), gaussian(0))
    assert second.spent == gaussian(1)


def test_a_record_of_it_is_read_under_another_adjacency(plan: Plan) -> None:
    (mechanism,) = semidp.prepare(plan, PEOPLE).mechanisms
    space = mechanism.space
    assert mechanism_from_record(mechanism.record(), space.dataspace, Ball(4)).tradeoff == gaussian(
        2
    )
    damaged = {**mechanism.record(), "query": {"kind": "level total"}}
    with pytest.raises(InputError, match="the record of a query of level total is damaged"):
        mechanism_from_record(damaged, space.dataspace, Ball(4))
    with pytest.raises(Refused, match="knows no query"):
        mechanism_from_record(
            {**mechanism.record(), "query": {"kind": "level totals"}}, space.dataspace, Ball(4)
        )


def test_an_audit_attacks_it_on_the_worst_pair(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["audit", str(folder), "--seed", "1", "--samples", "20000", "--quiet"]) == 0
    words = capsys.readouterr().out
    assert "differ in 4 units (1 value)" in words
    assert "verdict    survives" in words


def test_an_audit_convicts_it_where_its_noise_is_too_small(folder: Path) -> None:
    (claim,) = claims_of_release(Release.load(folder))
    pair = choose_pair(claim.mechanism)
    assert pair.move.tolist() == [4]
    weaker = evolve(claim.mechanism, sigma2=claim.mechanism.sigma2 / 2)
    found = audit_mechanism(
        weaker.measure_many, pair, claim.tradeoff, samples=20_000, randomness=SeededRandomness(1)
    )
    assert found.verdict == "convicted"


# --- the cut


def test_the_folder_needs_the_shared_rooms_alone() -> None:
    """It imports no other statistic, and nothing above the statistics."""
    floors = {"promise", "errors"}
    shared = {"results", "sources", "fitting", "selection"}
    of_statistics = {"protocol", "setting", "findings", "outcomes"}
    imports = 0
    for path in (Path(__file__).parent / "level_totals").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(
                "semidp."
            ):
                continue
            floor, *rest = str(node.module).split(".")[1:]
            in_publish = floor == "publish" and (
                rest[0] in shared or (rest[0] == "statistics" and rest[1] in of_statistics)
            )
            assert floor in floors or in_publish, f"{path.name} imports {node.module}"
            imports += 1
    assert imports > 15


def test_the_folder_is_small() -> None:
    """At most 150 lines that are neither blank nor comment nor docstring."""
    code = 0
    for path in (Path(__file__).parent / "level_totals").glob("*.py"):
        text = path.read_text()
        prose: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                prose |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        for number, line in enumerate(text.splitlines(), 1):
            code += bool(line.strip()) and number not in prose and not line.strip().startswith("#")
    assert 100 < code <= 150


def test_nothing_outside_the_folder_knows_it() -> None:
    package = Path(semidp.__file__).parent
    modules = list(package.rglob("*.py"))
    assert len(modules) > 200
    for path in modules:
        words = path.read_text().casefold()
        assert "level_total" not in words, path
        assert "leveltotal" not in words, path
