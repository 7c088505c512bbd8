"""Every kind of release that failed at its end is finished from what was measured, without its
records: the files are those of a release that did not fail.
"""

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from semidp import Ledger, Release
from semidp.cli import run
from tests.golden.example_data import write_files
from tests.golden.golden_outputs import inside
from tests.golden.scenarios import SCENARIOS

QUICK = {"linked-member", "quantile-level", "several-requests"}
RELEASES = {
    name: shlex.split(commands.split(" ; ")[0])
    for name, commands in SCENARIOS.items()
    if commands.startswith("release ") and "--out r" in commands and not name.startswith("refused")
}
KINDS = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.long)
    for name, words in RELEASES.items()
    if "--ledger" not in words and "--dry-run" not in words
]


def said_by(*words: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return run([*words]), said.getvalue()


def release(words: list[str], out: str, ledger: str) -> tuple[int, str]:
    """Release into a folder, charged to a new ledger."""
    assert said_by("ledger", ledger, "--rho", "1000000")[0] == 0
    words = [*words, "--ledger", ledger, *([] if "--seed" in words else ["--seed", "1"])]
    words[words.index("--out") + 1] = out
    return said_by(*words)


def contents(folder: Path) -> dict[str, Any]:
    """What the files hold, but for the moment and the charge; a workbook holds the moment, too."""
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".xlsx":
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    document = json.loads(files["release.json"])
    for key in ("created", "ledger"):
        del document[key]
    digests = {name: value for name, value in document["files"].items() if ".xlsx" not in name}
    files["release.json"] = {**document, "files": digests}
    return files


def broken(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_release_is_finished_from_what_was_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = RELEASES[name]
    with inside(tmp_path) as folder:
        write_files(folder)
        monkeypatch.setattr(Release, "report_html", lambda self, *_, **__: "</html>")
        code, said = release(words, "whole", "first.json")
        assert code == 0, said
        with monkeypatch.context() as full_disk:
            full_disk.setattr(Release, "report_html", broken)
            code, said = release(words, "failed", "second.json")
        assert code == 2
        assert "semidp resume" in said
        if "--partition" not in words:
            for path in folder.glob("*.csv"):
                path.unlink()  # nobody reads a record again
        code, said = said_by("resume", "failed")
        assert code == 0, said
        assert contents(folder / "failed") == contents(folder / "whole")
        assert len(Ledger("second.json").account().charges) == 1
