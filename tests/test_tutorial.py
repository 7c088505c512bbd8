"""The pages that teach, executed: their commands and Python in an empty folder, and what they say is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")


def _blocks(page: str) -> list[tuple[str, str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    beside_python = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{beside_python}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)


def _matches(line: str, output: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in line.split("…"))
    return any(re.fullmatch(pattern, printed.rstrip()) for printed in output.splitlines())


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("tutorial.md", {"release", "rates.png", "audit.png", "privacy.json"}),
        ("groups.md", {"means"}),
        ("inference.md", {"release"}),
        ("nested.md", {"districts"}),
        ("scale.md", {"large"}),
        ("products.md", {"product", "people.csv", "people.about.json", "pairs"}),
    ],
)
def test_the_page_runs_and_prints_what_it_says(page: str, made: set[str], tmp_path: Path) -> None:
    output = ""
    for language, note, code in _blocks(page):
        if language == "text":
            for line in code.splitlines():
                assert _matches(line, output), f"not printed: {line}\n{output}"
            continue
        words = ["bash", "-e", "-c", code] if language == "sh" else [sys.executable, "-W", "error", "-c", code]
        done = _run(words, tmp_path)
        assert done.returncode == (2 if "refused" in note else 0), done.stdout + done.stderr
        output = done.stdout + done.stderr
    assert made <= {file.name for file in tmp_path.iterdir()}
    assert not (tmp_path / "again").exists()


def test_the_tutorial_has_commands_python_and_output() -> None:
    assert {language for language, _, _ in _blocks("tutorial.md")} == {"python", "sh", "text"}
    for command in ("analyze", "ledger", "release", "test", "audit"):
        assert f"semidp {command} " in TUTORIAL


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_and_pictures_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        if target.startswith("#"):
            assert target[1:] in headings, f"{page.name}: no heading for {target}"
        else:
            assert (DOCS / target.split("#")[0]).exists(), f"{page.name}: {target} is missing"


def test_every_figure_is_used() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"])
    unused = [figure.name for figure in (DOCS / "figures").glob("*.png") if f"figures/{figure.name}" not in text]
    assert not unused


def _anchor(heading: str) -> str:
    """The name that a heading gets on the web."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")
