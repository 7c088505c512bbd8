"""Where a folder is written: nothing is lost that nobody agreed to lose, and what is in place
counts as made.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from semidp import Release
from semidp.errors import Occupied
from semidp.promise.files import hold_lock, recover, replace_file
from semidp.publish.folders import new_folder
from tests.cli.conftest import Semidp, one_sentence, settle

WORDS = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region", "--rho", "1/100")
PEOPLE = "sex,region\n" + "f,n\nf,s\nm,n\nm,s\n" * 5


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def released(here: Semidp, people: Path, *words: str | Path) -> None:
    done = here("release", people, *WORDS, *words)
    assert done.code == 0, done.err


# One run at a time, and a race-free end


@pytest.mark.parametrize(
    ("vacant", "several"),
    [
        ("no folder", 2),
        pytest.param("no folder", 8, marks=pytest.mark.long),
        pytest.param("an empty folder", 8, marks=pytest.mark.long),
    ],
)
def test_of_several_runs_at_once_one_writes_the_release(
    people: Path, tmp_path: Path, vacant: str, several: int
) -> None:
    if vacant == "an empty folder":
        (tmp_path / "same").mkdir()
    words = [sys.executable, "-m", "semidp", "release", str(people), *WORDS, "--out", "same"]
    runs = [
        subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(several)
    ]
    said = [run.communicate(timeout=300) for run in runs]
    assert sorted(run.returncode for run in runs) == [0, *[2] * (several - 1)], said
    for run, (out, err) in zip(runs, said, strict=True):
        if run.returncode:
            assert out == ""
            assert len(err.strip().splitlines()) == 1
            assert "same" in err
            assert "--out" in err
    Release.load(tmp_path / "same")
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "same"}


def test_a_destination_has_one_writer_from_the_start(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    """The second run is refused before it charges its ledger."""
    assert here("ledger", "ledger.json", "--rho", "1").code == 0
    with new_folder(tmp_path / "release") as folder:
        (folder / "table.csv").write_text("1")
        done = here("release", people, *WORDS, "--ledger", "ledger.json", "--out", "release")
        assert "another run is writing release: choose another --out" in one_sentence(done)
    assert here("ledger", "ledger.json", "--format", "json").json["charges"] == []


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file", "link", "dangling link"])
def test_what_appears_during_the_run_is_kept(tmp_path: Path, kind: str, force: bool) -> None:
    """Also without the lock that other runs respect."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "notes.txt").write_text("mine")
    path = tmp_path / "release"

    def write() -> None:
        with new_folder(path, force=force) as folder:
            (folder / "table.csv").write_text("1")
            if kind == "folder":
                shutil.copytree(tmp_path / "elsewhere", path)
            elif kind == "file":
                path.write_text("mine")
            else:
                path.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))

    with pytest.raises(Occupied):
        write()
    assert path.is_symlink() == kind.endswith("link")
    assert not (path / "table.csv").exists()
    assert (tmp_path / "elsewhere" / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".semidp-*"))


