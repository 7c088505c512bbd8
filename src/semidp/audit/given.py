"""A pair of datasets that somebody gives for an audit: read, checked to be adjacent, and turned
into pairs of values.

The two datasets are lists of records. Both must have the exact totals of the release, and they must
be as close as its promise says: at most a records apart, or one exchange. Any other pair could
convict an honest mechanism.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from semidp.audit.claims import Claim
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency, Exchange
from semidp.core.spaces.exchange_blocks import Blocks, servings
from semidp.core.tables.features import Feature
from semidp.errors import DataError, InputError, Refused
from semidp.publishing.plan import Plan
from semidp.queries.worst_pairs import Pair
from semidp.sources.opening import open_source
from semidp.sources.reader import Reader

_MOST_PEOPLE = 2_000_000  # pairs of records that are tried as who moves from where to where

Record = tuple[Any, ...]
"""A leaf of every feature, then the values of the outcomes."""


def given_pairs(
    datasets: Sequence[Any],
    claims: Sequence[Claim],
    plan: Plan,
    scope: Scope,
    adjacency: Adjacency | None = None,
) -> list[Pair | None]:
    """Return the pair of values of each claim on two datasets, None where they have the same.

    Parameters
    ----------
    datasets
        The two datasets, each a list of records: mappings with a value for every column that the
        plan reads.
    claims
        What is claimed of each request of the plan.
    plan, scope
        What was released, and what is public about it.
    adjacency
        The adjacency that the datasets must have; that of the scope unless given.

    Raises
    ------
    InputError
        If a dataset is no list of such records.
    Refused
        If the datasets have other totals than are published, are not adjacent, or change nothing
        that was measured.
    """
    first = _Dataset.of(datasets[0], plan, scope, "first")
    second = _Dataset.of(datasets[1], plan, scope, "second")
    values = []
    for dataset in (first, second):
        with dataset.reader(plan, scope) as reader:
            dataset.check_totals(reader, scope)
            measured = []
            for request, claim in zip(plan.requests, claims, strict=True):
                measured.append(request.read(reader, scope, claim.mechanism.space))
            values.append(measured)
    _check_adjacent(first, second, adjacency or scope.adjacency, scope)
    pairs = []
    for claim, one, other in zip(claims, *values, strict=True):
        pairs.append(_pair(claim, one, other))
    if not any(pairs):
        raise Refused(
            "the two datasets of the pair give the same measured values: there is nothing to tell"
            " apart"
        )
    return pairs


def _pair(claim: Claim, first: Any, second: Any) -> Pair | None:
    if np.array_equal(first, second) or claim.fixed:
        return None
    return claim.mechanism.pair_of(first, second)


@dataclass(frozen=True)
class _Dataset:
    """A dataset by its columns, and its records as leaves and outcomes."""

    name: str
    columns: Mapping[str, list[Any]]
    records: tuple[Record, ...]

    @classmethod
    def of(cls, records: Any, plan: Plan, scope: Scope, name: str) -> "_Dataset":
        schema = scope.dataspace.schema
        needed: list[str] = []
        for feature in schema.features:
            needed.extend(feature.names)
        needed.extend(plan.outcomes)
        is_list = isinstance(records, list)
        if not is_list or not all(isinstance(record, Mapping) for record in records):
            raise InputError(
                f"the {name} dataset of the pair is not a list of records: write each as an object"
                f" with a value for {', '.join(needed)}"
            )
        for column in needed:
            if any(column not in record for record in records):
                raise InputError(
                    f"a record of the {name} dataset of the pair has no value for {column!r}:"
                    " give one"
                )
        columns: dict[str, list[Any]] = {}
        for column in needed:
            columns[column] = [record[column] for record in records]
        parts: list[list[Any]] = []
        for feature in schema.features:
            if len(feature.names) == 1:
                values = np.array(columns[feature.name], dtype=object)
                parts.append(feature.codes(values).tolist())
            else:
                parts.append(_leaves(feature, columns, name))
        for column in plan.outcomes:
            parts.append([_number(value, column, name) for value in columns[column]])
        return cls(name, columns, tuple(zip(*parts, strict=True)))

    @contextlib.contextmanager
    def reader(self, plan: Plan, scope: Scope) -> Iterator[Reader]:
        """Yield a reader of the dataset with the schema of the release."""
        columns = {}
        for name, values in self.columns.items():
            columns[name] = np.array(values)
        with open_source(columns) as source:
            yield Reader(scope.dataspace.schema, source, plan.features)

    def check_totals(self, reader: Reader, scope: Scope) -> None:
        """Refuse a dataset that has other exact totals than the release."""
        public = scope.dataspace
        if len(self.records) != public.n:
            raise Refused(
                f"the {self.name} dataset of the pair has another number of records than the"
                " release"
            )
        counted = reader.tables(margin.names for margin in public.margins)
        for margin, published, total in zip(public.margins, public.totals, counted, strict=True):
            if total != published:
                raise Refused(
                    f"the {self.name} dataset of the pair has other totals of {margin} than the"
                    " release publishes: give two datasets with the published totals"
                )


def _leaves(feature: Feature, columns: Mapping[str, list[Any]], name: str) -> list[int]:
    """Leaf of every record in a nested feature, from the columns of its depths."""
    leaves = {path: leaf for leaf, path in enumerate(feature.paths())}
    depths = [map(str, columns[depth]) for depth in feature.names]
    paths = zip(*depths, strict=True)
    places = [leaves.get(path, -1) for path in paths]
    if -1 in places:
        raise DataError(
            f"the {name} dataset of the pair has a value of {feature.name!r} that the release does"
            " not know"
        )
    return places


def _number(value: Any, column: str, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"the {name} dataset of the pair has a value of {column!r} that is not a number"
        ) from None


def _check_adjacent(first: _Dataset, second: _Dataset, adjacency: Adjacency, scope: Scope) -> None:
    one, other = Counter(first.records), Counter(second.records)
    apart = sum((one - other).values())
    if adjacency.protection is not None and adjacency.times > 1 and isinstance(adjacency, Exchange):
        raise Refused(
            f"whether two datasets are exchanges of {adjacency.protection.who} is not checked:"
            " leave --pair out, and the worst pair that is known is attacked"
        )
    if isinstance(adjacency, Exchange):
        blocks = Blocks.of(scope.dataspace)
        is_near = apart <= blocks.count + 1
        if not is_near or not (_arises(blocks, one, other) or _arises(blocks, other, one)):
            raise Refused(
                "the two datasets of the pair are not one exchange apart: one person may go"
                " anywhere, and for each published total that it changes one other record takes its"
                " place"
            )
    elif apart > adjacency.a:
        raise Refused(
            f"the two datasets of the pair differ in {apart:,} records, and the release is about"
            f" {adjacency}: give two that are no farther apart"
        )


def _arises(blocks: Blocks, before: Counter[Record], after: Counter[Record]) -> bool:
    """Whether one person and its carriers turn one multiset of records into the other, by the
    definition in `Blocks`.

    Who moves is first sought among the records that differ. Where somebody else takes the very
    place that the person leaves, or leaves the one that it takes, all records are tried, unless
    they are too many.
    """
    gone, new = before - after, after - before
    if not gone:
        return True
    change = Counter(after)
    change.subtract(before)
    movers = product(gone, new)
    if any(_carried(blocks, before, x, y, change) for x, y in movers):
        return True
    if len(before) * len(after) > _MOST_PEOPLE:
        return False
    movers = product(before, after)
    return any(_carried(blocks, before, x, y, change) for x, y in movers)


def _carried(
    blocks: Blocks, before: Counter[Record], x: Record, y: Record, change: Counter[Record]
) -> bool:
    """Whether carriers make up the change when one person goes from x to y."""
    unexplained = Counter(change)
    unexplained[x] += 1
    unexplained[y] -= 1
    # The published totals that the person changes: each needs one carrier, and a carrier may serve
    # several.
    differ = []
    axes = len(blocks.structure.schema.features)
    for margin in blocks.margins:
        source = blocks.nodes(x[:axes], margin.view)
        target = blocks.nodes(y[:axes], margin.view)
        changed = []
        for axis, (source_node, target_node) in enumerate(zip(source, target, strict=True)):
            if source_node != target_node:
                changed.append(axis)
        if changed:
            differ.append((margin.view, target, changed))
    # A carrier leaves one place and takes another, so it accounts for two entries of the change.
    if _size(unexplained) > 2 * len(differ):
        return False
    bystanders = Counter(before)
    bystanders[x] -= 1
    for servers, carriers in servings(len(differ)):
        if None in servers:
            continue
        served: list[list[Any]] = [[] for _ in range(carriers)]
        for part, server in zip(differ, servers, strict=True):
            assert server is not None
            served[server].append(part)
        if _served(blocks, served, bystanders, x, unexplained, axes):
            return True
    return False


def _served(
    blocks: Blocks,
    served: list[list[Any]],
    bystanders: Counter[Record],
    x: Record,
    unexplained: Counter[Record],
    axes: int,
) -> bool:
    """Whether one record for each carrier, each taken once, makes up the unexplained change."""
    if not served:
        return not _size(unexplained)
    if _size(unexplained) > 2 * len(served):
        return False
    if len(served) == 1:
        # The last carrier must leave a place that the change says was left.
        candidates = [record for record, count in unexplained.items() if count < 0]
    else:
        candidates = list(bystanders)
    for record in candidates:
        if bystanders[record] < 1:
            continue
        leaf = record[:axes]
        if any(blocks.nodes(leaf, view) != target for view, target, _ in served[0]):
            continue
        moved = list(record)
        for _, _, changed in served[0]:
            for axis in changed:
                moved[axis] = x[axis]
        remaining = Counter(unexplained)
        remaining[record] += 1
        remaining[tuple(moved)] -= 1
        fewer = Counter(bystanders)
        fewer[record] -= 1
        if _served(blocks, served[1:], fewer, x, remaining, axes):
            return True
    return False


def _size(change: Counter[Record]) -> int:
    return sum(map(abs, change.values()))
