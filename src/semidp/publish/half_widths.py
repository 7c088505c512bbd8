"""Errors of cells of published tables: standard errors, half-widths of 95% intervals from the noise
distribution, and the distribution of a weighted sum of independent integer noise.

A cell of a projected table is such a sum: few different weights, each for many cells. Coarse noise
does not have normal quantiles, so its own distribution is used, with every numerical error counted
against the interval. Everything follows from public numbers; the adjacency enters only through the
scale of the noise.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, singledispatch

import numpy as np
import scipy
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.mechanisms.additive import LatticeGaussianMechanism
from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.knorm import KNormMechanism, PlacedRows
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism, NoNoise
from semidp.promise.mechanisms.residual_noise import LAWS
from semidp.promise.noise.distributions import CountNoise, DiscreteGaussian
from semidp.promise.noise.lattice import SMOOTH, LatticeGaussian, OneSidedLatticeGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.margins import (
    Floats,
    Mask,
    View,
    is_within_view,
    join,
    list_axes,
    trimmed_view,
)
from semidp.promise.sensitivity.orthogonal_parts import (
    AveragingProjection,
    FixedTable,
    LeastSquaresProjection,
    Projector,
)
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.publish.noise_laws import bound_log_moment, find_near_normal, transform_law
from semidp.publish.residual_mechanism import NEAR, Conditioning, ResidualMechanism, SharedNoise

LEVEL = 0.95
"""The level of the intervals in the files and in the words of a release."""

# of the standard deviation: added as normal noise, so the Fourier series converges
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


@frozen
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

    For noise that is a normal number moved by at most d, as by rounding, its own distribution is
    not used if that hardly matters: a sum is then a normal number moved by at most ``Σ |weight|
    d``, and h is the normal half-width plus that.

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
    """Return the normal half-width of a sum, widened by its distance from normal; None if that
    is not small.
    """
    variance = distance = 0.0
    for term in terms:
        near = find_near_normal(term.law)
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
    """Return the least h with ``P(|S| <= h) >= level`` for ``S = Σ weight · number``, within a
    thousandth.

    The characteristic function of S is the product of those of its terms. With Z normal and ε
    small, the Fourier series of S + εZ on a circle converges like ``exp(-ε²t²/2)``, and S itself is
    within reach: ``P(|S| <= h + 4.5 ε) >= P(|S + εZ| <= h) - P(|Z| > 4.5)``.

    S lies on the multiples of the greatest common divisor of its weights, so h is rounded down
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
    # S is a multiple of the step, so it is not 0 with probability at most Var(S)/step²
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
        factor = transform_law(term.law, float(term.weight) * frequency)
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
            moments.append(term.count * bound_log_moment(term.law, rate * size))
        exponent = sum(moments)
        best = min(best, (exponent + math.log(2 / outside)) / rate)
    return best


MOST_PATTERNS = 1000  # laws of cells that are told apart
MOST_ROWS = 512  # cells of a table of which every row of P is looked at


