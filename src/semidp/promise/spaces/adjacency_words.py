"""What the two kinds of adjacency are called in messages, on the terminal and in reports.

`Ball` and `Exchange` (in `adjacency`) hold their words here, so that nobody else asks which of the
two there is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from semidp.promise.exact import count_noun
from semidp.promise.spaces.protection import ChangedUnits, Protection


def _in_brackets(*texts: str) -> str:
    return f" ({'; '.join(texts)})" if texts else ""


@dataclass(frozen=True)
class AdjacencyWords(ABC):
    """Words for an adjacency that changes at most `a` records, and `units` where these are linked
    to units that are protected as a whole.

    >>> BallWords(3).pairs, ExchangeWords(3).pairs
    ('any 3 records at once', 'exchanges of one person')
    >>> ExchangeWords(10, Protection("patient", 5, "stays")).pairs
    'exchanges of one patient with up to 5 stays'
    >>> BallWords(6, Protection("household", 3, "members"), ChangedUnits(2, 4, 5)).used
    'a = 6, one household with up to 3 members; 5 households (own features of 2, own features or
    size of 4)'
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
    def used(self) -> str:
        """The relation behind the word "adjacency": "a = 3"."""

    @property
    @abstractmethod
    def pairs(self) -> str:
        """The pairs of datasets that are compared."""

    @property
    @abstractmethod
    def promise(self) -> str:
        """Whom a promise beside exact totals is for."""

    @property
    @abstractmethod
    def column(self) -> str:
        """The heading of numbers beside those of a stated guarantee."""

    @property
    @abstractmethod
    def same_noise(self) -> str:
        """The start of a sentence on what the noise of another adjacency gives for this one."""

    @property
    @abstractmethod
    def restriction(self) -> str | None:
        """What an attack says first: that the claim is about these pairs alone; None where it is
        about any records.
        """

    @abstractmethod
    def describe_protection(self, exact: str) -> str:
        """Sentences on what a guarantee beside exact statistics protects."""

    @abstractmethod
    def why(self, most: str) -> list[str]:
        """Say which datasets a guarantee beside exact totals compares; `most` is a(t) in words,
        with the noun.
        """

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

    def heading(self, exact: bool) -> str:
        """Return the heading of the part on records that move together."""
        if not exact:
            changes_alone = f"Why one {self.one} changes alone"
            return changes_alone if self.a == 1 else f"Why {self._records} change together"
        together = self.noun if self.a == 1 else self._records
        return f"Why {together} move together"

    def describe_joint_change(self, exact: bool) -> str:
        """Say in a few words how many records change together; `exact` says whether there are exact
        totals.
        """
        a = self.a
        if self.protection is not None:
            kept = " under the exact totals" if exact else ""
            who, changed = (
                self.protection.who,
                f"{self._records_and_units}{_in_brackets(*self._of_units)}",
            )
            return f"a = {a}: {who} can be different with up to {changed}{kept}"
        if a == 1:
            return f"a = 1: one record changes alone{' under the exact totals' if exact else ''}"
        if not exact:
            return f"a = {a}: any {a} records change together"
        return f"a = {a}: up to {self._records} change together under the exact totals"

    @property
    def _records(self) -> str:
        return count_noun(self.a, self.one, self.noun)

    @property
    def _records_and_units(self) -> str:
        """How many records change, and how many units with them."""
        if self.units is None or self.protection is None:
            return self._records
        units = count_noun(self.units.derived, self.protection.noun, self.protection.units)
        return f"{self._records} and {units}"

    @property
    def _of_units(self) -> tuple[str, ...]:
        """In how many of these units own features and sizes differ."""
        if self.units is None:
            return ()
        return (f"own features of {self.units.own}, own features or size of {self.units.size}",)

    @property
    def _limits(self) -> str:
        """The same as the end of a sentence."""
        if self.units is None or self.protection is None:
            return ""
        units, size, own = self.protection.units, self.units.size, self.units.own
        return (
            f", at most {size} of these {units} in their own features or their size, and at most"
            f" {own} in their own features"
        )

    @property
    def _person(self) -> tuple[str, ...]:
        """The person behind a number of records, where one has several."""
        return () if self.protection is None else (self.protection.who,)


class BallWords(AdjacencyWords):
    """Words for any `a` records that change at once.

    >>> BallWords(1).name, BallWords(2).describe_joint_change(exact=True)
    ('any 1 record', 'a = 2: up to 2 records change together under the exact totals')
    """

    @property
    def restriction(self) -> str | None:
        if self.units is None or self.protection is None:
            return None
        units = self.protection.units
        return f"{self.pairs}: the claim is about these, and not about more {units}"

    @property
    def name(self) -> str:
        if not self.a:
            return f"no {self.noun}"
        return f"any {self._records_and_units}{_in_brackets(*self._person, *self._of_units)}"

    @property
    def used(self) -> str:
        if self.protection is None:
            return f"a = {self.a}"
        whose = f"a = {self.a}, {self.protection.who}"
        if self.units is None:
            return whose
        units = count_noun(self.units.derived, self.protection.noun, self.protection.units)
        return f"{whose}; {units}{_in_brackets(*self._of_units)}"

    @property
    def pairs(self) -> str:
        at_once = "" if self.a == 1 and self.units is None else " at once"
        return (
            f"any {self._records_and_units}{at_once}{_in_brackets(*self._person, *self._of_units)}"
        )

    @property
    def promise(self) -> str:
        keep = "keeps" if self.a == 1 else "keep"
        kept = f"any {self._records} that {keep} the exact totals"
        if self.protection is None:
            return kept
        return f"{self.protection.who}: {kept}"

    @property
    def column(self) -> str:
        return f"with a = {self.a}"

    @property
    def same_noise(self) -> str:
        alone = self.a == 1 and self.units is None
        change = "changes" if alone else "change at once"
        units = _in_brackets(*self._of_units)
        return f"For any {self._records_and_units} that {change}{units} the same noise gives"

    def describe_protection(self, exact: str) -> str:
        if self.protection is not None:
            who, whose = self.protection.who, self.whose
            compared = (
                f"Datasets that agree on every exact statistic ({exact}) are hard to tell apart if"
                f" they differ in at most {self._records_and_units}{self._limits}."
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
            f" if they differ in at most {self._records}. Between two of them, {together}."
        )

    def why(self, most: str) -> list[str]:
        if self.protection is not None:
            who = self.protection.who
            return [
                f"For {who} to be any other that the published totals allow, in the worst case"
                f" {most} must change. The guarantee compares datasets that differ in up"
                f" to {self._records} and agree on every published total."
            ]
        return [
            f"In the worst case {most} must change, whoever the person is and whatever"
            " else they could have been. The guarantee compares datasets that differ in up to"
            f" {self._records} and agree on every published total."
        ]


