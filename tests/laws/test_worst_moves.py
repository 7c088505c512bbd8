"""The move that is said to attain Δ2 does: it keeps the published totals, fits into them, and has
that length.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semidp.assess.worst_moves import worst_move
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Grid, Totals
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.moves import moves
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency


def check(counts: np.ndarray, a: int) -> None:
    names = "ABCD"[: counts.ndim]
    schema = Schema(
        [
            Feature(name, [str(i) for i in range(size)])
            for name, size in zip(names, counts.shape, strict=True)
        ]
    )
    space = sensitivity_space(
        Dataspace.from_table(Table(schema, counts), [Margin(name) for name in names]), Ball(a)
    )
    move = worst_move(space)
    if move is None:
        assert space.is_zero
        return
    assert (move**2).sum() == space.l2_squared
    appear = np.maximum(move, 0)
    assert 0 < appear.sum() <= a
    for axis in range(counts.ndim):
        others = tuple(other for other in range(counts.ndim) if other != axis)
        assert not move.sum(axis=others).any()
        assert (appear.sum(axis=others) <= counts.sum(axis=others)).all()


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.data())
def test_blocks_of_different_sizes(shape: list[int], data: st.DataObject) -> None:
    cells = data.draw(
        st.lists(st.integers(0, 4), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    )
    counts = np.array(cells).reshape(shape)
    if counts.sum() >= 2 and max(shape) > 1:
        check(counts, 4)


@pytest.mark.parametrize("a", [2, 3, 4])
def test_a_feature_with_one_level_beside_two_others(a: int) -> None:
    check(np.array([[[2], [1]], [[1], [1]]]), a)


def test_moves_under_structural_zeros_are_those_of_a_listing() -> None:
    """Also where features are left out: their zeros tie cells of the released table."""
    rng = np.random.default_rng(0)
    checked = partial = 0
    for trial in range(60):
        shape = [(2, 2, 2), (2, 3), (3, 2, 2)][trial % 3]
        possible = rng.random(shape) < 0.75
        table = np.where(possible, rng.integers(0, 2, shape), 0)
        if not 2 <= table.sum() <= 4:
            continue
        cells = np.argwhere(~possible).tolist()
        zeros = [
            StructuralZero.from_pattern(
                {"ABC"[axis]: str(level) for axis, level in enumerate(cell)}
            )
            for cell in cells
        ]
        features = [
            Feature("ABC"[axis], [str(level) for level in range(size)])
            for axis, size in enumerate(shape)
        ]
        names = "AB"[: rng.integers(1, 3)]
        public = Dataspace.from_table(
            Table(Schema(features, zeros), table), [Margin(name) for name in names]
        )
        adjacency = Ball(max(semi_adjacency(public).bound, 1))
        for size in range(1, len(shape) + 1):
            for released in itertools.combinations("ABC"[: len(shape)], size):
                space = sensitivity_space(public, adjacency, released)
                listing = space.listing()
                assert listing is not None
                listed = {move.tobytes() for move in listing.moves(adjacency.a)}
                assert {move.tobytes() for move in space.moves()} == listed
                checked += 1
                partial += size < len(shape) and bool(zeros) and bool(listed)
    assert checked > 80
    assert partial > 40


def test_both_ways_to_list_moves_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many cells at a time, and one set of records that vanish after the other."""
    counts = np.arange(12).reshape(2, 2, 3) % 3
    grid, listed = Grid.flat((2, 2, 3)), 0
    for views in ([(1, 0, 0), (0, 1, 0), (0, 0, 1)], [(1, 1, 0), (0, 1, 1)], []):
        margins = [Totals(view, grid.sum(counts, view)) for view in views]
        for domain in (None, counts > 0):
            ways = []
            for most in (50_000, 0):
                monkeypatch.setattr("semidp.promise.sensitivity.moves._MOST_MULTISETS", most)
                ways.append([move.tobytes() for move in moves(grid, margins, domain, 3)])
            assert sorted(ways[0]) == sorted(ways[1])
            listed += len(ways[0])
    assert listed > 1_000
