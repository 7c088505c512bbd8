"""Distributions of one outcome that several releases measured: the best estimate of every
difference of halves.

All releases measure the same nodes of the tree of values, by sets of groups. The noise of different
nodes is independent, so each node is one table of differences over all features of the groups,
of which the sets are margins: the same least squares for every node (`inference.estimation`). An
estimated difference is ``Σ c · (measured difference)``, and the count up to a value a weighted sum
of estimated differences, one a depth. Intervals come from the law of that sum.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.combined.several_releases import LAW, MOST_COUPLED, refuse_twice
from semidp.inference.estimation.estimates import Estimate, estimate
from semidp.inference.estimation.measurements import (
    CellSums,
    Classes,
    Measurements,
    Observed,
    Places,
)
from semidp.inference.linear_estimates import DrawnNumbers, SumErrors
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import approximate
from semidp.publish.half_widths import Weighted, half_widths
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.distribution.published import (
    Floats,
    GroupDistributions,
    about_intervals,
    band_rank,
    count_up_to,
    distribution_facts,
    distribution_sheets,
    distribution_title,
    gap_weights,
    simulations,
)
from semidp.publish.statistics.outcomes.groups import clipped_text
from semidp.publish.statistics.outcomes.noise_law import entry_noise_law
from semidp.publish.statistics.protocol.requests import Noise, Published
from semidp.publish.statistics.protocol.statistic import PublishedStatistic, Sentences

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

_MOST_LAWS = 4000  # of counts up to a value, in all kinds of groups

Terms = tuple[Weighted, ...]
"""What an estimated difference is made of: laws, sizes of weights, and how many numbers have
each."""


@dataclass(frozen=True, eq=False)
class MeasuredDifferences:
    """What one release measured of an outcome.

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


