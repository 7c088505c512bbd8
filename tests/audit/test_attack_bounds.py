"""Bounds are exact: they hold as often as they say, and the units agree with the curves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from semidp.assess import Pair, audit_mechanism
from semidp.assess.attack_bounds import Bound, Point, allowed_power, at_least, at_most, best_bound
from semidp.errors import InputError
from semidp.promise.tradeoff.budget import approximate, gaussian, laplace, zcdp


@given(st.integers(1, 200), st.data())
def test_bounds_are_those_of_clopper_and_pearson(trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, trials))
    expected = binomtest(hits, trials).proportion_ci(confidence_level=0.998)
    assert float(at_least(hits, trials, 1e-3)) == pytest.approx(expected.low, abs=1e-12)
    assert float(at_most(hits, trials, 1e-3)) == pytest.approx(expected.high, abs=1e-12)


@pytest.mark.parametrize("truth", [0.001, 0.1, 0.5, 0.93])
def test_bounds_fail_no_more_often_than_they_may(truth: float) -> None:
    hits = np.arange(301)
    probabilities = binom.pmf(hits, 300, truth)
    assert probabilities[at_least(hits, 300, 0.01) > truth].sum() <= 0.01
    assert probabilities[at_most(hits, 300, 0.01) < truth].sum() <= 0.01


@given(st.floats(0.001, 0.9), st.floats(0.05, 3))
def test_a_point_on_a_curve_has_the_parameter_of_the_curve(size: float, parameter: float) -> None:
    def on(claim: object) -> Point:
        power = float(allowed_power(claim, size))  # type: ignore[arg-type]
        return Point("", size, power, size, power, power)

    assert on(gaussian(parameter)).mu == pytest.approx(parameter, rel=1e-6)
    assert on(approximate(parameter)).epsilon() == pytest.approx(parameter, rel=1e-6)
    assert on(approximate(parameter, "0.01")).epsilon(0.01) == pytest.approx(parameter, rel=1e-6)
    assert on(zcdp(parameter)).rho == pytest.approx(parameter, rel=1e-5)


@given(st.floats(0.001, 0.9), st.floats(0.01, 0.99), st.floats(0.05, 3))
def test_a_point_convicts_exactly_where_its_bound_exceeds_the_claim(
    size: float, power: float, claimed: float
) -> None:
    for claim in (
        gaussian(claimed),
        zcdp(claimed),
        approximate(claimed),
        approximate(claimed, "0.001"),
    ):
        point = Point("", size, power, size, power, float(allowed_power(claim, size)))
        found = best_bound(claim, (point,))
        if abs(found.measured - claimed) > 1e-6 * claimed:
            assert point.convicts == (found.measured > found.claimed)


def test_any_other_curve_is_measured_by_the_power_it_allows() -> None:
    claim = laplace(1)
    point = Point("l1", 0.1, 0.2, 0.1, 0.2, float(allowed_power(claim, 0.1)))
    assert best_bound(claim, (point,)) == Bound("power at size 0.1", 0.2, point.allowed)


@pytest.mark.parametrize("samples", [10, -1, 2.5, True])
def test_too_few_samples_are_refused(samples: int) -> None:
    with pytest.raises(InputError, match="at least 1,000 samples"):
        audit_mechanism(
            lambda values, count, words: values, Pair([1], [2]), gaussian(1), samples=samples
        )


@pytest.mark.parametrize("error", [0.0, 1.0, float("nan")])
def test_an_impossible_error_is_refused(error: float) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        audit_mechanism(
            lambda values, count, words: values, Pair([1], [2]), gaussian(1), error=error
        )


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match="must give an array of shape"):
        audit_mechanism(
            lambda values, count, words: values, Pair([1], [2]), gaussian(1), samples=1_000
        )


def test_outputs_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="finite numbers"):
        audit_mechanism(
            lambda values, count, words: np.full((count, 1), np.nan),
            Pair([1], [2]),
            gaussian(1),
            samples=1_000,
        )
