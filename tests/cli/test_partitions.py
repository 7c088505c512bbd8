"""A release by parts on the command line: what is said and charged when it ends early, is resumed
or is discarded.
"""

from pathlib import Path

import pytest

from semidp import Ledger, Release
from semidp.publish import block_run, runners
from semidp.publish.folders import is_unfinished
from semidp.publish.pipeline import charge_ledger
from tests.cli.conftest import Done, Semidp, one_sentence

PLACES = [f"{state},{state}{county},{sex}" for state in "AB" for county in (1, 2) for sex in "fm"]
WORDS = (
    *(
        "--nest",
        "state,county",
        "--table",
        "county,sex",
        "--invariant",
        "state",
        "--invariant",
        "sex",
    ),
    *("--levels-from-data", "--rho", "1", "--partition", "state", "--quiet"),
)


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Release, "report_html", lambda self, title=None: "")
    path = tmp_path / "places.csv"
    path.write_text("state,county,sex\n" + "\n".join(PLACES * 5) + "\n")
    return path


def broken(*_: object) -> None:
    raise OSError(28, "No space left on device")


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def begun(
    here: Semidp, people: Path, monkeypatch: pytest.MonkeyPatch, *more: str, how=broken
) -> Done:
    with monkeypatch.context() as patched:
        patched.setattr(runners, "carry_out", how)
        return here("release", people, *WORDS, "--out", "rel", *more)


def resumed(here: Semidp, monkeypatch: pytest.MonkeyPatch, how=broken) -> Done:
    with monkeypatch.context() as patched:
        patched.setattr(runners, "carry_out", how)
        return here("resume", "rel", "--quiet")


def charges(here: Semidp, ledger: str) -> int:
    return len(here("ledger", ledger, "--format", "json").json["charges"])


def test_discard_removes_and_does_nothing_else(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch
) -> None:
    """With a budget for one release: to run on would lose what was paid for, and then be
    refused.
    """
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    said = one_sentence(begun(here, people, monkeypatch, "--ledger", "ledger.json"))
    place = tmp_path / "rel"
    hint = f"semidp resume {place} or semidp discard {place}"
    assert f"; the ledger was charged all the same ({hint})" in said
    done = here("discard", "rel")
    assert done.code == 0, done.err
    assert (
        done.out
        == "discarded  what was unfinished of rel: nothing was released; what it was charged stays"
        " charged\n"
    )
    assert charges(here, "ledger.json") == 1
    assert not (tmp_path / "rel").exists()
    assert not list(tmp_path.glob(".semidp-*"))
    said = one_sentence(here("discard", "rel"))
    assert said == "semidp: there is no unfinished release at rel: nothing to discard"


def test_discard_for_machines(here: Semidp, people: Path, monkeypatch) -> None:
    begun(here, people, monkeypatch)
    done = here("discard", "rel", "--format", "json")
    assert {key: done.json[key] for key in ("discarded", "charged")} == {
        "discarded": "rel",
        "charged": False,
    }


def test_an_interrupt_says_how_to_go_on(here: Semidp, people: Path, monkeypatch) -> None:
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    done = begun(here, people, monkeypatch, "--ledger", "ledger.json", how=interrupted)
    kept = (
        "what was measured is kept: semidp resume rel finishes it at no further cost, semidp"
        " discard rel writes it off"
    )
    charge = "the ledger was charged all the same"
    assert (done.code, done.err) == (
        130,
        f"semidp: interrupted; no release was written; {charge}; {kept}\n",
    )
    again = resumed(here, monkeypatch, how=interrupted)
    assert (again.code, again.err) == (
        130,
        f"semidp: interrupted; no release was written; {kept}\n",
    )
    assert here("resume", "rel").code == 0
    assert charges(here, "ledger.json") == 1
    assert not is_unfinished("rel")


def test_only_who_charged_says_so(here: Semidp, people: Path, monkeypatch) -> None:
    """Another run charges the ledger meanwhile; and a run that goes on with a release charges
    nothing.
    """
    assert here("ledger", "ledger.json", "--rho", "2").code == 0

    def late(whole, ledger, label=None, run_name=None):
        for _ in range(2):
            charge_ledger(whole, Ledger("ledger.json"), "another")
        return charge_ledger(whole, ledger, label, run_name)

    with monkeypatch.context() as patched:
        patched.setattr(block_run, "charge_ledger", late)
        said = one_sentence(
            here("release", people, *WORDS, "--out", "rel", "--ledger", "ledger.json")
        )
    assert "would exceed the ledger's budget" in said
    assert "all the same" not in said
    assert charges(here, "ledger.json") == 2

    assert here("ledger", "other.json", "--rho", "2").code == 0
    said = one_sentence(begun(here, people, monkeypatch, "--ledger", "other.json"))
    assert "all the same" in said
    said = one_sentence(resumed(here, monkeypatch))
    assert "no space left" in said
    assert "all the same" not in said
    assert charges(here, "other.json") == 1


def test_one_piece_says_only_what_it_charged(here: Semidp, people: Path, monkeypatch) -> None:
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    words = (
        "--table",
        "state,sex",
        "--invariant",
        "state",
        "--invariant",
        "sex",
        "--rho",
        "1",
        "--out",
        "rel",
    )

    def late(prepared, ledger, label=None, run_name=None):
        charge_ledger(prepared, Ledger("ledger.json"), "another")
        return charge_ledger(prepared, ledger, label, run_name)

    monkeypatch.setattr(block_run, "charge_ledger", late)
    said = one_sentence(here("release", people, *words, "--ledger", "ledger.json"))
    assert "would exceed" in said
    assert "all the same" not in said
    assert charges(here, "ledger.json") == 1


def test_a_ledger_that_is_given_to_resume_is_charged(
    here: Semidp, people: Path, monkeypatch
) -> None:
    for name in ("first.json", "second.json"):
        assert here("ledger", name, "--rho", "1").code == 0
    begun(here, people, monkeypatch)
    done = here("resume", "rel", "--ledger", "first.json")
    assert done.code == 0, done.err
    assert charges(here, "first.json") == 1
    assert here("ledger", "first.json", "--check", "rel").code == 0


def test_a_ledger_of_one_level_protects_whom_the_next_table_is_about(
    here: Semidp, people: Path
) -> None:
    """Nobody can change in a table of one level; in the table after it, one person can."""
    people.write_text("sex,all\n" + "f,x\nm,x\n" * 5)
    assert here("ledger", "ledger.json", "--mu", "9").code == 0
    words = (
        "--levels-from-data",
        "--adjacency",
        "exchange",
        "--mu",
        "1",
        "--ledger",
        "ledger.json",
        "--out",
    )
    assert here("release", people, "--table", "all", *words, "one").code == 0
    assert (
        "for exchange (nobody can change), not for any records" in here("ledger", "ledger.json").out
    )
    assert here("release", people, "--table", "sex", *words, "two").code == 0
    assert "for exchange (up to 1 record), not for any records" in here("ledger", "ledger.json").out
    assert Ledger("ledger.json").account().adjacency.a == 1
