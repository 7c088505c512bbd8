"""Several releases of many features, residual by residual: nothing larger than the largest table is
held.

Where every residual was measured by itself, and levels in use are the same in all releases, the
best estimate is the average of what was measured of each, whatever the branching of nested features
and however many there are (docs/combine.md). `combination` is for all other cases, within its
limits.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.accuracy import INTERVALS_BELOW
from semidp.promise.mechanisms.conditioning import sum_terms
from semidp.promise.mechanisms.mechanism import CellByCell, NoNoise
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.sums import LEVEL, half_width
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.combined.combination import (
    MOST_CELLS,
    MOST_COUPLED,
    listed_views,
    totals_and_n,
)
from semidp.publish.combined.residual_pool import (
    MeasuredResiduals,
    ResidualMeasurement,
    ResidualPool,
    measured_cells,
    measurement_digest,
)
from semidp.publish.combined.several_releases import (
    ListedTable,
    SeveralReleases,
    refuse_twice,
    tables_of_views,
)
from semidp.publish.combined.table_evidence import refuse_other_noise
from semidp.publish.combined.tree_layout import count_cells
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.fitting import fit_product

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
