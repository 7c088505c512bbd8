"""The pages that teach, executed: their commands and Python in an empty folder, and what they say
is printed.

They run in this process, which need not import everything anew for each of forty;
tests/test_readme.py starts the commands of the README as a shell does.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from semidp.cli import run

pytestmark = pytest.mark.pictures

DOCS = Path(__file__).parent.parent / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")


def _blocks(page: str) -> list[tuple[str, str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def _commands(code: str) -> list[str]:
    """The commands of a block: a line each, with the lines that continue it or that it reads up to
    END.
    """
    return re.findall(
        r"^(?:[^\n]*<<'END'\n.*?^END|(?:[^\n]*\\\n)*[^\n]+)$", code, flags=re.MULTILINE | re.DOTALL
    )


def _shell(code: str) -> int:
    """Run commands up to the first that fails, as ``bash -e`` does, and return the exit code."""
    for command in _commands(code):
        if command.startswith("semidp "):
            # A shell leaves the formula of a model alone between quotes, but for $ and `.
            outside = re.sub(r'"[^"$`]*"', "", command)
            assert not set("|&;<>$*`#~") & set(outside), f"only a shell understands: {command}"
            failed = run(shlex.split(command.replace("\\\n", " "))[1:])
        else:
            failed = subprocess.run(["bash", "-e", "-c", command], check=False).returncode
        if failed:
            return failed
    return 0


def _matches(line: str, output: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in line.split("…"))
    return any(re.fullmatch(pattern, printed.rstrip()) for printed in output.splitlines())


LONG = pytest.mark.long  # two to twelve seconds of processor time each


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("tutorial.md", {"release", "rates.png", "audit.png", "privacy.json"}),
        ("exchange.md", {"titanic.csv"}),
        ("groups.md", {"means"}),
        ("format.md", {"demo"}),
        ("disclosure.md", {"block.csv"}),
        ("moving.md", {"secondary.csv"}),
        ("api/promise.md", set()),
        ("api/publish.md", set()),
        ("distributions.md", {"districts.csv", "meals"}),
        pytest.param(
            "inference.md",
            {
                "release",
                "status",
                "sexes",
                "ship",
                "pairs.png",
                "unsure",
                "unsure-admissions",
                "unsure-status",
                "schools",
            },
            marks=LONG,
        ),
        pytest.param("nested.md", {"districts"}, marks=LONG),
        pytest.param("several_records.md", {"stays", "one-stay"}, marks=LONG),
        pytest.param(
            "office.md",
            {
                "people.xlsx",
                "published",
                "stays",
                "costs",
                "better",
                "map.html",
                "partial",
                "answered",
            },
            marks=LONG,
        ),
        pytest.param("scale.md", {"large", "nation"}, marks=LONG),
        pytest.param("series.md", {"changes.csv", "changes.svg", "next.toml"}, marks=LONG),
        pytest.param("combine.md", {"march", "june", "both"}, marks=LONG),
        pytest.param(
            "products.md",
            {"product", "people.csv", "people.about.json", "pairs", "near.csv", "marriages"},
            marks=LONG,
        ),
        pytest.param(
            "records.md",
            {"release", "people.csv", "people.about.json", "several-5.csv"},
            marks=LONG,
        ),
        pytest.param(
            "swapping.md",
            {"blocks.csv", "ptable.csv", "announced-2.csv", "cells-8-2.csv"},
            marks=LONG,
        ),
    ],
)
def test_the_page_runs_and_prints_what_it_says(
    page: str,
    made: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    output = ""
    for language, note, code in _blocks(page):
        if language == "text":
            for line in code.splitlines():
                assert _matches(line, output), f"not printed: {line}\n{output}"
            continue
        exit_code = 0
        if language == "sh":
            exit_code = _shell(code)
        else:
            # warnings are errors, as everywhere here
            exec(compile(code, page, "exec"), {"__name__": "__main__"})
        output = "".join(capfd.readouterr())
        expected = 2 if "refused" in note else 1 if "convicted" in note else 0
        assert exit_code == expected, output
    assert made <= {file.name for file in tmp_path.iterdir()}


def test_the_commands_of_a_block_are_its_lines() -> None:
    code = "cat > a <<'END'\nb = \"c\"\n\nd\nEND\nsemidp e \\\n  --f\nls a\n"
    assert _commands(code) == ["cat > a <<'END'\nb = \"c\"\n\nd\nEND", "semidp e \\\n  --f", "ls a"]
    blocks = [
        code
        for page in DOCS.glob("*.md")
        for language, _, code in _blocks(page.name)
        if language == "sh"
    ]
    assert len(blocks) > 20
    for block in blocks:
        assert "\n".join(_commands(block)).split() == block.split()


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
    text = "".join(
        page.read_text(encoding="utf-8") for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md"]
    )
    unused = [
        figure.name
        for figure in (DOCS / "figures").glob("*.png")
        if f"figures/{figure.name}" not in text
    ]
    assert not unused


def _anchor(heading: str) -> str:
    """The name that a heading gets on the web."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")
