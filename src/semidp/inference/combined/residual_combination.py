"""Combination of releases residual by residual: averages weighted by precision, entry by entry.

A product of tables measures residuals themselves. A table with noise of variance σ² on its cells
measures each residual d below it with variance σ² times the number of cells that are added up, if
siblings have equally many of its cells below them (docs/combine.md). Then the noise of different
residuals is uncorrelated, and nothing larger than the largest table is needed, whatever the
branching of nested features and however many there are. `combination` handles all other cases of
one kind of records, within its limits. Linked members and units are averaged separately and then
made to agree, so the correction is that of constrained least squares (docs/linked.md).
"""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.combined.several_releases import (
    MOST_CELLS,
    MOST_COUPLED,
    AlikeNodes,
    RecordCombination,
    SeveralReleases,
    count_cells,
    has_intervals,
    measured_counts,
    refuse_twice,
    same_records,
)
from semidp.inference.linear_estimates import DrawnNumbers, Floats, SumErrors
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import CellByCell
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.sensitivity.linked_products import KindSpace, LinkedSpace
from semidp.promise.sensitivity.orthogonal_parts import list_coarser_views
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT, Link, LinkedDataspace, linked_adjacency
from semidp.publish.half_widths import LEVEL
from semidp.publish.linked_mechanism import LinkedMechanism, alike_nodes
from semidp.publish.noise_laws import joined_laws
from semidp.publish.residual_mechanism import ResidualMechanism, SharedNoise
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.linked_fitting import fitted_kinds, refuse_unfitted

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

MOST_LAWS = 150
"""The most distinct cells of a table whose own distributions are computed."""
_PLACES = 2**40  # parts of one in which a variance is kept as a fraction


@frozen(eq=False)
class MeasuredResidual:
    """One residual as one release measured it.

    Parameters
    ----------
    values, variances
        Its entries, and the variance of each before it is centered.
    numbers, entries
        The numbers that were drawn for it, and the entry that each belongs to.
    """

    values: Floats
    variances: Floats
    numbers: slice
    entries: NDArray[np.intp]


@frozen(eq=False)
class ResidualMeasurement:
    """The measurement of the residuals of one kind of records in one release.

    Parameters
    ----------
    kind
        The kind: 0 for records or members, 1 for units.
    noisy, drawn
        The measured numbers, and their noise distributions.
    residuals
        Every residual that they measure, among those of all releases together.
    """

    kind: int
    noisy: NDArray[np.int64] = field(repr=False)
    drawn: DrawnNumbers = field(repr=False)
    residuals: Mapping[View, MeasuredResidual] = field(repr=False)

    @property
    def digest(self) -> str:
        """Hash of the measurement: what was drawn, and of which residuals."""
        question = f"{self.kind}{sorted(self.residuals)}"
        hashed = hashlib.sha256(question.encode())
        hashed.update(np.ascontiguousarray(self.noisy, dtype=np.int64).tobytes())
        return hashed.hexdigest()


def residuals_as_measured(
    kind: int, space: ProductSpace, mechanism: ResidualMechanism, noisy: NDArray[np.int64]
) -> ResidualMeasurement:
    """Return residuals that were measured directly, by a release of linked tables or by a
    product.

    Parameters
    ----------
    kind, space
        The kind that is counted, and its residuals in all releases together.
    mechanism, noisy
        Their noise, and the measured vector.
    """
    theirs = mechanism.space
    for feature in theirs.schema.features:
        name = feature.names[-1]
        levels = np.arange(len(feature.levels))
        before = theirs.trim(levels, theirs.schema.view([name]))
        # Residuals are centered over the levels in use: those of all releases must be the same.
        if not np.array_equal(before, space.trim(levels, space.schema.view([name]))):
            _refuse_empty(name)
    laws, which = mechanism.entry_laws
    scales = theirs.scales
    values = noisy / scales
    variances = mechanism.variances / scales.astype(float) ** 2
    residuals = {}
    for view, part in theirs.parts.items():
        deepest = [theirs.schema.features[axis].names[view[axis] - 1] for axis in list_axes(view)]
        places = [space.schema.axis(name) for name in deepest]
        # Numbers of the release, in the order of all features together.
        places_there = np.arange(part.stop - part.start).reshape(theirs.residuals.shape(view))
        arranged = np.transpose(places_there, np.argsort(places))
        names = theirs.schema.list_view_names(view)
        residuals[space.schema.view(names)] = MeasuredResidual(
            values[part][arranged], variances[part][arranged], part, np.argsort(arranged.ravel())
        )
    return ResidualMeasurement(kind, noisy, DrawnNumbers(laws, which, scales), residuals)


