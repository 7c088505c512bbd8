"""The K-norm figure: second moments against golden values, both variants, and the order of the
curves.

Allowances are 5.5 standard errors, a false alarm of 4e-8 each; the twins show that the other radius
is rejected.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from semidp.applications.noise_studies import KNORM_EPSILONS as EPSILONS
from semidp.applications.noise_studies import compute_knorm as compute
from semidp.applications.noise_studies import noises
from semidp.applications.study import MODELS, Settings, Tidy, simulated_table

FAR = 5.5
RUNS = 4000
COLUMNS = (
    "model",
    "k",
    "epsilon",
    "mechanism",
    "variant",
    "truncated",
    "mean_l2",
    "se",
    "replicates",
)


def _squares(k: int, mechanism: str, variant: str, epsilon: Fraction = Fraction(1)) -> np.ndarray:
    table = simulated_table("I", k, seed=0)
    found = {
        (name, kind): draw for name, kind, draw in noises(table, epsilon, np.random.default_rng(7))
    }
    return (found[mechanism, variant](RUNS).reshape(RUNS, -1) ** 2).sum(axis=1)


def _moment(k: int, mechanism: str, variant: str) -> float:
    """``E‖v‖²`` at ε = 1."""
    d, s = k * k, (k - 1) ** 2
    radius = {"correct": (s + 1) * (s + 2), "as-published": s * (s + 1)}[variant]
    cube = {"correct": (d + 1) * (d + 2), "as-published": d * (d + 1)}[variant]
    hull = {
        (2, "correct"): 8.0,
        (2, "as-published"): 8.0,
        (3, "correct"): 64.571,
        (3, "as-published"): 46.909,
    }
    return {
        "knorm": hull.get((k, variant), math.nan) * radius / ((s + 1) * (s + 2)),
        "naive-l1": d * 2 * 6.0**2,
        "naive-l2": 18.0 * d * (d + 1),
        "naive-linf": 9.0 * cube * d / 3,
        "l2": (4.0 if k == 2 else 6.0) * s * (s + 1),
    }[mechanism]


CASES = [
    (k, mechanism, variant)
    for k in (2, 3)
    for mechanism in ("knorm", "naive-l1", "naive-l2", "naive-linf", "l2")
    for variant in ("correct", "as-published")
    if (mechanism, variant) != ("l2", "as-published")
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("k", "mechanism", "variant"), CASES)
def test_second_moments_are_the_golden_ones(k: int, mechanism: str, variant: str) -> None:
    squares, expected = _squares(k, mechanism, variant), _moment(k, mechanism, variant)
    # the golden value is a long run itself
    golden_error = 0.005 * expected if (k, mechanism) == (3, "knorm") else 0.0
    assert abs(squares.mean() - expected) < FAR * squares.std() / math.sqrt(RUNS) + golden_error


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("mechanism", ["knorm", "naive-linf"])
def test_the_other_radius_would_be_noticed(k: int, mechanism: str) -> None:
    for variant, other in (("correct", "as-published"), ("as-published", "correct")):
        squares, wrong = _squares(k, mechanism, variant), _moment(k, mechanism, other)
        assert abs(squares.mean() - wrong) > FAR * squares.std() / math.sqrt(RUNS) + 0.005 * wrong


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_losses_are_proportional_to_one_over_epsilon(epsilon: Fraction) -> None:
    one, scaled = _squares(3, "knorm", "correct"), _squares(3, "knorm", "correct", epsilon)
    assert np.sqrt(scaled).mean() * float(epsilon) == pytest.approx(np.sqrt(one).mean(), rel=1e-9)


@pytest.fixture(scope="module")
def small() -> Tidy:
    return compute(Settings(replicates=30, seed=1), sizes=range(2, 5))


def test_columns_and_rows(small: Tidy) -> None:
    assert small.columns == COLUMNS
    assert set(small["truncated"]) == {False}
    published = small.where(variant="as-published")
    assert set(published["k"]) == {2, 3}
    assert set(published["mechanism"]) == {"knorm", "naive-l1", "naive-l2", "naive-linf"}
    assert {float(epsilon) for epsilon in small.where(k=3)["epsilon"]} == {0.1, 0.5, 1.0}
    assert set(small.where(k=4)["variant"]) == {"correct"}
    assert len(small.rows) == len(set(small.rows))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("variant", ["as-published", "correct"])
def test_the_k_norm_lies_below_the_naive_mechanisms(small: Tidy, model: str, variant: str) -> None:
    part = small.where(model=model, variant=variant)
    for k in part.distinct("k"):
        for epsilon in part.where(k=k).distinct("epsilon"):
            cell = part.where(k=k, epsilon=epsilon)
            ours = cell.where(mechanism="knorm")["mean_l2"][0]
            naive = [
                row["mean_l2"] for row in cell.records() if row["mechanism"].startswith("naive")
            ]
            assert ours < min(naive)
