"""Whole numbers of units by size, with given totals of units and of members.

``Σ H = U`` and ``Σ s H = T`` for sizes without gaps: possible whenever ``lo·U <= T <= m·U``. The
closest real numbers are found first; then units go up or down by one size until the totals are
right, and pairs of units part or meet as long as that brings the numbers closer.
"""

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_ROUNDS = 10_000  # steps of the search, of which a few hundred are ever taken
_MOST_EXCHANGES = 100_000  # between the places of one parent
_WORTH = 1e-9  # a gain that floating point does not make


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
    semidp.errors.Refused: the members do not fit into the units of the declared sizes
    """
    sizes = np.arange(least, least + len(estimate))
    fewest, most = sizes[0] * units, sizes[-1] * units
    if units < 0 or not fewest <= members <= most:
        raise Refused("the members do not fit into the units of the declared sizes")
    if units == 0 or len(sizes) == 1:
        counts = np.zeros(len(sizes), dtype=np.int64)
        counts[0] = units
        return counts
    # The number of units comes first: the two steps after it move units and keep that number.
    real = _closest(np.asarray(estimate, dtype=float), sizes, units, members)
    counts = _round_largest_remainders(real, units)
    _right_members(counts, estimate, sizes, members)
    _improve(counts, estimate)
    return counts


def balance_members(counts: Counts, estimate: Floats, least: int, targets: Floats) -> Counts:
    """Exchange units of different sizes between places, until the members of each place are near
    the estimates.

    Whole numbers of units by place and size that are nearest cell by cell may be far off in the
    members of a place: what is not negative adds up to too much. Two places that exchange a unit of
    one size for a unit of another keep their numbers of units, and units of each size stay. An
    exchange is made where the squared distance of members and of units together falls.

    Parameters
    ----------
    counts, estimate
        Units by place and size, a row a place: whole numbers, and the estimates that they were
        fitted to. Between them may be other features, over which units are exchanged one by one.
    least
        The least size.
    targets
        The estimated members of each place.

    Examples
    --------
    >>> counts, estimate = (
    ...     np.array([[2, 0, 2], [2, 2, 0]]),
    ...     np.array([[3.0, 0.5, 0.5], [1.0, 1.5, 1.5]]),
    ... )
    >>> balance_members(counts, estimate, 1, np.array([5.5, 8.5]))
    array([[3, 0, 1],
           [1, 2, 1]])
    """
    levels = counts.shape[-1]
    balanced = counts.reshape(len(counts), -1, levels).copy()
    expected = estimate.reshape(balanced.shape)
    sizes = np.arange(least, least + levels)
    excess = balanced.sum(axis=1) @ sizes - targets
    jumps = sizes[:, None] - sizes[None, :]
    for _ in range(_MOST_EXCHANGES):
        more = int(excess.argmax())
        fewer = int(excess.argmin())
        giving, taking = balanced[more], balanced[fewer]
        # The place with most excess gives a unit of the size of a row, and takes one of the size of
        # a column. Gains are the decrease of the sum of squared distances.
        difference = excess[more] - excess[fewer]
        members = 2 * jumps * difference - 2 * jumps**2
        apart = (giving - expected[more]) - (taking - expected[fewer])
        units = apart[:, :, None] - apart[:, None, :]
        gain = members + 2 * units - 4
        has_large, has_small = giving > 0, taking > 0
        possible = has_large[:, :, None] & has_small[:, None, :] & (jumps > 0)
        gain = np.where(possible, gain, -np.inf)
        best = int(gain.argmax())
        if not gain.flat[best] > _WORTH:
            break
        kind, large, small = np.unravel_index(best, gain.shape)
        giving[kind, large] -= 1
        giving[kind, small] += 1
        taking[kind, small] -= 1
        taking[kind, large] += 1
        excess[more] -= jumps[large, small]
        excess[fewer] += jumps[large, small]
    return balanced.reshape(counts.shape)


def _closest(estimate: Floats, sizes: NDArray[np.int64], units: int, members: int) -> Floats:
    """Closest nonnegative real numbers with both totals. A size whose number would be negative gets
    none.
    """
    used = np.ones(len(sizes), dtype=bool)
    while True:
        ones = np.ones(int(used.sum()))
        rows = np.stack([ones, sizes[used].astype(float)])
        totals = np.array([units, members], dtype=float)
        missing = totals - rows @ estimate[used]
        # the shortest change that gives both totals
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


def _round_largest_remainders(values: Floats, units: int) -> Counts:
    """Round down, and give what is left to the largest remainders."""
    scaled: Floats = np.full(len(values), units / len(values))
    if values.sum() > 0:
        scaled = values * (units / values.sum())
    counts = np.floor(scaled + 1e-9).astype(np.int64)
    left = units - int(counts.sum())
    # largest remainders first
    order = np.argsort(counts - scaled, kind="stable")
    step = 1 if left > 0 else -1
    for place in range(abs(left)):
        counts[order[place % len(order)]] += step
    return counts


def _right_members(
    counts: Counts, estimate: Floats, sizes: NDArray[np.int64], members: int
) -> None:
    """Let units go up or down by one size, the cheapest first, until the number of members is
    right.
    """
    gap = members - int(counts @ sizes)
    step = 1 if gap > 0 else -1
    # A unit of the last size cannot go up, one of the first cannot go down.
    first = np.arange(len(sizes) - 1)
    if step < 0:
        first = first + 1
    # The totals were checked, so that some unit can always move the way that is needed.
    for _ in range(abs(gap)):
        # moving a unit from a to b changes the squared distance by this
        away = counts - estimate
        difference = away[first + step] - away[first]
        price = 2 * difference + 2
        price = np.where(counts[first] > 0, price, np.inf)
        chosen = int(first[int(price.argmin())])
        counts[chosen] -= 1
        counts[chosen + step] += 1


def _improve(counts: Counts, estimate: Floats) -> None:
    """Move pairs of units by one size each, apart or towards each other, as long as the numbers
    come closer. Both totals stay.
    """
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
    """Moves that keep both totals: a unit of one size goes up by one, and a unit of another goes
    down.
    """
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
