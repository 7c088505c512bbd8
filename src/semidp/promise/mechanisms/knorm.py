"""The K-norm mechanism: noise of density ∝ exp(-ε ‖v‖_K) for K = hull(S_a), optimal for pure
budgets.

A ball is a value with a norm and a sampler. `place_ball` finds the ball of a sensitivity space, the
cells of its points in the table, and how to round them. `knorm_polar` defines the interface of a
ball and solves its linear programs; `knorm_tables` has balls of both sides of a table,
`knorm_balls` those of one side and of any list of vectors.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.exact import round_up
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.additive import LaplaceMechanism, PureMechanism
from semidp.promise.mechanisms.knorm_balls import ExplicitBall, PairBall, RowsBall
from semidp.promise.mechanisms.knorm_polar import NormBall, knorm_noise, noise_moment
from semidp.promise.mechanisms.knorm_tables import MOST_FREE_CELLS, ExchangeBall, TableBall
from semidp.promise.mechanisms.mechanism import (
    ClaimKind,
    cell_weights,
    check_scale,
    require_epsilon,
)
from semidp.promise.noise.randomness import Randomness, generator
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats
from semidp.promise.sensitivity.query_space import MatrixForm, QuerySpace, RowsForm
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.promise.tradeoff.function import Tradeoff

Integers = NDArray[np.int64]

# of a list of moves: rejection from a cube keeps one proposal in some thousands
MOST_DIMENSIONS = 8
MOST_MOVES = 20_000
_LARGEST = 2.0**52  # beyond it floats are whole numbers anyway, and their sums no longer exact


@frozen(slots=False, eq=False)
class PlacedBall(ABC):
    """A ball and the flat positions of its coordinates in the table."""

    ball: NormBall
    cells: NDArray[np.intp] = field(repr=False)
    shape: tuple[int, ...]
    stretch: int = field(default=1, kw_only=True)  # how many times the ball holds the space

    def place(self, point: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the table that has a point's entries at its cells and zeros elsewhere; many tables
        for many points.
        """
        many = point.shape[: point.ndim - self.cells.ndim]
        cells = math.prod(self.shape)
        table = np.zeros((*many, cells), dtype=point.dtype)
        table[..., self.cells] = point
        return table.reshape(*many, *self.shape)

    def take(self, table: Floats) -> Floats:
        """Return the entries of a table at the cells."""
        return np.asarray(table).ravel()[self.cells]

    @abstractmethod
    def round_point(self, point: Floats) -> Integers:
        """Round in coordinates that are whole exactly for whole tables: post-processing, and the
        margins stay zero.

        Many points, along the first axis, are rounded one by one.
        """

    @property
    @abstractmethod
    def lattice(self) -> Any:
        """A basis of the whole points, a row for each of the coordinates that are rounded; sparse
        where it is large.
        """

    def rounding_coefficients(self, weights: Floats) -> Floats:
        """Return the coefficient of each rounding error in a weighted sum of the rounded point."""
        return np.asarray(self.lattice @ weights.ravel())

    @cached_property
    def rounding_counts(self) -> Floats:
        """For each coordinate the sum of squares of the coefficients of its rounding errors."""
        squares = (self.lattice**2).sum(axis=0)
        return np.asarray(squares, dtype=np.float64).reshape(self.cells.shape)


@frozen(slots=False, eq=False)
class PlacedMatrix(PlacedBall):
    """A ball of matrices with both sides published: whole iff the sums over leading rows and
    columns are.

    Rounding single free cells and rebuilding the others would pile up all errors in the last cell;
    rounded leading sums give each cell the errors of its four corners.
    """

    def round_point(self, point: Floats) -> Integers:
        """Round the leading sums and take differences."""
        sums = np.cumsum(np.cumsum(point, axis=-1), axis=-2)
        sums[..., -1, :] = 0.0
        sums[..., -1] = 0.0
        along_rows = np.diff(_round_to_integers(sums), axis=-1, prepend=0)
        return np.diff(along_rows, axis=-2, prepend=0)

    @cached_property
    def lattice(self) -> Any:
        """The four-cell moves of neighboring rows and columns."""
        from scipy.sparse import kron

        rows, columns = self.cells.shape
        row_steps = _steps(np.arange(rows - 1), rows)
        column_steps = _steps(np.arange(columns - 1), columns)
        return kron(row_steps, column_steps, format="csr")


