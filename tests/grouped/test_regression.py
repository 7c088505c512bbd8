"""Linear and logistic regression on public groups: exact moments, honest errors, refusals."""

import numpy as np
import pytest
from scipy import optimize, stats
from tests.grouped.measuring import fit_design, linear_regression, logistic_regression

from semidp import Plan, prepare
from semidp.errors import InputError, Refused
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.moments import Column, moment_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish import RegressionRequest
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.regression.designs import Coding, Design
from semidp.publish.statistics.regression.fits import LinearFit, LogisticFit, Moments, route_values

CLEAR = Budget.gdp(10**7)
ARM, SEX = Feature("arm", ("c", "d")), Feature("sex", ("f", "m"))
DAYS = Outcome("days", 2, 12, steps=100)


def trial(seed: int = 1, n: int = 400) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    arm, sex = source.choice(["c", "d"], n), source.choice(["f", "m"], n, p=[0.3, 0.7])
    days = 7 - 2.0 * (arm == "d") + 1.0 * (sex == "m") + source.normal(0, 1, n)
    cured = (source.uniform(size=n) < 1 / (1 + np.exp(-(-0.5 + 1.2 * (arm == "d"))))).astype(int)
    return {"arm": arm, "sex": sex, "days": days, "cured": cured}


def matrix(data: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack(
        [np.ones(len(data["arm"])), data["arm"] == "d", data["sex"] == "m"], axis=1
    ).astype(float)


def test_without_noise_it_is_ordinary_least_squares():
    data = trial()
    fit = linear_regression(data, DAYS, CLEAR, factors=["arm", "sex"])
    x, y = matrix(data), np.clip(data["days"], 2, 12).round(1)
    expected, *_ = np.linalg.lstsq(x, y, rcond=None)
    np.testing.assert_allclose(fit.coefficients, expected, atol=2e-3)


def test_scores_interactions_and_codings_give_the_same_fitted_means():
    data = trial()
    schema = Schema((ARM, SEX))
    designs = [
        Design.from_schema(schema, ["arm", "sex"], interactions=[("arm", "sex")]),
        Design.from_schema(
            schema, ["arm", "sex"], interactions=[("arm", "sex")], coding=Coding.effects
        ),
        Design.from_schema(
            schema, ["arm"], scores={"sex": ["0.25", "-1/3"]}, interactions=[("arm", "sex")]
        ),
    ]
    fits = [fit_design(data, DAYS, CLEAR, design, [Margin("arm", "sex")]) for design in designs]
    fitted = [
        fit.moments.design.rows().astype(float) / fit.moments.design.multiplier @ fit.coefficients
        for fit in fits
    ]
    np.testing.assert_allclose(fitted[1], fitted[0], atol=1e-2)
    np.testing.assert_allclose(fitted[2], fitted[0], atol=1e-2)
    assert designs[2].multiplier == 12


def test_a_fit_has_the_guarantee_of_its_measurement():
    fit = linear_regression(trial(), DAYS, Budget.zcdp(1), factors=["arm"])
    assert fit.guarantee.tradeoff == Budget.zcdp(1).tradeoff()
    assert fit.guarantee.adjacency.a == 2
    assert fit.private
    assert not linear_regression(
        trial(), DAYS, Budget.zcdp(1), factors=["arm"], randomness=SeededRandomness(1)
    ).private
    # X'X is public, cells are not
    pairs = [Margin("arm", "sex"), Margin("arm", "cured"), Margin("sex", "cured")]
    schema = Schema((ARM, SEX, Feature("cured", ("0", "1"))))
    design = Design.from_schema(schema, schema.names)
    assert len(fit_design(trial(), DAYS, Budget.zcdp(1), design, pairs).names) == 4


def moments(
    budget: Budget, seed: int, steps: int = 50, model: Design | None = None
) -> tuple[Moments, np.ndarray]:
    table = Table(Schema((ARM, SEX)), np.array([[40, 60], [50, 30]]))
    public = Dataspace.from_table(table, [Margin("arm", "sex")])
    design = model or Design.from_schema(table.schema, ["arm", "sex"], coding=Coding.effects)
    space = moment_space(public, Ball(2), Outcome("y", 0, 1, steps=steps), design)
    mechanism = outcome_mechanism(space, budget)
    truth = np.rint(table.counts.ravel() * steps * np.array([0.3, 0.5, 0.4, 0.6])).astype(np.int64)
    return (
        Moments(
            mechanism, mechanism.measure(route_values(space, design, truth), SeededRandomness(seed))
        ),
        truth / steps,
    )


def test_noise_errors_of_linear_coefficients_are_as_stated_and_the_test_sees_a_wrong_scale():
    """300 fits: Σ z² of the three coefficients, whitened, is chi-squared with 900 degrees of
    freedom.
    """
    clear = LinearFit(moments(CLEAR, 0)[0]).coefficients
    total = 0.0
    for seed in range(300):
        fit = LinearFit(moments(Budget.gdp("0.5"), seed)[0])
        error = fit.coefficients - clear
        total += float(error @ np.linalg.solve(fit.covariance(), error))
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 900)
    assert low < total < high
    assert not low < total / 1.3**2 < high
    assert not low < total * 1.3**2 < high


