"""Whole numbers of tables that are cut: those settled before the parts, in each part, and after
them.

A total that crosses parts is best divided with the cells of all parts in view. So where one does,
or where totals hang together in a circle, all parts are measured first and then fitted in one
piece, up to `MOST_TOGETHER` cells.

Elsewhere each part is fitted by itself, and must meet no circle of totals that one piece does not
have. So nothing is settled at the cut but what one piece settles too: exact totals, tables that do
not reach below the cut, and of totals that cross parts their share of each part. The tables of the
parts are fitted under these in the order of one piece; at the cut they are the sums of parts.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.progress import Progress
from semidp.promise.schema.margins import Grid, Totals, View, join, junction_order, maximal
from semidp.publish.fitting.problem import Infeasible
from semidp.publish.fitting.tables import fit_totals
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.fitting import (
    FIT_SECONDS,
    Settled,
    SettledViews,
    by_size,
    fit_product,
)

MOST_CHOSEN = 7
"""Up to so many tables at the cut or above, every choice of those that come before the parts is
tried."""
MOST_TOGETHER = 10_000_000
"""Up to so many cells in all, tables with totals that cross parts are fitted in one piece: less
than 1 GB of memory."""
LEAST_SECONDS = 2.0
"""How long the search for one table of a part may take, however many parts there are."""

Floats = NDArray[np.float64]
Fits = dict[View, tuple[NDArray[Any], Fitted]]


@dataclass(frozen=True)
class FitOrder:
    """The order in which tables are fitted part by part.

    Parameters
    ----------
    early
        Tables at the cut or above that are fitted before the parts.
    below
        Tables of the parts, in turn.
    late
        Tables at the cut or above that are fitted after the parts, whose sums they have.
    circles
        Tables whose settled totals hang together in a circle, so that whole numbers may not exist.
    """

    early: tuple[View, ...]
    below: tuple[View, ...]
    late: tuple[View, ...]
    circles: tuple[View, ...]

    def with_first(self, view: View) -> "FitOrder":
        """Return the order with one table of the parts before everything else."""
        later_views = tuple(other for other in self.below if other != view)
        uncut = (*self.early, *self.late)
        return FitOrder((), (view, *later_views), uncut, self.circles)


def fit_order(grid: Grid, views: Sequence[View], exact: Sequence[View], cut: Cut) -> FitOrder:
    """Return an order of fits by parts that closes no circle of totals, other than those of one
    piece.

    One piece goes from the smallest table to the largest. Parts cannot: a table at the cut comes
    before all parts or after them. It comes after them where one piece fits it after all of their
    tables. Else it had better come before, because then they agree with it, and not it with sums of
    many cells. Where that closes another circle than those of one piece, or leaves a table no way
    out of one, other orders are tried, and the best of them is taken.

    Parameters
    ----------
    grid
        All cells, not those of one part: an order that differed from part to part would differ from
        one piece.
    views
        The tables that are fitted.
    exact
        The exact totals.
    cut
        Where tables are cut.

    Examples
    --------
    >>> from semidp.promise.schema.margins import Chain
    >>> grid = Grid((Chain(4, ((0, 2), (0, 1, 2, 3))), Chain.flat(2), Chain.flat(3)))
    >>> fit_order(grid, [(2, 1, 1), (2, 0, 1), (2, 1, 0)], [(1, 1, 0)], Cut(0, 1))
    FitOrder(early=(), below=((2, 1, 0), (2, 0, 1), (2, 1, 1)), late=(), circles=())
    """
    in_turn = _from_small_to_large(grid, views)
    inevitable = _circles(in_turn, exact)
    below = [view for view in in_turn if cut.reaches(view)]
    uncut = [view for view in in_turn if not cut.reaches(view)]
    places = {view: place for place, view in enumerate(in_turn)}
    first, last = (places[below[0]], places[below[-1]]) if below else (0, 0)
    before_some = [view for view in uncut if places[view] < last]
    before_all = [view for view in uncut if places[view] < first]
    # The choice nearest to one piece comes first: others replace it only with fewer faults.
    choices = [before_some, uncut, before_all]
    if len(uncut) <= MOST_CHOSEN:
        for many in reversed(range(len(uncut))):
            choices += [list(some) for some in itertools.combinations(uncut, many)]
    choices.append([])
    best, fewest = None, math.inf
    for early in choices:
        late = [view for view in uncut if view not in early]
        circles = _circles([*early, *below, *late], exact)
        # A circle of one piece is no fault of this order, unless the table has no way out.
        added = [view for view in circles if view not in inevitable]
        closed = _remaining_cycles((early, below, late), circles, exact)
        faults = len(added) + len(closed)
        if faults < fewest:
            best = FitOrder(tuple(early), tuple(below), tuple(late), circles)
            fewest = faults
        if faults == 0:
            break
    assert best is not None, "the first order has fewer faults than infinity"
    return best


def needs_joint_fit(grid: Grid, views: Sequence[View], exact: Sequence[View], cut: Cut) -> bool:
    """Whether the parts are fitted in one piece, after all of them have been measured.

    They are where a part alone would be fitted otherwise than in one piece: a total crosses parts,
    and the best share of each part depends on cells below the cut; or totals hang together in a
    circle, and what is fitted first matters.

    Parameters
    ----------
    grid, views, exact, cut
        As for `fit_order`.

    Examples
    --------
    >>> from semidp.promise.schema.margins import Chain
    >>> grid = Grid((Chain(4, ((0, 2), (0, 1, 2, 3))), Chain.flat(2)))
    >>> (
    ...     needs_joint_fit(grid, [(2, 1)], [(0, 1)], Cut(0, 1)),
    ...     needs_joint_fit(grid, [(2, 1)], [(1, 1)], Cut(0, 1)),
    ... )
    (True, False)
    """
    # Beyond that size each part is fitted by itself, to shares that are settled at the cut.
    if sum(map(grid.count_margin_cells, views)) > MOST_TOGETHER:
        return False
    order = fit_order(grid, views, exact, cut)
    if order.circles or _circles(_from_small_to_large(grid, views), exact):
        return True
    settled = SettledViews(*exact, *order.early)
    for view in order.below:
        if shares(view, settled.largest_margins(view), cut):
            return True
        settled.add(view)
    return False


def circles_met(
    grid: Grid, views: Sequence[View], exact: Sequence[View], cut: Cut
) -> tuple[View, ...]:
    """Return the tables whose settled totals form a circle, in the order in which they are
    fitted.
    """
    if needs_joint_fit(grid, views, exact, cut):
        return _circles(_from_small_to_large(grid, views), exact)
    return fit_order(grid, views, exact, cut).circles


def _from_small_to_large(grid: Grid, views: Sequence[View]) -> list[View]:
    """Each table once, in the order in which one piece fits them."""
    in_turn = [views[number] for number in by_size(grid, views)]
    return list(dict.fromkeys(in_turn))


def _circles(in_turn: Iterable[View], exact: Iterable[View]) -> tuple[View, ...]:
    """Tables whose settled margins (exact totals and earlier tables) are not decomposable."""
    settled, circles = SettledViews(*exact), []
    for view in in_turn:
        if junction_order(list(settled.largest_margins(view))) is None:
            circles.append(view)
        settled.add(view)
    return tuple(circles)


def _remaining_cycles(
    stages: Sequence[Sequence[View]], circles: Sequence[View], exact: Iterable[View]
) -> list[View]:
    """Tables that stay in a circle even if they come first in their stage. The stages are before,
    in and after the parts.
    """
    settled, closed = SettledViews(*exact), []
    for stage in stages:
        for view in stage:
            if view not in circles:
                continue
            fixed = list(settled.largest_margins(view))
            if junction_order(fixed) is None:
                closed.append(view)
        for view in stage:
            settled.add(view)
    return closed


def shares(view: View, fixed: Iterable[View], cut: Cut) -> list[View]:
    """Return the margins at the cut by which the totals that cross parts are divided, in the order
    of their fits.

    Let P be the depths of the cut feature down to the cut. A total M that does not name all of P
    crosses parts; its shares are the margin M ∪ P. If the totals are decomposable, so are they with
    P added to all of them: one junction tree serves both. Rooted at a total with the deepest part
    of P and fitted from there, the totals of which some have P already keep that tree, because
    those that have it and those that are named by the root hang together. So no share meets a
    circle, and neither does the table in a part.

    Parameters
    ----------
    view
        The table.
    fixed
        The totals that are settled of it.
    cut
        Where it is cut.

    Examples
    --------
    >>> shares((3, 1, 1), [(2, 0, 0), (0, 1, 0), (0, 0, 1)], Cut(0, 1))
    [(1, 1, 0), (1, 0, 1)]
    >>> shares((3, 1, 1), [(3, 1, 0), (3, 0, 1)], Cut(0, 1))
    []
    """
    nothing = (0,) * len(view)
    prefix = (*nothing[: cut.axis], cut.depth, *nothing[cut.axis + 1 :])
    every = list(fixed)
    if not any(other[cut.axis] < cut.depth for other in every):
        return []
    at_cut = maximal(cut.coarsen_view(other) for other in every) or [nothing]
    # The junction tree is rooted at its first view, which must name the deepest part of P.
    at_cut.sort(key=lambda other: -other[cut.axis])
    in_turn = junction_order(at_cut)
    if in_turn is None:  # totals in a circle are split together
        coarser = [other for other in at_cut if other[cut.axis] < cut.depth]
        return [join(prefix, *coarser)]
    coarser = [other for other in in_turn if other[cut.axis] < cut.depth]
    return [join(prefix, other) for other in coarser]


@dataclass(frozen=True, eq=False)
class CutFit:
    """What is settled of the tables of one request before the parts are carried out.

    Parameters
    ----------
    order
        The order of fits.
    first
        Tables of the parts that come before everything else, because their shares were not found
        otherwise.
    unfitted
        Tables of the parts without whole numbers at the cut that have all totals.
    fits
        The early tables.
    totals
        Whatever is settled at the cut: exact totals, early tables, shares of what crosses parts.
    """

    order: FitOrder
    first: tuple[View, ...]
    unfitted: frozenset[View]
    fits: Fits = field(repr=False)
    totals: tuple[Totals, ...] = field(repr=False)

    def part(self, grid: Grid, cut: Cut, node: int, views: Sequence[View]) -> "PartFit":
        """Return how the tables of one part are fitted; `views` are their views."""
        totals = []
        for total in self.totals:
            # Coarser totals belong to several parts, and bind this one through its shares.
            if total.view[cut.axis] == cut.depth:
                counts = cut.row(grid, total.view, total.counts, node)
                totals.append(Totals(total.view, counts))
        places = {view: place for place, view in enumerate(self.order.below)}
        fitted = [number for number, view in enumerate(views) if view in places]
        unfitted = [number for number in range(len(views)) if number not in fitted]
        in_turn = sorted(fitted, key=lambda number: places[views[number]])
        first = []
        for view in self.first:
            first += [number for number in in_turn if views[number] == view]
        without_whole = [number for number, view in enumerate(views) if view in self.unfitted]
        # All parts together may take as long as one piece.
        parts = grid.chains[cut.axis].size(cut.depth)
        seconds = max(LEAST_SECONDS, FIT_SECONDS / parts)
        order = (*in_turn, *unfitted)
        return PartFit(tuple(totals), order, tuple(first), frozenset(without_whole), seconds)


@dataclass(frozen=True, eq=False)
class PartFit:
    """How the tables of one part are fitted. Tables go by their numbers.

    Parameters
    ----------
    totals
        What is settled at the cut for this part.
    order, first
        The order of fits, and what comes before everything else.
    unfitted
        Tables that have no whole numbers at the cut with all totals, and so in no part.
    seconds
        How long the search for one table may take: all parts together about as long as one piece.
    """

    totals: tuple[Totals, ...] = field(repr=False)
    order: tuple[int, ...]
    first: tuple[int, ...]
    unfitted: frozenset[int]
    seconds: float


def fit_at_cut(
    grid: Grid,
    views: Sequence[View],
    exact: Sequence[Totals],
    cut: Cut,
    estimates: Mapping[View, Floats],
    progress: Progress,
) -> CutFit:
    """Settle what the parts need: the early tables, and the shares of every total that crosses
    parts.

    Parameters
    ----------
    grid, views, exact, cut
        All cells, the tables that are fitted, the exact totals with n, and where tables are cut.
    estimates
        Of every table, at the cut.
    progress
        Told what is going on.
    """
    order = fit_order(grid, views, [total.view for total in exact], cut)
    first: list[View] = []
    unfitted: set[View] = set()
    # Each table is put first at most once and given up at most once, so the loop ends.
    while True:
        fits = fit_views(grid, order.early, exact, estimates, progress)
        settled = [*exact, *whole_totals(fits)]
        stuck = _settle_shares(grid, order, settled, unfitted, cut, estimates, progress)
        if stuck is None:
            return CutFit(order, tuple(first), frozenset(unfitted), fits, tuple(settled))
        if stuck in first:
            unfitted.add(stuck)
        else:
            first.insert(0, stuck)
            order = order.with_first(stuck)


def fit_views(
    grid: Grid,
    views: Sequence[View],
    totals: Sequence[Totals],
    estimates: Mapping[View, Floats],
    progress: Progress,
) -> Fits:
    """Return the whole numbers of tables at the cut or above, by their views."""
    fit_kinds = [FitKind.integer] * len(views)
    of_views = [estimates[view] for view in views]
    as_listed = range(len(views))
    fits = fit_product(grid, views, totals, of_views, fit_kinds, progress, order=as_listed)
    return dict(zip(views, fits, strict=True))


def whole_totals(fits: Fits) -> list[Totals]:
    """Return the fitted tables that others are fitted to."""
    totals = []
    for view, (counts, how) in fits.items():
        if how.kind == FitKind.integer:
            totals.append(Totals(view, counts))
    return totals


def _settle_shares(
    grid: Grid,
    order: FitOrder,
    totals: list[Totals],
    unfitted: set[View],
    cut: Cut,
    estimates: Mapping[View, Floats],
    progress: Progress,
) -> View | None:
    """Divide the totals that cross parts, and add the shares to the totals. Return the first table
    that has no shares, if any.
    """
    counts = Settled(grid, totals)
    settled = SettledViews(*(total.view for total in totals))
    for view in order.below:
        if view in unfitted:
            continue
        for share in shares(view, settled.largest_margins(view), cut):
            if share in counts.largest_margins(share):  # an earlier table needed it too
                continue
            above = cut.coarsen_view(view)
            # Shares are fitted to noisy estimates: the true ones would publish exact counts.
            estimate = grid.sum(estimates[above], share, above)
            try:
                fit = fit_totals(
                    estimate, grid.coarsen(share), counts.margins(share), progress=progress
                )
            except Infeasible:
                return view
            if fit.counts is None:
                return view
            counts.settle(Totals(share, fit.counts))
            totals.append(Totals(share, fit.counts))
        settled.add(view)
    return None
