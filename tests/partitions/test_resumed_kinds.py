"""Whatever parts can be asked for is finished after it ended early, and nothing is drawn or charged
twice.
"""

from pathlib import Path

import pytest

from semidp import Budget, InputError, Ledger, Release
from semidp.noise.randomness import SystemRandomness, Words
from semidp.output.plain_reading import document_at
from semidp.publishing.parts import runners
from semidp.publishing.rechecking.release_check import disagreements
from tests.partitions.conftest import run_partitioned
from tests.partitions.test_like_one_piece import KINDS, random_plan


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


@pytest.mark.few(6)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS.__getitem__)
def test_nothing_is_drawn_or_charged_twice(
    kind: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after some tasks; the release is resumed. No source of noise is used before
    and after.
    """
    asked = random_plan(kind)
    Ledger.create(tmp_path / "ledger.json", Budget.gdp(100))
    ledger, place = Ledger(tmp_path / "ledger.json"), tmp_path / "release"
    real_work = runners.carry_out
    left = [after]

    def carry_out(task, source):
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        return real_work(task, source)

    monkeypatch.setattr(runners, "carry_out", carry_out)
    before: set[tuple[str, ...]] = set()
    with pytest.raises(InputError, match="no space left"):
        run_partitioned(
            asked.plan, asked.data, place, "state", ledger=ledger, randomness=Recorded(before)
        )
    assert not place.exists()
    charges = ledger.account().charges
    assert charges
    left[0] = -1
    later: set[tuple[str, ...]] = set()
    resumed = {"ledger": ledger, "resume": True, "randomness": Recorded(later)}
    run_partitioned(asked.plan, asked.data, place, "state", **resumed)
    assert ledger.account().charges == charges
    assert len(before | later) > 1
    assert not before & later
    assert disagreements(Release.load(place), document_at(place / "release.json")) == ()
