"""``semidp ledger``: what it lists, and whether releases and charges still belong together."""

import json
import shutil
from pathlib import Path

import pytest

from semidp.promise.accounting import ledger as ledger_module
from semidp.promise.files import hold_lock
from tests.cli.conftest import Semidp, one_sentence

WORDS = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region", "--rho", "0.1")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("sex,region\n" + "f,n\nf,s\nm,n\nm,s\nm,s\n" * 20)
    return path


@pytest.fixture
def charged(here: Semidp, people: Path) -> None:
    assert here("ledger", "book.json", "--rho", "1").code == 0
    for name in ("one", "two", "three"):
        done = here(
            "release",
            people,
            *WORDS,
            "--ledger",
            "book.json",
            "--set",
            f"label=for {name}",
            "--out",
            name,
        )
        assert done.code == 0, done.err


@pytest.mark.usefixtures("charged")
def test_each_charge_is_listed_with_its_cost_and_label(here: Semidp, people: Path) -> None:
    assert here("release", people, *WORDS, "--ledger", "book.json", "--out", "four").code == 0
    lines = [
        line for line in here("ledger", "book.json").out.splitlines() if line.startswith("charged")
    ]
    assert [line.split("  ")[-2:] for line in lines] == [
        ["0.1-zCDP", "for one"],
        ["0.1-zCDP", "for two"],
        ["0.1-zCDP", "for three"],
        ["0.1-zCDP", "table (sex × region)"],
    ]
    charges = here("ledger", "book.json", "--format", "json").json["charges"]
    assert [charge["fixed"] for charge in charges] == [None] * 4
    assert charges[0]["measured"][0]["query"] == {"kind": "table", "features": ["sex", "region"]}
    assert charges[0]["measured"][0]["noise"]["law"] == "discrete gaussian"


@pytest.mark.usefixtures("charged")
def test_releases_agree_with_their_ledger(here: Semidp, tmp_path: Path) -> None:
    done = here("ledger", "book.json", "--check", "one", "two", "three")
    assert done.code == 0
    assert done.out.splitlines() == ["agrees     one", "agrees     two", "agrees     three"]
    document = json.loads((tmp_path / "book.json").read_text())
    document["charges"].pop()
    (tmp_path / "book.json").write_text(json.dumps(document))
    done = here("ledger", "book.json", "--check", "one", "three")
    assert done.code == 1
    assert done.out.splitlines() == [
        "agrees     one",
        "disagrees  three: its charge is number 3, and the ledger holds 2",
    ]
    done = here("ledger", "book.json", "--check", "three", "--format", "json")
    assert done.code == 1
    assert [entry["agrees"] for entry in done.json["releases"]] == [False]
    document["charges"].pop(0)
    (tmp_path / "book.json").write_text(json.dumps(document))
    assert "charge 1 does not follow" in one_sentence(here("ledger", "book.json", "--check", "one"))


@pytest.mark.usefixtures("charged")
def test_a_check_needs_releases_and_releases_a_check(here: Semidp, people: Path) -> None:
    for words in (("--check",), ("one",), ("--check", "one", "--rho", "1")):
        assert "--check RELEASE" in one_sentence(here("ledger", "book.json", *words))
    assert here("release", people, *WORDS, "--out", "free").code == 0
    done = here("ledger", "book.json", "--check", "free")
    assert (done.code, done.out) == (1, "disagrees  free: it was charged to no ledger\n")


@pytest.mark.usefixtures("charged")
def test_a_run_that_waits_for_the_ledger_says_so(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "PATIENCE", 0.2)
    with hold_lock(tmp_path / ".book.json.lock"):
        done = here("release", people, *WORDS, "--ledger", "book.json", "--out", "late")
    assert done.code == 2
    waiting, gave_up = done.err.splitlines()
    assert "waiting for up to 0.2 seconds" in waiting
    assert "nothing was charged; try again" in gave_up
    assert not (tmp_path / "late").exists()


@pytest.mark.usefixtures("charged")
def test_a_check_compares_the_guarantee_and_the_noise(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    def forged(name: str, rho: str) -> str:
        """Make a release that no ledger was charged for, and give it the charge of another."""
        words = (*WORDS[:-1], rho)
        assert here("release", people, *words, "--out", name).code == 0
        document = json.loads((tmp_path / name / "release.json").read_text())
        document["ledger"] = json.loads((tmp_path / "one" / "release.json").read_text())["ledger"]
        (tmp_path / name / "release.json").write_text(json.dumps(document))
        return name

    done = here("ledger", "book.json", "--check", forged("loud", "50"), forged("again", "0.1"))
    assert done.code == 1
    assert done.out.splitlines() == [
        "disagrees  loud: charge 1 of the ledger is for another guarantee than it states",
        "disagrees  again: charge 1 of the ledger paid for other noisy values than it holds",
    ]
    # A copy of a release holds the same noise; it costs nothing.
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert here("ledger", "book.json", "--check", "one", "copy").code == 0
    # Version 0.2 recorded no noise: then one of two releases with one charge disagrees.
    document = json.loads((tmp_path / "book.json").read_text())
    del document["runs"]
    (tmp_path / "book.json").write_text(json.dumps(document))
    assert here("ledger", "book.json", "--check", "again").code == 0
    done = here("ledger", "book.json", "--check", "one", "again", "copy")
    assert done.code == 1
    assert done.out.splitlines() == [
        "agrees     one",
        "disagrees  again: charge 1 of the ledger is that of one, which holds other noise",
        "agrees     copy",
    ]
