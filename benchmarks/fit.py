"""Integer fits: time over the seconds allowed, loss over the real-valued bound, and time over an
integer program's.

The tables are sparse counts with the noise of a realistic budget: Δ2² = 8 at rho = 1/2, a variance
of 8 in each cell. At most the target is good.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Grid, Totals
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.fitting.integer import prove
from semidp.publish.fitting.real import pose, project
from semidp.publish.fitting.tables import fit_table

ALLOWED = {
    "300x300, rows and columns": ((300, 300), [(0,), (1,)], 1.0),
    "50x20x10, three one-way margins": ((50, 20, 10), [(0,), (1,), (2,)], 2.0),
    "100x100x10, three one-way margins": ((100, 100, 10), [(0,), (1,), (2,)], 5.0),
    "100x100x10, AB and BC": ((100, 100, 10), [(0, 1), (1, 2)], 5.0),
    "215x215x215, three one-way margins": ((215, 215, 215), [(0,), (1,), (2,)], 10.0),
}
HIGHEST_GAP = 0.05


def problem(shape: Sequence[int], axes: Sequence[Sequence[int]]) -> tuple[np.ndarray, Dataspace]:
    """Return noisy values and the dataspace of the table they were drawn from."""
    rng = np.random.default_rng(2024)
    schema = Schema(
        tuple(
            Feature("abcdef"[axis], tuple(map(str, range(size)))) for axis, size in enumerate(shape)
        )
    )
    hidden = Table(schema, rng.poisson(rng.gamma(1.0, 1.0, shape)))
    noisy = hidden.counts + np.rint(rng.normal(0.0, np.sqrt(8.0), shape))
    return noisy, Dataspace.from_table(
        hidden, [Margin(*(schema.names[axis] for axis in part)) for part in axes]
    )


def run() -> list[dict[str, Any]]:
    """Return a row for each claim: what was measured, what is asked for, and whether it was met."""
    fit_table(*problem((3, 3, 3), [(0,), (1,), (2,)]))  # import the solvers before the clock starts
    rows = []
    for name, (shape, axes, allowed) in ALLOWED.items():
        noisy, space = problem(shape, axes)
        fit, seconds = timed(lambda noisy=noisy, space=space: fit_table(noisy, space))
        rows.append(_row(f"fit {name}: time over {allowed:g} s", seconds / allowed, 1.0))
        rows.append(_row(f"fit {name}: loss over the bound, less 1", fit.gap, HIGHEST_GAP))
    return [*rows, flow_against_program()]


def flow_against_program() -> dict[str, Any]:
    """Solve one two-way table as a flow and as an integer program: same loss, different time."""
    noisy, space = problem((60, 60), [(0,), (1,)])
    fit, ours = timed(lambda: fit_table(noisy, space))
    rows, columns = (total.counts for total in space.totals)
    posed = pose(
        Grid.flat(noisy.shape),
        noisy,
        [Totals((1, 0), rows[:, None]), Totals((0, 1), columns[None, :])],
    )
    (counts, _), theirs = timed(lambda: prove(posed, project(posed), None, time.monotonic() + 60))
    assert counts is not None
    assert posed.loss(counts) == fit.loss
    return _row("fit 60x60, rows and columns: time over an integer program's", ours / theirs, 0.1)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what the work returns, and the seconds it took."""
    begun = time.perf_counter()
    return work(), time.perf_counter() - begun


def _row(name: str, ratio: float, target: float) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": f"≤ {target:g}", "ok": ratio <= target}


if __name__ == "__main__":
    for row in run():
        print(
            f"{row['name']:<70} {row['ratio']:8.4f} ({row['target']})"
            f" {'ok' if row['ok'] else 'MISSED'}"
        )
