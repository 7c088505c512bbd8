"""What the two kinds of adjacency are called in messages, on the terminal and in reports.

`Ball` and `Exchange` (in `adjacency`) hold their words here, so that nobody else asks which of the two there is.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class AdjacencyWords(ABC):
    """Words for an adjacency that changes at most `a` records.

    >>> BallWords(3).pairs, ExchangeWords(3).pairs
    ('any 3 records at once', 'exchanges of one person')
    """

    a: int

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
        """What an attack says first: that the claim is about these pairs alone; None where it is about any records."""

    @abstractmethod
    def protected(self, exact: str) -> str:
        """Say what a guarantee beside exact statistics protects."""

    @abstractmethod
    def why(self, most: str) -> list[str]:
        """Say which datasets a guarantee beside exact totals compares; `most` is a(t) in words."""

    def heading(self, exact: bool) -> str:
        """Return the heading of the part on records that move together."""
        if not exact:
            return "Why one record changes alone" if self.a == 1 else f"Why {self.a} records change together"
        return "Why records move together" if self.a == 1 else f"Why {self.a} records move together"

    def together(self, exact: bool) -> str:
        """Say in a few words how many records change together; `exact` says whether there are exact totals."""
        a = self.a
        if not exact:
            return "a = 1: one record changes alone" if a == 1 else f"a = {a}: any {a} records change together"
        return f"a = {a}: up to {a} record{'s change' if a != 1 else ' changes'} together under the exact totals"

    @property
    def _records(self) -> str:
        return f"{self.a} record{'s' if self.a != 1 else ''}"


class BallWords(AdjacencyWords):
    """Words for any `a` records that change at once.

    >>> BallWords(1).name, BallWords(2).together(exact=True)
    ('any 1 record', 'a = 2: up to 2 records change together under the exact totals')
    """

    restriction = None

    @property
    def name(self) -> str:
        return f"any {self._records}" if self.a else "no records"

    @property
    def used(self) -> str:
        return f"a = {self.a}"

    @property
    def pairs(self) -> str:
        return f"any {self.a} records at once"

    @property
    def promise(self) -> str:
        return f"any {self._records} that keep the exact totals"

    @property
    def column(self) -> str:
        return f"with a = {self.a}"

    @property
    def same_noise(self) -> str:
        return f"For any {self.a} records that change at once the same noise gives"

    def protected(self, exact: str) -> str:
        if self.a == 1:
            together = "one record can change alone"
        else:
            others = f"{self.a - 1} other{'s' if self.a > 2 else ''}"
            together = f"a record can only be different together with up to {others}"
        return (
            "What is protected: each person's record, as far as the exact statistics leave it open. Datasets that "
            f"agree on every exact statistic ({exact}) and differ in at most {self._records} are hard to tell apart. "
            f"There {together}."
        )

    def why(self, most: str) -> list[str]:
        return [
            f"In the worst case {most} records have to change together, whoever the person is and whatever else they "
            f"could have been. The guarantee compares datasets that differ in up to {self.a} "
            f"record{'s' if self.a > 1 else ''} and agree on every published total."
        ]


class ExchangeWords(AdjacencyWords):
    """Words for one person who changes, and others who hand over published values.

    >>> ExchangeWords(3).name, ExchangeWords(0).name
    ('exchange (up to 3 records)', 'exchange (nobody can change)')
    """

    restriction = "exchanges of one person: the claim is about these, and not about any records"
    pairs = "exchanges of one person"
    promise = "exchanges of one person (not any records that change at once)"

    @property
    def name(self) -> str:
        return f"exchange (up to {self._records})" if self.a else "exchange (nobody can change)"

    @property
    def used(self) -> str:
        return self.name

    @property
    def column(self) -> str:
        return f"for exchanges of up to {self.a} records"

    @property
    def same_noise(self) -> str:
        return (
            f"For exchanges of one person alone (at most {self.a} records, the others hand over published values) the "
            "same noise gives"
        )

    def protected(self, exact: str) -> str:
        if self.a == 1:
            others = "nobody else changes"
        else:
            handing = f"{self.a - 1} other record{'s do' if self.a > 2 else ' does'}"
            others = f"at most {handing} no more than hand over the published values that the person takes"
        return (
            "What is protected: each person's record, against every alternative that the exact statistics "
            f"({exact}) allow. Two datasets are hard to tell apart where one person's record differs and {others} "
            f"(exchange adjacency). This is not a guarantee for any {max(self.a, 2)} records that change at once: such "
            "changes may be protected less."
        )

    def why(self, most: str) -> list[str]:
        others = "at most one other record hands" if self.a == 2 else f"at most {self.a - 1} other records hand"
        return [
            f"The guarantee compares datasets in which one person's record is different and {others} over the "
            "published values that the person takes, keeping everything else (exchange adjacency). Every person could "
            "have been everybody that the published totals allow.",
            f"This is not a guarantee for any {max(self.a, 2)} records that change at once; what the same noise "
            "guarantees for those is stated apart.",
        ]

    def heading(self, exact: bool) -> str:
        return "Who changes with one person" if exact else super().heading(exact)

    def together(self, exact: bool) -> str:
        if self.a <= 1:
            return super().together(exact)
        others = "one other hands" if self.a == 2 else f"up to {self.a - 1} others hand"
        return f"exchange: one person changes and {others} over published values (not any {self.a} records)"
