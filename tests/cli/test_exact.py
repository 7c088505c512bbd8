"""``--exact`` is the plain name of ``--invariant``: both mean the same in every command that takes
one.
"""

import json
from pathlib import Path

import pytest

from semidp.cli import run

COMMANDS = {
    "release": "release people.csv --table sex,region --mu 1 --dry-run --format json",
    "analyze": "analyze people.csv --table sex,region --mu 1 --format json",
    "guarantee": "guarantee --rho 1 --levels sex=f,m --levels region=n,s --format json",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_both_names_give_the_same(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,region\n" + "f,n\nm,s\nm,n\nf,s\nf,s\n" * 4)
    found = []
    for option in ("--exact", "--invariant"):
        assert run([*COMMANDS[command].split(), option, "sex", option, "region"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]


def test_both_may_be_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,region\n" + "f,n\nm,s\nm,n\nf,s\nf,s\n" * 4)
    words = (
        "release people.csv --table sex,region --exact sex --invariant region --mu 1 --dry-run"
        " --format json"
    )
    assert run(words.split()) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["invariants"] == [["sex"], ["region"]]
