"""Noise on the residuals of linked tables: one budget over members and units, as much for each as
serves best.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.placement import Objective, Workload
from semidp.promise.mechanisms.residual_laws import law_within
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.sensitivity.linked_products import LinkedSpace, precision_shares
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@dataclass(frozen=True, eq=False)
class LinkedNoise(Mechanism):
    """Gaussian noise on the residuals of member tables and of unit tables.

    The noise of both kinds is independent and hides the same pairs of datasets, so that costs add:
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
    members: ResidualMechanism
    units: ResidualMechanism

    @classmethod
    def calibrate(
        cls,
        space: QuerySpace,
        budget: Budget,
        weights: tuple[Sequence[float], Sequence[float]] | None = None,
        unit_share: Fraction | None = None,
    ) -> Self:
        """Return the noise of least total variance over the tables of both kinds.

        Parameters
        ----------
        space
            The residuals of linked tables.
        budget
            zCDP, GDP or (ε, δ).
        weights
            How much the variance of each table counts: those of members, then those of units.
        unit_share
            The part of the precision for units; by need unless given.
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
        by_kind = (None, None) if weights is None else weights
        roots = []
        for kind, of_tables in zip(space.kinds, by_kind, strict=True):
            gains = Workload.from_weights(kind, of_tables, Objective.total).gains
            costs = [float(kind.cost[view]) for view in kind.measured_residuals]
            roots.append(float(np.sqrt(gains * np.array(costs)).sum()))
        # A kind's least total is its root squared over its precision: shares go by the roots.
        shares = precision_shares(roots)
        if unit_share is not None and all(roots):
            shares = [1 - unit_share, unit_share]
        parts = []
        for kind, of_tables, share in zip(space.kinds, by_kind, shares, strict=True):
            # a kind that is exact spends nothing, and its precision is not counted
            part = max(precision * share, Fraction(1, 2**60))
            parts.append(ResidualMechanism.from_precision(kind, part, law, of_tables))
        return cls(space, *parts)

    @property
    def parts(self) -> tuple[ResidualMechanism, ResidualMechanism]:
        """The noise of members and of units."""
        return self.members, self.units

    def refuse_false_claim(self) -> None:
        """Refuse noise if a drawn exchange of members or units costs more than it claims."""
        for part in self.parts:
            part.refuse_false_claim()

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
            parts.append(ResidualMechanism.from_record(kind, squares))
        return replace(self, space=space, members=parts[0], units=parts[1]).guarantee

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
            parts.append(ResidualMechanism.from_record(kind, record))
        return cls(space, *parts)


def _squares(part: ResidualMechanism) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = part.record()["noise"]["residuals"]
    return recorded
