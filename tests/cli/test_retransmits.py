"""A file server carries a rename out, loses its answer, and refuses the repeated request.

What exists then counts: nothing is reported as failed that is in place, and nothing is charged twice.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semidp import Ledger, Release
from semidp.cli import run

ERRORS = (errno.ENOENT, errno.EEXIST, errno.ESTALE, errno.EIO)
RELEASE = "release people.csv --table sex,region --exact sex --exact region --mu 1 --ledger privacy.json --out out"
BY_PARTS = (
    "release people.csv --nest state,county --table county,sex --levels sex=f,m --exact county --mu 1"
    " --partition state --ledger privacy.json --out out"
)


def answers_lost(name: str, code: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a function of `os` do its work and then fail; return what it was called for."""
    real: Callable[..., None] = getattr(os, name)
    calls = []

    def lost(source: Any, target: Any, **options: Any) -> None:
        real(source, target, **options)
        calls.append(str(target))
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, lost)
    return calls


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,region,state,county\n" + "f,n,a,1\nm,s,a,2\nm,n,b,3\n" * 8)
    assert run(["ledger", "privacy.json", "--mu", "9"]) == 0
    return tmp_path


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["rename", "replace"])
def test_what_is_in_place_is_reported_as_such(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    with monkeypatch.context() as patched:
        calls = answers_lost(name, code, patched)
        assert run(RELEASE.split()) == 0
        assert run([*RELEASE.split(), "--force"]) == 0
    assert len(calls) >= 2
    assert len(Ledger("privacy.json").account().charges) == 2
    assert Release.load("out").tables
    left = {path.name for path in place.iterdir()}
    assert left == {"out", "people.csv", "privacy.json", ".privacy.json.lock"}


@pytest.mark.parametrize("name", ["rename", "replace", "link"])
def test_parts_that_are_in_place_are_done(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patched:
        assert run(BY_PARTS.split()) == 0  # with answers: what is compared with
        calls = answers_lost(name, errno.EEXIST, patched)
        assert run([*BY_PARTS.split(), "--force"]) == 0
    assert calls
    assert len(Ledger("privacy.json").account().charges) == 2
    assert run(["show", "out"]) == 0


def test_a_rename_that_did_not_happen_is_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(source: Any, target: Any) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "rename", refused)
    assert run(RELEASE.split()) == 2
    assert "cannot write out: stale file handle" in capsys.readouterr().err.lower()
    assert not Path("out").exists()
