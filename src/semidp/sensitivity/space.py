"""The sensitivity space of a table query: how far two tables can be apart while everything published stays.

`sensitivity_space` derives it from what is published (`Dataspace`) and how many records may differ (`Adjacency`); every
mechanism is calibrated from it. Noise lives in `noise`, the K-norm of the space's hull in `knorm`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.invariants import Adjacency, Dataspace
from semidp.invariants.structure import Axes
from semidp.sensitivity.bounds import ONE_RECORD, Norms, certified_norms
from semidp.sensitivity.explicit import ExplicitSpace
from semidp.sensitivity.projection import Mask, Projection, projection
from semidp.tables import Schema

Counts = NDArray[np.int64]


def sensitivity_space(
    dataspace: Dataspace, adjacency: Adjacency, released: Iterable[str] | None = None
) -> "SensitivitySpace":
    """Return S_a of the table over the `released` features.

    ``S = {φ(X) - φ(X') : X, X' in D_t, d(X, X') <= a}`` (Cho and Awan, Section 4.1). The parameter a is the one of all
    that is published; the shape of S comes from the margins that constrain the released table.

    Parameters
    ----------
    dataspace
        What is published, and its values.
    adjacency
        How many records may differ.
    released
        The features of the released table; all of them if left out.

    Examples
    --------
    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> table = Table(schema, [[1, 2, 3], [4, 5, 6]])
    >>> public = Dataspace.of(table, [Margin("sex"), Margin("region")])
    >>> space = sensitivity_space(public, Adjacency(3))
    >>> space.l1, space.l2_squared, space.linf, space.dimension, space.exact
    (4, 4, 1, 2, True)
    """
    if dataspace.schema is None or dataspace.n is None:
        raise InputError("a dataspace that is only described has no sensitivity space: give its schema and margins")
    names = dataspace.schema.names if released is None else tuple(released)
    if not names:
        raise InputError("a released table needs at least one feature")
    space = SensitivitySpace(dataspace, adjacency, dataspace.schema.restrict(names))
    if space.is_zero and space.dimension > 0:
        raise Refused(
            f"with a = {adjacency.a} no table can change although the published statistics do not fix it, so it would "
            f"be released exactly: give a larger a"
        )
    return space


@dataclass(frozen=True)
class SensitivitySpace:
    """S_a of a table of counts; build it with `sensitivity_space`."""

    dataspace: Dataspace
    adjacency: Adjacency
    schema: Schema

    from_vectors = ExplicitSpace

    @property
    def shape(self) -> Axes:
        """The shape of the released table."""
        return self.schema.shape

    @property
    def naive(self) -> Norms:
        """The norms of S_DP, one record: 2, 2 (squared) and 1. Group privacy multiplies them by a."""
        return ONE_RECORD

    @property
    def l1(self) -> int:
        """Δ1, the largest sum of absolute differences."""
        return self._found[0].l1

    @property
    def l2_squared(self) -> int:
        """Δ2², the largest sum of squared differences."""
        return self._found[0].l2_squared

    @property
    def l2(self) -> float:
        """Δ2, for display; calibration uses `l2_squared`, which is whole."""
        return math.sqrt(self.l2_squared)

    @property
    def linf(self) -> int:
        """Δ∞, the largest difference of one cell."""
        return self._found[0].linf

    @property
    def exact(self) -> bool:
        """Whether the three norms are attained; otherwise they are proven upper bounds."""
        return self._found[1]

    @property
    def is_zero(self) -> bool:
        """Whether S = {0}: the published statistics fix the whole table, which is then published exactly."""
        return self.l2_squared == 0

    @property
    def dimension(self) -> int:
        """The number of free directions of the table under the published margins."""
        return self._projection.dimension

    def project(self, values: ArrayLike) -> NDArray[np.float64]:
        """Project onto the tables with zero published margins, on the cells that can occur."""
        array = np.asarray(values)
        if array.shape != self.shape:
            raise InputError(f"the values have shape {array.shape}, but the table has shape {self.shape}")
        return self._projection.project(array)

    def fixed_part(self) -> NDArray[np.float64]:
        """Return (I - P) φ, the part of the table that the published statistics fix, from those alone."""
        return self._projection.fixed_part(self._values)

    def variances(self) -> NDArray[np.float64]:
        """Return the diagonal of P: the variance of each cell of projected unit noise."""
        return self._projection.variances()

    def variance_of(self, weights: ArrayLike) -> float:
        """Return w'Pw = |P w|²: the variance of the weighted sum of the cells of projected unit noise."""
        return float((self.project(weights) ** 2).sum())

    def worst_move(self) -> Counts | None:
        """Return an element of S that attains Δ2 where `exact`, one that approaches it where known, else None."""
        return self._found[2]

    def two_way(self) -> tuple[Axes, Axes] | None:
        """Return the row and column axes where exactly two disjoint margins are published and cover the table.

        A joint margin counts as one side. None also where a level, or a cell of a joint margin, is empty: `matrix`
        covers that case, and tables with one published side.
        """
        margins = self._margins
        if len(margins) != 2 or sorted(margins[0] + margins[1]) != list(range(len(self.shape))):
            return None
        return (margins[0], margins[1]) if self._domain is None else None

    # ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _visible(self) -> list[tuple[Axes, Counts]]:
        """The margins of the released table that follow from what is published: axes and values."""
        found: dict[Axes, Counts] = {}
        for margin in self.dataspace.margins:
            names = [name for name in margin.names if name in self.schema.names]
            value = self.dataspace.value(margin)
            found[self.schema.axes(names)] = value.margin(names).counts if names else _total(self)
        whole = [axes for axes in sorted(found) if not any(set(axes) < set(other) for other in found)]
        return [(axes, found[axes]) for axes in whole] or [((), _total(self))]

    @property
    def _margins(self) -> list[Axes]:
        return [axes for axes, _ in self._visible if axes]

    @property
    def _values(self) -> list[Counts]:
        return [values for _, values in self._visible]

    @cached_property
    def _domain(self) -> Mask | None:
        """The cells of the released table that can be positive, or None where all can."""
        mask: Any = True if self.schema.possible is None else self.schema.possible
        for axes, values in self._visible:
            if not values.all():
                sides = [size if axis in axes else 1 for axis, size in enumerate(self.shape)]
                mask = mask & (values > 0).reshape(sides)
        if mask is True:
            return None
        return np.ascontiguousarray(np.broadcast_to(mask, self.shape))

    @cached_property
    def _projection(self) -> Projection:
        return projection(self.shape, [axes for axes, _ in self._visible], self._domain)

    @cached_property
    def _found(self) -> tuple[Norms, bool, Counts | None]:
        return _norms(self)


def _total(space: SensitivitySpace) -> Counts:
    return np.array(space.dataspace.n, dtype=np.int64)


def _norms(space: SensitivitySpace) -> tuple[Norms, bool, Counts | None]:
    from semidp.sensitivity.patterns import LARGEST_A, BlockTable

    assert space.dataspace.n is not None
    a = min(space.adjacency.a, space.dataspace.n)
    counts = [space.shape[axis] for axis in range(len(space.shape))]
    for axes, values in space._visible:
        for place, axis in enumerate(axes):
            levels = values.sum(axis=tuple(i for i in range(values.ndim) if i != place))
            counts[axis] = min(counts[axis], int((levels > 0).sum()))
    features = [str(axis) for axis, count in enumerate(counts) if count > 1]
    margins = [frozenset(map(str, axes)) for axes in space._margins]
    upper = certified_norms(a, features, margins)
    blocks = BlockTable.of(space.shape, space._margins, [v for x, v in space._visible if x], space.dataspace.n)
    if blocks is not None and a <= LARGEST_A:
        norms, move = blocks.norms(a)
        return norms.least(upper), space.schema.possible is None, move
    return upper, False, None
