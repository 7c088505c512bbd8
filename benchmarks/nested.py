"""Nested features against a flat feature with as many cells: seconds and memory of a release, and
their ratios.

Each case runs in a process of its own, so that peak memory is its own; the flat table has the same
counts and the finest names alone. A ratio of 1 means that depth costs nothing.
"""

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from semidp import Budget, Feature, Plan
from semidp import run as release
from semidp.promise.schema.schema import Schema, StructuralZero
from semidp.publish import TableRequest

CASES = {"counties": ((51,), 3_143), "tracts": ((51, 3_143), 84_000)}
TARGET = 1.5
SEX, AGE = ("f", "m"), ("0", "18", "35", "50", "65")


def paths(sizes: tuple[int, ...], leaves: int) -> list[tuple[str, ...]]:
    """Leaves spread over nodes as evenly as whole numbers allow, with text codes."""
    marks = [np.arange(leaves)]
    for size, below in zip(sizes[::-1], (leaves, *sizes[::-1]), strict=False):
        marks.insert(0, marks[0] * size // below)
    return [tuple(f"{code:06d}" for code in row) for row in zip(*marks, strict=True)]


def measured(case: str, nested: bool) -> dict[str, float]:
    """Release places x sex x age with exact totals of the coarsest depth (flat: of sex) and of
    age.
    """
    places = paths(*CASES[case])
    names = ["state", "county", "tract"][: len(places[0])]
    cells = len(places) * len(SEX) * len(AGE)
    which = np.unravel_index(np.arange(cells), (len(places), len(SEX), len(AGE)))
    data = {name: np.array([path[i] for path in places])[which[0]] for i, name in enumerate(names)}
    data |= {"sex": np.array(SEX)[which[1]], "age": np.array(AGE)[which[2]]}
    data["people"] = np.random.default_rng(1).poisson(20, cells)
    others = [Feature("sex", SEX), Feature("age", AGE)]
    if nested:
        place, exact = Feature.from_paths(names, places), ["state", "age"]
    else:
        place, exact = Feature(names[-1], [path[-1] for path in places]), ["sex", "age"]
    plan = Plan(
        [TableRequest([names[-1], "sex", "age"], Budget.zcdp(1))],
        exact,
        [place, *others],
        count="people",
    )
    before = _peak()
    start = time.perf_counter()
    done = release(plan, data)
    seconds = time.perf_counter() - start
    assert done.tables[0].keeps(done.scope.dataspace)
    return {"cells": cells, "seconds": seconds, "megabytes": (_peak() - before) / 1024}


def _peak() -> int:
    """The most memory that this process has held, in kilobytes; what getrusage says may be its
    parent's.
    """
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def zeros() -> float:
    """Return the seconds of the former workaround: a structural zero for each county outside its
    state.
    """
    counties = [f"c{i}" for i in range(3_100)]
    states = [f"s{i}" for i in range(50)]
    declared = [
        StructuralZero.from_pattern(
            {"county": county, "state": [s for j, s in enumerate(states) if j != i % 50]}
        )
        for i, county in enumerate(counties)
    ]
    start = time.perf_counter()
    schema = Schema([Feature("state", states), Feature("county", counties)], declared)
    possible = schema.possible
    assert possible is not None
    assert possible.sum() == len(counties)
    return time.perf_counter() - start


def run() -> list[dict[str, Any]]:
    """Compare nested with flat, each in a process of its own, and time the structural zeros."""
    rows = []
    for case in CASES:
        flat, nested = (_alone(case, kind) for kind in ("flat", "nested"))
        for name in ("seconds", "megabytes"):
            ratio = nested[name] / flat[name]
            rows.append(
                {
                    "name": f"{case}: {name}, nested / flat",
                    "ratio": ratio,
                    "target": f"≤ {TARGET}",
                    "ok": ratio <= TARGET,
                }
            )
    seconds = zeros()
    rows.append(
        {
            "name": "3,100 x 50 structural zeros: seconds",
            "ratio": seconds,
            "target": "≤ 1",
            "ok": seconds <= 1,
        }
    )
    return rows


def _alone(case: str, kind: str) -> dict[str, float]:
    command = [sys.executable, __file__, case, kind]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], sys.argv[2] == "nested")))
