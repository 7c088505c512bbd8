"""The facets of the 4 x 4 balls, one of each kind.

Permutations of rows and columns, transposition and sign turn these few into all 866 (a = 2) and 3818 (a = 3); a test
proves that none is missing. Larger balls have too many.
"""

import itertools
from functools import cache

import numpy as np
from numpy.typing import NDArray

# upper left 3 x 3 cells of six times the normal; its last row and column are zero
KINDS = {
    2: (
        ((6, 0, 0), (0, 0, 0), (0, 0, 0)),
        ((6, 6, 0), (0, 0, 0), (0, 0, 0)),
        ((6, 6, 0), (6, 6, 0), (0, 0, 0)),
        ((6, 0, 0), (0, 0, 0), (0, 0, -6)),
        ((6, 6, 0), (6, 0, 0), (0, 0, 0)),
        ((6, 6, 0), (6, 0, 0), (0, 0, -6)),
        ((6, 3, 3), (3, 6, 0), (3, 0, -3)),
    ),
    3: (
        ((6, 0, 0), (0, 0, 0), (0, 0, 0)),
        ((6, 6, 0), (0, 0, 0), (0, 0, 0)),
        ((6, 6, 0), (6, 6, 0), (0, 0, 0)),
        ((3, 0, 0), (0, 3, 0), (0, 0, -3)),
        ((4, 2, 0), (2, -2, -2), (0, -2, 0)),
        ((4, 2, 2), (2, 4, 0), (2, 0, -2)),
        ((4, 2, 0), (0, 0, -2), (2, -2, 0)),
        ((4, 2, 2), (2, 0, -2), (0, 2, -2)),
        ((2, 2, 4), (4, 0, 4), (2, -2, 0)),
    ),
}


@cache
def facets(a: int) -> NDArray[np.float64]:
    """Return the normals W of all facets ``<V, W> = 1`` of the 4 x 4 ball, with rows and columns that sum to zero.

    >>> facets(2).shape, facets(3).shape
    ((866, 4, 4), (3818, 4, 4))
    """
    orders = np.array(list(itertools.permutations(range(4))))
    found = []
    for kind in KINDS[a]:
        normal = np.pad(np.array(kind), (0, 1)) * 16
        normal = normal - normal.sum(axis=0) // 4 - normal.sum(axis=1, keepdims=True) // 4 + normal.sum() // 16
        for turned in (normal, normal.T, -normal, -normal.T):
            found.append(turned[orders[:, None, :, None], orders[None, :, None, :]].reshape(-1, 4, 4))
    result: NDArray[np.float64] = np.unique(np.concatenate(found), axis=0) / 96
    result.flags.writeable = False
    return result
