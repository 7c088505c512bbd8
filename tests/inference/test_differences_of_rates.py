"""Intervals for differences of population rates in a small group beside a large one: coverage by enumeration."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from semidp.questions.answers import Covers, normal_interval, sampled_difference

QUIET = [(0.0, 0.0, 0.0)] * 2


def coverages(sizes: tuple[int, int], rates: tuple[float, float]) -> tuple[float, float]:
    """Return the exact coverage, without noise, of the interval and of the normal one with the rates' own variances."""
    truth = rates[0] - rates[1]
    chances = np.outer(*(binom.pmf(np.arange(n + 1), n, rate) for n, rate in zip(sizes, rates, strict=True)))
    held = np.zeros(2)
    for cases in np.ndindex(*chances.shape):
        if chances[cases] < 1e-7:
            continue
        seen = [count / n for count, n in zip(cases, sizes, strict=True)]
        error = math.sqrt(sum(rate * (1 - rate) / n for rate, n in zip(seen, sizes, strict=True)))
        parts = [(float(count), float(n)) for count, n in zip(cases, sizes, strict=True)]
        score = sampled_difference(parts, QUIET, 0.0, (error, error), 0.95)
        normal = normal_interval(seen[0] - seen[1], error, error, (-1.0, 1.0), 0.95, Covers.both)
        held += chances[cases] * np.array([truth in score, truth in normal])
    return float(held[0]), float(held[1])


@pytest.mark.parametrize("sizes", [(10, 150), (25, 150), (10, 12)])
@pytest.mark.parametrize("rates", [(0.1, 0.3), (0.3, 0.1), (0.05, 0.05), (0.5, 0.7)])
def test_a_small_group_beside_a_large_one_is_held(sizes, rates) -> None:
    assert coverages(sizes, rates)[0] > 0.93


def test_the_normal_interval_does_not_hold_it() -> None:
    """The twin: what was published before."""
    assert coverages((10, 150), (0.1, 0.3))[1] < 0.75


def test_common_noise_makes_the_interval_narrower_and_opposite_noise_wider() -> None:
    parts, noise = [(40.0, 100.0), (30.0, 100.0)], [(9.0, 0.0, 0.0)] * 2
    widths = []
    for covariance in (-9e-4, 0.0, 9e-4):
        answer = sampled_difference(parts, noise, covariance, (0.1, 0.1), 0.95)
        widths.append(answer.high - answer.low)
    assert widths == sorted(widths, reverse=True)
    without = sampled_difference(parts, QUIET, 0.0, (0.1, 0.1), 0.95)
    # noise that both have in common cancels
    assert widths[2] == pytest.approx(without.high - without.low, rel=0.02)
