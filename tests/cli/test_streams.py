"""Streams that are closed before the start, and folders and files whose names or permissions are
special.
"""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from semidp.present.release import Release
from tests.cli.conftest import Semidp, one_sentence

pytestmark = pytest.mark.pictures

WORDS = ("--table", "sex,region", "--invariant", "sex", "--invariant", "region")


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text("sex,region\n" + "f,n\nf,s\nm,n\nm,s\nm,s\n" * 20)
    return path


def shell(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m semidp {words}"
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.long
def test_an_analysis_that_nobody_can_read_is_no_success(people: Path, tmp_path: Path) -> None:
    done = shell(tmp_path, f"analyze people.csv {' '.join(WORDS)} >&-")
    assert done.returncode == 2
    assert done.stderr == "semidp: the operating system refused: bad file descriptor\n"


@pytest.mark.few(1)
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", ">&- 2>&- <&-", "2>&-"])
def test_a_release_is_made_whatever_is_closed(people: Path, tmp_path: Path, closed: str) -> None:
    done = shell(tmp_path, f"release people.csv {' '.join(WORDS)} --rho 1 --out release {closed}")
    assert done.returncode == 0
    Release.load(tmp_path / "release")
    if closed == ">&-":
        assert "the release release is in place; not all could be printed about it" in done.stderr
    elif closed == "2>&-":
        assert "written    release/report.html" in done.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("length", [201, 255])
def test_a_long_name_is_a_name(here: Semidp, people: Path, tmp_path: Path, length: int) -> None:
    out = "r" * length
    for more in ((), ("--force",)):
        assert here("release", people, *WORDS, "--rho", "1", "--out", out, *more).code == 0
    Release.load(tmp_path / out)
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", out}
    assert "already exists" in one_sentence(
        here("release", people, *WORDS, "--rho", "1", "--out", out)
    )
    assert "too long" in one_sentence(
        here("release", people, *WORDS, "--rho", "1", "--out", "r" * 256)
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o775])
def test_a_release_keeps_the_permissions_of_its_folder(
    here: Semidp, people: Path, tmp_path: Path, mode: int
) -> None:
    before = os.umask(0o022)
    try:
        (tmp_path / "release").mkdir()
        (tmp_path / "release").chmod(mode)
        for more in ((), ("--force",)):
            assert (
                here("release", people, *WORDS, "--rho", "1", "--out", "release", *more).code == 0
            )
            assert stat.S_IMODE((tmp_path / "release").stat().st_mode) == mode
    finally:
        os.umask(before)
