"""Kill a release in one piece at its n-th access to the file system, and finish it: run as a
process by the tests.

The words are a folder, what is released, and the accesses before which a run is killed; all of
them if none are given.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from semidp import Budget, Ledger, Plan, Release, RunOptions
from semidp.promise import Attendance, Series
from semidp.promise.documents import read_document
from semidp.publish import TableRequest
from semidp.publish.folders import Unfinished, is_unfinished
from semidp.publish.level_bins import Microdata
from semidp.publish.pipeline import run_plan
from semidp.publish.recheck import disagreements
from tests.partitions.kill_points import forked, killing

PEOPLE = {"sex": [*"ffmmfmfm"], "region": [*"nnsnssns"], "age": [*"12312312"]}
PLAN = Plan(
    [
        TableRequest(["sex", "region"], Budget.gdp(1), name="both"),
        TableRequest(["region"], Budget.gdp(1), name="regions"),
    ],
    ["sex"],
    levels_from_data=True,
)
MICRODATA = Microdata(["sex", "region", "age"], Budget.gdp(1), ordered=["age"])
PLANS = {
    "tables": PLAN,
    "microdata": Plan([], ["sex"], microdata=MICRODATA, levels_from_data=True),
    "a period": evolve(PLAN, period="2026Q1"),
}


def open_ledger(place: Path, kind: str) -> None:
    series = Series("quarter", Attendance(4)) if kind == "a period" else None
    Ledger.create(place.with_name("ledger.json"), Budget.gdp(10), series=series)


def release(place: Path, kind: str) -> None:
    Release.report_html = lambda self, title=None: "</html>"  # it takes longer than the rest
    options = RunOptions(out=place, ledger=place.with_name("ledger.json"))
    run_plan(Release, PLANS[kind], PEOPLE, options)


def finish(place: Path) -> None:
    """Go on with what a run has left: without a plan, and without records once all is measured."""
    Release.report_html = lambda self, title=None: "</html>"
    options = RunOptions(out=place, ledger=place.with_name("ledger.json"), resume=True)
    left = Unfinished.from_notes(place)
    assert left is not None
    measured = left.read_notes().get("measured") is True
    run_plan(Release, None, None if measured else PEOPLE, options)


def contents(place: Path) -> dict[str, str]:
    return {
        path.relative_to(place).as_posix(): path.read_bytes().hex()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def state(place: Path) -> dict[str, Any]:
    """Return what is there after a kill: a release, something to go on with, charges."""
    charges = len(Ledger(place.with_name("ledger.json")).account().charges)
    stored = []
    left = Unfinished.from_notes(place) if is_unfinished(place) else None
    # What only an unfinished release needs is removed at the very end.
    noted = {} if left is None else left.read_notes()
    if left is not None and noted.get("measured") is True and noted.get("whole") is not True:
        for path in sorted((left.folder / ".state").glob("above-*.npy")):
            stored.append(np.load(path).ravel().tolist())
    return {
        "charges": charges,
        "made": (place / "release.json").exists(),
        "unfinished": left is not None,
        "stored": stored,
    }


def finished(place: Path) -> dict[str, Any]:
    """Return what the finished release holds, and what is wrong with it."""
    found = Release.load(place)
    assert found.ledger is not None
    charges = Ledger(place.with_name("ledger.json")).account().charges
    return {
        "said": disagreements(found, read_document(place / "release.json")),
        "charges": len(charges),
        "claimed": all(charge.run["measured"] == found.measured_digest for charge in charges),
        "noisy": [np.asarray(result.noisy).ravel().tolist() for result in found.results],
        "files": contents(place),
    }


def trial(root: Path, kind: str, point: int) -> dict[str, Any]:
    """Kill a run just before its n-th access, and finish it twice, in two copies of its folder."""
    (root / "one").mkdir(parents=True)
    place = root / "one" / "release"
    open_ledger(place, kind)
    code, _ = forked(lambda: killing(place, "all", point, lambda: release(place, kind)))
    assert code in (0, -signal.SIGKILL), code
    after = forked(lambda: state(place))[1]
    ends = []
    shutil.copytree(root / "one", root / "two")
    for name in ("one", "two"):
        own = root / name / "release"
        if after["unfinished"]:
            code, _ = forked(lambda own=own: finish(own))
        elif not after["made"]:
            code, _ = forked(lambda own=own: release(own, kind))
        else:
            code = 0
        assert code == 0, (point, name, code)
        ends.append(forked(lambda own=own: finished(own))[1])
        left = sorted(path.name for path in (root / name).iterdir() if path.suffix != ".lock")
        ends[-1]["left"] = [each for each in left if ".unfinished" in each]
    shutil.rmtree(root)
    return {"point": point, "killed": code, "after": after, "ends": ends}


def main() -> None:
    root, kind, points = Path(sys.argv[1]), sys.argv[2], [int(word) for word in sys.argv[3:]]
    (root / "counted").mkdir(parents=True)
    place = root / "counted" / "release"
    open_ledger(place, kind)
    code, total = forked(lambda: killing(place, "all", 0, lambda: release(place, kind)))
    assert code == 0
    trials = [trial(root / str(point), kind, point) for point in points or range(1, total + 1)]
    print(json.dumps({"total": total, "trials": trials}))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
