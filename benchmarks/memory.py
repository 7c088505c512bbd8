"""The peak memory of whole releases, against what ``--dry-run`` says before anything is spent.

Tables of one, two and three features with all one-way totals exact, from three million Parquet
records, or three for each level. The peak is that of a process of its own; it must be between 0.8
and 1.0 of `needs.memory`, and at 10^7 cells at most 120 bytes a cell, unless each has a label of
its own. SEMIDP_MEMORY_CELLS says which numbers of cells are measured, 10^5, 10^6 and 10^7 unless
given. A schema file holds some 5 million levels, so that more of them are given in Python.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROWS = 3_000_000
LEAST = 0.8  # a smaller share of the estimate would refuse releases that fit
MOST_BYTES, MANY_CELLS = 120, 5 * 10**6  # bytes a cell, from so many cells on
MOST_LEVELS = 10**6  # that are declared in a file


def run() -> list[dict[str, Any]]:
    """Measure one release for each number of features and cells."""
    wanted = os.environ.get("SEMIDP_MEMORY_CELLS", "1e5,1e6,1e7").split(",")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        for text in wanted:
            for features in (1, 2, 3):
                side = round(float(text) ** (1 / features))
                rows += _compare(Path(folder), features, side)
    return rows


def _compare(folder: Path, features: int, side: int) -> list[dict[str, Any]]:
    names = "abc"[:features]
    data, schema, out = folder / "people.parquet", folder / "schema.toml", folder / "release"
    _write(data, schema, names, side)
    if side > MOST_LEVELS:
        printed, peak = _semidp(["in python", str(data), str(side), str(out)])
        needs = int(printed)
    else:
        words = ["release", str(data), "--schema", str(schema), "--table", ",".join(names)]
        words += [word for name in names if features > 1 for word in ("--exact", name)]
        words += ["--rho", "1/2", "--quiet"]
        rehearsed, _ = _semidp([*words, "--dry-run", "--format", "json"])
        needs = json.loads(rehearsed)["needs"]["memory"]
        _, peak = _semidp([*words, "--out", str(out), "--force"])
    cells = side**features
    title = f"{features}-way table of {cells:,} cells"
    share, each = peak / needs, peak / cells
    rows = [
        {
            "name": f"peak memory of a {title} / needs.memory",
            "ratio": share,
            "target": f"{LEAST} to 1",
            "ok": LEAST <= share <= 1,
        }
    ]
    if cells >= MANY_CELLS and features > 1:
        target = f"≤ {MOST_BYTES}"
        name = f"bytes a cell of a {title}"
        rows.append({"name": name, "ratio": each, "target": target, "ok": each <= MOST_BYTES})
    return rows


def _semidp(words: list[str]) -> tuple[str, int]:
    """Run a command in a process of its own; return what it prints and its peak memory."""
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    printed, _, peak = done.stdout.rpartition("\npeak ")
    return printed, int(peak)


def release_in_python(data: str, side: str, out: str) -> int:
    """Release a table of one feature whose levels are declared in Python; print what it needs."""
    from semidp import Budget, Feature, Plan, RunOptions, Schema
    from semidp import run as release
    from semidp.publish import TableRequest
    from semidp.publish.resources import estimate_resources

    feature = Feature("a", [f"a{level}" for level in range(int(side))])
    plan = Plan([TableRequest(["a"], Budget.zcdp("1/2"))], features=[feature])
    print(estimate_resources(plan, Schema([feature])).memory)
    release(plan, data, RunOptions(out=out, force=True))
    return 0


def _write(data: Path, schema: Path, names: str, side: int) -> None:
    import duckdb

    rows = max(ROWS, 3 * side)  # most levels occur
    columns = [f"'{name}' || CAST(floor(random() * {side}) AS INTEGER) AS {name}" for name in names]
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM range({rows})) TO '{data}' (FORMAT parquet)"
        )
    with schema.open("w") as file:
        for name in names:
            levels = ", ".join(f'"{name}{level}"' for level in range(side))
            file.write(f'[[feature]]\nname = "{name}"\nlevels = [{levels}]\n')


if __name__ == "__main__":
    from semidp.cli import run as command_line

    if sys.argv[1] == "in python":
        code = release_in_python(*sys.argv[2:])
    else:
        code = command_line(sys.argv[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\npeak {peak}")
    sys.exit(code)
