"""Noisy tables of pairs with their noise shrunk, as targets of records.

One-way counts come from all measurements, by precision. A table of bins is spread to their levels
by interpolating odds.

The interaction of a noisy table of two features is the remainder after the product of its margins.
Its singular values are shrunk, because noise of known size raises all of them (Gavish and Donoho
2017); then each cell keeps the share of signal in its variance. All of this uses only published
numbers. Shrunk numbers are biased, so intervals never use them.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from semidp.inference.linear_estimates import weigh_mechanism
from semidp.inference.records.record_cells import TargetTable
from semidp.inference.records.starting_records import forbidden_cells
from semidp.promise.schema.margins import Chain, Grid, list_axes

if TYPE_CHECKING:
    from semidp.inference.records.record_assembly import PublishedNumbers

Floats = NDArray[np.float64]
Numbers = NDArray[np.intp]
OneWay = dict[int, Floats]

_SPREAD = 2.0  # prior variance of a cell, as a multiple of its expected count
_SPARSE = 4  # records in a cell of levels, below which bins are targets as well
_RAKES = 10  # rounds of proportional fitting
_SPREADS = 5  # the same, of levels below bins
_SAMPLED = 3  # nodes of a feature whose errors are computed
_SMALL = 1e-9


def shrink_singular_values(table: Floats, sigma: float) -> Floats:
    """Return a matrix with its singular values shrunk for independent noise of one standard
    deviation.

    For an m × q matrix, m <= q, with noise of standard deviation σ, the shrinker of least Frobenius
    loss takes a singular value y = z σ √q to ``σ √q sqrt((z² - β - 1)² - 4 β) / z`` for
    ``z > 1 + √β``, β = m/q, and to 0 otherwise (Gavish and Donoho 2017, Eq. 7).

    >>> rank_one = np.outer([3.0, -3.0], [20.0, -10.0, -10.0])
    >>> ratio = shrink_singular_values(rank_one, 1.0) / rank_one
    >>> bool(0.9 < ratio.min()), bool(ratio.max() <= 1)
    (True, True)
    >>> float(np.abs(shrink_singular_values(rank_one, 100.0)).max())
    0.0
    """
    if table.shape[0] > table.shape[1]:
        return shrink_singular_values(table.T, sigma).T
    left, values, right = np.linalg.svd(table, full_matrices=False)
    unit = sigma * np.sqrt(table.shape[1])
    if not sigma:
        return table
    ratio = table.shape[0] / table.shape[1]
    relative = values / unit
    inside = np.maximum(0.0, (relative**2 - ratio - 1) ** 2 - 4 * ratio)
    loud = relative > 1 + np.sqrt(ratio)
    shrunk = np.where(loud, np.sqrt(inside) / np.maximum(relative, _SMALL), 0.0)
    return np.asarray((left * (shrunk * unit)) @ right)


def project_counts(estimate: Floats, total: float) -> Floats:
    """Return the nonnegative counts with a given total that are nearest to an estimate.

    >>> project_counts(np.array([5.0, -1.0, 2.0]), 6.0).tolist()
    [4.5, 0.0, 1.5]
    """
    falling = np.sort(estimate)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(falling) + 1)
    positive = np.flatnonzero(falling > excess)
    shift = excess[positive[-1]] if positive.size else 0.0
    return np.maximum(0.0, estimate - shift)


def shrink_pair(table: Floats, sigma: float, rows: Floats, columns: Floats) -> Floats:
    """Return the shrunk estimate of a table of two features, with given margins.

    Parameters
    ----------
    table
        Unbiased estimate of the count of each cell.
    sigma
        Standard error of a cell.
    rows, columns
        Nonnegative counts of the two features, with the same sum.
    """
    total = max(float(rows.sum()), _SMALL)
    independent = np.outer(rows, columns) / total
    interaction = center(table - independent)
    low_rank = shrink_singular_values(interaction, sigma)
    # What the low rank leaves is kept as far as the counts themselves vary more than the noise.
    remainder = kept_share(independent + low_rank, sigma) * (interaction - low_rank)
    return np.asarray(independent + low_rank + center(remainder))


def kept_share(counts: Floats, sigma: float) -> Floats:
    """Return the share of signal in the variance of each cell, for approximately these counts.

    >>> kept_share(np.array([50.0, -3.0]), 10.0).tolist()
    [0.5, 0.0]
    """
    variance = _SPREAD * np.maximum(counts, 0.0)
    return np.asarray(variance / np.maximum(variance + sigma**2, _SMALL))


def count_directions(table: Floats, sigma: float, rows: Floats, columns: Floats) -> int:
    """Return how many singular values of the interaction of a pair exceed the noise."""
    independent = np.outer(rows, columns) / max(float(rows.sum()), _SMALL)
    shrunk = shrink_singular_values(center(table - independent), sigma)
    values = np.linalg.svd(shrunk, compute_uv=False)
    return int((values > _SMALL * max(1.0, sigma)).sum())


def center(table: Floats) -> Floats:
    """Return a table less the means of its rows and columns: its margins are 0."""
    means = table.mean(axis=1, keepdims=True) + table.mean(axis=0) - table.mean()
    return np.asarray(table - means)


def rake(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return a nonnegative table near another, with given margins, by iterative proportional
    fitting.

    >>> rake(np.array([[1.0, -1.0], [1.0, 2.0]]), np.array([1.0, 3.0]), np.array([2.0, 2.0])).round(
    ...     6
    ... ).tolist()
    [[1.0, 0.0], [1.0, 2.0]]
    """
    raked = np.maximum(table, _SMALL)
    for _ in range(_RAKES):
        raked = raked * (rows / np.maximum(raked.sum(axis=1), _SMALL))[:, None]
        raked = raked * (columns / np.maximum(raked.sum(axis=0), _SMALL))[None, :]
    return raked


