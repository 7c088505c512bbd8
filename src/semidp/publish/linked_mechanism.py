"""Tables of members and of units from noisy residuals of both kinds, and their errors.

The noise and its guarantee are those of `promise.mechanisms.linked_noise`. Both kinds are made to
agree (`size_agreement`), so a table of members also contains noise of units. A `TopCode`
publishes the largest sizes of units as one level, such as 5+.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import cell_weights
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import KindSpace, LinkedSpace
from semidp.promise.spaces.linked import UNIT
from semidp.publish.half_widths import LEVEL, half_width, sum_terms, table_half_widths
from semidp.publish.noise_laws import find_near_normal, joined_laws
from semidp.publish.placement import Objective, Workload
from semidp.publish.product_estimates import (
    assemble_tables,
    gather_on_residuals,
    pull_back_weights,
    spread_residual,
)
from semidp.publish.residual_mechanism import ResidualMechanism, SharedNoise
from semidp.publish.size_agreement import (
    Agreement,
    LevelResidual,
    SizeAgreement,
    TopCode,
    along_size,
)


@frozen(slots=False, eq=False)
class LinkedMechanism(LinkedNoise, SharedNoise):
    """Noise on the residuals of member tables and of unit tables, with estimates that agree."""

    members: ResidualMechanism
    units: ResidualMechanism

    @classmethod
    def from_precision(
        cls,
        space: LinkedSpace,
        precision: Fraction,
        law: str,
        weights: tuple[Sequence[float], Sequence[float]] | None = None,
        unit_share: Fraction | None = None,
    ) -> Self:
        """Return the noise of least total variance over the tables of both kinds.

        Parameters
        ----------
        space
            The residuals of linked tables.
        precision, law
            The largest cost of the noise, and its distribution.
        weights
            How much the variance of each table counts: those of members, then those of units.
        unit_share
            The part of the precision for units (default: by need).
        """
        by_kind = (None, None) if weights is None else weights
        roots = []
        for kind, of_tables in zip(space.kinds, by_kind, strict=True):
            gains = Workload.from_weights(kind, of_tables, Objective.total).gains
            costs = [float(kind.cost[view]) for view in kind.measured_residuals]
            roots.append(float(np.sqrt(gains * np.array(costs)).sum()))
        # A kind's least total is its root squared over its precision: shares go by the roots.
        shares = precision_shares(roots)
        if unit_share is not None and all(roots):
            shares = [1 - unit_share, unit_share]
        parts = []
        for kind, of_tables, share in zip(space.kinds, by_kind, shares, strict=True):
            # a kind that is exact spends nothing, and its precision is not counted
            part = max(precision * share, Fraction(1, 2**60))
            parts.append(ResidualMechanism.from_precision(kind, part, law, of_tables))
        return cls(space, *parts)

    @property
    def parts(self) -> tuple[ResidualMechanism, ResidualMechanism]:
        """The noise of members and of units."""
        return self.members, self.units

    @cached_property
    def agreement(self) -> SizeAgreement:
        """Correction that makes estimates of both kinds agree."""
        return SizeAgreement.from_mechanisms(self.members, self.units)

    @property
    def entry_variances(self) -> Floats:
        """The variance of the noise in each entry of the vector."""
        return np.concatenate([part.variances for part in self.parts])

    @property
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise of both kinds, and the number of the law of each entry of the
        vector.
        """
        return joined_laws(part.entry_laws for part in self.parts)

    @property
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""
        return np.concatenate([kind.scales for kind in self.space.kinds])

    def locate_table(self, table: int) -> tuple[int, int]:
        """Return the kind of a table (0 for members, 1 for units), and its number among those."""
        first = len(self.space.members.views)
        return (0, table) if table < first else (1, table - first)

    def size_place(self, table: int) -> int | None:
        """Return the axis of the size in a table; None if it has no size."""
        which, place = self.locate_table(table)
        size = self.space.dataspace.size_axis
        axes = list_axes(self.space.kinds[which].views[place])
        return axes.index(size) if which and size in axes else None

    def table_schema(self, table: int) -> Schema:
        """Return the features of a table, with single sizes."""
        which, place = self.locate_table(table)
        kind = self.space.kinds[which]
        return kind.schema.restrict(kind.schema.list_view_names(kind.views[place]))

    def find_kind(self, table: int) -> str:
        """Return the kind of record that a table counts."""
        return self.space.kinds[self.locate_table(table)[0]].counted

    def cell_variances(self, table: int) -> Floats:
        """Return the variance of each cell of a table once both kinds agree."""
        return self.agreement.variances(*self.locate_table(table))

    def half_widths(self, table: int) -> Floats:
        """Return the half-width of the 95% interval of each cell of a table."""
        return LinkedIntervals(self).compute_half_widths(table, self.cell_variances(table))

    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return the tables of members, then those of units, which agree."""
        residuals = self.agreement.residuals(*self.space.split(values))
        tables = []
        for kind, of_kind in zip(self.space.kinds, residuals, strict=True):
            tables += assemble_tables(kind, of_kind)
        return tables

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on the noise, from weights on cells. Tables of members are numbered first.

        Both kinds were made to agree, so a table of members also contains noise of units.
        """
        of_kinds: tuple[dict[int, ArrayLike], dict[int, ArrayLike]] = ({}, {})
        for number, on_cells in weights.items():
            which, place = self.locate_table(number)
            of_kinds[which][place] = on_cells
        gathered = [
            gather_on_residuals(kind, of_kind)
            for kind, of_kind in zip(self.space.kinds, of_kinds, strict=True)
        ]
        on_residuals = self.agreement.weights(*gathered)
        pulled = []
        for kind, of_kind in zip(self.space.kinds, on_residuals, strict=True):
            pulled.append(pull_back_weights(kind, of_kind))
        return np.concatenate(pulled)

    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the residuals of some tables, and of the residuals that correct
        them.
        """
        seen: tuple[set[View], set[View]] = (set(), set())
        for number in tables:
            which, place = self.locate_table(number)
            kind = self.space.kinds[which]
            seen[which].update(kind.inside[place])
            for equation in self.agreement.find_equations(kind.views[place], which):
                for term in equation.terms:
                    seen[term.kind].add(term.view)
        entries, start = [np.zeros(0, np.intp)], 0
        for kind, views in zip(self.space.kinds, seen, strict=True):
            for view, part in kind.parts.items():
                if view in views:
                    of_part = np.arange(part.start, part.stop)
                    entries.append(start + of_part)
            start += kind.scales.size
        return np.concatenate(entries)

    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, members before units, for many measurements at
        once.
        """
        first = self.space.members.scales.size
        chosen = np.asarray(entries)
        values = np.zeros((count, len(chosen)), dtype=np.int64)
        of_members = chosen < first
        member_entries = chosen[of_members]
        unit_entries = chosen[~of_members] - first
        values[:, of_members] = self.members.draw_entries(member_entries, count, randomness)
        values[:, ~of_members] = self.units.draw_entries(unit_entries, count, randomness)
        return values

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error of each entry of the vector."""
        return np.concatenate([part.standard_errors() for part in self.parts])

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of entries of the vector."""
        of_kinds = self.space.split(cell_weights(weights, self.space))
        pairs = zip(self.parts, of_kinds, strict=True)
        return math.hypot(*(part.standard_error(of_kind) for part, of_kind in pairs))


