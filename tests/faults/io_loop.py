"""Run a command once, and at every file access copies of the process: in each of them that access
fails in another way, or the process is killed.

A copy is a fork, so that what came before the access is not repeated. It works in a copy of the
folder under the same name, while the original waits. What a copy leaves behind is judged by what
can be done with it. Copies that leave the same files are judged by the same facts. Errors that no
line of the command tells apart (`WatchedCode`) are one run.

Run as a process by the tests, because nothing may run in other threads when it forks: ``python -m
tests.faults.io_loop SHARE NAME… [--thorough] [--points FIRST LAST]``.
"""

import argparse
import contextlib
import errno
import fcntl
import functools
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from unittest import mock

import duckdb
import filelock
from attrs import frozen

from semidp import Ledger, Release
from semidp.cli import _output, run
from semidp.inference.combined import releases_together
from semidp.promise.accounting import account
from semidp.promise.documents import read_document
from semidp.promise.files import recover
from semidp.publish import block_run, pipeline
from semidp.publish.folders import Unfinished, is_unfinished
from tests.faults.failing_files import Accesses, failing, is_same_tree

CODES = (
    *(errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES),
    *(errno.ESTALE, errno.ENOLCK, errno.ENOSYS),
)
KILLED = -signal.SIGKILL
WAYS = (*((code, lasting) for lasting in (False, True) for code in CODES), (KILLED, True))
CLOCKS = (_output, account, pipeline, block_run, releases_together)
SECONDS = 120  # far beyond what any run takes

TABLE = "release people.csv --table sex,region --exact sex --exact region --mu 1 --quiet"
PARTS = "--nest state,county --levels sex=f,m --mu 1 --partition state --quiet"
BY_PARTS = f"release people.csv --table county,sex --exact county {PARTS}"
LINKED = (
    "release persons.csv --units homes.csv --link home --protect member --most-members 3"
    " --table county,sex --table units:county,size --exact units:county"
)
CHARGED = "--ledger privacy.json --out out"
OWN = "--ledger own.json --out out"
QUARTER = "--ledger series.json --period 2026Q1 --out out"
RECORDS = (
    "microdata people.csv --columns sex,region --exact sex --levels region=n,s --mu 1 --seconds 0.001"
    " --quiet --ledger own.json --release out --out records.csv"
)
SYNTHESIZE = "synthesize out --out records.csv --seconds 0.001 --quiet"
RESUME, DISCARD = "resume out --quiet", "discard out"
KEPT_FILES, KEPT_FOLDERS = (
    ("people.csv", "persons.csv", "homes.csv", "notes.txt"),
    ("first", "second"),
)
_SCRAP = re.compile(r"\.[0-9a-f]{8}(?=$|/|\.old)")
_SECONDS = re.compile(rb"after [\d.]+ s")  # in a log
_REASON = re.compile("|".join(map(os.strerror, CODES)), re.IGNORECASE)


@frozen
class Operation:
    """A command, the release or the unfinished run that is there before it, and the ledger."""

    words: str
    before: str = ""
    unfinished: str = ""
    ledger: str = "privacy.json"

    @property
    def is_refused(self) -> bool:
        """Whether it would begin anew what can be resumed."""
        return self.words.startswith("release") and bool(self.unfinished)

    @property
    def is_charged(self) -> bool:
        return self.words.startswith(("release", "microdata")) and not self.unfinished

    @property
    def has_records(self) -> bool:
        """Whether it also writes records of the release, which may fail by themselves."""
        return self.words.startswith("microdata")