# --- one-way counts -------------------------------------------------------------------------------


def combine_depths(
    fine: Floats, error: float, groups: Numbers, coarse: Floats, coarse_error: float
) -> Floats:
    """Return counts of levels that also use an estimate of the counts of their bins, by precision.

    Parameters
    ----------
    fine, error
        Estimate of each level, and the standard error of one.
    groups
        The bin of each level.
    coarse, coarse_error
        Estimate of each bin, and the standard error of one.

    Examples
    --------
    >>> combine_depths(np.array([1.0, 3.0, 8.0]), 1.0, np.array([0, 0, 1]), np.array([6.0, 6.0]), 1)
    array([1.66666667, 3.66666667, 7.        ])
    """
    sizes = np.bincount(groups, minlength=len(coarse))
    gap = coarse - np.bincount(groups, fine, minlength=len(coarse))
    variances = sizes * error**2
    share = variances / np.maximum(variances + coarse_error**2, _SMALL)
    return np.asarray(fine + (share * gap / np.maximum(sizes, 1))[groups])


def project_depths(estimate: Floats, depths: Sequence[Numbers], total: float) -> Floats:
    """Return nonnegative counts of levels near an estimate, from the coarsest bins down: mass
    gained by cutting at 0 in a bin is taken from that bin alone.

    Parameters
    ----------
    estimate
        Estimate of each level.
    depths
        The bin of each level, at each depth of bins, the coarsest first.
    total
        The number of records.

    Examples
    --------
    >>> project_depths(np.array([6.0, -2.0, 2.0]), [np.array([0, 1, 1])], 6.0).tolist()
    [6.0, 0.0, 0.0]
    >>> project_counts(np.array([6.0, -2.0, 2.0]), 6.0).tolist()
    [5.0, 0.0, 1.0]
    """
    if not depths:
        return project_counts(estimate, total)
    groups, *finer = depths
    groups = groups - groups[0]  # nodes of a depth lie in the order of their ancestors
    counts = np.zeros_like(estimate)
    bins = np.bincount(groups, estimate).astype(np.float64)
    for group, count in enumerate(project_counts(bins, total).tolist()):
        inside = groups == group
        if count > 0:
            counts[inside] = project_depths(estimate[inside], [at[inside] for at in finer], count)
    return counts


