"""The kinds of statistics, found by what a plan, a release or a ledger calls them.

A folder of `statistics` with a module `kind` is a statistic; its `KIND` says how its requests and its recorded queries
are read. Folders are imported when they are first asked for.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from semidp.core.exact import positive
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace
from semidp.errors import InputError, Refused, SemidpError
from semidp.mechanisms.base import Mechanism, NoNoise
from semidp.mechanisms.pure import KNormMechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.mechanisms.selection import FOR_RELEASES
from semidp.queries.base import QuerySpace
from semidp.queries.products import ProductSpace
from semidp.statistics.protocol import Kind, OwnBudget

_registered: list[Kind] = []


def register(kind: Kind) -> None:
    """Add a statistic that lives outside this package."""
    _registered.append(kind)


@cache
def _built_in() -> tuple[Kind, ...]:
    folders = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = [f"semidp.statistics.{folder.name}" for folder in folders if folder.ispkg]
    modules = [importlib.import_module(f"{name}.kind") for name in names if find_spec(f"{name}.kind") is not None]
    return tuple(module.KIND for module in modules)


def kinds() -> tuple[Kind, ...]:
    """Return every kind of statistic, in the order of a plan's requests.

    >>> [key for kind in kinds() for key in kind.requests]
    ['table', 'group', 'regression', 'quantile']
    """
    return tuple(sorted((*_built_in(), *_registered), key=lambda kind: kind.place))


def request_types() -> dict[str, type[OwnBudget]]:
    """Return what a plan may ask for, by the key of its list in a plan file."""
    return {key: request for kind in kinds() for key, request in kind.requests.items()}


def request_lists() -> tuple[str, ...]:
    """Return the lists of requests in documents for machines, in the order of a plan's requests.

    >>> request_lists()
    ('tables', 'products', 'groups', 'regressions', 'quantiles')
    """
    names: list[str] = []
    for kind in kinds():
        names += [f"{key}s" for key in kind.requests]
        names += kind.further_lists
    return tuple(names)


def query_space(query: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> QuerySpace:
    """Return the space of a query that `QuerySpace.query` wrote, under any exact statistics and adjacency.

    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.schema import Schema
    >>> from semidp.core.tables.counts import Table
    >>> from semidp.core.spaces.dataspace import Margin
    >>> from semidp.sources.contract import Outcome
    >>> from semidp.statistics.outcomes.spaces import sum_space
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.of(wards, [Margin("ward")])
    >>> space = sum_space(public, Adjacency(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> query_space(space.query(), public, Adjacency(1)).l2
    100.0
    >>> query_space({"kind": "opinion"}, public, Adjacency(1))
    Traceback (most recent call last):
    semidp.errors.Refused: this version of semidp knows no query 'opinion': it cannot be recomputed
    """
    kind = str(query.get("kind"))
    reader = next((found.queries[kind] for found in kinds() if kind in found.queries), None)
    if reader is None:
        raise Refused(f"this version of semidp knows no query {kind!r}: it cannot be recomputed")
    try:
        return reader(query, dataspace, adjacency)
    except SemidpError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"the record of a query of {kind} is damaged: it cannot be recomputed") from None


def recorded(record: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> Mechanism:
    """Return the mechanism of a record under any exact statistics and adjacency.

    The noise is added to the query whatever is exact, and its curve follows from its scale and from the norms of the
    query space: ``ρ = Δ2²/2σ²``, ``μ = Δ2/σ``, ``ε = Δ1/b`` and, with the l2 mechanism, ``ε = Δ2/b``; for noise on
    residuals ``μ² = 2ρ = sup Σ |r|²/σ²``, and for choices of quantiles what their rate gives. Noise that lives
    on the tables with zero margins (lattice, l2) protects only what those margins do not publish, so that the new
    statistics must include the old. K-norm noise has the shape of one space and is known under no other.

    Parameters
    ----------
    record
        What `Mechanism.record` returned.
    dataspace, adjacency
        Under which the mechanism is wanted; for noise with zero margins, within the dataspace of the record.

    Examples
    --------
    >>> from semidp.mechanisms.pure import LaplaceMechanism
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> space, _ = two_way()
    >>> record = LaplaceMechanism.calibrate(space, Budget.pure(1)).record()
    >>> record["noise"]
    {'law': 'laplace', 'b': '4'}
    >>> recorded(record, space.dataspace, Adjacency(2)).tradeoff.epsilon(0)
    1.0
    """
    query, noise = record.get("query"), record.get("noise")
    if not isinstance(query, Mapping) or not isinstance(noise, Mapping):
        raise Refused("the query of this measurement was not recorded: it cannot be recomputed")
    numbers = {str(name): value for name, value in noise.items() if name != "law"}
    additive: tuple[type[Mechanism], ...] = (*FOR_RELEASES, ResidualMechanism)
    laws: list[type[Mechanism]] = [*additive, *(law for statistic in kinds() for law in statistic.laws), NoNoise]
    kind = next((law for law in laws if law.name == noise.get("law")), None)
    if kind is None or kind is KNormMechanism:
        raise Refused(f"noise of the law {noise.get('law')!r} is not known under other exact statistics")
    space = query_space(query, dataspace, adjacency)
    statistic = next(found for found in kinds() if query["kind"] in found.queries)
    if kind is not NoNoise and kind not in (statistic.laws or additive):
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed")
    if isinstance(space, ProductSpace) and noise.get("law") == ResidualMechanism.name:
        try:
            return ResidualMechanism.from_record(space, noise)
        except (KeyError, TypeError, AttributeError):
            raise InputError("the record of noise on residuals is damaged: it cannot be recomputed") from None
    if kind is NoNoise and not space.is_zero:
        raise Refused("this table was published exactly because others fixed it, and here they do not fix it")
    try:
        return kind(space, **{name: positive(value, name) for name, value in numbers.items()})
    except TypeError:
        raise InputError(f"the record of {kind.name} noise is damaged: it cannot be recomputed") from None
