"""A release by parts on the command line: what is said and charged when it ends early, is resumed
or is discarded.
"""

import sys
from pathlib import Path

import pytest

from semidp import Ledger, Release
from semidp.publish.parts import by_partition, runners
from semidp.publish.pipeline import charge_ledger
from semidp.publish.unfinished import is_unfinished
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
    assert "; the ledger was charged all the same (--resume or --discard)" in said
    done = here("release", people, *WORDS, "--out", "rel", "--ledger", "ledger.json", "--discard")
    assert done.code == 0, done.err
    assert (
        done.out
        == "discarded  what was unfinished of rel: nothing was released; what it was charged stays"
        " charged\n"
    )
    assert charges(here, "ledger.json") == 1
    assert not (tmp_path / "rel").exists()
    assert not list(tmp_path.glob(".semidp-*"))
    said = one_sentence(here("release", people, *WORDS, "--out", "rel", "--discard"))
    assert said == "semidp: there is no unfinished rel to discard"


def test_discard_for_machines_and_with_other_words(here: Semidp, people: Path, monkeypatch) -> None:
    begun(here, people, monkeypatch)
    refused = here("release", people, *WORDS, "--out", "rel", "--discard", "--resume")
    assert "give one of them" in one_sentence(refused)
    assert "leave --dry-run out" in one_sentence(
        here("release", people, *WORDS, "--discard", "--dry-run")
    )
    done = here("release", people, *WORDS, "--out", "rel", "--discard", "--format", "json")
    assert {key: done.json[key] for key in ("discarded", "charged")} == {
        "discarded": "rel",
        "charged": False,
    }


def test_an_interrupt_says_how_to_go_on(here: Semidp, people: Path, monkeypatch) -> None:
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    done = begun(here, people, monkeypatch, "--ledger", "ledger.json", how=interrupted)
    kept = (
        "what was measured is kept: --resume finishes it at no further cost, --discard removes it"
    )
    charge = "the ledger was charged all the same"
    assert (done.code, done.err) == (
        130,
        f"semidp: interrupted; no release was written; {charge}; {kept}\n",
    )
    again = begun(here, people, monkeypatch, "--ledger", "ledger.json", "--resume", how=interrupted)
    assert (again.code, again.err) == (
        130,
        f"semidp: interrupted; no release was written; {kept}\n",
    )
    assert (
        here("release", people, *WORDS, "--out", "rel", "--ledger", "ledger.json", "--resume").code
        == 0
    )
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
        patched.setattr(by_partition, "charge_ledger", late)
        said = one_sentence(
            here("release", people, *WORDS, "--out", "rel", "--ledger", "ledger.json")
        )
    assert "would exceed the ledger's budget" in said
    assert "all the same" not in said
    assert charges(here, "ledger.json") == 2

    assert here("ledger", "other.json", "--rho", "2").code == 0
    said = one_sentence(begun(here, people, monkeypatch, "--ledger", "other.json"))
    assert "all the same" in said
    said = one_sentence(begun(here, people, monkeypatch, "--ledger", "other.json", "--resume"))
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

    monkeypatch.setattr(sys.modules["semidp.publish.pipeline"], "charge_ledger", late)
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
    done = here("release", people, *WORDS, "--out", "rel", "--resume", "--ledger", "first.json")
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
