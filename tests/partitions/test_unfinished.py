"""What a release part by part leaves when it ends early, and how it is finished: nothing is drawn
or charged twice.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, InputError, Ledger, Release
from semidp.promise.documents import read_document
from semidp.promise.files import replace_file
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.publish import runners
from semidp.publish.folders import discard_unfinished, is_unfinished
from semidp.publish.recheck import disagreements
from semidp.publish.statistics.parts import STATE
from semidp.publish.statistics.tables import part_steps
from semidp.publish.statistics.tables.part_steps import stored_path
from tests.cli.conftest import settle
from tests.partitions.conftest import plan, run_partitioned, unfinished

KILLS = int(os.environ.get("SEMIDP_KILLS", "1"))


class Fails:
    """Carries out parts until one of them must not be; all of them are measured."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, self.done, real = after, list[tuple[str, ...]](), runners.carry_out

        def carry_out(task, source):
            if task.only_measured:
                return real(task, source)
            if self.left == 0:
                raise OSError(28, "No space left on device")
            self.left -= 1
            self.done.append(task.path)
            return real(task, source)

        monkeypatch.setattr(runners, "carry_out", carry_out)


def test_a_release_that_failed_is_resumed_without_drawing_again(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    ledger, place = Ledger(tmp_path / "ledger.json"), tmp_path / "release"
    fails = Fails(monkeypatch, 2)
    with pytest.raises(InputError, match="no space left"):
        run_partitioned(plan(), people, place, "state", ledger=ledger)
    assert not place.exists()
    kept = unfinished(tmp_path / "release")
    first = {path.relative_to(kept): path.read_bytes() for path in kept.rglob("*.parquet")}
    assert {path.name for path in kept.glob("state=*")} == {"state=01", "state=02"}
    assert len(ledger.account().charges) == 1

    with pytest.raises(InputError, match=r"has left .* unfinished") as caught:
        run_partitioned(plan(), people, place, "state", ledger=ledger)
    assert caught.value.needs == "unfinished"
    fails.left = -1
    release = run_partitioned(plan(), people, place, "state", ledger=ledger, resume=True)
    assert fails.done[2:] == [("03",), ("04",)]  # the others were not carried out again
    assert len(ledger.account().charges) == 1
    assert release.ledger is not None
    for path, content in first.items():
        if path.parts[0].startswith("state="):
            assert (place / path).read_bytes() == content
    assert not kept.exists()
    assert disagreements(Release.load(place), read_document(place / "release.json")) == ()


def test_what_was_measured_above_is_read_again(
    apart, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Fails(monkeypatch, 0)
    with pytest.raises(InputError, match="no space left"):
        run_partitioned(plan(), people, tmp_path / "release", "state")
    stored = unfinished(tmp_path / "release") / STATE / "above-0.npy"
    content = stored.read_bytes()
    drawn = []
    monkeypatch.setattr(SystemRandomness, "part", lambda self, *key: drawn.append(key) or self)
    fails.left = -1
    run_partitioned(plan(), people, tmp_path / "release", "state", resume=True)
    assert content
    assert drawn
    assert all(
        (key[:1] == ("product",) and len(key) == 2) or key[0] in ("state", "sex", "age")
        for key in drawn
    )
    assert ("product",) not in drawn  # the residuals at the cut were not drawn again


def test_an_attempt_that_was_killed_after_it_measured_is_not_measured_again(
    apart, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first measurement of a part is the one that is published, whatever becomes of who made
    it.
    """

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(part_steps, "fit_product", fails)
        with pytest.raises(KeyboardInterrupt):
            run_partitioned(plan(), people, tmp_path / "release", "state")
    measured = [
        path
        for path in (unfinished(tmp_path / "release") / STATE).glob("*.parquet")
        if len(path.stem) == 64
    ]
    (stored,) = measured
    noisy = part_steps.read_stored(stored)
    run_partitioned(plan(), people, tmp_path / "release", "state", resume=True)
    found = [
        path
        for path in (tmp_path / "release").rglob("product-measurements.parquet")
        if np.array_equal(part_steps.read_stored(path), noisy)
    ]
    assert len(found) == 1


@pytest.mark.long
def test_two_attempts_at_one_part_publish_the_same_numbers(
    apart, people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A speculative copy of a task, which looks before the first one has stored, draws noise and
    then drops it.
    """
    kept, drawn = [], []
    real, noise = part_steps.PartMeasurement.measure, part_steps.BranchNoise.measure

    def measure(work, task, source, attempt):
        real(work, task, source, attempt)
        if not work.has_noise:
            return
        stored = stored_path(task.work, work.request, task.path)
        first = stored.read_bytes()
        copy = attempt.with_name(attempt.name + "-copy")
        copy.mkdir()
        with monkeypatch.context() as late:
            late.setattr(Path, "exists", lambda path: False)
            real(work, task, source, copy)
        kept.append(stored.read_bytes() == first)

    monkeypatch.setattr(part_steps.PartMeasurement, "measure", measure)
    monkeypatch.setattr(
        part_steps.BranchNoise,
        "measure",
        lambda self, *words: drawn.append(self) or noise(self, *words),
    )
    run_partitioned(plan(), people, tmp_path / "release", "state")
    assert kept == [True] * 3  # in state 04 nothing is measured
    assert len(drawn) == 6


@pytest.mark.long
def test_only_the_same_release_is_resumed(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "release"
    with pytest.raises(InputError, match="no unfinished"):
        run_partitioned(plan(), people, place, "state", resume=True)
    fails = Fails(monkeypatch, 1)
    with pytest.raises(InputError, match="no space left"):
        run_partitioned(plan(), people, place, "state")
    fails.left = -1
    others = [
        ((plan(("state",)), people, place, "state"), {}, "another plan"),
        ((plan(), people, place, "county"), {}, "another partition"),
        ((plan(), {**people, "sex": ["f"] * 600}, place, "state"), {}, "other exact totals"),
        ((plan(), people, place, "state"), {"form": "csv"}, "another form"),
        (
            (plan(), people, place, "state"),
            {"randomness": SeededRandomness(1)},
            "another source of random",
        ),
    ]
    for words, more, match in others:
        with pytest.raises(InputError, match=match):
            run_partitioned(*words, resume=True, **more)
        assert unfinished(tmp_path / "release").is_dir()
    discard_unfinished(place)
    run_partitioned(plan(("state",)), people, place, "state")
    assert not list(tmp_path.glob(".semidp-*"))
    assert Release.load(place).plan == plan(("state",))


@pytest.mark.long
def test_no_other_run_sweeps_what_is_unfinished(
    people, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        Fails(broken, 1)
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan(), people, tmp_path / "release", "state")
    old = time.time() - 10**6
    os.utime(unfinished(tmp_path / "release"), (old, old))
    run_partitioned(plan(), people, tmp_path / "other", "state")
    Release.load(tmp_path / "other")
    assert unfinished(tmp_path / "release").is_dir()


WORKER = """
import sys
from semidp.cli import run
if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
"""
WORDS = (
    *(
        "--nest",
        "state,county,tract",
        "--table",
        "tract,sex",
        "--table",
        "county,age",
        "--invariant",
        "tract",
    ),
    *(
        "--levels",
        "age=y,m,o",
        "--levels",
        "sex=f,m",
        "--rho",
        "1",
        "--partition",
        "state",
        "--quiet",
    ),
)


@pytest.mark.long
@pytest.mark.parametrize("who", ["a worker", "everybody"])
def test_kills(who: str, people_file: Path, tmp_path: Path) -> None:
    """kill -9 of a worker, or of the whole release, at random moments; then it is resumed, and is
    whole.
    """
    generator, resumed = random.Random(len(who)), 0
    (tmp_path / "go.py").write_text(WORKER)
    for number in range(KILLS):
        out = tmp_path / f"{number}" / "release"
        out.parent.mkdir()
        ledger = out.parent / "ledger.json"
        Ledger.create(ledger, Budget.zcdp(10))
        words = [
            sys.executable,
            tmp_path / "go.py",
            "release",
            people_file,
            *WORDS,
            "--ledger",
            ledger,
            "--out",
            out,
        ]
        run = subprocess.Popen(
            [*words, "--jobs", "2"], start_new_session=True, stderr=subprocess.PIPE, text=True
        )
        begun = False
        deadline = time.monotonic() + 120
        while run.poll() is None and time.monotonic() < deadline and not begun:
            begun = is_unfinished(out)
            time.sleep(0.005)
        time.sleep(generator.random() * 1.5)
        if run.poll() is None:
            if who == "everybody":
                os.killpg(run.pid, signal.SIGKILL)
            else:
                workers = _children(run.pid)
                if workers:
                    os.kill(generator.choice(workers), signal.SIGKILL)
        _, said = run.communicate(timeout=120)
        if not out.exists():
            if who == "a worker":
                assert run.returncode == 2, said
                assert "semidp resume" in said
                assert "charged all the same" in said
            assert is_unfinished(out)
            again = subprocess.run(
                [sys.executable, "-m", "semidp", "resume", out], capture_output=True, text=True
            )
            assert again.returncode == 0, again.stderr
            resumed += 1
        assert disagreements(Release.load(out), read_document(out / "release.json")) == ()
        assert len(Ledger(ledger).account().charges) == 1
        # Half of a folder that a killed run was removing stays under a dot name for ten minutes, and
        # goes with the next file that is written there.
        settle(out.parent)
        replace_file(out.parent / "later", "")
        assert sorted(path.name for path in out.parent.iterdir() if path.suffix != ".lock") == [
            "later",
            "ledger.json",
            "release",
        ]
    assert resumed or KILLS < 4  # a single kill may come too late


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == parent and b"spawn_main" in command:
                found.append(int(entry.name))
    return found
