"""How a release is presented: its title, contact, notes, how numbers are shown next to the exact
files, and the words for the pairs of datasets that are compared.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import fields, frozen

from semidp.errors import InputError, Refused, did_you_mean
from semidp.promise.exact import count_noun
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.protection import AdjacencyWords, BallWords, ExchangeWords, in_brackets
from semidp.publish.results.place_maps import PlaceMap

if TYPE_CHECKING:
    from semidp.publish.results.grids import Cell, Total

WORKBOOK = "tables.xlsx"
"""The name of the workbook of a release."""

AGENCY = "SEMIDP"
"""The agency of SDMX files, unless a release names its own."""

MOST_ROWS = 2**20 - 1
"""The rows that a sheet holds below its header."""

_LONGEST = 10_000  # characters of a title or a note
_MOST_NOTES = 100
_MOST_ROUNDED = 10**9


@frozen(kw_only=True)
class Presentation:
    """Text and display options; nothing here changes the numbers or their guarantee.

    Parameters
    ----------
    title
        The heading of the report (default: what is published).
    contact
        The contact for questions.
    notes
        Paragraphs at the top of the report.
    round_to
        Show noisy counts in multiples of this number, on the page and in a column of the workbook;
        exact ones, and the files, stay as they are.
    mark_below
        Mark counts below this number, on the page and in the workbook.
    workbook
        Whether a workbook of all tables is written next to the other files.
    sdmx
        The agency that maintains the SDMX files that are written next to the others (default: none
        are written).
    places
        The outlines of places, for maps; a mapping may name their file.

    Examples
    --------
    >>> from semidp.publish.results.grids import Total
    >>> shown = Presentation(title="Health 2026", round_to=5, mark_below=10)
    >>> shown.count(Total("1,234", exact=False)), shown.count(Total("1,234", exact=True))
    ('1,235', '1,234')
    >>> shown.is_marked("7"), shown.is_marked("1,234")
    (True, False)
    >>> Presentation.from_json(shown.to_json()) == shown
    True
    """

    title: str | None = None
    contact: str | None = None
    notes: tuple[str, ...] = ()
    round_to: int | None = None
    mark_below: int | None = None
    workbook: bool = False
    sdmx: str | None = None
    places: PlaceMap | None = None

    def __attrs_post_init__(self) -> None:
        texts = {"a title": self.title, "a contact": self.contact}
        texts |= {f"note {number}": note for number, note in enumerate(self.notes, start=1)}
        for name, text in texts.items():
            if text is not None and not (
                isinstance(text, str) and text.strip() and len(text) <= _LONGEST
            ):
                raise InputError(
                    f"{name} is a text of at most {_LONGEST:,} characters, and not empty"
                )
        if len(self.notes) > _MOST_NOTES:
            raise InputError(f"a release has at most {_MOST_NOTES} notes")
        if self.sdmx is not None:
            check_agency(self.sdmx)
        numbers = {
            "counts are rounded to multiples of": self.round_to,
            "counts are marked below": self.mark_below,
        }
        for words, number in numbers.items():
            if number is not None and not (type(number) is int and 1 <= number <= _MOST_ROUNDED):
                raise InputError(f"{words} a whole number from 1 on, not {number!r}")

    def count(self, published: "Cell | Total") -> str:
        """Return a published count as the page shows it: rounded to the nearest multiple, halves
        up, unless it is exact.
        """
        if self.round_to is None or published.exact:
            return published.count
        return f"{round_to_base(_number(published.count), self.round_to):,}"

    def is_marked(self, text: str) -> bool:
        """Whether a published count is marked as small."""
        return self.mark_below is not None and _number(text) < self.mark_below

    def captions(self) -> list[str]:
        """Describe how numbers are shown."""
        said = []
        if self.round_to is not None:
            said.append(
                f"Noisy counts on this page are rounded to multiples of {self.round_to:,}, each for"
                " itself, so that they need not add up; exact ones are not rounded. The files hold"
                " all as published."
            )
        if self.mark_below is not None:
            before = "" if self.round_to is None else " as published, before they are rounded"
            said.append(f"A star marks counts below {self.mark_below:,}{before}.")
        return said

    def to_json(self) -> dict[str, Any]:
        """Return the nondefault fields as plain values."""
        # What is as usual is left out, so a release without any of it has no entry.
        values = {
            "title": self.title,
            "contact": self.contact,
            "notes": list(self.notes),
            "round_to": self.round_to,
            "mark_below": self.mark_below,
            "workbook": self.workbook,
            "sdmx": self.sdmx,
            "map": self.places is not None,
            "map_key": None if self.places is None else self.places.key,
        }
        return {key: value for key, value in values.items() if value}

    @classmethod
    def from_value(cls, value: "Presentation | Mapping[str, Any]") -> "Presentation":
        """Return a presentation; a mapping holds nondefault fields by
        name.

        >>> Presentation.from_value({"title": "Health", "notes": ["Provisional."]}).notes
        ('Provisional.',)
        """
        if isinstance(value, Presentation):
            return value
        if not isinstance(value, Mapping):
            raise InputError(
                f"a presentation is a mapping such as {{'title': 'Health 2026'}}, not {value!r}"
            )
        names = {field.name for field in fields(cls)}
        unknown = [str(key) for key in value if key not in names]
        if unknown:
            meant = did_you_mean(unknown[0], names)
            raise InputError(
                f"a presentation has no {unknown[0]!r}{meant}; it has {', '.join(sorted(names))}"
            )
        places = value.get("places")
        if isinstance(places, (str, Path)):
            places = PlaceMap.read(Path(places))
        return cls(**{**value, "notes": tuple(value.get("notes", ())), "places": places})

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], places: PlaceMap | None = None) -> "Presentation":
        """Read what `to_json` returned; the outlines of a map are in a file of their own."""
        stored = {key: value for key, value in entry.items() if key not in ("map", "map_key")}
        try:
            return cls.from_value({**stored, "places": places})
        except InputError as error:
            raise ValueError(str(error)) from None


AS_USUAL = Presentation()
"""The default: no text next to the numbers, and all of them shown unchanged."""


def check_agency(agency: str) -> str:
    """Return the id of an agency; refuse one that SDMX does not accept.

    >>> check_agency("my office")
    Traceback (most recent call last):
    semidp.errors.InputError: an SDMX agency is called by letters, digits, - and _, such as ESTAT or
    ESTAT.B1, not 'my office'
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*", str(agency)):
        raise InputError(
            "an SDMX agency is called by letters, digits, - and _, such as ESTAT or ESTAT.B1, not"
            f" {agency!r}"
        )
    return agency


