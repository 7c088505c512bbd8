"""Published statistics other than tables of counts (one class for all), the settings that request
statistics, and the registry of kinds.

A statistic provides sheets of columns with a role and its own sentences; files, data frames,
report, terminal and JSON follow. A setting is declared once: the command line, plan files, the
explorer and the refusals of combinations come from it. `Chosen` holds the chosen values. Values
that a statistic reads count as used, and a setting without effect can be refused.

A module of `statistics` with a `KIND`, or a folder with a module `kind`, is a statistic: its `KIND`
says how its requests and its recorded queries are read. It is found by the name that a plan, a
release or a ledger has for it, and imported when first asked for.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from attrs import evolve, field, frozen

from semidp.errors import InputError
from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.publish.results.columns import Columns, Form, PublishedColumns, StoredFiles
from semidp.publish.results.grids import Details, Section
from semidp.publish.results.published_table import StoredFit
from semidp.publish.results.role_columns import Sheet
from semidp.publish.results.texts import FAINT_MARK, TOO_MANY, scale_text, share_text
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.protocol.requests import (
    PlanEntry,
    Published,
    Request,
    RequestMeasurement,
    Trust,
    mechanism_fields,
    read_entries,
)


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
    """The notation of a setting, and the type of its value.

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


@frozen
class Setting:
    """One setting.

    Parameters
    ----------
    name
        Its name: of the parameter in Python and, unless `key` says otherwise, in a plan file.
    help
        Its help, in a sentence or two. Settings are marked, as in ``⟨most⟩``.
    shape
        Its notation.
    metavar
        Its placeholder in the help.
    panel
        Where the help of `semidp release` lists it; None for settings only of plan files and
        ``--set``.
    default
        Its default value (default: that of its shape).
    option
        The option, if it differs from the name.
    key
        Its key in a plan file; "" if it is not part of a plan.
    type
        Its type in Python, if it differs from that of its shape; "" if Python has another way to
        say it.
    needs
        Settings, one of which must be given with it.
    excludes
        Settings that cannot be given with it.
    label
        Its label on a page.
    example
        An example of a value, for pages and error messages.
    several
        Whether an option of features may be repeated, for several sets.
    beside
        Settings that refine this one.
    private
        Whether its column is a private outcome.
    least
        The least whole number that it accepts.

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
    default: Any = field(default=None, kw_only=True)
    option: str = field(default="", kw_only=True)
    key: str | None = field(default=None, kw_only=True)
    type: str | None = field(default=None, kw_only=True)
    needs: tuple[str, ...] = field(default=(), kw_only=True)
    excludes: tuple[str, ...] = field(default=(), kw_only=True)
    label: str = field(default="", kw_only=True)
    example: str = field(default="", kw_only=True)
    several: bool = field(default=False, kw_only=True)
    beside: tuple["Setting", ...] = field(default=(), kw_only=True)
    private: bool = field(default=False, kw_only=True)
    least: int | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
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
        """Read the values of the option, given once or several times.

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
    """Read the values of an option for each feature or column.

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
    """Return settings by their names, each after those that it stands next to; refuse two of one
    name.

    >>> level = Setting(name="level", help="The level.", shape=Shape.text)
    >>> mean = Setting(name="mean", help="A mean.", shape=Shape.columns, beside=(level,))
    >>> list(index_settings([mean]))
    ['mean', 'level']
    """
    by_name: dict[str, Setting] = {}
    for asked in asking:
        for setting in (asked, *asked.beside):
            # A setting may stand next to several others, but one option cannot mean two things.
            if by_name.setdefault(setting.name, setting) != setting:
                raise InputError(
                    f"two statistics declare the option {setting.option} otherwise: name one of"
                    " them anew"
                )
    return by_name


def name_needed(setting: Setting) -> str:
    """Name the settings that a setting needs.

    >>> name_needed(Setting(name="fit", help="", shape=Shape.text, needs=("table", "all_pairs")))
    '⟨fit⟩ works only with ⟨table⟩ or ⟨all_pairs⟩: add that, or leave it out'
    """
    *first_names, last = (f"⟨{name}⟩" for name in setting.needs)
    named = f"{', '.join(first_names)} or {last}" if first_names else last
    return f"⟨{setting.name}⟩ works only with {named}: add that, or leave it out"


class Chosen:
    """The chosen values of the settings of statistics.

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
        """Return the value of a setting for one column, or None."""
        self._used.add((setting.name, column))
        return self.values.get(setting.name, {}).get(column)

    def explain_unused(self, settings: Iterable[Setting]) -> Iterator[str]:
        """Yield a sentence for each chosen setting that no statistic has read."""
        for setting in settings:
            value = self.values.get(setting.name)
            if value is None or setting.name in self._used:
                continue
            if setting.shape not in (Shape.lists, Shape.texts):
                others = [other for other in settings if other.name.endswith(f"_{setting.name}")]
                taken = (
                    f"{' and '.join(f'⟨{name}⟩' for name in other.needs)} take ⟨{other.name}⟩"
                    for other in others
                )
                yield "; ".join((name_needed(setting), *taken))
                continue
            # Bounds may be read for one column and be of no use for another.
            for column in value:
                if (setting.name, column) not in self._used:
                    yield (
                        f"⟨{setting.name}⟩ names {column!r}, and no statistic of that uses it:"
                        " leave it out"
                    )