@frozen(slots=False, eq=False)
class PlacedRows(PlacedBall):
    """A ball of rows with published totals: whole iff the sums over leading cells of each row
    are.
    """

    lengths: tuple[int, ...]

    def round_point(self, point: Floats) -> Integers:
        """Round the leading sums, which are zero at the end of a row, and take differences."""
        flat = point.reshape(-1, self.cells.size)
        sums = np.cumsum(flat, axis=-1)
        sums[:, np.cumsum(self.lengths) - 1] = 0.0
        return np.diff(_round_to_integers(sums), prepend=0).reshape(point.shape)

    @cached_property
    def lattice(self) -> Any:
        """A cell against the next one of its row."""
        size = self.cells.size
        last_cells = np.cumsum(self.lengths) - 1
        starts = np.delete(np.arange(size), last_cells)
        return _steps(starts, size)


@frozen(slots=False, eq=False)
class PlacedList(PlacedBall):
    """The ball of a list of whole vectors: whole iff the coordinates in a basis of the whole points
    of the span are.
    """

    def round_point(self, point: Floats) -> Integers:
        """Round the coordinates in the lattice basis."""
        points = point.reshape(-1, self.cells.size)
        coordinates = np.stack([self._inverse @ flat for flat in points])
        return (_round_to_integers(coordinates) @ self.lattice).reshape(point.shape)

    @cached_property
    def lattice(self) -> Integers:
        """A short basis of all whole points of the span, a row for each vector."""
        assert isinstance(self.ball, ExplicitBall)
        vectors = np.asarray(self.ball.vectors, dtype=np.int64)
        return whole_points(vectors.reshape(len(vectors), -1))

    @cached_property
    def _inverse(self) -> Floats:
        return np.linalg.pinv(self.lattice.T.astype(float))


def _steps(starts: NDArray[np.intp], size: int) -> Any:
    """Return the sparse matrix whose rows have 1 at a place and -1 at the next."""
    from scipy.sparse import csr_array

    count = len(starts)
    places = np.stack([starts, starts + 1], axis=1).ravel()
    entries = np.tile([1.0, -1.0], count)
    row_starts = 2 * np.arange(count + 1)
    return csr_array((entries, places, row_starts), shape=(count, size))


def place_ball(space: QuerySpace) -> PlacedBall:
    """Return the ball K of a space, hull(S) or the smallest known ball that contains it.

    One published side (or none): `RowsBall`. Two: `PairBall` for two levels on a side, else
    `TableBall` for a = 2, 3, and for more records that of three, stretched: moves split into
    cycles, and a cycle of L records is a sum of ⌊L/2⌋ elements of hull(S_3), so
    ``S_a ⊆ ⌊a/2⌋ hull(S_3)``. Everything else by listing S_a if that is small. Levels without
    records are left out.

    Exchanges with one published side: `ExchangeBall` for two levels on a side, else a list where
    that is small, else the ball over rows of all moves that are no longer, which contains them.
    Both sides: the space of three records. Several exchanges in a row: the same ball, stretched
    by their number.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.sensitivity.table_spaces import sensitivity_space
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 0, 3], [4, 0, 6]]
    ... )
    >>> public = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    >>> place_ball(sensitivity_space(public, Ball(3))).ball
    PairBall(columns=2, reach=1)
    """
    form, rows = space.matrix(), space.rows()
    if form is not None and form.columns_published:
        return _two_sided(space, form.cells)
    if rows is None:
        return _place_listed_ball(space)
    place_rows = space.adjacency.by_kind(ball=_rows_of_records, exchange=_rows_of_exchanges)
    return place_rows(space, rows, form)


def _rows_of_records(space: QuerySpace, rows: RowsForm, form: MatrixForm | None) -> PlacedBall:
    """The rows under the ball: any a records change, each within its row."""
    ball = RowsBall(rows.totals, rows.lengths, space.reach)
    return PlacedRows(ball, rows.cells, space.shape, rows.lengths)


