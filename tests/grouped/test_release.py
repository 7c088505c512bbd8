"""Group statistics inside a release: several measurements, one invariant, one ledger, one
guarantee, one report.
"""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from scipy import stats
from tests.grouped.measuring import sums

from semidp import RunOptions, run
from semidp.assess import claims_of_release
from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.present.release import Release
from semidp.present.report.report_page import html
from semidp.present.report.sentences import summary
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.documents import digest
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.composition import compose
from semidp.publish.plan import Plan
from semidp.publish.recheck import disagreements, recheck
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.statistics.outcomes.request import Statistic, binary_outcome
from semidp.publish.statistics.regression.kind import RegressionRequest
from semidp.publish.statistics.sums import GroupRequest
from semidp.publish.statistics.tables.asked import TableRequest

pytestmark = pytest.mark.pictures

SCORE = Outcome("score", 0, 100, steps=200)
SCHOOL, SEX = Margin("school"), Margin("sex")


def pupils() -> dict[str, np.ndarray]:
    source = np.random.default_rng(5)
    school = np.repeat(["north", "south", "west"], [60, 40, 100])
    sex = source.choice(["f", "m"], 200)
    score = source.uniform(20, 90, 200).round(1)
    return {"school": school, "sex": sex, "score": score, "passed": (score > 50).astype(int)}


TABLE = TableRequest(["school", "sex"], Budget.gdp(3))
GROUPS = [
    GroupRequest(Statistic.mean, SCORE, [SCHOOL], Budget.gdp(4)),
    GroupRequest(Statistic.proportion, binary_outcome("passed"), [SCHOOL, SEX], Budget.gdp(12)),
]


def plan(*requests: object, **changes: object) -> Plan:
    return Plan(requests or (TABLE, *GROUPS), **({"invariants": [SCHOOL, SEX]} | changes))


@pytest.fixture(scope="module")
def release() -> Release:
    return run(plan(), pupils(), SeededRandomness(1))


def test_everything_stands_under_one_guarantee(release):
    assert release.guarantee.adjacency.a == 3
    assert release.guarantee.tradeoff == Budget.gdp(13).tradeoff()
    parts = [result.guarantee for result in release.results]
    assert len(parts) == 3
    assert compose(*(part.tradeoff for part in parts)) == release.guarantee.tradeoff
    assert {part.dataspace for part in parts} == {release.scope.dataspace}
    assert not release.private
    assert run(plan(*GROUPS), pupils()).private


def test_estimates_are_near_the_truth(release):
    data = pupils()
    scores, passes = release.groups
    for (levels, count, value, error, *_), school in zip(
        scores.estimates[0].rows(), ("north", "south", "west"), strict=True
    ):
        mine = data["school"] == school
        assert (levels, count) == ((school,), int(mine.sum()))
        assert abs(value - data["score"][mine].mean()) < 6 * error
    assert [part.groups for part in passes.estimates][1] == (("f",), ("m",))
    assert scores.noise.scale == 3 * 200 / 4
    assert scores.noise.naive_l2 > scores.noise.expected_l2


def test_a_release_reads_back_as_it_was_written(release, tmp_path):
    release.save(tmp_path)
    again = Release.load(tmp_path)
    assert again.plan == release.plan
    assert again.to_json() == release.to_json()
    for one, other in zip(release.groups, again.groups, strict=True):
        assert one.noisy.tolist() == other.noisy.tolist()
        for mine, theirs in zip(one.estimates, other.estimates, strict=True):
            assert list(mine.rows()) == list(theirs.rows())
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        *(
            "csv-metadata.json",
            "release.json",
            "report.html",
            "table.csv",
            "measurements.csv",
            "mean-score.csv",
        ),
        *("proportion-passed-by-school.csv", "proportion-passed-by-sex.csv"),
        *("exact-school.csv", "exact-sex.csv"),
    }
    (tmp_path / "mean-score.csv").write_text("school,count,mean,standard_error,noisy_steps\n")
    with pytest.raises(InputError, match="was changed after"):
        Release.load(tmp_path)


def test_nothing_confidential_is_in_it(release, tmp_path):
    release.save(tmp_path)
    text = "".join(file.read_text() for file in tmp_path.iterdir())
    for school in ("north", "south", "west"):
        true = pupils()["score"][pupils()["school"] == school]
        assert repr(float(true.mean())) not in text
        assert repr(float(true.sum())) not in text


def test_the_report_shows_them_together(release):
    page = html(release)
    for words in (
        "Published mean of score by school",
        "Published proportion of passed by sex",
        "declared bounds 0 and 100",
        "differ by more than sampling and the noise explain?",
        "mean of score by school: 3 groups",
        "μ = 13 (Gaussian DP)",
        "NOT PRIVATE",
    ):
        assert words.casefold() in page.casefold()
    text = summary(release)
    assert "with noise mean of score by school: 3 groups" in text
    assert "strength   for specialists (smaller is safer): μ = 13 (Gaussian DP)" in text


