"""Membership of a polytope decided in rational arithmetic.

The last resort for points that floating point cannot place: an exact simplex method that knows the polytope only
through a pricing function. No floating point and no solver lives here.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rationals = NDArray[np.object_]
Pricing = Callable[[Rationals], tuple[Rationals, Fraction]]
"""Given w, the vertex m of the polytope with the largest ``<m, w>``, and that value."""


def inside(point: Sequence[Fraction], start: Sequence[Sequence[Any]], steepest: Pricing) -> bool:
    """Decide exactly whether a point lies in a centrally symmetric polytope K.

    The simplex method on ``min Σλ`` with ``Σ λ_m m = x``, ``λ >= 0``, whose optimum is the K-norm of x. Each basis
    gives an upper bound ``Σλ`` and, with ``w`` its multipliers, the lower bound ``Σλ / max_m <m, w>``; the search
    stops as soon as one of them settles the question. The lexicographic ratio test excludes cycling [Dantzig, Orden
    and Wolfe 1955].

    Parameters
    ----------
    point
        Coordinates of x.
    start
        As many linearly independent vertices of K as there are coordinates; their negatives are vertices too.
    steepest
        The pricing function.

    Examples
    --------
    The square with corners (±1, 0) and (0, ±1):

    >>> def steepest(w):
    ...     k = max(range(2), key=lambda i: abs(w[i]))
    ...     sign = 1 if w[k] > 0 else -1
    ...     return np.array([sign * (i == k) for i in range(2)], dtype=object), abs(w[k])
    >>> half, start = Fraction(1, 2), [[1, 0], [0, 1]]
    >>> inside([half, half], start, steepest), inside([half, half + Fraction(1, 10**30)], start, steepest)
    (True, False)
    """
    inverse = _inverse(start)
    weights = inverse @ np.array(point, dtype=object)
    flip = np.array([_lexicographically_negative(w, row) for w, row in zip(weights, inverse, strict=True)])
    inverse[flip] *= -1
    weights[flip] *= -1
    while True:
        total = weights.sum()
        if total <= 1:
            return True
        vertex, value = steepest(inverse.sum(axis=0))
        if total > value or value <= 1:
            return False
        direction = inverse @ vertex
        leaving = min(
            (i for i in range(len(direction)) if direction[i] > 0),
            key=lambda i: [weights[i] / direction[i], *(inverse[i] / direction[i])],
        )
        _pivot(inverse, weights, direction, leaving)


def _pivot(inverse: Rationals, weights: Rationals, direction: Rationals, leaving: int) -> None:
    inverse[leaving] /= direction[leaving]
    weights[leaving] /= direction[leaving]
    for i in np.flatnonzero(direction):
        if i != leaving:
            inverse[i] -= direction[i] * inverse[leaving]
            weights[i] -= direction[i] * weights[leaving]


def _lexicographically_negative(weight: Fraction, row: Rationals) -> bool:
    return bool(next(x for x in (weight, *row) if x != 0) < 0)


def _inverse(rows: Sequence[Sequence[Any]]) -> Rationals:
    """Return the inverse of the matrix whose columns are `rows`."""
    from flint import fmpq, fmpq_mat

    size = len(rows)
    fractions = [Fraction(x) for row in rows for x in row]
    matrix = fmpq_mat(size, size, [fmpq(x.numerator, x.denominator) for x in fractions]).transpose().inv()
    entries = [Fraction(int(x.p), int(x.q)) for x in matrix.entries()]
    return np.array(entries, dtype=object).reshape(size, size)
