"""Training runs for groups of records: against dp-accounting, against functional composition, against brute force."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from scipy.stats import multivariate_normal

from semidp.accounting import dp_sgd, event_guarantee, event_tradeoff, functional_tradeoff
from semidp.accounting.events import Mixture
from semidp.errors import InputError, Refused
from semidp.spaces import Adjacency, Dataspace
from semidp.tradeoff import Tradeoff, gaussian, zcdp

REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
RUN = dp_sgd(noise_multiplier=1.0, sample_rate=0.05, steps=40)
DELTA = "1e-5"


@cache
def ours(a: int, relation: NeighboringRelation) -> Tradeoff:
    return event_tradeoff(RUN, a, relation)


def theirs(event: dp_event.DpEvent, relation: NeighboringRelation, step: float = 1e-3) -> float:
    accountant = PLDAccountant(relation, step)
    accountant.compose(event)
    return accountant.get_epsilon(float(DELTA))


@pytest.mark.parametrize("relation", [REMOVE, REPLACE])
def test_one_record_matches_dp_accounting(relation):
    assert ours(1, relation).epsilon(DELTA) == pytest.approx(theirs(RUN, relation), rel=2e-3)


@pytest.mark.parametrize("a", [2, 3])
def test_groups_match_dp_accountings_own_group_accounting(a):
    weights = [math.comb(a, k) * 0.05**k * 0.95 ** (a - k) for k in range(a + 1)]
    group = dp_event.SelfComposedDpEvent(dp_event.MixtureOfGaussiansDpEvent(1.0, list(range(a + 1)), weights), 40)
    expected = theirs(group, REMOVE, 2e-3)
    assert ours(a, REMOVE).epsilon(DELTA) == pytest.approx(expected, rel=5e-3)
    assert event_tradeoff(group, 1, REMOVE).epsilon(DELTA) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("relation", [REMOVE, REPLACE])
@pytest.mark.parametrize("a", [2, 3])
def test_group_accounting_is_never_above_functional_composition(relation, a):
    group, functional = ours(a, relation), functional_tradeoff(RUN, a, relation)
    for delta in ("1e-3", "1e-5", "1e-7"):
        assert group.epsilon(delta) <= functional.epsilon(delta)
    assert group.epsilon(DELTA) < 0.99 * functional.epsilon(DELTA)


def test_replacing_is_harder_to_hide_than_removing_and_two_than_one():
    epsilons = [[ours(a, relation).epsilon(DELTA) for a in (1, 2)] for relation in (REMOVE, REPLACE)]
    assert epsilons[0][0] < epsilons[0][1] < epsilons[1][1]
    assert epsilons[0][0] < epsilons[1][0] < epsilons[1][1]


def test_without_sampling_everything_is_gaussian_and_exact():
    """Replacing one of n clipped gradients moves their sum by two clipping norms: mu = 2a √T / σ."""
    assert event_tradeoff(dp_sgd(3.0, 1.0, 9), 2) == gaussian(4)
    assert event_tradeoff(dp_sgd(3.0, 1.0, 9), 2, REMOVE) == gaussian(2)
    mixed = dp_event.ComposedDpEvent(
        [dp_event.GaussianDpEvent(2.0), dp_event.NoOpDpEvent(), dp_event.GaussianDpEvent(2.0)]
    )
    assert event_tradeoff(mixed, 1, REMOVE).mu_squared == Fraction(1, 2)
    assert event_tradeoff(dp_sgd(1.0, 0.0, 10), 2).is_trivial
    assert event_tradeoff(dp_sgd(1.0, 0.1, 0), 2).is_trivial


def test_a_sampled_and_a_plain_gaussian_compose():
    both = dp_event.ComposedDpEvent([RUN, dp_event.GaussianDpEvent(4.0)])
    assert event_tradeoff(both, 1).epsilon(DELTA) == pytest.approx(theirs(both, REPLACE), rel=3e-3)


def test_several_gaussians_on_one_sample_count_as_one():
    twice = dp_event.PoissonSampledDpEvent(0.1, dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(2.0), 4))
    once = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0))
    assert event_tradeoff(twice, 2).epsilon(DELTA) == event_tradeoff(once, 2).epsilon(DELTA)


def test_zcdp_parts_keep_their_square_law():
    assert event_tradeoff(dp_event.SelfComposedDpEvent(dp_event.ZCDpEvent(0.25), 2), 3) == zcdp("4.5")


def test_other_events_fall_back_to_functional_composition():
    laplace = dp_event.LaplaceDpEvent(2.0)
    assert event_tradeoff(laplace, 2, REMOVE).epsilon("1e-9") == pytest.approx(1.0, abs=0.01)
    batches = dp_event.SampledWithoutReplacementDpEvent(1000, 10, dp_event.GaussianDpEvent(2.0))
    run = dp_event.SelfComposedDpEvent(batches, 20)
    assert 0 < event_tradeoff(run, 1).epsilon(DELTA) < event_tradeoff(run, 2).epsilon(DELTA)


def test_what_cannot_be_guaranteed_is_refused():
    for event in (dp_event.NonPrivateDpEvent(), dp_event.GaussianDpEvent(0.0)):
        with pytest.raises(Refused, match="without any privacy"):
            event_tradeoff(event, 2)
    with pytest.raises(Refused, match="UnsupportedDpEvent"):
        event_tradeoff(dp_event.UnsupportedDpEvent(), 2)
    with pytest.raises(InputError, match=r"give a dp_accounting\.DpEvent"):
        event_tradeoff("an event", 2)
    for settings in ((0.0, 0.1, 1), (1.0, 1.1, 1), (1.0, 0.1, -1)):
        with pytest.raises(InputError, match="DP-SGD needs"):
            dp_sgd(*settings)


def test_a_guarantee_names_its_dataspace():
    space = Dataspace.described("enrolment by school")
    found = event_guarantee(dp_sgd(2.0, 1.0, 1), space, Adjacency(2))
    assert (found.dataspace, found.adjacency.a, found.tradeoff) == (space, 2, gaussian(2))
    assert event_guarantee(RUN, space, Adjacency(0)).tradeoff.is_trivial


@pytest.mark.parametrize("replaced", [True, False])
def test_no_choice_of_contributions_is_worse_than_the_mixture(replaced):
    """Kahane's inequality, held against random contributions of two records in the plane, by quadrature."""
    source = np.random.default_rng(11)
    rate, norm = 0.3, 1.2
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / norm))
    mixture = Mixture.of(event, 2, replaced)
    axis = np.linspace(-9, 9, 181)
    points = np.stack(np.meshgrid(axis, axis), axis=-1)
    cell = (axis[1] - axis[0]) ** 2
    chosen = [(False, False), (True, False), (False, True), (True, True)]
    weights = [rate ** sum(s) * (1 - rate) ** (2 - sum(s)) for s in chosen]

    def density(vectors: np.ndarray) -> np.ndarray:
        centres = [np.array(s, dtype=float) @ vectors for s in chosen]
        return sum(w * multivariate_normal(c).pdf(points) for w, c in zip(weights, centres, strict=True))

    epsilons = np.array([0.0, 0.2, 0.7, 1.5])
    bounds = [mixture.deltas(epsilons, back=False), mixture.deltas(epsilons, back=True)]
    attained = 0.0
    for trial in range(25):
        one, other = (v / np.linalg.norm(v, axis=1, keepdims=True) * norm for v in source.normal(size=(2, 2, 2)))
        if trial == 0:
            one = np.array([[norm, 0.0], [norm, 0.0]])
            other = -one
        first, second = density(one), density(other if replaced else 0 * other)
        for back, bound in enumerate(bounds):
            p, q = (second, first) if back else (first, second)
            found = np.array([np.maximum(p - math.exp(e) * q, 0).sum() * cell for e in epsilons])
            assert (found <= bound + 3e-4).all()  # what the quadrature makes of the kink
            attained = max(attained, float((found[:2] / bound[:2]).max()))
    assert attained > 0.999
