"""The search: sweeps over records until the tables get no closer, or time is up.

Pairs are proposed, and a move is made if it brings the tables closer to their estimates: one
pair after the other in compiled code (numba, the extra ``semidp[records]``), or many at once in
numpy. Both keep the exact totals, because every move does; they visit pairs in a different
order, so their records differ.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from semidp.inference.records.record_cells import (
    Codes,
    Goal,
    Layout,
    Numbers,
    RecordMove,
    RecordStrata,
    build_strata,
    proposed_values,
)
from semidp.promise.progress import Progress, silent

_AT_ONCE = 1 << 14  # pairs that numpy looks at together
_ROUNDS = 16  # in which moves of one block are made


@define(eq=False)
class RecordState:
    """The current records: their codes, and how the distance changes with each count.

    Parameters
    ----------
    goal
        The tables.
    codes
        One row per record, one column per feature; changed in place.
    """

    goal: Goal
    codes: Codes = field(repr=False)
    slopes: NDArray[np.float64] = field(init=False, repr=False)
    share: float = field(default=1.0, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.slopes = self.goal.slopes(self.counts)

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
    strata = _partners(state, move)
    layout = state.goal.layout
    inside = np.zeros(state.codes.shape[1], dtype=np.bool_)
    inside[list(move.axes)] = True
    scratch = np.zeros((len(layout.views), 4), dtype=np.int64)
    made = _compile_sweep()(
        state.codes,
        strata.order,
        strata.starts,
        _shifts(strata, draw),
        np.array(move.axes, dtype=np.int64),
        inside,
        _find_changed_margins(layout, move),
        *layout.members,
        state.slopes,
        state.goal.weights,
        move.both,
        _propose_values(state, move, draw),
        scratch,
    )
    return int(made)


def vector_sweep(state: RecordState, move: RecordMove, draw: np.random.Generator) -> int:
    """Propose a move to pairs of records, many at once.

    Moves that each look good may overshoot together. A random share of those in a block is made; if
    that increases the distance, it is undone and the share halved.
    """
    tables = _find_changed_margins(state.goal.layout, move)
    proposed = _propose_values(state, move, draw)
    if move.both:
        first, second = _pairs(_partners(state, move), draw)
    else:
        first = second = draw.permutation(len(state.codes))
    made = 0
    for start in range(0, len(first), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        made += _block(state, move, tables, Proposals(first[block], second[block], proposed), draw)
    return made


def _partners(state: RecordState, move: RecordMove) -> RecordStrata:
    """Records by the stratum in which they exchange values; all in one where each changes by
    itself.
    """
    stratum = move.stratum if move.both else state.goal.grid.nothing
    return build_strata(state.goal.grid, state.codes, stratum)


def _propose_values(state: RecordState, move: RecordMove, draw: np.random.Generator) -> Codes:
    """The values that records would take by themselves; none for exchanges."""
    if move.both:
        return np.zeros(0, dtype=state.codes.dtype)
    return proposed_values(state.goal.grid, state.codes, move, draw)


def _find_changed_margins(layout: Layout, move: RecordMove) -> Numbers:
    """The margins that a move can change."""
    return (
        layout.find_changed_margins(move.axes)
        if move.both
        else layout.find_naming_margins(move.axes[0])
    )


def _shifts(strata: RecordStrata, draw: np.random.Generator) -> Numbers:
    """For each stratum by how many places partners are apart: at least 1, and less than its
    size.
    """
    sizes = np.diff(strata.starts)
    return np.asarray(draw.integers(1, np.maximum(sizes, 2)), dtype=np.int64)


# --- one after the other --------------------------------------------------------------------------


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
    proposed: Any,
    scratch: Any,
) -> int:
    """Propose to every record an exchange with a partner of its stratum, or a value; accept if the
    distance falls.

    numba compiles it; plain Python gives the same result, slowly. A move into an impossible cell
    has an infinite slope, so its distance never falls.
    """
    made = 0
    listed = len(order) > 0
    for stratum in range(len(starts) - 1):
        begin = starts[stratum]
        size = starts[stratum + 1] - begin
        if size < 2 and both:
            continue
        shift = shifts[stratum]
        for place in range(size):
            one = begin + place
            other = one
            if both:
                partner = place + shift
                if partner >= size:
                    partner -= size
                other = begin + partner
            if listed:
                one = order[one]
                other = order[other]
            differ = False
            for axis in axes:
                if (both and codes[one, axis] != codes[other, axis]) or (
                    not both and codes[one, axis] != proposed[one]
                ):
                    differ = True
            if not differ:
                continue
            # What the distance would change by: a record leaves its old cells and enters the new
            # ones.
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
                    value = proposed[one] if inside[axis] and not both else codes[other, axis]
                    at_other = numbers[places[member] + value]
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
                    change += (
                        slopes[new_other]
                        - slopes[old_other]
                        + weights[new_other]
                        + weights[old_other]
                    )
            if not change < 0:
                continue
            made += 1
            for row in range(changed):
                # Cells that a record leaves stand before those that it enters.
                for column in range(4 if both else 2):
                    cell = scratch[row, column]
                    step = 2 * weights[cell]
                    slopes[cell] += step if column % 2 else -step
            for axis in axes:
                held = codes[one, axis]
                if both:
                    codes[one, axis] = codes[other, axis]
                    codes[other, axis] = held
                else:
                    codes[one, axis] = proposed[one]
    return made


@cache
def _compile_sweep() -> Callable[..., int]:
    import numba

    compiled: Callable[..., int] = numba.njit(nogil=True)(pair_sweep)
    return compiled


# --- many at once ---------------------------------------------------------------------------------


@frozen(eq=False)
class Proposals:
    """Moves that are evaluated together: pairs of records, or single ones (then both are the same)
    and new values.
    """

    one: NDArray[np.integer]
    other: NDArray[np.integer]
    values: Codes


def _pairs(
    strata: RecordStrata, draw: np.random.Generator
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Pairs of records of one stratum, in random order, each record in one pair at most."""
    sizes = np.diff(strata.starts)
    total = int(strata.starts[-1])
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = np.lexsort((draw.random(total), stratum))
    members = strata.order[shuffled] if len(strata.order) else shuffled
    place = np.arange(total) - strata.starts[:-1][stratum]
    halves = sizes[stratum] // 2
    firsts = draw.permutation(np.flatnonzero(place < halves))
    return members[firsts], members[firsts + halves[firsts]]


