"""Noise on the residuals of linked tables: one budget over members and units, as much for each as
serves best.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import cell_weights
from semidp.promise.mechanisms.placement import Objective, Workload
from semidp.promise.mechanisms.residual_laws import SharedNoise, law_within
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.mechanisms.size_agreement import SizeAgreement, assemble_tables
from semidp.promise.noise.distributions import CountNoise, joined_laws
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import LinkedSpace, precision_shares
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.linked import TopCode
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@dataclass(frozen=True, eq=False)
class LinkedMechanism(SharedNoise):
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

    @cached_property
    def agreement(self) -> SizeAgreement:
        """Correction that makes estimates of both kinds agree."""
        return SizeAgreement.from_mechanisms(self.members, self.units)

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

    @property
    def naive_l2(self) -> float:
        """`expected_l2` of ordinary differential privacy, brought to the same guarantee by group
        privacy.
        """
        return math.hypot(*(part.naive_l2 for part in self.parts))

    @property
    def naive_cost(self) -> Fraction:
        """Cost of one record of each kind if the links and the exact totals were forgotten."""
        return sum((part.naive_cost for part in self.parts if part.sigma2), Fraction(0))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw the noise of members, then of units."""
        drawn = [part.noises(count, randomness) for part in self.parts]
        return np.concatenate(drawn, axis=1)

    @property
    def entry_variances(self) -> Floats:
        """The variance of the noise in each entry of the vector."""
        return np.concatenate([part.variances for part in self.parts])

    @property
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise of both kinds, and the number of the law of each entry of the
        vector.
        """
        return joined_laws(part.entry_laws for part in self.parts)

    @property
    def entry_scales(self) -> NDArray[np.int64]:
        """Factor by which each entry was multiplied before it was measured."""
        return np.concatenate([kind.scales for kind in self.space.kinds])

    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Return the tables of members, then those of units, which agree."""
        residuals = self.agreement.residuals(*self.space.split(values))
        tables = []
        for kind, of_kind in zip(self.space.kinds, residuals, strict=True):
            tables += assemble_tables(of_kind, kind)
        return tables

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on the noise, from weights on cells. Tables of members are numbered first.

        Both kinds were made to agree, so that a table of members has noise of units in it too.
        """
        first = len(self.space.members.views)
        of_members, of_units = {}, {}
        for number, on_cells in weights.items():
            if number < first:
                of_members[number] = on_cells
            else:
                of_units[number - first] = on_cells
        gathered_members = self.space.members.gather_weights(of_members)
        gathered_units = self.space.units.gather_weights(of_units)
        on_residuals = self.agreement.weights(gathered_members, gathered_units)
        pulled = []
        for kind, of_kind in zip(self.space.kinds, on_residuals, strict=True):
            pulled.append(kind.pull_back_weights(of_kind))
        return np.concatenate(pulled)

    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return the entries of the residuals of some tables, and of the residuals that correct
        them.
        """
        first = len(self.space.members.views)
        seen: tuple[set[View], set[View]] = (set(), set())
        for number in tables:
            which, place = 0, number
            if number >= first:
                which, place = 1, number - first
            kind = self.space.kinds[which]
            seen[which].update(kind.inside[place])
            for equation in self.agreement.find_equations(kind.views[place], which):
                for term in equation.terms:
                    seen[term.kind].add(term.view)
        entries, start = [np.zeros(0, np.intp)], 0
        for kind, views in zip(self.space.kinds, seen, strict=True):
            for view, part in kind.parts.items():
                if view in views:
                    of_part = np.arange(part.start, part.stop)
                    entries.append(start + of_part)
            start += kind.scales.size
        return np.concatenate(entries)

    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some entries alone, members before units, for many measurements at
        once.
        """
        first = self.space.members.scales.size
        chosen = np.asarray(entries)
        values = np.zeros((count, len(chosen)), dtype=np.int64)
        of_members = chosen < first
        member_entries = chosen[of_members]
        unit_entries = chosen[~of_members] - first
        values[:, of_members] = self.members.draw_entries(member_entries, count, randomness)
        values[:, ~of_members] = self.units.draw_entries(unit_entries, count, randomness)
        return values

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error of each entry of the vector."""
        return np.concatenate([part.standard_errors() for part in self.parts])

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of entries of the vector."""
        of_kinds = self.space.split(cell_weights(weights, self.space))
        pairs = zip(self.parts, of_kinds, strict=True)
        return math.hypot(*(part.standard_error(of_kind) for part, of_kind in pairs))

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
            raise InputError(f"the record of {cls.name} noise is damaged: it cannot be recomputed")
        parts = []
        for key, kind in zip(("members", "units"), space.kinds, strict=True):
            record = {"residuals": noise.get(key), "draw": noise.get("draw")}
            parts.append(ResidualMechanism.from_record(kind, record))
        return cls(space, *parts)


@dataclass(frozen=True, eq=False)
class CodedNoise(LinkedMechanism):
    """The same noise for weighted sums of published tables whose sizes are top-coded.

    Parameters
    ----------
    code
        How sizes are published.
    """

    code: TopCode

    @classmethod
    def from_mechanism(cls, mechanism: LinkedMechanism, code: TopCode) -> "CodedNoise":
        """Return the noise of a mechanism for tables that are coded."""
        return cls(mechanism.space, mechanism.members, mechanism.units, code)

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on the noise. The last level has the weights of all its sizes."""
        by_size: dict[int, ArrayLike] = {}
        for number, values in weights.items():
            axis = size_place(self.space, number)
            coded = np.asarray(values)
            by_size[number] = coded if axis is None else self.code.spread(coded, axis)
        return super().combination(by_size)


def size_place(space: LinkedSpace, number: int) -> int | None:
    """Axis of the size in a table; None where it has no size. Tables of members are numbered
    first.
    """
    first = len(space.members.views)
    axis = space.dataspace.size_axis
    if number < first or axis is None:
        return None
    axes = list_axes(space.units.views[number - first])
    return axes.index(axis) if axis in axes else None


def published_variances(mechanism: LinkedMechanism, code: TopCode | None) -> list[Floats]:
    """Return the variances of the cells of every published table, once both kinds agree; members
    first.
    """
    agreement, space = mechanism.agreement, mechanism.space
    first = len(space.members.views)
    variances = [agreement.member_variances(number) for number in range(first)]
    for number in range(len(space.units.views)):
        axis = size_place(space, first + number)
        if code is None or axis is None:
            variances.append(agreement.unit_variances(number))
        else:
            variances.append(code.take_levels(agreement.unit_variances(number, code), axis))
    return variances


def _squares(part: ResidualMechanism) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = part.record()["noise"]["residuals"]
    return recorded
