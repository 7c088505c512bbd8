"""Releases part by part on a real standalone cluster: the numbers of one process, also when an
executor is killed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from semidp import Ledger, Release

pytestmark = pytest.mark.services
ENV = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # what the executors run
WORDS = (
    *(
        "--nest",
        "state,county,tract",
        "--table",
        "tract,sex,age",
        "--table",
        "county,age",
        "--invariant",
        "tract",
    ),
    *(
        "--invariant",
        "sex",
        "--levels",
        "age=y,m,o",
        "--rho",
        "1",
        "--partition",
        "state",
        "--quiet",
    ),
)


@pytest.fixture(scope="module")
def cluster() -> str:
    address = os.environ.get("SEMIDP_TEST_SPARK")
    if not address:
        pytest.fail("no Spark cluster was found for this test: run tests/services/run")
    return address


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow
    import pyarrow.parquet

    generator = np.random.default_rng(3)
    paths = [
        (f"{s:02}", f"{s:02}{c}", f"{s:02}{c}{t:02}")
        for s in range(12)
        for c in range(4)
        for t in range(20)
    ]
    chosen = [paths[place] for place in generator.integers(0, len(paths), 40_000)]
    columns = dict(
        zip(("state", "county", "tract"), map(list, zip(*chosen, strict=True)), strict=True)
    )
    columns |= {
        "sex": generator.choice(["f", "m"], 40_000),
        "age": generator.choice(["y", "m", "o"], 40_000),
    }
    file = tmp_path_factory.mktemp("people") / "people.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file


def done(*words: str | Path) -> None:
    found = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, timeout=900, env=ENV
    )
    assert found.returncode == 0, found.stderr


def numbers(folder: Path) -> dict[str, list[object]]:
    release = Release.load(folder)
    assert release.partition is not None
    found = {
        f"{part.folder}/{name}": table
        for part in release.partition.parts
        for name, table in release.part(*part.path).items()
    }
    found |= {table.name: table for result in release.results for table in result.held_tables()}
    return {key: [table.counts.tolist(), table.estimate.tolist()] for key, table in found.items()}


def executors() -> list[int]:
    """The processes of executors: children of the cluster's workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    return found


def test_a_killed_executor_changes_no_number_and_nothing_is_charged_twice(
    cluster: str, people: Path, tmp_path: Path
) -> None:
    done("-m", "semidp", "release", people, *WORDS, "--seed", "7", "--out", tmp_path / "one")
    ledger = tmp_path / "ledger.json"
    done("-m", "semidp", "ledger", ledger, "--rho", "5")
    words = (
        "--from",
        people,
        *WORDS,
        "--seed",
        "7",
        "--ledger",
        ledger,
        "--out",
        tmp_path / "many",
    )
    command = [sys.executable, "-m", "semidp", "release", cluster, *map(str, words)]
    deadline, killed = time.monotonic() + 600, 0
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(command, stdout=said, stderr=said, env=ENV) as many,
    ):
        while many.poll() is None and time.monotonic() < deadline:
            ready = list(tmp_path.glob(".semidp-many.unfinished-*/state=*"))
            running = executors()
            if ready and not killed and len(ready) < 12 and running:
                os.kill(running[0], signal.SIGKILL)
                killed = 1
            time.sleep(0.02)
    assert many.returncode == 0, (tmp_path / "said").read_text()
    assert killed, "every part was done before an executor could be killed"
    found = numbers(tmp_path / "many")
    assert len(found) == 12 * 2 + 2
    assert found == numbers(tmp_path / "one")
    assert len(Ledger(ledger).account().charges) == 1


SESSION = """
import sys
from pyspark.sql import SparkSession
from semidp import Budget, Feature, Plan, RunOptions, run
from semidp.publish import TableRequest
from semidp.promise import SeededRandomness

people, root = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = session.read.parquet(people)
rows = frame.select("state", "county", "tract").distinct().collect()
places = Feature.from_paths(["state", "county", "tract"], sorted(tuple(row) for row in rows))
plan = Plan([TableRequest(["tract", "sex"], Budget.gdp(1))], ["state"], [places, Feature("sex", "fm")])
run(plan, frame, RunOptions(out=f"{root}/spark", randomness=SeededRandomness(1)), partition="state")
run(plan, people, RunOptions(out=f"{root}/here", randomness=SeededRandomness(1)), partition="state")
session.stop()
"""


def test_a_data_frame_of_a_session_that_is_given_in_python(people: Path, tmp_path: Path) -> None:
    """It is read where it is, and the executors of its session carry out the parts."""
    (tmp_path / "session.py").write_text(SESSION)
    done(tmp_path / "session.py", people, tmp_path)
    found = numbers(tmp_path / "spark")
    assert len(found) == 12 + 1
    assert found == numbers(tmp_path / "here")
