"""Whole numbers for linked tables: sizes first, then what they leave of the members (THEORY §15).

At the depth where members are exact, units by size have both totals. Below, units by place and size are divided among
the children; how many members a place has follows, and is a total of the member tables. The other order (members of
places first) is infeasible in a third of the cases.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Floats, Totals, View, meet, named, within
from semidp.core.progress import Progress
from semidp.errors import Refused
from semidp.fitting.size_fits import fit_sizes
from semidp.mechanisms.linked_noise import LinkedMechanism
from semidp.mechanisms.size_agreement import Agreement
from semidp.queries.linked_products import LinkedSpace
from semidp.statistics.tables.fitting import fit_product, totals_of
from semidp.statistics.tables.published import FitKind, Fitted

Fit = tuple[NDArray[Any], Fitted]


def refuse_unfitted(mechanism: LinkedMechanism) -> None:
    """Refuse exact totals of members under which sizes have no order of fits: before anything is charged."""
    deepest = mechanism.agreement.deepest
    if len(deepest) > 1 and any(any(_exact_depths(mechanism.space, one)) for one in deepest):
        raise Refused(
            "units by size are asked for by several features of units, and members are exact by one of them: ask for "
            "one table of units with all of these features"
        )


def fitted_kinds(
    mechanism: LinkedMechanism,
    residuals: tuple[dict[View, Floats], dict[View, Floats]],
    kinds: tuple[list[FitKind], list[FitKind]],
    progress: Progress,
) -> tuple[list[Fit], list[Fit]]:
    """Return whole numbers for the tables of members and of units.

    Parameters
    ----------
    mechanism
        How both kinds were measured.
    residuals
        The residuals of both kinds, which agree.
    kinds
        How each table is fitted.
    progress
        Told what is going on.
    """
    space = mechanism.space
    of_members, of_units = residuals
    sizes = [_at_exact_depth(mechanism, one, of_units) for one in mechanism.agreement.deepest]
    unit_fits, by_size = _unit_tables(mechanism, of_units, kinds[1], sizes, progress)
    totals = totals_of(space.members)
    for equation in mechanism.agreement.deepest:
        totals.append(_members_of(mechanism, equation, by_size[equation.sizes]))
    tables = [_whole(space, 0, of_members, view) for view in space.members.views]
    grid = space.members.schema.grid
    member_fits = fit_product(grid, space.members.views, totals, tables, kinds[0], progress)
    return member_fits, unit_fits


def _unit_tables(
    mechanism: LinkedMechanism,
    residuals: dict[View, Floats],
    kinds: Sequence[FitKind],
    sizes: Sequence[Totals],
    progress: Progress,
) -> tuple[list[Fit], dict[View, NDArray[np.int64]]]:
    """Fit units by size down every chain of places, then the tables; also return units by size."""
    space = mechanism.space.units
    chain: list[View] = []
    for equation, start in zip(mechanism.agreement.deepest, sizes, strict=True):
        chain += _chain(mechanism.space, start.view, equation)
    exact = totals_of(space)
    settled = {total.view for total in sizes}
    auxiliary = []
    for view in dict.fromkeys(chain):
        is_exact = any(within(view, total.view) for total in exact)
        if view not in settled and not is_exact:
            auxiliary.append(view)
    views = [*auxiliary, *(view for view in space.views if view not in auxiliary)]
    of_table = dict(zip(space.views, kinds, strict=True))
    estimates = [_whole(mechanism.space, 1, residuals, view) for view in views]
    chosen = [of_table.get(view, FitKind.integer) if view not in auxiliary else FitKind.integer for view in views]
    later = sorted(range(len(auxiliary), len(views)), key=lambda place: estimates[place].size)
    order = [*range(len(auxiliary)), *later]
    fits = fit_product(space.schema.grid, views, [*exact, *sizes], estimates, chosen, progress, order=order)
    by_view = dict(zip(views, fits, strict=True))
    by_size = {total.view: total.counts for total in sizes}
    by_size |= {view: by_view[view][0] for view in auxiliary}
    tables = [
        _as_asked(by_view[view], of_table[view], estimate)
        for view, estimate in zip(
            space.views, (_whole(mechanism.space, 1, residuals, view) for view in space.views), strict=True
        )
    ]
    return tables, by_size


def _as_asked(fit: Fit, kind: FitKind, estimate: Floats) -> Fit:
    """A table that is asked for without whole numbers, though units by size were fitted on the way."""
    if kind is FitKind.integer or fit[1].kind != "integer":
        return fit
    return estimate, Fitted(str(kind), "none", 0.0, 0.0, True, "The estimate itself is published.")


def _exact_depths(space: LinkedSpace, equation: Agreement) -> View:
    """How deep the exact totals of members reach into an equation, as a view of units."""
    public = space.dataspace
    inherited = [tuple(0 for _ in public.schema.features)]
    for margin in public.published:
        kept = tuple(depth if axis in public.inherited_axes else 0 for axis, depth in enumerate(margin.view))
        inherited.append(kept)
    places = [meet(view, equation.members) for view in inherited]
    deepest = max(places, key=sum)
    names = [feature.name for feature in public.schema.features]
    by_name = dict(zip(names, deepest, strict=True))
    return tuple(by_name.get(feature.name, 0) for feature in public.units.schema.features)


def _at_exact_depth(mechanism: LinkedMechanism, equation: Agreement, residuals: dict[View, Floats]) -> Totals:
    """Units by size at the deepest place where members are exact, with both totals."""
    space = mechanism.space
    depths = _exact_depths(space, equation)
    size = space.dataspace.size_axis
    assert size is not None
    view = tuple(1 if axis == size else depth for axis, depth in enumerate(depths))
    estimate = np.moveaxis(_whole(space, 1, residuals, view), named(view).index(size), -1)
    units = _exact_counts(space.units.dataspace, depths)
    members = _exact_counts(space.members.dataspace, _as_members(space, depths))
    counts = np.zeros(estimate.shape, dtype=np.int64)
    least = space.dataspace.link.least
    for place in np.ndindex(estimate.shape[:-1]):
        counts[place] = fit_sizes(estimate[place], least, int(units[place]), int(members[place]))
    return Totals(view, np.moveaxis(counts, -1, named(view).index(size)))


def _as_members(space: LinkedSpace, view: View) -> View:
    """A view of features of units as one of members."""
    names = [feature.name for feature in space.units.schema.features]
    by_name = dict(zip(names, view, strict=True))
    return tuple(by_name.get(feature.name, 0) for feature in space.members.schema.features)


def _exact_counts(dataspace: Any, view: View) -> NDArray[np.int64]:
    """Exact counts at a view; refuse where units are not exact there."""
    grid = dataspace.schema.grid
    if not any(view):
        return np.array(dataspace.n, dtype=np.int64)
    for margin in dataspace.published:
        if within(view, margin.view):
            return np.asarray(grid.sum(margin.counts, view, margin.view), dtype=np.int64)
    raise Refused("members are exact where units are not, so that sizes cannot be fitted: publish both exactly")


def _chain(space: LinkedSpace, start: View, equation: Agreement) -> list[View]:
    """The views between units by size at the exact depth and those of an equation, one depth a step.

    For each step first the units, then the units by size.
    """
    size = space.dataspace.size_axis
    current = tuple(0 if axis == size else depth for axis, depth in enumerate(start))
    views: list[View] = []
    for axis, deepest in enumerate(equation.units):
        for depth in range(current[axis] + 1, deepest + 1):
            current = tuple(depth if other == axis else known for other, known in enumerate(current))
            views.append(current)
            views.append(tuple(1 if other == size else known for other, known in enumerate(current)))
    return views


def _members_of(mechanism: LinkedMechanism, equation: Agreement, by_size: NDArray[np.int64]) -> Totals:
    """The members of every place of an equation: sizes times units."""
    size = mechanism.space.dataspace.size_axis
    assert size is not None
    sizes = np.array([int(level) for level in mechanism.space.dataspace.link.sizes], dtype=np.int64)
    place = named(equation.sizes).index(size)
    return Totals(equation.members, np.moveaxis(by_size, place, -1) @ sizes)


def _whole(space: LinkedSpace, kind: int, residuals: dict[View, Floats], view: View) -> Floats:
    """The estimate of a table at any view that its residuals cover."""
    of_kind = space.kinds[kind]
    return of_kind.whole(of_kind.residuals.together(residuals, view), view)
