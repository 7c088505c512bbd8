"""Noise on the residuals of linked tables: one budget, divided between members and units to serve
the tables best.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualNoise, law_within
from semidp.promise.noise.randomness import Randomness
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@frozen(slots=False, eq=False)
class LinkedNoise(Mechanism):
    """Gaussian noise on the residuals of member tables and of unit tables.

    The noise of both kinds is independent and hides the same pairs of datasets, so costs add:
    ``Σ_d k_d/σ_d²`` over the residuals of both is at most 2ρ (zCDP) or μ² (GDP).

    Parameters
    ----------
    space
        The residuals of both kinds.
    members, units
        The noise of each kind.
    """

    name: ClassVar[str] = "linked residuals"
    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "approximate")
    has_one_scale: ClassVar[bool] = False

    space: LinkedSpace
    members: ResidualNoise
    units: ResidualNoise

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget, **placing: Any) -> Self:
        """Return the mechanism whose noise satisfies `budget`, placed by `from_precision`.

        Parameters
        ----------
        space
            The residuals of linked tables.
        budget
            zCDP, GDP or (ε, δ).
        placing
            Further arguments of `from_precision` of the class.
        """
        if not isinstance(space, LinkedSpace):
            raise InputError(
                "linked residuals are those of linked tables: build them with linked_space"
            )
        if budget.kind not in cls.budget_kinds:
            raise Refused(
                "linked tables share a zCDP, GDP or (epsilon, delta) budget: pure epsilon is not"
                " built"
            )
        law, precision = law_within(budget)
        return cls.from_precision(space, precision, law, **placing)

    @classmethod
    def from_precision(cls, space: LinkedSpace, precision: Fraction, law: str) -> Self:
        """Return noise with half of the precision for each kind. Noise that serves some tables best
        is placed by `publish`.
        """
        halves = [ResidualNoise.from_precision(kind, precision / 2, law) for kind in space.kinds]
        return cls(space, *halves)

    @property
    def parts(self) -> tuple[ResidualNoise, ResidualNoise]:
        """The noise of members and of units."""
        return self.members, self.units

    @property
    def law(self) -> str:
        """The law of the noise: discrete or rounded."""
        return self.members.law

    @property
    def precision(self) -> Fraction:
        """Largest cost of a move."""
        return sum((part.precision for part in self.parts if part.sigma2), Fraction(0))

    @property
    def spent(self) -> Fraction:
        """Largest cost of a move by the bounds on its residuals."""
        return sum((part.spent for part in self.parts), Fraction(0))

    @property
    def tradeoff(self) -> Tradeoff:
        """ρ-zCDP or μ-GDP for every pair of the promise."""
        precision = self.precision
        if not precision:
            return Gaussian(Fraction(0))
        return ZCDP(precision / 2) if self.law == "discrete" else Gaussian(precision)

    @property
    def scale(self) -> float:
        """The largest σ of a residual."""
        return max(part.scale for part in self.parts)

    @property
    def variance(self) -> float:
        """The mean variance of a direction; residuals have different ones."""
        return self.expected_l2**2 / max(1, self.space.dimension)

    @property
    def expected_l2(self) -> float:
        """Root of the expected sum of squared errors over all cells, before both kinds are made to
        agree.
        """
        return math.hypot(*(part.expected_l2 for part in self.parts))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw the noise of members, then of units."""
        drawn = [part.noises(count, randomness) for part in self.parts]
        return np.concatenate(drawn, axis=1)

    def under(self, adjacency: Adjacency) -> Guarantee:
        """Return the guarantee of the same noise under the other adjacency of the promise."""
        space = self.space.under(adjacency)
        parts = []
        for part, kind in zip(self.parts, space.kinds, strict=True):
            squares = {"residuals": _squares(part), "draw": part.law}
            parts.append(ResidualNoise.from_record(kind, squares))
        return evolve(self, space=space, members=parts[0], units=parts[1]).guarantee

    def record(self) -> dict[str, Any]:
        """Return the ledger entry: the tables of both kinds, and the exact noise of every
        residual.
        """
        noise = {"law": self.name, "draw": self.law}
        noise |= {"members": _squares(self.members), "units": _squares(self.units)}  # type: ignore[dict-item]
        return {"query": self.space.query(), "noise": noise}

    @classmethod
    def from_record(cls, space: QuerySpace, noise: Mapping[str, Any]) -> Self:
        """Return the mechanism of a recorded noise on a space of the same tables."""
        if not isinstance(space, LinkedSpace):
            raise TypeError("linked residuals are those of linked tables")
        parts = []
        for key, kind in zip(("members", "units"), space.kinds, strict=True):
            record = {"residuals": noise.get(key), "draw": noise.get("draw")}
            parts.append(ResidualNoise.from_record(kind, record))
        return cls(space, *parts)


def _squares(part: ResidualNoise) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = part.record()["noise"]["residuals"]
    return recorded
