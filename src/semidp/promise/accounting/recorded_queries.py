"""Recorded measurements, recomputed: a record states its query and its noise, and both have
another curve under other exact statistics.

`QUERIES` maps each kind of recorded query to its space and to the mechanisms that measure
it.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import frozen

from semidp.errors import InputError, Refused, SemidpError
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, recorded_cell
from semidp.promise.mechanisms.exponential import EXPONENTIAL, recorded_ranks
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import Mechanism, NoNoise
from semidp.promise.mechanisms.residual_noise import ResidualNoise
from semidp.promise.sensitivity.answered_space import recorded_answered
from semidp.promise.sensitivity.distribution_space import recorded_distribution
from semidp.promise.sensitivity.linked_products import recorded_linked
from semidp.promise.sensitivity.moments import recorded_moments
from semidp.promise.sensitivity.outcome_spaces import recorded_sums
from semidp.promise.sensitivity.products import recorded_product
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import recorded_table
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets

Read = TypeVar("Read")

QueryReader = Callable[[Mapping[str, Any], Datasets, Adjacency], QuerySpace]
"""Reads what `QuerySpace.query` wrote, under any exact statistics and adjacency."""

FOR_RELEASES: tuple[type[Mechanism], ...] = (
    RoundedGaussianMechanism,
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    KNormMechanism,
    L2Mechanism,
    LatticeGaussianMechanism,
)
"""The candidate mechanisms of a release; ties go to the first."""

ADDITIVE: tuple[type[Mechanism], ...] = (*FOR_RELEASES, ResidualNoise)
"""The laws of additive noise, which measure most queries."""


@frozen
class RecordedQuery:
    """How a kind of recorded query is read, and the mechanisms that measure it."""

    read: QueryReader
    laws: tuple[type[Mechanism], ...] = ADDITIVE

    @property
    def recorded_laws(self) -> tuple[type[Mechanism], ...]:
        """The mechanisms that a record may name: those for the query, or no noise at all."""
        return (*self.laws, NoNoise)


_TABLE_LAWS: tuple[type[Mechanism], ...] = (*ADDITIVE, LinkedNoise)

QUERIES: dict[str, RecordedQuery] = {
    "table": RecordedQuery(recorded_table, _TABLE_LAWS),
    "product": RecordedQuery(recorded_product, _TABLE_LAWS),
    "linked": RecordedQuery(recorded_linked, _TABLE_LAWS),
    "sums": RecordedQuery(recorded_sums),
    "answered": RecordedQuery(recorded_answered),
    "moments": RecordedQuery(recorded_moments),
    "quantiles": RecordedQuery(recorded_ranks, tuple(EXPONENTIAL)),
    "distribution": RecordedQuery(recorded_distribution),
    "cell": RecordedQuery(recorded_cell, (CanonicalMechanism,)),
}
"""Recorded queries by their kind; a statistic outside this package adds its own."""


def query_space(query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency) -> QuerySpace:
    """Return the space of a query that `QuerySpace.query` wrote, under any exact statistics and
    adjacency.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.spaces.dataspace import Margin, Dataspace
    >>> from semidp.promise.schema.outcome import Outcome
    >>> from semidp.promise.sensitivity.outcome_spaces import sum_space
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = sum_space(public, Ball(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> query_space(space.query(), public, Ball(1)).l2
    100.0
    >>> query_space({"kind": "opinion"}, public, Ball(1))
    Traceback (most recent call last):
    semidp.errors.Refused: this version of semidp knows no query 'opinion': it cannot be recomputed
    """
    reader = _find_query(query).read
    return _read_record(f"a query of {query['kind']}", lambda: reader(query, dataspace, adjacency))


def _read_record(what: str, read: Callable[[], Read]) -> Read:
    """Return what a record holds; refuse one that cannot be read."""
    try:
        return read()
    except SemidpError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"the record of {what} is damaged: it cannot be recomputed") from None


def _find_query(query: Mapping[str, Any]) -> RecordedQuery:
    """Return how a recorded query is read."""
    name = str(query.get("kind"))
    if name not in QUERIES:
        raise Refused(f"this version of semidp knows no query {name!r}: it cannot be recomputed")
    return QUERIES[name]


def mechanism_from_record(
    record: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> Mechanism:
    """Return the mechanism of a record under any exact statistics and adjacency.

    The noise is added to the query whatever is exact, and its curve follows from its scale and from
    the norms of the query space: ``ρ = Δ2²/2σ²``, ``μ = Δ2/σ``, ``ε = Δ1/b`` and, with the l2
    mechanism, ``ε = Δ2/b``; for noise on residuals ``μ² = 2ρ = sup Σ |r|²/σ²``, and for choices of
    quantiles what their rate gives. Noise that lives on the tables with zero margins (lattice, l2)
    protects only what those margins do not publish, so the new statistics must include the
    old. K-norm noise has the shape of one space and is known under no other.

    Parameters
    ----------
    record
        What `Mechanism.record` returned.
    dataspace, adjacency
        Under which the mechanism is wanted; for noise with zero margins, within the dataspace of
        the record.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.mechanisms.additive import LaplaceMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> space, _ = two_way()
    >>> record = LaplaceMechanism.calibrate(space, Budget.pure(1)).record()
    >>> record["noise"]
    {'law': 'laplace', 'b': '4'}
    >>> mechanism_from_record(record, space.dataspace, Ball(2)).tradeoff.epsilon(0)
    1.0
    """
    query, noise = record.get("query"), record.get("noise")
    if not isinstance(query, Mapping) or not isinstance(noise, Mapping):
        raise Refused("the query of this measurement was not recorded: it cannot be recomputed")
    name = noise.get("law")
    laws = {law for each in QUERIES.values() for law in each.recorded_laws if law.known_elsewhere}
    if not any(law.name == name for law in laws):
        raise Refused(f"{name} noise cannot be accounted for under further exact totals")
    space = query_space(query, dataspace, adjacency)

    def read_noise() -> Mechanism:
        # A law that does not measure queries of this kind contradicts the record.
        named = {law.name: law for law in _find_query(query).recorded_laws}
        return named[str(name)].from_record(space, noise)

    return _read_record(f"{name} noise", read_noise)
