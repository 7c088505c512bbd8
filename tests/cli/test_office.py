"""What a command offers beside its work: the paper's numbers, a log, completion, refusals that say
why.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from semidp import Plan
from semidp.applications.study import NUMBERED, STUDIES, study_name
from semidp.errors import InputError
from tests.cli.conftest import Semidp, one_sentence

DOCS = Path(__file__).parent.parent.parent / "docs"
PEOPLE = "sex,region,weight\nf,n,1.5\nm,s,2.25\nf,s,1\nm,n,1\n"


def test_the_papers_numbers_are_studies_and_on_the_page() -> None:
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    errata = (DOCS / "errata.md").read_text(encoding="utf-8")
    assert len(NUMBERED) == 8
    for number, study in NUMBERED.items():
        assert study in STUDIES
        assert f"`{number}` (`{study}`)" in page
    assert study_name("Figure 2") == "gaussian"
    assert study_name("nothing") == "nothing"
    links = re.findall(r"errata\.md#(\d+)-", page)
    assert links
    assert all(f"\n## {number}. " in errata for number in links)


def test_reproduce_takes_the_papers_number(here: Semidp, tmp_path: Path) -> None:
    assert here("reproduce", "section-3.4", "--out", "out").code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "adjacency.csv",
        "adjacency.png",
        "studies.json",
    }
    assert "of the paper figure-1" in one_sentence(here("reproduce", "figure-9", "--out", "more"))


def test_a_log_holds_what_was_asked_and_said(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    words = (
        "release",
        "people.csv",
        "--table",
        "sex,region",
        "--levels-from-data",
        "--mu",
        "1",
        "--out",
        "out",
    )
    done = here(*words, "--log", "run.log")
    assert done.code == 0
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert "semidp release people.csv --table sex,region" in lines[0]
    assert "--log" not in lines[0]
    assert any("warning: The lists of levels of sex and region" in line for line in lines)
    assert re.search(r"exit code 0 after [0-9.]+ s$", lines[-1])
    assert one_sentence(here(*words, "--log=run.log")).startswith("semidp: ")
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert lines[-1].rpartition(" after ")[0].endswith("exit code 2")
    assert "choose another --out" in lines[-2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("show", "x", "--log"), "--log takes the name of a file"),
        (("show", "x", "--log", "a", "--log", "b"), "--log is given twice"),
        (("show", "x", "--log", "nowhere/run.log"), "cannot write to the log"),
        (("show", "x", "--log", "people.csv"), "people.csv is not a log of semidp: name a new"),
        (("show", "x", "--log=blank.txt"), "blank.txt is not a log of semidp"),
    ],
)
def test_a_log_that_cannot_be_is_one_sentence(
    here: Semidp, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    kept = {"people.csv": PEOPLE, "blank.txt": "\n"}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    assert reason in one_sentence(here(*words))
    assert {name: (tmp_path / name).read_text() for name in kept} == kept


def test_an_empty_file_becomes_a_log(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "run.log").touch()
    for lines in (3, 6):
        assert "not a release" in one_sentence(here("show", "x", "--log", "run.log"))
        assert len((tmp_path / "run.log").read_text().splitlines()) == lines


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("semidp rel", ["release"]),
        pytest.param("semidp release --levels-", ["--levels-from-data"], marks=pytest.mark.long),
    ],
)
def test_a_shell_completes_commands(typed: str, completed: list[str]) -> None:
    environment = {
        **os.environ,
        "_SEMIDP_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['semidp']; from semidp.cli import main; main()",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == completed


def test_survey_weights_and_unknown_sizes_are_refused_with_the_reason(
    here: Semidp, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    words = (
        "release",
        "people.csv",
        "--table",
        "sex",
        "--levels",
        "sex=f,m",
        "--mu",
        "1",
        "--out",
        "out",
    )
    said = one_sentence(here(*words, "--count", "weight"))
    assert (
        "Survey weights are not counts, and are refused: one person would stand for as many" in said
    )
    said = one_sentence(here(*words, "--adjacency", "add-remove"))
    assert "data without a public number of records are refused" in said
    with pytest.raises(InputError, match="adding or removing one"):
        Plan(adjacency="unbounded")


def test_words_of_the_terminal_are_explained_where_they_stand(here: Semidp, tmp_path: Path) -> None:
    records = ["sex,region,ill", *(f"{'fm'[k % 2]},{'nsw'[k % 3]},{k % 2}" for k in range(60))]
    (tmp_path / "ill.csv").write_text("\n".join(records) + "\n")
    exact = ("--exact", "sex", "--exact", "region")
    table = ("ill.csv", "--table", "sex,region,ill", *exact, "--levels", "ill=0,1")
    analyzed = here("analyze", *table).out
    assert "off by: the expected distance from the truth" in analyzed
    assert "exact claim: proved of the whole numbers that are drawn" in analyzed
    assert "loss" not in analyzed
    released = here("release", *table, "--mu", "1", "--out", "out").out
    assert "noise on residuals (what the table has beyond its totals)" in released
    assert "ordinary differential privacy has" in released
    assert "GDP" not in released + analyzed
