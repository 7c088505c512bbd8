"""A small country: states, counties and tracts of unequal numbers, one state in which nobody
lives.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, Release, RunOptions, run
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.folders import Unfinished
from semidp.publish.statistics.tables import fitting

PATHS = [
    *(("01", "01a", tract) for tract in ("01a1", "01a2", "01a3")),
    *(("01", "01b", tract) for tract in ("01b1", "01b2")),
    *(("02", county, f"{county}{tract}") for county in ("02a", "02b", "02c") for tract in (1, 2)),
    ("03", "03a", "03a1"),  # one tract: nothing below it varies
    *(("04", "04a", tract) for tract in ("04a1", "04a2")),
]
PLACES = Feature.from_paths(["state", "county", "tract"], PATHS)
FEATURES = (PLACES, Feature("sex", "fm"), Feature("age", "ymo"))


def records(n: int = 600, seed: int = 1) -> dict[str, list[str]]:
    generator = np.random.default_rng(seed)
    there = [path for path in PATHS if path[0] != "04"]
    chosen = [there[place] for place in generator.integers(0, len(there), n)]
    return {
        **{name: [path[depth] for path in chosen] for depth, name in enumerate(PLACES.names)},
        "sex": generator.choice(["f", "m"], n).tolist(),
        "age": generator.choice(["y", "m", "o"], n, p=[0.5, 0.3, 0.2]).tolist(),
    }


def run_partitioned(plan: Plan, data: Any, out: Path | str, partition: str, **how: Any) -> Release:
    """Release a plan part by part into a folder."""
    return run(plan, data, RunOptions(out=out, **how), partition=partition)


def unfinished(place: Path) -> Path:
    """Return the folder that an unfinished release at `place` has left."""
    left = Unfinished.from_notes(place)
    assert left is not None
    return left.folder


def plan(exact=("state", "sex"), **more) -> Plan:
    tables = [
        TableRequest(["tract", "sex"]),
        TableRequest(["county", "age"]),
        TableRequest(["sex", "age"]),
    ]
    return Plan([TablesRequest(tables, Budget.gdp(2))], invariants=exact, features=FEATURES, **more)


@pytest.fixture(autouse=True)
def no_report(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports take longer than releases of this size: tests that look at them ask for
    `reported`.
    """
    if "reported" not in request.fixturenames:
        monkeypatch.setattr(Release, "report_html", lambda self, title=None: "")


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part is fitted by itself, as those of large tables are, also where totals cross
    parts.
    """
    monkeypatch.setattr(fitting, "MOST_TOGETHER", 0)


@pytest.fixture
def reported() -> None:
    """The report is written as always."""


@pytest.fixture
def people() -> dict[str, list[str]]:
    return records()


@pytest.fixture
def people_file(tmp_path: Path) -> Path:
    data = records()
    file = tmp_path / "people.csv"
    with file.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(data)
        writer.writerows(zip(*data.values(), strict=True))
    return file
