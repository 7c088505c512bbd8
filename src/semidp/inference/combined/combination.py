"""The best linear unbiased estimate from several releases: of every table, and of every weighted
sum of cells.

Every measured table and every measured residual is an independent linear measurement with a known
variance and law. Only measurements count, never fitted whole numbers; exact totals of any
release are measurements without noise and apply to all (`semidp.inference.estimation`).
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.combined.several_releases import (
    MOST_CELLS,
    MOST_COUPLED,
    AlikeNodes,
    RecordCombination,
    count_cells,
    has_intervals,
    measured_counts,
    refuse_twice,
)
from semidp.inference.estimation.estimates import Estimate, estimate
from semidp.inference.estimation.measurements import (
    Among,
    CellSums,
    Classes,
    Measurements,
    Observed,
    Places,
    Within,
)
from semidp.inference.linear_estimates import Drawn, DrawnNumbers, DrawnTable, Floats, SumErrors
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.schema.margins import Mask, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.table_spaces import find_possible_cells
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.statistics.protocol.requests import Published, Request

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


@frozen(slots=False, eq=False)
class TreeLayout:
    """The features of several releases as a tree of places and attributes of cells.

    Levels of flat features that exact totals show to be empty are left out; places that are empty
    stay in the tree, with no possible cell.

    Parameters
    ----------
    dataspace
        The exact totals of all releases together.
    has_tree
        Whether the nested feature with the most leaves is the tree; else all are attributes.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 0], [3, 4, 5]]
    ... )
    >>> layout = TreeLayout(Dataspace.from_table(table, []))
    >>> layout.sizes, layout.query((0, 1)).treatments
    ((2, 3), ('summed', 'each'))
    """

    dataspace: Dataspace
    has_tree: bool = True

    @property
    def schema(self) -> Schema:
        """All features."""
        return self.dataspace.schema

    @cached_property
    def tree(self) -> int | None:
        """Axis of the nested feature with the most leaves; None if all features are flat."""
        nested = []
        for axis, feature in enumerate(self.schema.features):
            if feature.chain.depth > 1:
                nested.append((len(feature.levels), -axis))
        return -max(nested)[1] if nested and self.has_tree else None

    @property
    def attributes(self) -> tuple[int, ...]:
        """Axes of the other features."""
        return tuple(axis for axis in range(len(self.schema.features)) if axis != self.tree)

    @cached_property
    def places(self) -> Places:
        """The tree: its root, then the depths of the nested feature."""
        if self.tree is None:
            return Places()
        depths = self.schema.features[self.tree].depths
        parents: list[NDArray[np.int64]] = [np.zeros(len(depths[0].starts), dtype=np.int64)]
        for above, below in itertools.pairwise(depths):
            parents.append(np.searchsorted(above.starts, below.starts, side="right") - 1)
        return Places(parents)

    @cached_property
    def possible_leaves(self) -> tuple[Mask, ...]:
        """For each feature the leaves that can hold a record, by the exact totals that name it."""
        masks = []
        for feature in self.schema.features:
            mask = np.ones(len(feature.levels), dtype=bool)
            domain = find_possible_cells(self.dataspace, self.schema.view([feature.name]))
            if domain is not None:
                mask &= domain
            masks.append(mask)
        return tuple(masks)

    def possible_nodes(self, axis: int, depth: int) -> Mask:
        """For each node of a feature at a depth, whether it can hold a record."""
        chain = self.schema.grid.chains[axis]
        held = chain.find_leaf_ancestors(depth)[self.possible_leaves[axis]]
        return np.isin(np.arange(chain.size(depth)), held)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels of each attribute that can hold a record."""
        return tuple(int(self.possible_leaves[axis].sum()) for axis in self.attributes)

    @cached_property
    def possible(self) -> dict[int, Mask]:
        """Mask of the cells of the finest places that can be positive. Attributes that make no
        difference have length 1.
        """
        mask = find_possible_cells(self.dataspace, self.schema.grid.full)
        if mask is None:
            return {}
        for axis in self.attributes:
            mask = mask.compress(self.possible_leaves[axis], axis=axis)
        # The estimator has places first.
        mask = mask[None] if self.tree is None else np.moveaxis(mask, self.tree, 0)
        if mask.all():
            return {}
        for axis in range(1, mask.ndim):
            first = mask.take([0], axis=axis)
            # An attribute that no zero depends on stays apart from those that zeros couple.
            if (mask == first).all():
                mask = first
        return {self.places.depths[-1]: mask}

    def depth(self, view: View) -> int:
        """Depth of a view in the tree."""
        return 0 if self.tree is None else view[self.tree]

    def query(self, view: View) -> CellSums:
        """Query of the table at a view, at each place: attributes summed up, level by level, or at
        a coarser depth.
        """
        treatments: list[str | tuple[int, ...]] = []
        for axis in self.attributes:
            feature = self.schema.features[axis]
            if not view[axis]:
                treatments.append("summed")
            elif view[axis] == feature.chain.depth:
                treatments.append("each")
            else:
                nodes = feature.chain.find_leaf_ancestors(view[axis])[self.possible_leaves[axis]]
                groups = np.unique(nodes, return_inverse=True)[1]
                treatments.append(tuple(groups.tolist()))
        return CellSums(treatments)

    def residual_query(self, view: View, compared: Mapping[int, Mask]) -> CellSums:
        """Query of a residual at each place: contrasts of levels, or of siblings at a depth of a
        nested attribute.

        Parameters
        ----------
        view
            The residual.
        compared
            For some features the levels that it compares, where other releases show some of them to
            be empty.
        """
        treatments: list[str | Within | Among] = []
        for axis in self.attributes:
            feature, depth = self.schema.features[axis], view[axis]
            if not depth:
                treatments.append("summed")
            elif axis in compared:
                levels = np.flatnonzero(compared[axis])
                left = np.flatnonzero(self.possible_leaves[axis][compared[axis]])
                treatments.append(Among(len(levels), left.tolist()))
            elif feature.chain.depth == 1:
                treatments.append("contrasts")
            else:
                self._refuse_empty(axis)
                groups = feature.chain.find_leaf_ancestors(depth).tolist()
                above = feature.chain.find_leaf_ancestors(depth - 1).tolist()
                # Leaves are in the order of their nodes, so the first leaf of a node tells its
                # parent.
                firsts = np.unique(groups, return_index=True)[1]
                treatments.append(Within(groups, [above[first] for first in firsts]))
        return CellSums(treatments)

    def arrange_values(
        self, values: NDArray[np.generic], view: View, compared: Mapping[int, Mask] | None = None
    ) -> NDArray[np.generic]:
        """Values of a table at a view as (places, *nodes that can hold a record), in the order of
        the attributes.

        `values` have an axis for each feature that the view names, in the order of the schema, and
        perhaps more; `compared` are levels that stay although they are empty, as in
        `residual_query`.
        """
        axes = list_axes(view)
        for place, axis in enumerate(axes):
            if axis != self.tree:
                nodes = self.possible_nodes(axis, view[axis])
                if compared is not None:
                    nodes = compared.get(axis, nodes)
                values = values.compress(nodes, axis=place)
        # A view that does not name the tree is a table of its root.
        if self.tree in axes:
            return np.moveaxis(values, axes.index(self.tree), 0)
        return values[None]

    def restore_table(self, values: Floats, view: View, further: Sequence[int] = ()) -> Floats:
        """Values as `arrange_values` gives them as a table again, with axes of these lengths after
        its own; 0 if no record can be.
        """
        axes = list_axes(view)
        inner = [axis for axis in axes if axis != self.tree]
        order = [axis for axis in axes if axis == self.tree] + inner
        sizes, chosen = [], []
        for axis in order:
            size = self.schema.grid.chains[axis].size(view[axis])
            held = np.arange(size)
            sizes.append(size)
            chosen.append(
                held if axis == self.tree else held[self.possible_nodes(axis, view[axis])]
            )
        full = np.zeros((*sizes, *further))
        places = np.ix_(*chosen) if chosen else ()
        full[places] = values.reshape([*map(len, chosen), *further])
        # The tree comes first for the estimator, and stands where it stood in the table.
        return np.moveaxis(full, 0, axes.index(self.tree)) if self.tree in axes else full

    def on_cells(self, weights: NDArray[np.generic], view: View) -> Floats:
        """Weights of the cells of a table as weights (places, *sizes) of the cells of all
        attributes.
        """
        query = self.query(view)
        arranged = self.arrange_values(weights, view)
        spread = np.asarray(arranged, dtype=float).reshape(len(arranged), *query.shape(self.sizes))
        for axis, size in enumerate(self.sizes):
            matrix = query.matrix(axis, size)
            spread = np.moveaxis(np.tensordot(matrix.T, spread, axes=(1, axis + 1)), 0, axis + 1)
        return spread

    def order_axes(
        self, values: NDArray[np.generic], names: Sequence[str]
    ) -> tuple[NDArray[np.generic], View]:
        """Values of a table of some features in the order of the schema, and its view.

        `names` are those of the features, one an axis of the values.
        """
        axes = [self.schema.axis(name) for name in names]
        return np.transpose(values, np.argsort(axes)), self.schema.view(names)

    def find_alike_nodes(self, view: View, plain: Collection[int]) -> list[AlikeNodes]:
        """For each feature of a table the nodes whose cells share a distribution: all that hold
        records, if nothing couples its levels.

        `plain` are the places of attributes whose levels nothing couples.
        """
        alike: list[AlikeNodes] = []
        for axis in list_axes(view):
            every = np.arange(self.schema.grid.chains[axis].size(view[axis]))
            if axis != self.tree and self.attributes.index(axis) in plain:
                first = int(np.argmax(self.possible_leaves[axis]))
                alike.append((np.array([first]), np.zeros_like(every)))
            else:
                alike.append((every, every))
        return alike

    def _refuse_empty(self, axis: int) -> None:
        if not self.possible_leaves[axis].all():
            name = self.schema.features[axis].name
            raise Refused(
                "noise on residuals of two nested features is combined where every level of"
                f" {name} holds a record, and exact totals show an empty one: leave it out of the"
                " schema"
            )


