"""Every command on its good day: what it prints where, its document for machines, its files."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semidp import Plan, Release
from semidp.promise.noise.randomness import SystemRandomness
from tests.cli.conftest import Done, Semidp, one_sentence
from tests.release.conftest import Example, assert_same_margins, strict_json, whole_counts

OCCUPATIONS = Example.named("occupational_status")
TITANIC = Example.named("titanic")
BOTH = (
    "--table",
    "origin,destination",
    "--invariant",
    "origin",
    "--invariant",
    "destination",
    "--count",
    "count",
)
FILES = {
    *("csv-metadata.json", "table.csv", "measurements.csv", "release.json", "report.html"),
}


def good(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


def test_release_writes_a_folder_and_says_where(here: Semidp, tmp_path: Path) -> None:
    done = good(here("release", OCCUPATIONS.path, *BOTH, "--rho", "1/2", "--out", "out/release"))
    folder = tmp_path / "out" / "release"
    exact = {"exact-origin.csv", "exact-destination.csv"}
    assert {path.name for path in folder.iterdir()} == FILES | exact
    assert_same_margins(OCCUPATIONS, folder, OCCUPATIONS.features, [["origin"], ["destination"]])
    assert done.err == ""
    for expected in (
        "counts of origin",
        "0.5-zCDP",
        "a = 3",
        "out/release/report.html",
        "tell your record from another possible one, and tolerates 5 false alarms in 100 attempts",
    ):
        assert expected in done.out
    page = (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


def test_release_for_machines(here: Semidp, tmp_path: Path) -> None:
    words = (
        "release",
        OCCUPATIONS.path,
        *BOTH,
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--out",
        "release",
    )
    done = good(here(*words, "--format", "json"))
    document = strict_json(done.out)
    assert document["schema_version"] == 1
    assert document["private"] is True
    assert document["a"]["used"] == document["a"]["worst_case"] == 3
    assert document["budget"] == document["tables"][0]["budget"]
    assert document["budget"] == {"kind": "approximate", "epsilon": 1, "delta": 1e-6}
    assert document["report_delta"] == 1e-6
    assert 0 < document["epsilon"] <= 1
    assert document["report"] == "release/report.html"
    assert document["ledger"] is None
    saved = strict_json((tmp_path / "release" / "release.json").read_text())
    assert [told["cells"] for told in document["errors"]] == [64]
    assert {key: saved[key] for key in saved if key != "files"} == {
        key: document[key] for key in document if key not in ("errors", "report")
    }


def test_delta_beside_rho_is_for_reporting(here: Semidp) -> None:
    words = (
        "release",
        OCCUPATIONS.path,
        *BOTH,
        "--rho",
        "1/2",
        "--delta",
        "1e-5",
        "--out",
        "release",
    )
    document = good(here(*words, "--format", "json")).json
    assert document["report_delta"] == 1e-5
    assert document["budget"] == {"kind": "zcdp", "rho": 0.5}


@pytest.mark.long
def test_the_reporting_target_has_one_name_in_every_command(here: Semidp, tmp_path: Path) -> None:
    budget = ("--epsilon", "1", "--delta", "1e-6", "--set", "report_delta=1e-4")
    released = good(
        here("release", OCCUPATIONS.path, *BOTH, *budget, "--out", "r", "--format", "json")
    ).json
    assert (released["budget"]["delta"], released["report_delta"]) == (1e-6, 1e-4)
    mechanism = good(here("analyze", OCCUPATIONS.path, *BOTH, *budget, "--format", "json")).json[
        "mechanisms"
    ][0]
    assert (mechanism["budget"]["delta"], mechanism["report_delta"]) == (1e-6, 1e-4)
    assert mechanism["epsilon"] < 1
    assert (
        "at delta 0.0001"
        in good(
            here("analyze", OCCUPATIONS.path, *BOTH, "--mu", "1", "--set", "report_delta=1e-4")
        ).out
    )
    good(here("ledger", "book.json", "--mu", "2"))
    good(
        here("release", OCCUPATIONS.path, *BOTH, "--mu", "1", "--ledger", "book.json", "--out", "s")
    )
    assert "(3.80" in good(here("ledger", "book.json", "--report-delta", "1e-4")).out
    both = ("--rho", "1", "--delta", "1e-5")
    for words in (
        ("release", OCCUPATIONS.path, *BOTH, "--out", "t", "--set", "report_delta=1e-4"),
        ("ledger", "new.json", "--report-delta", "1e-4"),
        ("guarantee", "--a", "2", "--report-delta", "1e-4"),
    ):
        assert "disagree" in one_sentence(here(*words, *both))
    (tmp_path / "plan.json").write_text(json.dumps(released["plan"]))
    words = (
        "release",
        OCCUPATIONS.path,
        "--plan",
        "plan.json",
        "--set",
        "report_delta=1e-3",
        "--out",
        "u",
    )
    assert good(here(*words, "--format", "json")).json["report_delta"] == 1e-3


def test_show_says_it_again(here: Semidp, tmp_path: Path) -> None:
    released = good(
        here(
            "release",
            OCCUPATIONS.path,
            *BOTH,
            "--mu",
            "1",
            "--adjacency",
            "definition",
            "--out",
            "r",
        )
    )
    shown = good(here("show", "r"))
    again, trusted = shown.out.split("on trust ")
    # Nothing is written now: the report that is there is named.
    assert again == released.out.replace("written    r/", "report     r/")
    assert "written    r/" in released.out
    assert "- the noisy values: that they were drawn from the records" in trusted
    assert shown.err == released.err
    assert "lies below the worst case" in shown.err
    assert good(here("show", "r", "--quiet")).err == ""
    document = good(here("show", "r", "--format", "json", "--quiet")).json
    assert document["schema_version"] == 1
    assert document["warnings"]
    (tmp_path / "r" / "table.csv").write_text("origin,destination,count,standard_error\n")
    assert "was changed" in one_sentence(here("show", "r"))
    assert "not a release" in one_sentence(here("show", "nowhere"))


def test_demo_is_a_full_release(here: Semidp, tmp_path: Path) -> None:
    done = good(here("demo"))
    folder = tmp_path / "build" / "demo"
    assert {path.name for path in folder.iterdir()} == FILES | {"exact-county-district.csv"}
    assert Release.load(folder).private
    command = done.out.splitlines()[0]
    assert command.startswith("semidp release build/california_schools.csv --nest county,district")
    good(here(*shlex.split(command)[1:]))  # as it is printed
    report = (folder / "report.html").read_text()
    assert report.count('<details class="branch">') == 45  # counties
    assert "<summary>Alameda <span" in report
    assert "Open build/demo/report.html" in done.out
    good(here("demo", "--out", "build/demo"))
    assert (
        good(here("demo", "--format", "json", "--quiet")).json["report"] == "build/demo/report.html"
    )


def test_demo_writes_a_small_file_and_no_other(here: Semidp, tmp_path: Path) -> None:
    done = good(here("demo", "--data", "people.csv"))
    good(here(*shlex.split(done.out.splitlines()[-1])[1:]))
    good(here("demo", "--data", "people.csv"))  # the same file again
    (tmp_path / "people.csv").write_text("mine\n")
    assert "people.csv exists already" in one_sentence(here("demo", "--data", "people.csv"))
    assert (tmp_path / "people.csv").read_text() == "mine\n"


@pytest.mark.parametrize(
    "command", ["analyze", "release", "test", "guarantee", "audit", "ledger", "show", "census"]
)
def test_every_command_takes_format_and_quiet(here: Semidp, command: str) -> None:
    text = good(here(command, "--help")).out
    assert "--format" in text
    assert "--quiet" in text


def sameness(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "release.json").read_text())
    document.pop("created")
    return document


@pytest.mark.long
def test_a_plan_file_says_the_same_as_options(here: Semidp, tmp_path: Path) -> None:
    words = (
        *(
            "--table",
            "class,survived",
            "--invariant",
            "class,sex",
            "--invariant",
            "survived",
            "--count",
            "count",
        ),
        *("--levels", "class=1st,2nd,3rd,Crew", "--where", "age = 'Adult'", "--a", "4"),
        *("--set", "mechanism=laplace", "--set", "fit=none", "--epsilon", "1/3"),
    )
    good(here("release", TITANIC.path, *words, "--seed", "3", "--out", "options"))
    (tmp_path / "plan.toml").write_text(
        Plan.from_json(sameness(tmp_path / "options")["plan"]).to_toml()
    )
    (tmp_path / "plan.json").write_text(json.dumps(sameness(tmp_path / "options")["plan"]))
    good(here("release", TITANIC.path, "--plan", "plan.json", "--seed", "3", "--out", "json"))
    assert sameness(tmp_path / "json") == sameness(tmp_path / "options")
    (tmp_path / "plan.json").write_text("[1")
    assert "not valid JSON" in one_sentence(
        here("release", TITANIC.path, "--plan", "plan.json", "--out", "no")
    )
    (tmp_path / "plan.json").write_text("[1]")
    assert "form" in one_sentence(
        here("release", TITANIC.path, "--plan", "plan.json", "--out", "no")
    )
    good(here("release", TITANIC.path, "--plan", "plan.toml", "--seed", "3", "--out", "plan"))
    assert sameness(tmp_path / "plan") == sameness(tmp_path / "options")
    (tmp_path / "plan.toml").write_text("""
        invariants = [["class", "sex"], ["survived"]]
        adjacency = 4
        count = "count"
        where = "age = 'Adult'"

        [[table]]
        features = ["class", "survived"]
        mechanism = "laplace"
        fit = "none"

        [[feature]]
        name = "class"
        levels = ["1st", "2nd", "3rd", "Crew"]
        """)
    good(
        here(
            "release",
            TITANIC.path,
            "--plan",
            "plan.toml",
            "--epsilon",
            "1/3",
            "--seed",
            "3",
            "--out",
            "by hand",
        )
    )
    assert sameness(tmp_path / "by hand") == sameness(tmp_path / "options")


@pytest.mark.parametrize(
    "words",
    [
        ("--table", "a"),
        ("--invariant", "a"),
        ("--count", "n"),
        ("--where", "a = 1"),
        ("--id", "n"),
        ("--levels", "a=x"),
        ("--a", "2"),
        ("--adjacency", "definition"),
        ("--set", "mechanism=laplace"),
        ("--set", "fit=none"),
        ("--levels-from-data",),
        ("--rho", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_plan_file_and_options_do_not_mix(
    here: Semidp, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "plan.toml").write_text(
        "count = 'count'\n[[table]]\nfeatures = ['class']\nrho = '1'\n"
    )
    done = here("release", TITANIC.path, "--plan", "plan.toml", *words, "--out", "release")
    assert "plan" in one_sentence(done)
    assert not (tmp_path / "release").exists()


def test_several_tables_from_a_plan_file(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("""
        invariants = [["class"], ["sex"], ["survived"]]
        count = "count"
        [[table]]
        name = "by class"
        features = ["class", "survived"]
        rho = "0.25"
        [[table]]
        name = "by sex"
        features = ["sex", "survived"]
        """)
    words = ("release", TITANIC.path, "--plan", "plan.toml", "--rho", "1/8", "--out", "release")
    assert "create it once" in one_sentence(here(*words, "--ledger", "ledger.json"))
    good(here("ledger", "ledger.json", "--rho", "1"))
    good(here(*words, "--ledger", "ledger.json"))
    assert sum(whole_counts(tmp_path / "release", "by class.csv").values()) == sum(
        TITANIC.counts.values()
    )
    assert sum(whole_counts(tmp_path / "release", "by sex.csv").values()) == sum(
        TITANIC.counts.values()
    )
    assert "0.375-zCDP" in good(here("show", "release")).out
    assert "spent      0.375-zCDP" in good(here("ledger", "ledger.json")).out


def test_a_dry_run_draws_and_writes_nothing(
    here: Semidp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*words: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(SystemRandomness, "words", never)
    before = sorted(tmp_path.rglob("*"))
    words = (
        "release",
        OCCUPATIONS.path,
        *BOTH,
        "--mu",
        "1",
        "--dry-run",
        "--ledger",
        "ledger.json",
        "--out",
        "release",
    )
    text = good(here(*words)).out
    assert "nothing was drawn or written" in text
    assert "would use  rounded gaussian" in text
    assert "μ = 1 (Gaussian DP)" in text
    document = good(here(*words, "--format", "json")).json
    assert document["schema_version"] == 1
    assert document["dry_run"] is True
    assert document["tables"][0]["noise"]["name"] == "rounded gaussian"
    assert document["tables"][0]["noise"]["scale"] == pytest.approx(6**0.5)
    assert document["a"]["used"] == 3
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(AssertionError, match="drawn"):  # the trap works
        SystemRandomness().words(1)


def test_a_seed_is_refused_before_a_dry_run_as_well(here: Semidp) -> None:
    done = here("release", OCCUPATIONS.path, *BOTH, "--mu", "1", "--seed", "-1", "--dry-run")
    assert "a seed must be a whole number, 0 or more" in one_sentence(done)


def test_a_ledger_is_charged_and_refuses(here: Semidp, tmp_path: Path) -> None:
    good(here("ledger", "ledger.json", "--rho", "1"))
    words = ("release", OCCUPATIONS.path, *BOTH, "--rho", "0.4", "--ledger", "ledger.json", "--out")
    first = good(here(*words, "one", "--format", "json")).json
    assert first["ledger"]["number"] == 1
    assert good(here(*words, "two", "--format", "json")).json["ledger"]["number"] == 2
    assert "charged to a ledger" in (tmp_path / "two" / "report.html").read_text()
    assert "exceed the ledger's budget" in one_sentence(here(*words, "three"))
    assert not (tmp_path / "three").exists()
    document = good(here("ledger", "ledger.json", "--format", "json")).json
    assert document["budget"] == {"kind": "zcdp", "rho": 1}
    assert len(document["charges"]) == 2
    assert document["spent"] == "0.8-zCDP"
    other = (
        "release",
        TITANIC.path,
        "--table",
        "class,sex",
        "--invariant",
        "class",
        "--invariant",
        "sex",
    )
    done = here(
        *other, "--count", "count", "--rho", "0.1", "--ledger", "ledger.json", "--out", "three"
    )
    assert "another ledger" in one_sentence(done)


def test_a_ledger_that_is_not_there_is_refused(here: Semidp, tmp_path: Path) -> None:
    """A slip in its name must not open a fresh budget."""
    words = ("--epsilon", "1", "--ledger", "leger.json")
    for done in (
        here("release", OCCUPATIONS.path, *BOTH, *words, "--out", "one"),
        here(
            *("release", TITANIC.path, "--count", "count", "--odds-ratio", "sex,survived"),
            *(*words, "--out", "two"),
        ),
    ):
        assert "there is no ledger at leger.json" in one_sentence(done)
        assert "semidp ledger FILE --rho 1" in done.err
    assert not list(tmp_path.iterdir())


def test_schema_file_bins_null_level_where_and_id(here: Semidp, tmp_path: Path) -> None:
    rows = [
        (
            n,
            "" if n % 7 == 0 else n,
            "single" if n < 18 or n % 7 == 0 or n % 3 else "married",
            '"south, west"',
        )
        for n in range(1, 80)
    ]
    lines = ["person,age,status,region", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    schema = """
        [[feature]]
        name = "age"
        bins = [0, 18, 65, inf]
        null_level = "unknown"
        [[feature]]
        name = "status"
        levels = ["single", "married"]
        [[feature]]
        name = "region"
        levels = ["north", "south, west"]
        [[structural_zero]]
        age = "CHILD"
        status = "married"
        """
    (tmp_path / "schema.toml").write_text(schema)
    words = (
        "--table",
        "age,status,region",
        "--invariant",
        "age",
        "--schema",
        "schema.toml",
        "--id",
        "person",
    )
    words += ("--where", "person <> 77", "--rho", "0.01", "--out", "release")
    # a wrong level lists the right ones
    assert "0 to <18" in one_sentence(here("release", "people.csv", *words))
    (tmp_path / "schema.toml").write_text(schema.replace("CHILD", "0 to <18"))
    good(here("release", "people.csv", *words))
    counts = whole_counts(tmp_path / "release")
    assert {cell[0] for cell in counts} == {"0 to <18", "18 to <65", "65 and over", "unknown"}
    assert {counts["0 to <18", "married", region] for region in ("north", "south, west")} == {0}
    assert sum(counts.values()) == 78
    options = (
        "--table",
        "age,status",
        "--invariant",
        "status",
        "--bins",
        "age=0,18,65,",
        "--set",
        "null_level=age=unknown",
    )
    good(here("release", "people.csv", *options, "--epsilon", "1", "--out", "options"))
    assert {cell[0] for cell in whole_counts(tmp_path / "options")} == {cell[0] for cell in counts}


def test_warnings_go_to_stderr_and_can_be_silenced(here: Semidp) -> None:
    words = (
        "release",
        OCCUPATIONS.path,
        *BOTH,
        "--rho",
        "1",
        "--a",
        "2",
        "--force",
        "--out",
        "release",
    )
    loud, quiet = good(here(*words)), good(here(*words, "--quiet"))
    assert loud.err.startswith("warning: The adjacency a = 2 lies below the worst case")
    assert "below the worst case" not in loud.out
    assert quiet.err == ""
    assert json.loads(good(here(*words, "--quiet", "--format", "json")).out)["warnings"]


def test_colour_is_never_forced(here: Semidp, semidp: Semidp) -> None:
    for words in (
        ("analyze", OCCUPATIONS.path, *BOTH),
        ("guarantee", "--rho", "1", "--a", "2"),
        ("release", "--help"),
    ):
        done = good(here(*words))
        assert "\x1b" not in done.out + done.err


@pytest.mark.long
def test_no_colour_on_a_terminal_that_asks_for_none(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "semidp", "guarantee", "--rho", "1", "--a", "2"]
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        words, stdout=slave, stderr=slave, env=environment, cwd=tmp_path, check=False
    )
    os.close(slave)
    text = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == 0
    assert "tight" in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", text)


def test_every_document_has_a_version(here: Semidp) -> None:
    good(here("release", OCCUPATIONS.path, *BOTH, "--rho", "1", "--out", "release"))
    good(here("ledger", "ledger.json", "--rho", "1"))
    for words in (
        ("analyze", OCCUPATIONS.path, *BOTH),
        ("guarantee", "--rho", "2.56", "--a", "2"),
        ("show", "release"),
        ("ledger", "ledger.json"),
        ("test", "release", "--rows", "origin", "--columns", "destination", "--seed", "1"),
    ):
        assert strict_json(good(here(*words, "--format", "json")).out)["schema_version"] == 1


def test_results_only_on_stdout(here: Semidp) -> None:
    done = good(
        here("analyze", OCCUPATIONS.path, *BOTH, "--adjacency", "definition", "--format", "json")
    )
    json.loads(done.out)
    assert done.err.startswith("warning: ")
