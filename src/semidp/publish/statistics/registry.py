"""Registry of the kinds of statistics. A kind is found by the name that a plan, a release or a
ledger has for it.

A folder of `statistics` with a module `kind` is a statistic; its `KIND` says how its requests and
its recorded queries are read. Folders are imported when they are first asked for.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semidp.errors import InputError
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.statistics.protocol.requests import (
    Request,
)
from semidp.publish.statistics.protocol.statistic import Kind, OtherAnswer, ResultReader
from semidp.publish.statistics.setting import Chosen, Setting, index_settings

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
