"""Missing outcomes beside exact group sizes: who answered is a feature of the exact statistic."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.cli import run as command
from semidp.core.spaces.adjacency import Ball
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, InputError
from semidp.noise.randomness import SeededRandomness
from semidp.publishing.release import Release
from semidp.sources.contract import Outcome
from semidp.statistics.outcomes.spaces import sum_space

PEOPLE = {
    "ward": np.array(["a", "a", "a", "b", "b", "b"] * 20, dtype=object),
    "pay": np.array([10.0, 20.0, np.nan, 40.0, None, None] * 20, dtype=object),
    "ok": np.array(["Y", "N", None, "Y", "Y", None] * 20, dtype=object),
}


def mean(**more: object) -> Release:
    wanted = semidp.mean("pay", by="ward", bounds=(5, 105))
    return semidp.release(PEOPLE, wanted, mu=10**6, randomness=SeededRandomness(1), **more)


def test_missing_outcomes_are_refused_unless_said() -> None:
    with pytest.raises(DataError, match="missing values"):
        mean()
    with pytest.raises(DataError, match="missing values"):
        mean(missing={"pay": "refuse"})


def test_nobody_is_lost_from_the_exact_sizes_and_the_mean_is_of_those_who_answered() -> None:
    release = mean(missing={"pay": "exact"})
    estimates = release.groups[0].estimates[0]
    rows = {levels: (count, value) for levels, count, value, _ in estimates.rows()}
    assert {levels: count for levels, (count, _) in rows.items()} == {
        ("a", "no"): 20,
        ("a", "yes"): 40,
        ("b", "no"): 40,
        ("b", "yes"): 20,
    }
    assert rows["a", "yes"][1] == pytest.approx(15, abs=0.01)
    assert rows["b", "yes"][1] == pytest.approx(40, abs=0.01)
    assert [margin.names for margin in release.scope.dataspace.margins] == [
        ("ward", "pay answered")
    ]


def test_a_proportion_of_a_text_value_with_missing_ones() -> None:
    wanted = semidp.proportion("ok=Y", by="ward")
    release = semidp.release(
        PEOPLE, wanted, mu=10**6, missing={"ok": "exact"}, randomness=SeededRandomness(1)
    )
    rows = {
        levels: (count, value) for levels, count, value, _ in release.groups[0].estimates[0].rows()
    }
    assert rows["a", "yes"] == (40, pytest.approx(0.5, abs=1e-3))
    assert rows["b", "yes"] == (40, pytest.approx(1.0, abs=1e-3))


@pytest.mark.parametrize(
    ("a", "answers"), [(1, "yyn"), (2, "yyn"), (2, "yny"), (3, "yyy"), (1, "nny")]
)
def test_no_two_datasets_are_further_apart_than_the_norms(a: int, answers: str) -> None:
    """Every pair of datasets of three records that keep the counts of group and answer, by brute
    force.
    """
    groups, steps = ("g", "h"), 2
    values = {"y": range(steps + 1), "n": (None,)}
    start = [("g", "y"), ("g" if answers[1] == "y" else "h", answers[1]), ("h", answers[2])]
    records = [(group, value) for group in groups for value in (None, *range(steps + 1))]
    counted = _counts(start)
    datasets = []
    for dataset in itertools.product(records, repeat=3):
        if _counts([(group, "n" if value is None else "y") for group, value in dataset]) == counted:
            datasets.append(dataset)
    assert len(datasets) > len(values["y"])
    schema = Schema([Feature("group", groups), Feature("answered", ["n", "y"])])
    table = Table(schema, np.array(counted).reshape(2, 2))
    public = Dataspace.of(table, [Margin("group", "answered")])
    norms = sum_space(
        public, Ball(a), Outcome("pay", 0, 1, steps), [Margin("group", "answered")]
    ).norms
    most_l1, most_l2, checked = 0, 0, 0
    for one, other in itertools.product(datasets, repeat=2):
        if sum(x != y for x, y in zip(one, other, strict=True)) > a:
            continue
        move = np.subtract(_sums(one), _sums(other))
        most_l1, most_l2 = max(most_l1, int(abs(move).sum())), max(most_l2, int((move**2).sum()))
        checked += 1
    assert checked > 10
    assert most_l1 <= norms.l1
    assert most_l2 <= norms.l2_squared
    # Where as many as may move have answered in one group, nothing smaller would do.
    if max(counted[1], counted[3]) >= a:
        assert (most_l1, most_l2) == (norms.l1, norms.l2_squared)


def _counts(records: list[tuple[str, str]]) -> list[int]:
    return [records.count((group, answer)) for group in "gh" for answer in "ny"]


def _sums(dataset: tuple[tuple[str, int | None], ...]) -> list[int]:
    """The sums by group and answer: whoever did not answer adds the lower bound, which is no
    step.
    """
    sums = {(group, answer): 0 for group in "gh" for answer in "ny"}
    for group, value in dataset:
        sums[group, "n" if value is None else "y"] += value or 0
    return list(sums.values())


def test_the_command_and_its_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "people.csv"
    lines = [
        "ward,pay",
        *(f"{ward},{'' if pay in (None, '') or pay != pay else pay}" for ward, pay in _rows()),
    ]
    file.write_text("\n".join(lines) + "\n")
    words = [
        "release",
        str(file),
        "--group",
        "ward",
        "--mean",
        "pay",
        "--bounds",
        "pay=5,105",
        "--mu",
        "1",
    ]
    assert (
        command([*words, "--missing", "pay=exact", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    )
    assert command(["show", str(tmp_path / "out"), "--quiet"]) == 0
    assert Release.load(tmp_path / "out").plan.read_as == (
        ("pay", "missing as 5"),
        ("pay answered", "answered"),
    )
    capsys.readouterr()
    for wrong, reason in (
        (
            ["--missing", "pay=ignore"],
            "missing values of 'pay' are refuse, private or exact, not 'ignore'",
        ),
        (["--missing", "age=exact"], "nothing of 'age' is published by groups"),
        (["--missing", "pay=exact", "--read-as", "pay=1.234,5"], "is read in a way of its own"),
    ):
        assert command([*words, *wrong, "--out", str(tmp_path / "no")]) == 2
        assert reason in capsys.readouterr().err
    with pytest.raises(InputError, match="by groups, not in"):
        semidp.release(
            PEOPLE,
            semidp.regression("pay", on=["ward"], bounds=(0, 9)),
            mu=1,
            missing={"pay": "exact"},
        )


def _rows() -> list[tuple[str, float | None]]:
    return list(zip(PEOPLE["ward"].tolist(), PEOPLE["pay"].tolist(), strict=True))