def cells_as_measured(
    kind: int,
    space: ProductSpace,
    mechanism: CellByCell,
    names: Sequence[str],
    noisy: NDArray[np.int64],
) -> ResidualMeasurement:
    """Return a table with noise on its cells as a measurement of residuals; refuse it if
    siblings have unequal numbers of cells below them.

    Parameters
    ----------
    kind, space
        The kind that it counts, and its residuals in all releases together.
    mechanism
        Its noise.
    names, noisy
        The features of its axes, and its noisy cells.
    """
    schema = space.schema
    table = schema.view(names)
    axes = [schema.axis(name) for name in names]
    for axis in axes:
        if not _is_even(space, axis, table[axis]):
            raise Refused(
                f"a table with noise on its cells over {schema.features[axis].name!r} has no single"
                " variance for each of its residuals, as siblings have more or fewer cells below"
                " them: publish it with other tables, so that residuals are measured"
            )
    cells = space.trim(np.transpose(noisy, np.argsort(axes)), table).astype(np.int64)
    residuals = {}
    for view in list_coarser_views(table):
        if view not in space.measured_residuals:
            continue
        shape = space.residuals.shape(view)
        # Centering leaves the residual of the sums; each has σ² times the cells that are added up.
        sums = space.residuals.table(cells, table, view)
        added = space.residuals.table(np.ones(cells.shape), table, view)
        residuals[view] = MeasuredResidual(
            np.asarray(sums, dtype=np.float64).reshape(shape),
            mechanism.variance * np.asarray(added, dtype=np.float64).reshape(shape),
            slice(0, cells.size),
            np.asarray(space.residuals.grid.labels(view, table)).ravel(),
        )
    ones = np.ones(cells.size, dtype=np.int64)
    drawn = DrawnNumbers([mechanism.sampler], np.zeros(cells.size, dtype=np.intp), ones)
    return ResidualMeasurement(kind, cells, drawn, residuals)


def _refuse_empty(name: str) -> NoReturn:
    """Refuse a release that does not know of an empty level, or knows of one more."""
    raise Refused(
        f"{name!r} has a level that only some of these releases show to be empty: residuals are"
        " averaged where all know of the same levels"
    )


def _is_even(space: ProductSpace, axis: int, depth: int) -> bool:
    """Whether siblings have equally many nodes of a depth below them, at every depth above it."""
    chain = space.residuals.grid.chains[axis]
    for above in range(1, depth):
        below_each = chain.children(above, depth)
        parents = np.repeat(np.arange(chain.size(above - 1)), chain.children(above - 1, above))
        for parent in range(chain.size(above - 1)):
            if len(np.unique(below_each[parents == parent])) > 1:
                return False
    return True


@frozen(eq=False)
class PooledResiduals(ResidualMechanism):
    """The variances of averaged residuals of one kind.

    The distributions are in `ResidualPool`.
    """

    pooled: Floats = field(kw_only=True, repr=False)

    @property
    def variances(self) -> Floats:
        """The variance of the average in each entry of the vector."""
        return self.pooled

    @property
    def samplers(self) -> NoReturn:
        """None: an average of several numbers has its own distribution."""
        raise Refused("averaged residuals are not drawn by one law")


@frozen(slots=False, eq=False)
class ResidualPool:
    """Residuals that several releases measured, and their averages.

    Parameters
    ----------
    kinds
        The residuals of all releases together, for each kind of records.
    measured
        What every release measured.
    """

    kinds: tuple[ProductSpace, ...]
    measured: tuple[ResidualMeasurement, ...]

    @cached_property
    def drawn(self) -> DrawnNumbers:
        """Every number that was drawn, measurement after measurement."""
        laws, which = joined_laws((one.drawn.laws, one.drawn.which) for one in self.measured)
        return DrawnNumbers(
            laws, which, np.concatenate([one.drawn.scales for one in self.measured])
        )

    def find_sources(self, kind: int, view: View) -> list[tuple[MeasuredResidual, int, Floats]]:
        """Measurements of a residual, each with the index of its first number and the weight of
        each entry: its precision.
        """
        sources = []
        start = 0
        for one in self.measured:
            if one.kind == kind and view in one.residuals:
                sources.append((one.residuals[view], start))
            start += one.noisy.size
        total = np.sum([1 / residual.variances for residual, _ in sources], axis=0)
        return [(residual, at, 1 / residual.variances / total) for residual, at in sources]

    def average_residuals(self, kind: int) -> Floats:
        """The averaged residuals of one kind, as a vector times the scales."""
        space = self.kinds[kind]
        vector = np.zeros(space.scales.size)
        for view, part in space.parts.items():
            average = np.zeros(space.residuals.shape(view))
            for residual, _, share in self.find_sources(kind, view):
                average += share * residual.values
            vector[part] = average.ravel() * space.scales[part]
        return vector

    def pool_noise(self, kind: int) -> PooledResiduals:
        """The variances of the averaged residuals of one kind."""
        space = self.kinds[kind]
        variances = np.zeros(space.scales.size)
        squares = {}
        for view, part in space.parts.items():
            entries = np.zeros(space.residuals.shape(view))
            for residual, _, share in self.find_sources(kind, view):
                entries += share**2 * residual.variances
            variances[part] = entries.ravel() * space.scales[part].astype(float) ** 2
            mean = max(round(float(entries.mean()) * _PLACES), 1)
            squares[view] = Fraction(mean, _PLACES)
        return PooledResiduals(space, squares, Fraction(1), "rounded", pooled=variances)

    def pull_weights(self, weights: Floats) -> Floats:
        """Weights on every number that was drawn, from weights on the vector of averages."""
        pulled = np.zeros(self.drawn.which.size)
        first_entry = 0
        for kind, space in enumerate(self.kinds):
            of_kind = weights[first_entry : first_entry + space.scales.size] * space.scales
            first_entry += space.scales.size
            for view, part in space.parts.items():
                on_average = of_kind[part].reshape(space.residuals.shape(view))
                for residual, start, share in self.find_sources(kind, view):
                    first, last = start + residual.numbers.start, start + residual.numbers.stop
                    pulled[first:last] += (share * on_average).ravel()[residual.entries]
        return np.asarray(pulled / self.drawn.scales)


