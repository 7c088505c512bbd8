"""One pass up the tree and one down; and the pass of weights, which gives the variance of any
weighted sum.

Up: the information about a node is the sum of the information about its children, plus the
measurements at the node itself. Down: children share the difference between their sum and the final
estimate of their parent, by their covariances. The weights of a sum go up the same way: the rest
that reaches a parent is the part that the parent knows better. Beliefs, and contrasts between the
children of one parent, are in `inference.estimation.beliefs`, classes in
`inference.estimation.measurements`.
"""

from collections.abc import Sequence

import numpy as np
from attrs import define
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.inference.estimation.beliefs import (
    Belief,
    ChildSum,
    ContrastEvidence,
    Group,
    SiblingContrast,
    TreeDepth,
    Update,
    add_by_parent,
    contrast_siblings,
    pseudo_inverse,
    scale,
    symmetric,
    transpose_matrices,
)
from semidp.inference.estimation.measurements import (
    Classes,
    Floats,
    Index,
    Measurements,
    Observed,
    Places,
    TableClass,
    right_side,
)

_MET = 1e-6
"""The relative tolerance for meeting an exact value."""
_ROUNDING = 1e-13
_ESTIMABLE = 1e-9
"""A weighted sum is estimable if at most this fraction of its weights is in unknown
directions."""


Evidence = tuple[NDArray[np.bool_], dict[TableClass, Floats]]
"""The values of a query that are informative about possible cells, and these values by class."""


def possible_cells(measurements: Measurements, classes: Classes) -> list[NDArray[np.bool_]]:
    """Cells of the block that can be other than zero, for every depth: (nodes, block).

    What is impossible at a node is impossible below it; what is impossible at all its children is
    so at the node.
    """
    places = measurements.places
    masks: list[NDArray[np.bool_]] = []
    for depth, nodes in enumerate(places.counts):
        mask = np.ones((nodes, classes.block), dtype=bool)
        declared = measurements.possible.get(depth)
        if declared is not None:
            lengths = [classes.sizes[axis] for axis in classes.dense]
            kept = declared.reshape(
                len(declared), *(declared.shape[1 + axis] for axis in classes.dense)
            )
            mask &= np.broadcast_to(kept, (nodes, *lengths)).reshape(nodes, -1)
        if depth:
            mask &= masks[-1][places.parents[depth - 1]]
        masks.append(mask)
    for depth in reversed(places.depths[:-1]):
        parents = places.parents[depth]
        below = np.zeros_like(masks[depth])
        np.logical_or.at(below, parents, masks[depth + 1])
        childless = np.bincount(parents, minlength=len(below)) == 0
        masks[depth] &= below | childless[:, None]
    return masks


def group_nodes(mask: NDArray[np.bool_], observed: Sequence[Observed]) -> TreeDepth:
    """Group the nodes of a depth by their possible cells and variances."""
    nodes = len(mask)
    columns = [one.variances(nodes) for one in observed]
    variances = np.stack(columns, axis=1) if columns else np.zeros((nodes, 0))
    # Two nodes are alike if the bits of their masks and of their variances are.
    packed = np.packbits(mask, axis=1)
    keys = np.concatenate([packed, np.ascontiguousarray(variances).view(np.uint8)], axis=1)
    _, first, group_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group_of = group_of.reshape(-1)
    order = np.argsort(group_of, kind="stable")
    starts = np.searchsorted(group_of[order], np.arange(len(first) + 1))
    groups = []
    place_of = np.empty(nodes, dtype=np.int64)
    for number, sample in enumerate(first):
        members = order[starts[number] : starts[number + 1]]
        place_of[members] = np.arange(len(members))
        groups.append(Group(members, np.flatnonzero(mask[sample]), variances[sample]))
    return TreeDepth(groups, group_of, place_of)


