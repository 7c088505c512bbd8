"""Releases of the example tables under every kind of invariant, mechanism and fit: totals exact,
files sound.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Margin, Plan, Refused, Release, run
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.published_table import exact_totals
from semidp.publish.selection import NAMES as MECHANISMS
from tests.release.conftest import (
    Example,
    assert_same_margins,
    cells_of,
    read_table,
    strict_json,
    totals,
)

pytestmark = pytest.mark.pictures

Save = Callable[[Release], Path]
BUDGETS = {
    "pure": Budget.pure(1),
    "approximate": Budget.approximate(1, "1e-6"),
    "zcdp": Budget.zcdp("1/2"),
    "gdp": Budget.gdp(1),
}
INVARIANTS = {
    "occupational_status": {
        "one-way": [["origin"], ["destination"]],
        "one of two": [["origin"]],
        "joint": [["origin", "destination"]],
        "none": [],
    },
    "ucb_admissions": {
        "one-way": [["admit"], ["gender"], ["dept"]],
        "joint": [["admit", "gender"]],
        "mixed": [["admit", "gender"], ["dept"]],
        "chain": [["admit", "dept"], ["dept", "gender"]],
    },
    "hair_eye_color": {
        "one-way": [["hair"], ["eye"], ["sex"]],
        "joint": [["hair", "eye"]],
        "mixed": [["hair", "eye"], ["sex"]],
        "nested": [["hair", "eye"], ["eye"], ["sex"]],
    },
    "titanic": {
        "one-way": [["class"], ["sex"], ["age"], ["survived"]],
        "joint": [["class", "sex"], ["age", "survived"]],
        "mixed": [["class", "sex"], ["age"], ["survived"]],
        "chain": [["class", "sex"], ["sex", "survived"]],
    },
}
CASES = [(name, kind) for name, kinds in INVARIANTS.items() for kind in kinds]
FITTING = {
    "gaussian": "zcdp",
    "laplace": "pure",
    "knorm": "pure",
    "l2": "pure",
    "lattice": "zcdp",
}


def plan_for(example: Example, invariants: list[list[str]], **request: object) -> Plan:
    table = TableRequest(example.features, **{"budget": BUDGETS["zcdp"], **request})  # type: ignore[arg-type]
    return Plan(
        [table], [Margin(*names) for names in invariants], example.declared(), count="count"
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("name", "kind"), CASES, ids=lambda value: value)
def test_totals_are_exact_and_files_are_sound(
    saved: Save, name: str, kind: str, budget: str
) -> None:
    example, invariants = Example.named(name), INVARIANTS[name][kind]
    release = run(plan_for(example, invariants, budget=BUDGETS[budget]), example.path)
    folder = saved(release)
    exact = [f"{total.stem}.csv" for total in exact_totals(release.scope.dataspace)]
    assert len(exact) == len(release.scope.dataspace.margins)
    assert {path.name for path in folder.iterdir()} == {
        *("csv-metadata.json", "measurements.csv", "release.json", "report.html", "table.csv"),
        *exact,
    }
    assert_same_margins(example, folder, example.features, invariants)

    header, cells = read_table(folder)
    assert header == [
        *example.features,
        "estimate",
        "standard_error",
        "estimate_low",
        "estimate_high",
        "count",
    ]
    assert set(cells) == cells_of(example.declared())
    assert all(float(row[-1]) >= 0 and float(row[1]) >= 0 for row in cells.values())

    with open(folder / "measurements.csv", encoding="utf-8", newline="") as file:
        header, *measured = csv.reader(file)
    residuals = release.results[0].noise.mechanism == ResidualMechanism.name
    assert header == (
        ["residual", "entry", "scale", "noisy"] if residuals else [*example.features, "noisy_count"]
    )
    assert all(row[-1].lstrip("-").isdigit() for row in measured)
    projected = {cell: float(row[0]) for cell, row in cells.items()}
    for names in invariants:
        exactly = example.total(names)
        for key, value in totals(example.features, projected, names).items():
            assert value == pytest.approx(exactly.get(key, 0), abs=1e-6)

    document = strict_json((folder / "release.json").read_text(encoding="utf-8"))
    assert document["schema_version"] == 1
    assert document["private"] is True
    assert document["tables"][0]["budget"]["kind"] == budget
    assert release.scope.semi_adjacency is not None
    assert document["a"]["used"] == release.scope.semi_adjacency.bound


@pytest.mark.few(1)
@pytest.mark.parametrize("fit", ["integer", "none"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["ucb_admissions", "hair_eye_color"])
def test_every_mechanism_with_every_fit(saved: Save, name: str, mechanism: str, fit: str) -> None:
    example = Example.named(name)
    names = list(example.features)
    invariants = [names[:2], names[2:]]
    plan = plan_for(
        example, invariants, budget=BUDGETS[FITTING[mechanism]], mechanism=mechanism, fit=fit
    )
    release = run(plan, example.path)
    folder = saved(release)
    assert release.private == (not mechanism.startswith("naive"))
    strict_json((folder / "release.json").read_text(encoding="utf-8"))
    if fit == "integer":
        assert_same_margins(example, folder, example.features, invariants)
        return
    counts = {cell: float(row[-1]) for cell, row in read_table(folder)[1].items()}
    for margin in invariants:
        assert totals(example.features, counts, margin) == pytest.approx(
            example.total(margin), abs=1e-5
        )


UNFIT = [
    (name, b)
    for name, kinds in MECHANISMS.items()
    for b in BUDGETS
    if not any(b in kind.budget_kinds for kind in kinds)
]


@pytest.mark.parametrize(("mechanism", "budget"), UNFIT)
def test_a_mechanism_refuses_a_budget_that_it_cannot_meet(mechanism: str, budget: str) -> None:
    example = Example.named("ucb_admissions")
    plan = plan_for(example, [["admit"], ["gender"]], mechanism=mechanism, budget=BUDGETS[budget])
    with pytest.raises(Refused, match=r"cannot satisfy .*: use"):
        run(plan, example.path)


def test_a_table_with_fewer_features_than_the_invariants(saved: Save) -> None:
    example = Example.named("titanic")
    invariants = [["class", "sex"], ["age", "survived"]]
    request = TableRequest(["class", "survived"], BUDGETS["zcdp"])
    plan = Plan([request], [Margin(*names) for names in invariants], count="count")
    release = run(plan, example.path)
    folder = saved(release)
    assert_same_margins(example, folder, request.features, invariants)
    assert set(read_table(folder)[1]) == {
        (a, b) for a in ("1st", "2nd", "3rd", "Crew") for b in ("No", "Yes")
    }
    assert release.scope.adjacency.a >= 3


def test_noise_is_there_and_a_seed_repeats_it() -> None:
    example = Example.named("occupational_status")
    plan = plan_for(example, [["origin"], ["destination"]])
    first, again, other, secure = (
        run(plan, example.path, randomness)
        for randomness in (SeededRandomness(1), SeededRandomness(1), SeededRandomness(2), None)
    )
    assert np.array_equal(first.results[0].noisy, again.results[0].noisy)
    assert np.array_equal(first.tables[0].counts, again.tables[0].counts)
    assert not np.array_equal(first.results[0].noisy, other.results[0].noisy)
    assert not np.array_equal(first.results[0].noisy, secure.results[0].noisy)
    assert not first.private
    assert secure.private


@pytest.mark.long
def test_errors_are_of_the_size_that_is_stated() -> None:
    """A sum of 64·40 squared normals; 6 standard deviations of it are a false-alarm rate below
    1e-6.
    """
    example = Example.named("occupational_status")
    plan = plan_for(example, [["origin"], ["destination"]], fit="none")
    truth = np.array([[example.counts[str(i), str(j)] for j in range(1, 9)] for i in range(1, 9)])
    squares = []
    for seed in range(40):
        release = run(plan, example.path, SeededRandomness(seed))
        squares.append(float(((release.tables[0].estimate - truth) ** 2).sum()))
    expected, degrees = release.results[0].noise.expected_l2 ** 2, 49
    spread = 6 * expected * np.sqrt(2 / degrees / len(squares))
    assert abs(np.mean(squares) - expected) < spread
    # a scale that is 30% off would be noticed
    assert abs(np.mean(squares) - expected * 1.3**2) > spread
    assert (release.tables[0].standard_errors ** 2).sum() == pytest.approx(expected)
