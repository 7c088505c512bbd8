"""``semidp test`` with strata and on a release, ``semidp intervals``: what they print, and what
they refuse.
"""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Semidp, one_sentence
from tests.release.conftest import Example, strict_json

UCB = Example.named("ucb_admissions")
ADMIT = ("--rows", "gender", "--columns", "admit")
GIVEN = (*ADMIT, "--strata", "dept")


def good(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


@pytest.fixture
def released(here: Semidp) -> str:
    """A three-way table with gender and admission exact in every department."""
    words = (
        "--table",
        "gender,admit,dept",
        "--invariant",
        "gender,dept",
        "--invariant",
        "admit,dept",
    )
    good(
        here(
            "release",
            UCB.path,
            *words,
            "--count",
            "count",
            "--mu",
            "1",
            "--out",
            "release",
            "--seed",
            "1",
        )
    )
    return "release"


def test_data_are_answered_with_the_command_that_publishes_a_test(here: Semidp) -> None:
    said = one_sentence(here("test", UCB.path, *GIVEN))
    assert "semidp release " in said
    assert "--odds-ratio gender,admit,dept --epsilon 1 --out FOLDER" in said
    assert "ROWS,COLUMNS" in one_sentence(here("test", "nowhere"))


def test_a_release_is_tested_for_nothing(here: Semidp, released: str) -> None:
    done = good(here("test", released, *GIVEN, "--seed", "2"))
    assert "are gender and admit independent given dept?" in done.out
    assert "none: everything here was published already" in done.out
    document = strict_json(
        good(here("test", released, *GIVEN, "--seed", "2", "--format", "json")).out
    )
    assert document["schema_version"] == 1
    assert document["strata"] == ["dept"]
    # department A: the associations differ in sign, and are there
    assert document["p_value"] < 0.01
    assert document["draws"] == 9999
    fewer = good(
        here("test", released, *ADMIT, "--draws", "99", "--name", "table", "--format", "json")
    ).json
    assert fewer["draws"] == 99
    assert fewer["p_value"] == 0.01
    assert any("further exact totals" in note for note in fewer["notes"])


@pytest.mark.long
def test_strata_are_pooled_and_features_ordered(here: Semidp, released: str) -> None:
    done = good(here("test", released, *GIVEN, "--pooled", "--seed", "2"))
    assert (
        "common to the strata of dept (Cochran-Mantel-Haenszel): one degree of freedom" in done.out
    )
    assert "goes with admit" in done.out
    document = strict_json(
        good(here("test", released, *GIVEN, "--pooled", "--seed", "2", "--format", "json")).out
    )
    assert document["degrees"] == 1
    assert document["p_value"] > 0.05  # Simpson: no common association given the department
    below = good(
        here("test", released, *GIVEN, "--pooled", "--alternative", "less", "--format", "json")
    ).json
    above = good(
        here("test", released, *GIVEN, "--pooled", "--alternative", "greater", "--format", "json")
    ).json
    assert below["p_value"] + above["p_value"] > 0.99
    unpooled = here("test", released, *ADMIT, "--pooled")
    assert (unpooled.code, "pooled over strata" in one_sentence(unpooled)) == (2, True)


def test_a_release_is_modelled(here: Semidp) -> None:
    titanic = Example.named("titanic")
    words = (
        "--table",
        "class,sex,survived",
        "--exact",
        "sex,class",
        "--exact",
        "survived",
        "--count",
        "count",
    )
    good(here("release", titanic.path, *words, "--mu", "1", "--out", "ship", "--seed", "1"))
    done = good(
        here("model", "ship", "survived ~ class * sex", "--against", "survived ~ class + sex")
    )
    assert "logistic: survived ~ class + sex + class:sex (survived = Yes)" in done.out
    assert "against survived ~ class + sex: χ² = " in done.out
    document = strict_json(
        good(here("model", "ship", "survived ~ class + sex", "--format", "json")).out
    )
    assert document["coefficients"][-1]["name"] == "sex[Male]"
    assert -3 < document["coefficients"][-1]["estimate"] < -2  # the true table has -2.42
    for formula, why in (
        ("survived", "is not a model"),
        ("class ~ sex", "logistic model has two"),
        ("town ~ sex", "no table with"),
    ):
        refused = here("model", "ship", formula)
        assert refused.code == 2
        assert why in one_sentence(refused)


def test_every_pair_of_a_release(here: Semidp) -> None:
    titanic = Example.named("titanic")
    words = (
        "--table",
        "class,sex,survived",
        "--exact",
        "sex",
        "--exact",
        "survived",
        "--exact",
        "class",
    )
    good(
        here(
            "release",
            titanic.path,
            *words,
            "--count",
            "count",
            "--mu",
            "1",
            "--out",
            "ship",
            "--seed",
            "1",
        )
    )
    done = good(
        here("test", "ship", "--every-pair", "--fdr", "0.1", "--plot", "pairs.png", "--seed", "1")
    )
    assert "sex × survived" in done.out
    assert "3 of 3 pairs are associated, at a false discovery rate of at most 0.1" in done.out
    assert Path("pairs.png").read_bytes().startswith(b"\x89PNG")
    document = strict_json(good(here("test", "ship", "--every-pair", "--format", "json")).out)
    assert [test["discovery"] for test in document["tests"]] == [True, True, True]
    for option, why in (
        (("--every-pair", "--rows", "sex"), "leave --rows, --columns"),
        (("--every-pair", "--fdr", "5"), "between 0 and 1"),
        (("--every-pair", "--plot", "pairs.png"), "exists already"),
        (("--fdr", "0.1"), "for --every-pair"),
        (("--rows", "sex"), "name the two features"),
    ):
        refused = here("test", "ship", *option)
        assert refused.code == 2
        assert why in one_sentence(refused)


def test_ordered_features_of_a_release(here: Semidp) -> None:
    status = Example.named("occupational_status")
    words = (
        "--table",
        "origin,destination",
        "--exact",
        "origin",
        "--exact",
        "destination",
        "--count",
        "count",
    )
    good(here("release", status.path, *words, "--mu", "0.2", "--out", "status", "--seed", "1"))
    sides = ("--rows", "origin", "--columns", "destination")
    done = good(
        here(
            "test",
            "status",
            *sides,
            "--ordered",
            "origin",
            "--scores",
            "destination=1,2,3,4,5,6,7,9",
        )
    )
    assert "linear-by-linear association of two ordered features: one degree of freedom" in done.out
    assert "7 = 7, 8 = 9" in done.out
    assert "high origin goes with high destination" in done.out


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("--epsilon", "1"), "takes no --epsilon: the private test"),
        (("--mu", "1"), "takes no --mu: the private test"),
        (("--rho", "1"), "takes no --rho: the private test"),
        (("--ledger", "book.json"), "takes no --ledger: the private test"),
        (("--where", "1 = 1"), "takes no --where"),
        (("--alternative", "greater"), "no direction"),
        (("--ordered", "dept"), "only rows and columns can be ordered"),
        (("--scores", "gender=1,2,3"), "2 levels and 3 scores"),
        (("--scores", "gender=1,x"), "--scores"),
        (("--scores", "1,2"), "--scores takes NAME=…, such as --scores dose=0,1,4, not '1,2'"),
        (("--draws", "5"), "at least 19"),
        (("--name", "other"), "no table 'other'"),
    ],
)
def test_what_a_release_has_no_use_for_is_refused(
    here: Semidp, released: str, option: tuple[str, ...], why: str
) -> None:
    done = here("test", released, *GIVEN, *option)
    assert done.code == 2
    assert why in one_sentence(done)