@dataclass(frozen=True, eq=False)
class DifferencePool:
    """The differences of several releases, as one set of measurements.

    Parameters
    ----------
    space
        The outcome, and the sets of groups of all releases under all that is exact.
    measured
        What every release measured.
    """

    space: DistributionSpace
    measured: tuple[MeasuredDifferences, ...]

    @cached_property
    def _axes(self) -> tuple[int, ...]:
        """Features that some set of groups names."""
        views = [self._view(block) for block in self.space.blocks]
        return tuple(sorted({axis for view in views for axis in list_axes(view)}))

    def _view(self, block: Margin) -> View:
        return self.space.dataspace.schema.view(block.names)

    @cached_property
    def _possible_leaves(self) -> dict[int, NDArray[np.bool_]]:
        """For each feature the leaves that can hold a record, by the sets of groups that name
        it.
        """
        chains = self.space.dataspace.schema.grid.chains
        kept = {}
        for axis in self._axes:
            leaves = chains[axis].size(chains[axis].depth)
            kept[axis] = np.ones(leaves, bool)
        for block, counts in zip(self.space.blocks, self.space.counts, strict=True):
            view = self._view(block)
            for place, axis in enumerate(list_axes(view)):
                other_axes = tuple(other for other in range(counts.ndim) if other != place)
                inhabited = counts.sum(axis=other_axes) > 0
                kept[axis] &= inhabited[chains[axis].find_leaf_ancestors(view[axis])]
        return kept

    @property
    def _sizes(self) -> tuple[int, ...]:
        kept = self._possible_leaves
        return tuple(int(kept[axis].sum()) for axis in self._axes)

    def _nodes(self, axis: int, depth: int) -> NDArray[np.intp]:
        """Node at a depth of every leaf of a feature that can hold a record."""
        chain = self.space.dataspace.schema.grid.chains[axis]
        return np.asarray(chain.find_leaf_ancestors(depth))[self._possible_leaves[axis]]

    def _query(self, block: Margin) -> CellSums:
        """Which differences a set of groups adds up; the last attribute are the gaps."""
        view = self._view(block)
        treatments: list[str | tuple[int, ...]] = []
        for axis in self._axes:
            nodes = self._nodes(axis, view[axis]) if view[axis] else np.zeros(0)
            if not view[axis]:
                treatments.append("summed")
            elif len(np.unique(nodes)) == len(nodes):
                treatments.append("each")
            else:
                groups = np.unique(nodes, return_inverse=True)[1]
                treatments.append(tuple(groups.tolist()))
        return CellSums([*treatments, "each"])

    def _places(self, block: Margin) -> tuple[NDArray[np.intp], ...]:
        """Where the groups that can hold a record stand in the table of a set."""
        view = self._view(block)
        nodes = []
        for axis in list_axes(view):
            nodes.append(np.unique(self._nodes(axis, view[axis])))
        return np.ix_(*nodes) if nodes else ()

    @cached_property
    def _possible(self) -> dict[int, NDArray[np.bool_]]:
        """Joint cells of features that can hold a record, where sets of several features show some
        to be empty.
        """
        mask = np.ones(self._sizes, dtype=bool)
        for block, counts in zip(self.space.blocks, self.space.counts, strict=True):
            view = self._view(block)
            index: list[NDArray[np.intp]] = []
            for axis in list_axes(view):
                index.append(self._nodes(axis, view[axis]))
            if not index:
                continue
            pairs = zip(self._axes, self._sizes, strict=True)
            shape = [size if view[axis] else 1 for axis, size in pairs]
            mask &= (counts[np.ix_(*index)] > 0).reshape(shape)
        return {} if mask.all() else {0: mask[None, ..., None]}

    def _measurements(self, gaps: slice) -> Measurements:
        observed = []
        for one in self.measured:
            for block, table in one.tables():
                values = table[self._places(block)][..., gaps][None]
                query = self._query(block)
                observed.append(Observed(query, 0, values, one.law.variance))
        count = len(range(*gaps.indices(self.space.tree.gaps)))
        return Measurements(Places(), (*self._sizes, count), observed, self._possible)

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
        rows = []
        for block, counts in zip(self.space.blocks, self.space.counts, strict=True):
            whole = np.zeros((*counts.shape, self.space.tree.gaps))
            query = self._query(block)
            table = answer.table(0, query).values[0]
            places = self._places(block)
            shape = [len(part.ravel()) for part in places]
            whole[places] = table.reshape(*shape, self.space.tree.gaps)
            rows.append(whole.reshape(counts.size, -1))
        return np.concatenate(rows)

    @cached_property
    def _one_node(self) -> Estimate:
        """The estimate of one node: what each measured difference counts is the same for all."""
        return estimate(self._measurements(slice(0, 1)))

    def terms(self, block: Margin) -> tuple[list[Terms], NDArray[np.intp]]:
        """What the estimated difference of each group of a set is made of: the different ones, and
        which each group has.
        """
        view = self._view(block)
        query = self._query(block)
        axes = [place for place, axis in enumerate(self._axes) if view[axis]]
        shape = query.shape((*self._sizes, 1))
        lengths = [shape[place] for place in axes]
        plain = self._one_node.classes.plain
        # All groups of a plain feature have one law: the first stands for them.
        choices = []
        for place, length in zip(axes, lengths, strict=True):
            choices.append(range(1 if place in plain else length))
        kinds = list(itertools.product(*choices))
        weights = np.zeros((len(kinds), 1, *self._sizes, 1))
        for number, kind in enumerate(kinds):
            group = dict(zip(axes, kind, strict=True))
            weights[number, 0, ..., 0] = self._cells(query, group)
        different = self._collect_terms(weights)
        by_choice = [len(choice) for choice in choices]
        of_kind = np.arange(len(kinds)).reshape(by_choice)
        counts = self.space.counts[self.space.blocks.index(block)]
        table = np.full(counts.shape, -1, dtype=np.intp)
        table[self._places(block)] = np.broadcast_to(of_kind, lengths)
        return different, table.ravel()

    def _cells(self, query: CellSums, chosen: dict[int, int]) -> Floats:
        """Cells of all features that one group of a set adds up."""
        cells = np.ones(())
        for place, size in enumerate(self._sizes):
            row = query.matrix(place, size)[chosen.get(place, 0)]
            cells = np.multiply.outer(cells, row)
        return cells

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


