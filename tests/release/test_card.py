"""The card of a release: filled from the release, and blank where only the publisher knows."""

import json
from pathlib import Path
from typing import Any

import pytest

import semidp
from semidp.cli import run as command
from semidp.present.card import QUESTIONS, ReleaseCard, describe_release
from semidp.publish.recheck import Recheck, recheck

PEOPLE: dict[str, list[Any]] = {
    "sex": [*"fm"] * 60,
    "ward": [*"abc"] * 40,
    "pay": [float(number % 50) for number in range(120)],
}
OPEN = {
    *("basic.data_curators", "basic.intended_use", "basic.data_product_region"),
    *("basic.publication_date", "basic.data_product_sector", "deployment_model.actors"),
    *("deployment_model.data_source_type", "deployment_model.data_source_type_details"),
    "implementation.justification",
    *("implementation.preprocessing_and_hyperparameter_tuning", "administrative.sources"),
    *("administrative.registry_authors", "question: security", "question: collection"),
    *("question: choice", "question: tuning"),
}
"""What no release can know."""


def card_of(*asked: Any, **more: Any) -> ReleaseCard:
    levels = {"sex": [*"fm"], "ward": [*"abc"]}
    release = semidp.release(PEOPLE, *asked, levels=levels, **more)
    return describe_release(release, recheck(release, release.to_json()))


@pytest.mark.parametrize(
    ("budget", "variant"),
    [
        ({"epsilon": 1}, "Pure DP"),
        ({"rho": 1}, "Zero-concentrated DP"),
        ({"mu": 1}, "Custom"),
    ],
)
def test_next_to_exact_totals_the_variant_is_one_of_its_own(
    budget: dict[str, int], variant: str
) -> None:
    usual = card_of(semidp.table("sex", "ward"), **budget).entry["dp_variant"]
    assert usual["variant_name"] == variant
    assert "counts of sex" not in usual["unprotected_quantities"]
    assert "the number of records, 120" in usual["unprotected_quantities"]
    beside = card_of(semidp.table("sex", "ward"), exact=["sex"], **budget).entry["dp_variant"]
    assert beside["variant_name"] == "Custom"
    assert "counts of sex" in beside["unprotected_quantities"]


def test_what_the_release_knows_is_filled_and_the_rest_is_named() -> None:
    card = card_of(
        semidp.table("sex", "ward"),
        semidp.mean("pay", by="ward", bounds=(0, 50)),
        exact=["sex"],
        rho="1/2",
        title="Wages",
        period="2026Q3",
    )
    assert {*card.blank} == OPEN
    assert card.title == card.entry["basic"]["name"] == "Wages"
    assert card.entry["deployment_model"]["release_type"] == "Many releases"
    assert "2026Q3" in card.entry["deployment_model"]["release_type_details"]
    assert card.entry["privacy_loss"]["privacy_parameters"]["rho"] == 0.5
    assert list(card.answers) == list(QUESTIONS)
    text = card.markdown()
    for key, said in card.answers.items():
        assert QUESTIONS[key] in text
        assert (said is None) == (f"question: {key}" in card.blank)
    assert text.count("_(for the publisher to fill)_") == len(card.blank)
    # Without title and period, these are blank too.
    plain = card_of(semidp.table("sex", "ward"), rho="1/2")
    named = {"basic.name", "deployment_model.release_type", "deployment_model.release_type_details"}
    assert {*plain.blank} == OPEN | named


def test_it_says_where_privacy_is_not_what_it_seems(tmp_path: Path) -> None:
    table = semidp.table("sex", "ward")
    seeded = card_of(table, mu=1, seed=1)
    assert "NOT PRIVATE" in str(seeded.answers["numbers"])
    assert "NOT PRIVATE" not in str(card_of(table, mu=1).answers["numbers"])
    assert "No ledger was given" in str(seeded.answers["composition"])
    ledger = semidp.Ledger.create(tmp_path / "ledger.json", semidp.Budget.gdp(2))
    charged = card_of(table, mu=1, ledger=ledger)
    assert "No ledger was given" not in str(charged.answers["composition"])
    read = semidp.release(PEOPLE, semidp.table("ward"), epsilon=1, levels_from_data=True)
    card = describe_release(read, Recheck((), ()))
    assert card.entry["dp_variant"]["variant_name"] == "Custom"
    assert "levels of ward was read from the data" in str(card.answers["unprotected"])


def test_a_combination_and_a_release_by_parts_have_one(tmp_path: Path) -> None:
    places = {"region": [*"xxyy"] * 30, "place": ["x1", "x2", "y1", "y2"] * 30, **PEOPLE}
    release = semidp.release(
        places,
        semidp.table("place", "sex"),
        exact=["region"],
        nest=("region", "place"),
        levels={"sex": [*"fm"]},
        levels_from_data=True,
        rho=1,
        partition="region",
        out=tmp_path / "parts",
    )
    assert "part by part" in str(describe_release(release, Recheck((), ())).answers["algorithms"])
    halves = [
        semidp.release(PEOPLE, semidp.table("sex", "ward"), exact=["sex", "ward"], mu=1)
        for _ in range(2)
    ]
    both = describe_release(semidp.combine(*halves), Recheck((), ()))
    assert "It combines 2 releases" in str(both.answers["composition"])
    assert both.entry["privacy_loss"]["privacy_parameters"]["rho"] == 1


def test_the_command_prints_it_and_refuses_to_vouch_for_a_changed_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    semidp.release(PEOPLE, semidp.table("sex", "ward"), exact=["sex", "ward"], mu=1, out=folder)
    assert command(["show", str(folder), "--card"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Sex by ward\n")
    assert command(["show", str(folder), "--card", "--format", "json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["disagreements"] == []
    assert card["registry"]["deployment"]["deployment_model"]["model_name"] == "Central"
    for name in card["left_to_publisher"]:
        assert name in printed
    document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    document["epsilon"] = 0.1
    (folder / "release.json").write_text(json.dumps(document), encoding="utf-8")
    assert command(["show", str(folder), "--card"]) == 1
    told = capsys.readouterr().out
    assert "Do not rely on this card" in told
    assert "it states epsilon 0.1" in told
    assert "The release contradicts itself" in told
