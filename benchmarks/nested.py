"""Nested features against a flat feature with as many cells: seconds and memory of a release, and their ratios.

Run ``python benchmarks/nested.py`` (about a minute). Each case runs in a process of its own, so that peak memory is
its own; the flat table is the same counts with the finest names alone.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from semidp import Budget, Feature, Plan, TableRequest, run
from semidp.tables import Schema, StructuralZero

CASES = {"counties": ((51,), 3_143), "tracts": ((51, 3_143), 84_000)}
SEX, AGE = ("f", "m"), ("0", "18", "35", "50", "65")


def paths(sizes: tuple[int, ...], leaves: int) -> list[tuple[str, ...]]:
    """Leaves spread over nodes as evenly as whole numbers allow, with text codes."""
    marks = [np.arange(leaves)]
    for size, below in zip(sizes[::-1], (leaves, *sizes[::-1]), strict=False):
        marks.insert(0, marks[0] * size // below)
    return [tuple(f"{code:06d}" for code in row) for row in zip(*marks, strict=True)]


def measured(case: str, nested: bool) -> dict[str, float]:
    """Release places x sex x age with exact totals of the coarsest depth (flat: of sex) and of age."""
    places = paths(*CASES[case])
    names = ["state", "county", "tract"][: len(places[0])]
    cells = len(places) * len(SEX) * len(AGE)
    which = np.unravel_index(np.arange(cells), (len(places), len(SEX), len(AGE)))
    data = {name: np.array([path[i] for path in places])[which[0]] for i, name in enumerate(names)}
    data |= {"sex": np.array(SEX)[which[1]], "age": np.array(AGE)[which[2]]}
    data["people"] = np.random.default_rng(1).poisson(20, cells)
    others = [Feature("sex", SEX), Feature("age", AGE)]
    if nested:
        place, exact = Feature.nested(names, places), ["state", "age"]
    else:
        place, exact = Feature(names[-1], [path[-1] for path in places]), ["sex", "age"]
    plan = Plan([TableRequest([names[-1], "sex", "age"], Budget.zcdp(1))], exact, [place, *others], count="people")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    release = run(plan, data)
    seconds = time.perf_counter() - start
    assert release.tables[0].keeps(release.scope)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cells": cells, "seconds": seconds, "megabytes": (after - before) / 1024}


def zeros() -> dict[str, float]:
    """The former workaround, still linear: a structural zero for each county outside its state."""
    counties = [f"c{i}" for i in range(3_100)]
    states = [f"s{i}" for i in range(50)]
    declared = [
        StructuralZero.of({"county": county, "state": [s for j, s in enumerate(states) if j != i % 50]})
        for i, county in enumerate(counties)
    ]
    start = time.perf_counter()
    schema = Schema([Feature("state", states), Feature("county", counties)], declared)
    possible = schema.possible
    assert possible is not None
    assert possible.sum() == len(counties)
    return {"zeros": len(counties) * 49, "seconds": time.perf_counter() - start}


def main() -> None:
    """Print a line a case, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args().one
    if chosen:
        case, _, kind = chosen.partition(":")
        print(json.dumps(measured(case, kind == "nested")))
        return
    for case in CASES:
        found = {}
        for kind in ("flat", "nested"):
            command = [sys.executable, __file__, "--one", f"{case}:{kind}"]
            found[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(f"{case:<9} {kind:<7}", *(f"{name} {value:,.1f}" for name, value in found[kind].items()))
        ratio = {name: found["nested"][name] / max(found["flat"][name], 1e-9) for name in ("seconds", "megabytes")}
        print(f"{case:<9} nested/flat: time {ratio['seconds']:.2f}, memory {ratio['megabytes']:.2f}")
    print("structural zeros:", *(f"{name} {value:,.2f}" for name, value in zeros().items()))


if __name__ == "__main__":
    main()
