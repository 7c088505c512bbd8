"""Several releases, residual by residual: nothing larger than the largest table is held.

Where every residual was measured by itself, and levels in use are the same in all releases, the
best estimate is the average of what was measured of each, whatever the branching of nested features
and however many there are (docs/combine.md). `combination` is for all other cases of one kind of
records, within its limits. What was measured of linked members and units, or of members alone, is
averaged for each kind, and both kinds are made to agree once (`residual_pool`).
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.accounting.account import recompute_tradeoff
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.conditioning import sum_terms
from semidp.promise.mechanisms.linked_noise import LinkedMechanism
from semidp.promise.mechanisms.mechanism import CellByCell, NoNoise
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.mechanisms.selection import INTERVALS_BELOW
from semidp.promise.mechanisms.size_agreement import assemble_tables
from semidp.promise.noise.sums import LEVEL, half_width
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import KindSpace, LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT, Link, LinkedDataspace, linked_adjacency
from semidp.publish.combined.combination import (
    MOST_CELLS,
    MOST_COUPLED,
    Combination,
    join_totals,
    listed_views,
    refuse_other_noise,
    same_records,
    totals_and_n,
)
from semidp.publish.combined.residual_pool import (
    MeasuredResiduals,
    PooledLinked,
    ResidualMeasurement,
    ResidualPool,
    measured_cells,
    measurement_digest,
)
from semidp.publish.combined.several_releases import (
    ListedTable,
    SeveralReleases,
    count_cells,
    refuse_twice,
    tables_of_views,
)
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.fitting import fit_product
from semidp.publish.statistics.tables.linked_fitting import fitted_kinds, refuse_unfitted
from semidp.publish.statistics.tables.linked_intervals import alike_nodes

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


MOST_LAWS = 150
"""Different cells of a table whose own laws are computed."""
_SMOOTHING = 2e-3
Space = TypeVar("Space", ProductSpace, LinkedSpace)
"""The residuals of tables of one kind of records, or of members and units."""

_NOTHING = 1e-12  # a weight that floating point has left where there is none


@dataclass(frozen=True, eq=False)
class PooledProduct(ResidualPool):
    """The noise of tables of one kind of records that several releases measured."""

    space: ProductSpace

    @property
    def kinds_of_records(self) -> tuple[ProductSpace, ...]:
        """The residuals of the one kind of records."""
        return (self.space,)

    @cached_property
    def mechanism(self) -> ResidualMechanism:
        """The variances of the averages."""
        return self.pool_residuals(0)

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on every number that was drawn, from weights on cells."""
        return self.on_numbers([self.space.gather_weights(weights)])