@frozen(slots=False, eq=False)
class AveragedReleases(SeveralReleases):
    """Several releases whose residuals are averaged: of one kind of records, or of linked ones."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[ProductSpace, ...]:
        """The residuals of all tables, for each kind of records."""

    @property
    @abstractmethod
    def mechanism(self) -> SharedNoise:
        """The variances of the averages, and the assembly of tables from these."""

    @abstractmethod
    def alike_nodes(self, number: int) -> list[AlikeNodes]:
        """For each feature of a table the nodes whose cells have one law."""

    @cached_property
    def pool(self) -> ResidualPool:
        """All measurements; refuse the same measurement twice."""
        every: list[ResidualMeasurement] = []
        digests = []
        for release in self.releases:
            parts = measured_residuals(release, self.kinds)
            digests.append((release, [(one.noisy.size, one.digest) for one in parts]))
            every += parts
        refuse_twice(digests)
        return ResidualPool(self.kinds, tuple(every))

    @cached_property
    def averages(self) -> Floats:
        """The averaged residuals of all kinds, as a vector times the scales."""
        vectors = [self.pool.average_residuals(kind) for kind in range(len(self.kinds))]
        return np.concatenate(vectors)

    @cached_property
    def estimates(self) -> list[Floats]:
        """The estimated cells of every table in `listed_tables`."""
        return self.mechanism.estimates(self.averages)

    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table."""
        return self.estimates[number], self.mechanism.table_errors(number)

    def weigh_noise(self, weights: Mapping[int, Floats]) -> SumErrors:
        """Return the errors of sums over cells of several tables, by their numbers."""
        sums = len(next(iter(weights.values())))
        rows = []
        for place in range(sums):
            one = {number: stacked[place] for number, stacked in weights.items()}
            rows.append(self.pool.pull_weights(self.mechanism.combination(one)))
        return SumErrors(sums, ((self.pool.drawn, np.stack(rows)),))

    def table_half_widths(self, number: int) -> Floats | None:
        """How far each cell is off at most in 95% of all draws; None for large tables.

        Where laws are too many, Chebyshev's bound takes their place.
        """
        _, errors = self.table_estimates(number)
        if not has_intervals(errors):
            return None
        alike = self.alike_nodes(number)
        if math.prod(len(firsts) for firsts, _ in alike) > MOST_LAWS:
            return errors / math.sqrt(1 - LEVEL)
        return self.law_half_widths(number, errors, alike)


def _in_full_table(
    space: ProductSpace, view: View, alike: Sequence[AlikeNodes]
) -> list[AlikeNodes]:
    """Nodes that are alike, numbered as in the published table: with levels that hold nobody."""
    in_full = []
    for place, (firsts, sorts) in zip(list_axes(view), alike, strict=True):
        size = space.schema.grid.chains[place].size(view[place])
        alone = [depth if axis == place else 0 for axis, depth in enumerate(view)]
        used = np.asarray(space.trim(np.arange(size), tuple(alone)), dtype=np.intp)
        every = np.zeros(size, dtype=np.intp)
        every[used] = sorts
        in_full.append((used[firsts], every))
    return in_full


