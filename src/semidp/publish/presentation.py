"""How a release is presented: its title, whom to ask, notes, and how numbers are shown beside the
exact files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from semidp.errors import InputError, Refused, did_you_mean
from semidp.publish.results.place_maps import PlaceMap

WORKBOOK = "tables.xlsx"
"""What the workbook of a release is called."""

MOST_ROWS = 2**20 - 1
"""The rows that a sheet holds below its header."""

_LONGEST = 10_000  # characters of a title or a note
_MOST_NOTES = 100
_MOST_ROUNDED = 10**9


class ShownCount(Protocol):
    """A count on a page, as text."""

    @property
    def count(self) -> str:
        """The number as published."""

    @property
    def exact(self) -> bool:
        """Whether it has no error."""


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """What is said and shown beside the numbers; nothing here changes them or their guarantee.

    Parameters
    ----------
    title
        The heading of the report; what is published, unless given.
    contact
        Whom to ask.
    notes
        Paragraphs at the top of the report.
    round_to
        Show noisy counts in multiples of this number, on the page and in a column of the workbook;
        exact ones, and the files, stay as they are.
    mark_below
        Mark counts below this number, on the page and in the workbook.
    workbook
        Whether a workbook of all tables is written beside the other files.
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
    places: PlaceMap | None = None

    def __post_init__(self) -> None:
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
        numbers = {
            "counts are rounded to multiples of": self.round_to,
            "counts are marked below": self.mark_below,
        }
        for words, number in numbers.items():
            if number is not None and not (type(number) is int and 1 <= number <= _MOST_ROUNDED):
                raise InputError(f"{words} a whole number from 1 on, not {number!r}")

    def count(self, published: "ShownCount") -> str:
        """Return a published count as the page shows it: rounded to the nearest multiple, halves
        up, but for an exact one.
        """
        if self.round_to is None or published.exact:
            return published.count
        return f"{round_to_base(_number(published.count), self.round_to):,}"

    def is_marked(self, text: str) -> bool:
        """Whether a published count is marked as small."""
        return self.mark_below is not None and _number(text) < self.mark_below

    def captions(self) -> list[str]:
        """Say how numbers are shown."""
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
        """Return what is not as usual, as plain values."""
        # What is as usual is left out, so that a release without any of it has no entry.
        values = {
            "title": self.title,
            "contact": self.contact,
            "notes": list(self.notes),
            "round_to": self.round_to,
            "mark_below": self.mark_below,
            "workbook": self.workbook,
            "map": self.places is not None,
            "map_key": None if self.places is None else self.places.key,
        }
        return {key: value for key, value in values.items() if value}

    @classmethod
    def from_value(cls, value: "Presentation | Mapping[str, Any]") -> "Presentation":
        """Return a presentation; a mapping holds what is not as usual, by the names of the
        parameters.

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
"""Nothing said beside the numbers, and all of them shown as they are."""


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
    """Refuse a table that a sheet does not hold.

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
    """Refuse to go on where workbooks cannot be read or written."""
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        raise InputError("a workbook needs openpyxl: install semidp[excel]") from None
