"""What goes wrong gets one sentence and exit code 2, leaves nothing half-written, and quotes no
data.

The cells hold seven-digit primes. Both margins are published, so their sums are public; a prime
that shows up anywhere is a leak. The one release that succeeds is drawn with a large scale and a
fixed seed, so that it hits none by chance.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from semidp import Plan, Release
from semidp.cli import _program
from semidp.errors import InputError
from semidp.inference.records.synthetic import check_records
from semidp.publish import block_run
from tests.cli.conftest import Done, Semidp, one_sentence, settle

PRIMES = (1000003, 1299709, 1500007, 2000003, 3000017, 5000011)
ROWS = [
    ("f", "north"),
    ("f", "south"),
    ("f", "west"),
    ("m", "north"),
    ("m", "south"),
    ("m", "west"),
]
BOTH = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region", "--count", "people")
SPEND = ("--rho", "1e-7", "--seed", "5")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write(
        tmp_path / "people.csv",
        [(*row, str(prime)) for row, prime in zip(ROWS, PRIMES, strict=True)],
    )


def write(
    path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("sex", "region", "people")
) -> Path:
    path.write_text("\n".join(",".join(row) for row in (header, *rows)) + "\n")
    return path


def check_no_leak(folder: Path, *texts: str) -> None:
    """No prime in what was printed, nor in any file but the data."""
    found = list(texts)
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in {"people.csv", "odd.csv"}:
            found.append(path.read_bytes().decode(errors="replace"))
    for prime in PRIMES:
        for text in found:
            assert not re.search(rf"(?<!\d)({prime}|{prime:,})(?!\d)", text)


def leaves_nothing(folder: Path) -> None:
    left = {path.name for path in folder.iterdir()}
    assert left <= {"people.csv", "odd.csv", "schema.toml", "file"}, left


def test_the_release_itself_leaks_nothing(
    semidp: Semidp, here: Semidp, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    places = {
        name: str(tmp_path / "tmp") for name in ("TMPDIR", "HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME")
    }
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    done = semidp(
        "release", people, *BOTH, *SPEND, "--ledger", "ledger.json", "--out", "release", env=places
    )
    assert done.code == 0, done.err
    check_no_leak(tmp_path, done.out, done.err)


def test_the_check_would_catch_a_leak(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_no_leak(tmp_path, f"count {PRIMES[0]:,}")


ODD = {
    "a missing value": ([("f", "", "1000003"), ("f", "north", "1299709")], (), "missing"),
    "an unknown level": (
        [("f", "north", "1000003"), ("x", "north", "1299709")],
        ("--levels", "sex=f,m"),
        "level",
    ),
    "a count that is text": ([("f", "north", "1000003x")], (), "whole numbers"),
    "a negative count": ([("f", "north", "-1000003")], (), "whole numbers"),
    "a fractional count": ([("f", "north", "1000003.5")], (), "whole numbers"),
    "an unfinished row": ([("f", "north", "1000003"), ("f",)], (), ""),
    "an open quote": ([("f", '"north', "1000003")], (), ""),
}


@pytest.mark.parametrize("case", ODD, ids=str)
def test_odd_data(here: Semidp, tmp_path: Path, case: str) -> None:
    rows, extra, expected = ODD[case]
    done = here(
        "release", write(tmp_path / "odd.csv", rows), *BOTH, *SPEND, *extra, "--out", "release"
    )
    assert expected in one_sentence(done)
    check_no_leak(tmp_path, done.err)
    leaves_nothing(tmp_path)


def test_a_missing_file(here: Semidp, tmp_path: Path) -> None:
    assert "nowhere.csv" in one_sentence(
        here("release", "nowhere.csv", *BOTH, *SPEND, "--out", "release")
    )
    leaves_nothing(tmp_path)


def test_a_wrong_column_lists_the_ones_there_are(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    done = here(
        "release",
        people,
        "--table",
        "sex,town",
        "--invariant",
        "sex,town",
        *SPEND,
        "--out",
        "release",
    )
    assert "sex, region, people" in one_sentence(done)
    check_no_leak(tmp_path, done.err)


def test_levels_that_are_not_public_are_refused(here: Semidp, people: Path, tmp_path: Path) -> None:
    words = (
        "release",
        people,
        "--table",
        "sex,region",
        "--invariant",
        "sex",
        "--count",
        "people",
        *SPEND,
    )
    assert "--levels region=" in one_sentence(here(*words, "--out", "release"))
    leaves_nothing(tmp_path)
    done = here(*words, "--levels-from-data", "--out", "release")
    assert done.code == 0
    assert "read from the data" in done.err
    assert "read from the data" in (tmp_path / "release" / "report.html").read_text()


def test_an_output_below_a_regular_file(here: Semidp, people: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = here("release", people, *BOTH, *SPEND, "--out", "file/release")
    assert "file" in one_sentence(done)
    leaves_nothing(tmp_path)


def test_an_output_that_exists_is_kept(here: Semidp, people: Path, tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "precious.txt").write_text("mine")
    for force in ((), ("--force",)):
        said = one_sentence(here("release", people, *BOTH, *SPEND, "--out", "release", *force))
        assert said.endswith(
            "release holds precious.txt, which would be lost: choose another --out"
        )
        assert (tmp_path / "release" / "precious.txt").read_text() == "mine"


def test_an_empty_folder_is_filled_and_a_folder_needs_a_name(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "release").mkdir()
    assert here("release", people, *BOTH, *SPEND, "--out", "release").code == 0
    assert (tmp_path / "release" / "table.csv").exists()
    assert "not a name" in one_sentence(
        here("release", people, *BOTH, *SPEND, "--out", ".", "--force")
    )
    assert (tmp_path / "release" / "table.csv").exists()


def test_force_never_removes_what_the_release_is_made_from(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("people.csv", "part-1.csv"):
        shutil.copy(people, folder / name)
    assert here("ledger", folder / "ledger.json", "--rho", "1").code == 0
    before = {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")
    }
    for data, more in (
        ("mine/people.csv", ()),
        ("mine/part-*.csv", ()),
        (people, ("--ledger", "mine/ledger.json")),
    ):
        done = here("release", data, *BOTH, *SPEND, *more, "--out", "mine", "--force")
        assert "which this run needs: choose another --out" in one_sentence(done)
        assert {
            path.name: path.read_bytes()
            for path in folder.iterdir()
            if not path.name.startswith(".")
        } == before


@pytest.mark.long
def test_a_full_disk(semidp: Semidp, people: Path, tmp_path: Path) -> None:
    done = semidp("release", people, *BOTH, *SPEND, "--out", "release", file_limit=4000)
    assert done.code == 2, done.err
    assert len(done.err.strip().splitlines()) == 1
    check_no_leak(tmp_path, done.out, done.err)
    leaves_nothing(tmp_path)


def test_a_full_disk_keeps_the_old_release(
    semidp: Semidp, here: Semidp, people: Path, tmp_path: Path
) -> None:
    assert here("release", people, *BOTH, *SPEND, "--out", "release").code == 0
    before = (tmp_path / "release" / "table.csv").read_bytes()
    assert (
        semidp(
            "release", people, *BOTH, *SPEND, "--out", "release", "--force", file_limit=4000
        ).code
        == 2
    )
    assert (tmp_path / "release" / "table.csv").read_bytes() == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB of its own."""
    yield from mount_disk(tmp_path / "disk", 256)