OPERATIONS = {
    "release": Operation(f"{TABLE} {CHARGED}"),
    "parts": Operation(f"{BY_PARTS} {CHARGED}"),
    "charge": Operation(f"{TABLE} --write parquet {CHARGED} --log run.log"),
    "combine": Operation("combine first second --out out --quiet"),
    "show": Operation("show first"),
    "discard": Operation(DISCARD, unfinished=f"{TABLE} {CHARGED}"),
    "begin anew": Operation(f"{TABLE} {CHARGED}", unfinished=f"{TABLE} {CHARGED}"),
    "resume": Operation(RESUME, unfinished=f"{TABLE} {CHARGED}"),
    "resume parts": Operation(RESUME, unfinished=f"{BY_PARTS} {CHARGED}"),
    "replace": Operation(f"{TABLE} {CHARGED} --force", before=f"{TABLE} {CHARGED}"),
    "period": Operation(f"{TABLE} {QUARTER}", ledger="series.json"),
    "linked": Operation(f"{LINKED} --levels sex=f,m --mu 1 --quiet {OWN}", ledger="own.json"),
    "parts of a period": Operation(f"{BY_PARTS} {QUARTER}", ledger="series.json"),
    "resume parts of a period": Operation(
        RESUME, unfinished=f"{BY_PARTS} {QUARTER}", ledger="series.json"
    ),
    "linked parts": Operation(f"{LINKED} {PARTS} {OWN}", ledger="own.json"),
    "resume linked parts": Operation(
        RESUME, unfinished=f"{LINKED} {PARTS} {OWN}", ledger="own.json"
    ),
    "microdata": Operation(RECORDS, ledger="own.json"),
    "resume microdata": Operation(RESUME, unfinished=RECORDS, ledger="own.json"),
}


# --- a command in which an access fails -----------------------------------------------------------


class WatchedCode(int):
    """The code of an error. It notes the codes with which it is compared."""

    compared: ClassVar[set[int]] = set()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            self.compared.add(int(other))
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self.compared.update(CODES)  # looked up in a set: it may hold any of them
        return hash(int(self))


def find_alike(code: int, compared: set[int]) -> set[int]:
    """Codes with which a command does the same as with one: none was compared with either, and
    Python has no class of its own for them.
    """
    if code in compared or type(OSError(code, "")) is not OSError:
        return {code}
    plain = {other for other in CODES if type(OSError(other, "")) is OSError}
    return plain - compared


class FailingOnce(Accesses):
    """Accesses of which one fails."""

    def __init__(self, folder: Path, point: int, code: int, lasting: bool) -> None:
        super().__init__(folder)
        self.point, self.code, self.lasting = point, code, lasting

    def fail_at(self, what: str) -> tuple[int, bool] | None:
        return (self.code, self.lasting) if self.seen == self.point else None


