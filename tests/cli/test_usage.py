"""What is said of command lines that cannot be read: one plain sentence."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Semidp, one_sentence

PEOPLE = "sex,region\n" + "f,n\nm,s\nf,s\nm,n\n" * 5
RELEASE = (
    *("release", "people.csv", "--table", "sex,region", "--levels-from-data"),
    *("--mu", "1", "--out", "out"),
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--units", "homes.csv", "--most-members", "0"), "linked files need --link"),
        (("--most-members", "0"), "--most-members works only with --units"),
        (
            ("--set", "round_to=0"),
            "--set round_to=… takes a whole number from 1 on",
        ),
        (("--set", "mark_below=few"), "--set mark_below=… takes a whole number from 1 on"),
        (("--where", "--seed", "1"), "--where SQL needs a value: '--seed' follows it"),
        (("--set", "--quiet"), "--set KEY=VALUE needs a value: '--quiet' follows it, which is an"),
        (("--set", "titel=Health"), "there is no setting 'titel' here (did you mean 'title'?)"),
        (("--set", "title"), "--set takes KEY=VALUE, such as title=Health, not 'title'"),
        (("--set", "fit=none", "--set", "fit=integer"), "--set fit=… is given twice: keep one"),
        (("--set", "mu=2"), "--mu is given twice: keep one"),
        (("--title", "Health of all"), "write --set 'title=Health of all', or see docs/plan.md"),
        (("--round=5",), "write --set round_to=5, or see docs/plan.md"),
        (("--allow-empty",), "write --set allow_empty=true, or see docs/plan.md"),
    ],
)
def test_an_option_that_cannot_be_read_is_one_plain_sentence(
    here: Semidp, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    said = one_sentence(here(*RELEASE, *words))
    assert sentence in said
    assert "Input should" not in said
    assert not (tmp_path / "out").exists()


def test_numbers_of_other_commands_are_named_alike(here: Semidp) -> None:
    assert "--port takes a whole number from 0 to 65535" in one_sentence(
        here("explore", "people.csv", "--port", "70000")
    )
    assert "--draws takes a whole number;" in one_sentence(here("intervals", "x", "--draws", "x"))
    assert "--seconds takes a number;" in one_sentence(here("synthesize", "x", "--seconds", "x"))


def test_a_text_with_dashes_can_still_be_given(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert here(*RELEASE, "--set=note=--provisional").code == 0
    assert "--provisional" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_show_says_where_the_report_is_and_what_it_wrote(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert "written    out/report.html" in here(*RELEASE).out
    shown = here("show", "out").out
    assert "report     out/report.html" in shown
    assert "written" not in shown


def test_intervals_and_models_print_the_digits_that_errors_leave(
    here: Semidp, tmp_path: Path
) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert here(*RELEASE, "--exact", "region").code == 0
    words = ("intervals", "out", "--of", "sex=f", "--among", "region=n", "--draws", "999")
    printed = here(*words, "--seed", "1").out
    found = here(*words, "--seed", "1", "--format", "json").json
    low, high = re.search(r"interval +(\S+) to (\S+),", printed).groups()
    assert float(low) <= found["low"] <= found["high"] <= float(high), "rounded outward"
    # Two digits of the standard error: no line promises more.
    error = re.search(r"standard error (\S+)", printed).group(1)
    assert len(error.lstrip("0.")) <= 2
    assert len(low.partition(".")[2]) == len(error.partition(".")[2])
    model = here("model", "out", "~ sex").out
    [line] = [line for line in model.splitlines() if line.startswith("sex[")]
    assert len(line.split()[2].lstrip("0.")) == 2


def test_words_of_analyze_and_release_say_who_is_protected(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    printed = here(*RELEASE).out
    assert "strength   for specialists (smaller is safer): μ = 1 (Gaussian DP)" in printed
    words = ("analyze", "people.csv", "--table", "sex,region", "--levels-from-data")
    labels = [line.split()[0] for line in here(*words).out.splitlines() if line[:1].strip()]
    assert labels.count("protects") == 2
    assert not {"ball", "exchange"} & set(labels)
