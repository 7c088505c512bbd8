"""Contrasts between siblings: what a family says of its children beside what each child says of
itself.

A value that was measured minus the mean of its family is a measurement of ``x_c - b`` with one `b`
for the whole family, of which nothing else is known. Given `b` the children are independent again,
so that the passes over the tree stay what they are, with `b` as one more member of the family.
"""

from collections.abc import Sequence

import numpy as np
from attrs import define, frozen
from numpy.typing import NDArray

from semidp.publish.estimation.beliefs import Belief, scale, symmetric, transpose_matrices
from semidp.publish.estimation.classes import Classes, TableClass, right_side
from semidp.publish.estimation.depths import Group, add_by_parent
from semidp.publish.estimation.measurements import Floats, Observed
from semidp.publish.estimation.places import Index


@define(eq=False)
class SiblingContrast:
    """What contrasts at one depth say in one class.

    Contrasts of the same children have one `b` together; those of other children, such as without a
    level that is known to be empty, have another. The vectors of all of them are stacked.

    Parameters
    ----------
    total
        ``Λ = Σ Q'Q/σ²`` of every node, or once where all share it; zero for nodes that were not
        compared.
    seen
        The same, contrast by contrast, side by side: (nodes or 1, block, block × contrasts).
    common
        What is known of the stacked `b`, for every parent.
    pull
        ``L = Σ S_c Λ``, for every parent: by how much `b` moves the sum of the children.
    """

    total: Floats
    seen: Floats
    common: Belief
    pull: Floats

    def select_seen(self, nodes: Index) -> Floats:
        """How much some nodes see of `b`."""
        return self.seen if len(self.seen) == 1 else self.seen[nodes]

    def select_total(self, nodes: Index) -> Floats:
        """Information of some nodes."""
        return self.total if len(self.total) == 1 else self.total[nodes]


def contrast_numbers(observed: Sequence[Observed], nodes: int) -> list[int]:
    """Number of the contrast that each query belongs to: queries that compare the same nodes belong
    together.
    """
    masks: dict[bytes, int] = {}
    numbers = []
    for one in observed:
        compared = np.isfinite(one.variances(nodes))
        numbers.append(masks.setdefault(compared.tobytes(), len(masks)))
    return numbers


@frozen(eq=False)
class ContrastEvidence:
    """Contrasts that were measured at one depth, centred in their families, ready for any class."""

    observed: tuple[Observed, ...]
    designs: tuple[Floats, ...]
    parts: tuple[dict[TableClass, Floats], ...]
    numbers: tuple[int, ...]

    @classmethod
    def from_observed(
        cls, observed: Sequence[Observed], parents: Index | None, classes: Classes
    ) -> "ContrastEvidence | None":
        """Return the contrasts of a depth; None where there are none."""
        if not observed or parents is None:
            return None
        designs, parts = [], []
        for one in observed:
            variances = one.variances(len(parents))
            values = classes.arrange_values(one.values, one.query).astype(float)
            centred = centred_in_families(values, parents, np.isfinite(variances))
            designs.append(classes.design(one.query))
            parts.append(right_side(one, classes, centred))
        numbers = contrast_numbers(observed, len(parents))
        return cls(tuple(observed), tuple(designs), tuple(parts), tuple(numbers))

    def in_class(
        self, table_class: TableClass, nodes: int, classes: Classes
    ) -> tuple[Floats, Floats] | None:
        """Information ``Λ`` and right side ``Σ Q'z/σ²`` of every contrast and node; None where
        nothing is said.
        """
        block, columns = classes.block, classes.coordinates(table_class)
        several = 1 + max(self.numbers)
        alike = all(one.variance.ndim == 0 for one in self.observed)
        information = np.zeros((several, 1 if alike else nodes, block, block))
        right = np.zeros((several, nodes, block, columns))
        columns_of_each = (self.observed, self.numbers, self.designs, self.parts)
        for one, number, design, parts in zip(*columns_of_each, strict=True):
            factor = classes.factor(one.query, table_class)
            if not factor or table_class not in parts:
                continue
            variances = one.variance.reshape(1) if alike else one.variances(nodes)
            # An infinite variance has no precision.
            precision = (1 / variances)[:, None, None]
            information[number] += factor * precision * (design.T @ design)
            right[number] += precision * (design.T @ parts[table_class])
        return (information, right) if information.any() else None


