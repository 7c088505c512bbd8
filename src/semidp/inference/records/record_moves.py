"""Moves of records that keep every exact total: two records exchange values, or one takes another
value.

Two records that exchange the features B keep a margin M if M lies inside B or outside of it, or if
they agree on its part in B or on its part outside. Who must agree with whom is a stratum: a view
that both share.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semidp.inference.records.record_cells import Codes, Numbers
from semidp.promise.schema.margins import Grid, View, join, list_axes, minimal

_MOST_CHOICES = 64  # ways to agree that are looked at for one set of features
_MOST_MOVES = 256


@dataclass(frozen=True)
class RecordMove:
    """A kind of move between two records of one stratum.

    Parameters
    ----------
    axes
        The features whose values move.
    stratum
        What both records share, at which depth.
    both
        Whether two records exchange the values; else one record takes another value of one feature.
    depth
        The depth of that feature in the records; 0 for exchanges.

    Examples
    --------
    >>> moves = record_moves(Grid.flat((2, 2, 2)), [(1, 1, 0)], (1, 1, 1))
    >>> [(move.axes, move.stratum) for move in moves if move.both]
    [((0,), (0, 1, 0)), ((1,), (1, 0, 0)), ((2,), (0, 0, 0)), ((0, 1), (0, 0, 0))]
    """

    axes: tuple[int, ...]
    stratum: View
    both: bool
    depth: int = 0


def record_moves(grid: Grid, margins: Sequence[View], used: View) -> list[RecordMove]:
    """Return moves that keep margins: exchanges of single features and of all features of a margin,
    and free changes.

    A feature that no margin names, or only at a coarser depth, may also change in one record alone.

    Parameters
    ----------
    grid
        The features.
    margins
        The exact totals, none inside another.
    used
        The depth at which each feature is known in the records.
    """
    singles = [(axis,) for axis in list_axes(used)]
    blocks = [list_axes(margin) for margin in margins if len(list_axes(margin)) > 1]
    moves: list[RecordMove] = []
    for axes in dict.fromkeys([*singles, *blocks]):
        for stratum in _strata(margins, axes, len(used)):
            # Records that agree on a whole feature do not exchange it: a smaller set of features
            # says the same.
            if all(stratum[axis] < used[axis] for axis in axes):
                moves.append(RecordMove(axes, stratum, True))
    # Below the depth at which totals name a feature, or without any, a record may change by itself.
    nothing = grid.nothing
    fixed = join(nothing, *margins) if margins else nothing
    for (axis,) in singles:
        if fixed[axis] < used[axis]:
            moves.append(
                RecordMove((axis,), grid.build_feature_view(axis, fixed[axis]), False, used[axis])
            )
    return moves[:_MOST_MOVES]


def _strata(margins: Sequence[View], axes: tuple[int, ...], features: int) -> list[View]:
    """Coarsest views that two records must share, so that exchanging `axes` keeps every margin."""
    inside: list[View] = []
    outside: list[View] = []
    for margin in margins:
        # Records keep this margin if they agree on either side of it.
        part = list(margin)
        beyond = list(margin)
        for axis in range(features):
            side = beyond if axis in axes else part
            side[axis] = 0
        if any(part) and any(beyond):
            inside.append(tuple(part))
            outside.append(tuple(beyond))
    nothing = (0,) * features
    views: set[View] = set()
    # The first choice is to agree on everything outside; past the limit no other is looked at.
    for choice in itertools.islice(
        itertools.product(*zip(outside, inside, strict=True)), _MOST_CHOICES
    ):
        views.add(join(nothing, *choice) if choice else nothing)
    # A finer stratum than another holds fewer pairs, and none that the other does not.
    return minimal(sorted(views))


@dataclass(frozen=True, eq=False)
class RecordStrata:
    """Records by stratum: an order of their numbers, and where each stratum begins in it.

    Parameters
    ----------
    order
        The records, stratum by stratum; empty where there is one stratum, of all records as they
        stand.
    starts
        Where each stratum begins, and the end.
    """

    order: NDArray[np.integer]
    starts: Numbers


def build_strata(grid: Grid, codes: Codes, view: View) -> RecordStrata:
    """Return records by what they share at a view, in linear time.

    >>> strata = build_strata(
    ...     Grid.flat((2, 2)), np.array([[1, 0], [0, 0], [1, 1]], dtype=np.uint8), (1, 0)
    ... )
    >>> strata.order.tolist(), strata.starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    count = len(codes)
    if not any(view):
        return RecordStrata(np.zeros(0, dtype=np.int32), np.array([0, count], dtype=np.int64))
    keys = stratum_keys(grid, codes, view)
    if grid.count_margin_cells(view) > 2**16:
        _, keys = np.unique(keys, return_inverse=True)
    # Sorting numbers of 16 bits takes linear time.
    sizes = np.bincount(keys)
    few = len(sizes) <= 2**16
    narrow = keys.astype(np.uint16) if few else keys
    order: NDArray[np.integer] = np.argsort(narrow, kind="stable")
    if count < 2**31:
        order = order.astype(np.int32)
    ends = np.cumsum(sizes[sizes > 0])
    return RecordStrata(order, np.append(0, ends).astype(np.int64))


def proposed_values(grid: Grid, codes: Codes, move: RecordMove, draw: np.random.Generator) -> Codes:
    """Return for each record another value of a feature, below the same node of the stratum.

    Half of them are those of other records, so that frequent values are proposed often. The others
    are any value: one that no record has could not come back otherwise.

    >>> move = RecordMove((0,), (0, 0), False, 1)
    >>> codes = np.zeros((100, 2), dtype=np.uint8)
    >>> np.unique(
    ...     proposed_values(Grid.flat((3, 2)), codes, move, np.random.default_rng(1))
    ... ).tolist()
    [0, 1, 2]
    """
    (axis,) = move.axes
    chain = grid.chains[axis]
    coarse, fine = move.stratum[axis], move.depth
    node = chain.find_leaf_ancestors(coarse)[codes[:, axis]]
    choices = chain.children(coarse, fine)[node]
    child = chain.first(coarse, fine)[node] + (draw.random(len(codes)) * choices).astype(np.intp)
    values = np.asarray(chain.starts[fine - 1])[child].astype(codes.dtype)
    strata = build_strata(grid, codes, move.stratum)
    order = strata.order if len(strata.order) else np.arange(len(codes))
    sizes = np.diff(strata.starts)
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    place = (draw.random(len(codes)) * sizes[stratum]).astype(np.intp)
    partners = order[strata.starts[:-1][stratum] + place]
    # A stratum is as likely to be copied as to be drawn anew.
    copied = draw.random(len(codes)) < 0.5
    values[order[copied]] = codes[partners[copied], axis]
    return values


def stratum_keys(grid: Grid, codes: Codes, view: View) -> Numbers:
    """Number what records have at a view: one number for each combination of nodes."""
    keys = np.zeros(len(codes), dtype=np.int64)
    for axis in list_axes(view):
        chain = grid.chains[axis]
        keys = keys * chain.size(view[axis]) + chain.find_leaf_ancestors(view[axis])[codes[:, axis]]
    return keys
