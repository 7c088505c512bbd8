"""Missing outcomes beside exact group sizes: who answered is a feature of the exact statistic."""

import itertools
import json
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from attrs import evolve

import semidp
from semidp.assess.pairs import worst_histograms
from semidp.cli import run as command
from semidp.errors import DataError, InputError
from semidp.present.release import Release
from semidp.promise.mechanisms.exponential import ExponentialMechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.plan_changes import with_missing
from semidp.publish.recheck import recheck

MU = semidp.Budget.gdp(1)
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
    rows = {levels: (count, value) for levels, count, value, *_ in estimates.rows()}
    assert rows == {
        ("a",): (40, pytest.approx(15, abs=0.01)),
        ("b",): (20, pytest.approx(40, abs=0.01)),
    }
    public = release.scope.dataspace
    (margin,) = public.margins
    assert margin.names == ("ward", "pay answered")
    assert public.value(margin).counts.tolist() == [[20, 40], [40, 20]]
    # a(t) is that of the counts with the answer in them.
    assert release.scope.adjacency == outcome_adjacency(public)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "asked",
    [
        semidp.mean("pay", by="ward", bounds=(5, 105)),
        semidp.total("pay", by=semidp.each("ward", ("ward", "sex")), bounds=(5, 105)),
        semidp.median("pay", by="ward", bounds=(5, 105), mechanism="selection"),
        semidp.median("pay", by="ward", bounds=(5, 105), mechanism="distribution"),
        semidp.distribution("pay", by=semidp.each("ward", ("ward", "sex")), bounds=(5, 105)),
    ],
    ids=["mean", "sums", "chosen", "read off", "distributions"],
)
def test_nothing_is_published_of_those_who_did_not_answer(asked, tmp_path: Path) -> None:
    """Whoever has no value is read as the lower bound: a number of theirs would mean nothing."""
    people = {**PEOPLE, "sex": np.array(["f", "m"] * 60, dtype=object)}
    options = {"mu": 1, "missing": {"pay": "exact"}, "randomness": SeededRandomness(1)}
    release = semidp.release(people, asked, **options)
    folder = tmp_path / "out"
    release.save(folder, form="xlsx")
    (result,) = release.results
    sizes = {1: {"a": 40, "b": 20}, 2: {}}
    for file, columns in result.files().items():
        assert "pay answered" not in columns.labels, file
        if "count" in columns.numbers and len(columns.labels) == 1:
            (labels,) = columns.labels.values()
            shown = dict(zip(labels.column(columns.rows), columns.numbers["count"], strict=True))
            assert shown == sizes[1], file
    assert "of those who answered" in result.title()
    assert not [line for line in result.noisy_lines() if "4 groups" in line]
    report = (folder / "report.html").read_text()
    assert "of those who answered" in report
    assert "a · no" not in report
    assert "a · yes" not in report
    book = openpyxl.load_workbook(folder / "tables.xlsx")
    of_statistic = [sheet for sheet in book.worksheets[1:] if "answered" not in sheet.title]
    of_exact = [sheet for sheet in book.worksheets[1:] if "answered" in sheet.title]
    assert of_statistic
    assert of_exact
    for sheet in of_statistic:
        assert "no" not in {cell.value for row in sheet.iter_rows() for cell in row}, sheet.title
    # The exact numbers of both are in the workbook.
    for sheet in of_exact:
        assert {"no", "yes"} <= {cell.value for row in sheet.iter_rows() for cell in row}
    again = Release.load(folder)
    assert again.results[0].noisy.tolist() == result.noisy.tolist()
    assert again.plan == release.plan == semidp.Plan.from_toml(release.plan.to_toml())
    document = json.loads((folder / "release.json").read_text())
    assert recheck(again, document, folder).disagreements == ()


def test_a_forecast_is_of_those_who_answered() -> None:
    asked = semidp.mean("pay", by="ward", bounds=(5, 105))
    alone = semidp.Plan([asked.with_budget(MU)], invariants=["ward"])
    plan = with_missing(semidp.Plan([asked.with_budget(MU)]), {"pay": "exact"})
    plan = evolve(plan, invariants=[["ward", "pay answered"]])
    complete = {name: values[[0, 1, 3] * 20] for name, values in PEOPLE.items()}
    errors = []
    for what, people in ((plan, PEOPLE), (alone, complete)):
        prepared = semidp.prepare(what, people)
        ((request, mechanism),) = prepared.calibrated_requests
        (forecast,) = request.forecast(mechanism, prepared.scope)
        errors.append(forecast.numbers)
    assert errors[0] == errors[1]


def test_several_sets_have_the_total_of_those_who_answered() -> None:
    people = {**PEOPLE, "sex": np.array(["f", "m"] * 60, dtype=object)}
    asked = semidp.total("pay", by=semidp.each("ward", "sex"), bounds=(5, 105))
    release = semidp.release(
        people, asked, mu=1, missing={"pay": "exact"}, randomness=SeededRandomness(1)
    )
    wards, sexes = release.groups[0].estimates
    assert wards.counts.tolist() == [40, 20]
    assert wards.values.sum() == pytest.approx(sexes.values.sum())


