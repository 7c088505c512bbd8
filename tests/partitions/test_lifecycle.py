"""From the first charge of a release by parts to its place: one run, one measurement, one charge,
however it ends.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, BudgetExceeded, InputError, Ledger, Release
from semidp.cli import run as command
from semidp.promise.accounting.account import find_disagreement
from semidp.promise.documents import read_document
from semidp.publish import block_run, runners
from semidp.publish import runners as part_tasks
from semidp.publish.folders import Unfinished, discard_unfinished, is_unfinished
from semidp.publish.recheck import disagreements
from semidp.publish.statistics.parts import STATE, PartTask
from tests.partitions.conftest import plan, run_partitioned, unfinished
from tests.partitions.test_unfinished import WORDS, Fails, _children


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def ledger_at(path: Path, mu: int = 10) -> Ledger:
    return Ledger.create(path, Budget.gdp(mu))


def charges(ledger: Ledger) -> int:
    return len(ledger.account().charges)


@pytest.fixture
def begun(people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Begin a release that ends after so many parts."""

    def begin(after: int = 1, **more: Any) -> Path:
        with monkeypatch.context() as broken:
            Fails(broken, after)
            with pytest.raises(InputError, match="no space left"):
                run_partitioned(plan(), people, tmp_path / "release", "state", **more)
        return tmp_path / "release"

    return begin


# --- one run, one measurement


