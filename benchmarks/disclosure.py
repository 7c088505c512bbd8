"""What exact numbers give away: time over the seconds allowed, bounds that are not sharp, and time
over that of a naive integer program for each cell.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from semidp.assess.disclosure.program_bounds import ConformingTables, Effort
from semidp.assess.disclosure.published_counts import UNBOUNDED, KnownTable, PublishedCounts
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin

CLOSED = {
    "1000x1000, rows and columns": ((1000, 1000), [(0,), (1,)]),
    "100x100x100, AB and BC": ((100, 100, 100), [(0, 1), (1, 2)]),
    "32x32x32x32, AB, BC and CD": ((32, 32, 32, 32), [(0, 1), (1, 2), (2, 3)]),
}
CYCLE = [(0, 1), (1, 2), (0, 2)]
_SAMPLE = 20  # cells of the naive program


def exact_counts(shape: Sequence[int], axes: Sequence[Sequence[int]], mean: float) -> Any:
    """Return exact margins of a random table."""
    rng = np.random.default_rng(7)
    names = "abcdef"
    schema = Schema(
        [Feature(names[axis], list(map(str, range(size)))) for axis, size in enumerate(shape)]
    )
    table = Table(schema, rng.poisson(mean, shape))
    margins = [Margin(*(names[axis] for axis in part)) for part in axes]
    return PublishedCounts.from_dataspace(Dataspace.from_table(table, margins))


def linked_tables(hidden: int) -> PublishedCounts:
    """Return ward × age and ward × illness with totals, the smallest cells suppressed."""
    rng = np.random.default_rng(7)
    sizes = {"ward": 40, "age": 25, "ill": 25}
    schema = Schema([Feature(name, list(map(str, range(size)))) for name, size in sizes.items()])
    table = rng.poisson(2.0, tuple(sizes.values()))
    known = []
    for view, margin in (((1, 1, 0), (0, 1, 0)), ((1, 0, 1), (0, 0, 1))):
        counts = schema.grid.sum(table, view)
        order = np.argsort(counts.ravel(), kind="stable")
        mask = np.zeros(counts.size, dtype=bool)
        mask[order[: hidden // 2]] = True
        mask = mask.reshape(counts.shape)
        upper = np.where(mask, UNBOUNDED, counts)
        known.append(KnownTable(view, np.where(mask, 0, counts), upper, None, mask, str(view)))
        for coarser in ((1, 0, 0), margin, (0, 0, 0)):
            total = schema.grid.sum(table, coarser)
            known.append(KnownTable(coarser, total, total, source=str(view)))
    return PublishedCounts(schema, tuple(known))


def run() -> list[dict[str, Any]]:
    """Return a row for each claim."""
    ConformingTables(exact_counts((2, 2, 2), CYCLE, 1.0)).bound((1, 1, 1))  # imports the solvers
    rows = []
    for name, (shape, axes) in CLOSED.items():
        counts = exact_counts(shape, axes, 0.3)
        view = tuple(1 for _ in shape)
        found, seconds = timed(lambda c=counts, v=view: ConformingTables(c).bound(v))
        rows.append(_row(f"disclosure {name}: time over 5 s", seconds / 5, 1.0))
        rows.append(_row(f"disclosure {name}: cells not sharp", int((~found.sharp).sum()), 0.0))
    counts = exact_counts((10, 10, 10), CYCLE, 1.0)
    found, seconds = timed(lambda: ConformingTables(counts).bound((1, 1, 1)))
    rows.append(_row("disclosure 10x10x10, all pairs: time over 60 s", seconds / 60, 1.0))
    rows.append(
        _row("disclosure 10x10x10, all pairs: cells not sharp", int((~found.sharp).sum()), 0.0)
    )
    naive = time_naive(counts, _SAMPLE) * found.lower.size / _SAMPLE
    rows.append(
        _row("disclosure 10x10x10: time over a naive program per cell", seconds / naive, 1.0)
    )
    limited = ConformingTables(counts, Effort(seconds=1.0))
    _, seconds = timed(lambda: limited.bound((1, 1, 1)))
    rows.append(_row("disclosure 10x10x10 with a limit of 1 s: time over 3 s", seconds / 3, 1.0))
    linked = linked_tables(1_000)
    tables = ConformingTables(linked)

    def recover() -> int:
        open_ends = 0
        for known in linked.tables:
            if known.hidden is not None:
                cells = np.flatnonzero(known.hidden)
                bounds = tables.bound_cells(known.view, cells.tolist())
                open_ends += int((~bounds.sharp.ravel()[cells]).sum())
        return open_ends

    unsharp, seconds = timed(recover)
    rows.append(_row("disclosure 1,000 suppressed cells: time over 60 s", seconds / 60, 1.0))
    rows.append(_row("disclosure 1,000 suppressed cells: not sharp", unsharp, 0.0))
    return rows


def time_naive(counts: PublishedCounts, cells: int) -> float:
    """Return the seconds of an integer program of its own for each end of some cells."""
    from ortools.sat.python import cp_model

    shape = counts.grid.compute_margin_shape(counts.crossing)
    started = time.perf_counter()
    for cell in range(cells):
        for sense in (1, -1):
            model = cp_model.CpModel()
            columns = [model.new_int_var(0, 1_000, "") for _ in range(int(np.prod(shape)))]
            for known in counts.tables:
                labels = counts.grid.labels(known.view)
                for place, total in enumerate(known.lower.ravel().tolist()):
                    held = np.flatnonzero(labels == place).tolist()
                    model.add(sum(columns[column] for column in held) == total)
            model.minimize(sense * columns[cell])
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.solve(model)
    return time.perf_counter() - started


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work gives, and its seconds."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def _row(name: str, ratio: float, target: float) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": f"≤ {target:g}", "ok": ratio <= target}


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:<70} {row['ratio']:8.4f} ({row['target']})"
            f" {'ok' if row['ok'] else 'MISSED'}"
        )
