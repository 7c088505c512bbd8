"""Nothing to hide, nobody there, too little budget, too large counts, the wrong table."""

from fractions import Fraction

import numpy as np
import pytest

from semidp.applications.study import NaiveGaussian, NaiveL1, NaiveL2, NaiveLinf
from semidp.errors import DataError, InputError, Refused
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.additive import (
    ContinuousGaussianMechanism,
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
)
from semidp.promise.mechanisms.mechanism import NoNoise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import Table
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import available, calibrate_mechanism, choose

FOR_STUDIES = (ContinuousGaussianMechanism, NaiveL1, NaiveL2, NaiveLinf, NaiveGaussian)

BUDGETS = {
    "zcdp": Budget.zcdp(1),
    "gdp": Budget.gdp(1),
    "pure": Budget.pure(1),
    "approximate": Budget.approximate(1, "1e-6"),
}


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_table_that_the_totals_fix_needs_no_noise_and_says_so(build_from, budget):
    space, table = build_from([[3, 4, 5], [0, 0, 0]], ["A", "B"], 2)
    assert space.is_zero
    mechanism = choose(space, budget)
    assert isinstance(mechanism, NoNoise)
    assert available(space, budget)[0].name == "no noise"
    assert "no noise is needed" in mechanism.statement
    assert mechanism.to_json() == {
        "name": "no noise",
        "scale": 0.0,
        "expected_l2": 0.0,
        "claim": "exact",
    }
    assert not mechanism.standard_errors().any()
    assert mechanism.tradeoff.is_trivial
    assert "published exactly" in mechanism.guarantee.explain().strength
    measured = mechanism.apply(table, SeededRandomness(1))
    assert measured.private  # a function of the public totals, whatever the seed
    assert np.array_equal(measured.noisy, table.counts)
    assert np.allclose(measured.projected, table.counts)
    assert isinstance(calibrate_mechanism("laplace", space, budget), NoNoise)


@pytest.mark.parametrize("kind", [*FOR_RELEASES, *FOR_STUDIES], ids=lambda kind: kind.name)
def test_mechanisms_with_noise_point_to_the_one_without(build_from, kind):
    space, _ = build_from([[3, 4, 5], [0, 0, 0]], ["A", "B"], 2)
    with pytest.raises(Refused, match="no noise is needed"):
        kind.calibrate(space, BUDGETS[kind.budget_kinds[0]])


@pytest.mark.parametrize("margins", [["A", "B"], ["A"], []], ids=["both", "rows", "total"])
def test_an_empty_table_needs_no_noise(build_from, margins):
    space, table = build_from([[0, 0], [0, 0]], margins, 2)
    measured = choose(space, Budget.gdp(1)).apply(table)
    assert measured.mechanism == "no noise"
    assert not measured.noisy.any()
    assert not measured.projected.any()


@pytest.mark.parametrize("kind", FOR_RELEASES, ids=lambda kind: kind.name)
def test_a_tiny_budget_is_refused(build, kind):
    space, _ = build((3, 3), ["A", "B"], a=3)
    tiny = {"zcdp": Budget.zcdp("1e-40"), "gdp": Budget.gdp("1e-20"), "pure": Budget.pure("1e-20")}
    with pytest.raises(Refused, match="use a larger budget"):
        kind.calibrate(space, tiny[kind.budget_kinds[0]])


def test_the_choice_passes_the_refusal_on(build):
    space, _ = build((3, 3), ["A", "B"], a=3)
    assert available(space, Budget.gdp("1e-20")) == ()
    with pytest.raises(Refused, match="use a larger budget"):
        choose(space, Budget.gdp("1e-20"))


def test_a_large_budget_gives_almost_no_noise(build):
    space, table = build((3, 3), ["A", "B"], a=3)
    mechanism = DiscreteGaussianMechanism.calibrate(space, Budget.zcdp(1000))
    assert np.array_equal(mechanism.apply(table, SeededRandomness(1)).noisy, table.counts)
    lattice = LatticeGaussianMechanism.calibrate(space, Budget.zcdp(1000))
    assert lattice.sigma2 == Fraction(1, 4), "the least that is drawn"
    assert lattice.tradeoff.rho == 12, "and the guarantee is that of what is drawn"


@pytest.mark.parametrize("kind", FOR_RELEASES, ids=lambda kind: kind.name)
def test_counts_up_to_two_to_the_62_do_not_overflow(build_from, kind):
    large = 2**59
    space, table = build_from([[large, large], [large, large]], ["A", "B"], 3)
    measured = kind.calibrate(space, BUDGETS[kind.budget_kinds[0]]).apply(
        table, SeededRandomness(1)
    )
    assert np.abs(measured.noisy - table.counts).max() < 1000
    assert np.allclose(measured.projected.sum(axis=0), table.counts.sum(axis=0), rtol=1e-9)


def test_queries_and_noise_that_would_overflow_are_refused(build, monkeypatch):
    space, table = build((2, 2), ["A", "B"], a=3)
    mechanism = LaplaceMechanism.calibrate(space, Budget.pure(1))
    with pytest.raises(InputError, match="does not fit in 62 bits"):
        mechanism.measure(np.array([[2**62, 0], [0, 0]]), SeededRandomness(1))
    monkeypatch.setattr(LaplaceMechanism, "noise", lambda *_: np.full((2, 2), 2**62))
    with pytest.raises(Refused, match="does not fit in 63 bits"):
        mechanism.apply(table, SeededRandomness(1))


def test_the_wrong_table_is_refused_without_a_count(build):
    space, table = build((3, 3), ["A", "B"], a=3)
    mechanism = choose(space, Budget.gdp(1))
    counts = np.array(table.counts)
    counts[0, 0] += 1
    with pytest.raises(DataError, match="number of records") as more:
        mechanism.apply(Table(table.schema, counts))
    counts[0, 1] -= 1
    with pytest.raises(DataError, match="contradicts the published B") as moved:
        mechanism.apply(Table(table.schema, counts))
    for error in (more, moved):
        assert not any(character.isdigit() for character in str(error.value))
    with pytest.raises(InputError, match="calibrated for a table of A, B, not of A"):
        mechanism.apply(table.margin("A"))
    with pytest.raises(InputError, match="whole numbers"):
        mechanism.measure(np.zeros((3, 3)))
    with pytest.raises(InputError, match="shape"):
        mechanism.standard_error(np.ones(3))


def test_nothing_shows_a_confidential_count(build):
    space, table = build((3, 3), ["A", "B"], a=3)
    mechanism = choose(space, Budget.gdp(1))
    assert (
        repr(mechanism.apply(table))
        == "Measurement(mechanism='rounded gaussian', claim='exact', private=True)"
    )
    assert "array" not in repr(mechanism)
