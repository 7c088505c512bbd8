"""Registry of the kinds of statistics. A kind is found by the name that a plan, a release or a
ledger has for it.

A folder of `statistics` with a module `kind` is a statistic; its `KIND` says how its requests and
its recorded queries are read. Folders are imported when they are first asked for.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from semidp.errors import InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.results.cells import StoredFiles
from semidp.publish.results.published_table import StoredFit
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.protocol.requests import (
    PlanEntry,
    Request,
    RequestMeasurement,
    read_entries,
)
from semidp.publish.statistics.setting import Chosen, Setting, index_settings

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
    folders = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = [f"semidp.publish.statistics.{folder.name}" for folder in folders if folder.ispkg]
    modules = [
        importlib.import_module(f"{name}.kind")
        for name in names
        if find_spec(f"{name}.kind") is not None
    ]
    return tuple(module.KIND for module in modules)


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
