"""A pair of datasets that somebody gives: which are adjacent by the definition, which are refused,
and the verdict.
"""

import itertools
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import semidp as sd
from semidp import run
from semidp.assess import audit_mechanism, claims_of_release, given_pairs
from semidp.assess.adjacent_datasets import ListedExchanges
from semidp.assess.attacked_pairs import _arises, is_reachable
from semidp.cli import run as command
from semidp.errors import Refused, SemidpError
from semidp.present.release import Release
from semidp.promise.mechanisms.exponential import ExponentialMechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.tables.asked import TableRequest
from tests.grouped.test_rank_norms import datasets, neighbours, space_of
from tests.test_several_records import DISJOINT, drawn

Records = list[dict[str, Any]]


@pytest.mark.parametrize(("records", "features", "steps"), [(3, 2, 2), (4, 1, 2), (2, 3, 2)])
def test_one_exchange_is_what_the_definition_says(records: int, features: int, steps: int) -> None:
    """Every two datasets of a small world, as multisets of records."""
    blocks = ListedExchanges.from_dataspace(space_of(records, features, 0, steps).dataspace)
    every = {tuple(sorted(dataset)) for dataset in datasets(records, features, steps)}
    adjacent = {
        frozenset((tuple(sorted(one)), tuple(sorted(other))))
        for one, other in neighbours(records, features, steps)
    }
    kinds = Counter(
        (frozenset((one, other)) in adjacent)
        == (
            _arises(blocks, Counter(one), Counter(other))
            or _arises(blocks, Counter(other), Counter(one))
        )
        for one, other in itertools.combinations(sorted(every), 2)
    )
    assert kinds[True] > 100
    assert not kinds[False]
    assert any(
        frozenset((one, other)) not in adjacent
        for one, other in itertools.combinations(sorted(every), 2)
    )


def test_several_exchanges_are_chains_of_the_definition() -> None:
    """Every two datasets of small worlds with the same totals, and persons with two or three
    records.
    """
    kinds: Counter[tuple[bool, bool]] = Counter()
    for world in drawn(3, 25, DISJOINT):
        blocks = ListedExchanges.from_dataspace(world.space)
        fiber = sorted(world.fiber)
        for one, other in itertools.product(fiber[:12], fiber):
            chained = (one, other) in world.chains
            kinds[chained, is_reachable(blocks, Counter(one), Counter(other), world.most)] += 1
    assert not kinds[True, False]
    assert not kinds[False, True]
    assert kinds[True, True] > 1000
    assert kinds[False, False] > 10


def stays(moved: int) -> list[dict[str, Any]]:
    """Ten patients with stays in two wards; one patient's stays go to another ward, others
    follow.
    """
    records = [{"ward": "a", "outcome": "home"} for _ in range(10)]
    records += [{"ward": "b", "outcome": "died"} for _ in range(10)]
    for number in range(moved):
        records[number] = {"ward": "b", "outcome": "home"}
        records[10 + number] = {"ward": "a", "outcome": "died"}
    return records


