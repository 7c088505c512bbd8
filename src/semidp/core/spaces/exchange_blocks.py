"""Exchange adjacency: one person changes, and others hand over the published values that the person takes.

`Blocks` holds the published blocks of a dataspace and executes the definition on small datasets; which spaces have such
blocks, and how many records an exchange moves, it decides for any size. Norms are in `queries`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from semidp.core.margins import LARGEST_MASK, Mask, Totals, View, named, within
from semidp.core.spaces.dataspace import Datasets, Dataspace
from semidp.core.spaces.listing import cells, labelled
from semidp.core.spaces.structure import Structure
from semidp.errors import InputError, Refused

Record = tuple[int, ...]  # a leaf of every feature
Records = tuple[Record, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The published blocks of a dataspace, no feature in two of them.

    X and Y are exchanges of each other if one arises from the other so: one person goes from x to a possible y. For
    every block in which their published tuples differ, one other record that has y's whole tuple there (the carrier,
    read before any change; one record may serve several blocks) takes x's leaf on the features of the block whose
    published nodes differ, and keeps all else. Nobody else changes.

    Features that the published counts leave no choice are not part of a block: x and y agree on them.

    Examples
    --------
    >>> from semidp.core.spaces.dataspace import Margin
    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.schema import Schema
    >>> from semidp.core.tables.counts import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns"), Feature("ill", "yn")])
    >>> table = Table(schema, np.full((2, 2, 2), 1))
    >>> blocks = Blocks.of(Dataspace.of(table, [Margin("sex"), Margin("region")]))
    >>> blocks.count, blocks.reach
    (2, 3)
    """

    dataspace: Dataspace
    structure: Structure

    @classmethod
    def of(cls, dataspace: Datasets) -> "Blocks":
        """Return the blocks; refuse margins that overlap and structural zeros that tie a block to anything else."""
        if not isinstance(dataspace, Dataspace):
            raise InputError("exchanges in a dataspace that is only described are not known: give schema and margins")
        found = cls(dataspace, Structure.of(dataspace))
        views = [margin.view for margin in found.margins]
        for position, one in enumerate(views):
            for other in views[:position]:
                shared = [axis for axis, depths in enumerate(zip(one, other, strict=True)) if all(depths)]
                if shared:
                    name = dataspace.schema.features[shared[0]].name
                    raise Refused(
                        f"exchange adjacency needs published margins that share no feature, and {name!r} is in two of "
                        "them: publish it in one margin, or protect a number of records instead"
                    )
        if found._zeros_tie():
            raise Refused(
                "exchange adjacency needs every combination of levels below the published counts to be possible, and "
                "structural zeros tie a published margin to something else: protect a number of records instead"
            )
        return found

    @property
    def margins(self) -> tuple[Totals, ...]:
        """The blocks: the published margins as far as they leave a choice."""
        return self.structure.essential

    @property
    def count(self) -> int:
        """q, the number of blocks with two levels of positive count."""
        return len(self.margins)

    @property
    def reach(self) -> int:
        """The most records that one exchange changes: q + 1, all of them where there are fewer, 0 without freedom."""
        free = bool(self.structure.varying) or self.count
        return min(self.count + 1, self.structure.n) if free else 0

    @cached_property
    def axes(self) -> frozenset[int]:
        """The features that lie in a block."""
        return frozenset(axis for margin in self.margins for axis in named(margin.view))

    def _zeros_tie(self) -> bool:
        """Whether the cells that can occur are fewer than: all below the blocks, times what zeros leave of the rest."""
        schema, grid = self.structure.schema, self.structure.grid
        zeros = [schema.view(name for name, _ in zero.levels) for zero in schema.structural_zeros]
        apart = [
            any(within(view, margin.view) for margin in self.structure.margins)
            or not any(view[axis] for axis in self.axes)
            for view in zeros
        ]
        if all(apart):
            return False
        if not grid.holds(LARGEST_MASK):
            return True
        there = grid.inhabited(None, self.structure.margins)
        inhabited: Mask = np.ones(grid.shape, dtype=bool) if there is None else there
        assert schema.possible is not None
        possible = inhabited & schema.possible
        rest = possible.any(axis=tuple(self.axes), keepdims=True)
        return bool((possible != (inhabited & rest)).any())

    @cached_property
    def cells(self) -> tuple[Record, ...]:
        """The records that can occur."""
        where = np.unravel_index(cells(self.dataspace), self.structure.grid.shape)
        return tuple(tuple(int(code) for code in cell) for cell in zip(*where, strict=True))

    def nodes(self, record: Record, view: View) -> tuple[int, ...]:
        """Return the nodes of a record at the depths of a view, -1 where it names none."""
        return tuple(
            self._nodes[axis][depth][leaf] for axis, (depth, leaf) in enumerate(zip(view, record, strict=True))
        )

    @cached_property
    def _nodes(self) -> list[list[list[int]]]:
        """For each feature, depth and leaf the node; -1 at depth 0."""
        return [
            [[-1] * chain.leaves, *(chain.above(depth).tolist() for depth in range(1, chain.depth + 1))]
            for chain in self.structure.grid.chains
        ]

    def _differ(self, x: Record, y: Record) -> list[tuple[View, list[int]]]:
        """The blocks whose published tuples differ, each with its features whose nodes differ."""
        found = []
        for margin in self.margins:
            pairs = zip(self.nodes(x, margin.view), self.nodes(y, margin.view), strict=True)
            axes = [axis for axis, (one, other) in enumerate(pairs) if one != other]
            if axes:
                found.append((margin.view, axes))
        return found

    def _from(self, records: Records, i: int, x: Record, y: Record) -> Iterator[Records]:
        """Iterate over what arises from a small dataset when one person goes from x to y."""
        differ = self._differ(x, y)
        wanted = [self.nodes(y, view) for view, _ in differ]
        carriers = [
            [j for j, other in enumerate(records) if j != i and self.nodes(other, view) == tuple_]
            for (view, _), tuple_ in zip(differ, wanted, strict=True)
        ]
        for chosen in product(*carriers):
            changed = [list(record) for record in records]
            changed[i] = list(y)
            for (_, axes), j in zip(differ, chosen, strict=True):
                for axis in axes:
                    changed[j][axis] = x[axis]
            yield tuple(map(tuple, changed))

    def backward(self, records: Records) -> Iterator[Records]:
        """Iterate over the datasets from which a small one arises."""
        for i, y in enumerate(records):
            for x in self.cells:
                differ = self._differ(x, y)
                carriers = []
                for view, axes in differ:
                    kept = tuple(0 if axis in axes else depth for axis, depth in enumerate(view))
                    carriers.append(
                        [
                            j
                            for j, other in enumerate(records)
                            if j != i
                            and all(other[axis] == x[axis] for axis in axes)
                            and self.nodes(other, kept) == self.nodes(y, kept)
                        ]
                    )
                for chosen in product(*carriers):
                    places = [(j, axis, view) for (view, axes), j in zip(differ, chosen, strict=True) for axis in axes]
                    below = [self._below(axis, view[axis], y[axis]) for _, axis, view in places]
                    for leaves in product(*below):
                        before = [list(record) for record in records]
                        before[i] = list(x)
                        for (j, axis, _), leaf in zip(places, leaves, strict=True):
                            before[j][axis] = leaf
                        yield tuple(map(tuple, before))

    def _below(self, axis: int, depth: int, leaf: int) -> list[int]:
        """The leaves that can occur below the node of a leaf."""
        there = self.structure.inhabited_nodes(axis, self.structure.grid.chains[axis].depth)
        nodes = self._nodes[axis][depth]
        return [other for other, node in enumerate(nodes) if node == nodes[leaf] and there[other]]

    def neighbours(self, records: Records) -> set[Records]:
        """Return the datasets adjacent to a small one, without itself."""
        people = ((i, x, y) for i, x in enumerate(records) for y in self.cells)
        forward = {found for person in people for found in self._from(records, *person)}
        return forward.union(self.backward(records)) - {records}

    def adjacent(self, one: Records, other: Records) -> bool:
        """Whether two datasets of D_t are exchanges of each other, or the same."""
        if not (self.contains(one) and self.contains(other)):
            return False
        return one == other or self._arises(one, other) or self._arises(other, one)

    def _arises(self, one: Records, other: Records) -> bool:
        changed = [i for i, (x, y) in enumerate(zip(one, other, strict=True)) if x != y]
        return len(changed) <= self.reach and any(
            other == found for i in changed for found in self._from(one, i, one[i], other[i])
        )

    def contains(self, records: Records) -> bool:
        """Whether a dataset has the published totals."""
        if len(records) != self.structure.n or not {*records} <= {*self.cells}:
            return False
        table = np.zeros(self.structure.grid.shape, dtype=np.int64)
        for record in records:
            table[record] += 1
        grid = self.structure.grid
        return all(np.array_equal(grid.sum(table, total.view), total.counts) for total in self.structure.margins)

    def coded(self, dataset: Iterable[Sequence[Any]]) -> Records:
        """Return labelled records (a label for every depth of every feature) as leaves."""
        features = self.structure.schema.features
        paths = [{feature.path(leaf): leaf for leaf in range(len(feature.levels))} for feature in features]
        found = []
        for record in dataset:
            labels, codes, start = tuple(record), [], 0
            for feature, known in zip(features, paths, strict=True):
                path = labels[start : start + len(feature.names)]
                start += len(feature.names)
                if path not in known:
                    raise InputError(f"a record has no level of {feature.name!r} that the schema declares")
                codes.append(known[path])
            if start != len(labels):
                raise InputError("a record has a label for every feature of the schema, in its order")
            found.append(tuple(codes))
        return tuple(found)

    def labelled(self, records: Records) -> tuple[tuple[str, ...], ...]:
        """Return records with their labels."""
        return tuple(labelled(self.structure.schema, record) for record in records)


def servings(blocks: int) -> Iterator[tuple[tuple[int | None, ...], int]]:
    """Iterate over who carries each block, None where x and y agree there, and how many carriers there are.

    Carriers are numbered as they first occur.

    >>> [servers for servers, carriers in servings(2)]
    [(None, None), (None, 0), (0, None), (0, 0), (0, 1)]
    """

    def grow(servers: tuple[int | None, ...], carriers: int) -> Iterator[tuple[tuple[int | None, ...], int]]:
        if len(servers) == blocks:
            yield servers, carriers
            return
        for server in (None, *range(carriers + 1)):
            yield from grow((*servers, server), max(carriers, 0 if server is None else server + 1))

    return grow((), 0)
