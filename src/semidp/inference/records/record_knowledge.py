"""The information in records: which tables to request for the most of it, and how far records are
from the truth.

Tables are proposed from levels, the number of records and the budget alone. Nothing confidential is
read. Choosing associated pairs by looking at the data would spend budget, and is not done here.

Errors are estimated from published numbers alone. That of a shrunk table of a pair is estimated
without bias (Stein 1981): for an estimate h of μ from D = μ + noise of standard deviation σ in k
dimensions, ``E‖h(D) - μ‖² = E(‖h(D) - D‖² - k σ² + 2 σ² div h(D))``. The association of three
columns beyond their pairs is not measured at all. Errors of three columns assume that records and
truth share nothing there: the errors of the pairs, plus the scatter of counts between the two.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.inference.records.record_assembly import PublishedNumbers
from semidp.inference.records.record_cells import TargetTable
from semidp.inference.records.shrinkage import (
    center,
    combine_margins,
    count_directions,
    estimate_one_way,
    interaction_error,
    is_noisy_pair,
    kept_share,
    rake,
    shrink_pair,
    sum_to_bins,
)
from semidp.promise.documents import Encodable
from semidp.promise.guarantee import Scope
from semidp.promise.schema.margins import View, is_within_view, list_axes
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.residual_mechanism import ResidualMechanism

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


Floats = NDArray[np.float64]

_PROBES = 16  # random directions in which the divergence is measured
_STEP = 1e-3  # of the noise
_MEAN = math.sqrt(2 / math.pi)  # mean absolute value of a standard normal number
_MOST_CELLS = 10**7  # of tables of three columns: of more, some are left out
_ROUNDS = 15  # of proportional fitting


@frozen
class RecordErrors:
    """Expected errors of records: the sum of absolute errors over the cells of a table, as a share
    of the number of records.

    Parameters
    ----------
    columns
        The error of each column that is not exact.
    pairs
        The error of each measured pair, on the levels that it was measured on.
    weak
        Pairs without any signal above the noise: records treat them as nearly independent.
    three_columns
        The mean error of three columns on those levels, if they have nothing in common beyond their
        pairs.
    """

    columns: Mapping[str, float]
    pairs: Mapping[tuple[str, str], float]
    weak: tuple[tuple[str, str], ...]
    three_columns: float


def estimate_errors(release: "ReleaseValue") -> RecordErrors:
    """Return the expected errors of records of a release."""
    numbers = PublishedNumbers.from_release(release)
    grid, features = numbers.dataspace.schema.grid, numbers.dataspace.schema.features
    one_way = estimate_one_way(numbers, numbers.targets)
    total = max(numbers.dataspace.n, 1)
    columns, pairs, weak = {}, {}, []
    exact = {axis for margin in numbers.margins for axis in list_axes(margin)}
    for axis in list_axes(numbers.used):
        if axis not in exact:
            depth = numbers.used[axis]
            _, error = combine_margins(numbers, numbers.targets, axis, depth)
            # two columns of equal totals differ by twice what one has too many, at most all of it
            errors = np.minimum(_MEAN * error, 2 * one_way[axis])
            columns[features[axis].name] = float(errors.sum()) / total
    estimated = {}
    depths = {}
    for table in numbers.targets:
        if not is_noisy_pair(grid, table):
            continue
        one, other = list_axes(table.view)
        depths.update({one: table.view[one], other: table.view[other]})
        rows, count_columns = sum_to_bins(numbers, table, one_way)
        sigma = interaction_error(table)
        noisy = table.estimate.reshape(len(rows), len(count_columns))
        variances = _spread_risk(noisy, sigma, rows, count_columns)
        for axis, counts in ((one, count_columns[None, :]), (other, rows[:, None])):
            if axis not in exact:
                error = _bin_error(numbers, table, axis)
                # raking spreads the error of a bin over its cells by the shares of the other column
                variances = variances + (error * counts / total) ** 2
        # two tables with the same total differ by twice that total at most
        error = min(2.0, _MEAN * float(np.sqrt(variances).sum()) / total)
        shrunk = shrink_pair(noisy, sigma, rows, count_columns)
        estimated[one, other] = EstimatedPair(rake(shrunk, rows, count_columns), error)
        names = (features[one].name, features[other].name)
        pairs[names] = error
        if not count_directions(noisy, sigma, rows, count_columns):
            weak.append(names)
    estimated |= _find_exact_pairs(numbers, depths)
    threes = _estimate_three_columns(estimated, sorted(depths), total)
    return RecordErrors(columns, pairs, tuple(weak), threes)


@frozen(eq=False)
class EstimatedPair:
    """The estimated counts of a pair, and their error as a share of all records."""

    counts: Floats
    error: float


def _find_exact_pairs(
    numbers: PublishedNumbers, depths: Mapping[int, int]
) -> dict[tuple[int, int], EstimatedPair]:
    """The pairs that exact totals publish, at the depths of the measured ones."""
    grid = numbers.dataspace.schema.grid
    exact_pairs = {}
    for axes in itertools.combinations(sorted(depths), 2):
        view = tuple(depths[axis] if axis in axes else 0 for axis in range(len(numbers.used)))
        sizes = [grid.chains[axis].size(depths[axis]) for axis in axes]
        for total in numbers.dataspace.published_totals:
            if is_within_view(view, total.view):
                counts = np.asarray(total.sum_to_view(grid, view).counts, dtype=np.float64)
                exact_pairs[axes[0], axes[1]] = EstimatedPair(counts.reshape(sizes), 0.0)
    return exact_pairs


def _estimate_three_columns(
    pairs: Mapping[tuple[int, int], EstimatedPair], axes: Sequence[int], total: int
) -> float:
    """The mean error of three columns that have nothing in common beyond their pairs."""
    sizes = {}
    for (one, other), pair in pairs.items():
        sizes[one], sizes[other] = pair.counts.shape
    every = [
        three
        for three in itertools.combinations(axes, 3)
        if {*itertools.combinations(three, 2)} <= pairs.keys()
    ]
    cells = sum(sizes[one] * sizes[two] * sizes[three] for one, two, three in every)
    errors = []
    # an even sample where all of them would take too long
    for one, two, three in every[:: 1 + cells // _MOST_CELLS]:
        faces = (pairs[one, two], pairs[one, three], pairs[two, three])
        table = _fit_three(*(face.counts for face in faces))
        # Records have the counts of the pairs, which leave this share of a cell to chance.
        free = math.prod(1 - 1 / size for size in table.shape)
        squares = sum(face.error**2 for face in faces)
        scatter = float(mean_gap(free * table).sum()) / total
        errors.append(min(2.0, math.sqrt(squares + scatter**2)))
    return float(np.mean(errors)) if errors else 0.0


def _fit_three(front: Floats, side: Floats, top: Floats) -> Floats:
    """The table of three columns with given pairs and no interaction beyond them, by proportional
    fitting.
    """
    table = np.ones((*front.shape, side.shape[1]))
    for _ in range(_ROUNDS):
        # an empty row stays empty; the floor only keeps 0/0 out
        table *= (front / np.maximum(table.sum(axis=2), 1e-9))[:, :, None]
        table *= (side / np.maximum(table.sum(axis=1), 1e-9))[:, None, :]
        table *= (top / np.maximum(table.sum(axis=0), 1e-9))[None, :, :]
    return table


def mean_gap(expected: Floats) -> Floats:
    """Return the mean absolute difference of two independent Poisson counts with the same mean:
    ``2 λ e^(-2λ) (I₀(2λ) + I₁(2λ))`` (Ramasubban 1958).

    >>> mean_gap(np.array([0.0, 0.01, 100.0])).round(3).tolist()
    [0.0, 0.02, 11.277]
    """
    from scipy import special

    double = 2 * expected
    return np.asarray(double * (special.ive(0, double) + special.ive(1, double)))


def _bin_error(numbers: PublishedNumbers, table: TargetTable, axis: int) -> float:
    """The standard error of the count of a bin, from the measurements of bins and of levels."""
    depth, used = table.view[axis], numbers.used[axis]
    combined, error = combine_margins(numbers, numbers.targets, axis, depth)
    precision = 1 / max(error**2, 1e-9)
    if used > depth:
        fine, fine_error = combine_margins(numbers, numbers.targets, axis, used)
        # a bin adds up fine.size / combined.size levels, and their variances add up too
        precision += combined.size / max(fine.size * fine_error**2, 1e-9)
    return 1 / math.sqrt(precision)


def _spread_risk(noisy: Floats, sigma: float, rows: Floats, columns: Floats) -> Floats:
    """The expected squared error of each cell of the shrunk interaction: their sum, in proportion
    to the share of a cell that is kept.
    """
    kept = kept_share(shrink_pair(noisy, sigma, rows, columns), sigma)
    return np.asarray(max(0.0, _risk(noisy, sigma, rows, columns)) * kept / kept.sum())


def _risk(noisy: Floats, sigma: float, rows: Floats, columns: Floats) -> float:
    """The expected sum of squared errors of the shrunk interaction of a pair."""
    independent = np.outer(rows, columns) / max(float(rows.sum()), 1e-9)
    dimensions = (noisy.shape[0] - 1) * (noisy.shape[1] - 1)
    shrunk = shrink_pair(noisy, sigma, rows, columns)
    # a fixed seed: the errors of one release are the same whenever they are asked for
    draw = np.random.default_rng(1)
    step = _STEP * sigma
    divergence = 0.0
    for _ in range(_PROBES):
        probe = draw.standard_normal(noisy.shape)
        moved = shrink_pair(noisy + step * probe, sigma, rows, columns)
        # z'(h(D + εz) - h(D))/ε has the divergence as its mean over random directions z
        divergence += float((probe * (moved - shrunk)).sum()) / step / _PROBES
    left = float(((shrunk - independent - center(noisy - independent)) ** 2).sum())
    return float(left - dimensions * sigma**2 + 2 * sigma**2 * divergence)


_TAKEN_OUT = 3  # of the tables in which noise dominates a third, the worst, is left out at a time
_MOST_TABLES = 2_000


@frozen
class ProposedTable(Encodable):
    """A table as it would be published next to the others.

    Parameters
    ----------
    features, cells
        Its features and number of cells.
    error
        The standard error of a cell, as a root mean square.
    mean_count
        The mean count of a cell.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"error": "standard_error"}

    features: tuple[str, ...]
    cells: int
    error: float
    mean_count: float

    @property
    def is_dominated(self) -> bool:
        """Whether the noise of an average cell is larger than its count."""
        return self.error > self.mean_count


