"""A distribution goes through everything: plan, dry run, release, recheck, ledger, audit, report,
notebook.
"""

import csv
import hashlib
import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import semidp
from semidp import Budget, Ledger, Outcome, Plan, Release, RunOptions
from semidp.assess import audit_mechanism, choose_pair, claims_of_release
from semidp.cli import run as command
from semidp.errors import InputError, Refused
from semidp.promise.accounting.account import Charge
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.tradeoff.budget import gaussian
from semidp.publish import TableRequest
from semidp.publish.recheck import recheck
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.distribution.published import cut_places
from semidp.publish.statistics.protocol.statistic import PublishedStatistic

pytestmark = pytest.mark.pictures

SCORE = Outcome("score", 0, 20, 20)
PLAN_FILE = """
invariants = ["school", "year"]

[[distribution]]
column = "score"
bounds = ["0", "20"]
grid = 20
by = [["school"], ["year"]]
lines = ["10", "15.5"]
mu = "2"
"""


def pupils() -> dict[str, list[str] | list[float]]:
    """Three schools of 80, 60 and 40, two years; scores differ by school."""
    source = np.random.default_rng(7)
    school = ["a"] * 80 + ["b"] * 60 + ["c"] * 40
    level = {"a": 9.0, "b": 11.0, "c": 13.0}
    score = [float(np.clip(source.normal(level[name], 3), 0, 20).round(1)) for name in school]
    return {"school": school, "year": ["10", "11"] * 90, "score": score}


