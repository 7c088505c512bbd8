"""Evidence for docs/errata.md that belongs to no module, and a check that all evidence it names
exists.
"""

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import semidp
from semidp.applications.noise_studies import GAUSSIAN_MU as MU
from semidp.applications.noise_studies import NAIVE, SEMI, expected_loss, mean_chi, mechanisms
from semidp.applications.promise_studies import space
from semidp.applications.study import both_margins, simulated_table

ROOT = Path(__file__).parents[2]
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")


def test_every_test_that_the_errata_name_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", ERRATA))
    assert len(named) > 20
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not function or function in functions, f"{file}::{function}"


def test_noise_for_the_papers_list_is_weaker_under_a_3() -> None:
    """Gaussian noise with σ = 2/μ, seen from S_3: √(6/4) μ."""
    table = simulated_table("I", 3, seed=0)
    published = semidp.promise.ContinuousGaussianMechanism.calibrate(
        space(2, (3, 3)), semidp.Budget.gdp(1)
    )
    really = math.sqrt(
        semidp.sensitivity_space(both_margins(table), semidp.Ball(3)).l2_squared / published.sigma2
    )
    assert really == pytest.approx(1.2247, abs=5e-5)


def test_projections_lengthen_some_vectors_in_other_norms() -> None:
    """The paper says that a projection shortens in any norm; it does in l2 only."""
    nine = space(2, (3, 3))
    cell = np.zeros((3, 3))
    cell[0, 0] = 1
    row = nine.project(cell)
    assert np.abs(row).sum() == pytest.approx(16 / 9)
    assert np.abs(nine.project(np.sign(row))).max() == pytest.approx(16 / 9)
    assert np.linalg.norm(row) < 1


def test_the_naive_mechanism_could_be_projected_too() -> None:
    """Projection is post-processing: against a projected naive mechanism the gain is √3 from k = 3
    on.
    """
    ours = {
        name: m
        for name, variant, m in mechanisms(simulated_table("I", 10, seed=0))
        if variant == "correct"
    }
    projected = ours[NAIVE].scale * mean_chi(81)
    assert projected == pytest.approx(380.66, abs=0.01)
    assert projected / expected_loss(ours[SEMI]) == pytest.approx(math.sqrt(3))
    assert expected_loss(ours[NAIVE]) == pytest.approx(423.20, abs=0.01)
    assert float(MU) == 0.1


def test_subspace_dp_as_printed_allows_publishing_everything() -> None:
    """Projecting away from the span of S_φ leaves nothing of φ(X) = X to compare; the row space of
    C is meant.
    """
    one_record = semidp.promise.ExplicitSpace(
        list(np.eye(3)), semidp.Dataspace.from_description("three bits"), semidp.Ball(1)
    )
    for bits in np.ndindex(2, 2, 2):
        seen = np.array(bits) - one_record.project(np.array(bits))
        assert np.abs(seen).max() < 1e-12


def test_the_sum_in_the_k_norm_proposition_is_a_supremum() -> None:
    """As a sum over S, the sensitivity of the four-cell moves of a 3 x 3 table would be 18 instead
    of 1.
    """
    moves = [move.astype(float) for move in space(2, (3, 3)).moves()]
    ball = semidp.promise.KNormMechanism.calibrate(
        space(2, (3, 3)), semidp.Budget.pure(1)
    ).placed_ball.ball
    norms = ball.norm(np.stack(moves))
    assert norms.sum() == pytest.approx(18)
    assert norms.max() == pytest.approx(1)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_normaliser_holds_the_volume_of_the_scaled_ball(scale: float) -> None:
    """``∫ exp(-|v|/b) dv = Γ(2) · λ(b K)`` for K = [-1, 1]: the paper prints the sign and the
    volume otherwise.
    """
    grid = np.linspace(-60 * scale, 60 * scale, 2_000_001)
    assert np.trapezoid(np.exp(-np.abs(grid) / scale), grid) == pytest.approx(
        math.gamma(2) * 2 * scale, rel=1e-6
    )


def test_the_odds_ratio_of_the_likelihood_is_the_inverse_of_the_one_in_the_text() -> None:
    """x11 ~ Binomial(t1, θ1), x21 ~ Binomial(t2, θ2): given their sum, w^x11 has w =
    odds1/odds2.
    """
    row, other, column, one, two = 12, 9, 8, 0.7, 0.4
    counts = np.arange(max(0, column - other), min(row, column) + 1)
    weights = binom.pmf(counts, row, one) * binom.pmf(column - counts, other, two)
    ratio = (one / (1 - one)) / (two / (1 - two))
    margins = semidp.publish.TwoByTwo(row, column, row + other)
    assert margins.law(ratio).pmf == pytest.approx(weights / weights.sum(), rel=1e-9)
    assert np.abs(margins.law(1 / ratio).pmf - weights / weights.sum()).max() > 0.1
