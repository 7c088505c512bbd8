"""What is published of a statistic that is not a table of counts: one class for all of them; and
the kinds of statistics, with their registry.

A statistic hands over sheets of columns with a role and its own sentences; files, data frames,
report, terminal and JSON follow. A module of `statistics` with a `KIND`, or a folder with a module
`kind`, is a statistic: its `KIND` says how its requests and its recorded queries are read. It is
found by the name that a plan, a release or a ledger has for it, and imported when first asked for.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

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
    Request,
    RequestMeasurement,
    read_entries,
)
from semidp.publish.statistics.protocol.results import Published, Trust, mechanism_fields
from semidp.publish.statistics.setting import Chosen, Setting, index_settings

_SHOWN_ROWS = 12  # on a terminal
NOTHING_MEASURED = "There is no record, so there is nothing to measure and no noise."
"""What is said of a statistic without records."""


@dataclass(frozen=True)
class Sentences:
    """What a statistic says of itself, where columns do not say it.

    Parameters
    ----------
    title
        What it is called: mean of score by ward.
    noise
        The noise, after the name of the mechanism, for a terminal and for specialists; its scale
        unless given.
    mechanism
        What a terminal calls the mechanism; its own name unless given.
    paragraphs
        How it was measured and what it means, for the report; not said if there is no record.
    further
        Further facts for specialists, each with its name.
    notes
        Further lines of a terminal, each with a word on what it is about.
    faint
        Why noise is said to dominate a row.
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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedStatistic(Published):
    """What is published of a statistic.

    Parameters
    ----------
    request
        What was asked for.
    sheets
        Its files: columns with a role.
    analysis
        What follows from the measurement, and answers more questions than the files do.
    sentences
        What it says of itself.
    facts
        What release.json says of it besides.
    mechanism
        How it was measured; None for a combination of several measurements.

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
        """Return each file under its name, for data frames; not what was only measured."""
        return {sheet.name: sheet for sheet in self.sheets if sheet.has_estimates}

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what its files hold."""
        return [(f"{sheet.name}.csv", sheet.words or self.title()) for sheet in self.sheets]

    # --- what is said of it

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
            sections[0] = replace(first, paragraphs=[*said, *dominated, *first.paragraphs])
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
            f"Noise dominates {share_text(faint / rows)} of the groups of the {self.title()}: ask"
            " for fewer or larger groups, tighter bounds or a larger budget."
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
        """Return its mechanism: what it was published from."""
        assert self.mechanism is not None, "a combination has the mechanisms of its releases"
        return self.mechanism

    def trust_assumptions(self, request: Request) -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values."""
        for what, key in self.request.trusted_fields.items():
            yield Trust(what, (f"plan.{request.key}.{key}",))


class MeasurementSource(Protocol):
    """What was measured, and often what follows from it."""

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
    """Return a statistic from what was measured and what follows from it.

    Parameters
    ----------
    request, source
        What was asked for, and the measurement with what follows from it.
    sentences, sheets, facts
        What is said, the files, and what release.json says besides.
    analysis
        What answers further questions; `source` unless given.
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


@dataclass(frozen=True)
class OtherAnswer:
    """The questions of a request, put to another kind of statistic at the same cost.

    Parameters
    ----------
    request
        What asks them.
    better
        Whether it answers them better, by public numbers alone.
    reason
        How well both answer them.
    """

    request: Request
    better: bool
    reason: str


@dataclass(frozen=True)
class Kind:
    """A kind of statistic, as the packages above its folder know it.

    Parameters
    ----------
    place
        Where its requests stand among those of a plan.
    key
        The list of its requests in a plan file.
    asked
        The classes that a plan takes; the first reads an entry of a plan file.
    results
        The keys of its lists in release.json, with how their results are read, where they are not
        published again from their measurements.
    always_listed
        The keys of lists that release.json has even where they are empty.
    plan_keys
        What it may have at the top of a plan file beside its list.
    gather
        Turns what a plan was given into its requests.
    read_plan, write_plan
        How its requests are read from a plan file and written to it, where an entry each is not
        all.
    settings
        What can be chosen of it, each with what stands beside it: options of `semidp release` and
        controls of the explorer.
    ask
        Turns what was chosen into requests, or into whatever a plan takes.
    shown
        The inverse of `ask`: the choices that produce a request, each beside what it asks for,
        without a budget. One request may need several, such as one for each table.
    alternative
        Returns how this kind would answer a request of another, beside the mechanism that would
        measure it; None where it does not answer such questions. Public numbers alone decide.
    of_answers
        Returns the same statistic of those who answered, where who did is private; None where this
        kind does not know how.
    """

    place: int
    key: str
    asked: tuple[type[Any], ...] = ()
    results: Mapping[str, ResultReader] = field(default_factory=dict)
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
    for found in pkgutil.iter_modules([str(Path(__file__).parent.parent)]):
        name = f"semidp.publish.statistics.{found.name}{'.kind' if found.ispkg else ''}"
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
    """Return all settings of statistics by their names, each where it is first of use."""
    return index_settings(asked for _, asked in asking_settings().values())


def build_requests(chosen: Chosen) -> list[Any]:
    """Return everything that was asked for, kind by kind; refuse what was chosen and is of no use.

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
    """Return what would have been chosen to ask for a request, thing by thing; nothing where that
    cannot be chosen.

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
    """Return how other kinds would answer a request, beside the mechanism that would measure it.

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
    """Return the same statistic of those who answered, where who did is private; None where no kind
    knows how.

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
    """Return everything that a plan file asks for."""
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
    """Return how results are read that are not published again from their measurements, by the keys
    of their lists in release.json.

    >>> list(result_readers())
    ['tables', 'products', 'linked', 'partitioned']
    """
    return {key: reader for kind in kinds() for key, reader in kind.results.items()}


def result_keys() -> tuple[str, ...]:
    """Return what release.json calls its lists of results, in the order of a plan's requests.

    >>> result_keys()[:2]
    ('tables', 'products')
    """
    return tuple(key for kind in kinds() for key in kind.list_keys)


def always_listed() -> set[str]:
    """Return the keys of lists that release.json has even where they are empty."""
    return {key for kind in kinds() for key in kind.always_listed}