def precision_shares(roots: Sequence[float]) -> list[Fraction]:
    """Return the share of the precision that each kind gets for the least total variance.

    With ``Σ k/σ² <= p`` over all residuals the best noise is ``σ² = sqrt(k/v) Σ sqrt(v k)/p``
    (docs/products.md), so a kind spends in proportion to its own ``Σ sqrt(v k)``.

    >>> precision_shares([1.0, 3.0])
    [Fraction(1, 4), Fraction(3, 4)]
    """
    whole = math.fsum(roots)
    if not whole:
        return [Fraction(0) for _ in roots]
    first = Fraction(round(roots[0] / whole * 2**20), 2**20)
    if roots[0] and roots[1]:  # each needs some
        first = min(max(first, Fraction(1, 2**20)), 1 - Fraction(1, 2**20))
    return [first, 1 - first]


@frozen(eq=False)
class CodedNoise(LinkedMechanism):
    """The same noise for published tables whose sizes are top-coded.

    Parameters
    ----------
    code
        How sizes are published.
    """

    code: TopCode

    @classmethod
    def from_mechanism(cls, mechanism: LinkedMechanism, code: TopCode) -> "CodedNoise":
        """Return the noise of a mechanism for tables that are coded."""
        return cls(mechanism.space, mechanism.members, mechanism.units, code)

    def table_schema(self, table: int) -> Schema:
        """Return the features of a table, with the published levels of the size."""
        return self.code.schema(super().table_schema(table))

    def cell_variances(self, table: int) -> Floats:
        """Return the variance of each published cell once both kinds agree."""
        axis = self.size_place(table)
        if axis is None:
            return super().cell_variances(table)
        return self.code.take_levels(self._stretched_variances(table), axis)

    def _stretched_variances(self, table: int) -> Floats:
        """Variances by single sizes: from the top on, those of the last level."""
        return self.agreement.variances(*self.locate_table(table), self.code)

    def half_widths(self, table: int) -> Floats:
        """Return the half-width of the 95% interval of each published cell."""
        axis = self.size_place(table)
        if axis is None:
            return super().half_widths(table)
        intervals = LinkedIntervals(self, self.code)
        stretched = intervals.compute_half_widths(table, self._stretched_variances(table))
        return self.code.take_levels(stretched, axis)

    def published_cells(self, cells: NDArray[Any], table: int) -> NDArray[Any]:
        """Return the cells of a table by single sizes, summed to the published levels."""
        axis = self.size_place(table)
        return cells if axis is None else self.code.sum_to_levels(cells, axis)

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on the noise. The last level has the weights of all its sizes."""
        by_size: dict[int, ArrayLike] = {}
        for number, values in weights.items():
            axis = self.size_place(number)
            coded = np.asarray(values)
            by_size[number] = coded if axis is None else self.code.spread(coded, axis)
        return super().combination(by_size)


@table_half_widths.register
def _(mechanism: LinkedMechanism, table: int) -> Floats:
    return mechanism.half_widths(table)


_NEAR = 0.03  # a normal law this close, in standard deviations, takes the place of the law itself
# σ² of noise, in squares of its step, from which on a normal number hides the steps of another
_WIDE = 3.0
_HIDDEN = 1e-5  # by which all hidden steps together raise a tail at most, up to ten million of them
_MOST_LAWS = 40  # different cells whose own laws are computed
# of the standard deviation: intervals are up to a hundredth wider than they need be
_SMOOTHING = 2e-3
_NOTHING = 1e-12  # a weight that floating point has left if there is none
_TAIL = math.sqrt(8 * math.log(2 / (1 - LEVEL)))  # P(|S| > h) <= 2 exp(-h²/8V) for both laws


@frozen(eq=False)
class LinkedIntervals:
    """The half-widths of the cells of linked tables; see `compute_half_widths`.

    Parameters
    ----------
    mechanism
        How both kinds were measured, and how they agree.
    code
        The top code of the sizes, if any: every size from the top on then has the half-width of
        the last level.
    """

    mechanism: LinkedMechanism
    code: TopCode | None = None

    def compute_half_widths(self, number: int, variance: Floats) -> Floats:
        """Return the half-width of the 95% interval of each cell of a table.

        Parameters
        ----------
        number
            Which table, those of members first.
        variance
            The variances of its cells once both kinds agree.
        """
        which, place = self.mechanism.locate_table(number)
        kind = self.mechanism.space.kinds[which]
        view = kind.views[place]
        errors = kind.trim(np.sqrt(variance), view)
        spread = np.asarray(errors, dtype=np.float64)
        distance = self._distance(which, view)
        distance = self._smooth_distances(which, view, distance)
        # Hidden steps may raise a tail by this factor, so a little less may be missed.
        missed = (1 - LEVEL) / (1 + _HIDDEN)
        quantile = float(scipy.special.ndtri(1 - missed / 2))
        widths = quantile * spread + distance
        is_near = distance <= _NEAR * spread
        if ((spread > 0) & ~is_near).any():
            space = self.mechanism.space
            alike = []
            for axis in list_axes(view):
                alike.append(alike_nodes(space, kind, axis, view[axis], self.code))
            if math.prod(len(firsts) for firsts, _ in alike) <= _MOST_LAWS:
                widths = self._compute_law_half_widths(number, kind, view, alike)
            else:
                widths = np.minimum(widths, _TAIL * self._bounded_spread(which, view))
        return kind.restore_full_table(np.where(spread > 0, widths, 0.0), view)

    def _compute_law_half_widths(
        self,
        number: int,
        kind: KindSpace,
        view: View,
        alike: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
    ) -> Floats:
        """Half-widths of a table from the law of the noise, computed for one cell of each group."""
        laws, numbers = self.mechanism.entry_laws
        widths = np.zeros([len(firsts) for firsts, _ in alike])
        for sort in np.ndindex(widths.shape):
            unit = np.zeros(kind.residuals.shape(view))
            by_feature = zip(alike, sort, strict=True)
            cell = [firsts[place] for (firsts, _), place in by_feature]
            unit[self._select_summed_cells(view, cell)] = 1.0
            # weights by single sizes, even if the mechanism has coded ones
            weights = {number: kind.restore_full_table(unit, view)}
            row = LinkedMechanism.combination(self.mechanism, weights)
            row[np.abs(row) * self.mechanism.entry_scales < _NOTHING] = 0.0
            widths[sort] = half_width(sum_terms(row, laws, numbers), LEVEL, _SMOOTHING)
        return widths[np.ix_(*(sorts for _, sorts in alike))]

    def _select_summed_cells(self, view: View, cell: Sequence[int]) -> tuple[int | slice, ...]:
        """Cells by single size whose sum is a published cell."""
        places: list[int | slice] = [*cell]
        axis = self.mechanism.space.dataspace.size_axis
        if self.code is not None and axis is not None:
            place = list_axes(view).index(axis)
            if cell[place] == self.code.place:
                places[place] = slice(self.code.place, None)
        return tuple(places)

    def _compute_weight_ratio(
        self, view: View, small: View, by_size: float, without: float
    ) -> "Floats | float":
        """Ratio of the weights of a top-coded cell on a residual to those of a single size: for
        residuals by size, and for others.
        """
        if self.code is None:
            return 1.0
        public = self.mechanism.space.dataspace
        factor = by_size if public.size_axis in list_axes(small) else without
        return along_size(public, view, self.code.factors(factor))

    @property
    def _top_size_count(self) -> float:
        return 1.0 if self.code is None else float(self.code.top_size_count)

    @property
    def _own_factor(self) -> float:
        return 1.0 if self.code is None else self.code.own_factor

    def _factor(self, view: View, small: View, power: int) -> "Floats | float":
        """The ratio of `_grown` for sums of absolute weights (power 1) or of squared weights (power
        2).
        """
        by_size = 1.0 if self.code is None else self.code.spread_factor
        return self._compute_weight_ratio(view, small, by_size, self._top_size_count**power)

    def _distance(self, which: int, view: View) -> Floats:
        """Largest distance of each cell's error from a normal number; infinite where some noise is
        too coarse to be near one.
        """
        kind = self.mechanism.space.kinds[which]
        part = self.mechanism.parts[which]
        total = np.zeros(kind.residuals.shape(view))
        for small in kind.inside[kind.views.index(view)]:
            moved = spread_residual(
                kind.residuals, _bound_normal_distance(part, small), small, view
            )
            total = total + _times(moved, self._factor(view, small, 1))
        for equation in self.mechanism.agreement.find_equations(view, which):
            gap = self._moved_gap(equation)
            total = total + self._spread_correction(which, equation, view, gap, 1)
        return total

    def _smooth_distances(self, which: int, view: View, distance: Floats) -> Floats:
        """Smaller distances for discrete noise: only one number is moved, and next to it the others
        are taken as normal.

        Let X be discrete Gaussian of variance σ² and N normal of variance τ², both in squares of
        the step of X. By Poisson's formula the density of N + X is that of a normal number of
        variance σ² + τ² times at most ``1 + 2.1 exp(-2π²s²)``, ``s² = σ²τ²/(σ² + τ²)``; from σ², τ²
        >= 3 on that is 1 + 3e-13. So one number is moved to a normal one by at most its step, and
        all others only make that one wider.
        """
        kind = self.mechanism.space.kinds[which]
        part = self.mechanism.parts[which]
        equations = self.mechanism.agreement.find_equations(view, which)
        in_equations = [(term.kind, term.view) for each in equations for term in each.terms]
        inside = kind.inside[kind.views.index(view)]
        squares = []
        for one, small in (*((which, small) for small in inside), *in_equations):
            squares.append(_least_square(self.mechanism.parts[one], small))
        if part.law != "discrete" or any(square < _WIDE for square in squares):
            return distance
        largest = np.zeros(kind.residuals.shape(view))
        for small in inside:
            steps = 1 / kind.residuals.scale(small)
            weights = spread_residual(kind.residuals, steps, small, view)
            grown = self._compute_weight_ratio(view, small, 1, self._top_size_count)
            largest = np.maximum(largest, weights * grown)
        for equation in equations:
            gap = self._largest_gap(equation)
            largest = largest + self._spread_correction(which, equation, view, gap, 1)
        for small in inside:
            # the entry of the cell itself, uncorrected, has the weight 1 - 1/c along every feature
            if (which, small) in in_equations:
                continue
            ones = np.ones(kind.residuals.shape(small))
            shares = _per_entry(part, small, ones, 1.0)
            deviation = math.sqrt(float(part.sigma2[small]))
            errors = spread_residual(kind.residuals, shares * deviation, small, view)
            steps = shares / kind.residuals.scale(small)
            weight = spread_residual(kind.residuals, steps, small, view)
            grown = self._compute_weight_ratio(view, small, self._own_factor, self._top_size_count)
            errors, weight = errors * grown, weight * grown
            hides = (errors >= math.sqrt(_WIDE) * largest) & (weight > 0)
            distance = np.where(hides, np.minimum(weight, distance), distance)
        return distance

    def _largest_gap(self, equation: Agreement) -> Floats:
        """Largest weight of one number in the gap between members and units."""
        largest = np.zeros(())
        for term in equation.terms:
            residuals = self.mechanism.parts[term.kind].space.residuals
            steps = 1 / residuals.scale(term.view)
            weights = term.by_entry(steps) * np.abs(term.coefficients)
            if isinstance(term, LevelResidual):
                weights = weights.max(axis=-1)
            largest = np.maximum(largest, weights)
        return np.asarray(largest)

    def _moved_gap(self, equation: Agreement) -> Floats:
        """Largest distance of the gap between members and units from a normal number, for each
        entry.
        """
        moved = np.zeros(())
        for term in equation.terms:
            part = self.mechanism.parts[term.kind]
            of_term = term.by_entry(_bound_normal_distance(part, term.view))
            weighted = _times(of_term, np.abs(term.coefficients))
            if isinstance(term, LevelResidual):
                weighted = weighted.sum(axis=-1)
            moved = moved + weighted
        return np.asarray(moved)

    def _bounded_spread(self, which: int, view: View) -> Floats:
        """Bound on the root of ``Σ weight² σ²`` for each cell: that of its own kind, plus those of
        the corrections.
        """
        kind = self.mechanism.space.kinds[which]
        part = self.mechanism.parts[which]
        square = np.zeros(kind.residuals.shape(view))
        for small in kind.inside[kind.views.index(view)]:
            squares = spread_residual(kind.residuals, _squares(part, small), small, view, power=2)
            square = square + squares * self._factor(view, small, 2)
        total = np.sqrt(square)
        for equation in self.mechanism.agreement.find_equations(view, which):
            corrected = self._spread_correction(
                which, equation, view, self._square_gap(equation), 2
            )
            total = total + np.sqrt(corrected)
        return total

    def _square_gap(self, equation: Agreement) -> Floats:
        """``Σ weight² σ²`` of the gap between members and units. Coefficients of levels add up to
        zero.
        """
        squares = np.zeros(())
        for term in equation.terms:
            part = self.mechanism.parts[term.kind]
            residuals, entries = part.space.residuals, equation.entries(term.kind)
            coefficients = float((term.coefficients**2).sum())
            square = float(part.sigma2.get(term.view, 0)) * coefficients
            variances = np.full(residuals.shape(entries), square)
            squares = squares + residuals.centred_variance(entries, variances)
        return np.asarray(squares)

    def _spread_correction(
        self, which: int, equation: Agreement, view: View, gap: Floats, power: int
    ) -> Floats:
        """Part of a gap that the cells of a table get by its correction: shares, or squared
        shares.
        """
        residuals = self.mechanism.space.kinds[which].residuals
        shares, by_level = self.mechanism.agreement.shares(equation, which, view, self.code)
        sizes = np.abs(shares) ** power
        if by_level is None:
            return spread_residual(
                residuals, _times(gap, sizes), equation.entries(which), view, power
            )
        by_entry = _times(gap[..., None], sizes)
        values = np.moveaxis(by_entry, -1, by_level.place)
        return spread_residual(residuals, values, by_level.view, view, power)


def alike_nodes(
    space: LinkedSpace, kind: KindSpace, axis: int, depth: int, code: TopCode | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group the nodes of a feature whose cells have one law: the first node of each group, and the
    group of every node.

    Cells share a law if their nodes have as many siblings at every depth; every size, and every
    kind of quarters, has its own.
    """
    families = kind.residuals.families(axis, depth)
    public = space.dataspace
    home = None if public.home is None else public.home[0]
    own_law = public.size_axis if kind.counted == UNIT else home
    if axis == own_law:
        families = np.arange(families.shape[1])[None, :]
        if code is not None:
            families = np.minimum(families, code.place)
    _, firsts, sorts = np.unique(families, axis=1, return_index=True, return_inverse=True)
    return firsts, sorts.ravel()


