"""Tables whose parts are estimated and fitted one by one, under tables at the cut: their whole
numbers, and the published result.

So it is wherever no number depends on two parts at once, and for tables that no machine holds. The
release holds the tables at the cut. The cells below it are in the folders of the parts, and are
read when they are asked for.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut, mechanism_above
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Grid, Totals, View, join, junction_order, maximal
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import RECORD
from semidp.publish.fitting.problem import Infeasible
from semidp.publish.fitting.tables import fit_totals
from semidp.publish.half_widths import INTERVALS_BELOW, branch_half_widths
from semidp.publish.residual_mechanism import ResidualMechanism, residual_variance
from semidp.publish.results.columns import Columns, StoredFiles
from semidp.publish.results.published_table import (
    FitKind,
    Fitted,
    FittedTable,
    PublishedTable,
    StoredFit,
    file_stem,
    read_cells,
    refuse_contradiction,
)
from semidp.publish.statistics.parts import Part, Partition, PartTable, refuse_changed
from semidp.publish.statistics.protocol.requests import Request, RequestMeasurement
from semidp.publish.statistics.protocol.results import Published, mechanism_fields
from semidp.publish.statistics.tables.asked import TableRequest, TablesAsked, measurements_stem
from semidp.publish.statistics.tables.cut_tables import (
    CutKind,
    TableBlocks,
    cut_plain,
    read_residuals,
    residual_columns,
    residuals_json,
    split_residuals,
)
from semidp.publish.statistics.tables.fitting import (
    FIT_SECONDS,
    Settled,
    SettledViews,
    by_size,
    exact_totals,
    fit_product,
    fitted_tables,
)
from semidp.publish.statistics.tables.published import PublishedTables
from semidp.publish.statistics.tables.words import CellErrors, misses_totals

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


_NAMED_PARTS = 5  # in a warning
_NOTES = 3  # of fits of one table, in a report


class TableOfParts(PublishedTable):
    """A table whose cells are read from the folders of the parts when they are asked for.

    Parameters
    ----------
    name, schema
        Its name and its features.
    partition
        The parts, and where they are.
    """

    def __init__(self, name: str, schema: Schema, partition: Partition) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "name", name)
        keep(self, "schema", schema)
        keep(self, "_partition", partition)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        partition: Partition = self.__dict__["_partition"]
        if partition.place is None:
            raise InputError(
                f"the cells of {self.name!r} are in the folder of the release, which is not known"
            )
        cut, grid = Cut.from_name(self.schema, partition.depth), self.schema.grid
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            rows = cut.branch(self.schema, node)
            fitted = part.find_fit(self.name)
            table = PublishedTable.read(partition.files(part), self.name, rows, fitted)
            for name in ("counts", "estimate", "standard_errors", "half_widths"):
                column = getattr(table, name)
                if column is None:
                    continue
                # Counts of a part without whole numbers are real ones, and so are those of the
                # whole table then.
                before = cells.get(name, np.zeros(self.schema.shape, column.dtype))
                kind = np.result_type(before.dtype, column.dtype)
                cells[name] = before.astype(kind, copy=False)
                row = cut.row(grid, grid.full, cells[name], node)
                row[...] = column.reshape(row.shape)
        return cells

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        partition: Partition = self.__dict__["_partition"]
        fits = [part.find_fit(self.name) for part in partition.parts]
        not_whole = [fit.kind for fit in fits if fit.kind != FitKind.integer]
        methods = dict.fromkeys(fit.method for fit in fits)
        notes = dict.fromkeys(fit.note for fit in fits if fit.note)
        return Fitted(
            # One part without whole numbers is enough for the table to have none with all totals.
            kind=not_whole[0] if not_whole else str(FitKind.integer),
            method=", ".join(methods),
            # Parts hold different cells, so squared distances and their lower bounds add up.
            loss=sum(fit.loss for fit in fits),
            bound=sum(fit.bound for fit in fits),
            optimal=all(fit.optimal for fit in fits),
            note=" ".join(notes),
        )

    @cached_property
    def counts(self) -> NDArray[Any]:
        """Published counts, of all parts."""
        return self._cells["counts"]

    @cached_property
    def estimate(self) -> Floats:
        """The unbiased estimate, in all parts."""
        return self._cells["estimate"]

    @cached_property
    def standard_errors(self) -> Floats:
        """The standard errors of the estimate, in all parts."""
        return self._cells["standard_errors"]

    @cached_property
    def half_widths(self) -> Floats | None:
        """Half-widths of the 95% intervals; None where a part is too large to have them."""
        return self._cells.get("half_widths")


@dataclass(frozen=True, eq=False)
class RowAtCut:
    """The cells at the cut, for one part, of a table that reaches below it: the estimate, its
    variance, and the published whole numbers (None where there are none).
    """

    asked: TableRequest
    estimate: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


_EMPTY = Fitted(
    "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
)


def estimate_branch_tables(
    branch: BranchNoise,
    noisy: Mapping[View, NDArray[np.int64]],
    above: Sequence[tuple[Floats, Floats]],
) -> list[tuple[Floats, Floats]]:
    """Return the estimate of each table and the variance of each of its cells, from the
    residuals below the cut.

    `above` has for each table its estimate at the cut for this node, and the variance of that.
    """
    space, residuals = branch.space, branch.space.residuals
    estimates, variances = [], []
    for number, (row, square) in enumerate(above):
        estimates.append(np.array(space.divide_below_cut(row, number)))
        variances.append(np.array(space.divide_below_cut(square, number, 2)))
    for number, view in enumerate(space.views):
        for small, exact_part in space.exact_residuals.items():
            depths = zip(small, view, strict=True)
            if all(one <= other for one, other in depths):
                estimates[number] += residuals.spread(exact_part, small, view)
    for small, holders in space.holders.items():
        scale = residuals.scale(small)
        centred = residuals.center(small, noisy[small] / scale)
        variance_before = residual_variance(branch.law, branch.sigma2[small], scale)
        centred_variance = residuals.centred_variance(small, variance_before)
        for number in holders:
            view = space.views[number]
            estimates[number] += residuals.spread(centred, small, view)
            variances[number] += residuals.spread(centred_variance, small, view, power=2)
    tables = []
    for number, view in enumerate(space.views):
        estimate = space.restore_full_table(estimates[number], view)
        tables.append((estimate, space.restore_full_table(variances[number], view)))
    return tables


def estimate_part(
    noise: BranchNoise, noisy: NDArray[np.int64], rows: Sequence[RowAtCut]
) -> list[tuple[Floats, Floats]]:
    """Return the estimates and variances of the tables of one part, from what was measured in it
    and at the cut.
    """
    above = [(row.estimate, row.variance) for row in rows]
    return estimate_branch_tables(noise, split_residuals(noise.space, noisy), above)


def build_part(
    schema: Schema,
    asked: Sequence[TableRequest],
    noise: BranchNoise | None,
    estimated: Sequence[tuple[Floats, Floats]] | None,
    fits: Sequence[StoredFit],
) -> list[PublishedTable]:
    """Return the tables of one part with their whole numbers. Where nobody can be, there is no
    noise, and nothing is estimated.
    """
    half_widths = None if noise is None else branch_half_widths(noise, INTERVALS_BELOW)
    tables = []
    for number, (table, (counts, how)) in enumerate(zip(asked, fits, strict=True)):
        rows = schema.restrict(table.features)
        zero = np.zeros(rows.shape)
        estimate, variance = (zero, zero) if estimated is None else estimated[number]
        half = zero if half_widths is None else half_widths[number]
        cells, errors = counts.reshape(rows.shape), np.sqrt(variance)
        tables.append(PublishedTable(table.name, rows, cells, estimate, errors, how, half))
    return tables


def fit_nobody(schema: Schema, asked: Sequence[TableRequest]) -> list[StoredFit]:
    """Return the whole numbers of a part where nobody can be."""
    shapes = [schema.restrict(table.features).shape for table in asked]
    return [(np.zeros(shape, dtype=np.int64), _EMPTY) for shape in shapes]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SeparateTables(PublishedTables):
    """Tables that were measured and fitted at a cut and above it first, and below it part by part.

    Parameters
    ----------
    request, residuals
        What was asked for, and the noise of every residual, above the cut and below.
    cut
        The depth at which the tables were taken apart.
    noisy
        The measured residuals at the cut and above, as drawn, times their scales.
    tables
        The tables that were asked for. Their cells are read from the folders of the parts when they
        are asked for.
    overview
        Every table as it is at the cut: those that reach below it are summed to it.
    parts
        The parts of the release, when all of them are done.
    """

    tables: tuple[PublishedTable, ...] = ()
    cut: Cut
    overview: tuple[PublishedTable, ...]
    parts: tuple[Part, ...] = field(default=(), repr=False)

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.noise_of_residuals.space.schema

    @property
    def depth(self) -> str:
        """Name of the depth of the cut."""
        return self.cut.name(self.schema)

    @cached_property
    def kind(self) -> CutKind:
        """The tables, cut."""
        (kind,) = cut_plain(self.request.tables, self.noise_of_residuals, self.schema, self.cut)
        return kind

    @cached_property
    def mechanism_above_cut(self) -> ResidualMechanism:
        """The noise at the cut and above it."""
        return mechanism_above(self.noise_of_residuals, self.cut)

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut."""
        return self.kind.below

    # --- what is said of it

    @cached_property
    def cell_errors(self) -> list[CellErrors]:
        """How wrong the cells of each table are, from what the parts tell."""
        overview = {table.name: table for table in self.overview}
        every = []
        for asked in self.request.tables:
            pieces = self._pieces(asked)
            if asked not in self.tables_below_cut:
                every.append(CellErrors.from_table(overview[asked.name]))
                continue
            cells = self.schema.restrict(asked.features)
            title = " by ".join(cells.names)
            every.append(errors_from_parts(asked.name, title, cells.size, pieces))
        return every

    def _pieces(self, asked: TableRequest) -> list[PartTable]:
        """What the parts tell of one table."""
        return [piece for part in self.parts for piece in part.tables if piece.name == asked.name]

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        return ["noise on residuals (what each table has beyond its totals), part by part"]

    def parts_text(self) -> str:
        """Say how tables were measured part by part."""
        depth = self.depth
        return (
            f"Every table was first measured at the depth of {depth} and above. Totals of several"
            f" parts together were divided between the parts there. Below that depth, each {depth}"
            " was measured and fitted by itself, from its own records and from these public"
            " numbers. All noise was calibrated to the whole, so that there is one guarantee. What"
            f" a finer table counts by {depth} is the sum of its parts."
        )

    def fit_notes(self) -> Iterator[str]:
        """Say which tables may not be the closest ones; many parts have the same note."""
        for asked in self.request.tables:
            fits = [piece.fitted for piece in self._pieces(asked)]
            fits += [table.fitted for table in self.overview if table.name == asked.name]
            notes = dict.fromkeys(fit.note for fit in fits if not fit.optimal and fit.note)
            yield from list(notes)[:_NOTES]

    def missed_totals(self) -> Iterator[str]:
        """Name the tables that were asked for in whole numbers and have none with all totals, and
        in which parts.
        """
        above = {table.name: table.fitted for table in self.overview}
        for asked in fitted_requests(self.request):
            if asked not in self.tables_below_cut:
                if above[asked.name].kind != FitKind.integer:
                    yield misses_totals(asked.name)
                continue
            missed = [part for part in self.parts if part.find_fit(asked.name).kind != "integer"]
            if missed:
                yield misses_totals(asked.name, f" in {_some_parts(missed)}")

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return Published.claim_text(self)

    # --- tables and files

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables at the cut. Their cells are in the files of the release itself."""
        return self.overview

    def with_partition(self, partition: Partition) -> "SeparateTables":
        """Return this result with its parts, and with tables that are read from their folders."""
        overview = {table.name: table for table in self.overview}
        tables = []
        for asked in self.request.tables:
            cells = self.schema.restrict(asked.features)
            below = TableOfParts(asked.name, cells, partition)
            tables.append(below if asked in self.tables_below_cut else overview[asked.name])
        return replace(self, parts=partition.parts, tables=tuple(tables))

    @property
    def _overview(self) -> tuple[PublishedTable, ...]:
        return self.overview

    def part_stems(self) -> tuple[list[str], str]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return [table.name for table in self.tables_below_cut], measurements_stem(self.request)

    def measurements(self) -> Columns:
        """Return the residuals that were measured at the cut and above."""
        return residual_columns(self.mechanism_above_cut, self.noisy)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the parts, as plain values."""
        tables = []
        for table in self.request.tables:
            tables.append({"name": table.name, "features": list(table.features)})
        values = {**Published.to_json(self), **residuals_json(self.noise_of_residuals)}
        values["tables"] = tables
        values["overview"] = [table.to_json() for table in self.overview]
        return values

    # --- one part

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the tables of one part: counts, estimates and errors."""
        schema = self.cut.branch(self.schema, node)
        tables = []
        for asked in self.tables_below_cut:
            rows, fitted = schema.restrict(asked.features), part.find_fit(asked.name)
            tables.append(PublishedTable.read(files, asked.name, rows, fitted))
        return tables

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Publish one part again from what was measured in it, with its stored whole numbers."""
        schema = self.cut.branch(self.schema, node)
        fits: list[StoredFit] = []
        for asked in self.tables_below_cut:
            cells = read_cells(files, asked.name, schema.restrict(asked.features))
            fitted = part.find_fit(asked.name)
            # A search may find no whole numbers for a part; its warning says so.
            if fitted.kind not in (asked.fit, "none"):
                raise ValueError("a table has the numbers that its plan asks for")
            fits.append((cells["count"], fitted))
        noise = self.part_noise(node)
        if noise is None:
            return build_part(schema, self.tables_below_cut, None, None, fits), None
        noisy = files.numbers(measurements_stem(self.request), 1)["noisy"]
        estimated = estimate_part(noise, noisy, self.rows(node))
        tables = build_part(schema, self.tables_below_cut, noise, estimated, fits)
        return tables, residual_columns(noise, noisy)

    def part_faults(self, node: int, tables: Sequence[PublishedTable]) -> Iterator[str]:
        """Say where whole numbers of a part do not add up to exact totals, or to tables above."""
        schema = self.cut.branch(self.schema, node)
        exact = self.cut.exact(self._space.dataspace, node)
        for table, row in zip(tables, self.rows(node), strict=True):
            if table.fitted.kind != "integer":
                continue
            counts, view = table.counts, schema.view(table.schema.names)
            cells = counts.reshape(schema.grid.compute_margin_shape(view))
            at_cut = schema.grid.sum(cells, self.cut.coarsen_view(view), view)
            adds_up = row.counts is None or np.array_equal(at_cut.ravel(), row.counts.ravel())
            if counts.dtype.kind != "i" or counts.min(initial=0) < 0 or not adds_up:
                yield f"counts of {table.name} that do not add up to those above"
            elif exact.margins and not exact.restrict_features(table.schema.names).contains(
                Table(table.schema, counts)
            ):
                yield f"counts of {table.name} that do not add up to the exact totals"

    def fitted_tables(self) -> list[FittedTable]:
        """Return none: its tables are in the parts, which are compared one by one."""
        return []

    def row(self, view: View, values: NDArray[Any], node: int) -> NDArray[Any]:
        """Return the cells of a table at the cut that belong to one node."""
        grid = self.schema.grid
        cells = np.reshape(values, grid.compute_margin_shape(view))
        return self.cut.row(grid, view, cells, node)

    def rows(self, node: int) -> list[RowAtCut]:
        """Return the cells at the cut, for one node, of the tables that reach below it."""
        places = {view: place for place, view in enumerate(self.mechanism_above_cut.space.views)}
        rows = []
        for table in self.tables_below_cut:
            view = self.cut.coarsen_view(self.schema.view(table.features))
            place = places[view]
            at_cut = self.overview[place]
            estimate = self.row(view, at_cut.estimate, node)
            variance = self.row(view, self.mechanism_above_cut.cell_variances(place), node)
            counts = None
            if at_cut.fitted.kind == "integer":
                counts = self.row(view, at_cut.counts, node)
            rows.append(RowAtCut(table, estimate, variance, counts))
        return rows

    def part_noise(self, node: int) -> BranchNoise | None:
        """Return the noise below one node; None where the node can hold no record."""
        return BranchNoise.from_mechanism(self.noise_of_residuals, self.cut, node)

    def whole_noisy(self, partition: Partition | None) -> NDArray[np.int64]:
        """Read the measurement of every part, and put it together with the measurement above."""
        if partition is None or partition.place is None:
            raise InputError(
                f"what was measured of {self.name!r} is in the folders of its parts, which are not"
                " known"
            )
        below = {}
        for node, part in enumerate(partition.parts):
            refuse_changed(partition.place, part.digests, "the release was written")
            if self.kind.count_entries(node):
                numbers = partition.files(part).numbers(measurements_stem(self.request), 1)
                below[node] = numbers["noisy"]
        return TableBlocks((self.kind,), measurements_stem(self.request)).join(self.noisy, below)

    # --- whole numbers at the cut

    @property
    def estimates(self) -> dict[View, Floats]:
        """The estimates of all tables at the cut."""
        estimates = [table.estimate for table in self.overview]
        return dict(zip(self.mechanism_above_cut.space.views, estimates, strict=True))

    def settle_cut(self, progress: Progress) -> CutFit:
        """Settle the whole numbers at the cut that the parts need."""
        views, totals = fitted_views(self.request, self.schema), exact_totals(self._space)
        return fit_at_cut(self.schema.grid, views, totals, self.cut, self.estimates, progress)

    @property
    def _space(self) -> Any:
        return self.noise_of_residuals.space

    def fit_overview(
        self, fit: CutFit, parts: Sequence[Part], folder: Path, progress: Progress
    ) -> list[StoredFit]:
        """Return the published tables at the cut. Each was fitted before the parts, is a sum of
        parts, or is fitted to such sums.

        A table that nobody asked for in whole numbers stays as it is.
        """
        sums: Fits = {}
        # Of tables that are the same at the cut, one with whole numbers everywhere is preferred.
        for asked in fitted_requests(self.request):
            finest = self.schema.view(asked.features)
            if not self.cut.reaches(finest):
                continue
            view = self.cut.coarsen_view(finest)
            if view not in sums or sums[view][1].kind != FitKind.integer:
                sums[view] = self._sum_parts(asked, parts, folder)
        # An early table stays as it was fitted, because the parts were fitted to it.
        fits = {**sums, **fit.fits}
        # Late tables are fitted when the parts are done, so sums of parts are totals of theirs.
        totals = [*exact_totals(self._space), *whole_totals(fits)]
        grid = self.schema.grid
        fits |= fit_views(grid, fit.order.late, totals, self.estimates, progress)
        published = []
        for view, table in zip(self.mechanism_above_cut.space.views, self.overview, strict=True):
            published.append(fits.get(view, (table.counts, table.fitted)))
        return published

    def _sum_parts(self, asked: TableRequest, parts: Sequence[Part], folder: Path) -> StoredFit:
        """Return the counts of a table below the cut, summed to the cut. They are read from the
        files of all parts.
        """
        view = self.schema.view(asked.features)
        above = self.cut.coarsen_view(view)
        counts = np.zeros(self.schema.grid.compute_margin_shape(above), dtype=np.int64)
        labels = len(self.schema.restrict(asked.features).names)
        missed = []
        for node, part in enumerate(parts):
            grid = self.cut.branch(self.schema, node).grid
            files = StoredFiles(folder / part.folder, tuple(part.files))
            cells = files.counts(asked.name, labels).reshape(grid.compute_margin_shape(view))
            self.row(above, counts, node)[...] = grid.sum(cells, above, view)
            if part.find_fit(asked.name).kind != FitKind.integer:
                missed.append(part)
        loss = float(np.square(counts - self.estimates[above]).sum())
        kind, note = FitKind.integer, ""
        if missed:
            kind = FitKind.none
            note = (
                f"The sums of the parts, of which {len(missed)} have no whole numbers with all"
                " totals."
            )
        return counts, Fitted(str(kind), "sums of the parts", loss, 0.0, False, note)

    def compute_expected_l2(self, below: Iterable[PartTable]) -> float:
        """Return the expected loss of the requested tables, from the errors that the parts
        state.
        """
        asked = {table.name for table in self.request.tables}
        every = (*map(PartTable.from_table, self.overview), *below)
        return math.sqrt(sum(table.variance for table in every if table.name in asked))


