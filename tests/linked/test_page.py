"""docs/linked.md, executed: its Python, its commands, and what these print."""

import re
from pathlib import Path

import pytest

from tests.test_tutorial import _blocks, _matches, _shell

PAGE = (Path(__file__).parents[2] / "docs" / "linked.md").read_text(encoding="utf-8")


def test_the_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # the page writes files
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["release"].results[0].agreeing == (3, 3)


@pytest.mark.long
def test_the_commands_of_the_page_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    names: dict = {}  # later blocks use the persons of the first
    output = ""
    compared = 0
    for language, _, code in _blocks("linked.md"):
        if language == "text":
            for line in code.splitlines():
                assert _matches(line, output), f"not printed: {line}\n{output}"
                compared += 1
        elif language == "sh":
            capfd.readouterr()
            assert _shell(code) == 0
            output = capfd.readouterr().out
        else:
            exec(code, names)
    assert compared > 30
