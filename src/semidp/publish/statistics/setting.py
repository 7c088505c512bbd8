"""A setting, declared once: the command line, plan files, the explorer and the refusals of
combinations come from it.

`Chosen` holds what was chosen of the settings of statistics. What a statistic reads of it counts as
used, and a setting without effect can be refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any

from semidp.errors import InputError


class Panel(StrEnum):
    """The question that an option answers, in the order of the help."""

    publish = "What to publish"
    exact = "What stays exact"
    budget = "Budget"
    output = "Output"
    columns = "Columns"
    groups = "Groups and outcomes"
    persons = "Persons and households"
    large = "Large data"


class Shape(StrEnum):
    """How a setting is written, and how it is held once it is read.

    ``columns``: names of columns, or other texts. ``features``: a tuple of names; several of them
    if the option may be repeated. ``lists`` and ``texts``: a list or a text for each of several
    columns. ``text``, ``number``, ``whole``, ``file``: one value. ``tick``: on or off.
    """

    columns = "columns"
    features = "features"
    lists = "lists"
    texts = "texts"
    text = "text"
    number = "number"
    whole = "whole"
    file = "file"
    tick = "tick"

    @property
    def type(self) -> str:
        """The type of its values in Python."""
        return _TYPES[self]


_TYPES = {
    Shape.columns: "Sequence[str]",
    Shape.features: "Sequence[Names]",
    Shape.lists: "Mapping[str, Sequence[str]] | None",
    Shape.texts: "Mapping[str, str] | None",
    Shape.text: "str | None",
    Shape.number: "Number | None",
    Shape.whole: "int | None",
    Shape.file: "Path | str | None",
    Shape.tick: "bool",
}
_DEFAULTS: dict[Shape, Any] = {Shape.columns: (), Shape.features: (), Shape.tick: False}


@dataclass(frozen=True)
class Setting:
    """One thing that can be chosen.

    Parameters
    ----------
    name
        Its name: of the parameter in Python and, unless `key` says otherwise, in a plan file.
    help
        What it is, in a sentence or two. A setting is marked, as in ``⟨most⟩``.
    shape
        How it is written.
    metavar
        How that is shown in the help.
    panel
        Where the help of `semidp release` lists it; None for what only plan files and ``--set``
        reach.
    default
        What holds unless it is given; its shape says so unless told.
    option
        The option, unless it is spelled like the name.
    key
        Where a plan file has it; "" for what is no part of a plan.
    type
        Its type in Python, unless it is that of its shape; "" if Python says it in another way.
    needs
        Settings of which one must be given with it.
    excludes
        Settings that cannot be given with it.
    label
        What a page calls it.
    example
        What may be written: for a page, and for whoever wrote something else.
    several
        Whether an option of features may be repeated, for several sets.
    beside
        Settings that say more about what this one asks for.
    private
        Whether its column is an outcome that nothing publishes.
    least
        The least whole number that it takes.

    Examples
    --------
    >>> Setting(name="all_pairs", help="Every pair.", shape=Shape.features).option
    '--all-pairs'
    """

    name: str
    help: str
    shape: Shape
    metavar: str | None = None
    panel: Panel | None = None
    _: KW_ONLY
    default: Any = None
    option: str = ""
    key: str | None = None
    type: str | None = None
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    label: str = ""
    example: str = ""
    several: bool = False
    beside: tuple["Setting", ...] = ()
    private: bool = False
    least: int | None = None

    def __post_init__(self) -> None:
        if not self.option:
            object.__setattr__(self, "option", f"--{self.name.replace('_', '-')}")
        if self.default is None:
            object.__setattr__(self, "default", _DEFAULTS.get(self.shape))
        if self.key is None:
            object.__setattr__(self, "key", self.name)
        if self.type is None:
            object.__setattr__(self, "type", self.shape.type)

    @property
    def is_repeated(self) -> bool:
        """Whether its option may be given several times."""
        several = (Shape.columns, Shape.lists, Shape.texts)
        return self.shape in several or (self.shape is Shape.features and self.several)

    def read(self, written: Sequence[str]) -> Any:
        """Read what was written after the option, once or several times.

        >>> bounds = Setting(name="bounds", help="", shape=Shape.lists, example="age=0,120")
        >>> bounds.read(["age=0,120"])
        {'age': ('0', '120')}
        """
        if self.shape is Shape.columns:
            return tuple(written)
        if self.shape is Shape.features:
            return tuple(split_names(text) for text in written)
        if self.shape in (Shape.texts, Shape.lists):
            assigned = assign_values(f"⟨{self.name}⟩", written, f"⟨{self.name} {self.example}⟩")
            if self.shape is Shape.texts:
                return assigned
            return {name: split_names(text) for name, text in assigned.items()}
        if len(written) > 1:
            raise InputError(f"⟨{self.name}⟩ is given twice: keep one")
        (text,) = written
        if self.shape is Shape.tick:
            if text not in ("true", "false"):
                raise InputError(f"⟨{self.name}⟩ is true or false, not {text[:40]!r}")
            return text == "true"
        return self._read_whole(text) if self.shape is Shape.whole else text

    def _read_whole(self, text: str) -> int:
        digits = text.removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdigit() and len(text) < 19 else None
        if number is None or (self.least is not None and number < self.least):
            bound = "" if self.least is None else f" from {self.least} on"
            raise InputError(f"⟨{self.name}⟩ takes a whole number{bound}")
        return number


def split_names(text: str) -> tuple[str, ...]:
    """Split ``a,b`` into names.

    >>> split_names("sex, region")
    ('sex', 'region')
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} is not a list of names such as sex,region")
    return names


