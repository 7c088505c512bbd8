"""An odds ratio common to strata with noisy totals: coverage by enumeration of tables and noise,
with a twin that forgets the noise.
"""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nchypergeom_fisher

from semidp import Budget, Feature, Plan, run
from semidp.cli._program import run as command
from semidp.errors import InputError, Refused
from semidp.inference import common_odds_ratio
from semidp.inference.common_odds import (
    BoundedStratum,
    NoisyOdds,
    bounding_law,
    stratified_odds_ratio,
)
from semidp.inference.independence import MISS
from semidp.inference.linear_estimates import DrawnNumbers, SumErrors
from semidp.inference.models import model
from semidp.inference.unknown_totals import NoiseTerms, UnknownTotals, asked_questions, cut_scores
from semidp.present.release import Release
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

NOISE = DiscreteGaussian(Fraction(2))
REACH = 4  # the noise is cut here: what is enumerated spreads less than what is bounded
STEPS = np.arange(-REACH, REACH + 1)
SHARES = NOISE.pmf(STEPS) / NOISE.pmf(STEPS).sum()

# Sizes of the two groups by stratum, and true totals of the second level by stratum.
SPACES = {
    "one stratum": (((6,), (5,)), ((3,), (6,), (10,))),
    "two strata": (((3, 3), (4, 2)), ((4, 2), (1, 4))),
}


def noise_of(weights: np.ndarray) -> NoiseTerms:
    """Groups are exact: the second level has noise, and the first has what it leaves."""
    free = (weights[:, 1] - weights[:, 0]).ravel()
    drawn = DrawnNumbers([NOISE], np.zeros(len(free), dtype=np.intp), np.ones(len(free)))
    return NoiseTerms(SumErrors(1, ((drawn, free[None]),)).terms(0))


def odds_of(sizes: np.ndarray, cases: np.ndarray) -> NoisyOdds:
    """The question for noisy cases of each group and stratum."""
    two = cut_scores(2, None)
    questions = asked_questions(two, two, sizes.shape[1], pooled=True)
    estimate = np.stack([sizes - cases, cases], axis=1).astype(float)
    return NoisyOdds(UnknownTotals(estimate, sizes, noise_of, questions))


def published(
    sizes: np.ndarray, totals: tuple[int, ...], odds: float
) -> list[tuple[np.ndarray, float]]:
    """Every table of noisy cases (groups × strata) with its probability."""
    strata = []
    for number, total in enumerate(totals):
        first, second = sizes[:, number].tolist()
        x = np.arange(max(0, total - first), min(second, total) + 1)
        chances = nchypergeom_fisher.pmf(x, first + second, second, total, odds)
        each: dict[tuple[int, int], float] = {}
        for cases, chance in zip(x.tolist(), chances.tolist(), strict=True):
            for one, other in itertools.product(range(len(STEPS)), repeat=2):
                noisy = (int(total - cases + STEPS[one]), int(cases + STEPS[other]))
                each[noisy] = each.get(noisy, 0.0) + chance * SHARES[one] * SHARES[other]
        strata.append(each.items())
    every = []
    for chosen in itertools.product(*strata):
        cases = np.array([noisy for noisy, _ in chosen]).T
        every.append((cases, math.prod(share for _, share in chosen)))
    return every


class Reference:
    """Tails of all published tables; laws that only depend on the plausible totals are kept."""

    def __init__(self, sizes: np.ndarray, log_odds: float) -> None:
        self.sizes, self.log_odds = sizes, log_odds
        self.ranges: dict[tuple, NoisyOdds] = {}
        self.laws: dict[tuple, tuple] = {}
        self.bounds: dict[tuple, float] = {}

    def least_tail(self, cases: np.ndarray, forgotten: bool) -> float:
        noisy_totals = tuple(cases.sum(axis=0).tolist())
        if noisy_totals not in self.ranges:
            self.ranges[noisy_totals] = odds_of(self.sizes, cases)
        odds = self.ranges[noisy_totals]
        estimate = np.stack([self.sizes - cases, cases], axis=1)
        statistic = round(float((odds.weights * estimate).sum()), 9)
        sides = ((odds.upper, 1), (odds.lower, -1))
        return min(self.beyond(odds, strata, sign, statistic, forgotten) for strata, sign in sides)

    def beyond(
        self, odds: NoisyOdds, strata: tuple, sign: int, statistic: float, forgotten: bool
    ) -> float:
        key = (strata, sign, forgotten)
        if key not in self.laws:
            noise = NoiseTerms(()) if forgotten else odds.noise
            self.laws[key] = bounding_law(strata, noise, sign * self.log_odds)
        law, mean = self.laws[key]
        if (*key, statistic) not in self.bounds:
            self.bounds[*key, statistic] = law.bound_upper_tail(sign * statistic - mean)
        return self.bounds[*key, statistic]


