"""README.md, executed: its Python, its commands on a small file, its links; and the examples that
--help prints.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from semidp.cli import COMMANDS, run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = [example for _, examples in COMMANDS.values() for example in examples]


ELSEWHERE = ("semidp explore", "semidp resume", "semidp discard", "semidp disclosure table.csv")


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert found, f"README has no block of {language}"
    return found[1]


def _semidp(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "semidp"
    beside_python = Path(sys.executable).parent / "semidp"  # what a shell would find
    return subprocess.run(
        [beside_python, *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_first_release_keeps_its_promise(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _block("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "[108 825]" in done.stdout  # as the comment beside it says
    assert "differ in at most 3 records" in done.stdout


def test_the_commands_run(tmp_path: Path) -> None:
    for command in _block("sh").splitlines():
        done = _semidp(command, tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (tmp_path / "release" / "report.html").exists()
    assert (tmp_path / "means" / "report.html").exists()


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", README) + re.findall(
        r'(?:src|href)="([^"]+)"', README
    )
    assert len(targets) > 5
    assert not [
        target
        for target in targets
        if not target.startswith("http") and not (ROOT / target).exists()
    ]


def test_every_command_is_in_the_table() -> None:
    for example in EXAMPLES:
        assert re.search(rf"semidp {shlex.split(example)[1]}\b", README), example


@pytest.mark.parametrize("command", ["test", "release", "reproduce"])
def test_help_prints_its_examples_whole(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    printed = capfd.readouterr().out.splitlines()
    for example in EXAMPLES:
        if example.startswith(f"semidp {command} "):
            assert f"    {example}" in printed


@pytest.mark.long
def test_the_examples_of_help_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "")
    assert run(["demo", "--data", "people.csv"]) == 0
    (tmp_path / "sexes.csv").write_text("sex,count\nf,40\nm,60\n")
    for name, budget in (("plan1", 'mu = "1"'), ("plan2", 'rho = "1/2"')):
        lines = [
            'invariants = ["sex", "region"]',
            "[[table]]",
            'features = ["sex", "region"]',
            budget,
        ]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines))
    (tmp_path / "regions.csv").write_text("region,count\nn,30\ns,70\n")
    (tmp_path / "ptable.csv").write_text("i;j;p\n0;0;1\n1;0;0.25\n1;1;0.5\n1;2;0.25\n")
    assert (
        run(
            shlex.split(
                "release people.csv --table sex,region --exact sex --levels region=n,s,w --rho 1"
                " --out june"
            )
        )
        == 0
    )
    # others read a release
    by_need = sorted(EXAMPLES, key=lambda example: not example.startswith("semidp release"))
    for example in by_need:
        # It serves until an interrupt; there is nothing unfinished; tests/disclosure has tables.
        if example.startswith(ELSEWHERE):
            continue
        assert run(shlex.split(example)[1:]) == 0, example
