"""Fit of one table: the nonnegative table of whole numbers with given margins that is
closest to a noisy one.

`fit_table` sees noisy values and public totals, never confidential counts.
"""

import math
import time
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Chain, Counts, Grid, Mask, Totals, View
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.fitting.integer import (
    can_round,
    fit_nested,
    improve,
    prove,
    round_table,
    roundable,
    thresholds,
    transport,
)
from semidp.publish.fitting.real import (
    WORD_BITS,
    Floats,
    Problem,
    RealFit,
    approach,
    lagrangian,
    lagrangians,
    pose,
    project,
)

TIME_LIMIT = 30.0
"""The default number of seconds after which no further improvement of a fit starts."""
# from so many cells on margins are fitted in linear time, if they allow it: three and more of them,
# and two, whose flow takes several times the memory and time
LARGE, LARGE_FLOW = 200_000, 1_000_000
_OPTIMAL = "No other such table is closer to what was measured."
# up to so many cells a table that nested flows found is handed to an integer program for proof
PROVABLE = 2_000


@frozen(eq=False)
class Fit:
    """A fitted table: nonnegative, zero where the schema says so, with every published margin.

    Parameters
    ----------
    counts
        The table of whole numbers, with exact margins; None if it is real-valued.
    values
        The real-valued table, with margins exact up to rounding; None if it holds whole numbers.
    loss
        The sum of squared differences from the noisy values.
    bound
        A lower bound on the loss of every nonnegative table with these margins, integer or not.
    method
        How it was found: ``thresholds``, ``flow``, ``nested flows``, ``rounding``,
        ``integer program`` or ``projection``.
    optimal
        Whether no closer table of this kind exists.
    note
        What a reader should know about it, in a sentence.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> public = Dataspace.from_table(Table(Schema([Feature("sex", "fm")]), [6, 4]), [])
    >>> fit = fit_table(np.array([7.2, 3.4]), public)
    >>> fit.counts, fit.optimal, fit.loss >= fit.bound
    (array([7, 3]), True, True)
    """

    counts: Counts | None = field(repr=False)
    values: Floats | None = field(repr=False)
    loss: float
    bound: float
    method: str
    optimal: bool
    note: str

    @property
    def gap(self) -> float:
        """Loss over the bound, less one: 0.05 is five percent above it. Infinite above a bound of
        zero.
        """
        if self.loss <= self.bound:
            return 0.0
        if self.bound <= 0:
            return math.inf
        return self.loss / self.bound - 1.0


def fit_table(
    noisy: NDArray[np.float64] | NDArray[np.int64],
    dataspace: Dataspace,
    *,
    time_limit: float = TIME_LIMIT,
    progress: Progress = silent,
) -> Fit:
    """Return the table of the dataspace that is closest in least squares to a noisy one.

    It minimizes Σ (x - y)² over whole numbers x ≥ 0 with the published margins. Up to two margins
    (one total, rows, rows and columns, two joint margins that share features) it is a flow and the
    answer is exact. Three and more margins are fitted by nested flows and moves that keep improving
    it; in large tables whose margins overlap only in a common part, by rounding the real-valued
    fit, and the note says how far from the closest table that may be. Margins that do not
    nest (all two-way margins of three features) are fitted by an integer program; if that finds
    nothing in time, the real-valued table is returned with a note.

    Parameters
    ----------
    noisy
        The noisy values, in the shape of the dataspace's schema; read on a grid of 2⁻²⁴ unless they
        are whole.
    dataspace
        The schema of the released table, with the margins that constrain it and their public
        totals.
    time_limit
        Seconds after which no further improvement starts.
    progress
        Told what is going on.

    Raises
    ------
    Infeasible
        If no table has the published totals.
    InputError
        If the values do not fit the schema.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> sexes, regions = (
    ...     Table(schema.restrict(["sex"]), [6, 4]),
    ...     Table(schema.restrict(["region"]), [2, 3, 5]),
    ... )
    >>> public = Dataspace.from_totals(schema, {Margin("sex"): sexes, Margin("region"): regions})
    >>> fit = fit_table(np.array([[3, -1, 4], [-2, 3, 1]]), public)
    >>> fit.counts
    array([[2, 0, 4],
           [0, 3, 1]])
    >>> fit.loss, fit.optimal, fit.method
    (6.0, True, 'flow')
    """
    if not isinstance(dataspace, Dataspace):
        raise InputError(
            "a fit needs the schema and the totals: this dataspace is known by its description only"
        )
    schema, grid = dataspace.schema, dataspace.schema.grid
    totals = dataspace.published_totals
    if not totals:
        n = np.array(dataspace.n, dtype=np.int64)
        totals = (Totals(grid.nothing, n),)
    return fit_totals(
        noisy, grid, totals, schema.possible, time_limit=time_limit, progress=progress
    )


