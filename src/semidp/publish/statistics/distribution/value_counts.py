"""Counts up to each value, from the noisy differences of halves by which a distribution is
measured.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.schema.margins import Floats
from semidp.promise.sensitivity.distribution_space import DistributionSpace, ValueTree


def count_up_to(
    tree: ValueTree, differences: NDArray[np.number], sizes: NDArray[np.number]
) -> Floats:
    """Return F of every gap from D of every node, a row a group of known size; noise in D may
    disorder F.

    >>> tree = ValueTree(5)
    >>> differences = tree.differences(np.array([[4, 1, 0, 2, 3]]))
    >>> count_up_to(tree, differences, np.array([10])).tolist()
    [[4.0, 5.0, 5.0, 7.0]]
    """
    counts = np.zeros((len(differences), tree.values + 1))
    counts[:, -1] = sizes
    # From the root down: the two ends of a node are known before its gap.
    for gaps in tree.levels:
        low, high = tree.low[gaps], tree.high[gaps]
        ends = counts[:, low] + counts[:, high]
        whole = ends + differences[:, gaps]
        counts[:, gaps + 1] = whole / 2
    return counts[:, 1:-1]


@lru_cache(maxsize=16)
def gap_weights(tree: ValueTree) -> Floats:
    """Return the weight of D of the node above a gap at each depth in F of the gap: rows are gaps,
    columns depths.

    A gap has the weight 1/2 on its own node. On nodes above it has the mean of the weights of the
    two gaps that end its node, which lie on the same path.
    """
    weights = np.zeros((tree.values + 1, tree.depth))
    for column, gaps in enumerate(tree.levels):
        low, high = tree.low[gaps], tree.high[gaps]
        ends = weights[low] + weights[high]
        weights[gaps + 1] = ends / 2
        weights[gaps + 1, column] = 0.5
    return weights[1:-1]


def count_groups_up_to(space: DistributionSpace, differences: ArrayLike) -> Floats:
    """Return the records up to each value but the last, a row a group, from the differences."""
    rows = space.project(differences).reshape(len(space.sizes), -1)
    return count_up_to(space.tree, rows, space.sizes)