class ExchangeWords(AdjacencyWords):
    """Words for one person who changes, and others who hand over published values.

    >>> ExchangeWords(3).name, ExchangeWords(0).name
    ('exchange (up to 3 records)', 'exchange (nobody can change)')
    """

    @property
    def restriction(self) -> str:
        within = ""
        if self.units is not None:
            within = _in_brackets(f"up to {self._records_and_units} in all", *self._of_units)
        return f"{self.pairs}{within}: the claim is about these, and not about any {self.noun}"

    @property
    def pairs(self) -> str:
        return f"exchanges of {self.who}"

    @property
    def promise(self) -> str:
        return f"{self.pairs} (not any {self.noun} that change at once)"

    @property
    def name(self) -> str:
        if not self.a:
            return "exchange (nobody can change)"
        whose = "" if self.protection is None else f"{self.protection.who}, "
        return f"exchange{_in_brackets(f'{whose}up to {self._records_and_units}', *self._of_units)}"

    @property
    def used(self) -> str:
        return self.name

    @property
    def column(self) -> str:
        return f"for exchanges of up to {self._records_and_units}"

    @property
    def same_noise(self) -> str:
        most = f"at most {self._records_and_units} in all{self._limits}"
        return (
            f"For exchanges alone, in which {self.who} changes and others only hand over the"
            f" published values that are taken ({most}), the same noise gives"
        )

    @property
    def _several_at_once(self) -> str:
        """Records in a change that the promise is not about."""
        if self.units is not None:
            return self._records_and_units
        return f"{max(self.a, 2)} {self.noun}"

    @property
    def _others_follow(self) -> str:
        """What others do where one person with several records differs."""
        handed = f"{self.noun} of others only hand over the published values that are taken"
        if self.units is None or self.protection is None:
            return handed
        units = self.protection.units
        return (
            f"{handed}, other {units} only hand over published own features, and gain or lose the"
            f" {self.noun} that it loses or gains: at most {self._records_and_units} in"
            f" all{self._limits}"
        )

    def describe_protection(self, exact: str) -> str:
        if self.protection is not None:
            who, record = self.protection.who, self.protection.record
            return (
                f"What is protected: {self.whose}, against every alternative that the exact"
                f" statistics ({exact}) allow. Two datasets are hard to tell apart if"
                f" {who} differs and {self._others_follow} (exchange adjacency, one"
                f" {record} after the other). This is not a guarantee for any"
                f" {self._several_at_once} that change at once: such changes may be protected"
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
            f" any {self._several_at_once} that change at once: such changes may be protected"
            " less."
        )

    def why(self, most: str) -> list[str]:
        limit = (
            f"This is not a guarantee for any {self._several_at_once} that change at once. For"
            " those the same noise may guarantee less."
        )
        if self.protection is not None:
            who, unit = self.protection.who, self.protection.noun
            compared = (
                f"The guarantee compares datasets in which {who} is different"
                f" and {self.noun} of others, {self._records} in all at most, hand over the"
                " published values that are taken, and keep everything else (exchange"
                f" adjacency). Every {unit} could have had any {self.noun} that"
                " the published totals allow."
            )
            return [compared, limit]
        other_people = "nobody else changes"
        if self.a > 1:
            hand = "at most one other record hands"
            if self.a > 2:
                hand = f"at most {self.a - 1} other records hand"
            other_people = (
                f"{hand} over the published values that the person takes, and nothing else"
            )
        compared = (
            "The guarantee compares datasets in which one person's record is different and"
            f" {other_people} (exchange adjacency). Every person could have been anyone that the"
            " published totals allow."
        )
        return [compared, limit]

    def heading(self, exact: bool) -> str:
        if self.protection is not None:
            return (
                f"Who changes with one {self.protection.noun}" if exact else super().heading(exact)
            )
        return "Who changes with one person" if exact else super().heading(exact)

    def describe_joint_change(self, exact: bool) -> str:
        if self.a <= 1 or self.protection is not None:
            return super().describe_joint_change(exact)
        other_people = f"up to {self.a - 1} others hand"
        if self.a == 2:
            other_people = "one other hands"
        return (
            f"exchange: one person changes and {other_people} over published values (not any"
            f" {self.a} records)"
        )
