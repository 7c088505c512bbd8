"""Laws of composition: commutative, associative, below the truth, and Semi-DP first is never
worse.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.promise.tradeoff.budget import approximate, gaussian, laplace, zcdp
from semidp.promise.tradeoff.composition import (
    Composed,
    Losses,
    compose,
    convolve_all,
    tradeoff_from_json,
)
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.polygons import piecewise
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

mpmath.mp.dps = 50
ALPHAS = np.unique(
    np.concatenate(
        [np.linspace(0, 1, 101), np.geomspace(1e-6, 0.1, 40), 1 - np.geomspace(1e-6, 0.1, 40)]
    )
)


def grid_error(*curves: Tradeoff) -> float:
    """The stated numerical error of compositions, in f and in delta: half a grid step per part."""
    return 1e-13 + sum(
        curve.step * len(curve.parts) / 2 for curve in curves if isinstance(curve, Composed)
    )


sizes = st.fractions(Fraction(1, 20), 2, max_denominator=20)
parts: st.SearchStrategy[Tradeoff] = st.one_of(
    st.builds(gaussian, sizes),
    st.builds(laplace, sizes),
    st.builds(
        approximate, sizes, st.sampled_from([Fraction(0), Fraction(1, 10**6), Fraction(1, 100)])
    ),
    st.sampled_from([piecewise([0, "1/2", 1], [0, "1/4", 1]), piecewise([0, "1/3", 1], [0, 0, 1])]),
)


@given(st.lists(sizes, min_size=1, max_size=6))
@settings(deadline=None)
def test_gaussians_compose_in_closed_form(mus: list[Fraction]) -> None:
    assert compose(*map(gaussian, mus)) == Gaussian(sum((mu**2 for mu in mus), Fraction(0)))


@given(st.lists(sizes, min_size=1, max_size=6))
@settings(deadline=None)
def test_zcdp_adds_and_takes_in_what_implies_zcdp(rhos: list[Fraction]) -> None:
    total = sum(rhos, Fraction(0))
    assert compose(*map(zcdp, rhos)) == ZCDP(total)
    assert compose(zcdp(1), *(Gaussian(2 * rho) for rho in rhos)) == ZCDP(1 + total)
    assert compose(zcdp(1), approximate(Fraction(1, 2))) == ZCDP(Fraction(9, 8))


@given(parts, parts, parts)
@settings(max_examples=30, deadline=None)
def test_composition_is_commutative_and_associative(f: Tradeoff, g: Tradeoff, h: Tradeoff) -> None:
    assert f.compose(g) == g.compose(f)
    assert f.compose(g).compose(h) == f.compose(g.compose(h)) == compose(h, f, g)
    assert tradeoff_from_json(compose(f, g, h).to_json()) == compose(f, g, h)


def test_nothing_is_the_neutral_element() -> None:
    assert compose(laplace(1), gaussian(0), approximate(0)) == laplace(1)
    assert compose() == gaussian(0)


@given(parts, parts)
@settings(max_examples=15, deadline=None)
def test_a_composition_is_a_tradeoff_function_below_its_parts(f: Tradeoff, g: Tradeoff) -> None:
    both = f.compose(g)
    values = both(ALPHAS)
    assert np.all((values >= 0) & (values <= ALPHAS))
    assert np.all(np.diff(values) >= -1e-12)
    assert np.all(np.diff(np.diff(values) / np.diff(ALPHAS)) * np.diff(ALPHAS)[1:] >= -1e-10)
    for part in (f.symmetric(), g.symmetric()):
        assert np.all(values <= part(ALPHAS) + 1e-12)


@given(parts, parts, st.integers(2, 3))
@settings(max_examples=15, deadline=None)
def test_semi_dp_first_is_never_worse(f: Tradeoff, g: Tradeoff, k: int) -> None:
    """(f ⊗ g)∘…∘(f ⊗ g) <= f∘…∘f ⊗ g∘…∘g (Cho and Awan, Section 3.6), up to the grid's error."""
    f, g = f.symmetric(), g.symmetric()
    composition_first = f.compose(g).group(k)
    semi_first = f.group(k).compose(g.group(k))
    error = grid_error(semi_first)
    assert np.all(composition_first(ALPHAS) <= semi_first(ALPHAS) + error)
    for epsilon in (0, 1, 3):
        assert composition_first.delta(epsilon) >= semi_first.delta(epsilon) - error


