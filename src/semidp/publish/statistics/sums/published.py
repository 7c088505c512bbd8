"""What a release publishes of sums, means and proportions by groups, with their intervals."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.cells import Columns, Form
from semidp.publish.statistics.outcomes.comparison import Comparison
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.outcomes.group_sums import Estimates, GroupSums
from semidp.publish.statistics.protocol.results import mechanism_fields

if TYPE_CHECKING:
    from semidp.publish.statistics.sums.request import GroupRequest
from semidp.publish.statistics.outcomes.published import (
    PublishedStatistic,
    StatisticWords,
    describe_intervals,
    interval_columns,
    pair_column_names,
)
from semidp.publish.statistics.outcomes.words import STATISTIC_MEANINGS
from semidp.publish.statistics.sums import words


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedGroups(PublishedStatistic):
    """One published statistic of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: statistic, outcome, groups.
    estimates
        The statistic of each set of groups, with exact counts and the standard errors of the noise.
    comparisons
        Whether the means of each set differ by more than sampling and noise explain.
    columns
        The features of each set of groups; a nested one with its whole path.
    noisy
        The noisy sums as drawn, in steps of the grid above the lower bound, set after set.
    intervals, differences
        For each set the intervals of its estimates, and of their differences where asked for: of
        the noise alone, and for the population.

    Examples
    --------
    >>> import semidp
    >>> passed = semidp.publish.GroupRequest(
    ...     "proportion", semidp.Outcome("passed", 0, 1, 1), [["ward"]], semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([passed], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "passed": [1, 0, 1]})
    >>> release.groups[0].estimates[0].counts.tolist()  # exact; the proportions are not
    [2, 1]
    """

    wording: ClassVar[StatisticWords] = words
    key: ClassVar[str] = "groups"
    request: "GroupRequest"
    estimates: tuple[Estimates, ...]
    comparisons: tuple[Comparison, ...]
    columns: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...]
    differences: tuple[tuple[Intervals, ...], ...] = ()

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a CSV file for each set: levels, exact count, estimate, standard error, intervals,
        noisy steps.
        """
        sizes = [len(part.groups) for part in self.estimates]
        places = np.cumsum([0, *sizes])
        sets = zip(self.columns, self.estimates, self.intervals, pairwise(places), strict=True)
        files = []
        for names, part, intervals, (start, end) in sets:
            estimates = {
                str(self.request.statistic): part.values,
                "standard_error": part.standard_errors,
            }
            numbers = {
                "count": part.counts,
                **estimates,
                **interval_columns(intervals),
                "noisy_steps": self.noisy[start:end],
            }
            files.append(Columns.of_rows(names, part.groups, numbers, STATISTIC_MEANINGS))
        # Differences are there for every set, or for none where nobody asked.
        for names, intervals in zip(self.columns, self.differences, strict=False):
            numbers = {"difference": intervals[0].values, **interval_columns(intervals)}
            files.append(
                Columns.of_rows(
                    pair_column_names(names), intervals[0].names, numbers, words.DIFFERENCE_MEANINGS
                )
            )
        return dict(zip(self.request.files, files, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the estimates, which are in the CSV files, as plain values."""
        comparisons = [asdict(comparison) for comparison in self.comparisons]
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(self.outcome.width),
            "comparisons": comparisons,
            "intervals": describe_intervals(self.intervals[0]),
        }


def published_groups(request: "GroupRequest", found: GroupSums) -> PublishedGroups:
    """Return sums, or means and proportions over exact counts, with intervals."""
    total = request.statistic == "sum"
    statistic = found.sums if total else found.means
    every = found.sum_intervals if total else found.mean_intervals
    estimates, comparisons, intervals, differences = [], [], [], []
    for number, block in enumerate(request.by):
        estimates.append(statistic(block))
        comparisons.append(_comparison(found, number))
        intervals.append(_requested_intervals(every, block, request))
        if request.confidence.differences:
            differences.append(_requested_intervals(found.difference_intervals, block, request))
    return PublishedGroups(
        request=request,
        estimates=tuple(estimates),
        comparisons=tuple(comparisons),
        columns=tuple(map(found.columns, request.by)),
        noisy=np.asarray(found.measurement.noisy, dtype=np.int64),
        intervals=_alike(intervals),
        differences=tuple(differences),
        **mechanism_fields(request.name, found.mechanism, found.private),
    )


def _requested_intervals(
    intervals: Callable[..., Intervals], block: Margin, request: "GroupRequest"
) -> tuple[Intervals, ...]:
    """Return the intervals of the noise alone, and those for the population where asked for."""
    confidence = request.confidence
    simultaneous = confidence.simultaneous
    of_noise = intervals(block, level=confidence.level, sampling=False, simultaneous=simultaneous)
    if not confidence.sampling:
        return (of_noise,)
    of_population = intervals(
        block, level=confidence.level, sampling=True, simultaneous=simultaneous
    )
    return of_noise, of_population


def _alike(sets: list[tuple[Intervals, ...]]) -> tuple[tuple[Intervals, ...], ...]:
    """Let a request say one thing of all its sets: a level is exact where it is exact in each."""
    exact = []
    for parts in zip(*sets, strict=True):
        exact.append(all(part.exact for part in parts))
    alike = []
    for parts in sets:
        stated_alike = map(_with_exactness, parts, exact)
        alike.append(tuple(stated_alike))
    return tuple(alike)


def _with_exactness(intervals: Intervals, exact: bool) -> Intervals:
    """Intervals that say whether their level is kept exactly."""
    return replace(intervals, exact=exact)


def _comparison(found: GroupSums, number: int) -> Comparison:
    """Compare the means of one set, with the largest spread that the bounds allow; nothing where
    there is no record.

    Readers ask about the population that the records come from: without sampling any two groups
    differ.
    """
    compared = found.compare(found.blocks[number], sampling=True)
    # Without records there is no common mean, and JSON has no number for that.
    return compared if math.isfinite(compared.pooled) else Comparison(0.0, 0, 0.0)
