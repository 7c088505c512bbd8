"""The algebra of linear estimates: errors, covariances, laws and draws of one sum say the same."""

import math

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release
from semidp.inference.linear_estimates import SumErrors
from semidp.inference.measured import linear_estimates, measured_table
from semidp.promise import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

PEOPLE = {
    "sex": [*"ffmmfmfmmf"] * 6,
    "region": [*"nswnnsswnw"] * 6,
    "age": [*"abcabcaabb"] * 6,
}
NOISES = {
    "gaussian": TableRequest(["sex", "region"], Budget.gdp(1), mechanism="gaussian"),
    "laplace": TableRequest(["sex", "region"], Budget.pure(1), mechanism="laplace"),
    "l2": TableRequest(["sex", "region"], Budget.pure(1), mechanism="l2"),
    "knorm": TableRequest(["sex", "region"], Budget.pure(1), mechanism="knorm"),
    "product": TablesRequest(
        [TableRequest(["sex", "region"]), TableRequest(["region", "age"])], Budget.zcdp("0.4")
    ),
}


def release_with(noise: str, seed: int = 1) -> Release:
    plan = Plan([NOISES[noise]], ["sex", "region"], levels_from_data=True)
    return semidp.run(plan, PEOPLE, SeededRandomness(seed))


def random_sums(noise: str, sums: int = 4) -> SumErrors:
    measured = measured_table(release_with(noise), ["sex", "region"])
    weights = np.random.default_rng(2).normal(size=(sums, *measured.schema.shape))
    return measured.weigh_noise(weights)


@pytest.mark.parametrize("noise", NOISES)
def test_errors_are_the_roots_of_variances_and_covariances_are_bilinear(noise: str) -> None:
    measured = measured_table(release_with(noise), ["sex", "region"])
    one, other = np.random.default_rng(3).normal(size=(2, *measured.schema.shape))
    both = measured.weigh_noise(np.stack([one, other, one + other, 3 * one]))
    matrix = both.covariance
    np.testing.assert_allclose(np.sqrt(np.diag(matrix)), both.standard_errors, rtol=1e-9)
    assert matrix[2, 2] == pytest.approx(matrix[0, 0] + matrix[1, 1] + 2 * matrix[0, 1], rel=1e-9)
    assert matrix[0, 3] == pytest.approx(3 * matrix[0, 0], rel=1e-9)
    assert np.abs(matrix[0, 1]) > 1e-3


@pytest.mark.parametrize("noise", NOISES)
def test_draws_have_the_covariance_and_another_scale_is_caught(noise: str) -> None:
    """4,000 draws: a variance of Laplace noise is known to 3.5%, and 20% are six times that."""
    errors = random_sums(noise)
    drawn = np.cov(errors.draw(4000, SeededRandomness(4)).T)
    size = np.sqrt(np.outer(np.diag(errors.covariance), np.diag(errors.covariance)))
    assert np.abs((drawn - errors.covariance) / size).max() < 0.2
    assert np.abs((1.3**2 * drawn - errors.covariance) / size).max() > 0.2


@pytest.mark.parametrize("noise", NOISES)
def test_terms_add_up_to_the_variance_where_numbers_are_drawn_one_by_one(noise: str) -> None:
    errors = random_sums(noise)
    assert errors.is_independent == (noise not in ("l2", "knorm"))
    if errors.is_independent:
        for number, error in enumerate(errors.standard_errors):
            variance = sum(term.variance for term in errors.terms(number))
            assert math.sqrt(variance) == pytest.approx(error, rel=1e-8)


@pytest.mark.parametrize("noise", NOISES)
def test_a_sum_that_exact_totals_fix_has_no_error(noise: str) -> None:
    measured = measured_table(release_with(noise), ["sex", "region"])
    women = measured.weigh_noise(measured.mask({"sex": "f"})[None])
    assert women.standard_errors.tolist() == [0.0]
    assert np.abs(women.draw(50, SeededRandomness(1))).max() < 1e-9


def test_results_of_one_release_are_independent_and_tables_of_one_result_are_not() -> None:
    requests = [NOISES["product"], TableRequest(["sex", "age"], Budget.gdp(1))]
    plan = Plan(requests, ["sex"], levels_from_data=True)
    release = semidp.run(plan, PEOPLE, SeededRandomness(5))
    numbers = {table.name: number for number, table in enumerate(release.tables)}
    tables = linear_estimates(release)

    def error_of(**weights: np.ndarray) -> float:
        names = {"by_sex": "sex-region", "by_age": "region-age", "other": "table"}
        stacked = {numbers[names[name]]: array[None] for name, array in weights.items()}
        return float(tables.weigh_noise(stacked).standard_errors[0])

    # The last region: by sex, and by age.
    by_sex = np.zeros((2, 3))
    by_sex[:, -1] = 1.0
    by_age = np.zeros((3, 3))
    by_age[:, -1] = 1.0  # ages stand before regions
    other = np.zeros((2, 3))
    other[0, 1] = 1.0
    alone = [error_of(by_sex=by_sex), error_of(by_age=by_age), error_of(other=other)]
    assert min(alone) > 0.5
    assert error_of(by_sex=by_sex, other=other) == pytest.approx(math.hypot(alone[0], alone[2]))
    # The same number in two tables of one result: their noise cancels.
    assert alone[0] == pytest.approx(alone[1])
    assert error_of(by_sex=by_sex, by_age=-by_age) == pytest.approx(0.0, abs=1e-9)