def _rows_of_exchanges(space: QuerySpace, rows: RowsForm, form: MatrixForm | None) -> PlacedBall:
    """The rows under exchange: a person may change its row, and a carrier does so in return."""
    if form is None:
        # of the rows together, so the ball contains the exchanges
        a = space.norms.l1 // 2
        giving = a
    else:
        sides = form.cells.shape
        a, giving = space.reach, sides[0]
        has_two = giving > 1 and min(sides) == 2
        is_quick = sides[1] == 2 or space.dimension <= MOST_FREE_CELLS
        if has_two and is_quick:
            cells = rows.cells.reshape(sides)
            stretch = space.adjacency.most_moves
            return PlacedRows(
                ExchangeBall(*sides), cells, space.shape, rows.lengths, stretch=stretch
            )
    if giving > 1 and space.dimension <= MOST_DIMENSIONS:
        return _place_listed_ball(space)
    ball = RowsBall(rows.totals, rows.lengths, a)
    return PlacedRows(ball, rows.cells, space.shape, rows.lengths)


def _two_sided(space: QuerySpace, cells: NDArray[np.intp]) -> PlacedBall:
    """A matrix of which the sums of rows and of columns are published."""
    if cells.shape[0] > cells.shape[1]:
        cells = cells.T
    a, adjacency = space.reach, space.adjacency
    if len(cells) == 2:
        # No row can give more records than it holds, so the ball may be smaller.
        records = space.fixed_part().ravel()[cells]
        smallest = int(np.rint(records.sum(axis=1)).min())
        pair = PairBall(cells.shape[1], min(adjacency.swaps, smallest))
        return PlacedMatrix(pair, cells, space.shape)
    rows, columns = cells.shape
    table = TableBall(rows, columns, min(a, 3))
    # What more records do lies in the ball of three, stretched.
    several = a // 2 if a > 3 else 1
    stretch = adjacency.by_kind(ball=several, exchange=adjacency.most_moves)
    return PlacedMatrix(table, cells, space.shape, stretch=stretch)


def _place_listed_ball(space: QuerySpace) -> PlacedBall:
    """The ball of all moves, on the cells that some move touches."""
    if space.dimension > MOST_DIMENSIONS:
        raise Refused(
            f"k-norm serves these margins for at most {MOST_DIMENSIONS} free cells and the table"
            f" has {space.dimension}: use laplace"
        )
    # One move more than allowed shows that there are too many, without listing them all.
    listed = list(itertools.islice(space.moves(), MOST_MOVES + 1))
    moves = np.array(listed).reshape(-1, math.prod(space.shape))
    if len(moves) > MOST_MOVES:
        raise Refused(
            f"k-norm serves these margins for at most {MOST_MOVES:,} moves, and there are more: use"
            " laplace"
        )
    cells = np.flatnonzero(moves.any(axis=0))
    ball = ExplicitBall(moves[:, cells])
    if ball.dimension < space.dimension:
        _check_reach(space, ball, cells)
    return PlacedList(ball, cells, space.shape)


def _check_reach(space: QuerySpace, ball: ExplicitBall, cells: NDArray[np.intp]) -> None:
    """Refuse where noise in the span of S_a would leave exact something that the public statistics
    do not fix.
    """
    listing = space.listing()
    if listing is not None:
        tables = listing.released
        differences = (tables - tables[0]).reshape(len(tables), -1)
        outside = differences.copy()
        outside[:, cells] = 0
        inner = differences[:, cells].astype(float)
        in_span = np.allclose(inner @ ball.projection, inner, atol=1e-9)
        if not outside.any() and in_span:
            return
    raise Refused(
        f"the moves of a = {space.adjacency.a} records do not connect all tables with these"
        " margins, so k-norm would publish exactly what separates them: use laplace, or give"
        " a larger a"
    )


def _round_to_integers(values: Floats) -> Integers:
    """Round to 64-bit integers; refuse what sums of a few of them could overflow."""
    if np.abs(values).max() >= _LARGEST:
        raise Refused("the noise does not fit in 63 bits: use a larger budget")
    return np.rint(values).astype(np.int64)


