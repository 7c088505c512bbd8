"""What records know: which tables to ask for so that they know most, and how far they are from the
truth.

Tables are proposed from levels, the number of records and the budget alone. Nothing confidential is
read. A choice that looks at the data to find pairs that hang together would spend budget, and is
not made here.

Errors are estimated from published numbers alone. That of a shrunk table of a pair is estimated
without bias (Stein 1981): for an estimate h of μ from D = μ + noise of standard deviation σ in k
dimensions, ``E‖h(D) - μ‖² = E(‖h(D) - D‖² - k σ² + 2 σ² div h(D))``. What is left of three columns
beyond their pairs is not measured at all, so that errors of three columns are at least what pairs
leave open.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
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
    shrink_pair,
    sum_to_bins,
)
from semidp.promise.documents import Encodable
from semidp.promise.guarantee import Scope
from semidp.promise.schema.margins import View, list_axes
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


@dataclass(frozen=True)
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
        Pairs in which nothing is louder than the noise: records treat them as nearly independent.
    """

    columns: Mapping[str, float]
    pairs: Mapping[tuple[str, str], float]
    weak: tuple[tuple[str, str], ...]

    @property
    def three_columns(self) -> float:
        """The mean over three columns of what the errors of their pairs add up to."""
        names = sorted({name for pair in self.pairs for name in pair})
        sums = []
        for three in itertools.combinations(names, 3):
            squares = [
                self.pairs.get(pair, self.pairs.get(pair[::-1], 0.0)) ** 2
                for pair in itertools.combinations(three, 2)
            ]
            sums.append(math.sqrt(sum(squares)))
        return float(np.mean(sums)) if sums else 0.0


def estimate_errors(release: "ReleaseValue") -> RecordErrors:
    """Return how far records of a release are expected to be from the truth."""
    numbers = PublishedNumbers.from_release(release)
    grid, features = numbers.dataspace.schema.grid, numbers.dataspace.schema.features
    one_way = estimate_one_way(numbers, numbers.targets)
    total = max(numbers.dataspace.n, 1)
    columns, pairs, weak = {}, {}, []
    exact = {axis for margin in numbers.margins for axis in list_axes(margin)}
    for axis in list_axes(numbers.used):
        if axis not in exact:
            depth = numbers.used[axis]
            found, error = combine_margins(numbers, numbers.targets, axis, depth)
            columns[features[axis].name] = _MEAN * error * found.size / total
    for table in numbers.targets:
        if not is_noisy_pair(grid, table):
            continue
        axes = list_axes(table.view)
        rows, count_columns = sum_to_bins(numbers, table, one_way)
        sigma = interaction_error(table)
        noisy = table.estimate.reshape(len(rows), len(count_columns))
        variances = np.full(
            noisy.shape, max(0.0, _risk(noisy, sigma, rows, count_columns)) / noisy.size
        )
        for axis, other in ((axes[0], count_columns[None, :]), (axes[1], rows[:, None])):
            if axis not in exact:
                error = _bin_error(numbers, table, axis)
                variances = variances + (error * other / total) ** 2
        names = (features[axes[0]].name, features[axes[1]].name)
        pairs[names] = min(2.0, _MEAN * float(np.sqrt(variances).sum()) / total)
        if not count_directions(noisy, sigma, rows, count_columns):
            weak.append(names)
    return RecordErrors(columns, pairs, tuple(weak))


def _bin_error(numbers: PublishedNumbers, table: TargetTable, axis: int) -> float:
    """The standard error of the count of a bin, from the measurements of bins and of levels."""
    depth, used = table.view[axis], numbers.used[axis]
    found, error = combine_margins(numbers, numbers.targets, axis, depth)
    precision = 1 / max(error**2, 1e-9)
    if used > depth:
        fine, own = combine_margins(numbers, numbers.targets, axis, used)
        precision += found.size / max(fine.size * own**2, 1e-9)
    return 1 / math.sqrt(precision)


def _risk(noisy: Floats, sigma: float, rows: Floats, columns: Floats) -> float:
    """The expected sum of squared errors of the shrunk interaction of a pair."""
    independent = np.outer(rows, columns) / max(float(rows.sum()), 1e-9)
    dimensions = (noisy.shape[0] - 1) * (noisy.shape[1] - 1)
    shrunk = shrink_pair(noisy, sigma, rows, columns)
    draw = np.random.default_rng(1)
    step = _STEP * sigma
    divergence = 0.0
    for _ in range(_PROBES):
        probe = draw.standard_normal(noisy.shape)
        moved = shrink_pair(noisy + step * probe, sigma, rows, columns)
        divergence += float((probe * (moved - shrunk)).sum()) / step / _PROBES
    left = float(((shrunk - independent - center(noisy - independent)) ** 2).sum())
    return float(left - dimensions * sigma**2 + 2 * sigma**2 * divergence)


_TAKEN_OUT = 3  # of the tables in which noise dominates a third, the worst, is left out at a time
_MOST_TABLES = 2_000


@dataclass(frozen=True)
class ProposedTable(Encodable):
    """A table as it would be published beside the others.

    Parameters
    ----------
    features, cells
        What it counts.
    error
        The standard error of a cell, as a root mean square.
    mean_count
        The records over the cells: what an average cell holds.
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


@dataclass(frozen=True)
class TableProposal(Encodable):
    """Tables to ask for, and pairs that are better left out.

    Parameters
    ----------
    tables
        What to ask for, with the errors that it would have.
    left_out
        Pairs in which noise would dominate: beside all that was proposed with them.
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
        The features that records shall have.
    budget
        What all tables may spend together.

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
        # The noise is placed anew for those that are left: their errors fall.
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
