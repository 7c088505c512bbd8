"""Private medians and quantiles by group beside exact group sizes, with intervals that are chosen
beside them.

The proof is in `rank_space`, the exact choice in `exponential`. Sums and means are in
`statistics.sums`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.exponential import ExponentialMechanism, farthest_rank
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.rank_space import RankSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.groups import ByBlocks

Floats = NDArray[np.float64]
MEDIAN = Fraction(1, 2)
"""The quantile that is chosen unless others are named."""


@dataclass(frozen=True, eq=False)
class GroupQuantiles(ByBlocks):
    """Quantiles of an outcome by group. Nothing in it is confidential.

    Examples
    --------
    >>> import semidp as sd
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "ward": np.repeat(["a", "b"], 500),
    ...     "days": np.r_[np.arange(500) / 100, 5 + np.arange(500) / 100],
    ... }
    >>> days = sd.Outcome("days", 0, 10, 100)
    >>> request = sd.publish.QuantileRequest(
    ...     days, [["ward"]], ["1/2"], sd.Budget.gdp(1), mechanism="selection"
    ... )
    >>> prepared = sd.prepare(sd.Plan([request], ["ward"]), records)
    >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
    >>> found = GroupQuantiles(mechanism, mechanism.measure(values, SeededRandomness(1)))
    >>> for (ward,), count, median in found.rows():
    ...     print(ward, count, round(median))
    a 500 2
    b 500 8
    >>> found.guarantee.adjacency.a, found.private
    (2, False)
    """

    @property
    def space(self) -> RankSpace:
        """The groups, and what was chosen in each."""
        assert isinstance(self.mechanism.space, RankSpace)
        return self.mechanism.space

    def values(self, block: Margin | None = None) -> Floats:
        """Return the quantiles of a set, a row a group, in the order of their probabilities; NaN
        without records.

        Choices of one group are put in order, which costs nothing and only helps.
        """
        return np.sort(self._chosen_values(block)[:, :, 0], axis=1)

    def intervals(self, block: Margin | None = None) -> tuple[Intervals, ...]:
        """Return an interval for each quantile, group after group; refuse where none were asked
        for.

        Ends lie half a step of the grid beyond the chosen values, since records were rounded to
        them. An end at a bound of the outcome says no more than that: the group is too small for a
        rank so far away.
        """
        space = self.space
        if space.level is None:
            raise InputError(
                "no intervals were chosen beside the quantiles: ask for them with a level"
            )
        values, chosen = self.values(block), self._chosen_values(block)
        about = About.sampling if space.sampling else About.noise
        # Ends are chosen independently of the quantile and may fall on its wrong side: they are
        # moved outwards only, which loses no coverage.
        groups = self.groups(block)
        half = float(space.outcome.width / 2)
        bounds = float(space.outcome.lower), float(space.outcome.upper)
        intervals = []
        for k in range(len(space.probabilities)):
            quantile = values[:, k]
            lower = np.maximum(np.minimum(chosen[:, k, 1], quantile) - half, bounds[0])
            upper = np.minimum(np.maximum(chosen[:, k, 2], quantile) + half, bounds[1])
            intervals.append(Intervals(groups, quantile, lower, upper, space.level, about))
        return tuple(intervals)

    def rows(self, block: Margin | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield each group with its exact count and its quantiles."""
        counts = self.space.counts[self._number(block)].ravel().tolist()
        rows = self.values(block).tolist()
        for group, count, values in zip(self.groups(block), counts, rows, strict=True):
            yield group, count, *values

    def _chosen_values(self, block: Margin | None) -> Floats:
        """The chosen values in units of the outcome: groups, quantiles, and the quantile with its
        ends.
        """
        space, number = self.space, self._number(block)
        ends = np.cumsum([0, *(counts.size for counts in space.counts)])
        shape = (len(space.sizes), len(space.probabilities), -1)
        steps = self.measurement.projected.reshape(shape)
        outcome = space.outcome
        exact_values = [outcome.lower + outcome.width * step for step in range(outcome.steps + 1)]
        grid = np.array([float(value) for value in exact_values])
        of_block = steps[ends[number] : ends[number + 1]]
        values = grid[of_block.astype(np.int64)]
        # A group without records has no quantile.
        occupied = space.counts[number].ravel() > 0
        return np.where(occupied[:, None, None], values, np.nan)


def most_rank_error(mechanism: Mechanism) -> int | None:
    """Return by how many ranks a chosen value is off at most, with probability 0.95; None without
    noise.
    """
    return farthest_rank(mechanism, 0.05) if isinstance(mechanism, ExponentialMechanism) else None
