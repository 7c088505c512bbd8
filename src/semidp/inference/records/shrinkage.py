"""Noisy tables of pairs with their noise shrunk: what records are brought near to.

A noisy table of two features has an interaction: what is left after the product of its margins. Of
the interaction the singular values are shrunk, because noise of known size raises all of them
(Gavish and Donoho 2017); of what is left, each cell keeps the share that signal has in its
variance. All of it is a function of published numbers. Shrunk numbers are biased, so that intervals
never use them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from semidp.inference.records.record_cells import TargetTable
from semidp.promise.schema.margins import list_axes

Floats = NDArray[np.float64]

_SPREAD = 2.0  # prior variance of a cell, as a multiple of its expected count
_SMALL = 1e-9


def shrink_singular_values(table: Floats, sigma: float) -> Floats:
    """Return a matrix with its singular values shrunk for independent noise of one standard
    deviation.

    For an m × q matrix, m <= q, with noise of standard deviation σ, the shrinker of least Frobenius
    loss takes a singular value y = z σ √q to ``σ √q sqrt((z² - β - 1)² - 4 β) / z`` for
    ``z > 1 + √β``, β = m/q, and to 0 otherwise (Gavish and Donoho 2017, Eq. 7).

    >>> rank_one = np.outer([3.0, -3.0], [20.0, -10.0, -10.0])
    >>> ratio = shrink_singular_values(rank_one, 1.0) / rank_one
    >>> bool(0.9 < ratio.min()), bool(ratio.max() <= 1)
    (True, True)
    >>> float(np.abs(shrink_singular_values(rank_one, 100.0)).max())
    0.0
    """
    if table.shape[0] > table.shape[1]:
        return shrink_singular_values(table.T, sigma).T
    left, values, right = np.linalg.svd(table, full_matrices=False)
    unit = sigma * np.sqrt(table.shape[1])
    ratio = table.shape[0] / table.shape[1]
    relative = values / unit
    inside = np.maximum(0.0, (relative**2 - ratio - 1) ** 2 - 4 * ratio)
    loud = relative > 1 + np.sqrt(ratio)
    shrunk = np.where(loud, np.sqrt(inside) / np.maximum(relative, _SMALL), 0.0)
    return np.asarray((left * (shrunk * unit)) @ right)


def project_counts(estimate: Floats, total: float) -> Floats:
    """Return the nonnegative counts with a given total that are nearest to an estimate.

    >>> project_counts(np.array([5.0, -1.0, 2.0]), 6.0).tolist()
    [4.5, 0.0, 1.5]
    """
    falling = np.sort(estimate)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    positive = np.flatnonzero(falling > excess)
    shift = excess[positive[-1]] if positive.size else 0.0
    return np.maximum(0.0, estimate - shift)


def shrink_pair(table: Floats, sigma: float) -> Floats:
    """Return the shrunk estimate of a table of two features; its margins stay as they are.

    Parameters
    ----------
    table
        Unbiased estimate of the count of each cell.
    sigma
        Standard error of a cell.
    """
    total = max(float(table.sum()), 0.0)
    rows = project_counts(table.sum(axis=1), total)
    columns = project_counts(table.sum(axis=0), total)
    independent = np.outer(rows, columns) / max(total, _SMALL)
    interaction = _center(table - independent)
    low_rank = shrink_singular_values(interaction, sigma)
    # What the low rank leaves is kept as far as the counts themselves vary more than the noise.
    variance = _SPREAD * np.maximum(independent + low_rank, 0.0)
    remainder = _center(variance / (variance + sigma**2) * (interaction - low_rank))
    return table - interaction + low_rank + remainder


def _center(table: Floats) -> Floats:
    """A table less the means of its rows and columns: its margins are 0."""
    means = table.mean(axis=1, keepdims=True) + table.mean(axis=0) - table.mean()
    return np.asarray(table - means)


def shrink_targets(targets: Sequence[TargetTable]) -> list[TargetTable]:
    """Return published tables with the noise of pairs shrunk; others stay as they are."""
    shrunk = []
    for target in targets:
        shape = [size for size in target.estimate.shape if size > 1]
        sigma = float(np.sqrt(np.mean(target.errors**2)))
        if len(list_axes(target.view)) != 2 or len(shape) != 2 or not sigma:
            shrunk.append(target)
            continue
        estimate = shrink_pair(target.estimate.reshape(shape), sigma)
        shrunk.append(replace(target, estimate=estimate.reshape(target.estimate.shape)))
    return shrunk