def test_the_last_move_itself_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What appears between the last check and the rename is kept as well."""
    path, rename = tmp_path / "release", os.rename

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        path.mkdir()
        (path / "notes.txt").write_text("mine")
        rename(source, target)

    def write() -> None:
        with new_folder(path) as folder:
            (folder / "table.csv").write_text("1")
            monkeypatch.setattr(os, "rename", late)

    with pytest.raises(Occupied, match="came into being"):
        write()
    assert contents(path) == {"notes.txt": b"mine"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["release"]


def test_a_file_is_not_replaced_without_force(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    replace_file(path, "mine", force=False)
    with pytest.raises(Occupied, match="already exists"):
        replace_file(path, "other", force=False)
    assert path.read_text() == "mine"
    replace_file(path, "other")
    assert path.read_text() == "other"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


# What --force replaces


def test_force_replaces_a_release_and_nothing_more(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    released(here, people, "--out", "release")
    before = contents(tmp_path / "release")
    assert "or replace it with --force" in one_sentence(
        here("release", people, *WORDS, "--out", "release")
    )
    assert contents(tmp_path / "release") == before
    released(here, people, "--out", "release", "--force")
    assert contents(tmp_path / "release")["release.json"] != before["release.json"]
    for name in ("notes.txt", "odd.txt", "zoo.txt"):
        (tmp_path / "release" / name).write_text("mine")
    before = contents(tmp_path / "release")
    done = here("release", people, *WORDS, "--out", "release", "--force")
    assert (
        "release holds notes.txt and 2 more, which would be lost: choose another --out"
        in one_sentence(done)
    )
    assert contents(tmp_path / "release") == before
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "release"}


def test_a_folder_of_another_version_is_refused_and_may_be_replaced(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    released(here, people, "--out", "old")
    file = tmp_path / "old" / "release.json"
    document = json.loads(file.read_text())
    document["versions"]["semidp"] = "0.2.0"
    file.write_text(json.dumps(document))
    before = contents(tmp_path / "old")
    for asked in (("show", "old"), ("intervals", "old"), ("combine", "old", "old", "--out", "all")):
        said = here(*asked)
        assert said.code == 2
        assert "was written by another version of semidp: read it with that version" in said.err
    assert contents(tmp_path / "old") == before
    released(here, people, "--out", "old", "--force")
    assert here("show", "old").code == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"files": {"notes.txt": ""}}',
        '{"schema_version": 1, "files": []}',
    ],
)
def test_a_folder_with_any_other_release_json_is_kept(
    here: Semidp, people: Path, tmp_path: Path, content: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "release.json").write_text(content)
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    before = contents(tmp_path / "mine")
    done = here("release", people, *WORDS, "--out", "mine", "--force")
    assert "mine holds notes.txt and 1 more, which would be lost" in one_sentence(done)
    assert contents(tmp_path / "mine") == before


def test_a_folder_in_a_release_is_not_part_of_it(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    released(here, people, "--out", "release")
    (tmp_path / "release" / "report.html").unlink()
    (tmp_path / "release" / "report.html").mkdir()
    assert "holds report.html, which" in one_sentence(
        here("release", people, *WORDS, "--out", "release", "--force")
    )


INPUTS = {
    "a glob": ("*/people.csv", ()),
    "a file of a release": ("data/table.csv", ()),
    "a database": ("sqlite:///data/db.sqlite", ("--from", "people")),
    "a database by its full path": ("sqlite://{here}/data/db.sqlite", ("--from", "people")),
    "a DuckDB file": ("duckdb://data/db.duckdb", ("--from", "people")),
    "a linked file": ("linked.csv", ()),
    "a plan": ("people.csv", ("--plan", "data/plan.toml")),
    "a schema": ("people.csv", ("--schema", "data/schema.toml")),
    "a ledger": ("people.csv", ("--ledger", "data/ledger.json")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("what", INPUTS)
def test_force_keeps_a_folder_that_holds_an_input(
    here: Semidp, people: Path, tmp_path: Path, what: str
) -> None:
    """Even where its files are all those of a release."""
    data, more = INPUTS[what]
    released(here, people, "--out", "data")
    folder = tmp_path / "data"
    document = json.loads((folder / "release.json").read_text())
    for name in ("people.csv", "plan.toml", "schema.toml", "ledger.json", "db.sqlite", "db.duckdb"):
        (folder / name).write_text(PEOPLE)
        document["files"][name] = ""
    (folder / "release.json").write_text(json.dumps(document))
    (folder / "db.sqlite").unlink()
    sqlite3.connect(folder / "db.sqlite").close()
    (tmp_path / "linked.csv").symlink_to(folder / "people.csv")
    (folder / "schema.toml").write_text('[[feature]]\nname = "sex"\nlevels = ["f", "m"]\n')
    (folder / "plan.toml").write_text('[[table]]\nfeatures = ["sex"]\nrho = 1\n')
    before = contents(folder)
    words = (
        (*more, "--out", "data", "--force")
        if what == "a plan"
        else (*WORDS, *more, "--out", "data", "--force")
    )
    said = one_sentence(here("release", data.format(here=tmp_path), *words))
    assert "data holds " in said
    assert "which this run needs: choose another --out" in said
    assert contents(folder) == before


def test_the_same_folder_is_replaced_where_it_holds_no_input(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    """The twin of the test above: the refusals there come from the inputs."""
    released(here, people, "--out", "data")
    document = json.loads((tmp_path / "data" / "release.json").read_text())
    document["files"]["people.csv"] = ""
    (tmp_path / "data" / "release.json").write_text(json.dumps(document))
    (tmp_path / "data" / "people.csv").write_text(PEOPLE)
    released(here, people, "--out", "data", "--force")
    assert not (tmp_path / "data" / "people.csv").exists()


def test_a_ledger_is_not_opened_where_the_release_goes(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "release").mkdir()
    said = one_sentence(
        here("release", people, *WORDS, "--ledger", "release/ledger.json", "--out", "release")
    )
    assert "release holds release/ledger.json, which this run needs" in said
    assert not list((tmp_path / "release").iterdir())


def test_the_current_folder_is_never_replaced(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for out in (inner, "../inner", tmp_path / "outer", ".", ".."):
        said = one_sentence(here("release", people, *WORDS, "--out", out, "--force"))
        assert "choose another --out" in said
    assert not list(inner.iterdir())


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_link_and_what_it_points_to_are_kept(
    here: Semidp, people: Path, tmp_path: Path, force: tuple[str, ...]
) -> None:
    released(here, people, "--out", "first")
    before = contents(tmp_path / "first")
    for target in ("first", "nowhere"):
        (tmp_path / "latest").symlink_to(target)
        said = one_sentence(here("release", people, *WORDS, "--out", "latest", *force))
        assert "latest is a symbolic link" in said
        assert os.readlink(tmp_path / "latest") == target
        (tmp_path / "latest").unlink()
    assert contents(tmp_path / "first") == before
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "first"}


def test_a_link_on_the_way_is_followed(here: Semidp, people: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    for force in ((), ("--force",)):
        released(here, people, "--out", "link/release", *force)
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["release"]


def test_a_file_is_not_a_place_for_a_folder(here: Semidp, people: Path, tmp_path: Path) -> None:
    (tmp_path / "release").write_text("mine")
    said = one_sentence(here("release", people, *WORDS, "--out", "release", "--force"))
    assert "release is not a folder, and would be lost" in said
    assert (tmp_path / "release").read_text() == "mine"


# What killed runs leave


@pytest.fixture
def leftover(tmp_path: Path) -> Path:
    """A scrap of a run for another destination, a day old."""
    scrap = tmp_path / ".semidp-other.0123abcd"
    scrap.mkdir()
    (scrap / "table.csv").write_text("1")
    (tmp_path / ".semidp-other.lock").touch()
    settle(tmp_path)
    return scrap


def test_a_scrap_goes_when_it_is_old_and_its_lock_free(tmp_path: Path, leftover: Path) -> None:
    with new_folder(tmp_path / "release") as folder:
        (folder / "table.csv").write_text("1")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_a_scrap_of_a_living_run_stays(tmp_path: Path, leftover: Path) -> None:
    """Whatever its process id: the one in this process's own container may be another's
    elsewhere.
    """
    with hold_lock(tmp_path / ".semidp-other.lock"):
        replace_file(tmp_path / "a.txt", "1")
        assert contents(leftover) == {"table.csv": b"1"}
        assert (tmp_path / ".semidp-other.lock").exists()
    replace_file(tmp_path / "a.txt", "2")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_young_scrap_stays(tmp_path: Path, leftover: Path) -> None:
    os.utime(leftover)
    replace_file(tmp_path / "a.txt", "1")
    assert leftover.exists()
    settle(tmp_path)
    replace_file(tmp_path / "a.txt", "2")
    assert not leftover.exists()


@pytest.mark.few(2)
@pytest.mark.parametrize("left", ["both", "old"])
@pytest.mark.parametrize("by", ["reading", "the next run", "a run for another destination"])
def test_a_release_that_was_on_its_way_is_recovered(
    here: Semidp, people: Path, tmp_path: Path, left: str, by: str
) -> None:
    """A kill between the two renames: the new release takes its place, or the old one where only
    that is left.
    """
    released(here, people, "--out", "release")
    shutil.move(tmp_path / "release", tmp_path / ".semidp-release.0123abcd.old")
    if left == "both":
        released(here, people, "--out", "elsewhere/new")
        shutil.move(tmp_path / "elsewhere" / "new", tmp_path / ".semidp-release.0123abcd")
    expected = contents(tmp_path / f".semidp-release.0123abcd{'' if left == 'both' else '.old'}")
    if by == "reading":
        assert here("show", "release").code == 0
    elif by == "the next run":
        assert "already exists" in one_sentence(here("release", people, *WORDS, "--out", "release"))
    else:
        released(here, people, "--out", "third")
    assert contents(tmp_path / "release") == expected
    assert not list(tmp_path.glob(".semidp-*"))


def test_half_an_old_release_is_never_recovered(
    here: Semidp, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old release has another name before its files go, so that nobody takes what is left for a
    release.
    """
    released(here, people, "--out", "release")

    def die(folder: Path, ignore_errors: bool) -> None:
        (Path(folder) / "table.csv").unlink(missing_ok=True)

    with monkeypatch.context() as dying:
        dying.setattr(shutil, "rmtree", die)
        released(here, people, "--out", "release", "--force")
    assert len(list(tmp_path.glob(".semidp-release.*"))) == 1
    shutil.rmtree(tmp_path / "release")
    recover(tmp_path / "release")
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("stale", ["00000000", "ffffffff"])
def test_the_newest_of_several_old_releases_is_recovered(
    stale: str, whole: bool, tmp_path: Path
) -> None:
    """A run killed after both renames leaves an old release, which a later kill must not bring
    back, whatever random name it has.
    """
    for number, (name, written) in enumerate(
        ((f"{stale}.old", 100.0), ("88888888.old", 200.0), ("88888888", 300.0))
    ):
        folder = tmp_path / f".semidp-release.{name}"
        folder.mkdir()
        (folder / "number").write_text(str(number))
        os.utime(folder, (written, written))
    if not whole:
        shutil.rmtree(tmp_path / ".semidp-release.88888888")
    recover(tmp_path / "release")
    assert (tmp_path / "release" / "number").read_text() == ("2" if whole else "1")