_SHOWN_ROWS = 12  # on a terminal
NOTHING_MEASURED = "There is no record, so there is nothing to measure and no noise."
"""The sentence about a statistic without records."""


@frozen
class Sentences:
    """The sentences of a statistic, beyond its columns.

    Parameters
    ----------
    title
        Its title: mean of score by ward.
    noise
        The noise, after the name of the mechanism, for a terminal and for specialists
        (default: its scale).
    mechanism
        What a terminal calls the mechanism (default: its own name).
    paragraphs
        How it was measured and what it means, for the report; left out if there are no records.
    further
        Further facts for specialists, each with its name.
    notes
        Further lines for a terminal, each with a keyword.
    faint
        Why noise counts as dominating a row.
    warnings
        What a reader must know about it: recorded in release.json.
    """

    title: str
    noise: str = ""
    mechanism: str = ""
    paragraphs: tuple[str, ...] = ()
    further: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    faint: str = ""
    warnings: tuple[str, ...] = ()


@frozen(eq=False, kw_only=True, repr=False)
class PublishedStatistic(Published):
    """A published statistic.

    Parameters
    ----------
    request
        What was asked for.
    sheets
        Its files: columns with a role.
    analysis
        Derived from the measurement; answers more questions than the files.
    sentences
        Its sentences.
    facts
        Further entries in release.json.
    mechanism
        Its mechanism; None for a combination of several measurements.

    Examples
    --------
    >>> import semidp
    >>> people = {"ward": ["a", "a", "b"], "passed": [1, 0, 1]}
    >>> release = semidp.release(people, semidp.proportion("passed", by="ward"), mu=1)
    >>> release.groups[0].sheets[0].counts.tolist()  # exact; the proportions are not
    [2, 1]
    """

    request: Any
    sheets: tuple[Sheet, ...]
    analysis: Any
    sentences: Sentences
    facts: Mapping[str, Any]
    mechanism: Mechanism | None

    @property
    def list_key(self) -> str:
        """The list of release.json that it is in."""
        key = str(self.request.list_key)
        return key if self.mechanism is not None else f"combined_{key}"

    def title(self) -> str:
        """Name it: the mean of score by school."""
        return self.sentences.title

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return its CSV files."""
        return {f"{sheet.name}.csv": sheet.columns() for sheet in self.sheets}

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the files, as plain values."""
        return {**super().to_json(), **self.facts}

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return each file under its name, for data frames, without bare measurements."""
        return {sheet.name: sheet for sheet in self.sheets if sheet.has_estimates}

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what its files hold."""
        return [(f"{sheet.name}.csv", sheet.words or self.title()) for sheet in self.sheets]

    # --- what is said about it

    def noisy_lines(self) -> list[str]:
        """Say how many rows have estimates."""
        rows = sum(len(sheet.groups) for sheet in self.estimates)
        return [f"{self.title()}: {count_noun(rows, self.estimates[0].row)}"]

    @property
    def estimates(self) -> tuple[Sheet, ...]:
        """The sheets whose rows a terminal lists: one for each set of groups."""
        return tuple(sheet for sheet in self.sheets if sheet.is_main and sheet.has_estimates)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the mechanism and the first estimates, for a terminal."""
        said = self.sentences
        lines = [("mechanism", said.mechanism or f"{self.noise.mechanism}, {self._noise_text}")]
        estimates = [line for sheet in self.estimates for line in sheet.lines()]
        left = len(estimates) - _SHOWN_ROWS
        if left > 0:
            estimates = [*estimates[:_SHOWN_ROWS], f"and {left:,} more"]
        lines += [("" if number else "estimate", line) for number, line in enumerate(estimates)]
        return lines + [("", text) for text in self.faint_text] + list(said.notes)

    @property
    def _noise_text(self) -> str:
        return self.sentences.noise or f"scale {scale_text(self.noise.scale)}"

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return a section of the report for each of its sheets; the first says how all were
        measured.
        """
        drawn = [sheet.section() for sheet in self.sheets]
        sections = [section for section in drawn if section is not None]
        said = (NOTHING_MEASURED,) if self.noise.absent else self.sentences.paragraphs
        dominated = [f"{text}." for text in self.faint_text]
        for first in sections[:1]:
            sections[0] = evolve(first, paragraphs=[*said, *dominated, *first.paragraphs])
        return sections

    def details(self) -> Details:
        """Say how it was measured."""
        return Details(self.title(), self._noise_text, self.sentences.further)

    def warnings(self) -> list[str]:
        """Say what a reader of the release must know about it."""
        return list(self.sentences.warnings)

    @property
    def faint_rows(self) -> tuple[int, int]:
        """In how many rows noise dominates, and how many have records."""
        counted = [sheet.faint_rows for sheet in self.sheets if sheet.faint is not None]
        return sum(faint for faint, _ in counted), sum(rows for _, rows in counted)

    @property
    def faint_text(self) -> list[str]:
        """Say in how many rows noise dominates, and what the mark means; nothing if in none."""
        faint, rows = self.faint_rows
        if not faint:
            return []
        rows_text = count_noun(rows, "group")
        return [f"{FAINT_MARK} noise dominates {faint:,} of {rows_text}: {self.sentences.faint}"]

    def cautions(self) -> list[str]:
        """Warn if noise dominates more than a quarter of its rows."""
        faint, rows = self.faint_rows
        if not faint or faint <= TOO_MANY * rows:
            return []
        return [
            f"Noise dominates {share_text(faint / rows)} of the groups ({self.title()}): ask for"
            " fewer or larger groups, tighter bounds or a larger budget."
        ]

    def plot(self, axes: Any = None, by: int = 0) -> Any:
        """Draw one of its sheets; return the figure."""
        return self.sheets[by].plot(axes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self.title()}, {self.noise.mechanism})"

    def _repr_html_(self) -> str:
        return "".join(sheet._repr_html_() for sheet in self.sheets if sheet.has_estimates)

    # --- computed again

    def recalibrate(self, request: Request, scope: Scope) -> Mechanism:
        """Return the mechanism from which it was published."""
        assert self.mechanism is not None, "a combination has the mechanisms of its releases"
        return self.mechanism

    def trust_assumptions(self, request: Request) -> Iterator[Trust]:
        """Yield what is taken on trust about it besides its noisy values."""
        for what, key in self.request.trusted_fields.items():
            yield Trust(what, (f"plan.{request.key}.{key}",))