def whole_points(vectors: Integers) -> Integers:
    """Return a short basis of the whole points in the span of whole vectors.

    The span is the kernel of whole equations E; the rows of a Hermite form of [Eᵀ | I] that are
    zero on the left are a basis of its whole points, which lattice reduction then shortens.

    >>> whole_points(np.array([[2, 0, -2], [0, 2, -2]])).tolist()
    [[1, 0, -1], [0, 1, -1]]
    """
    from flint import fmpz_mat

    size = vectors.shape[1]
    null, nullity = fmpz_mat(vectors.tolist()).nullspace()
    identity = np.eye(size, dtype=int).tolist()
    # [Eᵀ | I]: row operations that clear the left part are written down on the right.
    rows = []
    for i in range(size):
        equation = [int(null[i, j]) for j in range(nullity)]
        rows.append([*equation, *identity[i]])
    stacked = fmpz_mat(rows).hnf().tolist()
    basis = [row[nullity:] for row in stacked[nullity:]]
    reduced = fmpz_mat(basis).lll().tolist()
    points = [list(map(int, row)) for row in reduced]
    return np.array(points, dtype=np.int64)


_PROBES = 8  # points at which two covariances are compared


_ROUNDING = 1 / 12


@frozen(slots=False, eq=False)
class KNormMechanism(PureMechanism):
    """Noise of density ``∝ exp(-ε ‖v‖_K)`` on the span of S_a, K = hull(S_a): pure ε (Cho and Awan,
    Algorithm 3).

    ``v = r U`` with U uniform in K and ``r ~ Gamma(s + 1, rate ε)``, s = rank(S_a). The noise is
    rounded to whole numbers in coordinates of the tables with zero margins, which is
    post-processing since every table of D_t is whole there. All errors are known beforehand:
    constants of the ball, or a pilot that sees no data, plus the variance of the rounding.

    Parameters
    ----------
    epsilon
        ε, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> space, table = two_way()
    >>> mechanism = KNormMechanism.calibrate(space, Budget.pure(1))
    >>> round(mechanism.expected_l2, 3), mechanism.claim
    (4.546, 'ideal')
    >>> noisy = mechanism.apply(table, SeededRandomness(1)).noisy
    >>> (noisy.sum(axis=0) == table.counts.sum(axis=0)).all() and (
    ...     noisy.sum(axis=1) == table.counts.sum(axis=1)
    ... ).all()
    np.True_
    """

    scale_powers: ClassVar[Mapping[str, int]] = {"epsilon": -1}

    epsilon: Fraction
    progress: Progress = silent

    keeps_totals: ClassVar[bool] = True
    known_elsewhere: ClassVar[bool] = False  # its noise has the shape of one space
    name: ClassVar[str] = "k-norm"
    claim: ClassVar[ClaimKind] = "ideal"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with rate ε; a δ in the budget is not used. Refuse what takes too
        long to draw.
        """
        cls.check_request(space, budget)
        epsilon = require_epsilon(budget)
        check_scale(1 / epsilon**2)
        # The ball is placed now, so what cannot be drawn is refused before noise is drawn.
        mechanism = cls(space, epsilon)
        try:
            ball = mechanism.placed_ball.ball
        except Refused as refusal:
            laplace = LaplaceMechanism.calibrate(space, budget)
            raise Refused(
                f"{refusal} (laplace has an expected loss of {laplace.expected_l2:.4g} here)"
            ) from None
        if isinstance(ball, TableBall) and ball.dimension > MOST_FREE_CELLS:
            laplace = LaplaceMechanism.calibrate(space, budget)
            laplace_loss = f"{laplace.expected_l2:.4g}"
            knorm_loss = f"{mechanism.expected_l2:.4g}"
            raise Refused(
                f"k-norm draws two-way tables of at most {MOST_FREE_CELLS} free cells and this one"
                f" has {ball.dimension}: use laplace, with an expected loss of"
                f" {laplace_loss} where k-norm would have about {knorm_loss}"
            )
        return mechanism

    def reporting(self, progress: Progress) -> Self:
        """Return a copy that reports the progress of a long draw."""
        return evolve(self, progress=progress)

    @cached_property
    def placed_ball(self) -> PlacedBall:
        """The ball K and its place in the table."""
        return place_ball(self.space)

    @property
    def rate(self) -> Fraction:
        """ε, divided by how many times the ball contains the space."""
        return self.epsilon / self.placed_ball.stretch

    @property
    def scale(self) -> float:
        """One over the rate, rounded up."""
        return round_up(1 / self.rate)

    @property
    def variance(self) -> float:
        """The expected squared loss for each free direction of the table."""
        moment = noise_moment(self.placed_ball.ball, self.rate)
        roundings = float(self.placed_ball.rounding_counts.sum())
        total = moment + _ROUNDING * roundings
        return total / self.space.dimension

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε, in ideal arithmetic."""
        return approximate(self.epsilon)

    def under(self, adjacency: Adjacency) -> Guarantee:
        """Return the guarantee that follows from the pairs alone: f∘…∘f for any a records, and
        the same f for fewer pairs.
        """
        mine = self.guarantee
        same_curve = Guarantee(mine.dataspace, adjacency, mine.tradeoff)
        if adjacency == mine.adjacency or mine.covers(same_curve):
            return same_curve
        if mine.adjacency.steps(adjacency) is None:
            raise Refused(
                "what k-norm noise guarantees for more pairs is not known: calibrate it for them"
            )
        return mine.for_any_records(adjacency.a, adjacency.protection)

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error of each cell."""
        noise = self.gain * self.placed_ball.ball.variances()
        squares = noise + _ROUNDING * self.placed_ball.rounding_counts
        return np.sqrt(self.placed_ball.place(squares).astype(np.float64))

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of cells."""
        inner = self.placed_ball.take(cell_weights(weights, self.space))
        rounding = (self.placed_ball.rounding_coefficients(inner) ** 2).sum()
        noise = self.gain * self.placed_ball.ball.spread(inner)
        return math.sqrt(noise + _ROUNDING * float(rounding))

    @cached_property
    def unrounded_variance(self) -> float | None:
        """Variance before rounding in every free direction of the table; None if directions
        differ.

        Two-way tables with both totals published, and rows of equal length with published totals,
        allow no other covariance by their symmetry. Rows of unequal length and listed moves have
        directions that differ.

        >>> from semidp.promise.mechanisms.examples import two_way
        >>> mechanism = KNormMechanism.calibrate(two_way()[0], Budget.pure(1))
        >>> mechanism.unrounded_variance < mechanism.variance
        True
        """
        if isinstance(self.placed_ball, PlacedList):
            return None
        variance = noise_moment(self.placed_ball.ball, self.rate) / self.space.dimension
        # Two quadratic forms that agree at random points are the same; the points are always these.
        shape = (_PROBES, *self.space.shape)
        for probe in np.random.default_rng(0).normal(size=shape):
            centred = self.space.project(probe)
            inner = self.placed_ball.take(centred)
            spread = self.gain * self.placed_ball.ball.spread(inner)
            equal_spread = variance * float((centred**2).sum())
            if not math.isclose(spread, equal_spread, rel_tol=1e-6):
                return None
        return variance

    def rounding_terms(self, weights: ArrayLike) -> NDArray[np.float64]:
        """Coefficients of the rounding errors in a weighted sum of cells, each times the root of
        1/12.

        The covariance that rounding adds to two sums is the product of their coefficients.
        """
        inner = self.placed_ball.take(cell_weights(weights, self.space))
        return math.sqrt(_ROUNDING) * self.placed_ball.rounding_coefficients(inner)

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw whole noise with zero margins."""
        source = generator(randomness)
        drawn = knorm_noise(self.placed_ball.ball, self.rate, count, source, self.progress)
        return self.placed_ball.place(self.placed_ball.round_point(drawn)).astype(np.int64)

    @property
    def gain(self) -> float:
        """``E r²``: what turns moments of the uniform point into those of the noise."""
        # r is Gamma(s + 1) and not Gamma(s), since U is uniform in K and not on its boundary.
        s = self.placed_ball.ball.dimension
        return (s + 1) * (s + 2) * self.scale**2
