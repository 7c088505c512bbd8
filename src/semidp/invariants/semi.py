"""The semi-adjacent parameter a(t): how many records must move together so that one of them can be anything else.

Both readings of the paper, exactly where a closed form or a listing exists, with a worked witness; everything is a
function of the published t, never of the data. What a(t) does to norms lives in `sensitivity`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import AdjacencyUnknown, InputError
from semidp.invariants.cover import Cover, worst_cover
from semidp.invariants.fiber import cells, fiber
from semidp.invariants.spaces import Dataspace
from semidp.invariants.structure import Structure

Record = tuple[int, ...]
_MOST_WORK = 300_000_000  # pairs of tables times pairs of cells: some ten seconds


@dataclass(frozen=True)
class Witness:
    """A dataset's worst case: a record, the value it wants to take, and the other records that must move for it.

    Built from the published t alone. Each of `others` is a pair: what the record was, what it becomes.
    """

    features: tuple[str, ...]
    record: tuple[str, ...]
    wants: tuple[str, ...]
    others: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the witness as plain values."""

        def named(levels: tuple[str, ...]) -> dict[str, str]:
            return dict(zip(self.features, levels, strict=True))

        return {
            "record": named(self.record),
            "wants": named(self.wants),
            "others": [{"from": named(before), "to": named(after)} for before, after in self.others],
        }

    def __str__(self) -> str:
        moves = [f"({', '.join(before)}) → ({', '.join(after)})" for before, after in self.others]
        start = f"({', '.join(self.record)}) → ({', '.join(self.wants)})"
        return start + (f" needs {'; '.join(moves)}" if moves else " needs no other record")