@given(st.lists(sizes, min_size=2, max_size=4), st.integers(2, 3))
@settings(max_examples=15, deadline=None)
def test_a_group_facing_a_composition_composes_the_curve(epsilons: list[Fraction], k: int) -> None:
    both = compose(*map(laplace, epsilons))
    values = ALPHAS
    for _ in range(k):
        values = both(values)
    grouped = both.group(k)
    assert np.allclose(grouped(ALPHAS), values, atol=1e-9)
    assert grouped.group(2) == both.group(2 * k)
    assert grouped.implied_epsilon() == k * sum(epsilons)
    dense = np.linspace(0, 1, 4001)
    gaps = 1 - math.e * (1 - dense) - grouped(dense)
    assert gaps.max() - 1e-12 <= grouped.delta(1) <= gaps.max() + 1e-2


def pure_delta(epsilons: list[Fraction], epsilon: Fraction) -> mpmath.mpf:
    """delta(epsilon) of the composition of pure mechanisms, by all sign patterns (Murtagh and
    Vadhan 2016).
    """
    total = mpmath.mpf(0)
    weight = mpmath.mpf(1)
    for e in epsilons:
        weight /= 1 + mpmath.exp(mpmath.mpf(e.numerator) / e.denominator)
    target = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    for signs in itertools.product((0, 1), repeat=len(epsilons)):
        one = sum((e for e, sign in zip(epsilons, signs, strict=True) if sign), Fraction(0))
        other = sum(epsilons, Fraction(0)) - one
        here = mpmath.exp(mpmath.mpf(one.numerator) / one.denominator)
        there = mpmath.exp(mpmath.mpf(other.numerator) / other.denominator)
        total += weight * max(here - target * there, 0)
    return total


@given(st.lists(sizes, min_size=2, max_size=5), st.fractions(0, 4, max_denominator=10))
@settings(max_examples=25, deadline=None)
def test_pure_compositions_against_enumeration(epsilons: list[Fraction], epsilon: Fraction) -> None:
    truth = pure_delta(epsilons, epsilon)
    claim = compose(*map(approximate, epsilons)).delta(epsilon)
    assert truth <= claim <= truth + 1e-12  # the grid holds every loss, so nothing is rounded


@given(sizes, sizes, st.fractions(0, 4, max_denominator=10))
@settings(max_examples=20, deadline=None)
def test_gaussian_with_pure_against_the_mixture(
    mu: Fraction, e: Fraction, epsilon: Fraction
) -> None:
    """A pure part adds ±e to the loss, so delta is a mixture of two Gaussian deltas, at epsilon ∓
    e.
    """

    def normal(target: mpmath.mpf) -> mpmath.mpf:
        m = mpmath.mpf(mu.numerator) / mu.denominator
        return mpmath.ncdf(m / 2 - target / m) - mpmath.exp(target) * mpmath.ncdf(
            -m / 2 - target / m
        )

    shift, target = (mpmath.mpf(x.numerator) / x.denominator for x in (e, epsilon))
    up, down = 1 / (1 + mpmath.exp(-shift)), 1 / (1 + mpmath.exp(shift))
    truth = up * normal(target - shift) + down * normal(target + shift)
    curve = compose(gaussian(mu), approximate(e))
    assert truth <= curve.delta(epsilon) <= truth + grid_error(curve)


def test_far_tails_stay_tight() -> None:
    """At delta = 1e-10 the bound on the round-off costs next to nothing."""
    curve = compose(gaussian(1), approximate(1))
    low, high = mpmath.mpf(5), mpmath.mpf(10)
    up, down = 1 / (1 + mpmath.exp(-1)), 1 / (1 + mpmath.exp(1))

    def delta(x: mpmath.mpf) -> mpmath.mpf:
        def one(y: mpmath.mpf) -> mpmath.mpf:
            return mpmath.ncdf(mpmath.mpf(1) / 2 - y) - mpmath.exp(y) * mpmath.ncdf(
                -mpmath.mpf(1) / 2 - y
            )

        return up * one(x - 1) + down * one(x + 1)

    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > mpmath.mpf("1e-10") else (low, middle)
    assert high <= curve.epsilon("1e-10") <= high * (1 + mpmath.mpf("1e-6"))


