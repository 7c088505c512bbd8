"""Every file access of a release, a release by parts, a charge, a combination and a check fails,
once or from then on, with each of seven errors. Afterwards:

- there are as many charges as releases and runs that can be resumed;
- the exit code and the sentence are true: nothing is in place that is said to have failed;
- nothing of the user's is lost: the data, notes, other releases, earlier charges, and the release
  that was to be replaced;
- the same command succeeds once files can be reached again.

`make test` tries a few accesses. `make test-long` lets every access fail, with one or two of the
fourteen ways in turn; SEMIDP_IO_SHARE=1 tries all fourteen for each, which takes hours.
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
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from semidp import Ledger, Release
from semidp.cli import run
from semidp.promise.files import recover
from tests.faults.failing_files import Accesses, failing, is_same_tree

CODES = (
    *(errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES),
    *(errno.ESTALE, errno.ENOLCK, errno.ENOSYS),
)
TABLE = "release people.csv --table sex,region --exact sex --exact region --mu 1 --quiet"
BY_PARTS = (
    "release people.csv --nest state,county --table county,sex --levels sex=f,m --exact county"
    " --mu 1 --partition state --quiet"
)
# Of all errors at all accesses every so manieth is tried; 9 meets each error at each kind of access.
SHARE = int(os.environ.get("SEMIDP_IO_SHARE", "9"))
RESUME = "resume out --quiet"
CHARGED = "--ledger privacy.json --out out"


@dataclass(frozen=True)
class Operation:
    """A command, whether it charges the ledger, and what is done before it."""

    words: str
    charges: bool = True
    before: str = ""


OPERATIONS = {
    "release": Operation(f"{TABLE} {CHARGED}"),
    "replace": Operation(f"{TABLE} {CHARGED} --force", before=f"{TABLE} {CHARGED}"),
    "parts": Operation(f"{BY_PARTS} {CHARGED}"),
    "charge": Operation(f"{TABLE} --write parquet {CHARGED} --log run.log"),
    "combine": Operation("combine first second --out out --quiet", charges=False),
    "show": Operation("show first", charges=False),
}


@pytest.fixture(scope="module", autouse=True)
def _short_report() -> object:
    with pytest.MonkeyPatch.context() as patched:
        # it takes longer than everything else together, and is written as one file either way
        patched.setattr(Release, "report_html", lambda self, title=None, further=(): "</html>")
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, notes, a ledger that was charged, and two releases."""
    folder = tmp_path_factory.mktemp("template")
    people = "sex,region,state,county\n" + "f,n,a,1\nm,s,a,2\nm,n,b,3\n" * 8
    (folder / "people.csv").write_text(people)
    (folder / "notes.txt").write_text("mine")
    for words in (
        "ledger privacy.json --mu 99",
        f"{TABLE} --ledger privacy.json --out first",
        f"{TABLE} --ledger privacy.json --out second",
    ):
        assert call(folder, words)[0] == 0
    return folder


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
    return code, said.getvalue()


def charges(folder: Path) -> int:
    return len(Ledger(folder / "privacy.json").account().charges)


def charge_number(release: Path) -> int | None:
    """The number of the charge of the release in a folder; None where there is none."""
    if not (release / "release.json").exists():
        return None
    charged = Release.load(release).ledger
    return None if charged is None else int(charged["number"])


