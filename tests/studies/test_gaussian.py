"""The Gaussian figure: our mechanism below the naive one, and every mean where theory puts it.

The tests of means allow 5.5 standard errors, a false alarm of 4e-8 each; their twins show that the
other variant's scale would be rejected.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi

from semidp.applications.noise_studies import GAUSSIAN_MU as MU
from semidp.applications.noise_studies import GAUSSIAN_SIZES as SIZES
from semidp.applications.noise_studies import NAIVE, SEMI, expected_loss, mean_chi, mechanisms
from semidp.applications.noise_studies import compute_gaussian as compute
from semidp.applications.study import MODELS, Settings, Tidy, simulated_table

FAR = 5.5
RUNS = 200
COLUMNS = ("model", "k", "mu", "mechanism", "variant", "truncated", "mean_l2", "se", "replicates")
GOLDEN = {  # σ E[χ_s] at μ = 0.1, integrated with 30 digits: as published, correct, naive
    2: (15.957691, 15.957691, 79.760423),
    3: (37.599424, 46.049702, 123.79931),
    4: (58.359556, 71.475567, 167.07628),
    10: (179.44531, 219.77473, 423.20475),
}


@pytest.fixture(scope="module")
def figure() -> Tidy:
    return compute(Settings(replicates=30, seed=1))


@pytest.fixture(scope="module")
def long_run() -> Tidy:
    return compute(Settings(replicates=RUNS, seed=2))


def test_columns_and_rows(figure: Tidy) -> None:
    assert figure.columns == COLUMNS
    assert len(figure) == 2 * 9 * 2 * 2 * 2
    assert set(figure["k"]) == set(range(2, 11))
    assert set(figure["mu"]) == {Fraction(1, 10)}
    assert set(figure["replicates"]) == {30}
    assert figure.csv().splitlines()[1].startswith("I,2,0.1,semi,as-published,true,")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("variant", ["as-published", "correct"])
@pytest.mark.parametrize("truncated", [True, False])
def test_semi_lies_below_naive(
    figure: Tidy, model: str, k: int, variant: str, truncated: bool
) -> None:
    part = figure.where(model=model, k=k, variant=variant, truncated=truncated)
    assert part.where(mechanism=SEMI)["mean_l2"][0] < part.where(mechanism=NAIVE)["mean_l2"][0]


@pytest.mark.parametrize("k", GOLDEN)
def test_expected_losses_are_the_golden_ones(k: int) -> None:
    table = simulated_table("I", k, seed=0)
    means = {
        (name, variant): expected_loss(mechanism) for name, variant, mechanism in mechanisms(table)
    }
    found = means[SEMI, "as-published"], means[SEMI, "correct"], means[NAIVE, "correct"]
    assert found == pytest.approx(GOLDEN[k], abs=5e-5)


@pytest.mark.parametrize("k", SIZES)
def test_scales_are_exact(k: int) -> None:
    scales = {
        (name, variant): m for name, variant, m in mechanisms(simulated_table("II", k, seed=3))
    }
    assert scales[SEMI, "as-published"].sigma2 == 4 / MU**2
    assert scales[SEMI, "correct"].sigma2 == (4 if k == 2 else 6) / MU**2
    assert scales[NAIVE, "correct"].scale == pytest.approx(3 * math.sqrt(2) / 0.1)


@pytest.mark.parametrize("degrees", [1, 4, 81, 100])
def test_mean_of_chi_by_integration(degrees: int) -> None:
    mean, _ = quad(lambda x: x * chi.pdf(x, degrees), 0, 30)
    assert mean_chi(degrees) == pytest.approx(mean, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", SIZES)
def test_untruncated_means_are_where_theory_puts_them(long_run: Tidy, model: str, k: int) -> None:
    free, cells = (k - 1) ** 2, k * k
    correct = 2 if k == 2 else math.sqrt(6)
    cases = {
        (SEMI, "as-published"): (2, free),
        (SEMI, "correct"): (correct, free),
        (NAIVE, "correct"): (4.5**0.5 * 2, cells),
    }
    for (mechanism, variant), (sensitivity, degrees) in cases.items():
        found = _mean(long_run, model, k, mechanism, variant)
        assert abs(_standardised(found, sensitivity, degrees)) < FAR, (mechanism, variant)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("k", [k for k in SIZES if k > 2])
def test_the_other_variant_would_be_noticed(long_run: Tidy, model: str, k: int) -> None:
    free = (k - 1) ** 2
    assert _standardised(_mean(long_run, model, k, SEMI, "correct"), 2, free) > FAR
    assert _standardised(_mean(long_run, model, k, SEMI, "as-published"), math.sqrt(6), free) < -FAR


@pytest.mark.parametrize("model", MODELS)
def test_truncation_never_adds_loss(figure: Tidy, model: str) -> None:
    cut, whole = (
        figure.where(model=model, truncated=truncated)["mean_l2"] for truncated in (True, False)
    )
    assert all(np.array(cut) <= np.array(whole) + 1e-9)


def test_a_seed_repeats_a_study() -> None:
    settings = Settings(replicates=2, seed=5)
    assert compute(settings, sizes=range(3, 4)) == compute(settings, sizes=range(3, 4))
    assert compute(settings, sizes=range(3, 4)) != compute(
        Settings(replicates=2, seed=6), sizes=range(3, 4)
    )


def _mean(table: Tidy, model: str, k: int, mechanism: str, variant: str) -> float:
    part = table.where(model=model, k=k, mechanism=mechanism, variant=variant, truncated=False)
    return float(part["mean_l2"][0])


def _standardised(mean: float, sensitivity: float, degrees: int) -> float:
    scale = sensitivity / float(MU)
    return (mean - scale * chi.mean(degrees)) / (scale * chi.std(degrees) / math.sqrt(RUNS))
