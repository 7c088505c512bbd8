"""Plans that somebody approves before data are read: what was signed is carried out, or nothing."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from semidp.present.release import Release
from tests.cli.conftest import Done, Semidp, one_sentence

PLAN = """\
invariants = ["sex", "region"]
adjacency = "exchange"
title = "Health"

[[feature]]
name = "region"
levels = ["n", "s"]

[[table]]
features = ["sex", "region"]
mu = "1"
"""
PEOPLE = "sex,region,age\n" + "f,n,31\nf,s,42\nm,n,53\nm,s,64\nm,s,20\n" * 20
SEXES, REGIONS = "sex,count\nf,40\nm,60\n", "region,count\nn,40\ns,60\n"
RUN = ("release", "people.csv", "--plan", "plan.toml", "--approved", "officer.key.pub")


@pytest.fixture
def office(here: Semidp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data, a plan, the keys of an officer and of somebody else."""
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "")
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "sexes.csv").write_text(SEXES)
    (tmp_path / "regions.csv").write_text(REGIONS)
    for name in ("officer", "other"):
        assert here("plan", "keys", f"{name}.key").code == 0
    return tmp_path


@pytest.fixture
def approved(here: Semidp, office: Path) -> Path:
    """The same, with the plan approved."""
    done = here("plan", "sign", "plan.toml", "--key", "officer.key")
    assert done.code == 0, done.err
    assert "data       any: the approval names exact totals by their features alone" in done.out
    return office


def run_out(here: Semidp, *more: str) -> Done:
    return here(*RUN, *more, "--out", "out")


def test_what_was_approved_is_carried_out_and_can_be_compared(here: Semidp, approved: Path) -> None:
    done = run_out(here)
    assert done.code == 0, done.err
    assert Release.load(approved / "out").private
    checked = here("plan", "check", "plan.toml", "officer.key.pub", "out")
    assert checked.code == 0
    assert "its plan and its exact totals are those approved" in checked.out
    # a release of another plan by the same people does not follow it
    words = ("--table", "sex,region", "--exact", "sex", "--exact", "region", "--mu", "1")
    assert here("release", "people.csv", *words, "--out", "plain").code == 0
    said = one_sentence(here("plan", "check", "plan.toml", "officer.key.pub", "plain"))
    assert "'adjacency' is not what the key officer.key.pub has approved" in said
    # nor does one whose noise can be drawn again
    seeded = ("release", "people.csv", "--plan", "plan.toml", "--seed", "1", "--out", "seeded")
    assert here(*seeded).code == 0
    said = one_sentence(here("plan", "check", "plan.toml", "officer.key.pub", "seeded"))
    assert "seeded is not private" in said


def test_layout_and_where_to_write_are_free(here: Semidp, approved: Path) -> None:
    (approved / "plan.toml").write_text("# reviewed on Monday\n" + PLAN.replace(" = ", "  =  "))
    assert here("ledger", "ledger.json", "--mu", "2").code == 0
    more = ("--ledger", "ledger.json", "--set", "label=first", "--write", "sdmx")
    assert run_out(here, *more).code == 0


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('mu = "1"', 'mu = "2"', "'table'"),
        ('["sex", "region"]\nadj', '["sex"]\nadj', "'invariants'"),
        ("exchange", "worst-case", "'adjacency'"),
        ('levels = ["n", "s"]', 'levels = ["n", "s", "w"]', "'feature'"),
        ("Health", "Wealth", "'title'"),
        ("title", "where = \"sex = 'f'\"\ntitle", "'where'"),
        ("title", 'encoding = "latin-1"\ntitle', "'encoding'"),
    ],
)
def test_a_plan_that_was_changed_is_refused(
    here: Semidp, approved: Path, old: str, new: str, named: str
) -> None:
    changed = PLAN.replace(old, new)
    assert changed != PLAN
    (approved / "plan.toml").write_text(changed)
    said = one_sentence(run_out(here))
    assert f"{named} is not what the key officer.key.pub has approved" in said
    assert not (approved / "out").exists()
    (approved / "plan.toml").write_text(PLAN)
    assert run_out(here).code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "change",
    [
        "adjacency=worst-case",
        "levels_from_data=true",
        "where=sex = 'f'",
        "report_delta=1e-3",
        "title=Wealth",
        "note=Mine.",
    ],
)
def test_an_option_that_changes_the_plan_is_refused(
    here: Semidp, approved: Path, change: str
) -> None:
    name = change.partition("=")[0]
    assert f"'{name}' is not what the key" in one_sentence(run_out(here, "--set", change))
    assert not (approved / "out").exists()


