"""Releases for one patient with up to m stays: what is refused, what is public, what is said, what
is charged.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import semidp as sd
from semidp import Budget, Plan, Release, prepare
from semidp.cli import run as command
from semidp.errors import DataError, InputError, Refused
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.protection import Protection
from semidp.publish import TableRequest
from semidp.publish.sources.opening import open_source

WARDS, OUTCOMES = ("medicine", "surgery", "geriatrics"), ("home", "transfer")


def stays(patients: int = 300, most: int = 5) -> dict[str, list]:
    """Patients with 1 to `most` stays each; the first has that many."""
    generator = np.random.default_rng(28)
    columns: dict[str, list] = {"patient": [], "ward": [], "outcome": [], "days": []}
    for patient in range(patients):
        for _ in range(most if patient == 0 else int(generator.integers(1, most + 1))):
            columns["patient"].append(f"p{patient}")
            columns["ward"].append(WARDS[generator.integers(3)])
            columns["outcome"].append(OUTCOMES[generator.integers(2)])
            columns["days"].append(int(generator.integers(1, 31)))
    return columns


STAYS = stays()
N = len(STAYS["ward"])


def plan(
    most: int | None = 5, *, adjacency: str = "exchange", id: str | None = "patient", mu: str = "1"
) -> Plan:
    table = TableRequest(["ward", "outcome"], Budget.gdp(mu), mechanism="gaussian")
    features = [sd.Feature("outcome", OUTCOMES)]
    return Plan([table], ["ward"], features=features, adjacency=adjacency, id=id, most=most)


def file(folder: Path) -> Path:
    path = folder / "stays.csv"
    rows = zip(*STAYS.values(), strict=True)
    path.write_text("\n".join([",".join(STAYS), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_the_number_of_records_of_a_person_scales_the_noise_and_the_promise():
    for adjacency, once in (("exchange", 4), ("worst-case", 8)):
        one, five = (
            prepare(plan(most, adjacency=adjacency, id="patient"), stays(300, most))
            for most in (1, 5)
        )
        assert one.mechanisms[0].space.l2_squared == once
        assert five.mechanisms[0].space.l2_squared == 25 * once
        assert five.scope.adjacency.a == 10
        assert five.scope.adjacency.protection == Protection("patient", 5)
        assert five.scope.persons == 300
        assert five.mechanisms[0].scale == pytest.approx(5 * one.mechanisms[0].scale, rel=1e-3)


def test_who_has_more_records_is_refused_without_saying_how_many():
    with pytest.raises(DataError, match="more than 4 times") as told:
        prepare(plan(4), STAYS)
    assert not any(number in str(told.value) for number in ("5", "300", "p0", str(N)))
    with pytest.raises(DataError, match=r"names someone twice.* with most= how many"):
        prepare(plan(None), STAYS)
    with pytest.raises(DataError, match="missing values"):
        prepare(plan(5), {**STAYS, "patient": [None, *STAYS["patient"][1:]]})
    with open_source(STAYS, id="patient", most=5) as source:
        assert source.persons == 300
    assert reveal(prepare(plan(5), STAYS).values[0]).sum() == N  # nobody is dropped


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"most": 5, "id": None}, "name the column of persons with id="),
        ({"most": 0}, "whole number from 1"),
        ({"most": True}, "whole number from 1"),
        ({"most": 5, "adjacency": "definition"}, "literal reading"),
        ({"most": 5, "count": "n"}, "count and id cannot both"),
        ({"records": "stays"}, "works only with most="),
        ({"most": 5, "id": "outcome"}, "cannot be a feature or an outcome"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(wrong, told):
    with pytest.raises(InputError, match=told):
        sd.release(
            STAYS, sd.table("ward", "outcome"), exact=["ward"], mu=1, **{"id": "patient", **wrong}
        )


def test_a_release_keeps_its_promise_in_its_files(tmp_path):
    done = sd.release(
        STAYS,
        sd.table("ward", "outcome"),
        sd.mean("days", by="ward", bounds=(0, 30)),
        sd.median("days", by="ward", bounds=(0, 30)),
        exact=["ward"],
        levels={"outcome": OUTCOMES},
        id="patient",
        most=5,
        records="stays",
        adjacency="exchange",
        mu=1,
        randomness=SeededRandomness(1),
        out=tmp_path / "release",
    )
    again = Release.load(tmp_path / "release")
    assert again.scope.persons == done.scope.persons == 300
    assert again.guarantee == done.guarantee
    assert again.guarantee.adjacency == Exchange(10, Protection("patient", 5))
    document = json.loads((tmp_path / "release" / "release.json").read_text())
    assert (document["persons"], document["plan"]["most"]) == (300, 5)
    page = (tmp_path / "release" / "report.html").read_text()
    text = str(done)
    for said in (page, text):
        assert "one patient with up to 5 stays" in said
    assert "the number of patients, 300" in page
    assert "the most stays of one patient, 5 (declared)" in page
    said_here, _, _ = page.partition("<dt>")  # a glossary of words follows
    for never in ("one record", "One record", "one person", "each person", "your record"):
        assert never not in said_here
    assert sd.Plan.from_toml(done.plan.to_toml()) == done.plan


def fifty(document: dict) -> dict:
    return {**document["a"]["protection"], "most": 50}


def test_a_tampered_number_of_records_is_noticed(tmp_path):
    out = tmp_path / "release"
    sd.release(
        STAYS,
        sd.table("ward", "outcome"),
        exact=["ward"],
        levels={"outcome": OUTCOMES},
        id="patient",
        most=5,
        mu=1,
        out=out,
    )
    honest = json.loads((out / "release.json").read_text())
    assert command(["show", str(out)]) == 0
    for tampered in (
        {"plan": {**honest["plan"], "most": 50}},
        {"a": {**honest["a"], "protection": fifty(honest)}},
    ):
        (out / "release.json").write_text(json.dumps({**honest, **tampered}))
        assert command(["show", str(out)]) != 0


def test_a_ledger_counts_every_charge_for_the_most_records(tmp_path):
    ledger = Ledger.create(tmp_path / "book.json", Budget.gdp(20))
    for most in (5, 10, 5):
        found = prepare(plan(most), STAYS)
        ledger.charge(
            found.guarantee, f"up to {most}", [mechanism.record() for mechanism in found.mechanisms]
        )
    account = ledger.account()
    assert account.adjacency == Exchange(20, Protection("patient", 10))
    assert [charge.spent.mu for charge in account.charges] == [2, 1, 2]
    assert ledger.total().tradeoff.mu_squared == 9


def test_a_ball_ledger_takes_the_most_records_too(tmp_path):
    ledger = Ledger.create(tmp_path / "book.json", Budget.gdp(20))
    for most in (5, 10):
        found = prepare(plan(most, adjacency="worst-case"), STAYS)
        ledger.charge(
            found.guarantee, f"up to {most}", [mechanism.record() for mechanism in found.mechanisms]
        )
    account = ledger.account()
    assert account.adjacency == Ball(20, Protection("patient", 10))
    assert [charge.spent.mu for charge in account.charges] == [2, 1]


def test_a_ledger_refuses_other_persons_and_charges_without_any(tmp_path):
    def charged(path, first, second):
        ledger = Ledger.create(path, Budget.gdp(20))
        for found in (first, second):
            ledger.charge(
                found.guarantee, "a table", [mechanism.record() for mechanism in found.mechanisms]
            )

    renamed = {**STAYS, "person": STAYS["patient"]}
    alone = stays(300, 1)
    one, other = prepare(plan(5), STAYS), prepare(plan(5, id="person"), renamed)
    with pytest.raises(Refused, match=r"persons of column 'patient'.*'person'"):
        charged(tmp_path / "a.json", one, other)
    without = prepare(plan(None, id=None), alone)
    for first, second in ((one, without), (without, one)):
        with pytest.raises(Refused, match="no recorded id column"):
            charged(tmp_path / f"{id(first)}.json", first, second)
    member = one.guarantee.adjacency
    guarantee = sd.Guarantee(
        one.guarantee.dataspace,
        Exchange(member.records_per_move, Protection("patient", 5, protect="member")),
        one.guarantee.tradeoff,
    )
    ledger = Ledger.create(tmp_path / "m.json", Budget.gdp(20))
    ledger.charge(one.guarantee, "a unit")
    with pytest.raises(Refused, match="two promises"):
        ledger.charge(guarantee, "a member")


def test_more_records_make_a_release_weaker_by_as_much():
    done = sd.run(plan(5), STAYS)
    several = done.under(["ward"], most=10)
    assert several.tradeoff.mu == 2 * done.guarantee.tradeoff.mu
    assert done.under(["ward"]).tradeoff.mu == done.guarantee.tradeoff.mu
    ball = done.other_adjacency_guarantee
    assert ball.adjacency == Ball(10, Protection("patient", 5))
    assert ball.tradeoff.mu_squared == 2


def test_what_holds_counts_the_records_of_a_person():
    totals = {"ward": {"a": 30, "b": 40}}
    assert sd.what_holds(exact=totals, mu=1, most=5).tradeoff.mu == 10
    assert sd.what_holds(exact=totals, mu=1).tradeoff.mu == 2


def test_commands_say_what_several_records_cost(tmp_path, capsys):
    data, out = file(tmp_path), tmp_path / "release"
    asked = [
        str(data),
        "--id",
        "patient",
        "--most",
        "5",
        "--set",
        "records=stays",
        "--table",
        "ward,outcome",
    ]
    asked += ["--invariant", "ward", "--levels", "outcome=home,transfer", "--mu", "1"]
    assert command(["release", *asked, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "the number of patients, 300" in said
    assert "1 stay     ward by outcome" in said
    assert "5 stays    ward by outcome" in said
    assert command(["release", *asked, "--dry-run", "--format", "json"]) == 0
    beside = json.loads(capsys.readouterr().out)["records_of_a_person"]
    assert [line["name"] for line in beside] == ["ward by outcome"]
    assert command(["analyze", *asked]) == 0
    assert "one patient with up to 5 stays" in capsys.readouterr().out
    assert (
        command(
            [
                "guarantee",
                "--rho",
                "1",
                "--most",
                "5",
                "--invariant",
                "ward",
                "--levels",
                "ward=a,b",
            ]
        )
        == 0
    )
    assert "100" in capsys.readouterr().out  # (5 · 2)² times 1
    assert command(["guarantee", "--rho", "1", "--most", "5", "--a", "3"]) == 2
    assert "leave --most out" in capsys.readouterr().err
    assert command(["release", *asked[:4], "4", *asked[5:], "--out", str(out)]) == 2
    assert "nobody is dropped" in capsys.readouterr().err
    assert not out.exists()


def test_the_noise_of_one_record_is_convicted_where_a_patient_with_five_stays_changes(
    tmp_path, capsys
):
    """The twin: the noise for five stays survives the same attack."""
    data = file(tmp_path)
    verdicts = []
    for number, whose in enumerate(([], ["--id", "patient", "--most", "5"])):
        out = tmp_path / f"release{number}"
        asked = [
            "--table",
            "ward,outcome",
            "--invariant",
            "ward",
            "--levels",
            "outcome=home,transfer",
            "--mu",
            "1",
        ]
        assert (
            command(
                [
                    "release",
                    str(data),
                    *whose,
                    *asked,
                    "--adjacency",
                    "exchange",
                    "--out",
                    str(out),
                    "-q",
                ]
            )
            == 0
        )
        code = command(["audit", str(out), "--most", "5", "--samples", "4000", "--seed", "1", "-q"])
        verdicts.append((code, "verdict    convicted" in capsys.readouterr().out))
    assert verdicts[0] == (1, True)
    assert verdicts[1] == (0, False)


def test_the_odds_ratio_of_several_records_is_refused(tmp_path, capsys):
    people = tmp_path / "visits.csv"
    rows = [f"{row // 3},{'fm'[row % 2]},{'yn'[row % 5 == 0]}" for row in range(300)]
    people.write_text("\n".join(["who,sex,ill", *rows]) + "\n")
    asked = ["release", str(people), "--odds-ratio", "sex,ill", "--mu", "1", "--id", "who"]
    asked += ["--out", str(tmp_path / "tested")]
    # the test is exact for independent records: alike ones of a person make it reject too often
    assert command([*asked, "--most", "3"]) == 2
    assert "one who may have 3: ask semidp model RELEASE" in capsys.readouterr().err
    assert command([*asked, "--most", "2"]) == 2


def test_products_part_by_part_have_the_norm_of_the_whole(tmp_path):
    generator = np.random.default_rng(5)
    columns: dict[str, list] = {"patient": [], "state": [], "county": [], "sex": []}
    for patient in range(200):
        for _ in range(int(generator.integers(1, 4))):
            state = int(generator.integers(2))
            columns["patient"].append(patient)
            columns["state"].append(f"s{state}")
            columns["county"].append(f"s{state}c{generator.integers(2)}")
            columns["sex"].append("fm"[generator.integers(2)])
    tables = [sd.table("county", "sex"), sd.table("state", "sex")]
    asked = {
        "exact": ["county"],
        "nest": ("state", "county"),
        "levels": {"sex": ["f", "m"]},
        "adjacency": "exchange",
        "mu": 1,
        "id": "patient",
        "most": 3,
    }
    data = tmp_path / "visits.csv"
    rows = zip(*columns.values(), strict=True)
    data.write_text(
        "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"
    )
    whole = sd.release(data, *tables, **asked)
    parts = sd.release(data, *tables, partition="state", out=tmp_path / "parts", **asked)
    assert parts.guarantee == whole.guarantee
    assert parts.scope.persons == whole.scope.persons == 200
    assert Release.load(tmp_path / "parts").guarantee.adjacency == Exchange(
        6, Protection("patient", 3)
    )


def test_regressions_of_several_records_have_as_many_times_the_norms():
    for adjacency in ("exchange", "worst-case"):
        asked = [sd.regression("days", on="ward", bounds=(0, 30))]
        found = []
        for most in (1, 5):
            plan_of = Plan(
                asked, ["ward"], adjacency=adjacency, id="patient", most=most
            ).with_budget(Budget.gdp(1))
            found.append(prepare(plan_of, stays(300, most)).mechanisms[0].space.l2_squared)
        assert found[1] == 25 * found[0]


def test_the_explorer_says_whom_it_protects():
    from semidp.present.explore.explorer_page import Page
    from semidp.present.forecasts import PlanForecasts
    from semidp.publish.survey import survey

    with open_source(STAYS, id="patient", most=5) as source:
        desk = PlanForecasts(("ward", "outcome"), lambda asked: survey(asked, source)[0], plan(5))
        page = Page(desk).render_page(desk.first)
    assert "one patient with up to 5 records" in page
    assert f"{N:,} records of 300 patients" in page


@pytest.mark.long
def test_a_combination_protects_the_person_with_the_most_records(tmp_path, capsys):
    data = file(tmp_path)
    asked = [
        "--table",
        "ward,outcome",
        "--exact",
        "ward",
        "--levels",
        "outcome=home,transfer",
        "--mu",
        "1",
        "-q",
    ]
    for name, whose in (("one", ["--most", "5"]), ("two", ["--most", "10"]), ("none", [])):
        identity = ["--id", "patient", *whose] if whose else []
        assert (
            command(["release", str(data), *identity, *asked, "--out", str(tmp_path / name)]) == 0
        )
    one, two, none, both = (str(tmp_path / name) for name in ("one", "two", "none", "both"))
    assert command(["combine", one, two, "--out", both, "-q"]) == 0
    found = Release.load(both)
    assert found.guarantee.adjacency == Ball(20, Protection("patient", 10))
    assert found.scope.persons == 300
    assert 4.999 < float(found.guarantee.tradeoff.mu_squared) <= 5  # twice mu = 1, and mu = 1
    assert command(["show", both]) == 0
    assert "the number of patients, 300" in capsys.readouterr().out
    assert command(["combine", one, none, "--out", str(tmp_path / "other"), "-q"]) == 0
    assert Release.load(tmp_path / "other").stated is None