def _block(
    state: RecordState,
    move: RecordMove,
    tables: Numbers,
    proposals: Proposals,
    draw: np.random.Generator,
) -> int:
    """Make the moves of a block in rounds. A round makes a share of the moves that still look good,
    so the distance falls.
    """
    old, new = _cells(state, move, tables, proposals)
    if move.both:
        # Records that agree on all else trade their cells in a table: nothing moves there.
        traded = (old[:, 0] == new[:, 1]) & (old[:, 1] == new[:, 0])
        new = np.where(traded[:, None], old, new)
    weights, slopes = state.goal.weights, state.slopes
    left = np.arange(len(proposals.one))
    made = 0
    for _ in range(_ROUNDS):
        steps = slopes[new] - slopes[old] + weights[new] + weights[old]
        change = np.where(old != new, steps, 0.0).sum(axis=(0, 1))
        good = change < 0
        old, new, left, change = old[:, :, good], new[:, :, good], left[good], change[good]
        if not left.size:
            break
        chosen = draw.random(left.size) < state.share
        # One move alone that looks good is good, so every round gets somewhere.
        chosen[np.argmin(change)] |= not chosen.any()
        delta = np.bincount(new[:, :, chosen].ravel(), minlength=len(slopes)).astype(np.float64)
        delta -= np.bincount(old[:, :, chosen].ravel(), minlength=len(slopes))
        at = np.flatnonzero(delta)
        gain = float((delta[at] * (slopes[at] + weights[at] * delta[at])).sum())
        if gain >= 0:
            state.share /= 2
            continue
        slopes[at] += 2 * weights[at] * delta[at]
        _make(state.codes, move, proposals, left[chosen])
        made += int(chosen.sum())
        state.share = min(1.0, 1.5 * state.share)
        old, new, left = old[:, :, ~chosen], new[:, :, ~chosen], left[~chosen]
    return made


