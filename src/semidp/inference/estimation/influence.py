"""How much every measured value counts in a weighted sum of the estimate: the passes, the other way
round.

The estimate is linear in what was measured, ``w'x = Σ c y`` apart from exact values. The weights
`c` give the law of its error wherever the law of each noise is known. One sweep up passes weights
from children to parents, one sweep down hands them to what was measured.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import define

from semidp.inference.estimation.beliefs import (
    SiblingContrast,
    TreeDepth,
    add_by_parent,
    centred_in_families,
    contrast_numbers,
    transpose_matrices,
)
from semidp.inference.estimation.measurements import (
    Classes,
    Floats,
    Index,
    Observed,
    Places,
    TableClass,
)


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
