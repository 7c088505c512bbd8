"""What a release publishes of quantiles by groups."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism, NoNoise
from semidp.promise.sensitivity.rank_space import RankSpace
from semidp.publish.results.cells import Columns, Form
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.protocol.results import Noise, noise_law
from semidp.publish.statistics.quantiles import words
from semidp.publish.statistics.quantiles.quantile_estimates import GroupQuantiles, most_rank_error
from semidp.publish.statistics.recheck_findings import Trust

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request
    from semidp.publish.statistics.quantiles.request import QuantileRequest
from semidp.publish.statistics.outcomes.published import (
    GroupWords,
    PublishedBySets,
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedQuantiles(PublishedBySets):
    """Published quantiles of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: outcome, groups, probabilities.
    groups, columns, counts
        For each set the levels of its groups, what they are levels of, and the exact number of
        records.
    values
        For each set the quantiles, a row a group.
    intervals
        For each set an interval for each quantile, where asked for.
    noisy
        The steps as chosen, group after group: each quantile, with the two ends of its interval
        where asked for.
    rank_error
        By how many ranks a choice is off at most, with 95% probability; None where there is no
        record.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.QuantileRequest(
    ...     semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([request], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.quantiles[0].counts[0].tolist()
    [2, 1]
    """

    wording: ClassVar[GroupWords] = words
    key: ClassVar[str] = "quantiles"
    request: "QuantileRequest"
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    columns: tuple[tuple[str, ...], ...]
    counts: tuple[NDArray[np.int64], ...] = field(repr=False)
    values: tuple[NDArray[np.float64], ...] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    rank_error: int | None

    def recalibrate(self, request: "Request", scope: Scope) -> Mechanism:
        """Return how its values were chosen, as its budget allows."""
        return request.calibrate(request.space(scope))

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is believed of it besides its choices: which column was read, and which ranks
        were meant.
        """
        yield from super().trust_assumptions(request)
        yield Trust("which ranks the choices of quantiles aimed at", ("plan.quantile.level",))

    def cautions(self) -> list[str]:
        """Say that noise dominates many of its groups."""
        return words.cautions(self)

    def rows(self, number: int) -> Iterator[tuple[tuple[str, ...], int, list[float]]]:
        """Yield each group of a set with its exact count and its numbers: a quantile, its interval,
        the next.
        """
        counts = self.counts[number].tolist()
        columns = (self.groups[number], counts, *self._numbers(number))
        for group, count, *numbers in zip(*columns, strict=True):
            yield group, count, [float(value) for value in numbers]

    def _numbers(self, number: int) -> list[NDArray[np.float64]]:
        """The columns of a set: each quantile, with the ends of its interval."""
        parts = []
        for k in range(len(self.request.probabilities)):
            parts.append(self.values[number][:, k])
            # Without intervals the set has none for this quantile.
            for interval in self.intervals[number][k : k + 1]:
                parts += [interval.lower, interval.upper]
        return parts

    @property
    def headings(self) -> list[str]:
        """What the numbers of a row are called: q0.5, q0.5_lower, q0.5_upper."""
        ends = ("", "_lower", "_upper") if self.request.level is not None else ("",)
        headings = []
        for q in self.request.probabilities:
            headings += [f"q{plain(q)}{end}" for end in ends]
        return headings

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a CSV file for each set: levels, exact count, quantiles with their intervals,
        chosen steps.
        """
        steps = self.noisy.reshape(-1, len(self.headings)).T
        places = np.cumsum([0, *map(len, self.groups)])
        files = []
        for place, (start, end) in enumerate(pairwise(places)):
            quantiles = zip(self.headings, self._numbers(place), strict=True)
            numbers = {"count": self.counts[place], **dict(quantiles)}
            for name, row in zip(self.headings, steps, strict=True):
                numbers[f"steps_{name}"] = row[start:end]
            meanings = words.column_meanings(self.headings)
            files.append(
                Columns.of_rows(self.columns[place], self.groups[place], numbers, meanings)
            )
        return dict(zip(self.request.files, files, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        about = None
        if self.request.level is not None:
            about = str(self.intervals[0][0].about)
        values = super().to_json()
        values["files"] = list(self.request.files)
        values["unit"] = float(self.request.outcome.width)
        values["rank_error"] = self.rank_error
        values["about"] = about
        return values


def _quantiles(
    request: "QuantileRequest", scope: Scope, noisy: NDArray[np.int64]
) -> dict[str, Any]:
    """Return what follows from the chosen steps."""
    space = request.space(scope)
    chosen = Measurement(noisy, noisy.astype(np.float64), "", "exact", False)
    quantiles = GroupQuantiles(NoNoise(space), chosen)
    assert isinstance(space, RankSpace)
    groups, columns, values, intervals = [], [], [], []
    for block in request.by:
        groups.append(quantiles.groups(block))
        columns.append(quantiles.columns(block))
        values.append(quantiles.values(block))
        intervals.append(() if request.level is None else quantiles.intervals(block))
    flat_counts = [counts.ravel() for counts in space.counts]
    return {
        "request": request,
        "groups": tuple(groups),
        "columns": tuple(columns),
        "counts": tuple(flat_counts),
        "values": tuple(values),
        "intervals": tuple(intervals),
        "noisy": noisy,
    }


def published_quantiles(
    request: "QuantileRequest", found: GroupQuantiles, scope: Scope
) -> PublishedQuantiles:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    expected = mechanism.expected_l2
    law = noise_law(mechanism)
    noise = Noise(mechanism.name, mechanism.scale, mechanism.claim, expected, None, law)
    quantiles = _quantiles(request, scope, found.measurement.noisy)
    return PublishedQuantiles(
        **quantiles,
        rank_error=most_rank_error(mechanism),
        name=request.name,
        noise=noise,
        guarantee=mechanism.guarantee,
        advertised=None,
        private=found.private,
    )