def errors_from_parts(name: str, title: str, size: int, pieces: Sequence[PartTable]) -> CellErrors:
    """Return the errors of a table, from what its parts state."""
    noisy = sum(piece.cells.noisy for piece in pieces)
    smallest = [piece.cells.smallest_standard_error for piece in pieces if piece.cells.noisy]
    variance = sum(piece.variance for piece in pieces)
    errors = {
        "standard_error": math.sqrt(variance / max(noisy, 1)),
        "smallest": min(smallest, default=0.0),
        "largest": max(piece.largest_standard_error for piece in pieces),
    }
    dominated = sum(piece.cells.dominated for piece in pieces)
    return CellErrors(name, size, errors, dominated, noisy, title, len(pieces))


def _some_parts(parts: Sequence[Part]) -> str:
    names = [" · ".join(part.path) for part in parts[:_NAMED_PARTS]]
    left = len(parts) - _NAMED_PARTS
    more_parts = f" and {left:,} more parts" if left > 0 else ""
    return ", ".join(names) + more_parts


def begin_separate(
    request: TablesAsked,
    mechanism: ResidualMechanism,
    cut: Cut,
    noisy: NDArray[np.int64],
    private: bool,
    names: Sequence[str],
    fits: Sequence[StoredFit] = (),
) -> SeparateTables:
    """Return the tables at the cut as they are estimated from what was measured there and above,
    with stored whole numbers where there are some.
    """
    above = mechanism_above(mechanism, cut)
    if noisy.shape != above.space.shape or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    unfitted = [FitKind.none] * len(names)
    overview = fitted_tables(above, above.publish(noisy), names, unfitted, silent, fits)
    return SeparateTables(
        request=request,
        residuals=mechanism,
        cut=cut,
        noisy=noisy,
        overview=overview,
        # what it costs is known when all is done
        **mechanism_fields(request.name, mechanism, private, 0.0),
    )