@frozen(eq=False)
class Evidence:
    """One measurement of tables: its values for the estimator, and its noise.

    Parameters
    ----------
    observed
        Its values.
    drawn
        Its noise; None for exact totals.
    pull
        Weights of sums on the drawn numbers, from those on the values, (sums, places, *values).
    """

    observed: Observed
    drawn: Drawn | None = None
    pull: Callable[[Floats], Floats] | None = None


def collect_evidence(release: "ReleaseValue", layout: TreeLayout) -> list[Evidence]:
    """Return the measurements of tables in a release, in its order."""
    parts: list[Evidence] = []
    for request, result, mechanism in measured_counts(release, "combined estimates"):
        _refuse_unlike_noise(result, mechanism)
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
        # Rounding differs by direction, so it is no weight: it is added to the errors.
        assert mechanism.unrounded_variance is not None, "others were refused"
        variance = mechanism.unrounded_variance
    observed = Observed(layout.query(view), layout.depth(view), arranged, variance)
    if isinstance(mechanism, CellByCell):
        size = arranged.size
        numbers = DrawnNumbers([mechanism.sampler], np.zeros(size, dtype=np.intp), np.ones(size))
        return Evidence(observed, numbers, lambda weights: weights.reshape(len(weights), -1))
    # Axes of the table as they were measured, from those of the schema.
    as_measured = np.argsort(np.argsort([layout.schema.axis(name) for name in names]))

    def pull(weights: Floats) -> Floats:
        tables = [layout.restore_table(one, view) for one in weights]
        return np.stack([np.transpose(cells, as_measured) for cells in tables])

    return Evidence(observed, DrawnTable(mechanism), pull)


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
        in_place = compared.reshape(-1, *[1] * (measured.ndim - 1))
        drawn = np.flatnonzero(np.broadcast_to(in_place, measured.shape))
        law_numbers = whole["laws"].ravel()[drawn].astype(np.intp)
        numbers = DrawnNumbers(list(laws), law_numbers, whole["scales"].ravel()[drawn])
        yield Evidence(observed, numbers, _pull_drawn(drawn, numbers.scales))


