"""Several releases of linked members and units, and of members alone: one estimate of every table.

What was measured of the residuals of each kind is averaged by precision, and both kinds are made to
agree once (`linked_pool`). Exact totals of any release bind all.
"""

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.accounting.account import recompute_tradeoff
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.linked_intervals import alike_nodes
from semidp.promise.mechanisms.linked_noise import LinkedMechanism
from semidp.promise.mechanisms.size_agreement import assemble_tables
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.linked_products import KindSpace, LinkedSpace
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT, Link, LinkedDataspace, linked_adjacency
from semidp.publish.combined.combination import Combination, join_totals, same_records
from semidp.publish.combined.linked_pool import PooledLinked
from semidp.publish.combined.residual_combination import (
    AveragedReleases,
    ResidualCombination,
    distinct_measurements,
    is_large,
    law_half_widths,
    record_measurements,
)
from semidp.publish.combined.residual_pool import (
    MeasuredResiduals,
    ResidualMeasurement,
)
from semidp.publish.combined.several_releases import (
    ListedTable,
    SeveralReleases,
)
from semidp.publish.combined.tree_layout import Floats
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.linked_fitting import fitted_kinds, refuse_unfitted

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


@frozen(slots=False, eq=False)
class LinkedCombination(AveragedReleases):
    """Several releases, of which one at least is of linked members and units.

    Parameters
    ----------
    releases
        What is combined.
    dataspace
        What all releases together publish exactly.
    """

    dataspace: LinkedDataspace

    @cached_property
    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Every table of any release once: those of members, then those of units."""
        tables: dict[tuple[str, View], ListedTable] = {}
        for release in self.releases:
            for table in release.tables:
                counted = UNIT if table.counted == UNIT else MEMBER
                schema = self.dataspace.for_kind(counted).schema
                view = schema.view([feature.name for feature in table.schema.features])
                names = [one.name for one in tables.values()]
                features = "-".join(feature.name for feature in table.schema.features)
                plainly = not table.is_named or table.name in names
                name = features if plainly else table.name
                one = ListedTable(name, schema.list_view_names(view), counted)
                tables.setdefault((counted, view), one)
        return tuple(sorted(tables.values(), key=lambda one: one.counted == UNIT))

    @cached_property
    def space(self) -> LinkedSpace:
        """The residuals of both kinds of all tables; what they cost is not asked here."""
        # No pair of datasets is compared for an estimate, so that any adjacency will do.
        adjacency = Ball(1)
        kinds = []
        for counted in (MEMBER, UNIT):
            public = self.dataspace.for_kind(counted)
            views = []
            for one in self.listed_tables:
                if one.counted == counted:
                    views.append(public.schema.view(one.features))
            kinds.append(KindSpace(public, adjacency, tuple(views), self.dataspace, counted))
        return LinkedSpace(self.dataspace, adjacency, *kinds)

    @cached_property
    def noise(self) -> PooledLinked:
        """Everything that was measured; refuse the same measurement twice."""
        measured = distinct_measurements(self.releases, self.space, kind_measurements)
        pooled = PooledLinked(self.space, measured)
        refuse_unfitted(pooled.mechanism)
        return pooled

    @cached_property
    def _estimates(self) -> list[Floats]:
        tables = []
        for kind, residuals in zip(self.space.kinds, self.noise.residuals, strict=True):
            tables += assemble_tables(residuals, kind)
        return tables

    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, by its number in `listed`."""
        first = len(self.space.members.views)
        agreement = self.noise.mechanism.agreement
        if number < first:
            variances = agreement.member_variances(number)
        else:
            variances = agreement.unit_variances(number - first)
        return self._estimates[number], np.sqrt(variances)

    def table_half_widths(self, number: int) -> Floats | None:
        """How far each cell is off at most in 95% of all draws; see `law_half_widths`."""
        first = len(self.space.members.views)
        which, place = (0, number) if number < first else (1, number - first)
        kind = self.space.kinds[which]
        view = kind.views[place]
        _, errors = self.table_estimates(number)
        alike = [alike_nodes(self.space, kind, axis, view[axis]) for axis in list_axes(view)]
        return law_half_widths(self.noise, kind, view, number, errors, alike)

    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers of both kinds that agree: sizes first, then what they leave of the
        members.
        """
        fit_kinds = tuple([FitKind.integer] * len(kind.views) for kind in self.space.kinds)
        members, units = fitted_kinds(
            self.noise.mechanism, self.noise.residuals, (fit_kinds[0], fit_kinds[1]), progress
        )
        return [*members, *units]

    def guarantee(self) -> Guarantee:
        """Return what all releases guarantee together under the one promise that they make; refuse
        where they do not add up.
        """
        spaces = [release.scope.dataspace for release in self.releases]
        if not all(isinstance(space, LinkedDataspace) for space in spaces):
            raise Refused(
                "a release of members alone makes another promise than one of linked members and"
                " units"
            )
        kinds = {release.guarantee.adjacency.kind for release in self.releases}
        if len(kinds) > 1:
            raise Refused("ball and exchange are two promises and are not added up")
        adjacency = linked_adjacency(self.dataspace, kinds.pop())
        records = []
        for release in self.releases:
            records += [mechanism.record() for mechanism in release.mechanisms]
        return Guarantee(
            self.dataspace, adjacency, recompute_tradeoff(records, self.dataspace, adjacency)
        )


def kind_measurements(release: "ReleaseValue", space: LinkedSpace) -> list[ResidualMeasurement]:
    """Return what a release measured of the residuals of members and of units."""
    if not isinstance(release.scope.dataspace, LinkedDataspace):
        return record_measurements(release, space.members)
    parts: list[ResidualMeasurement] = []
    for result, mechanism in zip(release.results, release.mechanisms, strict=True):
        assert isinstance(mechanism, LinkedMechanism)
        vectors = mechanism.space.split(np.asarray(result.noisy))
        for which, (part, noisy) in enumerate(zip(mechanism.parts, vectors, strict=True)):
            parts.append(MeasuredResiduals(which, space.kinds[which], part, noisy))
    return parts


def linked_dataspace(releases: "Sequence[ReleaseValue]") -> LinkedDataspace:
    """Dataspace of all exact totals of members and of units; refuse releases that cannot be of the
    same records, or make several promises.
    """
    every = [release.scope.dataspace for release in releases]
    linked = [public for public in every if isinstance(public, LinkedDataspace)]
    of_members = []
    for public in every:
        # A release of members alone says nothing of their units.
        of_members.append(public.members if isinstance(public, LinkedDataspace) else public)
    units = reduce(same_records, [public.units for public in linked])
    link = reduce(_one_promise, [public.link for public in linked])
    members = reduce(same_records, of_members)
    together = LinkedDataspace.joining(members, units, link)
    # Exact totals under which the promise is not known are refused here.
    _ = together.reach
    return together


def _one_promise(one: Link, other: Link) -> Link:
    """Refuse two promises; features of units that depend on members are those of both."""
    derived = tuple(dict.fromkeys((*one.derived, *other.derived)))
    both = evolve(one, derived=derived)
    if evolve(other, derived=derived, column=one.column) != both:
        raise Refused(
            "linked releases are combined where all make one promise: the same who is protected,"
            " the same bounds on the members of a unit, the same group quarters"
        )
    return both


def one_estimate(releases: "Sequence[ReleaseValue]", dataspace: Dataspace) -> SeveralReleases:
    """Return several releases as one set of measurements, in the way that their common dataspace
    needs.
    """
    if isinstance(dataspace, LinkedDataspace):
        return LinkedCombination(tuple(releases), dataspace)
    if is_large(dataspace):
        return ResidualCombination(tuple(releases), dataspace)
    return Combination(tuple(releases), dataspace)


def common_dataspace(releases: "Sequence[ReleaseValue]") -> Dataspace:
    """Dataspace of all exact totals of all releases; refuse releases that cannot be of the same
    records.
    """
    linked = any(isinstance(release.scope.dataspace, LinkedDataspace) for release in releases)
    return linked_dataspace(releases) if linked else join_totals(releases)
