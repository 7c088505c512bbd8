"""What the two kinds of adjacency are called in messages, on the terminal and in reports.

`Ball` and `Exchange` (in `adjacency`) hold their words here, so that nobody else asks which of the
two there is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from semidp.promise.exact import count_noun
from semidp.promise.spaces.protection import ChangedUnits, Protection


def in_brackets(*texts: str) -> str:
    return f" ({'; '.join(texts)})" if texts else ""


@dataclass(frozen=True)
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
        """Sentences on what a guarantee beside exact statistics protects."""

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
        return (f"own features of {self.units.own}, own features or size of {self.units.size}",)

    @property
    def limits(self) -> str:
        """The same as the end of a sentence."""
        if self.units is None or self.protection is None:
            return ""
        units, size, own = self.protection.units, self.units.size, self.units.own
        return (
            f", at most {size} of these {units} in their own features or their size, and at most"
            f" {own} in their own features"
        )

    @property
    def person(self) -> tuple[str, ...]:
        """The person behind a number of records, where one has several."""
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
                f" {compared} Between two of them, {who} can be different together with"
                f" {self.noun} of others."
            )
        together = "one record can be different alone"
        if self.a > 1:
            other_people = count_noun(self.a - 1, "other record")
            together = f"one record can be different together with up to {other_people}"
        return (
            "What is protected: each person's record, as far as the exact statistics leave it"
            f" open. Datasets that agree on every exact statistic ({exact}) are hard to tell apart"
            f" if they differ in at most {self.counted_records}. Between two of them, {together}."
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
        """What others do where one person with several records differs."""
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
