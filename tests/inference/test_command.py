"""``semidp test`` on the Berkeley admissions: what it prints, records and refuses."""

import importlib
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from semidp.errors import BudgetExceeded, InputError, Refused, SchemaError, SemidpError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.statistics.odds_ratio.hypergeometric import TwoByTwo
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult

DATA = str(files("semidp") / "data" / "ucb_admissions.csv")
BASE = (DATA, "--rows", "gender", "--columns", "admit", "--count", "count", "--where", "dept = 'A'")

app = typer.Typer()
app.command()(importlib.import_module("semidp.cli.test").odds_ratio)


def call(*arguments: str) -> Any:
    outcome = CliRunner().invoke(app, list(arguments))
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    assert outcome.exit_code == 0, outcome.output
    return outcome


def document(*arguments: str) -> dict[str, Any]:
    return json.loads(call(*arguments, "--format", "json", "--quiet").stdout)


def test_json_holds_the_result_and_can_be_read_back() -> None:
    found = document(*BASE, "--epsilon", "1")
    assert {
        "schema_version",
        "u",
        "p_value",
        "alternative",
        "interval",
        "margins",
        "guarantee",
    } <= set(found)
    assert found["schema_version"] == 1
    assert found["alternative"] == "two-sided"
    assert sum(found["margins"]["rows"]["counts"]) == found["margins"]["n"] == 933
    again = OddsRatioResult.from_json(found)
    assert again.p_value == found["p_value"]
    assert found["budget"] == {"kind": "pure", "epsilon": 1, "delta": 0}
    assert found["private"] is True
    assert any("ledger" in warning for warning in found["warnings"])


def test_declared_levels_say_what_x11_is() -> None:
    found = document(
        *(
            *BASE,
            "--mu",
            "1",
            "--levels",
            "gender=Female,Male",
            "--levels",
            "admit=Admitted,Rejected",
        ),
        *("--alternative", "two-sided", "--level", "0.9", "--delta", "1e-6"),
    )
    assert found["x11"] == {"gender": "Female", "admit": "Admitted"}
    assert OddsRatioResult.from_json(found).margins == TwoByTwo(108, 601, 933)
    assert found["p_value"] < 0.01  # Department A admitted women more often; the odds ratio is 2.86
    assert 1.2 < found["interval"]["low"] < 2.87 < found["interval"]["high"] < 9
    assert found["interval"]["level"] == 0.9
    assert found["report_delta"] == 1e-6
    again = document(*BASE, "--epsilon", "1", "--delta", "1e-6", "--report-delta", "1e-4")
    assert (again["budget"]["delta"], again["report_delta"]) == (1e-6, 1e-4)
    assert 4 < found["epsilon"] < 6


def test_text_says_what_was_counted_and_what_is_protected() -> None:
    out = call(*BASE, "--rho", "0.5", "--seed", "3", "--alternative", "greater")
    assert "x11: gender = " in out.stdout
    assert "p-value" in out.stdout
    assert "most powerful" in out.stdout
    assert "What is protected" in out.stdout
    assert "not private" in out.stderr
    assert (
        call(*BASE, "--rho", "0.5", "--seed", "3", "--alternative", "greater").stdout == out.stdout
    )
    default = call(*BASE, "--rho", "0.5", "--seed", "3").stdout
    assert "is the odds ratio different from 1?" in default
    assert "most powerful" not in default


def test_the_default_finds_an_association_of_either_sign() -> None:
    """Department A with the genders in either order: the one-sided question has p = 1 for one of
    them.
    """
    orders = ("Female,Male", "Male,Female")
    for order in orders:
        levels = ("--levels", f"gender={order}", "--levels", "admit=Admitted,Rejected")
        assert document(*BASE, "--mu", "1", *levels, "--seed", "1")["p_value"] < 0.01
    levels = ("--levels", "gender=Male,Female", "--levels", "admit=Admitted,Rejected")
    assert (
        document(*BASE, "--mu", "1", *levels, "--seed", "1", "--alternative", "greater")["p_value"]
        > 0.99
    )


def test_a_further_invariant_widens_the_noise() -> None:
    one_sided = ("--epsilon", "1", "--alternative", "greater")
    plain = document(*BASE[:-2], *one_sided)
    wide = document(*BASE[:-2], *one_sided, "--invariant", "dept")
    assert plain["guarantee"]["adjacency"]["a"] == 3
    assert wide["guarantee"]["adjacency"]["a"] == 4
    assert plain["most_powerful"]
    assert not wide["most_powerful"]


def test_a_ledger_is_charged_and_refuses(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.pure("1.5"))
    call(*BASE, "--epsilon", "1", "--ledger", str(path))
    assert len(Ledger(path).account().charges) == 1
    with pytest.raises(BudgetExceeded):
        call(*BASE, "--epsilon", "1", "--ledger", str(path))


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("--rows", "dept", "--columns", "admit"), SchemaError, "two levels, merge numbers"),
        (("--rows", "gender", "--columns", "gender"), InputError, "twice"),
        (("--rows", "gender", "--columns", "town"), SemidpError, "town"),
        (
            ("--rows", "gender", "--columns", "admit", "--level", "95"),
            InputError,
            "between 0 and 1",
        ),
        (("--rows", "gender", "--columns", "admit", "--a", "1"), Refused, "at least 2"),
        (
            ("--rows", "gender", "--columns", "admit", "--invariant", "gender,admit"),
            Refused,
            "published exactly",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_hint(
    arguments: tuple[str, ...], error: type[SemidpError], hint: str
) -> None:
    with pytest.raises(error, match=hint):
        call(DATA, "--count", "count", "--epsilon", "1", *arguments)


def test_without_a_budget_or_a_release_both_are_named(tmp_path: Path) -> None:
    for place in (DATA, str(tmp_path), str(tmp_path / "nowhere")):
        with pytest.raises(
            InputError, match=r"one of --epsilon, --rho and --mu; or the folder of a release"
        ):
            call(place, "--rows", "gender", "--columns", "admit")


def test_a_level_is_checked_before_anything_is_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.pure(1))
    for level in ("95", "nan"):
        with pytest.raises(InputError):
            call(*BASE, "--epsilon", "1", "--ledger", str(path), "--level", level)
    assert Ledger(path).account().charges == ()


def test_an_empty_interval_is_flagged() -> None:
    # Noise thousands of counts wide: some seed soon puts U far outside the counts that the margins
    # allow.
    for seed in range(60):
        found = document(*BASE, "--epsilon", "0.0001", "--seed", str(seed), "--level", "0.5")
        if found["interval"]["empty"]:
            assert any("far outside" in warning for warning in found["warnings"])
            assert found["interval"]["low"] == found["interval"]["high"]
            break
    else:
        pytest.fail("no interval was empty")
    assert math.isfinite(found["u"])