def test_the_ledger_is_charged_once_for_all(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.gdp(13))
    done = run(plan(), pupils(), RunOptions(ledger=ledger))
    assert (
        done.ledger["label"]
        == "table (school × sex), mean-score (school), proportion-passed (school × sex)"
    )
    assert ledger.total().tradeoff == Budget.gdp(13).tradeoff()
    with pytest.raises(BudgetExceeded):
        run(plan(*GROUPS), pupils(), RunOptions(ledger=ledger))


def test_an_audit_calibrates_groups_again(release):
    claims = claims_of_release(release)
    assert [claim.name for claim in claims] == ["table", "mean-score", "proportion-passed"]
    assert not any(claim.faults for claim in claims)


def test_plans_round_trip():
    whole = plan()
    assert Plan.from_toml(whole.to_toml()) == whole
    assert Plan.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    assert whole.names == ("school", "sex")
    text = """
    invariants = [["school"]]
    [[group]]
    column = "score"
    bounds = [0, 100]
    by = ["school"]
    mu = 1
    """
    (group,) = Plan.from_toml(text).requests
    assert (group.statistic, group.outcome.steps, group.by, group.name) == (
        Statistic.mean,
        1_000_000,
        (SCHOOL,),
        "mean-score",
    )


def test_budgets_are_filled_in_and_shared():
    bare = GroupRequest(Statistic.sum, SCORE, [SCHOOL])
    assert plan(bare).with_budget(Budget.gdp(2)).requests[0].budget == Budget.gdp(2)
    with pytest.raises(InputError, match="'sum-score' has no privacy budget"):
        run(plan(bare), pupils())
    for budget in (Budget.gdp(1), Budget.zcdp(1), Budget.pure(1), Budget.approximate(1, "1e-6")):
        part = budget.split_evenly(3)
        for name in ("rho", "epsilon", "delta"):
            assert (getattr(part, name) or 0) * 3 == (getattr(budget, name) or 0)
        if budget.mu is not None:
            assert Fraction(99, 100) < part.mu**2 * 3 <= budget.mu**2
        assert budget.split_evenly(1) == budget


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (lambda: GroupRequest(Statistic.mean, SCORE, [SCHOOL, SCHOOL]), "named twice"),
        (lambda: GroupRequest(Statistic.mean, SCORE, [["score"]]), "is no secret"),
        (lambda: GroupRequest(Statistic.proportion, SCORE, [SCHOOL]), "leave bounds and grid out"),
        (lambda: GroupRequest("median", SCORE, [SCHOOL]), "one of mean, sum, proportion"),
        (
            lambda: GroupRequest.from_json({"column": "score", "by": ["school"]}),
            "needs declared bounds",
        ),
        (
            lambda: GroupRequest.from_json(
                {"column": "score", "by": ["a"], "bounds": [0, 1], "grid": "1.5"}
            ),
            "whole number",
        ),
        (
            lambda: plan(*[GroupRequest(Statistic.mean, SCORE, [SCHOOL])] * 2),
            "two requests would write",
        ),
    ],
)
def test_requests_check_themselves(request_, reason):
    with pytest.raises(InputError, match=reason):
        request_()


def test_groups_without_public_counts_are_refused():
    wanted = GroupRequest(Statistic.mean, SCORE, [SEX], Budget.gdp(1))
    hidden = plan(wanted, invariants=[SCHOOL], features=[Feature("sex", ("f", "m"))])
    with pytest.raises(Refused, match="those of sex are not published: publish them"):
        run(hidden, pupils())


def test_one_group_and_an_empty_group():
    data = {name: values[:60] for name, values in pupils().items()}
    wanted = GroupRequest(Statistic.mean, SCORE, [SCHOOL], Budget.gdp(1))
    declared = [Feature("school", ("north", "closed"))]
    done = run(Plan([wanted], invariants=[SCHOOL], features=declared), data, SeededRandomness(1))
    assert done.guarantee.adjacency.a == 1
    assert done.scope.semi_adjacency.worst_case == 1
    assert math.isnan(done.groups[0].estimates[0].values[1])
    assert "closed: none (0 records)" in summary(done)
    assert "nothing left to protect" not in html(done)


def test_the_saved_empty_group_reads_back(tmp_path):
    declared = [Feature("school", ("north", "closed", "south", "west"))]
    wanted = GroupRequest(Statistic.mean, SCORE, [SCHOOL], Budget.pure(1))
    done = run(Plan([wanted], invariants=[SCHOOL], features=declared), pupils())
    done.save(tmp_path)
    again = Release.load(tmp_path)
    assert math.isnan(again.groups[0].estimates[0].values[1])
    assert again.groups[0].estimates[0].counts.tolist() == [60, 0, 40, 100]


