"""Run a command: `semidp` as a user does, in another process; `here` in this one, which takes no
second to start.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from semidp.cli import run as command


@frozen
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Semidp = Callable[..., Done]


@pytest.fixture
def semidp(tmp_path: Path) -> Semidp:
    def run(
        *words: str | Path, file_limit: int | None = None, env: dict[str, str] | None = None
    ) -> Done:
        def limit() -> None:
            if file_limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

        more = dict(env or {})
        if "PYTHONPATH" in more:  # before what is tested, not instead of it
            more["PYTHONPATH"] = os.pathsep.join(
                [more["PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")])]
            )
        done = subprocess.run(
            [sys.executable, "-m", "semidp", *map(str, words)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            preexec_fn=limit,
            env={**os.environ, "NO_COLOR": "1", **more},
            timeout=300,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Semidp:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str | Path) -> Done:
        capfd.readouterr()
        code = command([str(word) for word in words])
        said = capfd.readouterr()
        return Done(code, said.out, said.err)

    return run


def settle(folder: Path) -> None:
    """Let the scraps of killed runs be a day old."""
    for scrap in folder.glob(".semidp-*"):
        os.utime(scrap, (time.time() - 86400,) * 2)


def one_sentence(done: Done) -> str:
    """Check that a command failed as it should: code 2, one line on stderr, nothing on stdout;
    return the line.
    """
    assert done.code == 2, (done.code, done.err)
    assert done.out == ""
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("semidp: ")
    assert "Traceback" not in done.err
    return lines[0]
