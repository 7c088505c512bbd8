"""Slow, plain references: every move by enumeration, and uniform points by triangulation."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Sampler = Callable[[int, np.random.Generator], Floats]


def _moves(rows: int, columns: int, a: int) -> Floats:
    """Every r x c table with zero margins and entries -1, 0, 1 that a = 2 or 3 records make."""
    found = set()
    for size in range(2, a + 1):
        for i in itertools.permutations(range(rows), size):
            for j in itertools.permutations(range(columns), size):
                table = np.zeros((rows, columns), dtype=np.int8)
                for n in range(size):
                    table[i[n], j[n]] += 1
                    table[i[(n + 1) % size], j[n]] -= 1
                found.add(table.tobytes())
    return np.array(
        [np.frombuffer(move, dtype=np.int8) for move in sorted(found)], dtype=float
    ).reshape(-1, rows, columns)


def _triangulated(vertices: Floats) -> Sampler:
    """A uniform sampler of the hull of vectors, exact up to rounding: cones over a triangulated
    boundary.
    """
    from scipy.spatial import ConvexHull

    flat = vertices.reshape(len(vertices), -1)
    _, lengths, axes = np.linalg.svd(flat, full_matrices=False)
    basis = axes[lengths > 1e-9]
    points = flat @ basis.T
    s = points.shape[1]
    ends = np.array([[points.argmin()], [points.argmax()]])
    simplices = ends if s == 1 else ConvexHull(points).simplices
    corners = points[simplices]
    volumes = np.abs(np.linalg.det(corners))
    shares = np.cumsum(volumes / volumes.sum())

    def sample(size: int, generator: np.random.Generator) -> Floats:
        chosen = corners[
            np.minimum(np.searchsorted(shares, generator.random(size)), len(corners) - 1)
        ]
        weights = generator.dirichlet(np.ones(s), size)
        radius = generator.random(size) ** (1 / s)
        inner = np.einsum("ns,nsd->nd", weights, chosen) * radius[:, None]
        return np.asarray((inner @ basis).reshape(size, *vertices.shape[1:]))

    return sample


@pytest.fixture(scope="session")
def moves() -> Callable[[int, int, int], Floats]:
    return _moves


@pytest.fixture(scope="session")
def triangulated() -> Callable[[Floats], Sampler]:
    return _triangulated
