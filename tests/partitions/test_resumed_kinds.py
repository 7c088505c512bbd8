"""Whatever parts can be asked for is finished after it ended early, and nothing is drawn or charged
twice.
"""

from pathlib import Path

import pytest

from semidp import Budget
from tests.partitions.ended_early import ended_and_resumed
from tests.partitions.test_like_one_piece import KINDS, random_plan


@pytest.mark.few(6)
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS.__getitem__)
def test_nothing_is_drawn_or_charged_twice(kind: int, after: int, tmp_path: Path) -> None:
    asked = random_plan(kind)
    sources = ended_and_resumed(asked.plan, asked.data, tmp_path, after, Budget.gdp(100))
    assert len(sources) > 1