@frozen
class TableProposal(Encodable):
    """Tables to request, and pairs that are better left out.

    Parameters
    ----------
    tables
        The proposed tables, with their errors.
    left_out
        Pairs in which noise would dominate, given everything proposed with them.
    exact
        Pairs that exact totals give.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"tables": "proposed"}

    tables: tuple[ProposedTable, ...]
    left_out: tuple[ProposedTable, ...]
    exact: tuple[tuple[str, ...], ...]


def propose_tables(scope: Scope, names: Sequence[str], budget: Budget) -> TableProposal:
    """Propose all pairs of some features, less those in which noise would dominate.

    The standard errors are those of one release of all proposed tables from the budget. The worst
    of the tables whose average cell is smaller than its error are left out, the noise is placed
    anew, and so on. A feature that is left in no table and in no exact total keeps a table of its
    own.

    Parameters
    ----------
    scope
        What is public: features, exact totals, the number of records, the adjacency.
    names
        The features of the records.
    budget
        The budget of all tables together.

    Examples
    --------
    >>> import semidp
    >>> features = [
    ...     semidp.Feature("sex", "fm"),
    ...     semidp.Feature("age", "abc"),
    ...     semidp.Feature("code", range(900)),
    ... ]
    >>> schema = semidp.Schema(features)
    >>> ones = semidp.Table(schema.restrict(["sex"]), [500, 500])
    >>> space = semidp.Dataspace.from_totals(schema, {semidp.Margin("sex"): ones})
    >>> from semidp.promise.guarantee import Scope
    >>> scope = Scope(space, None, semidp.Ball(2))
    >>> proposal = propose_tables(scope, ["sex", "age", "code"], semidp.Budget.gdp(1))
    >>> [table.features for table in proposal.tables]
    [('sex', 'age'), ('code',)]
    """
    schema = scope.dataspace.schema
    axes = dict.fromkeys(schema.axis(name) for name in names)
    if len(axes) < 2:
        raise InputError(
            "pairs need two features or more: name all of them as the features of one table"
        )
    full = schema.view(names)
    views = [_pair(full, pair) for pair in itertools.combinations(axes, 2)]
    if len(views) > _MOST_TABLES:
        raise InputError(f"{len(views):,} pairs are too many to weigh: name at most 60 features")
    exact = [view for view in views if _is_published(scope, view)]
    kept = [view for view in views if view not in exact]
    left_out: list[ProposedTable] = []
    while True:
        alone = _list_missing_features(scope, full, list(axes), [*kept, *exact])
        tables = _estimate_tables(scope, budget, [*kept, *alone])
        dominated = [table for table in tables[: len(kept)] if table.is_dominated]
        if not dominated:
            break
        dominated.sort(key=lambda table: table.mean_count / table.error)
        worst = dominated[: max(1, len(dominated) // _TAKEN_OUT)]
        left_out += worst
        # The noise is placed again for those that are left: their errors fall.
        gone = {schema.view(table.features) for table in worst}
        kept = [view for view in kept if view not in gone]
    given_exactly = tuple(schema.list_view_names(view) for view in exact)
    return TableProposal(tuple(tables), tuple(left_out), given_exactly)


def _pair(full: View, axes: tuple[int, ...]) -> View:
    return tuple(depth if axis in axes else 0 for axis, depth in enumerate(full))


def _is_published(scope: Scope, view: View) -> bool:
    """Whether exact totals give a table."""
    return scope.dataspace.publishes(Margin(*scope.dataspace.schema.list_view_names(view)))


def _list_missing_features(
    scope: Scope, full: View, axes: list[int], views: list[View]
) -> list[View]:
    """Tables of single features that no table has, and no exact total."""
    reached = {axis for view in views for axis in list_axes(view)}
    single = [_pair(full, (axis,)) for axis in axes if axis not in reached]
    return [view for view in single if not _is_published(scope, view)]


def _estimate_tables(scope: Scope, budget: Budget, views: list[View]) -> list[ProposedTable]:
    """Tables with the errors that they would have, all from one budget."""
    if not views:
        return []
    schema = scope.dataspace.schema
    requested = [schema.list_view_names(view) for view in views]
    mechanism = ResidualMechanism.calibrate(
        product_space(scope.dataspace, scope.adjacency, requested), budget
    )
    tables = []
    for number, (view, names) in enumerate(zip(views, requested, strict=True)):
        cells = schema.grid.count_margin_cells(view)
        error = mechanism.rms_error(number)
        tables.append(ProposedTable(names, cells, error, scope.dataspace.n / cells))
    return tables
