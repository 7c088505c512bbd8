"""The projection onto tables with zero published margins: laws, and a dense matrix as the
reference.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Grid, View, inclusion_exclusion
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity import orthogonal_parts as module
from semidp.promise.sensitivity.orthogonal_parts import (
    AveragingProjection,
    LeastSquaresProjection,
    Projector,
    averages_commute,
    build_projector,
)
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin

FAMILIES = [
    [(0,), (1,), (2,)],
    [(0, 1), (2,)],
    [(0, 1), (1, 2)],
    [(0, 1), (1, 2), (0, 2)],
    [(1,)],
    [()],
    [(0, 1, 2)],
    [(0,), (2,)],
]


def views(margins: list[tuple[int, ...]], features: int = 3) -> tuple[View, ...]:
    """Margins named by their features, as views."""
    return tuple(tuple(int(axis in margin) for axis in range(features)) for margin in margins)


def projection(
    shape: tuple[int, ...], margins: list[tuple[int, ...]], mask: np.ndarray
) -> Projector:
    return build_projector(Grid.flat(shape), views(margins, len(shape)), mask)


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]], np.ndarray]:
    """A shape, margins, and a domain: all cells, those where margins are positive, or any."""
    shape = draw(st.tuples(*[st.integers(1, 3)] * 3))
    margins = draw(st.sampled_from(FAMILIES))
    cells = int(np.prod(shape))
    mask = np.reshape(draw(st.lists(st.booleans(), min_size=cells, max_size=cells)), shape)
    kind = draw(st.sampled_from(["all", "margins", "any"]))
    if kind == "all" or not mask.any():
        mask = np.ones(shape, dtype=bool)
    elif kind == "margins":
        grown = np.ones(shape, dtype=bool)
        for margin in margins:
            grown &= mask.any(
                axis=tuple(axis for axis in range(3) if axis not in margin), keepdims=True
            )
        mask = grown
    return shape, margins, mask


def dense(shape: tuple[int, ...], margins: list[tuple[int, ...]], mask: np.ndarray) -> np.ndarray:
    """P as a matrix: the null space of the margins among the cells of the domain, by singular
    values.
    """
    cells = np.argwhere(mask)
    rows = [
        [
            [tuple(cell[list(margin)]) == level for cell in cells]
            for level in itertools.product(*(range(shape[a]) for a in margin))
        ]
        for margin in margins
    ]
    matrix = np.array([row for block in rows for row in block], dtype=float)
    _, values, vectors = np.linalg.svd(matrix)
    null = vectors[int((values > 1e-9).sum()) :]
    inside = np.flatnonzero(mask)
    full = np.zeros((mask.size, mask.size))
    full[np.ix_(inside, inside)] = null.T @ null
    return full


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(0, 2**31))
def test_it_equals_the_dense_projection(problem: tuple, seed: int) -> None:
    shape, margins, mask = problem
    reference = dense(shape, margins, mask)
    found = projection(shape, margins, mask)
    values = np.random.default_rng(seed).normal(size=shape) * 100
    assert np.allclose(found.project(values).ravel(), reference @ values.ravel(), atol=1e-9)
    assert found.dimension == round(np.trace(reference))
    assert np.allclose(found.variances().ravel(), np.diag(reference), atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**31))
def test_idempotent_symmetric_and_blind_to_margins(problem: tuple, seed: int) -> None:
    shape, margins, mask = problem
    found = projection(shape, margins, mask)
    generator = np.random.default_rng(seed)
    one, other = generator.normal(size=(2, *shape)) * 1000
    first = found.project(one)
    assert np.allclose(found.project(first), first, atol=1e-9)
    assert np.sum(first * other) == pytest.approx(np.sum(one * found.project(other)), abs=1e-6)
    for margin in margins:
        sums = first.sum(axis=tuple(axis for axis in range(3) if axis not in margin))
        assert np.abs(sums).max() <= 1e-9 * np.abs(one).sum()


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 2**31))
def test_the_fixed_part_comes_from_the_margins_alone(problem: tuple, seed: int) -> None:
    shape, margins, mask = problem
    table = np.random.default_rng(seed).integers(0, 50, size=shape) * mask
    found = projection(shape, margins, mask)
    sums = [
        table.sum(axis=tuple(axis for axis in range(3) if axis not in margin)) for margin in margins
    ]
    assert np.allclose(found.project(table) + found.fixed_part(sums), table, atol=1e-8)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_averages_and_least_squares_agree_where_both_hold(problem: tuple) -> None:
    shape, margins, mask = problem
    grid = Grid.flat(shape)
    if averages_commute(grid, mask, views(margins)):
        one = AveragingProjection(grid, views(margins), mask)
        other = LeastSquaresProjection(grid, views(margins), mask)
        values = np.arange(mask.size, dtype=float).reshape(shape) ** 2
        assert np.allclose(one.project(values), other.project(values), atol=1e-8)
        assert one.dimension == other.dimension


def test_cliques_minus_separators() -> None:
    chain = views([(0, 1), (1, 2), (2, 3)], 4)
    one, two = views([(1,), (2,)], 4)
    assert inclusion_exclusion(chain) == {**dict.fromkeys(chain, 1), one: -1, two: -1}
    single = views([(0,), (1,), (2,)])
    assert inclusion_exclusion(single) == {**dict.fromkeys(single, 1), (0, 0, 0): -2}


def test_a_chain_with_empty_margin_cells_needs_no_least_squares() -> None:
    """Zeros in joint margins leave no product domain, yet the averages still commute along the
    junction tree.
    """
    generator = np.random.default_rng(3)
    counts = generator.integers(0, 2, size=(4, 4, 4, 4)) * (generator.random((4, 4, 1, 1)) < 0.6)
    schema = Schema([Feature(name, "wxyz") for name in "ABCD"])
    public = Dataspace.from_table(
        Table(schema, counts), [Margin("A", "B"), Margin("B", "C"), Margin("C", "D")]
    )
    space = sensitivity_space(public, Ball(4))
    assert isinstance(space.projector, AveragingProjection)
    assert np.allclose(space.project(counts) + space.fixed_part(), counts, atol=1e-9)


def test_large_irregular_domains_project_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the dense limit margins are still killed to 1e-9 n; dimension and variances are
    refused.
    """
    generator = np.random.default_rng(5)
    mask = generator.random((40, 50)) < 0.7
    monkeypatch.setattr(module, "DENSE_MARGIN_CELLS", 10)
    found = LeastSquaresProjection(Grid.flat((40, 50)), ((1, 0), (0, 1)), mask)
    values = generator.integers(0, 1000, size=(40, 50)) * mask
    projected = found.project(values)
    n = values.sum()
    assert max(np.abs(projected.sum(axis=0)).max(), np.abs(projected.sum(axis=1)).max()) <= 1e-9 * n
    again = found.project(projected)
    assert np.abs(again - projected).max() <= 1e-9 * n
    fixed = found.fixed_part([values.sum(axis=1), values.sum(axis=0)])
    assert np.abs(projected + fixed - values).max() <= 1e-9 * n
    with pytest.raises(Refused, match="irregular domain"):
        _ = found.dimension
    with pytest.raises(Refused, match="irregular domain"):
        found.variances()


@pytest.mark.parametrize("margins", [("A", "B"), ("AB", "BC"), ("A", "B", "C"), ()])
def test_variances_are_those_of_projected_noise(margins: tuple[str, ...]) -> None:
    schema = Schema([Feature(name, "xyz") for name in "ABC"])
    public = Dataspace.from_table(
        Table(schema, np.full((3, 3, 3), 40)), [Margin(*names) for names in margins]
    )
    space = sensitivity_space(public, Ball(4))
    unit = np.zeros((3, 3, 3))
    unit[1, 2, 0] = 1
    assert space.compute_weighted_variance(unit) == pytest.approx(space.variances()[1, 2, 0])
    assert space.variances().sum() == pytest.approx(space.dimension)
    weights = np.random.default_rng(1).normal(size=(3, 3, 3))
    assert space.compute_weighted_variance(weights) == pytest.approx(
        np.sum(weights * space.project(weights))
    )
