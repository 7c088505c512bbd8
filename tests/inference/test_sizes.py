"""Sizes and coverages on fifty random margins, pooled; docs/inference_checks.md has the table
with more runs of each.
"""

import math

import numpy as np
import pytest

from semidp.applications.inference_study import EXPERIMENTS, USUAL, Conditions

MARGINS, RUNS = 50, 100
NAMES = (
    "independence, rounded Gaussian",
    "independence, Laplace",
    "independence, K-norm, 2 × 4",
    "conditional independence, 3 strata",
    "difference of two cells, noise",
    "difference of two rates, noise and sampling",
    "odds ratio, two-sided",
    "common odds ratio of 3, 3 strata",
    "all cells at once, noise",
)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_shares_are_nominal_and_those_of_the_twin_are_not(name: str) -> None:
    """Five standard errors around the nominal share, by chance once in a million; the twin is
    further off.
    """
    experiment = EXPERIMENTS[name]
    assert experiment.usual is not None
    found = []
    for seed in range(100, 100 + MARGINS):
        made = Conditions(seed, RUNS, RUNS - 1, experiment.usual, USUAL)
        found.append(experiment.run(made))
    for nominal in found[0]:
        shares, twins, ones = np.array([each[nominal] for each in found]).T
        slack = 5 * math.sqrt(nominal * (1 - nominal) * ones.mean() / MARGINS)
        assert abs(shares.mean() - nominal) < slack
        far = twins.mean() - nominal if experiment.kind == "size" else nominal - twins.mean()
        assert far > slack
