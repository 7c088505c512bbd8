"""Trees whose roots add up to a sum that was measured too. One tree is in memory at a time.

What a tree says of its root is small (`RootKnowledge`). The roots of all trees and what was
measured of their sum make a tree of two depths (`Regions`), which says what is known of every root
from everything. With that in the place of its root a tree is estimated as if it were alone. A sum
over several trees has the variance that is left given the roots, tree by tree, and that of the
weights that it has on the roots, from the two depths.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.inference.estimation.beliefs import Belief, TreeDepth
from semidp.inference.estimation.estimates import (
    AreaSums,
    Estimate,
    RootedSums,
    split_weights,
    weight_basis,
    weighted_variances,
)
from semidp.inference.estimation.measurements import (
    Classes,
    Floats,
    Measurements,
    Observed,
    Places,
    TableClass,
)
from semidp.inference.estimation.passes import (
    Weights,
    covariances,
    downward,
    possible_cells,
    upward,
)


@frozen(eq=False)
class RootKnowledge:
    """What is known of the root of one tree: a mean and a covariance for each class.

    Parameters
    ----------
    possible
        Cells of the block that can be other than zero.
    means, spreads
        By class: means (block, columns), covariances (block, block).
    """

    possible: NDArray[np.bool_]
    means: Mapping[TableClass, Floats]
    spreads: Mapping[TableClass, Floats]

    @classmethod
    def from_measurements(cls, measurements: Measurements, classes: Classes) -> "RootKnowledge":
        """Return what everything that was measured in one tree says of its root.

        Examples
        --------
        >>> from semidp.inference import CellSums, Observed
        >>> parts = Observed(CellSums(()), 1, [10, 20], 4.0)
        >>> known = RootKnowledge.from_measurements(
        ...     Measurements(Places([[0, 0]]), (), [parts]), Classes((), ())
        ... )
        >>> known.means[()].tolist(), known.spreads[()].tolist()
        ([[30.0]], [[8.0]])
        """
        if measurements.places.counts[0] != 1:
            raise InputError("a tree that is a part of others has one root")
        root = upward(measurements, classes)[0]
        (group,) = root.groups
        means, spreads = {}, {}
        for table_class, (belief,) in root.beliefs.items():
            if belief.unknown is not None:
                raise InputError(
                    "the sum of several trees is used where what was measured in each determines"
                    " every cell of its root"
                )
            means[table_class] = np.zeros((classes.block, classes.coordinates(table_class)))
            means[table_class][group.cells] = belief.mean[0]
            spreads[table_class] = np.zeros((classes.block, classes.block))
            spreads[table_class][np.ix_(group.cells, group.cells)] = belief.spread[0]
        return cls(possible_cells(measurements, classes)[0][0], means, spreads)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        kinds = []
        for table_class, mean in self.means.items():
            spread = self.spreads[table_class].tolist()
            kinds.append({"kind": list(table_class), "mean": mean.tolist(), "spread": spread})
        return {"possible": self.possible.tolist(), "kinds": kinds}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RootKnowledge":
        """Read what `to_json` wrote."""
        means: dict[TableClass, Floats] = {}
        spreads: dict[TableClass, Floats] = {}
        for entry in value["kinds"]:
            table_class = tuple(entry["kind"])
            means[table_class] = np.asarray(entry["mean"], dtype=float)
            spreads[table_class] = np.asarray(entry["spread"], dtype=float)
        return cls(np.asarray(value["possible"], dtype=bool), means, spreads)


def estimate_from_root(
    measurements: Measurements, classes: Classes, root: RootKnowledge
) -> Estimate:
    """Return the estimate of a tree, where more is known of its root than the tree says.

    `Estimate.influences` are those of the tree alone, and not to be asked here.
    """
    depths = upward(measurements, classes)
    (group,) = depths[0].groups
    for table_class in classes.every():
        mean = root.means[table_class][group.cells][None]
        spread = root.spreads[table_class][np.ix_(group.cells, group.cells)][None]
        depths[0].beliefs[table_class] = [Belief(mean, spread, None)]
    downward(depths, measurements.places, classes)
    return Estimate(measurements.places, classes, depths, measurements.observed)


@frozen(eq=False)
class Regions:
    """Roots of several trees, and what was measured of their sum; made by `Regions.of`.

    Examples
    --------
    Two trees say 10 and 20 of their roots with variance 4, and their sum was measured as 33 with
    variance 1, as in `inference.estimation.estimate`:

    >>> from semidp.inference import CellSums, Observed
    >>> roots = [
    ...     RootKnowledge(np.ones(1, bool), {(): np.array([[value]])}, {(): np.array([[4.0]])})
    ...     for value in (10.0, 20.0)
    ... ]
    >>> regions = Regions.from_roots(roots, [Observed(CellSums(()), 0, [33], 1.0)], Classes((), ()))
    >>> [regions.root(number).means[()].round(3).tolist() for number in range(2)]
    [[[11.333]], [[21.333]]]
    """

    classes: Classes
    places: Places
    depths: list[TreeDepth]
    possible: tuple[NDArray[np.bool_], ...]

    @classmethod
    def from_roots(
        cls, roots: Sequence[RootKnowledge], observed: Sequence[Observed], classes: Classes
    ) -> "Regions":
        """Bring together what is known of every root with what was measured of their sum.

        Parameters
        ----------
        roots
            What each tree says of its root.
        observed
            What was measured of the sum of all roots, at depth 0.
        classes
            The classes of all that was measured, in every tree and of the sum.
        """
        places = Places([[0] * len(roots)])
        mask = np.stack([root.possible for root in roots])
        lengths = [1] * len(classes.sizes)
        for axis in classes.dense:
            lengths[axis] = classes.sizes[axis]
        possible = {1: mask.reshape(len(roots), *lengths)}
        measurements = Measurements(places, classes.sizes, observed, possible)
        below = {}
        for table_class in classes.every():
            mean = np.stack([root.means[table_class] for root in roots])
            spread = np.stack([root.spreads[table_class] for root in roots])
            below[table_class] = Belief(mean, spread, None)
        depths = upward(measurements, classes, below)
        downward(depths, places, classes)
        return cls(classes, places, depths, tuple(root.possible for root in roots))

    def root(self, number: int) -> RootKnowledge:
        """What is known of one root from everything."""
        level = self.depths[1]
        group, place = int(level.group_of[number]), int(level.place_of[number])
        cells = level.groups[group].cells
        means, spreads = {}, {}
        unit = np.eye(self.classes.block)[None]
        for table_class in self.classes.every():
            means[table_class] = np.zeros(
                (self.classes.block, self.classes.coordinates(table_class))
            )
            means[table_class][cells] = level.beliefs[table_class][group].mean[place]
            weights = Weights(np.array([number]), np.array([0]), unit)
            matrices, _ = covariances(self.depths, self.places, table_class, {1: weights}, 1)
            spreads[table_class] = matrices[0]
        return RootKnowledge(self.possible[number], means, spreads)

    def add_trees(self, parts: Mapping[int, RootedSums], cells: ArrayLike) -> AreaSums:
        """Sums over all trees, from what each tree says of them.

        Parameters
        ----------
        parts
            Sums over the areas of some trees, by the number of the tree; the others have no place
            in any area.
        cells
            Weights of cells, of shape (weightings, *sizes), as every tree was asked.
        """
        values = np.sum([part.values for part in parts.values()], axis=0)
        variances = np.sum([part.variances for part in parts.values()], axis=0)
        for table_class, weights in split_weights(
            self.classes, np.asarray(cells, dtype=float)
        ).items():
            basis, coefficients = weight_basis(weights)
            entries = _on_roots(parts, table_class, basis)
            if entries is None or not basis.shape[1]:
                continue
            matrices, _ = covariances(
                self.depths, self.places, table_class, {1: entries}, len(values)
            )
            variances += weighted_variances(matrices, coefficients)
        return AreaSums(values, np.maximum(variances, 0.0))


def _on_roots(
    parts: Mapping[int, RootedSums], table_class: TableClass, basis: Floats
) -> Weights | None:
    """Weights that sums over several trees have on the roots, in the directions of a basis."""
    nodes, owners, weights = [], [], []
    for number, part in parts.items():
        if table_class in part.on_root:
            areas, matrices = part.on_root[table_class]
            nodes.append(np.full(len(areas), number))
            owners.append(areas)
            weights.append(matrices @ basis)
    if not nodes:
        return None
    return Weights(np.concatenate(nodes), np.concatenate(owners), np.concatenate(weights))