@frozen(eq=False)
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
    if unknown.
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
    """Return the different rows of P by their weights; None if they are too many.

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


INTERVALS_BELOW = 10**6
"""Tables with at least this many cells are written without the ends of intervals."""

MOST_CELLS = 2**24
"""Beyond this many cells a mean is used for all of them, which needs no array."""

LOG_CONCAVE = 2.17
"""Standard deviations that hold 95% of any symmetric log-concave law: most for an exponential, cut
at 4.5 means."""

# the variance of a rounding error; less where the noise itself is small
# free cells of a ball, and cells in rows, whose noise is quickly drawn many times
_FEW_DIMENSIONS, _FEW = 4, 10_000
_NUMBERS = 1_000_000  # that are drawn at most where the law of an error is simulated
_FEWEST, _MOST = 40, 40_000  # measurements that are simulated
_MATRIX = 1024  # cells of a table whose projection is written as a matrix
_MOST_TERMS = 400_000  # weights of sums whose own laws are computed
_DIGITS = 2**40  # to which weights are rounded
_TAIL = math.sqrt(8 * math.log(2 / (1 - LEVEL)))  # P(|S| > h) <= 2 exp(-h²/8V) for both laws
_SAFE = 2.0  # standard errors of a simulated level that are added to it


@lru_cache(maxsize=8)
def cell_half_widths(mechanism: Mechanism) -> NDArray[np.float64]:
    """Return the half-width of the 95% interval of each cell of the projected table."""
    return _find_half_widths(mechanism)


@singledispatch
def _find_half_widths(mechanism: Mechanism) -> NDArray[np.float64]:
    return simulate_half_widths(mechanism)


@_find_half_widths.register
def _(mechanism: NoNoise) -> NDArray[np.float64]:
    return np.zeros(mechanism.space.shape)


@_find_half_widths.register
def _(mechanism: CellByCell) -> NDArray[np.float64]:
    """The error is a weighted sum of independent numbers; cells with the same weights share its
    law.
    """
    patterns = find_patterns(mechanism.space)
    if patterns is None:
        return simulate_half_widths(mechanism)
    sums = []
    for pattern in patterns.weights:
        terms = [Weighted(mechanism.sampler, weight, count) for weight, count in pattern.items()]
        sums.append(terms)
    return np.array(half_widths(sums))[patterns.which]


@_find_half_widths.register
def _(mechanism: LatticeGaussianMechanism) -> NDArray[np.float64]:
    """All cells of the matrix have the same law."""
    widths = np.zeros(math.prod(mechanism.space.shape))
    widths[mechanism.matrix_form.cells] = lattice_half_width(mechanism.sampler)
    return widths.reshape(mechanism.space.shape)


def lattice_half_width(noise: LatticeGaussian | OneSidedLatticeGaussian) -> int:
    """Return the least integer h with ``P(|v| <= h) >= 0.95`` for a cell v; a bound if the
    distribution is not computed.
    """
    if noise.free_share == 0:
        return 0
    law = noise.cell_law
    if law is not None:
        two_sided = 2 * np.cumsum(law[1:])
        inside = law[0] + np.concatenate([[0.0], two_sided])
        return int(np.argmax(inside >= LEVEL + 1e-9))
    # a cell is a discrete Gaussian of variance σ² times its share, to about 10^-8
    cell_variance = noise.sigma2 * noise.free_share
    if noise.sigma2 >= SMOOTH:
        cell = Weighted(DiscreteGaussian(cell_variance), Fraction(1), 1)
        return int(half_width([cell], LEVEL + 1e-6))
    # Chernoff: P(|v| > h) <= 2 exp(-h²/2V) with the variance V of the normal law
    deviations_squared = 2 * math.log(2 / (1 - LEVEL))
    return math.floor(math.sqrt(deviations_squared * cell_variance))


@_find_half_widths.register
def _(mechanism: KNormMechanism) -> NDArray[np.float64]:
    """Simulated where that is quick, else a bound.

    The density is log-concave and symmetric, and so is that of each cell before rounding: 95% of it
    lie within `LOG_CONCAVE` standard deviations, and rounding moves a cell by half of its
    coefficients at most.
    """
    placed = mechanism.placed_ball
    has_few_rows = isinstance(placed, PlacedRows) and placed.cells.size <= _FEW
    if placed.ball.dimension <= _FEW_DIMENSIONS or has_few_rows:
        return simulate_half_widths(mechanism)
    spread = LOG_CONCAVE * np.sqrt(mechanism.gain * placed.ball.variances())
    coefficients = abs(placed.lattice).sum(axis=0)
    rounding = np.asarray(coefficients, dtype=np.float64).reshape(spread.shape) / 2
    return np.asarray(placed.place(np.floor(spread + rounding)), dtype=np.float64)


@_find_half_widths.register
def _(mechanism: ResidualMechanism) -> NDArray[np.float64]:
    return table_half_widths(mechanism, 0)


def simulate_half_widths(mechanism: Mechanism) -> NDArray[np.float64]:
    """Return half-widths of the 95% intervals of the cells of a mechanism, from draws of its noise.

    The randomness is public and always the same, so everybody finds the same numbers. Cells of
    equal standard error are counted together. The rank among the draws is raised by two standard
    errors.

    >>> from semidp.promise.mechanisms.additive import L2Mechanism
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> simulate_half_widths(L2Mechanism.calibrate(two_way()[0], Budget.pure(1))).round(1).tolist()
    [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    """
    shape = tuple(mechanism.space.shape)
    size = max(math.prod(shape), 1)
    count = min(max(_NUMBERS // size, _FEWEST), _MOST)
    at_once = min(count, max(1, _NUMBERS // size))
    zeros = np.zeros(shape, dtype=np.int64)
    source = SeededRandomness(0)
    fixed = mechanism.publish(zeros)
    matrix = None
    if size <= min(count, _MATRIX):  # what each cell of the noise does to the published ones
        units = np.eye(size, dtype=np.int64).reshape(-1, *shape)
        published = [mechanism.publish(unit) - fixed for unit in units]
        matrix = np.stack(published).reshape(size, -1)
    errors = np.empty((count, size))
    for start in range(0, count, at_once):
        noisy = mechanism.measure_many(zeros, min(at_once, count - start), source)
        draws = slice(start, start + len(noisy))
        if matrix is None:
            errors[draws] = [(mechanism.publish(each) - fixed).ravel() for each in noisy]
        else:
            errors[draws] = noisy.reshape(len(noisy), -1) @ matrix
    errors = np.abs(errors)
    standard_errors = mechanism.standard_errors().ravel()
    _, which = np.unique(standard_errors.round(9), return_inverse=True)
    quantiles = np.zeros(which.max(initial=0) + 1)
    for number in range(len(quantiles)):
        sizes = np.sort(errors[:, which == number], axis=None)
        # Cells of one draw may move together, so only draws count as independent.
        expected_rank = (1 + sizes.size) * LEVEL
        draws_above = _SAFE * math.sqrt(count * LEVEL * (1 - LEVEL))
        rank = math.ceil(expected_rank + draws_above * sizes.size / count)
        quantiles[number] = sizes[min(rank, sizes.size) - 1]
    return quantiles[which].reshape(shape)


@singledispatch
def table_half_widths(mechanism: SharedNoise, table: int) -> NDArray[np.float64]:
    """Return the half-width of the 95% interval of each cell of one table's estimate."""
    raise TypeError("the law of this noise is not known cell by cell")


@table_half_widths.register
def _(mechanism: ResidualMechanism, table: int) -> NDArray[np.float64]:
    space, view = mechanism.space, mechanism.space.views[table]
    if not space.inside[table]:
        return np.zeros(space.schema.grid.compute_margin_shape(view))
    if mechanism.conditioning is not None:
        laws, which = mechanism.samplers
        return _conditioned_half_widths(mechanism.conditioning, table, list(laws), which)
    noise = {}
    for small in space.inside[table]:
        noise[trimmed_view(small, view)] = mechanism.sigma2[small]
    families = [space.residuals.families(axis, view[axis]) for axis in list_axes(view)]
    return space.restore_full_table(residual_half_widths(mechanism.law, noise, families), view)


def _conditioned_half_widths(
    conditioning: Conditioning, table: int, laws: list[CountNoise], which: NDArray[np.intp]
) -> Floats:
    """Return the half-width of the 95% interval of each cell of one table.

    A sum of numbers that are normal but for a distance d each is normal but for ``Σ |w| d``.
    If that is not close, the law of the sum itself is used, or, where the terms are too
    many, a bound of its tails.

    Parameters
    ----------
    conditioning, table
        The correction by impossible cells, and the number of the table.
    laws, which
        The distributions of the noise, and for each entry of the vector the number of its own.
    """
    rows = conditioning.table_weights(table)
    # laws that are no normal numbers moved a little have an infinite distance, and are looked
    # at below
    moments = [find_near_normal(law) or (law.variance, math.inf) for law in laws]
    near_variances = np.array([near for near, _ in moments])[which]
    reach = np.array([farthest for _, farthest in moments])[which]
    variance = rows**2 @ near_variances
    # 0 times infinity is no number, and a weight of 0 has no error
    distances = np.zeros(rows.shape)
    np.multiply(np.abs(rows), reach, out=distances, where=rows != 0)
    distance = distances.sum(axis=1)
    quantile = float(scipy.special.ndtri((1 + LEVEL) / 2))
    deviation = np.sqrt(variance)
    normal = quantile * deviation
    tail = _TAIL * np.sqrt(rows**2 @ conditioning.variances)
    # Both bounds hold, so the smaller one may be used.
    widths = np.where(variance > 0, np.minimum(normal + distance, tail), 0.0)
    is_near = distance <= NEAR * deviation
    wide = np.flatnonzero((variance > 0) & ~is_near)
    if int((rows[wide] != 0).sum()) <= _MOST_TERMS:
        sums = [sum_terms(rows[cell], laws, which) for cell in wide]
        widths[wide] = half_widths(sums)
    shape = conditioning.space.schema.grid.compute_margin_shape(conditioning.space.views[table])
    return widths.reshape(shape)


def sum_terms(row: Floats, laws: list[CountNoise], which: NDArray[np.intp]) -> list[Weighted]:
    """Terms of one sum. Weights are rounded to twelve digits; those of one law and size are one
    term.
    """
    counts: dict[tuple[int, int], int] = {}
    for entry in np.flatnonzero(row):
        size = round(abs(float(row[entry])) * _DIGITS)
        key = int(which[entry]), size
        counts[key] = counts.get(key, 0) + 1
    terms = []
    for (law, size), count in counts.items():
        if size:
            terms.append(Weighted(laws[law], Fraction(size, _DIGITS), count))
    return terms


def branch_half_widths(noise: BranchNoise, fewer_than: int) -> list[Floats | None]:
    """Return the half-widths of the 95% intervals of each table's cells, the noise above
    included.

    None for tables that do not have fewer cells than that.
    """
    space = noise.space
    by_table: list[Floats | None] = []
    for view in space.views:
        if space.schema.grid.count_margin_cells(view) >= fewer_than:
            by_table.append(None)
            continue
        squares = {}
        for d, square in noise.sigma2.items():
            if is_within_view(d, view):
                squares[trimmed_view(d, view)] = square
        axes = list_axes(view)
        families = [space.residuals.families(axis, view[axis]) for axis in axes]
        place = axes.index(space.cut.axis)
        # A branch sees one node above the cut. The noise there was drawn among its siblings.
        siblings = np.array(noise.families)[:, None]
        families[place][: space.cut.depth] = siblings
        widths = residual_half_widths(noise.law, squares, families)
        by_table.append(space.restore_full_table(widths, view))
    return by_table


def residual_half_widths(
    law: str, sigma2: Mapping[View, Fraction], families: Sequence[NDArray[np.int64]]
) -> NDArray[np.float64]:
    """Return the half-width of the 95% interval of each cell of a table, from the noise of its
    residuals.

    Along a feature a cell has the weight ``1 - 1/c`` on its own node of a residual and ``-1/c`` on
    the c - 1 siblings of that node, shared out evenly further down. So cells whose families are as
    large at every depth share a law. Most are normal numbers moved by next to nothing
    (`near_normal`); the others get the series of `half_width`.

    Parameters
    ----------
    law, sigma2
        The law, and σ² of each residual, by its depths in the features of the table.
    families
        For each of those features the sizes of the families of every node, as `Residuals.families`
        has them.

    Examples
    --------
    >>> # Multiples of a quarter
    >>> residual_half_widths("discrete", {(1,): Fraction(1, 4)}, [np.array([[2, 2]])])
    array([0.75, 0.75])
    """
    alike = [np.unique(counts, axis=1, return_inverse=True) for counts in families]
    distinct = [columns for columns, _ in alike]
    shape = tuple(columns.shape[1] for columns in distinct)
    variance, distance = np.zeros(shape), np.zeros(shape)
    for view, square in sigma2.items():
        sizes, squares, scales = _multiply_families(distinct, view)
        variance += float(square) * squares
        # The narrowest law is the farthest from a normal one: its distance bounds those of the
        # others.
        narrowest = square * Fraction(scales.min()) ** 2
        near = find_near_normal(LAWS[law](narrowest))
        if near is None:
            # An only child has weight 0 in the residual, and its error is 0 whatever the law.
            distance[sizes > 0] = math.inf
        else:
            distance += near[1] * sizes / scales
    deviations = np.sqrt(variance)
    quantile = float(scipy.special.ndtri((1 + LEVEL) / 2))
    errors = quantile * deviations + distance
    far = ~(distance <= NEAR * deviations)
    open_ones = np.argwhere(far & (variance > 0))
    if len(open_ones) <= MOST_PATTERNS:
        sums = []
        for place in open_ones:
            at = zip(distinct, place, strict=True)
            cell_families = [counts[:, n] for counts, n in at]
            sums.append(_terms(law, sigma2, cell_families))
        for place, half in zip(open_ones, half_widths(sums), strict=True):
            errors[tuple(place)] = half
    else:
        # E exp(uX) <= exp(2σ²u²) for both laws, so P(|S| > h) <= 2 exp(-h²/8V)
        errors = np.minimum(errors, _TAIL * deviations)
    places = [which.ravel() for _, which in alike]
    return errors[np.ix_(*places)]


def _terms(
    law: str, sigma2: Mapping[View, Fraction], families: Sequence[NDArray[np.int64]]
) -> list[Weighted]:
    """Weights of one cell's error on the noise in the entries of its residuals. The noise is that
    of scaled entries.
    """
    terms = []
    for view, square in sigma2.items():
        pairs = list(zip(families, view, strict=True))
        named_counts = [int(counts[depth - 1]) for counts, depth in pairs if depth]
        scale = math.prod(named_counts)
        weights = {Fraction(1, scale): 1}
        for counts, depth in pairs:
            share = Fraction(1, math.prod(counts[depth:].tolist()))
            # Centred at this depth, a node has the weight 1 - 1/c and each of its c - 1 siblings
            # -1/c.
            steps = [(share, 1)]
            if depth:
                siblings = int(counts[depth - 1])
                same = share * (1 - Fraction(1, siblings))
                steps = [(same, 1), (-share / siblings, siblings - 1)]
            spread: dict[Fraction, int] = {}
            for weight, count in weights.items():
                for step, often in steps:
                    product = weight * step
                    spread[product] = spread.get(product, 0) + count * often
            weights = spread
        sampler = LAWS[law](square * scale**2)
        terms += [Weighted(sampler, weight, count) for weight, count in weights.items()]
    return terms


def _multiply_families(
    families: Sequence[NDArray[np.int64]], view: View
) -> tuple[Floats, Floats, Floats]:
    """Arrays with one axis for each feature: ``Σ |weight|`` and ``Σ weight²`` of a cell, and the
    factor by which the residual was multiplied.
    """
    sizes, squares, scales = np.ones(()), np.ones(()), np.ones(())
    for counts, depth in zip(families, view, strict=True):
        siblings = counts[depth - 1].astype(float) if depth else np.ones(counts.shape[1])
        share = 1 / counts[depth:].astype(float).prod(axis=0)
        size, square = share, share**2
        if depth:  # centered: a node has the weight 1 - 1/c, and each sibling -1/c
            size, square = share * 2 * (1 - 1 / siblings), square * (1 - 1 / siblings)
        sizes = np.multiply.outer(sizes, size)
        squares = np.multiply.outer(squares, square)
        scales = np.multiply.outer(scales, siblings)
    return sizes, squares, scales


def cell_errors(mechanism: Mechanism, number: int = 0) -> dict[str, float]:
    """Return the errors of the cells of a table: standard errors, and half-widths of 95%
    intervals.

    A mechanism on cells measures one table; one on residuals measures several, which are numbered.

    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> errors = cell_errors(choose(two_way()[0], Budget.gdp(1)))
    >>> round(errors["standard_error"], 3), round(errors["half_width"], 3), list(errors)[-2:]
    (1.167, 2.333, ['narrowest', 'widest'])
    """
    if isinstance(mechanism, ResidualMechanism):
        # Each table is put together from the measured residuals.
        return table_errors(mechanism, number)
    unit = float(mechanism.space.unit)
    size = math.prod(mechanism.space.shape)
    if size > MOST_CELLS:
        root = mechanism.expected_l2 * unit / math.sqrt(size)
        return {"standard_error": root, "smallest": root, "largest": root}
    widths = cell_half_widths(mechanism) * unit if size < INTERVALS_BELOW else None
    return standard_spread(mechanism.standard_errors() * unit, widths)


def table_errors(mechanism: ResidualMechanism, number: int) -> dict[str, float]:
    """Return the same for one of the tables that share a budget."""
    errors = mechanism.table_errors(number)
    widths = table_half_widths(mechanism, number) if errors.size < INTERVALS_BELOW else None
    return standard_spread(errors, widths)


def standard_spread(
    errors: NDArray[np.float64], widths: NDArray[np.float64] | None
) -> dict[str, float]:
    """Root mean square, least and largest of the standard errors and of the half-widths of cells
    with noise.

    >>> standard_spread(np.array([3.0, 4.0, 0.0]), None)
    {'standard_error': 2.886751345948129, 'smallest': 3.0, 'largest': 4.0}
    """
    noisy = errors > 0
    numbers = _three(("standard_error", "smallest", "largest"), errors, noisy)
    if widths is not None:
        numbers |= _three(("half_width", "narrowest", "widest"), widths, noisy)
    return numbers


def _three(
    names: tuple[str, str, str], values: NDArray[np.float64], noisy: NDArray[np.bool_]
) -> dict[str, float]:
    mean, least, most = names
    square = float((values**2).mean()) if values.size else 0.0
    # Cells that exact totals fix have no noise, and would hide the least error of the others.
    least_value = float(values[noisy].min()) if noisy.any() else 0.0
    most_value = float(values[noisy].max()) if noisy.any() else 0.0
    return {mean: math.sqrt(square), least: least_value, most: most_value}
