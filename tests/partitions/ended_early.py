"""A release by parts that ends early and is resumed, with a note of every source of noise."""

from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, InputError, Ledger, Plan, Release
from semidp.promise import Series
from semidp.promise.documents import read_document
from semidp.promise.noise.randomness import SystemRandomness, Words
from semidp.publish import runners
from semidp.publish.recheck import disagreements
from tests.partitions.conftest import run_partitioned


class Recorded(SystemRandomness):
    """The operating system's words, with a note of who asked for them: the keys that lead to the
    source.
    """

    secure = True

    def __init__(self, asked_by: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> None:
        object.__setattr__(self, "asked_by", asked_by)
        object.__setattr__(self, "path", path)

    def words(self, count: int) -> Words:
        self.asked_by.add(self.path)
        return super().words(count)

    def part(self, *key: str) -> "Recorded":
        return Recorded(self.asked_by, (*self.path, *key))


class Listed(Recorded):
    """The same, with a list of who asked, in the order in which they did."""

    def __init__(self, asked: list[tuple[str, ...]], path: tuple[str, ...] = ()) -> None:
        super().__init__(set(), path)
        object.__setattr__(self, "asked", asked)

    def words(self, count: int) -> Words:
        self.asked.append(self.path)
        return super().words(count)

    def part(self, *key: str) -> "Listed":
        return Listed(self.asked, (*self.path, *key))


def sources_in_order(plan: Plan, data: Any, folder: Path) -> list[tuple[str, ...]]:
    """Return the sources of noise of a release by parts, each as often as it was turned to.

    A sampler may ask its own source several times in a row. Whoever comes back to a source that
    another has used since would draw with the noise of another part.
    """
    asked: list[tuple[str, ...]] = []
    run_partitioned(plan, data, folder / "parts", "state", randomness=Listed(asked))
    return [path for place, path in enumerate(asked) if place == 0 or asked[place - 1] != path]


def ended_and_resumed(
    plan: Plan, data: Any, folder: Path, after: int, budget: Budget, series: Series | None = None
) -> set[tuple[str, ...]]:
    """Return the sources of noise that a release used, after it ended early and was resumed.

    The disk is full after some tasks, of measuring or of writing. The release is charged before it
    ends and not again, no source of noise is used before and after, and all numbers follow. Two
    parts that shared a source would be seen here: one draws before the end, the other after it.
    """
    Ledger.create(folder / "ledger.json", budget, series=series)
    ledger, place = Ledger(folder / "ledger.json"), folder / "release"
    real_work = runners.carry_out
    left = [after]

    def carry_out(task, source):
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        return real_work(task, source)

    before: set[tuple[str, ...]] = set()
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(runners, "carry_out", carry_out)
        with pytest.raises(InputError, match="no space left"):
            run_partitioned(plan, data, place, "state", ledger=ledger, randomness=Recorded(before))
    assert not place.exists()
    charges = ledger.account().charges
    assert charges
    later: set[tuple[str, ...]] = set()
    resumed = {"ledger": ledger, "resume": True, "randomness": Recorded(later)}
    run_partitioned(plan, data, place, "state", **resumed)
    assert ledger.account().charges == charges
    assert not before & later
    assert disagreements(Release.load(place), read_document(place / "release.json")) == ()
    return before | later