class MeasurementSource(Protocol):
    """A measurement, often with what follows from it."""

    @property
    def mechanism(self) -> Mechanism:
        """How it was measured."""

    @property
    def measurement(self) -> Measurement:
        """What was measured."""


def publish_statistic(
    request: Request,
    source: MeasurementSource,
    sentences: Sentences,
    sheets: Sequence[Sheet],
    facts: Mapping[str, Any] | None = None,
    analysis: Any = None,
) -> PublishedStatistic:
    """Return a statistic from a measurement and what follows from it.

    Parameters
    ----------
    request, source
        The request, and the measurement with what follows from it.
    sentences, sheets, facts
        The sentences, the files, and further entries in release.json.
    analysis
        What answers further questions (default: `source`).
    """
    mechanism, measured = source.mechanism, source.measurement
    return PublishedStatistic(
        request=request,
        sheets=tuple(sheets),
        analysis=source if analysis is None else analysis,
        sentences=sentences,
        facts=facts or {},
        mechanism=mechanism,
        noisy=measured.noisy,
        **mechanism_fields(request.name, mechanism, measured.private),
    )


ResultReader = Callable[
    [Mapping[str, Any], Any, Sequence[Request], Partition | None, Scope, StoredFiles],
    tuple[RequestMeasurement, Sequence[StoredFit]],
]
"""Reads what was measured of a request and the whole numbers of its tables, from its entry in
release.json and its files, among all requests of the plan, by parts or in one piece."""


@frozen
class OtherAnswer:
    """The questions of a request, put to another kind of statistic at the same cost.

    Parameters
    ----------
    request
        The request that asks them.
    better
        Whether it answers them better, by public numbers alone.
    reason
        How well both answer them.
    """

    request: Request
    better: bool
    reason: str


