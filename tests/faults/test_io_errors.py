"""Every file access of a command fails, once or from then on, with each of seven errors, or the
process is killed before it: releases (in one piece, by parts, of linked files, of a series), a
combination, a check, and what finishes or discards a run that ended early. Afterwards:

- there are as many charges as releases and runs that can be resumed;
- the exit code and the sentence are true: nothing is in place that is said to have failed;
- nothing of the user's is lost: the data, notes, other releases, earlier charges, and the release
  that was to be replaced;
- the same command, or the one that the message names, succeeds once files can be reached again;
- what had been measured is published then, byte by byte.

`make test` tries a few accesses. `make test-long` lets every access fail, in one or two of fifteen
ways in turn; SEMIDP_IO_SHARE=1 tries all fifteen for each, which takes about 40 minutes of a core.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import io_loop
from tests.faults.failing_files import Accesses
from tests.faults.io_loop import OPERATIONS, FailingOnce, call, count_charges

# Of all errors at all accesses every so manieth is tried: 13 meets each access, and each way in turn.
SHARE = int(os.environ.get("SEMIDP_IO_SHARE", "13"))
ROOT = Path(__file__).parents[2]


def run_loop(share: int, *words: str) -> list[dict[str, Any]]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.io_loop", str(share), *words],
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_few_accesses_fail() -> None:
    names = ("release", "discard", "combine", "show")
    found = run_loop(701, *names)
    assert [each["operation"] for each in found] == [*names]
    for each in found:
        assert each["runs"] == each["accesses"] * len(io_loop.WAYS) // 701 > 0
        assert not each["wrong"]


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_access_fails(name: str) -> None:
    (found,) = run_loop(SHARE, name)
    assert found["accesses"] > 50
    assert found["runs"] + found["alike"] >= found["accesses"]
    assert found["kills"] >= found["accesses"] // 20
    print(json.dumps({**found, "wrong": len(found["wrong"])}))
    assert not found["wrong"], "\n".join(found["wrong"][:40])


@pytest.mark.long
def test_errors_that_no_line_tells_apart_end_alike() -> None:
    (found,) = run_loop(1, "discard", "--thorough")
    assert found["alike"] > 500
    assert found["runs"] == found["accesses"] * len(io_loop.WAYS)
    assert not found["wrong"], "\n".join(found["wrong"][:40])


def test_a_line_that_tells_errors_apart_is_noticed() -> None:
    compared = io_loop.WatchedCode.compared
    compared.clear()
    code = io_loop.WatchedCode(errno.EIO)
    plain = {*io_loop.CODES} - {errno.EACCES}  # which is a class of its own
    assert io_loop.find_alike(errno.EIO, compared) == plain
    assert code not in (errno.ENOLCK, errno.EEXIST)
    assert io_loop.find_alike(errno.EIO, compared) == plain - {errno.ENOLCK}
    assert code != errno.ENOSPC
    assert code == errno.EIO
    assert io_loop.find_alike(errno.EIO, compared) == {errno.EIO}
    compared.clear()
    assert code not in {errno.EEXIST}
    assert io_loop.find_alike(errno.EIO, compared) == {errno.EIO}
    compared.clear()


@pytest.fixture
def template(tmp_path: Path) -> Iterator[Path]:
    here = Path.cwd()
    with io_loop.one_thread():
        io_loop.make_template(tmp_path / "template")
        yield tmp_path / "template"
    os.chdir(here)


def count_accesses(words: str, template: Path, place: Path) -> int:
    shutil.copytree(template, place)
    accesses = Accesses(place)
    assert call(place, words, accesses)[0] == 0
    shutil.rmtree(place)
    return accesses.seen


def test_a_loop_that_overlooks_nothing_says_so(template: Path, tmp_path: Path) -> None:
    """What the loop looks for is found: a charge without a release, and a message that is false."""
    operation, place = OPERATIONS["release"], tmp_path / "place"
    shutil.copytree(template, place)
    assert call(place, operation.words)[0] == 0
    shutil.rmtree(place / "out")  # paid and lost
    facts = io_loop.find_facts(operation, template, place)
    assert "what was paid for is lost" in facts["wrong"]
    assert "not made" in io_loop.compare(operation, (0, ""), facts)
    assert io_loop.compare(operation, (2, "nothing was charged"), {**facts, "more": 0})
    assert io_loop.compare(operation, (70, "the ledger was charged"), facts)


def test_files_that_are_drawn_again_are_noticed(template: Path, tmp_path: Path) -> None:
    """The twin of publishing what was measured: a run that has lost it publishes something else."""
    operation, place = OPERATIONS["resume"], tmp_path / "place"
    shutil.copytree(template, place)
    io_loop.leave_unfinished(operation, place, template)
    shutil.copytree(place, tmp_path / "start")
    hashes = []
    for is_lost in (False, False, True):
        shutil.rmtree(place)
        shutil.copytree(template if is_lost else tmp_path / "start", place)
        io_loop.RANDOMNESS.drawn += 1000
        assert call(place, operation.unfinished if is_lost else operation.words)[0] == 0
        hashes.append(io_loop._hash_tree(place / "out"))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.long
def test_a_charge_that_cannot_be_looked_up_is_in_doubt(template: Path, tmp_path: Path) -> None:
    operation, place = OPERATIONS["release"], tmp_path / "place"
    total = count_accesses(operation.words, template, place)
    for point in range(total // 3, total):  # the ledger is charged in the middle
        shutil.copytree(template, place)
        accesses = FailingOnce(place, point, errno.EIO, lasting=True)
        _, said = call(place, operation.words, accesses)
        made = count_charges(place, operation) - count_charges(template, operation)
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
    total = count_accesses("show first", template, place)
    shutil.copytree(template, place)
    codes: Counter[int] = Counter()
    for point in range(1, total + 1):
        codes[call(place, "show first", FailingOnce(place, point, errno.EACCES, False))[0]] += 1
    assert set(codes) <= {0, 2}
    assert codes[2] > 10
