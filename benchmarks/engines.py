"""Tabulating ten million Parquet records, against DuckDB's own group-by in the same run.

`run()` returns one row per case: the ratio of our time to DuckDB's, the target, and whether it was
met. Everything around the group-by counts as ours: opening the files, checking levels, making the
`Table`.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.publish.sources.opening import open_source

TARGET = 1.5
REPEATS = 15
LEVELS = {"sex": 2, "region": 16, "status": 6}


def run(records: int = 10_000_000) -> list[dict[str, Any]]:
    """Time both sides alternately and compare their best times."""
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as folder:
        file = Path(folder) / "people.parquet"
        _write(file, records)
        features = {
            name: Feature(name, [f"{name} {level}" for level in range(n)])
            for name, n in LEVELS.items()
        }
        by = ", ".join(LEVELS)
        schema = Schema(tuple(features.values()))
        binned = Schema(
            (features["sex"], features["region"], Feature("age", bins=(*range(0, 100, 10), "inf")))
        )
        tens = " ".join(f"WHEN age < {edge} THEN {edge // 10 - 1}" for edge in range(10, 100, 10))
        grid = "CAST(floor(least(greatest(income, 0), 1e5) / 1e5 * 1000 + 0.5) AS BIGINT)"
        selected = f"sex, region, CASE {tens} ELSE 9 END, count(*)"
        cases = [
            ("counts of 3 features", f"{by}, count(*)", by, lambda source: source.counts(schema)),
            (
                "counts with bins",
                selected,
                "1, 2, 3",
                lambda source: source.counts(binned),
            ),
            (
                "sums of an outcome",
                f"{by}, sum({grid})",
                by,
                lambda source: source.sums(schema, Outcome("income", 0, 100_000, 1000)),
            ),
        ]
        return [_compare(name, file, select, group, ours) for name, select, group, ours in cases]


def _compare(
    name: str, file: Path, select: str, group: str, ours: Callable[[Any], Any]
) -> dict[str, Any]:
    def theirs() -> None:
        with duckdb.connect() as connection:
            connection.execute(
                f"SELECT {select} FROM read_parquet('{file}') GROUP BY {group}"
            ).fetchall()

    def mine() -> None:
        with open_source(file) as source:
            ours(source)

    best = {theirs: float("inf"), mine: float("inf")}
    for _ in range(REPEATS):
        for side in best:
            started = time.perf_counter()
            side()
            best[side] = min(best[side], time.perf_counter() - started)
    ratio = best[mine] / best[theirs]
    return {
        "name": f"engines: {name}",
        "ratio": ratio,
        "target": f"≤ {TARGET}",
        "ok": ratio <= TARGET,
    }


def _write(file: Path, records: int) -> None:
    columns = [
        f"'{name} ' || CAST(floor(random() * {n}) AS INTEGER) AS {name}"
        for name, n in LEVELS.items()
    ]
    columns += [
        "CAST(floor(random() * 100) AS INTEGER) AS age",
        "random() * 120000 - 10000 AS income",
    ]
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT {', '.join(columns)} FROM range({records})) TO '{file}' (FORMAT parquet)"
        )


if __name__ == "__main__":
    for row in run():
        verdict = "ok" if row["ok"] else "MISSED"
        print(f"{row['name']:<32} {row['ratio']:.2f}x DuckDB (target {row['target']}) {verdict}")
