"""Whatever parts can be asked for is finished after it ended early, and nothing is drawn or charged
twice. No two parts of one run share a source of noise.
"""

from pathlib import Path

import pytest
from attrs import evolve

from semidp import Budget, Ledger
from semidp.promise import Attendance, Series
from tests.partitions.ended_early import Listed, ended_and_resumed, sources_in_order
from tests.partitions.test_like_one_piece import KINDS, random_plan


@pytest.mark.few(1)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS.__getitem__)
def test_nothing_is_drawn_or_charged_twice(kind: int, after: int, tmp_path: Path) -> None:
    asked = random_plan(kind)
    sources = ended_and_resumed(asked.plan, asked.data, tmp_path, after, Budget.gdp(100))
    assert len(sources) > 1


@pytest.mark.parametrize("after", [0, 1])
def test_a_period_of_a_series_is_resumed_by_parts(after: int, tmp_path: Path) -> None:
    asked = random_plan(0)
    plan = evolve(asked.plan, period="2026Q3")
    series = Series("quarter", Attendance(4, consecutive=True))
    ended_and_resumed(plan, asked.data, tmp_path, after, Budget.gdp(100), series)
    (charge,) = Ledger(tmp_path / "ledger.json").series_account().charges
    assert str(charge.periods) == "2026Q3"


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS.__getitem__)
def test_no_part_draws_from_the_source_of_another(kind: int, tmp_path: Path) -> None:
    asked = random_plan(kind)
    sources = sources_in_order(asked.plan, asked.data, tmp_path)
    assert len(sources) == len(set(sources)) > 1


def test_parts_that_shared_a_source_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: where parts do not use the keys that lead to their sources, all draw from one."""
    monkeypatch.setattr(Listed, "part", lambda self, *key: Listed(self.asked, key[-1:]))
    asked = random_plan(0)
    sources = sources_in_order(asked.plan, asked.data, tmp_path)
    assert len(sources) > len(set(sources))
