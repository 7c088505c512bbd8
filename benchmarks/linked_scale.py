"""Three million persons in 1.2 million households over state, county and tract, beside the persons
alone.

Persons by place, sex and age, and households by place, size and tenure, each in states, counties
and 5,000 tracts: six linked tables from two CSV files. The persons alone are the same three tables
from one file that has their places too. Each is measured in a process of its own, by the seconds of
processor time and the peak of its memory.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HOUSEHOLDS, TRACTS, COUNTIES, STATES = 1_200_000, 5_000, 250, 10
PLACES = ("state", "county", "tract")
AGES = [0, 18, 35, 65, 120]
MOST = 8
TIMES = 2  # of the persons alone


def write(folder: Path) -> None:
    """Write persons, households, and persons with their places."""
    import pandas

    random = np.random.default_rng(1)
    tract = random.integers(0, TRACTS, HOUSEHOLDS)
    county = tract // (TRACTS // COUNTIES)
    state = county // (COUNTIES // STATES)
    places = {}
    for name, number, many in zip(
        PLACES, (state, county, tract), (STATES, COUNTIES, TRACTS), strict=True
    ):
        labels = np.array([f"{name[0]}{label:04d}" for label in range(many)])
        places[name] = labels[number]
    sizes = np.minimum(random.poisson(1.5, HOUSEHOLDS) + 1, MOST)
    homes = np.arange(HOUSEHOLDS)
    tenure = random.choice(["own", "rent"], HOUSEHOLDS)
    who = random.permutation(np.repeat(homes, sizes))
    sexes, ages = random.choice(["f", "m"], len(who)), random.integers(0, 90, len(who))
    persons = pandas.DataFrame({"household": who, "sex": sexes, "age": ages})
    placed = {name: labels[who] for name, labels in places.items()}
    persons.to_csv(folder / "persons.csv", index=False)
    persons.assign(**placed).to_csv(folder / "alone.csv", index=False)
    households = pandas.DataFrame({"household": homes, **places, "tenure": tenure})
    households.to_csv(folder / "homes.csv", index=False)


def release(what: str, folder: Path) -> None:
    """Release the persons, alone or linked to their households."""
    import semidp as sd

    members = [sd.table(place, "sex", "age") for place in PLACES]
    common: dict[str, Any] = {
        "levels": {"sex": ["f", "m"]},
        "bins": {"age": AGES},
        "nest": PLACES,
        "adjacency": "exchange",
        "rho": 1,
    }
    if what == "alone":
        sd.release(folder / "alone.csv", *members, exact=["state"], levels_from_data=True, **common)
        return
    units = [sd.table(f"units:{place}", "size", "tenure") for place in PLACES]
    linked = sd.release(
        folder / "persons.csv",
        *members,
        *units,
        units=folder / "homes.csv",
        link="household",
        protect="member",
        most_members=MOST,
        exact=["state", ("units:tract", "units:tenure")],
        **common,
    )
    agreeing, places = linked.results[0].agreeing
    assert agreeing == places == TRACTS


def measured(what: str, folder: Path) -> dict[str, float]:
    """Seconds of processor time and megabytes of one release, in this process."""
    begun = time.process_time()
    release(what, folder)
    seconds = time.process_time() - begun
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return {"seconds": seconds, "megabytes": peak / 1024}


def both() -> dict[str, dict[str, float]]:
    """Both releases, each in a process of its own."""
    sides = {}
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        write(Path(folder))
        for what in ("alone", "linked"):
            words = [sys.executable, __file__, what, folder]
            answer = subprocess.run(words, check=True, capture_output=True, text=True)
            sides[what] = json.loads(answer.stdout)
    return sides


def run() -> list[dict[str, Any]]:
    """Compare linked persons and households with the persons alone."""
    sides = both()
    rows = []
    for name in ("seconds", "megabytes"):
        ratio = sides["linked"][name] / sides["alone"][name]
        row = {"name": f"3 million persons linked / alone: {name}", "ratio": ratio}
        rows.append({**row, "target": f"≤ {TIMES}", "ok": ratio <= TIMES})
    return rows


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]))))
    else:
        print(json.dumps(both(), indent=2))
