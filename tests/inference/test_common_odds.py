"""An odds ratio common to strata from a release: coverage by enumeration, with a twin that forgets
the noise.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nchypergeom_fisher

from semidp import Budget, Feature, Plan, run
from semidp.cli._program import run as command
from semidp.errors import InputError, Refused
from semidp.inference import common_odds_ratio
from semidp.inference.common_odds import PooledSum, stratified_odds_ratio
from semidp.present.release import Release
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.statistics.odds_ratio.umpu import TwoByTwo

SPACES = {
    "one stratum": ((TwoByTwo(6, 5, 11),), (1.0,)),
    "two strata": ((TwoByTwo(4, 5, 9), TwoByTwo(3, 3, 7)), (1.0, 0.75)),
    "three strata": ((TwoByTwo(2, 3, 5), TwoByTwo(3, 2, 6), TwoByTwo(4, 4, 8)), (0.5, 1.0, 0.8)),
}
DRAWS = 40_000


def outcomes(
    margins: tuple[TwoByTwo, ...], weights: tuple[float, ...], odds: float, sigma2: int
) -> tuple[np.ndarray, np.ndarray]:
    """Every pooled sum of tables and noise, and its probability, by scipy's law of the tables."""
    law = DiscreteGaussian(sigma2)
    reach = np.arange(-8, 9)
    noise = law.pmf(reach) / law.pmf(reach).sum()
    values, chances = np.zeros(1), np.ones(1)
    for table, weight in zip(margins, weights, strict=True):
        x = np.arange(table.low, table.high + 1)
        chance = nchypergeom_fisher.pmf(x, table.n, table.row, table.column, odds)
        cells = (x[:, None] + reach).ravel() * weight
        values = (values[:, None] + cells).ravel()
        chances = (chances[:, None] * np.outer(chance, noise).ravel()).ravel()
        # The same sums from here on count together.
        values, where = np.unique(values.round(9), return_inverse=True)
        chances = np.bincount(where, weights=chances)
    return values, chances


def pooled_sum(name: str, sigma2: int, noisy: bool) -> PooledSum:
    margins, weights = SPACES[name]
    source = np.random.default_rng(7)
    errors = np.zeros(DRAWS)
    for weight in weights:
        drawn = DiscreteGaussian(sigma2).sample(DRAWS, SeededRandomness(int(100 * weight)))
        errors += weight * drawn * noisy
    return PooledSum(margins, np.array(weights), source.random((len(margins), DRAWS)), errors)


@pytest.mark.parametrize("name", SPACES)
def test_every_odds_ratio_is_covered_and_not_when_the_noise_is_forgotten(name: str) -> None:
    margins, weights = SPACES[name]
    knows, forgets = pooled_sum(name, 4, True), pooled_sum(name, 4, False)
    least, worst = (1 - 0.9) / 2, 1.0
    # A tail of 0.05 from so many draws is off by less than that, but for once in 10^6.
    error = 5 * math.sqrt(least * (1 - least) / DRAWS)
    checked = 0
    for odds in (0.2, 0.5, 1.0, 1.7, 6.0):
        sums, chances = outcomes(margins, weights, odds, 4)
        checked += len(sums)
        for law in (knows, forgets):
            above, below = law.tails(sums, math.log(odds))
            for tail in (above, below):
                rejected = float(chances[tail <= least].sum())
                if law is knows:
                    assert rejected <= least + error
            held = (above > least) & (below > least)
            if law is forgets:
                worst = min(worst, float(chances[held].sum()))
    assert checked > 50
    assert worst < 0.8


def test_tails_are_monotone_so_that_what_is_kept_is_an_interval() -> None:
    law = pooled_sum("two strata", 4, True)
    grid = np.linspace(-6, 6, 61)
    for seen in (-2.0, 1.5, 3.0, 7.25, 12.0):
        tails = np.array([law.tails(np.asarray(seen), at) for at in grid])
        assert (np.diff(tails[:, 0]) >= 0).all()
        assert (np.diff(tails[:, 1]) <= 0).all()
        low, high = law.interval(seen, 0.9)
        kept = (tails > 0.05).all(axis=1)
        inside = (np.exp(grid) >= low) & (np.exp(grid) <= high)
        # Ends are rounded outward, by less than a step of the grid.
        assert (inside | ~kept).all()
        assert np.count_nonzero(inside & ~kept) == 0
    assert law.interval(-60.0, 0.9)[0] == 0
    assert law.interval(60.0, 0.9)[1] == math.inf