def upward(
    measurements: Measurements,
    classes: Classes,
    below_all: "dict[TableClass, Belief] | None" = None,
) -> list[TreeDepth]:
    """Pass up: the information about each node from itself and everything below it.

    Parameters
    ----------
    measurements, classes
        The measurements, and their classes.
    below_all
        The information of trees that are not in memory about the nodes of the last depth, by
        class: one node after the other, all cells of the block.
    """
    masks = possible_cells(measurements, classes)
    depths: list[TreeDepth] = []
    places = measurements.places
    for depth, mask in enumerate(masks):
        depths.append(group_nodes(mask, _at_nodes(measurements, depth)))
    for depth in reversed(places.depths):
        below = depths[depth + 1] if depth + 1 < len(depths) else None
        parents = places.parents[depth] if below is not None else None
        observed = _at_nodes(measurements, depth)
        values = [classes.arrange_values(one.values, one.query) for one in observed]
        designs = [classes.design(one.query) for one in observed]
        level = depths[depth]
        for table_class in classes.every():
            level.beliefs[table_class] = []
            level.updates[table_class] = []
            level.families[table_class] = _families(level, below, parents, table_class, classes)
        for number, group in enumerate(level.groups):
            evidence = _evidence(group, observed, values, designs, classes)
            for table_class in classes.every():
                start = _before_own(
                    group, table_class, level.families[table_class][number], classes
                )
                if below_all is not None and below is None:
                    start = below_all[table_class].select_cells(group.nodes, group.cells)
                belief, update = _add_own_measurements(
                    group, table_class, start, evidence, observed, designs, classes
                )
                level.beliefs[table_class].append(belief)
                level.updates[table_class].append(update)
        _compare_siblings(level, measurements, depth, classes)
    return depths


def _at_nodes(measurements: Measurements, depth: int) -> tuple[Observed, ...]:
    """What was measured at single nodes of a depth."""
    return tuple(one for one in measurements.select_depth(depth) if not one.siblings)


def _compare_siblings(
    level: TreeDepth, measurements: Measurements, depth: int, classes: Classes
) -> None:
    """Add what contrasts between siblings of a depth say."""
    contrasts = [one for one in measurements.select_depth(depth) if one.siblings]
    parents = measurements.places.parents[depth - 1] if depth else None
    evidence = ContrastEvidence.from_observed(contrasts, parents, classes)
    if evidence is None or parents is None:
        return
    for table_class in classes.every():
        said = evidence.in_class(table_class, len(parents), classes)
        if said is None:
            continue
        above = measurements.places.counts[depth - 1]
        beliefs, contrast = contrast_siblings(
            level.groups, level.beliefs[table_class], said, parents, above
        )
        level.beliefs[table_class] = beliefs
        level.contrasts[table_class] = contrast


def _evidence(
    group: Group,
    observed: Sequence[Observed],
    values: Sequence[NDArray[np.generic]],
    designs: Sequence[Floats],
    classes: Classes,
) -> list[Evidence]:
    """Values that say something of the possible cells of a group, by query and class."""
    evidence: list[Evidence] = []
    for one, array, design, variance in zip(
        observed, values, designs, group.variances, strict=True
    ):
        # Rows that add up impossible cells alone hold nothing but noise.
        rows = np.asarray(design[:, group.cells].any(axis=1))
        if np.isinf(variance):
            evidence.append((rows, {}))
            continue
        if variance == 0:
            rows[:] = True  # an exact value of impossible cells must be zero, which is checked
        chosen = array[np.ix_(group.nodes, np.flatnonzero(rows))].astype(float)
        parts = classes.split(chosen) if variance == 0 else right_side(one, classes, chosen)
        evidence.append((rows, parts))
    return evidence


def _before_own(
    group: Group, table_class: TableClass, family: ChildSum | None, classes: Classes
) -> Belief:
    """What is known about the nodes of a group before anything that was measured at them."""
    if family is not None:
        return family.total
    return Belief.nothing(len(group.nodes), len(group.cells), classes.coordinates(table_class))


