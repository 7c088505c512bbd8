"""What is not private says so where it is read."""

from importlib.resources import files
from pathlib import Path

import pytest

from semidp.cli import run

pytestmark = pytest.mark.pictures

ADMISSIONS = str(files("semidp") / "data" / "ucb_admissions.csv")


def test_a_seeded_test_is_marked_even_when_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["release", ADMISSIONS, "--odds-ratio", "gender,admit", "--count", "count"]
    words += ["--epsilon", "1", "--adjacency", "definition", "--out", str(tmp_path / "r")]
    assert run([*words, "--seed", "1", "--quiet"]) == 0
    assert "not private" in capsys.readouterr().err
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert "lies below the worst case" in page