class ForkingAccesses(Accesses):
    """Accesses at each of which the process is copied; in every copy that access fails.

    Parameters
    ----------
    folder
        The folder of the command.
    share
        Of all errors at all accesses every so manieth is tried.
    is_thorough
        Whether errors that are alike are tried too, and must end alike.
    judge_killed
        Judges what a copy leaves behind that is killed.
    """

    def __init__(
        self,
        folder: Path,
        share: int,
        is_thorough: bool,
        judge_killed: "Callable[[ForkingAccesses], dict[str, Any]]",
    ) -> None:
        super().__init__(folder)
        self.share, self.is_thorough, self.judge_killed = share, is_thorough, judge_killed
        self.points = range(1, sys.maxsize)
        self.tried = self.alike = 0
        self.facts: dict[str, dict[str, Any]] = {}  # by the files that a copy has left
        self.reports: list[dict[str, Any]] = []
        self.answer: int | None = None  # in a copy: where it reports
        self.about = ""
        self._is_busy = False

    def is_inside(self, path: Any) -> bool:
        return not self._is_busy and super().is_inside(path)

    def fail_at(self, what: str) -> tuple[int, bool] | None:
        known: dict[tuple[int, bool], dict[str, Any]] = {}  # the runs that stand for others
        if self.seen not in self.points:
            return None
        for code, lasting in WAYS:
            self.tried += 1
            if self.tried % self.share:
                continue
            example = known.get((code, lasting))
            if example is not None:
                self.alike += 1
                if not self.is_thorough:
                    continue
            self._is_busy = True
            is_copy = self._fork(code == KILLED)
            if is_copy and code == KILLED:
                self.about = f"access {self.seen}, killed before {what}"
                self.end_copy(self.judge_killed)
            self._is_busy = False
            if is_copy:
                once = "from then on" if lasting else "once"
                self.about = f"access {self.seen}, {what} fails {once} with {os.strerror(code)}"
                return code, lasting
            found = self.reports[-1]
            if example is not None and any(found[key] != example[key] for key in ("key", "ended")):
                found["wrong"].append(f"{found['ended']} is not like {example['ended']}")
            for other in find_alike(code, set(found["compared"])):
                known.setdefault((other, lasting), found)
        return None

    def make_error(self, code: int) -> OSError:
        error = super().make_error(code)
        error.errno = WatchedCode(code)
        return error

    def _fork(self, is_killed: bool) -> bool:
        """Copy the process and its folder; return True in the copy, and False here when the copy
        has ended.
        """
        folder = Path(self.folder)
        waiting = folder.rename(folder.with_name("waiting"))
        _copy_folder(waiting, folder)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(SECONDS)
            os.close(reader)
            self.answer = writer
            if not is_killed:  # else it would hold the locks of the copied folder
                _reopen_files(waiting, folder)
            return True
        os.close(writer)
        with open(reader, "rb") as answers:
            report = answers.read()
        _, status = os.waitpid(child, 0)
        if report:
            found = json.loads(report)
            self.facts.setdefault(found["key"], found["facts"])
        else:
            text = f"the copy ended with {os.waitstatus_to_exitcode(status)}"
            found = {"wrong": [text], "compared": CODES, "key": "", "ended": "", "facts": {}}
            found["is_killed"] = False
        self.reports.append(found)
        shutil.rmtree(folder)
        waiting.rename(folder)
        return False

    def end_copy(self, judge: "Callable[[ForkingAccesses], dict[str, Any]]") -> NoReturn:
        """Report how a copy is judged, and end it."""
        assert self.answer is not None
        compared = sorted(WatchedCode.compared)
        try:
            report = judge(self)
        except BaseException:
            report = {
                "key": "",
                "facts": {},
                "ended": "",
                "is_killed": False,
                "wrong": [f"{self.about}: {traceback.format_exc()}"],
            }
        with open(self.answer, "wb") as file:
            file.write(json.dumps({**report, "compared": compared}).encode())
        os._exit(0)


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder; what no command may change is the same file in both."""
    target.mkdir()
    for entry in os.scandir(source):
        if entry.name in KEPT_FILES:
            os.link(entry.path, target / entry.name)
        elif entry.name in KEPT_FOLDERS:
            shutil.copytree(entry.path, target / entry.name, copy_function=os.link)
        elif entry.is_dir():
            shutil.copytree(entry.path, target / entry.name)
        else:
            shutil.copy2(entry.path, target / entry.name)


def _reopen_files(source: Path, target: Path) -> None:
    """Let every open file, the current folder among them, be the one of the copied folder."""
    os.chdir(target)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = Path(os.readlink(f"/proc/self/fd/{name}"))
            if not path.is_relative_to(source):
                continue
            number = int(name)
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
            copied = os.open(target / path.relative_to(source), flags)
            if not flags & os.O_DIRECTORY:
                os.lseek(copied, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            os.dup2(copied, number, inheritable=False)
            os.close(copied)
            if path.suffix == ".lock":
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


class PlainLock:
    """A lock that a copy of the process may free, which those of `filelock` refuse."""

    def __init__(self, file: Path, **options: Any) -> None:
        self.file = file
        self.handle: int | None = None

    def acquire(self, **options: Any) -> None:
        handle = os.open(self.file, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno == errno.EWOULDBLOCK:  # nobody else is there to free it
                raise filelock.Timeout(str(self.file)) from None
            raise
        self.handle = handle

    def release(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


class CountedRandomness:
    """Bytes that a copy of the process draws too, so that copies which do the same leave the same
    files.
    """

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, size: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(str(self.drawn).encode()).digest(size)


RANDOMNESS = CountedRandomness()


class StandingTime(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "StandingTime":
        return cls(2026, 1, 1, tzinfo=tz)


@contextlib.contextmanager
def same_everywhere() -> Iterator[None]:
    """Let every copy of the process draw the same random numbers at the same time."""
    with contextlib.ExitStack() as patched:
        patched.enter_context(mock.patch.object(os, "urandom", RANDOMNESS))
        patched.enter_context(mock.patch.object(random, "_urandom", RANDOMNESS))
        for module in CLOCKS:
            patched.enter_context(mock.patch.object(module, "datetime", StandingTime))
        yield


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let nothing run in other threads, and leave out the report, which takes longest."""
    connect = duckdb.connect
    with connect() as connection:
        known = connection.execute("SELECT name FROM duckdb_settings()").fetchall()
    alone = {"threads": 1} | ({"async_threads": 0} if ("async_threads",) in known else {})

    def connect_alone(*arguments: Any, config: Any = None, **options: Any) -> Any:
        return connect(*arguments, config={**(config or {}), **alone}, **options)

    def refuse_threads(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    with (
        same_everywhere(),
        mock.patch.object(duckdb, "connect", connect_alone),
        mock.patch.object(filelock, "FileLock", PlainLock),
        mock.patch("concurrent.futures.ThreadPoolExecutor", refuse_threads),
        mock.patch.object(Release, "report_html", return_value="</html>"),
    ):
        yield


def call(folder: Path, words: str, accesses: Accesses | None = None) -> tuple[int, str]:
    """Run a command in a folder; return its exit code and all that it prints."""
    said = io.StringIO()
    os.chdir(folder)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if accesses is None:
            code = run(words.split())
        else:
            with failing(accesses):
                code = run(words.split())
    os.chdir("/")
    return code, " ".join(said.getvalue().split())


# --- what it has left -----------------------------------------------------------------------------


def judge(
    operation: Operation,
    start: Path,
    place: Path,
    ended: tuple[int, str],
    accesses: ForkingAccesses,
) -> dict[str, Any]:
    """Judge what a command left behind in which an access failed, or that was killed."""
    wrong = []
    RANDOMNESS.drawn += 10**6  # whatever is drawn again is something else
    for kept in KEPT_FILES:
        if (place / kept).read_bytes() != (start / kept).read_bytes():
            wrong.append(f"{kept} was changed")
    for kept in KEPT_FOLDERS:
        if not is_same_tree(place / kept, start / kept):
            wrong.append(f"{kept} was changed")
    key = _hash_tree(place)
    facts = accesses.facts.get(key)
    if facts is None:
        facts = find_facts(operation, start, place)
    is_killed = ended[0] == KILLED
    wrong += [*facts["wrong"], *([] if is_killed else compare(operation, ended, facts))]
    about = f"{accesses.about}: {ended[0]} {ended[1]!r}"
    outcome = "done" if ended[0] == 0 else facts["outcome"]
    return {
        "about": about,
        "is_killed": is_killed,
        "key": key,
        "facts": facts,
        "outcome": outcome,
        "ended": f"{ended[0]} {_REASON.sub('its reason', ended[1])}",
        "wrong": [f"{about}: {text}" for text in wrong],
    }


def _hash_tree(folder: Path) -> str:
    """Hash of all files and their names, but for times in a log; scraps have random names."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.partition("/")[0] not in (*KEPT_FILES, *KEPT_FOLDERS):
            content = _SECONDS.sub(b"", path.read_bytes()) if path.is_file() else b"folder"
            digest.update(f"{_SCRAP.sub('.scrap', name)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def find_facts(operation: Operation, start: Path, place: Path) -> dict[str, Any]:
    """Find out what can be done with a folder: everything is tried."""
    out, wrong = place / "out", []
    # A run that could neither finish its two renames nor undo the first is finished by any reader.
    halfway = not out.exists()
    recover(out)
    left = Unfinished.from_notes(out) if is_unfinished(out) else None
    # Parts are measured one after the other.
    note = "whole" if "--partition" in operation.words else "measured"
    is_measured = left is not None and left.read_notes().get(note) is True
    paid, old = count_charges(start, operation), charge_number(start / "out")
    more = count_charges(place, operation) - paid
    number = charge_number(out)
    is_made = (out / "release.json").exists() and (number != old or number is None)
    outcome = "failed"
    if more not in (0, 1) or (more and not operation.is_charged):
        wrong.append(f"{more} new charges")
    if operation.words == DISCARD:
        is_left = is_unfinished(out)
        again, said = call(place, DISCARD)
        if (again == 0) != is_left:
            wrong.append(f"discarding again: {said}")
        if not is_written_off(place, operation):
            wrong.append("the charge is not written off")
        facts = {"is_made": not is_left, "more": 0, "halfway": False, "measured": ""}
        return {"wrong": wrong, "outcome": outcome, **facts}
    if not is_made and number != old:
        wrong.append("the old release is lost")
    if operation.is_refused:
        again, said = call(place, RESUME)
        if again:
            wrong.append(f"resumed: {said}")
    elif not operation.is_charged and operation.words != RESUME:
        if not is_same_tree(place, start):
            again, said = call(place, operation.words + (" --force" if is_made else ""))
            if again:
                wrong.append(f"the same command again: {said}")
    elif is_made:
        outcome = "recovered"
        if operation.is_charged and not more:
            wrong.append("a release that was not charged")
        if operation.has_records:
            wrong += find_records(place)
    elif not is_same_tree(place, start):
        outcome, said = finish(operation, place)
        if said:
            wrong.append(said)
        if count_charges(place, operation) != paid + operation.is_charged:
            wrong.append(f"{count_charges(place, operation)} charges in the end, after {paid}")
        if outcome == "failed" and more:
            wrong.append("what was paid for is lost")
    measured = _hash_tree(out) if is_measured and out.exists() else ""
    facts = {"is_made": is_made, "more": more, "halfway": halfway, "measured": measured}
    return {"wrong": wrong, "outcome": outcome, **facts}


def find_records(place: Path) -> list[str]:
    """Write the records of a release, where they are not written; return what is wrong."""
    is_there = (place / "records.csv").exists()
    again, said = call(place, SYNTHESIZE + (" --force" if is_there else ""))
    return [f"records: {said}"] if again else []


def finish(operation: Operation, place: Path) -> tuple[str, str]:
    """Run a command again, or what it names; return how it ended, and what is wrong."""
    again, said = call(place, operation.words)
    # A run that has begun to measure is finished, never begun anew; the message says how.
    if again and operation.words != RESUME and re.search(r"semidp resume \S*out", said):
        again, said = call(place, RESUME)
        return "resumed", f"resumed: {said}" if again else ""
    outcome = "resumed" if operation.words == RESUME else "failed"
    return outcome, f"the same command again: {said}" if again else ""


def compare(operation: Operation, ended: tuple[int, str], facts: dict[str, Any]) -> list[str]:
    """Compare what a command says with what it did."""
    code, said = ended
    wrong = []
    if code not in (0, 2):
        wrong.append("another exit code")
    is_made = facts["is_made"]
    if operation.words == DISCARD:
        # One that could not remove every scrap has still discarded the run.
        return [*wrong, "it is not discarded"] if code == 0 and not is_made else wrong
    is_found_later = is_made and facts["halfway"]
    if operation.has_records and is_made:
        # The release may be in place without its records: then that is said.
        is_told = (code == 0) == ("semidp synthesize out" not in said)
        return wrong if is_told or is_found_later else [*wrong, "what it says of records is not so"]
    if is_made != (code == 0) and not is_found_later and not operation.words.startswith("show"):
        wrong.append("made, and said to have failed" if is_made else "not made")
    is_in_doubt = "may have been charged" in said
    is_true = is_in_doubt or ("charged" in said) == bool(facts["more"])
    if operation.is_charged and not is_made and not is_true:
        wrong.append("what it says of the charge is not so")
    return wrong


def count_charges(folder: Path, operation: Operation) -> int:
    return len(Ledger(folder / operation.ledger).account().charges)


def is_written_off(folder: Path, operation: Operation) -> bool:
    runs = read_document(folder / operation.ledger)["runs"]
    return any("written_off" in recorded for recorded in runs.values())


def charge_number(release: Path) -> int | None:
    """The number of the charge of the release in a folder; None where there is none."""
    if not (release / "release.json").exists():
        return None
    charged = Release.load(release).ledger
    return None if charged is None else int(charged["number"])


# --- the loop -------------------------------------------------------------------------------------


def make_template(folder: Path) -> None:
    """Make a folder with data, notes, ledgers, and two releases."""
    folder.mkdir()
    people, persons, homes = ["sex,region,state,county"], ["sex,home"], ["home,state,county"]
    for home in range(12):
        people += ["f,n,a,1", "m,s,a,2", "m,n,b,3"]
        persons += [f"f,{home}", f"m,{home}"]
        homes.append(f"{home},{'aab'[home % 3]},{1 + home % 3}")
    for name, lines in (("people", people), ("persons", persons), ("homes", homes)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "notes.txt").write_text("mine")
    for words in (
        "ledger privacy.json --mu 99",
        "ledger own.json --mu 99",
        "ledger series.json --mu 99 --series quarter --each-person 4",
        f"{TABLE} --ledger privacy.json --out first",
        f"{TABLE} --ledger privacy.json --out second",
    ):
        code, said = call(folder, words)
        assert code == 0, said


def leave_unfinished(operation: Operation, place: Path, template: Path) -> None:
    """Begin a run that ends in the middle of what it writes."""
    counted, paid = Accesses(place), count_charges(place, operation)
    code, said = call(place, operation.unfinished, counted)
    assert code == 0, said
    for point in range(counted.seen * 3 // 4, 0, -1):
        shutil.rmtree(place)
        shutil.copytree(template, place)
        call(place, operation.unfinished, FailingOnce(place, point, errno.ENOSPC, True))
        if is_unfinished(place / "out") and count_charges(place, operation) == paid + 1:
            return
    raise AssertionError("no run is left unfinished")


def try_operation(
    root: Path, name: str, share: int, is_thorough: bool, points: range
) -> dict[str, Any]:
    """Let every access of an operation fail; return the counts, and what was wrong."""
    operation, place, start = OPERATIONS[name], root / "place", root / "start"
    shutil.copytree(root / "template", place)
    if operation.before:
        assert call(place, operation.before)[0] == 0
    if operation.unfinished:
        # where every run will be: it notes the path of its ledger
        leave_unfinished(operation, place, root / "template")
    shutil.copytree(place, start)
    killed = functools.partial(judge, operation, start, place, (KILLED, ""))
    accesses = ForkingAccesses(place, share, is_thorough, killed)
    accesses.points = points
    ended = call(place, operation.words, accesses)
    if accesses.answer is not None:
        accesses.end_copy(functools.partial(judge, operation, start, place, ended))
    assert ended[0] == 2 * operation.is_refused, ended[1]
    wrong = [text for report in accesses.reports for text in report["wrong"]]
    if operation.is_refused:
        assert call(place, RESUME)[0] == 0
    alike, others = compare_published(accesses, place / "out")
    shutil.rmtree(place)
    shutil.rmtree(start)
    outcomes = Counter(report.get("outcome", "wrong") for report in accesses.reports)
    return {
        "operation": name,
        "accesses": accesses.seen,
        "runs": len(accesses.reports),
        "kills": sum(report["is_killed"] for report in accesses.reports),
        "alike": accesses.alike,
        "states": len(accesses.facts),
        "same files": alike,
        **outcomes,
        "wrong": wrong + others,
    }


def compare_published(accesses: ForkingAccesses, out: Path) -> tuple[int, list[str]]:
    """Compare what was finished after it had been measured with the files of the run that nothing
    disturbed; return how many are the same, and what was wrong.
    """
    whole = _hash_tree(out)
    same, wrong = 0, []
    for report in accesses.reports:
        measured = report["facts"].get("measured")
        if measured:
            same += measured == whole
            if measured != whole:
                wrong.append(f"{report['about']}: other files than without it")
    return same, wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("share", type=int)
    parser.add_argument("names", nargs="*", choices=OPERATIONS)
    parser.add_argument("--thorough", action="store_true")
    parser.add_argument("--points", nargs=2, type=int, default=(1, sys.maxsize))
    asked = parser.parse_args()
    # in memory if there is such a folder: nothing here is to last
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, one_thread():
        make_template(Path(folder) / "template")
        for name in asked.names or OPERATIONS:
            found = try_operation(
                Path(folder), name, asked.share, asked.thorough, range(*asked.points)
            )
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
