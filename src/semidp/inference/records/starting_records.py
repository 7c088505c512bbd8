"""Initial records: every exact total to the person, no impossible combination, otherwise
random.

Tables that agree and are decomposable are matched one after the other along what they share. Other
totals are met by one integer table over their features. Impossible combinations are removed by
swaps.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.records.record_cells import (
    Codes,
    Floats,
    Goal,
    Layout,
    RecordMove,
    smallest_codes,
    stratum_keys,
)
from semidp.inference.records.record_search import RecordState, Sweep
from semidp.promise.schema.margins import (
    Grid,
    Totals,
    View,
    is_within_view,
    join,
    junction_order,
    list_axes,
    maximal,
    meet,
    trimmed_view,
)
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.fitting.real import Infeasible
from semidp.publish.fitting.tables import fit_totals


def match_records(
    grid: Grid,
    records: int,
    tables: Mapping[View, Totals],
    order: Sequence[View],
    draw: np.random.Generator,
) -> Codes:
    """Return records that match every table to the person.

    Tables that share a separator S have the same counts of it, so the records of one, in
    random order within each value of S, take the cells of the other one by one. By the running
    intersection property the next table meets all earlier ones inside one of them.

    Parameters
    ----------
    grid, records
        The features, and the number of records.
    tables
        Integer tables by their views, which agree on what they
        share.
    order
        Their views in an order with the running intersection property.
    draw
        How records are matched within a separator.

    Returns
    -------
    Codes
        One row per record, one column per feature: the first leaf of the record's node at the depth
        that is known.

    Examples
    --------
    >>> ones = {
    ...     (1, 0): Totals((1, 0), np.array([2, 1])),
    ...     (0, 1): Totals((0, 1), np.array([1, 2])),
    ... }
    >>> match_records(Grid.flat((2, 2)), 3, ones, list(ones), np.random.default_rng(1)).sum(
    ...     axis=0
    ... ).tolist()
    [1, 2]
    """
    largest = max(chain.leaves for chain in grid.chains) - 1
    codes = np.zeros((records, len(grid.chains)), dtype=smallest_codes(largest))
    held = grid.nothing
    for view in order:
        counts = tables[view].counts.ravel()
        cells = np.repeat(np.arange(counts.size), counts)
        leaves = _first_leaves(grid, view, cells)
        shared = meet(view, held)
        ours = stratum_keys(grid, codes, shared)
        theirs = np.asarray(grid.labels(shared, view), dtype=np.int64)[cells]
        # Records of one separator stand together in both orders, at random in ours.
        into = np.lexsort((draw.random(records), ours))
        out_of = np.argsort(theirs, kind="stable")
        for axis in list_axes(view):
            if view[axis] > held[axis]:
                codes[into, axis] = leaves[axis][out_of]
        held = join(held, view)
    return codes


def _first_leaves(grid: Grid, view: View, cells: NDArray[np.intp]) -> dict[int, NDArray[np.int64]]:
    """For each feature of a view the first leaf of the node of each cell."""
    axes = list_axes(view)
    nodes = np.unravel_index(cells, grid.compute_margin_shape(view)) if axes else ()
    leaves: dict[int, NDArray[np.int64]] = {}
    for axis, node in zip(axes, nodes, strict=True):
        starts = np.asarray(grid.chains[axis].starts[view[axis] - 1], dtype=np.int64)
        leaves[axis] = starts[node]
    return leaves


_MOST_CELLS = 2**20  # of one table that meets exact totals that are not decomposable
_REPAIRS = 200  # passes that swap impossible combinations away
_SECONDS = 30.0  # after which no better table is looked for

Forbidden = tuple[tuple[View, NDArray[np.bool_]], ...]


def forbidden_cells(schema: Schema, used: View) -> Forbidden:
    """Return the margins that hold impossible cells, each with their mask; those that records do
    not know are left out.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import StructuralZero
    >>> zero = StructuralZero.from_pattern({"age": "child", "status": "married"})
    >>> schema = Schema(
    ...     [Feature("age", ["child", "adult"]), Feature("status", ["single", "married"])],
    ...     [zero],
    ... )
    >>> [(view, mask.tolist()) for view, mask in forbidden_cells(schema, (1, 1))]
    [((1, 1), [[False, True], [False, False]])]
    """
    masks: dict[View, NDArray[np.bool_]] = {}
    for zero in schema.structural_zeros:
        names = [name for name, _ in zero.levels]
        view = schema.view(names)
        if view not in masks and is_within_view(view, used):
            masks[view] = ~schema.restrict(names).possible_cells
    return tuple(masks.items())


class Beginning:
    """Records with every exact total of a dataspace.

    Parameters
    ----------
    dataspace
        What is exact.
    used
        The depth at which records know each feature.
    one_way
        For each feature that is not exact at that depth, the estimated counts of its nodes.
    draw
        How records are matched.
    """

    def __init__(
        self,
        dataspace: Dataspace,
        used: View,
        one_way: dict[int, Floats],
        draw: np.random.Generator,
    ) -> None:
        self.dataspace = dataspace
        self.grid: Grid = dataspace.schema.grid
        self.used = used
        self.one_way = one_way
        self.draw = draw
        self.forbidden = forbidden_cells(dataspace.schema, used)

    def codes(self, moves: list[RecordMove], sweep: Sweep) -> Codes:
        """Return the records, or refuse if none with these totals are found."""
        exact = list(self.dataspace.published_totals)
        if junction_order(maximal(total.view for total in exact)) is None:
            exact = self._without_circles(exact)
        codes = self._match_totals(exact)
        if self._clean(codes, moves, sweep):
            return codes
        # Swaps alone did not help: one table holds all totals that impossible cells have to do
        # with.
        exact = self._merge_totals(exact, codes)
        codes = self._match_totals(exact)
        if not self._clean(codes, moves, sweep):
            raise Refused(
                "no records were found that have the exact totals and no impossible combination"
            )
        return codes

    def _match_totals(self, totals: list[Totals]) -> Codes:
        """Match totals, and the estimated counts of features that they do not name as deep as
        records do.
        """
        every = {total.view: total for total in totals}
        for axis in list_axes(self.used):
            depth = max((total.view[axis] for total in totals), default=0)
            if depth < self.used[axis]:
                added = self._one_way(axis, depth, totals)
                every[added.view] = added
        order = junction_order(maximal(every))
        assert order is not None, "what is added lies below one total, or shares nothing"
        return match_records(self.grid, self.dataspace.n, every, order, self.draw)

    def _one_way(self, axis: int, depth: int, totals: list[Totals]) -> Totals:
        """Whole numbers of one feature near its estimate, with the totals that are given at a
        coarser depth. Coarse depths come first: rounded level by level, bins of many small counts
        would lose them all.
        """
        view = self.grid.build_feature_view(axis, self.used[axis])
        sums = np.array(self.dataspace.n, dtype=np.int64)
        if depth:
            # All totals that name the feature as deep say the same of it.
            coarse = self.grid.build_feature_view(axis, depth)
            finer = next(total for total in totals if total.view[axis] == depth)
            sums = finer.sum_to_view(self.grid, coarse).counts
        feature = self.grid.coarsen(view)
        for deeper in range(depth + 1, self.used[axis] + 1):
            near = feature.sum(self.one_way[axis], (deeper,), feature.full)
            fit = fit_totals(near, feature.coarsen((deeper,)), [Totals((deeper - 1,), sums)])
            assert fit.counts is not None, "one total is met by thresholds"
            sums = fit.counts
        return Totals(view, sums)

    def _without_circles(self, exact: list[Totals]) -> list[Totals]:
        """Replace totals that are not decomposable by one table of whole numbers with those
        totals.
        """
        # What the table shall be close to: records whose features have nothing in common.
        loose: dict[View, Totals] = {}
        for axis in list_axes(self.used):
            loose.update(self._find_exact_counts(axis, exact))
        near = match_records(self.grid, self.dataspace.n, loose, list(loose), self.draw)
        kept: list[Totals] = []
        left = list(exact)
        while left:
            piece = _join_connected([total.view for total in left], left[0].view)
            group = [total for total in left if any(meet(total.view, piece))]
            left = [total for total in left if total not in group]
            if junction_order(maximal(total.view for total in group)) is None:
                group = [self._fit_table(group, near, piece)]
            kept += group
        return kept

    def _find_exact_counts(self, axis: int, exact: list[Totals]) -> dict[View, Totals]:
        """The exact counts of one feature, as deep as they are exact; nothing if they are
        not.
        """
        deepest = max(exact, key=lambda total: total.view[axis])
        view = self.grid.build_feature_view(axis, deepest.view[axis])
        return {view: deepest.sum_to_view(self.grid, view)} if any(view) else {}

    def _merge_totals(self, exact: list[Totals], near: Codes) -> list[Totals]:
        """Put everything that hangs together with impossible cells into one table each."""
        zeros = [view for view, _ in self.forbidden]
        views = [*zeros, *(total.view for total in exact)]
        pieces = {_join_connected(views, zero) for zero in zeros}
        left = list(exact)
        merged = []
        for piece in sorted(pieces):
            group = [total for total in left if any(meet(total.view, piece))]
            left = [total for total in left if total not in group]
            merged.append(self._fit_table(group, near, piece))
        return [*merged, *left]

    def _fit_table(self, group: list[Totals], near: Codes, view: View) -> Totals:
        """The table of whole numbers closest to what records have, with given totals and without
        impossible cells.
        """
        size = self.grid.count_margin_cells(view)
        if size > _MOST_CELLS:
            raise Refused(
                f"exact totals or impossible cells tie {len(list_axes(view))} features together,"
                f" {size:,} cells in all: too many to find records that have them"
            )
        part = self.grid.coarsen(view)
        counts = Layout(self.grid, [view]).counts(near)
        totals = []
        for total in group:
            totals.append(Totals(trimmed_view(total.view, view), total.counts))
        # Without a total the number of records is one.
        if not totals:
            totals = [Totals(part.nothing, np.array(self.dataspace.n, dtype=np.int64))]
        possible = np.ones(part.shape, dtype=bool)
        for zero, mask in self.forbidden:
            if is_within_view(zero, view):
                possible &= part.spread(~mask, trimmed_view(zero, view))
        try:
            fit = fit_totals(
                counts.reshape(part.shape), part, totals, possible, time_limit=_SECONDS
            )
        except Infeasible:
            fit = None
        if fit is None or fit.counts is None:
            raise Refused(
                "no whole numbers were found that have all exact totals, so there are no records"
            )
        return Totals(view, fit.counts)

    def _clean(self, codes: Codes, moves: list[RecordMove], sweep: Sweep) -> bool:
        """Swap impossible combinations away, in place; whether none is left."""
        goal = Goal(self.grid, (), self.forbidden)
        state = RecordState(goal, codes)
        impossible = np.isinf(state.slopes)
        # Each record in an impossible cell counts one, and no other cell counts.
        state.slopes = impossible.astype(np.float64)
        for _ in range(_REPAIRS):
            if not state.counts[impossible].any():
                return True
            for number in self.draw.permutation(len(moves)):
                sweep(state, moves[number], self.draw)
        return not state.counts[impossible].any()


def _join_connected(views: list[View], start: View) -> View:
    """What a view names, with all views that share a feature with it, or with one of those, and so
    on.

    >>> _join_connected([(1, 1, 0, 0), (0, 1, 1, 0), (0, 0, 0, 1)], (1, 0, 0, 0))
    (1, 1, 1, 0)
    """
    reached = start
    while True:
        near = [view for view in views if any(meet(view, reached))]
        grown = join(reached, *near) if near else reached
        if grown == reached:
            return reached
        reached = grown