def estimate_one_way(numbers: "PublishedNumbers", targets: Sequence[TargetTable]) -> OneWay:
    """Return for each feature in use the nonnegative count of each node, from all measurements by
    precision, and exact totals.
    """
    grid, total = numbers.dataspace.schema.grid, float(numbers.dataspace.n)
    counts: OneWay = {}
    for axis in list_axes(numbers.used):
        depth = numbers.used[axis]
        view = grid.build_feature_view(axis, depth)
        exact = [known for known in numbers.dataspace.published_totals if known.view[axis] == depth]
        if exact:
            known = exact[0].sum_to_view(grid, view).counts
            counts[axis] = np.asarray(known, dtype=np.float64).ravel()
            continue
        fine, error = combine_margins(numbers, targets, axis, depth)
        measured = []
        for above in range(1, depth):
            coarse, coarse_error = combine_margins(numbers, targets, axis, above)
            if coarse.size:
                groups = _find_ancestors(grid.chains[axis], depth, above)
                fine = combine_depths(fine, error, groups, coarse, coarse_error)
                measured.append(groups)
        counts[axis] = project_depths(fine, measured, total)
    return counts


def _find_ancestors(chain: Chain, fine: int, coarse: int) -> Numbers:
    """The ancestor at depth `coarse` of each node at depth `fine`."""
    return np.repeat(np.arange(chain.size(coarse)), chain.children(coarse, fine))


def combine_margins(
    numbers: "PublishedNumbers", targets: Sequence[TargetTable], axis: int, depth: int
) -> tuple[Floats, float]:
    """Return the measurement of the nodes of a feature at one depth, by precision, and the
    standard error of one; nothing if no table has it at that depth.

    Tables that share noise agree on their common margins, which count as one measurement.
    """
    grid = numbers.dataspace.schema.grid
    view = grid.build_feature_view(axis, depth)
    mean = np.zeros(0)
    precision = 0.0
    shared: set[int] = set()
    for table in targets:
        noise, number = table.shared or (None, 0)
        if table.view[axis] != depth or (noise is not None and id(noise) in shared):
            continue
        weights = _margin_weights(table, grid, axis)
        if noise is None:
            variances = np.tensordot(weights, table.errors**2, axes=table.errors.ndim)
        else:
            shared.add(id(noise))
            variances = weigh_mechanism(noise, {number: weights}).standard_errors ** 2
        weight = 1 / max(float(np.mean(variances)), _SMALL)
        margin = grid.sum(table.estimate, view, table.view).ravel()
        precision += weight
        mean = margin if not mean.size else mean + weight / precision * (margin - mean)
    return np.asarray(mean), 1 / math.sqrt(precision) if precision else 0.0


def _margin_weights(table: TargetTable, grid: Grid, axis: int) -> Floats:
    """The cells that are added up for some nodes of a feature: a few, since all are about alike."""
    place = list_axes(table.view).index(axis)
    nodes = np.linspace(0, table.estimate.shape[place] - 1, _SAMPLED).astype(np.intp)
    weights = np.zeros((_SAMPLED, *table.estimate.shape))
    for row, node in enumerate(nodes.tolist()):
        np.moveaxis(weights[row], place, 0)[node] = 1.0
    return weights


# --- from bins to levels --------------------------------------------------------------------------


