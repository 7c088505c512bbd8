"""Ctrl-C and the time: what is written is the best so far, whole and with every exact total."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Feature, InputError, Plan, Refused, Release, run
from semidp.cli import run as command
from semidp.cli.records import first_interrupt
from semidp.inference.records import record_assembly
from semidp.inference.records.record_assembly import PublishedNumbers, synthesize_records
from semidp.inference.records.record_search import Ending
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TablesRequest
from semidp.publish.statistics.tables.request import list_all_tables
from tests.records.structures import kept

NAMES = ["a", "b", "c"]


def people() -> dict[str, list[str]]:
    rng = np.random.default_rng(2)
    return {name: [str(level) for level in rng.integers(4, size=600)] for name in NAMES}


@pytest.fixture(scope="module")
def release() -> Release:
    features = [Feature(name, "0123") for name in NAMES]
    plan = Plan(
        [TablesRequest(list_all_tables(NAMES), Budget.gdp(1))], ["a", "b"], features=features
    )
    return run(plan, people(), SeededRandomness(1))


def test_whoever_asks_to_stop_gets_what_there_is(release: Release) -> None:
    asked = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 3

    records = synthesize_records(release, SeededRandomness(1), stop=stop)
    assert records.ending is Ending.INTERRUPTED
    assert len(asked) == 4
    assert kept(PublishedNumbers.from_release(release), np.stack(records.places, axis=1))


def test_the_time_ends_it(release: Release) -> None:
    records = release.records(SeededRandomness(1), seconds=1e-6)
    assert records.ending is Ending.TIME
    assert kept(PublishedNumbers.from_release(release), np.stack(records.places, axis=1))
    longer = release.records(SeededRandomness(1), seconds=600)
    assert longer.ending is Ending.SETTLED
    assert max(d.rms for d in longer.distances) < 1.2
    assert sum(d.rms for d in longer.distances) < sum(d.rms for d in records.distances)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "9"])
def test_a_time_that_is_none_is_refused(release: Release, seconds: object) -> None:
    with pytest.raises(InputError, match="a positive number of seconds"):
        release.records(seconds=seconds)


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    """Python's own handler: a shell ignores interrupts for what it runs in the background, and so
    would the tests.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("usual_interrupts")
def test_a_first_interrupt_is_noted_and_a_second_ends_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with first_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "writing the best records so far" in capsys.readouterr().err


@pytest.mark.usefixtures("usual_interrupts")
def test_an_interrupted_command_writes_the_best_so_far(
    release: Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release.save(tmp_path / "r")
    sweep = record_assembly.compiled_sweep
    calls = []

    def interrupted(*given: object) -> int:
        calls.append(None)
        # The signal arrives while the second kind of move is under way, and only once.
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return sweep(*given)

    monkeypatch.setattr(record_assembly, "compiled_sweep", interrupted)
    out = tmp_path / "people.csv"
    assert command(["synthesize", str(tmp_path / "r"), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "interrupted: these are the best records so far" in printed.out
    assert len(calls) == 2
    rows = out.read_text().splitlines()[1:]
    assert Counter(row.split(",")[0] for row in rows) == Counter(people()["a"])


def test_several_files_are_written_together_or_not_at_all(release: Release, tmp_path: Path) -> None:
    asked = []

    def stop() -> bool:
        asked.append(None)
        return len(asked) > 2

    with pytest.raises(Refused, match="interrupted at file 1 of 3"):
        release.save_records(tmp_path / "people.csv", files=3, stop=stop)
    assert not list(tmp_path.iterdir())


def test_numpy_serves_where_numba_is_missing(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_assembly, "compiled_available", lambda: False)

    def never(*given: object) -> int:
        raise AssertionError("compiled code was used")

    monkeypatch.setattr(record_assembly, "compiled_sweep", never)
    records = release.records(SeededRandomness(1))
    assert max(distance.rms for distance in records.distances) < 1.2


def test_linked_files_are_refused_in_a_sentence(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(release.scope.dataspace), "kinds", ("household", "person"))
    with pytest.raises(Refused, match="linked files"):
        release.records()


def test_records_are_a_byte_a_value_and_a_data_frame(release: Release) -> None:
    records = release.records(SeededRandomness(1), seconds=0.1)
    assert {place.dtype for place in records.places} == {np.dtype(np.uint8)}
    frame = records.to_pandas()
    assert list(frame.columns) == NAMES
    assert (
        frame["a"].tolist()
        == records.to_polars()["a"].to_list()
        == [row[0] for row in records.rows()]
    )
    assert Counter(frame["b"]) == Counter(people()["b"])
