"""Query spaces: how far two values of a query can be apart while everything published stays.

`base` is the page to read first, `tables` the space of count tables; `norms` chooses among `patterns`, `moves` and
`bounds`, `exchange` has the norms of the other adjacency, `projection` is the subspace of the noise. `outcomes` has
sums and moments of a private outcome, `ranks` its quantiles, `routes` what a regression may measure, `products` several
tables measured together as `residuals`, whose prices are in `costs`.
"""

from semidp.queries.base import ExplicitSpace, MatrixForm, QuerySpace
from semidp.queries.bounds import Norms
from semidp.queries.designs import Coding, Column, Design
from semidp.queries.outcomes import (
    MomentSpace,
    SumSpace,
    moment_space,
    outcome_adjacency,
    outcome_exchange,
    query_space,
    sum_space,
)
from semidp.queries.products import NotTogether, ProductSpace, product_space
from semidp.queries.ranks import RankSpace, rank_space
from semidp.queries.routes import RouteSpace, moment_map, regression_routes, route_values
from semidp.queries.tables import TableSpace, sensitivity_space

__all__ = [
    "Coding",
    "Column",
    "Design",
    "ExplicitSpace",
    "MatrixForm",
    "MomentSpace",
    "Norms",
    "NotTogether",
    "ProductSpace",
    "QuerySpace",
    "RankSpace",
    "RouteSpace",
    "SumSpace",
    "TableSpace",
    "moment_map",
    "moment_space",
    "outcome_adjacency",
    "outcome_exchange",
    "product_space",
    "query_space",
    "rank_space",
    "regression_routes",
    "route_values",
    "sensitivity_space",
    "sum_space",
]