@frozen(slots=False, eq=False)
class ResidualCombination(AveragedReleases, RecordCombination):
    """Several releases of records of one kind whose features have too many cells for
    `Combination`.
    """

    @cached_property
    def kinds(self) -> tuple[ProductSpace, ...]:
        """The residuals of all tables; their costs are not needed here."""
        # No pair of datasets is compared for an estimate, so any adjacency will do.
        space = ProductSpace(self.dataspace, Ball(1), self.views)
        if space.impossible:
            raise Refused(
                "structural zeros or empty cells of exact joint totals couple residuals, and so"
                f" many features are averaged residual by residual: combine at most {MOST_CELLS:,}"
                f" cells, of which nested features couple {MOST_COUPLED:,}"
            )
        return (space,)

    @cached_property
    def mechanism(self) -> PooledResiduals:
        """The variances of the averages."""
        return self.pool.pool_noise(0)

    def alike_nodes(self, number: int) -> list[AlikeNodes]:
        """Nodes with equally many siblings at every depth share a distribution."""
        (space,) = self.kinds
        view = space.views[number]
        alike = []
        for axis in list_axes(view):
            families = space.residuals.families(axis, view[axis])
            _, firsts, sorts = np.unique(families, axis=1, return_index=True, return_inverse=True)
            alike.append((firsts, sorts.ravel()))
        return _in_full_table(space, view, alike)


def measured_residuals(
    release: "ReleaseValue", kinds: Sequence[ProductSpace]
) -> list[ResidualMeasurement]:
    """Return what a release measured of the residuals of records, or of members and of units."""
    parts: list[ResidualMeasurement] = []
    if isinstance(release.scope.dataspace, LinkedDataspace):
        for result, mechanism in zip(release.results, release.mechanisms, strict=True):
            assert isinstance(mechanism, LinkedMechanism)
            vectors = mechanism.space.split(np.asarray(result.noisy))
            for kind, (part, noisy) in enumerate(zip(mechanism.parts, vectors, strict=True)):
                parts.append(residuals_as_measured(kind, kinds[kind], part, noisy))
        return parts
    space = kinds[0]
    for request, result, mechanism in measured_counts(release, "combined estimates"):
        if isinstance(mechanism, ResidualMechanism):
            noisy = np.asarray(result.whole_noisy(release.partition))
            parts.append(residuals_as_measured(0, space, mechanism, noisy))
        elif isinstance(mechanism, CellByCell):
            schema = release.scope.dataspace.schema.restrict(request.features)
            names = [feature.name for feature in schema.features]
            noisy = np.asarray(result.noisy).reshape(schema.shape)
            parts.append(cells_as_measured(0, space, mechanism, names, noisy))
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
    """Several releases, at least one of them of linked members and units.

    Parameters
    ----------
    releases
        What is combined.
    dataspace
        What all releases together publish exactly.
    """

    dataspace: LinkedDataspace

    @cached_property
    def space(self) -> LinkedSpace:
        """The residuals of both kinds of all tables; their costs are not needed here."""
        # No pair of datasets is compared for an estimate, so any adjacency will do.
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

    @property
    def kinds(self) -> tuple[ProductSpace, ...]:
        """The residuals of members and of units."""
        return self.space.kinds

    @cached_property
    def mechanism(self) -> LinkedMechanism:
        """The variances of the averages of both kinds, and how these are made to agree."""
        pooled = LinkedMechanism(self.space, self.pool.pool_noise(0), self.pool.pool_noise(1))
        refuse_unfitted(pooled)
        return pooled

    def alike_nodes(self, number: int) -> list[AlikeNodes]:
        """Nodes with as many siblings at every depth have one law; every size has its own."""
        which, place = self.mechanism.locate_table(number)
        kind = self.space.kinds[which]
        view = kind.views[place]
        alike = [alike_nodes(self.space, kind, axis, view[axis]) for axis in list_axes(view)]
        return _in_full_table(kind, view, alike)

    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers of both kinds that agree: sizes first, then what they leave of the
        members.
        """
        fit_kinds = [[FitKind.integer] * len(kind.views) for kind in self.kinds]
        residuals = self.mechanism.agreement.residuals(*self.space.split(self.averages))
        members, units = fitted_kinds(self.mechanism, residuals, fit_kinds, progress)
        return [*members, *units]

    def guarantee(self) -> Guarantee:
        """Return the guarantee of all releases together under their common promise; refuse if they
        do not add up.
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
        drawn = [mechanism for release in self.releases for mechanism in release.mechanisms]
        # Each is recomputed for the pairs that all exact totals leave.
        anew = [
            mechanism_from_record(mechanism.record(), self.dataspace, adjacency)
            for mechanism in drawn
        ]
        return Guarantee.compose(*(mechanism.guarantee for mechanism in anew))


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
