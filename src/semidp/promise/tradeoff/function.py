"""What a tradeoff function can do: evaluate, group, compose, convert to (epsilon, delta), and
compare.

The families live next to this file (smooth, polygons, composition). Which pairs of datasets a curve
protects is the business of guarantees.
"""

import enum
import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import least
from semidp.promise.documents import Encodable
from semidp.promise.exact import Number, exact, nonnegative, round_up

Floats = npt.NDArray[np.float64]
ROUNDOFF = 2.0**-52
"""Spacing of floats at 1: every rounding margin is a multiple of it."""

SMALLEST, LARGEST = Fraction(1, 10**100), Fraction(10**15)
"""The range of privacy parameters other than 0: beyond it nothing is protected, or nothing is
lost."""

_TIE = 1e-9
_CLOSE = 1e-12  # where fast deltas are too close to call, and slow ones decide


class Order(enum.Enum):
    """How one curve compares with another; "stronger" means more private: pointwise at least as
    high.

    >>> Order.STRONGER.reverse()
    <Order.WEAKER: 'weaker'>
    """

    EQUAL = "equal"
    STRONGER = "stronger"
    WEAKER = "weaker"
    NOT_COMPARABLE = "not comparable"

    def reverse(self) -> "Order":
        """Return the same statement seen from the other side.

        >>> Order.EQUAL.reverse()
        <Order.EQUAL: 'equal'>
        """
        return {Order.STRONGER: Order.WEAKER, Order.WEAKER: Order.STRONGER}.get(self, self)

    @classmethod
    def from_comparison(cls, below: bool, above: bool) -> "Order":
        """Return the order of a curve that is below another somewhere (`below`) or above it
        (`above`).

        >>> Order.from_comparison(below=True, above=True)
        <Order.NOT_COMPARABLE: 'not comparable'>
        """
        if below and above:
            return cls.NOT_COMPARABLE
        return cls.WEAKER if below else cls.STRONGER if above else cls.EQUAL


class Tradeoff(Encodable, ABC):
    """A tradeoff function f: nondecreasing, convex, continuous, ``f(x) <= x``.

    ``f(alpha)`` is the smallest type II error of a test between two datasets at type I error
    ``1 - alpha`` (Cho and Awan, Section 2; Dong, Roth and Su 2022 use ``alpha`` for the type I
    error). Values are never above the true curve and claims (`delta`, `epsilon`) never below the
    true number, whatever the rounding.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> curve: Tradeoff = gaussian(1)
    >>> round(1 - curve(0.95), 3), curve.group(3), round(curve.epsilon("1e-9"), 3)
    (0.26, Gaussian(mu_squared=Fraction(9, 1)), 6.174)
    >>> curve(float("nan"))
    Traceback (most recent call last):
    semidp.errors.InputError: alpha must lie between 0 and 1
    """

    def __call__(self, alpha: npt.ArrayLike) -> Any:
        """Return ``f(alpha)``, a float or an array of the shape of `alpha`, rounded down."""
        array = np.asarray(alpha, dtype=np.float64)
        if not np.all((array >= 0) & (array <= 1)):
            raise InputError("alpha must lie between 0 and 1")
        values = array
        if not self.is_trivial:
            # f(x) <= x: two datasets are never harder to tell apart than equal ones
            values = np.clip(self._values(array), 0.0, array)
        return float(values) if np.ndim(alpha) == 0 else values

    @abstractmethod
    def group(self, k: int) -> "Tradeoff":
        """Return the curve for k records, ``f∘…∘f`` k times (Cho and Awan, Section 2.2)."""

    def delta(self, epsilon: Number) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows, rounded up.

        ``delta(eps) = sup_a [1 - e^eps (1 - a) - f(a)]``, the duality of Dong, Roth and Su (2022).
        """
        e = nonnegative(epsilon, "epsilon")
        return 0.0 if self.is_trivial else min(self._delta(e), 1.0)

    def epsilon(self, delta: Number) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows, rounded up; infinity if
        there is none.
        """
        target = proportion(delta, "delta")
        if target == 1 or self.is_trivial:
            return 0.0
        # delta(epsilon) is 0 only where pure DP holds, which no search over floats shows
        if target == 0:
            pure = self.implied_epsilon()
            return math.inf if pure is None else round_up(pure)
        return read_up(least(lambda epsilon: self.delta(Fraction(epsilon)) <= target))

    def compose(self, *others: "Tradeoff") -> "Tradeoff":
        """Return ``f ⊗ g ⊗ …``, the curve of all mechanisms together.

        Closed form among Gaussians and wherever zCDP meets a curve that implies zCDP; privacy-loss
        distributions otherwise.
        """
        from semidp.promise.tradeoff.composition import compose

        return compose(self, *others)

    def symmetric(self) -> "Tradeoff":
        """Return the curve that holds for both orders of a pair: ``max(f, f^-1)``.

        Adjacency is symmetric, so nothing is lost, and often something is gained.
        """
        return self

    def __ge__(self, other: "Tradeoff") -> bool:
        """Whether this curve is nowhere lower than `other`: at least as private. False if they
        cross.
        """
        return self.compare(other) in (Order.EQUAL, Order.STRONGER)

    def __gt__(self, other: "Tradeoff") -> bool:
        """Whether this curve is nowhere lower than `other` and somewhere higher: more private."""
        return self.compare(other) is Order.STRONGER

    def compare(self, other: "Tradeoff") -> Order:
        """Return the pointwise order of this curve and `other`.

        Exact within a family. Between families the curves are compared through delta(epsilon) on a
        grid that reaches into the far tails and holds every kink; differences below one part in
        10^9 are ignored.
        """
        if self == other:
            return Order.EQUAL
        grid = np.union1d(self._landmarks(), other._landmarks())
        below = above = False
        sides = zip(self._sides(other), other._sides(self), strict=True)
        for ours, theirs in sides:
            mine, yours = ours._deltas(grid), theirs._deltas(grid)
            tolerance = _CLOSE + _CLOSE * np.maximum(mine, yours)
            # fast values may be less tight: those that nearly tie are computed tightly
            for i in np.flatnonzero(np.abs(mine - yours) <= tolerance):
                epsilon = Fraction(grid[i])
                mine[i], yours[i] = ours.delta(epsilon), theirs.delta(epsilon)
            below = below or bool(np.any(mine > yours * (1 + _TIE)))
            above = above or bool(np.any(yours > mine * (1 + _TIE)))
        return Order.from_comparison(below, above)

    def implied_rho(self) -> Fraction | None:
        """Return an exact rho such that rho-zCDP follows, or None if none is known."""
        return Fraction(0) if self.is_trivial else None

    def implied_mu_squared(self) -> Fraction | None:
        """Return the exact square of a mu such that mu-GDP follows, or None if none is known."""
        return Fraction(0) if self.is_trivial else None

    def implied_epsilon(self) -> Fraction | None:
        """Return an exact epsilon such that pure epsilon-DP follows, or None if none is
        known.
        """
        return Fraction(0) if self.is_trivial else None

    @property
    def is_symmetric(self) -> bool:
        """Whether the curve is its own inverse."""
        return True

    @property
    def is_trivial(self) -> bool:
        """Whether ``f(x) = x``: the two datasets cannot be told apart at all."""
        return False

    @abstractmethod
    def _values(self, alpha: Floats) -> Floats:
        """`__call__` of a nontrivial curve, before cutting at 0 and `alpha`."""

    @abstractmethod
    def _delta(self, epsilon: Fraction) -> float:
        """`delta` of a nontrivial curve, perhaps above 1."""

    @abstractmethod
    def _landmarks(self) -> Floats:
        """Epsilons (>= 0) at which a comparison should look: all kinks, and far into the tail."""

    def _deltas(self, epsilons: Floats) -> Floats:
        """`delta` for many epsilons >= 0: as safe, perhaps a little less tight, and fast."""
        exact_epsilons = [Fraction(float(epsilon)) for epsilon in epsilons]
        return np.array([self.delta(epsilon) for epsilon in exact_epsilons])

    @property
    def _reflection(self) -> "Tradeoff":
        """The curve with the two datasets exchanged."""
        return self

    def _sides(self, other: "Tradeoff") -> tuple["Tradeoff", ...]:
        both = not (self.is_symmetric and other.is_symmetric)
        return (self, self._reflection) if both else (self,)


