"""Distributions of one outcome from several releases: the best estimate of every difference
of halves.

All releases measure the same nodes of the tree of values, by sets of groups. The noise of different
nodes is independent, so each node is one table of differences over all features of the groups,
of which the sets are margins: the same least squares for every node (`inference.estimation`). An
estimated difference is ``Σ c · (measured difference)``, and a cumulative count is a weighted sum of
estimated differences, one per depth. Intervals come from the distribution of that sum.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.combined.combination import TreeLayout
from semidp.inference.combined.several_releases import LAW, MOST_COUPLED, refuse_twice
from semidp.inference.estimation.estimates import Estimate, estimate
from semidp.inference.estimation.measurements import (
    CellSums,
    Classes,
    Measurements,
    Observed,
)
from semidp.inference.linear_estimates import DrawnNumbers, SumErrors
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import approximate
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.distribution.published import (
    Floats,
    GroupDistributions,
    Terms,
    about_intervals,
    count_up_to,
    distribution_facts,
    distribution_sheets,
    distribution_title,
)
from semidp.publish.statistics.outcomes.groups import clipped_text
from semidp.publish.statistics.outcomes.noise_law import entry_noise_law
from semidp.publish.statistics.protocol.requests import Noise, Published
from semidp.publish.statistics.protocol.statistic import PublishedStatistic, Sentences

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


@frozen(eq=False)
class MeasuredDifferences:
    """The measurement of an outcome in one release.

    Parameters
    ----------
    mechanism
        The noise, on the differences of halves.
    noisy
        The measured differences, group after group.
    """

    mechanism: Mechanism
    noisy: NDArray[np.int64] = field(repr=False)

    @property
    def space(self) -> DistributionSpace:
        """The groups, and the tree of values."""
        space = self.mechanism.space
        assert isinstance(space, DistributionSpace)
        return space

    @property
    def law(self) -> CountNoise:
        """The law of the noise in one difference."""
        law = entry_noise_law(self.mechanism)
        assert law is not None, "distributions are measured number by number"
        return law

    def tables(self) -> list[tuple[Margin, NDArray[np.int64]]]:
        """For each set of groups its differences: axes of the groups in the order of the features,
        then the gaps between values.
        """
        rows = self.noisy.reshape(-1, self.space.tree.gaps)
        tables = []
        start = 0
        for block, counts in zip(self.space.blocks, self.space.counts, strict=True):
            part = rows[start : start + counts.size]
            shape = (*counts.shape, self.space.tree.gaps)
            tables.append((block, part.reshape(shape)))
            start += counts.size
        return tables


@frozen(slots=False, eq=False)
class DifferencePool:
    """The differences of several releases, as one set of measurements.

    Parameters
    ----------
    space
        The outcome, and the sets of groups of all releases under all that is exact.
    measured
        The measurement of every release.
    """

    space: DistributionSpace
    measured: tuple[MeasuredDifferences, ...]

    @cached_property
    def layout(self) -> TreeLayout:
        """The features of all sets of groups, and the levels that hold a record by these sets."""
        public = self.space.dataspace
        names = {name for block in self.space.blocks for name in block.names}
        schema = Schema(public.schema.restrict(names).features)
        totals = {}
        for block, counts in zip(self.space.blocks, self.space.counts, strict=True):
            totals[block] = Table(schema.restrict(block.names), counts)
        return TreeLayout(Dataspace.from_totals(schema, totals, public.n), has_tree=False)

    def _query(self, view: View) -> CellSums:
        """Which differences a set of groups adds up; the last attribute are the gaps."""
        return CellSums([*self.layout.query(view).treatments, "each"])

    def _measurements(self, gaps: slice) -> Measurements:
        layout, observed = self.layout, []
        for one in self.measured:
            for block, table in one.tables():
                view = layout.schema.view(block.names)
                values = layout.arrange_values(table[..., gaps], view)
                observed.append(Observed(self._query(view), 0, values, one.law.variance))
        count = len(range(*gaps.indices(self.space.tree.gaps)))
        possible = {depth: mask[..., None] for depth, mask in layout.possible.items()}
        return Measurements(layout.places, (*layout.sizes, count), observed, possible)

    @cached_property
    def differences(self) -> Floats:
        """The best estimate of every difference, group after group, one row per group."""
        measurements = self._measurements(slice(None))
        coupled = Classes.from_measurements(measurements).block
        if coupled > MOST_COUPLED:
            raise Refused(
                f"nested groups or empty ones couple {coupled:,} groups here, and at most"
                f" {MOST_COUPLED:,} are combined"
            )
        answer = estimate(measurements)
        gaps = self.space.tree.gaps
        rows = []
        for block in self.space.blocks:
            view = self.layout.schema.view(block.names)
            values = answer.table(0, self._query(view)).values
            rows.append(self.layout.restore_table(values, view, [gaps]).reshape(-1, gaps))
        return np.concatenate(rows)

    @cached_property
    def _one_node(self) -> Estimate:
        """The estimate of one node: what each measured difference counts is the same for all."""
        return estimate(self._measurements(slice(0, 1)))

    @cached_property
    def terms(self) -> list[tuple[list[Terms], NDArray[np.intp]]]:
        """For each set of groups the distinct compositions of the estimated differences, and the
        one of each group.
        """
        return [
            self._find_terms(*each)
            for each in zip(self.space.blocks, self.space.counts, strict=True)
        ]

    def _find_terms(
        self, block: Margin, counts: NDArray[np.int64]
    ) -> tuple[list[Terms], NDArray[np.intp]]:
        view = self.layout.schema.view(block.names)
        alike = self.layout.find_alike_nodes(view, self._one_node.classes.plain)
        weights = []
        for cell in itertools.product(*(firsts.tolist() for firsts, _ in alike)):
            unit = np.zeros(counts.shape)
            unit[cell] = 1.0
            weights.append(self.layout.on_cells(unit, view)[..., None])
        kinds = np.arange(len(weights)).reshape([len(firsts) for firsts, _ in alike])
        which = kinds[np.ix_(*(sorts for _, sorts in alike))] if alike else kinds
        different = self._collect_terms(np.stack(weights))
        return different, np.where(counts > 0, which, -1).ravel()

    def _collect_terms(self, weights: Floats) -> list[Terms]:
        """What several weighted sums of estimated differences are made of."""
        influences = iter(self._one_node.influences({0: weights}))
        parts = []
        for one in self.measured:
            for _ in one.space.blocks:
                on_values = next(influences).reshape(len(weights), -1)
                size = on_values.shape[1]
                drawn = DrawnNumbers([one.law], np.zeros(size, dtype=np.intp), np.ones(size))
                parts.append((drawn, on_values))
        errors = SumErrors(len(weights), tuple(parts))
        return [errors.terms(number) for number in range(len(weights))]


@frozen(slots=False, eq=False)
class PooledDistributions(GroupDistributions):
    """Distributions by group from several measurements; `mechanism` and `measurement` are those of
    the first.
    """

    pool: DifferencePool = field(kw_only=True)

    @property
    def space(self) -> DistributionSpace:
        """The groups of all releases, and the tree of values."""
        return self.pool.space

    @cached_property
    def _every(self) -> Floats:
        """Unbiased counts up to each value but the last, one row per group."""
        return count_up_to(self.space.tree, self.pool.differences, self.space.sizes)

    def list_terms(self, block: Margin | None) -> tuple[list[Terms], NDArray[np.intp]]:
        """What the errors of estimated differences are made of; see `DifferencePool`."""
        return self.pool.terms[self._number(block)]


def combine_distributions(releases: "Sequence[ReleaseValue]", scope: Scope) -> list[Published]:
    """Return the common distributions of several releases: one for every outcome with the same
    cuts, except those restricted to people who answered.
    """
    alike: dict[object, list[tuple[ReleaseValue, PublishedStatistic]]] = {}
    for release in releases:
        for result in release.distributions:
            if result.request.answered is None:
                alike.setdefault(result.request.cut_outcome, []).append((release, result))
    results: list[Published] = []
    for measured in alike.values():
        sources = [result for _, result in measured]
        # Where exact totals fix a distribution, it stays as it was published.
        if len(sources) > 1 and not any(one.noise.absent for one in sources):
            _refuse_twice(measured)
            results.append(combined_distribution(sources, scope))
    return results


def _refuse_twice(measured: "Sequence[tuple[ReleaseValue, PublishedStatistic]]") -> None:
    digests = []
    for release, result in measured:
        numbers = np.asarray(result.noisy, dtype=np.int64)
        digests.append((release, [(numbers.size, sha256(numbers.tobytes()).hexdigest())]))
    refuse_twice(digests)


def combined_distribution(
    sources: Sequence[PublishedStatistic], scope: Scope
) -> PublishedStatistic:
    """Return the distributions of one outcome from several releases.

    Parameters
    ----------
    sources
        The published distributions of one outcome, with the same cuts.
    scope
        What all releases together publish exactly.
    """
    first = sources[0]
    blocks = dict.fromkeys(block for one in sources for block in one.request.by)
    probabilities = {number for one in sources for number in one.request.probabilities}
    lines = {line for one in sources for line in one.request.lines}
    level = min(one.request.level for one in sources)
    name = f"distribution-{first.request.outcome.column}"
    request = evolve(
        first.request,
        by=tuple(blocks),
        probabilities=sorted(probabilities),
        lines=sorted(lines),
        budget=None,
        level=level,
        answers=None,
        name=name,
    )
    pooled = _pool_differences(request, sources, scope)
    claims = {one.noise.claim for one in sources}
    claim = "exact" if claims <= {"exact"} else "ideal"
    private = all(one.private for one in sources)
    # What it guarantees is said about the release as a whole: with delta = 1 nothing is claimed.
    nothing = Guarantee(scope.dataspace, scope.adjacency, approximate(0, 1))
    noisy = pooled.pool.differences.ravel()
    many = len(sources)
    sentences = Sentences(
        title=distribution_title(request),
        noise=f"the best linear unbiased estimate from {many} releases",
        paragraphs=(
            f"{clipped_text(request.outcome)}. {many} releases cut the range of values into halves,"
            " again and again, and measured the number of records in each left half less that in"
            " the right half, in each of their groups. Here every difference is the best linear"
            " unbiased estimate from all of them: an average weighted by precision, which also uses"
            " what sets of groups have in common.",
            about_intervals(request),
        ),
    )
    facts = {**distribution_facts(request), "releases": many, "request": request.to_json()}
    return PublishedStatistic(
        name=request.name,
        noise=Noise(LAW, 0.0, claim, 0.0, None),
        guarantee=nothing,
        advertised=None,
        private=private,
        request=request,
        sheets=tuple(distribution_sheets(request, pooled, noisy)),
        analysis=pooled,
        sentences=sentences,
        facts=facts,
        mechanism=None,
        noisy=noisy,
    )


def _pool_differences(
    request: DistributionRequest, sources: Sequence[PublishedStatistic], scope: Scope
) -> PooledDistributions:
    """Differences of all sources as one set of measurements."""
    space = request.space(scope)
    assert isinstance(space, DistributionSpace)
    measured = []
    for one in sources:
        mechanism = one.analysis.mechanism
        measured.append(MeasuredDifferences(mechanism, np.asarray(one.noisy, dtype=np.int64)))
    pool = DifferencePool(space, tuple(measured))
    private = all(one.private for one in sources)
    measurement = evolve(sources[0].analysis.measurement, private=private)
    return PooledDistributions(measured[0].mechanism, measurement, request.level, pool=pool)
