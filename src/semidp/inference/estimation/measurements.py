"""Measurements: sums of cells of places in a tree, each with a known variance.

Every node of one depth lies in one node of the depth above, and counts add up. `CellSums` says
which cells are added up, `Observed` holds the values of one query at one depth, and `Measurements`
all of them. Attributes are divided into uncoupled classes: one that every query sums up or keeps,
and that no zero depends on, is *plain*, and its mean and its residual are measured separately.
The classes are the choices of mean or residual for each plain attribute; the cells of all other
attributes together make a dense block. Within a class one matrix of the size of the block serves
all coordinates.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError

Index = NDArray[np.int64]


def _indices(arrays: Sequence[Sequence[int] | Index]) -> tuple[Index, ...]:
    converted = []
    for array in arrays:
        as_numbers = np.asarray(array)
        if as_numbers.ndim != 1 or not np.issubdtype(as_numbers.dtype, np.integer):
            raise InputError(
                "the parents of a depth are a list of whole numbers, one for each node"
            )
        converted.append(as_numbers.astype(np.int64))
    return tuple(converted)


@frozen(eq=False)
class Places:
    """A tree of places: depth 0 holds the roots, and `parents[k]` the parents of the nodes of depth
    k + 1.

    A node without children may lie at any depth.

    Parameters
    ----------
    parents
        For each depth below the first, the number of the parent (in the depth above) of every node.
    roots
        Number of nodes of depth 0.

    Examples
    --------
    >>> state = Places([[0, 0], [0, 0, 1]])
    >>> state.counts
    (1, 2, 3)
    """

    parents: tuple[Index, ...] = field(converter=_indices, default=())
    roots: int = 1

    def __attrs_post_init__(self) -> None:
        if self.roots < 1:
            raise InputError(f"a tree has at least one root, not {self.roots}")
        above = self.roots
        for depth, parents in enumerate(self.parents, 1):
            if parents.size == 0:
                raise InputError(f"depth {depth} has no node: leave it out")
            if parents.min() < 0 or parents.max() >= above:
                raise InputError(
                    f"a node of depth {depth} names a parent that is not in depth {depth - 1}"
                )
            above = len(parents)

    @classmethod
    def from_codes(cls, codes: Sequence[Sequence[str]]) -> "Places":
        """Return the tree of codes that start with the code of their parent, such as 15, 15001,
        15001020100.

        >>> [
        ...     level.tolist()
        ...     for level in Places.from_codes([["15"], ["15001", "15003"], ["1500302"]]).parents
        ... ]
        [[0, 0], [1]]
        """
        parents = []
        for above, below in itertools.pairwise(codes):
            number_of = {code: number for number, code in enumerate(above)}
            # Longer codes first: a place lies in the smallest one that its code starts with.
            lengths = sorted({len(code) for code in above}, reverse=True)
            parents.append([_parent(code, number_of, lengths) for code in below])
        return cls(parents, roots=len(codes[0]))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of nodes at each depth."""
        return (self.roots, *(len(parents) for parents in self.parents))

    @property
    def depths(self) -> range:
        """Depths from the roots down."""
        return range(len(self.parents) + 1)

    def ancestors(self, depth: int, above: int) -> Index:
        """Ancestor at depth `above` of every node of `depth`; the node itself if the depths are
        equal.

        >>> Places([[0, 0], [0, 0, 1]]).ancestors(2, 0).tolist()
        [0, 0, 0]
        """
        nodes = np.arange(self.counts[depth])
        for upper in range(depth - 1, above - 1, -1):
            nodes = self.parents[upper][nodes]
        return nodes


def _parent(code: str, number_of: dict[str, int], lengths: list[int]) -> int:
    for length in lengths:
        number = number_of.get(code[:length])
        if number is not None:
            return number
    raise InputError(
        f"the place {code!r} lies in no place of the depth above: no code there starts it"
    )


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
    """Contrasts with levels that are known to be zero: each level minus the mean of
    all.

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
    """The values of one query at one depth.

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
        parent that were measured; the variance is then that of the noise before it is centered in
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
    values and unbiased; ``contrasts`` are the exception, whose noise is centered over the levels as
    they are.

    Parameters
    ----------
    places
        The tree.
    sizes
        Number of levels of each attribute; none if only totals are counted.
    observed
        The measurements, in any order; the same query may occur several times.
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
        """The measurements at one depth."""
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
        # One family, one variance: so that centering keeps the noise alike.
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


TableClass = tuple[bool, ...]
"""For each plain attribute whether the class is about its residual (else its mean)."""


