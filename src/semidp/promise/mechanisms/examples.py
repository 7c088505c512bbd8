"""A small space and table for the examples in docstrings; nothing else lives here."""

import numpy as np

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin


def two_way() -> tuple[QuerySpace, Table]:
    """Return a table of two sexes by three regions, and its sensitivity space under A_3 with both
    margins public.

    >>> space, table = two_way()
    >>> space.l1, space.l2_squared, space.dimension, table
    (4, 4, 2, Table(sex: 2 levels, region: 3 levels))
    """
    sex = Feature("sex", ("f", "m"))
    region = Feature("region", ("north", "south", "west"))
    counts = [[10, 20, 30], [15, 25, 35]]
    table = Table(Schema((sex, region)), np.array(counts))
    public = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    return sensitivity_space(public, Ball(3)), table
