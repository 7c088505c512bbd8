"""Products of many tables: a hundred features by all pairs, a census down a ragged geography,
records against mbi.

Each case runs in a process of its own, so that peak memory is its own. Times of the wide case are
shares of what they may take (10 s to plan, 10 s of one core to read, 120 s for the whole release, 4
GB); the census compares the time of the processor a cell at two sizes; mbi, in the interpreter
named by SEMIDP_PEERS_PYTHON, gets the measurements of ours.
"""

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from semidp import Budget, Feature, Plan, Release
from semidp import run as release
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import Schema
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import calibrate
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.tables.request import list_all_tables

FEATURES, LEVELS, EXACT, RECORDS = 100, 10, 10, 1_000_000
PLAN_SECONDS, READ_SECONDS, RELEASE_SECONDS, GIGABYTES = 10, 10, 120, 4
TRACTS = (1_000, 10_000)
GROWTH = 1.5

MBI = """
import json, sys
import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)
from mbi import Domain, LinearMeasurement, estimation

given = json.loads(sys.stdin.read())
domain = Domain(given["names"], given["shape"])
measured = [
    LinearMeasurement(np.array(part["values"]), tuple(part["features"]), stddev=part["stddev"])
    for part in given["measurements"]
]
model = estimation.MirrorDescent().estimate(domain, measured, known_total=given["n"], iters=given["iterations"])
# Its records are drawn at random, and one file may have every total by chance: the mean of ten.
draws = 10
missed = 0
for _ in range(draws):
    rows = model.synthetic_data(given["n"])
    for part in given["exact"]:
        counts = rows.project(tuple(part["features"])).datavector()
        missed += float(np.abs(np.asarray(counts) - np.array(part["values"])).sum())
print(json.dumps(missed / draws))
"""


def run() -> list[dict[str, Any]]:
    """Run every case in a process of its own."""
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        wide = _alone("wide", folder)
        small, large = (_alone("census", folder, str(tracts)) for tracts in TRACTS)
        rows = [
            _share(
                f"all pairs of {FEATURES} features: seconds to plan", wide["plan"], PLAN_SECONDS
            ),
            _share(
                "all pairs of 10^6 records: seconds of one core to read", wide["read"], READ_SECONDS
            ),
            _share(
                "all pairs of 10^6 records: seconds of the whole release",
                wide["release"],
                RELEASE_SECONDS,
            ),
            _share(
                "all pairs of 10^6 records: gigabytes at the peak", wide["gigabytes"], GIGABYTES
            ),
        ]
        growth = (large["seconds"] / large["cells"]) / (small["seconds"] / small["cells"])
        name = (
            f"census, {int(large['cells']):,} cells: time a cell over that of"
            f" {int(small['cells']):,}"
        )
        rows.append(
            {"name": name, "ratio": growth, "target": f"≤ {GROWTH}", "ok": growth <= GROWTH}
        )
        return [*rows, *records_against_mbi()]


def wide(folder: Path) -> dict[str, float]:
    """Release all pairs of many features from a Parquet file, ten one-way totals exact, report and
    files included.
    """
    names = [f"q{number}" for number in range(FEATURES)]
    file = folder / "wide.parquet"
    columns = [
        f"CAST(CAST(floor(random() * {LEVELS}) AS INTEGER) AS VARCHAR) AS {name}" for name in names
    ]
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM range({RECORDS})) TO '{file}' (FORMAT parquet)"
        )
    features = [Feature(name, [str(level) for level in range(LEVELS)]) for name in names]
    product = TablesRequest(list_all_tables(names), Budget.gdp(1))
    plan = Plan([product], invariants=names[:EXACT], features=features)
    started = time.process_time()
    with open_source(file) as source:
        source.tables([Schema(pair) for pair in itertools.combinations(features, 2)])
    read = time.process_time() - started
    started = time.perf_counter()
    with open_source(file) as source:
        done = release(plan, source)
    done.save(folder / "wide")
    seconds = time.perf_counter() - started
    assert all(table.keeps(done.scope.dataspace) for table in done.tables)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    started = time.perf_counter()
    calibrate(plan, done.scope)
    return {
        "plan": time.perf_counter() - started,
        "read": read,
        "release": seconds,
        "gigabytes": peak,
    }


def places(tracts: int) -> list[tuple[str, str, str]]:
    """A ragged geography: states of very different size, counties of one tract to many."""
    rng = np.random.default_rng(0)
    state = np.sort(rng.choice(51, size=tracts, p=rng.dirichlet(np.ones(51) * 0.7)))
    county = np.concatenate(
        [np.sort(rng.zipf(1.6, size=int(count)) % 97) for count in np.bincount(state) if count]
    )
    return [
        (f"{s:02d}", f"{s:02d}{c:03d}", f"{s:02d}{c:03d}{t:06d}")
        for t, (s, c) in enumerate(zip(state, county, strict=True))
    ]


