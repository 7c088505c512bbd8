"""The smooth families: Gaussian(mu), ZCDP(rho) and Laplace(epsilon), each with closed forms for
everything.

Each is closed under grouping: the noise distributions behind them are log-concave (or, for zCDP,
the bound is of that form), so a shift by k records is the same curve with a larger parameter.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy
from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import RealBall, ball, round_ball_up, sharp
from semidp.promise.exact import (
    Number,
    bisection,
    format_rounded_up,
    nonnegative,
    round_down,
    round_up,
    sqrt_up,
)
from semidp.promise.tradeoff.function import (
    LARGEST,
    ROUNDOFF,
    SMALLEST,
    Floats,
    Order,
    Tradeoff,
    group_size,
    pure_rho,
    strength,
    tail,
)
from semidp.promise.tradeoff.polygons import Approximate

_DEEPEST = 37.0  # standard deviations at which a normal tail leaves the range of floats


@frozen(slots=False, order=False)
class OneNumber(Tradeoff):
    """A family with one exact number: the larger it is, the lower the curve, and for 0 it is the
    diagonal.

    A group of k records multiplies the number by k to some `power`.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    power: ClassVar[int]

    @property
    def number(self) -> Fraction:
        """The number, whatever its name."""
        number: Fraction = getattr(self, self.name)
        return number

    def group(self, k: int) -> Self:
        grown_number = self.number * group_size(k) ** self.power
        return evolve(self, **{self.name: grown_number})

    def compare(self, other: Tradeoff) -> Order:
        if isinstance(other, OneNumber) and other.kind == self.kind:
            return Order.from_comparison(self.number > other.number, self.number < other.number)
        return super().compare(other)

    @property
    def is_trivial(self) -> bool:
        return self.number == 0

    def __str__(self) -> str:
        name = self.name.removesuffix("0")
        return f"{type(self).__name__}({name} = {format_rounded_up(self.number)})"


@frozen(order=False)
class Gaussian(OneNumber):
    """``G_mu(a) = Phi(Phi^-1(a) - mu)``, kept by the exact square of mu so that sqrt(6)/sigma needs
    no rounding.

    >>> Gaussian(Fraction(6)).compose(Gaussian(Fraction(3))).group(2)
    Gaussian(mu_squared=Fraction(36, 1))
    >>> print(Gaussian(Fraction(6)))
    Gaussian(mu = 2.44949)
    """

    kind, name, power = "gaussian", "mu_squared", 2
    mu_squared: Fraction

    def __attrs_post_init__(self) -> None:
        square = nonnegative(self.mu_squared, "the square of mu")
        if square and not SMALLEST**2 <= square <= LARGEST**2:
            raise InputError("mu must be 0 or lie between 1e-100 and 1e15")
        object.__setattr__(self, "mu_squared", square)

    @property
    def mu(self) -> Fraction:
        """Return mu: exact if its square is a perfect square, else rounded up by at most 2^-64.

        >>> Gaussian(Fraction(9, 4)).mu
        Fraction(3, 2)
        """
        return sqrt_up(self.mu_squared)

    def _values(self, alpha: Floats) -> Floats:
        z = scipy.special.ndtri(alpha) - round_up(self.mu)
        # ndtri and ndtr err by a few units; an error dz in z multiplies a tail by exp(|z| dz)
        bounded = np.clip(z, -40.0, 40.0)
        margin = 16 * ROUNDOFF * (2 + bounded**2)
        lower = scipy.special.ndtr(z) * (1 - margin)
        upper_tail = scipy.special.ndtr(-z) * (1 + margin)
        upper = np.nextafter(1 - upper_tail, 0.0)
        values = np.where(z < 0, lower, upper)
        return np.where(alpha == 1, 1.0, values)

    def _delta(self, epsilon: Fraction) -> float:
        def profile() -> RealBall:
            e, mu = ball(epsilon), ball(self.mu_squared).sqrt()
            first = _normal_tail(e / mu - mu / 2)
            second = _normal_tail(e / mu + mu / 2)
            return first - e.exp() * second

        return round_ball_up(sharp(profile))

    def __str__(self) -> str:
        return f"Gaussian(mu = {format_rounded_up(self.mu)})"

    def implied_mu_squared(self) -> Fraction:
        return self.mu_squared

    def implied_rho(self) -> Fraction:
        return self.mu_squared / 2

    def _landmarks(self) -> Floats:
        mu = round_up(self.mu)
        return tail(mu * (_DEEPEST + mu / 2))

    def _deltas(self, epsilons: Floats) -> Floats:
        mu = round_up(self.mu)
        if mu == 0:
            return np.zeros(epsilons.shape)
        z = epsilons / mu - mu / 2
        first = scipy.special.ndtr(-z)
        second = np.exp(epsilons + scipy.special.log_ndtr(-z - mu))
        slack = 32 * ROUNDOFF * (1 + z**2) * first
        deltas = (first - second) + slack
        far = z > 0  # both terms share the factor phi(z); without it they cancel less
        y = z[far]
        near_ratio, far_ratio = _mills(y), _mills(y + mu)
        margin = 1 + 8 * ROUNDOFF * (1 + y**2)
        density = np.exp(-(y**2) / 2) / np.sqrt(2 * np.pi) * margin
        # the first term rounded up and the second down: the difference is never too small
        near_up = near_ratio * (1 + 16 * ROUNDOFF)
        far_down = far_ratio * (1 - 16 * ROUNDOFF)
        deltas[far] = density * (near_up - far_down)
        return np.clip(np.nextafter(deltas, np.inf), 0.0, 1.0)


