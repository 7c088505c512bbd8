"""Gaussian noise on whole tables of integers whose sums are zero: added to a table, it changes no
published total.

There are two lattices (rows and columns sum to zero; rows only) and one exact sampler. Each
side of the table is split into two again and again, down to single rows or columns, and one integer
is drawn for each pair of a row split and a column split. The one-dimensional draws are in
`rejection`, with the acceptance step.
"""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import RealBall, ball
from semidp.promise.noise.distributions import variance_parameter
from semidp.promise.noise.inversion import LazyUniform
from semidp.promise.noise.randomness import Randomness, Stream, is_whole
from semidp.promise.noise.rejection import (
    LIGHT,
    LIGHT_LOSS,
    Floats,
    Integers,
    Target,
    attempt,
    theta_losses,
    theta_nome,
    theta_ratio,
    widths,
)


@frozen(eq=False, slots=False)
class Splits:
    """A binary tree over `size` positions; nodes are numbered, the positions themselves first.

    Split k cuts node `parent[k]` (of n positions) into `left[k]` (of l positions) and `right[k]`.
    `share` = l/n is the part of the parent's sum expected on the left, `weight` = l (n - l)/n the
    variance of that part for unit noise, each as numerator and denominator; `depth` counts the
    splits above.
    """

    size: int
    nodes: int
    parent: Integers
    left: Integers
    right: Integers
    depth: Integers
    share: tuple[Integers, Integers]
    weight: tuple[Integers, Integers]

    @cached_property
    def weights(self) -> Floats:
        """The weights as floats."""
        return self.weight[0] / self.weight[1]