def test_nobody_may_have_answered() -> None:
    people = {**PEOPLE, "pay": np.full(120, None, dtype=object)}
    asked = semidp.mean("pay", by=semidp.each("ward", "sex"), bounds=(5, 105))
    people["sex"] = np.array(["f", "m"] * 60, dtype=object)
    release = semidp.release(people, asked, mu=1, missing={"pay": "exact"})
    for estimates in release.groups[0].estimates:
        assert estimates.counts.tolist() == [0, 0]
        assert np.isnan(estimates.values).all()


def test_what_names_no_column_of_answers_is_refused() -> None:
    pay = semidp.Outcome("pay", 5, 105, 100)
    for by in ([["ward"]], [["pay answered"]], [["ward", "pay answered"], ["sex"]]):
        with pytest.raises(InputError, match="says who answered"):
            semidp.publish.GroupRequest("mean", pay, by, answered="pay answered")
    with pytest.raises(InputError, match="says who answered"):
        semidp.run(
            semidp.Plan(
                [
                    semidp.publish.GroupRequest(
                        "mean", pay, [["ward", "ok"]], answered="ok", budget=MU
                    )
                ],
                invariants=[["ward", "ok"]],
            ),
            {"ward": ["a", "b"], "ok": ["Y", "N"], "pay": [10, 20]},
        )


def test_a_proportion_of_a_text_value_with_missing_ones() -> None:
    wanted = semidp.proportion("ok=Y", by="ward")
    release = semidp.release(
        PEOPLE, wanted, mu=10**6, missing={"ok": "exact"}, randomness=SeededRandomness(1)
    )
    rows = {
        levels: (count, value) for levels, count, value, *_ in release.groups[0].estimates[0].rows()
    }
    assert rows == {
        ("a",): (40, pytest.approx(0.5, abs=1e-3)),
        ("b",): (40, pytest.approx(1.0, abs=1e-3)),
    }


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
    public = Dataspace.from_table(table, [Margin("group", "answered")])
    pay, by = Outcome("pay", 0, 1, steps), [Margin("group", "answered")]
    levels = {"n": "no", "y": "yes"}
    named = Schema([Feature("group", groups), Feature("answered", list(levels.values()))])
    space = sum_space(
        Dataspace.from_table(Table(named, table.counts), by), Ball(a), pay, by, answered="answered"
    )
    norms = space.norms
    # What is said of those who answered is never more than what is said of all groups.
    everybody = sum_space(public, Ball(a), pay, by).norms
    assert norms.l1 <= everybody.l1
    assert norms.l2_squared <= everybody.l2_squared
    assert space.counts[0].tolist() == [counted[1], counted[3]]
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
        (["--missing", "age=exact"], "leave --missing age=exact out"),
        (["--missing", "pay=exact", "--read-as", "pay=month"], "is read in a way of its own"),
    ):
        assert command([*words, *wrong, "--out", str(tmp_path / "no")]) == 2
        assert reason in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot be exact in regression-pay: give where="):
        semidp.release(
            PEOPLE,
            semidp.regression("pay", on=["ward"], bounds=(0, 9)),
            mu=1,
            missing={"pay": "exact"},
        )


@pytest.mark.parametrize("choice", ["exact", "private"])
def test_numbers_with_decimal_commas_may_be_missing(
    choice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "stays.csv"
    file.write_text("ward;pay\n" + "a;1.250,50\na;\na;749,50\nb;2.000,00\n" * 20)
    words = (
        f"--group ward --mean pay --bounds pay=0,5000 --set grid=pay=10000 --missing pay={choice}"
    )
    command_words = ["release", str(file), *words.split(), "--mu", "100000", "--seed", "1"]
    out = ["--out", str(tmp_path / "out"), "--quiet"]
    assert command([*command_words, "--read-as", "pay=1.234,5", *out]) == 0
    release = Release.load(tmp_path / "out")
    assert dict(release.plan.read_as)["pay"] == "1.234,5, missing as 0"
    (result,) = release.results
    assert result.estimates[0].values == pytest.approx([1000, 2000], abs=0.01)
    assert semidp.Plan.from_toml(release.plan.to_toml()) == release.plan
    # Another way of writing is refused, whoever answered.
    file.write_text("ward;pay\n" + "a;1,250.50\na;\nb;2,000.00\n")
    assert command([*command_words, "--read-as", "pay=1.234,5", *out, "--force"]) == 2
    said = capsys.readouterr().err
    assert "not numbers written as 1.234,5" in said
    assert "--set na=NA,-9" in said


def _rows() -> list[tuple[str, float | None]]:
    return list(zip(PEOPLE["ward"].tolist(), PEOPLE["pay"].tolist(), strict=True))


@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_an_audit_of_a_median_moves_those_who_answered(adjacency: str) -> None:
    asked = semidp.median("pay", by="ward", bounds=(5, 105), mechanism="selection")
    plan = with_missing(semidp.Plan([asked.with_budget(MU)]), {"pay": "exact"})
    plan = evolve(plan, invariants=[["ward", "pay answered"]], adjacency=adjacency)
    (mechanism,) = semidp.prepare(plan, PEOPLE).mechanisms
    assert isinstance(mechanism, ExponentialMechanism)
    one, other = worst_histograms(mechanism)
    assert one.sum(axis=1).tolist() == other.sum(axis=1).tolist() == [40, 20]
    assert (one != other).any()