def census(tracts: int) -> dict[str, float]:
    """Release a product like the 2020 Census's: nation to tract by sex, age and race, the states'
    totals exact.
    """
    rng = np.random.default_rng(1)
    geography = places(tracts)
    n = 40 * tracts
    home = rng.choice(tracts, size=n, p=rng.dirichlet(np.ones(tracts)))
    columns = {
        name: np.array([path[i] for path in geography])
        for i, name in enumerate(("state", "county", "tract"))
    }
    sexes, ages, races = (
        ["f", "m"],
        [str(age) for age in range(0, 90, 10)],
        ["a", "b", "c", "d", "e", "f"],
    )
    data = {name: values[home] for name, values in columns.items()}
    data |= {
        "sex": rng.choice(sexes, size=n),
        "age": rng.choice(ages, size=n),
        "race": rng.choice(races, size=n),
    }
    tables = [
        ["sex", "age", "race"],
        ["state", "sex", "age", "race"],
        ["county", "sex", "age", "race"],
        ["tract", "sex", "age", "race"],
    ]
    product = TablesRequest([TableRequest(names) for names in tables], Budget.zcdp("1/2"))
    features = [
        Feature.from_paths(["state", "county", "tract"], geography),
        Feature("sex", sexes),
        Feature("age", ages),
        Feature("race", races),
    ]
    started = time.process_time()
    done = release(Plan([product], invariants=["state"], features=features), data)
    seconds = time.process_time() - started
    assert all(table.keeps(done.scope.dataspace) for table in done.tables)
    return {"seconds": seconds, "cells": float(sum(table.counts.size for table in done.tables))}


def records_against_mbi(n: int = 2_000) -> list[dict[str, Any]]:
    """Give mbi our noisy tables, and the exact totals as measurements without noise: how many
    records miss them.
    """
    python = os.environ.get("SEMIDP_PEERS_PYTHON")
    shape = {"sex": 2, "age": 5, "region": 7, "job": 4}
    rng = np.random.default_rng(4)
    data = {
        name: [str(level) for level in rng.choice(size, size=n)] for name, size in shape.items()
    }
    features = [
        Feature(name, [str(level) for level in range(size)]) for name, size in shape.items()
    ]
    names = list(shape)
    plan = Plan(
        [
            TablesRequest(
                [TableRequest(names[place : place + 2]) for place in range(3)], Budget.gdp(1)
            )
        ],
        invariants=["sex", "age"],
        features=features,
    )
    done = release(plan, data, SeededRandomness(1))
    exact = [
        {"features": list(margin.names), "values": total.counts.tolist()}
        for margin, total in zip(
            done.scope.dataspace.margins, done.scope.dataspace.totals, strict=True
        )
    ]
    measurements = [
        {
            "features": list(table.schema.names),
            "values": table.estimate.ravel().tolist(),
            "stddev": float(max(table.standard_errors.mean(), 1e-3)),
        }
        for table in done.tables
    ]
    sure = [{**part, "stddev": 1e-3} for part in exact]
    given = {
        "names": names,
        "shape": list(shape.values()),
        "n": n,
        "iterations": 500,
        "exact": exact,
    }
    ours = _missed(done, exact)
    rows = [
        {
            "name": "our records that miss the exact totals",
            "ratio": ours,
            "target": "≤ 0",
            "ok": ours == 0,
        }
    ]
    name = "mbi: records that miss the exact totals"
    done_peer = python and subprocess.run(
        [python, "-c", MBI],
        input=json.dumps({**given, "measurements": [*measurements, *sure]}),
        capture_output=True,
        text=True,
        check=False,
    )
    if not done_peer or done_peer.returncode:
        return [
            *rows,
            {
                "name": f"{name}: not measured, mbi did not run",
                "ratio": 0.0,
                "target": "> 0",
                "ok": False,
            },
        ]
    missed = float(json.loads(done_peer.stdout)) / 2
    return [*rows, {"name": name, "ratio": missed, "target": "> 0", "ok": missed > 0}]


def _missed(done: Release, exact: list[dict[str, Any]]) -> float:
    """Write synthetic records of a release and count how many miss its exact totals."""
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        file = Path(folder) / "people.csv"
        done.save_records(file, randomness=SeededRandomness(2))
        with open_source(file) as source:
            found = source.tables(
                [done.scope.dataspace.schema.restrict(part["features"]) for part in exact]
            )
    pairs = zip(found, exact, strict=True)
    return (
        float(sum(np.abs(table.counts - np.array(part["values"])).sum() for table, part in pairs))
        / 2
    )


def _share(name: str, value: float, most: float) -> dict[str, Any]:
    return {"name": f"{name} / {most}", "ratio": value / most, "target": "≤ 1", "ok": value <= most}


def _alone(case: str, folder: str, *words: str) -> dict[str, float]:
    command = [sys.executable, __file__, case, folder, *words]
    return dict(
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


if __name__ == "__main__":
    case, folder, *words = sys.argv[1:]
    print(json.dumps(wide(Path(folder)) if case == "wide" else census(int(words[0]))))
