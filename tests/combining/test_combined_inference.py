"""Tests and intervals from a combination hold as often as they say; narrower ones do not.

Thresholds are those of binomial counts at five standard deviations, set before looking; seeds are
fixed.
"""

import math

import numpy as np
import pytest

from semidp import Budget, Plan, Release, combine
from semidp.inference.measured import measured_table
from semidp.promise import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import Prepared, prepare
from tests.redrawn import redrawn

SIZES = {"sex": 2, "region": 3}


def records(counts: np.ndarray) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {"sex": [], "region": []}
    for (sex, region), count in np.ndenumerate(counts):
        columns["sex"] += ["fm"[sex]] * int(count)
        columns["region"] += ["nsw"[region]] * int(count)
    return columns


def asked(counts: np.ndarray) -> list[Prepared]:
    """A coarse Laplace table, and residuals of two tables."""
    first = Plan(
        [TableRequest(["sex", "region"], Budget.pure("2"), mechanism="laplace")], ["sex", "region"]
    )
    tables = [TableRequest(["sex", "region"]), TableRequest(["region"])]
    second = Plan([TablesRequest(tables, Budget.gdp("1.5"))], ["sex"], levels_from_data=True)
    people = records(counts)
    return [prepare(plan, people) for plan in (first, second)]


def pair(prepared: list[Prepared], seed: int) -> Release:
    """Both, drawn and combined."""
    return combine(*(redrawn(part, 2 * seed + way) for way, part in enumerate(prepared)))


def least(times: int, probability: float) -> float:
    """Five standard deviations below the expected share."""
    return probability - 5 * math.sqrt(probability * (1 - probability) / times)


@pytest.mark.parametrize("times", [32, pytest.param(600, marks=pytest.mark.long)])
def test_intervals_cover_and_half_of_them_do_not(times: int) -> None:
    prepared = asked(np.array([[7, 3, 12], [5, 9, 4]]))
    covered, in_file, halved = 0, 0, 0
    for seed in range(times):
        both = pair(prepared, seed)
        answer = both.interval(
            {"sex": "f", "region": ["n", "s"]}, draws=999, randomness=SeededRandomness(seed)
        )
        covered += 10 in answer
        table = both.tables[0]
        error = abs(table.estimate[0, 0] - 7)
        in_file += error <= table.half_widths[0, 0] + 1e-9
        halved += error <= table.half_widths[0, 0] / 2
    assert covered / times >= least(times, 0.95)
    assert in_file / times >= least(times, 0.95)
    # Half of the width covers about two thirds, and the check finds it.
    assert halved / times < least(times, 0.95)


@pytest.mark.long
@pytest.mark.parametrize("times", [16, 600])
def test_a_test_of_independence_has_its_size(times: int) -> None:
    """Tables of the hypergeometric law; the p-value is at most 0.2 in a fifth of them, give or
    take.
    """
    rng = np.random.default_rng(7)
    rows, columns = np.array([22, 18]), np.array([12, 12, 16])
    small = 0
    for seed in range(times):
        first = rng.multivariate_hypergeometric(columns, rows[0])
        both = pair(asked(np.stack([first, columns - first])), 10_000 + seed)
        small += (
            both.test("sex", "region", draws=199, randomness=SeededRandomness(seed)).p_value <= 0.2
        )
    assert small / times <= 0.2 + 5 * math.sqrt(0.2 * 0.8 / times)
    # A test that is never small would be no test.
    assert small / times >= 0.2 - 5 * math.sqrt(0.2 * 0.8 / times) or times < 100


def test_the_law_has_the_variance_of_the_formula_and_another_scale_is_caught() -> None:
    both = pair(asked(np.array([[7, 3, 12], [5, 9, 4]])), 1)
    weights = np.zeros((2, 2, 3))
    weights[0, 0, 0] = weights[1, 0, :2] = 1
    noise = measured_table(both, ["sex", "region"]).weigh_noise(weights)
    draws = noise.draw(20_000, SeededRandomness(3))
    expected = noise.covariance
    found = np.cov(draws.T)
    # The kurtosis of Laplace noise is 6: a variance from 20,000 draws is known to 1.6% at most.
    assert abs(found[0, 0] / expected[0, 0] - 1) < 0.08
    assert abs(found[1, 1] / expected[1, 1] - 1) < 0.08
    assert abs(found[0, 1] - expected[0, 1]) < 0.08 * math.sqrt(expected[0, 0] * expected[1, 1])
    assert abs(1.2 * found[0, 0] / expected[0, 0] - 1) > 0.08
    for number in range(2):
        value, error = both.estimate({both.tables[0].name: weights[number]})
        assert error == pytest.approx(math.sqrt(expected[number, number]), rel=1e-9)
        assert math.isfinite(value)