@dataclass(frozen=True)
class SemiAdjacency:
    """a(t), in both readings.

    Attributes
    ----------
    worst_case
        The most records, over all datasets, records and values, that must move; None where only a bound is known.
    definition
        The paper's Definition read literally, which takes the most favourable dataset; None where it is not known.
    bound
        What is used: `worst_case` where known, else a proven upper bound of it.
    method
        How it was found.
    witness
        A worst case that attains `worst_case`, or None.
    """

    worst_case: int | None
    definition: int | None
    bound: int
    method: str
    witness: Witness | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the value as plain values, without the witness."""
        return {
            "worst_case": self.worst_case,
            "definition": self.definition,
            "bound": self.bound,
            "method": self.method,
        }


def semi_adjacency(dataspace: Dataspace) -> SemiAdjacency:
    """Return the semi-adjacent parameter a(t) of a dataspace.

    Worst case: the maximum over X in D_t, records x of X and values y possible for it, of
    ``min {d(X, Y) : Y in D_t, that record is y in Y}``. Definition (Cho and Awan, Section 3.2, literally): the maximum
    over x and y of the minimum over both X and Y; docs/errata.md says why the two differ.

    Margins that are disjoint, or disjoint apart from one common part, are exact in closed form: one record plus the
    worst smallest cover of y's published values. A small space is listed. Other decomposable margins have the bound
    m + 1 for m margins. Otherwise the caller must give a.

    Examples
    --------
    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 3], [4, 9]])
    >>> found = semi_adjacency(Dataspace.of(table, [Margin("sex"), Margin("region")]))
    >>> found.worst_case, found.definition, found.bound, found.method
    (3, 2, 3, 'closed form for disjoint margins')
    >>> print(found.witness)
    (m, s) → (f, n) needs (f, s) → (m, s); (m, n) → (m, s)
    """
    if dataspace.schema is None:
        raise InputError("a(t) of a dataspace that is only described is not known: give its schema and margins")
    structure = Structure.of(dataspace)
    if structure.n == 0:
        return SemiAdjacency(0, 0, 0, "no records")
    if not structure.zeros_matter and structure.common is not None:
        return _closed_form(structure)
    listed = _listed(dataspace)
    if listed is not None:
        return listed
    if not structure.zeros_matter and structure.decomposable:
        return SemiAdjacency(None, None, len(structure.essential) + 1, "bound by the junction tree")
    reason = "structural zeros tie its features" if structure.zeros_matter else "they are not decomposable"
    raise AdjacencyUnknown(
        f"a(t) for {dataspace.summary()} has no closed form ({reason}) and its tables are too many to list: give the "
        f"number a of records that must be able to move together, with --a N or Adjacency(N)"
    )


def _closed_form(structure: Structure) -> SemiAdjacency:
    """Margins that are disjoint apart from a common part Z: the worst slice of Z decides."""
    margins = structure.essential
    if not margins:
        a = int(bool(structure.free))
        return SemiAdjacency(a, a, a, "no published margin leaves a choice", _free_witness(structure) if a else None)
    slices = _Slices(structure)
    least, most, best = 1, 1, None
    for z, others, away in slices.candidates():
        rarest = slices.rarest(z)
        if 1 + max(len(rarest), int(away)) <= least:
            continue
        cover = worst_cover(rarest, others)
        size = max(cover.least, int(away))
        most = max(most, 1 + max(cover.most, int(away)))
        if 1 + size > least:
            least, best = 1 + size, (z, cover, away)
    kind = "disjoint margins" if not structure.common else "margins disjoint apart from a common part"
    known = least == most
    method = f"closed form for {kind}" if known else f"bound for {kind}"
    witness = slices.witness(*best) if best is not None and known else None
    return SemiAdjacency(least if known else None, 2, most, method, witness)


class _Slices:
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
        varying = sorted(
            (b for b, row in enumerate(rows) if (row > 0).sum() > 1), key=lambda b: rows[b][rows[b] > 0].min()
        )
        parts = [{varying[i] for i in pattern} for pattern in cover.patterns] or [set()]
        y = [int(np.where(row > 0, row, row.max() + 1).argmin()) for row in rows]
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
            after = [
                [x[b] if b in part else c[b] for b in range(len(rows))] for c, part in zip(carriers, parts, strict=True)
            ]
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
        return _witness(self.structure, self._record(home, x), self._record(z, y), others)

    def _record(self, z: int, levels: list[int]) -> Record:
        structure = self.structure
        shape = structure.schema.shape
        record = [_first_level(structure, axis) for axis in range(len(shape))]
        for axes, flat in [(self.common, z), *zip(self.blocks, levels, strict=True)]:
            if axes:
                where = np.unravel_index(flat, [shape[axis] for axis in axes])
                for axis, level in zip(axes, where, strict=True):
                    record[axis] = int(level)
        return _completed(structure, record)


def _replaced(levels: list[int], where: set[int], by: list[int]) -> list[int]:
    """Take over the levels of another record in some blocks."""
    return [by[b] if b in where else level for b, level in enumerate(levels)]


def _take(left: NDArray[np.int64]) -> int:
    """Use up one record of the commonest level that is left."""
    level = int(left.argmax())
    left[level] -= 1
    return level


def _first_level(structure: Structure, axis: int) -> int:
    """A level of a feature that can occur."""
    for margin in structure.margins:
        if axis in margin.axes:
            return int(np.flatnonzero(margin.over((axis,)))[0])
    return 0


def _completed(structure: Structure, record: list[int]) -> Record:
    """Let an unpublished feature follow the one that it determines, such as a county its state."""
    possible = structure.schema.possible
    if possible is None or possible[tuple(record)]:
        return tuple(record)
    loose = [axis for axis in structure.determined if axis in structure.free]
    where: list[Any] = [slice(None) if axis in loose else level for axis, level in enumerate(record)]
    chosen = np.argwhere(possible[tuple(where)])[0]
    for axis, level in zip(sorted(loose), chosen, strict=True):
        record[axis] = int(level)
    return tuple(record)


def _free_witness(structure: Structure) -> Witness | None:
    x = [_first_level(structure, axis) for axis in range(len(structure.schema.shape))]
    start = _completed(structure, list(x))
    for axis in sorted(structure.free):
        for level in range(structure.schema.shape[axis]):
            y = list(start)
            y[axis] = level
            possible = structure.schema.possible
            if tuple(y) != start and (possible is None or possible[tuple(y)]):
                return _witness(structure, start, tuple(y), [])
    return None


def _witness(structure: Structure, x: Record, y: Record, others: list[tuple[Record, Record]]) -> Witness:
    def named(record: Record) -> tuple[str, ...]:
        return tuple(feature.levels[code] for feature, code in zip(structure.schema.features, record, strict=True))

    moved = tuple((named(before), named(after)) for before, after in others)
    return Witness(structure.schema.names, named(x), named(y), moved)


def _listed(dataspace: Dataspace) -> SemiAdjacency | None:
    """Both readings by listing D_t, or None where it is too large.

    For tables T and T' the cheapest datasets with x in the one and y in the other, x ≠ y, differ in
    ``1 + |(T - e_x) - (T' - e_y)|_1 / 2`` records.
    """
    listed = fiber(dataspace)
    if listed is None or (len(listed) * listed.shape[1]) ** 2 > _MOST_WORK:
        return None
    width = listed.shape[1]
    kindest = np.full((width, width), np.iinfo(np.int64).max)
    worst = np.zeros((width, width), dtype=np.int64)
    where: dict[int, tuple[int, int, int]] = {}
    never = 4 * listed.sum() + 4
    for i, table in enumerate(listed):
        change = table - listed
        leave = np.where(change >= 1, -1, 1)
        enter = np.where(change >= 0, 1, -1) + np.where(listed > 0, 0, never)
        twice = (np.abs(change).sum(axis=1)[:, None, None] + leave[:, :, None] + enter[:, None, :]).min(axis=0)
        cost = 1 + twice // 2
        np.fill_diagonal(cost, 0)
        cost[:, ~(listed > 0).any(axis=0)] = 0
        present = table > 0
        kindest[present] = np.minimum(kindest[present], cost[present])
        cost[~present] = 0
        if cost.max() > worst.max():
            x, y = (int(k) for k in np.unravel_index(cost.argmax(), cost.shape))
            where[int(cost.max())] = (i, x, y)
        worst = np.maximum(worst, cost)
    a = int(worst.max())
    occurs = (listed > 0).any(axis=0)
    definition = int(kindest[occurs].max(initial=0))
    witness = _listed_witness(dataspace, listed, *where[a]) if a else None
    return SemiAdjacency(a, definition, a, "listing of all tables", witness)


def _listed_witness(dataspace: Dataspace, listed: NDArray[np.int64], i: int, x: int, y: int) -> Witness:
    """Write out the cheapest way from table i, where a record x becomes y."""
    change = listed[i] - listed
    change[:, x] -= 1
    change[:, y] += 1
    price = np.abs(change).sum(axis=1) + np.where(listed[:, y] > 0, 0, 4 * listed.sum() + 4)
    moved = change[price.argmin()]
    structure = Structure.of(dataspace)
    assert dataspace.schema is not None
    records = [
        tuple(int(k) for k in cell) for cell in np.transpose(np.unravel_index(cells(dataspace), structure.schema.shape))
    ]
    before = [records[cell] for cell in np.flatnonzero(moved > 0) for _ in range(int(moved[cell]))]
    after = [records[cell] for cell in np.flatnonzero(moved < 0) for _ in range(int(-moved[cell]))]
    return _witness(structure, records[x], records[y], list(zip(before, after, strict=True)))