@pytest.mark.parametrize(
    "name", ["one stratum", pytest.param("two strata", marks=pytest.mark.long)]
)
def test_every_odds_ratio_is_covered_for_every_total_and_not_by_the_twin(name: str) -> None:
    groups, true_totals = SPACES[name]
    sizes = np.array(groups)
    levels = np.array([0.8, 0.9, 0.95])
    least = (1 - levels - MISS) / 2
    # By how much the share of tables that are rejected exceeds what is stated.
    excess = {False: np.full(3, -1.0), True: np.full(3, -1.0)}
    checked = 0
    for odds in (0.2, 1.0, 6.0)[: 3 if name == "one stratum" else 2]:
        reference = Reference(sizes, math.log(odds))
        for totals in true_totals:
            every = published(sizes, totals, odds)
            assert sum(share for _, share in every) == pytest.approx(1)
            checked += len(every)
            for forgotten in (False, True):
                rejected = np.zeros(3)
                for cases, share in every:
                    rejected += share * (reference.least_tail(cases, forgotten) <= least)
                excess[forgotten] = np.maximum(excess[forgotten], rejected - (1 - levels))
    assert checked > 1_000
    assert (excess[False] <= 1e-9).all()
    # It does reject, and the twin rejects too often.
    assert (excess[False] > levels - 1).all()
    assert (excess[True] > 0.02).all()


@pytest.mark.parametrize("log_odds", [-1.5, 0.0, 1.5])
def test_the_law_of_a_stratum_is_above_those_of_all_its_totals(log_odds: float) -> None:
    stratum = BoundedStratum(n=14, group=6, low=2, high=9, scale=0.7)
    step = 0.01
    laws = stratum.laws(log_odds)
    centre = max(stratum.mean(law, total) for total, law in laws)
    bound = stratum.bound_laws(laws, centre, step)
    points = np.linspace(-5, 5, 201)

    def excesses(values: np.ndarray, masses: np.ndarray) -> np.ndarray:
        return np.maximum(values - points[:, None], 0.0) @ masses

    limit = excesses(bound.values + centre, bound.masses)
    # No single total is above all the others: each of them alone would be wrong.
    alone = np.zeros(8, dtype=bool)
    every = []
    for total in range(2, 10):
        x = np.arange(max(0, total - 8), min(6, total) + 1)
        chances = nchypergeom_fisher.pmf(x, 14, 6, total, math.exp(log_odds))
        every.append(excesses(0.7 * (x - 6 * total / 14), chances))
        assert (every[-1] <= limit + 1e-9).all()
    for number, one in enumerate(every):
        alone[number] = all((one >= other - 1e-9).all() for other in every)
    assert not alone.any()


def test_tails_are_monotone_and_at_one_those_of_the_pooled_test() -> None:
    sizes = np.array([[20, 30], [25, 15]])
    odds = odds_of(sizes, np.array([[8, 9], [14, 11]]))
    grid = np.linspace(-4, 4, 17)
    tails = np.array([odds.tails(at) for at in grid])
    assert (np.diff(tails[:, 0]) >= -1e-6).all()
    assert (np.diff(tails[:, 1]) <= 1e-6).all()
    low, high = odds.interval(0.9)
    kept = np.exp(grid[(tails > (0.1 - MISS) / 2).all(axis=1)])
    assert low <= kept.min() < kept.max() <= high
    assert low < math.exp(odds.log_estimate) < high
    # The same bound as the test of independence: 1 is kept where that does not reject.
    answer = odds.totals.answer(odds.question)
    assert odds.tails(0.0) == pytest.approx((answer.greater, answer.less), rel=1e-3)
    # More noise than tables have room for: an open interval, never a wrong number.
    far = odds_of(sizes, np.array([[-60, -60], [90, 90]]))
    assert far.interval(0.9)[1] == math.inf
    with pytest.raises(InputError, match=r"below 0\.999"):
        odds.interval(0.9995)
    empty = odds_of(np.array([[3, 0], [0, 0]]), np.zeros((2, 2)))
    with pytest.raises(Refused, match="every odds ratio fits"):
        empty.interval(0.9)


# --- releases -------------------------------------------------------------------------------------


def admissions(mu: str = "3", exact: tuple[tuple[str, ...], ...] = (("sex", "dept"),)) -> Release:
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
    features = [Feature("sex", ["f", "m"]), Feature("in", ["no", "yes"]), Feature("dept", "abc")]
    plan = Plan([TableRequest(["sex", "in", "dept"], Budget.gdp(mu))], exact, features)
    return run(plan, data, SeededRandomness(1))


