"""The slices of a dataspace whose margins are disjoint apart from one common part, and worst cases in them.

Given a level z of the common part Z, the margins are disjoint blocks of counts. `semi` asks each slice how many
records must move; `cover` answers; here the answer becomes a worked witness.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.invariants.cover import Cover
from semidp.invariants.structure import Axes, Structure
from semidp.invariants.witness import Record, Witness


class Slices:
    """The levels z of the common part Z, and the blocks of published counts in each."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        assert structure.common is not None
        self.common = structure.common
        shape = structure.schema.shape
        self.blocks = [tuple(a for a in margin.axes if a not in self.common) for margin in structure.essential]
        self.matrices = []
        for margin, block in zip(structure.essential, self.blocks, strict=True):
            order = [margin.axes.index(axis) for axis in (*self.common, *block)]
            width = int(np.prod([shape[axis] for axis in block], dtype=np.int64))
            self.matrices.append(margin.counts.transpose(order).reshape(-1, width))
        self.sizes = self.matrices[0].sum(axis=1)

    def rarest(self, z: int) -> tuple[int, ...]:
        """The smallest positive count of each block that leaves a choice in slice z, sorted."""
        return tuple(sorted(int(row[row > 0].min()) for row in self._rows(z) if (row > 0).sum() > 1))

    def candidates(self) -> Iterable[tuple[int, int, bool]]:
        """Slices where y may lie, with the number of other records there and whether x lies elsewhere, best first."""
        inhabited = np.flatnonzero(self.sizes)
        choices = np.sum([(matrix > 0).sum(axis=1) > 1 for matrix in self.matrices], axis=0)
        several = len(inhabited) > 1
        seen = set()
        for z in sorted(inhabited.tolist(), key=lambda z: -choices[z]):
            kind = (self.rarest(z), int(self.sizes[z]))
            if kind not in seen:
                seen.add(kind)
                yield z, kind[1] - int(not several), several

    def _rows(self, z: int) -> list[NDArray[np.int64]]:
        return [matrix[z] for matrix in self.matrices]

    def witness(self, z: int, cover: Cover, away: bool) -> Witness:
        """Write out a worst case: y at the rarest levels of slice z, the carriers of its values all different."""
        rows = self._rows(z)
        y = [int(np.where(row > 0, row, row.max() + 1).argmin()) for row in rows]
        varying = sorted((b for b, row in enumerate(rows) if (row > 0).sum() > 1), key=lambda b: int(rows[b][y[b]]))
        agree = [{varying[i] for i in pattern} for pattern in cover.agree] or [set()]
        parts = [{varying[i] for i in part} for part in cover.parts] or [set()]
        carriers = [list(y) for _ in parts]
        x = list(y)
        for b in varying:
            left = rows[b].copy()
            left[y[b]] = 0
            for carrier, pattern in zip(carriers, agree, strict=True):
                if b not in pattern:
                    carrier[b] = _take(left)
            if not away:
                x[b] = _take(left)
        if not away:
            home = z
            after = [_replaced(carrier, part, x) for carrier, part in zip(carriers, parts, strict=True)]
            places = [z] * len(parts)
        else:
            home = int(next(other for other in np.flatnonzero(self.sizes) if other != z))
            x = [int(row.argmax()) for row in self._rows(home)]
            rest = zip(carriers[1:], parts[1:], strict=True)
            after = [x] + [_replaced(carrier, part, carriers[0]) for carrier, part in rest]
            places = [home] + [z] * (len(parts) - 1)
        others = [
            (self._record(z, before), self._record(place, now))
            for before, now, place in zip(carriers, after, places, strict=True)
        ]
        return Witness.of(self.structure.schema, self._record(home, x), self._record(z, y), others)

    def _record(self, z: int, levels: list[int]) -> Record:
        return a_record(self.structure, [(self.common, z), *zip(self.blocks, levels, strict=True)])


def a_record(structure: Structure, chosen: Iterable[tuple[Axes, int]] = ()) -> Record:
    """Return a record that can occur, with the chosen (flat) levels of some groups of features.

    >>> from semidp.invariants import Dataspace, Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[0, 0, 1], [0, 2, 1]])
    >>> structure = Structure.of(Dataspace.of(table, [Margin("sex"), Margin("region")]))
    >>> a_record(structure), a_record(structure, [((0,), 1)])
    ((0, 1), (1, 1))
    """
    shape = structure.schema.shape
    record = [0] * len(shape)
    for margin in structure.margins:
        for axis in margin.axes:
            record[axis] = int(np.flatnonzero(margin.over((axis,)))[0])
    for axes, flat in chosen:
        if axes:
            for axis, code in zip(axes, np.unravel_index(flat, [shape[axis] for axis in axes]), strict=True):
                record[axis] = int(code)
    for axis, level in zip(structure.unpublished, next(completions(structure, record)), strict=True):
        record[axis] = level
    return tuple(record)


def completions(structure: Structure, record: Sequence[int]) -> Iterator[Record]:
    """Iterate over the levels that the unpublished features may take beside a record's published ones.

    >>> from semidp.invariants import Dataspace, Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[0, 0, 1], [0, 2, 1]])
    >>> list(completions(Structure.of(Dataspace.of(table, [Margin("sex")])), (1, 0)))
    [(0,), (1,), (2,)]
    """
    possible = structure.schema.possible
    if possible is None:
        yield from np.ndindex(*(structure.schema.shape[axis] for axis in structure.unpublished))
        return
    where = tuple(slice(None) if axis in structure.unpublished else level for axis, level in enumerate(record))
    for levels in np.argwhere(possible[where]):
        yield tuple(int(level) for level in levels)


def free_witness(structure: Structure) -> Witness | None:
    """Return a record that can change on its own where every published feature has one level, or None.

    >>> from semidp.invariants import Dataspace
    >>> from semidp.tables import Feature, Schema, Table
    >>> print(free_witness(Structure.of(Dataspace.of(Table(Schema([Feature("sex", "fm")]), [3, 4]), []))))
    (f) → (m) needs no other record
    """
    start = a_record(structure)
    for levels in completions(structure, start):
        record = list(start)
        for axis, level in zip(structure.unpublished, levels, strict=True):
            record[axis] = level
        if tuple(record) != start:
            return Witness.of(structure.schema, start, tuple(record), [])
    return None


def _replaced(levels: list[int], where: set[int], by: list[int]) -> list[int]:
    """Take over the levels of another record in some blocks."""
    return [by[b] if b in where else level for b, level in enumerate(levels)]


def _take(left: NDArray[np.int64]) -> int:
    """Use up one record of the commonest level that is left."""
    level = int(left.argmax())
    left[level] -= 1
    return level
