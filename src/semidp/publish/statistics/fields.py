"""What a statistic lets one choose, declared once: the options of a command and the controls of a
page come from it.

A `Field` is one option. `Chosen` holds what was chosen of all fields; what a statistic reads of it
counts as used, so that an option without effect can be refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from semidp.errors import InputError


class Shape(StrEnum):
    """What is written after an option, and how it is held once it is read.

    ``columns``: names of columns. ``features``: a tuple of names; several of them where the option
    may be repeated. ``lists`` and ``texts``: a list or a text for each of several columns.
    ``text``: a text. ``tick``: nothing, the option itself says all.
    """

    columns = "columns"
    features = "features"
    lists = "lists"
    texts = "texts"
    text = "text"
    tick = "tick"


@dataclass(frozen=True)
class Field:
    """One thing that can be chosen of a statistic.

    Parameters
    ----------
    name
        Its name; the option is called after it: ``quantile_level`` is ``--quantile-level``.
    help
        What it is, in one sentence: for the help of a command.
    shape
        What is written after the option.
    metavar
        How that is written in the help.
    label
        What a page calls it.
    example
        What may be written: for a page, and for whoever wrote something else.
    several
        Whether an option of features may be repeated, for several sets.
    unused
        What to say where nothing that is asked for has a use for it; ``{column}`` stands for a
        column that it names.
    beside
        Further fields that say more about what this one asks for. A field with a `label` that
        stands in a `Kind` itself asks for something; one that stands beside another does not.
    divides
        Whether it says how a budget is divided, so that there must be one.
    private
        Whether its column is an outcome that nothing publishes.

    Examples
    --------
    >>> Field("quantile_level", "An interval for each quantile.", Shape.text).option
    '--quantile-level'
    """

    name: str
    help: str
    shape: Shape
    metavar: str | None = None
    label: str = ""
    example: str = ""
    several: bool = False
    unused: str = ""
    beside: tuple["Field", ...] = ()
    divides: bool = False
    private: bool = False

    @property
    def option(self) -> str:
        """The option of a command."""
        return f"--{self.name.replace('_', '-')}"


def all_fields(asking: Iterable[Field]) -> dict[str, Field]:
    """Return fields by their names, each after those that it stands beside; refuse two of one name.

    >>> level = Field("level", "The level.", Shape.text)
    >>> list(all_fields([Field("mean", "A mean.", Shape.columns, beside=(level,))]))
    ['mean', 'level']
    """
    fields: dict[str, Field] = {}
    for asked in asking:
        for field in (asked, *asked.beside):
            # A field may stand beside several others, but one option cannot mean two things.
            if fields.setdefault(field.name, field) != field:
                raise InputError(
                    f"two statistics declare the option {field.option} otherwise: name one of them"
                    " anew"
                )
    return fields


class Chosen:
    """What was chosen of the declared fields.

    >>> mean = Field("mean", "A mean.", Shape.columns)
    >>> grid = Field("grid", "The grid.", Shape.texts, unused="there is no mean of {column!r}")
    >>> chosen = Chosen({"mean": ("age",), "grid": {"age": "100", "pay": "10"}})
    >>> [(column, chosen.of_column(grid, column)) for column in chosen.columns(mean)]
    [('age', '100')]
    >>> list(chosen.explain_unused([mean, grid]))
    ["there is no mean of 'pay'"]
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        # An empty text was typed, and what reads it says what is wrong with it.
        self.values = {name: value for name, value in values.items() if value or value == ""}
        self._used: set[str | tuple[str, str]] = set()

    def columns(self, field: Field) -> tuple[str, ...]:
        """Return the columns that a field names."""
        return tuple(self._read(field, ()))

    def sets(self, field: Field) -> tuple[tuple[str, ...], ...]:
        """Return the sets of features that a field names."""
        return tuple(self._read(field, ()))

    def text(self, field: Field) -> str | None:
        """Return what is written in a field; None where nothing is."""
        written: str | None = self._read(field, None)
        return written

    def is_ticked(self, field: Field) -> bool:
        """Whether a field is ticked."""
        return bool(self._read(field, False))

    def lists(self, field: Field) -> dict[str, tuple[str, ...]]:
        """Return what a field lists for each column."""
        return dict(self._read(field, {}))

    def texts(self, field: Field) -> dict[str, str]:
        """Return what is written in a field for each column, or for each table."""
        return dict(self._read(field, {}))

    def of_column(self, field: Field, column: str) -> Any:
        """Return what a field says of one column; None where it says nothing."""
        self._used.add((field.name, column))
        return self.values.get(field.name, {}).get(column)

    def _read(self, field: Field, otherwise: Any) -> Any:
        self._used.add(field.name)
        return self.values.get(field.name, otherwise)

    def explain_unused(self, fields: Iterable[Field]) -> Iterator[str]:
        """Yield a sentence for each chosen field that no statistic has read."""
        for field in fields:
            value = self.values.get(field.name)
            if value is None or field.name in self._used:
                continue
            # Bounds may be read for one column and be of no use for another.
            if field.shape in (Shape.lists, Shape.texts):
                for column in value:
                    if (field.name, column) not in self._used:
                        yield field.unused.format(column=column)
            else:
                yield field.unused
