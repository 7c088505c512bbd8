"""Sweeps over records: pairs are proposed, and a move is made where it brings the tables closer to their estimates.

One pair after the other in compiled code (numba, the extra ``semidp[records]``), or many at once in numpy. Both keep
the exact totals, because every move does; they visit pairs in another order, so that their records differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.questions.records.record_cells import Codes, Goal, Layout, Numbers
from semidp.questions.records.record_moves import RecordMove, Strata, strata_of

_AT_ONCE = 1 << 14  # pairs that numpy looks at together
_LEAST_SHARE = 1e-3  # of the moves that look good, how many are made together at least


@dataclass(eq=False)
class RecordState:
    """Records on their way: their codes, and how the distance changes with each count.

    Parameters
    ----------
    goal
        The tables.
    codes
        One row a record, one column a feature; changed in place.
    """

    goal: Goal
    codes: Codes = field(repr=False)

    def __post_init__(self) -> None:
        self.slopes = self.goal.slopes(self.counts)
        self.share = 1.0

    @property
    def counts(self) -> Numbers:
        """The counts of the records in every cell."""
        return self.goal.layout.counts(self.codes)


Sweep = Callable[[RecordState, RecordMove, np.random.Generator], int]
"""Proposes a kind of move once for each record; returns how many moves were made."""


def compiled_available() -> bool:
    """Whether numba is installed.

    >>> compiled_available() in (True, False)
    True
    """
    return find_spec("numba") is not None


def compiled_sweep(state: RecordState, move: RecordMove, draw: np.random.Generator) -> int:
    """Propose a move to each record, one after the other, in compiled code."""
    strata = strata_of(state.goal.grid, state.codes, move.stratum)
    layout = state.goal.layout
    inside = np.zeros(state.codes.shape[1], dtype=np.bool_)
    inside[list(move.axes)] = True
    scratch = np.zeros((len(layout.views), 4), dtype=np.int64)
    made = _compiled()(
        state.codes,
        strata.order,
        strata.starts,
        _shifts(strata, draw),
        np.array(move.axes, dtype=np.int64),
        inside,
        _touched(layout, move),
        *layout.members,
        state.slopes,
        state.goal.weights,
        move.both,
        scratch,
    )
    return int(made)


def vector_sweep(state: RecordState, move: RecordMove, draw: np.random.Generator) -> int:
    """Propose a move to pairs of records, many at once.

    Moves that each look good may overshoot together. Of those in a block a share is made, chosen at random; where that
    increases the distance it is taken back and the share halved.
    """
    strata = strata_of(state.goal.grid, state.codes, move.stratum)
    first, second = _pairs(strata, draw, move.both)
    tables = _touched(state.goal.layout, move)
    made = 0
    for start in range(0, len(first), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        made += _block(state, move, tables, (first[block], second[block]), draw)
    return made


def _touched(layout: Layout, move: RecordMove) -> Numbers:
    """The margins that a move can change."""
    return layout.touched_by(move.axes) if move.both else layout.named_by(move.axes[0])


def _shifts(strata: Strata, draw: np.random.Generator) -> Numbers:
    """For each stratum by how many places partners are apart: at least 1, and less than its size."""
    sizes = np.diff(strata.starts)
    return np.asarray(draw.integers(1, np.maximum(sizes, 2)), dtype=np.int64)


# --- one after the other --------------------------------------------------------------------------------------------


def pair_sweep(
    codes: Any,
    order: Any,
    starts: Any,
    shifts: Any,
    axes: Any,
    inside: Any,
    tables: Any,
    first: Any,
    members: Any,
    places: Any,
    numbers: Any,
    slopes: Any,
    weights: Any,
    both: bool,
    scratch: Any,
) -> int:
    """Propose a move to every record with a partner of its stratum; make it where the distance falls.

    numba compiles it; as plain Python it says the same, slowly. A move that would put a record where none may be has
    an infinite slope, so that its distance never falls.
    """
    made = 0
    listed = len(order) > 0
    for stratum in range(len(starts) - 1):
        begin = starts[stratum]
        size = starts[stratum + 1] - begin
        if size < 2:
            continue
        shift = shifts[stratum]
        for place in range(size):
            partner = place + shift
            if partner >= size:
                partner -= size
            one = begin + place
            other = begin + partner
            if listed:
                one = order[one]
                other = order[other]
            differ = False
            for axis in axes:
                if codes[one, axis] != codes[other, axis]:
                    differ = True
            if not differ:
                continue
            change = 0.0
            changed = 0
            for table in tables:
                old_one = 0
                old_other = 0
                new_one = 0
                new_other = 0
                for member in range(first[table], first[table + 1]):
                    axis = members[member]
                    at_one = numbers[places[member] + codes[one, axis]]
                    at_other = numbers[places[member] + codes[other, axis]]
                    old_one += at_one
                    old_other += at_other
                    if inside[axis]:
                        new_one += at_other
                        new_other += at_one
                    else:
                        new_one += at_one
                        new_other += at_other
                # Records that agree on what moves, or on all else, leave the table as it is.
                if new_one == old_one or (both and new_one == old_other):
                    continue
                scratch[changed, 0] = old_one
                scratch[changed, 1] = new_one
                scratch[changed, 2] = old_other
                scratch[changed, 3] = new_other
                changed += 1
                change += slopes[new_one] - slopes[old_one] + weights[new_one] + weights[old_one]
                if both:
                    change += slopes[new_other] - slopes[old_other] + weights[new_other] + weights[old_other]
            if not change < 0:
                continue
            made += 1
            for row in range(changed):
                slopes[scratch[row, 0]] -= 2 * weights[scratch[row, 0]]
                slopes[scratch[row, 1]] += 2 * weights[scratch[row, 1]]
                if both:
                    slopes[scratch[row, 2]] -= 2 * weights[scratch[row, 2]]
                    slopes[scratch[row, 3]] += 2 * weights[scratch[row, 3]]
            for axis in axes:
                held = codes[one, axis]
                codes[one, axis] = codes[other, axis]
                if both:
                    codes[other, axis] = held
    return made


@cache
def _compiled() -> Callable[..., int]:
    import numba

    compiled: Callable[..., int] = numba.njit(nogil=True)(pair_sweep)
    return compiled


# --- many at once ---------------------------------------------------------------------------------------------------


def _pairs(strata: Strata, draw: np.random.Generator, both: bool) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Pairs of records of one stratum, in random order: each record once, or, where one changes, once as that one."""
    sizes = np.diff(strata.starts)
    total = int(strata.starts[-1])
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = np.lexsort((draw.random(total), stratum))
    members = shuffled if not len(strata.order) else strata.order[shuffled]
    place = np.arange(total) - strata.starts[:-1][stratum]
    if both:
        halves = sizes[stratum] // 2
        firsts = np.flatnonzero(place < halves)
        seconds = firsts + halves[firsts]
    else:
        firsts = np.flatnonzero(sizes[stratum] > 1)
        shifted = (place + _shifts(strata, draw)[stratum]) % sizes[stratum]
        seconds = (strata.starts[:-1][stratum] + shifted)[firsts]
    mixed = draw.permutation(len(firsts))
    return members[firsts[mixed]], members[seconds[mixed]]


