"""Linked members and units released part by part: the measurement of one piece, drawn once, and all
that one piece publishes of it.
"""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

import semidp as sd
from semidp.errors import DataError, InputError, Refused
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import reveal
from semidp.promise.documents import digest, read_document
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.publish import block_run, runners
from semidp.publish.plan import AdjacencyChoice, LinkedUnits, Plan
from semidp.publish.recheck import disagreements
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.statistics.tables import part_steps
from semidp.publish.survey import computed_features, with_units
from tests.partitions.conftest import no_report, run_partitioned, unfinished  # noqa: F401
from tests.partitions.ended_early import ended_and_resumed, sources_in_order

# state C has one tract, and nobody can be in D
PATHS = [
    *(("A", "a", tract) for tract in ("a1", "a2", "a3")),
    ("A", "b", "b1"),
    *(("B", county, f"{county}{tract}") for county in ("c", "d") for tract in (1, 2)),
    ("C", "e", "e1"),
    ("D", "f", "f1"),
]
FEATURES = (
    sd.Feature.from_paths(["state", "county", "tract"], PATHS),
    sd.Feature("sex", "fm"),
    sd.Feature("age", "xyz"),
)


def town(seed=1, homes=160, quarters=False):
    """Households in tracts, and their persons."""
    random = np.random.default_rng(seed)
    lived = PATHS[:-1]
    place = np.concatenate([np.arange(len(lived)), random.integers(0, len(lived), homes)])
    sizes = random.integers(0 if quarters else 1, 5, len(place))
    units = {
        name: [lived[each][depth] for each in place]
        for depth, name in enumerate(("state", "county", "tract"))
    }
    units |= {"home": list(range(len(place)))}
    units["tenure"] = random.choice(["own", "rent"], len(place)).tolist()
    units["type"] = ["alone" if size == 1 else "several" for size in sizes]
    if quarters:
        kinds = np.where(random.random(len(place)) < 0.2, "hall", "home")
        sizes = np.where(kinds == "hall", sizes + 6, sizes)
        units["kind"] = kinds.tolist()
    who = np.repeat(np.arange(len(place)), sizes)
    persons = {"home": who.tolist()}
    persons["sex"] = random.choice(["f", "m"], len(who)).tolist()
    persons["age"] = random.choice(["x", "y", "z"], len(who)).tolist()
    return LinkedData(persons, units)


def plan_of(tables, exact, rho="1/2", adjacency="exchange", features=(), **linked):
    requests = [sd.publish.TableRequest(names, None) for names in tables]
    margins = [names if isinstance(names, str) else tuple(names) for names in exact]
    request = sd.publish.TablesRequest(requests, sd.Budget.zcdp(rho))
    plan = Plan([request], margins, (*FEATURES, *features), adjacency=adjacency)
    aggregates, top = linked.pop("aggregates", {}), linked.pop("top", None)
    how = {"link": "home", "protect": "member", "least": 1, "most": 4} | linked
    computed = computed_features(aggregates, plan.features)
    units = LinkedUnits(
        how["link"],
        how["protect"],
        how["most"],
        how["least"],
        how.get("derived", ()),
        features=computed,
        quarters=how.get("quarters"),
    )
    linked_plan = with_units(plan, units)
    asked = evolve(linked_plan.requests[0], top_code=top)
    return evolve(linked_plan, requests=[asked])


TENURE = sd.Feature("tenure", ["own", "rent"])
TYPE = sd.Feature("type", ["alone", "several"])
CASES = {
    "tracts": (
        [["tract", "sex"], ["units:tract", "size"]],
        ["units:tract"],
        {},
    ),
    "three depths with tenure": (
        [
            ["county", "sex"],
            ["tract", "sex", "age"],
            ["units:state", "size", "tenure"],
            ["units:county", "size", "tenure"],
            ["units:tract", "size", "tenure"],
        ],
        ["state", ("units:tract", "units:tenure")],
        {"features": [TENURE]},
    ),
    "sexes cross the states": (
        [["tract", "sex"], ["state", "age"], ["units:county", "size", "type"]],
        ["sex", "units:county"],
        {"features": [TYPE], "derived": ["type"]},
    ),
    "units are not cut": (
        [["tract", "sex"], ["units:state", "size"]],
        ["units:tract"],
        {"adjacency": AdjacencyChoice.worst_case},
    ),
    "members are not cut": (
        [["state", "sex"], ["units:tract", "size"]],
        ["state", "units:tract"],
        {},
    ),
    "a whole unit": (
        [["tract", "sex"], ["units:tract", "size"]],
        [],
        {"protect": "unit", "adjacency": AdjacencyChoice.worst_case},
    ),
    "computed": (
        [["tract", "sex"], ["units:tract", "size", "women"]],
        ["units:tract"],
        {
            "features": [sd.Feature("women", "01234")],
            "aggregates": {"women": "count_if(sex = 'f')"},
        },
    ),
    "top-coded": (
        [["tract", "sex"], ["units:tract", "size"]],
        ["units:tract"],
        {"top": 3},
    ),
    "quarters": (
        [["tract", "kind", "sex"], ["units:tract", "size"]],
        ["state", "units:tract"],
        {
            "features": [sd.Feature("kind", ["hall", "home"])],
            "least": 0,
            "quarters": {"kind": ["hall"]},
        },
    ),
}


