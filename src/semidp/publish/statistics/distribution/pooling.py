"""Distributions of one outcome that several releases measured: the best estimate of every
difference of halves.

All releases measure the same nodes of the tree of values, by sets of groups. The noise of different
nodes is independent, so that each node is one table of differences over all features of the groups,
of which the sets are margins: the same least squares for every node (`publish.estimation`). An
estimated difference is ``Σ c · (measured difference)``, and the count up to a value a weighted sum
of estimated differences, one a depth. Intervals come from the law of that sum.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.noise.sums import Weighted, half_widths
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.estimation.estimates import Estimate, estimate
from semidp.publish.estimation.measurements import CellSums, Classes, Measurements, Observed, Places
from semidp.publish.statistics.distribution.distribution_estimates import (
    Floats,
    GroupDistributions,
    band_rank,
    simulations,
)
from semidp.publish.statistics.outcomes.noise_law import entry_noise_law

MOST_COUPLED = 2000
"""Groups of features that nested sets or empty groups couple."""
_MOST_LAWS = 4000  # of counts up to a value, in all kinds of groups
_NOTHING = 1e-12  # a weight that floating point has left where there is none

Terms = dict[tuple[CountNoise, float], int]
"""What an estimated difference is made of: laws and sizes of weights, and how many numbers have
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
        """The best estimate of every difference, group after group, a row a group."""
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
        different = self._different(weights)
        by_choice = [len(choice) for choice in choices]
        of_kind = np.arange(len(kinds)).reshape(by_choice)
        table = np.full(self._shape(block), -1, dtype=np.intp)
        table[self._places(block)] = np.broadcast_to(of_kind, lengths)
        return different, table.ravel()

    def _shape(self, block: Margin) -> tuple[int, ...]:
        number = self.space.blocks.index(block)
        return tuple(self.space.counts[number].shape)

    def _cells(self, query: CellSums, chosen: dict[int, int]) -> Floats:
        """Cells of all features that one group of a set adds up."""
        cells = np.ones(())
        for place, size in enumerate(self._sizes):
            row = query.matrix(place, size)[chosen.get(place, 0)]
            cells = np.multiply.outer(cells, row)
        return cells

    def _different(self, weights: Floats) -> list[Terms]:
        """Laws and sizes of weights on measured differences, for several weighted sums."""
        every: list[Terms] = [{} for _ in weights]
        influences = iter(self._one_node.influences({0: weights}))
        for one in self.measured:
            for _ in one.space.blocks:
                for terms, part in zip(every, next(influences), strict=True):
                    sizes = np.abs(part).ravel()
                    # Weights that are equal by symmetry differ in their last digits.
                    rounded = [float(f"{size:.10g}") for size in sizes if size > _NOTHING]
                    for size in rounded:
                        term = (one.law, size)
                        terms[term] = terms.get(term, 0) + 1
        return every


def terms_variance(terms: Terms) -> float:
    """The variance of an estimated difference."""
    variances = []
    for (law, size), count in terms.items():
        variances.append(law.variance * size**2 * count)
    return sum(variances)


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
        """Unbiased counts up to each value but the last, a row a group."""
        return self.space.tree.up_to(self.pool.differences, self.space.sizes)

    @cached_property
    def _widths(self) -> dict[tuple[str, Margin], Floats]:
        """Half-widths of sets of groups that were asked for; their laws take a while."""
        return {}

    def block_half_widths(self, block: Margin | None) -> Floats:
        """How far the count up to each value but the last is off at most, with the probability
        `level` each: a row a group.

        From the law of the noise. Where laws are too many, Chebyshev's bound takes their place,
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
        in_order_of_size = np.sort(tree.weights, axis=1)
        weights, of_gap = np.unique(in_order_of_size, axis=0, return_inverse=True)
        widths = []
        for terms in different:
            if len(weights) * len(different) > _MOST_LAWS:
                squares = np.square(weights).sum(axis=1)
                spread = np.sqrt(terms_variance(terms) * squares)
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
        deviations = np.sqrt(np.square(tree.weights).sum(axis=1))
        widths = []
        for terms in different:
            spread = deviations * math.sqrt(terms_variance(terms))
            numbers = sum(terms.values())
            count = simulations(tree.gaps * max(numbers, 1))
            noise = _simulate_noise(terms, (count, tree.gaps))
            counts_off = tree.up_to(noise, np.zeros(count))
            errors = np.abs(counts_off / np.maximum(spread, 1e-300))
            largest = np.sort(errors.max(axis=1))
            rank = band_rank(count, self.level)
            widths.append(spread * largest[rank - 1])
        return _rows(widths, which, tree.gaps)


def _count_terms(weights: Sequence[float], terms: Terms) -> list[Weighted]:
    """Terms of the count up to a value, from the weights of one difference a depth."""
    every = []
    for weight in weights:
        if weight:
            for (law, size), count in terms.items():
                product = Fraction(weight) * Fraction(size)
                every.append(Weighted(law, product, count))
    return every


def _simulate_noise(terms: Terms, shape: tuple[int, int]) -> Floats:
    """Noise of estimated differences, by public randomness: the same for everybody."""
    source = SeededRandomness(0)
    total = np.zeros(shape)
    for (law, size), count in terms.items():
        for _ in range(count):
            total += size * law.sample(shape, source)
    return total


def _rows(widths: list[Floats], which: NDArray[np.intp], gaps: int) -> Floats:
    """A row a group; zeros for groups without records, whose distribution is known."""
    return np.stack([*widths, np.zeros(gaps)])[which]