def fit_totals(
    noisy: NDArray[np.float64] | NDArray[np.int64],
    grid: Grid,
    totals: Sequence[Totals],
    possible: Mask | None = None,
    *,
    time_limit: float = TIME_LIMIT,
    progress: Progress = silent,
) -> Fit:
    """Return the closest table with totals of any origin, such as noisy tables that were fitted
    before.

    Parameters
    ----------
    noisy, time_limit, progress
        As for `fit_table`.
    grid
        The cells of the table.
    totals
        One margin or more, none of which contains another.
    possible
        The cells that may be filled (default: all).

    Raises
    ------
    Infeasible
        Where no table has these totals.

    Examples
    --------
    >>> from semidp.promise.schema.margins import Chain
    >>> counties = Grid((Chain(3, ((0, 2), (0, 1, 2))),))
    >>> fit_totals(np.array([2.2, 0.1, 4.0]), counties, [Totals((1,), np.array([3, 5]))]).counts
    array([3, 0, 5])
    """
    if not time_limit > 0:
        raise InputError(
            f"the time limit of a fit must be a positive number of seconds, not {time_limit}"
        )
    deadline = time.monotonic() + time_limit
    problem = pose(grid, _numbers(noisy, grid, totals), totals, possible)
    return _integer(problem, deadline, progress)


def fit_alike(
    noisy: Sequence[NDArray[np.float64]],
    grid: Grid,
    totals: Sequence[Sequence[Totals]],
) -> list[Fit]:
    """Return the fits of many tables of one grid at once. Each has totals of the same two margins;
    see `fit_totals`.

    The tables are the levels of one more feature, which every margin names: a common part divides a
    problem into separate ones.

    Raises
    ------
    Infeasible
        Where some table has no such totals.

    Examples
    --------
    >>> grid, ones = (
    ...     Grid.flat((2, 2)),
    ...     [Totals((1, 0), np.array([1, 1])), Totals((0, 1), np.array([1, 1]))],
    ... )
    >>> [fit.counts.tolist() for fit in fit_alike([np.eye(2), np.eye(2)[::-1]], grid, [ones, ones])]
    [[[1, 0], [0, 1]], [[0, 1], [1, 0]]]
    """
    tables = Grid((Chain.flat(len(noisy)), *grid.chains))
    joint = []
    for parts in zip(*totals, strict=True):
        stacked = np.stack([part.counts for part in parts])
        joint.append(Totals((1, *parts[0].view), stacked))
    problem = pose(tables, _numbers(np.stack(noisy), tables, joint), joint)
    start, counts, method, proved = _closest(problem, silent)
    bounds = lagrangians(problem, start.levels).tolist()
    fits = []
    for table, values, bound in zip(counts, problem.noisy, bounds, strict=True):
        difference = (table - values).astype(np.float64)
        loss = float(np.square(difference).sum())
        fits.append(_integer_fit(table, loss, bound, method, proved))
    return fits


def is_fitted_by_flow(grid: Grid, views: Sequence[View], closed: bool = False) -> bool:
    """Whether the fit of a table takes flows or programs, with several times the memory of its
    cells; `closed` says that some cells must stay zero.

    >>> [is_fitted_by_flow(Grid.flat((n, n)), [(1, 0), (0, 1)]) for n in (100, 1000)]
    [True, False]
    """
    if len(views) < 2:
        return False
    large = grid.count_margin_cells(grid.full) >= _large(len(views))
    return closed or not large or not can_round(grid, views)


