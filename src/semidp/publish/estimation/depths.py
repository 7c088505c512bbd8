"""Depths of a tree as the passes see them: groups of nodes that are alike, and what is known of
each.

Nothing is computed here but sums over children.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen

from semidp.publish.estimation.beliefs import Belief
from semidp.publish.estimation.classes import TableClass
from semidp.publish.estimation.measurements import Floats
from semidp.publish.estimation.places import Index

if TYPE_CHECKING:
    from semidp.publish.estimation.siblings import SiblingContrast


@frozen(eq=False)
class Group:
    """Nodes of one depth that have the same possible cells and were measured with the same
    variances.
    """

    nodes: Index
    cells: Index
    variances: Floats


@define(eq=False)
class ChildSum:
    """What the children of the nodes of a group say of them, in one class.

    `inverse` is ``(Σ V)⁺`` on what is known; `unknown_inverse` that of the sum of the unknown
    projectors.
    """

    total: Belief
    inverse: Floats
    unknown_sum: Floats | None = None
    unknown_inverse: Floats | None = None


@frozen(eq=False)
class Update:
    """How the mean of a group followed from that of its children, in one class: what the way back
    needs.

    `information` and `spread` are those of noisy values measured at the nodes, `design` and `gain`
    those of exact ones; None where there were none.
    """

    information: Floats | None
    spread: Floats | None
    design: Floats | None
    gain: Floats | None


@define(eq=False)
class TreeDepth:
    """One depth of the tree: its groups, and for every class and group what is known."""

    groups: list[Group]
    group_of: Index
    place_of: Index
    beliefs: dict[TableClass, list[Belief]] = field(factory=dict)
    families: dict[TableClass, list[ChildSum | None]] = field(factory=dict)
    updates: dict[TableClass, list[Update]] = field(factory=dict)
    contrasts: "dict[TableClass, SiblingContrast]" = field(factory=dict)

    def locate_groups(self, nodes: Index) -> Iterator[tuple[int, Index]]:
        """Groups of some nodes: the number of each group, and where its nodes stand in `nodes`."""
        numbers = self.group_of[nodes]
        for number in np.unique(numbers):
            yield int(number), np.flatnonzero(numbers == number)


def add_by_parent(sums: Floats, parents: Index, parts: Floats, cells: tuple[Index, ...]) -> None:
    """Add parts to the sums of their parents, at some cells; parts of length 1 are those of every
    child.
    """
    if len(parts) == 1 and len(parents) > 1:
        # Children that share a matrix are counted, not added one by one.
        present, children = np.unique(parents, return_counts=True)
        lengths = (-1,) + (1,) * (parts.ndim - 1)
        added = children.reshape(lengths) * parts
    else:
        order = np.argsort(parents, kind="stable")
        present, starts = np.unique(parents[order], return_index=True)
        added = (
            np.add.reduceat(parts[order], starts, axis=0)
            if len(present) < len(order)
            else parts[order]
        )
    sums[np.ix_(present, *cells)] += added