def _add_own_measurements(
    group: Group,
    table_class: TableClass,
    belief: Belief,
    evidence: list[Evidence],
    observed: Sequence[Observed],
    designs: Sequence[Floats],
    classes: Classes,
) -> tuple[Belief, Update]:
    """Add to what the children say what was measured at the nodes themselves: noisy values, then
    exact ones.
    """
    size = len(group.cells)
    columns = classes.coordinates(table_class)
    information = np.zeros((size, size))
    right = np.zeros((len(group.nodes), size, columns))
    exact: list[tuple[Floats, Floats]] = []
    for one, design, variance, (rows, parts) in zip(
        observed, designs, group.variances, evidence, strict=True
    ):
        factor = classes.factor(one.query, table_class)
        if not factor or table_class not in parts:
            continue
        visible = design[np.ix_(np.flatnonzero(rows), group.cells)]
        if variance == 0:
            exact.append((visible, parts[table_class]))
        else:
            information += factor / variance * visible.T @ visible
            right += visible.T @ parts[table_class] / variance
    # Noisy values first: exact ones then hold whatever the noise said.
    noisy = bool(information.any())
    if noisy:
        belief = belief.condition_on_noisy(information, right)
    spread = belief.spread
    stacked = gain = None
    if exact:
        stacked = np.concatenate([design for design, _ in exact])
        values = np.concatenate([part for _, part in exact], axis=1)
        belief, missed, gain = belief.condition_on_exact(stacked, values)
        if (np.abs(missed) > _MET * (1 + np.abs(values))).any():
            raise InputError(
                "exact values contradict each other, or cells that are said to be impossible"
            )
    return belief, Update(information if noisy else None, spread if noisy else None, stacked, gain)


def _families(
    level: TreeDepth,
    below: TreeDepth | None,
    parents: Index | None,
    table_class: TableClass,
    classes: Classes,
) -> list[ChildSum | None]:
    """Sum the beliefs of children for every group of a depth; None for groups without children."""
    if below is None or parents is None:
        return [None] * len(level.groups)
    nodes = len(level.group_of)
    block = classes.block
    mean = np.zeros((nodes, block, classes.coordinates(table_class)))
    spread = np.zeros((nodes, block, block))
    unknown: Floats | None = None
    # Before their parent is looked at, children are independent: means and covariances add up.
    for group, belief in zip(below.groups, below.beliefs[table_class], strict=True):
        add_by_parent(mean, parents[group.nodes], belief.mean, (group.cells,))
        both = (group.cells, group.cells)
        add_by_parent(spread, parents[group.nodes], belief.spread, both)
        if belief.unknown is not None:
            unknown = np.zeros_like(spread) if unknown is None else unknown
            add_by_parent(unknown, parents[group.nodes], belief.unknown, both)
    contrast = below.contrasts.get(table_class)
    if contrast is not None:
        # What the family has in common is one more member of it.
        pull, common = contrast.pull, contrast.common
        mean += pull @ common.mean
        spread += pull @ common.spread @ transpose_matrices(pull)
        if common.unknown is not None:
            free = pull @ common.unknown @ transpose_matrices(pull)
            unknown = free if unknown is None else unknown + free
    children = np.bincount(parents, minlength=nodes)
    if unknown is None and not children.all():
        unknown = np.zeros_like(spread)
    if unknown is not None:
        # Nothing is known from below of a node that has nothing below it.
        unknown[children == 0] = np.eye(block)
    families: list[ChildSum | None] = []
    for group in level.groups:
        chosen = np.ix_(group.nodes, group.cells, group.cells)
        part = None if unknown is None else unknown[chosen]
        families.append(_family(mean[np.ix_(group.nodes, group.cells)], spread[chosen], part))
    return families


def _family(mean: Floats, spread: Floats, unknown: Floats | None) -> ChildSum:
    if unknown is None or not unknown.any():
        inverse, _ = pseudo_inverse(spread, scale(spread))
        return ChildSum(Belief(mean, spread, None), inverse)
    # Directions that some child leaves unknown are set apart. Only the others have a covariance of
    # the sum that can be inverted.
    unknown_inverse, covered = pseudo_inverse(unknown, np.ones(len(unknown)))
    visible = np.eye(spread.shape[-1]) - covered
    inverse, _ = pseudo_inverse(visible @ spread @ visible, scale(spread))
    return ChildSum(Belief(mean, spread, covered), inverse, unknown, unknown_inverse)


