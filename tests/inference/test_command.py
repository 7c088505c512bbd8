"""``semidp release --odds-ratio`` on the Berkeley admissions: what it publishes and refuses."""

import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from semidp.cli import run
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.tradeoff.budget import Budget

DATA = str(files("semidp") / "data" / "ucb_admissions.csv")
BASE = ("--odds-ratio", "gender,admit", "--count", "count", "--where", "dept = 'A'")
LEVELS = ("--levels", "gender=Female,Male", "--levels", "admit=Admitted,Rejected")
GREATER = ("--set", "alternative=greater")


@pytest.fixture
def document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def publish(*words: str) -> dict[str, Any]:
        out = ("--out", str(tmp_path / "tested"), "--force")
        assert run(["release", DATA, *words, *out, "--format", "json", "--quiet"]) == 0
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    return publish


def test_a_release_holds_the_test(document: Any) -> None:
    found = document(*BASE, "--epsilon", "1")
    (test,) = found["odds_ratios"]
    assert test["alternative"] == "two-sided"
    assert test["budget"] == {"kind": "pure", "epsilon": 1, "delta": 0}
    assert found["dataspace"]["n"] == 933
    assert found["private"] is True


def test_declared_levels_say_what_x11_is(document: Any) -> None:
    found = document(
        *BASE, "--mu", "1", *LEVELS, "--set", "level=0.9", "--set", "report_delta=1e-6"
    )
    (test,) = found["odds_ratios"]
    assert test["x11"] == {"gender": "Female", "admit": "Admitted"}
    assert test["p_value"] < 0.01  # Department A admitted women more often; the odds ratio is 2.86
    assert 1.2 < test["interval"]["low"] < 2.87 < test["interval"]["high"] < 9
    assert test["interval"]["level"] == 0.9
    assert found["report_delta"] == 1e-6
    assert 4 < found["epsilon"] < 6
    again = document(*BASE, "--epsilon", "1", "--delta", "1e-6", "--set", "report_delta=1e-4")
    assert (again["budget"]["delta"], again["report_delta"]) == (1e-6, 1e-4)


def test_text_says_what_was_counted_and_what_is_protected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["release", DATA, *BASE, "--rho", "0.5", "--seed", "3", "--out", str(tmp_path / "r")]
    assert run([*words, *GREATER]) == 0
    out = capsys.readouterr().out
    assert "x11: gender = " in out
    assert "p-value" in out
    assert "most powerful" in out
    assert run([*words, "--force"]) == 0
    default = capsys.readouterr().out
    assert "is the odds ratio different from 1?" in default
    assert "most powerful" not in default


def test_the_default_finds_an_association_of_either_sign(document: Any) -> None:
    """Department A with the genders in either order: the one-sided question has p = 1 for one of
    them.
    """
    for order in ("Female,Male", "Male,Female"):
        levels = ("--levels", f"gender={order}", *LEVELS[2:])
        found = document(*BASE, "--mu", "1", *levels, "--seed", "1")
        assert found["odds_ratios"][0]["p_value"] < 0.01
    found = document(*BASE, "--mu", "1", *levels, "--seed", "1", *GREATER)
    assert found["odds_ratios"][0]["p_value"] > 0.99


def test_a_further_invariant_widens_the_noise(document: Any) -> None:
    plain = document(*BASE[:-2], "--epsilon", "1", *GREATER)
    wide = document(*BASE[:-2], "--epsilon", "1", *GREATER, "--exact", "dept")
    assert (plain["a"]["used"], wide["a"]["used"]) == (3, 4)
    assert plain["odds_ratios"][0]["noise"]["scale"] < wide["odds_ratios"][0]["noise"]["scale"]


def test_a_ledger_is_charged_and_refuses(
    document: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.pure("1.5"))
    document(*BASE, "--epsilon", "1", "--ledger", str(path))
    assert len(Ledger(path).account().charges) == 1
    words = ["release", DATA, *BASE, "--epsilon", "1", "--ledger", str(path)]
    assert run([*words, "--out", str(tmp_path / "again")]) == 2
    assert "budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--odds-ratio", "dept,admit"), "two levels, merge numbers"),
        (("--odds-ratio", "gender,gender"), "named once"),
        (("--odds-ratio", "gender,town"), "town"),
        (("--odds-ratio", "gender,admit", "--set", "level=95"), "between 0 and 1"),
        (("--odds-ratio", "gender,admit", "--adjacency", "1"), "at least 2"),
        (("--odds-ratio", "gender,admit", "--exact", "gender,admit"), "published exactly"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_hint(
    words: tuple[str, ...], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.pure(1))
    spent = ("--epsilon", "1", "--ledger", str(path), "--out", str(tmp_path / "tested"))
    assert run(["release", DATA, "--count", "count", *spent, *words]) == 2
    assert hint in capsys.readouterr().err
    assert Ledger(path).account().charges == ()


def test_an_empty_interval_is_flagged(document: Any) -> None:
    # Noise thousands of counts wide: some seed soon puts U far outside the counts that the margins
    # allow.
    for seed in range(60):
        words = ("--epsilon", "0.0001", "--seed", str(seed), "--set", "level=0.5")
        (found,) = document(*BASE, *words)["odds_ratios"]
        if found["interval"]["empty"]:
            assert found["interval"]["low"] == found["interval"]["high"]
            break
    else:
        pytest.fail("no interval was empty")
    assert math.isfinite(found["u"])
