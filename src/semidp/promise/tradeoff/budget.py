"""How much privacy loss may be spent, in exact numbers; the curves that numbers stand for, and
conversions between ways of stating a guarantee.

A `Budget` is one of four kinds; mechanisms work out what it buys for a query and the
invariants. Conversions are rounded so that they claim less privacy than is true.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import RealBall, ball, round_ball_up, sharp
from semidp.promise.documents import Encodable
from semidp.promise.exact import (
    Number,
    exact,
    nonnegative,
    number,
    plain,
    positive,
    sqrt_down,
    sqrt_up,
)
from semidp.promise.tradeoff.function import Tradeoff, proportion
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian, Laplace

BudgetKind = Literal["zcdp", "gdp", "pure", "approximate"]

MOST = 10**15
"""The largest rho, mu or epsilon: beyond it nothing is private, and floating point runs out
first."""


GIVEN: dict[str, tuple[str, ...]] = {
    "zcdp": ("rho",),
    "gdp": ("mu",),
    "pure": ("epsilon",),
    "approximate": ("epsilon", "delta"),
}
"""The numbers of each kind of budget; a pure one also has a delta of 0."""

_WORDS = {
    "zcdp": "zero-concentrated DP",
    "gdp": "Gaussian DP",
    "pure": "pure DP",
    "approximate": "approximate DP",
}


@frozen
class Budget(Encodable):
    """A privacy-loss budget: ``Budget.zcdp(rho)``, ``.gdp(mu)``, ``.pure(epsilon)``,
    ``.approximate(epsilon, delta)``.

    >>> Budget.zcdp("0.1").rho
    Fraction(1, 10)
    >>> Budget.approximate(1, "1e-9").tradeoff()
    Approximate(epsilon0=Fraction(1, 1), delta0=Fraction(1, 1000000000), size=1)
    >>> print(Budget.gdp(0.5))
    mu = 0.5 (Gaussian DP)
    """

    kind: BudgetKind = ""  # type: ignore[assignment]  # no kind: Budget(mu=1) is refused in a sentence, below
    rho: Fraction | None = None
    mu: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None

    def __attrs_post_init__(self) -> None:
        needed = {*GIVEN.get(self.kind, ())}
        if self.kind == "pure" and not self.delta:
            needed.add("delta")
        if not needed or set(self._numbers()) != needed:
            raise InputError(
                "a budget is Budget.zcdp(rho), Budget.gdp(mu), Budget.pure(epsilon) or "
                "Budget.approximate(epsilon, delta)"
            )
        for name, amount in self._numbers().items():
            if not isinstance(amount, Fraction):
                raise InputError(
                    "the numbers of a budget are exact: build it with Budget.zcdp, .gdp, .pure or"
                    " .approximate"
                )
            if (self.kind, name) != ("pure", "delta"):
                _check_amount(amount, name)

    @classmethod
    def zcdp(cls, rho: Number) -> "Budget":
        """Return rho-zCDP.

        >>> Budget.zcdp(0)
        Traceback (most recent call last):
        semidp.errors.InputError: rho must be above 0, not 0
        """
        return cls("zcdp", rho=exact(rho, "rho"))

    @classmethod
    def gdp(cls, mu: Number) -> "Budget":
        """Return mu-GDP.

        >>> Budget.gdp(1).mu
        Fraction(1, 1)
        """
        return cls("gdp", mu=exact(mu, "mu"))

    @classmethod
    def pure(cls, epsilon: Number) -> "Budget":
        """Return pure epsilon-DP.

        >>> Budget.pure("1/3").epsilon
        Fraction(1, 3)
        """
        return cls("pure", epsilon=exact(epsilon, "epsilon"), delta=Fraction(0))

    @classmethod
    def approximate(cls, epsilon: Number, delta: Number) -> "Budget":
        """Return (epsilon, delta)-DP with delta strictly between 0 and 1.

        >>> Budget.approximate(1, 1)
        Traceback (most recent call last):
        semidp.errors.InputError: delta must be below 1, not 1
        """
        return cls("approximate", epsilon=exact(epsilon, "epsilon"), delta=exact(delta, "delta"))

    def tradeoff(self) -> Tradeoff:
        """Return the budget as a tradeoff function.

        >>> Budget.pure(1).tradeoff().epsilon(0)
        1.0
        """
        if self.rho is not None:
            return ZCDP(self.rho)
        if self.mu is not None:
            return Gaussian(self.mu**2)
        assert self.epsilon is not None, "a budget has rho, mu or epsilon"
        return Approximate(self.epsilon, self.delta or Fraction(0))

    def split_evenly(self, parts: int) -> "Budget":
        """Return the budget of each of several measurements, which together spend at most this
        budget.

        >>> Budget.zcdp(1).split_evenly(4).rho, Budget.gdp(1).split_evenly(4).mu
        (Fraction(1, 4), Fraction(1, 2))
        """
        return self.share(Fraction(1, parts))

    def share(self, part: Fraction) -> "Budget":
        """Return a fraction of the budget: of rho, of epsilon and delta, or of mu squared.

        >>> Budget.gdp(1).share(Fraction(1, 4)).mu
        Fraction(1, 2)
        """
        if part == 1:
            return self
        if self.mu is not None:
            return Budget.gdp(sqrt_down(self.mu**2 * part))
        amounts = [number * part for number in self._collect_given_numbers().values()]
        return Budget._from_numbers(self.kind, amounts)

    @staticmethod
    def sum_budgets(parts: "Sequence[Budget | None]") -> "Budget | None":
        """Return the sum of what several measurements may spend; None if kinds differ or
        one has none.

        >>> Budget.sum_budgets([Budget.gdp("3/5"), Budget.gdp("4/5")]).mu
        Fraction(1, 1)
        """
        budgets = [part for part in parts if part is not None]
        kinds = {part.kind for part in budgets}
        if len(budgets) < len(parts) or len(kinds) != 1:
            return None
        if len(budgets) == 1:
            return budgets[0]
        if budgets[0].mu is not None:
            # Gaussian losses add in mu squared.
            squares = [(part.mu or Fraction(0)) ** 2 for part in budgets]
            return Budget.gdp(sqrt_up(sum(squares, Fraction(0))))
        # A delta of 1 promises nothing.
        if sum(part.delta or Fraction(0) for part in budgets) >= 1:
            return None
        amounts = [part._collect_given_numbers().values() for part in budgets]
        sums = [sum(numbers, Fraction(0)) for numbers in zip(*amounts, strict=True)]
        return Budget._from_numbers(budgets[0].kind, sums)

    @staticmethod
    def from_plan_keys(value: Mapping[str, Any]) -> "Budget | None":
        """Read a budget from the keys of a plan: one of epsilon (with delta or without), rho or mu;
        None without any.

        >>> Budget.from_plan_keys({"epsilon": "1"}) == Budget.pure(1)
        True
        """
        stated_keys = [key for key in ("epsilon", "rho", "mu") if value.get(key) is not None]
        if not stated_keys:
            return None
        if len(stated_keys) > 1:
            raise InputError(
                "give one of epsilon, rho and mu as the privacy budget, not"
                f" {' and '.join(stated_keys)}"
            )
        (key,) = stated_keys
        amount, delta = value[key], value.get("delta")
        if key == "epsilon":
            return Budget.pure(amount) if delta is None else Budget.approximate(amount, delta)
        if delta is not None:
            raise InputError(
                f"delta is part of an epsilon budget; with {key} set report_delta instead"
            )
        return Budget.zcdp(amount) if key == "rho" else Budget.gdp(amount)

    def keys(self) -> dict[str, str]:
        """Return the budget as the keys of a plan, which `from_plan_keys` reads."""
        return {name: plain(x) for name, x in self._collect_given_numbers().items()}

    def __str__(self) -> str:
        amounts = ", ".join(f"{name} = {text}" for name, text in self.keys().items())
        return f"{amounts} ({_WORDS[self.kind]})"

    def numbers(self) -> dict[str, Any]:
        """Return the budget for readers of a result: numbers, rounded up if no float prints the
        same.

        >>> Budget.approximate(1, "1e-9").numbers()
        {'kind': 'approximate', 'epsilon': 1, 'delta': 1e-09}
        """
        document: dict[str, Any] = {"kind": self.kind}
        for name, x in self._numbers().items():
            document[name] = number(x)
        return document

    def _numbers(self) -> dict[str, Fraction]:
        numbers = {"rho": self.rho, "mu": self.mu, "epsilon": self.epsilon, "delta": self.delta}
        return {name: x for name, x in numbers.items() if x is not None}

    def _collect_given_numbers(self) -> dict[str, Fraction]:
        names = GIVEN[self.kind]
        return {name: x for name, x in self._numbers().items() if name in names}

    @classmethod
    def _from_numbers(cls, kind: BudgetKind, numbers: Sequence[Number]) -> "Budget":
        makers: dict[BudgetKind, Callable[..., Budget]]
        makers = {
            "zcdp": cls.zcdp,
            "gdp": cls.gdp,
            "pure": cls.pure,
            "approximate": cls.approximate,
        }
        return makers[kind](*numbers)


def _check_amount(amount: Fraction, name: str) -> None:
    """Refuse a number that no budget has.

    >>> _check_amount(Fraction(10) ** 300, "epsilon")
    Traceback (most recent call last):
    semidp.errors.InputError: epsilon must be at most 1e15, and a budget that protects anybody is
    far smaller
    """
    positive(amount, name)
    if name == "delta" and amount >= 1:
        raise InputError(f"delta must be below 1, not {plain(amount)}")
    if amount > MOST:
        raise InputError(
            f"{name} must be at most 1e15, and a budget that protects anybody is far smaller"
        )


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


def zcdp_epsilon_paper(rho: Number, delta: Number) -> float:
    """Return ``rho + 2 sqrt(rho ln(1/delta))``, the conversion that the paper uses (Bun and Steinke
    2016), rounded up.

    >>> (
    ...     round(zcdp_epsilon_paper("2.56", "1e-10"), 5),
    ...     round(zcdp_epsilon_paper("10.24", "1e-10"), 5),
    ... )
    (17.91528, 40.95057)
    """
    r, d = nonnegative(rho, "rho"), proportion(delta, "delta")
    if r == 0:
        return 0.0
    if d == 0:
        return math.inf

    def paper_epsilon() -> RealBall:
        log_inverse = ball(1 / d).log()
        return ball(r) + 2 * (ball(r) * log_inverse).sqrt()

    return round_ball_up(sharp(paper_epsilon))


def pure_to_gdp(epsilon: Number) -> Fraction:
    """Return the mu that pure epsilon-DP implies, ``2 Phi^-1(e^eps/(1 + e^eps))``, rounded up.

    The curve of pure DP has one inner corner; a Gaussian curve through it lies below the two
    chords.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> mu = pure_to_gdp(1)
    >>> round(float(mu), 5), approximate(1).compare(gaussian(mu)).name
    (1.23204, 'STRONGER')
    """
    e = nonnegative(epsilon, "epsilon")
    if not e:
        return Fraction(0)

    def mu() -> RealBall:
        # 2 Phi^-1(p) is 2 sqrt(2) erfinv(2p - 1), and 2p - 1 is tanh(eps/2): no digits cancel.
        advantage = (ball(e) / 2).tanh()
        return 2 * ball(2).sqrt() * advantage.erfinv()

    return Fraction(round_ball_up(sharp(mu)))


def approximate_group(epsilon: Number, delta: Number, k: int) -> tuple[Fraction, float]:
    """Return ``(k eps, delta (e^{k eps} - 1)/(e^eps - 1))`` for groups of k records, the delta
    rounded up.

    One point of the curve ``approximate(epsilon, delta).group(k)``, which says more.

    >>> approximate_group(1, 0, 3)
    (Fraction(3, 1), 0.0)
    """
    curve: Approximate = approximate(epsilon, delta).group(k)
    total = curve.epsilon0 * curve.size
    step, d = curve.epsilon0, curve.delta0
    # The quotient tends to k as epsilon goes to 0, where it would divide zero by zero.
    if step == 0 or d == 0:
        return total, min(round_ball_up(ball(d * curve.size)), 1.0)

    def group_delta() -> RealBall:
        return ball(d) * ball(total).expm1() / ball(step).expm1()

    return total, min(round_ball_up(sharp(group_delta)), 1.0)


class _Amount:
    """A number of a budget. The class has none, and says how a budget is built instead.

    >>> Budget.epsilon(1)
    Traceback (most recent call last):
    semidp.errors.InputError: write Budget.pure(epsilon) or Budget.approximate(epsilon, delta)
    """

    def __init__(self, slot: Any, how: str) -> None:
        self._slot, self._how = slot, how

    def __get__(self, budget: Budget | None, owner: type | None = None) -> Any:
        return self._refuse if budget is None else self._slot.__get__(budget, owner)

    def __set__(self, budget: Budget, value: Fraction | None) -> None:
        self._slot.__set__(budget, value)

    def _refuse(self, *_: object) -> None:
        raise InputError(f"write {self._how}")


for _name, _how in (
    ("rho", "Budget.zcdp(rho)"),
    ("mu", "Budget.gdp(mu)"),
    ("epsilon", "Budget.pure(epsilon) or Budget.approximate(epsilon, delta)"),
    ("delta", "Budget.approximate(epsilon, delta)"),
):
    setattr(Budget, _name, _Amount(getattr(Budget, _name), _how))
