"""Every file access of a command fails, once or from then on, with each of seven errors: releases
(in one piece, by parts, of linked files, of a series), a combination, a check, and what finishes or
discards a run that ended early. Afterwards:

- there are as many charges as releases and runs that can be resumed;
- the exit code and the sentence are true: nothing is in place that is said to have failed;
- nothing of the user's is lost: the data, notes, other releases, earlier charges, and the release
  that was to be replaced;
- the same command, or the one that the message names, succeeds once files can be reached again.

`make test` tries a few accesses. `make test-long` lets every access fail, with one or two of the
fourteen ways in turn; SEMIDP_IO_SHARE=1 tries all fourteen for each, which takes an hour and a half
of one core.
"""

import contextlib
import errno
import io
import itertools
import json
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from semidp import Ledger, Release
from semidp.cli import run
from semidp.promise.documents import read_document
from semidp.promise.files import recover
from semidp.publish.unfinished import is_unfinished
from tests.faults.failing_files import Accesses, failing, is_same_tree

CODES = (
    *(errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES),
    *(errno.ESTALE, errno.ENOLCK, errno.ENOSYS),
)
TABLE = "release people.csv --table sex,region --exact sex --exact region --mu 1 --quiet"
PARTS = "--nest state,county --levels sex=f,m --mu 1 --partition state --quiet"
BY_PARTS = f"release people.csv --table county,sex --exact county {PARTS}"
QUARTER = "--ledger series.json --period 2026Q1 --out out"
LINKED = "release people.csv --units homes.csv --link home --protect member --most-members 3"
LINKED_TABLES = "--table county,sex --table units:county,size --exact units:county"
# Of all errors at all accesses every so manieth is tried; 9 meets each error at each kind of access.
SHARE = int(os.environ.get("SEMIDP_IO_SHARE", "9"))
CHARGED = "--ledger privacy.json --out out"
RESUME, DISCARD = "resume out --quiet", "discard out"


@dataclass(frozen=True)
class Operation:
    """A command, the release or the unfinished run that is there before it, and the ledger."""

    words: str
    before: str = ""
    unfinished: str = ""
    ledger: str = "privacy.json"

    @property
    def charges(self) -> bool:
        return self.words.startswith("release")


OPERATIONS = {
    "release": Operation(f"{TABLE} {CHARGED}"),
    "replace": Operation(f"{TABLE} {CHARGED} --force", before=f"{TABLE} {CHARGED}"),
    "parts": Operation(f"{BY_PARTS} {CHARGED}"),
    "charge": Operation(f"{TABLE} --write parquet {CHARGED} --log run.log"),
    "period": Operation(f"{TABLE} {QUARTER}", ledger="series.json"),
    "parts of a period": Operation(f"{BY_PARTS} {QUARTER}", ledger="series.json"),
    "linked": Operation(f"{LINKED} {LINKED_TABLES} --levels sex=f,m --mu 1 --quiet {CHARGED}"),
    "linked parts": Operation(f"{LINKED} {LINKED_TABLES} {PARTS} {CHARGED}"),
    "resume": Operation(RESUME, unfinished=f"{TABLE} {CHARGED}"),
    "resume parts": Operation(RESUME, unfinished=f"{BY_PARTS} {CHARGED}"),
    "resume parts of a period": Operation(
        RESUME, unfinished=f"{BY_PARTS} {QUARTER}", ledger="series.json"
    ),
    "resume linked parts": Operation(
        RESUME, unfinished=f"{LINKED} {LINKED_TABLES} {PARTS} {CHARGED}"
    ),
    "discard": Operation(DISCARD, unfinished=f"{TABLE} {CHARGED}"),
    "combine": Operation("combine first second --out out --quiet"),
    "show": Operation("show first"),
}