def downward(depths: list[TreeDepth], places: Places, classes: Classes) -> None:
    """Pass down: replace the mean of every node by its estimate from all
    measurements.
    """
    for depth in places.depths[1:]:
        above, level = depths[depth - 1], depths[depth]
        parents = places.parents[depth - 1]
        for table_class in classes.every():
            pushes, free_pushes = _pushes(above, table_class, classes)
            contrast = level.contrasts.get(table_class)
            common = None if contrast is None else _common(contrast, pushes, free_pushes)
            for number, group in enumerate(level.groups):
                belief = level.beliefs[table_class][number]
                at = np.ix_(parents[group.nodes], group.cells)
                # A child moves by its part of the covariance of all children.
                mean = belief.mean + belief.spread @ pushes[at]
                if contrast is not None and common is not None:
                    on_common = contrast.select_seen(group.nodes)[:, group.cells]
                    mean += belief.spread @ (on_common @ common[parents[group.nodes]])
                if belief.unknown is not None:
                    mean += belief.unknown @ free_pushes[at]
                level.beliefs[table_class][number] = Belief(mean, belief.spread, belief.unknown)


def _common(contrast: SiblingContrast, pushes: Floats, free_pushes: Floats) -> Floats:
    """Final estimate of what each family has in common."""
    common, back = contrast.common, transpose_matrices(contrast.pull)
    mean = common.mean + common.spread @ (back @ pushes)
    if common.unknown is not None:
        mean = mean + common.unknown @ (back @ free_pushes)
    return np.asarray(mean)


def _pushes(above: TreeDepth, table_class: TableClass, classes: Classes) -> tuple[Floats, Floats]:
    """By how much the estimate of a parent differs from the sum of its children, over their
    covariance.
    """
    shape = (len(above.group_of), classes.block, classes.coordinates(table_class))
    pushes = np.zeros(shape)
    families = above.families[table_class]
    any_unknown = any(
        family is not None and family.unknown_inverse is not None for family in families
    )
    free_pushes = np.zeros(shape if any_unknown else (0, 0, 0))
    for group, belief, family in zip(
        above.groups, above.beliefs[table_class], families, strict=True
    ):
        if family is None:
            continue
        at = np.ix_(group.nodes, group.cells)
        gap = belief.mean - family.total.mean
        push = family.inverse @ gap
        pushes[at] = push
        # What covariances do not explain of the gap is shared by the unknown directions.
        if family.unknown_inverse is not None:
            free_pushes[at] = family.unknown_inverse @ (gap - family.total.spread @ push)
    if any_unknown:
        return pushes, free_pushes
    return pushes, pushes


