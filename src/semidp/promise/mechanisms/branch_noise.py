"""A product of tables cut at a depth of a nested feature: the part above the cut, the part below
each node, and the noise of one branch.

Noise is drawn and combined with the measurement above, residual by residual, so nothing larger
than the tables of one branch is in memory. Calibration uses the norm of the whole product.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.residual_noise import ResidualNoise, residual_noise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Grid, View, list_axes
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.orthogonal_parts import kept_nodes
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import Dataspace, Margin

Noise = TypeVar("Noise", bound=ResidualNoise)


@frozen
class Cut:
    """The depth of a nested feature at which tables are divided; it has finer depths below
    it.

    Parameters
    ----------
    axis
        Which feature of the schema.
    depth
        Which depth of it.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> places = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
    >>> cut = Cut.from_name(Schema([Feature("sex", "fm"), places]), "state")
    >>> cut, cut.coarsen_view((1, 2)), cut.reaches((1, 2))
    (Cut(axis=1, depth=1), (1, 1), True)
    """

    axis: int
    depth: int

    @classmethod
    def from_name(cls, schema: Schema, name: str) -> "Cut":
        """Return the cut at a named depth; refuse the finest depth."""
        depths = [feature.names[:-1] for feature in schema.features]
        for axis, names in enumerate(depths):
            if name in names:
                return cls(axis, names.index(name) + 1)
        every_name = [name for at_depths in depths for name in at_depths]
        choices = "no feature of these tables is nested"
        if every_name:
            choices = f"there are {', '.join(every_name)}"
        raise InputError(
            f"{name!r} is not a depth of a nested feature with a finer one below it that is"
            f" released; {choices}",
            needs="partition",
        )

    def name(self, schema: Schema) -> str:
        """Return the name of the depth: the inverse of `from_name`."""
        return schema.features[self.axis].names[self.depth - 1]

    def coarsen_view(self, view: View) -> View:
        """Return the view with the nested feature no finer than the cut."""
        above = list(view)
        above[self.axis] = min(view[self.axis], self.depth)
        return tuple(above)

    def reaches(self, view: View) -> bool:
        """Whether a table has cells below the cut."""
        return view[self.axis] > self.depth

    def chain(self, schema: Schema) -> Chain:
        """Return the nested feature as the geometry of margins sees it."""
        return schema.grid.chains[self.axis]

    def branch(self, schema: Schema, node: int) -> Schema:
        """Return the schema of the records below one node of the cut; every depth stays.

        Structural zeros keep those of their levels that the node has.
        """
        features = list(schema.features)
        features[self.axis] = features[self.axis].branch(self.depth, node)
        zeros = []
        for zero in schema.structural_zeros:
            here = {name: _filter_levels(levels, name, features) for name, levels in zero.levels}
            if all(here.values()):
                zeros.append(StructuralZero.from_pattern(here))
        return Schema(tuple(features), tuple(zeros))

    def row(self, grid: Grid, view: View, values: NDArray[Any], node: int) -> NDArray[Any]:
        """Return the part of a table that belongs to one node of the cut; the table names the cut
        or something finer.
        """
        place = list_axes(view).index(self.axis)
        chain = grid.chains[self.axis]
        below = chain.slice_descendants(self.depth, node, view[self.axis])
        return values[(slice(None),) * place + (below,)]

    def exact(self, dataspace: Dataspace, node: int) -> Dataspace:
        """Return the exact totals of the records below one node: the margins that reach below the
        cut.
        """
        part = self.branch(dataspace.schema, node)
        grid = dataspace.schema.grid
        tables = {}
        for margin, total in zip(dataspace.margins, dataspace.published_totals, strict=True):
            if self.reaches(total.view):
                counts = self.row(grid, total.view, total.counts, node)
                tables[Margin(*margin.names)] = Table(part.restrict(margin.names), counts)
        return Dataspace.from_totals(part, tables, None if tables else 0)


def _filter_levels(levels: Sequence[str], name: str, features: Sequence[Feature]) -> list[str]:
    """Levels of `name`, a feature or a depth of one, that the features still have."""
    owner = next(feature for feature in features if name in feature.names)
    below = owner.leaves_below(name)
    return [level for level in levels if level in below]


def space_above(space: ProductSpace, cut: Cut) -> ProductSpace:
    """Return the space of the residuals that the tables of a product have at the cut and above it.

    >>> from semidp.promise.sensitivity.products import product_space
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> places = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
    >>> public = Dataspace.from_table(
    ...     Table(Schema([places, Feature("sex", "fm")]), np.ones((3, 2), int)), []
    ... )
    >>> space = product_space(public, Ball(1), [["county", "sex"]])
    >>> space_above(space, Cut(0, 1)).measured_residuals == tuple(
    ...     view for view in space.measured_residuals if view[0] < 2
    ... )
    True
    """
    above = dict.fromkeys(cut.coarsen_view(view) for view in space.views)
    return evolve(space, views=tuple(above))


@frozen(slots=False, eq=False)
class BranchSpace(ProductSpace):
    """The residuals of a product below one node of a cut, computed from the records of that node.

    Its dataspace holds the margins that are published below the cut, for these records alone. Norms
    and costs are those of the whole product: nothing is calibrated here.

    Parameters
    ----------
    dataspace, adjacency, views
        As for a product; only tables that reach below the cut.
    cut
        Where the product is cut.
    kept
        For each feature the leaves that can hold a record.
    lower
        The residuals below the cut that the whole product measures.
    """

    cut: Cut
    kept: tuple[NDArray[np.bool_], ...]
    lower: frozenset[View]

    @property
    def inhabited_leaves(self) -> tuple[NDArray[np.bool_], ...]:
        return self.kept

    @cached_property
    def measured_residuals(self) -> tuple[View, ...]:
        """The residuals that need noise: those of the whole product that can differ from zero
        here.
        """
        return tuple(view for view in self.needed_residuals if view in self.lower)

    @property
    def _fixed_residuals(self) -> list[View]:
        return [view for view in super()._fixed_residuals if self.cut.reaches(view)]


def branch_space(space: ProductSpace, cut: Cut, node: int) -> BranchSpace | None:
    """Return the space of the residuals below one node of a cut; None if the node can hold no
    record.

    Parameters
    ----------
    space
        The whole product.
    cut, node
        The depth at which it is cut, and the node there.
    """
    chain = cut.chain(space.schema)
    kept = list(space.inhabited_leaves)
    kept[cut.axis] = kept[cut.axis][chain.slice_descendants(cut.depth, node, chain.depth)]
    if not kept[cut.axis].any():
        return None
    # Only what reaches below the cut is measured here; the rest was measured above it.
    views = tuple(view for view in space.views if cut.reaches(view))
    lower = frozenset(view for view in space.measured_residuals if cut.reaches(view))
    public = cut.exact(space.dataspace, node)
    return BranchSpace(public, space.adjacency, views, cut, tuple(kept), lower)


def families_above(space: ProductSpace, cut: Cut, node: int) -> tuple[int, ...]:
    """Numbers of siblings of a node of the cut and of each of its ancestors, the coarsest first.
    Nodes that can hold no record do not count.
    """
    held = kept_nodes(cut.chain(space.schema), space.inhabited_leaves[cut.axis], cut.depth)
    siblings = space.residuals.families(cut.axis, cut.depth)
    # Nodes that can hold no record were trimmed away: count those before the node that can.
    place = int(held[:node].sum())
    return tuple(siblings[:, place].tolist())


def mechanism_above(mechanism: Noise, cut: Cut) -> Noise:
    """Return the noise of a product at a cut and above it: the same σ² for the residuals of that
    part.
    """
    space = space_above(mechanism.space, cut)
    sigma2 = {view: mechanism.sigma2[view] for view in space.measured_residuals}
    kind = type(mechanism)
    return kind(space, sigma2, mechanism.precision, mechanism.law, mechanism.saved)


@frozen(eq=False)
class BranchNoise:
    """The noise on the residuals below one node of a cut, with the σ² and the distribution of
    the whole product's mechanism.

    Parameters
    ----------
    space
        The residuals below the node.
    sigma2
        σ² of every residual of the whole product: the errors of the tables come from those above
        the cut as well.
    law
        The law of the noise.
    families
        The sizes of the families of the node and of its ancestors, the coarsest first.
    """

    space: BranchSpace
    sigma2: Mapping[View, Fraction]
    law: str
    families: tuple[int, ...]

    @classmethod
    def from_mechanism(cls, mechanism: ResidualNoise, cut: Cut, node: int) -> "BranchNoise | None":
        """Return the noise of one branch of a product; None if the branch can hold no record."""
        space = branch_space(mechanism.space, cut, node)
        if space is None:
            return None
        families = families_above(mechanism.space, cut, node)
        return cls(space, mechanism.sigma2, mechanism.law, families)

    def measure(
        self, tables: Sequence[Table], randomness: Randomness
    ) -> dict[View, NDArray[np.int64]]:
        """Return each residual of the confidential tables, times its scale and with noise: this may
        be published.
        """
        noisy = self.space.compute_residuals(tables)
        for view, values in noisy.items():
            source = randomness.part(*self.space.schema.list_view_names(view))
            scale = self.space.residuals.scale(view)
            values += residual_noise(self.law, self.sigma2[view], scale, source)
        return noisy
