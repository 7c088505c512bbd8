"""`semidp reproduce` and `semidp census`: files, columns, refusals and numbers."""

import csv
import json
from pathlib import Path

import pytest

from semidp.cli import run


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_reproduce_writes_a_table_and_a_picture_for_each_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "studies"
    assert (
        run(
            [
                "reproduce",
                "gaussian",
                "adjacency",
                "--out",
                str(out),
                "--replicates",
                "3",
                "--seed",
                "4",
            ]
        )
        == 0
    )
    assert sorted(file.name for file in out.iterdir()) == [
        "adjacency.csv",
        "adjacency.png",
        "gaussian.csv",
        "gaussian.png",
        "studies.json",
    ]
    assert capsys.readouterr().out.split() == [
        str(out / name)
        for name in ("gaussian.csv", "gaussian.png", "adjacency.csv", "adjacency.png")
    ]
    assert (out / "gaussian.png").read_bytes().startswith(b"\x89PNG")
    rows = _rows(out / "gaussian.csv")
    assert list(rows[0]) == [
        "model",
        "k",
        "mu",
        "mechanism",
        "variant",
        "truncated",
        "mean_l2",
        "se",
        "replicates",
    ]
    assert {row["model"] for row in rows} == {"I", "II"}
    assert {row["variant"] for row in rows} == {"as-published", "correct"}
    assert {row["truncated"] for row in rows} == {"true", "false"}
    assert {row["replicates"] for row in rows} == {"3"}


def test_reproduce_replaces_only_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "studies"
    assert run(["reproduce", "adjacency", "--out", str(out)]) == 0
    assert run(["reproduce", "adjacency", "--out", str(out)]) == 2
    assert "or replace it with --force" in capsys.readouterr().err
    assert run(["reproduce", "adjacency", "--out", str(out), "--force", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["adjacency.csv", "adjacency.png"]
    (out / "mine.txt").write_text("kept")
    assert run(["reproduce", "adjacency", "--out", str(out), "--force"]) == 2
    assert "holds mine.txt, which would be lost" in capsys.readouterr().err
    assert (out / "mine.txt").read_text() == "kept"


@pytest.mark.long
def test_a_file_that_only_has_the_name_of_a_study_is_not_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "census.csv").write_text("everybody")
    assert run(["census", "--out", str(tmp_path / "data"), "--force"]) == 2
    assert "holds census.csv, which would be lost" in capsys.readouterr().err
    assert (tmp_path / "data" / "census.csv").read_text() == "everybody"
    assert run(["census", "--out", str(tmp_path / "census")]) == 0
    assert run(["census", "--out", str(tmp_path / "census"), "--force"]) == 0


@pytest.mark.parametrize(
    ("words", "hint"), [(["knrom"], "knorm"), (["adjacency", "--replicates", "1"], "2 replicates")]
)
def test_reproduce_refuses_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], hint: str
) -> None:
    assert run(["reproduce", *words, "--out", str(tmp_path / "x")]) == 2
    assert hint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_census_prints_the_papers_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["census"]) == 0
    text = capsys.readouterr().out
    for number in ("17.91528", "40.95057", "10.2400", "2.5562", "0.0749"):
        assert number in text
    words = " ".join(text.split())
    for word in (
        "block group",
        "Housing units",
        "sole occupant of group quarters",
        "P.L. 94-171",
        "nominal: if",
    ):
        assert word in words
    for number in ("10.24", "5.12", "5.05", "3.52", "2.70", "6.92"):
        assert f" {number} " in words
    assert "This is not a guarantee for any 2 records" in words
    assert words.count("never add") >= 5, "the reason of each cost"


def test_census_for_machines_and_its_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "census"
    assert run(["census", "--format", "json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["a"] == 2
    rows = {
        (row["tables"], row["setting"], row["level"], row["a"]): row for row in document["rows"]
    }
    assert rows["persons", "rounded", "all", 2]["rho"] == 10.24
    assert len(document["costs"]) == 65
    assert document["exchange"]["guarantee"]["adjacency"] == {"kind": "exchange", "a": 2}
    assert rows["persons", "production", "all", 1]["rho_exact"] == "293764/114921"
    assert round(rows["persons", "rounded", "all", 2]["epsilon_paper"], 5) == 40.95057
    assert {file.name for file in out.iterdir()} == {"census.csv", "census.png", "studies.json"}
    assert len(_rows(out / "census.csv")) == 35
