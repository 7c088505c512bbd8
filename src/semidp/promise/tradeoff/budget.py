"""How much privacy loss may be spent, in exact numbers.

A `Budget` is one of four kinds; what it buys depends on the query and the invariants and is worked
out elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.codec import Encodable
from semidp.promise.exact import Number, exact, number, plain, positive, sqrt_down, sqrt_up
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

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
"""The numbers that each kind of budget is given; a pure one has a delta of 0 besides."""

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
        """Return the budget of each of several measurements. Together they spend no more than this
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
        """Return what several measurements may spend together, simply added; None where kinds
        differ or one has none.

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
                f"delta is part of an epsilon budget; beside {key} set report_delta instead"
            )
        return Budget.zcdp(amount) if key == "rho" else Budget.gdp(amount)

    def keys(self) -> dict[str, str]:
        """Return the budget as the keys of a plan that `stated` reads."""
        return {name: plain(x) for name, x in self._collect_given_numbers().items()}

    def __str__(self) -> str:
        amounts = ", ".join(f"{name} = {text}" for name, text in self.keys().items())
        return f"{amounts} ({_WORDS[self.kind]})"

    def numbers(self) -> dict[str, Any]:
        """Return the budget for readers of a result: numbers, rounded up where no float prints as
        they do.

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
