"""Calibration meets the budget from the safe side, and the choice follows the stated loss and
public numbers only.
"""

import inspect
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semidp.applications.study import NaiveGaussian, NaiveL1, NaiveL2, NaiveLinf
from semidp.errors import InputError, Refused
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.additive import (
    ContinuousGaussianMechanism,
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
    mu_within,
    rho_within,
)
from semidp.promise.mechanisms.mechanism import CLAIMS, KINDS
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Order
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.selection import NAMES, available, calibrate_mechanism, choose

FOR_STUDIES = (ContinuousGaussianMechanism, NaiveL1, NaiveL2, NaiveLinf, NaiveGaussian)

positive = st.fractions(min_value=Fraction(1, 1000), max_value=20, max_denominator=1000)
budgets = st.one_of(
    positive.map(Budget.zcdp),
    positive.map(Budget.gdp),
    positive.map(Budget.pure),
    st.builds(
        Budget.approximate,
        positive,
        st.sampled_from(["1e-12", "1e-9", "1e-5", "0.01", "0.5"]).map(Fraction),
    ),
)
slow = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@slow
@given(budget=budgets)
def test_every_mechanism_satisfies_the_budget(build, budget):
    space, _ = build((3, 3), ["A", "B"], a=3)
    for mechanism in available(space, budget):
        assert mechanism.guarantee.dataspace == space.dataspace
        assert mechanism.guarantee.adjacency == space.adjacency
        if budget.kind == "approximate":
            assert mechanism.tradeoff.delta(budget.epsilon) <= budget.delta
        else:  # nothing is wasted, and nothing is rounded
            assert mechanism.tradeoff.compare(budget.tradeoff()) is Order.EQUAL


@slow
@given(budget=budgets)
def test_the_choice_has_the_least_expected_loss(build, budget):
    space, _ = build((3, 3), ["A", "B"], a=3)
    listed = available(space, budget)
    losses = [m.expected_l2 for m in listed]
    assert losses[1:] == sorted(losses[1:])
    assert losses[0] ** 2 * 0.95 <= min(losses) ** 2, (
        "noise on the lattice is preferred from a twentieth on"
    )
    assert choose(space, budget).name == listed[0].name
    assert all(budget.kind in type(m).budget_kinds for m in listed)
    assert not {type(m) for m in listed} & set(FOR_STUDIES)
    assert all(m.statement == CLAIMS[m.claim] and m.scale > 0 for m in listed)
    assert listed[0].to_json()["expected_l2"] == listed[0].expected_l2


def test_conversion_of_a_delta_is_tight_from_below():
    for budget in (
        Budget.approximate(1, "1e-9"),
        Budget.approximate("0.1", "1e-5"),
        Budget.approximate(8, "0.1"),
    ):
        mu, rho = mu_within(budget), rho_within(budget)
        assert (
            Gaussian(mu**2).delta(budget.epsilon)
            <= budget.delta
            < Gaussian((mu * (1 + Fraction(1, 10**9))) ** 2).delta(budget.epsilon)
        )
        assert (
            ZCDP(rho).delta(budget.epsilon)
            <= budget.delta
            < ZCDP(rho * (1 + Fraction(1, 10**9))).delta(budget.epsilon)
        )


def test_guarantee_and_noise_come_from_the_same_exact_number(build):
    space, _ = build((3, 3), ["A", "B"], a=3)
    gauss = RoundedGaussianMechanism.calibrate(space, Budget.gdp("1/3"))
    assert gauss.sampler.sigma2 == gauss.sigma2 == 54  # Δ2² = 6
    assert gauss.tradeoff.mu_squared == Fraction(1, 9)
    assert gauss.scale**2 >= 54
    discrete = DiscreteGaussianMechanism.calibrate(space, Budget.zcdp("0.1"))
    assert discrete.sampler.sigma2 == discrete.sigma2 == 30
    laplace = LaplaceMechanism.calibrate(space, Budget.pure("0.3"))
    assert laplace.sampler.scale == laplace.b == 20


def test_a_release_can_be_evaluated_under_other_invariants(build):
    under_two, _ = build((3, 3), ["A", "B"], a=2)
    under_three, _ = build((3, 3), ["A", "B"], a=3)
    mechanism = RoundedGaussianMechanism.calibrate(under_two, Budget.gdp(1))
    assert evolve(mechanism, space=under_three).tradeoff.mu_squared == Fraction(6, 4)
    mechanism = LaplaceMechanism.calibrate(under_two, Budget.pure(1))
    assert evolve(mechanism, space=under_three).tradeoff.implied_epsilon() == Fraction(6, 4)


