"""Cells grouped by the law of their error: which weights independent noise has in each.

The rows of the projection of a space, exactly where averages commute.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.margins import Floats, Mask, is_within_view, join
from semidp.promise.sensitivity.orthogonal_parts import (
    AveragingProjection,
    FixedTable,
    LeastSquaresProjection,
    Projector,
)
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace

MOST_PATTERNS = 1000  # laws of cells that are told apart
MOST_ROWS = 512  # cells of a table of which every row of P is looked at
_DIGITS = 2**40  # to which weights that are no simple fractions are rounded


@dataclass(frozen=True, eq=False)
class Patterns:
    """Cells of a projected table grouped by the law of their error, with the weights that make up
    each law.

    Parameters
    ----------
    which
        For each cell the number of its pattern.
    weights
        For each pattern the weights of the noise in single cells, each with how often it occurs.
    """

    which: NDArray[np.intp] = field(repr=False)
    weights: tuple[Mapping[Fraction, int], ...]


@singledispatch
def find_patterns(space: QuerySpace) -> Patterns | None:
    """Return the published entries grouped by the law of their error under independent noise; None
    where unknown.
    """
    return row_patterns(tuple(space.shape), space.project)


@find_patterns.register
def _(space: TableSpace) -> Patterns | None:
    return projection_patterns(space.projector)


@find_patterns.register
def _(space: ExplicitSpace) -> Patterns | None:
    """The rows of the projection, or single entries where nothing is projected."""
    if space.fixed is None:
        return Patterns(np.zeros(space.shape, dtype=np.intp), ({Fraction(1): 1},))
    return row_patterns(tuple(space.shape), space.project)


def projection_patterns(projection: Projector) -> Patterns | None:
    """Return the different rows of P by their weights; None where they are too many.

    Where averages commute a row has the weight ``[same cell] - Σ coefficient / (cells averaged)``
    at a cell, over the views in which the two cells agree.

    >>> from semidp.promise.schema.margins import Grid
    >>> from semidp.promise.sensitivity.orthogonal_parts import build_projector
    >>> projection_patterns(build_projector(Grid.flat((2, 2)), [(1, 0), (0, 1)])).weights
    ({Fraction(1, 4): 2, Fraction(-1, 4): 2},)
    """
    if isinstance(projection, FixedTable):
        return Patterns(np.zeros(projection.table.shape, dtype=np.intp), ({},))
    if isinstance(projection, LeastSquaresProjection):
        return row_patterns(projection.domain.shape, projection.project)
    if projection.domain is None:
        return _group_by_axes(projection)
    return _group_by_cells(projection, projection.domain)


def _group_by_axes(projection: AveragingProjection) -> Patterns | None:
    """Patterns where every cell is in the domain. Two cells agree along each feature down to
    some depth.
    """
    used, sizes, kinds = [], [], []
    for axis, chain in enumerate(projection.grid.chains):
        in_terms = [view[axis] for view, _, _ in projection.terms]
        depths = sorted({0, chain.depth, *in_terms})
        below = []
        for depth in depths:
            leaves = chain.children(depth, chain.depth)
            below.append(leaves[chain.find_leaf_ancestors(depth)])
        different, which = np.unique(np.stack(below), axis=1, return_inverse=True)
        used.append(depths)
        sizes.append(different.T.tolist())
        kinds.append(which.ravel())
    if math.prod(map(len, sizes)) > MOST_PATTERNS:
        return None
    weights = [_find_weights(projection, used, chosen) for chosen in itertools.product(*sizes)]
    which = np.ravel_multi_index(np.ix_(*kinds), tuple(map(len, sizes)))
    return Patterns(np.broadcast_to(which, projection.grid.shape), tuple(weights))


def _find_weights(
    projection: AveragingProjection, used: list[list[int]], sizes: Sequence[list[int]]
) -> dict[Fraction, int]:
    """Weights of one pattern. `sizes` has, for each feature, the leaves below a cell's node at
    the depths in use.
    """
    weights: dict[Fraction, int] = {}
    leaves_at = []
    for depths, below in zip(used, sizes, strict=True):
        leaves_at.append(dict(zip(depths, below, strict=True)))
    # Every cell agrees with this one down to some depth of each feature, and no further.
    for deepest in itertools.product(*used):
        cells = 1
        for depths, below, depth in zip(used, sizes, deepest, strict=True):
            place = depths.index(depth)
            deeper = below[place + 1] if place + 1 < len(below) else 0
            cells *= below[place] - deeper
        weight = Fraction(int(deepest == projection.grid.full))
        for view, coefficient, _ in projection.terms:
            if is_within_view(view, deepest):
                averaged = [leaves[depth] for leaves, depth in zip(leaves_at, view, strict=True)]
                weight -= Fraction(coefficient, math.prod(averaged))
        if weight and cells:
            weights[weight] = weights.get(weight, 0) + cells
    return weights


def _group_by_cells(projection: AveragingProjection, domain: Mask) -> Patterns | None:
    """Patterns on the cells of a domain. Two cells have one pattern if, for every join of
    views, equally many cells agree with each of them.
    """
    views = [view for view, _, _ in projection.terms]
    # Agreement in two views is agreement in their join: close the views under joins.
    joins = set(views)
    while more := {join(one, other) for one in joins for other in views} - joins:
        joins |= more
    which = np.zeros(projection.grid.shape, dtype=np.intp)
    for view in joins:
        spread = projection.grid.spread(projection.grid.sum(domain, view), view)
        counts = np.where(domain, np.broadcast_to(spread, projection.grid.shape), 0)
        different, number = np.unique(counts, return_inverse=True)
        code = which * len(different) + number.reshape(which.shape)
        _, which = np.unique(code, return_inverse=True)
        which = which.reshape(projection.grid.shape)
    firsts = np.unique(which, return_index=True)[1]
    if len(firsts) > MOST_PATTERNS:
        return None
    inside = np.flatnonzero(domain)
    labels = [projection.grid.labels(view)[inside] for view in views]
    weights = [_find_row(projection, int(first), inside, labels, domain) for first in firsts]
    return Patterns(which, tuple(weights))


def _find_row(
    projection: AveragingProjection,
    cell: int,
    inside: NDArray[np.intp],
    labels: Sequence[NDArray[np.intp]],
    domain: Mask,
) -> dict[Fraction, int]:
    """The weights of the row of one cell, exactly."""
    weights: dict[Fraction, int] = {}
    if not domain.ravel()[cell]:
        return weights
    place = int(np.searchsorted(inside, cell))
    # Bit 0: the cell itprojection; bit i + 1: agreement with it in view i.
    agree = (np.arange(len(inside)) == place).astype(np.int64)
    shares = []
    for number, label in enumerate(labels):
        same = label == label[place]
        agree = agree + same * (2 << number)
        coefficient = projection.terms[number][1]
        shares.append(Fraction(coefficient, int(same.sum())))
    codes, counts = np.unique(agree, return_counts=True)
    for code, cells in zip(codes.tolist(), counts.tolist(), strict=True):
        weight = Fraction(code & 1)
        for number, share in enumerate(shares):
            if code & (2 << number):
                weight -= share
        if weight:
            weights[weight] = weights.get(weight, 0) + cells
    return weights


def row_patterns(shape: tuple[int, ...], project: Callable[[Floats], Floats]) -> Patterns | None:
    """Return every row of a projection by its weights, to twelve digits; None for tables of many
    cells.

    >>> row_patterns((2,), lambda values: values - values.mean()).weights
    ({Fraction(1, 2): 1, Fraction(-1, 2): 1},)
    """
    cells = math.prod(shape)
    if cells > MOST_ROWS:
        return None
    numbers: dict[tuple[tuple[Fraction, int], ...], int] = {}
    which = []
    for unit in np.eye(cells):
        projected = project(unit.reshape(shape)).ravel()
        row = np.rint(projected * _DIGITS).astype(np.int64)
        values, counts = np.unique(row[row != 0], return_counts=True)
        weights = []
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            weights.append((Fraction(value, _DIGITS), count))
        largest_first = tuple(reversed(weights))
        which.append(numbers.setdefault(largest_first, len(numbers)))
    return Patterns(np.array(which, dtype=np.intp).reshape(shape), tuple(map(dict, numbers)))