@pytest.mark.parametrize("statistic", ["mean", "proportion"])
def test_groups_that_differ_by_sampling_alone_are_not_said_to_differ(statistic):
    """A reader means the population: with next to no noise any two samples differ, and the noise
    alone says p = 0.
    """
    source = np.random.default_rng(8)
    data = {"ward": np.repeat(["a", "b", "c"], 4000), "y": source.integers(0, 2, 12_000)}
    outcome = Outcome("y", 0, 1, steps=1 if statistic == "proportion" else 10)
    request = GroupRequest(statistic, outcome, [["ward"]], Budget.gdp(5))
    release = run(Plan([request], invariants=[Margin("ward")]), data, SeededRandomness(3))
    (compared,) = release.groups[0].facts["comparisons"]
    counts = [int(data["y"][data["ward"] == ward].sum()) for ward in "abc"]
    classical = stats.chi2_contingency(
        [counts, [4000 - c for c in counts]], correction=False
    ).pvalue
    assert compared["p_value"] == pytest.approx(classical, abs=0.02)
    assert compared["p_value"] > 0.05
    # what the report said before
    assert sums(data, outcome, ["ward"], Budget.gdp(5)).compare().p_value <= 1e-4
    page = html(release)
    assert "differ by more than sampling and the noise explain?" in page
    assert (
        "was not measured: the largest that the bounds allow at each mean was taken" in page
    ) is (statistic == "mean")
    data["y"][:4000] = source.random(4000) < 0.6
    release = run(Plan([request], invariants=[Margin("ward")]), data, SeededRandomness(3))
    assert release.groups[0].facts["comparisons"][0]["p_value"] < 1e-4  # what differs is found


def test_intervals_of_a_release_are_written_read_back_and_follow_from_its_noise(tmp_path):
    records = {
        "ward": np.repeat(["a", "b", "c"], [40, 60, 20]),
        "sex": np.tile(["f", "m"], 60),
        "days": np.arange(120) % 10,
        "cured": np.arange(120) % 2,
    }
    asked = Confidence("0.9", sampling=True, simultaneous=True, differences=True)
    days = Outcome("days", 0, 10, steps=10)
    plan = Plan(
        [
            GroupRequest("mean", days, [["ward"], ["sex"]], Budget.gdp(1), confidence=asked),
            RegressionRequest(
                days, ["ward"], Budget.gdp(1), confidence=evolve(asked, differences=False)
            ),
            RegressionRequest(Outcome("cured", 0, 1, 1), ["sex"], Budget.gdp(1), model="logistic"),
        ],
        invariants=["ward", "sex"],
    )
    assert Plan.from_toml(plan.to_toml()) == plan
    run(plan, records, SeededRandomness(4)).save(tmp_path / "out")
    again = Release.load(tmp_path / "out")
    (group,) = again.groups
    noise, population = group.facts["intervals"]
    assert (noise["about"], population["about"]) == ("noise", "noise and sampling")
    assert noise["simultaneous"]
    assert (group.sheets[0]["population_upper"] > group.sheets[0]["upper"]).all()
    assert group.sheets[2].groups == (("a", "b"), ("a", "c"), ("b", "c"))
    assert again.regressions[0].facts["query"]["kind"] == "sums"
    assert len(again.regressions[1].facts["intervals"]) == 1
    document = json.loads((tmp_path / "out" / "release.json").read_text())
    assert document["groups"][0]["intervals"][1] == {
        "level": 0.9,
        "about": "noise and sampling",
        "simultaneous": True,
        "exact": False,
        "columns": ["population_lower", "population_upper"],
    }
    assert disagreements(again, document) == ()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Differences of the mean of days by ward" in page
    assert "noise alone" in page
    lines = (tmp_path / "out" / "regression-days.csv").read_text().splitlines()
    lines[1] = lines[1].replace(",", ",1", 1)
    (tmp_path / "out" / "regression-days.csv").write_text("\n".join(lines) + "\n")
    document["files"]["regression-days.csv"] = digest(tmp_path / "out" / "regression-days.csv")
    said = recheck(again, document, tmp_path / "out").disagreements
    assert said == ("it states another column 'coefficient' in regression-days.csv than follows",)


def test_what_was_measured_for_a_regression_must_be_its_own(tmp_path):
    records = {
        "ward": np.repeat(["a", "b"], 30),
        "sex": np.tile(["f", "m"], 30),
        "days": np.arange(60) % 10,
    }
    days = Outcome("days", 0, 10, steps=10)
    plan = Plan([RegressionRequest(days, ["ward"], Budget.gdp(1))], invariants=["ward", "sex"])
    release = run(plan, records, SeededRandomness(4))
    release.save(tmp_path / "out")
    design = next(asked for asked in release.plan.requests if asked.key == "regression").design(
        release.scope
    )
    columns = moment_space(release.scope.dataspace, release.scope.adjacency, days, design).query()
    queries = [
        {**release.regressions[0].facts["query"], "by": [["sex"]]},
        {**columns, "combination": [["1", "0"], ["2", "0"]]},
        {**columns, "combination": [["1", "0"]]},
        "sums",
    ]
    file = tmp_path / "out" / "release.json"
    document = json.loads(file.read_text())
    for query in queries:
        document["regressions"][0]["query"] = query
        file.write_text(json.dumps(document))
        with pytest.raises(InputError, match=r"does not give the sums|is damaged"):
            Release.load(tmp_path / "out")