def test_an_option_that_names_a_default_is_not_passed_over(here: Semidp, approved: Path) -> None:
    said = one_sentence(run_out(here, "--adjacency", "worst-case"))
    assert "leave --adjacency out" in said
    assert not (approved / "out").exists()


def test_other_signatures_are_refused(here: Semidp, approved: Path) -> None:
    place = approved / "plan.toml.approval"
    sign = approved / "plan.toml.approval.minisig"
    before, signature = place.read_text(), sign.read_bytes()
    words = ("release", "people.csv", "--plan", "plan.toml", "--out", "out", "--approved")
    assert "is not one of the key other.key.pub" in one_sentence(here(*words, "other.key.pub"))
    place.write_text(before.replace('"exchange"', '"worst-case"'))
    assert "is not one of the key officer.key.pub" in one_sentence(run_out(here))
    place.write_text(before)
    sign.unlink()
    assert "semidp plan sign makes it" in one_sentence(run_out(here))
    # the signature of something else, by the right key
    assert (
        here(
            "release",
            "people.csv",
            "--plan",
            "plan.toml",
            "--out",
            "signed",
            "--set",
            "sign=officer.key",
        ).code
        == 0
    )
    sign.write_bytes((approved / "signed" / "SHA256SUMS.minisig").read_bytes())
    assert "is not one of the key officer.key.pub" in one_sentence(run_out(here))
    sign.write_bytes(signature)
    assert "secret noise: leave --seed out" in one_sentence(run_out(here, "--seed", "1"))
    assert "--approved works only with --plan" in one_sentence(
        here(
            "release",
            "people.csv",
            "--table",
            "sex",
            "--mu",
            "1",
            "--approved",
            "officer.key.pub",
            "--out",
            "out",
        )
    )
    assert not (approved / "out").exists()
    assert run_out(here).code == 0


def test_data_with_totals_that_are_not_named_are_refused_before_anything_is_charged(
    here: Semidp, office: Path
) -> None:
    named = ("--totals", "sexes.csv", "--totals", "regions.csv")
    sign = ("plan", "sign", "plan.toml", "--key", "officer.key")
    assert "holds other totals than the plan" in one_sentence(here(*sign, *named[:2]))
    done = here(*sign, *named)
    assert done.code == 0, done.err
    assert "those with the 3 totals that are named" in done.out
    assert here("ledger", "ledger.json", "--mu", "2").code == 0
    ledger = office / "ledger.json"
    charged = ledger.read_text()
    people = office / "people.csv"
    for other, what in (
        (PEOPLE.replace("m,n,53", "m,s,53"), "by region"),
        (PEOPLE + "f,n,1\n", "by the number of records"),
    ):
        people.write_text(other)
        for more in ((), ("--dry-run",), ("--ledger", "ledger.json")):
            said = one_sentence(run_out(here, *more))
            assert f"the exact totals {what} are not those" in said
            assert not (office / "out").exists()
    assert ledger.read_text() == charged
    assert not list(office.glob(".semidp-out*"))
    people.write_text(PEOPLE.replace("20\n", "21\n"))  # the same totals
    assert run_out(here, "--ledger", "ledger.json").code == 0
    assert here("plan", "check", "plan.toml", "officer.key.pub", "out").code == 0


