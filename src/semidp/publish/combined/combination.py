"""The best linear unbiased estimate from several releases: of every table, and of every weighted
sum of cells.

Every measured table and every measured residual is an independent linear measurement with a known
variance; exact totals of any release bind all. The estimator is in `semidp.publish.estimation`.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.mechanisms.accuracy import INTERVALS_BELOW
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.noise.sums import Weighted, half_widths
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Mask, Totals, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.table_spaces import find_possible_cells
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.combined.several_releases import (
    ListedTable,
    SeveralReleases,
    refuse_twice,
    tables_of_views,
)
from semidp.publish.combined.table_evidence import (
    Evidence,
    IndependentNoise,
    TableNoise,
    collect_evidence,
    digest,
    exact_evidence,
)
from semidp.publish.combined.tree_layout import Floats, TreeLayout, count_cells
from semidp.publish.estimation.classes import Classes
from semidp.publish.estimation.estimates import Estimate, estimate
from semidp.publish.estimation.measurements import Measurements
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.tables.fitting import fit_product

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

MOST_CELLS, MOST_COUPLED = 2 * 10**7, 2000
"""Cells of all features together, and cells of features that unequal groups or structural zeros
couple."""
_MOST_WEIGHTS = 2 * 10**7  # weights on measured values that are held at once


@frozen(slots=False, eq=False)
class Combination(SeveralReleases):
    """Several releases of records of one kind as one set of measurements; see `semidp.combine`."""

    @property
    def schema(self) -> Schema:
        """Features of all releases together."""
        return self.dataspace.schema

    @cached_property
    def layout(self) -> TreeLayout:
        """Order of the cells for the estimator."""
        if count_cells(self.schema) > MOST_CELLS:
            raise Refused(
                f"all features together have {count_cells(self.schema):,} cells, and at most"
                f" {MOST_CELLS:,} are combined"
            )
        return TreeLayout(self.dataspace)

    @cached_property
    def evidence(self) -> tuple[Evidence, ...]:
        """Everything that was measured, exact totals last; refuse the same measurement twice."""
        every: list[Evidence] = []
        digests = []
        for release in self.releases:
            parts = collect_evidence(release, self.layout)
            digests.append((release, [(one.observed.values.size, digest(one)) for one in parts]))
            every += parts
        refuse_twice(digests)
        return (*every, *exact_evidence(self.dataspace, self.layout))

    @cached_property
    def answer(self) -> Estimate:
        """The estimate from everything that was measured."""
        layout = self.layout
        observed = [part.observed for part in self.evidence]
        measurements = Measurements(layout.places, layout.sizes, observed, layout.possible)
        coupled = Classes.from_measurements(measurements).block
        if coupled > MOST_COUPLED:
            raise Refused(
                "several nested features, structural zeros or empty cells of exact joint totals"
                f" couple {coupled:,} cells here, and at most {MOST_COUPLED:,} are combined:"
                " combine releases of fewer such features, or use semidp.inference.estimate with"
                " the places as a tree"
            )
        return estimate(measurements)

    @property
    def views(self) -> dict[View, str]:
        """Every table of any release once, with the name that it has first."""
        return listed_views(self.releases, self.schema)

    def estimates(self, view: View) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, in the order of the schema."""
        answers = self.answer.table(self.layout.depth(view), self.layout.query(view))
        if np.isnan(answers.values).any():
            names = ", ".join(self.schema.list_view_names(view))
            raise Refused(f"what was measured does not determine the table of {names}")
        values = self.layout.restore_table(answers.values, view)
        errors = self.layout.restore_table(answers.standard_errors, view)
        if not self._has_rounding:
            return values, errors
        cells = np.ndindex(*self.schema.grid.compute_margin_shape(view))
        terms = self._rounding({view: self._units(view, list(cells))})
        added = np.square(terms).sum(axis=1).reshape(errors.shape)
        return values, np.where(errors > 0, np.sqrt(errors**2 + added), 0.0)

    @property
    def _has_rounding(self) -> bool:
        """Whether some noise is rounded in ways that its variance leaves out."""
        noises = [part.noise for part in self.evidence]
        return any(isinstance(noise, TableNoise) and noise.has_rounding for noise in noises)

    def _rounding(self, weights: Mapping[View, Floats]) -> Floats:
        """Terms of weighted sums, (sums, terms), whose products are what rounding adds to
        covariances.
        """
        terms = [np.zeros((len(next(iter(weights.values()))), 0))]
        if self._has_rounding:
            for one, part in self.influences(weights):
                if isinstance(one.noise, TableNoise):
                    terms.append(one.noise.rounding(part))
        return np.concatenate(terms, axis=1)

    @property
    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Every table of any release once, with the name that it has first."""
        return tables_of_views(self.views, self.schema)

    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, by its number in `listed`."""
        return self.estimates([*self.views][number])

    def table_half_widths(self, number: int) -> Floats | None:
        """How far each cell of a table is off at most in 95% of all draws; see `half_widths`."""
        return self.half_widths([*self.views][number])

    def sum_cells(self, weights: Mapping[str, Floats]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables by their names, and its standard error from
        the noise alone.
        """
        by_view = {}
        for view, name in self.views.items():
            if name in weights:
                by_view[view] = weights[name]
        return self.estimate(by_view)

    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers for every table that agree with each other and with the exact totals."""
        views = list(self.views)
        fit_kinds = [FitKind.integer] * len(views)
        masks = [self._possible(view) for view in views]
        return fit_product(
            self.schema.grid, views, self.totals, estimates, fit_kinds, progress, possible=masks
        )

    @property
    def totals(self) -> list[Totals]:
        """The number of records and every exact total, as counts to fit to."""
        return totals_and_n(self.dataspace)

    def _possible(self, view: View) -> Mask | None:
        """Cells of a table that can be filled; None where all combinations of levels in use can."""
        zeros = bool(self.schema.structural_zeros)
        joint = any(
            len(list_axes(total.view)) > 1 and not total.counts.all()
            for total in self.dataspace.published_totals
        )
        return find_possible_cells(self.dataspace, view) if zeros or joint else None

    def weights(self, weights: Mapping[View, Floats]) -> dict[int, Floats]:
        """Weights of several sums on cells of tables, by view, as weights on places and attributes
        by depth.

        The arrays are (sums, *cells of the table).
        """
        by_depth: dict[int, Floats] = {}
        for view, arrays in weights.items():
            depth = self.layout.depth(view)
            # Tables at one depth of the tree weigh the same cells.
            part = np.stack([self.layout.on_cells(array, view) for array in arrays])
            by_depth[depth] = by_depth[depth] + part if depth in by_depth else part
        return by_depth

    def estimate(self, weights: Mapping[View, ArrayLike]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables and depths, and its standard error from the
        noise alone.
        """
        # One sum is a stack of one.
        arrays = {view: np.asarray(array, dtype=float)[None] for view, array in weights.items()}
        by_depth = {depth: array[0] for depth, array in self.weights(arrays).items()}
        total = self.answer.weighted_sum(by_depth)
        variance = float(total.variances[0, 0]) + float(np.square(self._rounding(arrays)).sum())
        return float(total.values[0, 0]), math.sqrt(variance)

    def influences(self, weights: Mapping[View, Floats]) -> list[tuple[Evidence, Floats]]:
        """Everything that was measured with noise, with its weights (sums, places, *values) in
        several sums.
        """
        parts = self.answer.influences(self.weights(weights))
        return [
            (one, part)
            for one, part in zip(self.evidence, parts, strict=True)
            if one.noise is not None
        ]

    def covariance(self, weights: Mapping[View, Floats]) -> Floats:
        """Covariance matrix of weighted sums, from the noise alone: ``Σ c c' σ²`` over all that was
        measured.
        """
        count = len(next(iter(weights.values())))
        matrix = np.zeros((count, count))
        for one, part in self.influences(weights):
            variances = one.observed.variances(part.shape[1])
            finite = np.where(np.isfinite(variances), variances, 0.0)
            scaled = part * np.sqrt(finite).reshape(1, -1, *[1] * (part.ndim - 2))
            flat = scaled.reshape(count, -1)
            matrix += flat @ flat.T
        terms = self._rounding(weights)
        return matrix + terms @ terms.T

    def draw_errors(
        self, influences: Sequence[tuple[Evidence, Floats]], count: int, randomness: Randomness
    ) -> Floats:
        """Draw the errors of weighted sums, (count, sums), by the noise of every measurement."""
        sums = len(influences[0][1]) if influences else 0
        total = np.zeros((count, sums))
        for one, part in influences:
            assert one.noise is not None, "`influences` leaves exact totals out"
            total += one.noise.draw_sums(part, count, randomness)
        return total

    def half_widths(self, view: View) -> Floats | None:
        """How far each cell of a table is off at most in 95% of all draws, from the laws of the
        noise.

        None for large tables, and where a noise is drawn for a whole table at once.
        """
        grid = self.schema.grid
        values = sum(part.observed.values.size for part in self.evidence)
        independent = all(isinstance(part.noise, IndependentNoise | None) for part in self.evidence)
        representatives = self._representatives(view)
        if (
            grid.count_margin_cells(view) >= INTERVALS_BELOW
            or not independent
            or len(representatives) * values > _MOST_WEIGHTS
        ):
            return None
        influences = self.influences({view: self._units(view, representatives)})
        sums: dict[tuple[Weighted, ...], int] = {}
        numbers = []
        for number in range(len(representatives)):
            numbers.append(sums.setdefault(_terms(influences, number), len(sums)))
        noisy = [terms for terms in sums if terms]
        widths = dict(zip(noisy, half_widths(noisy), strict=True))
        # Cells whose errors have the same law share one half-width.
        halves = np.array([widths.get(terms, 0.0) for terms in sums])[numbers]
        _, errors = self.estimates(view)
        shape = [
            1 if self._is_alike(axis) else size
            for axis, size in zip(list_axes(view), errors.shape, strict=True)
        ]
        spread = np.broadcast_to(halves.reshape(shape), errors.shape)
        # Cells that are known to be empty, or that exact totals fix, have no error.
        return np.where(errors > 0, spread, 0.0)

    def _is_alike(self, axis: int) -> bool:
        """Whether the errors of all levels of a feature that hold records have the same law."""
        place = self.layout.attributes.index(axis) if axis != self.layout.tree else None
        return place in self.answer.classes.plain

    def _representatives(self, view: View) -> list[tuple[int, ...]]:
        """One cell for each kind of cells of a table: the first level that holds records where all
        are alike.
        """
        choices = []
        for axis in list_axes(view):
            if self._is_alike(axis):
                choices.append([int(np.argmax(self.layout.possible_leaves[axis]))])
            else:
                choices.append(list(range(self.schema.grid.chains[axis].size(view[axis]))))
        return list(itertools.product(*choices))

    def _units(self, view: View, cells: Sequence[tuple[int, ...]]) -> Floats:
        units = np.zeros((len(cells), *self.schema.grid.compute_margin_shape(view)))
        for number, cell in enumerate(cells):
            units[(number, *cell)] = 1.0
        return units


def _terms(influences: Sequence[tuple[Evidence, Floats]], number: int) -> tuple[Weighted, ...]:
    """Terms of the error of one sum: laws, weights, and how many values have each."""
    counts: dict[tuple[CountNoise, float], int] = {}
    for one, part in influences:
        assert isinstance(one.noise, IndependentNoise)
        for key, count in one.noise.terms(part[number]).items():
            counts[key] = counts.get(key, 0) + count
    terms = []
    for (law, weight), count in sorted(
        counts.items(), key=lambda item: (str(item[0][0]), item[0][1])
    ):
        terms.append(Weighted(law, Fraction(weight), count))
    return tuple(terms)


def listed_views(releases: "Sequence[ReleaseValue]", schema: Schema) -> dict[View, str]:
    """Every table of any release once, by its view, with the name that it has first."""
    names: dict[View, str] = {}
    for release in releases:
        for table in release.tables:
            features = [feature.name for feature in table.schema.features]
            view = schema.view(features)
            if view in names:
                continue
            plainly = not table.is_named or table.name in names.values()
            names[view] = "-".join(schema.list_view_names(view)) if plainly else table.name
    if not names:
        raise Refused("these releases hold no table: tables are combined")
    return names


def totals_and_n(dataspace: Dataspace) -> list[Totals]:
    """The number of records and every exact total, as counts to fit to."""
    n = Totals(dataspace.schema.grid.nothing, np.array(dataspace.n, dtype=np.int64))
    return [n, *dataspace.published_totals]


def join_totals(releases: "Sequence[ReleaseValue]") -> Dataspace:
    """Dataspace of all exact totals of releases of one kind of records; refuse releases that cannot
    be of the same records.
    """
    dataspace = releases[0].scope.dataspace
    for release in releases[1:]:
        dataspace = same_records(dataspace, release.scope.dataspace)
    return dataspace


def same_records(one: Dataspace, other: Dataspace) -> Dataspace:
    """Union of the exact totals of two releases; refuse releases that are not of the same
    records.

    Two releases count as of the same records if their numbers of records, levels, structural zeros
    and exact totals do not contradict each other. More cannot be checked.
    """
    union = one.union(other)
    if union is None:
        raise InputError(
            "these releases are not of the same records: another number of them, other levels of a"
            " feature, other structural zeros, or exact totals that contradict each other"
        )
    return union