def test_it_agrees_with_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    curve = compose(gaussian(1), laplace(1), laplace("1/2"))
    assert isinstance(curve, Composed)
    peer = pld.from_gaussian_mechanism(1.0, value_discretization_interval=curve.step)
    for scale in (1.0, 2.0):
        peer = peer.compose(
            pld.from_laplace_mechanism(scale, value_discretization_interval=curve.step)
        )
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        assert curve.delta(epsilon) == pytest.approx(peer.get_delta_for_epsilon(epsilon), rel=1e-6)
    assert curve.epsilon("1e-6") == pytest.approx(peer.get_epsilon_for_delta(1e-6), rel=1e-6)


def test_pure_parts_keep_their_pure_epsilon_exactly() -> None:
    ten = compose(*(approximate("0.1") for _ in range(10)))
    assert ten.implied_epsilon() == 1
    assert ten.epsilon(0) == 1.0
    assert ten.delta(1) == 0.0
    assert ten.compare(approximate(1)) is Order.STRONGER


def test_fourier_and_plain_convolution_agree() -> None:
    step = 2.0**-9
    one = Losses.from_deltas(gaussian(1)._deltas, step, 9.0)
    plain = np.convolve(one.masses, one.masses)
    summed = one.convolve(one)
    offset = summed.lowest - 2 * one.lowest
    assert len(one.masses) ** 2 > 1 << 21
    assert (
        np.abs(summed.masses[1:] - plain[offset + 1 :][: len(summed.masses) - 1]).sum()
        < summed.infinite
    )
    assert summed.infinite < 1e-12


def test_losses_never_lose_mass() -> None:
    parts = [
        Losses.from_deltas(laplace(Fraction(1, k))._deltas, 2.0**-10, 1 / k)
        for k in (1, 2, 3, 4, 5)
    ]
    total = convolve_all(parts)
    assert 1 <= total.masses.sum() + total.infinite < 1 + 1e-9


def test_losses_beyond_the_range_of_floats_are_never_forgotten() -> None:
    curve = compose(laplace(800), gaussian(30))
    assert curve.epsilon("1e-10") > 800
    assert curve.delta(790) > 0.4


def mixture_delta(mu: mpmath.mpf, shift: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """delta(epsilon) of a Gaussian and a pure part together: a mixture of two Gaussian deltas."""

    def normal(target: mpmath.mpf) -> mpmath.mpf:
        return mpmath.ncdf(mu / 2 - target / mu) - mpmath.exp(target) * mpmath.ncdf(
            -mu / 2 - target / mu
        )

    up, down = 1 / (1 + mpmath.exp(-shift)), 1 / (1 + mpmath.exp(shift))
    return up * normal(epsilon - shift) + down * normal(epsilon + shift)


@pytest.mark.parametrize("delta", ["1e-15", "1e-30", "1e-100"])
def test_the_best_of_the_proven_bounds_reaches_any_delta(delta: str) -> None:
    """Arithmetic ends the numeric curve near 1e-15; basic composition and zCDP go on."""
    curve = compose(approximate(1), gaussian(1))
    found = curve.epsilon(delta)
    assert found <= 1 + gaussian(1).epsilon(delta) + 1e-9
    assert found <= ZCDP(Fraction(1)).epsilon(delta) + 1e-9
    # and it is true
    assert mixture_delta(mpmath.mpf(1), mpmath.mpf(1), mpmath.mpf(found)) <= mpmath.mpf(delta)
    assert curve.delta(Fraction(found)) <= float(delta) * (1 + 1e-9)
    group = curve.group(2)
    assert math.isfinite(group.epsilon(delta))
    assert group.epsilon(delta) <= ZCDP(Fraction(4)).epsilon(delta) + 1e-9
    assert group.epsilon(delta) >= curve.epsilon(delta)


def test_basic_composition_keeps_the_deltas_of_its_parts() -> None:
    lossy = Fraction(1, 10**20)
    curve = compose(approximate(1, lossy), gaussian(1), laplace("1/2"))
    assert math.isinf(curve.epsilon(lossy))  # the Gaussian needs some more
    assert curve.epsilon(2 * lossy) <= 1.5 + gaussian(1).epsilon(lossy * Fraction(99, 100))
    assert curve.epsilon(2 * lossy) >= gaussian(1).epsilon(2 * lossy)