def interpolation_weights(
    groups: Numbers, counts: Floats, ordered: bool
) -> "scipy.sparse.csr_array":
    """Return the weights of bins in the odds of each level, one row per level.

    Between the centers of two bins of an ordered feature the odds change linearly. A bin of one
    level, such as a heap at zero, keeps its own.

    >>> groups = np.array([0, 0, 1, 1])
    >>> interpolation_weights(groups, np.ones(4), ordered=False).toarray()[0].tolist()
    [1.0, 0.0]
    """
    bins = int(groups.max()) + 1
    weights = scipy.sparse.lil_array(mark_bins(groups))
    if not ordered or bins < 3:
        return weights.tocsr()
    places = np.arange(len(groups), dtype=np.float64)
    sizes = np.bincount(groups)
    mass = np.bincount(groups, counts)
    by_count = np.bincount(groups, counts * places) / np.maximum(mass, _SMALL)
    centers = np.where(mass > _SMALL, by_count, np.bincount(groups, places) / sizes)
    for level, group in enumerate(groups.tolist()):
        other = group + 1 if level > centers[group] else group - 1
        if not 0 <= other < bins or sizes[group] == 1 or sizes[other] == 1:
            continue
        share = (level - centers[group]) / (centers[other] - centers[group])
        weights[level, group], weights[level, other] = 1 - share, share
    return weights.tocsr()


def mark_bins(groups: Numbers) -> "scipy.sparse.csr_array":
    """Return a row for each level, with a one in the column of its bin."""
    starts = np.arange(len(groups) + 1)
    return scipy.sparse.csr_array((np.ones(len(groups)), groups, starts))


def spread_pair(
    coarse: Floats,
    groups: tuple[Numbers, Numbers],
    counts: tuple[Floats, Floats],
    ordered: Sequence[bool],
    possible: NDArray[np.bool_],
) -> Floats:
    """Return a table of levels whose bins have given counts: the odds of bins, interpolated, times
    the product of the one-way counts, where levels can occur together.

    Parameters
    ----------
    coarse
        The table of bins.
    groups, counts, ordered
        For each of the two features the bin of each level, the count of each level, and whether
        neighbors are alike.
    possible
        Which levels can occur together.
    """
    rows, columns = counts
    total = max(float(rows.sum()), _SMALL)
    margins = [np.bincount(group, in_group) for group, in_group in zip(groups, counts, strict=True)]
    odds = coarse / np.maximum(np.outer(*margins) / total, _SMALL)
    left, right = (
        interpolation_weights(group, in_group, flag)
        for group, in_group, flag in zip(groups, counts, ordered, strict=True)
    )
    fine = np.maximum(left @ odds @ right.T, 0.0) * np.outer(rows, columns) / total * possible
    first, second = mark_bins(groups[0]), mark_bins(groups[1])
    for _ in range(_SPREADS):
        held = first.T @ fine @ second
        fine = fine * (coarse / np.maximum(held, _SMALL))[groups[0]][:, groups[1]]
        fine = fine * (rows / np.maximum(fine.sum(axis=1), _SMALL))[:, None]
        fine = fine * (columns / np.maximum(fine.sum(axis=0), _SMALL))[None, :]
    return np.asarray(fine)


# --- targets --------------------------------------------------------------------------------------


def estimate_targets(
    numbers: "PublishedNumbers", targets: Sequence[TargetTable], *, shrunk: bool = True
) -> list[TargetTable]:
    """Return the targets of records: pairs with their noise shrunk, on the levels of records;
    other tables unchanged.

    Parameters
    ----------
    numbers
        What is published.
    targets
        The estimates of its tables, or a draw of them.
    shrunk
        Whether to shrink the noise; otherwise a table on the levels of records is unchanged.
    """
    grid = numbers.dataspace.schema.grid
    one_way = estimate_one_way(numbers, targets)
    pairs = [table for table in targets if is_noisy_pair(grid, table)]
    linked = {axis for table in pairs for axis in list_axes(table.view)}
    chosen = []
    for table in targets:
        axes = list_axes(table.view)
        if is_noisy_pair(grid, table) and (shrunk or _is_coarse(numbers, table)):
            chosen += _estimate_pair(numbers, table, one_way, shrunk)
        elif len(axes) > 1 or not {*axes} <= linked:
            chosen.append(table)
    return chosen