@frozen(slots=False, order=False)
class ZCDP(OneNumber):
    """The best curve that follows from the moment bound behind rho-zCDP; rho stays exact.

    A test of size s has power at most ``exp(-(sqrt(ln 1/s) - sqrt(rho))^2)`` (Hölder's inequality
    at every order), so ``f(a) = max(exp(-(sqrt(ln 1/a) + sqrt(rho))^2), 1 - exp(-(sqrt(ln 1/(1-a))
    - sqrt(rho))^2))``, the second term where ``1 - a <= e^-rho``. Beyond the kink where the two
    meet, its dual is exactly the conversion ``inf over x > 1 of rho x + ln(1/(x delta))/(x-1) +
    ln(1 - 1/x)`` of Canonne, Kamath and Steinke (2020): the best x has
    ``delta = exp(-rho (x-1)^2)/x`` at ``eps = (2x-1) rho + ln(1 - 1/x)``. For smaller epsilons it
    is the dual of the (epsilon, delta) at the kink.

    >>> ZCDP(Fraction("2.56")).group(2)
    ZCDP(rho=Fraction(256, 25))
    >>> round(ZCDP(Fraction("2.56")).epsilon("1e-10"), 4)
    17.1583
    """

    kind, name, power = "zcdp", "rho", 2
    rho: Fraction

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "rho", strength(self.rho, "rho"))

    def _values(self, alpha: Floats) -> Floats:
        root = round_up(sqrt_up(self.rho))
        with np.errstate(divide="ignore"):
            low = -np.log(alpha)
            high = -np.log1p(-alpha)
        exponent = (np.sqrt(low) + root) ** 2
        finite = np.where(np.isfinite(exponent), exponent, 0.0)
        relative_error = 8 * ROUNDOFF * (1 + finite)
        rare = np.exp(-exponent) * (1 - relative_error)
        high = np.where(alpha == 1, 0.0, high)
        gap = np.maximum(np.sqrt(high) - root, 0.0)
        # an error of a few units in sqrt(high) or root moves gap^2 by that times (sqrt(high) +
        # root)
        margin = 16 * ROUNDOFF * gap * (gap + 2 * root + 1)
        gap_squared = np.maximum(gap * gap - margin, 0.0)
        below_one = -np.expm1(-gap_squared) * (1 - 8 * ROUNDOFF)
        common = np.where(alpha == 1, 1.0, below_one)
        return np.maximum(rare, common)

    def _delta(self, epsilon: Fraction) -> float:
        return min(self.conversion(epsilon), self._kink.delta(epsilon))

    def conversion(self, epsilon: Number) -> float:
        """Return the delta of the tight conversion alone, rounded up: at least `delta`, and equal
        beyond the kink.

        >>> ZCDP(Fraction(1)).conversion(4) == ZCDP(Fraction(1)).delta(4)
        True
        """
        e = nonnegative(epsilon, "epsilon")
        order = _best_order(round_down(self.rho), round_down(e))
        x = 1 + Fraction(order)

        # any x > 1 gives a valid bound; the search above only makes it a good one
        def bound() -> RealBall:
            exponent = (x - 1) * (self.rho * x - e)
            log_share = ball(1 - 1 / x).log()
            correction = ball(x - 1) * log_share
            return (ball(exponent) + correction).exp() / ball(x)

        return min(round_ball_up(sharp(bound)), 1.0)

    @cached_property
    def _kink(self) -> Approximate:
        """The (epsilon, delta) at which the two parts of the curve meet: size e^(-rho x^2) = 1 -
        e^(-rho (x-1)^2).

        It follows from the conversion whatever x is; the search only makes it the best one for
        smaller epsilons.
        """
        rho = round_up(self.rho)

        def before(x: float) -> bool:
            size = math.exp(-rho * x * x)
            complement = -math.expm1(-rho * (x - 1) ** 2)
            return not size < complement

        farthest = 2 + 30 / math.sqrt(rho)
        _, high = bisection(before, 1.0, farthest, halvings=60)
        epsilon = Fraction(0)
        if high > 1:
            slope = (2 * high - 1) * rho
            at_kink = slope + math.log1p(-1 / high)
            epsilon = Fraction(max(at_kink, 0.0))
        return Approximate(epsilon, Fraction(self.conversion(epsilon)))

    def implied_rho(self) -> Fraction:
        return self.rho

    def _landmarks(self) -> Floats:
        rho = round_up(self.rho)
        return tail(rho + 2 * math.sqrt(rho * 700))

    def _deltas(self, epsilons: Floats) -> Floats:
        if self.is_trivial:
            return np.zeros(epsilons.shape)
        rho = round_up(self.rho)
        # The best order for each epsilon, read off a table of orders; any order gives a valid
        # bound.
        last = float(epsilons.max(initial=1.0))
        lowest_order, highest_order = _best_order(rho, 0.0), _best_order(rho, last)
        orders = np.geomspace(lowest_order, highest_order, 1 << 13)
        linear = (2 * orders + 1) * rho
        best_for = linear + np.log(orders) - np.log1p(orders)
        y = np.interp(epsilons, best_for, orders)
        log_x = np.log1p(y)
        moment = y * (rho * (1 + y) - epsilons)
        # y ln(1 - 1/x): a difference of two logarithms would lose digits for large orders
        exponent = moment - y * np.log1p(1 / y) - log_x
        size = 1 + log_x + y * (rho * (1 + y) + epsilons)
        with np.errstate(over="ignore"):
            powers = np.exp(exponent + 16 * ROUNDOFF * size)
            bounds: Floats = np.nextafter(powers, np.inf)
        return np.minimum(bounds, self._kink._deltas(epsilons))