def test_a_reader_waits_for_a_run_between_its_renames(tmp_path: Path) -> None:
    path, old = tmp_path / "release", tmp_path / ".semidp-release.0123abcd.old"
    old.mkdir()
    ready, done = threading.Event(), threading.Event()

    def owner() -> None:
        with hold_lock(tmp_path / ".semidp-release.lock"):
            ready.set()
            done.wait()
            path.mkdir()
            (path / "new").touch()

    thread = threading.Thread(target=owner)
    thread.start()
    ready.wait()
    threading.Timer(0.2, done.set).start()
    recover(path)
    thread.join()
    assert (path / "new").exists()
    assert old.exists()


# What is in place counts as made


OUTPUTS = {
    "release": (["release", "people.csv", *WORDS, "--out", "out"], "the release out"),
    "census": (["census", "--out", "out"], "the folder out"),
    "reproduce": (["reproduce", "adjacency", "--out", "out", "--format", "json"], "the folder out"),
    "ledger": (["ledger", "out", "--rho", "1"], "the ledger out"),
}
STDOUTS = {
    "full": '"$@" > /dev/full',
    "closed": '"$@" >&-',
    "a closed pipe": '"$@" | true; exit ${PIPESTATUS[0]}',
}
PAIRS = [
    (what, stdout)
    for what in OUTPUTS
    for stdout in STDOUTS
    if what == "release" or stdout == "a closed pipe"
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("what", "stdout"), [*PAIRS, ("ledger", "full")])
def test_a_stdout_that_takes_nothing_does_not_undo_it(
    people: Path, tmp_path: Path, what: str, stdout: str
) -> None:
    words, made = OUTPUTS[what]
    command = ["bash", "-c", STDOUTS[stdout], "bash", sys.executable, "-m", "semidp", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if stdout != "closed":  # then there is nothing to print on, which is no failure
        said = f"semidp: {made} is in place; not all could be printed about it: "
        assert done.stderr.splitlines()[-1].startswith(said)
    assert (tmp_path / "out").exists()
    if what == "release":
        Release.load(tmp_path / "out")


READERS = (
    ["audit", "release", "--samples", "2000", "--seed", "1"],
    ["show", "release"],
    ["--help"],
)


@pytest.mark.few(1)
@pytest.mark.parametrize("words", READERS, ids=lambda words: words[0])
def test_a_closed_pipe_ends_with_141(
    here: Semidp, people: Path, tmp_path: Path, words: list[str]
) -> None:
    released(here, people, "--out", "release")
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "semidp", *words]
    done = subprocess.run(
        command, cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writes)
    assert done.returncode == 141
    # The noise of this process is its own: where it dominates, a warning says so.
    assert all(line.startswith("warning: Noise") for line in done.stderr.splitlines())


