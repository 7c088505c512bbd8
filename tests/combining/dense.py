"""Least squares by one dense system, for small trees: what the passes must agree with.

Unknowns are the cells of the nodes without children. Everything measured is a row; exact values and
impossible cells are restrictions, which are met by writing the unknowns as one solution plus a
basis of the null space.
"""

import numpy as np
from attrs import frozen

from semidp.inference import Measurements
from semidp.inference.estimation.measurements import Within

RANK = 1e-9


@frozen
class Dense:
    """Solution x = mean + k + u with Cov(k) = spread and `u` anywhere in the span of `unknown`."""

    mean: np.ndarray
    spread: np.ndarray
    unknown: np.ndarray
    rows_of: list[np.ndarray]

    def sum_of(self, weights: dict[int, np.ndarray]) -> tuple[float, float]:
        """Value and variance of a weighted sum; nan and infinite if nothing determines it."""
        row = np.zeros(len(self.mean))
        for depth, array in weights.items():
            row += array.reshape(-1) @ self.rows_of[depth]
        if np.abs(row @ self.unknown).max(initial=0) > 1e-7 * np.abs(row).max(initial=1e-300):
            return np.nan, np.inf
        return float(row @ self.mean), float(row @ self.spread @ row)


def null_space(matrix: np.ndarray) -> np.ndarray:
    if not matrix.size:
        return np.eye(matrix.shape[1])
    _, sizes, vectors = np.linalg.svd(matrix)
    rank = int((sizes > RANK * sizes.max(initial=0)).sum())
    return vectors[rank:].T


def solve(measurements: Measurements) -> Dense:
    places, cells = measurements.places, measurements.cells
    leaves = [(depth, node) for depth in places.depths for node in range(places.counts[depth])]
    leaves = [(depth, node) for depth, node in leaves if not has_children(places, depth, node)]
    rows_of = []
    for depth in places.depths:
        matrix = np.zeros((places.counts[depth], len(leaves)))
        for column, (leaf_depth, leaf) in enumerate(leaves):
            if leaf_depth >= depth:
                matrix[places.ancestors(leaf_depth, depth)[leaf], column] = 1
        rows_of.append(np.kron(matrix, np.eye(cells)))
    noisy, values, precisions, exact, targets = [], [], [], [], []
    for one in measurements.observed:
        matrices = [one.query.matrix(axis, size) for axis, size in enumerate(measurements.sizes)]
        design = np.ones((1, 1))
        for matrix in matrices:
            design = np.kron(design, matrix)
        nodes = places.counts[one.depth]
        array = one.values.reshape(nodes, -1)
        if one.siblings:
            for members in families(places, one):
                block = [
                    design @ rows_of[one.depth][node * cells : (node + 1) * cells]
                    for node in members
                ]
                mean = sum(block) / len(block)
                told = [design_values(one, array[node], measurements.sizes) for node in members]
                middle = sum(told) / len(told)
                noisy += [rows - mean for rows in block]
                values += [each - middle for each in told]
                precisions += [
                    np.full(len(mean), 1 / one.variances(nodes)[node]) for node in members
                ]
            continue
        for node, variance in enumerate(one.variances(nodes)):
            rows = design @ rows_of[one.depth][node * cells : (node + 1) * cells]
            if variance == 0:
                exact.append(rows)
                targets.append(design_values(one, array[node], measurements.sizes))
            elif np.isfinite(variance):
                noisy.append(rows)
                values.append(design_values(one, array[node], measurements.sizes))
                precisions.append(np.full(len(rows), 1 / variance))
    for depth, mask in measurements.possible.items():
        full = np.broadcast_to(mask, (places.counts[depth], *measurements.sizes)).reshape(-1)
        exact.append(rows_of[depth][~full])
        targets.append(np.zeros(int((~full).sum())))
        # Counts are not negative: what is impossible at a node is impossible below it, cell by
        # cell.
        for below in range(depth + 1, len(places.counts)):
            impossible = ~full.reshape(places.counts[depth], cells)[
                places.ancestors(below, depth)
            ].reshape(-1)
            exact.append(rows_of[below][impossible])
            targets.append(np.zeros(int(impossible.sum())))
    width = len(leaves) * cells
    restrictions = np.concatenate([np.zeros((0, width)), *exact])
    target = np.concatenate([np.zeros(0), *targets])
    start = np.linalg.lstsq(restrictions, target, rcond=None)[0] if len(target) else np.zeros(width)
    basis = null_space(restrictions) if len(target) else np.eye(width)
    design = np.concatenate([np.zeros((0, width)), *noisy]) @ basis
    precision = np.concatenate([np.zeros(0), *precisions])
    residual = (
        np.concatenate([np.zeros(0), *values])
        - np.concatenate([np.zeros((0, width)), *noisy]) @ start
    )
    information = design.T @ (precision[:, None] * design)
    eigenvalues, vectors = (
        np.linalg.eigh(information) if basis.shape[1] else (np.zeros(0), np.zeros((0, 0)))
    )
    # Information that exact values leave nothing of is a rounding error beside the precisions.
    kept = eigenvalues > RANK * precision.max(initial=0)
    inverse = (vectors[:, kept] / eigenvalues[kept]) @ vectors[:, kept].T
    mean = start + basis @ (inverse @ (design.T @ (precision * residual)))
    return Dense(mean, basis @ inverse @ basis.T, basis @ vectors[:, ~kept], rows_of)


def families(places, one) -> list[list[int]]:
    """Children of each parent that were compared with their siblings."""
    variances = one.variances(places.counts[one.depth])
    parents = places.parents[one.depth - 1]
    chosen = [
        np.flatnonzero((parents == parent) & np.isfinite(variances))
        for parent in set(parents.tolist())
    ]
    return [members.tolist() for members in chosen if len(members)]


def design_values(one, values: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Values of a query; those of contrasts are centred, as only that much of them was measured."""
    shape = one.query.shape(sizes)
    centred = values.reshape(shape)
    for axis, treatment in enumerate(one.query.treatments):
        if treatment == "contrasts":
            centred = centred - centred.mean(axis=axis, keepdims=True)
        elif isinstance(treatment, Within):
            for family in set(treatment.families):
                members = np.flatnonzero(np.asarray(treatment.families) == family)
                moved = np.moveaxis(centred, axis, 0).copy()
                moved[members] -= moved[members].mean(axis=0)
                centred = np.moveaxis(moved, 0, axis)
    return centred.reshape(-1)


def has_children(places, depth: int, node: int) -> bool:
    return depth < len(places.parents) and bool((places.parents[depth] == node).any())