def _large(margins: int) -> int:
    """Cells from which a table with so many margins is fitted in linear time, if they allow it."""
    return LARGE if margins > 2 else LARGE_FLOW


def _numbers(noisy: object, grid: Grid, totals: Sequence[Totals]) -> Counts | Floats:
    """Return the noisy values, whole numbers as such; refuse what a fit cannot handle."""
    if not isinstance(noisy, np.ndarray) or noisy.dtype.kind not in "iuf":
        raise InputError(
            "a fit starts from an array of noisy numbers; a table of counts is not accepted"
        )
    if noisy.shape != grid.shape:
        raise InputError(
            f"the noisy values have shape {noisy.shape}, but the schema has shape {grid.shape}"
        )
    # Not a number is neither more nor less than any, and lies at one of the two ends.
    ends = float(noisy.min()), float(noisy.max())
    if not np.isfinite(ends).all():
        raise InputError("the noisy values must be finite numbers")
    largest_value = max(-ends[0], ends[1])
    records = [float(total.counts.sum()) for total in totals]
    largest = max(largest_value, *records)
    if largest >= 2.0**WORD_BITS:
        raise InputError(
            f"a fit handles noisy values and totals below 2^{WORD_BITS}: scale them down"
        )
    if noisy.dtype.kind in "iu":
        return noisy.astype(np.int64, copy=False)
    return noisy.astype(np.float64, copy=False)


def _closest(problem: Problem, progress: Progress) -> tuple[RealFit, Counts, str, bool]:
    """Return the closest table under one margin or two: the real-valued start, the counts, the
    method, and whether the counts are proved optimal.
    """
    start = approach(problem, progress)
    if len(problem.totals) == 1:
        return start, thresholds(problem), "thresholds", True
    counts, proved = transport(problem, start, progress)
    return start, counts, "flow", proved


def _integer(problem: Problem, deadline: float, progress: Progress) -> Fit:
    # a few passes over the cells, however long they take
    margins = len(problem.totals)
    large = problem.noisy.size >= _large(margins) and roundable(problem)
    if margins <= 2 and not large:
        start, counts, method, proved = _closest(problem, progress)
        return _integer_fit(counts, problem.loss(counts), start.bound, method, proved)
    # Half of the time that is left is kept for the whole numbers.
    half_time = (time.monotonic() + deadline) / 2
    start = project(problem, math.inf if large else half_time, progress)
    if large and start.has_met_totals:
        near = round_table(problem, start, progress)
        if near is not None:
            counts, levels = near
            # The bound holds at any levels, so the better of two may be stated.
            bounds = [lagrangian(problem, each, whole=True) for each in (start.levels, levels)]
            loss = problem.loss(counts)
            note = _distance(loss, max(bounds))
            return _integer_fit(counts, loss, start.bound, "rounding", False, note)
    if margins == 2:
        counts, proved = transport(problem, start, progress)
        return _integer_fit(counts, problem.loss(counts), start.bound, "flow", proved)
    table, proved = fit_nested(problem, start.table, progress), False
    method = "integer program" if table is None else "nested flows"
    if table is not None:
        table = improve(problem, start, table, deadline, progress)
    if table is None or problem.noisy.size <= PROVABLE:
        table, proved = prove(problem, start, table, deadline, progress)
    if table is None:
        return _real(problem, start)
    loss = problem.loss(table)
    note = "" if proved else _distance(loss, lagrangian(problem, start.levels, whole=True))
    return _integer_fit(table, loss, start.bound, method, proved, note)


def _integer_fit(
    counts: Counts, loss: float, bound: float, method: str, optimal: bool, note: str = ""
) -> Fit:
    # Rounding may lift a computed bound a little above a loss that attains it.
    bound = min(bound, loss)
    return Fit(counts, None, loss, bound, method, optimal, _OPTIMAL if optimal else note)


def _real(problem: Problem, fit: RealFit) -> Fit:
    loss = problem.loss(fit.table)
    note = (
        "No table of whole numbers with the published totals was found within the limits of the"
        " search, so this one is real-valued; its margins are the published ones up to rounding."
    )
    if not fit.has_met_totals:
        note = (
            f"{note} The time limit ended the projection early: its margins are only near the"
            " published ones."
        )
    bound = min(fit.bound, loss)
    return Fit(None, fit.table, loss, bound, "projection", False, note)