def case(name, rho="1/2"):
    tables, exact, how = CASES[name]
    return plan_of(tables, exact, rho, **how), town(quarters=name == "quarters")


@pytest.mark.few(1)
@pytest.mark.parametrize("depth", ["state", "county"])
@pytest.mark.parametrize("name", CASES)
def test_parts_measure_and_publish_what_one_piece_does(name, depth, tmp_path):
    plan, data = case(name)
    made = run_partitioned(plan, data, tmp_path / "parts", depth, randomness=SeededRandomness(4))
    release = sd.Release.load(tmp_path / "parts")
    (result,) = release.results
    prepared = sd.prepare(plan, data)
    (mechanism,) = prepared.mechanisms
    # one guarantee: the noise and the claim of one piece
    assert made.guarantee == prepared.guarantee
    assert result.mechanism.members.sigma2 == mechanism.members.sigma2
    assert result.mechanism.units.sigma2 == mechanism.units.sigma2
    measured = mechanism.restore_measurement(result.noisy, result.private)
    whole = plan.requests[0].publish(mechanism, measured, prepared.scope, silent)
    compared = 0
    for one, other, first in zip(whole.tables, result.tables, made.tables, strict=True):
        assert (one.name, one.counted) == (other.name, other.counted)
        assert np.array_equal(one.counts, other.counts)
        assert np.array_equal(first.counts, other.counts)
        assert np.allclose(one.estimate, other.estimate, rtol=0, atol=1e-9)
        assert np.allclose(one.standard_errors, other.standard_errors, rtol=0, atol=1e-9)
        # files hold the bounds of intervals, rounded
        assert np.allclose(one.half_widths, other.half_widths, rtol=0, atol=1e-5)
        assert one.counts.min() >= 0
        assert other.keeps(prepared.scope.dataspace)
        compared += one.counts.size
    assert compared > 10
    agreeing, places = result.agreeing
    assert agreeing == places > 0
    assert disagreements(release, read_document(tmp_path / "parts" / "release.json")) == ()
    rows = [part.folder for part in release.partition.parts]
    assert len(rows) == (4 if depth == "state" else 6)
    of_part = release.part("A" if depth == "state" else "a")
    assert {table.name for table in result.held_tables()}.isdisjoint(of_part)
    assert of_part
    for table in of_part.values():
        whole_table = release[table.name]
        assert table.counts.sum() <= whole_table.counts.sum()
        assert set(table.schema.names) == set(whole_table.schema.names)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
def test_without_noise_parts_hold_the_residuals_of_the_records(name, tmp_path):
    """Every entry is measured by one part or at the cut: none is left out, none is another's."""
    plan, data = case(name, "1e12")
    made = run_partitioned(plan, data, tmp_path / "parts", "state", randomness=SeededRandomness(4))
    values = reveal(sd.prepare(plan, data).values[0])
    assert np.array_equal(made.results[0].noisy, values)
    assert np.abs(values).max() > 0


@pytest.mark.long
def test_the_noise_of_parts_is_that_of_the_whole(tmp_path):
    """Standardised by the σ² of one piece it has variance 1; twins of 0.7 and 1.3 σ have not."""
    plan, data = case("three depths with tenure")
    prepared = sd.prepare(plan, data)
    (mechanism,), values = prepared.mechanisms, reveal(prepared.values[0])
    squares = []
    for seed in range(3):
        place, seeded = tmp_path / f"parts-{seed}", SeededRandomness(seed)
        made = run_partitioned(plan, data, place, "state", randomness=seeded)
        noise = made.results[0].noisy - values
        for half, of_kind in zip(mechanism.space.split(noise), mechanism.parts, strict=True):
            varies = of_kind.space.variances() > 0  # an only child is not measured
            squares += (half**2 / of_kind.variances)[varies].tolist()
    assert len(squares) > 400
    mean = float(np.mean(squares))
    # the mean of so many squares leaves these bounds in less than one of a million draws
    low, high = 1 - 5 * np.sqrt(2 / len(squares)), 1 + 5 * np.sqrt(2 / len(squares))
    assert low < mean < high
    assert not low < mean * 0.7**2 < high
    assert not low < mean * 1.3**2 < high


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("after", [0, 2, 6])
def test_nothing_is_drawn_or_charged_twice(name, after, tmp_path):
    plan, data = case(name)
    sources = ended_and_resumed(plan, data, tmp_path, after, sd.Budget.zcdp(100))
    # at the cut, and below it in the states that have tracts to compare
    assert len({path[:3] for path in sources}) >= 3
    assert len(Ledger(tmp_path / "ledger.json").account().charges) == 1


