"""Laws of canonical noise: the identity that defines it, closed forms, exact draws on a grid."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from semidp.errors import InputError, Refused
from semidp.promise.noise.canonical import (
    CanonicalNoise,
    Normal,
    Recursive,
    Tulap,
    canonical_noise,
    find_claimable_curve,
    polygon_above,
)
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.promise.tradeoff.budget import Budget, approximate, gaussian, laplace, zcdp
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import PiecewiseLinear, piecewise

CURVES: dict[str, Tradeoff] = {
    "pure": approximate(1),
    "approximate": approximate("0.5", "0.01"),
    "delta only": approximate(0, "0.1"),
    "gaussian": gaussian(1),
    "grouped pure": approximate("0.5").group(3),
    "grouped approximate": approximate("0.3", "0.001").group(2),
    "composed": approximate("0.4").compose(gaussian("0.6")),
    "composed and grouped": approximate("0.2").compose(approximate("0.3", "1e-6")).group(2),
    "zcdp": zcdp("0.3"),
    "laplace": laplace(1),
    "polygon": piecewise(["0", "0.2", "0.7", "1"], ["0", "0", "0.3", "0.8"]),
    "not symmetric": piecewise(["0", "0.5", "1"], ["0", "0.1", "1"]),
}
curves = pytest.mark.parametrize("f", CURVES.values(), ids=CURVES.keys())


@pytest.mark.few(6)
@curves
def test_a_step_of_one_applies_the_curve(f: Tradeoff) -> None:
    noise, claimed = canonical_noise(f), find_claimable_curve(f).symmetric()
    x = np.linspace(-9, 9, 1801)
    # where delta > 0 cuts the noise off, f(1) = 1 - delta is a lower value still
    inside = noise.cdf(x) < 1
    np.testing.assert_allclose(noise.cdf(x - 1)[inside], claimed(noise.cdf(x)[inside]), atol=3e-11)
    np.testing.assert_allclose(noise.cdf(x) + noise.cdf(-x), 1, atol=1e-15)
    assert np.all(np.diff(noise.cdf(x)) >= -1e-15)


@pytest.mark.few(8)
@curves
@pytest.mark.parametrize("shift", [0.0, 0.13, 0.5, 0.77, 1.0])
def test_every_smaller_shift_is_at_least_as_private(f: Tradeoff, shift: float) -> None:
    """T(F, F(· - m)) >= f for m in [0, 1]; F need not be log-concave, so all densities ratios are
    compared.
    """
    noise, claimed = canonical_noise(f), find_claimable_curve(f)
    edges = np.union1d(np.linspace(-40, 40, 4001), np.linspace(-40, 40, 4001) - shift)
    null, other = np.diff(noise.cdf(edges)), np.diff(noise.cdf(edges - shift))
    # acceptance region first
    order = np.argsort(np.where(null > 0, other / np.where(null > 0, null, 1), np.inf))
    alpha, beta = np.cumsum(null[order]), np.cumsum(other[order])
    assert np.all(beta >= claimed(np.clip(alpha, 0, 1)) - 1e-9)


@curves
def test_the_quantile_inverts_the_cdf(f: Tradeoff) -> None:
    noise = canonical_noise(f, sensitivity=2)
    w = np.concatenate(
        [np.geomspace(1e-9, 0.4, 60), np.linspace(0.4, 0.6, 21), 1 - np.geomspace(1e-9, 0.4, 60)]
    )
    np.testing.assert_allclose(noise.cdf(noise.quantile(w)), w, rtol=1e-7, atol=1e-13)


@pytest.mark.few(12)
@curves
@pytest.mark.parametrize("sensitivity", [1, 2, 3])
def test_a_lattice_is_the_cdf_on_it(f: Tradeoff, sensitivity: int) -> None:
    noise = canonical_noise(f, sensitivity)
    start = np.array([-31.37, -3.5, 0.25, 2.0, 40.1])
    expected = noise.cdf(start[:, None] + np.arange(41))
    np.testing.assert_allclose(noise.lattice(start, 41), expected, rtol=1e-9, atol=1e-15)


@given(st.integers(1, 4000), st.integers(0, 900))
@settings(max_examples=60, deadline=None)
def test_tulap_is_what_the_recursion_gives(milli_epsilon: int, milli_delta: int) -> None:
    f = approximate(Fraction(milli_epsilon, 1000), Fraction(milli_delta, 1000))
    polygon = polygon_above(f)
    x = np.linspace(-12, 12, 481)
    recursive = (
        Recursive(polygon.alphas, polygon.values)
        if 2 * milli_epsilon + milli_delta > 3
        else canonical_noise(f)
    )
    np.testing.assert_allclose(canonical_noise(f).cdf(x), recursive.cdf(x), atol=1e-13)


@pytest.mark.parametrize(
    "f", [zcdp("0.3"), laplace(1), gaussian(1), approximate(1).compose(gaussian("0.5"))]
)
def test_chords_lie_just_above_the_curve(f: Tradeoff) -> None:
    polygon = polygon_above(f)
    alpha = np.linspace(0.0005, 0.9995, 5000)
    gap = np.asarray(polygon(alpha)) - np.asarray(f(alpha))
    assert polygon.is_symmetric
    assert gap.min() >= -1e-15
    # the other half is its mirror image, where the curve is steep
    assert gap[alpha < 0.5].max() < 2e-5


def test_a_normal_is_met_by_its_chords_too() -> None:
    polygon = polygon_above(gaussian(1))
    x = np.array([-0.5, -1.5, -2.5])  # all canonical noises of one f agree at half-integers
    chords = Recursive(polygon.alphas, polygon.values)
    np.testing.assert_allclose(chords.cdf(x), canonical_noise(gaussian(1)).cdf(x), atol=2e-5)


def test_what_is_claimed_follows_from_the_noise() -> None:
    assert find_claimable_curve(Budget.zcdp("0.5")) == gaussian(1)
    assert find_claimable_curve(Budget.pure(1)) == approximate(1)
    assert isinstance(
        find_claimable_curve(zcdp(1)), PiecewiseLinear
    )  # its curve does not imply zCDP back
    assert isinstance(find_claimable_curve(approximate(1).compose(gaussian(1))), PiecewiseLinear)


def test_perfect_privacy_and_what_comes_too_near_are_refused() -> None:
    with pytest.raises(Refused, match="infinite noise"):
        canonical_noise(gaussian(0))
    with pytest.raises(Refused, match="closed form"):
        canonical_noise(zcdp("1e-12"))
    with pytest.raises(InputError, match="sensitivity"):
        Tulap(Fraction(1), sensitivity=0)
    with pytest.raises(InputError, match="variance"):
        Normal(Fraction(0))


@pytest.mark.parametrize("epsilon", ["1e-9", "1e-4", "50", "700"])
def test_extreme_parameters_stay_finite(epsilon: str) -> None:
    noise = canonical_noise(approximate(epsilon))
    w = np.array([1e-12, 0.3, 0.5, 0.99])
    np.testing.assert_allclose(noise.cdf(noise.quantile(w)), w, rtol=1e-6, atol=1e-15)
    assert isinstance(noise.grid_steps(20, SeededRandomness(1)), int)


# Exact draws on the grid. Each statistical test has a false-alarm rate of 1e-6; its twin must
# reject a wrong scale.

GRID = {
    "tulap": Tulap(Fraction(1, 2)),
    "tulap with delta": Tulap(Fraction(1, 2), Fraction(1, 20)),
    "normal": Normal(Fraction(4)),
    "normal, sensitivity 3": Normal(Fraction(1, 2), sensitivity=3),
    "recursive": canonical_noise(approximate("0.4").group(2)),
    "recursive chords": canonical_noise(zcdp("0.3")),
}
DRAWS, BITS, FALSE_ALARM = 4000, 2, 1e-6


def chi_square_p(steps: np.ndarray, noise: CanonicalNoise) -> float:
    """The p-value of Pearson's test that `steps` are round(noise · 4), in cells of at least twenty
    expected draws.
    """
    edges = np.unique(np.rint(noise.quantile(np.linspace(0.02, 0.98, 25)) * 2**BITS)) + 0.5
    probability = np.diff(np.concatenate([[0.0], noise.cdf(edges / 2**BITS), [1.0]]))
    observed = np.bincount(np.searchsorted(edges, steps), minlength=len(probability))
    expected = probability * len(steps)
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(probability) - 1))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", GRID)
def test_grid_draws_have_the_rounded_distribution(name: str) -> None:
    noise, source = GRID[name], SeededRandomness(20)
    steps = np.array([noise.grid_steps(BITS, source) for _ in range(DRAWS)])
    assert chi_square_p(steps, noise) > FALSE_ALARM


@pytest.mark.parametrize("factor", [Fraction(7, 10), Fraction(13, 10)])
def test_the_same_test_rejects_a_wrong_scale(factor: Fraction) -> None:
    source = SeededRandomness(21)
    wrong = {"tulap": Tulap(Fraction(1, 2) / factor), "normal": Normal(Fraction(4) * factor**2)}
    for name, noise in wrong.items():
        steps = np.array([noise.grid_steps(BITS, source) for _ in range(DRAWS)])
        assert chi_square_p(steps, GRID[name]) < FALSE_ALARM


class Scripted:
    """Words that a test writes down, then words from a seed."""

    secure = False

    def __init__(self, *words: int) -> None:
        self.script: Iterator[int] = iter(words)
        self.rest = SeededRandomness(5)

    def words(self, count: int) -> np.ndarray:
        return np.array(
            [next(self.script, None) or int(self.rest.words(1)[0]) for _ in range(count)],
            dtype=np.uint64,
        )


@pytest.mark.parametrize("name", GRID)
def test_more_bits_are_drawn_where_the_first_do_not_decide(name: str) -> None:
    """The first word is F(1/8) to 64 bits, where 1/8 is the edge between the grid points 0 and
    1/4.
    """
    import mpmath

    noise = GRID[name]
    with mpmath.workdps(60):
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        edge = Fraction(1, 8 * noise.sensitivity)
        from semidp.promise.ball_arithmetic import ball, precision

        with precision(256):  # bisect for F(edge) with the ball quantile
            for _ in range(140):
                middle = (low + high) / 2
                w = Fraction(int(middle * 2**150), 2**150)
                if w <= Fraction(1, 2):
                    low = middle
                    continue
                quantile = noise._ball_quantile(ball(1 - w))
                low, high = (
                    (middle, high)
                    if quantile is not None and -quantile < ball(edge)
                    else (low, middle)
                )
        target = int(mpmath.floor(low * mpmath.mpf(2) ** 128))
    for moved, step in ((target - 2**20, 0), (target + 2**20, 1)):
        assert noise.grid_steps(BITS, Scripted(moved >> 64, moved & (2**64 - 1))) == step


@pytest.mark.parametrize("name", GRID)
def test_words_of_ones_only_ask_for_more(name: str) -> None:
    step = GRID[name].grid_steps(BITS, Scripted(2**64 - 1, 2**64 - 1))
    assert step >= np.floor(2**BITS * GRID[name].quantile(1 - 1e-9))


def test_the_operating_system_serves_too() -> None:
    assert isinstance(GRID["tulap"].grid_steps(32, SystemRandomness()), int)


def test_real_valued_draws_follow_the_cdf() -> None:
    for noise in GRID.values():
        x = noise.sample(20_000, SeededRandomness(3))
        assert math.isclose(np.mean(x <= noise.quantile(0.2)), 0.2, abs_tol=0.02)
        assert math.isclose(x.std(), noise.standard_deviation, rel_tol=0.1)


def test_without_privacy_the_noise_is_uniform() -> None:
    assert Recursive.none().cdf([-0.75, -0.25, 0.5]).tolist() == [0.0, 0.25, 1.0]
    assert [Recursive.none().grid_steps(0, SeededRandomness(i)) for i in range(5)] == [0] * 5
