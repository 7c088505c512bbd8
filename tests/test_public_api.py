"""The façade: explicit, complete, documented, and cheap to import."""

import inspect
import subprocess
import sys

import pytest

import semidp

HEAVY = (
    "scipy.optimize",
    "scipy.stats",
    "duckdb",
    "matplotlib",
    "ortools",
    "dp_accounting",
    "flint",
    "pandas",
    "jinja2",
)


def test_all_is_sorted_complete_and_real() -> None:
    public = {
        name
        for name in vars(semidp)
        if not name.startswith("_") and not inspect.ismodule(vars(semidp)[name])
    }
    assert set(semidp.__all__) == public | {"__version__"}
    assert list(semidp.__all__) == sorted(semidp.__all__)


@pytest.mark.parametrize("name", [name for name in semidp.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(semidp, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return
    assert value.__doc__, f"{name} has no docstring"
    if inspect.isclass(value):
        for member, function in vars(value).items():
            if inspect.isfunction(function) and not member.startswith("_"):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member} has no docstring"


@pytest.mark.parametrize(
    "name", [name for name in semidp.__all__ if name not in {"__version__", "Randomness"}]
)
def test_every_public_name_has_an_example(name: str) -> None:
    value = getattr(semidp, name)
    if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception)):
        assert ">>>" in (value.__doc__ or ""), f"{name} has no example"


def test_import_touches_nothing_heavy() -> None:
    code = f"import sys, semidp; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


SUBPACKAGES = {
    "promise": (
        """
        AUTO Account CLAIMS CanonicalNoise Charge ClaimKind ContinuousGaussianMechanism
        DiscreteGaussian DiscreteGaussianMechanism DiscreteLaplace ExponentialChoice FlippedChoice
        KNormMechanism L2Mechanism LaplaceMechanism LatticeGaussian LatticeGaussianMechanism
        Measurement Mechanism NAMES NoNoise Normal Norms Objective OneSidedLatticeGaussian
        Randomness Recursive Renyi ResidualMechanism RoundedGaussian RoundedGaussianMechanism
        SeededRandomness SystemRandomness Tulap approximate_group available calibrate_mechanism choose
        dp_sgd event_from_json event_guarantee event_to_json event_tradeoff fits
        functional_tradeoff gdp_delta gdp_epsilon gdp_group gdp_to_zcdp generator knorm_noise naive_loss option_name outcome_mechanism pure_to_gdp pure_to_zcdp
        residual_plan select_mechanism table_mechanism tradeoff_from_json uniforms zcdp_delta zcdp_epsilon
        zcdp_epsilon_paper zcdp_group
    """
    ),
    "publish": (
        """
        About Alternative AnsweredEstimates AnsweredRequest AnsweredSums Coding Column Comparison
        Confidence Design DistributionRequest Estimates GroupDistributions GroupQuantiles
        GroupSums Interval Intervals LEVEL LinearFit LogisticFit MEDIAN MomentSpace Moments
        OddsRatioRequest PowerCurves PublishedAnswers PublishedDistribution PublishedOddsRatio
        Spread SquareSums Strata SumSpace TwoSidedTest moment_space outcome_adjacency planned_test
        regression_mechanism route_values sum_space
    """
    ),
    "inference": (
        """
        Among AreaRow AreaSums Areas Association CellSums CensusEstimates CensusTask
        CombinedEstimate CommonOddsRatio Covers Estimate Formula Independence IntervalEstimate
        Measurements Mixing NoisyRates Observed PairTests Places Posterior RateMeasure ScoreTest
        Share StateFiles SyntheticRecords TableDistance TableIntervals TableModel TermTest Within
        adjusted_p_values area_intervals common_odds_ratio estimate estimate_areas estimate_state
        every_pair groups independence_test logistic_fit loglinear_fit model posterior
        random_tables read_area_rows read_areas read_state sampled_comparison sampled_rate
        score_test simulated_bound sum_intervals sum_rows write_estimates
    """
    ),
    "assess": (
        """
        Assessment Audit Bound CellKeyAssessment Claim Draws Energy LossMeasure Metric Pair
        PerturbationTable Point PrivacyFunction Stratum StratumLoss Swap SwapAssessment SwapRule
        affordable_samples assess assess_cell_keys assess_swapping audit_function audit_mechanism
        audit_samples claims_of_plan claims_of_release draws_of_test given_pairs noise_energy
        choose_pair repeat_draws with_less_noise worst_pair
    """
    ),
    "grouped": (
        """
        distributions linear_regression logistic_regression means proportions quantiles sums
    """
    ),
}


def test_the_facade_is_narrow() -> None:
    assert len(semidp.__all__) <= 86


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_a_public_subpackage_has_these_names(name: str) -> None:
    package = getattr(semidp, name)
    assert sorted(package.__all__) == sorted(SUBPACKAGES[name].split())
    for public in package.__all__:
        value = getattr(package, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{public} has no docstring"


def test_no_name_is_public_twice() -> None:
    homes: dict[str, list[str]] = {public: ["semidp"] for public in semidp.__all__}
    for name in SUBPACKAGES:
        for public in getattr(semidp, name).__all__:
            homes.setdefault(public, []).append(name)
    assert not {public: where for public, where in homes.items() if len(where) > 1}


def test_it_is_imported_where_nothing_forks() -> None:
    others = "import os, logging, random, secrets, threading, numpy; del os.register_at_fork"
    code = (
        f"{others}; import semidp, semidp.promise.ball_arithmetic; print(semidp.Budget.gdp(1).kind)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "gdp\n"
    )
