"""The simplest moves of any margins: two records exchange what lies beyond a separator, or a cube of signs.

They change no published margin. Whether t holds the records for them, and which norms they attain, `norms` decides.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from semidp.invariants.structure import Axes, Published, running_intersection

Levels = dict[int, int]

_MOST_LEVELS = 20  # levels of a separator that are tried, commonest first


def exchange(shape: Axes, margins: Sequence[Published]) -> NDArray[np.int64] | None:
    """Return a four-cell move among common cells, or None if none is found.

    >>> chain = [Published((0, 1), np.full((2, 2), 5)), Published((1, 2), np.full((2, 2), 5))]
    >>> move = exchange((2, 2, 2), chain)
    >>> int(abs(move).sum()), int(abs(move.sum(axis=2)).max()), int(abs(move.sum(axis=0)).max())
    (4, 0, 0)
    """
    by_axes = {margin.axes: margin for margin in margins}
    for root in by_axes:
        tree = running_intersection([root, *(axes for axes in by_axes if axes != root)])
        if tree is None or len(tree) < 2:
            return None
        beyond = _beyond(tree)
        for near, far in _starts(by_axes[tree[0]], by_axes[tree[1]]):
            one, other = (_completed(shape, [by_axes[axes] for axes in tree[2:]], start) for start in (near, far))
            move = np.zeros(shape, dtype=np.int64)
            for sign, left, right in ((-1, one, one), (-1, other, other), (1, one, other), (1, other, one)):
                move[tuple((right if axis in beyond else left)[axis] for axis in range(len(shape)))] += sign
            if np.abs(move).sum() == 4:
                return move
    return None


def cube(shape: Axes, margins: Sequence[Published]) -> NDArray[np.int64] | None:
    """Return ±1 by parity on two common levels of some features that no margin holds together, as few as possible.

    Every margin misses one of these features, and over it the signs cancel. AB, BC and AC: eight cells, four records.

    >>> pairs = [Published(axes, np.full((2, 2), 8)) for axes in ((0, 1), (1, 2), (0, 2))]
    >>> int(abs(cube((2, 2, 2), pairs)).sum())
    8
    """
    levels = [np.arange(size) for size in shape]
    for margin in margins:
        for axis in margin.axes:
            counts = margin.over((axis,))
            levels[axis] = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    varying = [axis for axis, choice in enumerate(levels) if len(choice) > 1]
    for size in range(1, len(varying) + 1):
        for chosen in combinations(varying, size):
            if not any({*chosen} <= {*margin.axes} for margin in margins):
                move = np.zeros(shape, dtype=np.int64)
                for corner in product((0, 1), repeat=size):
                    side = dict(zip(chosen, corner, strict=True))
                    move[tuple(int(choice[side.get(axis, 0)]) for axis, choice in enumerate(levels))] = (-1) ** sum(
                        corner
                    )
                return move
    return None


def _starts(parent: Published, child: Published) -> Iterator[tuple[Levels, Levels]]:
    """At each level of the separator, the two commonest cells of either margin: one pair for each record."""
    shared = tuple(axis for axis in parent.axes if axis in child.axes)
    sizes = parent.over(shared)
    for flat in np.argsort(-sizes, axis=None, kind="stable")[:_MOST_LEVELS]:
        level = np.unravel_index(flat, sizes.shape) if shared else ()
        fixed = {axis: int(code) for axis, code in zip(shared, level, strict=True)}
        left, right = _commonest(parent, fixed), _commonest(child, fixed)
        if len(left) == len(right) == 2:
            yield {**left[0], **right[0]}, {**left[1], **right[1]}


def _commonest(margin: Published, fixed: Levels) -> list[Levels]:
    """The two cells of a margin with the largest counts among those with the fixed levels."""
    counts = np.asarray(margin.counts[tuple(fixed.get(axis, slice(None)) for axis in margin.axes)])
    rest = [axis for axis in margin.axes if axis not in fixed]
    order = np.argsort(-counts, axis=None, kind="stable")[:2]
    found = [np.unravel_index(flat, counts.shape) for flat in order if counts.ravel()[flat] > 0]
    return [{**fixed, **{axis: int(code) for axis, code in zip(rest, cell, strict=True)}} for cell in found]


def _completed(shape: Axes, margins: Sequence[Published], start: Levels) -> Levels:
    """Complete a record along the junction tree, at the commonest cell of each margin (else at level 0)."""
    record = dict(start)
    for margin in margins:
        record.update(_commonest(margin, {axis: record[axis] for axis in margin.axes if axis in record})[0])
    return {axis: record.get(axis, 0) for axis in range(len(shape))}


def _beyond(tree: Sequence[Axes]) -> set[int]:
    """The features on the second margin's side of the edge between the first two margins of a junction tree."""
    side = {tree[0]: False, tree[1]: True}
    for axes in tree[2:]:
        side[axes] = side[max(side, key=lambda other: len({*axes} & {*other}))]
    return {axis for axes, far in side.items() if far for axis in axes} - {*tree[0]}
