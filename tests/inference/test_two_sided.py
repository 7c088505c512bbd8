"""The unbiased two-sided test: its pairs of thresholds, its power, its intervals, and the best test
at one level.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from semidp.promise.noise.canonical import CanonicalNoise, Normal, Tulap, canonical_noise
from semidp.promise.tradeoff.budget import approximate, zcdp
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Strata, TwoByTwo, UmpuTest

TWO_SIDED = Alternative.TWO_SIDED
NOISES: dict[str, CanonicalNoise] = {
    "pure": Tulap(Fraction(1)),
    "approximate": Tulap(Fraction(1, 2), Fraction(1, 50)),
    "normal": Normal(Fraction(4)),
    "stretched normal": Normal(Fraction(1), sensitivity=2),
    "zcdp curve": canonical_noise(zcdp("0.5")),
}
MARGINS = (
    TwoByTwo(1, 3, 9),
    TwoByTwo(2, 5, 8),
    TwoByTwo(3, 20, 60),
    TwoByTwo(40, 90, 100),
    Strata((TwoByTwo(2, 2, 4), TwoByTwo(1, 7, 9))),
)
every_noise = pytest.mark.parametrize("name", NOISES)


@pytest.mark.few(1)
@every_noise
@pytest.mark.parametrize("margins", MARGINS)
def test_the_size_is_alpha_and_the_power_has_its_minimum_there(
    name: str, margins: TwoByTwo | Strata
) -> None:
    test = UmpuTest(margins, NOISES[name])
    for alpha in (0.01, 0.2):
        powers = [test.power(w, alpha, TWO_SIDED) for w in (0.1, 0.6, 0.95, 1.0, 1.05, 1.5, 9.0)]
        assert math.isclose(powers[3], alpha, rel_tol=1e-9)
        assert np.all(np.diff(powers[:4]) <= 1e-12)
        assert np.all(np.diff(powers[3:]) >= -1e-12)


def test_two_equal_tails_are_biased() -> None:
    """What the library did before: margins far from symmetric have odds ratios that it finds less
    often than 1.
    """
    test = UmpuTest(TwoByTwo(3, 20, 60), Tulap(Fraction(1)))
    low, high = test.threshold(0.1, Alternative.LESS), test.threshold(0.1)

    def tails(odds: float) -> float:
        law = test.margins.law(odds)
        return float(
            law.pmf @ (test.noise.cdf(law.values - high) + test.noise.cdf(low - law.values))
        )

    assert math.isclose(tails(1.0), 0.2, rel_tol=1e-9)
    assert min(tails(w) for w in (0.9, 0.95, 1.05, 1.1)) < 0.2 - 1e-5


@pytest.mark.few(2)
@every_noise
def test_the_p_value_is_the_level_at_which_u_is_a_threshold(name: str) -> None:
    for margins in MARGINS[1:]:
        test = UmpuTest(margins, NOISES[name])
        for alpha in (0.001, 0.05, 0.5):
            ends = test.thresholds(alpha)
            np.testing.assert_allclose(test.p_value(np.array(ends), TWO_SIDED), alpha, rtol=1e-8)


def test_thresholds_are_nested_and_p_values_fall_on_both_sides() -> None:
    test = UmpuTest(MARGINS[2], NOISES["pure"])
    ends = np.array([test.thresholds(alpha) for alpha in (0.01, 0.05, 0.2, 0.6)])
    assert np.all(np.diff(ends[:, 0]) > 0)
    assert np.all(np.diff(ends[:, 1]) < 0)
    u = np.linspace(-8, 12, 101)
    p = test.p_value(u, TWO_SIDED)
    top = int(p.argmax())
    assert np.all(np.diff(p[: top + 1]) > 0)
    assert np.all(np.diff(p[top:]) < 0)


def test_a_grid_only_makes_p_values_larger() -> None:
    """The published point stands for all values that round to it: no p-value is below that of any
    of them.
    """
    fine, coarse = (UmpuTest(TwoByTwo(3, 20, 60), Tulap(Fraction(1)), grid) for grid in (0.0, 0.25))
    for u in np.arange(-12, 20) * 0.25:
        inside = np.linspace(u - 0.125, u + 0.125, 9)
        largest = fine.p_value(inside, TWO_SIDED).max()
        assert coarse.p_value(u, TWO_SIDED) >= largest - 1e-12
    low, high = coarse.thresholds(0.1)
    u = np.arange(-60, 80) * 0.25
    rejected = coarse.p_value(u, TWO_SIDED) <= 0.1
    np.testing.assert_array_equal(rejected, (u - 0.125 >= high - 1e-9) | (u + 0.125 <= low + 1e-9))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("margins", "name"),
    [
        (TwoByTwo(3, 20, 60), "pure"),
        (TwoByTwo(30, 25, 60), "pure"),
        (MARGINS[4], "pure"),
        (MARGINS[1], "zcdp curve"),
    ],
)
def test_the_interval_holds_the_odds_ratios_that_are_not_rejected(
    margins: TwoByTwo | Strata, name: str
) -> None:
    test = UmpuTest(margins, NOISES[name], grid=2.0**-20)
    for u in (
        margins.low - 2.0,
        margins.low + 0.25,
        (margins.low + margins.high) / 2,
        margins.high + 1.5,
    ):
        interval = test.confidence_interval(u, 0.8)
        for odds in np.exp(np.linspace(-6, 6, 25)):
            assert (odds in interval) == (test.p_value(u, TWO_SIDED, float(odds)) > 0.2)


def test_the_interval_of_a_million_records_takes_few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are as long as the interval, not as the range of odds ratios; both ends have the
    p-value 0.05.
    """
    test, laws, law_at = (
        UmpuTest(TwoByTwo(500_000, 400_000, 1_000_000), NOISES["pure"]),
        [],
        TwoByTwo.law_for_log_odds,
    )
    monkeypatch.setattr(
        TwoByTwo, "law_for_log_odds", lambda self, theta: laws.append(theta) or law_at(self, theta)
    )
    interval = test.confidence_interval(200_010.3)
    assert len(laws) < 8  # others are tilts of these
    for end in (interval.low, interval.high):
        assert test.p_value(200_010.3, TWO_SIDED, end) == pytest.approx(0.05, rel=1e-9)


