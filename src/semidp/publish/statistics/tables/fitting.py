"""Whole numbers for several tables that agree, fitted from the coarsest to the finest.

All tables come from one set of measured residuals, so a number that occurs in two of them is
the same number. Everything here uses only public values.

For tables that are cut, some whole numbers are settled before the parts, some in each part, and
some after them. A total that crosses parts is best divided in view of the cells of all parts. So if
one does, or if totals form a cycle, all parts are measured first and then fitted in one piece, up
to `MOST_TOGETHER` cells.

Otherwise each part is fitted by itself, and must not meet a cycle of totals that one piece does not
have. So only what one piece also settles is settled at the cut: exact totals, tables that do not
reach below the cut, and each part's share of totals that cross parts. The tables of the parts are
fitted under these in the order of one piece; at the cut they are the sums of the parts.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.progress import Progress
from semidp.promise.schema.margins import (
    Grid,
    Mask,
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
from semidp.promise.sensitivity.orthogonal_parts import list_coarser_views
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.fitting.real import Infeasible
from semidp.publish.fitting.tables import Fit, fit_alike, fit_totals
from semidp.publish.half_widths import INTERVALS_BELOW, table_half_widths
from semidp.publish.product_estimates import mask_possible_cells
from semidp.publish.residual_mechanism import ResidualMechanism, SharedNoise
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit

_CELLS_TOGETHER = 100_000  # of tables that are fitted together
_FEW = 64  # views below a table that are looked up one by one
Floats = NDArray[np.float64]
FIT_SECONDS = 30.0
"""The time limit, in seconds, of the search for the whole numbers of a table whose totals form a
cycle."""

NOT_ALL = "No whole numbers with all its totals were found."
"""The beginning of the note of a table without whole numbers that have all its totals."""


def fitted_tables(
    mechanism: ResidualMechanism,
    projected: NDArray[np.float64],
    names: Sequence[str],
    fit_kinds: list[FitKind],
    progress: Progress,
    stored: Sequence[StoredFit] = (),
) -> tuple[PublishedTable, ...]:
    """Assemble every table from the measured residuals, then fit whole numbers from coarse to fine,
    unless fits are stored.
    """
    space = mechanism.space
    estimates = mechanism.estimates(projected)
    possible = [mask_possible_cells(space, number) for number in range(len(space.views))]
    totals = exact_totals(space)
    fits = stored or fit_product(
        space.schema.grid, space.views, totals, estimates, fit_kinds, progress, possible=possible
    )
    return build_tables(mechanism, names, estimates, fits)


def build_tables(
    noise: SharedNoise,
    names: Sequence[str],
    estimates: Sequence[NDArray[np.float64]],
    fits: Sequence[StoredFit],
) -> tuple[PublishedTable, ...]:
    """Return tables that were measured together as they are published, from their estimates, and
    from whole numbers of the published cells.
    """
    tables = []
    parts = zip(names, estimates, fits, strict=True)
    for number, (name, estimate, (counts, how)) in enumerate(parts):
        half = None
        if estimate.size < INTERVALS_BELOW:
            half = table_half_widths(noise, number)
        schema, errors = noise.table_schema(number), noise.table_errors(number)
        cells, counted = noise.published_cells(estimate, number), noise.find_kind(number)
        table = PublishedTable(name, schema, counts, cells, errors, how, half, counted=counted)
        tables.append(table)
    return tuple(tables)


def fit_product(
    grid: Grid,
    views: Sequence[View],
    totals: Sequence[Totals],
    estimates: list[NDArray[np.float64]],
    fit_kinds: list[FitKind],
    progress: Progress,
    *,
    order: Sequence[int] | None = None,
    first: Sequence[int] = (),
    time_limit: float = FIT_SECONDS,
    possible: Sequence[Mask | None] | None = None,
) -> list[tuple[NDArray[Any], Fitted]]:
    """Return whole numbers for every table, coarsest first, each under the totals that earlier
    tables and exact totals fix.

    Earlier noisy tables are constraints, so a table may have no whole numbers that agree with
    all of them unless the workload is decomposable. Such a table is fitted first, with the exact
    totals alone, and the others after it: those that it contains are its sums. If it still has
    none, because the exact totals form a cycle, it gets whole numbers with as many of its totals as
    can be guaranteed, and a note says so. The data are never looked at again.

    Parameters
    ----------
    grid, views
        The cells of all features, and the tables.
    totals
        The counts that are already settled: exact totals, or tables that were fitted before.
    estimates, fit_kinds
        For each table its estimate, and whether it is fitted.
    progress
        Told what is going on.
    order
        The tables in the order in which they are fitted
        (default: from the smallest to the largest).
    first
        Tables that are fitted before all others, under the settled counts alone.
    time_limit
        Seconds for the search for one table if its totals form a cycle.
    possible
        For each table the cells that may be filled, or None if all may.
    """
    sizes = by_size(grid, views) if order is None else list(order)
    all_cells = [None] * len(views)
    masks = all_cells if possible is None else list(possible)
    tables = _Tables(grid, views, totals, estimates, fit_kinds, time_limit, masks)
    early = list(first)
    # All fits start over, because those made before a stuck table stood in its way. No table is
    # moved twice, so the loop ends.
    while True:
        fits: dict[int, tuple[NDArray[Any], Fitted]] = {}
        in_turn = [*early, *(number for number in sizes if number not in early)]
        stuck = _fit_in_order(tables, in_turn, len(early), fits, progress)
        if stuck is None:
            return [fits[number] for number in range(len(views))]
        early.insert(0, stuck)


def by_size(grid: Grid, views: Sequence[View]) -> list[int]:
    """Return the numbers of tables from the smallest to the largest: a table comes after all that
    it contains.

    >>> by_size(Grid.flat((2, 9)), [(1, 1), (0, 1), (1, 0)])
    [2, 1, 0]
    """
    sizes = [grid.count_margin_cells(view) for view in views]
    # Sorting is stable: of two tables of a size the first stays first.
    return sorted(range(len(views)), key=sizes.__getitem__)


def exact_totals(space: ProductSpace) -> list[Totals]:
    """Return the exact counts that the tables of a product are fitted to: n, and every published
    margin.
    """
    size = np.array(space.dataspace.n, dtype=np.int64)
    n = Totals(space.schema.grid.nothing, size)
    return [n, *space.dataspace.published_totals]


@frozen(eq=False)
class _Tables:
    """What `fit_product` is given."""

    grid: Grid
    views: Sequence[View]
    totals: Sequence[Totals]
    estimates: list[NDArray[np.float64]]
    fit_kinds: list[FitKind]
    time_limit: float
    possible: Sequence[Mask | None]


class SettledViews:
    """Settled margins, without their counts: which of them fix which totals of a table.

    >>> settled = SettledViews((0, 0, 0))
    >>> settled.add((1, 1, 0))
    >>> settled.add((0, 1, 1))
    >>> sorted(settled.largest_margins((1, 0, 1)))
    [(0, 0, 1), (1, 0, 0)]
    """

    def __init__(self, *views: View) -> None:
        self._every: list[View] = []
        self._wide: list[View] = []
        self._given: dict[View, View] = {}
        for view in views:
            self.add(view)

    def add(self, view: View) -> None:
        """Settle a margin; those of few features are found by every view below them."""
        self._every.append(view)
        if _views_below(view) > _FEW:
            self._wide.append(view)
        else:
            self._given.update((small, view) for small in list_coarser_views(view))

    def ready(self, view: View) -> bool:
        """Whether everything coarser than a table is settled, by two margins of it at most, and
        itself is not.
        """
        # Two margins never close a circle, so the table can be fitted with others of its shape.
        axes = list_axes(view)
        if len(axes) > 2 or view in self._given:
            return False
        for axis in axes:
            coarser = list(view)
            coarser[axis] -= 1
            if tuple(coarser) not in self._given:
                return False
        return True

    def largest_margins(self, view: View) -> dict[View, View]:
        """Return the largest settled margins of a table, each with the settled view that
        gives it.
        """
        # The cheaper search: among the views below this table, or among all settled margins.
        few = _views_below(view) <= max(_FEW, len(self._every))
        margins = self._wide if few else self._every
        givers = {meet(giver, view): giver for giver in margins}
        if few:
            for small in list_coarser_views(view):
                if small in self._given:
                    givers[small] = self._given[small]
        nothing = tuple(0 for _ in view)
        return {shared: givers[shared] for shared in maximal(givers) or [nothing]}


class Settled(SettledViews):
    """Settled counts (exact totals and tables fitted before) by the views that they give."""

    def __init__(self, grid: Grid, totals: Iterable[Totals] = ()) -> None:
        super().__init__()
        self.grid = grid
        self._counts: dict[View, Totals] = {}
        for total in totals:
            self.settle(total)

    def settle(self, total: Totals) -> None:
        """Settle the counts of a margin."""
        self.add(total.view)
        self._counts[total.view] = total

    def margins(self, view: View) -> list[Totals]:
        """Return the settled margins of a table, in its own features."""
        margins = []
        for shared, giver in self.largest_margins(view).items():
            summed = self._counts[giver].sum_to_view(self.grid, shared)
            margins.append(Totals(trimmed_view(shared, view), summed.counts))
        return margins


def _views_below(view: View) -> int:
    return math.prod(depth + 1 for depth in view)


def _fit_in_order(
    tables: _Tables,
    order: list[int],
    early: int,
    found: dict[int, tuple[NDArray[Any], Fitted]],
    progress: Progress,
) -> int | None:
    """Fit one table after the other; return the first after the early ones that has no whole
    numbers, if any.

    A table of which the sums over every feature are settled waits for no other, and others wait for
    it only if they contain it: such tables are fitted together.
    """
    grid, waiting = tables.grid, list[int]()
    settled = Settled(grid, tables.totals)

    def keep(number: int, fit: Fit, early: bool = False) -> None:
        assert fit.counts is not None, "whole numbers were asked for, and found"
        how = Fitted("integer", fit.method, fit.loss, fit.bound, fit.optimal, fit.note)
        if early:
            note = (
                "Fitted before the others, which follow from it: no whole numbers agreed with all"
                " of them."
            )
            how = evolve(how, optimal=False, note=note)
        found[number] = (fit.counts, how)
        settled.settle(Totals(tables.views[number], fit.counts))

    def fit_waiting() -> int | None:
        for some, part, margins in _alike(tables, waiting, settled):
            progress("fitting whole numbers", len(found), len(order))
            try:
                fits = fit_alike([tables.estimates[number] for number in some], part, margins)
            except Infeasible:
                return some[0]
            for each, fit in zip(some, fits, strict=True):
                keep(each, fit)
        waiting.clear()
        return None

    for place, number in enumerate(order):
        view = tables.views[number]
        kind = tables.fit_kinds[number]
        if kind is not FitKind.integer:
            note = "The estimate itself is published."
            how = Fitted(str(kind), "none", 0.0, 0.0, True, note)
            found[number] = (tables.estimates[number], how)
            continue
        unmasked = tables.possible[number] is None
        if place >= early and settled.ready(view) and unmasked:
            waiting.append(number)
            continue
        # A waiting table that this one contains is a total of it. Those that only overlap with it
        # may wait: what they share with it was settled before.
        if any(is_within_view(tables.views[other], view) for other in waiting):
            stuck = fit_waiting()
            if stuck is not None:
                return stuck
        fit = _whole_numbers(tables, number, settled.margins(view), progress)
        if fit is not None:
            keep(number, fit, place < early)
        elif place >= early:
            return number
        else:
            # It is not settled for later tables, because it misses totals that they must have.
            found[number] = _without_circle(tables, number, settled, progress)
    return fit_waiting()


def _whole_numbers(
    tables: _Tables, number: int, margins: Sequence[Totals], progress: Progress
) -> Fit | None:
    """Return the fit of a table to what is settled of it; None if no whole numbers were
    found.
    """
    part = tables.grid.coarsen(tables.views[number])
    estimate = tables.estimates[number]
    possible = tables.possible[number]
    seconds = tables.time_limit
    try:
        fit = fit_totals(estimate, part, margins, possible, time_limit=seconds, progress=progress)
    except Infeasible:
        return None
    return None if fit.counts is None else fit


def _without_circle(
    tables: _Tables, number: int, settled: Settled, progress: Progress
) -> tuple[NDArray[np.int64], Fitted]:
    """Return nonnegative whole numbers for a table whose settled totals hang together in a circle.

    They have those of its totals that a junction tree joins, taken in turn: decomposable totals
    that agree with each other always have a table of whole numbers (docs/products.md).
    """
    kept: list[Totals] = []
    margins = settled.margins(tables.views[number])
    for margin in margins:
        if junction_order([total.view for total in (*kept, margin)]) is not None:
            kept.append(margin)
    fit = _whole_numbers(tables, number, kept, progress)
    if fit is None or fit.counts is None:
        return nearest_whole(tables.estimates[number])
    note = (
        f"{NOT_ALL} Its counts have {len(kept)} of {len(margins)} of them, and need not agree with"
        " other tables."
    )
    return fit.counts, Fitted("none", fit.method, fit.loss, 0.0, False, note)


def nearest_whole(estimate: NDArray[np.float64]) -> tuple[NDArray[np.int64], Fitted]:
    """Return the nearest nonnegative whole numbers, for a table without whole numbers that have its
    totals.

    >>> nearest_whole(np.array([2.7, -1.2]))[0]
    array([3, 0])
    """
    counts = np.maximum(np.rint(estimate), 0.0).astype(np.int64)
    loss = float(np.square(counts - estimate).sum())
    note = f"{NOT_ALL} Its counts are the estimates, rounded, and need not agree with any total."
    return counts, Fitted("none", "rounding", loss, 0.0, False, note)


def _alike(
    tables: _Tables, numbers: Sequence[int], settled: Settled
) -> Iterator[tuple[list[int], Grid, list[list[Totals]]]]:
    """Yield tables of one shape with the same settled margins together, as many as a fit takes at
    once.
    """
    groups: dict[tuple[Grid, tuple[View, ...]], list[int]] = {}
    settled_margins = {}
    for number in numbers:
        view = tables.views[number]
        margins = settled.margins(view)
        settled_margins[number] = margins
        views = tuple(total.view for total in margins)
        groups.setdefault((tables.grid.coarsen(view), views), []).append(number)
    for (part, _), alike in groups.items():
        size = max(1, _CELLS_TOGETHER // part.count_margin_cells(part.full))
        for start in range(0, len(alike), size):
            some = alike[start : start + size]
            yield some, part, [settled_margins[number] for number in some]


MOST_CHOSEN = 7
"""Up to so many tables at the cut or above, every choice of those that come before the parts is
tried."""
MOST_TOGETHER = 10_000_000
"""Up to so many cells in all, tables with totals that cross parts are fitted in one piece: less
than 1 GB of memory."""
LEAST_SECONDS = 2.0
"""The least time limit of the search for one table of a part, however many parts there are."""

Fits = dict[View, tuple[NDArray[Any], Fitted]]


@frozen
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
        Tables whose settled totals form a cycle, so whole numbers may not exist.
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
    """Return an order of fits by parts that closes no cycle of totals except those of one
    piece.

    One piece goes from the smallest table to the largest. Parts cannot: a table at the cut comes
    before all parts or after them. It comes after them if one piece fits it after all of their
    tables. Otherwise it should come before, so that they agree with it and not it with sums of many
    cells. If that closes a cycle that one piece does not have, or leaves a table no way out of one,
    other orders are tried, and the best is taken.

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

    This is the case if a part alone would be fitted differently than in one piece: a total crosses
    parts, and the best share of each part depends on cells below the cut; or totals form a cycle,
    and the order of fits matters.

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
    """Return the tables whose settled totals form a cycle, in the order in which they are
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
    those that have it and those that are named by the root are connected. So no share meets a
    cycle, and neither does the table in a part.

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


@frozen(eq=False)
class CutFit:
    """The settled part of the tables of one request before the parts run.

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
        Everything settled at the cut: exact totals, early tables, shares of totals that cross
        parts.
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


@frozen(eq=False)
class PartFit:
    """How the tables of one part are fitted. Tables are identified by their numbers.

    Parameters
    ----------
    totals
        What is settled at the cut for this part.
    order, first
        The order of fits, and what comes before everything else.
    unfitted
        Tables that have no whole numbers at the cut with all totals, and so in no part.
    seconds
        The time limit of the search for one table: all parts together take about as long as one
        piece.
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
