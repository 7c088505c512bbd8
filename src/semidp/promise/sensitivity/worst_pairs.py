"""Pairs of query values that an audit compares: as far apart as the adjacency allows, built from
public totals alone.

The confidential table is never seen here. How far tables can be apart is known to their spaces;
filling a table up to given totals is done by `fitting`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import Counts, Floats
from semidp.promise.spaces.dataspace import Dataspace

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
        What the mechanism is run on, where that is something else than outputs lie around:
        histograms for choices.

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
        if (
            one.shape != other.shape
            or one.dtype.kind not in "iu"
            or other.dtype.kind not in "iu"
            or one.ndim == 0
        ):
            raise InputError(
                "a pair is two arrays of whole numbers of one shape, with at least one axis"
            )
        if np.array_equal(one, other):
            raise InputError(
                "the two tables of a pair are the same: there is nothing to tell apart"
            )
        for name, value in (("first", one), ("second", other)):
            value = value.astype(np.int64)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "inputs", (self.first, self.second) if inputs is None else inputs)

    @property
    def share(self) -> float:
        """Share of the claimed bound that the pair is known to cost: 1 unless the bound is not
        attained.
        """
        return 1.0

    @property
    def move(self) -> Counts:
        """What turns the first into the second."""
        return self.second - self.first

    @property
    def entries(self) -> int:
        """How many entries of the two values differ."""
        return int((self.move != 0).sum())

    @property
    def direction(self) -> NDArray[np.float64]:
        """Direction in which Gaussian noise tells the two values apart best: the move, each entry
        times its precision.
        """
        pulled = self.move.ravel() * (1.0 if self.precision is None else self.precision.ravel())
        return np.asarray(pulled / np.linalg.norm(pulled))

    @property
    def records(self) -> int:
        """How many records of a table, or values of groups, differ: the sum of what appears."""
        return int(np.maximum(self.inputs[1] - self.inputs[0], 0).sum())


def table_pair(moves: Iterable[Counts], public: Dataspace, fixed: Floats) -> Pair | None:
    """Return two tables with the published totals that differ by the first move that these can
    hold; None where they hold none.

    Parameters
    ----------
    moves
        Differences of two tables, the worst first.
    public
        What is published about the tables.
    fixed
        The part of the tables that is published: others are sought near it.
    """
    for move in moves:
        first = _table_below(move, public, fixed)
        if first is not None:
            return Pair(first, first + move)
    return None


def _table_below(move: Counts, public: Dataspace, fixed: Floats) -> Counts | None:
    """Return a table with the public totals that stays nonnegative after `move`: the records that
    it takes away, and a fit of all others.
    """
    # A solver stands behind it, which only an audit needs.
    from semidp.publish.fitting.tables import fit_table

    taken = np.maximum(-move, 0)
    schema = public.schema
    if schema.possible is not None and move[~schema.possible].any():
        return None
    try:
        gone = Table(schema, taken)
        totals = {}
        for margin, total in zip(public.margins, public.totals, strict=True):
            totals[margin] = Table(total.schema, total.counts - gone.margin(margin.names).counts)
        left = Dataspace.from_totals(schema, totals, public.n - gone.n)
        counts = fit_table(fixed - taken, left, time_limit=_SECONDS).counts
    except InputError:  # the totals hold fewer records than the move takes away
        return None
    return None if counts is None else counts + taken
