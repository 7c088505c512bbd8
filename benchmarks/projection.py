"""Projecting a table of ten million cells, against summing it once per margin: time and memory.

The sums are the least that any projection must read; a matrix of cells by cells would be 800
terabytes.
"""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin

SHAPE = (10, 100, 100, 100)
TIMES_A_SUM = 10
TIMES_THE_TABLE = 4


def run() -> list[dict[str, Any]]:
    """Return rows of time and memory, for one-way margins and for a chain of joint ones; at most
    the target is good.
    """
    counts = np.random.default_rng(1).poisson(5, size=SHAPE).astype(np.int64)
    rows = []
    for name, margins in (
        ("one-way margins", ["A", "B", "C", "D"]),
        ("a chain of joint margins", ["AB", "BC", "CD"]),
    ):
        space = _space(counts, margins)
        kept = [tuple("ABCD".index(feature) for feature in margin) for margin in margins]
        rows.append(
            _row(
                f"{name}: time of a projection / of the sums",
                _time(counts, space, kept),
                TIMES_A_SUM,
            )
        )
        rows.append(
            _row(
                f"{name}: memory of a projection / of the table",
                _memory(counts, space),
                TIMES_THE_TABLE,
            )
        )
    return rows


def _space(counts: np.ndarray, margins: list[str]) -> TableSpace:
    schema = Schema(
        [
            Feature(name, [str(i) for i in range(size)])
            for name, size in zip("ABCD", SHAPE, strict=True)
        ]
    )
    public = Dataspace.from_table(Table(schema, counts), [Margin(*names) for names in margins])
    return sensitivity_space(public, Ball(3))


def _time(counts: np.ndarray, space: TableSpace, kept: list[tuple[int, ...]]) -> float:
    def sums() -> None:
        for axes in kept:
            counts.sum(axis=tuple(axis for axis in range(4) if axis not in axes))

    return _best(lambda: space.project(counts)) / _best(sums)


def _best(work: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _memory(counts: np.ndarray, space: TableSpace) -> float:
    tracemalloc.start()
    space.project(counts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / counts.nbytes


def _row(name: str, ratio: float, target: int) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": f"≤ {target}", "ok": ratio <= target}
