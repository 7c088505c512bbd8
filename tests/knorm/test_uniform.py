"""Uniform points of K: against triangulation, known moments and the law of the norm, with twins
that must be caught.

Each test raises a false alarm with probability about 1e-6; its seed is fixed.
"""

import itertools
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from semidp.applications.study import published_noise
from semidp.promise.mechanisms.knorm_balls import ExplicitBall, PairBall, RowsBall
from semidp.promise.mechanisms.knorm_polar import NormBall, knorm_noise, noise_moment, second_moment
from semidp.promise.mechanisms.knorm_tables import TableBall

Floats = np.ndarray
Moves = Callable[[int, int, int], Floats]
Reference = Callable[[Floats], Callable[[int, np.random.Generator], Floats]]
FALSE_ALARM = 1e-6
DEVIATIONS = 4.9  # of a normal variable: exceeded on either side with probability 1e-6


def statistics(points: Floats) -> list[Floats]:
    """Features of a point that tell samplers apart."""
    flat = points.reshape(len(points), -1)
    return [
        (flat**2).sum(axis=1),
        np.abs(flat).sum(axis=1),
        flat[:, 0],
        flat.max(axis=1),
        2 * flat[:, 0] + flat[:, -1],
    ]


def smallest_p_value(one: Floats, two: Floats) -> float:
    """The p-value that one and two are from one law, Bonferroni over the features."""
    pairs = list(zip(statistics(one), statistics(two), strict=True))
    return min(1.0, len(pairs) * min(ks_2samp(x, y).pvalue for x, y in pairs))


# ---------------------------------------------------------------------- triangulation

LARGE = pytest.param(4, 4, 2, marks=pytest.mark.long)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("rows", "columns", "a"), [(3, 3, 2), (3, 3, 3), (3, 4, 2), (3, 4, 3), LARGE]
)
def test_agrees_with_triangulation(
    rows: int, columns: int, a: int, moves: Moves, triangulated: Reference
) -> None:
    size = 30_000
    reference = triangulated(moves(rows, columns, a))(size, np.random.default_rng(1))
    found = TableBall(rows, columns, a).uniform(size, np.random.default_rng(2))
    assert smallest_p_value(found, reference) > FALSE_ALARM
    assert smallest_p_value(found * 1.03, reference) < FALSE_ALARM


