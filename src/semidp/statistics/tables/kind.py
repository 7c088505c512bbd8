"""Tables, as the registry finds them."""

from collections.abc import Mapping
from typing import Any

from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Datasets
from semidp.errors import Refused
from semidp.output.cells import StoredFiles
from semidp.queries.products import product_space
from semidp.queries.query_space import QuerySpace
from semidp.queries.table_spaces import sensitivity_space
from semidp.statistics.protocol import Kind
from semidp.statistics.tables.published import PublishedProduct, PublishedTable
from semidp.statistics.tables.request import (
    PLAN_KEYS,
    TableRequest,
    TablesRequest,
    gathered,
    read_tables,
    write_tables,
)


def _table_space(query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency) -> QuerySpace:
    return sensitivity_space(dataspace, adjacency, query["features"])


def _product_space(query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency) -> QuerySpace:
    space = product_space(dataspace, adjacency, query["tables"])
    if not space.answers(query):
        raise Refused("other levels can hold a record here, over which residuals are centred otherwise")
    return space


def _read_table(entry: Mapping[str, Any], request: Any, scope: Scope, files: StoredFiles) -> PublishedTable:
    if not isinstance(request, TablesRequest) or not request.alone:
        raise ValueError("a table is published of a request for one")
    return PublishedTable.from_json(entry, scope, files)


def _read_product(entry: Mapping[str, Any], request: Any, scope: Scope, files: StoredFiles) -> PublishedProduct:
    if not isinstance(request, TablesRequest) or request.alone:
        raise ValueError("tables that share a budget are published of a request for several")
    return PublishedProduct.from_json(entry, request, scope, files)


KIND = Kind(
    place=0,
    key="table",
    asked=(TableRequest, TablesRequest),
    queries={"table": _table_space, "product": _product_space},
    results={PublishedTable.key: _read_table, PublishedProduct.key: _read_product},
    always_listed=(PublishedTable.key,),
    plan_keys=PLAN_KEYS,
    gather=gathered,
    read_plan=read_tables,
    write_plan=write_tables,
)
