"""Random plans, random datasets and random neighbors, run with the same random words."""

import random

import pytest

from tests.twins.twin_runs import BOXES, Seen, draw, run_twins

QUICK = 26
"""Plans of `make test`."""
CHUNKS = 40
"""`make test-long` draws a plan for every box so many times."""


def test_twins_differ_by_no_more_than_stated():
    rng, seen = random.Random(2026), Seen()
    for box in rng.sample(BOXES, QUICK):
        run_twins(draw(rng, box), rng, seen, near=8, effort=(2, 60))
    print(seen.report())
    assert seen.total >= 200


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_twins_differ_by_no_more_than_stated(chunk):
    rng, seen = random.Random(chunk), Seen()
    boxes = [*BOXES, *[("flat", "mixed", "ball"), ("joint", "mixed", "exchange")] * 3]
    for box in boxes:
        run_twins(draw(rng, box), rng, seen, near=6, effort=(4, 200))
    print(seen.report())
    assert seen.total >= 500
    assert min(seen.pairs[box] for box in BOXES) > 0