def _times(values: Floats, shares: "Floats | float") -> Floats:
    """Product of values and shares; zero if the share is zero, even if the value is infinite."""
    kept = np.asarray(shares) > 0
    return np.asarray(np.where(kept, values, 0.0) * shares)


def _bound_normal_distance(part: ResidualMechanism, view: View) -> Floats:
    """Largest distance of each centered entry of a residual from a normal number:
    ``Σ |weight| d / scale``.
    """
    residuals = part.space.residuals
    shape = residuals.shape(view)
    if view not in part.sigma2:
        return np.zeros(shape)
    laws, which = part.samplers
    numbers = np.unique(which[part.space.parts[view]])
    distances = []
    for number in numbers:
        near = find_near_normal(laws[number])
        distances.append(math.inf if near is None else near[1])
    distance = max(distances)
    # 1 - 1/c on the entry itself, 1/c on each of its c - 1 siblings; an only child has no noise
    return _per_entry(part, view, distance / residuals.scale(view), 2.0)


def _per_entry(part: ResidualMechanism, view: View, values: Floats, factor: float) -> Floats:
    """Values multiplied by ``factor (1 - 1/c)`` along every feature."""
    residuals = part.space.residuals
    result = values
    for place, axis in enumerate(list_axes(view)):
        siblings = residuals.siblings(axis, view[axis]).astype(float)
        shape = [1] * values.ndim
        shape[place] = -1
        along = siblings.reshape(shape)
        result = _times(result, factor * (1 - 1 / along))
    return np.asarray(result)


def _least_square(part: ResidualMechanism, view: View) -> float:
    """The least σ² of the whole-number noise of a residual; infinite if there is none."""
    if view not in part.sigma2:
        return math.inf
    # in squares of the step of the noise
    scale = int(part.space.residuals.scale(view).min())
    return float(part.sigma2[view] * scale**2)


def _squares(part: ResidualMechanism, view: View) -> Floats:
    """``Σ weight² σ²`` of each centered entry of a residual."""
    residuals = part.space.residuals
    if view not in part.sigma2:
        return np.zeros(residuals.shape(view))
    square = float(part.sigma2[view])
    variances = np.full(residuals.shape(view), square)
    return residuals.centred_variance(view, variances)
