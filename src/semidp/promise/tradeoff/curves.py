"""Functions that make tradeoff curves: Gaussian, (epsilon, delta), zCDP, Laplace, and what JSON
holds.
"""

from semidp.promise.exact import Number, nonnegative
from semidp.promise.tradeoff.function import proportion
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian, Laplace


def gaussian(mu: Number) -> Gaussian:
    """Return ``G_mu(a) = Phi(Phi^-1(a) - mu)``, mu-GDP (Dong, Roth and Su 2022).

    >>> gaussian(1).group(3) == gaussian(3), round(gaussian(1).delta(1), 6)
    (True, 0.126937)
    """
    return Gaussian(nonnegative(mu, "mu") ** 2)


def approximate(epsilon: Number, delta: Number = 0) -> Approximate:
    """Return the curve of (epsilon, delta)-DP.

    >>> approximate(1, "1/1024").delta(1), approximate(1, "1/1024").epsilon("1/1024")
    (0.0009765625, 1.0)
    >>> approximate(-1)
    Traceback (most recent call last):
    semidp.errors.InputError: epsilon must be 0 or more, not -1
    """
    return Approximate(nonnegative(epsilon, "epsilon"), proportion(delta, "delta"))


def zcdp(rho: Number) -> ZCDP:
    """Return the best proven curve of rho-zCDP, with rho kept exact.

    >>> zcdp("2.56").group(2).rho, round(zcdp("10.24").epsilon("1e-10"), 4)
    (Fraction(256, 25), 39.8226)
    """
    return ZCDP(nonnegative(rho, "rho"))


def laplace(epsilon: Number) -> Laplace:
    """Return the curve of Laplace noise of scale 1/epsilon on one number of sensitivity 1.

    >>> laplace(1).compare(approximate(1)).name
    'STRONGER'
    """
    return Laplace(nonnegative(epsilon, "epsilon"))
