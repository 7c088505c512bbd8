"""The ball of tables with both margins published: K = hull(S_2) or hull(S_3), three levels or more
on both sides.

Its norm by closed form (three rows) or by linear program (`knorm_polar`), and its uniform point by
rejection from an l1 envelope; second moments are known before anything is drawn. Exchanges of a
table with one published side and two levels on a side have the ball of a table with one more row.
"""

import math
from functools import cached_property

import numpy as np
from attrs import frozen
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.knorm_balls import PairBall, root_directions
from semidp.promise.mechanisms.knorm_polar import MARGIN, TablePolar, half_l1
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats

# A smooth fit to Monte Carlo runs like those of `benchmarks/knorm.py`, at 29 sizes (a = 2: up to 12
# x 12 and 3 x 61) and 28 sizes (a = 3: up to 12 x 12 and 3 x 31): log(E||v||² / s) in powers of x =
# 1/rows and y = 1/columns: 1, x+y, xy, x²+y², xy(x+y), x³+y³, x²y²
_COEFFICIENTS = {
    2: (3.5831, -2.3072, -7.5619, 2.9663, 21.2484, -3.9712, -55.236),
    3: (4.0489, 0.6753, -12.1659, -3.488, -1.8561, -2.2446, 57.7566),
}


def table_moment(rows: int, columns: int, a: int) -> float:
    """Return E||v||² at epsilon = 1 for r x c tables under A_2 or A_3, three levels or more on both
    sides.

    At seven sizes that were not fitted it was within 0.6 percent of a = 2 runs of 0.2 to 0.5
    percent Monte Carlo error, and within 1.9 percent of a = 3 runs of 0.2 to 1.4 percent. Beyond
    121 free cells it extrapolates.

    >>> round(table_moment(3, 3, a=2)), round(table_moment(4, 4, a=3))
    (47, 241)
    """
    x, y = 1 / rows, 1 / columns
    product = x * y
    linear = (1.0, x + y, product)
    squares = (x * x + y * y, product * (x + y))
    powers = (*linear, *squares, x**3 + y**3, product**2)
    terms = []
    for coefficient, power in zip(_COEFFICIENTS[a], powers, strict=True):
        terms.append(coefficient * power)
    logarithm = sum(terms)
    return (rows - 1) * (columns - 1) * math.exp(logarithm)


# beyond it a point takes long: 12 x 12 takes a tenth of a second, 3 x 61 a few seconds
MOST_FREE_CELLS = 121
_BATCH = 1 << 18  # numbers in a batch of proposals