def zero_sum(size: int, run: int) -> Splits:
    """Return a tree for positions whose values sum to zero: halves down to `run` positions, then
    one at a time.

    Short runs make a shallow tree, hence few steps; long runs have few splits of small weight (1/2,
    where two single positions part), which is what acceptance depends on.

    >>> tree = zero_sum(4, run=1)
    >>> tree.depth.tolist(), tree.weights.tolist()
    ([0, 1, 1], [1.0, 0.5, 0.5])
    >>> zero_sum(4, run=4).weights.round(3).tolist()
    [0.75, 0.667, 0.5]
    """
    levels = [np.empty((6, 0), dtype=np.int64)]
    start = np.array([0])
    stop = np.array([size])
    node = np.array([2 * size - 2])
    # inner nodes are numbered downwards from the root, which is the last node
    unused = 2 * size - 3
    while True:
        inner = stop - start > 1
        start, stop = start[inner], stop[inner]
        node = node[inner]
        if start.size == 0:
            break
        count = stop - start
        middle = start + np.where(count <= run, 1, count // 2)
        # The left halves first, then the right ones: `children` is cut in two below.
        starts = np.concatenate([start, middle])
        stops = np.concatenate([middle, stop])
        is_leaf = stops - starts == 1
        inner_numbers = unused - np.cumsum(~is_leaf) + 1
        children = np.where(is_leaf, starts, inner_numbers)
        unused -= int(np.sum(~is_leaf))
        depths = np.full(node.size, len(levels) - 1)
        left_children, right_children = np.split(children, 2)
        left_size = middle - start
        levels.append(np.stack([node, left_children, right_children, depths, count, left_size]))
        start, stop, node = starts, stops, children
    parent, left, right, depth, n, part = np.concatenate(levels, axis=1)
    share = _reduce_fractions(part, n)
    weight = _reduce_fractions(part * (n - part), n)
    return Splits(size, 2 * size - 1, parent, left, right, depth, share, weight)


def single() -> Splits:
    """Return the tree of one position whose value is free: node 1 stands for a sum of zero, node 2
    for nothing.

    With share 0 and weight 1 the free side drops out of every formula.

    >>> single().nodes
    3
    """
    zero = np.array([0])
    one = np.array([1])
    two = np.array([2])
    share = (zero, one)
    weight = (one, one)
    return Splits(1, 3, parent=one, left=zero, right=two, depth=zero, share=share, weight=weight)


def _reduce_fractions(top: Integers, bottom: Integers) -> tuple[Integers, Integers]:
    common = np.gcd(top, bottom)
    return top // common, bottom // common


SMALLEST_SIGMA2 = Fraction(1, 4)
"""The least supported σ²: below it almost no proposal is accepted."""
SMOOTH = 4  # σ² from which a cell has the variance σ² times its share, to about 10^-5
_NEGLIGIBLE = 80.0  # exp(-40) is left out
_LONGEST = 3_000_000  # terms of a sum on a torus
_TWO_PI_SQUARED = 2 * math.pi**2
_MOST_DRAWS = 2e8  # about a minute
_LANES = 1 << 14  # draws at a time: they stay in a processor's cache
_VALUES = 1 << 22  # values held for the tables drawn together
_DEEPEST = 4096
_RUNS = (1, 4, 16, 64, 256, 1024, _DEEPEST)
# What a step and a draw cost, in seconds, to choose between trees; only their quotient matters.
_STEP_COST, _DRAW_COST = 2.5e-4, 1.5e-7


@frozen(slots=False)
class _ZeroSums:
    """What both lattices share: a shape, an exact σ², and tables by the sampler below."""

    rows: int
    columns: int
    sigma2: Fraction

    columns_free: ClassVar[bool]

    def __attrs_post_init__(self) -> None:
        """Check the shape and σ²; choose the order of the draws, or refuse."""
        for size in (self.rows, self.columns):
            if not is_whole(size) or size < 1:
                raise InputError(
                    f"a table needs at least one row and one column, not {self.rows!r} x"
                    f" {self.columns!r}"
                )
        object.__setattr__(self, "sigma2", variance_parameter(self.sigma2))
        if self.sigma2 < SMALLEST_SIGMA2:
            raise Refused(
                "lattice noise needs sigma of at least 1/2, use the discrete Gaussian for less"
                " noise"
            )
        # chosen now: what cannot be drawn is refused before it is asked to be
        _trees(*self._sampling_parameters)

    @property
    def _sampling_parameters(self) -> tuple[int | None, int, Fraction]:
        """Rows, columns and σ² of one draw: a table, or a row (None) where rows are independent."""
        return None if self.columns_free else self.rows, self.columns, self.sigma2

    @property
    def free_share(self) -> Fraction:
        """The diagonal of the projection on tables with zero sums,
        ``(1 - 1/rows)(1 - 1/columns)``.
        """
        column_share = 1 - Fraction(1, self.columns)
        if self.columns_free:
            return column_share
        row_share = 1 - Fraction(1, self.rows)
        return row_share * column_share

    @property
    def variance(self) -> float:
        """The variance of a cell: from its law, or the upper bound
        ``σ² (1 - 1/rows)(1 - 1/columns)``.

        The covariance is σ²P less a positive semidefinite matrix (Poisson summation), P the
        projection on tables with zero sums. The law does not change with the order of rows and
        columns, so the covariance is a multiple of P (Schur) and this number gives that of
        every weighted sum. From σ = 2 on the bound is met to about 10^-5.
        """
        law = self.cell_law
        if law is None:
            return float(self.sigma2 * self.free_share)
        # The law is symmetric: each value above 0 stands for two.
        squares = np.arange(len(law)) ** 2
        return float(2 * (squares * law).sum())

    @cached_property
    def cell_law(self) -> Floats | None:
        """``P(v = 0), P(v = 1), …`` of a cell v; None if that takes long (six rows and columns),
        and from σ = 2.
        """
        rows, columns, sigma2 = self._sampling_parameters
        if rows is not None and rows < columns:  # the shorter side has the integrals
            rows, columns = columns, rows
        return _cell_law(rows, columns, sigma2)

    def sample(self, randomness: Randomness) -> Integers:
        """Return one table, exactly distributed."""
        table: Integers = self.sample_many(1, randomness)[0]
        return table

    def sample_many(self, count: int, randomness: Randomness) -> Integers:
        """Return `count` independent tables as an array of shape (count, rows, columns)."""
        if not is_whole(count) or count < 0:
            raise InputError(
                f"the number of tables must be a whole number, 0 or more, not {count!r}"
            )
        # Where columns are free, one draw of the sampler is one row.
        draws = count * self.rows if self.columns_free else count
        drawn = _sample(_plan(*self._sampling_parameters), draws, randomness)
        return drawn.reshape(count, self.rows, self.columns)


@frozen
class LatticeGaussian(_ZeroSums):
    """P(v) ∝ exp(-|v|²/2σ²) over the integer tables v whose rows and columns all sum to zero.

    Added to a table of counts it keeps both margins exactly; a shift by an element of the lattice
    of norm at most Δ2 costs Δ2²/(2σ²)-zCDP, as for the discrete Gaussian.

    **Why it is exact.** Cut the rows again and again into two, and the columns too. The table is
    then described by one free integer for each pair of a row split (P into L and R) and a column
    split (Q into A and B), namely the sum x over the block L×A. The squared norm is a sum of
    squares over these pairs (a Haar basis is orthogonal):

        |v|² = Σ (x - c)² / w,   c = λ v(P×A) + α v(L×Q) - λα v(P×Q),   λ = |L|/|P|,  α = |A|/|Q|,
        w = λ|R| · α|B|,

    where c depends on splits higher up only. So x is drawn as a discrete Gaussian with center c and
    variance parameter s² = σ²w, top down. The table so drawn has probability Π exp(-(x -
    c)²/2s²)/Z(c), and Z(c) = Z(0) · θ(c; q)/θ(0; q), q = exp(-2π²s²), by Poisson summation.
    Accepting the whole table with probability Π θ(c; q)/θ(0; q) <= 1 therefore leaves
    exp(-|v|²/2σ²) up to a constant, exactly (klein2000finding, brakerski2013classical). Every draw
    and the acceptance are decided by floating point only if a proven error bound allows it, by
    ball arithmetic elsewhere.

    Splitting off one row and one column at a time is the cell by cell scan; shallower trees take
    fewer steps and are chosen where their acceptance is good.

    Parameters
    ----------
    rows, columns
        The shape; with one row or one column the only such table is zero.
    sigma2
        σ², at least 1/4: acceptance vanishes below, and `Refused` says so. It is also refused where
        a table is so large for its σ that an accepted one is expected to take more than 2·10^8
        draws (10 x 10 at 1/2 and 1000 x 1000 at 0.9 are fine).

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> noise = LatticeGaussian(3, 4, Fraction(9)).sample(SeededRandomness(1))
    >>> noise.shape, noise.sum(axis=0).tolist(), noise.sum(axis=1).tolist()
    ((3, 4), [0, 0, 0, 0], [0, 0, 0])
    >>> LatticeGaussian(3, 4, Fraction(1, 9))
    Traceback (most recent call last):
    semidp.errors.Refused: lattice noise needs sigma of at least 1/2, use the discrete Gaussian for
    less noise
    """

    columns_free: ClassVar[bool] = False


@frozen
class OneSidedLatticeGaussian(_ZeroSums):
    """P(v) ∝ exp(-|v|²/2σ²) over the integer tables v of which each row sums to zero; columns are
    free.

    For totals published on one side only. Rows are independent, and each is a `LatticeGaussian` on
    one side: the same sampler, accepted row by row.

    Parameters
    ----------
    rows, columns
        The shape; one row stands for a table of which only the total is public.
    sigma2
        σ², at least 1/4.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> noise = OneSidedLatticeGaussian(2, 5, Fraction(4)).sample(SeededRandomness(1))
    >>> noise.shape, noise.sum(axis=1).tolist()
    ((2, 5), [0, 0])
    """

    columns_free: ClassVar[bool] = True


@frozen(eq=False)
class _DrawingOrder:
    """Both trees, the pairs of splits in the order of their draws, and what the acceptance step
    knows beforehand.

    A pair (i, j) of splits is the number i · (column splits) + j. `steps` are the ends of the runs
    of `order` that may be drawn together. `heavy` are the pairs whose factor is computed, with nome
    `q`; `loss` bounds 1 - Π θ(c)/θ(0); `acceptance` is about how often a table is accepted.
    """

    rows: Splits
    columns: Splits
    sigma2: Fraction
    order: Integers
    steps: Integers
    heavy: Integers
    q: Floats
    loss: float
    acceptance: float

    def pair(self, pairs: Integers) -> tuple[Integers, Integers]:
        """Return the row splits and the column splits of pairs."""
        column_splits = max(self.columns.parent.size, 1)
        i, j = np.divmod(pairs, column_splits)
        return i, j

    def variance(self, i: int, j: int) -> Fraction:
        """Return s² of a pair of splits."""
        row_weight = _get_fraction(self.rows.weight, i)
        column_weight = _get_fraction(self.columns.weight, j)
        return self.sigma2 * row_weight * column_weight


def _get_fraction(fractions: tuple[Integers, Integers], position: int) -> Fraction:
    """The fraction at a position of an array of numerators and one of denominators."""
    numerators, denominators = fractions
    return Fraction(int(numerators[position]), int(denominators[position]))


@lru_cache(maxsize=64)
def _cell_law(rows: int | None, columns: int, sigma2: Fraction) -> Floats | None:
    """The law of the first cell, by Fourier sums on a torus: of one row where `rows` is None.

    With ``θ(t) = Σ_k exp(-k²/2σ²) cos kt`` the tables of `rows` rows that sum to zero, and whose
    columns have the phases t, weigh ``ψ(t)^rows``, ``ψ(t) = mean_s Π_j θ(s + t_j)``. Those with k
    in the first cell weigh ``ψ_k ψ^(rows-1)``,
    ``ψ_k = exp(-k²/2σ²) mean_s exp(iks) Π_{j>1} θ(s + t_j)``. The mean over t leaves zero column
    sums. A mean over M points also counts sums that are multiples of M, which weigh at most about
    exp(-M²/2σ²r) for r numbers in a sum.
    """
    variance = float(sigma2)
    if columns == 1 or rows == 1:
        return np.ones(1)
    if sigma2 >= SMOOTH:
        return None
    around = _torus_points(variance, columns)
    turns = _torus_points(variance, rows or 1)
    axes = 0 if rows is None else columns - 1
    if turns**axes * around > _LONGEST:
        return None
    last = math.ceil(math.sqrt(_NEGLIGIBLE * variance)) + 1
    k = np.arange(last + 1)
    weights = np.exp(-(k**2) / (2 * variance))

    def theta_sum(angle: Floats) -> Floats:
        cosines = np.cos(np.multiply.outer(angle, k[1:]))
        return np.asarray(cosines @ (2 * weights[1:]) + 1)

    around_angles = 2 * math.pi / around * np.arange(around)
    turn_angles = 2 * math.pi / turns * np.arange(turns)
    table = theta_sum(np.add.outer(around_angles, turn_angles))  # θ(s + t)
    frequencies = (turns,) * axes
    other = np.zeros((last + 1, *frequencies), dtype=np.complex128)  # ψ_k
    whole = np.zeros(frequencies)  # ψ
    largest = theta_sum(np.zeros(()))
    for place, angle in enumerate(around_angles.tolist()):
        product: Floats = np.ones(())
        for _ in range(axes):
            product = np.multiply.outer(product, table[place])
        if rows is None:
            # Up to a constant: θ is largest at 0, and its power would overflow.
            product = (theta_sum(np.array(angle)) / largest) ** (columns - 1)
        phases = weights * np.exp(1j * angle * k)
        other += np.multiply.outer(phases, product) / around
        whole += theta_sum(np.array(angle)) * product / around
    # The first row holds the cell; the other rows - 1 weigh ψ each, up to a constant.
    other_rows: Floats = np.ones(())
    if rows is not None:
        other_rows = (whole / whole.max()) ** (rows - 1)
    terms = (other * other_rows).real
    masses = terms.reshape(last + 1, -1).mean(axis=1)
    # Rounding can leave a mass just below 0.
    result: Floats = np.maximum(masses, 0.0)
    total = result[0] + 2 * result[1:].sum()
    return np.asarray(result / total)


def _torus_points(variance: float, number: int) -> int:
    """Points of a mean on a circle for a sum of `number` cells; what they miss is negligible."""
    return math.ceil(math.sqrt(_NEGLIGIBLE * variance * number)) + 2


@lru_cache(maxsize=16)
def _trees(rows: int | None, columns: int, sigma2: Fraction) -> tuple[Splits, Splits]:
    """Return the trees of rows and columns with the least expected time, or refuse; no rows where
    columns are free.
    """
    best, cost, draws = (single(), single()), math.inf, math.inf
    for run in _useful_runs(max(rows or 1, columns)):
        down = zero_sum(rows, run) if rows else single()
        across = zero_sum(columns, run)
        tries = math.exp(min(_log_loss(down, across, sigma2), 700))
        row_steps = down.depth.max(initial=0)
        steps = row_steps + across.depth.max(initial=0) + 1
        needed = tries * down.parent.size * across.parent.size
        batches = max(1, tries / _largest_batch(down, across))
        time = _STEP_COST * steps * batches + _DRAW_COST * needed
        if time < cost:
            best, cost, draws = (down, across), time, needed
    row_tree, column_tree = best
    if draws > _MOST_DRAWS:
        shape = f"{row_tree.size} x {column_tree.size}"
        sigma = math.sqrt(sigma2)
        raise Refused(
            f"lattice noise on {shape} cells needs a larger sigma"
            f" than {sigma:.3g}, use the discrete Gaussian for less noise"
        )
    # Block sums have standard deviation σ √cells / 4 at most; 256 of them have probability
    # exp(-2^15).
    far_squared = 64**2 * sigma2 * row_tree.size * column_tree.size
    if far_squared > _largest(*best) ** 2:
        raise Refused(
            "lattice noise this large does not fit in 64 bits, lower sigma or the size of the table"
        )
    return best


def _useful_runs(largest: int) -> list[int]:
    """Run lengths that give different trees for sides of at most `largest` positions."""
    runs = [_RUNS[0]]
    for shorter, run in pairwise(_RUNS):
        if shorter < largest:
            runs.append(run)
    return runs


def _log_loss(rows: Splits, columns: Splits, sigma2: Fraction) -> float:
    """Return Σ log θ(0; q), an upper bound of minus the logarithm of the acceptance probability (up
    to rounding).
    """
    row_weights, row_counts = np.unique(rows.weights, return_counts=True)
    weights, counts = np.unique(columns.weights, return_counts=True)
    rate = -2 * math.pi**2 * float(sigma2)
    total = 0.0
    for weight, count in zip(row_weights, row_counts, strict=True):
        q = np.exp(rate * weight * weights)
        # θ(0; q) = 1 + 2 (q + q⁴ + q⁹ + …)
        series = q + q**4 + q**9
        log_theta = np.log1p(2 * series)
        total += count * float(log_theta @ counts)
    return total


@lru_cache(maxsize=4)
def _plan(rows: int | None, columns: int, sigma2: Fraction) -> _DrawingOrder:
    return _compute_plan(*_trees(rows, columns, sigma2), sigma2)


def _compute_plan(rows: Splits, columns: Splits, sigma2: Fraction) -> _DrawingOrder:
    depth = np.add.outer(rows.depth, columns.depth).ravel()
    steps = np.cumsum(np.bincount(depth))
    order = np.argsort(depth.astype(np.uint16), kind="stable")
    pair_weights = np.outer(rows.weights, columns.weights).ravel()
    variance = float(sigma2) * pair_weights
    heavy = np.flatnonzero(_TWO_PI_SQUARED * variance <= LIGHT)
    q = theta_nome(variance[heavy])
    # 1 - θ(c)/θ(0) <= 4q for each heavy pair, q within a relative 2^-31; the light ones are bounded
    heavy_loss = 4 * float(q.sum()) * (1 + 2.0**-28)
    loss = heavy_loss + depth.size * LIGHT_LOSS
    acceptance = math.exp(-_log_loss(rows, columns, sigma2))
    return _DrawingOrder(rows, columns, sigma2, order, steps, heavy, q, loss, acceptance)


def _largest(rows: Splits, columns: Splits) -> int:
    """Return the largest block sum for which numerators of centres are sure to fit in 64 bits."""
    return (1 << 60) // (3 * rows.size * columns.size)


def _largest_batch(rows: Splits, columns: Splits) -> int:
    """Largest number of tables that are drawn together."""
    return max(1, _VALUES // (rows.nodes * columns.nodes))


def _sample(plan: _DrawingOrder, count: int, randomness: Randomness) -> Integers:
    """Return `count` accepted tables, drawn in batches whose memory is bounded."""
    shape = (plan.rows.size, plan.columns.size)
    tables = np.zeros((count, *shape), dtype=np.int64)
    if plan.order.size == 0:
        return tables
    stream = Stream(randomness)
    largest_batch = _largest_batch(plan.rows, plan.columns)
    done = 0
    while done < count:
        # Tables are independent, so of more proposals than are needed the first accepted ones
        # will do.
        tries = min(int((count - done) / plan.acceptance), largest_batch)
        sums = _propose(plan, tries, stream)
        is_accepted = _accept_tables(plan, sums, stream)
        accepted = np.flatnonzero(is_accepted)[: count - done]
        blocks = sums.reshape(plan.rows.nodes, plan.columns.nodes, -1)
        # Single rows and columns are the first nodes of their trees.
        leaves = blocks[: shape[0], : shape[1]]
        by_table = np.moveaxis(leaves, 2, 0)
        tables[done : done + accepted.size] = by_table[accepted]
        done += accepted.size
    return tables


def _propose(plan: _DrawingOrder, count: int, stream: Stream) -> Integers:
    """Draw all block sums of `count` tables, top down; row = pair of nodes, column = table."""
    blocks = plan.rows.nodes * plan.columns.nodes
    sums = np.zeros((blocks, count), dtype=np.int64)
    for pairs in _batch_pairs(plan, max(1, _LANES // count)):
        drawn_blocks, next_blocks = _blocks(plan, pairs)
        top, side, whole = (sums[at] for at in drawn_blocks)
        numerator, denominator = _centres(plan, pairs, (top, side, whole))
        corner = _draw(plan, pairs, numerator, denominator, stream)
        # One corner is drawn; the other three follow from the sums above them.
        last_corner = whole - top - side + corner
        quarters = (corner, side - corner, top - corner, last_corner)
        for at, value in zip(next_blocks, quarters, strict=True):
            sums[at] = value
    highest, lowest = int(sums.max()), int(sums.min())
    largest_drawn = max(highest, -lowest)
    if largest_drawn > _largest(plan.rows, plan.columns):
        raise Refused(
            "lattice noise this large does not fit in 64 bits, lower sigma or the size of the table"
        )
    return sums


def _batch_pairs(plan: _DrawingOrder, most: int) -> Iterator[Integers]:
    """Yield runs of pairs of one depth, at most `most` long: each depends on shallower pairs
    only.
    """
    start = 0
    for stop in plan.steps.tolist():
        for begin in range(start, stop, most):
            yield plan.order[begin : min(begin + most, stop)]
        start = stop


def _blocks(plan: _DrawingOrder, pairs: Integers) -> tuple[list[Integers], list[Integers]]:
    """Return the rows of `sums` that hold the block sums of pairs of splits: P×A, L×Q and P×Q; then
    L×A, L×B, R×A and R×B.
    """
    i, j = plan.pair(pairs)
    width = plan.columns.nodes
    parent = plan.rows.parent[i] * width
    left = plan.rows.left[i] * width
    right = plan.rows.right[i] * width
    whole = plan.columns.parent[j]
    first = plan.columns.left[j]
    second = plan.columns.right[j]
    drawn_blocks = [parent + first, left + whole, parent + whole]
    left_blocks = [left + first, left + second]
    right_blocks = [right + first, right + second]
    return drawn_blocks, [*left_blocks, *right_blocks]


def _centres(
    plan: _DrawingOrder, pairs: Integers, sums: Sequence[Integers]
) -> tuple[Integers, Integers]:
    """Return numerator and denominator of c = λ v(P×A) + α v(L×Q) - λα v(P×Q), given these three
    sums.
    """
    i, j = plan.pair(pairs)
    # λ = a/b of the rows and α = c/d of the columns, over the common denominator bd.
    row_shares, column_shares = plan.rows.share, plan.columns.share
    a, b = row_shares[0][i], row_shares[1][i]
    c, d = column_shares[0][j], column_shares[1][j]
    top, side, whole = sums
    numerator = (a * d)[:, None] * top
    numerator += (c * b)[:, None] * side
    numerator -= (a * c)[:, None] * whole
    return numerator, b * d


def _draw(
    plan: _DrawingOrder, pairs: Integers, numerator: Integers, denominator: Integers, stream: Stream
) -> Integers:
    """Return one discrete Gaussian for each center, each attempt repeated until it is accepted."""
    i, j = plan.pair(pairs)
    count = numerator.shape[1]
    doubled = 2 * denominator[:, None]
    nearest = np.floor_divide(2 * numerator + denominator[:, None], doubled)
    # The center less the nearest whole number, so the attempts work near zero.
    remainder = (numerator - nearest * denominator[:, None]).ravel()
    row_variance = float(plan.sigma2) * plan.rows.weights[i]
    these = widths(row_variance * plan.columns.weights[j])
    denominators = np.repeat(denominator, count)
    centre = remainder / denominators
    lane = np.arange(remainder.size)
    these = these.select(lane // count) if count > 1 else these
    result = np.empty(remainder.size, dtype=np.int64)

    def exact(position: int) -> Target:
        at = int(lane[position])
        f = Fraction(int(remainder[at]), int(denominators[at]))
        pair = at // count
        variance = plan.variance(int(i[pair]), int(j[pair]))
        return lambda: ball(f), variance, abs(f)

    while lane.size:
        x, accepted = attempt(centre, these, stream, exact)
        result[lane[accepted]] = x[accepted]
        again = np.flatnonzero(~accepted)
        lane, centre = lane[again], centre[again]
        these = these.select(again)
    drawn: Integers = nearest + result.reshape(nearest.shape)
    return drawn


def _accept_tables(plan: _DrawingOrder, sums: Integers, stream: Stream) -> NDArray[np.bool_]:
    """Decide, exactly, which tables to keep: each with probability Π θ(c; q)/θ(0; q).

    The product is at least 1 - `loss`, which decides nearly always for σ above 1; then floats
    decide where they are further from the coin than their error bound (see `theta_losses`), then
    ball arithmetic.
    """
    words = stream.words(sums.shape[1])
    leading = words >> np.uint64(11)
    coin = leading.astype(np.float64) * 2.0**-53
    accepted = coin < 1 - plan.loss - 2.0**-50
    doubtful = np.flatnonzero(~accepted)
    if doubtful.size:
        margin = _float_product(plan, sums[:, doubtful]) - coin[doubtful]
        accepted[doubtful] = margin > 0
        for k in doubtful[np.abs(margin) <= _tolerance(plan)]:
            u = LazyUniform(int(words[k]), 64, stream)
            product = partial(_ball_product, plan, sums[:, k])
            accepted[k] = u.is_below(product)
    return accepted


def _tolerance(plan: _DrawingOrder) -> float:
    """Return a bound of the error of `_float_product`: its factors, their multiplication, and what
    it leaves out.
    """
    factors = 2.0**-28 * plan.loss
    multiplication = 2.0**-50 * (plan.heavy.size + 4)
    light_pairs = plan.order.size * LIGHT_LOSS
    return factors + multiplication + light_pairs


def _float_product(plan: _DrawingOrder, sums: Integers) -> Floats:
    result = np.ones(sums.shape[1])
    step = max(1, _LANES // sums.shape[1])
    for start in range(0, plan.heavy.size, step):
        step_pairs = slice(start, start + step)
        pairs = plan.heavy[step_pairs]
        drawn_blocks, _ = _blocks(plan, pairs)
        block_sums = [sums[at] for at in drawn_blocks]
        numerator, denominator = _centres(plan, pairs, block_sums)
        nomes = plan.q[step_pairs, None]
        losses = theta_losses(numerator, denominator[:, None], nomes)
        result *= np.prod(1 - losses, axis=0)
    return result


def _ball_product(plan: _DrawingOrder, sums: Integers) -> RealBall:
    """Return a ball of the product for one table; pairs with q below 2^-precision enter as a
    bound.
    """
    from flint import arb, ctx

    pair_weights = np.outer(plan.rows.weights, plan.columns.weights).ravel()
    nats = _TWO_PI_SQUARED * float(plan.sigma2) * pair_weights
    counted = np.flatnonzero(nats <= ctx.prec)
    drawn_blocks, _ = _blocks(plan, counted)
    block_sums = [sums[at][:, None] for at in drawn_blocks]
    numerator, denominator = _centres(plan, counted, block_sums)
    i, j = plan.pair(counted)
    # q < exp(-precision) for the others, each factor is at least 1 - 4q.
    smallest = arb(2) ** (-ctx.prec)
    left_out = (4 * nats.size * smallest).upper()
    product = 1 - arb(0).union(left_out)
    for k in range(counted.size):
        centre = Fraction(int(numerator[k, 0]), int(denominator[k]))
        variance = plan.variance(int(i[k]), int(j[k]))
        product *= theta_ratio(centre, variance)
    return product
