"""Knowledge about many vectors at once, depth by depth of a tree.

A belief is ``x = mean + k + u`` with ``Cov(k) = spread`` and `u` anywhere in the range of the
projector `unknown`: the limit of a prior whose variance in these directions grows without bound.
Arrays are batched over their first axis; columns are coordinates that share one covariance. Nodes
of a depth that are alike make a group. A value measured minus the mean of its family is a
measurement of ``x_c - b`` with a common, otherwise unknown `b` for the family. Given `b` the
children are independent again, so the passes over the tree stay the same, with `b` as one more
member of the family.

Influences are the reversed passes: the weight of every measured value in a weighted sum of the
estimate, which is linear in the measurements, ``w'x = Σ c y`` apart from exact values.
The weights `c` give the distribution of its error if that of each noise is known. One sweep up
passes weights from children to parents, one sweep down passes them to the measurements.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from semidp.inference.estimation.measurements import (
    Classes,
    Floats,
    Index,
    Observed,
    Places,
    TableClass,
    right_side,
)

_RANK = 1e-10
"""Eigenvalues below this fraction of the reference are zero: designs are sums of cells, variances
within 1e6 or so."""


@frozen(eq=False)
class Belief:
    """A batch of beliefs.

    Parameters
    ----------
    mean
        Shape (n, f, columns).
    spread
        Covariance, (n, f, f); or (1, f, f) where all share it.
    unknown
        Projector of the same shape, or None if everything is known.
    """

    mean: Floats
    spread: Floats
    unknown: Floats | None

    @classmethod
    def nothing(cls, nodes: int, size: int, columns: int) -> "Belief":
        """Return the belief before any measurement."""
        mean = np.zeros((nodes, size, columns))
        spread = np.zeros((1, size, size))
        unknown = np.eye(size)[None]
        return cls(mean, spread, unknown)

    def select_cells(self, nodes: Index, cells: Index) -> "Belief":
        """Return the beliefs of some nodes about some cells; each node has its own spread."""
        both = np.ix_(nodes, cells, cells)
        mean = self.mean[np.ix_(nodes, cells)]
        unknown = None if self.unknown is None else self.unknown[both]
        return Belief(mean, self.spread[both], unknown)

    def condition_on_noisy(
        self, information: Floats, right_side: Floats, reference: Floats | None = None
    ) -> "Belief":
        """Return the belief after noisy measurements with ``information = Σ Q'Q/σ²`` and
        ``right_side = Σ Q'y/σ²``.

        Information that is small compared with the `reference` (its own size unless given) is a
        rounding error.

        Without unknown directions ``V' = (I + V M)⁻¹ V`` and ``mean' = mean + V'(r - M mean)``, for
        singular V and M too. Unknown directions U are first taken from the measurements,
        ``D = (U M U)⁺``; the rest of the information, ``M - M D M``, is about k alone.
        """
        if self.unknown is None:
            spread = _posterior(self.spread, information)
            unknown = None
        else:
            # What the measurements see of the unknown directions, they alone say.
            seen = self.unknown @ information @ self.unknown
            if reference is None:
                reference = scale(information)
            inverse, covered = pseudo_inverse(seen, reference)
            left = information - information @ inverse @ information
            fixed = np.eye(information.shape[-1]) - inverse @ information
            inner = _posterior(self.spread, left)
            spread = symmetric(inverse + fixed @ inner @ transpose_matrices(fixed))
            unknown = _none_if_zero(self.unknown - covered)
        residual = right_side - information @ self.mean
        return Belief(self.mean + spread @ residual, spread, unknown)

    def condition_on_exact(self, design: Floats, values: Floats) -> tuple["Belief", Floats, Floats]:
        """Return the belief given ``design @ x = values`` exactly, by how much that could not be
        met, and the gain.

        It is the regression of x on the innovation, unknown directions first, then the spread.
        """
        innovation = values - design @ self.mean
        gain = self._gain(design)
        products = design @ design.T
        inverse, _ = pseudo_inverse(products, scale(products))
        identity = np.eye(design.shape[1])
        free = identity - design.T @ inverse @ design
        # Both the square and the projection keep exact directions at zero in floating point.
        unmet = free @ (identity - gain @ design)
        left = symmetric(unmet @ self.spread @ transpose_matrices(unmet))
        spread = _zero_exact_directions(left, scale(self.spread))
        unknown = None
        if self.unknown is not None:
            across = self.unknown @ design.T
            reached, _ = pseudo_inverse(design @ across, scale(products))
            unknown = _none_if_zero(self.unknown - across @ reached @ transpose_matrices(across))
        belief = Belief(self.mean + gain @ innovation, spread, unknown)
        return belief, values - design @ belief.mean, gain

    def _gain(self, design: Floats) -> Floats:
        across = self.spread @ design.T
        lengths = scale(design @ design.T)
        reference = lengths * scale(self.spread)
        if self.unknown is None:
            inverse, _ = pseudo_inverse(design @ across, reference)
            return np.asarray(across @ inverse)
        # Unknown directions take up all of the innovation that they can reach.
        free = self.unknown @ design.T
        free_inverse, covered = pseudo_inverse(design @ free, lengths)
        visible = np.eye(len(design)) - covered
        inverse, _ = pseudo_inverse(visible @ design @ across @ visible, reference)
        first = free @ free_inverse
        unseen = across - first @ design @ across
        return np.asarray(first + unseen @ inverse)


def scale(matrices: Floats) -> Floats:
    """Largest entry on the diagonal of each matrix, which tells a small eigenvalue from a rounding
    error.
    """
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    return np.asarray(diagonal.max(axis=-1, initial=0.0))


def pseudo_inverse(matrices: Floats, reference: Floats) -> tuple[Floats, Floats]:
    """Pseudo-inverses of positive semidefinite matrices, and projectors on their ranges.

    Eigenvalues far below the reference are zero.

    >>> inverse, covered = pseudo_inverse(np.array([[[2.0, 0.0], [0.0, 0.0]]]), np.ones(1))
    >>> inverse.tolist(), covered.tolist()
    ([[[0.5, 0.0], [0.0, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]])
    """
    if matrices.shape[-1] == 0:
        return matrices, matrices
    values, vectors = np.linalg.eigh(symmetric(matrices))
    kept = values > _RANK * reference[..., None]
    divisors = np.where(kept, values, 1.0)
    inverted = np.where(kept, 1 / divisors, 0.0)
    turned = transpose_matrices(vectors)
    inverse = (vectors * inverted[..., None, :]) @ turned
    covered = (vectors * kept[..., None, :]) @ turned
    return inverse, covered


def _posterior(spread: Floats, information: Floats) -> Floats:
    # Nothing can be learned of what is exact already.
    if not spread.any():
        return np.broadcast_to(spread, np.broadcast_shapes(spread.shape, information.shape))
    size = spread.shape[-1]
    factor = np.eye(size) + spread @ information
    posterior: Floats = np.asarray(np.linalg.solve(factor, spread), dtype=float)
    return symmetric(posterior)


def _zero_exact_directions(spread: Floats, before: Floats) -> Floats:
    """Set to zero what is left of directions that are now exact."""
    least = 1e-13 * before[..., None, None]
    return np.where(np.abs(spread) > least, spread, 0.0)


def _none_if_zero(projector: Floats) -> Floats | None:
    # The trace of a projector is the number of its directions.
    directions = np.trace(projector, axis1=-2, axis2=-1)
    if (directions < 0.5).all():
        return None
    # Nodes without an unknown direction keep rounding errors otherwise.
    none_unknown = (directions < 0.5)[..., None, None]
    return np.where(none_unknown, 0.0, symmetric(projector))


def symmetric(matrices: Floats) -> Floats:
    """Mean of matrices and their transposes."""
    return (matrices + transpose_matrices(matrices)) / 2


def transpose_matrices(matrices: Floats) -> Floats:
    """Transposes of a batch of matrices."""
    return np.swapaxes(matrices, -1, -2)


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
    """The information of the children about the nodes of a group, in one class.

    `inverse` is ``(Σ V)⁺`` on what is known; `unknown_inverse` that of the sum of the unknown
    projectors.
    """

    total: Belief
    inverse: Floats
    unknown_sum: Floats | None = None
    unknown_inverse: Floats | None = None


@frozen(eq=False)
class Update:
    """How the mean of a group followed from that of its children, in one class, as needed for the
    pass down.

    `information` and `spread` are those of noisy values measured at the nodes, `design` and `gain`
    those of exact ones; None if there were none.
    """

    information: Floats | None
    spread: Floats | None
    design: Floats | None
    gain: Floats | None


@define(eq=False)
class TreeDepth:
    """One depth of the tree: its groups, and the belief for every class and group."""

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


@define(eq=False)
class SiblingContrast:
    """The information of contrasts at one depth in one class.

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
        What is known about the stacked `b`, for every parent.
    pull
        ``L = Σ S_c Λ``, for every parent: by how much `b` moves the sum of the children.
    """

    total: Floats
    seen: Floats
    common: Belief
    pull: Floats

    def select_seen(self, nodes: Index) -> Floats:
        """The information of some nodes about `b`."""
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
    """Contrasts measured at one depth, centered in their families, ready for any class."""

    observed: tuple[Observed, ...]
    designs: tuple[Floats, ...]
    parts: tuple[dict[TableClass, Floats], ...]
    numbers: tuple[int, ...]

    @classmethod
    def from_observed(
        cls, observed: Sequence[Observed], parents: Index | None, classes: Classes
    ) -> "ContrastEvidence | None":
        """Return the contrasts of a depth; None if there are none."""
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
        """Information ``Λ`` and right side ``Σ Q'z/σ²`` of every contrast and node; None if
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
    """Return the beliefs of the children given ``b = 0``, and what is known about the b of every
    family.

    With ``S_c`` the spread of a child after ``(Λ, r_c)`` and ``a_c`` its mean, the likelihood of
    `b` has information ``Σ (Λ - Λ S_c Λ)`` and right side ``Σ (Λ a_c - r_c)``, and the child is
    ``a_c + S_c Λ b``.

    Parameters
    ----------
    groups, beliefs
        Nodes of the depth, and what they and everything below them say.
    said
        The information and right side of the contrasts.
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


def influences(
    depths: Sequence[TreeDepth],
    places: Places,
    classes: Classes,
    observed: Sequence[Observed],
    weights: Mapping[int, Floats],
) -> list[Floats]:
    """Return for each query that was measured the weights of its values, of shape (sums, nodes,
    *values).

    Parameters
    ----------
    depths, places, classes
        The tree after both passes.
    observed
        What was measured, in any order. Exact values have no noise, and get zeros.
    weights
        Weights of several sums on cells, by depth, in the coordinates of `Classes.split`.
    """
    sums = next(iter(weights.values())).shape[0]
    at_nodes: dict[int, dict[TableClass, Floats]] = {depth: {} for depth in places.depths}
    # Contrasts of several kinds at one depth lie along the first axis.
    at_siblings: dict[int, dict[TableClass, Floats]] = {depth: {} for depth in places.depths}
    split = {}
    for depth, cells in weights.items():
        split[depth] = _split(cells, classes)
    for table_class in classes.every():
        sweep = _Sweep(depths, places, classes, table_class, sums)
        measurements = {depth: parts[table_class] for depth, parts in split.items()}
        for depth, (nodes, siblings) in enumerate(sweep.run(measurements)):
            at_nodes[depth][table_class] = nodes
            at_siblings[depth][table_class] = siblings
    answers = []
    for one in observed:
        chosen = at_nodes[one.depth]
        if one.siblings:
            number = _contrast_number(one, observed, places)
            parts = at_siblings[one.depth]
            chosen = {table_class: part[number] for table_class, part in parts.items() if len(part)}
        answers.append(_on_values(one, chosen, places, classes, sums))
    return answers


def _contrast_number(one: Observed, observed: Sequence[Observed], places: Places) -> int:
    """Number of the contrast that a query belongs to, among those of its depth."""
    together = [other for other in observed if other.siblings and other.depth == one.depth]
    numbers = contrast_numbers(together, places.counts[one.depth])
    place = next(number for number, other in enumerate(together) if other is one)
    return numbers[place]


def _split(cells: Floats, classes: Classes) -> dict[TableClass, Floats]:
    """Coordinates of weights in every class, (nodes, block, columns × sums)."""
    sums, nodes = cells.shape[:2]
    order = [*classes.dense, *classes.plain]
    axes = [2 + axis for axis in order]
    moved = np.moveaxis(cells, axes, range(2, 2 + len(order)))
    arranged = moved.reshape(sums * nodes, classes.block, *classes.plain_sizes)
    parts = {}
    for table_class, part in classes.split(arranged).items():
        apart = part.reshape(sums, nodes, classes.block, -1)
        sums_last = np.moveaxis(apart, 0, -1)
        parts[table_class] = sums_last.reshape(nodes, classes.block, -1)
    return parts


def _on_values(
    one: Observed, parts: dict[TableClass, Floats], places: Places, classes: Classes, sums: int
) -> Floats:
    """Weights on the values of a query from those on its right side ``Q'y/σ²``: ``Q/σ²`` times
    them.
    """
    nodes = places.counts[one.depth]
    if not parts:
        return np.zeros((sums, nodes, *one.query.shape(classes.sizes)))
    together = {}
    for table_class, part in parts.items():
        apart = part.reshape(nodes, classes.block, -1, sums)
        sums_first = np.moveaxis(apart, -1, 0)
        together[table_class] = sums_first.reshape(sums * nodes, classes.block, -1)
    variances = one.variances(nodes)
    # Exact values have no noise, and values that were not measured none that counts.
    noisy = variances > 0
    divisors = np.where(noisy, variances, 1.0)
    precision = np.where(noisy, 1 / divisors, 0.0)
    cells = classes.join(together)
    shape = one.query.shape(classes.sizes)
    values = one.query.sums(cells).reshape(sums, nodes, *shape)
    attributes = [1] * len(classes.sizes)
    weighted = values * precision.reshape(1, nodes, *attributes)
    if not one.siblings:
        return np.asarray(weighted)
    compared = np.isfinite(variances)
    parents = places.parents[one.depth - 1]
    return np.stack([centred_in_families(each, parents, compared) for each in weighted])


@define(eq=False)
class _Sweep:
    """Both sweeps of one class; arrays are (nodes, block, columns) with the columns of all sums
    side by side.
    """

    depths: Sequence[TreeDepth]
    places: Places
    classes: Classes
    table_class: TableClass
    sums: int

    def run(self, given: Mapping[int, Floats]) -> list[tuple[Floats, Floats]]:
        """Weights on the right sides of every depth: of values at nodes, and of contrasts between
        siblings.
        """
        passed = self._up(given)
        return self._down(*passed)

    def _empty(self, depth: int) -> Floats:
        columns = self.classes.coordinates(self.table_class) * self.sums
        return np.zeros((self.places.counts[depth], self.classes.block, columns))

    def _empty_common(self, depth: int) -> Floats:
        """Weights on what the children of every node of a depth have in common."""
        width = 0
        if depth + 1 < len(self.depths):
            contrast = self.depths[depth + 1].contrasts.get(self.table_class)
            width = 0 if contrast is None else contrast.pull.shape[-1]
        columns = self.classes.coordinates(self.table_class) * self.sums
        return np.zeros((self.places.counts[depth], width, columns))

    def _up(self, given: Mapping[int, Floats]) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """Weights on the final estimates, on the gaps of parents, and on what families have in
        common.
        """
        final = [self._empty(depth) for depth in self.places.depths]
        gaps = [self._empty(depth) for depth in self.places.depths]
        commons = [self._empty_common(depth) for depth in self.places.depths]
        for depth, part in given.items():
            final[depth] = final[depth] + part
        for depth in reversed(self.places.depths[1:]):
            level = self.depths[depth]
            parents = self.places.parents[depth - 1]
            moved = self._empty(depth - 1)
            free = self._empty(depth - 1)
            contrast = level.contrasts.get(self.table_class)
            for group, belief in zip(level.groups, level.beliefs[self.table_class], strict=True):
                family = parents[group.nodes]
                weights = final[depth][np.ix_(group.nodes, group.cells)]
                spread = belief.spread @ weights
                add_by_parent(moved, family, spread, (group.cells,))
                if belief.unknown is not None:
                    add_by_parent(free, family, belief.unknown @ weights, (group.cells,))
                if contrast is not None:
                    sees = contrast.select_seen(group.nodes)[:, group.cells]
                    seen = transpose_matrices(sees) @ spread
                    every = np.arange(seen.shape[1])
                    add_by_parent(commons[depth - 1], family, seen, (every,))
            if contrast is not None:
                self._add_common(contrast, commons[depth - 1], moved, free)
            gaps[depth - 1] = self._pass_to_parents(self.depths[depth - 1], moved, free)
            final[depth - 1] += gaps[depth - 1]
        return final, gaps, commons

    def _add_common(
        self, contrast: SiblingContrast, common: Floats, moved: Floats, free: Floats
    ) -> None:
        moved += contrast.pull @ (contrast.common.spread @ common)
        if contrast.common.unknown is not None:
            free += contrast.pull @ (contrast.common.unknown @ common)

    def _pass_to_parents(self, above: TreeDepth, moved: Floats, free: Floats) -> Floats:
        """Weights on the gaps between parents and the sums of their children."""
        passed = np.zeros_like(moved)
        for group, family in zip(above.groups, above.families[self.table_class], strict=True):
            if family is None:
                continue
            at = np.ix_(group.nodes, group.cells)
            left, first = moved[at], np.zeros_like(moved[at])
            # Weights on unknown directions pass to the parent whole.
            if family.unknown_inverse is not None:
                first = family.unknown_inverse @ free[at]
                left = left - family.total.spread @ first
            passed[at] = first + family.inverse @ left
        return passed

    def _down(
        self, final: list[Floats], gaps: list[Floats], commons: list[Floats]
    ) -> list[tuple[Floats, Floats]]:
        answers = []
        # What the mean of each node before its own measurements is worth, to be handed to its
        # children.
        inherited = np.zeros(0)
        for depth in self.places.depths:
            level = self.depths[depth]
            weights, siblings = final[depth], np.zeros((0, 0))
            if depth:
                parents = self.places.parents[depth - 1]
                handed = inherited - gaps[depth - 1]
                weights = weights + handed[parents]
                contrast = level.contrasts.get(self.table_class)
                if contrast is not None:
                    common = commons[depth - 1] + transpose_matrices(contrast.pull) @ handed
                    weights, siblings = self._through_contrast(
                        level, contrast, weights, common, parents
                    )
            nodes, inherited = self._through_own(level, weights)
            answers.append((nodes, siblings))
        return answers

    def _through_contrast(
        self,
        level: TreeDepth,
        contrast: SiblingContrast,
        weights: Floats,
        common: Floats,
        parents: Index,
    ) -> tuple[Floats, Floats]:
        """Weights on the means before contrasts, and on the right sides of the contrasts."""
        from_common = contrast.common.spread @ common
        several = contrast.seen.shape[-1] // self.classes.block
        before = np.zeros_like(weights)
        right = np.zeros((several, *weights.shape))
        for group, belief in zip(level.groups, level.beliefs[self.table_class], strict=True):
            at = np.ix_(group.nodes, group.cells)
            of_family = from_common[parents[group.nodes]]
            sees = contrast.select_seen(group.nodes)[:, group.cells]
            on_means = weights[at] + sees @ of_family
            moved = belief.spread @ on_means
            total = contrast.select_total(group.nodes)[:, group.cells]
            before[at] = on_means - total[:, :, group.cells] @ moved
            for number, part in enumerate(np.split(of_family, several, axis=1)):
                right[number][at] = moved
                right[number][group.nodes] -= part
        return before, right

    def _through_own(self, level: TreeDepth, weights: Floats) -> tuple[Floats, Floats]:
        """Weights on the right sides of values measured at the nodes, and on the means before
        them.
        """
        right, before = np.zeros_like(weights), np.zeros_like(weights)
        for group, update in zip(level.groups, level.updates[self.table_class], strict=True):
            at = np.ix_(group.nodes, group.cells)
            on_means = weights[at]
            if update.gain is not None and update.design is not None:
                on_means = on_means - update.design.T @ (transpose_matrices(update.gain) @ on_means)
            if update.information is not None and update.spread is not None:
                moved = update.spread @ on_means
                right[at] = moved
                on_means = on_means - update.information @ moved
            before[at] = on_means
        return right, before
