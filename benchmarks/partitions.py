"""Releases part by part: two worker processes against one, Spark against worker processes, and a
small state.

Geography and people are sampled down the hierarchy: states, counties, tracts, blocks, each with a
share of its parent's people. Every side is timed in a process of its own; Spark runs as a
standalone cluster of a master and two workers, in the environment of the services tests, and its
start is not counted. SEMIDP_PARTS (default 48) says how many parts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SERVICES = HERE.parent / ".venv-services" / "bin" / "python"
PARTS = int(os.environ.get("SEMIDP_PARTS", "48"))
BLOCKS, CELLS, PEOPLE = 4_000, 252, 3_000_000
SPEEDUP, LEAST_WORK, SPARK = 1.6, 60.0, 3.0
SMALL_STATE = {"blocks": 50_000, "people": 577_000, "bytes": 8 * 10**9}


def run() -> list[dict[str, Any]]:
    """Time one and two workers and Spark on the same plan, and one small state of the 2020 Census's
    size.
    """
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        root = Path(folder)
        people(root / "nation.parquet", PARTS, BLOCKS, PEOPLE)
        one = _child(sys.executable, "parts", root, "1")
        two = _child(sys.executable, "parts", root, "2")
        ratio = one["parts"] / two["parts"]
        rows.append(
            _least(f"two workers against one, {PARTS * BLOCKS * CELLS:,} cells", ratio, SPEEDUP)
        )
        rows.append(_least("seconds of work of one worker / 60 s", one["parts"] / LEAST_WORK, 1.0))
        rows.append(_spark(root, two))
        (root / "nation.parquet").unlink()
        people(root / "nation.parquet", 2, SMALL_STATE["blocks"], 2 * SMALL_STATE["people"])
        state = _child(sys.executable, "parts", root, "1")
        cells = 2 * SMALL_STATE["blocks"] * CELLS
        print(
            f"             two states of 50,000 blocks: {cells:,} cells, {state['parts']:.0f} s",
            flush=True,
        )
        memory = state["memory"] / SMALL_STATE["bytes"]
        rows.append(
            {
                "name": "peak memory of a state of 50,000 blocks / 8 GB",
                "ratio": memory,
                "target": "≤ 1",
                "ok": memory <= 1,
            }
        )
    return rows


def _spark(root: Path, two: dict[str, float]) -> dict[str, Any]:
    name = "Spark, two executors / two worker processes"
    if not SERVICES.exists():
        print(
            "             Spark is not installed: run tests/services/run --install first",
            flush=True,
        )
        return {
            "name": f"{name} (not installed)",
            "ratio": float("nan"),
            "target": f"≤ {SPARK}",
            "ok": False,
        }
    with _cluster(root) as address:
        found = _child(str(SERVICES), "parts", root, address)
    ratio = found["parts"] / two["parts"]
    return {"name": name, "ratio": ratio, "target": f"≤ {SPARK}", "ok": ratio <= SPARK}


def _least(name: str, ratio: float, target: float) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": f"≥ {target}", "ok": ratio >= target}


class _cluster:
    """A master and two workers, as processes of their own."""

    def __init__(self, root: Path) -> None:
        self.root, self.processes = root, list[subprocess.Popen[bytes]]()

    def __enter__(self) -> str:
        import socket

        found = subprocess.run(
            [SERVICES, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(SERVICES),
            "SPARK_HOME": found,
        }
        spark = f"{found}/bin/spark-class"
        deploy, address = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
        self._start(
            spark,
            f"{deploy}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
        time.sleep(5)
        for number in range(2):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "4g", "--webui-port", "0")
            self._start(
                spark,
                f"{deploy}.worker.Worker",
                *words,
                "--work-dir",
                str(self.root / f"w{number}"),
                address,
            )
        time.sleep(10)
        return address

    def _start(self, *words: str) -> None:
        with (self.root / f"spark-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
            )

    def __exit__(self, *_: object) -> None:
        import signal

        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def people(file: Path, states: int, blocks: int, count: int) -> None:
    """Sample people down a hierarchy: the shares of parents, then of children, then each person's
    attributes.
    """
    import duckdb
    import numpy as np

    generator = np.random.default_rng(20)
    shares = np.repeat(generator.dirichlet(np.full(states, 20.0)), blocks)
    within = np.concatenate([generator.dirichlet(np.full(blocks, 0.5)) for _ in range(states)])
    numbers = generator.multinomial(count - states * blocks, shares * within) + 1
    place = np.repeat(np.arange(states * blocks), numbers)
    columns = {
        "block": place,
        "voting": generator.random(count) < 0.78,
        "ethnicity": generator.random(count) < 0.19,
        "race": np.minimum(generator.geometric(0.5, count) - 1, 62),
    }
    state, own = f"lpad(CAST(block // {blocks} AS VARCHAR), 2, '0')", f"block % {blocks}"
    county, last = (
        f"lpad(CAST({own} {over} AS VARCHAR), {width}, '0')"
        for over, width in (("// 400", 3), ("", 6))
    )
    texts = ", ".join(
        f"CAST({name} AS VARCHAR) AS {name}" for name in ("voting", "ethnicity", "race")
    )
    with duckdb.connect() as connection:
        connection.register("people", columns)
        connection.execute(
            f"COPY (SELECT {state} AS state, {state} || {county} AS county, {state} || {last} AS"
            f" block, {texts} FROM people) TO '{file}' (FORMAT parquet)"
        )


def _child(python: str, what: str, root: Path, *words: str) -> dict[str, float]:
    done = subprocess.run(
        [python, __file__, what, str(root), *words], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def parts(root: str, how: str) -> dict[str, float]:
    """Release block by voting age by ethnicity by race, and a table of counties, under exact
    states; time the parts.
    """
    import resource
    import shutil

    from semidp import Budget, Feature, Plan, RunOptions, open_source, run
    from semidp.promise.schema.features import Nest
    from semidp.publish import TableRequest, TablesRequest
    from semidp.publish.sources.opening import one_thread

    tables = [
        TableRequest(["block", "voting", "ethnicity", "race"]),
        TableRequest(["county", "voting", "race"]),
    ]
    truth = ("false", "true")
    levels = [
        Feature("voting", truth),
        Feature("ethnicity", truth),
        Feature("race", [str(n) for n in range(63)]),
    ]
    plan = Plan(
        [TablesRequest(tables, Budget.zcdp(1))],
        invariants=["block"],
        features=levels,
        nests=[Nest(("state", "county", "block"))],
    )
    times: dict[str, float] = {}

    def progress(what: str, done: int, total: int | None) -> None:
        if what == "carrying out the parts":
            times.setdefault("begun", time.perf_counter())
            times["ended"] = time.perf_counter()

    file, out = f"{root}/nation.parquet", Path(root) / "out"
    spark = how.startswith("spark://")
    if not spark:
        one_thread()
    with open_source(how, table=file) if spark else open_source(file) as source:
        if spark:
            frame = source.spark_frame()
            frame.groupBy("state").applyInArrow(_warm, "n long").collect()
        options = RunOptions(out=out, jobs=1 if spark else int(how), progress=progress)
        run(plan, source, options, partition="state")
    shutil.rmtree(out)
    usage = [
        resource.getrusage(who).ru_maxrss * 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {"parts": times["ended"] - times["begun"], "memory": max(usage)}


def _warm(table: Any) -> Any:
    """Import on an executor what a part needs."""
    import pyarrow

    import semidp.publish.runners  # noqa: F401

    return pyarrow.table({"n": [table.num_rows]})


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    print(json.dumps({"parts": parts}[what](*words)))
