"""A worked example of a(t): a record that changes, and those that must change with it, in the names
of the levels.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.progress import facts
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Datasets
from semidp.promise.spaces.listed_tables import (
    NEVER,
    Record,
    WorstCase,
    WorstListed,
    WorstSlice,
    a_record,
    cells,
    completions,
)
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import SemiAdjacency
from semidp.promise.spaces.semi_adjacency import semi_adjacency as count_records
from semidp.promise.spaces.structure import Slices, Structure


@frozen
class Witness:
    """A worst case: a record, the value that it takes, and the other records that must change with
    it.

    Built from the published t alone. Each of `others` is a pair: the record before and
    after.

    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns")])
    >>> print(Witness.from_codes(schema, (0, 0), (1, 0), [((1, 1), (0, 1))]))
    (f, n) → (m, n) needs (m, s) → (f, s)
    """

    features: tuple[str, ...]
    record: tuple[str, ...]
    wants: tuple[str, ...]
    others: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @classmethod
    def from_codes(
        cls, schema: Schema, x: Record, y: Record, others: Sequence[tuple[Record, Record]]
    ) -> "Witness":
        """Name the levels of records given by their codes."""
        moved = []
        for before, after in others:
            moved.append((label_record(schema, before), label_record(schema, after)))
        record, wants = label_record(schema, x), label_record(schema, y)
        return cls(schema.names, record, wants, tuple(moved))

    def to_json(self) -> dict[str, Any]:
        """Return the witness as plain values."""

        def name_levels(levels: tuple[str, ...]) -> dict[str, str]:
            return dict(zip(self.features, levels, strict=True))

        moves = []
        for before, after in self.others:
            moves.append({"from": name_levels(before), "to": name_levels(after)})
        return {
            "record": name_levels(self.record),
            "wants": name_levels(self.wants),
            "others": moves,
        }

    def __str__(self) -> str:
        moves = [_arrow(before, after) for before, after in self.others]
        needs = "; ".join(moves) or "no other record"
        return f"{_arrow(self.record, self.wants)} needs {needs}"


def _arrow(before: Sequence[str], after: Sequence[str]) -> str:
    """One record as it was and as it becomes."""
    start, end = ", ".join(before), ", ".join(after)
    return f"({start}) → ({end})"


def label_record(schema: Schema, record: Iterable[int]) -> tuple[str, ...]:
    """Return the labels of a record at every depth of its features, from the codes of its
    leaves.
    """
    labels: list[str] = []
    for feature, leaf in zip(schema.features, record, strict=True):
        labels += feature.path(leaf)
    return tuple(labels)


def find_witness(semi: SemiAdjacency | None) -> Witness | None:
    """Return a worst case that attains `worst_case`; None if none is known.

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 3], [4, 9]])
    >>> public = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    >>> print(find_witness(semi_adjacency(public)))
    (m, s) → (f, n) needs (f, s) → (m, s); (m, n) → (m, s)
    """
    return None if semi is None or semi.worst is None else write_case(semi.worst)


@singledispatch
def write_case(worst: WorstCase) -> Witness | None:
    """Write out a worst case."""
    raise TypeError("a worst case is a structure, a slice of one, or a listed table")


@write_case.register
def _(structure: Structure) -> Witness | None:
    """A record that can change on its own where every published feature has one level."""
    start = a_record(structure)
    records = (record for record in completions(structure, start) if record != start)
    other = next(records, None)
    return None if other is None else Witness.from_codes(structure.schema, start, other, [])


@write_case.register
def _(worst: WorstSlice) -> Witness:
    """y at the rarest levels of slice z, the carriers of its values all different."""
    structure, slices, z = worst.structure, worst.slices, worst.z
    cover, away = worst.cover, worst.away
    positions_of, rows = zip(*slices.rows(z), strict=True)
    # y has the rarest level of each block, so as few records as possible can carry its values.
    y = [_rarest(row) for row in rows]
    # A block of one level has nothing to vary.
    level_counts = [int((row > 0).sum()) for row in rows]
    varying = [b for b, levels in enumerate(level_counts) if levels > 1]
    # `Cover` numbers the blocks by their rarest count.
    varying.sort(key=lambda b: int(rows[b][y[b]]))
    agree = [_select_blocks(varying, pattern) for pattern in cover.agree] or [set()]
    parts = [_select_blocks(varying, part) for part in cover.parts] or [set()]
    carriers = [list(y) for _ in parts]
    x = list(y)
    for b in varying:
        # Records of other levels than y's, each used once: t holds all of them together.
        left = rows[b].copy()
        left[y[b]] = 0
        for carrier, pattern in zip(carriers, agree, strict=True):
            if b not in pattern:
                carrier[b] = _take(left)
        if not away:
            x[b] = _take(left)

    def record(levels: Sequence[int]) -> Record:
        chosen = []
        for margin, positions, level in zip(slices.margins, positions_of, levels, strict=True):
            chosen.append((margin.view, int(positions[level])))
        return a_record(structure, chosen)

    after = []
    if away:
        # x lies at another level of the common part: the first carrier takes its place there.
        start = _pick_other_record(structure, slices, z)
        after.append(start)
        x = carriers[0]
    else:
        start = record(x)
    replaced = list(zip(carriers, parts, strict=True))
    for carrier, part in replaced[len(after) :]:
        after.append(record(_replace_levels(carrier, part, x)))
    moved = []
    for before, now in zip(carriers, after, strict=True):
        moved.append((record(before), now))
    return Witness.from_codes(structure.schema, start, record(y), moved)


@write_case.register
def _(worst: WorstListed) -> Witness:
    """The cheapest way from a table where a record x becomes y."""
    dataspace, listed, x, y = worst.dataspace, worst.listed, worst.x, worst.y
    change = listed[worst.table] - listed
    change[:, x] -= 1
    change[:, y] += 1
    price = np.abs(change).sum(axis=1) + np.where(listed[:, y] > 0, 0, NEVER)
    moved = change[price.argmin()]
    schema = dataspace.schema
    levels = np.transpose(np.unravel_index(cells(dataspace), schema.shape))
    records = [tuple(map(int, cell)) for cell in levels]
    before = [records[cell] for cell in np.flatnonzero(moved > 0) for _ in range(int(moved[cell]))]
    after = [records[cell] for cell in np.flatnonzero(moved < 0) for _ in range(int(-moved[cell]))]
    return Witness.from_codes(schema, records[x], records[y], list(zip(before, after, strict=True)))


def _select_blocks(blocks: Sequence[int], places: Iterable[int]) -> set[int]:
    """The blocks at some places of a list."""
    return {blocks[place] for place in places}


def _rarest(row: NDArray[np.int64]) -> int:
    """The level with the smallest positive count."""
    beyond = row.max() + 1
    return int(np.where(row > 0, row, beyond).argmin())


def _pick_other_record(structure: Structure, slices: Slices, z: int) -> Record:
    """A record at another level of the common part, at the commonest cell of each margin there."""
    inhabited = np.flatnonzero(slices.sizes).tolist()
    home = next(other for other in inhabited if other != z)
    chosen = []
    for margin, (positions, row) in zip(slices.margins, slices.rows(home), strict=True):
        chosen.append((margin.view, int(positions[row.argmax()])))
    return a_record(structure, chosen)


def _replace_levels(levels: list[int], where: set[int], by: list[int]) -> list[int]:
    """Take over the levels of another record in some blocks."""
    replaced = list(levels)
    for block in where:
        replaced[block] = by[block]
    return replaced


def _take(left: NDArray[np.int64]) -> int:
    """Use up one record of the commonest level that is left."""
    level = int(left.argmax())
    left[level] -= 1
    return level


class WitnessedAdjacency(SemiAdjacency):
    """a(t) with a worked example, as notebooks show it."""

    @cached_property
    def witness(self) -> Witness | None:
        """A worst case that attains `worst_case`; None if none is known."""
        return find_witness(self)

    def _repr_html_(self) -> str:
        worst = f"at most {self.bound}"
        if self.worst_case is not None:
            worst = str(self.worst_case)
        rows = [
            ("worst case", worst),
            ("definition, literally", str(self.definition or "not known")),
            ("found by", self.method),
        ]
        if self.witness is not None:
            rows.append(("example", str(self.witness)))
        return facts("a(t): how many records move together", rows)


def semi_adjacency(dataspace: Datasets, protection: Protection | None = None) -> WitnessedAdjacency:
    """Return the semi-adjacent parameter a(t) of a dataspace, with a worked example.

    Worst case: the maximum over X in D_t, records x of X and values y possible for it, of
    ``min {d(X, Y) : Y in D_t, that record is y in Y}``. Definition (Cho and Awan, Section 3.2,
    literally): the maximum over x and y of the minimum over both X and Y; docs/errata.md says why
    the two differ.

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 3], [4, 9]])
    >>> a = semi_adjacency(Dataspace.from_table(table, [Margin("sex"), Margin("region")]))
    >>> a.worst_case, a.definition, a.bound, a.method
    (3, 2, 3, 'closed form for disjoint margins')
    >>> print(a.witness)
    (m, s) → (f, n) needs (f, s) → (m, s); (m, n) → (m, s)
    """
    answer = count_records(dataspace, protection)
    parts = (answer.worst_case, answer.definition, answer.bound, answer.method)
    return WitnessedAdjacency(*parts, answer.worst)