@dataclass(frozen=True, eq=False)
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

    @cached_property
    def _widths(self) -> dict[tuple[str, Margin], Floats]:
        """Half-widths of sets of groups that were asked for; their laws take a while."""
        return {}

    def block_half_widths(self, block: Margin | None) -> Floats:
        """How far the count up to each value but the last is off at most, with the probability
        `level` each: one row per group.

        From the law of the noise. If laws are too many, Chebyshev's bound takes their place,
        which holds for any: ``sd / √(1 - level)``.
        """
        return self._cached_widths("each", block, self._half_widths)

    def _cached_widths(
        self, what: str, block: Margin | None, compute: Callable[[Margin], Floats]
    ) -> Floats:
        chosen = self.space.blocks[self._number(block)]
        if (what, chosen) not in self._widths:
            self._widths[what, chosen] = compute(chosen)
        return self._widths[what, chosen]

    def _half_widths(self, block: Margin) -> Floats:
        different, which = self.pool.terms(block)
        tree = self.space.tree
        in_order_of_size = np.sort(gap_weights(tree), axis=1)
        weights, of_gap = np.unique(in_order_of_size, axis=0, return_inverse=True)
        widths = []
        for terms in different:
            if len(weights) * len(different) > _MOST_LAWS:
                squares = np.square(weights).sum(axis=1)
                spread = np.sqrt(_sum_variance(terms) * squares)
                # Chebyshev's inequality, which needs no law.
                missed = 1 - float(self.level)
                widths.append(spread / math.sqrt(missed))
                continue
            sums = [_count_terms(row, terms) for row in weights.tolist()]
            widths.append(np.array(half_widths(sums, float(self.level))))
        return _rows([row[of_gap.ravel()] for row in widths], which, tree.gaps)

    def block_band_widths(self, block: Margin | None) -> Floats:
        """How far the counts up to all values of a group are off at most, with the probability
        `level` together.
        """
        return self._cached_widths("band", block, self._band_widths)

    def _band_widths(self, block: Margin) -> Floats:
        different, which = self.pool.terms(block)
        tree = self.space.tree
        deviations = np.sqrt(np.square(gap_weights(tree)).sum(axis=1))
        widths = []
        for terms in different:
            spread = deviations * math.sqrt(_sum_variance(terms))
            numbers = sum(term.count for term in terms)
            count = simulations(tree.gaps * max(numbers, 1))
            noise = _simulate_noise(terms, (count, tree.gaps))
            counts_off = count_up_to(tree, noise, np.zeros(count))
            errors = np.abs(counts_off / np.maximum(spread, 1e-300))
            largest = np.sort(errors.max(axis=1))
            rank = band_rank(count, self.level)
            widths.append(spread * largest[rank - 1])
        return _rows(widths, which, tree.gaps)


def _sum_variance(terms: Terms) -> float:
    return sum(term.variance for term in terms)


def _count_terms(weights: Sequence[float], terms: Terms) -> list[Weighted]:
    """Terms of the count up to a value, from the weights of one difference a depth."""
    every = []
    for weight in weights:
        if weight:
            for term in terms:
                every.append(replace(term, weight=Fraction(weight) * term.weight))
    return every


def _simulate_noise(terms: Terms, shape: tuple[int, int]) -> Floats:
    """Noise of estimated differences, by public randomness: the same for everybody."""
    source = SeededRandomness(0)
    total = np.zeros(shape)
    for term in terms:
        for _ in range(term.count):
            total += float(term.weight) * term.law.sample(shape, source)
    return total


def _rows(widths: list[Floats], which: NDArray[np.intp], gaps: int) -> Floats:
    """A row a group; zeros for groups without records, whose distribution is known."""
    return np.stack([*widths, np.zeros(gaps)])[which]


def combine_distributions(releases: "Sequence[ReleaseValue]", scope: Scope) -> list[Published]:
    """Return the distributions that several releases have in common: one for every outcome that
    they cut alike, but for those of whoever answered.
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
        What the releases published of one outcome, with the same cuts.
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
    # What it guarantees is said of the release as a whole: with delta = 1 nothing is claimed.
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
    measurement = replace(sources[0].analysis.measurement, private=private)
    return PooledDistributions(measured[0].mechanism, measurement, request.level, pool=pool)
