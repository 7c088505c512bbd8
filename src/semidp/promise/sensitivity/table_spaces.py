"""The query space of a table of counts: how far apart two tables can be while everything published
stays fixed.

`sensitivity_space` derives it from what is published (`Dataspace`) and which datasets are compared
(`Adjacency`). `norms` chooses how to find the norms, `orthogonal_parts` has the subspace of the
noise, and `knorm` the K-norm of the hull.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from semidp.errors import DataError, InputError, Refused
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Counts,
    Floats,
    Mask,
    Totals,
    View,
    is_within_view,
    list_axes,
)
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.exchange_tables import ExchangeTable
from semidp.promise.sensitivity.moves import ListedTables, moves
from semidp.promise.sensitivity.norms import ReleasedTable, TableNorms, find_norms
from semidp.promise.sensitivity.orthogonal_parts import FixedTable, Projector, build_projector
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.query_space import MatrixForm, QuerySpace, RowsForm
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace, require_counts
from semidp.promise.spaces.exchange_blocks import Blocks


def sensitivity_space(
    dataspace: Datasets, adjacency: Adjacency, released: Iterable[str] | None = None
) -> "TableSpace":
    """Return S_a of the table over the `released` features.

    ``S = {φ(X) - φ(X') : X, X' in D_t, d(X, X') <= a}`` (Cho and Awan, Section 4.1), or over the
    exchanges of one person. The parameter a is the one of all that is published; the shape of S
    comes from the margins that constrain the released table.

    Parameters
    ----------
    dataspace
        What is published, and its values.
    adjacency
        Which datasets are compared: any a records, or exchanges.
    released
        The features of the released table; all of them if left out.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> table = Table(schema, [[1, 2, 3], [4, 5, 6]])
    >>> public = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    >>> space = sensitivity_space(public, Ball(3))
    >>> space.l1, space.l2_squared, space.linf, space.dimension, space.exact
    (4, 4, 1, 2, True)
    """
    public = require_counts(dataspace)
    names = public.schema.names if released is None else tuple(released)
    if not names:
        raise InputError("a released table needs at least one feature")
    space = TableSpace(public, adjacency, public.schema.restrict(names))
    if space.is_zero and space.dimension > 0:
        raise Refused(
            f"with a = {adjacency.a} no table can change although the published statistics do not"
            " fix it, so it would be released exactly: give a larger a"
        )
    return space


@frozen(slots=False)
class TableSpace(QuerySpace):
    """S of a table of counts; build it with `sensitivity_space`.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]]
    ... )
    >>> space = sensitivity_space(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")]), Ball(3)
    ... )
    >>> space.norms, space.naive.multiply(3)  # any three records would need the second
    (Norms(l1=4, l2_squared=4, linf=1), Norms(l1=6, l2_squared=18, linf=3))
    >>> len(list(space.moves())), space.matrix().cells.shape
    (6, (2, 3))
    >>> bool(np.allclose(space.project(table.counts) + space.fixed_part(), table.counts))
    True
    """

    dataspace: Dataspace
    adjacency: Adjacency
    schema: Schema

    of_counts: ClassVar[bool] = True
    naive = Norms(2, 2, 1)  # S_DP: one record leaves a cell and enters another

    def query(self) -> dict[str, Any]:
        """Return the features of the released table."""
        return {"kind": "table", "features": list(self.schema.names)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the released table."""
        return self.schema.shape

    @property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ of the released table."""
        return self.table_norms.norms

    @property
    def exact(self) -> bool:
        """Whether the three norms are attained; otherwise they are proven upper bounds."""
        return self.table_norms.exact

    @property
    def method(self) -> str:
        """How the norms were found."""
        return self.table_norms.method

    @property
    def dimension(self) -> int:
        """The number of free directions of the table under the published margins."""
        return self.projector.dimension

    @property
    def one_residual(self) -> bool:
        """Whether the exact totals publish every table that is one depth coarser in one feature.

        All that noise has to hide is then orthogonal to every coarser table: the residual of the
        whole table.
        """
        finest = self._released_table.grid.full
        for axis, depth in enumerate(finest):
            coarser = (*finest[:axis], depth - 1, *finest[axis + 1 :])
            if any(coarser) and not any(
                is_within_view(coarser, margin.view) for margin in self._released_table.visible
            ):
                return False
        return True

    def project(self, values: ArrayLike) -> Floats:
        """Project onto the tables with zero published margins, on the cells that can occur."""
        return self.projector.project(self.check_shape(values))

    def fixed_part(self) -> Floats:
        """Return (I - P) φ: the part of the table that the published statistics fix, computed from
        them alone.
        """
        margins = [margin.counts for margin in self._released_table.visible]
        if not margins:
            margins = [np.array(self.dataspace.n, dtype=np.int64)]
        return self.projector.fixed_part(margins)

    def variances(self) -> Floats:
        """Return the diagonal of P: the variance of each cell of projected unit noise."""
        return self.projector.variances()

    def listing(self) -> ListedTables | None:
        """Return every table of a small dataspace, or None if there are too many."""
        return ListedTables.from_dataspace(self.dataspace, self.released_view)

    def released_space(self) -> Dataspace:
        """Return what is published about the released table alone."""
        return self.dataspace.restrict_features(self.schema.names)

    def values(self, table: Table) -> Counts:
        """Return the counts of the released table; refuse another table, and one that contradicts
        what is published.
        """
        if table.schema != self.schema:
            ours = ", ".join(self.schema.names)
            theirs = ", ".join(table.schema.names)
            raise InputError(
                f"the mechanism is calibrated for a table of {ours}, not of {theirs}: give it that"
                " table, or calibrate again"
            )
        if table.n != self.dataspace.n:
            raise DataError(
                "the table does not have the published number of records: build the space from its"
                " totals"
            )
        for margin in self.dataspace.margins:
            shared = [name for name in margin.names if name in table.schema.names]
            if not shared:
                continue
            published = self.dataspace.value(margin).margin(shared)
            if table.margin(shared) != published:
                raise DataError(
                    f"the table contradicts the published {margin}: build the space from its totals"
                )
        return table.counts

    def moves(self) -> Iterator[Counts]:
        """Iterate over the elements of S without zero, lazily: four-cell moves first, then
        three-cycles, and so on.

        Exchanges of a person with several records: each single exchange so many times, whose hull
        contains all.
        """
        if self.adjacency.protects_groups:
            return self._list_ball_moves()
        return (move * self.adjacency.times for move in self._exchange_table.moves())

    def matrix(self) -> MatrixForm | None:
        """Return the table as a matrix if at most two disjoint margins are published, else None.

        A joint margin counts as one side; levels that do not occur are left out. Two margins must
        cover the table. With one margin the columns are all that it leaves open; with none the
        matrix has one row.
        """
        visible, grid = self._released_table.visible, self._released_table.grid
        if grid.has_nested_feature:
            return None
        axes = [list_axes(margin.view) for margin in visible]
        published = [axis for group in axes for axis in group]
        unpublished = tuple(axis for axis in range(len(self.shape)) if axis not in published)
        overlap = len({*published}) < len(published)
        if len(axes) > 2 or (len(axes) == 2 and (unpublished or overlap)):
            return None
        groups = [*(axes or [()]), unpublished][:2]
        sizes = []
        for group in groups:
            sizes.append(math.prod(self.shape[axis] for axis in group))
        sides = [np.flatnonzero(margin.counts) for margin in visible]
        sides += [np.arange(size) for size in sizes[len(sides) :]]
        position = np.arange(math.prod(self.shape)).reshape(self.shape)
        matrix = position.transpose(*groups[0], *groups[1]).reshape(sizes)
        cells = matrix[np.ix_(*sides)]
        if self._domain is not None:
            # A cell that cannot occur inside the matrix, or one outside that can: no matrix.
            inside = self._domain.ravel()[cells]
            if self._domain.sum() != cells.size or not inside.all():
                return None
        return MatrixForm(cells, len(axes) == 2)

    def rows(self) -> RowsForm | None:
        """Return the cells of each row if rows differ in length: a nested feature under one
        margin.
        """
        visible, grid = self._released_table.visible, self._released_table.grid
        if len(visible) > 1 or self.is_zero:
            return None
        total = Totals(grid.nothing, np.array(self.dataspace.n))
        if visible:
            total = visible[0]
        homes, totals = grid.labels(total.view), total.counts.ravel()
        occurs = totals[homes] > 0
        if self._domain is not None and not np.array_equal(self._domain.ravel(), occurs):
            return None
        lengths = np.bincount(homes[occurs], minlength=len(totals))
        cells = np.flatnonzero(occurs & (lengths[homes] > 1))
        kept = lengths > 1
        order = np.argsort(homes[cells], kind="stable")
        row_lengths, row_totals = lengths[kept].tolist(), totals[kept].tolist()
        return RowsForm(cells[order], tuple(row_lengths), tuple(row_totals))

    @property
    def released_view(self) -> View:
        """The view of the released table in the schema of the dataspace."""
        return self.dataspace.schema.view(self.schema.names)

    @cached_property
    def _released_table(self) -> ReleasedTable:
        return ReleasedTable.from_dataspace(self.dataspace, self.released_view)

    @cached_property
    def _exchange_table(self) -> ExchangeTable:
        """The table under exchanges; refused if there are none."""
        return ExchangeTable(Blocks.from_dataspace(self.dataspace), self._released_table)

    @property
    def reach(self) -> int:
        """The most records that the table can see change between adjacent datasets."""
        if self.adjacency.protects_groups:
            return super().reach
        return min(self.adjacency.times * self._exchange_table.reach, self.dataspace.n)

    @cached_property
    def table_norms(self) -> TableNorms:
        """The norms, and how they were found."""
        if self.adjacency.protects_groups:
            return find_norms(self._released_table, self.adjacency.a)
        # a person with several records is exchanged once for each
        return self._exchange_table.result.repeat_moves(self.adjacency.times)

    def _list_ball_moves(self) -> Iterator[Counts]:
        """Iterate over the moves of any a records."""
        table, structure = self._released_table, self._released_table.structure
        # under structural zeros what is left out ties the cells of the table: then only a listing
        # knows the moves
        whole = table.released == structure.grid.full or not structure.schema.structural_zeros
        if table.lifts and structure.decomposable and whole:
            a = min(self.adjacency.a, structure.n)
            return moves(table.grid, table.visible, self._domain, a)
        listing = self.listing()
        if listing is None:
            raise Refused(
                "the moves of this table are too many to list: release fewer features, or publish"
                " other margins"
            )
        return listing.moves(self.adjacency.a)

    @cached_property
    def _domain(self) -> Mask | None:
        """The cells of the released table that can be positive, or None if all can."""
        if self.dataspace.n == 0:
            return np.zeros(self.shape, dtype=bool)
        return _domain(self._released_table)

    @cached_property
    def projector(self) -> Projector:
        """The projection onto the tables with zero published margins."""
        if self.table_norms.only is not None:
            return FixedTable(self.table_norms.only)
        margins = [margin.view for margin in self._released_table.visible]
        return build_projector(self._released_table.grid, margins, self._domain)


def find_possible_cells(dataspace: Dataspace, released: View) -> Mask | None:
    """Return a mask of the cells of a table that can be positive; None if all can. `released` is
    its view.

    Cells are left out that structural zeros leave empty whatever the other features are, and cells
    in an empty cell of a published margin. For schemas too large to list, only structural zeros of
    the table's own features count.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> public = Dataspace.from_table(Table(schema, [[1, 0, 3], [4, 0, 6]]), [Margin("region")])
    >>> find_possible_cells(public, (1, 1)).tolist()
    [[True, False, True], [True, False, True]]
    """
    return _domain(ReleasedTable.from_dataspace(dataspace, released))


def _domain(table: ReleasedTable) -> Mask | None:
    structure = table.structure
    hidden = table.released != structure.grid.full
    mask: Mask | None = None
    if hidden and structure.grid.holds(LARGEST_MASK):
        # Features that are not released may rule out cells of the table: look at all cells, then
        # sum.
        whole = structure.grid.find_inhabited_cells(structure.schema.possible, structure.margins)
        if whole is not None:
            mask = structure.grid.sum(whole.astype(np.int64), table.released) > 0
    else:
        names = structure.schema.list_view_names(table.released)
        possible = structure.schema.restrict(names).possible
        mask = table.grid.find_inhabited_cells(possible, table.visible)
    return None if mask is None or mask.all() else mask


def recorded_table(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> QuerySpace:
    """Return the space of a recorded table under any exact statistics."""
    return sensitivity_space(dataspace, adjacency, query["features"])
