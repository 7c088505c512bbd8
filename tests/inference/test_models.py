"""Models of a released table: maximum likelihood without noise, known errors with it, and what is
refused.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binom

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.measured import measured_table
from semidp.inference.models import DesignMatrix, Formula, logistic_fit, loglinear_fit, model
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

LEVELS = {"class": ["1", "2", "3"], "sex": ["f", "m"]}
DESIGN = DesignMatrix.from_formula(Formula.parse("y ~ class + sex"), LEVELS).matrix
RECORDS = np.array([40.0, 60.0, 50.0, 80.0, 90.0, 120.0])
TRUTH = np.array([1.0, -0.5, -1.2, -0.8])


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("y ~ a", (("a",),)),
        ("y~a*b", (("a",), ("b",), ("a", "b"))),
        ("y ~ a:b + b:a + c", (("c",), ("a", "b"))),
        (
            "~ a * b * c",
            (("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")),
        ),
        ("y ~ 1", ()),
    ],
)
def test_formulas_are_read(text: str, terms: tuple[tuple[str, ...], ...]) -> None:
    assert Formula.parse(text).terms == terms


@pytest.mark.parametrize(
    "text", ["y", "y ~ a ~ b", "y ~ a + y", "y ~ a +", "y ~ (a + b)", "y ~ a - b", "y ~ a : "]
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Formula.parse(text)


def test_without_noise_it_is_maximum_likelihood() -> None:
    source = np.random.default_rng(1)
    cases = source.binomial(RECORDS.astype(int), expit(DESIGN @ TRUTH)).astype(float)
    fit = logistic_fit(DESIGN, cases, RECORDS, np.zeros((12, 12)))

    def deviance(beta: np.ndarray) -> float:
        prior = (beta[1:] ** 2).sum() / 50  # the weak prior, without that of the intercept
        return float(-binom.logpmf(cases, RECORDS, expit(DESIGN @ beta)).sum() + prior)

    best = minimize(deviance, np.zeros(4), tol=1e-10).x
    np.testing.assert_allclose(fit.coefficients, best, atol=2e-3)
    p = expit(DESIGN @ best)
    information = DESIGN.T @ (DESIGN * (RECORDS * p * (1 - p))[:, None])
    np.testing.assert_allclose(
        np.sqrt(np.diag(fit.covariance)), np.sqrt(np.diag(np.linalg.inv(information))), rtol=0.02
    )


def test_log_linear_models_agree_with_logistic_ones() -> None:
    """The coefficient of sex:vote in ~ sex * vote is that of sex in vote ~ sex, noise included."""
    counts = np.array([30.0, 50.0, 45.0, 20.0])  # sex × vote
    root = np.random.default_rng(2).normal(0, 1, (4, 4))
    noise = root @ root.T
    design = DesignMatrix.from_formula(
        Formula.parse("~ sex * vote"), {"sex": ["f", "m"], "vote": ["n", "y"]}
    )
    counted = loglinear_fit(design.matrix, counts, noise)
    take = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]], dtype=float)
    sums = take @ counts
    one = DesignMatrix.from_formula(Formula.parse("vote ~ sex"), {"sex": ["f", "m"]})
    rates = logistic_fit(one.matrix, sums[:2], sums[2:], take @ noise @ take.T)
    assert counted.coefficients[3] == pytest.approx(rates.coefficients[1], abs=0.02)
    assert counted.covariance[3, 3] == pytest.approx(rates.covariance[1, 1], rel=0.05)


def coverage(known: bool, runs: int = 400) -> float:
    """How often intervals hold the true coefficients where cases have noise of standard deviation
    6.
    """
    source, held = np.random.default_rng(3), []
    noise = np.zeros((12, 12))
    noise[:6, :6] = 36 * np.eye(6)
    for _ in range(runs):
        cases = source.binomial(RECORDS.astype(int), expit(DESIGN @ TRUTH)) + source.normal(0, 6, 6)
        fit = logistic_fit(DESIGN, cases, RECORDS, noise * known)
        half = 1.96 * np.sqrt(np.diag(fit.covariance))
        held.append(np.abs(fit.coefficients - TRUTH) <= half)
    return float(np.mean(held))


def test_intervals_hold_and_those_that_forget_the_noise_do_not() -> None:
    # Four standard deviations of a share of 400 runs, whose coefficients may be wholly dependent.
    margin = 4 * math.sqrt(0.95 * 0.05 / 400)
    assert abs(coverage(True) - 0.95) < margin
    assert coverage(False) < 0.95 - margin


def test_small_coverage_by_enumeration() -> None:
    """One group against another, every count and every noise: exact coverage of the log-odds
    ratio.
    """
    design = np.array([[1.0, 0.0], [1.0, 1.0]])
    records = np.array([12.0, 15.0])
    truth = np.array([-0.4, 0.9])
    p = expit(design @ truth)
    steps = {-3: 0.15, -1: 0.2, 0: 0.3, 1: 0.2, 3: 0.15}
    variance = sum(step**2 * share for step, share in steps.items())
    seen: dict[tuple[int, int], float] = {}
    for x, y, a, b in itertools.product(range(13), range(16), steps, steps):
        share = binom.pmf(x, 12, p[0]) * binom.pmf(y, 15, p[1]) * steps[a] * steps[b]
        seen[x + a, y + b] = seen.get((x + a, y + b), 0.0) + share
    held = {True: 0.0, False: 0.0}
    for known in held:
        noise = np.diag([variance, variance, 0.0, 0.0]) * known
        for cases, share in seen.items():
            if share < 1e-5:
                continue
            # Who forgets the noise has to clip what noise has made impossible.
            counts = np.array(cases, dtype=float) if known else np.clip(cases, 0.0, records)
            fit = logistic_fit(design, counts, records, noise)
            half = 1.96 * math.sqrt(fit.covariance[1, 1])
            held[known] += share * (abs(fit.coefficients[1] - truth[1]) <= half)
    assert held[True] > 0.94
    assert held[False] < 0.92


def people(n: int = 900) -> dict[str, list[str]]:
    source = np.random.default_rng(4)
    ward, sex = source.integers(0, 3, n), source.integers(0, 2, n)
    ill = source.random(n) < expit(-1 + 0.8 * ward - 0.9 * sex)
    return {
        "ward": [f"w{value}" for value in ward],
        "sex": [("f", "m")[value] for value in sex],
        "ill": [("n", "y")[int(value)] for value in ill],
    }


def released(mu: object = 1):
    features = [Feature("sex", ["f", "m"]), Feature("ill", ["n", "y"])]
    plan = Plan(
        [TableRequest(["ward", "sex", "ill"], Budget.gdp(mu))],
        ["ward", "sex"],
        features,
        levels_from_data=True,
    )
    return run(plan, people(), SeededRandomness(1))


def test_a_release_is_modelled() -> None:
    answer = model(released(), "ill ~ ward + sex")
    assert answer.kind == "logistic"
    assert answer.response == "ill = y"
    assert answer.names == ("intercept", "ward[w1]", "ward[w2]", "sex[m]")
    wide = model(released(), "ill ~ ward + sex", level=0.9999)
    assert (wide.low < [-1, 0.8, 1.6, -0.9]).all()
    assert (wide.high > [-1, 0.8, 1.6, -0.9]).all()
    assert [test.term for test in answer.terms] == ["ward", "sex"]
    assert [test.degrees for test in answer.terms] == [2, 1]
    assert max(test.p_value for test in answer.terms) < 0.001
    assert answer.fit.degrees == 2
    assert answer.fit.p_value > 0.001
    document = answer.to_json()
    assert document["fitted"][0]["ward"] == "w0"
    assert len(document["coefficients"]) == 4
    full = model(released(), "ill ~ ward * sex", against="ill ~ ward + sex")
    assert full.fit is None
    assert full.against.degrees == 2
    assert [test.term for test in full.terms] == ["ward:sex"]
    counts = model(released(), "~ ward * sex")
    np.testing.assert_allclose([row[2] for row in counts.fitted], measured_sums(), rtol=0.02)


def measured_sums() -> list[float]:
    measured = measured_table(released(), ("ward", "sex", "ill"))
    return measured.estimate.sum(axis=2).ravel().tolist()


def test_more_noise_means_larger_errors() -> None:
    errors = [model(released(mu), "ill ~ ward + sex").errors for mu in (4, "0.2")]
    assert (errors[1] > 1.2 * errors[0]).all()


def test_the_noise_covariance_is_that_of_the_draws() -> None:
    measured = measured_table(released("0.5"), ("ward", "sex", "ill"))
    cells = np.eye(12).reshape(-1, 3, 2, 2)
    drawn = measured.simulate_errors(cells, 20_000, SeededRandomness(3))
    covariance = measured.weigh_noise(cells).covariance
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.06 * covariance.max())


def test_what_has_no_model_is_refused() -> None:
    release = released()
    for formula, settings, why in (
        ("town ~ sex", {}, "no table with"),
        ("ward ~ sex", {}, "logistic model has two"),
        ("ill ~ 1", {}, "at least one"),
        ("ill ~ sex", {"level": 95}, "between 0 and 1"),
        ("ill ~ sex", {"against": "ill ~ ward"}, "not a smaller model"),
        ("ill ~ sex", {"against": "ward ~ 1"}, "not a smaller model"),
    ):
        with pytest.raises(InputError, match=why):
            model(release, formula, **settings)
    many = {name: [f"{name}{value % 30}" for value in range(60)] for name in "ab"}
    wide = run(Plan([TableRequest(["a", "b"], Budget.gdp(1))], ["a", "b"]), many)
    with pytest.raises(Refused, match="600 cells"):
        model(wide, "~ a + b")
