"""The façade: explicit, complete, documented, and cheap to import."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import semidp

HEAVY = (
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
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


def test_a_tab_shows_at_most_fifty_names() -> None:
    shown = dir(semidp)
    assert {*semidp.__all__, "promise", "publish", "inference", "assess"} == {*shown}
    assert len(shown) <= 50


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
        Attendance ContinuousGaussianMechanism DiscreteGaussian DiscreteLaplace ExplicitSpace
        KNormMechanism Mechanism QuerySpace Randomness Recursive
        RoundedGaussian SeededRandomness Series Tradeoff approximate
        canonical_noise compose from_profile gaussian generator knorm_noise laplace
        outcome_adjacency moment_space piecewise sum_space tradeoff_from_json zcdp zcdp_epsilon_paper
    """
    ),
    "publish": (
        """
        Alternative Coding Design DistributionRequest GroupRequest GroupSums LinearFit
        Moments OddsRatioRequest QuantileRequest RegressionRequest ResidualMechanism Strata TableRequest
        TablesRequest TwoByTwo UmpuTest available calibrate_mechanism choose fit_table
        outcome_mechanism planned_test power
        power_curves regression_mechanism route_values sample_size style     """
    ),
    "inference": (
        """
        CellSums CensusTask Changes Measurements Observed Places Share area_intervals
        combine_estimates common_odds_ratio estimate estimate_areas every_pair
        linear_interval model mover_difference posterior random_tables ratio_interval
        read_area_rows read_areas read_strata simulated_bound sum_intervals sum_rows weighted_estimates write_estimates
    """
    ),
    "assess": (
        """
        CellLaw Disclosure Pair PerturbationTable PrivacyFunction ReadingRules Stratum Swap SwapRule assess
        assess_cell_keys assess_swapping attack_stratum audit_function audit_mechanism
        audit_samples choose_pair claims_of_release compute_cell_loss compute_exact_loss
        given_pairs is_adjacent list_neighbors noise_energy opendp dp_sgd event_guarantee event_to_json worst_pair
    """
    ),
}


def test_the_facade_is_narrow() -> None:
    assert len(semidp.__all__) <= 50


def test_the_doors_together_are_narrow() -> None:
    """Lists of names elsewhere count too: a package inside a floor has none."""
    root = Path(semidp.__file__).parent
    listing = {path for path in root.rglob("*.py") if "\n__all__ = " in path.read_text()}
    doors = {root / "__init__.py", *(root / name / "__init__.py" for name in SUBPACKAGES)}
    assert listing == doors
    assert sum(len(names.split()) for names in SUBPACKAGES.values()) + len(semidp.__all__) <= 160


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
