"""What reports, tables and commands say of the pairs of datasets that are compared.

The promise names its pairs and says what is protected (`promise.spaces.protection`); here are
the headings, columns and reasons around it.
"""

from abc import abstractmethod

from semidp.promise.exact import count_noun
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.protection import AdjacencyWords, BallWords, ExchangeWords, in_brackets


def report_words(adjacency: Adjacency) -> "ReportWords":
    """Return the words of a report for an adjacency.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> report_words(Ball(2)).describe_joint_change(exact=True)
    'a = 2: up to 2 records change together under the exact totals'
    """
    numbers = (adjacency.a, adjacency.protection, adjacency.units)
    words: ReportWords = adjacency.by_kind(
        ball=BallReport(*numbers), exchange=ExchangeReport(*numbers)
    )
    return words


class ReportWords(AdjacencyWords):
    """Words for an adjacency that only reports need.

    >>> from semidp.promise.spaces.protection import ChangedUnits, Protection
    >>> BallReport(6, Protection("household", 3, "members"), ChangedUnits(2, 4, 5)).used
    'a = 6, one household with up to 3 members; 5 households (own features of 2, own features or
    size of 4)'
    """

    @property
    @abstractmethod
    def used(self) -> str:
        """The relation behind the word "adjacency": "a = 3"."""

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
    def why(self, most: str) -> list[str]:
        """Say which datasets a guarantee beside exact totals compares; `most` is a(t) in words,
        with the noun.
        """

    def heading(self, exact: bool) -> str:
        """Return the heading of the part on records that move together."""
        if not exact:
            changes_alone = f"Why one {self.one} changes alone"
            return changes_alone if self.a == 1 else f"Why {self.counted_records} change together"
        together = self.noun if self.a == 1 else self.counted_records
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
                f"{self.records_and_units}{in_brackets(*self.units_differing)}",
            )
            return f"a = {a}: {who} can be different with up to {changed}{kept}"
        if a == 1:
            return f"a = 1: one record changes alone{' under the exact totals' if exact else ''}"
        if not exact:
            return f"a = {a}: any {a} records change together"
        return f"a = {a}: up to {self.counted_records} change together under the exact totals"


class BallReport(ReportWords, BallWords):
    """Words for any `a` records that change at once."""

    @property
    def restriction(self) -> str | None:
        if self.units is None or self.protection is None:
            return None
        units = self.protection.units
        return f"{self.pairs}: the claim is about these, and not about more {units}"

    @property
    def used(self) -> str:
        if self.protection is None:
            return f"a = {self.a}"
        whose = f"a = {self.a}, {self.protection.who}"
        if self.units is None:
            return whose
        units = count_noun(self.units.derived, self.protection.noun, self.protection.units)
        return f"{whose}; {units}{in_brackets(*self.units_differing)}"

    @property
    def promise(self) -> str:
        keep = "keeps" if self.a == 1 else "keep"
        kept = f"any {self.counted_records} that {keep} the exact totals"
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
        units = in_brackets(*self.units_differing)
        return f"For any {self.records_and_units} that {change}{units} the same noise gives"

    def why(self, most: str) -> list[str]:
        if self.protection is not None:
            who = self.protection.who
            return [
                f"For {who} to be any other that the published totals allow, in the worst case"
                f" {most} must change. The guarantee compares datasets that differ in up"
                f" to {self.counted_records} and agree on every published total."
            ]
        return [
            f"In the worst case {most} must change, whoever the person is and whatever"
            " else they could have been. The guarantee compares datasets that differ in up to"
            f" {self.counted_records} and agree on every published total."
        ]


class ExchangeReport(ReportWords, ExchangeWords):
    """Words for one person who changes, and others who hand over published values."""

    @property
    def restriction(self) -> str:
        within = ""
        if self.units is not None:
            within = in_brackets(f"up to {self.records_and_units} in all", *self.units_differing)
        return f"{self.pairs}{within}: the claim is about these, and not about any {self.noun}"

    @property
    def promise(self) -> str:
        return f"{self.pairs} (not any {self.noun} that change at once)"

    @property
    def used(self) -> str:
        return self.name

    @property
    def column(self) -> str:
        return f"for exchanges of up to {self.records_and_units}"

    @property
    def same_noise(self) -> str:
        most = f"at most {self.records_and_units} in all{self.limits}"
        return (
            f"For exchanges alone, in which {self.who} changes and others only hand over the"
            f" published values that are taken ({most}), the same noise gives"
        )

    def why(self, most: str) -> list[str]:
        limit = (
            f"This is not a guarantee for any {self.several_at_once} that change at once. For"
            " those the same noise may guarantee less."
        )
        if self.protection is not None:
            who, unit = self.protection.who, self.protection.noun
            compared = (
                f"The guarantee compares datasets in which {who} is different"
                f" and {self.noun} of others, {self.counted_records} in all at most, hand over the"
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
