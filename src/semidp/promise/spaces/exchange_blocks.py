"""Exchange adjacency: one person changes, and others hand over the published values that the person
takes.

`Blocks` holds the published blocks of a dataspace and executes the definition on small datasets;
which spaces have such blocks, and how many records an exchange moves, it decides for any size.
Norms are in `promise.sensitivity`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from semidp.errors import InputError, Refused
from semidp.promise.schema.features import ANSWERED_SUFFIX
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Totals,
    View,
    is_within_view,
    list_axes,
    meet,
)
from semidp.promise.spaces.dataspace import Datasets, Dataspace, require_counts
from semidp.promise.spaces.structure import Structure
from semidp.promise.spaces.witness import cells, label_record

Record = tuple[int, ...]  # a leaf of every feature
Records = tuple[Record, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The published blocks of a dataspace, no feature in two of them.

    X and Y are exchanges of each other if one arises from the other so: one person goes from x to a
    possible y. For every block in which their published tuples differ, one other record that has
    y's whole tuple there (the carrier, read before any change; one record may serve several blocks)
    takes x's leaf on the features of the block whose published nodes differ, and keeps all else.
    Nobody else changes.

    Features that the published counts leave no choice are not part of a block: x and y agree on
    them.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns"), Feature("ill", "yn")])
    >>> table = Table(schema, np.full((2, 2, 2), 1))
    >>> blocks = Blocks.from_dataspace(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    ... )
    >>> blocks.count, blocks.reach
    (2, 3)
    """

    dataspace: Dataspace
    structure: Structure

    @classmethod
    def from_dataspace(cls, dataspace: Datasets) -> "Blocks":
        """Return the blocks; refuse margins that overlap, and structural zeros or answers that tie
        a block to another feature.
        """
        public = require_counts(dataspace)
        blocks = cls(public, Structure.from_dataspace(public))
        blocks._refuse_answers()
        views = [margin.view for margin in blocks.margins]
        for position, one in enumerate(views):
            for other in views[:position]:
                shared = list_axes(meet(one, other))
                if shared:
                    name = public.schema.features[shared[0]].name
                    raise Refused(
                        "exchange adjacency needs published margins that share no feature, and"
                        f" {name!r} is in two of them: publish it in one margin, or protect a"
                        " number of records instead"
                    )
        if blocks._zeros_tie():
            raise Refused(
                "exchange adjacency needs every combination of levels below the published counts to"
                " be possible, and structural zeros tie a published margin to something else:"
                " protect a number of records instead"
            )
        return blocks

    def _refuse_answers(self) -> None:
        """Refuse a feature beside exact counts of who has a value of it.

        Whoever takes over that a person answered has a level from then on: more of a table changes
        than what the person does.
        """
        published = {name for margin in self.dataspace.margins for name in margin.names}
        for name in self.dataspace.schema.names:
            if f"{name}{ANSWERED_SUFFIX}" in published:
                raise Refused(
                    f"an exchange would give or take the {name!r} of others, too, since the number"
                    " who have one is exact: leave it out of tables, or protect a number of records"
                    " instead"
                )

    @property
    def margins(self) -> tuple[Totals, ...]:
        """Blocks: the published margins, cut down to where they leave a choice."""
        return self.structure.essential

    @property
    def count(self) -> int:
        """q, the number of blocks with two levels of positive count."""
        return len(self.margins)

    @property
    def reach(self) -> int:
        """The most records that one exchange changes: q + 1, all of them where there are fewer, 0
        without freedom.
        """
        free = bool(self.structure.varying) or self.count
        return min(self.count + 1, self.structure.n) if free else 0

    @cached_property
    def axes(self) -> frozenset[int]:
        """The features that lie in a block."""
        return frozenset(axis for margin in self.margins for axis in list_axes(margin.view))

    def _zeros_tie(self) -> bool:
        """Whether the cells that can occur are fewer than: all below the blocks, times what zeros
        leave of the rest.
        """
        schema, grid = self.structure.schema, self.structure.grid
        zeros = [schema.view(dict(zero.levels)) for zero in schema.structural_zeros]
        if all(self._is_separate_zero(view) for view in zeros):
            return False
        if not grid.holds(LARGEST_MASK):
            return True
        inhabited = grid.find_inhabited_cells(None, self.structure.margins)
        if inhabited is None:
            inhabited = np.ones(grid.shape, dtype=bool)
        possible = inhabited & schema.possible_cells
        # No tie: what can occur is the product of the cells of the blocks and of what zeros leave
        # outside them.
        outside = possible.any(axis=tuple(self.axes), keepdims=True)
        return bool((possible != (inhabited & outside)).any())

    def _is_separate_zero(self, zero: View) -> bool:
        """Whether a structural zero lies inside one margin, where it is an empty cell, or touches
        no block.
        """
        inside = any(is_within_view(zero, margin.view) for margin in self.structure.margins)
        return inside or self.axes.isdisjoint(list_axes(zero))

    @cached_property
    def cells(self) -> tuple[Record, ...]:
        """The records that can occur."""
        positions = np.unravel_index(cells(self.dataspace), self.structure.grid.shape)
        rows = np.stack(positions, axis=1).tolist()
        return tuple(map(tuple, rows))

    def nodes(self, record: Record, view: View) -> tuple[int, ...]:
        """Return the nodes of a record at the depths of a view, -1 where it names none."""
        places = zip(self._nodes, view, record, strict=True)
        return tuple(nodes[depth][leaf] for nodes, depth, leaf in places)

    @cached_property
    def _nodes(self) -> list[list[list[int]]]:
        """For each feature, depth and leaf the node; -1 at depth 0."""
        nodes = []
        for chain in self.structure.grid.chains:
            by_depth = [[-1] * chain.leaves]
            for depth in range(1, chain.depth + 1):
                by_depth.append(chain.find_leaf_ancestors(depth).tolist())
            nodes.append(by_depth)
        return nodes

    def _differ(self, x: Record, y: Record) -> list[tuple[View, list[int]]]:
        """Blocks in which the published values differ, each with the features whose nodes
        differ.
        """
        differing = []
        for margin in self.margins:
            x_nodes = self.nodes(x, margin.view)
            y_nodes = self.nodes(y, margin.view)
            axes = [axis for axis in range(len(x)) if x_nodes[axis] != y_nodes[axis]]
            if axes:
                differing.append((margin.view, axes))
        return differing

    def _list_successors(self, records: Records, i: int, x: Record, y: Record) -> Iterator[Records]:
        """Iterate over what arises from a small dataset when one person goes from x to y."""
        differ = self._differ(x, y)
        carriers = []
        for view, _ in differ:
            # A carrier has y's whole published tuple of the block, read before any change.
            tuple_of_y = self.nodes(y, view)
            able = []
            for j, other in enumerate(records):
                if j != i and self.nodes(other, view) == tuple_of_y:
                    able.append(j)
            carriers.append(able)
        for chosen in product(*carriers):
            changed = [list(record) for record in records]
            changed[i] = list(y)
            for (_, axes), j in zip(differ, chosen, strict=True):
                for axis in axes:
                    changed[j][axis] = x[axis]
            yield tuple(map(tuple, changed))

    def list_predecessors(self, records: Records) -> Iterator[Records]:
        """Iterate over the datasets from which a small one arises."""
        for i, y in enumerate(records):
            for x in self.cells:
                differ = self._differ(x, y)
                carriers = [self._former_carriers(records, i, x, block) for block in differ]
                for chosen in product(*carriers):
                    yield from self._undo_carriers(records, i, x, zip(differ, chosen, strict=True))

    def _former_carriers(
        self, records: Records, i: int, x: Record, block: tuple[View, list[int]]
    ) -> list[int]:
        """Records that may have carried a block, by what they have now: x's leaves where the nodes
        differed, else y's nodes.
        """
        view, axes = block
        kept = tuple(0 if axis in axes else depth for axis, depth in enumerate(view))
        kept_of_y = self.nodes(records[i], kept)
        carriers = []
        for j, other in enumerate(records):
            has_leaves = all(other[axis] == x[axis] for axis in axes)
            if j != i and has_leaves and self.nodes(other, kept) == kept_of_y:
                carriers.append(j)
        return carriers

    def _undo_carriers(
        self,
        records: Records,
        i: int,
        x: Record,
        served: Iterable[tuple[tuple[View, list[int]], int]],
    ) -> Iterator[Records]:
        """Iterate over the datasets before these carriers gave up some leaf below y's node for that
        of x.
        """
        y = records[i]
        places, leaves_below = [], []
        for (view, axes), j in served:
            for axis in axes:
                places.append((j, axis))
                leaves_below.append(self._list_possible_leaves(axis, view[axis], y[axis]))
        for leaves in product(*leaves_below):
            before = [list(record) for record in records]
            before[i] = list(x)
            for (j, axis), leaf in zip(places, leaves, strict=True):
                before[j][axis] = leaf
            yield tuple(map(tuple, before))

    def _list_possible_leaves(self, axis: int, depth: int, leaf: int) -> list[int]:
        """The leaves that can occur below the node of a leaf."""
        inhabited = self.structure.inhabited_nodes(axis, self.structure.grid.chains[axis].depth)
        nodes = self._nodes[axis][depth]
        siblings = [other for other, node in enumerate(nodes) if node == nodes[leaf]]
        return [other for other in siblings if inhabited[other]]

    def neighbours(self, records: Records) -> set[Records]:
        """Return the datasets adjacent to a small one, without itself."""
        datasets = set(self.list_predecessors(records))
        for i, x in enumerate(records):
            for y in self.cells:
                datasets.update(self._list_successors(records, i, x, y))
        return datasets - {records}

    def adjacent(self, one: Records, other: Records) -> bool:
        """Whether two datasets of D_t are exchanges of each other, or the same."""
        if not (self.contains(one) and self.contains(other)):
            return False
        if one == other:
            return True
        return self._arises(one, other) or self._arises(other, one)

    def _arises(self, one: Records, other: Records) -> bool:
        """Whether one person's exchange leads from one dataset to the other."""
        pairs = zip(one, other, strict=True)
        changed = [i for i, (x, y) in enumerate(pairs) if x != y]
        if len(changed) > self.reach:
            return False
        return any(other in self._list_successors(one, i, one[i], other[i]) for i in changed)

    def contains(self, records: Records) -> bool:
        """Whether a dataset has the published totals."""
        # Cells that no published count or structural zero forbids.
        possible = {*records} <= {*self.cells}
        if len(records) != self.structure.n or not possible:
            return False
        grid = self.structure.grid
        table = np.zeros(grid.shape, dtype=np.int64)
        for record in records:
            table[record] += 1
        margins = self.structure.margins
        return all(np.array_equal(grid.sum(table, total.view), total.counts) for total in margins)

    def encode_records(self, dataset: Iterable[Sequence[Any]]) -> Records:
        """Return labelled records (a label for every depth of every feature) as leaves."""
        features = self.structure.schema.features
        leaf_of = []
        for feature in features:
            leaf_of.append({feature.path(leaf): leaf for leaf in range(len(feature.levels))})
        records = []
        for record in dataset:
            # A nested feature takes one label for each of its depths.
            labels, codes, start = tuple(record), [], 0
            for feature, leaves in zip(features, leaf_of, strict=True):
                path = labels[start : start + len(feature.names)]
                start += len(feature.names)
                if path not in leaves:
                    raise InputError(
                        f"a record has no level of {feature.name!r} that the schema declares"
                    )
                codes.append(leaves[path])
            if start != len(labels):
                raise InputError(
                    "a record has a label for every feature of the schema, in its order"
                )
            records.append(tuple(codes))
        return tuple(records)

    def label_records(self, records: Records) -> tuple[tuple[str, ...], ...]:
        """Return records with their labels."""
        return tuple(label_record(self.structure.schema, record) for record in records)
