"""How far records are from the truth, estimated from published numbers alone.

The error of a shrunk table of a pair is estimated without bias (Stein 1981): for an estimate h of μ
from D = μ + noise of standard deviation σ in k dimensions,
``E‖h(D) - μ‖² = E(‖h(D) - D‖² - k σ² + 2 σ² div h(D))``. What is left of three columns beyond their
pairs is not measured at all, so that errors of three columns are at least what pairs leave open.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
from semidp.promise.schema.margins import list_axes

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
