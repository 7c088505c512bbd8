"""Uniform points of K = hull(S_a): the published sampler against this one, and the rates that
tables of real sizes get.

The published method (Cho and Awan, Algorithm 3) draws from a cube around K and solves a linear
program for each proposal. Run as a program, this file prints the second moments behind
`semidp.promise.mechanisms.knorm_tables`.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import linprog

from semidp.promise.mechanisms.knorm_balls import PairBall
from semidp.promise.mechanisms.knorm_polar import NormBall
from semidp.promise.mechanisms.knorm_tables import TableBall
from semidp.promise.schema.margins import Grid, Totals
from semidp.promise.sensitivity.moves import moves

RATES = (
    (TableBall(8, 8, 2), 60, 20),
    (TableBall(10, 10, 2), 20, 1),
    (TableBall(5, 5, 3), 100, 20),
    (TableBall(7, 7, 3), 20, 1),
    (PairBall(100_000), 5, 2),
)
SIDES = (3, 4, 5, 6, 8, 10, 12, 16, 20, 31, 41, 61)


def run() -> list[dict[str, object]]:
    """Return the ratio of times per sample at 3 x 3, and the rates per required rate."""
    rows = []
    for a in (2, 3):
        ours = _seconds_per_point(
            lambda size, a=a: TableBall(3, 3, a).uniform(size, np.random.default_rng(1)), 100_000
        )
        theirs = _seconds_per_point(
            lambda size, a=a: _published(3, 3, a, size, np.random.default_rng(2)), 30
        )
        rows.append(
            _row(
                f"uniform point, 3x3, a={a}: cube with an LP per proposal / semidp",
                theirs / ours,
                100,
            )
        )
    for ball, size, required in RATES:
        seconds = _seconds_per_point(
            lambda size, ball=ball: ball.uniform(size, np.random.default_rng(3)), size
        )
        rows.append(
            _row(f"uniform points a second, {ball}, over {required}", 1 / seconds / required, 1)
        )
    return rows


def _row(name: str, ratio: float, target: float) -> dict[str, object]:
    return {"name": name, "ratio": ratio, "target": f"≥ {target:g}", "ok": ratio >= target}


def _seconds_per_point(draw: Callable[[int], object], size: int) -> float:
    start = time.process_time()
    draw(size)
    return (time.process_time() - start) / size


def _published(
    rows: int, columns: int, a: int, size: int, generator: np.random.Generator
) -> np.ndarray:
    """Draw as the paper does: an orthonormal basis, a cube, and a program ``Σλ_m m = v, Σλ = 1``
    for each proposal.
    """
    margins = [Totals((1, 0), np.full((rows, 1), a)), Totals((0, 1), np.full((1, columns), a))]
    vertices = np.array(list(moves(Grid.flat((rows, columns)), margins, None, a))).reshape(
        -1, rows * columns
    )
    basis = np.linalg.svd(vertices, full_matrices=False)[2][: (rows - 1) * (columns - 1)]
    inner = vertices @ basis.T
    sides = np.abs(inner).max(axis=0)
    equations = np.vstack([inner.T, np.ones(len(inner))])
    kept: list[np.ndarray] = []
    while len(kept) < size:
        point = generator.uniform(-sides, sides)
        if (
            linprog(
                np.zeros(len(inner)), A_eq=equations, b_eq=np.append(point, 1.0), method="highs"
            ).status
            == 0
        ):
            kept.append(point @ basis)
    return np.array(kept)


def moments(seconds: float = 12.0) -> Iterator[tuple[int, int, int, float, float]]:
    """Measure E||v||² at epsilon = 1: rows, columns, a, value and relative Monte Carlo error."""
    for rows, columns, a in ((r, c, a) for r in SIDES for c in SIDES for a in (2, 3) if r <= c):
        ball: NormBall = TableBall(rows, columns, a)
        s = ball.dimension
        if s > 121:
            continue
        generator = np.random.default_rng([rows, columns, a])
        squares = np.zeros(0)
        start, error = time.process_time(), 1.0
        while len(squares) < 30 or (error > 0.0015 and time.process_time() - start < seconds):
            points = ball.uniform(2000 if rows == 3 or columns == 4 else 5, generator)
            squares = np.append(squares, (s + 1) * (s + 2) * (points**2).sum(axis=(1, 2)))
            error = float(squares.std() / squares.mean() / np.sqrt(len(squares)))
        yield rows, columns, a, float(squares.mean()), error


if __name__ == "__main__":
    for measured in moments():
        print(*measured, flush=True)