@pytest.mark.long
def test_a_task_of_a_discarded_run_stores_nothing_in_the_next(
    begun, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker on another machine may outlive its run: what it has drawn belongs to a measurement
    that is gone.
    """
    tasks: list[PartTask] = []
    real = block_run._carried_out
    with monkeypatch.context() as watched:
        watched.setattr(
            block_run, "_carried_out", lambda own, *more: real(tasks.extend(own) or tasks, *more)
        )
        place = begun(0)
    old = [*tasks]
    assert len(old) == 4
    discard_unfinished(place)
    assert begun(0) == place
    before = contents(unfinished(place))
    for task in old:
        with pytest.raises(InputError, match="discarded or is over"):
            part_tasks.carry_out(task, None)
    assert contents(unfinished(place)) == before


@pytest.mark.parametrize("moment", ["before it stores", "before it renames"])
def test_a_run_that_is_discarded_while_a_part_is_at_work(
    begun, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The next run begins between the task's last look and its move: the move itself must fail."""
    place, after = tmp_path / "release", {}
    name = "link" if moment == "before it stores" else "rename"
    real = getattr(os, name)

    def late(source, target, *more):
        if "attempt-" in str(source) and not after:
            monkeypatch.setattr(os, name, real)
            work = unfinished(place)
            # as if it had looked just before
            monkeypatch.setattr(Unfinished, "check", lambda self: None)
            os.rename(work, work.with_name("gone"))
            Unfinished(work, work.name[-16:]).forget()
            after.update({"run": begin_another(tmp_path, people, monkeypatch)})
        return real(source, target, *more)

    monkeypatch.setattr(os, name, late)
    with pytest.raises(InputError):
        run_partitioned(plan(), people, place, "state")
    left = Unfinished.from_notes(place)
    assert left is not None
    assert left.run_name == after["run"]
    assert not list(left.folder.glob("state=*"))
    assert not [
        path for path in (left.folder / STATE).iterdir() if not path.name.startswith("above-")
    ]


def begin_another(tmp_path: Path, people, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let another process begin a release at the same place, and leave it unfinished."""
    place = tmp_path / "release"
    left = Unfinished.new(place)
    left.folder.mkdir()
    left.begin({})
    (left.folder / STATE).mkdir()
    return left.run_name


STUCK = """
import hashlib, os
from concurrent.futures import ThreadPoolExecutor
from semidp.publish.statistics.tables import part_steps
def work():  # half an hour in which Python runs no handler of a signal
    open(os.environ["STUCK"] + str(os.getpid()), "w").close()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)
def stuck(*words, **named):
    if "STUCK_THREAD" not in os.environ:
        return work()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
if os.environ.get("STUCK"):
    part_steps.fit_product = stuck
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """An environment in which parts are at work for as long as the variable STUCK is set."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STUCK)
    (tmp_path / "at").mkdir()
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "STUCK": str(tmp_path / "at") + "/", "NO_COLOR": "1"}


def started(people_file: Path, site: dict[str, str], *more: str | Path) -> subprocess.Popen[str]:
    """Start a release by parts and wait until every worker is in the middle of a part."""
    words = [sys.executable, "-m", "semidp", "release", people_file, *WORDS, *more]
    process = subprocess.Popen(
        words,
        env=site,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore SIGINT, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    number = 2 if "--jobs" in words else 1
    while len(list(Path(site["STUCK"]).iterdir())) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", ["SIGKILL", "SIGTERM", pytest.param("SIGINT", marks=pytest.mark.long)]
)
def test_workers_end_with_their_parent(name: str, people_file: Path, site, tmp_path: Path) -> None:
    out, ledger = tmp_path / "release", Ledger.create(tmp_path / "ledger.json", Budget.zcdp(10))
    more = ("--ledger", ledger.path, "--out", out)
    process = started(people_file, site, *more, "--jobs", "2")
    workers = _children(process.pid)
    assert len(workers) == 2
    number = signal.Signals[name]
    try:
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        deadline = time.monotonic() + 60  # what they are at work on would take much longer
        while any(map(is_running, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_running, workers))
    finally:
        for pid in filter(is_running, workers):
            os.kill(pid, signal.SIGKILL)
    if name == "SIGKILL":
        assert process.returncode == -number
    else:
        assert process.returncode == 128 + number
        told_of_resuming(said, out)
    assert command(["resume", str(out)]) == 0
    assert charges(ledger) == 1
    assert disagreements(Release.load(out), read_document(out / "release.json")) == ()


def told_of_resuming(said: str, out: Path) -> None:
    (line,) = said.strip().splitlines()
    assert line.startswith(
        "semidp: interrupted; no release was written; the ledger was charged all the same; "
    )
    assert f"semidp resume {out} finishes it" in line
    assert f"semidp discard {out} writes it off" in line


@pytest.mark.parametrize("where", [pytest.param("here", marks=pytest.mark.long), "in a thread"])
def test_an_interrupt_is_answered_in_a_computation(
    where: str, people_file: Path, site, tmp_path: Path
) -> None:
    """In one process: Python would run the handler when the computation is over, or wait for the
    thread.
    """
    if where == "in a thread":
        site["STUCK_THREAD"] = "1"
    out, ledger = tmp_path / "release", Ledger.create(tmp_path / "ledger.json", Budget.zcdp(10))
    process = started(people_file, site, "--ledger", ledger.path, "--out", out)
    try:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    told_of_resuming(said, out)
    assert is_unfinished(out)


# --- one charge, to the ledger that is given


@pytest.mark.long
def test_a_ledger_that_is_given_later_is_charged(begun, people, tmp_path: Path) -> None:
    place, ledger = begun(), ledger_at(tmp_path / "ledger.json")
    release = run_partitioned(plan(), people, place, "state", resume=True, ledger=ledger)
    assert charges(ledger) == 1
    assert (
        find_disagreement(ledger.account(), release.ledger, release.stated, release.measured_digest)
        is None
    )
    assert find_disagreement(ledger.account(), Release.load(place).ledger) is None


@pytest.mark.long
def test_another_ledger_is_refused_before_anything_is_written(
    begun, people, tmp_path: Path
) -> None:
    first, second = ledger_at(tmp_path / "first.json"), ledger_at(tmp_path / "second.json")
    place = begun(ledger=first)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="begun with another ledger"):
        run_partitioned(plan(), people, place, "state", resume=True, ledger=second)
    assert contents(tmp_path) == before
    assert (charges(first), charges(second)) == (1, 0)
    release = run_partitioned(plan(), people, place, "state", resume=True, ledger=first)
    assert (charges(first), charges(second)) == (1, 0)
    assert find_disagreement(first.account(), release.ledger) is None


@pytest.mark.long
def test_a_ledger_without_room_is_refused_before_anything_is_written(
    begun, people, tmp_path: Path
) -> None:
    place, small = begun(), ledger_at(tmp_path / "small.json", 1)
    before = contents(tmp_path)
    with pytest.raises(BudgetExceeded):
        run_partitioned(plan(), people, place, "state", resume=True, ledger=small)
    after = contents(tmp_path)
    assert {name for name in after if name not in before} <= {".small.json.lock"}
    notes = ".semidp-release.unfinished.json"
    # The session is noted before the ledger is asked, and nothing else is.
    noted = [{**json.loads(found[notes]), "sessions": None} for found in (before, after)]
    assert noted[0] == noted[1]
    assert {**{name: after[name] for name in before}, notes: before[notes]} == before
    assert run_partitioned(plan(), people, place, "state", resume=True).ledger is None


def test_a_charge_that_is_refused_leaves_nothing(people, tmp_path: Path) -> None:
    small = ledger_at(tmp_path / "small.json", 1)
    with pytest.raises(BudgetExceeded):
        run_partitioned(plan(), people, tmp_path / "release", "state", ledger=small)
    assert {path.name for path in tmp_path.iterdir()} <= {"small.json", ".small.json.lock"}


@pytest.mark.long
def test_a_run_that_ends_right_after_its_charge_is_not_charged_again(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, ledger = tmp_path / "release", ledger_at(tmp_path / "ledger.json")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Unfinished, "note", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            run_partitioned(plan(), people, place, "state", ledger=ledger)
    assert caught.value.__notes__ == ["the ledger was charged all the same"]
    assert charges(ledger) == 1
    with pytest.raises(InputError, match="give that ledger again") as refused:
        run_partitioned(plan(), people, place, "state", resume=True)
    assert refused.value.needs == "unfinished"
    release = run_partitioned(
        plan(), people, place, "state", resume=True, ledger=Ledger(ledger.path)
    )
    assert charges(ledger) == 1
    assert (
        find_disagreement(ledger.account(), release.ledger, release.stated, release.measured_digest)
        is None
    )


@pytest.mark.long
def test_a_whole_release_without_a_charge_is_finished_as_it_is(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, ledger = tmp_path / "release", ledger_at(tmp_path / "ledger.json")
    with monkeypatch.context() as broken:
        broken.setattr(
            "semidp.publish.folders.put_in_place",
            lambda *_: raised(OSError(28, "No space left on device")),
        )
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan(), people, place, "state")
    with pytest.raises(InputError, match="states that no ledger was charged"):
        run_partitioned(plan(), people, place, "state", resume=True, ledger=ledger)
    assert charges(ledger) == 0
    assert run_partitioned(plan(), people, place, "state", resume=True).ledger is None


def raised(error: Exception) -> None:
    raise error


# --- what is left is removed only by who says so


def test_discarding_needs_something_to_discard(begun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no unfinished"):
        discard_unfinished(tmp_path / "release")
    Release.discard_unfinished(begun())
    assert not list(tmp_path.glob(".semidp-*"))


def test_a_damaged_note_removes_nothing(begun, people, tmp_path: Path) -> None:
    place = begun()
    left = Unfinished.from_notes(place)
    assert left is not None
    left.notes.write_text("{")
    for resume in (False, True):
        with pytest.raises(InputError, match="is damaged: discard"):
            run_partitioned(plan(), people, place, "state", resume=resume)
    assert left.folder.is_dir()
    discard_unfinished(place)
    assert not list(tmp_path.glob(".semidp-*"))


def test_only_one_of_two_runs_begins(tmp_path: Path) -> None:
    """Where locks reach no other machine, the note decides."""
    one, two = (Unfinished.new(tmp_path / "release") for _ in range(2))
    one.begin({})
    with pytest.raises(InputError):
        two.begin({})
    assert one.read_notes()
    assert not two.read_notes()
    with pytest.raises(InputError):
        two.note(measured=True)
    assert one.read_notes() == {"run": one.run_name}


@pytest.mark.long
def test_every_task_names_its_run(
    begun, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = runners.carry_out
    monkeypatch.setattr(
        runners, "carry_out", lambda task, source: seen.append(task.run_name) or real(task, source)
    )
    place = begun(2)
    left = Unfinished.from_notes(place)
    assert left is not None
    assert left.read_notes()["run"] == left.run_name
    run_partitioned(plan(), people, place, "state", resume=True)
    assert len(seen) >= 2
    assert set(seen) == {left.run_name}
