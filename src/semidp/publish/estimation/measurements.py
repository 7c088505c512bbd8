"""What was measured: sums of cells of places, each with a known variance.

`CellSums` says which cells are added up, `Observed` holds what one query found at one depth, and
`Measurements` all of it. Estimates from them are in `publish.estimation.estimates`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.publish.estimation.places import Places

Floats = NDArray[np.float64]

SUMMED, EACH, CONTRASTS = "summed", "each", "contrasts"
"""How a query treats an attribute: added up, level by level, or level by level minus the mean of
all levels."""


def _sizes(value: Iterable[int]) -> tuple[int, ...]:
    return tuple(value)


def _group_numbers(value: Iterable[int]) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in value)
    largest = max(numbers, default=-1)
    if set(numbers) != set(range(largest + 1)):
        raise InputError(f"groups are numbered 0, 1, … without a gap, not {numbers}")
    return numbers


@frozen
class Within:
    """Groups of levels, each minus the mean of its family: contrasts of siblings in a nested
    attribute.

    Parameters
    ----------
    groups
        Group (0, 1, …) of each level.
    families
        Family (0, 1, …) of each group.

    Examples
    --------
    >>> CellSums((Within((0, 1, 2, 2), (0, 0, 1)),)).matrix(0, 4).tolist()
    [[0.5, -0.5, 0.0, 0.0], [-0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    groups: tuple[int, ...] = field(converter=_group_numbers)
    families: tuple[int, ...] = field(converter=_group_numbers)

    def matrix(self) -> Floats:
        """Matrix from levels to contrasts of groups."""
        families = np.asarray(self.families)
        members = families == families[:, None]
        means = members / members.sum(axis=1, keepdims=True)
        numbers = np.arange(len(families))
        summed = np.asarray(self.groups) == numbers[:, None]
        centred = np.eye(len(families)) - means
        return np.asarray(centred @ summed, dtype=float)


@frozen
class Among:
    """Contrasts of more levels than there are: each level minus the mean of all, of which some are
    known to be zero.

    Levels that were compared and turn out to be empty leave the attribute, and the others keep the
    mean over all of them. Along the mean of n' levels out of n such contrasts say ``1 - n'/n`` of
    what each level by itself would.

    Parameters
    ----------
    levels
        Number of levels that were compared.
    kept
        Place among them of each level of the attribute.

    Examples
    --------
    >>> CellSums((Among(3, (0, 2)),)).matrix(0, 2).round(2).tolist()
    [[0.67, -0.33], [-0.33, -0.33], [-0.33, 0.67]]
    """

    levels: int
    kept: tuple[int, ...] = field(converter=_sizes)

    def __attrs_post_init__(self) -> None:
        repeated = len(set(self.kept)) < len(self.kept)
        inside = all(0 <= place < self.levels for place in self.kept)
        if repeated or not inside:
            raise InputError(
                f"levels that are kept have different places among {self.levels}, not {self.kept}"
            )

    def matrix(self) -> Floats:
        """Matrix from the levels that are kept to the contrasts of all."""
        contrasts = np.eye(self.levels) - 1 / self.levels
        return contrasts[:, list(self.kept)]


Treatment = str | tuple[int, ...] | Within | Among


def _treatments(value: Iterable[Treatment]) -> tuple[Treatment, ...]:
    return tuple(value)


@frozen
class CellSums:
    """A query: how each attribute is treated, in the order of the attributes.

    Parameters
    ----------
    treatments
        For each attribute ``summed``, ``each``, ``contrasts``, the group (0, 1, …) of each of its
        levels, `Within` or `Among`.

    Examples
    --------
    >>> CellSums(("each", (0, 1, 1), "summed")).shape((2, 3, 4))
    (2, 2, 1)
    """

    treatments: tuple[Treatment, ...] = field(converter=_treatments)

    def __attrs_post_init__(self) -> None:
        for treatment in self.treatments:
            if isinstance(treatment, str):
                if treatment not in (SUMMED, EACH, CONTRASTS):
                    raise InputError(
                        f"an attribute is {SUMMED}, {EACH}, {CONTRASTS} or grouped, not"
                        f" {treatment!r}"
                    )
            elif not isinstance(treatment, Within | Among):
                _group_numbers(treatment)

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Number of values of the query along each attribute."""
        if len(sizes) != len(self.treatments):
            raise InputError(
                f"a query treats {len(self.treatments)} attributes, and there are {len(sizes)}"
            )
        lengths = []
        for treatment, size in zip(self.treatments, sizes, strict=True):
            if isinstance(treatment, str):
                lengths.append(1 if treatment == SUMMED else size)
                continue
            if isinstance(treatment, Among):
                if len(treatment.kept) != size:
                    raise InputError(
                        f"{len(treatment.kept)} levels are kept, and the attribute has {size}"
                    )
                lengths.append(treatment.levels)
                continue
            groups = treatment.groups if isinstance(treatment, Within) else treatment
            if len(groups) != size:
                raise InputError(f"{len(groups)} levels are grouped, and the attribute has {size}")
            lengths.append(max(groups) + 1)
        return tuple(lengths)

    def matrix(self, attribute: int, size: int) -> Floats:
        """Matrix that takes the levels of one attribute to the values of the query along it.

        >>> CellSums(("summed", (0, 1, 1))).matrix(1, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
        """
        treatment = self.treatments[attribute]
        if treatment == SUMMED:
            return np.ones((1, size))
        if treatment == EACH:
            return np.eye(size)
        if treatment == CONTRASTS:
            return np.eye(size) - 1 / size
        if isinstance(treatment, Within | Among):
            return treatment.matrix()
        groups = np.asarray(treatment)
        numbers = np.arange(groups.max() + 1)
        return np.asarray(groups == numbers[:, None], dtype=float)

    def sums(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Values of the query for tables of cells, of shape (nodes, *sizes).

        >>> CellSums(("summed", "each")).sums(np.arange(4.0).reshape(1, 2, 2)).tolist()
        [[[2.0, 4.0]]]
        """
        values = cells
        for axis, treatment in enumerate(self.treatments, 1):
            if treatment == SUMMED:
                values = values.sum(axis=axis, keepdims=True)
            elif treatment != EACH:
                matrix = self.matrix(axis - 1, cells.shape[axis])
                summed = np.tensordot(matrix, values, axes=(1, axis))
                values = np.moveaxis(summed, 0, axis)
        return values


def _values(value: ArrayLike) -> NDArray[Any]:
    return np.asarray(value)


def _variance(value: ArrayLike) -> Floats:
    return np.asarray(value, dtype=float)


@frozen(eq=False)
class Observed:
    """What one query measured at one depth.

    Parameters
    ----------
    query
        Which cells are added up.
    depth
        Depth of the places in their tree.
    values
        Array of shape (nodes, values of the query), in the order of the nodes.
    variance
        Of each value: one number, or one for each node. Zero means exact; infinite, not measured at
        that node.
    siblings
        Whether each value is that of a node minus the mean of its family, the children of one
        parent that were measured; the variance is then that of the noise before it is centred in
        the same way.

    Examples
    --------
    >>> Observed(CellSums(("each",)), 0, [[3, 4]], 2).variances(1).tolist()
    [2.0]
    """

    query: CellSums
    depth: int
    values: NDArray[Any] = field(converter=_values)
    variance: Floats = field(converter=_variance)
    siblings: bool = False

    def variances(self, nodes: int) -> Floats:
        """Variance at each node."""
        return np.broadcast_to(self.variance, (nodes,))


def _several(value: Iterable[Observed]) -> tuple[Observed, ...]:
    return tuple(value)


@frozen(eq=False)
class Measurements:
    """Independent linear measurements of one table of counts at the nodes of a tree.

    The table of a node is the sum of the tables of its children. Noise is independent between
    values and unbiased; ``contrasts`` are the exception, whose noise is centred over the levels as
    they are.

    Parameters
    ----------
    places
        The tree.
    sizes
        Number of levels of each attribute; none where only totals are counted.
    observed
        What was measured, in any order; the same query may stand several times.
    possible
        For some depths, which cells can be other than zero: booleans of shape (nodes, *sizes),
        where an attribute that makes no difference may have length 1.

    Examples
    --------
    >>> county = Places([[0, 0]])
    >>> total = CellSums(())
    >>> parts = Observed(total, 1, [10, 20], 4.0)
    >>> Measurements(county, (), [parts, Observed(total, 0, [33], 1.0)]).cells
    1
    """

    places: Places
    sizes: tuple[int, ...] = field(converter=_sizes)
    observed: tuple[Observed, ...] = field(converter=_several)
    possible: Mapping[int, NDArray[np.bool_]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if any(size < 1 for size in self.sizes):
            raise InputError("every attribute has at least one level")
        if not self.observed:
            raise InputError("nothing was measured: there is nothing to estimate from")
        for one in self.observed:
            self._check(one)
        for depth, mask in self.possible.items():
            self._check_mask(depth, np.asarray(mask))

    @property
    def cells(self) -> int:
        """Number of cells of a place."""
        return math.prod(self.sizes)

    def select_depth(self, depth: int) -> tuple[Observed, ...]:
        """What was measured at one depth."""
        return tuple(one for one in self.observed if one.depth == depth)

    def _check(self, one: Observed) -> None:
        if one.depth not in self.places.depths:
            raise InputError(
                f"something was measured at depth {one.depth}, which the tree does not have"
            )
        nodes = self.places.counts[one.depth]
        length = nodes * math.prod(one.query.shape(self.sizes))
        if one.values.size != length or not len(one.values) == nodes:
            raise InputError(
                f"a query at depth {one.depth} has {length // nodes} values at each of {nodes}"
                f" nodes, which is not the shape {one.values.shape}"
            )
        if one.variance.shape not in {(), (nodes,)}:
            raise InputError("a variance is one number, or one for each node")
        if np.isnan(one.variance).any() or (one.variance < 0).any():
            raise InputError("a variance is zero (exact), positive, or infinite (not measured)")
        among = any(isinstance(treatment, Among) for treatment in one.query.treatments)
        if among and (one.variance == 0).any():
            raise InputError(
                "contrasts among more levels have noise: give exact values as they are"
            )
        if one.siblings:
            self._check_siblings(one)
        if np.issubdtype(one.values.dtype, np.integer):
            return
        measured = one.values[np.isfinite(one.variances(nodes))]
        is_real = np.issubdtype(measured.dtype, np.floating)
        if not is_real or not np.isfinite(measured).all():
            raise InputError(f"a value measured at depth {one.depth} is not a number")

    def _check_siblings(self, one: Observed) -> None:
        if not one.depth:
            raise InputError("roots have no siblings: measure contrasts below them")
        if (one.variance == 0).any():
            raise InputError("contrasts between siblings have noise: give exact values as they are")
        if not one.variance.shape:
            return
        # One family, one variance: so that centring keeps the noise alike.
        parents = self.places.parents[one.depth - 1]
        measured = np.isfinite(one.variance)
        largest = np.zeros(self.places.counts[one.depth - 1])
        np.maximum.at(largest, parents[measured], one.variance[measured])
        if not np.allclose(largest[parents[measured]], one.variance[measured], rtol=1e-12):
            raise InputError("siblings that are compared have one variance")

    def _check_mask(self, depth: int, mask: NDArray[np.bool_]) -> None:
        if depth not in self.places.depths or mask.dtype != np.bool_:
            raise InputError("possible cells are booleans for depths of the tree")
        lengths = (self.places.counts[depth], *self.sizes)
        pairs = zip(mask.shape, lengths, strict=False)
        fits = [length in (1, full) for length, full in pairs]
        if mask.ndim != len(lengths) or not all(fits):
            raise InputError(
                f"possible cells at depth {depth} have shape {lengths}, or 1 where nothing differs"
            )
