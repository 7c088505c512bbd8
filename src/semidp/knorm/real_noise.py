"""K-norm noise on the real numbers: a radius times a uniform point of a ball.

The radius is what makes it private; how much of it, and on which grid it is published, is decided in `mechanisms`.
"""

from fractions import Fraction

from numpy.random import Generator

from semidp.exact import down
from semidp.knorm.closed import Ball, Floats, second_moment
from semidp.progress import Progress, silent


def knorm_noise(ball: Ball, epsilon: Fraction, size: int, generator: Generator, progress: Progress = silent) -> Floats:
    """Draw noise with density ``∝ exp(-ε ||v||_K)`` on the span of K.

    ``v = r U`` with U uniform in K and r ~ Gamma(s+1, rate ε), s the dimension of the span (Cho and Awan, Algorithm 3;
    Hardt and Talwar 2010, Remark 4.2). A neighbour's value is at most one away in the K-norm, so the noise satisfies
    pure ε, in ideal arithmetic.

    Examples
    --------
    >>> import numpy as np
    >>> from semidp.knorm import PairBall
    >>> knorm_noise(PairBall(3), Fraction(1, 2), 4, np.random.default_rng(0)).shape
    (4, 2, 3)
    """
    points = ball.uniform(size, generator, progress)
    return _scaled(points, generator.standard_gamma(ball.dimension + 1, size), epsilon)


def published_noise(
    ball: Ball, epsilon: Fraction, size: int, generator: Generator, progress: Progress = silent
) -> Floats:
    """Draw the noise behind the paper's K-norm figure, radius Gamma(s, rate ε): **not private for any ε**.

    With a uniform point of K this density is ``∝ ∫_{ε||v||}^∞ e^-x / x dx``, unbounded at 0: seeing a value that a
    dataset could have without noise convicts it. Kept to reproduce the figure; see `docs/errata.md`.

    Examples
    --------
    >>> import numpy as np
    >>> from semidp.knorm import PairBall
    >>> published_noise(PairBall(3), Fraction(1, 2), 4, np.random.default_rng(0)).shape
    (4, 2, 3)
    """
    points = ball.uniform(size, generator, progress)
    return _scaled(points, generator.standard_gamma(ball.dimension, size), epsilon)


def noise_moment(ball: Ball, epsilon: Fraction) -> float:
    """Return ``E||v||² = (s+1)(s+2) E||U||² / ε²`` of K-norm noise.

    >>> from semidp.knorm import PairBall
    >>> round(noise_moment(PairBall(2), Fraction(1)), 9)
    8.0
    """
    s = ball.dimension
    return (s + 1) * (s + 2) * second_moment(ball) / down(epsilon) ** 2


def _scaled(points: Floats, radii: Floats, epsilon: Fraction) -> Floats:
    return points * (radii / down(epsilon)).reshape(-1, *[1] * (points.ndim - 1))
