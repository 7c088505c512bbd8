"""Whom a promise protects, and the words for the two kinds of adjacency in messages and reports.

Without a `Protection` a record is a person; with one, several records belong to one person. `Ball`
and `Exchange` (in `adjacency`) keep their words here, so no other code asks which of the two it
has.
"""

import re
from abc import ABC, abstractmethod
from enum import StrEnum

from attrs import field, frozen

from semidp.errors import InputError, Refused
from semidp.promise.documents import Encodable
from semidp.promise.exact import count_noun

MOST_RECORDS = 1_000_000
"""The most records of one person that a promise may name."""
_SUFFIX = re.compile(r"[ _.-]*(id|ids|no|nr|number|key|identifier)$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(Id|ID|No|Nr|Key)$")


class Protect(StrEnum):
    """Which of two linked kinds of records a promise is about."""

    unit = "unit"
    member = "member"


@frozen
class Protection(Encodable):
    """One unit with up to `most` records, all of which may be different at once.

    Parameters
    ----------
    id
        The column that identifies the person of a record.
    most
        The most records of one unit: public, declared, and data beyond it are refused.
    records
        What records are called, in words.
    protect
        A unit with all its records, or one of them.
    least
        The fewest records of one unit. Units known only from their records have at least
        one.

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
    records: str = field(default="records", eq=False)  # a word changes no promise
    protect: Protect = Protect.unit
    least: int = 1

    def __attrs_post_init__(self) -> None:
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
        ...     for name in ("patient", "patient_id", "PupilID", "id", "pid", "_PATID", "hh_no")
        ... ]
        ['patient', 'patient', 'pupil', 'person', 'person', 'person', 'household']
        """
        # a column such as patient_id or PatientID names the patient
        bare = _CAMEL.sub("", _SUFFIX.sub("", self.id))
        words = re.sub(r"[\s_.-]+", " ", bare).strip()
        if words.lower() == "hh":
            return "household"
        # a single letter, as of pid, is no word, and neither is the stem of PATID
        is_stem = len(words) <= 3 and re.search(rf"{re.escape(words)}(id|no|nr)$", self.id, re.I)
        return "person" if len(words) <= 1 or is_stem else words.lower()

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
    """Refuse a test that is exact only for independent records if a person may have several.

    >>> refuse_dependent(Protection("patient", 5, "stays"), "semidp model")
    Traceback (most recent call last):
    semidp.errors.Refused: this test assumes that stays are independent, but one patient may\
 have 5: ask semidp model, which allows for that
    """
    if protection is not None and protection.most > 1:
        raise Refused(
            f"this test assumes that {protection.records} are independent, but one"
            f" {protection.noun} may have {protection.most:,}: ask {instead}, which allows for that"
        )


@frozen
class ChangedUnits(Encodable):
    """The most units in which two adjacent datasets of linked records differ, as tables see it.

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

    def __attrs_post_init__(self) -> None:
        numbers = (self.own, self.size, self.derived)
        if not all(map(_is_whole, numbers)) or not 0 <= self.own <= self.size <= self.derived:
            raise InputError(
                "the units that change are three whole numbers, none smaller than the one before:"
                " in own features, up to their size, in anything"
            )

    def is_within(self, other: "ChangedUnits") -> bool:
        """Whether no number is larger than that of another promise."""
        fewer = self.own <= other.own and self.size <= other.size
        return fewer and self.derived <= other.derived


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def in_brackets(*texts: str) -> str:
    return f" ({'; '.join(texts)})" if texts else ""


@frozen
class AdjacencyWords(ABC):
    """Words for an adjacency that changes at most `a` records, and `units` where these are linked
    to units that are protected as a whole.

    >>> BallWords(3).pairs, ExchangeWords(3).pairs
    ('any 3 records at once', 'exchanges of one person')
    >>> ExchangeWords(10, Protection("patient", 5, "stays")).pairs
    'exchanges of one patient with up to 5 stays'
    """

    a: int
    protection: Protection | None = None
    units: ChangedUnits | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The relation by itself: "any 3 records"."""

    @property
    @abstractmethod
    def pairs(self) -> str:
        """The pairs of datasets that are compared."""

    @abstractmethod
    def describe_protection(self, exact: str) -> str:
        """Sentences on what a guarantee next to exact statistics protects."""

    @property
    def who(self) -> str:
        """Whom the promise is about: a person, or one with several records."""
        return "one person" if self.protection is None else self.protection.who

    @property
    def whose(self) -> str:
        """The same in front of what the person has: "each person's record", "one patient's
        stays".
        """
        if self.protection is None:
            return "each person's record"
        protection = self.protection
        if self.units is not None:
            return f"each {protection.noun} with all {protection.records} (up to {protection.most})"
        every = f"the {protection.record}"
        if protection.most > 1:
            every = f"all {protection.records}"
        return f"{every} of each {protection.noun} (up to {protection.most})"

    @property
    def noun(self) -> str:
        """Word for records."""
        return "records" if self.protection is None else self.protection.records

    @property
    def one(self) -> str:
        """Word for one record."""
        return "record" if self.protection is None else self.protection.record

    @property
    def counted_records(self) -> str:
        return count_noun(self.a, self.one, self.noun)

    @property
    def records_and_units(self) -> str:
        """How many records change, and how many units with them."""
        if self.units is None or self.protection is None:
            return self.counted_records
        units = count_noun(self.units.derived, self.protection.noun, self.protection.units)
        return f"{self.counted_records} and {units}"

    @property
    def units_differing(self) -> tuple[str, ...]:
        """In how many of these units own features and sizes differ."""
        if self.units is None:
            return ()
        whose = self.protection.units if self.protection is not None else "units"
        return (
            f"at most {self.units.size} of these {whose} in their own features or size,"
            f" {self.units.own} in their own features",
        )

    @property
    def limits(self) -> str:
        """The same as the end of a sentence."""
        if self.units is None or self.protection is None:
            return ""
        return (
            f", at most {self.units.size} of these {self.protection.units} in their own features or"
            f" their size, and at most {self.units.own} in their own features"
        )

    @property
    def person(self) -> tuple[str, ...]:
        """The person behind a number of records, if one has several."""
        return () if self.protection is None else (self.protection.who,)


