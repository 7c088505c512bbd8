"""Adjacency of records that also carry a private outcome, which nothing publishes."""

from semidp.promise.spaces.adjacency import Ball, Exchange, semi_adjacency
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.protection import Protection


def outcome_adjacency(dataspace: Dataspace, protection: Protection | None = None) -> Ball:
    """Return A_a(t) for records that carry an unpublished outcome.

    Changing only y needs one record, and a record that changes its features needs as many others as
    it would without y, which keep theirs. So a(t) is that of the published margins, and at least 1
    where there is a record; for a person with several records, at least as many as these.

    >>> from semidp import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> one_group = Table(Schema([Feature("ward", ["a"])]), [5])
    >>> outcome_adjacency(Dataspace.from_table(one_group, [Margin("ward")]))
    Ball(a=1)
    """
    alone = min(1 if protection is None else protection.times, dataspace.n)
    return Ball(max(semi_adjacency(dataspace, protection).bound, alone), protection)


def outcome_exchange(dataspace: Dataspace, protection: Protection | None = None) -> Exchange:
    """Return exchange adjacency for records that carry an unpublished outcome: y can change alone.

    >>> from semidp import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [5, 4])
    >>> outcome_exchange(Dataspace.from_table(wards, [Margin("ward")]))
    Exchange(a=2)
    """
    exchange = Exchange.from_dataspace(dataspace, protection)
    return Exchange(max(exchange.a, exchange.times if dataspace.n else 0), protection)