def test_upper_bounds_of_the_norms_are_enough(build):
    space, table = build((2, 2, 3), ["AB", "BC", "AC"], a=5)
    mechanism = DiscreteGaussianMechanism.calibrate(space, Budget.zcdp(1))
    assert mechanism.sigma2 == Fraction(space.l2_squared) / 2
    assert mechanism.apply(table, SeededRandomness(1)).noisy.shape == table.counts.shape


def test_the_choice_reads_public_numbers_only(build_from):
    """Two tables with the same totals give the same mechanisms; no function of the choice takes a
    table.
    """
    one = build_from([[5, 7, 3], [2, 8, 9], [4, 4, 4]], ["A", "B"], 3)[0]
    other = build_from([[6, 6, 3], [1, 9, 9], [4, 4, 4]], ["A", "B"], 3)[0]
    for budget in (Budget.zcdp("0.5"), Budget.gdp(1), Budget.pure(1)):
        described = [
            [(m.name, m.scale, m.expected_l2) for m in available(space, budget)]
            for space in (one, other)
        ]
        assert described[0] == described[1]
    for function in (available, choose, calibrate_mechanism):
        assert "table" not in inspect.signature(function).parameters


@pytest.mark.parametrize("kind", [*FOR_RELEASES, *FOR_STUDIES], ids=lambda kind: kind.name)
def test_a_budget_of_another_kind_is_refused_with_the_alternatives(build, kind):
    space, _ = build((3, 3), ["A", "B"], a=3)
    samples = {
        "zcdp": Budget.zcdp(1),
        "gdp": Budget.gdp(1),
        "pure": Budget.pure(1),
        "approximate": Budget.approximate(1, "1e-6"),
    }
    for name, budget in samples.items():
        if name not in kind.budget_kinds:
            with pytest.raises(Refused, match=KINDS[name]):
                kind.calibrate(space, budget)


def test_the_alternatives_in_messages_are_those_that_exist():
    for budget_kind, text in KINDS.items():
        named = set(text.replace(" or ", ", ").split(", "))
        released = {kind for kind in FOR_RELEASES if budget_kind in kind.budget_kinds}
        assert named == {name for name, kinds in NAMES.items() if released & set(kinds)}


def test_coarse_noise_goes_on_the_lattice_where_that_saves_a_twentieth(build):
    """By the true expected loss: no larger than that of noise in single cells, and never worse for
    a larger budget.
    """
    for shape, margins in (
        ((2, 2), ["A", "B"]),
        ((3, 3), ["A", "B"]),
        ((3, 4), ["A"]),
        ((2, 3, 2), ["A", "B"]),
    ):
        space, _ = build(shape, margins, a=3)
        losses, names = [], []
        for rho in ("1/2", 1, 2, 4, 8, 16, 40, 100):
            chosen = choose(space, Budget.zcdp(rho))
            single = calibrate_mechanism("gaussian", space, Budget.zcdp(rho))
            assert chosen.expected_l2 <= single.expected_l2
            assert chosen.tradeoff.rho <= Fraction(rho)
            losses.append(chosen.expected_l2)
            names.append(chosen.name)
        assert losses == sorted(losses, reverse=True)
        assert names[0] == "discrete gaussian"
        if len(shape) == 2:
            assert "lattice gaussian" in names


def test_mechanisms_by_name(build):
    space, _ = build((3, 3), ["A", "B"], a=3)
    assert isinstance(
        calibrate_mechanism("lattice", space, Budget.zcdp(1)), LatticeGaussianMechanism
    )
    with pytest.raises(InputError, match="no mechanism 'gauss'; there are gaussian, laplace"):
        calibrate_mechanism("gauss", space, Budget.gdp(1))
    with pytest.raises(Refused, match="use gaussian"):
        calibrate_mechanism("laplace", space, Budget.gdp(1))


def test_ideal_mechanisms_release_whole_numbers(build):
    space, table = build((3, 3), ["A", "B"], a=3)
    for mechanism in available(space, Budget.pure(1)):
        noisy = mechanism.apply(table, SeededRandomness(1)).noisy
        assert noisy.dtype == np.int64
