"""Mechanisms for pure budgets: projected Laplace, l2 in the subspace, and the optimal K-norm, K =
hull(S_a).

Laplace adds exact whole numbers cell by cell. The other two are real-valued by nature, so that
their claims are those of ideal arithmetic; what they release is rounded to whole numbers. The ball
of the K-norm is in `mechanisms.knorm`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.exact import round_up, sqrt_up
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.knorm.placed_balls import (
    PlacedBall,
    PlacedList,
    place_ball,
)
from semidp.promise.mechanisms.knorm.polar import knorm_noise, noise_moment
from semidp.promise.mechanisms.knorm.table import MOST_FREE_CELLS, TableBall
from semidp.promise.mechanisms.mechanism import (
    CellByCell,
    ClaimKind,
    Mechanism,
    cell_weights,
    check_scale,
    require_epsilon,
    root_up,
)
from semidp.promise.noise.distributions import DiscreteLaplace
from semidp.promise.noise.randomness import Randomness, generator, uniforms
from semidp.promise.progress import Progress, silent
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.curves import approximate
from semidp.promise.tradeoff.function import Tradeoff

_PROBES = 8  # points at which two covariances are compared
_ROUNDING = 1 / 12


class PureMechanism(Mechanism):
    """A mechanism that satisfies pure ε."""

    budget_kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")


@dataclass(frozen=True, eq=False)
class LaplaceMechanism(CellByCell, PureMechanism):
    """Discrete Laplace noise ``P(k) ∝ exp(-|k|/b)`` in every cell, then projection: pure ε with
    ``ε = Δ1/b``.

    Parameters
    ----------
    b
        The scale of the noise, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = LaplaceMechanism.calibrate(space, Budget.pure("0.5"))
    >>> mechanism.b, mechanism.guarantee.tradeoff.epsilon(0)
    (Fraction(8, 1), 0.5)
    >>> LaplaceMechanism.calibrate(space, Budget.zcdp("0.5"))
    Traceback (most recent call last):
    semidp.errors.Refused: laplace cannot satisfy a zcdp budget (it can: pure, approximate): use
    gaussian or lattice
    """

    scale_powers: ClassVar[Mapping[str, int]] = {"b": 1}

    b: Fraction

    name: ClassVar[str] = "laplace"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ1/ε``; a δ in the budget is not used."""
        cls.check_request(space, budget)
        b = Fraction(space.l1) / require_epsilon(budget)
        check_scale(b * b)
        return cls(space, b)

    @cached_property
    def sampler(self) -> DiscreteLaplace:
        """The distribution of the noise in one cell."""
        return DiscreteLaplace(self.b)

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return round_up(self.b)

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ1/b``, exact."""
        return approximate(Fraction(self.space.l1) / self.b)


@dataclass(frozen=True, eq=False)
class L2Mechanism(PureMechanism):
    """Noise of density ``∝ exp(-‖v‖/b)`` on the subspace: pure ε with ``ε = Δ2/b``.

    The length is Gamma(s) times b and the direction uniform in the subspace of dimension s, so that
    ``E‖v‖² = b² s(s+1)``. Rounding each cell to a whole number adds about 1/12 to the variance,
    which the errors include.

    Parameters
    ----------
    b2
        The square of the scale b, exact.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = L2Mechanism.calibrate(space, Budget.pure(1))
    >>> mechanism.scale, round(mechanism.expected_l2, 4)  # √(2 (4·3 + 1/12))
    (2.0, 4.916)
    >>> mechanism.apply(table).noisy.dtype
    dtype('int64')
    """

    scale_powers: ClassVar[Mapping[str, int]] = {"b2": 2}

    b2: Fraction

    name: ClassVar[str] = "l2"
    claim: ClassVar[ClaimKind] = "ideal"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ2/ε``; a δ in the budget is not used."""
        cls.check_request(space, budget)
        b2 = Fraction(space.l2_squared) / require_epsilon(budget) ** 2
        return cls(space, check_scale(b2))

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return root_up(self.b2)

    @property
    def variance(self) -> float:
        """``b² (s+1)``, the squared length shared among s dimensions, and 1/12 for the rounding."""
        ideal = self.b2 * (self.space.dimension + 1)
        return float(ideal + Fraction(1, 12))

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ2/b``, rounded up where it is not rational; in ideal arithmetic."""
        return approximate(sqrt_up(Fraction(self.space.l2_squared) / self.b2))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.float64]:
        """Draw a uniform direction in the subspace, and a Gamma(s) length as a sum of
        exponentials.
        """
        # Normals are alike in all directions, and so is their projection within the subspace.
        shape = (count, *self.space.shape)
        normals = scipy.special.ndtri(uniforms(math.prod(shape), randomness))
        directions = self._project(normals.reshape(shape)).reshape(count, -1)
        logarithms = np.log(uniforms(count * self.space.dimension, randomness))
        exponentials = logarithms.reshape(count, -1)
        # a sum of s exponentials is Gamma(s)
        gammas = -self.scale * exponentials.sum(axis=1)
        lengths = gammas / np.linalg.norm(directions, axis=1)
        return np.asarray((directions * lengths[:, None]).reshape(shape))

    def _project(self, tables: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project each table: many small ones by the matrix of the projection, whose columns are
        projected cells.
        """
        cells = math.prod(self.space.shape)
        if cells >= len(tables):
            return np.stack([self.space.project(table) for table in tables])
        units = np.eye(cells).reshape(cells, *self.space.shape)
        columns = np.stack([self.space.project(unit) for unit in units])
        projected = tables.reshape(-1, cells) @ columns.reshape(cells, -1)
        return np.asarray(projected.reshape(tables.shape))


@dataclass(frozen=True, eq=False)
class KNormMechanism(PureMechanism):
    """Noise of density ``∝ exp(-ε ‖v‖_K)`` on the span of S_a, K = hull(S_a): pure ε (Cho and Awan,
    Algorithm 3).

    ``v = r U`` with U uniform in K and ``r ~ Gamma(s + 1, rate ε)``, s = rank(S_a). The noise is
    rounded to whole numbers in coordinates of the tables with zero margins, which is
    post-processing since every table of D_t is whole there. All errors are known before anything is
    drawn: constants of the ball, or a pilot that sees no data, plus the variance of the rounding.

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
        # The ball is placed now, so that what cannot be drawn is refused before noise is drawn.
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
        """Return a copy that reports how far a long draw has come."""
        return replace(self, progress=progress)

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
        """Return what follows from the pairs alone: for any a records f∘…∘f, and for fewer pairs
        the same f.
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
        """Variance before rounding in every free direction of the table; None where directions
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

    def publish(self, noisy: NDArray[Any]) -> NDArray[np.float64]:
        """Return the noisy table as it is: its totals are exact already."""
        return noisy.astype(np.float64)

    @property
    def gain(self) -> float:
        """``E r²``: what turns moments of the uniform point into those of the noise."""
        # r is Gamma(s + 1) and not Gamma(s), since U is uniform in K and not on its boundary.
        s = self.placed_ball.ball.dimension
        return (s + 1) * (s + 2) * self.scale**2
