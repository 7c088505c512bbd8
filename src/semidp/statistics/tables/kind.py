"""Tables, as the registry finds them."""

from collections.abc import Mapping
from typing import Any

from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace
from semidp.errors import Refused
from semidp.queries.base import QuerySpace
from semidp.queries.products import product_space
from semidp.queries.tables import sensitivity_space
from semidp.statistics.protocol import Kind
from semidp.statistics.tables.request import TableRequest


def _table_space(query: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> QuerySpace:
    return sensitivity_space(dataspace, adjacency, query["features"])


def _product_space(query: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency) -> QuerySpace:
    space = product_space(dataspace, adjacency, query["tables"])
    if space.query() != query:
        raise Refused("other levels can hold a record here, over which residuals are centred otherwise")
    return space


KIND = Kind(
    place=0,
    requests={"table": TableRequest},
    queries={"table": _table_space, "product": _product_space},
    further_lists=("products",),
)
