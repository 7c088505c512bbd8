"""docs/noisy_measurements.md, executed on the simulated Hawaii: its commands, its Python, and what
it prints.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from semidp.cli import run
from tests.test_tutorial import _blocks, _commands, _matches

ROOT = Path(__file__).parents[2]
BLOCKS = ROOT / "benchmarks" / "data" / "hawaii_blocks_2020.csv"


@pytest.mark.long
@pytest.mark.skipif(
    not BLOCKS.exists(), reason="the blocks of Hawaii are in the repository, not in the sdist"
)
def test_the_page_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = _blocks("noisy_measurements.md")
    # The first block only shows the command, before there are files.
    commands = compared = 0
    output = ""
    for language, _, code in blocks[1:]:
        if language == "python":
            exec(compile(code, "noisy_measurements.md", "exec"), {})
        elif language == "text":
            for line in code.splitlines():
                assert _matches(line, output), f"{line}\n\n{output}"
                compared += 1
        else:
            capfd.readouterr()
            for command in _commands(code):
                words = shlex.split(command)
                if words[0] == "semidp":
                    assert run(words[1:]) == 0
                elif words[0] == "python":
                    words = [sys.executable, str(ROOT / words[1]), *words[2:]]
                    subprocess.run(words, check=True)
                else:
                    subprocess.run(["bash", "-e", "-c", command], check=True)
                commands += 1
            output = capfd.readouterr().out
    assert commands == 3
    assert compared == 8
    assert (tmp_path / "estimated" / "areas.csv").read_text().count("\n") == 1 + 3 * 21
