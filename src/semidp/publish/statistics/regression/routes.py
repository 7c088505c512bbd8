"""What to measure for a regression: several queries that give X'y, none of which depends on how
factors are coded.

X'y follows from the sums of the outcome by cell, from the sums by the groups of each term, and from
well-chosen combinations of the columns. Which is best depends on the published counts and on the
noise; choosing is in `linear`.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import Design, MomentSpace, moment_space
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins

RouteSpace = SumSpace | MomentSpace
"""A query that X'y follows from."""

_PRIME = 2**31 - 1
# of the whole numbers that combine columns: noise is near its best shape
_FINENESS, _FINEST = 2**10, 2**20
_STEPS = 60  # towards the best shape of the noise
_MOST_WORK = 2**25  # cells times squared columns, beyond which combinations are not sought


def regression_routes(
    dataspace: Dataspace, adjacency: Adjacency, outcome: Outcome, design: Design
) -> tuple[RouteSpace, ...]:
    """Return the queries from which X'y of a design follows; refuse a design whose moments are not
    public.

    *Cells*, where the joint counts are published: the sums of y by cell, ``Δ2 = a B`` whatever the
    design. *Terms*: the sums by the levels of each term, ``Δ2 = a B √p`` for p terms.
    *Combinations*: C X'y with the C that minimises the mean variance of the fitted values, where
    the rows C z have at most unit length (`best_combination`). Where all cells are free (one
    factor, or all interactions) this is *cells*.

    The space that the columns span decides all three, and the coding of factors does not change it.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = (
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> routes = regression_routes(
    ...     public, Ball(2), outcome, Design.from_schema(table.schema, ["arm", "sex"])
    ... )
    >>> [route.shape for route in routes]
    [(4,), (4,), (3,)]
    """
    # refuses moments that are not public, and columns that depend on each other
    design.gram(dataspace)
    joint = Margin(*design.features)
    routes: list[RouteSpace] = []
    if dataspace.publishes(joint):
        routes.append(sum_space(dataspace, adjacency, outcome, [joint]))
    margins = [Margin(*column.features) for column in design.columns]
    terms = normalize_margins(design.schema, margins) or (Margin(),)
    # A single term spans all features of the design, so its groups are the cells, listed already.
    if not routes or len(terms) > 1:
        routes.append(sum_space(dataspace, adjacency, outcome, terms))
    cells = int(design.inhabited_mask(dataspace).sum())
    # With as many columns as cells the best combination is to measure the cells themselves.
    columns = len(design.columns)
    work = cells * columns**2
    if columns < cells and work <= _MOST_WORK:
        combination = best_combination(design, dataspace)
        if combination:
            routes.append(moment_space(dataspace, adjacency, outcome, design, combination))
    return tuple(routes)


