"""Places in a tree: every node of one depth lies in one node of the depth above, and counts add up.

Only the shape of the tree is here; what was measured in it is in `publish.estimation.measurements`.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError

Index = NDArray[np.int64]


def _indices(arrays: Sequence[Sequence[int] | Index]) -> tuple[Index, ...]:
    converted = []
    for array in arrays:
        as_numbers = np.asarray(array)
        if as_numbers.ndim != 1 or not np.issubdtype(as_numbers.dtype, np.integer):
            raise InputError(
                "the parents of a depth are a list of whole numbers, one for each node"
            )
        converted.append(as_numbers.astype(np.int64))
    return tuple(converted)


@frozen(eq=False)
class Places:
    """A tree of places: depth 0 holds the roots, and `parents[k]` the parents of the nodes of depth
    k + 1.

    A node without children may lie at any depth.

    Parameters
    ----------
    parents
        For each depth below the first, the number of the parent (in the depth above) of every node.
    roots
        Number of nodes of depth 0.

    Examples
    --------
    >>> state = Places([[0, 0], [0, 0, 1]])
    >>> state.counts
    (1, 2, 3)
    """

    parents: tuple[Index, ...] = field(converter=_indices, default=())
    roots: int = 1

    def __attrs_post_init__(self) -> None:
        if self.roots < 1:
            raise InputError(f"a tree has at least one root, not {self.roots}")
        above = self.roots
        for depth, parents in enumerate(self.parents, 1):
            if parents.size == 0:
                raise InputError(f"depth {depth} has no node: leave it out")
            if parents.min() < 0 or parents.max() >= above:
                raise InputError(
                    f"a node of depth {depth} names a parent that is not in depth {depth - 1}"
                )
            above = len(parents)

    @classmethod
    def from_codes(cls, codes: Sequence[Sequence[str]]) -> "Places":
        """Return the tree of codes that start with the code of their parent, such as 15, 15001,
        15001020100.

        >>> [
        ...     level.tolist()
        ...     for level in Places.from_codes([["15"], ["15001", "15003"], ["1500302"]]).parents
        ... ]
        [[0, 0], [1]]
        """
        parents = []
        for above, below in itertools.pairwise(codes):
            number_of = {code: number for number, code in enumerate(above)}
            # Longer codes first: a place lies in the smallest one that its code starts with.
            lengths = sorted({len(code) for code in above}, reverse=True)
            parents.append([_parent(code, number_of, lengths) for code in below])
        return cls(parents, roots=len(codes[0]))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of nodes at each depth."""
        return (self.roots, *(len(parents) for parents in self.parents))

    @property
    def depths(self) -> range:
        """Depths from the roots down."""
        return range(len(self.parents) + 1)

    def ancestors(self, depth: int, above: int) -> Index:
        """Ancestor at depth `above` of every node of `depth`; the node itself if the depths are
        equal.

        >>> Places([[0, 0], [0, 0, 1]]).ancestors(2, 0).tolist()
        [0, 0, 0]
        """
        nodes = np.arange(self.counts[depth])
        for upper in range(depth - 1, above - 1, -1):
            nodes = self.parents[upper][nodes]
        return nodes


def _parent(code: str, number_of: dict[str, int], lengths: list[int]) -> int:
    for length in lengths:
        number = number_of.get(code[:length])
        if number is not None:
            return number
    raise InputError(
        f"the place {code!r} lies in no place of the depth above: no code there starts it"
    )