def test_a_release_with_noisy_totals_of_either_feature_has_an_interval() -> None:
    release = admissions()
    answer = common_odds_ratio(release, "sex", "in", ["dept"])
    assert answer.noisy_totals == ("in",)
    assert answer.draws == 0
    assert answer.compared == ("f", "no")
    assert answer.low < answer.value < answer.high
    assert math.exp(0.9) in answer
    assert 1.0 not in answer
    assert "all plausible totals" in answer.notes[0]
    assert json.dumps(answer.to_json())
    # An odds ratio is the same with rows and columns exchanged.
    turned = common_odds_ratio(release, "in", "sex", ["dept"])
    assert turned.noisy_totals == ("in",)
    assert (turned.low, turned.high) == pytest.approx((answer.low, answer.high), rel=1e-6)
    again = stratified_odds_ratio(
        release, {"in": "yes"}, among={"sex": "f"}, minus={"sex": "m"}, strata=["dept"]
    )
    assert (again.low, again.high) == pytest.approx((1 / answer.high, 1 / answer.low))
    assert again.bounded
    assert not again.exact
    # Exact totals leave a shorter one.
    exact = (("sex", "dept"), ("in", "dept"))
    known = common_odds_ratio(admissions(exact=exact), "sex", "in", ["dept"])
    assert known.high / known.low < answer.high / answer.low


def test_where_the_bound_has_an_open_end_a_model_answers_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Much noise: the bound has no end, and the answer is that of `semidp model`."""
    release = admissions(mu="0.6")
    answer = common_odds_ratio(release, "sex", "in", ["dept"])
    assert answer.approximate
    fitted = model(release, "in ~ sex + dept")
    ends = np.exp([fitted.coefficients[1], fitted.low[1], fitted.high[1]])
    assert [answer.value, answer.low, answer.high] == pytest.approx(ends.tolist())
    assert "has an open end" in answer.notes[0]
    assert "in ~ sex + dept" in answer.notes[0]
    assert not any("at least as often" in note for note in answer.notes)
    assert answer.to_json()["approximate"] is True
    folder = str(tmp_path / "release")
    release.save(folder)
    # Turned over for the other level.
    groups = ["--of", "in=yes", "--among", "sex=f", "--minus", "sex=m", "--strata", "dept"]
    words = [*groups, "--measure", "odds-ratio", "--sampling", "--format", "json"]
    assert command(["intervals", folder, *words]) == 0
    document = json.loads(capsys.readouterr().out)
    again = document.get("interval", document)
    assert (again["low"], again["high"]) == pytest.approx((1 / answer.high, 1 / answer.low))
    assert (again["exact"], again["bounded"]) == (False, False)
    assert "This one is an approximation instead" in again["note"]
    asked = ["test", folder, "--rows", "sex", "--columns", "in", "--strata", "dept", "--pooled"]
    assert command(asked) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "covers noise and sampling, by an approximation" in printed
    assert "This one is an approximation instead" in printed


def test_what_has_no_interval_is_refused_and_the_test_still_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = admissions(exact=())
    with pytest.raises(Refused, match=r'both are noisy: semidp model RELEASE "in ~ sex \+ dept"'):
        common_odds_ratio(both, "sex", "in", ["dept"])
    folder = str(tmp_path / "release")
    admissions().save(folder)
    asked = ["test", folder, "--rows", "sex", "--columns", "in", "--strata", "dept", "--pooled"]
    assert command(asked) == 0
    printed = capsys.readouterr().out
    assert "at level 0.95; covers noise and sampling, at least as often as stated" in printed
    assert command([*asked, "--level", "0.9995"]) == 2
    assert "must be below 0.999" in capsys.readouterr().err
    groups = ["--of", "in=no", "--among", "sex=f", "--minus", "sex=m", "--strata", "dept"]
    measure = ["--measure", "odds-ratio", "--sampling"]
    assert command(["intervals", folder, *groups, *measure]) == 0
    assert "as stated: a bound for all plausible totals" in capsys.readouterr().out


def test_a_test_says_why_there_is_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "release")
    admissions().save(folder)
    monkeypatch.setattr("semidp.inference.common_odds._MOST_MASSES", 10)
    asked = ["test", folder, "--rows", "sex", "--columns", "in", "--strata", "dept", "--pooled"]
    assert command([*asked, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "odds_ratio" not in document
    assert "publish the totals exactly" in document["notes"][-1]
