"""The query space of a product: several tables of the same records, measured together as residuals.

Each residual is measured once, whatever the number of tables that it belongs to, and those that
published margins fix are not measured. How much noise each gets is decided in
`publish.placement`.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, InputError, Refused
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Counts,
    Floats,
    Totals,
    View,
    is_within_view,
    join,
    list_axes,
)
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.costs import BallCosts, ExchangeCosts, MoveList
from semidp.promise.sensitivity.moves import ListedTables
from semidp.promise.sensitivity.orthogonal_parts import (
    Residuals,
    kept_nodes,
    list_coarser_views,
    trim_grid,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.probes import (
    SelfCheckError,
    largest_residual,
)
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import find_possible_cells, sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.structure import Structure

_LARGEST_LISTED = 4096  # cells of a dataspace whose moves are listed
_MOST_LISTED = 20_000  # moves that are listed one by one
# impossible cells times entries of the residuals: 160 MB and some seconds
_MOST_CONDITIONED = 20_000_000
_MOST_CHECKED = 32  # residuals whose costs are compared with drawn exchanges: a tenth of a second


class NotTogether(Refused):
    """These tables together have residuals without a proven cost, although each table alone has
    one.
    """


def product_space(
    dataspace: Datasets, adjacency: Adjacency, tables: Iterable[Sequence[str]]
) -> "ProductSpace":
    """Return the space of the residuals that some tables, given by their features, consist of.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("age", "yo")])
    >>> table = Table(schema, np.arange(12).reshape(2, 3, 2) + 5)
    >>> public = Dataspace.from_table(table, [Margin("sex")])
    >>> space = product_space(public, Ball(2), [["sex", "region"], ["region", "age"]])
    >>> space.measured_residuals
    ((0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 0))
    >>> space.measure([table.margin(["sex", "region"]), table.margin(["region", "age"])]).shape
    (17,)
    """
    if not isinstance(dataspace, Dataspace) or not dataspace.n:
        raise Refused("a product of tables needs at least one record, and a schema")
    schema = dataspace.schema
    views = tuple(schema.view(names) for names in tables)
    if not views or not all(map(any, views)):
        raise InputError("a product needs tables with at least one feature each", needs="table")
    if len(set(views)) < len(views):
        raise InputError("two tables of the product have the same features: name each once")
    space = ProductSpace(dataspace, adjacency, views)
    if adjacency.a == 0 and space.measured_residuals:
        raise NotTogether(
            "what is published leaves a single dataset: give each table a budget of its own"
        )
    cells = sum(len(positions) for positions in space.impossible.values())
    if cells * space.scales.size > _MOST_CONDITIONED:
        raise NotTogether(
            "the tables have too many impossible cells to set them to zero together: give each a"
            " budget of its own"
        )
    return space


@frozen(slots=False, eq=False)
class ProductSpace(QuerySpace):
    """Residuals of several tables as one vector of whole numbers; see `product_space`.

    Parameters
    ----------
    dataspace, adjacency
        What is published, and which datasets are compared.
    views
        The tables: the depth of each feature in each.
    """

    dataspace: Dataspace
    adjacency: Adjacency
    views: tuple[View, ...]

    exact = False  # the norms are bounds

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.dataspace.schema

    @cached_property
    def residuals(self) -> Residuals:
        """The geometry of the nodes that can hold a record."""
        return Residuals(trim_grid(self.schema.grid, self.inhabited_leaves))

    @cached_property
    def needed_residuals(self) -> tuple[View, ...]:
        """Residuals of which the tables consist. Those that are zero by construction are left
        out.
        """
        every = {view for table in self.views for view in list_coarser_views(table)}
        return tuple(sorted(view for view in every if self.residuals.varies(view)))

    @cached_property
    def measured_residuals(self) -> tuple[View, ...]:
        """Residuals that need noise: neither a published margin nor n fixes them."""
        exact = [margin.view for margin in self.dataspace.published_totals]
        exact.append(self.schema.grid.nothing)
        return tuple(view for view in self.needed_residuals if not _is_within_some(view, exact))

    @cached_property
    def inside(self) -> tuple[tuple[View, ...], ...]:
        """For each table the measured residuals that it is put together from."""
        measured = {*self.measured_residuals}
        tables = []
        for view in self.views:
            tables.append(tuple(small for small in list_coarser_views(view) if small in measured))
        return tuple(tables)

    @cached_property
    def holders(self) -> Mapping[View, tuple[int, ...]]:
        """For each measured residual the numbers of the tables that are put together from it."""
        tables: dict[View, list[int]] = {}
        for view in self.measured_residuals:
            tables[view] = []
        for number, parts in enumerate(self.inside):
            for view in parts:
                tables[view].append(number)
        return {view: tuple(numbers) for view, numbers in tables.items()}

    @cached_property
    def costs(self) -> BallCosts:
        """What residuals cost under the adjacency."""
        margins = tuple(margin.view for margin in self.dataspace.published_totals)
        released = join(*self.views)
        tables = self._list_moves(released)
        listed = None if tables is None else MoveList(tables, released)
        kind = self.adjacency.by_kind(ball=BallCosts, exchange=ExchangeCosts)
        once = min(self.adjacency.records_per_move, self.dataspace.n)
        return kind(self.residuals, margins, once, listed, self.adjacency.most_moves)

    @cached_property
    def cost(self) -> Mapping[View, Fraction]:
        """k_d of every residual that is measured.

        If these are few, each is checked against exchanges drawn from the
        definition.
        """
        costs = {view: self.costs.cost(view) for view in self.measured_residuals}
        for view, attained in self._attained_squares.items():
            if attained > float(costs[view]) * (1 + 1e-9):
                raise SelfCheckError("an exchange moves a residual by more than its cost")
        return costs

    @property
    def _attained_squares(self) -> Mapping[View, float]:
        """Largest squares of residuals under drawn exchanges, for some residuals; none where
        margins overlap.
        """
        if len(self.measured_residuals) > _MOST_CHECKED:
            return {}
        try:
            blocks = Blocks.from_dataspace(self.dataspace)
        except Refused:
            return {}
        records = self.adjacency.by_kind(ball=self.costs.a, exchange=blocks.reach)
        # A norm of so many moves is at most so many times that of one; costs are squares of norms.
        squared_times = self.costs.times**2
        attained = {}
        for view in self.measured_residuals:
            attained[view] = squared_times * largest_residual(
                blocks, view, records, self.inhabited_leaves
            )
        return attained

    @cached_property
    def result_cache(self) -> dict[object, Any]:
        """Cache for results that other modules compute for this space, by keys of theirs."""
        return {}

    @cached_property
    def parts(self) -> Mapping[View, slice]:
        """Slice of each measured residual in the vector."""
        places, start = {}, 0
        for view in self.measured_residuals:
            end = start + math.prod(self.residuals.shape(view))
            places[view] = slice(start, end)
            start = end
        return places

    @cached_property
    def scales(self) -> NDArray[np.int64]:
        """Whole number by which each entry of the vector was multiplied to be whole."""
        scales = [self.residuals.scale(view).ravel() for view in self.measured_residuals]
        return np.concatenate([np.zeros(0, np.int64), *scales])

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of the vector."""
        return self.scales.shape

    def query(self) -> dict[str, Any]:
        """Return the features of each table, and a digest of those of their levels that can hold a
        record.

        Residuals are centered over those levels, so the query is another where they are others.
        Features that no table uses do not matter.
        """
        # by name: the features of a union of releases may stand in another order
        axes = sorted(
            list_axes(join(*self.views)), key=lambda axis: self.schema.features[axis].name
        )
        return {**self._tables, "levels": self._levels(axes)}

    def _levels(self, axes: Iterable[int]) -> str:
        """Digest of the levels of some features that can hold a record."""
        digest = hashlib.sha256()
        for axis in axes:
            kept = self.inhabited_leaves[axis]
            names = "\0".join(self.schema.features[axis].names)
            digest.update(f"{names}\0{len(kept)}\0".encode())
            digest.update(np.packbits(kept).tobytes())
        return digest.hexdigest()

    def answers(self, query: Mapping[str, Any]) -> bool:
        """Whether a recorded query is this one, whatever the order of features.

        >>> from semidp.promise.spaces.adjacency import Ball
        >>> from semidp.promise.schema.features import Feature
        >>> table = Table(Schema([Feature("sex", "fm"), Feature("age", "yo")]), [[3, 2], [1, 4]])
        >>> space = product_space(Dataspace.from_table(table, []), Ball(1), [["sex", "age"]])
        >>> space.answers(space.query()), space.answers({**space.query(), "levels": ""})
        (True, False)
        """
        return _in_name_order(query) == _in_name_order(self.query())

    @property
    def _tables(self) -> dict[str, Any]:
        """Kind and tables of the query, as plain values."""
        features = [list(self.schema.list_view_names(view)) for view in self.views]
        return {"kind": "product", "tables": features}

    def trim(self, values: NDArray[np.generic], view: View) -> NDArray[np.generic]:
        """Cut a table at a view down to the nodes that can hold a record."""
        return values[self.index_nodes(view)]

    def restore_full_table(self, values: Floats, view: View) -> Floats:
        """Put values of the nodes that can hold a record back into a full table; the other cells
        are zero.
        """
        result = np.zeros(self.schema.grid.compute_margin_shape(view))
        result[self.index_nodes(view)] = values
        return result

    def index_nodes(self, view: View) -> tuple[NDArray[np.intp], ...]:
        """Index of the nodes that can hold a record, for a table at a view."""
        chains = self.schema.grid.chains
        nodes = []
        for axis in list_axes(view):
            nodes.append(kept_nodes(chains[axis], self.inhabited_leaves[axis], view[axis]))
        return np.ix_(*nodes)

    def values(self, table: Table) -> NDArray[np.int64]:
        """Return the vector of a product of one table; refuse where it has several."""
        if len(self.views) > 1:
            return super().values(table)
        return self.measure([table])

    def measure(self, tables: Sequence[Table]) -> NDArray[np.int64]:
        """Return the vector of the confidential tables; refuse those that contradict what is
        published.
        """
        for table, view in zip(tables, self.views, strict=True):
            if table.schema.names != self.schema.list_view_names(view):
                raise InputError("the tables of a product must be those that it was prepared for")
            if not self.dataspace.restrict_features(table.schema.names).contains(table):
                raise DataError(
                    "a table contradicts what is published: build the space from its totals"
                )
        parts = [part.ravel() for part in self.compute_residuals(tables).values()]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def compute_residuals(self, tables: Sequence[Table]) -> dict[View, NDArray[np.int64]]:
        """Return each measured residual of the confidential tables, times its scale."""
        cut: list[NDArray[np.int64]] = []
        for table, view in zip(tables, self.views, strict=True):
            cut.append(self.trim(table.counts, view).astype(np.int64))
        residuals = {}
        for view, holders in self.holders.items():
            # Every table that holds a residual gives the same one: sum it from the smallest.
            place = min(holders, key=lambda number: cut[number].size)
            part = self.residuals.table(cut[place], self.views[place], view)
            residuals[view] = self.residuals.compute_integer_residual(view, part)
        return residuals

    @property
    def _fixed_residuals(self) -> list[View]:
        """Residuals that what is published fixes."""
        return [view for view in self.needed_residuals if view not in self.parts]

    @cached_property
    def exact_residuals(self) -> Mapping[View, Floats]:
        """Values of the residuals that are published exactly, from the published totals alone."""
        exact = {}
        for view in self._fixed_residuals:
            if not any(view):
                exact[view] = np.array(float(self.dataspace.n or 0))
                continue
            holding = (
                margin
                for margin in self.dataspace.published_totals
                if is_within_view(view, margin.view)
            )
            # every margin that holds a residual gives the same one
            margin = next(holding)
            cut = self.trim(margin.counts, margin.view)
            summed = self.residuals.table(cut, margin.view, view)
            exact[view] = self.residuals.center(view, summed)
        return exact

    def split_residuals(self, vector: ArrayLike) -> dict[View, Floats]:
        """Return a vector as residuals: each part divided by its scale and centered."""
        values = np.asarray(vector, dtype=np.float64) / self.scales
        residuals = {}
        for view, part in self.parts.items():
            residuals[view] = self.residuals.center(view, values[part])
        return residuals

    @cached_property
    def impossible(self) -> Mapping[int, NDArray[np.intp]]:
        """For each table, by its number, the positions of cells that no record can lie in although
        each of their levels occurs.

        Structural zeros, and empty cells of joint margins. Only whole cells of the table count.
        """
        if not self.schema.structural_zeros and not any(
            map(_has_gaps, self.dataspace.published_totals)
        ):
            return {}
        positions = {}
        for number, view in enumerate(self.views):
            mask = find_possible_cells(self.dataspace, view)
            if mask is None:
                continue
            levels = np.zeros(mask.shape, dtype=bool)
            levels[self.index_nodes(view)] = True
            cells = np.flatnonzero(levels & ~mask)
            if len(cells):
                positions[number] = cells
        return positions

    @property
    def norms(self) -> Norms:
        """Upper bounds of Δ1, Δ2² and Δ∞ of the whole vector, residual by residual."""
        return self._norms(self.cost)

    @property
    def naive(self) -> Norms:
        """The same bounds for one record where nothing but n is public."""
        free = BallCosts(self.residuals, (), 1)
        return self._norms({view: free.cost(view) for view in self.measured_residuals})

    @property
    def method(self) -> str:
        """How the costs of residuals were found."""
        if self.costs.moves is not None:
            return "listing of all tables"
        return "agreement patterns and closed forms"

    @property
    def is_zero(self) -> bool:
        """Whether what is published fixes every table."""
        return not self.measured_residuals

    @property
    def dimension(self) -> int:
        """The number of free directions of all measured residuals."""
        return sum(self.residuals.dimension(view) for view in self.measured_residuals)

    def project(self, values: ArrayLike) -> Floats:
        """Center every part of the vector: what adjacent datasets can differ by is centered."""
        residuals = self.split_residuals(self.check_shape(values))
        parts = [part.ravel() for part in residuals.values()]
        return np.concatenate([np.zeros(0), *parts]) * self.scales

    def fixed_part(self) -> Floats:
        """Return zeros: residuals are centered."""
        return np.zeros(self.shape)

    def variances(self) -> Floats:
        """Return the variance of each entry of the vector for unit noise in every entry,
        centered.
        """
        squared_scales = self.scales.astype(float) ** 2
        unit = 1 / squared_scales
        parts = [np.zeros(0)]
        for view, part in self.parts.items():
            shaped = unit[part].reshape(self.residuals.shape(view))
            parts.append(self.residuals.centred_variance(view, shaped).ravel())
        return np.asarray(np.concatenate(parts) * squared_scales)

    @cached_property
    def inhabited_leaves(self) -> tuple[NDArray[np.bool_], ...]:
        """For each feature, the leaves that can hold a record."""
        structure = Structure.from_dataspace(self.dataspace)
        full = self.schema.grid.full
        kept = [structure.inhabited_nodes(axis, depth) for axis, depth in enumerate(full)]
        if self.schema.structural_zeros and self.schema.grid.holds(LARGEST_MASK):
            mask = find_possible_cells(self.dataspace, full)
            if mask is not None:
                for axis in range(len(full)):
                    other_axes = tuple(other for other in range(len(full)) if other != axis)
                    kept[axis] = kept[axis] & mask.any(axis=other_axes)
        return tuple(kept)

    def _norms(self, costs: Mapping[View, Fraction]) -> Norms:
        squares = {}
        for view, cost in costs.items():
            largest_scale = float(self.scales[self.parts[view]].max())
            squares[view] = float(cost) * largest_scale**2
        if not squares:
            return Norms(0, 0, 0)
        # |v|_1 <= sqrt(entries) |v|_2, residual by residual.
        lengths = []
        for view, square in squares.items():
            lengths.append(math.sqrt(square * math.prod(self.residuals.shape(view))))
        total = math.ceil(sum(squares.values()) * (1 + 1e-9))
        largest = math.ceil(math.sqrt(max(squares.values())))
        return Norms(math.ceil(sum(lengths)), total, largest)

    def _list_moves(self, released: View) -> NDArray[np.int64] | None:
        """Every move of a small dataspace, as tables at the finest view; None if there are too
        many.
        """
        if not self.schema.grid.holds(_LARGEST_LISTED):
            return None
        listed: list[NDArray[np.int64]] = []
        try:
            for move in self._moves_one_by_one(released):
                listed.append(self.trim(move, released).astype(np.int64))
                if len(listed) > _MOST_LISTED:
                    return None
        except Refused:  # exchanges are counted as they are listed
            return None
        return np.stack(listed) if listed else None

    def _moves_one_by_one(self, released: View) -> Iterable[Counts]:
        """Moves of the whole dataspace; none where its tables are too many to list."""
        find = self.adjacency.by_kind(ball=self._ball_moves, exchange=self._exchange_moves)
        return find(released)

    def _ball_moves(self, released: View) -> Iterable[Counts]:
        """Differences of two listed tables that at most a records make."""
        tables = ListedTables.from_dataspace(self.dataspace, released)
        a = min(self.adjacency.a, self.dataspace.n)
        return () if tables is None else tables.moves(a)

    def _exchange_moves(self, released: View) -> Iterable[Counts]:
        """Changes of one table by the exchanges of one person."""
        features = self.schema.list_view_names(released)
        return sensitivity_space(self.dataspace, self.adjacency, features).moves()


def _is_within_some(view: View, others: Iterable[View]) -> bool:
    """Whether some other view is at least as fine, so this one follows from it."""
    return any(is_within_view(view, other) for other in others)


def _has_gaps(margin: Totals) -> bool:
    """Whether a joint margin has empty cells, in which no record can lie."""
    return len(list_axes(margin.view)) > 1 and not margin.counts.all()


def _in_name_order(query: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded query with the features of each table by name."""
    by_table = query.get("tables")
    if isinstance(by_table, list) and all(isinstance(names, list) for names in by_table):
        return {**query, "tables": [sorted(map(str, names)) for names in by_table]}
    return {**query}


def recorded_product(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> QuerySpace:
    """Return the space of recorded tables that were measured together."""
    product = product_space(dataspace, adjacency, query["tables"])
    # With other levels the recorded noise lies on other residuals, which cost something else.
    if not product.answers(query):
        raise Refused(
            "other levels can hold a record here, over which residuals are centered differently"
        )
    return product
