"""The projected Laplace mechanism: exact discrete Laplace noise in every cell, for pure budgets.

Whole-number noise and an exact claim. Mechanisms that adapt the shape of the noise to the space live in `l2` and
`knorm`.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from semidp.exact import up
from semidp.mechanisms.base import LAPLACE_REACH, CellByCell, check_request, check_scale, epsilon_of
from semidp.noise import DiscreteLaplace
from semidp.queries import QuerySpace
from semidp.tradeoff import Budget, Tradeoff, approximate


@dataclass(frozen=True, eq=False)
class LaplaceMechanism(CellByCell):
    """Discrete Laplace noise ``P(k) ∝ exp(-|k|/b)`` in every cell, then projection: pure ε with ``ε = Δ1/b``.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    b
        The scale of the noise, exact.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = LaplaceMechanism.calibrate(space, Budget.pure("0.5"))
    >>> mechanism.b, mechanism.guarantee.tradeoff.epsilon(0)
    (Fraction(8, 1), 0.5)
    >>> LaplaceMechanism.calibrate(space, Budget.zcdp("0.5"))
    Traceback (most recent call last):
    semidp.errors.Refused: laplace cannot satisfy a zcdp budget (it can: pure, approximate): use gaussian or lattice
    """

    b: Fraction

    name: ClassVar[str] = "laplace"
    kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")
    reach: ClassVar[float] = LAPLACE_REACH

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ1/ε``; a δ in the budget is not used."""
        check_request(cls, space, budget)
        b = Fraction(space.l1) / epsilon_of(budget)
        check_scale(b * b)
        return cls(space, b)

    @cached_property
    def sampler(self) -> DiscreteLaplace:
        """The distribution of the noise in one cell."""
        return DiscreteLaplace(self.b)

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return up(self.b)

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ1/b``, exact."""
        return approximate(Fraction(self.space.l1) / self.b)