def route_values(space: RouteSpace, design: Design, sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the confidential values of a route's query from the sums of the outcome by the cells
    of a design.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 3], [2, 4]])
    >>> design, outcome = (
    ...     Design.from_schema(table.schema, ["arm", "sex"]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> routes = regression_routes(
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]), Ball(2), outcome, design
    ... )
    >>> route_values(routes[1], design, np.array([[1, 2], [0, 3]])).tolist()
    [3, 3, 1, 5]
    """
    if isinstance(space, MomentSpace):
        # Python's whole numbers cannot overflow, so the size is checked before the values become 64
        # bits.
        whole = space.rows_by_cell.T @ sums.ravel().astype(object)
        if any(abs(value) >= 2**62 for value in whole):
            raise InputError(
                "X'y does not fit in 62 bits: use a coarser grid, or scores with smaller"
                " denominators"
            )
        return np.array(whole, dtype=np.int64)
    schema = design.schema
    source = schema.view(design.features)
    table = sums.reshape(schema.grid.compute_margin_shape(source))
    parts = []
    for block in space.blocks:
        summed = schema.grid.sum(table, schema.view(block.names), source)
        parts.append(summed.ravel())
    return np.concatenate(parts).astype(np.int64)


def moment_map(space: RouteSpace, design: Design) -> Floats:
    """Return the matrix T with ``X'y = T q`` for the values q of a route's query, a row a column of
    the design.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cde")]), [5, 3, 4])
    >>> design, outcome = Design.from_schema(table.schema, ["arm"]), Outcome("score", 0, 1, steps=1)
    >>> (cells,) = regression_routes(
    ...     Dataspace.from_table(table, [Margin("arm")]), Ball(2), outcome, design
    ... )
    >>> moment_map(cells, design).tolist()
    [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if isinstance(space, MomentSpace):
        if not space.combination:
            return np.eye(len(design.columns)) / design.multiplier
        exact_rows = np.array(space.combination, dtype=object)
        return np.linalg.inv(exact_rows.astype(np.float64))
    to_moments = np.zeros((len(design.columns), *space.shape))
    grid, view = design.schema.grid, design.schema.view
    for row, column in zip(to_moments, design.columns, strict=True):
        values = np.array([float(value) for value in column.values])
        for block, part in zip(space.blocks, space.slices, strict=True):
            # One block gives the whole column: adding it from a second one would count it twice.
            inside = set(column.features) <= set(design.schema.complete_names(block.names))
            if inside:
                labels = grid.labels(view(column.features), view(block.names))
                row[part] = values[labels]
                break
    return to_moments


def best_combination(design: Design, dataspace: Dataspace) -> tuple[tuple[Fraction, ...], ...]:
    """Return the C for which C X'y, measured with independent noise, gives the fitted values most
    exactly.

    With rows z_c of the possible cells, noise that suits rows of at most unit length gives X'y the
    covariance V with ``z_c' V^-1 z_c <= 1`` in each cell. The mean variance of the fitted values
    over the records is ``tr((X'X)^-1 V)``; with ``u = (X'X)^{-1/2} z`` it is least for
    ``V = (Σ w_c u_c u_c')^{1/2}`` and weights with ``u_c' V^-1 u_c = 1`` where w_c > 0. Weights are
    found by multiplying each with its ``u_c' V^-1 u_c``, and C is rounded to whole numbers. Only
    accuracy depends on how well this is solved: how far records move the rows is computed from the
    whole numbers.

    The columns are first replaced by those that are 1 in one cell of a fixed set and 0 in its
    others, which depend on their span alone, so that any coding gives the same rows. Nothing is
    returned for a design that is nearly collinear.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.sensitivity.moments import Coding
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[50, 30], [20, 40]])
    >>> public, outcome = (
    ...     Dataspace.from_table(table, [Margin("arm", "sex")]),
    ...     Outcome("score", 0, 1, steps=1),
    ... )
    >>> rows = []
    >>> for coding in Coding:
    ...     design = Design.from_schema(table.schema, ["arm", "sex"], coding=coding)
    ...     combination = best_combination(design, public)
    ...     rows.append(
    ...         moment_space(public, Ball(2), outcome, design, combination).rows_by_cell.tolist()
    ...     )
    >>> rows[0] == rows[1]
    True
    """
    rows = design.rows()
    occupied = design.inhabited_mask(dataspace)
    spanning = rows[occupied][_pivots(rows[occupied])]
    change, shared = _inverse(spanning)
    cells = rows @ change  # times `shared`, which leaves whole numbers
    z = cells[occupied].astype(np.float64) / shared
    exact_gram = change.T @ design.gram(dataspace) @ change
    gram = exact_gram.astype(np.float64) / shared**2
    root = _power(gram, -0.5)
    shape = _power(_covariance(z @ root), -0.5) @ root
    lengths = np.linalg.norm(z @ shape.T, axis=1)
    shape /= float(lengths.max())
    # Rounding must not make two rows coincide: the finer the grid, the smaller the least singular
    # value may be.
    least = float(np.linalg.svd(shape, compute_uv=False)[-1])
    bits = math.ceil(8 - math.log2(least))
    fineness = max(_FINENESS, 2**bits)
    if fineness > _FINEST:
        return ()
    common = math.gcd(shared, *cells.ravel().tolist())
    rounded = np.vectorize(round, otypes=[object])
    whole = rounded((fineness * shape).astype(object))
    combination = whole @ change.T * design.multiplier
    over_common = np.vectorize(lambda value: Fraction(value, common), otypes=[object])(combination)
    return tuple(map(tuple, over_common.tolist()))


def _covariance(u: Floats) -> Floats:
    """Return ``V = (Σ w_c u_c u_c')^{1/2}`` for weights near those with ``u_c' V^-1 u_c <= 1``."""
    weights = np.ones(len(u))
    covariance = _power(u.T @ u, 0.5)
    for _ in range(_STEPS):
        lengths = np.einsum("ci,ci->c", u @ np.linalg.inv(covariance), u)
        weights *= lengths
        weighted = u * weights[:, None]
        covariance = _power(u.T @ weighted, 0.5)
    return covariance


def _power(matrix: Floats, exponent: float) -> Floats:
    """Return a power of a positive definite matrix."""
    # Rounding can leave an eigenvalue at or below 0, whose root or inverse would not exist.
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    powers = np.maximum(values, values[-1] * 1e-14) ** exponent
    return np.asarray((vectors * powers) @ vectors.T)


def _pivots(rows: NDArray[np.object_]) -> list[int]:
    """Return the first rows that span all rows, by elimination modulo a prime. It never finds too
    high a rank.

    >>> _pivots(np.array([[1, 0], [2, 0], [1, 1]], dtype=object))
    [0, 2]
    """
    left = (rows % _PRIME).astype(np.int64).T
    spanning: list[int] = []
    for k in range(len(left)):
        pivot = int(left[k:].any(axis=0).argmax())
        row = k + int(left[k:, pivot].argmax())
        left[[k, row]] = left[[row, k]]
        inverse = pow(int(left[k, pivot]), -1, _PRIME)
        left[k] = left[k] * inverse % _PRIME
        below = left[k + 1 :]
        multiples = below[:, pivot : pivot + 1] * left[k]
        below[:] = (below - multiples) % _PRIME
        spanning.append(pivot)
    return spanning


def _inverse(matrix: NDArray[np.object_]) -> tuple[NDArray[np.object_], int]:
    """Return the inverse of a regular matrix of whole numbers, as whole numbers over a shared
    denominator.

    >>> _inverse(np.array([[2, 0], [1, 1]], dtype=object))
    (array([[1, 0],
           [-1, 2]], dtype=object), 2)
    """
    from flint import fmpz_mat

    inverse, shared = fmpz_mat(matrix.tolist()).inv().numer_denom()
    entries = np.array(inverse.tolist(), dtype=object)
    whole = np.vectorize(int, otypes=[object])(entries)
    return whole, int(shared)