class BallWords(AdjacencyWords):
    """Words for any `a` records that change at once.

    >>> BallWords(1).name
    'any 1 record'
    """

    @property
    def name(self) -> str:
        if not self.a:
            return f"no {self.noun}"
        return f"any {self.records_and_units}{in_brackets(*self.person, *self.units_differing)}"

    @property
    def pairs(self) -> str:
        at_once = "" if self.a == 1 and self.units is None else " at once"
        whose = in_brackets(*self.person, *self.units_differing)
        return f"any {self.records_and_units}{at_once}{whose}"

    def describe_protection(self, exact: str) -> str:
        if self.protection is not None:
            who, whose = self.protection.who, self.whose
            compared = (
                f"Datasets that agree on every exact statistic ({exact}) are hard to tell apart if"
                f" they differ in at most {self.records_and_units}{self.limits}."
            )
            return (
                f"What is protected: {whose}, as far as the exact statistics leave them open."
                f" {compared} Two such datasets may differ in {who}, together with {self.noun} of"
                " others."
            )
        together = ""
        if self.a > 1:
            others = "1 other" if self.a == 2 else f"{self.a - 1:,} others"
            together = f": in one person's record, together with up to {others}"
        return (
            "What is protected: each person's record, as far as the exact statistics leave it"
            f" open. Datasets that agree on every exact statistic ({exact}) are hard to tell apart"
            f" if they differ in at most {self.counted_records}{together}."
        )


class ExchangeWords(AdjacencyWords):
    """Words for one person who changes, and others who hand over published values.

    >>> ExchangeWords(3).name, ExchangeWords(0).name
    ('exchange (up to 3 records)', 'exchange (nobody can change)')
    """

    @property
    def pairs(self) -> str:
        return f"exchanges of {self.who}"

    @property
    def name(self) -> str:
        if not self.a:
            return "exchange (nobody can change)"
        whose = "" if self.protection is None else f"{self.protection.who}, "
        changed = in_brackets(f"{whose}up to {self.records_and_units}", *self.units_differing)
        return f"exchange{changed}"

    @property
    def several_at_once(self) -> str:
        """Records in a change that the promise is not about."""
        if self.units is not None:
            return self.records_and_units
        return f"{max(self.a, 2)} {self.noun}"

    @property
    def others_follow(self) -> str:
        """What others do if one person with several records differs."""
        handed = f"{self.noun} of others only hand over the published values that are taken"
        if self.units is None or self.protection is None:
            return handed
        units = self.protection.units
        return (
            f"{handed}, other {units} only hand over published own features, and gain or lose the"
            f" {self.noun} that it loses or gains: at most {self.records_and_units} in"
            f" all{self.limits}"
        )

    def describe_protection(self, exact: str) -> str:
        if self.protection is not None:
            who, record = self.protection.who, self.protection.record
            return (
                f"What is protected: {self.whose}, against every alternative that the exact"
                f" statistics ({exact}) allow. Two datasets are hard to tell apart if"
                f" {who} differs and {self.others_follow} (exchange adjacency, one"
                f" {record} after the other). This is not a guarantee for any"
                f" {self.several_at_once} that change at once: such changes may be protected"
                " less."
            )
        other_people = "nobody else changes"
        if self.a > 1:
            hand_over = "only hand" if self.a > 2 else "only hands"
            other_people = (
                f"at most {count_noun(self.a - 1, 'other record')} {hand_over} over the published"
                " values that the person takes"
            )
        return (
            "What is protected: each person's record, against every alternative that the exact"
            f" statistics ({exact}) allow. Two datasets are hard to tell apart if one person's"
            f" record differs and {other_people} (exchange adjacency). This is not a guarantee for"
            f" any {self.several_at_once} that change at once: such changes may be protected"
            " less."
        )
