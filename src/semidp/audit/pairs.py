"""The pair of tables that an audit compares: as far apart as the adjacency allows, built from public totals alone.

The confidential table is never seen here. How far tables can be apart is known to `queries`; filling a table up to
given totals is done by `fit`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.audit.rank_pairs import worst_histograms
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.counts import Table
from semidp.errors import InputError, Refused
from semidp.mechanisms.base import Mechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.queries.base import QuerySpace
from semidp.queries.products import ProductSpace
from semidp.statistics.quantiles.mechanism import ExponentialMechanism

Counts = NDArray[np.int64]

_MOST_MOVES = 500  # how many other moves are looked at where the worst one is not known, or does not fit the totals
_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class Pair:
    """Two values of a query that a mechanism promises to make hard to tell apart.

    Parameters
    ----------
    first, second
        The values that outputs lie around.
    precision
        One over the variance of the noise in each entry, where entries differ in it.
    unit
        What a step of outputs is worth in the numbers as they were given: a power of two.
    inputs
        What the mechanism is run on, where that is something else than outputs lie around: histograms for choices.

    Examples
    --------
    >>> pair = Pair([[1, 0], [0, 1]], [[0, 1], [1, 0]])
    >>> pair.move.tolist(), pair.records
    ([[-1, 1], [1, -1]], 2)
    """

    first: Counts = field(repr=False)
    second: Counts = field(repr=False)
    precision: NDArray[np.float64] | None = field(repr=False)
    unit: float
    inputs: tuple[Counts, Counts] = field(repr=False)

    def __init__(
        self,
        first: ArrayLike,
        second: ArrayLike,
        precision: NDArray[np.float64] | None = None,
        unit: float = 1.0,
        inputs: tuple[Counts, Counts] | None = None,
    ) -> None:
        one, other = np.array(first), np.array(second)
        if one.shape != other.shape or one.dtype.kind not in "iu" or other.dtype.kind not in "iu" or one.ndim == 0:
            raise InputError("a pair is two arrays of whole numbers of one shape, with at least one axis")
        if np.array_equal(one, other):
            raise InputError("the two tables of a pair are the same: there is nothing to tell apart")
        for name, value in (("first", one), ("second", other)):
            value = value.astype(np.int64)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "inputs", (self.first, self.second) if inputs is None else inputs)

    @property
    def move(self) -> Counts:
        """What turns the first into the second."""
        return self.second - self.first

    @property
    def direction(self) -> NDArray[np.float64]:
        """The direction in which Gaussian noise tells the two apart best: the move, entries by their precision."""
        pulled = self.move.ravel() * (1.0 if self.precision is None else self.precision.ravel())
        return np.asarray(pulled / np.linalg.norm(pulled))

    @property
    def records(self) -> int:
        """How many records of a table differ, or values of groups: the sum of what appears."""
        return int(np.maximum(self.inputs[1] - self.inputs[0], 0).sum())


def worst_pair(space: QuerySpace) -> Pair:
    """Return two tables of D_t that differ by the worst move of S_a, from the public totals alone.

    ``x' = x + m`` with m a move that attains Δ2 where one is known, and x a table with the published margins and at
    least as many records in each cell as m takes away.

    >>> from semidp.mechanisms.examples import two_way
    >>> space, _ = two_way()
    >>> pair = worst_pair(space)
    >>> int((pair.move**2).sum()) == space.l2_squared, pair.first.sum(axis=1).tolist()
    (True, [60, 75])
    """
    if space.is_zero:
        raise Refused("the published totals fix this table, so that there is no second table to compare it with")
    if not space.of_counts:  # every outcome at its lower bound, then a few at their upper one
        move = space.worst_move()
        if move is None:
            raise Refused("no worst pair of this query is known: audit the mechanism with a pair of your own")
        return Pair(np.zeros_like(move), move)
    public = space.released_space()
    for move in _candidates(space):
        first = _table_below(move, space, public)
        if first is not None:
            return Pair(first, first + move)
    raise Refused("no pair of tables with these totals was found: audit the mechanism with a pair of your own")


def pair_for(mechanism: Mechanism, adjacency: Adjacency | None = None) -> Pair:
    """Return the pair that an audit of a mechanism compares; for a product the move that costs most of its noise.

    It is a pair of the adjacency that the mechanism was calibrated for, unless another one is given.

    >>> from semidp.mechanisms.selection import choose
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> pair_for(choose(two_way()[0], Budget.gdp(1))).records
    2
    """
    space = mechanism.space if adjacency is None else mechanism.space.under(adjacency)
    if isinstance(mechanism, ExponentialMechanism):
        attacked = replace(mechanism, space=space)
        return choice_pair(attacked, *worst_histograms(attacked))
    if not isinstance(mechanism, ResidualMechanism) or not isinstance(space, ProductSpace) or space.is_zero:
        return worst_pair(space)
    move = space.worst_move(mechanism.sigma2)
    if move is None:
        raise Refused("no worst pair of these tables is known: audit the mechanism with a pair of your own")
    return Pair(np.zeros_like(move), move, 1 / mechanism.variances)


def choice_pair(mechanism: ExponentialMechanism, first: Counts, second: Counts) -> Pair:
    """Return the pair of two sets of histograms by group: choices lie around the quantiles.

    Where both have the same quantiles, the second is moved by a step: scores are sought between different values.
    """
    one, other = (_quantiles(mechanism, histograms) for histograms in (first, second))
    if np.array_equal(one, other):
        other[0] += 1 if other[0] < mechanism.ranked.outcome.steps else -1
    return Pair(one, other, inputs=(first, second))


def _quantiles(mechanism: ExponentialMechanism, histograms: Counts) -> Counts:
    """The value of the rank that each choice looks for, 0 or the last step where there is none."""
    ranks = mechanism.ranked.ranks(mechanism.rate)
    up_to = np.cumsum(histograms, axis=1)
    below = (up_to[:, None, :] < ranks[:, :, None]).sum(axis=2)
    return np.asarray(np.minimum(below, histograms.shape[1] - 1).ravel(), dtype=np.int64)


def _candidates(space: QuerySpace) -> Iterator[Counts]:
    """The worst move, then the first of the others, the longest first."""
    worst = space.worst_move()
    if worst is not None:
        yield worst
    others = list(islice(space.moves(), _MOST_MOVES))
    yield from sorted(others, key=lambda move: -int((move**2).sum()))


def _table_below(move: Counts, space: QuerySpace, public: Dataspace) -> Counts | None:
    """Return a table of the public totals that `move` leaves nonnegative: what it takes away, and a fit of the rest."""
    from semidp.fitting.tables import fit_table

    taken = np.maximum(-move, 0)
    schema = public.schema
    if schema.possible is not None and move[~schema.possible].any():
        return None
    try:
        gone = Table(schema, taken)
        rest = {
            margin: Table(total.schema, total.counts - gone.margin(margin.names).counts)
            for margin, total in zip(public.margins, public.totals, strict=True)
        }
        left = Dataspace.known(schema, rest, public.n - gone.n)
        counts = fit_table(space.fixed_part() - taken, left, time_limit=_SECONDS).counts
    except InputError:  # the totals hold fewer records than the move takes away
        return None
    return None if counts is None else counts + taken
