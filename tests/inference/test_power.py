"""Power and sample size: against simulation of the whole test, and next to what people would do
otherwise.
"""

import math

import numpy as np
import pytest

from semidp.applications.study import Settings, find_study
from semidp.errors import InputError, Refused
from semidp.promise.noise.canonical import canonical_noise
from semidp.promise.noise.randomness import SeededRandomness, generator
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.publish.statistics.odds_ratio.measured_ratio import power, power_curves, sample_size
from semidp.publish.statistics.odds_ratio.umpu import Alternative, TwoByTwo, UmpuTest

PRIVATE, PUBLIC = "semi-private UMPU", "without privacy (UMPU)"


@pytest.mark.parametrize("alternative", Alternative)
def test_power_is_how_often_the_test_rejects(alternative: Alternative) -> None:
    margins, draws = TwoByTwo(60, 50, 120), 20_000
    test = UmpuTest(margins, canonical_noise(Budget.pure(1)))
    law = margins.law(2.2)
    x = generator(SeededRandomness(1)).choice(law.values, draws, p=law.pmf)
    p = test.p_value(x + test.noise.sample(draws, SeededRandomness(2)), alternative)
    expected = power(margins, Budget.pure(1), 2.2, alternative=alternative)
    # false alarm 1e-6
    assert math.isclose(np.mean(p <= 0.05), expected, abs_tol=5 * math.sqrt(expected / draws))


def test_more_privacy_means_less_power_and_none_means_most() -> None:
    margins = TwoByTwo(100, 100, 200)
    one = Alternative.GREATER
    powers = [
        power(margins, Budget.pure(epsilon), 2.0, alternative=one)
        for epsilon in ("0.1", "0.5", "1", "3", "20")
    ]
    fisher = power_curves(margins, approximate(1).group(2), [2.0]).curves[PUBLIC][0]
    assert sorted(powers) == powers
    assert powers[-1] == pytest.approx(fisher, abs=1e-4)


def test_without_privacy_it_is_the_randomised_fisher_test() -> None:
    margins, alpha = TwoByTwo(12, 9, 25), 0.05
    null, other = margins.law(), margins.law(3.0)
    tail = np.cumsum(null.pmf[::-1])[::-1]
    first = int(np.argmax(tail <= alpha))  # rejects from here on, and sometimes one count before
    share = (alpha - tail[first]) / null.pmf[first - 1]
    expected = other.pmf[first:].sum() + share * other.pmf[first - 1]
    assert power_curves(margins, Budget.pure(1), [3.0], replicates=100).curves[PUBLIC][
        0
    ] == pytest.approx(expected)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("odds_ratio", "alternative"),
    [(2.0, Alternative.GREATER), (0.4, Alternative.LESS), (3.0, Alternative.TWO_SIDED)],
)
def test_the_sample_size_suffices_for_every_larger_n_and_one_less_does_not(
    odds_ratio: float, alternative: Alternative
) -> None:
    n = sample_size(odds_ratio, Budget.pure("0.5"), alternative=alternative, row_share=0.4)
    sizes = (n - 1, n, *range(n + 1, n + 80), *range(n + 80, 3 * n, 17))
    margins = [TwoByTwo(round(0.4 * m), round(0.5 * m), m) for m in sizes]
    before, *after = (
        power(m, Budget.pure("0.5"), odds_ratio, alternative=alternative) for m in margins
    )
    assert before < 0.8 <= min(after)


def test_one_n_that_suffices_is_not_enough() -> None:
    """Where the row is rare the power falls as its rounding falls behind: larger n fail after
    smaller ones sufficed.
    """

    def found(n: int) -> float:
        margins = TwoByTwo(round(0.1 * n), round(0.5 * n), n)
        return power(margins, Budget.pure(1), 4.0, alternative=Alternative.GREATER)

    reached = [found(n) for n in range(96, 126)]
    dips = [n for n in range(len(reached) - 1) if reached[n + 1] < reached[n]]
    assert dips
    # reached at one n, and missed at the next
    target = (reached[dips[0]] + reached[dips[0] + 1]) / 2
    n = sample_size(
        4.0, Budget.pure(1), alternative=Alternative.GREATER, row_share=0.1, target=target
    )
    assert n > 96 + dips[0] + 1
    assert found(n - 1) < target <= min(found(m) for m in range(n, n + 60))


def test_further_invariants_cost_power() -> None:
    margins = TwoByTwo(100, 100, 200)
    powers = [power(margins, Budget.pure(1), 2.5, adjacency=Ball(a)) for a in (2, 3, 4, 5, 6)]
    assert powers[0] == powers[1] > powers[2] == powers[3] > powers[4]
    sizes = [sample_size(2.5, Budget.pure(1), adjacency=Ball(a)) for a in (3, 4)]
    assert sizes[0] < sizes[1]
    for unknown in (Ball(1), Exchange(3)):
        with pytest.raises(InputError, match="planned_test"):
            power(margins, Budget.pure(1), 2.0, adjacency=unknown)


def test_impossible_sample_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="never finds"):
        sample_size(0.5, Budget.pure(1), alternative=Alternative.GREATER)
    with pytest.raises(InputError, match="above alpha"):
        sample_size(2.0, Budget.pure(1), target=0.05)
    with pytest.raises(Refused, match="more than"):
        sample_size(1.00001, Budget.pure(1), alternative=Alternative.GREATER)


@pytest.mark.parametrize("privacy", [Budget.pure("0.5"), Budget.gdp("0.3")])
def test_the_naive_approach_is_far_behind(privacy: Budget) -> None:
    found = power_curves(TwoByTwo(150, 150, 300), privacy, [1.0, 2.0, 3.0], replicates=8000)
    naive, corrected = (found.curves[name] for name in found.curves if name.startswith("naive"))
    assert found.curves[PRIVATE][0] == pytest.approx(0.05)
    assert naive[0] > 0.06  # the classical critical value ignores the noise
    assert corrected[0] == pytest.approx(0.05, abs=0.015)
    assert found.curves[PRIVATE][2] > corrected[2] + 0.1
    assert np.all(found.curves[PUBLIC][1:] >= found.curves[PRIVATE][1:])
    assert list(found.to_json()["power"]) == list(found.curves)


def test_power_is_drawn_for_every_test() -> None:
    found = find_study("power").compute(Settings(replicates=2))
    first = found.where(epsilon=found["epsilon"][0])
    lines = find_study("power").plot(found).axes[0].get_lines()
    assert [line.get_label() for line in lines][1:] == first.distinct("test")
    np.testing.assert_allclose(lines[1].get_ydata(), first.where(test=PRIVATE)["power"])
