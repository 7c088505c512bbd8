"""Whole numbers for linked tables: sizes first, then members (docs/linked.md, "How they agree").

At the depth where members are exact, units by size have both totals. Below, units by place and size
are divided among the children; the number of members of a place follows, and is a total of the
member tables. The other order (members of places first) is infeasible in a third of the cases.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.progress import Progress
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import (
    Floats,
    Grid,
    Totals,
    View,
    is_within_view,
    list_axes,
    meet,
)
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.publish.fitting.tables import balance_members, fit_sizes
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.product_estimates import sum_residuals
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.size_agreement import Agreement, add_quarters_feature
from semidp.publish.statistics.tables.fitting import NOT_ALL, exact_totals, fit_product

Fit = tuple[NDArray[Any], Fitted]


def refuse_unfitted(mechanism: LinkedMechanism) -> None:
    """Refuse exact totals of members under which sizes have no order of fits, before any
    charge.
    """
    # Each equation would begin at an exact depth of its own, and two beginnings need not have the
    # same number of units of each size.
    deepest = mechanism.agreement.deepest
    if len(deepest) < 2:
        return
    if any(any(_exact_depths(mechanism.space, one)) for one in deepest):
        raise Refused(
            "units by size are asked for by several features of units, and members are exact by one"
            " of them: ask for one table of units with all of these features"
        )


def fitted_kinds(
    mechanism: LinkedMechanism,
    residuals: tuple[dict[View, Floats], dict[View, Floats]],
    fit_kinds: Sequence[list[FitKind]],
    progress: Progress,
) -> tuple[list[Fit], list[Fit]]:
    """Return whole numbers for the tables of members and of units.

    Parameters
    ----------
    mechanism
        How both kinds were measured.
    residuals
        The residuals of members and units, which agree.
    fit_kinds
        How each table is fitted.
    progress
        Told what is going on.
    """
    space = mechanism.space
    unit_fits, by_size = _unit_tables(mechanism, residuals, fit_kinds[1], progress)
    # members of a place follow from the sizes there
    totals = exact_totals(space.members)
    member_residuals = residuals[0]
    for equation in mechanism.agreement.deepest:
        sizes = by_size[equation.sizes]
        totals.append(_members_by_place(mechanism, equation, sizes, member_residuals, progress))
    tables = [_estimate_table(space, 0, member_residuals, view) for view in space.members.views]
    grid = space.members.schema.grid
    member_fits = fit_product(grid, space.members.views, totals, tables, fit_kinds[0], progress)
    return member_fits, unit_fits


def _unit_tables(
    mechanism: LinkedMechanism,
    residuals: tuple[dict[View, Floats], dict[View, Floats]],
    fit_kinds: Sequence[FitKind],
    progress: Progress,
) -> tuple[list[Fit], dict[View, NDArray[np.int64]]]:
    """Fit units by size down every chain of places, then the tables; also return units by size."""
    space = mechanism.space.units
    settled = exact_totals(space)
    by_size: dict[View, NDArray[np.int64]] = {}
    for equation in mechanism.agreement.deepest:
        beside = _beside_sizes(mechanism, equation)
        start = _at_exact_depth(mechanism, equation, residuals)
        by_size[start.view] = start.counts
        settled.append(start)
        joint = _deeper(start.view, beside)
        if joint != start.view:
            settled.append(_fit_units(mechanism.space, joint, residuals[1], settled, progress))
            by_size[joint] = settled[-1].counts
        for parent, view in _steps(mechanism.space, start.view, equation):
            # Sizes are divided under the units of every child, so those are settled first.
            units = _without_size(mechanism.space, view)
            if not any(is_within_view(units, total.view) for total in settled):
                settled.append(_fit_units(mechanism.space, units, residuals[1], settled, progress))
            # children by size, with the sizes of their parent and their own units: always feasible
            joint = _deeper(view, beside)
            fitted = _fit_units(mechanism.space, joint, residuals[1], settled, progress)
            balanced = _balance_units(mechanism, equation, fitted, parent, view, residuals)
            settled.append(balanced)
            by_size[joint] = balanced.counts
            by_size[view] = balanced.sum_to_view(space.schema.grid, view).counts
    return _asked_tables(
        mechanism.space, residuals[1], fit_kinds, settled, by_size, progress
    ), by_size


def _beside_sizes(mechanism: LinkedMechanism, equation: Agreement) -> View:
    """The features of units that are divided among children together with the sizes.

    Units by size and tenure that are asked for in counties and in tracts are fitted jointly down
    the places (docs/linked.md). Sizes of tracts that were fitted before would close a circle with
    the counties' sizes by tenure.
    """
    views = mechanism.space.units.views
    size = equation.size_axis
    nothing = tuple(0 for _ in equation.units)
    with_more = []
    for view in views:
        pairs = zip(equation.sizes, view, strict=True)
        more = tuple(0 if by_place else depth for by_place, depth in pairs)
        if view[size] and any(more):
            with_more.append((view, more))
    carriers = []
    for view, more in with_more:
        if all(is_within_view(other, view) for other, _ in with_more):
            carriers.append(more)
    coarser = [view for view, _ in with_more if not is_within_view(equation.sizes, view)]
    several = len(mechanism.agreement.deepest) > 1
    return nothing if several or not carriers or not coarser else carriers[0]


def _deeper(view: View, other: View) -> View:
    """A view with the features of both."""
    return tuple(map(max, view, other))


def _asked_tables(
    space: LinkedSpace,
    residuals: dict[View, Floats],
    fit_kinds: Sequence[FitKind],
    settled: Sequence[Totals],
    by_size: dict[View, NDArray[np.int64]],
    progress: Progress,
) -> list[Fit]:
    """Fit the tables of units that are not settled yet."""
    every = space.units.views
    left = [number for number, view in enumerate(every) if view not in by_size]
    estimates = [_estimate_table(space, 1, residuals, view) for view in every]
    fits: list[Fit] = []
    if left:
        views = [space.units.views[number] for number in left]
        some = [estimates[number] for number in left]
        chosen = [fit_kinds[number] for number in left]
        fits = fit_product(space.units.schema.grid, views, settled, some, chosen, progress)
    by_number = dict(zip(left, fits, strict=True))
    tables = []
    for number, view in enumerate(every):
        estimate = estimates[number]
        if number in by_number:
            fit = by_number[number]
        else:
            fit = _sizes_first_fit(by_size[view], estimate)
        tables.append(_as_asked(fit, fit_kinds[number], estimate))
    return tables


def _sizes_first_fit(counts: NDArray[np.int64], estimate: Floats) -> Fit:
    """A table that was fitted on the way down the places."""
    loss = float(np.square(counts - estimate).sum())
    note = "Units by size are fitted first, so that members follow from them."
    return counts, Fitted("integer", "sizes first", loss, 0.0, False, note)


def _fit_units(
    space: LinkedSpace,
    view: View,
    residuals: dict[View, Floats],
    settled: Sequence[Totals],
    progress: Progress,
) -> Totals:
    """Whole numbers of units at a view, with all that is settled of it."""
    estimate = _estimate_table(space, 1, residuals, view)
    return _fitted_alone(space.units.schema.grid, view, settled, estimate, progress)


def _fitted_alone(
    grid: Grid, view: View, totals: Sequence[Totals], estimate: Floats, progress: Progress
) -> Totals:
    """Whole numbers of a single table."""
    fit_kinds = [FitKind.integer]
    ((counts, how),) = fit_product(grid, [view], totals, [estimate], fit_kinds, progress)
    # Later tables take these counts for totals, so counts that miss some would spread the error.
    if how.note.startswith(NOT_ALL):
        raise Refused(
            "no whole numbers of units with all of their exact totals were found: publish fewer"
            " exact totals of units"
        )
    return Totals(view, np.asarray(counts, dtype=np.int64))


def _balance_units(
    mechanism: LinkedMechanism,
    equation: Agreement,
    fitted: Totals,
    parent: View,
    view: View,
    residuals: tuple[dict[View, Floats], dict[View, Floats]],
) -> Totals:
    """Units by place and size whose members are near the estimates, parent by parent.

    Where `fitted` has further features than `view`, units that agree in them are exchanged.
    """
    space, grid = mechanism.space, mechanism.space.units.schema.grid
    places = _without_size(space, view)
    estimate = _estimate_table(space, 1, residuals[1], fitted.view)
    counts, order = _by_place(space, equation.size_axis, fitted.counts, fitted.view, places)
    expected, _ = _by_place(space, equation.size_axis, estimate, fitted.view, places)
    members = _living_in_units(space, residuals[0], _as_members(space, places)).ravel()
    families = grid.labels(_without_size(space, parent), places)
    rows = counts.copy()
    least = space.dataspace.link.least
    in_turn = np.argsort(families, kind="stable")
    firsts = np.flatnonzero(np.diff(families[in_turn])) + 1
    # exchanges stay within a parent, whose sizes are settled
    for family in np.split(in_turn, firsts):
        # An only child has the sizes of its parent: there is nobody to exchange with.
        if len(family) > 1:
            counts = rows[family]
            rows[family] = balance_members(counts, expected[family], least, members[family])
    shape = [fitted.counts.shape[axis] for axis in order]
    balanced = rows.reshape(shape).transpose(np.argsort(order))
    return Totals(fitted.view, balanced)


def _by_place(
    space: LinkedSpace, size: int, values: NDArray[Any], view: View, places: View
) -> tuple[NDArray[Any], list[int]]:
    """A table of units as places × further features × sizes, and the order of its axes there."""
    axes = list_axes(view)
    further = [axis for axis in axes if not places[axis] and axis != size]
    in_turn = (*list_axes(places), *further, size)
    order = [axes.index(axis) for axis in in_turn]
    turned = np.transpose(values, order)
    number = space.units.schema.grid.count_margin_cells(places)
    return turned.reshape(number, -1, turned.shape[-1]), order


def _without_size(space: LinkedSpace, view: View) -> View:
    """A view of units without their size."""
    size = space.dataspace.size_axis
    return view if size is None else _with_depth(view, size, 0)


def _with_depth(view: View, axis: int, depth: int) -> View:
    """The view with another depth of one feature."""
    return (*view[:axis], depth, *view[axis + 1 :])


def _as_asked(fit: Fit, kind: FitKind, estimate: Floats) -> Fit:
    """A table that is asked for without whole numbers, though units by size were fitted on the
    way.
    """
    if kind is FitKind.integer or fit[1].kind != "integer":
        return fit
    return estimate, Fitted(str(kind), "none", 0.0, 0.0, True, "The estimate itself is published.")


def _exact_depths(space: LinkedSpace, equation: Agreement) -> View:
    """How deep the exact totals of members reach into an equation, as a view of units."""
    public = space.dataspace
    inherited = [tuple(0 for _ in public.schema.features)]
    for margin in public.published_totals:
        kept = [0] * len(margin.view)
        for axis in public.inherited_axes:
            kept[axis] = margin.view[axis]
        inherited.append(tuple(kept))
    # At most one exact total of members names features of units, but for totals nested in it.
    places = [meet(view, equation.members) for view in inherited]
    deepest = max(places, key=sum)
    names = [feature.name for feature in public.schema.features]
    by_name = dict(zip(names, deepest, strict=True))
    return tuple(by_name.get(feature.name, 0) for feature in public.units.schema.features)


def _at_exact_depth(
    mechanism: LinkedMechanism,
    equation: Agreement,
    residuals: tuple[dict[View, Floats], dict[View, Floats]],
) -> Totals:
    """Units by size at the deepest place where members are exact, with both totals."""
    space = mechanism.space
    depths = _exact_depths(space, equation)
    size = equation.size_axis
    view = _with_depth(depths, size, 1)
    place_of_size = list_axes(view).index(size)
    # Sizes go last, so every place has a row of them.
    estimate = np.moveaxis(_estimate_table(space, 1, residuals[1], view), place_of_size, -1)
    units = _exact_counts(space.units.dataspace, depths)
    members = _exact_members(space, _as_members(space, depths), units, residuals[0])
    counts = np.zeros(estimate.shape, dtype=np.int64)
    least = space.dataspace.link.least
    for place in np.ndindex(estimate.shape[:-1]):
        units_here = int(units[place])
        members_here = int(members[place])
        counts[place] = fit_sizes(estimate[place], least, units_here, members_here)
    return Totals(view, np.moveaxis(counts, -1, place_of_size))


def _exact_members(
    space: LinkedSpace, view: View, units: NDArray[np.int64], residuals: dict[View, Floats]
) -> NDArray[np.int64]:
    """The members of counted units where members are exact: known, or near the estimate next to
    quarters.
    """
    public = space.dataspace
    members = _exact_counts(public.members, view)
    if public.home is None:
        return members
    by_kind = add_quarters_feature(public.home[0], view)
    if any(is_within_view(by_kind, margin.view) for margin in public.published_totals):
        return _at_home(public.home, _exact_counts(public.members, by_kind), by_kind)
    # everybody else lives in quarters, which hold as many as there are
    most = np.minimum(public.link.most * units, members)
    estimate = np.rint(_living_in_units(space, residuals, view)).astype(np.int64)
    # Outside of these bounds no sizes have both totals, and the fit would be refused.
    return np.clip(estimate, public.link.least * units, most)


def _at_home(home: tuple[int, int], values: NDArray[Any], view: View) -> NDArray[Any]:
    """What a table of members by quarters says of those who live in counted units: at their level
    of the feature of quarters.
    """
    axis, level = home
    place = list_axes(view).index(axis)
    return np.asarray(np.take(values, level, axis=place))


def _living_in_units(space: LinkedSpace, residuals: dict[View, Floats], view: View) -> Floats:
    """The estimated members of counted units at a view of places."""
    home = space.dataspace.home
    if home is None:
        return _estimate_table(space, 0, residuals, view)
    by_kind = add_quarters_feature(home[0], view)
    return _at_home(home, _estimate_table(space, 0, residuals, by_kind), by_kind)


def _as_members(space: LinkedSpace, view: View) -> View:
    """A view of features of units as one of members."""
    names = [feature.name for feature in space.units.schema.features]
    by_name = dict(zip(names, view, strict=True))
    return tuple(by_name.get(feature.name, 0) for feature in space.members.schema.features)


def _exact_counts(dataspace: Any, view: View) -> NDArray[np.int64]:
    """Exact counts at a view where members are exact, of members or of units."""
    grid = dataspace.schema.grid
    if not any(view):
        return np.array(dataspace.n, dtype=np.int64)
    # Where members are exact, so are units: anything else was refused before noise was calibrated.
    margin = next(
        margin for margin in dataspace.published_totals if is_within_view(view, margin.view)
    )
    return np.asarray(grid.sum(margin.counts, view, margin.view), dtype=np.int64)


def _steps(space: LinkedSpace, start: View, equation: Agreement) -> list[tuple[View, View]]:
    """Units by size from the exact depth to that of an equation, one depth a step: each with the
    one before.
    """
    current = start
    steps: list[tuple[View, View]] = []
    for axis, deepest in enumerate(equation.units):
        for depth in range(current[axis] + 1, deepest + 1):
            finer = _with_depth(current, axis, depth)
            steps.append((current, finer))
            current = finer
    return steps


def _members_by_place(
    mechanism: LinkedMechanism,
    equation: Agreement,
    by_size: NDArray[np.int64],
    residuals: dict[View, Floats],
    progress: Progress,
) -> Totals:
    """The members of every place of an equation: sizes times units, and those in quarters next to
    them.
    """
    space = mechanism.space
    levels = space.dataspace.link.sizes
    sizes = np.array([int(level) for level in levels], dtype=np.int64)
    living = np.moveaxis(by_size, equation.place_of_size, -1) @ sizes
    home = space.dataspace.home
    if home is None:
        return Totals(equation.members, living)
    return _with_quarters(mechanism, equation, home, living, residuals, progress)


def _with_quarters(
    mechanism: LinkedMechanism,
    equation: Agreement,
    home: tuple[int, int],
    living: NDArray[np.int64],
    residuals: dict[View, Floats],
    progress: Progress,
) -> Totals:
    """Members by place and quarters: those of counted units are settled, the others are fitted to
    what is left.
    """
    space, public = mechanism.space, mechanism.space.dataspace
    axis, level = home
    view = add_quarters_feature(axis, equation.members)
    at = list_axes(view).index(axis)
    # a table of the quarters alone, whose totals are the exact ones less the members of counted
    # units
    levels = list(public.schema.features[axis].levels)
    del levels[level]
    features = list(public.schema.features)
    features[axis] = Feature(features[axis].name, levels)
    grid = Schema(tuple(features)).grid
    depths = _as_members(space, _exact_depths(space, equation))
    settled = public.schema.grid.sum(living, depths, equation.members)
    left = _exact_counts(public.members, depths) - settled
    by_kind = add_quarters_feature(axis, depths)
    totals = [Totals(depths, left)]
    if any(is_within_view(by_kind, margin.view) for margin in public.published_totals):
        exact = _exact_counts(public.members, by_kind)
        outside_exact = np.delete(exact, level, axis=list_axes(by_kind).index(axis))
        totals = [Totals(by_kind, outside_exact)]
    estimate = np.delete(_estimate_table(space, 0, residuals, view), level, axis=at)
    outside = _fitted_alone(grid, view, totals, estimate, progress)
    return Totals(view, np.insert(outside.counts, level, living, axis=at))


def _estimate_table(
    space: LinkedSpace, kind: int, residuals: dict[View, Floats], view: View
) -> Floats:
    """The estimate of a table at any view that its residuals cover."""
    of_kind = space.kinds[kind]
    return of_kind.restore_full_table(sum_residuals(of_kind.residuals, residuals, view), view)
