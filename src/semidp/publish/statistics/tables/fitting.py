"""Whole numbers for several tables that agree, fitted from the coarsest to the finest.

All tables come from one set of measured residuals, so that a number that occurs in two of them is
the same number. Everything after the measurement is post-processing of public values.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.progress import Progress
from semidp.promise.schema.margins import (
    Grid,
    Mask,
    Totals,
    View,
    is_within_view,
    junction_order,
    list_axes,
    maximal,
    meet,
    trimmed_view,
)
from semidp.promise.sensitivity.orthogonal_parts import list_coarser_views
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.fitting.problem import Infeasible
from semidp.publish.fitting.tables import Fit, fit_alike, fit_totals
from semidp.publish.half_widths import INTERVALS_BELOW, table_half_widths
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit

_CELLS_TOGETHER = 100_000  # of tables that are fitted together
_FEW = 64  # views below a table that are looked up one by one
FIT_SECONDS = 30.0
"""How long the search for the whole numbers of one table may take where its totals hang together in
a circle."""

NOT_ALL = "No whole numbers with all its totals were found."
"""How the note of a table begins that has no whole numbers with all its totals."""


def fitted_tables(
    mechanism: ResidualMechanism,
    projected: NDArray[np.float64],
    names: Sequence[str],
    fit_kinds: list[FitKind],
    progress: Progress,
    stored: Sequence[StoredFit] = (),
) -> tuple[PublishedTable, ...]:
    """Put every table together from the measured residuals, then fit whole numbers from coarse to
    fine, unless fits are stored.
    """
    space, schema = mechanism.space, mechanism.space.schema
    estimates = mechanism.estimates(projected)
    possible = [space.possible(number) for number in range(len(space.views))]
    totals = exact_totals(space)
    fits = stored or fit_product(
        schema.grid, space.views, totals, estimates, fit_kinds, progress, possible=possible
    )
    tables = []
    pairs = zip(names, space.views, strict=True)
    for number, (name, view) in enumerate(pairs):
        cells = schema.restrict(schema.list_view_names(view))
        counts, how = fits[number]
        errors = mechanism.table_errors(number)
        half = None
        if cells.size < INTERVALS_BELOW:
            half = table_half_widths(mechanism, number)
        table = PublishedTable(name, cells, counts, estimates[number], errors, how, half)
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
    """Return whole numbers for every table, coarsest first, each with what earlier tables and exact
    totals fix of it.

    Earlier noisy tables are constraints, so that a table may have no whole numbers that agree with
    all of them unless the workload is decomposable. Such a table is fitted first, with the exact
    totals alone, and the others after it: those that it contains are its sums. Where it still has
    none, because the exact totals hang together in a circle, it gets whole numbers with as many of
    its totals as can be promised, and its note says so. Nothing looks at the data again.

    Parameters
    ----------
    grid, views
        The cells of all features, and the tables.
    totals
        The counts that are settled already: exact totals, or tables that were fitted before.
    estimates, fit_kinds
        For each table its estimate, and whether it is fitted.
    progress
        Told what is going on.
    order
        The tables in the order in which they are fitted; from the smallest to the largest unless
        given.
    first
        Tables that are fitted before all others, with the settled counts alone.
    time_limit
        Seconds that the search for one table may take where its totals hang together in a circle.
    possible
        For each table the cells that may be filled, or None where all may.
    """
    sizes = by_size(grid, views) if order is None else list(order)
    all_cells = [None] * len(views)
    masks = all_cells if possible is None else list(possible)
    tables = _Tables(grid, views, totals, estimates, fit_kinds, time_limit, masks)
    early = list(first)
    # All fits begin anew, because those made before a stuck table stood in its way. No table is
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


@dataclass(frozen=True, eq=False)
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
    """Margins that are settled, whatever their counts: which of them fixes what of a table.

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
        """Return what is settled of a table, in its features alone."""
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
            how = replace(how, optimal=False, note=note)
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
    """Return the fit of a table to what is settled of it; None where no whole numbers were
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
