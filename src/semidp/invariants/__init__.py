"""What is published exactly, the datasets that are left, and how many records must move together there.

`spaces` holds the values (Margin, Dataspace, Adjacency), `semi` computes the semi-adjacent parameter a(t), `bound`
bounds it over all t, `structure` says how margins hang together; `slices`, `cover` and `fiber` count. Norms of
differences live in `sensitivity`.
"""

from semidp.invariants.bound import semi_adjacency_bound
from semidp.invariants.semi import SemiAdjacency, semi_adjacency
from semidp.invariants.spaces import Adjacency, Dataspace, Margin, normalised
from semidp.invariants.witness import Witness

__all__ = [
    "Adjacency",
    "Dataspace",
    "Margin",
    "SemiAdjacency",
    "Witness",
    "normalised",
    "semi_adjacency",
    "semi_adjacency_bound",
]
