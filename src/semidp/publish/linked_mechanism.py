"""Tables of members and of units from noise on the residuals of both kinds, and their errors.

The noise and its guarantee are those of `promise.mechanisms.linked_noise`. Both kinds are made to
agree (`size_agreement`), so that a table of members has noise of units in it too. A `TopCode`
publishes the largest sizes of units as one level, such as 5+.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import cell_weights
from semidp.promise.mechanisms.residual_laws import SharedNoise
from semidp.promise.noise.distributions import CountNoise, joined_laws
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.publish.size_agreement import SizeAgreement, TopCode, assemble_tables


@dataclass(frozen=True, eq=False)
class LinkedMechanism(LinkedNoise, SharedNoise):
    """Noise on the residuals of member tables and of unit tables, with estimates that agree."""

    @cached_property
    def agreement(self) -> SizeAgreement:
        """Correction that makes estimates of both kinds agree."""
        return SizeAgreement.from_mechanisms(self.members, self.units)

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
