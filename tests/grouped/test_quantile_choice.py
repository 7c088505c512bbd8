"""Quantiles are chosen or read off a distribution, whichever public numbers say is better; every
output says which.
"""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Outcome, Plan, Release, RunOptions, prepare, run
from semidp.errors import InputError
from semidp.front import median, quantile
from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_space
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish import QuantileRequest
from semidp.publish.recheck import disagreements
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.distribution.kind import Answers, DistributionRequest, even_error
from semidp.publish.statistics.distribution.published import (
    GroupDistributions,
    difference_error,
)
from semidp.publish.statistics.outcomes.groups import EvenGroup

SCORE = Outcome("score", 0, 100, 100)
MEDIAN = QuantileRequest(SCORE, [["school"]], budget=Budget.gdp(1))
WITH_INTERVAL = evolve(MEDIAN, level="0.95")
NINE = evolve(MEDIAN, probabilities=[Fraction(place, 10) for place in range(1, 10)], name="nine")


def pupils(seed: int = 1) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    return {
        "school": np.repeat(["a", "b"], [300, 200]),
        "score": source.normal(50, 15, 500).clip(0, 100).round(),
    }


def plan_of(request: QuantileRequest | DistributionRequest) -> Plan:
    return Plan([request], invariants=["school"])


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("request_", "kind", "answers"),
    [
        (MEDIAN, "quantile", None),
        (WITH_INTERVAL, "distribution", Answers.intervals),
        (NINE, "distribution", Answers.values),
        (evolve(WITH_INTERVAL, mechanism="selection"), "quantile", None),
        (evolve(NINE, mechanism="selection"), "quantile", None),
        (evolve(WITH_INTERVAL, sampling=True), "quantile", None),
        (evolve(MEDIAN, mechanism="distribution"), "distribution", Answers.asked),
        (evolve(WITH_INTERVAL, outcome=Outcome("score", 0, 100, 5000)), "quantile", None),
    ],
)
def test_a_request_is_answered_by_whichever_is_better(
    request_: QuantileRequest, kind: str, answers: Answers | None
) -> None:
    """A median alone is chosen; intervals, and many quantiles, come from a distribution; a name
    decides.
    """
    (answer,) = prepare(plan_of(request_), pupils()).plan.requests
    assert answer.key == kind
    assert answer.name == request_.name
    assert answer.budget == request_.budget
    if answers is not None:
        assert isinstance(answer, DistributionRequest)
        assert answer.answers is answers
        assert answer.probabilities == request_.probabilities
    else:
        assert answer == request_


def test_no_record_decides() -> None:
    """Datasets with the same group sizes get the same answer and the same sentence, however their
    values lie.
    """
    other = pupils(2)
    other["score"] = np.zeros(500)
    sentences = 0
    for request in (MEDIAN, WITH_INTERVAL, NINE):
        one, two = prepare(plan_of(request), pupils()), prepare(plan_of(request), other)
        assert one.plan == two.plan
        assert one.choices == two.choices
        sentences += len(one.choices)
    assert sentences == 3


def test_a_median_that_is_chosen_stays_what_it_was() -> None:
    """What auto leaves to selection has the numbers of selection, from the same seed."""
    auto = run(plan_of(MEDIAN), pupils(), SeededRandomness(5))
    named = run(plan_of(evolve(MEDIAN, mechanism="selection")), pupils(), SeededRandomness(5))
    assert auto.quantiles[0].noisy.tolist() == named.quantiles[0].noisy.tolist()
    lines = dict(auto.quantiles[0].summary_lines())
    assert lines["mechanism"].startswith("selection by the exponential mechanism, at most ")


def test_a_release_answers_the_same_questions_and_says_how(tmp_path: Path) -> None:
    """The file that is called after the request has the same columns either way; the release is
    computed again.
    """
    out, by_choice = tmp_path / "out", tmp_path / "chosen"
    made = run(
        plan_of(WITH_INTERVAL), pupils(), RunOptions(randomness=SeededRandomness(3), out=out)
    )
    run(plan_of(evolve(WITH_INTERVAL, mechanism="selection")), pupils(), RunOptions(out=by_choice))
    columns = (out / "median-score.csv").read_text().splitlines()[0]
    chosen = (by_choice / "median-score.csv").read_text().splitlines()[0]
    assert columns == "school,count,q0.5,q0.5_lower,q0.5_upper"
    assert chosen.startswith(columns)
    again = Release.load(out)
    document = json.loads((out / "release.json").read_text())
    assert document["plan"]["distribution"][0]["answers"] == "intervals"
    assert disagreements(again, document) == ()
    (result,) = again.distributions
    assert result.request == made.distributions[0].request
    assert result.title() == "median of score by school, read off its distribution"
    lines = dict(result.summary_lines())
    assert lines["choice"].startswith("a distribution, whose intervals reach fewer ranks")
    page = (out / "report.html").read_text()
    assert (
        "Quantiles were asked for, and measured by a distribution, whose intervals reach fewer"
        " ranks" in page
    )
    frame = again["median-score"].to_pandas()
    assert list(frame.columns) == columns.split(",")
    # Carried out again, the plan of a release measures the same.
    (answer,) = prepare(again.plan, pupils()).plan.requests
    assert answer == result.request