def check_failure(operation: Operation, template: Path, place: Path, accesses: Accesses) -> str:
    """Run an operation in which an access fails, and check what it leaves; return how it ended."""
    shutil.copytree(template, place)
    if operation.before:
        assert call(place, operation.before)[0] == 0
    paid, old = charges(place), charge_number(place / "out")
    code, said = call(place, operation.words, accesses)
    said = " ".join(said.split())
    about = f"{accesses.failed[:1]} code {accesses.code}, point {accesses.point}: {code} {said!r}"

    assert code in (0, 2), about
    for kept in ("people.csv", "notes.txt"):
        assert (place / kept).read_bytes() == (template / kept).read_bytes(), about
    for kept in ("first", "second"):
        assert is_same_tree(place / kept, template / kept), about
    # A run that could neither finish its two renames nor undo the first is finished by any reader.
    halfway = not (place / "out").exists()
    recover(place / "out")
    more = charges(place) - paid
    made = (place / "out" / "release.json").exists() and charge_number(place / "out") != old
    if not operation.charges:
        assert more == 0, about
        made = (place / "out" / "release.json").exists()
        assert operation.words.startswith("show") or made == (code == 0), about
        assert call(place, operation.words + (" --force" if made else ""))[0] == 0, about
        return "failed" if code else "done"

    assert more <= 1, about
    assert made == (code == 0) or (made and halfway), about
    assert made <= more, about
    if old is not None and not made:
        assert charge_number(place / "out") == old, about
    if made:
        return "recovered" if code else "done"
    # The sentence says whether it was charged, and is one.
    assert "may have been charged" in said or ("charged" in said) == bool(more), about
    again, words = call(place, operation.words)
    # A run that has begun to measure is finished, never begun anew; the message says how.
    if again and re.search(r"semidp resume \S*out", words):
        again, words = call(place, RESUME)
        assert again == 0, (about, words)
        assert charges(place) == paid + 1, about
        return "resumed"
    assert again == 0, (about, words)
    assert more == 0, about  # else what was paid for is lost
    assert charges(place) == paid + 1, about
    return "failed"


def count_accesses(operation: Operation, template: Path, place: Path) -> int:
    shutil.copytree(template, place)
    if operation.before:
        assert call(place, operation.before)[0] == 0
    accesses = Accesses(place)
    assert call(place, operation.words, accesses)[0] == 0
    return accesses.seen


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_few_accesses_fail(name: str, template: Path, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    total = count_accesses(operation, template, tmp_path / "counted")
    assert total > 20
    chosen = random.Random(len(name))
    for number in range(2):
        point, code = chosen.randint(1, total), chosen.choice(CODES)
        place = tmp_path / str(number)
        accesses = Accesses(place, point, code, lasting=bool(number % 2))
        check_failure(operation, template, place, accesses)
        assert accesses.failed


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_access_fails(name: str, template: Path, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    total = count_accesses(operation, template, tmp_path / "counted")
    every = [*itertools.product(range(1, total + 1), CODES, (False, True))][::SHARE]
    assert {point for point, _, _ in every} == {*range(1, total + 1)}
    ended: Counter[str] = Counter()
    for point, code, lasting in every:
        accesses = Accesses(tmp_path / "place", point, code, lasting)
        ended[check_failure(operation, template, tmp_path / "place", accesses)] += 1
        shutil.rmtree(tmp_path / "place")
    assert ended.total() == len(every)
    print(json.dumps({"operation": name, "accesses": total, "runs": len(every), **ended}))


@pytest.mark.long
def test_a_charge_that_cannot_be_looked_up_is_in_doubt(template: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    total = count_accesses(OPERATIONS["release"], template, tmp_path / "counted")
    for point in range(total // 3, total):  # the ledger is charged in the middle
        shutil.copytree(template, place)
        accesses = Accesses(place, point, errno.EIO, lasting=True)
        _, said = call(place, OPERATIONS["release"].words, accesses)
        made = charges(place) - charges(template)
        shutil.rmtree(place)
        if "charged" in said:
            assert "may have been charged" in said  # the first to fail is the write itself
            assert made == 0
            return
    pytest.fail("no access fails in a charge")


def test_a_release_that_cannot_be_read_again_is_not_called_wrong(
    template: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    shutil.copytree(template, place)
    total = count_accesses(OPERATIONS["show"], template, tmp_path / "counted")
    codes: Counter[int] = Counter()
    for point in range(1, total + 1):
        codes[call(place, "show first", Accesses(place, point, errno.EACCES))[0]] += 1
    assert set(codes) <= {0, 2}
    assert codes[2] > 10
