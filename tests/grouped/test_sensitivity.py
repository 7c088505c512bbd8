"""Norms of sums and moments of a private outcome: closed forms against every dataset of small
spaces.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.assess.worst_moves import worst_move
from semidp.errors import Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.statistics.regression.designs import Coding, Design

A, B = Margin("A"), Margin("B")


def unit(steps: int) -> Outcome:
    return Outcome("y", 0, 1, steps=steps)


@pytest.mark.parametrize("counts", [[2, 2], [3, 1], [1, 1, 1], [4, 0], [2, 1]])
@pytest.mark.parametrize("a", [1, 2, 3, 4])
def test_one_block_is_exact_for_every_a(everything, table, counts, a):
    world = everything(table(counts, "A"), [A], steps=2)
    space = sum_space(world.dataspace, Ball(a), unit(2), [A])
    assert (space.l1, space.l2_squared, space.linf) == world.norms(world.sums([A]), a)
    assert space.exact
    move = worst_move(space)
    assert int((move**2).sum()) == space.l2_squared


@pytest.mark.parametrize("counts", [[[2, 1], [1, 0]], [[1, 1], [1, 1]], [[2, 0], [0, 1]]])
@pytest.mark.parametrize("a", [1, 2, 3, 4])
def test_two_one_way_blocks_are_exact_for_every_a(everything, table, counts, a):
    world = everything(table(counts), [A, B], steps=1)
    space = sum_space(world.dataspace, Ball(a), unit(1), [A, B])
    assert (space.l1, space.l2_squared, space.linf) == world.norms(world.sums([A, B]), a)
    assert space.exact


def test_one_block_released_where_more_is_published(everything, table):
    world = everything(table([[2, 1], [1, 0]]), [A, B], steps=1)
    for a in (1, 2, 3):
        space = sum_space(world.dataspace, Ball(a), unit(1), [A])
        assert (space.l1, space.l2_squared, space.linf) == world.norms(world.sums([A]), a)


def test_overlapping_blocks_are_bounded(everything, table):
    blocks = [Margin("A", "B"), Margin("B", "C")]
    world = everything(table([[[1, 0], [0, 1]], [[0, 1], [0, 0]]], "ABC"), blocks, steps=1)
    for a in (1, 2, 3):
        space = sum_space(world.dataspace, Ball(a), unit(1), blocks)
        found = world.norms(world.sums(blocks), a)
        assert all(
            bound >= true
            for bound, true in zip((space.l1, space.l2_squared, space.linf), found, strict=True)
        )
        assert not space.exact


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("a", [1, 2, 3, 5])
def test_p_blocks_of_large_groups_have_the_published_formula(p, a):
    names = [f"f{k}" for k in range(p)]
    counts = np.full((2,) * p, 16)
    public = Dataspace.from_table(
        Table(Schema(tuple(Feature(name, ("0", "1")) for name in names)), counts),
        [Margin(name) for name in names],
    )
    space = sum_space(public, Ball(a), unit(10), [Margin(name) for name in names])
    assert space.l2_squared == (a * 10) ** 2 * p
    assert space.l1 == a * p * 10


def test_the_semi_adjacent_parameter_of_records_with_an_outcome(everything, table):
    """An unpublished y changes nothing but a(t) = 0, which becomes 1: worst case by brute force
    over (x, y).
    """
    for counts, margins in (
        [[2, 1], [A]],
        [[3, 0], [A]],
        [[[1, 1], [0, 1]], [A, B]],
        [[[1, 1], [1, 1]], [A, B]],
    ):
        world = everything(table(counts, "AB"), margins, steps=1)
        records = world.x * 2 + world.y
        worst = 0
        for target in np.unique(records):
            holds = records[:, 0] == target
            distance = (records[:, None, :] != records[None, holds, :]).sum(axis=2).min(axis=1)
            worst = max(worst, int(distance.max()))
        assert outcome_adjacency(world.dataspace).a == worst


def test_regression_moments_never_exceed_the_bound_and_reach_it(everything, table):
    joint = table([[2, 1], [1, 0]])
    world = everything(joint, [Margin("A", "B")], steps=2)
    design = Design.from_schema(joint.schema, ["A", "B"], coding=Coding.effects)
    rows = design.rows().astype(int)
    for a in (1, 2, 3):
        space = moment_space(world.dataspace, Ball(a), unit(2), design)
        found = world.norms(world.moments(rows), a)
        assert all(
            bound >= true
            for bound, true in zip((space.l1, space.l2_squared, space.linf), found, strict=True)
        )
        if a <= 2:  # the cell with two records has the longest row, like every other
            assert space.l2_squared == found[1] == (a * 2) ** 2 * 3


def test_public_sums_of_z_are_enough_for_the_bound(everything, table):
    """One-way margins publish Σz of main effects: the bound holds, although X'X would need more."""
    world = everything(table([[1, 1], [1, 1]]), [A, B], steps=1)
    rows = np.array([[1, -1, -1], [1, -1, 1], [1, 1, -1], [1, 1, 1]])
    for a in (1, 2, 3):
        assert world.norms(world.moments(rows), a)[1] <= a**2 * 3