@frozen
class Classes:
    """The plain attributes, and the division of tables into classes and back.

    >>> from semidp.inference.estimation.measurements import Places
    >>> detailed = Observed(CellSums(("each", (0, 1, 1))), 0, np.zeros((1, 2, 2)), 1.0)
    >>> classes = Classes.from_measurements(Measurements(Places(), (2, 3), [detailed]))
    >>> classes.plain, classes.block, list(classes.every())
    ((0,), 3, [(False,), (True,)])
    """

    sizes: tuple[int, ...]
    plain: tuple[int, ...]

    @classmethod
    def from_measurements(cls, measurements: Measurements) -> "Classes":
        """Return the finest classes for these measurements."""
        plain = []
        for attribute in range(len(measurements.sizes)):
            if _is_plain(attribute, measurements):
                plain.append(attribute)
        return cls(measurements.sizes, tuple(plain))

    @property
    def dense(self) -> tuple[int, ...]:
        """Attributes that make the block."""
        return tuple(axis for axis in range(len(self.sizes)) if axis not in self.plain)

    @property
    def block(self) -> int:
        """Number of cells of the block."""
        return math.prod(self.sizes[axis] for axis in self.dense)

    @property
    def plain_sizes(self) -> tuple[int, ...]:
        """Number of levels of each plain attribute."""
        return tuple(self.sizes[axis] for axis in self.plain)

    def every(self) -> Iterator[TableClass]:
        """Every class; a plain attribute with one level has no residual."""
        choices = [(False, True) if size > 1 else (False,) for size in self.plain_sizes]
        return itertools.product(*choices)

    def coordinates(self, table_class: TableClass) -> int:
        """Number of coordinates of a class outside the block; residuals are kept as centered
        cells.
        """
        lengths = [
            size for residual, size in zip(table_class, self.plain_sizes, strict=True) if residual
        ]
        return math.prod(lengths)

    def design(self, query: CellSums) -> Floats:
        """Matrix of a query on the block, of shape (values of the query, block)."""
        design: Floats = np.ones((1, 1))
        for axis in self.dense:
            design = np.asarray(np.kron(design, query.matrix(axis, self.sizes[axis])), dtype=float)
        return design

    def factor(self, query: CellSums, table_class: TableClass) -> float:
        """The information of a query about a class: 0 if none, n for a mean of n levels that it
        adds up.
        """
        product = 1.0
        for axis, residual in zip(self.plain, table_class, strict=True):
            treatment = query.treatments[axis]
            if residual:
                product *= treatment != SUMMED
            elif treatment == CONTRASTS:
                product = 0.0
            elif isinstance(treatment, Among):
                product *= 1 - len(treatment.kept) / treatment.levels
            elif treatment == SUMMED:
                product *= self.sizes[axis]
        return product

    def arrange_values(self, values: NDArray[np.generic], query: CellSums) -> NDArray[np.generic]:
        """View of values of a query as (nodes, values along the block, values along each plain
        attribute).
        """
        shape = query.shape(self.sizes)
        apart = values.reshape(len(values), *shape)
        moved = np.moveaxis(apart, [axis + 1 for axis in self.plain], range(-len(self.plain), 0))
        block = math.prod(shape[axis] for axis in self.dense)
        lengths = [shape[axis] for axis in self.plain]
        return moved.reshape(len(values), block, *lengths)

    def split(self, cells: Floats) -> dict[TableClass, Floats]:
        """Coordinates of arranged arrays in every class.

        A mean is kept as ``Σ / √n``, so the coordinates of all classes are an orthonormal
        change of the cells. An attribute of length 1 that has more levels is a sum: it has a mean
        and no residual.
        """
        parts: dict[TableClass, Floats] = {(): cells}
        for place, size in enumerate(self.plain_sizes):
            axis = 2 + place
            finer: dict[TableClass, Floats] = {}
            for table_class, part in parts.items():
                # Mean and residual are orthogonal, so neither says anything of the other.
                total = part.sum(axis=axis, keepdims=True)
                finer[(*table_class, False)] = total / math.sqrt(size)
                if part.shape[axis] == size > 1:
                    finer[(*table_class, True)] = part - total / size
            parts = finer
        for table_class, part in parts.items():
            parts[table_class] = part.reshape(*part.shape[:2], math.prod(part.shape[2:]))
        return parts

    def join(self, parts: dict[TableClass, Floats]) -> Floats:
        """Cells, of shape (nodes, *sizes), from the coordinates of every class."""
        nodes, block = next(iter(parts.values())).shape[:2]
        cells = np.zeros((nodes, block, *self.plain_sizes))
        for table_class, part in parts.items():
            scale = 1.0
            lengths = []
            for residual, size in zip(table_class, self.plain_sizes, strict=True):
                scale *= 1.0 if residual else 1 / math.sqrt(size)
                lengths.append(size if residual else 1)
            cells += scale * part.reshape(nodes, block, *lengths)
        apart = cells.reshape(nodes, *(self.sizes[axis] for axis in self.dense), *self.plain_sizes)
        order = [*self.dense, *self.plain]
        return np.moveaxis(apart, range(1, 1 + len(order)), [1 + axis for axis in order])


def right_side(observed: Observed, classes: Classes, values: Floats) -> dict[TableClass, Floats]:
    """Values in each class as the normal equations take them: ``Q'y`` along the plain attributes.

    `values` are arranged; a sum of n levels counts √n times, as ``Q'`` spreads it over them.
    """
    for place, axis in enumerate(classes.plain):
        treatment = observed.query.treatments[axis]
        if isinstance(treatment, Among):
            # Levels that are not kept say something of the others through the mean alone.
            matrix = treatment.matrix()
            values = np.moveaxis(np.tensordot(matrix.T, values, axes=(1, 2 + place)), 0, 2 + place)
    parts = classes.split(values)
    chosen = {}
    for table_class, part in parts.items():
        factor = 1.0
        for axis, size, residual in zip(
            classes.plain, classes.plain_sizes, table_class, strict=True
        ):
            if not residual and observed.query.treatments[axis] == SUMMED:
                factor *= size
        if classes.factor(observed.query, table_class):
            chosen[table_class] = factor * part
    return chosen


def _is_plain(attribute: int, measurements: Measurements) -> bool:
    # Unequal groups of levels mix means and residuals, and so do zeros.
    for one in measurements.observed:
        if not isinstance(one.query.treatments[attribute], str | Among):
            return False
    masks = measurements.possible.values()
    return all(
        mask.shape[attribute + 1] == 1 or measurements.sizes[attribute] == 1 for mask in masks
    )