@frozen
class Kind:
    """A kind of statistic, as the packages above its folder see it.

    Parameters
    ----------
    place
        The position of its requests among those of a plan.
    key
        The list of its requests in a plan file.
    asked
        Its classes of requests; the first reads an entry of a plan file.
    results
        The keys of its lists in release.json, with the readers of results that are not published
        again from their measurements.
    always_listed
        The keys of lists that release.json has even if they are empty.
    plan_keys
        Its keys at the top of a plan file, besides its list.
    gather
        Turns the arguments of a plan into its requests.
    read_plan, write_plan
        How its requests are read from a plan file and written to it, if they are more than one
        entry each.
    settings
        Its settings, each with those that refine it: options of `semidp release` and controls of
        the explorer.
    ask
        Turns chosen values into requests, or into other arguments of a plan.
    shown
        The inverse of `ask`: the choices that produce a request, each with what it asks for,
        without a budget. One request may need several, such as one for each table.
    alternative
        Returns how this kind would answer a request of another kind, given the mechanism that
        would measure it; None if it does not answer such questions. Public numbers alone decide.
    of_answers
        Returns the same statistic of those who answered, where who did is private; None if this
        kind does not know how.
    """

    place: int
    key: str
    asked: tuple[type[Any], ...] = ()
    results: Mapping[str, ResultReader] = field(factory=dict)
    always_listed: tuple[str, ...] = ()
    plan_keys: tuple[str, ...] = ()
    gather: Callable[[Sequence[Any]], Sequence[Request]] = tuple
    read_plan: Callable[[Mapping[str, Any]], Sequence[Request]] | None = None
    write_plan: Callable[[Sequence[Any]], dict[str, Any]] | None = None
    settings: tuple[Setting, ...] = ()
    ask: Callable[[Chosen], Sequence[Any]] = lambda chosen: ()
    shown: Callable[[Any], Sequence[tuple[Mapping[str, Any], Any]]] = lambda request: ()
    alternative: Callable[[Request, Mechanism], OtherAnswer | None] = lambda request, mechanism: (
        None
    )

    of_answers: Callable[[Request], Request | None] = lambda request: None

    @property
    def list_keys(self) -> tuple[str, ...]:
        """The keys of its lists in release.json."""
        return tuple(self.results) or tuple(asked.list_key for asked in self.asked[:1])

    def read(self, document: Mapping[str, Any]) -> Sequence[Request]:
        """Return its requests of a plan file."""
        if self.read_plan is not None:
            return self.read_plan(document)
        if not self.asked:
            return ()
        reader: type[PlanEntry] = self.asked[0]
        return [
            cast(Request, reader.from_json(entry)) for entry in read_entries(document, self.key)
        ]

    def write(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Return its requests as a plan file has them."""
        if self.write_plan is not None:
            return self.write_plan(requests)
        if not self.asked:
            return {}
        return {self.key: [request.to_json() for request in requests]}


_registered: list[Kind] = []


def register(kind: Kind) -> None:
    """Add a statistic that lives outside this package."""
    _registered.append(kind)


@cache
def _load_builtin_kinds() -> tuple[Kind, ...]:
    modules = []
    for entry in pkgutil.iter_modules([str(Path(__file__).parent.parent)]):
        name = f"semidp.publish.statistics.{entry.name}{'.kind' if entry.ispkg else ''}"
        if find_spec(name) is not None:
            modules.append(importlib.import_module(name))
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


def kinds() -> tuple[Kind, ...]:
    """Return every kind of statistic, in the order of a plan's requests.

    >>> [kind.key for kind in kinds()]
    ['table', 'group', 'answered', 'regression', 'quantile', 'distribution', 'odds_ratio']
    """
    return tuple(sorted((*_load_builtin_kinds(), *_registered), key=lambda kind: kind.place))


def group_requests(asked: Iterable[Any]) -> tuple[Request, ...]:
    """Return the requests of a plan, kind by kind; refuse what no statistic knows."""
    requests: list[Request] = []
    left = list(asked)
    for kind in kinds():
        requests += kind.gather([item for item in left if isinstance(item, kind.asked)])
        left = [item for item in left if not isinstance(item, kind.asked)]
    if left:
        if isinstance(left[0], (list, tuple)):
            raise InputError("requests are given one by one, not as a list: put * before the list")
        raise InputError(
            f"ask for table(...), mean(...), median(...) or regression(...), not for {left[0]!r}"
        )
    return tuple(requests)


def asking_settings() -> dict[str, tuple[Kind, Setting]]:
    """Return the settings that ask for a statistic, by name, each with its kind.

    >>> list(asking_settings())
    ['table', 'all_pairs', 'mean', 'sum', 'proportion', 'regress', 'logistic', 'median', 'quantile',
    'distribution',
    'odds_ratio']
    """
    return {asked.name: (kind, asked) for kind in kinds() for asked in kind.settings}


def statistic_settings() -> dict[str, Setting]:
    """Return all settings of statistics by name, each where it is first used."""
    return index_settings(asked for _, asked in asking_settings().values())


def build_requests(chosen: Chosen) -> list[Any]:
    """Return all requests, kind by kind; refuse chosen values without effect.

    >>> chosen = Chosen(
    ...     {"mean": ("age",), "group": (("region",),), "bounds": {"age": ("0", "120")}}
    ... )
    >>> [request.name for request in build_requests(chosen)]
    ['mean-age']
    """
    requests: list[Any] = []
    for kind in kinds():
        requests += kind.ask(chosen)
    # What nobody used is known when all kinds have read: an option without effect is refused.
    for sentence in chosen.explain_unused(statistic_settings().values()):
        raise InputError(sentence)
    return requests


def list_choices(request: Request) -> list[tuple[Mapping[str, Any], Any]]:
    """Return the choices that would produce a request; nothing if no choices
    do.

    >>> from semidp.publish.statistics.tables.asked import TableRequest
    >>> from semidp.publish.statistics.tables.request import TablesRequest
    >>> [
    ...     values
    ...     for values, _ in list_choices(
    ...         TablesRequest([TableRequest(["sex"]), TableRequest(["age"])])
    ...     )
    ... ]
    [{'table': (('sex',),)}, {'table': (('age',),)}]
    """
    for kind in kinds():
        if isinstance(request, kind.asked):
            return list(kind.shown(request))
    return []


def alternatives(request: Request, mechanism: Mechanism) -> list[OtherAnswer]:
    """Return how other kinds would answer a request, given the mechanism that would measure it.

    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.publish.selection import select_mechanism
    >>> from semidp.publish.statistics.tables.asked import TableRequest
    >>> alternatives(TableRequest(["sex", "region"]), select_mechanism(two_way()[0], Budget.gdp(1)))
    []
    """
    every = [kind.alternative(request, mechanism) for kind in kinds()]
    return [alternative for alternative in every if alternative is not None]


def of_answers(request: Request) -> Request | None:
    """Return the same statistic of those who answered, if who answered is private; None if no kind
    supports it.

    >>> from semidp.publish.statistics.tables.asked import TableRequest
    >>> from semidp.publish.statistics.tables.request import TablesRequest
    >>> of_answers(TablesRequest([TableRequest(["sex"])])) is None
    True
    """
    for kind in kinds():
        answers = kind.of_answers(request)
        if answers is not None:
            return answers
    return None


def better(request: Request, mechanism: Mechanism) -> list[str]:
    """Return how other kinds would answer a request better than its own mechanism: a sentence
    each.
    """
    return [
        alternative.reason for alternative in alternatives(request, mechanism) if alternative.better
    ]


def requests_from(document: Mapping[str, Any]) -> list[Request]:
    """Return all requests of a plan file."""
    requests: list[Request] = []
    for kind in kinds():
        requests += kind.read(document)
    return requests


def plan_entries(requests: Iterable[Request]) -> dict[str, Any]:
    """Return requests as a plan file has them, kind by kind."""
    every = list(requests)
    entries: dict[str, Any] = {}
    for kind in kinds():
        entries |= kind.write([request for request in every if isinstance(request, kind.asked)])
    return entries


def plan_keys() -> set[str]:
    """Return the keys at the top of a plan file that ask for statistics."""
    keys: set[str] = set()
    for kind in kinds():
        if kind.asked:
            keys.update((kind.key, *kind.plan_keys))
    return keys


def result_readers() -> dict[str, ResultReader]:
    """Return the readers of results that are not published again from their measurements, by the
    keys of their lists in release.json.

    >>> list(result_readers())
    ['tables', 'products', 'linked', 'partitioned']
    """
    return {key: reader for kind in kinds() for key, reader in kind.results.items()}


def result_keys() -> tuple[str, ...]:
    """Return the names of the lists of results in release.json, in the order of a plan's requests.

    >>> result_keys()[:2]
    ('tables', 'products')
    """
    return tuple(key for kind in kinds() for key in kind.list_keys)


def always_listed() -> set[str]:
    """Return the keys of lists that release.json has even if they are empty."""
    return {key for kind in kinds() for key in kind.always_listed}
