"""What the paper proves about its test, checked on every small table; accuracy and coverage
beyond.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from attrs import evolve
from scipy.optimize import linprog
from scipy.stats import kstest

from semidp.errors import InputError, Refused
from semidp.promise.noise.canonical import CanonicalNoise, Normal, Tulap, canonical_noise
from semidp.promise.noise.randomness import SeededRandomness, generator
from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.statistics.odds_ratio.umpu import (
    Alternative,
    IntegerLaw,
    TwoByTwo,
    UmpuTest,
    _exceedance,
)

GREATER, LESS, TWO_SIDED = Alternative.GREATER, Alternative.LESS, Alternative.TWO_SIDED
CURVES: dict[str, Tradeoff] = {
    "pure": approximate(1),
    "approximate": approximate("0.5", "0.02"),
    "gaussian": gaussian(1),
    "grouped": approximate("0.5").group(2),
    "zcdp curve": zcdp("0.5"),
}
NOISES: dict[str, CanonicalNoise] = {name: canonical_noise(f) for name, f in CURVES.items()}
every_noise = pytest.mark.parametrize("name", NOISES)


def small_margins(most: int = 12) -> Iterator[TwoByTwo]:
    """All margins with n <= most that leave more than one table."""
    for n in range(2, most + 1):
        for row, column in itertools.product(range(1, n), repeat=2):
            yield TwoByTwo(row, column, n)


@pytest.mark.few(1)
@every_noise
def test_given_the_table_the_test_rejects_with_probability_f_of_x11_minus_m(name: str) -> None:
    """P(p <= alpha | X), added up over all grid points U can take, is F(x11 - m(t)): all tables
    with n <= 12.
    """
    noise, alpha, width = NOISES[name], 0.07, 2.0**-4
    reach = math.ceil(-float(noise.quantile(1e-13))) + 1
    steps = np.arange(-reach / width, reach / width + 1) * width
    mass = noise.cdf(steps + width / 2) - noise.cdf(steps - width / 2)
    for margins in small_margins():
        test = UmpuTest(margins, noise, grid=width)
        x = np.arange(margins.low, margins.high + 1)
        u = np.arange((margins.low - reach) / width, (margins.high + reach) / width + 1) * width
        rejected = test.p_value(u) <= alpha
        shift = ((x - margins.low) / width).astype(int)
        found = [mass @ rejected[start : start + len(steps)] for start in shift]
        np.testing.assert_allclose(found, test.rejection(x, alpha), atol=1e-11)
        fine = UmpuTest(margins, noise).rejection(x, alpha)
        assert np.all((fine - found > -1e-11) & (fine - found < width * 0.8))


@pytest.mark.few(1)
@every_noise
def test_the_size_is_alpha_for_every_margin(name: str) -> None:
    for margins in small_margins():
        test = UmpuTest(margins, NOISES[name])
        for alpha, alternative in ((0.05, GREATER), (0.3, LESS)):
            assert math.isclose(test.power(1.0, alpha, alternative), alpha, rel_tol=1e-9)


@pytest.mark.few(1)
@every_noise
def test_one_sided_tests_are_unbiased(name: str) -> None:
    for margins in small_margins(8):
        test = UmpuTest(margins, NOISES[name])
        powers = [test.power(w, 0.05) for w in (0.1, 0.5, 1.0, 1.7, 6.0)]
        assert np.all(np.diff(powers) > -1e-12)
        assert powers[1] <= 0.05 + 1e-12 <= powers[3] + 2e-12
        mirrored = [test.power(w, 0.05, LESS) for w in (0.1, 0.5, 1.0, 1.7, 6.0)]
        assert np.all(np.diff(mirrored) < 1e-12)


def best_semi_private_power(
    margins: TwoByTwo, epsilon: float, delta: float, alpha: float, odds_ratio: float
) -> float:
    """The most power of any test of size alpha with φ(x) <= e^ε φ(x') + δ and the same for 1 - φ: a
    linear program.
    """
    size = margins.high - margins.low + 1
    grow = math.exp(epsilon)
    rows, limits = [], []
    for i, j in [(i, i + 1) for i in range(size - 1)] + [(i + 1, i) for i in range(size - 1)]:
        accept, reject = np.zeros(size), np.zeros(size)
        reject[i], reject[j] = 1, -grow
        accept[i], accept[j] = grow, -1  # 1 - φ(j) <= e^ε (1 - φ(i)) + δ
        rows += [reject, accept]
        limits += [delta, delta + grow - 1]
    objective = -margins.law(odds_ratio).pmf
    null = margins.law().pmf[None]
    found = linprog(
        objective, A_ub=rows, b_ub=limits, A_eq=null, b_eq=[alpha], bounds=(0, 1), method="highs"
    )
    assert found.status == 0
    return float(-found.fun)


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0"), ("0.3", "0.05"), ("2", "0.001")])
def test_no_semi_private_test_has_more_power(epsilon: str, delta: str) -> None:
    noise = canonical_noise(approximate(epsilon, delta))
    for n, row, column in [(4, 2, 2), (7, 3, 4), (9, 4, 3), (12, 6, 6), (12, 5, 7), (20, 9, 12)]:
        margins = TwoByTwo(row, column, n)
        for alpha, odds_ratio in itertools.product((0.01, 0.05, 0.2), (1.5, 4.0)):
            best = best_semi_private_power(margins, float(epsilon), float(delta), alpha, odds_ratio)
            assert UmpuTest(margins, noise).power(odds_ratio, alpha) == pytest.approx(
                best, abs=1e-7
            )


def worst_gap(
    test: UmpuTest, f: Tradeoff, alpha: float, moves: int, alternative: Alternative = GREATER
) -> float:
    """The largest excess of φ(x) over 1 - f(1 - φ(x')) among tables whose x11 differ by at most
    `moves`.
    """
    phi = test.rejection(np.arange(test.margins.low, test.margins.high + 1), alpha, alternative)
    gaps = [0.0]
    for step in range(1, min(moves, len(phi) - 1) + 1):
        for one, other in ((phi[step:], phi[:-step]), (phi[:-step], phi[step:])):
            gaps.append(float(np.max(one - (1 - f(1 - other)))))
    return max(gaps)


@pytest.mark.few(1)
@every_noise
def test_the_test_satisfies_f_on_every_adjacent_pair(name: str) -> None:
    for margins in small_margins():
        test = UmpuTest(margins, NOISES[name])
        for alpha, alternative in ((0.05, GREATER), (0.4, LESS)):
            assert worst_gap(test, CURVES[name], alpha, 1, alternative) < 1e-12


@pytest.mark.few(1)
@every_noise
@pytest.mark.parametrize("moves", [2, 3])
def test_stretched_noise_satisfies_f_where_x11_moves_further(name: str, moves: int) -> None:
    noise = canonical_noise(CURVES[name], sensitivity=moves)
    for margins in small_margins(10):
        assert worst_gap(UmpuTest(margins, noise), CURVES[name], 0.1, moves) < 1e-12


def test_that_check_convicts_noise_that_was_not_stretched() -> None:
    assert worst_gap(UmpuTest(TwoByTwo(5, 5, 10), NOISES["pure"]), CURVES["pure"], 0.1, 2) > 0.01


# Uniform p-values by simulation: fifty margins, false-alarm rate 1e-6 for all of them together.

MARGINS, DRAWS, FALSE_ALARM = 50, 4000, 1e-6


def null_p_values(stretch: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    source = generator(SeededRandomness(11))
    kinds = list(NOISES.values())
    for i in range(MARGINS):
        n = int(source.integers(4, 1000))
        margins = TwoByTwo(int(source.integers(1, n)), int(source.integers(1, n)), n)
        noise = kinds[i % 3] if i % 10 else kinds[3 + (i // 10) % 2]
        x = source.hypergeometric(margins.row, n - margins.row, margins.column, size=DRAWS)
        u = x + stretch * noise.sample(DRAWS, SeededRandomness(1000 + i))
        test = UmpuTest(margins, noise)
        yield test.p_value(u), test.p_value(u[::10], TWO_SIDED)


def test_p_values_are_uniform_under_the_null() -> None:
    for one_sided, two_sided in null_p_values(stretch=1.0):
        assert kstest(one_sided, "uniform").pvalue > FALSE_ALARM / (2 * MARGINS)
        assert kstest(two_sided, "uniform").pvalue > FALSE_ALARM / (2 * MARGINS)


@pytest.mark.long
def test_the_same_check_rejects_noise_of_the_wrong_scale() -> None:
    for stretch in (0.7, 1.3):
        worst = min(kstest(one_sided, "uniform").pvalue for one_sided, _ in null_p_values(stretch))
        assert worst < FALSE_ALARM / (2 * MARGINS)


# Intervals


@pytest.mark.few(3)
@pytest.mark.parametrize("odds_ratio", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("n", [20, 200, 2000])
def test_intervals_cover_at_their_level(n: int, odds_ratio: float) -> None:
    """An interval covers ω where the two-sided test at ω does not reject; 94% and 96.5% are over 6σ
    away.
    """
    margins = TwoByTwo(n // 2, 2 * n // 5, n)
    source = generator(SeededRandomness(7))
    law = margins.law(odds_ratio)
    for noise in (Tulap(Fraction(1)), Tulap(Fraction(1, 4))):
        test = UmpuTest(margins, noise)
        u = source.choice(law.values, 20_000, p=law.pmf) + noise.sample(20_000, SeededRandomness(8))
        covered = test.p_value(u, TWO_SIDED, odds_ratio) > 0.05
        assert 0.94 < covered.mean() < 0.965
        for i in range(6):
            interval = test.confidence_interval(float(u[i]))
            assert (odds_ratio in interval) == covered[i]


def test_empty_intervals_are_misses_and_are_flagged() -> None:
    test = UmpuTest(TwoByTwo(10, 8, 20), Tulap(Fraction(1, 4)))
    source = generator(SeededRandomness(9))
    law = test.margins.law(50.0)
    u = source.choice(law.values, 80, p=law.pmf) + test.noise.sample(80, SeededRandomness(10))
    intervals = [test.confidence_interval(float(value)) for value in u]
    empty = [interval for interval in intervals if interval.empty]
    assert empty
    assert all(
        50.0 not in interval and interval.low == interval.high in (0.0, math.inf)
        for interval in empty
    )
    assert 0.85 < np.mean([50.0 in interval for interval in intervals]) < 1


def test_ends_of_an_interval_are_where_the_test_begins_to_reject() -> None:
    test = UmpuTest(TwoByTwo(60, 50, 120), Normal(Fraction(4)), grid=2.0**-10)
    interval = test.confidence_interval(30.0, level=0.9)
    assert math.isclose(test.p_value(30.0, TWO_SIDED, interval.low), 0.1, rel_tol=1e-9)
    assert math.isclose(test.p_value(30.0, TWO_SIDED, interval.high), 0.1, rel_tol=1e-9)
    lower, upper = (test.confidence_interval(30.0, 0.95, side) for side in (GREATER, LESS))
    assert math.isclose(test.p_value(30.0, GREATER, lower.low), 0.05, rel_tol=1e-9)
    assert math.isclose(test.p_value(30.0, LESS, upper.high), 0.05, rel_tol=1e-9)
    assert (lower.high, upper.low) == (math.inf, 0.0)


def test_an_end_may_be_zero_or_infinite() -> None:
    test = UmpuTest(TwoByTwo(10, 10, 20), Tulap(Fraction(1)))
    assert test.confidence_interval(0.0).low == 0.0
    assert test.confidence_interval(10.0).high == math.inf
    assert test.confidence_interval(-60.0) == test.confidence_interval(-1e9)
    assert test.confidence_interval(-60.0).high == 0.0


# Accuracy, and how much is computed


def reference(margins: TwoByTwo, noise: CanonicalNoise, u: float) -> mpmath.mpf:
    """The p-value with fifty digits."""

    def tulap(x: mpmath.mpf) -> mpmath.mpf:
        assert isinstance(noise, Tulap)
        epsilon = mpmath.mpf(noise.epsilon.numerator) / noise.epsilon.denominator
        b, y = mpmath.exp(-epsilon), -abs(x)
        r = mpmath.nint(y)
        low = mpmath.exp(epsilon * r) / (1 + b) * (b + (y - r + mpmath.mpf(1) / 2) * (1 - b))
        return low if x <= 0 else 1 - low

    def normal(x: mpmath.mpf) -> mpmath.mpf:
        assert isinstance(noise, Normal)
        return mpmath.ncdf(
            x / mpmath.sqrt(mpmath.mpf(noise.variance.numerator) / noise.variance.denominator)
        )

    cdf = tulap if isinstance(noise, Tulap) else normal
    with mpmath.workdps(50):
        law = margins.law()
        mode = law.first + int(law.pmf.argmax())
        low, high = (mode, mode) if len(law.pmf) > 10_000 else (law.first, law.last)
        if low == high:  # far beyond what a p-value of 1e-30 can feel
            low, high = mode - 6000, mode + 6000
        weights = [mpmath.mpf(1)]
        for x in range(low, high):
            top = (margins.row - x) * (margins.column - x)
            weights.append(
                weights[-1] * top / ((x + 1) * (margins.n - margins.row - margins.column + x + 1))
            )
        terms = (
            weight * cdf(mpmath.mpf(low + i) - mpmath.mpf(u)) for i, weight in enumerate(weights)
        )
        return mpmath.fsum(terms) / mpmath.fsum(weights)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "noise", [Tulap(Fraction(1)), Tulap(Fraction(1, 5)), Normal(Fraction(1)), Normal(Fraction(25))]
)
@pytest.mark.parametrize(("row", "column", "n"), [(40, 50, 100), (1000, 1300, 3000)])
def test_p_values_keep_nine_digits_down_to_1e_30(
    noise: CanonicalNoise, row: int, column: int, n: int
) -> None:
    test = UmpuTest(TwoByTwo(row, column, n), noise)
    for target in (0.99, 0.2, 1e-5, 1e-15, 1e-30):
        u = round(test.threshold(target) * 1024) / 1024
        exact = reference(test.margins, noise, u)
        for found in (test.p_value(u), test.p_value(np.full(50, u))[0]):  # one by one, and by knots
            assert abs(mpmath.mpf(float(found)) / exact - 1) < 1e-9
        assert abs(float(test.p_value(u, LESS)) - float(1 - exact)) < 1e-14


@pytest.mark.long
def test_a_million_records_keep_nine_digits() -> None:
    margins = TwoByTwo(500_000, 500_000, 1_000_000)
    for noise in (Tulap(Fraction(1, 10)), Normal(Fraction(100))):
        u = 250_000 + 11.0 * 250
        exact = reference(margins, noise, u)
        assert exact < 1e-20
        assert abs(mpmath.mpf(float(UmpuTest(margins, noise).p_value(u))) / exact - 1) < 1e-9


def test_a_p_value_for_a_million_records_reads_few_of_the_possible_counts() -> None:
    """400,001 counts are possible; those under 1e-300 are left out."""
    margins = TwoByTwo(500_000, 400_000, 1_000_000)
    assert margins.high - margins.low == 400_000
    assert len(margins.law().pmf) < 25_000


@every_noise
def test_counts_farther_off_than_the_noise_reaches_are_added_up_without_it(name: str) -> None:
    """A p-value reads F only within `reach`, and is the sum over all counts; a reach too short is
    found out.
    """
    law, noise = TwoByTwo(50_000, 40_000, 100_000).law(), NOISES[name]
    u = law.mean + np.array([-3000.0, -400.0, 0.3, 500.0, 2500.0])
    whole = np.minimum(noise.lattice(law.first - u, len(law.pmf)) @ law.pmf, 1.0)
    assert noise.cdf(-noise.reach) < 1e-320
    assert 2 * noise.reach < len(law.pmf)
    np.testing.assert_allclose(
        [_exceedance(law, noise, np.array([one]))[0] for one in u], whole, rtol=1e-12
    )
    np.testing.assert_allclose(_exceedance(law, noise, u), whole, rtol=1e-12)
    far = IntegerLaw(0, np.ones(1))
    beyond = np.array([0.7 * noise.reach])
    assert (
        _exceedance(far, noise, beyond) == pytest.approx(noise.cdf(-beyond), rel=1e-12, abs=0) != 0
    )
    object.__setattr__(noise := evolve(noise), "reach", noise.reach / 4)
    assert _exceedance(far, noise, beyond) == 0


def test_many_p_values_are_read_off_the_knots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them take two passes over the law, not one each; they agree with single ones."""
    test = UmpuTest(TwoByTwo(500_000, 400_000, 1_000_000), Tulap(Fraction(7, 10)))
    u = 200_000 + 300 * np.linspace(-4, 4, 1_000_000)
    single = test.p_value(u[::50_000])

    def never(*arguments: object) -> None:
        raise AssertionError("every statistic was laid beside every count")

    monkeypatch.setattr(Tulap, "lattice", never)
    np.testing.assert_allclose(single, test.p_value(u)[::50_000], rtol=1e-11)


# What is refused


@pytest.mark.parametrize(
    "margins", [TwoByTwo(0, 5, 10), TwoByTwo(10, 5, 10), TwoByTwo(3, 0, 9), TwoByTwo(0, 0, 0)]
)
def test_margins_that_leave_one_table_are_refused(margins: TwoByTwo) -> None:
    with pytest.raises(Refused, match="only one 2×2 table"):
        UmpuTest(margins, NOISES["pure"])


def test_illegal_levels_and_alternatives_are_refused() -> None:
    test = UmpuTest(TwoByTwo(5, 5, 10), NOISES["pure"])
    for level in (0.0, 1.0, 5.0, math.nan):
        with pytest.raises(InputError, match="between 0 and 1"):
            test.threshold(level)
        with pytest.raises(InputError, match="between 0 and 1"):
            test.confidence_interval(3.0, level)
    with pytest.raises(InputError, match="two thresholds"):
        test.threshold(0.05, TWO_SIDED)
    with pytest.raises(InputError, match="greater, less, two-sided"):
        test.p_value(3.0, "bigger")  # type: ignore[arg-type]