@pytest.mark.long
def test_a_full_stderr_does_not_hide_the_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "semidp", "show", "nowhere"]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (done.returncode, done.stdout) == (2, b"")


SIGNAL_AT = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""
MOMENTS = ["numpy._core._multiarray_umath", "semidp.promise.schema", "semidp.cli.audit", "duckdb"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("start", "moment"),
    [*(("module", moment) for moment in MOMENTS), ("script", MOMENTS[0]), ("script", "typer")],
)
def test_an_interrupt_during_any_import_ends_with_130(
    people: Path, tmp_path: Path, start: str, moment: str
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SIGNAL_AT.format(module=moment))
    (tmp_path / "semidp").write_text("import sys\nfrom semidp.cli import main\nsys.exit(main())\n")
    command = [
        sys.executable,
        *(["-m", "semidp"] if start == "module" else [str(tmp_path / "semidp")]),
    ]
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "release", str(people), *WORDS, "--out", "release"],
        cwd=site,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "semidp: interrupted; no release was written\n"
    assert not (site / "release").exists()


def test_links_that_lead_to_each_other_are_refused_in_a_sentence(
    here: Semidp, people: Path, tmp_path: Path
) -> None:
    (tmp_path / "circle").symlink_to("circle")
    released(here, people, "--out", "out")
    for words in (
        ("release", "people.csv", *WORDS, "--ledger", "circle", "--out", "o"),
        ("release", "people.csv", *WORDS, "--out", "circle/o"),
        ("release", "circle", *WORDS, "--out", "o"),
        ("ledger", "circle", "--rho", "1"),
        ("synthesize", "out", "--out", "circle/o.csv"),
        ("microdata", "people.csv", "--mu", "1", "--out", "circle/o.csv"),
        ("show", "circle"),
        ("change", "circle", "circle"),
    ):
        assert one_sentence(here(*words))
    assert sorted(os.listdir(tmp_path)) == ["circle", "out", "people.csv"]


@pytest.mark.parametrize("place", [".", "/", ""])
def test_a_place_without_a_name_is_refused_in_a_sentence(here: Semidp, place: str) -> None:
    for words in (
        ("resume", place),
        ("discard", place),
        ("microdata", "people.csv", "--mu", "1", "--out", place),
        ("plan", "keys", place),
    ):
        assert "is not the name of a file or folder" in one_sentence(here(*words))