@frozen(slots=False, eq=False)
class AveragedReleases(SeveralReleases):
    """Several releases whose residuals are averaged: of one kind of records, or of linked ones."""

    @cached_property
    @abstractmethod
    def noise(self) -> ResidualPool:
        """Everything that was measured."""

    @cached_property
    @abstractmethod
    def _estimates(self) -> list[Floats]:
        """The estimated cells of every table in `listed`."""

    def sum_cells(self, weights: Mapping[str, Floats]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables by their names, and its standard error from
        the noise alone.
        """
        value = 0.0
        by_number = {}
        for number, one in enumerate(self.listed_tables):
            if one.name in weights:
                value += float((self._estimates[number] * weights[one.name]).sum())
                by_number[number] = weights[one.name]
        return value, self.noise.combination_error(by_number)


@frozen(slots=False, eq=False)
class ResidualCombination(AveragedReleases):
    """Several releases of records of one kind, averaged residual by residual."""

    @cached_property
    def _views(self) -> dict[View, str]:
        return listed_views(self.releases, self.dataspace.schema)

    @property
    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Every table of any release once, with the name that it has first."""
        return tables_of_views(self._views, self.dataspace.schema)

    @cached_property
    def space(self) -> ProductSpace:
        """The residuals of all tables; what they cost is not asked here."""
        # No pair of datasets is compared for an estimate, so that any adjacency will do.
        space = ProductSpace(self.dataspace, Ball(1), tuple(self._views))
        if space.impossible:
            raise Refused(
                "structural zeros or empty cells of exact joint totals couple residuals, and so"
                f" many features are averaged residual by residual: combine at most {MOST_CELLS:,}"
                f" cells, of which nested features couple {MOST_COUPLED:,}"
            )
        return space

    @cached_property
    def noise(self) -> PooledProduct:
        """Everything that was measured; refuse the same measurement twice."""
        measured = distinct_measurements(self.releases, self.space, record_measurements)
        return PooledProduct(self.space, measured)

    @cached_property
    def _estimates(self) -> list[Floats]:
        return self.space.estimates(self.noise.average_residuals(0))

    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, by its number in `listed`."""
        variances = self.noise.mechanism.cell_variances(number)
        return self._estimates[number], np.sqrt(np.maximum(variances, 0.0))

    def table_half_widths(self, number: int) -> Floats | None:
        """How far each cell is off at most in 95% of all draws; see `law_half_widths`."""
        _, errors = self.table_estimates(number)
        view = self.space.views[number]
        alike = []
        for axis in list_axes(view):
            # Nodes with as many siblings at every depth have one law.
            families = self.space.residuals.families(axis, view[axis])
            _, firsts, sorts = np.unique(families, axis=1, return_index=True, return_inverse=True)
            alike.append((firsts, sorts.ravel()))
        return law_half_widths(self.noise, self.space, view, number, errors, alike)

    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers for every table that agree with each other and with the exact totals."""
        fit_kinds = [FitKind.integer] * len(self.space.views)
        totals = totals_and_n(self.dataspace)
        grid = self.dataspace.schema.grid
        return fit_product(grid, list(self.space.views), totals, estimates, fit_kinds, progress)


def law_half_widths(
    noise: ResidualPool,
    kind: ProductSpace,
    view: View,
    number: int,
    errors: Floats,
    alike: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
) -> Floats | None:
    """Half-widths of a table from the law of everything that was drawn; None for large tables.

    Cells with one law share a half-width. Where laws are too many, Chebyshev's bound takes their
    place, which holds for any law: ``sd / √0.05``.

    Parameters
    ----------
    noise, kind, view, number
        The noise, the residuals of the kind that is counted, the table and its number.
    errors
        The standard errors of its cells.
    alike
        For each feature the first node of every sort, and the sort of every node.
    """
    if errors.size >= INTERVALS_BELOW:
        return None
    if math.prod(len(firsts) for firsts, _ in alike) > MOST_LAWS:
        return errors / math.sqrt(1 - LEVEL)
    laws, numbers = noise.entry_laws
    widths = np.zeros([len(firsts) for firsts, _ in alike])
    for sort in np.ndindex(widths.shape):
        unit = np.zeros(kind.residuals.shape(view))
        cell = tuple(firsts[at] for (firsts, _), at in zip(alike, sort, strict=True))
        unit[cell] = 1.0
        row = noise.combination({number: kind.restore_full_table(unit, view)})
        row[np.abs(row) * noise.entry_scales < _NOTHING] = 0.0
        widths[sort] = half_width(sum_terms(row, laws, numbers), LEVEL, _SMOOTHING)
    spread = widths[np.ix_(*(sorts for _, sorts in alike))] if alike else widths
    return np.where(errors > 0, kind.restore_full_table(spread, view), 0.0)


def distinct_measurements(
    releases: "Sequence[ReleaseValue]",
    space: Space,
    measured_by: "Callable[[ReleaseValue, Space], list[ResidualMeasurement]]",
) -> tuple[ResidualMeasurement, ...]:
    """Return everything that releases measured; refuse the same measurement twice.

    Parameters
    ----------
    releases, space
        The releases, and the residuals of all of their tables.
    measured_by
        Returns what one release measured of those.
    """
    every: list[ResidualMeasurement] = []
    digests = []
    for release in releases:
        parts = measured_by(release, space)
        digests.append((release, [(one.size, measurement_digest(one)) for one in parts]))
        every += parts
    refuse_twice(digests)
    return tuple(every)


def record_measurements(release: "ReleaseValue", space: ProductSpace) -> list[ResidualMeasurement]:
    """Return what a release measured of the residuals of records of one kind."""
    release.refuse_large_parts("combined estimates")
    parts: list[ResidualMeasurement] = []
    for request, result, mechanism in zip(
        release.plan.requests, release.results, release.mechanisms, strict=True
    ):
        if not result.counts_cells or isinstance(mechanism, NoNoise):
            continue
        refuse_other_noise(result, mechanism)
        if isinstance(mechanism, ResidualMechanism):
            noisy = np.asarray(result.whole_noisy(release.partition))
            parts.append(MeasuredResiduals(0, space, mechanism, noisy))
        elif isinstance(mechanism, CellByCell):
            schema = release.scope.dataspace.schema.restrict(request.features)
            names = [feature.name for feature in schema.features]
            noisy = np.asarray(result.noisy).reshape(schema.shape)
            parts.append(measured_cells(0, space, mechanism, names, noisy))
        else:
            raise Refused(
                f"{mechanism.name} noise of a whole table is not averaged residual by residual:"
                " noise on cells is, and noise on residuals"
            )
    return parts


def is_large(dataspace: Dataspace) -> bool:
    """Whether features have too many cells together, or nested ones couple too many."""
    schema = dataspace.schema
    nested = [len(part.levels) for part in schema.features if part.chain.depth > 1]
    # The nested feature with the most leaves is the tree; the others would make one block.
    coupled = math.prod(sorted(nested)[:-1])
    return count_cells(schema) > MOST_CELLS or coupled > MOST_COUPLED


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
