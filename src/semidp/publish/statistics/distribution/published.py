"""What a release publishes of distributions by groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import Number, number, plain
from semidp.promise.guarantee import Scope
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.results.cells import Columns, Form
from semidp.publish.statistics.distribution import words
from semidp.publish.statistics.distribution.distribution_estimates import (
    Floats,
    GroupDistributions,
    shares,
)
from semidp.publish.statistics.distribution.distribution_picture import distribution_plot
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.outcomes.published import (
    GroupWords,
    PublishedBySets,
)
from semidp.publish.statistics.protocol.results import mechanism_fields
from semidp.publish.statistics.recheck_findings import Trust

if TYPE_CHECKING:
    from semidp.publish.statistics.distribution.request import DistributionRequest
    from semidp.publish.statistics.protocol.requests import Request

CURVES = ("share", "lower", "upper", "band_lower", "band_upper")
"""The columns of a distribution: the share of records below a cut, its interval, and the band of
all cuts."""


@dataclass(frozen=True, eq=False)
class DistributionSet:
    """The distributions of the groups of one set.

    Parameters
    ----------
    groups, names
        The levels of each group, and what they are levels of.
    counts
        The exact number of records of each group.
    curves
        For each column of `CURVES` a row a group, a number for each cut.
    listed
        For each listed quantile, and then for the share below each line, an interval for every
        group.
    """

    groups: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    counts: NDArray[np.int64] = field(repr=False)
    curves: Mapping[str, Floats] = field(repr=False)
    listed: tuple[Intervals, ...] = field(repr=False)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedDistribution(PublishedBySets):
    """Published distributions of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: outcome, groups, quantiles, lines.
    sets
        The distributions of each set of groups.
    noisy
        The noisy differences of halves as drawn, group after group, in the order of the cuts.

    Examples
    --------
    >>> import semidp
    >>> from semidp.publish.statistics.distribution.request import DistributionRequest
    >>> request = DistributionRequest(
    ...     semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([request], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> (published,) = release.results
    >>> published.sets[0].counts.tolist(), published.sets[0].curves["share"].shape
    ([2, 1], (2, 10))
    """

    wording: ClassVar[GroupWords] = words
    key: ClassVar[str] = "distributions"
    releases = 1
    """How many releases measured it; more where several were combined."""

    request: "DistributionRequest"
    sets: tuple[DistributionSet, ...]
    noisy: NDArray[Any] = field(repr=False)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]
        """The features of each set of groups; a nested one with its whole path."""
        return tuple(part.names for part in self.sets)

    @cached_property
    def distributions(self) -> GroupDistributions:
        """The same distributions, of which every quantile and every share can be asked."""
        public = self.guarantee.dataspace
        assert isinstance(public, Dataspace)
        scope = Scope(public, None, self.guarantee.adjacency)
        mechanism = self.recalibrate(self.request, scope)
        return GroupDistributions(mechanism, self.measurement(mechanism), self.request.level)

    def quantiles(self, *probabilities: Number, by: Margin | None = None) -> list[Intervals]:
        """Return any quantiles of the records of each group, with intervals: they cost nothing
        more.
        """
        return self.distributions.quantiles(probabilities, by)

    def shares_below(self, line: Number, by: Margin | None = None) -> Intervals:
        """Return the share of the records of each group below any line, with intervals: it costs
        nothing more. A line that is no cut has the interval of the cuts around it.
        """
        return self.distributions.shares_below(line, by)

    @property
    def cuts(self) -> Floats:
        """Where the curves are measured: half way between steps of the grid, and at lines."""
        return np.array(self.request.cut_outcome.edges, float)

    @property
    def headings(self) -> list[str]:
        """What is listed of a group: q0.5 for a quantile, below_50 for the share below a line."""
        quantiles = [f"q{plain(probability)}" for probability in self.request.probabilities]
        return quantiles + [f"below_{plain(line)}" for line in self.request.lines]

    def plot(self, axes: Any = None, by: int = 0) -> Any:
        """Draw the distributions of one set of groups with their bands; return the figure."""
        part = self.sets[by]
        labels = [" · ".join(levels) for levels in part.groups]
        outcome = self.request.outcome
        bounds = (float(outcome.lower), float(outcome.upper))
        return distribution_plot(labels, self.cuts, part.curves, outcome.column, bounds, axes)

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values: which column was read, and why a
        distribution was.
        """
        yield from super().trust_assumptions(request)
        yield Trust("why quantiles were read off a distribution", ("plan.distribution.answers",))

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return two CSV files for each set: a row a group and value, and a row a group."""
        rows = self.noisy.reshape(-1, len(self.cuts))
        every: dict[str, Columns] = {}
        start = 0
        for place, part in enumerate(self.sets):
            end = start + len(part.groups)
            curves_file, listed_file = self.request.file_pair(place)
            every[curves_file] = self._curves(part, rows[start:end])
            every[listed_file] = self._summary_columns(part)
            start = end
        return every

    def _curves(self, part: DistributionSet, noisy: NDArray[Any]) -> Columns:
        """A row for each group and cut."""
        gaps = noisy.shape[1]
        labels: list[tuple[str, ...]] = []
        for group in part.groups:
            labels += [group] * gaps
        numbers = {"below": np.tile(self.cuts, len(part.groups))}
        for name in CURVES:
            numbers[name] = part.curves[name].ravel()
        numbers["noisy"] = noisy.ravel()
        # A group has a row for every cut, so that its levels alone tell no two rows apart.
        key = (*part.names, "below")
        return Columns.of_rows(part.names, labels, numbers, words.CURVE_MEANINGS, key)

    def _summary_columns(self, part: DistributionSet) -> Columns:
        """A row for each group: its exact count, quantiles and shares with their intervals."""
        numbers: dict[str, NDArray[Any]] = {"count": part.counts}
        for name, interval in zip(self.headings, part.listed, strict=True):
            numbers[name] = interval.values
            numbers[f"{name}_lower"] = interval.lower
            numbers[f"{name}_upper"] = interval.upper
        meanings = words.column_meanings(self.headings)
        return Columns.of_rows(part.names, part.groups, numbers, meanings)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        request = self.request
        entry = super().to_json()
        entry["files"] = list(request.files)
        entry["unit"] = float(request.outcome.width)
        entry["level"] = number(request.level)
        return entry


def published_distribution(
    request: "DistributionRequest", found: GroupDistributions
) -> PublishedDistribution:
    """Return distributions with their band, and the quantiles and shares that are to be listed."""
    return PublishedDistribution(
        request=request,
        sets=tuple(build_distribution_set(request, found, block) for block in request.by),
        noisy=np.asarray(found.measurement.noisy, dtype=np.int64),
        **mechanism_fields(request.name, found.mechanism, found.private),
    )


def build_distribution_set(
    request: "DistributionRequest", found: GroupDistributions, block: Margin
) -> DistributionSet:
    """Return the distributions of one set of groups with their band, and what is listed of them."""
    sizes = found.sizes(block)
    lower, upper = found.bounds(block)
    band_lower, band_upper = found.band(block)
    counts = (found.up_to(block), lower, upper, band_lower, band_upper)
    curves = {}
    for name, values in zip(CURVES, counts, strict=True):
        curves[name] = shares(values, sizes)
    listed = found.quantiles(request.probabilities, block)
    listed += [found.shares_below(line, block) for line in request.lines]
    groups, names = found.groups(block), found.columns(block)
    return DistributionSet(groups, names, sizes.astype(np.int64), curves, tuple(listed))
