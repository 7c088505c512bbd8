"""The largest value of a multilinear form over finite sets, or a number that it never exceeds.

A family of moves chooses one vector of kernels for each feature; the square of a residual is the
weighted sum of their entrywise product (`families`).
"""

import math
from collections.abc import Sequence

import numpy as np

from semidp.promise.schema.margins import Floats

_MOST_ROWS = 200_000  # products of vectors that are held, of one half of the features
_MOST_ENTRIES = 30_000_000  # of these
_MOST_WORK = 2_000_000_000  # multiplications: about a second
_CHUNK = 4_000_000


def bound_form(sets: Sequence[Floats], weights: Floats, floor: float = 0.0) -> float:
    """Return ``max Σ_j w_j Π_f k_fj`` over one vector k_f of each set, at least `floor`.

    The features are divided into two halves, and all products of one half are compared with all of
    the other. Where these are too many, vectors are chosen feature by feature, the rest of each
    product is taken at its largest, and what cannot exceed `floor` is dropped: the result is then
    an upper bound.

    >>> pair = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> bound_form([pair, pair], np.array([3.0, 5.0]))
    5.0
    """
    if not len(weights) or not all(map(len, sets)):
        return floor
    halves: list[list[Floats]] = [[], []]
    sizes = [1, 1]
    for vectors in sorted(sets, key=len, reverse=True):
        smaller = int(sizes[1] < sizes[0])
        halves[smaller].append(vectors)
        sizes[smaller] *= len(vectors)
    first, second = (_multiply(half, len(weights)) for half in halves)
    if first is not None and second is not None:
        work = len(first) * len(second) * len(weights)
        if work <= _MOST_WORK:
            return max(floor, _largest_pair(first * weights, second))
    return _bound_branches(sorted(sets, key=len), weights, floor)


def _multiply(sets: Sequence[Floats], width: int) -> Floats | None:
    """All distinct products of one vector of each set; None where there are too many."""
    most = min(_MOST_ROWS, _MOST_ENTRIES // width)
    total = np.ones((1, width))
    for vectors in sets:
        if len(total) * len(vectors) > most:
            return None
        total = _unique((total[:, None] * vectors[None]).reshape(-1, width))
    return total


def _largest_pair(first: Floats, second: Floats) -> float:
    step = max(1, _CHUNK // len(second))
    starts = range(0, len(first), step)
    return max(float((first[start : start + step] @ second.T).max()) for start in starts)


def _bound_branches(sets: Sequence[Floats], weights: Floats, floor: float) -> float:
    width = len(weights)
    partial, least = np.ones((1, width)), math.inf
    for number, vectors in enumerate(sets):
        low, high = _ranges(sets[number + 1 :], width)
        kept, largest, count = [], floor, 0
        step = max(1, _CHUNK // (len(vectors) * width))
        for start in range(0, len(partial), step):
            longer = (partial[start : start + step, None] * vectors[None]).reshape(-1, width)
            upper = np.maximum(longer * (weights * low), longer * (weights * high)).sum(axis=1)
            largest = max(largest, float(upper.max()))
            open_branches = longer[upper > floor]
            count += len(open_branches)
            if count <= _MOST_ROWS:
                kept.append(open_branches)
        least = min(least, largest)
        if not count:
            return floor
        if count > _MOST_ROWS:
            return least
        partial = _unique(np.concatenate(kept))
    return least


def _ranges(sets: Sequence[Floats], width: int) -> tuple[Floats, Floats]:
    """The smallest and the largest product of one vector of each set, entry by entry."""
    low = high = np.ones(width)
    for vectors in sets:
        ends = [end * kernel for end in (low, high) for kernel in (vectors.min(0), vectors.max(0))]
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    return low, high


def _unique(rows: Floats) -> Floats:
    """Rows that differ by more than their rounding errors."""
    _, first = np.unique(np.round(rows, 10), axis=0, return_index=True)
    return rows[first]
