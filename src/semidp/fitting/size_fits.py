"""Whole numbers of units by size that have a number of units and a number of members.

``Σ H = U`` and ``Σ s H = T`` for sizes without gaps: possible whenever ``lo·U <= T <= m·U``. The closest real numbers
are found first; then units go up or down by one size until the totals are right, and pairs of units part or meet as
long as that brings the numbers closer.
"""

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROUNDS = 10_000  # steps of the search, of which a few hundred are ever taken


def fit_sizes(estimate: Floats, least: int, units: int, members: int) -> Counts:
    """Return nonnegative whole numbers near an estimate with two totals.

    Parameters
    ----------
    estimate
        How many units have each size, from the least size on.
    least
        The least size.
    units, members
        The totals.

    Examples
    --------
    >>> fit_sizes(np.array([3.2, 2.1, 0.9]), 1, 6, 10)
    array([3, 2, 1])
    >>> fit_sizes(np.array([3.2, 2.1, 0.9]), 1, 6, 5)
    Traceback (most recent call last):
    semidp.errors.Refused: so many members do not fit into so many units of the declared sizes
    """
    sizes = np.arange(least, least + len(estimate))
    if units < 0 or not sizes[0] * units <= members <= sizes[-1] * units:
        raise Refused("so many members do not fit into so many units of the declared sizes")
    if units == 0 or len(sizes) == 1:
        counts = np.zeros(len(sizes), dtype=np.int64)
        counts[0] = units
        return counts
    counts = _rounded(_closest(np.asarray(estimate, dtype=float), sizes, units, members), units)
    _right_members(counts, estimate, sizes, members)
    _improve(counts, estimate)
    return counts


def _closest(estimate: Floats, sizes: NDArray[np.int64], units: int, members: int) -> Floats:
    """The closest nonnegative real numbers with both totals: sizes whose number would be negative have none."""
    used = np.ones(len(sizes), dtype=bool)
    while True:
        rows = np.stack([np.ones(int(used.sum())), sizes[used].astype(float)])
        missing = np.array([units, members], dtype=float) - rows @ estimate[used]
        step = np.linalg.lstsq(rows @ rows.T, missing, rcond=None)[0]
        values = np.zeros(len(sizes))
        values[used] = estimate[used] + rows.T @ step
        negative = values < -1e-9
        if not negative.any() or used.sum() <= 2:
            return np.maximum(values, 0.0)
        # the most negative one goes first; the least and the most size stay while totals need them
        worst = np.where(negative, values, np.inf)
        worst[[0, -1]] = np.inf
        if not np.isfinite(worst.min()):
            return np.maximum(values, 0.0)
        used[int(worst.argmin())] = False


def _rounded(values: Floats, units: int) -> Counts:
    """Round down, and give what is left to the largest remainders."""
    scaled = values * (units / values.sum()) if values.sum() > 0 else np.full(len(values), units / len(values))
    counts = np.floor(scaled + 1e-9).astype(np.int64)
    left = units - int(counts.sum())
    order = np.argsort(counts - scaled, kind="stable")
    for place in range(abs(left)):
        counts[order[place % len(order)]] += 1 if left > 0 else -1
    return counts


def _right_members(counts: Counts, estimate: Floats, sizes: NDArray[np.int64], members: int) -> None:
    """Let units go up or down by one size, the cheapest first, until the number of members is right."""
    gap = members - int(counts @ sizes)
    step = 1 if gap > 0 else -1
    for _ in range(abs(gap)):
        first = np.arange(len(sizes) - 1) if step > 0 else np.arange(1, len(sizes))
        # moving a unit from a to b changes the squared distance by this
        away = counts - estimate
        price = 2 * (away[first + step] - away[first]) + 2
        price = np.where(counts[first] > 0, price, np.inf)
        chosen = int(first[int(price.argmin())])
        counts[chosen] -= 1
        counts[chosen + step] += 1


def _improve(counts: Counts, estimate: Floats) -> None:
    """Let two units part by one size each, or meet, as long as the numbers come closer: both totals stay."""
    if len(counts) < 3:
        return  # two sizes leave no choice
    moves = _parting(len(counts))
    lengths = (moves**2).sum(axis=1)
    for _ in range(_ROUNDS):
        away = counts - estimate
        price = 2 * (moves @ away) + lengths
        possible = (counts + moves >= 0).all(axis=1)
        price = np.where(possible, price, np.inf)
        best = int(price.argmin())
        if not price[best] < -1e-9:
            return
        counts += moves[best]


def _parting(levels: int) -> Counts:
    """The moves that keep both totals: a unit of each of two sizes goes one up, and one down."""
    moves = []
    for up in range(levels - 1):
        for down in range(1, levels):
            move = np.zeros(levels, dtype=np.int64)
            move[up] -= 1
            move[up + 1] += 1
            move[down] -= 1
            move[down - 1] += 1
            if move.any():
                moves.append(move)
    unique = {tuple(move.tolist()) for move in moves}
    return np.array(sorted(unique), dtype=np.int64).reshape(-1, levels)