@frozen(order=False)
class Laplace(OneNumber):
    """Laplace noise of scale 1/epsilon on one number of sensitivity 1: ``F(F^-1(a) - epsilon)``.

    Strictly more private than pure epsilon-DP says; grouping multiplies epsilon.

    >>> Laplace(Fraction(1)).group(2), Laplace(Fraction(1)).compare(Laplace(Fraction(2))).name
    (Laplace(epsilon0=Fraction(2, 1)), 'STRONGER')
    """

    kind, name, power = "laplace", "epsilon0", 1
    json_keys: ClassVar[Mapping[str, str | None]] = {"epsilon0": "epsilon"}
    epsilon0: Fraction

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "epsilon0", strength(self.epsilon0, "epsilon"))

    def _values(self, alpha: Floats) -> Floats:
        # rounded down: a smaller factor claims less
        shrink = math.exp(-round_up(self.epsilon0))
        shrink *= 1 - 4 * ROUNDOFF
        if shrink == 0:
            return np.where(alpha == 1, 1.0, 0.0)
        complement = 1 - alpha
        # Three pieces: both tails of the noise are straight lines, and a hyperbola lies between
        # them.
        denominator = 4 * np.maximum(complement, shrink / 4)
        middle = shrink / denominator * (1 - 4 * ROUNDOFF)
        top = 1 - complement / shrink * (1 + 4 * ROUNDOFF)
        right = np.where(complement >= shrink / 2, middle, top)
        values = np.where(alpha <= 0.5, shrink * alpha, right)
        return values - np.where(alpha <= 0.5, 0.0, ROUNDOFF * values)

    def _delta(self, epsilon: Fraction) -> float:
        gap = (epsilon - self.epsilon0) / 2
        if gap >= 0:
            return 0.0
        return round_ball_up(sharp(lambda: -ball(gap).expm1()))

    def implied_rho(self) -> Fraction:
        return pure_rho(self.epsilon0)

    def implied_epsilon(self) -> Fraction:
        return self.epsilon0

    def _landmarks(self) -> Floats:
        beyond = 2 * round_up(self.epsilon0) + 1
        return np.append(tail(round_down(self.epsilon0)), beyond)

    def _deltas(self, epsilons: Floats) -> Floats:
        gap = np.maximum(round_up(self.epsilon0) - epsilons, 0.0)
        true_deltas = -np.expm1(-gap / 2)
        deltas = true_deltas * (1 + 8 * ROUNDOFF) * (1 + 4 * ROUNDOFF)
        return np.minimum(deltas, 1.0)


def _normal_tail(z: RealBall) -> RealBall:
    return (z / ball(2).sqrt()).erfc() / 2


def _mills(x: Floats) -> Floats:
    """The tail of the normal law over its density."""
    scaled_tail = scipy.special.erfcx(x / np.sqrt(2))
    ratio: Floats = np.sqrt(np.pi / 2) * scaled_tail
    return ratio


def _best_order(rho: float, epsilon: float) -> float:
    """Return x - 1 for the order x > 1 with ``(2x - 1) rho + ln(1 - 1/x) = epsilon``; the left side
    is increasing.
    """
    if rho == 0:
        return 1.0
    low = -700.0  # of ln(x - 1)
    # (2x - 1) rho alone exceeds epsilon here
    at_most = epsilon / (2 * rho) + 1 / math.sqrt(rho)
    high = math.log(at_most) + 1

    def is_below(log: float) -> bool:
        y = math.exp(log)
        linear = (2 * y + 1) * rho
        at_order = linear + log - math.log1p(y)
        return at_order < epsilon

    _, high = bisection(is_below, low, high, halvings=64)
    return math.exp(high)
