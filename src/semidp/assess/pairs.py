"""A `Pair` is two values of a query that an audit compares; what each mechanism and query makes of
two datasets.
"""

from functools import singledispatch

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.promise.exact import count_noun
from semidp.promise.mechanisms.canonical_cell import CellSpace
from semidp.promise.mechanisms.exponential import ExponentialMechanism, RankSpace
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.margins import Counts
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.outcome_spaces import OutcomeSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.publish.residual_mechanism import SharedNoise

_NO_PAIR = "a pair is two arrays of whole numbers of one shape, with at least one axis"


def _read_values(values: ArrayLike) -> Counts:
    array = np.array(values)
    if array.dtype.kind not in "iu" or array.ndim == 0:
        raise InputError(_NO_PAIR)
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


@frozen(eq=False)
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
    share
        How much of the claimed bound the pair is known to cost: 1 unless the bound is not attained.
    differing_records
        How many records differ, in words; empty where only the space of the query can say it.

    Examples
    --------
    >>> pair = Pair([[1, 0], [0, 1]], [[0, 1], [1, 0]])
    >>> pair.move.tolist(), pair.records
    ([[-1, 1], [1, -1]], 2)
    """

    first: Counts = field(converter=_read_values, repr=False)
    second: Counts = field(converter=_read_values, repr=False)
    precision: NDArray[np.float64] | None = field(default=None, repr=False)
    unit: float = 1.0
    inputs: tuple[Counts, Counts] = field(repr=False)
    share: float = 1.0
    differing_records: str = ""

    @inputs.default
    def _run_on_values(self) -> tuple[Counts, Counts]:
        return self.first, self.second

    def __attrs_post_init__(self) -> None:
        if self.first.shape != self.second.shape:
            raise InputError(_NO_PAIR)
        if np.array_equal(self.first, self.second):
            raise InputError(
                "the two tables of a pair are the same: there is nothing to tell apart"
            )

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


@singledispatch
def make_pair(mechanism: Mechanism, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Return the pair of two values that a mechanism measures."""
    return Pair(first, second)


@make_pair.register
def _(mechanism: SharedNoise, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Two vectors of residuals, with the precision of the noise in each entry."""
    return Pair(first, second, 1 / mechanism.entry_variances)


@make_pair.register
def _(mechanism: ExponentialMechanism, first: NDArray[np.int64], second: NDArray[np.int64]) -> Pair:
    """Two sets of histograms by group: choices lie around the quantiles.

    Where both have the same quantiles, the second is moved by a step: scores are sought between
    different values.
    """
    one, other = _find_quantiles(mechanism, first), _find_quantiles(mechanism, second)
    if np.array_equal(one, other):
        at_end = other[0] >= mechanism.rank_space.outcome.steps
        other[0] += -1 if at_end else 1
    return Pair(one, other, inputs=(first, second))


def _find_quantiles(
    mechanism: ExponentialMechanism, histograms: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the value of the rank that each choice looks for, 0 or the last step where there is
    none.
    """
    ranks = mechanism.rank_space.ranks(mechanism.rate)
    up_to = np.cumsum(histograms, axis=1)
    below = (up_to[:, None, :] < ranks[:, :, None]).sum(axis=2)
    last = histograms.shape[1] - 1
    return np.asarray(np.minimum(below, last).ravel(), dtype=np.int64)


@singledispatch
def describe_difference(space: QuerySpace, pair: Pair) -> str:
    """Say how much two datasets differ that have the values of a pair."""
    return f"{count_noun(pair.records, 'unit')} ({count_noun(pair.entries, 'value')})"


@describe_difference.register
def _(space: TableSpace, pair: Pair) -> str:
    return f"{count_noun(pair.records, 'record')} ({count_noun(pair.entries, 'cell')})"


@describe_difference.register
def _(space: OutcomeSpace, pair: Pair) -> str:
    return f"{count_noun(pair.records, 'step')} of the grid ({count_noun(pair.entries, 'sum')})"


@describe_difference.register
def _(space: RankSpace, pair: Pair) -> str:
    one, other = pair.inputs
    groups = int((one != other).any(axis=1).sum())
    return f"{count_noun(pair.records, 'value')} of {count_noun(groups, 'group')}"


@describe_difference.register
def _(space: DistributionSpace, pair: Pair) -> str:
    return f"{count_noun(pair.entries, 'difference')} of halves"


@describe_difference.register
def _(space: ProductSpace | LinkedSpace, pair: Pair) -> str:
    return f"{pair.entries} measured entries of all tables together"


@describe_difference.register
def _(space: CellSpace, pair: Pair) -> str:
    return f"{abs(int(pair.move.sum()))} in x11"