KILLED = """
import os, signal, sys
import semidp as sd
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.statistics.tables import part_steps
from tests.linked.test_parts import case
from tests.partitions.conftest import run_partitioned

stored = []
real = part_steps._store_once

def store_once(*words):
    if len(stored) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    stored.append(real(*words))

part_steps._store_once = store_once
plan, data = case("tracts")
ledger = sd.Ledger(sys.argv[1] + "/ledger.json")
how = {"ledger": ledger, "randomness": SeededRandomness(5)}
run_partitioned(plan, data, sys.argv[1] + "/release", "state", **how)
"""


@pytest.mark.long
@pytest.mark.parametrize("point", [0, 1, 2])
def test_a_release_that_is_killed_is_finished_as_it_was_begun(point, tmp_path):
    plan, data = case("tracts")
    Ledger.create(tmp_path / "ledger.json", sd.Budget.zcdp(100))
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(point)]
    ended = subprocess.run(words, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    ledger, seeded = Ledger(tmp_path / "ledger.json"), SeededRandomness(5)
    charges = ledger.account().charges
    assert len(charges) == 1
    place = tmp_path / "release"
    stored = {path.name: path.read_bytes() for path in unfinished(place).rglob("*.parquet")}
    assert len(stored) == point
    how = {"ledger": ledger, "resume": True, "randomness": seeded}
    again = run_partitioned(plan, data, place, "state", **how)
    assert ledger.account().charges == charges
    whole = run_partitioned(plan, data, tmp_path / "whole", "state", randomness=seeded)
    for one, other in zip(whole.tables, again.tables, strict=True):
        assert np.array_equal(one.counts, other.counts)


def test_every_source_of_noise_is_used_once_in_one_run(tmp_path):
    plan, data = case("three depths with tenure")
    sources = sources_in_order(plan, data, tmp_path)
    places = {path[1:3] for path in sources}
    assert {("above", "member"), ("above", "unit"), ("member", "A"), ("unit", "B")} <= places
    assert len(sources) == len(set(sources)) > 20


def write(folder, data):
    for name, columns in (("persons", data.members), ("homes", data.units)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(columns)
            rows.writerows(zip(*columns.values(), strict=True))
    return LinkedData(str(folder / "persons.csv"), str(folder / "homes.csv"))


@pytest.mark.long
def test_worker_processes_draw_the_same(tmp_path):
    plan, data = case("tracts")
    files = write(tmp_path, data)
    one = run_partitioned(plan, files, tmp_path / "one", "state", randomness=SeededRandomness(2))
    two = run_partitioned(
        plan, files, tmp_path / "two", "state", randomness=SeededRandomness(2), jobs=2
    )
    for first, second in zip(one.tables, two.tables, strict=True):
        assert np.array_equal(first.counts, second.counts)
    with pytest.raises(InputError, match="open the data themselves"):
        run_partitioned(plan, data, tmp_path / "three", "state", jobs=2)


def test_records_that_change_meanwhile_end_the_release(tmp_path, monkeypatch):
    plan, data = case("tracts")
    other = town(seed=2)
    with block_run.open_records(plan, other) as changed:
        monkeypatch.setattr(
            runners,
            "_run_task",
            lambda source, task: runners.carry_out(
                task, None if task.values is None else changed.only(task.values)
            ),
        )
        with pytest.raises(DataError, match="do not add up to what was read first"):
            run_partitioned(plan, data, tmp_path / "parts", "state")


def test_a_changed_part_is_found(tmp_path):
    plan, data = case("tracts")
    place = tmp_path / "parts"
    run_partitioned(plan, data, place, "state", form="csv")
    file = place / "state=A" / "units-tract-size.csv"
    lines = file.read_text().splitlines()
    head, cells = lines[0].split(","), lines[1].split(",")
    cells[head.index("count")] = str(int(cells[head.index("count")]) + 1)
    file.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    with pytest.raises(InputError, match="was changed after the release was written"):
        disagreements(sd.Release.load(place), read_document(place / "release.json"))
    # with new digests everywhere the counts still do not add up
    parts = json.loads((place / "parts.json").read_text())
    parts[0]["files"][file.name] = digest(file)
    (place / "parts.json").write_text(json.dumps(parts))
    document = json.loads((place / "release.json").read_text())
    document["files"]["parts.json"] = digest(place / "parts.json")
    (place / "release.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="'units-tract-size' does not add up"):
        sd.Release.load(place)


REFUSED = {
    "not a depth of a nested feature": ("sex", {}, InputError),
    "no table is finer": (
        "county",
        {"tables": [["county", "sex"], ["units:county", "size"]]},
        InputError,
    ),
    "are too many for that": ("state", {"cells": 10}, Refused),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_parts_cannot_do_is_refused_before_a_charge(said, tmp_path, monkeypatch):
    depth, how, error = REFUSED[said]
    tables = how.get("tables", CASES["tracts"][0])
    if "cells" in how:
        monkeypatch.setattr(part_steps, "MOST_TOGETHER", how["cells"])
    Ledger.create(tmp_path / "ledger.json", sd.Budget.zcdp(100))
    ledger = Ledger(tmp_path / "ledger.json")
    plan = plan_of(tables, ["units:tract"])
    with pytest.raises(error, match=said):
        run_partitioned(plan, town(), tmp_path / "parts", depth, ledger=ledger)
    assert not ledger.account().charges
    assert not (tmp_path / "parts").exists()


def test_a_nested_feature_of_members_alone_is_no_partition(tmp_path):
    jobs = sd.Feature.from_paths(["branch", "job"], [("p", "p1"), ("p", "p2"), ("q", "q1")])
    data = town()
    data.members["branch"] = ["p"] * len(data.members["sex"])
    data.members["job"] = ["p1"] * len(data.members["sex"])
    plan = plan_of([["job", "sex"], ["units:tract", "size"]], ["units:tract"], features=[jobs])
    with pytest.raises(InputError, match="nested feature of units"):
        run_partitioned(plan, data, tmp_path / "parts", "branch")


def test_spark_is_refused_in_a_sentence(tmp_path, monkeypatch):
    from semidp.publish.sources.opening import Source

    plan, data = case("tracts")
    monkeypatch.setattr(Source, "spark_frame", lambda self: object())
    with pytest.raises(Refused, match="on Spark"):
        run_partitioned(plan, data, tmp_path / "parts", "state")


def test_a_command_releases_rehearses_and_shows(tmp_path, monkeypatch, capsys):
    from semidp.cli import run

    monkeypatch.chdir(tmp_path)
    write(tmp_path, town())
    words = [
        "release",
        "persons.csv",
        "--units",
        "homes.csv",
        "--link",
        "home",
        "--protect",
        "member",
        "--most-members",
        "4",
        "--nest",
        "state,county,tract",
        "--table",
        "tract,sex",
        "--table",
        "units:tract,size",
        "--exact",
        "units:tract",
        "--levels",
        "sex=f,m",
        "--rho",
        "1",
        "--partition",
        "state",
    ]
    assert run([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "one for every state" in said
    assert "linked residuals" in said
    assert run([*words, "--out", "nation"]) == 0
    assert "agree      sizes times units is the number of members in 9 of 9" in (
        capsys.readouterr().out
    )
    assert sorted(path.name for path in Path("nation/state=A").iterdir()) == [
        "linked-measurements.parquet",
        "tract-sex.parquet",
        "units-tract-size.parquet",
    ]
    assert run(["show", "nation"]) == 0
    assert json.loads(Path("nation/release.json").read_text())["partition"]["parts"] == 3
    capsys.readouterr()
    assert run(["intervals", "nation", "--name", "units:tract-size"]) == 0


def test_questions_take_all_parts_together(tmp_path):
    plan, data = case("tracts")
    run_partitioned(plan, data, tmp_path / "parts", "state")
    release = sd.Release.load(tmp_path / "parts")
    sizes = np.arange(1.0, 5.0) * np.ones(release["units:tract-size"].schema.shape)
    everybody = np.ones(release["tract-sex"].schema.shape)
    sizes[1:], everybody[1:] = 0, 0
    value, error = release.estimate({"units:tract-size": sizes, "tract-sex": -everybody})
    assert abs(value) < 1e-9
    assert error < 1e-6