@frozen(slots=False)
class TableBall:
    """K = hull(S_a) for r x c tables, 3 <= r <= c, under A_2 (four-cell moves) or A_3 (three-cycles
    as well).

    The norm is ``min Σ_{i<k} N(w_ik)`` over ways to write row i as ``Σ_k w_ik`` with
    ``w_ki = -w_ik`` (for a = 3, plus weights of three-cycles); its dual is ``max <V, W>`` over W
    whose row differences ``W_i - W_k`` all have range at most one (and whose three-cycles are at
    most one). The three-cycles are missing in the paper: `docs/errata.md`.

    Examples
    --------
    A three-cycle needs two four-cell moves, and is one move under A_3:

    >>> cycle = np.array([[[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]]])
    >>> TableBall(3, 3, a=2).norm(cycle), TableBall(3, 3, a=3).norm(cycle)
    (array([2.]), array([1.]))
    >>> TableBall(4, 5, a=3).uniform(2, np.random.default_rng(0)).shape
    (2, 4, 5)
    """

    rows: int
    columns: int
    a: int

    def __attrs_post_init__(self) -> None:
        has_sides = 3 <= self.rows <= self.columns
        if not has_sides or self.a not in (2, 3):
            raise InputError(
                f"a ball of tables needs 3 <= rows <= columns and a = 2 or 3, not {self}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def dimension(self) -> int:
        """Free cells: all but one row and one column."""
        return (self.rows - 1) * (self.columns - 1)

    def norm(self, points: Floats) -> Floats:
        """Return the K-norm of each table of a batch, to nine digits and never too small."""
        values = self._formula(points)
        if values is not None:
            return values
        upper = [self._polar.norm(point)[1] for point in points]
        return np.array(upper)

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Decide for each table of a batch whether it lies in K; every answer is proved for the
        floats as given.
        """
        values = self._formula(points)
        if values is None:
            return np.array([self._polar.contains(point) for point in points], dtype=bool)
        result = values <= 1
        # Rounding could put these points on either side of the boundary.
        for i in np.flatnonzero(np.abs(values - 1) < MARGIN):
            result[i] = self._polar.contains_exactly(points[i])
        return result

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return independent uniform points of K, by rejection.

        By symmetry let the last row be the longest. Then ``Σ_{i<r} N(V_i) <= a (r-1)/r`` on K: draw
        the other rows uniformly from that envelope (Dirichlet radii times root directions), keep
        what passes the screens and lies in K, and exchange the last row with a row at random.
        """
        points = np.empty((size, *self.shape))
        done = 0
        while done < size:
            proposals = self._proposals(generator)
            while len(proposals) and done < size:
                part, proposals = np.split(proposals, [size - done])
                part = part[self.contains(part)]
                points[done : done + len(part)] = part
                done += len(part)
            progress("drawing uniform points", done, size)
        place = generator.integers(self.rows, size=size)
        everyone = np.arange(size)
        longest = points[:, -1].copy()
        points[:, -1] = points[everyone, place]
        points[everyone, place] = longest
        return points

    def variances(self) -> Floats:
        """Return the variance of each cell: all alike."""
        return np.full(self.shape, self._second_moment / (self.rows * self.columns))

    def spread(self, weights: Floats) -> float:
        """Return ``E||U||² ||P w||² / s``: the symmetry in rows and columns allows no other
        covariance.
        """
        centred = weights - weights.mean(axis=0)
        centred = centred - centred.mean(axis=1, keepdims=True)
        return float(self._second_moment * (centred**2).sum() / self.dimension)

    @cached_property
    def _polar(self) -> TablePolar:
        return TablePolar(self.rows, self.columns, self.a)

    @property
    def _second_moment(self) -> float:
        """``E ||U||²``, from a fit: see `table_moment` for its error."""
        s = self.dimension
        noise_moment = table_moment(self.rows, self.columns, self.a)
        return noise_moment / ((s + 1) * (s + 2))

    def _formula(self, points: Floats) -> Floats | None:
        return _three_rows(points, self.a) if self.rows == 3 else None

    def _proposals(self, generator: Generator) -> Floats:
        """Draw one batch from the envelope and return what passes every cheap necessary condition.

        On K every row and every column has N <= 1, and the N(V_i) add up to at most a. The last row
        is the longest, so the longest of the others plus their sum is at most a: most proposals end
        here, before a direction is drawn.
        """
        rows, columns = self.shape
        count = _BATCH // rows
        radii = generator.standard_gamma(columns - 1, (count, rows - 1))
        slack = generator.standard_exponential(count)
        envelope = self.a * (rows - 1) / rows
        radii *= envelope / (radii.sum(axis=1) + slack)[:, None]
        longest = radii.max(axis=1)
        room = np.minimum(self.a - radii.sum(axis=1), 1.0)
        keep = longest <= room
        radii = radii[keep]
        longest, room = longest[keep], room[keep]
        points = np.empty((len(radii), rows, columns))
        flat_directions = root_directions(radii.size, columns, generator)
        directions = flat_directions.reshape(-1, rows - 1, columns)
        points[:, :-1] = radii[:, :, None] * directions
        other_rows = points[:, :-1]
        points[:, -1] = -other_rows.sum(axis=1)
        length = half_l1(points[:, -1])
        points = points[(longest <= length) & (length <= room)]
        # N of a column is half of its l1 norm.
        column_sums = np.abs(points).sum(axis=1)
        return np.asarray(points[(column_sums <= 2).all(axis=1)])


@frozen(slots=False)
class ExchangeBall:
    """K = hull(S) of exchanges where one side of a table is published: two rows, or two columns.

    An exchange is ``e_ib - e_ia + e_jc - e_jb``. One more row that takes what the columns gain
    turns it into a cycle through that row, or into a four-cell move: exactly the moves of three
    records in tables with both sides published, but for the three-cycles that miss that row, and
    with two rows or two columns there are none.

    Examples
    --------
    >>> ball = ExchangeBall(2, 3)
    >>> ball.norm(np.array([[[-1.0, 1, 0], [0, -1, 1]], [[-1, 1, 0], [-1, 1, 0]]]))
    array([1., 2.])
    >>> ball.uniform(5, np.random.default_rng(0)).shape
    (5, 2, 3)
    """

    rows: int
    columns: int

    def __attrs_post_init__(self) -> None:
        if min(self.shape) != 2:
            raise InputError(
                f"the ball of exchanges is known for two rows or two columns, not for {self}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def dimension(self) -> int:
        """Free cells: all but one in each row."""
        return self.rows * (self.columns - 1)

    @cached_property
    def extended_ball(self) -> PairBall | TableBall:
        """The ball of tables with one more row; on its side where there are two columns."""
        if self.columns == 2:
            return PairBall(self.rows + 1)
        return TableBall(3, self.columns, 3)

    def norm(self, points: Floats) -> Floats:
        """Return the norm of the tables with one more row."""
        last_row = -points.sum(axis=1, keepdims=True)
        tables = np.concatenate([points, last_row], axis=1)
        return self.extended_ball.norm(self._transpose_points(tables))

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return uniform points: those of the tables with one more row, without it."""
        points = self.extended_ball.uniform(size, generator, progress)
        return self._transpose_points(points)[:, :-1]

    def variances(self) -> Floats:
        """Return the variance of each cell."""
        return self._transpose_points(self.extended_ball.variances())[:-1]

    def spread(self, weights: Floats) -> float:
        """Return ``E <weights, U>²``."""
        last_row = np.zeros((1, self.columns))
        tables = np.concatenate([weights, last_row])
        return self.extended_ball.spread(self._transpose_points(tables))

    def _transpose_points(self, points: Floats) -> Floats:
        if self.columns != 2:
            return points
        return np.asarray(np.swapaxes(points, -1, -2))


def _three_rows(points: Floats, a: int) -> Floats:
    """Return the norm of 3 x c tables.

    a = 2: one free flow w, ``min N(w) + N(V_1 - w) + N(V_2 + w)`` with ``Σw = 0``: in each column
    the median of 0, V_1j and -V_2j is cheapest, and making their sum zero costs half of it. a = 3:
    the longest row or column.
    """
    if a == 3:
        sizes = np.abs(points)
        longest_row = sizes.sum(axis=-1).max(axis=-1)
        longest_column = sizes.sum(axis=-2).max(axis=-1)
        return np.asarray(np.maximum(longest_row, longest_column) / 2)
    first, second = points[..., 0, :], points[..., 1, :]
    stacked = np.stack([np.zeros_like(first), first, -second])
    low, median, high = np.sort(stacked, axis=0)
    ranges = (high - low).sum(axis=-1)
    return np.asarray((ranges + np.abs(median.sum(axis=-1))) / 2)
