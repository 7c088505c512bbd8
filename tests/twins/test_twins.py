"""Random plans, random datasets and random neighbors, run with the same random words."""

import random

import pytest

from tests.twins.twin_runs import BOXES, TOWNS, Seen, draw, run_twins

CHUNKS = 40
"""`make test-long` draws plans for every box of the grid so many times."""
MIXED = [(row, "mixed", relation) for row in ("flat", "joint") for relation in ("ball", "exchange")]
TESTS = [("flat", "odds ratio", relation) for relation in ("ball", "exchange")]


def test_twins_differ_by_no_more_than_stated():
    rng, seen = random.Random(2026), Seen()
    for box in rng.sample(BOXES, len(BOXES)):
        if seen.total < 200:
            near = 4 if box[0] in TOWNS else 12  # a release of linked files takes longer
            run_twins(draw(rng, box), rng, seen, near, effort=(2, 60))
    print(seen.report())
    assert seen.total >= 200


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_twins_differ_by_no_more_than_stated(chunk):
    rng, seen = random.Random(chunk), Seen()
    for box in [*BOXES, *MIXED, *TESTS]:
        goal = seen.pairs[box] + 1
        for _ in range(12):
            if seen.pairs[box] < goal:  # the plan was refused, or fell into another box
                run_twins(draw(rng, box), rng, seen, near=6, effort=(4, 200))
    print(seen.report())
    assert seen.total >= 500
    assert seen.counts["where"] >= 10
    assert min(seen.pairs[box] for box in BOXES) >= 2
