"""Rényi differential privacy at finitely many orders: composition, groups, and conversion to
(epsilon, delta).

For mechanisms that are known by their Rényi divergences only; curves with closed forms are better
kept as tradeoff functions, which lose nothing.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import RealBall, ball, round_ball_up, sharp
from semidp.promise.exact import Number, exact, nonnegative
from semidp.promise.tradeoff.function import group_size, proportion

ORDERS: tuple[Fraction, ...] = (
    *(1 + Fraction(i, 20) for i in range(1, 180)),
    *(
        Fraction(x)
        for x in (
            10,
            11,
            12,
            14,
            16,
            18,
            20,
            22,
            24,
            28,
            32,
            40,
            48,
            56,
            64,
            96,
            128,
            256,
            512,
            1024,
        )
    ),
)
"""Orders that serve most epsilons: close together where the best order usually lies."""


@dataclass(frozen=True)
class Renyi:
    """Bounds on the Rényi divergence: ``D_order <= value`` for each of some orders above 1 (Mironov
    2017).

    Parameters
    ----------
    orders
        Increasing, each above 1.
    values
        One bound for each order.

    Examples
    --------
    >>> curve = Renyi.zcdp("2.56")
    >>> 17.1583 < curve.epsilon("1e-10") < 17.17
    True
    """

    orders: tuple[Fraction, ...]
    values: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        orders = tuple(exact(order, "a Rényi order") for order in self.orders)
        values = tuple(nonnegative(value, "a Rényi divergence") for value in self.values)
        rising = all(low < high for low, high in itertools.pairwise(orders))
        fits = len(orders) == len(values)
        if not orders or not fits or orders[0] <= 1 or not rising:
            raise InputError("a Rényi curve needs increasing orders above 1 and one bound for each")
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "values", values)

    @classmethod
    def zcdp(cls, rho: Number, orders: Iterable[Number] = ORDERS) -> "Renyi":
        """Return the curve of rho-zCDP, ``rho · order`` (Bun and Steinke 2016).

        >>> Renyi.zcdp(1, orders=[2, 4]).values
        (Fraction(2, 1), Fraction(4, 1))
        """
        r = nonnegative(rho, "rho")
        return cls._from_bound(orders, lambda order: r * order)

    @classmethod
    def gdp(cls, mu: Number, orders: Iterable[Number] = ORDERS) -> "Renyi":
        """Return the curve of mu-GDP, ``order · mu^2/2``.

        >>> Renyi.gdp(1, orders=[2]).values
        (Fraction(1, 1),)
        """
        return cls.zcdp(nonnegative(mu, "mu") ** 2 / 2, orders)

    @classmethod
    def pure(cls, epsilon: Number, orders: Iterable[Number] = ORDERS) -> "Renyi":
        """Return the curve of pure epsilon-DP, that of randomised response, rounded up.

        ``ln((e^{order eps} + e^{(1 - order) eps}) / (1 + e^eps)) / (order - 1)``.

        >>> Renyi.pure(1, orders=[1000000]).values[0] < 1
        True
        """
        e = nonnegative(epsilon, "epsilon")

        def bound(order: Fraction) -> Fraction:
            def divergence() -> RealBall:
                large, small = ball(order * e), ball((1 - order) * e)
                top = large.exp() + small.exp()
                bottom = 1 + ball(e).exp()
                return (top / bottom).log() / ball(order - 1)

            if not e:
                return Fraction(0)
            # A divergence of any order is at most the largest loss, whatever rounding up has added.
            return min(Fraction(round_ball_up(sharp(divergence))), e)

        return cls._from_bound(orders, bound)

    @classmethod
    def _from_bound(
        cls, orders: Iterable[Number], bound: Callable[[Fraction], Fraction]
    ) -> "Renyi":
        listed = tuple(exact(order, "a Rényi order") for order in orders)
        if any(order <= 1 for order in listed):
            raise InputError("a Rényi order must be above 1")
        return cls(listed, tuple(bound(order) for order in listed))

    def epsilon(self, delta: Number) -> float:
        """Return the smallest epsilon of (epsilon, delta)-DP over the orders (Canonne and others
        2020), rounded up.

        >>> Renyi.zcdp("2.56").epsilon(0)
        inf
        """
        d = proportion(delta, "delta")
        if d == 0:
            return float("inf")

        def bound_epsilon(order: Fraction, value: Fraction) -> RealBall:
            gain = ball(1 / (order * d)).log() / ball(order - 1)
            correction = ball(1 - 1 / order).log()
            return ball(value) + gain + correction

        bounds = self._round_up_each(bound_epsilon)
        # Every order gives a valid epsilon, so that the least of them holds.
        return max(min(bounds), 0.0)

    def delta(self, epsilon: Number) -> float:
        """Return the smallest delta of (epsilon, delta)-DP over the orders, rounded up.

        >>> Renyi.zcdp("2.56").delta(17.17) <= 1e-10
        True
        """
        e = nonnegative(epsilon, "epsilon")

        def bound_delta(order: Fraction, value: Fraction) -> RealBall:
            correction = ball(1 - 1 / order).log()
            exponent = ball(order - 1) * (ball(value - e) + correction)
            return exponent.exp() / ball(order)

        bounds = self._round_up_each(bound_delta)
        return min([1.0, *bounds])

    def _round_up_each(self, at: Callable[[Fraction, Fraction], RealBall]) -> list[float]:
        """A function of each order and its divergence, rounded up."""
        bounds = []
        for order, value in zip(self.orders, self.values, strict=True):
            bounds.append(round_ball_up(sharp(partial(at, order, value))))
        return bounds

    def compose(self, *others: "Renyi") -> "Renyi":
        """Return the curve of all mechanisms together: divergences add, at the orders that all
        share.

        >>> Renyi.zcdp(1).compose(Renyi.gdp(1)) == Renyi.zcdp("3/2")
        True
        """
        curves = []
        for curve in (self, *others):
            curves.append(dict(zip(curve.orders, curve.values, strict=True)))
        shared = sorted(set.intersection(*(set(curve) for curve in curves)))
        if not shared:
            raise InputError(
                "Rényi curves add at shared orders, and these share none: give them the same orders"
            )
        sums = []
        for order in shared:
            # Rényi divergences of independent measurements add, order by order.
            values = [curve[order] for curve in curves]
            sums.append(sum(values, Fraction(0)))
        return Renyi(tuple(shared), tuple(sums))

    def group(self, k: int) -> "Renyi":
        """Return the curve for groups of k records: ``(order, value)`` becomes
        ``(order/2^c, 3^c value)``, k <= 2^c.

        For orders of at least ``2^{c+1}`` (Mironov 2017, Proposition 2).

        >>> Renyi((Fraction(8),), (Fraction(1),)).group(3)
        Renyi(orders=(Fraction(2, 1),), values=(Fraction(9, 1),))
        """
        c = (group_size(k) - 1).bit_length()
        least = 2 ** (c + 1) if c else 0
        orders, values = [], []
        for order, value in zip(self.orders, self.values, strict=True):
            if order >= least:
                orders.append(order / 2**c)
                values.append(value * 3**c)
        if not orders:
            raise Refused(
                f"groups of {k} need Rényi orders of at least {least}: compute the curve there too"
            )
        return Renyi(tuple(orders), tuple(values))
