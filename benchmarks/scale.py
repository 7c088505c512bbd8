"""Whole releases of many cells from Parquet records, against what DuckDB and numpy need to read and
write as much.

The other side groups the records, writes a Parquet file with the same columns and sums the margins
once. Ours counts everything: reading, a(t), calibration, exact noise, the fit, the report, every
file. SEMIDP_SCALE_CELLS says which numbers of cells are measured, 10^7 unless given; memory is
measured in `memory`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS = 3_000_000
TIMES = 3  # what a release may take, in times of the other side
GROWTH = 1.5  # and by how much its time a cell may grow from 10^7 to 10^8


def run() -> list[dict[str, Any]]:
    """Time both sides once for each number of cells, theirs first."""
    wanted = [int(float(cells)) for cells in os.environ.get("SEMIDP_SCALE_CELLS", "1e7").split(",")]
    rows, seconds = [], {}
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        for cells in wanted:
            side = round(cells ** (1 / 3))
            file = Path(folder) / f"people-{side}.parquet"
            _write(file, side)
            theirs = _child("theirs", file, side, Path(folder))
            ours = _child("ours", file, side, Path(folder))
            seconds[cells] = ours["seconds"] / side**3
            rows.append(
                _row(f"release of {side**3:,} cells / group-by, write and sums", ours, theirs)
            )
    if len(seconds) > 1:
        ratio = seconds[max(seconds)] / seconds[min(seconds)]
        name = f"time a cell, {max(seconds):,} / {min(seconds):,} cells"
        rows.append({"name": name, "ratio": ratio, "target": f"≤ {GROWTH}", "ok": ratio <= GROWTH})
    return rows


def _row(name: str, ours: dict[str, float], theirs: dict[str, float]) -> dict[str, Any]:
    ratio = ours["seconds"] / theirs["seconds"]
    return {"name": name, "ratio": ratio, "target": f"≤ {TIMES}", "ok": ratio <= TIMES}


def _child(what: str, file: Path, side: int, folder: Path) -> dict[str, float]:
    """Measure one side in a process of its own."""
    words = [sys.executable, __file__, what, str(file), str(side), str(folder / f"{what}-{side}")]
    found: dict[str, float] = json.loads(
        subprocess.run(words, check=True, capture_output=True, text=True).stdout
    )
    return found


def ours(file: str, side: str, out: str) -> float:
    """Release a table with three one-way totals, and write it."""
    from semidp import Budget, Margin, Plan
    from semidp import run as release
    from semidp.publish import TableRequest

    names = ("a", "b", "c")
    plan = Plan([TableRequest(names, Budget.zcdp("1/2"))], [Margin(name) for name in names])
    started = time.perf_counter()
    release(plan, file).save(out)
    return time.perf_counter() - started


def theirs(file: str, side: str, out: str) -> float:
    """Group the records, write a table of as many cells with the same columns, and sum its margins
    once.
    """
    import duckdb
    import numpy as np

    n = int(side)
    generator = np.random.default_rng(1)
    counts, estimates = generator.integers(0, 5, n**3), generator.normal(size=n**3)
    cells = {
        "number": np.arange(n**3),
        "count": counts,
        "estimate": estimates,
        "error": np.ones(n**3),
    }
    started = time.perf_counter()
    with duckdb.connect() as connection:
        grouped = f"SELECT a, b, c, count(*) AS n FROM read_parquet('{file}') GROUP BY ALL"
        connection.execute(f"CREATE TABLE grouped AS {grouped}")
        connection.register("cells", cells)
        labels = ", ".join(
            f"'{name}' || CAST(number // {n**power} % {n} AS VARCHAR) AS {name}"
            for name, power in zip("abc", (2, 1, 0), strict=True)
        )
        connection.execute(
            f"COPY (SELECT {labels}, count, estimate, error FROM cells) TO '{out}' (FORMAT parquet)"
        )
    cube = counts.reshape(n, n, n)
    for axes in ((1, 2), (0, 2), (0, 1)):
        cube.sum(axis=axes)
    return time.perf_counter() - started


def _write(file: Path, side: int) -> None:
    import duckdb

    columns = [f"'{name}' || CAST(floor(random() * {side}) AS INTEGER) AS {name}" for name in "abc"]
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM range({ROWS})) TO '{file}' (FORMAT parquet)"
        )


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    elapsed = {"ours": ours, "theirs": theirs}[what](*words)
    print(json.dumps({"seconds": elapsed}))