def test_plans_hold_the_mechanism_and_refuse_others() -> None:
    named = evolve(WITH_INTERVAL, mechanism="distribution")
    assert Plan.from_toml(plan_of(named).to_toml()) == plan_of(named)
    assert "mechanism" not in MEDIAN.to_json()
    asked = DistributionRequest(SCORE, [["school"]], answers="asked", name="m")
    assert Plan.from_toml(plan_of(asked).to_toml()) == plan_of(asked)
    assert asked.files == ("m-distribution.csv", "m.csv")
    assert (
        median("score", by="school", bounds=(0, 1), mechanism="selection").mechanism == "selection"
    )
    assert (
        quantile("score", 0.1, by="school", bounds=(0, 1), mechanism="distribution").mechanism
        == "distribution"
    )
    with pytest.raises(
        InputError, match="must be one of auto, selection, distribution, not 'laplace'"
    ):
        evolve(MEDIAN, mechanism="laplace")
    with pytest.raises(InputError, match="intervals about a population are chosen"):
        evolve(WITH_INTERVAL, sampling=True, mechanism="distribution")
    fine = evolve(MEDIAN, outcome=Outcome("score", 0, 100, 5000), mechanism="distribution")
    with pytest.raises(InputError, match="at most 4,096 steps"):
        prepare(plan_of(fine), pupils())
    with pytest.raises(InputError, match="what a distribution answers must be one of"):
        evolve(asked, answers="nothing")


def even_world(size: int, steps: int) -> tuple[Dataspace, Outcome, list[Margin]]:
    by = [Margin("group")]
    public = Dataspace.from_table(Table(Schema([Feature("group", ["a", "b"])]), [size, size]), by)
    return public, Outcome("value", 0, steps, steps), by


@pytest.mark.parametrize(("size", "steps", "count"), [(100, 15, 1), (400, 63, 3), (30, 40, 4)])
def test_both_errors_are_those_of_the_mechanisms(size: int, steps: int, count: int) -> None:
    """What decides is what the mechanisms do on an even group, by drawing from them; a tenth off
    would be seen.
    """
    public, outcome, by = even_world(size, steps)
    probabilities = tuple(Fraction(place, count + 1) for place in range(1, count + 1))
    group = EvenGroup(size, steps)
    rows = np.stack([group.histogram, group.histogram])
    truth = np.array([group.place(group.rank(probability)) for probability in probabilities])
    budget, draws = Budget.gdp(1), 1_500

    choosing = exponential_mechanism(
        rank_space(public, Ball(2), outcome, by, probabilities), budget
    )
    request = QuantileRequest(outcome, [["group"]], probabilities, budget)
    chosen = choosing.measure_many(rows, draws, SeededRandomness(1)).reshape(draws, 2, count)
    seen = float(np.abs(chosen - truth).mean())
    foreseen = request.steps_off(choosing)
    assert foreseen is not None
    assert abs(seen / foreseen - 1) < 0.1
    # Twice the rate is told apart.
    assert abs(seen / request.steps_off(choosing.with_less_noise(Fraction(1, 2))) - 1) > 0.1

    space = distribution_space(public, Ball(2), outcome, by)
    measuring = select_mechanism(space, budget)
    distances = []
    source = SeededRandomness(2)
    for _ in range(150):
        measured = measuring.measure(space.apply_query(rows), source)
        parts = GroupDistributions(measuring, measured).quantiles(probabilities)
        distances += [
            np.abs(part.values - place).mean() for part, place in zip(parts, truth, strict=True)
        ]
    off = even_error(group, difference_error(measuring), probabilities)
    assert abs(np.mean(distances) / off - 1) < 0.2
    assert (
        abs(
            np.mean(distances) / even_error(group, 2 * difference_error(measuring), probabilities)
            - 1
        )
        > 0.2
    )
