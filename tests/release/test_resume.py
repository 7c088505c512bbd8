"""A release in one piece that was killed or failed is finished at no further cost: one charge, one
measurement, the same files.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, InputError, Ledger, Plan, Release, RunOptions, run
from semidp.cli import run as command
from semidp.promise.accounting.ledger import Session
from semidp.promise.documents import read_document
from semidp.promise.noise.randomness import SystemRandomness, Words
from semidp.publish import TableRequest, block_run
from semidp.publish.folders import Unfinished, is_unfinished
from semidp.publish.recheck import disagreements

PEOPLE = "sex,region,age\n" + "f,n,31\nf,s,42\nm,n,53\nm,s,64\n" * 5
ASKED = (
    "--table",
    "sex,region",
    "--exact",
    "sex",
    "--levels-from-data",
    "--rho",
    "1/10",
    "--ledger",
    "ledger.json",
    "--out",
    "release",
)


def kills(folder: Path, kind: str, *points: int) -> list[dict[str, Any]]:
    words = [sys.executable, "-m", "tests.release.killed_release", str(folder), kind]
    words += map(str, points)
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = json.loads(ended.stdout)
    assert found["total"] > 40
    return found["trials"]


def check_trials(trials: list[dict[str, Any]]) -> tuple[int, int]:
    """Check every kill; return after how many the run was resumed, and after how many of them it
    had been measured.
    """
    resumed, measured = 0, 0
    for trial in trials:
        after, (one, two) = trial["after"], trial["ends"]
        # A charge is a release, or something to go on with: nothing is paid and lost.
        assert after["charges"] <= after["made"] + after["unfinished"]
        for end in (one, two):
            assert end["said"] == []
            assert end["charges"] == 1
            assert end["claimed"]
            # A note without its folder says nothing: it goes with the next file written there.
            assert end["left"] == [] or after["made"]
        resumed += after["unfinished"]
        if after["stored"]:
            measured += 1
            assert one["noisy"] == after["stored"]
            assert one["files"] == two["files"]  # byte by byte
    return resumed, measured


def test_a_killed_release_is_finished(tmp_path: Path) -> None:
    resumed, measured = check_trials(kills(tmp_path, "tables", 46, 63))
    assert (resumed, measured) == (2, 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tables", "microdata", "a period"])
def test_a_release_that_is_killed_at_any_access_is_finished(kind: str, tmp_path: Path) -> None:
    resumed, measured = check_trials(kills(tmp_path, kind))
    assert resumed > measured > 10


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(PEOPLE)
    assert command(["ledger", "ledger.json", "--rho", "1"]) == 0
    return tmp_path


def broken(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def charges() -> int:
    return len(Ledger("ledger.json").account().charges)


MEAN = ("--group", "region", "--mean", "age", "--bounds", "age=0,100")


@pytest.mark.parametrize("more", [(), MEAN], ids=["a table", "several requests"])
def test_what_fails_after_the_charge_is_finished_by_a_command(
    more: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        assert command(["release", "people.csv", *ASKED, *more]) == 2
    said = capsys.readouterr().err
    assert "the ledger was charged all the same" in said
    assert "semidp resume release or semidp discard release" in said
    assert command(["release", "people.csv", *ASKED, *more]) == 2
    assert "an earlier run has left" in capsys.readouterr().err
    Path("people.csv").unlink()  # all of it is measured: nobody reads a record again
    capsys.readouterr()
    assert command(["ledger", "ledger.json"]) == 0
    listed = capsys.readouterr().out
    assert f"semidp resume {here / 'release'} finishes it" in listed
    assert f"semidp discard {here / 'release'} writes it off" in listed
    moved = Path("ledger.json").rename("moved.json")
    assert command(["resume", "release"]) == 2
    assert "ledger.json was moved: say where it is, with --ledger" in capsys.readouterr().err
    moved.rename("ledger.json")
    assert command(["resume", "release"]) == 0
    assert charges() == 1
    assert not is_unfinished("release")
    assert disagreements(Release.load("release"), read_document(Path("release/release.json"))) == ()
    capsys.readouterr()
    assert command(["ledger", "ledger.json", "--check", "release"]) == 0
    assert command(["ledger", "ledger.json"]) == 0
    assert "unclaimed" not in capsys.readouterr().out


def test_a_run_that_was_charged_and_measured_nothing_reads_its_records_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(block_run, "durable", broken)
        assert command(["release", "people.csv", *ASKED, "--seed", "3"]) == 2
    assert charges() == 1
    left = Unfinished.from_notes(here / "release")
    assert left is not None
    assert "measured" not in left.read_notes()
    Path("elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir("elsewhere")  # the note knows where the records and the ledger are
        assert command(["resume", "../release"]) == 0
    assert charges() == 1
    made = Release.load("release")
    capsys.readouterr()
    again = ["release", "people.csv", *ASKED[:-4], "--seed", "3", "--out", "again"]
    assert command(again) == 0
    assert (Path("again") / "table.csv").read_bytes() == (
        Path("release") / "table.csv"
    ).read_bytes()
    assert not made.private


def test_a_release_is_written_off(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        assert command(["release", "people.csv", *ASKED]) == 2
    capsys.readouterr()
    assert command(["discard", "release"]) == 0
    assert "what it was charged stays charged" in capsys.readouterr().out
    assert not is_unfinished("release")
    assert charges() == 1
    assert command(["ledger", "ledger.json"]) == 0
    assert "unclaimed" not in capsys.readouterr().out
    assert command(["resume", "release"]) == 2
    assert command(["discard", "release"]) == 2
    assert command(["release", "people.csv", *ASKED]) == 0
    assert charges() == 2


RECORDS = (
    *("microdata", "people.csv", "--columns", "sex,region", "--exact", "sex", "--rho", "1/10"),
    *("--levels", "region=n,s", "--ledger", "ledger.json", "--out", "records.csv"),
    *("--seconds", "0.1"),
)


def test_records_that_fail_do_not_cost_their_release_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = "semidp synthesize records_release --out records.csv"
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "save_records", broken)
        assert command([*RECORDS]) == 2
    said = capsys.readouterr().err
    assert f"the release records_release is in place: {again} writes its records at no" in said
    assert command([*RECORDS]) == 2
    assert (
        f"records_release already exists ({again} writes records of it" in capsys.readouterr().err
    )
    assert command(again.split()[1:]) == 0
    assert Path("records.csv").read_text().startswith("sex,region\n")
    assert charges() == 1
    for words, reason in (
        (("--out", "within/records.csv", "--release", "within"), "choose an --out outside of its"),
        (("--out", "nowhere/records.csv", "--release", "made"), "there is no folder nowhere"),
        (("--out", "other.csv", "--seconds", "0"), "a positive number of seconds"),
    ):
        assert command([*RECORDS, *words]) == 2
        assert reason in capsys.readouterr().err
    assert charges() == 1


def test_microdata_is_finished_and_says_how_to_get_its_records(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        assert command([*RECORDS, "--files", "2"]) == 2
    Path("people.csv").unlink()
    capsys.readouterr()
    assert command(["resume", "records_release"]) == 0
    # Where the records were to go, and not a name that may be the user's own.
    again = f"semidp synthesize records_release --out {here / 'records.csv'} --files 2"
    assert again in capsys.readouterr().out
    assert command(again.split()[1:]) == 0
    assert Path("records-2.csv").exists()
    assert charges() == 1


def test_only_the_charge_of_the_unfinished_run_can_be_finished(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A release that was made, one that was lost, and one that is unfinished share a place."""
    assert command(["release", "people.csv", *ASKED]) == 0
    for number in (2, 3):
        with pytest.MonkeyPatch.context() as full_disk:
            full_disk.setattr(Release, "report_html", broken)
            assert command(["release", "people.csv", *ASKED, "--force"]) == 2
        if number == 2:  # somebody removes what is unfinished by hand
            for left in here.glob(".semidp-release*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    capsys.readouterr()
    assert command(["ledger", "ledger.json", "--format", "json"]) == 0
    listed = {each["number"]: each for each in json.loads(capsys.readouterr().out)["unclaimed"]}
    assert {*listed} == {2, 3}
    assert "nothing of it is left" in listed[2]["how"]
    assert "once the unfinished release there is finished" in listed[2]["how"]
    assert "semidp resume" in listed[3]["how"]
    assert command(["resume", "release"]) == 0
    assert command(["discard", "release", "--ledger", "ledger.json"]) == 0
    capsys.readouterr()
    assert command(["ledger", "ledger.json"]) == 0
    assert "unclaimed" not in capsys.readouterr().out


def test_what_a_charge_has_left_nowhere_is_written_off_in_its_ledger(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that was removed by hand cannot be finished, and the ledger says so."""
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        assert command(["release", "people.csv", *ASKED]) == 2
    for path in here.glob(".semidp-*unfinished*"):
        if path.is_file():
            path.unlink()
    capsys.readouterr()
    assert command(["ledger", "ledger.json", "--format", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["unclaimed"]
    assert listed["how"].startswith("nothing of it is left: semidp discard")
    assert command(["discard", "release", "--ledger", "ledger.json"]) == 0
    assert command(["discard", "release", "--ledger", "ledger.json"]) == 2
    capsys.readouterr()
    assert command(["ledger", "ledger.json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unclaimed"] == []


class Watched(SystemRandomness):
    """The operating system's words, with a note of whether any were asked for."""

    def __init__(self) -> None:
        object.__setattr__(self, "asked", [])

    def words(self, count: int) -> Words:
        self.asked.append(count)
        return super().words(count)


def test_nothing_is_drawn_when_a_release_is_resumed(tmp_path: Path) -> None:
    people = {"sex": [*"ffm"], "region": [*"nsn"]}
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex"], levels_from_data=True)
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    how = {"out": tmp_path / "release", "ledger": ledger}
    first = Watched()
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        with pytest.raises(InputError, match="no space left"):
            run(plan, people, RunOptions(**how, randomness=first))
    assert first.asked
    other = Plan([TableRequest(["sex", "region"], Budget.gdp(2))], ["sex"], levels_from_data=True)
    with pytest.raises(InputError, match="another plan"):
        run(other, people, RunOptions(**how, resume=True))
    with pytest.raises(InputError, match="was begun with a ledger"):
        run(plan, people, RunOptions(out=how["out"], resume=True))
    later = Watched()
    release = run(plan, people, RunOptions(**how, randomness=later, resume=True))
    assert not later.asked
    assert release.private
    assert len(ledger.account().charges) == 1


def test_without_a_ledger_nothing_is_kept(tmp_path: Path) -> None:
    """Nothing is recorded as spent, and the same command can be given again."""
    plan = Plan([TableRequest(["sex"], Budget.gdp(1))], [], levels_from_data=True)
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        with pytest.raises(InputError, match="no space left"):
            run(plan, {"sex": [*"ffm"]}, RunOptions(out=tmp_path / "release"))
    assert not is_unfinished(tmp_path / "release")
    assert run(plan, {"sex": [*"ffm"]}, RunOptions(out=tmp_path / "release")).private


def test_a_release_of_the_explorer_is_finished(here: Path) -> None:
    from semidp.cli import _options, analyze

    desk = analyze._with_data("people.csv", Plan(), _options.Options(ledger=here / "ledger.json"))
    plan = Plan(
        [TableRequest(["sex", "region"], Budget.zcdp("1/10"))], ["sex"], levels_from_data=True
    )
    assert desk.carry_out is not None
    with pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Release, "report_html", broken)
        with pytest.raises(InputError, match="semidp resume"):
            desk.carry_out(plan, here / "release")
    assert command(["resume", "release"]) == 0
    assert charges() == 1


def test_only_open_charges_are_written_off(tmp_path: Path) -> None:
    """The twin: a charge whose run is finished is no charge to write off."""
    ledger = Ledger.create(tmp_path / "ledger.json", Budget.gdp(10))
    release = run(
        Plan([TableRequest(["sex"], Budget.gdp(1))], [], levels_from_data=True),
        {"sex": [*"ffm"]},
        RunOptions(out=tmp_path / "release", ledger=ledger),
    )
    assert ledger.write_off(place=str(tmp_path / "release")) == []
    session = Session(place=str(tmp_path / "release"))
    ledger.charge(release.guarantee, "open", session=session)
    assert ledger.write_off(place=str(tmp_path / "release")) == [2]
