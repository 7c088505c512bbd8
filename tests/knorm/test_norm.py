"""The K-norm: closed forms and certified programs against the hull of every move, and the laws of a
norm.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import InputError
from semidp.promise.mechanisms.knorm import KNormMechanism, place_ball
from semidp.promise.mechanisms.knorm_balls import ExplicitBall, PairBall, RowsBall
from semidp.promise.mechanisms.knorm_polar import LinearProgram, NormBall, Optimum, TablePolar
from semidp.promise.mechanisms.knorm_tables import ExchangeBall, TableBall
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin

Floats = np.ndarray
Moves = Callable[[int, int, int], Floats]
SIZES = [
    (3, 3, 2),
    (3, 3, 3),
    (3, 5, 2),
    (3, 5, 3),
    (4, 4, 2),
    (4, 4, 3),
    (4, 5, 2),
    (4, 5, 3),
    (5, 6, 2),
    (5, 5, 3),
]


def tables(ball: NormBall, count: int, seed: int) -> Floats:
    """Random points of the span."""
    rows = len(ball.limits) if isinstance(ball, RowsBall) else ball.shape[0]
    values = (
        np.random.default_rng(seed).standard_normal((count, *ball.shape)).reshape(count, rows, -1)
    )
    values -= values.mean(axis=2, keepdims=True)
    return (
        values.reshape(count, -1)
        if isinstance(ball, RowsBall)
        else values - values.mean(axis=1, keepdims=True)
    )


@pytest.mark.parametrize(("rows", "columns", "a"), SIZES)
def test_the_norm_is_the_norm_of_the_hull_of_every_move(
    rows: int, columns: int, a: int, moves: Moves
) -> None:
    ball = TableBall(rows, columns, a)
    points = tables(ball, 20, seed=1)
    everything = ExplicitBall(moves(rows, columns, a))
    assert everything.dimension == ball.dimension
    np.testing.assert_allclose(ball.norm(points), everything.norm(points), rtol=1e-9)


@pytest.mark.parametrize(("rows", "columns", "a"), SIZES)
def test_two_proved_bounds_meet(rows: int, columns: int, a: int) -> None:
    polar = TablePolar(rows, columns, a)
    for point in tables(TableBall(rows, columns, a), 10, seed=2):
        low, high = polar.norm(point)
        assert low <= high * (1 + 1e-13)
        assert high - low <= 1e-8
        assert polar.contains(point / (high * 1.001))
        assert not polar.contains(point / (low * 0.999))


@pytest.mark.few(2)
@pytest.mark.parametrize(("rows", "columns", "a"), [(3, 4, 2), (4, 4, 3), (4, 5, 2), (5, 5, 3)])
def test_every_move_has_norm_one(rows: int, columns: int, a: int, moves: Moves) -> None:
    every = moves(rows, columns, a)[:: len(moves(rows, columns, a)) // 12]
    np.testing.assert_allclose(TableBall(rows, columns, a).norm(every), 1.0, rtol=1e-9)
    assert TableBall(rows, columns, a).contains(every).all()


def test_three_cycles_cost_two_without_the_three_cycles() -> None:
    cycle = np.zeros((1, 5, 5))
    cycle[0, [0, 1, 2], [0, 1, 2]] = 1
    cycle[0, [0, 1, 2], [1, 2, 0]] = -1
    assert TableBall(5, 5, a=2).norm(cycle) == pytest.approx([2.0], abs=1e-12)
    assert TableBall(5, 5, a=3).norm(cycle) == pytest.approx([1.0], abs=1e-12)


def test_the_longest_row_or_column_is_the_norm_of_three_rows_only() -> None:
    points = tables(TableBall(4, 4, 3), 200, seed=3)
    longest = (
        np.maximum(np.abs(points).sum(axis=1).max(axis=1), np.abs(points).sum(axis=2).max(axis=1))
        / 2
    )
    norms = TableBall(4, 4, 3).norm(points)
    assert (longest <= norms + 1e-12).all()
    assert (longest < 0.99 * norms).any()


@pytest.mark.parametrize("limits", [(9, 9), (1, 5), (1, 1), (2, 1, 7)])
def test_one_published_side_is_the_hull_of_its_integer_moves(limits: tuple[int, ...]) -> None:
    ball = RowsBall(limits, (3,) * len(limits), a=2)
    rows = [row for row in itertools.product(range(-2, 3), repeat=3) if sum(row) == 0]
    vectors = [
        table
        for table in itertools.product(rows, repeat=len(limits))
        if sum(np.abs(row).sum() for row in table) <= 4
        and all(np.abs(row).sum() <= 2 * limit for row, limit in zip(table, limits, strict=True))
    ]
    points = tables(ball, 20, seed=4)
    everything = ExplicitBall(np.array(vectors))
    assert everything.dimension == ball.dimension
    np.testing.assert_allclose(ball.norm(points), everything.norm(points), rtol=1e-9)


@pytest.mark.parametrize(("columns", "reach"), [(2, 1), (4, 1), (3, 2)])
def test_two_rows_are_the_hull_of_their_integer_moves(columns: int, reach: int) -> None:
    first = [u for u in itertools.product(range(-reach, reach + 1), repeat=columns) if sum(u) == 0]
    vectors = [(u, tuple(-x for x in u)) for u in first if np.abs(u).sum() <= 2 * reach]
    ball = PairBall(columns, reach)
    points = tables(ball, 20, seed=5)
    np.testing.assert_allclose(
        ball.norm(points), ExplicitBall(np.array(vectors)).norm(points), rtol=1e-9
    )


BALLS: list[NormBall] = [
    PairBall(5),
    RowsBall((1, 6), (4, 4), 2),
    TableBall(3, 4, 2),
    TableBall(4, 4, 3),
    TableBall(4, 5, 2),
]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(BALLS), st.integers(0, 2**32), st.floats(-3, 3))
def test_laws_of_a_norm(ball: NormBall, seed: int, factor: float) -> None:
    one, two = tables(ball, 2, seed)
    norm_one, norm_two, norm_sum, norm_scaled = ball.norm(
        np.array([one, two, one + two, factor * one])
    )
    assert norm_one > 0
    assert norm_sum <= norm_one + norm_two + 1e-9
    assert norm_scaled == pytest.approx(abs(factor) * norm_one, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([TableBall(3, 4, 2), TableBall(4, 4, 3), TableBall(4, 5, 2)]),
    st.integers(0, 2**32),
)
def test_rows_and_columns_have_no_order(ball: TableBall, seed: int) -> None:
    point = tables(ball, 1, seed)
    generator = np.random.default_rng(seed)
    turned = point[:, generator.permutation(ball.rows)][:, :, generator.permutation(ball.columns)]
    assert ball.norm(turned) == pytest.approx(ball.norm(point), rel=1e-9)


# ---------------------------------------------------------------------- decisions at the boundary
# are proved


def on_the_boundary(rows: int, columns: int) -> Floats:
    """Half of two moves that share a cell, exact in binary: a point of a face, of norm exactly
    one.
    """
    table = np.zeros((rows, columns))
    for other in (1, 2):
        table[0, 0] += 0.5
        table[0, other] -= 0.5
        table[other, 0] -= 0.5
        table[other, other] += 0.5
    return table


@pytest.mark.parametrize(
    "ball", [TableBall(3, 3, 2), TableBall(3, 4, 3), TableBall(4, 4, 3), TableBall(4, 5, 2)]
)
def test_the_last_bit_decides(ball: TableBall) -> None:
    inside = on_the_boundary(*ball.shape)
    outside = inside.copy()
    outside[0, 0] = np.nextafter(1, 2)
    assert ball.contains(inside[None]).tolist() == [True]
    assert ball.contains(outside[None]).tolist() == [False]


@pytest.mark.parametrize("a", [2, 3])
def test_rational_arithmetic_agrees_with_the_program(a: int) -> None:
    polar = TablePolar(4, 5, a)
    for point in tables(TableBall(4, 5, a), 6, seed=6):
        low, high = polar.norm(point)
        assert polar.contains_exactly(point / (high * (1 + 1e-11)))
        assert not polar.contains_exactly(point / (low * (1 - 1e-11)))


@pytest.mark.few(1)
@pytest.mark.parametrize("quality", ["warm unknown", "both unknown", "wrong"])
def test_a_solver_that_fails_or_lies_changes_no_decision(
    quality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = TablePolar(4, 4, 3)
    points = tables(TableBall(4, 4, 3), 6, seed=7)
    points /= np.array([honest.norm(point)[1] for point in points])[:, None, None]
    points *= np.array([0.9, 1.1, 0.999, 1.001, 0.5, 2.0])[:, None, None]
    generator = np.random.default_rng(8)
    solve_cold = LinearProgram.solve_cold

    def lie(self: LinearProgram, objective: Floats) -> Optimum | None:
        found = solve_cold(self, objective)
        assert found is not None
        noise = generator.standard_normal
        return Optimum(
            found.point + 0.1 * noise(found.point.shape),
            found.multipliers + 0.1 * noise(found.multipliers.shape),
        )

    monkeypatch.setattr(
        LinearProgram, "solve", lie if quality == "wrong" else lambda self, objective: None
    )
    if quality != "warm unknown":
        monkeypatch.setattr(
            LinearProgram, "solve_cold", lie if quality == "wrong" else lambda self, objective: None
        )
    doubtful = TablePolar(4, 4, 3)
    assert [doubtful.contains(point) for point in points] == [True, False, True, False, True, False]
    everything = ExplicitBall(np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert everything.contains(np.array([[0.3, 0.3], [0.7, 0.7]])).tolist() == [True, False]


def test_cold_answers_serve_where_scipy_offers_no_warm_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = tables(TableBall(4, 5, 3), 4, seed=9)
    warm = TableBall(4, 5, 3).norm(points)
    monkeypatch.setattr("semidp.promise.mechanisms.knorm_polar._warm_solver", lambda *program: None)
    np.testing.assert_allclose(TableBall(4, 5, 3).norm(points), warm, rtol=1e-9)


def test_old_three_cycles_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semidp.promise.mechanisms.knorm_polar._CYCLES_KEPT", 10)
    points = tables(TableBall(4, 5, 3), 5, seed=10)
    np.testing.assert_allclose(
        TableBall(4, 5, 3).norm(points), TableBall(4, 5, 3).norm(points[::-1])[::-1], rtol=1e-9
    )


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "build", [lambda: TableBall(2, 3, 2), lambda: TableBall(4, 3, 2), lambda: TableBall(3, 3, 4)]
)
def test_a_table_ball_says_what_it_needs(build: Callable[[], NormBall]) -> None:
    with pytest.raises(InputError, match="3 <= rows <= columns and a = 2 or 3"):
        build()


def test_other_balls_say_what_they_need() -> None:
    with pytest.raises(InputError, match="positive row totals"):
        RowsBall((0, 2), (3, 3), 2)
    for vectors in (np.zeros((3, 2)), np.array([1.0]), np.array([[np.nan, 1.0]])):
        with pytest.raises(InputError, match="finite and not all zero"):
            ExplicitBall(vectors)


def test_exact_norm_of_a_rational_point() -> None:
    ball = ExplicitBall(np.array([[3, 0], [0, 1]]))
    assert ball.contains_exactly(np.array([1.5, 0.5]))
    assert not ball.contains_exactly(np.array([1.5, 0.5 + float(Fraction(1, 2**50))]))


@pytest.mark.parametrize(("size", "a"), [(3, 4), (3, 5)])
def test_moves_of_more_records_lie_in_the_stretched_ball_of_three(size: int, a: int) -> None:
    """The largest norm is exactly ⌊a/2⌋, so that less stretching would claim too much."""
    schema = Schema([Feature(name, [str(level) for level in range(size)]) for name in "rc"])
    public = Dataspace.from_table(
        Table(schema, np.full((size, size), 9)), [Margin("r"), Margin("c")]
    )
    every = np.array(list(sensitivity_space(public, Ball(a)).moves()), dtype=float)
    assert np.maximum(every, 0).sum(axis=(1, 2)).max() == a
    norms = TableBall(size, size, 3).norm(every)
    assert norms.max() == pytest.approx(a // 2)


def test_two_way_tables_of_four_records_are_served_with_a_smaller_rate() -> None:
    schema = Schema([Feature("r", "abc"), Feature("c", "xyz")])
    public = Dataspace.from_table(Table(schema, np.full((3, 3), 9)), [Margin("r"), Margin("c")])
    three, four = (KNormMechanism(sensitivity_space(public, Ball(a)), Fraction(1)) for a in (3, 4))
    assert (three.rate, four.rate, four.tradeoff.implied_epsilon()) == (1, Fraction(1, 2), 1)
    assert four.expected_l2 > 1.9 * three.expected_l2


def exchanges(rows: int, columns: int, each: int = 1) -> QuerySpace:
    """A table with published rows and an unpublished feature, under exchange adjacency."""
    schema = Schema([Feature("r", map(str, range(rows))), Feature("u", map(str, range(columns)))])
    public = Dataspace.from_table(Table(schema, np.full((rows, columns), each)), [Margin("r")])
    return sensitivity_space(public, Exchange.from_dataspace(public))


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 2), (4, 2), (2, 3), (2, 4)])
def test_the_ball_of_exchanges_is_their_hull(rows: int, columns: int) -> None:
    """Against the linear program over all moves, at random points: neither larger nor smaller
    anywhere.
    """
    space = exchanges(rows, columns)
    ball = place_ball(space).ball
    assert isinstance(ball, ExchangeBall)
    moves = np.array(list(space.moves()), dtype=float)
    assert ball.norm(moves).max() == pytest.approx(1)
    points = np.random.default_rng(3).normal(size=(12, rows, columns))
    points -= points.mean(axis=2, keepdims=True)
    assert ball.norm(points) == pytest.approx(ExplicitBall(moves).norm(points))
    drawn = ball.uniform(2000, np.random.default_rng(4))
    assert ball.norm(drawn).max() <= 1
    # the norm of a uniform point to the power s is uniform: its mean is s/(s+1) up to 6 standard
    # errors
    s = ball.dimension
    assert abs(ball.norm(drawn).mean() - s / (s + 1)) < 6 * np.sqrt(s / (s + 2)) / (
        s + 1
    ) / np.sqrt(2000)
    assert ball.variances() == pytest.approx((drawn**2).mean(axis=0), rel=0.25)
    weights = np.arange(rows * columns, dtype=float).reshape(rows, columns) ** 2
    assert ball.spread(weights) == pytest.approx(
        ((drawn * weights).sum(axis=(1, 2)) ** 2).mean(), rel=0.25
    )


def test_exchanges_of_larger_rows_are_listed_or_lie_in_a_ball_over_rows() -> None:
    assert isinstance(place_ball(exchanges(3, 3)).ball, ExplicitBall)
    large = exchanges(4, 4)
    placed = place_ball(large)
    assert isinstance(placed.ball, RowsBall)
    assert (
        placed.ball.norm(np.array([placed.take(move) for move in large.moves()], dtype=float)).max()
        == 1
    )


def test_counties_of_exact_states_move_by_one_record_under_exchange() -> None:
    paths = [("s", "a"), ("s", "b"), ("s", "c"), ("t", "d"), ("t", "e")]
    schema = Schema([Feature.from_paths(["state", "county"], paths)])
    public = Dataspace.from_table(Table(schema, [1, 1, 0, 0, 1]), [Margin("state")])
    space = sensitivity_space(public, Exchange.from_dataspace(public))
    placed = place_ball(space)
    moves = np.array([placed.take(move) for move in space.moves()], dtype=float)
    points = np.random.default_rng(5).normal(size=(8, 5))
    points[:, :3] -= points[:, :3].mean(axis=1, keepdims=True)
    points[:, 3:] -= points[:, 3:].mean(axis=1, keepdims=True)
    assert isinstance(placed.ball, RowsBall)
    assert placed.ball.norm(points) == pytest.approx(ExplicitBall(moves).norm(points))
