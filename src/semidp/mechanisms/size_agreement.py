"""Estimates of members and of units that agree: sizes times units is the number of members, everywhere.

For every depth vector d of features that members have from their units, ``p_d = s̄ r^U_d + Σ_s (s - s̄) r_{d,size}[s]``
holds of the true residuals, entry by entry. The estimates are corrected so that it holds of them too: constrained least
squares, one scalar an entry (THEORY §15). Everything here is post-processing of public values.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from semidp.core.margins import Floats, View, named, within
from semidp.core.spaces.linked import LinkedDataspace
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.queries.linked_products import KindSpace

_NORMAL = 1.959963984540054  # of 95%


@dataclass(frozen=True)
class Agreement:
    """One equation between residuals of members and of units.

    Parameters
    ----------
    members
        The residual of members by features of their units alone.
    units
        The residual of units by the same features.
    sizes
        The residual of units by these features and the size.
    variances
        The variance of an entry of each before centring; 0 where it is exact.
    """

    members: View
    units: View
    sizes: View
    variances: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class SizeAgreement:
    """The correction of estimates of members and units that makes sizes times units the number of members.

    Parameters
    ----------
    members, units
        How each kind was measured.
    equations
        Every equation of which all three residuals are measured or exact.
    """

    members: ResidualMechanism
    units: ResidualMechanism
    equations: tuple[Agreement, ...] = field(repr=False)

    @classmethod
    def of(cls, members: ResidualMechanism, units: ResidualMechanism) -> "SizeAgreement":
        """Find the equations between the residuals of two mechanisms."""
        spaces = members.space, units.space
        assert isinstance(spaces[0], KindSpace)
        public = spaces[0].public
        equations = []
        if public.size_axis is not None:
            for triple in agreeing_views(public):
                needed = (spaces[0].needed, spaces[1].needed, spaces[1].needed)
                if all(view in kind for view, kind in zip(triple, needed, strict=True)):
                    noise = (members, units, units)
                    variances = [_variance(part, view) for part, view in zip(noise, triple, strict=True)]
                    equations.append(Agreement(*triple, tuple(variances)))  # type: ignore[arg-type]
        return cls(members, units, tuple(equations))

    @property
    def public(self) -> LinkedDataspace:
        """What is public about both kinds."""
        space = self.members.space
        assert isinstance(space, KindSpace)
        return space.public

    @cached_property
    def sizes(self) -> Floats:
        """Every size of a unit, in the order of its levels."""
        return np.array([float(size) for size in self.public.link.sizes])

    @property
    def deepest(self) -> list[Agreement]:
        """The equations that no other one contains."""
        chosen = []
        for one in self.equations:
            above = [other for other in self.equations if other is not one and within(one.units, other.units)]
            if not above:
                chosen.append(one)
        return chosen

    def _leverage(self, equation: Agreement) -> tuple[float, float, Floats, float]:
        """``σ² c`` of the three residuals, and ``V = Σ c² σ²``."""
        mean = float(self.sizes.mean())
        of_members, of_units, of_sizes = equation.variances
        away = self.sizes - mean
        total = of_members + mean**2 * of_units + of_sizes * float((away**2).sum())
        return of_members, -mean * of_units, -away * of_sizes, total

    def residuals(self, members: Floats, units: Floats) -> tuple[dict[View, Floats], dict[View, Floats]]:
        """Return the residuals of both kinds, exact ones included, corrected so that they agree.

        ``f = p - s̄ r^U - Σ (s - s̄) r_s``; then p falls by ``f σ_p²/V``, r^U grows by ``f s̄ σ_U²/V`` and r_s by
        ``f (s - s̄) σ_r²/V``.

        Parameters
        ----------
        members, units
            The measured vectors of each kind.
        """
        of_members = {**self.members.space.known, **self.members.space.parted(members)}
        of_units = {**self.units.space.known, **self.units.space.parted(units)}
        mean = float(self.sizes.mean())
        for equation in self.equations:
            place = self._size_place(equation.sizes)
            by_size = np.moveaxis(of_units[equation.sizes], place, -1)
            gap = of_members[equation.members] - mean * of_units[equation.units]
            gap = gap - by_size @ (self.sizes - mean)
            change_members, change_units, change_sizes, total = self._leverage(equation)
            # exact on both sides: nothing to correct
            if not total:
                continue
            share = gap / total
            of_members[equation.members] = of_members[equation.members] - share * change_members
            of_units[equation.units] = of_units[equation.units] - share * change_units
            corrected = by_size - share[..., None] * change_sizes
            of_units[equation.sizes] = np.moveaxis(corrected, -1, place)
        return of_members, of_units

    def member_variances(self, table: int) -> Floats:
        """Return the variance of each cell of a table of members once both kinds agree."""
        space = self.members.space
        view = space.views[table]
        variance = np.array(self.members.cell_variances(table))
        for equation in self.equations:
            if not within(equation.members, view):
                continue
            change, _, _, total = self._leverage(equation)
            if total:
                saved = self._spread(space, equation.members, change**2 / total, equation.members, view)
                variance -= space.whole(saved, view)
        return np.asarray(np.maximum(variance, 0.0))

    def unit_variances(self, table: int) -> Floats:
        """Return the variance of each cell of a table of units once both kinds agree."""
        space = self.units.space
        view = space.views[table]
        variance = np.array(self.units.cell_variances(table))
        for equation in self.equations:
            if not within(equation.units, view):
                continue
            _, of_units, of_sizes, total = self._leverage(equation)
            if not total:
                continue
            if within(equation.sizes, view):
                # a cell has an even share of the units, and its own size
                change = of_units / len(self.sizes) + of_sizes
                saved = self._spread(space, equation.units, change**2 / total, equation.sizes, view)
            else:
                saved = self._spread(space, equation.units, of_units**2 / total, equation.units, view)
            variance -= space.whole(saved, view)
        return np.asarray(np.maximum(variance, 0.0))

    def _spread(
        self, space: "KindSpace | object", entries: View, saved: "Floats | float", source: View, target: View
    ) -> Floats:
        """The variance that cells of a table lose, from what the entries of a residual lose."""
        assert isinstance(space, KindSpace)
        of_entry = space.residuals.centred_variance(entries, np.ones(space.residuals.shape(entries)))
        if source == entries:
            values = of_entry * saved
        else:
            values = np.moveaxis(of_entry[..., None] * saved, -1, self._size_place(source))
        return space.residuals.spread(values, source, target, power=2)

    def _size_place(self, view: View) -> int:
        """The axis of the size in the array of a residual."""
        axis = self.public.size_axis
        assert axis is not None
        return named(view).index(axis)

    def half_widths(self, variance: Floats) -> Floats:
        """Return how far estimates are off at most in 95% of all draws, by the normal law.

        A corrected estimate is a sum over many residuals, each of whole numbers with a standard deviation of at least
        about one; no single one has a law of its own any more.
        """
        return _NORMAL * np.sqrt(variance)


def agreeing_views(public: LinkedDataspace) -> Iterator[tuple[View, View, View]]:
    """Iterate over the depths of features of units that members have too: of members, of units, with the size.

    The first is the total.
    """
    member_names = [feature.name for feature in public.schema.features]
    unit_names = [feature.name for feature in public.units.schema.features]
    shared = [name for name in unit_names if name in member_names]
    depths = []
    for name in shared:
        deepest = public.units.schema.grid.full[unit_names.index(name)]
        depths.append(range(deepest + 1))
    size = public.size_axis
    assert size is not None
    for chosen in itertools.product(*depths):
        by_name = dict(zip(shared, chosen, strict=True))
        members = tuple(by_name.get(name, 0) for name in member_names)
        units = tuple(by_name.get(name, 0) for name in unit_names)
        sizes = tuple(1 if axis == size else depth for axis, depth in enumerate(units))
        yield members, units, sizes


def _variance(mechanism: ResidualMechanism, view: View) -> float:
    """The mean variance of an entry of a residual before centring; 0 where it is exact."""
    part = mechanism.space.parts.get(view)
    if part is None:
        return 0.0
    variances = mechanism.variances[part] / mechanism.space.scales[part].astype(float) ** 2
    return float(variances.mean())


def of_views(residuals: Mapping[View, Floats], space: KindSpace) -> list[Floats]:
    """Return every table of one kind, put together from its residuals."""
    every = dict(residuals)
    return [space.whole(space.residuals.together(every, view), view) for view in space.views]
