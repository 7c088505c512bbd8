"""Lattice noise has exactly the law it states, whatever the order of its draws; a wrong step would
be caught.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import ball, precision
from semidp.promise.noise import lattice, rejection
from semidp.promise.noise.lattice import LatticeGaussian, OneSidedLatticeGaussian, zero_sum
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.publish.half_widths import lattice_half_width

SHAPES = [(2, 2), (2, 3), (3, 3)]
SIGMAS = [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5)]


class Enumerated:
    """All integer tables with zero margins near zero, each with its probability: nothing but the
    definition.
    """

    def __init__(self, rows: int, columns: int, sigma: float, one_sided: bool = False) -> None:
        free_rows = rows if one_sided else rows - 1
        per_cell = sigma * math.sqrt((1 - 1 / columns) * (1 if one_sided else 1 - 1 / rows))
        self.reach = max(2, math.ceil((5.5 if sigma > 2 else 6.5) * per_cell))
        axis = np.arange(-self.reach, self.reach + 1)
        free = np.meshgrid(*[axis] * (free_rows * (columns - 1)), indexing="ij", sparse=True)
        cells = [list(free[i * (columns - 1) : (i + 1) * (columns - 1)]) for i in range(free_rows)]
        for row in cells:
            row.append(-sum(row))
        if not one_sided:
            cells.append([-sum(column) for column in zip(*cells, strict=True)])
        self.norm = np.asarray(sum(cell * cell for row in cells for cell in row))
        weight = np.exp(-self.norm / (2 * sigma**2))
        self.probability = weight / weight.sum()
        self.last = np.asarray(cells[-1][-1] + 0 * self.norm)
        self.free = (free_rows, columns - 1)

    def agrees(self, fits, tables: np.ndarray) -> bool:
        """Compare the joint law of all free cells, the law of the norm, and that of the last cell
        drawn.
        """
        free = tables[:, : self.free[0], : self.free[1]].reshape(len(tables), -1)
        inside = np.all(np.abs(free) <= self.reach, axis=1)
        outside = int((~inside).sum())
        flat = np.ravel_multi_index(tuple((free[inside] + self.reach).T), self.norm.shape)
        joint = np.bincount(flat, minlength=self.norm.size)
        return (
            self._fits(fits, joint, np.argsort(-self.probability, axis=None), outside)
            and fits(*self._law((tables**2).sum(axis=(1, 2)), self.norm, 0))
            and fits(*self._law(tables[:, -1, -1], self.last, int(self.last.max())))
        )

    def _fits(self, fits, joint: np.ndarray, order: np.ndarray, outside: int) -> bool:
        return fits(joint[order], self.probability.ravel()[order], outside)

    def _law(
        self, drawn: np.ndarray, statistic: np.ndarray, shift: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        law = np.bincount((statistic + shift).ravel(), weights=self.probability.ravel())
        inside = (drawn + shift >= 0) & (drawn + shift < law.size)
        return np.bincount(drawn[inside] + shift, minlength=law.size), law, int((~inside).sum())


@pytest.mark.few(1)
@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tables_have_the_enumerated_probabilities_and_not_those_of_a_wrong_scale(
    fits, shape, sigma
) -> None:
    tables = LatticeGaussian(*shape, sigma**2).sample_many(60_000, SeededRandomness(21))
    assert Enumerated(*shape, float(sigma)).agrees(fits, tables)
    for factor in (0.9, 1.1):
        assert not Enumerated(*shape, factor * float(sigma)).agrees(fits, tables)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_leaving_out_the_acceptance_step_is_caught(fits, shape, monkeypatch) -> None:
    monkeypatch.setattr(
        lattice, "_accept_tables", lambda plan, sums, stream: np.ones(sums.shape[1], dtype=bool)
    )
    tables = LatticeGaussian(*shape, Fraction(1, 4)).sample_many(60_000, SeededRandomness(22))
    caught = not Enumerated(*shape, 0.5).agrees(fits, tables)
    # A 2 x 2 table has one free integer and no earlier one to be off-centre from: there is nothing
    # to correct.
    assert caught == (shape != (2, 2))


@pytest.mark.few(1)
@pytest.mark.parametrize("runs", [(1,), (16,), (2,)], ids=["halves", "one at a time", "both"])
@pytest.mark.parametrize("sigma", [Fraction(3, 5), Fraction(1)], ids=str)
def test_every_order_of_draws_gives_the_same_law(fits, runs, sigma, monkeypatch) -> None:
    monkeypatch.setattr(lattice, "_RUNS", runs)
    plan = lattice._compute_plan(*lattice._trees.__wrapped__(3, 4, sigma**2), sigma**2)
    tables = lattice._sample(plan, 60_000, SeededRandomness(23))
    assert Enumerated(3, 4, float(sigma)).agrees(fits, tables)


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(1), Fraction(3)], ids=str)
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_one_sided_rows_are_independent_and_have_the_enumerated_probabilities(
    fits, columns, sigma
) -> None:
    noise = OneSidedLatticeGaussian(2, columns, sigma**2)
    rows = OneSidedLatticeGaussian(60_000, columns, sigma**2).sample(SeededRandomness(24))
    assert not rows.sum(axis=1).any()
    assert Enumerated(1, columns, float(sigma), one_sided=True).agrees(fits, rows[:, None, :])
    for factor in (0.9, 1.1):
        assert not Enumerated(1, columns, factor * float(sigma), one_sided=True).agrees(
            fits, rows[:, None, :]
        )
    assert np.array_equal(
        noise.sample_many(30_000, SeededRandomness(24)), rows.reshape(-1, 2, columns)
    )
    if columns == 3 and sigma == 1:
        pairs = rows.reshape(-1, 2, columns)
        assert Enumerated(2, columns, float(sigma), one_sided=True).agrees(fits, pairs)
        assert noise.sample(SeededRandomness(1)).shape == (2, 3)


@pytest.mark.parametrize(
    "shape_and_sigma", [((3, 3), Fraction(1, 2)), ((4, 5), Fraction(1)), ((6, 70), Fraction(30))]
)
def test_floats_decide_as_ball_arithmetic_does(shape_and_sigma, monkeypatch) -> None:
    (rows, columns), sigma = shape_and_sigma
    noise = LatticeGaussian(rows, columns, sigma**2)
    count = 600 // (rows * columns) + 3
    by_floats = noise.sample_many(count, SeededRandomness(25))
    monkeypatch.setattr(rejection, "TOLERANCE", 2.0)
    monkeypatch.setattr(lattice, "_tolerance", lambda plan: 2.0)
    assert np.array_equal(noise.sample_many(count, SeededRandomness(25)), by_floats)


def test_the_acceptance_factors_are_as_precise_as_they_are_proved_to_be() -> None:
    rng = np.random.default_rng(26)
    for _ in range(300):
        bottom = int(rng.integers(1, 10**6))
        top = int(rng.integers(-(10**12), 10**12))
        variance = Fraction(int(rng.integers(1, 40)), 16)
        q = rejection.theta_nome(np.array([float(variance)]))
        loss = rejection.theta_losses(np.array([top]), np.array([bottom]), q)[0]
        with precision(200):
            true = 1 - rejection.theta_ratio(Fraction(top, bottom), variance)
            error = abs(ball(Fraction(loss)) - true)
            assert (
                error
                < ball(Fraction(2.0**-30)) * 4 * (-2 * ball(1).pi() ** 2 * ball(variance)).exp()
            )


def test_theta_is_the_sum_over_shifted_integers() -> None:
    # Σ_x exp(-(x - c)²/2s²) over the same at c = 0, by the definition.
    x = np.arange(-60, 61)
    for c, s2 in itertools.product([0.0, 0.2, 0.5, -0.35], [0.07, 0.25, 1.0]):
        direct = np.exp(-((x - c) ** 2) / (2 * s2)).sum() / np.exp(-(x**2) / (2 * s2)).sum()
        with precision(64):
            assert float(
                rejection.theta_ratio(Fraction(repr(c)), Fraction(repr(s2)))
            ) == pytest.approx(direct, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    sigma2=st.fractions(min_value=2, max_value=10**9, max_denominator=50),
    seed=st.integers(0, 2**32),
)
def test_sums_are_zero_for_every_shape(rows, columns, sigma2, seed) -> None:
    table = LatticeGaussian(rows, columns, sigma2).sample(SeededRandomness(seed))
    assert table.shape == (rows, columns)
    assert not table.sum(axis=0).any()
    assert not table.sum(axis=1).any()
    one_sided = OneSidedLatticeGaussian(rows, columns, sigma2).sample(SeededRandomness(seed))
    assert one_sided.shape == (rows, columns)
    assert not one_sided.sum(axis=1).any()


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 300), run=st.integers(1, 400))
def test_splits_are_a_tree_whose_squares_add_up(size, run) -> None:
    tree = zero_sum(size, run)
    values = np.random.default_rng(size).integers(-9, 10, size)
    sums = np.zeros(tree.nodes, dtype=np.int64)
    sums[:size] = values
    for k in np.argsort(-tree.depth, kind="stable"):
        sums[tree.parent[k]] = sums[tree.left[k]] + sums[tree.right[k]]
    assert sums[-1] == values.sum()
    share = tree.share[0] / tree.share[1]
    squares = (sums[tree.left] - share * sums[tree.parent]) ** 2 / tree.weights
    assert squares.sum() + sums[-1] ** 2 / size == pytest.approx((values**2).sum())


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_the_stated_variance_is_the_true_one_and_95_percent_lie_within_the_half_width(
    sigma,
) -> None:
    exact = Enumerated(2, 3, float(sigma))
    for noise, law in (
        (LatticeGaussian(2, 3, sigma**2), exact),
        (OneSidedLatticeGaussian(1, 3, sigma**2), Enumerated(1, 3, float(sigma), one_sided=True)),
    ):
        true = float((law.probability * law.last.astype(float) ** 2).sum())
        assert true == pytest.approx(noise.variance, rel=1e-5)
        sizes = np.abs(law.last)
        assert float(law.probability[sizes <= lattice_half_width(noise)].sum()) >= 0.95 - 1e-6
        assert float(law.probability[sizes <= lattice_half_width(noise) - 1].sum()) < 0.95


def test_a_large_table_keeps_its_sums_and_its_variance() -> None:
    noise = LatticeGaussian(400, 300, Fraction(4))
    table = noise.sample(SystemRandomness())
    assert not table.sum(axis=0).any()
    assert not table.sum(axis=1).any()
    # 299 · 399 nearly normal squares: a standard error of √2/345 of the variance; five of them have
    # probability 6e-7.
    measured = (table.astype(float) ** 2).mean() / noise.variance
    assert abs(measured - 1) < 5 * math.sqrt(2) / 345
    assert abs(measured / 1.21 - 1) > 5 * math.sqrt(2) / 345


def test_one_row_of_many_columns_takes_few_steps() -> None:
    plan = lattice._plan(None, 100_000, Fraction(4))
    assert len(plan.steps) < 100
    row = OneSidedLatticeGaussian(1, 100_000, Fraction(4)).sample(SeededRandomness(27))
    assert row.sum() == 0
    assert (row.astype(float) ** 2).mean() == pytest.approx(4, rel=5 * math.sqrt(2e-5))


@pytest.mark.parametrize("kind", [LatticeGaussian, OneSidedLatticeGaussian])
def test_what_is_not_legal_or_not_feasible_is_refused(kind) -> None:
    with pytest.raises(Refused, match="at least 1/2"):
        kind(3, 3, Fraction(24, 100))
    with pytest.raises(Refused, match="larger sigma"):
        LatticeGaussian(300, 300, Fraction(1, 4))
    with pytest.raises(Refused, match="64 bits"):
        kind(1000, 1000, Fraction(4) ** 45)
    for shape in ((0, 3), (3, -1), (2.0, 2), (True, 2)):
        with pytest.raises(InputError, match="row"):
            kind(*shape, Fraction(1))
    with pytest.raises(InputError, match="sigma2 must be above 0"):
        kind(2, 2, Fraction(0))


def test_numbers_of_tables_are_checked_and_batches_join(monkeypatch) -> None:
    noise = LatticeGaussian(3, 3, Fraction(1))
    assert noise.sample_many(0, SeededRandomness(1)).shape == (0, 3, 3)
    with pytest.raises(InputError, match="number of tables"):
        noise.sample_many(-1, SeededRandomness(1))
    monkeypatch.setattr(lattice, "_VALUES", 200)
    tables = noise.sample_many(50, SeededRandomness(1))
    assert not tables.sum(axis=1).any()
    assert np.unique(tables.reshape(50, 9), axis=0).shape[0] > 20


def test_a_block_sum_that_does_not_fit_is_refused(monkeypatch) -> None:
    noise = LatticeGaussian(3, 3, Fraction(100))
    monkeypatch.setattr(lattice, "_largest", lambda rows, columns: 2)
    with pytest.raises(Refused, match="64 bits"):
        noise.sample(SeededRandomness(1))


def test_the_law_of_a_cell_is_that_of_all_tables() -> None:
    """Tables of small shapes listed one by one; the projected discrete Gaussian has another law."""
    checked = 0
    for rows, columns in ((2, 2), (2, 3), (3, 2), (3, 3)):
        for sigma2 in (Fraction(1, 4), Fraction(3, 8), Fraction(1)):
            noise, found = LatticeGaussian(rows, columns, sigma2), np.zeros(4)
            for free in itertools.product(range(-4, 5), repeat=(rows - 1) * (columns - 1)):
                table = np.zeros((rows, columns))
                table[:-1, :-1] = np.array(free).reshape(rows - 1, columns - 1)
                table[:-1, -1] = -table[:-1].sum(axis=1)
                table[-1] = -table[:-1].sum(axis=0)
                if abs(table[0, 0]) < 4:
                    found[int(abs(table[0, 0]))] += math.exp(
                        -float((table**2).sum()) / (2 * float(sigma2))
                    )
            found[1:] /= 2  # both signs were counted
            assert noise.cell_law is not None
            np.testing.assert_allclose(
                noise.cell_law[:4], found / (found[0] + 2 * found[1:].sum()), atol=1e-6
            )
            checked += 1
    assert checked == 12
    assert LatticeGaussian(8, 8, Fraction(1)).cell_law is None
    assert LatticeGaussian(8, 8, Fraction(1)).variance == pytest.approx(49 / 64)
    assert lattice_half_width(LatticeGaussian(1, 8, Fraction(1))) == 0


def test_the_law_of_a_cell_among_very_many_is_that_of_a_free_cell() -> None:
    sigma2, k = Fraction(2), np.arange(4)
    law = OneSidedLatticeGaussian(1, 150_000, sigma2).cell_law
    assert law is not None
    free = np.exp(-(np.arange(-40, 41) ** 2) / (2 * float(sigma2)))
    np.testing.assert_allclose(
        law[:4], np.exp(-(k**2) / (2 * float(sigma2))) / free.sum(), rtol=1e-4
    )