def _distance(loss: float, bound: float) -> str:
    """Say how far from the closest table one may be, given a loss that no table of whole numbers
    undercuts.
    """
    share = 0.0
    if loss > 0:
        share = max(0.0, 1.0 - bound / loss)
    words = f"at most {share:.2%}" if share >= 1e-4 else "less than 0.01%"
    return f"Closer tables may exist, but their loss is {words} smaller."


_ROUNDS = 10_000  # steps of the search, of which a few hundred are ever taken
_MOST_EXCHANGES = 100_000  # between the places of one parent
_WORTH = 1e-9  # a gain that floating point does not make


def fit_sizes(estimate: Floats, least: int, units: int, members: int) -> Counts:
    """Return nonnegative whole numbers near an estimate with two totals.

    Parameters
    ----------
    estimate
        How many units have each size, from the least size on.
    least
        The least size.
    units, members
        The totals.

    Examples
    --------
    >>> fit_sizes(np.array([3.2, 2.1, 0.9]), 1, 6, 10)
    array([3, 2, 1])
    >>> fit_sizes(np.array([3.2, 2.1, 0.9]), 1, 6, 5)
    Traceback (most recent call last):
    semidp.errors.Refused: the members do not fit into the units of the declared sizes
    """
    sizes = np.arange(least, least + len(estimate))
    fewest, most = sizes[0] * units, sizes[-1] * units
    if units < 0 or not fewest <= members <= most:
        raise Refused("the members do not fit into the units of the declared sizes")
    if units == 0 or len(sizes) == 1:
        counts = np.zeros(len(sizes), dtype=np.int64)
        counts[0] = units
        return counts
    # The number of units comes first: the two steps after it move units and keep that number.
    real = _closest_sizes(np.asarray(estimate, dtype=float), sizes, units, members)
    counts = _round_largest_remainders(real, units)
    _right_members(counts, estimate, sizes, members)
    _improve(counts, estimate)
    return counts


def balance_members(counts: Counts, estimate: Floats, least: int, targets: Floats) -> Counts:
    """Exchange units of different sizes between places, until the members of each place are near
    the estimates.

    Whole numbers of units by place and size that are nearest cell by cell may have large errors in
    the members of a place: nonnegative counts add up to too much. Two places that exchange a unit
    of one size for a unit of another keep their numbers of units, and units of each size stay. An
    exchange is made if it lowers the total squared distance of members and units.

    Parameters
    ----------
    counts, estimate
        Units by place and size, one row per place: whole numbers, and the estimates that they were
        fitted to. Between them may be other features, over which units are exchanged one by one.
    least
        The least size.
    targets
        The estimated members of each place.

    Examples
    --------
    >>> counts, estimate = (
    ...     np.array([[2, 0, 2], [2, 2, 0]]),
    ...     np.array([[3.0, 0.5, 0.5], [1.0, 1.5, 1.5]]),
    ... )
    >>> balance_members(counts, estimate, 1, np.array([5.5, 8.5]))
    array([[3, 0, 1],
           [1, 2, 1]])
    """
    levels = counts.shape[-1]
    balanced = counts.reshape(len(counts), -1, levels).copy()
    expected = estimate.reshape(balanced.shape)
    sizes = np.arange(least, least + levels)
    excess = balanced.sum(axis=1) @ sizes - targets
    jumps = sizes[:, None] - sizes[None, :]
    for _ in range(_MOST_EXCHANGES):
        more = int(excess.argmax())
        fewer = int(excess.argmin())
        giving, taking = balanced[more], balanced[fewer]
        # The place with most excess gives a unit of the size of a row, and takes one of the size of
        # a column. Gains are the decrease of the sum of squared distances.
        difference = excess[more] - excess[fewer]
        members = 2 * jumps * difference - 2 * jumps**2
        apart = (giving - expected[more]) - (taking - expected[fewer])
        units = apart[:, :, None] - apart[:, None, :]
        gain = members + 2 * units - 4
        has_large, has_small = giving > 0, taking > 0
        possible = has_large[:, :, None] & has_small[:, None, :] & (jumps > 0)
        gain = np.where(possible, gain, -np.inf)
        best = int(gain.argmax())
        if not gain.flat[best] > _WORTH:
            break
        kind, large, small = np.unravel_index(best, gain.shape)
        giving[kind, large] -= 1
        giving[kind, small] += 1
        taking[kind, small] -= 1
        taking[kind, large] += 1
        excess[more] -= jumps[large, small]
        excess[fewer] += jumps[large, small]
    return balanced.reshape(counts.shape)