def test_a_release_that_ended_early_is_resumed_as_it_was_approved(
    here: Semidp, approved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("ledger", "ledger.json", "--mu", "2").code == 0

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(Release, "write_files", broken)
        assert run_out(here, "--ledger", "ledger.json").code == 2
    place = approved / "plan.toml.approval"
    before = place.read_text()
    place.write_text(before.replace('"exchange"', '"worst-case"'))
    assert "is not one of the key" in one_sentence(here("resume", "out"))
    # an approval of another plan does not do
    (approved / "plan.toml").write_text(PLAN.replace('mu = "1"', 'mu = "1/2"'))
    assert here("plan", "sign", "plan.toml", "--key", "officer.key", "--force").code == 0
    assert "'table' is not what the key" in one_sentence(here("resume", "out"))
    (approved / "plan.toml").write_text(PLAN)
    # nor does one that names other totals
    (approved / "others.csv").write_text("region,count\nn,20\ns,80\n")
    sign = ("plan", "sign", "plan.toml", "--key", "officer.key", "--force")
    assert here(*sign, "--totals", "sexes.csv", "--totals", "others.csv").code == 0
    assert "totals by region are not those" in one_sentence(here("resume", "out"))
    assert here(*sign, "--totals", "sexes.csv", "--totals", "regions.csv").code == 0
    assert here("resume", "out").code == 0
    assert len(json.loads(here("ledger", "ledger.json", "--format", "json").out)["charges"]) == 1


def test_what_an_approval_would_leave_open_is_not_signed(here: Semidp, office: Path) -> None:
    plan = office / "plan.toml"
    sign = ("plan", "sign", "plan.toml", "--key", "officer.key")
    plan.write_text(PLAN.replace('mu = "1"\n', ""))
    assert "no budget, so an approval would approve any" in one_sentence(here(*sign))
    assert not (office / "plan.toml.approval").exists()
    # A target error fixes the budget, by what is published exactly.
    plan.write_text(PLAN.replace('mu = "1"', 'target_error = "3"'))
    done = here(*sign)
    assert done.code == 0, done.err
    assert "as its target errors need" in done.out
    assert run_out(here).code == 0
    assert here("plan", "check", "plan.toml", "officer.key.pub", "out").code == 0
    assert "or replace it with --force" in one_sentence(here(*sign))


TARGET = PLAN.replace('mu = "1"', 'target_error = "3"')
MICRODATA = (
    PLAN.partition("[[table]]")[0].replace(', "region"]\nadj', "]\nadj")
    + '[microdata]\ncolumns = ["sex", "region"]\nrho = "1"\n'
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("plan", "changed"),
    [
        (TARGET, TARGET.replace('"3"', '"2"')),
        (MICRODATA, MICRODATA.replace('rho = "1"', 'rho = "2"')),
    ],
)
def test_a_release_that_spent_more_than_was_approved_does_not_follow(
    here: Semidp, office: Path, plan: str, changed: str
) -> None:
    (office / "plan.toml").write_text(plan)
    (office / "more.toml").write_text(changed)
    assert here("plan", "sign", "plan.toml", "--key", "officer.key").code == 0
    run = ("release", "people.csv", "--plan")
    assert here(*run, "plan.toml", "--out", "approved").code == 0
    assert here(*run, "more.toml", "--out", "more").code == 0
    check = ("plan", "check", "plan.toml", "officer.key.pub")
    assert here(*check, "approved").code == 0
    assert "is not what the key" in one_sentence(here(*check, "more"))


def test_keys_are_for_their_owner_and_not_replaced(
    here: Semidp, office: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.name == "posix":
        assert stat.S_IMODE((office / "officer.key").stat().st_mode) == 0o600
    assert "a key is not replaced" in one_sentence(here("plan", "keys", "officer.key"))
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "right")
    assert here("plan", "keys", "locked.key").code == 0
    sign = ("plan", "sign", "plan.toml", "--key", "locked.key")
    assert here(*sign).code == 0
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "wrong")
    assert "the password for the secret key" in one_sentence(here(*sign, "--force"))
    monkeypatch.delenv("SEMIDP_SIGN_PASSWORD")
    assert "SEMIDP_SIGN_PASSWORD" in one_sentence(here("plan", "keys", "third.key"))
    assert not (office / "third.key").exists()