@define(eq=False)
class Weights:
    """Weights on nodes of one depth in one class: each entry belongs to a sum, `owners`, and has
    (block, q) weights.
    """

    nodes: Index
    owners: Index
    weights: Floats

    def merge(self, other: "Weights | None", sums: int) -> "Weights":
        """Add up entries of the same node and sum."""
        nodes, owners, weights = self.nodes, self.owners, self.weights
        if other is not None:
            nodes = np.concatenate([nodes, other.nodes])
            owners = np.concatenate([owners, other.owners])
            weights = np.concatenate([weights, other.weights])
        keys = nodes * sums + owners
        order = np.argsort(keys, kind="stable")
        present, starts = np.unique(keys[order], return_index=True)
        weights = weights[order]
        if len(present) < len(order):
            weights = np.add.reduceat(weights, starts, axis=0)
        return Weights(present // sums, present % sums, weights)


@define(eq=False)
class Gathered:
    """Weighted sums in one class, gathered up the tree.

    Parameters
    ----------
    total
        Covariance matrices (sums, q, q) of what the nodes passed so far know given the others.
    gross, blind, seen
        For each sum its magnitude, the weights in unknown directions, and all
        weights.
    carried
        The remaining weights, on nodes of one depth; None if there are none yet.
    """

    total: Floats
    gross: Floats
    blind: Floats
    seen: Floats
    carried: "Weights | None" = None


def covariances(
    depths: list[TreeDepth],
    places: Places,
    table_class: TableClass,
    given: dict[int, Weights],
    sums: int,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Covariance matrices (q × q) of weighted sums in one class, and whether each sum is estimable.

    Given its parent, what is known about the children of a family is ``Σ w'V w - s'(Σ V)⁺ s`` with
    ``s = Σ V w``, and the weight that passes to the parent is ``(Σ V)⁺ s``.
    """
    state = gathered_at_roots(depths, places, table_class, given, sums)
    _weigh(depths[0], table_class, state)
    total = state.total
    # What exact values leave of a variance is a rounding error of what was added up.
    total[np.abs(total) < _ROUNDING * state.gross[:, None, None]] = 0.0
    return symmetric(total), state.blind <= _ESTIMABLE * np.maximum(state.seen, 1e-300)


def gathered_at_roots(
    depths: list[TreeDepth],
    places: Places,
    table_class: TableClass,
    given: dict[int, Weights],
    sums: int,
) -> Gathered:
    """Covariances given the roots, and the weights that sums have on the roots themselves."""
    width = next(iter(given.values())).weights.shape[-1]
    state = Gathered(np.zeros((sums, width, width)), np.zeros(sums), np.zeros(sums), np.zeros(sums))
    for depth in reversed(places.depths):
        present = given.get(depth)
        if present is not None:
            state.carried = present.merge(state.carried, sums)
        if state.carried is None or not depth:
            continue
        spread, unknown = _weigh(depths[depth], table_class, state)
        carried = state.carried
        above = Weights(places.parents[depth - 1][carried.nodes], carried.owners, spread)
        contrast = depths[depth].contrasts.get(table_class)
        if contrast is not None:
            on_common = transpose_matrices(contrast.select_seen(carried.nodes)) @ spread
            added = (state.total, state.gross, state.blind)
            above, unknown = _with_common(contrast, above, on_common, unknown, added, sums)
        # What the children know given their parent is done with; the rest is up to the parent.
        state.carried = _pass_weights(
            depths[depth - 1], table_class, above, unknown, state.total, state.blind, sums
        )
    return state


def _weigh(
    level: TreeDepth, table_class: TableClass, state: Gathered
) -> tuple[Floats, Floats | None]:
    """Add the variances of the weights that are carried; return covariances and unknown projectors
    times them.
    """
    carried = state.carried
    assert carried is not None, "asked while weights are carried"
    _add(state.seen, carried.owners, np.square(carried.weights).sum(axis=(1, 2)))
    spread, unknown, sizes = _apply_beliefs(level, table_class, carried)
    _add(state.total, carried.owners, transpose_matrices(carried.weights) @ spread)
    _add(state.gross, carried.owners, sizes)
    if unknown is not None:
        free = np.einsum("nbq,nbq->n", carried.weights, unknown)
        _add(state.blind, carried.owners, free)
    return spread, unknown


def _with_common(
    contrast: SiblingContrast,
    children: Weights,
    seen: Floats,
    unknown: Floats | None,
    added: tuple[Floats, Floats, Floats],
    sums: int,
) -> tuple[Weights, Floats | None]:
    """Count what families have in common as one more member: its variance, and what it passes to
    the parent.

    `seen` are the weights ``Λ S_c w`` that children put on it; `added` the variances, their sizes,
    and blind weights.
    """
    total, gross, blind = added
    joined = Weights(children.nodes, children.owners, seen).merge(None, sums)
    common = contrast.common
    spread = _select_matrices(common.spread, joined.nodes)
    pull = contrast.pull[joined.nodes]
    moved = spread @ joined.weights
    _add(total, joined.owners, transpose_matrices(joined.weights) @ moved)
    _add(gross, joined.owners, scale(spread) * np.square(joined.weights).sum(axis=(1, 2)))
    passed = Weights(joined.nodes, joined.owners, pull @ moved)
    free = np.zeros_like(passed.weights)
    if common.unknown is not None:
        unseen = _select_matrices(common.unknown, joined.nodes) @ joined.weights
        _add(blind, joined.owners, np.einsum("nbq,nbq->n", joined.weights, unseen))
        free = pull @ unseen
    nodes = np.concatenate([children.nodes, passed.nodes])
    owners = np.concatenate([children.owners, passed.owners])
    together = Weights(nodes, owners, np.concatenate([children.weights, passed.weights]))
    if unknown is None and common.unknown is None:
        return together, None
    first = np.zeros_like(children.weights) if unknown is None else unknown
    return together, np.concatenate([first, free])


def _add(sums: Floats, owners: Index, parts: Floats) -> None:
    add_by_parent(sums, owners, parts, ())


def _apply_beliefs(
    level: TreeDepth, table_class: TableClass, carried: Weights
) -> tuple[Floats, Floats | None, Floats]:
    """Covariances and unknown projectors times weights, and the size of what is added up, for every
    entry.
    """
    spread = np.zeros_like(carried.weights)
    sizes = np.zeros(len(carried.nodes))
    unknown: Floats | None = None
    for number, entries in level.locate_groups(carried.nodes):
        group, belief = level.groups[number], level.beliefs[table_class][number]
        at = np.ix_(entries, group.cells)
        weights = carried.weights[at]
        places = level.place_of[carried.nodes[entries]]
        matrices = _select_matrices(belief.spread, places)
        spread[at] = matrices @ weights
        sizes[entries] = scale(matrices) * np.square(weights).sum(axis=(1, 2))
        if belief.unknown is not None:
            unknown = np.zeros_like(spread) if unknown is None else unknown
            unknown[at] = _select_matrices(belief.unknown, places) @ weights
    return spread, unknown, sizes


def _select_matrices(matrices: Floats, places: Index) -> Floats:
    return matrices if len(matrices) == 1 else matrices[places]


def _pass_weights(
    above: TreeDepth,
    table_class: TableClass,
    spread: Weights,
    unknown: Floats | None,
    total: Floats,
    blind: Floats,
    sums: int,
) -> Weights:
    """Pass the weights of children to their parents; take from `total` and `blind` what the parents
    account for.
    """
    free = (
        None if unknown is None else Weights(spread.nodes, spread.owners, unknown).merge(None, sums)
    )
    joined = spread.merge(None, sums)
    passed = np.zeros_like(joined.weights)
    for number, entries in above.locate_groups(joined.nodes):
        group, family = above.groups[number], above.families[table_class][number]
        assert family is not None, "a group with children has a family"
        at = np.ix_(entries, group.cells)
        places = above.place_of[joined.nodes[entries]]
        owners = joined.owners[entries]
        left = joined.weights[at]
        first = np.zeros_like(left)
        # Weights on unknown directions must pass to the parent whole, or the sum is not estimable.
        if (
            free is not None
            and family.unknown_inverse is not None
            and family.unknown_sum is not None
        ):
            across = free.weights[at]
            first = family.unknown_inverse[places] @ across
            _add(blind, owners, -np.einsum("nbq,nbq->n", first, across))
            moved = family.total.spread[places] @ first
            _add(
                total, owners, -transpose_matrices(first) @ left - transpose_matrices(left) @ first
            )
            _add(total, owners, transpose_matrices(first) @ moved)
            left = left - moved
        # The term -s'(Σ V)⁺ s of `covariances`: what the parent will account for.
        second = family.inverse[places] @ left
        _add(total, owners, -transpose_matrices(left) @ second)
        passed[at] = first + second
    return Weights(joined.nodes, joined.owners, passed)
