"""What a release measured of tables, as measurements for the estimator, each with the law of its
noise.

Only what was drawn counts: never fitted whole numbers. Exact totals are measurements without noise.
"""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism, NoNoise
from semidp.promise.mechanisms.pure import KNormMechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Mask, View, list_axes
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.combined.tree_layout import Floats, TreeLayout
from semidp.publish.estimation.measurements import Observed
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published

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