def test_a_feature_is_named_once(here: Semidp, released: str) -> None:
    assert "twice" in one_sentence(here("test", released, *ADMIT, "--strata", "admit"))


def test_exchange_is_refused_where_both_margins_hold_the_strata(here: Semidp) -> None:
    words = ("--odds-ratio", "gender,admit,dept", "--count", "count", "--mu", "1", "--out", "r")
    done = here("release", UCB.path, *words, "--adjacency", "exchange")
    assert done.code == 2
    assert "dept" in one_sentence(done)


def test_noisy_totals_have_a_test_of_their_own(here: Semidp) -> None:
    words = (
        "--table",
        "gender,admit",
        "--invariant",
        "gender",
        "--levels",
        "admit=Admitted,Rejected",
    )
    good(here("release", UCB.path, *words, "--count", "count", "--mu", "1", "--out", "half"))
    done = good(here("test", "half", *ADMIT))
    assert "The totals of admit are noisy: p is the largest over" in done.out
    assert "the totals of admit noisy" in done.out
    ordered = good(here("test", "half", *ADMIT, "--ordered", "admit"))
    assert "The totals of admit are noisy: p is the largest over" in ordered.out


def test_intervals_hold_at_once_for_a_table(here: Semidp, released: str) -> None:
    done = good(here("intervals", released, "--level", "0.9"))
    assert done.out.splitlines()[0].split() == [
        "gender",
        "admit",
        "dept",
        "estimate",
        "low",
        "high",
    ]
    assert (
        "All intervals hold at once, at level 0.9; they cover noise, exact by simulation."
        in done.out
    )
    document = strict_json(good(here("intervals", released, "--format", "json", "--seed", "1")).out)
    assert len(document["cells"]) == 24
    assert document["covers"] == "noise"
    assert all(
        cell["low"] <= cell["estimate"] + 1e-9 for cell in document["cells"] if cell["estimate"] > 0
    )


