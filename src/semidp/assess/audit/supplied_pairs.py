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
from typing import Any

import numpy as np

from semidp.assess.audit.claims import Claim
from semidp.assess.audit.exchange_chains import Record, is_reachable
from semidp.errors import DataError, InputError, Refused
from semidp.promise.schema.features import Feature
from semidp.promise.scope import Scope
from semidp.promise.sensitivity.worst_pairs import Pair
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.publish.plan import Plan
from semidp.publish.sources.opening import open_source
from semidp.publish.sources.reader import Reader


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
    first = _Dataset.from_records(datasets[0], plan, scope, "first")
    second = _Dataset.from_records(datasets[1], plan, scope, "second")
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
    if np.array_equal(first, second) or claim.is_fixed:
        return None
    return claim.mechanism.make_pair(first, second)


@dataclass(frozen=True)
class _Dataset:
    """A dataset by its columns, and its records as leaves and outcomes."""

    name: str
    columns: Mapping[str, list[Any]]
    records: tuple[Record, ...]

    @classmethod
    def from_records(cls, records: Any, plan: Plan, scope: Scope, name: str) -> "_Dataset":
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
    check = adjacency.by_kind(ball=_check_records, exchange=_check_exchanges)
    check(one, other, adjacency, scope)


def _check_records(
    one: Counter[Record], other: Counter[Record], adjacency: Adjacency, scope: Scope
) -> None:
    """Refuse two datasets that differ in more records than are protected together."""
    apart = sum((one - other).values())
    if apart > adjacency.a:
        raise Refused(
            f"the two datasets of the pair differ in {apart:,} records, and the release is about"
            f" {adjacency}: give two that are no farther apart"
        )


def _check_exchanges(
    one: Counter[Record], other: Counter[Record], adjacency: Adjacency, scope: Scope
) -> None:
    """Refuse two datasets that the exchanges of one person do not join."""
    if not is_reachable(Blocks.from_dataspace(scope.dataspace), one, other, adjacency.most_moves):
        raise Refused(_not_exchanges(adjacency))


def _not_exchanges(adjacency: Adjacency) -> str:
    """Say that two datasets are not as close as exchanges are."""
    if adjacency.times == 1:
        return (
            "the two datasets of the pair are not one exchange apart: one person may go anywhere,"
            " and for each published total that it changes one other record takes its place"
        )
    return (
        f"the two datasets of the pair were not found to be {adjacency.times} exchanges apart, one"
        f" for each record of {adjacency.words.who}: a record may go anywhere, and for each"
        " published total that it changes one other record takes its place"
    )
