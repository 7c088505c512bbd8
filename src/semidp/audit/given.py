"""A pair of datasets that somebody gives for an audit: read, checked to be adjacent, and turned into pairs of values.

The two datasets are lists of records. Both must have the exact totals of the release, and they must be as close as its
promise says: at most a records apart, or one exchange. Any other pair could convict an honest mechanism.
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
from semidp.errors import DataError, InputError, Refused
from semidp.publishing.plan import Plan
from semidp.queries.worst_pairs import Pair
from semidp.sources.opening import open_source
from semidp.sources.reader import Reader

_MOST_PEOPLE = 2_000_000  # pairs of records that are tried as who moves from where to where
_NAMES = ("first", "second")

Record = tuple[Any, ...]
"""A leaf of every feature, then the values of the outcomes."""


def given_pairs(
    datasets: Sequence[Any], claims: Sequence[Claim], plan: Plan, scope: Scope, adjacency: Adjacency | None = None
) -> list[Pair | None]:
    """Return the pair of values of each claim on two datasets, None where they have the same.

    Parameters
    ----------
    datasets
        The two datasets, each a list of records: mappings with a value for every column that the plan reads.
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
        If the datasets have other totals than are published, are not adjacent, or change nothing that was measured.
    """
    first, second = (_Dataset.of(records, plan, scope, name) for records, name in zip(datasets, _NAMES, strict=True))
    values = []
    for dataset in (first, second):
        with dataset.reader(plan, scope) as reader:
            dataset.check_totals(reader, scope)
            asked = zip(plan.requests, claims, strict=True)
            values.append([request.read(reader, scope, claim.mechanism.space) for request, claim in asked])
    _check_adjacent(first, second, adjacency or scope.adjacency, scope)
    pairs = [_pair(claim, *found) for claim, *found in zip(claims, *values, strict=True)]
    if not any(pairs):
        raise Refused("the two datasets of the pair give the same measured values: there is nothing to tell apart")
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
        wanted = [*(depth for feature in schema.features for depth in feature.names), *plan.outcomes]
        if not isinstance(records, list) or not all(isinstance(record, Mapping) for record in records):
            raise InputError(
                f"the {name} dataset of the pair is not a list of records: write each as an object with a value for "
                f"{', '.join(wanted)}"
            )
        for column in wanted:
            if any(column not in record for record in records):
                raise InputError(f"a record of the {name} dataset of the pair has no value for {column!r}: give one")
        columns = {column: [record[column] for record in records] for column in wanted}
        parts: list[list[Any]] = []
        for feature in schema.features:
            if len(feature.names) == 1:
                parts.append(feature.codes(np.array(columns[feature.name], dtype=object)).tolist())
                continue
            leaves = {path: leaf for leaf, path in enumerate(feature.paths())}
            paths = zip(*(map(str, columns[depth]) for depth in feature.names), strict=True)
            found = [leaves.get(path, -1) for path in paths]
            if -1 in found:
                raise DataError(
                    f"the {name} dataset of the pair has a value of {feature.name!r} that the release does not know"
                )
            parts.append(found)
        parts += [[_number(value, column, name) for value in columns[column]] for column in plan.outcomes]
        return cls(name, columns, tuple(zip(*parts, strict=True)))

    @contextlib.contextmanager
    def reader(self, plan: Plan, scope: Scope) -> Iterator[Reader]:
        """Yield a reader of the dataset with the schema of the release."""
        columns = {name: np.array(values) for name, values in self.columns.items()}
        with open_source(columns) as source:
            yield Reader(scope.dataspace.schema, source, plan.features)

    def check_totals(self, reader: Reader, scope: Scope) -> None:
        """Refuse a dataset that has other exact totals than the release."""
        public = scope.dataspace
        if len(self.records) != public.n:
            raise Refused(f"the {self.name} dataset of the pair has another number of records than the release")
        found = reader.tables(margin.names for margin in public.margins)
        for margin, total, own in zip(public.margins, public.totals, found, strict=True):
            if own != total:
                raise Refused(
                    f"the {self.name} dataset of the pair has other totals of {margin} than the release publishes: "
                    "give two datasets with the published totals"
                )


def _number(value: Any, column: str, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"the {name} dataset of the pair has a value of {column!r} that is not a number") from None


def _check_adjacent(first: _Dataset, second: _Dataset, adjacency: Adjacency, scope: Scope) -> None:
    one, other = Counter(first.records), Counter(second.records)
    apart = sum((one - other).values())
    if isinstance(adjacency, Exchange):
        blocks = Blocks.of(scope.dataspace)
        if apart > blocks.count + 1 or not (_arises(blocks, one, other) or _arises(blocks, other, one)):
            raise Refused(
                "the two datasets of the pair are not one exchange apart: one person may go anywhere, and for each "
                "published total that it changes one other record takes its place"
            )
    elif apart > adjacency.a:
        raise Refused(
            f"the two datasets of the pair differ in {apart:,} records, and the release is about {adjacency}: give two "
            "that are no farther apart"
        )


def _arises(blocks: Blocks, before: Counter[Record], after: Counter[Record]) -> bool:
    """Whether one person and its carriers turn one multiset of records into the other, by the definition in `Blocks`.

    Who moves is first sought among the records that differ. Where somebody else takes the very place that the person
    leaves, or leaves the one that it takes, all records are tried, unless they are too many.
    """
    gone, new = before - after, after - before
    if not gone:
        return True
    change = Counter(after)
    change.subtract(before)
    if any(_carried(blocks, before, x, y, change) for x, y in product(gone, new)):
        return True
    if len(before) * len(after) > _MOST_PEOPLE:
        return False
    return any(_carried(blocks, before, x, y, change) for x, y in product(before, after))


def _carried(blocks: Blocks, before: Counter[Record], x: Record, y: Record, change: Counter[Record]) -> bool:
    """Whether carriers make up the change when one person goes from x to y."""
    left = Counter(change)
    left[x] += 1
    left[y] -= 1
    differ = []
    axes = len(blocks.structure.schema.features)
    for margin in blocks.margins:
        here, there = (blocks.nodes(record[:axes], margin.view) for record in (x, y))
        changed = [axis for axis, nodes in enumerate(zip(here, there, strict=True)) if nodes[0] != nodes[1]]
        if changed:
            differ.append((margin.view, there, changed))
    if _size(left) > 2 * len(differ):  # a carrier accounts for two
        return False
    others = Counter(before)
    others[x] -= 1
    for servers, carriers in servings(len(differ)):
        if None in servers:
            continue
        served = [[part for part, server in zip(differ, servers, strict=True) if server == k] for k in range(carriers)]
        if _served(blocks, served, others, x, left, axes):
            return True
    return False


def _served(
    blocks: Blocks, served: list[list[Any]], others: Counter[Record], x: Record, left: Counter[Record], axes: int
) -> bool:
    """Whether one record for each carrier, each taken once, makes up what is left of the change."""
    if not served:
        return not _size(left)
    if _size(left) > 2 * len(served):
        return False
    candidates = [record for record, count in left.items() if count < 0] if len(served) == 1 else list(others)
    for record in candidates:
        if others[record] < 1 or any(blocks.nodes(record[:axes], view) != there for view, there, _ in served[0]):
            continue
        moved = list(record)
        for _, _, changed in served[0]:
            for axis in changed:
                moved[axis] = x[axis]
        rest, fewer = Counter(left), Counter(others)
        rest[record] += 1
        rest[tuple(moved)] -= 1
        fewer[record] -= 1
        if _served(blocks, served[1:], fewer, x, rest, axes):
            return True
    return False


def _size(change: Counter[Record]) -> int:
    return sum(map(abs, change.values()))