@pytest.fixture
def larger_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB of its own."""
    yield from mount_disk(tmp_path / "disk", 1024)


def mount_disk(disk: Path, size: int) -> Iterator[Path]:
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(
            "mounting a tmpfs is not permitted, so only RLIMIT_FSIZE fills a disk:"
            f" {done.stderr.strip()}"
        )
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, leave: int) -> None:
    """Leave so many bytes of a file system free."""
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(room.f_bavail * room.f_frsize - leave))


def test_a_disk_that_is_full(here: Semidp, people: Path, small_disk: Path, tmp_path: Path) -> None:
    assert here("release", people, *BOTH, *SPEND, "--out", small_disk / "first").code == 0
    before = {path.name: path.read_bytes() for path in (small_disk / "first").iterdir()}
    fill(small_disk, 12 * 1024)
    for out, force in (("second", ()), ("first", ("--force",))):
        done = here("release", people, *BOTH, *SPEND, "--out", small_disk / out, *force)
        assert "of disk, and 12 kB are free: choose another place" in one_sentence(done)
        check_no_leak(tmp_path, done.err)
        assert {path.name for path in small_disk.iterdir()} == {"first", "ballast"}
    assert {path.name: path.read_bytes() for path in (small_disk / "first").iterdir()} == before


def test_a_ledger_on_a_full_disk_stops_the_release(
    here: Semidp, people: Path, small_disk: Path, tmp_path: Path
) -> None:
    ledger = small_disk / "ledger.json"
    assert here("ledger", ledger, "--rho", "1").code == 0
    before = ledger.read_bytes()
    fill(small_disk, 0)
    done = here("release", people, *BOTH, *SPEND, "--ledger", ledger, "--out", "release")
    assert "no space left" in one_sentence(done)
    assert ledger.read_bytes() == before
    assert not (tmp_path / "release").exists()


def test_a_full_disk_is_found_before_the_charge(
    here: Semidp, people: Path, small_disk: Path, tmp_path: Path
) -> None:
    fill(small_disk, 12 * 1024)
    ledger = tmp_path / "ledger.json"
    assert here("ledger", ledger, "--rho", "1").code == 0
    done = here(
        "release", people, *BOTH, *SPEND, "--ledger", ledger, "--out", small_disk / "release"
    )
    assert "of disk" in one_sentence(done)
    assert not here("ledger", ledger, "--format", "json").json["charges"]


SCHOOLS = files("semidp") / "data" / "california_schools.csv"
DISTRICTS = (
    *("--nest", "county,district", "--table", "district,meals", "--exact", "district"),
    *("--levels", "meals=no,yes", "--count", "count", "--rho", "1/100"),
)


@pytest.mark.parametrize(
    "free",
    [
        pytest.param(free, marks=[] if free in (280, 600) else pytest.mark.long)
        for free in range(120, 620, 20)
    ],
)
def test_a_disk_that_takes_only_a_part_of_the_files_is_refused_before_the_charge(
    here: Semidp, larger_disk: Path, tmp_path: Path, free: int
) -> None:
    ledger = tmp_path / "ledger.json"
    assert here("ledger", ledger, "--rho", "1").code == 0
    fill(larger_disk, free * 1024)
    out = larger_disk / "release"
    done = here("release", SCHOOLS, *DISTRICTS, "--ledger", ledger, "--out", out)
    charges = here("ledger", ledger, "--format", "json").json["charges"]
    if free == 600:
        assert done.code == 0, done.err
    if done.code:
        assert re.search(r"about \d+ kB of disk, and \d+ kB are free", one_sentence(done))
    assert len(charges) == (out / "release.json").exists() == (done.code == 0)


def test_a_failure_after_the_charge_is_said(
    here: Semidp, people: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as if the disk had been filled meanwhile
    monkeypatch.setattr(block_run, "refuse_files", lambda *_, **__: None)
    fill(small_disk, 12 * 1024)
    ledger = tmp_path / "ledger.json"
    assert here("ledger", ledger, "--rho", "1").code == 0
    done = here(
        "release", people, *BOTH, *SPEND, "--ledger", ledger, "--out", small_disk / "release"
    )
    assert "the ledger was charged all the same" in one_sentence(done)
    assert len(here("ledger", ledger, "--format", "json").json["charges"]) == 1
    check_no_leak(tmp_path, done.err)


@pytest.mark.long
def test_a_full_disk_behind_stdout(people: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "semidp", "analyze", str(people), *BOTH]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert "no space left" in done.stderr
    assert "Traceback" not in done.stderr


DEATHS = {
    "before any noise": "pipeline.survey = die",
    "in the fit": "published.fit_table = die",
    "in the middle of a file": (
        "cells.Columns.write = lambda own, path, progress: half(path, b''.join(own.csv()))"
    ),
    "before the report": "report.html = die",
    "before the folder is moved": "os.rename = die",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("moment", DEATHS)
def test_a_kill_in_the_middle(
    semidp: Semidp, here: Semidp, people: Path, tmp_path: Path, moment: str
) -> None:
    """The process kills itself, as kill -9 would, at a moment of our choice."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import importlib, os, signal\nfrom pathlib import Path\nimport semidp.cli\nnames ="
        " 'publish.pipeline', 'publish.statistics.tables.published', 'present.report.report_page',"
        " 'publish.results.columns'\npipeline, published, report, cells ="
        " (importlib.import_module(f'semidp.{name}') for name in names)\ndef die(*words, **named): os.kill(os.getpid(), signal.SIGKILL)\ndef"
        " half(path, data):\n    with open(path, 'wb') as file: file.write(data[: len(data) //"
        f" 2])\n    die()\n{DEATHS[moment]}\n"
    )
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    words = ("release", people, *BOTH, *SPEND, "--ledger", "ledger.json", "--out", "release")
    done = semidp(*words, env={"PYTHONPATH": str(tmp_path / "site")})
    assert done.code == -signal.SIGKILL
    shutil.rmtree(tmp_path / "site")
    check_no_leak(tmp_path, done.out, done.err)
    assert not (tmp_path / "release").exists()
    charges = here("ledger", "ledger.json", "--format", "json").json["charges"]
    assert len(charges) == (0 if moment == "before any noise" else 1)
    settle(tmp_path)
    # What was charged is finished, never begun anew.
    if charges:
        assert "semidp resume release" in one_sentence(here(*words))
        words = ("resume", "release")
    assert here(*words).code == 0
    assert len(here("ledger", "ledger.json", "--format", "json").json["charges"]) == 1
    Release.load(tmp_path / "release")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"people.csv", "release", "ledger.json", ".ledger.json.lock"}


