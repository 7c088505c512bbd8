"""The pair of datasets that an audit compares: asked of the mechanism, which asks its query
space.
"""

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.worst_pairs import Pair
from semidp.promise.spaces.adjacency import Adjacency


def worst_pair(space: QuerySpace) -> Pair:
    """Return two tables of D_t that differ by the worst move of S_a, from the public totals alone.

    ``x' = x + m`` with m a move that attains Δ2 where one is known, and x a table with the
    published margins and at least as many records in each cell as m takes away.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, _ = two_way()
    >>> pair = worst_pair(space)
    >>> int((pair.move**2).sum()) == space.l2_squared, pair.first.sum(axis=1).tolist()
    (True, [60, 75])
    """
    return space.worst_pair()


def choose_pair(mechanism: Mechanism, adjacency: Adjacency | None = None) -> Pair:
    """Return the pair that an audit of a mechanism compares; for a product the move that costs most
    of its noise.

    It is a pair of the adjacency that the mechanism was calibrated for, unless another one is
    given.

    >>> from semidp.promise.mechanisms.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> choose_pair(choose(two_way()[0], Budget.gdp(1))).records
    2
    """
    space = mechanism.space
    if adjacency is not None:
        space = space.under(adjacency)
    return mechanism.worst_pair(space)