def test_intervals_for_counts_rates_and_differences(here: Semidp, released: str) -> None:
    words = ("--of", "admit=Admitted", "--among", "gender=Female", "--among", "dept=A,B")
    rate = strict_json(good(here("intervals", released, *words, "--format", "json")).out)
    assert rate["of"] == {"admit": ["Admitted"]}
    assert rate["among"] == {"gender": ["Female"], "dept": ["A", "B"]}
    assert 0.7 < rate["low"] < 0.796 < rate["high"] < 0.9
    assert rate["p_value"] is None
    wide = good(here("intervals", released, *words, "--sampling", "--format", "json")).json
    assert wide["covers"] == "noise and sampling"
    assert wide["high"] - wide["low"] > rate["high"] - rate["low"]
    done = good(here("intervals", released, "--of", "gender=Female", "--minus", "gender=Male"))
    assert "estimate   -856" in done.out  # both are exact: 1835 and 2691
    assert "is there a difference?" in done.out


@pytest.mark.long
def test_the_posterior_of_a_release(here: Semidp, released: str) -> None:
    done = good(here("intervals", released, "--posterior", "--seed", "1"))
    assert done.out.splitlines()[0].split() == ["gender", "admit", "dept", "mean", "low", "high"]
    assert "64 chains agree after" in done.out
    document = strict_json(
        good(here("intervals", released, "--posterior", "--seed", "1", "--format", "json")).out
    )
    assert len(document["cells"]) == 24
    assert document["mixing"]["reduction"] < 1.01
    refused = here("intervals", released, "--posterior", "--sampling")
    assert (refused.code, "leave --of" in one_sentence(refused)) == (2, True)


def test_intervals_refuse_what_they_cannot_mean(here: Semidp, released: str) -> None:
    for words, why in (
        (("--minus", "gender=Male"), "need --of"),
        (("--of", "gender"), "--of takes NAME="),
        (("--of", "gender=Other"), "no level 'Other'"),
        (("--of", "town=x"), "no table with town"),
        (("--level", "95"), "between 0 and 1"),
    ):
        done = here("intervals", released, *words)
        assert done.code == 2
        assert why in one_sentence(done)
    nowhere = here("intervals", "nowhere")
    assert (nowhere.code, "not a release" in one_sentence(nowhere)) == (2, True)


def test_a_changed_release_is_not_tested(here: Semidp, released: str) -> None:
    folder = Path(released)
    document = json.loads((folder / "release.json").read_text())
    document["tables"][0]["noise"]["scale"] *= 2
    (folder / "release.json").write_text(json.dumps(document))
    done = here("test", released, *GIVEN)
    assert done.code == 2
    assert "does not follow from its measurements" in one_sentence(done)
