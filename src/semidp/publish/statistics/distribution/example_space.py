"""A small space that doctests share."""

from semidp.promise.schema.counts import Table
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    distribution_space,
)
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin


def two_wards(steps: int, adjacency: Adjacency | None = None) -> DistributionSpace:
    """Return the distribution of a score from 0 to `steps` in two wards of 30 and 20 people, any
    two records moving.

    >>> two_wards(steps=7).shape
    (14,)
    """
    schema = Schema([Feature("ward", ["a", "b"])])
    wards = Table(schema, [30, 20])
    public = Dataspace.from_table(wards, [Margin("ward")])
    outcome = Outcome("score", 0, steps, steps)
    return distribution_space(public, adjacency or Ball(2), outcome, [Margin("ward")])
