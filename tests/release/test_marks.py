"""What is not private says so where it is read."""

from importlib.resources import files

import pytest

from semidp.cli import run

pytestmark = pytest.mark.pictures

ADMISSIONS = str(files("semidp") / "data" / "ucb_admissions.csv")


def test_a_seeded_test_is_marked_even_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "test",
        ADMISSIONS,
        "--rows",
        "gender",
        "--columns",
        "admit",
        "--count",
        "count",
        "--epsilon",
        "1",
    ]
    assert run([*words, "--seed", "1", "--adjacency", "definition", "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "not private" in shown.out
    assert "lies below the worst case" in shown.out
    assert shown.err == ""