def centred_in_families(values: Floats, parents: Index, compared: NDArray[np.bool_]) -> Floats:
    """Values minus the mean of their family; zero for nodes that were not compared.

    >>> centred_in_families(
    ...     np.array([[1.0], [3.0], [9.0]]), np.array([0, 0, 0]), np.array([True, True, False])
    ... )
    array([[-1.],
           [ 1.],
           [ 0.]])
    """
    # One number a node, spread over all of its values.
    by_node = (-1, *[1] * (values.ndim - 1))
    is_compared = compared.reshape(by_node)
    kept = np.where(is_compared, values, 0.0)
    families = int(parents.max()) + 1
    sums = np.zeros((families, *values.shape[1:]))
    np.add.at(sums, parents, kept)
    members = np.bincount(parents[compared], minlength=families)
    means = sums / np.maximum(members, 1).reshape(by_node)
    return np.where(is_compared, kept - means[parents], 0.0)


def contrast_siblings(
    groups: Sequence[Group],
    beliefs: Sequence[Belief],
    said: tuple[Floats, Floats],
    parents: Index,
    above: int,
) -> tuple[list[Belief], SiblingContrast]:
    """Return the beliefs of the children given ``b = 0``, and what is known of the b of every
    family.

    With ``S_c`` the spread of a child after ``(Λ, r_c)`` and ``a_c`` its mean, the likelihood of
    `b` has information ``Σ (Λ - Λ S_c Λ)`` and right side ``Σ (Λ a_c - r_c)``, and the child is
    ``a_c + S_c Λ b``.

    Parameters
    ----------
    groups, beliefs
        Nodes of the depth, and what they and everything below them say.
    said
        Information and right side of the contrasts.
    parents, above
        Parent of every node, and the number of parents.
    """
    information, right = said
    several, _, block, columns = right.shape
    width = several * block
    every, stacked = np.arange(block), np.arange(width)
    total = information.sum(axis=0)
    alike = len(total) == 1
    seen = np.concatenate(list(information), axis=2)
    all_right = right.sum(axis=0)
    precision = np.zeros((above, width, width))
    aim = np.zeros((above, width, columns))
    pull = np.zeros((above, block, width))
    size = np.zeros(above)
    contrasts = []
    for group, belief in zip(groups, beliefs, strict=True):
        family = parents[group.nodes]
        group_seen = seen if alike else seen[group.nodes]
        sees = group_seen[:, group.cells]
        group_total = total if alike else total[group.nodes]
        every_node = np.arange(len(group_total))
        inner = group_total[np.ix_(every_node, group.cells, group.cells)]
        group_right = all_right[np.ix_(group.nodes, group.cells)]
        child = belief.condition_on_noisy(inner, group_right)
        contrasts.append(child)
        gains = child.spread @ sees
        add_by_parent(precision, family, -transpose_matrices(sees) @ gains, (stacked, stacked))
        add_by_parent(aim, family, transpose_matrices(sees) @ child.mean, (stacked,))
        add_by_parent(pull, family, gains, (group.cells, stacked))
        for number in range(several):
            place = every + number * block
            one = information[number] if alike else information[number][group.nodes]
            add_by_parent(precision, family, one, (place, place))
            add_by_parent(aim, family, -right[number][group.nodes], (place,))
        scales = np.broadcast_to(scale(group_total), family.shape)
        np.maximum.at(size, family, scales)
    # What is left of the information where nothing else is known is a rounding error of it.
    reference = np.maximum(size, 1e-300)
    before = Belief.nothing(above, width, columns)
    common = before.condition_on_noisy(symmetric(precision), aim, reference)
    return contrasts, SiblingContrast(total, seen, common, pull)