def test_an_interaction_under_one_way_margins_breaks_the_bound_and_is_refused(everything, table):
    """The counterexample: with A = ±1, B = ±1 and only their margins public, Σ A·B·y moves by 4 at
    a = 2, not by 2.
    """
    margins = table([[2, 0], [0, 2]])
    world = everything(margins, [A, B], steps=1)
    product = np.array([[1], [-1], [-1], [1]])
    assert world.norms(world.moments(product), 2)[2] == 4 > 2 * 1 * 1
    design = Design.from_schema(
        margins.schema, ["A", "B"], interactions=[("A", "B")], coding=Coding.effects
    )
    only = Design(margins.schema, design.columns[-1:])
    for refused in (design, only):
        with pytest.raises(Refused, match=r"counts of A × B are not published: publish them"):
            moment_space(world.dataspace, Ball(3), unit(1), refused)


def test_main_effects_under_one_way_margins_are_refused_by_name(table):
    margins = table([[[5, 5], [5, 5]], [[5, 5], [5, 5]]], "ABC")
    public = Dataspace.from_table(margins, [Margin("A", "B"), Margin("C")])
    with pytest.raises(Refused, match=r"A × C, B × C are not published"):
        moment_space(public, Ball(3), unit(1), Design.from_schema(margins.schema, ["A", "B", "C"]))
    pairwise = Dataspace.from_table(margins, [Margin("A", "B"), Margin("B", "C"), Margin("A", "C")])
    space = moment_space(
        pairwise, Ball(5), unit(1), Design.from_schema(margins.schema, ["A", "B", "C"])
    )
    assert space.l2_squared == 5**2 * 4


def test_counts_that_are_not_public_are_refused(table):
    public = Dataspace.from_table(table([[5, 5], [5, 5]]), [A])
    with pytest.raises(Refused, match="those of B are not published"):
        sum_space(public, Ball(2), unit(1), [B])
    with pytest.raises(Refused, match="at least 1"):
        sum_space(public, Ball(0), unit(1), [A])


counts_of_blocks = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any), min_size=1, max_size=3
)


@given(counts_of_blocks, st.data())
@settings(max_examples=60, deadline=None)
def test_projection_laws(sizes, data):
    """P is an orthogonal projection onto sums that vanish in empty cells and agree in their totals;
    its trace is the dimension, and it keeps every true vector of sums.
    """
    n = max(sum(part) for part in sizes)
    sizes = [[*part, n - sum(part)] for part in sizes]
    names = [f"f{k}" for k in range(len(sizes))]
    schema = Schema(
        tuple(
            Feature(f, tuple(map(str, range(len(part)))))
            for f, part in zip(names, sizes, strict=True)
        )
    )
    records = [np.repeat(np.arange(len(part)), part) for part in sizes]
    counts = np.zeros(schema.shape, dtype=np.int64)
    np.add.at(counts, tuple(records), 1)
    public = Dataspace.from_table(Table(schema, counts), [Margin(name) for name in names])
    space = sum_space(public, Ball(2), unit(3), [Margin(name) for name in names])
    size = space.shape[0]
    matrix = np.stack([space.project(unit_vector) for unit_vector in np.eye(size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-12)
    np.testing.assert_allclose(np.diag(matrix), space.variances(), atol=1e-12)
    assert round(np.trace(matrix)) == space.dimension
    y = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    sums = np.concatenate(
        [
            np.bincount(codes, y, minlength=len(part))
            for codes, part in zip(records, sizes, strict=True)
        ]
    )
    np.testing.assert_allclose(space.project(sums), sums, atol=1e-9)
    assert not space.fixed_part().any()
    for number, part in enumerate(space.slices):
        there = np.concatenate([counts > 0 for counts in space.counts])[part].astype(float)
        expected = np.diag(there) - space.common_part(number) * np.outer(there, there)
        np.testing.assert_allclose(expected, matrix[part, part], atol=1e-12)
