"""A worked example of a(t): who wants to change, and who must move with them, in the names of the levels.

How a worst case is found lives in `slices` and `semi`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semidp.tables import Schema

Record = tuple[int, ...]
"""The code of a record's level for each feature of the schema."""


@dataclass(frozen=True)
class Witness:
    """A dataset's worst case: a record, the value it wants to take, and the other records that must move for it.

    Built from the published t alone. Each of `others` is a pair: what the record was, what it becomes.

    >>> from semidp.tables import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "ns")])
    >>> print(Witness.of(schema, (0, 0), (1, 0), [((1, 1), (0, 1))]))
    (f, n) → (m, n) needs (m, s) → (f, s)
    """

    features: tuple[str, ...]
    record: tuple[str, ...]
    wants: tuple[str, ...]
    others: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @classmethod
    def of(cls, schema: Schema, x: Record, y: Record, others: Sequence[tuple[Record, Record]]) -> "Witness":
        """Name the levels of records given by their codes."""

        def named(record: Record) -> tuple[str, ...]:
            return tuple(feature.levels[code] for feature, code in zip(schema.features, record, strict=True))

        return cls(schema.names, named(x), named(y), tuple((named(before), named(after)) for before, after in others))

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
