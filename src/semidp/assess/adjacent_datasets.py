"""Adjacency of small datasets by the definition alone: all datasets with some exact totals, and the
neighbors of one of them.

No claim rests on this module. It executes the definitions behind the proofs of `promise`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import permutations, product
from typing import Any

import numpy as np

from semidp.errors import InputError
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Table
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.listed_tables import MOST_TABLES, cells, fiber
from semidp.publish.witness import label_record

Record = tuple[int, ...]  # a leaf of every feature
Records = tuple[Record, ...]
Labelled = Iterable[Sequence[Any]]
"""Records of a small dataset, each with a label for every depth of every feature."""


def enumerate_tables(dataspace: Dataspace) -> Iterator[Table]:
    """Iterate over the tables of a small dataspace that has a schema.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns")])
    >>> space = Dataspace.from_table(
    ...     Table(schema, [[1, 1], [0, 1]]), [Margin("sex"), Margin("region")]
    ... )
    >>> [table.counts.tolist() for table in enumerate_tables(space)]
    [[[0, 2], [1, 0]], [[1, 1], [0, 1]]]
    """
    listed = fiber(dataspace)
    if listed is None:
        raise InputError(f"this dataspace has too many tables to list: at most {MOST_TABLES:,} are")
    where = cells(dataspace)
    for row in listed:
        full = np.zeros(dataspace.schema.size, dtype=np.int64)
        full[where] = row
        yield Table(dataspace.schema, full.reshape(dataspace.schema.shape))


def datasets(dataspace: Dataspace) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Iterate over the datasets of a small dataspace: labeled records, each the names of its
    levels.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> space = Dataspace.from_table(Table(Schema([Feature("sex", "fm")]), [1, 1]), [Margin("sex")])
    >>> list(datasets(space))
    [(('f',), ('m',)), (('m',), ('f',))]
    """
    for table in enumerate_tables(dataspace):
        records: list[tuple[str, ...]] = []
        for cell in np.argwhere(table.counts).tolist():
            count = int(table.counts[tuple(cell)])
            records += [label_record(dataspace.schema, cell)] * count
        yield from sorted(set(permutations(records)))


def is_adjacent(
    adjacency: Adjacency, one: Labelled, other: Labelled, dataspace: Dataspace | None = None
) -> bool:
    """Whether two small datasets, as lists of labeled records, are adjacent. What an exchange is
    depends on their dataspace.

    >>> from semidp.promise.spaces.adjacency import Ball, Exchange
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("ill", "yn")]), [[1, 1], [0, 1]])
    >>> public = Dataspace.from_table(table, [Margin("sex")])
    >>> one, swapped = (
    ...     [("f", "y"), ("f", "n"), ("m", "n")],
    ...     [("m", "y"), ("f", "n"), ("f", "n")],
    ... )
    >>> # Two people change their illness: in A_2, and no exchange
    >>> both_ill = [("f", "n"), ("f", "y"), ("m", "n")]
    >>> exchange = Exchange.from_dataspace(public)
    >>> [is_adjacent(exchange, one, other, public) for other in (swapped, both_ill)]
    [True, False]
    >>> is_adjacent(Ball(2), one, both_ill)
    True
    """
    if adjacency.protects_groups:
        return _differ_in_few(adjacency, one, other)
    if dataspace is None:
        raise InputError(
            "whether two datasets are exchanges depends on what is published: give their dataspace"
        )
    _refuse_several(adjacency)
    blocks = ListedExchanges.from_dataspace(dataspace)
    return blocks.adjacent(blocks.encode_records(one), blocks.encode_records(other))


def _differ_in_few(adjacency: Adjacency, one: Labelled, other: Labelled) -> bool:
    """Whether two datasets differ in at most `a` records."""
    if adjacency.units is not None:
        raise InputError("records alone do not say which units differ: compare linked datasets")
    try:
        pairs = list(zip(one, other, strict=True))
    except ValueError:
        raise InputError("adjacency compares datasets with the same number of records") from None
    return sum(x != y for x, y in pairs) <= adjacency.a


def _refuse_several(adjacency: Adjacency) -> None:
    """Refuse to compare records without their persons."""
    if adjacency.times > 1:
        raise InputError(
            "records alone do not say whose they are: compare datasets one exchange at a time"
        )


def list_neighbors(
    adjacency: Adjacency, dataset: Labelled, dataspace: Dataspace
) -> list[tuple[tuple[str, ...], ...]]:
    """Return the datasets of a small dataspace that are adjacent to one of them, without itself.

    >>> from semidp.promise.spaces.adjacency import Ball, Exchange
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("ill", "yn")]), [[1, 0], [0, 1]])
    >>> public = Dataspace.from_table(table, [Margin("sex")])
    >>> records = [("f", "y"), ("m", "n")]
    >>> (
    ...     len(list_neighbors(Ball(2), records, public)),
    ...     len(list_neighbors(Exchange.from_dataspace(public), records, public)),
    ... )
    (7, 5)
    """
    if adjacency.protects_groups:
        mine = tuple(map(tuple, dataset))
        candidates = (other for other in datasets(dataspace) if other != mine)
        return [other for other in candidates if is_adjacent(adjacency, mine, other)]
    _refuse_several(adjacency)
    blocks = ListedExchanges.from_dataspace(dataspace)
    encoded = blocks.encode_records(dataset)
    if not blocks.contains(encoded):
        raise InputError("the dataset does not have the published totals of the dataspace")
    return sorted(map(blocks.label_records, blocks.neighbours(encoded)))


class ListedExchanges(Blocks):
    """The exchanges of small datasets, whose records are leaves of every feature.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("ill", "yn")]), [[1, 0], [0, 1]])
    >>> blocks = ListedExchanges.from_dataspace(Dataspace.from_table(table, [Margin("sex")]))
    >>> sorted(blocks.neighbours(((0, 0), (1, 1))))[0]
    ((0, 0), (1, 0))
    """

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
        """Return labeled records (a label for every depth of every feature) as leaves."""
        features = self.structure.schema.features
        names = [name for feature in features for name in feature.names]
        records = [tuple(record) for record in dataset]
        if any(len(record) != len(names) for record in records):
            raise InputError("a record has a label for every feature of the schema, in its order")
        columns = {name: [record[place] for record in records] for place, name in enumerate(names)}
        leaves = []
        for feature in features:
            # A nested feature takes one label for each of its depths.
            labels = {name: columns[name] for name in feature.names}
            leaves.append(feature.locate_leaves(labels).tolist())
        return tuple(zip(*leaves, strict=True))

    def label_records(self, records: Records) -> tuple[tuple[str, ...], ...]:
        """Return records with their labels."""
        return tuple(label_record(self.structure.schema, record) for record in records)