def round_to_base(number: float, base: int) -> int:
    """Round a number to the nearest multiple of a base, halves up.

    >>> [round_to_base(number, 5) for number in (0, 2, 2.5, 7, 8)]
    [0, 0, 5, 5, 10]
    """
    return int((number + base / 2) // base) * base


def _number(text: str) -> float:
    """Read a count that `count_text` wrote."""
    return float(text.replace(",", ""))


def refuse_rows(name: str, rows: int) -> None:
    """Refuse a table that does not fit on a sheet.

    >>> refuse_rows("sex-age", 2_000_000)
    Traceback (most recent call last):
    semidp.errors.Refused: 'sex-age' has 2,000,000 rows, and a sheet of a workbook holds 1,048,575:
    write csv or parquet
    """
    if rows > MOST_ROWS:
        raise Refused(
            f"{name!r} has {rows:,} rows, and a sheet of a workbook holds {MOST_ROWS:,}: write csv"
            " or parquet"
        )


def check_installed() -> None:
    """Refuse to go on if workbooks cannot be read or written."""
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise InputError("a workbook needs openpyxl: install semidp[excel]") from None


def report_words(adjacency: Adjacency) -> "ReportWords":
    """Return the words of a report for an adjacency.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> report_words(Ball(2)).describe_joint_change(exact=True)
    'a = 2: up to 2 records change together under the exact totals'
    >>> report_words(Ball(0)).describe_joint_change(exact=True)
    'a = 0: the exact totals let no record change'
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
    'a = 6, one household with up to 3 members; 5 households (at most 4 of these households in their
    own features or size, 2 in their own features)'
    """

    @property
    @abstractmethod
    def used(self) -> str:
        """The relation behind the word "adjacency": "a = 3"."""

    @property
    @abstractmethod
    def promise(self) -> str:
        """Whom a promise next to exact totals is for."""

    @property
    @abstractmethod
    def column(self) -> str:
        """The heading of the numbers next to a stated guarantee."""

    @property
    @abstractmethod
    def same_noise(self) -> str:
        """The start of a sentence on what the noise of another adjacency gives for this one."""

    @property
    @abstractmethod
    def restriction(self) -> str | None:
        """The first sentence of an attack: that the claim covers only these pairs; None if it
        covers any records.
        """

    @abstractmethod
    def why(self, most: str) -> list[str]:
        """Say which datasets a guarantee next to exact totals compares; `most` is a(t) in words,
        with the noun.
        """

    def heading(self, exact: bool) -> str:
        """Return the heading of the section on records that change together."""
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
            verb = "changes" if a == 1 and self.units is None else "change"
            changed = f"up to {self.records_and_units} {verb}{kept}"
            return "; ".join(
                (
                    f"a = {a}: if {self.protection.who} is different, {changed}",
                    *self.units_differing,
                )
            )
        if a == 1:
            return f"a = 1: one record changes alone{' under the exact totals' if exact else ''}"
        if a == 0:
            return "a = 0: the exact totals let no record change"
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
                f"For {who} to be any other that the published totals allow, no more than {most}"
                f" must change. The guarantee compares datasets that differ in up to"
                f" {self.counted_records} and agree on every published total."
            ]
        return [
            f"No more than {most} must change for that, whoever the person is and whatever else"
            " they could have been. The guarantee compares datasets that differ in up to"
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
            f"If only exchanges are compared, in which {self.who} changes and others just trade"
            f" published values ({most}), the same noise gives"
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
