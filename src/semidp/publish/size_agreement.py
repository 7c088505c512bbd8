"""Estimates of members and of units that agree: at every place, sizes times units is the number of
members.

Let p_d be a residual of members over the features d that they have from their units, r^U_d the
same residual of units, r_{d,size}[s] that of units by size, and s̄ the plain mean of the declared
sizes. The true residuals satisfy ``p_d = s̄ r^U_d + Σ_s (s - s̄) r_{d,size}[s]``, entry by entry. The
estimates are corrected until they satisfy it too: constrained least squares, one scalar per entry
(docs/linked.md, "How they agree"). Everything here is post-processing of public values.
"""

import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.features import SIZE, Feature
from semidp.promise.schema.margins import Floats, View, is_within_view, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import KindSpace
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.product_estimates import spread_residual
from semidp.publish.residual_mechanism import ResidualMechanism


@frozen
class TopCode:
    """Published levels of the size: each by itself below the top, one for the top and more.

    Parameters
    ----------
    top
        The least size of the last level.
    least, most
        The bounds on the size of a unit.

    Examples
    --------
    >>> code = TopCode(3, 1, 5)
    >>> code.levels, code.sum_to_levels(np.array([7, 5, 4, 2, 1]), 0).tolist()
    (('1', '2', '3+'), [7, 5, 7])
    >>> code.spread(np.array([0, 0, 1]), 0).tolist()
    [0, 0, 1, 1, 1]
    """

    top: int
    least: int
    most: int

    def __attrs_post_init__(self) -> None:
        if not self.least <= self.top <= self.most:
            raise InputError(
                f"the top code of {SIZE} is one of the sizes of a unit, from {self.least} to"
                f" {self.most}, not {self.top}"
            )

    @property
    def place(self) -> int:
        """The place of the last level."""
        return self.top - self.least

    @property
    def sizes(self) -> int:
        """How many sizes there are."""
        return self.most - self.least + 1

    @property
    def top_size_count(self) -> int:
        """How many sizes the last level comprises."""
        return self.most - self.top + 1

    @property
    def levels(self) -> tuple[str, ...]:
        """The published levels."""
        single = [str(size) for size in range(self.least, self.top)]
        return (*single, f"{self.top}+")

    def schema(self, schema: Schema) -> Schema:
        """Return a schema of single sizes with the published levels."""
        coded = Feature(SIZE, self.levels)
        return Schema(coded if part.name == SIZE else part for part in schema.features)

    def sum_to_levels(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Sum numbers by single sizes to the published levels."""
        return np.add.reduceat(values, range(self.place + 1), axis=axis)

    def spread(self, weights: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return weights on single sizes from weights on published levels."""
        times = [1] * self.place + [self.top_size_count]
        return np.repeat(weights, times, axis=axis)

    # --- arrays by single size in which every size from the top on has the number of the last level

    def repeat_top_sum(self, values: Floats) -> Floats:
        """Replace each of the sizes from the top on by their sum, along the last
        axis.
        """
        result = np.array(values)
        result[..., self.place :] = values[..., self.place :].sum(axis=-1, keepdims=True)
        return result

    def factors(self, of_last: float) -> Floats:
        """One for each single size, and a number for those of the last level."""
        result = np.ones(self.sizes)
        result[self.place :] = of_last
        return result

    def take_levels(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return the published levels of such an array."""
        return np.take(values, range(self.place + 1), axis=axis)

    @property
    def spread_factor(self) -> float:
        """How many times the sum of squared (or of absolute) weights on residuals by size grows
        from a size to the last level.

        The weights of k of n sizes are ``1 - k/n`` (k times) and ``-k/n`` (n - k times): their
        squares add up to ``k (n - k)/n``, and their absolute values to twice that.
        """
        grouped, sizes = self.top_size_count, self.sizes
        return grouped * (sizes - grouped) / max(1, sizes - 1)

    @property
    def own_factor(self) -> float:
        """The weight ``1 - k/n`` of the last level on an entry of its own, next to ``1 - 1/n``."""
        return (self.sizes - self.top_size_count) / max(1, self.sizes - 1)


@frozen(eq=False)
class AgreeingResidual:
    """One residual in an equation, with the features of the equation.

    Parameters
    ----------
    kind
        0 for members, 1 for units.
    view
        Which residual it is.
    coefficients
        One number for every entry of the equation.
    variance
        The variance of an entry of the residual before centering; 0 if it is exact.
    """

    kind: int
    view: View
    coefficients: Floats
    variance: float

    @property
    def leverage(self) -> float:
        """Variance that the residual adds to the equation, ``σ² |c|²``."""
        return self.variance * float((self.coefficients**2).sum())

    def apply_coefficients(self, residual: Floats) -> Floats:
        """Return ``c · r`` for every entry of the equation."""
        return np.asarray(residual * self.coefficients)

    def spread(self, entries: Floats) -> Floats:
        """Return the transpose of `summed`: each entry times its coefficients."""
        return np.asarray(entries * self.coefficients)

    def by_entry(self, values: Floats) -> Floats:
        """Return an array of the residual with the entries of the equation first, levels last."""
        return values

    def at_one_level(self, values: Floats) -> Floats:
        """Return the part of an array of the residual that each entry of the equation has at its
        first level.
        """
        return values


@frozen(eq=False)
class LevelResidual(AgreeingResidual):
    """One residual in an equation that has a further feature, over which the equation sums.

    Parameters
    ----------
    kind, view, variance
        As for `AgreeingResidual`.
    coefficients
        One number for each level of the feature; these sum to zero, as residuals do.
    axis
        The feature.
    """

    axis: int

    @property
    def place(self) -> int:
        """Position of the feature in the array of the residual."""
        return list_axes(self.view).index(self.axis)

    def apply_coefficients(self, residual: Floats) -> Floats:
        """Return ``c · r`` for every entry of the equation."""
        return np.asarray(self.by_entry(residual) @ self.coefficients)

    def spread(self, entries: Floats) -> Floats:
        """Return the transpose of `summed`: each entry times its coefficients."""
        products = entries[..., None] * self.coefficients
        return np.moveaxis(products, -1, self.place)

    def by_entry(self, values: Floats) -> Floats:
        """Return an array of the residual with the entries of the equation first, levels last."""
        return np.moveaxis(values, self.place, -1)

    def at_one_level(self, values: Floats) -> Floats:
        """Return the part of an array of the residual that each entry of the equation has at its
        first level.
        """
        return np.asarray(self.by_entry(values)[..., 0])


@frozen(eq=False)
class Agreement:
    """One equation between residuals of members and of units: ``Σ c · r = 0``.

    Parameters
    ----------
    members
        The residual of members by features of their units alone.
    units
        The residual of units by the same features.
    sizes
        The residual of units by these features and the size.
    size_axis
        The feature of units that is their size.
    terms
        The residuals of the equation, with their coefficients.
    """

    members: View
    units: View
    sizes: View
    size_axis: int
    terms: tuple[AgreeingResidual, ...]

    @property
    def place_of_size(self) -> int:
        """The axis of the size in a table of units by these features and the size."""
        return list_axes(self.sizes).index(self.size_axis)

    @property
    def total(self) -> float:
        """The variance of the equation, ``V = Σ σ² |c|²``; 0 if all is exact."""
        return sum(term.leverage for term in self.terms)

    def entries(self, kind: int) -> View:
        """The features of the equation, among those of members (0) or of units (1)."""
        return self.units if kind else self.members

    def find_visible_terms(
        self, kind: int, view: View
    ) -> tuple[list[AgreeingResidual], LevelResidual | None]:
        """Return the residuals of one kind that a table sees: those without a further feature, and
        the one with.
        """
        even, by_level = [], None
        for term in self.terms:
            if term.kind == kind and is_within_view(term.view, view):
                if isinstance(term, LevelResidual):
                    by_level = term
                else:
                    even.append(term)
        return even, by_level


@frozen(slots=False, eq=False)
class SizeAgreement:
    """Correction of the estimates of members and units, after which sizes times units is the number
    of members.

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
    def from_mechanisms(
        cls, members: ResidualMechanism, units: ResidualMechanism
    ) -> "SizeAgreement":
        """Find the equations between the residuals of two mechanisms."""
        space = members.space
        assert isinstance(space, KindSpace)
        public, equations = space.public, []
        size = public.size_axis
        if size is not None:
            for triple in agreeing_views(public, size):
                terms = _terms(public, (members, units), triple, size)
                if terms is not None:
                    equations.append(Agreement(*triple, size, terms))
        return cls(members, units, tuple(equations))

    @property
    def public(self) -> LinkedDataspace:
        """Public facts about both kinds."""
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
            other_equations = [other for other in self.equations if other is not one]
            if not any(is_within_view(one.units, other.units) for other in other_equations):
                chosen.append(one)
        return chosen

    def residuals(
        self, members: Floats, units: Floats
    ) -> tuple[dict[View, Floats], dict[View, Floats]]:
        """Return the residuals of both kinds, exact ones included, corrected so that they agree.

        With ``f = Σ c · r`` each residual falls by ``f σ² c/V``.

        Parameters
        ----------
        members, units
            The measured vectors of each kind.
        """
        of_members, of_units = (
            {**part.space.exact_residuals, **part.space.split_residuals(vector)}
            for part, vector in zip(self._parts, (members, units), strict=True)
        )
        both = (of_members, of_units)
        for equation in self.equations:
            total = equation.total
            # exact on both sides: nothing to correct
            if not total:
                continue
            # the equation holds of true residuals: what it misses by is noise
            gap = np.zeros(())
            for term in equation.terms:
                gap = gap + term.apply_coefficients(both[term.kind][term.view])
            for term in equation.terms:
                change = term.spread(gap * (term.variance / total))
                of_kind = both[term.kind]
                of_kind[term.view] = of_kind[term.view] - change
        return both

    def variances(self, kind: int, table: int, code: TopCode | None = None) -> Floats:
        """Return the variance of each cell of a table of members (0) or of units (1) once both
        kinds agree.

        With a top code every size from the top on has the variance of the last level.
        """
        mechanism = self._parts[kind]
        space = mechanism.space
        view = space.views[table]
        if code is None:
            variance = np.array(mechanism.cell_variances(table))
        else:
            variance = self._coded_variances(table, code)
        for equation in self.find_equations(view, kind):
            saved, source = self._compute_variance_decrease(equation, kind, view, code)
            variance -= space.restore_full_table(
                spread_residual(space.residuals, saved, source, view, power=2), view
            )
        # agreement only lowers variances; rounding must not take them below 0
        return np.asarray(np.maximum(variance, 0.0))

    def _coded_variances(self, table: int, code: TopCode) -> Floats:
        """Variances of a table of units by top-coded size before both kinds agree."""
        space = self.units.space
        view, axis = space.views[table], self.public.size_axis
        variance = np.zeros(space.residuals.shape(view))
        for small in space.inside[table]:
            centred = space.residuals.centred_variance(small, _entries(self.units, small))
            by_cell = spread_residual(space.residuals, centred, small, view, power=2)
            # A residual without the size has the weight k/n on the last level, where one size has
            # 1/n.
            grown = (
                code.spread_factor if axis in list_axes(small) else float(code.top_size_count**2)
            )
            factors = along_size(self.public, view, code.factors(grown))
            variance = variance + by_cell * factors
        return space.restore_full_table(variance, view)

    def find_equations(self, view: View, kind: int) -> list[Agreement]:
        """Return the equations that correct a table of members (0) or of units (1)."""
        seen = []
        for equation in self.equations:
            if equation.total and is_within_view(equation.entries(kind), view):
                seen.append(equation)
        return seen

    def shares(
        self, equation: Agreement, kind: int, view: View, code: TopCode | None = None
    ) -> tuple[Floats, LevelResidual | None]:
        """Return the share of a gap that corrects the cells of a table: one number, or one for each
        level of a term.

        A cell has an even share of what its entry gets, and the part of its own level. The last
        level of a top code has the shares of all its sizes.
        """
        even, by_level = equation.find_visible_terms(kind, view)
        changes = [float(term.variance * term.coefficients) for term in even]
        change = np.array(sum(changes))
        if by_level is not None:
            change = change / by_level.coefficients.size + by_level.variance * by_level.coefficients
            if code is not None:
                change = code.repeat_top_sum(change)
        return change / equation.total, by_level

    def _compute_variance_decrease(
        self, equation: Agreement, kind: int, view: View, code: TopCode | None = None
    ) -> tuple[Floats, View]:
        """Decrease of variances by a correction, ``2 λ Cov - λ² Var``, and the view of its
        residual. Variances are those of the noise that was drawn.
        """
        entries = equation.entries(kind)
        gap = np.zeros(())
        for term in equation.terms:
            square = float((term.coefficients**2).sum())
            gap = gap + square * self._entry_variances(equation, term)
        even, _ = equation.find_visible_terms(kind, view)
        common = np.zeros(self._parts[kind].space.residuals.shape(entries))
        for term in even:
            common = common + float(term.coefficients) * self._entry_variances(equation, term)
        shares, by_level = self.shares(equation, kind, view, code)
        if by_level is None:
            saved = 2 * shares * common - shares**2 * gap
            return np.asarray(saved), entries
        level_variances = self._entry_variances(equation, by_level)
        own_level = by_level.coefficients * level_variances[..., None]
        with_gap = common[..., None] / by_level.coefficients.size + own_level
        if code is not None:
            with_gap = code.repeat_top_sum(with_gap)
        saved = 2 * shares * with_gap - shares**2 * gap[..., None]
        return np.moveaxis(saved, -1, by_level.place), by_level.view

    def _entry_variances(self, equation: Agreement, term: AgreeingResidual) -> Floats:
        """Variance of a residual at one level of its own axis, centered along the features of the
        equation alone.
        """
        part = self._parts[term.kind]
        # the scale of an entry does not depend on the level, and coefficients add up to zero
        variances = term.at_one_level(_entries(part, term.view))
        return part.space.residuals.centred_variance(equation.entries(term.kind), variances)

    @property
    def _parts(self) -> tuple[ResidualMechanism, ResidualMechanism]:
        return self.members, self.units

    def weights(
        self, members: Mapping[View, Floats], units: Mapping[View, Floats]
    ) -> tuple[dict[View, Floats], dict[View, Floats]]:
        """Return weights on the measured residuals, from weights on the corrected ones.

        The transpose of `residuals`: with ``g = Σ σ² c · w`` the weights w of each residual become
        ``w - c g/V``.

        Parameters
        ----------
        members, units
            The weights on the residuals of each kind; those that are left out are zero.
        """
        both = (dict(members), dict(units))
        for equation in self.equations:
            if not equation.total:
                continue
            common = np.zeros(())
            for term in equation.terms:
                of_kind = both[term.kind]
                if term.view not in of_kind:
                    shape = self._parts[term.kind].space.residuals.shape(term.view)
                    of_kind[term.view] = np.zeros(shape)
                common = common + term.variance * term.apply_coefficients(of_kind[term.view])
            for term in equation.terms:
                change = term.spread(common / equation.total)
                of_kind = both[term.kind]
                of_kind[term.view] = of_kind[term.view] - change
        of_members, of_units = both
        return _measured_ones(of_members, self.members), _measured_ones(of_units, self.units)


def agreeing_views(public: LinkedDataspace, size: int) -> Iterator[tuple[View, View, View]]:
    """Yield the view of members, of units, and of units with the size, for every choice of depths
    of the features that both kinds have.

    The first triple is that of the total; `size` is the feature of units that is their size.
    """
    member_names = [feature.name for feature in public.schema.features]
    unit_names = [feature.name for feature in public.units.schema.features]
    shared = [name for name in unit_names if name in member_names]
    depths = []
    for name in shared:
        deepest = public.units.schema.grid.full[unit_names.index(name)]
        depths.append(range(deepest + 1))
    for chosen in itertools.product(*depths):
        by_name = dict(zip(shared, chosen, strict=True))
        members = tuple(by_name.get(name, 0) for name in member_names)
        units = tuple(by_name.get(name, 0) for name in unit_names)
        with_size = list(units)
        with_size[size] = 1
        sizes = tuple(with_size)
        yield members, units, sizes


def along_size(public: LinkedDataspace, view: View, values: Floats) -> Floats:
    """Return one number for each size, shaped to be multiplied with a table of units at a view."""
    axes = list_axes(view)
    return values.reshape([-1 if axis == public.size_axis else 1 for axis in axes])


def add_quarters_feature(quarters: int, members: View) -> View:
    """Return a view of members with the feature of quarters."""
    with_quarters = list(members)
    with_quarters[quarters] = 1
    return tuple(with_quarters)


def _terms(
    public: LinkedDataspace,
    mechanisms: tuple[ResidualMechanism, ResidualMechanism],
    triple: tuple[View, View, View],
    size: int,
) -> tuple[AgreeingResidual, ...] | None:
    """The terms of ``p = s̄ r^U + Σ (s - s̄) r_s``; None if one is neither measured nor exact.

    Beside quarters the members of counted units are ``r/|Q| + r_Q[home]``, |Q| the kinds that can
    hold a member.
    """
    members, units, sizes = triple
    levels = np.array([float(size) for size in public.link.sizes])
    # The plain mean, since residuals by size are centered over the sizes without weights.
    mean = levels.mean()
    parts: list[tuple[int, View, Floats, int | None]] = []
    share = 1.0
    if public.home is not None:
        quarters, level = public.home
        home = _home_level(public, quarters, level, mechanisms[0])
        share = 1 / home.size
        if home.size > 1:
            parts.append((0, add_quarters_feature(quarters, members), home - share, quarters))
    parts.insert(0, (0, members, np.array(share), None))
    parts.append((1, units, np.array(-mean), None))
    parts.append((1, sizes, mean - levels, size))
    terms: list[AgreeingResidual] = []
    for kind, view, coefficients, axis in parts:
        mechanism = mechanisms[kind]
        if view not in mechanism.space.needed_residuals:
            return None
        variance = _variance(mechanism, view)
        if axis is None:
            terms.append(AgreeingResidual(kind, view, coefficients, variance))
        else:
            terms.append(LevelResidual(kind, view, coefficients, variance, axis))
    return tuple(terms)


def _home_level(
    public: LinkedDataspace, quarters: int, level: int, mechanism: ResidualMechanism
) -> Floats:
    """One for the level of counted units, zero for the kinds of quarters that can hold a
    member.
    """
    view = add_quarters_feature(quarters, public.schema.grid.nothing)
    marked = np.zeros(public.schema.grid.compute_margin_shape(view))
    marked[level] = 1.0
    return np.asarray(mechanism.space.trim(marked, view), dtype=np.float64)


def _variance(mechanism: ResidualMechanism, view: View) -> float:
    """The mean variance of an entry of a residual before centering; 0 if it is exact."""
    return float(_entries(mechanism, view).mean())


def _entries(mechanism: ResidualMechanism, view: View) -> Floats:
    """The variance of each entry of a residual before centering; zeros where it is exact."""
    space = mechanism.space
    part = space.parts.get(view)
    if part is None:
        return np.zeros(space.residuals.shape(view))
    scales = space.scales[part].astype(float)
    variances = mechanism.variances[part] / scales**2
    return np.asarray(variances.reshape(space.residuals.shape(view)))


def _measured_ones(
    weights: Mapping[View, Floats], mechanism: ResidualMechanism
) -> dict[View, Floats]:
    """Weights on the residuals that have noise; those on exact ones are dropped."""
    noisy = mechanism.space.parts
    return {view: values for view, values in weights.items() if view in noisy}