def test_an_interval_is_empty_exactly_where_every_odds_ratio_is_rejected() -> None:
    test = UmpuTest(TwoByTwo(10, 8, 20), Tulap(Fraction(1)))
    inside, edge = 8.0, 20.0
    while edge - inside > 0.005:
        middle = (inside + edge) / 2
        inside, edge = (
            (inside, middle) if test.confidence_interval(middle).empty else (middle, edge)
        )
    far = [test.p_value(edge, TWO_SIDED, math.exp(theta)) for theta in (5.0, 20.0, 300.0)]
    assert max(far) <= 0.05
    assert test.p_value(edge - 0.01, TWO_SIDED, math.exp(300.0)) > 0.05


def best_unbiased(margins: TwoByTwo, epsilon: float, alpha: float, odds_ratio: float) -> float:
    """The most power of any pure test with size alpha whose power has slope 0 at ω = 1: a linear
    program.
    """
    law, grow = margins.law(), math.exp(epsilon)
    size = len(law.pmf)
    rows, limits = [], []
    for i, j in [(i, i + 1) for i in range(size - 1)] + [(i + 1, i) for i in range(size - 1)]:
        accept, reject = np.zeros(size), np.zeros(size)
        reject[i], reject[j] = 1, -grow
        accept[i], accept[j] = grow, -1
        rows += [reject, accept]
        limits += [0.0, grow - 1]
    equal = np.stack([law.pmf, law.pmf * (law.values - law.mean)])
    found = linprog(
        -margins.law(odds_ratio).pmf,
        A_ub=rows,
        b_ub=limits,
        A_eq=equal,
        b_eq=[alpha, 0.0],
        bounds=(0, 1),
    )
    return float(-found.fun)


def test_no_unbiased_semi_private_test_has_more_power_than_the_best() -> None:
    for margins, epsilon, alpha, odds in itertools.product(
        (TwoByTwo(2, 2, 4), TwoByTwo(3, 8, 20), TwoByTwo(10, 8, 20)),
        (0.5, 2.0),
        (0.05, 0.3),
        (0.3, 3.0),
    ):
        plain = UmpuTest(margins, Tulap(Fraction(epsilon)))
        best = plain.two_sided(alpha)
        assert best.power(1.0) == pytest.approx(alpha)
        assert best.power(odds) == pytest.approx(
            best_unbiased(margins, epsilon, alpha, odds), abs=1e-7
        )
        assert best.power(odds) >= plain.power(odds, alpha, TWO_SIDED) - 1e-9


def test_both_two_sided_tests_satisfy_f_on_neighbouring_counts() -> None:
    f = approximate(1)
    for margins in MARGINS:
        test = UmpuTest(margins, Tulap(Fraction(1)))
        x = np.arange(margins.low, margins.high + 1)
        for phi in (test.rejection(x, 0.1, TWO_SIDED), test.two_sided(0.1).rejection(x)):
            assert np.all(phi[1:] <= 1 - f(1 - phi[:-1]) + 1e-12)
            assert np.all(phi[:-1] <= 1 - f(1 - phi[1:]) + 1e-12)


def test_stretched_noise_that_is_not_normal_has_two_equal_tails() -> None:
    test = UmpuTest(TwoByTwo(10, 8, 20), Tulap(Fraction(1), sensitivity=2))
    assert not test.is_two_sided_unbiased
    assert test.thresholds(0.1) == (test.threshold(0.05, Alternative.LESS), test.threshold(0.05))
    assert math.isclose(test.power(1.0, 0.1, TWO_SIDED), 0.1, rel_tol=1e-9)
    ends = test.confidence_interval(5.0, 0.9)
    assert math.isclose(test.p_value(5.0, TWO_SIDED, ends.low), 0.1, rel_tol=1e-8)