def _block(
    state: RecordState,
    move: RecordMove,
    tables: Numbers,
    pairs: tuple[NDArray[np.integer], NDArray[np.integer]],
    draw: np.random.Generator,
) -> int:
    """Make a share of the moves of a block that look good, such that the distance falls."""
    one, other = pairs
    old, new = _cells(state, move, tables, one, other)
    weights, slopes = state.goal.weights, state.slopes
    moved = old != new
    if move.both:
        # Both records change cells, or trade them: then the two old cells are the two new ones.
        traded = (old[:, 0] == new[:, 1]) & (old[:, 1] == new[:, 0])
        moved &= ~traded[:, None]
    steps = slopes[new] - slopes[old] + weights[new] + weights[old]
    change = np.where(moved, steps, 0.0).sum(axis=(0, 1))
    good = np.flatnonzero(change < 0)
    while good.size:
        chosen = good[draw.random(good.size) < state.share]
        if not chosen.size:
            chosen = good[np.argmin(change[good])][None]
        delta = np.zeros(len(slopes))
        picked = moved[:, :, chosen]
        np.add.at(delta, new[:, :, chosen][picked], 1.0)
        np.add.at(delta, old[:, :, chosen][picked], -1.0)
        at = np.flatnonzero(delta)
        gain = float((delta[at] * (slopes[at] + weights[at] * delta[at])).sum())
        if gain < 0:
            slopes[at] += 2 * weights[at] * delta[at]
            _exchange(state.codes, move, one[chosen], other[chosen])
            state.share = min(1.0, 1.5 * state.share)
            return len(chosen)
        if len(chosen) == 1:
            return 0
        state.share = max(_LEAST_SHARE, state.share / 2)
        if state.share == _LEAST_SHARE:
            good = good[np.argsort(change[good])[:1]]
    return 0


def _cells(
    state: RecordState, move: RecordMove, tables: Numbers, one: NDArray[np.integer], other: NDArray[np.integer]
) -> tuple[Numbers, Numbers]:
    """The cells that the records of pairs have and would have: by table, by record, by pair."""
    layout = state.goal.layout
    before = state.codes[one]
    partner = state.codes[other]
    after = before.copy()
    after[:, list(move.axes)] = partner[:, list(move.axes)]
    rows = [(before, after)]
    if move.both:
        changed = partner.copy()
        changed[:, list(move.axes)] = before[:, list(move.axes)]
        rows.append((partner, changed))
    shape = (len(tables), len(rows), len(one))
    old = np.zeros(shape, dtype=np.int64)
    new = np.zeros(shape, dtype=np.int64)
    for number, table in enumerate(tables.tolist()):
        for side, (held, taken) in enumerate(rows):
            old[number, side] = layout.cells(held, table)
            new[number, side] = layout.cells(taken, table)
    return old, new


def _exchange(codes: Codes, move: RecordMove, one: NDArray[np.integer], other: NDArray[np.integer]) -> None:
    """Make moves of pairs; a record takes part in one exchange at most."""
    for axis in move.axes:
        held = codes[one, axis]
        codes[one, axis] = codes[other, axis]
        if move.both:
            codes[other, axis] = held
