"""The K-norm mechanism on sensitivity spaces: the right ball, exact margins on whole numbers,
errors, refusals.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.knorm import KNormMechanism, place_ball, whole_points
from semidp.promise.mechanisms.knorm_balls import ExplicitBall, PairBall, RowsBall
from semidp.promise.mechanisms.knorm_tables import TableBall
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import select_mechanism

DEVIATIONS = 4.9


def table_of(counts: list | np.ndarray) -> Table:
    array = np.asarray(counts)
    names = "ABCDE"[: array.ndim]
    features = [
        Feature(name, [str(k) for k in range(size)])
        for name, size in zip(names, array.shape, strict=True)
    ]
    return Table(Schema(features), array)


def space_of(
    table: Table, margins: str, a: int | None = None, released: str | None = None
) -> TableSpace:
    public = Dataspace.from_table(table, [Margin(*names) for names in margins.split()])
    return sensitivity_space(public, Ball(a or semi_adjacency(public).bound), released)


def filled(*shape: int) -> Table:
    return table_of(np.random.default_rng(sum(shape)).integers(5, 20, shape))


CASES = [
    (filled(2, 4), "A B", PairBall(4)),
    (filled(5, 2), "A B", PairBall(5)),
    (filled(5, 3), "A B", TableBall(3, 5, 3)),
    (filled(2, 3, 4), "AB C", TableBall(4, 6, 3)),
    (filled(2, 2, 2), "AB C", PairBall(4)),
    (table_of([[7, 0, 9], [0, 0, 0], [6, 0, 8]]), "A B", PairBall(2)),
    (table_of([[3, 4, 5], [1, 1, 0]]), "A", RowsBall((12, 2), (3, 3), 2)),
    (table_of([[3, 4, 5], [1, 0, 0]]), "A", RowsBall((12, 1), (3, 3), 2)),
    (filled(2, 3), "", None),
]


@pytest.mark.parametrize(("table", "margins", "ball"), CASES)
def test_each_space_gets_its_ball(table: Table, margins: str, ball: object) -> None:
    space = space_of(table, margins)
    found = place_ball(space).ball
    assert found == (ball or RowsBall((table.n,), (6,), 1))
    assert found.dimension == space.dimension


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("table", "margins", "a"),
    [(t, m, None) for t, m, _ in CASES]
    + [
        (filled(2, 3), "A B", 6),
        (filled(2, 2, 2), "A B C", 4),
        (filled(2, 2, 2), "AB BC AC", None),
    ],
)
def test_every_move_is_in_the_ball(table: Table, margins: str, a: int | None) -> None:
    """The whole guarantee: no element of S_a has a K-norm above one."""
    space = space_of(table, margins, a)
    placed = place_ball(space)
    moves = list(itertools.islice(space.moves(), 200))
    norms = placed.ball.norm(np.array([placed.take(move) for move in moves], dtype=float))
    assert norms.max() == pytest.approx(1, abs=1e-9)
    for move in moves:
        np.testing.assert_array_equal(placed.place(placed.take(move)), move)


@pytest.mark.parametrize(
    ("table", "margins"), [(t, m) for t, m, _ in CASES] + [(filled(2, 2, 2), "A B C")]
)
def test_what_is_published_is_whole_and_keeps_every_margin(table: Table, margins: str) -> None:
    space = space_of(table, margins)
    mechanism = KNormMechanism.calibrate(space, Budget.pure("0.3"))
    measured = mechanism.apply(table, SeededRandomness(1))
    assert measured.noisy.dtype == np.int64
    assert (measured.noisy != table.counts).any()
    assert not measured.private
    np.testing.assert_array_equal(measured.projected, measured.noisy)
    for names in margins.split():
        axes = tuple(i for i in range(table.counts.ndim) if table.schema.names[i] not in names)
        np.testing.assert_array_equal(measured.noisy.sum(axis=axes), table.counts.sum(axis=axes))
    assert measured.noisy.sum() == table.n
    assert mechanism.apply(table, SystemRandomness()).private


def test_the_guarantee_is_pure_epsilon_for_this_space_and_an_ideal_claim() -> None:
    space = space_of(filled(3, 3), "A B")
    mechanism = KNormMechanism.calibrate(space, Budget.pure("1/3"))
    assert mechanism.guarantee.adjacency == Ball(3)
    assert mechanism.tradeoff.epsilon(0) == pytest.approx(1 / 3)
    assert mechanism.scale >= 3
    assert mechanism.claim == "ideal"
    assert "rounded to whole numbers" in mechanism.statement


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("table", "margins", "epsilon"),
    [
        (filled(3, 3), "A B", "0.5"),
        (filled(2, 4), "A B", "0.5"),
        (table_of([[3, 4, 5], [1, 0, 0]]), "A", "0.5"),
        (filled(2, 2, 2), "A B C", "0.5"),
    ],
)
def test_stated_errors_are_the_errors(table: Table, margins: str, epsilon: str) -> None:
    mechanism = KNormMechanism.calibrate(space_of(table, margins), Budget.pure(epsilon))
    noise = mechanism.noises(3000, SeededRandomness(2)).astype(float)
    squares = (noise.reshape(3000, -1) ** 2).sum(axis=1)
    error = DEVIATIONS * squares.std() / math.sqrt(3000)
    slack = 0.05  # of a pilot behind a listed ball
    assert abs(squares.mean() - mechanism.expected_l2**2) < error + slack * squares.mean()
    np.testing.assert_allclose(
        mechanism.standard_errors(), np.sqrt((noise**2).mean(axis=0)), rtol=0.15, atol=1e-12
    )
    weights = np.random.default_rng(3).standard_normal(table.counts.shape)
    sums = (noise * weights).reshape(3000, -1).sum(axis=1)
    assert mechanism.standard_error(weights) == pytest.approx(math.sqrt((sums**2).mean()), rel=0.15)


def test_rounding_spreads_its_error_over_the_cells() -> None:
    """The last cell would have 25/12 if the other cells were rounded one by one."""
    placed = place_ball(space_of(filled(6, 6), "A B"))
    points = 50 * TableBall(6, 6, 2).uniform(200, np.random.default_rng(4))
    errors = np.array([placed.round_point(point) - point for point in points])
    assert np.abs(errors).max() <= 2
    np.testing.assert_allclose((errors**2).mean(axis=0), placed.rounding_counts / 12, rtol=0.6)
    assert placed.rounding_counts.max() == 4


def test_rounding_commutes_with_whole_tables() -> None:
    """round(table + noise) = table + round(noise): so the rounding is post-processing."""
    for table, margins in ((filled(4, 5), "A B"), (filled(3, 4), "A"), (filled(2, 2, 2), "A B C")):
        space = space_of(table, margins)
        placed = place_ball(space)
        move = next(space.moves())
        noise = 10 * placed.ball.uniform(1, np.random.default_rng(5))[0]
        np.testing.assert_array_equal(
            placed.round_point(noise + placed.take(move)),
            placed.round_point(noise) + placed.take(move),
        )


def test_whole_points_are_a_basis_of_all_whole_points() -> None:
    np.testing.assert_array_equal(np.abs(whole_points(np.array([[2, -2, 0, 0]]))), [[1, 1, 0, 0]])
    basis = whole_points(np.array([[1, 1, 0], [1, -1, 0]]))
    assert abs(round(np.linalg.det(basis[:, :2]))) == 1


# ---------------------------------------------------------------------- rank-deficient spaces


def test_tiny_margins_where_the_moves_span_less_than_the_kernel() -> None:
    counts = np.zeros((2, 2, 2), dtype=int)
    counts[0, 0, 0] = counts[1, 1, 1] = 1
    space = space_of(table_of(counts), "A B C")
    placed = place_ball(space)
    assert isinstance(placed.ball, ExplicitBall)
    assert (placed.ball.dimension, space.dimension) == (3, 4)
    mechanism = KNormMechanism.calibrate(space, Budget.pure(1))
    noisy = mechanism.apply(table_of(counts), SeededRandomness(6)).noisy
    for axes in itertools.combinations(range(3), 2):
        np.testing.assert_array_equal(noisy.sum(axis=axes), [1, 1])


def test_moves_that_do_not_connect_the_tables_are_refused() -> None:
    """A square and a triangle side by side: two records move the square only, and the triangle
    would be exact.
    """
    possible = np.zeros((5, 5), dtype=bool)
    possible[:2, :2] = True
    possible[[2, 3, 4], [2, 3, 4]] = possible[[2, 3, 4], [3, 4, 2]] = True
    zeros = [
        StructuralZero.from_pattern({"A": str(i), "B": str(j)}) for i, j in np.argwhere(~possible)
    ]
    levels = [str(k) for k in range(5)]
    table = Table(
        Schema([Feature("A", levels), Feature("B", levels)], zeros), 3 * possible.astype(int)
    )
    with pytest.raises(Refused, match="do not connect all tables"):
        KNormMechanism.calibrate(space_of(table, "A B", a=2), Budget.pure(1))
    mechanism = KNormMechanism.calibrate(space_of(table, "A B", a=3), Budget.pure(1))
    assert mechanism.placed_ball.ball.dimension == 2


def test_released_features_keep_the_a_of_all_invariants() -> None:
    """A, B, C public, only AB released: a = 4, and a cell of AB can move by two."""
    counts = np.zeros((2, 2, 2), dtype=int)
    counts[0, 0, 0], counts[1, 1, 1] = 3, 7
    space = space_of(table_of(counts), "A B C", released="AB")
    assert space.adjacency.a == 4
    placed = place_ball(space)
    assert placed.ball == PairBall(2, reach=2)


# ---------------------------------------------------------------------- refusals


def test_a_large_table_is_refused_with_the_alternative_and_both_losses() -> None:
    space = space_of(filled(14, 14), "A B")
    laplace = LaplaceMechanism.calibrate(space, Budget.pure(1)).expected_l2
    with pytest.raises(
        Refused, match=rf"at most 121 free cells and this one has 169: use laplace.*{laplace:.4g}"
    ):
        KNormMechanism.calibrate(space, Budget.pure(1))


def test_other_margins_are_refused_beyond_a_few_dimensions() -> None:
    with pytest.raises(Refused, match=r"has 20: use laplace \(laplace has an expected loss of \d+"):
        KNormMechanism.calibrate(space_of(filled(3, 3, 3), "A B C"), Budget.pure(1))


def test_a_budget_of_another_kind_is_refused() -> None:
    with pytest.raises(Refused, match="cannot satisfy a zcdp budget"):
        KNormMechanism.calibrate(space_of(filled(3, 3), "A B"), Budget.zcdp(1))


# ---------------------------------------------------------------------- better than what it
# competes with


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 3), (4, 4), (8, 8), (12, 12), (3, 30)])
def test_the_expected_loss_is_below_projected_laplace(rows: int, columns: int) -> None:
    space = space_of(filled(rows, columns), "A B")
    budget = Budget.pure(Fraction(1, 10))
    knorm = KNormMechanism.calibrate(space, budget)
    assert knorm.expected_l2 < LaplaceMechanism.calibrate(space, budget).expected_l2


def test_progress_is_reported() -> None:
    table = filled(5, 5)
    seen = []
    mechanism = KNormMechanism.calibrate(space_of(table, "A B"), Budget.pure(1))
    mechanism.reporting(lambda task, done, total: seen.append((task, done, total))).apply(
        table, SeededRandomness(7)
    )
    assert seen[-1] == ("drawing uniform points", 1, 1)


def test_noise_that_does_not_fit_is_refused() -> None:
    space = space_of(filled(3, 3), "A B")
    with pytest.raises(Refused, match="larger budget"):
        KNormMechanism.calibrate(space, Budget.pure("1e-20"))
    large = KNormMechanism.calibrate(
        space_of(filled(2, 4000), "A B"), Budget.pure(Fraction(1, 2**48))
    )
    with pytest.raises(Refused, match="63 bits: use a larger budget"):
        large.noise(SeededRandomness(8))


def nested_table() -> Table:
    """States of three, two and one county by sex, one county without a record."""
    counties = [("a", "x"), ("a", "y"), ("a", "z"), ("b", "u"), ("b", "v"), ("c", "w")]
    schema = Schema([Feature.from_paths(["state", "county"], counties), Feature("sex", "fm")])
    return Table(schema, [[3, 4], [0, 0], [5, 1], [7, 2], [1, 1], [9, 0]])


@pytest.mark.parametrize(
    ("margins", "ball"),
    [
        ([Margin("state")], RowsBall((13, 11, 9), (6, 4, 2), 1)),
        ([Margin("state", "sex")], RowsBall((8, 5, 8, 3), (3, 3, 2, 2), 2)),
        ([Margin("county")], RowsBall((7, 6, 9, 2, 9), (2, 2, 2, 2, 2), 2)),
        ([], RowsBall((33,), (12,), 1)),
    ],
    ids=str,
)
def test_rows_of_different_lengths_under_a_nested_feature(
    margins: list[Margin], ball: RowsBall
) -> None:
    """Whole noise that no published total sees, within its stated errors; a twin with a wrong scale
    is caught.
    """
    table = nested_table()
    public = Dataspace.from_table(table, margins)
    space = sensitivity_space(public, Ball(ball.a))
    assert place_ball(space).ball == ball
    mechanism = KNormMechanism.calibrate(space, Budget.pure(1))
    noise = mechanism.noises(4_000, SeededRandomness(3))
    assert noise.dtype == np.int64
    for margin in margins:
        view = table.schema.view(margin.names)
        assert not np.stack([table.schema.grid.sum(one, view) for one in noise[:50]]).any()
    assert not noise.sum(axis=(1, 2)).any()
    spread = (noise.astype(float) ** 2).sum(axis=(1, 2))
    error = 5 * spread.std() / math.sqrt(len(spread))
    assert abs(spread.mean() - mechanism.expected_l2**2) < error
    assert abs(1.3 * spread.mean() - mechanism.expected_l2**2) > error
    weights = np.arange(12.0).reshape(6, 2) ** 1.5
    products = (noise * weights).sum(axis=(1, 2))
    assert mechanism.standard_error(weights) == pytest.approx(products.std(), rel=0.08)
    np.testing.assert_allclose(mechanism.standard_errors(), noise.std(axis=0), rtol=0.1, atol=1e-9)


def test_the_norm_of_rows_bounds_every_move() -> None:
    """Every difference of adjacent tables lies in K: this is what pure epsilon rests on."""
    public = Dataspace.from_table(nested_table(), [Margin("state", "sex")])
    space = sensitivity_space(public, Ball(2))
    placed = place_ball(space)
    norms = [
        float(placed.ball.norm(placed.take(move.astype(float))[None])[0]) for move in space.moves()
    ]
    assert max(norms) == pytest.approx(1.0)


def test_two_published_sides_of_a_nested_table_are_refused_by_lattice_and_large_k_norm() -> None:
    counties = Feature.from_paths(["state", "county"], [(str(i % 3), str(i)) for i in range(10)])
    table = Table(Schema([counties, Feature("sex", "fm")]), np.full((10, 2), 5))
    space = sensitivity_space(
        Dataspace.from_table(table, [Margin("state"), Margin("sex")]), Ball(3)
    )
    with pytest.raises(Refused, match="nested features"):
        select_mechanism(space, Budget.zcdp(1), "lattice")
    with pytest.raises(Refused, match="use laplace"):
        select_mechanism(space, Budget.pure(1), "knorm")