def _cells(
    state: RecordState, move: RecordMove, tables: Numbers, proposals: Proposals
) -> tuple[Numbers, Numbers]:
    """The cells that records have and would have: by table, by record of a pair, by proposal."""
    layout = state.goal.layout
    before = state.codes[proposals.one]
    after = before.copy()
    rows = [(before, after)]
    axes = list(move.axes)
    if move.both:
        partner = state.codes[proposals.other]
        changed = partner.copy()
        after[:, axes] = partner[:, axes]
        changed[:, axes] = before[:, axes]
        rows.append((partner, changed))
    else:
        after[:, axes[0]] = proposals.values[proposals.one]
    shape = (len(tables), len(rows), len(before))
    old = np.zeros(shape, dtype=np.int64)
    new = np.zeros(shape, dtype=np.int64)
    for number, table in enumerate(tables.tolist()):
        for side, (held, taken) in enumerate(rows):
            old[number, side] = layout.cells(held, table)
            new[number, side] = layout.cells(taken, table)
    return old, new


def _make(codes: Codes, move: RecordMove, proposals: Proposals, chosen: NDArray[np.intp]) -> None:
    """Make chosen moves; a record takes part in one of them at most."""
    one, other = proposals.one[chosen], proposals.other[chosen]
    for axis in move.axes:
        held = codes[one, axis]
        if move.both:
            codes[one, axis] = codes[other, axis]
            codes[other, axis] = held
        else:
            codes[one, axis] = proposals.values[one]


SECONDS = 60.0
"""The default time limit of the search, in seconds."""

_PASSES = 10  # after which the distance is compared with the one before them
_WORTH = 0.02  # the share of the distance that so many passes must take away
_TASK = "swapping records"


class Ending(StrEnum):
    """Why a search ended.

    >>> Ending("time")
    <Ending.TIME: 'time'>
    """

    MATCHED = "matched"
    """Nothing had to be searched: the records have every published table."""
    SETTLED = "settled"
    """Ten more passes took away less than 2% of the squared distance."""
    TIME = "time"
    """Time was up."""
    INTERRUPTED = "interrupted"
    """Somebody asked to stop."""


@frozen
class Approach:
    """The settings of a search.

    Parameters
    ----------
    sweep
        Compiled, or many pairs at once.
    seconds
        The time limit.
    progress
        Called with the distance after each pass.
    stop
        Called after each kind of move, to decide whether to end.
    """

    sweep: Sweep
    seconds: float = SECONDS
    progress: Progress = silent
    stop: Callable[[], bool] = bool

    def run(self, state: RecordState, moves: list[RecordMove], draw: np.random.Generator) -> Ending:
        """Bring records as close to their tables as possible; every state on the way has the exact
        totals.
        """
        started = time.monotonic()
        before = state.goal.distance(state.slopes)
        passes = 0
        while moves:
            for number in draw.permutation(len(moves)):
                self.sweep(state, moves[number], draw)
                # Between two sweeps records are whole, so this is the place to end.
                if self.stop():
                    return Ending.INTERRUPTED
                if time.monotonic() - started > self.seconds:
                    return Ending.TIME
            passes += 1
            share = state.goal.share(state.slopes)
            self.progress(
                f"{_TASK}: {share:.2f} standard errors", time.monotonic() - started, self.seconds
            )
            # One pass says little: the last moves are rare.
            if passes % _PASSES == 0:
                distance = state.goal.distance(state.slopes)
                if distance >= (1 - _WORTH) * before:
                    return Ending.SETTLED
                before = distance
        return Ending.SETTLED