def test_a_pair_of_a_person_with_several_records(tmp_path: Path, capsys: Any) -> None:
    columns = {name: [record[name] for record in stays(0)] for name in ("ward", "outcome")}
    release = sd.release(
        {**columns, "patient": [str(number // 3) for number in range(20)]},
        sd.table("ward", "outcome"),
        exact=["ward"],
        levels={"outcome": ["home", "died"]},
        id="patient",
        most=3,
        adjacency="exchange",
        mu=1,
    )
    release.save(tmp_path / "release")
    verdicts = {}
    for moved in (1, 3, 4):
        (tmp_path / "pair.json").write_text(json.dumps([stays(0), stays(moved)]))
        asked = ["audit", str(tmp_path / "release"), "--pair", str(tmp_path / "pair.json")]
        verdicts[moved] = command([*asked, "--samples", "6000", "--seed", "1"])
        said = capsys.readouterr()
        if moved == 4:
            assert "not found to be 3 exchanges apart" in said.err
            assert "one patient with up to 3 records" in said.err
    # one stay that changes shows too little of noise for three
    assert verdicts == {1: 3, 3: 0, 4: 2}


def pupils() -> Records:
    """Two schools of 40, with scores from 0 to 20."""
    scores = {"x": [0] * 12 + [1] * 28, "y": [0] * 8 + [1] * 14 + [20] * 18}
    return [
        {"school": school, "score": score} for school, values in scores.items() for score in values
    ]


def changed(records: Records, changes: dict[int, dict[str, Any]]) -> Records:
    return [{**record, **changes.get(number, {})} for number, record in enumerate(records)]


@pytest.fixture(params=["exchange", "worst-case"])
def release(request: pytest.FixtureRequest) -> Release:
    medians = QuantileRequest(Outcome("score", 0, 20, 20), [["school"]], budget=Budget.pure(2))
    plan = Plan([medians], invariants=["school"], adjacency=request.param)
    return run(plan, {name: [record[name] for record in pupils()] for name in ("school", "score")})


# pupil 48 brings a score of 1 from y to x
EXCHANGED = {0: {"school": "y", "score": 20}, 48: {"school": "x"}}
TWO_SCORES = {0: {"score": 20}, 1: {"score": 20}}


def test_the_pair_is_audited_where_it_is_adjacent(release: Release) -> None:
    """The right noise is not convicted on it, and a third of the noise is."""
    claims = claims_of_release(release)
    (pair,) = given_pairs(
        [pupils(), changed(pupils(), EXCHANGED)], claims, release.plan, release.scope
    )
    assert pair is not None
    assert pair.records == 2
    mechanism = claims[0].mechanism
    assert isinstance(mechanism, ExponentialMechanism)
    wrong = evolve(mechanism, rate=mechanism.rate * Fraction(3))
    for noise, convicted in ((mechanism, False), (wrong, True)):
        found = audit_mechanism(
            noise.measure_many,
            pair,
            claims[0].tradeoff,
            samples=20_000,
            randomness=SeededRandomness(1),
        )
        assert found.is_convicted is convicted


def test_two_people_at_once_are_in_the_ball_and_no_exchange(release: Release) -> None:
    given = [pupils(), changed(pupils(), TWO_SCORES)]
    claims = claims_of_release(release)
    if release.scope.adjacency.protects_groups:
        (pair,) = given_pairs(given, claims, release.plan, release.scope)
        assert pair is not None
        return
    with pytest.raises(Refused, match="not one exchange apart"):
        given_pairs(given, claims, release.plan, release.scope)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("second", "said"),
    [
        (changed(pupils(), {0: {"school": "y"}}), "other totals of school"),
        (pupils()[1:], "another number of records"),
        (
            changed(pupils(), {k: {"score": 7} for k in range(3)}),
            "not one exchange apart|differ in 3 records",
        ),
        (pupils(), "nothing to tell apart"),
        (changed(pupils(), {0: {"score": "many"}}), "not a number"),
        (changed(pupils(), {0: {"school": "z"}}), "school"),
        ([{"school": "x"}] * 80, "no value for 'score'"),
        ([1, 2, 3], "not a list of records"),
        ({"school": ["x"]}, "not a list of records"),
    ],
)
def test_other_pairs_are_refused(release: Release, second: Any, said: str) -> None:
    with pytest.raises(SemidpError, match=said):
        given_pairs([pupils(), second], claims_of_release(release), release.plan, release.scope)


def test_tables_are_audited_on_a_pair_too() -> None:
    """A table of schools by illness, and one that the pair does not change."""
    features = [Feature("ill", ["n", "y"]), Feature("sex", ["f", "m"])]
    requests = [
        TableRequest([*names], Budget.gdp(1), mechanism="gaussian", name=name)
        for names, name in ((["school", "ill"], "ill"), (["school", "sex"], "sex"))
    ]
    plan = Plan(requests, ["school"], features, adjacency="exchange")
    records = [
        {"school": "xy"[k % 2], "ill": "ny"[k % 3 == 0], "sex": "fm"[k % 5 == 0]} for k in range(60)
    ]
    release = run(plan, {name: [record[name] for record in records] for name in records[0]})
    claims = claims_of_release(release)
    pairs = given_pairs(
        [records, changed(records, {0: {"ill": "n"}})], claims, release.plan, release.scope
    )
    changes = [None if pair is None else pair.records for pair in pairs]
    assert changes == [1, None]


def test_the_command_takes_a_pair(
    tmp_path: Path, release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    release.save(tmp_path / "release")
    file = tmp_path / "pair.json"
    words = [
        "audit",
        str(tmp_path / "release"),
        "--pair",
        str(file),
        "--samples",
        "2000",
        "--seed",
        "1",
        "--quiet",
    ]
    file.write_text(json.dumps([pupils(), changed(pupils(), EXCHANGED)]))
    assert command(words) == 3
    assert "2 values of 2 groups" in capsys.readouterr().out
    assert command([*words, "--format", "json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["tables"]
    assert found["audit"]["pair"]["records"] == 2
    for text, said in (
        (json.dumps([pupils(), changed(pupils(), {0: {"school": "y"}})]), "other totals of school"),
        (json.dumps([pupils()]), "does not hold a list of two datasets"),
        ("[", "does not hold a list of two datasets"),
    ):
        file.write_text(text)
        assert command(words) == 2
        assert said in capsys.readouterr().err
