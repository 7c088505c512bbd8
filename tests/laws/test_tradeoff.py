"""Laws of tradeoff functions: shape, groups, duality, order, JSON. Every family obeys every law."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import InputError
from semidp.promise.exact import exact, round_up
from semidp.promise.tradeoff.budget import (
    Budget,
    approximate,
    approximate_group,
    gaussian,
    laplace,
    zcdp,
)
from semidp.promise.tradeoff.composition import tradeoff_from_json
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.polygons import (
    Approximate,
    PiecewiseLinear,
    from_profile,
    piecewise,
)
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian, Laplace

ALPHAS = np.unique(
    np.concatenate(
        [np.linspace(0, 1, 201), np.geomspace(1e-12, 0.1, 60), 1 - np.geomspace(1e-12, 0.1, 60)]
    )
)

parameters = st.fractions(Fraction(1, 50), 6, max_denominator=50)
small = st.sampled_from(
    [Fraction(0), Fraction(1, 10**9), Fraction(1, 1000), Fraction(1, 20), Fraction(1, 3)]
)


@st.composite
def polygons(draw: st.DrawFn) -> PiecewiseLinear:
    """Convex corners from increasing slopes, scaled under the diagonal."""
    count = draw(st.integers(1, 4))
    widths = [draw(st.integers(1, 6)) for _ in range(count)]
    slopes = sorted(draw(st.integers(0, 12)) for _ in range(count))
    alphas, values = [Fraction(0)], [Fraction(0)]
    for width, slope in zip(widths, slopes, strict=True):
        alphas.append(alphas[-1] + Fraction(width, sum(widths)))
        values.append(values[-1] + Fraction(width * slope, sum(widths)))
    top = max(values[-1], Fraction(1, 10))
    shrink = draw(st.sampled_from([Fraction(1), Fraction(9, 10)])) / top
    return piecewise(alphas, [value * shrink for value in values])


symmetric_curves: st.SearchStrategy[Tradeoff] = st.one_of(
    st.builds(gaussian, parameters),
    st.builds(zcdp, parameters),
    st.builds(laplace, parameters),
    st.builds(approximate, parameters, small),
    polygons().map(lambda curve: curve.symmetric()),
)
curves: st.SearchStrategy[Tradeoff] = st.one_of(symmetric_curves, polygons())


@given(curves)
@settings(deadline=None)
def test_f_is_a_tradeoff_function(f: Tradeoff) -> None:
    values = f(ALPHAS)
    assert np.all(values >= 0)
    assert np.all(values <= ALPHAS)
    assert np.all(np.diff(values) >= -1e-14)
    slopes = np.diff(values) / np.diff(ALPHAS)
    assert np.all(np.diff(slopes) * np.minimum(np.diff(ALPHAS)[1:], np.diff(ALPHAS)[:-1]) >= -1e-13)
    assert f(0.25) == pytest.approx(f(np.array([0.25]))[0])


def truth(f: Tradeoff, alpha: float) -> mpmath.mpf:
    """f(alpha) from its formula, to 60 digits."""
    a = mpmath.mpf(alpha)
    match f:
        case Gaussian():
            z = mpmath.sqrt(2) * mpmath.erfinv(2 * a - 1) - mpmath.sqrt(real(f.mu_squared))
            return mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        case ZCDP():
            rho = mpmath.sqrt(real(f.rho))
            rare = mpmath.exp(-((mpmath.sqrt(-mpmath.log(a)) + rho) ** 2))
            gap = mpmath.sqrt(-mpmath.log(1 - a)) - rho
            return max(rare, -mpmath.expm1(-(max(gap, mpmath.mpf(0)) ** 2)))
        case Laplace():
            shift = real(f.epsilon0)
            point = (mpmath.log(2 * a) if 2 * a <= 1 else -mpmath.log(2 * (1 - a))) - shift
            return mpmath.exp(point) / 2 if point <= 0 else 1 - mpmath.exp(-point) / 2
        case Approximate():
            grow, lost = mpmath.exp(real(f.epsilon0)), real(f.delta0)
            for _ in range(f.size):
                a = max(mpmath.mpf(0), 1 - lost - grow * (1 - a), (a - lost) / grow)
            return a
    raise AssertionError


def real(x: Fraction) -> mpmath.mpf:
    return mpmath.mpf(x.numerator) / x.denominator


closed_forms: st.SearchStrategy[Tradeoff] = st.one_of(
    st.builds(gaussian, parameters),
    st.builds(zcdp, parameters),
    st.builds(laplace, parameters),
    st.builds(lambda e, d, k: approximate(e, d).group(k), parameters, small, st.integers(1, 4)),
)


@given(closed_forms, st.floats(1e-12, 1, exclude_max=True))
@settings(max_examples=400, deadline=None)
def test_values_are_never_above_the_truth_and_close_to_it(f: Tradeoff, alpha: float) -> None:
    with mpmath.workdps(60):
        exactly = truth(f, alpha)
        assert f(alpha) <= exactly
        assert f(alpha) >= exactly * (1 - mpmath.mpf("1e-11")) - mpmath.mpf("1e-14")


@given(symmetric_curves)
@settings(deadline=None)
def test_symmetric_curves_are_their_own_inverse(f: Tradeoff) -> None:
    assert f.is_symmetric
    inside = ALPHAS[(f(ALPHAS) > 1e-6) & (ALPHAS < 1)]
    assert np.allclose(f(1 - f(inside)), 1 - inside, atol=1e-9)


@given(polygons())
@settings(deadline=None)
def test_symmetrisation_is_the_larger_of_f_and_its_inverse(f: PiecewiseLinear) -> None:
    both = f.symmetric()
    mirror = f._reflection
    for alpha in (Fraction(i, 37) for i in range(38)):
        assert both.evaluate_exactly(alpha) == max(
            f.evaluate_exactly(alpha), mirror.evaluate_exactly(alpha)
        )
    assert both.is_symmetric
    assert both.symmetric() == both


@given(curves, st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None)
def test_groups_multiply(f: Tradeoff, j: int, k: int) -> None:
    assert f.group(j).group(k) == f.group(j * k)


@given(curves, st.integers(2, 4))
@settings(deadline=None)
def test_a_group_is_functional_composition(f: Tradeoff, k: int) -> None:
    values = ALPHAS
    for _ in range(k):
        values = f(values)
    inner = ALPHAS < 1 - 1e-6  # closer to 1, the rounding of f(alpha) itself is magnified
    # k² rho is what zCDP says about groups; around its kink composition says a little more
    if isinstance(f, ZCDP):
        assert np.all(f.group(k)(ALPHAS)[inner] <= values[inner] + 1e-11)
        return
    assert np.allclose(f.group(k)(ALPHAS)[inner], values[inner], rtol=1e-8, atol=1e-11)


@given(st.builds(approximate, parameters, small), st.integers(1, 5))
@settings(deadline=None)
def test_groups_beat_the_usual_formula(f: Approximate, k: int) -> None:
    """f_{eps,delta}∘…∘f >= f_{k eps, delta (e^{k eps}-1)/(e^eps-1)}, and the smallest pure epsilon
    is k eps.
    """
    grouped = f.group(k)
    total, delta = approximate_group(f.epsilon0, f.delta0, k)
    assert grouped.delta(total) <= delta
    assert grouped.compare(approximate(total, Fraction(delta))) in (Order.EQUAL, Order.STRONGER)
    if f.delta0 == 0:
        assert grouped.epsilon(0) == round_up(total)


def test_a_pure_pair_has_the_three_lines_of_the_closed_form() -> None:
    e = 0.7
    expected = np.maximum.reduce(
        [math.exp(-2 * e) * ALPHAS, ALPHAS - (1 - math.exp(-e)), 1 - math.exp(2 * e) * (1 - ALPHAS)]
    )
    assert np.allclose(approximate("0.7").group(2)(ALPHAS), expected, atol=1e-14)


@given(curves, st.fractions(0, 8, max_denominator=20))
@settings(max_examples=60, deadline=None)
def test_delta_is_the_dual_of_f(f: Tradeoff, epsilon: Fraction) -> None:
    """delta(eps) = sup_a [1 - e^eps (1 - a) - f(a)]: never below any point, and touched by some."""
    dense = np.unique(
        np.concatenate([np.linspace(0, 1, 20001), 1 - np.geomspace(1e-16, 0.5, 4001)])
    )
    gaps = 1 - math.exp(epsilon) * (1 - dense) - f(dense)
    delta = f.delta(epsilon)
    assert delta >= gaps.max() - 1e-13 * math.exp(epsilon)
    assert delta <= gaps.max() + 5e-5 * math.exp(epsilon)  # the grid may miss the kink


@given(curves, st.sampled_from(["1e-12", "1e-6", "0.001", "0.1", "0.5"]))
@settings(max_examples=60, deadline=None)
def test_epsilon_and_delta_are_inverse(f: Tradeoff, delta: str) -> None:
    epsilon = f.epsilon(delta)
    if math.isinf(epsilon):
        assert f.delta(10**4) > Fraction(delta)
        return
    assert f.delta(epsilon) <= round_up(Fraction(delta))
    if epsilon > 1e-6:
        assert f.delta(epsilon * (1 - 1e-6)) > float(Fraction(delta)) * (1 - 1e-4)


@given(curves, curves, curves)
@settings(max_examples=60, deadline=None)
def test_order_axioms(f: Tradeoff, g: Tradeoff, h: Tradeoff) -> None:
    assert f.compare(f) is Order.EQUAL
    assert f.compare(g) is g.compare(f).reverse()
    strong = (Order.STRONGER, Order.EQUAL)
    if f.compare(g) in strong and g.compare(h) in strong:
        assert f.compare(h) in strong


@given(curves, curves)
@settings(max_examples=100, deadline=None)
def test_order_agrees_with_the_values(f: Tradeoff, g: Tradeoff) -> None:
    gap = f(ALPHAS) - g(ALPHAS)
    order = f.compare(g)
    if order is Order.STRONGER:
        assert gap.min() >= -1e-9
    if order is Order.NOT_COMPARABLE:
        return  # the crossing may lie in the far tail
    if gap.min() < -1e-6:
        assert order is Order.WEAKER
    if gap.max() > 1e-6:
        assert order is Order.STRONGER


def test_known_orders() -> None:
    assert gaussian(1).compare(gaussian(2)) is Order.STRONGER
    assert gaussian(1) > gaussian(2)
    assert gaussian(1) >= gaussian(1)
    assert not gaussian(1) > gaussian(1)
    assert gaussian(2) < gaussian(1)
    assert gaussian(2) <= gaussian(1)
    crossing = (gaussian(1) >= approximate(1), gaussian(1) <= approximate(1))
    assert crossing == (False, False)
    assert gaussian(1).compare(zcdp("1/2")) is Order.STRONGER  # mu-GDP implies mu²/2-zCDP
    assert laplace(1).compare(approximate(1)) is Order.STRONGER
    assert gaussian(1).compare(approximate(1)) is Order.NOT_COMPARABLE
    assert approximate(1).compare(approximate(1, "1e-9")) is Order.STRONGER
    assert approximate(1, "1e-3").compare(approximate(2, "1e-4")) is Order.NOT_COMPARABLE
    assert piecewise([0, 1], [0, 1]).compare(gaussian(0)) is Order.EQUAL


@given(curves)
@settings(deadline=None)
def test_json_is_exact(f: Tradeoff) -> None:
    assert tradeoff_from_json(f.to_json()) == f


@given(
    st.lists(
        st.tuples(
            st.fractions(0, 4, max_denominator=10),
            st.fractions(0, Fraction(1, 2), max_denominator=100),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_profile_says_what_it_was_given_and_no_more(
    points: list[tuple[Fraction, Fraction]],
) -> None:
    f = from_profile(points)
    for epsilon, delta in points:
        assert f.delta(epsilon) <= float(delta) + 1e-12
    expected = np.maximum.reduce([approximate(e, d)(ALPHAS) for e, d in points])
    assert np.allclose(f(ALPHAS), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("alphas", "values"),
    [
        ([0, 1], [0, "1.1"]),
        ([0, 1], ["-0.1", 1]),
        ([0, "0.5", 1], [0, "0.4", "0.3"]),
        ([0, "0.5", 1], [0, "0.5", "0.6"]),
        ([0, "0.5"], [0, "0.5"]),
        ([0, "0.7", "0.5", 1], [0, 0, 0, 1]),
        ([0, 1], [0]),
        ([0, 1], [0, math.nan]),
    ],
)
def test_bad_corners_are_refused(alphas: list[object], values: list[object]) -> None:
    with pytest.raises(InputError):
        piecewise(alphas, values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: gaussian(-1),
        lambda: approximate(-1),
        lambda: approximate(1, 2),
        lambda: approximate(1, math.nan),
        lambda: zcdp("-1/2"),
        lambda: laplace("nan"),
        lambda: gaussian(1).group(0),
        lambda: gaussian(1).group(True),
        lambda: gaussian(1)(1.5),
        lambda: gaussian(1)(math.nan),
        lambda: zcdp(1).delta(-1),
        lambda: zcdp(1).epsilon(2),
        lambda: from_profile([]),
        lambda: tradeoff_from_json({"kind": "magic"}),
    ],
)
def test_bad_input_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        wrong()  # type: ignore[operator]


def test_limits() -> None:
    assert gaussian(0).delta(0) == 0.0
    assert gaussian(1).epsilon(0) == math.inf
    assert gaussian(1).epsilon(1) == 0.0
    assert zcdp(1).epsilon(0) == math.inf
    assert approximate(0, 1).delta(5) == 1.0
    assert approximate(1, 1)(0.5) == 0.0
    assert gaussian("1e-9").delta("1e-3") >= 0.0
    assert 0 < gaussian(1).delta(60) < 1e-300
    assert gaussian(1).delta(1000) == math.ulp(0.0)
    assert approximate(800).delta(1) == 1.0
    assert approximate(800).epsilon(0) == 800.0
    assert zcdp(0)(0.3) == 0.3


@pytest.mark.parametrize(
    "f",
    [
        gaussian("1e6"),
        gaussian("1e-90"),
        zcdp("1e5"),
        zcdp("1e-90"),
        laplace(800),
        laplace("1e-90"),
        approximate("1e5"),
        approximate("1e-50", "1e-300"),
        approximate("1e14"),
        approximate(1).group(10**6),
        approximate("0.001", "1e-9").group(10**5),
    ],
    ids=str,
)
def test_extreme_parameters_stay_sound(f: Tradeoff) -> None:
    values = f(ALPHAS)
    assert np.all((values >= 0) & (values <= ALPHAS))
    for epsilon in (0, 1, 100):
        assert f.delta(epsilon) >= (
            1 - math.exp(epsilon) * (1 - ALPHAS) - values
        ).max() - 1e-12 * math.exp(epsilon)
        assert f.delta(epsilon) <= 1
    weak = f.epsilon("1e-10")
    assert f.delta(weak) <= 1.0000001e-10 if math.isfinite(weak) else f.delta(10**6) > 1e-10
    assert f.compare(f) is Order.EQUAL


def test_parameters_beyond_arithmetic_are_refused() -> None:
    for wrong in (
        lambda: gaussian("1e300"),
        lambda: zcdp("1e-300"),
        lambda: approximate("1e300"),
        lambda: laplace("1e99"),
    ):
        with pytest.raises(InputError, match="between 1e-100 and 1e15"):
            wrong()
    with pytest.raises(InputError, match="whole group"):
        approximate("1e10").group(10**6)


@pytest.mark.parametrize(
    "numbers",
    [
        {"kind": "pure", "epsilon": Fraction(1), "delta": Fraction(1, 2)},
        {"kind": "pure", "epsilon": Fraction(1)},
        {"kind": "zcdp", "mu": Fraction(1)},
        {"kind": "approximate", "epsilon": 1.0, "delta": 0.5},
        {"kind": "other"},
    ],
)
def test_a_budget_made_by_hand_has_the_numbers_of_its_kind(numbers: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a budget"):
        Budget(**numbers)  # type: ignore[arg-type]


def test_a_curve_of_hundreds_of_digits_is_read_back() -> None:
    """Several regressions by weighted sums compose to such fractions: what is written must be
    read.
    """
    for digits in (20, 399, 401, 1500):
        share = Fraction(10**digits + 7, 3 * 10**digits + 1)
        curve = Gaussian(share)
        assert tradeoff_from_json(json.loads(json.dumps(curve.to_json()))) == curve
    for text in (f"{10**500}/3", f"1/{10**3000}", f"{'9' * 5000}/{'9' * 5000}", "1/0"):
        with pytest.raises(InputError, match="must be a number such as"):
            exact(text)