@pytest.mark.long
def test_a_kill_keeps_the_old_release(
    semidp: Semidp, here: Semidp, people: Path, tmp_path: Path
) -> None:
    assert here("release", people, *BOTH, *SPEND, "--out", "release").code == 0
    before = (tmp_path / "release" / "table.csv").read_bytes()
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\ndef die(*words): os.kill(os.getpid(), signal.SIGKILL)\nos.rename ="
        " die\n"
    )
    words = (
        "release",
        people,
        *BOTH,
        "--rho",
        "1e-7",
        "--seed",
        "6",
        "--out",
        "release",
        "--force",
    )
    assert semidp(*words, env={"PYTHONPATH": str(tmp_path)}).code == -signal.SIGKILL
    assert (tmp_path / "release" / "table.csv").read_bytes() == before
    check_no_leak(tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP")
@pytest.mark.parametrize("ignored", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_closed_terminal_ends_a_release_in_order(
    semidp: Semidp, people: Path, tmp_path: Path, ignored: bool
) -> None:
    """SIGHUP is handled as SIGTERM is; nohup has it ignored, and that is kept."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, signal, sys\nimport semidp.cli\n"
        f"signal.signal(signal.SIGHUP, signal.SIG_IGN if {ignored} else signal.SIG_DFL)\n"
        "pipeline = sys.modules['semidp.publish.pipeline']\n"
        "def hang_up(*words, survey=pipeline.survey, **named):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    return survey(*words, **named)\n"
        "pipeline.survey = hang_up\n"
    )
    words = ("release", people, *BOTH, *SPEND, "--out", "release")
    done = semidp(*words, env={"PYTHONPATH": str(tmp_path / "site")})
    shutil.rmtree(tmp_path / "site")
    if ignored:
        assert done.code == 0
        return
    assert (done.code, done.out) == (128 + signal.SIGHUP, "")
    assert done.err == "semidp: interrupted; no release was written\n"
    leaves_nothing(tmp_path)


def test_no_more_threads_are_a_sentence_and_lose_no_release(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    _program._watch_interrupts()
    assert here("release", people, *BOTH, *SPEND, "--out", "release").code == 0
    monkeypatch.setattr(Release, "load", lambda folder: threading.Thread().start())
    assert "the operating system starts no more threads" in one_sentence(here("show", "release"))


NOT_UTF8 = os.fsdecode(b"S\xe3o.csv")


@pytest.mark.parametrize(
    "words",
    [
        ("release", NOT_UTF8, *BOTH, *SPEND, "--out", "release"),
        ("release", "people.csv", *BOTH, *SPEND, "--out", NOT_UTF8),
        ("synthesize", "release", "--out", NOT_UTF8),
        ("show", "release", "--log", NOT_UTF8),
        ("release", "*.csv", *BOTH, *SPEND, "--out", "release"),
    ],
)
def test_names_that_are_not_utf8(
    here: Semidp, people: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    try:
        shutil.copy(people, tmp_path / NOT_UTF8)
    except OSError:
        pytest.skip("the file system takes names in UTF-8 alone")
    before = set(tmp_path.iterdir())
    assert "is not UTF-8: rename" in one_sentence(here(*words))
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--files", "100000000"), "the number of files is 1 to 1,000, not 100000000"),
        (("--files", "0"), "the number of files is 1 to 1,000, not 0"),
        (("--out", ""), "is not a name for a new file"),
        (("--out", "", "--files", "2"), "is not a name for a new file"),
    ],
)
def test_records_without_a_place(here: Semidp, words: tuple[str, ...], reason: str) -> None:
    assert reason in one_sentence(here("synthesize", "nowhere", "--out", "a.csv", *words))
    with pytest.raises(InputError, match="is not a name for a new file"):
        check_records(Path())  # where --units-out "" arrives


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"feature": [{"name": "sex", "levels": ["f"], "null_level": False}]}, "not False"),
        ({"feature": [{"nest": ["a", "b"], "null_level": []}]}, "a null level is a level such as"),
        ({"read_as": ["a"]}, "how columns are read is a mapping"),
        ({"read_as": [["sex", "day", "b"]]}, "how columns are read is a mapping"),
        ({"read_as": [1, 2]}, "how columns are read is a mapping"),
        ({"table": [{"features": ["sex"], "x" * 100_000: 1}]}, "has no key"),
    ],
)
def test_plans_of_the_wrong_shape(plan: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Plan.from_json(plan)


@pytest.mark.parametrize("word", ["x" * 100_000, "aa:" * 30_000])
def test_a_long_word_is_neither_printed_nor_pondered(
    here: Semidp, people: Path, tmp_path: Path, word: str
) -> None:
    plan = {"table": [{"features": ["sex"], "mechanism": word, "mu": 1}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    begun = time.monotonic()
    said = one_sentence(here("release", people, "--plan", "plan.json", "--dry-run"))
    assert "there is no mechanism" in said
    assert len(said) < 2000
    assert time.monotonic() - begun < 20  # it took minutes


def test_half_of_a_character_is_refused_before_anything_is_charged(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    plan = {"table": [{"features": ["sex"], "name": "\ud800", "mu": 1}], "invariants": ["region"]}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "levels_from_data": True}))
    done = here("release", people, "--plan", "plan.json", "--out", "release")
    assert "plan.json: the plan is not valid JSON" in one_sentence(done)


BAD_WORDS = [
    (("--rho", "-1"), "rho"),
    (("--rho", "nan"), "rho"),
    (("--epsilon", "0"), "epsilon"),
    (("--epsilon", "1", "--delta", "2"), "delta"),
    (("--epsilon", "1", "--mu", "1"), "one of"),
    ((), "--epsilon"),
    (("--rho", "1", "--adjacency", "few"), "adjacency"),
    (("--rho", "1", "--a", "0"), "adjacency"),
    (("--rho", "1", "--set", "mechanism=magic"), "magic"),
    (("--rho", "1", "--set", "fit=perfect"), "fit"),
    (("--rho", "1", "--bins", "sex"), "--bins"),
    (("--rho", "1", "--schema", "nowhere.toml"), "nowhere.toml"),
    (("--rho", "1", "--where", "sex = ; drop"), "where"),
    (("--rho", "1", "--nonsense"), "--help"),
    (("--epsilon", "1e300"), "at most 1e15"),
    (("--mu", "1e200"), "at most 1e15"),
    (("--mu", "1e400"), "must be a number such as"),
    (("--rho", "1", "--table", ""), "list of names"),
    (("--rho", "1", "--levels", "sex=f,m", "--levels", "sex=f"), "twice"),
    (("--rho", "1", "--levels", "regoin=north,south,west"), "in use: sex, region"),
    (("--rho", "1", "--format", "xml"), "'xml' is not one of"),
    (("--rho", "1", "--ledger", "people.csv"), "does not hold a ledger"),
]


@pytest.mark.parametrize(
    ("words", "expected"), BAD_WORDS, ids=lambda value: " ".join(value) if value else "none"
)
def test_bad_options(
    here: Semidp, people: Path, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    done = here("release", people, *BOTH, *words, "--out", "release")
    assert expected.lower() in one_sentence(done).lower()
    check_no_leak(tmp_path, done.err)
    leaves_nothing(tmp_path)


def test_a_repeated_person_is_refused_without_a_name(here: Semidp, tmp_path: Path) -> None:
    rows = [("f", "north", "1000003"), ("m", "south", "1000003"), ("m", "north", "7")]
    data = write(tmp_path / "odd.csv", rows, ("sex", "region", "person"))
    words = (
        "--table",
        "sex,region",
        "--invariant",
        "sex",
        "--invariant",
        "region",
        "--id",
        "person",
        *SPEND,
    )
    done = here("release", data, *words, "--out", "release")
    assert "twice" in one_sentence(done)
    check_no_leak(tmp_path, done.err)


@pytest.mark.long
def test_an_internal_error_shows_its_place_and_not_its_words(
    semidp: Semidp, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, semidp\n"
        "r = sys.modules['semidp.publish.pipeline']\n"
        "def broken(*a, **k): raise RuntimeError('the count is 1000003')\n"
        "r.survey = broken\n"
    )
    done: Done = semidp(
        "release", people, *BOTH, *SPEND, "--out", "release", env={"PYTHONPATH": str(tmp_path)}
    )
    assert done.code == 70
    assert "1000003" not in done.err
    assert "RuntimeError" in done.err
    assert not (tmp_path / "release").exists()


def test_an_interrupted_release_says_so(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*words: object, **options: object) -> None:
        raise KeyboardInterrupt

    # the package's `release` is the command
    monkeypatch.setattr(sys.modules["semidp.cli.release"], "run_plan", interrupt)
    done = here("release", people, *BOTH, *SPEND, "--out", "release")
    assert (done.code, done.out) == (130, "")
    assert done.err == "semidp: interrupted; no release was written\n"
    leaves_nothing(tmp_path)


def test_names_with_commas_are_quoted_where_columns_are_listed(
    here: Semidp, tmp_path: Path
) -> None:
    (tmp_path / "odd.csv").write_text('sex,"town, land"\nf,a\nm,b\n', encoding="utf-8")
    said = one_sentence(
        here("release", "odd.csv", "--table", "sex,town, land", "--mu", "1", "--out", "release")
    )
    assert said.endswith("the columns are sex, 'town, land'")


def test_help_and_version(here: Semidp) -> None:
    assert here("--version").out.startswith("semidp 0.")
    for command in ("analyze", "release", "guarantee", "test", "ledger", "show", "demo"):
        done = here(command, "--help")
        assert done.code == 0
        assert "Usage" in done.out
