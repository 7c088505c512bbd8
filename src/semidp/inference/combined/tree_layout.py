"""The order of the cells of several releases for the estimator: a tree of places, and attributes.

Of all features one nested feature is the tree of the estimator, the others are attributes. Views,
as everywhere, give a depth for each feature.
"""

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.estimation.measurements import Among, CellSums, Places, Within
from semidp.inference.linear_estimates import Floats
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Mask, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.table_spaces import find_possible_cells
from semidp.promise.spaces.dataspace import Dataspace


@frozen(slots=False, eq=False)
class TreeLayout:
    """The features of several releases as a tree of places and attributes of cells.

    Levels of flat features that exact totals show to be empty are left out; places that are empty
    stay in the tree, with no possible cell.

    Parameters
    ----------
    dataspace
        What all releases together publish exactly.

    Examples
    --------
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 0], [3, 4, 5]]
    ... )
    >>> layout = TreeLayout(Dataspace.from_table(table, []))
    >>> layout.sizes, layout.query((0, 1)).treatments
    ((2, 3), ('summed', 'each'))
    """

    dataspace: Dataspace

    @property
    def schema(self) -> Schema:
        """All features."""
        return self.dataspace.schema

    @cached_property
    def tree(self) -> int | None:
        """Axis of the nested feature with the most leaves; None where all features are flat."""
        nested = []
        for axis, feature in enumerate(self.schema.features):
            if feature.chain.depth > 1:
                nested.append((len(feature.levels), -axis))
        return -max(nested)[1] if nested else None

    @property
    def attributes(self) -> tuple[int, ...]:
        """Axes of the other features."""
        return tuple(axis for axis in range(len(self.schema.features)) if axis != self.tree)

    @cached_property
    def places(self) -> Places:
        """The tree: its root, then the depths of the nested feature."""
        if self.tree is None:
            return Places()
        depths = self.schema.features[self.tree].depths
        parents: list[NDArray[np.int64]] = [np.zeros(len(depths[0].starts), dtype=np.int64)]
        for above, below in itertools.pairwise(depths):
            parents.append(np.searchsorted(above.starts, below.starts, side="right") - 1)
        return Places(parents)

    @cached_property
    def possible_leaves(self) -> tuple[Mask, ...]:
        """For each feature the leaves that can hold a record, by the exact totals that name it."""
        masks = []
        for feature in self.schema.features:
            mask = np.ones(len(feature.levels), dtype=bool)
            domain = find_possible_cells(self.dataspace, self.schema.view([feature.name]))
            if domain is not None:
                mask &= domain
            masks.append(mask)
        return tuple(masks)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels of each attribute that can hold a record."""
        return tuple(int(self.possible_leaves[axis].sum()) for axis in self.attributes)

    @cached_property
    def possible(self) -> dict[int, Mask]:
        """Mask of the cells of the finest places that can be positive. Attributes that make no
        difference have length 1.
        """
        mask = find_possible_cells(self.dataspace, self.schema.grid.full)
        if mask is None:
            return {}
        for axis in self.attributes:
            mask = mask.compress(self.possible_leaves[axis], axis=axis)
        # The estimator has places first.
        mask = mask[None] if self.tree is None else np.moveaxis(mask, self.tree, 0)
        if mask.all():
            return {}
        for axis in range(1, mask.ndim):
            first = mask.take([0], axis=axis)
            # An attribute that no zero depends on stays apart from those that zeros couple.
            if (mask == first).all():
                mask = first
        return {self.places.depths[-1]: mask}

    def depth(self, view: View) -> int:
        """Depth of a view in the tree."""
        return 0 if self.tree is None else view[self.tree]

    def query(self, view: View) -> CellSums:
        """Query of the table at a view, at each place: attributes summed up, level by level, or at
        a coarser depth.
        """
        treatments: list[str | tuple[int, ...]] = []
        for axis in self.attributes:
            feature = self.schema.features[axis]
            if not view[axis]:
                treatments.append("summed")
            elif view[axis] == feature.chain.depth:
                treatments.append("each")
            else:
                self._refuse_empty(axis)
                treatments.append(locate_nodes(feature, view[axis]))
        return CellSums(treatments)

    def residual_query(self, view: View, compared: Mapping[int, Mask]) -> CellSums:
        """Query of a residual at each place: contrasts of levels, or of siblings at a depth of a
        nested attribute.

        Parameters
        ----------
        view
            The residual.
        compared
            For some features the levels that it compares, where other releases show some of them to
            be empty.
        """
        treatments: list[str | Within | Among] = []
        for axis in self.attributes:
            feature, depth = self.schema.features[axis], view[axis]
            if not depth:
                treatments.append("summed")
            elif axis in compared:
                levels = np.flatnonzero(compared[axis])
                left = np.flatnonzero(self.possible_leaves[axis][compared[axis]])
                treatments.append(Among(len(levels), left.tolist()))
            elif feature.chain.depth == 1:
                treatments.append("contrasts")
            else:
                self._refuse_empty(axis)
                groups = locate_nodes(feature, depth)
                above = locate_nodes(feature, depth - 1) if depth > 1 else (0,) * len(groups)
                # Leaves are in the order of their nodes, so that the first leaf of a node tells its
                # parent.
                firsts = np.unique(groups, return_index=True)[1]
                treatments.append(Within(groups, [above[first] for first in firsts]))
        return CellSums(treatments)

    def arrange_values(
        self, values: NDArray[np.generic], view: View, compared: Mapping[int, Mask] | None = None
    ) -> NDArray[np.generic]:
        """Values of a table at a view as (places, *levels that can hold a record), in the order of
        the attributes.

        `values` have an axis for each feature that the view names, in the order of the schema;
        `compared` are levels that stay although they are empty, as in `residual_query`.
        """
        axes = list_axes(view)
        for place, axis in enumerate(axes):
            if axis != self.tree and view[axis] == self.schema.features[axis].chain.depth:
                levels = (
                    self.possible_leaves[axis]
                    if compared is None
                    else compared.get(axis, self.possible_leaves[axis])
                )
                values = values.compress(levels, axis=place)
        # A view that does not name the tree is a table of its root.
        if self.tree in axes:
            return np.moveaxis(values, axes.index(self.tree), 0)
        return values[None]

    def restore_table(self, values: Floats, view: View) -> Floats:
        """Values as `arranged` gives them as a table again; 0 where no record can be."""
        axes = list_axes(view)
        inner = [axis for axis in axes if axis != self.tree]
        order = [axis for axis in axes if axis == self.tree] + inner
        shape = [values.shape[0]] if self.tree in axes else []
        for axis in inner:
            whole = view[axis] == self.schema.features[axis].chain.depth
            shape.append(
                int(self.possible_leaves[axis].sum())
                if whole
                else self.schema.grid.chains[axis].size(view[axis])
            )
        cut = values.reshape(shape)
        full = np.zeros([self.schema.grid.chains[axis].size(view[axis]) for axis in order])
        chosen = []
        for axis in order:
            whole = axis != self.tree and view[axis] == self.schema.features[axis].chain.depth
            size = self.schema.grid.chains[axis].size(view[axis])
            chosen.append(np.flatnonzero(self.possible_leaves[axis]) if whole else np.arange(size))
        full[np.ix_(*chosen)] = cut
        # The tree comes first for the estimator, and stands where it stood in the table.
        return np.moveaxis(full, 0, axes.index(self.tree)) if self.tree in axes else full

    def on_cells(self, weights: NDArray[np.generic], view: View) -> Floats:
        """Weights of the cells of a table as weights (places, *sizes) of the cells of all
        attributes.
        """
        query = self.query(view)
        arranged = self.arrange_values(weights, view)
        spread = np.asarray(arranged, dtype=float).reshape(len(arranged), *query.shape(self.sizes))
        for axis, size in enumerate(self.sizes):
            matrix = query.matrix(axis, size)
            spread = np.moveaxis(np.tensordot(matrix.T, spread, axes=(1, axis + 1)), 0, axis + 1)
        return spread

    def order_axes(
        self, values: NDArray[np.generic], names: Sequence[str]
    ) -> tuple[NDArray[np.generic], View]:
        """Values of a table of some features in the order of the schema, and its view.

        `names` are those of the features, one an axis of the values.
        """
        axes = [self.schema.axis(name) for name in names]
        return np.transpose(values, np.argsort(axes)), self.schema.view(names)

    def _refuse_empty(self, axis: int) -> None:
        if not self.possible_leaves[axis].all():
            name = self.schema.features[axis].name
            raise Refused(
                f"two nested features are combined where every level of {name} holds a record, and"
                " exact totals show an empty one: leave it out of the schema"
            )


def locate_nodes(feature: Feature, depth: int) -> tuple[int, ...]:
    """Node at a depth of every leaf of a nested feature.

    >>> county = Feature.from_paths(("state", "county"), [("a", "x"), ("a", "y"), ("b", "z")])
    >>> locate_nodes(county, 1)
    (0, 0, 1)
    """
    starts = feature.depths[depth - 1].starts
    leaves = np.arange(len(feature.levels))
    return tuple((np.searchsorted(starts, leaves, side="right") - 1).tolist())