@pytest.fixture
def plan() -> Plan:
    return Plan.from_toml(PLAN_FILE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that no test changes."""
    path = tmp_path_factory.mktemp("distribution") / "release"
    semidp.run(Plan.from_toml(PLAN_FILE), pupils(), SeededRandomness(4)).save(path)
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(made, tmp_path / "release")
    return tmp_path / "release"


def only(release: Release) -> PublishedStatistic:
    (result,) = release.distributions
    return result


def disagreements(folder: Path) -> tuple[str, ...]:
    return recheck(
        Release.load(folder), json.loads((folder / "release.json").read_text()), folder
    ).disagreements


# --- plans and the front


def test_a_plan_file_asks_for_it_and_is_written_back(plan: Plan) -> None:
    (request,) = plan.requests
    assert request == DistributionRequest(
        SCORE, [["school"], ["year"]], lines=[10, "15.5"], budget=Budget.gdp(2)
    )
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(plan.to_json()) == plan
    for key in ("probabilities", "level", "mechanism"):
        assert key not in plan.to_toml()
    other = Plan(
        [DistributionRequest(SCORE, [["school"]], [], [5], Budget.gdp(1), "laplace", "all", "0.9")],
        ["school"],
    )
    assert Plan.from_toml(other.to_toml()) == other


@pytest.mark.parametrize(
    ("bounds", "key", "steps"),
    [
        (["0", "20"], {}, 20),
        (["0", "1000"], {}, 1000),
        (["0", "1001"], {}, 100),
        (["0", "20.5"], {}, 100),
        (["0", "4"], {}, 80),
        (["0", "3"], {}, 60),
        (["0", "4"], {"step": 1}, 4),
        (["0", "20.5"], {"step": "0.5"}, 41),
        (["0", "20"], {"grid": 7}, 7),
    ],
)
def test_a_plan_without_a_grid_has_steps_of_one(
    bounds: list[str], key: dict[str, str | int], steps: int
) -> None:
    entry = {"column": "score", "bounds": bounds, "by": [["school"]], "mu": "1", **key}
    (request,) = Plan.from_json({"invariants": ["school"], "distribution": [entry]}).requests
    assert isinstance(request, DistributionRequest)
    assert request.outcome.steps == steps
    assert Plan.from_json(Plan([request], ["school"]).to_json()).requests == (request,)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"by": [["score"]]}, "forms the groups"),
        ({"lines": ["30"]}, "a line lies above 0 and at most at 20"),
        ({"lines": ["10", "5"]}, "in growing order"),
        ({"lines": "10"}, "lines are a list of numbers"),
        ({"probabilities": ["2"]}, "between 0 and 1"),
        ({"level": "95"}, "lies between 0 and 1"),
        ({"grid": 5000}, "at most 4,096 steps"),
        ({"bounds": None}, "needs declared bounds"),
        ({"quantiles": ["0.5"]}, "quantiles"),
    ],
)
def test_bad_entries_are_refused_in_a_sentence(wrong: dict[str, object], said: str) -> None:
    entry = {"column": "score", "bounds": ["0", "20"], "by": [["school"]], "mu": "1", **wrong}
    with pytest.raises(InputError, match=said):
        Plan.from_json({"invariants": ["school"], "distribution": [entry]})


def test_the_front_asks_for_it() -> None:
    asked = semidp.distribution("score", by="school", bounds=(0, 20), steps=20, lines=[10])
    release = semidp.release(pupils(), asked, mu=2, randomness=SeededRandomness(1))
    result = only(release)
    assert result.request.by == (semidp.Margin("school"),)
    assert release.guarantee.tradeoff == gaussian(2)
    assert set(result.columns_by_name()) == {"distribution-score", "distribution-score-quantiles"}
    assert "'distribution-score': distribution of score by school, rounded" in repr(result)
    assert result._repr_html_().count("<table") == 2


def test_groups_without_exact_counts_are_refused() -> None:
    request = DistributionRequest(SCORE, [["school", "year"]], budget=Budget.gdp(1))
    with pytest.raises(Refused, match="those of school × year are not published"):
        semidp.run(Plan([request], ["school", "year"]), pupils())


# --- what is released


def test_what_is_published_is_near_the_truth(folder: Path) -> None:
    result = only(Release.load(folder))
    records = pupils()
    cuts = cut_places(result.request)
    for number, feature in enumerate(("school", "year")):
        curves, part = result.sheets[2 * number : 2 * number + 2]
        for place, (level,) in enumerate(part.groups):
            own = [
                s
                for s, name in zip(records["score"], records[feature], strict=True)
                if name == level
            ]
            assert part.counts[place] == len(own)
            values = np.array(own)
            truth = np.array([(values < cut).mean() for cut in cuts])
            rows = slice(place * len(cuts), (place + 1) * len(cuts))
            low, high = curves["band_lower"][rows], curves["band_upper"][rows]
            assert (low <= truth + 1e-9).all()
            assert (truth <= high + 1e-9).all()
            share = (values < 10).mean()
            assert part["below_10_lower"][place] <= share <= part["below_10_upper"][place]


def test_a_folder_is_read_back_and_answers_more(plan: Plan, folder: Path) -> None:
    result, again = (
        only(Release.load(folder)),
        only(semidp.run(plan, pupils(), SeededRandomness(4))),
    )
    assert result.noisy.tolist() == again.noisy.tolist()
    for one, other in zip(result.sheets, again.sheets, strict=True):
        assert one.to_dict() == other.to_dict()
    by = semidp.Margin("school")
    (third,) = result.analysis.quantiles(["1/3"], by)
    assert third.names == (("a",), ("b",), ("c",))
    assert (third.lower <= third.upper).all()
    listed = result.sheets[1]
    (median,) = result.analysis.quantiles(["1/2"], by)
    assert median.upper.tolist() == listed["q0.5_upper"].tolist()
    assert result.analysis.shares_below(10, by).lower.tolist() == listed["below_10_lower"].tolist()
    with pytest.raises(InputError, match="say by which groups"):
        result.analysis.quantiles(["1/2"])


def test_the_report_and_the_terminal_say_what_there_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (folder / "report.html").read_text()
    assert "Published distribution of score by school" in page
    assert "Published distribution of score by year" in page
    assert "share below 15.5" in page
    assert page.count("<svg") >= 2
    assert command(["show", str(folder)]) == 0
    words = capsys.readouterr().out
    assert "distribution of score by school and by year: 5 groups" in words
    assert "distribution-score-by-school.csv noisy" in words


def test_a_picture_has_a_panel_a_group_and_none_without_records(folder: Path) -> None:
    result = only(Release.load(folder))
    figure = result.plot(by=1)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", ""]
    many = {"group": [str(k) for k in range(40)] * 2, "score": [1.0] * 80}
    asked = DistributionRequest(SCORE, [["group"]], budget=Budget.gdp(1))
    drawn = only(semidp.run(Plan([asked], ["group"]), many, SeededRandomness(1))).plot(by=1)
    assert sum(bool(axes.get_title()) for axes in drawn.axes) == 12


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "budget", [Budget.pure(4), Budget.zcdp(1), Budget.approximate(4, "1e-6")], ids=str
)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_other_budgets_and_adjacencies(budget: Budget, adjacency: str, tmp_path: Path) -> None:
    request = DistributionRequest(SCORE, [["school"]], budget=budget)
    plan = Plan([request], ["school"], adjacency=adjacency)
    semidp.run(plan, pupils(), SeededRandomness(2)).save(tmp_path / "release")
    assert disagreements(tmp_path / "release") == ()


def test_a_release_of_nobody_needs_no_noise(tmp_path: Path) -> None:
    request = DistributionRequest(SCORE, [["school"]], budget=Budget.gdp(1))
    schools = semidp.Feature("school", ["a", "b"])
    release = semidp.run(
        Plan([request], ["school"], [schools]), {"school": [], "score": []}, SeededRandomness(2)
    )
    assert only(release).noise.absent
    release.save(tmp_path / "none")
    assert disagreements(tmp_path / "none") == ()


def test_parts_without_a_table_to_cut_are_refused_in_a_sentence(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(semidp.SemidpError, match="no feature of these tables is nested"):
        semidp.run(plan, pupils(), RunOptions(out=tmp_path / "parts"), partition="school")
    assert not (tmp_path / "parts").exists()


# --- recheck


def forged(folder: Path, file: str, column: str, by: float) -> None:
    """Change a number of the first row of a file, and make its digest right again."""
    header, row, *rows = csv.reader((folder / file).read_text().splitlines())
    place = header.index(column)
    number = float(row[place]) + by
    row[place] = str(int(number)) if column in ("noisy", "count") else repr(number)
    (folder / file).write_text("\n".join(",".join(line) for line in (header, row, *rows)) + "\n")
    document = json.loads((folder / "release.json").read_text())
    document["files"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / "release.json").write_text(json.dumps(document))
    (folder / "report.html").unlink(missing_ok=True)


def test_an_honest_release_agrees(folder: Path) -> None:
    assert disagreements(folder) == ()


@pytest.mark.parametrize("column", ["share", "lower", "upper", "band_lower", "band_upper", "noisy"])
def test_a_forged_curve_is_found_out(folder: Path, column: str) -> None:
    forged(folder, "distribution-score-by-school.csv", column, by=40 if column == "noisy" else 0.01)
    assert any("another column" in said for said in disagreements(folder))


@pytest.mark.parametrize(
    "column", ["count", "q0.5", "q0.5_lower", "q0.9_upper", "below_10", "below_15.5_upper"]
)
def test_a_forged_list_is_found_out(folder: Path, column: str) -> None:
    forged(folder, "distribution-score-by-year-quantiles.csv", column, by=1)
    assert any("another column" in said for said in disagreements(folder))


def test_less_noise_than_the_budget_needs_is_found_out(folder: Path) -> None:
    document = json.loads((folder / "release.json").read_text())
    document["distributions"][0]["noise"]["scale"] /= 2
    (folder / "release.json").write_text(json.dumps(document))
    assert any("states noise.scale" in said for said in disagreements(folder))


# --- ledger and audit


def test_the_ledger_computes_its_charge_anew(tmp_path: Path) -> None:
    """Under {school} two records may differ, under {school, year} three: μ = 3/2 of what was
    charged.
    """
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.gdp(9))
    request = DistributionRequest(SCORE, [["school"]], budget=Budget.gdp(1))
    options = RunOptions(randomness=SeededRandomness(1), ledger=ledger)
    semidp.run(Plan([request], ["school"]), pupils(), options)
    total = ledger.total()
    assert total is not None
    assert total.tradeoff == gaussian(1)
    table = TableRequest(["school", "year"], Budget.gdp(1))
    semidp.run(Plan([table], ["school", "year"]), pupils(), options)
    first: Charge
    first, _ = Ledger(tmp_path / "ledger.json").account().charges
    assert (first.tradeoff, first.spent) == (gaussian(1), gaussian("3/2"))


def test_a_record_is_read_under_other_adjacencies(plan: Plan) -> None:
    (mechanism,) = semidp.prepare(plan, pupils()).mechanisms
    record = json.loads(json.dumps(mechanism.record()))
    space = mechanism.space
    assert (
        mechanism_from_record(record, space.dataspace, space.adjacency).tradeoff
        == mechanism.tradeoff
    )
    assert mechanism_from_record(record, space.dataspace, Ball(6)).tradeoff == gaussian(4)
    exchange = mechanism_from_record(
        record, space.dataspace, Exchange.from_dataspace(space.dataspace)
    ).tradeoff
    assert exchange.mu_squared < mechanism.tradeoff.mu_squared
    assert mechanism.under(Ball(6)).tradeoff == gaussian(4)
    with pytest.raises(InputError, match="the record of a query of distribution is damaged"):
        mechanism_from_record(
            {**record, "query": {"kind": "distribution"}}, space.dataspace, Ball(2)
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_an_audit_survives_and_convicts(adjacency: str) -> None:
    request = DistributionRequest(SCORE, [["school"]], budget=Budget.gdp(1))
    release = semidp.run(
        Plan([request], ["school"], adjacency=adjacency), pupils(), SeededRandomness(3)
    )
    (claim,) = claims_of_release(release)
    pair = choose_pair(claim.mechanism)
    assert (pair.move**2).sum() == claim.mechanism.space.l2_squared
    options = {"samples": 20_000, "randomness": SeededRandomness(1)}
    honest = audit_mechanism(claim.mechanism.measure_many, pair, claim.tradeoff, **options)
    assert honest.verdict == "survives"
    weaker = evolve(claim.mechanism, sigma2=claim.mechanism.sigma2 / 2)
    assert (
        audit_mechanism(weaker.measure_many, pair, claim.tradeoff, **options).verdict == "convicted"
    )


# --- before anything is drawn


def test_a_dry_run_and_compare_say_how_far_off_it_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = pupils()
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path("pupils.csv").write_text("\n".join(lines) + "\n")
    Path("plan.toml").write_text(PLAN_FILE)
    assert command(["release", "pupils.csv", "--plan", "plan.toml", "--dry-run"]) == 0
    assert "points of a group of 80" in capsys.readouterr().out
    assert (
        command(["release", "pupils.csv", "--plan", "plan.toml", "--dry-run", "--format", "json"])
        == 0
    )
    (foreseen,) = json.loads(capsys.readouterr().out)["distributions"]
    assert 0 < foreseen["half_width"] < foreseen["widest"] < foreseen["band"]
    assert command(["compare", "plan.toml", "plan.toml", "--data", "pupils.csv"]) == 0
    assert "distribution-score" in capsys.readouterr().out
    assert (
        command(["release", "pupils.csv", "--plan", "plan.toml", "--out", "made", "--seed", "1"])
        == 0
    )
    result = only(Release.load(Path("made")))
    for groups in (semidp.Margin("school"), semidp.Margin("year")):
        assert result.analysis.block_half_widths(groups).mean() == foreseen["half_width"]
    assert result.request.level == Fraction(19, 20)


def test_options_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = pupils()
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path("pupils.csv").write_text("\n".join(lines) + "\n")
    asked = [
        "release",
        "pupils.csv",
        "--group",
        "school",
        "--distribution",
        "score",
        "--bounds",
        "score=0,20",
    ]
    more = [
        "--set",
        "grid=score=20",
        "--line",
        "score=15,10",
        "--set",
        "level=0.9",
        "--mu",
        "2",
        "--seed",
        "1",
    ]
    assert command([*asked, *more, "--out", "made"]) == 0
    result = only(Release.load(Path("made")))
    assert result.request == DistributionRequest(
        SCORE, [["school"]], lines=[10, 15], budget=Budget.gdp(2), level="0.9"
    )
    capsys.readouterr()
    assert command([*asked, "--line", "age=3", "--mu", "2", "--dry-run"]) == 2
    assert "--line names 'age', and no statistic" in capsys.readouterr().err
    assert command([*asked[:6], "--mu", "1", "--dry-run"]) == 2
    assert "needs declared bounds" in capsys.readouterr().err


def test_a_dry_run_says_where_a_distribution_is_better_than_choosing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With intervals, and for many quantiles; not for a median alone, nor for a population."""
    monkeypatch.chdir(tmp_path)
    columns = pupils()
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    Path("pupils.csv").write_text("\n".join(lines) + "\n")
    asked = [
        "release",
        "pupils.csv",
        "--group",
        "school",
        "--bounds",
        "score=0,20",
        "--set",
        "grid=score=20",
        "--mu",
        "1",
    ]
    said = {}
    for name, more in {
        "median": ["--median", "score"],
        "interval": ["--median", "score", "--set", "quantile_level=0.95"],
        "population": [
            "--median",
            "score",
            "--set",
            "quantile_level=0.95",
            "--set",
            "sampling=true",
        ],
        "many": ["--quantile", "score=0.1,0.2,0.3,0.4,0.6,0.7"],
        "distribution": ["--distribution", "score"],
    }.items():
        assert command([*asked, *more, "--dry-run"]) == 0
        said[name] = capsys.readouterr().out
    assert "choice     median-score: a distribution has intervals of about ±" in said["interval"]
    assert "choice     quantiles-score: a distribution is about" in said["many"]
    assert "choice     median-score: selection is about" in said["median"]
    for name in ("population", "distribution"):
        assert "choice   " not in said[name]
    for name in said:
        assert "otherwise" not in said[name]
    interval = [
        "--median",
        "score",
        "--set",
        "quantile_level=0.95",
        "--dry-run",
        "--format",
        "json",
    ]
    assert command([*asked, *interval]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["choices"]) == 1
    assert document["plan"]["distribution"][0]["answers"] == "intervals"
    # Whoever names selection is told that a distribution would be better.
    assert command([*asked, *interval, "--set", "quantile_mechanism=selection"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["quantiles"]
    assert "a distribution has intervals of about ±" in entry["otherwise"][0]