def assign_values(option: str, entries: Sequence[str], example: str) -> dict[str, str]:
    """Read what an option says of each feature or column.

    >>> assign_values("--null-level", ["sex=unknown"], "region=unknown")
    {'sex': 'unknown'}
    """
    assigned: dict[str, str] = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            raise InputError(f"{option} takes NAME=…, such as {example}, not {entry!r}")
        # The later of two values would win without a word.
        if name in assigned:
            raise InputError(f"{option} is given twice for {name!r}: keep one")
        assigned[name] = value
    return assigned


def index_settings(asking: Iterable[Setting]) -> dict[str, Setting]:
    """Return settings by their names, each after those that it stands beside; refuse two of one
    name.

    >>> level = Setting(name="level", help="The level.", shape=Shape.text)
    >>> mean = Setting(name="mean", help="A mean.", shape=Shape.columns, beside=(level,))
    >>> list(index_settings([mean]))
    ['mean', 'level']
    """
    by_name: dict[str, Setting] = {}
    for asked in asking:
        for setting in (asked, *asked.beside):
            # A setting may stand beside several others, but one option cannot mean two things.
            if by_name.setdefault(setting.name, setting) != setting:
                raise InputError(
                    f"two statistics declare the option {setting.option} otherwise: name one of"
                    " them anew"
                )
    return by_name


def name_needed(setting: Setting) -> str:
    """Say what a setting needs.

    >>> name_needed(Setting(name="fit", help="", shape=Shape.text, needs=("table", "all_pairs")))
    '⟨fit⟩ works only with ⟨table⟩ or ⟨all_pairs⟩: add that, or leave it out'
    """
    *first_names, last = (f"⟨{name}⟩" for name in setting.needs)
    named = f"{', '.join(first_names)} or {last}" if first_names else last
    return f"⟨{setting.name}⟩ works only with {named}: add that, or leave it out"


class Chosen:
    """What was chosen of the settings of statistics.

    >>> mean = Setting(name="mean", help="A mean.", shape=Shape.columns)
    >>> grid = Setting(name="grid", help="The grid.", shape=Shape.texts, needs=("mean",))
    >>> chosen = Chosen({"mean": ("age",), "grid": {"age": "100", "pay": "10"}})
    >>> [(column, chosen.of_column(grid, column)) for column in chosen[mean]]
    [('age', '100')]
    >>> list(chosen.explain_unused([mean, grid]))
    ["⟨grid⟩ names 'pay', and no statistic of that uses it: leave it out"]
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        # An empty text was typed, and what reads it says what is wrong with it.
        self.values = {name: value for name, value in values.items() if value or value == ""}
        self._used: set[str | tuple[str, str]] = set()

    def __getitem__(self, setting: Setting) -> Any:
        """Return what was chosen of a setting; nothing of its shape unless it was."""
        self._used.add(setting.name)
        nothing = {} if setting.shape in (Shape.lists, Shape.texts) else setting.default
        return self.values.get(setting.name, nothing)

    def of_column(self, setting: Setting, column: str) -> Any:
        """Return what a setting says of one column; None if it says nothing."""
        self._used.add((setting.name, column))
        return self.values.get(setting.name, {}).get(column)

    def explain_unused(self, settings: Iterable[Setting]) -> Iterator[str]:
        """Yield a sentence for each chosen setting that no statistic has read."""
        for setting in settings:
            value = self.values.get(setting.name)
            if value is None or setting.name in self._used:
                continue
            if setting.shape not in (Shape.lists, Shape.texts):
                yield name_needed(setting)
                continue
            # Bounds may be read for one column and be of no use for another.
            for column in value:
                if (setting.name, column) not in self._used:
                    yield (
                        f"⟨{setting.name}⟩ names {column!r}, and no statistic of that uses it:"
                        " leave it out"
                    )
