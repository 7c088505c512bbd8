"""`semidp census estimate`: files, messages, resuming, several states."""

import csv
import json
from pathlib import Path

import pytest

from semidp.cli import run
from semidp.inference import CensusTask, area_estimates, estimate_areas, write_estimates
from semidp.inference.noisy_files import Areas
from tests.census.conftest import State, small_state


@pytest.fixture
def two_states(tmp_path: Path) -> Path:
    for state, seed in (("15", 7), ("16", 8)):
        small_state(tmp_path / "noisy", state, seed)
    return tmp_path / "noisy"


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_areas(folder: Path, *rows: str) -> str:
    path = folder / "districts.csv"
    path.write_text("\n".join(["name,geocode,weight", *rows]) + "\n")
    return str(path)


def test_areas_of_every_kind_of_code(
    files: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = files.codes[0]
    tabulation = block[:12] + block[11:]
    rows = [
        "state,15,",
        f"counties,{block[:5]},1",
        f"counties,{'15001' if block[:5] == '15003' else '15003'},1",
    ]
    rows += [f"block,{block},1", f"same,{tabulation},", f"half,{block},0.5", "part,015,1"]
    out = tmp_path / "out"
    areas = write_areas(tmp_path, *rows)
    assert run(["census", "estimate", str(files.folder), "--areas", areas, "--out", str(out)]) == 0
    estimated = {(row["name"], row["people"]): row for row in rows_of(out / "areas.csv")}
    assert len(estimated) == 6 * 21
    total = int(files.cells.sum())
    for name in ("state", "counties", "part"):
        assert float(estimated[name, "all"]["estimate"]) == pytest.approx(total, abs=1e-3)
        assert float(estimated[name, "all"]["standard_error"]) < 1e-3
    block_row, half = estimated["block", "hispanic"], estimated["half", "hispanic"]
    assert {**block_row, "name": "same"} == estimated["same", "hispanic"]
    assert float(half["estimate"]) == pytest.approx(float(block_row["estimate"]) / 2, abs=1e-5)
    assert float(half["standard_error"]) == pytest.approx(
        float(block_row["standard_error"]) / 2, abs=1e-5
    )
    assert all(float(row["low"]) >= 0 for row in estimated.values())
    capsys.readouterr()


def test_on_a_terminal_and_for_machines(
    files: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    areas = write_areas(tmp_path, "north,15001,", "south,15003,")
    assert run(["census", "estimate", str(files.folder), "--areas", areas]) == 0
    printed = capsys.readouterr()
    assert "north" in printed.out
    assert "standard error" in printed.out
    assert "the nation as a whole is not used" in printed.err
    assert (
        run(
            [
                "census",
                "estimate",
                str(files.folder),
                "--areas",
                areas,
                "--format",
                "json",
                "--quiet",
            ]
        )
        == 0
    )
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["schema_version"] == 1
    assert document["nation"] == "not used: the folder holds no file of level US"
    assert len(document["areas"]) == 2 * 21
    assert not printed.err


def test_census_alone_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["census"]) == 0
    assert "The 2020 Census redistricting file (P.L. 94-171)." in capsys.readouterr().out


@pytest.mark.long
def test_every_place_of_a_level(two_states: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        run(
            [
                "census",
                "estimate",
                str(two_states),
                "--each",
                "tract",
                "--out",
                str(out),
                "--jobs",
                "2",
            ]
        )
        == 0
    )
    rows = rows_of(out / "tract.csv")
    assert {row["geocode"][:3] for row in rows} == {"015", "016"}
    assert len(rows) == 21 * len({row["geocode"] for row in rows}) > 21 * 4
    assert sorted(path.name for path in out.iterdir()) == ["estimates.json", "tract.csv"]
    assert run(["census", "estimate", str(two_states), "--each", "county", "--out", str(out)]) == 2
    assert (
        run(
            [
                "census",
                "estimate",
                str(two_states),
                "--each",
                "county",
                "--out",
                str(out),
                "--force",
            ]
        )
        == 0
    )
    assert sorted(path.name for path in out.iterdir()) == ["county.csv", "estimates.json"]


def test_an_area_in_two_states_adds_them_up(two_states: Path) -> None:
    both = estimate_areas(
        CensusTask(two_states, Areas([("both", "15001", 1.0), ("both", "16001", 1.0)]))
    )
    apart = estimate_areas(
        CensusTask(two_states, Areas([("a", "15001", 1.0), ("b", "16001", 1.0)]))
    )
    assert both.sums.values[0] == pytest.approx(apart.sums.values.sum(axis=0))
    assert both.sums.variances[0] == pytest.approx(apart.sums.variances.sum(axis=0))


def test_a_run_that_ended_early_is_resumed(
    two_states: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    areas = Areas([("both", "15001", 1.0), ("both", "16001", 1.0)])
    task, out = CensusTask(two_states, areas), tmp_path / "out"
    whole = write_estimates(task, tmp_path / "whole")
    read = []
    true_result = area_estimates._state_result

    def fails(task: CensusTask, state: str, root: None) -> object:
        read.append(state)
        if state == "16" and len(read) == 2:
            raise MemoryError
        return true_result(task, state, root)

    monkeypatch.setattr(area_estimates, "_state_result", fails)
    with pytest.raises(MemoryError):
        write_estimates(task, out)
    assert not out.exists()
    words = [
        "census",
        "estimate",
        str(two_states),
        "--areas",
        write_areas(tmp_path, "other,15001,"),
    ]
    assert run([*words, "--out", str(out), "--resume"]) == 2
    assert "of other files, areas or levels" in capsys.readouterr().err
    resumed = write_estimates(task, out, resume=True)
    assert read == ["15", "16", "16"]
    assert whole is not None
    assert resumed is not None
    assert (resumed.sums.values == whole.sums.values).all()
    assert (out / "areas.csv").read_bytes() == (tmp_path / "whole" / "areas.csv").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["areas.csv", "estimates.json"]


def test_exact_totals_of_states_may_come_in_a_file(files: State, tmp_path: Path) -> None:
    totals = tmp_path / "totals.csv"
    areas = write_areas(tmp_path, "state,15,")
    words = [
        "census",
        "estimate",
        str(files.folder),
        "--areas",
        areas,
        "--totals",
        str(totals),
        "--quiet",
    ]
    totals.write_text(f"geocode,total\n15,{int(files.cells.sum())}\n")
    assert run(words) == 0
    totals.write_text(f"geocode,total\n15,{int(files.cells.sum()) + 5}\n")
    assert run(words) == 2
    totals.write_text("geocode,total\n15,many\n")
    assert run(words) == 2


MISTAKES = [
    (["north,15009,"], "hold no place 15009"),
    (["north,06001,"], "hold no state 06; they hold 15"),
    (["north,Hawaii,"], "'Hawaii' is not a code of the Census"),
    (["north,15001,x"], "the weight in line 2"),
    (["north,,1"], "line 2 of .* has no geocode"),
    (["north,15001,", "north,15001000100,"], "names 15001000100 twice"),
    ([], "names no area"),
]


@pytest.mark.parametrize(("rows", "sentence"), MISTAKES)
def test_a_mistake_in_the_areas_is_one_sentence(
    files: State, tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[str], sentence: str
) -> None:
    import re

    out = tmp_path / "out"
    areas = write_areas(tmp_path, *rows)
    assert (
        run(
            [
                "census",
                "estimate",
                str(files.folder),
                "--areas",
                areas,
                "--out",
                str(out),
                "--quiet",
            ]
        )
        == 2
    )
    printed = capsys.readouterr().err
    assert re.search(sentence, printed)
    assert printed.count("\n") == 1
    assert not out.exists()


def test_options_that_do_not_go_together(
    files: State, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(files.folder)
    for words, sentence in (
        (["--out", "x", "estimate", folder], "options follow the word estimate"),
        (["estimate", folder], "name what to estimate"),
        (["estimate", folder, "--each", "tract"], "need a folder to write to"),
        (
            ["estimate", folder, "--each", "zone", "--out", str(tmp_path / "x")],
            "there is no level 'zone'",
        ),
        (["estimate", folder, "--areas", str(tmp_path / "none.csv")], "there is no file"),
        (
            ["estimate", str(tmp_path), "--each", "tract", "--out", str(tmp_path / "x")],
            "holds no noisy measurement",
        ),
    ):
        assert run(["census", *words]) == 2
        assert sentence in capsys.readouterr().err
    (tmp_path / "no.csv").write_text("area,code\na,15\n")
    assert run(["census", "estimate", folder, "--areas", str(tmp_path / "no.csv")]) == 2
    assert "has no column name" in capsys.readouterr().err