def test_triangulation_convicts_the_paper_s_list(moves: Moves, triangulated: Reference) -> None:
    """The hull without three-cycles is another law."""
    reference = triangulated(moves(3, 3, 3))(20_000, np.random.default_rng(3))
    assert (
        smallest_p_value(TableBall(3, 3, 2).uniform(20_000, np.random.default_rng(4)), reference)
        < FALSE_ALARM
    )


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_two_rows_agree_with_triangulation(
    columns: int, moves: Moves, triangulated: Reference
) -> None:
    reference = triangulated(moves(2, columns, 2))(50_000, np.random.default_rng(5))
    assert (
        smallest_p_value(PairBall(columns).uniform(50_000, np.random.default_rng(6)), reference)
        > FALSE_ALARM
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("limits", "a"), [((9,), 1), ((4, 5), 2), ((1, 5), 2), ((1, 1), 2), ((2, 1), 3), ((7, 1), 3)]
)
def test_one_published_side_agrees_with_triangulation(
    limits: tuple[int, ...], a: int, triangulated: Reference
) -> None:
    rows = [row for row in itertools.product(range(-a, a + 1), repeat=3) if sum(row) == 0]
    vectors = [
        table
        for table in itertools.product(rows, repeat=len(limits))
        if sum(np.abs(row).sum() for row in table) <= 2 * a
        and all(np.abs(row).sum() <= 2 * limit for row, limit in zip(table, limits, strict=True))
    ]
    flat = np.array(vectors, dtype=float).reshape(len(vectors), -1)
    reference = triangulated(flat)(50_000, np.random.default_rng(7))
    ball = RowsBall(limits, (3,) * len(limits), a)
    found = ball.uniform(50_000, np.random.default_rng(8))
    assert smallest_p_value(found, reference) > FALSE_ALARM
    assert smallest_p_value(found[:, ::-1] * 1.03, reference) < FALSE_ALARM
    np.testing.assert_allclose(ball.variances(), (reference**2).mean(axis=0), rtol=0.05)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("limits", "lengths", "a"),
    [((9, 9), (2, 3), 2), ((1, 5), (3, 2), 2), ((2, 1, 4), (2, 3, 2), 3), ((5,), (4,), 2)],
)
def test_rows_of_different_lengths_agree_with_triangulation(
    limits: tuple[int, ...], lengths: tuple[int, ...], a: int, triangulated: Reference
) -> None:
    rows = [
        [row for row in itertools.product(range(-a, a + 1), repeat=c) if sum(row) == 0]
        for c in lengths
    ]
    vectors = [
        np.concatenate(table)
        for table in itertools.product(*rows)
        if sum(np.abs(row).sum() for row in table) <= 2 * a
        and all(np.abs(row).sum() <= 2 * limit for row, limit in zip(table, limits, strict=True))
    ]
    reference = triangulated(np.array(vectors, dtype=float))(50_000, np.random.default_rng(7))
    ball = RowsBall(limits, lengths, a)
    assert ball.norm(np.array(vectors, dtype=float)).max() <= 1 + 1e-12
    found = ball.uniform(50_000, np.random.default_rng(8))
    assert smallest_p_value(found, reference) > FALSE_ALARM
    assert smallest_p_value(found * 1.03, reference) < FALSE_ALARM
    np.testing.assert_allclose(ball.variances(), (reference**2).mean(axis=0), rtol=0.05)
    weights = np.random.default_rng(9).standard_normal(sum(lengths))
    assert ball.spread(weights) == pytest.approx(((reference @ weights) ** 2).mean(), rel=0.05)


def test_rows_of_one_length_are_a_matrix() -> None:
    ball = RowsBall((3, 9), (4, 4), 2)
    points = np.random.default_rng(1).standard_normal((50, 2, 4))
    points -= points.mean(axis=2, keepdims=True)
    lengths = np.abs(points).sum(axis=2) / 2
    norms = np.maximum(lengths.sum(axis=1) / 2, (lengths / [3, 9]).max(axis=1))
    np.testing.assert_allclose(ball.norm(points.reshape(50, 8)), norms)
    np.testing.assert_allclose(ball.variances(), 0.3)  # 2² · 3 · 4 / (7 · 8) · 4 · 7 / (4 · 5) / 4


def test_a_list_of_moves_agrees_with_triangulation(moves: Moves, triangulated: Reference) -> None:
    vectors = moves(3, 3, 3)
    reference = triangulated(vectors)(10_000, np.random.default_rng(9))
    assert (
        smallest_p_value(ExplicitBall(vectors).uniform(4_000, np.random.default_rng(10)), reference)
        > FALSE_ALARM
    )


def test_three_random_dimensions_of_ten(triangulated: Reference) -> None:
    generator = np.random.default_rng(11)
    vectors = generator.standard_normal((9, 3)) @ generator.standard_normal((3, 10))
    ball = ExplicitBall(vectors)
    assert ball.dimension == 3
    reference = triangulated(np.concatenate([vectors, -vectors]))(20_000, np.random.default_rng(12))
    found = ball.uniform(5_000, np.random.default_rng(13))
    np.testing.assert_allclose(found @ ball.projection, found, atol=1e-12)
    assert smallest_p_value(found, reference) > FALSE_ALARM
    assert smallest_p_value(found * 1.06, reference) < FALSE_ALARM
    np.testing.assert_allclose(ball.variances(), (reference**2).mean(axis=0), rtol=0.15)
    weights = generator.standard_normal(10)
    assert ball.spread(weights) == pytest.approx(((reference @ weights) ** 2).mean(), rel=0.15)