@pytest.fixture(scope="module", autouse=True)
def _short_report() -> object:
    with pytest.MonkeyPatch.context() as patched:
        # it takes longer than everything else together, and is written as one file either way
        patched.setattr(Release, "report_html", lambda self, title=None, further=(): "</html>")
        yield


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """A folder in memory if there is one: nothing here is to last."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if Path(memory).is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def template(root: Path) -> Path:
    """A folder with data, notes, ledgers, and two releases."""
    folder = root / "template"
    folder.mkdir()
    people = ["sex,region,home,state,county"]
    for home in range(12):
        people += [f"f,n,{home},a,1", f"m,s,{home},a,2", f"m,n,{home},b,3"]
    (folder / "people.csv").write_text("\n".join(people) + "\n")
    homes = [f"{home},{'aab'[home % 3]},{1 + home % 3}" for home in range(12)]
    (folder / "homes.csv").write_text("\n".join(["home,state,county", *homes]) + "\n")
    (folder / "notes.txt").write_text("mine")
    for words in (
        "ledger privacy.json --mu 99",
        "ledger series.json --mu 99 --series quarter --each-person 4",
        f"{TABLE} --ledger privacy.json --out first",
        f"{TABLE} --ledger privacy.json --out second",
    ):
        assert call(folder, words)[0] == 0
    return folder


@pytest.fixture(scope="module")
def start(root: Path, template: Path) -> Callable[[str], Path]:
    """Return the folder that an operation starts from; it is made once."""
    made: dict[tuple[str, str], Path] = {}

    def begin(name: str) -> Path:
        operation = OPERATIONS[name]
        key = (operation.before, operation.unfinished)
        if key not in made:
            made[key] = root / f"start-{len(made)}"
            shutil.copytree(template, made[key])
            if operation.before:
                assert call(made[key], operation.before)[0] == 0
            if operation.unfinished:
                leave_unfinished(operation, made[key], template)
        return made[key]

    return begin


def leave_unfinished(operation: Operation, folder: Path, template: Path) -> None:
    """Begin a run that ends in the middle of what it writes."""
    accesses = Accesses(folder)
    paid = count_charges(folder, operation)
    assert call(folder, operation.unfinished, accesses)[0] == 0
    for point in range(accesses.seen * 3 // 4, 0, -1):
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        call(folder, operation.unfinished, Accesses(folder, point, errno.ENOSPC, lasting=True))
        if is_unfinished(folder / "out") and count_charges(folder, operation) == paid + 1:
            return
    pytest.fail("no run is left unfinished")


def call(folder: Path, words: str, accesses: Accesses | None = None) -> tuple[int, str]:
    """Run a command in a folder; return its exit code and all that it prints."""
    said = io.StringIO()
    here = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            if accesses is None:
                code = run(words.split())
            else:
                with failing(accesses):
                    code = run(words.split())
    finally:
        os.chdir(here)
    return code, " ".join(said.getvalue().split())


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


def check_failure(operation: Operation, start: Path, place: Path, accesses: Accesses) -> str:
    """Run an operation in which an access fails, and check what it leaves; return how it ended."""
    shutil.copytree(start, place)
    paid, old = count_charges(place, operation), charge_number(place / "out")
    code, said = call(place, operation.words, accesses)
    about = f"{accesses.failed[:1]} code {accesses.code}, point {accesses.point}: {code} {said!r}"

    assert code in (0, 2), about
    for kept in ("people.csv", "homes.csv", "notes.txt"):
        assert (place / kept).read_bytes() == (start / kept).read_bytes(), about
    for kept in ("first", "second"):
        assert is_same_tree(place / kept, start / kept), about
    # A run that could neither finish its two renames nor undo the first is finished by any reader.
    halfway = not (place / "out").exists()
    recover(place / "out")
    more = count_charges(place, operation) - paid
    made = (place / "out" / "release.json").exists() and charge_number(place / "out") != old
    if operation.charges:
        return check_charged(operation, start, place, (code, said), more, made, halfway, about)

    assert more == 0, about
    if operation.words == DISCARD:
        assert not made, about
        assert (code == 0) <= (not is_unfinished(place / "out")), about
        assert (code == 0) <= is_written_off(place, operation), about
        again, words = call(place, DISCARD)
        assert again == (2 if code == 0 else 0), (about, words)
        assert is_written_off(place, operation), about
        return "failed" if code else "done"
    if operation.words == RESUME:
        assert made == (code == 0) or (made and halfway), about
        if not made:
            again, words = call(place, RESUME)
            assert again == 0, (about, words)
            assert count_charges(place, operation) == paid, about
            return "resumed"
        return "recovered" if code else "done"
    made = (place / "out" / "release.json").exists()
    assert operation.words.startswith("show") or made == (code == 0), about
    if not is_same_tree(place, start):
        assert call(place, operation.words + (" --force" if made else ""))[0] == 0, about
    return "failed" if code else "done"


def check_charged(
    operation: Operation,
    start: Path,
    place: Path,
    ended: tuple[int, str],
    more: int,
    made: bool,
    halfway: bool,
    about: str,
) -> str:
    """Check what a release that charges a ledger has left; return how it ended."""
    code, said = ended
    paid = count_charges(start, operation)
    assert more <= 1, about
    assert made == (code == 0) or (made and halfway), about
    assert made <= more, about
    if made:
        return "recovered" if code else "done"
    assert charge_number(place / "out") == charge_number(start / "out"), about
    # The sentence says whether it was charged, and is one.
    assert "may have been charged" in said or ("charged" in said) == bool(more), about
    if is_same_tree(place, start):
        return "failed"  # and the same command succeeds, as it did when accesses were counted
    again, words = call(place, operation.words)
    # A run that has begun to measure is finished, never begun anew; the message says how.
    if again and re.search(r"semidp resume \S*out", words):
        again, words = call(place, RESUME)
        assert again == 0, (about, words)
        assert count_charges(place, operation) == paid + 1, about
        return "resumed"
    assert again == 0, (about, words)
    assert more == 0, about  # else what was paid for is lost
    assert count_charges(place, operation) == paid + 1, about
    return "failed"


def count_accesses(operation: Operation, start: Path, place: Path) -> int:
    shutil.copytree(start, place)
    accesses = Accesses(place)
    assert call(place, operation.words, accesses)[0] == 0
    shutil.rmtree(place)
    return accesses.seen


QUICK = ("release", "replace", "parts", "charge", "discard", "combine", "show")


@pytest.mark.parametrize("name", QUICK)
def test_a_few_accesses_fail(name: str, start: Callable[[str], Path], root: Path) -> None:
    operation, place = OPERATIONS[name], root / "place"
    total = count_accesses(operation, start(name), place)
    assert total > 20
    chosen = random.Random(len(name))
    for number in range(2):
        point, code = chosen.randint(1, total), chosen.choice(CODES)
        accesses = Accesses(place, point, code, lasting=bool(number % 2))
        check_failure(operation, start(name), place, accesses)
        assert accesses.failed
        shutil.rmtree(place)


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_access_fails(name: str, start: Callable[[str], Path], root: Path) -> None:
    operation, place = OPERATIONS[name], root / "place"
    total = count_accesses(operation, start(name), place)
    every = [*itertools.product(range(1, total + 1), CODES, (False, True))][::SHARE]
    assert {point for point, _, _ in every} == {*range(1, total + 1)}
    ended: Counter[str] = Counter()
    broken = []
    for point, code, lasting in every:
        accesses = Accesses(place, point, code, lasting)
        try:
            ended[check_failure(operation, start(name), place, accesses)] += 1
        except AssertionError as error:
            broken.append(f"lasting {lasting}: {str(error).splitlines()[0]}")
        shutil.rmtree(place)
    print(json.dumps({"operation": name, "accesses": total, "runs": len(every), **ended}))
    assert not broken, "\n".join([f"{len(broken)} of {len(every)}", *broken[:40]])


@pytest.mark.long
def test_a_charge_that_cannot_be_looked_up_is_in_doubt(template: Path, root: Path) -> None:
    operation, place = OPERATIONS["release"], root / "place"
    total = count_accesses(operation, template, place)
    for point in range(total // 3, total):  # the ledger is charged in the middle
        shutil.copytree(template, place)
        accesses = Accesses(place, point, errno.EIO, lasting=True)
        _, said = call(place, operation.words, accesses)
        made = count_charges(place, operation) - count_charges(template, operation)
        shutil.rmtree(place)
        if "charged" in said:
            assert "may have been charged" in said  # the first to fail is the write itself
            assert made == 0
            return
    pytest.fail("no access fails in a charge")


def test_a_release_that_cannot_be_read_again_is_not_called_wrong(
    template: Path, root: Path
) -> None:
    place = root / "place"
    total = count_accesses(OPERATIONS["show"], template, place)
    shutil.copytree(template, place)
    codes: Counter[int] = Counter()
    for point in range(1, total + 1):
        codes[call(place, "show first", Accesses(place, point, errno.EACCES))[0]] += 1
    shutil.rmtree(place)
    assert set(codes) <= {0, 2}
    assert codes[2] > 10