def read_up(x: float) -> float:
    """Return the next float, so a number found by search is valid both exactly and as its printed
    digits.

    >>> read_up(1.0), read_up(0.0)
    (1.0000000000000002, 0.0)
    """
    return math.nextafter(x, math.inf) if x else x


def strength(value: Number, name: str) -> Fraction:
    """Return a privacy parameter as an exact fraction: 0, or within the range of the arithmetic.

    >>> strength("1e300", "epsilon")
    Traceback (most recent call last):
    semidp.errors.InputError: epsilon must be 0 or lie between 1e-100 and 1e15
    """
    number = nonnegative(value, name)
    if number and not SMALLEST <= number <= LARGEST:
        raise InputError(f"{name} must be 0 or lie between 1e-100 and 1e15")
    return number


def exp_down(epsilons: Floats) -> Floats:
    """Return e^epsilon, rounded down and at most 1e307: a smaller factor gives a larger delta.

    >>> exp_down(np.array([0.0, 1e6])) <= np.array([1.0, 1e307])
    array([ True,  True])
    """
    with np.errstate(over="ignore"):
        rounded_down = np.exp(epsilons) * (1 - 8 * ROUNDOFF)
    return np.minimum(rounded_down, 1e307)


def proportion(value: Number, name: str) -> Fraction:
    """Return `value` as an exact fraction in [0, 1], or refuse.

    >>> proportion(2, "delta")
    Traceback (most recent call last):
    semidp.errors.InputError: delta must lie between 0 and 1, not 2
    """
    number = exact(value, name)
    if not 0 <= number <= 1:
        raise InputError(f"{name} must lie between 0 and 1, not {value}")
    return number


def group_size(k: int) -> int:
    """Return `k` as a whole number of at least 1, or refuse.

    >>> group_size(0)
    Traceback (most recent call last):
    semidp.errors.InputError: a group must have 1 or more records, not 0
    """
    if isinstance(k, bool) or int(k) != k or k < 1:
        raise InputError(f"a group must have 1 or more records, not {k}")
    return int(k)


def pure_rho(epsilon: Fraction) -> Fraction:
    """Return a rho such that pure epsilon-DP implies rho-zCDP: ``min(epsilon^2/2, epsilon)``.

    The first by Bun and Steinke (2016); the second because no Rényi divergence exceeds epsilon.

    >>> pure_rho(Fraction(1, 2)), pure_rho(Fraction(3))
    (Fraction(1, 8), Fraction(3, 1))
    """
    return min(epsilon**2 / 2, epsilon)


def tail(reach: float) -> Floats:
    """Return epsilons from 0 to `reach`, close together at both small and large values.

    >>> tail(4.0)[[0, -1]]
    array([0., 4.])
    """
    if not math.isfinite(reach) or reach <= 0:
        return np.array([0.0])
    even = np.linspace(0.0, reach, 129)
    return np.union1d(even, np.geomspace(reach * 1e-6, reach, 65))