def test_the_sensitivity_is_that_of_the_longest_row():
    found, _ = moments(Budget.gdp(1), 0)
    assert found.space.l2_squared == (2 * 50) ** 2 * 3
    assert found.mechanism.tradeoff == Budget.gdp(1).tradeoff()


def test_collinear_designs_are_refused_before_anything_is_measured():
    schema = Schema((ARM, SEX))
    twice = Design(
        schema, (*Design.from_schema(schema, ["arm"]).columns, Column("again", ("arm",), (1, 0)))
    )
    with pytest.raises(Refused, match="collinear: on the published counts column 'again'"):
        fit_design(trial(), DAYS, Budget.gdp(1), twice, [Margin("arm", "sex")])
    empty = Feature("arm", ("c", "d", "never"))
    for method, column in ((linear_regression, DAYS), (logistic_regression, "cured")):
        with pytest.raises(Refused, match=r"column 'arm=never' is a combination .*without records"):
            method(trial(), column, Budget.gdp(1), factors=["arm"], features=[empty])


def test_designs_check_themselves():
    schema = Schema((ARM, SEX))
    for bad, reason in (
        (lambda: Design(schema, ()), "at least one column"),
        (lambda: Design(schema, (Column("x", ("arm",), (1,)),)), "a value for each"),
        (
            lambda: Design.from_schema(schema, ["arm"], interactions=[("arm", "sex")]),
            "main effects first",
        ),
        (
            lambda: Design.from_schema(schema, ["arm"], scores={"arm": [0, 1]}),
            "both a factor and scored",
        ),
        (
            lambda: Design.from_schema(schema, [], scores={"arm": [0, 1, 2]}),
            "a score for each level",
        ),
        (
            lambda: linear_regression(trial(), DAYS, Budget.gdp(1), []),
            "a regression needs the features",
        ),
    ):
        with pytest.raises(InputError, match=reason):
            bad()


def test_without_noise_it_is_logistic_regression():
    data = trial(n=2000)
    fit = logistic_regression(data, "cured", CLEAR, factors=["arm", "sex"])
    x, y = matrix(data), data["cured"]
    best = optimize.minimize(
        lambda b: np.logaddexp(0, x @ b).sum() - y @ x @ b, np.zeros(3), method="BFGS"
    )
    # Firth's penalty moves it by less than 1/n
    np.testing.assert_allclose(fit.coefficients, best.x, atol=2e-3)
    p = 1 / (1 + np.exp(-x @ best.x))
    classical = np.sqrt(np.diag(np.linalg.inv(x.T @ (x * (p * (1 - p))[:, None]))))
    np.testing.assert_allclose(fit.standard_errors(), classical, rtol=2e-3)
    assert (fit.standard_errors(sampling=False) < 1e-3).all()


def test_logistic_errors_cover_the_noise():
    """300 fits at a noise that dominates: Σ z² is chi-squared with 900 degrees of freedom, but for
    curvature.
    """
    clear = LogisticFit(moments(CLEAR, 0, steps=1)[0]).coefficients
    total = 0.0
    for seed in range(300):
        fit = LogisticFit(moments(Budget.gdp(2), seed, steps=1)[0])
        error = fit.coefficients - clear
        total += float(error @ np.linalg.solve(fit.covariance(sampling=False), error))
    assert 0.75 < total / 900 < 1.25
    assert not 0.75 < total / 900 * 1.3**2 < 1.25


def test_moments_that_no_data_could_have_still_have_a_fit():
    """Noise far beyond n: X'y is moved to the nearest that data could have, where Firth's score
    vanishes.
    """
    for seed in range(12):
        fit = LogisticFit(moments(Budget.gdp("0.02"), seed, steps=1)[0])
        nearest = fit._rows.T @ fit.feasible
        assert (fit.feasible >= 0).all()
        assert (fit.feasible <= fit._counts).all()
        assert np.isfinite(fit.standard_errors()).all()
        # about 2 log(2 n + 1): the noise alone would give hundreds
        assert np.abs(fit.coefficients).max() < 12
        np.testing.assert_allclose(nearest, fit._expected_moments(fit.coefficients), atol=1e-5)


def test_moments_that_data_could_have_are_not_moved():
    found, _ = moments(Budget.gdp(1), 3, steps=1)
    fit = LogisticFit(found)
    np.testing.assert_allclose(fit._rows.T @ fit.feasible, found.values, atol=1e-6)


def test_firth_is_the_maximum_of_the_penalised_likelihood():
    fit = LogisticFit(moments(CLEAR, 0, steps=1)[0])
    values = fit._rows.T @ fit.feasible
    best = optimize.minimize(
        lambda beta: -fit._objective(beta, values), np.zeros(3), method="Nelder-Mead", tol=1e-9
    )
    np.testing.assert_allclose(fit.coefficients, best.x, atol=1e-4)


def test_logistic_regression_needs_the_joint_counts():
    data = trial()
    margins = [Margin("arm"), Margin("sex")]
    cured = Outcome("cured", 0, 1, steps=1)
    asked = RegressionRequest(cured, ["arm", "sex"], Budget.gdp(1), model="logistic")
    with pytest.raises(Refused, match="needs exact counts of arm × sex"):
        prepare(Plan([asked], margins), data)
    fit = logistic_regression(data, "cured", Budget.gdp(1), factors=["arm"], invariants=margins)
    assert fit.guarantee.adjacency.a == 3
    assert fit.private
