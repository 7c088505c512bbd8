"""The move that is said to attain Δ2 does: it keeps the published totals, fits into them, and has that length."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semidp.queries import sensitivity_space
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature, Schema, Table


def check(counts: np.ndarray, a: int) -> None:
    names = "ABCD"[: counts.ndim]
    schema = Schema(
        [Feature(name, [str(i) for i in range(size)]) for name, size in zip(names, counts.shape, strict=True)]
    )
    space = sensitivity_space(Dataspace.of(Table(schema, counts), [Margin(name) for name in names]), Adjacency(a))
    move = space.worst_move()
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
    cells = data.draw(st.lists(st.integers(0, 4), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    counts = np.array(cells).reshape(shape)
    if counts.sum() >= 2 and max(shape) > 1:
        check(counts, 4)


@pytest.mark.parametrize("a", [2, 3, 4])
def test_a_feature_with_one_level_beside_two_others(a: int) -> None:
    check(np.array([[[2], [1]], [[1], [1]]]), a)