def _pull_drawn(drawn: NDArray[np.intp], scales: NDArray[Any]) -> Callable[[Floats], Floats]:
    """Weights on whole numbers, from those on values that are such numbers divided by scales."""
    return lambda weights: weights.reshape(len(weights), -1)[:, drawn] / scales


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
    yield Evidence(Observed(layout.query(nothing), 0, n, 0.0))
    for total in dataspace.published_totals:
        values = layout.arrange_values(total.counts, total.view)
        query = layout.query(total.view)
        observed = Observed(query, layout.depth(total.view), values, 0.0)
        yield Evidence(observed)


def digest(part: Evidence) -> str:
    """Hash of a measurement: its numbers and its noise. The location of its folder does not
    matter.
    """
    one = part.observed
    question = f"{one.query!r}{one.depth}{one.siblings}"
    hashed = hashlib.sha256(question.encode())
    hashed.update(one.variance.tobytes())
    values = np.ascontiguousarray(one.values, dtype=float)
    hashed.update(values.tobytes())
    return hashed.hexdigest()


_MOST_WEIGHTS = 2 * 10**7  # weights on measured values that are held at once


@frozen(slots=False, eq=False)
class Combination(RecordCombination):
    """Several releases of records of one kind as one set of measurements; see `semidp.combine`."""

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
        """All measurements, exact totals last; refuse the same measurement twice."""
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
        """The estimate from all measurements."""
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

    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, in the order of the schema."""
        view = self.views[number]
        answers = self.answer.table(self.layout.depth(view), self.layout.query(view))
        if np.isnan(answers.values).any():
            names = ", ".join(self.schema.list_view_names(view))
            raise Refused(f"what was measured does not determine the table of {names}")
        values = self.layout.restore_table(answers.values, view)
        errors = self.layout.restore_table(answers.standard_errors, view)
        if any(_is_rounded(part.drawn) for part in self.evidence):
            # Rounding is no part of the variances that weigh the measurements.
            units = np.eye(errors.size).reshape(-1, *errors.shape)
            with_rounding = self.weigh_noise({number: units}).standard_errors
            errors = np.where(errors > 0, with_rounding.reshape(errors.shape), 0.0)
        return values, errors

    def table_half_widths(self, number: int) -> Floats | None:
        """Half-widths of the 95% intervals of the cells of a table, from the noise
        distributions.

        None for large tables, and if noise is drawn for a whole table at once.
        """
        if any(isinstance(part.drawn, DrawnTable) for part in self.evidence):
            return None
        view = self.views[number]
        alike = self.layout.find_alike_nodes(view, self.answer.classes.plain)
        values = sum(part.observed.values.size for part in self.evidence)
        _, errors = self.table_estimates(number)
        laws = math.prod(len(firsts) for firsts, _ in alike)
        if not has_intervals(errors) or laws * values > _MOST_WEIGHTS:
            return None
        return self.law_half_widths(number, errors, alike)

    def weights(self, weights: Mapping[int, Floats]) -> dict[int, Floats]:
        """Weights of several sums on cells of tables, by their numbers, as weights on places and
        attributes by depth.

        The arrays are (sums, *cells of the table).
        """
        by_depth: dict[int, Floats] = {}
        for number, arrays in weights.items():
            view = self.views[number]
            depth = self.layout.depth(view)
            # Tables at one depth of the tree weigh the same cells.
            part = np.stack([self.layout.on_cells(array, view) for array in arrays])
            by_depth[depth] = by_depth[depth] + part if depth in by_depth else part
        return by_depth

    def weigh_noise(self, weights: Mapping[int, Floats]) -> SumErrors:
        """Return the errors of sums over cells of several tables, by their numbers."""
        influences = self.answer.influences(self.weights(weights))
        parts = []
        for one, influence in zip(self.evidence, influences, strict=True):
            if one.drawn is not None and one.pull is not None:
                parts.append((one.drawn, one.pull(influence)))
        return SumErrors(len(next(iter(weights.values()))), tuple(parts))


def _is_rounded(drawn: Drawn | None) -> bool:
    """Whether noise was rounded in ways that its variance in `Observed` leaves out."""
    return isinstance(drawn, DrawnTable) and isinstance(drawn.mechanism, KNormMechanism)