def is_noisy_pair(grid: Grid, table: TargetTable) -> bool:
    """Whether a table is one of two features with noise."""
    axes = list_axes(table.view)
    sizes = [grid.chains[axis].size(table.view[axis]) for axis in axes]
    return len(axes) == 2 and min(sizes) > 1 and float(np.max(table.errors)) > 0


def sum_to_bins(
    numbers: "PublishedNumbers", table: TargetTable, one_way: OneWay
) -> tuple[Floats, Floats]:
    """Return the counts of the two features of a pair, on the levels of the pair."""
    grid = numbers.dataspace.schema.grid
    sums = []
    for axis in list_axes(table.view):
        groups = _find_ancestors(grid.chains[axis], numbers.used[axis], table.view[axis])
        sums.append(np.bincount(groups, one_way[axis]).astype(np.float64))
    return sums[0], sums[1]


def interaction_error(table: TargetTable) -> float:
    """Return the standard deviation σ of the noise in the interaction of a pair: with m and q
    levels that of a cell less the means of its row and column is ``σ √((1 - 1/m)(1 - 1/q))``.
    """
    if table.shared is None:
        return float(np.sqrt(np.mean(table.errors**2)))
    noise, number = table.shared
    unit = np.zeros([size for size in table.estimate.shape if size > 1])
    unit[0, 0] = 1.0
    weights = center(unit).reshape(1, *table.estimate.shape)
    error = weigh_mechanism(noise, {number: weights}).standard_errors[0]
    return float(error / math.sqrt(center(unit)[0, 0]))


def _is_coarse(numbers: "PublishedNumbers", table: TargetTable) -> bool:
    """Whether records know a feature of a table more finely than the table."""
    return any(table.view[axis] < numbers.used[axis] for axis in list_axes(table.view))


def _estimate_pair(
    numbers: "PublishedNumbers", table: TargetTable, one_way: OneWay, shrunk: bool
) -> list[TargetTable]:
    """The shrunk estimate of a pair, at the depth at which records know its features, and also on
    its bins where cells of levels hold few records: these alone would leave bins to chance.
    """
    grid, features = numbers.dataspace.schema.grid, numbers.dataspace.schema.features
    axes = list_axes(table.view)
    groups, ordered = [], []
    for axis in axes:
        chain, depth = grid.chains[axis], numbers.used[axis]
        groups.append(_find_ancestors(chain, depth, table.view[axis]))
        ordered.append(features[axis].name in numbers.ordered)
    counts = (one_way[axes[0]], one_way[axes[1]])
    rows, columns = sum_to_bins(numbers, table, one_way)
    sigma = interaction_error(table)
    noisy = table.estimate.reshape(len(rows), len(columns))
    coarse = shrink_pair(noisy, sigma if shrunk else 0.0, rows, columns)
    fine = coarse
    used = set(axes)
    view = tuple(depth if axis in used else 0 for axis, depth in enumerate(numbers.used))
    shape = grid.compute_margin_shape(view)
    impossible = dict(forbidden_cells(numbers.dataspace.schema, numbers.used)).get(view)
    bins = []
    # Cells that are not positive pull records away all the same: only bins need odds.
    if _is_coarse(numbers, table):
        raked = rake(coarse, rows, columns)
        possible = np.full(shape, True) if impossible is None else ~impossible
        possible = possible.reshape(len(counts[0]), len(counts[1]))
        fine = spread_pair(raked, (groups[0], groups[1]), counts, ordered, possible)
        if numbers.dataspace.n < _SPARSE * fine.size:
            bins.append((table.view, raked))
    elif impossible is not None:
        fine = rake(np.where(impossible.reshape(coarse.shape), 0.0, coarse), rows, columns)
    estimated = []
    for depths, cells in [(view, fine), *bins]:
        shape = grid.compute_margin_shape(depths)
        errors = np.full(shape, sigma)
        estimated.append(TargetTable(table.name, depths, cells.reshape(shape), errors))
    return estimated