# ---------------------------------------------------------------------- the law of the norm, at any
# size


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("ball", "size"),
    [
        (TableBall(3, 7, 2), 20_000),
        (TableBall(3, 6, 3), 20_000),
        (TableBall(4, 4, 3), 5_000),
        (TableBall(4, 6, 2), 300),
        (TableBall(5, 5, 3), 150),
        (PairBall(40), 20_000),
        (RowsBall((1, 2, 30), (4, 4, 4), 2), 20_000),
    ],
)
def test_the_norm_to_the_power_of_the_dimension_is_uniform(ball: NormBall, size: int) -> None:
    norms = ball.norm(ball.uniform(size, np.random.default_rng(14)))
    assert kstest(norms**ball.dimension, "uniform").pvalue > FALSE_ALARM
    assert kstest(norms ** (2 * ball.dimension), "uniform").pvalue < FALSE_ALARM


# ---------------------------------------------------------------------- known moments of the noise


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("ball", "size", "known"),
    [
        (PairBall(2), 100_000, 8.0),
        (TableBall(3, 3, 2), 100_000, 46.909),
        (TableBall(4, 4, 2), 20_000, 127.646),
        (TableBall(4, 4, 3), 20_000, 241.008),
        (TableBall(3, 3, 3), 100_000, 64.571),
    ],
)
def test_known_second_moments(ball: NormBall, size: int, known: float) -> None:
    """E||v||² at ε = 1 from uniform points, (s+1)(s+2) E||U||²: half a percent of Monte Carlo error
    at most.
    """
    s = ball.dimension
    squares = (
        (s + 1) * (s + 2) * (ball.uniform(size, np.random.default_rng(15)) ** 2).sum(axis=(1, 2))
    )
    error = squares.std() / np.sqrt(size)
    assert error < 0.005 * known
    # the known values have a Monte Carlo error of their own, about a tenth of a percent
    assert abs(squares.mean() - known) < DEVIATIONS * np.hypot(error, 0.001 * known)
    assert abs(1.03 * squares.mean() - known) > DEVIATIONS * np.hypot(error, 0.001 * known)


@pytest.mark.parametrize(
    "ball", [PairBall(6), RowsBall((8, 9), (4, 4), 2), RowsBall((50,), (7,), 1)]
)
def test_moments_in_closed_form(ball: NormBall) -> None:
    squares = (ball.uniform(100_000, np.random.default_rng(16)).reshape(100_000, -1) ** 2).sum(
        axis=1
    )
    assert abs(squares.mean() - second_moment(ball)) < DEVIATIONS * squares.std() / np.sqrt(
        len(squares)
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "ball", [PairBall(5), RowsBall((1, 6), (4, 4), 2), TableBall(4, 4, 3), TableBall(3, 4, 2)]
)
def test_the_spread_of_weighted_sums(ball: NormBall) -> None:
    points = ball.uniform(20_000, np.random.default_rng(17))
    weights = np.random.default_rng(18).standard_normal(ball.shape)
    squares = (points * weights).reshape(20_000, -1).sum(axis=1) ** 2
    error = squares.std() / np.sqrt(len(squares))
    assert abs(squares.mean() - ball.spread(weights)) < DEVIATIONS * error + 0.01 * squares.mean()
    np.testing.assert_allclose(ball.variances(), (points**2).mean(axis=0), rtol=0.1)


def test_the_radius_is_gamma_of_one_more_than_the_dimension() -> None:
    ball = TableBall(3, 3, 3)
    norms = ball.norm(knorm_noise(ball, Fraction(1, 2), 50_000, np.random.default_rng(19)))
    # r ||U|| with r ~ Gamma(s+1) and ||U||^s uniform is Gamma(s)
    assert kstest(norms / 2, "gamma", args=(4,)).pvalue > FALSE_ALARM
    assert kstest(norms / 2 * 1.03, "gamma", args=(4,)).pvalue < FALSE_ALARM
    wrong = ball.norm(published_noise(ball, Fraction(1, 2), 50_000, np.random.default_rng(20)))
    assert kstest(wrong / 2, "gamma", args=(4,)).pvalue < FALSE_ALARM


def test_the_moment_of_the_noise_follows_epsilon() -> None:
    assert noise_moment(PairBall(2), Fraction(1, 10)) == pytest.approx(800)


# ---------------------------------------------------------------------- the origin


