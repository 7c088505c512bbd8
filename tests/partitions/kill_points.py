"""Kill a release by parts at its n-th access to the file system, and see what is left: run as a
process by the tests.

Every step runs in a fork of a process that has only imported semidp, so that a kill costs no second
start. The words are a folder, which accesses count (``moves``: of the destination, the old release
and the note; or ``all``), and the points.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semidp import Budget, Ledger, Plan, Release
from semidp.promise.documents import read_document
from semidp.promise.files import replace_file
from semidp.publish import TableRequest
from semidp.publish.folders import is_unfinished
from semidp.publish.recheck import disagreements
from tests.partitions.conftest import FEATURES, records, run_partitioned

EVENTS = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "open"}
PEOPLE = records(60)


def plan() -> Plan:
    return Plan([TableRequest(["county", "sex"], Budget.gdp(1))], ["state", "sex"], FEATURES[:2])


def release(place: Path, **more: Any) -> None:
    Release.report_html = lambda self, title=None: "</html>"  # it takes longer than the rest
    ledger = Ledger(place.with_name("ledger.json"))
    run_partitioned(plan(), PEOPLE, place, "state", ledger=ledger, force=True, **more)


def forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """Do something in another process; return how that ended, and what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (
        json.loads(answer) if answer else None
    )


def killing(place: Path, kind: str, point: int, work: Callable[[], Any]) -> int:
    """Do something, and die just before the n-th access; return how many accesses there were."""
    seen = 0
    notes = place.with_name(f".semidp-{place.name}.unfinished.json")

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in EVENTS:
            return
        if event == "open" and not (
            isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            return
        paths = [os.fspath(path) for path in arguments[:2] if isinstance(path, (str, Path))]
        if kind == "moves":
            moved = any(path in (str(place), str(notes)) or path.endswith(".old") for path in paths)
            counts = event != "open" and moved
        else:
            counts = any(path.startswith(str(place.parent)) for path in paths)
        if counts:
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    work()
    return seen


def state(place: Path, thorough: bool = False) -> dict[str, Any]:
    """Return what a reader finds: the number of the charge of the release that is there, and what
    is wrong with it.
    """
    found = Release.load(place)
    assert found.ledger is not None
    assert found.partition is not None
    said = [*disagreements(found, read_document(place / "release.json"))] if thorough else []
    changed = found.partition.find_changed_file()
    return {
        "number": found.ledger["number"],
        "said": said if changed is None else [*said, changed],
        "charges": len(Ledger(place.with_name("ledger.json")).account().charges),
        "unfinished": is_unfinished(place),
    }


def trial(
    template: Path, root: Path, kind: str, point: int, generator: random.Random
) -> dict[str, Any]:
    """Kill a run that replaces a release, perhaps also the one that finishes it, and finish it."""
    shutil.copytree(template, root)
    place, kills = root / "release", 0
    code, _ = forked(lambda: killing(place, kind, point, lambda: release(place)))
    kills += code == -signal.SIGKILL
    assert code in (0, -signal.SIGKILL), code
    first = now = forked(lambda: state(place))[1]
    resumed = False
    for attempt in range(3):
        if now["number"] == 2:
            break
        resumed = resumed or now["unfinished"]
        more = {"resume": True} if now["unfinished"] else {}
        again = (
            generator.randrange(1, 40)
            if kind == "all" and attempt == 0 and generator.random() < 0.5
            else 0
        )
        code, _ = forked(
            lambda more=more, again=again: killing(
                place, "all", again, lambda: release(place, **more)
            )
        )
        kills += code == -signal.SIGKILL
        assert code in (0, -signal.SIGKILL), code
        now = forked(lambda: state(place))[1]
    last = forked(lambda: state(place, thorough=True))[1]
    for scrap in root.glob(".semidp-*"):
        os.utime(scrap, (time.time() - 86400,) * 2)
    forked(lambda: replace_file(root / "other", ""))
    left = sorted(
        path.name for path in root.iterdir() if path.name not in ("other", ".ledger.json.lock")
    )
    shutil.rmtree(root)
    return {
        "point": point,
        "kills": kills,
        "first": first,
        "last": last,
        "resumed": resumed,
        "left": left,
    }


def main() -> None:
    root, kind, points = Path(sys.argv[1]), sys.argv[2], [int(word) for word in sys.argv[3:]]
    template = root / "template"
    template.mkdir()
    Ledger.create(template / "ledger.json", Budget.gdp(10))
    code, _ = forked(lambda: release(template / "release"))
    assert code == 0
    shutil.copytree(template, root / "counted")
    place = root / "counted" / "release"
    code, total = forked(lambda: killing(place, kind, 0, lambda: release(place)))
    assert code == 0
    generator = random.Random(26)
    if not points:
        points = [*range(1, total + 1)]
    trials = [trial(template, root / str(point), kind, point, generator) for point in points]
    print(json.dumps({"total": total, "trials": trials}))


if __name__ == "__main__":
    main()