def _closest_sizes(estimate: Floats, sizes: NDArray[np.int64], units: int, members: int) -> Floats:
    """Closest nonnegative real numbers with both totals. A size whose number would be negative gets
    none.
    """
    used = np.ones(len(sizes), dtype=bool)
    while True:
        ones = np.ones(int(used.sum()))
        rows = np.stack([ones, sizes[used].astype(float)])
        totals = np.array([units, members], dtype=float)
        missing = totals - rows @ estimate[used]
        # the shortest change that gives both totals
        step = np.linalg.lstsq(rows @ rows.T, missing, rcond=None)[0]
        values = np.zeros(len(sizes))
        values[used] = estimate[used] + rows.T @ step
        negative = values < -1e-9
        if not negative.any() or used.sum() <= 2:
            return np.maximum(values, 0.0)
        # the most negative one goes first; the least and the most size stay while totals need them
        worst = np.where(negative, values, np.inf)
        worst[[0, -1]] = np.inf
        if not np.isfinite(worst.min()):
            return np.maximum(values, 0.0)
        used[int(worst.argmin())] = False


def _round_largest_remainders(values: Floats, units: int) -> Counts:
    """Round down, and give what is left to the largest remainders."""
    scaled: Floats = np.full(len(values), units / len(values))
    if values.sum() > 0:
        scaled = values * (units / values.sum())
    counts = np.floor(scaled + 1e-9).astype(np.int64)
    left = units - int(counts.sum())
    # largest remainders first
    order = np.argsort(counts - scaled, kind="stable")
    step = 1 if left > 0 else -1
    for place in range(abs(left)):
        counts[order[place % len(order)]] += step
    return counts


def _right_members(
    counts: Counts, estimate: Floats, sizes: NDArray[np.int64], members: int
) -> None:
    """Let units go up or down by one size, the cheapest first, until the number of members is
    right.
    """
    gap = members - int(counts @ sizes)
    step = 1 if gap > 0 else -1
    # A unit of the last size cannot go up, one of the first cannot go down.
    first = np.arange(len(sizes) - 1)
    if step < 0:
        first = first + 1
    # The totals were checked, so some unit can always move the way that is needed.
    for _ in range(abs(gap)):
        # moving a unit from a to b changes the squared distance by this
        away = counts - estimate
        difference = away[first + step] - away[first]
        price = 2 * difference + 2
        price = np.where(counts[first] > 0, price, np.inf)
        chosen = int(first[int(price.argmin())])
        counts[chosen] -= 1
        counts[chosen + step] += 1


def _improve(counts: Counts, estimate: Floats) -> None:
    """Move pairs of units by one size each, apart or towards each other, as long as the numbers
    come closer. Both totals stay.
    """
    if len(counts) < 3:
        return  # two sizes leave no choice
    moves = _parting(len(counts))
    lengths = (moves**2).sum(axis=1)
    for _ in range(_ROUNDS):
        away = counts - estimate
        price = 2 * (moves @ away) + lengths
        possible = (counts + moves >= 0).all(axis=1)
        price = np.where(possible, price, np.inf)
        best = int(price.argmin())
        if not price[best] < -1e-9:
            return
        counts += moves[best]


def _parting(levels: int) -> Counts:
    """Moves that keep both totals: a unit of one size goes up by one, and a unit of another goes
    down.
    """
    moves = []
    for up in range(levels - 1):
        for down in range(1, levels):
            move = np.zeros(levels, dtype=np.int64)
            move[up] -= 1
            move[up + 1] += 1
            move[down] -= 1
            move[down - 1] += 1
            if move.any():
                moves.append(move)
    unique = {tuple(move.tolist()) for move in moves}
    return np.array(sorted(unique), dtype=np.int64).reshape(-1, levels)