def hits(ball: NormBall, points: Floats, window: float) -> int:
    """How many points have norm at most `window`; no cell exceeds the norm, which spares most
    norms.
    """
    near = points[np.abs(points).max(axis=(1, 2)) <= window]
    return int((ball.norm(near) <= window).sum())


@pytest.mark.parametrize(
    ("ball", "windows"),
    [
        (PairBall(2), (0.1, 0.01, 0.001)),
        pytest.param(TableBall(3, 3, 3), (0.5, 0.42, 0.36), marks=pytest.mark.long),
    ],
)
def test_at_the_origin_only_the_right_radius_keeps_the_promise(
    ball: NormBall, windows: tuple[float, ...]
) -> None:
    """Noise near 0 against noise near a neighbour's shift m, ||m|| = 1, ε = 1, in windows that
    shrink: t K.
    """
    size = 500_000
    shift = np.zeros(ball.shape)
    shift[:2, :2] = [[1.0, -1.0], [-1.0, 1.0]]
    right = knorm_noise(ball, Fraction(1), size, np.random.default_rng(21))
    wrong = published_noise(ball, Fraction(1), size, np.random.default_rng(22))
    ratios = []
    for window in windows:
        here, there = (hits(ball, right - at, window) for at in (0 * shift, shift))
        assert min(here, there) > 50
        error = DEVIATIONS * np.sqrt(1 / here + 1 / there)
        assert np.log(here / there) < 1 + error
        here, there = (hits(ball, wrong - at, window) for at in (0 * shift, shift))
        ratios.append(here / there)
        assert np.log(here / there) > 1 + DEVIATIONS * np.sqrt(1 / here + 1 / there)
    # in one dimension the windows are small enough to see the ratio grow without bound
    if ball.dimension == 1:
        assert ratios == sorted(ratios)
        assert ratios[-1] > 2 * ratios[0]


# ---------------------------------------------------------------------- speed, progress, repetition


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("ball", "size", "rate"),
    [
        (TableBall(8, 8, 2), 40, 20),
        (TableBall(10, 10, 2), 5, 1),
        (TableBall(5, 5, 3), 40, 20),
        (TableBall(7, 7, 3), 5, 1),
        (PairBall(100_000), 2, 2),
    ],
)
def test_samples_a_second_on_one_core(ball: NormBall, size: int, rate: float) -> None:
    start = time.process_time()
    ball.uniform(size, np.random.default_rng(23))
    assert size / (time.process_time() - start) >= rate


@pytest.mark.parametrize(
    "ball",
    [
        PairBall(3),
        RowsBall((1, 2), (3, 3), 2),
        TableBall(3, 3, 2),
        ExplicitBall(np.eye(3)),
        TableBall(4, 5, 3),
    ],
)
def test_progress_ends_at_the_end_and_a_seed_repeats(ball: NormBall) -> None:
    seen = []
    one = ball.uniform(
        7, np.random.default_rng(24), lambda task, done, total: seen.append((done, total))
    )
    assert seen[-1] == (7, 7)
    np.testing.assert_array_equal(one, ball.uniform(7, np.random.default_rng(24)))
    assert ball.uniform(0, np.random.default_rng(25)).shape == (0, *ball.shape)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("ball", "size"),
    [
        (TableBall(3, 3, 2), 50_000),
        (TableBall(3, 3, 3), 50_000),
        (TableBall(4, 4, 2), 50_000),
        (TableBall(4, 4, 3), 20_000),
        (TableBall(3, 12, 2), 10_000),
        (TableBall(3, 12, 3), 10_000),
        (TableBall(5, 6, 2), 400),
        (TableBall(5, 5, 3), 200),
        (TableBall(9, 9, 2), 40),
    ],
)
def test_the_announced_second_moment_is_within_one_percent(ball: TableBall, size: int) -> None:
    squares = (ball.uniform(size, np.random.default_rng(26)) ** 2).sum(axis=(1, 2))
    error = DEVIATIONS * squares.std() / np.sqrt(size)
    assert abs(squares.mean() - second_moment(ball)) < 0.01 * squares.mean() + error