def test_without_noise_the_estimate_is_the_conditional_likelihood() -> None:
    """By scipy's law: the odds ratio for which the mean is the count."""
    table = TwoByTwo(30, 24, 60)
    law = PooledSum((table,), np.ones(1), np.zeros((1, 1)), np.zeros(1))
    for count in (8, 12, 17):
        odds = law.estimate(count)
        mean = nchypergeom_fisher.mean(table.n, table.row, table.column, odds)
        assert math.isclose(mean, count, rel_tol=1e-4)
    assert law.estimate(-1) == 0
    assert law.estimate(25) == math.inf


def admissions(mu: str = "1", exact: tuple[tuple[str, ...], ...] | None = None) -> Release:
    source = np.random.default_rng(3)
    n = 400
    dept, sex = source.integers(0, 3, n), source.integers(0, 2, n)
    chance = 1 / (1 + np.exp(-(0.5 * dept - 0.5 + 0.9 * sex)))
    admitted = source.random(n) < chance
    data = {
        "sex": np.array(["f", "m"])[sex].tolist(),
        "in": np.array(["no", "yes"])[admitted.astype(int)].tolist(),
        "dept": np.array(["a", "b", "c"])[dept].tolist(),
    }
    totals = (("sex", "dept"), ("in", "dept")) if exact is None else exact
    features = [Feature("sex", ["f", "m"]), Feature("in", ["no", "yes"]), Feature("dept", "abc")]
    plan = Plan([TableRequest(["sex", "in", "dept"], Budget.gdp(mu))], totals, features)
    return run(plan, data, SeededRandomness(1))


def test_a_release_has_an_interval_and_both_fronts_give_the_same() -> None:
    release = admissions()
    answer = common_odds_ratio(release, "sex", "in", ["dept"], randomness=SeededRandomness(2))
    assert answer.compared == ("f", "no")
    assert answer.low < answer.value < answer.high
    assert math.exp(0.9) in answer
    assert 0.2 not in answer
    assert answer.varying == 3
    for case, group in itertools.product(("no", "yes"), ("f", "m")):
        turned = (case == "no") != (group == "f")
        other = "m" if group == "f" else "f"
        again = stratified_odds_ratio(
            release,
            {"in": case},
            among={"sex": group},
            minus={"sex": [other]},
            strata=["dept"],
            randomness=SeededRandomness(2),
        )
        ends = (1 / answer.high, 1 / answer.low) if turned else (answer.low, answer.high)
        assert math.isclose(again.low, ends[0])
        assert math.isclose(again.high, ends[1])
    # Much noise: an interval that may be open, never a wrong number.
    vague = common_odds_ratio(admissions("0.02"), "sex", "in", ["dept"], draws=499)
    assert vague.high / max(vague.low, 1e-9) > answer.high / answer.low
    assert json.dumps(vague.to_json())


def test_what_has_no_common_odds_ratio_is_refused() -> None:
    release = admissions()
    with pytest.raises(InputError, match="two levels, and dept has 3"):
        common_odds_ratio(release, "dept", "in")
    noisy = admissions(exact=())
    with pytest.raises(Refused, match='semidp model RELEASE "in ~ sex'):
        common_odds_ratio(noisy, "sex", "in", ["dept"])
    with pytest.raises(InputError, match="two levels of one feature"):
        stratified_odds_ratio(
            release, {"in": "no"}, among={"sex": "f"}, minus={"sex": "f"}, strata=["dept"]
        )
    with pytest.raises(InputError, match="sex has no level 'woman'"):
        stratified_odds_ratio(
            release, {"in": "no"}, among={"sex": "woman"}, minus={"sex": "m"}, strata=["dept"]
        )
    with pytest.raises(InputError, match="name one level each"):
        stratified_odds_ratio(
            release, {"in": ["no", "yes"]}, among={"sex": "f"}, minus={"sex": "m"}, strata=["dept"]
        )


def test_commands_print_the_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "release")
    admissions().save(folder)
    asked = ["test", folder, "--rows", "sex", "--columns", "in", "--strata", "dept", "--seed", "1"]
    assert command([*asked, "--pooled", "--level", "0.9"]) == 0
    printed = capsys.readouterr().out
    assert "for sex = f and in = no, common to the strata of dept" in printed
    assert "at level 0.9; covers noise and sampling" in printed
    assert command(asked) == 0
    assert "odds ratio" not in capsys.readouterr().out
    groups = ["--of", "in=no", "--among", "sex=f", "--minus", "sex=m", "--strata", "dept"]
    measure = ["--measure", "odds-ratio", "--sampling"]
    assert command(["intervals", folder, *groups, *measure, "--seed", "1"]) == 0
    assert "noise and sampling, exact by simulation" in capsys.readouterr().out
    assert command([*asked, "--scores", "sex=1e400,1"]) == 2
    assert "--scores must be a number such as" in capsys.readouterr().err
    assert command(["intervals", folder, *groups]) == 2
    assert "--measure odds-ratio --sampling" in capsys.readouterr().err
