"""kill -9 at random points of ``release --force`` with a ledger: no release is lost, none is half
written, and what was paid for is finished.

Half of the kills come before a random access to the file system, so that every state on disk is
met; the others after a random time. SEMIDP_KILLS says how many there are.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semidp import Ledger, Release
from semidp.cli import run
from semidp.publish.folders import is_unfinished
from tests.cli.conftest import Semidp, settle

KILLS = int(os.environ.get("SEMIDP_KILLS", "2"))
PEOPLE = "sex,region\n" + "f,n\nf,s\nm,n\nm,s\n" * 5
WORDS = (
    "--table",
    "sex,region",
    "--invariant",
    "sex",
    "--invariant",
    "region",
    "--rho",
    "1/1000",
    "--quiet",
)

RELEASER = """
import json, os, signal, sys
from pathlib import Path
import semidp.promise.files
from semidp.cli import run

out, ledger, fatal, kind, sabotage, *words = sys.argv[1:]
root, seen = os.path.dirname(out), 0
if kind == "moves":  # of the destination itself
    watched, places = {"os.rename"}, {out}
else:
    watched, places = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.listdir"}, None
exec(sabotage)

def count(event, arguments):
    global seen
    if event in watched:
        paths = [os.fspath(path) for path in arguments[:2] if isinstance(path, (str, Path))]
        if any(path in places if places else path.startswith(root) for path in paths):
            seen += 1
            if seen == int(fatal):
                os.kill(os.getpid(), signal.SIGKILL)

print("ready", flush=True)
sys.addaudithook(count)
while True:
    code = run(["release", *words, "--out", out, "--ledger", ledger, "--force"])
    assert code == 0, code
    events = seen
    made = json.loads(Path(out, "release.json").read_text())["ledger"]["number"]
    print("made", made, events, flush=True)
    if fatal == "0":
        break
"""


class Place:
    """A release that is made again and again, and a ledger that it charges."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.ledger = folder, folder / "release", folder / "ledger.json"
        (folder / "people.csv").write_text(PEOPLE)
        self.newest = 0

    def start(
        self, fatal: int = 0, kind: str = "accesses", sabotage: str = ""
    ) -> subprocess.Popen[str]:
        """Make releases until the process dies by its own hand, or one if `fatal` is 0."""
        words = [self.out, self.ledger, fatal, kind, sabotage, self.folder / "people.csv", *WORDS]
        process = subprocess.Popen(
            [sys.executable, "-c", RELEASER, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def check(self, process: subprocess.Popen[str]) -> list[tuple[int, int]]:
        """Check what a process leaves behind; return the number and the accesses of each release
        that it reported.
        """
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read()  # `communicate` would miss what `readline` has read ahead
        assert process.wait(timeout=120) in (0, -signal.SIGKILL), out
        reported = [
            (int(number), int(events))
            for number, events in re.findall(r"^made (\d+) (\d+)$", out, re.M)
        ]
        before = Release.load(self.out)
        assert before.ledger is not None
        assert before.ledger["number"] >= self.newest
        if is_unfinished(self.out):
            assert run(["resume", str(self.out), "--quiet"]) == 0
        charges = len(Ledger(self.ledger).account().charges)
        release = Release.load(self.out)
        assert release.ledger is not None
        number = release.ledger["number"]
        assert number == charges  # nothing is paid and lost
        # Nothing older than what was there, or was reported, and nothing that was not charged.
        assert max([self.newest, *(number for number, _ in reported)]) <= number <= charges
        assert (self.out / "report.html").read_text().rstrip().endswith("</html>")
        written = {path.name for path in self.out.iterdir()}
        assert {name for name in written if not name.startswith("exact-")} == {
            "csv-metadata.json",
            "release.json",
            "report.html",
            "table.csv",
            "measurements.csv",
        }
        self.newest = number
        return reported


@pytest.fixture
def place(here: Semidp, tmp_path: Path) -> Place:
    place = Place(tmp_path)
    assert here("ledger", place.ledger, "--rho", "1000").code == 0
    return place


@pytest.mark.long
def test_kills_at_random_points(here: Semidp, place: Place) -> None:
    place.check(place.start())
    ((_, accesses),) = place.check(place.start())
    assert accesses > 20
    random_points = random.Random(5)
    killed = 0
    for kill in range(KILLS):
        if kill % 2:
            process = place.start(fatal=10**9)
            time.sleep(random_points.uniform(0, 1))
            process.kill()
        else:
            process = place.start(fatal=random_points.randrange(1, 2 * accesses))
        place.check(process)
        killed += process.returncode == -signal.SIGKILL
    assert killed == KILLS
    settle(place.folder)
    place.check(place.start())
    left = {path.name for path in place.folder.iterdir()}
    assert left == {"people.csv", "release", "ledger.json", ".ledger.json.lock"}


def test_a_kill_between_the_renames_loses_nothing(place: Place) -> None:
    place.check(place.start())
    before = place.newest
    process = place.start(fatal=2, kind="moves")
    process.wait(timeout=120)
    assert not place.out.exists()
    found = Release.load(place.out)  # the old release is put back
    assert found.ledger is not None
    assert found.ledger["number"] == before
    place.check(process)
    assert place.newest == before + 1, "the new release was whole, and is finished"


@pytest.mark.long
def test_a_kill_before_the_renames_leaves_the_old_release(place: Place) -> None:
    place.check(place.start())
    before = place.newest
    process = place.start(fatal=1, kind="moves")
    process.wait(timeout=120)
    found = Release.load(place.out)
    assert found.ledger is not None
    assert found.ledger["number"] == before
    place.check(process)
    assert place.newest == before + 1


def test_the_check_sees_a_release_that_is_lost(place: Place) -> None:
    place.check(place.start())
    process = place.start(fatal=2, kind="moves", sabotage="semidp.promise.files._OLD = '.gone'")
    with pytest.raises(ValueError, match="not a release"):
        place.check(process)
