"""Whom a promise protects where several records belong to one person: a patient with all stays.

Without a `Protection` a record is a person. How many records must move together is in `adjacency`.
`ChangedUnits` bounds the units that change with them, where tables count units too.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from semidp.errors import InputError, Refused
from semidp.promise.codec import Encodable

MOST_RECORDS = 1_000_000
"""The most records of one person that a promise may name."""
_SUFFIX = re.compile(r"[ _.-]*(id|ids|no|nr|number|key|identifier)$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(Id|ID|No|Nr|Key)$")


class Protect(StrEnum):
    """Which of two linked kinds of records a promise is about."""

    unit = "unit"
    member = "member"


@dataclass(frozen=True)
class Protection(Encodable):
    """One unit with up to `most` records, all of which may be different at once.

    Parameters
    ----------
    id
        The column that says whose a record is.
    most
        The most records of one unit: public, declared, and data beyond it are refused.
    records
        What records are called, in words.
    protect
        A unit with all its records, or one of them.
    least
        The fewest records of one unit. Units that are known from their records alone have one at
        least.

    Examples
    --------
    >>> stays = Protection("patient_id", 5, "stays")
    >>> stays.who, stays.times
    ('one patient with up to 5 stays', 5)
    >>> Protection("patient", 1).who
    'one patient with 1 record'
    >>> Protection.from_json(stays.to_json()) == stays
    True
    """

    id: str
    most: int
    records: str = field(default="records", compare=False)  # a word changes no promise
    protect: Protect = Protect.unit
    least: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise InputError(
                "a promise for several records needs the column that says whose a record is"
            )
        if not _is_whole(self.most) or not 1 <= self.most <= MOST_RECORDS:
            limits = f"from 1 to {MOST_RECORDS:,}"
            raise InputError(
                f"the most records of one {self.noun} is a whole number {limits}, not {self.most}"
            )
        is_text = isinstance(self.records, str) and self.records.strip()
        if not is_text or len(self.records) > 40:
            raise InputError("what records are called is a short word, such as stays")
        # files name it by its word
        object.__setattr__(self, "protect", Protect(self.protect))
        if not _is_whole(self.least) or not 0 <= self.least <= self.most:
            raise InputError(
                f"the fewest records of one {self.noun} is a whole number from 0 to the most"
            )

    @property
    def noun(self) -> str:
        """Word for a unit: the name of its column without an ending such as id or number.

        >>> [
        ...     Protection(name, 2).noun
        ...     for name in ("patient", "patient_id", "PupilID", "id", "hh_no")
        ... ]
        ['patient', 'patient', 'pupil', 'person', 'hh']
        """
        # a column such as patient_id or PatientID names the patient
        bare = _CAMEL.sub("", _SUFFIX.sub("", self.id))
        words = re.sub(r"[\s_.-]+", " ", bare).strip()
        return words.lower() if words else "person"

    @property
    def units(self) -> str:
        """Word for several units.

        >>> Protection("patient", 2).units, Protection("baby", 2).units
        ('patients', 'babies')
        """
        noun = self.noun
        if noun.endswith("y") and noun[-2:-1] not in "aeiou":
            return f"{noun[:-1]}ies"
        ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
        return f"{noun}{ending}"

    @property
    def record(self) -> str:
        """Word for one record."""
        if len(self.records) <= 1:
            return self.records
        return self.records.removesuffix("s")

    @property
    def who(self) -> str:
        """Whom the promise protects."""
        if self.most == 1:
            return f"one {self.noun} with 1 {self.record}"
        return f"one {self.noun} with up to {self.most} {self.records}"

    @property
    def times(self) -> int:
        """How many records of the same unit change one after the other: all of a unit, or one
        member.
        """
        return self.most if self.protect is Protect.unit else 1

    def is_about(self, other: "Protection | None") -> bool:
        """Whether another promise is about the same units, whatever the most records and the words.

        >>> (
        ...     Protection("patient", 2).is_about(Protection("patient", 5)),
        ...     Protection("patient", 2).is_about(None),
        ... )
        (True, False)
        """
        if other is None:
            return False
        # two columns may name the same persons, but nothing here can know that
        same_units = self.id == other.id and self.least == other.least
        return same_units and self.protect == other.protect


def refuse_dependent(protection: Protection | None, instead: str) -> None:
    """Refuse a test that is exact for independent records alone, where a person may have several.

    >>> refuse_dependent(Protection("patient", 5, "stays"), "semidp model")
    Traceback (most recent call last):
    semidp.errors.Refused: this test takes stays for independent of each other, and one patient may\
 have 5: ask semidp model, which allows for that
    """
    if protection is not None and protection.most > 1:
        raise Refused(
            f"this test takes {protection.records} for independent of each other, and one"
            f" {protection.noun} may have {protection.most:,}: ask {instead}, which allows for that"
        )


@dataclass(frozen=True)
class ChangedUnits(Encodable):
    """The most units in which two adjacent datasets of linked records differ, by what tables see.

    Each number includes the one before: a unit that differs in its own features counts in all
    three.

    Parameters
    ----------
    own
        Units that differ in their own features.
    size
        Units that differ in their own features or their size.
    derived
        Units that differ in anything: own features, size, or who their members are.

    Examples
    --------
    >>> few, many = ChangedUnits(1, 3, 4), ChangedUnits(2, 4, 7)
    >>> few.is_within(many), many.is_within(few)
    (True, False)
    """

    own: int
    size: int
    derived: int

    def __post_init__(self) -> None:
        numbers = (self.own, self.size, self.derived)
        if not all(map(_is_whole, numbers)) or not 0 <= self.own <= self.size <= self.derived:
            raise InputError(
                "the units that change are three whole numbers, none smaller than the one before:"
                " in own features, up to their size, in anything"
            )

    def is_within(self, other: "ChangedUnits") -> bool:
        """Whether no number is larger than that of another promise."""
        own, size = self.own <= other.own, self.size <= other.size
        return own and size and self.derived <= other.derived


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
