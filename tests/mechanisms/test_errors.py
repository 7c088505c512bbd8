"""Stated errors against simulation, and the laws of the noise against their probabilities.

Seeds are fixed. A comparison of means passes within 4.9 standard errors (false alarms about 1e-6),
a test of a law with a p-value above 1e-6; each has a twin that shows that a scale wrong by 10% (30%
for a cell or a sum) is caught.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from semidp.applications.study import NaiveGaussian, NaiveL1, NaiveL2, NaiveLinf
from semidp.promise.mechanisms.additive import (
    ContinuousGaussianMechanism,
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget

BUDGETS = {"zcdp": Budget.zcdp("0.01"), "gdp": Budget.gdp("0.1"), "pure": Budget.pure("0.1")}
PROJECTED = [
    DiscreteGaussianMechanism,
    RoundedGaussianMechanism,
    ContinuousGaussianMechanism,
    LaplaceMechanism,
    L2Mechanism,
    LatticeGaussianMechanism,
]
NAIVE = [NaiveL1, NaiveL2, NaiveLinf, NaiveGaussian]
DRAWS = 1500


def agrees(samples, expected):
    """Whether the mean of independent samples is the expected one, by a normal test at about
    1e-6.
    """
    return abs(np.mean(samples) - expected) <= 4.9 * np.std(samples, ddof=1) / math.sqrt(
        len(samples)
    )


def agrees_and_would_notice(squares, expected, off):
    """The test passes, and fails where the scale (the root of the expectation) is wrong by the
    share `off`.
    """
    assert agrees(squares, expected)
    assert not agrees(squares, expected * (1 + off) ** 2)
    assert not agrees(squares, expected / (1 + off) ** 2)


def errors(mechanism, table, projected=True):
    source = SeededRandomness(11)
    measured = [mechanism.apply(table, source) for _ in range(DRAWS)]
    return np.stack([(m.projected if projected else m.noisy) - table.counts for m in measured])


def check_errors(mechanism, found, weights):
    agrees_and_would_notice((found**2).sum(axis=(1, 2)), mechanism.expected_l2**2, 0.1)
    cell = np.unravel_index(mechanism.standard_errors().argmax(), found.shape[1:])
    assert agrees(found[(slice(None), *cell)], 0.0)
    agrees_and_would_notice(
        found[(slice(None), *cell)] ** 2, mechanism.standard_errors()[cell] ** 2, 0.3
    )
    total = (found * weights).sum(axis=(1, 2))
    agrees_and_would_notice(total**2, mechanism.standard_error(weights) ** 2, 0.3)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", PROJECTED, ids=lambda kind: kind.name)
def test_stated_errors_of_projected_mechanisms(build, kind):
    space, table = build((3, 4), ["A", "B"], a=3)
    mechanism = kind.calibrate(space, BUDGETS[kind.budget_kinds[0]])
    weights = np.zeros((3, 4))
    weights[:2, :2] = 1
    check_errors(mechanism, errors(mechanism, table), weights)
    assert mechanism.standard_error(np.ones((3, 4))) == pytest.approx(0, abs=1e-9)  # n is public


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", NAIVE, ids=lambda kind: kind.name)
def test_stated_errors_of_naive_mechanisms(build, kind):
    space, table = build((3, 4), ["A", "B"], a=3)
    mechanism = kind.calibrate(space, BUDGETS[kind.budget_kinds[0]])
    check_errors(mechanism, errors(mechanism, table, projected=False), np.eye(3, 4))


@pytest.mark.few(1)
@pytest.mark.parametrize("margins", [["A"], []], ids=["rows", "total"])
def test_stated_errors_of_the_one_sided_lattice(build, margins):
    space, table = build((3, 4), margins, a=2)
    mechanism = LatticeGaussianMechanism.calibrate(space, Budget.zcdp("0.1"))
    check_errors(mechanism, errors(mechanism, table), np.eye(3, 4))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "margins"), [((3, 3), ["A", "B"]), ((2, 4), ["A", "B"]), ((3, 4), ["A"])], ids=str
)
def test_stated_errors_of_the_lattice_are_those_of_coarse_noise(build, shape, margins):
    """At σ² = 3/8 the bound σ²P that was stated before is far too large, and the check notices
    it.
    """
    space, table = build(shape, margins, a=2)
    mechanism = LatticeGaussianMechanism(space, Fraction(3, 8))
    found = errors(mechanism, table)
    squares = (found**2).sum(axis=(1, 2))
    assert agrees(squares, mechanism.expected_l2**2)
    assert agrees(found[:, 0, 0] ** 2, mechanism.standard_errors()[0, 0] ** 2)
    assert not agrees(squares, float(mechanism.sigma2 * mechanism.space.dimension))


@pytest.mark.parametrize(
    ("kind", "budget"),
    [
        (DiscreteGaussianMechanism, Budget.zcdp("0.5")),
        (RoundedGaussianMechanism, Budget.gdp(1)),
        (LaplaceMechanism, Budget.pure(2)),
    ],
    ids=["discrete gaussian", "rounded gaussian", "laplace"],
)
def test_cells_follow_the_stated_law(build, kind, budget):
    space, _ = build((40, 40), ["A", "B"], a=2)
    source = SeededRandomness(5)
    mechanism = kind.calibrate(space, budget)
    cells = np.concatenate([mechanism.noise(source).ravel() for _ in range(8)])
    seen = np.bincount(np.clip(cells, -8, 8) + 8, minlength=17)

    def p_value(law):
        k = np.arange(-200, 201)
        expected = np.bincount(np.clip(k, -8, 8) + 8, weights=law.pmf(k))
        return stats.chisquare(seen, expected / expected.sum() * cells.size).pvalue

    law = mechanism.sampler
    parameter = law.scale if kind is LaplaceMechanism else law.sigma2
    off = 11 / 10 if kind is LaplaceMechanism else 121 / 100
    assert p_value(law) > 1e-6
    assert p_value(type(law)(float(parameter) * off)) < 1e-6
    assert p_value(type(law)(float(parameter) / off)) < 1e-6


def norms(mechanism, norm):
    source = SeededRandomness(7)
    return np.array([norm(mechanism.noise(source).ravel()) for _ in range(DRAWS)])


@pytest.mark.parametrize(
    ("kind", "order", "dimension"),
    [(L2Mechanism, 2, 6), (NaiveL1, 1, 12), (NaiveL2, 2, 12), (NaiveLinf, np.inf, 12)],
    ids=["l2", "naive l1", "naive l2", "naive linf"],
)
def test_the_norm_of_norm_noise_is_gamma(build, kind, order, dimension):
    """A density ∝ exp(-‖v‖/b) in s dimensions has ‖v‖/b ~ Gamma(s), whatever the norm."""
    space, _ = build((3, 4), ["A", "B"], a=3)
    mechanism = kind.calibrate(space, Budget.pure(1))
    found = norms(mechanism, lambda v: np.linalg.norm(v, order)) / mechanism.scale
    assert stats.kstest(found, stats.gamma(dimension).cdf).pvalue > 1e-6
    assert stats.kstest(found * 1.1, stats.gamma(dimension).cdf).pvalue < 1e-6
    assert stats.kstest(found, stats.gamma(dimension + 1).cdf).pvalue < 1e-6


def test_the_direction_of_l2_noise_is_uniform(build):
    """The share of the squared length along a fixed direction of the subspace is Beta(1/2,
    (s-1)/2).
    """
    space, _ = build((3, 4), ["A", "B"], a=3)
    mechanism = L2Mechanism.calibrate(space, Budget.pure(1))
    along = space.project(np.eye(3, 4)).ravel()
    along /= np.linalg.norm(along)
    found = norms(mechanism, lambda v: (v @ along) ** 2 / (v @ v))
    assert stats.kstest(found, stats.beta(0.5, 2.5).cdf).pvalue > 1e-6
    # were it uniform in all twelve cells
    assert stats.kstest(found, stats.beta(0.5, 5.5).cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    ("k", "a", "l1", "l2"),
    [(2, 3, 4, 2), (3, 2, 4, 2), (3, 3, 6, math.sqrt(6)), (5, 3, 6, math.sqrt(6))],
)
def test_expected_loss_has_the_known_closed_forms(build, k, a, l1, l2):
    space, _ = build((k, k), ["A", "B"], a=a)
    s, d, epsilon = (k - 1) ** 2, k * k, 0.01
    loss = {
        kind: kind.calibrate(space, Budget.pure(epsilon)).expected_l2 * epsilon
        for kind in (LaplaceMechanism, L2Mechanism, *NAIVE[:3])
    }
    assert loss[LaplaceMechanism] == pytest.approx(l1 * math.sqrt(2) * (k - 1), rel=1e-4)
    assert loss[L2Mechanism] == pytest.approx(l2 * math.sqrt(s * (s + 1)))
    assert loss[NaiveL1] == pytest.approx(2 * a * math.sqrt(2 * d))
    assert loss[NaiveL2] == pytest.approx(math.sqrt(2) * a * math.sqrt(d * (d + 1)))
    assert loss[NaiveLinf] == pytest.approx(a * math.sqrt(d * (d + 1) * (d + 2) / 3))
    gauss = ContinuousGaussianMechanism.calibrate(space, Budget.gdp(epsilon))
    assert gauss.expected_l2 * epsilon == pytest.approx(l2 * (k - 1))
    assert gauss.mean_l2 < gauss.expected_l2
    naive = NaiveGaussian.calibrate(space, Budget.gdp(epsilon))
    assert naive.expected_l2 * epsilon == pytest.approx(a * math.sqrt(2) * k)


def test_mean_loss_of_the_continuous_gaussian(build):
    space, table = build((3, 4), ["A", "B"], a=3)
    mechanism = ContinuousGaussianMechanism.calibrate(space, Budget.gdp(1))
    lengths = np.sqrt((errors(mechanism, table) ** 2).sum(axis=(1, 2)))
    assert agrees(lengths, mechanism.mean_l2)
    assert not agrees(lengths, mechanism.mean_l2 * 1.1)
