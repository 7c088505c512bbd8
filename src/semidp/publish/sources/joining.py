"""How members and units are joined, and what is said where records contradict it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import value_text

MOST_KINDS = 10_000
"""The most distinct values of a column of quarters."""


@dataclass(frozen=True)
class Joining:
    """How members and units are joined, and what of units follows from their members.

    Parameters
    ----------
    column
        The column that links them, of the same name in both.
    least, most
        The bounds on the members of a unit.
    derived
        Columns of units that depend on their members, which members do not have.
    aggregates
        Features of units that are computed from their members: the SQL of each, by name.
    quarters
        A column of units and its values that are no counted units, but group quarters without a
        bound.
    declared, untyped
        What aggregates take columns of members for, and the columns that have no type of their own.
    """

    column: str
    least: int
    most: int
    derived: Sequence[str] = ()
    aggregates: Mapping[str, str] = field(default_factory=dict)
    quarters: tuple[str, Sequence[str]] | None = None
    declared: Mapping[str, str] = field(default_factory=dict)
    untyped: Collection[str] = ()


def check_kinds(name: str, values: Sequence[Any]) -> None:
    """Refuse a column of quarters with too many values, or with missing ones."""
    if len(values) > MOST_KINDS:
        raise InputError(
            f"the column {name!r} of quarters has more than {MOST_KINDS:,} different values"
        )
    if any(value_text(value) is None for value in values):
        raise DataError(
            f"the column {name!r} of quarters has missing values: every unit is of one kind"
        )


@dataclass(frozen=True)
class Contradictions:
    """Sentences for records that contradict the link: they name nobody and no number."""

    column: str

    @property
    def missing_member(self) -> str:
        """A member names no unit at all."""
        return (
            f"the link column {self.column!r} has missing values among the members: every member"
            " lies in one unit"
        )

    @property
    def missing_unit(self) -> str:
        """A unit has no name."""
        return (
            f"the link column {self.column!r} has missing values among the units: every unit needs"
            " a name of its own"
        )

    @property
    def duplicate_unit(self) -> str:
        """Two units have one name."""
        return f"the link column {self.column!r} names a unit twice: keep one line of each unit"

    @property
    def nowhere(self) -> str:
        """A member names a unit that is not there."""
        return (
            f"the link column {self.column!r} of a member names no unit: every member lies in one"
            " unit of the file of units"
        )

    @property
    def too_many(self) -> str:
        """A unit has more members than was declared."""
        return "a unit has more members than declared, and nobody is dropped: declare a larger most"

    @property
    def empty(self) -> str:
        """A unit has no member, though each was declared to have one."""
        return (
            "a unit has no member, though every unit was declared to have one: declare least = 0,"
            " or leave it out"
        )

    def differs(self, name: str) -> str:
        """Say that a member and its unit do not have the same value of a column."""
        return (
            f"a member has another {name!r} than its unit: leave the column out of one of the files"
        )
