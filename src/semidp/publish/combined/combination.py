"""The best linear unbiased estimate from several releases: of every table, and of every weighted
sum of cells.

Every measured table and every measured residual is an independent linear measurement with a known
variance and law. Only what was drawn counts, never fitted whole numbers; exact totals of any
release are measurements without noise and bind all. The estimator is in
`semidp.publish.estimation`.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism, NoNoise
from semidp.promise.mechanisms.pure import KNormMechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.mechanisms.selection import INTERVALS_BELOW
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.noise.sums import Weighted, half_widths
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Mask, Totals, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.table_spaces import find_possible_cells
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.combined.several_releases import (
    Floats,
    ListedTable,
    SeveralReleases,
    TreeLayout,
    count_cells,
    refuse_twice,
    tables_of_views,
)
from semidp.publish.estimation.estimates import Estimate, estimate
from semidp.publish.estimation.measurements import Classes, Measurements, Observed
from semidp.publish.results.published_table import FitKind, Fitted
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.tables.fitting import fit_product

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


_NOT_DRAWN = -1


@frozen(eq=False)
class IndependentNoise:
    """Noise that is independent from value to value.

    Parameters
    ----------
    laws
        Different laws of whole numbers.
    which
        Number of the law of each value, in the shape of the values; -1 where nothing was drawn.
    scales
        Number by which the whole number of each value is divided.
    """

    laws: tuple[CountNoise, ...]
    which: NDArray[np.intp]
    scales: Floats

    def draw_sums(self, weights: Floats, count: int, randomness: Randomness) -> Floats:
        """Draw the noise of weighted sums of the values, (count, sums); weights are (sums,
        *values).
        """
        flat = weights.reshape(len(weights), -1) / self.scales.ravel()
        which = self.which.ravel()
        total = np.zeros((count, len(weights)))
        for number, law in enumerate(self.laws):
            # Weights that are zero but for rounding need no draws.
            weighed = np.abs(flat).max(axis=0) > 1e-15
            used = np.flatnonzero((which == number) & weighed)
            if used.size:
                draws = law.sample((count, used.size), randomness)
                total += draws @ flat[:, used].T
        return total

    def terms(self, weights: Floats) -> dict[tuple[CountNoise, float], int]:
        """Laws and sizes of the weights of one sum, with how many values have each."""
        flat = np.abs(weights.ravel() / self.scales.ravel())
        which = self.which.ravel()
        counts: dict[tuple[CountNoise, float], int] = {}
        for number, law in enumerate(self.laws):
            sizes = flat[(which == number) & (flat > 1e-15)]
            # Weights that are equal by symmetry differ in their last digits.
            ten_digits = [float(f"{size:.10g}") for size in sizes]
            rounded, times = np.unique(ten_digits, return_counts=True)
            for size, number_of in zip(rounded.tolist(), times.tolist(), strict=True):
                counts[(law, size)] = counts.get((law, size), 0) + number_of
        return counts


@frozen(eq=False)
class TableNoise:
    """Noise of a whole table at once, in the directions that its exact totals leave open.

    Parameters
    ----------
    mechanism
        How the table was measured.
    view
        Its view in the layout.
    layout, order
        Where its cells stand; the axes of the table in the order of the schema.
    """

    mechanism: Mechanism
    view: View
    layout: TreeLayout
    order: tuple[int, ...]

    def draw_sums(self, weights: Floats, count: int, randomness: Randomness) -> Floats:
        """Draw the noise of weighted sums of the cells, (count, sums)."""
        space = self.mechanism.space
        pulled = [space.project(table).ravel() for table in self._tables(weights)]
        zeros = np.zeros(space.shape, dtype=np.int64)
        drawn = self.mechanism.measure_many(zeros, count, randomness)
        draws = drawn.reshape(count, -1).astype(np.float64)
        return np.asarray(draws @ np.stack(pulled).T)

    @property
    def has_rounding(self) -> bool:
        """Whether rounding adds to its noise and is left out of the variance that weighs it."""
        return isinstance(self.mechanism, KNormMechanism)

    def rounding(self, weights: Floats) -> Floats:
        """Terms of weighted sums, (sums, terms). Their products are the covariances of rounding,
        which `variance` leaves out.

        None but for K-norm noise, which is weighed by its variance before rounding.
        """
        if not self.has_rounding:
            return np.zeros((len(weights), 0))
        assert isinstance(self.mechanism, KNormMechanism)
        terms = [self.mechanism.rounding_terms(table) for table in self._tables(weights)]
        return np.stack(terms)

    def _tables(self, weights: Floats) -> Iterator[Floats]:
        """Weights of each sum on the cells of the table, with its axes as they were measured."""
        as_measured = np.argsort(self.order)
        for one in weights:
            cells = self.layout.restore_table(one, self.view)
            yield np.transpose(cells, as_measured)


@frozen(eq=False)
class Evidence:
    """One measurement of tables: its values for the estimator, and their noise (None for exact
    totals).
    """

    observed: Observed
    noise: IndependentNoise | TableNoise | None


def collect_evidence(release: "ReleaseValue", layout: TreeLayout) -> list[Evidence]:
    """Return what a release measured of tables, in its order. Statistics of outcomes say nothing of
    tables.
    """
    release.refuse_large_parts("combined estimates")
    parts: list[Evidence] = []
    requests = release.plan.requests
    parts_asked = zip(requests, release.results, release.mechanisms, strict=True)
    for request, result, mechanism in parts_asked:
        if not result.counts_cells or isinstance(mechanism, NoNoise):
            continue
        _refuse_unlike_noise(result, mechanism)
        refuse_other_noise(result, mechanism)
        if isinstance(mechanism, ResidualMechanism):
            parts += _residuals(mechanism, result.whole_noisy(release.partition), layout)
        else:
            parts.append(_table(request, result, mechanism, layout, release.scope.dataspace))
    return parts


def _refuse_unlike_noise(result: Published, mechanism: Mechanism) -> None:
    """Refuse K-norm noise that has another variance in another direction."""
    if isinstance(mechanism, KNormMechanism) and mechanism.unrounded_variance is None:
        raise Refused(
            f"the K-norm noise of {result.name!r} is not alike in every direction, as that of"
            " two-way tables with both totals exact is: such noise is combined, or Gaussian,"
            " Laplace, l2 and residual noise"
        )


def refuse_other_noise(result: Published, mechanism: Mechanism) -> None:
    """Refuse a result that states more noise than this version would draw from its plan."""
    if mechanism.has_one_scale and result.noise.scale > mechanism.scale * (1 + 1e-6):
        raise Refused(
            f"the noise of {result.name!r} is not what this version would draw from its plan: use"
            " the version of semidp that wrote the release"
        )


def _table(
    request: Request,
    result: Published,
    mechanism: Mechanism,
    layout: TreeLayout,
    dataspace: Dataspace,
) -> Evidence:
    """A table with noise on its cells: as drawn, or projected where the noise keeps the exact
    totals.
    """
    schema = dataspace.schema.restrict(request.features)
    names = [feature.name for feature in schema.features]
    # Noise that keeps the totals is white in what they leave open: the projection is measured.
    alone = isinstance(mechanism, CellByCell)
    values = result.noisy if alone else result.measurement(mechanism).projected
    cells = np.asarray(values).reshape(schema.shape)
    ordered, view = layout.order_axes(cells, names)
    arranged = layout.arrange_values(ordered, view)
    variance = mechanism.variance
    if isinstance(mechanism, KNormMechanism):
        # Rounding differs by direction, so that it is no weight: it is added to the errors.
        assert mechanism.unrounded_variance is not None, "others were refused"
        variance = mechanism.unrounded_variance
    observed = Observed(layout.query(view), layout.depth(view), arranged, variance)
    if isinstance(mechanism, CellByCell):
        which = np.zeros(arranged.shape, dtype=np.intp)
        scales = np.ones(arranged.shape)
        noise = IndependentNoise((mechanism.sampler,), which, scales)
        return Evidence(observed, noise)
    axes = [layout.schema.axis(name) for name in names]
    order = tuple(np.argsort(axes).tolist())
    return Evidence(observed, TableNoise(mechanism, view, layout, order))


def _residuals(
    mechanism: ResidualMechanism, noisy: NDArray[Any], layout: TreeLayout
) -> Iterator[Evidence]:
    """Residuals that were measured themselves: contrasts of each named feature, with the noise they
    were drawn with.
    """
    space = mechanism.space
    laws, which = mechanism.samplers
    for view, part in space.parts.items():
        shape = space.residuals.shape(view)
        compared_levels = _compared_levels(mechanism, view, layout)
        # Residuals were multiplied to be whole before noise was added.
        scales = space.scales[part].astype(float)
        variances = mechanism.variances[part] / scales**2
        by_residual: dict[str, NDArray[Any]] = {"measured": np.ones(shape), "scales": scales}
        by_residual["values"] = np.asarray(noisy)[part] / scales
        by_residual["variances"] = variances
        by_residual["laws"] = which[part]
        names = []
        for axis in list_axes(view):
            depth = view[axis] - 1
            names.append(space.schema.features[axis].names[depth])
        whole: dict[str, Floats] = {}
        for name, values in by_residual.items():
            residuals = np.asarray(values, dtype=float).reshape(shape)
            ordered, layout_view = layout.order_axes(
                space.restore_full_table(residuals, view), names
            )
            arranged = layout.arrange_values(ordered, layout_view, compared_levels)
            whole[name] = np.asarray(arranged, dtype=float)
        measured = whole["measured"]
        compared = np.asarray(measured.reshape(len(measured), -1).any(axis=1))
        alike = _one_variance(whole["variances"], compared)
        query = layout.residual_query(layout_view, compared_levels)
        tree_depth = layout.depth(layout_view)
        siblings = bool(tree_depth)
        variance = np.where(compared, alike, np.inf) if siblings else alike[0]
        observed = Observed(query, tree_depth, whole["values"], variance, siblings)
        # Places that were not measured have no noise either.
        law_numbers = whole["laws"]
        along_places = _along_places(compared, law_numbers.ndim)
        drawn = np.broadcast_to(along_places, law_numbers.shape)
        numbers = np.where(drawn, law_numbers, _NOT_DRAWN).astype(np.intp)
        divisors = np.where(drawn, whole["scales"], 1.0)
        yield Evidence(observed, IndependentNoise(tuple(laws), numbers, divisors))


def _along_places(values: NDArray[Any], axes: int) -> NDArray[Any]:
    return values.reshape(-1, *[1] * (axes - 1))


def _compared_levels(
    mechanism: ResidualMechanism, view: View, layout: TreeLayout
) -> dict[int, Mask]:
    """Levels that a residual compares, for each flat feature of which another release shows a level
    to be empty.
    """
    space = mechanism.space
    compared: dict[int, Mask] = {}
    for axis in list_axes(view):
        feature = space.schema.features[axis]
        place = layout.schema.axis(feature.name)
        # Places stay in the tree, and nested attributes with an empty level are refused; a feature
        # may nest deeper in another release.
        nests = layout.schema.features[place].chain.depth > 1
        if place == layout.tree or nests:
            continue
        measured = space.restore_full_table(np.ones(space.residuals.shape(view)), view)
        kept_axis = list_axes(view).index(axis)
        summed_axes = tuple(other for other in range(measured.ndim) if other != kept_axis)
        levels = np.asarray(measured.any(axis=summed_axes))
        if not np.array_equal(levels, layout.possible_leaves[place]):
            compared[place] = levels
    return compared


def _one_variance(variances: Floats, compared: NDArray[np.bool_]) -> Floats:
    """Variance at each place, the same for all its values."""
    several = variances.reshape(len(variances), -1)
    first = several[:, 0]
    if not np.allclose(several[compared], first[compared, None], rtol=1e-9):
        raise Refused(
            "noise on residuals that differs between the levels of a nested feature is not combined"
        )
    return np.asarray(first)


def exact_evidence(dataspace: Dataspace, layout: TreeLayout) -> Iterator[Evidence]:
    """Yield the number of records and every exact total, as measurements without noise."""
    nothing = layout.schema.grid.nothing
    n = np.full((1,), dataspace.n)
    yield Evidence(Observed(layout.query(nothing), 0, n, 0.0), None)
    for total in dataspace.published_totals:
        values = layout.arrange_values(total.counts, total.view)
        query = layout.query(total.view)
        observed = Observed(query, layout.depth(total.view), values, 0.0)
        yield Evidence(observed, None)


def digest(part: Evidence) -> str:
    """Hash of a measurement: what was drawn, and with which noise. The place of its folder does not
    matter.
    """
    one = part.observed
    question = f"{one.query!r}{one.depth}{one.siblings}"
    hashed = hashlib.sha256(question.encode())
    hashed.update(one.variance.tobytes())
    values = np.ascontiguousarray(one.values, dtype=float)
    hashed.update(values.tobytes())
    return hashed.hexdigest()


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
