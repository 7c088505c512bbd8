"""kill -9 of a release by parts that replaces another, at every access to the file system.

Whoever reads finds the old release or the new one, whole; the next run finishes what is unfinished;
and there are two charges in the end, one for each release. SEMIDP_KILLS says how many points of all
are tried.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SEMIDP_KILLS", "12"))


def trials(folder: Path, kind: str, *points: int) -> tuple[int, list[dict[str, Any]]]:
    path = os.pathsep.join(
        filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    words = [
        sys.executable,
        "-m",
        "tests.partitions.kill_points",
        str(folder),
        kind,
        *map(str, points),
    ]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["total"], found["trials"]


def check(trial: dict[str, Any]) -> None:
    first, last = trial["first"], trial["last"]
    assert trial["kills"] >= 1, trial
    assert first["said"] == [], trial
    assert (first["number"], first["charges"]) in ((1, 1), (1, 2), (2, 2)), trial
    assert first["charges"] == 1 or first["number"] == 2 or first["unfinished"], trial
    assert (last["number"], last["charges"], last["said"], last["unfinished"]) == (
        2,
        2,
        [],
        False,
    ), trial
    assert trial["left"] == ["ledger.json", "release"], trial


# The accesses to the destination, to the old release that it was, and to the note, in their order.
MOVES = {
    "the note of an earlier run is removed": 1,
    "the run is noted": 2,
    "its charge is noted": 3,
    "what was measured is noted": 4,
    "that it is whole is noted": 5,
    "the old release is moved away": 6,
    "the new one takes its place": 7,
    "the old release is removed": 8,
    "the note is removed": 9,
}


@pytest.mark.long
def test_kills_around_the_renames(tmp_path: Path) -> None:
    """The kill that blocked a destination for good came between the second rename and the end."""
    total, found = trials(
        tmp_path, "moves", MOVES["the new one takes its place"], MOVES["the old release is removed"]
    )
    assert total == len(MOVES)
    assert len(found) == 2
    for trial in found:
        check(trial)
    assert [trial["resumed"] for trial in found] == [True, False]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["moves", "all"])
def test_kills_at_every_access(tmp_path: Path, kind: str) -> None:
    if kind == "moves":
        points = [*MOVES.values()]
    else:
        (tmp_path / "counted").mkdir()
        total, _ = trials(tmp_path / "counted", "all", 1)
        assert total > 40
        points = sorted(random.Random(16).sample(range(1, total + 1), min(KILLS, total)))
    (tmp_path / "kills").mkdir()
    _, found = trials(tmp_path / "kills", kind, *points)
    assert len(found) == len(points) >= min(KILLS, 8)
    for trial in found:
        check(trial)
