"""The sensitivity space of a table query: how far two tables can be apart while everything published stays.

`sensitivity_space` derives it from what is published (`Dataspace`) and how many records may differ (`Adjacency`); every
mechanism is calibrated from it. Noise lives in `noise`, the K-norm of the space's hull in `knorm`.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.invariants import Adjacency, Dataspace
from semidp.invariants.structure import LARGEST_MASK, Axes, Published
from semidp.sensitivity.bounds import ONE_RECORD, Norms
from semidp.sensitivity.explicit import ExplicitSpace
from semidp.sensitivity.listing import Listing, moves
from semidp.sensitivity.norms import Found, Question, find_norms
from semidp.sensitivity.projection import FixedTable, Mask, Projection, projection
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


@dataclass(frozen=True, eq=False)
class MatrixForm:
    """A table as a matrix of the cells that can occur: published rows, and columns that are published or free.

    ``table.ravel()[form.cells]`` is the matrix; assigning to ``table.ravel()[form.cells]`` puts it back.
    """

    cells: NDArray[np.intp] = field(repr=False)
    columns_published: bool


@dataclass(frozen=True)
class SensitivitySpace:
    """S_a of a table of counts; build it with `sensitivity_space`.

    Examples
    --------
    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]])
    >>> space = sensitivity_space(Dataspace.of(table, [Margin("sex"), Margin("region")]), Adjacency(3))
    >>> space.side_by_side()["S_Semi"], space.side_by_side()["S_Group"]
    (Norms(l1=4, l2_squared=4, linf=1), Norms(l1=6, l2_squared=18, linf=3))
    >>> len(list(space.moves())), space.matrix().cells.shape
    (6, (2, 3))
    >>> bool(np.allclose(space.project(table.counts) + space.fixed_part(), table.counts))
    True
    """

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
        return self._found.norms.l1

    @property
    def l2_squared(self) -> int:
        """Δ2², the largest sum of squared differences."""
        return self._found.norms.l2_squared

    @property
    def l2(self) -> float:
        """Δ2, for display; calibration uses `l2_squared`, which is whole."""
        return math.sqrt(self.l2_squared)

    @property
    def linf(self) -> int:
        """Δ∞, the largest difference of one cell."""
        return self._found.norms.linf

    @property
    def exact(self) -> bool:
        """Whether the three norms are attained; otherwise they are proven upper bounds."""
        return self._found.exact

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
        margins = self._question.visible
        total = np.array(self.dataspace.n, dtype=np.int64)
        return self._projection.fixed_part([margin.counts for margin in margins] or [total])

    def variances(self) -> NDArray[np.float64]:
        """Return the diagonal of P: the variance of each cell of projected unit noise."""
        return self._projection.variances()

    def variance_of(self, weights: ArrayLike) -> float:
        """Return w'Pw = |P w|²: the variance of the weighted sum of the cells of projected unit noise."""
        return float((self.project(weights) ** 2).sum())

    def worst_move(self) -> Counts | None:
        """Return an element of S that attains Δ2 where `exact`, one that approaches it where known, else None."""
        return self._found.move

    @property
    def method(self) -> str:
        """How the norms were found."""
        return self._found.method

    def side_by_side(self) -> dict[str, Norms]:
        """Return the norms of S_DP (one record), S_Group (any a records) and S_Semi (a records, margins kept)."""
        return {"S_DP": ONE_RECORD, "S_Group": ONE_RECORD.scaled(self.adjacency.a), "S_Semi": self._found.norms}

    def moves(self) -> Iterator[Counts]:
        """Iterate over the elements of S without zero, lazily: four-cell moves first, then three-cycles, and so on."""
        question = self._question
        if question.lifts and question.structure.decomposable:
            margins = [margin.axes for margin in question.visible]
            values = [margin.counts for margin in question.visible]
            a = min(self.adjacency.a, question.structure.n)
            return moves(self.shape, margins, values, self._domain, a)
        listing = Listing.of(self.dataspace, question.released)
        if listing is None:
            raise Refused(
                "the moves of this table are too many to list: release fewer features, or publish other margins"
            )
        return listing.moves(self.adjacency.a)

    def matrix(self) -> MatrixForm | None:
        """Return the table as a matrix where at most two disjoint margins are published, else None.

        A joint margin counts as one side; levels that do not occur are left out. Two margins must cover the table. With
        one margin the columns are all that it leaves open; with none the matrix has one row.
        """
        visible = self._question.visible
        axes = [margin.axes for margin in visible]
        rest = tuple(axis for axis in range(len(self.shape)) if not any(axis in margin for margin in axes))
        if len(axes) > 2 or (len(axes) == 2 and (rest or {*axes[0]} & {*axes[1]})):
            return None
        sides = [np.flatnonzero(margin.counts) for margin in visible]
        groups = [*axes, rest][:2] if len(axes) == 2 else [axes[0] if axes else (), rest]
        while len(sides) < 2:
            missing = groups[len(sides)]
            sides.append(np.arange(math.prod(self.shape[axis] for axis in missing)))
        position = np.arange(math.prod(self.shape)).reshape(self.shape)
        cells = position.transpose(*groups[0], *groups[1]).reshape(
            math.prod(self.shape[axis] for axis in groups[0]), -1
        )[np.ix_(*sides)]
        if self._domain is not None and (self._domain.sum() != cells.size or not self._domain.ravel()[cells].all()):
            return None
        return MatrixForm(cells, len(axes) == 2)

    @cached_property
    def _question(self) -> Question:
        schema = self.dataspace.schema
        assert schema is not None
        return Question.of(self.dataspace, schema.axes(self.schema.names))

    @cached_property
    def _found(self) -> Found:
        return find_norms(self._question, self.adjacency.a)

    @cached_property
    def _domain(self) -> Mask | None:
        """The cells of the released table that can be positive, or None where all can."""
        if self.dataspace.n == 0:
            return np.zeros(self.shape, dtype=bool)
        question = self._question
        structure = question.structure
        full = structure.schema
        hidden = tuple(axis for axis in range(len(full.shape)) if axis not in question.released)
        if hidden and full.size <= LARGEST_MASK:
            whole = _inhabited(full.shape, full.possible, structure.margins)
            mask = None if whole is None else np.asarray(whole.any(axis=hidden))
        else:
            mask = _inhabited(self.shape, self.schema.possible, question.visible)
        return None if mask is None or mask.all() else mask

    @cached_property
    def _projection(self) -> Projection:
        if self._found.only is not None:
            return FixedTable(self._found.only)
        axes = [margin.axes for margin in self._question.visible]
        return projection(self.shape, axes, self._domain)


def _inhabited(shape: Axes, possible: Mask | None, margins: Iterable[Published]) -> Mask | None:
    """The cells that are possible and where no margin is empty; None where that is all of them."""
    mask: Any = possible
    for margin in margins:
        if not margin.counts.all():
            sides = [size if axis in margin.axes else 1 for axis, size in enumerate(shape)]
            there = (margin.counts > 0).reshape(sides)
            mask = there if mask is None else mask & there
    return None if mask is None else np.ascontiguousarray(np.broadcast_to(mask, shape))
