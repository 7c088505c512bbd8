"""What is published exactly, the datasets that are left, and how many records must move together there.

`dataspace` holds Margin and Dataspace, `structure` how margins hang together, `adjacency` which datasets are compared
and a(t), `exchange` the second kind of adjacency; `cover`, `graver`, `listing` and `witness` count and show,
`unknown_totals` is for statistics that are known by name alone. Norms of differences are in `queries`.
"""

from semidp.spaces.adjacency import (
    Adjacency,
    AdjacencyKind,
    SemiAdjacency,
    exchange_bound,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.spaces.dataspace import Dataspace, Margin, normalised
from semidp.spaces.unknown_totals import even_space, widest_space
from semidp.spaces.witness import Witness

__all__ = [
    "Adjacency",
    "AdjacencyKind",
    "Dataspace",
    "Margin",
    "SemiAdjacency",
    "Witness",
    "even_space",
    "exchange_bound",
    "normalised",
    "semi_adjacency",
    "semi_adjacency_bound",
    "widest_space",
]
