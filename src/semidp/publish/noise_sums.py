"""The law of a weighted sum of independent whole-number noise, how far to each side 95% of it lie,
and which weights independent noise has in each cell.

A cell of a projected table is such a sum: few different weights, each for many cells. Normal
quantiles are not those of coarse noise, so that the law itself is used here, with every numerical
error counted against the interval.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, singledispatch

import numpy as np
import scipy
from numpy.typing import NDArray

from semidp.promise.noise.distributions import CountNoise
from semidp.promise.schema.margins import Floats, Mask, is_within_view, join
from semidp.promise.sensitivity.orthogonal_parts import (
    AveragingProjection,
    FixedTable,
    LeastSquaresProjection,
    Projector,
)
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace

LEVEL = 0.95
"""The level of the intervals in the files and in the words of a release."""

# of the standard deviation: added as normal noise, so that the Fourier series converges
_SMOOTHING = 5e-4
# where many laws are asked for: an interval is then up to a hundredth wider than it need be
_COARSE_SMOOTHING = 2e-3
_MANY = 50
_CLOSE = 5e-3  # a normal law this close, in standard deviations, takes the place of the series
_STEPS_OUT = 4.5  # standard deviations of that normal noise that an interval is widened by
_OUTSIDE = math.erfc(_STEPS_OUT / math.sqrt(2))  # how often it lies further out: 7e-6
# where the factor exp(-x²/2) of the smoothing is 7e-10, and what is left of the series below 1e-10
_CUT = 6.5
_NUMERICAL = 1e-9  # the end of the series, what lies outside of a period, and rounding
_HIGHEST = 1 - 1e-6  # beyond, the smoothing leaves nothing of the level: Chernoff's bound is used
_LEAST_SPREAD = 0.05  # of the largest weight: a sum that is nearly always 0 is smoothed by this


@dataclass(frozen=True)
class Weighted:
    """Several independent numbers of one law, all with the same weight.

    >>> from semidp.promise.noise.distributions import DiscreteGaussian
    >>> Weighted(DiscreteGaussian(Fraction(4)), Fraction(-1, 3), 2).variance
    0.888...
    """

    law: CountNoise
    weight: Fraction
    count: int

    @property
    def variance(self) -> float:
        """The variance that the term adds to the sum."""
        return self.count * float(self.weight) ** 2 * self.law.variance


def half_widths(sums: Sequence[Sequence[Weighted]], level: float = LEVEL) -> list[float]:
    """Half-widths of several sums: an h each with ``P(|S| <= h) >= level``; see `half_width`.

    Noise that is a normal number moved by at most d, as rounding does, is not asked for its own law
    where that hardly matters: a sum is then a normal number moved by at most ``Σ |weight| d``, and
    h is the normal one plus that.

    >>> from semidp.promise.noise.distributions import RoundedGaussian
    >>> [
    ...     round(h, 3)
    ...     for h in half_widths([[Weighted(RoundedGaussian(Fraction(10**4)), Fraction(1, 3), 1)]])
    ... ]
    [65.333]
    """
    smoothing = _SMOOTHING if len(sums) <= _MANY else _COARSE_SMOOTHING
    widths = []
    for terms in sums:
        width = normal_half_width(terms, level)
        if width is None:
            width = half_width(terms, level, smoothing)
        widths.append(width)
    return widths


def normal_half_width(terms: Sequence[Weighted], level: float = LEVEL) -> float | None:
    """Return the half-width of the normal law next to a sum, widened by its distance; None where
    that is not close.
    """
    variance = distance = 0.0
    for term in terms:
        near = term.law.near_normal
        if near is None:
            return None
        size = abs(float(term.weight))
        variance += term.count * size**2 * near[0]
        distance += term.count * size * near[1]
    if not variance or not distance <= _CLOSE * math.sqrt(variance):
        return None
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    weights = [term.weight for term in terms]
    return on_lattice(quantile * math.sqrt(variance) + distance, weights)


def half_width(
    terms: Sequence[Weighted], level: float = LEVEL, smoothing: float = _SMOOTHING
) -> float:
    """Return an h with ``P(|S| <= h) >= level`` for ``S = Σ weight · number``: the least one, but
    for a thousandth.

    The characteristic function of S is the product of those of its terms. With Z normal and ε
    small, the Fourier series of S + εZ on a circle converges like ``exp(-ε²t²/2)``, and S itself is
    within reach: ``P(|S| <= h + 4.5 ε) >= P(|S + εZ| <= h) - P(|Z| > 4.5)``.

    S lies on the multiples of the greatest common divisor of its weights, so that h is rounded down
    to one of them: for coarse noise the result is the quantile itself.

    >>> from semidp.promise.noise.distributions import DiscreteGaussian
    >>> # P(|X| <= 0) is 0.787
    >>> half_width([Weighted(DiscreteGaussian(Fraction(1, 4)), Fraction(1), 1)])
    1.0
    >>> round(half_width([Weighted(DiscreteGaussian(Fraction(10**6)), Fraction(1), 1)]) / 1000, 2)
    1.96
    """
    kept = tuple(term for term in terms if term.weight and term.count)
    return _half_width(kept, level, smoothing) if kept else 0.0


# The same sums are asked for by every part of a release, and again where one is rechecked.
@lru_cache(maxsize=4096)
def _half_width(kept: tuple[Weighted, ...], level: float, smoothing: float) -> float:
    """The half-width of a sum in which every term counts."""
    variance = sum(term.variance for term in kept)
    # S is a multiple of the step, so that it is not 0 with probability at most Var(S)/step²
    # (Chebyshev).
    weights = [term.weight for term in kept]
    if variance <= (1 - level) * float(_step(weights)) ** 2:
        return 0.0
    largest = max(abs(float(term.weight)) for term in kept)
    spread = math.sqrt(variance)
    epsilon = smoothing * max(spread, _LEAST_SPREAD * largest)
    # so that next to nothing lies outside, and the quantile inside
    period = 2 * (_tail_bound(kept) + 8 * epsilon)
    asked = level + _OUTSIDE + 4 * _NUMERICAL
    if asked > _HIGHEST:
        return on_lattice(_tail_bound(kept, 1 - level), weights)
    quantile = _quantile(kept, asked, epsilon, period)
    return on_lattice(quantile + _STEPS_OUT * epsilon, weights)


def on_lattice(bound: float, weights: Sequence[Fraction]) -> float:
    """Return the largest multiple of the weights' greatest common divisor that is at most a bound.

    >>> on_lattice(0.8, [Fraction(1, 4), Fraction(-1, 2)])
    0.75
    """
    step = _step(weights)
    # A bound that is a multiple but for rounding counts as that multiple.
    just_above_one = 1 + Fraction(1, 2**40)
    raised = Fraction(bound) / step * just_above_one
    return float(math.floor(raised) * step)


def _step(weights: Sequence[Fraction]) -> Fraction:
    """The greatest common divisor of the weights, of which every sum of whole numbers times weights
    is a multiple.
    """
    common = math.lcm(*(weight.denominator for weight in weights))
    multiples = [int(weight * common) for weight in weights]
    return Fraction(math.gcd(*multiples), common)


def _quantile(terms: Sequence[Weighted], level: float, epsilon: float, period: float) -> float:
    """The least h on a fine grid with ``P(|S + εZ| <= h) >= level``, from its Fourier series on a
    circle.

    On a circle of length L the share of [-h, h] is ``2h/L + Σ_m (2/πm) φ(2πm/L) sin(2πmh/L)``.
    """
    highest = _CUT / epsilon * period
    terms_kept = math.ceil(highest / (2 * math.pi))
    number = np.arange(1.0, terms_kept + 1)
    frequency = 2 * math.pi / period * number
    transform = np.exp(-((epsilon * frequency) ** 2) / 2)
    for term in terms:
        factor = term.law.characteristic(float(term.weight) * frequency)
        if term.count == 1:
            transform *= factor
        else:
            sign = np.sign(factor) ** (term.count % 2)
            transform *= sign * np.abs(factor) ** term.count
    size = 1 << (2 * terms_kept + 2).bit_length()
    series = np.zeros(size // 2 + 1, dtype=np.complex128)
    coefficients = -1j * transform / (math.pi * number)
    series[1 : terms_kept + 1] = coefficients
    ends = np.arange(size // 2) * (period / size)
    waves = np.fft.irfft(series, size)[: size // 2]
    inside: Floats = 2 * ends / period + waves * size
    return float(ends[np.argmax(inside >= level)])


def _tail_bound(terms: Sequence[Weighted], outside: float = 1e-12) -> float:
    """A number that |S| exceeds with at most this probability: Chernoff's bound at the best of some
    rates.
    """
    spread = math.sqrt(sum(term.variance for term in terms))
    best = math.inf
    sizes = [abs(float(term.weight)) for term in terms]
    for rate in np.geomspace(0.01 / spread, 100 / spread, 97).tolist():
        moments = []
        for term, size in zip(terms, sizes, strict=True):
            moments.append(term.count * term.law.log_moment(rate * size))
        exponent = sum(moments)
        best = min(best, (exponent + math.log(2 / outside)) / rate)
    return best


MOST_PATTERNS = 1000  # laws of cells that are told apart
MOST_ROWS = 512  # cells of a table of which every row of P is looked at
_DIGITS = 2**40  # to which weights that are no simple fractions are rounded


@dataclass(frozen=True, eq=False)
class Patterns:
    """Cells of a projected table grouped by the law of their error, with the weights that make up
    each law.

    Parameters
    ----------
    which
        For each cell the number of its pattern.
    weights
        For each pattern the weights of the noise in single cells, each with how often it occurs.
    """

    which: NDArray[np.intp] = field(repr=False)
    weights: tuple[Mapping[Fraction, int], ...]


@singledispatch
def find_patterns(space: QuerySpace) -> Patterns | None:
    """Return the published entries grouped by the law of their error under independent noise; None
    where unknown.
    """
    return row_patterns(tuple(space.shape), space.project)


@find_patterns.register
def _(space: TableSpace) -> Patterns | None:
    return projection_patterns(space.projector)


@find_patterns.register
def _(space: ExplicitSpace) -> Patterns | None:
    """The rows of the projection, or single entries where nothing is projected."""
    if space.fixed is None:
        return Patterns(np.zeros(space.shape, dtype=np.intp), ({Fraction(1): 1},))
    return row_patterns(tuple(space.shape), space.project)


def projection_patterns(projection: Projector) -> Patterns | None:
    """Return the different rows of P by their weights; None where they are too many.

    Where averages commute a row has the weight ``[same cell] - Σ coefficient / (cells averaged)``
    at a cell, over the views in which the two cells agree.

    >>> from semidp.promise.schema.margins import Grid
    >>> from semidp.promise.sensitivity.orthogonal_parts import build_projector
    >>> projection_patterns(build_projector(Grid.flat((2, 2)), [(1, 0), (0, 1)])).weights
    ({Fraction(1, 4): 2, Fraction(-1, 4): 2},)
    """
    if isinstance(projection, FixedTable):
        return Patterns(np.zeros(projection.table.shape, dtype=np.intp), ({},))
    if isinstance(projection, LeastSquaresProjection):
        return row_patterns(projection.domain.shape, projection.project)
    if projection.domain is None:
        return _group_by_axes(projection)
    return _group_by_cells(projection, projection.domain)


def _group_by_axes(projection: AveragingProjection) -> Patterns | None:
    """Patterns where every cell is in the domain. Two cells agree along each feature down to
    some depth.
    """
    used, sizes, kinds = [], [], []
    for axis, chain in enumerate(projection.grid.chains):
        in_terms = [view[axis] for view, _, _ in projection.terms]
        depths = sorted({0, chain.depth, *in_terms})
        below = []
        for depth in depths:
            leaves = chain.children(depth, chain.depth)
            below.append(leaves[chain.find_leaf_ancestors(depth)])
        different, which = np.unique(np.stack(below), axis=1, return_inverse=True)
        used.append(depths)
        sizes.append(different.T.tolist())
        kinds.append(which.ravel())
    if math.prod(map(len, sizes)) > MOST_PATTERNS:
        return None
    weights = [_find_weights(projection, used, chosen) for chosen in itertools.product(*sizes)]
    which = np.ravel_multi_index(np.ix_(*kinds), tuple(map(len, sizes)))
    return Patterns(np.broadcast_to(which, projection.grid.shape), tuple(weights))


def _find_weights(
    projection: AveragingProjection, used: list[list[int]], sizes: Sequence[list[int]]
) -> dict[Fraction, int]:
    """Weights of one pattern. `sizes` has, for each feature, the leaves below a cell's node at
    the depths in use.
    """
    weights: dict[Fraction, int] = {}
    leaves_at = []
    for depths, below in zip(used, sizes, strict=True):
        leaves_at.append(dict(zip(depths, below, strict=True)))
    # Every cell agrees with this one down to some depth of each feature, and no further.
    for deepest in itertools.product(*used):
        cells = 1
        for depths, below, depth in zip(used, sizes, deepest, strict=True):
            place = depths.index(depth)
            deeper = below[place + 1] if place + 1 < len(below) else 0
            cells *= below[place] - deeper
        weight = Fraction(int(deepest == projection.grid.full))
        for view, coefficient, _ in projection.terms:
            if is_within_view(view, deepest):
                averaged = [leaves[depth] for leaves, depth in zip(leaves_at, view, strict=True)]
                weight -= Fraction(coefficient, math.prod(averaged))
        if weight and cells:
            weights[weight] = weights.get(weight, 0) + cells
    return weights


def _group_by_cells(projection: AveragingProjection, domain: Mask) -> Patterns | None:
    """Patterns on the cells of a domain. Two cells have one pattern if, for every join of
    views, equally many cells agree with each of them.
    """
    views = [view for view, _, _ in projection.terms]
    # Agreement in two views is agreement in their join: close the views under joins.
    joins = set(views)
    while more := {join(one, other) for one in joins for other in views} - joins:
        joins |= more
    which = np.zeros(projection.grid.shape, dtype=np.intp)
    for view in joins:
        spread = projection.grid.spread(projection.grid.sum(domain, view), view)
        counts = np.where(domain, np.broadcast_to(spread, projection.grid.shape), 0)
        different, number = np.unique(counts, return_inverse=True)
        code = which * len(different) + number.reshape(which.shape)
        _, which = np.unique(code, return_inverse=True)
        which = which.reshape(projection.grid.shape)
    firsts = np.unique(which, return_index=True)[1]
    if len(firsts) > MOST_PATTERNS:
        return None
    inside = np.flatnonzero(domain)
    labels = [projection.grid.labels(view)[inside] for view in views]
    weights = [_find_row(projection, int(first), inside, labels, domain) for first in firsts]
    return Patterns(which, tuple(weights))


def _find_row(
    projection: AveragingProjection,
    cell: int,
    inside: NDArray[np.intp],
    labels: Sequence[NDArray[np.intp]],
    domain: Mask,
) -> dict[Fraction, int]:
    """The weights of the row of one cell, exactly."""
    weights: dict[Fraction, int] = {}
    if not domain.ravel()[cell]:
        return weights
    place = int(np.searchsorted(inside, cell))
    # Bit 0: the cell itprojection; bit i + 1: agreement with it in view i.
    agree = (np.arange(len(inside)) == place).astype(np.int64)
    shares = []
    for number, label in enumerate(labels):
        same = label == label[place]
        agree = agree + same * (2 << number)
        coefficient = projection.terms[number][1]
        shares.append(Fraction(coefficient, int(same.sum())))
    codes, counts = np.unique(agree, return_counts=True)
    for code, cells in zip(codes.tolist(), counts.tolist(), strict=True):
        weight = Fraction(code & 1)
        for number, share in enumerate(shares):
            if code & (2 << number):
                weight -= share
        if weight:
            weights[weight] = weights.get(weight, 0) + cells
    return weights


def row_patterns(shape: tuple[int, ...], project: Callable[[Floats], Floats]) -> Patterns | None:
    """Return every row of a projection by its weights, to twelve digits; None for tables of many
    cells.

    >>> row_patterns((2,), lambda values: values - values.mean()).weights
    ({Fraction(1, 2): 1, Fraction(-1, 2): 1},)
    """
    cells = math.prod(shape)
    if cells > MOST_ROWS:
        return None
    numbers: dict[tuple[tuple[Fraction, int], ...], int] = {}
    which = []
    for unit in np.eye(cells):
        projected = project(unit.reshape(shape)).ravel()
        row = np.rint(projected * _DIGITS).astype(np.int64)
        values, counts = np.unique(row[row != 0], return_counts=True)
        weights = []
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            weights.append((Fraction(value, _DIGITS), count))
        largest_first = tuple(reversed(weights))
        which.append(numbers.setdefault(largest_first, len(numbers)))
    return Patterns(np.array(which, dtype=np.intp).reshape(shape), tuple(map(dict, numbers)))
