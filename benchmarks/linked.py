"""Persons and households of San Diego, linked from one budget: how many zones agree, beside two
separate releases.

48,769 synthetic households in 87 zones and their 136,477 persons. The separate releases have the
same promise, exact totals and noise; nothing makes them agree. `run` compares seconds, memory and
the share of zones that agree with targets. ``python benchmarks/linked.py 1 20`` prints shares and
errors at rho = 1 over twenty draws, ``python benchmarks/linked.py quarters 1 10`` the same beside
group quarters, and ``python benchmarks/linked.py figure FILE`` draws the
picture of docs/linked.md.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import semidp as sd
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.publish.results.published_table import FitKind
from semidp.publish.statistics.tables.fitting import fitted_tables

DATA = Path(__file__).parent / "data"
PERSONS, HOMES = DATA / "sandag_persons.csv", DATA / "sandag_households.csv"
AGES = [0, 5, 18, 25, 35, 45, 55, 65, 75, 120]
TYPES = [str(number) for number in range(8)]
SIZES = np.arange(1, 11)
SECONDS, MEGABYTES = 60, 2000


def linked(rho: str, seed: int) -> sd.Release:
    """Persons by zone, sex and age, and households by zone, size, type and building; one promise
    for both.
    """
    return sd.release(
        PERSONS,
        sd.table("zone", "sex", "age"),
        sd.table("units:zone", "size", "type", "building"),
        units=HOMES,
        link="household",
        protect="member",
        most_members=10,
        derived=["type"],
        exact=[("units:zone", "units:building")],
        levels={"sex": ["1", "2"], "type": TYPES},
        bins={"age": AGES},
        adjacency="exchange",
        rho=rho,
        randomness=SeededRandomness(seed),
    )


def with_quarters(rho: str, seed: int) -> sd.Release:
    """The same households beside group quarters, which are in no table of households."""
    return sd.release(
        PERSONS,
        sd.table("zone", "unittype", "sex", "age"),
        sd.table("units:zone", "size", "type", "building"),
        units=HOMES,
        link="household",
        protect="member",
        least=0,
        most_members=10,
        quarters={"unittype": ["1"]},
        derived=["type"],
        exact=[("units:zone", "units:building")],
        levels={"sex": ["1", "2"], "type": TYPES, "unittype": ["0", "1"]},
        bins={"age": AGES},
        adjacency="exchange",
        rho=rho,
        randomness=SeededRandomness(seed),
    )


def quarters(rho: str, draws: int) -> dict[str, Any]:
    """How many zones agree beside quarters, and how far estimates are off."""
    truth = with_quarters("1e9", 0)
    names = ("zone-unittype-sex-age", "units:zone-size-type-building")
    exact = [truth[name].counts for name in names]
    agree, squares = 0.0, np.zeros((draws, 3))
    for seed in range(draws):
        release = with_quarters(rho, seed)
        persons, homes = (release[name] for name in names)
        counted = homes.counts.sum(axis=(2, 3)) @ np.arange(11)
        agree += float((counted == persons.counts[:, 0].sum(axis=(1, 2))).mean()) / draws
        inside = (persons.estimate - exact[0])[:, 1].sum(axis=(1, 2))
        squares[seed] = [
            ((persons.estimate - exact[0]) ** 2).mean(),
            ((homes.estimate - exact[1]) ** 2).mean(),
            (inside**2).mean(),
        ]
    errors = np.sqrt(squares.mean(axis=0)).tolist()
    return {
        "agree": agree,
        "errors": dict(
            zip(("persons", "households", "in quarters of a zone"), errors, strict=True)
        ),
    }


def apart(release: sd.Release, truth: sd.Release, seed: int) -> tuple[Any, Any]:
    """The same tables with as much noise for each kind, each fitted by itself."""
    linked_result: Any = release.results[0]
    mechanism = linked_result.mechanism
    tables = []
    for number, (part, values) in enumerate(zip(mechanism.parts, _residuals(truth), strict=True)):
        measured = part.measure(values, SeededRandomness(1000 + 2 * seed + number))
        tables += fitted_tables(
            part, measured.make_projected_draw, ["table"], [FitKind.integer], silent
        )
    return tables[0], tables[1]


def _residuals(truth: sd.Release) -> tuple[np.ndarray, np.ndarray]:
    """The residuals of the data, which are synthetic and public, from a release with hardly any
    noise.
    """
    result: Any = truth.results[0]
    spaces = result.mechanism.space.kinds
    tables = (result.members, result.units)
    vectors = []
    for space, of_kind in zip(spaces, tables, strict=True):
        vectors.append(space.measure([sd.Table(table.schema, table.counts) for table in of_kind]))
    return vectors[0], vectors[1]


def gap(persons: Any, homes: Any) -> np.ndarray:
    """Sizes times households less persons, for every zone."""
    return np.asarray(homes.counts.sum(axis=(2, 3)) @ SIZES - persons.counts.sum(axis=(1, 2)))


def shares(rho: str, draws: int) -> dict[str, Any]:
    """How many zones agree and how far estimates are off, linked and apart."""
    truth = linked("1e9", 0)
    exact = (truth["zone-sex-age"].counts, truth["units:zone-size-type-building"].counts)
    agree = {"linked": 0.0, "apart": 0.0}
    squares: dict[str, list[float]] = {}
    for seed in range(draws):
        release = linked(rho, seed)
        ways = {"linked": (release["zone-sex-age"], release["units:zone-size-type-building"])}
        ways["apart"] = apart(release, truth, seed)
        for way, tables in ways.items():
            agree[way] += float((gap(*tables) == 0).mean()) / draws
            for kind, table, counts in zip(("persons", "households"), tables, exact, strict=True):
                squares.setdefault(f"{kind}, {way}", []).append(
                    float(((table.estimate - counts) ** 2).mean())
                )
                by_zone = (table.estimate - counts).reshape(len(counts), -1).sum(axis=1)
                squares.setdefault(f"{kind} of a zone, {way}", []).append(
                    float((by_zone**2).mean())
                )
                whole = (table.counts - counts).reshape(len(counts), -1).sum(axis=1)
                squares.setdefault(f"whole {kind} of a zone, {way}", []).append(
                    float((whole**2).mean())
                )
    return {
        "agree": agree,
        "errors": {name: float(np.sqrt(np.mean(some))) for name, some in squares.items()},
    }


def draw(path: str) -> None:
    """Draw the gap of every zone, linked and apart."""
    import matplotlib.pyplot as plt

    truth, release = linked("1e9", 0), linked("1", 1)
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.bar(
        np.arange(87),
        gap(*apart(release, truth, 1)),
        color="#999999",
        label="two releases, same noise",
    )
    both = gap(release["zone-sex-age"], release["units:zone-size-type-building"])
    axes.plot(np.arange(87), both, color="#0b5394", linewidth=2, label="linked")
    axes.set_xlabel("zone")
    axes.set_ylabel("sizes × households − persons")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def measured() -> dict[str, float]:
    """Seconds and memory of one release, in a process of its own."""
    start = time.perf_counter()
    release = linked("1", 1)
    seconds = time.perf_counter() - start
    plain: Any = release.results[0]
    with_quarter: Any = with_quarters("1", 1).results[0]
    agreeing, places = plain.agreeing
    beside, zones = with_quarter.agreeing
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return {
        "seconds": seconds,
        "megabytes": peak / 1024,
        "agree": agreeing / places,
        "quarters": beside / zones,
    }


def run() -> list[dict[str, Any]]:
    """Compare the release with its targets."""
    command = [sys.executable, __file__]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = []
    for name, target in (("seconds", SECONDS), ("megabytes", MEGABYTES)):
        ok = found[name] <= target
        rows.append(
            {
                "name": f"87 zones linked: {name}",
                "ratio": found[name],
                "target": f"≤ {target}",
                "ok": ok,
            }
        )
    for name, key in (("share that agrees", "agree"), ("the same beside quarters", "quarters")):
        rows.append(
            {
                "name": f"87 zones linked: {name}",
                "ratio": found[key],
                "target": "≥ 1",
                "ok": found[key] >= 1,
            }
        )
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "figure":
        draw(sys.argv[2])
    elif len(sys.argv) > 3 and sys.argv[1] == "quarters":
        print(json.dumps(quarters(sys.argv[2], int(sys.argv[3])), indent=2))
    elif len(sys.argv) > 2:
        print(json.dumps(shares(sys.argv[1], int(sys.argv[2])), indent=2))
    else:
        print(json.dumps(measured()))
