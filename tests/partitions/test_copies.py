"""One charge pays for one measurement, however often the folder of an unfinished run is copied."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from semidp import Budget, InputError, Ledger, Release
from semidp.promise.accounting import ledger as ledger_module
from semidp.promise.accounting.account import find_disagreement
from semidp.promise.noise.randomness import SystemRandomness
from semidp.publish import runners
from semidp.publish.folders import Unfinished
from tests.partitions.conftest import plan, run_partitioned
from tests.partitions.test_unfinished import Fails

LEFT_BEHIND = "another copy of this run was resumed or finished"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))


@pytest.fixture
def resumed(people: Any, ledger: Ledger) -> Callable[..., Release]:
    def resume(place: Path, **more: Any) -> Release:
        how = {"ledger": Ledger(ledger.path), "resume": True, **more}
        return run_partitioned(plan(), people, place, "state", **how)

    return resume


@pytest.fixture
def begun(
    apart: None, people: Any, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that ended after one of its four parts; the noise of the second is not drawn yet."""
    with monkeypatch.context() as broken:
        Fails(broken, 1)
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan(), people, tmp_path / "release", "state", ledger=ledger)
    return tmp_path / "release"


def transferred(place: Path, name: str, how: Callable[..., object]) -> Path:
    """Copy or move an unfinished run to another destination."""
    for path in [*place.parent.glob(f".semidp-{place.name}.unfinished*")]:
        how(path, path.with_name(path.name.replace(place.name, name, 1)))
    return place.with_name(name)


def copied(place: Path, name: str = "other") -> Path:
    def copy(old: Path, new: Path) -> None:
        (shutil.copytree if old.is_dir() else shutil.copy)(old, new)

    return transferred(place, name, copy)


@pytest.mark.parametrize("copy_first", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_copy_that_is_resumed_second_draws_nothing(
    begun: Path, resumed, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, copy_first: bool
) -> None:
    first, second = (copied(begun), begun) if copy_first else (begun, copied(begun))
    release = resumed(first)
    drawn: list[object] = []
    real = SystemRandomness.part
    monkeypatch.setattr(
        SystemRandomness, "part", lambda self, *key: drawn.append(key) or real(self, *key)
    )
    for _ in range(2):
        with pytest.raises(InputError, match=LEFT_BEHIND):
            resumed(second)
    assert not drawn
    assert not second.exists()
    assert len(ledger.account().charges) == 1
    agrees = find_disagreement(
        ledger.account(), release.ledger, release.stated, Release.load(first).measured_digest
    )
    assert agrees is None


@pytest.mark.long
def test_without_sessions_one_charge_would_pay_for_two_measurements(
    begun: Path, resumed, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: what the tests of this page look for does happen where nothing prevents it."""
    monkeypatch.setattr(ledger_module, "_take_over", lambda document, session: None)
    noise = {resumed(place).measured_digest for place in (copied(begun), begun)}
    assert len(noise) == 2
    assert len(ledger.account().charges) == 1


@pytest.mark.long
def test_a_run_that_was_moved_is_resumed(begun: Path, resumed) -> None:
    place = transferred(begun, "elsewhere", os.rename)
    resumed(place)
    assert place.exists()
    assert not begun.exists()


@pytest.mark.long
def test_of_copies_that_are_resumed_at_once_one_goes_on(begun: Path, resumed, ledger) -> None:
    places = [begun, *(copied(begun, f"other-{number}") for number in range(3))]
    together = Barrier(len(places))

    def resume(place: Path) -> str:
        together.wait()
        try:
            return resumed(place).measured_digest
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(len(places)) as pool:
        said = [*pool.map(resume, places)]
    assert sum(LEFT_BEHIND in sentence for sentence in said) == 3
    assert [place.exists() for place in places].count(True) == 1
    (recorded,) = json.loads(ledger.path.read_text())["runs"].values()
    assert recorded["measured"] in said


def test_a_copy_that_is_resumed_while_the_run_is_at_work_ends_it(
    apart: None, people: Any, resumed, ledger: Ledger, tmp_path: Path, monkeypatch
) -> None:
    """Both draw noise for the parts that are left. Only that of the later session is published."""
    real, releases = runners.carry_out, list[Release]()

    def carry_out(task: Any, source: Any) -> Any:
        if not releases and task.path == ("02",):
            monkeypatch.setattr(runners, "carry_out", real)
            releases.append(resumed(copied(tmp_path / "release")))
        return real(task, source)

    monkeypatch.setattr(runners, "carry_out", carry_out)
    with pytest.raises(InputError, match=LEFT_BEHIND):
        run_partitioned(plan(), people, tmp_path / "release", "state", ledger=ledger)
    assert len(releases) == 1
    assert not (tmp_path / "release").exists()
    with pytest.raises(InputError, match=LEFT_BEHIND):
        resumed(tmp_path / "release")
    assert len(ledger.account().charges) == 1


@pytest.mark.parametrize(
    "moment",
    [
        "before the ledger has the session",
        "before the ledger has the measurement",
        pytest.param("after the ledger has the measurement", marks=pytest.mark.long),
    ],
)
def test_a_run_that_ends_between_two_records_is_finished(
    begun: Path, resumed, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    charge, finish = Ledger.charge, Ledger.finish

    def ends(self: Ledger, *words: Any) -> Any:
        if moment.startswith("after"):
            finish(self, *words)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "charge" if "session" in moment else "finish", ends)
        with pytest.raises(KeyboardInterrupt):
            resumed(begun)
    copy = copied(begun)
    release = resumed(begun)
    (recorded,) = json.loads(ledger.path.read_text())["runs"].values()
    assert recorded["measured"] == release.measured_digest == Release.load(begun).measured_digest
    assert (Ledger.charge, Ledger.finish) == (charge, finish)
    # A copy that holds another measurement, or none yet, is left behind.
    with pytest.raises(InputError, match=LEFT_BEHIND):
        resumed(copy)


@pytest.mark.long
def test_a_copy_of_what_is_complete_publishes_the_same(
    begun: Path, resumed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the ledger has the measurement, copied, and finished twice: one set of noise."""

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("semidp.publish.folders.put_in_place", fails)
        with pytest.raises(InputError, match="no space left"):
            resumed(begun)
    copy = copied(begun)
    assert resumed(copy).measured_digest == Release.load(copy).measured_digest
    with pytest.raises(InputError, match=LEFT_BEHIND):
        resumed(begun)


def test_a_charged_run_is_not_resumed_without_its_ledger(begun: Path, resumed) -> None:
    left = Unfinished.from_notes(begun)
    assert left is not None
    before = left.notes.read_bytes()
    with pytest.raises(InputError, match="give that ledger again") as refused:
        resumed(begun, ledger=None)
    assert refused.value.needs == "unfinished"
    assert left.notes.read_bytes() == before


@pytest.mark.long
def test_a_ledger_that_is_given_later_pays_for_one_copy(
    apart: None, people: Any, resumed, ledger: Ledger, tmp_path: Path, monkeypatch
) -> None:
    place = tmp_path / "release"
    with monkeypatch.context() as broken:
        Fails(broken, 1)
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan(), people, place, "state")
    copy = copied(place)
    resumed(place)
    with pytest.raises(InputError, match=LEFT_BEHIND):
        resumed(copy)
    assert len(ledger.account().charges) == 1
