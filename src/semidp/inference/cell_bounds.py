"""Bounds from exact totals on single cells and sums of cells of a
table.

They use the published margins alone, never noise. All bounds are valid for every table of D_t;
each function says whether they are sharp.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import (
    Counts,
    Grid,
    Totals,
    View,
    is_within_view,
    join,
    junction_order,
    maximal,
    meet,
)
from semidp.promise.spaces.dataspace import Dataspace

_MOST_CELLS = 2_000_000  # of a finer table whose bounds are summed
# by which a whole number may be missed in floating point; relative to large ones its square
TINY = 1e-6
_MOST_ORDERED = 4  # margins that are tried in every order
_MOST_MARGINS = 8  # margins of which every few are tried together


@frozen(slots=False, eq=False)
class CellBounds:
    """The least and the largest count of each cell of a table under the exact totals.

    Parameters
    ----------
    grid
        The cells of all features.
    view
        The table.
    totals
        The exact margins, n among them.
    possible
        The cells of all features that can hold a record; None if all can, or where they are too
        many to look at.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 0], [4, 5, 1]]
    ... )
    >>> bounds = CellBounds.from_dataspace(
    ...     Dataspace.from_table(table, [Margin("sex"), Margin("region")]), table.schema.names
    ... )
    >>> bounds.lower.tolist(), bounds.upper.tolist()
    ([[0, 0, 0], [2, 4, 0]], [[3, 3, 1], [5, 7, 1]])
    >>> bounds.span(np.array([[1, 1, 0], [0, 0, 0]]))  # 3 less what is left for the third
    (2, 3)
    """

    grid: Grid
    view: View
    totals: tuple[Totals, ...] = field(repr=False)
    possible: NDArray[np.bool_] | None = field(default=None, repr=False)

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace, names: Iterable[str]) -> "CellBounds":
        """Return the bounds of the table over some features."""
        schema = dataspace.schema
        n = np.array(dataspace.n or 0, dtype=np.int64)
        totals = (Totals(schema.grid.nothing, n), *dataspace.published_totals)
        return cls(schema.grid, schema.view(names), totals, schema.possible)

    @property
    def lower(self) -> Counts:
        """The least count of each cell."""
        return self._ends[0]

    @property
    def upper(self) -> Counts:
        """The largest count of each cell."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[Counts, Counts]:
        """The bounds of the table's own margins, and those summed from finer tables that name a
        missing separator.

        Sharp for decomposable margins of which the table lacks at most one separator (sharp is not
        claimed elsewhere).
        """
        lower, upper = self._direct(self.view)
        # Summed bounds of a finer table are bounds too, and sharper where it has a separator that
        # this one lacks.
        for finer in self._finer_views():
            low, high = self._direct(finer)
            lower = np.maximum(lower, self.grid.sum(low, self.view, finer))
            upper = np.minimum(upper, self.grid.sum(high, self.view, finer))
        return lower, upper

    def _finer_views(self) -> list[View]:
        """Tables that also name what two margins share and this table lacks: one such part, or all
        of them.
        """
        views = maximal(total.view for total in self.totals)
        missing = set()
        for one, other in itertools.combinations(views, 2):
            shared = meet(one, other)
            if not is_within_view(shared, self.view):
                missing.add(join(self.view, shared))
        everything = join(self.view, *missing)
        finer = {*missing, everything} - {self.view}
        return [view for view in finer if self.grid.count_margin_cells(view) <= _MOST_CELLS]

    def _direct(self, view: View) -> tuple[Counts, Counts]:
        """The bounds of one table by the margins that are rolled up to it."""
        shape = self.grid.compute_margin_shape(view)
        rolled = self._sum_shared_margins(view)
        # Fréchet's upper bound: no cell has more records than any margin cell around it.
        upper = np.full(shape, np.iinfo(np.int64).max)
        for total in rolled.values():
            spread = self.grid.spread(total.counts, total.view, view)
            upper = np.minimum(upper, spread)
        if self.possible is not None:
            possible = self.grid.sum(self.possible, view) > 0
            upper = np.where(possible, upper, 0)
        lower = np.zeros(shape, dtype=np.int64)
        for chosen in _orders([margin for margin in rolled if any(margin)]):
            named = join(*chosen)
            least = self._overlap(chosen, rolled, view)
            if named != view:
                # Records that agree on these margins may lie in other cells, unless there are none.
                open_cells = self.grid.sum(upper > 0, named, view)
                alone = self.grid.spread(open_cells, named, view) == 1
                least = np.where((upper > 0) & alone, least, 0)
            lower = np.maximum(lower, least)
        return lower, upper

    def _sum_shared_margins(self, view: View) -> dict[View, Totals]:
        """The exact margins summed to what a table has of them, without those that others contain;
        and n.
        """
        summed = {}
        for total in self.totals:
            shared = meet(total.view, view)
            if shared not in summed:
                summed[shared] = total.sum_to_view(self.grid, shared)
        kept = [*maximal(summed), self.grid.nothing]
        return {shared: summed[shared] for shared in kept}

    def _overlap(self, chosen: Sequence[View], rolled: dict[View, Totals], view: View) -> Counts:
        """``Σ cliques - Σ separators``: the least number of records that agree with a cell on every
        margin.

        Of the n(S) records that agree with the cell on S, which U and C share, n(U) agree on U and
        n(C) on C; so at least ``n(U) + n(C) - n(S)`` agree on both. S is part of C, hence its total
        is known.
        """
        union = chosen[0]
        first = self.grid.spread(rolled[union].counts, union, view)
        total = np.array(np.broadcast_to(first, self.grid.compute_margin_shape(view)))
        for clique in chosen[1:]:
            shared = meet(union, clique)
            separator = rolled[clique].sum_to_view(self.grid, shared)
            total += self.grid.spread(rolled[clique].counts, clique, view)
            total -= self.grid.spread(separator.counts, shared, view)
            union = join(union, clique)
        return total

    def span(self, chosen: NDArray[np.generic]) -> tuple[int, int]:
        """Return bounds on the sum of some cells, marked by 1 and the others by 0.

        Within each cell of an exact margin the chosen cells have at least their own lower bounds,
        and at least what the others leave; the best margin counts.
        """
        marks = np.asarray(chosen).astype(np.int64)
        inside = marks.reshape(self.grid.compute_margin_shape(self.view))
        outside = 1 - inside
        lows, highs = [], []
        for margin, total in self._sum_shared_margins(self.view).items():
            low_in = self.grid.sum(self.lower * inside, margin, self.view)
            high_in = self.grid.sum(self.upper * inside, margin, self.view)
            low_out = self.grid.sum(self.lower * outside, margin, self.view)
            high_out = self.grid.sum(self.upper * outside, margin, self.view)
            # What the cells outside cannot hold lies inside, and what they hold at least does not.
            lowest = np.maximum(low_in, total.counts - high_out)
            highest = np.minimum(high_in, total.counts - low_out)
            lows.append(int(lowest.sum()))
            highs.append(int(highest.sum()))
        return max(lows), min(highs)


