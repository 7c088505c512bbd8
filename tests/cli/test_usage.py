"""What is said of command lines that cannot be read: one plain sentence."""

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
        (("--round", "0"), "--round takes a whole number from 1 on; see 'semidp release --help'"),
        (("--mark-below", "few"), "--mark-below takes a whole number from 1 on; see"),
        (("--title", "--contact", "us"), "--title TEXT needs a value: '--contact' follows it"),
        (("--note", "--quiet"), "--note TEXT needs a value: '--quiet' follows it, which is an"),
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


def test_a_text_with_dashes_can_still_be_given(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert here(*RELEASE, "--note=--provisional").code == 0
    assert "--provisional" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_show_says_where_the_report_is_and_what_it_wrote(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE)
    assert "written    out/report.html" in here(*RELEASE).out
    shown = here("show", "out").out
    assert "report     out/report.html" in shown
    assert "written" not in shown
