"""How one side of a table is split, again and again into two, down to single rows (or columns).

The lattice sampler draws one integer for each pair of a row split and a column split. Which trees are fast, and the
drawing itself, are in `lattice`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from semidp.noise.rejection import Floats, Integers


@dataclass(frozen=True)
class Splits:
    """A binary tree over `size` positions; nodes are numbered, the positions themselves first.

    Split k cuts node `parent[k]` (of n positions) into `left[k]` (of l positions) and `right[k]`. `share` = l/n is the
    part of the parent's sum expected on the left, `weight` = l (n - l)/n the variance of that part for unit noise, each
    as numerator and denominator; `depth` counts the splits above.
    """

    size: int
    nodes: int
    parent: Integers
    left: Integers
    right: Integers
    depth: Integers
    share: tuple[Integers, Integers]
    weight: tuple[Integers, Integers]

    @cached_property
    def weights(self) -> Floats:
        """The weights as floats."""
        return self.weight[0] / self.weight[1]


def zero_sum(size: int, run: int) -> Splits:
    """Return a tree for positions whose values sum to zero: halves down to `run` positions, then one at a time.

    Short runs make a shallow tree, hence few steps; long runs have few splits of small weight (1/2, where two single
    positions part), which is what acceptance depends on.

    >>> tree = zero_sum(4, run=1)
    >>> tree.depth.tolist(), tree.weights.tolist()
    ([0, 1, 1], [1.0, 0.5, 0.5])
    >>> zero_sum(4, run=4).weights.round(3).tolist()
    [0.75, 0.667, 0.5]
    """
    parents, lefts, rights, depths, sizes, left_sizes = ([np.empty(0, dtype=np.int64)] for _ in range(6))
    start, stop, node = np.array([0]), np.array([size]), np.array([2 * size - 2])
    unused, depth = 2 * size - 3, 0  # inner nodes are numbered downwards from the root, which is the last node
    while True:
        inner = stop - start > 1
        start, stop, node = start[inner], stop[inner], node[inner]
        if start.size == 0:
            break
        count = stop - start
        middle = start + np.where(count <= run, 1, count // 2)
        starts, stops = np.concatenate([start, middle]), np.concatenate([middle, stop])
        single = stops - starts == 1
        children = np.where(single, starts, unused - np.cumsum(~single) + 1)
        unused -= int(np.sum(~single))
        for column, values in zip(
            (parents, lefts, rights, depths, sizes, left_sizes),
            (node, children[: node.size], children[node.size :], np.full(node.size, depth), count, middle - start),
            strict=True,
        ):
            column.append(values)
        start, stop, node, depth = starts, stops, children, depth + 1
    n, part = np.concatenate(sizes), np.concatenate(left_sizes)
    return Splits(
        size,
        2 * size - 1,
        np.concatenate(parents),
        np.concatenate(lefts),
        np.concatenate(rights),
        np.concatenate(depths),
        _reduced(part, n),
        _reduced(part * (n - part), n),
    )


def single() -> Splits:
    """Return the tree of one position whose value is free: node 1 stands for a sum of zero, node 2 for nothing.

    With share 0 and weight 1 the free side drops out of every formula.

    >>> single().nodes
    3
    """
    zero, one, two = (np.array([k]) for k in range(3))
    return Splits(1, 3, parent=one, left=zero, right=two, depth=zero, share=(zero, one), weight=(one, one))


def _reduced(top: Integers, bottom: Integers) -> tuple[Integers, Integers]:
    common = np.gcd(top, bottom)
    return top // common, bottom // common