def _orders(views: Sequence[View]) -> list[Sequence[View]]:
    """Return orders in which margins are put together: a junction order if there is one, which
    is the best.

    Else every few of them, in every order: bounds that are valid, not sharp.
    """
    ordered = junction_order(views) if views else []
    if ordered is not None:
        return [ordered] if ordered else []
    if len(views) > _MOST_MARGINS:
        return [views]
    orders: list[Sequence[View]] = []
    for size in range(1, min(len(views), _MOST_ORDERED) + 1):
        for chosen in itertools.combinations(views, size):
            orders += itertools.permutations(chosen)
    return orders


def whole_interval(low: float, high: float, span: tuple[float, float]) -> tuple[float, float]:
    """Return an interval for a count, cut to the possible range and inward to integers.

    An interval that misses the possible range becomes the nearest bound; one without an integer
    becomes the nearest integer.

    >>> (
    ...     whole_interval(-2.2, 4.7, (0, 3)),
    ...     whole_interval(5.1, 6.0, (0, 3)),
    ...     whole_interval(1.2, 1.4, (0, 3)),
    ... )
    ((0.0, 3.0), (3.0, 3.0), (1.0, 1.0))
    """
    first, last = span
    low = min(max(low, first), last)
    high = min(max(high, first), last)
    # A whole number that floating point misses by a hair still counts.
    low_slack = TINY * (1 + TINY * abs(low))
    high_slack = TINY * (1 + TINY * abs(high))
    lowest = math.ceil(low - low_slack)
    highest = math.floor(high + high_slack)
    if lowest > highest:
        lowest = highest = round((low + high) / 2)
    return float(lowest), float(highest)