@dataclass(frozen=True, eq=False)
class SeparateMeasurement(RequestMeasurement):
    """Stored tables whose parts were fitted one by one: what was measured at the cut and above.

    Parameters
    ----------
    mechanism, measurement
        The noise of the whole, and what was measured at the cut and above it.
    partition, stems
        The parts, and what the tables at the cut are called.
    """

    mechanism: ResidualMechanism
    partition: Partition
    stems: tuple[str, ...]

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> SeparateTables:
        """Return the tables at the cut with their stored whole numbers, and those of the parts."""
        cut = Cut.from_name(self.mechanism.space.schema, self.partition.depth)
        noisy, private = self.measurement.noisy, self.measurement.private
        result = begin_separate(request, self.mechanism, cut, noisy, private, self.stems, counts)
        below = [table for part in self.partition.parts for table in part.tables]
        expected = result.compute_expected_l2(below)
        done = replace(result, noise=replace(result.noise, expected_l2=expected))
        return done.with_partition(self.partition)


def read_separate(
    entry: Mapping[str, Any],
    request: TablesAsked,
    requests: Sequence[Request],
    mechanism: ResidualMechanism,
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> tuple[SeparateMeasurement, list[StoredFit]]:
    """Read what was measured at the cut and above, and the whole numbers of the tables there.

    Parameters
    ----------
    entry
        What release.json says of the request.
    request, requests
        What was asked for, among all requests of the plan.
    mechanism, partition, scope, files
        How it was measured, the parts, what is public, and the files of the release itself.
    """
    schema = mechanism.space.schema
    cut = Cut.from_name(schema, partition.depth)
    above = mechanism_above(mechanism, cut)
    noisy = read_residuals(files, measurements_stem(request), above.space)
    names = overview_names(requests, schema, cut)[request.name]
    fits: list[StoredFit] = []
    for part, (name, view) in zip(entry["overview"], names, strict=True):
        at_cut = schema.restrict(schema.list_view_names(view))
        # The plan says what files at the cut are called, so that no entry can point elsewhere.
        if part["name"] != name or part["features"] != list(at_cut.names):
            raise ValueError("the tables at the cut are not those of the plan")
        counts, how = read_cells(files, name, at_cut)["count"], Fitted(**part["fit"])
        refuse_contradiction(files.folder, name, at_cut, counts, how, RECORD, scope)
        fits.append((counts, how))
    measured = above.restore_measurement(noisy, entry["private"])
    stems = tuple(name for name, _ in names)
    return SeparateMeasurement(mechanism, measured, partition, stems), fits


def fitted_requests(request: TablesAsked) -> list[TableRequest]:
    """Return the tables of a request that are published as whole numbers."""
    return [table for table in request.tables if table.fit is FitKind.integer]


def fitted_views(request: TablesAsked, schema: Schema) -> list[View]:
    """Return the views of the tables that are published as whole numbers, each once."""
    views = [schema.view(table.features) for table in fitted_requests(request)]
    return list(dict.fromkeys(views))


def overview_names(
    requests: Sequence[Request], schema: Schema, cut: Cut
) -> dict[str, list[tuple[str, View]]]:
    """Return each request's tables at a cut by the names of their files. Tables of the plan keep
    their own names.
    """
    # Some file systems take names that differ only in capitals for one file.
    taken = {name.casefold().removesuffix(".csv") for request in requests for name in request.files}
    every = {}
    for request in requests:
        views = [schema.view(table.features) for table in request.tables]
        asked = dict(zip(views, (table.name for table in request.tables), strict=True))
        at_cut = []
        for view in dict.fromkeys(map(cut.coarsen_view, views)):
            name = asked.get(view)
            if name is None:
                name = file_stem(schema.list_view_names(view))
                while name.casefold() in taken:
                    name = f"{name}-overview"
                taken.add(name.casefold())
            at_cut.append((name, view))
        every[request.name] = at_cut
    return every


def name_unasked(
    request: TablesAsked, requests: Sequence[Request], schema: Schema, cut: Cut
) -> dict[str, tuple[str, ...]]:
    """Return the tables of a request at a cut that nobody asked for: their names and features."""
    asked = {table.name for table in request.tables}
    at_cut = overview_names(requests, schema, cut)[request.name]
    return {name: schema.list_view_names(view) for name, view in at_cut if name not in asked}


def foresee_cycles(request: TablesAsked, views: Iterable[View], schema: Schema) -> Iterator[str]:
    """Name the tables for which whole numbers are not promised, because their totals are not
    decomposable (docs/products.md).
    """
    cycles = set(views)
    for table in fitted_requests(request):
        if schema.view(table.features) in cycles:
            yield (
                f"The totals of the table {table.name!r}, exact ones and those that other"
                " tables fix, hang together in a circle, so that no whole numbers may have all"
                " of them: then other tables follow from it, or it misses some."
            )
