"""What a ball is, and K-norm noise on the real numbers from it: a radius times a uniform point.

The radius is what makes the noise private; how much of it, and on which grid it is published, is
decided in `mechanisms`.
"""

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp.promise.exact import round_down
from semidp.promise.progress import Progress, silent

Floats = NDArray[np.float64]
# pilots draw from their own stream: they see neither the data nor the randomness of a release
_PILOT_SEED = 20


class NormBall(Protocol):
    """The unit ball K of a norm on the space of `shape` arrays that it spans."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a point."""

    @property
    def dimension(self) -> int:
        """Dimension s of the span."""

    def norm(self, points: Floats) -> Floats:
        """Return the K-norm of each point of a batch."""

    def uniform(self, size: int, generator: Generator, progress: Progress = silent) -> Floats:
        """Return `size` independent uniform points of K."""

    def variances(self) -> Floats:
        """Return the variance of each coordinate of a uniform point."""

    def spread(self, weights: Floats) -> float:
        """Return ``E <weights, U>²`` for a uniform point U."""


def pilot() -> Generator:
    """Return the generator of every pilot study: always the same, so that what is announced never
    varies.

    >>> int(pilot().integers(10**9)) == int(pilot().integers(10**9))
    True
    """
    return np.random.default_rng(_PILOT_SEED)


def second_moment(ball: NormBall) -> float:
    """Return ``E ||U||²`` for a uniform point U of the ball.

    >>> from semidp.promise.mechanisms.knorm.closed import PairBall
    >>> second_moment(PairBall(2))
    1.3333333333333333
    """
    return float(ball.variances().sum())


def knorm_noise(
    ball: NormBall, epsilon: Fraction, size: int, generator: Generator, progress: Progress = silent
) -> Floats:
    """Draw noise with density ``∝ exp(-ε ||v||_K)`` on the span of K.

    ``v = r U`` with U uniform in K and r ~ Gamma(s+1, rate ε), s the dimension of the span (Cho and
    Awan, Algorithm 3; Hardt and Talwar 2010, Remark 4.2). A neighbour's value is at most one away
    in the K-norm, so the noise satisfies pure ε, in ideal arithmetic.

    Examples
    --------
    >>> from semidp.promise.mechanisms.knorm.closed import PairBall
    >>> knorm_noise(PairBall(3), Fraction(1, 2), 4, np.random.default_rng(0)).shape
    (4, 2, 3)
    """
    points = ball.uniform(size, generator, progress)
    # The rate is rounded down, so that the noise is never narrower than the claim needs.
    radii = generator.standard_gamma(ball.dimension + 1, size) / round_down(epsilon)
    # one radius for each point, whatever the shape of the points
    other_axes = [1] * (points.ndim - 1)
    return points * radii.reshape(-1, *other_axes)


def noise_moment(ball: NormBall, epsilon: Fraction) -> float:
    """Return ``E||v||² = (s+1)(s+2) E||U||² / ε²`` of K-norm noise.

    >>> from semidp.promise.mechanisms.knorm.closed import PairBall
    >>> round(noise_moment(PairBall(2), Fraction(1)), 9)
    8.0
    """
    s = ball.dimension
    radius_moment = (s + 1) * (s + 2)
    return radius_moment * second_moment(ball) / round_down(epsilon) ** 2
