"""A whole release of ten million Parquet records, against DuckDB's bare group-by in the same run.

Everything counts as ours: reading, a(t), calibration, exact noise, the fit, the report and the
files. It may take three times the group-by and three seconds on top; the ratio is our time over
that.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from semidp import Budget, Margin, Plan
from semidp import run as release
from semidp.publish import TableRequest

TIMES, SECONDS = 3, 3
LEVELS = {"sex": 2, "region": 16, "status": 6}
CASES = {
    "one-way totals": [["sex"], ["region"], ["status"]],
    "joint totals": [["sex", "region"], ["status"]],
}


def run(records: int = 10_000_000) -> list[dict[str, Any]]:
    """Time both sides once, theirs first."""
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        file = Path(folder) / "people.parquet"
        _write(file, records)
        return [
            _compare(name, file, invariants, Path(folder)) for name, invariants in CASES.items()
        ]


def _compare(name: str, file: Path, invariants: list[list[str]], folder: Path) -> dict[str, Any]:
    by = ", ".join(LEVELS)
    started = time.perf_counter()
    with duckdb.connect() as connection:
        connection.execute(
            f"SELECT {by}, count(*) FROM read_parquet('{file}') GROUP BY {by}"
        ).fetchall()
    theirs = time.perf_counter() - started
    plan = Plan(
        [TableRequest(tuple(LEVELS), Budget.zcdp("1/2"))], [Margin(*names) for names in invariants]
    )
    out = folder / name
    started = time.perf_counter()
    done = release(plan, file)
    done.save(out)
    ours = time.perf_counter() - started
    ratio = ours / (TIMES * theirs + SECONDS)
    return {
        "name": f"release of 10^7 records, {name}: time / ({TIMES} group-bys + {SECONDS} s)",
        "ratio": ratio,
        "target": "≤ 1",
        "ok": ratio <= 1,
    }


def _write(file: Path, records: int) -> None:
    columns = [
        f"'{name} ' || CAST(floor(random() * {n}) AS INTEGER) AS {name}"
        for name, n in LEVELS.items()
    ]
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM range({records})) TO '{file}' (FORMAT parquet)"
        )


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:<70} {row['ratio']:.3f} ({row['target']})"
            f" {'ok' if row['ok'] else 'MISSED'}"
        )
